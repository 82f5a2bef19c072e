"""docs/first-training.md: its files and its commands, in their order, have the effects that the page shows."""
import re
import signal
import subprocess
from types import SimpleNamespace

import pytest

from harness.program import TOP, binary
from harness.sessions import Shell, assert_printed, comparable, fenced, session
from harness.waiting import wait_for

PAGE = (TOP / "docs" / "first-training.md").read_text(encoding="utf-8")


@pytest.fixture
def reader(penstock, tmp_path):
    """A reader of the page, with a directory for its files, a store, and a shell in the directory."""
    env = {name: value for name, value in penstock.env.items() if name != "PENSTOCK_HOME"} | {
        "PATH": f"{binary().parent}:{penstock.env['PATH']}", "AWS_EC2_METADATA_DISABLED": "true"}  # fmt: skip
    keys = penstock.user_home / ".local" / "share" / "penstock" / "store" / "credentials"
    server = penstock.popen("serve", "--listen", "127.0.0.1:0", env={"PENSTOCK_HOME": None})
    endpoint = server.wait_for_output(r"^listening on (http://\S+)$").group(1)
    server.wait_for_output(r"^penstock: example: ")
    page = PAGE.replace("http://127.0.0.1:9000", endpoint).replace("/home/ann", str(penstock.user_home))
    assert_printed(session(page)[0][1], server.err)
    (program,) = fenced(page, "python")
    workflow, real = fenced(page, "yaml")
    folder = tmp_path / "line"
    folder.mkdir()
    (folder / "train.py").write_text(program)
    (folder / "train.yaml").write_text(workflow)
    shell = Shell(env, folder)
    yield SimpleNamespace(page=page, folder=folder, endpoint=endpoint, keys=keys, env=env, shell=shell, real=real)
    shell.close()
    server.send(signal.SIGINT)
    assert server.wait().code == 0


def words(text, first):
    """The words of the first line that begins with `first`, with ids as in comparable()."""
    return comparable(re.search(f"^{first}.*", text, re.M).group()).split()


def look(typed, shown, out):
    """Checks the output of a command while the run trains."""
    if typed == "penstock ps":
        assert words(out, "NAME") == shown[0].split() and words(out, "line")[:4] == words(shown[1], "line")[:4]
    elif typed == "penstock show line":
        assert all(text in out for text in ("s3://trainings/line/", "train.yaml", "checkpoints/step-"))
    elif typed == "penstock logs line":
        assert re.search(r"^step 1 slope 0\.3", out, re.M)
    elif typed.startswith("penstock ls "):
        assert re.search(r" step-\d{4}\.json$", out, re.M)
    elif typed.startswith("penstock checkpoints list"):
        assert words(out, "NAME") == shown[0].split()
        newest, _, _, size = words(shown[1], "step-")[:4]
        name, step, attempt, listed = out.splitlines()[1].split()[:4]
        assert re.fullmatch(r"step-\d{4}\.json", name) and re.fullmatch(r"step-\d{4}\.json", newest)
        assert (int(step), attempt) == (int(name[5:9]), "1") and int(listed) > 0 and int(size) > 0


# Runs the page's commands in their order, up to the section about another store. The reader kills
# the run once there are three checkpoints.
def test_the_session_of_the_page_ends_as_it_shows(reader):
    (served, _), *commands = session(reader.page)
    assert served == "penstock serve"
    printed = {}
    for typed, shown in commands:
        if typed.startswith("unset "):
            break
        code, out, err = reader.shell.type(typed)

        if typed.endswith("&"):
            wait_for(lambda: reader.shell.type("penstock checkpoints list line")[1].count(".json") >= 3, what="three checkpoints")
        assert code == (3 if any("exited with 3" in line for line in shown) else 0), (typed, code, out, err)
        if any(line.startswith("penstock: ") for line in shown):
            assert_printed(shown, err)
        look(typed, shown, out)
        printed[typed] = out, err

    listed = printed["penstock checkpoints list line"][0]
    (out, err), (after, _) = printed["penstock run train.yaml"], printed["penstock resume line"]
    (at,) = re.findall(r"checkpoint checkpoints/step-(\d{4})\.json", err)
    assert re.findall(r"^resumed at step (\d+)", out, re.M) == [str(int(at))] and int(at) >= int(listed.split("step-")[1][:4])
    assert re.findall(r"^step (\d+)", out, re.M) == [str(step) for step in range(int(at) + 1, 91)]
    assert re.findall(r"^(?:resumed at )?step (\d+)", after, re.M) == [str(step) for step in range(90, 121)]
    (model,) = [shown[0] for typed, shown in commands if typed.startswith("penstock cat ")]
    assert printed["penstock cat s3://trainings/line/checkpoints/step-0120.json"][0] == model
    assert re.findall(r"^step (\d+)", printed["penstock run --fresh train.yaml"][0], re.M) == [str(step) for step in range(1, 121)]


