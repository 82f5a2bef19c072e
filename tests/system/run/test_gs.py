"""Runs whose input and output are gs://: staging, continuous sync, ownership by generations, restore, overwritten objects."""
import json
import os
import shlex
import re
import signal

import pytest

from harness import progress
from harness.gcs import Gcs
from harness.program import Penstock
from harness.workflows import write_workflow

TAKEN = 69


@pytest.fixture
def gcs():
    with Gcs() as running:
        running.buckets |= {"data": {}, "out": {}}
        running.put("data", "train/a/b.txt", b"samples")
        yield running


@pytest.fixture
def job(gcs, tmp_path):
    """job(command, **gs fields): the path of a workflow of one step from gs://data/train to gs://out/run."""

    def write(command, name="gs-run", keys=None, **fields):
        place = {"endpointUrl": gcs.url} | (keys or {}) | fields
        ends = {end: {"gs": {"bucketUrl": f"gs://{bucket}", "path": path} | place} for end, bucket, path in (("input", "data", "/train"), ("output", "out", "/run"))}
        return write_workflow(tmp_path, command, named="only", name=name, continuousOutputSync=True, **ends)

    return write


def published(gcs):
    return {key: body for key, body in gcs.bodies("out").items() if "/.penstock/" not in f"/{key}"}


# Every request is signed with the key, which the workflow has as a secret; the key itself appears nowhere.
@pytest.mark.parametrize("identity", ["service account", "hmac"])
def test_input_and_output_in_a_bucket_of_google(penstock, gcs, job, tmp_path, identity):
    gcs.guarded = True
    key = gcs.key_file(tmp_path / "key.json").read_text()
    if identity == "hmac":
        keys = {"accessKeyId": gcs.access_key, "secretAccessKey": gcs.secret_key}
    else:
        keys = {"serviceAccountKey": "${{ secrets.GCP }}"}
    workflow = job('cp -r "$DEEPSQUARE_INPUT/a" "$DEEPSQUARE_OUTPUT/"; head -c 20000000 /dev/zero > "$DEEPSQUARE_OUTPUT/large"', keys=keys)

    done = penstock.run("run", workflow, env={"PENSTOCK_SECRET_GCP": key, "PENSTOCK_LOG": "debug", "NO_GCE_CHECK": "true"}).ok()

    assert published(gcs) == {"run/a/b.txt": b"samples", "run/large": bytes(20_000_000)}
    secret = json.loads(key)["private_key"].splitlines()[3]
    found = [done.out, done.err] + [p.read_text(errors="replace") for p in penstock.home.rglob("*") if p.is_file()]
    assert not any(secret in text or "ya29." in text or gcs.secret_key in text for text in found if text != workflow.read_text())
    assert penstock.ps()[0]["state"] == "succeeded"


# The foreign object is first copied within the store, and only the generation that was copied is
# overwritten.
def test_what_is_overwritten_is_kept(penstock, gcs, job):
    gcs.put("out", "run/model", b"theirs")

    done = penstock.run("run", job('printf ours > "$DEEPSQUARE_OUTPUT/model"'), env=gcs.env).ok()

    kept = [body for key, body in gcs.bodies("out").items() if "/replaced/" in key]
    assert published(gcs) == {"run/model": b"ours"} and kept == [b"theirs"] and "1 object (6 B)" in done.err
    replaced = [r for r in gcs.seen("PUT") if r["path"] == "/out/run/model"]
    assert all(int(r["headers"]["x-goog-if-generation-match"]) >= 0 for r in replaced) and replaced
    entry = json.loads(penstock.run("show", "--json", penstock.ps()[0]["id"]).ok().out)["replaced"][0]
    assert entry["url"].startswith("gs://out/") and entry["restore"].startswith("penstock restore ")
    penstock.run(*shlex.split(entry["restore"])[1:], env=gcs.env).ok()
    assert published(gcs) == {"run/model": b"theirs"}


# Two runs have the same output. A lease is created only if there is none, and the message of the
# refused second run names the owner.
def test_a_second_run_of_a_live_identity_is_refused(penstock, gcs, job, tmp_path, wait_for):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    first = penstock.popen("run", job(f"read line < {gate}"), env=gcs.env)
    wait_for(lambda: any(key.endswith("owner.json") for key in gcs.buckets["out"]) and penstock.ps()[0]["state"] == "running")

    refused = penstock.run("run", job("true", name="another"), env=gcs.env)

    gate.write_text("go\n")
    assert first.wait(60).code == 0 and refused.code == TAKEN and "gs://out/run/" in refused.err, refused.err


