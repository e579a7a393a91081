// `brim sweep chaos`: runs the chaos test (chaos/chaos.h) on the user's machine and prints its report.
#include <stdio.h>
#include <string.h>

#include "chaos/chaos.h"
#include "cli/sweep/cli_sweep.h"

static void say(void *ctx, const char *text) { brim_cli_note(ctx, "%s\n", text); }

static brim_status report_json(brim_cli *cli, const brim_chaos_report *r) {
  json_t *f = json_object();
  brim_status s = brim_json_put(f, "experiments", json_integer(r->experiments));
  if (!s) s = brim_json_put(f, "rounds", json_integer(r->rounds));
  if (!s) s = brim_json_put(f, "attempts", json_integer(r->attempts));
  if (!s) s = brim_json_put(f, "workers", json_integer(r->workers));
  if (!s) s = brim_json_put(f, r->workers ? "started" : "sweeps_started", json_integer(r->starts));
  for (int i = 0; i < BRIM_CHAOS_ACT_COUNT && !s; i++) {
    s = brim_json_put(f, brim_chaos_act_name((brim_chaos_act)i), json_integer(r->acts[i]));
  }
  if (!s) s = brim_json_put(f, "requests", json_integer(r->requests));
  for (int i = 0; i < BRIM_CHAOS_FAULT_COUNT && !s; i++) {
    s = brim_json_put(f, brim_chaos_fault_name((brim_chaos_fault)i), json_integer(r->faults[i]));
  }
  if (!s) s = brim_json_put(f, "violations", json_integer(r->violations));
  if (!s) s = brim_json_put(f, "first", r->violations ? json_string(r->first) : json_null());
  if (!s) s = brim_json_put(f, "seconds", brim_json_number(r->seconds));
  if (!s) s = brim_json_put(f, "seed", json_integer((json_int_t)r->seed));
  return brim_cli_finish_event(cli, "chaos", f, s);
}

static void put_sweep(brim_str *text, const int64_t *n) {
  brim_str_printf(text, brim_tr("  killed   %lld executors, %lld trainings, %lld sweeps\n"),
                  (long long)n[BRIM_CHAOS_KILL_EXECUTOR], (long long)n[BRIM_CHAOS_KILL_TRAINING],
                  (long long)n[BRIM_CHAOS_KILL_SWEEP]);
  brim_str_printf(text,
                  brim_tr("  stopped  %lld executors, %lld sweeps; interrupted %lld sweeps\n"),
                  (long long)n[BRIM_CHAOS_STOP_EXECUTOR], (long long)n[BRIM_CHAOS_STOP_SWEEP],
                  (long long)n[BRIM_CHAOS_END_SWEEP]);
  brim_str_printf(text, brim_tr("  full disk %lld times\n"), (long long)n[BRIM_CHAOS_FULL_DISK]);
}

static void put_pool(brim_str *text, const brim_chaos_report *r) {
  const int64_t *n = r->acts, *f = r->faults;
  brim_str_printf(
      text, brim_tr("  killed   %lld workers, %lld servers, %lld executors, %lld trainings\n"),
      (long long)n[BRIM_CHAOS_KILL_WORKER], (long long)n[BRIM_CHAOS_KILL_SERVER],
      (long long)n[BRIM_CHAOS_KILL_EXECUTOR], (long long)n[BRIM_CHAOS_KILL_TRAINING]);
  brim_str_printf(text,
                  brim_tr("  stopped  %lld workers, %lld servers, %lld executors; interrupted %lld "
                          "workers, %lld servers\n"),
                  (long long)n[BRIM_CHAOS_STOP_WORKER], (long long)n[BRIM_CHAOS_STOP_SERVER],
                  (long long)n[BRIM_CHAOS_STOP_EXECUTOR], (long long)n[BRIM_CHAOS_END_WORKER],
                  (long long)n[BRIM_CHAOS_END_SERVER]);
  brim_str_printf(text,
                  brim_tr("  of %lld requests: %lld dropped, %lld delayed, %lld sent twice\n"),
                  (long long)r->requests, (long long)f[BRIM_CHAOS_DROP_REQUEST],
                  (long long)f[BRIM_CHAOS_LATE_REQUEST], (long long)f[BRIM_CHAOS_TWICE]);
  brim_str_printf(text, brim_tr("  of their replies: %lld dropped, %lld delayed, %lld cut\n"),
                  (long long)f[BRIM_CHAOS_DROP_REPLY], (long long)f[BRIM_CHAOS_LATE_REPLY],
                  (long long)f[BRIM_CHAOS_CUT_REPLY]);
}

