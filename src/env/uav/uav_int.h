// The grid world's files among themselves.
#ifndef BRIM_UAV_INT_H_
#define BRIM_UAV_INT_H_

#include "base/base_scene.h"
#include "env/uav/uav_state.h"

// The settings in the bytes of a brim_env_values.
static inline brim_uav_values brim_grid_of(const void *values) {
  brim_uav_values v;
  memcpy(&v, values, sizeof v);
  return v;
}

// uav_scene.c, for the row.
void brim_grid_scene(const void *values, brim_scene *out);
size_t brim_grid_facts(const void *values, brim_scene_line *out);

#endif  // BRIM_UAV_INT_H_
