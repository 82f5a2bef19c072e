"""Continuous sync under stress: killed saves of real training programs, odd names, full disks,
missing events, slow networks, large files."""
import contextlib
import hashlib
import io
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
import urllib.parse
import zipfile

import pytest

from harness.fault_proxy import s3_error
from harness.slow_link import SlowLink
from harness.sync_driver import Syncer, limited
from harness.waiting import wait_for
from harness.workflows import RESOURCES, s3_place

PATIENT_S = 90  # only limits the time of a failing test


@pytest.fixture
def syncs(penstock, store, tmp_path):
    """syncs(*options, machine="a"): starts a sync of that machine's directory."""

    def make(*options, machine="a", **keywords):
        folder = tmp_path / "s" / machine
        folder.mkdir(parents=True, exist_ok=True)
        return Syncer(penstock, store, folder, *options, **keywords)

    return make


@pytest.fixture
def link(store):
    link = SlowLink(store.endpoint)
    yield link
    link.close()


@contextlib.contextmanager
def python(code, *arguments, **keywords):
    """Runs a program in the background, which ends with the block."""
    with subprocess.Popen([sys.executable, "-c", code, *map(str, arguments)], **keywords) as process:
        try:
            yield process
        finally:
            process.kill()


# ---- Rewritten all the time ----

CHECKPOINTS = """
import hashlib, os, select, sys, time
path, form, every_s = sys.argv[1:]
noise = os.urandom(3 << 20)
version = 0
while not select.select([sys.stdin], [], [], 0)[0]:
    begun = time.monotonic()
    version += 1
    body = version.to_bytes(8, "little") + noise[version % 4096 :]
    body = hashlib.sha256(body).digest() + body
    name = path + ".tmp" if form == "moved" else path
    with open(name, "wb") as file:
        for at in range(0, len(body), 1 << 20):
            file.write(body[at : at + (1 << 20)])
            file.flush()
    if form == "moved":
        os.rename(name, path)
    time.sleep(max(0, float(every_s) - (time.monotonic() - begun)))
print(version)
"""


def version_of(body):
    assert hashlib.sha256(body[32:]).digest() == body[:32], "a mixed or short object"
    return int.from_bytes(body[32:40], "little")


