"""Single transfers that SIGKILL ends again and again: the next call resumes, and little is sent twice."""
import os
import random

import pytest
from harness.fault_proxy import FaultProxy
from harness.s3tool import Tool
from harness.slow_link import SlowLink
from harness.waiting import wait_for

MIB = 1 << 20
PARALLEL = 2
OVERHEAD = 1.02  # requests, headers


class Interrupted:
    """A store behind a link, and a client whose calls are killed after a number of bytes."""

    def __init__(self, store, home, slow):
        self.link = SlowLink(store.endpoint, slow)
        self.direct = Tool(home, store.endpoint, store.access_key, store.secret_key)
        self.tool = Tool(home, self.link.url, store.access_key, store.secret_key)
        self.direct.ok("bucket-create", "bucket")
        self.kills = 0

    def kill_after(self, size, *arguments, **env):
        """Kills the call once the link has carried `size` bytes. Returns True if the call was still
        running then."""
        self.link.hold(after=size)
        process = self.tool.popen(*arguments, **env)
        wait_for(lambda: self.link.held() or process.poll() is not None, 60, "the bytes, or the end")
        running = process.poll() is None
        process.kill()
        _, err = process.communicate(timeout=60)
        self.link.refuse()
        self.link.open()
        self.kills += running
        assert running or process.returncode == 0, err.decode()
        return running

    def through_kills(self, kills, least, most, *arguments, check, **env):
        """Repeats the call until it succeeds. Kills up to `kills` calls, each after `least` to `most` bytes."""
        points = random.Random(2)
        while self.kills < kills:
            if not self.kill_after(points.randint(least, most), *arguments, **env):
                return
            check()
        self.tool.ok(*arguments, **env)


@pytest.fixture
def interrupted(store, tmp_path):
    made = []

    def make(slow):
        made.append(Interrupted(store, tmp_path, slow))
        return made[-1]

    yield make
    for one in made:
        one.link.close()


def random_bytes(path, size):
    path.write_bytes(os.urandom(size))
    return path


LONG = pytest.param(200 * MIB, 12, 1 * MIB, 60 * MIB, marks=pytest.mark.long)


@pytest.mark.parametrize("size, kills, least, most", [(40 * MIB, 2, 19 * MIB, 20 * MIB), LONG])
def test_a_download_that_is_killed_again_and_again_is_whole_and_brings_little_twice(interrupted, tmp_path, size, kills, least, most):
    source = random_bytes(tmp_path / "source", size)
    at = interrupted("down")
    at.direct.ok("put", "bucket", "large", source)
    got = tmp_path / "got"

    def nothing_is_visible():
        assert not got.exists()

    at.through_kills(
        kills, least, most, "get", "bucket", "large", got, check=nothing_is_visible, RESUME=1, PARALLEL=PARALLEL
    )

    assert got.read_bytes() == source.read_bytes()
    # A kill loses at most the last block of each range in flight.
    assert at.link.carried < size * OVERHEAD + at.kills * PARALLEL * 2 * MIB
    assert not list(tmp_path.glob("*.penstock-part"))


@pytest.mark.parametrize("size, kills, least, most", [(30 * MIB, 2, 24 * MIB, 24 * MIB), LONG])
def test_an_upload_that_is_killed_again_and_again_is_whole_and_sends_little_twice(interrupted, tmp_path, size, kills, least, most):
    source = random_bytes(tmp_path / "source", size)
    at = interrupted("up")
    options = {"RESUME_DIR": tmp_path / "journals", "PARALLEL": 1, "PART_SIZE": 5 * MIB}

    def nothing_is_visible():
        assert at.direct.json("list", "bucket", "") == []

    at.through_kills(kills, least, most, "put", "bucket", "large", source, check=nothing_is_visible, **options)

    at.direct.ok("get", "bucket", "large", tmp_path / "got")
    assert (tmp_path / "got").read_bytes() == source.read_bytes()
    # A kill loses at most the part in flight and a part whose reply was lost.
    assert at.link.carried < size * OVERHEAD + at.kills * 2 * 5 * MIB
    assert list((tmp_path / "journals").iterdir()) == []
    assert at.direct.json("list-uploads", "bucket", "") == []


# The parts in flight are lost if the process is killed, so a resumable upload has only 4 parts in
# flight until the speed of the link is known. Other uploads have 8 parts in flight, and more once
# their bytes move fast.
@pytest.mark.parametrize("resumable, at_once", [(True, 4), (False, 8)])
def test_few_parts_of_a_resumable_upload_are_under_way_before_its_link_is_known(store, tmp_path, resumable, at_once):
    source = random_bytes(tmp_path / "source", 60 * MIB)
    proxy = FaultProxy(store.endpoint)
    try:
        tool = Tool(tmp_path, proxy.url, store.access_key, store.secret_key)
        tool.ok("bucket-create", "bucket")
        held = proxy.fault(method="PUT", query="partNumber=", hold="request", times=100)
        options = {"RESUME_DIR": tmp_path / "journals"} if resumable else {}
        process = tool.popen("put", "bucket", "large", source, PART_SIZE=5 * MIB, **options)

        held.wait(at_once)
        if resumable:
            with pytest.raises(AssertionError):
                wait_for(lambda: held.hits > at_once, 0.5, "one more")
        held.release()
        _, err = process.communicate(timeout=60)

        assert process.returncode == 0, err.decode()
        tool.ok("get", "bucket", "large", tmp_path / "got")
        assert (tmp_path / "got").read_bytes() == source.read_bytes()
    finally:
        proxy.close()


