// Tables of augmented random search: keys, help, findings, views.

#include "workload/ars/ars_int.h"

#include <math.h>
#include <string.h>

#include "base/base_words.h"
#include "record/record_findings.h"
#include "record/record_view.h"

//--------------------------------------------- keys ---------------------------------------------
// Config keys of augmented random search, their values in presets, and the models it brings.

static const brim_config_row keys[] = {
    BRIM_KEY_INT("ars.num_envs", "128", 1, 1e9, BRIM_KEY_NAMES("num_envs"), BRIM_CONFIG_SAVED_OWN,
                 "environments per direction, half for plus and half for minus (even)"),
    BRIM_KEY_INT("ars.num_dirs", "16", 1, 1e6, BRIM_KEY_NAMES("num_dirs"), BRIM_CONFIG_SAVED_OWN,
                 "random directions per iteration, each run as a plus and minus pair"),
    BRIM_KEY_INT("ars.dir_chunk", "8", 1, 1e6, BRIM_KEY_NAMES("dir_chunk"), 0,
                 "directions in memory at the same time; fewer use less memory"),
    BRIM_KEY_INT("ars.top_dirs", "0", 0, 1e6, BRIM_KEY_NAMES("top_dirs"), BRIM_CONFIG_SAVED_OWN,
                 "number of best directions in each update (0 = all)"),
    BRIM_KEY_FLOAT("ars.noise_std", "0.03", 0, 1e3, BRIM_KEY_NAMES("noise_std"),
                   BRIM_CONFIG_SAVED_OWN | BRIM_CONFIG_NO_COST,
                   "standard deviation of the perturbation"),
    BRIM_KEY_FLOAT("ars.step_size", "0.02", 0, 1e3, BRIM_KEY_NAMES("step_size"),
                   BRIM_CONFIG_SAVED_OWN | BRIM_CONFIG_NO_COST, "step size of the update"),
    BRIM_KEY_INT("ars.episode_length", NULL, 1, 1e9, BRIM_KEY_NAMES("episode_length"),
                 BRIM_CONFIG_SAVED_OWN,
                 "longest episode, in actions (default: set by env and ars.phase)"),
    BRIM_KEY_INT("ars.iterations", "500", 1, 1e9, BRIM_KEY_NAMES("iterations"),
                 BRIM_CONFIG_SAVED_OWN, "number of policy updates"),
    BRIM_KEY_CHOICE("ars.version", "v2", BRIM_KEY_NO_NAMES, BRIM_KEY_NAMES("v1", "v2"),
                    BRIM_CONFIG_SAVED_OWN, "ARS version; v2 normalizes observations"),
    BRIM_KEY_FLOAT("ars.shift", "0", -1e9, 1e9, BRIM_KEY_NAMES("shift"),
                   BRIM_CONFIG_SAVED_OWN | BRIM_CONFIG_NO_COST,
                   "amount subtracted from the reward of every step; has an effect only with "
                   "ars.restart=false"),
    BRIM_KEY_BOOL(
        "ars.restart", NULL, BRIM_KEY_NO_NAMES, BRIM_CONFIG_SAVED_OWN,
        "start a new episode when one ends early; false = end the rollout of that environment "
        "(default: set by env)"),
    BRIM_KEY_INT("ars.eval_interval", "10", 1, 1e9, BRIM_KEY_NO_NAMES, 0,
                 "iterations per epoch; brim evaluates the policy after each epoch"),
    BRIM_KEY_INT("ars.eval_episodes", "100", 0, 1e6, BRIM_KEY_NO_NAMES, BRIM_CONFIG_SAVED_OWN,
                 "held-out episodes of an evaluation; 0 = none"),
    BRIM_KEY_CHOICE(
        "ars.phase", "phase1", BRIM_KEY_NO_NAMES, BRIM_KEY_NAMES("phase1", "phase2"),
        BRIM_CONFIG_SAVED_OWN,
        "curriculum stage: phase1 = episodes of 200 actions, phase2 = episodes of 400 actions "
        "and stronger pushes"),
};

