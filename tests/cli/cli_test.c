// The helpers of cli_test.h.
#include "cli_test.h"

#include "process_run.h"

static char *slurp(const char *path) {
  char *text = NULL;
  size_t size;
  assert_ok(brim_fs_read(path, 0, &text, &size));
  return text;
}

int64_t shell_limit_ms = 180000;

shell_result shell(const char *fmt, ...) {
  char command[4096];
  va_list args;
  va_start(args, fmt);
  int n = vsnprintf(command, sizeof command, fmt, args);
  va_end(args);
  assert_true(n > 0 && (size_t)n < sizeof command);
  char script[8192];
  // A function, not an alias: sh -c does not expand aliases. Colour and width are the test's own.
  // The leak check at the exit of a sanitized program takes seconds; test_cli_alloc counts blocks.
  snprintf(script, sizeof script,
           "unset NO_COLOR CLICOLOR_FORCE COLUMNS\nexport LC_ALL=C.UTF-8 TERM=xterm "
           "ASAN_OPTIONS=detect_leaks=0\n"
           "brim() { '%s' \"$@\"; }\n{ %s\n} >stdout.txt 2>stderr.txt",
           BRIM_BINARY, command);
  const char *const argv[] = {"sh", "-c", script, NULL};
  process_result result = process_run(argv, NULL, shell_limit_ms);
  if (result.signal) fail_msg("%s: killed (%d)", command, result.signal);
  shell_result r = {result.exit_code, slurp("stdout.txt"), slurp("stderr.txt")};
  brim_free(result.output);
  return r;
}

void shell_free(shell_result *result) {
  brim_free(result->out);
  brim_free(result->err);
}

void expect(int code, const char *part, const char *command) {
  shell_result r = shell("%s", command);
  bool found = !part || strstr(r.out, part) || strstr(r.err, part);
  if (r.code != code || !found) {
    fail_msg("%s\nexit %d, expected %d, with '%s'\nstdout:\n%s\nstderr:\n%s", command, r.code, code,
             part ? part : "", r.out, r.err);
  }
  shell_free(&r);
}

void write_file(const char *path, const char *text) {
  assert_ok(brim_fs_write(path, text, strlen(text)));
}

bool has_file(const char *path) { return brim_fs_exists(path); }

size_t json_lines(const char *text) {
  size_t count = 0;
  while (*text) {
    size_t n = strcspn(text, "\n");
    json_t *value = NULL;
    if (brim_json_parse(text, n, "stdout", &value)) fail_msg("not JSON: %.*s", (int)n, text);
    json_decref(value);
    count++;
    text += n + (text[n] == '\n');
  }
  return count;
}

void has(const char *text, const char *words) {
  if (!strstr(text, words)) fail_msg("no '%s' in\n%s", words, text);
}

void has_not(const char *text, const char *words) {
  if (strstr(text, words)) fail_msg("'%s' in\n%s", words, text);
}
