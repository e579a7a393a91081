// `brim sweep GRID --dry-run`: what the grid has and needs, without submitting it. A child plans, so this
// process opens no GPU; the store is read where there is one.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/sweep/cli_sweep.h"
#include "lab/grid/lab_grid.h"
#include "lab/wire/lab_wire_ids.h"
#include "lab/wire/lab_wire_link.h"
#include "ui/sweep/ui_sweep.h"

typedef struct dry {
  const brim_cli_sweep_job *job;
  brim_lab_forecast plans;
  brim_forecast forecast;
  brim_forecast_row *rows;
  brim_forecast_need *needs;  // (rows, devices)
  brim_lab_ids ids;           // of the grid's points
  const char **states;        // by point; NULL = new
} dry;

static brim_status no_memory(void) {
  return brim_fail(BRIM_ENOMEM, "out of memory for a forecast");
}

//---------------------------------- devices ----------------------------------

static void add_device(brim_forecast *f, const char *spec, const char *name) {
  for (size_t i = 0; i < f->device_count; i++) {  // GPUs of one kind need one plan
    brim_forecast_device *known = &f->devices[i];
    if (strcmp(known->spec, spec) == 0) return;
    if (name[0] && strcmp(known->name, name) == 0) {
      known->count++;
      return;
    }
  }
  if (f->device_count == BRIM_FORECAST_DEVICES) return;
  brim_forecast_device *device = &f->devices[f->device_count++];
  *device = (brim_forecast_device){.count = 1, .total = (double)NAN};
  snprintf(device->spec, sizeof device->spec, "%s", spec);
  snprintf(device->name, sizeof device->name, "%s", name);
}

// The devices that the grid names, or all GPUs, or the CPU.
static void find_devices(dry *d) {
  const brim_lab_grid *grid = d->job->grid;
  brim_gpu_listed *gpus = NULL;
  size_t count = 0;
  if (d->job->monitor && brim_gpu_list(d->job->monitor, &gpus, &count)) count = 0;
  brim_status_clear();
  for (size_t i = 0; i < grid->device_count; i++) {
    const char *spec = grid->devices[i];
    const bool all = strcmp(spec, "auto") == 0 || strcmp(spec, "cuda") == 0;
    bool found = false;
    for (size_t g = 0; g < count; g++) {
      char own[BRIM_CLI_GPU_SPEC], index[32];
      snprintf(index, sizeof index, "cuda:%zu", g);
      const bool named =
          strcmp(spec, index) == 0 || (strlen(spec) > 4 && brim_str_starts(gpus[g].uuid, spec));
      if (!all && !named) continue;
      brim_cli_sweep_gpu_spec(gpus, count, g, own);
      add_device(&d->forecast, own, gpus[g].name);
      found = true;
    }
    if (!found) add_device(&d->forecast, spec, "");
  }
  brim_free(gpus);
  for (size_t i = 0; i < d->forecast.device_count; i++) {
    const brim_forecast_device *device = &d->forecast.devices[i];
    const bool gpu = brim_str_starts(device->spec, "cuda") ||
                     brim_str_starts(device->spec, "GPU-") || brim_str_starts(device->spec, "MIG-");
    const int64_t each = grid->per_gpu > 0 ? grid->per_gpu : 1;
    d->forecast.slots +=
        gpu ? device->count * each : brim_option_int(&d->job->cli->parse, "jobs", 1);
  }
}

//---------------------------------- plans ----------------------------------

static void on_plan(void *ctx, size_t done, size_t total) {
  const dry *d = ctx;
  if (d->job->cli->json) return;
  const brim_progress progress = {.title = brim_tr("planning"),
                                  .done = (int64_t)done,
                                  .total = (int64_t)total,
                                  .elapsed_s = (double)NAN,
                                  .eta_s = (double)NAN,
                                  .rate = (double)NAN};
  brim_cli_progress(d->job->cli, &progress);
}

