// eval, predict and export of a small trained network: figures compared with each other, data that fit it and data that
// do not, files that appear complete or not at all.
#include <math.h>
#include <sys/resource.h>
#include <unistd.h>

#include "cli_test.h"

static void assert_near(double a, double b, double within) {
  if (!(fabs(a - b) <= within)) fail_msg("%.17g and %.17g differ by more than %g", a, b, within);
}

static json_t *parse(const char *text) {
  json_t *value = NULL;
  assert_ok(brim_json_parse(text, strlen(text), "stdout", &value));
  return value;
}

static double figure(const json_t *object, const char *key) {
  const json_t *value = json_object_get(object, key);
  if (!json_is_number(value)) fail_msg("no number '%s'", key);
  return json_number_value(value);
}

static size_t lines_of(const char *path) {
  char *text;
  size_t size, count = 0;
  assert_ok(brim_fs_read(path, 0, &text, &size));
  for (size_t i = 0; i < size; i++) count += text[i] == '\n';
  brim_free(text);
  return count;
}

static int setup(void **state) {
  (void)state;
  expect(
      0, NULL,
      "rm -rf *.h5 *.csv *.json *.jsonl *.onnx *.safetensors img photos sub bad run runv runi\n"
      "brim data make d.h5 --samples 200 --test-samples 50 --shape 8,8,3 --classes 7 -q\n"
      "brim train 'model=mlp(depth=1, hidden=16)' --data-path d.h5 --epochs 2 --batch-size 16 "
      "--output-dir run -q\n"
      "brim data make v.h5 --samples 80 --test-samples 20 --shape 6,2 --dtype f32 --targets 3 -q\n"
      "brim train 'model=mlp(depth=1, hidden=8)' --data-path v.h5 --epochs 1 --batch-size 16 "
      "--output-dir runv -q\n"
      "brim data make img --format png --samples 40 --test-samples 12 --shape 8,8,3 --classes 3 "
      "-q\n"
      "for s in train test; do mv img/$s/0 img/$s/ant; mv img/$s/1 img/$s/bee; mv img/$s/2 "
      "img/$s/cow; done\n"
      "brim train 'model=resnet18(width=2)' --data-path img --epochs 1 --batch-size 8 "
      "--output-dir runi -q || true\n");
  return 0;
}

// eval gives the figures that training gave for the same weights, and the rows of predict add up to them.
static void test_figures(void **state) {
  (void)state;
  shell_result r = shell("brim eval run/last.safetensors --json");
  assert_int_equal(r.code, 0);
  json_t *e = parse(r.out);
  shell_free(&r);
  char *log;
  size_t size;
  assert_ok(brim_fs_read("run/log.jsonl", 0, &log, &size));
  char *last = log;  // the last line of an epoch
  for (char *line = log; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
    char *found = strstr(line, "\"eval_accuracy\"");
    if (found && found < line + strcspn(line, "\n")) last = line;
  }
  last[strcspn(last, "\n")] = 0;
  json_t *trained = parse(last);
  assert_near(figure(e, "accuracy"), figure(trained, "eval_accuracy"), 1e-12);
  assert_near(figure(e, "loss"), figure(trained, "eval_loss"), 1e-5);
  json_decref(trained);
  brim_free(log);
  assert_int_equal(json_array_size(json_object_get(e, "confusion")), 7);
  expect(0, NULL, "brim predict --force run/last.safetensors -o rows.jsonl");
  r = shell(
      "awk -F'\"label\": |, \"prob|\"target\": |}' '$2 == $4 {n++} END {print n / NR}' "
      "rows.jsonl");
  assert_near(atof(r.out), figure(e, "accuracy"), 1e-5);
  shell_free(&r);
  json_decref(e);
  assert_int_equal(lines_of("rows.jsonl"), 50);
}

