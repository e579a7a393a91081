// Reports of brim about bad data: NaN, broken records, labels, sizes. Each has its exit code, its count and its advice.
#include <hdf5.h>
#include <math.h>
#include <unistd.h>

#include "cli_test.h"

static int count_of(const char *text, const char *part) {
  int n = 0;
  for (const char *at = strstr(text, part); at; at = strstr(at + 1, part)) n++;
  return n;
}

// Overwrites one float in an IDX file with samples of 8 floats: 12 bytes of header, big-endian.
static void put_nan(const char *file, int place) {
  shell_result r = shell("printf '\\177\\300\\000\\000' | dd of=%s bs=1 seek=%d conv=notrunc", file,
                         12 + 4 * place);
  assert_int_equal(r.code, 0);
  shell_free(&r);
}

// NaN in inputs or targets: verify reports it, and the advice is about it.
static void test_nan(void **state) {
  (void)state;
  expect(0, NULL,
         "rm -rf nan run && brim data make nan --format idx --shape 8 --dtype f32 --samples 30 "
         "--test-samples 10 --targets 1");
  says(0, "brim data verify nan");
  put_nan("nan/train-images-idx3-ubyte", 8 * 5 + 1);
  put_nan("nan/train-images-idx3-ubyte", 8 * 20);
  put_nan("nan/train-labels-idx1-ubyte", 7);
  shell_result r = shell("brim data verify nan --threads 3");
  assert_int_equal(r.code, 1);
  said(&r);
  shell_free(&r);
  says(1, "brim data verify nan --limit 1");
  expect(1, "\"ok\":false", "brim data verify nan --json");
  expect(1, "\"not_finite_records\":[{\"sample\":5,", "brim data verify nan --json");
  says_rows(0, "  not finite  ", "brim data info nan");
  says_rows(0, "  not finite  ", "brim data info nan");
  r = shell("brim train --data-path nan model=linear --epochs 1 --output-dir run");
  said_rows(&r, "epoch 1/1  ");
  // no step had an effect: the run did not succeed, and the message names the cause
  assert_int_equal(r.code, 1);
  assert_non_null(strstr(r.err, "3 of the 30 samples read hold values that are not finite"));
  assert_non_null(strstr(r.err, "train-images-idx3-ubyte[5]: the input holds 1 NaN"));
  assert_non_null(strstr(r.err, "`brim data verify nan`"));
  assert_null(strstr(r.err, "learning rate"));
  // also reported before the first step
  assert_non_null(strstr(r.err, "2 of 30 samples checked hold NaN or infinite inputs"));
  shell_free(&r);
  // NaN only in the evaluation set: it is left out of the advice, because the network did not learn from it
  expect(0, NULL,
         "rm -rf nan run && brim data make nan --format idx --shape 8 --dtype f32 "
         "--samples 30 --test-samples 10 --targets 1");
  put_nan("nan/t10k-images-idx3-ubyte", 8 * 5 + 1);
  r = shell("brim train --data-path nan model=linear --epochs 3 --output-dir run --device ref");
  assert_int_equal(r.code, 0);
  assert_int_equal(count_of(r.err, "1 of 10 evaluation samples gave no finite loss"), 1);
  assert_null(strstr(r.out, "val loss NaN"));
  assert_true(has_file("run/best.safetensors"));
  shell_free(&r);
  // and eval names it
  r = shell("brim eval run/best.safetensors --device ref");
  assert_non_null(strstr(r.out,
                         "1 sample gave outputs that are not numbers: t10k-images-idx3-ubyte[5]; "
                         "`brim data verify nan` finds NaN in the data"));
  shell_free(&r);
  put_nan("nan/t10k-images-idx3-ubyte", 8 * 2);
  expect(0, "2 samples gave outputs that are not numbers, the first: t10k-images-idx3-ubyte[2]; ",
         "brim eval run/best.safetensors --device ref");
  expect(0, "\"bad_rows\":2,\"first_bad\":2,",
         "brim eval run/best.safetensors --device ref --json");
  expect(0, NULL, "rm -rf nan run");
}

