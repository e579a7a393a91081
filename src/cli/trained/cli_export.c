// `brim export CHECKPOINT [--output model.onnx]`: writes the trained network as ONNX, for other programs.
#include "cli/trained/cli_trained.h"
#include "engine/engine_onnx.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const yes_no[] = {"yes", "no", NULL};
static const char *const layouts[] = {"nchw", "nhwc", NULL};

#define STANDARD_OUTPUT "model.onnx"

static const brim_option options[] = {
    {.name = "output",
     .short_name = 'o',
     .kind = BRIM_OPTION_STRING,
     .metavar = "FILE",
     .help = BRIM_N_("ONNX file to write; - is the standard output"),
     .default_text = STANDARD_OUTPUT},
    {.name = "force", .help = BRIM_N_("replace the file if it exists")},
    {.name = "opset",
     .kind = BRIM_OPTION_INT,
     .help = BRIM_N_("version of ONNX's operators, 13 to 21"),
     .default_text = "17"},
    {.name = "batch",
     .kind = BRIM_OPTION_STRING,
     .metavar = "N",
     .help = BRIM_N_("rows of the input: dynamic or a number"),
     .default_text = "dynamic"},
    {.name = "normalize",
     .kind = BRIM_OPTION_ENUM,
     .metavar = "V",
     .help = BRIM_N_("yes: the graph normalizes raw samples; no: it takes normalized floats"),
     .default_text = "yes",
     .choices = yes_no},
    {.name = "layout",
     .kind = BRIM_OPTION_ENUM,
     .metavar = "L",
     .help = BRIM_N_("image layout: channels first (PyTorch) or last (TensorFlow)"),
     .default_text = "nchw",
     .choices = layouts},
    BRIM_CLI_TRAINED_OPTIONS,
    {0},
};

static brim_status read_options(brim_cli *cli, brim_onnx_options *o) {
  const brim_option_parse *p = &cli->parse;
  memset(o, 0, sizeof *o);
  int64_t opset = brim_option_int(p, "opset", BRIM_ONNX_OPSET);
  if (opset < BRIM_ONNX_OPSET_MIN || opset > BRIM_ONNX_OPSET_MAX) {
    return brim_cli_usage(cli, BRIM_N_("--opset must be from %d to %d"), BRIM_ONNX_OPSET_MIN,
                          BRIM_ONNX_OPSET_MAX);
  }
  o->opset = (int)opset;
  const char *batch = brim_option_string(p, "batch", "dynamic");
  bool dynamic = strcmp(batch, "dynamic") == 0;
  if (!dynamic && (!brim_parse_i64(batch, &o->batch) || o->batch < 1 || o->batch > 1 << 24)) {
    return brim_cli_usage(cli, BRIM_N_("--batch must be dynamic or a number of rows, not '%.100s'"),
                          batch);
  }
  o->normalize = strcmp(brim_option_string(p, "normalize", "yes"), "yes") == 0;
  o->nhwc = strcmp(brim_option_string(p, "layout", "nchw"), "nhwc") == 0;
  return BRIM_OK;
}

//---------------------------------- metadata ----------------------------------

// Puts a list as JSON text, since the values of metadata are strings. Consumes `list`.
static brim_status put_list(json_t *out, const char *key, json_t *list, brim_status status) {
  char *text = NULL;
  if (!status) status = brim_json_dump(list, 0, &text);
  if (!status) status = brim_json_put(out, key, json_string(text));
  brim_free(text);
  json_decref(list);
  return status;
}

static brim_status put_reals(json_t *out, const char *key, int count, const float *values) {
  json_t *list = json_array();
  brim_status status = list ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory while exporting");
  for (int i = 0; i < count && !status; i++) {
    status = brim_json_push(list, brim_json_number((double)values[i]));
  }
  return put_list(out, key, list, status);
}

static brim_status put_names(const brim_trained *t, json_t *out) {
  json_t *list = json_array();
  brim_status status = list ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory while exporting");
  for (int64_t i = 0; i < t->outputs && !status; i++) {
    status = brim_json_push(list, json_string(t->class_names[i]));
  }
  return put_list(out, "class_names", list, status);
}

