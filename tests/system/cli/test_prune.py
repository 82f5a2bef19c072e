"""`penstock prune` lists and removes old copies, caches and logs, except files of live runs and files that may be the only copy."""
import json
import os
import time

import pytest

from harness.program import Penstock
from harness.waiting import wait_for
from harness.workflows import s3_place, write_workflow

PATIENCE = 60


@pytest.fixture
def job(store, tmp_path):
    def write(command, **fields):
        fields = {"name": "only", "output": s3_place(store), "continuousOutputSync": True} | fields
        return write_workflow(tmp_path, command, **fields)

    return write


def put(store, key, content):
    if "out" not in [bucket["Name"] for bucket in store.client.list_buckets()["Buckets"]]:
        store.client.create_bucket(Bucket="out")
    store.client.put_object(Bucket="out", Key=key, Body=content)


def kept(store):
    return sorted(store.bytes("out", key) for key in store.keys("out", ".penstock/") if "/replaced/" in key)


def pruned(penstock, *options):
    """Returns (kind, number, reason) of each group of items; the reason is None if the items are
    removed, or would be removed without --dry-run."""
    items = penstock.run("prune", "--json", *options).ok().json()["items"]
    return [(each["kind"], each["n"], each["stays"]) for each in items]


NUMBER = "printf %s $PENSTOCK_ATTEMPT > $DEEPSQUARE_OUTPUT/model"


def test_copies_beyond_the_bound_go_and_those_of_others_need_force(penstock, store, job):
    put(store, "model", b"theirs")
    for _ in range(4):
        penstock.run("run", job(NUMBER)).ok()
    assert kept(store) == [b"1", b"2", b"3", b"theirs"]

    theirs = ("replaced", 1, "only copy")
    assert pruned(penstock, "--only", "replaced") == [theirs]
    assert pruned(penstock, "--dry-run", "--keep", "1", "only") == [theirs, ("replaced", 2, None)] and len(kept(store)) == 4
    done = penstock.run("prune", "--keep", "1", "only").ok()

    assert kept(store) == [b"3", b"theirs"] and "removed 2 items, 2 B" in done.err
    assert done.out.split("\n")[0].split() == ["KIND", "SIZE", "USED", "STATE", "WHAT"]
    assert [store.bytes("out", entry["kept"]) for entry in penstock.run("show", "--json", "only").json()["replaced"]] == [b"theirs", b"3"]
    assert pruned(penstock, "--keep", "0", "only") == [theirs, ("replaced", 1, None)]
    assert kept(store) == [b"theirs"]
    penstock.run("prune", "--keep", "0", "--force").ok()
    assert kept(store) == [] and penstock.run("show", "--json", "only").json()["replaced"] == []
    # The next attempt knows that the copies are gone, and copies the object again.
    penstock.run("run", job(NUMBER)).ok()
    assert kept(store) == [b"4"]


def test_copies_of_a_live_run_stay(penstock, store, job, tmp_path):
    penstock.run("run", job(NUMBER)).ok()
    run = penstock.popen("run", job(NUMBER + "; sync; echo wrote; exec sleep 1000"))
    run.wait_for_output("wrote")
    wait_for(lambda: store.bytes("out", "model") == b"2", PATIENCE)
    elsewhere = Penstock(tmp_path / "elsewhere")

    assert pruned(penstock, "--keep", "0", "--force", "only") == [("replaced", 1, "in use")]
    at = ("--endpoint-url", store.endpoint, "s3://out")
    elsewhere.env |= store.env
    assert pruned(elsewhere, "--keep", "0", "--force", *at) == [("replaced", 1, "in use")]
    assert kept(store) == [b"1"]
    penstock.run("restore", "only", "model").exits(69)
    run.kill()
    elsewhere.close()


def test_copies_are_pruned_and_put_back_by_the_place_of_an_output(penstock, store, job, tmp_path):
    for _ in range(3):
        penstock.run("run", job(NUMBER)).ok()
    elsewhere = Penstock(tmp_path / "elsewhere")
    elsewhere.env |= store.env
    at = ("--endpoint-url", store.endpoint, "s3://out")

    elsewhere.run("prune", *at).exits(64)
    assert pruned(elsewhere, "--older-than", "1d", *at) == []
    assert pruned(elsewhere, "--keep", "1", *at) == [("replaced", 1, None)] and kept(store) == [b"2"]
    elsewhere.run("restore", *at, "model").ok()

    assert store.bytes("out", "model") == b"2" and kept(store) == [b"2", b"3"]
    elsewhere.close()


def test_restore_takes_the_newest_copy_and_keeps_what_is_there(penstock, store, job):
    put(store, "model", b"theirs")
    put(store, "it's odd", b"odd")
    for _ in range(2):
        penstock.run("run", job(NUMBER + "; printf x > \"$DEEPSQUARE_OUTPUT/it's odd\"")).ok()

    penstock.run("restore", "only", "model").ok()
    assert store.bytes("out", "model") == b"1" and b"2" in kept(store)
    (entry,) = [e for e in penstock.run("show", "--json", "only").json()["replaced"] if store.bytes("out", e["kept"]) == b"theirs"]
    penstock.run("restore", "only", "model", "--etag", entry["etag"]).ok()
    assert store.bytes("out", "model") == b"theirs"
    assert "'other'" in penstock.run("restore", "only", "other").exits(66).err
    penstock.run("restore", "only").exits(64)
    penstock.run("restore", "--all", "only").ok()
    assert store.bytes("out", "it's odd") == b"x"


