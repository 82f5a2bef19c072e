"""Ownership of a run: its state next to the output, seen from another machine (with another home,
and with another boot id in the state)."""
import json
import os
import re
import signal
import threading

import pytest

from harness import processes, progress
from harness.program import Penstock
from harness.small_store import SmallStore
from harness.workflows import s3_place, write_workflow

STATE = ".penstock/runs/{}/state.json"


@pytest.fixture
def elsewhere(tmp_path):
    """The program on another machine, which shares only the store with the first machine."""
    program = Penstock(tmp_path / "elsewhere")
    yield program
    program.close()


@pytest.fixture
def lost_run(penstock, store, tmp_path, wait_for):
    """A run that was killed after its checkpoint was published. Returns the workflow's path, the
    run's id, and the state that the owner left."""
    step = """
        cd $DEEPSQUARE_OUTPUT
        if [ -e ckpt ]; then echo resumed at $(cat ckpt); [ -z "$STAY" ] && exit 0; echo staying; exec sleep 1000; fi
        mkdir -p empty; ln -s ckpt link; echo 7 > ckpt; echo saved; exec sleep 1000"""
    path = write_workflow(tmp_path, "echo one", step, output=s3_place(store), continuousOutputSync=True)
    run = penstock.popen("run", path)
    run.wait_for_output("saved")
    identity = penstock.ps()[0]["id"]
    manifest = f".penstock/runs/{identity}/manifest.json"
    # Look for the whole names, because the target of the link has the name of the checkpoint, too.
    wait_for(lambda: manifest in store.keys("out") and
             {"ckpt", "link"} <= {entry["path"] for entry in json.loads(store.bytes("out", manifest))["files"]})  # fmt: skip
    run.kill()
    state = json.loads(store.bytes("out", STATE.format(identity)))
    assert state["state"] == "running" and state["owner"]["pid"] == run.pid
    return path, identity, state


def put_state(store, identity, state):
    store.client.put_object(Bucket="out", Key=STATE.format(identity), Body=json.dumps(state).encode())


def test_a_run_whose_owner_does_not_move_is_taken_over(elsewhere, store, lost_run):
    # The contender watches the state for one term by its own clock. The state does not change, so
    # the contender takes over, and restores all published files.
    path, identity, state = lost_run
    state["owner"] |= {"boot_id": "another", "host": "node7"}
    state["lease"]["term_ms"] = 1500
    put_state(store, identity, state)

    taken = elsewhere.run("run", path).ok()

    assert "node7" in taken.err and taken.seconds > 1.5
    assert taken.out == "one\nresumed at 7\n"
    ended = json.loads(store.bytes("out", STATE.format(identity)))
    assert (ended["state"], ended["attempt"]) == ("succeeded", 2)


def test_what_an_owner_left_that_was_killed_under_another_home_is_ended_first(penstock, elsewhere, store, job):
    # A process that the killed owner left behind would continue to compute, and to write into the
    # storage of the other home, so the takeover ends that process first.
    path = job("left", 'if [ $PENSTOCK_ATTEMPT = 1 ]; then (setsid sleep 1000 & echo $! > $STORAGE_PATH/left); echo begun; exec sleep 1000; fi')
    run = penstock.popen("run", path)
    run.wait_for_output("begun")
    (left,) = penstock.home.glob("runs/*/storage/left")
    pid = int(left.read_text())
    run.kill()
    assert processes.is_alive(pid)

    try:
        taken = elsewhere.run("run", path).ok()

        assert not processes.is_alive(pid)
        assert re.search(progress.ENDED_STRAYS, taken.err) and str(penstock.home) in taken.err
    finally:
        if processes.is_alive(pid):
            os.kill(pid, signal.SIGKILL)


