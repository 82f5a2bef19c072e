"""Files of dstack, Determined and SkyPilot are run as they are."""
import json
import os
import re
import textwrap

import pytest

from harness.program import TOP, binary, preloading
from harness.workflows import s3_place

# The files of the page "Train your deep learning models on cloud", unchanged, except that the
# program is a small one, and uses the machine's packages instead of "torch, torchvision,
# pytorch-lightning==1.6.2".
DSTACK = """
workflows:
  - name: train-mnist-no-gpu
    provider: python
    requirements: requirements.txt
    python_script: train.py
    artifacts:
      - data
    resources:
      cpu: 1

  - name: train-mnist-one-gpu
    provider: python
    requirements: requirements.txt
    python_script: train.py
    artifacts:
      - data
    resources:
      gpu: 1

  - name: train-mnist-multi-gpu
    provider: python
    requirements: requirements.txt
    python_script: train.py
    artifacts:
      - data
    resources:
      gpu: 4
"""
EXAMPLES = TOP / "examples/dialects"
PLAIN = {"PATH": "/usr/bin:/bin", "PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": "/dev/null"}


@pytest.fixture
def project(tmp_path):
    """project(files): a directory with these files, each text without its indentation."""

    def write(files, name="dstack_test"):
        for path, text in files.items():
            place = tmp_path / name / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(textwrap.dedent(text))
        return tmp_path / name

    return write


@pytest.fixture
def dialects(penstock):
    penstock.env |= PLAIN
    return penstock


def output_of(result):
    """Returns the directory that the run's last line names."""
    return result.err.rsplit("its output is in ", 1)[1].strip()


def test_the_dstack_workflows_of_the_seed_run_in_their_directory_and_below(dialects, project):
    where = project({
        ".dstack/workflows.yaml": DSTACK,
        "requirements.txt": "\n",
        "train.py": """
            import os, sys
            os.makedirs("data/MNIST/raw", exist_ok=True)
            open("data/MNIST/raw/model.pth", "w").write("trained")
            print("prefix", sys.prefix, os.environ["RUN_NAME"])
            """,
        "below/x": "",
    })  # fmt: skip
    dialects.cwd = where / "below"

    first = dialects.run("run", "train-mnist-no-gpu").ok()
    others = dialects.run("run", "train-mnist-one-gpu", "train-mnist-multi-gpu", "--set", "resources.gpusPerTask=0", "--wait").ok()

    assert "train-mnist-no-gpu" in first.out and "/venvs/" in first.out
    assert "train-mnist-one-gpu\n" in others.out and "train-mnist-multi-gpu\n" in others.out
    assert open(output_of(first) + "/data/MNIST/raw/model.pth").read() == "trained"
    # The three runs share one environment.
    assert len([name for name in os.listdir(dialects.home / "venvs") if not name.endswith((".lock", ".use"))]) == 1
    assert not (where / "data").exists()


def test_gpus_that_are_not_there_are_told_with_what_helps(dialects, project):
    where = project({".dstack/workflows.yaml": DSTACK, "requirements.txt": "", "train.py": ""})
    dialects.cwd = where

    result = dialects.run("run", "train-mnist-multi-gpu").exits(65)

    assert "workflows.yaml:28:7: " in result.err and "--set resources.gpusPerTask=0" in result.err


@pytest.mark.parametrize("name, text, shown", [
    ("task.yaml", "resources: {accelerators: 'H100:8', cpus: 1}\nrun: echo $SKYPILOT_NUM_GPUS_PER_NODE\n", "1"),
    ("x.dstack.yml", "type: task\nname: d\nresources: {gpu: 8, cpu: 1}\ncommands: [echo $DSTACK_GPUS_PER_NODE $DSTACK_GPUS_NUM]\n", "1 1"),
    ("const.yaml", "entrypoint: echo $DET_SLOT_IDS $KIND\nresources: {slots: 8}\nmax_restarts: 0\n"
                   "environment: {environment_variables: {cpu: [KIND=cpu], cuda: [KIND=cuda]}}\n", "[0] cuda"),
])  # fmt: skip
def test_programs_see_as_many_gpus_as_the_advice_gives_them(dialects, project, name, text, shown):
    # These programs start a process for each GPU.
    dialects.cwd = project({name: text})
    dialects.env["PENSTOCK_GPUS"] = "1"

    refused = dialects.run("run", name).exits(65)
    followed = dialects.run("run", name, *refused.err.split("run with ")[1].split())

    assert followed.ok().out == shown + "\n"


TWO = """
workflows:
  - name: prepare
    provider: bash
    commands:
      - mkdir -p data
      - echo "${{ words }}" > data/words.txt
    artifacts: [data]
  - name: train
    provider: bash
    deps:
      - %s
    commands:
      - cat data/words.txt
      - cp data/words.txt model.txt
    artifacts: [model.txt]
"""
VARIABLES = """
variables:
  prepare:
    words: from the file
"""


def penstock_yaml(store):
    return json.dumps({"output": {"s3": {
        "region": "us-east-1", "bucketUrl": "s3://results", "path": "/team", "accessKeyId": "${{ env.MY_ID }}",
        "secretAccessKey": "${{ env.MY_KEY }}", "endpointUrl": store.endpoint, "createBucket": True}}})  # fmt: skip


