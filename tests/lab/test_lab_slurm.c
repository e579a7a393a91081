// A sweep over a scripted Slurm: sbatch, squeue, sacct, scontrol, sinfo and scancel are shell scripts in fake/bin over
// files that the tests write. Arrays are split, ids are reused, answers are lost or are garbage, and no experiment is
// ever in Slurm's queue twice. The tests play the elements.
#include <sys/stat.h>
#include <unistd.h>

#include "test.h"

#include "base/base.h"
#include "lab/slurm/lab_slurm.h"
#include "lab/sweep/lab_sweep.h"
#include "lab/sweep/lab_sweep_int.h"
#include "lab/wire/lab_wire_link.h"

//---------------------------------- the scripts ----------------------------------

// squeue and sacct print fake/queue and fake/account, filtered by --name. fake/NAME.mode changes a command: how its
// answer is lost, or the answer itself.
static const char sbatch_script[] =
    "#!/bin/sh\n"
    "cd \"$FAKE\" || exit 1\n"
    "mode=$(cat sbatch.mode 2>/dev/null)\n"
    "printf '%s\\n' \"$*\" >>sbatch.log\n"
    "case \"$mode\" in\n"
    "lost) exec sleep 600 ;;\n"
    "refuse) echo 'sbatch: error: invalid partition specified: nowhere' >&2; exit 1 ;;\n"
    "limit) echo 'sbatch: error: QOSMaxSubmitJobPerUserLimit' >&2; rm sbatch.mode; exit 1 ;;\n"
    "silent) echo 'Submitted batch job' ; exit 0 ;;\n"
    "esac\n"
    "job=$(cat next 2>/dev/null || echo 1)\n"
    "for word; do case \"$word\" in\n"
    "  --array=*) last=${word#--array=0-}; last=${last%%%*} ;;\n"
    "  --job-name=*) name=${word#--job-name=} ;;\n"
    "esac; done\n"
    "i=0\n"
    "while [ $i -le $last ]; do echo \"$job|$i|PENDING||$name|Resources\"; i=$((i + 1)); done "
    ">>queue\n"
    "[ -e keep-id ] || echo $((job + 10)) >next\n"
    "[ \"$mode\" = late ] && exec sleep 600\n"
    "echo \"$job;cluster\"\n";
static const char squeue_script[] =
    "#!/bin/sh\n"
    "cd \"$FAKE\" || exit 1\n"
    "echo look >>squeue.log\n"
    "case \"$(cat squeue.mode 2>/dev/null)\" in\n"
    "fail) echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1 ;;\n"
    "zero) printf '\\0 and more\\n'; exit 0 ;;\n"
    "garbage) printf 'Segmentation fault\\n12|x|RUNNING\\n|||||\\n'; exit 0 ;;\n"
    "esac\n"
    "for word; do case \"$word\" in --name=*) names=,${word#--name=}, ;; esac; done\n"
    "[ -e queue ] || exit 0\n"
    "while IFS='|' read -r job at state node name reason; do\n"
    "  case \"$names\" in *,$name,*) echo \"$job|$at|$state|$node|$name|$reason\" ;; esac\n"
    "done <queue\n"
    "cat always 2>/dev/null\n"
    "exit 0\n";
static const char sacct_script[] =
    "#!/bin/sh\n"
    "cd \"$FAKE\" || exit 1\n"
    "printf '%s\\n' \"$*\" >>sacct.log\n"
    "[ -e account ] || { echo 'Slurm accounting storage is disabled' >&2; exit 1; }\n"
    "cat account\n";
static const char scontrol_script[] =
    "#!/bin/sh\n"
    "cd \"$FAKE\" || exit 1\n"
    "cat config\n";
static const char sinfo_script[] =
    "#!/bin/sh\n"
    "cd \"$FAKE\" || exit 1\n"
    "cat nodes\n";
static const char scancel_script[] =
    "#!/bin/sh\n"
    "cd \"$FAKE\" || exit 1\n"
    "printf '%s\\n' \"$*\" >>scancel.log\n";

static char fake[4096];

static void put(const char *name, const char *text) {
  char path[5000];
  snprintf(path, sizeof path, "%s/%s", fake, name);
  assert_ok(brim_fs_write(path, text, strlen(text)));
}

static void put_command(const char *name, const char *text) {
  char path[5000];
  snprintf(path, sizeof path, "%s/bin/%s", fake, name);
  assert_ok(brim_fs_write(path, text, strlen(text)));
  assert_int_equal(chmod(path, 0755), 0);
}