def test_a_home_of_the_same_path_on_a_machine_of_the_same_name_is_another(penstock, elsewhere, store, lost_run):
    # Short-lived machines often have the same names and paths. Files that an earlier machine has
    # left must not replace newer files.
    path, identity, _ = lost_run
    elsewhere.run("run", path).ok()
    ended = json.loads(store.bytes("out", STATE.format(identity)))
    assert ended["owner"]["home_id"] == (elsewhere.home / "id").read_text() != (penstock.home / "id").read_text()
    put_state(store, identity, ended | {"owner": ended["owner"] | {"home": str(penstock.home), "boot_id": "another"}})

    refused = penstock.run("flush", identity)

    assert refused.code != 0 and "attempt 2" in refused.err


def test_a_home_that_is_not_utf8_is_refused_before_anything_begins(penstock, tmp_path, job):
    home = os.fsencode(tmp_path) + b"/h\xff"

    refused = penstock.run("run", job("odd", "echo x"), env={"PENSTOCK_HOME": os.fsdecode(home)}).exits(65)

    assert "UTF-8" in refused.err and "PENSTOCK_HOME" in refused.err
    assert not os.path.exists(home)


def test_a_lost_run_that_was_flushed_goes_on_elsewhere(penstock, elsewhere, store, lost_run):
    path, identity, state = lost_run
    assert state["lease"]["term_ms"] == 30_000  # the default
    penstock.run("flush", identity).ok()
    assert json.loads(store.bytes("out", STATE.format(identity)))["state"] == "lost"

    assert elsewhere.run("run", path).ok().out == "one\nresumed at 7\n"


def test_a_run_that_is_live_elsewhere_is_refused_by_name(elsewhere, store, lost_run):
    path, identity, state = lost_run
    state["owner"] |= {"boot_id": "another", "host": "node7"}
    state["lease"]["term_ms"] = 5000
    put_state(store, identity, state)
    quit_beating = threading.Event()

    def beat():
        while not quit_beating.wait(0.3):
            state["lease"]["beat"] += 1
            put_state(store, identity, state)

    beating = threading.Thread(target=beat)
    beating.start()
    refused = elsewhere.run("run", path)
    quit_beating.set()
    beating.join()

    refused.exits(69)
    assert "node7" in refused.err and state["owner"]["since"] in refused.err and refused.out == ""
    assert store.bytes("out", "ckpt") == b"7\n"


UNREADABLE = {
    "newer": lambda state: json.dumps(state | {"format": 2}),
    "none": lambda state: json.dumps({key: value for key, value in state.items() if key != "format"}),
    "garbage": lambda state: "<html>sign in</html>",
    "empty": lambda state: "",
}


@pytest.mark.parametrize("form", UNREADABLE)
def test_a_state_that_cannot_be_read_is_nobodys_death(elsewhere, store, lost_run, form):
    # The owner may be alive: neither its state nor the output is changed.
    path, identity, state = lost_run
    body = UNREADABLE[form](state).encode()
    store.client.put_object(Bucket="out", Key=STATE.format(identity), Body=body)
    before = store.keys("out")

    refused = elsewhere.run("run", path)

    assert refused.code != 0 and refused.out == ""
    assert STATE.format(identity) in refused.err and ("format 2" in refused.err) == (form == "newer")
    assert store.bytes("out", STATE.format(identity)) == body and store.keys("out") == before


def test_a_state_that_is_not_known_is_no_end(elsewhere, store, lost_run):
    path, identity, state = lost_run
    state["state"] = "hibernating"
    state["owner"] |= {"boot_id": "another", "host": "node7"}
    state["lease"]["term_ms"] = 1500
    put_state(store, identity, state)

    taken = elsewhere.run("run", path).ok()

    assert "node7" in taken.err and taken.seconds > 1.5


def test_an_owner_of_the_output_that_cannot_be_read_is_not_replaced(elsewhere, store, lost_run):
    path, _, _ = lost_run
    store.client.put_object(Bucket="out", Key=".penstock/owner.json", Body=b'{"format": 2, "run": "another"}')

    refused = elsewhere.run("run", path)

    assert refused.code != 0 and ".penstock/owner.json" in refused.err
    assert store.bytes("out", ".penstock/owner.json") == b'{"format": 2, "run": "another"}'


