// What NVML says about the GPUs of this machine, asked once and by a thread of its own: a call into a
// driver that hangs never returns, and everything else is to be shown all the same.
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "doctor/doctor_int.h"

struct brim_doctor_survey {
  brim_status (*open)(void *ctx, brim_gpu_monitor **out);
  void *ctx;
  brim_thread *thread;  // NULL = none could be started: asked in place
  brim_gpu_monitor *monitor;
  brim_doctor_gpus gpus;
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  bool done;  // by `mutex`; all above is the thread's until then
};

//---------------------------------- asking ----------------------------------

static void name_gpus(brim_doctor_gpus *e) {
  int index = -1, slice = 0;
  char bus[32] = "";
  for (size_t i = 0; i < e->count; i++) {
    brim_doctor_gpu *g = &e->list[i];
    bool same = g->listed.slice && i > 0 && e->list[i - 1].listed.slice && g->setup.bus_id[0] &&
                strcmp(bus, g->setup.bus_id) == 0;
    slice = same ? slice + 1 : 0;
    if (!same) index++;
    g->index = index;
    snprintf(bus, sizeof bus, "%s", g->setup.bus_id);
    if (g->listed.slice) {
      snprintf(g->name, sizeof g->name, brim_tr("GPU %d slice %d"), index, slice);
    } else {
      snprintf(g->name, sizeof g->name, "GPU %d", index);
    }
  }
}

static void ask_about(brim_gpu_monitor *monitor, brim_doctor_gpu *g) {
  const char *uuid = g->listed.uuid;
  if (brim_gpu_read_setup(monitor, uuid, &g->setup)) brim_status_clear();
  g->memory = (brim_gpu_memory){(double)NAN, (double)NAN, (double)NAN, (double)NAN};
  if (brim_gpu_read_memory(monitor, uuid, &g->memory)) g->memory.total = (double)NAN;
  g->processes_known =
      brim_gpu_read_processes(monitor, uuid, &g->processes, &g->process_count) == BRIM_OK;
  brim_status_clear();
}

static void ask_all(brim_doctor_survey *s) {
  brim_doctor_gpus *out = &s->gpus;
  brim_gpu_listed *list = NULL;
  size_t count = 0;
  brim_status status = brim_gpu_list(s->monitor, &list, &count);
  brim_gpu_driver(s->monitor, out->driver, sizeof out->driver);
  out->cuda = brim_gpu_cuda_version(s->monitor);
  if (!status && count == 0) {
    snprintf(out->why, sizeof out->why, "%s", brim_tr("the driver lists no GPU"));
  }
  if (count > 0) out->list = (brim_doctor_gpu *)brim_calloc(count, sizeof *out->list);
  if (!status && count > 0 && !out->list) {
    status = brim_fail(BRIM_ENOMEM, "out of memory for the list of GPUs");
  }
  if (status) snprintf(out->why, sizeof out->why, "%s", brim_status_detail());
  for (size_t i = 0; out->list && i < count; i++) {
    out->list[i].listed = list[i];
    ask_about(s->monitor, &out->list[i]);
    out->count++;
  }
  name_gpus(out);
  brim_free(list);
}

static void ask(void *ctx) {
  brim_doctor_survey *s = (brim_doctor_survey *)ctx;
  brim_time start = brim_clock_now();
  brim_status status = s->open ? s->open(s->ctx, &s->monitor) : brim_gpu_monitor_open(&s->monitor);
  s->gpus.opened = !status;
  if (status) {
    snprintf(s->gpus.why, sizeof s->gpus.why, "%s", brim_status_detail());
  } else {
    ask_all(s);
  }
  brim_utf8_trim(s->gpus.why);
  brim_status_clear();
  s->gpus.seconds = (double)brim_time_since_ns(start, brim_clock_now()) * 1e-9;
  pthread_mutex_lock(&s->mutex);
  s->done = true;
  pthread_cond_signal(&s->changed);
  pthread_mutex_unlock(&s->mutex);
}

//---------------------------------- the thread ----------------------------------

brim_status brim_doctor_survey_start(brim_status (*open)(void *ctx, brim_gpu_monitor **out),
                                     void *ctx, brim_doctor_survey **out) {
  *out = NULL;
  brim_doctor_survey *s = (brim_doctor_survey *)brim_calloc(1, sizeof *s);
  if (!s) return brim_fail(BRIM_ENOMEM, "out of memory for the list of GPUs");
  s->open = open;
  s->ctx = ctx;
  pthread_mutex_init(&s->mutex, NULL);
  (void)brim_cond_init(&s->changed);
  if (brim_thread_start(ask, s, "brim-nvml", &s->thread)) {
    brim_status_clear();
    ask(s);
  }
  *out = s;
  return BRIM_OK;
}

const brim_doctor_gpus *brim_doctor_survey_wait(brim_doctor_survey *s, double seconds) {
  const int64_t until_ns = brim_clock_now().ns + (int64_t)(seconds * 1e9);
  pthread_mutex_lock(&s->mutex);
  while (!s->done && brim_cond_wait(&s->changed, &s->mutex, until_ns)) continue;
  bool done = s->done;
  pthread_mutex_unlock(&s->mutex);
  return done ? &s->gpus : NULL;
}

brim_gpu_monitor *brim_doctor_survey_take(brim_doctor_survey *s) {
  brim_gpu_monitor *monitor = NULL;
  if (brim_doctor_survey_wait(s, 0)) {
    monitor = s->monitor;
    s->monitor = NULL;
  }
  return monitor;
}

void brim_doctor_survey_free(brim_doctor_survey *s) {
  if (!s || !brim_doctor_survey_wait(s, 0)) return;
  brim_thread_join(s->thread);
  for (size_t i = 0; i < s->gpus.count; i++) brim_free(s->gpus.list[i].processes);
  brim_free(s->gpus.list);
  brim_gpu_monitor_close(s->monitor);
  pthread_cond_destroy(&s->changed);
  pthread_mutex_destroy(&s->mutex);
  brim_free(s);
}