// The message names the target's dataset in the HDF5 file, not the input's.
static void test_nan_target(void **state) {
  (void)state;
  float value = NAN;
  expect(0, NULL,
         "rm -f nan.h5 && brim data make nan.h5 --shape 8 --dtype f32 --samples 30 --targets 2");
  hid_t f = H5Fopen("nan.h5", H5F_ACC_RDWR, H5P_DEFAULT), d = H5Dopen2(f, "train/y", H5P_DEFAULT);
  const hsize_t at[2] = {7, 1}, one[2] = {1, 1};
  hid_t space = H5Dget_space(d), memory = H5Screate_simple(2, one, NULL);
  assert_true(H5Sselect_hyperslab(space, H5S_SELECT_SET, at, NULL, one, NULL) >= 0);
  assert_true(H5Dwrite(d, H5T_NATIVE_FLOAT, memory, space, H5P_DEFAULT, &value) >= 0);
  H5Sclose(memory);
  H5Sclose(space);
  H5Dclose(d);
  H5Fclose(f);
  says(1, "brim data verify nan.h5");
  expect(0, NULL, "rm -f nan.h5");
}

// Class names that are no names, or of a wrong number, are reported.
static void test_class_names(void **state) {
  (void)state;
  const int numbers[3] = {1, 2, 3};
  const hsize_t three = 3;
  expect(0, NULL, "rm -f names.h5 && brim data make names.h5 --shape 8 --samples 30 --classes 3");
  for (int i = 0; i < 2; i++) {
    hid_t f = H5Fopen("names.h5", H5F_ACC_RDWR, H5P_DEFAULT);
    hid_t d = H5Dopen2(f, "train/y", H5P_DEFAULT);
    hid_t space = i ? H5Screate(H5S_SCALAR) : H5Screate_simple(1, &three, NULL);
    hid_t type = H5Tcopy(i ? H5T_C_S1 : H5T_NATIVE_INT);
    if (i) H5Tset_size(type, 4);
    if (i) H5Adelete(d, "class_names");
    hid_t at = H5Acreate2(d, "class_names", type, space, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(at >= 0 && H5Awrite(at, type, i ? (const void *)"cat" : numbers) >= 0);
    H5Aclose(at);
    H5Tclose(type);
    H5Sclose(space);
    H5Dclose(d);
    H5Fclose(f);
    says_lines(0, "brim: warning: ", "brim data info names.h5 2>&1");
    says_lines(0, "brim: warning: ", "brim data info names.h5 2>&1");
  }
  expect(0, NULL, "rm -f names.h5");
}

// Text labels are the class names in every report.
static void test_text_labels(void **state) {
  (void)state;
  const char *names[30];
  const hsize_t rows = 30;
  for (int i = 0; i < 30; i++) names[i] = i % 3 ? "caf\xc3\xa9" : "tea";
  expect(0, NULL,
         "rm -rf text.h5 text_run text.csv && brim data make text.h5 --shape 8 --samples 30 "
         "--classes 2");
  hid_t f = H5Fopen("text.h5", H5F_ACC_RDWR, H5P_DEFAULT), type = H5Tcopy(H5T_C_S1);
  H5Tset_size(type, H5T_VARIABLE);
  assert_true(H5Ldelete(f, "train/y", H5P_DEFAULT) >= 0);
  hid_t space = H5Screate_simple(1, &rows, NULL);
  hid_t d = H5Dcreate2(f, "train/y", type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  assert_true(H5Dwrite(d, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, names) >= 0);
  H5Dclose(d);
  H5Sclose(space);
  H5Tclose(type);
  H5Fclose(f);
  expect(0, "\"class_names\":[\"caf\xc3\xa9\",\"tea\"]", "brim data info text.h5 --json");
  says(0, "brim data verify text.h5");
  expect(
      0, NULL,
      "brim train --data-path text.h5 model=linear --epochs 1 --device ref data.val_fraction=0.2 "
      "--output-dir text_run -q");
  expect(0, "\"tea\"", "brim eval text_run/model.safetensors --device ref --json");
  expect(0, "caf\xc3\xa9",
         "brim predict text_run/model.safetensors --device ref --data-path text.h5 -o text.csv && "
         "cat text.csv");
  expect(0, "\"class_names\":[\"caf\xc3\xa9\",\"tea\"]",
         "brim data convert text.h5 text_copy.h5 --force && brim data info text_copy.h5 --json");
  expect(0, NULL, "rm -rf text.h5 text_copy.h5 text_run text.csv");
}

// Overwrites one label of a split.
static void put_label(const char *file, const char *name, int label) {
  hid_t f = H5Fopen(file, H5F_ACC_RDWR, H5P_DEFAULT), d = H5Dopen2(f, name, H5P_DEFAULT);
  hsize_t at[1] = {3}, one[1] = {1};
  hid_t space = H5Dget_space(d), memory = H5Screate_simple(1, one, NULL);
  assert_true(f >= 0 && d >= 0 && space >= 0 && memory >= 0);
  assert_true(H5Sselect_hyperslab(space, H5S_SELECT_SET, at, NULL, one, NULL) >= 0);
  assert_true(H5Dwrite(d, H5T_NATIVE_INT, memory, space, H5P_DEFAULT, &label) >= 0);
  H5Sclose(memory);
  H5Sclose(space);
  H5Dclose(d);
  assert_true(H5Fclose(f) >= 0);
}

// A split that cannot be opened does not count as absent: verify fails, and convert does not leave it out.
static void test_one_bad_split(void **state) {
  (void)state;
  static const char *const names[] = {"/train/y", "/test/y"};
  for (int i = 0; i < 2; i++) {
    expect(0, NULL, "rm -f two.h5 && brim data make two.h5 --samples 20 --shape 8 --classes 10");
    says(0, "brim data verify two.h5");
    put_label("two.h5", names[i], 995);
    expect(1, "995", "brim data verify two.h5");
    expect(2, "995", "brim data convert two.h5 out.h5");
    expect(0, NULL, "test ! -e out.h5");
  }
  expect(0, NULL, "rm -f two.h5");
}

// A split with some of its files missing does not count as absent either; one without any files does.
static void test_incomplete_split(void **state) {
  (void)state;
  expect(0, NULL, "rm -rf part && brim data make part --format cifar --samples 20");
  says(1, "rm part/data_batch_2.bin && brim data verify part");
  says(1, "brim data verify part --dataset cifar10");
  says(2, "brim data convert part part.h5");
  expect(0, "test", "brim data verify part --split test");
  says(0, "rm part/data_batch_* && brim data verify part");
  says(1,
       "rm -rf part && brim data make part --format stl10 --samples 4 && rm part/train_y.bin && "
       "brim data verify part");
  says(1,
       "rm -rf part && brim data make part --format idx --samples 9 && "
       "rm part/train-labels-idx1-ubyte && brim data verify part");
  says(1,
       "rm -rf part && brim data make part --format png --samples 9 && rm part/train/*/* && "
       "brim data verify part");
  expect(0, NULL, "rm -rf part");
}

// Splits that are fine one by one but cannot serve one network.
static void test_splits_apart(void **state) {
  (void)state;
  static const struct {
    const char *make, *said;
  } rows[] = {
      {"--shape 9 --dtype f32", "train.h5:/train/x has (8) float32, test.h5:/test/x has (9) float"},
      {"--shape 8 --dtype u8", "train.h5:/train/x has (8) float32, test.h5:/test/x has (8) uint8"},
      {"--shape 8 --dtype f32 --targets 2",
       "have different targets: train.h5:/train/x has labels of 10 classes, test.h5:/test/x has "
       "numbers, 2 a sample"},
      {"--shape 8 --dtype f32 --classes 12", "labels up to 11, the training set only up to 9"},
  };
  expect(0, NULL,
         "rm -rf apart run && mkdir apart && "
         "brim data make apart/train.h5 --shape 8 --dtype f32 --samples 20 --test-samples 0");
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    shell_result r = shell("brim data make apart/test.h5 --force --samples 20 %s", rows[i].make);
    assert_int_equal(r.code, 0);
    shell_free(&r);
    says(1, "brim data verify apart");
    says(2, "brim train --data-path apart model=linear --output-dir run");
  }
  expect(0, NULL, "rm -rf apart");
  // the transform makes images of a folder one size
  expect(
      0, NULL,
      "brim data make apart --format png --shape 16,16,3 --samples 9 --classes 2 && rm -r "
      "apart/test && brim data make b --format png --shape 12,12,3 --samples 9 --classes 2 && mv "
      "b/train apart/test && rm -r b && brim data verify apart");
  expect(0, NULL, "rm -rf apart");
}

// Every number of classes reads back as written; formats that cannot hold it refuse.
static void test_class_counts(void **state) {
  (void)state;
  expect(0, NULL, "rm -rf many && brim data make many --format idx --classes 25 --samples 500");
  expect(0, "25, of", "brim data info many");
  expect(0, "\"duplicates\":0", "brim data verify many --json --duplicates");
  static const char *const formats[] = {"cifar10 --classes 11", "cifar --classes 101",
                                        "stl10 --classes 11"};
  for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
    shell_result r = shell("brim data make not --samples 20 --format %s", formats[i]);
    assert_int_equal(r.code, 2);
    said(&r);
    assert_false(has_file("not"));
    shell_free(&r);
  }
  expect(0, NULL, "rm -rf many");
}

