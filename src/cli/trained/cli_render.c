// `brim render CHECKPOINT --out gait.html`: writes an HTML page that plays episodes of a trained policy, beside
// baselines that run from the same start. Runs episodes of `brim eval` again on the CPU. The workload records them
// (brim_work_replay_table); the scene of the environment draws them.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/trained/cli_trained.h"
#include "ui/pages/ui_pages.h"

enum { MAX_EPISODE = 999999, MAX_SECONDS = 600, MOST_EPISODES = 101, LONG_STEPS = 2000 };

static const char *const output_aliases[] = {"out", NULL};
static const char *const baseline_aliases[] = {"zero", NULL};

static const brim_option options[] = {
    {.name = "output",
     .short_name = 'o',
     .kind = BRIM_OPTION_STRING,
     .metavar = "FILE",
     .help = BRIM_N_("HTML file to write; - is the standard output"),
     .aliases = output_aliases},
    {.name = "force", .help = BRIM_N_("replace a file that is no page of brim's")},
    {.name = "episode",
     .kind = BRIM_OPTION_INT,
     .help = BRIM_N_("number of the held-out episode, repeatable (default: two, chosen)")},
    {.name = "seconds",
     .kind = BRIM_OPTION_FLOAT,
     .metavar = "S",
     .help = BRIM_N_("longest time to show, in seconds (default: the whole episode)")},
    {.name = "baselines",
     .negatable = true,
     .help = BRIM_N_("also show baselines from the same start; --no-baselines hides them"),
     .default_text = "yes",
     .aliases = baseline_aliases},
    BRIM_CLI_OPTION_RUN_CONFIG,
    {0},
};

typedef struct render {
  brim_cli_trained c;
  const brim_workload_table *table;
  void *replay;  // state of table->replay; NULL = not open
  brim_work_replay_info info;
  int32_t episodes[BRIM_UI_MAX_EPISODES];
  size_t episode_count;
  // Without --episode: the number of episodes that were scored, and the episode of median score. 0 with --episode.
  int32_t median_of, typical;
  int64_t steps;  // steps to show, at most
  brim_trajectory list[BRIM_UI_MAX_REPLAYS * BRIM_UI_MAX_EPISODES];
  size_t count, actors;  // trajectories in all; actors (policy and baselines) in an episode
  brim_curves training;  // training curves of the run
} render;

_Static_assert((int)BRIM_WORK_MAX_ACTORS <= (int)BRIM_UI_MAX_REPLAYS, "a page shows all actors");

//---------------------------------- options ----------------------------------

// Lists the workloads whose episodes can be shown, such as "ars, mappo".
static void put_shown(brim_str *out) {
  for (size_t i = 0; brim_workload_at(i); i++) {
    const brim_workload_table *table = brim_workload_at(i);
    if (!table->replay) continue;
    brim_str_printf(out, "%s%s", out->len > 0 ? ", " : "", table->name);
  }
}

// Refuses a checkpoint whose workload cannot be shown, before reading more of it.
static brim_status check_kind(const char *path) {
  brim_trained *t = NULL;
  BRIM_TRY(brim_trained_open(path, &t));
  brim_status status = BRIM_OK;
  const brim_workload_table *table = brim_cli_trained_table(t);
  if (!table || !table->replay) {
    brim_str names;
    brim_str_init(&names);
    put_shown(&names);
    status = brim_fail(
        BRIM_EINVAL,
        "%s is a checkpoint of workload %s; brim render shows only policies of workload %s", path,
        t->workload, names.data ? names.data : "");
    brim_str_deinit(&names);
  }
  brim_trained_close(t);
  return status;
}

// Reads every --episode; drops repeated numbers.
static brim_status read_episodes(brim_cli *cli, render *r) {
  for (size_t i = 0; i < cli->parse.count; i++) {
    const brim_option_value *item = &cli->parse.items[i];
    int64_t number = 0;
    bool known = false;
    if (strcmp(item->option->name, "episode") != 0 || item->count == 0) continue;
    if (!brim_parse_i64(item->values[0], &number) || number < 0 || number > MAX_EPISODE) {
      return brim_cli_usage(cli, BRIM_N_("--episode has to be from 0 to %d"), MAX_EPISODE);
    }
    for (size_t k = 0; k < r->episode_count; k++) known |= r->episodes[k] == number;
    if (known) continue;
    if (r->episode_count == BRIM_UI_MAX_EPISODES) {
      return brim_cli_usage(cli, BRIM_N_("a page shows at most %d episodes"), BRIM_UI_MAX_EPISODES);
    }
    r->episodes[r->episode_count++] = (int32_t)number;
  }
  return BRIM_OK;
}

