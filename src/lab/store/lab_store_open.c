// Opening a store: its place, its schema and version, and the lock that keeps other processes out;
// and moving a store to another place.

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/base_alloc.h"
#include "base/base_clock.h"
#include "base/base_status.h"
#include "lab/store/lab_store_int.h"

//-------------------------------------------- place --------------------------------------------
// URLs of PostgreSQL, and the passwords in them, which no message may show.

// Finds the first password behind `from` in the URL that begins at `url` and ends at `end`.
static bool next_secret(const char *url, const char *end, const char *from, const char **at,
                        size_t *size) {
  const char *host = strstr(url, "://") + 3, *sign = NULL;
  size_t authority = strcspn(host, "/?#");
  for (const char *p = host; p < end && p < host + authority; p++) {
    if (*p == '@') sign = p;
  }
  const char *colon = sign ? memchr(host, ':', (size_t)(sign - host)) : NULL;
  if (colon && colon + 1 > from) {
    *at = colon + 1;
    *size = (size_t)(sign - colon - 1);
    return true;
  }
  const char *secret = sign && sign > from ? sign : from > host ? from : host;
  secret = strstr(secret, "password=");
  if (!secret || secret >= end) return false;
  *at = secret + strlen("password=");
  *size = strcspn(*at, "&");
  if (*at + *size > end) *size = (size_t)(end - *at);
  return true;
}

bool brim_store_find_password(const char *text, const char *from, const char **at, size_t *size) {
  static const char *const schemes[] = {"postgres://", "postgresql://"};
  for (const char *p = text; (p = strstr(p, "postgres")) != NULL; p++) {
    bool url = false;
    for (size_t i = 0; i < 2; i++) url = url || strncmp(p, schemes[i], strlen(schemes[i])) == 0;
    if (!url) continue;
    const char *end = p + strcspn(p, " \t\r\n\"'");
    if (end > from && next_secret(p, end, from, at, size)) return true;
  }
  return false;
}

bool brim_store_star_passwords(char *text) {
  const char *secret;
  size_t size;
  bool found = false;
  for (const char *from = text; brim_store_find_password(text, from, &secret, &size);
       from = secret + size) {
    memset(text + (secret - text), '*', size);
    found = true;
  }
  return found;
}

// postgres://user:secret@host becomes postgres://user@host, and password=secret password=...
void brim_store_put_shown(brim_str *out, const char *text) {
  const char *from = text, *secret;
  size_t size;
  while (brim_store_find_password(text, from, &secret, &size)) {
    bool user = secret[-1] == ':';
    brim_str_append_n(out, from, (size_t)(secret - from) - user);
    if (!user) brim_str_append(out, "...");
    from = secret + size;
  }
  brim_str_append(out, from);
}

char *brim_store_place_shown(const char *place) {
  brim_str out;
  brim_str_init(&out);
  brim_store_put_shown(&out, place);
  return brim_str_take(&out);
}

//-------------------------------------------- schema --------------------------------------------
// The schema, one step per version, and the upgrade from one version to the next. tests/lab/stores has
// a database file of every version.
//
// Times are ms of the store's clock; 0 is "not yet". state, want and outcome are values of the enums of
// lab_store.h; a failure class is stored by its name.

