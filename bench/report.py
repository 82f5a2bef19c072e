"""The report of a benchmark: rows whose limit is met or missed, missing peers, and helpers to measure.

    def main(report):
        ours, peer = report.interleave(30, lambda: run_ours(), lambda: run_curl())
        report.ratio("GET of 1 GiB", ours, peer, at_least=0.95, unit="s", peer_name="curl")

A figure is the median of its samples. Samples of penstock and of the peer are taken in turn, because machines are noisy.
"""
import atexit
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
    """Returns the program to measure: $PENSTOCK, else build-release/penstock, else build/penstock."""
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
    """Returns the Python that tools/bench-python has installed, with the current torch and the peers; else an empty string."""
    return subprocess.run([TOP / "tools" / "bench-python", "--find"], check=True, capture_output=True, text=True).stdout.strip()


def serve(root, listen="127.0.0.1:0", durability="full"):
    """Starts a store with the keys "bench" and "bench-secret". Returns its process and its URL."""
    env = {"PATH": os.environ["PATH"], "PENSTOCK_ACCESS_KEY_ID": "bench", "PENSTOCK_SECRET_ACCESS_KEY": "bench-secret"}
    command = [binary(), "serve", "--root", root, "--listen", listen, "--durability", durability]
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
    atexit.register(process.kill)  # after an error
    return process, "http://127.0.0.1:" + process.stdout.readline().split()[-1].rpartition(":")[2]


class Report:
    def __init__(self, quick=False):
        self.quick = quick  # fewer and smaller samples, to check that the benchmarks work
        self.rows = []
        self.absent = []
        self.module = ""

    # -- measuring

    def repeats(self, count):
        """Returns the number of measurements: `count`, but at most 3 in a quick run."""
        return min(count, 3) if self.quick else count

    def size(self, full, quick):
        """Returns `quick` in a quick run, else `full`."""
        return quick if self.quick else full

    def interleave(self, count, *functions, warm_up=1):
        """Calls the functions in turn, `count` times each. Returns the medians of their results, or of their times if they return None."""
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
        """Returns the path of a peer's program, or None after reporting the peer as missing."""
        found = path or shutil.which(name)
        if not found:
            self.missing(name, why)
        return found

    def compiled(self, name, folder, *libraries):
        """Compiles bench/NAME.c in `folder`, with -lLIBRARY for each library. Returns the path of the program, or None after reporting the missing compiler."""
        program, cc = Path(folder) / name, self.peer("cc")
        if cc:
            run_checked([cc, "-O2", "-D_GNU_SOURCE", "-pthread", "-o", program, TOP / "bench" / f"{name}.c", *(f"-l{one}" for one in libraries)])
        return cc and program

    def aws(self):
        """Returns Debian's AWS CLI, if installed, else that on PATH. Debian's ignores AWS_ENDPOINT_URL: pass --endpoint-url."""
        return self.peer("aws", path="/usr/bin/aws" if os.access("/usr/bin/aws", os.X_OK) else None)

    # -- reporting

    def missing(self, peer, why="not installed"):
        """Lists a peer in the table as not measured."""
        self.absent.append({"module": self.module, "peer": peer, "why": why})
        print(f"  {peer} is missing: {why}", flush=True)

    def ratio(self, what, ours, peer, *, at_least, unit="s", peer_name, smaller_is_better=None):
        """Compares values: penstock's value divided by the peer's must be at least `at_least`.

        For times and sizes, the ratio is the peer's value divided by penstock's.
        """
        smaller = unit in ("s", "bytes") if smaller_is_better is None else smaller_is_better
        ratio = (peer / ours if smaller else ours / peer) if ours and peer else 0.0
        self.add(what, ours, peer, peer_name, unit, f"{ratio:.2f} x", f">= {at_least:g} x", ratio >= at_least, ratio)

    def more(self, what, ours, peer, *, at_most, unit="s", peer_name):
        """Compares values: penstock's value may exceed the peer's by at most `at_most`."""
        extra = ours - peer
        limit = f"<= +{format_figure(at_most, unit)}"
        self.add(what, ours, peer, peer_name, unit, f"{'-' if extra < 0 else '+'}{format_figure(abs(extra), unit)}", limit, extra <= at_most, extra)

    def limit(self, what, ours, *, at_most=None, at_least=None, unit):
        """Compares a value with absolute limits."""
        good = (at_most is None or ours <= at_most) and (at_least is None or ours >= at_least)
        bounds = [f"<= {format_figure(at_most, unit)}"] if at_most is not None else []
        bounds += [f">= {format_figure(at_least, unit)}"] if at_least is not None else []
        self.add(what, ours, None, "", unit, "", " ".join(bounds), good, ours)

    def figure(self, what, ours, *, unit, peer=None, peer_name=""):
        """Adds a figure without a limit."""
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
        text += [f"missing peer: {entry['peer']} ({entry['why']}), needed by {entry['module']}" for entry in self.absent]
        return "\n".join(text)

    def missed(self):
        return [row for row in self.rows if row["pass"] is False]


def children_cpu_s():
    """Returns the CPU seconds of all children that have ended so far; subtract two results to measure the calls between them."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def cpu_of(pid):
    """Returns the CPU seconds of a process so far, with all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wait_for(process):
    """
    Waits for a Popen. Returns its CPU seconds and the peak of its resident bytes. The peak of getrusage() would be wrong: before
    its exec, a child has the memory of this Python.
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
    In this context, `size` bytes of free memory are backed by the host. The host of a virtual machine may take back free memory in
    blocks of 2 MiB. The next use of such a block then costs 2 to 10 us per page, which is more than all differences between
    the tools. So all pages are touched once, and one page of 64 stays in use, so that no block is free as a whole. A size of 0
    changes nothing.
    """
    if not size:
        yield
        return
    holder = subprocess.Popen([sys.executable, "-c", AT_HAND, str(size)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        said = holder.stdout.readline().decode().strip()
        if said != "held":
            print(f"  cannot keep memory at hand: {said or 'the process that holds the memory ended'}", flush=True)
        yield
    finally:
        holder.kill()
        holder.communicate()


class BareCopies:
    """Measures the CPU seconds that moving files needs at least, with bare_copies.c, compiled in `folder`."""

    def __init__(self, report, folder):
        self.program = report.compiled("bare_copies", folder)

    def cpu(self, way, target, sources):
        """Returns the CPU seconds of both processes, or None without a compiler. Makes and removes the directory `target`."""
        if not self.program:
            return None
        target.mkdir()
        before = children_cpu_s()
        run_checked([self.program, way, target], input="".join(f"{path}\n" for path in sources).encode())
        used = children_cpu_s() - before
        shutil.rmtree(target)
        return used


def run_checked(command, **options):
    """Runs a command and returns its output; ends the benchmark with the output if the command fails."""
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, **options)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit code {result.returncode}\n{result.stdout.decode(errors='replace')}")
    return result.stdout
