// Editing a config file in place: a table of small files, each with the expected file after it, and the refusals.
// Random files are in test_edit_random.c.
#include <sys/stat.h>
#include <unistd.h>

#include "config/config.h"
#include "config_test.h"

enum { MAX_EDITS = 4 };

typedef struct edit_case {
  const char *name, *before;
  brim_config_edit edits[MAX_EDITS];
  const char *after;  // NULL: refused
  const char *words;  // in the refusal
} edit_case;

static size_t edits_of(const edit_case *c) {
  size_t n = 0;
  while (n < MAX_EDITS && c->edits[n].key) n++;
  return n;
}

static char *slurp(const char *path) {
  char *text;
  size_t size;
  assert_ok(brim_fs_read(path, 0, &text, &size));
  return text;
}

static void put(const char *path, const char *text) {
  assert_ok(brim_fs_write(path, text, strlen(text)));
}

static void run_cases(const edit_case *cases, size_t count) {
  for (size_t i = 0; i < count; i++) {
    const edit_case *c = &cases[i];
    put("edit.yaml", c->before);
    brim_status status = brim_config_edit_file("edit.yaml", c->edits, edits_of(c), NULL);
    char *text = slurp("edit.yaml");
    if (!c->after) {
      if (!status) fail_msg("%s: not refused:\n%s", c->name, text);
      if (!strstr(brim_status_detail(), c->words)) {
        fail_msg("%s: no '%s' in: %s", c->name, c->words, brim_status_detail());
      }
      assert_string_equal(text, c->before);
    } else {
      if (status) fail_msg("%s: refused: %s", c->name, brim_status_detail());
      if (strcmp(text, c->after)) {
        fail_msg("%s:\n--- is\n%s\n--- should be\n%s", c->name, text, c->after);
      }
      // A second edit has nothing left to do.
      brim_config_edit_result again;
      assert_ok(brim_config_edit_file("edit.yaml", c->edits, edits_of(c), &again));
      if (again.changed) fail_msg("%s: changed twice:\n%s", c->name, again.after);
      brim_config_edit_result_deinit(&again);
    }
    brim_free(text);
  }
}
#define RUN(cases) run_cases(cases, sizeof(cases) / sizeof *(cases))

