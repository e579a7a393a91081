// Ranks as processes of this machine: one is killed, stopped or fails, and all others end and name it.
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "run/run_int.h"
#include "test.h"

#define RANKS 3
#define SECOND_NS ((int64_t)1000000000)

// The result of a rank, in memory that it shares with the test.
typedef struct outcome {
  volatile int pid;     // set once all ranks have come
  volatile int ended;   // the other members are set
  volatile int go;      // set by the test: the rank continues with its part
  volatile int asleep;  // the rank does not come to its next exchange
  brim_status status;
  bool reports, stuck;
  char detail[1400];
} outcome;

typedef enum part { WORKS, FAILS, SLEEPS, LEAVES } part;

static outcome *outcomes;  // (RANKS)
static pid_t pids[RANKS];

static void on_stuck(void *ctx, const char *why) {
  outcome *mine = ctx;
  mine->stuck = true;
  snprintf(mine->detail, sizeof mine->detail, "%s", why);
  mine->status = BRIM_ERANK;
  mine->ended = 1;
  _exit(5);
}

static brim_status work(brim_ranks *ranks, part mine, outcome *out) {
  for (int64_t step = 0;; step++) {
    double value = (double)step;
    BRIM_TRY(brim_comm_all_reduce(ranks->comm, &value, 1, BRIM_F64));
    if (value != (double)(step * RANKS)) return brim_fail(BRIM_EINTERNAL, "a wrong sum");
    int64_t stop = mine == LEAVES && out->go;
    BRIM_TRY(brim_comm_all_reduce(ranks->comm, &stop, 1, BRIM_I64));
    if (stop) return BRIM_OK;
    if (mine == FAILS && out->go) return brim_fail(BRIM_EOOM, "the card of this rank is full");
    while (mine == SLEEPS && out->go) {
      out->asleep = 1;
      brim_clock_sleep_ns(SECOND_NS / 100);
    }
    brim_clock_sleep_ns(SECOND_NS / 1000);
  }
}

static int run_rank(const char *name, int rank, part mine, bool over_tcp) {
  outcome *out = &outcomes[rank];
  brim_ranks_place place = {.origin = BRIM_RANKS_BRIM, .rank = rank, .size = RANKS};
  snprintf(place.name, sizeof place.name, "%s", name);
  const brim_ranks_options options = {.on_stuck = on_stuck, .ctx = out, .over_tcp = over_tcp};
  brim_ranks *ranks = NULL;
  brim_status status = brim_ranks_open(&place, &options, &ranks);
  if (status) {
    fprintf(stderr, "rank %d: %s\n", rank, brim_status_detail());
    return 1;
  }
  out->pid = (int)getpid();
  status = work(ranks, mine, out);
  if (status) status = brim_ranks_fail(ranks, status);
  out->status = status;
  out->reports = brim_ranks_reports(ranks);
  snprintf(out->detail, sizeof out->detail, "%s", status ? brim_status_detail() : "");
  out->ended = 1;
  brim_ranks_close(ranks);
  return 0;
}