static void take_away(const char *name) {
  char path[5000];
  snprintf(path, sizeof path, "%s/%s", fake, name);
  (void)unlink(path);
}

// Contents of a file, "" if there is none; free it with brim_free.
static char *get(const char *name) {
  char path[5000], *text = NULL;
  snprintf(path, sizeof path, "%s/%s", fake, name);
  if (!brim_fs_exists(path)) return brim_strdup("");
  assert_ok(brim_fs_read(path, 0, &text, NULL));
  return text;
}

static int lines_of(const char *name) {
  char *text = get(name);
  int n = 0;
  for (const char *at = text; (at = strchr(at, '\n')); at++) n++;
  brim_free(text);
  return n;
}

static void fresh_fake(int most) {
  char text[128];
  assert_int_equal(system("rm -rf fake place && mkdir -p fake/bin"), 0);
  put_command("sbatch", sbatch_script);
  put_command("squeue", squeue_script);
  put_command("sacct", sacct_script);
  put_command("scontrol", scontrol_script);
  put_command("sinfo", sinfo_script);
  put_command("scancel", scancel_script);
  snprintf(text, sizeof text, "Configuration data\nMaxArraySize            = %d\n", most);
  put("config", text);
  char host[65] = "";
  assert_int_equal(gethostname(host, sizeof host - 1), 0);
  snprintf(text, sizeof text, "1|%s\n", host);
  put("nodes", text);
}

//---------------------------------- the sweep ----------------------------------

static brim_lab_slurm_options slurm_options;

static brim_status try_open(brim_lab_sweep **out) {
  const brim_lab_sweep_options o = {.place = "place",
                                    .title = "grid one",
                                    .program = "/bin/true",
                                    .devices = "cpu",
                                    .keep_going = true,
                                    .grace_ms = 100,
                                    .store = {.backoff_ms = 1},
                                    .slurm = &slurm_options};
  return brim_lab_sweep_open(&o, out);
}

static brim_lab_sweep *open_sweep(void) {
  brim_lab_sweep *sweep = NULL;
  assert_ok(try_open(&sweep));
  return sweep;
}

static const char *id_of(int n) {
  static char id[BRIM_EXP_ID];
  snprintf(id, sizeof id, "%032x", (unsigned)n + 1);
  return id;
}

static void submit(brim_lab_sweep *sweep, int count, int64_t gpus) {
  brim_store_point points[64] = {0};
  char ids[64][BRIM_EXP_ID];
  brim_store_submitted submitted;
  for (int i = 0; i < count; i++) {
    snprintf(ids[i], sizeof ids[i], "%s", id_of(i));
    points[i] = (brim_store_point){.id = ids[i],
                                   .idx = i,
                                   .label = ids[i] + 28,
                                   .config = "lr: 1\n",
                                   .gpus = gpus,
                                   .tries = 2};
  }
  const brim_store_grid grid = {.id = "grid", .name = "grid", .text = "", .version = "test"};
  assert_ok(brim_lab_sweep_submit(sweep, &grid, points, (size_t)count, &submitted));
}

// A sweep of this many experiments over a fresh Slurm.
static brim_lab_sweep *start(int count, int most) {
  fresh_fake(most);
  slurm_options =
      (brim_lab_slurm_options){.poll_ms = 30, .timeout_ms = 60000, .lost_ms = 200, .nodes = 1};
  brim_lab_sweep *sweep = open_sweep();
  submit(sweep, count, 1);
  return sweep;
}

static bool turn(brim_lab_sweep *sweep) {
  bool done = false;
  assert_ok(brim_lab_sweep_turn(sweep, NULL, 0, 20, &done));
  return done;
}

typedef bool (*condition)(brim_lab_sweep *sweep);

static void turn_until(brim_lab_sweep *sweep, condition met, const char *what) {
  for (int i = 0; i < 6000; i++) {
    if (met(sweep)) return;
    bool done = turn(sweep);
    if (done && !met(sweep)) fail_msg("the sweep ended before %s", what);
    if (done) return;
  }
  fail_msg("never %s", what);
}
#define TURN_UNTIL(sweep, met) turn_until(sweep, met, #met)

static void turn_until_done(brim_lab_sweep *sweep) {
  for (int i = 0; i < 6000; i++) {
    if (turn(sweep)) return;
  }
  fail_msg("the sweep did not end");
}

