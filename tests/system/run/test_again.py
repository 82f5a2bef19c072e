"""Running again with a fix: changed code, an edited workflow, a failure, another machine."""
import json
import os
import re
import shutil
import signal

import pytest

from harness.program import Penstock
from harness.workflows import RESOURCES, s3_place, write_workflow


@pytest.fixture
def project(tmp_path):
    """project(*steps, **fields): the path of a workflow in a directory that is its context."""
    folder = tmp_path / "project"
    folder.mkdir()

    def write(*steps, **fields):
        return write_workflow(folder, *steps, **{"name": "again", "context": "."} | fields)

    write.folder = folder
    return write


def preempt(penstock, path, ready="^ready", verb="run", **more):
    """Runs until the step is ready, and preempts it."""
    run = penstock.popen(verb, path, **more)
    run.wait_for_output(ready)
    run.send(signal.SIGTERM)
    return run.wait().exits(75)


WAITS = "trap 'exit 0' TERM; echo ready; while :; do sleep 0.05; done"


def test_a_continued_run_takes_the_code_that_is_there_now(penstock, project):
    # The most common reason to run the command again is a fix of the code.
    path = project("if [ -e made ]; then sh train.sh; cat kept; ls; else touch made kept; . ./train.sh; " + WAITS + "; fi")
    (project.folder / "train.sh").write_text("echo version 1\n")
    (project.folder / "gone.py").write_text("")
    (project.folder / "lib").mkdir()
    (project.folder / "lib" / "same.py").write_text("same\n")
    preempt(penstock, path)
    (project.folder / "train.sh").write_text("echo version 2\n")
    (project.folder / "new.py").write_text("")
    (project.folder / "gone.py").unlink()

    again = penstock.run("run", path).ok()

    assert again.out.splitlines() == ["version 2", "kept", "lib", "made", "new.py", "train.sh", "wf.json"]
    (line,) = [line for line in again.err.splitlines() if "--keep-context" in line]
    assert "train.sh" in line and "new.py" in line and "gone.py" in line and "lib" not in line


def test_the_old_copy_is_kept_if_asked_for(penstock, project):
    path = project("sh train.sh; [ -e made ] && exit 0; touch made; " + WAITS)
    (project.folder / "train.sh").write_text("echo version 1\n")
    preempt(penstock, path)
    (project.folder / "train.sh").write_text("echo version 2\n")

    again = penstock.run("run", path, "--keep-context").ok()

    assert again.out == "version 1\n"


def test_a_failed_run_is_resumed_with_the_fix(penstock, project):
    path = project("echo prepared", "sh train.sh")
    (project.folder / "train.sh").write_text("echo version 1; exit 3\n")
    penstock.run("run", path).exits(3)
    (project.folder / "train.sh").write_text("echo version 2\n")

    again = penstock.run("resume", "again").ok()

    assert again.out == "version 2\n"


def test_the_failure_comes_before_the_hint(penstock, project):
    failed = penstock.run("run", project("exit 3")).exits(3)

    first, second = failed.err.splitlines()[-2:]
    assert "failed" in first and "penstock resume" in second


def test_resume_names_a_variable_that_is_not_set(penstock, project):
    path = project("exit 3", price="${{ env.PRICE }}")
    penstock.run("run", path, env={"PRICE": "2"}).exits(3)

    again = penstock.run("resume", "again").exits(65)

    assert "PRICE" in again.err and "--set price=" in again.err and "--credentials-from" not in again.err
    penstock.run("resume", "again", "--set", "price=1").exits(3)


def test_code_that_has_not_changed_is_not_mentioned(penstock, project):
    path = project("[ -e made ] && exit 0; touch made; echo changed by the step >> train.sh; " + WAITS)
    (project.folder / "train.sh").write_text("true\n")
    preempt(penstock, path)
    os.utime(project.folder / "train.sh")

    again = penstock.run("run", path).ok()

    assert "--keep-context" not in again.err


def test_a_context_that_is_gone_leaves_the_copy(penstock, project, tmp_path):
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.sh").write_text("echo version 1\n")
    path = project("sh train.sh; [ -e made ] && exit 0; touch made; " + WAITS, context=str(code))
    preempt(penstock, path)
    (code / "train.sh").unlink()
    code.rmdir()

    again = penstock.run("run", path).ok()

    assert again.out == "version 1\n" and str(code) in again.err


