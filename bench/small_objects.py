"""Measures uploads and downloads of many small objects, next to s5cmd, `aws s3 sync`, rclone and boto3.

The objects are 60,000 real images of 1 kB and 10,000 files of 256 KiB. The servers are `penstock serve` with relaxed durability, and
nginx DAV for uploads. All tools use the same files and the same server. The CPU seconds are those of client and server together.
penstock and s5cmd are also measured without the store's Unix socket.
Slow peers run once and copy only a part of the files; the name of such a peer in the table has the
number of its files. The times per object are compared.
"""
import os
import re
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import report as reporting

IMAGES = reporting.TOP.parent / "shared" / "data" / "cifar10-jpeg.tar.gz"
ROUNDS, DAV_ROUNDS = 5, 3
ROOM = 16 * 2**30  # maximum size in bytes of the files of 256 KiB, with all their copies
S5CMD, AWS, MEMORY = 4, 20, 64 * 2**20
KEYS = {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench-secret", "AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "us-east-1"}
BOTO3 = """
import boto3, os, sys
from concurrent.futures import ThreadPoolExecutor
from botocore.config import Config
s3 = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"], config=Config(max_pool_connections=32))
verb, tree, prefix = sys.argv[1:]
def up(path):
    with open(path, "rb") as body:
        s3.put_object(Bucket="bench", Key=prefix + "/" + os.path.relpath(path, tree), Body=body)
def down(key):
    path = os.path.join(tree, key[len(prefix) + 1:])
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(s3.get_object(Bucket="bench", Key=key)["Body"].read())
with ThreadPoolExecutor(32) as pool:
    if verb == "up":
        list(pool.map(up, [os.path.join(at, name) for at, _, names in os.walk(tree) for name in names]))
    else:
        pages = s3.get_paginator("list_objects_v2").paginate(Bucket="bench", Prefix=prefix + "/")
        list(pool.map(down, [entry["Key"] for page in pages for entry in page["Contents"]]))
"""
NGINX = """
daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/nginx.log crit;
{user}
events {{ worker_connections 1024; }}
http {{
  access_log off; client_max_body_size 0; client_body_temp_path {folder}/dav/.tmp; proxy_temp_path {folder}/np; fastcgi_temp_path {folder}/nf;
  uwsgi_temp_path {folder}/nu; scgi_temp_path {folder}/ns; keepalive_requests 1000000000;
  server {{ listen 127.0.0.1:{port}; root {folder}/dav; location / {{ dav_methods PUT DELETE; create_full_put_path on; }} }}
}}
"""


