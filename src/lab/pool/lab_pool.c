// The server (lab_pool.h). A request is admitted by its route and its caller, becomes an operation of
// lab_wire.h, and is carried out under a lock of the store: one for writers, one for readers. Long replies
// are made in pieces, each under the lock, so that other requests do not wait for a slow reader.

#include "lab/pool/lab_pool.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include "base/base_alloc.h"
#include "base/base_clock.h"
#include "base/base_sha256.h"
#include "base/base_status.h"
#include "config/config.h"
#include "lab/http/lab_http_url.h"
#include "lab/pool/lab_pool_int.h"
#include "lab/wire/lab_wire.h"
#include "lab/wire/lab_wire_files.h"
#include "web/web.h"

//------------------------------------------- replies -------------------------------------------
static int http_status(brim_status status) {
  switch (status) {
    case BRIM_OK:
      return 200;
    case BRIM_EINVAL:
    case BRIM_EPARSE:
      return 400;
    case BRIM_ENOENT:
      return 404;
    case BRIM_EEXIST:
    case BRIM_ESTATE:
      return 409;
    case BRIM_ELIMIT:
      return 413;
    case BRIM_EUNSUPPORTED:
      return 501;
    case BRIM_EIO:
    case BRIM_ENOMEM:
      return 503;
    default:
      return 500;
  }
}

void brim_pool_reply_failure(brim_http_reply *reply, brim_status status) {
  char detail[512];
  snprintf(detail, sizeof detail, "%s", brim_status_detail());
  brim_str_clear(&reply->body);
  reply->status = http_status(status);
  if (!brim_lab_ops_error(status, &reply->body)) return;
  brim_http_reply_error(reply, http_status(status), detail);
}

void brim_pool_reply_line(brim_http_reply *reply, json_t *line, brim_status status) {
  char *text = NULL;
  if (!status && !json_object_get(line, "ok")) status = brim_json_put(line, "ok", json_true());
  if (!status) status = brim_json_dump(line, 0, &text);
  json_decref(line);
  if (status) {
    brim_pool_reply_failure(reply, status);
    return;
  }
  brim_str_printf(&reply->body, "%s\n", text);
  brim_free(text);
}

// A worker's name begins with the id of its token: "lab" or "lab.box7".
static bool is_own_name(const brim_pool_caller *caller, const char *worker) {
  size_t n = strlen(caller->id);
  if (caller->role == BRIM_ROLE_ADMIN) return true;
  return worker && strncmp(worker, caller->id, n) == 0 && (worker[n] == '\0' || worker[n] == '.');
}

brim_status brim_pool_check_own(brim_lab_pool *pool, const brim_pool_route *route,
                                const brim_pool_caller *caller, const json_t *request) {
  char worker[65] = "";
  const char *name = json_string_value(json_object_get(request, "worker"));
  if (caller->role == BRIM_ROLE_ADMIN) return BRIM_OK;
  if (!strstr(route->path, ":worker")) {  // the attempt knows its worker, whatever the body says
    const json_t *ref = json_object_get(request, "ref");
    const char *exp = json_string_value(json_object_get(ref, "exp"));
    int64_t n = json_integer_value(json_object_get(ref, "attempt"));
    BRIM_TRY(brim_store_attempt_worker(pool->options.store, exp ? exp : "", n, worker));
    name = worker;
  }
  if (is_own_name(caller, name)) return BRIM_OK;
  return brim_fail(BRIM_EINVAL, "'%s' is no worker of the token %s", name, caller->id);
}

//-------------------------------------------- routes --------------------------------------------
// Finds the row of brim_pool_routes for a request, and reads its path, query and body.

// Limits of body bytes.
enum { BODY_METRICS = 10 << 20, BODY_GRID = 32 << 20 };

//---------------------------------- finding ----------------------------------

// Adds a part of the path as a field: "attempt" is a number, the others are texts.
static brim_status put_part(json_t *request, const char *name, const char *value) {
  int64_t number;
  if (strcmp(name, "attempt") != 0) return brim_json_put(request, name, json_string(value));
  if (!brim_parse_i64(value, &number) || number < 0) {
    return brim_fail(BRIM_EINVAL, "'%s' is no number of an attempt", value);
  }
  return brim_json_put(request, name, json_integer(number));
}

// True if the parts of the path match the row.
static bool path_matches(const char *pattern, char *const parts[BRIM_HTTP_PARTS], int count) {
  const char *p = pattern;
  for (int i = 0; i < count; i++) {
    size_t n = strcspn(p, "/");
    if (n == 0 || (p[0] != ':' && (strlen(parts[i]) != n || strncmp(p, parts[i], n) != 0))) {
      return false;
    }
    p += n;
    p += *p == '/';
  }
  return *p == '\0';
}

static bool put_parts(const char *pattern, char *const parts[BRIM_HTTP_PARTS], json_t *request) {
  const char *p = pattern;
  for (int i = 0; *p; i++) {
    size_t n = strcspn(p, "/");
    char name[32];
    snprintf(name, sizeof name, "%.*s", (int)(n - (p[0] == ':')), p + (p[0] == ':'));
    if (p[0] == ':' && put_part(request, name, parts[i])) return false;
    p += n;
    p += *p == '/';
  }
  return true;
}

const brim_pool_route *brim_pool_route_find(const char *method, const char *path, json_t *request,
                                            bool *known) {
  char copy[BRIM_HTTP_PATH_MAX], *parts[BRIM_HTTP_PARTS];
  *known = false;
  snprintf(copy, sizeof copy, "%s", path);
  int count = brim_http_path_split(copy, parts);
  if (strcmp(method, "HEAD") == 0) method = "GET";
  for (const brim_pool_route *const *t = brim_pool_routes; *t && count > 0; t++) {
    for (const brim_pool_route *r = *t; r->method; r++) {
      if (!path_matches(r->path, parts, count)) continue;
      *known = true;
      if (strcmp(r->method, method) != 0) continue;
      if (request && !put_parts(r->path, parts, request)) return NULL;
      return r;
    }
  }
  return NULL;
}

const brim_pool_route *brim_pool_route_of(brim_lab_op op) {
  for (const brim_pool_route *r = brim_pool_routes[0]; r->method; r++) {
    if (r->op == op && op != BRIM_LAB_OP_COUNT) return r;
  }
  return NULL;
}

