// `brim init`: looks at data and writes a commented config for it that trains as it stands.
#include "cli/config/cli_init.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/data/cli_data.h"
#include "cli/job/cli_job.h"

enum { SIZES_LOOKED_AT = 256 };

static const brim_option options[] = {
    {.name = "output",
     .short_name = 'o',
     .kind = BRIM_OPTION_STRING,
     .metavar = "FILE",
     .help = BRIM_N_("config file to write"),
     .default_text = "NAME.yaml"},
    {.name = "force", .help = BRIM_N_("replace an existing file")},
    {.name = "dataset",
     .kind = BRIM_OPTION_STRING,
     .metavar = "COMP",
     .help = BRIM_N_("source as in a config: 'hdf5(inputs=[x])' (default: detected)")},
    {.name = "allow-external", .help = BRIM_N_("read data that an HDF5 file keeps in other files")},
    {.name = "device",
     .kind = BRIM_OPTION_STRING,
     .metavar = "DEV",
     .help = BRIM_N_("device to plan for: auto, cpu, cuda, cuda:N or ref"),
     .default_text = "auto"},
    {0},
};

//---------------------------------- looking ----------------------------------

// The name of the config: the file or folder without its ending.
static void name_of(const char *path, char *out, size_t size) {
  char real[PATH_MAX];
  const char *base = path && realpath(path, real) ? brim_fs_basename(real) : "";
  if (!*base || strcmp(base, "/") == 0) base = "brim";
  snprintf(out, size, "%s", base);
  static const char *const endings[] = {".h5", ".hdf5", ".npz", ".npy", ".gz", ".yaml", NULL};
  for (const char *const *e = endings; *e; e++) {
    if (brim_str_ends(out, *e) && strlen(out) > strlen(*e)) out[strlen(out) - strlen(*e)] = '\0';
  }
}

