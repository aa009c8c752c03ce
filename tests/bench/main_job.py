"""Kafka -> guest -> Iceberg, measured: CPU-seconds per GiB, throughput, memory, latency, file sizes.

A real Apache Kafka broker shares the cores with Weir. CPU is getrusage(user + system) of the whole weir process from
start to end, as its own summary prints it and as the kernel reports it to us. For the CPU figures the topic is filled
beforehand and the producer stopped. `visible` is the return of the catalog's commit; latency per row is that minus the
message's CreateTime; a poller of our own looks at the table's metadata beside it.
"""

import glob
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
WEIR = os.path.abspath(sys.argv[1])
GIB = float(os.environ.get("WEIR_BENCH_GIB", "4"))
SECONDS = int(os.environ.get("WEIR_BENCH_SECONDS", "60"))
RATE = 20_000
TEMPLATE = '{"id":"{{uuid()}}","logStreamId":"{{integer(1000001,2000000)}}","message":"{{alphaNumeric(915)}}"}'
SIZE = len('{"id":"","logStreamId":"","message":""}') + 36 + 7 + 915
SCHEMAS = {
    "passthrough": [("id", "string"), ("logStreamId", "string"), ("message", "string")],
    "map": [("id", "string"), ("log_stream_id", "long"), ("message", "string")],
}
CONFIGS = {
    "passthrough": {},
    "map": {"fields": {"/id": "/id", "/log_stream_id": {"from": "/logStreamId", "cast": "integer"}, "/message": "/message"}},
}
# Dataflow's published figures for the same job at 1 GiB/s (vCPU x utilisation; end-to-end write latency).
DATAFLOW = {"cpu": 270, "p50": 1.0, "p95": 7.4, "p99": 14.0, "file_kb": 800}


def processor():
    with open("/proc/cpuinfo") as info:
        for line in info:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return "unknown"


def say(text=""):
    print(text, flush=True)


class Broker:
    def __init__(self, folder):
        import socket

        def free():
            with socket.socket() as s:
                s.bind(("127.0.0.1", 0))
                return s.getsockname()[1]

        self.port = free()
        command = [f"{ROOT}/tests/peers/kafka/start", folder, str(self.port), str(free())]
        environment = {**os.environ, "WEIR_KAFKA_HEAP": "1g"}
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
        from confluent_kafka.admin import AdminClient

        self.admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
        for _ in range(120):
            try:
                self.admin.list_topics(timeout=2)
                return
            except Exception:
                time.sleep(1)
        sys.exit("the broker did not start")

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    def topic(self, name, partitions):
        from confluent_kafka.admin import NewTopic

        for future in self.admin.create_topics([NewTopic(name, partitions, 1)]).values():
            future.result()
        # The answer comes before every partition has its leader, and Weir refuses a topic that isn't there.
        for _ in range(100):
            found = self.admin.list_topics(name, timeout=10).topics[name].partitions
            if len(found) == partitions and all(partition.leader >= 0 for partition in found.values()):
                return
            time.sleep(0.1)
        sys.exit(f"the topic got no leaders topic={name}")

    def drop(self, name):
        for future in self.admin.delete_topics([name]).values():
            future.result()

    def stop(self):
        self.process.stdin.close()
        self.process.wait(60)


def job(folder, name, text):
    path = os.path.join(folder, name)
    os.makedirs(path, exist_ok=True)
    with open(os.path.join(path, "pipeline.yaml"), "w") as file:
        file.write(text)
    return path


def start(path, extra=()):
    command = [WEIR, "--log", "warn", "run", "pipeline.yaml", "--json", *extra]
    return subprocess.Popen(command, cwd=path, stdout=subprocess.PIPE, text=True)


def finish(process):
    out, _ = process.communicate()
    if process.returncode != 0:
        sys.exit(f"weir failed with {process.returncode}")
    return json.loads(out.strip().splitlines()[-1])


