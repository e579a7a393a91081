// Finding libcupti, opening it, and what its error codes mean to a user.
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "profile/cupti/cupti_int.h"

//---------------------------------- where it may lie ----------------------------------

// Newest first. The unversioned name is a development link; it may lead to any version, which the
// session checks.
static const char *const versions[] = {"libcupti.so.13", "libcupti.so.12", "libcupti.so"};
enum { VERSIONS = sizeof versions / sizeof *versions };

typedef struct name_list {
  char **names;
  size_t count, capacity;
} name_list;

static brim_status add(name_list *list, const char *name) {
  if (list->count + 1 >= list->capacity) {  // one more for the NULL at the end
    size_t capacity = list->capacity ? 2 * list->capacity : 16;
    char **grown = (char **)brim_realloc(list->names, capacity * sizeof *grown);
    if (!grown) return brim_fail(BRIM_ENOMEM, "out of memory while looking for CUPTI");
    list->names = grown;
    list->capacity = capacity;
  }
  list->names[list->count] = brim_strdup(name);
  if (!list->names[list->count]) {
    return brim_fail(BRIM_ENOMEM, "out of memory while looking for CUPTI");
  }
  list->names[++list->count] = NULL;
  return BRIM_OK;
}

// root + prefix + "/" + pattern. A prefix is a folder of the user: one with a character that
// glob(3) reads otherwise is left out.
static brim_status add_matches(name_list *list, const char *root, const char *prefix,
                               const char *pattern) {
  if (!prefix || prefix[0] != '/' || strpbrk(prefix, "*?[\\")) return BRIM_OK;
  brim_str text;
  brim_str_init(&text);
  brim_str_printf(&text, "%s%s/%s", root ? root : "", prefix, pattern);
  brim_status status = brim_str_status(&text);
  glob_t found = {0};
  int code = status ? GLOB_NOMATCH : glob(text.data, 0, NULL, &found);
  if (code == GLOB_NOSPACE) status = BRIM_ENOMEM;
  for (size_t i = 0; code == 0 && i < found.gl_pathc && !status; i++) {
    status = add(list, found.gl_pathv[i]);
  }
  if (code == 0) globfree(&found);
  brim_str_deinit(&text);
  return status ? brim_fail(status, "out of memory while looking for CUPTI") : BRIM_OK;
}

// A folder with bin/ and lib/ beside each other: the packages of its Python (nvidia/cuda_cupti/lib
// of CUDA 12's, nvidia/cu13/lib of CUDA 13's).
static brim_status add_python(name_list *list, const char *root, const char *prefix,
                              const char *version) {
  static const char *const packages[] = {"site-packages", "dist-packages"};
  for (int i = 0; i < 2; i++) {
    char pattern[128];
    snprintf(pattern, sizeof pattern, "lib/python3*/%s/nvidia/*/lib/%s", packages[i], version);
    BRIM_TRY(add_matches(list, root, prefix, pattern));
  }
  return BRIM_OK;
}

// Every .../bin of $PATH.
static brim_status add_path(name_list *list, const brim_cupti_places *places, const char *version) {
  const char *at = places->path ? places->path : "";
  while (*at) {
    size_t n = strcspn(at, ":");
    if (n > 4 && memcmp(at + n - 4, "/bin", 4) == 0) {
      char *prefix = brim_strndup(at, n - 4);
      if (!prefix) return brim_fail(BRIM_ENOMEM, "out of memory while looking for CUPTI");
      brim_status status = add_python(list, places->root, prefix, version);
      brim_free(prefix);
      BRIM_TRY(status);
    }
    at += n + (at[n] == ':');
  }
  return BRIM_OK;
}

static brim_status add_version(name_list *list, const brim_cupti_places *p, const char *version) {
  BRIM_TRY(add(list, version));  // wherever the loader looks
  const char *const toolkits[] = {p->cuda_home, p->cuda_path, "/usr/local/cuda"};
  for (int i = 0; i < 3; i++) {
    char pattern[64];
    snprintf(pattern, sizeof pattern, "extras/CUPTI/lib64/%s", version);
    BRIM_TRY(add_matches(list, p->root, toolkits[i], pattern));
    snprintf(pattern, sizeof pattern, "lib64/%s", version);
    BRIM_TRY(add_matches(list, p->root, toolkits[i], pattern));
  }
  char pattern[64];
  snprintf(pattern, sizeof pattern, "lib/%s", version);
  BRIM_TRY(add_matches(list, p->root, p->conda_prefix, pattern));
  BRIM_TRY(add_python(list, p->root, p->virtual_env, version));
  BRIM_TRY(add_python(list, p->root, p->conda_prefix, version));
  BRIM_TRY(add_path(list, p, version));
  if (p->home && p->home[0]) {
    char *local = brim_fs_join(p->home, ".local");
    if (!local) return brim_fail(BRIM_ENOMEM, "out of memory while looking for CUPTI");
    brim_status status = add_python(list, p->root, local, version);
    brim_free(local);
    BRIM_TRY(status);
  }
  return add_python(list, p->root, "/usr/local", version);
}

