"""Many small objects at a time through a store with wrong replies: no wrong byte is reported as a
success, and no partial file is left."""
import os
import re
import signal

import pytest

from harness.fault_proxy import LOGIN_PAGE, s3_error
from harness.waiting import wait_for

HELD, STREAMED = 1000, 200_000  # bytes of an object that is kept whole in memory, or streamed
HTML = {"Content-Type": "text/html", "ETag": None}
ZEROS = {"ETag": '"00000000000000000000000000000000"'}


def always(**fault):
    return {"times": 10**6} | fault


class World:
    """A store with s3://bucket behind a proxy, and a directory for local files."""

    def __init__(self, penstock, store, proxy, folder):
        self.penstock, self.store, self.proxy, self.folder = penstock, store, proxy, folder
        self.env = store.env | {"AWS_ENDPOINT_URL": proxy.url}
        self.folder.mkdir()
        store.client.create_bucket(Bucket="bucket")
        self.bodies = {}

    def names(self, faults):
        """Returns {name: size} for each fault and size."""
        return {f"{kind.replace(' ', '-')}.{size}": size for kind in faults for size in (HELD, STREAMED)}

    def objects(self, names):
        for name, size in names.items():
            self.bodies[name] = os.urandom(size)
            self.store.client.put_object(Bucket="bucket", Key=f"in/{name}", Body=self.bodies[name], ChecksumAlgorithm="CRC32")

    def files(self, names):
        (self.folder / "up").mkdir()
        for name, size in names.items():
            self.bodies[name] = os.urandom(size)
            (self.folder / "up" / name).write_bytes(self.bodies[name])

    def run(self, *arguments, **env):
        return self.penstock.run(*arguments, env=self.env | env, cwd=self.folder)

    def down(self, **env):
        return self.run("cp", "-r", "s3://bucket/in/", "down/", **env)

    def up(self, **env):
        return self.run("cp", "-r", "up/", "s3://bucket/out/", **env)

    def downloaded(self):
        return {path.name: path.read_bytes() for path in (self.folder / "down").rglob("*") if path.is_file()}

    def uploaded(self):
        listed = self.store.client.list_objects_v2(Bucket="bucket", Prefix="out/").get("Contents", [])
        return {entry["Key"][4:]: self.store.client.get_object(Bucket="bucket", Key=entry["Key"])["Body"].read() for entry in listed}


@pytest.fixture
def world(penstock, store, fault_proxy, tmp_path):
    return World(penstock, store, fault_proxy, tmp_path / "work")


PASSING_GETS = {
    "nothing is wrong": {},
    "500": {"status": 500, "body": s3_error("InternalError")},
    "503": {"status": 503, "body": s3_error("SlowDown"), "headers": {"Retry-After": "0"}, "times": 3},
    "429": {"status": 429, "headers": {"Retry-After": "0"}},
    "dropped": {"drop": True},
    "cut": {"cut_after": 600},
    "reset": {"cut_after": 600, "reset": True},
    "no answer": {"hold": "reply"},
    "stalled": {"hold": 600},
    "a wrong bit": {"corrupt_at": 500},
    "bytes again": {"repeat_at": 500, "repeat": 100},
    "login page": {"status": 200, "body": LOGIN_PAGE, "headers": HTML},
    "a wrong checksum": {"headers": {"x-amz-checksum-crc32": "AAAAAA==", "x-amz-checksum-type": "FULL_OBJECT"}},
}  # fmt: skip


def test_all_come_down_whole_although_the_store_stumbles_over_each(world):
    names = world.names(PASSING_GETS)
    world.objects(names)
    for kind, fault in PASSING_GETS.items():
        for size in (HELD, STREAMED):
            if fault:
                world.proxy.fault(method="GET", path=f"/in/{kind.replace(' ', '-')}.{size}$", **fault)

    world.down(PENSTOCK_NETWORK_STALL="3").ok()

    assert world.downloaded() == world.bodies


