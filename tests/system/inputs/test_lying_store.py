"""A store with wrong replies: nothing is lost or doubled, and no wrong byte is accepted."""
import os
import re

import pytest

from harness.fault_proxy import LOGIN_PAGE, s3_error
from harness.lying import ENV, Staging, s3_place, sha256, short
from harness.waiting import wait_for

MIB = 1 << 20
SMALL = os.urandom(100_000)
LARGE = os.urandom(33 * MIB)  # downloaded in ranges
HUGE = 65 * MIB  # uploaded in parts
GARBAGE = b"<?xml version='1.0'?><Half><Of a"
HTML = {"Content-Type": "text/html", "ETag": None}


def forever(**fault):
    return {"times": 10**6} | fault


@pytest.fixture
def staging(penstock, tmp_path):
    return Staging(penstock, tmp_path)


@pytest.fixture
def bucket(store):
    store.client.create_bucket(Bucket="bucket")
    return store


# --- stage-in


@pytest.fixture
def objects(bucket):
    bucket.client.put_object(Bucket="bucket", Key="in/small", Body=SMALL)
    return bucket


GET_PASSES = {
    "says 500": {"status": 500, "body": s3_error("InternalError")},
    "says 503 with Retry-After": {"status": 503, "body": s3_error("SlowDown"), "headers": {"Retry-After": "0"}},
    "cuts it": {"cut_after": 30_000, "times": 2},
    "resets it": {"cut_after": 30_000, "reset": True, "times": 2},
    "stalls": {"hold": 30_000},
    "does not answer": {"hold": "reply"},
    "sends a wrong bit once": {"corrupt_at": 50_000},
    "repeats bytes once": {"repeat_at": 50_000},
    "sends a login page once": {"status": 200, "body": LOGIN_PAGE, "headers": HTML},
    "returns a wrong checksum once": {"headers": {"x-amz-checksum-crc64nvme": "AAAAAAAAAAA=", "x-amz-checksum-type": "FULL_OBJECT"}},
}  # fmt: skip


@pytest.mark.parametrize("name", short(GET_PASSES, "cuts it", "sends a wrong bit once", "sends a login page once"))
def test_an_object_is_staged_although_its_store(staging, objects, fault_proxy, name):
    fault_proxy.fault(method="GET", path="/in/small$", **GET_PASSES[name])

    result, seen = staging.run(input=s3_place(objects, "/in", fault_proxy.url))

    result.ok()
    assert seen["small"][1] == sha256(SMALL)


@pytest.mark.parametrize("fault", [forever(ignore_range=True), {"corrupt_at": 5 * MIB}, {"cut_after": 5 * MIB}], ids=["ignores ranges", "sends a wrong bit", "cuts one"])
def test_a_large_object_is_staged_although_its_store(staging, bucket, fault_proxy, fault):
    bucket.client.put_object(Bucket="bucket", Key="in/large", Body=LARGE, ChecksumAlgorithm="CRC32")
    fault_proxy.fault(method="GET", path="/in/large$", **fault)

    result, seen = staging.run(input=s3_place(bucket, "/in", fault_proxy.url))

    result.ok()
    assert seen["large"][1] == sha256(LARGE)


GET_FAILS = {
    "says 403": ({"status": 403, "body": s3_error("AccessDenied")}, "AccessDenied"),
    "says 404": ({"status": 404, "body": s3_error("NoSuchKey")}, "NoSuchKey"),
    "says 500 each time": ({"status": 500, "body": s3_error("InternalError")}, "InternalError"),
    "sends a login page": ({"status": 200, "body": LOGIN_PAGE, "headers": HTML}, "bytes|page"),
    "sends a wrong bit each time": ({"corrupt_at": 50_000}, "checksum"),
    "repeats bytes each time": ({"repeat_at": 50_000}, "checksum"),
    "sends less": ({"truncate_to": 1000}, "1000"),
    "returns another ETag": ({"headers": {"ETag": '"00000000000000000000000000000000"'}}, ""),
    "returns no ETag": ({"headers": {"ETag": None}}, "ETag"),
    "redirects to a login": ({"status": 302, "headers": {"Location": "http://127.0.0.1:1/login"}}, "302|endpoint"),
}  # fmt: skip


@pytest.mark.parametrize("name", short(GET_FAILS, "says 403", "sends less", "returns another ETag", "repeats bytes each time"))
def test_staging_fails_in_one_line_when_a_store(staging, objects, fault_proxy, name):
    fault, says = GET_FAILS[name]
    fault_proxy.fault(method="GET", path="/in/small$", **forever(**fault))

    staging.fails("s3://bucket/in", says, input=s3_place(objects, "/in", fault_proxy.url))


