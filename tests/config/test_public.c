// A program with libbrim can read configs with keys of every workload: brim_config_open is the first call it makes, and
// nothing registers the workloads for it.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "brim/brim.h"

static double number_of(const char *const *overrides, size_t count, const char *key) {
  brim_config *config = NULL;
  double value = -1;
  if (brim_config_open(NULL, overrides, count, &config)) fail_msg("%s", brim_status_detail());
  assert_int_equal(brim_config_get_float(config, key, &value), BRIM_OK);
  brim_config_close(config);
  return value;
}

static void keys_of_workloads(void **state) {
  (void)state;
  const char *const search[] = {"workload=ars", "env=cartpole(reset=0.1)", "ars.noise_std=0.25",
                                "model=mlp_policy(hidden=8)"};
  assert_true(number_of(search, 4, "noise_std") == 0.25);
  const char *const agents[] = {"workload=mappo", "env=uav(size=8, crop=3)", "mappo.gamma=0.5"};
  assert_true(number_of(agents, 3, "mappo.gamma") == 0.5);
  const char *const views[] = {"workload=contrastive", "model=simclr", "contrastive.temperature=2"};
  assert_true(number_of(views, 3, "temperature") == 2);
  brim_config *config;
  const char *const wrong[] = {"ars.noise=1"};
  assert_int_equal(brim_config_open(NULL, wrong, 1, &config), BRIM_EINVAL);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(keys_of_workloads)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