brim_status brim_cupti_names(const brim_cupti_places *places, char ***out) {
  *out = NULL;
  name_list list = {0};
  for (int i = 0; i < VERSIONS; i++) {
    brim_status status = add_version(&list, places, versions[i]);
    if (status) {
      brim_cupti_names_free(list.names);
      return status;
    }
  }
  *out = list.names;
  return BRIM_OK;
}

void brim_cupti_names_free(char **names) {
  for (char **name = names; name && *name; name++) brim_free(*name);
  brim_free(names);
}

//---------------------------------- opening ----------------------------------

brim_status brim_cupti_load(brim_cupti_api *api, brim_dl **dl) {
  *dl = NULL;
  const brim_cupti_places places = {.root = "",
                                    .cuda_home = getenv("CUDA_HOME"),
                                    .cuda_path = getenv("CUDA_PATH"),
                                    .virtual_env = getenv("VIRTUAL_ENV"),
                                    .conda_prefix = getenv("CONDA_PREFIX"),
                                    .home = getenv("HOME"),
                                    .path = getenv("PATH")};
  const brim_dl_symbol symbols[] = {
      {"cuptiGetVersion", (void **)&api->version, true},
      {"cuptiGetResultString", (void **)&api->result_string, false},
      {"cuptiSubscribe", (void **)&api->subscribe, true},
      {"cuptiSubscribe_v2", (void **)&api->subscribe_v2, false},
      {"cuptiUnsubscribe", (void **)&api->unsubscribe, true},
      {"cuptiActivitySetAttribute", (void **)&api->set_attribute, false},
      {"cuptiActivityRegisterCallbacks", (void **)&api->register_callbacks, true},
      {"cuptiActivityEnable", (void **)&api->enable, true},
      {"cuptiActivityDisable", (void **)&api->disable, true},
      {"cuptiActivityFlushAll", (void **)&api->flush, true},
      {"cuptiActivityGetNextRecord", (void **)&api->next_record, true},
      {"cuptiActivityGetNumDroppedRecords", (void **)&api->dropped, false},
      {"cuptiGetTimestamp", (void **)&api->timestamp, true},
  };
  char **names = NULL;
  BRIM_TRY(brim_cupti_names(&places, &names));
  // Kept open for good: the library has threads and exit handlers of its own.
  brim_status status =
      brim_dl_open((const char *const *)names, symbols, sizeof symbols / sizeof *symbols, true, dl);
  brim_cupti_names_free(names);
  if (status != BRIM_ENOENT) return status;
  return brim_fail(
      BRIM_EUNSUPPORTED,
      "cannot trace the GPU: CUPTI not found (%s); install the CUDA toolkit or the Python package "
      "nvidia-cuda-cupti, or add the folder of libcupti.so to LD_LIBRARY_PATH",
      brim_status_detail());
}

//---------------------------------- what codes mean ----------------------------------

brim_status brim_cupti_fail(const brim_cupti_api *api, const char *what, int code) {
  switch (code) {
    case BRIM_CUPTI_INSUFFICIENT_PRIVILEGES:
    case BRIM_CUPTI_VIRTUAL_INSUFFICIENT_PRIVILEGES:
      return brim_fail(BRIM_EUNSUPPORTED,
                       "CUPTI: %s: no permission to trace the GPU; run as root, or load the NVIDIA "
                       "driver with NVreg_RestrictProfilingToAdminUsers=0",
                       what);
    case BRIM_CUPTI_MULTIPLE_SUBSCRIBERS:
      return brim_fail(BRIM_EUNSUPPORTED,
                       "CUPTI: another tool is tracing this process (Nsight Systems, Nsight "
                       "Compute, cuda-gdb or a profiler); run without it");
    case BRIM_CUPTI_OUT_OF_MEMORY:
      return brim_fail(BRIM_EOOM, "CUPTI: %s: not enough GPU memory for its buffers (about 10 MB)",
                       what);
    default:
      break;
  }
  const char *text = NULL;
  if (api->result_string && api->result_string(code, &text) != BRIM_CUPTI_SUCCESS) text = NULL;
  return brim_fail(BRIM_EUNSUPPORTED, "CUPTI: %s: %s (%d)", what, text ? text : brim_tr("failed"),
                   code);
}
