"""Objects with an empty part, which is the only part or the last one. These objects are stored,
copied, compared and fetched like any others."""
import subprocess

import pytest

from harness.program import binary

FULL = bytes(range(256)) * (5 * 4096)  # 5 MiB, the least that a part before the last may have
PARTS = {"only": [b""], "last": [FULL, b""]}


@pytest.fixture
def s3(penstock, store, tmp_path):
    """Runs verbs. s3.made has the objects of s3://bucket by name: another client has uploaded them, in PARTS."""
    client = store.client
    client.create_bucket(Bucket="bucket")

    def run(*arguments, **more):
        return penstock.run(*arguments, env=store.env, cwd=tmp_path, **more)

    run.store, run.folder, run.made = store, tmp_path, {name: b"".join(parts) for name, parts in PARTS.items()}
    for name, parts in PARTS.items():
        name = {"Bucket": "bucket", "Key": f"x/{name}"}
        upload = client.create_multipart_upload(**name)["UploadId"]
        etags = [client.upload_part(**name, UploadId=upload, PartNumber=i, Body=part)["ETag"] for i, part in enumerate(parts, 1)]
        listed = client.list_parts(**name, UploadId=upload)["Parts"]
        assert [part["Size"] for part in listed] == [len(part) for part in parts]
        whole = {"Parts": [{"PartNumber": i, "ETag": etag} for i, etag in enumerate(etags, 1)]}
        assert client.complete_multipart_upload(**name, UploadId=upload, MultipartUpload=whole)["ETag"].endswith(f'-{len(parts)}"')
    return run


def there(s3, prefix):
    return {key.removeprefix(prefix): s3.store.bytes("bucket", key) for key in s3.store.keys("bucket") if key.startswith(prefix)}


def here(s3, folder):
    return {path.name: path.read_bytes() for path in (s3.folder / folder).iterdir()}


def test_each_way_to_move_them(s3):
    assert there(s3, "x/") == s3.made
    s3("cp", "-r", "s3://bucket/x/", "down/").ok()
    assert here(s3, "down") == s3.made
    s3("cp", "-r", "s3://bucket/x/", "s3://bucket/copy/").ok()
    s3("mv", "-r", "s3://bucket/copy/", "s3://bucket/moved/").ok()
    assert there(s3, "moved/") == s3.made and there(s3, "copy/") == {}
    for name, body in s3.made.items():
        url = f"s3://bucket/x/{name}"
        cat = [binary(), "cat", url]
        assert subprocess.run(cat, env=s3.store.penstock.env | s3.store.env, stdout=subprocess.PIPE, timeout=120, check=True).stdout == body
        s3("cp", url, "one").ok()
        assert (s3.folder / "one").read_bytes() == body
        s3("cp", "--resume", url, "two").ok()
        assert (s3.folder / "two").read_bytes() == body
        assert s3("stat", "--json", url).json()[0]["size"] == len(body)


@pytest.mark.parametrize("way", [[], ["--checksum"]], ids=" ".join)
def test_a_sync_finds_nothing_to_do(s3, way):
    s3("sync", "s3://bucket/x", "down").ok()
    assert here(s3, "down") == s3.made

    for source, target in [("s3://bucket/x", "down"), ("down", "s3://bucket/x")]:
        assert s3("sync", "--json", "--dry-run", *way, source, target).ok().json() == []


# An empty part that is not the last is refused as too small, and the existing object stays.
def test_only_the_last_may_be_empty(s3):
    client, name = s3.store.client, {"Bucket": "bucket", "Key": "x/last"}
    upload = client.create_multipart_upload(**name)["UploadId"]
    etags = [client.upload_part(**name, UploadId=upload, PartNumber=i, Body=part)["ETag"] for i, part in enumerate([b"", FULL], 1)]

    with pytest.raises(client.exceptions.ClientError, match="EntityTooSmall"):
        whole = {"Parts": [{"PartNumber": i, "ETag": etag} for i, etag in enumerate(etags, 1)]}
        client.complete_multipart_upload(**name, UploadId=upload, MultipartUpload=whole)

    assert there(s3, "x/") == s3.made


# A client asks for single parts to find their sizes, because the ETag shows only their number.
def test_each_part_can_be_asked_for(s3):
    for name, parts in PARTS.items():
        for i, part in enumerate(parts, 1):
            asked = {"Bucket": "bucket", "Key": f"x/{name}", "PartNumber": i}
            assert s3.store.client.head_object(**asked)["ContentLength"] == len(part)
            assert s3.store.client.get_object(**asked)["Body"].read() == part
