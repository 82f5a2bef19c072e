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
KEYS = ("benchbench", "bench-secret-bench")
GARAGE_KEYS = ("GK" + 24 * "b", 64 * "b")  # the only form that Garage accepts
# Operations of warp: the arguments of each, and the operation that is counted.
OPERATIONS = {
    "put": (["put", "--obj.size", SIZE], "PUT"),
    "get": (["get", "--list-existing", "--objects", str(OBJECTS)], "GET"),
    "stat": (["stat", "--list-existing", "--objects", str(OBJECTS)], "STAT"),
    "list": (["list", "--objects", str(OBJECTS), "--obj.size", SIZE], "LIST"),
    "delete": (["delete", "--objects", str(OBJECTS), "--obj.size", SIZE, "--batch", "20"], "DELETE"),
    "mixed": (["mixed", "--objects", "300", "--obj.size", SIZE], None),
}
# Garage refuses a server without a secret for the other nodes.
GARAGE = f"""
metadata_dir = "FOLDER/data/meta"
data_dir = "FOLDER/data/data"
replication_factor = 1
rpc_bind_addr = "127.0.0.1:RPC"
rpc_secret = "{64 * "b"}"
[s3_api]
s3_region = "us-east-1"
api_bind_addr = "127.0.0.1:PORT"
"""
SYNCS = "fsync,fdatasync,syncfs,sync,msync"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """A store in a directory. `words` and `config`, the text of the file FOLDER/config, may contain FOLDER and PORT."""

    def __init__(self, name, folder, words, env, config="", keys=KEYS):
        self.name, self.folder, self.port = name, folder / name, free_port()
        (self.folder / "data").mkdir(parents=True)
        self.log = open(self.folder / "log", "wb")
        words = [self.filled(word) for word in words]
        (self.folder / "config").write_text(self.filled(config))
        (self.folder / "config").chmod(0o600)
        self.process = subprocess.Popen(words, env=os.environ | env, stdout=self.log, stderr=self.log, cwd=self.folder)
        self.address, (self.access_key, self.secret_key) = f"127.0.0.1:{self.port}", keys
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

    def filled(self, text):
        return str(text).replace("PORT", str(self.port)).replace("FOLDER", str(self.folder))

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
        """Returns "synced" if strace shows that the server syncs each PUT, by a call such as
        fsync() or by a file that was opened with O_SYNC or O_DSYNC.
        """
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

    key, secret = KEYS
    own = [reporting.binary(), "serve", "--root", "FOLDER/data", "--listen", "127.0.0.1:PORT"]
    keys = {"PENSTOCK_ACCESS_KEY_ID": key, "PENSTOCK_SECRET_ACCESS_KEY": secret}
    wanted = [("penstock", own, keys), ("penstock, relaxed", [*own, "--durability", "relaxed"], keys)]
    if minio := find("minio"):
        wanted.append(("MinIO", [minio, "server", "--quiet", "--address", "127.0.0.1:PORT", "FOLDER/data"],
                       {"MINIO_ROOT_USER": key, "MINIO_ROOT_PASSWORD": secret, "MINIO_BROWSER": "off", "MINIO_UPDATE": "off"}))  # fmt: skip
    if gateway := find("versitygw"):
        wanted.append(("versitygw", [gateway, "--port", "127.0.0.1:PORT", "--access", key, "--secret", secret, "posix", "FOLDER/data"], {}))
    if weed := find("weed"):
        ports = [word for name in ("master", "volume", "filer") for word in (f"-{name}.port={free_port()}", f"-{name}.port.grpc={free_port()}")]
        words = [weed, "server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-dir=FOLDER/data", "-volume.max=200", "-master.volumeSizeLimitMB=64", "-s3", "-s3.port=PORT",
                 f"-s3.port.grpc={free_port()}", "-s3.config=FOLDER/config", *ports]  # fmt: skip
        wanted.append(("SeaweedFS", words, {}, '{"identities":[{"name":"bench","credentials":[{"accessKey":"%s","secretKey":"%s"}],'
                       '"actions":["Admin","Read","Write","List","Tagging"]}]}' % KEYS))  # fmt: skip
    if garage := find("garage"):
        wanted.append(("Garage", [garage, "-c", "FOLDER/config", "server", "--single-node", "--default-access-key"],
                       {"GARAGE_DEFAULT_ACCESS_KEY": GARAGE_KEYS[0], "GARAGE_DEFAULT_SECRET_KEY": GARAGE_KEYS[1]},
                       GARAGE.replace("RPC", str(free_port())), GARAGE_KEYS))  # fmt: skip
    return [Server(name, folder, *rest) for name, *rest in wanted]


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
            [warp, *words, "--host", server.address, "--access-key", server.access_key, "--secret-key", server.secret_key, "--bucket", bucket, "--noclear", "--no-color",
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
