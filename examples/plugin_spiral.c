// A plug-in with a data source of its own: two interleaved spirals in the plane. It links nothing
// of brim; everything it needs comes through the host table.
//   cc -shared -fPIC plugin_spiral.c $(pkg-config --cflags brim) -lm -o spiral.so
//   brim train --plugin ./spiral.so dataset='plugin:spiral' model='mlp(depth=2, hidden=64)'
#include <brim/plugin.h>
#include <brim/source.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

enum { TRAIN_SAMPLES = 4096, TEST_SAMPLES = 1024 };

typedef struct spiral {
  uint64_t count, offset, seed;
} spiral;

static const brim_host_api *host;

// splitmix64: a random word as a pure function of its argument, so reading is thread-safe
static double uniform(uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return (double)((x ^ (x >> 31)) >> 11) / 9007199254740992.0;
}

static brim_status spiral_open(const brim_source_how *how, void **state) {
  spiral *s = (spiral *)host->alloc(sizeof *s, 0);
  if (!s) return host->fail(BRIM_ENOMEM, "spiral: out of memory");
  int train = strcmp(how->split, "train") == 0;
  s->count = train ? TRAIN_SAMPLES : TEST_SAMPLES;
  s->offset = train ? 0 : TRAIN_SAMPLES;
  s->seed = how->seed;
  *state = s;
  return BRIM_OK;
}

static void spiral_info(void *state, brim_source_info *out) {
  const spiral *s = (const spiral *)state;
  memset(out, 0, sizeof *out);
  out->count = s->count;
  out->type = BRIM_SAMPLE_F32;
  out->rank = 1;
  out->dim[0] = 2;
  out->classes = 2;
}

static brim_status spiral_read(void *state, uint64_t index, void *input, void *target) {
  const spiral *s = (const spiral *)state;
  uint64_t id = 4 * (s->seed * 1000003u + s->offset + index);
  int32_t label = uniform(id) < 0.5;
  double t = 0.25 + 2.0 * uniform(id + 1);
  double angle = 3.0 * t + 3.14159265358979 * label;
  float xy[2] = {(float)(t * cos(angle) + 0.05 * uniform(id + 2)),
                 (float)(t * sin(angle) + 0.05 * uniform(id + 3))};
  memcpy(input, xy, sizeof xy);
  memcpy(target, &label, sizeof label);
  return BRIM_OK;
}

static void spiral_close(void *state) { host->free(state); }

static const brim_source_table spiral_source = {
    .abi = BRIM_SOURCE_ABI,
    .name = "spiral",
    .open = spiral_open,
    .info = spiral_info,
    .read = spiral_read,
    .close = spiral_close,
};

static const brim_extension extensions[] = {{"data.source/spiral", &spiral_source}};

static const brim_plugin plugin = {
    .abi = BRIM_PLUGIN_ABI,
    .name = "spiral",
    .version = "1.0",
    .extensions = extensions,
    .extension_count = 1,
};

BRIM_API brim_status brim_plugin_query(uint32_t abi, const brim_host_api *host_api,
                                       const brim_plugin **out) {
  if (abi != BRIM_PLUGIN_ABI) return BRIM_EABI;
  host = host_api;
  *out = &plugin;
  return BRIM_OK;
}