size_t brim_pool_call_max(brim_role role) {
  size_t most = BRIM_POOL_BODY_SMALL;
  for (const brim_pool_route *r = brim_pool_routes[0]; r->method; r++) {
    bool mine = r->op != BRIM_LAB_OP_COUNT && brim_role_allows(role, r->role);
    if (mine && r->body_max > most) most = r->body_max;
  }
  return most;
}

//---------------------------------- reading ----------------------------------

static brim_status put_list(json_t *request, const char *name, const char *value) {
  json_t *list = json_array();
  BRIM_TRY(brim_json_put(request, name, list));
  while (*value) {
    size_t n = strcspn(value, ",");
    if (n > 0) BRIM_TRY(brim_json_push(list, json_stringn(value, n)));
    value += n;
    value += *value == ',';
  }
  return BRIM_OK;
}

// Adds a query parameter as a field. kind: 's' text, 'l' list separated by commas, 'i' integer, 'b'
// bool.
static brim_status put_value(json_t *request, const char *name, char kind, const char *value) {
  int64_t number;
  bool flag;
  if (kind == 's') return brim_json_put(request, name, json_string(value));
  if (kind == 'l') return put_list(request, name, value);
  if (kind == 'i' && brim_parse_i64(value, &number)) {
    return brim_json_put(request, name, json_integer(number));
  }
  if (kind == 'b' && brim_parse_bool(value, &flag)) {
    return brim_json_put(request, name, json_boolean(flag));
  }
  return brim_fail(BRIM_EINVAL, kind == 'i' ? "%s is a whole number" : "%s is true or false", name);
}

// How many JSON values a body may hold, given the body limit of its route.
static size_t json_value_limit(size_t body_max) {
  return body_max > BRIM_POOL_BODY_SMALL ? BRIM_JSON_VALUES : BRIM_JSON_VALUES_SMALL;
}

brim_status brim_pool_body(const brim_http_request *http, size_t values, json_t **out) {
  return brim_json_parse_within(http->body, http->body_size, "body", &values, out);
}

// Reads the query of a GET, or the body, as fields. Fields of the path are put in later and win.
static brim_status request_read(const brim_pool_route *route, const brim_http_request *http,
                                json_t *request) {
  const char *key = NULL;
  bool query = strcmp(route->method, "GET") == 0;
  for (size_t i = 0; query; i++) {
    char kind = brim_lab_op_field(route->op, i, &key);
    if (!key) break;
    const char *value = kind ? brim_http_query(http, key) : NULL;
    if (value) BRIM_TRY(put_value(request, key, kind, value));
  }
  if (http->body_size == 0) return BRIM_OK;
  json_t *body = NULL;
  BRIM_TRY(brim_pool_body(http, json_value_limit(route->body_max), &body));
  bool good = json_is_object(body) && json_object_update(request, body) == 0;
  json_decref(body);
  return good ? BRIM_OK : brim_fail(BRIM_EINVAL, "the body is a JSON object");
}

//------------------------------------------- metrics -------------------------------------------
// GET /metrics in the text format of Prometheus.

// Upper bounds of the histogram of reply times; the last bucket has none.
static const double bounds[BRIM_POOL_BOUNDS - 1] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
                                                    0.1,   0.25,   0.5,   1,    2.5};

static void stats_init(brim_pool_stats *s) {
  *s = (brim_pool_stats){0};
  pthread_mutex_init(&s->mutex, NULL);
}

static void stats_deinit(brim_pool_stats *s) { pthread_mutex_destroy(&s->mutex); }

static void stats_reply(brim_pool_stats *s, int status, double seconds) {
  int at = 0;
  if (status == 0) status = 200;
  while (at < BRIM_POOL_BOUNDS - 1 && seconds > bounds[at]) at++;
  pthread_mutex_lock(&s->mutex);
  if (status > 0 && status < BRIM_POOL_STATUSES) s->by_status[status]++;
  s->buckets[at]++;
  s->seconds += seconds;
  pthread_mutex_unlock(&s->mutex);
}

//---------------------------------- text ----------------------------------