// Fills ONNX's metadata_props with facts that the graph does not have.
static brim_status fill_metadata(const brim_cli_trained *c, const brim_onnx_options *o,
                                 json_t *out) {
  const brim_trained *t = c->trained;
  char text[32];
  snprintf(text, sizeof text, "%" PRId64, t->step);
  BRIM_TRY(brim_json_put(out, "task", json_string(brim_task_name(t->task))));
  if (t->step >= 0) BRIM_TRY(brim_json_put(out, "step", json_string(text)));
  BRIM_TRY(brim_json_put(out, "weights", json_string(c->ema ? "averaged" : "trained")));
  BRIM_TRY(brim_json_put(out, "normalized_by", json_string(o->normalize ? "graph" : "caller")));
  BRIM_TRY(put_reals(out, "scale", t->channels, t->scale));
  BRIM_TRY(put_reals(out, "shift", t->channels, t->shift));
  return t->class_names ? put_names(t, out) : BRIM_OK;
}

//---------------------------------- the result ----------------------------------

// The order of the axes of images; NULL for other samples, which keep the order of the data.
static const char *layout_of(const brim_onnx_options *o, const brim_onnx_info *info) {
  if (info->input_rank != 3) return NULL;
  return o->nhwc ? "NHWC" : "NCHW";
}

static void batch_text(int64_t batch, char out[24]) {
  snprintf(out, 24, "N");
  if (batch > 0) snprintf(out, 24, "%" PRId64, batch);
}

static void input_text(const brim_onnx_info *info, int64_t batch, brim_str *out) {
  char rows[24];
  batch_text(batch, rows);
  brim_str_printf(out, "input %s (%s", info->input_dtype == BRIM_U8 ? "uint8" : "float32", rows);
  for (int i = 0; i < info->input_rank; i++) brim_str_printf(out, ", %" PRId64, info->input_dim[i]);
  brim_str_append_char(out, ')');
}

static brim_status show(const brim_cli_trained *c, const brim_onnx_options *o,
                        const brim_onnx_info *info) {
  brim_str out, text;
  char bytes[32], rows[24];
  brim_str_init(&out);
  brim_str_init(&text);
  batch_text(o->batch, rows);
  brim_format_bytes(info->bytes, bytes);
  brim_ui_styled(&out, &c->cli->out, BRIM_UI_BOLD, c->output);
  brim_str_printf(&out, brim_tr(": ONNX, opset %d, %s\n"), o->opset, bytes);
  brim_cli_trained_model_text(c, &text);
  brim_cli_row(&c->cli->out, brim_tr("model"), text.data, &out);
  brim_str_clear(&text);
  input_text(info, o->batch, &text);
  if (layout_of(o, info)) brim_str_printf(&text, ", %s", layout_of(o, info));
  bool bytes_in = info->input_dtype == BRIM_U8;
  brim_str_append(&text, !o->normalize
                             ? brim_tr(": normalized by the caller, value * scale + shift")
                         : bytes_in ? brim_tr(": values 0 to 255, which the graph normalizes")
                                    : brim_tr(": samples as stored in the data"));
  brim_cli_row(&c->cli->out, brim_tr("takes"), text.data, &out);
  brim_str_clear(&text);
  for (int i = 0; i < info->output_count; i++) {
    brim_str_printf(&text, "%s%s float32 (%s, %" PRId64 ")", i ? "; " : "", info->output[i], rows,
                    info->width[i]);
  }
  brim_cli_row(&c->cli->out, brim_tr("gives"), text.data, &out);
  brim_str_deinit(&text);
  return brim_cli_finish_text(c->cli, &out, BRIM_OK);
}

