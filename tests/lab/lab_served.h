// A server of a store in a process of its own, for tests of the socket.
#ifndef BRIM_TESTS_LAB_SERVED_H_
#define BRIM_TESTS_LAB_SERVED_H_

#include <sys/types.h>

#include "lab/wire/lab_wire_server.h"
#include "lab_test.h"

typedef struct lab_served {
  pid_t pid;
  char folder[600];
} lab_served;

// Options' folder and ops.store are set here; the caller sets the rest. `place` is the store's.
void lab_serve(const lab_place *place, const char *folder, const brim_lab_server_options *options,
               lab_served *out);
// Ends it: SIGTERM closes the server, SIGKILL leaves its files.
void lab_serve_end(lab_served *served, int sig);
// A raw connection to its socket, which blocks.
int lab_serve_connect(const lab_served *served);

#endif  // BRIM_TESTS_LAB_SERVED_H_
