// Checkpoints of ars: the policy and the statistics of its observations as named tensors, where training
// stands in the metadata (ars.h says which), and the way back to exactly there.
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "workload/ars/ars_int.h"

enum { MAX_TENSORS = 9 };

// One tensor of a checkpoint, and where its values are.
typedef struct part {
  const char *name;
  brim_dtype dtype;
  int32_t rank;
  int64_t dim[2];
  void *data;
} part;

static void add_part(part *parts, size_t *n, part one) { parts[(*n)++] = one; }

static size_t policy_parts(const brim_rollout_shape *s, float *theta, part *out) {
  const brim_env_sizes z = s->row->sizes(s->env.bytes);
  const int64_t obs = z.obs, act = z.act, h = s->hidden;
  size_t n = 0;
  if (h == 0) {
    add_part(out, &n, (part){"policy.weight", BRIM_F32, 2, {act, obs}, theta});
    return n;
  }
  add_part(out, &n, (part){"policy.0.weight", BRIM_F32, 2, {h, obs}, theta});
  theta += h * obs;
  add_part(out, &n, (part){"policy.0.bias", BRIM_F32, 1, {h, 0}, theta});
  theta += h;
  add_part(out, &n, (part){"policy.2.weight", BRIM_F32, 2, {act, h}, theta});
  theta += h * act;
  add_part(out, &n, (part){"policy.2.bias", BRIM_F32, 1, {act, 0}, theta});
  return n;
}

static size_t all_parts(const brim_rollout_shape *s, const brim_ars_state *at, part *out) {
  const int64_t obs = s->row->sizes(s->env.bytes).obs;
  size_t n = policy_parts(s, at->theta, out);
  add_part(out, &n, (part){"normal.mean", BRIM_F32, 1, {obs, 0}, at->normal});
  add_part(out, &n, (part){"normal.rstd", BRIM_F32, 1, {obs, 0}, at->normal + obs});
  add_part(out, &n, (part){"filter.count", BRIM_F64, 1, {1, 0}, at->filter});
  add_part(out, &n, (part){"filter.mean", BRIM_F64, 1, {obs, 0}, at->filter + 1});
  add_part(out, &n, (part){"filter.m2", BRIM_F64, 1, {obs, 0}, at->filter + 1 + obs});
  return n;
}

static int64_t count_of(const part *p) { return p->rank == 2 ? p->dim[0] * p->dim[1] : p->dim[0]; }

static size_t params_of(const brim_rollout_shape *s) {
  part parts[MAX_TENSORS];
  size_t n = policy_parts(s, NULL, parts), params = 0;
  for (size_t i = 0; i < n; i++) params += (size_t)count_of(&parts[i]);
  return params;
}

// One block: what is asked for most strictly aligned comes first.
brim_status brim_ars_state_init(const brim_rollout_shape *shape, brim_ars_state *out) {
  const size_t obs = (size_t)shape->row->sizes(shape->env.bytes).obs, params = params_of(shape);
  const size_t filter = 1 + 2 * obs;
  out->filter = (double *)brim_calloc(
      1, filter * sizeof *out->filter + (params + 2 * obs) * sizeof *out->theta);
  if (!out->filter) return brim_fail(BRIM_ENOMEM, "out of memory for a copy of the policy");
  out->theta = (float *)(void *)(out->filter + filter);
  out->normal = out->theta + params;
  return BRIM_OK;
}

void brim_ars_state_deinit(brim_ars_state *state) {
  brim_free(state->filter);
  memset(state, 0, sizeof *state);
}

//---------------------------------- the device ----------------------------------

static size_t theta_bytes(const brim_ars *w) { return w->layout.params * sizeof(float); }

static size_t normal_bytes(const brim_ars *w) {
  return 2 * (size_t)w->shape.row->sizes(w->shape.env.bytes).obs * sizeof(float);
}

static size_t filter_bytes(const brim_ars *w) {
  return (1 + 2 * (size_t)w->shape.row->sizes(w->shape.env.bytes).obs) * sizeof(double);
}

