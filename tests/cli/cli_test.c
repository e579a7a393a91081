// The helpers of cli_test.h.
#include "cli_test.h"

#include <ctype.h>
#include <fcntl.h>
#include <unistd.h>

#include "process_run.h"

static char *slurp(const char *path) {
  char *text = NULL;
  size_t size;
  assert_ok(brim_fs_read(path, 0, &text, &size));
  return text;
}

// Programs that a test starts without `shell` use English too.
__attribute__((constructor)) static void speak_english(void) { setenv("LC_ALL", "C.UTF-8", 1); }

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
  shell_result r = {result.exit_code, slurp("stdout.txt"), slurp("stderr.txt"), NULL};
  r.command = brim_strdup(command);
  assert_non_null(r.command);
  brim_free(result.output);
  return r;
}

void shell_free(shell_result *result) {
  brim_free(result->out);
  brim_free(result->err);
  brim_free(result->command);
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

//---------------------------------- kept words ----------------------------------

// Replaces every `from` that is not part of a longer name or number.
static void replace(brim_str *text, const char *from, const char *to) {
  brim_str out;
  brim_str_init(&out);
  const size_t n = strlen(from);
  for (const char *c = text->data; *c;) {
    const bool inside = c > text->data && (isalnum((unsigned char)c[-1]) || c[-1] == '.');
    if (!inside && strncmp(c, from, n) == 0 && !isalnum((unsigned char)c[n])) {
      brim_str_append(&out, to);
      c += n;
    } else {
      brim_str_append_char(&out, *c++);
    }
  }
  brim_str_deinit(text);
  *text = out;
}

// Finds a measured time such as `1.2 s` or `2 min 05 s`, a size such as `1.5 KiB`, or the number of a rate such as `1.2
// M samples/s` at `c`. Returns its replacement and its length; NULL if there is none.
static const char *measured(const char *c, size_t *length) {
  static const char *const units[] = {"ns", "us", "ms", "s", "min", "h", "MB/s", "GB/s"};
  size_t n = strspn(c, "0123456789.,");
  if (c[n] == ' ' && c[n + 1] && strchr("kMG", c[n + 1]) && c[n + 2] == ' ') n += 2;
  const char *unit = c + n + (c[n] == ' ');
  for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
    const char *end = unit + strlen(units[i]);
    if (strncmp(unit, units[i], strlen(units[i])) != 0 || isalnum((unsigned char)*end) ||
        *end == '/')
      continue;
    *length = (size_t)(end - c);
    size_t next = 0;
    const char *then =
        *end == ' ' && isdigit((unsigned char)end[1]) ? measured(end + 1, &next) : NULL;
    if (then && strcmp(then, "TIME") == 0) *length += 1 + next;
    return "TIME";
  }
  if (*unit && strchr("KMGT", *unit) && strncmp(unit + 1, "iB", 2) == 0) {
    *length = (size_t)(unit + 3 - c);
    return "#";
  }
  // up to three words per second; a unit of one letter is no rate (m/s is a speed)
  for (int word = 0; word < 3 && *unit; word++) {
    size_t letters = 0;
    while (isalpha((unsigned char)unit[letters]) || unit[letters] == '-') letters++;
    if (letters > 1 && strncmp(unit + letters, "/s", 2) == 0 &&
        !isalnum((unsigned char)unit[letters + 2])) {
      *length = n;
      return "#";
    }
    if (!letters || unit[letters] != ' ') break;
    unit += letters + 1;
  }
  return NULL;
}

// The same for a share, a number of bytes, and a number with a decimal point.
static const char *computed(const char *c, size_t *length) {
  size_t n = strspn(c, "0123456789.,");
  const char *unit = c + n + (c[n] == ' ');
  *length = (size_t)(unit + 1 - c);
  if (*unit == '%' || (*unit == 'B' && !isalnum((unsigned char)unit[1]))) return "#";
  while (n && !isdigit((unsigned char)c[n - 1])) n--;
  const char *point = memchr(c, '.', n);
  if (!point || memchr(point + 1, '.', (size_t)(c + n - point - 1))) return NULL;
  const bool power = c[n] == 'e' && (c[n + 1] == '-' || c[n + 1] == '+');
  *length = n + (power ? 2 + strspn(c + n + 2, "0123456789") : 0);
  return "#";
}

