// The live view with a fake NVML: the values that nvidia-smi prints, none to eight GPUs, missing and failing calls, a GPU lost
// in mid-run, MIG, wrapping counters, events.
#include "fake_top.h"

static brim_top_source open_top(const brim_nvml_api *api) {
  brim_top_source source;
  assert_ok(brim_top_open_machine("no-such-machine", api, &source));
  return source;
}

static void read_after(brim_top_source *source, double seconds, unsigned want,
                       brim_top_view *view) {
  fake_top_pass(seconds);
  assert_ok(source->read(source->ctx, want, view));
}

static bool same(double a, double b) { return (isnan(a) && isnan(b)) || fabs(a - b) < 1e-6; }

static const brim_top_event *find_event(const brim_top_view *view, const char *kind) {
  for (size_t i = 0; i < view->event_count; i++) {
    if (!strcmp(view->events[i].kind, kind)) return &view->events[i];
  }
  return NULL;
}

static bool has_note(const brim_top_view *view, const char *part) {
  for (size_t i = 0; i < view->note_count; i++) {
    if (strstr(view->notes[i], part)) return true;
  }
  return false;
}

//---------------------------------- values of nvidia-smi ----------------------------------

// A line of `nvidia-smi dmon -s pucvmet` as an H200 printed it under load.
static const char DMON[] = "0 203 41 40 99 3 0 0 0 0 3201 1980 0 0 9663 9664 0 0 0 0 290 70";

static void dmon_line(const brim_top_gpu *g, char *out, size_t size) {
  const double mib = 1048576;
  snprintf(
      out, size,
      "%lld %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %d %.0f %.0f %.0f %lld "
      "%lld %lld %.0f %.0f",
      (long long)g->index, g->power_w, g->temperature_c, g->memory_temperature_c, g->gpu_percent,
      g->memory_busy_percent, g->encoder_percent, g->decoder_percent, g->jpeg_percent,
      g->ofa_percent, g->memory_clock_mhz, g->clock_mhz, g->power_violation_percent,
      g->thermal_violation_percent > 0, g->memory_used / mib, g->bar1_used / mib,
      g->confidential_used / mib, (long long)g->ecc_corrected, (long long)g->ecc_uncorrected,
      (long long)g->pcie_replays, g->pcie_rx / mib, g->pcie_tx / mib);
}

static void test_dmon(void **state) {
  (void)state;
  fake_top_reset(1);
  brim_nvml_api api = fake_top_api();
  brim_top_source top = open_top(&api);
  brim_top_view view;
  brim_top_view_init(&view);
  char line[256];
  read_after(&top, 1, BRIM_TOP_WANT_ALL, &view);
  assert_int_equal(view.gpu_count, 1);
  const brim_top_gpu *g = &view.gpus[0];
  dmon_line(g, line, sizeof line);
  assert_string_equal(line, DMON);
  assert_string_equal(view.driver, "580.159.04");
  assert_true(view.interval_s == 1);
  // nvidia-smi dmon --gpm-metrics=2,3,5,10
  assert_true(g->sm_percent == 32 && g->occupancy_percent == 2 && g->tensor_percent == 0);
  assert_true(g->dram_percent == 1 && isnan(g->nvlink_rx));
  // nvidia-smi -q
  assert_string_equal(g->uuid, "GPU-0");
  assert_string_equal(g->name, "NVIDIA H200");
  assert_string_equal(g->bus, "00000000:3B:00.0");
  assert_string_equal(g->compute_mode, "default");
  assert_int_equal(g->pstate, 0);
  assert_int_equal(g->persistence, BRIM_TOP_YES);
  assert_int_equal(g->mig, BRIM_TOP_NO);
  assert_int_equal(g->ecc, BRIM_TOP_YES);
  assert_int_equal(g->remap_pending, BRIM_TOP_NO);
  assert_int_equal(g->lost, BRIM_TOP_NO);
  assert_int_equal(g->retired_pages, 0);
  assert_int_equal(g->pcie_generation, 5);
  assert_int_equal(g->pcie_width_max, 16);
  assert_int_equal(g->xid, -1);
  assert_int_equal(g->xid_watched, BRIM_TOP_YES);
  assert_true(g->power_limit_w == 700 && g->power_limit_max_w == 700);
  assert_true(g->memory_reserved == 616 * 1048576.0 && g->fan_percent == 33);
  assert_true(g->throttle_known && g->throttle == 0);
  assert_true(same(g->energy_j, 0) && same(g->energy_total_j, 5000));  // read every 5 s
  assert_int_equal(g->targets[BRIM_TOP_TARGET_UTILISATION], BRIM_TOP_YES);
  assert_int_equal(g->targets[BRIM_TOP_TARGET_MEMORY], BRIM_TOP_NO);
  assert_int_equal(g->targets[BRIM_TOP_TARGET_POWER], BRIM_TOP_NO);
  brim_top_view_deinit(&view);
  brim_top_close(&top);
  brim_top_close(&top);  // closing twice is fine
  assert_int_equal(fake_top_alive(), 0);
  assert_int_equal(fake_top.sets, 0);
  assert_int_equal(fake_top.shutdowns, 1);
}