def listing(*keys, more=None, prefix="in/"):
    """A page of a listing with these keys; `more`: the token of the next page."""
    entries = "".join(f'<Contents><Key>{key}</Key><Size>1</Size><ETag>"e"</ETag></Contents>' for key in keys)
    token = f"<NextContinuationToken>{more}</NextContinuationToken>" if more else ""
    truncated = "true" if more else "false"
    return f"<ListBucketResult><Prefix>{prefix}</Prefix><IsTruncated>{truncated}</IsTruncated>{token}{entries}</ListBucketResult>".encode()


class Pages:
    """Replies to each listing with another token, so that only the keys show that the listing
    repeats itself."""

    def __init__(self, length):
        self.length, self.number = length, 0

    def __call__(self, _):
        self.number += 1
        return listing(f"in/{self.number % self.length:04}", more=f"token-{self.number}")


LISTS = {
    "is garbage": ({"status": 200, "body": GARBAGE}, "<Half>"),
    "is empty": ({"status": 200, "body": b""}, ""),
    "is a login page": ({"status": 200, "body": LOGIN_PAGE, "headers": HTML}, ""),
    "is another document": ({"status": 200, "body": b"<CopyObjectResult/>"}, "CopyObjectResult"),
    "is forbidden": ({"status": 403, "body": s3_error("AccessDenied")}, "AccessDenied"),
    "is the same page forever": ({"status": 200, "body": lambda _: listing("in/a", more="same")}, ""),
    "repeats three pages": ({"status": 200, "body": Pages(3)}, ""),
    "repeats fifty pages": ({"status": 200, "body": Pages(50)}, ""),
    "has empty pages forever": ({"status": 200, "body": lambda _: listing(more=os.urandom(8).hex())}, ""),
    "has keys outside of the prefix": ({"status": 200, "body": lambda _: listing("in/a", "secret/b")}, "secret/b"),
    "has a key with dots": ({"status": 200, "body": lambda _: listing("in/../../outside")}, r"\.\./outside|\.\."),
    "has an absolute key": ({"status": 200, "body": lambda _: listing("in//etc/passwd")}, ""),
    "has a file that is a directory": ({"status": 200, "body": lambda _: listing("in/a", "in/a/b")}, "in/a"),
    "is cut in its middle": ({"truncate_to": 80}, ""),
}  # fmt: skip


@pytest.mark.parametrize("name", short(LISTS, "is garbage", "is a login page", "repeats fifty pages", "has keys outside of the prefix", "has a key with dots"))
def test_staging_fails_in_one_line_when_a_listing(staging, objects, fault_proxy, tmp_path, name):
    fault, says = LISTS[name]
    fault_proxy.fault(method="GET", query="list-type", **forever(**fault))

    staging.fails("s3://bucket", says, input=s3_place(objects, "/in", fault_proxy.url))

    assert not [path for path in tmp_path.rglob("*outside*")]


# --- the output while it is written, and at its end


def output_of(store, key):
    """Returns the object, or None if it is missing; checks that no upload is left over."""
    uploads = store.client.list_multipart_uploads(Bucket="bucket").get("Uploads", [])
    assert uploads == [], uploads
    return store.bytes("bucket", key) if key in store.keys("bucket", key) else None


PUT = {"method": "PUT", "path": "/out/data$"}
START = {"method": "POST", "query": "^uploads"}
PART = {"method": "PUT", "query": "partNumber=2"}
COMPLETE = {"method": "POST", "query": "^uploadId="}