static brim_status report_text(brim_cli *cli, const brim_chaos_report *r) {
  brim_str text;
  char time[32];
  brim_str_init(&text);
  brim_format_duration(r->seconds, time);
  brim_str_printf(&text, brim_tr("chaos: %lld experiments in %lld attempts, %s, seed %llu\n"),
                  (long long)r->experiments, (long long)r->attempts, time,
                  (unsigned long long)r->seed);
  if (r->workers > 0) {
    put_pool(&text, r);
  } else {
    put_sweep(&text, r->acts);
  }
  brim_str_append(&text, r->violations
                             ? brim_tr("  some experiments are not as they should be\n")
                             : brim_tr("  every experiment has one result, equal to that of an "
                                       "undisturbed run; no process is left\n"));
  return brim_cli_finish_text(cli, &text, BRIM_OK);
}

static brim_status run_in(brim_cli *cli, const char *program, const char *folder) {
  brim_chaos_report report;
  const brim_chaos_options how = {
      .program = program,
      .folder = folder,
      .store = brim_option_string(&cli->parse, "store", NULL),
      .seconds = brim_option_float(&cli->parse, "minutes", 2) * 60,
      .executors = brim_option_int(&cli->parse, "executors", 16),
      .workers = brim_option_int(&cli->parse, "workers", 0),
      .experiments = brim_option_int(&cli->parse, "experiments", 0),
      .seed = (uint64_t)brim_option_int(&cli->parse, "seed", brim_clock_now().ns / 1000 % 1000000),
      .stop = cli->stop,
      .say = say,
      .ctx = cli};
  BRIM_TRY(brim_chaos_run(&how, &report));
  BRIM_TRY(cli->json ? report_json(cli, &report) : report_text(cli, &report));
  if (report.violations == 0) return BRIM_OK;
  return brim_fail(BRIM_ESTATE, "%lld violations, the first: %s", (long long)report.violations,
                   report.first);
}

static brim_status check(brim_cli *cli) {
  double minutes = brim_option_float(&cli->parse, "minutes", 2);
  int64_t executors = brim_option_int(&cli->parse, "executors", 16);
  int64_t experiments = brim_option_int(&cli->parse, "experiments", 0);
  if (!(minutes > 0 && minutes <= 10000)) {
    return brim_cli_usage(cli, BRIM_N_("--minutes must be above 0 and at most 10000"));
  }
  if (executors < 1 || executors > 200) {
    return brim_cli_usage(cli, BRIM_N_("--%s must be from %d to %d"), "executors", 1, 200);
  }
  int64_t workers = brim_option_int(&cli->parse, "workers", 0);
  if (workers < 0 || workers > 200) {
    return brim_cli_usage(cli, BRIM_N_("--%s must be from %d to %d"), "workers", 0, 200);
  }
  if (experiments < 0 || experiments > 100000) {
    return brim_cli_usage(cli, BRIM_N_("--%s must be from %d to %d"), "experiments", 0, 100000);
  }
  return BRIM_OK;
}

static brim_status chaos_action(brim_cli *cli) {
  const char *folder = brim_option_string(&cli->parse, "output-dir", NULL);
  char default_folder[64];
  BRIM_TRY(check(cli));
  snprintf(default_folder, sizeof default_folder, "runs/chaos-%lld",
           (long long)brim_clock_wall_s());
  char *program = NULL;
  BRIM_TRY(brim_fs_exe(&program));
  brim_status status = run_in(cli, program, folder ? folder : default_folder);
  brim_free(program);
  return status;
}

const brim_cli_verb brim_cli_sweep_chaos[] = {{"chaos", chaos_action}, {NULL, NULL}};
