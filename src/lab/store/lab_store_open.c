// Opening a store: where it lies, which process has it open, which version it has.
#include "lab/store/lab_store.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "base/base_alloc.h"
#include "base/base_clock.h"
#include "base/base_status.h"
#include "lab/store/lab_store_int.h"
#include "lab/store/lab_store_postgres.h"
#include "lab/store/lab_store_sqlite.h"

bool brim_store_is_url(const char *place) {
  return brim_str_starts(place, "postgres://") || brim_str_starts(place, "postgresql://");
}

// SQLite's log needs memory that processes share and locks that hold: one machine's file systems.
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

// A reader tests the lock for a moment, so a lock that is taken is tried again before it counts.
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

static brim_status lock_file(brim_store *store, const char *folder) {
  char *path = brim_fs_join(folder, BRIM_STORE_FILE ".lock");
  if (!path) return brim_fail(BRIM_ENOMEM, "out of memory in the store");
  brim_status status;
  if (!store->options.readonly) {
    status = take_lock(store, path);
  } else {
    status = brim_db_sqlite_check_free(path);
    if (status) brim_fail_context(status, "another process has the store %s open", store->place);
  }
  brim_free(path);
  return status;
}

// BRIM_EEXIST is for a store that another process has open, not for a file in the way.
static brim_status make_folder(const char *folder) {
  brim_status status = brim_fs_refused(brim_fs_mkdirs(folder));
  return status == BRIM_EEXIST ? BRIM_EINVAL : status;
}

// A pipe would be waited for.
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

// The file's last time, so that the clock continues from there.
static brim_status continue_clock(brim_store *store) {
  char *text = NULL;
  int64_t last = 0;
  BRIM_TRY(brim_store_get_meta(store, "clock", &text));
  if (*text && !brim_parse_i64(text, &last)) last = 0;
  brim_free(text);
  if (store->path) brim_db_sqlite_set_clock(store->db, last);
  store->clock_saved = last;
  return BRIM_OK;
}

static brim_status open_store(brim_store *store, const char *place) {
  if (brim_store_is_url(place)) {
    store->url = brim_strdup(place);
    if (!store->url) return brim_fail(BRIM_ENOMEM, "out of memory in the store");
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
  if (first->path) return brim_db_sqlite_open_beside(first->db, first->path, &reader->db);
  return brim_db_postgres_open(first->url, reader->schema, reader->place, &reader->db);
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
  return store->path ? brim_db_sqlite_set_log(store->db, LOG_PAGES) : BRIM_OK;
}

brim_status brim_store_move_log(brim_store *reader, int64_t *pages) {
  *pages = 0;
  return reader->path ? brim_db_sqlite_move_log(reader->db, pages) : BRIM_OK;
}

void brim_store_close(brim_store *store) {
  if (!store) return;
  brim_db_close(store->db);
  brim_fs_unlock(store->lock);
  brim_str_deinit(&store->events);
  brim_free(store->path);
  if (store->url) explicit_bzero(store->url, strlen(store->url));
  brim_free(store->url);
  brim_free(store->place);
  brim_free(store);
}

int64_t brim_store_lease_ms(const brim_store *store) { return store->options.lease_ms; }

const char *brim_store_kind(const brim_store *store) { return store->db->driver->name; }
const char *brim_store_place(const brim_store *store) { return store->place; }

brim_status brim_store_check_file(const brim_store *store) {
  if (!store->path || !brim_db_sqlite_has_moved(store->db)) return BRIM_OK;
  return brim_fail(BRIM_ESTATE, "%s was removed or replaced by another process", store->path);
}

brim_status brim_store_now(brim_store *store, int64_t *ms) {
  BRIM_TRY(store->db->driver->ready(store->db));
  return brim_store_time(store, ms);
}