def producer(folder, name, broker, topic, count=None, rate=None):
    extra = "".join(f", {key}: {value}" for key, value in (("count", count), ("rate", rate)) if value)
    path = job(folder, name, f"""
pipeline: {name}
delivery: at-least-once
workers: 1
checkpoint: {{store: ./state, interval: 1s}}
sources: [generator: {{schema: template.json, partitions: 1{extra}}}]
sinks: [kafka: {{brokers: '{broker.address}', topic: {topic}, properties: {{compression.type: none, linger.ms: 20}}}}]
""")
    with open(os.path.join(path, "template.json"), "w") as file:
        file.write(TEMPLATE)
    return path


def consumer(folder, name, broker, topic, guest, interval, until=True):
    fields = [{"id": i + 1, "name": n, "required": True, "type": t} for i, (n, t) in enumerate(SCHEMAS[guest])]
    path = job(folder, name, f"""
pipeline: {name}
checkpoint: {{store: ./state, interval: {interval}}}
sources: [kafka: {{brokers: '{broker.address}', topic: {topic}{', until: latest' if until else ', start: latest'}}}]
steps: [{{name: {guest}, transform: {ROOT}/target/udfs/{guest}.wasm, config: {json.dumps(CONFIGS[guest])}}}]
sinks:
  - iceberg: {{catalog: {{type: sql, uri: 'sqlite:./warehouse/catalog.db'}}, warehouse: ./warehouse, table: bench.rows,
              schema: schema.json, partition_by: ['bucket(id, 64)'], distribution: hash, compression: zstd(1)}}
  - file: {{name: dead, path: dead.jsonl, from: dead_letter}}
""")
    with open(os.path.join(path, "schema.json"), "w") as file:
        json.dump({"type": "struct", "fields": fields}, file)
    return path


def table(path):
    """Row count, distinct ids, a sum of 64-bit hashes and the files, by DuckDB."""
    newest = sorted(glob.glob(f"{path}/warehouse/bench/rows/metadata/*.metadata.json"))[-1]
    sql = "SELECT count(*) AS rows, count(DISTINCT id) AS ids, sum(hash(id)::HUGEINT) % 9223372036854775807 AS sum FROM t"
    done = subprocess.run([sys.executable, f"{ROOT}/tests/peers/python/duck_table.py", newest, "--query", sql], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.strip().splitlines()[-1])


def spread(path):
    sizes = sorted(os.path.getsize(f) for f in glob.glob(f"{path}/warehouse/bench/rows/data/**/*.parquet", recursive=True))
    if not sizes:
        return "no files"
    at = lambda q: sizes[min(len(sizes) - 1, int(len(sizes) * q))] / 1e3
    return f"{len(sizes)} files, mean {sum(sizes) / len(sizes) / 1e3:.0f} KB (P5 {at(.05):.0f}, P50 {at(.5):.0f}, P95 {at(.95):.0f}); Dataflow about {DATAFLOW['file_kb']} KB"


def cost(folder, broker, guest, target, partitions=64):
    name = f"cost_{guest}_{partitions}"
    path = consumer(folder, name, broker, f"filled_{partitions}", guest, "10s")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    summary = finish(start(path))
    seconds = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)
    gib = summary["bytes_in"] / 2**30
    found = table(path)
    rows = summary["sinks"]["iceberg"]["rows"]
    say(f"## {guest}, {partitions} partitions, 10 s trigger")
    say(f"  CPU-seconds per GiB   {cpu / gib:.2f}  (target {target}; Dataflow {DATAFLOW['cpu']} busy; user {(after.ru_utime - before.ru_utime) / gib:.2f}, system {(after.ru_stime - before.ru_stime) / gib:.2f})")
    say(f"  throughput            {summary['bytes_in'] / 1e6 / seconds:.0f} MB/s with the broker on the same cores")
    say(f"  memory, at most       {summary['memory_bytes_max'] / 2**20:.0f} MiB (target 512)")
    say(f"  files                 {spread(path)}")
    say(f"  read back by DuckDB   {json.dumps(found)}; handed over {rows}")
    say()
    shutil.rmtree(path)


