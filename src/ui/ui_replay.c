// The replay page: one HTML file that shows a recorded episode and needs no network and no other
// file. What happened stands in it as text and as curves without a script; the scripts (web/replay)
// play it. This file is the frame, the figures and the data; ui_replay_curves.c the curves of the
// episodes, ui_replay_training.c those of the run.
#include <stdio.h>
#include <string.h>

#include "ui/ui_replay_int.h"
#include "web/web.h"

//---------------------------------- what happened ----------------------------------

static void put_stat(const char *name, const char *value, brim_str *out) {
  brim_str_append(out, "<div>");
  brim_ui_put_pair(out, name, value);
  brim_str_append(out, "</div>");
}

static void put_stats(const brim_ui_replay_options *o, const brim_trajectory *t, brim_str *out) {
  brim_scene_line figures[BRIM_SCENE_MAX_LINES];
  char text[96];
  brim_str_append(out, "<dl class=\"stats\">");
  snprintf(text, sizeof text, "%.1f", brim_trajectory_sum(t));
  put_stat(o->score, t->frames > 1 ? text : BRIM_UI_DASH, out);
  snprintf(text, sizeof text, "%lld", (long long)t->frames - 1);
  put_stat(brim_tr("steps"), text, out);
  memset(figures, 0, sizeof figures);
  const brim_scene_episode episode = brim_trajectory_episode(t);
  size_t count = t->scene->figures ? t->scene->figures(&episode, figures) : 0;
  for (size_t i = 0; i < count; i++) put_stat(brim_tr(figures[i].label), figures[i].text, out);
  brim_str_append(out, "</dl>");
}

// `which` of those beside each other, of episode `episode`.
static void put_view(const brim_ui_replay_options *o, const brim_trajectory *t, size_t which,
                     size_t episode_index, brim_str *out) {
  char text[96], label[288], name[160];
  snprintf(name, sizeof name, "%s", t->label);
  if (o->episode_count > 1) {
    snprintf(name, sizeof name, brim_tr("%.64s, episode %.64s"), t->label,
             o->episodes[episode_index]);
  }
  const brim_scene_episode episode = brim_trajectory_episode(t);
  t->scene->outcome(&episode, text, sizeof text);
  brim_str_printf(out, "<figure class=\"view c%zu %s %s\"", which, t->scene->ends[t->end],
                  t->scene->plain[t->end]  ? "plain"
                  : t->scene->good[t->end] ? "good"
                                           : "bad");
  brim_ui_replay_of(o, episode_index, out);
  brim_str_append(out, "><div class=\"frame\"><canvas tabindex=\"0\"");
  snprintf(label, sizeof label, "%s: %s", name, text);
  brim_str_append(out, " role=\"img\"");
  brim_ui_put_attribute(out, "aria-label", label);
  brim_str_append(out, "></canvas><span class=\"badge\" hidden=\"hidden\">");
  brim_ui_escape_html(out, text);
  brim_str_append(out, "</span></div><figcaption>");
  brim_ui_put(out, "h2", name);
  brim_str_append(out, "<p class=\"outcome\">");
  brim_ui_escape_html(out, text);
  brim_str_append(out, "</p>");
  put_stats(o, t, out);
  brim_str_append(out, "</figcaption></figure>\n");
}

//---------------------------------- controls ----------------------------------

static void put_button(const char *id, const char *pressed, const char *text, brim_str *out) {
  brim_str_printf(out, "<button type=\"button\" id=\"%s\"", id);
  if (pressed) brim_str_printf(out, " aria-pressed=\"%s\"", pressed);
  brim_str_append_char(out, '>');
  brim_ui_escape_html(out, text);
  brim_str_append(out, "</button>\n");
}

// A slider over replay.js's speeds, of which the fourth is 1.
static void put_speeds(brim_str *out) {
  brim_str_append(out, "<label class=\"speed\">");
  brim_ui_escape_html(out, brim_tr("Speed"));
  brim_str_append(out,
                  " <input type=\"range\" id=\"speed\" min=\"0\" max=\"6\" value=\"3\" "
                  "aria-valuetext=\"1\xc3\x97\" /><output>1\xc3\x97</output></label>\n");
}

