"""Measures how long a training run waits for an asynchronous save of 1 GB, and how long the interpreter pauses meanwhile.

The peers write the same state to the same directory: torch.save with an fsync, directly and on a separate thread, and
torch.distributed.checkpoint. The latter has an asynchronous save in torch 2.2 and later, which Debian 12 does not have: if
tools/bench-python has installed a current torch, a second process repeats the measurements with it.
"""
import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import report as reporting

GB = 10**9
# Number of small tensors. The state is like that of a model with an optimizer: few large tensors, many small ones.
SMALL = 300
ROUNDS = 7
ASYNCHRONOUS_DCP = "torch.distributed.checkpoint asynchronously"


def package():
    """Returns the package's import path: in the measured build if it has the package, else in build/python."""
    for folder in (reporting.binary().parent / "python", reporting.TOP / "build" / "python"):
        if (folder / "penstock" / "_native.abi3.so").exists():
            return folder
    sys.exit("there is no Python package in the build; install Python's headers and run make")


class Bench:
    def __init__(self, torch, checkpoint, folder, size):
        self.torch, self.checkpoint, self.folder, self.step = torch, checkpoint, folder, 0
        large = (size - SMALL * 4096) // 4 // 40
        self.state = {f"layer{at}": torch.rand(large) for at in range(40)} | {f"bias{at}": torch.rand(1024) for at in range(SMALL)}
        self.target = torch.empty(sum(tensor.numel() for tensor in self.state.values()))
        self.target.fill_(0)

    def copy(self):
        """Returns the time of a copy into allocated memory, the least time that a save can take."""
        begin, at = time.perf_counter(), 0
        for tensor in self.state.values():
            self.target[at : at + tensor.numel()].copy_(tensor)
            at += tensor.numel()
        return time.perf_counter() - begin

    def next_folder(self):
        for old in self.folder.iterdir():
            shutil.rmtree(old)
        self.step += 1
        return self.folder / str(self.step)

    def penstock(self):
        folder = self.next_folder()
        begin = time.perf_counter()
        self.checkpoint.save(self.state, self.step, dir=folder, asynchronous=True)
        stall = time.perf_counter() - begin
        self.checkpoint.wait()
        return stall

    def torch_save_to(self, folder):
        folder.mkdir()
        with open(folder / "state.pt", "wb") as file:
            self.torch.save(self.state, file)
            file.flush()
            os.fsync(file.fileno())

    def torch_save(self):
        folder = self.next_folder()
        begin = time.perf_counter()
        self.torch_save_to(folder)
        return time.perf_counter() - begin

    def distributed(self, storage):
        folder = self.next_folder()
        folder.mkdir()
        begin = time.perf_counter()
        if hasattr(storage, "save"):
            storage.save(self.state, storage_writer=storage.FileSystemWriter(folder, single_file_per_rank=True), no_dist=True)
        else:
            storage.save_state_dict(self.state, storage.FileSystemWriter(folder, single_file_per_rank=True), no_dist=True)
        return time.perf_counter() - begin

    def distributed_asynchronously(self, storage, through=None):
        folder = self.next_folder()
        writer = through.Writer(self.step, dir=folder) if through else storage.FileSystemWriter(folder, single_file_per_rank=True)
        begin = time.perf_counter()
        done = storage.async_save(self.state, storage_writer=writer)
        stall = time.perf_counter() - begin
        done.result()
        return stall

    def longest_pause(self, begin, ended):
        """Calls begin(), and returns the longest pause of a Python loop that runs until ended() is true."""
        begin()
        last, longest = time.perf_counter(), 0.0
        while not ended():
            now = time.perf_counter()
            longest, last = max(longest, now - last), now
        return longest

    def pause_of_penstock(self):
        folder, pending = self.next_folder(), []
        return self.longest_pause(
            lambda: pending.append(self.checkpoint.save(self.state, self.step, dir=folder, asynchronous=True)), lambda: pending[0].done()
        )

    def pause_of_a_thread(self):
        thread = threading.Thread(target=self.torch_save_to, args=(self.next_folder(),))
        return self.longest_pause(thread.start, lambda: not thread.is_alive())


def distributed_storage():
    try:
        return importlib.import_module("torch.distributed.checkpoint")
    except ModuleNotFoundError:
        importlib.import_module("penstock.dcp")  # imports torch's module under Python 3.11, where a plain import fails
        return importlib.import_module("torch.distributed._shard.checkpoint")


def settle_disk():
    """Syncs earlier writes to the disk, so that they do not slow down the next tool."""
    os.sync()


def waits(size):
    """Returns torch's version and the medians of the times that a training run waits: for a memory copy, penstock, torch.save,
    torch.distributed.checkpoint, its asynchronous save, and its asynchronous save through penstock.dcp. If this torch has
    no asynchronous save, None replaces the last two.
    """
    import torch

    checkpoint = importlib.import_module("penstock.checkpoint")
    storage = distributed_storage()
    measure = reporting.Report()
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        bench = Bench(torch, checkpoint, Path(folder), size)
        ways = [bench.copy, bench.penstock, bench.torch_save, lambda: bench.distributed(storage)]
        if hasattr(storage, "async_save"):
            ways += [lambda: bench.distributed_asynchronously(storage), lambda: bench.distributed_asynchronously(storage, importlib.import_module("penstock.dcp"))]
        return torch.__version__, [*measure.interleave(ROUNDS, *(after_sync(way) for way in ways)), None, None][:6]


def after_sync(way):
    def measured():
        settle_disk()
        return way()

    return measured


def report_waits(report, version, found):
    copy, ours, torch_save, dcp, asynchronous, through = found
    of = f"training waits for an asynchronous save of 1 GB, torch {version}"
    report.more(of, ours, copy, at_most=0.005, peer_name="memory copy")
    report.figure(of, ours, unit="s", peer=torch_save, peer_name="torch.save and fsync")
    report.figure(of, ours, unit="s", peer=dcp, peer_name="torch.distributed.checkpoint")
    if asynchronous is not None:
        report.figure(of, ours, unit="s", peer=asynchronous, peer_name=ASYNCHRONOUS_DCP)
        report.figure(f"torch.distributed.checkpoint asynchronously through penstock.dcp, torch {version}", through, unit="s", peer=asynchronous, peer_name="the same to its own files")


def main(report):
    if sys.executable != "/usr/bin/python3" and subprocess.run([sys.executable, "-c", "import torch"], capture_output=True).returncode:
        report.missing("torch", "not importable by " + sys.executable)
        return
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    sys.path.insert(0, str(package()))
    size = report.size(GB, GB // 10)
    report_waits(report, *waits(size))
    other = reporting.bench_python()
    if other:
        found = subprocess.run([other, __file__, str(size)], check=True, stdout=subprocess.PIPE, text=True).stdout
        report_waits(report, *json.loads(found.splitlines()[-1]))
    else:
        report.missing(ASYNCHRONOUS_DCP, "Debian's torch has no asynchronous save; tools/bench-python installs a torch that has one")

    import torch

    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        bench = Bench(torch, importlib.import_module("penstock.checkpoint"), Path(folder), size)
        pause, thread = report.interleave(ROUNDS, bench.pause_of_penstock, bench.pause_of_a_thread)
        report.figure("longest pause of the interpreter meanwhile", pause, unit="s", peer=thread, peer_name="torch.save on a thread")


if __name__ == "__main__":
    sys.path.insert(0, str(package()))
    print(json.dumps(waits(int(sys.argv[1]))))