@pytest.mark.parametrize("where", ["here", "store"])
def test_a_workflow_gets_the_artifacts_of_another_and_of_a_tag(dialects, project, request, where):
    files = {".dstack/workflows.yaml": TWO % "workflow: prepare", ".dstack/variables.yaml": VARIABLES}
    if where == "store":
        store = request.getfixturevalue("store")
        dialects.env |= {"MY_ID": store.access_key, "MY_KEY": store.secret_key}
        files["penstock.yaml"] = penstock_yaml(store)
    dialects.cwd = project(files)

    missing = dialects.run("run", "train").exits(66)
    dialects.run("run", "prepare").ok()
    first = dialects.run("run", "train").ok()
    dialects.run("tag", "add", "v1", "prepare").ok()
    second = dialects.run("run", "train", "--words", "from the command line").exits(65)
    third = dialects.run("run", "prepare", "train", "--words", "from the command line").ok()
    project({".dstack/workflows.yaml": TWO % "tag: v1"})
    fourth = dialects.run("run", "train").ok()

    assert "'penstock run prepare'" in missing.err and "--words" in second.err
    assert [first.out, third.out, fourth.out] == ["from the file\n", "from the command line\n", "from the file\n"]
    assert dialects.run("artifacts", "list", "prepare").ok().out.split() == ["22", "data/words.txt"]
    assert dialects.run("artifacts", "list", ":v1").ok().out.split() == ["14", "data/words.txt"]
    assert dialects.run("artifacts", "cat", "prepare", "data/words.txt").ok().out == "from the command line\n"
    assert dialects.run("artifacts", "cat", ":v1", "data/words.txt", "--offset", "5", "--length", "3").ok().out == "the"
    dialects.run("artifacts", "cat", "prepare", "data/none").exits(66)
    for _ in range(2):  # the second call replaces existing files
        dialects.run("artifacts", "get", ":v1", "-o", "got").ok()
    assert "nowhere" in dialects.run("artifacts", "put", "nowhere", "--tag", "v2").exits(66).err
    assert (dialects.cwd / "got/data/words.txt").read_text() == "from the file\n"
    if where == "store":
        assert store.client.get_object(Bucket="results", Key="team/dstack_test/train/model.txt")["Body"].read() == b"from the file\n"
    dialects.run("tag", "rm", ":v1").ok()  # with the colon of artifacts and workflows
    assert dialects.run("tag", "list").ok().out.split() == ["TAG", "RUN", "NAME"]
    dialects.run("run", "train").exits(66)


def test_a_dependency_is_a_run_of_the_same_project(dialects, project):
    # Most projects have a workflow `prepare`. If any project's run could be a dependency, the data
    # of another project would be used without a message.
    deps = "{name: train, provider: bash, deps: [DEP], commands: [cat data.txt]}"
    for name, dep in (("one", "prepare"), ("two", '"prepare:latest"'), ("three", "prepare"), ("four", "lab/two/prepare")):
        project({".dstack/workflows.yaml": f"""
            workflows:
              - {{name: prepare, provider: bash, commands: [echo of {name} > data.txt], artifacts: [data.txt]}}
              - {deps.replace("DEP", dep)}
            """}, name)  # fmt: skip
    folders = {name: project({}, name) for name in ("one", "two", "three", "four")}

    def run(name, *words):
        dialects.cwd = folders[name]
        return dialects.run("run", *words, "--set", f"output.s3={{endpointUrl: embedded, bucketUrl: s3://team, path: /{name}/{words[0]}}}")

    run("one", "prepare").ok()
    run("two", "prepare").ok()
    trained = [run(name, "train").ok() for name in ("one", "two", "four")]

    assert [result.out for result in trained] == ["of one\n", "of two\n", "of two\n"] and "s3://team/one/prepare/" in trained[0].err
    assert "prepare" in run("three", "train").exits(66).err


@pytest.mark.skipif(os.geteuid() != 0, reason="files of another user are made by root")
def test_what_another_user_has_put_above_is_left_aside(dialects, project, tmp_path):
    # In a directory such as /tmp, a file of another user must neither be run nor determine the
    # place of the output.
    project({".dstack/workflows.yaml": TWO % "workflow: prepare", "penstock.yaml": "output: {s3: {nonsense: 1}}\n"}, name="shared")
    inner = project({".dstack/workflows.yaml": "workflows: [{name: own, provider: bash, commands: [echo mine]}]\n", "below/x": ""}, name="shared/mine")
    dialects.cwd = inner
    taken = dialects.run("run", "own").exits(78)
    for name in (".dstack/workflows.yaml", "penstock.yaml"):
        os.chown(tmp_path / "shared" / name, 65534, 65534)

    own = dialects.run("run", "own", cwd=inner / "below").ok()
    (inner / ".dstack/workflows.yaml").unlink()
    refused = dialects.run("run", "prepare")

    assert "shared/penstock.yaml:1:15: " in taken.err and "nonsense" in taken.err and own.out == "mine\n" and "penstock.yaml" in own.err
    assert refused.code != 0 and "workflows.yaml" in refused.err