brim_status brim_ars_fetch(brim_ars *w, brim_ars_state *out) {
  brim_device *device = w->context.device;
  const char *block = (const char *)w->block;
  if (!out->theta) BRIM_TRY(brim_ars_state_init(&w->shape, out));
  BRIM_TRY(
      brim_device_copy(device, out->theta, block + w->layout.theta, theta_bytes(w), BRIM_COPY_D2H));
  BRIM_TRY(brim_device_copy(device, out->normal, block + w->layout.normal, normal_bytes(w),
                            BRIM_COPY_D2H));
  BRIM_TRY(brim_device_copy(device, out->filter, block + w->layout.filter, filter_bytes(w),
                            BRIM_COPY_D2H));
  return brim_device_sync(device);
}

brim_status brim_ars_put(brim_ars *w, const brim_ars_state *from) {
  brim_device *device = w->context.device;
  char *block = (char *)w->block;
  BRIM_TRY(brim_device_copy(device, block + w->layout.theta, from->theta, theta_bytes(w),
                            BRIM_COPY_H2D));
  BRIM_TRY(brim_device_copy(device, block + w->layout.normal, from->normal, normal_bytes(w),
                            BRIM_COPY_H2D));
  BRIM_TRY(brim_device_copy(device, block + w->layout.filter, from->filter, filter_bytes(w),
                            BRIM_COPY_H2D));
  return brim_device_sync(device);
}

//---------------------------------- metadata ----------------------------------

static const char *env_text(const json_t *meta) {
  return json_string_value(json_object_get(meta, "brim.env"));
}

static brim_status put_object(json_t *meta, const char *key, json_t *object) {
  char *text = NULL;
  brim_status status = brim_json_dump(object, 0, &text);
  if (!status) status = brim_json_put(meta, key, json_string(text));
  brim_free(text);
  return status;
}

static brim_status fill_policy(const brim_rollout_shape *s, json_t *o) {
  const brim_env_sizes z = s->row->sizes(s->env.bytes);
  BRIM_TRY(brim_json_put(o, "kind", json_string(s->hidden ? "mlp" : "linear")));
  BRIM_TRY(brim_json_put(o, "observations", json_integer(z.obs)));
  BRIM_TRY(brim_json_put(o, "hidden", json_integer(s->hidden)));
  BRIM_TRY(brim_json_put(o, "actions", json_integer(z.act)));
  BRIM_TRY(brim_json_put(o, "filter", json_boolean(s->filter)));
  BRIM_TRY(brim_json_put(o, "num_envs", json_integer(s->num_envs)));
  BRIM_TRY(brim_json_put(o, "num_dirs", json_integer(s->num_dirs)));
  return brim_json_put(o, "episode_length", json_integer(s->episode_length));
}

static brim_status put_objects(const brim_ars *w, json_t *meta) {
  json_t *env = json_object(), *policy = json_object();
  brim_status status = env && policy ? brim_work_env_put(w->shape.row, w->shape.env.bytes, env)
                                     : brim_fail(BRIM_ENOMEM, "out of memory while saving");
  if (!status) status = fill_policy(&w->shape, policy);
  if (!status) status = put_object(meta, "brim.env", env);
  if (!status) status = put_object(meta, "brim.policy", policy);
  json_decref(env);
  json_decref(policy);
  return status;
}

// What was summed up since the metrics were last read, so that a resumed epoch reports what an
// uninterrupted one does.
enum { SUMS = 10 };
static brim_status put_sums(const brim_ars *w, json_t *meta) {
  const brim_ars_returns *r = &w->sums.returns;
  const brim_rollout_update *u = &w->sums.update;
  const double values[SUMS] = {
      (double)r->count,    r->sum,           r->sum_sq, (double)r->episodes, (double)r->ended,
      (double)r->diverged, (double)r->steps, u->sigma,  u->step_norm,        u->theta_norm};
  brim_status status = brim_json_put_numbers(meta, "brim.sums", values, SUMS);
  return status ? status : brim_work_put_i64(meta, "brim.skipped_steps", w->sums.skipped);
}