// A test sample that is also a training sample.
static void test_duplicates_across(void **state) {
  (void)state;
  expect(0, NULL,
         "rm -rf twice && brim data make twice --format png --samples 12 --classes 2 && "
         "cp twice/train/0/$(ls twice/train/0 | head -n 1) twice/test/1/copy.png");
  says(0, "brim data verify twice --duplicates");
  expect(0, "test/1/copy.png = train/0/", "brim data verify twice --duplicates");
  shell_result r = shell("brim data verify twice --duplicates --json");
  assert_int_equal(r.code, 0);
  assert_int_equal(json_lines(r.out), 3);
  assert_non_null(strstr(r.out, "\"first\":\"train\",\"second\":\"test\",\"duplicates\":1,"));
  shell_free(&r);
  r = shell("brim data info twice --json");  // only results: one line for the files, one per split
  assert_int_equal(json_lines(r.out), 3);
  assert_null(strstr(r.out, "progress"));
  shell_free(&r);
  expect(0, NULL, "rm -rf twice");
}

// A part of the training records serves for evaluation. And the report if split=train is missing.
static void test_shares(void **state) {
  (void)state;
  expect(0, NULL,
         "rm -rf all.h5 run && "
         "brim data make all.h5 --shape 8 --dtype f32 --samples 50 --test-samples 0");
  write_file("shares.yaml",
             "dataset:\n  train: hdf5(path=all.h5, part=(0, 0.9))\n"
             "  val: hdf5(path=all.h5, split=train, part=(0.9, 1))\nmodel: linear\n");
  says_rows(0, "epoch 1/1  ", "brim train shares.yaml --epochs 1 --output-dir run");
  says(2, "sed -i 's/split=train, //' shares.yaml && brim train shares.yaml --output-dir run2");
  // views come in whole batches, with drop_last or without
  shell_result r = shell(
      "brim data make im.h5 --shape 16,16,3 --samples 20 && "
      "brim train --data-path im.h5 model=linear data.batch_size=64 data.drop_last=false "
      "'transform=views | random_crop(size=12)' --output-dir run2");
  assert_int_equal(r.code, 2);
  said(&r);
  assert_null(strstr(r.err, "drop_last"));
  shell_free(&r);
  expect(0, NULL, "rm -rf all.h5 im.h5 shares.yaml run");
}

