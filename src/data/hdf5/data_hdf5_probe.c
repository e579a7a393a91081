// What libhdf5 is about to do with a file is done once by the helper first: what ends that one would
// have ended this process.
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "data/hdf5/data_hdf5_helper.h"

static brim_status status_of(const brim_hdf5_probe_room *room, const brim_child_result *end) {
  if (room->done) return BRIM_OK;
  if (!room->version[0] && !end->signal) return brim_hdf5_helper_failed(room->at);
  if (room->version[0] && strncmp(room->version, BRIM_VERSION, sizeof room->version) != 0)
    return brim_fail(BRIM_EABI, "%s: the HDF5 helper program has version %.31s, this brim has %s",
                     room->at, room->version, BRIM_VERSION);
  return brim_hdf5_helper_status(room->at, end);
}

static brim_status run(const char *path, brim_hdf5_request *request, brim_hdf5_probe_room *room,
                       int fd) {
  brim_child *c = NULL;
  bool ended = false;
  snprintf(room->at, sizeof room->at, "%s", path);
  brim_status status = brim_hdf5_helper_start(request, &fd, 1, &c);
  if (status == BRIM_ELIMIT) {  // the system has no process left: then without
    brim_status_clear();
    return BRIM_OK;
  }
  if (status) return status;  // a helper that cannot be run must not go unnoticed
  brim_stop_wait stop = {0};
  while (!ended && !status) {
    status = brim_child_wait(c, BRIM_STOP_LOOK_MS, &ended);
    if (status || ended || !brim_stop_overdue(&stop)) continue;
    brim_child_close(c);
    return brim_hdf5_helper_stopped(path);
  }
  room->at[sizeof room->at - 1] = 0;
  // A program that ignores SIGCHLD gets no exit code, but what the helper noted last.
  if (!status || status == BRIM_ECHILD) status = status_of(room, brim_child_get_result(c));
  brim_child_close(c);
  return status;
}

brim_status brim_hdf5_probe(const char *path, brim_hdf5_request *request) {
  brim_hdf5_probe_room *room = NULL;
  void *shared = NULL;
  int fd = -1;
  if (brim_hdf5_share(sizeof *room, &fd, &shared)) {  // then without
    brim_status_clear();
    return BRIM_OK;
  }
  room = shared;
  brim_status status = run(path, request, room, fd);
  (void)munmap(shared, sizeof *room);
  (void)close(fd);
  return status;
}