def test_changed_code_meets_artifacts_and_links(penstock, project):
    # In the working directory, the directory of the artifact is a link into the output.
    path = project("cat data/x sub/file; [ -e made ] && exit 0; touch made; " + WAITS, artifacts=["data/"])
    (project.folder / "data").mkdir()
    (project.folder / "data" / "x").write_text("data 1\n")
    (project.folder / "sub").mkdir()
    (project.folder / "sub" / "file").write_text("file 1\n")
    preempt(penstock, path)
    (project.folder / "data" / "x").write_text("data 2\n")
    (project.folder / "sub" / "file").unlink()
    (project.folder / "sub" / "file").symlink_to("other")
    (project.folder / "sub" / "other").write_text("file 2\n")

    again = penstock.run("run", path).ok()

    assert again.out == "data 1\nfile 2\n"  # the output is the run's own


def test_a_directory_of_the_code_becomes_a_file_or_a_link(penstock, project):
    # The step has made a compiled Python file in `lib`. The directory `empty` of the code has only
    # an empty subdirectory.
    path = project("[ -d data/sub ] || { cat data lib/x empty; exit 0; }; mkdir lib/__pycache__; touch lib/__pycache__/x.pyc; " + WAITS)
    for name in ("data/sub", "lib", "other"):
        (project.folder / name).mkdir(parents=True)
        (project.folder / name / "x").write_text(f"{name}\n")
    (project.folder / "empty" / "sub").mkdir(parents=True)
    preempt(penstock, path)
    shutil.rmtree(project.folder / "empty")
    (project.folder / "empty").write_text("full\n")
    for name in ("data/sub", "lib"):
        (project.folder / name / "x").unlink()
        (project.folder / name).rmdir()
    (project.folder / "data").rmdir()
    (project.folder / "data").write_text("file\n")
    (project.folder / "lib").symlink_to("other")

    again = penstock.run("run", path).ok()

    assert again.out == "file\nother\nfull\n"


def test_a_directory_with_files_of_a_step_is_not_replaced(penstock, project):
    path = project("echo made > lib/made; " + WAITS)
    (project.folder / "lib").mkdir()
    preempt(penstock, path)
    (project.folder / "lib").rmdir()
    (project.folder / "lib").write_text("file\n")

    refused = penstock.run("run", path)

    assert refused.code != 0 and "'lib'" in refused.err
    (made,) = penstock.home.glob("runs/*/storage/**/lib/made")
    assert made.read_text() == "made\n"


# ---- the workflow file ----


def edit(path, **fields):
    """Changes fields of a workflow file. `steps` is {index: new command}; any other field gets the
    given value."""
    whole = json.loads(path.read_text())
    for number, command in fields.pop("steps", {}).items():
        whole["steps"][number]["run"]["command"] = command
    path.write_text(json.dumps(whole | fields))


def test_the_link_to_an_input_leads_to_the_edited_one(penstock, project, tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).write_text(f"{name}\n")
    inputs = [[{"local": {"path": str(tmp_path / name)}, "link": "data"}] for name in ("one", "two")]
    path = project("cat data; [ -e made ] && exit 0; touch made; " + WAITS, inputs=inputs[0])
    preempt(penstock, path)
    edit(path, inputs=inputs[1])

    again = penstock.run("run", path).ok()

    assert again.out == "two\n"


@pytest.mark.parametrize("verb", ["run", "resume"])
def test_an_edited_workflow_is_taken_and_its_keys_are_named(penstock, project, verb):
    path = project("echo prepared", "echo train 1; exit 3")
    penstock.run("run", path, "--env", "GIVEN=kept", "--set", "ports=1").exits(3)
    edit(path, steps={1: "echo train 2 $GIVEN $NEW ${PORT_0:+port}"}, env=[{"key": "NEW", "value": "new"}])

    again = penstock.run(verb, *([path, "--env", "GIVEN=kept", "--set", "ports=1"] if verb == "run" else ["again"])).ok()

    assert again.out == "train 2 kept new port\n"
    assert "steps.s2.run.command" in again.err and "env.NEW" in again.err
    assert penstock.ps()[0]["attempt"] == 2


