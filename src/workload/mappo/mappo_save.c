// Checkpoints of mappo (mappo.h says what is in them), and the way back to exactly there: networks, their
// optimisers, every environment where it stands, and the statistics of returns.
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "workload/mappo/mappo_int.h"

static const char *const prefixes[BRIM_MAPPO_NETS] = {BRIM_MAPPO_PREFIX_ACTOR,
                                                      BRIM_MAPPO_PREFIX_CRITIC};
static const char *const span_names[2] = {"rollout.states", "rollout.carried"};
static const char norm_sums[] = "value_norm.sums", norm_scale[] = "value_norm.scale";

// What a rollout carries from one iteration to the next, on the host.
struct brim_mappo_copy {
  brim_ppo_norm norm;
  uint64_t clock;
  size_t bytes[2];
  unsigned char *spans[2];
};
typedef struct brim_mappo_copy copy;

//---------------------------------- the device ----------------------------------

static void copy_free(copy *c) {
  if (!c) return;
  for (int i = 0; i < 2; i++) brim_free(c->spans[i]);
  brim_free(c);
}

void brim_mappo_copy_free(brim_mappo *w) {
  copy_free(w->copy);
  w->copy = NULL;
}

static size_t norm_offset(const brim_mappo *w) {
  return w->places.report + offsetof(brim_mappo_report, norm);
}

static brim_status fetch(brim_mappo *w, copy **out) {
  brim_device *device = w->context.device;
  brim_collect_clock clock;
  copy *c = (copy *)brim_calloc(1, sizeof *c);
  *out = NULL;
  if (!c) return brim_fail(BRIM_ENOMEM, "out of memory for a copy of the environments");
  brim_status status =
      brim_device_copy(device, &c->norm, w->memory + norm_offset(w), sizeof c->norm, BRIM_COPY_D2H);
  if (!status) {
    status =
        brim_device_copy(device, &clock, w->block + w->layout.clock, sizeof clock, BRIM_COPY_D2H);
  }
  for (int i = 0; !status && i < 2; i++) {
    c->bytes[i] = w->layout.saved[i].bytes;
    c->spans[i] = (unsigned char *)brim_alloc(c->bytes[i] + 1);
    if (!c->spans[i]) {
      status = brim_fail(BRIM_ENOMEM, "out of memory for a copy of the environments");
      break;
    }
    status = brim_device_copy(device, c->spans[i], w->block + w->layout.saved[i].offset,
                              c->bytes[i], BRIM_COPY_D2H);
  }
  if (!status) status = brim_device_sync(device);
  if (status) {
    copy_free(c);
    return status;
  }
  c->clock = clock.next;
  *out = c;
  return BRIM_OK;
}

static brim_status put_spans(brim_mappo *w, const copy *c) {
  brim_device *device = w->context.device;
  for (int i = 0; i < 2; i++) {
    const size_t at = w->layout.saved[i].offset;
    if (w->host_block) memcpy(w->host_block + at, c->spans[i], c->bytes[i]);
    BRIM_TRY(brim_device_copy(device, w->block + at, c->spans[i], c->bytes[i], BRIM_COPY_H2D));
  }
  return brim_device_sync(device);
}

// Other environments than those of the file: new episodes, with random numbers that follow.
static brim_status put_clock(brim_mappo *w, uint64_t clock) {
  brim_device *device = w->context.device;
  const brim_collect_clock now = {.now = clock, .next = clock};
  if (w->host_block) memcpy(w->host_block + w->layout.clock, &now, sizeof now);
  BRIM_TRY(brim_device_copy(device, w->block + w->layout.clock, &now, sizeof now, BRIM_COPY_H2D));
  return brim_device_sync(device);
}

static brim_status put_norm(brim_mappo *w, const brim_ppo_norm *norm) {
  brim_device *device = w->context.device;
  BRIM_TRY(brim_device_copy(device, w->memory + norm_offset(w), norm, sizeof *norm, BRIM_COPY_H2D));
  return brim_device_sync(device);
}

//---------------------------------- metadata ----------------------------------