def test_the_beginning_of_an_id_chooses_one_run(penstock, store):
    for run, text in (("aaaa11111111", b"one"), ("aaaa22222222", b"two")):
        put(store, f".penstock/runs/{run}/replaced/0123.run/model", text)
    penstock.env |= store.env
    at = ("--endpoint-url", store.endpoint, "s3://out", "model")

    penstock.run("restore", *at, "--run", "aaaa").exits(64)
    assert store.keys("out", "model") == []
    penstock.run("restore", *at, "--run", "aaaa1").ok()
    assert store.bytes("out", "model") == b"one"


def age(path, days):
    os.utime(path, (time.time() - days * 86400,) * 2)


def test_things_of_this_machine_go_when_they_are_old(penstock, job):
    for _ in range(2):
        penstock.run("run", job("echo hello; echo hi > $DEEPSQUARE_OUTPUT/x; [ $PENSTOCK_ATTEMPT = 2 ]", enableLogging=True))
    (run,) = (penstock.home / "runs").iterdir()
    aside = run / "output.before-2"
    aside.mkdir()
    (aside / "x").write_text("only here")
    (penstock.home / "venvs" / ("a" * 64)).mkdir(parents=True)
    (penstock.home / "transfers").mkdir(exist_ok=True)
    (penstock.home / "transfers" / "x").write_text("record")
    old = [aside, run / "log" / "1", penstock.home / "venvs" / ("a" * 64), penstock.home / "transfers" / "x"]

    assert pruned(penstock) == []
    for path in old:
        age(path, 31)
    listed = [("logs", 1, None), ("output", 1, "only copy"), ("transfers", 1, None), ("venvs", 1, None)]
    assert sorted(pruned(penstock, "--dry-run")) == listed and all(path.exists() for path in old)
    text = penstock.run("prune").ok()

    assert str(aside) in text.out and "only copy" in text.out
    assert [path.exists() for path in old] == [True, False, False, False]
    assert {path.name for path in (run / "log").iterdir()} == {"2", "2.times"}
    assert pruned(penstock, "--force", "--only", "output") == [("output", 1, None)] and not aside.exists()


def test_logs_that_are_in_no_store_may_be_the_only_copy(penstock, job):
    for _ in range(2):
        penstock.run("run", job("[ $PENSTOCK_ATTEMPT = 2 ]", output=None, continuousOutputSync=None))

    assert pruned(penstock, "--older-than", "0s", "--only", "logs") == [("logs", 1, "only copy")]
    assert pruned(penstock, "--older-than", "0s", "--only", "logs", "--force") == [("logs", 1, None)]


def test_an_environment_of_a_live_run_stays(penstock, job, tmp_path):
    context = tmp_path / "context"
    context.mkdir()
    (context / "requirements.txt").write_text("")
    path = job("echo up; exec sleep 1000", context={"path": str(context)}, python={"requirements": "requirements.txt"}, output=None, continuousOutputSync=None)
    run = penstock.popen("run", path)
    run.wait_for_output("up")
    (venv,) = (path for path in (penstock.home / "venvs").iterdir() if path.is_dir())

    options = ("--older-than", "0s", "--only", "venvs")
    assert pruned(penstock, *options) == [("venvs", 1, "in use")] and (venv / ".complete").exists()
    run.kill()
    assert pruned(penstock, *options) == [("venvs", 1, None)] and not venv.exists()


def test_the_log_of_a_killed_attempt_is_in_no_store(penstock, job):
    path = job("echo hello; [ $PENSTOCK_ATTEMPT != 1 ] || kill -9 $PPID", enableLogging=True)
    penstock.run("run", path)
    for _ in range(2):
        penstock.run("run", path).ok()
    (logs,) = penstock.home.glob("runs/*/log")

    assert sorted(pruned(penstock, "--older-than", "0s", "--only", "logs"), key=str) == [("logs", 1, "only copy"), ("logs", 1, None)]
    assert sorted(each.name for each in logs.iterdir()) == ["1", "1.times", "3", "3.times"]


def test_the_record_of_a_transfer_that_runs_stays(penstock, store, tmp_path):
    store.client.create_bucket(Bucket="out")
    (tmp_path / "large").write_bytes(bytes(32 << 20))
    upload = penstock.popen("cp", tmp_path / "large", "s3://out/large", "--part-size", "5M", "--limit-rate", "1M", env=store.env | {"AWS_ENDPOINT_URL": store.endpoint})
    options = ("--older-than", "0s", "--only", "transfers")

    # The upload keeps writing its record, and `prune` ignores a record that is newer than the start
    # of `prune`. Therefore repeat the call.
    assert wait_for(lambda: pruned(penstock, *options), PATIENCE) == [("transfers", 1, "in use")]
    upload.kill()
    assert pruned(penstock, *options) == [("transfers", 1, None)]


def test_the_list_is_in_the_order_of_the_names(penstock):
    names = [f"record-{number}" for number in (10, 2, 30, 4, 1, 20, 3)]
    for name in names:
        (penstock.home / "transfers" / name).mkdir(parents=True)

    report = penstock.run("prune", "--dry-run", "--json", "--older-than", "0s").ok().json()

    assert [os.path.basename(each["what"]) for each in report["items"]] == [f"record-{number}" for number in (1, 2, 3, 4, 10, 20, 30)]


def test_what_cannot_be_removed_is_not_in_the_sum(penstock):
    place = penstock.home / "venvs" / ("a" * 64)
    place.mkdir(parents=True)
    place.with_suffix(".lock").mkdir()

    report = json.loads(penstock.run("prune", "--json", "--older-than", "0s").exits(69).out)

    assert [each["stays"] for each in report["items"]] == ["failed"] and place.exists()
    assert (report["removed"], report["failed"]["n"]) == ({"n": 0, "bytes": 0}, 1)
