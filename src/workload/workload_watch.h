// What goes wrong in losses and gradients while a network trains: ones that are not finite, and ones
// that are suddenly many times what they were. Looks at every reading of the device's sums and asks
// nothing else of it. Callers: workloads that train a network by gradients.
#ifndef BRIM_WORKLOAD_WATCH_H_
#define BRIM_WORKLOAD_WATCH_H_

#include "workload/workload.h"

#ifdef __cplusplus
extern "C" {
#endif

// Rows of workloads that train a network, before their own; and of their sums.
enum {
  BRIM_NET_LOSS,
  BRIM_NET_ACCURACY,
  BRIM_NET_GRAD_NORM,
  BRIM_NET_GRAD_NORM_MAX,
  BRIM_NET_LOSS_SCALE,
  BRIM_NET_ROWS
};
enum { BRIM_NET_SUM_LOSS, BRIM_NET_SUM_CORRECT, BRIM_NET_SUM_ROWS, BRIM_NET_SUMS };
extern const brim_work_sums brim_net_work_sums;

enum {
  BRIM_TROUBLE_LOSS_NOT_FINITE,
  BRIM_TROUBLE_GRADIENT_NOT_FINITE,
  BRIM_TROUBLE_LOSS_EXPLODED,
  BRIM_TROUBLE_GRADIENT_EXPLODED,
  BRIM_NET_TROUBLES
};
extern const brim_work_trouble_row brim_net_troubles[BRIM_NET_TROUBLES];

// The last so many readings of a figure, for their median.
enum { BRIM_WATCH_WINDOW = 64 };
typedef struct brim_watch_window {
  double values[BRIM_WATCH_WINDOW];
  int64_t count;  // taken in all
  double first;
} brim_watch_window;

typedef struct brim_net_watch {
  const brim_config *config;
  const struct brim_work_set *data;  // the training set, to find what is not finite in; NULL = none
  bool looked;                       // for it, once
  char odd[320];  // the first sample that is: "x.h5[5]: the input holds ..."; "" = none
  uint64_t odd_count, odd_of;  // samples that are, of those read to find them
  brim_watch_window loss, norm;
  int64_t skipped;  // steps when last asked
  bool scaled;      // losses are scaled (fp16): skipped steps are how the scale is found
} brim_net_watch;

// The members of brim_work_diagnosis, of a watch.
size_t brim_net_watch_take(brim_net_watch *watch, const brim_work_moment *at,
                           brim_work_trouble out[BRIM_WORK_MAX_TROUBLES]);
void brim_net_watch_advice(const brim_net_watch *watch, const int64_t *counts, double lr, char *out,
                           size_t size);
brim_status brim_net_watch_lost(brim_net_watch *watch, int64_t epoch, double lr);
brim_status brim_net_watch_put(const brim_net_watch *watch, const int64_t *times, json_t *metadata);
void brim_net_watch_get(brim_net_watch *watch, const json_t *metadata, int64_t skipped,
                        int64_t *times);

// brim_json_get_numbers of numbers that are all finite; else 0.
size_t brim_work_get_numbers(const json_t *metadata, const char *key, double *out, size_t most);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_WORKLOAD_WATCH_H_