// A checkpoint without sums (or with others) starts them again: only a report depends on them.
static void load_sums(brim_ars *w, const json_t *meta) {
  double v[SUMS] = {0};
  memset(&w->sums, 0, sizeof w->sums);
  bool sound = brim_json_get_numbers(meta, "brim.sums", v, SUMS) == SUMS;
  for (int i = 0; i < SUMS; i++) sound = sound && fabs(v[i]) <= 9e15;
  if (sound) {
    brim_ars_returns *r = &w->sums.returns;
    *r = (brim_ars_returns){.count = (int64_t)v[0],
                            .sum = v[1],
                            .sum_sq = v[2],
                            .episodes = (int64_t)v[3],
                            .ended = (int64_t)v[4],
                            .diverged = (int64_t)v[5],
                            .steps = (int64_t)v[6]};
    w->sums.update = (brim_rollout_update){.sigma = v[7], .step_norm = v[8], .theta_norm = v[9]};
  }
  const char *skipped = json_string_value(json_object_get(meta, "brim.skipped_steps"));
  int64_t count = 0;
  if (skipped && brim_parse_i64(skipped, &count) && count > 0) w->sums.skipped = count;
}

//---------------------------------- writing ----------------------------------

static brim_status fill_metadata(const brim_ars *w, bool weights_only, json_t *meta) {
  BRIM_TRY(brim_json_put(meta, "brim.format", json_string("brim.checkpoint/1")));
  BRIM_TRY(brim_json_put(meta, "brim.workload", json_string("ars")));
  BRIM_TRY(brim_work_put_i64(meta, "brim.step", w->step));
  BRIM_TRY(brim_work_put_i64(meta, "brim.iteration", w->step));
  BRIM_TRY(brim_work_put_i64(meta, "brim.epoch", brim_ars_epoch_of(w, w->step)));
  BRIM_TRY(brim_work_put_i64(meta, "brim.seed", brim_config_int(w->config, "seed")));
  BRIM_TRY(put_objects(w, meta));
  if (!weights_only) BRIM_TRY(put_sums(w, meta));
  BRIM_TRY(brim_json_put(meta, BRIM_SAFETENSORS_SUM, json_string("")));
  return brim_work_put_device(w->context.device, false, meta);
}

static brim_status write_file(brim_ars *w, const char *path, const json_t *meta) {
  part parts[MAX_TENSORS];
  brim_safetensors_entry entries[MAX_TENSORS];
  brim_ars_state *s = &w->state;
  BRIM_TRY(brim_ars_fetch(w, s));
  size_t n = all_parts(&w->shape, s, parts);
  memset(entries, 0, sizeof entries);
  for (size_t i = 0; i < n; i++) {
    brim_safetensors_entry *e = &entries[i];
    e->name = parts[i].name;
    e->dtype = parts[i].dtype;
    e->rank = parts[i].rank;
    memcpy(e->dim, parts[i].dim, sizeof parts[i].dim);
    e->data = parts[i].data;
    e->bytes = (size_t)count_of(&parts[i]) * brim_dtype_size(parts[i].dtype);
  }
  return brim_safetensors_write(path, entries, n, meta);
}

brim_status brim_ars_save(void *work, const char *path, const json_t *extra, bool weights_only) {
  brim_ars *w = (brim_ars *)work;
  brim_json_setup();
  json_t *meta = json_object();
  if (!meta) return brim_fail(BRIM_ENOMEM, "out of memory while saving %s", path);
  brim_status status = fill_metadata(w, weights_only, meta);
  if (!status && extra && json_object_update(meta, (json_t *)extra)) {
    status = brim_fail(BRIM_ENOMEM, "out of memory while saving %s", path);
  }
  if (!status) status = write_file(w, path, meta);
  json_decref(meta);
  return status;
}

//---------------------------------- reading ----------------------------------

static brim_status check_finite(const char *path, const part *p) {
  for (int64_t i = 0; i < count_of(p); i++) {
    double value =
        p->dtype == BRIM_F64 ? ((const double *)p->data)[i] : (double)((const float *)p->data)[i];
    if (isfinite(value)) continue;
    return brim_fail(
        BRIM_EINVAL,
        "%s: value %" PRId64
        " of %s is %s, so the policy gives no actions; resume from an earlier checkpoint "
        "(best.safetensors, step-*.safetensors) with a smaller ars.step_size",
        path, i, p->name, isnan(value) ? "NaN" : "infinite");
  }
  return BRIM_OK;
}

static brim_status no_tensor(const char *path, const char *name) {
  return brim_fail(BRIM_EPARSE, "%s: no valid tensor '%s'; is it a checkpoint of workload ars?",
                   path, name);
}