static const char *const VERSION_1[] = {
    "CREATE TABLE meta(key TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL) @STRICT_KEY",

    "CREATE TABLE grid(id TEXT NOT NULL PRIMARY KEY, name TEXT NOT NULL, text TEXT NOT NULL,"
    " version TEXT NOT NULL, created @INT NOT NULL) @STRICT",

    // Long texts come last: SQLite reads a row only up to the last column it needs.
    // grid and idx: the first grid that had the experiment. not_before: end of the back-off. fence
    // rises with each claim.
    "CREATE TABLE exp(id TEXT NOT NULL PRIMARY KEY, grid TEXT NOT NULL, idx @INT NOT NULL,"
    " label TEXT NOT NULL, state @INT NOT NULL DEFAULT 0,"
    " priority @INT NOT NULL, gpus @INT NOT NULL, need_bytes @INT NOT NULL, tags TEXT NOT NULL,"
    " fence @INT NOT NULL DEFAULT 0, attempt @INT NOT NULL DEFAULT 0, tries @INT NOT NULL,"
    " tries_left @INT NOT NULL, infra_left @INT NOT NULL, not_before @INT NOT NULL DEFAULT 0,"
    " lease_until @INT NOT NULL DEFAULT 0, worker TEXT NOT NULL DEFAULT '',"
    " want @INT NOT NULL DEFAULT 0, step @INT NOT NULL DEFAULT -1, steps @INT NOT NULL,"
    " epoch @INT NOT NULL DEFAULT -1, epochs @INT NOT NULL, metric @REAL,"
    " metric_key TEXT NOT NULL, metric_step @INT NOT NULL DEFAULT -1,"
    " ckpt_step @INT NOT NULL DEFAULT -1, class TEXT NOT NULL DEFAULT 'none',"
    " reason TEXT NOT NULL DEFAULT '', created @INT NOT NULL, started @INT NOT NULL DEFAULT 0,"
    " ended @INT NOT NULL DEFAULT 0, last_lines TEXT NOT NULL DEFAULT '', config TEXT NOT NULL)"
    " @STRICT",
    // Serves claims in their order, leases, and counts by state.
    "CREATE INDEX exp_state ON exp(state, priority DESC, created, idx, id)",
    // Serves lists.
    "CREATE INDEX exp_order ON exp(created, idx, id)",

    "CREATE TABLE member(grid TEXT NOT NULL, exp TEXT NOT NULL, idx @INT NOT NULL,"
    " PRIMARY KEY(grid, exp)) @STRICT_KEY",
    "CREATE INDEX member_exp ON member(exp)",

    // seq: number of the last batch of metrics. from_step: the step at which the attempt began.
    "CREATE TABLE attempt(exp TEXT NOT NULL, n @INT NOT NULL, fence @INT NOT NULL,"
    " claim_id TEXT NOT NULL UNIQUE, worker TEXT NOT NULL, host TEXT NOT NULL,"
    " devices TEXT NOT NULL, pid @INT NOT NULL DEFAULT 0, from_step @INT NOT NULL,"
    " seq @INT NOT NULL DEFAULT 0, claimed @INT NOT NULL, started @INT NOT NULL DEFAULT 0,"
    " ended @INT NOT NULL DEFAULT 0, outcome @INT NOT NULL DEFAULT 0,"
    " class TEXT NOT NULL DEFAULT 'none', exit_code @INT NOT NULL DEFAULT 0,"
    " message TEXT NOT NULL DEFAULT '', PRIMARY KEY(exp, n)) @STRICT",

    // value is NULL for NaN.
    "CREATE TABLE metric(exp TEXT NOT NULL, key TEXT NOT NULL, step @INT NOT NULL, value @REAL,"
    " attempt @INT NOT NULL, PRIMARY KEY(exp, key, step)) @STRICT_KEY",

    "CREATE TABLE logpos(exp TEXT NOT NULL, attempt @INT NOT NULL, stream TEXT NOT NULL,"
    " size @INT NOT NULL, PRIMARY KEY(exp, attempt, stream)) @STRICT_KEY",

    "CREATE TABLE event(seq @INT NOT NULL PRIMARY KEY, t @INT NOT NULL, exp TEXT NOT NULL,"
    " kind TEXT NOT NULL, text TEXT NOT NULL) @STRICT",

    "CREATE TABLE worker(id TEXT NOT NULL PRIMARY KEY, host TEXT NOT NULL, gpus TEXT NOT NULL,"
    " version TEXT NOT NULL, last_seen @INT NOT NULL, drain @INT NOT NULL) @STRICT",
    NULL};

// For pools: curves in coarse steps, files that workers send, tokens, the authors of events.
static const char *const VERSION_2[] = {
    // A bucket covers the steps from bucket*64^level up to the next bucket. n: its values that are
    // numbers; bad: its NaN values; then the least value, the greatest and the sum.
    "CREATE TABLE level(exp TEXT NOT NULL, key TEXT NOT NULL, level @INT NOT NULL,"
    " bucket @INT NOT NULL, n @INT NOT NULL, bad @INT NOT NULL, lo @REAL, hi @REAL, sum @REAL,"
    " PRIMARY KEY(exp, key, level, bucket)) @STRICT_KEY",
    "INSERT INTO level SELECT exp,key,1,step/64,COUNT(value),COUNT(*)-COUNT(value),MIN(value),"
    "MAX(value),SUM(value) FROM metric WHERE step>=0 GROUP BY exp,key,step/64",
    "INSERT INTO level SELECT exp,key,2,bucket/64,SUM(n),SUM(bad),MIN(lo),MAX(hi),SUM(sum)"
    " FROM level WHERE level=1 GROUP BY exp,key,bucket/64",
    "INSERT INTO level SELECT exp,key,3,bucket/64,SUM(n),SUM(bad),MIN(lo),MAX(hi),SUM(sum)"
    " FROM level WHERE level=2 GROUP BY exp,key,bucket/64",

    // A file of which the server has a whole copy. step: of a checkpoint, otherwise -1.
    "CREATE TABLE file(exp TEXT NOT NULL, name TEXT NOT NULL, size @INT NOT NULL,"
    " sha256 TEXT NOT NULL, attempt @INT NOT NULL, step @INT NOT NULL, t @INT NOT NULL,"
    " PRIMARY KEY(exp, name)) @STRICT_KEY",

    // ended: time of its end; 0 while the token is valid.
    "CREATE TABLE token(id TEXT NOT NULL PRIMARY KEY, role TEXT NOT NULL,"
    " sha256 TEXT NOT NULL UNIQUE, created @INT NOT NULL, ended @INT NOT NULL) @STRICT",

    "ALTER TABLE worker ADD COLUMN status TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE event ADD COLUMN who TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE exp ADD COLUMN findings TEXT NOT NULL DEFAULT ''", NULL};

