"""Measures samples in order from shards of several formats. The peers are other readers of each
format, and a bare program that only moves the bytes.

`tools/bench-python` installs the peers. Each peer reads in batches of 256, as its documentation shows, with two workers if it reads
in workers of a torch DataLoader. The readers of MosaicML and litData copy shards to a directory in memory, which is empty at the
start. TensorFlow reads the same files from a directory in memory.
"""
import json
import random
import subprocess
import tempfile
from pathlib import Path

import report as reporting
from samples import AHEAD, bare, environment, in_memory, number, python_package, stop

BATCH, ROUNDS, SECONDS = 256, 5, 3
SIZES = {"3 kB": (3073, 60_000), "100 kB": (100_000, 5_000)}  # bytes of a sample, samples
RANGE = 4 << 20  # bytes that a bare request reads
SHARD = 16 << 20
TRIES = 2  # for a peer that fails, as MosaicML Streaming sometimes does
PATIENCE = 60  # seconds for a program that measures for SECONDS

OURS = f"""
import sys, time
from penstock.data import Dataset, Loader
url, seconds, cache = sys.argv[1], float(sys.argv[2]), sys.argv[3] or None
data = Dataset(url, cache=cache)
if cache:
    for batch in Loader(data, {BATCH}):
        pass
n, begin = 0, time.perf_counter()
while time.perf_counter() - begin < seconds:
    for batch in Loader(data, {BATCH}):
        n += len(batch)
        if time.perf_counter() - begin >= seconds:
            break
print(n / (time.perf_counter() - begin))
"""

COUNT = f"""
def count(make, seconds):
    import time
    n, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        for batch in make():
            n += {BATCH}
            if time.perf_counter() - begin >= seconds:
                break
    print(n / (time.perf_counter() - begin))
"""

WEBDATASET = (
    COUNT
    + f"""
import sys
import torch, webdataset
urls = ["pipe:curl -s '" + url + "'" for url in sys.argv[1].split()]
same = lambda batch: batch
data = webdataset.WebDataset(urls, shardshuffle=False)
count(lambda: torch.utils.data.DataLoader(data, {BATCH}, num_workers=2, collate_fn=same), float(sys.argv[2]))
"""
)

STREAMING = (
    COUNT
    + f"""
import sys, tempfile
import torch, streaming
same = lambda batch: batch
with tempfile.TemporaryDirectory(dir="/dev/shm") as local:
    data = streaming.StreamingDataset(remote=sys.argv[1], local=local, batch_size={BATCH}, shuffle=False, num_canonical_nodes=1)
    count(lambda: torch.utils.data.DataLoader(data, {BATCH}, num_workers=2, collate_fn=same), float(sys.argv[2]))
"""
)

LITDATA = (
    COUNT
    + f"""
import os, sys, tempfile
import litdata
litdata.streaming.downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = True  # else it takes an endpoint with TLS only
same = lambda batch: batch
with tempfile.TemporaryDirectory(dir="/dev/shm") as local:
    options = dict(endpoint_url=os.environ["AWS_ENDPOINT_URL"], region_name="us-east-1")
    data = litdata.StreamingDataset(sys.argv[1], local, shuffle=False, drop_last=False, storage_options=options)
    count(lambda: litdata.StreamingDataLoader(data, batch_size={BATCH}, num_workers=2, collate_fn=same), float(sys.argv[2]))
"""
)

TENSORFLOW = (
    COUNT
    + f"""
import sys
import tensorflow as tf
files = tf.io.gfile.glob(sys.argv[1] + "/*.tfrecord")
fields = {{"bin": tf.io.FixedLenFeature([], tf.string)}}
data = tf.data.TFRecordDataset(files, num_parallel_reads=2).batch({BATCH}, drop_remainder=True)
data = data.map(lambda batch: tf.io.parse_example(batch, fields), num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
count(lambda: data, float(sys.argv[2]))
"""
)

LITDATA_WRITE = """
import sys
from litdata.streaming.writer import BinaryWriter
size, samples, target = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
writer = BinaryWriter(target, chunk_bytes=16 << 20)
for i in range(samples):
    writer[i] = {"bin": i.to_bytes(8, "little") * (size // 8) + bytes(size % 8)}
writer.done()
writer.merge(1)
"""


