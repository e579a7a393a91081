// The contract of environments, with two that only a plug-in of the tests has: their rollouts, the update and the
// evaluation, on the CPU and, if there is a GPU, on CUDA.
#include "rl/rollout_test.h"

#include "env/drift.h"
#include "env/slide.h"

#define PLUGIN BRIM_BUILD_DIR "/tests/plugins/libbrim_test_env.so"

// The CPU with the plug-in's rows, and CUDA with its kernels.
static struct {
  brim_registry *registry;
  brim_device *device;  // NULL = no GPU
} world;

static const brim_env_row *row_of(const char *name) {
  char full[64];
  snprintf(full, sizeof full, BRIM_ENV_EXTENSION "%s", name);
  const brim_env_row *row = brim_registry_extension(world.registry, full);
  assert_non_null(row);
  assert_int_equal(row->abi, BRIM_ENV_ABI);
  return row;
}

// The places an environment runs at: one or two.
static int grounds_of(const char *name, ground out[2]) {
  ground_open_cpu(&out[0], 2);
  if (!world.device) return 1;
  char full[64];
  snprintf(full, sizeof full, BRIM_ROLLOUT_EXTENSION "%s", name);
  out[1] = (ground){.table = brim_registry_extension(world.registry, full),
                    .device = world.device,
                    .where.stream = world.device->stream};
  assert_non_null(out[1].table);
  assert_int_equal(out[1].table->abi, BRIM_ROLLOUT_ABI);
  return 2;
}

static brim_rollout_shape shape_of(const char *name) {
  brim_rollout_shape s = {.row = row_of(name),
                          .num_envs = 2 * (BRIM_ROLLOUT_PART + 5),
                          .num_dirs = 7,
                          .dir_chunk = 7,
                          .filter = 1,
                          .eval_episodes = 100,
                          .seed = 11};
  s.row->defaults(0, s.env.bytes);
  s.episode_length = s.row->length(0, s.env.bytes);
  return s;
}

static void set_agents(brim_rollout_shape *s, int32_t agents) {
  drift_values v;
  memcpy(&v, s->env.bytes, sizeof v);
  v.agents = agents;
  memcpy(s->env.bytes, &v, sizeof v);
}

// The results of some iterations.
typedef struct left {
  float theta[256], returns[14], normal[8];
  double filter[9];
  brim_rollout_tally tally[14];
  brim_rollout_episode episodes[100];
  float figures[100];
} left;

static void iterate(ground *g, const brim_rollout_shape *shape, left *out) {
  const brim_env_sizes z = brim_rollout_sizes_of(shape);
  memset(out, 0, sizeof *out);
  ground_prepare(g, shape);
  for (int i = 0; i < 3; i++) {
    ground_run(g, i, 0.3f, 0.1f);
    ground_update(g, i, 4, 0.2f);
  }
  assert_in_range(g->at.params, 1, 256);
  ground_get(g, g->at.theta, out->theta, g->at.params * sizeof(float));
  ground_get(g, g->at.returns, out->returns, sizeof out->returns);
  ground_get(g, g->at.normal, out->normal, 2 * (size_t)z.obs * sizeof(float));
  ground_get(g, g->at.filter, out->filter, (1 + 2 * (size_t)z.obs) * sizeof(double));
  ground_get(g, g->at.tally, out->tally, sizeof out->tally);
  ground_episodes(g, 100, 0, 3, out->episodes);
  if (z.figures) ground_get(g, g->at.figures, out->figures, sizeof out->figures);
}

// The size of the chunks of directions changes no bit, on any device, for linear policies and others.
static void chunks_change_no_bit(void **state) {
  (void)state;
  static const char *const names[] = {"drift", "slide"};
  static const int32_t chunks[] = {7, 1, 3, 4};
  static left first, other;
  for (int n = 0; n < 2; n++) {
    ground g[2];
    const int grounds = grounds_of(names[n], g);
    for (int p = 0; p < grounds; p++) {
      for (int form = 0; form < 4; form++) {
        brim_rollout_shape shape = shape_of(names[n]);
        shape.hidden = form & 1 ? 12 : 0;
        shape.once = form >> 1;
        iterate(&g[p], &shape, &first);
        double moved = 0;
        for (size_t i = 0; i < g[p].at.params; i++) moved += fabs((double)first.theta[i]);
        assert_true(moved > 0);
        for (size_t c = 1; c < sizeof chunks / sizeof *chunks; c++) {
          shape.dir_chunk = chunks[c];
          iterate(&g[p], &shape, &other);
          assert_memory_equal(&first, &other, sizeof first);
        }
      }
      ground_clear(&g[p]);
    }
  }
}