static brim_status make_plans(dry *d) {
  const char *specs[BRIM_FORECAST_DEVICES];
  brim_cli_sweep_words words;
  BRIM_TRY(brim_cli_sweep_planner(d->job, &words));
  const brim_lab_plan_options how = {
      .command = words.list,
      .measure = brim_option_flag(&d->job->cli->parse, "measure", false),
      .stop = d->job->cli->stop,
      .on_plan = on_plan,
      .ctx = d};
  for (size_t i = 0; i < d->forecast.device_count; i++) specs[i] = d->forecast.devices[i].spec;
  brim_status status =
      brim_lab_forecast_make(d->job->grid, specs, d->forecast.device_count, &how, &d->plans);
  brim_free(words.program);
  return status;
}

//---------------------------------- the store ----------------------------------

static brim_status see_state(void *ctx, const brim_store_exp *exp) {
  dry *d = ctx;
  size_t point;
  if (brim_lab_ids_find(&d->ids, exp->id, &point))
    d->states[point] = brim_exp_state_name(exp->state);
  return BRIM_OK;
}

// What is there already, and how long it took. A store that cannot be read is as good as none.
static brim_status read_store(dry *d) {
  brim_lab_link *link = NULL;
  const brim_lab_grid *grid = d->job->grid;
  BRIM_TRY(brim_lab_ids_init(&d->ids, grid->count));
  for (size_t i = 0; i < grid->count; i++) brim_lab_ids_add(&d->ids, grid->points[i].id, i);
  brim_status status = brim_lab_link_open(d->job->place, NULL, &link);
  if (!status) status = brim_lab_list(link, NULL, see_state, d);
  if (!status) status = brim_lab_forecast_times(&d->plans, link);
  brim_lab_link_close(link);
  if (status == BRIM_ENOMEM) return status;
  if (status && status != BRIM_ENOENT) {
    brim_log_warn("sweep", "cannot read the store %s: %s", d->job->shown, brim_status_detail());
  }
  brim_status_clear();
  return BRIM_OK;
}

//---------------------------------- the record ----------------------------------

static void make_need(const brim_lab_plan *plan, brim_forecast_need *out) {
  const bool gpu = brim_str_starts(plan->device, "cuda");
  *out = (brim_forecast_need){.bytes = plan->planned_device,
                              .failure = plan->failure,
                              .adapts = plan->adapts,
                              .message = plan->message,
                              .run_s = plan->run_s,
                              .measured = !plan->run_known};
  if (gpu && !isnan(plan->overhead)) out->bytes += plan->overhead;
  if (!gpu) out->bytes += plan->planned_host;
}

static brim_status make_record(dry *d) {
  const brim_lab_grid *grid = d->job->grid;
  brim_forecast *f = &d->forecast;
  d->rows = brim_calloc(grid->count + 1, sizeof *d->rows);
  d->needs = brim_calloc(grid->count * f->device_count + 1, sizeof *d->needs);
  if (!d->rows || !d->needs) return no_memory();
  for (size_t i = 0; i < grid->count; i++) {
    brim_forecast_need *needs = &d->needs[i * f->device_count];
    double steps = (double)NAN;
    for (size_t n = 0; n < f->device_count; n++) {
      const brim_lab_plan *plan = brim_lab_forecast_of(&d->plans, i, n);
      brim_forecast_device *device = &f->devices[n];
      make_need(plan, &needs[n]);
      if (isnan(steps)) steps = plan->steps;
      if (isnan(device->total)) device->total = plan->total;
      if (!device->name[0]) snprintf(device->name, sizeof device->name, "%s", plan->name);
    }
    d->rows[i] = (brim_forecast_row){.id = grid->points[i].id,
                                     .label = grid->points[i].label,
                                     .state = d->states[i],
                                     .steps = steps,
                                     .needs = needs};
  }
  f->name = d->job->name;
  f->store = d->job->shown;
  f->rows = d->rows;
  f->row_count = grid->count;
  return BRIM_OK;
}