def test_another_home_on_the_same_machine_is_seen_through_its_process(penstock, elsewhere, lost_run):
    # On the same machine, the owner's process is visible, so there is no need to wait for a term.
    # With a live owner the run is refused; after its death the takeover is immediate.
    path, _, _ = lost_run
    first = penstock.popen("run", path, "--env", "STAY=1")
    first.wait_for_output("staying")

    refused = elsewhere.run("run", path).exits(69)
    first.kill()
    taken = elsewhere.run("run", path).ok()

    assert str(first.pid) in refused.err
    assert taken.out == "one\nresumed at 7\n" and taken.seconds < 15


def test_an_owner_in_another_container_is_watched(elsewhere, store, lost_run):
    # The owner's process is not visible from here, although the machine is the same, so penstock waits for a whole term.
    path, identity, state = lost_run
    state["owner"] |= {"pid_ns": "pid:[1]", "host": "node7", "home": str(elsewhere.home)}
    state["lease"]["term_ms"] = 1500
    put_state(store, identity, state)

    taken = elsewhere.run("run", path).ok()

    assert "node7" in taken.err and taken.seconds > 1.5
    assert taken.out == "one\nresumed at 7\n"


def test_an_end_that_was_not_written_beside_the_output_is_known_here(penstock, store, tmp_path):
    # The store may become unreachable after the flush. The run has still succeeded, so the next
    # attempt starts over. A state that penstock itself wrote, without seeing the reply, does not
    # mean that there is another owner.
    step = "ls $DEEPSQUARE_OUTPUT; echo 1 > $DEEPSQUARE_OUTPUT/x; echo wrote; while [ ! -e $STORAGE_PATH/go ]; do sleep 0.02; done"
    path = write_workflow(tmp_path, step, output=s3_place(store), continuousOutputSync=True)

    def run_once(change):
        run = penstock.popen("run", path)
        run.wait_for_output("wrote")
        identity = penstock.ps()[0]["id"]
        change(identity, json.loads(store.bytes("out", STATE.format(identity))))
        (storage,) = penstock.home.glob("runs/*/storage")
        (storage / "go").touch()
        return identity, run.wait().ok()

    def lose_reply(identity, state):
        put_state(store, identity, state | {"state": "running"})

    identity, first = run_once(lose_reply)
    assert first.code == 0
    ended = json.loads(store.bytes("out", STATE.format(identity)))
    assert ended["state"] == "succeeded"
    put_state(store, identity, ended | {"state": "flushing"})

    _, second = run_once(lambda identity, state: None)

    assert second.out == "wrote\n"


def test_what_was_before_a_new_beginning_is_not_restored(penstock, store, tmp_path, wait_for):
    # A run that starts over, and is then killed and continued, restores only the output of its own
    # attempts. The older objects stay in the bucket, even with deleteSync.
    step = """cd $DEEPSQUARE_OUTPUT; ls; echo listed
        case $PENSTOCK_ATTEMPT in
        1) echo 1 > final; mkdir old; echo 1 > old/x; echo 1 > both;;
        2) sleep 1000;;
        3) echo 3 > both; echo 3 > new; echo saved; sleep 1000;;
        esac"""
    path = write_workflow(tmp_path, step, output=s3_place(store, deleteSync=True), continuousOutputSync=True)
    penstock.run("run", path).ok()
    second = penstock.popen("run", path)
    second.wait_for_output("listed")
    second.kill()
    third = penstock.popen("run", path)
    third.wait_for_output("saved")
    wait_for(lambda: "new" in store.keys("out") and store.bytes("out", "both") == b"3\n")
    third.kill()

    fourth = penstock.run("run", path).ok()

    assert second.out == "listed\n" and third.out == "listed\nsaved\n" and fourth.out == "both\nnew\nlisted\n"
    assert store.bytes("out", "final") == store.bytes("out", "old/x") == b"1\n"