// OFU: tensor pipes active half of the time, at half of the top clock.
static void test_ofu_and_reasons(void **state) {
  (void)state;
  fake_top_reset(1);
  fake_top.gpu[0].gpm[BRIM_NVML_GPM_ANY_TENSOR_UTIL] = 50;
  fake_top.gpu[0].clock[1] = 990;
  fake_top.gpu[0].reasons =
      BRIM_NVML_REASON_SW_POWER_CAP | BRIM_NVML_REASON_HW_THERMAL | 1ULL << 40;
  brim_nvml_api api = fake_top_api();
  brim_top_source top = open_top(&api);
  brim_top_view view;
  brim_top_view_init(&view);
  read_after(&top, 1, BRIM_TOP_WANT_ALL, &view);
  assert_true(same(view.gpus[0].ofu_percent, 25));
  assert_true(view.gpus[0].throttle ==
              (1u << BRIM_TOP_THROTTLE_POWER_CAP | 1u << BRIM_TOP_THROTTLE_HARDWARE_THERMAL |
               1u << BRIM_TOP_THROTTLE_OTHER));
  brim_top_view_deinit(&view);
  brim_top_close(&top);
}

//---------------------------------- how many ----------------------------------

static void test_no_driver(void **state) {
  (void)state;
  fake_top_reset(0);
  fake_top.init_code = BRIM_NVML_DRIVER_NOT_LOADED;
  brim_nvml_api api = fake_top_api();
  brim_top_source top = open_top(&api);
  brim_top_view view;
  brim_top_view_init(&view);
  read_after(&top, 1, BRIM_TOP_WANT_ALL, &view);
  assert_int_equal(view.gpu_count + view.process_count, 0);
  assert_true(has_note(&view, "no NVIDIA driver"));
  brim_top_close(&top);
  fake_top_reset(0);
  top = open_top(&api);
  read_after(&top, 1, BRIM_TOP_WANT_ALL, &view);
  assert_int_equal(view.gpu_count, 0);
  assert_true(has_note(&view, "lists no GPU"));
  brim_top_close(&top);
  brim_top_view_deinit(&view);
}

static void test_eight(void **state) {
  (void)state;
  fake_top_reset(8);
  for (unsigned i = 0; i < 8; i++) fake_top.gpu[i].power_mw = 100000 + 1000 * i;
  brim_nvml_api api = fake_top_api();
  brim_top_source top = open_top(&api);
  brim_top_view view;
  brim_top_view_init(&view);
  for (int k = 0; k < 3; k++) read_after(&top, 1, BRIM_TOP_WANT_ALL, &view);
  assert_int_equal(view.gpu_count, 8);
  for (unsigned i = 0; i < 8; i++) {
    assert_int_equal(view.gpus[i].index, i);
    assert_true(view.gpus[i].power_w == 100 + i);
    assert_true(view.gpus[i].sm_percent == 32);
    assert_true(same(view.gpus[i].energy_j, 0));
  }
  brim_top_view_deinit(&view);
  brim_top_close(&top);
  assert_int_equal(fake_top_alive(), 0);
}

