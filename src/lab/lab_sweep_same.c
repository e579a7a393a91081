// The rule about the first experiments of a sweep: where they all fail the same way, the rest would
// too. A function of how experiments ended, in order.
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "lab/lab_sweep_int.h"

// A message without what differs between experiments: the experiment's folder, and numbers.
static void normalise(const char *message, const char *folder, char *out, size_t size) {
  size_t n = 0, skip = strlen(folder);
  while (*message && n + 1 < size) {
    if (skip > 0 && strncmp(message, folder, skip) == 0) {
      message += skip;
      out[n++] = '*';
    } else if (isdigit((unsigned char)*message)) {
      while (isdigit((unsigned char)*message)) message++;
      out[n++] = '0';
    } else {
      out[n++] = *message++;
    }
  }
  out[n] = '\0';
}

void brim_lab_same_done(brim_lab_same *same) { same->off = true; }

bool brim_lab_same_add(brim_lab_same *same, const char *exp, const char *folder,
                       brim_failure failure, const char *message) {
  char text[sizeof same->message];
  if (same->off || brim_failure_retry_of(failure) == BRIM_RETRY_FREE) return false;
  for (size_t i = 0; i < same->count; i++) {
    if (strcmp(same->exps[i], exp) == 0) return false;
  }
  normalise(message, folder, text, sizeof text);
  if (same->count > 0 && (failure != same->failure || strcmp(text, same->message) != 0)) {
    same->off = true;
    return false;
  }
  same->failure = failure;
  snprintf(same->message, sizeof same->message, "%s", text);
  snprintf(same->exps[same->count++], sizeof same->exps[0], "%s", exp);
  if (same->count < BRIM_LAB_SAME) return false;
  same->off = true;
  return true;
}