def test_a_resumed_run_takes_more_variables_and_keeps_them(penstock, project):
    path = project("echo prepared", "echo $GIVEN $MORE; exit $CODE", env=[{"key": "CODE", "value": "3"}])
    penstock.run("run", path, "--env", "GIVEN=one").exits(3)

    again = penstock.run("resume", "again", "-e", "MORE=two", "--env", "CODE=4").exits(4)
    last = penstock.run("resume", "again", "--env", "CODE=0").ok()

    assert (again.out, last.out) == ("one two\n", "one two\n")


def test_a_step_that_was_edited_runs_again_with_those_after_it(penstock, project):
    path = project("echo one", "echo two", "echo three", "exit 3")
    penstock.run("run", path).exits(3)
    edit(path, steps={1: "echo two, fixed"})
    penstock.run("resume", "again").exits(3)
    edit(path, steps={3: "echo four"})

    again = penstock.run("resume", "again").ok()

    assert again.out == "four\n"
    assert penstock.run("logs", "--attempt", "2", "again").ok().out.count("two, fixed") == 1
    attempt = penstock.run("logs", "--attempt", "2", "again").ok().out.splitlines()
    assert [line for line in attempt if not line.startswith("penstock:")] == ["two, fixed", "three"]


def test_an_edited_file_without_a_name_continues_its_run(penstock, project):
    # Without a name, the file's contents are its identity, so a fix of the file makes a different
    # run, which starts from scratch without a message.
    path = project("echo one", "echo two; exit 3", name=None)
    penstock.run("run", path).exits(3)
    edit(path, steps={1: "echo three"})

    again = penstock.run("run", path).ok()
    edit(path, steps={1: "echo four"})
    after_success = penstock.run("run", path).ok()

    assert again.out == "three\n" and "steps.s2.run.command" in again.err
    assert after_success.out == "one\nfour\n"
    assert sorted(run["attempt"] for run in penstock.ps()) == [1, 2]


def test_new_inputs_run_all_steps_again(penstock, project, tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).write_text(f"{name}\n")
    path = project("cat $DEEPSQUARE_INPUT/?", "exit 3", input={"local": {"path": str(tmp_path / "a")}})
    penstock.run("run", path).exits(3)
    edit(path, input={"local": {"path": str(tmp_path / "b")}})

    again = penstock.run("resume", "again").exits(3)

    assert again.out == "b\n"


def test_more_cpus_do_not_repeat_what_is_finished(penstock, project):
    path = project("echo one", "exit 3")
    penstock.run("run", path).exits(3)
    edit(path, resources=RESOURCES | {"memPerCpu": 600}, timeout="1h")

    again = penstock.run("resume", "again").exits(3)

    assert again.out == "" and "resources.memPerCpu" in again.err


def test_a_mistake_in_the_edited_file_is_named_and_nothing_runs(penstock, project):
    path = project("exit 3")
    penstock.run("run", path).exits(3)
    edit(path, stepz=[])

    refused = penstock.run("resume", "again").exits(65)

    assert "stepz" in refused.err
    assert penstock.ps()[0]["attempt"] == 1


def test_both_ways_on_from_a_failure_are_named(penstock, project):
    path = project("echo one", "exit 3")

    failed = penstock.run("run", path).exits(3)
    again = penstock.run("run", path).exits(3)
    fresh = penstock.run("run", "--fresh", path).exits(3)

    for result in (failed, again):
        assert re.search(r"penstock resume [0-9a-f]{12}", result.err) and "--fresh" in result.err
    assert (again.out, fresh.out) == ("", "one\n")


# ---- several machines ----


@pytest.fixture
def machine(tmp_path):
    """machine(name): the program on that machine, with a home of its own."""
    made = {}

    def get(name):
        if name not in made:
            made[name] = Penstock(tmp_path / f"machine-{name}")
            made[name].env |= {"PENSTOCK_MACHINE": name, "PENSTOCK_LEASE_TERM": "1"}
        return made[name]

    yield get
    for program in made.values():
        program.close()


