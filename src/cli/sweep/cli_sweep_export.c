// `brim sweep export`: the experiments as JSON lines, or as CSV with a column for each axis.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base_text.h"
#include "cli/sweep/cli_sweep.h"
#include "lab/wire/lab_wire_link.h"
#include "record/record_lab.h"

enum { AXES = 64, NAME = 64 };

// The best value of an experiment's metric. The row of the store has only the last value.
typedef struct best_item {
  char id[BRIM_EXP_ID];
  char key[BRIM_METRIC_NAME];
  brim_metric_better better;
  double value;
} best_item;

typedef struct output {
  brim_cli *cli;
  brim_fs_writer *file;  // NULL: stdout
  char axes[AXES][NAME];
  size_t axis_count;
  best_item *best;  // one item per experiment, in the order of the first pass
  size_t best_count, best_cap, best_next;  // best_next: where best_of begins to search
  int64_t now;                             // time of the store
} output;

static brim_status write_line(output *o, const brim_str *line) {
  BRIM_TRY(brim_str_status(line));
  if (o->file) return brim_fs_writer_write(o->file, line->data, line->len);
  brim_cli_put_bytes(o->cli, line->data, line->len);
  return BRIM_OK;
}

static brim_status on_line(void *ctx, const char *line) {
  brim_str text;
  brim_str_init(&text);
  brim_str_printf(&text, "%s\n", line);
  brim_status status = write_line(ctx, &text);
  brim_str_deinit(&text);
  return status;
}

//---------------------------------- CSV ----------------------------------

// Finds the next axis of a label such as "lr=0.1 model=mlp(depth=2, width=8)". Blanks in brackets and quotes do not end
// a word. *name_size = 0: the word has no '='. Returns the end of the word; NULL = no word is left.
static const char *next_axis(const char *at, const char **name, size_t *name_size,
                             const char **value, size_t *value_size) {
  int depth = 0;
  char quote = 0;
  while (*at == ' ') at++;
  const char *start = at, *equals = NULL;
  for (; *at && (depth > 0 || quote || *at != ' '); at++) {
    if (quote) {
      if (*at == quote) quote = 0;
    } else if (*at == '"' || *at == '\'') {
      quote = *at;
    } else if (strchr("([{", *at)) {
      depth++;
    } else if (strchr(")]}", *at)) {
      depth -= depth > 0;
    } else if (*at == '=' && !equals && depth == 0) {
      equals = at;
    }
  }
  if (at == start) return NULL;
  *name = start;
  *name_size = equals ? (size_t)(equals - start) : 0;
  *value = equals ? equals + 1 : start;
  *value_size = (size_t)(at - *value);
  return at;
}

// The index of an axis; axis_count if it is unknown.
static size_t axis_of(const output *o, const char *name, size_t size) {
  size_t i = 0;
  while (i < o->axis_count &&
         !(strlen(o->axes[i]) == size && strncmp(o->axes[i], name, size) == 0)) {
    i++;
  }
  return i;
}

static brim_status add_best(output *o, const brim_store_exp *exp) {
  brim_sweep_metric metric;
  if (o->best_count == o->best_cap) {
    size_t cap = o->best_cap ? o->best_cap * 2 : 256;
    best_item *more = brim_realloc(o->best, cap * sizeof *more);
    if (!more) return brim_fail(BRIM_ENOMEM, "out of memory while listing experiments");
    o->best = more;
    o->best_cap = cap;
  }
  best_item *item = &o->best[o->best_count++];
  *item = (best_item){.value = (double)NAN};
  snprintf(item->id, sizeof item->id, "%s", exp->id);
  snprintf(item->key, sizeof item->key, "%s", exp->metric_key);
  if (item->key[0] && brim_cli_sweep_metric(item->key, &metric)) item->better = metric.better;
  return BRIM_OK;
}

