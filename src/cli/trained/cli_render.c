// `brim render CHECKPOINT --out gait.html`: an episode of a trained policy as a page to look at.
// The episode is one of those that `brim eval` judges by, run anew on the CPU, and beside it the
// same start and the same pushes with a policy that does nothing.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/trained/cli_trained.h"
#include "env/quadruped/quadruped_episode.h"
#include "workload/ars/ars.h"

enum { MAX_EPISODE = 999999, MAX_SECONDS = 600, MOST_EPISODES = 101, LONG = 2000 };

static const char *const output_aliases[] = {"out", NULL};

static const brim_option options[] = {
    {.name = "output",
     .short_name = 'o',
     .kind = BRIM_OPTION_STRING,
     .metavar = "FILE",
     .help = BRIM_N_("HTML file to write"),
     .aliases = output_aliases},
    {.name = "episode",
     .kind = BRIM_OPTION_INT,
     .help = BRIM_N_("number of the held-out episode (default: the one of median return)")},
    {.name = "seconds",
     .kind = BRIM_OPTION_FLOAT,
     .metavar = "S",
     .help = BRIM_N_("longest time to show, in seconds (default: the whole episode)")},
    {.name = "zero",
     .negatable = true,
     .help = BRIM_N_("also show the zero policy from the same start; --no-zero hides it"),
     .default_text = "yes"},
    {.name = "config",
     .kind = BRIM_OPTION_STRING,
     .metavar = "FILE",
     .help = BRIM_N_("config of the run, for a checkpoint without its own config")},
    {0},
};

typedef struct render {
  brim_cli_trained c;
  brim_rollout_shape shape;
  brim_ars_policy policy;
  int32_t episode;
  // Where no episode was named, the one of median return of so many is taken; 0 = one was named.
  int32_t median_of;
  double dt;
  brim_trajectory list[BRIM_UI_MAX_REPLAYS];
  size_t count;
} render;

//---------------------------------- what is asked for ----------------------------------

// Before anything else is read out of it, so that the message is about what it is.
static brim_status check_kind(const char *path) {
  brim_trained *t = NULL;
  BRIM_TRY(brim_trained_open(path, &t));
  brim_status status = BRIM_OK;
  const brim_workload_table *table = brim_cli_trained_table(t);
  if (!table || !table->policy) {
    status = brim_fail(
        BRIM_EINVAL,
        "%s is a checkpoint of workload %s; brim render shows only policies of workload ars", path,
        t->workload);
  }
  brim_trained_close(t);
  return status;
}

static brim_status read_options(brim_cli *cli, render *r) {
  const brim_option_parse *p = &cli->parse;
  int64_t episode = brim_option_int(p, "episode", 0);
  if (episode < 0 || episode > MAX_EPISODE) {
    return brim_cli_usage(cli, BRIM_N_("--episode has to be from 0 to %d"), MAX_EPISODE);
  }
  r->episode = (int32_t)episode;
  double seconds = brim_option_float(p, "seconds", 1);
  if (!(seconds > 0 && seconds <= MAX_SECONDS)) {
    return brim_cli_usage(cli, BRIM_N_("--seconds has to be above 0 and at most %d"), MAX_SECONDS);
  }
  // Without a checkpoint, or with one that is not there, who opens it says so.
  if (p->positional_count == 0) return BRIM_OK;
  if (!brim_option_string(p, "output", NULL)) {
    return brim_cli_usage(cli, BRIM_N_("give an output file: --out gait.html"));
  }
  return brim_fs_exists(p->positional[0]) ? check_kind(p->positional[0]) : BRIM_OK;
}

static brim_quadruped robot_of(const render *r) { return brim_quadruped_of(r->shape.env.bytes); }

