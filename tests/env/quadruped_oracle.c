#include "quadruped_oracle.h"

#include <mujoco/mujoco.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "env/quadruped/quadruped_model.h"

struct quadruped_oracle {
  mjModel *model;
  mjData *data;
};

// A leg: its direction, the ankle's axis and range.
typedef struct leg {
  int x, y, axis_x, low, high;
} leg;

static const leg legs[4] = {
    {1, 1, -1, 30, 70}, {-1, 1, 1, -70, -30}, {-1, -1, -1, -70, -30}, {1, -1, 1, 30, 70}};

static int write_model(char *out, size_t size, double margin, int rk4, int exact) {
  int n = snprintf(
      out, size,
      "<mujoco><compiler angle='degree' inertiafromgeom='true'/>"
      "<option integrator='%s' timestep='0.01' solver='Newton' %s><flag warmstart='%s'/></option>"
      "<default><joint armature='1' damping='1' limited='true'/>"
      "<geom conaffinity='0' condim='3' density='5' friction='1 0.5 0.5' margin='%.17g'/>"
      "</default><worldbody>"
      "<geom type='plane' size='40 40 40' conaffinity='1'/>"
      "<body pos='0 0 0.75'><geom type='sphere' size='0.25'/>"
      "<joint name='root' type='free' armature='0' damping='0' limited='false'/>",
      rk4 ? "RK4" : "Euler", exact ? "iterations='100' tolerance='1e-15'" : "",
      exact ? "disable" : "enable", margin);
  for (int k = 0; k < 4; k++) {
    const leg *l = &legs[k];
    double x = 0.2 * l->x, y = 0.2 * l->y;
    n += snprintf(out + n, size - (size_t)n,
                  "<body><geom type='capsule' size='0.08' fromto='0 0 0 %g %g 0'/>"
                  "<body pos='%g %g 0'><joint name='hip%d' axis='0 0 1' range='-30 30'/>"
                  "<geom type='capsule' size='0.08' fromto='0 0 0 %g %g 0'/>"
                  "<body pos='%g %g 0'><joint name='ankle%d' axis='%d 1 0' range='%d %d'/>"
                  "<geom type='capsule' size='0.08' fromto='0 0 0 %g %g 0'/>"
                  "</body></body></body>",
                  x, y, x, y, k, x, y, x, y, k, l->axis_x, l->low, l->high, 2 * x, 2 * y);
  }
  n += snprintf(out + n, size - (size_t)n, "</body></worldbody><actuator>");
  for (int k = 3; k < 7; k++) {
    for (int j = 0; j < 2; j++) {
      n += snprintf(out + n, size - (size_t)n,
                    "<motor joint='%s%d' gear='150' ctrllimited='true' ctrlrange='-1 1'/>",
                    j ? "ankle" : "hip", k % 4);
    }
  }
  return n + snprintf(out + n, size - (size_t)n, "</actuator></mujoco>");
}

quadruped_oracle *quadruped_oracle_create(double margin, int rk4, int exact, const char **why) {
  static char text[8192], error[1000];
  int n = write_model(text, sizeof(text), margin, rk4, exact);
  quadruped_oracle *o = calloc(1, sizeof(*o));
  mjVFS *files = malloc(sizeof(*files));
  *why = "no memory";
  if (!o || !files) goto fail;
  mj_defaultVFS(files);
  mj_makeEmptyFileVFS(files, "ant.xml", n);
  int at = mj_findFileVFS(files, "ant.xml");
  if (at < 0) goto fail;
  memcpy(files->filedata[at], text, (size_t)n);
  o->model = mj_loadXML("ant.xml", files, error, sizeof(error));
  mj_deleteVFS(files);
  *why = error;
  if (!o->model) goto fail;
  o->data = mj_makeData(o->model);
  if (!o->data) goto fail;
  free(files);
  return o;
fail:
  free(files);
  quadruped_oracle_destroy(o);
  return NULL;
}

void quadruped_oracle_destroy(quadruped_oracle *o) {
  if (!o) return;
  if (o->data) mj_deleteData(o->data);
  if (o->model) mj_deleteModel(o->model);
  free(o);
}

void quadruped_oracle_step(quadruped_oracle *o, double *qpos, double *qvel, const double *act) {
  mjData *d = o->data;
  memcpy(d->qpos, qpos, 15 * sizeof(*qpos));
  memcpy(d->qvel, qvel, 14 * sizeof(*qvel));
  quadruped_oracle_run(o, 1, act);
  memcpy(qpos, d->qpos, 15 * sizeof(*qpos));
  memcpy(qvel, d->qvel, 14 * sizeof(*qvel));
}

// The end of a capsule that touches the floor: 0 is at its body's origin, 1 the other.
static int end_of(const quadruped_oracle *o, const mjContact *c, int geom) {
  const mjtNum *near = o->data->xpos + 3 * o->model->geom_bodyid[geom];
  const mjtNum *middle = o->data->geom_xpos + 3 * geom;
  double apart[2] = {0, 0};
  for (int i = 0; i < 3; i++) {
    // A contact lies halfway between the surfaces; the floor's normal is z.
    double up = i == 2 ? o->model->geom_size[3 * geom] + c->dist / 2 : 0;
    double centre = c->pos[i] + up, far = 2 * middle[i] - near[i];
    apart[0] += (centre - near[i]) * (centre - near[i]);
    apart[1] += (centre - far) * (centre - far);
  }
  return apart[1] < apart[0];
}

int quadruped_oracle_touch(quadruped_oracle *o, const double *qpos, int touch[4]) {
  mjData *d = o->data;
  memcpy(d->qpos, qpos, 15 * sizeof(*qpos));
  mj_fwdPosition(o->model, d);
  memset(touch, 0, 4 * sizeof(*touch));
  for (int i = 0; i < d->ncon; i++) {
    const mjContact *c = &d->contact[i];
    // 0 is the floor, 1 the torso, then aux, hip and ankle links of the legs.
    int geom = c->geom1 ? c->geom1 : c->geom2;
    if (geom == 1) {
      touch[0] |= QUAD_TOUCH_TORSO;
    } else {
      touch[(geom - 2) / 3] |= QUAD_TOUCH_AUX_CENTRE << (2 * ((geom - 2) % 3) + end_of(o, c, geom));
    }
  }
  return d->ncon;
}

void quadruped_oracle_run(quadruped_oracle *o, int n, const double *act) {
  memcpy(o->data->ctrl, act, 8 * sizeof(*act));
  for (int i = 0; i < n; i++) mj_step(o->model, o->data);
}
