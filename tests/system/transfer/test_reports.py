"""Reports of cp, mv, sync and rm: one cause leads to one message, and lists on a terminal are
complete."""
import json

import pytest

from harness.fault_proxy import s3_error
from harness.terminal import Terminal
from harness.verbs import Fixture


@pytest.fixture
def ours(penstock, store, tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    return Fixture(penstock, store.env, store.client, folder, "penstock")


# If the cause affects all files, a command with a million files must not send a million requests.
@pytest.mark.parametrize("way", ["bucket", "key", "secret"])
def test_a_cause_that_repeats_ends_the_command(ours, fault_proxy, way):
    ours.write(*(f"d/{number}" for number in range(2000)))
    env = {
        "bucket": {},
        "key": {"AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE"},
        "secret": {"AWS_SECRET_ACCESS_KEY": "x" * 40},
    }[way]

    done = ours("cp", "-r", "--json", "d", "s3://none/" if way == "bucket" else "s3://bucket/",
                env=env | {"AWS_ENDPOINT_URL": fault_proxy.url})  # fmt: skip

    done.exits(66 if way == "bucket" else 77)
    assert len(done.err.splitlines()) == 2, done.err
    assert 0 < len(json.loads(done.out)) < 2000
    assert sum(request.method == "PUT" for request in fault_proxy.requests) < 2000


def test_alike_errors_are_folded(ours, fault_proxy):
    ours.write(*(f"d/{number}" for number in range(100)))
    fault_proxy.fault(method="PUT", status=403, body=s3_error("AccessDenied"), times=1000)

    done = ours("cp", "-r", "d", "s3://bucket/", env={"AWS_ENDPOINT_URL": fault_proxy.url}).exits(77)

    assert len(done.err.splitlines()) == 12 and " 90 " in done.err and "100 failed" in done.err


def test_a_resource_of_the_web_has_its_size_and_etag(ours, http_server):
    url = http_server.add("/toy", b"x" * 300_000)

    [told] = ours("cp", "--json", url, "s3://bucket/").json()

    assert told["size"] == 300_000 and told["etag"] == ours.client.head_object(Bucket="bucket", Key="toy")["ETag"]
    assert told["target"] == "s3://bucket/toy"
    assert "300 kB" in ours("cp", url, "s3://bucket/").ok().err


def test_a_list_on_a_terminal_is_whole(ours, fault_proxy):
    ours.write(*(f"d/{number}" for number in range(20)))
    held = fault_proxy.fault(method="PUT", path="/5$", hold="reply")

    terminal = Terminal(ours.penstock, "cp", "-r", "--json", ours.folder / "d", "s3://bucket/",
                        env=ours.env | {"AWS_ENDPOINT_URL": fault_proxy.url})  # fmt: skip
    held.wait()
    held.release()
    result = terminal.wait()

    text = result.out
    assert len(json.loads(text[text.index("[\n") : text.index("\n]\n") + 2])) == 20
