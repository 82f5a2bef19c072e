"""Server access logs: the configuration of a bucket, the lines of its requests, and their delivery in batches."""
import re
import shlex
import time

import pytest
from botocore.exceptions import ClientError

from harness.program import Store
from harness.s3_wire import Wire
from harness.waiting import wait_for
from store.test_iam import OTHER, accounts, client, other, policy, refused, user_with_key  # noqa: F401

FIELDS = (
    "owner bucket time remote requester request_id operation key uri status error sent size total turn_around referer agent "
    "version host_id signature cipher auth host tls access_point acl"
).split()


@pytest.fixture
def logged(penstock, tmp_path):
    """A store with the buckets `src` and `log`, which delivers logs after 100 ms."""
    running = Store(penstock, tmp_path / "store")
    running.stop()
    running.options += ["--log-interval", "100ms"]
    running.start()
    for bucket in ("src", "log"):
        running.client.create_bucket(Bucket=bucket)
    yield running
    running.stop()


def enable(store, more="", target="log", keys=None):
    """Sends a document that is built by hand, because Debian's boto3 does not know TargetObjectKeyFormat."""
    wire = Wire(store)
    wire.access_key, wire.secret_key = keys or (store.access_key, store.secret_key)
    xml = f"<TargetBucket>{target}</TargetBucket><TargetPrefix>l/</TargetPrefix>{more}"
    body = f"<BucketLoggingStatus><LoggingEnabled>{xml}</LoggingEnabled></BucketLoggingStatus>"
    return wire.send("PUT", "/src", "logging=", body=body.encode())


def partitioned(source):
    date = f"<PartitionDateSource>{source}</PartitionDateSource>"
    return f"<TargetObjectKeyFormat><PartitionedPrefix>{date}</PartitionedPrefix></TargetObjectKeyFormat>"


def configuration(store):
    return Wire(store).send("GET", "/src", "logging=").body.decode()


def lines(store):
    """All delivered lines, each as a dict."""
    text = b"".join(store.bytes("log", key) for key in store.keys("log"))
    found = []
    for line in text.decode().splitlines():
        words = shlex.split(line.replace("[", '"', 1).replace("]", '"', 1))
        assert len(words) == len(FIELDS), line
        found.append(dict(zip(FIELDS, words)))
    return found


def wait_for_lines(store, *operations):
    def there():
        found = lines(store)
        return found if {line["operation"] for line in found} >= set(operations) else None

    return wait_for(there, 30)


def test_the_configuration_is_kept_and_removed(logged):
    s3 = logged.client
    assert "LoggingEnabled" not in s3.get_bucket_logging(Bucket="src")
    settings = {"TargetBucket": "log", "TargetPrefix": "l/"}
    s3.put_bucket_logging(Bucket="src", BucketLoggingStatus={"LoggingEnabled": settings})
    assert s3.get_bucket_logging(Bucket="src")["LoggingEnabled"].items() >= settings.items()
    assert "<SimplePrefix></SimplePrefix>" in configuration(logged)
    assert enable(logged, partitioned("EventTime")).status == 200
    assert partitioned("EventTime") in configuration(logged)
    s3.put_bucket_logging(Bucket="src", BucketLoggingStatus={})
    assert "LoggingEnabled" not in s3.get_bucket_logging(Bucket="src")


@pytest.mark.parametrize(
    "target, more, status, code",
    [
        ("none", "", 400, "InvalidTargetBucketForLogging"),
        ("log", partitioned("Never"), 400, "MalformedXML"),
        ("log", "<TargetObjectKeyFormat></TargetObjectKeyFormat>", 400, "MalformedXML"),
        ("log", "<TargetGrants><Grant></Grant></TargetGrants>", 501, "NotImplemented"),
    ],
)
def test_invalid_targets_are_refused(logged, target, more, status, code):
    reply = enable(logged, more, target)
    assert reply.status == status and f"<Code>{code}</Code>" in reply.body.decode()
    assert "LoggingEnabled" not in configuration(logged)
    with pytest.raises(ClientError, match="NoSuchBucket"):
        logged.client.put_bucket_logging(Bucket="none", BucketLoggingStatus={})


