"""A starting run waits for a network that is down; errors that waiting cannot fix end the run at
once."""
import re
import signal

import pytest

from harness import progress
from harness.fault_proxy import FaultProxy
from harness.lying import short
from harness.workflows import s3_place, write_workflow

CONTENT = b"1,2,3\n" * 1000


def workflow(path, command="true", **job):
    return write_workflow(path.parent, command, file=path.name, named="look", **job)


def s3(store, path, endpoint=None):
    return s3_place(store, path, bucket="data", endpoint=endpoint, createBucket=path.startswith("/out"))


@pytest.fixture
def away(http_server):
    """A server with /a.csv, behind an address that refuses connections until up() is called."""
    http_server.add("/a.csv", CONTENT)
    proxy = FaultProxy(http_server.url, listen=False)
    yield proxy
    proxy.close()


def test_an_input_that_is_not_there_yet_is_waited_for(penstock, away, tmp_path):
    seen = tmp_path / "seen"
    file = workflow(tmp_path / "wf.json", f"cp $DEEPSQUARE_INPUT/a.csv {seen}", input={"http": {"url": away.url + "/a.csv"}})

    process = penstock.popen("run", file)
    process.wait_for_output(rf"127\.0\.0\.1:{away.port}")
    away.up()
    process.wait().ok()

    assert seen.read_bytes() == CONTENT


NOT_READY = {"drops": {"drop": True}, "503": {"status": 503}, "500": {"status": 500}, "cuts": {"lose_reply": True}}


@pytest.mark.parametrize("name", short(NOT_READY, "503"))
def test_an_input_that_is_not_ready_yet_is_waited_for(penstock, away, tmp_path, name):
    away.up()
    rule = away.fault(times=10**6, **NOT_READY[name])
    file = workflow(tmp_path / "wf.json", "test -s $DEEPSQUARE_INPUT/a.csv", input={"http": {"url": away.url + "/a.csv"}})

    process = penstock.popen("run", file)
    process.wait_for_output(rf"127\.0\.0\.1:{away.port}")
    rule.stop()

    process.wait().ok()


def test_a_store_that_is_not_there_yet_is_waited_for(penstock, store, fault_proxy, tmp_path):
    store.client.create_bucket(Bucket="data")
    store.client.put_object(Bucket="data", Key="in/a", Body=CONTENT)
    fault_proxy.down()
    file = workflow(
        tmp_path / "wf.json",
        "cp $DEEPSQUARE_INPUT/a $DEEPSQUARE_OUTPUT/b",
        input=s3(store, "/in", fault_proxy.url),
        output=s3(store, "/out", fault_proxy.url),
    )

    process = penstock.popen("run", file)
    process.wait_for_output(rf"127\.0\.0\.1:{fault_proxy.port}")
    fault_proxy.up()
    process.wait().ok()

    assert store.bytes("data", "out/b") == CONTENT


@pytest.mark.long
def test_a_store_that_goes_away_in_the_middle_is_waited_for(penstock, store, fault_proxy, tmp_path):
    store.client.create_bucket(Bucket="data")
    for number in range(40):
        store.client.put_object(Bucket="data", Key=f"in/{number:02}", Body=CONTENT + b"%d" % number)
    held = fault_proxy.fault(method="GET", path="/in/39$", hold="request")
    file = workflow(tmp_path / "wf.json", f"cat $DEEPSQUARE_INPUT/* > {tmp_path}/seen", input=s3(store, "/in", fault_proxy.url))

    process = penstock.popen("run", file)
    held.wait()
    fault_proxy.down()
    process.wait_for_output(r"127\.0\.0\.1:\d")
    fault_proxy.up()
    process.wait().ok()

    assert (tmp_path / "seen").read_bytes() == b"".join(CONTENT + b"%d" % number for number in range(40))


def test_patience_ends_with_what_is_the_matter(penstock, away, tmp_path):
    file = workflow(tmp_path / "wf.json", input={"http": {"url": away.url + "/a.csv"}})

    result = penstock.run("run", file, env={"PENSTOCK_NETWORK_PATIENCE": "1"})

    assert result.exits(66).seconds >= 1
    line = result.err.splitlines()[-1]
    assert "/a.csv" in line and str(away.port) in line


# The request to end is a Ctrl-C.
@pytest.mark.parametrize("side", ["input", "output"])
def test_waiting_ends_at_once_when_asked(penstock, store, away, tmp_path, side):
    where = {"http": {"url": away.url + "/a.csv"}} if side == "input" else s3(store, "/out", away.url)
    file = workflow(tmp_path / "wf.json", **{side: where})

    process = penstock.popen("run", file, env={"PENSTOCK_NETWORK_PATIENCE": "86400"})
    process.wait_for_output(progress.WAITING)
    process.send(signal.SIGINT)

    process.wait(60).exits(130)


@pytest.mark.parametrize(
    "url, code, says",
    [
        ("{url}/missing.csv", 66, "404"),
        ("{url}/forbidden.csv", 77, "403"),
        ("gopher://127.0.0.1/a.csv", 65, "gopher"),
        ("http://127.0.0.1:99999/a.csv", 65, "port"),
        ("http://a b/a.csv", 65, "a b"),
        ("https://{host}/a.csv", 66, "{host}"),
    ],
    ids=["404", "403", "scheme", "port", "host", "no TLS there"],
)
def test_a_mistake_is_not_waited_for(penstock, http_server, tmp_path, url, code, says):
    http_server.fault("/forbidden.csv", status=403, times=100)
    host = http_server.url.removeprefix("http://")
    file = workflow(tmp_path / "wf.json", input={"http": {"url": url.format(url=http_server.url, host=host)}})

    result = penstock.run("run", file, env={"PENSTOCK_NETWORK_PATIENCE": "86400"}).exits(code)

    assert says.format(host=host) in result.err and not re.search(progress.WAITING, result.err)


def test_a_certificate_that_nobody_vouches_for_is_not_waited_for(penstock, https, tmp_path):
    url = https.add("/a.csv", CONTENT)
    file = workflow(tmp_path / "wf.json", input={"http": {"url": url}})

    result = penstock.run("run", file, env={"PENSTOCK_NETWORK_PATIENCE": "86400"})

    assert "SSL_CERT_FILE" in result.exits(77).err and not re.search(progress.WAITING, result.err)
