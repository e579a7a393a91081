// What the topics of `brim help` are put together from: paragraphs, lists of names, and the tables of
// keys and components.
#include "cli/help/cli_topics.h"

#include <string.h>

#include "config/config.h"

void brim_topic_pairs(const brim_topic_pair *pairs, size_t count, int column, int width,
                      brim_str *out) {
  brim_term term = {.width = width};
  for (size_t i = 0; i < count; i++) {
    int used = brim_utf8_width(pairs[i].name) + 2;
    brim_str_printf(out, "  %s", pairs[i].name);
    if (used + 1 > column) {
      brim_str_append_char(out, '\n');
      used = 0;
    }
    brim_str_repeat(out, ' ', (size_t)(column - used));
    brim_ui_wrap(out, &term, brim_tr(pairs[i].text), column);
    brim_str_append_char(out, '\n');
  }
}

void brim_topic_paragraph(const char *text, int width, brim_str *out) {
  brim_term term = {.width = width};
  brim_ui_wrap(out, &term, text, 0);
  brim_str_append(out, "\n\n");
}

void brim_topic_keys(const char *prefix, int width, brim_str *out) {
  for (size_t i = 0; i < brim_config_key_count(); i++) {
    const brim_config_key *key = brim_config_key_at(i);
    if (!brim_str_starts(key->name, prefix) || !brim_config_key_is_used(key)) continue;
    brim_topic_pairs(&(brim_topic_pair){key->name, key->meaning}, 1, 30, width, out);
  }
}

void brim_topic_components(const char *category, int width, brim_str *out) {
  for (size_t i = 0; i < brim_config_component_count(); i++) {
    brim_config_named row = brim_config_component_named(i);
    if (strcmp(row.category, category) != 0) continue;
    brim_topic_pairs(&(brim_topic_pair){row.name, row.meaning}, 1, 24, width, out);
  }
}
