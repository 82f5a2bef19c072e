"""penstock.open(): objects of `penstock serve` and of Google's protocol, resources of nginx and of a server that fails, as files."""
import io
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import time
import warnings
import zipfile

import numpy as np
import pytest
from harness.fault_proxy import s3_error
from harness.gcs import Gcs
from harness.program import TOP, binary, environment

# Python runs without sanitizers even if the program is built with them.
PACKAGE = next(path for path in (TOP / "build" / "python", binary().parent / "python") if (path / "penstock" / "_native.abi3.so").exists())
sys.path.insert(0, str(PACKAGE))
import penstock  # noqa: E402

LARGE = random.Random(7).randbytes(20_000_000)
LINES = "".join(f"line {i} ü\n" for i in range(50_000))
# Each child continues to read a file that the parent has opened, while data is being read ahead.
FORKS = """
import os, sys
import penstock

file = penstock.open(sys.argv[1])
expected = file.read()
file.seek(0)
for _ in range(20):
    file.read(70_000)
at = file.tell()
pids = []
for part in range(8):
    pids.append(os.fork())
    if pids[-1] == 0:
        if part % 2:
            del file
            os._exit(0)
        os._exit(0 if file.tell() == at and file.read() == expected[at:] and file.pread(10, 5) == expected[5:15] else 1)
codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
print(codes, file.read() == expected[at:])
"""
# A child that leaves its `with` block, at its end or by an exception, does not complete the object.
FORKED_BLOCK = """
import os, sys
import penstock

for mode, part in (("wb", b"part"), ("w", "part")):
    with penstock.open(sys.argv[1], mode) as file:
        file.write(part)
        child = os.fork()
        if child == 0:
            try:
                file.write(part)
                file.flush()
                sys.exit("a child has written")
            except ValueError as error:
                print(error, flush=True)
        else:
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), len(penstock.open(sys.argv[1]).read()), flush=True)
            file.write(part)
    if child == 0:
        sys.exit()
print(len(penstock.open(sys.argv[1]).read()))
"""
# A child that is forked while an object is written does not prevent the end of the upload.
FORKED_WRITER = """
import os, sys, time
import penstock

file = penstock.open(sys.argv[1], "wb")
file.write(b"first" * 1000)
child = os.fork()
if child == 0:
    sys.stdin.read()
    os._exit(0)
file.close()
print(len(penstock.open(sys.argv[1]).read()), flush=True)
os.waitpid(child, 0)
"""


@pytest.fixture
def bucket(store, monkeypatch):
    """Returns a client of the store. The bucket "data" exists; the environment has the store's keys and address."""
    for name, value in store.env.items():
        monkeypatch.setenv(name, value)
    store.client.create_bucket(Bucket="data")
    return store.client


