// `brim serve`: the server of a pool, the worker that it starts on this machine, and its tokens. Also `brim worker`.

#include "cli/serve/cli_serve.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base_child.h"
#include "cli/sweep/cli_sweep.h"
#include "lab/http/lab_http_client.h"
#include "lab/http/lab_http_pin.h"
#include "lab/http/lab_http_url.h"
#include "lab/sweep/lab_sweep.h"
#include "lab/wire/lab_wire_link.h"

//-------------------------------------- files of the owner --------------------------------------
// Files that only the owner of a server may read: the token of the server's worker, and serve.json for commands.

enum { PRIVATE_MAX = 4096 };

// Writes a new file and renames it: an existing file may be a link, or have another owner or other readers.
brim_status brim_cli_write_private(const char *path, const char *text) {
  brim_str temp;
  brim_str_init(&temp);
  brim_str_printf(&temp, "%s" BRIM_FS_TEMP_MARK "%ld.0", path, (long)getpid());
  brim_status status = brim_str_status(&temp);
  if (!status) {
    (void)unlink(temp.data);
    int fd = open(temp.data, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    size_t size = strlen(text);
    bool good = fd >= 0 && fchmod(fd, 0600) == 0 && write(fd, text, size) == (ssize_t)size &&
                fsync(fd) == 0 && rename(temp.data, path) == 0;
    int error = errno;
    if (fd >= 0) close(fd);
    if (fd >= 0 && !good) (void)unlink(temp.data);
    if (!good) status = brim_fail(BRIM_EIO, "cannot write %s: %s", path, strerror(error));
  }
  brim_str_deinit(&temp);
  return status;
}

// Warns if other users can read or write the file of a secret. Does nothing if path is NULL.
static void warn_readable(const char *path) {
  struct stat st;
  if (!path || stat(path, &st) != 0 || (st.st_mode & 077) == 0) return;
  brim_log_warn("serve", "other users can read or write %s; run chmod 600 %s", path, path);
}

// Reads a file that only the owner can read and write; *out is for brim_free. BRIM_ENOENT: there is no such file.
// BRIM_EINVAL: it is no regular file of this user, or other users can read or write it.
static brim_status read_private(const char *path, char **out) {
  struct stat st;
  char text[PRIVATE_MAX];
  int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  *out = NULL;
  if (fd < 0) {
    return brim_fail(errno == ENOENT ? BRIM_ENOENT : BRIM_EIO, "cannot open %s: %s", path,
                     strerror(errno));
  }
  bool is_private = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
                    (st.st_mode & 077) == 0;
  ssize_t n = is_private ? read(fd, text, sizeof text - 1) : -1;
  close(fd);
  if (!is_private) {
    return brim_fail(BRIM_EINVAL,
                     "%s is not trusted: it must be a file of yours that others can neither read "
                     "nor write; remove it",
                     path);
  }
  if (n < 0) return brim_fail(BRIM_EIO, "cannot read %s", path);
  text[n] = '\0';
  *out = brim_strdup(text);
  return *out ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory while reading %s", path);
}

static char *control_path(const char *folder) { return brim_fs_join(folder, "serve.json"); }

// The content of serve.json in the folder of the store: how the owner's commands reach the server.
typedef struct control_file {
  char url[320], pin[BRIM_HTTP_PIN], token[BRIM_TOKEN];
} control_file;

static brim_status control_write(const char *folder, const control_file *control) {
  char *path = control_path(folder), *text = NULL;
  json_t *o = json_object();
  brim_status s = path ? brim_json_put(o, "url", json_string(control->url))
                       : brim_fail(BRIM_ENOMEM, "out of memory while starting the server");
  if (!s) s = brim_json_put(o, "pin", json_string(control->pin));
  if (!s) s = brim_json_put(o, "token", json_string(control->token));
  if (!s) s = brim_json_dump(o, 0, &text);
  if (!s) s = brim_cli_write_private(path, text);
  json_decref(o);
  brim_free(text);
  brim_free(path);
  return s;
}

static void copy_text(const json_t *o, const char *key, char *out, size_t size) {
  const char *text = json_string_value(json_object_get(o, key));
  snprintf(out, size, "%s", text ? text : "");
}

static brim_status control_read(const char *folder, control_file *out) {
  char *path = control_path(folder), *text = NULL;
  json_t *o = NULL;
  memset(out, 0, sizeof *out);
  if (!path) return brim_fail(BRIM_ENOMEM, "out of memory while reading a file");
  brim_status status = read_private(path, &text);
  if (status == BRIM_ENOENT) {
    status = brim_fail(BRIM_EEXIST, "another program has the store %s open, and it is no server",
                       folder);
  }
  if (!status) status = brim_json_parse(text, strlen(text), path, &o);
  copy_text(o, "url", out->url, sizeof out->url);
  copy_text(o, "pin", out->pin, sizeof out->pin);
  copy_text(o, "token", out->token, sizeof out->token);
  json_decref(o);
  brim_free(text);
  brim_free(path);
  return status;
}

static void control_remove(const char *folder) {
  char *path = brim_store_is_url(folder) ? NULL : control_path(folder);
  if (path) (void)unlink(path);
  brim_free(path);
}

//-------------------------------------------- grids --------------------------------------------
// Facts for expanding a grid as `brim sweep` does: workloads, and the GPUs of this machine.

typedef struct grid_facts {
  brim_cli *cli;
  brim_gpu_monitor *monitor;  // NULL = no NVML
  char gpu[96];
  brim_config_facts facts;
  brim_cli_metric_names names;
  brim_lab_grid_maker maker;
} grid_facts;

static brim_status describe(void *ctx, const brim_config *point, brim_lab_point *out) {
  grid_facts *g = (grid_facts *)ctx;
  g->names.count = 0;  // the grid copied the names of the last point
  return brim_cli_sweep_describe(&g->names, point, out);
}

static brim_status plan_needs(void *ctx, const brim_lab_grid *grid, brim_store_point *points) {
  grid_facts *g = (grid_facts *)ctx;
  union {
    const brim_lab_grid *in;
    brim_lab_grid *out;
  } same = {grid};  // brim_cli_sweep_needs only reads the grid
  const brim_cli_sweep_job job = {.cli = g->cli, .grid = same.out, .monitor = g->monitor};
  return brim_cli_sweep_needs(&job, points);
}

static bool find_metric(void *ctx, const char *key, brim_sweep_metric *out) {
  (void)ctx;
  return brim_cli_sweep_metric(key, out);
}

static void serve_grids_open(brim_cli *cli, grid_facts *out) {
  memset(out, 0, sizeof *out);
  out->cli = cli;
  if (brim_gpu_monitor_open(&out->monitor)) brim_status_clear();
  brim_cli_sweep_facts(out->monitor, out->gpu, &out->facts);
  // With --server-only plan no memory: this machine does not know the GPUs on which the experiments run.
  bool runs = !brim_option_flag(&cli->parse, "server-only", false);
  out->maker = (brim_lab_grid_maker){.facts = &out->facts,
                                     .describe = describe,
                                     .needs = runs ? plan_needs : NULL,
                                     .metric = find_metric,
                                     .stop = cli->stop,
                                     .ctx = out};
}

static void serve_grids_close(grid_facts *grids) { brim_gpu_monitor_close(grids->monitor); }

//-------------------------------------------- tokens --------------------------------------------
// `brim serve token`: changes a store that no process has open, else asks the server that has it open.

// Prints a new token. role NULL = the role does not change.
static brim_status print_token(brim_cli *cli, const char *id, const char *role, const char *token) {
  if (cli->json) {
    json_t *f = json_object();
    brim_status s = brim_json_put(f, "id", json_string(id));
    if (!s && role) s = brim_json_put(f, "role", json_string(role));
    if (!s) s = brim_json_put(f, "token", json_string(token));
    return brim_cli_finish_event(cli, "token", f, s);
  }
  brim_str text;
  brim_str_init(&text);
  brim_str_printf(&text, "%s\n", token);
  brim_cli_note(cli, "%s", brim_tr("the token is shown this once:\n"));
  brim_cli_print(cli, &text);
  brim_str_deinit(&text);
  return BRIM_OK;
}

typedef struct token_list {
  brim_cli *cli;
  brim_str text;
  int count;
} token_list;

static brim_status put_token(void *ctx, const brim_store_token *t) {
  token_list *l = (token_list *)ctx;
  char when[32];
  brim_clock_iso8601((double)t->created / 1e3, when);
  l->count++;
  if (!l->cli->json) {
    brim_str_printf(&l->text, "%-24s %-8s %s\n", t->id, t->role, when);
    return BRIM_OK;
  }
  json_t *f = json_object();
  brim_status s = brim_json_put(f, "id", json_string(t->id));
  if (!s) s = brim_json_put(f, "role", json_string(t->role));
  if (!s) s = brim_json_put(f, "created", json_string(when));
  return brim_cli_finish_event(l->cli, "token", f, s);
}

static brim_status list_tokens(brim_cli *cli, brim_store *store) {
  token_list l = {.cli = cli};
  brim_str_init(&l.text);
  brim_status status = brim_store_tokens(store, put_token, &l);
  if (!status && l.count == 0) brim_cli_note(cli, "%s", brim_tr("there is no token\n"));
  if (!status && l.text.len > 0) brim_cli_print(cli, &l.text);
  brim_str_deinit(&l.text);
  return status;
}

static brim_status change_token(brim_cli *cli, brim_store *store, const char *word,
                                const char *id) {
  const char *role = brim_option_string(&cli->parse, "role", "read");
  char token[BRIM_TOKEN], sha256[65];
  brim_role parsed;
  if (strcmp(word, "end") == 0) return brim_store_token_end(store, id);
  if (!brim_role_of(role, &parsed)) {
    return brim_cli_usage(cli, BRIM_N_("--role is read, submit, worker or admin"));
  }
  BRIM_TRY(brim_token_make(token));
  brim_token_hash(token, sha256);
  if (strcmp(word, "rotate") == 0) {
    BRIM_TRY(brim_store_token_rotate(store, id, sha256));
    role = NULL;
  } else {
    const brim_store_token row = {.id = id, .role = role, .sha256 = sha256};
    BRIM_TRY(brim_store_token_add(store, &row));
  }
  return print_token(cli, id, role, token);
}

// Calls the server that has the SQLite file of `place` open.
static brim_status call_server(const char *place, const char *method, const char *path,
                               const char *body, json_t **out) {
  control_file control;
  brim_http_client *client = NULL;
  brim_http_answer answer;
  BRIM_TRY(control_read(place, &control));
  const brim_http_client_options how = {.url = control.url,
                                        .token = control.token,
                                        .pin = control.pin[0] ? control.pin : NULL,
                                        .insecure = true};
  const brim_http_call call = {
      .method = method, .path = path, .body = body, .body_size = body ? strlen(body) : 0};
  brim_http_answer_init(&answer);
  brim_status status = brim_http_client_open(&how, &client);
  if (!status) status = brim_http_client_call(client, &call, &answer);
  if (!status) status = brim_json_parse(answer.body.data, answer.body.len, "the reply", out);
  if (!status && answer.status != 200) {
    const char *why = json_string_value(json_object_get(*out, "message"));
    if (!why) why = json_string_value(json_object_get(*out, "error"));
    status = brim_fail(answer.status == 404 ? BRIM_ENOENT : BRIM_EINVAL, "%s", why ? why : "");
  }
  brim_http_client_close(client);
  brim_http_answer_deinit(&answer);
  return status;
}

static brim_status list_reply(brim_cli *cli, const json_t *reply) {
  token_list l = {.cli = cli};
  const json_t *list = json_object_get(reply, "tokens");
  brim_status status = BRIM_OK;
  brim_str_init(&l.text);
  for (size_t i = 0; !status && i < json_array_size(list); i++) {
    const json_t *row = json_array_get(list, i);
    const char *id = json_string_value(json_object_get(row, "id"));
    const char *role = json_string_value(json_object_get(row, "role"));
    const brim_store_token t = {.id = id ? id : "",
                                .role = role ? role : "",
                                .created = json_integer_value(json_object_get(row, "created"))};
    status = put_token(&l, &t);
  }
  if (!status && l.count == 0) brim_cli_note(cli, "%s", brim_tr("there is no token\n"));
  if (!status && l.text.len > 0) brim_cli_print(cli, &l.text);
  brim_str_deinit(&l.text);
  return status;
}

static brim_status ask_server(brim_cli *cli, const char *place, const char *word, const char *id) {
  const char *role = brim_option_string(&cli->parse, "role", "read");
  char path[96], body[128];
  brim_role parsed;
  json_t *reply = NULL;
  brim_status status = BRIM_OK;
  if (!brim_role_of(role, &parsed)) {
    return brim_cli_usage(cli, BRIM_N_("--role is read, submit, worker or admin"));
  }
  snprintf(body, sizeof body, "{\"id\": \"%s\", \"role\": \"%s\"}", id, role);
  if (strcmp(word, "list") == 0) {
    status = call_server(place, "GET", "/v1/tokens", NULL, &reply);
    if (!status) status = list_reply(cli, reply);
  } else if (strcmp(word, "end") == 0) {
    snprintf(path, sizeof path, "/v1/tokens/%s", id);
    status = call_server(place, "DELETE", path, NULL, &reply);
  } else {
    bool rotate = strcmp(word, "rotate") == 0;
    snprintf(path, sizeof path, rotate ? "/v1/tokens/%s/rotate" : "/v1/tokens", id);
    status = call_server(place, "POST", path, rotate ? "{}" : body, &reply);
    const char *token = json_string_value(json_object_get(reply, "token"));
    if (!status) status = print_token(cli, id, rotate ? NULL : role, token ? token : "");
  }
  json_decref(reply);
  return status;
}

static brim_status serve_token(brim_cli *cli, const char *place) {
  const size_t n = cli->parse.positional_count;
  const char *word = n > 1 ? cli->parse.positional[1] : "",
             *id = n > 2 ? cli->parse.positional[2] : "";
  bool list = strcmp(word, "list") == 0;
  bool valid =
      list || strcmp(word, "add") == 0 || strcmp(word, "rotate") == 0 || strcmp(word, "end") == 0;
  if (!valid || n != (list ? 2u : 3u)) {
    return brim_cli_usage(cli, BRIM_N_("token takes: list, add NAME, rotate NAME or end NAME"));
  }
  if (!list && !brim_token_is_name(id)) {
    return brim_cli_usage(cli, BRIM_N_("the name of a token has 1 to 32 of a-z, 0-9 and -, and is "
                                       "not local or control"));
  }
  if (strcmp(word, "add") != 0 && !brim_cli_sweep_has_store(place)) {
    return brim_fail(BRIM_ENOENT, "%s holds no store; name the server's with --store", place);
  }
  brim_store *store = NULL;
  brim_status status = brim_store_open(place, NULL, &store);
  if (status == BRIM_EEXIST) {
    brim_status_clear();
    return ask_server(cli, place, word, id);
  }
  if (!status) status = list ? list_tokens(cli, store) : change_token(cli, store, word, id);
  brim_store_close(store);
  return status;
}

//------------------------------------------- worker ------------------------------------------
// `brim worker` and `brim serve --client-only`: takes experiments from a server and runs them on this machine.

static const brim_option worker_options[] = {
    {.name = "url",
     .kind = BRIM_OPTION_STRING,
     .metavar = "URL",
     .help = BRIM_N_("address of the server: https://server:8000")},
    {.name = "client-only", .help = BRIM_N_("accepted, and without effect: a worker is one")},
    {.name = "output-dir",
     .kind = BRIM_OPTION_STRING,
     .metavar = "DIR",
     .help = BRIM_N_("folder for the files of the experiments"),
     .default_text = "runs/worker"},
    BRIM_CLI_WORKER_TRUST(BRIM_N_("Network")),
    {.name = "insecure",
     .help = BRIM_N_("connect without TLS: others on the way can read along"),
     .group = BRIM_N_("Network")},
    BRIM_CLI_WORKER_MACHINE,
    {0},
};

// Puts the options for the connection into the environment: executors are other processes and read them there.
static brim_status set_variables(brim_cli *cli) {
  const char *ca = brim_option_string(&cli->parse, "ca", NULL);
  const char *pin = brim_option_string(&cli->parse, "pin", NULL);
  const char *file = brim_option_string(&cli->parse, "token-file", NULL);
  if (ca) setenv(BRIM_LAB_CA_ENV, ca, 1);
  if (pin) setenv(BRIM_LAB_PIN_ENV, pin, 1);
  if (brim_option_flag(&cli->parse, "insecure", false)) setenv(BRIM_LAB_INSECURE_ENV, "1", 1);
  if (!file) return BRIM_OK;
  warn_readable(file);
  char *text = NULL;
  size_t size = 0;
  BRIM_TRY(brim_fs_read(file, 4096, &text, &size));
  text[strcspn(text, "\r\n")] = '\0';
  setenv(BRIM_LAB_TOKEN_ENV, text, 1);
  brim_free(text);
  return BRIM_OK;
}

enum { RETRY_MS = 500, RETRY_MOST_MS = 30000, STOP_MS = 100 };

// Waits for the server: after a power failure workers and server start in any order.
static brim_status open_with_retries(brim_cli_sweep_job *j, brim_lab_sweep **out) {
  for (int64_t wait = RETRY_MS;; wait = 2 * wait < RETRY_MOST_MS ? 2 * wait : RETRY_MOST_MS) {
    brim_status status = brim_cli_sweep_open(j, out);
    if (status != BRIM_EIO) return status;
    if (wait == RETRY_MS) {
      brim_cli_note(j->cli, brim_tr("cannot reach the server; brim tries again: %s\n"),
                    brim_status_detail());
    }
    brim_status_clear();
    for (int64_t waited = 0; waited < wait; waited += STOP_MS) {
      if (*j->cli->stop) {
        return brim_fail(BRIM_EINTERRUPTED, "stopped before the server answered");
      }
      brim_clock_sleep_ns((int64_t)STOP_MS * 1000000);
    }
  }
}

static brim_status open_and_watch(brim_cli_sweep_job *j) {
  brim_lab_sweep *sweep = NULL;
  BRIM_TRY(open_with_retries(j, &sweep));
  j->cli->running = true;
  brim_status status = brim_cli_sweep_watch(j, sweep);
  brim_lab_sweep_close(sweep);
  return status;
}

// Runs `brim worker` and `brim serve --client-only`.
static brim_status worker_run(brim_cli *cli) {
  brim_cli_sweep_job j = {.cli = cli, .worker = true, .only_continue = true};
  const char *url = brim_option_string(&cli->parse, "url", NULL);
  const char *folder = brim_option_string(&cli->parse, "output-dir", "runs/worker");
  if (cli->parse.positional_count > 0) {
    return brim_cli_usage(cli, BRIM_N_("unknown word '%.100s'"), cli->parse.positional[0]);
  }
  if (!url) return brim_cli_usage(cli, BRIM_N_("name the server with --url"));
  if (!brim_lab_is_server(url)) {
    return brim_cli_usage(
        cli, BRIM_N_("%s is no address of a server; it looks like https://server:8000"), url);
  }
  BRIM_TRY(brim_cli_sweep_check(cli));
  BRIM_TRY(set_variables(cli));
  if (brim_gpu_monitor_open(&j.monitor)) brim_status_clear();
  j.place = brim_strdup(url);
  j.shown = brim_strdup(url);
  j.folder = brim_strdup(folder);
  j.name = brim_strdup(brim_fs_basename(folder));
  brim_status status = j.place && j.shown && j.folder && j.name
                           ? open_and_watch(&j)
                           : brim_fail(BRIM_ENOMEM, "out of memory while starting a worker");
  brim_gpu_monitor_close(j.monitor);
  brim_free(j.name);
  brim_free(j.folder);
  brim_free(j.shown);
  brim_free(j.place);
  return status;
}

const brim_cli_command brim_cli_worker = {
    .name = "worker",
    .summary = BRIM_N_("run experiments that a server hands out"),
    .usage = "--url URL [--device DEV] [--output-dir DIR]",
    .about = BRIM_N_(
        "worker joins the pool of a brim serve and runs its experiments on this machine: one per "
        "GPU, or --jobs of them on the CPU. It may leave at any time: Ctrl-C stops the trainings "
        "at a checkpoint, and the server gives what is left to others. While the "
        "server cannot be reached, trainings continue and their results are kept."),
    .examples = BRIM_N_(
        "join a pool\nbrim worker --url https://server:8000 --token-file token.txt\nuse two GPUs "
        "only\nbrim worker --url https://server:8000 --device 0,1\n"),
    .options = worker_options,
    .run = worker_run,
    .interrupt = BRIM_CLI_SAVES,
};

//-------------------------------------------- server --------------------------------------------

enum {
  PORT = 8000,
  TEND_MS = 1000,
  WORKER_RETRY_MS = 2000,
  WORKER_GRACE_MS = 90000,
  MOST_FILES = 4096
};
enum { LONGEST_KEEP = 36500, CERT_DAYS = 14 };  // days

static const char *const keep_choices[] = {"all", "best", NULL};

static const brim_option options[] = {
    {.name = "store",
     .kind = BRIM_OPTION_STRING,
     .metavar = "PLACE",
     .help = BRIM_N_("store of the experiments: a folder or a postgres:// URL"),
     .default_text = "runs/serve"},
    {.name = "output-dir",
     .kind = BRIM_OPTION_STRING,
     .metavar = "DIR",
     .help = BRIM_N_("folder for files of experiments"),
     .default_text = "runs/serve"},
    {.name = "server-only", .help = BRIM_N_("run no experiments on this machine")},
    {.name = "client-only",
     .help = BRIM_N_("serve nothing: join the pool at --url, as brim worker does")},
    {.name = "lease",
     .kind = BRIM_OPTION_FLOAT,
     .metavar = "S",
     .help = BRIM_N_("seconds without contact before an experiment is queued again"),
     .default_text = "60"},
    {.name = "backoff",
     .kind = BRIM_OPTION_FLOAT,
     .metavar = "S",
     .help = BRIM_N_("seconds before the first retry; twice as long before the next"),
     .default_text = "5"},
    {.name = "keep-days",
     .kind = BRIM_OPTION_INT,
     .metavar = "N",
     .help = BRIM_N_("remove files of an experiment N days after its end (0 = keep them)"),
     .default_text = "0",
     .group = BRIM_N_("Files")},
    {.name = "keep-checkpoints",
     .kind = BRIM_OPTION_ENUM,
     .metavar = "WHICH",
     .choices = keep_choices,
     .help = BRIM_N_("checkpoints of experiments that are done; best: without the last one"),
     .default_text = "all",
     .group = BRIM_N_("Files")},
    {.name = "webhook",
     .kind = BRIM_OPTION_STRING,
     .metavar = "URL",
     .help = BRIM_N_("address to notify of failed experiments and ended grids")},
    {.name = "address",
     .kind = BRIM_OPTION_STRING,
     .metavar = "ADDR",
     .help = BRIM_N_("address to listen at; 0.0.0.0 or :: for every network"),
     .default_text = "127.0.0.1",
     .group = BRIM_N_("Network")},
    {.name = "port",
     .kind = BRIM_OPTION_INT,
     .metavar = "N",
     .help = BRIM_N_("port to listen at (0 = any free one)"),
     .default_text = "8000",
     .group = BRIM_N_("Network")},
    {.name = "cert",
     .kind = BRIM_OPTION_STRING,
     .metavar = "FILE",
     .help = BRIM_N_("TLS certificate, PEM"),
     .group = BRIM_N_("Network")},
    {.name = "key",
     .kind = BRIM_OPTION_STRING,
     .metavar = "FILE",
     .help = BRIM_N_("key of the certificate, PEM"),
     .group = BRIM_N_("Network")},
    {.name = "insecure",
     .help = BRIM_N_("listen at other addresses without TLS or tokens; connect without TLS"),
     .group = BRIM_N_("Network")},
    BRIM_CLI_WORKER_MACHINE,
    {.name = "url",
     .kind = BRIM_OPTION_STRING,
     .metavar = "URL",
     .help = BRIM_N_("address of the server: https://server:8000"),
     .group = BRIM_N_("With --client-only")},
    BRIM_CLI_WORKER_TRUST(BRIM_N_("With --client-only")),
    {.name = "role",
     .kind = BRIM_OPTION_STRING,
     .metavar = "ROLE",
     .help = BRIM_N_("token add: read, submit, worker or admin"),
     .default_text = "read",
     .group = BRIM_N_("Tokens")},
    {0},
};

typedef struct serving {
  brim_cli *cli;
  brim_store *store;
  brim_lab_pool *pool;
  grid_facts grids;
  brim_child *worker;
  char token[BRIM_TOKEN];    // token of this machine's worker
  char control[BRIM_TOKEN];  // token of the owner's commands (`brim serve token`)
  char pin[BRIM_HTTP_PIN];   // pin of the certificate; "" = no TLS
  brim_time worker_time;     // when the worker was started
} serving;

static const char *place_of(const brim_cli *cli) {
  const char *variable = getenv("BRIM_STORE");
  return brim_option_string(&cli->parse, "store", variable && *variable ? variable : "runs/serve");
}

//---------------------------------- the worker of this machine ----------------------------------

// The URL of the server for this machine: the address where it listens, or the loopback address if it listens at every
// address.
static void local_url(const serving *s, char *out, size_t size) {
  const char *address = brim_option_string(&s->cli->parse, "address", "127.0.0.1");
  if (strcmp(address, "0.0.0.0") == 0) address = "127.0.0.1";
  if (strcmp(address, "::") == 0) address = "::1";
  bool colons = strchr(address, ':') != NULL;
  snprintf(out, size, "%s://%s%s%s:%d", s->pin[0] ? "https" : "http", colons ? "[" : "", address,
           colons ? "]" : "", brim_lab_pool_port(s->pool));
}

static const char *folder_of(const brim_cli *cli) {
  return brim_option_string(&cli->parse, "output-dir", "runs/serve");
}

// The token of this machine's worker stays the same after a restart: trainings that outlived the server use it.
static brim_status read_or_make_token(serving *s) {
  char *path = brim_fs_join(folder_of(s->cli), "local.token"), *text = NULL;
  brim_status status = path ? brim_fs_mkdirs(folder_of(s->cli))
                            : brim_fail(BRIM_ENOMEM, "out of memory while starting a worker");
  if (!status) status = read_private(path, &text);
  if (!status && strlen(text) == BRIM_TOKEN - 1 && strncmp(text, "brim_", 5) == 0) {
    memcpy(s->token, text, BRIM_TOKEN);
  } else if (!status || status == BRIM_ENOENT) {
    brim_status_clear();
    status = brim_token_make(s->token);
    if (!status) status = brim_cli_write_private(path, s->token);
  }
  brim_free(text);
  brim_free(path);
  return status;
}

// Adds the options about this machine for its worker: at most 8 words, and a NULL at the end.
static void add_machine_words(const brim_option_parse *parse, const char **out) {
  static const char *const with_value[] = {"device", "--device", "jobs", "--jobs",
                                           "stall",  "--stall",  NULL};
  for (const char *const *name = with_value; *name; name += 2) {
    const char *value = brim_option_string(parse, name[0], NULL);
    if (!value) continue;
    *out++ = name[1];
    *out++ = value;
  }
  if (brim_option_flag(parse, "share", false)) *out++ = "--share";
  if (!brim_option_flag(parse, "mps", true)) *out++ = "--no-mps";
  *out = NULL;
}

static brim_status start_worker(serving *s) {
  char url[320], token_env[sizeof s->token + 16], pin_env[sizeof s->pin + 16];
  char *program = NULL;
  BRIM_TRY(brim_fs_exe(&program));
  local_url(s, url, sizeof url);
  snprintf(token_env, sizeof token_env, BRIM_LAB_TOKEN_ENV "=%s", s->token);
  const char *argv[24] = {program, "--quiet",      "worker",         "--url",
                          url,     "--output-dir", folder_of(s->cli)};
  add_machine_words(&s->cli->parse, argv + 7);
  snprintf(pin_env, sizeof pin_env, BRIM_LAB_PIN_ENV "=%s", s->pin);
  const char *const env[] = {token_env, pin_env, BRIM_LAB_INSECURE_ENV "=1", NULL};
  const brim_child_options how = {.argv = argv,
                                  .env_change = env,
                                  .in = BRIM_CHILD_NULL,
                                  .out = BRIM_CHILD_NULL,
                                  .err = BRIM_CHILD_INHERIT,
                                  .die_with_parent = true};
  brim_status status = brim_child_start(&how, &s->worker);
  s->worker_time = brim_clock_now();
  brim_free(program);
  return status;
}

// Restarts a worker that ended, after a pause.
static brim_status keep_worker(serving *s) {
  if (brim_option_flag(&s->cli->parse, "server-only", false)) return BRIM_OK;
  if (s->worker) {
    bool ended = false;
    if (brim_child_poll(s->worker, &ended)) brim_status_clear();
    if (!ended) return BRIM_OK;
    brim_child_close(s->worker);
    s->worker = NULL;
    brim_cli_note(s->cli, "%s", brim_tr("the worker of this machine ended; brim starts another\n"));
  }
  if (s->worker_time.ns &&
      brim_time_since_ns(s->worker_time, brim_clock_now()) < WORKER_RETRY_MS * 1000000LL) {
    return BRIM_OK;
  }
  return start_worker(s);
}

//---------------------------------- serving ----------------------------------

static brim_status count_token(void *ctx, const brim_store_token *t) {
  (void)t;
  ++*(int *)ctx;
  return BRIM_OK;
}

// Requires TLS and a token if other machines can connect, unless --insecure is given.
static brim_status check_network(serving *s) {
  const brim_option_parse *parse = &s->cli->parse;
  const char *address = brim_option_string(parse, "address", "127.0.0.1");
  int tokens = 0;
  if (brim_http_is_loopback(address) || brim_option_flag(parse, "insecure", false)) return BRIM_OK;
  if (!brim_option_string(parse, "cert", NULL)) {
    return brim_cli_usage(s->cli,
                          BRIM_N_("at %s other machines can read along: give --cert and --key, or "
                                  "--insecure"),
                          address);
  }
  BRIM_TRY(brim_store_tokens(s->store, count_token, &tokens));
  if (tokens > 0) return BRIM_OK;
  return brim_cli_usage(s->cli,
                        BRIM_N_("at %s everybody could submit: make a token first (brim "
                                "serve token add NAME), or give --insecure"),
                        address);
}

// Warns of a certificate that has expired or will soon: workers with --ca refuse it. Workers with --pin do not check
// the date.
static brim_status check_expiry(const char *file, const char *pem) {
  int64_t end_s = 0;
  char when[32];
  BRIM_TRY(brim_http_certificate_end(pem, &end_s));
  double left_s = (double)end_s - brim_clock_wall_s();
  brim_clock_iso8601((double)end_s, when);
  if (left_s < 0) {
    brim_log_warn(
        "serve",
        "the certificate %s expired on %.10s: workers with --ca refuse it; make a new one "
        "and restart",
        file, when);
  } else if (left_s < CERT_DAYS * 86400.0) {
    brim_log_warn("serve", "the certificate %s expires on %.10s; make a new one before and restart",
                  file, when);
  }
  return BRIM_OK;
}

static brim_status read_pin(serving *s) {
  const char *file = brim_option_string(&s->cli->parse, "cert", NULL);
  char *pem = NULL;
  warn_readable(brim_option_string(&s->cli->parse, "key", NULL));
  if (!file) return BRIM_OK;
  BRIM_TRY(brim_fs_read(file, 1 << 20, &pem, NULL));
  brim_status status = brim_http_pin(pem, s->pin);
  if (!status) status = check_expiry(file, pem);
  brim_free(pem);
  return status;
}

// Raises the limit of open files: each connection is an open file, and shells often allow 1024.
static void allow_connections(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= MOST_FILES) return;
  limit.rlim_cur = limit.rlim_max < MOST_FILES ? limit.rlim_max : MOST_FILES;
  (void)setrlimit(RLIMIT_NOFILE, &limit);
}