// Waits until the sweep has looked at the queue this many times from now on.
static void look_times(brim_lab_sweep *sweep, int n) {
  int before = lines_of("squeue.log");
  for (int i = 0; i < 6000 && lines_of("squeue.log") < before + n; i++) {
    if (turn(sweep)) return;
  }
  // and until the last answer is there
  for (int i = 0; i < 6000 && sweep->slurm->phase != BRIM_LAB_SLURM_IDLE; i++) (void)turn(sweep);
}

static bool said(brim_lab_sweep *sweep, const char *part) {
  const brim_sweep_view *view = NULL;
  assert_ok(brim_lab_sweep_view(sweep, true, &view));
  for (size_t i = 0; i < view->message_count; i++) {
    if (strstr(view->messages[i].text, part)) return true;
  }
  return false;
}

static brim_store_exp *get_exp(brim_lab_sweep *sweep, int n) {
  brim_store_exp *exp = NULL;
  assert_ok(brim_store_get(sweep->store, id_of(n), &exp));
  return exp;
}

static brim_exp_state state_of(brim_lab_sweep *sweep, int n) {
  brim_store_exp *exp = get_exp(sweep, n);
  brim_exp_state state = exp->state;
  brim_store_exp_free(exp);
  return state;
}

static void assert_failure(brim_lab_sweep *sweep, int n, const char *failure) {
  brim_store_exp *exp = get_exp(sweep, n);
  if (strcmp(exp->failure, failure) != 0) fail_msg("%s: %s", exp->failure, exp->reason);
  brim_store_exp_free(exp);
}

//---------------------------------- the elements ----------------------------------

// Element `at` of the array with this number in the list of arrays.
static brim_store_ref claim(brim_lab_sweep *sweep, size_t array, size_t at) {
  char id[BRIM_EXP_ID];
  brim_store_claimed claimed = {0};
  brim_store_random_id(id);
  const brim_store_request request = {.worker = sweep->worker,
                                      .claim_id = id,
                                      .exp = sweep->slurm->arrays[array]->is.exps[at].id,
                                      .free_gpus = 99,
                                      .free_bytes = -1};
  assert_ok(brim_store_claim(sweep->store, &request, &claimed));
  assert_non_null(claimed.exp);
  brim_store_exp_free(claimed.exp);
  return claimed.ref;
}

static void finish(brim_lab_sweep *sweep, size_t array, size_t at) {
  brim_store_ref ref = claim(sweep, array, at);
  const brim_store_result result = {.outcome = BRIM_ATTEMPT_OK};
  assert_ok(brim_store_finish(sweep->store, &ref, &result, NULL));
}

// Every row of the queue becomes this state.
static void set_queue(const char *state) {
  char command[5000];
  snprintf(command, sizeof command,
           "cd fake && sed -i 's/^\\([0-9]*|[0-9]*\\)|[A-Z_]*|[^|]*|/\\1|%s|node7|/' queue", state);
  assert_int_equal(system(command), 0);
}

static bool one_array(brim_lab_sweep *sweep) {
  return sweep->slurm->count == 1 && sweep->slurm->arrays[0]->is.job[0];
}
// The next array may be on its way in the turn in which this one got its number.
static bool first_array(brim_lab_sweep *sweep) {
  return sweep->slurm->count >= 1 && sweep->slurm->arrays[0]->is.job[0];
}
static bool three_arrays(brim_lab_sweep *sweep) {
  return sweep->slurm->count == 3 && sweep->slurm->arrays[2]->is.job[0];
}
// True once three tasks are submitted. They may be in several arrays if the first was ready a moment before the others.
static bool three_tasks(brim_lab_sweep *sweep) {
  size_t tasks = 0;
  for (size_t i = 0; i < sweep->slurm->count; i++) {
    if (!sweep->slurm->arrays[i]->is.job[0]) return false;
    tasks += sweep->slurm->arrays[i]->is.count;
  }
  return tasks == 3;
}
static bool no_array(brim_lab_sweep *sweep) { return sweep->slurm->count == 0; }
static bool two_submissions(brim_lab_sweep *sweep) {
  (void)sweep;
  return lines_of("sbatch.log") >= 2;
}

