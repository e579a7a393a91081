// `brim data`: make, info, convert and verify in every format, compared byte by byte through the sources; broken files;
// errors that leave no files; JSON.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli_test.h"
#include "data/data.h"

static void remove_all(const char *names) {
  shell_result r = shell("rm -rf %s", names);
  shell_free(&r);
}

static brim_argument int_arg(const char *name, int64_t value) {
  return (brim_argument){
      .name = name, .value = {.kind = BRIM_VALUE_INT, .integer = value, .number = (double)value}};
}

static brim_argument word_arg(const char *name, const char *value) {
  return (brim_argument){.name = name, .value = {.kind = BRIM_VALUE_STRING, .string = value}};
}

static brim_source *open_set(const char *name, const brim_argument *args, size_t count,
                             const char *path, const char *split) {
  brim_component c = {.name = name, .args = args, .arg_count = count};
  brim_source *source = NULL;
  assert_ok(brim_source_open(NULL, &c, path, split, 0, &source));
  return source;
}

// Opens the source that `brim data make` reads, with the arguments the command was given.
static brim_source *open_synthetic(const int64_t *dims, size_t rank, int64_t classes,
                                   int64_t targets, const char *dtype, const char *split) {
  brim_value items[4];
  memset(items, 0, sizeof items);
  for (size_t i = 0; i < rank; i++) items[i] = int_arg("", dims[i]).value;
  brim_argument args[7] = {
      {.name = "shape", .value = {.kind = BRIM_VALUE_LIST, .items = items, .count = rank}},
      int_arg("classes", targets ? 0 : classes),
      int_arg("samples", 37),
      int_arg("val_samples", 11),
      int_arg("seed", 5),
      word_arg("dtype", dtype),
      int_arg("targets", targets)};
  return open_set("synthetic", args, targets ? 7 : 6, NULL, split);
}

// An image's number comes from the order of names, not from its place in the folder.
static uint64_t number_of(const brim_source *source, uint64_t index) {
  char text[512];
  if (strcmp(source->table->name, "folder") != 0) return index;
  brim_source_describe(source, index, text, sizeof text);
  const char *slash = strrchr(text, '/');
  return strtoull(slash ? slash + 1 : text, NULL, 10);
}

static void compare(brim_source *made, brim_source *read, bool lossy) {
  assert_int_equal(made->info.count, read->info.count);
  assert_int_equal(made->input_bytes, read->input_bytes);
  assert_int_equal(made->target_bytes, read->target_bytes);
  uint8_t *a = malloc(made->input_bytes), *b = malloc(made->input_bytes);
  float *x = malloc(made->target_bytes + 4), *y = malloc(made->target_bytes + 4);
  assert_true(a && b && x && y);
  for (uint64_t i = 0; i < read->info.count; i++) {
    uint64_t from = number_of(read, i);
    assert_ok(brim_source_read(made, from, 1, a, x, NULL, NULL));
    assert_ok(brim_source_read(read, i, 1, b, y, NULL, NULL));
    if (!lossy) assert_memory_equal(a, b, made->input_bytes);
    assert_memory_equal(x, y, made->target_bytes);
  }
  free(a);
  free(b);
  free(x);
  free(y);
}

typedef struct format_case {
  const char *options;  // options of make
  const char *source;
  int64_t dims[4];
  size_t rank;
  int64_t classes, targets;
  const char *dtype;
  bool lossy;
} format_case;

