"""The provenance of a run: the Git commit of its context and the differences from it, inputs, images, versions, price."""
import datetime
import hashlib
import os
import re
import subprocess

import pytest

from harness.workflows import write_workflow

STRANGER = 31337  # a user other than this one and root


@pytest.fixture
def repository(tmp_path):
    """A work tree with one commit, and a directory in it for the context; calling it runs git in
    the work tree and returns git's output."""
    top = tmp_path / "repository"
    context = top / "training"
    context.mkdir(parents=True)
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1"} | {
        f"GIT_{who}_{what}": text for who in ("AUTHOR", "COMMITTER") for what, text in (("NAME", "Ann"), ("EMAIL", "ann@example.org"))
    }

    def git(*words):
        done = subprocess.run(["git", "-C", top, *words], env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    git("init", "-q")
    for name, text in {"changed.py": "old line\n", "gone.py": "gone\n", "same.py": "same\n", ".gitignore": "*.ignored\n"}.items():
        (context / name).write_text(text)
    (top / "outside.py").write_text("outside\n")
    git("add", ".")
    git("commit", "-q", "-m", "first")
    git.top, git.context = top, context
    return git


@pytest.fixture
def job(tmp_path):
    def write(command="true", **fields):
        return write_workflow(tmp_path, command, named="s", **fields)

    return write


def provenance(penstock, run="", attempt=-1):
    return penstock.run("show", "--json", run or penstock.ps()[0]["id"]).ok().json()["attempts"][attempt]["provenance"]


def change(git):
    (git.context / "changed.py").write_text("new line\n")
    (git.context / "gone.py").unlink()
    (git.context / "added.py").write_text("added\n")
    (git.context / "data.ignored").write_text("ignored\n")
    (git.top / "outside.py").write_text("changed outside\n")


def added_and_removed(diff):
    return {line for line in diff.read_text().splitlines() if re.match(r"[+-][^+-]", line)}


CHANGES = {"-old line", "+new line", "-gone", "+added"}


def test_the_commit_of_the_context_and_what_differs_from_it_are_on_record(penstock, repository, job):
    commit = repository("rev-parse", "HEAD").strip()
    clean = job(name="clean", context=str(repository.context), file="clean.json")
    path = job("exit 7", name="changed", context={"path": str(repository.context), "ignore": "gitignore"})
    penstock.run("run", clean).ok()
    change(repository)
    penstock.run("run", path).exits(7)

    found = provenance(penstock, "changed")["context"]

    (folder,) = penstock.home.glob("runs/*/context")
    assert provenance(penstock, "clean")["context"] == {"commit": commit}
    assert found == {"commit": commit, "diff": str(folder / "1.diff")}
    assert added_and_removed(folder / "1.diff") == CHANGES
    assert [entry.name for entry in folder.iterdir()] == ["1.diff"] and (folder / "1.diff").stat().st_mode & 0o777 == 0o600
    assert commit in penstock.run("show", "changed").ok().out
    # A run that continues with the copy of an earlier attempt has the commit of that copy, although the repository has moved on.
    repository("commit", "-q", "-a", "-m", "second")
    penstock.run("resume", "changed", "--keep-context").exits(7)
    assert provenance(penstock, "changed")["context"] == found
    penstock.run("run", "--fresh", path).exits(7)
    later = provenance(penstock, "changed")["context"]
    assert later["commit"] == repository("rev-parse", "HEAD").strip() != commit
    assert added_and_removed(folder / "3.diff") == {"+added"} and added_and_removed(folder / "1.diff") == CHANGES
    # The patch restores the code of the run.
    repository("reset", "-q", "--hard", commit)
    (repository.context / "added.py").unlink()
    repository("apply", str(folder / "1.diff"))
    assert (repository.context / "changed.py").read_text() == "new line\n" and (repository.context / "added.py").exists()


def test_a_change_within_the_tick_of_its_commit_is_seen(penstock, repository, job):
    # The length is unchanged, and the index shows the same times. The change is still detected,
    # because the index is not newer than the file.
    changed, index = repository.context / "changed.py", repository.top / ".git" / "index"
    when = (changed.stat().st_mtime_ns // 10**9 - 100) * 10**9
    while True:
        changed.write_text("old line\n")
        os.utime(changed, ns=(when, when))
        before = changed.stat()
        repository("add", ".")
        changed.write_text("new line\n")
        os.utime(changed, ns=(when, when))
        os.utime(index, ns=(when, when))
        if int(changed.stat().st_ctime) == int(before.st_ctime):
            break

    penstock.run("run", job(context=str(repository.context))).ok()

    (diff,) = penstock.home.glob("runs/*/context/1.diff")
    assert added_and_removed(diff) == {"-old line", "+new line"}


def test_looking_at_a_repository_changes_nothing_in_it(penstock, repository, job):
    change(repository)

    def files():
        return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in (repository.top / ".git").rglob("*")}

    before = files()
    penstock.run("run", job(context=str(repository.context))).ok()

    assert "diff" in provenance(penstock)["context"]
    assert files() == before


def test_a_strangers_repository_runs_nothing(penstock, repository, job, tmp_path):
    # The configuration of a repository can name programs for nearly all operations of git, and git refuses repositories of other users.
    evil = tmp_path / "evil"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\necho \"$0 $*\" >> {evil}\ncat\n")
    program.chmod(0o755)
    (repository.top / ".gitattributes").write_text("*.py filter=own diff=own\n")
    repository("add", ".gitattributes")
    repository("commit", "-q", "-m", "with attributes")
    commit = repository("rev-parse", "HEAD").strip()
    change(repository)
    for setting in ("core.fsmonitor", "diff.external", "filter.own.clean", "filter.own.smudge", "diff.own.command", "diff.own.textconv", "core.pager",
                    "core.sshCommand", "core.gitProxy", "uploadpack.packObjectsHook", "credential.helper", "core.editor"):  # fmt: skip
        repository("config", setting, str(program))
    hooks = repository.top / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    for hook in ("post-index-change", "reference-transaction", "fsmonitor-watchman", "query-watchman"):
        (hooks / hook).write_text(program.read_text())
        (hooks / hook).chmod(0o755)
    repository("diff", "HEAD")
    assert "/program" in evil.read_text()  # git runs the program for a user who trusts the repository
    evil.unlink()
    if os.getuid() == 0:
        for path in [repository.top, *repository.top.rglob("*")]:
            os.chown(path, STRANGER, STRANGER)

    penstock.run("run", job(context=str(repository.context))).ok()

    found = provenance(penstock)["context"]
    assert not evil.exists()
    assert found["commit"] == commit and CHANGES <= added_and_removed(next(penstock.home.glob("runs/*/context/1.diff")))