@pytest.mark.parametrize("where", ["XDG_CONFIG_HOME", "PENSTOCK_CONFIG"])
def test_an_output_of_the_users_configuration(dialects, project, store, tmp_path, where):
    config = tmp_path / "penstock" / "config.yaml"
    config.parent.mkdir()
    config.write_text(penstock_yaml(store))
    dialects.env |= {"MY_ID": store.access_key, "MY_KEY": store.secret_key, where: str(config if where == "PENSTOCK_CONFIG" else tmp_path)}
    dialects.cwd = project({".dstack/workflows.yaml": TWO % "workflow: prepare", ".dstack/variables.yaml": VARIABLES})

    dialects.run("run", "prepare").ok()

    assert [key for key in store.keys("results") if key.startswith("team/") and key.endswith("data/words.txt")]


def test_a_tag_holds_one_run_and_nothing_of_another(dialects, project, store, tmp_path):
    dialects.env |= {"MY_ID": store.access_key, "MY_KEY": store.secret_key}
    dialects.cwd = project({".dstack/workflows.yaml": TWO % "workflow: prepare", ".dstack/variables.yaml": VARIABLES, "penstock.yaml": penstock_yaml(store)})
    dialects.run("run", "prepare").ok()
    # This object is a leftover of a `tag add` that was killed while it copied a larger run.
    (found,) = [o["Key"] for o in store.client.list_objects_v2(Bucket="results")["Contents"] if o["Key"].endswith("data/words.txt")]
    store.client.put_object(Bucket="results", Key=found.replace("data/words.txt", ".penstock/tags/v1/data/other.txt"), Body=b"x")
    for name in "abcd":
        (tmp_path / name).mkdir()
        for i in range(30):
            (tmp_path / name / f"{name}{i}").write_text(name)

    dialects.run("tag", "add", "v1", "prepare").ok()
    running = [dialects.popen("artifacts", "put", tmp_path / name, "--tag", "same") for name in "abcd"]
    codes = sorted(process.wait().code for process in running)
    refused = dialects.run("artifacts", "put", tmp_path / "a", "--tag", "same.json").exits(65)
    dialects.run("artifacts", "get", ":same", "-o", "got").ok()

    assert dialects.run("artifacts", "list", ":v1").ok().out.split() == ["14", "data/words.txt"]
    assert codes == [0, 69, 69, 69]  # one of the four calls succeeds
    assert "'.json'" in refused.err
    names = [path.name for path in (dialects.cwd / "got").iterdir()]
    assert len(names) == 30 and len({name[0] for name in names}) == 1


def test_a_variable_is_one_of_any_workflow_of_the_row(dialects, project):
    dialects.cwd = project({".dstack/workflows.yaml": TWO % "workflow: prepare", ".dstack/variables.yaml": VARIABLES, "plain.json": json.dumps({
        "resources": {"tasks": 1, "cpusPerTask": 1, "memPerCpu": 512, "gpus": 0}, "steps": [{"name": "plain", "run": {"command": "echo plain"}}]})})  # fmt: skip

    unknown = dialects.run("run", "prepare", "train", "--words", "some", "--wurds=others").exits(65)
    options = dialects.run("run", "plain.json", "plain.json", "--words", "some").exits(64)
    assert "--wurds" in unknown.err and unknown.out == "" and dialects.ps() == []
    assert "--words" in options.err and options.out == ""

    assert dialects.run("run", "prepare", "train", "plain.json", "--words", "some").ok().out == "some\nplain\n"
    assert dialects.run("run", "plain.json", "prepare", "--words", "more").ok().out == "plain\n"
    assert dialects.run("run", "train").ok().out == "more\n"


def test_a_mistake_of_one_workflow_is_none_of_the_others(dialects, project):
    # `validate` reports the mistakes of all workflows in the file; a run checks only its own
    # workflow.
    dialects.cwd = project({".dstack/workflows.yaml": """
        workflows:
          - {name: good, provider: bash, commands: [echo ran]}
          - {name: lacking, provider: bash, commands: ["echo ${{ missing }}"]}
          - {name: odd, provider: bash, comands: [x], resources: {cpu: many}}
        """})  # fmt: skip

    whole = dialects.run("validate", ".dstack/workflows.yaml").exits(65)
    told = json.loads(dialects.run("validate", ".dstack/workflows.yaml", "--json", "--missing", "x").exits(65).out)
    unused = dialects.run("validate", ".dstack/workflows.yaml", "--missing", "x", "--other", "y").exits(65)

    assert [line.split(": ", 1)[0] for line in whole.err.splitlines() if ": note: " not in line] == [f".dstack/workflows.yaml:{at}" for at in ("4:48", "5:33", "5:64")]
    assert re.search(r"\bgood: valid, 1 step", whole.out) and "lacking" not in whole.out
    assert told["mistakes"] == 2 and [w and w["name"] for w in told["workflows"]] == ["good", "lacking", None] and told["workflow"] is None
    assert "--other" in unused.err and "--missing" not in unused.err
    assert dialects.run("run", "good").ok().out == "ran\n"
    assert "`missing`" in dialects.run("run", "lacking").exits(65).err


def test_a_run_without_artifacts_is_listed_as_that(dialects, project):
    dialects.cwd = project({".dstack/workflows.yaml": "workflows: [{name: none, provider: bash, commands: [echo]}, {name: some, provider: bash, artifacts: [a.txt], commands: [echo x > a.txt]}]\n"})
    dialects.run("run", "none", "some").ok()

    empty = dialects.run("artifacts", "list", "none").ok()

    assert empty.out == "" and "none" in empty.err
    assert json.loads(dialects.run("artifacts", "list", "none", "--json").ok().out) == []
    assert json.loads(dialects.run("artifacts", "list", "some", "--json").ok().out) == [{"path": "a.txt", "size": 2}]
    assert "none" in dialects.run("artifacts", "get", "none", "-o", "got").exits(66).err and not (dialects.cwd / "got").exists()