static brim_status read_options(brim_cli *cli, render *r) {
  const brim_option_parse *p = &cli->parse;
  BRIM_TRY(read_episodes(cli, r));
  double seconds = brim_option_float(p, "seconds", 1);
  if (!(seconds > 0 && seconds <= MAX_SECONDS)) {
    return brim_cli_usage(cli, BRIM_N_("--seconds has to be above 0 and at most %d"), MAX_SECONDS);
  }
  // brim_cli_trained_init reports a checkpoint that is not given or does not exist.
  if (p->positional_count == 0) return BRIM_OK;
  if (!brim_option_string(p, "output", NULL)) {
    return brim_cli_usage(cli, BRIM_N_("give an output file: --out gait.html"));
  }
  return brim_fs_exists(p->positional[0]) ? check_kind(p->positional[0]) : BRIM_OK;
}

static brim_status record_episode(const render *r, size_t actor, int32_t episode,
                                  brim_trajectory *t) {
  brim_work_recording recording = {
      .capacity = t->capacity, .frames = t->state, .reward = t->reward};
  BRIM_TRY(r->table->replay->record(r->replay, actor, episode, t->capacity - 1, &recording));
  t->frames = recording.states;
  t->end = recording.end;
  return BRIM_OK;
}

typedef struct scored {
  double value;
  int32_t episode;
} scored;

static int by_value(const void *a, const void *b) {
  const scored *x = a, *y = b;
  if (x->value != y->value) return x->value < y->value ? -1 : 1;
  return (x->episode > y->episode) - (x->episode < y->episode);
}

static brim_status score_episode(const render *r, size_t actor, int32_t episode, brim_trajectory *t,
                                 double *out) {
  BRIM_TRY(record_episode(r, actor, episode, t));
  const double value = brim_trajectory_sum(t);
  *out = isfinite(value) ? value : -HUGE_VAL;
  return BRIM_OK;
}

// Chooses two of the first held-out episodes: the episode where the scores of policy and best baseline differ most,
// which shows what was learned, and the episode of median score. Diverged episodes rank below all others.
static brim_status choose_episodes(render *r) {
  // The number of episodes to score: odd, so that one is the median; fewer if episodes are long.
  const int32_t count = r->info.steps > LONG_STEPS ? 11 : MOST_EPISODES;
  scored policy_scores[MOST_EPISODES];
  double most = 0, best_baseline[MOST_EPISODES];
  int32_t most_different = -1;
  brim_trajectory t = {0};
  BRIM_TRY(brim_trajectory_init(&t, "", &r->info.scene, r->info.dt, r->info.steps + 1));
  brim_status status = BRIM_OK;
  // Score all episodes of an actor before the next actor: a workload may play many episodes of one actor at once.
  for (size_t actor = 0; actor < r->actors && !status; actor++) {
    for (int32_t i = 0; i < count && !status; i++) {
      double value = 0;
      status = score_episode(r, actor, i, &t, &value);
      if (actor == 0) policy_scores[i] = (scored){value, i};
      if (actor == 1 || (actor > 1 && value > best_baseline[i])) best_baseline[i] = value;
    }
  }
  for (int32_t i = 0; i < count && !status && r->actors > 1; i++) {
    const double difference = fabs(policy_scores[i].value - best_baseline[i]);
    if (isfinite(difference) && difference > most) most = difference, most_different = i;
  }
  brim_trajectory_deinit(&t);
  if (status) return status;
  qsort(policy_scores, (size_t)count, sizeof *policy_scores, by_value);
  r->typical = policy_scores[count / 2].episode;
  r->median_of = count;
  if (most_different >= 0 && most_different != r->typical)
    r->episodes[r->episode_count++] = most_different;
  r->episodes[r->episode_count++] = r->typical;
  return BRIM_OK;
}

static brim_status read_policy(brim_cli *cli, render *r) {
  const brim_work_replay_table *replay = r->table->replay;
  BRIM_TRY(replay->open(r->c.job.registry, r->c.job.config, r->c.trained->path, &r->replay));
  replay->info(r->replay, &r->info);
  r->steps = r->info.steps;
  bool cut = brim_option_find(&cli->parse, "seconds");
  if (cut && r->info.scene.rate > 0) {
    return brim_cli_usage(cli, BRIM_N_("--seconds does not apply to %s, which has no time step"),
                          r->info.title);
  }
  r->actors = brim_option_flag(&cli->parse, "baselines", true) ? r->info.actor_count : 1;
  if (r->episode_count == 0) BRIM_TRY(choose_episodes(r));
  if (!cut) return BRIM_OK;
  double steps = ceil(brim_option_float(&cli->parse, "seconds", 1) / r->info.dt - 1e-6);
  r->steps = steps < 1 ? 1 : (int64_t)fmin(steps, 1 << 20);
  return BRIM_OK;
}