def test_secrets_in_what_differs_are_masked(penstock, repository, job):
    secret = "hf_" + "0a1b2c3d" * 4
    (repository.context / "changed.py").write_text(f"login('{secret}')\n")

    penstock.run("run", job(context=str(repository.context), env=[{"key": "HF_TOKEN", "value": secret}])).ok()

    (diff,) = penstock.home.glob("runs/*/context/1.diff")
    assert "+login('***')\n" in diff.read_text()


def test_an_index_that_only_its_repository_can_read_costs_time_and_no_news(penstock, repository, job):
    repository("update-index", "--split-index")
    change(repository)

    penstock.run("run", job(context=str(repository.context))).ok()

    (diff,) = penstock.home.glob("runs/*/context/1.diff")
    assert CHANGES <= added_and_removed(diff)


def test_too_much_that_differs_is_cut_and_data_is_left_out(penstock, repository, job):
    for number in range(6):
        (repository.context / f"text{number}").write_text("a line of text\n" * 60000)
    (repository.context / "data").write_text("a line of data\n" * 100000)

    penstock.run("run", job(context=str(repository.context))).ok()

    found = provenance(penstock)["context"]
    (diff,) = penstock.home.glob("runs/*/context/1.diff")
    assert found["cut"] is True and found["diff"] == str(diff)
    assert 3 << 20 < diff.stat().st_size <= 4 << 20
    assert "+a line of text\n" in diff.read_text() and "+a line of data\n" not in diff.read_text()


def test_what_is_of_no_commit_has_none(penstock, repository, job, tmp_path):
    # The context is outside of any repository, below one that does not track it, or on a machine without git.
    stray = repository.top / "stray"
    stray.mkdir()
    (stray / "a.py").write_text("a\n")
    plain = tmp_path / "plain"
    plain.mkdir()
    programs = tmp_path / "programs"
    programs.mkdir()
    for place, env in ((stray, {}), (plain, {}), (repository.context, {"PATH": str(programs)})):
        penstock.run("run", "--fresh", job(name="none", context=str(place)), env=env).ok()

        assert "context" not in provenance(penstock, "none")
        assert not list(penstock.home.glob("runs/*/context"))


