"""cp, mv and sync while another program changes their files: nothing is deleted or overwritten without a copy."""
import os
import subprocess

import pytest

from harness.fault_proxy import FaultProxy
from harness.program import binary
from harness.small_store import SmallStore


class Fixture:
    """A store with s3://bucket behind a proxy, and a directory for local files."""

    def __init__(self, penstock, env, client, url, folder):
        self.penstock, self.client, self.folder = penstock, client, folder
        self.proxy = FaultProxy(url)
        self.direct = url
        self.env = env | {"AWS_ENDPOINT_URL": self.proxy.url}
        client.create_bucket(Bucket="bucket")

    def __call__(self, *arguments, env=None):
        return self.penstock.run(*arguments, env=self.env | (env or {}), cwd=self.folder)

    def start(self, *arguments):
        return self.penstock.popen(*arguments, env=self.env, cwd=self.folder)

    def cat(self, url):
        """Returns the output, as bytes."""
        made = [binary(), "cat", url]
        return subprocess.run(made, env=self.penstock.env | self.env, stdout=subprocess.PIPE, timeout=120, check=True).stdout

    def put(self, key, body):
        self.client.put_object(Bucket="bucket", Key=key, Body=body)

    def there(self):
        listed = self.client.list_objects_v2(Bucket="bucket").get("Contents", [])
        return {entry["Key"]: self.client.get_object(Bucket="bucket", Key=entry["Key"])["Body"].read() for entry in listed}


@pytest.fixture
def ours(penstock, store, tmp_path):
    (tmp_path / "work").mkdir()
    made = Fixture(penstock, store.env, store.client, store.endpoint, tmp_path / "work")
    yield made
    made.proxy.close()


@pytest.fixture
def moto_store(penstock, moto, tmp_path):
    import boto3

    keys = {"aws_access_key_id": "AKIDEXAMPLE", "aws_secret_access_key": "not-a-secret", "region_name": "us-east-1"}
    (tmp_path / "work").mkdir()
    env = {name.upper().replace("REGION_NAME", "AWS_REGION"): value for name, value in keys.items()}
    made = Fixture(penstock, env, boto3.client("s3", endpoint_url=moto, **keys), moto, tmp_path / "work")
    yield made
    made.proxy.close()


# --- mv


# Another client has replaced the source after it was copied, so the new object has no copy.
@pytest.mark.parametrize("target", ["s3://bucket/new/", "new/"])
@pytest.mark.parametrize("sources", [["-r", "s3://bucket/old/"], ["s3://bucket/old/a", "s3://bucket/old/b"], ["s3://bucket/old/*"]])
def test_a_source_that_is_replaced_before_it_is_removed_stays(ours, sources, target):
    ours.put("old/a", b"a")
    ours.put("old/b", b"b")
    held = ours.proxy.fault(method="POST", query="delete", hold="request")

    moving = ours.start("mv", *sources, target)
    held.wait()
    ours.put("old/b", b"later")
    held.release()
    result = moving.wait().exits(69)

    assert "s3://bucket/old/b" in result.err
    there = ours.there()
    assert there.pop("old/b") == b"later" and "old/a" not in there
    moved = there if target.startswith("s3") else {f"new/{name}": (ours.folder / "new" / name).read_bytes() for name in os.listdir(ours.folder / "new")}
    assert moved == {"new/a": b"a", "new/b": b"b"}


# If the store ignores the condition, penstock sends a HEAD right before each deletion.
@pytest.mark.parametrize("target", ["s3://bucket/new/", "new/"])
def test_a_store_without_conditions_is_asked_before(moto_store, target):
    moto_store.put("old/a", b"a")
    moto_store.put("old/b", b"b")
    held = moto_store.proxy.fault(method="HEAD", path="/old/b$", hold="request")

    moving = moto_store.start("mv", "-r", "s3://bucket/old/", target)
    held.wait()
    moto_store.put("old/b", b"later")
    held.release()
    result = moving.wait().exits(69)

    assert "s3://bucket/old/b" in result.err
    assert moto_store.there()["old/b"] == b"later" and "old/a" not in moto_store.there()


