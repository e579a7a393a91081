// The program. Everything is in brim_cli_main, so that tests can call it too.
#include "cli/cli.h"

int main(int argc, char **argv) { return brim_cli_main(argc, brim_cli_hide_passwords(argc, argv)); }
