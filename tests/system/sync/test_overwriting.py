"""An object is copied before its first overwrite, and `penstock show` prints where the copy is. Nothing is lost."""
import re
import shlex
import subprocess
import urllib.parse

import pytest

from harness.fault_proxy import FaultProxy, s3_error
from harness.program import Penstock, binary
from harness.small_store import SmallStore
from harness.sync_driver import Syncer
from harness.waiting import wait_for
from harness.workflows import s3_place, write_workflow

PATIENCE = 60
COPY = {"method": "PUT", "path": "^/out/.penstock/.*/replaced/", "when": lambda request: "x-amz-copy-source" in request.headers}
OVERWRITE = {"method": "PUT", "path": "^/out/model$", "when": lambda request: "if-match" in request.headers}


@pytest.fixture
def job(store, tmp_path):
    """job(command, **s3 fields): the path of a workflow of one step whose output is s3://out/."""

    def write(command, file="wf.json", name=None, **fields):
        return write_workflow(tmp_path, command, file=file, named="only", name=name, output=s3_place(store, **fields), continuousOutputSync=True)

    return write


@pytest.fixture
def proxy(store):
    with FaultProxy(store.endpoint) as running:
        yield running


def put(store, key, content):
    try:
        store.client.create_bucket(Bucket="out")
    except store.client.exceptions.BucketAlreadyOwnedByYou:
        pass
    store.client.put_object(Bucket="out", Key=key, Body=content)


def kept_keys(store):
    return [key for key in store.keys("out", ".penstock/") if "/replaced/" in key]


def kept(store, path):
    """Returns the contents of all copies of `path`."""
    return sorted(store.bytes("out", key) for key in kept_keys(store) if key.endswith("/" + path))


def only_run(penstock):
    (run,) = penstock.ps()
    return run["id"]


def shown(penstock, run=None):
    return penstock.run("show", "--json", run or only_run(penstock)).json()["replaced"]


def save(content, path="model"):
    return f"printf %s '{content}' > $DEEPSQUARE_OUTPUT/{path}"


# --- keeping


def test_somebody_elses_object_is_kept_and_can_be_put_back(penstock, store, job):
    put(store, "model", b"theirs")
    put(store, "it's odd", b"odd")

    done = penstock.run("run", job(save("ours") + "; printf x > \"$DEEPSQUARE_OUTPUT/it's odd\"")).ok()

    assert store.bytes("out", "model") == b"ours"
    run = penstock.ps()[0]["id"]
    one, other = sorted(shown(penstock, run), key=lambda entry: entry["path"], reverse=True)
    assert one["path"] == "model" and store.bytes("out", one["kept"]) == b"theirs"
    assert one["url"] == "s3://out/" + one["kept"] and one["kept"].startswith(f".penstock/runs/{run}/replaced/")
    text = penstock.run("show", run).ok().out
    assert one["url"] in text and one["restore"] in text and re.search(r"\b2 objects.*9 B", done.err)
    assert (one["size"], other["size"]) == (6, 3) and "9 B" in text
    again = penstock.run("run", job(save("ours") + "; printf x > \"$DEEPSQUARE_OUTPUT/it's odd\"")).ok()
    assert again.err.count("2 files, 5 B") == 1
    for entry in (one, other):
        environment = penstock.env | store.env | {"PATH": f"{binary().parent}:/usr/bin:/bin"}
        environment.pop("AWS_ENDPOINT_URL")
        subprocess.run(["sh", "-c", entry["restore"]], env=environment, check=True, timeout=120)
    assert store.bytes("out", "model") == b"theirs" and store.bytes("out", "it's odd") == b"odd"


def test_the_way_back_in_the_embedded_store_needs_no_other_program(penstock, job):
    # The embedded store listens only while penstock uses it, so the printed command must not use
    # another program such as `aws`.
    def embedded(verb, url, input=None):
        return penstock.run(verb, "--endpoint-url", "embedded", url, input=input).ok().out

    embedded("mb", "s3://out")
    embedded("put", "s3://out/it's odd", input="theirs")
    penstock.run("run", job('printf ours > "$DEEPSQUARE_OUTPUT/it\'s odd"', endpointUrl="embedded", accessKeyId=None, secretAccessKey=None)).ok()
    (entry,) = shown(penstock)
    environment = penstock.env | {"PATH": f"{binary().parent}:/usr/bin:/bin"}

    subprocess.run(["sh", "-c", entry["restore"]], env=environment, check=True, timeout=120)

    assert embedded("cat", "s3://out/it's odd") == "theirs"


