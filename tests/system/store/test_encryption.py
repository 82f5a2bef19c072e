"""Encryption at rest: keys of the store (SSE-S3) and keys of customers (SSE-C)."""
import base64
import hashlib
import os
import secrets
import shutil

import pytest
from botocore.exceptions import ClientError

from harness.program import Store
from harness.s3_wire import Wire

from .test_post import Form, post
from .test_read_many import ask, results

MIB = 1024 * 1024
METHOD = "x-amz-server-side-encryption"
CUSTOMER = METHOD + "-customer-"
SOURCE = "x-amz-copy-source-server-side-encryption-customer-"
SIZES = [0, 1, 16384, 16385, 300_001]
KEY, OTHER = b"k" * 32, b"o" * 32


def text(data):
    return base64.b64encode(data).decode()


def key_headers(key, prefix=CUSTOMER):
    return {prefix + "algorithm": "AES256", prefix + "key": text(key), prefix + "key-MD5": text(hashlib.md5(key).digest())}


def key_args(key, prefix=""):
    """Returns boto3's arguments for a customer's key. With the MD5 given, no version of boto3
    encodes the key itself."""
    md5 = text(hashlib.md5(key).digest())
    return {prefix + "SSECustomerAlgorithm": "AES256", prefix + "SSECustomerKey": text(key), prefix + "SSECustomerKeyMD5": md5}


MODES = {"plain": {}, "store": {"ServerSideEncryption": "AES256"}, "key": key_args(KEY), "other": key_args(OTHER)}


def read_args(mode):
    return MODES[mode] if mode in ("key", "other") else {}


def source_args(mode):
    return {"CopySource" + name: value for name, value in read_args(mode).items()}


def assert_mode(reply, mode):
    headers = {name.lower(): value for name, value in reply["ResponseMetadata"]["HTTPHeaders"].items()}
    assert headers.get(METHOD) == ("AES256" if mode == "store" else None)
    key = {"key": KEY, "other": OTHER}.get(mode)
    assert headers.get(CUSTOMER + "key-md5") == (text(hashlib.md5(key).digest()) if key else None)
    assert headers.get(CUSTOMER + "algorithm") == ("AES256" if key else None)


def default_rule(algorithm="AES256", **more):
    return {"Rules": [{"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": algorithm} | more}]}


def refused(call, **arguments):
    with pytest.raises(ClientError) as failure:
        call(**arguments)
    reply = failure.value.response
    return reply["ResponseMetadata"]["HTTPStatusCode"], reply["Error"]["Code"]


def on_disk(root, needle):
    return [path.name for path in root.rglob("*") if path.is_file() and needle in path.read_bytes()]


@pytest.fixture
def s3(store):
    store.client.create_bucket(Bucket="bkt")
    return store.client