static int by_value(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

// The middle height and width of images of different sizes, over evenly spread ones.
static void middle_size(brim_source *source, brim_init_facts *f) {
  int64_t heights[SIZES_LOOKED_AT], widths[SIZES_LOOKED_AT];
  uint64_t count = source->info.count, wanted = count < SIZES_LOOKED_AT ? count : SIZES_LOOKED_AT;
  size_t n = 0;
  for (uint64_t i = 0; i < wanted; i++) {
    if (brim_source_size(source, i * (count / wanted), &heights[n], &widths[n])) continue;
    n++;
  }
  brim_status_clear();  // one that cannot be read is for training to tell
  if (n == 0) return;
  qsort(heights, n, sizeof heights[0], by_value);
  qsort(widths, n, sizeof widths[0], by_value);
  f->height = heights[n / 2];
  f->width = widths[n / 2];
}

// The split to train on: train, else the unlabelled images, else what there is.
static const brim_cli_split *find_split(const brim_cli_data *d) {
  static const char *const names[] = {"train", "unlabeled", NULL};
  for (const char *const *name = names; *name; name++) {
    for (size_t i = 0; i < d->split_count; i++) {
      if (strcmp(d->split[i].name, *name) == 0) return &d->split[i];
    }
  }
  return &d->split[0];
}

static brim_status find_unused(const brim_cli_data *d, brim_init_facts *f) {
  brim_str unused;
  brim_source_left left;
  brim_str_init(&unused);
  brim_status status = brim_cli_data_unused(d, &unused, &left);
  f->unused = status ? "" : brim_arena_strdup(d->arena, unused.data);
  brim_str_deinit(&unused);
  if (!status && !f->unused) return brim_fail(BRIM_ENOMEM, "out of memory");
  return status;
}

static brim_status look(brim_cli_data *d, brim_init_facts *f) {
  const brim_cli_split *split = find_split(d);
  const char *asked = brim_option_string(&d->cli->parse, "dataset", NULL);
  bool chosen = brim_component_string(&d->component, "split", NULL) != NULL;
  if (!chosen && (!strcmp(split->name, "val") || !strcmp(split->name, "test"))) {
    return brim_fail(BRIM_EINVAL,
                     "%s: no train split, only '%s'; to train on '%s' add --dataset '%s(split=%s)'",
                     d->path ? d->path : d->component.name, split->name, split->name,
                     d->component.name, split->name);
  }
  f->dataset = asked ? asked : d->component.name;
  f->allow_external = brim_option_flag(&d->cli->parse, "allow-external", false);
  f->path = d->path;
  f->info = split->source->info;
  f->binary_targets = split->source->binary_targets;
  f->split = strcmp(split->name, "train") == 0 ? NULL : split->name;
  for (size_t i = 0; i < d->split_count; i++) {
    const char *name = d->split[i].name;
    f->has_val |= &d->split[i] != split && (!strcmp(name, "val") || !strcmp(name, "test"));
  }
  f->height = f->info.rank >= 2 ? f->info.dim[0] : 0;
  f->width = f->info.rank >= 2 ? f->info.dim[1] : 0;
  if (f->info.varies) middle_size(split->source, f);
  BRIM_TRY(brim_cli_data_class_names(d, split, &f->class_names));
  BRIM_TRY(find_unused(d, f));
  // photos/cat, photos/dog, and init was pointed above photos
  if (f->info.classes == 1 && f->class_names && !strcmp(split->source->table->name, "folder")) {
    brim_log_warn("init",
                  "%s: all images belong to one class, '%s'; if the folders in it are the classes, "
                  "run init on that folder",
                  f->path, f->class_names[0]);
  }
  return BRIM_OK;
}

//---------------------------------- planning ----------------------------------

typedef struct opened {
  brim_config *config;
  brim_device *device;
  brim_work *work;
} opened;

static void opened_close(opened *o) {
  brim_work_close(o->work);
  brim_device_close(o->device);
  brim_config_close(o->config);
}

static brim_status load_text(const brim_cli *cli, const char *text, brim_config **out) {
  char device[128];
  const char *overrides[1] = {device};
  const char *asked = brim_option_string(&cli->parse, "device", NULL);
  bool ref = asked && strcmp(asked, "ref") == 0;
  snprintf(device, sizeof device, "%s=%s", ref ? "backend" : "device", asked ? asked : "auto");
  brim_config_options how = {.text = text,
                             .text_name = "brim init",
                             .overrides = overrides,
                             .override_count = asked ? 1 : 0,
                             .mode = BRIM_CONFIG_RUN};
  return brim_config_load(&how, out);
}

static brim_status open_device(const brim_cli *cli, brim_registry *registry, const char *text,
                               opened *o) {
  const char *spec;
  brim_device_options how;
  BRIM_TRY(load_text(cli, text, &o->config));
  BRIM_TRY(brim_work_device_spec(o->config, &spec));
  BRIM_TRY(brim_work_device_options(o->config, &how));
  brim_status status = brim_device_open(registry, spec, &how, &o->device);
  return status == BRIM_ENOENT || status == BRIM_EABI ? BRIM_EDEVICE : status;
}

// The largest power of two up to the batch wanted that fits with a fifth of the memory to spare.
static brim_status fit_batch(const opened *o, const brim_plan *plan, int64_t *batch) {
  uint64_t free_bytes = 0, total = 0;
  BRIM_TRY(brim_device_memory(o->device, &free_bytes, &total));
  brim_setting setting = brim_work_setting(o->work);
  uint64_t limit = free_bytes / 5 * 4;
  brim_status status = brim_work_check_fit(o->work, &setting, plan, limit);
  if (status != BRIM_EOOM) return status;
  int64_t largest = brim_work_largest_batch(o->work, &setting, limit, NULL);
  if (largest < 1) return status;  // the detail says what does not fit
  brim_status_clear();
  while (*batch > largest) *batch /= 2;
  return BRIM_OK;
}

static brim_status plan_batch(const brim_cli_data *d, opened *o, int64_t *batch, char *memory,
                              size_t size) {
  brim_work_context context = {.registry = d->registry, .device = o->device};
  BRIM_TRY(brim_work_open(&context, o->config, &o->work));
  brim_setting setting = brim_work_setting(o->work);
  brim_plan plan;
  BRIM_TRY(o->work->table->plan(o->work->state, &setting, &plan));
  BRIM_TRY(fit_batch(o, &plan, batch));
  int knob = brim_work_knob_as(o->work, BRIM_ROLE_BATCH);
  if (knob >= 0) setting.value[knob] = *batch;
  BRIM_TRY(o->work->table->plan(o->work->state, &setting, &plan));
  char bytes[32];
  brim_format_bytes(plan.bytes[BRIM_PLACE_DEVICE], bytes);
  // it names the batch size, so that a later change of the key removes the comment
  snprintf(memory, size, brim_tr("a batch of %lld needs %s on %s"), (long long)*batch, bytes,
           o->device->info.name);
  return BRIM_OK;
}

// Chooses with the device that is there, writes the text, and plans it; then writes it again with
// the batch that fits. What is written has been loaded and planned.
static brim_status compose(brim_cli_data *d, brim_init_facts *f, brim_init_choice *c,
                           brim_str *text, int64_t *batch) {
  opened o = {0};
  char memory[224] = "";
  brim_status status = open_device(d->cli, d->registry, "seed: 0\n", &o);
  if (!status) {
    f->gpu = o.device->info.kind == BRIM_DEVICE_GPU;
    status = brim_cli_init_choose(f, c);
  }
  if (!status) {
    *batch = c->batch;
    brim_cli_init_render(f, c, *batch, "", text);
    status = brim_str_status(text);
  }
  brim_config_close(o.config);
  o.config = NULL;
  if (!status) status = load_text(d->cli, text->data, &o.config);
  if (!status) status = plan_batch(d, &o, batch, memory, sizeof memory);
  opened_close(&o);
  if (status) return status;
  brim_str_clear(text);
  brim_utf8_trim(memory);
  brim_cli_init_render(f, c, *batch, memory, text);
  return brim_str_status(text);
}

//---------------------------------- telling ----------------------------------

static brim_status tell_json(brim_cli *cli, const brim_init_facts *f, const brim_init_choice *c,
                             const char *output, int64_t batch) {
  json_t *e = json_object();
  brim_status status = brim_json_put(e, "file", json_string(output));
  if (!status) status = brim_json_put(e, "dataset", json_string(f->dataset));
  if (!status) status = brim_json_put(e, "samples", json_integer((json_int_t)f->info.count));
  if (!status) status = brim_json_put(e, "classes", json_integer((json_int_t)f->info.classes));
  if (!status) status = brim_json_put(e, "model", json_string(c->model));
  if (!status) status = brim_json_put(e, "batch_size", json_integer((json_int_t)batch));
  json_t *unused = status ? NULL : json_string(f->unused);
  if (!status) status = brim_json_put(e, "unused", unused ? unused : json_null());
  if (status) {
    json_decref(e);
    return status;
  }
  return brim_cli_event(cli, "init", e);
}

static void put_quoted(brim_str *out, const char *word) {
  static const char safe[] =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-+:@%";
  if (*word && strspn(word, safe) == strlen(word)) {
    brim_str_append(out, word);
    return;
  }
  brim_str_append_char(out, '\'');
  for (; *word; word++) {
    if (*word == '\'') {
      brim_str_append(out, "'\\''");
    } else {
      brim_str_append_char(out, *word);
    }
  }
  brim_str_append_char(out, '\'');
}

static void put_next(brim_str *out, const char *command, const char *file, const char *why) {
  brim_str_printf(out, "  brim %s ", command);
  put_quoted(out, file);
  brim_str_printf(out, "   # %s\n", why);
}

static brim_status tell(brim_cli *cli, const brim_init_facts *f, const brim_init_choice *c,
                        const char *output, int64_t batch) {
  if (cli->json) return tell_json(cli, f, c, output, batch);
  brim_str text;
  brim_str_init(&text);
  char what[320];
  brim_cli_init_describe(f, what, sizeof what);
  brim_utf8_trim(what);
  brim_str_printf(&text, brim_tr("wrote %s: %s on %s\n"), output, c->model, what);
  if (f->unused[0]) brim_str_printf(&text, brim_tr("not used: %s\n"), f->unused);
  if (!cli->quiet) {
    brim_str_printf(&text, "\n%s\n", brim_tr("Next:"));
    put_next(&text, "bench", output, brim_tr("find the fastest setting"));
    put_next(&text, "train", output, brim_tr("train"));
    brim_str_append(&text, "  brim sweep ");
    put_quoted(&text, output);
    brim_str_printf(&text, " lr='[0.01, 0.001]'   # %s\n", brim_tr("compare settings"));
  }
  brim_status status = brim_str_status(&text);
  if (!status) brim_cli_print(cli, &text);
  brim_str_deinit(&text);
  return status;
}

//---------------------------------- the command ----------------------------------

static brim_status write_config(brim_cli *cli, brim_cli_data *d, brim_init_facts *f,
                                const char *output) {
  brim_init_choice choice;
  int64_t batch = 0;
  brim_str text;
  brim_str_init(&text);
  brim_status status = brim_source_open_failed(brim_cli_data_open(d));
  if (!status) status = look(d, f);
  brim_cli_data_hush(cli, true);  // what there is to say of the data was reported on opening them
  if (!status) status = compose(d, f, &choice, &text, &batch);
  brim_cli_data_hush(cli, false);
  if (!status) status = brim_fs_write(output, text.data, text.len);
  if (!status) status = tell(cli, f, &choice, output, batch);
  brim_str_deinit(&text);
  return status;
}

static brim_status run(brim_cli *cli) {
  if (cli->parse.positional_count > 1) {
    return brim_cli_usage(cli, BRIM_N_("init takes one path: the file or folder of the data"));
  }
  const char *dataset = brim_option_string(&cli->parse, "dataset", NULL);
  const char *path = cli->parse.positional_count ? cli->parse.positional[0] : NULL;
  if (!path && !dataset) path = ".";
  char name[256], file[272];
  name_of(path, name, sizeof name);
  snprintf(file, sizeof file, "%s.yaml", name);
  const char *output = brim_option_string(&cli->parse, "output", file);
  if (brim_fs_is_dir(output)) {
    return brim_fail(BRIM_EINVAL, "%s is a folder; name a file in it", output);
  }
  BRIM_TRY(brim_cli_check_replace(cli, output, NULL));
  BRIM_TRY(brim_fs_check_target(output));
  brim_init_facts facts = {.name = name};
  brim_cli_data d;
  BRIM_TRY(brim_source_open_failed(brim_cli_data_init(cli, path, &d)));
  brim_status status = write_config(cli, &d, &facts, output);
  brim_cli_data_deinit(&d);
  return status;
}

const brim_cli_command brim_cli_init = {
    .name = "init",
    .summary = BRIM_N_("write a config for your own data"),
    .usage = "[PATH] [--output FILE] [--force]",
    .about = BRIM_N_("Writes a config for the data at PATH (default: the current folder). The data "
                     "is an HDF5 file, a folder of images, or the files of MNIST, CIFAR or STL-10. "
                     "The config has a model, transforms, a batch size that fits in memory, and "
                     "comments. You can train with it as it is, or edit it."),
    .examples = BRIM_N_("a config for a folder of images\n"
                        "brim init photos\n"
                        "for an HDF5 file, under another name\n"
                        "brim init signals.h5 --output mine.yaml\n"),
    .options = options,
    .run = run,
};