@pytest.fixture
def job(tmp_path, store):
    """job(*steps): the path of a workflow with an output in the store."""
    return lambda *steps, **more: write_workflow(
        tmp_path, *steps, **{"name": "again", "output": s3_place(store, "/res"), "continuousOutputSync": True} | more)


def attempts(penstock):
    return [(a["attempt"], a["state"]) for a in penstock.run("show", "--json", "again").json()["attempts"]]


UNTIL_THIRD = "trap 'exit 0' TERM; echo attempt $PENSTOCK_ATTEMPT; [ $PENSTOCK_ATTEMPT -ge 3 ] && exit 0; echo ready; while :; do sleep 0.05; done"


def test_a_run_that_succeeded_elsewhere_is_shown_as_that(machine, job):
    # The run has succeeded on machine b. A later `resume` on machine a must not record a failed
    # attempt with a number that machine b has used.
    path = job(UNTIL_THIRD)
    preempt(machine("a"), path)
    preempt(machine("b"), path)
    machine("b").run("run", path).ok()

    tried = [machine("a").run("resume", "again").ok() for _ in range(2)]

    assert all("succeeded" in result.err for result in tried)
    assert attempts(machine("a")) == [(1, "preempted")]
    (run,) = machine("a").ps()
    assert (run["state"], run["attempt"], run["message"]) == ("succeeded", 3, None) and run["host"]
    assert f"succeeded on {run['host']}" in machine("a").run("ps").ok().out
    assert f"succeeded on {run['host']}" in machine("a").run("show", "again").ok().out


def test_a_run_that_is_live_elsewhere_leaves_no_attempt(machine, job):
    path = job(UNTIL_THIRD)
    live = machine("a").popen("run", path)
    live.wait_for_output("^ready")

    machine("b").run("run", path).exits(69)

    assert machine("b").ps() == []
    live.send(signal.SIGTERM)
    live.wait().exits(75)


def test_the_state_next_to_the_output_is_believed_before_the_records(machine, store, job):
    # The run succeeded on machine b, then started over and was preempted on machine a. `resume`
    # with the place of the output continues the preempted run. Then the run has succeeded, so a
    # further `resume` is refused.
    path = job("[ $PENSTOCK_ATTEMPT = 1 ] || { " + UNTIL_THIRD + "; }")
    machine("b").run("run", path).ok()
    preempt(machine("a"), path)

    by_place = machine("b").run("resume", "s3://out/res/again", env=store.env).ok()

    assert by_place.out == "attempt 3\n"
    assert attempts(machine("b")) == [(1, "succeeded"), (3, "succeeded")]
    machine("b").run("resume", "again").exits(64)


def test_a_run_that_started_over_elsewhere_is_continued_by_its_name(machine, job):
    path = job("[ $PENSTOCK_ATTEMPT = 1 ] || { " + UNTIL_THIRD + "; }")
    machine("b").run("run", path).ok()
    preempt(machine("a"), path)

    assert machine("b").run("resume", "again").ok().out == "attempt 3\n"


def test_no_line_has_a_number_that_is_not_the_attempts(machine, job):
    path = job("echo $PENSTOCK_ATTEMPT > $DEEPSQUARE_OUTPUT/x; " + UNTIL_THIRD)
    machine("a").run("run", path, "--env", "X=1", "--fresh", "--set", "steps.0.run.command=echo 1 > $DEEPSQUARE_OUTPUT/x").ok()
    preempt(machine("b"), path)

    again = machine("c").run("run", path).ok()

    assert set(re.findall(r"attempt (\d+)", again.err)) == {"3", "2"}
    assert not re.search("from scratch", again.err)