//---------------------------------- the episode ----------------------------------

static brim_status add_trajectory(render *r, size_t actor, int32_t episode) {
  brim_trajectory *t = &r->list[r->count];
  BRIM_TRY(brim_trajectory_init(t, r->info.actors[actor].label, &r->info.scene, r->info.dt,
                                r->steps + 1));
  r->count++;
  BRIM_TRY(record_episode(r, actor, episode, t));
  return brim_trajectory_finish(t);
}

static const brim_metric_set *metrics_of(const render *r) {
  return r->info.metrics ? r->info.metrics : r->table->metric_set;
}

// Reads the training curves if the log of the run lies beside the checkpoint. Only warns of a bad log.
static brim_status read_training(render *r) {
  const brim_trained *t = r->c.trained;
  const brim_metric_set *set = metrics_of(r);
  if (!set) return BRIM_OK;
  char *folder = brim_fs_dirname(t->path);
  if (!folder) return brim_fail(BRIM_ENOMEM, "out of memory for the curves of a run");
  brim_status status = brim_curves_read(set, folder, t->step, &r->training);
  brim_free(folder);
  if (!status || status == BRIM_ENOMEM) return status;
  brim_log_warn("render", "%s; the page has no training curves", brim_status_detail());
  brim_status_clear();
  return BRIM_OK;
}

// The label of an episode's score, the sum of its rewards.
static const char *score_of(const render *r) {
  const brim_metric_set *set = r->table->metric_set;
  int row = brim_metric_find(set, r->table->replay->score);
  return row < 0 ? r->table->replay->score : brim_tr(set->rows[row].label);
}

//---------------------------------- the page ----------------------------------

enum { FACTS = BRIM_SCENE_MAX_LINES + 1 };

// Writes the numbers of the shown episodes, such as "3, 7".
static void numbers_text(const render *r, char out[96]) {
  size_t used = 0;
  out[0] = '\0';
  for (size_t i = 0; i < r->episode_count && used < 80; i++) {
    used += (size_t)snprintf(out + used, 96 - used, "%s%d", i > 0 ? ", " : "", r->episodes[i]);
  }
}

static void episode_text(const render *r, char out[256]) {
  const unsigned long long seed = r->info.seed;
  if (r->median_of && r->episode_count > 1) {
    brim_msg_format(
        out, 256,
        brim_tr("number %d, where policy and baselines differ most, and number %d, whose "
                "%s is the median of %d held-out episodes, seed %llu"),
        r->episodes[0], r->typical, score_of(r), r->median_of, seed);
    return;
  }
  if (r->episode_count > 1) {
    char numbers[96];
    numbers_text(r, numbers);
    snprintf(out, 256, brim_tr("numbers %s of the held-out episodes, seed %llu"), numbers, seed);
    return;
  }
  if (r->median_of) {
    brim_msg_format(out, 256,
                    brim_tr("number %d, whose %s is the median of %d held-out episodes, seed %llu"),
                    r->episodes[0], score_of(r), r->median_of, seed);
  } else {
    snprintf(out, 256, brim_tr("number %d of the held-out episodes, seed %llu"), r->episodes[0],
             seed);
  }
}

static void title_text(const render *r, char out[224]) {
  char numbers[96];
  if (r->episode_count > 1) {
    numbers_text(r, numbers);
    snprintf(out, 224, brim_tr("%s: episodes %s"), r->info.title, numbers);
  } else {
    snprintf(out, 224, brim_tr("%s: episode %d"), r->info.title, r->episodes[0]);
  }
}