static const format_case cases[] = {
    {"--shape 9,7,2 --dtype f32 --classes 4", "hdf5", {9, 7, 2}, 3, 4, 0, "f32", false},
    {"--shape 9,7,2 --dtype f32 --targets 3", "hdf5", {9, 7, 2}, 3, 0, 3, "f32", false},
    {"--shape 12,10,3 --classes 4 --chunk 8", "hdf5", {12, 10, 3}, 3, 4, 0, "u8", false},
    {"--shape 129,2 --dtype f32 --chunk 5 --deflate 6 --shuffle",
     "hdf5",
     {129, 2},
     2,
     10,
     0,
     "f32",
     false},
    {"--shape 6,5,4,3 --deflate 1", "hdf5", {6, 5, 4, 3}, 4, 10, 0, "u8", false},
    {"--shape 100 --shuffle", "hdf5", {100}, 1, 10, 0, "u8", false},
    {"--format idx", "idx", {28, 28}, 2, 10, 0, "u8", false},
    {"--format idx --shape 7 --dtype f32 --targets 2", "idx", {7}, 1, 0, 2, "f32", false},
    {"--format idx --shape 5,3 --classes 300", "idx", {5, 3}, 2, 300, 0, "u8", false},
    {"--format cifar", "cifar10", {32, 32, 3}, 3, 10, 0, "u8", false},
    {"--format cifar --classes 90", "cifar100", {32, 32, 3}, 3, 90, 0, "u8", false},
    {"--format stl10", "stl10", {96, 96, 3}, 3, 10, 0, "u8", false},
    {"--format folder --shape 17,13,3 --classes 3", "folder", {17, 13, 3}, 3, 3, 0, "u8", false},
    {"--format jpg --shape 17,13,3 --classes 3", "folder", {17, 13, 3}, 3, 3, 0, "u8", true},
};

// Makes a set, reads it with its source, converts it to HDF5 with chunks, and reads that.
static void test_round_trips(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    const format_case *c = &cases[i];
    remove_all("set set.h5");
    shell_result r = shell(
        "brim data make set --samples 37 --test-samples 11 --seed 5 --threads 3 %s", c->options);
    if (r.code) fail_msg("%s: exit %d: %s", c->options, r.code, r.err);
    assert_non_null(strstr(r.out, "train 37 + test 11"));
    shell_free(&r);
    r = shell("brim data convert set set.h5 --chunk 4 --deflate 2 --dataset '%s%s'", c->source,
              strcmp(c->source, "idx") == 0 && c->classes > 10 ? "(classes=300)" : "");
    if (r.code) fail_msg("convert %s: exit %d: %s", c->options, r.code, r.err);
    shell_free(&r);
    static const char *const splits[] = {"train", "test"};
    for (size_t s = 0; s < 2; s++) {
      brim_source *made =
          open_synthetic(c->dims, c->rank, c->classes, c->targets, c->dtype, splits[s]);
      brim_argument classes = int_arg("classes", c->classes);
      bool tell = strcmp(c->source, "idx") == 0 && c->classes > 0;
      brim_source *read = open_set(c->source, tell ? &classes : NULL, tell, "set", splits[s]);
      compare(made, read, c->lossy);
      brim_source *packed = open_set("hdf5", NULL, 0, "set.h5", splits[s]);
      if (strcmp(c->source, "folder") != 0) compare(made, packed, c->lossy);
      if (strcmp(c->source, "folder") == 0) assert_int_equal(packed->info.count, read->info.count);
      brim_source_close(packed);
      brim_source_close(read);
      brim_source_close(made);
    }
  }
  remove_all("set set.h5");
}

// Samples without labels, beside labelled ones and alone: the same ones in every format.
static void test_make_unlabeled(void **state) {
  (void)state;
  static const int64_t dims[] = {96, 96, 3};
  remove_all("set set.h5");
  expect(0, "train 37 + test 11 + unlabeled 7",
         "brim data make set --format stl10 --samples 37 --test-samples 11 --seed 5 "
         "--unlabeled-samples 7");
  expect(0, NULL, "test $(stat -c %s set/unlabeled_X.bin) = $((7 * 27648))");
  expect(0, "unlabeled", "brim data info set --split unlabeled");
  says(0, "brim data verify set");
  expect(0, "unlabeled 7",
         "brim data make set.h5 --shape 96,96,3 --samples 37 --test-samples 11 --seed 5 "
         "--unlabeled-samples 7");
  brim_source *a = open_set("stl10", NULL, 0, "set", "unlabeled");
  brim_source *b = open_set("hdf5", NULL, 0, "set.h5", "unlabeled");
  assert_int_equal(a->target_bytes, 0);
  compare(a, b, false);
  brim_source_close(a);
  brim_source_close(b);
  // the labelled samples are those of a set without the others
  a = open_synthetic(dims, 3, 10, 0, "u8", "train");
  b = open_set("stl10", NULL, 0, "set", "train");
  compare(a, b, false);
  brim_source_close(a);
  brim_source_close(b);
  remove_all("set");
  expect(0, "stl10, unlabeled 3 samples",
         "brim data make set --format stl10 --samples 0 --unlabeled-samples 3 && "
         "test ! -e set/train_X.bin");
  says(2, "brim data make other --format stl10 --samples 0");
  says(2, "brim data make other --format idx --unlabeled-samples 3");
  remove_all("set set.h5");
}