static brim_status on_value(void *ctx, const brim_store_metric *row, int64_t attempt) {
  best_item *item = ctx;
  (void)attempt;
  bool better =
      item->better == BRIM_BETTER_HIGHER ? row->value > item->value : row->value < item->value;
  if (isnan(item->value) || better) item->value = row->value;
  return BRIM_OK;
}

static brim_status read_best(output *o, brim_lab_link *link) {
  for (size_t i = 0; i < o->best_count; i++) {
    best_item *item = &o->best[i];
    if (item->better == BRIM_BETTER_NEITHER) continue;
    BRIM_TRY(brim_lab_read_metrics(link, item->id, item->key, 0, on_value, item));
  }
  return BRIM_OK;
}

// The best value of an experiment. NaN if it was submitted after the first pass.
static double best_of(output *o, const char *id) {
  for (size_t i = 0; i < o->best_count; i++) {
    size_t at = (o->best_next + i) % o->best_count;
    if (strcmp(o->best[at].id, id) != 0) continue;
    o->best_next = at + 1;
    return o->best[at].value;
  }
  return (double)NAN;
}

static brim_status on_axes(void *ctx, const brim_store_exp *exp) {
  output *o = ctx;
  BRIM_TRY(add_best(o, exp));
  const char *name, *value;
  size_t name_size, value_size;
  for (const char *at = exp->label; (at = next_axis(at, &name, &name_size, &value, &value_size));) {
    if (name_size == 0 || name_size >= NAME || o->axis_count == AXES) continue;
    if (axis_of(o, name, name_size) < o->axis_count) continue;
    snprintf(o->axes[o->axis_count++], NAME, "%.*s", (int)name_size, name);
  }
  return BRIM_OK;
}

// Removes control characters and disarms formulas of spreadsheets: other users may have written the text to the store.
static void put_cell(brim_str *line, const char *text, size_t size) {
  brim_str plain;
  brim_str_init(&plain);
  brim_text_append_plain(&plain, text, size, NULL);
  brim_text_append_csv(line, plain.data);
  brim_str_deinit(&plain);
}

static void put_text(brim_str *line, const char *text) {
  brim_str_append_char(line, ',');
  put_cell(line, text, strlen(text));
}

static void put_number(brim_str *line, double value) {
  char text[32];
  brim_str_append_char(line, ',');
  if (isnan(value)) return;
  brim_format_f64(value, text);
  brim_str_append(line, text);
}

static void put_time(brim_str *line, int64_t ms) {
  char text[32];
  brim_clock_iso8601((double)ms / 1e3, text);
  put_text(line, ms > 0 ? text : "");
}

// Puts the value of a key from a stored config, which has one key per line; else the key's default.
static void put_key(const char *axis, const char *config, brim_str *line) {
  const brim_config_key *key = brim_config_key_find(axis);
  const char *name = key ? key->name : axis;
  size_t n = strlen(name);
  for (const char *at = config; at && *at; at = strchr(at, '\n')) {
    at += *at == '\n';
    if (strncmp(at, name, n) != 0 || at[n] != ':') continue;
    const char *value = at + n + 1 + strspn(at + n + 1, " ");
    size_t size = strcspn(value, "\n");
    bool quoted = size >= 2 && value[0] == '"' && value[size - 1] == '"';
    put_cell(line, value + quoted, size - 2 * quoted);
    return;
  }
  if (key && key->default_text) put_cell(line, key->default_text, strlen(key->default_text));
}

// Puts a cell per axis: the value in the experiment's label, or in its config for axes that only other grids have.
static void put_axes(const output *o, const brim_store_exp *exp, brim_str *line) {
  for (size_t i = 0; i < o->axis_count; i++) {
    const char *name, *value;
    size_t name_size, value_size;
    bool found = false;
    brim_str_append_char(line, ',');
    for (const char *at = exp->label;
         !found && (at = next_axis(at, &name, &name_size, &value, &value_size));) {
      found = name_size > 0 && axis_of(o, name, name_size) == i;
    }
    if (found) {
      put_cell(line, value, value_size);
    } else {
      put_key(o->axes[i], exp->config, line);
    }
  }
}

