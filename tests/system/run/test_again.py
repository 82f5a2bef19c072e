"""Running again with a fix: changed code, an edited workflow, a failure, another machine."""
import json
import os
import re
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
    # A fix of the code is the most common reason for the second command.
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
    # The directory of an artifact is a link in the working directory, and leads to the output.
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


# ---- the workflow file ----


def edit(path, **fields):
    """Changes fields of a workflow file: `steps` by their number, others as they are."""
    whole = json.loads(path.read_text())
    for number, command in fields.pop("steps", {}).items():
        whole["steps"][number]["run"]["command"] = command
    path.write_text(json.dumps(whole | fields))


@pytest.mark.parametrize("verb", ["run", "resume"])
def test_an_edited_workflow_is_taken_and_its_keys_are_named(penstock, project, verb):
    path = project("echo prepared", "echo train 1; exit 3")
    penstock.run("run", path, "--env", "GIVEN=kept", "--set", "ports=1").exits(3)
    edit(path, steps={1: "echo train 2 $GIVEN $NEW ${PORT_0:+port}"}, env=[{"key": "NEW", "value": "new"}])

    again = penstock.run(verb, *([path, "--env", "GIVEN=kept", "--set", "ports=1"] if verb == "run" else ["again"])).ok()

    assert again.out == "train 2 kept new port\n"
    assert "steps.s2.run.command" in again.err and "env.NEW" in again.err
    assert penstock.ps()[0]["attempt"] == 2


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
