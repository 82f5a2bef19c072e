"""The one exit path: after any end of a step, and any failure of the store, closed files are published or kept."""
import contextlib
import functools
import os
import re
import signal
import subprocess

import pytest

from harness import processes
from harness.fault_proxy import s3_error
from harness.program import Process, binary
from harness.waiting import wait_for
from harness.workflows import s3_place, write_workflow

# A save in progress: the file is open, and half of it is written.
HALF = "exec 3> $DEEPSQUARE_OUTPUT/half; echo ha >&3; "


@pytest.fixture
def workflow(tmp_path):
    """workflow(*steps, **fields): the path of a workflow file."""
    return functools.partial(write_workflow, tmp_path, name="x")


@pytest.fixture
def to_store(store, fault_proxy):
    """The `output` of a workflow: a bucket of the test's own store, behind the proxy."""
    return s3_place(store, endpoint=fault_proxy.url)


def run_folder(penstock):
    return penstock.home / "runs" / penstock.ps()[0]["id"]


def last_line(text):
    """Returns the last line, not counting the hint to `penstock resume`."""
    return [line for line in text.strip().splitlines() if not line.startswith("penstock: 'penstock resume")][-1]


# --- how a step ends


def test_the_last_write_of_a_step_that_fails_is_published(penstock, workflow, store, to_store):
    path = workflow("for i in 1 2 3; do echo $i > $DEEPSQUARE_OUTPUT/last; done; exit 3", "echo never", output=to_store, continuousOutputSync=True)

    result = penstock.run("run", path).exits(3)

    run = penstock.ps()[0]
    assert (run["state"], run["class"], run["exit_code"], run["unflushed"]) == ("failed", "user", 3, False)
    assert "never" not in result.out and "'s1'" in last_line(result.err) and " 3" in last_line(result.err)
    assert store.bytes("out", "last") == b"3\n"


@pytest.mark.parametrize("name, code", [("KILL", 137), ("SEGV", 139), ("ABRT", 134), ("TERM", 143)])
def test_a_step_that_is_killed(penstock, workflow, store, to_store, name, code):
    # Files that the step closed are published. The half-written file goes to partial/, and its last
    # good version stays.
    step = "ulimit -c 0; cd $DEEPSQUARE_OUTPUT; echo good > half; echo 1 > last; while [ ! -e $STORAGE_PATH/go ]; do sleep 0.02; done; "
    run = penstock.popen("run", workflow(step + HALF + f"kill -{name} $$", output=to_store, continuousOutputSync=True))
    wait_for(lambda: penstock.ps() and penstock.ps()[0]["state"] == "running", 60, "the step")
    wait_for(lambda: {"half", "last"} <= set(store.keys("out")), 60, "the good ones in the store")
    (run_folder(penstock) / "storage" / "go").touch()

    result = run.wait().exits(code)

    ended = penstock.ps()[0]
    assert (ended["state"], ended["class"], ended["exit_code"], ended["unflushed"]) == ("failed", "user", code, False)
    assert "'s1'" in last_line(result.err) and f" {code - 128}" in last_line(result.err)
    assert store.bytes("out", "last") == b"1\n" and store.bytes("out", "half") == b"good\n"
    assert store.bytes("out", f".penstock/runs/{ended['id']}/partial/half") == b"ha\n"


STRAYS = """
    work() { trap '' TERM HUP INT; echo $1 > $DEEPSQUARE_OUTPUT/$1; echo $1 is ready; while :; do sleep 0.02; done; }
    work child &
    (work grandchild & work parent) &
    (setsid bash -c "$(declare -f work); (work orphan &)" &)
    setsid -f bash -c "$(declare -f work); exec 3> $DEEPSQUARE_OUTPUT/open; echo ha >&3; work daemon"
    while [ $(ls $DEEPSQUARE_OUTPUT | wc -l) -lt 6 ] || [ ! -s $DEEPSQUARE_OUTPUT/open ]; do sleep 0.02; done
    """