static brim_status open_pool(serving *s) {
  const brim_option_parse *parse = &s->cli->parse;
  const brim_lab_pool_options how = {
      .store = s->store,
      .version = BRIM_VERSION,
      .address = brim_option_string(parse, "address", "127.0.0.1"),
      .port = (int)brim_option_int(parse, "port", PORT),
      .certificate = brim_option_string(parse, "cert", NULL),
      .key = brim_option_string(parse, "key", NULL),
      .open = brim_option_flag(parse, "insecure", false),
      .local_token = s->token[0] ? s->token : NULL,
      .control_token = s->control[0] ? s->control : NULL,
      .files = folder_of(s->cli),
      .keep_days = brim_option_int(parse, "keep-days", 0),
      .drop_checkpoints = strcmp(brim_option_string(parse, "keep-checkpoints", "all"), "best") == 0,
      .maker = &s->grids.maker,
      .webhook = brim_option_string(parse, "webhook", NULL),
  };
  return brim_lab_pool_open(&how, &s->pool);
}

static brim_status report_address(serving *s) {
  const brim_option_parse *parse = &s->cli->parse;
  const char *address = brim_option_string(parse, "address", "127.0.0.1");
  const char *scheme = brim_option_string(parse, "cert", NULL) ? "https" : "http";
  int port = brim_lab_pool_port(s->pool);
  if (s->cli->json) {
    json_t *f = json_object();
    brim_status status = brim_json_put(f, "address", json_string(address));
    if (!status) status = brim_json_put(f, "port", json_integer(port));
    if (!status && s->pin[0]) status = brim_json_put(f, "pin", json_string(s->pin));
    return brim_cli_finish_event(s->cli, "serving", f, status);
  }
  brim_cli_note(s->cli, brim_tr("brim serves %s at %s://%s:%d\n"), brim_store_place(s->store),
                scheme, address, port);
  if (s->pin[0]) brim_cli_note(s->cli, brim_tr("workers trust it with --pin %s\n"), s->pin);
  return BRIM_OK;
}

