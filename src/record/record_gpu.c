// What the makers say of some GPUs: to hold one card against another, and to tell how many threads one
// keeps at once. The figures are those of the makers' papers; where guides have others, these are right.
#include <math.h>
#include <string.h>

#include "record/record.h"

// The first that a name fits is it: a laptop's before its desktop's.
static const brim_gpu_facts cards[] = {
    {"H200", "H200", 16896, 132, 2048, 141, 141, 4800, 4800, 67, 494, "1,024-4,096", 1830},
    {"H100", "H100", 16896, 132, 2048, 80, 80, 3350, 3350, 67, 494, "1,024-4,096", 1830},
    {"A100", "A100", 6912, 108, 2048, 40, 80, 1555, 2039, 19.5, 156, "1,024-4,096", 1410},
    {"RTX 4090", "4090", 16384, 128, 1536, 24, 24, 1008, 1008, 82.6, 82.6, "512-2,048", 2520},
    {"RTX 3090", "3090", 10496, 82, 1536, 24, 24, 936, 936, 35.6, 35.6, "512-2,048", 1695},
    {"RTX 3060 Laptop", "3060 Laptop", 3840, 30, 1536, 6, 6, 336, 336, 10.9, (double)NAN, "128-256",
     1425},
    {"RTX 3060", "3060", 3584, 28, 1536, 12, 12, 360, 360, 12.7, 12.7, "256-512", 1777},
};

const brim_gpu_facts *brim_gpu_facts_find(const char *device) {
  for (size_t i = 0; i < sizeof cards / sizeof *cards; i++) {
    if (strstr(device, cards[i].match)) return &cards[i];
  }
  return NULL;
}
