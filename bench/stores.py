"""Measures the operations of S3 stores on one node per second of processor time, under warp, with default settings."""
import datetime
import json
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import report as reporting

sys.path.insert(0, str(reporting.TOP / "tests" / "system"))
from harness.s3_wire import Wire  # noqa: E402

AT_LEAST = 2
ROUNDS = 5
SECONDS = 3
OBJECTS = 2000
SIZE = "4KiB"
KEY, SECRET = "benchbench", "bench-secret-bench"
# Operations of warp: the arguments of each, and the operation that is counted.
OPERATIONS = {
    "put": (["put", "--obj.size", SIZE], "PUT"),
    "get": (["get", "--list-existing", "--objects", str(OBJECTS)], "GET"),
    "stat": (["stat", "--list-existing", "--objects", str(OBJECTS)], "STAT"),
    "list": (["list", "--objects", str(OBJECTS), "--obj.size", SIZE], "LIST"),
    "delete": (["delete", "--objects", str(OBJECTS), "--obj.size", SIZE, "--batch", "20"], "DELETE"),
    "mixed": (["mixed", "--objects", "300", "--obj.size", SIZE], None),
}
SYNCS = "fsync,fdatasync,syncfs,sync,msync"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """A store in a directory, with the keys of this benchmark."""

    def __init__(self, name, folder, words, env):
        self.name, self.folder, self.port = name, folder / name, free_port()
        (self.folder / "data").mkdir(parents=True)
        self.log = open(self.folder / "log", "wb")
        words = [str(word).format(port=self.port, folder=self.folder) for word in words]
        self.process = subprocess.Popen(words, env=os.environ | env, stdout=self.log, stderr=self.log, cwd=self.folder)
        self.address, self.access_key, self.secret_key = f"127.0.0.1:{self.port}", KEY, SECRET
        end = time.monotonic() + 60
        while True:
            try:
                if Wire(self).send("PUT", f"/{self.bucket}").status in (200, 409):
                    return
            except OSError:
                pass
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{name} did not start: {(self.folder / 'log').read_text(errors='replace')[-2000:]}")
            time.sleep(0.1)

    bucket = "bench"

    def cpu(self):
        """Returns the processor seconds of the server, with all its threads."""
        return reporting.cpu_of(self.process.pid)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()

    def syncs(self):
        """Returns "synced" if strace shows that the server syncs each PUT, by fsync() or by files that sync each write."""
        if not shutil.which("strace"):
            return "unknown"
        out = self.folder / "strace"
        trace = subprocess.Popen(["strace", "-f", "-qq", "-e", f"trace={SYNCS},openat", "-o", out, "-p", str(self.process.pid)], stderr=subprocess.DEVNULL)
        time.sleep(1)
        for number in range(10):
            assert Wire(self).send("PUT", f"/{self.bucket}/sync-{number}", body=os.urandom(4096)).status == 200
        trace.send_signal(signal.SIGINT)
        trace.wait(30)
        text = out.read_text(errors="replace")
        calls = len(re.findall(rf"\b(?:{SYNCS.replace(',', '|')})\(", text)) + len(re.findall(r"O_D?SYNC", text))
        return "synced" if calls >= 10 else "not synced"


def servers(report, folder):
    tools = os.environ.get("BENCH_STORES", "")

    def find(name):
        return report.peer(name, path=shutil.which(name, path=f"{tools}:{os.environ['PATH']}"))

    own = [reporting.binary(), "serve", "--root", "{folder}/data", "--listen", "127.0.0.1:{port}"]
    keys = {"PENSTOCK_ACCESS_KEY_ID": KEY, "PENSTOCK_SECRET_ACCESS_KEY": SECRET}
    wanted = [("penstock", own, keys), ("penstock, relaxed", [*own, "--durability", "relaxed"], keys)]
    if minio := find("minio"):
        wanted.append(("MinIO", [minio, "server", "--quiet", "--address", "127.0.0.1:{port}", "{folder}/data"],
                       {"MINIO_ROOT_USER": KEY, "MINIO_ROOT_PASSWORD": SECRET, "MINIO_BROWSER": "off", "MINIO_UPDATE": "off"}))  # fmt: skip
    if gateway := find("versitygw"):
        wanted.append(("versitygw", [gateway, "--port", "127.0.0.1:{port}", "--access", KEY, "--secret", SECRET, "posix", "{folder}/data"], {}))
    if weed := find("weed"):
        config = folder / "weed.json"
        config.write_text('{"identities":[{"name":"bench","credentials":[{"accessKey":"%s","secretKey":"%s"}],"actions":["Admin","Read","Write","List","Tagging"]}]}' % (KEY, SECRET))
        ports = [word for name in ("master", "volume", "filer") for word in (f"-{name}.port={free_port()}", f"-{name}.port.grpc={free_port()}")]
        wanted.append(("SeaweedFS", [weed, "server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-dir={folder}/data", "-volume.max=200", "-master.volumeSizeLimitMB=64", "-s3", "-s3.port={port}",
                                     f"-s3.port.grpc={free_port()}", f"-s3.config={config}", *ports], {}))  # fmt: skip
    return [Server(name, folder, words, env) for name, words, env in wanted]