@pytest.mark.parametrize("end, code", [("exit 0", 0), ("exit 5", 5)])
def test_children_and_grandchildren_end_with_their_step(penstock, workflow, store, to_store, end, code):
    # The processes ignore SIGTERM; some are in a session of their own, some have no parent. The files that they closed are sent; an open file does
    # not count as whole.
    step = {"run": {"command": STRAYS + end, "shell": "/bin/bash"}}
    before = set(processes.descendants())

    penstock.run("run", workflow(output=to_store, continuousOutputSync=True, steps=[step])).exits(code)

    assert processes.survivors(before, 0) == {}
    run = penstock.ps()[0]
    assert (run["state"], run["exit_code"]) == ("failed" if code else "succeeded", code)
    for name in ("child", "grandchild", "parent", "orphan", "daemon"):
        assert store.bytes("out", name) == name.encode() + b"\n"
    assert "open" not in store.keys("out")
    assert store.bytes("out", f".penstock/runs/{run['id']}/partial/open") == b"ha\n"


DEAF = "trap '' TERM INT; echo 1 > $DEEPSQUARE_OUTPUT/saved; echo started; while :; do sleep 0.05; done"


def test_a_deaf_step_is_killed_after_its_grace(penstock, workflow, store, to_store):
    run = penstock.popen("run", workflow(DEAF, output=to_store), env={"PENSTOCK_STOP_GRACE": "1"})
    run.wait_for_output("started")

    run.send(signal.SIGINT)

    assert "1 s" in run.wait().exits(130).err
    assert penstock.ps()[0]["state"] == "stopped" and store.bytes("out", "saved") == b"1\n"


def test_stop_gives_the_grace_that_it_was_told(penstock, workflow, store, to_store, wait_for):
    # The grace may be longer or shorter than that of the run; the command returns when the output is complete.
    run = penstock.popen("run", workflow(DEAF, output=to_store), env={"PENSTOCK_STOP_GRACE": "0"})
    run.wait_for_output("started")

    stopped = penstock.run("stop", "x", "--grace", "2s").ok()

    assert "2 s" in run.wait().exits(130).err or stopped.seconds >= 2
    assert "stopped" in stopped.out and "'s1'" in stopped.out
    assert store.bytes("out", "saved") == b"1\n" and not (run_folder(penstock) / "grace").exists()


# --- a full disk


class SmallDisk:
    """A mount namespace in which the home of penstock is a small disk."""

    def __init__(self, penstock, size):
        self.penstock = penstock
        penstock.home.mkdir()
        private = ["unshare", "-m"] if os.getuid() == 0 else ["unshare", "-rm"]
        self.join = [] if os.getuid() == 0 else ["-U", "--preserve-credentials"]
        script = f"mount -t tmpfs -o size={size},mode=700 none {penstock.home} && echo mounted && exec sleep 100000"
        self.holder = subprocess.Popen([*private, "sh", "-c", script], stdout=subprocess.PIPE, text=True)
        assert self.holder.stdout.readline() == "mounted\n"
        self.home = f"/proc/{self.holder.pid}/root{penstock.home}"

    def run(self, *arguments):
        command = ["nsenter", *self.join, "-m", "-t", str(self.holder.pid), binary(), *arguments]
        process = Process(command, self.penstock.env, "/")
        self.penstock.started.append(process)
        return process.wait()

    def close(self):
        self.holder.kill()
        self.holder.wait()
        self.holder.stdout.close()


@pytest.fixture
def small_disk(penstock):
    disk = SmallDisk(penstock, "12m")
    yield disk
    disk.close()


FILL = "cat /dev/zero > $STORAGE_PATH/fill 2>/dev/null; while printf x >> $STORAGE_PATH/fill; do :; done 2>/dev/null; "