def test_two_runs_that_overwrite_each_other_in_turn_lose_nothing(penstock, store, job):
    # If all copies of a run had the same name, a later copy could replace the first copy, or be
    # skipped.
    written = []
    for turn in range(3):
        for run in ("a", "b"):
            written.append(f"{run}{turn}".encode())
            penstock.run("run", job(save(f"{run}{turn}"), f"{run}.json", run)).ok()

    assert store.bytes("out", "model") == written[-1]
    assert kept(store, "model") == sorted(written[:-1])
    assert sorted(store.bytes("out", e["kept"]) for run in "ab" for e in shown(penstock, run)) == sorted(written[:-1])


def test_a_new_beginning_keeps_what_the_run_put_out_before(penstock, store, job):
    # The same command after a success starts over: its first, half-trained model must not replace
    # the last good model.
    path = job("printf %s $PENSTOCK_ATTEMPT > $DEEPSQUARE_OUTPUT/model; printf %s again$PENSTOCK_ATTEMPT > $DEEPSQUARE_OUTPUT/model")
    for _ in range(3):
        penstock.run("run", path).ok()

    assert store.bytes("out", "model") == b"again3"
    assert kept(store, "model") == [b"again1", b"again2"]
    assert [store.bytes("out", entry["kept"]) for entry in shown(penstock)] == [b"again1", b"again2"]


def test_a_fresh_attempt_leaves_no_old_names_and_one_line_of_what_it_replaced(penstock, store, job):
    # The step writes files, and renames them once they are published. The second attempt restores
    # nothing, but still deletes the old names.
    step = """cd $DEEPSQUARE_OUTPUT; for i in $(seq 30); do echo $PENSTOCK_ATTEMPT > old$i; done; echo wrote
        while [ ! -e $STORAGE_PATH/go$PENSTOCK_ATTEMPT ]; do sleep 0.02; done
        for i in $(seq 30); do mv old$i new$i; done"""
    path = job(step, deleteSync=True)
    for attempt, options in enumerate(([], ["--fresh"]), 1):
        run = penstock.popen("run", *options, path)
        run.wait_for_output("wrote")
        wait_for(lambda: sum(key.startswith("old") for key in store.keys("out")) == 30, PATIENCE)
        (storage,) = penstock.home.glob("runs/*/storage")
        (storage / f"go{attempt}").touch()
        ended = run.wait().ok()

    names = sorted(key for key in store.keys("out") if not key.startswith(".penstock/"))
    assert names == sorted(f"new{i}" for i in range(1, 31))
    assert len(kept_keys(store)) == 30
    assert len(re.findall(r"\b30 objects \(60 B\)", ended.err)) == 1 and not re.search(r"\bnew\d", ended.err)


# An upload checks whether the manifest is still the run's own, and the run writes its first
# manifest before the reply arrives.
def test_a_manifest_that_the_run_writes_meanwhile_is_its_own(penstock, store, proxy, job, tmp_path):
    manifest = {"path": r"/manifest\.json$"}
    wait = f"; until [ $PENSTOCK_ATTEMPT = 1 ] || [ -e {tmp_path}/go ]; do sleep 0.02; done"
    workflow = job("printf %s $PENSTOCK_ATTEMPT > $DEEPSQUARE_OUTPUT/model" + wait, endpointUrl=proxy.url)
    penstock.run("run", workflow).ok()
    # The first HEAD belongs to the start of the run.
    held = proxy.fault(method="HEAD", **manifest, skip=1, hold="reply")
    before = len(proxy.seen("PUT", **manifest))
    run = penstock.popen("run", workflow)

    held.wait()
    wait_for(lambda: [each.carried_out for each in proxy.seen("PUT", **manifest)[before:]] == [200], PATIENCE)
    held.release()
    (tmp_path / "go").touch()

    run.wait().ok()
    assert store.bytes("out", "model") == b"2"


def test_an_attempt_that_goes_on_copies_nothing_again(penstock, store, job):
    # The attempt owns the objects of earlier attempts, so it makes no copies in addition to those
    # of the first attempt.
    put(store, "model", b"theirs")
    path = job("printf %s $PENSTOCK_ATTEMPT > $DEEPSQUARE_OUTPUT/model; echo wrote; [ $PENSTOCK_ATTEMPT = 3 ] || exec sleep 1000")
    for attempt in (1, 2):
        run = penstock.popen("run", path)
        run.wait_for_output("wrote")
        wait_for(lambda: store.bytes("out", "model") == b"%d" % attempt, PATIENCE)
        run.kill()
    penstock.run("run", path).ok()

    assert store.bytes("out", "model") == b"3" and kept(store, "model") == [b"theirs"]
    assert len(shown(penstock)) == 1


