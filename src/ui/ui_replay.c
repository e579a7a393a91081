// The replay page: one HTML file that shows a robot's episode and needs no network and no other
// file. What happened stands in it as text and as curves without a script; the scripts (web/replay)
// play it. This file is the frame, the figures and the data; ui_replay_curves.c the curves.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ui/ui_replay_int.h"

//---------------------------------- what happened ----------------------------------

static double distance_of(const brim_trajectory *t) {
  return (double)t->qpos[(t->frames - 1) * BRIM_TRAJECTORY_QPOS] - (double)t->qpos[0];
}

void brim_ui_replay_outcome(const brim_trajectory *t, bool walk, char out[96]) {
  double s = brim_trajectory_seconds(t);
  if (t->outcome == BRIM_TRAJECTORY_FELL) {
    snprintf(out, 96, brim_tr("fell at %.2f s"), s);
  } else if (t->outcome == BRIM_TRAJECTORY_DIVERGED) {
    snprintf(out, 96, brim_tr("the simulation diverged at %.2f s"), s);
  } else if (walk) {
    snprintf(out, 96, brim_tr("stayed up for %.2f s, %.2f m ahead"), s, distance_of(t));
  } else {
    snprintf(out, 96, brim_tr("stood for %.2f s"), s);
  }
}

static void put_stat(const char *name, const char *value, brim_str *out) {
  brim_str_append(out, "<div>");
  brim_ui_put_pair(out, name, value);
  brim_str_append(out, "</div>");
}

static void put_stats(const brim_ui_replay_options *o, const brim_trajectory *t, brim_str *out) {
  double low = INFINITY, tilt = 0, hardest = 0;
  int pushes = 0;
  char text[96];
  for (int64_t i = 0; i < t->frames; i++) {
    low = fmin(low, brim_trajectory_height(t, i));
    tilt = fmax(tilt, brim_trajectory_tilt(t, i));
    double push = brim_trajectory_push(t, i);
    pushes += push > 0;
    hardest = fmax(hardest, push);
  }
  brim_str_append(out, "<dl class=\"stats\">");
  snprintf(text, sizeof text, "%.1f", brim_trajectory_return(t));
  put_stat(brim_tr("return"), t->frames > 1 ? text : BRIM_UI_DASH, out);
  snprintf(text, sizeof text, "%lld", (long long)t->frames - 1);
  put_stat(brim_tr("steps"), text, out);
  if (o->walk) {
    snprintf(text, sizeof text, "%.2f m", distance_of(t));
    put_stat(brim_tr("ahead"), text, out);
  }
  snprintf(text, sizeof text, "%.2f m", low);
  put_stat(brim_tr("lowest"), text, out);
  snprintf(text, sizeof text, "%.0f\xc2\xb0", tilt);
  put_stat(brim_tr("largest tilt"), text, out);
  if (pushes > 0) {
    snprintf(text, sizeof text, brim_tr("%d, up to %.2f m/s"), pushes, hardest);
    put_stat(brim_tr("pushes"), text, out);
  } else {
    put_stat(brim_tr("pushes"), "0", out);
  }
  brim_str_append(out, "</dl>");
}

static void put_view(const brim_ui_replay_options *o, const brim_trajectory *t, size_t which,
                     brim_str *out) {
  char text[96], label[192];
  brim_ui_replay_outcome(t, o->walk, text);
  brim_str_printf(out, "<figure class=\"view c%zu %s\"><div class=\"frame\"><canvas tabindex=\"0\"",
                  which, brim_trajectory_outcome_name(t->outcome));
  snprintf(label, sizeof label, "%s: %s", t->label, text);
  brim_str_append(out, " role=\"img\"");
  brim_ui_put_attribute(out, "aria-label", label);
  brim_str_append(out, "></canvas><span class=\"badge\" hidden=\"hidden\">");
  brim_ui_escape_html(out, text);
  brim_str_append(out, "</span></div><figcaption>");
  brim_ui_put(out, "h2", t->label);
  brim_str_append(out, "<p class=\"outcome\">");
  brim_ui_escape_html(out, text);
  brim_str_append(out, "</p>");
  put_stats(o, t, out);
  brim_str_append(out, "</figcaption></figure>\n");
}

//---------------------------------- controls ----------------------------------

static void put_button(const char *id, const char *pressed, const char *text, brim_str *out) {
  brim_str_printf(out, "<button type=\"button\" id=\"%s\"", id);
  if (pressed) brim_str_printf(out, " aria-pressed=\"%s\"", pressed);
  brim_str_append_char(out, '>');
  brim_ui_escape_html(out, text);
  brim_str_append(out, "</button>\n");
}

static void put_speeds(brim_str *out) {
  static const char *const speeds[] = {"0.1", "0.25", "0.5", "1", "2", "4"};
  brim_str_append(out, "<select id=\"speed\"");
  brim_ui_put_attribute(out, "aria-label", brim_tr("speed"));
  brim_str_append_char(out, '>');
  for (size_t i = 0; i < sizeof speeds / sizeof *speeds; i++) {
    brim_str_printf(out, "<option value=\"%s\"%s>%s\xc3\x97</option>", speeds[i],
                    strcmp(speeds[i], "1") == 0 ? " selected=\"selected\"" : "", speeds[i]);
  }
  brim_str_append(out, "</select>\n");
}

static void put_choice(const brim_trajectory *list, size_t count, brim_str *out) {
  if (count < 2) return;
  brim_str_append(out,
                  "<span class=\"seg\" id=\"show\" role=\"group\"><button type=\"button\" "
                  "data-v=\"both\" aria-pressed=\"true\">");
  brim_ui_escape_html(out, brim_tr("both"));
  brim_str_append(out, "</button>");
  for (size_t i = 0; i < count; i++) {
    brim_str_printf(out, "<button type=\"button\" data-v=\"%zu\" aria-pressed=\"false\">", i);
    brim_ui_escape_html(out, list[i].label);
    brim_str_append(out, "</button>");
  }
  brim_str_append(out, "</span>\n");
}

