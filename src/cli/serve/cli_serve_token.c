// `brim serve token`: in a store that no process has open, or through the server that has it.
#include <stdio.h>
#include <string.h>

#include "cli/serve/cli_serve.h"
#include "lab/http/lab_http_client.h"

// role NULL: the one that it had.
static brim_status print_token(brim_cli *cli, const char *id, const char *role, const char *token) {
  if (cli->json) {
    json_t *f = json_object();
    brim_status s = brim_json_put(f, "id", json_string(id));
    if (!s && role) s = brim_json_put(f, "role", json_string(role));
    if (!s) s = brim_json_put(f, "token", json_string(token));
    if (!s) return brim_cli_event(cli, "token", f);
    json_decref(f);
    return s;
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
  if (!s) return brim_cli_event(l->cli, "token", f);
  json_decref(f);
  return s;
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
  brim_role known;
  if (strcmp(word, "end") == 0) return brim_store_token_end(store, id);
  if (!brim_role_of(role, &known)) {
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

// A server that has the SQLite file for itself makes the change.
static brim_status call_server(const char *place, const char *method, const char *path,
                               const char *body, json_t **out) {
  brim_cli_control control;
  brim_http_client *client = NULL;
  brim_http_answer answer;
  BRIM_TRY(brim_cli_control_read(place, &control));
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

static brim_status list_of_server(brim_cli *cli, const json_t *reply) {
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
  brim_role known;
  json_t *reply = NULL;
  brim_status status = BRIM_OK;
  if (!brim_role_of(role, &known)) {
    return brim_cli_usage(cli, BRIM_N_("--role is read, submit, worker or admin"));
  }
  snprintf(body, sizeof body, "{\"id\": \"%s\", \"role\": \"%s\"}", id, role);
  if (strcmp(word, "list") == 0) {
    status = call_server(place, "GET", "/v1/tokens", NULL, &reply);
    if (!status) status = list_of_server(cli, reply);
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

brim_status brim_cli_serve_token(brim_cli *cli, const char *place) {
  const size_t n = cli->parse.positional_count;
  const char *word = n > 1 ? cli->parse.positional[1] : "",
             *id = n > 2 ? cli->parse.positional[2] : "";
  bool list = strcmp(word, "list") == 0;
  bool known =
      list || strcmp(word, "add") == 0 || strcmp(word, "rotate") == 0 || strcmp(word, "end") == 0;
  if (!known || n != (list ? 2u : 3u)) {
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