// A GPU that does not answer at the start is named; the others are shown.
static void test_one_missing(void **state) {
  (void)state;
  fake_top_reset(2);
  fake_top.fail_at = FAKE_TOP_AT(by_index);
  fake_top.fail_code = BRIM_NVML_GPU_IS_LOST;
  brim_nvml_api api = fake_top_api();
  brim_top_source top = open_top(&api);
  brim_top_view view;
  brim_top_view_init(&view);
  read_after(&top, 1, BRIM_TOP_WANT_ALL, &view);
  assert_int_equal(view.gpu_count, 0);
  assert_true(has_note(&view, "GPU 1 does not answer: GPU is lost"));
  brim_top_view_deinit(&view);
  brim_top_close(&top);
}

//---------------------------------- calls that are missing ----------------------------------

// A missing member of the table and the keys that are unknown without it; "" = another call replaces it.
static const struct {
  size_t member;
  const char *keys;
} without[] = {
    {FAKE_TOP_AT(memory), ""},
    {FAKE_TOP_AT(utilisation), "memory_busy_percent"},  // gpu_percent: GPM replaces it
    {FAKE_TOP_AT(power), "power_w targets hang hang_s"},
    {FAKE_TOP_AT(power_limit), "power_limit_w targets hang hang_s"},
    {FAKE_TOP_AT(power_default), "power_limit_default_w"},
    {FAKE_TOP_AT(power_bounds), "power_limit_max_w"},
    {FAKE_TOP_AT(energy), "energy_j energy_total_j"},
    {FAKE_TOP_AT(clock), "clock_mhz memory_clock_mhz video_clock_mhz ofu_percent"},
    {FAKE_TOP_AT(clock_max), "clock_max_mhz memory_clock_max_mhz ofu_percent"},
    {FAKE_TOP_AT(event_reasons), ""},
    {FAKE_TOP_AT(temperature), "temperature_c"},
    {FAKE_TOP_AT(threshold), "slowdown_c shutdown_c"},
    {FAKE_TOP_AT(name), "name"},
    {FAKE_TOP_AT(pci), "bus"},
    {FAKE_TOP_AT(mig_mode), "mig"},
    {FAKE_TOP_AT(encoder), "encoder_percent"},
    {FAKE_TOP_AT(decoder), "decoder_percent"},
    {FAKE_TOP_AT(jpeg), "jpeg_percent"},
    {FAKE_TOP_AT(ofa), "ofa_percent"},
    {FAKE_TOP_AT(bar1), "bar1_total bar1_used"},
    {FAKE_TOP_AT(protected_memory), "confidential_used"},
    {FAKE_TOP_AT(violation), "power_violation_percent thermal_violation_percent"},
    {FAKE_TOP_AT(ecc_mode), "ecc"},
    {FAKE_TOP_AT(ecc_errors),
     "ecc_corrected ecc_uncorrected ecc_corrected_total ecc_uncorrected_total"},
    {FAKE_TOP_AT(pcie_replays), "pcie_replays"},
    {FAKE_TOP_AT(pcie_generation), "pcie_generation"},
    {FAKE_TOP_AT(pcie_width), "pcie_width"},
    {FAKE_TOP_AT(pcie_generation_max), "pcie_generation_max"},
    {FAKE_TOP_AT(pcie_width_max), "pcie_width_max"},
    {FAKE_TOP_AT(performance_state), "pstate"},
    {FAKE_TOP_AT(persistence), "persistence"},
    {FAKE_TOP_AT(compute_mode), "compute_mode"},
    {FAKE_TOP_AT(fan), "fan_percent"},
    {FAKE_TOP_AT(remapped_rows),
     "remapped_corrected remapped_uncorrected remap_pending remap_failed"},
    {FAKE_TOP_AT(retired_pages), "retired_pages"},
    {FAKE_TOP_AT(fields), "memory_temperature_c"},
    {FAKE_TOP_AT(gpm_support),
     "sm_percent occupancy_percent tensor_percent dram_percent "
     "ofu_percent pcie_rx pcie_tx"},
    {FAKE_TOP_AT(gpm_sample),
     "sm_percent occupancy_percent tensor_percent dram_percent "
     "ofu_percent pcie_rx pcie_tx"},
    {FAKE_TOP_AT(gpm_metrics),
     "sm_percent occupancy_percent tensor_percent dram_percent "
     "ofu_percent pcie_rx pcie_tx"},
    {FAKE_TOP_AT(event_register), "xid_watched"},
};