// One line without values that differ between machines: paths, the version, addresses, times, sizes; in rows also
// numbers with a decimal point.
static void append_line(brim_str *to, const char *text, size_t n, bool numbers, bool rows) {
  char here[4096], build[4096], source[4096];
  assert_non_null(getcwd(here, sizeof here));
  if (!realpath(BRIM_BUILD_DIR, build)) snprintf(build, sizeof build, "%s", BRIM_BUILD_DIR);
  if (!realpath(BRIM_SOURCE_DIR, source)) snprintf(source, sizeof source, "%s", BRIM_SOURCE_DIR);
  brim_str line;
  brim_str_init(&line);
  brim_str_append_n(&line, text, n);
  replace(&line, here, "HERE");
  replace(&line, build, "BUILD");
  replace(&line, source, "SOURCE");
  replace(&line, BRIM_VERSION, "VERSION");
  const char *postgres = getenv("BRIM_TEST_POSTGRES");
  if (postgres) replace(&line, postgres, "POSTGRES");
  for (const char *c = line.data; *c;) {
    const bool starts = isdigit((unsigned char)*c) &&
                        (c == line.data || !(isalnum((unsigned char)c[-1]) || c[-1] == '.'));
    size_t length = 0;
    const char *stand_in = numbers && starts ? measured(c, &length) : NULL;
    if (!stand_in && rows && starts) stand_in = computed(c, &length);
    if (starts && c - line.data >= 10 && strncmp(c - 10, "127.0.0.1:", 10) == 0) {
      stand_in = "PORT";
      length = strspn(c, "0123456789");
    }
    if (stand_in) {
      brim_str_append(to, stand_in);
      c += length;
    } else if (iscntrl((unsigned char)*c)) {
      brim_str_printf(to, "\\x%02x", (unsigned)*c++);
    } else {
      brim_str_append_char(to, *c++);
    }
  }
  brim_str_deinit(&line);
}

// Lines with `part` (NULL: all).
static void append_lines(brim_str *to, const char *mark, const char *text, shell_words which,
                         const char *part) {
  while (*text) {
    const size_t n = strcspn(text, "\n");
    const char *found = part ? strstr(text, part) : text;
    if (found && found < text + n + 1) {
      brim_str_append(to, mark);
      append_line(to, text, n, true, which == SHELL_ROWS);
      brim_str_append_char(to, '\n');
    }
    text += n + (text[n] == '\n');
  }
}

// Numbers the lines of a function that ask for the same heading: 1 for the first line, 2 for the second.
static int place_of(const char *heading, int line) {
  static struct {
    char *heading;
    int line;
  } * asked;
  static size_t size;
  int place = 1;
  for (size_t i = 0; i < size; i++) {
    if (strcmp(asked[i].heading, heading) != 0) continue;
    if (asked[i].line == line) return place;
    place++;
  }
  asked = realloc(asked, (size + 1) * sizeof *asked);
  assert_non_null(asked);
  asked[size].heading = strdup(heading);
  asked[size].line = line;
  assert_non_null(asked[size++].heading);
  return place;
}

static void append_lines_of(brim_str *to, const char *text, size_t size, char mark) {
  for (const char *end = text + size; text < end;) {
    const int n = (int)strcspn(text, "\n");
    brim_str_printf(to, "%c %.*s\n", mark, n, text);
    text += n + 1;
  }
}

