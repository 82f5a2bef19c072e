"""`penstock batch`: one command per line, over one set of connections."""
import json
import re
import shlex
import signal
import subprocess

import pytest

from harness.fault_proxy import FaultProxy
from harness.program import binary
from harness.waiting import wait_for


@pytest.fixture
def batch(penstock, store, tmp_path):
    """Runs lines from a file."""
    store.client.create_bucket(Bucket="bucket")
    (tmp_path / "a").write_text("a")
    (tmp_path / "b c").write_text("b c")

    def run(lines, *options, env=None, file="jobs"):
        (tmp_path / "jobs").write_bytes(lines if isinstance(lines, bytes) else lines.encode())
        input = lines if file == "-" else None
        return penstock.run("batch", *options, file, env=store.env | (env or {}), cwd=tmp_path, input=input)

    run.store, run.folder = store, tmp_path
    return run


def test_lines_are_commands(batch):
    result = batch(
        """
        # what is to be done
        mb s3://other
        cp a s3://bucket/        # in one go
        cp 'b c' "s3://bucket/x \\"y\\""
        penstock cp b\\ c s3://other/#2
        mv s3://bucket/a s3://other
        stat --json s3://other/a
        cp s3://other/a out
        """
    ).ok()

    assert batch.store.keys("bucket") == ['x "y"'] and batch.store.keys("other") == ["#2", "a"]
    assert (batch.folder / "out").read_text() == "a"
    assert result.out.startswith("made s3://other\n") and json.loads(result.out.partition("\n")[2])[0]["size"] == 1
    assert re.search(r"\b7\b.*\b0\b", result.err)


def test_a_line_waits_for_the_file_that_another_makes(batch):
    batch.store.client.put_object(Bucket="bucket", Key="big..1", Body=bytes(40_000_000))

    batch("cp s3://bucket/big..1 new/\nsync new s3://bucket/up\n").ok()

    assert batch.store.keys("bucket") == ["big..1", "up/big..1"]


@pytest.mark.parametrize("file", ["jobs", "-"])
def test_a_line_that_fails_is_named_and_the_rest_runs(batch, file):
    name = "jobs" if file == "jobs" else "<stdin>"
    lines = "cp none s3://bucket/\ncp 'a s3://bucket/\nserve\nrmm s3://bucket/x\ncat s3://nowhere/x\ncp --frob a b\ncp a s3://bucket/\n"

    result = batch(lines, file=file).exits(66)

    reported = result.err.splitlines()
    facts = [
        (f"penstock cp: {name}:1: ", "none"),
        (f"penstock batch: {name}:2: ", "'"),
        (f"penstock batch: {name}:3: ", "'serve'"),
        (f"penstock batch: {name}:4: ", "'rmm'", "'rm'"),
        (f"penstock cat: {name}:5: ", "s3://nowhere/x"),
        (f"penstock cp: {name}:6: ", "--frob"),
        ("penstock: ", "7", "6"),
    ]
    assert len(reported) == len(facts)
    assert all(line.startswith(start) and all(name in line for name in names) for line, (start, *names) in zip(reported, facts))
    assert batch.store.keys("bucket") == ["a"]


def test_the_code_is_that_of_the_worst_line(batch):
    assert batch("cp a s3://bucket/\nfrob\n").code == 64
    assert batch("frob\ncp none s3://bucket/\ncp a s3://bucket/x\n").code == 66
    proxy = FaultProxy(batch.store.endpoint)
    proxy.fault(method="PUT", path="/denied$", status=403, times=100)
    env = {"AWS_ENDPOINT_URL": proxy.url}
    assert batch("cp none s3://bucket/\ncp a s3://bucket/denied\ncp none s3://bucket/\n", env=env).code == 77
    proxy.close()


def test_fail_fast_ends_at_the_first_that_fails(batch):
    batch("cp a s3://bucket/1\ncp none s3://bucket/\ncp a s3://bucket/2\n", "--fail-fast").exits(66)

    assert batch.store.keys("bucket") == ["1"]


def test_options_of_the_store_hold_for_all_lines(batch):
    endpoint = {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}

    batch("cp a s3://bucket/\nls s3://bucket\n", "--endpoint-url", batch.store.endpoint, env=endpoint).ok()
    batch(f"cp --endpoint-url {batch.store.endpoint} a s3://bucket/b\n", "--endpoint-url", "http://127.0.0.1:1").ok()

    assert batch.store.keys("bucket") == ["a", "b"]