// What the policy's tensor `name` should have been: another kind of policy is in the file, or one for other
// observations or actions.
static brim_status refuse_shape(const char *path, const brim_safetensors *file,
                                const brim_rollout_shape *shape, const char *name) {
  const brim_env_sizes z = shape->row->sizes(shape->env.bytes);
  const brim_safetensors_entry *in = brim_safetensors_find(file, "policy.0.weight");
  const brim_safetensors_entry *linear = brim_safetensors_find(file, "policy.weight");
  const bool mlp = in && in->rank == 2;
  const int64_t hidden = mlp ? in->dim[0] : 0;
  char has[64] = "none that brim knows", wants[64] = "linear_policy";
  if (!mlp) in = linear;
  if ((mlp || linear) && hidden == shape->hidden) {
    const brim_safetensors_entry *out =
        mlp ? brim_safetensors_find(file, "policy.2.weight") : linear;
    if (in->rank != 2 || !out || out->rank != 2) return no_tensor(path, name);
    if (in->dim[1] == z.obs && out->dim[0] == z.act) return no_tensor(path, name);
    return brim_fail(BRIM_EINVAL,
                     "%s: its policy has %lld observations and %lld actions, but this run's "
                     "environment has %d and %d; set env=... as in its training",
                     path, (long long)in->dim[1], (long long)out->dim[0], z.obs, z.act);
  }
  if (mlp) snprintf(has, sizeof has, "mlp_policy(hidden=%" PRId64 ")", hidden);
  if (!mlp && linear) snprintf(has, sizeof has, "linear_policy");
  if (shape->hidden) snprintf(wants, sizeof wants, "mlp_policy(hidden=%d)", shape->hidden);
  return brim_fail(BRIM_EINVAL,
                   "%s: its policy is %s, but this run uses %s; set model=... as in its training",
                   path, has, wants);
}

static brim_status read_part(const char *path, const brim_safetensors *file,
                             const brim_rollout_shape *shape, const part *p) {
  const brim_safetensors_entry *e = brim_safetensors_find(file, p->name);
  bool of_policy = brim_str_starts(p->name, "policy.");
  bool fits = e && e->dtype == p->dtype && e->rank == p->rank && e->dim[0] == p->dim[0] &&
              (p->rank == 1 || e->dim[1] == p->dim[1]);
  if (!fits && of_policy) return refuse_shape(path, file, shape, p->name);
  if (!e && brim_str_starts(p->name, "filter.")) return BRIM_OK;  // a policy of another program
  if (!fits) return no_tensor(path, p->name);
  memcpy(p->data, e->data, e->bytes);
  return check_finite(path, p);
}

static const double most_seen = 9007199254740992.0;  // 2^53: more are not counted one by one

static brim_status read_tensors(const char *path, const brim_safetensors *file,
                                const brim_rollout_shape *shape, const brim_ars_state *to) {
  part parts[MAX_TENSORS];
  const int32_t obs = shape->row->sizes(shape->env.bytes).obs;
  size_t n = all_parts(shape, to, parts);
  for (size_t i = 0; i < n; i++) BRIM_TRY(read_part(path, file, shape, &parts[i]));
  for (int i = 0; i < obs; i++) {
    if (to->filter[0] >= 0 && to->filter[0] <= most_seen && to->filter[1 + obs + i] >= 0) {
      continue;
    }
    return brim_fail(BRIM_EPARSE,
                     "%s: invalid statistics in filter.*: negative, or from an impossible number "
                     "of observations",
                     path);
  }
  return BRIM_OK;
}

// 1: it saw normalised observations (v2); 0: plain ones (v1); -1: the file does not say.
static brim_status read_filtered(const char *path, const json_t *meta, int *out) {
  const char *text = json_string_value(json_object_get(meta, "brim.policy"));
  json_t *policy = NULL;
  *out = -1;
  if (!text) return BRIM_OK;
  BRIM_TRY(brim_json_parse(text, strlen(text), path, &policy));
  const json_t *filter = json_object_get(policy, "filter");
  if (json_is_boolean(filter)) *out = json_is_true(filter);
  json_decref(policy);
  return BRIM_OK;
}

