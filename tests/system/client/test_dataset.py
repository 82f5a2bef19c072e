"""penstock.data reads samples from `penstock serve` and moto, despite faults, and in forked
workers."""
import gzip
import io
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from harness import expiring
from harness.fault_proxy import s3_error
from harness.program import TOP, binary, environment
from harness.progress import WAITING
from harness.waiting import wait_for

# Python runs without sanitizers even if the program is built with them.
PACKAGE = next(path for path in (TOP / "build" / "python", binary().parent / "python") if (path / "penstock" / "_native.abi3.so").exists())
sys.path.insert(0, str(PACKAGE))
from penstock.data import Dataset, DatasetChanged, DatasetDamaged, DatasetError, Loader  # noqa: E402

ODD = {"d/a b+c&ü%": b"one", "d/100%25/ x.jpg": b"", "d/日本.jpg": b"three" * 5000, "d/z?q=1#f;'\"": b"four"}
# Children of a process that has read a set. Child 0 frees the set unused, child 1 reads it, child 2
# reads and then frees it, and the others read it with a loader, whose threads read ahead. Then the
# parent reads again.
FORKS = """
import os, sys
from penstock.data import Dataset, Loader

data = Dataset(sys.argv[1])
expected = [bytes(sample) for sample in data.__getitems__(range(len(data)))]
pids = []
for part in range(32):
    pids.append(os.fork())
    if pids[-1] == 0:
        if part > 2:
            got = [bytes(sample) for batch in Loader(data, 1) for sample in batch]
            os._exit(0 if got == expected else 1)
        good = part == 0 or [bytes(sample) for sample in data.__getitems__(range(len(data)))] == expected
        if part != 1:
            del data
        os._exit(0 if good else 1)
codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
print(codes, [bytes(sample) for sample in data.__getitems__(range(len(data)))] == expected)
"""
WORKERS = """
import json, sys
import torch
from penstock.data import Dataset, Loader

if __name__ == "__main__":
    data = Dataset(sys.argv[1], "objects")
    bytes(data[0])  # a connection that workers must not use
    read = lambda batches: [[int(bytes(sample)) for sample in batch] for batch in batches]
    loaders = [Loader(data, 8, shuffle=True, seed=1) for _ in range(2)]
    forked = [read(loaders[0].dataloader(num_workers=2)) for epoch in range(2)]
    here = [read(loaders[1]) for epoch in range(2)]
    print(json.dumps([forked, here, read(torch.utils.data.DataLoader(data, batch_size=8, num_workers=2, collate_fn=list))]))
"""


def use(monkeypatch, env):
    for name, value in env.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def bucket(store, monkeypatch):
    """Returns a client of the store. The bucket "data" exists; the environment has the store's keys and address."""
    use(monkeypatch, store.env)
    store.client.create_bucket(Bucket="data")
    return store.client


@pytest.fixture(params=["penstock", "moto", *(pytest.param(name, marks=pytest.mark.long) for name in ("radosgw", "minio"))])
def any_bucket(request, monkeypatch):
    """Like `bucket`, in each store."""
    if request.param == "penstock":
        return request.getfixturevalue("bucket")
    if request.param != "moto":
        store = request.getfixturevalue(request.param)
        use(monkeypatch, {"AWS_ACCESS_KEY_ID": store.access_key, "AWS_SECRET_ACCESS_KEY": store.secret_key, "AWS_ENDPOINT_URL": store.endpoint})
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        store.remove_bucket("data")
        store.client.create_bucket(Bucket="data")
        return store.client
    import boto3

    endpoint = request.getfixturevalue("moto")
    keys = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "not-a-secret", "AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "us-east-1"}
    use(monkeypatch, keys | {"AWS_ENDPOINT_URL": endpoint})
    client = boto3.client("s3", endpoint_url=endpoint)
    client.create_bucket(Bucket="data")
    return client


