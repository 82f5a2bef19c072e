"""Replication of a bucket of `penstock serve` to other stores."""
import json
import os

import pytest

from harness.program import Store
from harness.waiting import wait_for

pytestmark = pytest.mark.long
MIB = 1 << 20


@pytest.fixture
def here(penstock, peer, tmp_path):
    """A store whose bucket `bkt` is replicated to `copy` of another store."""
    peer.client.create_bucket(Bucket="copy")
    peer.client.put_bucket_versioning(Bucket="copy", VersioningConfiguration={"Status": "Enabled"})
    targets = tmp_path / "targets.json"
    targets.touch(0o600)
    targets.write_text(json.dumps([{"name": "copy", "endpoint": peer.endpoint, "access_key_id": peer.access_key, "secret_access_key": peer.secret_key}]))
    store = Store(penstock, tmp_path / "here", options=["--replication", targets, "--replication-retry", "50ms"])
    store.client.create_bucket(Bucket="bkt")
    store.client.put_bucket_versioning(Bucket="bkt", VersioningConfiguration={"Status": "Enabled"})
    store.client.put_bucket_replication(Bucket="bkt", ReplicationConfiguration={
        "Role": "arn:aws:iam::000000000000:role/r",
        "Rules": [{"Priority": 1, "Status": "Enabled", "Filter": {"Prefix": ""}, "DeleteMarkerReplication": {"Status": "Enabled"},
                   "Destination": {"Bucket": "arn:aws:s3:::copy"}}]})  # fmt: skip
    yield store
    store.stop()


def completed(store, key):
    wait_for(lambda: store.client.head_object(Bucket="bkt", Key=key).get("ReplicationStatus") == "COMPLETED", 60, what=f"{key} is replicated")


def test_an_object_arrives_with_its_headers_metadata_and_tags(here, peer):
    here.client.put_object(Bucket="bkt", Key="d/k", Body=b"text", ContentType="text/x", CacheControl="no-cache", Metadata={"one": "1"}, Tagging="k=v")
    completed(here, "d/k")

    replica = peer.client.get_object(Bucket="copy", Key="d/k")
    assert (replica["Body"].read(), replica["ContentType"], replica["CacheControl"], replica["Metadata"]) == (b"text", "text/x", "no-cache", {"one": "1"})
    assert peer.client.get_object_tagging(Bucket="copy", Key="d/k")["TagSet"] == [{"Key": "k", "Value": "v"}]


@pytest.mark.parametrize("sums", [{}, {"ChecksumAlgorithm": "CRC32"}, {"ChecksumAlgorithm": "SHA256"}], ids=["none", "crc32", "sha256"])
def test_an_object_in_parts_has_the_same_etag(here, peer, sums):
    s3, parts, bodies = here.client, [], [os.urandom(5 * MIB), os.urandom(MIB)]
    upload = s3.create_multipart_upload(Bucket="bkt", Key="big", **sums)["UploadId"]
    for number, body in enumerate(bodies, 1):
        part = s3.upload_part(Bucket="bkt", Key="big", UploadId=upload, PartNumber=number, Body=body, **sums)
        parts.append({"PartNumber": number} | {name: value for name, value in part.items() if name == "ETag" or name.startswith("ChecksumS") or name == "ChecksumCRC32"})
    made = s3.complete_multipart_upload(Bucket="bkt", Key="big", UploadId=upload, MultipartUpload={"Parts": parts})
    completed(here, "big")

    replica = peer.client.get_object(Bucket="copy", Key="big")
    assert replica["ETag"] == made["ETag"] and replica["Body"].read() == b"".join(bodies)


def test_versions_arrive_in_their_order_and_markers_hide_them(here, peer):
    for i in range(20):
        here.client.put_object(Bucket="bkt", Key="k", Body=f"{i}".encode())
    completed(here, "k")
    assert peer.client.get_object(Bucket="copy", Key="k")["Body"].read() == b"19"
    here.client.delete_object(Bucket="bkt", Key="k")
    wait_for(lambda: "Contents" not in peer.client.list_objects_v2(Bucket="copy"), 60, what="the delete marker is replicated")
    page = peer.client.list_object_versions(Bucket="copy", Prefix="k")
    assert len(page["Versions"]) == 20 and len(page["DeleteMarkers"]) == 1