static void put_episodes(const brim_ui_replay_options *o, brim_str *out) {
  if (o->episode_count < 2) return;
  brim_str_append(out, "<label>");
  brim_ui_escape_html(out, brim_tr("Episode"));
  brim_str_append(out, " <select id=\"episode\">");
  for (size_t i = 0; i < o->episode_count; i++) {
    brim_str_printf(out, "<option value=\"%zu\">", i);
    brim_ui_escape_html(out, o->episodes[i]);
    brim_str_append(out, "</option>");
  }
  brim_str_append(out, "</select></label>\n");
}

static void put_choice(const brim_trajectory *list, size_t count, brim_str *out) {
  if (count < 2) return;
  brim_str_append(out,
                  "<span class=\"seg\" id=\"show\" role=\"group\"><button type=\"button\" "
                  "data-v=\"both\" aria-pressed=\"true\">");
  brim_ui_escape_html(out, count > 2 ? brim_tr("all") : brim_tr("both"));
  brim_str_append(out, "</button>");
  for (size_t i = 0; i < count; i++) {
    brim_str_printf(out, "<button type=\"button\" data-v=\"%zu\" aria-pressed=\"false\">", i);
    brim_ui_escape_html(out, list[i].label);
    brim_str_append(out, "</button>");
  }
  brim_str_append(out, "</span>\n");
}

static void put_controls(const brim_ui_replay_options *o, const brim_trajectory *list, size_t count,
                         brim_str *out) {
  const brim_scene *scene = list[0].scene;
  brim_str_append(out, "<div class=\"controls play\">\n");
  put_button("play", "false", brim_tr("Play"), out);
  brim_str_append(out,
                  "<span class=\"track\"><input type=\"range\" id=\"seek\" min=\"0\" value=\"0\"");
  brim_ui_put_attribute(out, "aria-label", brim_tr("time"));
  brim_str_append(out,
                  " /></span>\n<span id=\"clock\"></span><span id=\"step\"></span>\n"
                  "</div>\n<div class=\"controls\">\n");
  put_speeds(out);
  put_episodes(o, out);
  put_choice(list, count, out);
  if (scene->camera) {
    put_button("follow", "true", brim_tr("Follow"), out);
    put_button("reset", NULL, brim_tr("Reset the camera"), out);
  }
  brim_str_append(out, "</div>\n<p class=\"hint keys\">");
  brim_ui_escape_html(
      out, scene->hint ? brim_tr(scene->hint)
                       : brim_tr("Space plays, comma and full stop move one step, [ and ] change "
                                 "the speed, Home and End go to the beginning and the end."));
  brim_str_append(out, "</p>\n<p class=\"still\">");
  brim_ui_escape_html(out, brim_tr("Playing needs JavaScript; the curves do not."));
  brim_str_append(out, "</p>\n");
}

//---------------------------------- data ----------------------------------

static brim_status put_parts(json_t *scene, const brim_scene *s) {
  static const char *const when[] = {"every", "first", "events"};
  json_t *parts, *numbers;
  BRIM_TRY(brim_json_put(scene, "parts", parts = json_array()));
  BRIM_TRY(brim_json_put(scene, "numbers", numbers = json_object()));
  for (size_t i = 0; i < s->part_count; i++) {
    const brim_scene_part *part = &s->parts[i];
    json_t *one = json_object();
    BRIM_TRY(brim_json_push(parts, one));
    BRIM_TRY(brim_json_put(one, "key", json_string(part->key)));
    BRIM_TRY(brim_json_put(one, "columns", json_integer(part->columns)));
    BRIM_TRY(brim_json_put(one, "when", json_string(when[part->when])));
    if (part->scale > 0) BRIM_TRY(brim_json_put(one, "scale", brim_json_number(part->scale)));
  }
  for (size_t i = 0; i < s->number_count; i++) {
    BRIM_TRY(brim_json_put(numbers, s->numbers[i].key, brim_json_number(s->numbers[i].value)));
  }
  return BRIM_OK;
}