PUT_PASSES = {
    "says 500": (PUT, {"status": 500, "body": s3_error("InternalError")}),
    "carries it out and says 500": (PUT, {"status": 500, "body": s3_error("InternalError"), "carry_out": True}),
    "says 503": (PUT, {"status": 503, "body": s3_error("SlowDown"), "headers": {"Retry-After": "0"}}),
    "cuts the request": (PUT, {"cut_request_after": 10_000}),
    "drops it": (PUT, {"drop": True}),
    "loses the reply": (PUT, {"lose_reply": True}),
    "loses the reply twice": (PUT, {"lose_reply": True, "times": 2}),
    "gets it with a wrong bit": (PUT, {"corrupt_request_at": 10_000}),
    "gets it twice": (PUT, {"twice": True}),
    "answers with a login page": (PUT, {"status": 200, "body": LOGIN_PAGE, "headers": HTML}),
    "answers with nothing": (PUT, {"status": 200, "headers": {"ETag": None}}),
    "returns a wrong checksum": (PUT, {"headers": {"x-amz-checksum-crc64nvme": "AAAAAAAAAAA="}}),
    "returns a wrong ETag": (PUT, {"headers": {"ETag": '"00000000000000000000000000000000"'}}),
}  # fmt: skip
PARTS_PASS = {
    "loses the reply to the start": (START, {"status": 500, "body": s3_error("InternalError")}),
    "starts with garbage": (START, {"status": 200, "body": GARBAGE}),
    "says 500 to a part": (PART, {"status": 500, "body": s3_error("InternalError")}),
    "loses the reply to a part": (PART, {"lose_reply": True}),
    "gets a part with a wrong bit": (PART, {"corrupt_request_at": 10_000}),
    "cuts a part": (PART, {"cut_request_after": 1 * MIB}),
    "returns a wrong checksum of a part": (PART, {"headers": {"x-amz-checksum-crc64nvme": "AAAAAAAAAAA="}}),
    "loses the reply to Complete": (COMPLETE, {"lose_reply": True}),
    "loses it twice": (COMPLETE, {"lose_reply": True, "times": 2}),
    "completes and says 500": (COMPLETE, {"status": 500, "body": s3_error("InternalError"), "carry_out": True}),
    "completes and says garbage": (COMPLETE, {"status": 200, "body": GARBAGE, "carry_out": True}),
    "completes and says nothing": (COMPLETE, {"status": 200, "carry_out": True}),
    "completes and shows a login page": (COMPLETE, {"status": 200, "body": LOGIN_PAGE, "headers": HTML, "carry_out": True}),
    "replies 200 with an error": (COMPLETE, {"status": 200, "body": s3_error("InternalError")}),
    "does not complete, and shows a login page": (COMPLETE, {"status": 200, "body": LOGIN_PAGE, "headers": HTML}),
}  # fmt: skip


def publish(staging, store, endpoint, content_size, **options):
    """Publishes zeros, not text: the sync also publishes the beginning of a text while its writer
    is still writing."""
    command = f"head -c {content_size} /dev/zero > $DEEPSQUARE_OUTPUT/data"
    file = staging.write(command, output=s3_place(store, "/out", endpoint), continuousOutputSync=True)
    return staging.penstock.run("run", file, env=ENV | options)


@pytest.mark.parametrize("name", short(PUT_PASSES, "loses the reply", "gets it with a wrong bit", "answers with a login page", "carries it out and says 500"))
def test_an_output_is_published_although_the_store(staging, bucket, fault_proxy, name):
    where, fault = PUT_PASSES[name]
    fault_proxy.fault(**where, **fault)

    publish(staging, bucket, fault_proxy.url, 100_000).ok()

    assert output_of(bucket, "out/data") == bytes(100_000)


@pytest.mark.parametrize("name", short(PARTS_PASS, "loses the reply to Complete", "completes and says garbage"))
def test_a_large_output_is_published_once_although_the_store(staging, bucket, fault_proxy, name):
    where, fault = PARTS_PASS[name]
    fault_proxy.fault(**where, **fault)

    # A store with a sanitizer takes seconds to complete an upload of this size.
    publish(staging, bucket, fault_proxy.url, HUGE, PENSTOCK_NETWORK_STALL="60").ok()

    assert output_of(bucket, "out/data") == bytes(HUGE)
    if "carry_out" in fault or "lose_reply" in fault and where is COMPLETE:
        # The store recognises a repeated CompleteMultipartUpload, and sends the first reply again.
        assert len({r.query for r in fault_proxy.seen(**COMPLETE) if r.carried_out == 200}) == 1


REFUSES = {
    "500": ({"status": 500, "body": s3_error("InternalError")}, "penstock flush"),
    "403": ({"status": 403, "body": s3_error("AccessDenied")}, "AccessDenied"),
    "quota": ({"status": 403, "body": s3_error("QuotaExceeded")}, "QuotaExceeded"),
    "full": ({"status": 507, "body": s3_error("StorageFull")}, "StorageFull"),
    "login page": ({"status": 200, "body": LOGIN_PAGE, "headers": HTML}, "penstock flush"),
    "garbage": ({"status": 200, "body": GARBAGE}, "penstock flush"),
    "dropped": ({"drop": True}, "penstock flush"),
    "corrupted": ({"corrupt_request_at": 10}, "penstock flush"),
}


