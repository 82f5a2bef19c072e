"""The cache of data sets on disk: shared use by processes, kills, a full disk, damage. The store is
`penstock serve`."""
import io
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from harness.program import TOP, binary, environment

PACKAGE = next(path for path in (TOP / "build" / "python", binary().parent / "python") if (path / "penstock" / "_native.abi3.so").exists())
sys.path.insert(0, str(PACKAGE))
from penstock.data import Dataset, DatasetChanged, DatasetError  # noqa: E402

ROWS = np.random.default_rng(1).integers(0, 2**62, (3000, 256), dtype="i8")  # 6 MB, 2 KiB each
SIZE = ROWS.nbytes + 2 * 128  # two shards
# Reads all rows in its own order; prints each position, and at the end "good" if the rows were
# right.
READER = """
import os, random, sys
import numpy as np
from penstock.data import Dataset

url, cache, seed, expected = sys.argv[1:]
rows = np.load(expected)
data = Dataset(url, cache=cache, threads=4)
order = list(range(len(rows)))
random.Random(int(seed)).shuffle(order)
good = True
for at in range(0, len(order), 100):
    batch = order[at : at + 100]
    good = good and np.array_equal(data.__getitems__(batch), rows[batch])
    print(at, flush=True)
print("good" if good else "wrong", flush=True)
"""


@pytest.fixture
def proxy(store, fault_proxy, monkeypatch):
    """A proxy in front of a store, which has ROWS as two shards in s3://data/a/."""
    for name, value in (store.env | {"AWS_ENDPOINT_URL": fault_proxy.url}).items():
        monkeypatch.setenv(name, value)
    store.client.create_bucket(Bucket="data")
    put(store, ROWS)
    return fault_proxy


def put(store, rows):
    for i, part in enumerate((rows[:1000], rows[1000:])):
        out = io.BytesIO()
        np.save(out, part)
        store.client.put_object(Bucket="data", Key=f"a/{i}.npy", Body=out.getvalue())


@pytest.fixture
def reader(proxy, tmp_path):
    """reader(seed): a process that reads all rows."""
    (tmp_path / "reader.py").write_text(READER)
    np.save(tmp_path / "rows.npy", ROWS)
    known = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    started = []

    def start(seed, cache=tmp_path / "cache"):
        command = [sys.executable, tmp_path / "reader.py", "s3://data/a/", cache, str(seed), tmp_path / "rows.npy"]
        started.append(subprocess.Popen(command, env=environment() | known | {"PYTHONPATH": str(PACKAGE)}, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True))  # fmt: skip
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def finish(process):
    """Waits for the process. Returns its last line of output (standard error if there is none), and
    standard error."""
    out, err = process.communicate(timeout=120)
    return (out.splitlines() or [err])[-1], err


def sent(proxy, since=0):
    return sum(request.sent for request in proxy.seen()[since:])


def files(cache):
    return [path for path in cache.glob("penstock-cache-*/??/*") if path.is_file()]


def test_what_was_read_once_takes_no_request(proxy, tmp_path):
    data = Dataset("s3://data/a/", cache=tmp_path)
    first = [data.__getitems__(range(at, at + 100)).tolist() for at in range(0, 3000, 100)]
    again = Dataset("s3://data/a/", cache=str(tmp_path))
    before = len(proxy.seen())

    rows = again.__getitems__(range(3000))

    assert np.array_equal(rows, ROWS) and sum(first, []) == ROWS.tolist() and len(proxy.seen()) == before
    assert all(path.stat().st_mode & 0o077 == 0 for path in files(tmp_path)) and len(files(tmp_path)) == 2


# Ranks of a node start with the same blocks, and wait for each other.
def test_processes_fetch_each_byte_once_between_them(proxy, reader):
    processes = [reader(seed) for seed in range(3)]

    assert [finish(process)[0] for process in processes] == ["good"] * 3
    assert SIZE <= sent(proxy) < SIZE + 100_000


def test_threads_and_forked_children_share_what_was_fetched(proxy, tmp_path):
    data = Dataset("s3://data/a/", cache=tmp_path, threads=8)
    data.__getitems__(range(0, 1000, 7))
    children = []
    for seed in range(3):
        children.append(os.fork())
        if children[-1] == 0:
            order = random.Random(seed).sample(range(3000), 3000)
            os._exit(0 if all(np.array_equal(data.__getitems__(order[at : at + 300]), ROWS[order[at : at + 300]]) for at in range(0, 3000, 300)) else 1)

    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * 3
    assert np.array_equal(data.__getitems__(range(3000)), ROWS)
    assert sent(proxy) < SIZE + 200_000