// Values that a curve has under the cursor: those of a column, or its own.
static brim_status put_curve(json_t *to, const brim_scene_curve *curve, const brim_trajectory *list,
                             size_t count) {
  int32_t within = 0;
  json_t *values = NULL;
  BRIM_TRY(brim_json_put(to, "key", json_string(curve->key)));
  if (curve->reward) return BRIM_OK;
  if (!curve->value) {
    const brim_scene *scene = list[0].scene;
    size_t part = brim_scene_part_of(scene, curve->column, &within);
    BRIM_TRY(brim_json_put(to, "part", json_string(scene->parts[part].key)));
    return brim_json_put(to, "column", json_integer(within));
  }
  BRIM_TRY(brim_json_put(to, "values", values = json_array()));
  brim_status status = BRIM_OK;
  for (size_t i = 0; i < count && !status; i++) {
    brim_str text;
    brim_str_init(&text);
    status = brim_trajectory_curve(&list[i], curve, &text);
    if (!status) status = brim_json_push(values, json_string(text.data));
    brim_str_deinit(&text);
  }
  return status;
}

static brim_status fill_scene(json_t *root, const brim_trajectory *list, size_t count) {
  const brim_scene *s = list[0].scene;
  json_t *scene = json_object(), *curves = NULL;
  BRIM_TRY(brim_json_put(root, "scene", scene));
  BRIM_TRY(put_parts(scene, s));
  if (s->rate > 0) BRIM_TRY(brim_json_put(scene, "rate", brim_json_number(s->rate)));
  BRIM_TRY(brim_json_put(root, "curves", curves = json_array()));
  for (size_t i = 0; i < s->curve_count; i++) {
    json_t *one = json_object();
    BRIM_TRY(brim_json_push(curves, one));
    BRIM_TRY(put_curve(one, &s->curves[i], list, count));
  }
  return BRIM_OK;
}

static brim_status fill_data(json_t *root, const brim_ui_replay_options *o,
                             const brim_trajectory *list, size_t count) {
  json_t *text = json_object(), *replays = NULL;
  BRIM_TRY(brim_json_put(root, "text", text));
  BRIM_TRY(brim_json_put(text, "play", json_string(brim_tr("Play"))));
  BRIM_TRY(brim_json_put(text, "pause", json_string(brim_tr("Pause"))));
  BRIM_TRY(brim_json_put(text, "step", json_string(brim_tr("step"))));
  BRIM_TRY(fill_scene(root, list, count));
  BRIM_TRY(brim_ui_replay_training_data(o, root));
  if (o->episode_count > 1) {
    BRIM_TRY(brim_json_put(root, "choices", json_integer((json_int_t)o->episode_count)));
  }
  BRIM_TRY(brim_json_put(root, "replays", replays = json_array()));
  for (size_t i = 0; i < count; i++) {
    json_t *one = NULL;
    BRIM_TRY(brim_trajectory_to_json(&list[i], &one));
    BRIM_TRY(brim_json_push(replays, one));
  }
  return BRIM_OK;
}

// JSON in a script element: a '<' could end it.
static brim_status put_data(const brim_ui_replay_options *o, const brim_trajectory *list,
                            size_t count, brim_str *out) {
  brim_json_setup();
  json_t *root = json_object();
  char *text = NULL;
  brim_status status = root ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory for a page");
  if (!status) status = fill_data(root, o, list, count);
  if (!status) status = brim_json_dump(root, 0, &text);
  if (!status) {
    brim_str_append(out, "<script type=\"application/json\" id=\"data\">");
    for (const char *p = text; *p; p += strcspn(p, "<")) {
      if (*p == '<') brim_str_append(out, "\\u003c"), p++;
      brim_str_append_n(out, p, strcspn(p, "<"));
    }
    brim_str_append(out, "</script>\n");
  }
  brim_free(text);
  json_decref(root);
  return status;
}

//---------------------------------- page ----------------------------------

static void put_facts(const brim_ui_replay_options *o, brim_str *out) {
  if (o->fact_count == 0 && !o->command) return;
  brim_ui_put_section(out, "facts", brim_tr("What is replayed"), NULL);
  brim_str_append(out, "<dl class=\"facts\">\n");
  for (size_t i = 0; i < o->fact_count; i++) {
    brim_ui_put_pair(out, o->facts[i].name, o->facts[i].value);
  }
  brim_str_append(out, "</dl>\n");
  if (o->command) {
    brim_str_append(out, "<pre tabindex=\"0\"><code>");
    brim_ui_escape_html(out, o->command);
    brim_str_append(out, "</code></pre>\n");
  }
  brim_str_append(out, "</section>\n");
}

