"""`penstock validate`: all mistakes of a workflow file, and nothing of the machine."""
import json

import pytest

from harness.jobs import PUBLISHED, published, write
from harness.program import TOP

MINIMAL = "steps:\n  - run:\n      command: echo hello\n"
NO_CONTAINERS = {
    "first": ["--set", "steps.train.run.container=null"],
    "resume": ["--set", "steps.train.run.container=null", "--set", "steps[0].run.container=null"],
}


def copy_of(name, folder):
    """The page's file byte for byte where the page is at hand."""
    if not PUBLISHED.exists():
        return write(published(name), folder / f"{name}.json")
    text = PUBLISHED.read_text().split('```json title="')[1 if name == "first" else 2]
    path = folder / f"{name}.json"
    path.write_text(text.split("\n", 1)[1].split("```")[0])
    return path


# Both published files are valid as they are, but for the containers that this version refuses by name.
@pytest.mark.parametrize("name", ["first", "resume"])
def test_published_workflows_are_valid_without_their_containers(penstock, tmp_path, name):
    path = copy_of(name, tmp_path)

    refused = penstock.run("validate", path).exits(65)
    valid = penstock.run("validate", path, *NO_CONTAINERS[name]).ok()

    assert "`container` is not supported by this version" in refused.err
    assert f"{path}: valid" in valid.out
    assert "secretAccessKey" not in valid.out


# Every mistake comes at once, with line and column, in the order of the file; stdout stays empty.
def test_mistakes_are_told_with_their_places(penstock, tmp_path):
    path = tmp_path / "wf.yaml"
    path.write_text("resources:\n  task: 1\n  cpusPerTask: 0\nsteps:\n  - run: {commandd: x}\n")

    result = penstock.run("validate", "wf.yaml", cwd=tmp_path).exits(65)

    assert result.out == ""
    assert result.err.splitlines() == [
        "wf.yaml:2:3: unknown key `task` in `resources`, did you mean `tasks`?",
        "wf.yaml:3:16: `resources.cpusPerTask` must be from 1 to 65536, not 0",
        "wf.yaml:5:11: unknown key `commandd` in `run`, did you mean `command`?",
    ]


# Programs get the same mistakes as JSON, also where the workflow is wrong.
def test_json_holds_mistakes_and_model(penstock):
    wrong = penstock.run("validate", "--json", "-", input="{\n \"steps\": 5\n}").exits(65)
    right = penstock.run("validate", "--json", "-", "--set", "resources.tasks=1", input=MINIMAL).json()

    report = json.loads(wrong.out)
    assert (report["valid"], report["mistakes"], report["workflow"]) == (False, 1, None)
    assert report["diagnostics"] == [
        {
            "severity": "error",
            "file": "<stdin>",
            "line": 2,
            "column": 11,
            "option": None,
            "message": "`steps` must be a list, not a number",
        }
    ]
    assert right["valid"] and len(right["digest"]) == 64
    assert right["workflow"]["steps"][0]["run"]["shell"] == "/bin/sh"


# It looks at the file only: what no machine has, and secrets that nobody gave, are no mistakes.
def test_the_machine_and_its_environment_are_not_looked_at(penstock):
    text = MINIMAL + "resources: {tasks: 1000, gpus: 1000}\nenv: [{key: A, value: '${{ secrets.NOT_THERE }}'}]\n"

    penstock.run("validate", "-", input=text).ok()

    assert not penstock.home.exists()


# A secret of the file is in no line of what validate says, whatever is wrong with it.
def test_secrets_are_not_shown(penstock):
    keys = '"accessKeyId": "AKIDSECRETID", "secretAccessKey": "very-secret-key"'
    text = '{"output": {"s3": {"bucketUrl": "very-secret-key", "path": "/", "endpointUrl": "http://AKIDSECRETID", %s}}, "steps": 1}' % keys

    for arguments in (["-"], ["-", "--json"], ["-", "--set", "output.s3.region=very-secret-key!"]):
        result = penstock.run("validate", *arguments, input=text).exits(65)

        assert "very-secret-key" not in result.text
        assert "AKIDSECRETID" not in result.text


# The example's workflows are what users copy first.
def test_workflows_of_the_examples_are_valid(penstock):
    found = sorted(TOP.glob("examples/*/*.json"))

    assert found
    for path in found:
        assert penstock.run("validate", path).ok().err == ""


# A file that cannot be read is no wrong workflow.
def test_unreadable_files_have_their_own_exit_codes(penstock, tmp_path):
    missing = penstock.run("validate", tmp_path / "no.json").exits(66)
    penstock.run("validate").exits(64)

    assert missing.err.count("\n") == 1 and "no.json" in missing.err
