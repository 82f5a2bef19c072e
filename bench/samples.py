"""Measures samples from the store through penstock.data, next to other clients and to a bare program that only moves the bytes.

Client and store share the machine. The connections are TCP, as to a store on another machine; separate rows have the figures of
the store's Unix socket. There is no training: the figures are those of the loader alone.
"""
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import report as reporting
from store_get import Address

sys.path.insert(0, str(reporting.TOP / "tests" / "system"))
from harness.s3_wire import EMPTY, Wire  # noqa: E402

BATCH = 256
SIZE = 3073  # a record of CIFAR-10
OBJECTS, RECORDS = 20000, 200000
LARGE, LARGE_SIZE = 3000, 100_000  # objects of 100 kB
BLOCK = 256  # records that the loader reads in one request
AHEAD = 64  # MiB that each of two threads keeps: the loader has 128 in flight
ROUNDS, SECONDS = 5, 3
KEYS = {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench-secret", "AWS_EC2_METADATA_DISABLED": "true"}

OURS = f"""
import random, sys, time
from penstock.data import Dataset, Loader
url, what, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
data = Dataset(url, "objects") if what in ("objects", "large") else Dataset(url, "records", record_size={SIZE})
random.seed(7)
def batches():
    while True:
        if what in ("objects", "large", "random"):
            yield data.__getitems__([random.randrange(len(data)) for _ in range({BATCH})])
        else:
            yield from Loader(data, {BATCH}, shuffle=what)
all, n = batches(), 0
next(all)
begin = time.perf_counter()
while time.perf_counter() - begin < seconds:
    n += len(next(all))
print(n / (time.perf_counter() - begin))
"""

# Peers for the objects: their code before the loop, and the code that reads one batch of keys.
# Libraries of peers may abort while Python exits, so the program ends by os._exit() after its measurement.
PEER = f"""
import os, random, sys, time
objects, seconds, endpoint = int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
SETUP
def batch():
    keys = [f"objects/{{random.randrange(objects):06d}}" for _ in range({BATCH})]
    READ
batch()
n, begin = 0, time.perf_counter()
while time.perf_counter() - begin < seconds:
    batch()
    n += {BATCH}
print(n / (time.perf_counter() - begin), flush=True)
os._exit(0)
"""

BOTO3 = """
import boto3
s3 = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")
def get(key):
    return s3.get_object(Bucket="bench", Key=key)["Body"].read()
"""

# boto3 in __getitem__ of a data set, read by a torch DataLoader with a number of workers.
WORKERS = """
import torch
class Objects(torch.utils.data.Dataset):
    def __len__(self):
        return 1 << 40
    def __getitem__(self, i):
        return get(f"objects/{random.randrange(objects):06d}")
batches = iter(torch.utils.data.DataLoader(Objects(), 256, num_workers=COUNT, collate_fn=list, sampler=range(1 << 30)))
"""

PEERS = {
    "boto3": (BOTO3, "[get(key) for key in keys]"),
    "boto3, 2 workers": (BOTO3 + WORKERS.replace("COUNT", "2"), "next(batches)"),
    "boto3, 4 workers": (BOTO3 + WORKERS.replace("COUNT", "4"), "next(batches)"),
    "s3torchconnector": (
        """
from s3torchconnector import S3MapDataset, S3ClientConfig
config = S3ClientConfig(force_path_style=True)
data = S3MapDataset.from_prefix("s3://bench/objects/", region="us-east-1", endpoint=endpoint, transform=lambda o: o.read(), s3client_config=config)
""",
        "[data[int(key[-6:])] for key in keys]",
    ),
    "s3fs": ("import s3fs\nfs = s3fs.S3FileSystem(endpoint_url=endpoint)", 'fs.cat(["bench/" + key for key in keys])'),
    "obstore": (
        """
import asyncio
from obstore.store import S3Store
store = S3Store("bench", endpoint=endpoint, region="us-east-1", client_options={"allow_http": True})
async def get(key):
    return await (await store.get_async(key)).bytes_async()
async def get_all(keys):
    return await asyncio.gather(*map(get, keys))
""",
        "asyncio.run(get_all(keys))",
    ),
}


def python_package(report):
    """Returns the directory of the Python package, or None after reporting the package as missing."""
    package = reporting.binary().parent / "python"
    if (package / "penstock" / "data.py").exists():
        return package
    report.missing("the Python package", "it is not built")
    return None


def in_memory():
    """Returns a temporary directory, in memory if there is a /dev/shm."""
    return tempfile.TemporaryDirectory(prefix="penstock-bench-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)


def environment(folder, endpoint):
    """Returns the environment of programs that use the store: its address and keys, and a home of their own."""
    own = {"PATH": os.environ["PATH"], "HOME": str(folder), "PENSTOCK_HOME": str(folder / "home"), "PYTHONWARNINGS": "ignore"}
    return own | KEYS | {"AWS_ENDPOINT_URL": endpoint, "S3_ENDPOINT_URL": endpoint, "AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "us-east-1"}


def number(python, script, *arguments, env, patience=None):
    """Returns the number that a program prints last. `patience` is the program's timeout in seconds."""
    out = subprocess.run([python, "-c", script, *map(str, arguments)], env=env, check=False, capture_output=True, text=True, timeout=patience)
    if out.returncode:
        raise RuntimeError(f"it ended with {out.returncode}: {out.stderr[-2000:]}")
    return float(out.stdout.splitlines()[-1])


def stop(process):
    process.send_signal(signal.SIGTERM)
    process.wait(30)


def fill(folder, endpoint, objects, records):
    """Uploads the same bytes twice, as one object per sample and as one object of records, and uploads large objects."""
    source = folder / "objects"
    source.mkdir()
    for i in range(objects):
        (source / f"{i:06d}").write_bytes(os.urandom(SIZE))
    large = folder / "large"
    large.mkdir()
    for i in range(objects * LARGE // OBJECTS):
        (large / f"{i:06d}").write_bytes(os.urandom(LARGE_SIZE))
    with open(folder / "records", "wb") as file:
        for _ in range(0, records, 1000):
            file.write(os.urandom(SIZE * 1000))
    env = environment(folder, endpoint)
    for arguments in (["mb", "s3://bench"], ["cp", "-r", "-q", source, large, "s3://bench/"], ["cp", "-q", folder / "records", "s3://bench/records"]):
        subprocess.run([reporting.binary(), *arguments], env=env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def bare(program, folder, endpoint, seconds, paths, size=SIZE, keep=()):
    """
    Returns the requests per second that bare_reads.c reaches with GETs of `paths`. A path may be
    followed by a range: the numbers of its first and its last record of `size` bytes. `keep` is
    empty, or has one number: the MiB of memory that each thread fills with replies before it reuses
    the memory.
    """
    wire = Wire(Address(endpoint))
    requests = folder / "requests"
    with open(requests, "w") as file:
        for path, *records in paths:
            headers = {"range": f"bytes={records[0] * size}-{(records[1] + 1) * size - 1}"} if records else {}
            headers = wire.sign("GET", path, "", headers, EMPTY)
            file.write(f"GET {path} HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in headers.items()) + "\r\n")
    out = subprocess.run([program, endpoint.rsplit(":", 1)[1], requests, str(seconds), *map(str, keep)], check=True, stdout=subprocess.PIPE, text=True).stdout
    return float(out)


def main(report):
    package = python_package(report)
    if not package:
        return
    python, seconds = "/usr/bin/python3", report.size(SECONDS, 0.3)
    objects, records = report.size(OBJECTS, 600), report.size(RECORDS, 20000)
    peers = reporting.bench_python()
    if not peers:
        report.missing(", ".join(PEERS), "tools/bench-python installs them")
    with in_memory() as name:
        folder = Path(name)
        program = report.compiled("bare_reads", folder)
        if not program:
            return
        store, endpoint = reporting.serve(folder / "store")
        fill(folder, endpoint, objects, records)

        def ours(what, singly=False):
            url = "s3://bench/records" if what not in ("objects", "large") else f"s3://bench/{what}/"
            # With `singly`, each sample takes a GET of its own, as with stores other than
            # penstock's.
            env = {"PYTHONPATH": str(package), "PENSTOCK_READ_MANY": "no" if singly else "yes"}
            return lambda: number(python, OURS, url, what, seconds, env=environment(folder, endpoint) | env)

        figures = report.interleave(ROUNDS, ours("objects"), ours("objects", singly=True))
        report.figure("objects of 3 kB, 64 in a request, over the Unix socket", figures[0], unit="samples/s")
        report.figure("objects of 3 kB, a GET for each, over the Unix socket", figures[1], unit="samples/s")
        stop(store)
        # A store that listens on all addresses has no Unix socket.
        store, endpoint = reporting.serve(folder / "store", "0.0.0.0:0")
        keys = [(f"/bench/objects/{key:06d}",) for key in random.sample(range(objects), min(objects, 2000))]
        calls = [ours("objects", singly=True), lambda: bare(program, folder, endpoint, seconds, keys), ours("objects")]
        for setup, read in PEERS.values() if peers else ():
            script = PEER.replace("SETUP", setup).replace("READ", read)
            calls.append(lambda script=script: number(peers, script, "", objects, seconds, endpoint, env=environment(folder, endpoint)))
        figures = report.interleave(ROUNDS, *calls)
        what = "objects of 3 kB, a GET for each"
        report.ratio(what, figures[0], figures[1], at_least=0.6, unit="samples/s", peer_name="bare requests")
        for peer, figure in zip(PEERS, figures[3:]):
            report.ratio(what, figures[0], figure, at_least=5, unit="samples/s", peer_name=peer)
        report.limit(what, figures[0], at_least=40000, unit="samples/s")
        report.limit("objects of 3 kB, 64 in a request", figures[2], at_least=150000, unit="samples/s")
        paths = [(f"/bench/large/{key:06d}",) for key in range(objects * LARGE // OBJECTS)]
        figures = report.interleave(ROUNDS, ours("large"), lambda: bare(program, folder, endpoint, seconds, paths, keep=[AHEAD]))
        report.ratio("objects of 100 kB", figures[0], figures[1], at_least=0.6, unit="samples/s", peer_name="bare requests")
        report.limit("objects of 100 kB", figures[0], at_least=10000, unit="samples/s")
        one = [("/bench/records", at, at) for at in random.sample(range(records), 2000)]
        many = [("/bench/records", at, at + BLOCK - 1) for at in range(0, records - BLOCK, BLOCK)]
        figures = report.interleave(
            ROUNDS, ours("window"), ours("block"), lambda: BLOCK * bare(program, folder, endpoint, seconds, many, keep=[AHEAD]),
            ours("random", singly=True), lambda: bare(program, folder, endpoint, seconds, one), ours("random"),
        )  # fmt: skip
        floor = {"unit": "samples/s", "peer_name": "bare requests"}
        report.figure("records of 3 kB, window shuffle", figures[0], peer=figures[2], **floor)
        report.figure("records of 3 kB, block shuffle", figures[1], peer=figures[2], **floor)
        report.ratio("records of 3 kB, at random, a GET for each", figures[3], figures[4], at_least=0.6, **floor)
        report.limit("records of 3 kB, at random, 64 in a request", figures[5], at_least=60000, unit="samples/s")
        report.limit("records of 3 kB, window shuffle", figures[0], at_least=500000, unit="samples/s")
        stop(store)
