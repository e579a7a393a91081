#include "lab_served.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lab/wire/lab_wire_server.h"

static volatile sig_atomic_t asked_to_end;

static void note_end(int sig) {
  (void)sig;
  asked_to_end = 1;
}

static void serve(const lab_place *place, brim_lab_server_options options, int ready) {
  struct sigaction action = {.sa_handler = note_end};
  sigaction(SIGTERM, &action, NULL);
  brim_store *store = NULL;
  brim_store_options o = lab_options(place);
  brim_lab_server *server = NULL;
  if (brim_store_open(place->place, &o, &store)) _exit(3);
  options.ops.store = store;
  if (brim_lab_server_open(&options, &server)) _exit(4);
  if (write(ready, "x", 1) != 1) _exit(5);
  close(ready);
  while (!asked_to_end) {
    struct pollfd p = {.fd = brim_lab_server_fd(server), .events = POLLIN};
    int wait_ms = brim_lab_server_wait_ms(server);
    if (wait_ms < 0 || wait_ms > 50) wait_ms = 50;  // the signal may come before poll
    poll(&p, 1, wait_ms);
    if (brim_lab_server_serve(server)) _exit(6);
  }
  brim_lab_server_close(server);
  brim_store_close(store);
  _exit(0);
}

void lab_serve(const lab_place *place, const char *folder, const brim_lab_server_options *options,
               lab_served *out) {
  int ready[2];
  char byte;
  snprintf(out->folder, sizeof out->folder, "%s", folder);
  assert_ok(brim_fs_mkdirs(folder));
  assert_int_equal(pipe(ready), 0);
  fflush(stdout);
  out->pid = fork();
  assert_true(out->pid >= 0);
  if (out->pid == 0) {
    close(ready[0]);
    brim_lab_server_options o = options ? *options : (brim_lab_server_options){0};
    o.folder = out->folder;
    serve(place, o, ready[1]);
  }
  close(ready[1]);
  assert_int_equal(read(ready[0], &byte, 1), 1);
  close(ready[0]);
}

void lab_serve_end(lab_served *served, int sig) {
  int status = 0;
  assert_int_equal(kill(served->pid, sig), 0);
  assert_int_equal(waitpid(served->pid, &status, 0), served->pid);
  if (sig == SIGTERM) {
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
  }
  served->pid = 0;
}

int lab_serve_connect(const lab_served *served) {
  brim_lab_sweep_info info;
  int fd = -1;
  assert_ok(brim_lab_socket_read(served->folder, &info));
  assert_ok(brim_lab_socket_connect(&info, 5000, &fd));
  assert_int_equal(fcntl(fd, F_SETFL, 0), 0);
  return fd;
}