@pytest.fixture
def proxy(bucket, fault_proxy, monkeypatch):
    """A proxy between the files and the bucket."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", fault_proxy.url)
    return fault_proxy


@pytest.fixture(params=["s3", "nginx", "local"])
def place(request, tmp_path):
    """put(name, content) returns the URL of a file in each kind of place."""
    root = tmp_path / "root"
    root.mkdir()
    if request.param == "s3":
        client = request.getfixturevalue("bucket")

        def put(name, content):
            client.put_object(Bucket="data", Key=name, Body=content)
            return f"s3://data/{name}"

        return put
    start = request.getfixturevalue("nginx") if request.param == "nginx" else lambda root: str(root)
    top = start(root)

    def put(name, content):
        (root / name).write_bytes(content)
        return f"{top}/{name}"

    return put


def put(client, **objects):
    for key, content in objects.items():
        client.put_object(Bucket="data", Key=key, Body=content)


# --- reading ---


def test_a_file_is_read_in_every_way(place):
    url = place("large", LARGE)
    with penstock.open(url) as file:
        memory = bytearray(200_000)

        assert isinstance(file, io.BufferedIOBase) and file.readable() and file.seekable() and not file.writable()
        assert (file.size, file.name, file.mode, file.tell()) == (len(LARGE), url, "rb", 0) and file.version
        assert file.read(10) == LARGE[:10] and file.read(100_000) == LARGE[10:100_010] and file.tell() == 100_010
        assert file.seek(-5, io.SEEK_END) == len(LARGE) - 5 and file.read() == LARGE[-5:] and file.read() == file.read(3) == b""
        assert file.seek(5_000_000) == 5_000_000 and file.readinto(memory) == 200_000 and memory == LARGE[5_000_000:5_200_000]
        assert file.read(100) == LARGE[5_200_000:5_200_100] and file.seek(10, io.SEEK_CUR) == 5_200_110
        assert file.pread(7, 3) == LARGE[3:10] and file.pread(100, len(LARGE) - 3) == LARGE[-3:] and file.tell() == 5_200_110
        assert file.read_ranges([(10, 5), (9_000_000, 3), (0, 0), (10, 5)]) == [LARGE[10:15], LARGE[9_000_000:9_000_003], b"", LARGE[10:15]]
        assert file.seek(0) == 0 and file.read() == LARGE
        with pytest.raises(ValueError):
            file.seek(-1)
        with pytest.raises(OSError):
            file.read_ranges([(len(LARGE) - 3, 4)])
        assert file.read_ranges([at, 2] for at in (3, 9)) == [LARGE[3:5], LARGE[9:11]] and file.pread(-1, len(LARGE) - 3) == LARGE[-3:]
        for offset, size in ((-1, 5), (2**64, 5), (0, -5), (0, 2**64)):
            with pytest.raises(ValueError, match="invalid (offset|size)"):
                file.read_ranges([(offset, size)])
        for offset, size in ((-1, 5), (2**64 + 3, 5), (0, -2)):
            with pytest.raises(ValueError, match="invalid (offset|size)"):
                file.pread(size, offset)
    with pytest.raises(ValueError):
        file.read(100_000)
    with pytest.raises(ValueError):
        file.pread(1, 0)
    # A bound method keeps its file open: no other reference to the file exists here.
    assert penstock.open(url).readline(7) == io.BytesIO(LARGE).readline(7) and penstock.open(url).read1(7) == LARGE[:7]
    assert penstock.open(url).peek(7)[:7] == LARGE[:7]


def test_reads_in_a_row_get_every_byte(place):
    url = place("large", LARGE)

    for size in (30_000, 64 << 10, 1_000_000):
        with penstock.open(url, ahead=4 << 20) as file:
            parts = iter(lambda: file.read(size), b"")
            assert b"".join(parts) == LARGE


# Up to version 1.24, NumPy reads from the descriptor of an io.BufferedReader.
def test_arrays_are_loaded_by_numpy(place):
    rows = np.arange(60_000, dtype="f4").reshape(-1, 3)
    packed, one = io.BytesIO(), io.BytesIO()
    np.savez(packed, rows=rows), np.save(one, rows)

    with penstock.open(place("a.npy", one.getvalue())) as file:
        assert np.array_equal(np.load(file), rows)
    with penstock.open(place("a.npz", packed.getvalue())) as file:
        assert np.array_equal(np.load(file)["rows"], rows)
    with penstock.open(place("a.bin", rows.tobytes())) as file:
        assert np.array_equal(np.frombuffer(file.read(), "f4"), rows.ravel())


def test_text_has_lines(place):
    url = place("lines.txt", LINES.encode())

    with penstock.open(url, "r") as text, penstock.open(url) as file:
        assert list(text) == LINES.splitlines(True) and next(file) == b"line 0 \xc3\xbc\n" and len(list(file)) == 49_999
    with penstock.open(url, "r", encoding="latin-1") as text:
        assert text.readline() == "line 0 Ã¼\n"


def test_an_empty_file_has_no_bytes(place):
    with penstock.open(place("empty", b"")) as file:
        assert file.size == 0 and file.read() == b"" and file.readline() == b"" and file.read_ranges([(0, 0)]) == [b""]


def test_an_archive_is_read_in_its_place(place):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for i in range(30):
            archive.writestr(f"{i}.bin", LARGE[i * 50_000 : (i + 1) * 50_000])

    with penstock.open(place("a.zip", packed.getvalue())) as file, zipfile.ZipFile(file) as archive:
        assert archive.read("17.bin") == LARGE[17 * 50_000 : 18 * 50_000] and archive.testzip() is None


def test_random_reads_request_exactly_their_bytes(proxy, bucket):
    put(bucket, large=LARGE)
    file = penstock.open("s3://data/large")
    before = len(proxy.seen())

    for at in (9_000_000, 70_000, 15_000_000):
        file.seek(at)
        assert file.read(100_000) == LARGE[at : at + 100_000]

    assert [request.headers["range"] for request in proxy.seen()[before:]] == [
        f"bytes={at}-{at + 99_999}" for at in (9_000_000, 70_000, 15_000_000)
    ]  # fmt: skip


def test_threads_share_a_file(place):
    file = penstock.open(place("large", LARGE))
    wrong = []

    def read(seed):
        order = random.Random(seed)
        for _ in range(40):
            at, size = order.randrange(len(LARGE)), order.randrange(1, 300_000)
            if file.pread(size, at) != LARGE[at : at + size]:
                wrong.append(at)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not wrong and file.read() == LARGE


def test_a_pickled_file_is_opened_at_its_place(place):
    with penstock.open(place("large", LARGE)) as file:
        file.seek(1234)
        with pickle.loads(pickle.dumps(file)) as again:
            assert again.version == file.version and again.read(100) == LARGE[1234:1334]


def test_what_is_missing_or_refused_is_an_error_of_files(bucket, store, monkeypatch, http_server, tmp_path):
    put(bucket, there=b"x")

    for url in ("s3://data/missing", "s3://no-such-bucket/x", http_server.url + "/missing", str(tmp_path / "missing")):
        with pytest.raises(FileNotFoundError, match="missing|no-such-bucket") as raised:
            penstock.open(url)
        assert isinstance(raised.value, penstock.FileError) and raised.value.code == "not found"
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another-secret-of-a-test")
    with pytest.raises(PermissionError) as raised:
        penstock.open("s3://data/there")
    assert "another-secret" not in str(raised.value)
    for url, mode in (("s3://data/there", "a"), ("s3://data/there", "r+b"), ("s3://data/there", "rU")):
        with pytest.raises(ValueError):
            penstock.open(url, mode)
    for url in ("s3://data", "ftp://host/x", "-", str(tmp_path)):
        with pytest.raises(OSError):
            penstock.open(url)


@pytest.mark.parametrize("kind", ["s3", "http"])
def test_a_file_that_was_replaced_has_changed(bucket, http_server, kind):
    def replace(content):
        if kind == "s3":
            put(bucket, large=content)
            return "s3://data/large"
        return http_server.add("/large", content)

    file = penstock.open(replace(LARGE))
    file.read(100_000)
    replace(LARGE[::-1])

    with pytest.raises(penstock.FileChanged, match="large") as raised:
        file.pread(100_000, 10_000_000)
    with pytest.raises(penstock.FileChanged):
        pickle.loads(pickle.dumps(file)).read(100_000)
    assert raised.value.code == "changed"


def test_google_storage_is_read_and_written(monkeypatch):
    with Gcs() as gcs:
        for name, value in gcs.env.items():
            monkeypatch.setenv(name, value)
        gcs.buckets["train"] = {}

        with penstock.open("gs://train/large", "wb") as file:
            file.write(LARGE)
        with penstock.open("gs://train/large") as file:
            start, rest = file.read(200_000), file.read()

    assert start + rest == LARGE


# --- trouble ---


def test_reading_goes_on_after_a_store_that_was_busy_or_cut(proxy, bucket):
    put(bucket, large=LARGE)
    file = penstock.open("s3://data/large", ahead=4 << 20)
    got = [file.read(300_000)]

    proxy.fault(method="GET", times=5, status=503, body=s3_error("SlowDown"))
    got += [file.read(300_000) for _ in range(10)]
    proxy.fault(method="GET", times=3, cut_after=1000)
    got += [file.read(300_000) for _ in range(10)]
    proxy.cut_all()
    got.append(file.read())

    assert b"".join(got) == LARGE


def test_reading_goes_on_after_a_server_of_the_web_that_was_busy_or_cut(http_server):
    url = http_server.add("/large", LARGE)
    file = penstock.open(url, ahead=4 << 20)
    got = [file.read(300_000)]

    http_server.fault("/large", status=503, times=4, headers={"Retry-After": "0"})
    got += [file.read(300_000) for _ in range(10)]
    http_server.fault("/large", cut_after=1000, times=3)
    got.append(file.read())

    assert b"".join(got) == LARGE


def test_a_server_without_ranges_is_refused(http_server):
    url = http_server.add("/large", LARGE)
    http_server.ranges = False

    with pytest.raises(penstock.FileError, match="range") as raised:
        penstock.open(url)

    assert raised.value.code == "unsupported"


def test_a_child_neither_writes_nor_ends_an_object_of_its_parent(bucket, tmp_path):
    put(bucket, forked=b"before")
    refused = "cannot write 's3://data/forked': only the process that opened it can\n"

    assert child(tmp_path, FORKED_BLOCK, "s3://data/forked") == f"{refused}0 6\n{refused}0 8\n8\n"


@pytest.mark.parametrize("mode", ["wb", "w"])
def test_a_signal_in_the_last_flush_leaves_no_object(bucket, mode, monkeypatch):
    put(bucket, flushed=b"before")
    file = penstock.open("s3://data/flushed", mode)
    file.write(b"part" if "b" in mode else "part")

    def interrupted(self, data):
        raise KeyboardInterrupt

    monkeypatch.setattr(type((file if "b" in mode else file.buffer).raw), "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        file.close()

    assert file.closed
    assert penstock.open("s3://data/flushed", "rb").read() == b"before"


def test_no_message_has_the_query_of_a_url():
    with pytest.raises(io.UnsupportedOperation, match="'https://example.org/x'"):
        penstock.open("https://key:secret@example.org/x?X-Amz-Signature=secret", "wb")


class Asked(Exception):
    """Raised by a signal handler."""


# While the main thread waits, other threads run, and Python handles the signal.
def test_a_signal_ends_the_wait_for_a_store(proxy, bucket, wait_for):
    put(bucket, large=LARGE)
    file = penstock.open("s3://data/large")
    held = proxy.fault(method="GET", times=10**6, hold="reply")
    asked = []

    def handler(number, frame):
        asked.append(time.monotonic())
        raise Asked

    before = signal.signal(signal.SIGUSR1, handler)
    threading.Thread(target=lambda: (held.wait(), os.kill(os.getpid(), signal.SIGUSR1))).start()
    try:
        with pytest.raises(Asked):
            file.read(100_000)
    finally:
        signal.signal(signal.SIGUSR1, before)

    assert time.monotonic() - asked[0] < 5
    held.stop()
    assert file.read(100_000) == LARGE[:100_000]


def child(tmp_path, text, *arguments, stdin=""):
    """Runs a Python script that can import the package; returns the script's output."""
    (tmp_path / "script.py").write_text(text)
    known = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    done = subprocess.run(
        [sys.executable, tmp_path / "script.py", *arguments], env=environment() | known | {"PYTHONPATH": str(PACKAGE)},
        input=stdin, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_file_is_read_and_freed_after_a_fork(bucket, tmp_path):
    put(bucket, large=LARGE)

    assert child(tmp_path, FORKS, "s3://data/large") == f"{[0] * 8} True\n"


# --- writing ---


def test_an_object_appears_when_its_file_is_closed(store, bucket):
    with penstock.open("s3://data/large", "wb") as file:
        for at in range(0, len(LARGE), 300_000):
            file.write(LARGE[at : at + 300_000])
        assert store.keys("data") == [] and file.writable() and not file.readable()
    with penstock.open("s3://data/text", "w") as text:
        text.write(LINES)
    with penstock.open("s3://data/empty", "wb"):
        pass
    with penstock.open("s3://data/new", "xb") as file:
        file.write(b"new")

    assert store.bytes("data", "large") == LARGE and store.bytes("data", "text") == LINES.encode()
    assert store.bytes("data", "empty") == b"" and store.bytes("data", "new") == b"new"
    with pytest.raises(FileExistsError):
        with penstock.open("s3://data/new", "xb") as file:
            file.write(b"newer")
    assert store.bytes("data", "new") == b"new"


def test_a_failure_leaves_no_object(store, bucket, recwarn):
    warnings.simplefilter("always")  # both are of one line
    for mode, data in (("wb", LARGE), ("w", LINES)):
        with pytest.raises(KeyError), penstock.open("s3://data/failed", mode) as file:
            file.write(data)
            raise KeyError
    file = penstock.open("s3://data/aborted", "wb")
    file.write(LARGE)
    file.abort()
    for mode, data in (("wb", LARGE), ("w", LINES)):
        file = penstock.open("s3://data/dropped", mode)
        file.write(data)
        del file

    assert store.keys("data") == [] and bucket.list_multipart_uploads(Bucket="data").get("Uploads", []) == []
    assert [warning.category for warning in recwarn] == [ResourceWarning, ResourceWarning]
    with pytest.raises(FileNotFoundError):
        with penstock.open("s3://no-such-bucket/x", "wb") as file:
            for _ in range(10):
                file.write(LARGE)
    with pytest.raises(io.UnsupportedOperation):
        penstock.open("https://example.org/x", "wb")


def test_a_fork_does_not_keep_an_object_from_its_end(bucket, tmp_path):
    assert child(tmp_path, FORKED_WRITER, "s3://data/forked") == "5000\n"