static brim_status read_file(const char *path, const brim_safetensors *file,
                             const brim_rollout_shape *shape, brim_ars_policy *out) {
  const json_t *meta = brim_safetensors_metadata(file);
  const char *workload = json_string_value(json_object_get(meta, "brim.workload"));
  if (workload && strcmp(workload, "ars") != 0) {
    return brim_fail(BRIM_EINVAL, "%s is a checkpoint of workload %s, not of ars", path, workload);
  }
  const char *text = json_string_value(json_object_get(meta, "brim.iteration"));
  // a part of the key of every random number, of 32 bits
  bool valid = text && brim_parse_i64(text, &out->iteration) && out->iteration >= 0 &&
               out->iteration < (int64_t)1 << 32;
  if (text && !valid) {
    return brim_fail(BRIM_EPARSE,
                     "%s: brim.iteration is %s, expected 0 to 4294967295: the file is damaged; "
                     "resume from another checkpoint",
                     path, text);
  }
  if (!text) out->iteration = 0;
  BRIM_TRY(read_filtered(path, meta, &out->filtered));
  BRIM_TRY(brim_work_env_check(shape->row, shape->env.bytes, path, env_text(meta), false));
  brim_ars_state s = {0};
  BRIM_TRY(brim_ars_state_init(shape, &s));
  out->theta = s.theta;
  out->normal = s.normal;
  out->filter = s.filter;
  out->params = params_of(shape);
  return read_tensors(path, file, shape, &s);
}

static brim_status read_policy(const char *path, const brim_rollout_shape *shape,
                               brim_ars_policy *out, json_t **meta) {
  brim_safetensors *file = NULL;
  memset(out, 0, sizeof *out);
  BRIM_TRY(brim_safetensors_open(path, &file));
  brim_status status = brim_safetensors_verify(file);
  if (!status) status = read_file(path, file, shape, out);
  if (!status && meta) {
    *meta = json_deep_copy(brim_safetensors_metadata(file));
    if (!*meta) status = brim_fail(BRIM_ENOMEM, "out of memory while reading %s", path);
    if (*meta) (void)json_object_del(*meta, BRIM_SAFETENSORS_SUM);  // the file's, not the run's
  }
  brim_safetensors_close(file);
  if (status) brim_ars_policy_deinit(out);
  return status;
}

brim_status brim_ars_policy_read(const char *path, const brim_rollout_shape *shape,
                                 brim_ars_policy *out) {
  return read_policy(path, shape, out, NULL);
}

void brim_ars_policy_deinit(brim_ars_policy *policy) {
  brim_ars_state state = {policy->theta, policy->normal, policy->filter};
  brim_ars_state_deinit(&state);
  memset(policy, 0, sizeof *policy);
}

// Training normalises by statistics of its own from the second iteration on: a policy without any would
// see other observations than those it was trained on.
static brim_status check_statistics(const char *path, const brim_ars_policy *p) {
  if (p->filtered == 1 || (p->filtered < 0 && p->filter[0] > 0)) return BRIM_OK;
  if (p->filtered == 0) {
    return brim_fail(BRIM_EINVAL,
                     "%s: its policy was trained on plain observations (ars.version=v1), but this "
                     "run uses v2; set ars.version=v1",
                     path);
  }
  return brim_fail(
      BRIM_EINVAL,
      "%s: no observation statistics (filter.count, filter.mean, filter.m2), which ars.version=v2 "
      "needs; use ars.version=v1 if the policy was trained on plain observations",
      path);
}

// A policy that saw normalised observations knows no others, and the other way round.
static brim_status check_version(const brim_ars *w, const char *path, const brim_ars_policy *p,
                                 bool train) {
  if (w->shape.filter) return train ? check_statistics(path, p) : BRIM_OK;
  const int32_t obs = w->shape.row->sizes(w->shape.env.bytes).obs;
  for (int i = 0; i < obs; i++) {
    if (p->normal[i] == 0 && p->normal[obs + i] == 1) continue;
    return brim_fail(BRIM_EINVAL,
                     "%s: its policy was trained on normalized observations (ars.version=v2), but "
                     "this run uses v1; set ars.version=v2",
                     path);
  }
  return BRIM_OK;
}

