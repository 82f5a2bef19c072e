"""The native part of penstock.data, called in ways that its Python part never uses, and interrupted by Ctrl-C."""
import os
import signal
import socket
import struct

import pytest

from penstock import _native
from penstock.data import DatasetError

SILENT = """
import sys
from penstock.data import Dataset, Loader

loader = Loader(Dataset(sys.argv[1], format="objects", endpoint_url=sys.argv[2], region="r"), batch_size=2)
reads = iter(loader)
print("opened", flush=True)
try:
    next(reads)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def numbers(*ids):
    return struct.pack(f"{len(ids)}Q", *ids)


def opened(folder, sizes=(4, 0, 0, 0, 0), threads=0):
    return _native.Dataset(str(folder), "records", None, sizes, (None, None, None, False), threads)


def plan(seed=0, batch=8, ranks=1):
    return _native.Plan(100, "full", "keep", (1, 1, seed, 0, 0), (ranks, 0, batch, 1, 0))


@pytest.fixture
def records(tmp_path):
    (tmp_path / "a.bin").write_bytes(bytes(range(40)))
    return tmp_path


# If a number wrapped around, the samples would silently come in another order.
@pytest.mark.parametrize("number", [-1, 1 << 64, (1 << 64) + 8])
def test_numbers_do_not_wrap_around(records, number):
    for call in (
        lambda: opened(records, (number, 0, 0, 0, 0)),
        lambda: opened(records, threads=number),
        lambda: plan(seed=number),
        lambda: plan(batch=number),
        lambda: plan(ranks=number),
        lambda: plan().batch(number),
        lambda: opened(records).place(number),
    ):
        with pytest.raises(ValueError):
            call()
    with pytest.raises(ValueError):
        plan(batch=(1 << 32) + 8)
    with pytest.raises(TypeError):
        plan(batch=8.0)


def test_odd_calls_raise(records):
    data = opened(records)

    with pytest.raises(ValueError):
        _native.Batch().wait()
    with pytest.raises(ValueError):
        data.split(0, bytearray(4), 1, 4)
    with pytest.raises(ValueError):
        data.split(0, bytearray(4), 0, (1 << 63) - 1)
    with pytest.raises(DatasetError):
        data.split(10, bytearray(4), 0, 4)
    with pytest.raises(DatasetError):
        data.read(numbers(10))
    batch = data.start(numbers(1, 0, 1))
    assert batch.wait()[0] == bytes([4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7])
    with pytest.raises(ValueError):
        batch.wait()
    assert data.read(b"") == (bytearray(), numbers(0))


def test_a_forked_child_ends_what_its_parent_reads(records):
    data = opened(records)
    batch = data.start(numbers(1))
    child = os.fork()
    if child == 0:
        try:
            with pytest.raises(DatasetError):
                batch.wait()
            right = data.start(numbers(2)).wait()[0] == bytes([8, 9, 10, 11])
            del batch, data
            os._exit(not right)
        finally:
            os._exit(2)

    assert os.waitpid(child, 0)[1] == 0
    assert batch.wait()[0] == bytes([4, 5, 6, 7])


OPENING = """
import sys
from penstock.data import Dataset

print("opening", flush=True)
try:
    Dataset(sys.argv[1], endpoint_url=sys.argv[2], region="r")
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_ctrl_c_ends_the_opening_of_a_data_set_of_a_silent_store(child):
    with socket.create_server(("127.0.0.1", 0)) as server:
        reader = child(OPENING, "s3://bucket", f"http://127.0.0.1:{server.getsockname()[1]}", AWS_ACCESS_KEY_ID="k", AWS_SECRET_ACCESS_KEY="s")
        assert reader.process.stdout.readline() == "opening\n"
        silent = server.accept()[0]
        assert silent.recv(4)
        reader.process.send_signal(signal.SIGINT)

        out, err = reader.process.communicate(timeout=20)
        silent.close()

    assert out == "interrupted\n" and reader.process.returncode == 0, err


# The store has no index, lists two objects and never sends them.
def test_ctrl_c_ends_a_wait_for_a_silent_store(child):
    listing = b"<ListBucketResult><IsTruncated>false</IsTruncated>"
    listing += b"".join(b"<Contents><Key>%c</Key><Size>5</Size><ETag>&quot;e&quot;</ETag></Contents>" % key for key in b"ab")
    listing += b"</ListBucketResult>"
    reply = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/xml\r\nContent-Length: %d\r\n\r\n" % len(listing)
    missing = b"HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    with socket.create_server(("127.0.0.1", 0)) as server:
        reader = child(SILENT, "s3://bucket", f"http://127.0.0.1:{server.getsockname()[1]}", AWS_ACCESS_KEY_ID="k", AWS_SECRET_ACCESS_KEY="s")
        for asked, answer in ((b".penstock-index", missing), (b"list-type", reply + listing)):
            connection = server.accept()[0]
            assert asked in connection.recv(65536)
            connection.sendall(answer)
            connection.close()
        assert reader.process.stdout.readline() == "opened\n"
        silent = server.accept()[0]
        assert silent.recv(4)
        reader.process.send_signal(signal.SIGINT)

        out, err = reader.process.communicate(timeout=20)
        silent.close()

    assert out == "interrupted\n" and reader.process.returncode == 0, err
