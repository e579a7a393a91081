// Expanding a grid: resolves one config after the other, and keeps its id, stored text and label.
// Knows no workload and opens no store.
#include "lab/grid/lab_grid.h"

#include <string.h>

#include "base/base_sha256.h"
#include "lab/store/lab_store.h"
#include "lab/wire/lab_wire_ids.h"

static brim_status no_memory(void) {
  return brim_fail(BRIM_ENOMEM, "out of memory while expanding a grid");
}

void brim_lab_grid_free(brim_lab_grid *grid) {
  brim_arena_destroy(grid->arena);
  memset(grid, 0, sizeof *grid);
}

brim_status brim_lab_config_text(const brim_config *config,
                                 const char hashes[BRIM_CONFIG_IDENTITY_COUNT][BRIM_LAB_ID],
                                 brim_str *out) {
  brim_str_printf(out, "# group %s\n# cost %s\n", hashes[BRIM_CONFIG_GROUP],
                  hashes[BRIM_CONFIG_COST]);
  return brim_config_to_experiment(config, out);
}

//---------------------------------- one point ----------------------------------

// Reused for every point.
typedef struct buffers {
  brim_str label, config, tags, metric;
} buffers;

static brim_status copy_text(brim_lab_grid *grid, const brim_str *text, const char **out) {
  BRIM_TRY(brim_str_status(text));
  *out = brim_arena_strndup(grid->arena, text->data, text->len);
  return *out ? BRIM_OK : no_memory();
}

static brim_status tags_of(const brim_config *point, brim_str *out) {
  const char *const *tags;
  size_t count;
  BRIM_TRY(brim_config_get_strings(point, "tags", &tags, &count));
  for (size_t i = 0; i < count; i++) brim_str_printf(out, "%s%s", i ? "," : "", tags[i]);
  return brim_str_status(out);
}

static brim_status fill_point(const brim_config *grid_config, const brim_lab_grid_options *options,
                              size_t i, const brim_config *point, brim_lab_point *out, buffers *b) {
  *out = (brim_lab_point){.idx = (int64_t)i, .metric_key = ""};
  char hashes[BRIM_CONFIG_IDENTITY_COUNT][BRIM_LAB_ID];
  BRIM_TRY(brim_config_hashes(point, hashes));
  memcpy(out->id, hashes[BRIM_CONFIG_EXPERIMENT], sizeof out->id);
  memcpy(out->group, hashes[BRIM_CONFIG_GROUP], sizeof out->group);
  memcpy(out->cost_id, hashes[BRIM_CONFIG_COST], sizeof out->cost_id);
  out->seed = brim_config_int(point, "seed");
  out->priority = brim_config_int(point, "priority");
  out->gpus = brim_config_int(point, "gpus");
  out->tries = brim_config_int(point, "retries");
  BRIM_TRY(brim_lab_config_text(point, (const char(*)[BRIM_LAB_ID])hashes, &b->config));
  BRIM_TRY(brim_config_grid_label(grid_config, i, &b->label));
  BRIM_TRY(tags_of(point, &b->tags));
  if (options && options->describe) BRIM_TRY(options->describe(options->ctx, point, out));
  brim_str_append(&b->metric, out->metric_key);
  return BRIM_OK;
}

//---------------------------------- all of them ----------------------------------

static brim_status add_point(const brim_config *config, const brim_lab_grid_options *options,
                             size_t i, brim_lab_grid *grid, brim_lab_ids *set, buffers *b) {
  brim_config *point;
  brim_lab_point *p = &grid->points[grid->count];
  brim_str_clear(&b->label);
  brim_str_clear(&b->config);
  brim_str_clear(&b->tags);
  brim_str_clear(&b->metric);
  BRIM_TRY(brim_config_grid_point(config, i, &point));
  brim_status status = fill_point(config, options, i, point, p, b);
  brim_config_close(point);
  if (status) return status;
  size_t earlier;
  if (brim_lab_ids_find(set, p->id, &earlier)) {
    grid->duplicates++;
    return BRIM_OK;
  }
  brim_lab_ids_add(set, p->id, grid->count);
  BRIM_TRY(copy_text(grid, &b->label, &p->label));
  BRIM_TRY(copy_text(grid, &b->config, &p->config));
  BRIM_TRY(copy_text(grid, &b->tags, &p->tags));
  BRIM_TRY(copy_text(grid, &b->metric, &p->metric_key));
  grid->count++;
  return BRIM_OK;
}