// Writes serve.json, with which `brim serve token` reaches the server. A database needs none: the command opens it.
static brim_status write_control(serving *s) {
  control_file control = {0};
  if (brim_store_is_url(place_of(s->cli))) return BRIM_OK;
  local_url(s, control.url, sizeof control.url);
  snprintf(control.pin, sizeof control.pin, "%s", s->pin);
  memcpy(control.token, s->control, sizeof control.token);
  return control_write(place_of(s->cli), &control);
}

static brim_status serve_until_stopped(serving *s) {
  while (!*s->cli->stop) {
    brim_status status = brim_lab_pool_tend(s->pool);
    if (status == BRIM_EIO) {
      brim_log_warn("serve", "%s", brim_status_detail());
      brim_status_clear();
    } else if (status) {
      return status;
    }
    if (keep_worker(s)) {
      brim_log_warn("serve", "%s", brim_status_detail());
      brim_status_clear();
    }
    for (int waited = 0; waited < TEND_MS && !*s->cli->stop; waited += 100) {
      brim_clock_sleep_ns(100 * 1000000LL);
    }
  }
  return BRIM_OK;
}

static void stop_worker(serving *s) {
  bool ended = false;
  if (!s->worker) return;
  if (!brim_child_stop(s->worker, WORKER_GRACE_MS)) (void)brim_child_wait(s->worker, -1, &ended);
  brim_child_close(s->worker);
}

