// Option tables: every form of an option on a command line, refusals, and help.
#include "base/base_option.h"

#include "base/base_alloc.h"
#include "base/base_fs.h"
#include "base/base_msg.h"
#include "base/base_status.h"
#include "test.h"

static const char *const size_aliases[] = {"batch", "bs", NULL};
static const char *const precisions[] = {"fp32", "bf16", "fp16", NULL};
static const brim_option knobs[] = {
    {.name = "batch-sizes",
     .short_name = 'b',
     .kind = BRIM_OPTION_INT,
     .multiple = true,
     .help = "sizes of a batch to try, each with every other setting of the sweep",
     .aliases = size_aliases,
     .default_text = "128",
     .group = "Sweep"},
    {.name = "num-workers",
     .kind = BRIM_OPTION_INT,
     .multiple = true,
     .help = "loader threads",
     .group = "Sweep"},
    {.name = "precision",
     .kind = BRIM_OPTION_ENUM,
     .choices = precisions,
     .help = "type of numbers"},
    {.name = NULL},
};
static const brim_option general[] = {
    {.name = "lr", .kind = BRIM_OPTION_FLOAT, .help = "learning rate"},
    {.name = "memory",
     .short_name = 'm',
     .kind = BRIM_OPTION_BYTES,
     .help = "device memory to use"},
    {.name = "output", .short_name = 'o', .kind = BRIM_OPTION_STRING, .metavar = "FILE"},
    {.name = "amp", .kind = BRIM_OPTION_FLAG, .negatable = true, .help = "mixed precision"},
    {.name = "verbose", .short_name = 'v', .kind = BRIM_OPTION_FLAG, .help = "say more"},
    {.name = NULL},
};
static const brim_option *const tables[] = {knobs, general, NULL};

#define PARSE(parse, ...)                                                                       \
  brim_option_parse_args(tables, (int)(sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *)), \
                         (const char *const[]){__VA_ARGS__}, parse)

static void values_are(const brim_option_value *v, size_t count, const char *const *expected) {
  assert_non_null(v);
  assert_int_equal(v->count, count);
  for (size_t i = 0; i < count; i++) assert_string_equal(v->values[i], expected[i]);
}

static void several_values(void **state) {
  (void)state;
  brim_option_parse p;
  assert_ok(PARSE(&p, "run.yaml", "--batch-sizes", "128", "256", "--num-workers", "4", "8"));
  assert_int_equal(p.count, 2);
  values_are(brim_option_find(&p, "batch-sizes"), 2, (const char *const[]){"128", "256"});
  values_are(brim_option_find(&p, "num-workers"), 2, (const char *const[]){"4", "8"});
  assert_int_equal(p.positional_count, 1);
  assert_string_equal(p.positional[0], "run.yaml");
  assert_null(p.rest);
  brim_option_parse_deinit(&p);
}

static void spellings(void **state) {
  (void)state;
  brim_option_parse p;
  assert_ok(PARSE(&p, "--bs=64", "--batch_sizes", "32", "-b16", "-b", "8", "-b=4"));
  assert_int_equal(p.count, 5);
  const char *const expected[] = {"64", "32", "16", "8", "4"};
  for (size_t i = 0; i < 5; i++) {
    assert_ptr_equal(p.items[i].option, &knobs[0]);
    values_are(&p.items[i], 1, &expected[i]);
  }
  assert_int_equal(brim_option_int(&p, "batch-sizes", 0), 4);  // the last one counts
  brim_option_parse_deinit(&p);
}

static void typed_reads(void **state) {
  (void)state;
  brim_option_parse p;
  assert_ok(PARSE(&p, "--lr", "-1e-4", "-m", "12GiB", "--output=", "--precision", "bf16"));
  assert_true(brim_option_float(&p, "lr", 0) == -1e-4);
  assert_int_equal(brim_option_int(&p, "memory", 0), 12884901888);
  assert_string_equal(brim_option_string(&p, "output", "x"), "");
  assert_string_equal(brim_option_string(&p, "precision", "x"), "bf16");
  assert_int_equal(brim_option_int(&p, "num-workers", 7), 7);
  assert_true(brim_option_float(&p, "none", 0.5) == 0.5);
  assert_string_equal(brim_option_string(&p, "none", "fallback"), "fallback");
  assert_null(brim_option_find(&p, "none"));
  brim_option_parse_deinit(&p);
}