// Every unfinished experiment is in exactly one array.
static void assert_each_once(brim_lab_sweep *sweep, int count) {
  const brim_lab_slurm *m = sweep->slurm;
  for (int n = 0; n < count; n++) {
    int found = 0;
    for (size_t k = 0; k < m->count; k++) {
      for (size_t i = 0; i < m->arrays[k]->is.count; i++) {
        found += !m->arrays[k]->tasks[i].over && strcmp(m->arrays[k]->is.exps[i].id, id_of(n)) == 0;
      }
    }
    assert_int_equal(found, 1);
  }
}

// Finishes all experiments, so that the sweep can end.
static void finish_all(brim_lab_sweep *sweep) {
  for (size_t k = 0; k < sweep->slurm->count; k++) {
    for (size_t i = 0; i < sweep->slurm->arrays[k]->is.count; i++) {
      if (!sweep->slurm->arrays[k]->tasks[i].over) finish(sweep, k, i);
    }
  }
  set_queue("COMPLETED");
  turn_until_done(sweep);
  assert_int_equal(brim_lab_sweep_end(sweep), BRIM_LAB_END_ALL);
  brim_lab_sweep_close(sweep);
}

//---------------------------------- submitting ----------------------------------

static void has(const char *text, const char *part) {
  if (!strstr(text, part)) fail_msg("no '%s' in: %s", part, text);
}

static void test_arrays_are_split(void **state) {
  (void)state;
  static const char *const extra[] = {"--qos=long", "--comment=two words", NULL};
  brim_lab_sweep *sweep = start(10, 4);
  sweep->slurm->options.ask = (brim_slurm_ask){.partition = "gpu",
                                               .account = "me",
                                               .time = "1:00:00",
                                               .memory = "4G",
                                               .gres = "gpu:1",
                                               .cpus = 3,
                                               .at_once = 2,
                                               .extra = extra};
  TURN_UNTIL(sweep, three_arrays);
  assert_int_equal(lines_of("sbatch.log"), 3);
  assert_each_once(sweep, 10);
  const brim_lab_slurm *m = sweep->slurm;
  assert_int_equal(m->arrays[0]->is.count, 4);  // indices 0 to MaxArraySize - 1
  assert_int_equal(m->arrays[1]->is.count, 4);
  assert_int_equal(m->arrays[2]->is.count, 2);
  assert_string_not_equal(m->arrays[0]->is.name, m->arrays[1]->is.name);
  assert_string_equal(m->arrays[0]->is.job, "1");
  char *log = get("sbatch.log");
  has(log, "--parsable --job-name=brim-grid-one-");
  has(log, "--array=0-3%2 --requeue --signal=B:USR2@120 --open-mode=append --output=");
  has(log, "--array=0-1%2 ");
  has(log, "--partition=gpu --account=me --time=1:00:00 --mem=4G --cpus-per-task=3 --gres=gpu:1 ");
  has(log, "--qos=long --comment=two words ");
  brim_free(log);
  char why[256];
  TURN_UNTIL(sweep, three_arrays);
  look_times(sweep, 1);
  brim_lab_slurm_why(m, m->arrays[0]->is.exps[2].id, why, sizeof why);
  assert_string_equal(why, "Slurm job 1_2 waits: Resources");
  finish_all(sweep);
  char **names = NULL;
  size_t count = 0;
  assert_ok(brim_slurm_array_names("place", &names, &count));
  assert_int_equal(count, 0);
  brim_fs_list_free(names, count);
}

// The element's command line, and the resources for several ranks.
static void test_ranks_and_the_script(void **state) {
  (void)state;
  fresh_fake(100);
  slurm_options = (brim_lab_slurm_options){.poll_ms = 30, .nodes = 2};
  brim_lab_sweep *sweep = open_sweep();
  submit(sweep, 2, 4);
  TURN_UNTIL(sweep, one_array);
  char *log = get("sbatch.log"), *script = NULL, path[256];
  has(log, "--nodes=2 --ntasks=4 ");
  assert_null(strstr(log, "--gres"));  // the sweep runs on the CPU
  brim_free(log);
  snprintf(path, sizeof path, "place/slurm/%s.sh", sweep->slurm->arrays[0]->is.name);
  assert_ok(brim_fs_read(path, 0, &script, NULL));
  has(script, "exec '/bin/true' '--quiet' 'sweep' 'element' 'place=/");
  has(script, "'device=cpu'");
  brim_free(script);
  finish_all(sweep);
}

