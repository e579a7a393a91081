// `brim sweep --engine slurm` and `brim sweep element` without Slurm: mistakes on the command line, and elements that
// have nothing to do.
#include "cli_test.h"

static const char grid[] =
    "name: small\n"
    "device: cpu\n"
    "dataset: synthetic(shape=(6,), classes=3, samples=96)\n"
    "model: mlp(depth=1, hidden=8)\n"
    "lr: [0.1, 0.01]\n";

static void fresh(void) {
  shell_result r = shell("rm -rf runs bin && mkdir bin");
  shell_free(&r);
  write_file("grid.yaml", grid);
}

static void test_mistakes(void **state) {
  (void)state;
  fresh();
  says(2, "brim sweep grid.yaml --partition gpu");
  says(2, "brim sweep grid.yaml --slurm=--qos=long");
  says(2, "brim sweep grid.yaml --engine slurm --slurm qos=long");
  says(2, "brim sweep grid.yaml --engine slurm --slurm=--array=1-4");
  says(2, "brim sweep grid.yaml --engine slurm --slurm=-Jname");
  says(2, "brim sweep grid.yaml --engine slurm --slurm-poll 0");
  says(2, "brim sweep grid.yaml --engine slurm --cpus 0");
  expect(2, "--engine", "brim sweep grid.yaml --engine pbs");
  assert_false(has_file("runs/small"));
}

static void test_without_slurm(void **state) {
  (void)state;
  fresh();
  says(3, "PATH=$PWD/bin; brim sweep grid.yaml --engine slurm");
  write_file("bin/scontrol",
             "#!/bin/sh\necho 'slurm_load_ctl_conf error: no controller' >&2\nexit 1\n");
  expect(3, "no controller",
         "chmod +x bin/scontrol; PATH=$PWD/bin:$PATH; brim sweep grid.yaml --engine slurm");
}

static const char array[] =
    "{\"name\":\"brim-a\",\"job\":\"7\",\"submitted\":1,\"stop\":%s,\"gpus\":1,\"nodes\":1,"
    "\"exps\":[[\"00000000000000000000000000000001\",0,%s]]}";

static void element(int code, const char *part, const char *env) {
  char line[1024];
  snprintf(line, sizeof line,
           "%s brim sweep element place=runs/none folder=runs/a array=brim-a worker=w lease_ms=300",
           env);
  expect(code, part, line);
}

// There is no store, and the check comes before it is opened.
static void test_elements_with_nothing_to_do(void **state) {
  (void)state;
  char text[512];
  fresh();
  says(2, "brim sweep element place=a");
  says(2, "brim sweep element else=1");
  element(2, "Slurm starts this command", "");
  const char *mine = "SLURM_ARRAY_JOB_ID=7 SLURM_ARRAY_TASK_ID=0";
  element(0, NULL, mine);  // the array is gone: its submission was considered lost
  shell_result r = shell("mkdir -p runs/a/slurm");
  shell_free(&r);
  snprintf(text, sizeof text, array, "false", "false");
  write_file("runs/a/slurm/brim-a.json", text);
  element(0, NULL, "SLURM_ARRAY_JOB_ID=8 SLURM_ARRAY_TASK_ID=0");  // a duplicate array
  element(2, "has no element 1", "SLURM_ARRAY_JOB_ID=7 SLURM_ARRAY_TASK_ID=1");
  element(2, "has no element x", "SLURM_ARRAY_JOB_ID=7 SLURM_ARRAY_TASK_ID=x");
  element(1, "no sweep answers", mine);
  snprintf(text, sizeof text, array, "true", "false");
  write_file("runs/a/slurm/brim-a.json", text);
  element(0, NULL, mine);  // the sweep is stopping
  snprintf(text, sizeof text, array, "false", "true");
  write_file("runs/a/slurm/brim-a.json", text);
  element(0, NULL, mine);  // the array ended before
  write_file("runs/a/slurm/brim-a.json", "{");
  element(2, "brim-a.json", mine);
}

int main(void) {
  test_filter();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_mistakes),
      cmocka_unit_test(test_without_slurm),
      cmocka_unit_test(test_elements_with_nothing_to_do),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