static const edit_case in_place[] = {
    {"guide 002",
     "data:\n  batch_size: 4096      # 또는 8192\n  num_workers: 12\n  pin_memory: true\n\n"
     "training:\n  use_amp: true         # 필수!\n  learning_rate: 0.0003 # sqrt rule로 조정\n",
     {{"data.batch_size", "512"}, {"data.num_workers", "4"}, {"data.pin_memory", "false"}},
     "data:\n  batch_size: 512      # 또는 8192\n  num_workers: 4\n  pin_memory: false\n\n"
     "training:\n  use_amp: true         # 필수!\n  learning_rate: 0.0003 # sqrt rule로 조정\n",
     NULL},
    {"flat alias",
     "batch_size: 64 # b\nseed: 1\n",
     {{"data.batch_size", "128"}},
     "batch_size: 128 # b\nseed: 1\n",
     NULL},
    {"dotted", "data.batch_size: 64\n", {{"batch_size", "32"}}, "data.batch_size: 32\n", NULL},
    {"another section",
     "gpu:\n  gradient_accumulation: 2\n",
     {{"training.gradient_accumulation_steps", "4"}},
     "gpu:\n  gradient_accumulation: 4\n",
     NULL},
    {"quotes stay",
     "precision: \"fp32\"\ndata: {path: 'a b'}\n",
     {{"precision", "bf16"}, {"data.path", "c d"}},
     "precision: \"bf16\"\ndata: {path: 'c d'}\n",
     NULL},
    {"quotes that a number must lose",
     "name: '1'\ndata:\n  path: \"x\"\n",
     {{"data.path", "y'z"}},
     "name: '1'\ndata:\n  path: \"y'z\"\n",
     NULL},
    {"flow",
     "{data: {batch_size: 64, num_workers: 2}, seed: 1}\n",
     {{"data.num_workers", "0"}, {"seed", "7"}},
     "{data: {batch_size: 64, num_workers: 0}, seed: 7}\n",
     NULL},
    {"JSON",
     "{\"data\": {\"batch_size\":64}}",
     {{"data.batch_size", "8"}},
     "{\"data\": {\"batch_size\":8}}",
     NULL},
    {"no value",
     "data:\n  batch_size:\n  num_workers:   # w\n",
     {{"data.batch_size", "8"}, {"num_workers", "1"}},
     "data:\n  batch_size: 8\n  num_workers: 1   # w\n",
     NULL},
    {"null", "batch_size: ~\n", {{"batch_size", "8"}}, "batch_size: 8\n", NULL},
    {"no newline at the end",
     "seed: 1\nbatch_size: 2",
     {{"batch_size", "8"}},
     "seed: 1\nbatch_size: 8",
     NULL},
    {"CRLF",
     "data:\r\n  batch_size: 64\r\n  num_workers: 2\r\n",
     {{"batch_size", "8"}, {"pin_memory", "false"}, {"seed", "3"}},
     "data:\r\n  batch_size: 8\r\n  num_workers: 2\r\n  pin_memory: false\r\nseed: 3\r\n",
     NULL},
    {"BOM",
     "\xEF\xBB\xBF"
     "batch_size: 64\nname: 배치\n",
     {{"batch_size", "8"}, {"name", "b"}},
     "\xEF\xBB\xBF"
     "batch_size: 8\nname: b\n",
     NULL},
    {"same value, other spelling",
     "batch_size: 0x40\npin_memory: yes\n",
     {{"batch_size", "64"}, {"pin_memory", "true"}},
     "batch_size: 0x40\npin_memory: yes\n",
     NULL},
    {"tag", "batch_size: !!int 64 # t\n", {{"batch_size", "8"}}, "batch_size: 8 # t\n", NULL},
    {"folded text",
     "data:\n  path: >-\n    a\n    b\n\nseed: 1\n",
     {{"data.path", "/c"}},
     "data:\n  path: /c\n\nseed: 1\n",
     NULL},
    {"document marks",
     "%YAML 1.1\n---\nbatch_size: 64\n...\n# after\n",
     {{"batch_size", "8"}},
     "%YAML 1.1\n---\nbatch_size: 8\n...\n# after\n",
     NULL},
    {"explicit key", "? batch_size\n: 64\n", {{"batch_size", "8"}}, "? batch_size\n: 8\n", NULL},
    {"list of a list key",
     "benchmark:\n  batch_sizes: [1, 2] # all\n",
     {{"benchmark.batch_sizes", "[64, 128]"}},
     "benchmark:\n  batch_sizes: [64, 128] # all\n",
     NULL},
};

static void test_values_in_place(void **state) {
  (void)state;
  RUN(in_place);
}

static void test_axes(void **state) {
  (void)state;
  static const edit_case cases[] = {
      {"flow list",
       "batch_size: [64, 128] # two\nlr: [0.1, 0.2]\n",
       {{"batch_size", "8"}},
       "batch_size: 8 # two\nlr: [0.1, 0.2]\n",
       NULL},
      {"flow list on lines",
       "batch_size: [64,  # small\n  128]  # large\nseed: 1\n",
       {{"batch_size", "8"}},
       "batch_size: 8  # large\nseed: 1\n",
       NULL},
      {"block list",
       "data:\n  batch_size: # sizes\n    - 64 # small\n    - 128\n  # next\n"
       "  num_workers: 2\n",
       {{"batch_size", "8"}},
       "data:\n  batch_size: 8 # sizes\n  # next\n  num_workers: 2\n",
       NULL},
      {"block list at the key's column",
       "batch_size:\n- 64\n- 128\nseed: 1\n",
       {{"batch_size", "8"}},
       "batch_size: 8\nseed: 1\n",
       NULL},
      {"block list of a list key",
       "benchmark:\n  batch_sizes:\n  - 1\n  - 2",
       {{"benchmark.batch_sizes", "[4]"}},
       "benchmark:\n  batch_sizes: [4]",
       NULL},
      {"zipped",
       "batch_size: [1, 2]\nlr: [0.1, 0.2]\nzip: [batch_size, lr]\n",
       {{"batch_size", "8"}},
       "batch_size: 8\nlr: [0.1, 0.2]\nzip: [batch_size, lr]\n",
       NULL},
  };
  RUN(cases);
}