@pytest.mark.parametrize("end, code", [("exit 3", 3), ("exit 0", 0)])
def test_a_step_that_fills_the_disk(small_disk, workflow, store, to_store, end, code):
    # Files that were closed before the disk was full are in the store, the end is recorded, and the
    # log has the last lines.
    step = "echo 1 > $DEEPSQUARE_OUTPUT/before; echo early; " + FILL + "seq 100000; echo the last words; " + end
    path = workflow(step, output=to_store, continuousOutputSync=True, enableLogging=True)

    result = small_disk.run("run", path).exits(code)

    (run,) = small_disk.run("ps", "--json").json()
    assert (run["state"], run["exit_code"], run["steps_done"]) == ("failed" if code else "succeeded", code, 0 if code else 1)
    assert store.bytes("out", "before") == b"1\n"
    log = small_disk.run("logs", "x").ok().out
    assert log.startswith("penstock: ") or log.startswith("early")
    assert re.search(r"\d+ bytes", log) and "\nthe last words\n" in log
    assert last_line(log).startswith(f"penstock: run {run['id']} {run['state']}")
    assert result.err.count("No space left on device") == 1
    sent = store.bytes("out", f".penstock/runs/{run['id']}/log/1").decode()
    assert "\nthe last words\n" in sent
    assert result.out.endswith("100000\nthe last words\n")  # the terminal has the whole output


def test_a_disk_without_room_to_begin_on(small_disk, workflow):
    # One line names the file that could not be written, and nothing is damaged.
    small_disk.run("run", workflow("echo 1 > $DEEPSQUARE_OUTPUT/one", name="first")).ok()
    with open(small_disk.home + "/fill", "wb", buffering=0) as fill, contextlib.suppress(OSError):
        while fill.write(bytes(4096)):
            pass

    result = small_disk.run("run", workflow("echo never", name="second"))

    assert result.code == 70 and result.out == ""
    assert "No space left on device" in result.err or "full" in result.err
    os.unlink(small_disk.home + "/fill")
    small_disk.run("run", workflow("echo now", name="second")).ok()
    assert {run["name"] for run in small_disk.run("ps", "--json").json()} == {"first", "second"}


# --- the store during the flush

FAULTS = {
    "gone": (None, "once the store answers again"),
    "cut": ({"drop": True}, "once the store answers again"),
    "refusing": ({"status": 403, "body": s3_error("AccessDenied", "You may not")}, "the keys"),
    "over its quota": ({"status": 403, "body": s3_error("QuotaExceeded", "Your quota is used up")}, "make room in the store"),
    "full": ({"status": 507, "body": s3_error("StorageFull", "No room")}, "make room in the store"),
    "failing for its quota": ({"status": 500, "body": s3_error("InternalError", "Disk quota exceeded (EDQUOT)")}, "once the store"),
    "busy": ({"status": 503, "body": s3_error("SlowDown", "Later")}, "once the store answers again"),
}


@pytest.mark.parametrize("continuous", [False, pytest.param(True, marks=pytest.mark.long)], ids=["at the end", "continuous"])
@pytest.mark.parametrize("fault", [pytest.param(name, marks=pytest.mark.long) if name in ("cut", "busy") else name for name in FAULTS])
def test_a_store_that_fails_during_the_flush(penstock, workflow, store, fault_proxy, to_store, fault, continuous):
    # The exit code is 73, one line has the remedy, and no local file is deleted. `flush` completes the output byte for byte, and the run keeps its end.
    data = bytes(range(256)) * 4096
    step = "echo started; while [ ! -e $STORAGE_PATH/go ]; do sleep 0.02; done; cp $STORAGE_PATH/data $DEEPSQUARE_OUTPUT/data; exit 4"
    run = penstock.popen("run", workflow(step, output=to_store, continuousOutputSync=continuous, enableLogging=True),
                         env={"PENSTOCK_FLUSH_PATIENCE": "1"})  # fmt: skip
    run.wait_for_output("started")
    folder = run_folder(penstock)
    (folder / "storage" / "data").write_bytes(data)
    how, hint = FAULTS[fault]
    if how is None:
        fault_proxy.down()
    else:
        fault_proxy.fault("PUT|POST", times=100000, **how)
    (folder / "storage" / "go").touch()

    result = run.wait().exits(73)

    line = last_line(result.err)
    assert line.startswith("penstock: run ") and hint in line
    assert f"'penstock flush {folder.name}'" in line and str(folder / "storage" / "output") in line
    # A request that gets 500 or 503 is retried, so the reported failure may be that of a later
    # request.
    if how and how.get("status", 500) not in (500, 503):
        assert how["body"].decode().split("<Message>")[1].split("</Message>")[0] in line
    assert (folder / "storage" / "output" / "data").read_bytes() == data
    assert "data" not in store.keys("out")
    again = penstock.run("flush", "x", env={"PENSTOCK_FLUSH_PATIENCE": "1"}).exits(73)
    assert hint in last_line(again.err) and f"'penstock flush {folder.name}'" in last_line(again.err)
    assert penstock.run("rm", "x").exits(73) and penstock.ps()[0]["unflushed"]
    fault_proxy.clear()
    if how is None:
        fault_proxy.up()
    penstock.run("flush", "x").ok()
    assert store.bytes("out", "data") == data
    ended = penstock.ps()[0]
    assert (ended["state"], ended["class"], ended["exit_code"], ended["unflushed"]) == ("failed", "user", 4, False)
    assert b"started" in store.bytes("out", f".penstock/runs/{ended['id']}/log/1")
    penstock.run("rm", "x").ok()


