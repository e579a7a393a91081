#!/usr/bin/env python3
"""Does brim compute what PyTorch computes? One training step in fp32 (no tf32) from the same random
weights, running statistics and batch; outputs, loss, gradients and running statistics are compared,
and the checkpoint that brim wrote is loaded into the PyTorch module with strict=True.

  benchmarks/compare/agree.py --engine-dump build/bin/engine_dump --device cuda --torch-device cuda
  benchmarks/compare/agree.py --device ref --case resnet18-tiny wrn-tiny transformer-tiny simclr-tiny

A figure is |brim - PyTorch| / |PyTorch| of a tensor (2-norms); it must be below --limit. Where a ReLU
is fed with a value next to zero, or a maximum with two that are nearly equal, a rounding decides where a
gradient passes, and two right programs differ by more than that. So gradients are compared twice: with
PyTorch as it is, which is printed, and with PyTorch in double precision whose ReLUs and maxima decide as
brim's did, where the limit holds for each tensor. The share that decided otherwise than PyTorch's must be
below --flips.

The batch is white noise, or with --images the first photographs of CIFAR-10's test set, enlarged. Noise is
the harder of the two: after some layers one sample of it looks like the next, and batch norm enlarges what
is left of their difference together with every rounding (--floor says what PyTorch's own fp32 makes of it).
Exit status 1 when something disagrees."""
import argparse, json, os, subprocess, sys, tempfile

import torch
import torch.nn.functional as F

import tensors, torch_models

# name: model in brim's syntax, kind and arguments in torch_models, sample, outputs, batch
TOKENS = "transformer(depth=%d, hidden=%d, heads=%d, patch=30)"
CASES = {
    "resnet18-cifar": ("resnet18", "resnet", dict(name="resnet18", stem="cifar", classes=10), (32, 32, 3), 10, 8),
    "resnet50-cifar": ("resnet50", "resnet", dict(name="resnet50", stem="cifar", classes=10), (32, 32, 3), 10, 8),
    "resnet18-224": ("resnet18", "resnet", dict(name="resnet18", stem="imagenet", classes=1000), (224, 224, 3), 1000, 8),
    "resnet50-224": ("resnet50", "resnet", dict(name="resnet50", stem="imagenet", classes=1000), (224, 224, 3), 1000, 8),
    "wrn28-2": ("wideresnet(depth=28, width=2)", "wideresnet", dict(depth=28, width=2, classes=10), (32, 32, 3), 10, 8),
    "transformer-3-16": (TOKENS % (3, 16, 1), "transformer", dict(depth=3, hidden=16, heads=1, outputs=4), (5160, 2), None, 8),
    "transformer-6-64": (TOKENS % (6, 64, 4), "transformer", dict(depth=6, hidden=64, heads=4, outputs=4), (5160, 2), None, 8),
    "simclr-96": ("simclr(backbone=resnet18(stem=imagenet), hidden=512, dim=128)", "simclr",
                  dict(stem="imagenet", hidden=512, dim=128), (96, 96, 3), 128, 8),
    # Small models that train quickly on a machine without a fast device.
    "resnet18-tiny": ("resnet18(width=8)", "resnet", dict(name="resnet18", stem="cifar", classes=10, width=8), (16, 16, 3), 10, 8),
    "resnet50-tiny": ("resnet50(width=4, stem=imagenet)", "resnet",
                      dict(name="resnet50", stem="imagenet", classes=10, width=4), (64, 64, 3), 10, 32),
    "wrn-tiny": ("wideresnet(depth=10, width=1)", "wideresnet", dict(depth=10, width=1, classes=10), (16, 16, 3), 10, 8),
    "transformer-tiny": (TOKENS % (2, 16, 2), "transformer",
                         dict(depth=2, hidden=16, heads=2, outputs=4, tokens=9), (270, 2), None, 8),
    "simclr-tiny": ("simclr(backbone=resnet18(width=8, stem=cifar), hidden=32, dim=16)", "simclr",
                    dict(stem="cifar", hidden=32, dim=16, width=8), (16, 16, 3), 16, 8),
}
USUAL = ["resnet18-cifar", "resnet50-cifar", "resnet18-224", "resnet50-224", "wrn28-2", "transformer-3-16",
         "transformer-6-64", "simclr-96"]