static brim_status check_numbers(brim_cli *cli) {
  int64_t port = brim_option_int(&cli->parse, "port", PORT);
  if (port < 0 || port > 65535) {
    return brim_cli_usage(cli, BRIM_N_("--%s must be from %d to %d"), "port", 0, 65535);
  }
  int64_t keep = brim_option_int(&cli->parse, "keep-days", 0);
  if (keep < 0 || keep > LONGEST_KEEP) {
    return brim_cli_usage(cli, BRIM_N_("--%s must be from %d to %d"), "keep-days", 0, LONGEST_KEEP);
  }
  return brim_cli_sweep_check(cli);
}

// Refuses the options `names`, which would have no effect.
static brim_status refuse_options(brim_cli *cli, const char *const *names, const char *message) {
  for (; *names; names++) {
    if (brim_option_find(&cli->parse, *names)) return brim_cli_usage(cli, message, *names);
  }
  return BRIM_OK;
}

static brim_status run_client(brim_cli *cli) {
  static const char *const of_servers[] = {
      "store",   "server-only", "lease", "backoff", "keep-days", "keep-checkpoints",
      "webhook", "address",     "port",  "cert",    "key",       "role",
      NULL};
  BRIM_TRY(refuse_options(cli, of_servers,
                          BRIM_N_("--%s is for a server, and --client-only runs none")));
  brim_cli_interrupt_set(BRIM_CLI_SAVES);
  return worker_run(cli);
}

