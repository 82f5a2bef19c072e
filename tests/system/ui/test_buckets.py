"""The bucket browser of penstock ui: lists, contents, links and resumable uploads."""
import contextlib
import http.client
import os
import signal
import socket
import threading
import urllib.parse
import urllib.request

import pytest

from harness.waiting import wait_for

from harness.waiting import wait_for

PART = 8 << 20


@pytest.fixture
def bucket(store):
    store.client.create_bucket(Bucket="bkt")
    return store


def test_pages_of_a_list_have_every_entry_once(ui, bucket):
    keys = [f"d{i % 7}/{i}" for i in range(50)] + [f"o{i:03d}" for i in range(40)] + ["d3", "d3-", "d30/x", "d/é/ü"]
    for key in keys:
        bucket.client.put_object(Bucket="bkt", Key=key, Body=b"x")
    server = ui(**bucket.env)

    entries, after = [], None
    while True:
        page = server.get("list", url="s3://bkt/", limit=9, **({"after": after} if after else {}))
        entries += sorted([*page["dirs"], *(entry["key"] for entry in page["objects"])], key=lambda text: text.encode())
        after = page["next"]
        if not after:
            break

    assert entries == sorted({key.partition("/")[0] + "/" if "/" in key else key for key in keys}, key=lambda text: text.encode())
    assert [row["bucket"] for row in server.get("buckets")] == ["bkt"]


def test_contents_links_and_removal(ui, bucket):
    body = os.urandom(3 << 20)
    bucket.client.put_object(Bucket="bkt", Key="a/ü *?.bin", Body=body, Metadata={"k": "v"})
    server = ui(**bucket.env)
    url = "s3://bkt/a/ü *?.bin"

    assert server.request("GET", "/api/object", url=url).body == body
    assert server.request("GET", "/api/object", url=url, offset=5, length=7).body == body[5:12]
    assert server.get("stat", url=url)[0]["metadata"]["k"] == "v"
    link = server.post("link", url=url, expires="10m").json["out"]
    with urllib.request.urlopen(link, timeout=30) as reply:
        assert reply.read() == body
    assert "X-Amz-Expires=600" in link
    assert server.post("remove", url=url).status == 200
    assert server.request("GET", "/api/object", url=url).status == 404
    assert server.request("GET", "/api/object", url="s3://none/x").status == 404


# If the name were used as a pattern, the verbs would list and remove other objects.
@pytest.mark.parametrize("name", ["*", "r?n", "r*"])
def test_a_directory_whose_name_is_a_pattern_is_only_itself(ui, bucket, name):
    others = ["ran/x", "run/", "run/a/", "x"]
    for key in [*others, f"{name}/a", f"{name}/b/c"]:
        bucket.client.put_object(Bucket="bkt", Key=key, Body=b"x")
    server = ui(**bucket.env)

    listed = server.get("list", url=f"s3://bkt/{name}/")
    removed = server.post("remove", url=f"s3://bkt/{name}/", recursive=1)

    assert (listed["dirs"], [entry["key"] for entry in listed["objects"]]) == ([f"{name}/b/"], [f"{name}/a"])
    assert removed.status == 200
    assert [entry["Key"] for entry in bucket.client.list_objects_v2(Bucket="bkt")["Contents"]] == others


@pytest.fixture
def versioned(bucket):
    bucket.client.put_bucket_versioning(Bucket="bkt", VersioningConfiguration={"Status": "Enabled"})
    return bucket


def test_pages_of_a_list_with_deleted_objects_have_every_entry_once(ui, versioned):
    keys = [f"o{i:03d}" for i in range(30)] + [f"d{i}/x" for i in range(5)] + ["gone/x"]
    deleted = {key for i, key in enumerate(keys) if i % 3 == 0 or key == "gone/x"}
    for key in keys:
        for _ in range(3):
            versioned.client.put_object(Bucket="bkt", Key=key, Body=b"x")
        if key in deleted:
            versioned.client.delete_object(Bucket="bkt", Key=key)
    server = ui(**versioned.env)

    dirs, objects, after = [], [], None
    while after is not None or not objects:
        page = server.get("list", url="s3://bkt/", limit=7, deleted=1, **({"after": after} if after else {}))
        assert len(page["dirs"]) + len(page["objects"]) <= 7
        dirs, objects, after = dirs + page["dirs"], objects + page["objects"], page["next"]

    assert dirs == [*(f"d{i}/" for i in range(5)), "gone/"]
    assert [(entry["key"], entry["deleted"]) for entry in objects] == [(key, key in deleted) for key in keys[:30]]
    assert not any("deleted" in entry for entry in server.get("list", url="s3://bkt/")["objects"])


