// Editing random config files: the result has the requested meaning, and only the touched lines differ. Also with every
// allocation failing in turn.
#include "config/config.h"
#include "config_test.h"

static char *slurp(const char *path) {
  char *text;
  size_t size;
  assert_ok(brim_fs_read(path, 0, &text, &size));
  return text;
}

static void put(const char *path, const char *text) {
  assert_ok(brim_fs_write(path, text, strlen(text)));
}

typedef struct generator {
  uint64_t state;
  char text[8192];
  size_t length;
} generator;

static unsigned roll(generator *g, unsigned sides) {
  g->state = g->state * 6364136223846793005ULL + 1442695040888963407ULL;
  return (unsigned)(g->state >> 33) % sides;
}

static void say(generator *g, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  int n = vsnprintf(g->text + g->length, sizeof g->text - g->length, fmt, args);
  va_end(args);
  assert_true(n >= 0 && g->length + (size_t)n < sizeof g->text);
  g->length += (size_t)n;
}

// Keys with their possible values; the first of a section names it.
typedef struct random_key {
  const char *section, *key, *flat;
  const char *values[4];
} random_key;

static const random_key random_keys[] = {
    {"data", "batch_size", "batch_size", {"16", "64", "0x80", "1e3"}},
    {"data", "num_workers", "num_workers", {"0", "2", "4", "-1"}},
    {"data", "pin_memory", "pin_memory", {"true", "false", "yes", "off"}},
    {"data", "prefetch_factor", "prefetch_factor", {"2", "4", "8", "1"}},
    {"data", "path", "data_path", {"/tmp/x", "'a b'", "\"c: d\"", "값.h5"}},
    {"training", "epochs", "epochs", {"1", "5", "10", "300"}},
    {"training", "learning_rate", "lr", {"0.1", "1e-4", ".5", "3"}},
    {"training", "precision", "precision", {"fp32", "bf16", "'fp16'", "auto"}},
    {"training", "compile", "compile", {"true", "false", "On", "no"}},
    {"checkpoint", "keep", NULL, {"1", "2", "3", "4"}},
    {NULL, "seed", NULL, {"0", "1", "7", "123"}},
    {NULL, "threads", "num_threads", {"0", "1", "2", "4"}},
};
enum { RANDOM_KEYS = sizeof random_keys / sizeof random_keys[0] };

static void random_comment(generator *g, bool inline_one) {
  static const char *const notes[] = {"# 주석", "# a: b", "# [1, 2", "#", "# 'quoted\""};
  if (roll(g, 3)) return;
  say(g, "%s%s", inline_one ? "  " : "", notes[roll(g, 5)]);
  if (!inline_one) say(g, "\n");
}

static void random_section(generator *g, const char *section, unsigned given, bool flow) {
  static const int steps[] = {1, 2, 3, 4, 8};
  int indent = steps[roll(g, 5)];
  bool any = false;
  say(g, flow ? "%s: {" : "%s:", section);
  if (!flow) random_comment(g, true);
  if (!flow) say(g, "\n");
  for (size_t i = 0; i < RANDOM_KEYS; i++) {
    const random_key *k = &random_keys[i];
    if (!k->section || strcmp(k->section, section) || !(given >> i & 1U)) continue;
    const char *value = k->values[roll(g, 4)];
    if (flow) {
      say(g, "%s%s: %s", any ? ", " : "", k->key, value);
    } else {
      if (!roll(g, 4)) say(g, "%*s# %s\n", indent, "", k->key);
      say(g, "%*s%s: %s", indent, "", k->key, value);
      random_comment(g, true);
      say(g, "\n");
    }
    any = true;
  }
  if (flow) say(g, "}\n");
}

