"""Servers that cut, stall, repeat and lie: a run gets the right bytes, or fails with one clear
line."""
import base64
import gzip
import os
import subprocess

import pytest

from harness.fault_proxy import LOGIN_PAGE, FaultProxy
from harness.http_server import Server
from harness.lying import ENV, Staging, sha256, short
from harness.program import binary

MIB = 1 << 20
SMALL = b"".join(b"%d,%d\n" % (n, n * n) for n in range(5000))
LARGE = os.urandom(9 * MIB)  # two ranges


@pytest.fixture
def staging(penstock, tmp_path):
    return Staging(penstock, tmp_path)


@pytest.fixture
def lying(http_server):
    """A proxy in front of http_server, which has /small.csv and /large.bin."""
    http_server.add("/small.csv", SMALL)
    http_server.add("/large.bin", LARGE)
    with FaultProxy(http_server.url) as proxy:
        yield proxy


def forever(**fault):
    return {"times": 10**6} | fault


NO_RANGES = {"ignore_range": True, "headers": {"Accept-Ranges": None}}

# Faults of the first replies, or of the replies for the second range (range="bytes=8388608-").
PASSES = {
    "cut in the beginning": {"cut_after": 1, "times": 2},
    "cut in the middle": {"cut_after": 20_000, "times": 2},
    "reset in the middle": {"cut_after": 20_000, "reset": True, "times": 2},
    "cut before the reply": {"drop": True},
    "reply lost": {"lose_reply": True},
    "stalls in the middle": {"hold": 20_000},
    "stalls before the reply": {"hold": "reply"},
    "never takes the request": {"hold": "request"},
    "claims more bytes than it has": {"claim": 10 * MIB},
    "says 500": {"status": 500},
    "says 503 with Retry-After": {"status": 503, "headers": {"Retry-After": "0"}},
    "says 429": {"status": 429, "headers": {"Retry-After": "0"}},
    "sends another range once": {"headers": {"Content-Range": "bytes 5-99/41000"}},
    "sends a range without Content-Range": {"headers": {"Content-Range": None}},
    "never sends ranges": forever(**NO_RANGES),
    "no ranges, and is cut": {"ignore_range": True, "cut_after": 20_000, "times": 2},
    "has no ETag": forever(headers={"ETag": None}),
    "has neither ETag nor length": forever(headers={"ETag": None, "Content-Length": None}, **{"ignore_range": True}),
}  # fmt: skip


SIZES = {"small": ("/small.csv", SMALL), "large": ("/large.bin", LARGE)}
CHOSEN = [
    "small: cut in the beginning", "small: reset in the middle", "small: cut before the reply", "small: claims more bytes than it has",
    "small: sends another range once", "small: has neither ETag nor length", "large: never sends ranges", "large: no ranges, and is cut",
]  # fmt: skip


@pytest.mark.parametrize("case", short([f"{size}: {name}" for size in SIZES for name in PASSES], *CHOSEN))
def test_an_input_comes_whole_although_its_server(staging, lying, case):
    size, name = case.split(": ")
    path, content = SIZES[size]
    lying.fault(method="GET", path=path, **PASSES[name])

    result, seen = staging.run(input={"http": {"url": lying.url + path}})

    result.ok()
    assert seen == {path[1:]: [seen[path[1:]][0], sha256(content)]}


SECOND = "bytes=8388608-"


# The first range has already arrived when the second one fails.
SECOND_RANGE = ["cut in the middle", "stalls in the middle", "says 503 with Retry-After", "reply lost", "claims more bytes than it has"]


@pytest.mark.parametrize("name", short(SECOND_RANGE, "cut in the middle", "reply lost"))
def test_the_second_range_comes_although_its_server(staging, lying, name):
    lying.fault(method="GET", path="/large.bin", range=SECOND, **PASSES[name])

    result, seen = staging.run(input={"http": {"url": lying.url + "/large.bin"}})

    result.ok()
    assert seen["large.bin"][1] == sha256(LARGE)