static const char *const VERSION_3[] = {
    // what: id of an experiment or of a grid.
    "CREATE TABLE lacks(worker TEXT NOT NULL, what TEXT NOT NULL, t @INT NOT NULL,"
    " PRIMARY KEY(worker, what)) @STRICT_KEY",
    NULL};

static const char *const VERSION_4[] = {
    // Names of the files that the worker of the last attempt still has to send, separated by commas.
    "ALTER TABLE exp ADD COLUMN owed TEXT NOT NULL DEFAULT ''", NULL};

const brim_store_step brim_store_steps[BRIM_STORE_VERSION] = {
    {VERSION_1}, {VERSION_2}, {VERSION_3}, {VERSION_4}};

#define I(name) \
  { name, BRIM_DB_INT }
#define R(name) \
  { name, BRIM_DB_REAL }
#define T(name) \
  { name, BRIM_DB_TEXT }
#define TABLE(name, key, columns) \
  { name, key, (int)(sizeof(columns) / sizeof *(columns)), columns }

static const brim_store_column GRID[] = {T("id"), T("name"), T("text"), T("version"), I("created")};
static const brim_store_column EXP[] = {
    T("id"),          T("grid"),       I("idx"),        T("label"),      I("state"),
    I("priority"),    I("gpus"),       I("need_bytes"), T("tags"),       I("fence"),
    I("attempt"),     I("tries"),      I("tries_left"), I("infra_left"), I("not_before"),
    I("lease_until"), T("worker"),     I("want"),       I("step"),       I("steps"),
    I("epoch"),       I("epochs"),     R("metric"),     T("metric_key"), I("metric_step"),
    I("ckpt_step"),   T("class"),      T("reason"),     I("created"),    I("started"),
    I("ended"),       T("last_lines"), T("config"),     T("findings"),   T("owed")};
static const brim_store_column MEMBER[] = {T("grid"), T("exp"), I("idx")};
static const brim_store_column ATTEMPT[] = {
    T("exp"),     I("n"),       I("fence"),     T("claim_id"),  T("worker"),  T("host"),
    T("devices"), I("pid"),     I("from_step"), I("seq"),       I("claimed"), I("started"),
    I("ended"),   I("outcome"), T("class"),     I("exit_code"), T("message")};
static const brim_store_column METRIC[] = {T("exp"), T("key"), I("step"), R("value"), I("attempt")};
static const brim_store_column LOGPOS[] = {T("exp"), I("attempt"), T("stream"), I("size")};
static const brim_store_column EVENT[] = {I("seq"),  I("t"),    T("exp"),
                                          T("kind"), T("text"), T("who")};
static const brim_store_column WORKER[] = {T("id"),        T("host"),  T("gpus"),  T("version"),
                                           I("last_seen"), I("drain"), T("status")};
static const brim_store_column LEVEL[] = {T("exp"), T("key"), I("level"), I("bucket"), I("n"),
                                          I("bad"), R("lo"),  R("hi"),    R("sum")};
static const brim_store_column FILES[] = {T("exp"),     T("name"), I("size"), T("sha256"),
                                          I("attempt"), I("step"), I("t")};
static const brim_store_column TOKEN[] = {T("id"), T("role"), T("sha256"), I("created"),
                                          I("ended")};
static const brim_store_column LACKS[] = {T("worker"), T("what"), I("t")};

const brim_store_table brim_store_tables[BRIM_STORE_TABLES] = {
    TABLE("grid", "id", GRID),
    TABLE("exp", "id", EXP),
    TABLE("member", "grid, exp", MEMBER),
    TABLE("attempt", "exp, n", ATTEMPT),
    TABLE("metric", "exp, key, step", METRIC),
    TABLE("logpos", "exp, attempt, stream", LOGPOS),
    TABLE("event", "seq", EVENT),
    TABLE("worker", "id", WORKER),
    TABLE("level", "exp, key, level, bucket", LEVEL),
    TABLE("file", "exp, name", FILES),
    TABLE("token", "id", TOKEN),
    TABLE("lacks", "worker, what", LACKS),
};

// Appends "?12" without printf: a batch of metrics has hundreds of parameters.
static void put_parameter(brim_str *out, int n, bool comma) {
  char text[16], *at = text + sizeof text;
  for (; n > 0; n /= 10) *--at = (char)('0' + n % 10);
  *--at = '?';
  if (comma) *--at = ',';
  brim_str_append_n(out, at, (size_t)(text + sizeof text - at));
}

