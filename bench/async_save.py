"""How long a training waits for an asynchronous save of 1 GB, and how long the interpreter pauses while it is written.

The peers write the same state to the same directory: torch.save with an fsync, as it stands and on a thread of its own, and
torch.distributed.checkpoint, whose asynchronous save (torch 2.2 and later) is taken where torch has it.
"""
import importlib
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
# Tensors of a model with an optimizer of two moments: few large ones, and many small.
SMALL = 300
ROUNDS = 7
ASYNCHRONOUS_DCP = "torch.distributed.checkpoint asynchronously"


def package():
    """The import path of the package, of the build that is measured where it has one."""
    for folder in (reporting.binary().parent / "python", reporting.TOP / "build" / "python"):
        if (folder / "penstock" / "_native.abi3.so").exists():
            return folder
    sys.exit("there is no Python package in the build; make builds it where the headers of Python are")


class Bench:
    def __init__(self, torch, checkpoint, folder, size):
        self.torch, self.checkpoint, self.folder, self.step = torch, checkpoint, folder, 0
        large = (size - SMALL * 4096) // 4 // 40
        self.state = {f"layer{at}": torch.rand(large) for at in range(40)} | {f"bias{at}": torch.rand(1024) for at in range(SMALL)}
        self.target = torch.empty(sum(tensor.numel() for tensor in self.state.values()))
        self.target.fill_(0)

    def copy(self):
        """What a save cannot do without: the memory copy, into memory that is there."""
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
        """(how long, whether it is asynchronous)"""
        folder = self.next_folder()
        if hasattr(storage, "async_save"):
            begin = time.perf_counter()
            done = storage.async_save(self.state, checkpoint_id=folder)
            stall = time.perf_counter() - begin
            done.result()
            return stall
        folder.mkdir()
        begin = time.perf_counter()
        storage.save_state_dict(self.state, storage.FileSystemWriter(folder, single_file_per_rank=True), no_dist=True)
        return time.perf_counter() - begin

    def longest_pause(self, begin, ended):
        """The longest time for which a loop in Python stood still, from after begin() until ended() is true."""
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
        importlib.import_module("penstock.dcp")  # which can import what Python 3.11 alone cannot
        return importlib.import_module("torch.distributed._shard.checkpoint")


def main(report):
    if sys.executable != "/usr/bin/python3" and subprocess.run([sys.executable, "-c", "import torch"], capture_output=True).returncode:
        report.missing("torch", "not importable by " + sys.executable)
        return
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    sys.path.insert(0, str(package()))
    import torch

    checkpoint = importlib.import_module("penstock.checkpoint")
    storage = distributed_storage()
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        bench = Bench(torch, checkpoint, Path(folder), report.size(GB, GB // 10))
        copy, ours, torch_save, dcp = report.interleave(ROUNDS, bench.copy, bench.penstock, bench.torch_save, lambda: bench.distributed(storage))
        report.more("training waits for an asynchronous save of 1 GB", ours, copy, at_most=0.005, peer_name="memory copy")
        report.figure("the same", ours, unit="s", peer=torch_save, peer_name="torch.save and fsync")
        name = ASYNCHRONOUS_DCP if hasattr(storage, "async_save") else "torch.distributed.checkpoint"
        report.figure("the same", ours, unit="s", peer=dcp, peer_name=name)
        if not hasattr(storage, "async_save"):
            report.missing(ASYNCHRONOUS_DCP, f"torch {torch.__version__} has none")
        pause, thread = report.interleave(ROUNDS, bench.pause_of_penstock, bench.pause_of_a_thread)
        report.figure("longest pause of the interpreter meanwhile", pause, unit="s", peer=thread, peer_name="torch.save on a thread")