static brim_status run_server(brim_cli *cli) {
  static const char *const of_clients[] = {"url", "token-file", "ca", "pin", NULL};
  serving s = {.cli = cli};
  const bool server_only = brim_option_flag(&cli->parse, "server-only", false);
  static const char *const of_workers[] = {"device", "jobs", "share", "mps", "stall", NULL};
  BRIM_TRY(refuse_options(cli, of_clients,
                          BRIM_N_("--%s needs --client-only: a server connects to none")));
  if (server_only) {
    BRIM_TRY(refuse_options(cli, of_workers,
                            BRIM_N_("--%s is for a worker, and --server-only runs none")));
  }
  BRIM_TRY(check_numbers(cli));
  brim_cli_interrupt_set(server_only ? BRIM_CLI_SERVES : BRIM_CLI_SERVES_HERE);
  double lease = brim_option_float(&cli->parse, "lease", 60.0);
  double backoff = brim_option_float(&cli->parse, "backoff", 5.0);
  const brim_store_options how = {.lease_ms = (int64_t)(lease * 1e3),
                                  .backoff_ms = (int64_t)(backoff * 1e3)};
  BRIM_TRY(brim_store_open(place_of(cli), &how, &s.store));
  brim_status status = check_network(&s);
  if (!status && !server_only) status = read_or_make_token(&s);
  if (!status) status = read_pin(&s);
  if (!status) serve_grids_open(cli, &s.grids);
  allow_connections();
  if (!status) status = brim_token_make(s.control);
  if (!status) status = open_pool(&s);
  if (!status) status = write_control(&s);
  cli->running = !status;
  if (!status) status = report_address(&s);
  if (!status) status = serve_until_stopped(&s);
  stop_worker(&s);
  control_remove(place_of(cli));
  brim_lab_pool_close(s.pool);
  serve_grids_close(&s.grids);
  brim_store_close(s.store);
  return status;
}

