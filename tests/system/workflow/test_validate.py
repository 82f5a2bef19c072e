"""`penstock validate` reports all mistakes of a workflow file, and does not check the machine."""
import json

import pytest

from harness.jobs import PUBLISHED, published, write
from harness.program import TOP
from harness.terminal import Terminal

MINIMAL = "steps:\n  - run:\n      command: echo hello\n"

def copy_of(name, folder):
    """Writes a published workflow file; copies the bytes of the page that published it if this
    machine has the page. Returns the path."""
    if not PUBLISHED.exists():
        return write(published(name), folder / f"{name}.json")
    text = PUBLISHED.read_text().split('```json title="')[1 if name == "first" else 2]
    path = folder / f"{name}.json"
    path.write_text(text.split("\n", 1)[1].split("```")[0])
    return path


# Both published files are valid as they are.
@pytest.mark.parametrize("name", ["first", "resume"])
def test_published_workflows_are_valid(penstock, tmp_path, name):
    path = copy_of(name, tmp_path)

    valid = penstock.run("validate", path).ok()

    assert f"{path}: valid" in valid.out
    assert "secretAccessKey" not in valid.out


# A bucket name that no store accepts is reported before anything starts, with a similar valid name.
def test_a_bucket_name_that_cannot_be_is_told(penstock, tmp_path):
    path = tmp_path / "wf.json"
    s3 = {"region": "r", "bucketUrl": "s3://Bad_Name", "path": "/", "endpointUrl": "embedded"}
    path.write_text(json.dumps({"output": {"s3": s3}, "steps": [{"run": {"command": "echo hello"}}]}))

    for verb in ("validate", "run"):
        told = penstock.run(verb, path).exits(65)
        assert "Bad_Name" in told.err and "bad-name" in told.err
    assert penstock.ps() == []


# All mistakes are reported at once, with line and column, in the order of the file; stdout stays
# empty.
def test_mistakes_are_told_with_their_places(penstock, tmp_path):
    path = tmp_path / "wf.yaml"
    path.write_text("resources:\n  task: 1\n  cpusPerTask: 0\nsteps:\n  - run: {commandd: x}\n")

    result = penstock.run("validate", "wf.yaml", cwd=tmp_path).exits(65)

    assert result.out == ""
    facts = [
        ("wf.yaml:2:3: ", "task", "resources", "tasks"),
        ("wf.yaml:3:16: ", "resources.cpusPerTask", "65536", "0"),
        ("wf.yaml:5:11: ", "commandd", "run", "command"),
    ]
    lines = result.err.splitlines()
    assert len(lines) == len(facts)
    assert all(line.startswith(start) and all(name in line for name in names) for line, (start, *names) in zip(lines, facts))


# On a terminal, a message also shows the line and the place in the line; the number of mistakes is
# shown, too. A line that may contain a secret is not shown.
def test_mistakes_on_a_terminal_have_their_line(penstock, tmp_path):
    path = tmp_path / "wf.yaml"
    path.write_text("resources:\n\tx: 1\n".replace("\t", "  ") + "  cpusPerTask: 0\noutputs: {s3: {secretAccesKey: very-secret-key}}\nsteps:\n  - run: {commandd: x}\n")

    shown = Terminal(penstock, "validate", path, env={"NO_COLOR": "1"}).wait().exits(65).out.splitlines()

    for number, column, text in [(2, 3, "  x: 1"), (3, 16, "  cpusPerTask: 0"), (6, 11, "  - run: {commandd: x}")]:
        at = shown.index(f"    {number} | {text}")
        assert shown[at - 1].startswith(f"{path}:{number}:{column}: ") and shown[at + 1] == "      | " + " " * (column - 1) + "^"
    assert "very-secret-key" not in "".join(shown) and shown[-1].startswith(f"{path}: 4 ")
    coloured = Terminal(penstock, "validate", path).wait().exits(65).out
    assert coloured.count("\x1b[1;31m") == 4