# The run is killed in its step. The next attempt restores the published files, and continues the
# run.
def test_a_killed_run_is_restored_from_the_bucket(penstock, gcs, job, tmp_path, wait_for):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    workflow = job(f'cat "$DEEPSQUARE_OUTPUT/ckpt" 2>/dev/null || {{ printf one > "$DEEPSQUARE_OUTPUT/ckpt"; read line < {gate}; }}')
    first = penstock.popen("run", workflow, env=gcs.env)
    wait_for(lambda: "run/ckpt" in gcs.buckets["out"] and any(key.endswith("manifest.json") and b"ckpt" in found.body
                                                             for key, found in gcs.buckets["out"].items()))  # fmt: skip
    first.kill()
    first.wait(60)

    done = penstock.run("run", workflow, env=gcs.env).ok()

    assert "one" in done.out and published(gcs) == {"run/ckpt": b"one"}


# Each upload requires the generation that this run saw last, so a write by another client is
# detected, and the object of that client is kept.
def test_an_object_that_somebody_else_replaced_is_not_lost(penstock, gcs, job, tmp_path, wait_for):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    first = penstock.popen("run", job(f'printf one > "$DEEPSQUARE_OUTPUT/ckpt"; read line < {gate}; printf two > "$DEEPSQUARE_OUTPUT/ckpt"'), env=gcs.env)
    wait_for(lambda: "run/ckpt" in gcs.buckets["out"])
    gcs.put("out", "run/ckpt", b"another's")

    gate.write_text("go\n")

    first.wait(120).exits(0)
    kept = [body for key, body in gcs.bodies("out").items() if "/replaced/" in key]
    assert published(gcs) == {"run/ckpt": b"two"} and kept == [b"another's"]


# --- several machines, which share nothing but the bucket

TERM_S = 1


@pytest.fixture
def machine(tmp_path):
    """machine(name): the program on that machine."""
    made = []

    def get(name):
        program = Penstock(tmp_path / f"machine-{name}")
        program.env |= {"PENSTOCK_MACHINE": name, "PENSTOCK_LEASE_TERM": str(TERM_S)}
        made.append(program)
        return program

    yield get
    for program in made:
        program.close()


def state_of(gcs):
    (key,) = [key for key in gcs.buckets["out"] if key.endswith("/state.json")]
    return key, json.loads(gcs.buckets["out"][key].body)


CKPT = """cd $DEEPSQUARE_OUTPUT
if [ -e ckpt ]; then echo attempt $PENSTOCK_ATTEMPT found $(cat ckpt); exit 0; fi
trap 'exit 0' TERM; printf 7 > ckpt; echo saved; while :; do sleep 0.05; done"""


@pytest.mark.parametrize("end", ["preempted", "lost"])
def test_a_run_goes_on_on_another_machine(machine, gcs, job, wait_for, end):
    # A preempted run is taken over at once. A silent run is taken over once the generation of its
    # state object has not changed for a term.
    path = job(CKPT)
    first = machine("a").popen("run", path, env=gcs.env)
    first.wait_for_output("saved")
    wait_for(lambda: any(key.endswith("manifest.json") and b"ckpt" in found.body for key, found in list(gcs.buckets["out"].items())))
    if end == "lost":
        first.kill()
    else:
        first.send(signal.SIGTERM)
        first.wait().exits(75)

    taken = machine("b").run("run", path, env=gcs.env).ok()

    assert taken.out == "attempt 2 found 7\n"
    assert (bool(re.search(progress.WATCHING, taken.err)) and taken.seconds > TERM_S) == (end == "lost"), taken.err
    assert state_of(gcs)[1]["state"] == "succeeded" and published(gcs) == {"run/ckpt": b"7"}


# The owner's next renewal requires the generation that this owner wrote last, and fails.
def test_an_owner_that_was_replaced_publishes_nothing_more(machine, gcs, job, wait_for):
    step = "echo 1 > $DEEPSQUARE_OUTPUT/x; trap 'echo 2 > $DEEPSQUARE_OUTPUT/x; echo told; exit 0' TERM; while :; do sleep 0.05; done"
    run = machine("a").popen("run", job(step), env=gcs.env)
    wait_for(lambda: "run/x" in gcs.buckets["out"])
    with gcs.lock:
        key, state = state_of(gcs)
        gcs.put("out", key, json.dumps(state | {"attempt": 2, "owner": state["owner"] | {"boot_id": "another", "host": "node7"}}).encode())

    ended = run.wait().exits(69)

    assert ended.out == "told\n"
    assert published(gcs) == {"run/x": b"1\n"} and state_of(gcs)[1]["owner"]["host"] == "node7"
