// brim with one workload more: the registration is all that it takes.
#include "cli/cli.h"
#include "workload/poly/poly.h"

int main(int argc, char **argv) {
  if (brim_workload_register(&poly_workload)) {
    fprintf(stderr, "%s\n", brim_status_detail());
    return 1;
  }
  return brim_cli_main(argc, (const char *const *)argv);
}