static void test_splits(void **state) {
  (void)state;
  expect(0, "\"samples\":200", "brim eval run/last.safetensors --split train --json");
  expect(0, "\"samples\":50", "brim eval run/last.safetensors --split test --json");
  // without a val split the test split is evaluated, and the report names it
  expect(0, "\"split\":\"test\"", "brim eval run/last.safetensors --json");
  expect(0, "img, test: 12 samples", "brim eval runi/last.safetensors");
  expect(0, "img2, val: 12 samples",
         "rm -rf img2 && cp -r img img2 && mv img2/test img2/val && "
         "brim eval runi/last.safetensors --data-path img2");
  expect(0, "idx, test: 20 samples",
         "rm -rf idx && brim data make idx --format idx --shape 8,8,3 --classes 7 --samples 40 "
         "--test-samples 20 -q && brim eval run/last.safetensors --data-path idx "
         "'dataset=idx(classes=7)'");
  says_rows(0, "  data  ",
            "rm -rf parts && mkdir parts && for s in train test; do brim data convert d.h5 "
            "parts/$s.h5 --split $s -q; done && brim eval run/last.safetensors --data-path parts");
  says_rows(0, "  data  ",
            "mv parts/test.h5 parts/val.h5 && brim eval run/last.safetensors --data-path parts");
  expect(0, "\"samples\":20", "brim eval run/last.safetensors --json data.val_fraction=0.1");
  expect(0, "\"split\":\"val\"", "brim eval run/last.safetensors --json data.val_fraction=0.1");
  expect(0, ", val: 20 samples",
         "brim eval run/last.safetensors --split val data.val_fraction=0.1");
  expect(0, "\"samples\":180",
         "brim eval run/last.safetensors --json --split train data.val_fraction=0.1");
  // the samples of the training are known only for the split it was trained with
  says_rows(0, "data.val_fraction", "brim eval run/last.safetensors data.val_fraction=0.1 2>&1");
  expect(0, NULL,
         "rm -rf run_share; brim train 'dataset=synthetic(shape=(4,), samples=40, classes=2)' "
         "'model=mlp(depth=1, hidden=4)' --device ref --epochs 1 --output-dir run_share -q "
         "data.val_fraction=0.1");
  says_rows(0, "data.val_fraction", "brim eval run_share/model.safetensors 2>&1");
  says_rows(0, "data.val_fraction", "brim eval run_share/model.safetensors --split train 2>&1");
  expect(2, "unlabeled", "brim eval run/last.safetensors --split unlabeled");
}

static void test_files(void **state) {
  (void)state;
  says_lines(0, "all.json", "brim eval run/last.safetensors -o all.json");
  expect(0, NULL, "brim eval run/last.safetensors -o all.csv");
  assert_int_equal(lines_of("all.csv"), 8);
  expect(0, NULL, "grep -q '\"confusion\"' all.json");
  expect(0, NULL, "brim predict --force run/last.safetensors -o p.csv --proba --logits");
  assert_int_equal(lines_of("p.csv"), 51);
  expect(0, "index,label,probability,target,p_0,p_1", "head -1 p.csv");
  expect(0, NULL, "brim predict --force run/last.safetensors -o p.h5 --proba");
  expect(0, "probabilities", "brim data info p.h5 --dataset 'hdf5(inputs=[probabilities])'");
  expect(0, "R2", "brim eval runv/last.safetensors");
  expect(0, "value_2", "brim predict --force runv/last.safetensors -o v.csv && head -1 v.csv");
  expect(0, "value_2,target_0,target_1,target_2", "head -1 v.csv");
  expect(0, NULL, "sed -n 2p v.csv | grep -q ',-\\{0,1\\}[0-9][-+.e0-9]*$'");
}