# Each name could be taken for a pattern, an option, a directory, or a part of a URL.
@pytest.mark.parametrize("name", ["r*n", "--all", "a?b#c%2F", "dir/", "ü <b>"])
def test_a_version_is_read_restored_and_removed(ui, versioned, name):
    other, old, new = (
        versioned.client.put_object(Bucket="bkt", Key=key, Body=body)["VersionId"] for key, body in (("run", b"other"), (name, b"old"), (name, b"new"))
    )
    marker = versioned.client.delete_object(Bucket="bkt", Key=name)["VersionId"]
    server, url = ui(**versioned.env), f"s3://bkt/{name}"

    def ids():
        return [row["version"] for row in server.get("versions", url=url)]

    assert ids() == [marker, new, old]
    assert [row["version"] for row in server.get("versions", url=url, after=name, version=new)] == [old]
    assert server.request("GET", "/api/object", url=url, version=old).body == b"old"
    assert server.request("GET", "/api/object", url=url, version=new, offset=1, length=1).body == b"e"
    assert server.get("stat", url=url, version=old)[0]["size"] == 3
    assert server.request("GET", "/api/object", url=url, version=marker).status == 404
    assert server.post("restore", url=url, version=old).status == 200
    assert versioned.bytes("bkt", name) == b"old"
    assert server.post("remove-version", url=url, version=ids()[0]).status == 200
    assert server.post("remove-version", url=url, version=marker).status == 200
    assert versioned.bytes("bkt", name) == b"new" and ids() == [new, old]
    assert server.post("remove-version", url=url, version=old).status == 200
    assert ids() == [new]
    assert [row["version"] for row in server.get("versions", url="s3://bkt/run")] == [other]


def test_a_locked_version_stays_with_the_error_of_the_store(ui, store):
    store.client.create_bucket(Bucket="locked", ObjectLockEnabledForBucket=True)
    version = store.client.put_object(Bucket="locked", Key="k", Body=b"x", ObjectLockLegalHoldStatus="ON")["VersionId"]
    server = ui(**store.env)

    refused = server.post("remove-version", url="s3://locked/k", version=version)

    assert refused.status == 403 and "AccessDenied" in refused.error and "\n" not in refused.error
    assert store.bytes("locked", "k") == b"x"
    assert server.get("stat", url="s3://locked") == [{"bucket": "locked", "versioning": "enabled"}]


def test_a_store_that_is_gone_is_named(ui, bucket):
    server = ui(**bucket.env)
    bucket.stop()

    reply = server.request("GET", "/api/list", url="s3://bkt/")

    assert reply.status == 503 and reply.json["code"] == 69 and bucket.endpoint.rpartition(":")[2] in reply.error


@pytest.fixture
def stalled(ui):
    """A page server whose store accepts a request and never replies."""

    def stall():
        connection = listener.accept()[0]
        connection.recv(65536)
        asked.set()
        released.wait(120)

    asked, released = threading.Event(), threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=stall, daemon=True).start()
        server = ui(AWS_ENDPOINT_URL=f"http://127.0.0.1:{listener.getsockname()[1]}", AWS_ACCESS_KEY_ID="a", AWS_SECRET_ACCESS_KEY="b")
        server.replies = []
        reading = threading.Thread(target=read_object, args=(server,))
        reading.start()
        assert asked.wait(30)
        yield server
        reading.join(30)
        released.set()


def read_object(server):
    with contextlib.suppress(OSError, http.client.HTTPException):
        server.replies.append(server.request("GET", "/api/object", url="s3://bkt/k"))


def test_ctrl_c_does_not_wait_for_a_store_that_stalls(stalled):
    stalled.process.send(2)

    stalled.process.wait(15).exits(0)


# The kernel kills a verb if memory runs out.
def test_a_verb_that_is_killed_has_a_message(stalled):
    task = f"/proc/{stalled.process.pid}/task"
    children = [pid for thread in os.listdir(task) for pid in open(f"{task}/{thread}/children").read().split()]
    for pid in children:
        os.kill(int(pid), signal.SIGKILL)

    wait_for(lambda: stalled.replies, what="the reply")

    assert len(children) == 1 and stalled.replies[0].json["code"] == 137 and "9" in stalled.replies[0].error


def begin(server, url, size):
    reply = server.post("upload", url=url, size=size)
    assert reply.status == 200, reply.body
    return reply.json


def send(server, url, identity, body, number):
    return server.post("upload", "PUT", body[(number - 1) * PART : number * PART], url=url, id=identity, number=number)