static void test_info(void **state) {
  (void)state;
  remove_all("set set.h5");
  expect(0, NULL, "brim data make set.h5 --shape 12,10,3 --classes 4 --samples 50 --chunk 8");
  expect(0, "chunked (8, 12, 10, 3)", "brim data info set.h5");
  expect(0, "(12, 10, 3) uint8", "brim data info set.h5 --split test");
  says_rows(0, "  samples  ", "brim data info set.h5 --samples 20 --split train");
  shell_result r = shell("brim data info set.h5 --json --quiet");
  assert_int_equal(r.code, 0);
  assert_int_equal(json_lines(r.out), 3);  // one for the files, two for the splits
  assert_non_null(strstr(r.out, "\"datasets\":[{\"name\":\"/test/x\",\"shape\":[10,12,10,3]"));
  char *line = strstr(r.out, "{\"event\":\"info\"");
  assert_non_null(line);
  json_t *info = NULL;
  assert_ok(brim_json_parse(line, strcspn(line, "\n"), "stdout", &info));
  assert_int_equal(json_integer_value(json_object_get(info, "samples")), 50);
  assert_int_equal(json_array_size(json_object_get(info, "channels")), 3);
  json_t *counts = json_object_get(info, "class_counts");
  json_int_t sum = 0;
  for (size_t i = 0; i < json_array_size(counts); i++) {
    sum += json_integer_value(json_array_get(counts, i));
  }
  assert_int_equal(json_array_size(counts), 4);
  assert_int_equal(sum, 50);
  json_t *channel = json_array_get(json_object_get(info, "channels"), 0);
  double mean = json_number_value(json_object_get(channel, "mean"));
  assert_true(mean > 0.45 && mean < 0.55);
  assert_int_equal(json_integer_value(json_object_get(info, "gpu_bytes")), 50 * (360 + 4));
  assert_true(json_integer_value(json_object_get(info, "ram_bytes")) >= 50 * (360 + 4));
  // rows in chunks are not mapped
  assert_true(json_is_false(json_object_get(info, "mapped_rows")));
  json_decref(info);
  shell_free(&r);
  expect(0, "synthetic", "brim data info --dataset 'synthetic(samples=10)' --json");
  remove_all("set.h5");
  expect(0, NULL, "brim data make set.h5 --shape 12,10,3 --classes 4 --samples 50");
  expect(0, "\"mapped_rows\":true", "brim data info set.h5 --json --quiet");
  expect(0, "a GPU can read the rows there directly", "brim data info set.h5");
  remove_all("set.h5");
}

// A set with a known pixel value: checks the numbers of info, not only their presence.
static void test_info_measures(void **state) {
  (void)state;
  remove_all("known");
  assert_ok(brim_fs_mkdirs("known"));
  static const uint8_t images[] = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2, 0, 255, 51, 51};
  static const uint8_t labels[] = {0, 0, 8, 1, 0, 0, 0, 2, 1, 1};
  assert_ok(brim_fs_write("known/train-images-idx3-ubyte", images, sizeof images));
  assert_ok(brim_fs_write("known/train-labels-idx1-ubyte", labels, sizeof labels));
  expect(0, "\"mean\":0.35,\"std\":0.3840572873934304,\"min\":0,\"max\":255",
         "brim data info known --json");
  expect(0, "\"class_counts\":[0,2,0,0,0,0,0,0,0,0]", "brim data info known --json");
  says(0, "brim data verify known");
  remove_all("known");
}

