"""Exercises a store through any version of boto3. Endpoint and keys come from the environment."""
import io
import os
import sys
import urllib.request

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import ClientError

MIB = 1024 * 1024
KEYS = 1005


def code_of(call, **arguments):
    try:
        call(**arguments)
    except ClientError as error:
        return error.response["Error"]["Code"], error.response["ResponseMetadata"]["HTTPStatusCode"]
    return None


def put_and_read(s3, bucket):
    body = os.urandom(300_000)
    for key in ("plain", "dir//../%2F+ ü😀?&=#~\"'<>", "x" * 1024):
        s3.put_object(Bucket=bucket, Key=key, Body=body, ContentType="text/x", CacheControl="no-cache", Metadata={"a": "b"})
        got = s3.get_object(Bucket=bucket, Key=key)
        assert got["Body"].read() == body and got["ContentType"] == "text/x", key
        assert got["Metadata"] == {"a": "b"} and got["CacheControl"] == "no-cache"
        assert s3.head_object(Bucket=bucket, Key=key)["ContentLength"] == len(body)
        assert key in [entry["Key"] for entry in s3.list_objects_v2(Bucket=bucket)["Contents"]]
    s3.put_object(Bucket=bucket, Key="empty", Body=b"")
    assert s3.get_object(Bucket=bucket, Key="empty")["Body"].read() == b""


def ranges(s3, bucket):
    body = bytes(range(256)) * 1000
    s3.put_object(Bucket=bucket, Key="ranged", Body=body)
    for text, wanted in (("bytes=0-0", body[:1]), ("bytes=5-99", body[5:100]), ("bytes=-7", body[-7:]), ("bytes=255990-", body[255990:])):
        got = s3.get_object(Bucket=bucket, Key="ranged", Range=text)
        assert got["Body"].read() == wanted and got["ResponseMetadata"]["HTTPStatusCode"] == 206, text
    assert code_of(s3.get_object, Bucket=bucket, Key="ranged", Range="bytes=256000-") == ("InvalidRange", 416)


def multipart(s3, bucket):
    body = os.urandom(17 * MIB + 5)
    config = TransferConfig(multipart_threshold=5 * MIB, multipart_chunksize=5 * MIB, max_concurrency=4)
    s3.upload_fileobj(io.BytesIO(body), bucket, "parts", Config=config)
    assert s3.head_object(Bucket=bucket, Key="parts")["ETag"].endswith('-4"')
    out = io.BytesIO()
    s3.download_fileobj(bucket, "parts", out, Config=config)
    assert out.getvalue() == body
    s3.copy({"Bucket": bucket, "Key": "parts"}, bucket, "parts-copied", Config=config)  # UploadPartCopy
    assert s3.get_object(Bucket=bucket, Key="parts-copied")["Body"].read() == body


def lists(s3, bucket):
    for i in range(KEYS):
        s3.put_object(Bucket=bucket, Key=f"many/{i % 3}/{i:05}", Body=b"x")
    wanted = sorted(f"many/{i % 3}/{i:05}" for i in range(KEYS))
    for name in ("list_objects", "list_objects_v2"):
        pages = list(s3.get_paginator(name).paginate(Bucket=bucket, Prefix="many/"))
        assert len(pages) == 2, name
        assert [entry["Key"] for page in pages for entry in page["Contents"]] == wanted
        folded = s3.get_paginator(name).paginate(Bucket=bucket, Prefix="many/", Delimiter="/", PaginationConfig={"PageSize": 2})
        assert [entry["Prefix"] for page in folded for entry in page["CommonPrefixes"]] == ["many/0/", "many/1/", "many/2/"]