def randomize(model):
    """Gives every tensor random values, also those with special initial ones: norms, biases, positions, running
    statistics."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() == 1 and name.endswith("weight"):
                p.uniform_(0.5, 1.5)
            elif p.dim() == 1 or name == "pos_embed":
                p.normal_(0, 0.1)
        for m in model.modules():
            if isinstance(m, torch.nn.BatchNorm2d):
                m.running_mean.normal_(0, 0.1)
                m.running_var.uniform_(0.5, 1.5)


class Relu(torch.nn.Module):
    """A ReLU that keeps its decisions (channels last) or, given brim's decisions, follows those."""

    def __init__(self, given, kept):
        super().__init__()
        self.given, self.kept = given, kept

    def forward(self, x):
        if not self.training:
            return F.relu(x)
        self.kept.append(channels_last(x.detach() > 0).cpu())
        if self.given is None:
            return F.relu(x)
        return x * channels_first(self.given[len(self.kept) - 1].to(x.device))


class Maximum(torch.nn.Module):
    """A MaxPool2d that does the same with the places of its maxima: row * window + column."""

    def __init__(self, pool, given, kept):
        super().__init__()
        self.pool, self.given, self.kept = pool, given, kept

    def forward(self, x):
        p = self.pool
        y, index = F.max_pool2d(x, p.kernel_size, p.stride, p.padding, return_indices=True)
        if not self.training:
            return y
        wide = x.shape[3]
        top = (torch.arange(y.shape[2], device=x.device) * p.stride - p.padding)[:, None]
        left = (torch.arange(y.shape[3], device=x.device) * p.stride - p.padding)[None, :]
        place = (torch.div(index, wide, rounding_mode="floor") - top) * p.kernel_size + index % wide - left
        self.kept.append(channels_last(place).to("cpu", torch.uint8))
        if self.given is None:
            return y
        place = channels_first(self.given[len(self.kept) - 1].to(x.device).long())
        index = (torch.div(place, p.kernel_size, rounding_mode="floor") + top) * wide + place % p.kernel_size + left
        return x.flatten(2).gather(2, index.flatten(2)).reshape(y.shape)


def channels_last(t):
    return t.permute(0, 2, 3, 1) if t.dim() == 4 else t


def channels_first(t):
    return t.permute(0, 3, 1, 2) if t.dim() == 4 else t


def replace_deciders(module, given, kept):
    """given, kept: {"mask": of the ReLUs, "place": of the maxima}; given may be None."""
    for name, child in module.named_children():
        if isinstance(child, (torch.nn.ReLU, Relu)):
            setattr(module, name, Relu(given and given["mask"], kept["mask"]))
        elif isinstance(child, (torch.nn.MaxPool2d, Maximum)):
            pool = child.pool if isinstance(child, Maximum) else child
            setattr(module, name, Maximum(pool, given and given["place"], kept["place"]))
        else:
            replace_deciders(child, given, kept)


def torch_step(model, x, y, kind, decided):
    """The outputs of engine_dump, computed by the module itself; x has brim's layout, channels last."""
    rows = x.permute(0, 3, 1, 2) if x.dim() == 4 else x
    out, kept = {}, {"mask": [], "place": []}
    replace_deciders(model, decided, kept)
    model.eval()
    with torch.no_grad():
        out["outputs.eval"] = model(rows)
    model.train()
    model.zero_grad()
    z = model(rows)
    loss = torch_models.ntxent(z) if kind == "simclr" else F.mse_loss(z, y) if y.is_floating_point() else F.cross_entropy(z, y)
    loss.backward()
    out["outputs.train"], out["loss"] = z.detach(), loss.detach().reshape(1)
    for name, p in model.named_parameters():
        out["grad." + name] = p.grad
    for name, b in model.named_buffers():
        if "running" in name:
            out["stats." + name] = b
    return {k: v.detach().double().cpu().clone() for k, v in out.items()}, kept