static brim_status put_object(json_t *meta, const char *key, json_t *object) {
  char *text = NULL;
  brim_status status = brim_json_dump(object, 0, &text);
  if (!status) status = brim_json_put(meta, key, json_string(text));
  brim_free(text);
  return status;
}

static brim_status fill_policy(const brim_mappo *w, json_t *o) {
  const brim_component *c = &w->models[BRIM_MAPPO_ACTOR].component;
  BRIM_TRY(brim_json_put(o, "observations", json_integer(w->z.obs)));
  BRIM_TRY(brim_json_put(o, "state", json_integer(w->layout.critic)));
  BRIM_TRY(brim_json_put(o, "actions", json_integer(w->z.act)));
  BRIM_TRY(brim_json_put(o, "agents", json_integer(w->z.agents)));
  BRIM_TRY(brim_json_put(o, "rewards", json_integer(w->rewards)));
  BRIM_TRY(brim_json_put(o, "depth", json_integer(brim_component_int(c, "depth", 0))));
  BRIM_TRY(brim_json_put(o, "hidden", json_integer(brim_component_int(c, "hidden", 0))));
  BRIM_TRY(brim_json_put(o, "num_envs", json_integer(w->sizes.envs)));
  BRIM_TRY(brim_json_put(o, "chosen_envs", json_integer(w->knobs[BRIM_MAPPO_ENVS].value)));
  BRIM_TRY(brim_json_put(o, "rollout_steps", json_integer(w->sizes.steps)));
  BRIM_TRY(brim_json_put(o, "minibatches", json_integer(w->sizes.minibatches)));
  if (w->general_rollout) BRIM_TRY(brim_json_put(o, "general_rollout", json_true()));
  return brim_json_put(o, "episode_length", json_integer(w->shape.episode_length));
}

static brim_status put_objects(const brim_mappo *w, json_t *meta) {
  json_t *env = json_object(), *policy = json_object();
  brim_status status = env && policy ? brim_work_env_put(w->shape.row, w->shape.env.bytes, env)
                                     : brim_fail(BRIM_ENOMEM, "out of memory while saving");
  if (!status) status = fill_policy(w, policy);
  if (!status) status = put_object(meta, "brim.env", env);
  if (!status) status = put_object(meta, "brim.policy", policy);
  json_decref(env);
  json_decref(policy);
  return status;
}

static brim_status fill_metadata(brim_mappo *w, const copy *c, bool weights_only, json_t *meta) {
  BRIM_TRY(brim_json_put(meta, "brim.format", json_string("brim.checkpoint/1")));
  BRIM_TRY(brim_json_put(meta, "brim.workload", json_string("mappo")));
  BRIM_TRY(brim_work_put_i64(meta, "brim.step", w->now.step));
  BRIM_TRY(brim_work_put_i64(meta, "brim.epoch", brim_mappo_epoch_of(w, w->now.step)));
  BRIM_TRY(brim_work_put_i64(meta, "brim.seed", (int64_t)w->how.seed));
  BRIM_TRY(brim_work_put_i64(meta, "brim.updates", w->now.updates));
  BRIM_TRY(brim_work_put_i64(meta, "brim.episodes", w->now.episodes));
  BRIM_TRY(brim_work_put_i64(meta, "brim.clock", (int64_t)c->clock));
  BRIM_TRY(put_objects(w, meta));
  if (!weights_only) {
    BRIM_TRY(brim_json_put_numbers(meta, "brim.sums", w->now.sums, BRIM_MAPPO_SUMS));
    BRIM_TRY(brim_work_put_i64(meta, "brim.skipped_steps", w->now.idle));
    BRIM_TRY(brim_work_put_i64(meta, "brim.skipped_updates", w->now.skipped));
  }
  BRIM_TRY(brim_work_put_i64(meta, "brim.threads", w->context.device->info.threads));
  BRIM_TRY(brim_json_put(meta, BRIM_SAFETENSORS_SUM, json_string("")));
  return brim_work_put_device(w->context.device, !weights_only, meta);
}

//---------------------------------- writing ----------------------------------

enum { MAX_ENTRIES = 512 };

