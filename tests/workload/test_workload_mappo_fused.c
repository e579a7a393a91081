// Fused kernels in the mappo workload, on a fake GPU with plain loops as kernels: which settings they take and which
// are refused, planned memory, gradients and training equal to the general path up to rounding, and resuming bit for
// bit. With a real GPU: gradients and resuming with its own kernels too.
#include <math.h>

#include "engine/engine.h"
#include "hd/hd.h"
#include "hd/hd_philox.h"
#include "rl/fused_room.h"
#include "same_file.h"
#include "workload/fixture.h"
#include "workload/gpu_face.h"
#include "workload/mappo/mappo_int.h"

#define FUSED_PLUGIN BRIM_BUILD_DIR "/tests/plugins/libbrim_test_fused.so"
#define GENERAL_PLUGIN BRIM_BUILD_DIR "/tests/plugins/libbrim_test_tables.so"

// 32 units for the actor, 16 for the critic.
#define PEER "env=uav(rules=peer, size=12, num_uavs=3, num_obstacles=5, episode_steps=9, crop=5)"
// 40 units for both, and actions that walls forbid.
#define NEAR "env=uav(size=12, num_uavs=3, num_obstacles=30, episode_steps=9, crop=3)"
// 40 units for the actor, more than 64 for the critic.
#define LARGE "env=uav(size=32, num_uavs=3, num_obstacles=30, episode_steps=9, crop=3)"
// 88 units for the actor, 40 for the critic.
#define COVERAGE "env=uav(size=12, num_uavs=3, num_obstacles=5, episode_steps=9, crop=5)"

static const char yaml[] =
    "workload: mappo\n"
    "env: cartpole\n"
    "model: actor_critic(depth=2, hidden=16)\n"
    "optimizer: adam(lr=0.003)\n"
    "mappo: {num_envs: 6, rollout_steps: 20, update_epochs: 2, minibatches: 3, iterations: 5,\n"
    "        eval_interval: 2, eval_episodes: 4}\n"
    "seed: 3\n";

enum { MOST = 10 };
typedef fixture job;

// Overrides end with NULL.
typedef struct given {
  const char *overrides[MOST];
} given;

static size_t count_of(const given *g) {
  size_t count = 0;
  while (count < MOST && g->overrides[count]) count++;
  return count;
}

static brim_status open_to(job *j, const char *plugin, const given *g, uint64_t memory,
                           bool evaluates) {
  memset(j, 0, sizeof *j);
  const brim_config_options options = {.text = yaml,
                                       .text_name = "test.yaml",
                                       .overrides = g->overrides,
                                       .override_count = count_of(g)};
  assert_ok(brim_config_load(&options, &j->config));
  assert_ok(brim_registry_create(&j->registry));
  assert_ok(brim_registry_load(j->registry, plugin));
  j->device = gpu_face_open();
  if (memory) j->device->info.total_bytes = memory;
  const brim_work_context context = {
      .registry = j->registry, .device = j->device, .evaluates = evaluates};
  assert_ok(brim_work_open(&context, j->config, &j->work));
  return fixture_configure(j);
}

static brim_status open_as(job *j, const char *plugin, const given *g, uint64_t memory) {
  return open_to(j, plugin, g, memory, false);
}

// Opens the job on the fake GPU, or on the first real one. False: that GPU does not take such networks.
static bool open_job(job *j, const given *g, bool gpu) {
  if (!gpu) {
    assert_ok(open_as(j, FUSED_PLUGIN, g, 0));
    return true;
  }
  assert_ok(fixture_open(j, "cuda", yaml, g->overrides, count_of(g)));
  const brim_status status = fixture_configure(j);
  if (status == BRIM_EUNSUPPORTED) {
    fused_leave_out(j->device);
    fixture_close(j);
    return false;
  }
  assert_ok(status);
  return true;
}

static bool has_gpu(void) {
  job j;
  const bool opens = fixture_open(&j, "cuda", yaml, NULL, 0) == BRIM_OK;
  fixture_close(&j);
  return opens;
}

static brim_mappo *of(const job *j) { return (brim_mappo *)j->work->state; }

static void steps(job *j, int count) {
  for (int i = 0; i < count; i++) {
    brim_step_info info;
    assert_ok(j->work->table->step(j->work->state, NULL, &info));
  }
}