static void test_one_machine_for_sqlite(void **state) {
  (void)state;
  fresh_fake(100);
  slurm_options = (brim_lab_slurm_options){.poll_ms = 30};
  put("nodes", "3|a[1-3]\n");
  brim_lab_sweep *sweep = NULL;
  assert_status(try_open(&sweep), BRIM_EUNSUPPORTED);
  has(brim_status_detail(), "postgres://");
  static const char *const here[] = {"--nodelist=a1", NULL};
  slurm_options.ask.extra = here;
  assert_ok(try_open(&sweep));
  brim_lab_sweep_close(sweep);
  put("nodes", "1|another\n");
  sweep = open_sweep();
  assert_true(said(sweep, "Slurm's node another may be another machine"));
  brim_lab_sweep_close(sweep);
  put("config", "Configuration data\n");
  assert_status(try_open(&sweep), BRIM_EUNSUPPORTED);
  assert_int_equal(system("rm fake/bin/scontrol"), 0);
  put_command("scontrol", "#!/bin/sh\necho 'no controller' >&2\nexit 1\n");
  assert_status(try_open(&sweep), BRIM_EUNSUPPORTED);
  has(brim_status_detail(), "no controller");
}

//---------------------------------- lost answers ----------------------------------

static void test_a_lost_answer_of_a_submitted_array(void **state) {
  (void)state;
  brim_lab_sweep *sweep = start(3, 100);
  put("sbatch.mode", "late");
  sweep->slurm->options.timeout_ms = 3000;
  TURN_UNTIL(sweep, one_array);  // found by its name in the queue
  assert_string_equal(sweep->slurm->arrays[0]->is.job, "1");
  look_times(sweep, 6);
  assert_int_equal(lines_of("sbatch.log"), 1);
  assert_each_once(sweep, 3);
  take_away("sbatch.mode");
  finish_all(sweep);
  assert_int_equal(lines_of("sbatch.log"), 1);
}

static void test_a_lost_answer_of_no_array(void **state) {
  (void)state;
  brim_lab_sweep *sweep = start(3, 100);
  put("sbatch.mode", "lost");
  sweep->slurm->options.timeout_ms = 1000;
  while (sweep->slurm->phase != BRIM_LAB_SLURM_SUBMIT) (void)turn(sweep);
  char first[BRIM_SLURM_NAME];
  snprintf(first, sizeof first, "%s", sweep->slurm->arrays[0]->is.name);
  while (sweep->slurm->phase == BRIM_LAB_SLURM_SUBMIT) (void)turn(sweep);
  take_away("sbatch.mode");
  sweep->slurm->options.timeout_ms = 60000;
  // brim looks for the array before it submits anything again
  assert_int_equal(sweep->slurm->count, 1);
  TURN_UNTIL(sweep, no_array);
  sweep->slurm->hold_ms = 0;
  TURN_UNTIL(sweep, one_array);
  assert_int_equal(lines_of("sbatch.log"), 2);
  assert_string_not_equal(first, sweep->slurm->arrays[0]->is.name);
  // if the first array arrives after all, its elements find no file and end
  brim_slurm_array late;
  assert_status(brim_slurm_array_read("place", first, &late), BRIM_ENOENT);
  assert_each_once(sweep, 3);
  finish_all(sweep);
}

static void test_an_answer_without_a_number(void **state) {
  (void)state;
  brim_lab_sweep *sweep = start(2, 100);
  put("sbatch.mode", "silent");
  while (lines_of("sbatch.log") == 0) (void)turn(sweep);
  TURN_UNTIL(sweep, no_array);
  take_away("sbatch.mode");
  sweep->slurm->hold_ms = 0;
  TURN_UNTIL(sweep, one_array);
  assert_int_equal(lines_of("sbatch.log"), 2);
  finish_all(sweep);
}

static void test_refusals(void **state) {
  (void)state;
  bool done = false;
  brim_lab_sweep *sweep = start(4, 100);
  put("sbatch.mode", "refuse");
  brim_status status = BRIM_OK;
  for (int i = 0; i < 6000 && !status && !done; i++) {
    status = brim_lab_sweep_turn(sweep, NULL, 0, 20, &done);
  }
  assert_status(status, BRIM_EINVAL);
  has(brim_status_detail(), "invalid partition");
  brim_lab_sweep_close(sweep);
  // a limit may allow fewer at once
  put("sbatch.mode", "limit");
  sweep = open_sweep();
  while (!two_submissions(sweep)) (void)turn(sweep);
  TURN_UNTIL(sweep, no_array);
  sweep->slurm->hold_ms = 0;
  TURN_UNTIL(sweep, first_array);
  assert_int_equal(sweep->slurm->arrays[0]->is.count, 2);
  look_times(sweep, 1);
  assert_each_once(sweep, 4);
  finish_all(sweep);
}