# A connection without progress is given up, and a new one is made.
def test_a_stalled_input_goes_on_over_a_new_connection(staging, lying):
    rule = lying.fault(method="GET", path="/small.csv", hold=20_000)

    result, seen = staging.run(input={"http": {"url": lying.url + "/small.csv"}})

    result.ok()
    first, second = lying.seen("GET", path="small")
    assert first.rule is rule and first.sent == 20_000 and second.headers["range"].startswith("bytes=20000-")
    assert seen["small.csv"][1] == sha256(SMALL)


# Permanent faults, and a word of the message about each.
FAILS = {
    "is cut each time": (forever(cut_after=100, headers={"ETag": None}, ignore_range=True), ""),
    "stalls each time": (forever(hold=0), ""),
    "claims more bytes each time": (forever(claim=10 * MIB, headers={"ETag": None}, ignore_range=True), ""),
    "sends another range": (forever(headers={"Content-Range": "bytes 5-99/41000"}), "Content-Range"),
    "sends a login page": (forever(status=200, body=LOGIN_PAGE, headers={"Content-Type": "text/html; charset=utf-8"}), ""),
    "encodes it without a request": (forever(rewrite=gzip.compress, ignore_range=True, headers={"Content-Encoding": "gzip"}), "Content-Encoding.*gzip"),
    "sends headers without end": (forever(endless="headers"), ""),
    "redirects in a loop": (forever(status=302, headers={"Location": "/small.csv"}), ""),
    "redirects to another scheme": (forever(status=302, headers={"Location": "file:///etc/passwd"}), ""),
    "is not found": (forever(status=404), "404"),
    "is forbidden": (forever(status=403), "403"),
    "is always busy": (forever(status=503, headers={"Retry-After": "0"}), "503"),
    "does not speak HTTP": (forever(status=99), ""),
}  # fmt: skip


LATER = ("stalls each time", "claims more bytes each time", "is not found", "redirects to another scheme", "is forbidden")


@pytest.mark.parametrize("name", short(FAILS, *(name for name in FAILS if name not in LATER)))
def test_an_input_fails_in_one_line_when_its_server(staging, lying, name):
    fault, says = FAILS[name]
    lying.fault(path="/small.csv", **fault)

    staging.fails("/small.csv", says, input={"http": {"url": lying.url + "/small.csv"}})


# With a digest in the workflow every change of the bytes is detected.
@pytest.mark.parametrize(
    "fault",
    [
        {"corrupt_at": 30_000},
        {"repeat_at": 16_384},
        {"truncate_to": 20_000, "ignore_range": True},
        {"rewrite": lambda body: body[::-1], "ignore_range": True},
    ],
    ids=["a bit flipped", "bytes repeated", "shorter", "other bytes"],
)
def test_a_digest_finds_every_lie(staging, lying, fault):
    lying.fault(path="/small.csv", **forever(**fault))

    staging.fails("/small.csv", "sha256", input={"http": {"url": lying.url + "/small.csv"}, "sha256": sha256(SMALL)})


# Each reply is of another version, and parts of two versions are never put together.
@pytest.mark.parametrize("shown", ["ETag", "Last-Modified", "nothing"])
def test_an_object_that_changes_between_its_ranges_is_not_mixed(staging, shown):
    versions = [bytes([65 + n]) * (9 * MIB) for n in range(2)]
    server = Server()
    try:
        server.add("/large.bin", versions[0], ETag='"v0"', Last_Modified="Mon, 01 Jan 2024 00:00:00 GMT")
        with FaultProxy(server.url) as proxy:
            hide = {"ETag": {}, "Last-Modified": {"ETag": None}, "nothing": {"ETag": None, "Last-Modified": None}}[shown]
            rule = proxy.fault(method="GET", range=SECOND, hold="request", headers=hide)
            proxy.fault(method="GET", headers=hide, times=10**6)
            file = staging.write(input={"http": {"url": proxy.url + "/large.bin"}})
            process = staging.penstock.popen("run", file, env=ENV | {"PENSTOCK_NETWORK_STALL": "60"})
            if shown != "nothing":
                rule.wait()
            server.add("/large.bin", versions[1], ETag='"v1"', Last_Modified="Tue, 02 Jan 2024 00:00:00 GMT")
            rule.release()
            result = process.wait()
    finally:
        server.close()

    if result.code == 0:
        assert sha256(versions[0]) in staging.seen.read_text() or sha256(versions[1]) in staging.seen.read_text()
    else:
        assert "/large.bin" in result.err and "changed" in result.err