def test_an_owner_that_was_replaced_publishes_nothing_more(penstock, store, tmp_path, wait_for):
    # Another machine took over, perhaps while the owner was suspended. The owner's next renewal
    # (every 10 s) is refused, and the owner ends its step.
    step = "echo 1 > $DEEPSQUARE_OUTPUT/x; trap 'echo 2 > $DEEPSQUARE_OUTPUT/x; echo told; exit 0' TERM; while :; do sleep 0.05; done"
    path = write_workflow(tmp_path, step, output=s3_place(store), continuousOutputSync=True)
    run = penstock.popen("run", path)
    wait_for(lambda: run.running() and penstock.ps() and penstock.ps()[0]["state"] == "running")
    wait_for(lambda: "x" in store.keys("out"))
    identity = penstock.ps()[0]["id"]
    state = json.loads(store.bytes("out", STATE.format(identity)))

    put_state(store, identity, state | {"attempt": 2, "owner": state["owner"] | {"boot_id": "another", "host": "node7", "pid": 1}})

    ended = run.wait(40).exits(69)
    assert ended.out == "told\n"
    assert store.bytes("out", "x") == b"1\n"
    assert json.loads(store.bytes("out", STATE.format(identity)))["owner"]["host"] == "node7"


# --- two runs, one output


@pytest.fixture
def job(store, tmp_path):
    """job(name, command): the path of a workflow of one step whose output is s3://out/, and whose name is its only difference."""

    def write(name, command, path="/"):
        output = s3_place(store, path)
        return write_workflow(tmp_path, command, file=f"{name}.json", named="only", name=name, output=output, continuousOutputSync=True)

    return write


STAY = "echo %s > $DEEPSQUARE_OUTPUT/x; echo wrote; while [ ! -e $STORAGE_PATH/go ]; do sleep 0.02; done"

ONCE = f"if [ $PENSTOCK_ATTEMPT = 1 ]; then {STAY % 'first'}; fi"


def state_of(penstock, store, name):
    (run,) = [run for run in penstock.ps() if run["name"] == name]
    return run["id"], json.loads(store.bytes("out", STATE.format(run["id"])))


def let_go(penstock, name):
    (run,) = [run for run in penstock.ps() if run["name"] == name]
    (penstock.home / "runs" / run["id"] / "storage" / "go").touch()


@pytest.mark.parametrize("where", ["here", "another home"])
def test_another_run_with_the_same_output_is_refused_while_the_first_one_lives(penstock, elsewhere, store, job, where):
    # Each run would overwrite the other's files. The refusal names the owner. After the owner's
    # end, the same command starts the refused run.
    first = penstock.popen("run", job("first", STAY % "first"))
    first.wait_for_output("wrote")
    identity, state = state_of(penstock, store, "first")
    second = penstock if where == "here" else elsewhere

    refused = second.run("run", job("second", "echo second > $DEEPSQUARE_OUTPUT/x")).exits(69)
    other = second.run("run", job("third", "echo third > $DEEPSQUARE_OUTPUT/x", "/elsewhere")).ok()
    let_go(penstock, "first")
    first.wait().ok()

    for part in (f"'{identity}'", f"process {first.pid},", f"(on {state['owner']['host']}, ", f"since {state['owner']['since']}"):
        assert part in refused.err
    assert other.code == 0 and store.bytes("out", "x") == b"first\n"
    assert not [key for key in store.keys("out") if "/replaced/" in key]
    second.run("run", job("second", "echo second > $DEEPSQUARE_OUTPUT/x")).ok()
    assert store.bytes("out", "x") == b"second\n"


