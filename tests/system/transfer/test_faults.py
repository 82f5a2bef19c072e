"""cp, mv and sync while the store or the network fails: no success with a wrong byte, and each failure names the operation, the reason and the place."""
import os
import random

import pytest

from harness.fault_proxy import LOGIN_PAGE, s3_error

NAMES = [f"n{number}" for number in range(6)]
AT_ONCE = {"Retry-After": "0"}  # retried without a pause


def content(name, size=3000):
    return random.Random(name).randbytes(size)


@pytest.fixture
def s3(penstock, store, fault_proxy, tmp_path):
    """Runs verbs through the proxy, in a directory with the files d/n0, d/n1, …, which are also in
    s3://bucket/x/."""
    store.client.create_bucket(Bucket="bucket")
    (tmp_path / "d").mkdir()
    for name in NAMES:
        (tmp_path / "d" / name).write_bytes(content(name))
        store.client.put_object(Bucket="bucket", Key="x/" + name, Body=content(name))
    env = store.env | {"AWS_ENDPOINT_URL": fault_proxy.url, "PENSTOCK_NETWORK_STALL": "1"}

    def run(*arguments):
        return penstock.run(*arguments, env=env, cwd=tmp_path)

    run.store, run.folder, run.proxy = store, tmp_path, fault_proxy
    return run


def there(s3, prefix):
    return {key.removeprefix(prefix): s3.store.bytes("bucket", key) for key in s3.store.keys("bucket", prefix)}


def here(s3, folder):
    found = {}
    for name in os.listdir(s3.folder / folder) if (s3.folder / folder).exists() else []:
        found[name] = (s3.folder / folder / name).read_bytes()
    return found


RIGHT = {name: content(name) for name in NAMES}

# (the fault of requests for one of six objects, the number of faults, the exit code or None for any
# failure, a word of the message)
COMMON = [
    ({"status": 500, "headers": AT_ONCE}, 1, 0, ""),
    ({"status": 503, "headers": AT_ONCE, "body": s3_error("SlowDown")}, 2, 0, ""),
    ({"status": 429, "headers": AT_ONCE}, 1, 0, ""),
    ({"drop": True}, 1, 0, ""),
    ({"lose_reply": True}, 1, 0, ""),
    ({"status": 503, "headers": AT_ONCE, "body": s3_error("SlowDown")}, 1000, 69, "SlowDown"),
    ({"status": 500, "headers": AT_ONCE}, 1000, 69, "500"),
    ({"status": 403, "body": s3_error("AccessDenied")}, 1000, 77, "AccessDenied"),
    ({"status": 404, "body": s3_error("NoSuchBucket")}, 1000, 66, "NoSuchBucket"),
    ({"status": 400, "body": s3_error("InvalidRequest")}, 1000, None, "InvalidRequest"),
    ({"status": 418, "body": b"\0\xff garbage"}, 1000, None, "418"),
]

UP = COMMON + [
    ({"corrupt_request_at": 1500}, 1, 0, ""),
    ({"cut_request_after": 1500}, 1, 0, ""),
    ({"twice": True}, 1, 0, ""),
    ({"hold": "request"}, 1, 0, ""),  # a stall
    ({"corrupt_request_at": 1500}, 1000, 69, ""),
    ({"status": 200, "body": LOGIN_PAGE, "headers": {"Content-Type": "text/html"}}, 1000, 69, "login page"),
    ({"status": 200}, 1000, 69, "ETag"),
]

DOWN = COMMON + [
    ({"cut_after": 1500}, 1, 0, ""),
    ({"corrupt_at": 1500}, 1, None, ""),
    ({"hold": 1000}, 1, 0, ""),  # a stall
    ({"truncate_to": 1500}, 1000, 69, ""),
    ({"corrupt_at": 1500}, 1000, 69, ""),
    ({"repeat_at": 1500, "repeat": 100}, 1000, 69, ""),
    ({"claim": 1500}, 1000, 69, ""),
    ({"status": 200, "body": b"garbage"}, 1000, 69, ""),
    ({"status": 200, "body": LOGIN_PAGE, "headers": {"Content-Type": "text/html"}}, 1000, 69, ""),
]