// A sweep that was killed while sbatch ran: the next sweep finds the array by its name.
static void test_a_killed_sweep(void **state) {
  (void)state;
  brim_lab_sweep *sweep = start(3, 100);
  TURN_UNTIL(sweep, one_array);
  sweep->slurm->arrays[0]->is.job[0] = '\0';  // as if Slurm had not answered yet
  assert_ok(brim_slurm_array_write("place", &sweep->slurm->arrays[0]->is));
  brim_lab_sweep_close(sweep);
  sweep = open_sweep();
  assert_int_equal(sweep->slurm->count, 1);
  TURN_UNTIL(sweep, one_array);
  look_times(sweep, 3);
  assert_int_equal(lines_of("sbatch.log"), 1);
  assert_each_once(sweep, 3);
  finish_all(sweep);
}

//---------------------------------- ids and names ----------------------------------

static void test_reused_ids(void **state) {
  (void)state;
  fresh_fake(100);
  // jobs of the same number that belong to others or to the past: none of them counts
  put("always",
      "1|0|FAILED|node9|other|None\n1|1|RUNNING|node9|brim-grid-one-old|None\n"
      "1|N/A|COMPLETED|node9|batch|None\n");
  slurm_options = (brim_lab_slurm_options){.poll_ms = 30, .timeout_ms = 60000, .lost_ms = 200};
  brim_lab_sweep *sweep = open_sweep();
  submit(sweep, 2, 1);
  TURN_UNTIL(sweep, one_array);
  brim_store_ref ref = claim(sweep, 0, 0);
  look_times(sweep, 4);
  assert_int_equal(state_of(sweep, 0), BRIM_EXP_LEASED);
  assert_each_once(sweep, 2);
  // the same number again for the next array of this sweep
  const brim_store_result crash = {
      .outcome = BRIM_ATTEMPT_ERROR, .failure = BRIM_FAILURE_CRASH, .message = "crashed"};
  assert_ok(brim_store_finish(sweep->store, &ref, &crash, NULL));
  put("next", "1");
  set_queue("COMPLETED");
  finish(sweep, 0, 1);
  char first[BRIM_SLURM_NAME];
  snprintf(first, sizeof first, "%s", sweep->slurm->arrays[0]->is.name);
  while (!two_submissions(sweep)) (void)turn(sweep);
  TURN_UNTIL(sweep, one_array);
  assert_string_equal(sweep->slurm->arrays[0]->is.job, "1");
  assert_string_not_equal(sweep->slurm->arrays[0]->is.name, first);
  // the rows of the first array are still in the queue, as ended; those of the second wait
  look_times(sweep, 4);
  assert_int_equal(sweep->slurm->count, 1);
  assert_int_equal(lines_of("sbatch.log"), 2);
  finish_all(sweep);
}

static void test_a_second_job_of_one_name(void **state) {
  (void)state;
  char row[256];
  brim_lab_sweep *sweep = start(1, 100);
  TURN_UNTIL(sweep, one_array);
  snprintf(row, sizeof row, "1|0|RUNNING|a|%s|None\n99|0|PENDING||%s|Priority\n",
           sweep->slurm->arrays[0]->is.name, sweep->slurm->arrays[0]->is.name);
  put("queue", row);
  look_times(sweep, 3);
  char *log = get("scancel.log");
  assert_int_equal(strncmp(log, "99\n", 3), 0);
  brim_free(log);
  assert_int_equal(lines_of("sbatch.log"), 1);
  finish_all(sweep);
}

//---------------------------------- elements that die ----------------------------------

static void test_without_accounts(void **state) {
  (void)state;
  brim_lab_sweep *sweep = start(2, 100);
  TURN_UNTIL(sweep, one_array);
  (void)claim(sweep, 0, 0);
  finish(sweep, 0, 1);
  put("queue", "");  // Slurm has forgotten them
  while (!two_submissions(sweep)) (void)turn(sweep);
  TURN_UNTIL(sweep, one_array);
  assert_int_equal(lines_of("sacct.log"), 1);  // tried once: there are no accounts
  assert_failure(sweep, 0, "infrastructure");
  assert_int_equal(state_of(sweep, 1), BRIM_EXP_DONE);
  assert_int_equal(sweep->slurm->arrays[0]->is.count, 1);
  assert_int_equal(sweep->slurm->arrays[0]->is.exps[0].attempt, 1);
  finish_all(sweep);
}

