"""penstock's S3 client against moto and `penstock serve`; in `make check-full` against radosgw and MinIO, too."""
import hashlib
import os
import urllib.request

import pytest
from harness.s3tool import EXISTS, NOT_FOUND, PERMISSION, PRECONDITION, Tool

MIB = 1 << 20

# Operations for which a store ignores If-Match and If-None-Match; docs/stores.md has the
# consequences.
UNCONDITIONAL = {"radosgw": {"complete": False, "remove": False}, "minio": {"remove": False}}


@pytest.fixture(params=["moto", "penstock", *(pytest.param(name, marks=pytest.mark.long) for name in ("radosgw", "minio"))])
def s3(request, tmp_path):
    """A store with the empty bucket "bucket"."""
    if request.param == "moto":
        tool = Tool(tmp_path, request.getfixturevalue("moto"), "AKIDEXAMPLE", "not-a-secret")
    else:
        store = request.getfixturevalue("store" if request.param == "penstock" else request.param)
        tool = Tool(tmp_path, store.endpoint, store.access_key, store.secret_key)
        if request.param != "penstock":
            store.remove_bucket("bucket")
    tool.ok("bucket-create", "bucket")
    tool.store = request.param
    return tool


def make_file(path, size):
    path.write_bytes(os.urandom(size))
    return path


def test_an_object_comes_back_as_it_was_put(s3, tmp_path):
    source = make_file(tmp_path / "source", 3 * MIB + 17)

    (put,) = s3.json("put", "bucket", "dir/a b+c&ü%", source, METADATA="color=dark blue")
    (head,) = s3.json("head", "bucket", "dir/a b+c&ü%")
    (got,) = s3.json("get", "bucket", "dir/a b+c&ü%", tmp_path / "got")

    assert put["etag"] == head["etag"] == got["etag"] == f'"{hashlib.md5(source.read_bytes()).hexdigest()}"'
    assert head["size"] == 3 * MIB + 17
    assert head["metadata"] == {"color": "dark blue"}
    assert (tmp_path / "got").read_bytes() == source.read_bytes()
    assert not (tmp_path / "got.penstock-part").exists()


@pytest.mark.parametrize("size", [0, 1, 65536, 65537])
def test_small_objects_of_any_size_come_back(s3, tmp_path, size):
    source = make_file(tmp_path / "source", size)

    s3.ok("put", "bucket", "small", source)
    s3.ok("get", "bucket", "small", tmp_path / "got")

    assert (tmp_path / "got").read_bytes() == source.read_bytes()
    assert s3.ok("cat", "bucket", "small") == source.read_bytes()


def test_a_large_file_goes_up_in_parts_and_comes_down_in_ranges(s3, tmp_path):
    source = make_file(tmp_path / "source", 70 * MIB + 5)

    (put,) = s3.json("put", "bucket", "large", source, PART_SIZE=16 * MIB)
    s3.ok("get", "bucket", "large", tmp_path / "got")

    assert put["etag"].endswith('-5"')
    assert (tmp_path / "got").read_bytes() == source.read_bytes()


def test_a_range_is_a_range(s3, tmp_path):
    source = make_file(tmp_path / "source", MIB)
    s3.ok("put", "bucket", "object", source)

    assert s3.ok("cat", "bucket", "object", OFFSET=1000, LENGTH=5000) == source.read_bytes()[1000:6000]
    assert s3.ok("cat", "bucket", "object", OFFSET=MIB - 10) == source.read_bytes()[-10:]
    s3.ok("get", "bucket", "object", tmp_path / "got", OFFSET=MIB - 100, LENGTH=500)
    assert (tmp_path / "got").read_bytes() == source.read_bytes()[-100:]


def test_a_listing_of_more_than_a_page_is_complete_and_in_order(s3):
    keys = [f"many/{i:05}/ä&<{i}>" for i in range(1100)]
    s3.ok("put-many", "bucket", "many/%05d/ä&<%d>", 1100)

    assert [entry["key"] for entry in s3.json("list", "bucket", "many/")] == keys
    prefixes = [entry["key"] for entry in s3.json("list", "bucket", "many/000", DELIMITER="/") if entry.get("prefix")]
    assert prefixes == [f"many/{i:05}/" for i in range(100)]
    assert s3.json("delete-prefix", "bucket", "many/") == [{"deleted": 1100}]
    assert s3.json("list", "bucket", "") == []


def test_a_copy_is_made_by_the_store(s3, tmp_path):
    source = make_file(tmp_path / "source", MIB)
    (put,) = s3.json("put", "bucket", "from ü", source, METADATA="kind=original")

    s3.ok("copy", "bucket", "from ü", "bucket", "to/copy")
    (head,) = s3.json("head", "bucket", "to/copy")

    assert head["etag"] == put["etag"] and head["metadata"] == {"kind": "original"}
    s3.fails(PRECONDITION, "copy", "bucket", "from ü", "bucket", "x", IF_MATCH='"00000000000000000000000000000000"')