# The message suggests the key for a common short form, and lists all keys only if a word is similar
# to no key.
def test_a_short_form_of_a_key_is_known(penstock):
    told = penstock.run("validate", "-", input="steps:\n  - run: {cmd: x}\n").exits(65).err

    assert "command" in told and "hangTimeout" not in told


# Programs get the same mistakes as JSON, even if the workflow is invalid.
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
            "message": report["diagnostics"][0]["message"],
        }
    ]
    assert right["valid"] and len(right["digest"]) == 64
    assert right["workflow"]["steps"][0]["run"]["shell"] == "/bin/sh"


# validate checks the file only: resources beyond any machine, and missing secrets, are not mistakes.
def test_the_machine_and_its_environment_are_not_looked_at(penstock):
    text = MINIMAL + "resources: {tasks: 1000, gpus: 1000}\nenv: [{key: A, value: '${{ secrets.NOT_THERE }}'}]\n"

    penstock.run("validate", "-", input=text).ok()

    assert not penstock.home.exists()


# The output of validate never shows a secret of the file, with any mistake in the file.
def test_secrets_are_not_shown(penstock):
    keys = '"accessKeyId": "AKIDSECRETID", "secretAccessKey": "very-secret-key"'
    text = '{"output": {"s3": {"bucketUrl": "very-secret-key", "path": "/", "endpointUrl": "http://AKIDSECRETID", %s}}, "steps": 1}' % keys

    for arguments in (["-"], ["-", "--json"], ["-", "--set", "output.s3.region=very-secret-key!"]):
        result = penstock.run("validate", *arguments, input=text).exits(65)

        assert "very-secret-key" not in result.text
        assert "AKIDSECRETID" not in result.text


# validate reports a key in the file as `run` does, and does not print it; a reference causes no warning.
@pytest.mark.parametrize("key,warned", [("very-secret-key", True), ("${{ secrets.KEY }}", False), ("***", False)])
def test_a_key_in_the_file_is_told(penstock, tmp_path, key, warned):
    s3 = {"bucketUrl": "s3://results", "path": "/", "region": "r", "endpointUrl": "http://store.example", "accessKeyId": "id", "secretAccessKey": key}
    path = tmp_path / "wf.json"
    path.write_text(json.dumps({"output": {"s3": s3}, "steps": [{"run": {"command": "echo hello"}}]}))

    for arguments in ([], ["--json"]):
        told = penstock.run("validate", path, *arguments).ok()
        assert ("plaintext secret in this file" in told.err) == warned
        assert "very-secret-key" not in told.text


# Keys in variables and of registries are reported, too, each with its place; a reference to a key is not a key, and neither is a variable that only has a
# similar name.
def test_a_key_in_a_variable_is_told(penstock, tmp_path):
    path = tmp_path / "wf.yaml"
    path.write_text("""
env:
  - {key: HF_TOKEN, value: hf_secret_of_mine}
  - {key: PLAIN, value: ghp_A1b2C3d4E5f6G7h8I9j0A1b2C3d4E5f6G7h8}
  - {key: SIGNING_KEY, value: 8fJ3kLm0Qw7zXc1vBn5t}
  - {key: SORT_KEY, value: created_at_in_descending_order}
  - {key: REF_TOKEN, value: $HF_TOKEN}
  - {key: SECRET_TOKEN, value: "${{ secrets.TOKEN }}"}
steps:
  - run:
      command: "true"
      env: [{key: DB_PASSWORD, value: correct-horse}]
      container: {image: a, username: u, password: battery-staple}
""")

    told = penstock.run("validate", path, "--set", "steps[0].run.env.API_TOKEN=given-by-hand").ok()
    warned = [line for line in told.err.splitlines() if "plaintext secret in this file" in line]

    assert [line.split("wf.yaml:")[1].split(": ")[0] for line in warned] == ["3:28", "4:25", "5:31", "12:39", "13:52"]
    assert "HF_TOKEN" in warned[0] and "'penstock secret set HF_TOKEN'" in warned[0] and "${{ secrets.HF_TOKEN }}" in warned[0]
    for value in ("hf_secret", "ghp_", "8fJ3", "correct-horse", "battery-staple", "given-by-hand"):
        assert value not in told.text


