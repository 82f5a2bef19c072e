"""penstock's HTTP client as a whole process: authorities it trusts, proxies, and inputs that survive cuts and kills."""
import hashlib
import json
import os
import signal
from urllib.parse import urlsplit

import pytest
from harness.http_server import Server
from harness.s3tool import PERMISSION, UNAVAILABLE, Tool
from harness.waiting import wait_for

MIB = 1 << 20


@pytest.fixture
def tool(tmp_path):
    return Tool(tmp_path)


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "input"
    path.mkdir()
    return path


@pytest.mark.parametrize("name", ["SSL_CERT_FILE", "AWS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_an_authority_named_in_the_environment_is_trusted(https, tool, folder, name):
    content = os.urandom(3 * MIB)
    url = https.add("/secure.bin", content)

    tool.ok("fetch", url, folder, **{name: https.certificate})

    assert (folder / "secure.bin").read_bytes() == content


def test_an_unknown_authority_is_refused_with_what_to_do(https, tool, folder):
    said = tool.fails(PERMISSION, "fetch", https.add("/secure.bin", b"x"), folder)

    assert "SSL_CERT_FILE" in said
    assert https.requests == [] and list(folder.iterdir()) == []


def test_the_proxy_of_the_environment_is_used_except_where_it_is_not_wanted(tool, folder, http_server):
    proxy = Server()
    try:
        # A proxy gets the whole URL as the path of a request.
        proxy.add("http://input.invalid/data", b"through the proxy")
        direct = http_server.add("/direct", b"straight")
        settings = {"http_proxy": proxy.url, "NO_PROXY": "127.0.0.1"}

        tool.ok("fetch", "http://input.invalid/data", folder, **settings)
        tool.ok("fetch", direct, folder, **settings)

        assert (folder / "data").read_bytes() == b"through the proxy"
        assert (folder / "direct").read_bytes() == b"straight"
        assert {urlsplit(request.path).hostname for request in proxy.requests} == {"input.invalid"}
    finally:
        proxy.close()


def test_a_killed_fetch_goes_on_where_it_was(tool, folder, http_server):
    content = os.urandom(8 * MIB)
    url = http_server.add("/large.bin", content)
    http_server.fault("/large.bin", times=1000, rate=2 * MIB)
    process = tool.popen("fetch", url, folder, CHUNK=256 * 1024, PARALLEL=2)
    try:
        # The journal is written once a second, with a bit for each of the 32 ranges: wait until it has eight of them.
        known = lambda path: bin(int(json.loads(path.read_text())["done"], 16)).count("1")  # noqa: E731
        wait_for(lambda: any(known(path) >= 8 for path in folder.glob("large.bin.*.penstock-part.json")), 60, "a journal")
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=30)
    http_server.faults.clear()
    before = len(http_server.seen("/large.bin"))

    (result,) = tool.json("fetch", url, folder, CHUNK=256 * 1024, PARALLEL=2, SHA256=hashlib.sha256(content).hexdigest())

    assert result["resumed"] and result["fetched"] < 8 * MIB - MIB
    assert (folder / "large.bin").read_bytes() == content
    assert all(r.status == 206 for r in http_server.seen("/large.bin")[before:])
    assert [path.name for path in folder.iterdir()] == ["large.bin"]


@pytest.mark.parametrize(
    "fault",
    [
        {"cut_after": 100_000},
        {"cut_after": 100_000, "reset": True},
        {"status": 503, "headers": {"Retry-After": "0"}},
        {"claim": 12345},
        {"shift_range": 4096},
        {"ignore_range": True},
    ],
    ids=["cut", "reset", "busy", "wrong length", "wrong range", "no range"],
)
def test_a_fault_in_the_middle_does_not_reach_the_file(tool, folder, http_server, fault):
    content = os.urandom(2 * MIB)
    url = http_server.add("/data", content)
    http_server.fault("/data", times=2, **fault)

    tool.ok("fetch", url, folder, CHUNK=256 * 1024)

    assert (folder / "data").read_bytes() == content
    assert [path.name for path in folder.iterdir()] == ["data"]


def test_a_server_that_stays_away_is_named_in_the_end(tool, folder, http_server):
    url = http_server.add("/data", b"x")
    http_server.fault("/data", times=100, status=503, headers={"Retry-After": "0"})

    said = tool.fails(UNAVAILABLE, "fetch", url + "?token=secret-token", folder)

    assert "503" in said and "/data" in said and "secret-token" not in said
    assert list(folder.iterdir()) == []