// A set that this build cannot read, or may not read, is bad input and not a device error.
static void test_cannot_be_read(void **state) {
  (void)state;
  // images of a type that IDX has and brim does not read
  expect(0, NULL,
         "rm -rf odd && brim data make odd --format idx --samples 9 && printf '\\013' | "
         "dd of=odd/train-images-idx3-ubyte bs=1 seek=2 conv=notrunc");
  says(2, "brim data info odd");
  says(2, "brim train --data-path odd model=linear --output-dir run");
  says(1, "brim data verify odd");
  expect(0, NULL, "rm -rf odd");
  if (geteuid() == 0) return;  // root may read everything
  expect(0, NULL, "brim data make mine.h5 --shape 8 --samples 9 && chmod 000 mine.h5");
  expect(2, "Permission denied", "brim data info mine.h5");
  expect(2, "Permission denied", "brim data verify mine.h5");
  expect(2, "Permission denied", "brim train --data-path mine.h5 model=linear --output-dir run");
  expect(0, NULL, "rm -f mine.h5");
}

// Broken data exit with 1, a wrong command line with 2.
static void test_exit_codes(void **state) {
  (void)state;
  says(2, "brim data verify nowhere");
  says(1, "echo junk > junk && brim data verify junk");
  says(1, "mkdir -p hollow && brim data verify hollow");
  expect(0, NULL, "rm -f whole.h5 && brim data make whole.h5 --samples 20 --shape 8");
  says(1, "head -c 3000 whole.h5 > cut.h5 && brim data verify cut.h5");
  says(1,
       "brim data make bare --format idx --samples 9 && "
       "rm bare/train-labels-idx1-ubyte bare/t10k-labels-idx1-ubyte && "
       "brim data verify bare");
  says(2, "brim data verify whole.h5 --dataset 'hdf5(cats=3)'");
  says(2, "brim data verify whole.h5 --split unlabeled");
  says(2, "brim data verify whole.h5 --limit -1");
  expect(0, NULL, "rm -r junk hollow whole.h5 cut.h5 bare");
}