// Runs an episode into a trajectory, whose frames are taken apart.
static brim_status roll(const render *r, const brim_rollout_judge *judge, int32_t episode,
                        brim_trajectory *t) {
  float *frames = brim_alloc((size_t)t->capacity * BRIM_QUADRUPED_FRAME * sizeof *frames);
  if (!frames) return brim_fail(BRIM_ENOMEM, "out of memory for the frames of an episode");
  brim_rollout_record record = {.capacity = t->capacity, .frames = frames, .reward = t->reward};
  brim_status status =
      brim_rollout_trace(&r->shape, r->policy.theta, r->policy.normal, judge, episode, &record);
  for (int64_t i = 0; !status && i < record.states; i++) {
    const float *at = frames + i * BRIM_QUADRUPED_FRAME;
    memcpy(t->qpos + i * BRIM_TRAJECTORY_QPOS, at, BRIM_QUADRUPED_QPOS * sizeof *at);
    memcpy(t->push + 3 * i, at + BRIM_QUADRUPED_QPOS, 3 * sizeof *at);
  }
  t->frames = record.states;
  t->outcome = record.outcome == BRIM_ENV_TERMINATED ? BRIM_TRAJECTORY_FELL
               : record.outcome == BRIM_ENV_DIVERGED ? BRIM_TRAJECTORY_DIVERGED
                                                     : BRIM_TRAJECTORY_LASTED;
  brim_free(frames);
  return status;
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

// One episode says little of a policy, and the first may be its worst: of the first held-out ones take
// the one in the middle by return. Episodes that diverged stand below all others.
static brim_status choose_typical(render *r) {
  // an odd number, so that there is a middle; fewer where one takes long
  const int32_t count = r->shape.episode_length > LONG ? 11 : MOST_EPISODES;
  const brim_rollout_judge judge = {.episodes = count, .stream = BRIM_ARS_STREAM_HELD_OUT};
  scored all[MOST_EPISODES];
  brim_trajectory t = {0};
  BRIM_TRY(brim_trajectory_init(&t, "", r->dt, (int64_t)r->shape.episode_length + 1));
  brim_status status = BRIM_OK;
  for (int32_t i = 0; i < count && !status; i++) {
    status = roll(r, &judge, i, &t);
    double value = status ? 0 : brim_trajectory_return(&t);
    all[i] = (scored){isfinite(value) ? value : -HUGE_VAL, i};
  }
  brim_trajectory_deinit(&t);
  if (status) return status;
  qsort(all, (size_t)count, sizeof *all, by_value);
  r->episode = all[count / 2].episode;
  r->median_of = count;
  return BRIM_OK;
}

static brim_status read_policy(brim_cli *cli, render *r) {
  BRIM_TRY(brim_ars_shape(r->c.job.config, r->c.job.registry, &r->shape));
  if (r->shape.row != &brim_quadruped_row) {
    return brim_fail(BRIM_EUNSUPPORTED, "brim render has no drawing of environment %s",
                     r->shape.row->name);
  }
  BRIM_TRY(brim_ars_policy_read(r->c.trained->path, &r->shape, &r->policy));
  // as it was said: 0.01, not the nearest float
  r->dt = round((double)robot_of(r).timestep * 1e7) / 1e7 * robot_of(r).frame_skip;
  if (!brim_option_find(&cli->parse, "episode")) BRIM_TRY(choose_typical(r));
  if (!brim_option_find(&cli->parse, "seconds")) return BRIM_OK;
  double steps = ceil(brim_option_float(&cli->parse, "seconds", 1) / r->dt - 1e-6);
  r->shape.episode_length = steps < 1 ? 1 : (int32_t)fmin(steps, 1 << 20);
  return BRIM_OK;
}

//---------------------------------- the episode ----------------------------------

static brim_status trace(render *r, bool zero) {
  const brim_rollout_judge judge = {
      .episodes = r->episode + 1, .zero = zero, .stream = BRIM_ARS_STREAM_HELD_OUT};
  brim_trajectory *t = &r->list[r->count];
  BRIM_TRY(brim_trajectory_init(t, zero ? brim_tr("Zero policy") : brim_tr("Policy"), r->dt,
                                (int64_t)r->shape.episode_length + 1));
  r->count++;
  BRIM_TRY(roll(r, &judge, r->episode, t));
  return brim_trajectory_finish(t);
}

//---------------------------------- the page ----------------------------------

enum { FACTS = 8 };

typedef struct facts {
  brim_ui_fact row[FACTS];
  char text[FACTS][192];
  size_t count;
} facts;

static void add_fact(facts *f, const char *name, const char *fmt, ...) BRIM_PRINTF(3, 4);
static void add_fact(facts *f, const char *name, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  vsnprintf(f->text[f->count], sizeof f->text[0], fmt, args);
  va_end(args);
  f->row[f->count] = (brim_ui_fact){name, f->text[f->count]};
  f->count++;
}

static const char *task_of(const render *r) {
  return robot_of(r).task == BRIM_QUADRUPED_WALK ? "walk" : "stand";
}

static void make_facts(const render *r, facts *f) {
  const brim_quadruped robot = robot_of(r), *e = &robot;
  f->count = 0;
  add_fact(f, brim_tr("Environment"), brim_tr("quadruped, task %s"), task_of(r));
  add_fact(f, brim_tr("Physics"), brim_tr("%s, a step is %d x %g s, contact margin %g m"),
           e->rk4 ? "RK4" : "Euler", e->frame_skip, (double)e->timestep, (double)e->margin);
  add_fact(f, brim_tr("Start"), brim_tr("positions within %g of rest, velocities of deviation %g"),
           (double)e->reset_pos, (double)e->reset_vel);
  if (e->push_speed > 0) {
    add_fact(f, brim_tr("Pushes"), brim_tr("up to %g m/s, every %d steps on average"),
             (double)e->push_speed, e->push_every);
  } else {
    add_fact(f, brim_tr("Pushes"), "%s", brim_tr("none"));
  }
  if (r->shape.hidden > 0) {
    add_fact(f, brim_tr("Policy"), brim_tr("one hidden layer: %d-%d-%d"), BRIM_QUADRUPED_OBS,
             r->shape.hidden, BRIM_QUADRUPED_ACT);
  } else {
    add_fact(f, brim_tr("Policy"), brim_tr("linear, %d x %d"), BRIM_QUADRUPED_ACT,
             BRIM_QUADRUPED_OBS);
  }
  add_fact(f, brim_tr("Trained"),
           r->policy.iteration == 1 ? brim_tr("%lld iteration") : brim_tr("%lld iterations"),
           (long long)r->policy.iteration);
  if (r->median_of) {
    add_fact(f, brim_tr("Episode"),
             brim_tr("number %d, whose return is the median of %d held-out episodes, seed %llu"),
             r->episode, r->median_of, (unsigned long long)r->shape.seed);
  } else {
    add_fact(f, brim_tr("Episode"), brim_tr("number %d of the held-out episodes, seed %llu"),
             r->episode, (unsigned long long)r->shape.seed);
  }
}

static brim_status make_page(const render *r, brim_str *page) {
  facts f;
  char title[128], about[1024];
  brim_str command;
  brim_str_init(&command);
  brim_cli_command_text(r->c.cli, &command);
  make_facts(r, &f);
  snprintf(title, sizeof title, brim_tr("quadruped, %s: episode %d"), task_of(r), r->episode);
  snprintf(about, sizeof about,
           r->policy.iteration == 1 ? brim_tr("%.900s, after %lld iteration")
                                    : brim_tr("%.900s, after %lld iterations"),
           r->c.trained->path, (long long)r->policy.iteration);
  bool walk = robot_of(r).task == BRIM_QUADRUPED_WALK;
  brim_ui_replay_options how = {
      .title = title,
      .about = about,
      .command = command.data,
      .walk = walk,
      .low = (double)BRIM_HEALTHY_LOW,
      .high = (double)BRIM_HEALTHY_HIGH,
      .tilt = walk ? (double)NAN : acos((double)BRIM_STAND_UPRIGHT) * (180 / 3.14159265358979),
      .facts = f.row,
      .fact_count = f.count};
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
  if (r->median_of) {
    brim_str_printf(&out, brim_tr(": episode %d, whose return is the median of %d episodes, %s\n"),
                    r->episode, r->median_of, size);
  } else {
    brim_str_printf(&out, brim_tr(": episode %d, %s\n"), r->episode, size);
  }
  int widest = 0;
  for (size_t i = 0; i < r->count; i++) {
    int width = brim_utf8_width(r->list[i].label);
    widest = width > widest ? width : widest;
  }
  for (size_t i = 0; i < r->count; i++) {
    const brim_trajectory *t = &r->list[i];
    brim_ui_replay_outcome(t, robot_of(r).task == BRIM_QUADRUPED_WALK, outcome);
    brim_str_append(&out, "  ");
    brim_ui_styled(&out, &r->c.cli->out, BRIM_UI_DIM, t->label);
    brim_str_repeat(&out, ' ', (size_t)(widest - brim_utf8_width(t->label)) + 2);
    brim_str_printf(&out, brim_tr("%s, return %.1f"), outcome, brim_trajectory_return(t));
    brim_str_append_char(&out, '\n');
  }
  brim_status status = brim_str_status(&out);
  if (!status) brim_cli_print(r->c.cli, &out);
  brim_str_deinit(&out);
  return status;
}

static brim_status put_replay(json_t *list, const brim_trajectory *t, bool zero) {
  json_t *o = json_object();
  int64_t pushes = 0;
  for (int64_t i = 0; i < t->frames; i++) pushes += brim_trajectory_push(t, i) > 0;
  BRIM_TRY(brim_json_push(list, o));
  BRIM_TRY(brim_json_put(o, "policy", json_string(zero ? "zero" : "trained")));
  BRIM_TRY(brim_json_put(o, "outcome", json_string(brim_trajectory_outcome_name(t->outcome))));
  BRIM_TRY(brim_json_put(o, "steps", json_integer(t->frames - 1)));
  BRIM_TRY(brim_json_put(o, "seconds", brim_json_number(brim_trajectory_seconds(t))));
  BRIM_TRY(brim_json_put(o, "return", brim_json_number(brim_trajectory_return(t))));
  return brim_json_put(o, "pushes", json_integer(pushes));
}

static brim_status show_json(const render *r, size_t bytes) {
  json_t *f = json_object(), *list = NULL;
  brim_status s = brim_json_put(f, "checkpoint", json_string(r->c.trained->path));
  if (!s) s = brim_json_put(f, "output", json_string(r->c.output));
  if (!s) s = brim_json_put(f, "bytes", json_integer((json_int_t)bytes));
  if (!s) s = brim_json_put(f, "task", json_string(task_of(r)));
  if (!s) s = brim_json_put(f, "iteration", json_integer(r->policy.iteration));
  if (!s) s = brim_json_put(f, "episode", json_integer(r->episode));
  if (!s)
    s = brim_json_put(f, "median_of", r->median_of ? json_integer(r->median_of) : json_null());
  if (!s) s = brim_json_put(f, "replays", list = json_array());
  for (size_t i = 0; i < r->count && !s; i++) s = put_replay(list, &r->list[i], i == 1);
  if (s) {
    json_decref(f);
    return s;
  }
  return brim_cli_event(r->c.cli, "rendered", f);
}

//---------------------------------- the command ----------------------------------

static brim_status render_to(brim_cli *cli, render *r) {
  brim_str page;
  BRIM_TRY(read_policy(cli, r));
  cli->running = true;
  BRIM_TRY(trace(r, false));
  if (brim_option_flag(&cli->parse, "zero", true)) BRIM_TRY(trace(r, true));
  brim_str_init(&page);
  brim_status status = make_page(r, &page);
  if (!status) status = brim_fs_write(r->c.output, page.data, page.len);
  if (!status) status = cli->json ? show_json(r, page.len) : show(r, page.len);
  brim_str_deinit(&page);
  return status;
}

static brim_status run(brim_cli *cli) {
  render r;
  memset(&r, 0, sizeof r);
  BRIM_TRY(read_options(cli, &r));
  BRIM_TRY(brim_cli_trained_init(cli, &r.c));
  brim_status status = render_to(cli, &r);
  for (size_t i = 0; i < r.count; i++) brim_trajectory_deinit(&r.list[i]);
  brim_ars_policy_deinit(&r.policy);
  brim_cli_trained_deinit(&r.c);
  return status;
}

const brim_cli_command brim_cli_render = {
    .name = "render",
    .summary = BRIM_N_("show a trained policy as an HTML page"),
    .usage = "CHECKPOINT --out FILE.html [OPTIONS] [KEY=VALUE...]",
    .about = BRIM_N_(
        "Writes one HTML page that shows a held-out episode of an ars policy. The page has a 3D "
        "view of the robot, the pushes, and height, tilt and reward over time. Next to it the page "
        "shows the same episode with all actions 0. The page needs no network and no other "
        "file.\nEpisode numbers are those of brim eval; brim runs the episode again on the CPU. "
        "Without --episode brim takes the one of median return among the first 101. "
        "KEY=VALUE changes the environment, such as the strength of pushes."),
    .examples = BRIM_N_(
        "show a policy\nbrim render runs/stand/best.safetensors --out gait.html\nanother episode, "
        "its first 30 seconds\nbrim render best.safetensors -o gait.html --episode 7 --seconds "
        "30\nwithout pushes\nbrim render best.safetensors -o calm.html env.push_speed=0\n"),
    .options = options,
    .run = run,
};