# The reply to the deletion is lost. The retry finds no object, or its condition fails.
def test_a_deletion_that_was_carried_out_unheard_is_no_failure(ours):
    ours.put("old/a", b"a")
    lost = ours.proxy.fault(method="POST", query="delete", lose_reply=True)

    ours("mv", "s3://bucket/old/a", "s3://bucket/new").ok()

    assert lost.hits and ours.there() == {"new": b"a"}


# The two addresses lead to the same store, but do not show it. The object would be "moved" onto
# itself, and then removed.
@pytest.mark.parametrize("what", [["s3://bucket/k", "s3://bucket/k"], ["-r", "s3://bucket/", "s3://bucket/"], ["s3://bucket/big", "s3://bucket/big"]])
def test_an_object_is_not_moved_onto_itself_by_another_address(ours, what):
    ours.put("k", b"k")
    ours.put("big", bytes(9 << 20))

    result = ours("mv", *what, "--source-endpoint-url", ours.direct)

    assert result.code == 66
    assert ours.there() == {"k": b"k", "big": bytes(9 << 20)}


# Another file has the name now, not the file that was sent.
@pytest.mark.parametrize("size", [1000, 70 << 20])
def test_a_file_that_is_replaced_before_it_is_removed_stays(ours, size):
    (ours.folder / "f").write_bytes(bytes(size))
    (ours.folder / "later").write_bytes(b"later")
    held = ours.proxy.fault(method="PUT" if size < 1 << 20 else "POST", query=None if size < 1 << 20 else "uploadId=", hold="reply")

    moving = ours.start("mv", "f", "s3://bucket/f")
    held.wait()
    os.rename(ours.folder / "later", ours.folder / "f")
    held.release()
    result = moving.wait().exits(69)

    assert result.code != 0
    assert (ours.folder / "f").read_bytes() == b"later" and ours.there() == {"f": bytes(size)}


# --- copies through this machine


def test_many_copies_between_stores_at_a_time_are_whole(ours):
    bodies = {f"a/{i}": os.urandom(9_000_000 + i) for i in range(20)}
    for key, body in bodies.items():
        ours.client.put_object(Bucket="bucket", Key=key, Body=body)

    ours("cp", "-r", "--source-endpoint-url", ours.direct, "s3://bucket/a/", "s3://bucket/b/").ok()

    there = ours.there()
    for key, body in bodies.items():
        assert there["b" + key[1:]] == body, key


def test_what_a_web_server_is_told_of_an_object_goes_along(ours):
    properties = {"CacheControl": "no-cache", "ContentEncoding": "gzip", "ContentDisposition": "attachment", "ContentType": "text/plain"}
    for key, size in (("small", 10), ("medium", 5_000_000), ("large", 20_000_000)):
        ours.client.put_object(Bucket="bucket", Key=key, Body=bytes(size), **properties)

        ours("cp", "--source-endpoint-url", ours.direct, f"s3://bucket/{key}", f"s3://bucket/{key}-copy").ok()

        head = ours.client.head_object(Bucket="bucket", Key=f"{key}-copy")
        assert head["ContentLength"] == size and {name: head.get(name) for name in properties} == properties


# --- --no-clobber and --if-none-match


# The target does not exist when the command starts, and is made while the command runs.
@pytest.mark.parametrize("option, code", [("--no-clobber", 0), ("--if-none-match", 69)])
@pytest.mark.parametrize("size", [1000, 9 << 20])
@pytest.mark.parametrize("verb", ["cp", "mv"])
def test_a_file_that_appears_meanwhile_is_not_written_over(ours, verb, size, option, code):
    ours.put("f", bytes(size))
    held = ours.proxy.fault(method="GET", path="/f$", hold="reply")

    copying = ours.start(verb, option, "s3://bucket/f", "f")
    held.wait()
    (ours.folder / "f").write_bytes(b"mine")
    held.release()
    result = copying.wait().exits(code)

    assert ("1 skipped" if code == 0 else "f") in result.err
    assert (ours.folder / "f").read_bytes() == b"mine" and os.listdir(ours.folder) == ["f"]
    assert ours.there() == {"f": bytes(size)}