static void test_folder_to_packed(void **state) {
  (void)state;
  remove_all("a b mix mix.h5 back");
  expect(0, NULL,
         "brim data make a --format png --shape 20,30,3 --samples 20 --classes 2 && "
         "brim data make b --format jpg --shape 40,24,3 --samples 20 --classes 2 && "
         "mkdir -p mix/train/cat mix/train/dog && cp a/train/0/* b/train/0/* mix/train/cat && "
         "cp a/train/1/* b/train/1/* mix/train/dog");
  expect(0, "20 x 30 to 40 x 24", "brim data info mix");
  says(2, "brim data convert mix mix.h5");
  assert_false(has_file("mix.h5"));
  expect(0, "(16, 18, 3) uint8", "brim data convert mix mix.h5 --resize 16,18");
  expect(0, "\"class_names\":[\"cat\",\"dog\"]", "brim data info mix.h5 --json");
  expect(0, NULL, "brim data convert mix.h5 back --format png && ls back/train/cat back/train/dog");
  // broken records are named; one of them ends a conversion unless an option skips it
  expect(0, NULL,
         "f=$(ls mix/train/cat/*.png | head -1); head -c 200 $f > short && mv short $f; "
         "f=$(ls mix/train/dog/*.jpg | head -1); echo no image > $f");
  expect(1, "mix/train/cat/0000", "brim data verify mix");
  says(1, "brim data verify mix");
  says(1, "brim data verify mix --limit 1");
  shell_result r = shell("brim data verify mix --json");
  assert_int_equal(r.code, 1);
  assert_true(json_lines(r.out) >= 2);
  assert_non_null(strstr(r.out, "\"broken\":2"));
  shell_free(&r);
  expect(2, "mix/train/", "brim data convert mix mix.h5 --resize 16,18 --force");
  says(0, "brim data convert mix mix.h5 --resize 16,18 --force --on-error skip");
  says(0, "brim data verify mix.h5");
  remove_all("a b mix mix.h5 back");
}

static void flip_byte(const char *path, long offset, uint8_t value) {
  FILE *f = fopen(path, "r+b");
  assert_non_null(f);
  assert_int_equal(fseek(f, offset, SEEK_SET), 0);
  assert_int_equal(fputc(value, f), value);
  assert_int_equal(fclose(f), 0);
}

static void test_verify(void **state) {
  (void)state;
  remove_all("set set.h5");
  expect(0, NULL, "brim data make set --format cifar --samples 20");
  says(0, "brim data verify set --duplicates");
  says(0, "brim data verify set --duplicates");
  // the second record of the first file becomes a copy of the first, under another label
  expect(0, NULL,
         "head -c 3073 set/data_batch_1.bin > one && tail -c +6147 set/data_batch_1.bin > rest && "
         "cat one one rest > set/data_batch_1.bin");
  FILE *f = fopen("set/data_batch_1.bin", "rb");
  assert_non_null(f);
  int label = fgetc(f);
  fclose(f);
  flip_byte("set/data_batch_1.bin", 3073, (uint8_t)((label + 1) % 10));
  says(0, "brim data verify set --duplicates");
  flip_byte("set/data_batch_2.bin", 0, 77);
  says(1, "brim data verify set");
  expect(0, NULL, "truncate -s -1 set/test_batch.bin");
  expect(1, "test_batch.bin", "brim data verify set --split test");
  // chunks that do not unpack
  expect(0, NULL, "brim data make set.h5 --samples 40 --test-samples 0 --chunk 4 --deflate 3");
  struct stat st;
  assert_int_equal(stat("set.h5", &st), 0);
  for (long at = st.st_size / 2; at < st.st_size / 2 + 64; at++) flip_byte("set.h5", at, 0xff);
  says(1, "brim data verify set.h5");
  expect(1, "set.h5", "brim data verify set.h5");
  remove_all("set set.h5 one rest");
}