def test_inputs_and_images_are_on_record_by_their_digests(penstock, job, http_server, store, tmp_path):
    store.client.create_bucket(Bucket="data")
    store.client.put_object(Bucket="data", Key="set/a", Body=b"a")
    url = http_server.add("/one.csv", b"1,2\n")
    keys = {"region": "us-east-1", "accessKeyId": store.access_key, "secretAccessKey": store.secret_key, "endpointUrl": store.endpoint}
    inputs = [
        {"path": "one", "http": {"url": url}, "sha256": hashlib.sha256(b"1,2\n").hexdigest()},
        {"path": "two", "s3": {"bucketUrl": "s3://data", "path": "/set"} | keys},
    ]

    penstock.run("run", job("cat $DEEPSQUARE_INPUT/one/one.csv", inputs=inputs)).ok()

    first, second = provenance(penstock)["inputs"]
    content = hashlib.sha256(b"1,2\n").hexdigest()
    assert first == {"source": url, "etag": f'"{content[:32]}"', "bytes": 4, "files": 1, "sha256": content}
    etag = store.client.head_object(Bucket="data", Key="set/a")["ETag"]
    assert second["source"].endswith("s3://data/set") and (second["bytes"], second["files"], second["etag"]) == (1, 1, etag)


def test_inputs_of_many_objects_are_told_apart_by_names_and_etags(penstock, job, store):
    # There is one digest over all objects. The digest does not depend on the order of the objects,
    # and changes if any object changes.
    store.client.create_bucket(Bucket="data")
    keys = {"region": "us-east-1", "accessKeyId": store.access_key, "secretAccessKey": store.secret_key, "endpointUrl": store.endpoint}
    found = []
    for change in ({}, {}, {"a0": b"other"}, {"a0": b"0"}, {"a0": b"1", "a1": b"0"}):
        for name, body in ({f"a{i}": b"%d" % i for i in range(20)} if not found else change).items():
            store.client.put_object(Bucket="data", Key=f"set/{name}", Body=body)

        penstock.run("run", "--fresh", job("true", name="many", input={"s3": {"bucketUrl": "s3://data", "path": "/set"} | keys})).ok()

        (entry,) = provenance(penstock, "many")["inputs"]
        assert entry["files"] == 20 and re.fullmatch("all-[0-9a-f]{64}", entry["etag"])
        found.append(entry["etag"])
    first, again, other, as_before, swapped = found
    assert first == again == as_before and len({first, other, swapped}) == 3


def test_attempts_have_their_cost(penstock, job):
    # The price is per hour, so each second costs 1.
    costly = job("test $PENSTOCK_ATTEMPT -gt 1", name="costly", price=3600)

    penstock.run("run", costly).exits(1)
    penstock.run("resume", "--set", "price=7200.5", "costly").ok()

    shown = penstock.run("show", "--json", "costly").ok().json()
    for attempt, price in zip(shown["attempts"], (3600, 7200.5), strict=True):
        begun, ended = (datetime.datetime.fromisoformat(attempt[key].replace("Z", "+00:00")) for key in ("started", "ended"))
        assert attempt["cost"] == pytest.approx((ended - begun).total_seconds() * price / 3600, rel=0.01, abs=0.01)
    assert shown["cost"] == pytest.approx(sum(attempt["cost"] for attempt in shown["attempts"]))
    text = penstock.run("show", "costly").ok().out
    assert re.search(r"price +7200\.5\n", text) and re.search(r"cost +[0-9.]+\n", text) and "COST" in text
    penstock.run("run", job("test $PENSTOCK_ATTEMPT -gt 1", name="later")).exits(1)
    penstock.run("resume", "--set", "price=3600", "later").ok()
    assert re.search(r"cost +[0-9.]+ for 1 of 2 ", penstock.run("show", "later").ok().out)
    penstock.run("run", job("true", name="free")).ok()
    assert "cost" not in penstock.run("show", "--json", "free").ok().json()
    assert "COST" not in penstock.run("show", "free").ok().out