static void flags(void **state) {
  (void)state;
  brim_option_parse p;
  assert_ok(PARSE(&p, "--amp", "-v", "file"));
  assert_true(brim_option_flag(&p, "amp", false));
  assert_true(brim_option_flag(&p, "verbose", false));
  assert_int_equal(p.positional_count, 1);  // a flag takes no value
  brim_option_parse_deinit(&p);
  assert_ok(PARSE(&p, "--amp", "--no-amp"));
  assert_false(brim_option_flag(&p, "amp", true));
  assert_true(brim_option_flag(&p, "verbose", true));
  brim_option_parse_deinit(&p);
  assert_ok(PARSE(&p, "--amp=off"));
  assert_false(brim_option_flag(&p, "amp", true));
  brim_option_parse_deinit(&p);
}

static const char *const when[] = {"auto", "later", NULL};
static const brim_option loose[] = {
    {.name = "report",
     .short_name = 'r',
     .kind = BRIM_OPTION_STRING,
     .optional = true,
     .metavar = "FILE",
     .help = "write a report"},
    {.name = "limit", .kind = BRIM_OPTION_INT, .optional = true},
    {.name = "sizes", .kind = BRIM_OPTION_BYTES, .optional = true, .multiple = true},
    {.name = "type", .kind = BRIM_OPTION_ENUM, .optional = true, .choices = precisions},
    {.name = "resume", .negatable = true, .choices = when, .help = "continue"},
    {.name = NULL},
};
static const brim_option *const loose_tables[] = {loose, NULL};
#define LOOSE(parse, ...)                                                               \
  brim_option_parse_args(loose_tables,                                                  \
                         (int)(sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *)), \
                         (const char *const[]){__VA_ARGS__}, parse)

// Parses one option; compares its value and the number of positional words.
static void holds(const brim_option_parse *p, const char *name, const char *value, size_t others) {
  const brim_option_value *v = brim_option_find(p, name);
  assert_non_null(v);
  assert_true(v->flag);
  assert_int_equal(v->count, value ? 1 : 0);
  if (value) assert_string_equal(v->values[0], value);
  assert_string_equal(brim_option_string(p, name, "none"), value ? value : "none");
  assert_int_equal(p->positional_count, others);
}