static const edit_case missing_keys[] = {
    {"to its section",
     "data:\n    path: x # p\n    # end of data\ntraining:\n    epochs: 1\n",
     {{"data.batch_size", "8"}, {"epochs", "2"}},
     "data:\n    path: x # p\n    batch_size: 8\n    # end of data\ntraining:\n    epochs: 2\n",
     NULL},
    {"behind a deep last key",
     "benchmark:\n  batch_sizes:\n    - 1\n    - 2 # two\n\nseed: 1\n",
     {{"benchmark.steps_per_test", "3"}},
     "benchmark:\n  batch_sizes:\n    - 1\n    - 2 # two\n  steps_per_test: 3\n\nseed: 1\n",
     NULL},
    {"to a flow section",
     "data: {path: x}\ntraining: {}\n",
     {{"batch_size", "8"}, {"epochs", "1"}},
     "data: {path: x, batch_size: 8}\ntraining: {epochs: 1}\n",
     NULL},
    {"to an empty section",
     "data: # none yet\ntraining: ~  # t\nseed: 1\n",
     {{"batch_size", "8"}, {"epochs", "1"}},
     "data: # none yet\n  batch_size: 8\ntraining:  # t\n  epochs: 1\nseed: 1\n",
     NULL},
    {"a new section",
     "seed: 1\ndata:\n   path: x\n",
     {{"epochs", "1"}, {"compile", "false"}},
     "seed: 1\ndata:\n   path: x\n\ntraining:\n   epochs: 1\n   compile: false\n",
     NULL},
    {"no newline at the end",
     "seed: 1",
     {{"epochs", "1"}},
     "seed: 1\n\ntraining:\n  epochs: 1\n",
     NULL},
    {"an empty file",
     "",
     {{"seed", "1"}, {"batch_size", "8"}},
     "seed: 1\n\ndata:\n  batch_size: 8\n",
     NULL},
    {"comments alone",
     "# nothing\n\n",
     {{"batch_size", "8"}},
     "# nothing\n\ndata:\n  batch_size: 8\n",
     NULL},
    {"before the end of the document",
     "seed: 1\n...\n",
     {{"batch_size", "8"}},
     "seed: 1\n\ndata:\n  batch_size: 8\n...\n",
     NULL},
    {"JSON",
     "{\"seed\": 1}\n",
     {{"batch_size", "8"}, {"num_workers", "0"}},
     "{\"seed\": 1, \"data\": {\"batch_size\": 8, \"num_workers\": 0}}\n",
     NULL},
    {"an indented file",
     "  seed: 1\n",
     {{"batch_size", "8"}},
     "  seed: 1\n\n  data:\n    batch_size: 8\n",
     NULL},
    {"over a preset",
     "preset: a100-80g\n",
     {{"batch_size", "8"}},
     "preset: a100-80g\n\ndata:\n  batch_size: 8\n",
     NULL},
    {"the default, said",
     "seed: 1\n",
     {{"batch_size", "128"}},
     "seed: 1\n\ndata:\n  batch_size: 128\n",
     NULL},
    {"behind a text",
     "data:\n  path: |\n    a\n",
     {{"seed", "1"}, {"epochs", "2"}},
     "data:\n  path: |\n    a\nseed: 1\n\ntraining:\n  epochs: 2\n",
     NULL},
};

static void test_missing_keys(void **state) {
  (void)state;
  RUN(missing_keys);
}