class Bench:
    def __init__(self, report, package, folder, endpoint):
        self.report, self.package, self.folder, self.endpoint = report, package, folder, endpoint
        self.program = report.compiled("bare_reads", folder)
        self.seconds = report.size(SECONDS, 0.3)
        self.peers = reporting.bench_python()
        self.stuck = set()
        if not self.peers:
            report.missing("webdataset, MosaicML Streaming, litData, TensorFlow", "tools/bench-python installs them")
        self.env = environment(folder, endpoint)

    def penstock(self, *arguments):
        return subprocess.run([reporting.binary(), *map(str, arguments)], env=self.env, check=True, stdout=subprocess.PIPE, text=True).stdout

    def ours(self, url, cache=""):
        env = self.env | {"PYTHONPATH": str(self.package)}
        return lambda: number("/usr/bin/python3", OURS, url, self.seconds, cache, env=env)

    def peer(self, script, name, url):
        def call():
            why = ""
            for _ in range(TRIES if name not in self.stuck else 0):
                try:
                    return number(self.peers, script, url, self.seconds, env=self.env, patience=PATIENCE)
                except subprocess.TimeoutExpired:
                    why = f"it did not end in {PATIENCE} s"
                except RuntimeError as error:
                    why = str(error).strip().splitlines()[-1]
            if why:
                self.stuck.add(name)
                self.report.missing(name, why)
            return 0.0

        return call

    def floor(self, prefix, samples):
        """Returns a function that measures samples per second of bare requests for the bytes of all shards."""
        shards = [shard for shard in json.loads(self.penstock("ls", "--json", "-r", prefix)) if "index" not in shard["key"]]
        size = sum(shard["size"] for shard in shards) / samples  # with the headers of the format
        paths = [(f"/bench/{shard['key']}", at, at + RANGE - 1) for shard in shards for at in range(0, shard["size"] - RANGE + 1, RANGE)]
        return lambda: RANGE / size * bare(self.program, self.folder, self.endpoint, self.seconds, paths, 1, [AHEAD])

    def compare(self, what, samples, size, prefix, script=None, name="", url=None):
        """Adds the rows of a format, which compare it with bare requests and with the peer. Large
        samples must reach 2 GB/s from the store, and 4 GB/s from the cache.
        """
        cache = tempfile.mkdtemp(dir=self.folder)
        calls = [self.ours(prefix), self.floor(prefix, samples), self.ours(prefix, cache)]
        if self.peers and script:
            calls.append(self.peer(script, name, url or prefix))
        ours, floor, cached, *peer = self.report.interleave(ROUNDS, *calls)
        subprocess.run(["rm", "-r", cache], check=True)
        self.report.ratio(what, ours, floor, at_least=0.6, unit="samples/s", peer_name="bare requests")
        if size > 50_000:
            self.report.limit(f"{what}, bytes", ours * size, at_least=2e9, unit="bytes/s")
            self.report.limit(f"{what}, bytes, from the cache", cached * size, at_least=4e9, unit="bytes/s")
        else:
            self.report.figure(f"{what}, from the cache", cached, unit="samples/s")
        if peer and name not in self.stuck:
            self.report.ratio(what, ours, peer[0], at_least=5, unit="samples/s", peer_name=name)


def measure(bench, words, size, samples):
    source = bench.folder / "source"
    source.mkdir()
    for i in range(samples):
        (source / f"{i:06d}.bin").write_bytes(random.randbytes(size))
    for kind in ("tar", "mds", "tfrecord"):
        bench.penstock("pack", "--format", kind, "--shard-size", SHARD, source, f"s3://bench/{kind}-{size}/")
    shards = [shard["key"] for shard in json.loads(bench.penstock("ls", "--json", "-r", f"s3://bench/tar-{size}/")) if shard["key"].endswith(".tar")]
    urls = " ".join(bench.penstock("presign", f"s3://bench/{key}").strip() for key in shards)
    bench.compare(f"tar shards of {words} samples, in order", samples, size, f"s3://bench/tar-{size}/", WEBDATASET, "webdataset", urls)
    bench.compare(f"MDS shards of {words} samples, in order", samples, size, f"s3://bench/mds-{size}/", STREAMING, "MosaicML Streaming")
    local = bench.folder / "tfrecord"
    bench.penstock("cp", "-r", "-q", f"s3://bench/tfrecord-{size}/", local)
    bench.compare(f"TFRecords of {words} samples, in order", samples, size, f"s3://bench/tfrecord-{size}/", TENSORFLOW, "TensorFlow, from local files", local)
    subprocess.run(["rm", "-r", local], check=True)
    if bench.peers:
        number(bench.peers, LITDATA_WRITE + "print(1)", size, samples, bench.folder / "litdata", env=bench.env)
        bench.penstock("cp", "-r", "-q", bench.folder / "litdata", f"s3://bench/litdata-{size}/")
        bench.compare(f"litData chunks of {words} samples, in order", samples, size, f"s3://bench/litdata-{size}/litdata/", LITDATA, "litData")
        subprocess.run(["rm", "-r", bench.folder / "litdata"], check=True)
    subprocess.run(["rm", "-r", source], check=True)


def main(report):
    package = python_package(report)
    if not package:
        return
    with in_memory() as name:
        store, endpoint = reporting.serve(Path(name) / "store", "0.0.0.0:0", "relaxed")
        bench = Bench(report, package, Path(name), endpoint)
        bench.penstock("mb", "s3://bench")
        for words, (size, samples) in SIZES.items():
            measure(bench, words, size, report.size(samples, samples // 10))
        stop(store)