def assert_reads(s3, key, mode, data):
    reply = s3.get_object(Bucket="bkt", Key=key, **read_args(mode))
    assert reply["Body"].read() == data
    assert_mode(reply, mode)
    assert_mode(s3.head_object(Bucket="bkt", Key=key, **read_args(mode)), mode)
    for first, last in ((0, 0), (len(data) // 2, len(data) - 1), (16383, 16384), (len(data) - 1, len(data) - 1)):
        if first <= last < len(data):
            part = s3.get_object(Bucket="bkt", Key=key, Range=f"bytes={first}-{last}", **read_args(mode))
            assert part["Body"].read() == data[first : last + 1]


# --- objects


@pytest.mark.parametrize("mode", ["store", "key"])
def test_the_disk_has_no_byte_of_an_encrypted_object(s3, store, mode):
    for size in SIZES:
        data = (secrets.token_bytes(32) * (size // 32 + 1))[:size]

        put = s3.put_object(Bucket="bkt", Key="k", Body=data, **MODES[mode])

        assert_mode(put, mode)
        assert_reads(s3, "k", mode, data)
        assert (put["ETag"] == f'"{hashlib.md5(data).hexdigest()}"') == (mode == "store")
        assert size < 32 or on_disk(store.root, data[:32]) == []
    store.stop().ok()
    store.start()
    assert_reads(store.client, "k", mode, data)


def test_the_same_bytes_and_key_have_the_same_etag(s3):
    one, again = (s3.put_object(Bucket="bkt", Key="k", Body=b"x", **MODES["key"])["ETag"] for _ in range(2))
    other = s3.put_object(Bucket="bkt", Key="k", Body=b"x", **MODES["other"])["ETag"]
    checked = s3.put_object(Bucket="bkt", Key="k", Body=b"x", ContentMD5=text(hashlib.md5(b"x").digest()), **MODES["key"])["ETag"]

    assert one == again == checked != other


# As at AWS, the status is 403 for a wrong key and 400 for a missing key; listings need no key.
def test_an_object_of_a_customer_needs_its_key(s3):
    s3.put_object(Bucket="bkt", Key="k", Body=b"x" * 50_000, **MODES["key"])
    s3.put_object(Bucket="bkt", Key="plain", Body=b"x")
    attributes = {"ObjectAttributes": ["ETag", "ObjectSize"]}

    assert refused(s3.get_object, Bucket="bkt", Key="k") == (400, "InvalidRequest")
    assert refused(s3.head_object, Bucket="bkt", Key="k")[0] == 400
    assert refused(s3.get_object_attributes, Bucket="bkt", Key="k", **attributes) == (400, "InvalidRequest")
    assert refused(s3.copy_object, Bucket="bkt", Key="c", CopySource="bkt/k") == (400, "InvalidRequest")
    assert refused(s3.get_object, Bucket="bkt", Key="k", **key_args(OTHER)) == (403, "AccessDenied")
    assert refused(s3.head_object, Bucket="bkt", Key="k", **key_args(OTHER))[0] == 403
    assert refused(s3.get_object_attributes, Bucket="bkt", Key="k", **attributes, **key_args(OTHER)) == (403, "AccessDenied")
    assert refused(s3.copy_object, Bucket="bkt", Key="c", CopySource="bkt/k", **source_args("other")) == (403, "AccessDenied")
    assert refused(s3.get_object, Bucket="bkt", Key="plain", **key_args(KEY)) == (400, "InvalidRequest")
    assert s3.get_object_attributes(Bucket="bkt", Key="k", **attributes, **key_args(KEY))["ObjectSize"] == 50_000
    assert [each["Size"] for each in s3.list_objects_v2(Bucket="bkt")["Contents"]] == [50_000, 1]
    s3.delete_object(Bucket="bkt", Key="k")


@pytest.mark.parametrize(
    "method, query, headers, status, code",
    [
        ("PUT", "", {METHOD: "aws:kms"}, 501, "NotImplemented"),
        ("PUT", "", {METHOD: "aws:kms:dsse"}, 501, "NotImplemented"),
        ("PUT", "", {METHOD: "aws:kms", METHOD + "-aws-kms-key-id": "k"}, 501, "NotImplemented"),
        ("POST", "uploads=", {METHOD: "aws:kms"}, 501, "NotImplemented"),
        ("PUT", "", {METHOD: "aws:kms", "x-amz-copy-source": "bkt/k"}, 501, "NotImplemented"),
        ("PUT", "", {METHOD: "AES128"}, 400, "InvalidArgument"),
        ("PUT", "", {METHOD: "aes256"}, 400, "InvalidArgument"),
        ("PUT", "", {METHOD: "AES256", METHOD + "-aws-kms-key-id": "k"}, 400, "InvalidArgument"),
        ("PUT", "", {METHOD + "-aws-kms-key-id": "k"}, 400, "InvalidArgument"),
        ("PUT", "", {METHOD + "-context": "e30="}, 400, "InvalidArgument"),
        ("PUT", "", {METHOD + "-bucket-key-enabled": "true"}, 400, "InvalidArgument"),
        ("PUT", "", {METHOD + "-unknown": "1"}, 501, "NotImplemented"),
        ("PUT", "", {METHOD: "AES256"} | key_headers(KEY), 400, "InvalidArgument"),
        ("PUT", "", {METHOD: "aws:kms"} | key_headers(KEY), 400, "InvalidArgument"),
        ("PUT", "", key_headers(KEY) | {CUSTOMER + "algorithm": "AES192"}, 400, "InvalidEncryptionAlgorithmError"),
        ("PUT", "", key_headers(KEY) | {CUSTOMER + "key-MD5": text(bytes(16))}, 400, "InvalidArgument"),
        ("PUT", "", key_headers(KEY[:31]), 400, "InvalidArgument"),
        ("PUT", "", key_headers(KEY) | {CUSTOMER + "key": "*" * 44}, 400, "InvalidArgument"),
        ("PUT", "", {CUSTOMER + "algorithm": "AES256"}, 400, "InvalidArgument"),
        ("PUT", "", {CUSTOMER + "key": text(KEY)}, 400, "InvalidArgument"),
        ("PUT", "", {n: v for n, v in key_headers(KEY).items() if "MD5" not in n}, 400, "InvalidArgument"),
        ("PUT", "", key_headers(KEY, SOURCE), 400, "InvalidArgument"),
        ("GET", "", {METHOD: "AES256"}, 400, "InvalidArgument"),
        ("PUT", "tagging=", {METHOD: "AES256"}, 400, "InvalidArgument"),
        ("DELETE", "", key_headers(KEY), 400, "InvalidArgument"),
        ("GET", "tagging=", key_headers(KEY), 400, "InvalidArgument"),
    ],
)
def test_what_is_not_done_is_refused(s3, store, method, query, headers, status, code):
    s3.put_object(Bucket="bkt", Key="k", Body=b"old")
    body = b"new" if method == "PUT" else b""

    reply = Wire(store).send(method, "/bkt/k", query, headers, body)

    assert (reply.status, reply.code) == (status, code), reply.body
    assert store.bytes("bkt", "k") == b"old"


# --- copies and parts


@pytest.mark.parametrize("target", MODES)
@pytest.mark.parametrize("source", MODES)
def test_copies_change_the_encryption(s3, store, source, target):
    for size in (10, 40_000):
        data = secrets.token_bytes(size)
        s3.put_object(Bucket="bkt", Key="k", Body=data, **MODES[source])

        copy = s3.copy_object(Bucket="bkt", Key="copy", CopySource="bkt/k", **MODES[target], **source_args(source))

        assert_mode(copy, target)
        assert_reads(s3, "copy", target, data)
        etag = s3.head_object(Bucket="bkt", Key="copy", **read_args(target))["ETag"]
        assert (etag.strip('"') == hashlib.md5(data).hexdigest()) == (target in ("plain", "store"))
        assert (data[:10] in b"".join(path.read_bytes() for path in store.root.rglob("*") if path.is_file())) == ("plain" in (source, target))
        s3.delete_object(Bucket="bkt", Key="k")
        assert_reads(s3, "copy", target, data)


def test_a_copy_with_the_same_key_shares_the_file(s3, store):
    for mode in ("plain", "store", "key"):
        s3.put_object(Bucket="bkt", Key=mode, Body=bytes(100_000), **MODES[mode])
        s3.copy_object(Bucket="bkt", Key=mode + "-copy", CopySource=f"bkt/{mode}", **MODES[mode], **source_args(mode))

    assert sum(path.is_file() for path in (store.root / "data").rglob("*")) == 3


# An object may be copied to itself to change its encryption.
def test_an_object_is_encrypted_in_its_place(s3):
    s3.put_object(Bucket="bkt", Key="k", Body=b"x" * 20_000, Metadata={"m": "v"})

    s3.copy_object(Bucket="bkt", Key="k", CopySource="bkt/k", ServerSideEncryption="AES256")

    assert_reads(s3, "k", "store", b"x" * 20_000)
    assert s3.head_object(Bucket="bkt", Key="k")["Metadata"] == {"m": "v"}


@pytest.mark.parametrize("mode", ["plain", "store", "key"])
def test_an_upload_in_parts_is_encrypted(s3, store, mode):
    parts = [secrets.token_bytes(5 * MIB), secrets.token_bytes(MIB + 5)]
    whole = b"".join(parts) + parts[0][10 : 5 * MIB]
    s3.put_object(Bucket="bkt", Key="source", Body=parts[0], **MODES["store"])
    args = read_args(mode)

    begun = s3.create_multipart_upload(Bucket="bkt", Key="k", **MODES[mode])
    upload = {"Bucket": "bkt", "Key": "k", "UploadId": begun["UploadId"]}
    sent = [s3.upload_part(**upload, PartNumber=1, Body=parts[0], **args)]
    sent += [s3.upload_part(**upload, PartNumber=2, Body=parts[1] + bytes(4 * MIB), **args)]
    copied = s3.upload_part_copy(**upload, PartNumber=3, CopySource="bkt/source", CopySourceRange=f"bytes=10-{5 * MIB - 1}", **args)
    whole = parts[0] + parts[1] + bytes(4 * MIB) + parts[0][10:]
    etags = [each["ETag"] for each in sent] + [copied["CopyPartResult"]["ETag"]]
    listed = s3.list_parts(**upload)["Parts"]
    s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": [{"PartNumber": i, "ETag": e} for i, e in enumerate(etags, 1)]}, **args)

    assert [each["ETag"] for each in listed] == etags
    for reply in (begun, *sent, copied):
        assert_mode(reply, mode)
    assert_reads(s3, "k", mode, whole)
    edge = s3.get_object(Bucket="bkt", Key="k", Range=f"bytes={5 * MIB - 3}-{5 * MIB + 2}", **args)["Body"].read()
    assert edge == whole[5 * MIB - 3 : 5 * MIB + 3]
    assert s3.get_object(Bucket="bkt", Key="k", PartNumber=3, **args)["Body"].read() == parts[0][10:]
    assert mode == "plain" or on_disk(store.root, parts[1][:32]) == []


def test_each_part_needs_the_key_of_its_upload(s3):
    s3.put_object(Bucket="bkt", Key="source", Body=b"s")
    upload = {"Bucket": "bkt", "Key": "k", "UploadId": s3.create_multipart_upload(Bucket="bkt", Key="k", **MODES["key"])["UploadId"]}
    clear = {"Bucket": "bkt", "Key": "k", "UploadId": s3.create_multipart_upload(Bucket="bkt", Key="k")["UploadId"]}

    for call, more in ((s3.upload_part, {"Body": b"x"}), (s3.upload_part_copy, {"CopySource": "bkt/source"})):
        assert refused(call, **upload, PartNumber=1, **more) == (400, "InvalidRequest")
        assert refused(call, **upload, PartNumber=1, **more, **key_args(OTHER)) == (400, "InvalidRequest")
        assert refused(call, **clear, PartNumber=1, **more, **key_args(KEY)) == (400, "InvalidRequest")
    part = s3.upload_part(**upload, PartNumber=1, Body=b"x", **key_args(KEY))
    parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
    assert refused(s3.list_parts, **upload, **key_args(OTHER)) == (400, "InvalidRequest")
    assert refused(s3.complete_multipart_upload, **upload, MultipartUpload=parts, **key_args(OTHER)) == (400, "InvalidRequest")
    s3.complete_multipart_upload(**upload, MultipartUpload=parts)
    assert_reads(s3, "k", "key", b"x")


# AWS documents that CompleteMultipartUpload needs the key if the object gets a checksum.
def test_an_upload_with_a_checksum_is_completed_with_its_key(s3):
    begun = s3.create_multipart_upload(Bucket="bkt", Key="k", ChecksumAlgorithm="CRC32", **MODES["key"])
    upload = {"Bucket": "bkt", "Key": "k", "UploadId": begun["UploadId"]}
    part = s3.upload_part(**upload, PartNumber=1, Body=b"x", ChecksumAlgorithm="CRC32", **key_args(KEY))
    parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"], "ChecksumCRC32": part["ChecksumCRC32"]}]}

    assert refused(s3.complete_multipart_upload, **upload, MultipartUpload=parts) == (400, "InvalidRequest")
    done = s3.complete_multipart_upload(**upload, MultipartUpload=parts, **key_args(KEY))

    assert done["ChecksumCRC32"].endswith("-1")
    copy = s3.copy_object(Bucket="bkt", Key="copy", CopySource="bkt/k", **source_args("key"))
    assert copy["CopyObjectResult"]["ChecksumCRC32"] == part["ChecksumCRC32"]


# --- buckets, forms, many reads


def test_the_default_of_a_bucket_encrypts(s3, store):
    missing = (404, "ServerSideEncryptionConfigurationNotFoundError")
    s3.put_object(Bucket="bkt", Key="before", Body=b"b")

    assert refused(s3.get_bucket_encryption, Bucket="bkt") == missing
    s3.put_bucket_encryption(Bucket="bkt", ServerSideEncryptionConfiguration=default_rule())
    [rule] = s3.get_bucket_encryption(Bucket="bkt")["ServerSideEncryptionConfiguration"]["Rules"]
    assert rule == {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}, "BucketKeyEnabled": False}
    assert_mode(s3.put_object(Bucket="bkt", Key="k", Body=b"k" * 99), "store")
    assert_mode(s3.put_object(Bucket="bkt", Key="own", Body=b"o", **MODES["key"]), "key")
    assert_mode(s3.copy_object(Bucket="bkt", Key="copy", CopySource="bkt/before"), "store")
    assert_mode(s3.create_multipart_upload(Bucket="bkt", Key="parts"), "store")
    assert_reads(s3, "k", "store", b"k" * 99)
    assert_reads(s3, "copy", "store", b"b")
    assert_reads(s3, "before", "plain", b"b")
    s3.delete_bucket_encryption(Bucket="bkt")
    assert refused(s3.get_bucket_encryption, Bucket="bkt") == missing
    assert_mode(s3.put_object(Bucket="bkt", Key="after"), "plain")
    assert refused(s3.put_bucket_encryption, Bucket="none", ServerSideEncryptionConfiguration=default_rule()) == (404, "NoSuchBucket")


@pytest.mark.parametrize(
    "rule, expected",
    [
        ("<SSEAlgorithm>aws:kms</SSEAlgorithm>", (501, "NotImplemented")),
        ("<SSEAlgorithm>aws:kms:dsse</SSEAlgorithm>", (501, "NotImplemented")),
        ("<SSEAlgorithm>AES128</SSEAlgorithm>", (400, "MalformedXML")),
        ("", (400, "MalformedXML")),
        ("<SSEAlgorithm>AES256</SSEAlgorithm><KMSMasterKeyID>k</KMSMasterKeyID>", (400, "InvalidArgument")),
    ],
)
def test_other_defaults_are_refused(s3, store, rule, expected):
    by_default = f"<ApplyServerSideEncryptionByDefault>{rule}</ApplyServerSideEncryptionByDefault>"
    document = f"<ServerSideEncryptionConfiguration><Rule>{by_default}</Rule></ServerSideEncryptionConfiguration>"

    reply = Wire(store).send("PUT", "/bkt", "encryption=", body=document.encode())

    assert (reply.status, reply.code) == expected


def test_a_form_encrypts(s3, store):
    wire = Wire(store)
    for name, fields, mode in (("a", {METHOD: "AES256"}, "store"), ("b", key_headers(KEY), "key")):
        reply = post(wire, Form(wire, {"key": name} | fields).parts(b"bytes of a form"))

        assert reply.status == 204, reply.body
        assert_reads(s3, name, mode, b"bytes of a form")
    assert post(wire, Form(wire, {"key": "c", METHOD: "aws:kms"}).parts()).code == "NotImplemented"


def test_many_reads_bring_what_the_store_can_decrypt(s3, store):
    small, large = secrets.token_bytes(100), secrets.token_bytes(MIB)
    s3.put_object(Bucket="bkt", Key="small", Body=small, **MODES["store"])
    s3.put_object(Bucket="bkt", Key="large", Body=large, ChecksumAlgorithm="CRC32", **MODES["store"])
    s3.put_object(Bucket="bkt", Key="plain", Body=large)
    s3.put_object(Bucket="bkt", Key="key", Body=small, **MODES["key"])
    s3.put_object(Bucket="bkt", Key="lost", Body=large + b"x", **MODES["store"])
    [path] = [path for path in (store.root / "data").rglob("*") if path.is_file() and path.stat().st_size == MIB + 1 + 65 * 16]
    path.unlink()

    body = "0 * - small\n0 * - key\n16380 40000 - large\n0 0 - large\n0 * - none\n0 * - lost\n5 7 - plain\n0 * - large\n"
    got = results(ask(Wire(store), body.encode()), 8)

    assert [status for status, _, _ in got] == [200, 501, 200, 200, 404, 501, 200, 200]
    assert [data for _, data, _ in got] == [small, b"", large[16380:56380], b"", b"", b"", large[5:12], large]
    assert got[7][2][0] == "CRC32"


# --- keys


def test_the_key_of_a_customer_is_nowhere(penstock, tmp_path):
    penstock.env["PENSTOCK_LOG"] = "debug"
    store = Store(penstock, tmp_path / "root")
    s3 = store.client
    key = secrets.token_bytes(32)
    s3.create_bucket(Bucket="bkt")

    s3.put_object(Bucket="bkt", Key="k", Body=bytes(100_000), **key_args(key))
    s3.get_object(Bucket="bkt", Key="k", **key_args(key))["Body"].read()
    refused(s3.get_object, Bucket="bkt", Key="k", **key_args(OTHER))

    output = store.stop().err
    assert "PUT /bkt/k" in output
    for secret in (key, text(key).encode(), key.hex().encode()):
        assert on_disk(store.root, secret) == [] and secret not in output.encode()


def test_a_master_key_is_named_lost_and_replaced(penstock, tmp_path):
    file, spare = tmp_path / "keys" / "master", tmp_path / "spare"
    file.parent.mkdir()
    penstock.env["PENSTOCK_MASTER_KEY_FILE"] = str(file)
    store = Store(penstock, tmp_path / "root")
    store.client.create_bucket(Bucket="bkt")
    store.client.put_object(Bucket="bkt", Key="k", Body=b"x" * 50_000, **MODES["store"])
    store.stop().ok()
    assert file.stat().st_mode & 0o777 == 0o600 and not (store.root / "master-key").exists()

    file.rename(spare)
    failed = penstock.run("serve", "--root", store.root, "--listen", "127.0.0.1:0")
    assert failed.code == 78 and str(file) in failed.err

    file.write_text(os.urandom(32).hex() + "\n" + spare.read_text())
    store.start()
    assert_reads(store.client, "k", "store", b"x" * 50_000)
    store.stop().ok()
    file.write_text(file.read_text().splitlines()[0])
    store.start()
    assert_reads(store.client, "k", "store", b"x" * 50_000)


# --- maintenance of the store


def test_a_store_with_encrypted_objects_is_looked_after(penstock, tmp_path):
    store = Store(penstock, tmp_path / "root")
    s3 = store.client
    s3.create_bucket(Bucket="bkt")
    s3.put_bucket_encryption(Bucket="bkt", ServerSideEncryptionConfiguration=default_rule())
    small, large = b"small", secrets.token_bytes(200_000)
    s3.put_object(Bucket="bkt", Key="small", Body=small)
    s3.put_object(Bucket="bkt", Key="large", Body=large)
    upload = s3.create_multipart_upload(Bucket="bkt", Key="open")["UploadId"]
    s3.upload_part(Bucket="bkt", Key="open", UploadId=upload, PartNumber=1, Body=large)
    store.stop().ok()

    penstock.run("store", "check", "--root", store.root).ok()
    penstock.run("store", "scrub", "--root", store.root).ok()
    penstock.run("store", "backup", "--root", store.root, tmp_path / "backup").ok()
    archive = tmp_path / "archive"
    penstock.run("store", "export", "--root", store.root, archive).ok()
    penstock.run("store", "import", "--root", tmp_path / "imported", archive).ok()

    for root in (tmp_path / "backup", tmp_path / "imported"):
        copy = Store(penstock, root)
        assert_reads(copy.client, "small", "store", small)
        assert_reads(copy.client, "large", "store", large)
        copy.stop().ok()
        penstock.run("store", "check", "--root", root).ok()
        assert on_disk(root, large[:32]) == []
    files = sorted(path for path in (store.root / "data").rglob("*") if path.is_file())
    with open(files[0], "r+b") as file:
        file.seek(30_000)
        file.write(b"?" * 40)
    assert penstock.run("store", "scrub", "--root", store.root).code != 0
    files[0].unlink()
    assert penstock.run("store", "check", "--root", store.root).code != 0


def new_master_key(store):
    """Puts a new key above the others, and then removes the others; returns the new line."""
    key = os.urandom(32).hex() + "\n"
    file = store.root / "master-key"
    file.write_text(key + file.read_text())
    store.start()
    store.stop().ok()
    file.write_text(key)
    return key


def test_an_interrupted_backup_keeps_the_master_key_of_the_previous_one(penstock, tmp_path):
    store, backup = Store(penstock, tmp_path / "root"), tmp_path / "backup"
    store.client.create_bucket(Bucket="bkt")
    store.client.put_object(Bucket="bkt", Key="k", Body=b"x" * 50_000, **MODES["store"])
    store.stop().ok()
    penstock.run("store", "backup", "--root", store.root, backup).ok()
    key = new_master_key(store)
    # A directory cannot be copied as a file; the backup fails there, before its database is replaced.
    (store.root / "webhooks").mkdir()

    assert "webhooks" in penstock.run("store", "backup", "--root", store.root, backup).exits(70).err

    shutil.copytree(backup, tmp_path / "served")
    copy = Store(penstock, tmp_path / "served")
    assert_reads(copy.client, "k", "store", b"x" * 50_000)
    copy.stop().ok()
    (store.root / "webhooks").rmdir()
    penstock.run("store", "backup", "--root", store.root, backup).ok()
    assert (backup / "master-key").read_text() == key
    copy = Store(penstock, backup)
    assert_reads(copy.client, "k", "store", b"x" * 50_000)
    copy.stop().ok()


def test_a_backup_with_too_many_master_keys_changes_nothing(penstock, tmp_path):
    store, backup = Store(penstock, tmp_path / "root"), tmp_path / "backup"
    store.client.create_bucket(Bucket="bkt")
    store.client.put_object(Bucket="bkt", Key="k", Body=b"x" * 50_000, **MODES["store"])
    store.stop().ok()
    penstock.run("store", "backup", "--root", store.root, backup).ok()
    old = (backup / "master-key").read_text()
    key = new_master_key(store)
    others = "".join(os.urandom(32).hex() + "\n" for _ in range(15))
    (store.root / "master-key").write_text(key + others)

    failed = penstock.run("store", "backup", "--root", store.root, backup)

    assert failed.code != 0 and "more than 16 keys together" in failed.err and others[:64] not in failed.err
    assert (backup / "master-key").read_text() == old
    (store.root / "master-key").write_text(key + others[65:])
    penstock.run("store", "backup", "--root", store.root, backup).ok()
    assert (backup / "master-key").read_text() == key + others[65:]


def test_the_objects_of_customers_are_left_out_of_an_export(penstock, tmp_path):
    """The store does not have the customers' keys. Objects encrypted with these keys must not
    prevent the export, and no older version may become the current one."""
    store = Store(penstock, tmp_path / "root")
    s3 = store.client
    for bucket in ("bkt", "old"):
        s3.create_bucket(Bucket=bucket)
        s3.put_object(Bucket=bucket, Key="other", Body=b"other")
        if bucket == "old":
            s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
            s3.put_object(Bucket=bucket, Key="k", Body=b"first")
            s3.put_object(Bucket=bucket, Key="k", Body=b"second", **MODES["key"])
        s3.put_object(Bucket=bucket, Key="k", Body=b"x" * 50_000, **MODES["key"])
    versions = s3.list_object_versions(Bucket="old", Prefix="k")["Versions"]
    store.stop().ok()

    penstock.run("store", "check", "--root", store.root).ok()
    penstock.run("store", "scrub", "--root", store.root).ok()
    failed = penstock.run("store", "export", "--root", store.root, tmp_path / "archive").exits(69)
    penstock.run("store", "import", "--root", tmp_path / "new", tmp_path / "archive").ok()

    assert "3 objects" in failed.err
    penstock.run("store", "check", "--root", tmp_path / "new").ok()
    s3 = Store(penstock, tmp_path / "new").client
    assert [entry["Key"] for entry in s3.list_objects_v2(Bucket="bkt")["Contents"]] == ["other"]
    assert [entry["Key"] for entry in s3.list_objects_v2(Bucket="old")["Contents"]] == ["other"]
    found = s3.list_object_versions(Bucket="old", Prefix="k")
    assert [entry["VersionId"] for entry in found["Versions"]] == [versions[2]["VersionId"]]
    assert [(entry["VersionId"], entry["IsLatest"]) for entry in found["DeleteMarkers"]] == [(versions[0]["VersionId"], True)]