def test_deleting_leaves_what_was_kept_and_what_is_not_ours(penstock, store, job):
    put(store, "model", b"theirs")
    put(store, "other", b"other")
    step = f"""{save('ours')}; {save('mine', 'both')}; echo wrote; while [ ! -e $STORAGE_PATH/go ]; do sleep 0.02; done
        cd $DEEPSQUARE_OUTPUT; rm model both"""
    run = penstock.popen("run", job(step, deleteSync=True))
    run.wait_for_output("wrote")
    wait_for(lambda: {"model", "both"} <= set(store.keys("out")) and store.bytes("out", "model") == b"ours", PATIENCE)
    put(store, "both", b"somebody else's since")
    (storage,) = penstock.home.glob("runs/*/storage")
    (storage / "go").touch()
    run.wait().ok()

    assert "model" not in store.keys("out") and kept(store, "model") == [b"theirs"]
    assert store.bytes("out", "both") == b"somebody else's since" and store.bytes("out", "other") == b"other"


def test_versions_of_the_bucket_are_copies_enough(penstock, store, job):
    # In a bucket with versioning, penstock copies nothing, and `show` names the version.
    store.client.create_bucket(Bucket="out")
    store.client.put_bucket_versioning(Bucket="out", VersioningConfiguration={"Status": "Enabled"})
    old = store.client.put_object(Bucket="out", Key="a/the model", Body=b"theirs")["VersionId"]
    penstock.run("run", job(save("ours", "'the model'"), path="/a")).ok()

    assert store.bytes("out", "a/the model") == b"ours"
    assert store.client.get_object(Bucket="out", Key="a/the model", VersionId=old)["Body"].read() == b"theirs"
    assert not [key for key in store.keys("out", "a/.penstock/") if "/replaced/" in key]
    (entry,) = shown(penstock)
    assert entry["kept"] == f"version:{old}" and entry["url"] == f"s3://out/a/the model?versionId={old}"
    assert entry["restore"] in penstock.run("show", only_run(penstock)).ok().out
    penstock.run(*shlex.split(entry["restore"])[1:], env=store.env).ok()
    assert store.bytes("out", "a/the model") == b"theirs"


# --- bounds


def copies_of(path, number, store, penstock, *options):
    for _ in range(number):
        penstock.run("run", *options, path).ok()
    return kept(store, "model")


def test_copies_of_a_run_that_starts_over_are_bounded(penstock, store, job, tmp_path):
    # Ten reruns of a large checkpoint must not fill the bucket. The only copy of the user's own
    # object stays.
    put(store, "model", b"theirs")
    step = "printf %s $PENSTOCK_ATTEMPT > $DEEPSQUARE_OUTPUT/model"

    assert copies_of(job(step, name="same"), 6, store, penstock) == [b"3", b"4", b"5", b"theirs"]
    assert [store.bytes("out", entry["kept"]) for entry in shown(penstock)] == [b"theirs", b"3", b"4", b"5"]
    path = write_workflow(tmp_path, step, named="only", name="same", output=s3_place(store), continuousOutputSync=True, replaced={"keep": 1})
    assert copies_of(path, 1, store, penstock) == [b"6", b"theirs"]


def test_what_was_overwritten_last_stays_also_if_an_earlier_copy_had_its_bytes(penstock, store, job, tmp_path):
    # Equal contents share a copy, which has the time of the first content. penstock must not take
    # that copy for the oldest and remove it.
    path = write_workflow(tmp_path, "cat $CONTENT > $DEEPSQUARE_OUTPUT/model", named="only", output=s3_place(store), continuousOutputSync=True,
                          replaced={"keep": 1}, env=[{"key": "CONTENT", "value": str(tmp_path / "content")}])  # fmt: skip
    for content in ("good", "bad", "good", "worse"):
        (tmp_path / "content").write_text(content)
        penstock.run("run", path).ok()

    assert store.bytes("out", "model") == b"worse" and kept(store, "model") == [b"good"]


def test_a_copy_that_was_removed_by_hand_is_made_again(penstock, store, job):
    # The journal and the manifest still list the run's own object, but must not make penstock
    # overwrite the user's object without a copy.
    put(store, "model", b"theirs")
    path = job(save("ours"))
    penstock.run("run", path).ok()
    for key in kept_keys(store):
        store.client.delete_object(Bucket="out", Key=key)
    put(store, "model", b"theirs")

    penstock.run("run", path).ok()

    assert store.bytes("out", "model") == b"ours" and kept(store, "model") == [b"theirs"]


