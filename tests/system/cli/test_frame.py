"""The command line's frame: help, misuse, man pages, completion, output errors, and the verbs that need no run."""
import json
import os
import pty
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from harness.program import TOP, binary
from harness.terminal import Terminal


def verbs():
    """The verbs in the list of commands.h, which the build reads, too."""
    return re.findall(r"^\tX\((\w+)\)", (TOP / "src" / "cli" / "commands.h").read_text(), re.M)


@pytest.fixture(params=verbs())
def verb(request):
    return request.param


def one_line(result, begin, end=""):
    """Checks that stderr is one line with this beginning and end, and that stdout is empty."""
    assert result.out == ""
    assert result.err.count("\n") == 1 and result.err.startswith(begin) and result.err.endswith(end + "\n"), result.err


# The help goes to stdout and fits a narrow terminal; `help VERB` prints the same text.
def test_help_of_every_verb(penstock, verb):
    result = penstock.run(verb, "--help").ok()

    assert result.err == ""
    assert result.out.startswith(f"usage: penstock {verb} ")
    assert max(map(len, result.out.splitlines())) <= 80, result.out
    for part in ("Options:", "Examples:", "Exit codes:"):
        assert f"\n{part}\n" in result.out
    assert f"  penstock {verb}" in result.out
    codes = re.findall(r"^  (\d+)\S* +\S", result.out.partition("Exit codes:")[2], re.M)
    assert codes == sorted(codes, key=int) and {"0", "64", "70"} <= set(codes)
    assert penstock.run("help", verb).ok().out == result.out


# A list of more than 20 verbs needs groups.
def test_penstock_alone_lists_the_verbs_in_groups(penstock):
    result = penstock.run().exits(64)

    assert result.out == "" and max(map(len, result.err.splitlines())) <= 80
    groups = [re.findall(r"^  ([a-z]+) ", part, re.M) for part in result.err.split("\n\n")]
    assert set(verbs()) == {name for group in groups for name in group} and len(groups) > 4
    assert any({"run", "ps", "logs"} <= set(group) and "cp" not in group for group in groups)


# In one list, the options of the store would hide the verb's own options.
def test_options_of_the_store_are_apart(penstock):
    text = penstock.run("cp", "--help").ok().out

    own, _, rest = text.partition("\nOptions of the store:\n")
    assert "--recursive" in own and "--endpoint-url" not in own and "--profile" in rest
    assert "--quiet" not in text.partition("\nOptions of every verb:\n")[0]


def test_overview_names_every_verb(penstock):
    result = penstock.run("--help").ok()

    assert max(map(len, result.out.splitlines())) <= 80
    assert set(verbs()) <= set(re.findall(r"^  ([a-z]+) ", result.out, re.M))
    assert penstock.run("help").ok().out == result.out
    assert penstock.run("help", "--help").ok().out == result.out
    assert penstock.run("version").ok().out == penstock.run("--version").ok().out
    assert re.fullmatch(r"penstock \d+\.\d+\.\d+\n", penstock.run("--version").out)


# A mistake leads to one line on stderr and exit code 64, and the verb does nothing.
@pytest.mark.parametrize(
    "arguments, says",
    [
        (["sho"], "penstock: unknown verb 'sho', did you mean 'show'?"),
        (["frobnicate"], "penstock: unknown verb 'frobnicate'"),
        (["--hlp"], "penstock: unknown option --hlp, did you mean --help?"),
        (["help", "sho"], "penstock: unknown verb 'sho', did you mean 'show'?"),
        (["ps", "--jsn"], "penstock ps: unknown option --jsn, did you mean --json?"),
        (["ps", "--json=yes"], "penstock ps: option --json takes no argument"),
        (["ps", "-Z"], "penstock ps: unknown option -Z"),
        (["ps", "extra"], "penstock ps: unexpected operand 'extra'"),
        (["show"], "penstock show: missing RUN"),
        (["artifacts", "toy"], "penstock artifacts: 'toy' is not list|get|put|cat; did you mean 'penstock artifacts list toy'? see"),
        (["artifacts", "list", "s3://b/x"], "penstock artifacts: 's3://b/x' is a place in a store"),
        (["runx"], "penstock: unknown verb 'runx', did you mean 'run'? see"),
        (["logs", "x", "-n"], "penstock logs: option --lines needs N"),
        (["logs", "x", "-n", "many"], "penstock logs: invalid --lines 'many': expected a number from 0 to"),
        (["logs", "x", "--attempt", "0"], "penstock logs: invalid --attempt '0': expected a number from 1 to"),
        (["stop", "x", "--grace", "soon"], "penstock stop: invalid --grace 'soon': expected a duration such as"),
        (["run", "--on", "cloud", "wf.yaml"], "penstock run: invalid --on 'cloud': expected slurm|local"),
        (["resume", "--on", "slur", "x"], "penstock resume: invalid --on 'slur': expected slurm|local"),
        (["runners", "--on", "cloud"], "penstock runners: invalid --on 'cloud': expected slurm|local"),
        (["--log-level", "loud", "ps"], "penstock: invalid --log-level 'loud': expected debug,"),
    ],
)
def test_misuse_is_told_in_one_line(penstock, arguments, says):
    result = penstock.run(*arguments).exits(64)

    verb = says.split(":")[0]
    one_line(result, says, f"see '{verb} --help'")
    assert not penstock.home.exists()


