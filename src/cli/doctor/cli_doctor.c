// `brim doctor`: checks this machine, and the needs of a config. Examines the machine before it opens a GPU, so that
// the checks of src/doctor do not see brim itself use the GPU.
#include <stdio.h>
#include <string.h>

#include "cli/job/cli_job.h"
#include "doctor/doctor.h"
#include "monitor/monitor.h"
#include "ui/top/ui_top.h"

typedef struct doctor {
  brim_cli *cli;
  brim_cli_job job;
  brim_doctor_machine machine;
  brim_doctor_report report;
  bool quick;
  const char *data;  // a folder given in place of a config; NULL = none
  brim_doctor_survey *survey;
  char bad_config[1024];  // why the config cannot be used; "" = it can, or there is none
  char *folder;           // owned: the output folder of training; NULL without a config
  char *records;          // owned: path of results.jsonl
  brim_str words;         // the job as words of a command line (job_words)
} doctor;

static bool has_config(const doctor *d) { return d->job.input.word != NULL; }

//---------------------------------- opening ----------------------------------

// Takes `doctor FOLDER` as `doctor --data FOLDER`.
static brim_status take_data(doctor *d) {
  const brim_option_parse *parse = &d->cli->parse;
  if (parse->positional_count != 1 || brim_option_string(parse, "data", NULL)) return BRIM_OK;
  const char *word = parse->positional[0];
  if (!brim_fs_is_dir(word)) return BRIM_OK;
  d->data = word;
  d->cli->parse.positional_count = 0;
  return BRIM_OK;
}

// A bad config is a finding, not a failure: brim still examines the machine, with a default config.
static brim_status load_config(doctor *d) {
  BRIM_TRY(take_data(d));
  brim_status status = brim_cli_job_config(d->cli, &d->job);
  if (!status) return BRIM_OK;
  if (status == BRIM_ENOMEM || status == BRIM_EINTERRUPTED) return status;
  snprintf(d->bad_config, sizeof d->bad_config, "%s", brim_status_detail());
  brim_utf8_trim(d->bad_config);
  brim_status_clear();
  d->cli->usage_error = false;
  brim_config_close(d->job.config);
  d->job.config = NULL;
  const brim_config_options defaults = {.mode = BRIM_CONFIG_RUN};
  if (!d->job.registry) BRIM_TRY(brim_cli_registry(d->cli, &d->job.registry));
  return brim_config_load(&defaults, &d->job.config);
}

// Seconds to wait for the driver. Without persistence mode the driver first starts each GPU, which takes a few seconds.
#define PATIENCE_S 10.0

static brim_status ask_driver(doctor *d) {
  BRIM_TRY(brim_doctor_survey_start(NULL, NULL, &d->survey));
  d->machine.gpus = brim_doctor_survey_wait(d->survey, PATIENCE_S);
  d->machine.waited_s = PATIENCE_S;
  d->job.monitor = brim_doctor_survey_take(d->survey);
  return BRIM_OK;
}

static brim_status describe_machine(doctor *d) {
  const char *data = brim_option_string(&d->cli->parse, "data", d->data);
  if (!data && has_config(d)) data = brim_config_string(d->job.config, "data.path");
  d->machine.registry = d->job.registry;
  d->machine.data = data && *data ? data : NULL;
  d->machine.quick = d->quick;
  d->machine.stop = d->cli->stop;
  if (!has_config(d) || d->bad_config[0]) return BRIM_OK;
  BRIM_TRY(brim_cli_job_run_dir(&d->job, &d->folder));
  d->machine.output = d->folder;
  return BRIM_OK;
}

//---------------------------------- device ----------------------------------

static brim_status open_device(doctor *d) {
  brim_cli_job *job = &d->job;
  const char *spec = NULL;
  BRIM_TRY(brim_work_device_at(job->config, 0, &spec));
  BRIM_TRY(brim_work_device_options(job->config, &job->options));
  bool gpu = strcmp(spec, "auto") == 0 || brim_str_starts(spec, "cuda");
  if (!d->machine.gpus && gpu && brim_registry_backend(job->registry, "cuda")) {
    return brim_fail(BRIM_EDEVICE,
                     "the NVIDIA driver has not answered; to check the rest: "
                     "--backend cpu");
  }
  return brim_cli_device_open(job, spec, &job->options, &job->memory, &job->device);
}

