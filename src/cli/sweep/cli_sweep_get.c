// `brim sweep get`: a file of an experiment, from the sweep's folder or from a server.
#include <stdio.h>
#include <string.h>

#include "cli/sweep/cli_sweep.h"
#include "lab/http/lab_http_client.h"
#include "lab/lab_files.h"
#include "lab/lab_link.h"
#include "lab/lab_link_http.h"
#include "lab/lab_sweep.h"

enum { CONNECT_MS = 10000 };

typedef struct getting {
  brim_cli *cli;
  brim_lab_link *link;
  const brim_lab_file_kind *kind;
  char exp[BRIM_EXP_ID];
  char *path;
} getting;

static bool go_on(void *ctx) {
  const getting *g = ctx;
  return !*g->cli->stop;
}

static brim_status from_server(getting *g, const char *url) {
  brim_lab_file_row rows[BRIM_LAB_FILE_KINDS];
  brim_http_client *client = NULL;
  BRIM_TRY(brim_lab_file_rows(g->link, g->exp, rows));
  const brim_lab_file_row *row = &rows[g->kind - brim_lab_file_kinds];
  if (!row->there) {
    return brim_fail(BRIM_ENOENT, "the server has no %s of this experiment", g->kind->name);
  }
  BRIM_TRY(brim_lab_http_open(url, CONNECT_MS, &client));
  brim_lab_getting how = {.client = client,
                          .exp = g->exp,
                          .kind = g->kind,
                          .row = row,
                          .path = g->path,
                          .keep = go_on,
                          .ctx = g};
  brim_status status = brim_lab_get_file(&how);
  brim_http_client_close(client);
  return status;
}

static brim_status from_folder(getting *g, const char *folder) {
  brim_str path;
  brim_str_init(&path);
  brim_status status = brim_lab_exp_folder(folder, g->exp, &path);
  brim_str_printf(&path, "/%s", g->kind->local);
  if (!status) status = brim_str_status(&path);
  if (!status && !brim_fs_exists(path.data)) {
    status =
        brim_fail(BRIM_ENOENT, "there is no %s; --output-dir names the sweep's folder", path.data);
  }
  if (!status) status = brim_fs_copy(path.data, g->path);
  brim_str_deinit(&path);
  return status;
}

static brim_status choose_path(getting *g) {
  const char *given = brim_option_string(&g->cli->parse, "output", NULL);
  brim_str path;
  brim_str_init(&path);
  if (given) {
    brim_str_append(&path, given);
  } else {
    brim_str_printf(&path, "%.12s-%s", g->exp, g->kind->shown);
  }
  g->path = brim_str_take(&path);
  return g->path ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory while reading a sweep");
}

static brim_status tell(const getting *g) {
  if (!g->cli->json) {
    brim_cli_note(g->cli, brim_tr("wrote %s\n"), g->path);
    return BRIM_OK;
  }
  json_t *f = json_object();
  brim_status status = brim_json_put(f, "exp", json_string(g->exp));
  if (!status) status = brim_json_put(f, "name", json_string(g->kind->name));
  if (!status) status = brim_json_put(f, "path", json_string(g->path));
  if (!status) return brim_cli_event(g->cli, "got", f);
  json_decref(f);
  return status;
}

static brim_status get(getting *g, const char *place) {
  const char *url = brim_lab_link_server(g->link),
             *given = brim_option_string(&g->cli->parse, "output-dir", NULL);
  char *folder = NULL;
  BRIM_TRY(brim_lab_find(g->link, g->cli->parse.positional[1], g->exp));
  BRIM_TRY(choose_path(g));
  // without --output its name is brim's own
  if (brim_option_string(&g->cli->parse, "output", NULL)) {
    BRIM_TRY(brim_cli_check_replace(g->cli, g->path, NULL));
  }
  if (url && !given) return from_server(g, url);
  brim_status status = given ? BRIM_OK : brim_cli_sweep_ask(g->link, NULL, NULL, &folder);
  if (!status) status = from_folder(g, given ? given : folder ? folder : place);
  brim_free(folder);
  return status;
}

brim_status brim_cli_sweep_get(brim_cli *cli) {
  const size_t words = cli->parse.positional_count;
  const char *name = words > 2 ? cli->parse.positional[2] : "weights";
  getting g = {.cli = cli, .kind = brim_lab_file_find(name)};
  char *place = NULL;
  if (words < 2 || words > 3) {
    return brim_cli_usage(cli, BRIM_N_("get needs one experiment: brim sweep get ID [NAME]"));
  }
  if (!g.kind || g.kind->log) {
    return brim_cli_usage(
        cli, BRIM_N_("get takes weights, best, checkpoint, record or config, not '%.100s'"), name);
  }
  BRIM_TRY(brim_cli_sweep_place(cli, 0, &place));
  brim_status status =
      brim_lab_link_open(place, &(brim_lab_link_options){.readonly = true}, &g.link);
  if (!status) status = get(&g, place);
  if (!status) status = tell(&g);
  brim_lab_link_close(g.link);
  brim_free(g.path);
  brim_free(place);
  return status;
}