class Watch(threading.Thread):
    """Records the processor time of a server over wall time, because warp prepares before it measures."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.server, self.samples, self.ended = server, [], threading.Event()

    def run(self):
        while not self.ended.wait(0.01):
            self.samples.append((time.time(), self.server.cpu()))

    def between(self, begin, end):
        def at(when):
            before = [sample for sample in self.samples if sample[0] <= when][-1]
            after = next(sample for sample in self.samples if sample[0] > when)
            return before[1] + (after[1] - before[1]) * (when - before[0]) / (after[0] - before[0])

        return at(end) - at(begin)


def load(warp, server, operation, seconds, folder):
    """Returns operations per second of the server's processor time; for delete, deleted objects."""
    words, counted = OPERATIONS[operation]
    bucket = server.bucket if operation in ("put", "get", "stat") else f"{server.bucket}-{operation}"
    watch = Watch(server)
    watch.start()
    try:
        done = subprocess.run(
            [warp, *words, "--host", server.address, "--access-key", KEY, "--secret-key", SECRET, "--bucket", bucket, "--noclear", "--no-color",
             "--duration", f"{seconds}s", "--concurrent", "8", "--benchdata", folder / "benchdata"],
            capture_output=True, text=True, check=False, cwd=folder, timeout=300,
        )  # fmt: skip
        time.sleep(0.05)
    finally:
        watch.ended.set()
        watch.join()
    if done.returncode:
        raise RuntimeError(f"warp {operation} failed at {server.name}: {done.stdout[-500:]}{done.stderr[-500:]}")
    data = folder / "benchdata.json.zst"
    found = json.loads(subprocess.run(["zstd", "-dqc", data], check=True, capture_output=True).stdout)
    data.unlink()
    row = found["by_op_type"][counted] if counted else found["total"]
    if row["total_errors"]:
        raise RuntimeError(f"warp {operation} at {server.name}: {row['total_errors']} errors, {row['first_errors']}")
    begin, end = (datetime.datetime.fromisoformat(re.sub(r"(\.\d{6})\d*Z$", r"\1+00:00", row[key])).timestamp() for key in ("start_time", "end_time"))
    return row["total_objects" if counted == "DELETE" else "total_requests"] / watch.between(begin, end)


def main(report):
    tools = os.environ.get("BENCH_STORES", "")
    warp = report.peer("warp", path=shutil.which("warp", path=f"{tools}:{os.environ['PATH']}"))
    if not warp or not report.peer("zstd"):
        return
    rounds, seconds = report.repeats(ROUNDS), report.size(SECONDS, 1)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        folder = Path(name)
        running = servers(report, folder)
        try:
            for server in running:
                load(warp, server, "put", 1, folder)  # the objects of get and stat
            names = {server.name: f"{server.name}, {server.syncs()}" for server in running}
            for operation in OPERATIONS:
                samples = {server.name: [] for server in running}
                for _ in range(rounds):
                    for server in running:
                        samples[server.name].append(load(warp, server, operation, seconds, folder))
                ours, *others = [(name, statistics.median(kept)) for name, kept in samples.items()]
                for peer, theirs in others:
                    if peer.startswith("penstock"):
                        report.figure(f"{operation}, relaxed", theirs, unit="per CPU s")
                    else:
                        report.ratio(f"{operation} of {SIZE}", ours[1], theirs, at_least=AT_LEAST, unit="per CPU s", peer_name=names[peer])
        finally:
            for server in running:
                server.stop()