def test_a_large_copy_is_made_in_parts(s3, tmp_path):
    source = make_file(tmp_path / "source", 12 * MIB)
    s3.ok("put", "bucket", "large", source, METADATA="kind=original")

    (copy,) = s3.json("copy", "bucket", "large", "bucket", "copy", PART_SIZE=5 * MIB)
    (head,) = s3.json("head", "bucket", "copy")
    s3.ok("get", "bucket", "copy", tmp_path / "got")

    assert copy["etag"] == head["etag"] and copy["etag"].endswith('-3"')
    assert head["metadata"] == {"kind": "original"}
    assert (tmp_path / "got").read_bytes() == source.read_bytes()


def test_deleting_is_final_and_a_missing_object_is_fine(s3):
    s3.ok("put-text", "bucket", "gone", "text")

    s3.ok("delete", "bucket", "gone")
    s3.ok("delete", "bucket", "gone")

    assert "s3://bucket/gone" in s3.fails(NOT_FOUND, "head", "bucket", "gone")


def test_presigned_urls_work_without_credentials(s3):
    s3.ok("put-text", "bucket", "a b/ü", "shared text")

    get = s3.ok("presign", "GET", "bucket", "a b/ü").decode().strip()
    put = s3.ok("presign", "PUT", "bucket", "uploaded").decode().strip()
    with urllib.request.urlopen(get, timeout=30) as reply:
        assert reply.read() == b"shared text"
    request = urllib.request.Request(put, data=b"from outside", method="PUT", headers={"Content-Type": "text/plain"})
    urllib.request.urlopen(request, timeout=30).close()

    assert s3.ok("cat", "bucket", "uploaded") == b"from outside"


def test_conditions_hold(s3):
    (put,) = s3.json("put-text", "bucket", "claim", "mine", IF_NONE_MATCH=1)

    s3.fails(PRECONDITION, "put-text", "bucket", "claim", "theirs", IF_NONE_MATCH=1)
    s3.fails(PRECONDITION, "put-text", "bucket", "claim", "theirs", IF_MATCH='"00000000000000000000000000000000"')
    s3.ok("put-text", "bucket", "claim", "mine again", IF_MATCH=put["etag"])

    s3.fails(PRECONDITION, "put-text", "bucket", "not there", "theirs", IF_MATCH=put["etag"])

    assert s3.ok("cat", "bucket", "claim") == b"mine again"
    everywhere = {"put": True, "complete": True, "remove": True}
    assert s3.json("probe", "bucket", "") == [everywhere | UNCONDITIONAL.get(s3.store, {})]
    assert [entry["key"] for entry in s3.json("list", "bucket", "")] == ["claim"]


def test_a_tree_is_what_lies_below_the_path(s3, tmp_path):
    for key in ("foo/a", "foo/sub/b", "foobar", "foo/.penstock/runs/x", "foo/folder/"):
        s3.ok("put-text", "bucket", key, f"text of {key}" if not key.endswith("/") else "")

    (first,) = s3.json("tree", "bucket", "/foo", tmp_path / "tree")

    found = sorted(str(path.relative_to(tmp_path / "tree")) for path in (tmp_path / "tree").rglob("*"))
    assert found == ["a", "folder", "sub", "sub/b"]
    assert (tmp_path / "tree/sub/b").read_text() == "text of foo/sub/b"
    assert first["objects"] == 2 and first["fetched"] == 2


def test_a_tree_that_leaves_the_directory_is_refused_before_anything_is_written(s3, tmp_path):
    s3.ok("put-text", "bucket", "bad/fine", "text")
    done = s3.call("put-text", "bucket", "bad/../../evil", "text")
    if done.returncode:
        pytest.skip("this store does not take such a key: " + done.stderr.decode())

    assert "'..'" in s3.fails(1, "tree", "bucket", "/bad", tmp_path / "below" / "tree")
    assert not (tmp_path / "below").exists() and not (tmp_path / "evil").exists()


def test_an_interrupted_tree_goes_on_where_it_stopped(s3, tmp_path):
    for i in range(20):
        s3.ok("put-text", "bucket", f"data/{i:02}", f"text {i}")
    (tmp_path / "tree" / "13").mkdir(parents=True)
    assert "tree" in s3.fails(EXISTS, "tree", "bucket", "data", tmp_path / "tree", PARALLEL=1)
    (tmp_path / "tree" / "13").rmdir()

    (second,) = s3.json("tree", "bucket", "data", tmp_path / "tree", PARALLEL=1)

    assert second == {"bytes": 130, "directories": 0, "fetched": 7, "objects": 20, "skipped": 13}


def test_failures_name_the_object_and_what_to_do(s3):
    missing = s3.fails(NOT_FOUND, "put-text", "nosuchbucket", "key", "text")

    assert "NoSuchBucket" in missing and "s3://nosuchbucket/key" in missing


def test_refused_credentials_say_what_is_wrong_and_not_the_secret(store, tmp_path):
    s3 = Tool(tmp_path, store.endpoint, store.access_key, store.secret_key)
    s3.ok("bucket-create", "bucket")

    wrong = s3.fails(PERMISSION, "put-text", "bucket", "key", "text", AWS_SECRET_ACCESS_KEY="wrong-secret")
    unknown = s3.fails(PERMISSION, "put-text", "bucket", "key", "text", AWS_ACCESS_KEY_ID="AKNOBODY")
    s3.fails(PERMISSION, "head", "bucket", "key", ANONYMOUS=1)

    assert "SignatureDoesNotMatch" in wrong and "wrong-secret" not in wrong
    assert "InvalidAccessKeyId" in unknown