brim_status brim_store_put_rows(brim_store *store, const char *head, const char *tail, int columns,
                                const brim_db_arg *args, size_t rows, int64_t *changed) {
  *changed = 0;
  if (rows == 0) return BRIM_OK;
  brim_str sql;
  brim_str_init(&sql);
  brim_str_printf(&sql, "INSERT INTO %s VALUES ", head);
  int n = 0;
  for (size_t r = 0; r < rows; r++) {
    brim_str_append(&sql, r ? ",(" : "(");
    for (int c = 0; c < columns; c++) put_parameter(&sql, ++n, c > 0);
    brim_str_append_char(&sql, ')');
  }
  brim_str_printf(&sql, " %s", tail);
  brim_status status = brim_str_status(&sql);
  if (!status) status = brim_db_exec(store->db, sql.data, args, rows * (size_t)columns, changed);
  brim_str_deinit(&sql);
  return status;
}

//---------------------------------- meta ----------------------------------

brim_status brim_store_get_meta(brim_store *store, const char *key, char **out) {
  *out = NULL;
  brim_db_rows rows;
  bool there = false;
  brim_status status = brim_db_query(store->db, "SELECT value FROM meta WHERE key=?1",
                                     BRIM_DB_ARGS(brim_db_text(key)), &rows);
  if (!status) status = brim_db_next(&rows, &there);
  if (!status) {
    *out = brim_strdup(there ? brim_db_get_text(&rows, 0) : "");
    if (!*out) status = brim_fail(BRIM_ENOMEM, "out of memory in the store");
  }
  brim_db_done(&rows);
  return status;
}

brim_status brim_store_set_meta(brim_store *store, const char *key, const char *value) {
  return brim_db_exec(store->db,
                      "INSERT INTO meta(key,value) VALUES (?1,?2)"
                      " ON CONFLICT(key) DO UPDATE SET value=excluded.value",
                      BRIM_DB_ARGS(brim_db_text(key), brim_db_text(value)), NULL);
}

brim_status brim_store_check_moved(brim_store *store) {
  char *to = NULL;
  BRIM_TRY(brim_store_get_meta(store, "moved_to", &to));
  brim_status status =
      *to ? brim_fail(BRIM_ESTATE, "the store %s was moved to %s; use it there", store->place, to)
          : BRIM_OK;
  brim_free(to);
  return status;
}

//---------------------------------- versions ----------------------------------

// Reads the version of the database; 0 = there is no store yet.
static brim_status read_version(brim_store *store, int64_t *out) {
  *out = 0;
  int64_t tables = 0;
  BRIM_TRY(brim_db_get_one(store->db, store->db->driver->count_meta, BRIM_DB_NO_ARGS, &tables));
  if (tables == 0) return BRIM_OK;
  char *text = NULL;
  BRIM_TRY(brim_store_get_meta(store, "schema_version", &text));
  bool sound = brim_parse_i64(text, out) && *out > 0;
  brim_free(text);
  return sound ? BRIM_OK : brim_fail(BRIM_EPARSE, "the store %s has no version", store->place);
}

static brim_status apply(brim_store *store, const brim_store_step *steps, int64_t from, int to) {
  for (int64_t v = from; v < to; v++) {
    for (const char *const *sql = steps[v].sql; *sql; sql++) {
      BRIM_TRY(brim_db_script(store->db, *sql));
    }
  }
  char text[24];
  snprintf(text, sizeof text, "%d", to);
  return brim_store_set_meta(store, "schema_version", text);
}

typedef struct migration {
  const brim_store_step *steps;
  int count;
} migration;

static brim_status fail_newer(brim_store *store, int64_t version, int count) {
  return brim_fail(BRIM_EUNSUPPORTED,
                   "the store %s has version %lld, and this brim knows versions up to %d; use a "
                   "newer brim",
                   store->place, (long long)version, count);
}

// Reads the version again inside the transaction, since another process may have upgraded the store by
// now.
static brim_status migrate_locked(brim_store *store, void *ctx) {
  const migration *m = ctx;
  if (store->db->driver->lock_schema) BRIM_TRY(store->db->driver->lock_schema(store->db));
  int64_t version = 0;
  BRIM_TRY(read_version(store, &version));
  if (version == m->count) return BRIM_OK;
  if (version > m->count) return fail_newer(store, version, m->count);
  if (version > 0 && store->db->driver->backup_tables) {
    BRIM_TRY(store->db->driver->backup_tables(store->db, version));
  }
  return apply(store, m->steps, version, m->count);
}