static json_t *gpu_json(const brim_nvml_api *api, int readings) {
  brim_top_source top = open_top(api);
  brim_top_view view;
  brim_top_view_init(&view);
  for (int i = 0; i < readings; i++) read_after(&top, 1, BRIM_TOP_WANT_ALL, &view);
  json_t *json = NULL;
  assert_ok(brim_top_view_to_json(&view, &json));
  json_t *gpu = json_incref(json_array_get(json_object_get(json, "gpus"), 0));
  assert_non_null(gpu);
  json_decref(json);
  brim_top_view_deinit(&view);
  brim_top_close(&top);
  return gpu;
}

static bool lists(const char *keys, const char *key) {
  size_t n = strlen(key);
  for (const char *at = strstr(keys, key); at; at = strstr(at + 1, key)) {
    if ((at == keys || at[-1] == ' ') && (at[n] == ' ' || !at[n])) return true;
  }
  return false;
}

static bool unknown(const json_t *value) {
  if (json_is_string(value)) return json_string_length(value) == 0;
  return !value || json_is_null(value) || json_is_false(value);
}

// Asserts that the keys of the list are unknown, and all others unchanged.
static void compare(const json_t *all, json_t *fewer, const char *keys, size_t row) {
  const char *key;
  json_t *value;
  json_object_foreach(fewer, key, value) {
    const json_t *before = json_object_get(all, key);
    bool listed = lists(keys, key);
    if (!strcmp(key, "targets")) continue;  // three values: other tests check them
    bool good = listed ? unknown(value) : json_equal(value, before);
    // NVML's PCIe figures replace GPM's and differ from them
    if (listed && brim_str_starts(key, "pcie_") && !json_equal(value, before)) good = true;
    if (!good) fail_msg("row %zu: key %s", row, key);
  }
}

static void test_missing_calls(void **state) {
  (void)state;
  brim_nvml_api all = fake_top_api();
  fake_top_reset(1);
  json_t *complete = gpu_json(&all, 2);
  for (size_t i = 0; i < sizeof without / sizeof *without; i++) {
    brim_nvml_api api = all;
    fake_top_reset(1);
    memset((char *)&api + without[i].member, 0, sizeof(void *));
    json_t *gpu = gpu_json(&api, 2);
    compare(complete, gpu, without[i].keys, i);
    json_decref(gpu);
    // the call exists and reports that it is unsupported: the same result, and no second try
    static const int codes[] = {BRIM_NVML_NOT_SUPPORTED, BRIM_NVML_NO_PERMISSION,
                                BRIM_NVML_UNKNOWN_ERROR};
    for (size_t k = 0; k < sizeof codes / sizeof *codes; k++) {
      fake_top_reset(1);
      fake_top.fail_at = without[i].member;
      fake_top.fail_code = codes[k];
      if (without[i].keys[0] == '\0' && k == 2)
        continue;  // nothing replaces a call that fails temporarily
      gpu = gpu_json(&all, 2);
      compare(complete, gpu, without[i].keys, i);
      json_decref(gpu);
      if (k < 2) assert_true(fake_top_calls(without[i].member) <= 2);
    }
  }
  json_decref(complete);
}

// A library that can only list the GPUs leaves every figure unknown, and no GPU counts as lost.
static void test_bare_library(void **state) {
  (void)state;
  fake_top_reset(1);
  brim_nvml_api api = {.init = fake_top_init,
                       .shutdown = fake_top_shutdown,
                       .by_uuid = fake_top_by_uuid,
                       .device_count = fake_top_count,
                       .by_index = fake_top_by_index,
                       .now_ns = fake_top_now};
  brim_top_source top = open_top(&api);
  brim_top_view view;
  brim_top_view_init(&view);
  for (int i = 0; i < 6; i++) read_after(&top, 1, BRIM_TOP_WANT_ALL, &view);
  assert_int_equal(view.gpu_count, 1);
  assert_int_equal(view.gpus[0].lost, BRIM_TOP_NO);
  assert_true(isnan(view.gpus[0].power_w) && isnan(view.gpus[0].gpu_percent));
  assert_int_equal(view.gpus[0].targets[BRIM_TOP_TARGET_POWER], BRIM_TOP_UNKNOWN);
  assert_int_equal(view.gpus[0].hang, BRIM_TOP_UNKNOWN);
  assert_int_equal(view.gpus[0].xid_watched, BRIM_TOP_NO);
  assert_true(has_note(&view, "1 of 1 GPUs have no GPM"));
  assert_true(has_note(&view, "Xid errors of 1 of 1"));
  brim_top_view_deinit(&view);
  brim_top_close(&top);
}