def test_what_keeps_the_second_of_a_row_from_beginning_in_the_background_is_told(dialects, project, wait_for):
    dialects.cwd = project({".dstack/workflows.yaml": TWO % "tag: v1", ".dstack/variables.yaml": VARIABLES})

    unknown = dialects.run("run", "prepare", "other").exits(65)
    assert unknown.out == "" and dialects.ps() == []
    dialects.run("run", "-d", "prepare", "train").ok()

    wait_for(lambda: "'v1'" in dialects.run("logs", "prepare").out)
    assert [run["name"] for run in dialects.ps()] == ["prepare"]


def test_a_tag_of_more_objects_than_a_listing_has_in_one_reply(dialects, project, store):
    # Artifacts are copied and removed while they are listed, so copied files appear in the listing,
    # too.
    dialects.env |= {"MY_ID": store.access_key, "MY_KEY": store.secret_key}
    many = "workflows: [{name: many, provider: bash, artifacts: [data], commands: ['mkdir -p data; for i in {1..1100}; do echo $i > data/$i; done']}]\n"
    dialects.cwd = project({".dstack/workflows.yaml": many, "penstock.yaml": penstock_yaml(store)})
    dialects.run("run", "many").ok()

    def copies():
        pages = store.client.get_paginator("list_objects_v2").paginate(Bucket="results")
        return [o["Key"].split("/tags/v1/", 1)[1] for page in pages for o in page.get("Contents", []) if "/.penstock/tags/" in o["Key"]]

    dialects.run("tag", "add", "v1", "many").ok()
    added = copies()
    dialects.run("tag", "rm", "v1").ok()

    assert sorted(added) == sorted(f"data/{i}" for i in range(1, 1101)) and copies() == []


def test_a_tag_outlives_the_tag_that_it_copied_and_its_run(dialects, project, store):
    dialects.env |= {"MY_ID": store.access_key, "MY_KEY": store.secret_key}
    one = "workflows: [{name: one, provider: bash, artifacts: [data], commands: ['mkdir -p data; echo 1 > data/a']}]\n"
    dialects.cwd = project({".dstack/workflows.yaml": one, "penstock.yaml": penstock_yaml(store)})
    dialects.run("run", "one").ok()
    dialects.run("tag", "add", "v1", "one").ok()
    dialects.run("tag", "add", "v2", ":v1").ok()
    dialects.run("tag", "rm", "v1").ok()

    left = dialects.run("artifacts", "list", ":v2").ok().out.split()
    dialects.run("rm", "one").ok()
    failed = [dialects.run(*words).exits(66).err for words in (("artifacts", "list", ":v2"), ("tag", "rm", "v2"))]

    assert left == ["2", "data/a"]
    for text in failed:
        assert "s3://results/team/" in text and "/.penstock/tags/v2/" in text and "/tags/v2.json" in text


KEYRING = """#!/bin/sh
# A fake of libsecret's program, with files in place of a keyring.
[ -e "$KEYRING/locked" ] && exit 1
verb=$1
for name; do :; done
case $verb in
  store) cat > "$KEYRING/$name" ;;
  lookup) cat "$KEYRING/$name" ;;
  clear) rm -f "$KEYRING/$name" ;;
esac
"""


def test_what_is_removed_is_in_no_keyring_any_more(dialects, project, tmp_path):
    dialects.cwd = project({"wf.yaml": 'steps: [{run: {command: "test ${#TOKEN} -gt 15", env: [{key: TOKEN, value: "${{ secrets.MINE }}"}]}}]\n'})
    keyring, program = tmp_path / "keyring", tmp_path / "bin/secret-tool"
    keyring.mkdir()
    program.parent.mkdir()
    program.write_text(KEYRING)
    program.chmod(0o755)
    dialects.env |= {"KEYRING": str(keyring), "PATH": f"{program.parent}:{os.environ['PATH']}"}

    dialects.run("secret", "set", "--keyring", "MINE", input="of-the-keyring-1234\n").ok()
    dialects.run("run", "wf.yaml").ok()
    (keyring / "locked").touch()
    refused = dialects.run("secret", "rm", "MINE").exits(69)
    listed = dialects.run("secret", "list").ok().out
    (keyring / "locked").unlink()
    dialects.run("secret", "rm", "MINE").ok()
    left = os.listdir(keyring)
    dialects.run("secret", "set", "--keyring", "MINE", input="of-the-keyring-1234\n").ok()
    dialects.run("secret", "set", "MINE", input="of-the-file-5678\n").ok()

    assert "'MINE'" in refused.err and "secret-tool" in refused.err and listed == "MINE  (keyring)\n"
    assert left == [] and os.listdir(keyring) == [] and dialects.run("secret", "list").ok().out == "MINE\n"


PYTHON = """#!/bin/sh
# A fake Python, which can only make virtual environments.
for last; do :; done
[ "$2" = venv ] && mkdir -p "$last/bin" && ln -s /usr/bin/python3 "$last/bin/python3"
exit 0
"""


