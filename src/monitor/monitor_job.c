// The thread that writes a running job's file.
#include "monitor/monitor_job.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"

enum { PERIOD_NS = 500000000, TRIES = 5 };  // TRIES: failed writes in a row

struct brim_job_publisher {
  char folder[512];
  brim_thread *thread;
  pthread_mutex_t lock;
  pthread_cond_t wake;
  bool stop, changed;
  bool waits_for_period;  // the thread waits for the end of the period: a change need not wake it
  brim_job job;           // under the lock
};

// Waits until the job changes. False if the publisher stops.
static bool wait_for_change(brim_job_publisher *p, brim_job *out) {
  pthread_mutex_lock(&p->lock);
  while (!p->stop && !p->changed) pthread_cond_wait(&p->wake, &p->lock);
  bool more = !p->stop;
  p->changed = false;
  *out = p->job;
  pthread_mutex_unlock(&p->lock);
  return more;
}

// Waits until the period is over or the publisher stops.
static void wait_for_period(brim_job_publisher *p) {
  const int64_t due_ns = brim_clock_now().ns + PERIOD_NS;
  pthread_mutex_lock(&p->lock);
  p->waits_for_period = true;
  while (!p->stop && brim_cond_wait(&p->wake, &p->lock, due_ns)) continue;
  p->waits_for_period = false;
  pthread_mutex_unlock(&p->lock);
}

static void publish(void *ctx) {
  brim_job_publisher *p = ctx;
  brim_job job;
  int64_t number = (int64_t)syscall(SYS_gettid);
  brim_job_init(&job);
  for (int failed = 0; failed < TRIES && wait_for_change(p, &job);) {
    job.number = number;
    if (brim_job_publish(p->folder, &job)) {
      if (failed++ == 0) {
        brim_log_debug("monitor", "brim top cannot show this job: %s", brim_status_detail());
      }
      brim_status_clear();
    } else {
      failed = 0;
    }
    wait_for_period(p);
  }
  job.number = number;
  brim_job_withdraw(p->folder, &job);
}

static bool init_sync(brim_job_publisher *p) {
  if (pthread_mutex_init(&p->lock, NULL)) return false;
  if (!brim_cond_init(&p->wake)) return true;
  pthread_mutex_destroy(&p->lock);
  return false;
}

brim_job_publisher *brim_job_publisher_start(brim_job *first) {
  brim_job_publisher *p = brim_calloc(1, sizeof *p);
  brim_job_identify(first);
  first->started_s = first->updated_s = brim_clock_wall_s();
  if (!p || brim_job_folder(p->folder, sizeof p->folder) || !init_sync(p)) goto fail;
  p->job = *first;
  p->changed = true;
  if (brim_thread_start(publish, p, "brim-publish", &p->thread)) goto fail_sync;
  return p;
fail_sync:
  pthread_cond_destroy(&p->wake);
  pthread_mutex_destroy(&p->lock);
fail:
  brim_status_clear();
  brim_free(p);
  return NULL;
}

void brim_job_publisher_set(brim_job_publisher *p, const brim_job *job) {
  if (!p) return;
  pthread_mutex_lock(&p->lock);
  p->job = *job;
  p->job.updated_s = brim_clock_wall_s();
  p->changed = true;
  if (!p->waits_for_period) pthread_cond_signal(&p->wake);
  pthread_mutex_unlock(&p->lock);
}

void brim_job_publisher_stop(brim_job_publisher *p) {
  if (!p) return;
  pthread_mutex_lock(&p->lock);
  p->stop = true;
  pthread_cond_signal(&p->wake);
  pthread_mutex_unlock(&p->lock);
  brim_thread_join(p->thread);
  pthread_cond_destroy(&p->wake);
  pthread_mutex_destroy(&p->lock);
  brim_free(p);
}
