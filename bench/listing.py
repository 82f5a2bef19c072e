"""Measures the listing of a million keys, and a sync that finds nothing to do, next to s5cmd, rclone and the AWS CLI.

All tools use the same store and the same files. The CPU seconds are those of client and server together. penstock and s5cmd list
all keys. rclone and the AWS CLI list a fifth of them, and are compared by objects per second. The page of `penstock ui` scrolls
through a fifth of them, too.
"""
import contextlib
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import page as pages
import report as reporting
from store_get import Address

sys.path.insert(0, str(reporting.TOP / "tests" / "system"))
from harness.program import Penstock  # noqa: E402
from harness.s3_wire import Wire  # noqa: E402
from harness.ui import Ui  # noqa: E402

DIRECTORIES = 5
PAGES = 101
KEYS, QUICK_KEYS = 1_000_000, 20_000
LEAST, MEMORY = 5, 64 * 2**20
PREFIX = "s3://bench/data/"
ENVIRONMENT = {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench-secret", "AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "us-east-1"}


def make_files(folder, count):
    """Makes old files with the names of a data set. Nearly all are empty, because the contents do not matter to the tools."""
    for directory in range(DIRECTORIES):
        (folder / f"part-{directory}").mkdir(parents=True)
        at = os.open(folder / f"part-{directory}", os.O_RDONLY)
        for number in range(count // DIRECTORIES):
            name = f"img_{number:07d}.jpg"
            file = os.open(name, os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=at)
            if number % 1000 == 0:
                os.write(file, name.encode() * 10)
            os.close(file)
            os.utime(name, (1_700_000_000, 1_700_000_000), dir_fd=at)
        os.close(at)


@contextlib.contextmanager
def store(folder):
    process, url = reporting.serve(folder, durability="relaxed")
    try:
        yield process, url
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


class Bench:
    def __init__(self, folder, server, url):
        self.server = server
        self.env = {"PATH": os.environ["PATH"], "HOME": str(folder), "TMPDIR": str(folder), **ENVIRONMENT}
        self.env |= {"AWS_ENDPOINT_URL": url, "S3_ENDPOINT_URL": url, "PENSTOCK_HOME": str(folder / "home")}
        self.url, self.folder = url, folder

    def run(self, command, lines=None):
        """Returns the seconds, the CPU seconds of both sides, and the peak of resident bytes. The command must print `lines` lines."""
        output = self.folder / "output"
        before, begin = reporting.cpu_of(self.server.pid), time.perf_counter()
        with open(output, "wb") as file:
            process = subprocess.Popen([str(word) for word in command], env=self.env, stdout=file, stderr=subprocess.STDOUT)
            used, memory = reporting.wait_for(process)
        wall = time.perf_counter() - begin
        cpu = used + reporting.cpu_of(self.server.pid) - before
        with open(output, "rb") as file:
            printed = sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
        if process.returncode or (lines is not None and printed != lines):
            tail = output.read_bytes()[-2000:].decode(errors="replace")
            sys.exit(f"{' '.join(map(str, command))}: exit code {process.returncode}, {printed} lines\n{tail}")
        return wall, cpu, memory


def compare(report, bench, what, rounds, ours, peer, lines=None):
    """Runs penstock and s5cmd in turn; time and CPU seconds have the same limit."""
    ours_runs, peer_runs = [], []
    for _ in range(report.repeats(rounds)):
        ours_runs.append(bench.run(ours, lines))
        if peer:
            peer_runs.append(bench.run(peer, lines))
    wall, cpu, _ = (statistics.median(column) for column in zip(*ours_runs))
    if peer:
        peer_wall, peer_cpu, peer_memory = (statistics.median(column) for column in zip(*peer_runs))
        # With few keys, most of the time is spent on starting the program.
        least = 0 if report.quick else LEAST
        report.ratio(f"{what}, time", wall, peer_wall, at_least=least, peer_name="s5cmd")
        report.ratio(f"{what}, CPU of client and store", cpu, peer_cpu, at_least=least, peer_name="s5cmd")
        report.figure(f"{what}, memory of s5cmd", peer_memory, unit="bytes")
    report.limit(f"{what}, memory", max(run[2] for run in ours_runs), at_most=MEMORY, unit="bytes")
    return wall


def others(report, bench, what, ours_per_s, count, commands):
    """Reports objects per second of peers that take minutes for a part of the keys."""
    for name, command in commands:
        program = report.aws() if name == "aws" else report.peer(name)
        if program:
            wall, _, memory = bench.run([program, *command])
            report.figure(f"{what}, next to {name}", ours_per_s, unit="objects/s", peer=count / wall, peer_name=name)
            report.figure(f"{what}, memory of {name}", memory, unit="bytes")


def page_of(bench, count):
    """Returns a function that lists the 1,000 keys after a random key, over a new connection."""
    wire = Wire(Address(bench.url))

    def page():
        after = f"data/part-{random.randrange(DIRECTORIES - 1)}/img_{random.randrange(count // DIRECTORIES):07d}.jpg"
        query = f"list-type=2&max-keys=1000&start-after={after.replace('/', '%2F')}"
        reply = wire.send("GET", "/bench", query)
        assert reply.status == 200 and reply.body.count(b"<Key>") == 1000

    return page


def measure(report, bench, files, count):
    penstock, s5cmd = reporting.binary(), report.peer("s5cmd", "not on PATH; tools/bench-peers builds it")
    part = count // DIRECTORIES
    rclone = [":s3,provider=Other,env_auth=true,force_path_style=true,endpoint=" + repr(bench.url) + ":bench/data/part-0"]

    bench.run([penstock, "mb", "s3://bench"])
    bench.run([penstock, "sync", "-q", files, PREFIX])
    peer = [s5cmd, "ls", PREFIX + "*"] if s5cmd else None
    wall = compare(report, bench, f"ls of {count:,} keys", 3, [penstock, "ls", "-r", PREFIX], peer, count)
    page = page_of(bench, count)
    report.limit(f"one page of 1,000 of {count:,} keys", report.interleave(PAGES, page), at_most=0.005, unit="s")
    others(
        report, bench, f"ls of {part:,} keys", count / wall, part,
        [("aws", ["s3", "ls", "--endpoint-url", bench.url, "--recursive", PREFIX + "part-0/"]), ("rclone", ["lsl", *rclone])],
    )  # fmt: skip
    peer = [s5cmd, "sync", f"{files}/", PREFIX] if s5cmd else None
    wall = compare(report, bench, f"sync of {count:,} files, nothing to do", 1, [penstock, "sync", files, PREFIX], peer)
    others(
        report, bench, f"sync of {part:,} files, nothing to do", count / wall, part,
        [("aws", ["s3", "sync", "--endpoint-url", bench.url, files / "part-0", PREFIX + "part-0/"]), ("rclone", ["sync", "--update", "--use-server-modtime", files / "part-0", *rclone])],
    )  # fmt: skip


def browse(report, bench, count):
    """Scrolls through the first keys in the page of `penstock ui`."""
    if not os.path.exists(pages.CHROMIUM):
        report.missing("Chromium", "it is not installed")
        return
    penstock = Penstock(bench.folder / "page")
    server = Ui(penstock, env=ENVIRONMENT | {"AWS_ENDPOINT_URL": bench.url})
    with pages.playwright() as driver:
        browser = pages.launch(driver)
        late, received = pages.scrolled(browser, server, "buckets/s3://bench/data/part-0/", "img_0000000.jpg", report.size(5, 0.5), 3000)
        browser.close()
    server.close()
    penstock.close()
    report.limit(f"{count // DIRECTORIES:,} keys in the page: frames beyond {pages.FRAME_MS} ms while scrolling", late, at_most=0.05, unit="of all")
    report.figure(f"{count // DIRECTORIES:,} keys in the page: bytes received", received, unit="bytes")


def main(report):
    folder = Path(tempfile.mkdtemp(prefix="penstock-bench-listing-"))
    count = report.size(KEYS, QUICK_KEYS)
    try:
        make_files(folder / "files", count)
        with store(folder / "store") as (server, url):
            bench = Bench(folder, server, url)
            measure(report, bench, folder / "files", count)
            browse(report, bench, count)
    finally:
        shutil.rmtree(folder)
