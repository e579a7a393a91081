// `brim sweep drain` and `undrain`: a worker finishes what it runs and takes nothing more, or takes
// experiments again.
#include <string.h>

#include "cli/sweep/cli_sweep.h"
#include "lab/lab_link.h"
#include "lab/lab_link_http.h"

static brim_status tell(brim_cli *cli, const char *worker, bool drain) {
  if (cli->json) {
    json_t *f = json_object();
    brim_status s = brim_json_put(f, "worker", json_string(worker));
    if (!s) return brim_cli_event(cli, drain ? "drain" : "undrain", f);
    json_decref(f);
    return s;
  }
  brim_str text;
  brim_str_init(&text);
  brim_str_printf(&text,
                  drain ? brim_tr("worker %s finishes its experiments and takes no more\n")
                        : brim_tr("worker %s takes experiments again\n"),
                  worker);
  brim_status status = brim_str_status(&text);
  if (!status) brim_cli_print(cli, &text);
  brim_str_deinit(&text);
  return status;
}

static brim_status drain_each(brim_cli *cli, brim_lab_link *link, size_t first, bool drain) {
  for (size_t i = first; i < cli->parse.positional_count; i++) {
    const char *worker = cli->parse.positional[i];
    json_t *request = json_pack("{s:s,s:s,s:b}", "op", "drain", "worker", worker, "drain", drain);
    brim_status status = request ? brim_lab_call(link, request, NULL)
                                 : brim_fail(BRIM_ENOMEM, "out of memory while asking a server");
    json_decref(request);
    BRIM_TRY(status);
    BRIM_TRY(tell(cli, worker, drain));
  }
  return BRIM_OK;
}

// The server's address may come first, as for `status`: no worker has such a name.
static brim_status apply(brim_cli *cli, bool drain) {
  char *place = NULL;
  brim_lab_link *link = NULL;
  bool url = cli->parse.positional_count > 1 && brim_lab_is_server(cli->parse.positional[1]);
  if (cli->parse.positional_count < (url ? 3u : 2u)) {
    return brim_cli_usage(cli, BRIM_N_("name the workers; brim sweep status lists them"));
  }
  BRIM_TRY(brim_cli_sweep_place(cli, url ? 1 : 0, &place));
  brim_status status = brim_lab_link_open(place, NULL, &link);
  if (!status) status = drain_each(cli, link, url ? 2 : 1, drain);
  brim_lab_link_close(link);
  brim_free(place);
  return status;
}

brim_status brim_cli_sweep_drain(brim_cli *cli) { return apply(cli, true); }

brim_status brim_cli_sweep_undrain(brim_cli *cli) { return apply(cli, false); }