def copies_and_deletes(s3, bucket):
    s3.copy_object(Bucket=bucket, Key="copy", CopySource={"Bucket": bucket, "Key": "plain"})
    assert s3.head_object(Bucket=bucket, Key="copy")["Metadata"] == {"a": "b"}
    s3.copy_object(
        Bucket=bucket, Key="copy", CopySource={"Bucket": bucket, "Key": "plain"}, MetadataDirective="REPLACE", Metadata={"c": "d"}
    )
    assert s3.head_object(Bucket=bucket, Key="copy")["Metadata"] == {"c": "d"}
    s3.delete_object(Bucket=bucket, Key="copy")
    assert code_of(s3.get_object, Bucket=bucket, Key="copy") == ("NoSuchKey", 404)
    keys = [entry["Key"] for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket) for entry in page["Contents"]]
    while keys:
        batch, keys = keys[:1000], keys[1000:]
        answer = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": key} for key in batch]})
        assert len(answer["Deleted"]) == len(batch) and "Errors" not in answer
    assert "Contents" not in s3.list_objects_v2(Bucket=bucket)


def presigned(s3, bucket):
    url = s3.generate_presigned_url("put_object", Params={"Bucket": bucket, "Key": "signed/ü+ %"}, ExpiresIn=60)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    opener.open(urllib.request.Request(url, data=b"by url", method="PUT"))
    url = s3.generate_presigned_url(
        "get_object", Params={"Bucket": bucket, "Key": "signed/ü+ %", "ResponseContentType": "a/b"}, ExpiresIn=60
    )
    answer = opener.open(url)
    assert answer.read() == b"by url" and answer.headers["Content-Type"] == "a/b"


def checksums(s3, bucket):
    for algorithm in algorithms(s3):
        s3.put_object(Bucket=bucket, Key="summed", Body=b"123456789", ChecksumAlgorithm=algorithm)
        got = s3.get_object(Bucket=bucket, Key="summed", ChecksumMode="ENABLED")
        assert got[f"Checksum{algorithm}"] and got["Body"].read() == b"123456789"
        assert got["ResponseMetadata"]["HTTPHeaders"]["x-amz-checksum-type"] == "FULL_OBJECT"
        made = s3.create_multipart_upload(Bucket=bucket, Key="summed", ChecksumAlgorithm=algorithm)
        at = {"Bucket": bucket, "Key": "summed", "UploadId": made["UploadId"]}
        part = s3.upload_part(**at, PartNumber=1, Body=b"123456789", ChecksumAlgorithm=algorithm)
        named = {name: part[name] for name in ("ETag", f"Checksum{algorithm}")} | {"PartNumber": 1}
        done = s3.complete_multipart_upload(**at, MultipartUpload={"Parts": [named]})
        assert done[f"Checksum{algorithm}"].startswith(part[f"Checksum{algorithm}"]) == (algorithm == "CRC64NVME")


def algorithms(s3):
    """Returns the checksum algorithms that this version can compute."""
    known = s3.meta.service_model.shape_for("ChecksumAlgorithm").enum
    try:
        import awscrt  # noqa: F401
    except ImportError:
        known = [name for name in known if not name.startswith(("CRC", "XX")) or name == "CRC32"]
    return [name for name in known if name != "MD5"]


def main():
    style = {"addressing_style": "path"}
    s3 = boto3.client(
        "s3",
        endpoint_url=os.environ["AWS_ENDPOINT_URL"],
        region_name="us-east-1",
        config=Config(s3=style, retries={"max_attempts": 1}, signature_version="s3v4"),
    )
    bucket = "boto3-" + boto3.__version__.replace(".", "-")
    s3.create_bucket(Bucket=bucket)
    assert bucket in [entry["Name"] for entry in s3.list_buckets()["Buckets"]]
    for step in (put_and_read, ranges, multipart, lists, copies_and_deletes, presigned, checksums):
        step(s3, bucket)
        print(step.__name__, "ok")
    for entry in s3.list_objects_v2(Bucket=bucket)["Contents"]:
        s3.delete_object(Bucket=bucket, Key=entry["Key"])
    s3.delete_bucket(Bucket=bucket)
    print("boto3", boto3.__version__, "done")


if __name__ == "__main__":
    sys.exit(main())
