"""Measures the upload and download of one large object, next to curl, s5cmd, awscli, rclone and boto3.

`penstock serve` is the server of all tools. The figures are time, CPU seconds of client and server
together, and the client's peak memory; those of 1 GiB are also measured without the store's Unix
socket. The time is also measured over a path with a round trip of 50 ms, and over a path that
stalls one request in a thousand for 5 s. Both paths go through bench/delay_proxy.c. With every
tool, the proxy needs about as much processor time as curl.
"""
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import report as reporting

CURL_SPEED, CURL_CPU, S5CMD_CPU, S5CMD_CPU_TCP, AWS_SPEED, S5CMD_FAR = 0.95, 1.15, 0.7, 1, 3, 2
MEMORY = 64 * 2**20
GIB = 2**30
SIZES = {"1 GiB": GIB, "8 GiB": 8 * GIB}
ROUNDS = 5  # for penstock, curl, s5cmd and the bare copies
BARE = "bare copies in C"
# Rounds of slow tools. With 8 GiB most of them need minutes and are left out.
SLOW = {"1 GiB": {"awscli": 3, "rclone": 3, "boto3": 3}, "8 GiB": {"awscli": 1}}
CURL_PUT_MAX = 5 * GIB  # the largest PUT that S3 allows
# Half of the round trip of 50 ms, and the bytes that a connection may have in flight in that time: half of the 3 MiB that Linux's
# default receive window allows for the whole round trip.
DELAY_MS, WINDOW_KIB = 25, 1536
# The first stalled request is the tenth of a run: with every tool this request transfers data, and
# s5cmd sends only about twenty requests.
STALL_FIRST, STALL_EVERY, STALL_MS = 10, 1000, 5000
# A store that listens on all addresses has no Unix socket.
SOCKET, TCP = "127.0.0.1:0", "0.0.0.0:0"
KEYS = {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench-secret", "AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "us-east-1"}
BOTO3 = """
import boto3, os, sys
s3 = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"])
verb, path, key = sys.argv[1:]
s3.upload_file(path, "bench", key) if verb == "up" else s3.download_file("bench", key, path)
"""


