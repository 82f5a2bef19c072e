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