// Classes are matched by name: this set has two of the three, numbered differently.
static void test_images(void **state) {
  (void)state;
  if (!has_file("runi/last.safetensors")) fail_msg("the network for images was not trained");
  expect(0, "bee", "brim eval runi/last.safetensors");
  expect(0, "\"label\":2,\"class\":\"cow\",\"samples\":",
         "mkdir -p sub && cp -r img/test/cow img/test/bee sub && "
         "brim eval runi/last.safetensors --data-path sub --json");
  shell_result r = shell("brim eval runi/last.safetensors --data-path sub --json");
  json_t *e = parse(r.out);
  const json_t *classes = json_object_get(e, "classes");
  assert_true(figure(json_array_get(classes, 0), "samples") == 0);
  assert_true(figure(json_array_get(classes, 2), "samples") > 0);
  json_decref(e);
  shell_free(&r);
  says(2,
       "mkdir -p bad/zebra && cp img/test/cow/* bad/zebra && "
       "brim eval runi/last.safetensors --data-path bad");
  // without classes, and one alone
  expect(0, NULL,
         "mkdir -p photos && for f in img/test/*/*; do cp $f photos/$(echo $f | tr / _); done && "
         "brim predict --force runi/last.safetensors --data-path photos -o ph.csv");
  assert_int_equal(lines_of("ph.csv"), 13);
  expect(0, "img_test_ant", "sed -n 2p ph.csv");
  says(2, "brim eval runi/last.safetensors --data-path photos");
  expect(0, "\"file\": \"img_test_",
         "brim predict --force runi/last.safetensors --data-path $(ls photos/* | head -1) -o "
         "one.jsonl && "
         "cat one.jsonl");
  assert_int_equal(lines_of("one.jsonl"), 1);
  // a broken image ends eval; predict gives it a row without values
  expect(1, "zz.png",
         "head -c 60 img/test/cow/* > photos/zz.png; "
         "brim predict --force runi/last.safetensors --data-path photos -o ph2.csv");
  assert_false(has_file("ph2.csv"));
  says_lines(0, "brim: warning: ",
             "brim predict --force runi/last.safetensors --data-path photos -o ph2.csv "
             "data.on_error=skip");
  assert_int_equal(lines_of("ph2.csv"), 14);
  expect(0, "zz.png,,,", "tail -1 ph2.csv");
}

// The averaged weights take their statistics from batches after the last step: a batch that cannot be read costs those
// statistics, not the model.
static void test_a_broken_image_after_the_end(void **state) {
  (void)state;
  says_lines(
      0, "zz.png",
      "rm -rf late runl; mkdir -p late && cp -r img/test/bee img/test/cow late && "
      "head -c 60 late/cow/$(ls late/cow | head -1) > late/cow/zz.png && "
      "brim train --data-path late --output-dir runl --device ref 'model=resnet18(width=4)' "
      "'transform=resize(size=8)' training.ema_decay=0.9 data.batch_size=2 data.shuffle=false "
      "training.epochs=9 --max-steps 1");
  assert_true(has_file("runl/model.safetensors"));
}

// A checkpoint without a description of its input: the data give it, and have to be named.
static void test_old_checkpoint(void **state) {
  (void)state;
  expect(0, NULL,
         "mkdir -p old && LC_ALL=C sed 's/brim[.]network/brim.netwerk/; "
         "s/brim[.]checksum/brim.chocksum/' runi/last.safetensors > old/a.safetensors");
  says(2, "brim eval old/a.safetensors");
  says(2, "brim export --force old/a.safetensors -o old/a.onnx");
  says_rows(0, "  accuracy  ", "brim eval old/a.safetensors --data-path img");
  says(2, "cp runi/last.safetensors old/b.safetensors; brim eval old/b.safetensors");
}

// Images of another size and of other colours.
static void test_converted(void **state) {
  (void)state;
  expect(0, NULL,
         "rm -rf grey rung && brim data make grey --format idx --samples 40 --test-samples 10 "
         "--shape 28,28 --classes 3 -q && brim train 'model=mlp(depth=1, hidden=8)' --data-path "
         "grey --epochs 1 --batch-size 8 --output-dir rung -q");
  says(2,
       "brim predict --force run/last.safetensors --data-path grey -o g.csv "
       "'transform.val=resize(size=8)'");
  expect(0, "brim converts colour images to grey",
         "brim predict --force rung/last.safetensors --data-path img -o g.csv");
}

