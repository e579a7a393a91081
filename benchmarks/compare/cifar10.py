#!/usr/bin/env python3
"""Learning on CIFAR-10 on a GPU: ResNet-18 to 94 % in bf16 and fp16, SimCLR evaluated by its neighbours.

  benchmarks/compare/cifar10.py --build build --data cifar10 --only fp16 bf16 --output benchmarks/results/cifar10-h200.jsonl
  benchmarks/compare/cifar10.py --build build --data cifar10 --only simclr --output benchmarks/results/simclr-cifar10-h200.jsonl
  benchmarks/compare/cifar10.py --build build --device cpu --small     tries the script itself, on noise

fp16, bf16: configs/cifar10-resnet18.yaml, longer, on crops of 48 from a quarter of the image on, flips and cutout;
SGD down a cosine, evaluated by the average of its weights. A line per evaluation, and one of the whole: the first time at
94 %, the last accuracy, and that of the model on other sizes and in tf32.
simclr: configs/cifar10-simclr.yaml without the linear probe; the same by kNN, which has to be 84 % within 480 s.
Times are the process's own wall clock, evaluations and checkpoints included; process_s also has what comes before
and after the run. Exits 1 when a limit is missed or a command fails."""
import argparse, json, os, random, re, subprocess, sys, tempfile, time

import common

ROOT = os.path.dirname(os.path.dirname(common.HERE))
CROPS = "random_resized_crop(size=48, scale=(0.25, 1.0)) | random_flip | cutout(size=16)"
SMALL = ["training.epochs=2", "training.warmup_epochs=0", "data.batch_size=16", "data.eval_batch_size=16",
         "training.eval_interval=1"]


def supervised(precision, a):
    return dict(benchmark="cifar10", config="cifar10-resnet18", key="eval_accuracy", name="val_accuracy",
                told='"accuracy"', least=0.94, seconds=None, val=64, sizes=(48, 56, 72), precision=precision,
                words=["precision=" + precision, "training.epochs=%d" % a.epochs, "training.warmup_epochs=5",
                       "training.eval_interval=10", "model=resnet18(stem=cifar)", "transform.train=" + CROPS,
                       "transform.val=resize(size=64)", "training.ema_decay=0.999", "scheduler=cosine(min_lr=0.02)"])


def contrastive():
    return dict(benchmark="simclr-cifar10", config="cifar10-simclr", key="knn", name="knn",
                told='"knn_accuracy"', least=0.84, seconds=480, val=56,
                sizes=(32, 48, 64), precision="bf16", words=["contrastive.probe_epochs=0"])


def noise(folder):
    """Makes files of the right shape, with noise in them."""
    r = random.Random(0)
    for name, count in [("data_batch_%d" % i, 32) for i in range(1, 6)] + [("test_batch", 32)]:
        with open(os.path.join(folder, name + ".bin"), "wb") as f:
            for _ in range(count):
                f.write(bytes([r.randrange(10)]) + r.randbytes(3072))


def typed(words):
    return " ".join(w if re.fullmatch(r"[\w.,=/:-]+", w) else '"%s"' % w for w in words)


def epochs(folder):
    with open(os.path.join(folder, "log.jsonl")) as f:
        rows = [json.loads(l) for l in f]
    return [r for r in rows if r["event"] == "epoch"]


def evaluate(a, case, folder, size, precision=None):
    """Evaluates the final model on images of this size."""
    argv = [a.brim, "eval", os.path.join(folder, "model.safetensors"), "--data-path", a.data, "--device", a.device,
            "--precision", precision or case["precision"], "--json", "contrastive.probe_epochs=0",
            "transform.val=resize(size=%d)" % size]
    r = subprocess.run(argv, capture_output=True, text=True)
    m = re.search(case["told"] + r":\s*([\d.]+)", r.stdout)
    return float(m[1]) if m else None