// The number of threads changes no bit either.
static void threads_change_no_bit(void **state) {
  (void)state;
  static left first, other;
  ground one, four;
  brim_rollout_shape shape = shape_of("drift");
  ground_open_cpu(&one, 1);
  ground_open_cpu(&four, 4);
  iterate(&one, &shape, &first);
  iterate(&four, &shape, &other);
  assert_memory_equal(&first, &other, sizeof first);
  ground_close(&one);
  ground_close(&four);
}

// Both environments round alike on every device: a rollout from the same policy has the same bits.
static void cpu_and_cuda_have_the_same_bits(void **state) {
  (void)state;
  static const char *const names[] = {"drift", "slide"};
  if (!world.device) BRIM_SKIP("no GPU here");
  for (int n = 0; n < 2; n++) {
    for (int form = 0; form < 4; form++) {
      ground g[2];
      float returns[2][14];
      brim_rollout_tally tally[2][14];
      brim_rollout_episode episodes[2][100];
      assert_int_equal(grounds_of(names[n], g), 2);
      for (int p = 0; p < 2; p++) {
        brim_rollout_shape shape = shape_of(names[n]);
        shape.hidden = form & 1 ? 12 : 0;
        shape.once = form >> 1;
        ground_prepare(&g[p], &shape);
        ground_run(&g[p], 1, 0.3f, 0.1f);
        ground_get(&g[p], g[p].at.returns, returns[p], sizeof returns[p]);
        ground_get(&g[p], g[p].at.tally, tally[p], sizeof tally[p]);
        ground_episodes(&g[p], 100, 0, 1, episodes[p]);
        ground_clear(&g[p]);
      }
      assert_memory_equal(returns[0], returns[1], sizeof returns[0]);
      assert_memory_equal(tally[0], tally[1], sizeof tally[0]);
      assert_memory_equal(episodes[0], episodes[1], sizeof episodes[0]);
    }
  }
}

// Sizes depend on arguments: the filter counts the observations of every agent, and the number of agents does not
// change the policy's size.
static void agents_are_a_value(void **state) {
  (void)state;
  ground g[2];
  const int grounds = grounds_of("drift", g);
  for (int p = 0; p < grounds; p++) {
    size_t params = 0;
    for (int32_t agents = 1; agents <= drift_AGENTS; agents++) {
      double count;
      brim_rollout_shape shape = shape_of("drift");
      set_agents(&shape, agents);
      ground_prepare(&g[p], &shape);
      assert_true(params == 0 || params == g[p].at.params);
      params = g[p].at.params;
      ground_run(&g[p], 0, 0.3f, 0);
      ground_update(&g[p], 0, 0, 0.1f);
      ground_get(&g[p], g[p].at.filter, &count, sizeof count);
      const double steps = (double)shape.num_envs * shape.num_dirs * shape.episode_length;
      assert_true(count == agents * steps);
    }
    brim_rollout_shape shape = shape_of("drift");
    brim_rollout_layout at;
    set_agents(&shape, drift_AGENTS + 1);
    assert_int_equal(g[p].table->layout(&shape, &at), BRIM_EINVAL);
    ground_clear(&g[p]);
  }
}

// Masked actions are never taken: no agent leaves the line, whatever the policy does.
static void masks_hold(void **state) {
  (void)state;
  brim_rollout_shape shape = shape_of("drift");
  const brim_rollout_eval eval = {.episodes = 20};
  float frames[64][drift_AGENTS], reward[64];
  for (int way = 1; way <= 2; way++) {
    // always left, or always right
    float theta[drift_ACT * drift_OBS] = {0}, normal[2 * drift_OBS] = {0, 0, 0, 1, 1, 1};
    theta[way * drift_OBS + 2] = 1;
    int edge = 0;
    for (int e = 0; e < 20; e++) {
      brim_rollout_record r = {.capacity = 64, .frames = frames[0], .reward = reward};
      assert_ok(brim_rollout_trace(&shape, theta, normal, &eval, e, &r));
      const float *cells = frames[0];
      for (int64_t i = 0; i < 2 * r.states; i++) {  // two agents
        assert_true(cells[i] >= 0 && cells[i] < drift_CELLS);
        edge += cells[i] == (way == 1 ? 0 : drift_CELLS - 1);
      }
    }
    assert_true(edge > 20);
  }
}