def test_the_output_of_a_run_that_was_killed_is_free_at_once(penstock, store, job):
    # The killed run cannot be continued while the second run is live, but can be continued
    # afterwards.
    first = penstock.popen("run", job("first", ONCE))
    first.wait_for_output("wrote")
    first.kill()
    second = penstock.popen("run", job("second", STAY % "second"))
    second.wait_for_output("wrote")

    refused = penstock.run("run", job("first", ONCE)).exits(69)
    flush = penstock.run("flush", "first")
    let_go(penstock, "second")
    second.wait().ok()

    assert f"process {second.pid}," in refused.err and f"process {second.pid}," in flush.err and flush.code != 0
    assert store.bytes("out", "x") == b"second\n"
    continued = penstock.run("run", job("first", ONCE)).ok()
    assert continued.out == ""


def test_the_output_of_a_machine_that_is_gone_is_free_after_one_term(penstock, store, job, wait_for):
    first = penstock.popen("run", job("first", STAY % "first"))
    first.wait_for_output("wrote")
    wait_for(lambda: "x" in store.keys("out"), 60)
    first.kill()
    identity, state = state_of(penstock, store, "first")
    state["owner"] |= {"boot_id": "another", "host": "node7"}
    state["lease"]["term_ms"] = 1500
    put_state(store, identity, state)

    second = penstock.run("run", job("second", "echo second > $DEEPSQUARE_OUTPUT/x")).ok()

    assert "node7" in second.err and second.seconds > 1.5
    assert store.bytes("out", "x") == b"second\n"


def test_an_output_is_not_taken_over_where_conditions_are_ignored(penstock, tmp_path):
    # The owner may be a suspended machine. Without conditions, nothing would stop the next upload
    # of a machine that wakes up.
    with SmallStore(conditions=False) as small:
        output = {"s3": {"region": "us-east-1", "bucketUrl": "s3://out", "path": "/", "accessKeyId": "K" * 16, "secretAccessKey": "S" * 30, "endpointUrl": small.endpoint}}

        def job(name):
            command = f"echo {name} > $DEEPSQUARE_OUTPUT/x"
            return write_workflow(tmp_path, command, file=f"{name}.json", name=name, output=output, continuousOutputSync=True)

        penstock.run("run", job("first")).ok()
        (identity,) = [run["id"] for run in penstock.ps()]
        key = "out/" + STATE.format(identity)
        state = json.loads(small.objects[key][-1].body)
        state |= {"state": "running", "owner": state["owner"] | {"boot_id": "another", "host": "node7"}}
        small.put(key, json.dumps(state).encode())

        refused = penstock.run("run", job("second")).exits(69)

        assert "node7" in refused.err
        assert small.objects["out/x"][-1].body == b"first\n"


def test_a_run_whose_output_was_taken_over_publishes_nothing_more(penstock, store, job, wait_for):
    # Another run took the output, perhaps while the owner was suspended for a term. The owner's
    # next renewal (every 10 s) detects that.
    step = "echo 1 > $DEEPSQUARE_OUTPUT/x; trap 'echo 2 > $DEEPSQUARE_OUTPUT/x; echo told; exit 0' TERM; while :; do sleep 0.05; done"
    run = penstock.popen("run", job("first", step))
    wait_for(lambda: store.client.list_buckets()["Buckets"] and "x" in store.keys("out"), 60)
    identity, _ = state_of(penstock, store, "first")
    owner = json.loads(store.bytes("out", ".penstock/owner.json"))
    assert owner["run"] == identity

    store.client.put_object(Bucket="out", Key=".penstock/owner.json", Body=json.dumps(owner | {"run": "another"}).encode())

    ended = run.wait(120).exits(69)
    assert ended.out == "told\n"
    assert store.bytes("out", "x") == b"1\n"
    assert json.loads(store.bytes("out", STATE.format(identity)))["state"] == "failed"


