"""The report of a benchmark: rows with a limit that is kept or missed, peers that are missing, and helpers to measure.

    def main(report):
        ours, peer = report.interleave(30, lambda: run_ours(), lambda: run_curl())
        report.ratio("GET of 1 GiB", ours, peer, at_least=0.95, unit="s", peer_name="curl")

A figure is the median of its samples. Ours and the peer's are taken in turn, one of each, because machines are noisy.
"""
import contextlib
import os
import re
import resource
import select
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent


def binary():
    """The program to measure: $PENSTOCK, else the release build, else the plain one."""
    for path in (os.environ.get("PENSTOCK"), TOP / "build-release" / "penstock", TOP / "build" / "penstock"):
        if path and os.access(path, os.X_OK):
            return Path(path).resolve()
    raise FileNotFoundError("no penstock to measure; run make, or name one in PENSTOCK")


def format_figure(value, unit):
    if value is None:
        return "-"
    if unit == "s":
        return f"{1000 * value:.2f} ms" if abs(value) < 1 else f"{value:.3f} s"
    if unit == "bytes":
        return f"{value / 2**20:.1f} MiB"
    if unit == "bytes/s":
        return f"{value / 1e6:.0f} MB/s"
    return f"{value:,.0f} {unit}" if abs(value) >= 100 else f"{value:.2f} {unit}"


def bench_python():
    """The Python with the current torch and the peers, if tools/bench-python has got it; else an empty text."""
    return subprocess.run([TOP / "tools" / "bench-python", "--find"], check=True, capture_output=True, text=True).stdout.strip()


class Report:
    def __init__(self, quick=False):
        self.quick = quick  # fewer and smaller samples, to see that the benchmarks themselves work
        self.rows = []
        self.absent = []
        self.module = ""

    # -- measuring

    def repeats(self, count):
        """How often to measure: `count`, or 3 in a quick run."""
        return min(count, 3) if self.quick else count

    def size(self, full, quick):
        """How much to measure with."""
        return quick if self.quick else full

    def interleave(self, count, *functions, warm_up=1):
        """Calls the functions in turn, `count` times each, and returns their medians, in seconds or in the unit that they return."""
        samples = [[] for _ in functions]
        for round_number in range(warm_up + self.repeats(count)):
            for function, kept in zip(functions, samples):
                begin = time.perf_counter()
                value = function()
                value = time.perf_counter() - begin if value is None else value
                if round_number >= warm_up:
                    kept.append(value)
        medians = [statistics.median(kept) for kept in samples]
        return medians[0] if len(medians) == 1 else medians

    def peer(self, name, why="not installed", path=None):
        """Path of a peer's program, or None with its absence on record."""
        found = path or shutil.which(name)
        if not found:
            self.missing(name, why)
        return found

    def compiled(self, name, folder):
        """The program of bench/NAME.c, compiled into `folder`; None without a compiler, with its absence on record."""
        program, cc = Path(folder) / name, self.peer("cc")
        if cc:
            run_checked([cc, "-O2", "-D_GNU_SOURCE", "-pthread", "-o", program, TOP / "bench" / f"{name}.c"])
        return cc and program

    def aws(self):
        """Debian's AWS CLI where it is there, for another may come first on the PATH. It knows no AWS_ENDPOINT_URL: name it the endpoint."""
        return self.peer("aws", path="/usr/bin/aws" if os.access("/usr/bin/aws", os.X_OK) else None)

    # -- reporting

    def missing(self, peer, why="not installed"):
        """Names a peer that could not be measured in the table."""
        self.absent.append({"module": self.module, "peer": peer, "why": why})
        print(f"  {peer} is missing: {why}", flush=True)

    def ratio(self, what, ours, peer, *, at_least, unit="s", peer_name, smaller_is_better=None):
        """Ours over the peer's speed (times are turned round) is to be `at_least` this."""
        smaller = unit in ("s", "bytes") if smaller_is_better is None else smaller_is_better
        ratio = (peer / ours if smaller else ours / peer) if ours and peer else 0.0
        self.add(what, ours, peer, peer_name, unit, f"{ratio:.2f} x", f">= {at_least:g} x", ratio >= at_least, ratio)

    def more(self, what, ours, peer, *, at_most, unit="s", peer_name):
        """Ours is to be `at_most` this much more than the peer's."""
        extra = ours - peer
        limit = f"<= +{format_figure(at_most, unit)}"
        self.add(what, ours, peer, peer_name, unit, f"{'-' if extra < 0 else '+'}{format_figure(abs(extra), unit)}", limit, extra <= at_most, extra)

    def limit(self, what, ours, *, at_most=None, at_least=None, unit):
        """An absolute bound."""
        good = (at_most is None or ours <= at_most) and (at_least is None or ours >= at_least)
        bounds = [f"<= {format_figure(at_most, unit)}"] if at_most is not None else []
        bounds += [f">= {format_figure(at_least, unit)}"] if at_least is not None else []
        self.add(what, ours, None, "", unit, "", " ".join(bounds), good, ours)

    def figure(self, what, ours, *, unit, peer=None, peer_name=""):
        """A figure without a bound."""
        ratio = f"{ours / peer:.2f} x" if ours and peer else ""
        self.add(what, ours, peer, peer_name, unit, ratio, "", None, None)

    def add(self, what, ours, peer, peer_name, unit, relation, limit, good, value):
        self.rows.append(
            {
                "module": self.module, "what": what, "ours": ours, "peer": peer, "peer_name": peer_name, "unit": unit,
                "relation": relation, "limit": limit, "value": value, "pass": good,
            }
        )  # fmt: skip
        print("  " + " | ".join(cell for cell in self.cells(self.rows[-1]) if cell), flush=True)

    @staticmethod
    def cells(row):
        peer = f"{format_figure(row['peer'], row['unit'])} {row['peer_name']}" if row["peer"] is not None else ""
        verdict = {True: "pass", False: "MISS", None: ""}[row["pass"]]
        return [row["what"], format_figure(row["ours"], row["unit"]), peer, row["relation"], row["limit"], verdict]

    def table(self):
        head = ["what", "ours", "peer", "ours to peer", "limit", ""]
        lines = [head] + [self.cells(row) for row in self.rows]
        widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
        text = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines]
        text.insert(1, "  ".join("-" * width for width in widths))
        text += [f"missing peer: {entry['peer']} ({entry['why']}), wanted by {entry['module']}" for entry in self.absent]
        return "\n".join(text)

    def missed(self):
        return [row for row in self.rows if row["pass"] is False]