// A folder with images of two sizes, a file that is no image, an empty class, and an image beside the classes.
static void make_photos(void) {
  expect(0, NULL,
         "rm -rf a b photos all run run2 && "
         "brim data make a --format png --shape 16,12,3 --samples 12 --classes 2 && "
         "brim data make b --format png --shape 24,10,3 --samples 12 --classes 2 && "
         "mkdir photos && mv a/train/0 photos/left && mv b/train/1 photos/right && "
         "rm -rf a b && mkdir photos/empty && for f in photos/left/*; do cp $f photos/stray.png; "
         "done");
}

static void test_once(void **state) {
  (void)state;
  static const char *const said[] = {"class folders have no images", "images beside the class",
                                     "cannot read 1 of"};
  make_photos();
  expect(0, NULL, "echo x > photos/right/bad.png");
  shell_result r = shell(
      "brim train --data-path photos model=linear 'transform=resize(size=8)' --epochs 1 "
      "--output-dir run data.val_fraction=0.3 data.on_error=skip data.batch_size=4");
  assert_int_equal(r.code, 0);
  said_rows(&r, "  model  ");
  for (size_t i = 0; i < 3; i++) assert_int_equal(count_of(r.err, said[i]), 1);
  shell_free(&r);
  // the message names fault and remedy, before anything was written
  r = shell(
      "brim train --data-path photos model=linear 'transform=resize(size=8)' --epochs 1 "
      "--output-dir run2 data.batch_size=4");
  assert_int_equal(r.code, 2);
  assert_int_equal(count_of(r.err, "no evaluation: "), 1);
  assert_int_equal(count_of(r.err, "data.val_fraction"), 1);
  said(&r);
  shell_free(&r);
  expect(1, NULL, "test -e run2");
  expect(0, NULL, "rm -rf photos run run2");
}