static const brim_config_arg policy_args[] = {
    BRIM_ARG_INT("depth", "1", 0, 64, "hidden layers"),
    BRIM_ARG_INT("hidden", "256", 1, 65536, "width of each hidden layer"),
    BRIM_ARG_CHOICE("activation", "relu", "relu|gelu|tanh", "activation after each hidden layer"),
};

static const brim_config_component_row components[] = {
    BRIM_COMPONENT_BARE("model", "linear_policy", "actions = weights x observations"),
    BRIM_COMPONENT("model", "mlp_policy", policy_args,
                   "small network that maps observations to actions"),
};

#define OF(preset, envs, dirs, chunk) \
  {preset, "ars.num_envs", envs}, {preset, "ars.num_dirs", dirs}, { preset, "ars.dir_chunk", chunk }
static const brim_config_preset_row presets[] = {
    OF("h200", "1024", "64", "64"),
    OF("a100-80g", "1024", "64", "64"),
    OF("a100-40g", "1024", "64", "64"),
    OF("rtx4090-24g", "512", "64", "32"),
    OF("rtx3090-24g", "512", "64", "32"),
    OF("rtx3060-12g", "512", "32", "32"),
    OF("rtx3060-laptop-6g", "256", "32", "16"),
    OF(BRIM_CONFIG_NO_GPU, "64", "16", "16"),
};

const brim_config_section brim_ars_section = {
    .keys = keys,
    .key_count = sizeof keys / sizeof *keys,
    .components = components,
    .component_count = sizeof components / sizeof *components,
    .presets = presets,
    .preset_count = sizeof presets / sizeof *presets,
};

//--------------------------------------------- help ---------------------------------------------
// Options and help of the policy search.

static const char *const phase_choices[] = {"phase1", "phase2", NULL};

static const brim_option train_options[] = {
    {.name = "num-envs",
     .kind = BRIM_OPTION_INT,
     .help = BRIM_N_("number of environments; ars: per direction"),
     .key = "ars.num_envs"},
    {.name = "num-dirs",
     .kind = BRIM_OPTION_INT,
     .help = BRIM_N_("ars: directions per iteration"),
     .key = "ars.num_dirs"},
    {.name = "dir-chunk",
     .kind = BRIM_OPTION_INT,
     .help = BRIM_N_("ars: directions in memory at a time; fewer use less memory"),
     .key = "ars.dir_chunk"},
    {.name = "iterations",
     .kind = BRIM_OPTION_INT,
     .help = BRIM_N_("iterations to train for"),
     .key = "ars.iterations"},
    {.name = "phase",
     .kind = BRIM_OPTION_ENUM,
     .metavar = "P",
     .help = BRIM_N_("ars: curriculum stage"),
     .key = "ars.phase",
     .choices = phase_choices},
    {0},
};

static const brim_option bench[] = {
    {.name = "num-envs",
     .kind = BRIM_OPTION_INT,
     .multiple = true,
     .help = BRIM_N_("environments to try; ars: per direction"),
     .key = "benchmark.num_envs_options"},
    {.name = "num-dirs",
     .kind = BRIM_OPTION_INT,
     .multiple = true,
     .help = BRIM_N_("ars: numbers of directions to try"),
     .key = "benchmark.num_dirs_options"},
    {.name = "dir-chunk",
     .kind = BRIM_OPTION_INT,
     .multiple = true,
     .help = BRIM_N_("ars: numbers of directions in memory to try"),
     .key = "benchmark.dir_chunk_options"},
    {0},
};

static const brim_option eval_options[] = {
    {.name = "episodes",
     .kind = BRIM_OPTION_INT,
     .help = BRIM_N_("number of held-out episodes to evaluate a policy in"),
     .key = "ars.eval_episodes"},
    {0},
};