static void put_head(brim_str *out, const char *name, const char *type, const char *help) {
  brim_str_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

// Appends the value of a label, escaped: texts of workers may have any character.
static void put_label(brim_str *out, const char *text) {
  for (; text && *text; text++) {
    if (*text == '\n') {
      brim_str_append(out, "\\n");
      continue;
    }
    if (*text == '"' || *text == '\\') brim_str_append_char(out, '\\');
    brim_str_append_char(out, *text);
  }
}

static void put_number(brim_str *out, double value) {
  char text[32];
  brim_format_f64(value, text);
  brim_str_printf(out, " %s\n", isnan(value) ? "NaN" : text);
}

static void put_replies(brim_str *out, brim_pool_stats *s) {
  static const char name[] = "brim_http_request_duration_seconds";
  int64_t count = 0;
  pthread_mutex_lock(&s->mutex);
  put_head(out, "brim_http_requests_total", "counter", "Replies by HTTP status.");
  for (int i = 0; i < BRIM_POOL_STATUSES; i++) {
    if (s->by_status[i] == 0) continue;
    brim_str_printf(out, "brim_http_requests_total{status=\"%d\"} %lld\n", i,
                    (long long)s->by_status[i]);
  }
  put_head(out, name, "histogram", "Time until a reply was made.");
  for (int i = 0; i < BRIM_POOL_BOUNDS; i++) {
    char bound[32] = "+Inf";
    count += s->buckets[i];
    if (i < BRIM_POOL_BOUNDS - 1) brim_format_f64(bounds[i], bound);
    brim_str_printf(out, "%s_bucket{le=\"%s\"} %lld\n", name, bound, (long long)count);
  }
  brim_str_printf(out, "%s_sum", name);
  put_number(out, s->seconds);
  brim_str_printf(out, "%s_count %lld\n", name, (long long)count);
  pthread_mutex_unlock(&s->mutex);
}

static void put_listeners(brim_str *out, brim_pool_feed *feed) {
  pthread_mutex_lock(&feed->mutex);
  const int listeners = feed->listeners;
  pthread_mutex_unlock(&feed->mutex);
  put_head(out, "brim_listeners", "gauge", "Open streams of events.");
  brim_str_printf(out, "brim_listeners %d\n", listeners);
}

//---------------------------------- workers ----------------------------------

typedef struct workers {
  int64_t now;
  json_t *list;  // [{status, id}] of workers that reported lately
} workers;

static brim_status add_worker(void *ctx, const brim_store_worker *w) {
  workers *all = (workers *)ctx;
  json_t *status = NULL, *row = NULL;
  if (all->now - w->last_seen > BRIM_WORKER_GONE_MS) return BRIM_OK;
  if (w->status[0] && brim_json_parse(w->status, strlen(w->status), "status", &status)) {
    brim_status_clear();
  }
  row = json_object();
  BRIM_TRY(brim_json_push(all->list, row));
  BRIM_TRY(brim_json_put(row, "status", status ? status : json_object()));
  return brim_json_put(row, "id", brim_lab_wire_text(w->id));
}

static void put_gpu_metric(brim_str *out, const workers *all, const char *name, const char *help,
                           const char *field) {
  put_head(out, name, "gauge", help);
  for (size_t i = 0; i < json_array_size(all->list); i++) {
    const json_t *row = json_array_get(all->list, i);
    const json_t *gpus = json_object_get(json_object_get(row, "status"), "gpus");
    for (size_t g = 0; g < json_array_size(gpus); g++) {
      const json_t *gpu = json_array_get(gpus, g), *value = json_object_get(gpu, field);
      if (!json_is_number(value)) continue;
      brim_str_printf(out, "%s{worker=\"", name);
      put_label(out, json_string_value(json_object_get(row, "id")));
      brim_str_append(out, "\",gpu=\"");
      put_label(out, json_string_value(json_object_get(gpu, "uuid")));
      brim_str_append(out, "\"}");
      put_number(out, json_number_value(value));
    }
  }
}

static void put_workers(brim_str *out, const workers *all) {
  put_head(out, "brim_workers", "gauge", "Workers that reported within 45 seconds.");
  brim_str_printf(out, "brim_workers %zu\n", json_array_size(all->list));
  put_gpu_metric(out, all, "brim_gpu_utilization_percent", "Time in which a kernel ran.", "util");
  put_gpu_metric(out, all, "brim_gpu_memory_used_bytes", "Device memory in use.", "memory_used");
  put_gpu_metric(out, all, "brim_gpu_memory_total_bytes", "Device memory.", "memory_total");
  put_gpu_metric(out, all, "brim_gpu_power_watts", "Power that the GPU draws.", "power_w");
  put_gpu_metric(out, all, "brim_gpu_temperature_celsius", "Temperature of the GPU.", "temp_c");
}

// Leaves out sizes that were not measured: an alarm for a full disk would take a placeholder for a
// measurement.
static void put_disk(brim_str *out, brim_pool_space *r) {
  pthread_mutex_lock(&r->mutex);
  if (r->free_bytes >= 0) {
    put_head(out, "brim_disk_free_bytes", "gauge", "Free space for the store and files.");
    brim_str_printf(out, "brim_disk_free_bytes %lld\n", (long long)r->free_bytes);
    put_head(out, "brim_disk_total_bytes", "gauge", "Size of that disk.");
    brim_str_printf(out, "brim_disk_total_bytes %lld\n", (long long)r->total_bytes);
  }
  put_head(out, "brim_disk_full", "gauge", "1 while the server refuses files or changes.");
  brim_str_printf(out, "brim_disk_full %d\n", r->full ? 1 : 0);
  put_head(out, "brim_disk_refused_total", "counter", "Writes refused for lack of room.");
  brim_str_printf(out, "brim_disk_refused_total %lld\n", (long long)r->refused);
  pthread_mutex_unlock(&r->mutex);
}

static void put_counts(brim_str *out, const brim_store_counts *counts) {
  put_head(out, "brim_experiments", "gauge", "Experiments by state.");
  for (int i = 0; i < BRIM_EXP_STATE_COUNT; i++) {
    brim_str_printf(out, "brim_experiments{state=\"%s\"} %lld\n",
                    brim_exp_state_name((brim_exp_state)i), (long long)counts->states[i]);
  }
}

static void metrics(brim_lab_pool *pool, const brim_pool_caller *caller,
                    const brim_http_request *http, brim_http_reply *reply) {
  brim_store_counts counts;
  workers all = {.list = json_array()};
  brim_str *out = &reply->body;
  int64_t bytes = 0;
  (void)caller;
  (void)http;
  pthread_mutex_lock(&pool->reading.lock);
  brim_store *store = pool->reading.store;
  brim_status status = brim_store_count(store, NULL, &counts);
  if (!status) status = brim_store_now(store, &all.now);
  if (!status) status = brim_store_workers(store, add_worker, &all);
  if (!status) status = brim_store_bytes(store, &bytes);
  pthread_mutex_unlock(&pool->reading.lock);
  if (status) {
    brim_pool_reply_failure(reply, status);
  } else {
    reply->type = "text/plain; version=0.0.4; charset=utf-8";
    put_head(out, "brim_build_info", "gauge", "Version of the server.");
    brim_str_append(out, "brim_build_info{version=\"");
    put_label(out, pool->options.version);
    brim_str_append(out, "\"} 1\n");
    put_counts(out, &counts);
    put_workers(out, &all);
    put_replies(out, &pool->stats);
    put_listeners(out, &pool->feed);
    put_disk(out, &pool->space);
    put_head(out, "brim_connections", "gauge", "Open connections.");
    brim_str_printf(out, "brim_connections %d\n", brim_http_server_connections(pool->http));
    put_head(out, "brim_store_bytes", "gauge", "Size of the store.");
    brim_str_printf(out, "brim_store_bytes %lld\n", (long long)bytes);
  }
  json_decref(all.list);
}

//--------------------------------------------- page ---------------------------------------------
// The dashboard: a page, its script and its style sheet, made from the files of web/ when the pool opens.
// They contain nothing of the store, so callers need no token. The names of script and style sheet contain
// a hash of their content, so browsers may cache them for ever.

enum { GZIP_WINDOW = 15 + 16, GZIP_MEMORY = 8, NAME_DIGITS = 16 };

// The licence of uPlot must accompany its code.
static const char *const licence[] = {"uplot/LICENSE", NULL};
static const char *const scripts[] = {"uplot/uPlot.iife.min.js",
                                      "page.js",
                                      "dashboard/text.js",
                                      "dashboard/base.js",
                                      "dashboard/model.js",
                                      "dashboard/chart.js",
                                      "dashboard/list.js",
                                      "dashboard/one.js",
                                      "dashboard/views.js",
                                      "dashboard/main.js",
                                      NULL};
static const char *const styles[] = {"uplot/uPlot.min.css", "dashboard/dashboard.css", NULL};

static const char policy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src "
    "'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

// The script fills in the rest in the reader's language.
static const char page[] =
    "<!DOCTYPE html>\n"
    "<html lang=\"en\">\n"
    "<head>\n"
    "<meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
    "<meta name=\"color-scheme\" content=\"light dark\">\n"
    "<title>brim</title>\n"
    "<link rel=\"icon\" href=\"data:image/svg+xml,%%3Csvg xmlns='http://www.w3.org/2000/svg' "
    "viewBox='0 0 16 "
    "16'%%3E%%3Crect width='16' height='16' rx='3' fill='%%232b6ecf'/%%3E%%3Cpath d='M3 11l3-4 3 2 "
    "4-5' "
    "stroke='white' stroke-width='2' fill='none'/%%3E%%3C/svg%%3E\">\n"
    "<link rel=\"stylesheet\" href=\"%s\">\n"
    "<script defer src=\"%s\"></script>\n"
    "</head>\n"
    "<body><noscript>This page needs JavaScript. brim sweep status shows the pool in a "
    "terminal.</noscript></body>\n"
    "</html>\n";

//---------------------------------- making ----------------------------------

static brim_status join(const char *const *names, brim_str *out) {
  for (; *names; names++) {
    const brim_web_asset *asset = brim_web_find(*names);
    if (!asset) return brim_fail(BRIM_ENOENT, "the program has no %s", *names);
    brim_str_append_n(out, (const char *)asset->data, asset->size);
    brim_str_append_char(out, '\n');
  }
  return brim_str_status(out) ? brim_fail(BRIM_ENOMEM, "out of memory for the page") : BRIM_OK;
}

static brim_status compress_text(const brim_str *in, brim_str *out) {
  z_stream z = {0};
  char block[16384];
  int result;
  if (deflateInit2(&z, Z_BEST_COMPRESSION, Z_DEFLATED, GZIP_WINDOW, GZIP_MEMORY,
                   Z_DEFAULT_STRATEGY) != Z_OK) {
    return brim_fail(BRIM_ENOMEM, "out of memory for the page");
  }
  union {
    const char *in;
    Bytef *out;
  } bytes = {in->data};  // zlib does not write to it
  z.next_in = bytes.out;
  z.avail_in = (uInt)in->len;
  do {
    z.next_out = (Bytef *)block;
    z.avail_out = sizeof block;
    result = deflate(&z, Z_FINISH);
    brim_str_append_n(out, block, sizeof block - z.avail_out);
  } while (result == Z_OK || result == Z_BUF_ERROR);
  deflateEnd(&z);
  bool good = result == Z_STREAM_END && !brim_str_status(out);
  return good ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory for the page");
}

// Compresses and hashes a file. `name` and `ending` make its path; NULL: it is the page.
static brim_status finish(brim_pool_file *file, const char *name, const char *ending) {
  char hash[65];
  BRIM_TRY(compress_text(&file->plain, &file->gzip));
  brim_sha256_hex(file->plain.data, file->plain.len, hash);
  snprintf(file->hash, sizeof file->hash, "%.*s", NAME_DIGITS, hash);
  if (name) snprintf(file->path, sizeof file->path, "/assets/%s-%s.%s", name, file->hash, ending);
  return BRIM_OK;
}

// Needs page_deinit after a failure, too.
static brim_status page_init(brim_pool_page *p) {
  brim_pool_file *html = &p->files[0], *js = &p->files[1], *css = &p->files[2];
  for (int i = 0; i < BRIM_POOL_FILES; i++) {
    p->files[i] = (brim_pool_file){.path = "/"};
    brim_str_init(&p->files[i].plain);
    brim_str_init(&p->files[i].gzip);
  }
  html->type = "text/html; charset=utf-8";
  js->type = "text/javascript; charset=utf-8";
  css->type = "text/css; charset=utf-8";
  brim_str_append(&js->plain, "/* uPlot\n");
  BRIM_TRY(join(licence, &js->plain));
  brim_str_append(&js->plain, "*/\n");
  BRIM_TRY(join(scripts, &js->plain));
  BRIM_TRY(join(styles, &css->plain));
  BRIM_TRY(finish(js, "dashboard", "js"));
  BRIM_TRY(finish(css, "dashboard", "css"));
  brim_str_printf(&html->plain, page, css->path, js->path);
  if (brim_str_status(&html->plain)) return brim_fail(BRIM_ENOMEM, "out of memory for the page");
  return finish(html, NULL, NULL);
}

static void page_deinit(brim_pool_page *p) {
  for (int i = 0; i < BRIM_POOL_FILES; i++) {
    brim_str_deinit(&p->files[i].plain);
    brim_str_deinit(&p->files[i].gzip);
  }
}

//---------------------------------- serving ----------------------------------

// The file at a path; NULL: it is not of the dashboard.
static const brim_pool_file *page_find(const brim_pool_page *p, const char *path) {
  for (int i = 0; i < BRIM_POOL_FILES; i++) {
    if (strcmp(p->files[i].path, path) == 0) return &p->files[i];
  }
  return NULL;
}

// True if Accept-Encoding has gzip, and not as "gzip;q=0".
static bool takes_gzip(const brim_http_request *request) {
  const char *accepted = brim_http_header(request, "Accept-Encoding");
  const char *at = accepted ? strstr(accepted, "gzip") : NULL;
  return at && strncmp(at + 4, ";q=0", 4) != 0;
}

static void page_serve(const brim_pool_file *file, const brim_http_request *request,
                       brim_http_reply *reply) {
  const char *known = brim_http_header(request, "If-None-Match");
  bool packed = takes_gzip(request), is_page = strcmp(file->path, "/") == 0;
  char tag[BRIM_POOL_HASH + 8];
  snprintf(tag, sizeof tag, "\"%s%s\"", file->hash, packed ? "-gz" : "");
  brim_http_reply_header(reply, "ETag", tag);
  brim_http_reply_header(reply, "Vary", "Accept-Encoding");
  brim_http_reply_header(reply, "Cache-Control",
                         is_page ? "no-cache" : "public, max-age=31536000, immutable");
  brim_http_reply_header(reply, "X-Content-Type-Options", "nosniff");
  brim_http_reply_header(reply, "Referrer-Policy", "no-referrer");
  brim_http_reply_header(reply, "Content-Security-Policy", policy);
  reply->type = file->type;
  if (known && strstr(known, tag)) {
    reply->status = 304;
    return;
  }
  if (packed) brim_http_reply_header(reply, "Content-Encoding", "gzip");
  reply->file = packed ? file->gzip.data : file->plain.data;
  reply->file_size = packed ? file->gzip.len : file->plain.len;
}

//-------------------------------------------- server --------------------------------------------
enum {
  PIECE = 256 << 10,
  LOG_PAGES = 4096,           // a longer log of the store is moved under the lock
  SUSPENDED_MS = 3000,        // a longer gap between two tends: this process was suspended
  VALUE_BYTES = 50,           // memory of a JSON value (base_json.h)
  DOCUMENT_SMALL = 1 << 10,   // smaller bodies are not counted
  DOCUMENTS_MAX = 256 << 20,  // memory of all counted bodies
};

//---------------------------------- roles ----------------------------------

static bool is_reading(const brim_http_request *request) {
  return strcmp(request->method, "GET") == 0 || strcmp(request->method, "HEAD") == 0;
}

static void serve_call(brim_lab_pool *pool, const brim_pool_caller *caller,
                       const brim_http_request *http, brim_http_reply *reply);

static bool may_enter(brim_lab_pool *pool, const brim_http_request *request, brim_http_reply *reply,
                      size_t *body_max) {
  brim_pool_caller caller;
  bool known;
  if (page_find(&pool->page, request->path)) {
    *body_max = 0;
    if (is_reading(request)) return true;
    brim_http_reply_error(reply, 405, "the page can only be read");
    return false;
  }
  const brim_pool_route *route = brim_pool_route_find(request->method, request->path, NULL, &known);
  if (!brim_pool_auth_admit(pool, request, route, known, &caller, reply)) return false;
  // the right to a call is that of the operation in its body
  *body_max = route->serve == serve_call ? brim_pool_call_max(caller.role) : route->body_max;
  return true;
}

static bool admit(void *ctx, const brim_http_request *request, brim_http_reply *reply,
                  size_t *body_max) {
  brim_lab_pool *pool = (brim_lab_pool *)ctx;
  bool admitted = may_enter(pool, request, reply, body_max);
  if (!admitted) stats_reply(&pool->stats, reply->status, 0);
  return admitted;
}

//---------------------------------- replies in pieces ----------------------------------

typedef struct piece_stream {
  brim_lab_pool *pool;
  brim_lab_answer *answer;
  brim_str first;
  bool done;
} piece_stream;

static brim_status next_piece(void *ctx, brim_str *out) {
  piece_stream *p = (piece_stream *)ctx;
  if (p->first.len > 0) {
    brim_str_append_n(out, p->first.data, p->first.len);
    brim_str_clear(&p->first);
    return BRIM_OK;
  }
  if (p->done) return BRIM_EEND;
  pthread_mutex_lock(&p->pool->reading.lock);
  brim_status status = brim_lab_answer_more(p->answer, PIECE, out, &p->done);
  pthread_mutex_unlock(&p->pool->reading.lock);
  return status;
}

static void end_pieces(void *ctx) {
  piece_stream *p = (piece_stream *)ctx;
  brim_lab_answer_free(p->answer);
  brim_str_deinit(&p->first);
  brim_free(p);
}

// Sends the first piece, which is made already; the rest is made as it is sent. Replies of writers are short.
static void reply_pieces(brim_lab_pool *pool, brim_lab_answer *answer, brim_http_reply *reply) {
  piece_stream *p = (piece_stream *)brim_calloc(1, sizeof *p);
  if (!p) {
    brim_lab_answer_free(answer);
    brim_http_reply_error(reply, 503, "out of memory for a reply");
    return;
  }
  *p = (piece_stream){.pool = pool, .answer = answer};
  p->first = reply->body;
  brim_str_init(&reply->body);
  reply->more = next_piece;
  reply->end = end_pieces;
  reply->ctx = p;
}

//---------------------------------- requests ----------------------------------

static void fail_call(brim_pool_call *c, brim_status status) {
  brim_lab_answer_free(c->answer);
  c->answer = NULL;
  brim_pool_reply_failure(c->reply, status);
}

// Carries out a reading request, on the store handle for readers.
static void run_reader(brim_pool_call *c) {
  brim_pool_reading *r = &c->pool->reading;
  pthread_mutex_lock(&r->lock);
  r->caller = c->caller;
  brim_status status = brim_lab_ops_begin_json(&r->ops, json_incref(c->request), &c->answer);
  if (!status) status = brim_lab_answer_more(c->answer, PIECE, &c->reply->body, &c->done);
  pthread_mutex_unlock(&r->lock);
  if (status) fail_call(c, status);
}

// Carries out a request that writes, within a group.
static void run_writer(brim_pool_call *c) {
  brim_lab_pool *pool = c->pool;
  brim_store_set_author(pool->options.store, c->caller->id);
  brim_status status = c->route->role == BRIM_ROLE_WORKER
                           ? brim_pool_check_own(pool, c->route, c->caller, c->request)
                           : BRIM_OK;
  if (!status) status = brim_lab_ops_begin_json(&pool->ops, json_incref(c->request), &c->answer);
  if (!status) status = brim_lab_answer_more(c->answer, SIZE_MAX, &c->reply->body, &c->done);
  brim_store_set_author(pool->options.store, "");
  if (status) fail_call(c, status);
}

//---------------------------------- commits ----------------------------------
// Carries out several requests that write in one transaction: a commit takes milliseconds, for ten requests
// as for one. The first thread carries out its own request. Requests that come meanwhile form the next
// group, which the first of them carries out. No request is answered before its group is on the disk.

enum { GROUP_MAX = 64 };  // a group of slow requests keeps readers of the store waiting

static brim_status commits_init(brim_pool_commits *g) {
  *g = (brim_pool_commits){.last = &g->first};
  pthread_mutex_init(&g->mutex, NULL);
  if (!pthread_cond_init(&g->wake, NULL)) return BRIM_OK;
  pthread_mutex_destroy(&g->mutex);
  return brim_fail(BRIM_ENOMEM, "out of memory for the server");
}

static void commits_deinit(brim_pool_commits *g) {
  pthread_cond_destroy(&g->wake);
  pthread_mutex_destroy(&g->mutex);
}

// Takes at most GROUP_MAX waiting requests.
static brim_pool_call *take_locked(brim_pool_commits *g) {
  brim_pool_call *first = g->first, **end = &g->first;
  for (int n = 0; *end && n < GROUP_MAX; n++) end = &(*end)->next;
  g->first = *end;
  *end = NULL;
  if (!g->first) g->last = &g->first;
  return first;
}

static void carry_out(brim_lab_pool *pool, brim_pool_call *first) {
  brim_store *store = pool->options.store;
  pthread_mutex_lock(&pool->lock);
  brim_status status = brim_store_group_begin(store);
  for (brim_pool_call *c = first; c && !status; c = c->next) run_writer(c);
  if (!status) status = brim_store_group_end(store);
  for (brim_pool_call *c = first; c && status; c = c->next) fail_call(c, status);
  // events that cannot be read now come with the next request, or when the pool is tended
  if (!status && brim_pool_feed_read(&pool->feed, store)) brim_status_clear();
  pthread_mutex_unlock(&pool->lock);
}

// Returns when the call is on the disk, or its reply says why it is not.
static void commit_run(brim_lab_pool *pool, brim_pool_call *call) {
  brim_pool_commits *g = &pool->commits;
  pthread_mutex_lock(&g->mutex);
  call->next = NULL;
  call->ended = false;
  *g->last = call;
  g->last = &call->next;
  while (!call->ended) {
    if (g->busy) {
      pthread_cond_wait(&g->wake, &g->mutex);
      continue;
    }
    brim_pool_call *first = take_locked(g);
    g->busy = true;
    pthread_mutex_unlock(&g->mutex);
    carry_out(pool, first);
    pthread_mutex_lock(&g->mutex);
    g->busy = false;
    for (brim_pool_call *c = first, *next; c; c = next) {
      next = c->next;  // the call is freed once its thread sees that it has ended
      c->ended = true;
    }
    pthread_cond_broadcast(&g->wake);
  }
  pthread_mutex_unlock(&g->mutex);
}

// Carries out an operation and fills the reply. Takes ownership of `request`.
static void handle_request(brim_lab_pool *pool, const brim_pool_route *route,
                           const brim_pool_caller *caller, json_t *request,
                           brim_http_reply *reply) {
  if (route->op == BRIM_LAB_OP_SUBMIT) {
    brim_status status = brim_pool_check_points(pool, request);
    if (status) {
      json_decref(request);
      brim_pool_reply_failure(reply, status);
      return;
    }
  }
  brim_pool_call c = {
      .pool = pool, .route = route, .caller = caller, .request = request, .reply = reply};
  if (route->role == BRIM_ROLE_READ) {
    run_reader(&c);
  } else {
    commit_run(pool, &c);
  }
  bool succeeded = c.answer && !brim_lab_answer_result(c.answer);
  if (succeeded) brim_pool_feed_request(&pool->feed, route->op, request);
  json_decref(request);
  if (!c.answer) return;
  if (!c.done) {
    reply_pieces(pool, c.answer, reply);
    return;
  }
  reply->status = http_status(brim_lab_answer_result(c.answer));
  brim_lab_answer_free(c.answer);
}

// Makes the field "ref" of an attempt from the path and the body.
static brim_status put_ref(json_t *request) {
  static const char *const keys[] = {"exp", "attempt", "fence"};
  json_t *ref = json_object();
  BRIM_TRY(brim_json_put(request, "ref", ref));
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    json_t *value = json_object_get(request, keys[i]);
    if (value) BRIM_TRY(brim_json_put(ref, keys[i], json_incref(value)));
  }
  return BRIM_OK;
}