@pytest.mark.preloads
def test_an_environment_is_on_the_disk_before_it_says_to_be_complete(dialects, project, tmp_path):
    dialects.cwd = project({"wf.yaml": "context: .\npython: {requirements: requirements.txt}\nsteps: [{run: {command: 'true'}}]\n", "requirements.txt": ""})
    trace, python = tmp_path / "trace", tmp_path / "python"
    python.write_text(PYTHON)
    python.chmod(0o755)
    dialects.env |= preloading(binary().parent / "tests/unit/kill-at.so") | {"KILL_AT": "any:before:100000000:*", "KILL_AT_VERB": "run"}

    dialects.run("run", "wf.yaml", env={"KILL_AT_TRACE": str(trace), "PENSTOCK_PYTHON": str(python)}).ok()

    calls = [line.split(" ", 1) for line in trace.read_text().splitlines() if "/venvs/" in line]
    complete = next(i for i, (call, path) in enumerate(calls) if call == "rename" and path.endswith("/.complete"))
    assert ["sync", calls[complete][1].removesuffix("/.complete")] in calls[:complete]


def test_a_kept_secret_is_found_and_shown_nowhere(dialects, project):
    where = project({"wf.yaml": 'steps: [{run: {command: "test ${#TOKEN} -gt 15; echo $TOKEN", env: [{key: TOKEN, value: "${{ secrets.MINE }}"}]}}]\n'})
    dialects.cwd = where

    missing = dialects.run("run", "wf.yaml").exits(65)
    dialects.run("secret", "set", "MINE", input="of-the-file-1234\n").ok()
    kept = dialects.home / "secrets.json"
    run = dialects.run("run", "wf.yaml").ok()

    assert "penstock secret set MINE" in missing.err
    assert kept.stat().st_mode & 0o777 == 0o600
    assert run.out == "***\n"
    assert dialects.run("secret", "list").ok().out == "MINE\n"
    for folder, _, names in os.walk(dialects.home):
        for name in names:
            if name != "secrets.json":
                assert b"of-the-file-1234" not in open(os.path.join(folder, name), "rb").read()
    dialects.run("run", "wf.yaml", env={"PENSTOCK_SECRET_MINE": "of-the-environment"}).exits(0)
    dialects.run("secret", "rm", "MINE").ok()
    dialects.run("secret", "rm", "MINE").exits(66)
    dialects.run("secret", "set", "MINE", input="").exits(65)
    dialects.run("secret", "set", "1X", input="x").exits(64)
    dialects.run("run", "wf.yaml").exits(65)
    kept.write_text("[]")
    assert str(kept) in dialects.run("secret", "list").exits(70).err
    dialects.run("run", "wf.yaml").exits(65)
    dialects.run("secret", "set", "MINE", input="x").exits(70)
    assert kept.read_text() == "[]"


def test_secrets_of_a_workflow_are_variables_of_its_steps(dialects, project):
    steps = "steps: [{run: {command: 'echo ${#FIRST} ${#SECOND} $THIRD; echo $FIRST'}}]"
    dialects.cwd = project({"wf.yaml": "secrets: [FIRST, SECOND, THIRD]\nenv: [{key: THIRD, value: of the env}]\n" + steps, "bad.yaml": "secrets: {FIRST: x}\n" + steps,
                            "worse.yaml": "secrets: ['A B', PATH, [x]]\n" + steps})  # fmt: skip
    env = {f"PENSTOCK_SECRET_{name}": f"{name.lower()}-secret-value" for name in ("FIRST", "SECOND", "THIRD")}

    ran = dialects.run("run", "wf.yaml", env=env).ok()
    missing = dialects.run("run", "wf.yaml", env=env | {"PENSTOCK_SECRET_SECOND": None}).exits(65)
    kept = b"".join(path.read_bytes() for path in dialects.home.rglob("*") if path.is_file())
    bad, worse = dialects.run("validate", "bad.yaml").exits(65), dialects.run("validate", "worse.yaml").exits(65)

    assert ran.out == f"{len('first-secret-value')} {len('second-secret-value')} of the env\n***\n"
    assert "wf.yaml:1:18: " in missing.err and "secrets[1]" in missing.err and "penstock secret set SECOND" in missing.err
    assert b"-secret-value" not in kept
    assert "bad.yaml:1:10: " in bad.err
    assert re.search(":1:11: .*A B", worse.err) and re.search(":1:18: .*PATH", worse.err) and "secrets[2]" in worse.err


def test_a_key_in_the_file_gets_a_warning_that_says_how_to_move_it(dialects, project, store):
    s3 = s3_place(store)["s3"]
    dialects.cwd = project({"wf.json": json.dumps({"steps": [{"run": {"command": "true"}}], "output": {"s3": s3}})})

    result = dialects.run("run", "wf.json").ok()

    assert "wf.json:1:" in result.err and "penstock secret set NAME" in result.err and store.secret_key not in result.err


MOVED = """
env: [{key: HF_TOKEN, value: %s}, {key: OTHER_TOKEN, value: "Bearer %s"}]
output: {s3: {bucketUrl: "s3://out", path: /, endpointUrl: embedded}}
name: train
steps:
  - run: {command: 'echo hi > $DEEPSQUARE_OUTPUT/a; echo "${#HF_TOKEN} $OTHER_TOKEN" > $STORAGE_PATH/told; test -e %s'}
"""


