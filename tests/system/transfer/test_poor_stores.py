"""Every verb succeeds or reports the cause if the store ignores ranges, checksums and conditions."""
import os
import subprocess

import pytest

from harness.fault_proxy import FaultProxy
from harness.program import binary
from harness.small_store import SmallStore

MIB = 1 << 20
SIZES = {"empty": 0, "small": 1000, "large": 9 * MIB}


@pytest.fixture
def poor(penstock, tmp_path):
    """Runs verbs through a proxy. poor.store has an object below x/ for each entry of SIZES, and
    the directory d has the same files."""
    with SmallStore(conditions=False) as store:
        proxy = FaultProxy(store.endpoint)
        env = store.env | {"AWS_ENDPOINT_URL": proxy.url}
        (tmp_path / "d").mkdir()

        def run(*arguments, **more):
            return penstock.run(*arguments, env=env, cwd=tmp_path, **more)

        run.store, run.proxy, run.folder, run.bodies = store, proxy, tmp_path, {}
        run.command = lambda *arguments: subprocess.run([binary(), *arguments], env=penstock.env | env, cwd=tmp_path, capture_output=True, timeout=120)
        for name, size in SIZES.items():
            run.bodies[name] = os.urandom(size)
            (tmp_path / "d" / name).write_bytes(run.bodies[name])
            store.put(f"bucket/x/{name}", run.bodies[name])
        yield run
        proxy.close()


def there(poor, prefix):
    return {key.removeprefix(prefix): poor.store.bytes("bucket", key) for key in poor.store.keys("bucket", prefix)}


def here(poor, folder):
    return {path.name: path.read_bytes() for path in (poor.folder / folder).iterdir()}


def test_each_verb_works(poor, store):
    poor("sync", "d", "s3://bucket/up").ok()
    assert there(poor, "up/") == poor.bodies
    poor("sync", "s3://bucket/x", "down").ok()
    assert here(poor, "down") == poor.bodies
    poor("cp", "-r", "s3://bucket/x/", "s3://bucket/copy/").ok()
    poor("mv", "-r", "s3://bucket/copy/", "s3://bucket/moved/").ok()
    assert there(poor, "moved/") == poor.bodies and there(poor, "copy/") == {}
    poor("mv", "-r", "s3://bucket/moved/", "taken/").ok()
    assert here(poor, "taken") == poor.bodies and there(poor, "moved/") == {}
    for name, body in poor.bodies.items():
        assert poor.command("cat", f"s3://bucket/x/{name}").stdout == body
        assert poor("stat", "--json", f"s3://bucket/x/{name}").json()[0]["size"] == len(body)
    assert poor.command("cat", "--offset", "9000000", "--length", "5", "s3://bucket/x/large").stdout == poor.bodies["large"][9_000_000:9_000_005]
    poor("put", "s3://bucket/piped", input=b"piped").ok()
    assert poor.store.bytes("bucket", "piped") == b"piped"
    poor("rm", "-r", "s3://bucket/up/").ok()
    assert there(poor, "up/") == {}


# The copy goes through this machine. The source store replies to a request for a range with the
# whole object.
def test_copies_to_another_store(poor, store):
    store.client.create_bucket(Bucket="bucket")
    env = {"AWS_ACCESS_KEY_ID": store.access_key, "AWS_SECRET_ACCESS_KEY": store.secret_key, "AWS_ENDPOINT_URL": store.endpoint}

    done = store.penstock.run(
        "cp", "-r", "s3://bucket/x/", "s3://bucket/y/", "--source-endpoint-url", poor.proxy.url, "--source-no-sign-request", env=store.env | env
    )

    done.ok()
    assert {name: store.bytes("bucket", f"y/{name}") for name in poor.bodies} == poor.bodies


# Without checksums, only the ETag can show damage.
@pytest.mark.parametrize("name", ["small", "large"])
def test_damage_is_found_without_checksums(poor, name):
    up = poor.proxy.fault(method="PUT", path=f"/{name}$", corrupt_request_at=700)
    down = poor.proxy.fault(method="GET", path=f"/x/{name}$", corrupt_at=700)

    poor("cp", f"d/{name}", "s3://bucket/new/").ok()
    poor("cp", f"s3://bucket/x/{name}", "came").ok()

    assert up.hits and down.hits
    assert there(poor, "new/") == {name: poor.bodies[name]} and (poor.folder / "came").read_bytes() == poor.bodies[name]
    poor.proxy.fault(method="GET", path=f"/x/{name}$", corrupt_at=700, times=1000)
    assert name in poor("cp", f"s3://bucket/x/{name}", "bad").exits(69).err and not (poor.folder / "bad").exists()
    assert poor.command("cat", f"s3://bucket/x/{name}").returncode == 69