static void save(job *j, const char *path) {
  assert_ok(j->work->table->save(j->work->state, path, NULL, false));
}

//---------------------------------- what is fused ----------------------------------

static const char *fused_of(job *j) {
  brim_work_info info;
  j->work->table->info(j->work->state, &info);
  return info.fused;
}

// line: expected in the report at the start of a run; NULL = none.
static void takes_on(const char *plugin, const given *g, uint64_t memory, const char *expected,
                     const char *line) {
  job j;
  assert_ok(open_as(&j, plugin, g, memory));
  if (strcmp(fused_of(&j), expected) != 0) {
    fail_msg("%s: %s, expected %s", g->overrides[0], fused_of(&j), expected);
  }
  // the report at the start of a run has this line, with the reason
  brim_work_line lines[8];
  const size_t n = j.work->table->text->start_lines(j.work->state, lines, 8);
  const char *told = NULL;
  for (size_t i = 0; i < n; i++) {
    if (strcmp(lines[i].label, "fused") == 0) told = lines[i].text;
  }
  if (!line) {
    assert_null(told);
  } else {
    assert_non_null(told);
    assert_string_equal(told, line);
  }
  fixture_close(&j);
}

static void takes(const given *g, uint64_t memory, const char *expected, const char *line) {
  takes_on(FUSED_PLUGIN, g, memory, expected, line);
}

static void test_what_is_fused(void **state) {
  (void)state;
  static const char both[] = "rollout and update";
  takes(&(given){{"mappo.fused=on"}}, 0, both, both);
  takes(&(given){{PEER, "mappo.fused=on"}}, 0, both, both);
  takes(&(given){{NEAR, "mappo.fused=on"}}, 0, both, both);
  takes(&(given){{"training.precision=bf16"}}, 0, both, both);
  takes(&(given){{"training.precision=bf16", "model=mlp(depth=2, hidden=32)"}}, 0, both, both);
  takes(&(given){{"training.precision=bf16", "mappo.collect_on=cpu"}}, 0, "update",
        "update; not the rollout: environments run on the CPU");
  takes(&(given){{COVERAGE, "training.precision=bf16"}}, 0, "update",
        "update; not the rollout: the network 'actor' is too large");
  takes(&(given){{"model=actor_critic(hidden=136)", "mappo.fused=on"}}, 0, "update",
        "update; not the rollout: the network 'actor' is too large");
  // 6 x 20 + 6 x 22 rows of 8 numbers and 120 masks are more than a quarter
  takes(&(given){{"training.precision=bf16"}}, 4 * 4151, "update",
        "update; not the rollout: observations would take more than a quarter of the GPU's memory");
  takes(&(given){{"training.precision=bf16"}}, 4 * 4152, both, both);
  // a limit of the config counts like the GPU's size
  takes(&(given){{"training.precision=bf16", "gpu.memory_limit=16604"}}, 0, "update",
        "update; not the rollout: observations would take more than a quarter of gpu.memory_limit");
  takes(&(given){{"training.precision=bf16", "gpu.memory_limit=16608"}}, 0, both, both);
}

static void test_what_is_not_fused(void **state) {
  (void)state;
  takes(&(given){{"training.precision=fp32"}}, 0, "no",
        "no: precision is fp32, and auto uses them in bf16 alone");
  takes(&(given){{"mappo.fused=off"}}, 0, "no", NULL);
  takes(&(given){{"training.precision=bf16", "model=actor_critic(hidden=264)"}}, 0, "no",
        "no: fused kernels do not take the network 'actor' of 8 inputs (padded), hidden=264 and 2 "
        "outputs in bf16 on this device");
  takes(&(given){{"training.precision=bf16", "model=actor_critic(depth=3, hidden=16)"}}, 0, "no",
        "no: fused kernels need depth=2, and depth is 3");
  takes(&(given){{"training.precision=bf16", "model=actor_critic(hidden=16, activation=gelu)"}}, 0,
        "no", "no: fused kernels need activation=tanh or relu, and activation is gelu");
  takes(&(given){{"training.precision=bf16", "model=mlp(depth=2, hidden=16, norm=layer)"}}, 0, "no",
        "no: fused kernels need norm=none");
  takes(&(given){{"training.precision=tf32"}}, 0, "no",
        "no: fused kernels need precision fp32 or bf16, and precision is tf32");
  takes(&(given){{"training.compile=false"}}, 0, "no",
        "no: training.compile is false, so everything runs op by op");
  takes_on(GENERAL_PLUGIN, &(given){{PEER, "training.precision=bf16"}}, 0, "no", NULL);
}

