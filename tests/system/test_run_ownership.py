"""Who owns a run: its state beside the output, seen from another machine (another home, and another boot in the state)."""
import json
import threading

import pytest

from harness.program import Penstock

STATE = ".penstock/runs/{}/state.json"


@pytest.fixture
def elsewhere(tmp_path):
    """The program on another machine: nothing is shared with the first but the store."""
    program = Penstock(tmp_path / "elsewhere")
    yield program
    program.close()


@pytest.fixture
def lost_run(penstock, store, tmp_path, wait_for):
    """A run that was killed after its checkpoint was published; gives the workflow's path and the state as its owner left it."""
    step = """
        cd $DEEPSQUARE_OUTPUT
        if [ -e ckpt ]; then echo resumed at $(cat ckpt); [ -z "$STAY" ] && exit 0; echo staying; exec sleep 1000; fi
        mkdir -p empty; ln -s ckpt link; echo 7 > ckpt; echo saved; exec sleep 1000"""
    s3 = {
        "region": "us-east-1", "bucketUrl": "s3://out", "path": "/", "accessKeyId": store.access_key,
        "secretAccessKey": store.secret_key, "endpointUrl": store.endpoint,
    }  # fmt: skip
    path = tmp_path / "wf.json"
    path.write_text(json.dumps({
        "resources": {"tasks": 1, "cpusPerTask": 1, "memPerCpu": 64, "gpus": 0}, "output": {"s3": s3}, "continuousOutputSync": True,
        "steps": [{"name": "one", "run": {"command": "echo one"}}, {"name": "two", "run": {"command": step}}],
    }))  # fmt: skip
    run = penstock.popen("run", path)
    run.wait_for_output("saved")
    identity = penstock.ps()[0]["id"]
    manifest = f".penstock/runs/{identity}/manifest.json"
    wait_for(lambda: manifest in store.keys("out") and b"ckpt" in store.bytes("out", manifest) and b"link" in store.bytes("out", manifest))
    run.kill()
    state = json.loads(store.bytes("out", STATE.format(identity)))
    assert state["state"] == "running" and state["owner"]["pid"] == run.pid
    return path, identity, state


def put_state(store, identity, state):
    store.client.put_object(Bucket="out", Key=STATE.format(identity), Body=json.dumps(state).encode())


def test_a_run_whose_owner_does_not_move_is_taken_over(elsewhere, store, lost_run):
    # Watched unchanged for one term on the contender's clock; then everything published is restored.
    path, identity, state = lost_run
    state["owner"] |= {"boot_id": "another", "host": "node7"}
    state["lease"]["term_ms"] = 1500
    put_state(store, identity, state)

    taken = elsewhere.run("run", path).ok()

    assert "node7" in taken.err and taken.seconds > 1.5
    assert taken.out == "one\nresumed at 7\n"
    ended = json.loads(store.bytes("out", STATE.format(identity)))
    assert (ended["state"], ended["attempt"]) == ("succeeded", 2)


def test_a_lost_run_that_was_flushed_goes_on_elsewhere(penstock, elsewhere, store, lost_run):
    path, identity, _ = lost_run
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
    assert "live on node7" in refused.err and refused.out == ""
    assert store.bytes("out", "ckpt") == b"7\n"


def test_another_home_on_the_same_machine_is_seen_through_its_process(penstock, elsewhere, lost_run):
    # No term has to be watched: the process itself tells. A live one is refused, a dead one taken over at once.
    path, _, _ = lost_run
    first = penstock.popen("run", path, "--env", "STAY=1")
    first.wait_for_output("staying")

    refused = elsewhere.run("run", path).exits(69)
    first.kill()
    taken = elsewhere.run("run", path).ok()

    assert str(first.pid) in refused.err
    assert taken.out == "one\nresumed at 7\n" and taken.seconds < 15


def test_an_owner_in_another_container_is_watched(elsewhere, store, lost_run):
    # Its process cannot be seen from here, though the machine is the same: only a whole term tells.
    path, identity, state = lost_run
    state["owner"] |= {"pid_ns": "pid:[1]", "host": "node7", "home": str(elsewhere.home)}
    state["lease"]["term_ms"] = 1500
    put_state(store, identity, state)

    taken = elsewhere.run("run", path).ok()

    assert "node7" in taken.err and taken.seconds > 1.5
    assert taken.out == "one\nresumed at 7\n"