static brim_status make_request(const brim_pool_route *route, const brim_http_request *http,
                                json_t *request) {
  bool known;
  BRIM_TRY(request_read(route, http, request));
  if (!brim_pool_route_find(http->method, http->path, request, &known)) {
    return brim_fail(BRIM_EINVAL, "the path of the request is malformed");
  }
  if (strstr(route->path, ":attempt")) BRIM_TRY(put_ref(request));
  if (route->op == BRIM_LAB_OP_LIST || route->op == BRIM_LAB_OP_GET) {
    BRIM_TRY(brim_json_put(request, "waits", json_true()));
  }
  return brim_json_put(request, "op", json_string(brim_lab_op_name(route->op)));
}

// POST /v1/call: a request as links send it.
static void serve_call(brim_lab_pool *pool, const brim_pool_caller *caller,
                       const brim_http_request *http, brim_http_reply *reply) {
  json_t *request = NULL;
  size_t values = json_value_limit(brim_pool_call_max(caller->role));
  brim_status status = brim_pool_body(http, values, &request);
  const char *op = json_string_value(json_object_get(request, "op"));
  const brim_pool_route *route = brim_pool_route_of(brim_lab_op_of(op));
  if (!status && !op) status = brim_fail(BRIM_EINVAL, "a call is a JSON object with an op");
  if (!status && !route) {
    status = brim_fail(BRIM_EUNSUPPORTED, "'%s' is no request that this server answers", op);
  }
  if (status) {
    json_decref(request);
    brim_pool_reply_failure(reply, status);
  } else if (!brim_role_allows(caller->role, route->role)) {
    json_decref(request);
    brim_http_reply_error(reply, 403, "the token's role does not allow this");
  } else {
    handle_request(pool, route, caller, request, reply);
  }
}