static void refuses(const char *plugin, const char *change, const char *words) {
  job j;
  const given g = {{"mappo.fused=on", change}};
  assert_int_equal(open_as(&j, plugin, &g, 0), BRIM_EUNSUPPORTED);
  if (!strstr(brim_status_detail(), words)) fail_msg("%s: %s", change, brim_status_detail());
  // a plan has the same line
  brim_plan plan;
  const brim_setting setting = brim_work_setting(j.work);
  assert_int_equal(j.work->table->plan(j.work->state, &setting, &plan), BRIM_EUNSUPPORTED);
  fixture_close(&j);
}

static void test_refused(void **state) {
  (void)state;
  refuses(FUSED_PLUGIN, "model=actor_critic(depth=3, hidden=16)",
          "mappo.fused is on, but fused kernels need depth=2, and depth is 3; use auto or off");
  refuses(FUSED_PLUGIN, "model=actor_critic(hidden=16, activation=gelu)",
          "fused kernels need activation=tanh or relu, and activation is gelu");
  refuses(FUSED_PLUGIN, "model=mlp(depth=2, hidden=16, norm=layer)", "need norm=none");
  refuses(FUSED_PLUGIN, "model=actor_critic(hidden=264)",
          "fused kernels do not take the network 'actor' of 8 inputs (padded), hidden=264");
  refuses(FUSED_PLUGIN, "training.precision=tf32",
          "fused kernels need precision fp32 or bf16, and precision is tf32");
  refuses(FUSED_PLUGIN, "training.compile=false", "training.compile is false");
  refuses(GENERAL_PLUGIN, PEER, "backend cuda has no fused kernels for mappo");
}

//---------------------------------- memory ----------------------------------

static uint64_t planned(job *j, const char *row) {
  brim_plan plan;
  const brim_setting setting = brim_work_setting(j->work);
  assert_ok(j->work->table->plan(j->work->state, &setting, &plan));
  for (size_t i = 0; i < plan.row_count; i++) {
    if (strcmp(plan.rows[i].name, row) == 0) return plan.rows[i].bytes;
  }
  return 0;
}

// Allocations equal the plan; memory that only an update needs is shared with activations.
static void test_memory(void **state) {
  (void)state;
  static const given settings[] = {{{"mappo.fused=off"}},
                                   {{PEER, "mappo.fused=on"}},
                                   {{COVERAGE, "mappo.fused=on"}},
                                   {{LARGE, "training.precision=bf16"}},
                                   {{"model=actor_critic(hidden=200)", "mappo.fused=on"}},
                                   {{"model=actor_critic(hidden=200)", "training.precision=bf16"}}};
  for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
    job j;
    size_t arena = 0;
    (void)open_job(&j, &settings[i], false);
    const brim_mappo_fusing *f = &of(&j)->fusing;
    (void)brim_group_memory(of(&j)->group, &arena);
    assert_int_equal(planned(&j, BRIM_PLAN_ACTIVATIONS), arena);
    assert_int_equal(planned(&j, "fused kernels"), f->bytes);
    assert_int_equal(f->bytes > 0, f->memory != NULL);
    for (int k = 0; k < BRIM_MAPPO_SPACES; k++) {
      const brim_mappo_space *a = &f->spaces[k];
      assert_true(a->offset + a->bytes <= (a->shared ? arena : f->bytes));
      // a rollout without fused kernels keeps nothing
      if (k <= BRIM_MAPPO_ALLOWED) assert_int_equal(a->bytes > 0, f->rollout);
      // observations of a rollout are needed longer than one update
      assert_false(a->shared && a->bytes > 0 && k <= BRIM_MAPPO_ALLOWED);
      for (int m = 0; m < k; m++) {
        const brim_mappo_space *b = &f->spaces[m];
        if (a->shared != b->shared || a->bytes == 0 || b->bytes == 0) continue;
        assert_true(b->offset + b->bytes <= a->offset);
      }
    }
    fixture_close(&j);
  }
}

static bool free_optional(job *j) {
  const brim_setting setting = brim_work_setting(j->work);
  return j->work->table->shrinking->free_optional(j->work->state, &setting);
}