static void test_errors(void **state) {
  (void)state;
  remove_all("set set.h5 other");
  says(2, "brim data");
  says(2, "brim data verfy x");
  says(2, "brim data info nowhere");
  says(2, "brim data convert one");
  says(2, "brim data make set.h5 --samples 0");
  says(2, "brim data make set.h5 --shape 3,x");
  says(2, "brim data make set --format idx --chunk 3");
  says(2, "brim data make set.h5 --classes 3 --targets 2");
  says(2, "brim data make set --format cifar --shape 28,28");
  says(2, "brim data make nowhere/set.h5");
  assert_false(has_file("set.h5"));
  expect(0, NULL, "brim data make set.h5 --samples 20");
  says(2, "brim data make set.h5 --samples 20");
  expect(0, "train 30", "brim data make set.h5 --samples 30 --force");
  says(2, "brim data convert set.h5 ./set.h5 --force");
  says(2,
       "brim data make set --format png --shape 8,8,3 --samples 4 --classes 2 && "
       "brim data convert set/train set --format png --force");
  assert_true(has_file("set/train/0"));
  remove_all("set");
  // a folder that brim did not write is never replaced
  says(2, "mkdir other && echo mine > other/notes && brim data make other --format idx --force");
  assert_true(has_file("other/notes"));
  // nor is one that has a data set among other things, or an image somewhere below
  says(2,
       "brim data make other/train --format png --shape 8,8,3 --samples 4 --classes 2 && "
       "brim data make other --format png --shape 8,8,3 --samples 4 --classes 2 --force");
  assert_true(has_file("other/train/train/0"));
  says(2,
       "rm -r other && mkdir -p other/deep && touch other/deep/photo.png && "
       "brim data make other --format png --shape 8,8,3 --samples 4 --classes 2 --force");
  assert_true(has_file("other/deep/photo.png"));
  says(2,
       "rm -r other && brim data make other --format png --shape 8,8,3 --samples 4 --classes 2 && "
       "touch other/train/0/.hidden && "
       "brim data make other --format png --shape 8,8,3 --samples 4 --classes 2 --force");
  expect(0, NULL,
         "rm other/train/0/.hidden && "
         "brim data make other --format jpg --shape 8,8,3 --samples 4 --classes 2 --force && "
         "test ! -e other/train/0/00000000.png");
  expect(0, NULL,
         "for f in cifar 'cifar --classes 90' stl10 idx; do rm -r other && "
         "brim data make other --format $f --samples 10 && "
         "brim data make other --format $f --samples 10 --force || exit 1; done");
  expect(0, NULL, "brim data make set --format idx --samples 10");
  expect(0, "train 12", "brim data make set --format idx --samples 12 --force");
  says(2, "brim data make s --format png --targets 2");
  expect(1, NULL, "ls -a | grep -F .tmp.");
  remove_all("set set.h5 other");
}

// --force removes a folder only if all of it is brim's, and never a parent folder of other data.
static void test_force(void **state) {
  (void)state;
  remove_all("own");
  expect(0, NULL,
         "brim data make own --format png --shape 8,8,3 --samples 5 --test-samples 0 --classes 2 "
         "&& chmod 750 own && grep -qx 'brim data set' own/.brim-dataset && "
         "grep -qx 'format png' own/.brim-dataset && grep -qx 'files 5' own/.brim-dataset");
  expect(0, "750",
         "brim data make own --format idx --samples 5 --force && test ! -e own/train && "
         "stat -c %a own");
  // a file that a user put there
  static const struct {
    const char *put, *said;
  } strange[] = {
      {"touch own/notes.txt", "brim did not write: notes.txt"},
      {"mkdir own/deep && touch own/deep/file", "brim did not write: deep/file"},
      {"ln -s ../own.link own/train.bin", "brim did not write: train.bin"},
      {"rm own/train-images-idx3-ubyte && ln -s x own/train-images-idx3-ubyte",
       "brim did not write: train-images-idx3-ubyte"},
      {"rm own/.brim-dataset", "brim did not write"},
      {"echo 'format idx' > own/.brim-dataset", "brim did not write"},
      {"touch own/t10k-images-idx3-ubyte", "holds 3 files, but brim wrote 2"},
  };
  for (size_t i = 0; i < sizeof strange / sizeof *strange; i++) {
    shell_result made = shell(
        "rm -rf own own.before; brim data make own --format idx --samples 5 --test-samples 0 && "
        "{ %s; } && ls -AR own > own.before",
        strange[i].put);
    assert_int_equal(made.code, 0);
    shell_free(&made);
    says(2, "brim data make own --format idx --samples 5 --force");
    expect(0, NULL, "ls -AR own | cmp own.before -");
  }
  // the folder that contains it
  says(2,
       "rm -rf own && mkdir -p own/in && cd own/in && brim data make ../../own --format idx "
       "--force");
  says(2,
       "rm -rf own && mkdir own && cd own && brim data make . --format "
       "idx --force");
  says(2, "HOME=$PWD/own brim data make own --format idx --force");
  says(2, "ln -s own own.link && brim data make own.link --format idx --force");
  // an empty folder is filled, not replaced
  expect(0, "2711",
         "chmod 2711 own && i=$(stat -c %i own) && brim data make own --format png --shape 8,8,3 "
         "--samples 5 --classes 2 --force && test $(stat -c %i own) = $i && stat -c %a own");
  says(0, "cat own/.brim-dataset && test -e own/train/1 -a -e own/test/0");
  says(0, "brim data verify own");
  expect(0, "train 7",
         "rm -rf own/* own/.brim* && brim data make own --format idx --samples 7 --force");
  expect(1, NULL, "ls -a | grep -F .tmp.");
  remove_all("own own.before own.link");
}