def test_the_sender_must_be_allowed_to_write_the_log(logged):
    iam, key, secret = user_with_key(logged)
    s3 = client(logged, "s3", key, secret)
    settings = {"LoggingEnabled": {"TargetBucket": "log", "TargetPrefix": "l/"}}
    iam.put_user_policy(UserName="jo", PolicyName="src", PolicyDocument=policy("s3:*", resource="arn:aws:s3:::src"))
    assert refused(s3.put_bucket_logging, Bucket="src", BucketLoggingStatus=settings) == "AccessDenied"
    assert "LoggingEnabled" not in configuration(logged)
    iam.put_user_policy(UserName="jo", PolicyName="log", PolicyDocument=policy("s3:PutObject", resource="arn:aws:s3:::log/l/"))
    assert refused(s3.put_bucket_logging, Bucket="src", BucketLoggingStatus=settings) == "AccessDenied"
    iam.put_user_policy(UserName="jo", PolicyName="log", PolicyDocument=policy("s3:PutObject", resource="arn:aws:s3:::log/l/*"))
    s3.put_bucket_logging(Bucket="src", BucketLoggingStatus=settings)
    assert "LoggingEnabled" in configuration(logged)


def test_only_a_copy_is_logged_as_a_copy(logged):
    enable(logged)
    logged.client.put_object(Bucket="src", Key="k", Body=b"x")
    copy = {"x-amz-copy-source": "src/k"}
    wire = Wire(logged)
    for method, query in (("GET", ""), ("POST", "uploads="), ("PUT", "")):
        assert wire.send(method, "/src/k2" if method == "PUT" else "/src/k", query, headers=copy).status == 200

    found = wait_for_lines(logged, "REST.GET.OBJECT", "REST.POST.UPLOADS", "REST.COPY.OBJECT")
    assert [line["key"] for line in found if ".COPY." in line["operation"]] == ["k2"]


def test_each_request_is_a_line(logged):
    s3 = logged.client
    enable(logged)
    s3.put_object(Bucket="src", Key="a b/ü", Body=b"x" * 1000)
    s3.get_object(Bucket="src", Key="a b/ü", Range="bytes=0-9")["Body"].read()
    s3.head_object(Bucket="src", Key="a b/ü")
    s3.list_objects_v2(Bucket="src", Prefix="a")
    s3.put_object_tagging(Bucket="src", Key="a b/ü", Tagging={"TagSet": []})
    s3.copy_object(Bucket="src", Key="copy", CopySource={"Bucket": "src", "Key": "a b/ü"})
    with pytest.raises(ClientError):
        s3.get_object(Bucket="src", Key="none")
    upload = s3.create_multipart_upload(Bucket="src", Key="parts")["UploadId"]
    part = s3.upload_part(Bucket="src", Key="parts", UploadId=upload, PartNumber=1, Body=b"part")
    s3.complete_multipart_upload(Bucket="src", Key="parts", UploadId=upload,
                                 MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]})  # fmt: skip
    s3.delete_objects(Bucket="src", Delete={"Objects": [{"Key": "copy"}, {"Key": "parts"}]})
    s3.delete_object(Bucket="src", Key="a b/ü")

    found = wait_for_lines(logged, "REST.DELETE.OBJECT")
    by_name = {line["operation"]: line for line in found if line["error"] == "-"}
    assert set(by_name) >= {
        "REST.PUT.LOGGING_STATUS", "REST.PUT.OBJECT", "REST.GET.OBJECT", "REST.HEAD.OBJECT", "REST.GET.BUCKET",
        "REST.PUT.OBJECT_TAGGING", "REST.COPY.OBJECT", "REST.POST.UPLOADS", "REST.PUT.PART", "REST.POST.UPLOAD",
        "REST.POST.MULTI_OBJECT_DELETE", "BATCH.DELETE.OBJECT", "REST.DELETE.OBJECT",
    }  # fmt: skip
    put, get = by_name["REST.PUT.OBJECT"], by_name["REST.GET.OBJECT"]
    assert put["key"] == get["key"] == "a%20b/%C3%BC"
    assert (put["status"], put["size"], get["status"], get["sent"], get["size"]) == ("200", "1000", "206", "10", "1000")
    assert put["remote"] == "127.0.0.1" and put["bucket"] == "src" and put["requester"] == put["owner"]
    assert (put["auth"], put["signature"]) == ("AuthHeader", "SigV4")
    assert re.fullmatch(r"\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d \+0000", put["time"])
    assert put["uri"].startswith("PUT /src/a%20b/%C3%BC") and put["uri"].endswith(" HTTP/1.1")
    assert "Boto" in put["agent"] and int(put["total"]) >= int(put["turn_around"]) >= 0
    missing = [line for line in found if line["error"] == "NoSuchKey"]
    assert [(line["key"], line["status"]) for line in missing] == [("none", "404")]
    assert sorted(line["key"] for line in found if line["operation"] == "BATCH.DELETE.OBJECT") == ["copy", "parts"]


