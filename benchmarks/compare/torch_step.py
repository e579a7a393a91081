#!/usr/bin/env python3
"""Training steps of one case in PyTorch, as a careful user writes them: channels_last, autocast,
cudnn.benchmark, fused optimiser, optionally torch.compile. Data lies on the device. Prints one JSON
line. gpu_step.py and cpu_step.py start it, each time as a fresh process.

  torch_step.py --case resnet18-cifar:512 --variant reduce-overhead --precision bf16 --device cuda"""
import argparse, json, statistics, time

import torch
import torch.nn.functional as F

import common, torch_models

TYPES = {"fp32": None, "tf32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


def data(m, batch, device):
    """Random input in the model's shape, and targets."""
    rows = batch * m.get("views", 1)
    if len(m["input"]) == 3:
        h, w, c = m["input"]
        x = torch.randn(rows, c, h, w, device=device).to(memory_format=torch.channels_last)
    else:
        x = torch.randn(rows, *m["input"], device=device)
    if m.get("views"):
        return x, None
    if "classes" in m:
        return x, torch.randint(0, m["classes"], (rows,), device=device)
    return x, torch.randn(rows, m["targets"], device=device)


def loss_of(m, out, y):
    if m.get("views"):
        return torch_models.ntxent(out.float())
    return F.cross_entropy(out.float(), y) if "classes" in m else F.mse_loss(out.float(), y)


def optimizer(model, o, cuda):
    kind = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}[o["name"]]
    rest = {k: v for k, v in o.items() if k != "name"}
    try:
        return kind(model.parameters(), fused=True, **rest) if cuda else kind(model.parameters(), **rest)
    except (TypeError, RuntimeError):  # an older PyTorch
        return kind(model.parameters(), **rest)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--case", required=True)
    p.add_argument("--variant", choices=("eager", "compile", "reduce-overhead"), default="eager")
    p.add_argument("--precision", choices=tuple(TYPES), default="bf16")
    p.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    p.add_argument("--threads", type=int, default=0)
    p.add_argument("--windows", type=int, default=5)
    p.add_argument("--steps", type=int, default=0)
    p.add_argument("--warmup", type=int, default=8)
    a = p.parse_args()
    cuda = a.device == "cuda"
    if a.threads:
        torch.set_num_threads(a.threads)
    torch.backends.cudnn.benchmark = True
    # tf32 is what torch's "high" allows; fp32 means real fp32.
    torch.set_float32_matmul_precision("highest" if a.precision == "fp32" else "high")
    torch.backends.cudnn.allow_tf32 = a.precision != "fp32"
    _, m, batch = common.case(a.case)
    x, y = data(m, batch, a.device)
    model = torch_models.make(*m["torch"]).to(a.device)
    if x.dim() == 4:
        model = model.to(memory_format=torch.channels_last)
    opt = optimizer(model, m["optimizer"], cuda)
    scaler = torch.cuda.amp.GradScaler(enabled=cuda and a.precision == "fp16")
    forward = model
    if a.variant != "eager":
        forward = torch.compile(model, mode=None if a.variant == "compile" else a.variant)
    dtype = TYPES[a.precision]

    def step():
        opt.zero_grad(set_to_none=True)
        with torch.autocast(a.device, dtype or torch.bfloat16, enabled=dtype is not None):
            loss = loss_of(m, forward(x), y)
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
        return loss

    def wait():
        if cuda:
            torch.cuda.synchronize()

    def window(steps):
        t = time.perf_counter()
        for _ in range(steps):
            step()
        wait()
        return (time.perf_counter() - t) / steps * 1e3

    started = time.perf_counter()
    for _ in range(a.warmup):
        loss = step()
    wait()
    warm = time.perf_counter() - started
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    steps = a.steps or max(1, min(10000, int(250 / window(2))))
    ms = [window(steps) for _ in range(max(a.windows, 5))]
    median = statistics.median(ms)
    line = dict(benchmark="model_step", who="torch", version=torch.__version__, variant=a.variant,
                torchvision=torch_models.torchvision is not None, case=a.case, batch=batch, precision=a.precision,
                device=torch.cuda.get_device_name() if cuda else common.cpu_name(),
                threads=torch.get_num_threads(), warmup_s=round(warm, 2), windows=len(ms), steps_per_window=steps,
                samples_per_s=batch / median * 1e3, ms=median, ms_min=min(ms), ms_max=max(ms),
                last_warmup_loss=float(loss.detach()))
    if cuda:
        line.update(peak_allocated_bytes=torch.cuda.max_memory_allocated(),
                    peak_reserved_bytes=torch.cuda.max_memory_reserved())
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