# --- failures


def test_what_cannot_be_kept_is_not_overwritten(penstock, store, proxy, job):
    # The store refuses the copy, so the exit code is 73, with the reason. Once the store allows it,
    # `penstock flush` uploads the rest.
    put(store, "model", b"theirs")
    proxy.fault(**COPY, times=10**6, status=403, body=s3_error("AccessDenied"))

    ended = penstock.run("run", job(save("ours") + "; " + save("fine", "new"), endpointUrl=proxy.url)).exits(73)

    assert store.bytes("out", "model") == b"theirs" and store.bytes("out", "new") == b"fine"
    assert "model" in ended.err and "penstock flush" in ended.err
    proxy.clear()
    penstock.run("flush", only_run(penstock)).ok()
    assert store.bytes("out", "model") == b"ours" and kept(store, "model") == [b"theirs"]
    assert [entry["path"] for entry in shown(penstock)] == ["model"]


def test_what_cannot_be_looked_at_is_not_overwritten(penstock, store, proxy, job):
    put(store, "model", b"theirs")
    proxy.fault("HEAD", "^/out/model$", times=10**6, status=403)

    ended = penstock.run("run", job(save("ours"), endpointUrl=proxy.url)).exits(73)

    assert store.bytes("out", "model") == b"theirs" and "model" in ended.err


def test_a_copy_whose_reply_was_lost_is_made_once(penstock, store, proxy, job):
    put(store, "model", b"theirs")
    lost = proxy.fault(**COPY, lose_reply=True)

    penstock.run("run", job(save("ours"), endpointUrl=proxy.url)).ok()

    assert lost.hits == 1
    assert store.bytes("out", "model") == b"ours" and kept(store, "model") == [b"theirs"]
    assert len(shown(penstock)) == 1


def between(penstock, proxy, workflow, rule, action):
    """Runs the workflow, and calls `action` while the proxy holds the request, before the store
    gets it."""
    held = proxy.fault(hold="request", **rule)
    run = penstock.popen("run", workflow)
    held.wait()
    action()
    held.release()
    return run.wait().ok()


def test_what_is_replaced_before_the_copy_is_made_is_kept_instead(penstock, store, proxy, job):
    # Another client writes between the check and the copy: the copy must have the object that is overwritten in the end.
    put(store, "model", b"theirs")

    between(penstock, proxy, job(save("ours"), endpointUrl=proxy.url), COPY, lambda: put(store, "model", b"newer"))

    assert store.bytes("out", "model") == b"ours" and kept(store, "model") == [b"newer"]


def test_what_is_replaced_after_the_copy_is_kept_as_well(penstock, store, proxy, job):
    put(store, "model", b"theirs")

    between(penstock, proxy, job(save("ours"), endpointUrl=proxy.url), OVERWRITE, lambda: put(store, "model", b"newer"))

    assert store.bytes("out", "model") == b"ours" and kept(store, "model") == [b"newer", b"theirs"]
    assert len(shown(penstock)) == 2


def test_what_is_deleted_before_the_copy_is_made_is_no_obstacle(penstock, store, proxy, job):
    put(store, "model", b"theirs")

    between(penstock, proxy, job(save("ours"), endpointUrl=proxy.url), COPY, lambda: store.client.delete_object(Bucket="out", Key="model"))

    assert store.bytes("out", "model") == b"ours" and kept(store, "model") == []


@pytest.mark.parametrize("rule, held_at", [("COPY", "request"), ("COPY", "reply"), ("OVERWRITE", "request"), ("OVERWRITE", "reply")])
def test_a_kill_at_any_moment_leaves_one_copy_that_is_shown(penstock, store, proxy, job, rule, held_at):
    # The kill comes before or after the copy, or before or after the overwrite. penstock never gets
    # the reply, so it cannot record the request as done.
    put(store, "model", b"theirs")
    held = proxy.fault(hold=held_at, **{"COPY": COPY, "OVERWRITE": OVERWRITE}[rule])
    path = job(save("ours") + "; echo wrote; [ $PENSTOCK_ATTEMPT = 2 ] || exec sleep 1000", endpointUrl=proxy.url)

    run = penstock.popen("run", path)
    held.wait()
    if held_at == "reply":
        wait_for(lambda: [r for r in proxy.seen() if r.rule is held and r.carried_out == 200], PATIENCE)
    run.kill()
    held.stop()
    assert store.bytes("out", "model") == (b"ours" if (rule, held_at) == ("OVERWRITE", "reply") else b"theirs")
    if rule == "OVERWRITE":
        assert [store.bytes("out", entry["kept"]) for entry in shown(penstock)] == [b"theirs"]
    penstock.run("run", path).ok()

    assert store.bytes("out", "model") == b"ours" and kept(store, "model") == [b"theirs"]
    assert [(entry["path"], store.bytes("out", entry["kept"])) for entry in shown(penstock)] == [("model", b"theirs")]


