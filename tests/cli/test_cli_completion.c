// Completion scripts: bash sources its own and is asked; zsh parses its own if it is here, and its structure is checked
// everywhere. Everything they offer comes from the tables.
#include "cli/cli.h"
#include "cli_test.h"
#include "config/config.h"

// Runs bash's completion of a line. stdout.txt of the result has one word per line.
static shell_result ask(const char *line) {
  return shell(
      "brim completion bash > brim.bash && cat > ask.bash <<'END'\n"
      "source ./brim.bash\n"
      "COMP_LINE=$1 COMP_POINT=${#1}\n"
      "_brim\n"
      "[ ${#COMPREPLY[@]} -gt 0 ] && printf '%%s\\n' \"${COMPREPLY[@]}\"\n"
      "exit 0\n"
      "END\n"
      "bash ask.bash '%s'",
      line);
}

static bool has_line(const char *text, const char *line) {
  size_t n = strlen(line);
  for (const char *p = text; (p = strstr(p, line)); p += n) {
    if ((p == text || p[-1] == '\n') && (p[n] == '\n' || p[n] == '\0')) return true;
  }
  return false;
}

static void offers(const char *line, const char *word, bool expected) {
  shell_result r = ask(line);
  if (r.code != 0 || r.err[0] || has_line(r.out, word) != expected) {
    fail_msg("'%s': %s '%s'\n%s%s", line, expected ? "no" : "has", word, r.out, r.err);
  }
  shell_free(&r);
}

static bool skip_without_bash(void) {
  shell_result r = shell("command -v bash");
  bool none = r.code != 0;
  shell_free(&r);
  return none;
}

static void test_bash_commands(void **state) {
  (void)state;
  if (skip_without_bash()) BRIM_SKIP("bash is not installed");
  for (const brim_cli_command *const *c = brim_cli_commands(); *c; c++) {
    offers("brim ", (*c)->name, true);
  }
  offers("brim tr", "train", true);
  offers("brim tr", "bench", false);
  offers("brim --quiet tr", "train", true);
  offers("brim --color never tr", "train", true);
  offers("brim data ", "verify", true);
  offers("brim data inf", "info", true);
  offers("brim data inf", "make", false);
  offers("brim help exit", "exit-codes", true);
  offers("brim help tra", "train", true);
  offers("brim completion ", "zsh", true);
}

// Every option of every command, and the choices of options that have some.
static void test_bash_options(void **state) {
  (void)state;
  if (skip_without_bash()) BRIM_SKIP("bash is not installed");
  for (const brim_cli_command *const *c = brim_cli_commands(); *c; c++) {
    char line[128];
    snprintf(line, sizeof line, "brim %s --", (*c)->name);
    shell_result r = ask(line);
    for (const brim_option *o = (*c)->options; o->name; o++) {
      char word[80];
      snprintf(word, sizeof word, "--%s", o->name);
      if (!has_line(r.out, word)) fail_msg("%s: no %s in\n%s", line, word, r.out);
    }
    assert_true(has_line(r.out, "--lang"));
    shell_free(&r);
  }
  offers("brim train --precision ", "bf16", true);
  offers("brim train --precision=b", "bf16", true);
  offers("brim train --precision=b", "fp16", false);
  offers("brim train --colour al", "always", true);
  offers("brim --lang ", "ko", true);
  offers("brim train --device c", "cuda", true);
  offers("brim bench --precisions fp32 b", "bf16", true);
  offers("brim train --epochs ", "train", false);
}

static void test_bash_words(void **state) {
  (void)state;
  if (skip_without_bash()) BRIM_SKIP("bash is not installed");
  shell_result r = shell("mkdir -p comp/sub && touch comp/a.yaml comp/b.txt");
  shell_free(&r);
  offers("brim train comp/", "comp/a.yaml", true);
  offers("brim train comp/", "comp/sub", true);
  offers("brim train comp/", "comp/b.txt", false);
  offers("brim train --data-path comp/", "comp/b.txt", true);
  offers("brim train --output-dir comp/", "comp/sub", true);
  offers("brim train --output-dir comp/", "comp/a.yaml", false);
  offers("brim train data.bat", "data.batch_size=", true);
  offers("brim train batch", "batch_size=", true);
  offers("brim train lr", "lr=", true);
  offers("brim train contr", "contrastive", true);
  offers("brim train a", "ars", true);
  offers("brim bench contr", "contrastive", true);
  offers("brim config show contr", "contrastive", false);
  offers("brim compare comp --by pre", "precision", true);
  offers("brim train --resume ", "auto", true);
  offers("brim train --resume auto ", "auto", false);
  offers("brim bench --resume=a", "auto", true);
  offers("brim bench --apply comp/", "comp/a.yaml", true);
  offers("brim bench --report=comp/", "comp/b.txt", true);
  offers("brim train model=res", "resnet18", true);
  offers("brim train model=res", "mlp", false);
  offers("brim train data.cache=", "ram", true);
  offers("brim train comp/a.yaml training.com", "training.compile=", true);
  offers("brim config explain resn", "resnet18", true);
  offers("brim config explain data.bat", "data.batch_size", true);
  offers("brim config explain a100", "a100-80g", true);
}

static void test_zsh(void **state) {
  (void)state;
  shell_result r = shell("brim completion zsh > _brim && cat _brim");
  assert_int_equal(r.code, 0);
  assert_true(brim_str_starts(r.out, "#compdef brim\n"));
  for (const brim_cli_command *const *c = brim_cli_commands(); *c; c++) {
    char text[128];
    snprintf(text, sizeof text, "    '%s:", (*c)->name);
    assert_non_null(strstr(r.out, text));
    snprintf(text, sizeof text, "  %s)\n", (*c)->name);
    assert_non_null(strstr(r.out, text));
    for (const brim_option *o = (*c)->options; o->name; o++) {
      snprintf(text, sizeof text, "--%s%s[", o->name, o->kind == BRIM_OPTION_FLAG ? "" : "=");
      if (!strstr(r.out, text)) fail_msg("zsh: no %s", text);
    }
  }
  said_lines(&r, "--resume");
  assert_non_null(strstr(r.out, " batch_size "));
  assert_non_null(strstr(r.out, "contrastive mappo supervised"));
  // Quotes and brackets are balanced: outside of '\'' every line has an even number of quotes.
  for (char *line = strtok(r.out, "\n"); line; line = strtok(NULL, "\n")) {
    size_t quotes = 0;
    for (const char *p = line; *p && line[0] != '#'; p++) {
      if (strncmp(p, "'\\''", 4) == 0) {
        p += 3;
      } else {
        quotes += *p == '\'';
      }
    }
    if (quotes % 2) fail_msg("zsh: a quote stays open in %s", line);
  }
  shell_free(&r);
  expect(0, NULL, "! command -v zsh >/dev/null || zsh -n _brim");
}

static void test_usage(void **state) {
  (void)state;
  says(2, "brim completion");
  says(2, "brim completion fish");
  // A script printed with Korean messages works too.
  expect(0, "complete -F _brim brim", "brim --lang ko completion bash");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_bash_commands), cmocka_unit_test(test_bash_options),
      cmocka_unit_test(test_bash_words),    cmocka_unit_test(test_zsh),
      cmocka_unit_test(test_usage),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