def test_an_end_that_was_not_written_beside_the_output_is_known_here(penstock, store, tmp_path):
    # The store went away after the flush, say: the run has succeeded all the same, and the next one begins anew.
    # And what this process wrote itself, though it never heard of it, is no other owner.
    s3 = {
        "region": "us-east-1", "bucketUrl": "s3://out", "path": "/", "accessKeyId": store.access_key,
        "secretAccessKey": store.secret_key, "endpointUrl": store.endpoint,
    }  # fmt: skip
    path = tmp_path / "wf.json"
    step = "ls $DEEPSQUARE_OUTPUT; echo 1 > $DEEPSQUARE_OUTPUT/x; echo wrote; while [ ! -e $STORAGE_PATH/go ]; do sleep 0.02; done"
    path.write_text(json.dumps({
        "resources": {"tasks": 1, "cpusPerTask": 1, "memPerCpu": 64, "gpus": 0}, "output": {"s3": s3}, "continuousOutputSync": True,
        "steps": [{"name": "one", "run": {"command": step}}],
    }))  # fmt: skip

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
    assert "taken" not in first.err and "up to date" not in first.err
    ended = json.loads(store.bytes("out", STATE.format(identity)))
    assert ended["state"] == "succeeded"
    put_state(store, identity, ended | {"state": "flushing"})

    _, second = run_once(lambda identity, state: None)

    assert second.out == "wrote\n"


def test_what_was_before_a_new_beginning_is_not_restored(penstock, store, tmp_path, wait_for):
    # Begun anew, killed, continued: only what the run put out since. The objects stay, also with deleteSync.
    s3 = {
        "region": "us-east-1", "bucketUrl": "s3://out", "path": "/", "accessKeyId": store.access_key,
        "secretAccessKey": store.secret_key, "endpointUrl": store.endpoint, "deleteSync": True,
    }  # fmt: skip
    path = tmp_path / "wf.json"
    step = """cd $DEEPSQUARE_OUTPUT; ls; echo listed
        case $PENSTOCK_ATTEMPT in
        1) echo 1 > final; mkdir old; echo 1 > old/x; echo 1 > both;;
        2) sleep 1000;;
        3) echo 3 > both; echo 3 > new; echo saved; sleep 1000;;
        esac"""
    path.write_text(json.dumps({
        "resources": {"tasks": 1, "cpusPerTask": 1, "memPerCpu": 64, "gpus": 0}, "output": {"s3": s3}, "continuousOutputSync": True,
        "steps": [{"name": "one", "run": {"command": step}}],
    }))  # fmt: skip
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
    # It was suspended, say, and another machine took over: its next renewal (every 10 s) is refused, its step is ended.
    s3 = {
        "region": "us-east-1", "bucketUrl": "s3://out", "path": "/", "accessKeyId": store.access_key,
        "secretAccessKey": store.secret_key, "endpointUrl": store.endpoint,
    }  # fmt: skip
    step = "echo 1 > $DEEPSQUARE_OUTPUT/x; trap 'echo 2 > $DEEPSQUARE_OUTPUT/x; echo told; exit 0' TERM; while :; do sleep 0.05; done"
    path = tmp_path / "wf.json"
    path.write_text(json.dumps({
        "resources": {"tasks": 1, "cpusPerTask": 1, "memPerCpu": 64, "gpus": 0}, "output": {"s3": s3}, "continuousOutputSync": True,
        "steps": [{"name": "one", "run": {"command": step}}],
    }))  # fmt: skip
    run = penstock.popen("run", path)
    wait_for(lambda: run.running() and penstock.ps() and penstock.ps()[0]["state"] == "running")
    wait_for(lambda: "x" in store.keys("out"))
    identity = penstock.ps()[0]["id"]
    state = json.loads(store.bytes("out", STATE.format(identity)))

    put_state(store, identity, state | {"attempt": 2, "owner": state["owner"] | {"boot_id": "another", "host": "node7", "pid": 1}})

    ended = run.wait(40).exits(69)
    assert ended.out == "told\n" and "another owner" in ended.err
    assert store.bytes("out", "x") == b"1\n"
    assert json.loads(store.bytes("out", STATE.format(identity)))["owner"]["host"] == "node7"
