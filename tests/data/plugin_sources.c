// A plug-in for the tests of data: one source that works (it echoes its arguments), and others that
// are wrong in one way each.
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

static brim_status echo_read(void *state, uint64_t index, void *input, void *target) {
  const char *text = state;
  int32_t label = (unsigned char)text[index];
  memcpy(input, text + index, 1);
  memcpy(target, &label, sizeof label);
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
static const brim_source_table silent = {.abi = BRIM_SOURCE_ABI,
                                         .name = "silent",
                                         .open = silent_open,
                                         .info = echo_info,
                                         .read = echo_read,
                                         .close = echo_close};

brim_status brim_plugin_query(uint32_t abi, const brim_host_api *host, const brim_plugin **out) {
  static const brim_extension extensions[] = {
      {"data.source/echo", &echo},     {"data.source/old", &old},
      {"data.source/hollow", &hollow}, {"data.source/shapeless", &shapeless},
      {"data.source/silent", &silent},
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