def brim_step(a, case, weights, x, y, scratch):
    model, kind, _, _, outputs, _ = case
    paths = {n: os.path.join(scratch, n + ".safetensors") for n in ("weights", "batch", "out", "checkpoint")}
    tensors.save(paths["weights"], weights)
    tensors.save(paths["batch"], dict(x=x) if y is None else dict(x=x, y=y))
    argv = [a.engine_dump, "--device", a.device, "--threads", str(a.threads), "--model", model]
    for name, path in paths.items():
        argv += ["--" + name, path]
    if outputs:
        argv += ["--classes", str(outputs)]
    argv += ["--eager"] * a.eager + ["--recompute"] * a.recompute
    r = subprocess.run(argv, capture_output=True, text=True)
    if r.returncode:
        raise RuntimeError(r.stderr.strip() or "engine_dump failed with %d" % r.returncode)
    checkpoint = tensors.load(paths["checkpoint"])
    out = tensors.load(paths["out"])
    for name, t in checkpoint.items():
        if "running" in name:
            out["stats." + name] = t
    decided = {kind: [out.pop("%s.%d" % (kind, k)) for k in range(sum(n.startswith(kind + ".") for n in out))]
               for kind in ("mask", "place")}
    decided["mask"] = [m.bool() for m in decided["mask"]]
    return {k: v.double() for k, v in out.items()}, decided, checkpoint


def distance(x, y):
    return float((x - y).norm() / y.norm().clamp_min(1e-30))


def short(x):
    return float("%.3g" % x)


def joined(t, keys):
    return torch.cat([t[k].flatten() for k in keys])


def compare(a, got, single, double, row):
    """Prints the worst tensor of each group and stores it in the row; False if something disagrees."""
    good, worst = True, {}
    for key, want in double.items():
        if key not in got:
            print("    %s: brim did not write it" % key)
            good = False
            continue
        got[key] = got[key].reshape(want.shape)
        d = distance(got[key], want)
        group = key.split(".")[0] if key.startswith(("grad.", "stats.")) else key
        if not d <= worst.get(group, -1):
            worst[group] = d
        if not d < a.limit:
            good = False
            print("    %s: %.2e" % (key, d))
    keys = [k for k in double if k.startswith("grad.") and k in got]
    overall = distance(joined(got, keys), joined(double, keys))
    to_single = distance(joined(got, keys), joined(single, keys))
    apart = distance(joined(single, keys), joined(double, keys))
    print("  gradients together %.2e (to PyTorch in fp32 as it is: %.2e; from that to double: %.2e); worst: %s" % (
        overall, to_single, apart, ", ".join("%s %.2e" % item for item in worst.items())))
    row.update(gradients=short(overall), to_torch_fp32=short(to_single), torch_fp32_to_double=short(apart),
               worst={k: short(v) for k, v in worst.items()})
    return good


def print_floor(single, own, row):
    """Prints how far PyTorch's fp32 is from its own double with equal decisions: the best that fp32 can reach."""
    keys = [k for k in own if k.startswith("grad.")]
    apart = sorted(((distance(single[k], own[k]), k) for k in keys), reverse=True)
    print("  PyTorch's fp32 from its double with the same decisions: together %.2e, worst tensors %s" % (
        distance(joined(single, keys), joined(own, keys)),
        ", ".join("%s %.2e" % (k[5:], d) for d, k in apart[:3])))
    row.update(floor_gradients=short(distance(joined(single, keys), joined(own, keys))),
               floor_worst={k[5:]: short(d) for d, k in apart[:3]})


def compare_decisions(a, decided, kept, row):
    names = {"mask": "ReLUs", "place": "maxima"}
    other = total = 0
    for kind, name in names.items():
        if len(decided[kind]) != len(kept[kind]):
            print("    brim has %d layers of %s, PyTorch %d" % (len(decided[kind]), name, len(kept[kind])))
            return False
        o = sum(int((mine != theirs).sum()) for mine, theirs in zip(decided[kind], kept[kind]))
        n = sum(mine.numel() for mine in decided[kind])
        if n:
            print("  %d of %d %s decided otherwise than PyTorch's in fp32" % (o, n, name))
            row.update({name.lower() + "_decided_otherwise": o, name.lower(): n})
        other, total = other + o, total + n
    return other <= a.flips * total


def check_checkpoint(model, checkpoint, weights):
    model.load_state_dict(checkpoint, strict=True)
    kept = all(torch.equal(checkpoint[k], v) for k, v in weights.items()
               if "running" not in k and "tracked" not in k)
    counted = all(int(v) == 1 for k, v in checkpoint.items() if k.endswith("num_batches_tracked"))
    if not kept or not counted:
        print("    the checkpoint has other weights than were given, or counts other than one batch")
    return kept and counted


