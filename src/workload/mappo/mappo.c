// Multi-agent PPO: one step is one iteration, a rollout of all environments and the updates of actor and
// critic on it. An epoch is mappo.eval_interval iterations, mappo.iterations are the run.

#include "workload/mappo/mappo.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "workload/mappo/mappo_int.h"

static void mappo_close(void *work);
static brim_status mappo_open(const brim_work_context *context, const brim_config *config,
                              void **work);

//----------------------------------------- checkpoints -----------------------------------------
// Checkpoints of mappo (mappo.h says what is in them), and the way back to exactly there: networks, their
// optimisers, every environment where it stands, and the statistics of returns.

static const char *const prefixes[BRIM_MAPPO_NETS] = {BRIM_MAPPO_PREFIX_ACTOR,
                                                      BRIM_MAPPO_PREFIX_CRITIC};
static const char *const span_names[2] = {"rollout.states", "rollout.carried"};
static const char norm_sums[] = "value_norm.sums", norm_scale[] = "value_norm.scale";

// The state that a rollout carries from one iteration to the next, on the host.
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

static void mappo_copy_free(brim_mappo *w) {
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

static brim_status put_policy(const brim_mappo *w, json_t *meta) {
  const brim_component *c = &w->models[BRIM_MAPPO_ACTOR].component;
  json_t *o =
      json_pack("{s:i, s:i, s:i, s:i, s:i, s:I, s:I, s:i, s:I, s:i, s:i}", "observations", w->z.obs,
                "state", w->layout.critic, "actions", w->z.act, "agents", w->z.agents, "rewards",
                w->rewards, "depth", (json_int_t)brim_component_int(c, "depth", 0), "hidden",
                (json_int_t)brim_component_int(c, "hidden", 0), "num_envs", w->sizes.envs,
                "chosen_envs", (json_int_t)w->knobs[BRIM_MAPPO_ENVS].value, "rollout_steps",
                w->sizes.steps, "minibatches", w->sizes.minibatches);
  bool whole =
      o && (!w->general_rollout || !json_object_set_new(o, "general_rollout", json_true()));
  if (whole) {
    whole = !json_object_set_new(o, "episode_length", json_integer(w->shape.episode_length));
  }
  if (!whole) {
    json_decref(o);
    o = NULL;
  }
  return brim_work_env_put(w->shape.row, w->shape.env.bytes, o, meta);
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
  BRIM_TRY(put_policy(w, meta));
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

static brim_status mappo_save(void *work, const char *path, const json_t *extra,
                              bool weights_only) {
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
static brim_status mappo_start_from(brim_mappo *w, const char *path) {
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

static brim_status mappo_use(void *work, const char *path, bool averaged) {
  brim_mappo *w = (brim_mappo *)work;
  (void)averaged;  // there is none
  w->held_out = true;
  w->has_baseline = false;
  return mappo_start_from(w, path);
}

//---------------------------------- resuming ----------------------------------

// The place of training in a file, checked before anything changes.
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
  BRIM_TRY(brim_work_get_count(meta, path, "brim.step", &out->at.step));
  BRIM_TRY(brim_work_get_count(meta, path, "brim.updates", &out->at.updates));
  BRIM_TRY(brim_work_get_count(meta, path, "brim.episodes", &out->at.episodes));
  BRIM_TRY(brim_work_get_count(meta, path, "brim.clock", &out->clock));
  BRIM_TRY(brim_work_get_count(meta, path, "brim.skipped_steps", &out->at.idle));
  BRIM_TRY(brim_work_get_count(meta, path, "brim.skipped_updates", &out->at.skipped));
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

// Warns if the continued run cannot be bit-identical.
static void warn_if_different(const brim_mappo *w, const json_t *meta, const char *path) {
  const brim_device *device = w->context.device;
  char threads[16];
  snprintf(threads, sizeof threads, "%d", (int)device->info.threads);
  brim_work_warn_if_other(meta, path, "brim.backend", device->backend->name);
  brim_work_warn_if_other(meta, path, "brim.library", device->info.library);
  brim_work_warn_if_other(meta, path, "brim.threads", threads);
  brim_work_warn_if_other(meta, path, "brim.device", device->info.name);
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

static brim_status mappo_load(void *work, const char *path, json_t **extra) {
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

static bool mappo_owns(const brim_safetensors *file) {
  return brim_safetensors_find(file, BRIM_MAPPO_PREFIX_ACTOR "layers.0.weight") &&
         brim_safetensors_find(file, BRIM_MAPPO_PREFIX_CRITIC "layers.0.weight");
}

//---------------------------------- settings ----------------------------------

static bool unset(const json_t *value) { return !value || json_is_null(value); }

// The number of environments and the length of a rollout may follow from other keys: what they came to,
// so that they are compared.
static void mappo_resolve(void *work, const json_t *metadata, json_t *was, json_t *now) {
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

static brim_status mappo_snapshot(void *work) {
  brim_mappo *w = (brim_mappo *)work;
  mappo_copy_free(w);
  for (int i = 0; i < BRIM_MAPPO_NETS; i++) BRIM_TRY(brim_net_snapshot(brim_mappo_net(w, i)));
  BRIM_TRY(fetch(w, &w->copy));
  w->kept = w->now;
  return BRIM_OK;
}

static brim_status mappo_restore(void *work) {
  brim_mappo *w = (brim_mappo *)work;
  if (!w->copy) return brim_fail(BRIM_ESTATE, "there is no snapshot to restore");
  for (int i = 0; i < BRIM_MAPPO_NETS; i++) BRIM_TRY(brim_net_restore(brim_mappo_net(w, i)));
  BRIM_TRY(put_norm(w, &w->copy->norm));
  BRIM_TRY(put_spans(w, w->copy));
  w->now = w->kept;
  return BRIM_OK;
}

//------------------------------------------ evaluation ------------------------------------------
// Evaluation: held-out episodes of the policy, and in the same episodes what random actions and the
// environment's own rules come to. Every environment runs one episode; all step side by side.

enum { POLICY = BRIM_MAPPO_POLICY, RANDOM = 0 };
// Steps between looks at how many episodes are over.
enum { PATIENCE = 16 };

typedef struct episodes {
  brim_mappo *w;
  int32_t rule;  // POLICY, or a rule of brim_collect_table.choose
} episodes;

// Actions of some environments by the actor: as many as it takes at once.
static brim_status act(brim_mappo *w, int32_t t, int64_t first, int64_t count) {
  const int64_t row = (int64_t)t * w->eval.num_envs + first;
  const brim_collect_view view = {
      .first = row,
      .count = count,
      .actor = brim_mappo_output(&w->inputs[BRIM_MAPPO_ACTOR][1]),
      .mask = (uint64_t *)(void *)(w->memory + w->places.mask),
  };
  const brim_collect_clock *clock =
      (const brim_collect_clock *)(const void *)(w->eval_block + w->eval_layout.clock);
  brim_mappo_report *report = (brim_mappo_report *)(void *)(w->memory + w->places.report);
  const brim_ppo_sample sample = {
      .outputs = w->outputs[BRIM_MAPPO_ACTOR],
      .rows = count * w->z.agents,
      .first = first * w->z.agents,
      .mask = view.mask,
      .clock = &clock->now,
      .t = t,
      .seed = w->how.seed,
      .stream = w->eval.stream,
      .best = w->how.best,
      .action = (int32_t *)(void *)(w->eval_block + w->eval_layout.action) + row * w->z.agents,
      .bad = &report->bad,
  };
  const brim_ppo_shape shape = {.steps = w->eval.steps,
                                .envs = w->eval.num_envs,
                                .agents = w->z.agents,
                                .act = w->z.act,
                                .rewards = w->rewards,
                                .finals = w->eval_layout.finals};
  BRIM_TRY(w->collect->look(&w->where, &w->eval, w->eval_block, &view));
  BRIM_TRY(brim_net_enqueue_outputs(brim_mappo_net(w, BRIM_MAPPO_ACTOR)));
  return w->ppo->sample(&w->where, &shape, &sample);
}

// Step t of all held-out episodes, after `begin`: actions by the policy or a rule.
static brim_status eval_step(brim_mappo *w, int32_t t, int32_t rule) {
  const int64_t all = w->eval.num_envs, each = w->sizes.envs;
  if (rule != POLICY) {
    BRIM_TRY(w->collect->choose(&w->where, &w->eval, w->eval_block, t, rule));
  }
  for (int64_t first = 0; rule == POLICY && first < all; first += each) {
    BRIM_TRY(act(w, t, first, all - first < each ? all - first : each));
  }
  return w->collect->step(&w->where, &w->eval, w->eval_block, t);
}

// One step of all episodes; recorded for the policy.
static brim_status step(void *ctx) {
  const episodes *e = (const episodes *)ctx;
  BRIM_TRY(e->w->collect->begin(&e->w->where, &e->w->eval, e->w->eval_block));
  return eval_step(e->w, 0, e->rule);
}

static brim_status read_tally(brim_mappo *w, brim_collect_tally *out) {
  BRIM_TRY(w->collect->tally(&w->where, &w->eval, w->eval_block, 0));
  BRIM_TRY(brim_device_copy(w->context.device, w->tally, w->eval_block + w->eval_layout.tally,
                            sizeof *w->tally, BRIM_COPY_D2H));
  BRIM_TRY(brim_device_sync(w->context.device));
  *out = *w->tally;
  return BRIM_OK;
}

static brim_status run_episodes(brim_mappo *w, int32_t rule, brim_collect_tally *out) {
  episodes e = {.w = w, .rule = rule};
  w->eval.stream = w->held_out ? BRIM_MAPPO_STREAM_HELD_OUT : BRIM_MAPPO_STREAM_EVAL;
  BRIM_TRY(w->collect->reset(&w->where, &w->eval, w->eval_block));
  for (int32_t i = 1; i <= w->eval.episode_length; i++) {
    if (w->stop && *w->stop) return brim_fail(BRIM_EINTERRUPTED, "interrupted in an evaluation");
    BRIM_TRY(rule == POLICY ? brim_record_run(w->eval_record, step, &e, false) : step(&e));
    if (i % PATIENCE != 0 && i < w->eval.episode_length) continue;
    BRIM_TRY(read_tally(w, out));
    if (out->episodes == w->eval.num_envs) break;
  }
  return BRIM_OK;
}

static brim_status mappo_baseline(void *work) {
  brim_mappo *w = (brim_mappo *)work;
  if (w->how.episodes == 0 || w->has_baseline) return BRIM_OK;
  for (size_t rule = 0; rule <= w->rows.rules; rule++) {
    BRIM_TRY(run_episodes(w, (int32_t)rule, &w->baseline[rule]));
  }
  w->has_baseline = true;
  return BRIM_OK;
}

static brim_status mappo_evaluate(void *work, brim_work_metrics *out) {
  brim_mappo *w = (brim_mappo *)work;
  brim_collect_tally tally;
  if (w->how.episodes == 0) {
    return brim_fail(BRIM_ESTATE,
                     "nothing to evaluate: mappo.eval_episodes is 0; set it to the number of "
                     "held-out episodes, such as 100");
  }
  brim_work_metrics_clear(&w->rows.set, out);
  BRIM_TRY(mappo_baseline(w));
  BRIM_TRY(run_episodes(w, POLICY, &tally));
  brim_mappo_pack(&tally, out->sums);
  brim_mappo_values(&w->rows, &tally, out->values);
  brim_mappo_rule_values(w, out->values);
  brim_mappo_values(&w->rows, &w->baseline[RANDOM], out->baseline);
  out->samples = tally.episodes;
  out->bad = tally.diverged;
  return BRIM_OK;
}

//------------------------------------------- replays -------------------------------------------
// Episodes of a policy out of its checkpoint, recorded on the CPU. All episodes that may be asked for run
// side by side once, as in an evaluation; a recording reads its own out of the states that the rollout kept.

// Actors, as add_actors has them: the policy, the environment's rules, and random actions as the last.
enum { TRAINED };
static size_t rules_of(const brim_mappo *w) {
  const size_t most = BRIM_WORK_MAX_ACTORS - 2, rules = (size_t)brim_env_rule_count(w->shape.row);
  return rules < most ? rules : most;
}

// Environments of a rollout at least, so that looking through many episodes is one; and those that the actor
// sees at once.
enum { MANY = 128, AT_ONCE = 16 };

typedef struct replay {
  brim_device *device;
  brim_mappo *work;
  char *path;
  int64_t iteration;
  int actor;  // whose episodes lie in the block; -1 = none
} replay;

static void close_replay(void *state) {
  replay *r = (replay *)state;
  if (!r) return;
  mappo_close(r->work);
  brim_device_close(r->device);
  brim_free(r->path);
  brim_free(r);
}

static brim_status open_device(const brim_registry *registry, brim_device **out) {
  const brim_device_options options = {0};
  if (brim_device_open(registry, "cpu", &options, out) == BRIM_OK) return BRIM_OK;
  brim_status_clear();
  return brim_device_open(registry, "ref", &options, out);
}

// Networks of the checkpoint, and memory for `envs` whole episodes.
static brim_status build(replay *r, int32_t envs) {
  brim_mappo *w = r->work;
  brim_mappo_drop(w);
  r->actor = -1;
  w->sizes = (brim_mappo_sizes){.envs = AT_ONCE,
                                .steps = 1,
                                .minibatches = 1,
                                .batch = AT_ONCE,
                                .updates = 1,
                                .precision = (brim_precision)w->knobs[BRIM_MAPPO_PRECISION].value,
                                .workers = w->where.threads > 0 ? w->where.threads : 1};
  w->eval.num_envs = envs;
  w->eval.steps = w->eval.episode_length;
  w->eval.stream = BRIM_MAPPO_STREAM_HELD_OUT;
  BRIM_TRY(brim_mappo_build(w));
  return mappo_start_from(w, r->path);
}

static brim_status read_it(const brim_work_replay_from *from, void *state) {
  replay *r = (replay *)state;
  brim_work_replay_info info;
  json_t *meta = NULL;
  void *work = NULL;
  r->path = brim_strdup(from->path);
  if (!r->path) return brim_fail(BRIM_ENOMEM, "out of memory for a replay");
  BRIM_TRY(open_device(from->registry, &r->device));
  const brim_work_context context = {
      .registry = from->registry, .device = r->device, .evaluates = true};
  BRIM_TRY(mappo_open(&context, from->config, &work));
  r->work = (brim_mappo *)work;
  brim_mappo_rows_beside_rule(&r->work->rows);
  BRIM_TRY(brim_work_replay_env(r->work->shape.row, r->work->shape.env.bytes, &info));
  BRIM_TRY(brim_work_metadata(from->path, &meta));
  const char *step = json_string_value(json_object_get(meta, "brim.step"));
  if (!step || !brim_parse_i64(step, &r->iteration)) r->iteration = 0;
  json_decref(meta);
  return build(r, MANY);
}

static brim_status open_replay(const brim_registry *registry, const brim_config *config,
                               const char *path, void **out) {
  const brim_work_replay_from from = {registry, config, path};
  return brim_work_replay_open(&from, sizeof(replay), read_it, close_replay, out);
}

static void add_actors(const brim_mappo *w, brim_work_replay_info *out) {
  brim_work_replay_actor(out, "trained", brim_tr("Policy"));
  for (size_t i = 0; i < rules_of(w); i++) {
    const char *name = w->shape.row->rules[i];
    char label[64];
    snprintf(label, sizeof label, brim_tr("%.40s rule"), name);
    if (label[0] >= 'a' && label[0] <= 'z') label[0] = (char)(label[0] - 'a' + 'A');
    brim_work_replay_actor(out, name, label);
  }
  brim_work_replay_actor(out, "random", brim_tr("Random actions"));
}

// The rule of an actor for eval_step: rule 0 is random, those of the environment follow.
static int32_t rule_of(const brim_mappo *w, size_t actor) {
  if (actor == TRAINED) return BRIM_MAPPO_POLICY;
  return actor <= rules_of(w) ? (int32_t)actor : 0;
}

static void info_of(void *state, brim_work_replay_info *out) {
  const replay *r = (const replay *)state;
  const brim_mappo *w = r->work;
  const brim_component *c = &w->models[BRIM_MAPPO_ACTOR].component;
  (void)brim_work_replay_env(w->shape.row, w->shape.env.bytes, out);  // as when it was opened
  out->steps = w->shape.episode_length;
  out->seed = w->how.seed;
  out->metrics = &w->rows.set;
  brim_scene_line *policy = brim_work_replay_fact(out, BRIM_N_("Policy"));
  snprintf(policy->text, sizeof policy->text, brim_tr("%d observations, %lld x %lld, %d actions"),
           w->z.obs, (long long)brim_component_int(c, "depth", 0),
           (long long)brim_component_int(c, "hidden", 0), w->z.act);
  brim_work_replay_trained(out, r->iteration);
  add_actors(w, out);
}

static brim_status put_fields(void *state, json_t *event) {
  const replay *r = (const replay *)state;
  BRIM_TRY(brim_work_replay_task(r->work->shape.row, r->work->shape.env.bytes, event));
  return brim_json_put(event, "iteration", json_integer(r->iteration));
}

// The episodes of an actor, unless they lie there already.
static brim_status run_all(replay *r, size_t actor, int32_t episode) {
  brim_mappo *w = r->work;
  int32_t envs = w->eval.num_envs;
  while (envs <= episode) envs *= 2;
  if (envs != w->eval.num_envs) BRIM_TRY(build(r, envs));
  if (r->actor == (int)actor) return BRIM_OK;
  r->actor = -1;
  BRIM_TRY(w->collect->reset(&w->where, &w->eval, w->eval_block));
  BRIM_TRY(w->collect->begin(&w->where, &w->eval, w->eval_block));
  for (int32_t t = 0; t < w->eval.steps; t++) {
    BRIM_TRY(eval_step(w, t, rule_of(w, actor)));
  }
  r->actor = (int)actor;
  return BRIM_OK;
}

// The mean over agents, as returns are.
static float reward_of(const brim_mappo *w, int64_t row) {
  const float *reward =
      (const float *)(const void *)(w->eval_block + w->eval_layout.reward) + row * w->rewards;
  double sum = 0;
  for (int32_t i = 0; i < w->rewards; i++) sum += (double)reward[i];
  return (float)(sum / w->rewards);
}

// The state behind the step at `row`: where the episode was truncated, the one that was kept for its value.
static int64_t row_behind(const brim_mappo *w, int64_t row) {
  const int64_t envs = w->eval.num_envs;
  const int32_t *final = (const int32_t *)(const void *)(w->eval_block + w->eval_layout.final);
  if (final[row] < 0) return row + envs;
  return ((int64_t)w->eval.steps + 1 + final[row]) * envs + row % envs;
}

static brim_status record_one(void *state, size_t actor, int32_t episode, int64_t steps,
                              brim_work_recording *out) {
  replay *r = (replay *)state;
  BRIM_TRY(run_all(r, actor, episode));
  const brim_mappo *w = r->work;
  const int64_t envs = w->eval.num_envs;
  const int8_t *ends = (const int8_t *)(const void *)(w->eval_block + w->eval_layout.end);
  const size_t width = (size_t)w->z.frame;
  const int64_t most = steps < w->eval.steps ? steps : w->eval.steps;
  out->states = 0;
  out->end = BRIM_SCENE_LASTED;
  int64_t row = episode;
  for (int64_t t = 0; t <= most && out->states < out->capacity; t++) {
    brim_collect_frame(&w->eval, w->eval_block, row, out->frames + (size_t)out->states * width);
    const int64_t at = t * envs + episode;
    const bool last = t == most || (t > 0 && ends[at - envs] != BRIM_ENV_RUNNING);
    out->reward[out->states++] = last ? 0 : reward_of(w, at);
    if (last) break;
    out->end = brim_work_replay_end(ends[at]);
    row = row_behind(w, at);
  }
  return BRIM_OK;
}

const brim_work_replay_table brim_mappo_replay = {
    .score = "return",
    .open = open_replay,
    .close = close_replay,
    .info = info_of,
    .fields = put_fields,
    .record = record_one,
};

// NULL is fine
static void mappo_close(void *work) {
  brim_mappo *w = (brim_mappo *)work;
  if (!w) return;
  brim_mappo_drop(w);
  mappo_copy_free(w);
  brim_pool_destroy(w->where.pool);
  brim_free(w);
}

// mappo.c
static brim_status mappo_open(const brim_work_context *context, const brim_config *config,
                              void **work) {
  brim_mappo *w = (brim_mappo *)brim_calloc(1, sizeof *w);
  if (!w) return brim_fail(BRIM_ENOMEM, "out of memory while opening the workload");
  w->context = *context;
  w->config = config;
  brim_status status = brim_mappo_setup(w);
  if (status) {
    mappo_close(w);
    return status;
  }
  *work = w;
  return BRIM_OK;
}

//------------------------------------------- workload -------------------------------------------

//---------------------------------- building ----------------------------------

static size_t mappo_knobs(void *work, const brim_knob **out) {
  *out = ((brim_mappo *)work)->knobs;
  return BRIM_MAPPO_KNOBS;
}

static bool mappo_sensible(void *work, const brim_setting *setting) {
  brim_mappo_sizes sizes;
  const bool fine = brim_mappo_apply((const brim_mappo *)work, setting, &sizes) == BRIM_OK;
  if (!fine) brim_status_clear();
  return fine;
}

static void mappo_resuming(void *work, const json_t *metadata) {
  brim_mappo *w = (brim_mappo *)work;
  w->weights = NULL;
  if (metadata) brim_mappo_keep_choices(w, metadata);
}

static brim_status mappo_configure(void *work, const brim_setting *setting) {
  brim_mappo *w = (brim_mappo *)work;
  brim_mappo_drop(w);
  mappo_copy_free(w);
  BRIM_TRY(brim_mappo_apply(w, setting, &w->sizes));
  memset(&w->now, 0, sizeof w->now);
  brim_status status = brim_mappo_build(w);
  if (!status && w->weights) status = mappo_start_from(w, w->weights);
  if (status) brim_mappo_drop(w);
  return status;
}

// Fewer environments, as long as minibatches divide them.
static bool mappo_shrink(void *work, brim_setting *setting) {
  int64_t *envs = &setting->value[BRIM_MAPPO_ENVS];
  while (*envs > 1) {
    *envs /= 2;
    if (mappo_sensible(work, setting)) return true;
  }
  return false;
}

// Gives up what the networks saw in a fused rollout. Rollouts get slower, and as many steps are learned from.
static bool mappo_free_optional(void *work, const brim_setting *setting) {
  brim_mappo *w = (brim_mappo *)work;
  brim_plan with, without;
  char bytes[32];
  if (w->general_rollout || brim_mappo_plan(work, setting, &with)) {
    brim_status_clear();
    return false;
  }
  w->general_rollout = true;
  const bool less = brim_mappo_plan(work, setting, &without) == BRIM_OK &&
                    without.bytes[BRIM_PLACE_DEVICE] < with.bytes[BRIM_PLACE_DEVICE];
  if (!less) {
    w->general_rollout = false;
    brim_status_clear();
    return false;
  }
  brim_format_bytes(with.bytes[BRIM_PLACE_DEVICE] - without.bytes[BRIM_PLACE_DEVICE], bytes);
  brim_log_warn("workload", "out of memory: brim stops fusing rollouts, which saves %s", bytes);
  return true;
}

// Iterations without effect, one after the other, that are nothing yet.
enum { FEW_ITERATIONS = 5 };

static int64_t samples_of(const brim_mappo *w) {
  return (int64_t)w->sizes.envs * w->sizes.steps * w->z.agents;
}

// Agent-steps are what a step's samples count. Episodes are those of full length.
static void set_rates(const brim_mappo *w, brim_work_info *out) {
  const double agents = w->z.agents, length = w->shape.episode_length;
  out->rates[BRIM_MAPPO_RATE_COLLECTED] =
      (brim_work_rate){BRIM_N_("agent-steps/s collected"), 1, 1 + BRIM_MAPPO_COLLECTED};
  out->rates[BRIM_MAPPO_RATE_TRAINED] =
      (brim_work_rate){BRIM_N_("agent-samples/s trained"), w->how.epochs, 1 + BRIM_MAPPO_TRAINED};
  out->rates[BRIM_MAPPO_RATE_STEPPED] =
      (brim_work_rate){BRIM_N_("environment steps/s"), 1 / agents, 1 + BRIM_MAPPO_STEPPED};
  out->rates[BRIM_MAPPO_RATE_EPISODES] =
      (brim_work_rate){BRIM_N_("full-length episodes/s"), 1 / (agents * length), 0};
  out->rate_count = BRIM_MAPPO_RATES;
}

static void mappo_info(void *work, brim_work_info *out) {
  brim_mappo *w = (brim_mappo *)work;
  memset(out, 0, sizeof *out);
  out->unit = BRIM_N_("agent steps");
  out->interval_unit = BRIM_N_("episodes");
  set_rates(w, out);
  out->samples_per_epoch = samples_of(w) * w->how.interval;
  out->set_samples = out->samples_per_epoch;
  out->steps_per_epoch = w->how.interval;
  out->epochs = brim_mappo_epochs(w);
  out->steps = w->how.iterations;
  out->eval_samples = w->how.episodes;
  out->eval_batch = w->how.episodes;
  out->learning_rate = w->optimizer.lr;
  out->adaptive = brim_str_starts(w->optimizer.component.name, "adam");
  out->description = w->description;
  out->fused = brim_mappo_fused_text(w);
  out->watches_gpu = true;
  out->reads_often = true;
  out->idle_limit = FEW_ITERATIONS;
  out->has_baseline = w->has_baseline;
  out->baseline_samples = w->baseline[0].episodes;
  brim_metric_unknown(out->baseline);
  brim_metric_unknown(out->training_baseline);
  if (!w->has_baseline) return;
  brim_mappo_values(&w->rows, &w->baseline[0], out->baseline);
  brim_mappo_values(&w->rows, &w->baseline[0], out->training_baseline);
}

//---------------------------------- stepping ----------------------------------

static void add_losses(brim_mappo *w) {
  static const int from[][2] = {{BRIM_MAPPO_SUM_ROWS, BRIM_PPO_ROWS},
                                {BRIM_MAPPO_SUM_POLICY_LOSS, BRIM_PPO_POLICY_LOSS},
                                {BRIM_MAPPO_SUM_ENTROPY, BRIM_PPO_ENTROPY},
                                {BRIM_MAPPO_SUM_KL, BRIM_PPO_KL},
                                {BRIM_MAPPO_SUM_CLIPPED, BRIM_PPO_CLIPPED},
                                {BRIM_MAPPO_SUM_VALUES, BRIM_PPO_VALUES},
                                {BRIM_MAPPO_SUM_VALUE_LOSS, BRIM_PPO_VALUE_LOSS}};
  const brim_mappo_report *r = w->report;
  double *sums = w->now.sums;
  for (size_t i = 0; i < sizeof from / sizeof *from; i++) {
    sums[from[i][0]] += r->metrics[from[i][1]];
  }
  sums[BRIM_MAPPO_SUM_BAD] +=
      r->metrics[BRIM_PPO_BAD] + r->metrics[BRIM_PPO_BAD_VALUES] + (double)r->bad;
  sums[BRIM_MAPPO_SUM_STEPS] += (double)w->sizes.envs * w->sizes.steps;
  if (!isfinite(r->moments.explained)) return;
  sums[BRIM_MAPPO_SUM_EXPLAINED] += r->moments.explained;
  sums[BRIM_MAPPO_SUM_EXPLAINED_COUNT] += 1;
}

static void add_episodes(brim_mappo *w) {
  double packed[BRIM_MAPPO_SUMS] = {0};
  brim_mappo_pack(w->tally, packed);
  for (int i = BRIM_MAPPO_SUM_EPISODES; i < BRIM_MAPPO_SUMS; i++) w->now.sums[i] += packed[i];
  w->now.episodes += w->tally->episodes;
}

// Gradient norms of the last update, and updates without effect.
static brim_status read_nets(brim_mappo *w) {
  int64_t skipped = 0;
  for (int i = 0; i < BRIM_MAPPO_NETS; i++) {
    brim_net_metrics m;
    BRIM_TRY(brim_net_read_metrics(brim_mappo_net(w, i), true, &m));
    w->now.norms[i] = m.grad_norm;
    skipped += (int64_t)m.skipped_steps;
  }
  // the actor and the critic of an update each count
  const int64_t all = (int64_t)BRIM_MAPPO_NETS * w->sizes.updates;
  if (skipped - w->now.skipped >= all) w->now.idle++;
  w->now.skipped = skipped;
  return BRIM_OK;
}

static void mappo_stops(void *work, const volatile sig_atomic_t *stop) {
  ((brim_mappo *)work)->stop = stop;
}

static brim_status mappo_step(void *work, const brim_spans *spans, brim_step_info *out) {
  brim_mappo *w = (brim_mappo *)work;
  memset(out, 0, sizeof *out);
  BRIM_TRY(brim_mappo_iterate(w, spans));
  BRIM_TRY(read_nets(w));
  add_losses(w);
  out->counted_before = w->now.episodes;
  add_episodes(w);
  out->counted = w->now.episodes;
  out->samples = samples_of(w);
  out->epoch = brim_mappo_epoch_of(w, w->now.step);
  w->now.step++;
  w->now.updates += w->sizes.updates;
  out->step = w->now.step;
  out->lr = brim_schedule_lr(&w->schedule, w->now.step);
  out->epoch_end = w->now.step % w->how.interval == 0 || w->now.step == w->how.iterations;
  return BRIM_OK;
}

//---------------------------------- figures ----------------------------------

static bool searching(const brim_mappo *w) {
  return w->sizes.precision == BRIM_PRECISION_FP16 && w->now.step < FEW_ITERATIONS;
}

static brim_status mappo_metrics(void *work, bool reset, brim_work_metrics *out) {
  brim_mappo *w = (brim_mappo *)work;
  brim_work_metrics_clear(&w->rows.set, out);
  memcpy(out->sums, w->now.sums, sizeof w->now.sums);
  brim_mappo_figures(w, w->now.sums, out->values);
  out->values[BRIM_MAPPO_ACTOR_NORM] = w->now.norms[BRIM_MAPPO_ACTOR];
  out->values[BRIM_MAPPO_CRITIC_NORM] = w->now.norms[BRIM_MAPPO_CRITIC];
  out->samples = (int64_t)w->now.sums[BRIM_MAPPO_SUM_STEPS] * w->z.agents;
  out->bad = (int64_t)w->now.sums[BRIM_MAPPO_SUM_BAD];
  out->skipped = w->now.idle;
  out->searching = searching(w);
  if (!reset) return BRIM_OK;
  memset(w->now.sums, 0, sizeof w->now.sums);
  return BRIM_OK;
}

static const brim_work_evaluation_table evaluation = {.evaluate = mappo_evaluate, .use = mappo_use};
static const brim_work_policy_table policy = {.baseline = mappo_baseline, .networks = true};
static const brim_work_shrink_table shrinking = {.shrink = mappo_shrink,
                                                 .free_optional = mappo_free_optional};
static const brim_work_settings_table settings = {.resolve = mappo_resolve};
static const brim_work_text_table text = {.start_lines = brim_mappo_start_lines,
                                          .eval_notes = brim_mappo_eval_notes};

static const brim_work_shipped shipped[] = {{"uav", "uav.yaml"},
                                            {"cartpole", "cartpole-mappo.yaml"}};

const brim_workload_table brim_workload_mappo = {
    .name = "mappo",
    .model = "actor_critic",
    .makes = BRIM_N_("a mappo policy"),
    .options = brim_mappo_options,
    .option_count = BRIM_MAPPO_OPTIONS,
    .topic = &brim_mappo_topic,
    .section = &brim_mappo_section,
    .length_key = "mappo.iterations",
    .without_eval = "mappo.eval_episodes=0",
    .config = "uav.yaml",
    .shipped = shipped,
    .shipped_count = sizeof shipped / sizeof *shipped,
    .knob_set = &brim_mappo_knob_set,
    .metric_set = &brim_mappo_set,
    .metric_set_of = brim_mappo_metric_set,
    .sums = &brim_mappo_sum_rows,
    .diagnosis = &brim_mappo_diagnosis,
    .open = mappo_open,
    .close = mappo_close,
    .knobs = mappo_knobs,
    .sensible = mappo_sensible,
    .plan = brim_mappo_plan,
    .resuming = mappo_resuming,
    .configure = mappo_configure,
    .info = mappo_info,
    .step = mappo_step,
    .stops = mappo_stops,
    .metrics = mappo_metrics,
    .figures = brim_mappo_figures,
    .save = mappo_save,
    .load = mappo_load,
    .owns = mappo_owns,
    .snapshot = mappo_snapshot,
    .restore = mappo_restore,
    .settings = &settings,
    .text = &text,
    .evaluation = &evaluation,
    .policy = &policy,
    .findings = &brim_mappo_findings,
    .views = &brim_mappo_views,
    .replay = &brim_mappo_replay,
    .shrinking = &shrinking,
};