//---------------------------------- output ----------------------------------

static brim_status put_plan(json_t *plans, const brim_lab_plan *plan) {
  json_t *o;
  BRIM_TRY(brim_lab_plan_to_json(plan, &o));
  brim_status status = brim_json_put(o, "run_s", brim_json_number(plan->run_s));
  if (!status) status = brim_json_put(o, "run_known", json_boolean(plan->run_known));
  if (!status) return brim_json_push(plans, o);
  json_decref(o);
  return status;
}

static brim_status point_event(const dry *d, size_t i) {
  const brim_lab_point *p = &d->job->grid->points[i];
  json_t *f = json_object(), *plans = json_array();
  brim_status s = brim_json_put(f, "plans", plans);
  for (size_t n = 0; n < d->forecast.device_count && !s; n++) {
    s = put_plan(plans, brim_lab_forecast_of(&d->plans, i, n));
  }
  if (!s) s = brim_json_put(f, "id", json_string(p->id));
  if (!s) s = brim_json_put(f, "group", json_string(p->group));
  if (!s) s = brim_json_put(f, "label", json_string(p->label));
  if (!s) s = brim_json_put(f, "config", json_string(p->config));
  if (!s) s = brim_json_put(f, "state", d->states[i] ? json_string(d->states[i]) : json_null());
  if (!s) return brim_cli_event(d->job->cli, "point", f);
  json_decref(f);
  return s;
}

static brim_status sums_event(const dry *d) {
  brim_forecast_sums sums;
  brim_forecast_sum(&d->forecast, &sums);
  json_t *f = json_object();
  brim_status s = brim_json_put(f, "experiments", json_integer((json_int_t)d->forecast.row_count));
  if (!s) s = brim_json_put(f, "new", json_integer((json_int_t)sums.fresh));
  if (!s) s = brim_json_put(f, "existing", json_integer((json_int_t)sums.known));
  if (!s) s = brim_json_put(f, "done", json_integer((json_int_t)sums.done));
  if (!s) s = brim_json_put(f, "adapt", json_integer((json_int_t)sums.adapt));
  if (!s) s = brim_json_put(f, "cannot_run", json_integer((json_int_t)sums.stuck));
  if (!s) s = brim_json_put(f, "most_bytes", brim_json_number(sums.most_bytes));
  if (!s) s = brim_json_put(f, "slots", json_integer(d->forecast.slots));
  if (!s) s = brim_json_put(f, "time_unknown", json_integer((json_int_t)sums.timeless));
  if (!s) s = brim_json_put(f, "run_s", brim_json_number(sums.run_s));
  if (!s) s = brim_json_put(f, "wall_s", brim_json_number(sums.wall_s));
  if (!s) return brim_cli_event(d->job->cli, "dry_run", f);
  json_decref(f);
  return s;
}

static brim_status show(const dry *d) {
  brim_cli *cli = d->job->cli;
  if (cli->json) {
    for (size_t i = 0; i < d->job->grid->count; i++) BRIM_TRY(point_event(d, i));
    return sums_event(d);
  }
  brim_str text;
  brim_str_init(&text);
  brim_status status = brim_ui_forecast(&cli->out, &d->forecast, &text);
  if (!status) brim_cli_print(cli, &text);
  brim_str_deinit(&text);
  return status;
}

brim_status brim_cli_sweep_dry(const brim_cli_sweep_job *job) {
  dry d = {.job = job};
  find_devices(&d);
  d.states = brim_calloc(job->grid->count + 1, sizeof *d.states);
  brim_status status = d.states ? make_plans(&d) : no_memory();
  if (!status) status = read_store(&d);
  if (!status) status = make_record(&d);
  if (!status) status = show(&d);
  brim_lab_ids_deinit(&d.ids);
  brim_lab_forecast_free(&d.plans);
  brim_free(d.rows);
  brim_free(d.needs);
  brim_free(d.states);
  return status;
}