def learn(a, case, folder, put):
    words = (["data.cache=gpu"] if a.device == "cuda" else []) + case["words"] + (SMALL if a.small else []) + a.words
    argv = [a.brim, "train", os.path.join(ROOT, "configs", case["config"] + ".yaml"), "--data-path", a.data,
            "--device", a.device, "--output-dir", folder, *words]
    if a.small:
        case = dict(case, precision="fp32", sizes=case["sizes"][:1])
        argv.append("training.precision=fp32")
    base = dict(benchmark=case["benchmark"], who="brim", device=a.name,
                precision=case["precision"], command="brim train configs/%s.yaml %s" % (case["config"], typed(words)))
    started = time.monotonic()
    r = subprocess.run(argv, capture_output=True, text=True)
    took = time.monotonic() - started
    if r.returncode:
        put(dict(base, failure=(r.stderr.strip().splitlines() or ["no word"])[-1][:300]))
        return False
    rows = epochs(folder)
    seen = [e for e in rows if e.get(case["key"]) is not None]
    for e in seen:
        losses = (dict(train_loss=e["train_loss"]) if case["name"] == "knn" else
                  dict(loss=e["train_loss"], accuracy=e["train_accuracy"], val_loss=e["eval_loss"]))
        put(dict(base, epoch=e["epoch"], eval_size=case["val"], **losses, **{case["name"]: e[case["key"]]},
                 wall_s=round(e["wall_s"], 2), eval_s=round(e["eval_s"], 3)))
    reached = next((e for e in seen if e[case["key"]] >= case["least"]), None)
    last = seen[-1][case["key"]]
    other = {s: evaluate(a, case, folder, s) for s in case["sizes"]}
    finer = "fp32" if a.small else "tf32"
    exact = evaluate(a, case, folder, case["val"], finer)
    failed = None in other.values() or exact is None
    good = bool(reached) and last >= case["least"] and not failed and (not case["seconds"] or took < case["seconds"])
    put(dict(base, least=case["least"], most_s=case["seconds"], last=last, best=max(e[case["key"]] for e in seen),
             reached_in_epoch=reached and reached["epoch"], reached_after_s=reached and round(reached["wall_s"], 1),
             process_s=round(took, 1), epochs_s=round(sum(e["seconds"] for e in rows), 1),
             evaluations_s=round(sum(e["eval_s"] or 0 for e in rows), 1),
             before_the_first_epoch_s=round(rows[0]["wall_s"] - rows[0]["seconds"] - (rows[0]["eval_s"] or 0), 1),
             wall_s=round(rows[-1]["wall_s"], 1), good=good,
             on_other_sizes=other, in_other_precision={finer: exact}))
    return good or (a.small and not failed)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default="build", help="build folder")
    p.add_argument("--data", help="folder with CIFAR-10's binary files")
    p.add_argument("--device", default="cuda")
    p.add_argument("--name", default="GPU", help="of the device, for the records")
    p.add_argument("--only", nargs="+", default=["fp16", "bf16", "simclr"], choices=["fp16", "bf16", "simclr"])
    p.add_argument("--epochs", type=int, default=190, help="of fp16 and bf16")
    p.add_argument("--words", nargs="*", default=[], help="more key=value for every run")
    p.add_argument("--small", action="store_true", help="two epochs of noise")
    p.add_argument("--output", help="append the lines here too")
    p.add_argument("--keep", help="folder for what the runs leave, instead of one that goes")
    a = p.parse_args()
    a.brim = os.path.abspath(os.path.join(a.build, "bin", "brim"))

    def put(row):
        line = json.dumps(row)
        print(line, flush=True)
        if a.output:
            with open(a.output, "a") as f:
                f.write(line + "\n")

    bad = 0
    with tempfile.TemporaryDirectory() as scratch:
        if a.small:
            a.data = scratch
            noise(scratch)
        if not a.data:
            sys.exit("--data: where are CIFAR-10's files? tools/cifar10_from_images.py makes them from images")
        for which in a.only:
            case = contrastive() if which == "simclr" else supervised(which, a)
            bad += not learn(a, case, os.path.join(a.keep or scratch, "run-" + which), put)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