def test_of_many_runs_that_begin_at_one_moment_one_gets_the_output(penstock, store, job):
    # A refused run reports the refusal. The step itself detects a second run that is live at the
    # same time.
    step = "mkdir {0} || exit 99; echo $PENSTOCK_RUN_ID > $DEEPSQUARE_OUTPUT/x; sleep 0.5; rmdir {0}".format(penstock.folder / "alone")
    runs = [penstock.popen("run", job(f"r{i}", step)) for i in range(6)]
    ends = [run.wait() for run in runs]

    assert {end.code for end in ends} <= {0, 69} and [end for end in ends if end.code == 0], [end.err for end in ends]
    assert all("s3://out/" in end.err for end in ends if end.code == 69)


# --- the identity of a run


IDENTITY = {
    "resources": {"tasks": 1, "cpusPerTask": 1, "memPerCpu": 512, "gpus": 0},
    "env": [{"key": "EPOCHS", "value": "3"}, {"key": "HF_TOKEN", "value": "hf_first_token_of_mine"}],
    "input": {"http": {"url": "https://data.invalid/set.tar.gz?X-Amz-Expires=9&X-Amz-Signature=0123456789abcdef"}},
    "output": {"s3": {"region": "us-east-1", "bucketUrl": "s3://out", "path": "/a", "accessKeyId": "AKFIRST00001",
                      "secretAccessKey": "the-first-secret-key", "endpointUrl": "http://127.0.0.1:9"}},
    "steps": [{"name": "one", "run": {"command": "echo one"}}, {"name": "two", "run": {"command": "echo two"}}],
}  # fmt: skip


def changed(**changes):
    """The workflow with fields replaced: output__s3__path="/b"."""
    copy = json.loads(json.dumps(IDENTITY))
    for path, value in changes.items():
        *way, last = [int(part) if part.isdigit() else part for part in path.split("__")]
        place = copy
        for part in way:
            place = place[part]
        place[last] = value
    return copy


def turned_round(value):
    """Returns the value with the keys of every map in reverse order."""
    if isinstance(value, dict):
        return {key: turned_round(value[key]) for key in reversed(value)}
    return [turned_round(item) for item in value] if isinstance(value, list) else value


def as_yaml(value, indent=""):
    """Yields the lines of `value` in block style."""
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        head = f"{indent}{key}:" if isinstance(value, dict) else f"{indent}-"
        if isinstance(item, (dict, list)):
            yield from [head, *as_yaml(item, indent + "  ")]
        else:
            yield f"{head} {json.dumps(item)}  # a value"


def identity_of(penstock, text, *options, **env):
    path = penstock.cwd / "workflow"
    path.write_text(text if isinstance(text, str) else json.dumps(text))
    done = penstock.run("run", "--dry-run", path, *options, env=env).ok()
    assert "hf_first" not in done.text and "first-secret" not in done.text and "0123456789abcdef" not in done.text
    return re.search(r"\brun ([0-9a-f]{12})\b", done.err).group(1)