def test_what_changes_between_two_kills_never_ends_mixed(interrupted, tmp_path):
    first, second = random_bytes(tmp_path / "first", 16 * MIB), random_bytes(tmp_path / "second", 16 * MIB)
    source = tmp_path / "source"
    at = interrupted("up")
    options = {"RESUME_DIR": tmp_path / "journals", "PARALLEL": PARALLEL, "PART_SIZE": 5 * MIB}

    source.write_bytes(first.read_bytes())
    assert at.kill_after(13 * MIB, "put", "bucket", "large", source, **options)
    # The changed file keeps its inode, its size and its time.
    before = source.stat()
    source.write_bytes(second.read_bytes())
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))
    at.tool.ok("put", "bucket", "large", source, **options)

    at.direct.ok("get", "bucket", "large", tmp_path / "got")
    assert (tmp_path / "got").read_bytes() == second.read_bytes()
    assert at.direct.json("list-uploads", "bucket", "") == []


def test_an_object_that_is_replaced_between_two_kills_is_fetched_anew(interrupted, tmp_path):
    first, second = random_bytes(tmp_path / "first", 33 * MIB), random_bytes(tmp_path / "second", 33 * MIB)
    at = interrupted("down")

    at.direct.ok("put", "bucket", "large", first)
    assert at.kill_after(24 * MIB, "get", "bucket", "large", tmp_path / "got", RESUME=1)
    at.direct.ok("put", "bucket", "large", second)
    at.tool.ok("get", "bucket", "large", tmp_path / "got", RESUME=1)

    assert (tmp_path / "got").read_bytes() == second.read_bytes()
    assert not list(tmp_path.glob("*.penstock-part"))


# Abandoned uploads are listed, and aborted by age; uploads of other keys, and objects, stay.
def test_unfinished_uploads_are_listed_and_ended(penstock, store, tmp_path):
    store.client.create_bucket(Bucket="bucket")
    store.client.put_object(Bucket="bucket", Key="runs/a", Body=b"an object")
    ids = {key: store.client.create_multipart_upload(Bucket="bucket", Key=key)["UploadId"] for key in ("runs/a", "runs/b", "other")}

    def run(*arguments):
        return penstock.run(*arguments, env=store.env, cwd=tmp_path)

    def left():
        return sorted(upload["Key"] for upload in store.client.list_multipart_uploads(Bucket="bucket").get("Uploads", []))

    listed = run("ls", "--uploads", "--json", "s3://bucket/runs/").json()
    assert {entry["key"]: entry["upload_id"] for entry in listed} == {key: ids[key] for key in ("runs/a", "runs/b")}
    assert run("ls", "--uploads", "s3://bucket").ok().out.count("s3://bucket/") == 3

    run("rm", "--uploads", "s3://bucket/runs/").ok()  # none of them is a day old
    run("rm", "--uploads", "--older-than", "0", "--dry-run", "s3://bucket/runs/").ok()
    assert left() == ["other", "runs/a", "runs/b"]
    run("rm", "--uploads", "--older-than", "0", "s3://bucket/runs/").ok()
    assert left() == ["other"]
    assert store.client.get_object(Bucket="bucket", Key="runs/a")["Body"].read() == b"an object"

    assert "--older-than" in run("rm", "--uploads", "--older-than", "soon", "s3://bucket/").exits(64).err
    run("rm", "--uploads", "some-run").exits(64)
    run("ls", "--uploads").exits(64)


# An upload without a start time may have been started just now, by a client that will continue it.
def test_uploads_of_unknown_age_are_left_alone(penstock, http_server, tmp_path):
    xml = b"<ListMultipartUploadsResult><Upload><Key>k</Key><UploadId>u</UploadId></Upload></ListMultipartUploadsResult>"
    for path in ("/bucket", "/bucket/"):
        http_server.add(path, xml)
    env = {"AWS_ENDPOINT_URL": http_server.url, "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "not-a-secret"}

    result = penstock.run("rm", "--uploads", "--dry-run", "s3://bucket/", env=env, cwd=tmp_path).ok()
    forced = penstock.run("rm", "--uploads", "--older-than", "0", "--dry-run", "s3://bucket/", env=env, cwd=tmp_path).ok()

    assert result.out == "" and "s3://bucket/k" in forced.out
