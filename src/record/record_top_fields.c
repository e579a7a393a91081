// The members of a machine's view as tables, by which it is initialised, written and read.
#include <string.h>

#include "record/record_top_int.h"

#define CHARS(type, member) BRIM_FIELD_(type, #member, CHARS, member)
#define NUMBER(type, member) BRIM_FIELD_(type, #member, NUMBER, member)
#define FLAG(type, member) BRIM_FIELD_(type, #member, FLAG, member)
#define INT(type, member) BRIM_FIELD_INT_(type, #member, member, -1)
#define TABLE(rows_) \
  { .what = BRIM_TOP_WHAT, .rows = rows_, .count = sizeof rows_ / sizeof rows_[0] }

#define HOST brim_top_host
static const brim_field host_rows[] = {
    CHARS(HOST, name),
    CHARS(HOST, cpu),
    CHARS(HOST, os),
    CHARS(HOST, kernel),
    CHARS(HOST, container),
    INT(HOST, cores),
    INT(HOST, cores_online),
    NUMBER(HOST, cpu_percent),
    NUMBER(HOST, iowait_percent),
    NUMBER(HOST, cpu_mhz),
    NUMBER(HOST, cpu_max_mhz),
    NUMBER(HOST, load_1),
    NUMBER(HOST, load_5),
    NUMBER(HOST, load_15),
    NUMBER(HOST, quota_cores),
    NUMBER(HOST, quota_throttled_percent),
    NUMBER(HOST, memory_total),
    NUMBER(HOST, memory_used),
    NUMBER(HOST, memory_available),
    NUMBER(HOST, memory_limit),
    NUMBER(HOST, swap_total),
    NUMBER(HOST, swap_used),
    NUMBER(HOST, shm_total),
    NUMBER(HOST, shm_used),
    NUMBER(HOST, disk_read),
    NUMBER(HOST, disk_write),
    NUMBER(HOST, network_rx),
    NUMBER(HOST, network_tx),
    NUMBER(HOST, uptime_s),
    INT(HOST, tasks),
    INT(HOST, tasks_running),
};

#define GPU brim_top_gpu
static const brim_field gpu_rows[] = {
    INT(GPU, index),
    CHARS(GPU, uuid),
    CHARS(GPU, name),
    CHARS(GPU, bus),
    FLAG(GPU, slice),
    FLAG(GPU, lost),
    NUMBER(GPU, gpu_percent),
    NUMBER(GPU, sm_percent),
    NUMBER(GPU, occupancy_percent),
    NUMBER(GPU, tensor_percent),
    NUMBER(GPU, dram_percent),
    NUMBER(GPU, memory_busy_percent),
    NUMBER(GPU, encoder_percent),
    NUMBER(GPU, decoder_percent),
    NUMBER(GPU, jpeg_percent),
    NUMBER(GPU, ofa_percent),
    NUMBER(GPU, ofu_percent),
    NUMBER(GPU, ceiling_percent),
    NUMBER(GPU, memory_total),
    NUMBER(GPU, memory_used),
    NUMBER(GPU, memory_reserved),
    NUMBER(GPU, bar1_total),
    NUMBER(GPU, bar1_used),
    NUMBER(GPU, confidential_used),
    NUMBER(GPU, power_w),
    NUMBER(GPU, power_limit_w),
    NUMBER(GPU, power_limit_default_w),
    NUMBER(GPU, power_limit_max_w),
    NUMBER(GPU, energy_j),
    NUMBER(GPU, energy_total_j),
    NUMBER(GPU, clock_mhz),
    NUMBER(GPU, clock_max_mhz),
    NUMBER(GPU, memory_clock_mhz),
    NUMBER(GPU, memory_clock_max_mhz),
    NUMBER(GPU, video_clock_mhz),
    NUMBER(GPU, temperature_c),
    NUMBER(GPU, memory_temperature_c),
    NUMBER(GPU, slowdown_c),
    NUMBER(GPU, shutdown_c),
    NUMBER(GPU, fan_percent),
    INT(GPU, pstate),
    NUMBER(GPU, power_violation_percent),
    NUMBER(GPU, thermal_violation_percent),
    INT(GPU, pcie_generation),
    INT(GPU, pcie_generation_max),
    INT(GPU, pcie_width),
    INT(GPU, pcie_width_max),
    NUMBER(GPU, pcie_rx),
    NUMBER(GPU, pcie_tx),
    NUMBER(GPU, nvlink_rx),
    NUMBER(GPU, nvlink_tx),
    INT(GPU, pcie_replays),
    FLAG(GPU, ecc),
    INT(GPU, ecc_corrected),
    INT(GPU, ecc_uncorrected),
    INT(GPU, ecc_corrected_total),
    INT(GPU, ecc_uncorrected_total),
    INT(GPU, remapped_corrected),
    INT(GPU, remapped_uncorrected),
    FLAG(GPU, remap_pending),
    FLAG(GPU, remap_failed),
    INT(GPU, retired_pages),
    INT(GPU, xid),
    FLAG(GPU, xid_watched),
    FLAG(GPU, mig),
    FLAG(GPU, persistence),
    CHARS(GPU, compute_mode),
    INT(GPU, numa),
    NUMBER(GPU, hang_s),
    FLAG(GPU, hang),
};

#define PROCESS brim_top_process
static const brim_field process_rows[] = {
    INT(PROCESS, pid),
    INT(PROCESS, gpu),
    CHARS(PROCESS, uuid),
    CHARS(PROCESS, type),
    CHARS(PROCESS, user),
    CHARS(PROCESS, container),
    CHARS(PROCESS, command),
    FLAG(PROCESS, elsewhere),
    NUMBER(PROCESS, memory),
    NUMBER(PROCESS, sm_percent),
    NUMBER(PROCESS, memory_busy_percent),
    NUMBER(PROCESS, encoder_percent),
    NUMBER(PROCESS, decoder_percent),
    NUMBER(PROCESS, jpeg_percent),
    NUMBER(PROCESS, ofa_percent),
    NUMBER(PROCESS, cpu_percent),
    NUMBER(PROCESS, rss),
    NUMBER(PROCESS, elapsed_s),
};

#define EVENT brim_top_event
static const brim_field event_rows[] = {
    NUMBER(EVENT, when_s), INT(EVENT, gpu),    CHARS(EVENT, kind),
    INT(EVENT, code),      CHARS(EVENT, text),
};

#define VIEW brim_top_view
static const brim_field view_rows[] = {
    NUMBER(VIEW, when_s),
    NUMBER(VIEW, interval_s),
    CHARS(VIEW, driver),
};

const brim_fields brim_top_host_fields = TABLE(host_rows);
const brim_fields brim_top_gpu_fields = TABLE(gpu_rows);
const brim_fields brim_top_process_fields = TABLE(process_rows);
const brim_fields brim_top_event_fields = TABLE(event_rows);
const brim_fields brim_top_view_fields = TABLE(view_rows);

//---------------------------------- unknown ----------------------------------

void brim_top_host_init(brim_top_host *host) {
  memset(host, 0, sizeof *host);
  brim_fields_init(&brim_top_host_fields, host);
}

void brim_top_gpu_init(brim_top_gpu *gpu) {
  memset(gpu, 0, sizeof *gpu);
  brim_fields_init(&brim_top_gpu_fields, gpu);
}

void brim_top_process_init(brim_top_process *process) {
  memset(process, 0, sizeof *process);
  brim_fields_init(&brim_top_process_fields, process);
}

void brim_top_event_init(brim_top_event *event) { brim_fields_init(&brim_top_event_fields, event); }
