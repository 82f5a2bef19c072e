"""Whoever has no keys takes no place that those with the keys need."""
import re
import select
import socket
from pathlib import Path

import pytest

from harness.program import Store
from harness.s3_wire import Wire

FILES = 256  # descriptors of the store: three quarters are for connections to the port, half of these from one address


@pytest.fixture
def small(penstock, tmp_path):
    penstock.prefix = ["prlimit", f"--nofile={FILES}:{FILES}"]
    store = Store(penstock, tmp_path / "store")
    yield store
    store.stop()


def connect(wire, host):
    return socket.create_connection((wire.host, wire.port), timeout=30, source_address=(host, 0))


def ended(connections):
    """Those that the store has closed."""
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


# 30 s are the limit; a byte now and then does not extend it
def test_a_head_without_an_end_is_not_waited_for(store):
    wire = Wire(store)
    signed = wire.head("GET", "/", wire.sign("GET", "/"))
    client = wire.connect()
    client.sendall(signed)
    assert wire.read(client).status == 200

    with wire.connect() as slow:
        slow.sendall(b"GET / HTTP/1.1\r\n")
        for i in range(45):
            if select.select([slow], [], [], 1)[0]:
                break
            slow.sendall(b"x")
        assert slow.recv(1) == b""
    assert 25 < i < 40
    client.sendall(signed)
    assert wire.read(client).status == 200
    client.close()


# A list of repeated headers was once copied for each of its lines
def test_a_refused_head_takes_no_more_memory_than_it_has_bytes(store):
    def resident():
        return int(re.search(r"^VmRSS:\s*(\d+)", Path(f"/proc/{store.process.pid}/status").read_text(), re.M).group(1)) * 1024

    wire = Wire(store)
    head = b"PUT /bkt/k HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n" + (b"x-list: " + b"v" * 380 + b"\r\n") * 100 + b"\r\n"
    before = resident()

    crowd = [wire.connect() for _ in range(64)]
    for one in crowd:
        one.sendall(head + b"123456789")
    for one in crowd:
        assert not select.select([one], [], [], 0.01)[0]

    assert resident() - before < 64 << 20
    for one in crowd:
        one.sendall(b"0")
        assert wire.read(one).code == "NoSuchBucket"
        one.close()