# A user has moved the key out of the file, as the warning advises. The run can still be read, and
# resumes with the key from its new place.
def test_a_run_whose_key_was_moved_is_read_back(dialects, project, tmp_path):
    done, key = tmp_path / "done", {"PENSTOCK_SECRET_HF": "the-key-of-mine1"}
    dialects.cwd = project({"wf.yaml": MOVED % ("abcdefghijkl1", "abcdefghijkl2", done)})
    dialects.run("run", "wf.yaml").exits(1)
    project({"wf.yaml": MOVED % ('"${{ secrets.HF }}"', "${{ secrets.HF }}", done)})

    # None of these commands needs the key, which does not exist yet.
    assert dialects.run("artifacts", "list", "train").ok().out.split() == ["3", "a"]
    flushed = dialects.run("flush", "train").ok().err
    assert "secret" not in flushed
    gone = dialects.run("resume", "train").exits(65).err
    # The messages name the user's file, never lines of a file that the user has not seen.
    assert f"{dialects.cwd}/wf.yaml" in gone and "env[0].value" in gone
    assert f"{dialects.cwd}/wf.yaml" in gone and "'penstock secret set HF'" in gone
    done.touch()
    resumed = dialects.run("resume", "train", env=key).ok()
    assert "the-key-of-mine1" not in resumed.text


VARIABLE = """
workflows:
  - name: train
    provider: bash
    environment: {HF_TOKEN: "${{ hf_token }}", SHORT: "${{inner}}", PLAIN: "${{ plain }}"}
    commands: ["mkdir -p out; echo hi > out/a", 'echo "${#HF_TOKEN} ${#SHORT} $PLAIN"; test -e %s']
    artifacts: [{path: out}]
  - {name: use, provider: bash, deps: [{workflow: train}], commands: ["cat out/a"]}
"""


def test_a_run_is_read_back_whose_key_is_a_variable_of_dstack(dialects, project, tmp_path):
    done = tmp_path / "done"
    variables = "variables: {global: {hf_token: notakeynotakey, plain: words}, train: {inner: hf_AbCdEfGhIjKlMnOpQrStUvWxYzAbCdEfGh}}"
    dialects.cwd = project({".dstack/workflows.yaml": VARIABLE % done, ".dstack/variables.yaml": variables})
    first = dialects.run("run", "train").exits(1)
    assert dialects.run("artifacts", "list", "train").ok().out.split() == ["3", "out/a"]
    done.touch()

    second = dialects.run("resume", "train").ok()
    used = dialects.run("run", "use").ok()
    # A key from the command line is not recorded, and the artifacts can be found without it.
    dialects.run("run", "train", "--hf_token", "another-key-of-mine").ok()
    again = dialects.run("run", "use").ok()

    assert first.out == second.out == "14 37 words\n" and used.out == again.out == "hi\n"
    # The key was moved again, and is found at its latest place.
    project({".dstack/variables.yaml": variables.replace("notakeynotakey", "'${{ secrets.HF }}'")})
    done.unlink()
    dialects.run("run", "train", env={"PENSTOCK_SECRET_HF": "0123456789abcdef01"}).exits(1)
    assert dialects.run("resume", "train", env={"PENSTOCK_SECRET_HF": "0123456789abcdef01"}).exits(1).out == "18 37 words\n"


EXPERIMENT = """
    name: const
    data: {bucket: my-data, secrets: {x: 1}}
    hyperparameters:
      lr: 0.1
      layers: {type: const, val: 3}
    searcher: {name: single, metric: loss, max_length: {batches: 10}}
    entrypoint: python3 model.py
    %s
    """


def test_an_experiment_runs_in_a_copy_of_its_context(dialects, project):
    where = project({
        "const.yaml": EXPERIMENT % "max_restarts: 0",
        "data.csv": "a,b\n1,2\n",
        "model.py": """
            import csv, json, os
            print(list(csv.DictReader(open("data.csv")))[0]["b"], sorted(os.listdir(".")))
            print(json.loads(os.environ["DET_HPARAMS"]), json.loads(os.environ["DET_EXPERIMENT_CONFIG"])["data"]["bucket"])
            print(os.environ["DET_TRIAL_RUN_ID"], "DET_LATEST_CHECKPOINT" in os.environ)
            """,
        ".detignore": "*.tmp\n/left/\n",
        "x.tmp": "", "left/x": "", "deep/left/x": "", "__pycache__/x.pyc": "", ".git/config": "",
    })  # fmt: skip
    dialects.cwd = where

    result = dialects.run("run", "const.yaml", "--context", ".").ok()

    assert result.out == "2 ['const.yaml', 'data.csv', 'deep', 'model.py']\n{'lr': 0.1, 'layers': 3} my-data\n1 False\n"


def test_an_experiment_is_restarted_as_often_as_it_says(dialects, project):
    dialects.cwd = project({
        "const.yaml": EXPERIMENT % "max_restarts: 2",
        "model.py": "import os, sys; print('run', os.environ['DET_TRIAL_RUN_ID'], flush=True); sys.exit(7)",
    })  # fmt: skip

    result = dialects.run("run", "const.yaml").exits(7)

    assert result.out == "run 1\nrun 2\nrun 3\n" and re.search(r"\b2 of 2\b", result.err)