# An output that is always refused stays on this machine, and `penstock flush` uploads it once the store accepts it. (Failures that may be temporary
# are retried; which of them is reported depends on the time at which PENSTOCK_FLUSH_PATIENCE ends.)
@pytest.mark.parametrize("name", short(REFUSES, "quota", "login page"))
def test_what_a_store_refuses_is_kept_and_flushed_later(staging, bucket, fault_proxy, name):
    fault, says = REFUSES[name]
    rule = fault_proxy.fault(**PUT, **forever(**fault))

    result = publish(staging, bucket, fault_proxy.url, 100_000, PENSTOCK_FLUSH_PATIENCE="1").exits(73)
    assert re.search(says, result.err) and output_of(bucket, "out/data") is None
    rule.stop()
    run = re.search(r"penstock flush (\S+?)'", result.err).group(1)
    staging.penstock.run("flush", run).ok()

    assert output_of(bucket, "out/data") == bytes(100_000)


# --- files of the earlier attempt that a resumed run reads


@pytest.fixture
def interrupted(staging, bucket, fault_proxy):
    """A run that was killed after it had published two files; continue_() resumes it elsewhere, without any of its local files."""
    mark = staging.folder / "mark"
    command = (
        f"if test -e {mark}; then cat $DEEPSQUARE_OUTPUT/kept $DEEPSQUARE_OUTPUT/more > $DEEPSQUARE_OUTPUT/both; exit; fi; "
        f"echo one > $DEEPSQUARE_OUTPUT/kept; echo two > $DEEPSQUARE_OUTPUT/more; touch {mark}; exec sleep 600"
    )
    file = staging.write(command, output=s3_place(bucket, "/out", fault_proxy.url), continuousOutputSync=True)
    process = staging.penstock.popen("run", file, env=ENV | {"PENSTOCK_STOP_GRACE": "0"})
    manifest = lambda: [key for key in bucket.keys("bucket", "out/") if key.endswith("/manifest.json")]  # noqa: E731
    wait_for(lambda: manifest() and b'"more"' in bucket.bytes("bucket", manifest()[0]) and b'"kept"' in bucket.bytes("bucket", manifest()[0]), 60, "both in the manifest")
    process.send(15)
    process.wait().exits(75)

    def continue_(**env):
        # Only the published state exists, as on another machine.
        for path in (staging.penstock.home / "runs").glob("*/storage*"):
            wipe(path)
        return staging.penstock.run("run", file, env=ENV | env)

    return continue_


def wipe(path):
    for found in sorted(path.rglob("*"), reverse=True):
        found.unlink() if not found.is_dir() or found.is_symlink() else None


PAST = {"state": "/state.json$", "manifest": "/manifest.json$", "file": "/out/kept$"}


def cases(faults):
    return [f"{what}: {fault}" for what in PAST for fault in faults]


READS = {
    "500": {"status": 500, "body": s3_error("InternalError")},
    "503": {"status": 503, "body": s3_error("SlowDown"), "headers": {"Retry-After": "0"}},
    "cut": {"cut_after": 10},
    "wrong bit": {"corrupt_at": 1},
    "login page": {"status": 200, "body": LOGIN_PAGE, "headers": HTML},
    "shorter": {"truncate_to": 3},
}


@pytest.mark.parametrize("case", short(cases(READS), "state: login page", "manifest: wrong bit", "file: shorter"))
def test_a_run_goes_on_although_once_the_store_answers(interrupted, bucket, fault_proxy, case):
    what, fault = case.split(": ")
    fault_proxy.fault(method="GET", path=PAST[what], **READS[fault])

    result = interrupted()
    if result.code != 0 and fault == "shorter":
        assert "s3://bucket" in result.err
        result = interrupted()

    result.ok()
    assert output_of(bucket, "out/both") == b"one\ntwo\n"


LASTING = {
    "403": {"status": 403, "body": s3_error("AccessDenied")},
    "500": {"status": 500, "body": s3_error("InternalError")},
    "garbage": {"rewrite": lambda body: body[: len(body) // 2] + b"\0garbage"},
    "wrong bits": {"corrupt_at": 1},
    "login page": {"status": 200, "body": LOGIN_PAGE, "headers": HTML},
    "empty": {"truncate_to": 0},
}


# A run that could not read the published state deletes and overwrites nothing.
@pytest.mark.parametrize("case", short(cases(LASTING), "state: garbage", "manifest: login page", "file: wrong bits"))
def test_a_run_that_cannot_read_its_past_changes_nothing(interrupted, bucket, fault_proxy, case):
    what, fault = case.split(": ")
    rule = fault_proxy.fault(method="GET", path=PAST[what], **forever(**LASTING[fault]))

    result = interrupted()
    rule.stop()

    assert result.code not in (0, None) and "s3://bucket/out" in result.err, result.text
    assert (bucket.bytes("bucket", "out/kept"), bucket.bytes("bucket", "out/more")) == (b"one\n", b"two\n")
    interrupted().ok()
    assert output_of(bucket, "out/both") == b"one\ntwo\n"
