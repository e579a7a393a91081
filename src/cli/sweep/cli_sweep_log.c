// `brim sweep log`: the log of an attempt, from the sweep's folder or from a server.
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/sweep/cli_sweep.h"
#include "lab/http/lab_http_client.h"
#include "lab/lab_files.h"
#include "lab/lab_link.h"
#include "lab/lab_link_http.h"

enum { PIECE = 64 << 10, FOLLOW_MS = 300, AGAIN_MS = 1000, CONNECT_MS = 10000 };

typedef struct log_view {
  brim_cli *cli;
  brim_lab_link *link;
  char exp[BRIM_EXP_ID];
  int64_t attempt;           // 0 = the last
  bool open;                 // it may still be written
  char *path;                // of the file, or:
  brim_http_client *client;  // the server's that has it
  int64_t at;
} log_view;

static brim_status on_log_exp(void *ctx, const brim_store_exp *exp) {
  log_view *v = ctx;
  bool under_way = exp->state == BRIM_EXP_LEASED || exp->state == BRIM_EXP_RUNNING;
  if (v->attempt == 0) v->attempt = exp->attempt;
  v->open = under_way && exp->attempt == v->attempt;
  return BRIM_OK;
}

static brim_status print_bytes(void *ctx, const char *data, size_t size) {
  log_view *v = ctx;
  brim_str text;
  brim_str_init(&text);
  brim_str_append_n(&text, data, size);
  brim_cli_print(v->cli, &text);
  brim_status status = brim_str_status(&text);
  brim_str_deinit(&text);
  v->at += (int64_t)size;
  return status;
}

// All of it from v->at on, from the server.
static brim_status fetch_log(log_view *v, brim_status (*take)(void *, const char *, size_t),
                             void *ctx) {
  const brim_lab_fetching how = {
      .exp = v->exp, .name = "log", .attempt = v->attempt, .from = v->at, .take = take, .ctx = ctx};
  brim_status status = brim_lab_fetch(v->client, &how);
  if (status != BRIM_ENOENT || !v->open) return status;
  brim_status_clear();  // nothing has come yet
  return BRIM_OK;
}

// What has been written since the last call.
static brim_status print_more(log_view *v) {
  if (v->client) return fetch_log(v, print_bytes, v);
  int fd = -1;
  uint64_t size = 0;
  BRIM_TRY(brim_fs_open_regular(v->path, &fd, &size));
  char *piece = brim_alloc(PIECE);
  ssize_t got = piece ? 1 : 0;
  while (got > 0) {
    got = pread(fd, piece, PIECE, (off_t)v->at);
    if (got > 0 && print_bytes(v, piece, (size_t)got)) break;
  }
  close(fd);
  brim_free(piece);
  return piece ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory while reading a log");
}

static brim_status append_bytes(void *ctx, const char *data, size_t size) {
  brim_str_append_n(ctx, data, size);
  return brim_str_status(ctx);
}

static brim_status read_log(log_view *v, char **text, size_t *size) {
  brim_str all;
  if (!v->client) return brim_fs_read(v->path, 0, text, size);
  brim_str_init(&all);
  brim_status status = fetch_log(v, append_bytes, &all);
  *size = all.len;
  *text = status ? NULL : brim_str_take(&all);
  brim_str_deinit(&all);
  return status || *text ? status : brim_fail(BRIM_ENOMEM, "out of memory while reading a log");
}

// Where the last `lines` lines begin.
static brim_status skip_lines(log_view *v, int64_t lines) {
  char *text = NULL;
  size_t size = 0;
  if (lines <= 0) return BRIM_OK;
  BRIM_TRY(read_log(v, &text, &size));
  size_t at = size;
  while (at > 0 && lines > 0) {
    at--;
    if (at > 0 && text[at - 1] == '\n') lines--;
  }
  v->at = (int64_t)at;
  brim_free(text);
  return BRIM_OK;
}

static brim_status print_new(log_view *v, bool *last) {
  BRIM_TRY(brim_lab_get(v->link, v->exp, on_log_exp, v));
  *last = !v->open;  // asked before the file was read, so that nothing is missed
  return print_more(v);
}

// A server that is away comes back: trainings do not end with it.
static brim_status follow(log_view *v) {
  bool lost = false, last = false;
  for (;;) {
    brim_status status = print_new(v, &last);
    bool away = status == BRIM_EIO && v->client;
    if (status && !away) return status;
    if (away && !lost) {
      brim_cli_note(v->cli, brim_tr("cannot reach the server; brim waits for it: %s\n"),
                    brim_status_detail());
    } else if (lost && !away) {
      brim_cli_note(v->cli, "%s", brim_tr("the server answers again\n"));
    }
    brim_status_clear();
    lost = away;
    if ((last && !away) || *v->cli->stop) return BRIM_OK;
    usleep((lost ? AGAIN_MS : FOLLOW_MS) * 1000);
  }
}

static brim_status show_log(log_view *v, const char *folder) {
  BRIM_TRY(brim_lab_find(v->link, v->cli->parse.positional[1], v->exp));
  BRIM_TRY(brim_lab_get(v->link, v->exp, on_log_exp, v));
  if (v->attempt < 1) return brim_fail(BRIM_ENOENT, "experiment %.12s has not run yet", v->exp);
  if (!v->client) BRIM_TRY(brim_cli_sweep_log_path(folder, v->exp, v->attempt, &v->path));
  if (!v->client && !brim_fs_exists(v->path)) {
    return brim_fail(BRIM_ENOENT, "there is no log at %s; --output-dir names the sweep's folder",
                     v->path);
  }
  BRIM_TRY(skip_lines(v, brim_option_int(&v->cli->parse, "lines", 0)));
  if (brim_option_flag(&v->cli->parse, "follow", false)) return follow(v);
  return print_more(v);
}

brim_status brim_cli_sweep_log(brim_cli *cli) {
  log_view v = {.cli = cli, .attempt = brim_option_int(&cli->parse, "attempt", 0)};
  char *place = NULL, *folder = NULL;
  const char *given = brim_option_string(&cli->parse, "output-dir", NULL);
  if (cli->parse.positional_count != 2 || v.attempt < 0) {
    return brim_cli_usage(cli, BRIM_N_("log needs one experiment: brim sweep log ID"));
  }
  BRIM_TRY(brim_cli_sweep_place(cli, 0, &place));
  brim_status status =
      brim_lab_link_open(place, &(brim_lab_link_options){.readonly = true}, &v.link);
  const char *url = !status && !given ? brim_lab_link_server(v.link) : NULL;
  if (url) {
    status = brim_lab_http_open(url, CONNECT_MS, &v.client);
  } else if (!status && !given) {
    status = brim_cli_sweep_ask(v.link, NULL, NULL, &folder);
  }
  if (!status) status = show_log(&v, given ? given : folder ? folder : place);
  brim_http_client_close(v.client);
  brim_lab_link_close(v.link);
  brim_free(v.path);
  brim_free(folder);
  brim_free(place);
  return status;
}
