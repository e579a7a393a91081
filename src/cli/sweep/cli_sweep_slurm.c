// `brim sweep --engine slurm`: its options for the lab.
#include <string.h>

#include "cli/sweep/cli_sweep.h"
#include "lab/lab_sweep.h"

enum { MOST_EXTRA = 64 };

struct brim_cli_sweep_slurm {
  brim_lab_slurm_options options;
  const char *extra[MOST_EXTRA + 1];
};

static bool is_engine(const brim_option_parse *parse, const char *name) {
  return strcmp(brim_option_string(parse, "engine", "local"), name) == 0;
}

// What only Slurm takes, without Slurm, is a mistake.
static brim_status check_local(brim_cli *cli) {
  static const char *const only[] = {"partition", "account", "time",  "cpus",
                                     "memory",    "gres",    "slurm", "slurm-poll"};
  for (size_t i = 0; i < sizeof only / sizeof only[0]; i++) {
    if (brim_option_find(&cli->parse, only[i])) {
      return brim_cli_usage(cli, BRIM_N_("--%s needs --engine slurm"), only[i]);
    }
  }
  return BRIM_OK;
}

static brim_status check_slurm(brim_cli *cli) {
  double poll = brim_option_float(&cli->parse, "slurm-poll", 10.0);
  int64_t cpus = brim_option_int(&cli->parse, "cpus", 1);
  if (!(poll >= 0.1 && poll <= 3600)) {
    return brim_cli_usage(cli, BRIM_N_("--slurm-poll must be from 0.1 to 3600"));
  }
  if (cpus < 1 || cpus > 4096) {
    return brim_cli_usage(cli, BRIM_N_("--%s must be from %d to %d"), "cpus", 1, 4096);
  }
  return BRIM_OK;
}

// What names an array, makes it one or tells its elements to save is brim's.
static bool is_own(const char *word) {
  static const char *const own[] = {"--array",  "--job-name", "--wait",      "--wrap",
                                    "--signal", "--parsable", "--test-only", "--no-requeue",
                                    "--output", "--open-mode"};
  if (word[0] == '-' && word[1] && strchr("aJWo", word[1])) return true;
  for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
    size_t n = strlen(own[i]);
    if (strncmp(word, own[i], n) == 0 && (!word[n] || word[n] == '=')) return true;
  }
  return false;
}

static brim_status take_extra(brim_cli *cli, const char **out) {
  const brim_option_parse *parse = &cli->parse;
  size_t n = 0;
  for (size_t i = 0; i < parse->count; i++) {
    if (strcmp(parse->items[i].option->name, "slurm") != 0) continue;
    const char *word = parse->items[i].values[0];
    if (word[0] != '-' || !word[1]) {
      return brim_cli_usage(cli, BRIM_N_("--slurm takes one option of sbatch: --slurm=--qos=long"));
    }
    if (is_own(word)) return brim_cli_usage(cli, BRIM_N_("brim sets sbatch's %.40s itself"), word);
    if (n == MOST_EXTRA) return brim_fail(BRIM_EINVAL, "--slurm can be given %d times", MOST_EXTRA);
    out[n++] = word;
  }
  out[n] = NULL;
  return BRIM_OK;
}

brim_status brim_cli_sweep_slurm_open(const brim_cli_sweep_job *j, brim_cli_sweep_slurm **out) {
  const brim_option_parse *parse = &j->cli->parse;
  *out = NULL;
  if (!is_engine(parse, "slurm")) return check_local(j->cli);
  BRIM_TRY(check_slurm(j->cli));
  brim_cli_sweep_slurm *s = brim_calloc(1, sizeof *s);
  if (!s) return brim_fail(BRIM_ENOMEM, "out of memory for the options of Slurm");
  s->options = (brim_lab_slurm_options){
      .ask = {.partition = brim_option_string(parse, "partition", NULL),
              .account = brim_option_string(parse, "account", NULL),
              .time = brim_option_string(parse, "time", NULL),
              .memory = brim_option_string(parse, "memory", NULL),
              .gres = brim_option_string(parse, "gres", NULL),
              .cpus = brim_option_int(parse, "cpus", 0),
              .at_once = brim_option_find(parse, "jobs") ? brim_option_int(parse, "jobs", 1) : 0,
              .extra = s->extra},
      .nodes = j->job.config ? brim_config_int(j->job.config, "nodes") : 1,
      .poll_ms = (int64_t)(brim_option_float(parse, "slurm-poll", 10.0) * 1e3)};
  brim_status status = take_extra(j->cli, s->extra);
  if (status) {
    brim_free(s);
    return status;
  }
  *out = s;
  return BRIM_OK;
}

const brim_lab_slurm_options *brim_cli_sweep_slurm_options(const brim_cli_sweep_slurm *s) {
  return s ? &s->options : NULL;
}

void brim_cli_sweep_slurm_close(brim_cli_sweep_slurm *s) { brim_free(s); }