// GPM has no PCIe figures here, or is turned off: NVML measures, once per direction and reading.
static void test_pcie(void **state) {
  (void)state;
  fake_top_reset(1);
  brim_nvml_api api = fake_top_api();
  brim_top_source top = open_top(&api);
  brim_top_view view;
  brim_top_view_init(&view);
  read_after(&top, 1, BRIM_TOP_WANT_ALL, &view);
  read_after(&top, 1, BRIM_TOP_WANT_ACTIVITY, &view);
  // too early for GPM: unknown, but no reason to wait
  read_after(&top, 0.01, BRIM_TOP_WANT_ALL, &view);
  assert_true(isnan(view.gpus[0].pcie_rx) && isnan(view.gpus[0].sm_percent));
  assert_int_equal(fake_top_calls(FAKE_TOP_AT(pcie_throughput)), 0);
  int samples = fake_top_calls(FAKE_TOP_AT(gpm_sample));
  read_after(&top, 1, 0, &view);
  assert_true(isnan(view.gpus[0].pcie_rx));
  assert_int_equal(fake_top_calls(FAKE_TOP_AT(pcie_throughput)), 0);
  assert_int_equal(fake_top_calls(FAKE_TOP_AT(gpm_sample)), samples);  // turned off, so not called
  read_after(&top, 1, BRIM_TOP_WANT_PCIE, &view);
  assert_true(view.gpus[0].pcie_rx == 300 * 1048576.0 && view.gpus[0].pcie_tx == 60 * 1048576.0);
  assert_int_equal(fake_top_calls(FAKE_TOP_AT(pcie_throughput)), 2);
  // the previous sample is too old
  read_after(&top, 1, BRIM_TOP_WANT_ACTIVITY, &view);
  assert_true(isnan(view.gpus[0].sm_percent));
  read_after(&top, 1, BRIM_TOP_WANT_ACTIVITY, &view);
  assert_true(view.gpus[0].sm_percent == 32);
  brim_top_view_deinit(&view);
  brim_top_close(&top);
}

// Eight GPUs without GPM: the first reading measures all, later ones two each.
static void test_pcie_turns(void **state) {
  (void)state;
  fake_top_reset(8);
  brim_nvml_api api = fake_top_api();
  api.gpm_support = NULL;
  brim_top_source top = open_top(&api);
  brim_top_view view;
  brim_top_view_init(&view);
  for (int k = 1; k <= 5; k++) {
    read_after(&top, 1, BRIM_TOP_WANT_ALL, &view);
    for (int i = 0; i < 8; i++) assert_true(view.gpus[i].pcie_rx == 300 * 1048576.0);
    assert_int_equal(fake_top_calls(FAKE_TOP_AT(pcie_throughput)), 16 + 4 * (k - 1));
  }
  brim_top_view_deinit(&view);
  brim_top_close(&top);
}