# The server sends a login page in place of the archive, with any content type.
@pytest.mark.parametrize("kind", ["text/html", "application/gzip", "text/plain", None])
def test_a_login_page_is_no_archive(staging, lying, kind):
    lying.fault(path="/data.tar.gz", **forever(status=200, body=LOGIN_PAGE, headers={"Content-Type": kind}))

    staging.fails("/data.tar.gz", "", input={"http": {"url": lying.url + "/data.tar.gz"}})


# Some servers take .gz for a content encoding: they send the unchanged file with Content-Encoding.
def test_an_archive_whose_suffix_is_taken_for_an_encoding_is_kept(staging, http_server):
    packed = gzip.compress(SMALL)
    url = http_server.add("/small.csv.gz", packed, Content_Encoding="x-gzip", Content_Type="text/csv")

    result, seen = staging.run(input={"http": {"url": url}})

    result.ok()
    assert seen["small.csv.gz"][1] == sha256(packed) and seen["small.csv"][1] == sha256(SMALL)


# A redirect must not move a request from TLS to plain HTTP.
def test_a_redirect_from_https_to_http_is_not_followed(staging, https, http_server):
    plain = http_server.add("/plain.csv", SMALL)
    url = https.add("/small.csv", SMALL).replace("https://", "https://user:pa55w0rd@")
    https.fault("/small.csv", times=1000, status=302, headers={"Location": plain})

    result = staging.fails("/small.csv", "", env={"SSL_CERT_FILE": https.certificate}, input={"http": {"url": url}})

    assert https.requests and http_server.requests == [] and "pa55w0rd" not in result.text


# The password in a URL is sent only to the host of that URL.
def test_a_redirect_elsewhere_takes_no_password_along(staging, http_server):
    with FaultProxy(http_server.url) as other:
        http_server.add("/there.csv", SMALL)
        http_server.fault("/small.csv", times=1000, status=302, headers={"Location": other.url + "/there.csv"})
        url = http_server.url.replace("http://", "http://user:pa55w0rd@") + "/small.csv"

        result, seen = staging.run(input={"http": {"url": url}})

        result.ok()
        assert seen["small.csv"][1] == sha256(SMALL)
        first = [r for r in http_server.requests if r.path == "/small.csv"]
        assert first[0].headers["authorization"] == "Basic " + base64.b64encode(b"user:pa55w0rd").decode()
        assert other.requests and all("authorization" not in r.headers for r in other.requests)


# A body without an end and without a length is read until the space for inputs is used up. A small
# file system acts as a full disk.
def test_a_body_without_an_end_does_not_fill_the_disk(staging, lying, tmp_path):
    lying.fault(path="/small.csv", **forever(endless="body"))
    file = staging.write(input={"http": {"url": lying.url + "/small.csv"}})
    small = tmp_path / "small"
    small.mkdir()
    script = f"mount -t tmpfs -o size=64m none {small} && exec {binary()} run {file}"
    process = subprocess.run(
        ["unshare", "-m", "sh", "-c", script], env=staging.penstock.env | ENV | {"PENSTOCK_HOME": str(small / "home")},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    if "unshare" in process.stderr or "mount" in process.stderr:
        pytest.skip("a file system cannot be mounted here")

    assert process.returncode == 70, process.stderr
    assert "/small.csv" in process.stderr