brim_status brim_store_migrate(brim_store *store, const brim_store_step *steps, int count) {
  int64_t version = 0;
  BRIM_TRY(read_version(store, &version));
  if (version > count) return fail_newer(store, version, count);
  if (version == count) return BRIM_OK;
  if (store->options.readonly) {
    if (version == 0) return brim_fail(BRIM_ENOENT, "%s has no store", store->place);
    return brim_fail(BRIM_EUNSUPPORTED,
                     "the store %s has version %lld, which this brim upgrades when it opens it for "
                     "writing",
                     store->place, (long long)version);
  }
  if (version > 0 && store->db->driver->backup) {
    brim_str path;
    brim_str_init(&path);
    brim_str_printf(&path, "%s.v%lld.backup", store->path, (long long)version);
    brim_status status = brim_str_status(&path);
    if (!status) status = store->db->driver->backup(store->db, path.data);
    brim_str_deinit(&path);
    if (status) return status;
  }
  migration m = {steps, count};
  return brim_store_write(store, migrate_locked, &m);
}

//------------------------------------------- opening -------------------------------------------

bool brim_store_is_url(const char *place) {
  return brim_str_starts(place, "postgres://") || brim_str_starts(place, "postgresql://");
}

// SQLite's log needs shared memory and reliable locks, which network file systems lack.
static const char *network_name(int64_t magic) {
  static const struct {
    int64_t magic;
    const char *name;
  } rows[] = {
      {0x6969, "NFS"},          {0x517B, "SMB"},         {0xFF534D42, "CIFS"},
      {0xFE534D42, "SMB2"},     {0x0BD00BD0, "Lustre"},  {0x47504653, "GPFS"},
      {0x00C36400, "Ceph"},     {0x5346414F, "AFS"},     {0x73757245, "Coda"},
      {0x7461636F, "OCFS2"},    {0x01161970, "GFS2"},    {0x19830326, "BeeGFS"},
      {0x01021997, "9P"},       {0xAAD7AAEA, "Panasas"}, {0x6B414653, "AFS"},
      {0x20030528, "OrangeFS"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    if (rows[i].magic == magic) return rows[i].name;
  }
  return NULL;
}

static brim_status check_file_system(const brim_store_options *o, const char *folder) {
  struct statfs fs;
  int64_t magic = 0;
  if (o->fs_type) {
    magic = o->fs_type(o->ctx, folder);
  } else if (statfs(folder, &fs) == 0) {
    magic = (int64_t)(uint32_t)fs.f_type;
  }
  const char *name = network_name(magic);
  if (!name) return BRIM_OK;
  return brim_fail(
      BRIM_EUNSUPPORTED,
      "cannot keep a store in %s: it lies on a network file system (%s), where SQLite "
      "can lose data\nhint: give --store a folder of this machine, or a postgres:// URL",
      folder, name);
}

// Tries several times, since a reader takes the lock for a moment to test it.
static brim_status take_lock(brim_store *store, const char *path) {
  enum { TRIES = 5, WAIT_MS = 40 };
  brim_status status = BRIM_OK;
  for (int n = 0; n < TRIES; n++) {
    status = brim_fs_lock(path, &store->lock);
    if (status != BRIM_EEXIST) break;
    brim_clock_sleep_ns((int64_t)WAIT_MS * 1000000);
  }
  if (status == BRIM_EEXIST) {
    return brim_fail_context(status, "another process has the store %s open", store->place);
  }
  return status;
}

// BRIM_EEXIST: a process holds the lock. Does not keep the lock.
static brim_status check_free(const char *lock) {
  int fd = open(lock, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return BRIM_OK;
  bool held = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  char text[32] = "";
  if (held) (void)!pread(fd, text, sizeof text - 1, 0);
  close(fd);
  if (!held) return BRIM_OK;
  return brim_fail(BRIM_EEXIST, "%s is held by process %ld", lock, strtol(text, NULL, 10));
}

static brim_status lock_file(brim_store *store, const char *folder) {
  char *path = brim_fs_join(folder, BRIM_STORE_FILE ".lock");
  if (!path) return brim_fail(BRIM_ENOMEM, "out of memory in the store");
  brim_status status;
  if (!store->options.readonly) {
    status = take_lock(store, path);
  } else {
    status = check_free(path);
    if (status) brim_fail_context(status, "another process has the store %s open", store->place);
  }
  brim_free(path);
  return status;
}

// Returns BRIM_EINVAL if a file is in the way, since BRIM_EEXIST means that another process has the
// store open.
static brim_status make_folder(const char *folder) {
  brim_status status = brim_fs_refused(brim_fs_mkdirs(folder));
  return status == BRIM_EEXIST ? BRIM_EINVAL : status;
}

// Refuses a pipe, which would block.
static brim_status check_kind(const char *path) {
  struct stat st;
  if (stat(path, &st) != 0 || S_ISREG(st.st_mode)) return BRIM_OK;
  return brim_fail(BRIM_EINVAL, "%s is not a regular file", path);
}

static brim_status open_sqlite(brim_store *store, const char *folder) {
  if (store->options.readonly && !brim_fs_is_dir(folder)) {
    return brim_fail(BRIM_ENOENT, "%s has no store", folder);
  }
  if (!store->options.readonly) BRIM_TRY(make_folder(folder));
  BRIM_TRY(check_file_system(&store->options, folder));
  store->path = brim_fs_join(folder, BRIM_STORE_FILE);
  if (!store->path) return brim_fail(BRIM_ENOMEM, "out of memory in the store");
  if (store->options.readonly && !brim_fs_exists(store->path)) {
    return brim_fail(BRIM_ENOENT, "%s has no store", folder);
  }
  BRIM_TRY(check_kind(store->path));
  BRIM_TRY(lock_file(store, folder));
  if (!store->options.readonly) brim_fs_remove_stale(folder);
  return brim_db_sqlite_open(store->path, store->options.readonly, &store->db);
}

static brim_status set_options(brim_store *store, const brim_store_options *options) {
  brim_store_options *o = &store->options;
  if (options) *o = *options;
  if (o->lease_ms <= 0) o->lease_ms = 60000;
  if (o->grace_ms == 0) o->grace_ms = o->lease_ms;
  if (o->backoff_ms <= 0) o->backoff_ms = 5000;
  if (o->infra_tries <= 0) o->infra_tries = 10;
  const char *schema = o->schema ? o->schema : "brim";
  size_t n = strlen(schema);
  if (n == 0 || n > 40 || strspn(schema, "abcdefghijklmnopqrstuvwxyz0123456789_") != n ||
      (*schema >= '0' && *schema <= '9')) {
    return brim_fail(BRIM_EINVAL, "'%s' cannot be the name of a store's schema", schema);
  }
  memcpy(store->schema, schema, n + 1);
  o->schema = store->schema;
  return BRIM_OK;
}

static brim_status write_identity(brim_store *store, void *ctx) {
  (void)ctx;
  return brim_db_exec(store->db,
                      "INSERT INTO meta(key,value) VALUES ('clock','0'),('id',?1)"
                      " ON CONFLICT(key) DO NOTHING",
                      BRIM_DB_ARGS(brim_db_text(store->fresh_id)), NULL);
}

// Sets the clock to continue from the last time in the file.
static brim_status continue_clock(brim_store *store) {
  char *text = NULL;
  int64_t last = 0;
  BRIM_TRY(brim_store_get_meta(store, "clock", &text));
  if (*text && !brim_parse_i64(text, &last)) last = 0;
  brim_free(text);
  if (store->db->driver->set_clock) store->db->driver->set_clock(store->db, last);
  store->clock_saved = last;
  return BRIM_OK;
}

static brim_status open_store(brim_store *store, const char *place) {
  if (brim_store_is_url(place)) {
    BRIM_TRY(brim_db_postgres_open(place, store->schema, store->place, &store->db));
  } else {
    BRIM_TRY(open_sqlite(store, place));
  }
  BRIM_TRY(brim_store_migrate(store, brim_store_steps, BRIM_STORE_VERSION));
  BRIM_TRY(continue_clock(store));
  if (!store->options.readonly) {
    brim_store_random_id(store->fresh_id);
    BRIM_TRY(brim_store_write(store, write_identity, NULL));
  }
  return brim_store_check_moved(store);
}

brim_status brim_store_open(const char *place, const brim_store_options *options,
                            brim_store **out) {
  *out = NULL;
  if (!*place) return brim_fail(BRIM_EINVAL, "the store's place is empty");
  if (strstr(place, "://") && !brim_store_is_url(place)) {
    return brim_fail(BRIM_EINVAL, "%s is no store; a store is a folder or a postgres:// URL",
                     place);
  }
  brim_store *store = brim_calloc(1, sizeof *store);
  if (!store) return brim_fail(BRIM_ENOMEM, "out of memory in the store");
  brim_str_init(&store->events);
  brim_status status = set_options(store, options);
  store->place = brim_store_place_shown(place);
  if (!status && !store->place) status = brim_fail(BRIM_ENOMEM, "out of memory in the store");
  if (!status) status = open_store(store, place);
  if (status) {
    brim_store_close(store);
    return status;
  }
  *out = store;
  return BRIM_OK;
}

static brim_status open_reader(brim_store *reader, const brim_store *first) {
  BRIM_TRY(set_options(reader, &first->options));
  reader->options.readonly = true;
  reader->connected = 1;
  reader->place = brim_strdup(first->place);
  reader->path = first->path ? brim_strdup(first->path) : NULL;
  if (!reader->place || (first->path && !reader->path)) {
    return brim_fail(BRIM_ENOMEM, "out of memory in the store");
  }
  return first->db->driver->open_beside(first->db, &reader->db);
}

brim_status brim_store_open_reader(brim_store *store, brim_store **out) {
  *out = NULL;
  brim_store *reader = brim_calloc(1, sizeof *reader);
  if (!reader) return brim_fail(BRIM_ENOMEM, "out of memory in the store");
  brim_str_init(&reader->events);
  brim_status status = open_reader(reader, store);
  if (status) {
    brim_store_close(reader);
    return status;
  }
  *out = reader;
  return BRIM_OK;
}

enum { LOG_PAGES = 32768 };  // 128 MiB

brim_status brim_store_keep_log(brim_store *store) {
  const brim_db_driver *driver = store->db->driver;
  return driver->set_log ? driver->set_log(store->db, LOG_PAGES) : BRIM_OK;
}

brim_status brim_store_move_log(brim_store *reader, int64_t *pages) {
  *pages = 0;
  const brim_db_driver *driver = reader->db->driver;
  return driver->move_log ? driver->move_log(reader->db, pages) : BRIM_OK;
}

void brim_store_close(brim_store *store) {
  if (!store) return;
  brim_db_close(store->db);
  brim_fs_unlock(store->lock);
  brim_str_deinit(&store->events);
  brim_free(store->path);
  brim_free(store->place);
  brim_free(store);
}

int64_t brim_store_lease_ms(const brim_store *store) { return store->options.lease_ms; }

const char *brim_store_kind(const brim_store *store) { return store->db->driver->name; }
const char *brim_store_place(const brim_store *store) { return store->place; }

brim_status brim_store_check_file(const brim_store *store) {
  const brim_db_driver *driver = store->db->driver;
  if (!driver->has_moved || !driver->has_moved(store->db)) return BRIM_OK;
  return brim_fail(BRIM_ESTATE, "%s was removed or replaced by another process", store->path);
}

brim_status brim_store_now(brim_store *store, int64_t *ms) {
  BRIM_TRY(store->db->driver->ready(store->db));
  return brim_store_time(store, ms);
}

//------------------------------------------- moving -------------------------------------------
// Moves a store to another place, of either kind. One transaction writes all rows to the new store,
// with the old store's id; then the old store notes the new place. If a move was interrupted between
// the two, the repeated move finds the id and only notes the place.

typedef struct moving {
  brim_store *from, *to;
  char id[BRIM_EXP_ID];  // id of the old store
  brim_arena *arena;     // holds the texts of a batch
} moving;

static brim_status run_script(brim_store *store, const char *sql) {
  return *sql ? store->db->driver->script(store->db, sql) : BRIM_OK;
}

typedef struct batch {
  const brim_store_table *table;
  char head[1024];
  brim_db_arg args[BRIM_DB_MAX_ARGS];
  size_t rows, most;
} batch;

static brim_status flush(moving *m, batch *b) {
  int64_t changed;
  brim_status status =
      brim_store_put_rows(m->to, b->head, "", b->table->count, b->args, b->rows, &changed);
  b->rows = 0;
  return status;
}

// Copies the texts of a row for the batch, since a row's memory is valid only until the next row.
static brim_status add_row(moving *m, batch *b, brim_db_rows *rows) {
  for (int c = 0; c < b->table->count; c++) {
    brim_db_arg *a = &b->args[b->rows * (size_t)b->table->count + (size_t)c];
    brim_db_kind kind = b->table->columns[c].kind;
    if (brim_db_is_null(rows, c)) {
      *a = brim_db_null(kind);
    } else if (kind == BRIM_DB_INT) {
      *a = brim_db_int(brim_db_get_int(rows, c));
    } else if (kind == BRIM_DB_REAL) {
      *a = brim_db_real(brim_db_get_real(rows, c));
    } else {
      char *text = brim_arena_strdup(m->arena, brim_db_get_text(rows, c));
      if (!text) return brim_fail(BRIM_ENOMEM, "out of memory in the store");
      *a = brim_db_text(text);
    }
  }
  b->rows++;
  return BRIM_OK;
}

static brim_status copy_rows(moving *m, batch *b, const char *select) {
  brim_db_rows rows;
  bool there = false;
  brim_arena_mark mark = brim_arena_get_mark(m->arena);
  brim_status status = brim_db_stream(m->from->db, select, BRIM_DB_NO_ARGS, &rows);
  while (!status) {
    status = brim_db_next(&rows, &there);
    if (status || !there) break;
    status = add_row(m, b, &rows);
    if (!status && b->rows == b->most) {
      status = flush(m, b);
      brim_arena_release(m->arena, mark);
    }
  }
  if (!status) status = flush(m, b);
  brim_arena_release(m->arena, mark);
  brim_db_done(&rows);
  return status;
}

static brim_status copy_table(moving *m, const brim_store_table *table) {
  batch *b = brim_calloc(1, sizeof *b);
  if (!b) return brim_fail(BRIM_ENOMEM, "out of memory in the store");
  b->table = table;
  b->most = BRIM_DB_MAX_ARGS / (size_t)table->count;
  brim_str columns, select;
  brim_str_init(&columns);
  brim_str_init(&select);
  for (int c = 0; c < table->count; c++) {
    brim_str_printf(&columns, "%s%s", c ? "," : "", table->columns[c].name);
  }
  brim_str_printf(&select, "SELECT %s FROM %s ORDER BY %s", columns.data, table->name, table->key);
  snprintf(b->head, sizeof b->head, "%s(%s)", table->name, columns.data);
  brim_status status = brim_str_status(&columns);
  if (!status) status = brim_str_status(&select);
  if (!status) status = copy_rows(m, b, select.data);
  brim_str_deinit(&select);
  brim_str_deinit(&columns);
  brim_free(b);
  return status;
}

static brim_status is_empty(brim_store *store, bool *out) {
  int64_t rows = 0;
  BRIM_TRY(brim_db_get_one(store->db,
                           "SELECT (SELECT COUNT(*) FROM exp)+(SELECT COUNT(*) FROM grid)"
                           "+(SELECT COUNT(*) FROM event)",
                           BRIM_DB_NO_ARGS, &rows));
  *out = rows == 0;
  return BRIM_OK;
}

static brim_status read_id(brim_store *store, char out[BRIM_EXP_ID]) {
  char *id = NULL;
  BRIM_TRY(brim_store_get_meta(store, "id", &id));
  snprintf(out, BRIM_EXP_ID, "%s", id);
  brim_free(id);
  return BRIM_OK;
}

static brim_status copy_all(brim_store *to, void *ctx) {
  moving *m = ctx;
  char id[BRIM_EXP_ID];
  bool empty = false;
  BRIM_TRY(run_script(to, to->db->driver->long_transaction));
  BRIM_TRY(run_script(to, to->db->driver->lock_tables));
  BRIM_TRY(read_id(to, id));
  if (strcmp(id, m->id) == 0) return BRIM_OK;  // an interrupted move got this far
  BRIM_TRY(is_empty(to, &empty));
  if (!empty) {
    return brim_fail(BRIM_EEXIST, "cannot move the store to %s: there are experiments already",
                     to->place);
  }
  for (int i = 0; i < BRIM_STORE_TABLES; i++) BRIM_TRY(copy_table(m, &brim_store_tables[i]));
  int64_t now;
  BRIM_TRY(brim_store_time(to, &now));
  // The new store has another clock, so leases get their whole time again.
  BRIM_TRY(brim_db_exec(to->db, "UPDATE exp SET lease_until=?1 WHERE state IN (1,2)",
                        BRIM_DB_ARGS(brim_db_int(now + to->options.lease_ms)), NULL));
  brim_store_note(to, now, "", "moved", m->from->place);
  return brim_store_set_meta(to, "id", m->id);
}

static brim_status check_idle(brim_store *from) {
  int64_t now, live = 0;
  BRIM_TRY(brim_store_time(from, &now));
  BRIM_TRY(brim_db_get_one(from->db,
                           "SELECT COUNT(*) FROM exp WHERE state IN (1,2) AND lease_until>?1",
                           BRIM_DB_ARGS(brim_db_int(now)), &live));
  if (live == 0) return BRIM_OK;
  return brim_fail(BRIM_ESTATE,
                   "cannot move the store %s: %lld of its experiments are running; stop the sweep "
                   "first",
                   from->place, (long long)live);
}

// Notes the new place as a full path, so that users in any folder find it.
static brim_status set_moved(moving *m) {
  char *full = m->to->path ? realpath(m->to->path, NULL) : NULL;
  char *slash = full ? strrchr(full, '/') : NULL;
  if (slash) *slash = '\0';
  brim_status status = brim_store_set_meta(m->from, "moved_to", full ? full : m->to->place);
  free(full);
  return status;
}

static brim_status move_all(brim_store *from, void *ctx) {
  moving *m = ctx;
  BRIM_TRY(run_script(from, from->db->driver->long_transaction));
  BRIM_TRY(run_script(from, from->db->driver->lock_tables));
  BRIM_TRY(brim_store_check_moved(from));
  BRIM_TRY(check_idle(from));
  BRIM_TRY(read_id(from, m->id));
  brim_status status = brim_store_write(m->to, copy_all, m);
  if (status) {
    from->db->again = from->db->lost;
    return status;
  }
  return set_moved(m);
}

brim_status brim_store_move(brim_store *from, brim_store *to) {
  if (from == to) return brim_fail(BRIM_EINVAL, "cannot move a store to itself");
  moving m = {.from = from, .to = to};
  BRIM_TRY(brim_arena_create(256 * 1024, &m.arena));
  brim_status status = brim_store_write(from, move_all, &m);
  brim_arena_destroy(m.arena);
  return status;
}
