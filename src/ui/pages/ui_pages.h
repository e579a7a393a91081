// HTML pages: elements, the head, embedded assets and data, and the page that replays recorded episodes. A page is one
// file that needs no network. Callers: ui/bench, ui/profile and ui/sweep, which make their own pages, and
// src/cli/trained for the replay.
#ifndef BRIM_UI_PAGES_H_
#define BRIM_UI_PAGES_H_

#include "record/record_curves.h"
#include "record/record_trajectory.h"
#include "ui/term/ui_term.h"

//---------------------------------- elements ----------------------------------

// Appends a text, escaped for HTML elements and quoted attributes.
void brim_ui_escape_html(brim_str *out, const char *text);
void brim_ui_put(brim_str *out, const char *tag, const char *text);  // <tag>text</tag>, escaped
// <tag class="kind">text</tag>, escaped.
void brim_ui_put_class(brim_str *out, const char *tag, const char *kind, const char *text);
void brim_ui_put_attribute(brim_str *out, const char *name, const char *value);
// <section id="..."><h2>...</h2><p class="hint">...</p>; hint NULL = none.
void brim_ui_put_section(brim_str *out, const char *id, const char *title, const char *hint);
// <dt>name</dt><dd>value</dd>; nothing if the value is "".
void brim_ui_put_pair(brim_str *out, const char *name, const char *value);
// Puts the command line that made a page; nothing for NULL and "".
void brim_ui_put_command(brim_str *out, const char *command);

//---------------------------------- parts of a page ----------------------------------

// The page up to </head>. `styles` names embedded style sheets; the list ends with NULL.
void brim_ui_put_head(const char *title, const char *const *styles, brim_str *out);
typedef struct brim_ui_link {
  const char *id, *text;
} brim_ui_link;
// <nav> with links to the sections that `body` has; other links are left out.
void brim_ui_put_nav(const brim_str *body, const brim_ui_link *links, size_t count, brim_str *out);
// Embeds scripts; the list ends with NULL. web/page.js, the functions that all pages share, comes before the first
// script.
void brim_ui_put_scripts(const char *const *names, brim_str *out);
// Embeds JSON for the page's script, in a script element of this id. Takes over `root`; NULL means out of memory.
brim_status brim_ui_put_data(const char *id, json_t *root, brim_str *out);

//---------------------------------- replay ----------------------------------

#define BRIM_UI_MAX_REPLAYS 4   // trajectories that the page shows side by side
#define BRIM_UI_MAX_EPISODES 8  // episodes that the reader can choose from

typedef struct brim_ui_fact {
  const char *name, *value;
} brim_ui_fact;

typedef struct brim_ui_replay_options {
  const char *title;
  const char *about;    // a line below the title that names what is replayed; NULL = none
  const char *command;  // the command line; NULL = left out
  const char *score;    // the meaning of the sum of rewards, translated
  // Names of the episodes if there are several to choose from; NULL = one episode.
  const char *const *episodes;
  size_t episode_count;
  const brim_ui_fact *facts;
  size_t fact_count;
  const brim_curves *training;    // curves of the training run; NULL or empty = left out
  const char *training_step;      // a message: the unit of the x axis of `training`; NULL = "step"
  const char *training_baseline;  // a message: the origin of the baseline's values; NULL = left out
} brim_ui_replay_options;

// One self-contained HTML page that replays up to BRIM_UI_MAX_REPLAYS trajectories of the same steps side by side. With
// several episodes the list has the trajectories of the first episode, then those of the second, and so on.
// All trajectories must be finished (brim_trajectory_finish) and share one scene. BRIM_EINVAL: no trajectory, or too
// many. BRIM_EUNSUPPORTED: brim cannot draw this kind of scene (no web/replay/scene_KIND.js).
brim_status brim_ui_replay(const brim_ui_replay_options *options, const brim_trajectory *list,
                           size_t count, brim_str *out);

#endif  // BRIM_UI_PAGES_H_