static void test_unsuitable(void **state) {
  (void)state;
  says(2,
       "brim data make many.h5 --samples 30 --shape 8,8,3 --classes 9 -q; "
       "brim eval run/last.safetensors --data-path many.h5");
  says(2, "brim eval run/last.safetensors --data-path v.h5");
  says(2, "brim predict --force runv/last.safetensors --data-path d.h5 -o x.csv");
  says(2, "brim eval run/last.safetensors --data-path nowhere");
  says(2, "brim eval none.safetensors");
  says(2, "brim eval run");
  expect(2, "not a checkpoint",
         "head -c 2000 run/last.safetensors > cut.safetensors; brim export --force cut.safetensors "
         "-o x.onnx");
  expect(2, "name a checkpoint", "brim eval");
  says(2, "brim eval run/last.safetensors other");
  says(2, "brim eval run/last.safetensors --ema yes");
  says(2, "brim predict --force run/last.safetensors -o x.txt");
  // the model lacks the sigmoid that predict applies: the output's name shows it
  expect(0, "\"outputs\": {\"logits\": 3}",
         "brim train 'model=mlp(depth=1, hidden=8)' --data-path v.h5 --max-steps 1 --batch-size 16 "
         "loss=bce --output-dir runv/labels -q && brim export runv/labels/last.safetensors "
         "-o labels.onnx --json | sed 's/\\([:,]\\)/\\1 /g'");
  expect(0, "\"outputs\": {\"output\": 3}",
         "brim export runv/last.safetensors -o values.onnx --json | sed 's/\\([:,]\\)/\\1 /g'");
  expect(2, "--opset", "brim export --force run/last.safetensors -o x.onnx --opset 9");
  expect(2, "--batch", "brim export --force run/last.safetensors -o x.onnx --batch none");
  says(2, "brim export --force run/last.safetensors -o no/such/x.onnx");
  static const char *const files[] = {"x.csv", "x.onnx", "x.txt"};
  for (size_t i = 0; i < 3; i++) assert_false(has_file(files[i]));
}

// Without --output the file has a default name in the current folder, which is printed. Nothing is overwritten.
static void test_default_names(void **state) {
  (void)state;
  expect(0, NULL, "rm -rf own && mkdir own");
  says_lines(0, "predictions.csv",
             "cd own && brim predict ../run/last.safetensors "
             "--data-path ../d.h5 --device ref");
  says(0, "cd own && brim export ../run/last.safetensors");
  expect(0, "model.onnx predictions.csv", "cd own && echo $(ls -A)");
  says(2,
       "cd own && echo mine > predictions.csv && brim predict ../run/last.safetensors "
       "--data-path ../d.h5 --device ref");
  says(2, "cd own && echo mine > model.onnx && brim export ../run/last.safetensors");
  says(2,
       "cd own && echo mine > x.csv && brim predict ../run/last.safetensors "
       "--data-path ../d.h5 --device ref -o x.csv");
  expect(0, NULL, "cd own && cat predictions.csv model.onnx x.csv | sort -u | grep -qx mine");
  expect(0, "51",
         "cd own && brim predict ../run/last.safetensors --data-path ../d.h5 --device ref "
         "--force -q && wc -l < predictions.csv");
  expect(0, NULL, "cd own && brim export ../run/last.safetensors --force && test -s model.onnx");
  // a fixed batch appears in the shapes of input and output
  shell_result fixed = shell("cd own && brim export ../run/last.safetensors --force --batch 8");
  assert_int_equal(fixed.code, 0);
  assert_non_null(strstr(fixed.out, "(8, "));
  assert_null(strstr(fixed.out, "(N, "));
  shell_free(&fixed);
  // files that a killed export left for this target are removed; other targets' and a living process's stay
  expect(
      0, NULL,
      "cd own && sh -c 'echo $$' >gone && touch model.onnx.tmp.$(cat gone).0 "
      "other.onnx.tmp.$(cat gone).0 model.onnx.tmp.1.0 && "
      "brim export ../run/last.safetensors --force -q && ! test -e model.onnx.tmp.$(cat gone).0 && "
      "test -e other.onnx.tmp.$(cat gone).0 && test -e model.onnx.tmp.1.0 && "
      "rm other.onnx.tmp.$(cat gone).0 model.onnx.tmp.1.0");
}