# Files and metrics below the place of another run's output do not belong to that run, and no machine fetches them.
def test_an_output_within_an_output_is_not_a_part_of_it(machine, job, store, tmp_path):
    write = "cd $DEEPSQUARE_OUTPUT; find -type f | sort; [ -e log.jsonl ] && exit 0; mkdir sub2; echo 1 > sub2/own; echo '{\"step\": 1, \"%s\": 2}' > log.jsonl"
    outer, own = job(write % "outer" + "; exit 3", name="outer"), ["log.jsonl", "sub2/own"]
    machine("a").run("run", outer).exits(3)
    machine("a").run("run", job(write % "inner", file="inner.json", name="inner", output=s3_place(store, "/res/sub"))).ok()

    again = machine("b").run("run", outer).ok()

    assert again.out.splitlines() == [f"./{path}" for path in own]
    for run, metric in (("outer", "outer"), ("inner", "inner")):
        assert [file["path"] for file in machine("a").run("artifacts", "list", run, "--json").json()] == own
        metrics = [series["name"] for series in machine("a").run("metrics", run, "--json").json()]
        assert [name for name in metrics if not name.startswith("usage/")] == [metric]
    machine("a").run("artifacts", "get", "outer", "-o", tmp_path / "got").ok()
    assert sorted(str(path.relative_to(tmp_path / "got")) for path in (tmp_path / "got").rglob("*") if path.is_file()) == own
    assert {f"res/sub/{path}" for path in own} <= set(store.keys("out"))


def test_a_run_that_moved_on_is_shown_as_that(machine, job, tmp_path, wait_for):
    path = job("[ $PENSTOCK_ATTEMPT = 1 ] || { echo ready; while [ ! -e $AT/enough ]; do sleep 0.05; done; exit; }; " + WAITS, env=[{"key": "AT", "value": str(tmp_path)}])
    first = machine("a").popen("run", path)
    first.wait_for_output("^ready")
    os.kill(first.pid, signal.SIGSTOP)
    second = machine("b").popen("run", path)
    second.wait_for_output("^ready")
    os.kill(first.pid, signal.SIGCONT)
    first.wait().exits(69)

    (run,) = machine("a").ps()

    assert f"moved to {run['host']}" in machine("a").run("ps").ok().out
    assert f"moved to {run['host']}" in machine("a").run("show", "again").ok().out
    (tmp_path / "enough").touch()
    second.wait().ok()


# ---- the code on several machines ----


@pytest.fixture
def checkout(tmp_path, store):
    """checkout(name, **files): the path of the workflow in that machine's copy of the project."""

    def make(name, **files):
        folder = tmp_path / f"checkout-{name}"
        folder.mkdir(exist_ok=True)
        for file, text in files.items():
            (folder / f"{file}.sh").write_text(text)
        return write_workflow(folder, "sh code.sh; " + WAITS, name="again", context=".",
                              output=s3_place(store, "/res"), continuousOutputSync=True)  # fmt: skip

    return make


def test_every_machine_that_continues_runs_the_same_code(machine, checkout):
    here, there = checkout("a", code="echo one", old="echo"), checkout("b", code="echo two")
    preempt(machine("a"), here)
    second = preempt(machine("b"), there)
    third = preempt(machine("a"), here)
    fourth = preempt(machine("a"), here)
    checkout("a", code="echo three; ls")
    fifth = preempt(machine("a"), here)
    sixth = preempt(machine("b"), there)

    assert [result.out.split()[0] for result in (second, third, fourth, fifth, sixth)] == ["two", "two", "two", "three", "three"]
    (line,) = [line for line in third.err.splitlines() if "the code of attempt 2 on" in line]
    assert "code.sh" in line and "old.sh" in line
    assert "the code" not in fourth.err and "--keep-context" in fifth.err and "of attempt 5 on" in sixth.err
    assert "old.sh" in sixth.out


def test_a_machine_without_the_project_has_the_code_of_the_last_attempt(machine, checkout, store, tmp_path):
    path = checkout("a", code="echo one; sh lib.sh", lib="echo more")
    (path.parent / "lib.sh").chmod(0o755)
    (path.parent / "link").symlink_to("lib.sh")
    preempt(machine("a"), path)
    path.parent.rename(tmp_path / "gone")

    keys = [f"output.s3.accessKeyId={store.access_key}", f"output.s3.secretAccessKey={store.secret_key}"]
    run = machine("b").popen("resume", "s3://out/res/again", "--set", keys[0], "--set", keys[1], env=store.env)
    run.wait_for_output("^ready")
    run.send(signal.SIGTERM)
    again = run.wait().exits(75)

    assert again.out.split()[:2] == ["one", "more"] and "the code of attempt 1 on" in again.err
    (work,) = machine("b").home.glob("runs/*/storage/work")
    assert os.readlink(work / "link") == "lib.sh" and (work / "lib.sh").stat().st_mode & 0o111