static void test_precision_and_amp(void **state) {
  (void)state;
  static const edit_case cases[] = {
      {"amp on to fp32",
       "training:\n  use_amp: true  # !\n",
       {{"training.precision", "fp32"}},
       "training:\n  use_amp: false  # !\n",
       NULL},
      {"amp off to bf16",
       "training:\n  use_amp: false\n  epochs: 1\n",
       {{"precision", "bf16"}},
       "training:\n  use_amp: true\n  epochs: 1\n  precision: bf16\n",
       NULL},
      {"the gpu section's",
       "gpu:\n  mixed_precision: true\n",
       {{"precision", "fp32"}},
       "gpu:\n  mixed_precision: false\n",
       NULL},
      {"both",
       "precision: bf16\nuse_amp: true\n",
       {{"training.precision", "fp32"}},
       "precision: fp32\nuse_amp: false\n",
       NULL},
      {"both, amp edited",
       "precision: bf16\nuse_amp: true\n",
       {{"use_amp", "false"}},
       "precision: fp32\nuse_amp: false\n",
       NULL},
      {"precision, amp edited",
       "precision: fp32\n",
       {{"use_amp", "true"}},
       "precision: auto\n",
       NULL},
      {"precision, amp already",
       "precision: bf16\n",
       {{"use_amp", "true"}},
       "precision: bf16\n",
       NULL},
      {"neither",
       "training:\n  epochs: 1\n",
       {{"precision", "bf16"}},
       "training:\n  epochs: 1\n  precision: bf16\n",
       NULL},
  };
  RUN(cases);
}

// A comment that names the old value is removed with it; its other text stays.
static void test_stale_comments(void **state) {
  (void)state;
  static const edit_case cases[] = {
      {"the old value",
       "data:\n  batch_size: 64  # 64 fits 8 GB\n  num_workers: 2  # two are enough\n",
       {{"data.batch_size", "128"}, {"data.num_workers", "4"}},
       "data:\n  batch_size: 128\n  num_workers: 4  # two are enough\n",
       NULL},
      {"at the end of a sentence, of a file",
       "batch_size: 64 # never more than 64.",
       {{"batch_size", "8"}},
       "batch_size: 8",
       NULL},
      {"a part of a number or a word is another one",
       "batch_size: 64  # 640 MB, x64\n",
       {{"batch_size", "8"}},
       "batch_size: 8  # 640 MB, x64\n",
       NULL},
      {"written another way",
       "lr: 0.0003\t# 3e-4, as in the paper\r\n",
       {{"lr", "0.0006"}},
       "lr: 0.0006\r\n",
       NULL},
      {"the value stays: so does what is said of it",
       "batch_size: 64  # 64 fits\n",
       {{"batch_size", "64"}},
       "batch_size: 64  # 64 fits\n",
       NULL},
      {"an argument",
       "optimizer: sgd(lr=0.1, momentum=0.9)  # lr 0.1\nseed: 1  # 0.1\n",
       {{"lr", "0.2"}},
       "optimizer: sgd(lr=0.2, momentum=0.9)\nseed: 1  # 0.1\n",
       NULL},
      {"of another argument",
       "optimizer: \"sgd(lr=0.1, momentum=0.9)\"  # momentum 0.9\n",
       {{"lr", "0.2"}},
       "optimizer: \"sgd(lr=0.2, momentum=0.9)\"  # momentum 0.9\n",
       NULL},
      {"behind a flow map, beside a # in quotes",
       "data: {batch_size: 64, path: 'a # 64'}  # 64 each\n",
       {{"data.batch_size", "8"}},
       "data: {batch_size: 8, path: 'a # 64'}\n",
       NULL},
      {"a list",
       "batch_size:  # 8, then 16\n  - 8\n  - 16\nseed: 1\n",
       {{"batch_size", "32"}},
       "batch_size: 32\nseed: 1\n",
       NULL},
  };
  RUN(cases);
}

