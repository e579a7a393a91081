// Where a sweep's store and logs are, for the words that look at one.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/sweep/cli_sweep.h"
#include "lab/lab_link_http.h"
#include "lab/lab_sweep.h"
#include "lab/store/lab_store.h"

static bool find_store(const char *folder, struct stat *st) {
  char *file = brim_fs_join(folder, BRIM_STORE_FILE);
  bool found = file && stat(file, st) == 0;
  brim_free(file);
  return found;
}

bool brim_cli_sweep_has_store(const char *place) {
  struct stat st;
  return brim_store_is_url(place) || find_store(place, &st);
}

brim_status brim_cli_sweep_newest(char **out) {
  char **names = NULL;
  size_t count = 0;
  struct timespec newest = {0};
  *out = NULL;
  if (!brim_fs_is_dir("runs")) return BRIM_OK;
  BRIM_TRY(brim_fs_list("runs", &names, &count));
  brim_status status = BRIM_OK;
  for (size_t i = 0; i < count && !status; i++) {
    struct stat st;
    char *folder = brim_fs_join("runs", names[i]);
    if (!folder) status = brim_fail(BRIM_ENOMEM, "out of memory while looking for a store");
    bool later = folder && find_store(folder, &st) &&
                 (!*out || st.st_mtim.tv_sec > newest.tv_sec ||
                  (st.st_mtim.tv_sec == newest.tv_sec && st.st_mtim.tv_nsec > newest.tv_nsec));
    if (later) {
      newest = st.st_mtim;
      brim_free(*out);
      *out = folder;
    } else {
      brim_free(folder);
    }
  }
  brim_fs_list_free(names, count);
  return status;
}

brim_status brim_cli_sweep_place(brim_cli *cli, size_t at, char **out) {
  const char *given = brim_option_string(&cli->parse, "store", NULL);
  if (!given && at > 0 && at < cli->parse.positional_count) given = cli->parse.positional[at];
  const char *variable = getenv("BRIM_STORE");
  if (!given && variable && *variable) given = variable;
  *out = NULL;
  if (!given) {
    BRIM_TRY(brim_cli_sweep_newest(out));
    if (*out) {
      brim_cli_note(cli, brim_tr("store: %s\n"), *out);
      return BRIM_OK;
    }
    return brim_cli_usage(cli, BRIM_N_("there is no store below runs; name one with --store"));
  }
  if (!brim_lab_is_server(given) && !brim_cli_sweep_has_store(given)) {
    if (strchr(given, ':')) {
      return brim_fail(BRIM_ENOENT,
                       "%s is no folder with a store; the URL of a server begins with http:// or "
                       "https://",
                       given);
    }
    return brim_fail(BRIM_ENOENT, "%s holds no store of a sweep (" BRIM_STORE_FILE ")", given);
  }
  *out = brim_strdup(given);
  return *out ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory while looking for a store");
}

brim_status brim_cli_sweep_log_path(const char *folder, const char *exp, int64_t attempt,
                                    char **out) {
  brim_str path;
  brim_str_init(&path);
  brim_status status = brim_lab_exp_folder(folder, exp, &path);
  brim_str_printf(&path, "/attempt-%lld.log", (long long)attempt);
  if (!status) status = brim_str_status(&path);
  *out = status ? NULL : brim_str_take(&path);
  brim_str_deinit(&path);
  return status || *out ? status : brim_fail(BRIM_ENOMEM, "out of memory while reading a log");
}

brim_status brim_cli_sweep_read_end(const char *path, size_t bytes, char **out) {
  int fd = -1;
  uint64_t size = 0;
  BRIM_TRY(brim_fs_open_regular(path, &fd, &size));
  uint64_t from = size > bytes ? size - bytes : 0;
  size_t n = (size_t)(size - from);
  char *text = brim_alloc(n + 1);
  ssize_t got = text ? pread(fd, text, n, (off_t)from) : -1;
  close(fd);
  if (!text) return brim_fail(BRIM_ENOMEM, "out of memory while reading a log");
  text[got > 0 ? got : 0] = '\0';
  // from the first whole line on
  char *line = from > 0 ? strchr(text, '\n') : NULL;
  if (line) memmove(text, line + 1, strlen(line + 1) + 1);
  *out = text;
  return BRIM_OK;
}