def test_the_published_code_has_the_names_of_its_files(machine, checkout, store, tmp_path):
    path = checkout("a", code="sh für.sh; sh fär.sh", **{"für": "echo one", "fär": "echo two"})
    preempt(machine("a"), path)
    path.parent.rename(tmp_path / "gone")

    keys = [f"output.s3.accessKeyId={store.access_key}", f"output.s3.secretAccessKey={store.secret_key}"]
    run = machine("b").popen("resume", "s3://out/res/again", "--set", keys[0], "--set", keys[1], env=store.env)
    run.wait_for_output("^ready")
    run.send(signal.SIGTERM)

    assert run.wait().exits(75).out.split()[:2] == ["one", "two"]


def test_code_whose_names_a_zip_cannot_have_is_not_published(machine, checkout, store):
    path = checkout("a", code="echo one")
    (path.parent / os.fsdecode(b"b\xff.sh")).touch()

    assert "cannot publish the code" in preempt(machine("a"), path).err
    assert not any(key.endswith("context.zip") for key in store.keys("out"))


def test_code_that_could_not_be_published_is_not_replaced_by_older_one(machine, checkout, tmp_path):
    # A link that leads out of the project cannot be published, so the code with the link stays on
    # this machine.
    path = checkout("a", code="echo one")
    preempt(machine("a"), path)
    (path.parent / "out").symlink_to(tmp_path)
    checkout("a", code="echo two")

    refused = preempt(machine("a"), path)
    again = preempt(machine("a"), path)

    assert "cannot publish the code" in refused.err
    assert (refused.out.split()[0], again.out.split()[0]) == ("two", "two")


# ---- one name, two files ----


def test_another_file_of_the_same_name_is_refused(penstock, tmp_path):
    one = write_workflow(tmp_path, "echo one", file="one.json", name="train")
    two = write_workflow(tmp_path, "echo two", file="two.json", name="train")
    same = write_workflow(tmp_path, "echo one", file="same.json", name="train")
    penstock.run("run", one).ok()

    refused = penstock.run("run", two).exits(65)
    taken = penstock.run("run", two, "--replace").ok()

    assert refused.out == "" and "steps.s1.run.command" in refused.err and "one.json" in refused.err
    assert taken.out == "two\n"
    one.unlink()
    assert penstock.run("run", same, "--replace").ok().out == "one\n"
    assert penstock.run("run", two, "--name", "other").ok().out == "two\n"


def test_another_object_of_the_same_name_is_refused(penstock, tmp_path, store):
    store.client.create_bucket(Bucket="flows")
    for name in ("one", "two"):
        path = write_workflow(tmp_path, f"echo {name}", name="train")
        store.client.put_object(Bucket="flows", Key=f"{name}.json", Body=path.read_bytes())
    penstock.run("run", "s3://flows/one.json", env=store.env).ok()

    refused = penstock.run("run", "s3://flows/two.json", env=store.env).exits(65)
    taken = penstock.run("run", "s3://flows/two.json", "--replace", env=store.env).ok()

    assert refused.out == "" and "steps.s1.run.command" in refused.err and "s3://flows/one.json" in refused.err
    assert taken.out == "two\n"


def test_all_steps_are_shown_with_their_state(penstock, project):
    # Steps of an attempt before a fresh start do not count.
    path = project("echo one", "echo two", "exit 3", "echo four")
    penstock.run("run", path).exits(3)
    penstock.run("run", "--fresh", path, "--set", "steps.1.run.command=exit 4").exits(4)

    steps = penstock.run("show", "--json", "again").json()["steps"]

    assert [(s["step"], s["name"], s["state"], s["attempt"]) for s in steps] == [
        (1, "s1", "done", 2), (2, "s2", "failed", None), (3, "s3", "to do", None), (4, "s4", "to do", None)]
    shown = penstock.run("show", "again").ok().out
    assert re.search(r"3 +to do +- +- +s3", shown)
