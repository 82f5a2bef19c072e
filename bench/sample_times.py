"""Measures how long a training run waits for its data, and the memory of the loader's processes.

Measures the wait for the first batch, after a resume, within an epoch, and while a request hangs. The data sets have an index
made by `penstock dataset index`. The store is on the same machine, and the connections are TCP.
"""
import os
import subprocess
from pathlib import Path

import report as reporting
from large_objects import DelayedPath
from samples import SIZE, environment, in_memory, number, python_package, stop

BATCH = 256
KEYS_FEW, KEYS_MANY = 50_000, 1_000_000
EPOCHS, WORKERS = 20, 4
TRAINED = 20_000  # samples of the epoch that is trained

FIRST = f"""
import sys, time
from penstock.data import Dataset, Loader
begin = time.perf_counter()
next(iter(Loader(Dataset(sys.argv[1]), {BATCH}, shuffle=True)))
print(time.perf_counter() - begin)
"""

# Prints the time of a resume at a random step.
RESUME = f"""
import random, sys, time
from penstock.data import Dataset, Loader
data = Dataset(sys.argv[1])
state = Loader(data, {BATCH}, shuffle=True).state_dict()
state["delivered"] = random.randrange(len(data) - {BATCH})
begin = time.perf_counter()
loader = Loader(data, {BATCH}, shuffle=True)
loader.load_state_dict(state)
next(iter(loader))
print(time.perf_counter() - begin)
"""

# Prints the longest time between two batches.
LONGEST = f"""
import sys, time
from penstock.data import Dataset, Loader
longest, last = 0, time.perf_counter()
for batch in Loader(Dataset(sys.argv[1]), {BATCH}, shuffle=True):
    now = time.perf_counter()
    longest, last = max(longest, now - last), now
print(longest)
"""

# Prints by how much the memory of the loader and its workers grows from the second epoch to the last one. Memory of files, such
# as shared libraries, is not included.
MEMORY = f"""
import os, sys
from penstock.data import Dataset, Loader
def resident():
    pids = [os.getpid(), *map(int, open(f"/proc/self/task/{{os.getpid()}}/children").read().split())]
    return sum(int(line.split()[1]) for pid in pids for line in open(f"/proc/{{pid}}/smaps_rollup") if line.startswith(("Pss_Anon:", "Pss_Shmem:"))) * 1024
loader = Loader(Dataset(sys.argv[1]), {BATCH}, shuffle=True)
batches = loader.dataloader(num_workers={WORKERS}, persistent_workers=True, multiprocessing_context="fork")
early = 0
for epoch in range(int(sys.argv[2])):
    for i, batch in enumerate(batches):
        if i == len(loader) // 2:
            now = resident()  # workers use the most memory in mid-epoch
    early = now if epoch == 1 else early
print(now - early)
"""

TRAIN = f"""
import sys, time
import torch
from penstock.data import Dataset, Loader
torch.manual_seed(7)
model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 32, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Conv2d(32, 64, 3, padding=1), torch.nn.ReLU(),
    torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(), torch.nn.Linear(1024, 10),
)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
loader = Loader(Dataset(sys.argv[1], "records", record_size={SIZE}), {BATCH}, shuffle="window")
begin = time.perf_counter()
for batch in loader:
    batch = torch.from_numpy(batch)
    images = batch[:, 1:].reshape(-1, 3, 32, 32).float() / 255
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(images), batch[:, 0].long() % 10).backward()
    optimizer.step()
print(time.perf_counter() - begin)
"""


def main(report):
    package = python_package(report)
    if not package:
        return
    with in_memory() as name:
        folder = Path(name)
        store, endpoint = reporting.serve(folder / "store", "0.0.0.0:0", "relaxed")
        env = environment(folder, endpoint)

        def penstock(*arguments):
            subprocess.run([reporting.binary(), *arguments], env=env, check=True, stdout=subprocess.DEVNULL)

        def timed(script, *arguments, **more):
            return number("/usr/bin/python3", script, *arguments, env=env | {"PYTHONPATH": str(package)} | more)

        penstock("mb", "s3://bench")
        sets = {}
        for count in (report.size(KEYS_FEW, 1000), report.size(KEYS_MANY, 3000)):
            source = folder / f"{count}"
            source.mkdir()
            for i in range(count):
                (source / f"{i:07d}").write_bytes(b"%032d" % i)
            sets[count] = f"s3://bench/{count}/"
            penstock("sync", "-q", source, sets[count])
            subprocess.run(["rm", "-r", source], check=True)
            penstock("dataset", "index", sets[count])
        (few, few_url), (many, many_url) = sets.items()
        for count, url, limit in ((few, few_url, 0.05), (many, many_url, 1)):
            report.limit(f"first batch of {count:,} keys", report.interleave(5, lambda url=url: timed(FIRST, url)), at_most=limit, unit="s")
        report.limit(f"resume at a random step, {many:,} keys", report.interleave(9, lambda: timed(RESUME, many_url)), at_most=0.1, unit="s")

        # A round trip of 4 ms, and one GET in 500 hangs for 5 s.
        if program := report.compiled("delay_proxy", folder):
            path = DelayedPath(program, endpoint, (2, 1536, 100, 500, 5000))
            longest = report.interleave(5, lambda: timed(LONGEST, few_url, AWS_ENDPOINT_URL=path.endpoint, PENSTOCK_READ_MANY="no"))
            path.close()
            report.limit("the longest wait for a batch, one GET in 500 hangs for 5 s", longest, at_most=0.5, unit="s")

        # Training takes all processors in both cases: the difference is the processor time of the loader and the store.
        records = folder / "records"
        records.mkdir()
        (records / "data").write_bytes(os.urandom(SIZE * report.size(TRAINED, 2000)))
        penstock("cp", "-q", records / "data", "s3://bench/records/data")
        ours, local = report.interleave(5, lambda: timed(TRAIN, "s3://bench/records/"), lambda: timed(TRAIN, records))
        report.ratio("an epoch of training", ours, local, at_least=1 / 1.02, peer_name="from local files")

        epochs = report.size(EPOCHS, 3)
        growth = timed(MEMORY, many_url, epochs)
        report.limit(f"memory that {WORKERS} workers gain in {epochs} epochs, {many:,} keys", growth, at_most=64 * 2**20, unit="bytes")
        stop(store)