def test_an_upload_resumes_after_a_lost_connection_and_a_restart(ui, penstock, bucket):
    body = os.urandom(2 * PART + 12345)
    url = "s3://bkt/dir/big file.bin"
    server = ui(**bucket.env)
    started = begin(server, url, len(body))
    assert started["part"] == PART and started["done"] == []
    assert send(server, url, started["id"], body, 1).json == {"received": PART}

    # Simulate a browser that is closed in the middle of a part.
    host, port = server.host.split(":")
    query = urllib.parse.urlencode({"url": url, "id": started["id"], "number": 2})
    with socket.create_connection((host, int(port))) as connection:
        head = f"PUT /api/upload?{query} HTTP/1.1\r\nHost: {server.host}\r\nCookie: {server.cookie}\r\nX-Penstock: 1\r\nContent-Length: {PART}\r\n\r\n"
        connection.sendall(head.encode() + body[PART : PART + 100000])
    server.process.kill()
    again = ui(**bucket.env)

    resumed = begin(again, url, len(body))
    assert resumed["id"] == started["id"] and resumed["done"] == [1]
    changed = again.post("upload", url=url, size=len(body), modified=5).json
    assert changed["id"] != started["id"] and changed["done"] == []
    assert again.post("upload", "DELETE", url=url, id=changed["id"]).status == 200
    assert send(again, url, resumed["id"], body, 3).status == 409
    assert send(again, url, resumed["id"], body, 2).status == 200
    assert again.post("upload/finish", url=url, id=resumed["id"]).status == 409
    assert send(again, url, resumed["id"], body, 3).status == 200
    assert again.post("upload/finish", url=url, id=resumed["id"]).status == 200
    assert bucket.bytes("bkt", "dir/big file.bin") == body
    assert not list((penstock.home / "uploads").iterdir())


def test_parts_of_other_sizes_are_refused_and_leave_nothing(ui, bucket):
    server, url = ui(**bucket.env), "s3://bkt/x"
    upload = begin(server, url, PART + 5)

    assert server.post("upload", "PUT", b"short", url=url, id=upload["id"], number=1).status == 400
    assert server.post("upload", "PUT", bytes(PART + 1), url=url, id=upload["id"], number=1).status == 400
    assert server.post("upload", "PUT", bytes(PART), url=url, id=upload["id"], number=1).status == 200
    assert server.post("upload", "PUT", b"12345", url=url, id=upload["id"], number=2).status == 200
    assert server.post("upload", "PUT", b"1", url=url, id=upload["id"], number=3).status == 409
    assert server.post("upload", "PUT", b"1", url=url, id="f" * 32, number=1).status == 404
    assert server.post("upload", "PUT", b"1", url=url, id="../" + "f" * 29, number=1).status == 404
    assert server.post("upload", "DELETE", url="s3://bkt/y", id=upload["id"]).status == 404
    assert server.post("upload", "DELETE", url=url, id=upload["id"]).status == 200
    assert begin(server, url, PART + 5)["done"] == []
    for query in ({"url": "/etc/x", "size": 1}, {"url": "s3://bkt/x"}, {"url": "s3://bkt/x", "size": -1}, {"url": "s3://bkt/x", "size": 1 << 50}):
        assert server.post("upload", **query).status == 400


def test_two_pages_that_send_one_file_lose_nothing(ui, penstock, bucket):
    body, url = os.urandom(3 * PART), "s3://bkt/x"
    server = ui(**bucket.env)
    upload = begin(server, url, len(body))
    host, port = server.host.split(":")
    query = urllib.parse.urlencode({"url": url, "id": upload["id"], "number": 2})
    assert send(server, url, upload["id"], body, 1).status == 200

    with socket.create_connection((host, int(port))) as connection:
        head = f"PUT /api/upload?{query} HTTP/1.1\r\nHost: {server.host}\r\nCookie: {server.cookie}\r\nX-Penstock: 1\r\nContent-Length: {PART}\r\n\r\n"
        connection.sendall(head.encode() + body[PART : PART + 100000])
        wait_for(lambda: (penstock.home / "uploads" / upload["id"]).stat().st_size > PART, what="the first page has the file")
        assert send(server, url, upload["id"], body, 2).status == 503
        connection.sendall(body[PART + 100000 : 2 * PART])
        assert connection.recv(100).startswith(b"HTTP/1.1 200")

    assert send(server, url, upload["id"], body, 3).status == 200
    assert server.post("upload/finish", url=url, id=upload["id"]).status == 200
    assert bucket.bytes("bkt", "x") == body


def test_a_file_stays_until_the_store_has_it(ui, penstock, bucket):
    server, url = ui(**bucket.env), "s3://missing/x"
    upload = begin(server, url, 5)
    assert server.post("upload", "PUT", b"12345", url=url, id=upload["id"], number=1).status == 200

    failed = server.post("upload/finish", url=url, id=upload["id"])

    assert failed.status == 404 and "missing" in failed.error
    assert (penstock.home / "uploads" / upload["id"]).read_bytes() == b"12345"
    bucket.client.create_bucket(Bucket="missing")
    assert server.post("upload/finish", url=url, id=upload["id"]).status == 200
    assert bucket.bytes("missing", "x") == b"12345"


def test_an_empty_file_is_stored(ui, bucket):
    server, url = ui(**bucket.env), "s3://bkt/empty"
    upload = begin(server, url, 0)

    assert server.post("upload/finish", url=url, id=upload["id"]).status == 200
    assert bucket.bytes("bkt", "empty") == b""