static void add_entry(brim_safetensors_entry *all, size_t *n, brim_safetensors_entry one) {
  if (*n < MAX_ENTRIES) all[(*n)++] = one;
}

// Widest types first, so that every value is aligned in the file.
static brim_status write_entries(const char *path, brim_net_entries *const nets[BRIM_MAPPO_NETS],
                                 const copy *c, bool weights_only, const json_t *meta) {
  const double sums[3] = {c->norm.mean_sum, c->norm.square_sum, c->norm.weight};
  const float scale[3] = {c->norm.mean, c->norm.std, c->norm.inverse};
  brim_safetensors_entry *all = (brim_safetensors_entry *)brim_calloc(MAX_ENTRIES, sizeof *all);
  size_t n = 0;
  if (!all) return brim_fail(BRIM_ENOMEM, "out of memory for the entries of a checkpoint");
  add_entry(all, &n, (brim_safetensors_entry){norm_sums, BRIM_F64, 1, {3}, sums, sizeof sums});
  for (int wide = 1; wide >= 0; wide--) {
    for (int i = 0; i < BRIM_MAPPO_NETS; i++) {
      const brim_safetensors_entry *e;
      for (size_t k = 0; (e = brim_net_entries_at(nets[i], k)); k++) {
        if ((brim_dtype_size(e->dtype) > 4) == (wide == 1)) add_entry(all, &n, *e);
      }
    }
  }
  add_entry(all, &n, (brim_safetensors_entry){norm_scale, BRIM_F32, 1, {3}, scale, sizeof scale});
  for (int i = 0; !weights_only && i < 2; i++) {
    add_entry(all, &n,
              (brim_safetensors_entry){
                  span_names[i], BRIM_U8, 1, {(int64_t)c->bytes[i]}, c->spans[i], c->bytes[i]});
  }
  brim_status status = n < MAX_ENTRIES
                           ? brim_safetensors_write(path, all, n, meta)
                           : brim_fail(BRIM_ELIMIT, "%s: too many layers for a checkpoint", path);
  brim_free(all);
  return status;
}

static brim_status write_file(brim_mappo *w, const copy *c, const char *path, bool weights_only,
                              const json_t *meta) {
  brim_net_entries *nets[BRIM_MAPPO_NETS] = {NULL};
  brim_status status = BRIM_OK;
  for (int i = 0; !status && i < BRIM_MAPPO_NETS; i++) {
    status = brim_net_entries_copy(brim_mappo_net(w, i), prefixes[i], weights_only, &nets[i]);
  }
  if (!status) status = write_entries(path, nets, c, weights_only, meta);
  for (int i = 0; i < BRIM_MAPPO_NETS; i++) brim_net_entries_free(nets[i]);
  return status;
}

brim_status brim_mappo_save(void *work, const char *path, const json_t *extra, bool weights_only) {
  brim_mappo *w = (brim_mappo *)work;
  copy *c = NULL;
  brim_json_setup();
  BRIM_TRY(fetch(w, &c));
  json_t *meta = json_object();
  brim_status status = meta ? fill_metadata(w, c, weights_only, meta)
                            : brim_fail(BRIM_ENOMEM, "out of memory while saving %s", path);
  if (!status && extra && json_object_update(meta, (json_t *)extra)) {
    status = brim_fail(BRIM_ENOMEM, "out of memory while saving %s", path);
  }
  if (!status) status = write_file(w, c, path, weights_only, meta);
  json_decref(meta);
  copy_free(c);
  return status;
}

//---------------------------------- reading ----------------------------------

static const char *text_of(const json_t *meta, const char *key) {
  return json_string_value(json_object_get(meta, key));
}

static brim_status get_count(const json_t *meta, const char *path, const char *key, int64_t *out) {
  const char *text = text_of(meta, key);
  if (text && brim_parse_i64(text, out) && *out >= 0 && *out < (int64_t)1 << 53) return BRIM_OK;
  return brim_fail(BRIM_EPARSE,
                   "%s: __metadata__ has no valid '%s'; is it a checkpoint of brim train?", path,
                   key);
}