# Each kill comes at another moment, while two other readers continue: they fetch the blocks that
# the killed reader had claimed.
def test_kills_leave_a_cache_that_is_right(proxy, reader):
    alive = [reader(seed) for seed in (100, 101)]
    for i in range(12):
        victim = reader(i)
        for _ in range(i % 6):
            victim.stdout.readline()
        victim.send_signal(signal.SIGKILL)

    assert [finish(process)[0] for process in alive] == ["good"] * 2
    before = len(proxy.seen())
    assert finish(reader(200))[0] == "good"
    assert sent(proxy, before) < 100_000


def test_a_damaged_file_is_fetched_again(proxy, tmp_path):
    Dataset("s3://data/a/", cache=tmp_path).__getitems__(range(3000))
    for path in files(tmp_path):
        with open(path, "r+b") as file:
            file.seek(300_000)
            file.write(b"damage")
    again = Dataset("s3://data/a/", cache=tmp_path)
    before = len(proxy.seen())

    rows = again.__getitems__(range(3000))

    assert np.array_equal(rows, ROWS) and 0 < sent(proxy, before) < 2 * 262144 + 50_000
    assert np.array_equal(Dataset("s3://data/a/", cache=tmp_path).__getitems__(range(3000)), ROWS)


def test_another_version_of_a_shard_has_another_file(proxy, store, tmp_path):
    old = Dataset("s3://data/a/", cache=tmp_path)
    old.__getitems__(range(1500))
    put(store, -ROWS)

    assert np.array_equal(Dataset("s3://data/a/", cache=tmp_path).__getitems__(range(3000)), -ROWS)
    assert np.array_equal(old.__getitems__(range(1000)), ROWS[:1000])
    with pytest.raises(DatasetChanged, match="1.npy"):
        old.__getitems__(range(2900, 3000))


def test_a_store_that_fails_is_an_error_with_the_shard(proxy, tmp_path):
    data = Dataset("s3://data/a/", cache=tmp_path)
    proxy.fault(method="GET", path="/1.npy$", times=10**6, status=403)
    proxy.fault(method="POST", times=10**6, status=403)

    with pytest.raises(DatasetError, match="1.npy") as raised:
        data.__getitems__(range(2000, 2100))

    assert raised.value.code == "permission denied" and np.array_equal(data.__getitems__(range(100)), ROWS[:100])


def test_small_objects_are_cached_whole(proxy, store, tmp_path):
    for i in range(40):
        store.client.put_object(Bucket="data", Key=f"n/{i:02}", Body=b"" if i == 3 else str(i).encode() * i)
    expected = [b"" if i == 3 else str(i).encode() * i for i in range(40)]
    first = Dataset("s3://data/n/", "objects", cache=tmp_path).__getitems__(range(40))
    again = Dataset("s3://data/n/", "objects", cache=tmp_path)
    before = len(proxy.seen())

    got = [bytes(sample) for sample in again.__getitems__([39, 0, 3, 39, *range(40)])]

    assert got[4:] == [bytes(sample) for sample in first] == expected and got[:4] == [expected[i] for i in (39, 0, 3, 39)]
    assert len(proxy.seen()) == before


def test_a_full_disk_is_one_line_and_no_error(proxy, reader, tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", small], capture_output=True).returncode:
        pytest.skip("mounting needs root")
    try:
        (small / "other").write_bytes(b"x" * 1_600_000)
        word, err = finish(reader(1, cache=small))
        left = files(small)
    finally:
        subprocess.run(["umount", small], check=True)

    assert word == "good" and err.count("\n") == 1 and str(small) in err and left


# The limit is below the size of the data set: the oldest shards are removed, and everything can
# still be read.
def test_the_limit_holds(proxy, store, tmp_path):
    for i in range(30):
        store.client.put_object(Bucket="data", Key=f"r/{i:02}", Body=bytes([i]) * 1_000_000)
    data = Dataset("s3://data/r/", "records", record_size=1000, cache=tmp_path, cache_size=16 << 20)

    for epoch in range(2):
        for i in range(30):
            assert data[1000 * i + 500].tobytes() == bytes([i]) * 1000 and len(data.__getitems__(range(1000 * i, 1000 * i + 1000))) == 1000
            assert sum(path.stat().st_blocks for path in files(tmp_path)) * 512 <= 16 << 20
    with pytest.raises(DatasetError, match="16 MiB"):
        Dataset("s3://data/r/", cache=tmp_path, cache_size=1000)


# If a process was stopped in the middle of a block, a thread that waits for the block reads without
# the cache after a while.
@pytest.mark.long
def test_a_stopped_process_does_not_stop_others(proxy, reader):
    held = proxy.fault(method="GET", path="/0.npy$", when=lambda request: "range" not in request.headers, hold="reply")
    stopped = reader(1)
    held.wait()
    stopped.send_signal(signal.SIGSTOP)
    held.stop()
    start = time.monotonic()

    assert finish(reader(1))[0] == "good" and time.monotonic() - start > 20
