"""Tests of the fixtures: a harness that cannot fail would let everything pass."""
import os
import socket
import subprocess
import urllib.error
import urllib.request
from http.client import IncompleteRead

import pytest

from harness import processes
from harness.program import TOP
from harness.waiting import wait_for


def get(url, **headers):
    request = urllib.request.Request(url, headers={k.replace("_", "-"): v for k, v in headers.items()})
    with urllib.request.urlopen(request, timeout=10) as reply:
        return reply.status, dict(reply.headers), reply.read()


# A daemon that forked twice and left its session is not among the direct children.
def test_finds_a_daemon_that_hid_itself():
    before = set(processes.descendants())

    subprocess.run(["/bin/sh", "-c", "setsid sleep 60 >/dev/null 2>&1 & exit 0"], check=True)
    left = wait_for(lambda: processes.survivors(before, 0.2))
    processes.end(left)

    assert list(left.values()) == ["sleep 60"]
    assert not processes.survivors(before, 5)


def test_reports_a_condition_that_never_holds():
    with pytest.raises(AssertionError, match="not within 0.1 s: rain"):
        wait_for(lambda: False, 0.1, "rain")


def test_keeps_tests_out_of_the_home_of_who_runs_them():
    assert os.environ["HOME"].startswith("/tmp/") or "penstock-test-home-" in os.environ["HOME"]
    assert not [name for name in os.environ if name.startswith("AWS_") and name != "AWS_EC2_METADATA_DISABLED"]


def test_server_serves_ranges_and_conditions(http_server):
    content = bytes(range(256)) * 1000
    url = http_server.add("/a.bin", content)

    status, headers, body = get(url)
    assert (status, body) == (200, content)
    etag = headers["ETag"]
    assert get(url, Range="bytes=10-19")[2] == content[10:20]
    assert get(url, Range="bytes=-5")[2] == content[-5:]
    assert get(url, Range="bytes=10-19", If_Range='"other"')[0] == 200
    with pytest.raises(urllib.error.HTTPError, match="416"):
        get(url, Range="bytes=256000-")
    with pytest.raises(urllib.error.HTTPError, match="304"):
        get(url, If_None_Match=etag)


def test_server_cuts_stalls_lies_and_recovers(http_server):
    content = b"0123456789" * 10000
    url = http_server.add("/a.bin", content)
    http_server.fault("/a.bin", cut_after=70000)
    http_server.fault("/a.bin", stall_after=10)
    http_server.fault("/a.bin", claim=5)
    http_server.fault("/a.bin", corrupt_at=65537)
    http_server.fault("/a.bin", status=503, times=2)
    http_server.fault("/a.bin", ignore_range=True)

    with pytest.raises(IncompleteRead) as cut:
        get(url)
    with pytest.raises((socket.timeout, TimeoutError)):
        with urllib.request.urlopen(url, timeout=1) as reply:
            reply.read()
    short = get(url)[2]
    corrupt = get(url)[2]
    for _ in range(2):
        with pytest.raises(urllib.error.HTTPError, match="503"):
            get(url)
    whole = get(url, Range="bytes=0-9")

    assert len(cut.value.partial) == 70000
    assert short == content[:5]
    assert [i for i in range(len(content)) if corrupt[i] != content[i]] == [65537]
    assert (whole[0], whole[2]) == (200, content)
    assert get(url, Range="bytes=0-9")[2] == content[:10]
    assert len(http_server.seen("/a.bin", "GET")) == 8


def test_server_keeps_what_is_put(http_server):
    request = urllib.request.Request(http_server.url + "/up", data=b"payload", method="PUT")

    with urllib.request.urlopen(request, timeout=10) as reply:
        assert reply.status == 201

    assert http_server.received == {"/up": b"payload"}


def check_includes(root):
    command = ["/usr/bin/python3", TOP / "tools" / "check-includes.py", root]
    return subprocess.run(command, capture_output=True, text=True, check=False)


# The check must refuse each kind of fault.
def test_include_check_refuses_every_wrong_arrow(tmp_path):
    files = {
        "src/base/up.c": '#include "s3/sigv4.h"\n',
        "src/sync/neighbour.c": '#include "base/buf.h"\n#include "records/claims.h"\n',
        "src/run/cli.c": '#include "cli/verbs.h"\n',
        "src/run/fine.c": '#include "transfer/objects.h"\n#include "base/buf.h"\n#include <penstock/ok.h>\n',
        "src/server/relative.c": '#include "routes.h"\n',
        "src/attic/old.c": "int x;\n",
        "src/base/long.c": "\n" * 901,
        "include/penstock/ok.h": "struct penstock_thing;\n",
        "include/penstock/alone.h": "size_t penstock_size(void);\n",
        "include/penstock/inner.h": '#include "base/buf.h"\n',
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    result = check_includes(tmp_path)

    faults = {line.rsplit(": ", 1)[0].split(": ")[0] for line in result.stdout.splitlines()[:-1]}
    assert result.returncode == 1
    assert faults == {
        "src/base/up.c:1", "src/sync/neighbour.c:2", "src/run/cli.c:1", "src/server/relative.c:1", "src/attic/old.c:1",
        "src/base/long.c:901", "include/penstock/alone.h:1", "include/penstock/inner.h:1",
    }, result.stdout  # fmt: skip


def test_include_check_accepts_this_tree():
    result = check_includes(TOP)

    assert result.returncode == 0, result.stdout


# A page with one fault of each kind.
def test_documentation_check_refuses_paths_links_and_lines_that_are_wrong(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# A page\n`src/base/buf.h` and [itself](#a-page) are there, `src/NAME.c` is a pattern\n"
        "`src/base/missing.c`\n[gone](missing.md)\n[no heading](#missing)\n" + "x" * 101 + "\n| " + "x" * 101 + " |\n"
    )

    result = subprocess.run([TOP / "tools" / "check-docs", page], capture_output=True, text=True, check=False)

    assert result.returncode == 1
    assert [int(line.split(":")[1]) for line in result.stdout.splitlines()] == [3, 4, 5, 6], result.stdout