static brim_status make_page(const render *r, brim_str *page) {
  brim_ui_fact facts[FACTS];
  char title[224], about[1024], episode[256], numbers[BRIM_UI_MAX_EPISODES][96];
  const char *names[BRIM_UI_MAX_EPISODES];
  brim_str command;
  size_t count = r->info.fact_count;
  brim_str_init(&command);
  brim_cli_command_text(r->c.cli, &command);
  for (size_t i = 0; i < count; i++) {
    facts[i] = (brim_ui_fact){brim_tr(r->info.facts[i].label), r->info.facts[i].text};
  }
  episode_text(r, episode);
  facts[count] = (brim_ui_fact){brim_tr("Episode"), episode};
  title_text(r, title);
  for (size_t i = 0; i < r->episode_count; i++) {
    if (r->median_of) {
      snprintf(numbers[i], sizeof numbers[i],
               r->episodes[i] == r->typical ? brim_tr("%d, typical (median)")
                                            : brim_tr("%d, largest difference"),
               r->episodes[i]);
    } else {
      snprintf(numbers[i], sizeof numbers[i], "%d", r->episodes[i]);
    }
    names[i] = numbers[i];
  }
  snprintf(about, sizeof about, brim_tr("%.900s, after %s"), r->c.trained->path, r->info.trained);
  brim_ui_replay_options how = {.title = title,
                                .about = about,
                                .command = command.data,
                                .score = score_of(r),
                                .episodes = names,
                                .episode_count = r->episode_count,
                                .facts = facts,
                                .fact_count = count + 1,
                                .training = &r->training,
                                .training_step = r->info.step};
  if (metrics_of(r) && brim_option_flag(&r->c.cli->parse, "baselines", true)) {
    how.training_baseline = metrics_of(r)->baseline_label;
  }
  brim_status status = brim_str_status(&command);
  if (!status) status = brim_ui_replay(&how, r->list, r->count, page);
  brim_str_deinit(&command);
  return status;
}

//---------------------------------- the result ----------------------------------

static brim_status show(const render *r, size_t bytes) {
  brim_str out;
  char size[32], outcome[96];
  brim_str_init(&out);
  brim_format_bytes(bytes, size);
  brim_ui_styled(&out, &r->c.cli->out, BRIM_UI_BOLD, r->c.output);
  if (r->median_of && r->episode_count > 1) {
    brim_str_printf(&out,
                    brim_tr(": episode %d, where policy and baselines differ most, and episode %d, "
                            "whose %s is the median of %d episodes, %s\n"),
                    r->episodes[0], r->typical, score_of(r), r->median_of, size);
  } else if (r->median_of) {
    brim_str_printf(&out, brim_tr(": episode %d, whose %s is the median of %d episodes, %s\n"),
                    r->episodes[0], score_of(r), r->median_of, size);
  } else if (r->episode_count == 1) {
    brim_str_printf(&out, brim_tr(": episode %d, %s\n"), r->episodes[0], size);
  } else {
    char numbers[96];
    numbers_text(r, numbers);
    brim_str_printf(&out, brim_tr(": episodes %s, %s\n"), numbers, size);
  }
  int widest = 0;
  for (size_t i = 0; i < r->count; i++) {
    int width = brim_utf8_width(r->list[i].label);
    widest = width > widest ? width : widest;
  }
  for (size_t i = 0; i < r->count; i++) {
    const brim_trajectory *t = &r->list[i];
    const brim_scene_episode episode = brim_trajectory_episode(t);
    t->scene->outcome(&episode, outcome, sizeof outcome);
    brim_str_append(&out, "  ");
    if (r->episode_count > 1) brim_str_printf(&out, "%-6d  ", r->episodes[i / r->actors]);
    brim_ui_styled(&out, &r->c.cli->out, BRIM_UI_DIM, t->label);
    brim_str_repeat(&out, ' ', (size_t)(widest - brim_utf8_width(t->label)) + 2);
    brim_str_printf(&out, "%s, %s %.1f", outcome, score_of(r), brim_trajectory_sum(t));
    brim_str_append_char(&out, '\n');
  }
  return brim_cli_finish_text(r->c.cli, &out, BRIM_OK);
}

static brim_status put_replay(json_t *list, const render *r, size_t index) {
  const brim_trajectory *t = &r->list[index];
  const size_t actor = index % r->actors;
  const brim_work_replay_table *replay = r->table->replay;
  const brim_scene_episode episode = brim_trajectory_episode(t);
  brim_scene_line figures[BRIM_SCENE_MAX_LINES];
  memset(figures, 0, sizeof figures);
  size_t count = t->scene->figures ? t->scene->figures(&episode, figures) : 0;
  json_t *o = json_object();
  BRIM_TRY(brim_json_push(list, o));
  if (r->episode_count > 1) {
    BRIM_TRY(brim_json_put(o, "episode", json_integer(r->episodes[index / r->actors])));
  }
  BRIM_TRY(brim_json_put(o, "policy", json_string(r->info.actors[actor].name)));
  BRIM_TRY(brim_json_put(o, "outcome", json_string(t->scene->ends[t->end])));
  BRIM_TRY(brim_json_put(o, "steps", json_integer(t->frames - 1)));
  BRIM_TRY(brim_json_put(
      o, "seconds",
      t->scene->rate > 0 ? json_null() : brim_json_number(brim_trajectory_seconds(t))));
  BRIM_TRY(brim_json_put(o, replay->score, brim_json_number(brim_trajectory_sum(t))));
  for (size_t i = 0; i < count; i++) {
    if (!figures[i].key) continue;
    BRIM_TRY(brim_json_put(o, figures[i].key, brim_json_number(figures[i].value)));
  }
  return BRIM_OK;
}