def quick(faults):
    """Selects the faults that end soon. make check has no time for stalls, and for requests of which all attempts fail."""
    return [row for row in faults if "hold" not in row[0] and (row[1] < 1000 or row[0].get("status") in (200, 403, 404))]


EXTENT = pytest.mark.parametrize("extent", [quick, pytest.param(list, marks=pytest.mark.long)], ids=["quick", "all"])


def judge(s3, result, fault, code, word, found):
    """Checks that the result of the verb agrees with the objects and files."""
    if code is not None:
        assert result.code == code, (fault, result.text)
    if result.code == 0:
        assert found == RIGHT, fault
        return
    missing = set(RIGHT) - set(found)
    # A missing bucket ends the whole copy, so other files may not have been sent yet.
    ends = word == "NoSuchBucket" and "n3" in missing
    assert {name: RIGHT[name] for name in found} == found and (missing == {"n3"} or ends), (fault, sorted(found))
    lines = [line for line in result.err.splitlines() if not line.startswith("penstock: ")]
    assert len(lines) == 1 and "n3" in lines[0] and word in lines[0], (fault, result.err)


@EXTENT
def test_faults_of_uploads(s3, extent):
    for number, (fault, times, code, word) in enumerate(extent(UP)):
        rule = s3.proxy.fault(method="PUT", path="/n3$", times=times, **fault)

        result = s3("sync", "d", f"s3://bucket/up{number}")
        assert rule.hits, fault
        s3.proxy.clear()

        judge(s3, result, fault, code, word, there(s3, f"up{number}/"))
        s3("sync", "d", f"s3://bucket/up{number}").ok()
        assert there(s3, f"up{number}/") == RIGHT


@EXTENT
def test_faults_of_downloads(s3, extent):
    for number, (fault, times, code, word) in enumerate(extent(DOWN)):
        rule = s3.proxy.fault(method="GET", path="/n3$", times=times, **fault)

        result = s3("sync", "s3://bucket/x", f"down{number}")
        assert rule.hits, fault
        s3.proxy.clear()

        judge(s3, result, fault, code, word, here(s3, f"down{number}"))
        s3("sync", "s3://bucket/x", f"down{number}").ok()
        assert here(s3, f"down{number}") == RIGHT


@EXTENT
def test_faults_of_copies(s3, extent):
    for number, (fault, times, code, word) in enumerate(extent(COMMON)):
        rule = s3.proxy.fault(method="PUT", path="/n3$", times=times, **fault)

        result = s3("sync", "s3://bucket/x", f"s3://bucket/copy{number}")
        assert rule.hits, fault
        s3.proxy.clear()

        judge(s3, result, fault, code, word, there(s3, f"copy{number}/"))
        s3("sync", "s3://bucket/x", f"s3://bucket/copy{number}").ok()
        assert there(s3, f"copy{number}/") == RIGHT


# A failed move loses nothing: each object is at its source, at its target, or at both.
def test_faults_of_moves(s3):
    for number, (method, fault, times) in enumerate([
        ("PUT", {"status": 403}, 1000), ("POST|DELETE", {"status": 403, "body": s3_error("AccessDenied")}, 1000), ("PUT", {"lose_reply": True}, 1),
        ("POST|DELETE", {"lose_reply": True}, 1), ("HEAD", {"status": 403}, 1000), ("GET", {"status": 403}, 1000),
    ]):  # fmt: skip
        for name in NAMES:
            s3.store.client.put_object(Bucket="bucket", Key=f"from{number}/{name}", Body=content(name))
        s3.proxy.fault(method=method, times=times, when=lambda request: "n3" in request.path or request.method == "POST", **fault)

        result = s3("mv", "-r", f"s3://bucket/from{number}/", f"s3://bucket/to{number}/")
        s3.proxy.clear()

        before, after = there(s3, f"from{number}/"), there(s3, f"to{number}/")
        assert before | after == RIGHT and all(after[name] == RIGHT[name] for name in after), fault
        assert (result.code == 0) == (before == {}), (fault, result.text)
        s3("mv", "-r", f"s3://bucket/from{number}/", f"s3://bucket/to{number}/").ok()
        assert there(s3, f"to{number}/") == RIGHT and there(s3, f"from{number}/") == {}


