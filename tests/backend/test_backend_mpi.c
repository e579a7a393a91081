// The checks of every communicator over MPI: this program starts itself under mpirun, once per rank.
#include "backend/comm_checks.h"
#include "mpi_run.h"

static int run_rank(const char *what) {
  brim_comm *comm = NULL;
  int local_rank = -1, local_size = -1;
  if (brim_comm_open_mpi(&comm, &local_rank, &local_size)) {
    fprintf(stderr, "%s\n", brim_status_detail());
    return 1;
  }
  COMM_CHECK(strcmp(brim_comm_name(comm), "mpi") == 0);
  COMM_CHECK(local_size == brim_comm_size(comm) && local_rank == brim_comm_rank(comm));
  int failed = 0;
  if (strcmp(what, "checks") == 0) {
    failed = comm_checks(comm);
    // large enough for several chunks
    if (!failed) failed = comm_check_sum(comm, 2500001, BRIM_F32);
    if (!failed) printf("rank %d of %d is fine\n", brim_comm_rank(comm), brim_comm_size(comm));
  } else if (brim_comm_rank(comm) == 0) {
    // The other rank makes no call, so only abandoning can end this call.
    float values[3] = {0};
    COMM_CHECK(!brim_comm_post_all_reduce(comm, values, 3, BRIM_F32));
    brim_clock_sleep_ns(50 * 1000000);
    brim_comm_abandon(comm);
    COMM_CHECK(brim_comm_wait(comm) == BRIM_EIO);
    COMM_CHECK(strstr(brim_status_detail(), "rank 0 "));
    COMM_CHECK(brim_comm_broadcast(comm, values, 4, 0) == BRIM_EIO);
    printf("rank 0 is awake\n");
    failed = 1;
  } else {
    for (;;) brim_clock_sleep_ns(1000000000);  // until mpirun ends this rank
  }
  fflush(stdout);
  brim_comm_destroy(comm);
  return failed;
}

static const char *self;

static process_result run_ranks(const char *ranks, const char *what) {
  const char *argv[16];
  size_t n = mpi_arguments(ranks, argv);
  argv[n++] = self;
  argv[n++] = what;
  argv[n] = NULL;
  return process_run(argv, NULL, 240000);
}

static void check_ranks(const char *ranks) {
  process_result result = run_ranks(ranks, "checks");
  int fine = 0;
  for (const char *at = result.output; (at = strstr(at, " is fine")) != NULL; at++) fine++;
  if (result.exit_code != 0 || fine != atoi(ranks)) fail_msg("%s", result.output);
  brim_free(result.output);
}

static void test_1_rank(void **state) {
  (void)state;
  check_ranks("1");
}

static void test_2_ranks(void **state) {
  (void)state;
  check_ranks("2");
}

static void test_3_ranks(void **state) {
  (void)state;
  check_ranks("3");
}

static void test_4_ranks(void **state) {
  (void)state;
  check_ranks("4");
}

// mpirun ends the other rank if one exits with a failure.
static void test_abandon(void **state) {
  (void)state;
  process_result result = run_ranks("2", "abandon");
  if (result.exit_code == 0 || !strstr(result.output, "rank 0 is awake")) {
    fail_msg("%s", result.output);
  }
  brim_free(result.output);
}

// Without the plug-in the message has the reason and a remedy.
static void test_missing(void **state) {
  (void)state;
  setenv("BRIM_PLUGIN_PATH", "/nowhere:/nor/here", 1);
  brim_comm *comm = NULL;
  int local_rank, local_size;
  assert_status(brim_comm_open_mpi(&comm, &local_rank, &local_size), BRIM_ENOENT);
  assert_null(comm);
  assert_non_null(strstr(brim_status_detail(), "libopenmpi-dev"));
  unsetenv("BRIM_PLUGIN_PATH");
}

int main(int argc, char **argv) {
  if (argc > 1) return run_rank(argv[1]);
  self = argv[0];
  const char *why;
  if (!mpi_is_here(BRIM_BUILD_DIR "/lib/brim/ranks/libbrim_mpi.so", &why)) BRIM_SKIP_ALL(why);
  setenv("ASAN_OPTIONS", "detect_leaks=0", 1);  // MPI leaks its own memory
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_1_rank),  cmocka_unit_test(test_2_ranks),
      cmocka_unit_test(test_3_ranks), cmocka_unit_test(test_4_ranks),
      cmocka_unit_test(test_abandon), cmocka_unit_test(test_missing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