# Many lines share a few connections.
def test_connections_are_shared(batch, fault_proxy):
    lines = "".join(f"cp a s3://bucket/{number}\n" for number in range(50))
    accepted, serve = [], fault_proxy.serve
    fault_proxy.serve = lambda connection, address: (accepted.append(address), serve(connection, address))

    batch(lines, env={"AWS_ENDPOINT_URL": fault_proxy.url}).ok()

    assert len(batch.store.keys("bucket")) == 50 and 1 <= len(accepted) < 20


def test_one_lines_quiet_is_its_own(batch):
    result = batch("cp -q a s3://bucket/1\ncp -v a s3://bucket/2\n").ok()

    assert result.out == "upload a -> s3://bucket/2\n" and "1 copied, 1 B" in result.err


@pytest.mark.parametrize("line", [b"cp a\0b s3://bucket/", b"cp " + b"x" * (1 << 20) + b" s3://bucket/", b"cp a s3://bucket/\\", b'cp "a'])
def test_lines_that_are_none(batch, line):
    result = batch(line + b"\ncp a s3://bucket/ok\n").exits(64)

    assert "jobs:1: " in result.err and len(result.err) < 1000 and batch.store.keys("bucket") == ["ok"]


def test_standard_input_that_holds_the_commands_is_not_stored(batch):
    result = batch("put s3://bucket/x\ncp - s3://bucket/y\n", file="-").exits(64)

    assert len(result.err.splitlines()) >= 2 and batch.store.keys("bucket") == []


def test_ctrl_c_ends_all_lines(batch, penstock, fault_proxy):
    (batch.folder / "jobs").write_text("cp a s3://bucket/1\ncp a s3://bucket/2\ncp a s3://bucket/3\n")
    held = fault_proxy.fault(method="PUT", path="/[23]$", hold="request", times=100)

    process = penstock.popen("batch", "jobs", env=batch.store.env | {"AWS_ENDPOINT_URL": fault_proxy.url}, cwd=batch.folder)
    held.wait(2)
    wait_for(lambda: any(each.ended for each in fault_proxy.seen("PUT", path="/1$")), 60, "the first line")
    process.send(signal.SIGINT)
    result = process.wait().exits(130)
    held.release()

    assert batch.store.keys("bucket") == ["1"]
    # The command that the message names runs the rest of the lines.
    assert "line 2" in result.err
    rest = re.search(r"tail -n \+2 'jobs' \| penstock batch -", result.err)
    penstock.run("batch", "-", env=batch.store.env, cwd=batch.folder, input=b"".join((batch.folder / "jobs").read_bytes().splitlines(True)[1:])).ok()
    assert rest and batch.store.keys("bucket") == ["1", "2", "3"]


def test_the_command_that_continues_a_batch_may_be_pasted(batch, penstock, fault_proxy):
    (batch.folder / "it's a list").write_text("cp a s3://bucket/1\ncp a s3://bucket/2\n")
    held = fault_proxy.fault(method="PUT", path="/2$", hold="request", times=100)

    process = penstock.popen("batch", "--limit-rate", "1M", "--endpoint-url", fault_proxy.url, "it's a list", env=batch.store.env | {"AWS_ENDPOINT_URL": None}, cwd=batch.folder)
    held.wait(1)
    wait_for(lambda: any(each.ended for each in fault_proxy.seen("PUT", path="/1$")), 60, "the first line")
    process.send(signal.SIGINT)
    result = process.wait().exits(130)
    held.release()
    command = re.search(r"tail -n .*", result.err)[0].replace("penstock", shlex.quote(str(binary())))

    assert "--limit-rate '1M'" in command
    subprocess.run(command, shell=True, check=True, env=penstock.env | batch.store.env | {"AWS_ENDPOINT_URL": ""}, cwd=batch.folder, timeout=60)
    assert batch.store.keys("bucket") == ["1", "2"]


