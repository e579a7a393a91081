// A server of a store in a separate process, for tests of the socket.
#ifndef BRIM_TESTS_LAB_SERVED_H_
#define BRIM_TESTS_LAB_SERVED_H_

#include <sys/types.h>

#include "lab/wire/lab_wire_server.h"
#include "lab_test.h"

typedef struct lab_served {
  pid_t pid;
  char folder[600];
} lab_served;

// Sets the options' folder and ops.store; the caller sets the rest. `place` is the store's.
void lab_serve(const lab_place *place, const char *folder, const brim_lab_server_options *options,
               lab_served *out);
// Ends the process: SIGTERM closes the server, SIGKILL leaves its files.
void lab_serve_end(lab_served *served, int sig);
// A raw, blocking connection to the server's socket.
int lab_serve_connect(const lab_served *served);

#endif  // BRIM_TESTS_LAB_SERVED_H_