def test_a_file_that_appears_while_a_web_server_answers_is_not_written_over(ours, http_server):
    http_server.add("/f", b"theirs")
    proxy = FaultProxy(http_server.url)
    held = proxy.fault(method="GET", hold="reply")

    copying = ours.start("cp", "--no-clobber", proxy.url + "/f", "f")
    held.wait()
    (ours.folder / "f").write_bytes(b"mine")
    held.release()
    copying.wait().exits(0)
    proxy.close()

    assert (ours.folder / "f").read_bytes() == b"mine" and os.listdir(ours.folder) == ["f"]


# --- links that appear in a tree


def swap_for_link(ours):
    """Replaces out/dir with a link that leads out of the tree."""
    os.rename(ours.folder / "out/dir", ours.folder / "taken away")
    (ours.folder / "out/dir").symlink_to("../outside")


@pytest.fixture
def outside(ours):
    (ours.folder / "outside").mkdir()
    (ours.folder / "outside/old").write_bytes(b"precious")
    (ours.folder / "out/dir").mkdir(parents=True)
    return lambda: {name: (ours.folder / "outside" / name).read_bytes() for name in os.listdir(ours.folder / "outside")}


def test_a_sync_deletes_nothing_beyond_a_link_that_appeared(ours, outside):
    (ours.folder / "out/dir/old").write_bytes(b"old")
    (ours.folder / "out/other").write_bytes(b"other")
    ours.put("x/new", b"new")
    held = ours.proxy.fault(method="GET", path="/x/new$", hold="reply")

    syncing = ours.start("sync", "--delete", "s3://bucket/x", "out")
    held.wait()
    swap_for_link(ours)
    held.release()
    result = syncing.wait().exits(69)

    assert "out/dir/old" in result.err
    assert outside() == {"old": b"precious"} and sorted(os.listdir(ours.folder / "out")) == ["dir", "new"]


@pytest.mark.parametrize("options", [[], ["--resume"], ["--preserve"]])
@pytest.mark.parametrize("size", [1000, 100_000, 9 << 20])
def test_nothing_is_fetched_through_a_link_that_appeared(ours, outside, size, options):
    for name in ("a", "old", "z"):
        ours.put(f"x/dir/{name}", bytes(size))
    held = ours.proxy.fault(method="GET", path="/x/dir/", hold="reply", times=1000)

    copying = ours.start("cp", "-r", *options, "s3://bucket/x/", "out")
    held.wait()
    swap_for_link(ours)
    held.release()
    copying.wait()

    assert outside() == {"old": b"precious"}
    assert ours.there() == {f"x/dir/{name}": bytes(size) for name in ("a", "old", "z")}


def test_no_directory_is_made_through_a_link(ours, outside):
    ours.put("x/dir/sub/", b"")
    swap_for_link(ours)

    result = ours("cp", "-r", "--preserve", "s3://bucket/x/", "out")

    assert result.code and "out/dir" in result.err and outside() == {"old": b"precious"}


# --- files with names like penstock's own


# A user may have files whose names end like those of penstock.
def test_files_of_the_user_with_names_like_ours_are_the_users(ours):
    names = ["a", "a.penstock-part", "b.journal.penstock-part", "c.0123456789abcdef.penstock-part"]
    (ours.folder / "d").mkdir()
    for name in names:
        (ours.folder / "d" / name).write_bytes(name.encode())

    ours("sync", "--delete", "d", "s3://bucket").ok()
    assert ours.there() == {name: name.encode() for name in names}
    ours("sync", "--delete", "d", "s3://bucket").ok()
    ours("sync", "--delete", "s3://bucket", "d").ok()
    assert ours.there() == {name: name.encode() for name in names} and sorted(os.listdir(ours.folder / "d")) == names
    ours.put("a", bytes(9 << 20))
    ours("cp", "s3://bucket/a", "d/a").ok()

    assert (ours.folder / "d/a.penstock-part").read_bytes() == b"a.penstock-part"