// Memory is short: the stored observations are given up before the number of environments is reduced. A run that
// continues keeps this choice.
static void test_short_memory(void **state) {
  (void)state;
  const given g = {{PEER, "training.precision=bf16"}};
  job j;
  json_t *meta = NULL;
  (void)open_job(&j, &g, false);
  assert_true(of(&j)->fusing.rollout);
  const uint64_t before = planned(&j, "fused kernels");
  assert_true(free_optional(&j));
  assert_true(planned(&j, "fused kernels") < before);
  assert_false(free_optional(&j));
  assert_ok(fixture_configure(&j));
  assert_string_equal(fused_of(&j), "update");
  assert_string_equal(of(&j)->fusing.why.text, "memory was short");
  steps(&j, 2);
  save(&j, "short.safetensors");
  steps(&j, 2);
  save(&j, "whole.safetensors");
  fixture_close(&j);
  assert_ok(brim_work_metadata("short.safetensors", &meta));
  (void)open_job(&j, &g, false);
  j.work->table->resuming(j.work->state, meta);
  json_decref(meta);
  assert_ok(fixture_configure(&j));
  assert_string_equal(fused_of(&j), "update");
  assert_ok(j.work->table->load(j.work->state, "short.safetensors", NULL));
  steps(&j, 2);
  save(&j, "resumed.safetensors");
  fixture_close(&j);
  assert_same_file("whole.safetensors", "resumed.safetensors");
  // nothing left to give up
  const given without[] = {{{PEER, "mappo.fused=off"}}, {{COVERAGE, "training.precision=bf16"}}};
  for (size_t i = 0; i < sizeof without / sizeof *without; i++) {
    (void)open_job(&j, &without[i], false);
    assert_false(free_optional(&j));
    assert_false(of(&j)->general_rollout);
    fixture_close(&j);
  }
}

// An evaluation makes no update and no rollout, so it needs neither their kernels nor their memory.
static void test_evaluation_alone(void **state) {
  (void)state;
  static const char *const plugins[] = {FUSED_PLUGIN, GENERAL_PLUGIN};
  const given g = {{PEER, "mappo.fused=on"}};
  job j;
  brim_work_metrics m;
  (void)open_job(&j, &g, false);
  save(&j, "trained.safetensors");
  fixture_close(&j);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(open_as(&j, plugins[i], &g, 0), i == 0 ? BRIM_OK : BRIM_EUNSUPPORTED);
    fixture_close(&j);
    assert_ok(open_to(&j, plugins[i], &g, 0, true));
    assert_null(of(&j)->fusing.memory);
    assert_int_equal(planned(&j, "fused kernels"), 0);
    assert_ok(brim_work_use(j.work, "trained.safetensors", false));
    assert_ok(j.work->table->evaluation->evaluate(j.work->state, &m));
    fixture_close(&j);
  }
}

// Kernels read the sizes of the thread's current device, so a call of the backend must have made ours current.
static struct {
  bool entered;
  int asked;
  const brim_fused_table *table;
} several;

static brim_status enter_by_memory(void *impl, uint64_t *free_bytes, uint64_t *total_bytes) {
  (void)impl;
  several.entered = true;
  *free_bytes = *total_bytes = 1ULL << 32;
  return BRIM_OK;
}

static brim_fused_way way_of_device(const brim_fused_net *net) {
  assert_true(several.entered);
  several.asked++;
  return several.table->way(net);
}

static void test_several_devices(void **state) {
  (void)state;
  job j;
  (void)open_job(&j, &(given){{PEER, "mappo.fused=on"}}, false);
  const brim_backend *usual = j.device->backend;
  brim_backend backend = *usual;
  backend.device_memory = enter_by_memory;
  j.device->backend = &backend;
  several.table = of(&j)->fused;
  brim_fused_table table = *several.table;
  table.way = way_of_device;
  of(&j)->fused = &table;
  several.entered = false;
  (void)planned(&j, "fused kernels");
  assert_true(several.asked > 0);
  of(&j)->fused = several.table;
  j.device->backend = usual;
  fixture_close(&j);
}

//---------------------------------- the general path ----------------------------------

typedef struct numbers {
  float *values;
  size_t count;
} numbers;