// Values that seldom change are not read in each reading.
static void test_cost(void **state) {
  (void)state;
  fake_top_reset(1);
  brim_nvml_api api = fake_top_api();
  brim_top_source top = open_top(&api);
  brim_top_view view;
  brim_top_view_init(&view);
  int total = 0, before = 0;
  for (size_t i = 0; i < sizeof fake_top.calls / sizeof *fake_top.calls; i++) {
    before += fake_top.calls[i];
  }
  for (int i = 0; i < 10; i++) read_after(&top, 1, BRIM_TOP_WANT_ALL, &view);
  for (size_t i = 0; i < sizeof fake_top.calls / sizeof *fake_top.calls; i++) {
    total += fake_top.calls[i];
  }
  assert_int_equal(fake_top_calls(FAKE_TOP_AT(name)), 1);
  assert_int_equal(fake_top_calls(FAKE_TOP_AT(by_index)), 1);
  assert_int_equal(fake_top_calls(FAKE_TOP_AT(clock_max)), 2);
  assert_int_equal(fake_top_calls(FAKE_TOP_AT(ecc_mode)), 3);  // at the opening, after 5 s and 10 s
  assert_int_equal(fake_top_calls(FAKE_TOP_AT(processes_use)), 0);  // processes are turned off
  assert_true(total - before <= 10 * 28);
  brim_top_view_deinit(&view);
  brim_top_close(&top);
}

//---------------------------------- trouble ----------------------------------

static void test_lost(void **state) {
  (void)state;
  fake_top_reset(2);
  brim_nvml_api api = fake_top_api();
  brim_top_source top = open_top(&api);
  brim_top_view view;
  brim_top_view_init(&view);
  read_after(&top, 1, BRIM_TOP_WANT_ALL, &view);
  fake_top.gpu[1].lost = true;
  read_after(&top, 1, BRIM_TOP_WANT_ALL, &view);
  assert_int_equal(view.gpu_count, 2);
  assert_int_equal(view.gpus[0].lost, BRIM_TOP_NO);
  assert_true(view.gpus[0].power_w == 203);
  const brim_top_gpu *g = &view.gpus[1];
  assert_int_equal(g->lost, BRIM_TOP_YES);
  assert_string_equal(g->uuid, "GPU-1");
  assert_int_equal(g->index, 1);
  assert_true(isnan(g->power_w) && isnan(g->memory_used) && isnan(g->clock_max_mhz));
  assert_int_equal(g->ecc_corrected, -1);
  assert_false(g->throttle_known);
  const brim_top_event *event = find_event(&view, "lost");
  assert_non_null(event);
  assert_int_equal(event->gpu, 1);
  // a lost GPU is not called again, and one event reports the loss
  fake_top.gpu[1].lost = false;
  read_after(&top, 1, BRIM_TOP_WANT_ALL, &view);
  assert_int_equal(view.gpus[1].lost, BRIM_TOP_YES);
  assert_int_equal(view.event_count, 1);
  brim_top_view_deinit(&view);
  brim_top_close(&top);
  assert_int_equal(fake_top_alive(), 0);
}

// Unnamed errors: one reading is unknown; after several in a row the GPU is lost.
static void test_silent(void **state) {
  (void)state;
  fake_top_reset(1);
  brim_nvml_api api = fake_top_api();
  brim_top_source top = open_top(&api);
  brim_top_view view;
  brim_top_view_init(&view);
  fake_top.fail_code = BRIM_NVML_UNKNOWN_ERROR;
  fake_top.fail_all = true;
  read_after(&top, 1, BRIM_TOP_WANT_ALL, &view);
  assert_int_equal(view.gpus[0].lost, BRIM_TOP_NO);
  assert_true(isnan(view.gpus[0].power_w));
  fake_top.fail_all = false;
  read_after(&top, 1, BRIM_TOP_WANT_ALL, &view);
  assert_true(view.gpus[0].power_w == 203);
  fake_top.fail_all = true;
  for (int i = 0; i < 3; i++) read_after(&top, 1, BRIM_TOP_WANT_ALL, &view);
  assert_int_equal(view.gpus[0].lost, BRIM_TOP_YES);
  brim_top_view_deinit(&view);
  brim_top_close(&top);
}