static void test_by_accounts(void **state) {
  (void)state;
  brim_lab_sweep *sweep = start(4, 100);
  TURN_UNTIL(sweep, one_array);
  const char *name = sweep->slurm->arrays[0]->is.name;
  char rows[1024];
  for (size_t i = 0; i < 4; i++) (void)claim(sweep, 0, i);
  snprintf(rows, sizeof rows,
           "1_0|%s|OUT_OF_MEMORY|0:125|n1\n1_1|%s|TIMEOUT|0:15|n1\n1_2|%s|NODE_FAIL|0:0|n1\n"
           "1_3|an-older-array|OUT_OF_MEMORY|0:0|n1\n77_3|%s|OUT_OF_MEMORY|0:0|n1\n"
           "1_3|%s|RUNNING|0:0|n1\n",
           name, name, name, name, name);
  put("account", rows);
  put("queue", "");
  while (!two_submissions(sweep)) (void)turn(sweep);
  TURN_UNTIL(sweep, three_tasks);
  char *log = get("sacct.log");
  has(log, "--parsable2");
  has(log, "--starttime=2");
  has(log, "--name=brim-grid-one-");
  brim_free(log);
  assert_int_equal(state_of(sweep, 0), BRIM_EXP_FAILED);
  assert_failure(sweep, 0, "oom_host");
  assert_failure(sweep, 1, "interrupted");
  assert_failure(sweep, 2, "infrastructure");
  // rows of another array, or of jobs that have not ended: unknown
  assert_failure(sweep, 3, "infrastructure");
  finish_all(sweep);
}

static void test_garbage_changes_nothing(void **state) {
  (void)state;
  brim_lab_sweep *sweep = start(2, 100);
  TURN_UNTIL(sweep, one_array);
  (void)claim(sweep, 0, 0);
  put("squeue.mode", "garbage");
  look_times(sweep, 5);
  assert_true(said(sweep, "lines that brim cannot read"));
  put("squeue.mode", "zero");  // a zero byte does not end the answer
  look_times(sweep, 5);
  assert_int_equal(state_of(sweep, 0), BRIM_EXP_LEASED);
  assert_each_once(sweep, 2);
  put("squeue.mode", "fail");
  look_times(sweep, 5);
  assert_true(said(sweep, "Unable to contact slurm controller"));
  assert_int_equal(state_of(sweep, 0), BRIM_EXP_LEASED);
  assert_each_once(sweep, 2);
  take_away("squeue.mode");
  look_times(sweep, 3);
  assert_int_equal(lines_of("sbatch.log"), 1);
  assert_each_once(sweep, 2);
  const brim_store_result done = {.outcome = BRIM_ATTEMPT_OK};
  brim_store_exp *exp = get_exp(sweep, 0);
  brim_store_ref ref = {.attempt = exp->attempt, .fence = exp->fence};
  snprintf(ref.exp, sizeof ref.exp, "%s", exp->id);
  brim_store_exp_free(exp);
  assert_ok(brim_store_finish(sweep->store, &ref, &done, NULL));
  finish(sweep, 0, 1);
  set_queue("COMPLETED");
  turn_until_done(sweep);
  brim_lab_sweep_close(sweep);
}

// A program that cannot even start: each element counts as an attempt, and the lab's limit ends them.
static void test_elements_that_never_start(void **state) {
  (void)state;
  brim_lab_sweep *sweep = start(1, 100);
  for (int i = 0; i < 6000 && state_of(sweep, 0) != BRIM_EXP_FAILED; i++) {
    if (sweep->slurm->count > 0 && sweep->slurm->arrays[0]->is.job[0]) set_queue("FAILED");
    (void)turn(sweep);
  }
  assert_int_equal(state_of(sweep, 0), BRIM_EXP_FAILED);
  assert_failure(sweep, 0, "infrastructure");
  assert_int_equal(lines_of("sbatch.log"), 11);  // the first, and ten without a new checkpoint
  turn_until_done(sweep);
  brim_lab_sweep_close(sweep);
}