static brim_status measure(doctor *d) {
  brim_cli_job *job = &d->job;
  brim_machine_ceilings ceilings;
  brim_gpu_setup setup;
  const brim_gpu_setup *known = NULL;
  const brim_machine_options how = brim_cli_machine_options(d->cli, job);
  BRIM_TRY(brim_machine_ceilings_get(job->device, &how, &ceilings));
  if (job->monitor && job->device->info.kind == BRIM_DEVICE_GPU) {
    if (!brim_gpu_read_setup(job->monitor, job->device->info.id, &setup)) known = &setup;
    brim_status_clear();
  }
  brim_doctor_ceilings(&ceilings, &job->device->info, known, NULL, &d->report);
  return BRIM_OK;
}

// Puts a failure of the device into the report. Only an interrupt ends the command.
static brim_status examine_device(doctor *d) {
  brim_status status = d->quick && !has_config(d) ? BRIM_OK : open_device(d);
  if (!status && !d->quick) status = measure(d);
  if (status == BRIM_EINTERRUPTED) return status;
  if (status || d->quick) {
    char reason[256];
    snprintf(reason, sizeof reason, "%s",
             status ? brim_status_detail() : brim_tr("not measured (--quick)"));
    brim_utf8_trim(reason);
    brim_status_clear();
    brim_doctor_ceilings(NULL, NULL, NULL, reason, &d->report);
  }
  return BRIM_OK;
}

//---------------------------------- config ----------------------------------

static brim_status plan_job(doctor *d, brim_result *plan) {
  brim_cli_job *job = &d->job;
  const brim_work_context context = {.registry = job->registry, .device = job->device};
  BRIM_TRY(brim_work_open(&context, job->config, &job->work));
  const brim_setting setting = brim_work_setting(job->work);
  const brim_trial_options how = {
      .memory_limit = (uint64_t)brim_config_int(job->config, "gpu.memory_limit"),
      .memory = &job->memory,
      .stop = d->cli->stop};
  return brim_trial_plan(job->work, job->config, job->device, &setting, &how, plan);
}

static brim_status examine_config(doctor *d) {
  if (d->bad_config[0]) {
    brim_doctor_config_failed(d->bad_config, d->words.data, &d->report);
    return BRIM_OK;
  }
  if (!has_config(d)) return BRIM_OK;
  brim_result plan;
  brim_result_init(&plan);
  brim_status status = BRIM_OK;
  if (!d->job.device) {
    brim_doctor_config_failed(brim_tr("its device cannot be opened; see the ceilings above"),
                              d->words.data, &d->report);
  } else if ((status = plan_job(d, &plan))) {
    if (status != BRIM_EINTERRUPTED && status != BRIM_ENOMEM) {
      brim_doctor_config_failed(brim_status_detail(), d->words.data, &d->report);
      brim_status_clear();
      status = BRIM_OK;
    }
  } else {
    d->records = brim_fs_join(brim_cli_job_bench_dir(&d->job), "results.jsonl");
    char what[256];
    const brim_doctor_job job = {.description = brim_ui_description(plan.description, what),
                                 .machine = &d->machine,
                                 .work = d->job.work,
                                 .config = d->job.config,
                                 .device = d->job.device,
                                 .plan = &plan,
                                 .words = d->words.data,
                                 .records = d->records};
    brim_doctor_config(&job, &d->report);
  }
  brim_result_deinit(&plan);
  return status;
}

//---------------------------------- the command ----------------------------------

static brim_status show(doctor *d) {
  if (d->report.status) return d->report.status;
  if (d->cli->json) {
    json_t *value = NULL;
    BRIM_TRY(brim_doctor_report_json(&d->report, &value));
    return brim_cli_json(d->cli, value);
  }
  brim_str text;
  brim_str_init(&text);
  brim_ui_doctor(&d->cli->out, &d->report,
                 d->cli->quiet                                    ? BRIM_UI_DOCTOR_TROUBLE
                 : brim_option_flag(&d->cli->parse, "why", false) ? BRIM_UI_DOCTOR_WHY
                                                                  : BRIM_UI_DOCTOR_ALL,
                 &text);
  return brim_cli_finish_text(d->cli, &text, BRIM_OK);
}

