// Pages read by a browser: headless Chromium opens a file of the test's folder, with a test script in it that reports
// its findings.
#ifndef BRIM_TESTS_CHROMIUM_H_
#define BRIM_TESTS_CHROMIUM_H_

#include <unistd.h>

#include "base/base.h"
#include "process_run.h"
#include "test.h"

static char folder[4096];
static const char *browser;

static inline void path_of(const char *name, char out[4608]) {
  snprintf(out, 4608, "%s/%s", folder, name);
}

static inline void write_text(const char *name, const char *text) {
  char path[4608];
  path_of(name, path);
  assert_ok(brim_fs_write(path, text, strlen(text)));
}

// Inserts the probe before the end of the page.
static inline void write_probe(const char *name, const char *page, const char *probe) {
  brim_str out;
  brim_str_init(&out);
  const char *end = strstr(page, "</body>");
  assert_non_null(end);
  brim_str_append_n(&out, page, (size_t)(end - page));
  brim_str_append(&out, probe);
  brim_str_append(&out, end);
  assert_ok(brim_str_status(&out));
  write_text(name, out.data);
  brim_str_deinit(&out);
}

// Output of the browser; free it with brim_free. `does`: "--dump-dom", "--screenshot=FILE".
static inline char *browse(const char *name_and_fragment, const char *does) {
  char address[4700], profile[4700], home[4700];
  snprintf(address, sizeof address, "file://%s/%s", folder, name_and_fragment);
  snprintf(profile, sizeof profile, "--user-data-dir=%s/profile", folder);
  snprintf(home, sizeof home, "HOME=%s", folder);
  const char *path = getenv("PATH");
  char path_text[8192];
  snprintf(path_text, sizeof path_text, "PATH=%s", path ? path : "/usr/bin:/bin");
  const char *const env[] = {path_text, home, "LANG=C.UTF-8", NULL};
  // No sandbox: tests also run as root and in containers, and the page is our own.
  const char *const argv[] = {browser,
                              "--headless",
                              "--no-sandbox",
                              "--disable-gpu",
                              "--disable-dev-shm-usage",
                              "--no-first-run",
                              "--disable-background-networking",
                              "--disable-component-update",
                              "--disable-sync",
                              "--enable-logging=stderr",
                              "--v=0",
                              "--window-size=1280,900",
                              "--virtual-time-budget=4000",
                              profile,
                              does,
                              address,
                              NULL};
  process_result result = process_run(argv, env, 60000);
  if (result.exit_code != 0) {
    fail_msg("%s ended with %d: %.2000s", browser, result.exit_code, result.output);
  }
  return result.output;
}

// The same, with the page's final content.
static inline char *open_page(const char *name_and_fragment) {
  return browse(name_and_fragment, "--dump-dom");
}

static inline void silent(const char *text) {
  const char *at = strstr(text, "CONSOLE");
  if (at) fail_msg("the console says: %.400s", at);
}

static inline const char *find_browser(void) {
  static const char *const names[] = {"chromium", "chromium-browser", "google-chrome",
                                      "google-chrome-stable"};
  static const char *const folders[] = {"/usr/bin", "/usr/local/bin", "/snap/bin"};
  static char path[64];
  for (size_t i = 0; i < 4; i++) {
    for (size_t k = 0; k < 3; k++) {
      snprintf(path, sizeof path, "%s/%s", folders[k], names[i]);
      if (access(path, X_OK) == 0) return path;
    }
  }
  return NULL;
}

// Ends the program as skipped if there is no browser.
static inline void open_browser(void) {
  browser = find_browser();
  if (!browser) BRIM_SKIP_ALL("no Chromium here");
  if (!getcwd(folder, sizeof folder)) BRIM_SKIP_ALL("the working folder has no name");
}

#endif  // BRIM_TESTS_CHROMIUM_H_