def test_what_a_machine_kept_before_it_was_lost_is_shown_on_the_next(penstock, store, proxy, job, tmp_path):
    # The machine died after the store had overwritten the object, but before the reply, so neither
    # a journal nor a manifest lists the copy.
    put(store, "model", b"theirs")
    proxy.fault("PUT", "/manifest.json$", times=10**6, status=503)
    held = proxy.fault(hold="reply", **OVERWRITE)
    path = job(save("ours") + "; echo wrote; [ -n \"$LAST\" ] || exec sleep 1000", endpointUrl=proxy.url)
    run = penstock.popen("run", path)
    held.wait()
    wait_for(lambda: store.bytes("out", "model") == b"ours", PATIENCE)
    run.kill()
    proxy.clear()
    elsewhere = Penstock(tmp_path / "elsewhere")

    elsewhere.run("run", path, "--env", "LAST=1").ok()

    assert store.bytes("out", "model") == b"ours" and kept(store, "model") == [b"theirs"]
    assert [(entry["path"], store.bytes("out", entry["kept"])) for entry in shown(elsewhere)] == [("model", b"theirs")]
    # A fresh run on the second machine, where attempts have other numbers, also keeps the object
    # that the first machine wrote.
    elsewhere.run("run", path, "--env", "LAST=1").ok()
    assert kept(store, "model") == [b"ours", b"theirs"]
    elsewhere.close()


LARGE = 65 << 20  # too large for one request


def test_what_an_upload_in_parts_overwrites_is_kept(penstock, store, proxy, job):
    # The object from before the upload is kept, and so is the object that another client writes
    # before CompleteMultipartUpload.
    put(store, "model", b"theirs")
    complete = {"method": "POST", "path": "^/out/model$", "query": "uploadId="}

    between(penstock, proxy, job(f"truncate -s {LARGE} $DEEPSQUARE_OUTPUT/model", endpointUrl=proxy.url), complete, lambda: put(store, "model", b"newer"))

    assert store.client.head_object(Bucket="out", Key="model")["ContentLength"] == LARGE
    assert kept(store, "model") == [b"newer", b"theirs"] and len(shown(penstock)) == 2


def test_a_store_that_ignores_conditions_of_parts_is_looked_at_before_them(penstock, tmp_path):
    with SmallStore(parts=True) as store:
        sync = Syncer(penstock, store, tmp_path)
        (sync.out / "model").write_bytes(b"one")
        sync.wait_event("published", "model", deadline_s=PATIENCE)
        store.put("out-bucket/p/model", b"theirs, later")
        with open(sync.out / "model", "wb") as file:
            file.write(b"two")
            file.truncate(LARGE)
        sync.wait_event("published", "model", count=2, deadline_s=PATIENCE)
        sync.flush()

        assert len(sync.object("model")) == LARGE and sync.object("model").startswith(b"two")
        (entry,) = sync.manifest_list("replaced")
        assert store.bytes("out-bucket", urllib.parse.unquote(entry["kept"])) == b"theirs, later"
        sync.quit()


def test_a_store_that_ignores_conditions_is_looked_at_before_every_overwriting(penstock, tmp_path):
    # Without conditions, penstock has to send a request before each overwrite and each deletion, to
    # detect that another client has replaced the object.
    with SmallStore(conditions=False) as store:
        sync = Syncer(penstock, store, tmp_path, "--delete")
        (sync.out / "model").write_bytes(b"one")
        sync.wait_event("published", "model", deadline_s=PATIENCE)
        store.put("out-bucket/p/model", b"theirs, later")
        (sync.out / "model").write_bytes(b"two!")
        sync.wait_event("published", "model", count=2, deadline_s=PATIENCE)
        sync.flush()

        assert sync.object("model") == b"two!"
        (entry,) = sync.manifest_list("replaced")
        assert store.bytes("out-bucket", urllib.parse.unquote(entry["kept"])) == b"theirs, later"
        store.put("out-bucket/p/model", b"theirs again")
        (sync.out / "model").unlink()
        sync.flush()
        assert sync.object("model") == b"theirs again"
        sync.quit()
