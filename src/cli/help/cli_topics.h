// Inside the topics of `brim help`: what they are put together from (cli_help.c).
// cli_help.c has the list.
#ifndef BRIM_CLI_TOPICS_H_
#define BRIM_CLI_TOPICS_H_

#include "cli/cli.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct brim_topic_pair {
  const char *name, *text;  // text: a catalogue message
} brim_topic_pair;

#ifdef __cplusplus
}
#endif
#endif  // BRIM_CLI_TOPICS_H_
