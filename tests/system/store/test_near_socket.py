"""On the same machine clients use the Unix socket of the store, and TCP if there is no socket."""
import http.client
import os
import socket
from pathlib import Path

import pytest

from harness.program import Store

LISTEN = "0A"  # the state LISTEN in /proc/net/tcp


def directory():
    run = Path(f"/run/user/{os.geteuid()}/penstock")
    return run if run.parent.is_dir() else Path(f"/tmp/penstock-{os.geteuid()}")


def name_of(endpoint):
    """Returns the path of the socket of an endpoint."""
    host, port = endpoint.removeprefix("http://").rsplit(":", 1)
    return directory() / f"{os.stat('/proc/self/ns/net').st_ino}-{host.strip('[]')}.{port}"


def tcp_connections(store):
    """Returns (local, remote) of the TCP connections to the store's port, including connections
    that ended within the last minute (TIME_WAIT)."""
    port = f":{int(store.address.rsplit(':', 1)[1]):04X}"
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {(local, remote) for _, local, remote, state, *_ in lines if port in (local[-5:], remote[-5:]) and state != LISTEN}


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost")
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self.path))


def copy_and_back(penstock, store, tmp_path):
    """Sends and fetches a megabyte; returns the TCP connections of both commands."""
    before = tcp_connections(store)
    content = os.urandom(1 << 20)
    (tmp_path / "in").write_bytes(content)
    penstock.run("cp", tmp_path / "in", "s3://bucket/key", env=store.env).ok()
    penstock.run("cp", "s3://bucket/key", tmp_path / "out", env=store.env).ok()
    assert (tmp_path / "out").read_bytes() == content
    return tcp_connections(store) - before


@pytest.fixture
def bucket(penstock, store):
    penstock.run("mb", "s3://bucket", env=store.env).ok()
    return store


def test_our_own_programs_use_the_socket_and_others_the_port(penstock, bucket, tmp_path):
    assert name_of(bucket.endpoint).is_socket()
    assert directory().stat().st_mode & 0o777 == 0o700

    assert not copy_and_back(penstock, bucket, tmp_path)
    before = tcp_connections(bucket)
    assert bucket.bytes("bucket", "key") == (tmp_path / "in").read_bytes()
    assert tcp_connections(bucket) - before


def test_the_socket_asks_for_a_signature_as_the_port_does(bucket):
    connection = UnixConnection(name_of(bucket.endpoint))
    connection.request("GET", "/bucket?list-type=2")
    assert connection.getresponse().status == 403


def test_without_the_socket_tcp_does_the_same(penstock, bucket, tmp_path):
    name_of(bucket.endpoint).unlink()

    assert copy_and_back(penstock, bucket, tmp_path)


def test_a_server_that_is_killed_leaves_nothing_that_leads_astray(penstock, bucket, tmp_path):
    old = name_of(bucket.endpoint)
    bucket.process.kill()

    bucket.start(bucket.address)
    assert name_of(bucket.endpoint) == old
    assert not copy_and_back(penstock, bucket, tmp_path)

    bucket.process.kill()
    # If another server has the port now, the client connects to it over TCP.
    with socket.create_server(("127.0.0.1", int(bucket.address.rsplit(":", 1)[1]))) as listener:
        listener.settimeout(30)
        asking = penstock.popen("stat", "s3://bucket/key", env=bucket.env)
        connection, _ = listener.accept()
        with connection:
            assert connection.recv(64).startswith(b"HEAD /bucket/key")
        asking.kill()


def test_it_goes_with_the_server(penstock, bucket):
    name = name_of(bucket.endpoint)
    bucket.stop()
    assert not name.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_goes_over_tcp(penstock, bucket):
    before = tcp_connections(bucket)
    penstock.run("ls", "s3://bucket", env=bucket.env).ok()
    assert tcp_connections(bucket) == before
    penstock.prefix = ["setpriv", "--reuid=4712", "--regid=4712", "--clear-groups"]
    penstock.run("ls", "s3://bucket", env=bucket.env, cwd="/").ok()
    assert tcp_connections(bucket) - before


def test_the_address_of_ipv6_has_one_too(penstock, tmp_path):
    if not Path("/proc/net/if_inet6").exists() or "00000000000000000000000000000001" not in Path("/proc/net/if_inet6").read_text():
        pytest.skip("this machine has no IPv6 loopback")
    store = Store(penstock, tmp_path / "six")
    store.stop()
    store.start("[::1]:0")
    assert name_of(store.endpoint).is_socket()
    penstock.run("mb", "s3://bucket", env=store.env).ok()
    store.stop()
