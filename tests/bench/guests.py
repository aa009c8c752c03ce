#!/usr/bin/env python3
"""guests.py WEIR [--seconds N] [--runs N] NAME=MODULE[:CONFIG]…: what a message costs inside a guest, in nanoseconds.

Each module handles orders from the generator, of 1 KiB and of 100 bytes, on one worker: batches of 1000. Shown is the time of
the calls into the sandbox by `weir_guest_call_seconds`, copying in and out included, for each message: the best of a few runs, in
turns, so that a busy neighbour hits them alike.
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
import urllib.request

PIPELINE = """
pipeline: guests
workers: 1
checkpoint: {{store: ./state, interval: 1s}}
sources:
  - generator:
      partitions: 1
      template: >-
        {{"id":{{{{integer(100000, 999999)}}}},"email":"{{{{alpha(8)}}}}@example.com","amount":{{{{integer(10000, 20000)}}}},"ts":1700000000000,"note":"{{{{alphaNumeric({note})}}}}"}}
steps: [{{name: guest, transform: {module}, config: {config}, limits: {{memory: 1GiB, recycle: 192MiB}}}}]
sinks: [blackhole: {{}}, blackhole: {{name: large, from: large}}]
"""
NOTES = {"1 KiB": 934, "100 B": 10}


def sample(process, port):
    """Nanoseconds that the worker has been on a processor, and messages, so far."""
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5).read().decode()
    events = re.search(r'^weir_step_events_in_total{.*step="guest".*} (\S+)$', text, re.M)
    busy = 0
    for task in pathlib.Path(f"/proc/{process.pid}/task").iterdir():
        if (task / "comm").read_text().startswith("weir-worker"):
            busy += int((task / "schedstat").read_text().split()[0])
    return busy, float(events[1])


def measure(weir, module, config, note, seconds, port):
    """Nanoseconds a message, after a while of warming up."""
    folder = pathlib.Path(tempfile.mkdtemp())
    routes = "passthrough" not in module
    text = PIPELINE.format(note=note, module=pathlib.Path(module).resolve(), config=config)
    if not routes:
        text = text.replace(", blackhole: {name: large, from: large}", "")
    (folder / "pipeline.yaml").write_text(text)
    command = [weir, "--log", "error", "run", "pipeline.yaml", "--json", "--listen", f"127.0.0.1:{port}"]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 120
        while True:
            time.sleep(0.5)
            try:
                if sample(process, port)[1] > 5000:
                    break
            except (OSError, TypeError):
                if time.monotonic() > until or process.poll() is not None:
                    raise
        first = sample(process, port)
        time.sleep(seconds)
        last = sample(process, port)
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)
    return (last[0] - first[0]) / (last[1] - first[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weir")
    parser.add_argument("modules", nargs="+", metavar="NAME=MODULE[:CONFIG]")
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--port", type=int, default=19797)
    args = parser.parse_args()
    modules = [(name, *(rest.split(":", 1) + ["{}"])[:2]) for name, rest in (m.split("=", 1) for m in args.modules)]
    best = {}
    for _ in range(args.runs):
        for name, module, config in modules:
            for size, note in NOTES.items():
                found = measure(args.weir, module, config, note, args.seconds, args.port)
                best[name, size] = min(found, best.get((name, size), found))
    print(f"{'guest':<28}" + "".join(f"{size:>10}" for size in NOTES))
    for name, *_ in modules:
        print(f"{name:<28}" + "".join(f"{best[name, size]:>7.0f} ns" for size in NOTES))


main()
