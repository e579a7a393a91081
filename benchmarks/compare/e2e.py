"""Sustained speed of `brim train` from outside: the clock of the reader of log.jsonl as it grows. And of a
DataLoader with a step behind it (torch_rate).

An epoch's line comes when its last step has been computed, so the time between two of them holds all
that a run does: reading, transfers, steps, logs, checkpoints. The first epochs are left out until what
was prefetched while starting is used up; timed is at least `times` what the ring of the loader holds.

step_samples_per_s is the median over log intervals that hold nothing but steps: each epoch's but the
first, in which its checkpoint is written. They begin and end with waiting for the device."""
import json, os, signal, statistics, subprocess, time

PREFETCH = 2


def ring_batches(workers):
    return workers * PREFETCH + 2


def read_new(f, pending):
    """Complete lines that were appended since the last call; pending[0] keeps an incomplete rest."""
    text = pending[0] + f.read()
    lines = text.split("\n")
    pending[0] = lines.pop()
    return [json.loads(l) for l in lines if l]


def stop(child):
    """Ends the process like Ctrl-C; it writes a checkpoint."""
    child.send_signal(signal.SIGINT)
    try:
        return child.communicate(timeout=20)[1]
    except subprocess.TimeoutExpired:
        child.kill()
        return child.communicate()[1]


def shown(argv):
    """A command in a form that others can read: files by their last names, quoted where a shell needs it."""
    words = []
    for w in argv:
        key, _, value = w.rpartition("=")
        w = (key + "=" if key else "") + os.path.basename(value) if value.startswith("/") else w
        words.append("'%s'" % w if any(c in w for c in " (|") else w)
    return " ".join(words)


def brim_train(argv, folder, per_epoch, batch, ring, times=30, seconds=2.0, limit=30.0):
    """Runs argv with epochs and output added. Returns a record with samples_per_s, or with failure."""
    steps = max(1, per_epoch // batch)
    interval = max(1, steps // 2)
    argv = argv + ["training.epochs=1000000", "log.interval=%d" % interval, "--output-dir", folder, "--quiet"]
    started, path, f, pending = time.monotonic(), os.path.join(folder, "log.jsonl"), None, [""]
    seen, clean, last = [], [], {}
    child = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    lead = 1 + -(-2 * ring // steps)  # epochs left out
    while child.poll() is None and time.monotonic() - started < limit:
        if f is None and os.path.exists(path):
            f = open(path)
        for event in read_new(f, pending) if f else []:
            if event.get("event") == "epoch":
                seen.append(time.monotonic())
                last = event
            elif len(seen) >= lead and 0 < (event["step"] - 1) % steps // interval:
                clean.append(event["samples_per_s"])
        timed = (len(seen) - lead) * steps
        if len(seen) > lead and timed >= times * ring and seen[-1] - seen[lead - 1] >= seconds:
            break
        time.sleep(0.001)
    errors = stop(child) if child.poll() is None else child.communicate()[1]
    if f:
        f.close()
    rec = dict(command=shown(argv[:-3]), wall_s=round(time.monotonic() - started, 1))
    if len(seen) <= lead:
        lines = [l for l in errors.strip().splitlines() if "hint:" not in l] if child.returncode != 130 else []
        return dict(rec, failure=(lines or ["too few epochs ended within %g s" % limit])[-1][:300])
    epochs, took = len(seen) - lead, seen[-1] - seen[lead - 1]
    return dict(rec, samples_per_s=epochs * per_epoch / took, timed_s=took, timed_samples=epochs * per_epoch,
                timed_over_ring=epochs * steps / ring, intervals=len(clean), interval_steps=interval,
                step_samples_per_s=statistics.median(clean) if clean else None, first_epoch_s=seen[0] - started,
                log_samples_per_s=last.get("samples_per_s"), loader=last.get("loader"), train_loss=last.get("train_loss"))


def torch_rate(dataset, step, batch, workers, seconds, device, pin=True, lead=2):
    """Samples/s of `step` over a DataLoader. The measurement starts when the batches prefetched at the start, and
    `lead` more, are used up."""
    import torch
    loader = torch.utils.data.DataLoader(dataset, batch, shuffle=True, num_workers=workers, pin_memory=pin,
                                         persistent_workers=workers > 0, drop_last=True)

    def wait():
        if device == "cuda":
            torch.cuda.synchronize()

    def stream():
        while True:
            yield from loader

    batches = stream()
    for _ in range(2 * workers + lead):
        step(*next(batches))
    wait()
    started, n = time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        step(*next(batches))
        n += 1
    wait()
    took = time.perf_counter() - started
    batches.close()
    del batches, loader  # ends its workers
    return dict(samples_per_s=n * batch / took, timed_s=took, timed_samples=n * batch,
                timed_over_prefetched=n / max(1, 2 * workers))