static brim_status take_policy(brim_ars *w, const char *path, brim_ars_policy *p, bool train) {
  BRIM_TRY(check_version(w, path, p, train));
  const brim_ars_state s = {p->theta, p->normal, p->filter};
  return brim_ars_put(w, &s);
}

static brim_status start_from(brim_ars *w, const char *path, bool train) {
  brim_ars_policy p;
  BRIM_TRY(read_policy(path, &w->shape, &p, NULL));
  brim_status status = take_policy(w, path, &p, train);
  brim_ars_policy_deinit(&p);
  return status;
}

brim_status brim_ars_start_from(brim_ars *w, const char *path) { return start_from(w, path, true); }

// Bits are the same only on the same backend and with the same environments: say so when not. The
// settings themselves are compared by the run.
static void warn_if_different(const brim_ars *w, const json_t *meta, const char *path) {
  const brim_device *device = w->context.device;
  const char *const rows[][2] = {{"brim.backend", device->backend->name},
                                 {"brim.device", device->info.name}};
  bool gpu = device->info.kind == BRIM_DEVICE_GPU;
  for (size_t i = 0; i < (gpu ? 2 : 1); i++) {
    const char *saved = json_string_value(json_object_get(meta, rows[i][0]));
    if (saved && strcmp(saved, rows[i][1]) != 0) {
      brim_log_warn("workload",
                    "%s was written with %s %s, this run uses %s: the run continues, but is no "
                    "longer bit-identical",
                    path, rows[i][0] + 5, saved, rows[i][1]);
    }
  }
}

brim_status brim_ars_load(void *work, const char *path, json_t **extra) {
  brim_ars *w = (brim_ars *)work;
  brim_ars_policy p;
  json_t *meta = NULL;
  BRIM_TRY(read_policy(path, &w->shape, &p, &meta));
  brim_status status = BRIM_OK;
  if (!json_object_get(meta, "brim.sums")) {
    status = brim_fail(BRIM_EPARSE,
                       "%s holds only a policy, so brim cannot resume from it; start from it with "
                       "--weights, or resume from last.safetensors",
                       path);
  }
  if (!status)
    status = brim_work_env_check(w->shape.row, w->shape.env.bytes, path, env_text(meta), true);
  if (!status) status = take_policy(w, path, &p, true);
  if (!status) {
    w->step = p.iteration;
    load_sums(w, meta);
    warn_if_different(w, meta, path);
    // with another ars.eval_interval it is another epoch
    status = brim_work_put_i64(meta, "brim.epoch", brim_ars_epoch_of(w, w->step));
  }
  brim_ars_policy_deinit(&p);
  if (!status && extra) {
    *extra = meta;
  } else {
    json_decref(meta);
  }
  return status;
}

brim_status brim_ars_use(void *work, const char *path, bool averaged) {
  brim_ars *w = (brim_ars *)work;
  (void)averaged;  // there is none
  w->held_out = true;
  w->has_baseline = false;
  return start_from(w, path, false);
}

//---------------------------------- settings ----------------------------------

static bool unset(const json_t *value) { return !value || json_is_null(value); }

static void resolve(json_t *of, const char *key, json_t *value) {
  if (value && unset(json_object_get(of, key))) (void)json_object_set(of, key, value);
}

// An episode length that is not set is the phase's, and whether episodes restart the environment's:
// what they came to, so that they are compared.
void brim_ars_resolve(void *work, const json_t *metadata, json_t *was, json_t *now) {
  const brim_ars *w = (const brim_ars *)work;
  const char *text = json_string_value(json_object_get(metadata, "brim.policy"));
  json_t *policy = NULL, *length = json_integer(w->shape.episode_length);
  if (text && brim_json_parse(text, strlen(text), "brim.policy", &policy) == BRIM_OK) {
    resolve(was, "ars.episode_length", json_object_get(policy, "episode_length"));
    resolve(now, "ars.episode_length", length);
  }
  json_t *restart = json_boolean(!w->shape.row->once);
  resolve(was, "ars.restart", restart);
  resolve(now, "ars.restart", restart);
  json_decref(restart);
  json_decref(policy);
  json_decref(length);
}

bool brim_ars_owns(const brim_safetensors *file) {
  return brim_safetensors_find(file, "policy.weight") ||
         brim_safetensors_find(file, "policy.0.weight");
}
