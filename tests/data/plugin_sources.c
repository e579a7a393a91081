// A plug-in for the tests of data: one source that works (it echoes its arguments), and others that are wrong in one
// way each.
#include <string.h>

#include "brim/plugin.h"
#include "brim/source.h"

static const brim_host_api *host_api;

static brim_status echo_open(const brim_source_how *how, void **state) {
  size_t n = strlen(how->args_json) + 1;
  char *text = host_api->alloc(n, 1);
  if (!text) return host_api->fail(BRIM_ENOMEM, "echo: out of memory");
  memcpy(text, how->args_json, n);
  *state = text;
  return BRIM_OK;
}

static void echo_info(void *state, brim_source_info *out) {
  memset(out, 0, sizeof *out);
  out->count = strlen(state);
  out->type = BRIM_SAMPLE_U8;
  out->rank = 1;
  out->dim[0] = 1;
  out->classes = 256;
}

// A source with an impossible shape.
static void shapeless_info(void *state, brim_source_info *out) {
  echo_info(state, out);
  out->dim[0] = 0;
}

// Samples of different sizes that are no images.
static void uneven_info(void *state, brim_source_info *out) {
  echo_info(state, out);
  out->varies = 1;
}

static void undecoded_info(void *state, brim_source_info *out) {
  uneven_info(state, out);
  out->rank = 3;
  out->dim[0] = out->dim[1] = out->dim[2] = 1;
}

static void targetless_info(void *state, brim_source_info *out) {
  echo_info(state, out);
  out->classes = 0;
}

static brim_status echo_size(void *state, uint64_t index, int64_t *height, int64_t *width) {
  (void)state;
  (void)index;
  *height = *width = 1;
  return BRIM_OK;
}

static brim_status echo_decode(void *state, uint64_t index, brim_source_image *image,
                               void *target) {
  (void)state;
  (void)index;
  (void)image;
  (void)target;
  return BRIM_EIO;
}

static brim_status echo_read(void *state, uint64_t index, void *input, void *target) {
  const char *text = state;
  int32_t label = (unsigned char)text[index];
  memcpy(input, text + index, 1);
  if (target) memcpy(target, &label, sizeof label);
  return BRIM_OK;
}

static void echo_close(void *state) { host_api->free(state); }

static brim_status silent_open(const brim_source_how *how, void **state) {
  (void)how;
  (void)state;
  return BRIM_EIO;
}

static const brim_source_table echo = {.abi = BRIM_SOURCE_ABI,
                                       .name = "echo",
                                       .open = echo_open,
                                       .info = echo_info,
                                       .read = echo_read,
                                       .close = echo_close};
static const brim_source_table old = {.abi = BRIM_SOURCE_ABI + 7, .name = "old"};
static const brim_source_table hollow = {.abi = BRIM_SOURCE_ABI, .name = "hollow"};
static const brim_source_table shapeless = {.abi = BRIM_SOURCE_ABI,
                                            .name = "shapeless",
                                            .open = echo_open,
                                            .info = shapeless_info,
                                            .read = echo_read,
                                            .close = echo_close};
#define ECHO_BUT(name_of, info_of) \
  .abi = BRIM_SOURCE_ABI, .name = name_of, .open = echo_open, .info = info_of, .close = echo_close
static const brim_source_table halfway = {ECHO_BUT("halfway", echo_info), .read = echo_read,
                                          .size = echo_size};
static const brim_source_table unread = {ECHO_BUT("unread", echo_info), .size = echo_size,
                                         .decode = echo_decode};
static const brim_source_table uneven = {ECHO_BUT("uneven", uneven_info), .size = echo_size,
                                         .decode = echo_decode};
static const brim_source_table undecoded = {ECHO_BUT("undecoded", undecoded_info),
                                            .read = echo_read};
static const brim_source_table targetless = {ECHO_BUT("targetless", targetless_info),
                                             .read = echo_read};
static const brim_source_table silent = {.abi = BRIM_SOURCE_ABI,
                                         .name = "silent",
                                         .open = silent_open,
                                         .info = echo_info,
                                         .read = echo_read,
                                         .close = echo_close};

brim_status brim_plugin_query(uint32_t abi, const brim_host_api *host, const brim_plugin **out) {
  static const brim_extension extensions[] = {
      {"data.source/echo", &echo},           {"data.source/old", &old},
      {"data.source/hollow", &hollow},       {"data.source/shapeless", &shapeless},
      {"data.source/silent", &silent},       {"data.source/halfway", &halfway},
      {"data.source/unread", &unread},       {"data.source/uneven", &uneven},
      {"data.source/undecoded", &undecoded}, {"data.source/targetless", &targetless},
  };
  static const brim_plugin plugin = {.abi = BRIM_PLUGIN_ABI,
                                     .name = "test-sources",
                                     .version = "1",
                                     .extensions = extensions,
                                     .extension_count = sizeof extensions / sizeof extensions[0]};
  if (abi != BRIM_PLUGIN_ABI) return BRIM_EABI;
  host_api = host;
  *out = &plugin;
  return BRIM_OK;
}