@pytest.fixture
def proxy(bucket, fault_proxy, monkeypatch):
    """A proxy between the data set and the bucket."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", fault_proxy.url)
    return fault_proxy


def put(client, objects):
    for key, content in objects.items():
        client.put_object(Bucket="data", Key=key, Body=content)


def npy(array):
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def numbered(client, n):
    """Stores n objects, each with its number as content."""
    put(client, {f"n/{i:03}": str(i).encode() for i in range(n)})


def numbers(batches):
    return [int(bytes(sample)) for batch in batches for sample in batch]


def child(script, *arguments, **env):
    """Runs a Python script that can import the package; returns the script's output."""
    known = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    done = subprocess.run(
        [sys.executable, script, *arguments], env=environment() | known | {"PYTHONPATH": str(PACKAGE)} | env,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def script(tmp_path, text):
    path = tmp_path / "script.py"
    path.write_text(text)
    return str(path)


# --- names and contents ---


def assert_odd(data):
    """The samples are the objects ODD, whose keys are returned in byte order."""
    names = sorted(ODD, key=lambda key: key.encode())
    assert ["d/" + data.place(i)[0] for i in range(len(data))] == names
    assert [bytes(sample) for sample in data.__getitems__([3, 0, 2, 1, 0])] == [ODD[names[i]] for i in (3, 0, 2, 1, 0)]
    return names


@pytest.mark.parametrize("url", ["s3://data/d/", "s3://data/d"])
def test_objects_with_any_key_are_samples(any_bucket, url):
    put(any_bucket, ODD | {"d/.hidden": b"x", "d/folder/": b"", "other": b"x", "da": b"x"})

    data = Dataset(url, "objects")

    names = assert_odd(data)
    for i, name in enumerate(names):
        if ODD[name]:
            assert bytes(Dataset("s3://data/" + name, "objects")[0]) == ODD[name] and data.place(i)[2] == len(ODD[name])


def test_rows_and_records_are_ranges_of_objects(any_bucket):
    array = np.arange(3000, dtype="f4").reshape(1000, 3)
    put(any_bucket, {"a/0.npy": npy(array[:400]), "a/1.npy": npy(array[400:]), "r/0": b"HEAD" + array.tobytes()})

    rows, records = Dataset("s3://data/a/"), Dataset("s3://data/r/0", "records", record_size=12, header=4)
    epoch = list(Loader(rows, 64, shuffle="window", block=16, window=4))

    assert rows.format == "npy" and np.array_equal(rows.__getitems__([999, 0, 400, 399]), array[[999, 0, 400, 399]])
    assert sorted(row[0] for batch in epoch for row in batch) == list(range(0, 3000, 3))
    assert records[17].tobytes() == array[17].tobytes() and records.place(17) == ("0", 4 + 12 * 17, 12)


# MNIST is stored in this form. To find the rows, the reader needs only the size at the end of the
# gzip file and the first bytes.
def test_rows_of_a_gzipped_array_take_one_request(proxy, bucket):
    rows = np.random.default_rng(1).integers(0, 256, (1000, 28, 28), dtype="u1")
    put(bucket, {"train-images-idx3-ubyte.gz": gzip.compress(bytes([0, 0, 8, 3]) + np.array(rows.shape, ">i4").tobytes() + rows.tobytes())})
    data = Dataset("s3://data/train-images-idx3-ubyte.gz")
    before = len(proxy.seen())

    got = data.__getitems__([999, 0, 500])

    assert data.format == "idx" and len(data) == 1000 and np.array_equal(got, rows[[999, 0, 500]])
    assert np.array_equal(data.__getitems__(range(1000)), rows) and len(proxy.seen()) == before + 1


def test_a_region_and_an_endpoint_may_be_given(store, bucket, monkeypatch):
    numbered(bucket, 3)
    monkeypatch.delenv("AWS_ENDPOINT_URL"), monkeypatch.delenv("AWS_REGION"), monkeypatch.delenv("AWS_DEFAULT_REGION")

    data = Dataset("s3://data/n/", endpoint_url=store.endpoint, region="us-east-1")

    assert numbers([pickle.loads(pickle.dumps(data))]) == [0, 1, 2]


def test_nothing_is_not_found(bucket):
    numbered(bucket, 1)

    for url in ("s3://data/none", "s3://data/none/", "s3://missing-bucket/", "s3://data/n/00"):
        with pytest.raises(DatasetError, match=url.split("/")[2]) as raised:
            Dataset(url)
        assert raised.value.code == "not found"


# --- Google's store ---


@pytest.fixture
def google(gcs, who, monkeypatch):
    """Google's store, with each kind of identity in the environment."""
    use(monkeypatch, who)
    return gcs


def put_google(gcs, objects):
    for key, content in objects.items():
        gcs.put("train", key, content)


@pytest.mark.parametrize("url", ["gs://train/d/", "gs://train/d"])
def test_objects_of_google_with_any_key_are_samples(google, url):
    put_google(google, ODD | {"d/.hidden": b"x", "d/folder/": b"", "other": b"x", "da": b"x"})

    data = Dataset(url, "objects")

    names = assert_odd(data)
    assert bytes(Dataset("gs://train/" + names[0], "objects")[0]) == ODD[names[0]]
    assert not any(name.startswith("x-amz-") for request in google.requests for name in request["headers"])


def test_a_set_of_google_is_detected_read_and_continued_in_mid_epoch(google):
    rows = np.arange(3000, dtype="f4").reshape(1000, 3)
    put_google(google, {"a/0.npy": npy(rows[:400]), "a/1.npy": npy(rows[400:])})
    data = Dataset("gs://train/a/")
    loader, again = (Loader(data, 64, shuffle="window", block=16, window=4, seed=5) for _ in range(2))

    whole = [batch.tolist() for batch in loader]
    for _ in zip(range(5), loader):
        pass
    again.load_state_dict(loader.state_dict())
    rest = [batch.tolist() for batch in again]

    assert data.format == "npy" and np.array_equal(data.__getitems__([999, 0, 400, 399]), rows[[999, 0, 400, 399]])
    assert sorted(row for batch in whole for row in batch) == rows.tolist() and loader.epoch == again.epoch - 1 == 1
    loader.set_epoch(1)
    assert len(rest) == 11 and rest == [batch.tolist() for batch in loader][5:]


# The index has the names of the shards and their versions, so that nothing is listed.
def test_a_set_of_google_with_an_index_is_opened_with_it(gcs, penstock, monkeypatch):
    use(monkeypatch, gcs.env)
    put_google(gcs, {f"n/{i:03}": str(i).encode() for i in range(30)})
    penstock.run("dataset", "index", "gs://train/n/", env=gcs.env).ok()
    before = len(gcs.requests)

    data = Dataset("gs://train/n/")

    assert len(data) == 30 and {request["path"] for request in gcs.requests[before:]} == {"/train/n/.penstock-index"}
    assert sorted(numbers(Loader(data, 7, shuffle=True))) == list(range(30))
    put_google(gcs, {"n/007": b"99"})
    with pytest.raises(DatasetChanged, match="n/007|'007'"):
        data[7]


def test_a_set_of_google_that_is_missing_or_refused_is_named(gcs, monkeypatch):
    put_google(gcs, {"n/0": b"0"})
    use(monkeypatch, gcs.env)

    for url in ("gs://train/none/", "gs://missing/n/"):
        with pytest.raises(DatasetError, match=url.split("/")[2]) as raised:
            Dataset(url)
        assert raised.value.code == "not found"
    gcs.guarded = True
    with pytest.raises(DatasetError) as raised:
        Dataset("gs://train/n/")
    assert raised.value.code == "permission denied"


# --- credentials ---


@pytest.fixture
def ending(monkeypatch, tmp_path):
    """ending(seconds, more=0): a store of 60 objects. A process, keys.sh, prints the keys, which expire after some seconds; the store accepts them
    for `more` seconds longer."""
    with expiring.ExpiringStore() as running:
        for i in range(60):
            running.put(f"data/n/{i:03}", str(i).encode())

        def start(seconds, more=0):
            config, source = tmp_path / "config", tmp_path / "keys.sh"
            source.write_text(f"exec {sys.executable} {expiring.__file__} keys {seconds} {more}\n")
            config.write_text(f"[default]\ncredential_process = /bin/sh {source}\n")
            use(monkeypatch, {"AWS_CONFIG_FILE": str(config), "AWS_ENDPOINT_URL": running.endpoint, "AWS_REGION": "us-east-1"})
            return running

        yield start


# The store refuses the keys early, as if it had revoked them: new keys are fetched, and no sample
# is lost.
@pytest.mark.parametrize("count, ends", [(None, (2, 6)), (2, (2, 6))])
def test_keys_that_the_store_refuses_in_mid_epoch_are_renewed(ending, count, ends):
    store = ending(3600)
    expected = numbers(Loader(Dataset("s3://data/n/", threads=2), 4, shuffle=True))
    first = set(store.tokens)
    loader = Loader(Dataset("s3://data/n/", threads=2), 4, shuffle=True, ahead=1)
    got = []

    for i, batch in enumerate(loader if count is None else loader.dataloader(num_workers=count)):
        got.append(batch)
        if i in ends:
            store.end()

    assert numbers(got) == expected and loader.epoch == 1
    assert len(first) == 1 and len(store.tokens - first) > len(ends) and store.refused > 0


# The reader waits for new keys even if their source takes longer than five attempts of a request.
def test_keys_of_a_slow_source_are_renewed(ending, tmp_path):
    store = ending(3600)
    loader, got = Loader(Dataset("s3://data/n/", threads=2), 4, ahead=1), []

    for i, batch in enumerate(loader):
        got.append(batch)
        if i == 2:
            source = (tmp_path / "keys.sh").read_text()
            (tmp_path / "keys.sh").write_text("sleep 8\n" + source)
            store.end()

    assert numbers(got) == list(range(60)) and store.refused > 0


# The process says that the keys expire in four seconds, and the store accepts the keys for longer,
# so that the store refuses no request of a slow machine.
def test_keys_are_renewed_before_they_expire_while_a_set_is_read(ending):
    store = ending(4, more=3600)
    loader = Loader(Dataset("s3://data/n/", threads=2), 4, shuffle=True)

    def epoch():
        assert sorted(numbers(loader)) == list(range(60))
        return len(store.tokens) >= 3

    wait_for(epoch, what="three keys")

    assert store.refused == 0


# If the source has no further keys, the training program gets an error. Once there are keys, the
# program resumes at the same batch.
def test_keys_that_are_not_renewed_are_an_error_of_the_epoch(ending, tmp_path):
    store = ending(3600)
    loader = Loader(Dataset("s3://data/n/", threads=2), 4, ahead=1)
    got = []

    with pytest.raises(DatasetError) as raised:
        for batch in loader:
            got.append(batch)
            if len(got) == 3:
                source = (tmp_path / "keys.sh").read_text()
                (tmp_path / "keys.sh").write_text("exit 1\n")
                store.end()
    code, delivered = raised.value.code, loader.state_dict()["delivered"]
    (tmp_path / "keys.sh").write_text(source)
    again = Loader(Dataset("s3://data/n/"), 4)
    again.load_state_dict(loader.state_dict())

    assert code == "permission denied" and delivered == 4 * len(got) < 60
    assert numbers(got) + numbers(again) == list(range(60))



def test_keys_are_only_in_the_environment(store, bucket, monkeypatch):
    numbered(bucket, 2)
    data = Dataset("s3://data/n/")

    assert store.secret_key.encode() not in pickle.dumps(data) and store.access_key.encode() not in pickle.dumps(data)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another-secret-of-a-test")
    for use_it in (lambda: Dataset("s3://data/n/"), lambda: pickle.loads(pickle.dumps(data))):
        with pytest.raises(DatasetError) as raised:
            use_it()
        assert raised.value.code == "permission denied" and "another-secret" not in str(raised.value)
    assert bytes(data[1]) == b"1"


def test_missing_keys_are_named(bucket, monkeypatch):
    numbered(bucket, 1)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID"), monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")

    with pytest.raises(DatasetError, match="AWS_ACCESS_KEY_ID"):
        Dataset("s3://data/n/")