static void start(const part parts[RANKS], bool over_tcp) {
  static int used;
  char name[64];
  snprintf(name, sizeof name, "/brim-test-ranks-%d-%d", (int)getpid(), used++);
  outcomes = mmap(NULL, RANKS * sizeof *outcomes, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(outcomes != MAP_FAILED);
  for (int r = 0; r < RANKS; r++) {
    fflush(NULL);
    pids[r] = fork();
    assert_true(pids[r] >= 0);
    if (pids[r] == 0) _exit(run_rank(name, r, parts[r], over_tcp));
  }
  for (int r = 0; r < RANKS; r++) {
    for (int i = 0; !outcomes[r].pid; i++) {
      assert_true(i < 60000);
      brim_clock_sleep_ns(SECOND_NS / 500);
    }
  }
}

// Waits for every rank except `lost`. Prints how long the slowest took.
static void finish(int lost) {
  brim_time begin = brim_clock_now();
  for (int r = 0; r < RANKS; r++) {
    for (int i = 0; r != lost && !outcomes[r].ended; i++) {
      assert_true(i < 60000);
      brim_clock_sleep_ns(SECOND_NS / 500);
    }
  }
  printf("all others ended within %.2f s\n",
         (double)brim_time_since_ns(begin, brim_clock_now()) / 1e9);
  if (lost >= 0) kill(pids[lost], SIGKILL);
  for (int r = 0; r < RANKS; r++) assert_int_equal(waitpid(pids[r], NULL, 0), pids[r]);
}

static void end(void) {
  munmap(outcomes, RANKS * sizeof *outcomes);
  outcomes = NULL;
}

static void expect_named(int rank, int lost, const char *words) {
  char who[64];
  snprintf(who, sizeof who, "rank %d (host ", lost);
  assert_int_equal(outcomes[rank].status, BRIM_ERANK);
  if (!strstr(outcomes[rank].detail, who)) fail_msg("rank %d: %s", rank, outcomes[rank].detail);
  snprintf(who, sizeof who, "PID %d)", (int)pids[lost]);
  if (!strstr(outcomes[rank].detail, who)) fail_msg("rank %d: %s", rank, outcomes[rank].detail);
  if (!strstr(outcomes[rank].detail, words)) fail_msg("rank %d: %s", rank, outcomes[rank].detail);
}

static void lose(int lost, int number, const char *words, bool over_tcp) {
  start((const part[RANKS]){WORKS, WORKS, WORKS}, over_tcp);
  assert_int_equal(kill(pids[lost], number), 0);
  finish(lost);
  int reports = 0;
  for (int r = 0; r < RANKS; r++) {
    if (r == lost) continue;
    expect_named(r, lost, words);
    reports += outcomes[r].reports;
  }
  // The loss of rank 0 is reported by the launcher.
  assert_int_equal(reports, lost == 0 ? 0 : 1);
  end();
}

static void test_killed(void **state) {
  (void)state;
  lose(1, SIGKILL, "ended without a reason", false);
}

static void test_killed_first(void **state) {
  (void)state;
  lose(0, SIGKILL, "ended without a reason", false);
}

static void test_killed_over_tcp(void **state) {
  (void)state;
  lose(2, SIGKILL, "ended without a reason", true);
}

static void test_stopped(void **state) {
  (void)state;
  lose(2, SIGSTOP, "no sign of life for 5 seconds", false);
}

static void test_stopped_first(void **state) {
  (void)state;
  lose(0, SIGSTOP, "no sign of life for 5 seconds", false);
}

static void fails(int failing) {
  part parts[RANKS] = {WORKS, WORKS, WORKS};
  parts[failing] = FAILS;
  start(parts, false);
  outcomes[failing].go = 1;
  finish(-1);
  assert_int_equal(outcomes[failing].status, BRIM_EOOM);
  assert_string_equal(outcomes[failing].detail, "the card of this rank is full");
  for (int r = 0; r < RANKS; r++) {
    if (r != failing) expect_named(r, failing, "failed: the card of this rank is full");
    assert_int_equal(outcomes[r].reports, r == 0);
    assert_false(outcomes[r].stuck);
  }
  end();
}

static void test_fails(void **state) {
  (void)state;
  fails(2);
}

static void test_fails_first(void **state) {
  (void)state;
  fails(0);
}

// A rank that misses its next exchange is ended by its watch.
static void test_stuck(void **state) {
  (void)state;
  start((const part[RANKS]){SLEEPS, WORKS, WORKS}, false);
  outcomes[0].go = 1;
  while (!outcomes[0].asleep) brim_clock_sleep_ns(SECOND_NS / 500);
  assert_int_equal(kill(pids[1], SIGKILL), 0);
  finish(1);
  for (int r = 0; r < RANKS; r++) {
    if (r != 1) expect_named(r, 1, "ended without a reason");
    assert_int_equal(outcomes[r].stuck, r == 0);
  }
  end();
}

// One rank requests a stop and all stop; none takes the others' end for a failure.
static void test_agreed_stop(void **state) {
  (void)state;
  start((const part[RANKS]){WORKS, LEAVES, WORKS}, false);
  outcomes[1].go = 1;
  finish(-1);
  for (int r = 0; r < RANKS; r++) assert_int_equal(outcomes[r].status, BRIM_OK);
  end();
}

//---------------------------------- the environment ----------------------------------

static const char *const *fake;  // name, value, ..., NULL

static char *fake_get(const char *name) {
  for (const char *const *at = fake; *at; at += 2) {
    if (strcmp(at[0], name) == 0) return (char *)(uintptr_t)at[1];
  }
  return NULL;
}

static const struct {
  const char *env[16];
  brim_status status;
  brim_ranks_origin origin;
  int rank, size, local_rank, local_size;
} cases[] = {
    {{"HOME", "/"}, BRIM_OK, BRIM_RANKS_ALONE, 0, 1, 0, 1},
    {{"BRIM_RANK", "1", "BRIM_RANKS", "3", "BRIM_RANKS_NAME", "/x"},
     BRIM_OK,
     BRIM_RANKS_BRIM,
     1,
     3,
     1,
     3},
    {{"BRIM_RANK", "1", "BRIM_RANKS", "3"}, BRIM_EINVAL, 0, 0, 0, 0, 0},
    {{"BRIM_RANK", "3", "BRIM_RANKS", "3", "BRIM_RANKS_NAME", "/x"}, BRIM_EINVAL, 0, 0, 0, 0, 0},
    {{"BRIM_RANK", "one", "BRIM_RANKS", "3", "BRIM_RANKS_NAME", "/x"}, BRIM_EINVAL, 0, 0, 0, 0, 0},
    {{"OMPI_COMM_WORLD_SIZE", "4", "OMPI_COMM_WORLD_RANK", "2", "OMPI_COMM_WORLD_LOCAL_RANK", "0",
      "OMPI_COMM_WORLD_LOCAL_SIZE", "2", "SLURM_STEP_ID", "0", "SLURM_NTASKS", "1", "SLURM_PROCID",
      "0"},
     BRIM_OK,
     BRIM_RANKS_MPI,
     2,
     4,
     0,
     2},
    {{"BRIM_RANK", "0", "BRIM_RANKS", "1", "SLURM_STEP_ID", "0", "SLURM_NTASKS", "4",
      "SLURM_PROCID", "2"},
     BRIM_OK,
     BRIM_RANKS_ALONE,
     0,
     1,
     0,
     1},
    {{"OMPI_COMM_WORLD_SIZE", "1", "OMPI_COMM_WORLD_RANK", "0"},
     BRIM_OK,
     BRIM_RANKS_ALONE,
     0,
     1,
     0,
     1},
    {{"PMI_SIZE", "2", "PMI_RANK", "1"}, BRIM_OK, BRIM_RANKS_MPI, 1, 2, -1, -1},
    {{"SLURM_NTASKS", "2", "SLURM_PROCID", "0", "SLURM_LOCALID", "0"},
     BRIM_OK,
     BRIM_RANKS_ALONE,
     0,
     1,
     0,
     1},
    {{"SLURM_NTASKS", "8", "SLURM_STEP_NUM_TASKS", "2", "SLURM_PROCID", "1", "SLURM_LOCALID", "1",
      "SLURM_STEP_ID", "0"},
     BRIM_OK,
     BRIM_RANKS_MPI,
     1,
     2,
     1,
     -1},
    {{"SLURM_NTASKS", "1", "SLURM_PROCID", "0", "SLURM_STEP_ID", "0"},
     BRIM_OK,
     BRIM_RANKS_ALONE,
     0,
     1,
     0,
     1},
    {{"PMI_SIZE", "9999", "PMI_RANK", "1"}, BRIM_EINVAL, 0, 0, 0, 0, 0},
};

// Rank 1 connects after strangers that send nothing, or something other than a greeting.
static int come_late(const brim_ranks_address *address) {
  struct sockaddr_in6 at = {.sin6_family = AF_INET6,
                            .sin6_addr = IN6ADDR_LOOPBACK_INIT,
                            .sin6_port = htons((uint16_t)address->port)};
  struct sockaddr_in four = {.sin_family = AF_INET,
                             .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)},
                             .sin_port = htons((uint16_t)address->port)};
  for (int i = 0; i < 3; i++) {
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&at, sizeof at)) {
      fd = socket(AF_INET, SOCK_STREAM, 0);
      if (fd < 0 || connect(fd, (struct sockaddr *)&four, sizeof four)) return 2;
    }
    if (i == 1 && write(fd, "GET / HTTP/1.0\r\n\r\n", 18) != 18) return 3;
  }
  brim_ranks_message hello = {.rank = 1, .pid = (int32_t)getpid()};
  brim_ranks_wire wire;
  if (brim_ranks_connect(address, &hello, brim_clock_now().ns + 60 * SECOND_NS, &wire)) return 4;
  brim_ranks_message last = {.kind = BRIM_RANKS_FAIL, .rank = 1, .text = "is there"};
  brim_ranks_send(&wire, &last);
  pause();  // until it is killed
  return 0;
}

