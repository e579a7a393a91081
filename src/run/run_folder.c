// The folder of a run: what in it is brim's own, and making it again when it is removed while the run
// continues. A file of a name that brim uses is taken for brim's by what it holds, so that folders
// of earlier versions, which have no mark, can still be resumed.
#include <string.h>
#include <sys/stat.h>

#include "run/run_int.h"

enum { LOOK_BYTES = 1 << 20 };  // a checkpoint's metadata stand in its header

typedef enum kind { OTHER, CONFIG, LOCK, CSV, JSONL, CHECKPOINT } kind;

// "log.csv", "log.12.csv": `name` without "log." is EXT or digits, a dot and EXT.
static bool is_log(const char *name, const char *ext) {
  if (!brim_str_starts(name, "log.")) return false;
  const char *at = name + 4;
  if (strcmp(at, ext) == 0) return true;
  size_t digits = strspn(at, "0123456789");
  return digits > 0 && at[digits] == '.' && strcmp(at + digits + 1, ext) == 0;
}

static kind kind_of(const char *name) {
  static const char *const checkpoints[] = {"last.safetensors", "best.safetensors",
                                            "model.safetensors"};
  if (strcmp(name, "config.yaml") == 0) return CONFIG;
  if (strcmp(name, "lock") == 0) return LOCK;
  if (is_log(name, "csv")) return CSV;
  if (is_log(name, "jsonl")) return JSONL;
  for (size_t i = 0; i < sizeof checkpoints / sizeof *checkpoints; i++) {
    if (strcmp(name, checkpoints[i]) == 0) return CHECKPOINT;
  }
  return brim_run_files_step(name) >= 0 ? CHECKPOINT : OTHER;
}

// 0.1 wrote config.yaml without a mark: every key with its value in brim's order, no comment.
static bool is_config(const char *text) {
  static const char *const keys[] = {"\nseed: ", "\ndevice: ", "\nthreads: ", "\npriority: "};
  if (brim_str_starts(text, BRIM_RUN_CONFIG_MARK)) return true;
  if (!brim_str_starts(text, "workload: ") || strstr(text, "\n#")) return false;
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    if (!strstr(text, keys[i])) return false;
  }
  return true;
}

static bool is_csv(const char *text) {
  return !*text || brim_str_starts(text, "epoch,step,lr,train_");
}

static bool is_jsonl(const char *text) {
  if (!*text) return true;
  const char *end = strchr(text, '\n'), *step = strstr(text, "\"step\":");
  return brim_str_starts(text, "{\"event\":\"") && step && (!end || step < end);
}

// An empty lock, or one of 0.1 with the number alone, may be another program's: good, but no proof.
static bool is_lock(const char *text, size_t size, bool *sure) {
  bool lock = brim_fs_is_lock(text, size);
  *sure = lock && strstr(text, " brim\n");
  return lock;
}

// Bytes of the header may be zero, so this is no text. One that cannot be read as safetensors is
// damaged in a folder of a run, and may be another program's file in any other.
static bool is_checkpoint(const char *data, size_t size, bool *sure) {
  static const char word[] = "\"brim.";
  *sure = false;
  if (size < 9 || data[8] != '{') return size == 0;
  for (size_t i = 8; !*sure && i + sizeof word - 1 <= size; i++) {
    *sure = memcmp(data + i, word, sizeof word - 1) == 0;
  }
  return *sure;
}

// The beginning of a file, NUL-terminated, for brim_free; *size without the NUL.
static brim_status read_start(const char *path, char **out, size_t *size) {
  FILE *file = NULL;
  struct stat st;
  *out = NULL;
  *size = 0;
  if (stat(path, &st) != 0 || !S_ISREG(st.st_mode)) return BRIM_OK;  // refused where it is opened
  *out = brim_alloc(LOOK_BYTES + 1);
  if (!*out) return brim_fail(BRIM_ENOMEM, "out of memory while looking at %s", path);
  file = fopen(path, "rbe");
  if (file) {
    *size = fread(*out, 1, LOOK_BYTES, file);
    fclose(file);
  }
  (*out)[*size] = '\0';
  return BRIM_OK;
}

typedef struct look {
  const char *folder;
  bool csv, jsonl;  // the run writes these
  bool resume;      // a checkpoint that cannot be read is reported where it is opened
  bool own;         // there is a config or a checkpoint that brim wrote: the folder is a run's
  char weak[32];    // "lock", "log.csv": not brim's by what it holds, or damaged if the folder is
} look;

static brim_status refuse(const char *folder, const char *name) {
  return brim_fail(BRIM_EEXIST,
                   "%s/%s was not written by brim, and this run would replace it; choose another "
                   "folder with --output-dir, or move the file away",
                   folder, name);
}

// Does the text look like one of brim's of this kind? *sure: no other program writes it.
static bool is_ours(kind k, const char *text, size_t size, bool *sure) {
  *sure = false;
  switch (k) {
    case CONFIG:
      return *sure = is_config(text);
    case LOCK:
      return is_lock(text, size, sure);
    case CSV:
      return is_csv(text);
    case JSONL:
      return is_jsonl(text);
    case CHECKPOINT:
      return is_checkpoint(text, size, sure);
    case OTHER:
      break;
  }
  return true;
}

static brim_status look_at(look *l, const char *name) {
  kind k = kind_of(name);
  if (k == OTHER || (k == CSV && !l->csv) || (k == JSONL && !l->jsonl)) return BRIM_OK;
  char *path = brim_fs_join(l->folder, name), *text = NULL;
  size_t size = 0;
  if (!path) return brim_fail(BRIM_ENOMEM, "out of memory while looking at %s", name);
  brim_status status = read_start(path, &text, &size);
  bool sure = false, ours = !text || is_ours(k, text, size, &sure);
  if (sure) l->own = true;
  // the first log of a run may be torn, which is repaired; the others begin whole
  bool weak = k == LOCK || strcmp(name, "log.csv") == 0 || strcmp(name, "log.jsonl") == 0 ||
              (k == CHECKPOINT && (size < 9 || text[8] != '{'));
  if (k == CHECKPOINT && weak && l->resume) ours = true;
  if (!status && !ours && !weak) status = refuse(l->folder, name);
  if (!ours && weak) snprintf(l->weak, sizeof l->weak, "%s", name);
  brim_free(text);
  brim_free(path);
  return status;
}

brim_status brim_run_folder_check(const brim_config *config, const char *folder, bool resume,
                                  bool *own) {
  char **names = NULL;
  size_t count = 0;
  look l = {.folder = folder,
            .resume = resume,
            .csv = brim_config_bool(config, "log.csv"),
            .jsonl = brim_config_bool(config, "log.jsonl")};
  BRIM_TRY(brim_fs_list(folder, &names, &count));
  brim_status status = BRIM_OK;
  for (size_t i = 0; !status && i < count; i++) status = look_at(&l, names[i]);
  brim_fs_list_free(names, count);
  *own = l.own;
  return !status && l.weak[0] && !l.own ? refuse(folder, l.weak) : status;
}

bool brim_run_folder_restore(const char *folder) {
  if (brim_fs_is_dir(folder)) return false;
  if (brim_fs_mkdirs(folder)) {
    brim_status_clear();  // the next write there reports why it cannot
    return false;
  }
  brim_log_warn(
      "run",
      "%s was removed during the run; brim creates it again, but its earlier content is lost",
      folder);
  return true;
}
