// Between the files of child processes: starting a program, splitting its output.
#ifndef BRIM_BASE_CHILD_INT_H_
#define BRIM_BASE_CHILD_INT_H_

#include "base/base_child.h"

#ifdef __cplusplus
extern "C" {
#endif

// Descriptors of a child about to start: its ends of the streams.
typedef struct brim_child_ends {
  int in, out, err;  // -1 = inherit
} brim_child_ends;

// Runs the program; *pid is a child of the calling thread.
brim_status brim_child_exec(const brim_child_options *options, const brim_child_ends *ends,
                            pid_t *pid);

// One stream's unfinished line.
typedef struct brim_child_splitter {
  char *data;  // (max + 1)
  size_t size, max;
  bool returns, skip_newline;  // after '\r'
} brim_child_splitter;

brim_status brim_child_splitter_init(brim_child_splitter *s, size_t max, bool returns);
void brim_child_splitter_deinit(brim_child_splitter *s);
// Calls on_line for every line that ends in the data, keeps the rest.
brim_status brim_child_splitter_add(brim_child_splitter *s, const brim_child_options *o,
                                    brim_child_stream stream, const char *data, size_t size);
// The last line, when the output ended inside it.
brim_status brim_child_splitter_end(brim_child_splitter *s, const brim_child_options *o,
                                    brim_child_stream stream);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_BASE_CHILD_INT_H_