static void test_scancel_pauses(void **state) {
  (void)state;
  brim_lab_sweep *sweep = start(2, 100);
  TURN_UNTIL(sweep, one_array);
  finish(sweep, 0, 1);
  set_queue("CANCELLED");
  TURN_UNTIL(sweep, no_array);
  assert_int_equal(state_of(sweep, 0), BRIM_EXP_PAUSED);
  assert_true(said(sweep, "was cancelled in Slurm"));
  assert_int_equal(lines_of("sbatch.log"), 1);
  assert_ok(brim_store_want(sweep->store, id_of(0), BRIM_WANT_RUN));
  TURN_UNTIL(sweep, one_array);
  finish_all(sweep);
}

// An ended element counts as past for the next sweep too.
static void test_ended_elements_stay_ended(void **state) {
  (void)state;
  brim_lab_sweep *sweep = start(2, 100);
  TURN_UNTIL(sweep, one_array);
  brim_store_ref ref = claim(sweep, 0, 0);
  const brim_store_result crash = {
      .outcome = BRIM_ATTEMPT_ERROR, .failure = BRIM_FAILURE_CRASH, .message = "crashed"};
  assert_ok(brim_store_finish(sweep->store, &ref, &crash, NULL));
  assert_int_equal(system("cd fake && sed -i 's/^1|0|PENDING/1|0|FAILED/' queue"), 0);
  while (!two_submissions(sweep)) (void)turn(sweep);
  while (!sweep->slurm->arrays[1]->is.job[0]) (void)turn(sweep);
  (void)claim(sweep, 1, 0);
  brim_lab_sweep_close(sweep);
  sweep = open_sweep();
  look_times(sweep, 4);
  assert_int_equal(state_of(sweep, 0), BRIM_EXP_LEASED);  // by the second array's element
  assert_each_once(sweep, 2);
  brim_lab_sweep_close(sweep);
}

//---------------------------------- stopping ----------------------------------

static void test_stopping(void **state) {
  (void)state;
  brim_slurm_array array;
  brim_lab_sweep *sweep = start(2, 100);
  TURN_UNTIL(sweep, one_array);
  char name[BRIM_SLURM_NAME];
  snprintf(name, sizeof name, "%s", sweep->slurm->arrays[0]->is.name);
  brim_store_ref ref = claim(sweep, 0, 0);
  brim_lab_sweep_stop(sweep);
  while (lines_of("scancel.log") < 2) (void)turn(sweep);
  assert_ok(brim_slurm_array_read("place", name, &array));
  assert_true(array.stop);  // elements that save do not queue themselves again
  brim_slurm_array_deinit(&array);
  char *log = get("scancel.log");
  has(log, "--state=PENDING");
  has(log, "--state=RUNNING --batch --signal=USR2");
  brim_free(log);
  const brim_store_result stopped = {.outcome = BRIM_ATTEMPT_STOPPED};
  assert_ok(brim_store_finish(sweep->store, &ref, &stopped, NULL));
  set_queue("CANCELLED");
  turn_until_done(sweep);
  assert_int_equal(brim_lab_sweep_end(sweep), BRIM_LAB_END_STOPPED);
  assert_int_equal(state_of(sweep, 0), BRIM_EXP_QUEUED);
  assert_int_equal(state_of(sweep, 1), BRIM_EXP_QUEUED);
  assert_int_equal(lines_of("sbatch.log"), 1);
  brim_lab_sweep_close(sweep);
}

int main(void) {
  char path[8192];
  if (!getcwd(fake, sizeof fake - 8)) return 1;
  strcat(fake, "/fake");
  snprintf(path, sizeof path, "%s/bin:%s", fake, getenv("PATH") ? getenv("PATH") : "");
  setenv("PATH", path, 1);
  setenv("FAKE", fake, 1);
  test_filter();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_arrays_are_split),
      cmocka_unit_test(test_ranks_and_the_script),
      cmocka_unit_test(test_one_machine_for_sqlite),
      cmocka_unit_test(test_a_lost_answer_of_a_submitted_array),
      cmocka_unit_test(test_a_lost_answer_of_no_array),
      cmocka_unit_test(test_an_answer_without_a_number),
      cmocka_unit_test(test_refusals),
      cmocka_unit_test(test_a_killed_sweep),
      cmocka_unit_test(test_reused_ids),
      cmocka_unit_test(test_a_second_job_of_one_name),
      cmocka_unit_test(test_without_accounts),
      cmocka_unit_test(test_by_accounts),
      cmocka_unit_test(test_garbage_changes_nothing),
      cmocka_unit_test(test_elements_that_never_start),
      cmocka_unit_test(test_scancel_pauses),
      cmocka_unit_test(test_ended_elements_stay_ended),
      cmocka_unit_test(test_stopping),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