// A file of this workload and of an environment that observes and acts as this run's.
static brim_status check_owner(const brim_mappo *w, const char *path, const json_t *meta,
                               bool task) {
  const char *workload = text_of(meta, "brim.workload");
  if (workload && strcmp(workload, "mappo") != 0) {
    return brim_fail(BRIM_EINVAL, "%s is a checkpoint of workload %s, not of mappo", path,
                     workload);
  }
  return brim_work_env_check(w->shape.row, w->shape.env.bytes, path, text_of(meta, "brim.env"),
                             task);
}

static brim_status read_norm(const char *path, const brim_safetensors *file, brim_ppo_norm *out) {
  const brim_safetensors_entry *sums = brim_safetensors_find(file, norm_sums);
  const brim_safetensors_entry *scale = brim_safetensors_find(file, norm_scale);
  double s[3];
  float v[3];
  memset(out, 0, sizeof *out);
  if (!sums && !scale) return BRIM_OK;  // networks of another program: no statistics yet
  bool good = sums && scale && sums->bytes == sizeof s && scale->bytes == sizeof v;
  if (good) {
    memcpy(s, sums->data, sizeof s);
    memcpy(v, scale->data, sizeof v);
    for (int i = 0; i < 3; i++) good = good && isfinite(s[i]) && isfinite((double)v[i]);
    good = good && s[1] >= 0 && s[2] >= 0 && s[2] <= 1 && v[1] >= 0.0f && v[2] >= 0.0f;
  }
  if (!good) {
    return brim_fail(BRIM_EPARSE, "%s: invalid statistics in value_norm.*: the file is damaged",
                     path);
  }
  *out = (brim_ppo_norm){.mean_sum = s[0],
                         .square_sum = s[1],
                         .weight = s[2],
                         .mean = v[0],
                         .std = v[1],
                         .inverse = v[2]};
  return BRIM_OK;
}

static brim_status check_nets(const brim_mappo *w, const char *path, const brim_safetensors *file,
                              bool weights_only) {
  for (int i = 0; i < BRIM_MAPPO_NETS; i++) {
    const brim_net_part part = {path, file, prefixes[i], weights_only};
    BRIM_TRY(brim_net_entries_check(brim_mappo_net(w, i), &part));
  }
  return BRIM_OK;
}

static brim_status take_nets(brim_mappo *w, const char *path, const brim_safetensors *file,
                             bool weights_only) {
  for (int i = 0; i < BRIM_MAPPO_NETS; i++) {
    const brim_net_part part = {path, file, prefixes[i], weights_only};
    BRIM_TRY(brim_net_entries_take(brim_mappo_net(w, i), &part));
  }
  return BRIM_OK;
}

// Networks and statistics of a file; where training stood is left alone.
static brim_status start_from(brim_mappo *w, const char *path) {
  brim_safetensors *file = NULL;
  brim_ppo_norm norm;
  BRIM_TRY(brim_safetensors_open(path, &file));
  brim_status status = brim_safetensors_verify(file);
  if (!status) status = check_owner(w, path, brim_safetensors_metadata(file), false);
  if (!status) status = check_nets(w, path, file, true);
  if (!status) status = read_norm(path, file, &norm);
  if (!status) status = take_nets(w, path, file, true);
  if (!status) status = put_norm(w, &norm);
  brim_safetensors_close(file);
  return status;
}

brim_status brim_mappo_start_from(brim_mappo *w, const char *path) { return start_from(w, path); }

brim_status brim_mappo_use(void *work, const char *path, bool averaged) {
  brim_mappo *w = (brim_mappo *)work;
  (void)averaged;  // there is none
  w->held_out = true;
  w->has_baseline = false;
  return start_from(w, path);
}

//---------------------------------- resuming ----------------------------------

// What a file says of where training stood, checked before anything is changed.
typedef struct place {
  brim_mappo_position at;
  brim_ppo_norm norm;
  int64_t clock;
  copy spans;       // into the file's bytes
  bool same;        // the environments are those of this run
  bool configured;  // their settings are
} place;