// ARS learns both: more reward in held-out episodes than the zero policy.
static void ars_learns_them(void **state) {
  (void)state;
  static const char *const names[] = {"drift", "slide"};
  for (int n = 0; n < 2; n++) {
    ground g[2];
    const int grounds = grounds_of(names[n], g);
    for (int p = 0; p < grounds; p++) {
      brim_rollout_episode zero[100], learned[100];
      brim_rollout_shape shape = shape_of(names[n]);
      shape.num_dirs = shape.dir_chunk = 16;
      shape.once = 1;
      ground_prepare(&g[p], &shape);
      ground_episodes(&g[p], 100, 1, 7, zero);
      for (int i = 0; i < 40; i++) {
        ground_run(&g[p], i, 0.1f, 0);
        ground_update(&g[p], i, 8, 0.1f);
      }
      ground_episodes(&g[p], 100, 0, 7, learned);
      double before = 0, after = 0;
      for (int i = 0; i < 100; i++) {
        before += (double)zero[i].reward / 100;
        after += (double)learned[i].reward / 100;
      }
      printf("%s: %.3f doing nothing, %.3f learned\n", names[n], before, after);
      assert_true(after > before + 0.3 * fabs(before));
      ground_clear(&g[p]);
    }
  }
}

static void row_refused(const brim_env_row *row, const char *why) {
  assert_int_equal(brim_env_check_row(row, "faulty"), BRIM_EABI);
  assert_non_null(strstr(brim_status_detail(), "environment faulty"));
  if (!strstr(brim_status_detail(), why)) fail_msg("no '%s' in: %s", why, brim_status_detail());
}