# The page's last part uses the same file with another store, and keys from penstock's secrets or
# from a profile.
def test_another_store_has_its_keys_from_secrets_or_a_profile(reader, tmp_path):
    real = reader.real.replace("https://s3.eu-central-1.amazonaws.com", reader.endpoint)
    profile = "".join(line + "\n" for line in real.splitlines() if "secrets." not in line)
    assert real.count(reader.endpoint) == 1 and real.count("${{ secrets.") == 2 and len(profile) < len(real)
    keys = dict(line.split(" = ") for line in reader.keys.read_text().splitlines() if " = " in line)
    (tmp_path / "S3_KEY").write_text(keys["aws_access_key_id"] + "\n")
    (tmp_path / "S3_SECRET").write_text(keys["aws_secret_access_key"] + "\n")
    workflow = (reader.folder / "train.yaml").read_text()
    head, tail = workflow.partition("    endpointUrl:")[0], "steps:\n" + workflow.partition("steps:\n")[2]
    program = reader.folder / "train.py"
    program.write_text(program.read_text().replace("sleep(2)", "sleep(0)").replace("< 90", "< 120"))
    reader.shell.type(f"export AWS_ENDPOINT_URL={reader.endpoint} AWS_SHARED_CREDENTIALS_FILE={reader.keys}")
    assert reader.shell.type("penstock mb s3://our-trainings")[0] == 0
    commands = [typed for typed, _ in session(reader.page)]

    for typed in commands[next(i for i, typed in enumerate(commands) if typed.startswith("unset ")) :]:
        name = typed.removeprefix("penstock secret set ")
        assert reader.shell.type(typed, stdin=tmp_path / name if name != typed else "/dev/null")[0] == 0, typed
    (reader.folder / "train.yaml").write_text(head + real + tail)
    with_secrets = reader.shell.type("penstock run train.yaml")
    (tmp_path / "p" / "home" / ".aws").mkdir()
    (tmp_path / "p" / "home" / ".aws" / "credentials").write_text(reader.keys.read_text().replace("[default]", "[lab]"))
    (reader.folder / "train.yaml").write_text(head + profile + tail)
    with_profile = reader.shell.type("AWS_PROFILE=lab penstock run --fresh train.yaml")

    for code, out, err in (with_secrets, with_profile):
        assert code == 0 and "step 120 " in out and "s3://our-trainings/line/" in err, (code, out, err)


# The two calls for PyTorch replace those of json; the program also runs without penstock.
def test_the_program_with_the_calls_for_pytorch_saves_and_loads(reader):
    load, save = re.findall(r"`(torch\.(?:load|save)\(.*?\))`", reader.page)
    program = (reader.folder / "train.py").read_text().replace("json.load(open(newest))", load)
    program, saves = re.subn(r"with open\(.*\n.*json\.dump\(.*", save, program)
    program = program.replace("import json,", "import torch,").replace(".json", ".pt").replace("sleep(2)", "sleep(0)").replace("< 90", "< 120")
    assert saves == 1 and "json" not in program

    def run(**env):
        words = ["/usr/bin/python3", "-c", program]
        return subprocess.run(words, env=reader.env | env, cwd=reader.folder, capture_output=True, text=True, check=True).stdout

    whole = run()
    resumed = run(PENSTOCK_CHECKPOINT="checkpoints/step-0110.pt", PENSTOCK_CHECKPOINT_DIR="elsewhere")

    assert resumed.splitlines() == ["resumed at step 110", *whole.splitlines()[110:]]
    assert sorted(path.name for path in (reader.folder / "elsewhere").iterdir()) == [f"step-{step:04}.pt" for step in range(111, 121)]