def children_cpu_s():
    """CPU seconds of all children waited for so far; the difference around a call is that call's."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def wait_for(process):
    """
    Waits for a Popen, and returns its CPU seconds and the peak of its resident bytes. getrusage() would count this Python, too, whose image a
    child has before its exec.
    """
    peak, end = 0, select.poll()
    watched = os.pidfd_open(process.pid)
    end.register(watched, select.POLLIN)
    while not end.poll(5):  # ms
        found = re.search(r"^VmHWM:\s*(\d+)", Path(f"/proc/{process.pid}/status").read_text(), re.M)
        peak = max(peak, int(found.group(1)) * 1024 if found else 0)
    os.close(watched)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return used.ru_utime + used.ru_stime, peak


AT_HAND = """
import mmap, sys
POPULATE_WRITE, KEPT, SIZE = 23, 64 * mmap.PAGESIZE, int(sys.argv[1]) // (64 * mmap.PAGESIZE) * 64 * mmap.PAGESIZE
memory = mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
try:
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    memory.madvise(POPULATE_WRITE)
    for at in range(0, SIZE, KEPT):
        memory.madvise(mmap.MADV_DONTNEED, at + mmap.PAGESIZE, KEPT - mmap.PAGESIZE)
except OSError as error:
    memory.close()  # a kernel before 5.14, or too little memory
    print(error, flush=True)
print("held", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def memory_at_hand(size):
    """
    Within it `size` bytes of free memory are backed by the host. The host of a virtual machine may take back free memory in blocks of 2 MiB,
    and the next process that asks for a page of them pays 2 to 10 us: more than all other differences between the tools. So all pages are
    touched once, and one of 64 stays in use (a 64th of `size`), so that no block is free as a whole. 0 changes nothing.
    """
    if not size:
        yield
        return
    holder = subprocess.Popen([sys.executable, "-c", AT_HAND, str(size)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        said = holder.stdout.readline().decode().strip()
        if said != "held":
            print(f"  no memory at hand: {said or 'its holder ended'}", flush=True)
        yield
    finally:
        holder.kill()
        holder.communicate()


class BareCopies:
    """CPU seconds that moving files costs anybody (bare_copies.c), built in `folder`; None where there is no compiler."""

    def __init__(self, report, folder):
        self.program = report.compiled("bare_copies", folder)

    def cpu(self, way, target, sources):
        """CPU seconds of both processes; `target` is a new directory, and gone afterwards."""
        if not self.program:
            return None
        target.mkdir()
        before = children_cpu_s()
        run_checked([self.program, way, target], input="".join(f"{path}\n" for path in sources).encode())
        used = children_cpu_s() - before
        shutil.rmtree(target)
        return used


def run_checked(command, **options):
    """Runs a command that has to succeed; ends the benchmark with its output where it does not."""
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, **options)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit code {result.returncode}\n{result.stdout.decode(errors='replace')}")
    return result.stdout