// A picture of a number or a part that the scene does not have would be empty, without a word.
static brim_status check_needs(const brim_scene *scene, const char *script) {
  static const char line[] = "\n// needs ", number[] = "numbers.", part[] = "parts.";
  const char *at = strstr(script, line);
  char word[64];
  int used = 0;
  for (at = at ? at + strlen(line) : "\n"; *at != '\n'; at += used) {
    bool has = false;
    if (sscanf(at, "%63[^ \n]%n", word, &used) != 1) break;
    used += at[used] == ' ';
    const bool wants_number = brim_str_starts(word, number);
    const char *key = word + strlen(wants_number ? number : part);
    for (size_t i = 0; wants_number && i < scene->number_count; i++) {
      has |= strcmp(scene->numbers[i].key, key) == 0;
    }
    for (size_t i = 0; !wants_number && i < scene->part_count; i++) {
      has |= strcmp(scene->parts[i].key, key) == 0;
    }
    if (has) continue;
    return wants_number
               ? brim_fail(BRIM_EUNSUPPORTED,
                           "the picture for scenes of kind %s needs the number '%s', which this "
                           "scene does not have",
                           scene->kind, key)
               : brim_fail(BRIM_EUNSUPPORTED,
                           "the picture for scenes of kind %s needs the part '%s', which this "
                           "scene does not have",
                           scene->kind, key);
  }
  return BRIM_OK;
}

brim_status brim_ui_replay(const brim_ui_replay_options *options, const brim_trajectory *list,
                           size_t count, brim_str *out) {
  const size_t episodes = options->episode_count > 1 ? options->episode_count : 1;
  const size_t beside = count / episodes;
  if (beside < 1 || beside > BRIM_UI_MAX_REPLAYS || count % episodes != 0) {
    return brim_fail(BRIM_EINVAL, "a replay page shows 1 to %d trajectories, not %zu",
                     BRIM_UI_MAX_REPLAYS, count);
  }
  for (size_t i = 0; i < count; i++) {
    if (list[i].frames > 0) continue;
    return brim_fail(BRIM_EINVAL, "there is no state in the trajectory '%s'", list[i].label);
  }
  char picture[96];
  snprintf(picture, sizeof picture, "replay/scene_%.64s.js", list[0].scene->kind);
  const brim_web_asset *script = brim_web_find(picture);
  if (!script) {
    return brim_fail(BRIM_EUNSUPPORTED, "brim has no picture for scenes of kind %s",
                     list[0].scene->kind);
  }
  BRIM_TRY(check_needs(list[0].scene, (const char *)script->data));
  static const char *const styles[] = {"replay/replay.css", NULL};
  brim_ui_put_head(options->title, styles, out);
  brim_str_append(out, "<body>\n<header><p class=\"brand\">brim render</p>");
  brim_ui_put(out, "h1", options->title);
  if (options->about) {
    brim_str_append(out, "<p class=\"sub\">");
    brim_ui_escape_html(out, options->about);
    brim_str_append(out, "</p>");
  }
  brim_str_printf(out, "</header>\n<main>\n<div id=\"stage\" data-n=\"%zu\">\n", beside);
  for (size_t i = 0; i < count; i++) put_view(options, &list[i], i % beside, i / beside, out);
  brim_str_append(out, "</div>\n");
  put_controls(options, list, beside, out);
  brim_status status = brim_ui_replay_curves(options, list, count, out);
  brim_ui_replay_training(options, out);
  put_facts(options, out);
  brim_str_printf(out, "</main>\n<footer>brim %s</footer>\n", BRIM_VERSION);
  if (!status) status = put_data(options, list, count, out);
  brim_ui_put_asset("script", picture, out);
  brim_ui_put_asset("script", "replay/replay.js", out);
  brim_str_append(out, "</body>\n</html>\n");
  return status ? status : brim_str_status(out);
}