static brim_status show_json(const render *r, size_t bytes) {
  json_t *f = json_object(), *list = NULL;
  brim_status s = brim_json_put(f, "checkpoint", json_string(r->c.trained->path));
  if (!s) s = brim_json_put(f, "output", json_string(r->c.output));
  if (!s) s = brim_json_put(f, "bytes", json_integer((json_int_t)bytes));
  if (!s) s = r->table->replay->fields(r->replay, f);
  if (!s) s = brim_json_put(f, "episode", json_integer(r->episodes[0]));
  if (!s)
    s = brim_json_put(f, "median_of", r->median_of ? json_integer(r->median_of) : json_null());
  if (!s) s = brim_json_put(f, "typical", r->median_of ? json_integer(r->typical) : json_null());
  if (!s) s = brim_json_put(f, "replays", list = json_array());
  for (size_t i = 0; i < r->count && !s; i++) s = put_replay(list, r, i);
  return brim_cli_finish_event(r->c.cli, "rendered", f, s);
}

//---------------------------------- the command ----------------------------------

static brim_status render_to(brim_cli *cli, render *r) {
  brim_str page;
  BRIM_TRY(read_policy(cli, r));
  cli->running = true;
  for (size_t i = 0; i < r->episode_count * r->actors; i++) {
    BRIM_TRY(add_trajectory(r, i % r->actors, r->episodes[i / r->actors]));
  }
  BRIM_TRY(read_training(r));
  brim_str_init(&page);
  brim_status status = make_page(r, &page);
  if (!status && strcmp(r->c.output, "-") == 0) {  // stdout gets only the page
    brim_cli_put_bytes(cli, page.data, page.len);
  } else if (!status) {
    status = brim_fs_write(r->c.output, page.data, page.len);
    if (!status) status = cli->json ? show_json(r, page.len) : show(r, page.len);
  }
  brim_str_deinit(&page);
  return status;
}

static brim_status run(brim_cli *cli) {
  render r;
  memset(&r, 0, sizeof r);
  BRIM_TRY(read_options(cli, &r));
  BRIM_TRY(brim_cli_trained_init(cli, &r.c));
  if (r.c.output) {
    brim_status status = brim_cli_check_replace(cli, r.c.output, BRIM_CLI_PAGE_MARK);
    if (status) brim_cli_trained_deinit(&r.c);
    BRIM_TRY(status);
  }
  r.table = brim_cli_trained_table(r.c.trained);
  brim_status status = r.table && r.table->replay ? render_to(cli, &r) : BRIM_EINVAL;
  for (size_t i = 0; i < r.count; i++) brim_trajectory_deinit(&r.list[i]);
  brim_curves_deinit(&r.training);
  if (r.replay) r.table->replay->close(r.replay);
  brim_cli_trained_deinit(&r.c);
  return status;
}

const brim_cli_command brim_cli_render = {
    .name = "render",
    .summary = BRIM_N_("show a trained policy as an HTML page"),
    .usage = "CHECKPOINT --out FILE.html [OPTIONS] [KEY=VALUE...]",
    .about = BRIM_N_(
        "Writes one HTML page that plays a held-out episode of a trained policy. The page draws "
        "the "
        "environment and shows its curves over time. Next to it the page shows the same episode "
        "with baselines, such as all actions 0, random actions or a rule of the environment. If "
        "log.jsonl lies beside the checkpoint, the page also shows the training curves of the run. "
        "The page needs no network and no other "
        "file.\nEpisode numbers are those of brim eval; brim runs the episode again on the CPU. "
        "Without --episode brim takes two of the first 101: where the policy and the best baseline "
        "differ most, and the one of median return. "
        "KEY=VALUE changes the environment, such as the strength of pushes."),
    .examples = BRIM_N_(
        "show a policy\nbrim render runs/cartpole/best.safetensors --out cartpole.html\nanother "
        "episode, its first 30 seconds\nbrim render best.safetensors -o gait.html --episode 7 "
        "--seconds 30\nwithout pushes\nbrim render best.safetensors -o calm.html "
        "env.push_speed=0\n"),
    .options = options,
    .run = run,
};
