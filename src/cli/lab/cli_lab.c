// Experiments of a place for commands, and which way their metrics are better.
#include "cli/lab/cli_lab.h"

#include <string.h>

#include "config/config.h"
#include "lab/store/lab_store.h"
#include "workload/workload.h"

const char *const brim_cli_lab_values[] = {"best", "last", NULL};

static bool metric_of(void *ctx, const char *workload, const char *key, brim_sweep_metric *out) {
  (void)ctx;
  const brim_config_key *row = brim_config_key_find("workload");
  const char *usual = row && row->default_text ? row->default_text : "";
  const brim_workload_table *table = brim_workload_find(workload[0] ? workload : usual);
  return table && table->metric_set && brim_sweep_metric_of(table->metric_set, key, out);
}

static const char *default_of(void *ctx, const char *name) {
  (void)ctx;
  const brim_config_key *key = brim_config_key_find(name);
  return key && strcmp(key->name, name) == 0 ? key->default_text : NULL;
}

brim_lab_result brim_cli_lab_result(const brim_cli *cli) {
  const char *value = brim_option_string(&cli->parse, "value", "best");
  return strcmp(value, "last") == 0 ? BRIM_LAB_LAST : BRIM_LAB_BEST;
}

// The values of every --over; NULL = it was not given.
static brim_status read_over(const brim_cli *cli, const char ***out) {
  size_t count = 0;
  *out = NULL;
  for (size_t i = 0; i < cli->parse.count; i++) {
    if (strcmp(cli->parse.items[i].option->name, "over") == 0) count += cli->parse.items[i].count;
  }
  if (count == 0) return BRIM_OK;
  const char **list = brim_calloc(count + 1, sizeof *list);
  if (!list) return brim_fail(BRIM_ENOMEM, "out of memory while reading experiments");
  count = 0;
  for (size_t i = 0; i < cli->parse.count; i++) {
    const brim_option_value *item = &cli->parse.items[i];
    if (strcmp(item->option->name, "over") != 0) continue;
    for (size_t k = 0; k < item->count; k++) {
      const brim_config_key *key = brim_config_key_find(item->values[k]);  // or by another name
      list[count++] = key ? key->name : item->values[k];
    }
  }
  *out = list;
  return BRIM_OK;
}

brim_status brim_cli_lab_read(const brim_cli *cli, const char *place, brim_cli_lab *out) {
  const char **over = NULL;
  bool torn = false;
  *out = (brim_cli_lab){.place = brim_store_place_shown(place)};
  if (!out->place) return brim_fail(BRIM_ENOMEM, "out of memory while reading experiments");
  brim_status status = read_over(cli, &over);
  const brim_lab_options options = {.over = over,
                                    .ignored = brim_lab_ignored_keys(),
                                    .metric = metric_of,
                                    .default_of = default_of};
  if (!status) status = brim_lab_reader_create(&options, &out->reader);
  if (!status) status = brim_lab_records_read(place, out->reader, &torn);
  if (!status) status = brim_lab_reader_finish(out->reader, &out->set);
  brim_free(over);
  if (status) {
    brim_cli_lab_deinit(out);
    return status;
  }
  if (torn) {
    brim_log_warn(
        "lab", "%s: the last line is incomplete (a run was killed while writing); brim ignores it",
        out->place);
  }
  return BRIM_OK;
}

void brim_cli_lab_deinit(brim_cli_lab *lab) {
  brim_lab_reader_destroy(lab->reader);
  brim_free(lab->place);
  *lab = (brim_cli_lab){0};
}