static brim_status show_json(const brim_cli_trained *c, const brim_onnx_options *o,
                             const brim_onnx_info *info) {
  json_t *f = json_object(), *shape = NULL, *outputs = NULL;
  brim_status s = brim_cli_trained_json(c, f);
  if (!s) s = brim_json_put(f, "output", json_string(c->output));
  if (!s) s = brim_json_put(f, "opset", json_integer(o->opset));
  if (!s) s = brim_json_put(f, "bytes", json_integer((json_int_t)info->bytes));
  if (!s) s = brim_json_put(f, "nodes", json_integer(info->nodes));
  if (!s) s = brim_json_put(f, "parameters", json_integer(info->parameters));
  if (!s) s = brim_json_put(f, "normalize", json_boolean(o->normalize));
  if (!s) {
    s = brim_json_put(f, "input_type",
                      json_string(info->input_dtype == BRIM_U8 ? "uint8" : "float32"));
  }
  if (!s) s = brim_json_put(f, "input_shape", shape = json_array());
  for (int i = 0; i < info->input_rank && !s; i++) {
    s = brim_json_push(shape, json_integer(info->input_dim[i]));
  }
  const char *layout = layout_of(o, info);
  if (!s) s = brim_json_put(f, "input_layout", layout ? json_string(layout) : json_null());
  if (!s) {
    s = brim_json_put(f, "input_range",
                      info->input_dtype == BRIM_U8 ? json_string("0..255") : json_null());
  }
  if (!s) s = brim_json_put(f, "outputs", outputs = json_object());
  for (int i = 0; i < info->output_count && !s; i++) {
    s = brim_json_put(outputs, info->output[i], json_integer(info->width[i]));
  }
  return brim_cli_finish_event(c->cli, "exported", f, s);
}

//---------------------------------- the standard output ----------------------------------