# A listing that fails in the middle must not look like a shorter listing, because --delete would
# delete the copies of all objects that it lacks.
@pytest.mark.parametrize("fault", [{"status": 403}, {"status": 500, "headers": AT_ONCE}, {"truncate_to": 300}, {"status": 200, "body": b"<ListBucketResult/>"}])
def test_a_listing_that_fails_deletes_nothing(s3, fault):
    (s3.folder / "out").mkdir()
    (s3.folder / "out" / "old").write_text("old")
    s3.store.client.put_object(Bucket="bucket", Key="y/old", Body=b"old")
    s3.proxy.fault(method="GET", query="prefix=", times=1000, **fault)

    down = s3("sync", "--delete", "s3://bucket/x", "out")
    up = s3("sync", "--delete", "d", "s3://bucket/y")
    s3.proxy.clear()

    assert down.code and (up.code or there(s3, "y/")["old"] == b"old")
    assert (s3.folder / "out" / "old").read_text() == "old" and there(s3, "y/")["old"] == b"old"


# The file changes while it is sent: the stored object is a state that the file had, or is missing.
@pytest.mark.parametrize("change", ["shrinks", pytest.param("is rewritten", marks=pytest.mark.long)])
def test_a_file_that_changes_while_it_is_sent(s3, change):
    path = s3.folder / "big"
    path.write_bytes(content("big", 70 << 20))
    held = s3.proxy.fault(method="PUT", query="partNumber=2&", hold="request", times=1)

    process = s3.store.penstock.popen("cp", path, "d/n1", "s3://bucket/y/", env=s3.store.env | {"AWS_ENDPOINT_URL": s3.proxy.url}, cwd=s3.folder)
    held.wait()
    if change == "shrinks":
        os.truncate(path, 1000)
    else:
        path.write_bytes(content("other", 70 << 20))
    held.release()
    result = process.wait().exits(69)

    assert "big" in result.err and there(s3, "y/") == {"n1": RIGHT["n1"]}
    assert "Uploads" not in s3.store.client.list_multipart_uploads(Bucket="bucket")


# If-Match prevents a mix of the beginning of one version and the end of another.
@pytest.mark.parametrize("size", [3000, pytest.param(70 << 20, marks=pytest.mark.long)])
def test_an_object_that_is_replaced_while_it_is_fetched(s3, size):
    s3.store.client.put_object(Bucket="bucket", Key="y", Body=content("old", size))
    held = s3.proxy.fault(method="GET", path="/y$", hold="request", times=1000)  # a slow range is requested twice

    process = s3.store.penstock.popen("cp", "s3://bucket/y", "out", env=s3.store.env | {"AWS_ENDPOINT_URL": s3.proxy.url, "PENSTOCK_NETWORK_STALL": "60"}, cwd=s3.folder)
    held.wait()
    s3.store.client.put_object(Bucket="bucket", Key="y", Body=content("new", size))
    held.release()
    result = process.wait()

    assert result.code == 69 and "y" in result.err and not (s3.folder / "out").exists()


def test_a_disk_that_is_full_is_told(s3):
    result = s3("cp", "s3://bucket/x/n1", "/dev/full/x")
    assert result.code and "/dev/full" in result.err
    (s3.folder / "locked").mkdir()
    os.chmod(s3.folder / "d" / "n3", 0)
    if os.geteuid() != 0:
        result = s3("cp", "-r", "d", "s3://bucket/z/").exits(77)
        assert "n3" in result.err and set(there(s3, "z/d/")) == set(NAMES) - {"n3"}