# If a variable is named like a key, but its value is a path or empty, it is not reported. A value
# that only begins like a key is not reported either.
def test_what_is_no_key_is_not_warned_of(penstock, tmp_path):
    path = tmp_path / "wf.yaml"
    path.write_text("""
env:
  EOS_TOKEN: "<|endoftext|>"
  MASK_TOKEN: "[MASK]<mask>"
  WANDB_API_KEY: disabled
  GOOGLE_APPLICATION_CREDENTIALS: creds/service-account.json
  MORE_CREDENTIALS: $DEEPSQUARE_INPUT/creds.json
  BARE_CREDENTIALS: service-account.json
  CMD_SECRET: ~/.secret/token
  DB_PASSWORD: <your password>
  S3_KEY: datasets/imagenet2012/train-shard0001
  CACHE_KEY: pip-linux-x86_64-py311-cu121
  DATASET: ASIA_PACIFIC_SALES_2023
  RUN_NAME: hf_llama2_7b_bs128_seed42
steps:
  - run: {command: "true"}
""")

    assert "plaintext secret in this file" not in penstock.run("validate", path).ok().err

    # A password may consist of words, or of any other characters.
    path.write_text(path.read_text().replace("<your password>", "pa$sword|<of>mine").replace("disabled", "0123456789abcdef0123"))
    warned = [line for line in penstock.run("validate", path).ok().err.splitlines() if "plaintext secret in this file" in line]
    assert len(warned) == 2 and "WANDB_API_KEY" in warned[0] and "DB_PASSWORD" in warned[1]


# Users copy the workflows of the examples first.
def test_workflows_of_the_examples_are_valid(penstock):
    found = sorted(TOP.glob("examples/*/*.json")) + sorted(TOP.glob("examples/*/workflow*.yaml"))

    assert found
    for path in found:
        assert penstock.run("validate", path).ok().err == ""


# A file that cannot be read is not an invalid workflow.
def test_unreadable_files_have_their_own_exit_codes(penstock, tmp_path):
    missing = penstock.run("validate", tmp_path / "no.json").exits(66)
    penstock.run("validate").exits(64)

    assert missing.err.count("\n") == 1 and "no.json" in missing.err


# A user who types a dot means the workflow file in the directory. That file is missing, so the code
# is 66, as for a wrong name.
@pytest.mark.parametrize("verb", ["validate", "run"])
def test_a_directory_is_no_workflow(penstock, tmp_path, verb):
    told = penstock.run(verb, ".", cwd=tmp_path).exits(66)

    assert told.err.startswith(f"penstock {verb}: ") and told.err.count("\n") == 1 and told.out == ""


# A mistake in an option is reported with the option, not with the file.
@pytest.mark.parametrize(
    "option, says",
    [
        ("steps=null", "`steps` is missing"),
        ("steps[0].run.command=null", "`steps[0].run.command` is missing"),
        ("steps[0].run.env[0].key=null", "`steps[0].run.env[0].key` is missing"),
        ("resources.tasks=many", "`resources.tasks` must be a whole number from 1 to 1000000, not `many`"),
        ('output={"s3":{"path":"/"', "the value ends in the middle; a `}` or `]` is missing"),
    ],
)
def test_mistakes_of_an_option_are_told_of_it(penstock, tmp_path, option, says):
    path = write({"steps": [{"run": {"command": "true", "env": [{"key": "A", "value": "b"}]}}]}, tmp_path / "wf.json")

    told = penstock.run("validate", path, "--set", option).exits(65)
    ran = penstock.run("run", path, "--set", option).exits(65)

    assert told.err.startswith(f"--set {option.partition('=')[0]}: {says}") and told.err.count("\n") == 1
    assert ran.err.startswith(told.err) and "1" in ran.err[len(told.err):] and ran.err.count("\n") == told.err.count("\n") + 1
    assert str(path) not in ran.err