def rewrite(sync, form, enough, every_s=0.05):
    """Rewrites a checkpoint until enough(versions published, seconds). Returns the versions that a continuous reader got."""
    client = sync.store.client
    with python(CHECKPOINTS, sync.out / "ckpt.pth", form, str(every_s), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        begun = time.monotonic()
        sync.wait_event("published", "ckpt.pth", deadline_s=PATIENT_S)
        seen = set()
        while not enough(len(sync.events("published", "ckpt.pth")), time.monotonic() - begun):
            seen.add(version_of(client.get_object(Bucket=sync.BUCKET, Key="p/ckpt.pth")["Body"].read()))
        published = len(sync.events("published", "ckpt.pth"))
        seconds = time.monotonic() - begun
        assert writer.poll() is None
        last = int(writer.communicate(b"\n", timeout=PATIENT_S)[0])
    sync.flush(PATIENT_S * 1000)
    assert version_of(sync.object("ckpt.pth")) == last
    client.close()
    etags = [event["detail"] for event in sync.events("published", "ckpt.pth")][:published]
    print(f"{form}: {len(set(etags))} versions published in {seconds:.1f} s of {last} written, {len(seen)} seen")
    return set(etags), seen


# While a checkpoint of 3 MB is rewritten every 50 ms, versions of it are published, and no reader
# gets a mix of two versions.
@pytest.mark.parametrize("form", ["in place", "moved"])
def test_a_checkpoint_rewritten_all_the_time_is_published_whole(syncs, form):
    def enough(published, seconds):
        assert seconds < PATIENT_S, f"only {published} versions in {seconds:.0f} s"
        return published >= 8

    sync = syncs()
    versions, seen = rewrite(sync, form, enough)
    sync.quit()

    assert len(versions) >= 8 and seen


@pytest.mark.long
@pytest.mark.parametrize("form", ["in place", "moved"])
def test_a_minute_of_rewriting_publishes_a_hundred_versions(syncs, form):
    versions, seen = rewrite(syncs(), form, lambda published, seconds: seconds >= 60)

    assert len(versions) >= 100 and len(seen) >= 10


def test_an_upload_of_a_file_that_changes_is_given_up_and_then_made_from_a_copy(syncs, fault_proxy):
    # Each rewrite comes when half of the body is sent, and the rest has not been read yet.
    size, key = 12 << 20, "/ckpt.pth$"
    # A socket must not buffer the whole body.
    fault_proxy.listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
    sync = syncs(endpoint=fault_proxy.url)
    path = sync.out / "ckpt.pth"

    path.touch()

    def rewrite(version):
        with open(path, "r+b") as file:  # not truncated, because the sync would detect that
            file.write(b"%d" % version * size)

    def held_at():
        return fault_proxy.fault(method="PUT", path=key, hold="body")

    def there():
        body = sync.object("ckpt.pth")
        assert len(body) == size and body == body[:1] * size, "a mixed object"
        return int(body[:1])

    rewrite(1)
    sync.flush()
    before = len(sync.events("published", "ckpt.pth"))
    first, second, third = held_at(), held_at(), held_at()
    rewrite(2)
    first.wait()
    rewrite(3)
    first.release()
    second.wait()
    assert there() == 1, "the upload of a file that changed meanwhile has appeared"
    rewrite(4)
    second.release()
    third.wait()
    assert there() == 3, "the snapshot from before the last change has not appeared"
    third.release()
    sync.flush()
    assert there() == 4
    assert len(sync.events("published", "ckpt.pth")) == before + 2


# ---- Killed in the middle of a real save ----

TRAINER = """
import os, signal, sys, torch

path = sys.argv[1]
state = {f"layer{i}": torch.full((64, 4096), float(i)) for i in range(4)}
torch.save(state, path)
print("saved", flush=True)
while not os.path.exists(sys.argv[2]):
    torch.randn(64)

class Dying(torch._C.PyTorchFileWriter):
    def write_record(self, name, *rest):
        super().write_record(name, *rest)
        if name == "data/2":
            os.kill(os.getpid(), signal.SIGKILL)

torch._C.PyTorchFileWriter = Dying
torch.save({name: tensor + 1 for name, tensor in state.items()}, path)
"""


def test_a_trainer_killed_in_the_middle_of_torch_save_loses_no_checkpoint(penstock, store, tmp_path):
    # The kernel reports the close of a killed writer like any other: the last good object stays,
    # the broken file goes to partial/.
    trainer = tmp_path / "trainer.py"
    trainer.write_text(TRAINER)
    workflow = {
        "name": "t", "resources": RESOURCES, "output": s3_place(store), "continuousOutputSync": True,
        "steps": [{"name": "train", "run": {"command": f"/usr/bin/python3 {trainer} $DEEPSQUARE_OUTPUT/ckpt.pth $STORAGE_PATH/go"}}],
    }  # fmt: skip
    path = tmp_path / "wf.json"
    path.write_text(json.dumps(workflow))

    run = penstock.popen("run", path)
    run.wait_for_output("saved", PATIENT_S)
    wait_for(lambda: "out" in [b["Name"] for b in store.client.list_buckets()["Buckets"]] and "ckpt.pth" in store.keys("out"), PATIENT_S, "the first checkpoint")
    good = store.bytes("out", "ckpt.pth")
    (storage,) = penstock.home.glob("runs/*/storage")
    (storage / "go").touch()
    run.wait().exits(128 + signal.SIGKILL)

    assert store.bytes("out", "ckpt.pth") == good
    identity = penstock.ps()[0]["id"]
    broken = store.bytes("out", f".penstock/runs/{identity}/partial/ckpt.pth")
    assert broken == (storage / "output" / "ckpt.pth").read_bytes()
    assert zipfile.is_zipfile(io.BytesIO(good)) and not zipfile.is_zipfile(io.BytesIO(broken))


# ---- Without events ----

@pytest.mark.parametrize("number, name", [(2, "max_inotify_watches"), (0, "max_inotify_instances")])
def test_where_inotify_is_short_changes_are_found_by_scanning(syncs, number, name):
    # The kernel refuses the watches of the last directories, or of all. New files, changes and
    # deletions are still found.
    sync = syncs("--delete", "--scan-ms", 300, through=limited(number, name))
    for folder in range(4):
        (sync.out / f"d{folder}" / "deep").mkdir(parents=True)

    for folder in range(4):
        (sync.out / f"d{folder}" / "deep" / "file").write_bytes(b"one")
    for folder in range(4):
        sync.wait_event("published", f"d{folder}/deep/file", deadline_s=PATIENT_S)
    (sync.out / "d3" / "deep" / "file").write_bytes(b"two, longer")
    sync.wait_event("published", "d3/deep/file", count=2, deadline_s=PATIENT_S)
    (sync.out / "d2" / "deep" / "file").unlink()
    sync.wait_event("deleted", "d2/deep/file", deadline_s=PATIENT_S)

    assert sync.status()["polling"]
    assert sync.warnings()
    assert sync.object("d3/deep/file") == b"two, longer"
    assert sync.paths() == ["d0/deep/file", "d1/deep/file", "d3/deep/file"]


def test_on_a_network_file_system_a_file_must_rest_before_it_is_published(syncs):
    # A network file system has neither events nor leases. A file that still grows is not published,
    # even after many scans.
    sync = syncs("--network", "--scan-ms", 200)
    (sync.out / "whole").write_bytes(b"x" * 1000)
    (sync.out / "sub").mkdir()
    (sync.out / "sub" / "whole").write_bytes(b"y")

    with open(sync.out / "growing.bin", "wb") as file:
        while not (sync.events("published", "whole") and sync.events("published", "sub/whole")):
            file.write(b"\0" * 4096)
            file.flush()
            time.sleep(0.02)
        size = file.tell()
        assert not sync.has("growing.bin")
    sync.wait_event("published", "growing.bin", deadline_s=PATIENT_S)

    assert sync.status()["polling"] and sync.warnings()
    assert len(sync.object("growing.bin")) == size
    sync.flush()
    assert sync.paths() == ["growing.bin", "sub/whole", "whole"]


# ---- Names ----

ODD = [
    b"new\nline", b"-rf", b"--", b"-", b"..foo", b"...", b"~", b"%2F", b"a%", b"*?[]", b"x" * 255, "é".encode() * 127,
    b"bad\xff\xfe", b"\xed\xa0\x80", b" ", b"trailing ", b"&<>'\"", b"back\\slash", b"tab\t", b"cr\r", b"bell\x07", b"\x01",
    b"del\x7f", "\u0085\u2028\ufffe\uffff".encode(), "e\u0301".encode(), "\U0001f600".encode(), b"soap+plus", b"#?query=1",
    b"a:b", b"COM1", b"null", b"{}", b"$HOME", b"`id`", b".hidden", b"manifest.json", b"-.json",
]  # fmt: skip


def tree(folder):
    found = {}
    for top, folders, files in os.walk(os.fsencode(folder)):
        for name in folders + files:
            path = os.path.join(top, name)
            status = os.lstat(path)
            kind = stat.S_IFMT(status.st_mode)
            content = os.readlink(path) if kind == stat.S_IFLNK else open(path, "rb").read() if kind == stat.S_IFREG else None
            found[os.path.relpath(path, os.fsencode(folder))] = (status.st_mode, content)
    return found


def test_odd_names_links_and_empty_directories_come_back_as_they_were(syncs):
    # Every name that the kernel accepts arrives in the bucket, and another machine gets the same tree.
    first = syncs()
    top = os.fsencode(first.out)
    for name in ODD:
        with open(os.path.join(top, name), "wb") as file:
            file.write(b"file " + name)
        os.makedirs(os.path.join(top, b"d", name + b"/empty" if len(name) < 255 else name))
    (first.out / "sub").mkdir()
    for name in ODD:
        with open(os.path.join(top, b"sub", name), "wb") as file:
            file.write(b"sub " + name)
    os.symlink("d", first.out / "to-a-directory")
    os.symlink("../../outside", first.out / "to-outside")
    os.symlink(b"bad\xff\xfe", os.path.join(top, b"to-bad"))
    os.symlink("nowhere", first.out / "dangling")
    os.link(first.out / "sub" / "-rf", first.out / "hard-link")
    first.flush(PATIENT_S * 1000).quit()
    before = tree(first.out)

    other = syncs(machine="b", attempt=2, start=False)
    other.restore()

    assert len(before) == 4 * len(ODD) - 1 + 2 + 4 + 1
    assert tree(other.out) == before
    assert sum(1 for path in first.paths() if path.startswith("sub/")) == len(ODD)


def test_paths_longer_than_the_system_takes_are_named_once(syncs):
    # A path of this length can be made step by step, but cannot be opened. There is one warning,
    # and no other file waits.
    sync = syncs("--scan-ms", 200)
    here = os.getcwd()
    try:
        os.chdir(sync.out)
        for _ in range(20):
            os.mkdir("d" * 250)
            os.chdir("d" * 250)
            for name in ("one", "two"):
                with open(name, "w") as file:
                    file.write(name)
    finally:
        os.chdir(here)
    (sync.out / "short").write_bytes(b"1")

    sync.wait_event("published", "short", deadline_s=PATIENT_S)
    wait_for(lambda: any("4,096" in warning for warning in sync.warnings()), PATIENT_S, "the warning")
    scans = sync.status()["scans"]
    wait_for(lambda: sync.status()["scans"] >= scans + 2, PATIENT_S, "two more scans")

    assert sum("4,096" in warning for warning in sync.warnings()) == 1


def test_what_is_written_through_one_hard_link_is_published_under_both_names(syncs):
    sync = syncs()
    (sync.out / "a").write_bytes(b"one")
    os.mkdir(sync.out / "d")
    os.link(sync.out / "a", sync.out / "d" / "b")
    sync.flush()

    (sync.out / "a").write_bytes(b"two")
    sync.flush()

    assert sync.object("a") == sync.object("d/b") == b"two"


def test_a_renamed_directory_moves_in_the_manifest_and_in_the_bucket(syncs):
    # Another directory has had the new name before. Nothing below the renamed directory is written,
    # so there are no events for its files and links.
    sync = syncs("--delete")
    for name in ("old", "other"):
        (sync.out / name / "deep" / "empty").mkdir(parents=True)
        (sync.out / name / "deep" / "file").write_bytes(name.encode())
        os.symlink("file", sync.out / name / "deep" / "link")
    sync.flush()

    shutil.rmtree(sync.out / "other")
    os.rename(sync.out / "old", sync.out / "other")
    sync.flush(PATIENT_S * 1000)

    assert sync.paths() == ["other/deep/file"]
    assert sync.object("other/deep/file") == b"old"
    manifest = {path: entry for path, entry in sync.manifest().items() if not entry["deleted"]}
    assert set(manifest) == {b"other", b"other/deep", b"other/deep/empty", b"other/deep/file", b"other/deep/link"}
    (sync.out / "other" / "deep" / "file").write_bytes(b"written under the new name")
    sync.wait_event("published", "other/deep/file", count=3, deadline_s=PATIENT_S)
    assert sync.object("other/deep/file") == b"written under the new name"


@pytest.mark.parametrize("delete", [True, False])
def test_files_and_directories_that_take_each_others_names(syncs, delete):
    # Before a new object is published, the old object is removed, and the flush waits for both.
    sync = syncs(*["--delete"] * delete)
    (sync.out / "a").write_bytes(b"file")
    (sync.out / "b").mkdir()
    (sync.out / "b" / "inner").write_bytes(b"inner")
    sync.flush()

    (sync.out / "a").unlink()
    (sync.out / "a").mkdir()
    (sync.out / "a" / "inner").write_bytes(b"now below")
    shutil.rmtree(sync.out / "b")
    (sync.out / "b").write_bytes(b"now a file")
    sync.flush(PATIENT_S * 1000)

    assert sync.paths() == (["a/inner", "b"] if delete else ["a", "a/inner", "b", "b/inner"])
    assert sync.object("b") == b"now a file" and sync.object("a/inner") == b"now below"
    before = tree(sync.out)
    sync.quit()
    other = syncs(machine="b", attempt=2, start=False)
    other.restore()
    assert tree(other.out) == before
    again = syncs(attempt=3, start=False)
    assert again.restore()["files_suspect"] == 0 and tree(again.out) == before


# ---- Order ----

MARKED = """
import os, select, sys, time
out, pause, pointer, step = sys.argv[1], float(sys.argv[2]), sys.argv[3], 0
while not select.select([sys.stdin], [], [], 0)[0]:
    step += 1
    begun = time.monotonic()
    with open(f"{out}/data{step % 5}", "wb") as file:
        file.write(step.to_bytes(8, "little") * (50_000 * (step % 7 + 1)))
    if pointer == "twice":
        with open(f"{out}/step.json", "wb") as file:
            file.write(step.to_bytes(8, "little") * 2)
    with open(f"{out}/latest", "wb") as file:
        file.write(step.to_bytes(8, "little"))
    time.sleep(max(0, pause - (time.monotonic() - begun)))
"""


def step_of(sync, name):
    return int.from_bytes(sync.object(name)[:8], "little")


@pytest.mark.parametrize("pause_s, pointer, rate", [(0.1, "once", None), (0.02, "once", None), (0.02, "twice", None), (0.02, "once", 50_000_000)])
def test_a_reader_never_sees_a_marker_before_its_data(syncs, link, pause_s, pointer, rate):
    # The writer rewrites five files in turn, and `latest` after each of them; `latest` names the
    # file directly or through step.json. A reader must always find that file, or a newer one. With
    # a fast writer and a slow link, the marker must still be published again and again.
    link.open(rate)
    sync = syncs(endpoint=link.url)
    with python(MARKED, sync.out, pause_s, pointer, stdin=subprocess.PIPE):
        sync.wait_event("published", "latest", deadline_s=PATIENT_S)
        seen, begun = set(), time.monotonic()
        while len(seen) < (2 if rate else 6):
            assert time.monotonic() - begun < PATIENT_S, seen
            step = named = step_of(sync, "latest")
            if pointer == "twice":
                named = step_of(sync, "step.json")
                assert named >= step, f"latest says {step}, step.json {named}"
            body = sync.object(f"data{named % 5}")
            held = int.from_bytes(body[:8], "little")
            assert body == body[:8] * (50_000 * (held % 7 + 1))
            assert held >= named, f"the marker says {named}, its data is of {held}"
            seen.add(step)


# ---- deleteSync ----


def test_delete_sync_leaves_an_object_that_somebody_else_replaced(syncs, store):
    # Another client has overwritten an object of this run, so the object does not belong to the run
    # any more.
    sync = syncs("--delete")
    (sync.out / "mine").write_bytes(b"mine")
    (sync.out / "ours").write_bytes(b"ours")
    sync.flush()
    store.client.put_object(Bucket=Syncer.BUCKET, Key="p/ours", Body=b"theirs by now")

    (sync.out / "mine").unlink()
    (sync.out / "ours").unlink()
    sync.flush(PATIENT_S * 1000)

    assert sync.paths() == ["ours"]
    assert sync.object("ours") == b"theirs by now"


# The store carries out the request, but the reply is lost, and the retry finds that the file was
# renamed. The object with the old name must be deleted.
@pytest.mark.parametrize("size", [1000, 300_000, 12 << 20])
@pytest.mark.parametrize("renamed", ["d/old", "d"])
def test_a_rename_while_the_reply_to_its_upload_is_lost_leaves_no_old_name(syncs, fault_proxy, size, renamed):
    sync = syncs("--delete", endpoint=fault_proxy.url)
    (sync.out / "d").mkdir()
    lost = fault_proxy.fault(method="PUT|POST", path="/d/old", hold="request", lose_reply=True)
    (sync.out / "d" / "old").write_bytes(os.urandom(size))
    lost.wait()

    os.rename(sync.out / renamed, sync.out / "new")
    lost.release()
    sync.flush(PATIENT_S * 1000)

    assert sync.paths() == (["new"] if renamed == "d/old" else ["new/old"])


# The store deletes the old name, but the reply is lost, and the retry is refused. Then the file
# gets this name again.
def test_a_file_that_gets_its_name_back_after_a_lost_deletion_is_sent(syncs, fault_proxy):
    sync = syncs("--delete", endpoint=fault_proxy.url)
    (sync.out / "old").write_bytes(b"content")
    sync.wait_event("published", "old", deadline_s=PATIENT_S)
    fault_proxy.fault(method="DELETE", path="/old$", lose_reply=True)
    refused = fault_proxy.fault(method="DELETE", path="/old$", times=1000, status=403, body=s3_error("AccessDenied"))
    os.rename(sync.out / "old", sync.out / "new")
    refused.wait()
    wait_for(lambda: "old" in sync.status()["last_error"], PATIENT_S, "the failure of the deletion")

    os.link(sync.out / "new", sync.out / "old")
    refused.stop()

    sync.wait_event("published", "old", count=2, deadline_s=PATIENT_S)
    sync.flush(PATIENT_S * 1000)
    assert sync.paths() == ["new", "old"]


# A proxy may delay an upload until after the deletion of its name. Then there is an object of this
# sync without a file.
def test_an_upload_that_arrives_after_its_deletion_is_deleted(syncs, store):
    sync = syncs("--delete")
    (sync.out / "new").write_bytes(b"content")
    sync.flush()
    for key in ("late", "d/late"):
        store.client.copy_object(Bucket=Syncer.BUCKET, Key="p/" + key, CopySource={"Bucket": Syncer.BUCKET, "Key": "p/new"})
    store.client.put_object(Bucket=Syncer.BUCKET, Key="p/theirs", Body=b"theirs")

    sync.flush(PATIENT_S * 1000)

    assert sync.paths() == ["new", "theirs"]


# An attempt that starts over restores nothing, and deletes only its own objects. An object of an earlier attempt is copied first.
def test_delete_sync_deletes_in_an_attempt_that_starts_over(syncs, store):
    first = syncs("--delete")
    for name in ("old", "never", "unsent"):
        (first.out / name).write_bytes(b"first")
    first.flush().quit()
    second = syncs("--delete", "--began", 2, attempt=2, machine="b")
    with open(second.out / "unsent", "wb") as unsent:
        unsent.write(bytes(100))
        (second.out / "old").write_bytes(b"second")
        second.wait_event("published", "old", deadline_s=PATIENT_S)

        (second.out / "unsent").unlink()
        os.rename(second.out / "old", second.out / "new")
    second.flush(PATIENT_S * 1000)

    assert second.paths() == ["never", "new"]
    kept = {urllib.parse.unquote(entry["path"]): urllib.parse.unquote(entry["kept"]) for entry in second.manifest_list("replaced")}
    assert sorted(kept) == ["old", "unsent"] and {store.bytes(Syncer.BUCKET, key) for key in kept.values()} == {b"first"}


def test_delete_sync_deletes_nothing_after_a_restore_that_failed(syncs, store):
    first = syncs("--delete")
    for name in ("a", "b", "c"):
        (first.out / name).write_bytes(name.encode())
    first.flush().quit()
    store.client.delete_object(Bucket=Syncer.BUCKET, Key="p/b")

    other = syncs("--delete", machine="b", attempt=2, start=False)
    assert other.ask("restore")["result"] == "failed"
    other.start()
    (other.out / "new").write_bytes(b"new")
    for name in ("a", "c"):  # the restore had already fetched them
        (other.out / name).unlink(missing_ok=True)
    answer = other.ask(f"flush {PATIENT_S * 1000}", PATIENT_S + 30)
    assert answer["result"] == "failed" and "'b'" in answer["message"], answer

    assert other.paths() == ["a", "c", "new"]
    assert other.warnings()


# ---- another client of the bucket ----


def test_what_somebody_removes_or_replaces_meanwhile_is_sent_again(syncs, store):
    # Another client deletes or replaces a published object before the end, so the local file may be
    # the only copy. The other client's object is copied first.
    sync = syncs()
    odd = "bad\udcff"
    for name in ("gone", "replaced", "stays", odd, "d/gone", "d/stays"):
        (sync.out / name).parent.mkdir(exist_ok=True)
        (sync.out / name).write_bytes(name.encode(errors="surrogateescape"))
    sync.flush()
    for key in ("p/gone", "p/bad%FF", "p/d/gone"):
        store.client.delete_object(Bucket=Syncer.BUCKET, Key=key)
    store.client.put_object(Bucket=Syncer.BUCKET, Key="p/replaced", Body=b"theirs")

    sync.flush(PATIENT_S * 1000)

    assert sync.paths() == ["bad%FF", "d/gone", "d/stays", "gone", "replaced", "stays"]
    for name in ("gone", "replaced", "d/gone"):
        assert sync.object(name) == name.encode()
    assert [len(sync.events("published", name)) for name in ("stays", "d/stays", "gone")] == [1, 1, 2]
    (kept,) = sync.manifest_list("replaced")
    assert store.bytes(Syncer.BUCKET, kept["kept"]) == b"theirs"
    assert sum("its object was" in warning for warning in sync.warnings()) == 4
    published = len(sync.events("published"))
    assert len(sync.flush().events("published")) == published


@pytest.mark.parametrize("method", ["GET", "GET|HEAD"])
def test_keys_that_may_write_but_not_look_are_enough(syncs, store, fault_proxy, method):
    # Keys that may only write are common. If the keys may not list, penstock sends a HEAD for each
    # file; if that is refused, too, the state of the objects is unknown.
    sync = syncs(endpoint=fault_proxy.url)
    for name in ("gone", "stays"):
        (sync.out / name).write_bytes(name.encode())
    sync.flush()
    store.client.delete_object(Bucket=Syncer.BUCKET, Key="p/gone")
    fault_proxy.fault(method="GET", query="list-type", times=1000, status=403, body=s3_error("AccessDenied"))
    if "HEAD" in method:
        fault_proxy.fault(method="HEAD", times=1000, status=403)

    sync.flush(PATIENT_S * 1000)

    assert sync.has("gone") == (method == "GET") and sync.has("stays")


def test_a_manifest_that_somebody_removes_is_written_again(syncs, store):
    # The removal of the manifest does not mean that another run has taken the output, even if a
    # foreign object is found at the same moment.
    sync = syncs()
    (sync.out / "a").write_bytes(b"1")
    (sync.out / "b").write_bytes(b"1")
    sync.flush()
    store.client.delete_object(Bucket=Syncer.BUCKET, Key=Syncer.STATE + "manifest.json")
    store.client.put_object(Bucket=Syncer.BUCKET, Key="p/b", Body=b"theirs")

    (sync.out / "a").write_bytes(b"2")
    (sync.out / "b").write_bytes(b"2")
    sync.flush(PATIENT_S * 1000)

    assert set(sync.manifest()) == {b"a", b"b"} and not sync.status()["lost"]
    assert sync.object("a") == sync.object("b") == b"2"


def test_a_run_whose_object_is_removed_meanwhile_ends_with_it_in_place(penstock, store, tmp_path):
    # The run must not report success and then remove the local files.
    command = "echo weights > $DEEPSQUARE_OUTPUT/model; while [ ! -e $STORAGE_PATH/end ]; do sleep 0.02; done"
    workflow = {
        "name": "r", "resources": RESOURCES, "output": s3_place(store), "continuousOutputSync": True,
        "steps": [{"name": "s", "run": {"command": command}}],
    }  # fmt: skip
    path = tmp_path / "wf.json"
    path.write_text(json.dumps(workflow))
    run = penstock.popen("run", path)
    wait_for(lambda: "out" in [b["Name"] for b in store.client.list_buckets()["Buckets"]] and "model" in store.keys("out"), PATIENT_S, "the model")

    store.client.delete_object(Bucket="out", Key="model")
    (storage,) = penstock.home.glob("runs/*/storage")
    (storage / "end").touch()
    run.wait().ok()

    assert store.bytes("out", "model") == b"weights\n"


# ---- Without a store ----


def test_a_name_that_must_wait_for_the_store_is_not_looked_for_all_the_time(syncs, store):
    # A directory became a file while the store was unavailable, so the objects below it cannot be
    # deleted yet. Each check of the name is a scan of all files, so there must be few checks.
    sync = syncs("--delete")
    (sync.out / "a").mkdir()
    (sync.out / "a" / "b").write_bytes(b"below")
    sync.flush()
    address = store.address
    store.kill()

    shutil.rmtree(sync.out / "a")
    (sync.out / "a").write_bytes(b"file")
    before, begun = sync.status()["scans"], time.monotonic()
    wait_for(lambda: sync.status()["scans"] >= before + 5, PATIENT_S, "some looks")
    took, looks = time.monotonic() - begun, sync.status()["scans"] - before

    assert took > 0.1 * (2**looks - 1) / 4, f"{looks} scans in {took:.1f} s"
    store.start(address)
    sync.flush(PATIENT_S * 1000)
    assert sync.paths() == ["a"] and sync.object("a") == b"file"


# ---- Sizes ----


@pytest.mark.parametrize("size", [1 << 30, pytest.param(10 << 30, marks=pytest.mark.long)])
def test_small_files_are_not_stuck_behind_a_large_one(syncs, size):
    # Directories do not wait for each other, and the sync's memory does not depend on the size of
    # files.
    sync = syncs()
    for folder in range(20):
        (sync.out / f"small{folder}").mkdir()
    (sync.out / "large").mkdir()

    with open(sync.out / "large" / "file", "wb") as file:
        file.truncate(size)
    for folder in range(20):
        (sync.out / f"small{folder}" / "file").write_bytes(b"1")
    sync.wait_event("published", "large/file", deadline_s=3 * PATIENT_S * size // (1 << 30))  # a sanitizer slows the checksums

    order = [event["path"] for event in sync.events("published")]
    assert len(order) == 21 and order[-1] == "large/file"
    assert sync.store.client.head_object(Bucket=sync.BUCKET, Key="p/large/file")["ContentLength"] == size
    sync.check_peak()


# ---- A full disk ----


@pytest.fixture
def small_disk(tmp_path):
    """Returns a directory, and a command prefix that runs the driver with a file system of 1 MiB in
    this directory, for journal, snapshots and manifest."""
    if subprocess.run(["unshare", "-Urm", "mount", "-t", "tmpfs", "none", "/mnt"], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("mount namespaces are not allowed here")
    folder = tmp_path / "disk"
    folder.mkdir()
    return folder, ["unshare", "-Urm", "sh", "-c", 'mount -t tmpfs -o size=1m none "$1"; shift; exec "$@"', "sh", folder]


def test_a_full_disk_of_its_own_stops_no_publishing(syncs, small_disk):
    # There is no space for journal, snapshots and manifest. Closed files are still published,
    # whole, and once there is space, the journal is complete, as the next attempt after a kill
    # shows.
    folder, through = small_disk
    sync = syncs("--private", folder / "private", "--journal", folder / "journal", through=through)
    inside = lambda path: f"/proc/{sync.process.pid}/root{path}"
    (sync.out / "before").write_bytes(b"1")
    sync.flush()

    with open(inside(folder / "ballast"), "wb", buffering=0) as ballast:
        with pytest.raises(OSError):
            while True:
                ballast.write(b"\0" * 4096)
    # These names make the journal longer than its last page has room for.
    names = [f"{'n' * 200}{number:03}" for number in range(100)]
    for name in names:
        (sync.out / name).write_bytes(name.encode())
    # Without snapshots, a version can only be published if it is sent before the next version is
    # written.
    versions, _ = rewrite(sync, "in place", lambda published, seconds: published >= 1 and sync.warnings(), every_s=1)
    assert sync.object("before") == b"1"
    for name in names[::10]:
        assert sync.object(name) == name.encode()
    assert any("journal" in warning for warning in sync.warnings())
    wait_for(lambda: sync.object(".penstock/runs/run/manifest.json").count(b"n" * 200) == 100, PATIENT_S, "the manifest")

    os.unlink(inside(folder / "ballast"))
    (sync.out / "after").write_bytes(b"2")
    sync.flush()
    lines = open(inside(folder / "journal"), "rb").read()
    assert all(b" P %s " % name.encode() in lines for name in (*names, "ckpt.pth", "after"))
    (sync.journal).write_bytes(lines)
    sync.kill()

    second = syncs(attempt=2, start=False)
    restored = second.restore()
    assert (restored["files_kept"], restored["files_suspect"], restored["files_fetched"]) == (103, 0, 0)


# ---- A slow network ----


def test_a_flush_goes_on_while_bytes_of_a_large_upload_move(penstock, store, link, tmp_path):
    # After an error, the upload of the only remaining file takes longer than the patience for an
    # unavailable store.
    command = "echo ready; while [ ! -e $STORAGE_PATH/go ]; do sleep 0.02; done; head -c 24000000 /dev/zero > $DEEPSQUARE_OUTPUT/large; echo written; while [ ! -e $STORAGE_PATH/end ]; do sleep 0.02; done"
    workflow = {
        "name": "f", "resources": RESOURCES, "output": s3_place(store, endpoint=link.url), "continuousOutputSync": True,
        "steps": [{"name": "s", "run": {"command": command}}],
    }  # fmt: skip
    path = tmp_path / "wf.json"
    path.write_text(json.dumps(workflow))
    run = penstock.popen("run", path, env={"PENSTOCK_FLUSH_PATIENCE": "5"})
    run.wait_for_output("ready")
    (storage,) = penstock.home.glob("runs/*/storage")
    wait_for(lambda: store.client.list_buckets()["Buckets"], PATIENT_S, "the bucket")

    link.refuse()
    (storage / "go").touch()
    run.wait_for_output("written")
    wait_for(lambda: link.refused >= 12, PATIENT_S, "an upload that failed for good")
    link.open(rate=2_000_000)
    (storage / "end").touch()

    run.wait().ok()
    assert store.client.head_object(Bucket="out", Key="large")["ContentLength"] == 24_000_000