static brim_status on_row(void *ctx, const brim_store_exp *exp) {
  output *o = ctx;
  brim_str line;
  brim_str_init(&line);
  put_cell(&line, exp->id, strlen(exp->id));
  put_axes(o, exp, &line);
  put_text(&line, brim_exp_state_name(exp->state));
  put_text(&line, strcmp(exp->failure, "none") == 0 ? "" : exp->failure);
  put_number(&line, (double)exp->attempt);
  put_number(&line, exp->epoch < 0 ? (double)NAN : (double)exp->epoch);
  put_number(&line, exp->step < 0 ? (double)NAN : (double)exp->step);
  put_text(&line, exp->metric_key);
  put_number(&line, exp->metric);
  put_number(&line, best_of(o, exp->id));
  put_text(&line, exp->tags);
  put_time(&line, exp->created);
  put_time(&line, exp->started);
  put_time(&line, exp->ended);
  put_number(&line,
             exp->started > 0 ? (double)brim_store_exp_ran_ms(exp, o->now) / 1e3 : (double)NAN);
  put_text(&line, exp->reason);
  brim_str_append_char(&line, '\n');
  brim_status status = write_line(o, &line);
  brim_str_deinit(&line);
  return status;
}

static const char csv_mark[] = ",state,failure,attempts,epoch,step,metric,";

static brim_status write_csv(output *o, brim_lab_link *link, const brim_store_filter *filter) {
  brim_str line;
  BRIM_TRY(brim_lab_now(link, &o->now));
  BRIM_TRY(brim_lab_list(link, filter, on_axes, o));
  BRIM_TRY(read_best(o, link));
  brim_str_init(&line);
  brim_str_append(&line, "id");
  for (size_t i = 0; i < o->axis_count; i++) put_text(&line, o->axes[i]);
  brim_str_append(&line,
                  ",state,failure,attempts,epoch,step,metric,value,best,tags,created,started,ended,"
                  "seconds,message\n");
  brim_status status = write_line(o, &line);
  brim_str_deinit(&line);
  return status ? status : brim_lab_list(link, filter, on_row, o);
}

//---------------------------------- the command ----------------------------------

static brim_status write_all(output *o, brim_lab_link *link) {
  const brim_option_parse *parse = &o->cli->parse;
  const brim_store_filter filter = {
      .states = brim_cli_sweep_states(brim_option_string(parse, "state", NULL)),
      .tag = brim_option_string(parse, "tag", NULL),
      .texts = true};
  bool csv = strcmp(brim_option_string(parse, "format", "jsonl"), "csv") == 0;
  return csv ? write_csv(o, link, &filter) : brim_lab_export(link, &filter, on_line, o);
}

static brim_status export_action(brim_cli *cli) {
  output o = {.cli = cli};
  char *place = NULL;
  brim_lab_link *link = NULL;
  const char *path = brim_option_string(&cli->parse, "output", NULL);
  BRIM_TRY(brim_cli_sweep_place(cli, 1, &place));
  // An earlier export may be replaced without --force.
  bool csv = strcmp(brim_option_string(&cli->parse, "format", "jsonl"), "csv") == 0;
  brim_status status = path ? brim_fs_check_target(path) : BRIM_OK;
  if (!status && path) {
    status =
        brim_cli_check_replace(cli, path, csv ? csv_mark : "{\"schema\":\"" BRIM_LAB_SCHEMA "\"");
  }
  if (!status)
    status = brim_lab_link_open(place, &(brim_lab_link_options){.readonly = true}, &link);
  if (!status && path) status = brim_fs_writer_open(path, &o.file);
  if (!status) status = write_all(&o, link);
  if (!status && o.file) {
    status = brim_fs_writer_commit(o.file);
  } else {
    brim_fs_writer_abort(o.file);
  }
  brim_lab_link_close(link);
  brim_free(o.best);
  brim_free(place);
  return status;
}

const brim_cli_verb brim_cli_sweep_export[] = {{"export", export_action}, {NULL, NULL}};