static brim_status add_points(const brim_config *config, const brim_lab_grid_options *options,
                              brim_lab_grid *grid) {
  const size_t total = brim_config_grid_count(config);
  brim_lab_ids set;
  BRIM_TRY(brim_lab_ids_init(&set, total));
  grid->points = brim_arena_calloc(grid->arena, total, sizeof *grid->points);
  buffers b;
  brim_str_init(&b.label);
  brim_str_init(&b.config);
  brim_str_init(&b.tags);
  brim_str_init(&b.metric);
  brim_status status = grid->points ? BRIM_OK : no_memory();
  for (size_t i = 0; i < total && !status; i++) {
    status = options && options->stop && *options->stop
                 ? brim_fail(BRIM_EINTERRUPTED, "interrupted while expanding the grid")
                 : add_point(config, options, i, grid, &set, &b);
  }
  brim_str_deinit(&b.label);
  brim_str_deinit(&b.config);
  brim_str_deinit(&b.tags);
  brim_str_deinit(&b.metric);
  brim_lab_ids_deinit(&set);
  return status;
}

//---------------------------------- the grid ----------------------------------

static brim_status read_devices(const brim_config *config, brim_lab_grid *grid) {
  const char *const *devices;
  size_t count;
  BRIM_TRY(brim_config_devices_apart(config));
  BRIM_TRY(brim_config_get_strings(config, "device", &devices, &count));
  const char **own = brim_arena_calloc(grid->arena, count, sizeof *own);
  if (!own) return no_memory();
  for (size_t i = 0; i < count; i++) {
    own[i] = brim_arena_strdup(grid->arena, devices[i]);
    if (!own[i]) return no_memory();
  }
  grid->devices = own;
  grid->device_count = count;
  return BRIM_OK;
}

static brim_status read_keys(const brim_config *config, const brim_lab_grid_options *options,
                             brim_lab_grid *grid) {
  const char *name = brim_config_string(config, "name");
  const char *store = brim_config_string(config, "store");
  if (!name || !*name) name = options && options->name ? options->name : "sweep";
  grid->name = brim_arena_strdup(grid->arena, name);
  if (store) grid->store = brim_arena_strdup(grid->arena, store);
  if (!grid->name || (store && !grid->store)) return no_memory();
  grid->per_gpu = brim_config_int(config, "per_gpu");  // 0 where it is left open
  return read_devices(config, grid);
}

static brim_status add_notes(brim_lab_grid *grid) {
  if (!grid->duplicates) return BRIM_OK;
  const char **notes = brim_arena_calloc(grid->arena, 1, sizeof *notes);
  if (!notes) return no_memory();
  notes[0] = brim_arena_printf(
      grid->arena,
      brim_tr("%zu of %zu points repeat another point of the grid; brim runs each of them once"),
      grid->duplicates, grid->count + grid->duplicates);
  if (!notes[0]) return no_memory();
  grid->notes = notes;
  grid->note_count = 1;
  return BRIM_OK;
}

static void set_id(brim_lab_grid *grid) {
  brim_sha256 h;
  uint8_t digest[BRIM_SHA256_BYTES];
  char hex[BRIM_SHA256_HEX];
  brim_sha256_init(&h);
  brim_sha256_update(&h, grid->name, strlen(grid->name) + 1);
  for (size_t i = 0; i < grid->count; i++) brim_sha256_update(&h, grid->points[i].id, BRIM_LAB_ID);
  brim_sha256_final(&h, digest);
  brim_sha256_format(digest, hex);
  memcpy(grid->id, hex, BRIM_LAB_ID - 1);
  grid->id[BRIM_LAB_ID - 1] = '\0';
}

brim_status brim_lab_grid_expand(const brim_config *config, const brim_lab_grid_options *options,
                                 brim_lab_grid *out) {
  memset(out, 0, sizeof *out);
  BRIM_TRY(brim_arena_create(1 << 20, &out->arena));
  BRIM_TRY(read_keys(config, options, out));
  BRIM_TRY(add_points(config, options, out));
  BRIM_TRY(add_notes(out));
  set_id(out);
  return BRIM_OK;
}

brim_status brim_lab_grid_points(const brim_lab_grid *grid, brim_store_point **out) {
  brim_store_point *points = brim_calloc(grid->count ? grid->count : 1, sizeof *points);
  if (!points) return brim_fail(BRIM_ENOMEM, "out of memory while submitting a grid");
  for (size_t i = 0; i < grid->count; i++) {
    const brim_lab_point *p = &grid->points[i];
    points[i] = (brim_store_point){.id = p->id,
                                   .idx = p->idx,
                                   .label = p->label,
                                   .config = p->config,
                                   .tags = p->tags,
                                   .metric_key = p->metric_key[0] ? p->metric_key : NULL,
                                   .priority = p->priority,
                                   .gpus = p->gpus,
                                   .tries = p->tries,
                                   .steps = p->steps,
                                   .epochs = p->epochs};
  }
  *out = points;
  return BRIM_OK;
}