static void add_word(const char *word, brim_str *out) {
  if (out->len) brim_str_append_char(out, ' ');
  brim_cli_word_text(word, out);
}

// Writes the words after "brim train" or "brim bench" that name the same job: the config, all overrides and plug-ins,
// with the quotes that a shell needs.
static brim_status job_words(const brim_cli *cli, const brim_cli_input *input, brim_str *out) {
  if (input->word) add_word(input->word, out);
  for (size_t i = 0; i < input->count; i++) add_word(input->overrides[i], out);
  for (size_t i = 0; i < cli->parse.count; i++) {
    const brim_option_value *item = &cli->parse.items[i];
    if (strcmp(item->option->name, "plugin") == 0) {
      add_word("--plugin", out);
      add_word(item->values[0], out);
    } else if (strcmp(item->option->name, "allow-plugins") == 0 && item->flag) {
      add_word("--allow-plugins", out);
    }
  }
  return brim_str_status(out);
}

static brim_status examine(doctor *d) {
  BRIM_TRY(load_config(d));
  BRIM_TRY(job_words(d->cli, &d->job.input, &d->words));
  d->machine = brim_doctor_this_machine();
  BRIM_TRY(ask_driver(d));
  BRIM_TRY(describe_machine(d));
  BRIM_TRY(brim_doctor_examine(&d->machine, &d->report));
  BRIM_TRY(examine_device(d));
  BRIM_TRY(examine_config(d));
  return show(d);
}

static brim_status run(brim_cli *cli) {
  doctor d = {.cli = cli, .quick = brim_option_flag(&cli->parse, "quick", false)};
  brim_doctor_report_init(&d.report);
  brim_str_init(&d.words);
  brim_status status = examine(&d);
  // A bad check is a result, not an error of this command: it changes only the exit code.
  if (!status && d.report.counts[BRIM_DOCTOR_BAD] > 0) {
    cli->error_reported = true;
    status = BRIM_ESTATE;
  }
  brim_doctor_report_deinit(&d.report);
  brim_doctor_survey_free(d.survey);
  brim_free(d.folder);
  brim_free(d.records);
  brim_str_deinit(&d.words);
  brim_cli_job_close(&d.job);
  return status;
}

static const char *const data_aliases[] = {"data-path", NULL};

static const brim_option options[] = {
    BRIM_CLI_OPTION_CONFIG,
    {.name = "data",
     .kind = BRIM_OPTION_STRING,
     .metavar = "PATH",
     .help = BRIM_N_("data file or folder"),
     .key = "data.path",
     .aliases = data_aliases},
    {.name = "quick", .help = BRIM_N_("measure nothing: neither the device nor the reading speed")},
    {.name = "why", .help = BRIM_N_("also explain the checks that are good")},
    BRIM_CLI_OPTION_BACKEND,
    {0}};

const brim_cli_command brim_cli_doctor = {
    .name = "doctor",
    .summary = BRIM_N_("check this machine, and what a config asks of it"),
    .usage = "[CONFIG] [--data PATH] [--quick] [OPTIONS] [key.path=value ...]",
    .about = BRIM_N_(
        "Checks driver and libraries, each GPU, the host, environment variables and the data path. "
        "Measures what the device can do at best. Each line is good, warn or bad, with the reason "
        "and "
        "the command that fixes it. What brim cannot see is unknown, with the reason. brim changes "
        "nothing.\n"
        "With a config brim also plans the job. It shows whether the job fits and which knobs are "
        "far "
        "from their best. It also shows what a sweep would try, and how large checkpoints and logs "
        "get.\n"
        "The exit code is 1 when a check is bad, and 0 otherwise."),
    .examples = BRIM_N_(
        "check the machine\nbrim doctor\nwithout measuring anything\nbrim doctor --quick\n"
        "check a config and its data\nbrim doctor configs/mnist-mlp.yaml --data data/mnist\n"
        "list what is bad\nbrim doctor --json | jq '.checks[] | select(.state == \"bad\")'\n"),
    .options = options,
    .run = run,
    .interrupt = BRIM_CLI_ENDS,  // files are written atomically, so stopping is always safe
};