def test_a_store_that_falls_silent_during_the_flush(penstock, workflow, store, fault_proxy, to_store):
    # An upload fails if no byte moves for PENSTOCK_NETWORK_STALL, and is retried for
    # PENSTOCK_FLUSH_PATIENCE.
    fault_proxy.fault("PUT", "^/out/data$", times=100000, hold="request")

    result = penstock.run("run", workflow("echo 1 > $DEEPSQUARE_OUTPUT/data", output=to_store),
                          env={"PENSTOCK_FLUSH_PATIENCE": "1", "PENSTOCK_NETWORK_STALL": "1"}).exits(73)  # fmt: skip

    assert "'penstock flush " in last_line(result.err)
    fault_proxy.clear()
    penstock.run("flush", "x").ok()
    assert store.bytes("out", "data") == b"1\n" and penstock.ps()[0]["state"] == "succeeded"


# storePatience also limits the wait for a silent connection, which is 30 s without that key.
def test_a_silent_store_is_given_up_when_the_workflow_says(penstock, workflow, fault_proxy, to_store):
    fault_proxy.fault("PUT", "^/out/data$", times=100000, hold="request")

    result = penstock.run("run", workflow("echo 1 > $DEEPSQUARE_OUTPUT/data", output=to_store, storePatience="2s")).exits(73)

    assert result.seconds < 25
    fault_proxy.clear()


@pytest.mark.parametrize("status", [403, 507])
def test_an_http_output_that_is_refused(penstock, workflow, http_server, status):
    http_server.fault("/up/result", times=1000, status=status, methods=("PUT",))
    output = {"http": {"url": http_server.url + "/up/result"}}

    result = penstock.run("run", workflow("echo 1 > $DEEPSQUARE_OUTPUT/data", output=output)).exits(73)

    assert "'penstock flush " in last_line(result.err)
    penstock.run("rm", "x").exits(73)
    http_server.faults.clear()
    penstock.run("flush", "x").ok()
    assert http_server.received["/up/result"] == b"1\n"
    penstock.run("rm", "x").ok()


# --- messages about the output


def test_flush_has_nothing_to_do_where_the_output_goes_nowhere(penstock, workflow):
    penstock.run("run", workflow("echo 1 > $DEEPSQUARE_OUTPUT/data; exit 2")).exits(2)

    flushed = penstock.run("flush", "x").ok()

    output = run_folder(penstock) / "storage" / "output"
    assert str(output) in flushed.err
    assert (output / "data").read_text() == "1\n" and penstock.ps()[0]["state"] == "failed"