// A bad record in a later epoch, after steps were made and files written: exit code 1, whatever the fault. A fault
// before the first step exits with 2.
static void test_broken_while_running(void **state) {
  (void)state;
  // each epoch leaves out one of three images: with this seed the broken one for two epochs. (A GPU would read all of
  // them into its memory first.)
  static const char train[] =
      "brim train --data-path some model=linear 'transform=resize(size=8)' --epochs 9 "
      "--output-dir run data.batch_size=2 data.drop_last=true --seed 3 --device ref";
  expect(0, NULL,
         "rm -rf some run && brim data make some --format png --shape 16,12,3 --samples 3 "
         "--test-samples 0 --classes 1 && cd some/train/0 && head -c 200 00000001.png > cut && "
         "mv cut 00000001.png");
  shell_result r = shell("%s --json", train);
  assert_int_equal(r.code, 1);
  said_lines(&r, "brim: error: ");
  assert_non_null(strstr(r.err, "; step 2 is saved, --resume continues from there"));
  assert_non_null(strstr(r.out, "\"exit_code\":1"));
  assert_true(has_file("run/last.safetensors"));
  shell_free(&r);
  r = shell("rm -rf run; %s data.batch_size=4", train);  // training has not begun
  assert_int_equal(r.code, 2);
  assert_false(has_file("run"));
  shell_free(&r);
  // a sweep likewise: the setting is fine, the data are not
  says_lines(1, "brim: error: ",
             "brim bench --data-path some model=linear 'transform=resize(size=8)' --batch-sizes 3 "
             "--device ref "
             "--num-workers 0 --output-dir run");
  expect(0, "\"class\":\"other\"", "cat run/results.jsonl");
  expect(0, NULL, "rm -rf some run");
}

// A record that cannot be read ends the run. The steps before it are kept, the micro-batches of its own step are not.
// With the record repaired, a resumed run gives the same bytes as an undisturbed one.
static void test_mended(void **state) {
  (void)state;
  static const char train[] =
      "brim train --data-path pn 'model=resnet18(width=2, stem=cifar)' --device ref --batch-size 8 "
      "gradient_accumulation=2 --epochs 1 --cache none -q --output-dir %s %s";
  expect(0, NULL,
         "rm -rf pn run whole && brim data make pn --format png --shape 8,8,3 --samples 80 "
         "--classes 2 --test-samples 8 -q");
  char text[400];
  snprintf(text, sizeof text, train, "whole", "");
  expect(0, NULL, text);
  // the record is in the first or the second micro-batch of some later step
  static const char *const files[] = {"pn/train/0/00000012.png", "pn/train/1/00000036.png",
                                      "pn/train/1/00000060.png", "pn/train/0/00000072.png"};
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    snprintf(text, sizeof text, "rm -rf run && cp %s sound.png && head -c 50 sound.png > %s",
             files[i], files[i]);
    expect(0, NULL, text);
    snprintf(text, sizeof text, train, "run", "");
    says(1, text);
    snprintf(text, sizeof text, "mv sound.png %s", files[i]);
    expect(0, NULL, text);
    snprintf(text, sizeof text, train, "run", "--resume");
    expect(0, NULL, text);
    expect(0, NULL, "cmp run/model.safetensors whole/model.safetensors");
  }
  expect(0, NULL, "rm -rf pn run whole");
}

// One label that is far too large makes a network with classes that never occur.
static void test_a_label_far_too_large(void **state) {
  (void)state;
  static const char train[] =
      "brim train --data-path far model=linear --device ref --max-steps 1 --output-dir run";
  expect(
      0, NULL,
      "rm -rf far run && brim data make far --format idx --shape 8,8 --samples 400 --classes 4 -q");
  shell_result r = shell("%s", train);
  assert_int_equal(r.code, 0);
  assert_string_equal(r.err, "");
  shell_free(&r);
  expect(
      0, NULL,
      "rm -rf run; printf '\\310' | dd of=far/train-labels-idx1-ubyte bs=1 seek=20 conv=notrunc");
  says_lines(0, "brim: warning: ", train);
  expect(0, NULL, "rm -rf far run");
}