def test_each_object_of_a_batch_is_a_line(logged):
    """Only the line of the request has long texts. The lines of objects, of which there may be
    thousands, do not repeat these texts."""
    logged.client.put_object(Bucket="src", Key="a b", Body=b"x" * 1000)
    allowed = policy("s3:GetObject", resource="arn:aws:s3:::src/other/*").replace('"Effect"', '"Principal": "*", "Effect"')
    logged.client.put_bucket_policy(Bucket="src", Policy=allowed)
    enable(logged)
    wire, headers = Wire(logged), {"user-agent": "me", "referer": "m" * 2000}

    reply = wire.send("POST", "/src", "penstock-read", headers, body=b"0 * - a%20b\n1 9 - a%20b\n0 * - none\n")
    assert wire.raw("POST", "/src?penstock-read", {"host": "x"} | headers, b"0 * - a%20b\n").status == reply.status == 200

    found = wait_for(lambda: found if len(found := [line for line in lines(logged) if "penstock-read" in line["uri"]]) == 6 else None, 30)
    items = [line for line in found if line["operation"] == "BATCH.GET.OBJECT"]
    assert sorted([line[name] for name in ("key", "status", "error", "sent", "size")] for line in items) == [
        ["a%20b", "200", "-", "1000", "1000"],
        ["a%20b", "200", "-", "9", "1000"],
        ["a%20b", "403", "AccessDenied", "-", "-"],
        ["none", "404", "NoSuchKey", "-", "-"],
    ]
    assert all((line["requester"] == "-") == (line["status"] == "403") for line in items)
    assert {(line["agent"], line["referer"]) for line in items} == {("me", "-")}
    requests = [line for line in found if line not in items]
    assert sorted(line["sent"] for line in requests) == sorted(["24", str(len(reply.body))])
    assert {(line["key"], line["status"], line["referer"]) for line in requests} == {("-", "200", "m" * 2000)}


def test_lines_are_encrypted_by_the_default_of_their_target(logged):
    rule = {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}
    logged.client.put_bucket_encryption(Bucket="log", ServerSideEncryptionConfiguration={"Rules": [rule]})
    enable(logged)
    for number in range(300):  # more than one row of the database can hold
        logged.client.put_object(Bucket="src", Key=f"very-{number}-secret", Body=b"x")

    wait_for(lambda: logged.keys("log"), 30)
    logged.stop()
    assert not [path for path in logged.root.rglob("*") if path.is_file() and b"-299-secret HTTP" in path.read_bytes()]
    logged.start()
    assert lines(logged)
    assert all(logged.client.head_object(Bucket="log", Key=key)["ServerSideEncryption"] == "AES256" for key in logged.keys("log"))


def test_strangers_are_logged_and_write_no_lines_of_their_own(logged):
    """A quote in a header must not end a field."""
    enable(logged)
    wire = Wire(logged)
    wire.raw("GET", "/src/secret", {"host": "x", "user-agent": 'a" 200 "b', "referer": "r"})

    found = wait_for_lines(logged, "REST.GET.OBJECT")
    (line,) = [line for line in found if line["operation"] == "REST.GET.OBJECT"]
    assert (line["requester"], line["auth"], line["status"], line["error"]) == ("-", "-", "403", "AccessDenied")
    assert line["agent"] == "a%22 200 %22b" and line["referer"] == "r"


@pytest.mark.parametrize("source", ["EventTime", "DeliveryTime"])
def test_partitioned_keys_name_the_bucket_and_the_day(logged, source):
    enable(logged, partitioned(source))
    logged.client.put_object(Bucket="src", Key="k", Body=b"x")

    wait_for_lines(logged, "REST.PUT.OBJECT")
    day = time.strftime("%Y/%m/%d", time.gmtime())
    moment = "00-00-00" if source == "EventTime" else r"\d\d-\d\d-\d\d"
    for key in logged.keys("log"):
        assert re.fullmatch(rf"l/000000000000/us-east-1/src/{day}/{day.replace('/', '-')}-{moment}-[0-9a-f]{{16}}", key), key


