"""What the comparisons share: the cases, children that measure, records and small texts.

A case is a training step: a model in brim's words (`model`, with `brim` options) and the same in
torch_models.py (`torch`). Both sides are measured alike: data lies where the device reads it, steps
are made without waiting, windows of steps end with waiting for the device, the median of five or more
windows counts."""
import json, os, platform, subprocess, sys, time

HERE = os.path.dirname(os.path.abspath(__file__))
SGD = dict(name="sgd", lr=0.01, momentum=0.9, weight_decay=5e-4)
ADAMW = dict(name="adamw", lr=3e-4, weight_decay=0.01)
TOKENS = "transformer(depth=%d, hidden=%d, heads=%d, patch=30)"

# name: model in brim's syntax, torch model and its arguments, one sample (HWC or length and channels)
MODELS = {
    "resnet18-cifar": dict(model="resnet18", torch=("resnet", dict(name="resnet18", stem="cifar", classes=10)),
                           input=(32, 32, 3), classes=10, optimizer=SGD),
    "wrn28-2": dict(model="wideresnet(depth=28, width=2)", torch=("wideresnet", dict(depth=28, width=2, classes=10)),
                    input=(32, 32, 3), classes=10, optimizer=SGD),
    "wrn28-10": dict(model="wideresnet(depth=28, width=10)", torch=("wideresnet", dict(depth=28, width=10, classes=10)),
                     input=(32, 32, 3), classes=10, optimizer=SGD),
    "resnet50-224": dict(model="resnet50", torch=("resnet", dict(name="resnet50", stem="imagenet", classes=1000)),
                         input=(224, 224, 3), classes=1000, optimizer=SGD),
    "simclr-96": dict(model="simclr(backbone=resnet18(stem=imagenet), hidden=512, dim=128)",
                      torch=("simclr", dict(stem="imagenet", hidden=512, dim=128)),
                      input=(96, 96, 3), targets=128, views=2, optimizer=SGD),
    "transformer-3-16": dict(model=TOKENS % (3, 16, 1), torch=("transformer", dict(depth=3, hidden=16, heads=1, outputs=4)),
                             input=(5160, 2), targets=4, optimizer=ADAMW),
    "transformer-6-64": dict(model=TOKENS % (6, 64, 4), torch=("transformer", dict(depth=6, hidden=64, heads=4, outputs=4)),
                             input=(5160, 2), targets=4, optimizer=ADAMW),
    "transformer-12-128": dict(model=TOKENS % (12, 128, 8), torch=("transformer", dict(depth=12, hidden=128, heads=8, outputs=4)),
                               input=(5160, 2), targets=4, optimizer=ADAMW),
    # Small enough for any machine, to try the scripts themselves.
    "tiny": dict(model="wideresnet(depth=10, width=1)", torch=("wideresnet", dict(depth=10, width=1, classes=10)),
                 input=(8, 8, 3), classes=10, optimizer=SGD),
}


def case(text):
    """'resnet18-cifar:512' -> its name, its model's row, its batch."""
    name, _, batch = text.partition(":")
    if name not in MODELS or not batch.isdigit():
        sys.exit("unknown case '%s': NAME:BATCH, where NAME is one of %s" % (text, ", ".join(MODELS)))
    return name, MODELS[name], int(batch)


def optimizer_text(o):
    return "%s(%s)" % (o["name"], ", ".join("%s=%r" % (k, v) for k, v in o.items() if k != "name"))


def run_child(argv, timeout, env=None):
    """Runs a child and returns the last line of its output as an object; or {'failure': why}."""
    started = time.monotonic()
    try:
        r = subprocess.run(argv, capture_output=True, text=True, timeout=timeout, env=env)
    except subprocess.TimeoutExpired:
        return dict(failure="took more than %g s" % timeout)
    except OSError as e:
        return dict(failure="%s: %s" % (argv[0], e.strerror))
    lines = [l for l in r.stdout.splitlines() if l.startswith("{")]
    if r.returncode or not lines:
        return dict(failure=(r.stderr.strip().splitlines() or ["nothing printed, exit status %d" % r.returncode])[-1][:300])
    return dict(json.loads(lines[-1]), wall_s=round(time.monotonic() - started, 1))


def run_brim(a, text, precision, extra=()):
    """bench_model on a case."""
    name, m, batch = case(text)
    argv = [a.bench_model, "--device", a.device, "--model", m["model"], "--batch", str(batch),
            "--input", "x".join(map(str, m["input"])), "--type", "f32", "--precision", precision,
            "--optimizer", optimizer_text(m["optimizer"]), "--windows", str(a.windows),
            "--steps", str(a.steps), "--warmup", str(a.warmup), *extra]
    argv += ["--classes", str(m["classes"])] if "classes" in m else ["--targets", str(m["targets"])]
    if m.get("views"):
        argv += ["--views", str(m["views"])]
    return dict(run_child(argv, a.limit), who="brim", variant="brim", case=text)


def run_torch(a, text, precision, variant, device):
    """torch_step.py on a case, in a separate process."""
    argv = [a.python, os.path.join(HERE, "torch_step.py"), "--case", text, "--variant", variant,
            "--precision", precision, "--device", device, "--windows", str(a.windows),
            "--steps", str(a.steps), "--warmup", str(a.warmup)]
    env = dict(os.environ)
    if device == "cpu":
        argv += ["--threads", str(a.threads)]
        env.update(OMP_NUM_THREADS=str(a.threads), OPENBLAS_NUM_THREADS=str(a.threads))
    return dict(run_child(argv, a.limit, env), who="torch", variant=variant, case=text)


def cpu_name():
    try:
        out = subprocess.run(["lscpu"], capture_output=True, text=True).stdout
        return next(l.split(":", 1)[1].strip() for l in out.splitlines() if l.startswith("Model name"))
    except Exception:
        return platform.processor() or platform.machine()


def show(v, form="%.0f"):
    return form % v if v is not None else "-"


def write_lines(path, records):
    with open(path, "w") as f:
        for r in records:
            f.write(json.dumps(r) + "\n")