static brim_status copy_to_stdout(int fd) {
  char buffer[1 << 16];
  for (;;) {
    ssize_t n = read(fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return brim_fail(BRIM_EIO, "cannot read the model: %s", brim_errno_text(errno));
    if (n == 0) return BRIM_OK;
    for (ssize_t done = 0; done < n;) {
      ssize_t more = write(STDOUT_FILENO, buffer + done, (size_t)(n - done));
      if (more < 0 && errno == EINTR) continue;
      if (more <= 0)
        return brim_fail(BRIM_EIO, "cannot write the standard output: %s",
                         brim_errno_text(more < 0 ? errno : ENOSPC));
      done += more;
    }
  }
}

// Writes a file in a temporary folder, then copies it to stdout: ONNX puts the size of each part before the part, so
// brim cannot write it in one pass.
static brim_status export_to_stdout(const brim_net_spec *spec, const brim_safetensors *weights,
                                    const brim_onnx_options *o, brim_onnx_info *info) {
  const char *base = getenv("TMPDIR");
  char folder[512], file[544];
  snprintf(folder, sizeof folder, "%s/brim-XXXXXX", base && base[0] ? base : "/tmp");
  if (!mkdtemp(folder))
    return brim_fail(brim_errno_status(errno), "cannot write %s: %s", folder,
                     brim_errno_text(errno));
  snprintf(file, sizeof file, "%s/model.onnx", folder);
  brim_status status = brim_onnx_export(spec, weights, o, file, info);
  int fd = status ? -1 : open(file, O_RDONLY | O_CLOEXEC);
  if (!status && fd < 0)
    status = brim_fail(BRIM_EIO, "cannot read the model: %s", brim_errno_text(errno));
  (void)unlink(file);
  (void)rmdir(folder);
  if (!status) status = copy_to_stdout(fd);
  if (fd >= 0) close(fd);
  return status;
}

//---------------------------------- the command ----------------------------------

// Removes temporary files of killed exports to this file. A failure to remove one does not fail the command.
static void remove_leftovers(const char *output) {
  char **names = NULL;
  size_t count = 0;
  const char *name = brim_fs_basename(output);
  char *folder = brim_fs_dirname(output);
  if (!folder || brim_fs_list(folder, &names, &count)) brim_status_clear();
  for (size_t i = 0; i < count; i++) {
    size_t target = 0;
    int64_t pid = brim_fs_temp_writer(names[i], &target);
    bool ours = pid && target == strlen(name) && strncmp(names[i], name, target) == 0;
    if (!ours || !brim_fs_writer_gone(pid)) continue;
    char *path = brim_fs_join(folder, names[i]);
    if (path && brim_fs_remove(path)) brim_status_clear();
    brim_free(path);
  }
  brim_fs_list_free(names, count);
  brim_free(folder);
}

static brim_status export_to(brim_cli_trained *c, brim_onnx_options *o) {
  if (!brim_cli_trained_takes_samples(c->trained)) {
    char what[128];
    brim_cli_trained_describe(c->trained, what, sizeof what);
    if (!brim_cli_trained_can_be_shown(c->trained)) {
      return brim_fail(BRIM_EINVAL, "%s: %s cannot be exported", c->trained->path, what);
    }
    return brim_fail(BRIM_EINVAL, "%s: %s cannot be exported; use `brim eval` or `brim render`",
                     c->trained->path, what);
  }
  // Open the data only if the checkpoint does not know its inputs.
  const brim_trained_want want = {.any = true};
  if (!c->trained->has_network) BRIM_TRY(brim_cli_trained_data(c, &want));
  brim_net_spec spec;
  brim_onnx_info info;
  BRIM_TRY(brim_trained_spec(c->trained, c->job.config, &spec));
  o->ema = c->ema ? BRIM_TRAINED_EMA : NULL;
  o->logits = c->trained->task == BRIM_TASK_LABELS;
  json_t *metadata = json_object();
  brim_status status =
      metadata ? fill_metadata(c, o, metadata) : brim_fail(BRIM_ENOMEM, "out of memory");
  o->metadata = metadata;
  if (!status) {
    bool piped = strcmp(c->output, "-") == 0;
    if (!piped) remove_leftovers(c->output);
    status = piped ? export_to_stdout(&spec, c->trained->file, o, &info)
                   : brim_onnx_export(&spec, c->trained->file, o, c->output, &info);
    if (!status && !piped) status = c->cli->json ? show_json(c, o, &info) : show(c, o, &info);
  }
  json_decref(metadata);
  return status;
}

static brim_status run(brim_cli *cli) {
  brim_cli_trained c;
  brim_onnx_options o;
  BRIM_TRY(read_options(cli, &o));
  const char *output = brim_option_string(&cli->parse, "output", STANDARD_OUTPUT);
  bool piped = strcmp(output, "-") == 0;
  if (piped && isatty(STDOUT_FILENO)) {
    return brim_cli_usage(
        cli, BRIM_N_("ONNX is binary and the standard output is a terminal; name a file"));
  }
  if (piped) (void)signal(SIGPIPE, SIG_DFL);  // end when the reader closes the pipe
  BRIM_TRY(brim_cli_trained_init(cli, &c));
  brim_status status = brim_cli_trained_output(&c, STANDARD_OUTPUT);
  if (!status) status = export_to(&c, &o);
  brim_cli_trained_deinit(&c);
  return status;
}

const brim_cli_command brim_cli_export = {
    .name = "export",
    .summary = BRIM_N_("write a trained network as an ONNX file"),
    .usage = "CHECKPOINT [--output FILE.onnx] [OPTIONS]",
    .about =
        BRIM_N_("Writes the network of a checkpoint as ONNX with float32 weights, for onnxruntime "
                "and others. The graph takes raw samples and normalizes them: images are uint8 of "
                "shape (N, channels, height, width). With `--normalize no` the caller computes "
                "value * scale + shift per channel. The file's metadata holds scale, shift and the "
                "class names.\nThe outputs are logits for classification, numbers for regression, "
                "and features and projection for simclr. They match brim's own within 1e-4."),
    .examples = BRIM_N_("for onnxruntime\n"
                        "brim export runs/cifar/best.safetensors --output cifar.onnx\n"
                        "channels last, as PIL stores images, in batches of 8\n"
                        "brim export best.safetensors -o model.onnx --layout nhwc --batch 8\n"),
    .options = options,
    .run = run,
};
