"""Clients without keys ("strangers") do not take the connections that clients with keys need."""
import contextlib
import json
import re
import select
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.program import Store, has_sanitizer
from harness.s3_wire import Wire
from store.test_post import BOUNDARY, Form, encoded

# The store's descriptors: three quarters are for connections to the port, and half of these may be
# from one address.
FILES = 256


@pytest.fixture
def small(penstock, tmp_path):
    penstock.prefix = ["prlimit", f"--nofile={FILES}:{FILES}"]
    store = Store(penstock, tmp_path / "store")
    yield store
    store.stop()


def connect(wire, host):
    return socket.create_connection((wire.host, wire.port), timeout=30, source_address=(host, 0))


def ended(connections):
    """Returns the connections that the store has closed."""
    return [one for one in select.select(connections, [], [], 0)[0] if one.recv(1, socket.MSG_PEEK) == b""]


def test_one_address_has_half_of_the_connections(small, wait_for):
    wire = Wire(small)

    crowd = [connect(wire, "127.0.0.2") for _ in range(FILES * 3 // 8 + 10)]

    wait_for(lambda: len(ended(crowd)) >= 10, 30, "those above the limit to be closed")
    with connect(wire, "127.0.0.3") as other:
        other.sendall(wire.head("GET", "/", wire.sign("GET", "/")))
        assert wire.read(other).status == 200
    assert len(ended(crowd)) < FILES // 8
    for one in crowd:
        one.close()


def test_strangers_make_room_for_a_client_with_the_keys(small, wait_for):
    wire = Wire(small)
    signed = wire.head("GET", "/", wire.sign("GET", "/"))
    client = connect(wire, "127.0.0.1")
    client.sendall(signed)
    assert wire.read(client).status == 200

    crowd = [connect(wire, f"127.0.1.{1 + i % 100}") for i in range(FILES)]

    wait_for(lambda: len(ended(crowd)) >= FILES // 3, 30, "the oldest strangers to be closed")
    with connect(wire, "127.0.0.1") as late:
        for one in (late, client):
            one.sendall(signed)
            assert wire.read(one).status == 200
    for one in (*crowd, client):
        one.close()


# An account gets at most half of the connections, even from many addresses. The store closes its
# further connections like those of clients without keys.
def test_an_account_does_not_take_all_connections(small, wait_for):
    wire = Wire(small)
    signed = wire.head("GET", "/", wire.sign("GET", "/"))
    crowd = []

    for i in range(FILES * 3 // 4):
        crowd.append(connect(wire, f"127.0.1.{1 + i % 100}"))
        crowd[-1].sendall(signed)
        assert wire.read(crowd[-1]).status == 200

    wait_for(lambda: len(ended(crowd)) >= FILES // 8, 30, "connections beyond the share to be closed")
    with connect(wire, "127.0.0.3") as late:
        late.sendall(signed)
        assert wire.read(late).status == 200
    for one in crowd:
        one.close()


def open_bucket(store):
    """Makes a bucket that strangers may read and write."""
    everything = {"Effect": "Allow", "Principal": "*", "Action": ["s3:GetObject", "s3:PutObject"], "Resource": "arn:aws:s3:::open/*"}
    store.client.create_bucket(Bucket="open")
    store.client.put_bucket_policy(Bucket="open", Policy=json.dumps({"Version": "2012-10-17", "Statement": [everything]}))


# Each transfer needs a descriptor for a file, in addition to the descriptor of its connection.
def test_transfers_of_strangers_leave_descriptors(small, wait_for):
    wire = Wire(small)
    open_bucket(small)
    crowd = [connect(wire, f"127.0.1.{1 + i % 100}") for i in range(FILES // 2)]
    for i, one in enumerate(crowd):
        with contextlib.suppress(ConnectionError):
            one.sendall(wire.head("PUT", f"/open/{i}", {"host": "x", "content-length": str(4 << 20)}) + bytes(1 << 20))
    wait_for(lambda: len(ended(crowd)) >= FILES // 8, 20, "those above the limit to be closed")

    body = bytes(2 << 20)
    assert wire.send("PUT", "/open/mine", body=body).status == 200
    assert wire.send("GET", "/open/mine").body == body
    for one in crowd:
        one.close()


WINDOW_S, PACES = 30, 38  # a slow transfer takes PACES seconds
SLOW = 24 << 20  # bytes; more than the kernel holds


def trickle(wire, start, first=None):
    """Sends the beginning of a request, and then a byte each second. With `first`, sends that whole
    request before, and reads its reply. Returns the number of seconds after which the store has
    closed the connection; None if it has not."""
    with wire.connect() as slow:
        if first:
            slow.sendall(first)
            assert wire.read(slow).status < 300
        slow.sendall(start)
        for i in range(WINDOW_S + 15):
            if select.select([slow], [], [], 1)[0]:
                assert slow.recv(1) == b""
                return i
            slow.sendall(b"x")
    return None


def get_slowly(wire, path):
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
        slow.settimeout(30)
        slow.connect((wire.host, wire.port))
        slow.sendall(wire.head("GET", path, {"host": "x", "connection": "close"}))
        received, begun = 0, time.monotonic()
        while data := slow.recv(64 << 10):
            received += len(data)
            time.sleep(max(0, begun + received / SLOW * PACES - time.monotonic()))
    return received


def put_slowly(wire, path):
    with wire.connect() as slow:
        slow.sendall(wire.head("PUT", path, {"host": "x", "content-length": str(SLOW)}))
        for _ in range(PACES):
            slow.sendall(bytes(SLOW // PACES))
            time.sleep(1)
        slow.sendall(bytes(SLOW % PACES))
        return wire.read(slow).status


def signed_elsewhere(store, wire):
    """Returns requests whose sender may have got the signature from another user: signed URLs of
    both versions, and a form."""
    store.client.create_bucket(Bucket="bkt")
    old = store.boto3(signature_version="s3").generate_presigned_url("list_objects", Params={"Bucket": "bkt"})
    form = encoded(Form(wire, {"key": "form"}).parts())
    headers = {"host": store.address, "content-type": f"multipart/form-data; boundary={BOUNDARY}", "content-length": str(len(form))}
    return [
        wire.head("GET", "/?" + wire.presign("GET", "/"), {"host": store.address}),
        wire.head("GET", old.removeprefix(store.endpoint), {"host": store.address}),
        wire.head("POST", "/bkt", headers) + form,
    ]


# All cases run at once, because each takes longer than the time for which a stranger may be idle.
def test_a_stranger_may_be_slow_but_not_idle(store):
    wire = Wire(store)
    open_bucket(store)
    store.client.put_object(Bucket="open", Key="large", Body=bytes(SLOW))
    signed = wire.head("GET", "/", wire.sign("GET", "/"))
    client = wire.connect()
    client.sendall(signed)
    assert wire.read(client).status == 200

    with ThreadPoolExecutor(max_workers=8) as pool:
        head = pool.submit(trickle, wire, b"GET / HTTP/1.1\r\n")
        passed_on = [pool.submit(trickle, wire, b"GET / HTTP/1.1\r\n", first) for first in signed_elsewhere(store, wire)]
        body = pool.submit(trickle, wire, wire.head("PUT", "/open/never", {"host": "x", "content-length": "1000"}))
        got = pool.submit(get_slowly, wire, "/open/large")
        put = pool.submit(put_slowly, wire, "/open/slow")

    for slow in (head, body, *passed_on):
        assert WINDOW_S - 5 < slow.result() < WINDOW_S + 10
    assert got.result() > SLOW
    assert put.result() == 200
    assert [one["Key"] for one in store.client.list_objects_v2(Bucket="open")["Contents"]] == ["large", "slow"]
    client.sendall(signed)
    assert wire.read(client).status == 200
    client.close()


def resident(store):
    """Returns the bytes of memory of the store; 0 if a sanitizer keeps freed memory."""
    if has_sanitizer():
        return 0
    return int(re.search(r"^VmRSS:\s*(\d+)", Path(f"/proc/{store.process.pid}/status").read_text(), re.M).group(1)) * 1024


# The store once copied a repeated header's list of values for each line of the header.
def test_a_refused_head_takes_no_more_memory_than_it_has_bytes(store):
    wire = Wire(store)
    head = b"PUT /bkt/k HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n" + (b"x-list: " + b"v" * 380 + b"\r\n") * 100 + b"\r\n"
    before = resident(store)

    crowd = [wire.connect() for _ in range(64)]
    for one in crowd:
        one.sendall(head + b"123456789")
    for one in crowd:
        assert not select.select([one], [], [], 0.01)[0]

    assert resident(store) - before < 64 << 20
    for one in crowd:
        one.sendall(b"0")
        assert wire.read(one).code == "NoSuchBucket"
        one.close()


# The bytes of an encrypted object go through a buffer, which stays allocated while the client reads
# nothing.
def test_many_clients_that_read_nothing_take_little_memory(store):
    wire = Wire(store)
    wire.send("PUT", "/bkt")
    wire.send("PUT", "/bkt/k", body=bytes(4 << 20), headers={"x-amz-server-side-encryption": "AES256"})
    request = wire.head("GET", "/bkt/k", wire.sign("GET", "/bkt/k"))

    def stall(n):
        crowd = [wire.connect() for _ in range(n)]
        for one in crowd:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one.sendall(request)
        for one in crowd:
            assert one.recv(12, socket.MSG_WAITALL) == b"HTTP/1.1 200"
        return crowd

    crowd = stall(300)
    before = resident(store)
    crowd += stall(300)

    assert resident(store) - before < 300 * (192 << 10)
    for one in crowd:
        one.close()


# The conditions of a policy may name the same header many times. A request that waits for its body
# must not keep a copy of the header for each condition.
def test_a_request_that_waits_for_its_body_keeps_no_copies_of_a_long_header(store):
    wire = Wire(store)
    wire.send("PUT", "/bkt")
    letters = [0, 2, 3, 4, 6, 7]
    names = ["".join(c.upper() if k in letters and i >> letters.index(k) & 1 else c for k, c in enumerate("x-amz-copy-source")) for i in range(64)]
    condition = {"StringNotEquals": {f"s3:{name}": "a" for name in names}, "StringEquals": {"s3:x-amz-acl": "x"}}
    policy = {"Statement": [{"Effect": "Deny", "Principal": "*", "Action": "s3:PutObject", "Resource": "arn:aws:s3:::bkt/*", "Condition": condition}]}
    assert wire.send("PUT", "/bkt", "policy", body=json.dumps(policy).encode()).status == 204
    headers = {"x-amz-copy-source": "bkt/" + "k" * 20000, "content-length": "10", "expect": "100-continue"}
    request = wire.head("PUT", "/bkt/k", wire.sign("PUT", "/bkt/k", headers=headers))
    before = resident(store)

    crowd = [wire.connect() for _ in range(64)]
    for one in crowd:
        one.sendall(request)
    for one in crowd:
        assert one.recv(12, socket.MSG_WAITALL) == b"HTTP/1.1 100"

    assert resident(store) - before < 40 << 20
    for one in crowd:
        one.close()