# penstock's own store sends many samples in reply to one request, once it has identified itself;
# another store gets a GET for each sample.
def test_our_store_is_asked_for_many_samples_at_a_time(proxy, bucket):
    numbered(bucket, 200)
    data = Dataset("s3://data/n/")
    data.__getitems__(range(4))
    before = len(proxy.seen())

    got = data.__getitems__(range(200))

    assert [int(bytes(sample)) for sample in got] == list(range(200))
    assert [request.method for request in proxy.seen()[before:]] == ["POST"] * 4


# --- trouble ---


# The store replies 503 to all requests, as a throttled store does, until some requests were sent
# again. The loader waits for the store.
@pytest.mark.parametrize("count", [None, 2])
@pytest.mark.parametrize("many", ["yes", "no"])
def test_an_epoch_goes_on_after_a_store_that_was_busy(proxy, bucket, monkeypatch, many, count):
    monkeypatch.setenv("PENSTOCK_READ_MANY", many)
    numbered(bucket, 60)
    expected = numbers(Loader(Dataset("s3://data/n/"), 4, shuffle=True))
    loader = Loader(Dataset("s3://data/n/", threads=2), 4, shuffle=True, ahead=1)
    got, waited = [], []

    def release(busy):
        try:
            busy.wait(8)
            waited.append(len(got))
        finally:
            busy.stop()

    for i, batch in enumerate(loader if count is None else loader.dataloader(num_workers=count, prefetch_factor=1)):
        got.append(batch)
        if i == 3:
            busy = proxy.fault(times=10**6, status=503, body=s3_error("SlowDown"))
            releaser = threading.Thread(target=release, args=(busy,))
            releaser.start()
    releaser.join()

    assert numbers(got) == expected and loader.epoch == 1
    assert busy.hits >= 8 and 4 <= waited[0] < 15, "the epoch waited for the store"