// A server that cannot write keeps answering reads, so it stays in service.
static void serve_health(brim_lab_pool *pool, const brim_pool_caller *caller,
                         const brim_http_request *http, brim_http_reply *reply) {
  (void)caller;
  (void)http;
  pthread_mutex_lock(&pool->space.mutex);
  const bool full = pool->space.full;
  pthread_mutex_unlock(&pool->space.mutex);
  brim_str_append(&reply->body, full ? "{\"ok\":true,\"disk\":\"full\"}\n" : "{\"ok\":true}\n");
}

//---------------------------------- routes ----------------------------------
// One row per path. The right to an operation is that of its row in lab_wire.h.

// OP: an operation of the store. OWN: a function of the server. OPEN: the same, without a token.
#define OP(method, path, id, body_max) \
  { method, path, (brim_role)BRIM_LAB_RIGHT_##id, BRIM_LAB_OP_##id, body_max, NULL, false }

static const brim_pool_route routes[] = {
    OP("GET", "v1/hello", HELLO, 0),
    OP("GET", "v1/whoami", WHOAMI, 0),
    OP("GET", "v1/counts", COUNTS, 0),
    OP("GET", "v1/exps", LIST, 0),
    OP("GET", "v1/export", EXPORT, 0),
    OP("GET", "v1/find/:exp", FIND, 0),
    OP("GET", "v1/exps/:exp", GET, 0),
    OP("GET", "v1/exps/:exp/attempts", ATTEMPTS, 0),
    OP("GET", "v1/exps/:exp/metrics", METRICS_OF, 0),
    OP("GET", "v1/exps/:exp/curve", CURVE, 0),
    OP("GET", "v1/exps/:exp/files", FILES, 0),
    OP("GET", "v1/grids", GRIDS, 0),
    OP("POST", "v1/curves", CURVES, BRIM_POOL_BODY_SMALL),
    OP("GET", "v1/workers", WORKERS, 0),
    OP("GET", "v1/log", EVENTS, 0),
    OP("POST", "v1/points", SUBMIT, BODY_GRID),
    OP("POST", "v1/exps/:exp/want", WANT, BRIM_POOL_BODY_SMALL),
    OP("POST", "v1/exps/:exp/retry", RETRY, BRIM_POOL_BODY_SMALL),
    OP("POST", "v1/exps/:exp/priority", SET_PRIORITY, BRIM_POOL_BODY_SMALL),
    OP("POST", "v1/want", WANT_EACH, BRIM_POOL_BODY_SMALL),
    OP("POST", "v1/retry", RETRY_EACH, BRIM_POOL_BODY_SMALL),
    OP("POST", "v1/retry-failed", RETRY_FAILED, BRIM_POOL_BODY_SMALL),
    OP("POST", "v1/workers/:worker/drain", DRAIN, BRIM_POOL_BODY_SMALL),
    OP("POST", "v1/workers/:worker/seen", SEEN, BRIM_POOL_BODY_SMALL),
    OP("POST", "v1/workers/:worker/claim", CLAIM, BRIM_POOL_BODY_SMALL),
    OP("POST", "v1/attempts/:exp/:attempt/start", START, BRIM_POOL_BODY_SMALL),
    OP("POST", "v1/attempts/:exp/:attempt/beat", BEAT, BRIM_POOL_BODY_SMALL),
    OP("POST", "v1/attempts/:exp/:attempt/metrics", METRICS, BODY_METRICS),
    OP("POST", "v1/attempts/:exp/:attempt/log", LOG, BRIM_POOL_BODY_SMALL),
    OP("POST", "v1/attempts/:exp/:attempt/checkpoint", CHECKPOINT, BRIM_POOL_BODY_SMALL),
    OP("POST", "v1/attempts/:exp/:attempt/findings", FINDINGS, BRIM_POOL_BODY_SMALL),
    OP("POST", "v1/attempts/:exp/:attempt/finish", FINISH, BRIM_POOL_BODY_SMALL),
    BRIM_POOL_OWN("GET", "metrics", READ, metrics, 0),
    BRIM_POOL_OPEN("GET", "healthz", serve_health, 0),
    BRIM_POOL_OWN("POST", "v1/call", READ, serve_call, BRIM_LAB_REQUEST_MAX / 2),
    {0},
};

const brim_pool_route *const brim_pool_routes[] = {
    routes,
    brim_pool_auth_routes,
    brim_pool_feed_routes,
    brim_pool_file_routes,
    brim_pool_grid_routes,
    brim_pool_group_routes,
    NULL,
};

static void dispatch(brim_lab_pool *pool, const brim_http_request *http, brim_http_reply *reply) {
  brim_pool_caller caller = {.role = BRIM_ROLE_READ};
  bool known;
  const brim_pool_file *file = page_find(&pool->page, http->path);
  if (file) {
    page_serve(file, http, reply);
    return;
  }
  const brim_pool_route *route = brim_pool_route_find(http->method, http->path, NULL, &known);
  brim_http_reply_header(reply, "Cache-Control", "no-store");
  brim_http_reply_header(reply, "X-Content-Type-Options", "nosniff");
  // The token may have ended while the body came.
  if (!route->open && brim_pool_auth_check(&pool->auth, http, &caller)) {
    brim_http_reply_error(reply, 401, "a valid token is needed");
    brim_http_reply_header(reply, "WWW-Authenticate", "Bearer");
    return;
  }
  if (route->serve) {
    route->serve(pool, &caller, http, reply);
    return;
  }
  json_t *request = json_object();
  brim_status status = request ? make_request(route, http, request)
                               : brim_fail(BRIM_ENOMEM, "out of memory for a request");
  if (status) {
    json_decref(request);
    brim_pool_reply_failure(reply, status);
    return;
  }
  handle_request(pool, route, &caller, request, reply);
}

// Upper bound of the memory that the values of a body take beside its texts; "{}," takes the most.
static size_t document_bytes(const brim_http_request *http) {
  size_t values = http->body_size / 3 * 8 + 8;
  return VALUE_BYTES * (values < BRIM_JSON_VALUES ? values : BRIM_JSON_VALUES);
}

// Lets requests with long documents wait until earlier ones are answered: a request is parsed before it
// waits for the store, so many could take all memory.
static bool wait_for_document_memory(brim_lab_pool *pool, const brim_http_request *http) {
  brim_pool_documents *d = &pool->documents;
  if (http->body_size <= DOCUMENT_SMALL || strstr(http->path, "/files/")) return false;
  size_t bytes = document_bytes(http);
  pthread_mutex_lock(&d->mutex);
  while (d->bytes > 0 && d->bytes + bytes > DOCUMENTS_MAX) pthread_cond_wait(&d->wake, &d->mutex);
  d->bytes += bytes;
  pthread_mutex_unlock(&d->mutex);
  return true;
}

static void return_document_memory(brim_lab_pool *pool, const brim_http_request *http) {
  brim_pool_documents *d = &pool->documents;
  pthread_mutex_lock(&d->mutex);
  d->bytes -= document_bytes(http);
  pthread_cond_broadcast(&d->wake);
  pthread_mutex_unlock(&d->mutex);
}

static void serve(void *ctx, const brim_http_request *http, brim_http_reply *reply) {
  brim_lab_pool *pool = (brim_lab_pool *)ctx;
  brim_time begin = brim_clock_now();
  bool counted = wait_for_document_memory(pool, http);
  dispatch(pool, http, reply);
  if (counted) return_document_memory(pool, http);
  if (reply->status == 507 || reply->status == 503) {
    (void)brim_pool_space_refused(pool, reply->body.data);
  }
  double seconds = (double)brim_time_since_ns(begin, brim_clock_now()) * 1e-9;
  stats_reply(&pool->stats, reply->status, seconds);
}

//---------------------------------- opening ----------------------------------

// In the order in which they are opened: each may use those before it.
static const brim_pool_part *const parts[] = {&brim_pool_auth_part, &brim_pool_feed_part,
                                              &brim_pool_files_part, &brim_pool_hook_part};
enum { PARTS = sizeof parts / sizeof *parts };

// Called under the lock of `reading`, which guards its caller.
static brim_status answer_whoami(void *ctx, const brim_lab_request *request, brim_lab_reply *reply,
                                 bool *taken) {
  brim_lab_pool *pool = ctx;
  const brim_pool_caller *caller = pool->reading.caller;
  *taken = request->op == BRIM_LAB_OP_WHOAMI;
  if (!*taken) return BRIM_OK;
  reply->protocol = BRIM_LAB_PROTOCOL;
  reply->version = pool->options.version;
  reply->name = caller->id;
  reply->more = json_object();
  BRIM_TRY(brim_pool_space_put(&pool->space, reply->more));
  return brim_json_put(reply->more, "role", json_string(brim_role_name(caller->role)));
}

static brim_status open_reader_handles(brim_lab_pool *pool) {
  brim_store *store = pool->options.store;
  brim_pool_reading *r = &pool->reading;
  BRIM_TRY(brim_store_open_reader(store, &r->store));
  bool is_sqlite = strcmp(brim_store_kind(store), "sqlite") == 0;
  if (is_sqlite) BRIM_TRY(brim_store_open_reader(store, &pool->log_handle));
  r->ops = (brim_lab_ops){
      .store = r->store, .version = pool->options.version, .answer = answer_whoami, .ctx = pool};
  return brim_store_keep_log(store);
}

static brim_status open_pool(brim_lab_pool *pool) {
  const brim_lab_pool_options *o = &pool->options;
  BRIM_TRY(page_init(&pool->page));
  BRIM_TRY(commits_init(&pool->commits));
  pool->ops = (brim_lab_ops){.store = o->store, .version = o->version};
  BRIM_TRY(open_reader_handles(pool));
  for (; pool->parts < PARTS; pool->parts++) BRIM_TRY(parts[pool->parts]->open(pool));
  // one address gets three quarters at most, so that others can connect
  int connections = o->connections > 0 ? o->connections : 1000;
  const brim_http_options http = {.address = o->address,
                                  .port = o->port,
                                  .certificate = o->certificate,
                                  .key = o->key,
                                  .connections = connections,
                                  .per_address = connections * 3 / 4,
                                  .idle_ms = o->idle_ms,
                                  .request_ms = o->request_ms,
                                  .admit = admit,
                                  .serve = serve,
                                  .ctx = pool};
  BRIM_TRY(brim_http_server_open(&http, &pool->http));
  for (size_t i = 0; i < PARTS; i++) {
    if (parts[i]->start) BRIM_TRY(parts[i]->start(pool));
  }
  return BRIM_OK;
}

brim_status brim_lab_pool_open(const brim_lab_pool_options *options, brim_lab_pool **out) {
  *out = NULL;
  brim_lab_pool *pool = (brim_lab_pool *)brim_calloc(1, sizeof *pool);
  if (!pool) return brim_fail(BRIM_ENOMEM, "out of memory for the server");
  pool->options = *options;
  pthread_mutex_init(&pool->lock, NULL);
  pthread_mutex_init(&pool->reading.lock, NULL);
  pthread_mutex_init(&pool->grids, NULL);
  pthread_mutex_init(&pool->documents.mutex, NULL);
  pthread_cond_init(&pool->documents.wake, NULL);
  stats_init(&pool->stats);
  brim_status status = open_pool(pool);
  if (status) {
    brim_lab_pool_close(pool);
    return status;
  }
  *out = pool;
  return BRIM_OK;
}

int brim_lab_pool_port(const brim_lab_pool *pool) { return brim_http_server_port(pool->http); }

// Copies SQLite's write-ahead log into the store file while requests continue. SQLite restarts the log
// only after a copy without concurrent writes. So, if the log is long, copies most of it first and the
// rest under the lock.
static brim_status checkpoint_wal(brim_lab_pool *pool) {
  int64_t pages = 0;
  if (!pool->log_handle) return BRIM_OK;
  BRIM_TRY(brim_store_move_log(pool->log_handle, &pages));
  if (pages < LOG_PAGES) return BRIM_OK;
  BRIM_TRY(brim_store_move_log(pool->log_handle, &pages));
  pthread_mutex_lock(&pool->lock);
  brim_status status = brim_store_move_log(pool->log_handle, &pages);
  pthread_mutex_unlock(&pool->lock);
  return status;
}

// Ends leases that ran out. After a time in which this process did not run, it first gives workers half a
// lease to beat.
static brim_status reap(brim_lab_pool *pool) {
  brim_store *store = pool->options.store;
  int64_t now = 0, lease = brim_store_lease_ms(store);
  int64_t away = lease / 4 > SUSPENDED_MS ? lease / 4 : SUSPENDED_MS;
  BRIM_TRY(brim_store_now(store, &now));
  if (pool->tend_ms > 0 && now - pool->tend_ms > away) pool->reap_ms = now + lease / 2;
  pool->tend_ms = now;
  return now < pool->reap_ms ? BRIM_OK : brim_store_reap(store, NULL);
}

brim_status brim_lab_pool_tend(brim_lab_pool *pool) {
  brim_store *store = pool->options.store;
  pthread_mutex_lock(&pool->lock);
  brim_status status = reap(pool);
  if (!status) status = brim_pool_feed_read(&pool->feed, store);
  pthread_mutex_unlock(&pool->lock);
  brim_pool_space_measure(pool);
  for (size_t i = 0; i < PARTS && !status; i++) {
    if (parts[i]->tend) status = parts[i]->tend(pool);
  }
  if (!status) status = checkpoint_wal(pool);
  if (status != BRIM_EIO || !brim_pool_space_refused(pool, brim_status_detail())) return status;
  brim_status_clear();  // the log reports a full disk once, not with every tending
  return BRIM_OK;
}

void brim_lab_pool_close(brim_lab_pool *pool) {
  if (!pool) return;
  if (pool->http) brim_http_server_stop(pool->http);
  for (size_t i = 0; i < pool->parts; i++) {
    if (parts[i]->stop) parts[i]->stop(pool);
  }
  brim_http_server_close(pool->http);
  while (pool->parts > 0) parts[--pool->parts]->close(pool);
  if (pool->ops.store) commits_deinit(&pool->commits);
  stats_deinit(&pool->stats);
  pthread_mutex_destroy(&pool->grids);
  pthread_cond_destroy(&pool->documents.wake);
  pthread_mutex_destroy(&pool->documents.mutex);
  page_deinit(&pool->page);
  brim_store_close(pool->log_handle);
  brim_store_close(pool->reading.store);
  pthread_mutex_destroy(&pool->reading.lock);
  pthread_mutex_destroy(&pool->lock);
  brim_free(pool);
}