const brim_work_options brim_ars_options[BRIM_ARS_OPTIONS] = {
    {.command = "train",
     .rows = train_options,
     .examples = BRIM_N_(
         "train a robot to stand\nbrim train ars\nthe same with more environments, for a large "
         "GPU\nbrim train quadruped-stand --num-envs 1024 --num-dirs 64 --dir-chunk 64\n")},
    {.command = "bench", .rows = bench},
    {.command = "eval",
     .rows = eval_options,
     .about = BRIM_N_(
         "A policy of workload ars runs in --episodes held-out episodes, which did not serve to "
         "select it. The report shows return, falls, lengths and forward speed next to the zero "
         "policy. For the task walk it also counts the episodes with an average speed of 1 m/s or "
         "more and no fall."),
     .examples = BRIM_N_("a policy, in a thousand episodes\n"
                         "brim eval runs/quadruped-stand/best.safetensors --episodes 1000\n"),
     .bounded = "episodes",
     .least = 1,
     .most = 1000000},
};

static const char *const page[] = {
    BRIM_N_(
        "brim searches a policy without gradients (augmented random search). "
        "Each iteration tries random perturbations of the policy, added and subtracted. It then "
        "moves the policy toward those with the higher return. It needs no data."),
    "  brim train cartpole\n"
    "  brim train ars\n"
    "  brim eval runs/quadruped-stand/best.safetensors\n"
    "  brim render runs/quadruped-stand/best.safetensors \\\n"
    "    --out gait.html\n"
    "  brim train ars --phase phase2 --output-dir runs/stand2 \\\n"
    "    --weights runs/quadruped-stand/best.safetensors\n"
    "  brim train quadruped-walk\n"
    "  brim bench ars --benchmark-batch\n\n",
    BRIM_N_(
        "The first command balances a pole on a cart (CartPole-v1), in about a second. The second "
        "trains a four-legged robot to stand while it is pushed. eval compares it with the "
        "zero policy (all actions 0) in held-out episodes, and render writes a page that shows it. "
        "Phase 2 continues from the policy of phase 1, with longer episodes and stronger pushes. "
        "quadruped-walk rewards forward speed. bench finds the fastest number of environments and "
        "directions."),
    BRIM_N_("A config of your own needs these keys:"),
    "  model: linear_policy\n"
    "  workload: ars\n"
    "  env: quadruped(task=stand)\n\n"};
const brim_work_topic brim_ars_topic = {BRIM_N_("a robot that learns to stand or walk"), page,
                                        sizeof page / sizeof *page};

//------------------------------------------- findings -------------------------------------------
// Findings: directions run in consecutive chunks, and too few environments to fill the device.

enum { LANES = 4 };  // threads of an environment on a GPU: one for each leg
enum { FEW = 32 };   // environments per CPU thread: more gain nothing

static double least_gain(const brim_result *r) { return BRIM_FINDING_LEAST * r->total_ms.median; }

// Fills in remedy and cost of raising a knob: from a measured larger value if there is one, else `otherwise`
// without a cost. Asks to try the next value: four times the measured one, or `otherwise`.
static void remedy_raise_knob(const brim_findings *v, const char *knob, double otherwise,
                              brim_finding *f) {
  const brim_result *more = brim_finding_twin(v, knob, BRIM_TWIN_MORE, NULL);
  double gain = more ? brim_finding_gain_ms(v->r, more) : (double)NAN;
  char next[32];
  snprintf(next, sizeof next, "%.0f",
           more ? 4 * brim_result_knob_number(more, knob, 0) : otherwise);
  brim_finding_try(v, f, knob, next);
  if (more && gain > 0) {
    f->cost_ms = gain;
    brim_finding_change(f, knob, brim_result_knob_text(more, knob), true);
    brim_words_add(f->remedy, sizeof f->remedy,
                   BRIM_N_("%s %s -> %s: measured, %.2f ms less for the same env steps"), knob,
                   brim_result_knob_text(v->r, knob), brim_result_knob_text(more, knob), gain);
  } else {
    snprintf(next, sizeof next, "%.0f", otherwise);
    brim_finding_change(f, knob, next, false);
    brim_words_add(f->remedy, sizeof f->remedy, "%s %s -> %s", knob,
                   brim_result_knob_text(v->r, knob), next);
  }
}