// A row of the table is used only if it is complete.
static void rows_have_all_members(void **state) {
  (void)state;
  const brim_env_row *good = row_of("drift");
  assert_ok(brim_env_check_row(good, "drift"));
  assert_ok(brim_env_check_row(row_of("slide"), "slide"));
  for (size_t i = 0; brim_env_at(i); i++) assert_ok(brim_env_check_row(brim_env_at(i), "own"));
  brim_env_row row = *good;
  row.abi++;
  row_refused(&row, "has version 5, but this program needs 4");
#define LACKS(member)                 \
  do {                                \
    row = *good;                      \
    row.member = NULL;                \
    row_refused(&row, "no " #member); \
  } while (0)
  LACKS(name);
  LACKS(args);
  LACKS(ended.key);
  LACKS(ended.label);
  LACKS(ended.rate_label);
  LACKS(ended.count);
  LACKS(ended.rate);
  LACKS(figures);
  LACKS(sizes);
  LACKS(defaults);
  LACKS(problem);
  LACKS(length);
  LACKS(best);
  LACKS(seconds);
  LACKS(flops);
  LACKS(describe);
  LACKS(run);
#undef LACKS
}

static void figures_of_rows_fit(void **state) {
  (void)state;
  brim_metric figures[BRIM_ENV_MAX_FIGURES + 1];
  brim_env_row row = *row_of("drift");
  for (int i = 0; i <= BRIM_ENV_MAX_FIGURES; i++) figures[i] = row.figures[0];
  row.figures = figures;
  row.figure_count = BRIM_ENV_MAX_FIGURES;
  assert_ok(brim_env_check_row(&row, "most"));
  row.figure_count++;
  row_refused(&row, "7 figures, but at most 6 fit");
  row.figure_count = 2;
  figures[1].key = NULL;
  row_refused(&row, "figure 1 has no key or no label");
  figures[1] = figures[0];
  figures[1].label = NULL;
  row_refused(&row, "figure 1 has no key or no label");
}

static void arguments_of_rows_fit(void **state) {
  (void)state;
  brim_env_row row = *row_of("drift");
  const brim_env_arg choice = row.args[0], number = row.args[2];
  brim_env_arg args[] = {choice, number};
  row.args = args;
  row.arg_count = 2;
  args[1].offset = BRIM_ENV_VALUES - sizeof(float);
  assert_ok(brim_env_check_row(&row, "last bytes"));
  args[1].offset++;
  row_refused(&row, "argument wind has offset 61, outside the 64 bytes of values");
  args[1].offset = SIZE_MAX;  // and four more wrap around
  row_refused(&row, "argument wind has offset");
  args[1] = number;
  args[1].type = (brim_env_arg_type)3;
  row_refused(&row, "argument wind has the unknown type 3");
  args[1] = number;
  args[1].name = NULL;
  row_refused(&row, "argument 1 has no name");
  args[1] = number;
  args[0].choices = NULL;
  row_refused(&row, "argument task has no choices");
}

// Baselines are found by name; a duplicate name is refused.
static void baselines_have_names(void **state) {
  (void)state;
  static const char *const twice[] = {"homing", "away", "homing", NULL};
  static const char *const random[] = {"random", NULL};
  static const char *const none[] = {NULL};
  brim_env_row row = *row_of("drift");
  assert_int_equal(brim_env_rule_count(&row), 1);
  assert_int_equal(brim_env_rule_find(&row, "random"), 0);
  assert_int_equal(brim_env_rule_find(&row, "homing"), 1);
  assert_int_equal(brim_env_rule_find(&row, "hom"), -1);
  row.rules = twice;
  row_refused(&row, "two baselines named homing");
  row.rules = random;
  row_refused(&row, "two baselines named random");
  row.rules = none;
  assert_ok(brim_env_check_row(&row, "none"));
  assert_int_equal(brim_env_rule_count(&row), 0);
  row.rules = NULL;
  assert_ok(brim_env_check_row(&row, "none"));
  assert_int_equal(brim_env_rule_count(&row), 0);
  assert_int_equal(brim_env_rule_find(&row, "homing"), -1);
}

static brim_env_sizes told;  // sizes that a faulty environment reports
static brim_env_sizes told_sizes(const void *values) {
  (void)values;
  return told;
}

// Sizes out of bounds are refused before they determine the layout of memory.
static void sizes_are_checked(void **state) {
  (void)state;
  const brim_env_sizes good = {.agents = 1, .obs = 3, .act = 2};
  const int32_t many = BRIM_ENV_MAX_NUMBERS;
  const struct {
    brim_env_sizes sizes;
    int32_t hidden;
    const char *why;  // NULL = nothing
  } cases[] = {
      {good, 0, NULL},
      {{2, 1, 3, 2, 0, 0, 0, 0, 0}, 0, "kind has to be"},
      {{-1, 1, 3, 2, 0, 0, 0, 0, 0}, 0, "kind has to be"},
      {{0, 0, 3, 2, 0, 0, 0, 0, 0}, 0, "at least 1 agent"},
      {{0, 1, 0, 2, 0, 0, 0, 0, 0}, 0, "1 to 65536 numbers"},
      {{0, 1, many, 2, 0, 0, 0, 0, 0}, 0, NULL},
      {{0, 1, many + 1, 2, 0, 0, 0, 0, 0}, 0, "1 to 65536 numbers"},
      {{0, 1, INT32_MAX, 2, 0, 0, 0, 0, 0}, 0, "1 to 65536 numbers"},
      {{0, 1, 3, 0, 0, 0, 0, 0, 0}, 0, "numbers or choices"},
      {{0, 1, 3, many + 1, 0, 0, 0, 0, 0}, 0, "numbers or choices"},
      {{0, 1, 3, 65, 0, 0, 0, 0, 0}, 0, NULL},
      {{1, 1, 3, 64, 0, 0, 0, 0, 0}, 0, NULL},
      {{1, 1, 3, 65, 0, 0, 0, 0, 0}, 0, "at most 64 choices"},
      {{0, 1, 3, 2, 0, 0, -1, 0, 0}, 0, "0 to 6 figures"},
      {{0, 1, 3, 2, 0, 0, 6, 0, 0}, 0, NULL},
      {{0, 1, 3, 2, 0, 0, 7, 0, 0}, 0, "0 to 6 figures"},
      {{0, 1, 3, 2, 0, -1, 0, 0, 0}, 0, "0 to 1024 numbers"},
      {{0, 1, 3, 2, 0, 1024, 0, 0, 0}, 0, NULL},
      {{0, 1, 3, 2, 0, 1025, 0, 0, 0}, 0, "0 to 1024 numbers"},
      {{0, 1, 3, 2, -1, 0, 0, 0, 0}, 0, "the state for a critic"},
      {{0, 1, 3, 2, many, 0, 0, 0, 0}, 0, NULL},
      {{0, 1, 3, 2, many + 1, 0, 0, 0, 0}, 0, "the state for a critic"},
      {{0, 3, 3, 2, 0, 0, 0, 0, 1}, 0, NULL},
      {{0, 3, 3, 2, 0, 0, 0, 0, 3}, 0, NULL},
      {{0, 3, 3, 2, 0, 0, 0, 0, 2}, 0, "one reward, or one for each agent"},
      {{0, 3, 3, 2, 0, 0, 0, 0, -1}, 0, "one reward, or one for each agent"},
      // 65536 * 65540 floats are 262144 in 32 bits
      {{0, 1, many, many, 0, 0, 0, 0, 0}, 0, "more than 16777216 numbers"},
      {{0, 1, many, 2, 0, 0, 0, 0, 0}, 1024, "more than 16777216 numbers"},
      {{0, 1, many, 2, 0, 0, 0, 0, 0}, 255, NULL},
  };
  brim_env_row row = *row_of("drift");
  row.sizes = told_sizes;
  brim_rollout_shape shape = shape_of("drift");
  shape.row = &row;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    brim_rollout_layout at;
    told = cases[i].sizes;
    shape.hidden = cases[i].hidden;
    const brim_status status = brim_rollout_cpu()->layout(&shape, &at);
    assert_int_equal(status, cases[i].why ? BRIM_EINVAL : BRIM_OK);
    if (cases[i].why && !strstr(brim_status_detail(), cases[i].why)) {
      fail_msg("case %zu: no '%s' in: %s", i, cases[i].why, brim_status_detail());
    }
  }
}