def held_batch(batch, penstock, fault_proxy, lines, *options, **fault):
    """Starts a batch; the proxy holds its requests that match `fault`."""
    (batch.folder / "jobs").write_text(lines)
    held = fault_proxy.fault(hold="request", **fault)
    env = batch.store.env | {"AWS_ENDPOINT_URL": fault_proxy.url}
    return penstock.popen("batch", *options, "jobs", env=env, cwd=batch.folder), held


def test_lines_that_have_nothing_to_do_with_each_other_run_beside_each_other(batch, penstock, fault_proxy):
    lines = "".join(f"cp -v a s3://bucket/d/{number}\n" for number in range(4)) + "cp -v 'b c' s3://bucket/d/\ncp -v none s3://bucket/x\n"
    process, held = held_batch(batch, penstock, fault_proxy, lines, method="PUT", path="/d/", times=5)

    held.wait(5)  # all lines at the same time
    held.release()
    result = process.wait().exits(66)

    assert [line.rpartition("/")[2] for line in result.out.splitlines()] == ["0", "1", "2", "3", "b c"]
    assert "penstock cp: jobs:6: " in result.err
    assert re.search(r"\b6\b.*\b1\b.*\n$", result.err)


# Output and messages of a line wait for those of the earlier lines.
def test_what_is_printed_waits_for_the_lines_before(batch, penstock, fault_proxy):
    lines = "cp -v a s3://bucket/first\ncp -v a s3://bucket/2\nfrob\ncp none s3://bucket/\ncp -v a s3://bucket/last\n"
    process, held = held_batch(batch, penstock, fault_proxy, lines, method="PUT", path="/first$")

    held.wait()
    wait_for(lambda: {"2", "last"} <= set(batch.store.keys("bucket")), 60, "the lines behind the first")
    held.release()
    result = process.wait().exits(66)

    assert [line.rpartition("/")[2] for line in result.out.splitlines()] == ["first", "2", "last"]
    assert [line.partition("jobs:")[2][:1] for line in result.err.splitlines() if "jobs:" in line and "copied" not in line] == ["3", "4"]


# Each line needs the result of the line before it.
@pytest.mark.parametrize(
    "lines",
    [
        "cp a s3://bucket/1\ncp s3://bucket/1 s3://bucket/2\nrm -q s3://bucket/1\ncp 'b c' s3://bucket/1\n",
        "cp a s3://bucket/d/1\nmv -r s3://bucket/d/ s3://bucket/\ncp s3://bucket/1 s3://bucket/2\ncp 'b c' s3://bucket/1\n",
        "cp a s3://bucket/1\ncp s3://bucket/1 ./new/x/y\nsync new s3://bucket/n\nmv s3://bucket/n/x/y s3://bucket/2\ncp 'b c' s3://bucket/1\ncp s3://bucket/1 new/../new/1\nmv new/1 s3://bucket/3\nmv s3://bucket/3 s3://bucket/1\n",
        "cp a s3://bucket/1\nmv s3://bucket/1 a2\nmv ./a2 s3://bucket/2\ncp 'b c' s3://bucket/1\n",
    ],
)
def test_lines_that_touch_the_same_run_in_their_order(batch, lines):
    batch(lines, "--jobs", "16").ok()

    assert batch.store.keys("bucket") == ["1", "2"]
    assert [batch.store.bytes("bucket", key) for key in ("1", "2")] == [b"b c", b"a"]


def test_so_many_lines_at_a_time_as_asked_for(batch, penstock, fault_proxy):
    lines = "".join(f"cp a s3://bucket/{number}\n" for number in range(6))
    process, held = held_batch(batch, penstock, fault_proxy, lines, "-j2", method="PUT", times=2)

    held.wait(2)
    assert len(fault_proxy.seen("PUT")) == 2
    held.release()
    process.wait().ok()

    assert len(batch.store.keys("bucket")) == 6
    batch("", "--jobs", "0").exits(64)
    batch("", "--jobs", "33").exits(64)


def test_what_lines_print_is_in_their_order(batch):
    batch.store.client.put_object(Bucket="bucket", Key="k", Body=b"content\n")

    assert batch("mb s3://one\ncat s3://bucket/k\nmb s3://two\n").ok().out == "made s3://one\ncontent\nmade s3://two\n"


def test_a_file_that_is_not_there(batch):
    assert "none" in batch("", file="none").exits(66).err
