#!/usr/bin/env python3
"""swaps.py WEIR NAME=MODULE…: how much longer a batch waits when a module is replaced while the pipeline runs.

A generator makes messages of 1 KiB at a steady rate, a guest passes them on, a file for each epoch takes them. Shown is the time from
a batch's arrival in the host to its being handed to the sink, over a whole run: of a run that is left alone, of one that is asked for as many
checkpoints as another for swaps, and of one with swaps. Every swap brings bytes that were never seen before, so each is compiled. The swap itself is
timed from the request to the answer, which comes with its committed epoch.
"""

import argparse
import json
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
import uuid

PIPELINE = """
pipeline: swaps
workers: {workers}
checkpoint: {{store: ./state, interval: 1s}}
sources:
  - generator: {{partitions: 4, rate: {rate}, template: '{{"id":{{{{index()}}}},"note":"{{{{alphaNumeric(1000)}}}}"}}'}}
steps: [{{name: guest, transform: module.wasm, limits: {{memory: 1GiB}}}}]
sinks: [file: {{path: "out-{{epoch}}.jsonl"}}]
"""


def remarked(module):
    """The same module with a custom section at its end: other bytes, and so another digest."""
    name = uuid.uuid4().hex.encode()
    return module + bytes([0, len(name) + 1, len(name)]) + name


def ask(port, path, body=None):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data=body, method="GET" if body is None else "POST")
    with urllib.request.urlopen(request, timeout=120) as answer:
        return answer.read()


def run(args, module, what):
    """The summary of one run, and how long each request took."""
    folder = pathlib.Path(tempfile.mkdtemp())
    (folder / "module.wasm").write_bytes(module)
    (folder / "pipeline.yaml").write_text(PIPELINE.format(workers=args.workers, rate=args.rate))
    command = [args.weir, "--log", "error", "run", "pipeline.yaml", "--json", "--listen", f"127.0.0.1:{args.port}"]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE)
    took = []
    try:
        until = time.monotonic() + 120
        while True:
            try:
                ask(args.port, "/readyz")
                break
            except (urllib.error.URLError, ConnectionError):
                if time.monotonic() > until or process.poll() is not None:
                    raise
                time.sleep(0.1)
        time.sleep(args.pause)
        others = [remarked(module), remarked(module)]
        for number in range(args.times):
            began = time.monotonic()
            if what == "swap":
                ask(args.port, "/v1/steps/guest/swap", remarked(module))
            elif what == "known swap":
                ask(args.port, "/v1/steps/guest/swap", others[number % 2])
            elif what == "checkpoint":
                ask(args.port, "/v1/checkpoint", b"")
            took.append(time.monotonic() - began)
            time.sleep(args.pause)
        process.send_signal(signal.SIGINT)
        return json.loads(process.communicate(timeout=60)[0]), took
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weir")
    parser.add_argument("modules", nargs="+", metavar="NAME=MODULE")
    parser.add_argument("--times", type=int, default=10, help="requests in a run")
    parser.add_argument("--pause", type=float, default=1.5, help="seconds between two of them")
    parser.add_argument("--rate", type=int, default=5000, help="messages a second")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--port", type=int, default=19798)
    args = parser.parse_args()
    print(f"{'module':<20}{'run':<14}{'messages':>10}{'P50':>8}{'P99':>8}{'max':>8}   request, median and max")
    for name, path in (pair.split("=", 1) for pair in args.modules):
        module = pathlib.Path(path).read_bytes()
        for what in ("left alone", "checkpoint", "known swap", "swap"):
            summary, took = run(args, module, what)
            handed, took = summary["handed"], sorted(took)
            asked = "" if what == "left alone" else f"{took[len(took) // 2] * 1000:.0f} ms, {took[-1] * 1000:.0f} ms"
            print(f"{name:<20}{what:<14}{handed['count']:>10}" + "".join(f"{handed[p]:>5} ms" for p in ("p50_ms", "p99_ms", "max_ms")) + f"   {asked}", flush=True)


main()