def test_a_context_beyond_its_limit_is_refused_before_anything_runs(dialects, project):
    where = project({"const.yaml": EXPERIMENT % "", "model.py": "print('ran')"})
    with open(where / "large", "wb") as large:
        large.truncate(96 * 1024 * 1024)
    dialects.cwd = where

    result = dialects.run("run", "const.yaml").exits(65)
    (where / ".detignore").write_text("large\n")

    assert "99.6 MB" in result.err and ".detignore" in result.err and "ran" not in result.out
    dialects.run("run", "const.yaml").ok()


def test_a_task_of_skypilot_runs_with_its_files(dialects, project, http_server):
    dialects.cwd = project({
        "task.yaml": """
            name: sky
            workdir: code
            resources: {cpus: 1+, memory: 0.1+}
            envs: {WORD: hello}
            file_mounts:
              data/local.txt: ./local.txt
              ~/sky_workdir/tree: ./tree
            setup: |
              cat data/local.txt tree/a
            run: |
              echo $WORD $SKYPILOT_NODE_RANK $SKYPILOT_NUM_NODES
              test -n "$SKYPILOT_TASK_ID" && cat main.txt
            """,
        "code/main.txt": "main\n", "code/.gitignore": "out\n", "code/out": "left", "local.txt": "local\n", "tree/a": "tree\n",
    })  # fmt: skip

    result = dialects.run("run", "task.yaml").ok()
    other = dialects.run("run", "task.yaml", "--env", "WORD=other").ok()

    assert result.out == "local\ntree\nhello 0 1\nmain\n"
    assert "other 0 1" in other.out


def test_the_bind_mount_of_the_seed_is_there_and_cannot_be_written(dialects, project, tmp_path):
    # The file is an experiment of Determined. Its host path is in the test's directory, because not
    # every machine has /mnt/data.
    data = tmp_path / "mnt/data"
    data.mkdir(parents=True)
    (data / "training").write_text("samples")
    dialects.cwd = project({
        "const.yaml": f"""
            name: mounts
            entrypoint: sh model.sh
            max_restarts: 0
            bind_mounts:
              - host_path: {data}
                container_path: {data}
                read_only: true
              - host_path: {data}
                container_path: below
            """,
        "model.sh": f"cat {data}/training below/training; touch {data}/x 2>&1; touch below/y; exit 4\n",
    })  # fmt: skip

    result = dialects.run("run", "const.yaml").exits(4)

    assert result.out.startswith("samplessamples") and "Read-only" in result.out
    assert sorted(os.listdir(data)) == ["training", "y"]


def test_a_bind_mount_of_what_is_not_here_is_told_before_anything_starts(dialects, project, tmp_path):
    # A run without the mounted directory would fail again at each restart.
    dialects.cwd = project({"const.yaml": f"""
        name: mounts
        entrypoint: ls {tmp_path}/inside/it
        bind_mounts:
          - {{host_path: {tmp_path}/none, container_path: below}}
          - {{host_path: {tmp_path}/none, container_path: {tmp_path}/inside/it}}
        """})  # fmt: skip

    refused = dialects.run("run", "const.yaml").exits(65)
    dialects.run("validate", "const.yaml").ok()  # validate does not check the machine
    (tmp_path / "none").mkdir()
    (tmp_path / "none/a").write_text("")

    assert re.search(f"const.yaml:5:17: .*{tmp_path}/none\\b", refused.err)
    assert "restart" not in refused.err and dialects.ps() == []
    # The mount point is made for the step, and not on the machine.
    assert dialects.run("run", "const.yaml").ok().out == "a\n"
    assert not (tmp_path / "inside").exists()


def test_a_log_is_followed_from_another_machine_across_attempts(dialects, project, store):
    # The other machine has its own home, and knows only the place of the output.
    s3 = {"region": "us-east-1", "bucketUrl": "s3://out", "path": "/x", "endpointUrl": store.endpoint}
    keys = {"AWS_ACCESS_KEY_ID": store.access_key, "AWS_SECRET_ACCESS_KEY": store.secret_key, "AWS_ENDPOINT_URL": store.endpoint}
    where = project({"wf.json": json.dumps({
        "output": {"s3": s3}, "enableLogging": True,
        "steps": [{"run": {"command": "echo attempt $PENSTOCK_ATTEMPT; until [ -e go ]; do sleep 0.1; done; echo end", "workDir": "WHERE"}}],
    })})  # fmt: skip
    (where / "wf.json").write_text((where / "wf.json").read_text().replace("WHERE", str(where)))
    dialects.cwd = where
    dialects.env |= keys

    store.client.create_bucket(Bucket="out")
    run = dialects.popen("run", "wf.json")
    run.wait_for_output("^attempt 1")
    other = dialects.popen("logs", "-f", "s3://out/x", env={"PENSTOCK_HOME": str(where / "other")})
    other.wait_for_output("^attempt 1")
    run.kill()
    again = dialects.popen("run", "wf.json")
    other.wait_for_output("^attempt 2")
    (where / "go").write_text("")

    assert again.wait().code == 0
    followed = other.wait().ok()
    assert followed.out.rstrip().endswith("succeeded") or "end\n" in followed.out
    assert "end\n" in dialects.run("logs", "s3://out/x", env={"PENSTOCK_HOME": str(where / "other")}).ok().out