# A full disk or a closed pipe on stdout is an error of the verb.
def test_errors_of_standard_output_are_found(penstock):
    with open("/dev/full", "w") as full:
        failed = subprocess.run([binary(), "--help"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)

    assert failed.returncode == 70
    assert "No space left on device" in failed.stderr and failed.stderr.count("\n") == 1
    reading, writing = os.pipe()
    os.close(reading)
    failed = subprocess.run([binary(), "--help"], stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert failed.returncode == 70 and "Broken pipe" in failed.stderr and failed.stderr.count("\n") == 1


# The output fails in the middle of the list, not at its end.
def test_a_list_without_a_reader_ends(penstock, store):
    store.client.create_bucket(Bucket="bucket")
    for i in range(40):
        store.client.put_object(Bucket="bucket", Key=f"{i:0200}", Body=b"")
    with open("/dev/full", "w") as full:
        failed = subprocess.run(
            [binary(), "ls", "-r", "--json", "s3://bucket"], env=penstock.env | store.env, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )

    assert failed.returncode == 70 and failed.stderr.count("\n") == 1


# Messages of a penstock that was started without stderr must not be written into its database.
def test_closed_descriptors_are_no_files_of_ours(penstock):
    command = f"exec {binary()} ps --frob >&- 2>&-"

    assert subprocess.run(["/bin/sh", "-c", command], env=penstock.env, check=False).returncode == 64
    assert subprocess.run(["/bin/sh", "-c", f"exec {binary()} ps <&- >&- 2>&-"], env=penstock.env, check=False).returncode == 0
    penstock.run("ps").ok()


@pytest.mark.skipif(not shutil.which("groff"), reason="groff checks the pages")
def test_man_pages_are_sound(penstock, verb):
    page = penstock.run("--man", verb).ok().out

    checked = subprocess.run(["groff", "-man", "-ww", "-Tutf8"], input=page, capture_output=True, text=True, check=True)

    assert checked.stderr == ""
    plain = re.sub(".\x08", "", checked.stdout)  # bold letters are struck twice
    for option in re.findall(r"^ +(?:-\w, )?(--[a-z-]+)", penstock.run(verb, "--help").out, re.M):
        assert option in plain


def test_man_overview_names_every_verb(penstock):
    page = penstock.run("--man").ok().out

    assert re.findall(r"^\.BR penstock\\-(\w+) \(1\)$", page, re.M) == verbs()
    one_line(penstock.run("--man", "sow").exits(64), "penstock: unknown verb 'sow'")


# Sends the queries of the shells' scripts; test_completion.py runs the shells themselves.
def complete(penstock, *words):
    return [line.split("\t")[0] for line in penstock.run("--complete", *words).ok().out.splitlines()]


def test_completion_knows_verbs_and_options(penstock):
    assert complete(penstock, "sh") == ["show"]
    assert complete(penstock, "ps", "--js") == ["--json"]
    assert set(verbs()) <= set(complete(penstock, ""))
    assert complete(penstock, "run", "--set", "resources.tasks") == ["resources.tasks=", "resources.tasksPerNode="]
    assert complete(penstock, "validate", "-s", "steps[0].run.hang") == ["steps[0].run.hangTimeout="]
    assert complete(penstock, "run", "--set", "e") == ["env.", "enableLogging="]
    one_line(penstock.run("--completion", "tcsh").exits(64), "penstock: --completion supports bash, zsh and fish")


def test_ps_without_runs(penstock):
    assert penstock.ps() == []
    assert penstock.run("ps").ok().out.split()[:3] == ["NAME", "ID", "STATE"]
    assert (penstock.home.stat().st_mode & 0o777, (penstock.home / "runs.db").stat().st_mode & 0o777) == (0o700, 0o600)
    assert json.loads(penstock.run("ps", "--claims", "--json").ok().out) == []


@pytest.mark.parametrize("verb", ["show", "logs", "stop", "rm"])
def test_a_run_that_is_not_there_is_told(penstock, verb):
    refused = penstock.run(verb, "absent").exits(66)

    one_line(refused, f"penstock {verb}: ")
    assert "'absent'" in refused.err


# The error names an unusable home, or a runs.db that is not a database, and penstock does not
# change either.
def test_an_unusable_home_is_told(penstock, tmp_path):
    file = tmp_path / "file"
    file.write_text("precious")

    result = penstock.run("ps", env={"PENSTOCK_HOME": str(file)})
    assert result.code != 0
    one_line(result, f"penstock ps: cannot create directory '{file}': ", "; set PENSTOCK_HOME to a writable directory")
    assert file.read_text() == "precious"
    penstock.home.mkdir()
    (penstock.home / "runs.db").write_text("no database " * 1000)
    result = penstock.run("ps").exits(70)
    one_line(result, f"penstock ps: cannot open the records in '{penstock.home}/runs.db':")
    assert "runs.db" in result.err and (penstock.home / "runs.db").read_text() == "no database " * 1000


# Each line of doctor has a result and a subject; a warning comes with advice, and a failure sets
# the exit code.
def test_doctor_judges_the_machine(penstock):
    lines = json.loads(penstock.run("doctor", "--json").ok().out)

    assert {line["status"] for line in lines} <= {"ok", "warn"}
    assert {"kernel", "inotify", "clock", "resources", "home", "space", "libcurl", "credentials"} <= {line["subject"] for line in lines}
    assert all(line["advice"] for line in lines if line["status"] == "warn")
    broken = penstock.run("doctor", env={"SSL_CERT_FILE": "/nonexistent/ca.pem", "AWS_CA_BUNDLE": None, "CURL_CA_BUNDLE": None})
    broken.exits(78)
    assert re.search(r"^fail +certificates .*/nonexistent/ca.pem", broken.out, re.M)


def findings(result):
    return {line["subject"]: line for line in json.loads(result.out)}


# doctor also checks parts that only some runs need; a missing part of this kind is not a fault of
# the machine.
def test_doctor_looks_at_containers_slurm_gpus_and_the_embedded_store(penstock, tmp_path):
    tools = tmp_path / "tools"
    tools.mkdir()
    bare = findings(penstock.run("doctor", "--json", env={"PATH": str(tools)}).ok())
    for name in ("sinfo", "sbatch", "squeue", "scancel"):
        (tools / name).symlink_to("/bin/true")
    half = findings(penstock.run("doctor", "--json", env={"PATH": str(tools)}).ok())
    (tools / "srun").symlink_to("/bin/true")
    (tools / "sinfo").unlink()
    (tools / "sinfo").write_text("#!/bin/sh\necho 'slurm_load_partitions: Unable to contact slurm controller'\nexit 1\n")
    (tools / "sinfo").chmod(0o755)
    (tools / "nvidia-smi").symlink_to("/bin/false")
    broken = findings(penstock.run("doctor", "--json", env={"PATH": str(tools)}).ok())
    penstock.run("mb", "s3://bucket", "--endpoint-url", "embedded").ok()
    stored = findings(penstock.run("doctor", "--json", env={"PATH": str(tools)}).ok())

    assert bare["containers"]["status"] in ("ok", "warn") and not list(penstock.home.glob("doctor-*"))
    assert (bare["Slurm"]["status"], half["Slurm"]["status"], broken["Slurm"]["status"]) == ("ok", "warn", "warn")
    assert "srun" in half["Slurm"]["detail"] and "controller" in broken["Slurm"]["detail"]
    assert (bare["GPU"]["status"], broken["GPU"]["status"]) == ("ok", "warn")
    assert bare["embedded store"]["status"] == "ok" and stored["embedded store"]["detail"].startswith("1 bucket")


def test_doctor_asks_for_a_bucket_of_google_and_refuses_other_places(penstock, tmp_path):
    missing = findings(penstock.run("doctor", "--json", "--bucket", "gs://here", env={"GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path / "none.json")}).exits(78))

    assert missing["credentials"]["status"] == "fail" and "none.json" in missing["credentials"]["detail"]
    one_line(penstock.run("doctor", "--bucket", "ftp://here").exits(64), "penstock doctor: ")


def test_doctor_ends_at_ctrl_c_while_a_store_is_silent(penstock, store, fault_proxy):
    held = fault_proxy.fault(path="/here", hold="request", times=10)
    process = penstock.popen("doctor", "--json", "--bucket", "s3://here", env=store.env | {"AWS_ENDPOINT_URL": fault_proxy.url})
    held.wait(1)
    process.send(signal.SIGINT)

    result = process.wait().exits(130)
    held.release()
    assert json.loads(result.out)


def test_doctor_asks_for_a_bucket(penstock, store):
    store.client.create_bucket(Bucket="here")

    penstock.run("doctor", "--bucket", "s3://here", env=store.env).ok()
    missing = penstock.run("doctor", "--bucket", "s3://missing", env=store.env).exits(78)

    assert re.search(r"^fail +bucket .*missing", missing.out, re.M)
    assert store.secret_key not in missing.text
    elsewhere = store.env | {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}
    penstock.run("doctor", "--bucket", "s3://here", "--endpoint-url", store.endpoint, env=elsewhere).ok()


def on_terminal(penstock, *arguments, env=None):
    """Returns the output on a terminal of 60 columns."""
    master, slave = pty.openpty()
    subprocess.run(["stty", "cols", "60", "rows", "24"], stdin=slave, check=True)
    process = subprocess.Popen([binary(), *arguments], env=penstock.env | {"TERM": "xterm"} | (env or {}), stdout=slave, stderr=slave)
    os.close(slave)
    text = b""
    try:
        while chunk := os.read(master, 65536):
            text += chunk
    except OSError:
        pass  # the last writer has closed it
    os.close(master)
    assert process.wait(30) == 0
    return text.decode()


# Colours are for terminals, and for users who ask for them.
def test_colours_are_for_terminals(penstock):
    assert "\x1b[32mok\x1b[0m" in on_terminal(penstock, "doctor")
    assert "\x1b" not in on_terminal(penstock, "doctor", env={"NO_COLOR": "1"})
    assert "\x1b" not in on_terminal(penstock, "doctor", env={"TERM": "dumb"})
    assert "\x1b" not in penstock.run("doctor").ok().out
    assert "\x1b[32mok\x1b[0m" in penstock.run("--color", "always", "doctor").ok().out
    assert "\x1b" not in on_terminal(penstock, "doctor", "--color", "never")


# Colours make penstock's own lines easy to find in a long log, and errors easiest.
def test_lines_of_penstock_have_a_colour(penstock, tmp_path):
    path = tmp_path / "w.yaml"
    path.write_text("resources: {tasks: 1, cpusPerTask: 1, memPerCpu: 64, gpus: 0}\nsteps: [{name: s, run: {command: 'exit 3'}}]\n")

    failed = penstock.run("run", "--color", "always", path).exits(3).err.splitlines()

    assert failed and all(line.startswith("\x1b[1") for line in failed if "penstock" in line[:16])
    assert any(line.startswith("\x1b[1;31mpenstock") for line in failed)
    assert penstock.run("ps", "--color=always", "--colour-typo").exits(64).err.startswith("\x1b[1;31mpenstock ps:")
    assert "\x1b" not in penstock.run("logs", "-a", penstock.ps()[0]["id"]).ok().out
    penstock.run("ps", "--color", "sometimes").exits(64)


# Eighty columns are too many for some terminals, and too few to use the width of others.
def test_help_has_the_width_of_the_terminal(penstock):
    widths = {columns: max(map(len, Terminal(penstock, "resume", "--help", columns=columns).wait().ok().out.splitlines())) for columns in (70, 110, 300)}

    assert widths[70] <= 70 and 80 < widths[110] <= 110 and 110 < widths[300] <= 120


# Users recognise runs by their command lines, and every user of the machine can read a command
# line.
def test_a_command_line_hides_secrets_and_nothing_else(penstock, tmp_path):
    path = tmp_path / "w.yaml"
    path.write_text("resources: {tasks: 1, cpusPerTask: 1, memPerCpu: 64, gpus: 0}\nsteps: [{name: s, run: {command: 'echo up; read line < go'}}]\n")
    os.mkfifo(tmp_path / "go")
    secrets = ["--env", "WORD=hush-hush-1", "--set", "steps.0.run.env.OTHER=hush-hush-2", "--set=notify.url=http://127.0.0.1:9/hush-hush-3"]
    plain = ["--set", "name=shapes-7", f"--set=steps.0.run.workDir={tmp_path}", "-s", "resources.memPerCpu=65"]

    run = penstock.popen("run", path, *plain, *secrets)
    run.wait_for_output("^up")
    shown = Path(f"/proc/{run.pid}/cmdline").read_bytes().decode().split("\0")
    (tmp_path / "go").write_text("\n")

    assert set(plain) <= set(shown) and not any("hush" in word for word in shown)
    run.wait().ok()


def test_help_knows_the_workflow_file(penstock, tmp_path):
    # The text lists every key of a workflow, and ends with a valid example.
    shown = penstock.run("help", "workflow").ok().out

    table = shown.partition("\nKeys:\n")[2].partition("\nExample:\n")[0]
    keys = dict(re.findall(r"^ {2,20}(\w+)(?: {2,}|\n {30,})(\S.*)$", table, re.M))
    assert {"steps", "cpusPerTask", "bucketUrl", "sha256", "continuousOutputSync", "workDir"} <= set(keys) and "unsupported" not in shown
    # A key has its meaning, its values and its default next to it.
    assert set(re.findall(r"^ {2,20}(\w+)", table, re.M)) == set(keys)
    assert "0 to 1000" in " ".join(table.partition(" restarts ")[2].split()[:40]) and "required" in table and "](" not in table and "`" not in table
    assert all(len(line) <= 80 for line in shown.splitlines())
    penstock.run("validate", "-", input=shown.partition("\nExample:\n")[2]).ok()
    assert "penstock help workflow" in " ".join(penstock.run("help").ok().out.split())


# `penstock serve` without options serves the store of the home, so that other tools can read the
# output of a first run.
def test_serve_without_options_opens_the_store_of_the_home(penstock):
    import urllib.error
    import urllib.request

    env = {"AWS_EC2_METADATA_DISABLED": "true"}
    server = penstock.popen("serve", "--listen", "127.0.0.1:0", env=env)
    url = server.wait_for_output(r"listening on (http://\S+)", 30).group(1)
    keys = server.wait_for_output(r"keys: (\S+)", 30).group(1)
    server.wait_for_output(r"example: ", 30)

    penstock.run("mb", "s3://bucket", env=env | {"AWS_SHARED_CREDENTIALS_FILE": keys, "AWS_ENDPOINT_URL": url}).ok()
    with pytest.raises(urllib.error.HTTPError) as page:
        urllib.request.urlopen(urllib.request.Request(url, headers={"Accept": "text/html,*/*"}), timeout=30)
    with pytest.raises(urllib.error.HTTPError) as xml:
        urllib.request.urlopen(url, timeout=30)

    assert keys == str(penstock.home / "store" / "credentials")
    assert page.value.code == 403 and page.value.headers["Content-Type"].startswith("text/html") and url in page.value.read().decode()
    assert b"AccessDenied" in xml.value.read()
    server.send()
    assert server.wait(30).code == 0
    assert "bucket" in penstock.run("ls", "--endpoint-url", "embedded", env=env).ok().out


def test_serve_on_a_used_port_is_told(penstock, store, tmp_path):
    refused = penstock.run("serve", "--root", tmp_path / "other", "--listen", store.address).exits(69)

    address, port = store.address.split(":")
    assert address in refused.err and str(port) in refused.err and refused.err.count("\n") == 1
    assert "69" in penstock.run("help", "serve").ok().out
    elsewhere = penstock.run("serve", "--root", tmp_path / "other", "--listen", "192.0.2.1:0").exits(78)
    assert "192.0.2.1" in elsewhere.err and elsewhere.err.count("\n") == 1


def test_libraries_that_few_need_are_not_loaded_with_the_program(penstock, tmp_path):
    # Loading these libraries would take half of the time of a trivial run. `doctor` loads some of
    # them, which shows that the test detects a loaded library.
    few = re.compile(r"lib(curl|archive|microhttpd|gnutls|ldap|krb5|icudata)[.-]")
    workflow = tmp_path / "wf.json"
    workflow.write_text(json.dumps({"steps": [{"run": {"command": "true"}}]}))

    ran = penstock.run("run", workflow, env={"LD_DEBUG": "files"}).ok()
    asked = penstock.run("doctor", env={"LD_DEBUG": "files"})

    assert "libsqlite3" in ran.err and not few.search(ran.err)
    assert {found[1] for found in few.finditer(asked.err)} >= {"curl", "archive", "microhttpd"}