// Temporary files of a killed process go when the next one writes the same target. Other files stay.
static void test_left_temporaries(void **state) {
  (void)state;
  remove_all("left left.* other.h5.*");
  // killed in the middle; the temporary's name has the process's number
  static const char *const formats[] = {"left.h5", "left --format stl10",
                                        "left --format png --shape 8,8,3"};
  for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
    shell_result r = shell(
        "{ brim data make %s --samples 2000000 --threads 1 >log 2>&1 & } 2>/dev/null; "
        "until t=$(ls -d left*.tmp.*.0 2>/dev/null); do sleep 0.01; done; sleep 0.05; "
        "p=${t%%.0}; kill -9 ${p##*.tmp.}; while kill -0 ${p##*.tmp.} 2>/dev/null; do "
        "sleep 0.01; done; test -e $t && brim data make %s --samples 5 && ! ls -d left*.tmp.*; "
        "e=$?; rm -rf left left.h5 log; exit $e",
        formats[i], formats[i]);
    if (r.code) fail_msg("%s: %s", formats[i], r.err);
    shell_free(&r);
  }
  // files of a living process, of another target, with other names, of another kind, and a folder with more in it
  expect(0, NULL,
         "for f in left.h5.tmp.1.0 other.h5.tmp.999999999.0 left.h5.tmp.999999999 "
         "left.h5.tmp.999999999.0.old left.h5.tmp.x.0 left.tmp.999999999.0; do echo x > $f; done; "
         "mkdir -p left.h5.tmp.999999999.1 left.tmp.999999999.1/notes left.tmp.999999999.2; "
         "echo x > left.h5.tmp.999999999.7; echo x > left.tmp.999999999.2/train_X.bin; "
         "echo x > left.tmp.999999999.2/train_y.bin.tmp.999999999.0; ls -d left* other* > all; "
         "brim data make left.h5 --samples 5; brim data make left --format stl10 --samples 5; "
         "rm -r left.h5 left; ls -d left* other* > rest");
  expect(1, "< left.h5.tmp.999999999.7\n", "diff all rest");
  expect(1, "< left.tmp.999999999.2\n", "diff all rest");
  expect(0, "2", "diff all rest | grep -c '^[<>]'");
  // a file that a process holds open, whatever the number in its name
  write_file("left.h5.tmp.999999999.7", "x");
  int fd = open("left.h5.tmp.999999999.7", O_RDONLY);
  assert_true(fd >= 0 && flock(fd, LOCK_SH) == 0);
  expect(0, NULL, "brim data make left.h5 --samples 5 && test -e left.h5.tmp.999999999.7");
  close(fd);
  expect(0, NULL,
         "brim data make left.h5 --samples 5 --force && test ! -e left.h5.tmp.999999999.7");
  remove_all("left left.* other.h5.* all rest");
}

