// HTML pages: elements, the head, embedded assets and data, and the page that replays recorded episodes. A page is one
// file that needs no network. The pages of bench, of a store and of a profile are in their folders. Callers: those
// folders, and src/cli/trained for the replay.
#ifndef BRIM_UI_PAGES_H_
#define BRIM_UI_PAGES_H_

#include "record/record_curves.h"
#include "record/record_trajectory.h"
#include "ui/term/ui_term.h"

//---------------------------------- elements ----------------------------------

// Text made safe inside HTML elements and quoted attributes.
void brim_ui_escape_html(brim_str *out, const char *text);
void brim_ui_put(brim_str *out, const char *tag, const char *text);  // <tag>text</tag>, escaped
// <tag class="kind">text</tag>, escaped.
void brim_ui_put_class(brim_str *out, const char *tag, const char *kind, const char *text);
void brim_ui_put_attribute(brim_str *out, const char *name, const char *value);
// <section id="..."><h2>...</h2><p class="hint">...</p>; hint NULL = none.
void brim_ui_put_section(brim_str *out, const char *id, const char *title, const char *hint);
// <dt>name</dt><dd>value</dd>; nothing where the value is "".
void brim_ui_put_pair(brim_str *out, const char *name, const char *value);
// The command line that made a page; NULL and "" are left out.
void brim_ui_put_command(brim_str *out, const char *command);

//---------------------------------- parts of a page ----------------------------------

// The page up to </head>; `styles` are names of embedded style sheets, NULL after the last.
void brim_ui_put_head(const char *title, const char *const *styles, brim_str *out);
typedef struct brim_ui_link {
  const char *id, *text;
} brim_ui_link;
// <nav> with links to those sections that `body` has.
void brim_ui_put_nav(const brim_str *body, const brim_ui_link *links, size_t count, brim_str *out);
// Embedded scripts, NULL after the last. The functions that all pages share (web/page.js) are in front of the first.
void brim_ui_put_scripts(const char *const *names, brim_str *out);
// Data for the page's script, in a script element of this id. Takes over `root`, which may be NULL (out of memory).
brim_status brim_ui_put_data(const char *id, json_t *root, brim_str *out);

//---------------------------------- replay ----------------------------------

#define BRIM_UI_MAX_REPLAYS 4   // shown side by side
#define BRIM_UI_MAX_EPISODES 8  // to choose from

typedef struct brim_ui_fact {
  const char *name, *value;
} brim_ui_fact;

typedef struct brim_ui_replay_options {
  const char *title;
  const char *about;    // below the title: what is replayed; NULL = nothing
  const char *command;  // the command line; NULL = left out
  const char *score;    // the meaning of the sum of rewards, translated
  // Names of the episodes, where there are several to choose from; NULL = there is one.
  const char *const *episodes;
  size_t episode_count;
  const brim_ui_fact *facts;
  size_t fact_count;
  const brim_curves *training;    // of the run; NULL or without a curve = left out
  const char *training_step;      // a message: the unit of its x axis; NULL = "step"
  const char *training_baseline;  // a message: the origin of the baseline's values; NULL = left out
} brim_ui_replay_options;

// One self-contained HTML page that replays up to BRIM_UI_MAX_REPLAYS trajectories of the same steps side by side. With
// several episodes the list has the trajectories of the first episode, then those of the second, and so on.
// Trajectories are finished (brim_trajectory_finish) and have one scene. BRIM_EINVAL: none, or too many.
// BRIM_EUNSUPPORTED: there is no picture of the scene's kind (web/replay/scene_KIND.js).
brim_status brim_ui_replay(const brim_ui_replay_options *options, const brim_trajectory *list,
                           size_t count, brim_str *out);

#endif  // BRIM_UI_PAGES_H_