def photographs(folder, rows, sample):
    """The first images of CIFAR-10's test set as brim reads them: of this size, standardised, channels last."""
    with open(os.path.join(folder, "test_batch.bin"), "rb") as f:
        raw = torch.frombuffer(bytearray(f.read(rows * 3073)), dtype=torch.uint8).reshape(rows, 3073)
    x = raw[:, 1:].reshape(rows, 3, 32, 32).float() / 255
    mean, std = torch.tensor([0.4914, 0.4822, 0.4465]), torch.tensor([0.2470, 0.2435, 0.2616])
    x = (x - mean[:, None, None]) / std[:, None, None]
    x = F.interpolate(x, sample[:2], mode="bilinear", align_corners=False)
    return x.permute(0, 2, 3, 1).contiguous(), raw[:, 0].long()


def check(a, name, row):
    case = CASES[name]
    _, kind, arguments, sample, outputs, batch = case
    torch.manual_seed(a.seed)
    model = torch_models.make(kind, arguments)
    if not a.fresh:
        randomize(model)
    batch = a.batch or batch
    rows = 2 * batch if kind == "simclr" else batch
    x = torch.randn(rows, *sample)
    y = None if kind == "simclr" else torch.randint(0, outputs, (rows,)) if outputs else torch.randn(rows, 4)
    row.update(batch=rows, input="noise")
    if a.images and len(sample) == 3:
        row.update(input="photographs")
        x, labels = photographs(a.images, rows, sample)
        y = labels if y is not None else y
    weights = {k: v.clone() for k, v in model.state_dict().items()}
    with tempfile.TemporaryDirectory() as scratch:
        got, decided, checkpoint = brim_step(a, case, weights, x, y, scratch)

    def torch_result(dtype, given):
        model.load_state_dict(weights)
        m = model.to(a.torch_device, dtype)
        target = y if y is None else y.to(a.torch_device, dtype if y.is_floating_point() else y.dtype)
        result = torch_step(m, x.to(a.torch_device, dtype), target, kind, given)
        model.to("cpu", torch.float32)
        return result

    single, kept = torch_result(torch.float32, None)
    good = compare_decisions(a, decided, kept, row)
    if not good:
        return False
    double, _ = torch_result(torch.float64, decided)
    good = compare(a, got, single, double, row)
    if a.floor:
        print_floor(single, torch_result(torch.float64, kept)[0], row)
    return check_checkpoint(model, checkpoint, weights) and good


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--engine-dump", default="build/bin/engine_dump")
    p.add_argument("--device", default="cuda", help="brim's: cuda, cpu, ref")
    p.add_argument("--torch-device", default="cuda" if torch.cuda.is_available() else "cpu")
    p.add_argument("--threads", type=int, default=0)
    p.add_argument("--case", nargs="+", default=USUAL, choices=list(CASES))
    p.add_argument("--limit", type=float, default=1e-4)
    p.add_argument("--flips", type=float, default=1e-4, help="share of ReLUs that may decide otherwise")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--floor", action="store_true", help="also how exact PyTorch's own fp32 is")
    p.add_argument("--fresh", action="store_true", help="weights as PyTorch initialises them")
    p.add_argument("--images", metavar="DIR", help="CIFAR-10's binary files: photographs instead of noise")
    p.add_argument("--batch", type=int, default=0, help="samples; 0 = the case's own")
    p.add_argument("--eager", action="store_true", help="brim: nothing fused or recorded")
    p.add_argument("--recompute", action="store_true", help="brim: activations are recomputed")
    p.add_argument("--name", help="of the device, for the record")
    p.add_argument("--output", help="append a line for each case here")
    a = p.parse_args()
    a.engine_dump = os.path.abspath(a.engine_dump)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.deterministic = True
    print("PyTorch %s on %s, %s; brim on %s" % (torch.__version__, a.torch_device,
          "torchvision" if torch_models.torchvision else "no torchvision: own modules with its names", a.device))
    bad = 0
    for name in a.case:
        row = dict(benchmark="agree", device=a.name or a.device, torch=torch.__version__, torch_device=a.torch_device,
                   case=name, weights="as initialised" if a.fresh else "random", limit=a.limit)
        try:
            good = check(a, name, row)
            print("%-20s %s" % (name, "agrees" if good else "DISAGREES"), flush=True)
        except RuntimeError as e:
            good = False
            print("%-20s FAILED: %s" % (name, e), flush=True)
        bad += not good
        if a.output:
            with open(a.output, "a") as f:
                f.write(json.dumps(dict(row, result="agrees" if good else "disagrees")) + "\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