static brim_status read_spans(const brim_mappo *w, const char *path, const brim_safetensors *file,
                              place *out) {
  out->configured = brim_work_env_same(w->shape.row, w->shape.env.bytes,
                                       text_of(brim_safetensors_metadata(file), "brim.env"));
  out->same = out->configured;
  for (int i = 0; i < 2; i++) {
    const brim_safetensors_entry *e = brim_safetensors_find(file, span_names[i]);
    if (!e) {
      return brim_fail(BRIM_EPARSE,
                       "%s holds only networks, so brim cannot resume from it; start from it with "
                       "--weights, or resume from last.safetensors",
                       path);
    }
    out->spans.bytes[i] = e->bytes;
    out->spans.spans[i] = (unsigned char *)(uintptr_t)e->data;
    out->same = out->same && e->bytes == w->layout.saved[i].bytes;
  }
  if (!out->same) return BRIM_OK;
  const brim_status status =
      brim_collect_check_saved(&w->shape, out->spans.spans[0], out->spans.spans[1]);
  return status ? brim_fail_context(status, "%s", path) : BRIM_OK;
}

static void read_sums(const json_t *meta, brim_mappo_position *at) {
  if (brim_work_get_numbers(meta, "brim.sums", at->sums, BRIM_MAPPO_SUMS) != BRIM_MAPPO_SUMS) {
    memset(at->sums, 0, sizeof at->sums);  // only a report depends on them
  }
}

static brim_status read_place(const brim_mappo *w, const char *path, const brim_safetensors *file,
                              place *out) {
  const json_t *meta = brim_safetensors_metadata(file);
  memset(out, 0, sizeof *out);
  BRIM_TRY(check_owner(w, path, meta, true));
  BRIM_TRY(read_spans(w, path, file, out));
  BRIM_TRY(get_count(meta, path, "brim.step", &out->at.step));
  BRIM_TRY(get_count(meta, path, "brim.updates", &out->at.updates));
  BRIM_TRY(get_count(meta, path, "brim.episodes", &out->at.episodes));
  BRIM_TRY(get_count(meta, path, "brim.clock", &out->clock));
  BRIM_TRY(get_count(meta, path, "brim.skipped_steps", &out->at.idle));
  BRIM_TRY(get_count(meta, path, "brim.skipped_updates", &out->at.skipped));
  read_sums(meta, &out->at);
  BRIM_TRY(read_norm(path, file, &out->norm));
  return check_nets(w, path, file, false);
}

static brim_status take_place(brim_mappo *w, const char *path, const place *p) {
  BRIM_TRY(put_norm(w, &p->norm));
  if (p->same) {
    BRIM_TRY(put_spans(w, &p->spans));
  } else {
    if (p->configured) {
      brim_log_warn("workload",
                    "%s has another number of environments: the run continues with new episodes "
                    "and is no longer bit-identical",
                    path);
    } else {
      brim_log_warn("workload",
                    "%s has environments with other settings: the run continues with new episodes "
                    "and is no longer bit-identical",
                    path);
    }
    BRIM_TRY(put_clock(w, (uint64_t)p->clock));
  }
  w->now = p->at;
  return BRIM_OK;
}

// Bits are the same only on the same backend, device and thread count: say so when not.
static void warn_if_different(const brim_mappo *w, const json_t *meta, const char *path) {
  const brim_device *device = w->context.device;
  char threads[16];
  snprintf(threads, sizeof threads, "%d", (int)device->info.threads);
  const char *const rows[][2] = {{"brim.backend", device->backend->name},
                                 {"brim.library", device->info.library},
                                 {"brim.threads", threads},
                                 {"brim.device", device->info.name}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const char *saved = text_of(meta, rows[i][0]);
    if (saved && strcmp(saved, rows[i][1]) != 0) {
      brim_log_warn("workload",
                    "%s was written with %s %s, this run uses %s: the run continues, but is no "
                    "longer bit-identical",
                    path, rows[i][0] + 5, saved, rows[i][1]);
    }
  }
}