# A partial download is not a file of the user, with or without a journal.
@pytest.mark.parametrize("options", [[], ["--no-resume"]])
def test_what_a_kill_has_left_of_a_download_is_not_sent(ours, options):
    ours.put("x/big", bytes(40 << 20))
    held = ours.proxy.fault(method="GET", path="/x/big$", hold=100_000, times=1000)

    copying = ours.start("cp", *options, "s3://bucket/x/big", "d/")
    held.wait(2)
    copying.kill()
    copying.wait()
    ours.proxy.clear()
    left = os.listdir(ours.folder / "d")
    (ours.folder / "d/mine").write_bytes(b"mine")
    ours("sync", "d", "s3://bucket/y").ok()

    assert len(left) == (1 if options else 2)
    assert [key for key in ours.there() if key.startswith("y/")] == ["y/mine"]


# --- objects in parts without a checksum


MIB = 1 << 20
SMALL, OF_TWO, LARGE = [1000], [5 * MIB, MIB], [8 * MIB, 4 * MIB]


@pytest.fixture
def parted(moto_store):
    """parted(sizes): uploads s3://bucket/parted in parts of these sizes; the store returns only an ETag."""

    def make(sizes):
        upload = {"Bucket": "bucket", "Key": "parted"}
        upload["UploadId"] = moto_store.client.create_multipart_upload(**upload)["UploadId"]
        bodies, parts = [os.urandom(size) for size in sizes], []
        for number, body in enumerate(bodies, 1):
            made = moto_store.client.upload_part(**upload, PartNumber=number, Body=body)
            parts.append({"PartNumber": number, "ETag": made["ETag"]})
        moto_store.client.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})
        return b"".join(bodies)

    return make


@pytest.mark.parametrize("sizes", [SMALL, OF_TWO, LARGE], ids=str)
def test_damaged_bytes_of_an_object_in_parts_are_found_by_its_etag(moto_store, parted, sizes):
    data = parted(sizes)
    damaged = moto_store.proxy.fault(method="GET", path="/parted$", corrupt_at=700)

    moto_store("cp", "s3://bucket/parted", "parted").ok()

    assert damaged.hits and (moto_store.folder / "parted").read_bytes() == data


# Bytes that were written to stdout cannot be taken back, so the verb fails.
@pytest.mark.parametrize("sizes", [SMALL, LARGE], ids=str)
def test_a_stream_of_an_object_in_parts_is_verified(moto_store, parted, sizes):
    data = parted(sizes)

    assert moto_store.cat("s3://bucket/parted") == data
    moto_store.proxy.fault(method="GET", path="/parted$", corrupt_at=700)
    told = moto_store("cat", "s3://bucket/parted").exits(69).err
    assert "s3://bucket/parted" in told
    moto_store.proxy.fault(method="GET", path="/parted$", corrupt_at=700)
    moto_store("cp", "s3://bucket/parted", "-").exits(69)


# A store that encrypts may return ETags that do not depend on the bytes. Such an ETag does not show
# damage.
@pytest.mark.parametrize("size", [1000, 12 * MIB])
def test_an_etag_that_says_nothing_of_the_bytes_is_no_failure(penstock, tmp_path, size):
    with SmallStore() as store:
        data = os.urandom(size)
        for key in ("a", "b"):
            store.put(f"bucket/{key}", data).odd_etag = '"0123456789abcdef0123456789abcdef-1"'

        penstock.run("cp", "-r", "s3://bucket/", tmp_path / "all", env=store.env).ok()
        seen = subprocess.run([binary(), "cat", "s3://bucket/a"], env=penstock.env | store.env, stdout=subprocess.PIPE, timeout=120, check=True).stdout

    assert (tmp_path / "all/a").read_bytes() == (tmp_path / "all/b").read_bytes() == seen == data