// All parameters of a network, concatenated.
static numbers read_all(const job *j, int net, bool gradients) {
  brim_net *n = brim_mappo_net(of(j), net);
  numbers out = {0};
  for (size_t i = 0; i < brim_net_param_count(n); i++) {
    out.count += (size_t)brim_net_param_at(n, i)->count;
  }
  out.values = (float *)malloc(out.count * sizeof(float));
  assert_non_null(out.values);
  float *at = out.values;
  for (size_t i = 0; i < brim_net_param_count(n); i++) {
    assert_ok((gradients ? brim_net_grad_read : brim_net_param_read)(n, i, at));
    at += brim_net_param_at(n, i)->count;
  }
  return out;
}

// || a - b || / || b ||
static double apart(const job *a, const job *b, int net, bool gradients) {
  const numbers x = read_all(a, net, gradients), y = read_all(b, net, gradients);
  double difference = 0, norm = 0;
  assert_int_equal(x.count, y.count);
  for (size_t i = 0; i < x.count; i++) {
    const double d = (double)x.values[i] - (double)y.values[i];
    difference += d * d;
    norm += (double)y.values[i] * (double)y.values[i];
  }
  free(x.values);
  free(y.values);
  assert_true(norm > 0);
  return sqrt(difference / norm);
}

typedef struct likeness {
  given g;  // three free places
  double most;
} likeness;

static bool open_both(const likeness *l, const char *epochs, const char *minibatches, bool gpu,
                      job both[2]) {
  given g = l->g;
  const size_t n = count_of(&g);
  assert_true(n + 3 <= MOST);
  g.overrides[n] = epochs;
  g.overrides[n + 1] = minibatches;
  g.overrides[n + 2] = "mappo.fused=on";
  if (!open_job(&both[0], &g, gpu)) return false;
  g.overrides[n + 2] = "mappo.fused=off";
  return open_job(&both[1], &g, gpu);
}

// Gradients of the first update, from the same rollout.
static void like_general(const likeness *rows, size_t count, bool gpu) {
  for (size_t i = 0; i < count; i++) {
    job both[2];
    if (!open_both(&rows[i], "mappo.update_epochs=1", "mappo.minibatches=1", gpu, both)) continue;
    steps(&both[0], 1);
    steps(&both[1], 1);
    for (int n = 0; n < BRIM_MAPPO_NETS; n++) {
      const double d = apart(&both[0], &both[1], n, true);
      if (!(d <= rows[i].most)) {
        const char *second = rows[i].g.overrides[1];
        fail_msg("%s %s, network %d: %g", rows[i].g.overrides[0], second ? second : "", n, d);
      }
    }
    fixture_close(&both[0]);
    fixture_close(&both[1]);
  }
}

static void test_gradients(void **state) {
  (void)state;
  static const likeness rows[] = {
      {{{"mappo.huber=0.5"}}, 1e-5},
      {{{PEER}}, 1e-5},
      {{{NEAR}}, 1e-5},
      {{{PEER, "model=mlp(depth=2, hidden=24, activation=relu)"}}, 1e-5},
      {{{PEER, "mappo.collect_on=cpu"}}, 1e-5},
      {{{COVERAGE}}, 1e-5},
      {{{PEER, "model=actor_critic(hidden=136)"}}, 1e-5},
      {{{COVERAGE, "mappo.collect_on=cpu"}}, 1e-5},
      {{{PEER, "training.precision=bf16"}}, 3e-2},
      {{{COVERAGE, "training.precision=bf16"}}, 3e-2},
  };
  like_general(rows, sizeof rows / sizeof *rows, false);
}

// A GPU's kernels: WHOLE in both types, REST, and with the rollout. The rollout's reference draws its actions with the
// general actor; they are the same unless rounding decides one.
static void test_gradients_on_a_gpu(void **state) {
  (void)state;
  static const likeness rows[] = {
      {{{PEER}}, 1e-5},
      {{{NEAR}}, 1e-5},
      {{{PEER, "model=mlp(depth=2, hidden=104, activation=relu)"}}, 1e-5},
      {{{PEER, "training.precision=bf16", "mappo.collect_on=cpu"}}, 1e-2},
      {{{NEAR, "training.precision=bf16", "mappo.collect_on=cpu"}}, 1e-2},
      {{{COVERAGE, "training.precision=bf16"}}, 1e-2},
      {{{PEER, "training.precision=bf16", "model=actor_critic(hidden=256)"}}, 1e-2},
      {{{NEAR, "training.precision=bf16"}}, 5e-2},
  };
  if (!has_gpu()) BRIM_SKIP(brim_status_detail());
  like_general(rows, sizeof rows / sizeof *rows, true);
}