def test_a_run_is_its_workflow_as_written_and_its_output(penstock):
    # The identity depends on the place of the output and on every word of the workflow, except
    # values of secrets. The layout, and overrides of other values, do not matter.
    url = "https://data.invalid/set.tar.gz?X-Amz-Expires=8&X-Amz-Signature=fedcba9876543210"
    same = {
        "indented": json.dumps(IDENTITY, indent=4),
        "other order of keys": turned_round(IDENTITY),
        "YAML with comments": "# a comment\n" + "\n".join(as_yaml(IDENTITY)) + "\n# another\n",
        "within job:": {"job": IDENTITY},
        "other keys": changed(output__s3__accessKeyId="AKSECOND", output__s3__secretAccessKey="second-secret-key"),
        "another token": changed(env__1__value="hf_second_token"),
        "a URL that is signed again": changed(input__http__url=url),
    }
    other = {
        "a command": changed(steps__0__run__command="echo One"),
        "a step's name": changed(steps__0__name="eins"),
        "the order of steps": changed(steps=IDENTITY["steps"][::-1]),
        "a variable that is not a secret": changed(env__0__value="4"),
        "resources": changed(resources__memPerCpu=65),
        "the output's path": changed(output__s3__path="/b"),
        "its bucket": changed(output__s3__bucketUrl="s3://other"),
        "its store": changed(output__s3__endpointUrl="http://127.0.0.1:10"),
        "the input": changed(input__http__url="https://data.invalid/other.tar.gz"),
        "a name": {"name": "n"} | IDENTITY,
    }
    options = [
        ("--set", "resources.memPerCpu=65"), ("--env", "MORE=1"), ("--env", "EPOCHS=9"), ("--set", "steps[0].run.command=false"),
        ("--set", "output.s3.secretAccessKey=another"), ("--set", "env=null"),
    ]  # fmt: skip

    first = identity_of(penstock, IDENTITY)

    assert {what: identity_of(penstock, text) for what, text in same.items()} == dict.fromkeys(same, first)
    assert {option: identity_of(penstock, IDENTITY, *option) for option in options} == dict.fromkeys(options, first)
    others = [identity_of(penstock, text) for text in other.values()]
    others += [identity_of(penstock, IDENTITY, "--name", "m"), identity_of(penstock, IDENTITY, "--set", "output.s3.path=/c")]
    assert len({first, *others}) == len(others) + 1
    assert identity_of(penstock, IDENTITY, "--name", "n") == others[-3]


@pytest.mark.parametrize("parameter", ["X-Goog-Signature", "q-signature", "x-oss-signature", "X-Tos-Signature", "Authorization", "private_token", "sig", "jwt"])
def test_a_url_signed_anew_is_the_same_run_whoever_signs_it(penstock, parameter):
    # A signature is not part of the identity, but any other difference in the URL makes another
    # input.
    def url(query):
        return changed(input__http__url=f"https://data.invalid/set.tar.gz?{query}")

    first = identity_of(penstock, url(f"expires=7&{parameter}=0123456789abcdef"))

    assert identity_of(penstock, url(f"expires=8&{parameter}=fedcba9876543210")) == first
    assert identity_of(penstock, url("expires=7")) != identity_of(penstock, url("expires=8"))


def test_a_reference_to_a_secret_is_the_same_run_whatever_it_stands_for(penstock):
    workflow = changed(output__s3__secretAccessKey="${{ secrets.KEY }}", env__1__value="${{ env.MINE }}")

    first = identity_of(penstock, workflow, PENSTOCK_SECRET_KEY="one-secret-of-mine", MINE="token-one")

    assert identity_of(penstock, workflow, PENSTOCK_SECRET_KEY="two-secret-of-mine", MINE="token-two") == first


def test_a_second_run_of_a_live_identity_is_refused_and_a_name_makes_another(penstock, tmp_path):
    step = "echo began; while [ ! -e $STORAGE_PATH/go ]; do sleep 0.02; done"
    path = write_workflow(tmp_path, step)
    first = penstock.popen("run", path)
    first.wait_for_output("began")
    (run,) = penstock.ps()

    refusals = [penstock.run("run", path, *options).exits(69) for options in ((), ("--env", "A=1"), ("--fresh",))]
    refusals.append(penstock.run("resume", run["id"]).exits(69))
    named = penstock.popen("run", path, "--name", "another")
    named.wait_for_output("began")

    for refused in refusals:
        assert refused.out == "" and re.search(
            rf"'{run['id']}'.*\b{first.pid} on {re.escape(os.uname().nodename)}, since 20[0-9TZ:.-]+", refused.err
        )
    assert [attempt["attempt"] for attempt in penstock.run("show", "--json", run["id"]).json()["attempts"]] == [1]
    for storage in penstock.home.glob("runs/*/storage"):
        (storage / "go").touch()
    first.wait().ok(), named.wait().ok()