// The energy counter starts again; a violation's clock stops or goes back.
static void test_counters_wrap(void **state) {
  (void)state;
  fake_top_reset(1);
  brim_nvml_api api = fake_top_api();
  brim_top_source top = open_top(&api);
  brim_top_view view;
  brim_top_view_init(&view);
  fake_top_gpu *g = &fake_top.gpu[0];
  g->violation[0].violation_ns += 250000000;
  read_after(&top, 5, 0, &view);
  assert_true(same(view.gpus[0].power_violation_percent, 5));
  assert_true(view.gpus[0].thermal_violation_percent == 0);
  assert_true(same(view.gpus[0].energy_j, 5 * 203));
  read_after(&top, 1, 0, &view);
  assert_true(same(view.gpus[0].energy_j, 5 * 203));  // read every 5 s
  g->energy_mj = 7000;                                // the driver was loaded again
  g->violation[0].violation_ns = 0;
  g->violation[1].reference_us = 0;
  read_after(&top, 0, 0, &view);
  assert_true(isnan(view.gpus[0].power_violation_percent));
  assert_true(isnan(view.gpus[0].thermal_violation_percent));
  read_after(&top, 4, 0, &view);
  assert_true(same(view.gpus[0].energy_j, 5 * 203));
  assert_true(same(view.gpus[0].energy_total_j, 7 + 4 * 203));
  assert_true(view.gpus[0].power_violation_percent == 0);
  read_after(&top, 5, 0, &view);
  assert_true(same(view.gpus[0].energy_j, 10 * 203));
  brim_top_view_deinit(&view);
  brim_top_close(&top);
}

// GPUs before Ampere retire pages and have no rows to remap.
static void test_retired_pages(void **state) {
  (void)state;
  fake_top_reset(1);
  fake_top.gpu[0].retired[0] = 3;
  fake_top.gpu[0].retired[1] = 1;
  brim_nvml_api api = fake_top_api();
  api.remapped_rows = NULL;
  api.retired_pending = fake_top_retired_pending;
  brim_top_source top = open_top(&api);
  brim_top_view view;
  brim_top_view_init(&view);
  read_after(&top, 1, 0, &view);
  assert_int_equal(view.gpus[0].retired_pages, 4);
  assert_int_equal(view.gpus[0].remap_pending, BRIM_TOP_YES);
  assert_int_equal(view.gpus[0].remap_failed, BRIM_TOP_UNKNOWN);
  assert_int_equal(view.gpus[0].remapped_corrected, -1);
  brim_top_view_deinit(&view);
  brim_top_close(&top);
}

static void test_hang(void **state) {
  (void)state;
  fake_top_reset(1);
  fake_top_gpu *g = &fake_top.gpu[0];
  g->gpu = 100;
  g->power_mw = 118000;
  g->gpm[BRIM_NVML_GPM_SM_UTIL] = 1;
  g->gpm[BRIM_NVML_GPM_DRAM_BW_UTIL] = 0;
  brim_nvml_api api = fake_top_api();
  brim_top_source top = open_top(&api);
  brim_top_view view;
  brim_top_view_init(&view);
  read_after(&top, 1, BRIM_TOP_WANT_ALL, &view);
  assert_int_equal(view.gpus[0].hang, BRIM_TOP_NO);
  for (int i = 0; i < 12; i++) read_after(&top, 1, BRIM_TOP_WANT_ALL, &view);
  assert_int_equal(view.gpus[0].hang, BRIM_TOP_YES);
  g->gpm[BRIM_NVML_GPM_DRAM_BW_UTIL] = 30;  // it moves data, so it works
  read_after(&top, 1, BRIM_TOP_WANT_ALL, &view);
  assert_int_equal(view.gpus[0].hang, BRIM_TOP_NO);
  brim_top_view_deinit(&view);
  brim_top_close(&top);
}

//---------------------------------- events ----------------------------------

