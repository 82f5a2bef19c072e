"""One large object, up and down, beside curl, s5cmd, awscli, rclone and boto3, with the same server, which is the embedded store.

Throughput, CPU seconds of client and server together, and the client's peak memory. Then the same over a path with a round trip of 50 ms,
and with one request of fifty stalled for 5 s (bench/delay_proxy.c: one thread, which costs about as much as curl and is the same for all).
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

CURL_SPEED, CURL_CPU, S5CMD_CPU, AWS_SPEED, S5CMD_FAR = 0.95, 1.15, 0.7, 3, 2
MEMORY = 64 * 2**20
SIZES = {"1 GiB": (2**30, 5), "8 GiB": (2**33, 5)}  # bytes, rounds
SLOW_ROUNDS = 1  # of the peers that need minutes
CURL_PUT_MAX = 5 * 2**30  # a PUT takes no more
# Half the round trip, and the bytes of a connection that are on their way in it: Linux's default receive window, 3 MiB in 50 ms.
DELAY_MS, WINDOW_KIB = 25, 1536
STALL_EVERY, STALL_MS = 50, 5000
KEYS = {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench-secret", "AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "us-east-1"}
BOTO3 = """
import boto3, os, sys
s3 = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"])
verb, path, key = sys.argv[1:]
s3.upload_file(path, "bench", key) if verb == "up" else s3.download_file("bench", key, path)
"""


def cpu_of(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Store:
    def __init__(self, folder):
        env = {"PATH": os.environ["PATH"], "PENSTOCK_ACCESS_KEY_ID": "bench", "PENSTOCK_SECRET_ACCESS_KEY": "bench-secret"}
        command = [reporting.binary(), "serve", "--root", folder / "store", "--listen", "127.0.0.1:0", "--durability", "relaxed"]
        self.process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
        self.endpoint = self.process.stdout.readline().split()[-1]

    def close(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


class Path50:
    """The store, seen over a path of its own."""

    def __init__(self, program, store, *how):
        command = [program, store.endpoint.rpartition(":")[2], *map(str, how)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.endpoint = "http://127.0.0.1:" + self.process.stdout.readline().strip()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


class Bench:
    def __init__(self, report, folder, store):
        self.report, self.folder, self.store = report, folder, store
        self.env = os.environ | KEYS | {"HOME": str(folder), "AWS_EC2_METADATA_DISABLED": "true", "RCLONE_CONFIG": ""}
        self.env.pop("AWS_CA_BUNDLE", None)  # rclone takes none
        self.source, self.target = folder / "source", folder / "target"
        self.tools = self.find_tools()
        self.at(store.endpoint)

    def at(self, endpoint):
        self.endpoint = endpoint
        self.env |= {"AWS_ENDPOINT_URL": endpoint, "S3_ENDPOINT_URL": endpoint}

    def find_tools(self):
        """Name -> a command for ("up" or "down", key); what is not there is named in the table."""
        ours, find = reporting.binary(), self.report.peer
        there = {"penstock": lambda way, key: [ours, "cp", "-q", *self.way(way, key)]}
        if curl := find("curl"):
            there["curl"] = lambda way, key: [curl, "-sf", *(("-T", self.source) if way == "up" else ("-o", self.target)), self.url(way, key)]
        if s5cmd := find("s5cmd", path=os.environ.get("S5CMD")):
            there["s5cmd"] = lambda way, key: [s5cmd, "cp", *self.way(way, key)]
            there["s5cmd -p 8"] = lambda way, key: [s5cmd, "cp", "-p", "8", *self.way(way, key)]
        if aws := find("aws", path=next((p for p in ("/usr/bin/aws",) if os.access(p, os.X_OK)), None)):
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
        return self.report.missing("boto3", "its environment cannot be made")

    def way(self, way, key, prefix="s3://"):
        return (self.source, f"{prefix}bench/{key}") if way == "up" else (f"{prefix}bench/{key}", self.target)

    def url(self, way, key):
        command = [reporting.binary(), "presign", "--method", "PUT" if way == "up" else "GET", f"s3://bench/{key}"]
        return subprocess.run(command, env=self.env, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()

    def measure(self, name, way, key):
        """Seconds, CPU seconds of both sides, and the client's peak memory."""
        self.target.unlink(missing_ok=True)
        command = self.tools[name](way, key)
        server, begin = cpu_of(self.store.process.pid), time.perf_counter()
        process = subprocess.Popen(command, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        said = process.stderr.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        process.stderr.close()
        seconds = time.perf_counter() - begin
        if status:
            sys.exit(f"{name}, {way}: {said.decode(errors='replace')}")
        return seconds, used.ru_utime + used.ru_stime + cpu_of(self.store.process.pid) - server, used.ru_maxrss * 1024

    def compare(self, way, rounds, names):
        """The medians of each tool; one call of each in turn. Each works on an object of its own."""
        samples = {name: [] for name in names}
        for round_number in range(self.report.repeats(max(rounds.values()))):
            for name in names:
                if round_number < rounds[name]:
                    samples[name].append(self.measure(name, way, "source" if way == "down" else "up"))
        return {name: [statistics.median(column) for column in zip(*kept)] for name, kept in samples.items()}


def rows_near(report, what, medians):
    ours, memory = medians["penstock"], medians["penstock"][2]
    for name in medians:
        their = medians[name]
        if name == "curl":
            report.ratio(f"{what}: time", ours[0], their[0], at_least=CURL_SPEED, peer_name=name)
            report.ratio(f"{what}: CPU of both sides", ours[1], their[1], at_least=round(1 / CURL_CPU, 3), peer_name=name)
        elif name == "s5cmd":
            report.ratio(f"{what}: CPU of both sides", ours[1], their[1], at_least=round(1 / S5CMD_CPU, 3), peer_name=name)
        if name == "awscli":
            report.ratio(f"{what}: time", ours[0], their[0], at_least=AWS_SPEED, peer_name=name)
        elif name not in ("penstock", "curl"):
            report.figure(f"{what}: time", ours[0], unit="s", peer=their[0], peer_name=name)
    report.limit(f"{what}: peak memory", memory, at_most=MEMORY, unit="bytes")


def near(bench, report, label, size, rounds):
    for way, what in (("up", "upload"), ("down", "download")):
        names = [name for name in bench.tools if name != "s5cmd -p 8" and not (name == "curl" and way == "up" and size > CURL_PUT_MAX)]
        if size > CURL_PUT_MAX and way == "up" and "curl" in bench.tools:
            report.missing("curl", f"an upload of {label} is more than one PUT takes")
        slow = SLOW_ROUNDS if size > 2**30 else rounds
        counts = {name: rounds if name in ("penstock", "curl", "s5cmd") else slow for name in names}
        rows_near(report, f"{what} of {label}", bench.compare(way, counts, names))


def far(bench, report, program, label, rounds):
    """Over a path, beside s5cmd. Each stall is 5 s: both tools send pieces of 8 MiB there, so that as many of them are stalled."""
    if "s5cmd" not in bench.tools:
        return
    for what, peer, how in (
        ("50 ms of latency", "s5cmd", (DELAY_MS, WINDOW_KIB, 0, 0)),
        (f"one request of {STALL_EVERY} stalled 5 s", "s5cmd -p 8", (0, WINDOW_KIB, STALL_EVERY, STALL_MS)),
    ):
        for way, verb in (("up", "upload"), ("down", "download")):
            with Path50(program, bench.store, *how) as path:
                bench.at(path.endpoint)
                names = ["penstock", peer]
                medians = bench.compare(way, dict.fromkeys(names, rounds), names)
            report.ratio(f"{verb} of {label}, {what}", medians["penstock"][0], medians[peer][0], at_least=S5CMD_FAR, peer_name=peer)
    bench.at(bench.store.endpoint)


def make_source(path, size):
    """Bytes that no disk or link makes smaller, and no two blocks of them alike."""
    block = os.urandom(2**20)
    with path.open("wb") as out:
        for i in range(size // 2**20):
            out.write(i.to_bytes(8, "big") + block[8:])


def place(size):
    """In memory where there is room for the source, what comes back and several objects; a disk's speed is nobody's merit."""
    shared = Path("/dev/shm")
    return shared if shared.is_dir() and shutil.disk_usage(shared).free > 6 * size else None


def run(report, label, size, rounds, program):
    with tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=place(size)) as name:
        folder = Path(name)
        store = Store(folder)
        try:
            bench = Bench(report, folder, store)
            make_source(bench.source, size)
            reporting.run_checked([reporting.binary(), "mb", "-q", "s3://bench"], env=bench.env)
            reporting.run_checked([reporting.binary(), "cp", "-q", bench.source, "s3://bench/source"], env=bench.env)
            near(bench, report, label, size, rounds)
            if program and size <= 2**30:
                far(bench, report, program, label, rounds)
        finally:
            store.close()


def main(report):
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        program = Path(name) / "delay-proxy"
        if cc := report.peer("cc"):
            reporting.run_checked([cc, "-O2", "-D_GNU_SOURCE", "-o", program, reporting.TOP / "bench" / "delay_proxy.c"])
        sizes = {"64 MiB": (2**26, 3)} if report.quick else SIZES
        for label, (size, rounds) in sizes.items():
            run(report, label, size, rounds, program if cc else None)