// "-": only the rows or the model on stdout.
static void test_standard_output(void **state) {
  (void)state;
  expect(0, NULL, "rm -rf own && mkdir own");
  shell_result r = shell(
      "cd own && brim predict ../run/last.safetensors --data-path ../d.h5 "
      "--device ref -o - > rows.csv && brim predict ../run/last.safetensors "
      "--data-path ../d.h5 --device ref -o p.csv -q && cmp p.csv rows.csv");
  assert_int_equal(r.code, 0);
  said_lines(&r, "p.csv");
  shell_free(&r);
  r = shell(
      "cd own && brim predict ../run/last.safetensors --data-path ../d.h5 --device ref "
      "--json --output -");
  assert_int_equal(r.code, 0);
  assert_int_equal(json_lines(r.out), 50);
  assert_non_null(strstr(r.out, "{\"index\": 0, \"label\": "));
  shell_free(&r);
  expect(0, NULL,
         "cd own && brim export ../run/last.safetensors -o - > piped.onnx && "
         "brim export ../run/last.safetensors -o named.onnx -q && cmp piped.onnx named.onnx");
  expect(0, "named.onnx p.csv piped.onnx rows.csv", "cd own && echo $(ls -A)");
  expect(0, NULL,
         "cd own && mkdir tmp && TMPDIR=$PWD/tmp brim export ../run/last.safetensors -o - "
         "| cmp - named.onnx && test -z \"$(ls -A tmp)\"");
  says(1,
       "test -c /dev/full || { echo 'cannot write the standard output: No space left'; exit 1; }; "
       "brim predict run/last.safetensors --data-path d.h5 --device ref -o - > /dev/full");
  // a reader that closes its end ends predict without a message
  r = shell(
      "{ brim predict run/last.safetensors --data-path d.h5 --split train --proba --logits "
      "--device ref -o - --batch-size 1; } | head -1");
  said(&r);
  assert_null(strstr(r.err, "error"));
  shell_free(&r);
  // output to a terminal: `script` provides one
  expect(0, NULL,
         "command -v script > /dev/null || exit 0; cd own && script -qec \"'" BRIM_BINARY
         "' export ../run/last.safetensors -o -\" tty.txt > /dev/null; grep -q 'is a terminal' "
         "tty.txt");
}

// Terminal codes in the name of a file have no effect; `script` provides a terminal.
static void test_terminal(void **state) {
  (void)state;
  shell_result r = shell(
      "rm -rf own && mkdir -p own/shots && cp $(ls img/test/*/* | head -1) "
      "\"own/shots/$(printf 'a\\033[31mred.png')\" && command -v script > /dev/null && "
      "cd own && script -qec \"'" BRIM_BINARY
      "' predict ../runi/last.safetensors --device ref --data-path shots -o -\" tty.txt "
      "> /dev/null; cat tty.txt 2> /dev/null || echo 'a\\x1b[31mred.png'");
  assert_non_null(strstr(r.out, "a\\x1b[31mred.png"));
  assert_null(strstr(r.out, "\033[31mred"));
  shell_free(&r);
  expect(0, NULL, "rm -rf own");
}

// Whatever ends predict, no temporary file stays beside the table.
static void test_killed(void **state) {
  (void)state;
  static const char *const signals[] = {"INT", "TERM", "KILL"};
  static const char *const outputs[] = {"k.csv", "k.h5"};
  expect(0, NULL, "rm -rf own && mkdir own");
  expect(0, NULL,
         "brim data make own/many.h5 --samples 60000 --test-samples 0 --shape 8,8,3 "
         "--classes 7 -q");
  for (size_t i = 0; i < 6; i++) {
    shell_result r =
        shell("cd own && { '" BRIM_BINARY
              "' predict ../run/last.safetensors --data-path many.h5 --proba "
              "--logits --split train --device ref --batch-size 1 -o %s -q & } ; p=$!; n=0; "
              "while kill -0 $p 2>/dev/null && ! ls -l /proc/$p/fd 2>/dev/null | grep -qE "
              "'own/#|k.(csv|h5)'; do sleep 0.02; done; kill -%s $p; wait $p; echo $(ls -A)",
              outputs[i % 2], signals[i / 2]);
    if (!strstr(r.out, "many.h5\n") || strstr(r.out, ".tmp."))
      fail_msg("%s, %s: left %s", signals[i / 2], outputs[i % 2], r.out);
    shell_free(&r);
    expect(0, NULL, "rm -f own/k.csv own/k.h5");  // predict may have been quicker than the signal
  }
  expect(0, NULL, "rm -rf own");
}

// A limit on the size of files: predict gives the reason and leaves no file.
static void test_no_room(void **state) {
  (void)state;
  static const char *const commands[] = {
      "brim predict --force run/last.safetensors --split train --proba --logits -o full.csv",
      "brim predict --force run/last.safetensors --split train --proba --logits -o full.h5",
      "brim predict --force run/last.safetensors --split train --proba --logits -o full.jsonl",
      "brim export --force run/last.safetensors -o full.onnx",
  };
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
    char command[256];
    snprintf(command, sizeof command, "(ulimit -f 1; %s) 2>&1 | grep -A1 'cannot write full'",
             commands[i]);
    says(0, command);
  }
  expect(1, NULL, "ls full* 2>/dev/null | grep .");
}

