// Scenes: places of numbers in a frame, and the check of a scene.
#include "record/record_scene.h"

#include <math.h>
#include <string.h>

#include "base/base_status.h"

int32_t brim_scene_width(const brim_scene *scene) {
  return brim_scene_offset(scene, scene->part_count);
}

int32_t brim_scene_offset(const brim_scene *scene, size_t part) {
  int32_t offset = 0;
  for (size_t i = 0; i < part; i++) offset += scene->parts[i].columns;
  return offset;
}

bool brim_scene_event(const brim_scene *scene, size_t part, const float *frame) {
  const float *at = frame + brim_scene_offset(scene, part);
  for (int32_t i = 0; i < scene->parts[part].columns; i++) {
    if (at[i] < 0 || at[i] > 0) return true;
  }
  return false;
}

size_t brim_scene_part_of(const brim_scene *scene, int32_t column, int32_t *within) {
  size_t part = 0;
  while (part < scene->part_count && column >= scene->parts[part].columns) {
    column -= scene->parts[part++].columns;
  }
  *within = column;
  return part;
}

double brim_scene_sum(const brim_scene_episode *episode) {
  double sum = 0;
  for (int64_t i = 0; i + 1 < episode->states; i++) sum += (double)episode->reward[i];
  return sum;
}

//---------------------------------- the check ----------------------------------

// True for a word that may be part of a file's name and of scripts.
static bool is_word(const char *text) {
  static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789_";
  return text && text[0] && strspn(text, letters) == strlen(text);
}

static const char *wrong_part(const brim_scene_part *part) {
  if (!is_word(part->key)) return "a part has no key of letters, digits and _";
  if (part->columns < 1) return "a part has no columns";
  if ((unsigned)part->when > BRIM_SCENE_EVENTS) return "a part has an unknown `when`";
  if (part->when == BRIM_SCENE_EVENTS && !part->label) return "events have no label";
  if (!(part->scale >= 0 && part->scale <= 1e6)) return "a part has a scale out of range";
  return NULL;
}

static const char *wrong_curve(const brim_scene *scene, const brim_scene_curve *curve) {
  int32_t within;
  if (!is_word(curve->key)) return "a curve has no key of letters, digits and _";
  if (!curve->title) return "a curve has no title";
  if (curve->digits < 0 || curve->digits > 9) return "a curve has digits out of range";
  if (curve->limit_count < 0 || curve->limit_count > 2) return "a curve has more than two limits";
  if (curve->reward || curve->value) return NULL;
  size_t part =
      curve->column < 0 ? scene->part_count : brim_scene_part_of(scene, curve->column, &within);
  if (part >= scene->part_count || scene->parts[part].when != BRIM_SCENE_EVERY) {
    return "a curve has a column that is not of every frame";
  }
  return NULL;
}

static const char *wrong_names(const brim_scene *scene) {
  if (!is_word(scene->kind)) return "its kind is no word of letters, digits and _";
  if (!scene->outcome) return "it has no `outcome`";
  for (int i = 0; i < BRIM_SCENE_ENDS; i++) {
    if (!is_word(scene->ends[i])) return "an end has no name of letters, digits and _";
  }
  for (size_t i = 0; i < scene->number_count; i++) {
    if (!is_word(scene->numbers[i].key)) return "a number has no key of letters, digits and _";
    if (!isfinite(scene->numbers[i].value)) return "a number is not finite";
  }
  if (!(scene->rate >= 0 && scene->rate <= 1e6)) return "its rate is out of range";
  return NULL;
}

static const char *problem_of(const brim_scene *scene) {
  if (scene->part_count < 1 || scene->part_count > BRIM_SCENE_MAX_PARTS) {
    return "it has no parts or too many";
  }
  if (scene->number_count > BRIM_SCENE_MAX_NUMBERS) return "it has too many numbers";
  if (scene->curve_count > BRIM_SCENE_MAX_CURVES) return "it has too many curves";
  const char *problem = wrong_names(scene);
  for (size_t i = 0; !problem && i < scene->part_count; i++) problem = wrong_part(&scene->parts[i]);
  for (size_t i = 0; !problem && i < scene->curve_count; i++) {
    problem = wrong_curve(scene, &scene->curves[i]);
  }
  return problem;
}

brim_status brim_scene_check(const brim_scene *scene, int32_t frame, const char *name) {
  const char *problem = problem_of(scene);
  if (problem) return brim_fail(BRIM_EABI, "environment %s: scene: %s", name, problem);
  if (brim_scene_width(scene) == frame) return BRIM_OK;
  return brim_fail(BRIM_EABI, "environment %s: its scene has %d numbers, but a frame has %d", name,
                   brim_scene_width(scene), frame);
}