def test_a_log_belongs_to_the_owner_of_its_bucket(accounts):  # noqa: F811
    for bucket in ("src", "log"):
        other(accounts, "s3").create_bucket(Bucket=bucket)
    assert enable(accounts, partitioned("EventTime"), keys=(OTHER["access_key_id"], OTHER["secret_access_key"])).status == 200
    other(accounts, "s3").put_object(Bucket="src", Key="k", Body=b"x")
    accounts.stop()
    accounts.start()

    theirs = other(accounts, "s3")
    keys = [entry["Key"] for entry in theirs.list_objects_v2(Bucket="log")["Contents"]]
    assert all(key.startswith(f"l/{OTHER['number']}/us-east-1/src/") for key in keys)
    assert b"REST.PUT.OBJECT" in b"".join(theirs.get_object(Bucket="log", Key=key)["Body"].read() for key in keys)
    assert refused(client(accounts, "s3").get_object, Bucket="log", Key=keys[0]) == "AccessDenied"


@pytest.mark.parametrize("buckets", [("log",), ("src", "log")])
def test_lines_stay_in_the_account_of_their_requests(accounts, buckets):  # noqa: F811
    """The log is delivered when the store stops. Before that, the buckets are deleted, and another
    account creates buckets with their names."""
    theirs, mine = other(accounts, "s3"), client(accounts, "s3")
    for bucket in ("src", "log"):
        theirs.create_bucket(Bucket=bucket)
    assert enable(accounts, keys=(OTHER["access_key_id"], OTHER["secret_access_key"])).status == 200
    theirs.list_objects_v2(Bucket="src", Prefix="theirs")
    for bucket in buckets:
        theirs.delete_bucket(Bucket=bucket)
        mine.create_bucket(Bucket=bucket)
    if "src" in buckets:
        assert enable(accounts).status == 200
        mine.list_objects_v2(Bucket="src", Prefix="mine")
    accounts.stop()
    accounts.start()

    found = b"".join(accounts.bytes("log", key) for key in accounts.keys("log"))
    assert b"theirs" not in found and (b"mine" in found) == ("src" in buckets)


def test_an_orderly_end_delivers_and_a_kill_loses_only_what_waited(penstock, store):
    """The default interval is a minute, so the log is delivered when the store stops, and a kill loses the pending lines."""
    for bucket in ("src", "log"):
        store.client.create_bucket(Bucket=bucket)
    enable(store)
    for number in range(20):
        store.client.put_object(Bucket="src", Key=f"k{number}", Body=b"x")
    assert store.keys("log") == []
    assert store.stop().code == 0
    store.start()
    assert len(store.keys("log")) == 1
    assert sum(line["operation"] == "REST.PUT.OBJECT" for line in lines(store)) == 20

    store.client.put_object(Bucket="src", Key="lost", Body=b"x")
    store.kill()
    store.start()
    assert len(store.keys("src")) == 21
    assert sum(line["operation"] == "REST.PUT.OBJECT" for line in lines(store)) == 20


def test_logs_of_a_deleted_target_are_dropped(logged):
    enable(logged)
    logged.client.put_object(Bucket="src", Key="k", Body=b"x")
    wait_for_lines(logged, "REST.PUT.OBJECT")
    for key in logged.keys("log"):
        logged.client.delete_object(Bucket="log", Key=key)
    # Lines of the requests above may still be on their way.
    wait_for(lambda: _delete_bucket(logged), 30)
    logged.client.put_object(Bucket="src", Key="k", Body=b"x")
    assert logged.stop().code == 0
    logged.start()
    assert logged.keys("src") == ["k"]


def _delete_bucket(store):
    for key in store.keys("log"):
        store.client.delete_object(Bucket="log", Key=key)
    try:
        store.client.delete_bucket(Bucket="log")
    except ClientError:
        return False
    return True


def test_a_sender_whose_key_ends_during_its_request_is_refused_and_named(logged):
    enable(logged)
    iam, key, secret = user_with_key(logged)
    iam.put_user_policy(UserName="jo", PolicyName="all", PolicyDocument=policy("s3:*"))
    wire = Wire(logged)
    wire.access_key, wire.secret_key = key, secret
    headers = wire.sign("PUT", "/src/k", payload="UNSIGNED-PAYLOAD") | {"content-length": "2", "expect": "100-continue"}

    with wire.connect() as connection:
        connection.sendall(wire.head("PUT", "/src/k", headers) + b"a")
        assert connection.recv(1000).startswith(b"HTTP/1.1 100 ")
        iam.update_access_key(UserName="jo", AccessKeyId=key, Status="Inactive")
        connection.sendall(b"b")
        reply = wire.read(connection)

    assert (reply.status, reply.code) == (403, "InvalidAccessKeyId")
    line = next(line for line in wait_for_lines(logged, "REST.PUT.OBJECT") if line["operation"] == "REST.PUT.OBJECT")
    assert (line["status"], line["requester"]) == ("403", "arn:aws:iam::000000000000:user/jo")