// Evaluated with the loss of the training, whether the config names it or it is the default with a key.
static void test_the_usual_loss(void **state) {
  (void)state;
  write_file("smooth.yaml",
             "dataset: synthetic(shape=(6, 6), classes=4, samples=128)\n"
             "model: mlp(depth=1, hidden=8)\ndata: {batch_size: 32}\n"
             "training: {epochs: 1, label_smoothing: 0.3}\n");
  expect(0, NULL,
         "rm -rf runl; brim train smooth.yaml --device ref --output-dir runl -q && "
         "brim eval runl/model.safetensors --device ref --json > smooth.json && "
         "loss=$(grep -o '\"loss\":[0-9.]*' smooth.json | head -1 | cut -d: -f2 | cut -c1-7) && "
         "grep -q \"\\\"eval_loss\\\":$loss\" runl/log.jsonl");
}

static void test_export(void **state) {
  (void)state;
  says(0, "brim export --force run/last.safetensors -o a.onnx");
  expect(0, "\"input_layout\":\"NHWC\",\"input_range\":\"0..255\"",
         "brim export --force run/last.safetensors -o b.onnx --layout nhwc --json");
  says(0, "brim export --force run/last.safetensors -o b.onnx --layout nhwc --batch 4");
  says(0, "brim export --force run/last.safetensors -o c.onnx --normalize no");
  expect(0, "\"outputs\":{\"output\":3}",
         "brim export --force runv/last.safetensors -o v.onnx --json");
  expect(0, NULL, "brim export --force run/last.safetensors -o d.onnx && cmp a.onnx d.onnx");
}

static double neighbours(const char *run, const char *ema) {
  shell_result r = shell("brim eval %s/last.safetensors --ema %s --json", run, ema);
  if (r.code) fail_msg("%s, --ema %s: %s", run, ema, r.err);
  json_t *e = parse(r.out);
  double accuracy = figure(e, "knn_accuracy");
  assert_true(json_is_boolean(json_object_get(e, "ema")));
  json_decref(e);
  shell_free(&r);
  return accuracy;
}

// The data are no longer where the run had them, and the command does not name their place.
static void test_lost_data(void **state) {
  (void)state;
  expect(
      0, NULL,
      "rm -rf lost && mkdir lost && cd lost && brim data make data --shape 8,8,3 --format folder "
      "--samples 24 --classes 2 --test-samples 4 -q && brim train contrastive --data-path data "
      "dataset=folder --device ref --batch-size 8 gradient_accumulation=1 precision=fp32 "
      "'transform.train=views | random_flip' 'model=simclr(backbone=resnet18(width=2))' "
      "--max-steps 1 -q --output-dir c && brim train --data-path data model=linear --device ref "
      "--max-steps 1 -q --output-dir s && mv data moved");
  says(2, "cd lost && brim eval c/last.safetensors --device ref");
  says(2, "cd lost && brim eval s/last.safetensors --device ref");
  says(2, "cd lost && brim predict --force s/last.safetensors --device ref -o p.csv");
  expect(0, NULL, "cd lost && brim eval s/last.safetensors --device ref --data-path moved");
  // images without labels
  expect(
      0, NULL,
      "cd lost && mkdir flat && cp moved/train/*/* flat && brim train contrastive --data-path flat "
      "dataset=folder --device ref --batch-size 8 gradient_accumulation=1 precision=fp32 "
      "'transform.train=views | random_flip' 'model=simclr(backbone=resnet18(width=2))' "
      "--max-steps 1 -q --output-dir f");
  says(2, "cd lost && brim eval f/last.safetensors --device ref");
  // nothing is known without the config beside it
  says(2,
       "cd lost && mkdir alone && cp c/last.safetensors alone && brim eval alone/last.safetensors");
}

