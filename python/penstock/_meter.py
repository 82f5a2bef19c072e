"""Numbers of a loader while it runs, their line on a terminal, and their line in the output of a penstock run."""
import json
import os
import signal
import sys
import time
import warnings
from typing import Any, Callable, Dict, Iterator, Set, Tuple

from penstock._reads import CAUSES, Report

_INTERVAL_S = 0.2
_RECORD_S = 60.0  # seconds between the lines of a long epoch: a process that is killed leaves its last line
_WARNINGS = 100  # maximum number of shards that warnings name


class Meter:
    """Numbers of an epoch, and of all epochs of a loader."""

    def __init__(self) -> None:
        self.skipped = dict.fromkeys(CAUSES.values(), 0)
        self._samples = self._size = 0
        self._shards: Set[str] = set()
        self.begin()

    def begin(self) -> None:
        """Starts an epoch."""
        self.samples = self.size = 0
        self._before = sum(self.skipped.values())
        self._waited = 0.0
        self._began = self._now = time.monotonic()
        self._next = self._began + _RECORD_S

    def watch(self, batches: Iterator[Tuple[Any, Report]]) -> Iterator[Tuple[Any, Report]]:
        """Passes on batches, and measures how long the caller waits for them."""
        while True:
            asked = time.monotonic()
            got = next(batches, None)
            self._now = time.monotonic()
            self._waited += self._now - asked
            if got is None:
                return
            self._add(got[1])
            yield got
            del got  # so that its memory can be reused

    def due(self) -> bool:
        """Returns True once a minute during an epoch."""
        if self._now < self._next:
            return False
        self._next = self._now + _RECORD_S
        return True

    def _add(self, report: Report) -> None:
        self.samples, self.size = self.samples + report.samples, self.size + report.size
        self._samples, self._size = self._samples + report.samples, self._size + report.size
        for cause, shard, message in report.skipped:
            self.skipped[cause] += 1
            if shard not in self._shards and len(self._shards) < _WARNINGS:
                self._shards.add(shard)
                last = "; further shards are not named" if len(self._shards) == _WARNINGS else ""
                warnings.warn(f"samples of {shard} are skipped: {message}{last}", RuntimeWarning, stacklevel=4)

    def stats(self) -> Dict[str, float]:
        seconds = max(self._now - self._began, 1e-9)
        return {
            "samples": self.samples,
            "bytes": self.size,
            "skipped": sum(self.skipped.values()) - self._before,
            "seconds": seconds,
            "samples_per_s": self.samples / seconds,
            "bytes_per_s": self.size / seconds,
            "waiting": self._waited / seconds,
            "total_samples": self._samples,
            "total_bytes": self._size,
            "total_skipped": sum(self.skipped.values()),
        }


class Line:
    """A line of progress on standard error; writes nothing if standard error is not a terminal."""

    def __init__(self, epoch: int, batches: int, meter: Meter) -> None:
        self._epoch, self._batches, self._meter = epoch, batches, meter
        self._next = 0.0
        try:
            self._columns = os.get_terminal_size(sys.stderr.fileno()).columns or 80 if os.isatty(sys.stderr.fileno()) else 0
        except (AttributeError, OSError, ValueError):  # standard error of a notebook, or closed
            self._columns = 0

    def show(self, batch: int) -> None:
        if self._columns and time.monotonic() >= self._next:
            self._write(batch, "")
            self._next = time.monotonic() + _INTERVAL_S

    def end(self, batch: int) -> None:
        if self._columns:
            self._write(batch, "\n")

    def _write(self, batch: int, end: str) -> None:
        numbers = self._meter.stats()
        text = (
            f"epoch {self._epoch}: {batch:,}/{self._batches:,} batches  {numbers['samples_per_s']:,.0f} samples/s  "
            f"{numbers['bytes_per_s'] / 1e6:,.1f} MB/s  waiting {numbers['waiting']:.0%}"
        )
        if numbers["skipped"]:
            text += f"  {numbers['skipped']:,.0f} skipped"
        try:
            sys.stderr.write("\r" + text[: self._columns - 1].ljust(self._columns - 1) + end)
            sys.stderr.flush()
        except (OSError, ValueError):  # the terminal is gone
            self._columns = 0


def in_run() -> bool:
    """Returns True in a step of a penstock run."""
    return bool(os.environ.get("DEEPSQUARE_OUTPUT") and os.environ.get("PENSTOCK_RUN_ID"))


def record(rank: int, place: Dict[str, Any], numbers: Dict[str, float]) -> None:
    """Appends a line to ``datasets/RUN_ID/loader-RANK.jsonl`` in the output of a penstock run."""
    if not in_run() or sys.is_finalizing():
        return
    output, run = os.environ["DEEPSQUARE_OUTPUT"], os.environ["PENSTOCK_RUN_ID"]
    directory = os.path.join(output, "datasets", run)
    line = {"time": time.time(), "attempt": int(os.environ.get("PENSTOCK_ATTEMPT") or 1), "rank": rank, **place, **numbers}
    try:
        os.makedirs(directory, exist_ok=True)
        with open(os.path.join(directory, f"loader-{rank}.jsonl"), "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
    except OSError as error:
        warnings.warn(f"cannot write the numbers of a loader to {directory!r}: {error}", RuntimeWarning, stacklevel=2)


class Ending:
    """Calls functions when SIGTERM ends the process, as it does when a run is stopped, unless the
    program handles SIGTERM itself."""

    def __init__(self) -> None:
        self._functions: Dict[int, Callable[[], None]] = {}
        self._process = os.getpid()

    def add(self, function: Callable[[], None]) -> int:
        """Adds a function. Returns its number, for remove()."""
        if self._process != os.getpid():  # a child after fork() has the functions of its parent
            self._process, self._functions = os.getpid(), {}
        number = max(self._functions, default=0) + 1
        self._functions[number] = function
        self._handle(signal.SIG_DFL, self._end)
        return number

    def remove(self, number: int) -> None:
        self._functions.pop(number, None)
        if not self._functions:
            self._handle(self._end, signal.SIG_DFL)

    @staticmethod
    def _handle(before: Any, after: Any) -> None:
        try:
            if signal.getsignal(signal.SIGTERM) == before:
                signal.signal(signal.SIGTERM, after)
        except ValueError:  # not the main thread
            pass

    def _end(self, number: int, _: Any) -> None:
        functions = self._functions if self._process == os.getpid() else {}
        for function in list(functions.values()):
            function()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


ending = Ending()