// Every process that rank 0 accepted is a rank, and is still there.
static void test_strangers(void **state) {
  (void)state;
  brim_ranks_address address;
  int listener = -1;
  brim_ranks_wire wire;
  assert_int_equal(brim_ranks_listen(true, &address, &listener), BRIM_OK);
  fflush(NULL);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) _exit(come_late(&address));
  brim_ranks_door *door = brim_ranks_door_open(listener, &address);
  assert_non_null(door);
  assert_int_equal(brim_ranks_accept(door, brim_clock_now().ns + 60 * SECOND_NS, &wire), BRIM_OK);
  assert_int_equal(wire.in.rank, 1);
  assert_int_equal(wire.in.pid, child);
  for (int i = 0; wire.fd >= 0 && !brim_ranks_receive(&wire); i++) {
    assert_true(i < 30000);
    brim_clock_sleep_ns(SECOND_NS / 500);
  }
  assert_true(wire.fd >= 0);
  assert_int_equal(wire.in.kind, BRIM_RANKS_FAIL);
  assert_string_equal(wire.in.text, "is there");
  brim_ranks_wire_close(&wire);
  brim_ranks_door_close(door);
  close(listener);
  kill(child, SIGKILL);
  assert_int_equal(waitpid(child, NULL, 0), child);
}

