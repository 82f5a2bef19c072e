"""Runs examples/preemptible/cifar10.py, and pauses it at POINT until there is a notice. POINT is
batch:N (before the batch after step N), save:N (in the save of step N, after the data is written,
and before the ZIP file is complete), or empty."""
import os
import sys
import time

sys.path.insert(0, os.environ["EXAMPLE"])
where, _, step = os.environ["POINT"].partition(":")

import training  # noqa: E402
from penstock import _zip  # noqa: E402

train_batch, finish = training.Training.train_batch, _zip.ZipWriter.finish


def stand_still():
    print(f"standing still at {where} {step}", flush=True)
    while not os.path.exists(os.environ["PENSTOCK_PREEMPT_FILE"]):
        time.sleep(0.005)


def held_batch(self):
    if self.step == int(step):
        stand_still()
    train_batch(self)


def held_finish(self):
    if f"step-{int(step):012d}-" in self.saving.path():
        stand_still()
    finish(self)


if where == "batch":
    training.Training.train_batch = held_batch
elif where == "save":
    _zip.ZipWriter.finish = held_finish
sys.argv[0] = os.path.join(os.environ["EXAMPLE"], "cifar10.py")
with open(sys.argv[0], encoding="utf-8") as file:
    exec(compile(file.read(), sys.argv[0], "exec"))