static void optional_values(void **state) {
  (void)state;
  brim_option_parse p;
  static const struct {
    const char *words[3], *name, *value;
    size_t others;
  } cases[] = {
      {{"--report"}, "report", NULL, 0},
      {{"--report=a.html"}, "report", "a.html", 0},
      {{"--report="}, "report", "", 0},
      {{"--report", "a.html"}, "report", "a.html", 0},
      {{"--report", "a.html", "b"}, "report", "a.html", 1},
      {{"--report", "lr=0.1"}, "report", NULL, 1},  // lr=0.1 is an override
      {{"--report", "-"}, "report", NULL, 1},
      {{"--report", "--limit"}, "report", NULL, 0},
      {{"--report", "--"}, "report", NULL, 0},
      {{"-r", "a.html"}, "report", "a.html", 0},
      {{"-ra.html"}, "report", "a.html", 0},
      {{"-r"}, "report", NULL, 0},
      {{"--limit", "x.yaml"}, "limit", NULL, 1},
      {{"--limit", "-3"}, "limit", "-3", 0},
      {{"--type", "fp16"}, "type", "fp16", 0},
      {{"--type", "x.yaml"}, "type", NULL, 1},
      {{"--sizes", "x.yaml"}, "sizes", NULL, 1},
      {{"--sizes", "1GB", "x.yaml"}, "sizes", "1GB", 1},
      {{"--resume"}, "resume", NULL, 0},
      {{"--resume", "auto"}, "resume", "auto", 0},
      {{"--resume=later"}, "resume", "later", 0},
      {{"--resume", "x.yaml"}, "resume", NULL, 1},
      {{"--resume=yes"}, "resume", NULL, 0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    int count = 0;
    while (count < 3 && cases[i].words[count]) count++;
    assert_ok(brim_option_parse_args(loose_tables, count, cases[i].words, &p));
    holds(&p, cases[i].name, cases[i].value, cases[i].others);
    brim_option_parse_deinit(&p);
  }
  assert_ok(LOOSE(&p, "--sizes", "1GB", "2GB"));
  assert_int_equal(brim_option_find(&p, "sizes")->count, 2);
  brim_option_parse_deinit(&p);
  assert_ok(brim_fs_write("odd=name", "x", 1));  // a file of that name exists
  assert_ok(LOOSE(&p, "--report", "odd=name"));
  holds(&p, "report", "odd=name", 0);
  brim_option_parse_deinit(&p);
  assert_ok(LOOSE(&p, "--no-resume"));
  assert_false(brim_option_flag(&p, "resume", true));
  brim_option_parse_deinit(&p);
  assert_ok(LOOSE(&p, "--resume=off"));
  assert_false(brim_option_flag(&p, "resume", true));
  brim_option_parse_deinit(&p);
  assert_status(LOOSE(&p, "--resume=aut"), BRIM_EINVAL);
  assert_non_null(strstr(brim_status_detail(), "'aut' is not one of: auto, later; did you mean"));
  assert_status(LOOSE(&p, "--limit=x"), BRIM_EINVAL);
}

static void optional_values_in_help(void **state) {
  (void)state;
  brim_str text;
  brim_str_init(&text);
  brim_option_help(loose_tables, 80, &text);
  assert_non_null(strstr(text.data, "  -r, --report [FILE]         write a report\n"));
  assert_non_null(strstr(text.data, "--limit [N]\n"));
  assert_non_null(strstr(text.data, "--sizes [SIZE...]\n"));
  assert_non_null(strstr(text.data, "--[no-]resume [auto|later]"));
  brim_str_deinit(&text);
}

static void negative_numbers_are_values(void **state) {
  (void)state;
  brim_option_parse p;
  assert_ok(PARSE(&p, "--num-workers", "-1", "-2", "-v", "-3", "-"));
  values_are(brim_option_find(&p, "num-workers"), 2, (const char *const[]){"-1", "-2"});
  assert_int_equal(p.positional_count, 2);
  assert_string_equal(p.positional[0], "-3");
  assert_string_equal(p.positional[1], "-");
  brim_option_parse_deinit(&p);
  assert_ok(PARSE(&p, "--lr", "-.inf"));
  brim_option_parse_deinit(&p);
}

static void rest_after_dashes(void **state) {
  (void)state;
  brim_option_parse p;
  // `rest` points into argv itself, so argv must outlive the parse.
  const char *const argv[] = {"--batch-sizes", "1", "--", "python", "--bs", "{batch_size}"};
  assert_ok(brim_option_parse_args(tables, 6, argv, &p));
  values_are(brim_option_find(&p, "batch-sizes"), 1, (const char *const[]){"1"});
  assert_int_equal(p.rest_count, 3);
  assert_string_equal(p.rest[0], "python");
  assert_string_equal(p.rest[2], "{batch_size}");
  brim_option_parse_deinit(&p);
  assert_ok(PARSE(&p, "a", "--"));
  assert_non_null(p.rest);
  assert_int_equal(p.rest_count, 0);
  brim_option_parse_deinit(&p);
  assert_ok(brim_option_parse_args(tables, 0, NULL, &p));
  assert_int_equal(p.count, 0);
  brim_option_parse_deinit(&p);
}

#define REFUSED(text, ...)                                                                 \
  do {                                                                                     \
    brim_option_parse p_;                                                                  \
    assert_status(PARSE(&p_, __VA_ARGS__), BRIM_EINVAL);                                   \
    assert_null(p_.items);                                                                 \
    if (!strstr(brim_status_detail(), text)) fail_msg("detail: %s", brim_status_detail()); \
  } while (0)

static void refusals(void **state) {
  (void)state;
  REFUSED("unknown option --batch-size; did you mean --batch-sizes?", "--batch-size", "4");
  REFUSED("did you mean --num-workers?", "--num-wrokers=4");
  REFUSED("unknown option --zebra; --help lists them all", "--zebra");
  REFUSED("unknown option -z", "-z");
  REFUSED("did you mean --amp?", "-amp");
  REFUSED("--lr needs a value", "--lr");
  REFUSED("--lr needs a value, but --amp follows", "--lr", "--amp");
  REFUSED("--batch-sizes needs a value", "--batch-sizes", "--", "4");
  REFUSED("--batch-sizes: '12x' is not a whole number", "--bs", "4", "12x");
  REFUSED("--lr: 'fast' is not a number", "--lr", "fast");
  REFUSED("--memory: '12 apples' is not a size", "-m", "12 apples");
  REFUSED("'bf61' is not one of: fp32, bf16, fp16; did you mean 'bf16'?", "--precision", "bf61");
  REFUSED("'int' is not one of: fp32, bf16, fp16", "--precision", "int");
  REFUSED("--amp takes no value, but 'maybe' was given", "--amp=maybe");
  REFUSED("--amp takes no value", "--no-amp=true");
  REFUSED("unknown option --no-verbose", "--no-verbose");
  REFUSED("unknown option --no-lr", "--no-lr");
}

static void help_text(void **state) {
  (void)state;
  brim_str s;
  brim_str_init(&s);
  brim_option_help(tables, 70, &s);
  assert_ok(brim_str_status(&s));
  assert_string_equal(s.data,
                      "Sweep:\n"
                      "  -b, --batch-sizes N...      sizes of a batch to try, each with every\n"
                      "                              other setting of the sweep (default:\n"
                      "                              128) (also: --batch, --bs)\n"
                      "      --num-workers N...      loader threads\n"
                      "\n"
                      "Options:\n"
                      "      --precision CHOICE      type of numbers (one of: fp32, bf16,\n"
                      "                              fp16)\n"
                      "      --lr X                  learning rate\n"
                      "  -m, --memory SIZE           device memory to use\n"
                      "  -o, --output FILE\n"
                      "      --[no-]amp              mixed precision\n"
                      "  -v, --verbose               say more\n");
  for (int width = 20; width <= 100; width += 20) {
    brim_str_clear(&s);
    brim_option_help(tables, width, &s);
    char *save, *line = strtok_r(s.data, "\n", &save);
    for (; line; line = strtok_r(NULL, "\n", &save)) {
      assert_true(brim_utf8_width(line) <= (width < 40 ? 40 : width));
    }
  }
  brim_str_deinit(&s);
}

static void help_is_translated(void **state) {
  (void)state;
  const brim_msg_pair korean[] = {
      {"learning rate", "학습률을 정합니다 이 값은 한 걸음의 크기입니다"}};
  const brim_option rows[] = {{.name = "lr", .kind = BRIM_OPTION_FLOAT, .help = "learning rate"},
                              {.name = NULL}};
  const brim_option *const one[] = {rows, NULL};
  brim_str s;
  brim_str_init(&s);
  brim_msg_set_catalogue(korean, 1);
  brim_option_help(one, 60, &s);
  brim_msg_set_catalogue(NULL, 0);
  assert_string_equal(s.data,
                      "Options:\n"
                      "      --lr X                  학습률을 정합니다 이 값은 한\n"
                      "                              걸음의 크기입니다\n");
  brim_str_deinit(&s);
}

static void out_of_memory(void **state) {
  (void)state;
  brim_option_parse p;
  brim_alloc_fail_nth(1, 0);
  assert_status(PARSE(&p, "--amp"), BRIM_ENOMEM);
  brim_option_parse_deinit(&p);
  for (uint64_t n = 1;; n++) {
    brim_str s;
    brim_str_init(&s);
    uint64_t failures = brim_alloc_failures();
    brim_alloc_fail_nth(n, 0);
    brim_option_help(tables, 80, &s);
    brim_alloc_fail_nth(0, 0);
    bool failed = brim_alloc_failures() != failures;
    brim_status status = brim_str_status(&s);
    brim_str_deinit(&s);
    assert_status(status, failed ? BRIM_ENOMEM : BRIM_OK);
    if (!failed) break;
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(several_values),
      cmocka_unit_test(spellings),
      cmocka_unit_test(typed_reads),
      cmocka_unit_test(flags),
      cmocka_unit_test(optional_values),
      cmocka_unit_test(optional_values_in_help),
      cmocka_unit_test(negative_numbers_are_values),
      cmocka_unit_test(rest_after_dashes),
      cmocka_unit_test(refusals),
      cmocka_unit_test(help_text),
      cmocka_unit_test(help_is_translated),
      cmocka_unit_test(out_of_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