static brim_status run(brim_cli *cli) {
  const char *word = cli->parse.positional_count > 0 ? cli->parse.positional[0] : NULL;
  if (word && strcmp(word, "token") == 0) return serve_token(cli, place_of(cli));
  if (word) return brim_cli_usage(cli, BRIM_N_("unknown word '%.100s'"), word);
  return brim_option_flag(&cli->parse, "client-only", false) ? run_client(cli) : run_server(cli);
}

const brim_cli_command brim_cli_serve = {
    .name = "serve",
    .summary = BRIM_N_("queue experiments for workers on several machines"),
    .usage =
        "[--store PLACE] [--server-only] [--address ADDR] [--port N]\n"
        "--client-only --url URL [--device DEV] [--output-dir DIR]\n"
        "token list|add NAME|rotate NAME|end NAME [--role ROLE] [--store PLACE]",
    .about = BRIM_N_(
        "serve keeps the queue of a pool and answers its workers over HTTP. Unless --server-only "
        "is given, it also runs a worker for this machine. brim sweep GRID --store "
        "http://server:8000 submits a grid; brim worker --url on another machine joins the pool. "
        "If a worker is killed or cut off, others continue its experiments at their last "
        "checkpoint, --lease seconds after the last contact. By "
        "default only this machine can connect; other addresses need a certificate and a token. "
        "brim serve --client-only --url URL is the same as brim worker --url URL."),
    .examples = BRIM_N_(
        "serve this machine\nbrim serve\nserve a lab over TLS\nbrim serve --address 0.0.0.0 --cert "
        "cert.pem --key key.pem\nmake a token for workers\nbrim serve token add lab --role "
        "worker\n"),
    .options = options,
    .run = run,
    .interrupt = BRIM_CLI_STOPS,
};