class Poller(threading.Thread):
    """Looks at the newest metadata file every 50 ms, as another program would: when did a new snapshot appear?"""

    def __init__(self, path):
        super().__init__(daemon=True)
        self.path, self.seen, self.runs = path, [], True

    def run(self):
        known = set()
        while self.runs:
            for file in glob.glob(f"{self.path}/warehouse/bench/rows/metadata/*.metadata.json"):
                if file not in known:
                    known.add(file)
                    self.seen.append(time.time())
            time.sleep(0.05)


def latency(folder, broker, interval, seconds):
    topic, name = f"steady_{interval}", f"latency_{interval}"
    broker.topic(topic, 64)
    path = consumer(folder, name, broker, topic, "map", interval, until=False)
    reading = start(path)
    poller = Poller(path)
    poller.start()
    time.sleep(4)
    writing = start(producer(folder, f"feed_{interval}", broker, topic, rate=RATE))
    memory = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(1)
        with open(f"/proc/{reading.pid}/status") as status:
            memory += [int(line.split()[1]) / 1024 for line in status if line.startswith("VmRSS")]
    writing.send_signal(signal.SIGTERM)
    fed = finish(writing)
    time.sleep(float(interval.rstrip("s")) + 2)
    reading.send_signal(signal.SIGTERM)
    summary = finish(reading)
    poller.runs = False
    sink, handed = summary["sinks"]["iceberg"], summary["handed"]
    second = lambda ms: f"{ms / 1000:.2f} s"
    trigger = float(interval.rstrip("s"))
    say(f"## steady {RATE}/s for {seconds} s, {interval} trigger")
    l = sink["latency"]
    say(f"  produced -> visible   P50 {second(l['p50_ms'])}  P95 {second(l['p95_ms'])}  P99 {second(l['p99_ms'])}  max {second(l['max_ms'])}  (target P99 {trigger + 1:.0f} s)")
    say(f"  fetched -> handed     P50 {handed['p50_ms']} ms  P95 {handed['p95_ms']} ms  P99 {handed['p99_ms']} ms  (Dataflow's write latency: {DATAFLOW['p50']} / {DATAFLOW['p95']} / {DATAFLOW['p99']} s)")
    say(f"  commits               {sink['commits']} by weir, {len(poller.seen)} metadata files seen by the poller")
    say(f"  rows                  {sink['rows']} visible of {fed['sinks']['kafka']['rows']} produced")
    half = len(memory) // 2
    say(f"  memory                {max(memory[:half] or [0]):.0f} MiB in the first half, {max(memory[half:] or [0]):.0f} MiB in the second")
    say(f"  CPU                   {summary['cpu_seconds']:.1f} s, {summary['cpu_seconds_per_gib'] or 0:.2f} per GiB")
    say(f"  files                 {spread(path)}")
    say()
    shutil.rmtree(path)
    broker.drop(topic)


def main():
    folder = tempfile.mkdtemp(prefix="weir-bench-")
    broker = Broker(os.path.join(folder, "kafka"))
    try:
        count = int(GIB * 2**30 / SIZE)
        say(f"# {processor()}, {os.cpu_count()} cores; {count} messages of {SIZE} bytes = {count * SIZE / 2**30:.2f} GiB")
        broker.topic("filled_64", 64)
        fed = finish(start(producer(folder, "fill", broker, "filled_64", count=count)))
        say(f"# filled the topic at {fed['bytes_in'] / 1e6 / fed['seconds']:.0f} MB/s, {fed['cpu_seconds_per_gib']:.2f} CPU-seconds per GiB (generator and Kafka sink)\n")
        cost(folder, broker, "passthrough", 5)
        cost(folder, broker, "map", 7)
        broker.drop("filled_64")
        if os.environ.get("WEIR_BENCH_WIDE"):
            broker.topic("filled_1000", 1000)
            finish(start(producer(folder, "fill_wide", broker, "filled_1000", count=count)))
            cost(folder, broker, "map", 7, 1000)
            broker.drop("filled_1000")
        latency(folder, broker, "1s", SECONDS)
        latency(folder, broker, "10s", SECONDS)
        if os.environ.get("WEIR_BENCH_WIDE"):
            latency(folder, broker, "60s", 2 * SECONDS)
    finally:
        broker.stop()
        shutil.rmtree(folder, ignore_errors=True)


main()
