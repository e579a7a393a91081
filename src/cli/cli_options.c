// What dispatch and help both need: the global options, and finding a command in a list.
#include <string.h>

#include "cli/cli.h"

static const char *const colour_choices[] = {"auto", "always", "never", NULL};
static const char *const lang_choices[] = {"en", "ko", NULL};
static const char *const colour_aliases[] = {"colour", NULL};

static const brim_option global_options[] = {
    {.name = "help",
     .short_name = 'h',
     .help = BRIM_N_("show this help"),
     .group = BRIM_N_("Global options")},
    {.name = "version", .help = BRIM_N_("show the version"), .group = BRIM_N_("Global options")},
    {.name = "json",
     .help = BRIM_N_("print JSON lines on stdout and nothing else"),
     .group = BRIM_N_("Global options")},
    {.name = "quiet",
     .short_name = 'q',
     .help = BRIM_N_("print only the final result and errors"),
     .group = BRIM_N_("Global options")},
    {.name = "verbose",
     .short_name = 'v',
     .help = BRIM_N_("log each action to stderr"),
     .group = BRIM_N_("Global options")},
    {.name = "color",
     .kind = BRIM_OPTION_ENUM,
     .metavar = "WHEN",
     .help = BRIM_N_("use colour in the output"),
     .default_text = "auto",
     .choices = colour_choices,
     .aliases = colour_aliases,
     .group = BRIM_N_("Global options")},
    {.name = "log-json",
     .help = BRIM_N_("log to stderr as JSON lines"),
     .group = BRIM_N_("Global options")},
    {.name = "plugin",
     .kind = BRIM_OPTION_STRING,
     .metavar = "SO",
     .help = BRIM_N_("load this plug-in as well (may be repeated)"),
     .group = BRIM_N_("Global options")},
    {.name = "allow-plugins",
     .help = BRIM_N_("load the plug-ins that the config names: they run as part of brim"),
     .group = BRIM_N_("Global options")},
    {.name = "lang",
     .kind = BRIM_OPTION_ENUM,
     .metavar = "LANG",
     .help = BRIM_N_("language of messages (default: from LC_ALL, LC_MESSAGES or LANG)"),
     .choices = lang_choices,
     .group = BRIM_N_("Global options")},
    {0},
};

const brim_option *brim_cli_global_options(void) { return global_options; }

const brim_cli_command *brim_cli_command_find(const brim_cli_command *const *commands,
                                              const char *name) {
  for (const brim_cli_command *const *c = commands; *c; c++) {
    if (strcmp((*c)->name, name) == 0) return *c;
  }
  return NULL;
}