// A limit on the size of files is an error like a full disk: it is reported, and no temporary file stays.
static void test_disk_full(void **state) {
  (void)state;
#ifdef BRIM_TSAN
  BRIM_SKIP("ThreadSanitizer itself writes a file when it starts, larger than the limit");
#endif
  static const char *const options[] = {"",
                                        "--chunk 16",
                                        "--deflate 1",
                                        "--format idx",
                                        "--format stl10",
                                        "--format png --shape 900,900,3 --samples 4"};
  remove_all("full");
  for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
    shell_result r = shell("ulimit -f 64; brim data make full --samples 4000 %s", options[i]);
    if (r.code != 1 || !strstr(r.err, "File too large")) {
      fail_msg("%s: exit %d: %s", options[i], r.code, r.err);
    }
    shell_free(&r);
    assert_false(has_file("full"));
    expect(1, NULL, "ls -a | grep -F .tmp.");
  }
}

// Words for one and for several, and a range of one number, are printed right.
static void test_plurals(void **state) {
  (void)state;
  expect(0, NULL, "rm -rf one.h5 numbers.h5 numbers.yaml");
  expect(0, NULL, "brim data make one.h5 --shape 4,4 --samples 3 --classes 1");
  says_rows(0, "  classes  ", "brim data info one.h5 --split train");
  says_rows(0, "  classes  ", "brim data info one.h5 --split test");
  says(0, "brim data verify one.h5 --split train");
  says(0, "brim data verify one.h5 --split test");
  expect(0, NULL, "brim data make numbers.h5 --shape 4 --samples 40 --targets 1");
  says_lines(0, "depth=3", "brim init numbers.h5 -o numbers.yaml");
}

// Formats of other programs: brim names them and how to convert them, in every command that takes data.
static void test_foreign_formats(void **state) {
  (void)state;
  static const struct {
    const char *make, *name, *says;
  } formats[] = {
      {"printf 'a,b\n1,2\n' >t.csv", "t.csv", "t.csv: brim does not read CSV files"},
      {"printf 'PAR1PAR1' >t.parquet", "t.parquet", "pandas.read_parquet('t.parquet')"},
      {"mkdir -p tables && printf 'a\n1\n' >tables/One.CSV", "tables", "'tables/One.CSV'"},
  };
  static const char *const commands[] = {"data info", "init", "train --data-path",
                                         "bench --data-path"};
  for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
    expect(0, NULL, formats[i].make);
    for (size_t k = 0; k < sizeof commands / sizeof *commands; k++) {
      shell_result r = shell("brim %s %s", commands[k], formats[i].name);
      assert_int_equal(r.code, 2);
      if (!strstr(r.err, formats[i].says) || !strstr(r.err, "h5py.File('data.h5', 'w')")) {
        fail_msg("brim %s %s: %s", commands[k], formats[i].name, r.err);
      }
      shell_free(&r);
    }
  }
  says(2, "brim train t.csv");
  // another file of that name does not count
  says(2, "printf abcdefgh >t.npy && brim data info t.npy");
}