// The names of the training set's folders number the classes of the other splits too.
static void test_classes_agree(void **state) {
  (void)state;
  make_photos();
  expect(0, NULL,
         "rm photos/stray.png && rmdir photos/empty && mkdir all && mv photos all/train && "
         "mkdir all/val && cp -r all/train/right all/val");
  // left is class 0 in val too, without samples
  expect(0, "\"class_counts\":[0,", "brim data info all --json --split val");
  expect(0, "\"class_names\":[\"left\",\"right\"]", "brim data info all --json | tail -n 1");
  says(1, "cp -r all/train/left all/val/other && brim data verify all");
  says(2, "brim train --data-path all model=linear 'transform=resize(size=8)' --output-dir run");
  expect(0, NULL, "rm -rf all run");
}

static void test_names_and_hints(void **state) {
  (void)state;
  expect(0, "samples         20",
         "rm -rf set.h5 run && brim data make set.h5 --samples 20 --shape 8 && "
         "brim data info set.h5 --dataset 'hdf5(inputs=x, targets=y)'");
  says_rows(0, "  targets  ", "brim data info set.h5 --dataset 'hdf5(targets=none)'");
  expect(0, NULL,
         "brim train --data-path set.h5 'dataset=hdf5(inputs=x)' model=linear --epochs 1 "
         "--output-dir run");
  says(2, "brim train 'dataset=hdf5(inputs=resize(size=2))'");
  // not a device error
  shell_result r = shell(
      "brim train dataset=synthetic model=linear precision=tf32 --device ref "
      "--output-dir run2");
  assert_int_equal(r.code, 3);
  said(&r);
  shell_free(&r);
  says_lines(3, "brim: hint: ", "brim train dataset=synthetic model=linear --device cuda:77");
  // a file with more labels than memory is no error of the plan
  const hsize_t rows = (hsize_t)1 << 50;
  hid_t file = H5Fcreate("huge.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  hid_t space = H5Screate_simple(1, &rows, NULL);
  static const char *const names[] = {"x", "y"};
  for (int i = 0; i < 2; i++) {
    hid_t set =
        H5Dcreate2(file, names[i], H5T_STD_U8LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(set >= 0);
    H5Dclose(set);
  }
  H5Sclose(space);
  H5Fclose(file);
  r = shell(  // sanitizers would end the program
      "export ASAN_OPTIONS=$ASAN_OPTIONS:allocator_may_return_null=1 "
      "TSAN_OPTIONS=$TSAN_OPTIONS:allocator_may_return_null=1; "
      "brim train --data-path huge.h5 model=linear --output-dir run2");
  assert_int_equal(r.code, 4);
  said_lines(&r, "brim: ");  // sanitizers print other words
  shell_free(&r);
  expect(0, NULL, "rm -rf set.h5 huge.h5 run");
}

// Rows that a program never wrote are reported as such; so is a file in which no row was written.
static void test_unwritten(void **state) {
  (void)state;
  const hsize_t dim[2] = {40, 8}, chunk[2] = {8, 8}, part[2] = {8, 8}, start[2] = {0, 0};
  float ones[64];
  int32_t y[40];
  for (int i = 0; i < 64; i++) ones[i] = (float)i;
  for (int i = 0; i < 40; i++) y[i] = i % 2;
  hid_t f = H5Fcreate("part.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  hid_t space = H5Screate_simple(2, dim, NULL), made = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_chunk(made, 2, chunk);
  hid_t x = H5Dcreate2(f, "x", H5T_IEEE_F32LE, space, H5P_DEFAULT, made, H5P_DEFAULT);
  hid_t memory = H5Screate_simple(2, part, NULL), rows = H5Screate_simple(1, dim, NULL);
  H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, part, NULL);
  assert_true(H5Dwrite(x, H5T_NATIVE_FLOAT, memory, space, H5P_DEFAULT, ones) >= 0);
  hid_t labels = H5Dcreate2(f, "y", H5T_STD_I32LE, rows, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  assert_true(H5Dwrite(labels, H5T_NATIVE_INT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, y) >= 0);
  H5Dclose(labels);
  H5Dclose(x);
  H5Sclose(rows);
  H5Sclose(memory);
  H5Pclose(made);
  H5Sclose(space);
  H5Fclose(f);
  says(0, "brim data verify part.h5 2>&1");
  says_lines(0, "brim: warning: ", "brim data info part.h5 2>&1");
  H5Fclose(H5Fcreate("none.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT));
  shell_result r = shell("brim data verify none.h5");
  assert_int_equal(r.code, 1);
  said(&r);
  assert_null(strstr(r.err, "inputs="));
  shell_free(&r);
  expect(0, NULL, "rm -f part.h5 none.h5");
}

// A broken image ends a conversion, with advice.
static void test_convert_advice(void **state) {
  (void)state;
  expect(0, NULL,
         "rm -rf pics out.h5; brim data make pics --format png --shape 8,8,3 --samples 6 "
         "--test-samples 0 --classes 2 && echo no image > pics/train/0/00000002.png");
  says(2, "brim data convert pics out.h5");
  says(0, "brim data convert pics out.h5 --on-error skip");
  expect(0, NULL, "rm -rf pics out.h5");
}

// Names of files and classes with terminal codes, one of brim's own colours among them.
static void test_terminal_names(void **state) {
  (void)state;
  expect(0, NULL,
         "rm -rf esc esc.yaml; brim data make esc --format png --shape 8,8,3 --samples 6 "
         "--test-samples 0 --classes 2 && mv esc/train/0 \"esc/train/$(printf 'a\\033[31m\\007')\" "
         "&& echo no image > \"esc/train/1/$(printf 'b\\033[31mred.png')\"");
  static const char *const lines[] = {"data verify esc", "data info esc",
                                      "data convert esc esc.h5 --on-error skip --force",
                                      "init esc -o esc.yaml --force --device ref"};
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    shell_result r =
        shell("rm -f esc.tty; command -v script > /dev/null || exit 0; script -qec \"'" BRIM_BINARY
              "' %s --color=always\" esc.tty > /dev/null; cat esc.tty",
              lines[i]);
    if (strstr(r.out, "\033[31mred") || strstr(r.out, "\033[31m\007") || strchr(r.out, '\007'))
      fail_msg("%s: a name is raw: %s", lines[i], r.out);
    shell_free(&r);
  }
  expect(0, NULL, "brim init esc -o esc.yaml --force --device ref && test -s esc.yaml");
  expect(0, NULL, "brim config check esc.yaml");
  expect(0, NULL, "rm -rf esc esc.yaml esc.h5 esc.tty");
}

// The size of a set of links to folders is that of the linked files.
static void test_linked_size(void **state) {
  (void)state;
  expect(0, NULL,
         "rm -rf far near; brim data make far --format png --shape 8,8,3 --samples 6 "
         "--test-samples 0 --classes 2 && mkdir near && ln -s ../far/train/0 near/a && "
         "ln -s ../far/train/1 near/b && ln -s . near/up");
  expect(0, "\"files\":6,", "brim data info near --json");
  expect(0, NULL, "rm -rf far near");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_nan),
      cmocka_unit_test(test_nan_target),
      cmocka_unit_test(test_class_names),
      cmocka_unit_test(test_text_labels),
      cmocka_unit_test(test_one_bad_split),
      cmocka_unit_test(test_incomplete_split),
      cmocka_unit_test(test_splits_apart),
      cmocka_unit_test(test_class_counts),
      cmocka_unit_test(test_duplicates_across),
      cmocka_unit_test(test_shares),
      cmocka_unit_test(test_cannot_be_read),
      cmocka_unit_test(test_exit_codes),
      cmocka_unit_test(test_once),
      cmocka_unit_test(test_classes_agree),
      cmocka_unit_test(test_names_and_hints),
      cmocka_unit_test(test_broken_while_running),
      cmocka_unit_test(test_mended),
      cmocka_unit_test(test_unwritten),
      cmocka_unit_test(test_convert_advice),
      cmocka_unit_test(test_terminal_names),
      cmocka_unit_test(test_linked_size),
      cmocka_unit_test(test_a_label_far_too_large),
  };
  test_filter();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