class Store:
    def __init__(self, folder):
        self.folder = folder
        self.start(SOCKET)

    def start(self, listen):
        self.listen = listen
        self.process, self.endpoint = reporting.serve(self.folder / "store", listen, "relaxed")

    def close(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(120)
        self.process.stdout.close()


class DelayedPath:
    """A delay_proxy in front of the store, for one run; `how` has its arguments after the port."""

    def __init__(self, program, endpoint, how):
        command = [program, endpoint.rpartition(":")[2], *map(str, how)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.endpoint = "http://127.0.0.1:" + self.process.stdout.readline().strip()

    def close(self):
        """Ends the proxy. Returns the number of stalled requests."""
        self.process.kill()
        stalled = self.process.stdout.read().count("stalled")
        self.process.wait()
        self.process.stdout.close()
        return stalled


class Bench:
    def __init__(self, report, folder, store, size):
        self.report, self.folder, self.store, self.size = report, folder, store, size
        self.env = os.environ | KEYS | {"HOME": str(folder), "AWS_EC2_METADATA_DISABLED": "true", "RCLONE_CONFIG": ""}
        self.env.pop("AWS_CA_BUNDLE", None)  # rclone does not accept this variable
        self.source, self.target = folder / "source", folder / "target"
        self.bare = reporting.BareCopies(report, folder)
        self.tools = self.find_tools()
        self.at(store.endpoint)

    def at(self, endpoint):
        self.endpoint = endpoint
        self.env |= {"AWS_ENDPOINT_URL": endpoint, "S3_ENDPOINT_URL": endpoint}

    def find_tools(self):
        """Returns {name: a function from ("up" or "down", key) to a command}. The report lists missing tools."""
        ours, find = reporting.binary(), self.report.peer
        there = {"penstock": lambda way, key: [ours, "cp", "-q", *self.way(way, key)]}
        if curl := find("curl"):
            there["curl"] = lambda way, key: [curl, "-sf", *(("-T", self.source) if way == "up" else ("-o", self.target)), self.url(way, key)]
        if s5cmd := find("s5cmd", path=os.environ.get("S5CMD")):
            there["s5cmd"] = lambda way, key: [s5cmd, "cp", *self.way(way, key)]
        if aws := self.report.aws():
            there["awscli"] = lambda way, key: [aws, "s3", "cp", "--endpoint-url", self.endpoint, "--only-show-errors", *self.way(way, key)]
        if rclone := find("rclone"):
            there["rclone"] = lambda way, key: [rclone, "copyto", *self.way(way, key, f":s3,provider=Other,env_auth,endpoint='{self.endpoint}':")]
        if venv := self.venv():
            there["boto3"] = lambda way, key: [venv, "-c", BOTO3, way, self.source if way == "up" else self.target, key]
        return there

    def venv(self):
        made = subprocess.run([reporting.TOP / "tools" / "test-venv"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
        if made.returncode == 0:
            return Path(made.stdout.strip()) / "bin" / "python3"
        return self.report.missing("boto3", "tools/test-venv cannot create its environment")

    def way(self, way, key, prefix="s3://"):
        return (self.source, f"{prefix}bench/{key}") if way == "up" else (f"{prefix}bench/{key}", self.target)

    def url(self, way, key):
        command = [reporting.binary(), "presign", "--method", "PUT" if way == "up" else "GET", f"s3://bench/{key}"]
        return subprocess.run(command, env=self.env, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()

    def run(self, name, way, key):
        """Returns the seconds, the CPU seconds of both sides, and the client's peak memory."""
        command = self.tools[name](way, key)
        server, begin = reporting.cpu_of(self.store.process.pid), time.perf_counter()
        with tempfile.TemporaryFile() as said:
            process = subprocess.Popen(command, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said)
            used, memory = reporting.wait_for(process)
            seconds = time.perf_counter() - begin
            if process.returncode:
                said.seek(0)
                sys.exit(f"{name}, {way}: {said.read().decode(errors='replace')}")
        return seconds, used + reporting.cpu_of(self.store.process.pid) - server, memory

    def measure(self, name, way, path=None):
        """Measures a run, through a proxy if `path` (program and arguments) is given. Removes the object from the store."""
        self.target.unlink(missing_ok=True)
        there = DelayedPath(path[0], self.store.endpoint, path[1:]) if path else None
        if there:
            self.at(there.endpoint)
        figures = self.run(name, way, "up" if way == "up" else "source")
        if there and there.close() == 0 and path[3]:
            sys.exit(f"{name}, {way}: no request was stalled")
        self.at(self.store.endpoint)
        if way == "up":
            self.remove("up")
        elif self.target.stat().st_size != self.size:
            sys.exit(f"{name}, {way}: {self.target.stat().st_size} of {self.size} bytes were fetched")
        return figures

    def measure_bare(self, way):
        """Returns figures of the bare copies of the source, or of the file that the previous tool fetched."""
        return 0, self.bare.cpu(way, self.folder / "bare", [self.source if way == "up" else self.target]), 0

    def remove(self, key):
        """Removes an object, and restarts the store: with relaxed durability, a running store keeps
        the file of a removed object for 30 s.
        """
        reporting.run_checked([reporting.binary(), "rm", "-q", f"s3://bench/{key}"], env=self.env)
        self.restart(self.store.listen)

    def restart(self, listen):
        self.store.close()
        self.store.start(listen)
        self.at(self.store.endpoint)

    def compare(self, way, rounds, path=None):
        """Returns the medians of each tool; the tools run in turn."""
        samples = {name: [] for name in rounds}
        for round_number in range(self.report.repeats(max(rounds.values()))):
            for name in rounds:
                if round_number < rounds[name]:
                    samples[name].append(self.measure_bare(way) if name == BARE else self.measure(name, way, path))
        return {name: [statistics.median(column) for column in zip(*kept)] for name, kept in samples.items()}


def rows_near(report, what, medians, rounds, s5cmd_cpu=S5CMD_CPU):
    ours, memory = medians["penstock"], medians["penstock"][2]
    for name, their in medians.items():
        peer = name if rounds[name] == ROUNDS else f"{name} ({rounds[name]} of it)"
        if name == "curl":
            report.ratio(f"{what}: time", ours[0], their[0], at_least=CURL_SPEED, peer_name=peer)
            report.ratio(f"{what}: CPU of both sides", ours[1], their[1], at_least=round(1 / CURL_CPU, 3), peer_name=peer)
        elif name == "s5cmd":
            report.ratio(f"{what}: CPU of both sides", ours[1], their[1], at_least=round(1 / s5cmd_cpu, 3), peer_name=peer)
        if name == "awscli":
            report.ratio(f"{what}: time", ours[0], their[0], at_least=AWS_SPEED, peer_name=peer)
        elif name == BARE:
            report.figure(f"{what}: CPU of both sides", ours[1], unit="s", peer=their[1], peer_name=peer)
        elif name not in ("penstock", "curl"):
            report.figure(f"{what}: time", ours[0], unit="s", peer=their[0], peer_name=peer)
    report.limit(f"{what}: peak memory", memory, at_most=MEMORY, unit="bytes")


def near(bench, report, label, way):
    rounds = {name: ROUNDS for name in ("penstock", "curl", "s5cmd") if name in bench.tools}
    if bench.bare.program and bench.size <= GIB:  # there is no room for a further copy of 8 GiB
        rounds[BARE] = ROUNDS
    rounds |= {name: count for name, count in SLOW.get(label, {}).items() if name in bench.tools}
    if way == "up" and bench.size > CURL_PUT_MAX and rounds.pop("curl", None):
        report.missing("curl", f"{label} is more than one PUT allows")
    rows_near(report, f"{way}load of {label}", bench.compare(way, rounds), rounds)


def over_tcp(bench, report, label, way):
    """Measures penstock, curl and s5cmd without the store's Unix socket, as if the store were on another machine."""
    if bench.size > GIB:
        return
    bench.restart(TCP)
    rounds = {name: ROUNDS for name in ("penstock", "curl", "s5cmd") if name in bench.tools}
    rows_near(report, f"{way}load of {label} over TCP", bench.compare(way, rounds), rounds, S5CMD_CPU_TCP)
    bench.restart(SOCKET)


def far(bench, report, program, label, way):
    """Measures penstock and s5cmd over a delayed path."""
    if not program or "s5cmd" not in bench.tools or bench.size > GIB:
        return
    for what, how in (
        ("50 ms of latency", (DELAY_MS, WINDOW_KIB, 0, 1, 0)),
        (f"one request of {STALL_EVERY} stalled 5 s", (0, WINDOW_KIB, STALL_FIRST, STALL_EVERY, STALL_MS)),
    ):
        medians = bench.compare(way, {"penstock": ROUNDS, "s5cmd": ROUNDS}, (program, *how))
        report.ratio(f"{way}load of {label}, {what}", medians["penstock"][0], medians["s5cmd"][0], at_least=S5CMD_FAR, peer_name="s5cmd")


def make_source(path, size):
    """Writes random bytes in which no two blocks are equal, so that they cannot be compressed or deduplicated."""
    block = os.urandom(2**20)
    with path.open("wb") as out:
        for i in range(size // 2**20):
            out.write(i.to_bytes(8, "big") + block[8:])


def memory_available():
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def needed(size):
    """Returns the free bytes that a measurement of this size needs: two copies, and 2 GiB."""
    return 2 * size + 2 * GIB


def place(label, size):
    """Returns a directory in memory if there is room, else None: the speed of a disk would hide that of the tools."""
    shared = Path("/dev/shm")
    if shared.is_dir() and min(shutil.disk_usage(shared).free, memory_available()) > needed(size):
        return shared
    if shutil.disk_usage(tempfile.gettempdir()).free < needed(size):
        sys.exit(f"{label}: no room for {needed(size) / GIB:.0f} GiB in memory or in {tempfile.gettempdir()}")
    print(f"  {label} goes to the disk: no room for it in memory", flush=True)
    return None


def run(report, label, size, program):
    at = place(label, size)
    with reporting.memory_at_hand(needed(size) if at else 0), tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=at) as name:
        folder = Path(name)
        store = Store(folder)
        try:
            bench = Bench(report, folder, store, size)
            make_source(bench.source, size)
            reporting.run_checked([reporting.binary(), "mb", "-q", "s3://bench"], env=bench.env)
            near(bench, report, label, "up")
            over_tcp(bench, report, label, "up")
            far(bench, report, program, label, "up")
            reporting.run_checked([reporting.binary(), "cp", "-q", bench.source, "s3://bench/source"], env=bench.env)
            bench.source.unlink()
            near(bench, report, label, "down")
            over_tcp(bench, report, label, "down")
            far(bench, report, program, label, "down")
        finally:
            store.close()


def main(report):
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        program = report.compiled("delay_proxy", name)
        # From 512 MiB on, s5cmd sends more than ten requests, so that a request is stalled.
        sizes = {"512 MiB": GIB // 2} if report.quick else SIZES
        for label, size in sizes.items():
            run(report, label, size, program)