# A key that is missing in the file is a mistake of the file, even if an option removed another key.
def test_a_mistake_of_the_file_stays_with_the_file(penstock, tmp_path):
    path = write({"steps": [{"name": "s", "run": {"workDir": "/"}}]}, tmp_path / "wf.json")

    told = penstock.run("validate", path, "--set", "steps[0].run.workDir=null").exits(65)

    assert "steps[0].run.command" in told.err and told.err.startswith(f"{path}:")


# If a value does not fit this machine, the error names the option that set it.
@pytest.mark.parametrize("field", ["gpus", "tasks", "cpusPerTask", "memPerCpu"])
def test_an_option_that_asks_for_too_much_is_named(penstock, tmp_path, field):
    path = write({"resources": {"tasks": 1, "cpusPerTask": 1, "memPerCpu": 512, "gpus": 0}, "steps": [{"run": {"command": "true"}}]}, tmp_path / "wf.json")

    told = penstock.run("run", path, "--set", f"resources.{field}=1000000" if field != "cpusPerTask" else f"resources.{field}=60000").exits(65)

    assert told.err.startswith(f"penstock run: --set resources.{field}: ")


# The name of one of several workflows comes from the file, and must not control the terminal.
def test_a_name_moves_no_cursor(penstock, tmp_path):
    path = tmp_path / "workflows.yaml"
    path.write_text('workflows:\n  - {name: "a\\e[31mred", provider: bash, commands: [x]}\n  - {name: b, provider: bash, commands: [x]}\n')

    result = penstock.run("validate", path).ok()

    assert "a?[31mred: valid" in result.out and "\x1b" not in result.text


def test_json_has_the_warnings_and_mounts_of_a_workflow(penstock, tmp_path):
    (tmp_path / "wf.json").write_text(json.dumps({
        "env": [{"key": "API_TOKEN", "value": "ghp_0123456789abcdefghijABCDEFGHIJ456789"}],
        "steps": [{"run": {"command": "x", "container": {"image": "a:1", "mounts": [{"hostDir": "/a", "containerDir": "/b", "options": "ro", "propagation": "rslave"}]}}}],
    }))  # fmt: skip

    report = penstock.run("validate", "--json", tmp_path / "wf.json").ok().json()

    assert [entry["severity"] for entry in report["diagnostics"]] == ["note"] and "penstock secret set" in report["diagnostics"][0]["message"]
    assert report["workflow"]["steps"][0]["run"]["container"]["mounts"] == [{"hostDir": "/a", "containerDir": "/b", "options": "ro", "propagation": "rslave"}]


def test_the_advice_of_a_run_that_asks_for_too_much_works_as_it_is_written(penstock, tmp_path):
    # The steps ask for as much as the run, so overrides of the run alone would be refused.
    step = {"resources": {"tasks": 400, "cpusPerTask": 300, "memPerCpu": 9000, "gpusPerTask": 2}, "command": "x"}
    (tmp_path / "wf.json").write_text(json.dumps({
        "resources": {"tasks": 400, "cpusPerTask": 300, "memPerCpu": 9000, "gpusPerTask": 2},
        "steps": [{"run": step}, {"steps": [{"run": step}]}, {"run": {"command": "x", "resources": {"tasks": 350}}}],
    }))  # fmt: skip

    refused = penstock.run("run", "--dry-run", tmp_path / "wf.json").exits(65)
    followed = penstock.run("run", "--dry-run", tmp_path / "wf.json", *refused.err.split("run with ")[1].split())

    assert "steps.1.steps.0.run.resources.tasks=" in refused.err and "steps.2.run.resources.tasks=" in refused.err
    followed.ok()