// Reports a chunk smaller than the number of directions: the chunks run one after the other. A small chunk
// is right only when memory is short.
static void find_chunks(const brim_findings *v) {
  brim_result *r = v->r;
  double dirs = brim_result_knob_number(r, "num_dirs", 0);
  double chunk = brim_result_knob_number(r, "dir_chunk", 0);
  const brim_result *more = brim_finding_twin(v, "dir_chunk", BRIM_TWIN_MORE, NULL);
  if (!(chunk > 0) || chunk >= dirs) return;
  if (more && brim_finding_gain_ms(r, more) <= least_gain(r)) return;  // measured: gains too little
  if (!more && !brim_result_has_gpu(r)) return;  // a small chunk keeps a CPU busy
  brim_finding *f = brim_finding_add(r, "serial_chunks", (double)NAN);
  if (!f) return;
  brim_words_add(f->text, sizeof f->text,
                 BRIM_N_("%.0f directions run %.0f at a time, in %.0f consecutive turns"), dirs,
                 chunk, ceil(dirs / chunk));
  remedy_raise_knob(v, "dir_chunk", dirs, f);
}

// Reports a GPU with fewer than half of its threads in use: a large card is then no faster than a laptop's.
static void find_threads(const brim_findings *v) {
  brim_result *r = v->r;
  const brim_gpu_facts *gpu = brim_result_has_gpu(r) ? brim_gpu_facts_find(r->device) : NULL;
  double envs = brim_result_knob_number(r, "num_envs", 0);
  double chunk = brim_result_knob_number(r, "dir_chunk", 0);
  double threads = envs * chunk * LANES;
  double most = gpu ? (double)gpu->sms * gpu->threads_per_sm : (double)NAN;
  if (!(threads > 0) || !(threads < 0.5 * most)) return;
  const brim_result *more = brim_finding_twin(v, "num_envs", BRIM_TWIN_MORE, NULL);
  if (more && brim_finding_gain_ms(r, more) <= least_gain(r)) return;
  brim_finding *f = brim_finding_add(r, "few_threads", (double)NAN);
  if (!f) return;
  const brim_gpu_facts *laptop = brim_gpu_facts_find("3060 Laptop");
  bool fills = threads <= (double)laptop->sms * laptop->threads_per_sm;
  brim_words_add(
      f->text, sizeof f->text,
      fills ? BRIM_N_("%.0f x %.0f environments use %.0f of the %.0f threads of this card; a "
                      "laptop GPU runs as many, just as fast")
            : BRIM_N_("%.0f x %.0f environments use %.0f of the %.0f threads of this card; "
                      "the rest idles"),
      envs, chunk, threads, most);
  remedy_raise_knob(v, "num_envs", ceil(most / (chunk * LANES) / 2) * 2, f);
}

// Reports too few environments on a CPU, or on a card whose number of threads is unknown: environments step
// in groups, and too few leave lanes and threads idle. Needs a measurement, or asks for one.
static void find_few(const brim_findings *v) {
  brim_result *r = v->r;
  const brim_result *more = brim_finding_twin(v, "num_envs", BRIM_TWIN_MORE, NULL);
  double envs = brim_result_knob_number(r, "num_envs", 0);
  double chunk = brim_result_knob_number(r, "dir_chunk", 0);
  if (brim_result_has_gpu(r) && brim_gpu_facts_find(r->device)) return;
  if (!(envs * chunk > 0) || (more && brim_finding_gain_ms(r, more) <= least_gain(r))) return;
  if (!more && !(v->probing && (brim_result_has_gpu(r) || envs * chunk < FEW * r->threads))) return;
  brim_finding *f = brim_finding_add(r, "few_envs", (double)NAN);
  if (!f) return;
  brim_words_add(f->text, sizeof f->text,
                 BRIM_N_("%.0f x %.0f environments at once are too few for this device"), envs,
                 chunk);
  remedy_raise_knob(v, "num_envs", 4 * envs, f);
}