static void random_file(generator *g, unsigned given) {
  static const char *const sections[] = {"data", "training", "checkpoint"};
  g->length = 0;
  bool flat = roll(g, 4) == 0;
  random_comment(g, false);
  for (size_t i = 0; i < RANDOM_KEYS; i++) {
    const random_key *k = &random_keys[i];
    if ((k->section && !(flat && k->flat)) || !(given >> i & 1U)) continue;
    say(g, "%s: %s", k->section ? k->flat : k->key, k->values[roll(g, 4)]);
    random_comment(g, true);
    say(g, "\n");
  }
  for (size_t i = 0; i < 3; i++) {
    if (flat && i < 2) continue;
    if (roll(g, 3) == 0) say(g, "\n");
    random_section(g, sections[i], given, roll(g, 4) == 0);
    random_comment(g, false);
  }
  if (roll(g, 5) == 0 && g->length && g->text[g->length - 1] == '\n') g->text[--g->length] = '\0';
}

// Counts the lines of `a` that `b` lacks, in order.
static size_t lost_lines(const char *a, const char *b) {
  size_t lost = 0;
  while (*a) {
    size_t n = strcspn(a, "\n");
    const char *p = b;
    bool found = false;
    while (*p && !found) {
      size_t m = strcspn(p, "\n");
      found = m == n && !strncmp(p, a, n);
      p += m + (p[m] == '\n');
    }
    if (found) {
      b = p;
    } else {
      lost++;
    }
    a += n + (a[n] == '\n');
  }
  return lost;
}

static json_t *resolve(const char *path, const char *override) {
  brim_config_options options = {
      .path = path, .overrides = &override, .override_count = override ? 1 : 0};
  brim_config *config;
  json_t *json;
  assert_ok(brim_config_load(&options, &config));
  assert_ok(brim_config_to_json(config, &json));
  brim_config_close(config);
  return json;
}

static void test_random_files(void **state) {
  (void)state;
  static generator g;
  g.state = 20260115;
  for (int round = 0; round < (test_is_full() ? 1500 : 300); round++) {
    unsigned given = roll(&g, 1U << RANDOM_KEYS);
    random_file(&g, given);
    put("random.yaml", g.text);
    const random_key *k = &random_keys[roll(&g, RANDOM_KEYS)];
    char key[64], override[128];
    snprintf(key, sizeof key, "%s%s%s", k->section ? k->section : "", k->section ? "." : "",
             k->key);
    brim_config_edit edit = {key, k->values[roll(&g, 4)]};
    snprintf(override, sizeof override, "%s=%s", edit.key, edit.value);
    json_t *wanted = resolve("random.yaml", override);
    brim_config_edit_result result;
    if (brim_config_edit_file("random.yaml", &edit, 1, &result)) {
      fail_msg("round %d, %s: %s\n%s", round, override, brim_status_detail(), g.text);
    }
    json_t *got = resolve("random.yaml", NULL);
    if (!json_equal(wanted, got)) fail_msg("round %d, %s:\n%s", round, override, result.after);
    // at most one old line is gone, and at most a section and a blank line are new
    if (lost_lines(result.before, result.after) > 1 ||
        lost_lines(result.after, result.before) > 3) {
      fail_msg("round %d, %s:\n--- before\n%s\n--- after\n%s", round, override, result.before,
               result.after);
    }
    json_decref(wanted);
    json_decref(got);
    brim_config_edit_result_deinit(&result);
  }
}

// Each allocation fails in turn: the file stays as it was, nothing leaks.
static void test_out_of_memory(void **state) {
  (void)state;
  static const char text[] = "data:\n  batch_size: 1\noptimizer: sgd(lr=0.1)\n";
  const brim_config_edit edits[] = {{"batch_size", "8"}, {"lr", "0.2"}, {"epochs", "1"}};
  brim_status status = BRIM_ENOMEM;
  for (uint64_t n = 1; status == BRIM_ENOMEM && n < 100000; n += n < 200 ? 1 : 7) {
    put("oom.yaml", text);
    brim_alloc_fail_nth(n, false);
    status = brim_config_edit_file("oom.yaml", edits, 3, NULL);
    brim_alloc_fail_nth(0, false);
    char *after = slurp("oom.yaml");
    if (status) assert_string_equal(after, text);
    brim_free(after);
  }
  assert_ok(status);
}

int main(void) {
  test_filter();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_random_files),
      cmocka_unit_test(test_out_of_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