static void test_components(void **state) {
  (void)state;
  static const edit_case cases[] = {
      {"an argument that is a key too",
       "optimizer: sgd(lr=0.1, momentum=0.9)  # o\n",
       {{"training.learning_rate", "0.2"}},
       "optimizer: sgd(lr=0.2, momentum=0.9)  # o\n",
       NULL},
      {"of a slot",
       "dataloader:\n  train: basic(split=train, batch_size=64, shuffle=true)\n",
       {{"data.batch_size", "8"}},
       "dataloader:\n  train: basic(split=train, batch_size=8, shuffle=true)\n",
       NULL},
      {"as a map",
       "dataloader:\n  train:\n    _type: basic\n    batch_size: 64 # b\n",
       {{"data.batch_size", "8"}},
       "dataloader:\n  train:\n    _type: basic\n    batch_size: 8 # b\n",
       NULL},
      {"said twice",
       "optimizer: sgd(lr=0.1)\ntraining: {lr: 0.1}\n",
       {{"lr", "0.2"}},
       "optimizer: sgd(lr=0.2)\ntraining: {lr: 0.2}\n",
       NULL},
      {"in quotes and on lines",
       "optimizer: \"sgd(\n  lr = 0.1,\n  momentum=0.9)\"\n",
       {{"lr", "0.2"}},
       "optimizer: \"sgd(\n  lr = 0.2,\n  momentum=0.9)\"\n",
       NULL},
      {"a path into an expression",
       "model: mlp(depth=3, hidden=64)\n",
       {{"model.hidden", "8"}},
       "model: mlp(depth=3, hidden=8)\n",
       NULL},
      {"an argument that is missing",
       "model: mlp(depth=3)\n",
       {{"model.hidden", "8"}},
       "model: mlp(depth=3)\nmodel.hidden: 8\n",
       NULL},
      {"an argument that is missing in a map",
       "model:\n  _type: mlp\n  depth: 3\nseed: 1\n",
       {{"model.hidden", "8"}},
       "model:\n  _type: mlp\n  depth: 3\n  hidden: 8\nseed: 1\n",
       NULL},
      {"the whole",
       "model:\n  _type: mlp\n  depth: 3\nseed: 1\n",
       {{"model", "mlp(depth=2, hidden=8)"}},
       "model: mlp(depth=2, hidden=8)\nseed: 1\n",
       NULL},
  };
  RUN(cases);
}

static void test_anchors(void **state) {
  (void)state;
  static const edit_case cases[] = {
      {"an alias is written out",
       "x-b: &b 64\nbatch_size: *b # b\neval_batch_size: *b\n",
       {{"batch_size", "8"}},
       "x-b: &b 64\nbatch_size: 8 # b\neval_batch_size: *b\n",
       NULL},
      {"an anchor nobody uses stays",
       "batch_size: &b 64\n",
       {{"batch_size", "8"}},
       "batch_size: &b 8\n",
       NULL},
      {"an anchor that others use",
       "seed: 1\nbatch_size: &b 64\neval_batch_size: *b\n",
       {{"batch_size", "8"}},
       NULL,
       "edit.yaml:2:1: 'batch_size' cannot be edited here: it belongs to the anchor &b, which line "
       "3 uses too, so 'data.eval_batch_size' would change"},
      {"a merge key is overruled",
       "x-base: &base {batch_size: 64, num_workers: 2}\ndata:\n  <<: *base\n  path: x\n",
       {{"batch_size", "8"}},
       "x-base: &base {batch_size: 64, num_workers: 2}\ndata:\n  <<: *base\n  path: x\n"
       "  batch_size: 8\n",
       NULL},
      {"a section that is an alias",
       "x-d: &d\n  path: x\ndata: *d\n",
       {{"batch_size", "8"}},
       NULL,
       "edit.yaml:3:1: 'data.batch_size' cannot be added: 'data' is the alias *d"},
      {"a placeholder follows",
       "batch_size: 64\nname: \"b{{batch_size}}\"\n",
       {{"batch_size", "8"}},
       "batch_size: 8\nname: \"b{{batch_size}}\"\n",
       NULL},
  };
  RUN(cases);
}