// Counters of the networks continue from those of the file.
static brim_status set_skipped(brim_mappo *w, int64_t skipped) {
  for (int i = 0; i < BRIM_MAPPO_NETS; i++) {
    brim_net_sums sums;
    BRIM_TRY(brim_net_get_sums(brim_mappo_net(w, i), &sums));
    sums.skipped_steps = i == BRIM_MAPPO_ACTOR ? (uint64_t)skipped : 0;
    BRIM_TRY(brim_net_set_sums(brim_mappo_net(w, i), &sums));
  }
  return BRIM_OK;
}

brim_status brim_mappo_load(void *work, const char *path, json_t **extra) {
  brim_mappo *w = (brim_mappo *)work;
  brim_safetensors *file = NULL;
  place p;
  json_t *meta = NULL;
  BRIM_TRY(brim_safetensors_open(path, &file));
  brim_status status = brim_safetensors_verify(file);
  if (!status) status = read_place(w, path, file, &p);
  if (!status) {
    meta = json_deep_copy(brim_safetensors_metadata(file));
    if (!meta) status = brim_fail(BRIM_ENOMEM, "out of memory while reading %s", path);
  }
  if (!status) status = take_nets(w, path, file, false);
  if (!status) status = take_place(w, path, &p);
  if (!status) status = set_skipped(w, p.at.skipped);
  if (!status) {
    warn_if_different(w, meta, path);
    // with another mappo.eval_interval it is another epoch
    status = brim_work_put_i64(meta, "brim.epoch", brim_mappo_epoch_of(w, w->now.step));
  }
  brim_safetensors_close(file);
  if (!status && extra) {
    (void)json_object_del(meta, BRIM_SAFETENSORS_SUM);
    *extra = meta;
  } else {
    json_decref(meta);
  }
  return status;
}

bool brim_mappo_owns(const brim_safetensors *file) {
  return brim_safetensors_find(file, BRIM_MAPPO_PREFIX_ACTOR "layers.0.weight") &&
         brim_safetensors_find(file, BRIM_MAPPO_PREFIX_CRITIC "layers.0.weight");
}

//---------------------------------- settings ----------------------------------

static bool unset(const json_t *value) { return !value || json_is_null(value); }

// The number of environments and the length of a rollout may follow from other keys: what they came to,
// so that they are compared.
void brim_mappo_resolve(void *work, const json_t *metadata, json_t *was, json_t *now) {
  const brim_mappo *w = (const brim_mappo *)work;
  static const char *const names[] = {"num_envs", "rollout_steps", "minibatches"};
  const int32_t values[] = {w->sizes.envs, w->sizes.steps, w->sizes.minibatches};
  const char *text = text_of(metadata, "brim.policy");
  json_t *policy = NULL;
  if (!text || brim_json_parse(text, strlen(text), "brim.policy", &policy)) {
    brim_status_clear();
    return;
  }
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char key[64];
    snprintf(key, sizeof key, "mappo.%s", names[i]);
    json_t *saved = json_object_get(policy, names[i]), *own = json_integer(values[i]);
    if (!unset(saved)) (void)json_object_set(was, key, saved);
    if (own) (void)json_object_set(now, key, own);
    json_decref(own);
  }
  json_decref(policy);
}

//---------------------------------- in memory ----------------------------------

brim_status brim_mappo_snapshot(void *work) {
  brim_mappo *w = (brim_mappo *)work;
  brim_mappo_copy_free(w);
  for (int i = 0; i < BRIM_MAPPO_NETS; i++) BRIM_TRY(brim_net_snapshot(brim_mappo_net(w, i)));
  BRIM_TRY(fetch(w, &w->copy));
  w->kept = w->now;
  return BRIM_OK;
}

brim_status brim_mappo_restore(void *work) {
  brim_mappo *w = (brim_mappo *)work;
  if (!w->copy) return brim_fail(BRIM_ESTATE, "there is no snapshot to restore");
  for (int i = 0; i < BRIM_MAPPO_NETS; i++) BRIM_TRY(brim_net_restore(brim_mappo_net(w, i)));
  BRIM_TRY(put_norm(w, &w->copy->norm));
  BRIM_TRY(put_spans(w, w->copy));
  w->now = w->kept;
  return BRIM_OK;
}
