// brim with one more workload, which takes only the registration. `bare` is the same workload without texts of its own,
// for the texts that brim prints instead.
#include "cli/cli.h"
#include "workload/poly/poly.h"

static brim_workload_table bare;

int main(int argc, char **argv) {
  bare = poly_workload;
  bare.name = "bare";
  bare.text = NULL;
  bare.section = NULL;
  bare.korean = NULL;
  bare.options = NULL;
  bare.korean_count = bare.option_count = 0;
  if (brim_workload_register(&poly_workload) || brim_workload_register(&bare)) {
    fprintf(stderr, "%s\n", brim_status_detail());
    return 1;
  }
  return brim_cli_main(argc, (const char *const *)argv);
}