def test_the_examples_of_all_three_runners_train_the_same_model(dialects):
    dialects.cwd = EXAMPLES

    results = [dialects.run("run", *words).ok() for words in (["prepare", "train"], ["const.yaml", "--context", "."], ["task.yaml"])]

    models = [json.load(open(folder + name)) for folder, name in zip(map(output_of, results), ["/model/weights.json", "/weights.json", "/weights.json"])]
    assert models[0] == models[1] == models[2] and abs(models[0]["bias"] - 1) < 0.5
    assert all("epoch 19 loss" in result.out for result in results)


def test_steps_on_the_host_are_a_note_with_what_changes_the_machine(dialects, project):
    # On SkyPilot and Determined, the commands have a machine or container of their own, which is
    # discarded.
    dialects.cwd = project({
        "task.yaml": "setup: sudo apt-get install -y x\nrun: |\n  echo pkilled\n  shutdown now\n",
        "const.yaml": "entrypoint: sh a.sh\nsearcher: {name: single, metric: x}\n",
        "own.json": '{"steps": [{"run": {"command": "sudo x"}}]}',
    })  # fmt: skip

    task = dialects.run("validate", "task.yaml").ok().err
    inside = dialects.run("validate", "--image", "registry.io/a:1", "task.yaml").ok()
    model = dialects.run("validate", "--json", "--image", "registry.io/a:1", "const.yaml").ok().json()

    assert "--image" in task and "--image" in dialects.run("validate", "const.yaml").ok().err
    assert re.search("'setup' .*`apt-get`.*`sudo`", task) and re.search("'run' .*`shutdown`", task) and "pkill" not in task
    assert "`sudo`" not in task.split("'run' calls")[1].split("\n")[0]
    assert "--image" not in inside.err and "sudo" not in inside.err and "registry.io/a:1" in inside.out
    assert model["workflow"]["steps"][0]["run"]["container"] == {"image": "a:1", "registry": "registry.io"}
    assert any("--image" in entry["message"] for entry in dialects.run("validate", "--json", "task.yaml").ok().json()["diagnostics"])
    assert "note" not in dialects.run("validate", "own.json").ok().err
    dialects.run("validate", "--image", "a", "own.json").exits(65)


def test_a_directory_is_mounted_below_itself(dialects, project, tmp_path):
    # penstock makes the mount point in a separate directory, which has the entries of `data` as
    # mounts, and is mounted over `data`. Therefore `data` itself gets no directory `below`.
    (tmp_path / "data").mkdir()
    (tmp_path / "data/a").write_text("")
    dialects.cwd = project({"const.yaml": f"""
        name: mounts
        entrypoint: ls {tmp_path}/data/below; touch {tmp_path}/data/below/b
        bind_mounts:
          - {{host_path: {tmp_path}/data, container_path: {tmp_path}/data/below}}
        """})  # fmt: skip

    assert dialects.run("run", "const.yaml").ok().out == "a\n"
    assert sorted(os.listdir(tmp_path / "data")) == ["a", "b"]


def test_determineds_working_directory_is_at_its_path(dialects, project, tmp_path):
    # Programs and mounts use this path.
    (tmp_path / "data").mkdir()
    (tmp_path / "data/a").write_text("of data\n")
    dialects.cwd = project({"const.yaml": f"""
        name: workdir
        entrypoint: cat /run/determined/workdir/own $HERE/data/a data/a; touch $HERE/new; ls
        environment: {{environment_variables: [HERE=/run/determined/workdir]}}
        bind_mounts: [{{host_path: {tmp_path}/data, container_path: /run/determined/workdir/data}}]
        """, "own": "own\n"})  # fmt: skip

    assert dialects.run("run", "const.yaml").ok().out.splitlines() == ["own", "of data", "of data", "const.yaml", "data", "new", "own"]
    assert not os.path.exists("/run/determined")


def test_the_startup_hook_of_an_experiment_runs_before_its_trial(dialects, project):
    # In Determined's containers, bash sources the hook.
    dialects.cwd = project({
        "const.yaml": "entrypoint: echo trial $FROM_HOOK\nsearcher: {name: single, metric: x}\nmax_restarts: 0\n",
        "startup-hook.sh": "names=(one two)\nexport FROM_HOOK=${names[1]}\n",
    })  # fmt: skip

    assert dialects.run("run", "const.yaml").ok().out == "trial two\n"


def test_a_file_without_a_name_is_the_same_run_on_every_machine(dialects, project):
    # The translation of the file contains the machine's CPUs and GPUs, and the place of the file,
    # but the identity must not depend on them.
    for folder in ("here", "there"):
        project({"task.yaml": "resources: {any_of: [{accelerators: A100}, {cpus: 1}]}\nrun: x\n", "const.yaml": "entrypoint: x\n"}, folder)

    def identity(folder, name, gpus):
        dialects.cwd = project({}, folder)
        return re.search("would be run ([0-9a-f]{12})", dialects.run("run", "--dry-run", name, env={"PENSTOCK_GPUS": gpus}).ok().err)[1]

    for name in ("task.yaml", "const.yaml"):
        assert identity("here", name, "0") == identity("there", name, "1")
    assert identity("here", "task.yaml", "0") != identity("here", "const.yaml", "0")