//---------------------------------- drawn shapes ----------------------------------

enum { DRAWN = 32, TEXTS = 6 };

static int pick(int i, int n, int low, int high) {
  const uint32_t bits = brim_philox(brim_rng_key(29, BRIM_RNG_TEST), (uint64_t)i, (uint64_t)n).v[0];
  return low + (int)(bits % (uint32_t)(high - low + 1));
}

// Setting i. In fp32 networks that a GPU's kernels take whole; in bf16 also larger ones. Environments run on the CPU in
// bf16, so that both paths learn from the same rollout.
static void draw(int i, char (*text)[256], likeness *out, double most_bf16) {
  const bool half = i % 2, large = half && i % 4 == 1, peer = i % 5 == 4;
  const int hidden = large ? 8 * pick(i, 0, 1, 32) : pick(i, 0, 1, 128);
  const int crop = large ? 3 + 2 * pick(i, 1, 0, 2) : 3;
  snprintf(text[0], sizeof text[0],
           "env=uav(rules=%s, task=%s, reward=%s, size=%d, crop=%d, num_uavs=%d, num_obstacles=%d, "
           "episode_steps=%d)",
           peer ? "peer" : "brim", peer || pick(i, 2, 0, 1) ? "goals" : "coverage",
           peer || pick(i, 3, 0, 1) ? "team" : "own", pick(i, 4, 8, large ? 32 : 12), crop,
           pick(i, 5, 1, 6), pick(i, 6, 0, 12), pick(i, 7, 3, 15));
  snprintf(text[1], sizeof text[1], "model=mlp(depth=2, hidden=%d, activation=%s)", hidden,
           pick(i, 8, 0, 1) ? "tanh" : "relu");
  snprintf(text[2], sizeof text[2], "mappo.num_envs=%d", pick(i, 9, 2, 24));
  snprintf(text[3], sizeof text[3], "mappo.rollout_steps=%d", pick(i, 10, 3, 16));
  snprintf(text[4], sizeof text[4], "training.precision=%s", half ? "bf16" : "fp32");
  snprintf(text[5], sizeof text[5], "mappo.collect_on=%s", half ? "cpu" : "auto");
  *out = (likeness){.most = half ? most_bf16 : 1e-5};
  for (int k = 0; k < TEXTS; k++) out->g.overrides[k] = text[k];
}

static void like_general_drawn(bool gpu, double most_bf16) {
  for (int i = 0; i < DRAWN; i++) {
    char text[TEXTS][256];
    likeness row;
    draw(i, text, &row, most_bf16);
    like_general(&row, 1, gpu);
  }
}

static void test_drawn_gradients(void **state) {
  (void)state;
  like_general_drawn(false, 3e-2);
}

static void test_drawn_gradients_on_a_gpu(void **state) {
  (void)state;
  if (!has_gpu()) BRIM_SKIP(brim_status_detail());
  like_general_drawn(true, 1e-2);
}

static void same_figures(job *fused, job *general, double most) {
  brim_work_metrics a, b;
  assert_ok(fused->work->table->metrics(fused->work->state, true, &a));
  assert_ok(general->work->table->metrics(general->work->state, true, &b));
  for (int i = 0; i < BRIM_MAPPO_SUMS; i++) {
    const double size = fabs(a.sums[i]) > fabs(b.sums[i]) ? fabs(a.sums[i]) : fabs(b.sums[i]);
    if (!(fabs(a.sums[i] - b.sums[i]) <= most * (size + 1))) {
      fail_msg("sum %d: %g fused, %g else", i, a.sums[i], b.sums[i]);
    }
  }
  // both have the same episodes
  assert_true(a.sums[BRIM_MAPPO_SUM_EPISODES] == b.sums[BRIM_MAPPO_SUM_EPISODES]);
  assert_true(a.sums[BRIM_MAPPO_SUM_REWARD] == b.sums[BRIM_MAPPO_SUM_REWARD]);
}