// NumPy files, from data to a trained network, and one that is cut off.
static void test_numpy(void **state) {
  (void)state;
  expect(0, NULL, "rm -rf np np.yaml np.h5 np.run && mkdir np");
  // 16 labels 0, 1, 0, 1, ... and as many rows of 4 bytes
  expect(0, NULL,
         "{ printf '\\223NUMPY\\001\\000\\116\\000'; printf '%-77s\\n' \"{'descr': '|u1', "
         "'fortran_order': False, 'shape': (16, 4)}\"; printf '%64s' ''; } >np/x.npy && "
         "{ printf '\\223NUMPY\\001\\000\\116\\000'; printf '%-77s\\n' \"{'descr': '|u1', "
         "'fortran_order': False, 'shape': (16,)}\"; "
         "printf '\\000\\001\\000\\001\\000\\001\\000\\001\\000\\001\\000\\001\\000"
         "\\001\\000\\001'; } >np/y.npy");
  expect(0, "numpy", "brim data info np");
  says_lines(0, "x.npy", "brim data info np/x.npy");
  expect(0, "16 samples", "brim data verify np");
  says(2, "brim train np/x.npy");
  expect(2, "dataset=numpy", "brim data info np/x.npy --dataset idx");
  expect(
      0, NULL,
      "brim init np -o np.yaml && brim train np.yaml epochs=1 num_workers=0 --output-dir np.run");
  expect(0, "16", "brim data convert np np.h5 && brim data info np.h5");
  // the config is named after the data, without the ending
  expect(0, NULL, "rm -f x.yaml && brim init np/x.npy && brim config check x.yaml && rm x.yaml");
  // rows of 0 and 1 are several labels per sample, in every command
  expect(0, NULL,
         "rm -rf many many.yaml && mkdir many && cp np/x.npy many && "
         "{ printf '\\223NUMPY\\001\\000\\116\\000'; printf '%-77s\\n' \"{'descr': '|u1', "
         "'fortran_order': False, 'shape': (16, 2)}\"; tail -c 16 np/y.npy; tail -c 16 np/y.npy; } "
         ">many/y.npy");
  says_rows(0, "  targets  ", "brim data info many");
  says_lines(0, "depth=3", "brim init many && grep -q '^loss: bce' many.yaml");
  expect(2, "np/x.npy", "head -c 100 np/x.npy >cut && mv cut np/x.npy && brim data info np");
}

// The size counts only the files that a set reads, not other files beside them, hidden or not.
static void test_size_of_what_is_read(void **state) {
  (void)state;
  expect(0, NULL,
         "rm -rf beside && brim data make beside --format folder --shape 8x8x3 --classes 2 "
         "--samples 6 --test-samples 0");
  shell_result clean = shell("brim data info beside | head -1");
  said(&clean);
  expect(0, NULL,
         "cd beside && f=$(find . -name '*.png' | head -1) && d=$(dirname $f) && mkdir .git && "
         "head -c 70000 /dev/zero >.git/pack && cp $f $d/.hidden.png && "
         "head -c 90000 /dev/zero >notes.bin && echo x >$d/labels.csv");
  shell_result full = shell("brim data info beside | head -1");
  assert_string_equal(clean.out, full.out);
  says_lines(0, "train/0/labels.csv", "brim data info beside");
  shell_free(&clean);
  shell_free(&full);
}

// Other files beside a set of fixed names do not belong to it.
static void test_info_counts_what_is_read(void **state) {
  (void)state;
  static const struct {
    const char *format;
    int files;
  } sets[] = {{"idx", 4}, {"cifar", 6}, {"stl10", 5}};
  for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
    char files[32];
    snprintf(files, sizeof files, "\"files\":%d,", sets[i].files);
    shell_result before = shell(
        "rm -rf beside && brim data make beside --format %s --samples 20 --test-samples 10 -q && "
        "brim data info beside --json --quiet | head -n 1",
        sets[i].format);
    if (before.code || !strstr(before.out, files)) {
      fail_msg("%s: no %s in %s%s", sets[i].format, files, before.out, before.err);
    }
    shell_result after = shell(
        "mkdir -p beside/more && head -c 5000 /dev/zero | tee beside/archive.tar.gz > "
        "beside/more/x.bin && brim data info beside --json --quiet | head -n 1");
    assert_int_equal(after.code, 0);
    const char *was = strstr(before.out, "\"path\":"), *is = strstr(after.out, "\"path\":");
    assert_true(was && is);
    assert_string_equal(is, was);
    shell_free(&after);
    shell_free(&before);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_info_counts_what_is_read),
      cmocka_unit_test(test_foreign_formats),
      cmocka_unit_test(test_numpy),
      cmocka_unit_test(test_size_of_what_is_read),
      cmocka_unit_test(test_round_trips),
      cmocka_unit_test(test_make_unlabeled),
      cmocka_unit_test(test_info),
      cmocka_unit_test(test_info_measures),
      cmocka_unit_test(test_folder_to_packed),
      cmocka_unit_test(test_verify),
      cmocka_unit_test(test_errors),
      cmocka_unit_test(test_force),
      cmocka_unit_test(test_left_temporaries),
      cmocka_unit_test(test_disk_full),
      cmocka_unit_test(test_plurals),
  };
  test_filter();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
