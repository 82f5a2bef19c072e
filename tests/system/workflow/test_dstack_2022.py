"""Older forms of dstack's files: variables as environment variables, a folder of workflows, tags by
name."""
import os
import subprocess
import textwrap

import pytest

mounting = pytest.mark.skipif(subprocess.run(["unshare", "--user", "--map-current-user", "--keep-caps", "--mount", "true"]).returncode != 0
                              and os.geteuid() != 0, reason="mount namespaces are not allowed here")  # fmt: skip


@pytest.fixture
def project(penstock, tmp_path):
    """project(files): a directory with these files, in which penstock is started."""

    def write(files):
        for path, text in files.items():
            place = tmp_path / "project" / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(textwrap.dedent(text))
        penstock.cwd = tmp_path / "project"
        return penstock.cwd

    return write


def test_variables_are_in_the_environment_and_options_of_the_command(penstock, project):
    project({
        ".dstack/workflows.yaml": """
            workflows:
              - name: train
                provider: bash
                commands:
                  - echo $LEARNING_RATE $epochs $EPOCHS $run_name
                  - echo $variables_as_args
                resources: {cpu: $cpus}
            """,
        ".dstack/variables.yaml": "variables: {global: {cpus: 1}, train: {learning-rate: 0.1, epochs: 3}}\n",
    })  # fmt: skip

    plain = penstock.run("run", "train").ok()
    other = penstock.run("run", "train", "--learning-rate", "0.5").ok()
    unknown = penstock.run("run", "train", "--learning-rat", "0.5")

    assert plain.out == "0.1 3 3 train\n--cpus 1 --learning-rate 0.1 --epochs 3\n"
    assert other.out.startswith("0.5 3 3 train\n") and unknown.code != 0


@pytest.mark.parametrize("variables", ["variables: [a]\n", "variables: {\n"])
def test_a_mistake_of_the_variables_is_reported_once(penstock, project, variables):
    project({
        ".dstack/workflows.yaml": "workflows: [{name: train, provider: bash, commands: ['true']}]\n",
        ".dstack/variables.yaml": variables,
    })  # fmt: skip

    refused = penstock.run("run", "train").exits(65)

    assert refused.err.count("variables.yaml:") == 1


def test_a_workflow_is_found_in_the_folder_of_workflows_with_the_project_as_context(penstock, project):
    where = project({
        ".dstack/workflows/first.yaml": "workflows: [{name: prepare, provider: bash, commands: [cat main.txt > data.txt], artifacts: [data.txt]}]\n",
        ".dstack/workflows/second.yaml": "workflows: [{name: train, provider: bash, deps: [prepare], commands: ['cat data.txt; echo $LR']}]\n",
        ".dstack/workflows/third.yaml": "workflows: [{name: wrong, provider: bash, deps: [prepar], commands: [x]}, {name: y, provider: bash, commands: [x]}]\n",
        ".dstack/variables.yaml": "variables: {train: {lr: 0.1}}\n",
        "main.txt": "main\n", "below/x": "",
    })  # fmt: skip
    penstock.cwd = where / "below"

    penstock.run("run", "prepare").ok()

    assert penstock.run("run", "train").ok().out == "main\n0.1\n"
    assert penstock.run("run", "none").code != 0
    assert "third.yaml:1:50: " in penstock.run("validate", where / ".dstack/workflows/third.yaml").exits(65).err
    penstock.run("validate", where / ".dstack/workflows/second.yaml").ok()


@mounting
def test_latest_is_the_tag_of_that_name_and_artifacts_may_be_absolute(penstock, project):
    project({".dstack/workflows.yaml": """
        workflows:
          - name: prepare
            provider: bash
            commands: [echo $PENSTOCK_RUN_ID > /penstock-artifacts/id]
            artifacts: [/penstock-artifacts]
          - name: good
            provider: bash
            commands: [echo of the run > id.txt]
            artifacts: [id.txt]
          - {name: latest, provider: bash, deps: ["prepare:latest"], commands: [cat penstock-artifacts/id]}
          - {name: tagged, provider: bash, deps: ["good:latest"], commands: [cat penstock-artifacts/id]}
        """})  # fmt: skip

    penstock.run("run", "prepare").ok()
    penstock.run("run", "good").ok()
    penstock.run("tag", "add", "good", "prepare").ok()
    run = next(run["id"] for run in penstock.ps() if run["name"] == "prepare")

    assert penstock.run("run", "latest").ok().out.strip() == run
    assert penstock.run("run", "tagged").ok().out.strip() == run
    assert not os.path.exists("/penstock-artifacts")


AGAIN = """
workflows:
  - {name: prep, provider: bash, commands: ["until [ -e $GO ]; do sleep 0.05; done; cat $GO > data.txt; [ -s data.txt ]"], environment: {GO: %s}, artifacts: [data.txt]}
  - {name: train, provider: bash, deps: [{workflow: prep}], commands: [cat data.txt]}
"""


# The waiting run is shown by `ps`, claims no resources, and reads the files of the new run.
@pytest.mark.parametrize("way", ["succeeds", "fails"])
def test_a_run_waits_for_its_dependency_that_has_begun_again(penstock, project, tmp_path, wait_for, way):
    go = tmp_path / "go"
    project({".dstack/workflows.yaml": AGAIN % go})
    go.write_text("first\n")
    penstock.run("run", "prep").ok()
    go.unlink()
    penstock.run("run", "-d", "--fresh", "prep").ok()

    train = penstock.run("run", "-d", "train").ok().out.strip()

    def state():
        return next(run for run in penstock.ps() if run["id"] == train)

    assert state()["state"] == "queued"
    (tmp_path / "new").write_text("second\n" if way == "succeeds" else "")
    (tmp_path / "new").rename(go)
    wait_for(lambda: state()["state"] in ("succeeded", "failed"))
    if way == "succeeds":
        assert state()["state"] == "succeeded" and "second" in penstock.run("logs", "train").ok().out
    else:
        assert (state()["state"], state()["class"]) == ("failed", "input")


def test_resume_takes_an_edited_file_with_the_variables_that_the_run_had(penstock, project):
    # Earlier versions did not keep the variables, so only `run` could read an edited file.
    where = project({".dstack/workflows.yaml": """
        workflows:
          - {name: train, provider: bash, commands: ["echo first ${{ epochs }}", "exit 3"]}
        """})  # fmt: skip
    path = where / ".dstack/workflows.yaml"

    penstock.run("run", "train", "--epochs", "7").exits(3)
    path.write_text(path.read_text().replace("first", "second").replace("exit 3", "exit 0"))
    fixed = penstock.run("resume", "train").ok()
    secret = penstock.run("run", "--fresh", "train", "--epochs", "8", "--name", "other").ok()

    assert fixed.out == "second 7\n"
    assert secret.out == "second 8\n"


def test_variables_that_may_be_secrets_are_not_kept(penstock, project):
    where = project({".dstack/workflows.yaml": """
        workflows:
          - {name: train, provider: bash, commands: ["echo ${{ api-token }} | wc -c", "exit 3"]}
        """})  # fmt: skip
    path = where / ".dstack/workflows.yaml"

    penstock.run("run", "train", "--api-token", "sesame-open").exits(3)
    path.write_text(path.read_text().replace("exit 3", "exit 0"))
    penstock.run("resume", "train").exits(3)

    kept = [entry.read_text() for entry in penstock.home.rglob("source") if entry.is_file()]
    assert kept and all("sesame" not in text for text in kept)