static void put_controls(const brim_trajectory *list, size_t count, brim_str *out) {
  brim_str_append(out, "<div class=\"controls\">\n");
  put_button("play", "false", brim_tr("Play"), out);
  brim_str_append(out,
                  "<span class=\"track\"><input type=\"range\" id=\"seek\" min=\"0\" value=\"0\"");
  brim_ui_put_attribute(out, "aria-label", brim_tr("time"));
  brim_str_append(out,
                  " /></span>\n<span id=\"clock\"></span><span id=\"step\"></span>\n"
                  "</div>\n<div class=\"controls\">\n");
  put_speeds(out);
  put_choice(list, count, out);
  put_button("follow", "true", brim_tr("Follow"), out);
  put_button("reset", NULL, brim_tr("Reset the camera"), out);
  brim_str_append(out, "</div>\n<p class=\"hint keys\">");
  brim_ui_escape_html(
      out,
      brim_tr(
          "Drag to turn; pinch or press + and - to zoom. Space plays, comma and full stop move one "
          "step, [ and ] change the speed, f follows, 0 resets. The orange legs are in front."));
  brim_str_append(out, "</p>\n<p class=\"still\">");
  brim_ui_escape_html(out, brim_tr("Playing needs JavaScript; the curves do not."));
  brim_str_append(out, "</p>\n");
}

//---------------------------------- data ----------------------------------

static brim_status fill_data(json_t *root, const brim_trajectory *list, size_t count) {
  json_t *text = json_object(), *replays = NULL;
  BRIM_TRY(brim_json_put(root, "text", text));
  BRIM_TRY(brim_json_put(text, "play", json_string(brim_tr("Play"))));
  BRIM_TRY(brim_json_put(text, "pause", json_string(brim_tr("Pause"))));
  BRIM_TRY(brim_json_put(text, "step", json_string(brim_tr("step"))));
  BRIM_TRY(brim_json_put(root, "replays", replays = json_array()));
  for (size_t i = 0; i < count; i++) {
    json_t *one = NULL;
    BRIM_TRY(brim_trajectory_to_json(&list[i], &one));
    BRIM_TRY(brim_json_push(replays, one));
  }
  return BRIM_OK;
}

// JSON in a script element: a '<' could end it.
static brim_status put_data(const brim_trajectory *list, size_t count, brim_str *out) {
  brim_json_setup();
  json_t *root = json_object();
  char *text = NULL;
  brim_status status = root ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory for a page");
  if (!status) status = fill_data(root, list, count);
  if (!status) status = brim_json_dump(root, 0, &text);
  if (!status) {
    brim_str_append(out, "<script type=\"application/json\" id=\"data\">");
    for (const char *p = text; *p; p += strcspn(p, "<")) {
      if (*p == '<') brim_str_append(out, "\\u003c"), p++;
      brim_str_append_n(out, p, strcspn(p, "<"));
    }
    brim_str_append(out, "</script>\n");
  }
  brim_free(text);
  json_decref(root);
  return status;
}

//---------------------------------- page ----------------------------------

static void put_facts(const brim_ui_replay_options *o, brim_str *out) {
  if (o->fact_count == 0 && !o->command) return;
  brim_ui_put_section(out, "facts", brim_tr("What is replayed"), NULL);
  brim_str_append(out, "<dl class=\"facts\">\n");
  for (size_t i = 0; i < o->fact_count; i++) {
    brim_ui_put_pair(out, o->facts[i].name, o->facts[i].value);
  }
  brim_str_append(out, "</dl>\n");
  if (o->command) {
    brim_str_append(out, "<pre tabindex=\"0\"><code>");
    brim_ui_escape_html(out, o->command);
    brim_str_append(out, "</code></pre>\n");
  }
  brim_str_append(out, "</section>\n");
}

brim_status brim_ui_replay(const brim_ui_replay_options *options, const brim_trajectory *list,
                           size_t count, brim_str *out) {
  if (count < 1 || count > BRIM_UI_MAX_REPLAYS) {
    return brim_fail(BRIM_EINVAL, "a replay page shows 1 to %d trajectories, not %zu",
                     BRIM_UI_MAX_REPLAYS, count);
  }
  for (size_t i = 0; i < count; i++) {
    if (list[i].frames > 0) continue;
    return brim_fail(BRIM_EINVAL, "there is no state in the trajectory '%s'", list[i].label);
  }
  brim_ui_put_head(options->title, "replay/replay.css", out);
  brim_str_append(out, "<body>\n<header><p class=\"brand\">brim render</p>");
  brim_ui_put(out, "h1", options->title);
  if (options->about) {
    brim_str_append(out, "<p class=\"sub\">");
    brim_ui_escape_html(out, options->about);
    brim_str_append(out, "</p>");
  }
  brim_str_append(out, "</header>\n<main>\n<div id=\"stage\">\n");
  for (size_t i = 0; i < count; i++) put_view(options, &list[i], i, out);
  brim_str_append(out, "</div>\n");
  put_controls(list, count, out);
  brim_status status = brim_ui_replay_curves(options, list, count, out);
  put_facts(options, out);
  brim_str_printf(out, "</main>\n<footer>brim %s</footer>\n", BRIM_VERSION);
  if (!status) status = put_data(list, count, out);
  brim_ui_put_asset("script", "replay/scene.js", out);
  brim_ui_put_asset("script", "replay/replay.js", out);
  brim_str_append(out, "</body>\n</html>\n");
  return status ? status : brim_str_status(out);
}