// A contrastive checkpoint is evaluated with the weights the command asks for. An average does not change the training,
// so the weights trained with one equal those trained without.
static void test_contrastive_average(void **state) {
  (void)state;
  write_file("contrastive.yaml",
             "workload: contrastive\n"
             "dataset: synthetic(shape=(8, 8, 3), classes=4, samples=150, noise=0.3)\n"
             "transform: {train: 'views | random_flip | cutout(size=3)'}\n"
             "model: simclr(backbone=resnet18(width=4), hidden=16, dim=8)\n"
             "optimizer: adamw(lr=1e-2)\n"
             "data: {batch_size: 16, num_workers: 1}\n"
             "training: {epochs: 2}\n"
             "contrastive: {knn_k: 5, probe_epochs: 0}\n");
  expect(0, NULL,
         "rm -rf runc runa; for run in runc/0 runa/0.9999; do "
         "brim train contrastive.yaml --device ref --output-dir ${run%%/*} "
         "ema_decay=${run#*/} ema_batches=0 -q || exit 1; done");
  // evaluated with the training's number of neighbours: the log has the same value
  expect(0, NULL,
         "brim eval runc/last.safetensors --device ref --json > evaluated.json && "
         "knn=$(grep -o '\"knn_accuracy\":[0-9.]*' evaluated.json | cut -d: -f2) && "
         "grep -q \"\\\"knn\\\":$knn,\" runc/log.jsonl");
  expect(0, "kNN ", "brim --lang ko eval runc/last.safetensors");
  // and probed with the training's number of epochs: none, or enough for the same value
  expect(1, NULL, "grep -q '\"probe_accuracy\":[0-9]' evaluated.json");
  expect(0, NULL,
         "rm -rf runp; brim train contrastive.yaml --device ref --output-dir runp "
         "contrastive.probe_epochs=3 -q && "
         "brim eval runp/last.safetensors --device ref --json > probed.json && "
         "probe=$(grep -o '\"probe_accuracy\":[0-9.]*' probed.json | cut -d: -f2) && "
         "grep -q \"\\\"probe\\\":$probe\" runp/log.jsonl");
  // statistics of batch norm do not count as parameters, in JSON and in the text
  says(0, "brim export --force runc/last.safetensors -o p.onnx");
  expect(0, "\"parameters\":44956,", "brim export --force runc/last.safetensors -o p.onnx --json");
  // in the precision that is asked for: the training's, or another one
  expect(0, "\"precision\":\"fp32\"", "cat evaluated.json");
  expect(0, "\"precision\":\"bf16\"",
         "brim eval runc/last.safetensors --device ref --precision bf16 --json");
  expect(0, "precision,bf16",
         "brim eval runc/last.safetensors --device ref --precision bf16 -o p.csv --force -q; cat "
         "p.csv");
  expect(0, NULL,
         "brim eval runc/last.safetensors --device ref --batch-size 7 --json > small.json && "
         "knn=$(grep -o '\"knn_accuracy\":[0-9.]*' evaluated.json) && grep -q \"$knn[,}]\" "
         "small.json");
  expect(0, "\"batch_size\":16,", "cat evaluated.json");
  expect(0, "\"batch_size\":7,", "cat small.json");
  says(2, "brim eval runc/last.safetensors --device ref --batch-size 0");
  // columns of classes do not exist for an embedding
  says(2, "brim predict --force runc/last.safetensors --device ref --proba -o x.csv");
  says(2, "brim predict --force runc/last.safetensors --device ref --features --logits -o x.csv");
  assert_false(has_file("x.csv"));
  double trained = neighbours("runc", "auto");
  assert_true(neighbours("runa", "no") == trained);
  assert_true(neighbours("runa", "auto") == neighbours("runa", "yes"));
  assert_true(neighbours("runa", "yes") != trained);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_old_checkpoint),
      cmocka_unit_test(test_converted),
      cmocka_unit_test(test_figures),
      cmocka_unit_test(test_splits),
      cmocka_unit_test(test_files),
      cmocka_unit_test(test_images),
      cmocka_unit_test(test_a_broken_image_after_the_end),
      cmocka_unit_test(test_the_usual_loss),
      cmocka_unit_test(test_export),
      cmocka_unit_test(test_unsuitable),
      cmocka_unit_test(test_default_names),
      cmocka_unit_test(test_standard_output),
      cmocka_unit_test(test_terminal),
      cmocka_unit_test(test_killed),
      cmocka_unit_test(test_no_room),
      cmocka_unit_test(test_lost_data),
      cmocka_unit_test(test_contrastive_average),
  };
  test_filter();
  return cmocka_run_group_tests(tests, setup, NULL);
}