static void find(const brim_findings *v) {
  find_chunks(v);
  find_threads(v);
  find_few(v);
}

const brim_work_findings_table brim_ars_findings = {find};

//-------------------------------------------- views --------------------------------------------
// Views of bench: the makers' figures of this GPU beside the two GPUs of seed guide 000, and the measured
// before and after of the guide's change.

//---------------------------------- cells ----------------------------------

// A count: all digits below 1000, shortened above.
static void format_count(double value, char out[32]) {
  if (value < 1000) {
    snprintf(out, 32, "%.0f", value);
  } else {
    brim_format_figure(value, out);
  }
}

static void range_text(double low, double high, char out[32]) {
  char a[32], b[32];
  format_count(low, a);
  format_count(high, b);
  snprintf(out, 32, low == high ? "%.15s" : "%.15s-%.15s", a, b);
}

//---------------------------------- cards ----------------------------------

static void add_card(brim_view *v, const brim_gpu_facts *g, bool here) {
  char text[32];
  brim_view_put(v, "%s%s", g->name, here ? brim_tr(" (this card)") : "");
  brim_format_figure(g->cores, text);
  brim_view_put(v, "%s", text);
  range_text(g->memory_low_gb, g->memory_high_gb, text);
  brim_view_put(v, "%s GB", text);
  range_text(g->bandwidth_low, g->bandwidth_high, text);
  brim_view_put(v, "%s GB/s", text);
  brim_view_put(v, "%.3g", g->fp32_tflops);
  if (isnan(g->tf32_tflops)) {
    brim_view_put(v, "-");
  } else {
    brim_view_put(v, "%.3g", g->tf32_tflops);
  }
  brim_format_figure((double)g->sms * g->threads_per_sm, text);
  brim_view_put(v, "%s", text);
  brim_view_put(v, "%s", g->envs);
  if (here) v->marked = (int)v->row_count;
  v->row_count++;
}

static void cards_view(const brim_result *results, brim_view *v) {
  static const char *const names[] = {"A100", "RTX 3060 Laptop"};
  const brim_gpu_facts *here = brim_gpu_facts_find(results[0].device);
  *v = (brim_view){.title = brim_tr("THE CARD"),
                   .columns = {{"GPU", true, 0, 8},
                               {brim_tr("CUDA cores"), false, 0, 0},
                               {brim_tr("Memory"), false, 3, 0},
                               {brim_tr("Bandwidth"), false, 2, 0},
                               {"FP32 TFLOP/s", false, 0, 0},
                               {"TF32 TFLOP/s", false, 4, 0},
                               {brim_tr("Threads held"), false, 1, 0},
                               {brim_tr("num_envs advised"), false, 5, 0}},
                   .column_count = 8,
                   .marked = -1};
  bool listed = false;
  for (size_t i = 0; i < 2; i++) {
    const brim_gpu_facts *g = brim_gpu_facts_find(names[i]);
    listed = listed || g == here;
    add_card(v, g, g == here);
  }
  if (here && !listed) add_card(v, here, true);
  snprintf(
      v->note, sizeof v->note, "%s",
      brim_tr("Manufacturer's figures. The A100 has 6,912 CUDA cores and 19.5 TFLOP/s in FP32. Its "
              "156 TFLOP/s apply to TF32 matrix products, which a policy search does not use."));
}

//---------------------------------- before and after ----------------------------------

typedef struct search {
  double envs, dirs, chunk;
} search;

static search search_of(const brim_result *r) {
  return (search){brim_result_knob_number(r, "num_envs", 0),
                  brim_result_knob_number(r, "num_dirs", 0),
                  brim_result_knob_number(r, "dir_chunk", 0)};
}

static double total(const brim_result *r) {
  search s = search_of(r);
  return s.envs * s.dirs;
}

static const search guide_before = {128, 16, 8}, guide_after = {1024, 64, 64};