# A restarted training program, or a worker, may open its set while the store is throttled.
def test_a_set_is_opened_once_the_store_answers(proxy, bucket):
    numbered(bucket, 8)
    busy = proxy.fault(times=12, status=503, body=s3_error("SlowDown"))

    data = Dataset("s3://data/n/")

    assert numbers([data.__getitems__(range(8))]) == list(range(8)) and busy.hits == 12


def test_an_epoch_goes_on_after_a_store_that_was_away(proxy, bucket):
    numbered(bucket, 40)
    got = []

    for i, batch in enumerate(Loader(Dataset("s3://data/n/"), 4, ahead=1)):
        got.append(batch)
        if i == 2:
            proxy.cut_all()
        if i == 4:
            proxy.fault(method="GET|POST", times=5, drop=True)
        if i == 6:
            proxy.fault(method="GET|POST", times=3, cut_after=0)

    assert numbers(got) == list(range(40))


# Half a minute of silence looks like a hang.
def test_a_store_that_is_waited_for_is_named_at_once(proxy, bucket, penstock):
    numbered(bucket, 8)
    proxy.down()
    program = "import sys; from penstock.data import Dataset; print(len(Dataset(sys.argv[1])))"

    env = environment() | {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    python = subprocess.Popen([sys.executable, "-c", program, "s3://data/n/"], env=env | {"PYTHONPATH": str(PACKAGE)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    command = penstock.popen("dataset", "inspect", "s3://data/n/", env=env)
    line = python.stderr.readline()
    command.wait_for_output(f"{WAITING} 127.0.0.1:{proxy.port}")
    proxy.up()

    assert f"{WAITING} 127.0.0.1:{proxy.port}" in line and python.communicate()[0].strip() == "8"
    assert "samples: 8" in command.wait().ok().out


# The store replies with another version of the object, with the whole object, or with fewer bytes
# than requested.
def test_an_object_that_is_replaced_has_changed_and_is_named(bucket):
    array = np.arange(20000, dtype="i8").reshape(2000, 10)
    put(bucket, {"a/one.npy": npy(array)})
    loader = Loader(Dataset("s3://data/a/", threads=1), 10, ahead=1, shuffle=True)
    got = 0

    with pytest.raises(DatasetChanged, match="one.npy.*byte") as raised:
        for batch in loader:
            assert set(np.unique(np.diff(batch))) == {1}
            got += 1
            if got == 3:
                put(bucket, {"a/one.npy": npy(-array)})

    assert raised.value.code == "changed" and 3 <= got < 10 and loader.state_dict()["delivered"] == 10 * got


@pytest.mark.parametrize("whole", [True, False])
def test_an_object_that_is_deleted_is_not_found(bucket, whole):
    put(bucket, {"a/0": b"abcd", "a/1": b"efgh"})
    data = Dataset("s3://data/a/", "objects" if whole else "records", record_size=0 if whole else 2)
    bucket.delete_object(Bucket="data", Key="a/1")

    with pytest.raises(DatasetError, match="a/1|'1'") as raised:
        data.__getitems__(range(len(data)))

    assert raised.value.code == "not found" and bytes(data[0]) == (b"abcd" if whole else b"ab")


def test_damaged_bytes_are_read_again_or_an_error(proxy, bucket):
    for key in ("a/0", "a/1"):
        bucket.put_object(Bucket="data", Key=key, Body=b"x" * 3000, ChecksumAlgorithm="SHA256")
    data = Dataset("s3://data/a/", "objects")

    proxy.fault(method="GET", path="/a/1$", corrupt_at=1500)
    once = bytes(data[1])
    proxy.fault(method="GET", path="/a/1$", corrupt_at=1500, times=10**6)
    with pytest.raises(DatasetDamaged, match="a/1|'1'") as raised:
        data.__getitems__([0, 1])

    assert once == b"x" * 3000 and raised.value.code == "corrupt"


@pytest.mark.filterwarnings("ignore:samples of")
def test_an_epoch_skips_objects_that_are_damaged_changed_or_missing(proxy, bucket, monkeypatch):
    monkeypatch.setenv("PENSTOCK_READ_MANY", "no")  # each object is a GET
    for i in range(40):
        bucket.put_object(Bucket="data", Key=f"n/{i:03}", Body=str(i).encode(), ChecksumAlgorithm="SHA256")
    loader = Loader(Dataset("s3://data/n/"), 8, shuffle=True, on_error="skip")
    bucket.delete_object(Bucket="data", Key="n/007")
    put(bucket, {"n/021": b"99"})
    proxy.fault(method="GET", path="/n/033$", corrupt_at=0, times=10**6)

    got = numbers(loader)

    assert sorted(got) == [i for i in range(40) if i not in (7, 21, 33)] and loader.skipped == {"damaged": 1, "changed": 1, "missing": 1}


# If the epoch skipped refused samples, an outage of the store would skip all of them.
def test_a_store_that_refuses_is_an_error_of_the_epoch(proxy, bucket):
    numbered(bucket, 8)
    loader = Loader(Dataset("s3://data/n/"), 4, on_error="skip")
    proxy.fault(method="GET|POST", path="/data", times=10**6, status=403, body=s3_error("AccessDenied"))

    with pytest.raises(DatasetError) as raised:
        list(loader)

    assert raised.value.code == "permission denied" and sum(loader.skipped.values()) == 0


def test_a_store_that_lost_the_ranges_is_no_danger(proxy, bucket):
    array = np.arange(5000)
    put(bucket, {"a.npy": npy(array)})
    data = Dataset("s3://data/a.npy")

    proxy.fault(method="GET", truncate_to=10)
    short = data.__getitems__(range(100, 200))
    proxy.fault(method="GET", cut_after=10)
    cut = data.__getitems__(range(100, 200))

    assert short.tolist() == cut.tolist() == list(range(100, 200))


class Asked(Exception):
    """Raised by a signal handler."""


@pytest.fixture
def ask(proxy):
    """ask(): from now on the proxy holds all replies, and at the first request a signal arrives,
    whose handler raises Asked. ask.held is the proxy's rule."""
    asked = []

    def handler(number, frame):
        asked.append(time.monotonic())
        raise Asked

    def begin():
        begin.held = held = proxy.fault(method="GET|POST", times=10**6, hold="reply")
        threading.Thread(target=lambda: (held.wait(), os.kill(os.getpid(), signal.SIGUSR1))).start()

    before = signal.signal(signal.SIGUSR1, handler)
    begin.asked = asked
    yield begin
    signal.signal(signal.SIGUSR1, before)


# A training program that gets a request to end must not wait for its store.
def test_a_signal_interrupts_the_wait_for_a_store(ask, bucket):
    numbered(bucket, 40)
    loader = Loader(Dataset("s3://data/n/"), 4, ahead=1)
    got = []

    try:
        for batch in loader:
            got.append(batch)
            if len(got) == 1:
                ask()
    except Asked:
        pass  # the end of the block cancels the requests in flight

    assert len(ask.asked) == 1 and time.monotonic() - ask.asked[0] < 5
    ask.held.stop()
    assert loader.state_dict()["delivered"] == 4 * len(got) < 40
    assert numbers(got) == list(range(4 * len(got))) and numbers(loader) == list(range(40))


def test_a_signal_interrupts_a_read_by_number(ask, bucket):
    numbered(bucket, 3)
    data = Dataset("s3://data/n/")

    ask()
    try:
        data[1]
    except Asked:
        pass

    assert len(ask.asked) == 1 and time.monotonic() - ask.asked[0] < 5
    ask.held.stop()
    assert bytes(data[1]) == b"1"


# --- processes ---


def test_a_set_is_used_and_freed_after_a_fork(bucket, tmp_path):
    numbered(bucket, 20)

    assert child(script(tmp_path, FORKS), "s3://data/n/") == f"{[0] * 32} True\n"


def test_workers_of_torch_read_from_a_store(bucket, tmp_path):
    numbered(bucket, 50)

    forked, here, by_number = json.loads(child(script(tmp_path, WORKERS), "s3://data/n/"))

    assert forked == here and forked[0] != forked[1]
    assert all(sorted(sum(epoch, [])) == list(range(50)) for epoch in forked) and sum(by_number, []) == list(range(50))