def test_http_output_that_was_not_sent_is_not_removed(penstock, workflow, http_server):
    # A preempted run has not sent the file yet; flush sends it.
    path = workflow("echo 1 > $DEEPSQUARE_OUTPUT/data; echo started; exec sleep 1000", output={"http": {"url": http_server.url + "/up/result"}})
    run = penstock.popen("run", path, env={"PENSTOCK_STOP_GRACE": "0"})
    run.wait_for_output("started")
    run.send(signal.SIGTERM)
    run.wait().exits(75)

    refused = penstock.run("rm", "x").exits(73)

    assert "penstock flush" in refused.err and penstock.ps()[0]["unflushed"]
    assert (run_folder(penstock) / "storage" / "output" / "data").exists() and http_server.seen(method="PUT") == []
    penstock.run("flush", "x").ok()
    assert http_server.received["/up/result"] == b"1\n" and penstock.ps()[0]["state"] == "preempted"
    penstock.run("rm", "x").ok()


def test_output_that_a_new_start_could_not_move_aside_is_not_removed(penstock, workflow, http_server):
    step = "echo $PENSTOCK_ATTEMPT > $DEEPSQUARE_OUTPUT/data; [ $PENSTOCK_ATTEMPT = 1 ] || exit 0; echo started; exec sleep 1000"
    path = workflow(step, output={"http": {"url": http_server.url + "/up/result"}})
    run = penstock.popen("run", path, env={"PENSTOCK_STOP_GRACE": "0"})
    run.wait_for_output("started")
    run.send(signal.SIGTERM)
    run.wait().exits(75)
    folder = run_folder(penstock)
    (folder / "output.before-2" / "x").mkdir(parents=True)

    penstock.run("run", path, "--fresh").exits(69)
    assert penstock.ps()[0]["unflushed"]
    penstock.run("run", path, "--fresh").ok()

    assert (folder / "output.before-3" / "data").read_text() == "1\n"


def test_a_run_says_where_its_output_is(penstock, workflow, store, to_store, http_server):
    to_store["s3"]["path"] = "/a/b"
    step = "echo 1 > $DEEPSQUARE_OUTPUT/data"
    url = http_server.url + "/up/result"

    assert " s3://out/a/b/" in last_line(penstock.run("run", workflow(step, output=to_store)).ok().err)
    sent = penstock.run("run", workflow(step, output={"http": {"url": url + "?token=hidden"}}, name="h")).ok()
    assert f" {url}" in last_line(sent.err) and "hidden" not in sent.text
    here = penstock.run("run", workflow(step, name="here")).ok()
    assert last_line(here.err).endswith("/storage/output")
    assert last_line(penstock.run("run", workflow("true", name="none")).ok().err).endswith("succeeded")


# --- the same run under two homes

CONTAINED = """mount -t tmpfs none "$1" && mkdir "$1"/usr "$1"/deepsquare && mount --rbind /usr "$1"/usr && mount --bind "$2" "$1"/deepsquare || exit 99
for link in bin lib lib64; do ln -s usr/$link "$1"/$link; done
exec env -i PENSTOCK_RUN_ID="$3" STORAGE_PATH=/deepsquare "$(command -v chroot)" "$1" /usr/bin/sleep 100000"""


@contextlib.contextmanager
def contained(root, storage, run_id):
    """Starts a process in a container-like mount namespace, where the path of its storage does not
    show which run it belongs to."""
    root.mkdir()
    private = ["unshare", "-m"] if os.getuid() == 0 else ["unshare", "-rm"]
    process = subprocess.Popen([*private, "sh", "-c", CONTAINED, "sh", str(root), str(storage), run_id])
    try:
        begun = wait_for(lambda: process.poll() is not None or open(f"/proc/{process.pid}/comm").read() == "sleep\n", what="the process")
        if process.poll() == 99:
            pytest.skip("mounts are not allowed here")
        assert begun and process.poll() is None
        yield process
    finally:
        process.kill()
        process.wait()


def test_what_runs_in_a_container_under_another_home_is_let_alone(penstock, workflow, tmp_path):
    penstock.run("run", workflow("true")).ok()
    run = run_folder(penstock)
    (run / "storage").mkdir(exist_ok=True)
    (tmp_path / "other").mkdir()

    with contained(tmp_path / "root1", run / "storage", run.name) as ours, contained(tmp_path / "root2", tmp_path / "other", run.name) as other:
        penstock.run("rm", "x", "--force").ok()

        wait_for(lambda: ours.poll() is not None, what="the end of the process that the run left behind")
        assert other.poll() is None
