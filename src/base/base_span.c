// Names of the phases, from the one table in base_span.h.
#include "base/base_span.h"

const char *brim_phase_key(brim_phase phase) {
  static const char *const keys[] = {
#define X(id, key, label) key,
      BRIM_PHASE_MAP(X)
#undef X
  };
  return (unsigned)phase < BRIM_PHASE_COUNT ? keys[phase] : "?";
}

const char *brim_phase_label(brim_phase phase) {
  static const char *const labels[] = {
#define X(id, key, label) label,
      BRIM_PHASE_MAP(X)
#undef X
  };
  return (unsigned)phase < BRIM_PHASE_COUNT ? labels[phase] : "?";
}