// Weights and figures of a few iterations.
static void test_training(void **state) {
  (void)state;
  static const likeness rows[] = {{{{"mappo.fused=auto"}}, 1e-4},
                                  {{{PEER}}, 1e-4},
                                  {{{NEAR}}, 1e-4},
                                  {{{COVERAGE}}, 1e-4},
                                  {{{PEER, "mappo.value_norm=false"}}, 1e-4}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    job both[2];
    (void)open_both(&rows[i], "mappo.update_epochs=2", "mappo.minibatches=4", false, both);
    steps(&both[0], 3);
    steps(&both[1], 3);
    for (int n = 0; n < BRIM_MAPPO_NETS; n++) {
      const double d = apart(&both[0], &both[1], n, false);
      if (!(d <= rows[i].most)) fail_msg("%s, network %d: %g", rows[i].g.overrides[0], n, d);
    }
    same_figures(&both[0], &both[1], 1e-3);
    fixture_close(&both[0]);
    fixture_close(&both[1]);
  }
}

//---------------------------------- equal bits ----------------------------------

// "off" equals a device without such kernels, bit for bit; "on" differs.
static void test_off(void **state) {
  (void)state;
  static const struct {
    const char *plugin, *fused, *path;
  } runs[] = {{GENERAL_PLUGIN, "mappo.fused=auto", "none.safetensors"},
              {FUSED_PLUGIN, "mappo.fused=off", "off.safetensors"},
              {FUSED_PLUGIN, "mappo.fused=on", "on.safetensors"}};
  numbers actor[3];
  for (int i = 0; i < 3; i++) {
    job j;
    const given g = {{PEER, runs[i].fused}};
    assert_ok(open_as(&j, runs[i].plugin, &g, 0));
    steps(&j, 3);
    save(&j, runs[i].path);
    actor[i] = read_all(&j, BRIM_MAPPO_ACTOR, false);
    fixture_close(&j);
  }
  const size_t bytes = actor[0].count * sizeof(float);
  assert_same_file(runs[0].path, runs[1].path);
  assert_memory_not_equal(actor[0].values, actor[2].values, bytes);
  for (int i = 0; i < 3; i++) free(actor[i].values);
}

static void resumes(const given *g, bool gpu) {
  job j;
  brim_work_metrics m;
  if (!open_job(&j, g, gpu)) return;
  if (gpu && !of(&j)->fusing.update) {
    fused_leave_out(j.device);
    fixture_close(&j);
    return;
  }
  assert_true(of(&j)->fusing.update);
  steps(&j, 2);
  save(&j, "half.safetensors");
  // evaluation uses the memory of updates
  assert_ok(j.work->table->evaluation->evaluate(j.work->state, &m));
  steps(&j, 3);
  save(&j, "whole.safetensors");
  fixture_close(&j);
  assert_true(open_job(&j, g, gpu));
  assert_ok(j.work->table->load(j.work->state, "half.safetensors", NULL));
  steps(&j, 3);
  save(&j, "resumed.safetensors");
  fixture_close(&j);
  assert_same_file("whole.safetensors", "resumed.safetensors");
}

static const given resumed[] = {{{NEAR, "mappo.fused=on"}},
                                {{COVERAGE, "training.precision=bf16"}},
                                {{PEER, "training.precision=bf16"}},
                                {{PEER, "mappo.collect_on=cpu", "mappo.fused=on"}}};

static void test_resume(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof resumed / sizeof *resumed; i++) resumes(&resumed[i], false);
  resumes(&(given){{COVERAGE, "mappo.fused=on"}}, false);
}

static void test_resume_on_a_gpu(void **state) {
  (void)state;
  if (!has_gpu()) BRIM_SKIP(brim_status_detail());
  for (size_t i = 0; i < sizeof resumed / sizeof *resumed; i++) resumes(&resumed[i], true);
}

int main(void) {
  brim_json_own_memory();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_what_is_fused),
      cmocka_unit_test(test_what_is_not_fused),
      cmocka_unit_test(test_refused),
      cmocka_unit_test(test_memory),
      cmocka_unit_test(test_short_memory),
      cmocka_unit_test(test_evaluation_alone),
      cmocka_unit_test(test_gradients),
      cmocka_unit_test(test_drawn_gradients),
      cmocka_unit_test(test_training),
      cmocka_unit_test(test_off),
      cmocka_unit_test(test_resume),
      cmocka_unit_test(test_gradients_on_a_gpu),
      cmocka_unit_test(test_drawn_gradients_on_a_gpu),
      cmocka_unit_test(test_resume_on_a_gpu),
      cmocka_unit_test(test_several_devices),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