static void test_refused(void **state) {
  (void)state;
  static const edit_case cases[] = {
      {"unknown", "seed: 1\n", {{"data.bach_size", "1"}}, NULL, "did you mean 'data.batch_size'"},
      {"special", "seed: 1\n", {{"include", "x"}}, NULL, "include"},
      {"no value", "seed: 1\n", {{"seed", ""}}, NULL, "no value"},
      {"bad value", "seed: 1\n", {{"seed", "many"}}, NULL, "expects int"},
      {"out of bounds", "seed: 1\n", {{"batch_size", "0"}}, NULL, "between 1"},
      {"two documents",
       "seed: 1\n---\nseed: 2\n",
       {{"seed", "3"}},
       NULL,
       "edit.yaml:2:1: a second document"},
      {"given twice", "seed: 1\nseed: 2\n", {{"seed", "3"}}, NULL, "given twice"},
      {"not YAML", "seed: [1\n", {{"seed", "3"}}, NULL, "edit.yaml:"},
      {"a list", "- 1\n", {{"seed", "3"}}, NULL, "edit.yaml:1:1"},
  };
  RUN(cases);
  brim_config_edit edit = {"seed", "1"};
  assert_status(brim_config_edit_file("nowhere.yaml", &edit, 1, NULL), BRIM_ENOENT);
}

static void test_includes(void **state) {
  (void)state;
  assert_int_equal(mkdir("below", 0755) == 0 || access("below", F_OK) == 0, 1);
  put("below/base.yaml", "data:\n  batch_size: 64\noptimizer: sgd(lr=0.1)\nprecision: bf16\n");
  put("below/main.yaml", "include: base.yaml  # above\nseed: 1\n");
  const brim_config_edit edits[] = {
      {"batch_size", "8"}, {"lr", "0.2"}, {"precision", "fp32"}, {"seed", "2"}};
  assert_ok(brim_config_edit_file("below/main.yaml", edits, 4, NULL));
  char *text = slurp("below/main.yaml");
  assert_string_equal(text,
                      "include: base.yaml  # above\nseed: 2\n\ndata:\n  batch_size: 8\n\n"
                      "training:\n  learning_rate: 0.2\n  precision: fp32\n");
  brim_free(text);
  text = slurp("below/base.yaml");
  assert_string_equal(text, "data:\n  batch_size: 64\noptimizer: sgd(lr=0.1)\nprecision: bf16\n");
  brim_free(text);
}

static void test_file(void **state) {
  (void)state;
  struct stat st;
  brim_config_edit edit = {"seed", "2"};
  put("real.yaml", "seed: 1\n");
  assert_int_equal(chmod("real.yaml", 0640), 0);
  unlink("link.yaml");
  assert_int_equal(symlink("real.yaml", "link.yaml"), 0);
  brim_config_edit_result result;
  assert_ok(brim_config_edit_file("link.yaml", &edit, 1, &result));
  assert_true(result.changed);
  assert_string_equal(result.before, "seed: 1\n");
  assert_string_equal(result.after, "seed: 2\n");
  brim_config_edit_result_deinit(&result);
  assert_int_equal(lstat("link.yaml", &st), 0);
  assert_true(S_ISLNK(st.st_mode));
  assert_int_equal(stat("real.yaml", &st), 0);
  assert_int_equal(st.st_mode & 07777, 0640);
  // no change: even the file's time stays
  ino_t before = st.st_ino;
  assert_ok(brim_config_edit_file("link.yaml", &edit, 1, NULL));
  assert_int_equal(stat("real.yaml", &st), 0);
  assert_true(st.st_ino == before);
  edit.value = "3";
  assert_ok(brim_config_edit_preview("real.yaml", &edit, 1, &result));
  brim_config_edit_result_deinit(&result);
  char *text = slurp("real.yaml");
  assert_string_equal(text, "seed: 2\n");
  brim_free(text);
  if (geteuid() != 0) {
    assert_int_equal(chmod("real.yaml", 0440), 0);
    assert_true(brim_config_edit_file("real.yaml", &edit, 1, NULL) != BRIM_OK);
    assert_non_null(strstr(brim_status_detail(), "cannot edit real.yaml"));
    assert_int_equal(chmod("real.yaml", 0640), 0);
  }
}

int main(void) {
  test_filter();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_values_in_place), cmocka_unit_test(test_axes),
      cmocka_unit_test(test_missing_keys),    cmocka_unit_test(test_precision_and_amp),
      cmocka_unit_test(test_stale_comments),  cmocka_unit_test(test_components),
      cmocka_unit_test(test_anchors),         cmocka_unit_test(test_refused),
      cmocka_unit_test(test_includes),        cmocka_unit_test(test_file),

  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
