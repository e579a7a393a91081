// See lab_attack.h.
#include "lab_attack.h"

#include "lab/grid/lab_grid.h"
#include "workload/workload.h"

static lab_place place;

// The list of workloads adds their keys before main. This reference makes the linker keep it.
static const brim_workload_table *(*const workload_list)(size_t)
    __attribute__((used)) = brim_workload_at;

static brim_status describe(void *ctx, const brim_config *point, brim_lab_point *out) {
  (void)ctx;
  (void)point;
  out->metric_key = "loss";
  return BRIM_OK;
}

static const brim_lab_grid_maker maker = {.describe = describe};

brim_store *attack_store;
brim_lab_pool *attack_pool;
raw_reply got;
char attack_tokens[BRIM_ROLE_COUNT][BRIM_TOKEN], attack_ended[BRIM_TOKEN];

void attack_open(const brim_lab_pool_options *limits) {
  attack_store = lab_fresh(&place);
  brim_lab_pool_options options = *limits;
  options.store = attack_store;
  options.version = "9.9";
  options.files = "attacked";
  options.maker = &maker;
  brim_status status = brim_lab_pool_open(&options, &attack_pool);
  if (status == BRIM_EUNSUPPORTED) BRIM_SKIP_ALL(brim_status_detail());
  assert_ok(status);
}

int attack_setup(void **state) {
  (void)state;
  attack_open(&(brim_lab_pool_options){0});
  return 0;
}

int attack_teardown_large(void **state) {
  (void)state;
  brim_lab_pool_close(attack_pool);
  brim_store_close(attack_store);
  return 0;
}

int attack_teardown(void **state) {
  lab_check(attack_store);
  return attack_teardown_large(state);
}

static void add_token(const char *id, const char *role, char token[BRIM_TOKEN]) {
  char sha[65];
  assert_ok(brim_token_make(token));
  brim_token_hash(token, sha);
  assert_ok(brim_store_token_add(attack_store,
                                 &(brim_store_token){.id = id, .role = role, .sha256 = sha}));
}

// A token for each role, named after it, and one that has expired. A worker with the token runs experiment 1.
int attack_setup_tokens(void **state) {
  attack_setup(state);
  for (int i = 0; i < BRIM_ROLE_COUNT; i++) {
    add_token(brim_role_name((brim_role)i), brim_role_name((brim_role)i), attack_tokens[i]);
  }
  add_token("gone", "admin", attack_ended);
  assert_ok(brim_store_token_end(attack_store, "gone"));
  lab_submit(attack_store, "g1", 1, 2);
  brim_store_claimed c;
  assert_ok(
      brim_store_claim(attack_store,
                       &(brim_store_request){
                           .worker = "worker.a", .claim_id = "c", .free_gpus = 1, .free_bytes = -1},
                       &c));
  assert_non_null(c.exp);
  brim_store_exp_free(c.exp);
  assert_ok(brim_lab_pool_tend(attack_pool));
  return 0;
}

//---------------------------------- asking ----------------------------------

const char *bearer(const char *token) {
  static char line[256];
  snprintf(line, sizeof line, "Authorization: Bearer %s\r\n", token);
  return line;
}

int ask(const char *method, const char *path, const char *headers, const char *body) {
  return raw_ask(brim_lab_pool_port(attack_pool), method, path, headers, body, &got);
}

int ask_as(brim_role role, const char *method, const char *path, const char *body) {
  return ask(method, path, bearer(attack_tokens[role]), body);
}

int ask_bytes(const char *text) {
  return raw_bytes(brim_lab_pool_port(attack_pool), text, strlen(text), &got);
}

const brim_pool_route *next_route(const brim_pool_route *r) {
  bool found = !r;
  for (const brim_pool_route *const *t = brim_pool_routes; *t; t++) {
    for (const brim_pool_route *row = *t; row->method; row++) {
      if (found) return row;
      found = row == r;
    }
  }
  return NULL;
}

bool takes_a_token(const brim_pool_route *r) {
  return strcmp(r->path, "v1/session") != 0 && strcmp(r->path, "healthz") != 0;
}

// The body is bytes, not JSON.
bool is_raw(const brim_pool_route *r) { return strstr(r->path, "/files/") != NULL; }

// A plain value for a part ":name" of a path.
static const char *plain_part(const char *name, size_t n) {
  static char id[BRIM_EXP_ID];
  if (strncmp(name, ":exp", n) == 0) return lab_id(1, id);
  if (strncmp(name, ":worker", n) == 0) return "worker.a";
  if (strncmp(name, ":attempt", n) == 0) return "1";
  if (strncmp(name, ":name", n) == 0) return "stdout";
  return "nothing";
}

// Makes the path of a route. `at`: number of the parameter, from 0, that `instead` replaces; false: it has fewer.
bool spell_path(const brim_pool_route *r, int at, const char *instead, char *out, size_t size) {
  int count = 0;
  size_t used = 0;
  for (const char *p = r->path; *p;) {
    size_t n = strcspn(p, "/");
    bool param = p[0] == ':';
    const char *part = param ? plain_part(p, n) : p;
    if (param && count++ == at) part = instead;
    used += (size_t)snprintf(out + used, size - used, "/%.*s", param ? (int)strlen(part) : (int)n,
                             part);
    assert_true(used < size);
    p += n;
    p += *p == '/';
  }
  return count > at;
}

const char *path_of(const brim_pool_route *r) {
  static char path[256];
  spell_path(r, -1, NULL, path, sizeof path);
  return path;
}

const char *body_of(const brim_pool_route *r) { return r->body_max > 0 ? "{}" : NULL; }

void expect(bool good, const brim_pool_route *r, const char *what) {
  if (!good) fail_msg("%s %s, %s: %.600s", r->method, r->path, what, got.text);
}