static void test_find(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    brim_ranks_place place;
    fake = cases[i].env;
    assert_status(brim_ranks_find(fake_get, &place), cases[i].status);
    if (cases[i].status) continue;
    assert_int_equal(place.origin, cases[i].origin);
    assert_int_equal(place.rank, cases[i].rank);
    assert_int_equal(place.size, cases[i].size);
    assert_int_equal(place.local_rank, cases[i].local_rank);
    assert_int_equal(place.local_size, cases[i].local_size);
  }
}

static void expect_device(const brim_ranks *ranks, const char *const *devices, size_t count,
                          int gpus, const char *expected) {
  char text[32];
  brim_ranks_device(ranks, devices, count, gpus, text, sizeof text);
  assert_string_equal(text, expected);
}

static void test_shares(void **state) {
  (void)state;
  const brim_ranks third = {.local_rank = 2, .local_size = 3, .cpu_ranks = 3};
  static const char *const list[] = {"cuda:4", "cuda:5"}, *const any[] = {"auto"},
                           *const cuda[] = {"cuda"}, *const one[] = {"cuda:1"},
                           *const cpu[] = {"cpu"};
  expect_device(&third, any, 1, 8, "cuda:2");
  expect_device(&third, cuda, 1, 8, "cuda:2");
  expect_device(&third, cuda, 1, 2, "cuda:0");  // shared with another rank
  expect_device(&third, any, 1, 0, "auto");
  expect_device(&third, one, 1, 8, "cuda:1");
  expect_device(&third, cpu, 1, 8, "cpu");
  expect_device(&third, list, 2, 8, "cuda:4");
  expect_device(NULL, any, 1, 8, "auto");
  expect_device(NULL, one, 1, 8, "cuda:1");
  assert_int_equal(brim_ranks_threads(&third, 16), 5);
  assert_int_equal(brim_ranks_threads(&third, 2), 1);
  assert_int_equal(brim_ranks_threads(NULL, 16), 16);
}

// A process without ranks counts as one rank.
static void test_alone(void **state) {
  (void)state;
  const brim_ranks_place place = {.size = 1};
  const brim_ranks_options options = {0};
  brim_ranks *ranks = NULL;
  assert_ok(brim_ranks_open(&place, &options, &ranks));
  assert_null(ranks);
  assert_int_equal(brim_ranks_size(ranks), 1);
  assert_int_equal(brim_ranks_rank(ranks), 0);
  assert_null(brim_ranks_comm(ranks));
  assert_int_equal(brim_ranks_fail(ranks, BRIM_EIO), BRIM_EIO);
  assert_true(brim_ranks_reports(ranks));
  brim_ranks_close(ranks);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_killed),
      cmocka_unit_test(test_killed_first),
      cmocka_unit_test(test_killed_over_tcp),
      cmocka_unit_test(test_stopped),
      cmocka_unit_test(test_stopped_first),
      cmocka_unit_test(test_fails),
      cmocka_unit_test(test_fails_first),
      cmocka_unit_test(test_stuck),
      cmocka_unit_test(test_agreed_stop),
      cmocka_unit_test(test_strangers),
      cmocka_unit_test(test_find),
      cmocka_unit_test(test_shares),
      cmocka_unit_test(test_alone),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
