// best.yaml: the keys that were given, with the recommended setting in place of what was swept.
// Defaults are left to the brim that reads it, as are keys that this version does not use.
#include "cli/bench/cli_bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// Files are found from any folder.
static brim_status add_path(const bench *b, const char *key, brim_cli_input *input) {
  const char *given = brim_config_string(b->job->config, key);
  if (!given || !*given || !brim_config_is_set(b->job->config, key)) return BRIM_OK;
  char *full = realpath(given, NULL);
  if (!full) return BRIM_OK;  // not a path of this machine's files: stays as it is
  brim_str quoted;
  brim_str_init(&quoted);
  for (const char *c = full; *c; c++) brim_str_append(&quoted, *c == '\'' ? "''" : (char[]){*c, 0});
  free(full);
  brim_status status = brim_str_status(&quoted);
  if (!status) status = brim_cli_input_add(input, "%s='%s'", key, quoted.data);
  brim_str_deinit(&quoted);
  return status;
}

// What was swept is answered, where the sweep's files went is no part of the answer, and a key
// without effect would only be warned of.
static bool is_kept(const brim_config *config, const char *name) {
  const brim_config_key *key = brim_config_key_find(name);
  return key && strcmp(key->name, name) == 0 && brim_config_is_set(config, name) &&
         brim_config_key_is_used(key) && strcmp(name, "output_dir") != 0 &&
         !brim_str_starts(name, "benchmark.");
}

// The printed config line by line. "group:" is held back until a key of it is kept; deeper lines
// (slots of a component) go with the key above them.
static void filter(const brim_config *config, const char *text, brim_str *out) {
  char group[64] = "";
  bool group_reported = false, keep = false;
  for (size_t n; *text; text += n + (text[n] == '\n')) {
    n = strcspn(text, "\n");
    size_t indent = strspn(text, " "), length = strcspn(text + indent, ":\n");
    char name[128] = "";
    if (indent == 0) {
      strncat(name, text, length < 63 ? length : 63);
      const brim_config_key *key = brim_config_key_find(name);
      bool is_group = !key || strcmp(key->name, name) != 0;
      memcpy(group, is_group ? name : "", is_group ? strlen(name) + 1 : 1);
      group_reported = false;
      keep = !is_group && is_kept(config, name);
    } else if (group[0] && indent == 2) {
      strcat(strcat(name, group), ".");
      strncat(name, text + indent, length < 63 ? length : 63);
      keep = is_kept(config, name);
    }
    if (!keep) continue;
    if (group[0] && !group_reported) brim_str_printf(out, "%s:\n", group);
    group_reported = true;
    brim_str_append_n(out, text, n);
    brim_str_append_char(out, '\n');
  }
}

// As one more load with the setting as overrides, so that everything that follows from it does.
static brim_status load_best(const bench *b, brim_config **out) {
  brim_device_info gpu;
  brim_config_facts facts;
  const brim_cli_input *input = &b->job->input;
  brim_cli_facts(b->job->registry, &gpu, &facts);
  brim_config_options how = {.path = input->path,
                             .overrides = (const char *const *)input->overrides,
                             .override_count = input->count,
                             .mode = BRIM_CONFIG_RUN,
                             .facts = &facts};
  return brim_config_load(&how, out);
}

// The same rate as --apply writes; one that the command line gives belongs to its batch.
static brim_status add_rate(const bench *b, const brim_result *best, brim_str *text) {
  bench_rate rate;
  double batch = brim_result_number_as(best, BRIM_ROLE_BATCH, (double)NAN);
  double steps = brim_result_number_as(best, BRIM_ROLE_ACCUMULATION, (double)NAN);
  bool given = brim_config_layer_of(b->job->config, BENCH_RATE_KEY) == BRIM_CONFIG_FROM_OVERRIDE;
  BRIM_TRY(brim_cli_bench_rate(b, given ? NULL : b->job->input.path, batch, steps, &rate));
  if (!(rate.after > 0)) return BRIM_OK;
  brim_str_append(text, "# ");
  brim_cli_bench_rate_text(&rate, text);
  if (rate.kept) return BRIM_OK;
  return brim_cli_input_add(&b->job->input, "%s=%.4g", BENCH_RATE_KEY, rate.after);
}

brim_status brim_cli_bench_best(const bench *b, const char *path) {
  const brim_result *best = &b->results[b->picks.recommended];
  char rate[32];
  brim_str text, whole;
  brim_str_init(&text);
  brim_str_init(&whole);
  brim_ui_number(best->samples_per_s, rate);
  brim_str_printf(&text, brim_tr("# recommended by brim bench: %s %s/s on %s\n"), rate,
                  brim_tr(brim_result_unit(best)), best->device);
  brim_status status = add_path(b, "data.path", &b->job->input);
  if (!status && b->device_count > 1) {  // training is on one
    const char *first = NULL;
    status = brim_work_device_at(b->job->config, 0, &first);
    if (!status) status = brim_cli_input_add(&b->job->input, "device=%s", first);
  }
  if (!status) status = add_path(b, "training.weights", &b->job->input);
  for (size_t i = 0; i < b->job->work->knob_count && !status; i++) {
    const brim_knob *knob = &b->job->work->knobs[i];
    const brim_result_knob *value = brim_result_knob_find(best, knob->name);
    if (!value) continue;
    brim_str_printf(&text, "#   %s: %s\n", knob->key, value->value);
    status = brim_cli_input_add(&b->job->input, "%s=%s", knob->key, value->value);
  }
  if (!status) status = add_rate(b, best, &text);
  brim_config *config = NULL;
  if (!status) status = load_best(b, &config);
  if (!status) status = brim_config_to_yaml(config, false, &whole);
  if (!status) filter(config, whole.data, &text);
  if (!status) status = brim_str_status(&text);
  if (!status) status = brim_fs_write(path, text.data, text.len);
  brim_config_close(config);
  brim_str_deinit(&whole);
  brim_str_deinit(&text);
  return status;
}