// A plug-in's texts are not used as formats.
static const char *percent(const void *values) {
  (void)values;
  return "wind is 100%s of what it can be %n";
}

static void problems_are_no_formats(void **state) {
  (void)state;
  ground g[2];
  const int grounds = grounds_of("drift", g);
  brim_env_row row = *row_of("drift");
  brim_rollout_shape shape = shape_of("drift");
  row.problem = percent;
  shape.row = &row;
  for (int p = 0; p < grounds; p++) {
    brim_rollout_layout at;
    assert_int_equal(g[p].table->layout(&shape, &at), BRIM_EINVAL);
    assert_non_null(strstr(brim_status_detail(), percent(NULL)));
  }
}

static int open_world(void **state) {
  (void)state;
  assert_ok(brim_registry_create(&world.registry));
  assert_ok(brim_registry_load_folder(world.registry, BRIM_BUILD_DIR "/lib/brim"));
  assert_ok(brim_registry_load(world.registry, PLUGIN));
  if (brim_device_open(world.registry, "cuda", NULL, &world.device)) world.device = NULL;
  printf("places: cpu%s\n", world.device ? ", cuda" : " (no GPU here)");
  return 0;
}

static int close_world(void **state) {
  (void)state;
  if (world.device) brim_device_close(world.device);
  brim_registry_destroy(world.registry);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(chunks_change_no_bit),
      cmocka_unit_test(threads_change_no_bit),
      cmocka_unit_test(cpu_and_cuda_have_the_same_bits),
      cmocka_unit_test(agents_are_a_value),
      cmocka_unit_test(masks_hold),
      cmocka_unit_test(ars_learns_them),
      cmocka_unit_test(rows_have_all_members),
      cmocka_unit_test(figures_of_rows_fit),
      cmocka_unit_test(arguments_of_rows_fit),
      cmocka_unit_test(baselines_have_names),
      cmocka_unit_test(sizes_are_checked),
      cmocka_unit_test(problems_are_no_formats),
  };
  return cmocka_run_group_tests(tests, open_world, close_world);
}