class Server:
    """A server process, and the CPU seconds that it has used."""

    def __init__(self, process, url):
        self.process, self.url = process, url

    def cpu(self):
        return reporting.cpu_of(self.process.pid)

    def close(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


def start_nginx(program, folder):
    (folder / "dav" / ".tmp").mkdir(parents=True)
    for _ in range(20):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        user = "user root;" if os.geteuid() == 0 else ""
        (folder / "nginx.conf").write_text(NGINX.format(folder=folder, port=port, user=user))
        process = subprocess.Popen([program, "-c", folder / "nginx.conf", "-e", folder / "nginx.log"], stderr=subprocess.DEVNULL)
        for _ in range(200):
            if process.poll() is not None:
                break
            if (folder / "nginx.pid").exists() and (folder / "nginx.pid").read_text().strip():
                workers = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
                if workers:
                    server = Server(process, f"http://127.0.0.1:{port}")
                    server.cpu = lambda: reporting.cpu_of(workers[0])  # the master process does nothing
                    return server
            time.sleep(0.02)
    sys.exit("nginx did not start: " + (folder / "nginx.log").read_text())


class Run:
    """Seconds and CPU seconds per object, and peak memory, of one run of a tool."""

    def __init__(self, server, command, count, env):
        with tempfile.TemporaryFile() as said:
            before, begin = server.cpu(), time.perf_counter()
            process = subprocess.Popen([str(word) for word in command], env=env, stdout=subprocess.DEVNULL, stderr=said)
            used, self.memory = reporting.wait_for(process)
            self.seconds = (time.perf_counter() - begin) / count
            self.cpu = (used + server.cpu() - before) / count
            if process.returncode != 0:
                said.seek(0)
                sys.exit(f"{' '.join(map(str, command))}: exit code {process.returncode}\n{said.read().decode(errors='replace')[-2000:]}")


class Files:
    """A tree of files, and a part of the tree for slow tools."""

    def __init__(self, name, folder, part):
        self.name, self.all, self.some = name, folder / name, folder / (name + "-part")
        self.count = sum(1 for path in self.all.rglob("*") if path.is_file())
        chosen = sorted(path for path in self.all.rglob("*") if path.is_file())[: min(part, self.count)]
        self.part = len(chosen)
        for path in chosen:
            to = self.some / path.relative_to(self.all)
            to.parent.mkdir(parents=True, exist_ok=True)
            os.link(path, to)


def images(folder, quick):
    if not IMAGES.exists():
        return None
    with tarfile.open(IMAGES) as tar:
        members = [member for member in tar if member.isfile()]
        for member in members[:: 60 if quick else 1]:
            tar.extract(member, folder / "images")
    return Files("images", folder, 200 if quick else 3000)


def blocks(folder, quick):
    for number in range(200 if quick else 10000):
        path = folder / "blocks" / f"{number % 16:02}" / f"{number:05}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(256 * 1024))
    return Files("blocks", folder, 50 if quick else 1000)


class Medians:
    """Medians of the runs of a tool."""

    def __init__(self, runs):
        self.seconds, self.cpu = (statistics.median(getattr(run, name) for run in runs) for name in ("seconds", "cpu"))


class Bench:
    def __init__(self, report, folder, memory, large):
        self.report, self.folder, self.number = report, folder, 0
        self.memory, self.large = memory, large  # memory: the folder is in memory; large: copies of the files must be removed
        self.s5cmd = report.peer("s5cmd", "not built; run tools/bench-peers")
        self.aws = report.aws()
        self.rclone = report.peer("rclone")
        self.boto3 = self.venv()
        self.bare = reporting.BareCopies(report, folder)
        self.env = {"PATH": os.environ["PATH"], "HOME": str(folder), "PENSTOCK_HOME": str(folder / "home")} | KEYS
        self.env |= {"AWS_EC2_METADATA_DISABLED": "true"}
        self.serve()
        reporting.run_checked([reporting.binary(), "mb", "s3://bench"], env=self.env)

    def serve(self, listen="127.0.0.1:0"):
        self.store = Server(*reporting.serve(self.folder / "store", listen, "relaxed"))
        self.env |= {"AWS_ENDPOINT_URL": self.store.url, "S3_ENDPOINT_URL": self.store.url}
        self.env |= {f"RCLONE_CONFIG_S_{name}": value for name, value in {
            "TYPE": "s3", "PROVIDER": "Other", "ENV_AUTH": "true", "ENDPOINT": self.store.url}.items()}  # fmt: skip

    def venv(self):
        made = subprocess.run([reporting.TOP / "tools" / "test-venv"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
        if made.returncode == 0:
            return Path(made.stdout.strip()) / "bin" / "python3"
        return self.report.missing("boto3", "tools/test-venv cannot create its environment")

    def fresh(self):
        """Returns an unused name of a prefix or directory."""
        self.number += 1
        return f"n{self.number}"

    def up(self, tool, tree, count, to="s3://bench", server=None, env=None):
        target = self.fresh()
        command = {
            "penstock": [reporting.binary(), "-q", "cp", "-r", f"{tree}/", f"{to}/{target}/"],
            "s5cmd": [self.s5cmd, "--log", "error", "cp", f"{tree}/", f"{to}/{target}/"],
            "aws s3 sync": [self.aws, "s3", "sync", "--quiet", "--endpoint-url", self.store.url, tree, f"{to}/{target}"],
            "rclone": [self.rclone, "copy", "--transfers", "32", tree, f"S:bench/{target}"],
            "boto3": [self.boto3, "-c", BOTO3, "up", tree, target],
        }[tool]
        run = Run(server or self.store, command, count, self.env | (env or {}))
        if self.large and not server:
            reporting.run_checked([reporting.binary(), "-q", "rm", "-r", f"s3://bench/{target}/"], env=self.env)
        return run

    def down(self, tool, prefix, count):
        target = self.folder / self.fresh()
        target.mkdir()
        command = {
            "penstock": [reporting.binary(), "-q", "cp", "-r", f"s3://bench/{prefix}/", f"{target}/"],
            "s5cmd": [self.s5cmd, "--log", "error", "cp", f"s3://bench/{prefix}/*", f"{target}/"],
            "aws s3 sync": [self.aws, "s3", "sync", "--quiet", "--endpoint-url", self.store.url, f"s3://bench/{prefix}", target],
            "rclone": [self.rclone, "copy", "--transfers", "32", f"S:bench/{prefix}", target],
            "boto3": [self.boto3, "-c", BOTO3, "down", target, prefix],
        }[tool]
        run = Run(self.store, command, count, self.env)
        found = sum(len(names) for _, _, names in os.walk(target))
        self.clear(target)
        if found != count:
            sys.exit(f"{tool} fetched {found} of {count} objects")
        return run

    def clear(self, tree):
        """
        Makes room. On a disk no file is deleted, and large files are truncated: for a minute after
        thousands of files were deleted, ext4 examines each of their inodes when a tool makes new
        files, and the measured time would be that of ext4.
        """
        if self.memory:
            shutil.rmtree(tree)
        elif self.large:
            for path in tree.rglob("*"):
                if path.is_file():
                    os.truncate(path, 0)

    def bare_copies(self, way, files):
        """Returns the CPU seconds per object of the bare copies, which every tool needs at least."""
        found = [path for path in files.all.rglob("*") if path.is_file()]
        used = self.bare.cpu(way, self.folder / self.fresh(), found)
        return used and used / files.count

    def compare(self, what, run, files, all_of, some_of, peers, rounds=ROUNDS, way=None):
        """
        Calls `run(tool, place, count)` for penstock and s5cmd in turn, and once for each slow peer. Reports the medians of time and
        CPU seconds per object. If `way` is given, the bare copies are measured in turn, too.
        """
        present = [(tool, limit) for tool, limit, program in peers if program]
        runs = {tool: [] for tool in ["penstock"] + [tool for tool, _ in present]}

        def measure(tool, slow):
            place, count = (some_of, files.part) if slow else (all_of, files.count)
            runs[tool].append(run(tool, place, count))
            return runs[tool][-1].seconds

        quick = ["penstock"] + [tool for tool, _ in present if tool == "s5cmd"]
        bare = [lambda: self.bare_copies(way, files)] if way and self.bare.program else []
        medians = self.report.interleave(rounds, *[lambda tool=tool: measure(tool, False) for tool in quick], *bare, warm_up=0)
        for tool, _ in present:
            if tool not in quick:
                measure(tool, True)
        ours = Medians(runs["penstock"])
        for tool, limit in present:
            peer, name = Medians(runs[tool]), tool if tool in quick else f"{tool} (once, {files.part:,} of them)"
            if limit:
                self.report.ratio(f"{what}, time of an object", ours.seconds, peer.seconds, at_least=limit, peer_name=name)
            else:
                self.report.figure(f"{what}, time of an object", ours.seconds, unit="s", peer=peer.seconds, peer_name=name)
            self.report.figure(f"{what}, CPU of client and server", ours.cpu, unit="s", peer=peer.cpu, peer_name=name)
        if bare:
            self.report.figure(f"{what}, CPU of client and server", ours.cpu, unit="s", peer=medians[-1], peer_name="bare copies in C")
        self.report.limit(f"{what}, memory of the client", max(one.memory for one in runs["penstock"]), at_most=MEMORY, unit="bytes")

    def files(self, files, title):
        peers = [("s5cmd", S5CMD, self.s5cmd), ("aws s3 sync", AWS, self.aws), ("rclone", None, self.rclone), ("boto3", None, self.boto3)]
        self.compare(f"{title} up", self.up, files, files.all, files.some, peers, way="up")
        for place, tree in (("all", files.all), ("some", files.some)):
            reporting.run_checked([reporting.binary(), "-q", "cp", "-r", f"{tree}/", f"s3://bench/{files.name}-{place}/"], env=self.env)
        self.compare(f"{title} down", self.down, files, f"{files.name}-all", f"{files.name}-some", peers, way="down")

    def over_tcp(self, files, title):
        """Measures without the store's Unix socket, as if the store were on another machine.

        A store that listens on all addresses has no Unix socket.
        """
        self.store.close()
        self.serve("0.0.0.0:0")
        peers = [("s5cmd", S5CMD, self.s5cmd)]
        self.compare(f"{title} up over TCP", self.up, files, files.all, files.some, peers)
        self.compare(f"{title} down over TCP", self.down, files, f"{files.name}-all", f"{files.name}-some", peers)

    def dav(self, files, title, nginx):
        server = start_nginx(nginx, self.folder)
        try:

            def up(tool, tree, count):
                to, env = (server.url, None) if tool == "penstock" else ("s3://bench", {"S3_ENDPOINT_URL": server.url})
                run = self.up(tool, tree, count, to, server, env)
                if self.large:
                    self.clear(self.folder / "dav" / ("" if tool == "penstock" else "bench") / f"n{self.number}")
                return run

            self.compare(f"{title} up to nginx DAV", up, files, files.all, files.some, [("s5cmd", S5CMD, self.s5cmd)], DAV_ROUNDS)
        finally:
            server.close()
            shutil.rmtree(self.folder / "dav")


def place():
    """Returns a folder in memory if there is room, else None: a disk would hide the differences between the tools."""
    room = shutil.disk_usage("/dev/shm").free if os.path.isdir("/dev/shm") else 0
    left = int(re.search(r"^MemAvailable:\s*(\d+)", Path("/proc/meminfo").read_text(), re.M).group(1)) * 1024
    return "/dev/shm" if room > ROOM and left > ROOM + 2 * 2**30 else None


def measure(report, folder, at, make, title, nginx):
    files = make(folder, report.quick)
    if not files:
        report.missing("the CIFAR-10 images", f"{IMAGES} does not exist")
        return
    title = f"{files.count:,} {title}" + (" in memory" if at else "")
    bench = Bench(report, folder, bool(at), make is blocks)
    try:
        bench.files(files, title)
        bench.over_tcp(files, title)
        if nginx:
            bench.dav(files, title, nginx)
    finally:
        bench.store.close()


def main(report):
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    nginx = report.peer("nginx", path="/usr/sbin/nginx" if os.path.exists("/usr/sbin/nginx") else None)
    for make, title in ((images, "images of 1 kB"), (blocks, "files of 256 KiB")):
        at = place()
        with reporting.memory_at_hand(ROOM if at else 0), tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=at) as name:
            measure(report, Path(name), at, make, title, nginx)