FAILING_GETS = {
    "403": ({"status": 403, "body": s3_error("AccessDenied")}, "AccessDenied"),
    "404": ({"status": 404, "body": s3_error("NoSuchKey")}, "NoSuchKey"),
    "a wrong bit": ({"corrupt_at": 500}, "checksum"),
    "less": ({"truncate_to": 300}, "bytes, but its listing|replaced"),
    "another etag": ({"headers": ZEROS}, "replaced"),
    "no etag": ({"headers": {"ETag": None}}, "ETag"),
    "login page": ({"status": 200, "body": LOGIN_PAGE, "headers": HTML}, "login page|ETag|bytes, but its listing|replaced"),
    "elsewhere": ({"status": 302, "headers": {"Location": "http://127.0.0.1:1/login"}}, "302|endpoint"),
}  # fmt: skip


def test_what_cannot_be_had_is_named_and_the_rest_comes_whole(world):
    failing = world.names(FAILING_GETS)
    fine = {f"fine.{n}": HELD for n in range(20)}
    world.objects(failing | fine)
    for name in failing:
        fault, _ = FAILING_GETS[name.rsplit(".", 1)[0].replace("-", " ")]
        world.proxy.fault(method="GET", path=f"/in/{name}$", **always(**fault))

    result = world.down()

    assert result.code != 0
    assert world.downloaded() == {name: world.bodies[name] for name in fine}
    for name in failing:
        line = next((line for line in result.err.splitlines() if name in line), "")
        assert re.search(FAILING_GETS[name.rsplit(".", 1)[0].replace("-", " ")][1], line), (name, line, result.err)


PASSING_PUTS = {
    "nothing is wrong": {},
    "500": {"status": 500, "body": s3_error("InternalError")},
    "503": {"status": 503, "body": s3_error("SlowDown"), "headers": {"Retry-After": "0"}, "times": 3},
    "dropped": {"drop": True},
    "cut": {"cut_request_after": 500},
    "a wrong bit": {"corrupt_request_at": 500},
    "lost reply": {"lose_reply": True},
    "no answer": {"hold": "reply"},
    "not implemented": {"status": 501, "body": s3_error("NotImplemented")},
}  # fmt: skip


def test_all_go_up_whole_although_the_store_stumbles_over_each(world):
    names = world.names(PASSING_PUTS)
    world.files(names)
    for kind, fault in PASSING_PUTS.items():
        for size in (HELD, STREAMED):
            if fault:
                world.proxy.fault(method="PUT", path=f"/out/{kind.replace(' ', '-')}.{size}$", **fault)

    world.up(PENSTOCK_NETWORK_STALL="3").ok()

    assert world.uploaded() == world.bodies


FAILING_PUTS = {
    "403": ({"status": 403, "body": s3_error("AccessDenied")}, "AccessDenied"),
    "full": ({"status": 507, "body": s3_error("XMinioStorageFull")}, "XMinioStorageFull|507"),
    "another etag": ({"headers": ZEROS | {"x-amz-checksum-crc64nvme": None}}, "differs from the bytes"),
    "no etag": ({"headers": {"ETag": None}}, "ETag"),
    "login page": ({"status": 200, "body": LOGIN_PAGE, "headers": HTML}, "login page"),
}  # fmt: skip


def test_what_the_store_does_not_take_is_named(world):
    failing = world.names(FAILING_PUTS)
    fine = {f"fine.{n}": HELD for n in range(20)}
    world.files(failing | fine)
    for name in failing:
        fault, _ = FAILING_PUTS[name.rsplit(".", 1)[0].replace("-", " ")]
        world.proxy.fault(method="PUT", path=f"/out/{name}$", **always(**fault))

    result = world.up()

    assert result.code != 0
    assert {name: body for name, body in world.uploaded().items() if name in fine} == {name: world.bodies[name] for name in fine}
    for name in failing:
        line = next((line for line in result.err.splitlines() if name in line), "")
        assert re.search(FAILING_PUTS[name.rsplit(".", 1)[0].replace("-", " ")][1], line), (name, line, result.err)


def test_an_interrupt_leaves_whole_files_only(world):
    world.objects({f"o{n:03}.{size}": size for n in range(20) for size in (HELD, STREAMED)})
    held = world.proxy.fault(method="GET", path=r"/in/o01\d\.", **always(hold=600))
    process = world.penstock.popen("cp", "-r", "s3://bucket/in/", "down/", env=world.env, cwd=world.folder)
    wait_for(lambda: held.hits >= 2, 60, "two objects that do not come")

    process.send(signal.SIGINT)
    result = process.wait()

    assert result.code == 130
    found = world.downloaded()
    assert all(world.bodies[name] == body for name, body in found.items()) and len(found) < 40