static const brim_result *views_find(const brim_result *results, size_t count,
                                     const search *which) {
  for (size_t i = 0; which && i < count; i++) {
    const search s = search_of(&results[i]);
    if (brim_result_ran(&results[i]) && s.envs == which->envs && s.dirs == which->dirs &&
        s.chunk == which->chunk) {
      return &results[i];
    }
  }
  return NULL;
}

// The result with the fewest environments in total (`last`: the most); among equals, the one with the
// smallest (largest) chunk.
static const brim_result *end_of(const brim_result *results, size_t count, bool last) {
  const brim_result *best = NULL;
  for (size_t i = 0; i < count; i++) {
    const brim_result *r = &results[i];
    if (!brim_result_ran(r)) continue;
    double more = best ? total(r) - total(best) : 0;
    if (best && more == 0) more = search_of(r).chunk - search_of(best).chunk;
    if (!best || (last ? more > 0 : more < 0)) best = r;
  }
  return best;
}

static void add_end(brim_view *v, const char *label, const brim_result *r) {
  const search s = search_of(r);
  char text[32];
  bool gpu = brim_result_has_gpu(r);
  double busy = gpu ? r->gpu_percent : r->cpu_percent;
  brim_view_put(v, "%s", label);
  format_count(total(r), text);
  brim_view_put(v, "%.0f x %.0f = %s", s.envs, s.dirs, text);
  brim_view_put(v, "%.0f", s.chunk);
  brim_format_figure(r->samples_per_s, text);
  brim_view_put(v, "%s", text);
  for (int i = 0; i < (gpu ? 2 : 1); i++) {
    double share = i ? r->sm_percent : busy;
    if (isnan(share)) {
      brim_view_put(v, "-");
    } else {
      brim_view_put(v, "%.0f %%", brim_shown(share));
    }
  }
  v->row_count++;
}

static bool before_after_view(const brim_result *results, size_t count, const search *own,
                              brim_view *v) {
  const brim_result *after = views_find(results, count, &guide_after);
  if (!after) after = end_of(results, count, true);
  // if the config already has the last setting, compare with the guide's first one
  const brim_result *before = views_find(results, count, own);
  if (!before || before == after) before = views_find(results, count, &guide_before);
  const char *label = before ? brim_tr("before") : brim_tr("smallest tried");
  if (!before) before = end_of(results, count, false);
  if (!before || !after || before == after) return false;
  bool gpu = brim_result_has_gpu(before);
  *v = (brim_view){.title = brim_tr("BEFORE AND AFTER"),
                   .columns = {{"", true, 0, 6},
                               {brim_tr("Environments"), false, 0, 0},
                               {brim_tr("Chunk"), false, 1, 0},
                               {brim_tr("Env steps/s"), false, 0, 0},
                               {gpu ? brim_tr("GPU used") : brim_tr("CPU used"), false, 2, 0},
                               {brim_tr("SMs"), false, 3, 0}},
                   .column_count = gpu ? 6 : 5,
                   .marked = -1,
                   .whole_note = true};
  add_end(v, label, before);
  add_end(v, brim_tr("after"), after);
  snprintf(v->note, sizeof v->note,
           gpu ? brim_tr("speedup %.2fx (for comparison: 8x is often expected of an A100, 50,000 "
                         "-> 400,000)")
               : brim_tr("speedup %.2fx"),
           after->samples_per_s / before->samples_per_s);
  return true;
}

static size_t make_views(const brim_result *results, size_t count, const brim_setting *own,
                         bool with_cards, brim_view *out) {
  size_t n = 0;
  if (count == 0) return 0;
  // the view of cards needs a GPU
  if (with_cards && brim_result_has_gpu(&results[0])) cards_view(results, &out[n++]);
  search has = {0};
  if (own) {
    has = (search){(double)own->value[BRIM_ARS_ENVS], (double)own->value[BRIM_ARS_DIRS],
                   (double)own->value[BRIM_ARS_CHUNK]};
  }
  return n + before_after_view(results, count, own ? &has : NULL, &out[n]);
}

const brim_work_views_table brim_ars_views = {.make = make_views};
