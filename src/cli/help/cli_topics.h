// Inside the topics of `brim help`: what they are put together from (cli_topics_parts.c).
// cli_topics.c has the list.
#ifndef BRIM_CLI_TOPICS_H_
#define BRIM_CLI_TOPICS_H_

#include "cli/cli.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct brim_topic_pair {
  const char *name, *text;  // text: a catalogue message
} brim_topic_pair;

void brim_topic_pairs(const brim_topic_pair *pairs, size_t count, int column, int width,
                      brim_str *out);
void brim_topic_paragraph(const char *text, int width,
                          brim_str *out);  // text is translated already
// The config keys that begin with `prefix` ("log."), with what they mean; those without effect in
// this version are left out.
void brim_topic_keys(const char *prefix, int width, brim_str *out);
// The components of a category ("model"), likewise.
void brim_topic_components(const char *category, int width, brim_str *out);

// cli_topics_more.c
void brim_topic_data(int width, brim_str *out);
void brim_topic_transforms(int width, brim_str *out);
void brim_topic_models(int width, brim_str *out);
void brim_topic_training(int width, brim_str *out);
void brim_topic_precision(int width, brim_str *out);
void brim_topic_memory(int width, brim_str *out);
void brim_topic_bench(int width, brim_str *out);
void brim_topic_sweep(int width, brim_str *out);
void brim_topic_checkpoints(int width, brim_str *out);
void brim_topic_resume(int width, brim_str *out);
void brim_topic_logs(int width, brim_str *out);
void brim_topic_language(int width, brim_str *out);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_CLI_TOPICS_H_