// Fails with the lines of the kept block (-) and of the output (+), without the lines they share at both ends.
static void fail_with_difference(const char *test, const char *heading, const char *kept,
                                 const char *now) {
  brim_str text;
  brim_str_init(&text);
  if (kept) {
    size_t a = strlen(kept), b = strlen(now), at = 0, start = 0;
    for (; kept[at] && kept[at] == now[at]; at++) {
      if (kept[at] == '\n') start = at + 1;
    }
    // step back over common lines at the end, one line end at a time
    for (size_t n = 1; a - start > n && b - start > n && kept[a - n - 1] == now[b - n - 1]; n++) {
      if (kept[a - n - 1] != '\n') continue;
      a -= n;
      b -= n;
      n = 0;
    }
    append_lines_of(&text, kept + start, a - start, '-');
    append_lines_of(&text, now + start, b - start, '+');
  } else {
    brim_str_printf(&text, "nothing is kept yet; printed was:\n%s", now);
  }
  char message[8192];
  snprintf(message, sizeof message, "%s", text.data);
  brim_str_deinit(&text);
  fail_msg("%s\n%sIf these words are right: make words TESTS=%s, then see git diff tests/cli/words",
           heading, message, test);
}

// Compares with the block of BRIM_WORDS/<test>.txt (tests/cli/words). If BRIM_WORDS_RECORD names a folder (tools/words
// does), the block is appended to <test>.txt there instead.
static void keep(const char *path, int line, const char *function, shell_words which,
                 const char *part, const shell_result *result) {
  brim_str heading, block;
  brim_str_init(&heading);
  brim_str_init(&block);
  brim_str_printf(&heading, "[%s] ", function);
  append_line(&heading, result->command, strlen(result->command), false, false);
  if (part) brim_str_printf(&heading, " %c %s", which == SHELL_ROWS ? '#' : '|', part);
  const int place = place_of(heading.data, line);
  if (place > 1) brim_str_printf(&heading, " (%d)", place);
  brim_str_append(&heading, "\n");

  brim_str_clear(&block);
  brim_str_printf(&block, "exit %d\n", result->code);
  append_lines(&block, "> ", result->out, which, part);
  append_lines(&block, "! ", result->err, which, part);
  assert_ok(brim_str_status(&heading));
  assert_ok(brim_str_status(&block));

  const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
  char test[128], file[4096];
  snprintf(test, sizeof test, "%.*s", (int)strcspn(base, "."), base);
  const char *record = getenv("BRIM_WORDS_RECORD");
  if (record) {
    snprintf(file, sizeof file, "%s/%s.txt", record, test);
    brim_str_append(&heading, block.data);
    const int fd = open(file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    assert_true(fd >= 0);
    assert_true(write(fd, heading.data, heading.len) == (ssize_t)heading.len);
    close(fd);
  } else {
    const char *folder = getenv("BRIM_WORDS");
    snprintf(file, sizeof file, "%s/%s.txt", folder ? folder : BRIM_SOURCE_DIR "/tests/cli/words",
             test);
    char *all = has_file(file) ? slurp(file) : brim_strdup("");
    assert_non_null(all);
    char *kept = NULL;
    bool same = false;
    for (char *at = strstr(all, heading.data); at && !same; at = strstr(at, heading.data)) {
      const bool starts = at == all || at[-1] == '\n';
      at += heading.len;
      if (!starts) continue;
      kept = at;
      const char *next = strstr(at - 1, "\n[");  // the start of the next block
      const size_t size = next ? (size_t)(next + 1 - at) : strlen(at);
      same = size == block.len && memcmp(at, block.data, size) == 0;
    }
    if (!same) {
      char *end = kept ? strstr(kept, "\n[") : NULL;
      if (end) end[1] = '\0';
      fail_with_difference(test, heading.data, kept, block.data);
    }
    brim_free(all);
  }
  brim_str_deinit(&heading);
  brim_str_deinit(&block);
}

void said_at(const char *file, int line, const char *function, shell_words which, const char *part,
             const shell_result *result) {
  if (part && !strstr(result->out, part) && !strstr(result->err, part)) {
    fail_msg("%s\nno '%s' in\nstdout:\n%s\nstderr:\n%s", result->command, part, result->out,
             result->err);
  }
  keep(file, line, function, which, part, result);
}

void says_at(const char *file, int line, const char *function, int code, shell_words which,
             const char *part, const char *command) {
  shell_result r = shell("%s", command);
  if (r.code != code) {
    fail_msg("%s\nexit %d, expected %d\nstdout:\n%s\nstderr:\n%s", command, r.code, code, r.out,
             r.err);
  }
  said_at(file, line, function, which, part, &r);
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