static void test_events(void **state) {
  (void)state;
  fake_top_reset(2);
  brim_nvml_api api = fake_top_api();
  brim_top_source top = open_top(&api);
  brim_top_view view;
  brim_top_view_init(&view);
  read_after(&top, 1, 0, &view);
  assert_int_equal(view.event_count, 0);
  fake_top_xid(1, 79);
  // an event of another kind
  fake_top.events[fake_top.event_count++] = (brim_nvml_event){.type = 4};
  fake_top.gpu[0].ecc[0][0] = 3;
  fake_top.gpu[0].ecc[1][0] = 1;
  fake_top.gpu[0].remapped[2] = 1;
  fake_top.gpu[0].retired[0] = 2;
  read_after(&top, 6, 0, &view);
  assert_int_equal(view.event_count, 5);
  const brim_top_event *xid = find_event(&view, "xid");
  assert_int_equal(xid->gpu, 1);
  assert_int_equal(xid->code, 79);
  assert_string_equal(xid->text, "Xid 79: GPU has fallen off the bus");
  assert_true(same(xid->when_s, 1007));
  assert_int_equal(view.gpus[1].xid, 79);
  assert_int_equal(view.gpus[0].xid, -1);
  assert_string_equal(find_event(&view, "ecc_corrected")->text, "3 corrected ECC errors");
  assert_string_equal(find_event(&view, "ecc_uncorrected")->text, "1 uncorrected ECC errors");
  assert_non_null(strstr(find_event(&view, "row_remap")->text, "reset the GPU"));
  assert_non_null(find_event(&view, "retired_pages"));
  assert_int_equal(view.gpus[0].remap_pending, BRIM_TOP_YES);
  // events are kept, not repeated; a flood keeps the newest
  for (int i = 0; i < 64; i++) fake_top_xid(9, 31);
  fake_top_xid(0, 13);
  read_after(&top, 6, 0, &view);
  assert_int_equal(view.event_count, 64);
  assert_int_equal(view.events[0].gpu, -1);
  read_after(&top, 6, 0, &view);
  assert_int_equal(view.events[63].code, 13);
  assert_int_equal(view.gpus[0].xid, 13);
  brim_top_view_deinit(&view);
  brim_top_close(&top);
}

//---------------------------------- MIG ----------------------------------

static void test_mig(void **state) {
  (void)state;
  fake_top_reset(2);
  fake_top.gpu[0].mig = 1;
  fake_top.gpu[0].slices = 2;
  fake_top.slice[1].gpm[BRIM_NVML_GPM_SM_UTIL] = 77;
  fake_top.slice[1].compute[0] = (brim_nvml_process){.pid = 5, .used_bytes = 1000};
  fake_top.slice[1].compute_count = 1;
  // the whole GPU lists the process too
  fake_top.gpu[0].compute[0] = fake_top.slice[1].compute[0];
  fake_top.gpu[0].compute_count = 1;
  brim_nvml_api api = fake_top_api();
  brim_top_source top = open_top(&api);
  brim_top_view view;
  brim_top_view_init(&view);
  read_after(&top, 1, BRIM_TOP_WANT_ALL, &view);
  assert_int_equal(view.gpu_count, 4);
  assert_int_equal(view.gpus[0].mig, BRIM_TOP_YES);
  assert_int_equal(view.gpus[0].slice, BRIM_TOP_NO);
  assert_true(view.gpus[0].power_w == 203);
  assert_int_equal(view.gpus[2].slice, BRIM_TOP_YES);
  assert_int_equal(view.gpus[2].index, 0);
  assert_string_equal(view.gpus[2].uuid, "MIG-1");
  assert_true(view.gpus[2].sm_percent == 77);
  assert_true(view.gpus[1].sm_percent == 32);
  assert_true(view.gpus[2].gpu_percent == 99);  // GPM's: NVML has none for slices
  assert_int_equal(view.gpus[3].index, 1);
  assert_int_equal(view.gpus[3].mig, BRIM_TOP_NO);
  assert_int_equal(view.process_count, 1);
  assert_string_equal(view.processes[0].uuid, "MIG-1");
  brim_top_view_deinit(&view);
  brim_top_close(&top);
  assert_int_equal(fake_top_alive(), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_dmon),          cmocka_unit_test(test_ofu_and_reasons),
      cmocka_unit_test(test_no_driver),     cmocka_unit_test(test_eight),
      cmocka_unit_test(test_one_missing),   cmocka_unit_test(test_missing_calls),
      cmocka_unit_test(test_bare_library),  cmocka_unit_test(test_pcie),
      cmocka_unit_test(test_pcie_turns),    cmocka_unit_test(test_cost),
      cmocka_unit_test(test_lost),          cmocka_unit_test(test_silent),
      cmocka_unit_test(test_counters_wrap), cmocka_unit_test(test_retired_pages),
      cmocka_unit_test(test_hang),          cmocka_unit_test(test_events),
      cmocka_unit_test(test_mig),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
