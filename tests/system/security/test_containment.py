"""Limits of a container: its image and its steps reach only the parts of the machine that the workflow gives them."""
import http.server
import json
import os
import shutil
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from harness import workflows
from harness.program import binary
from harness.registry import BUSYBOX, busybox, image, layer, write_layout
from harness.workflows import write_workflow

pytestmark = pytest.mark.skipif(not os.path.exists(BUSYBOX), reason="busybox-static is not installed")

RESOURCES = workflows.RESOURCES | {"memPerCpu": 64}
TOOL = busybox()


@pytest.fixture
def contained(tmp_path):
    """contained(command, layers=…, **fields): a workflow file whose steps run in an image of busybox."""

    def write(*commands, layers=(), container=None, **fields):
        layout = tmp_path / "image"
        if not layout.exists():
            write_layout(layout, image([TOOL, *layers]))
        steps = []
        for command in commands:
            run = command if isinstance(command, dict) else {"command": command}
            steps.append({"run": {"container": {"image": str(layout)} | (container or {})} | run} if "use" not in run else run)
        return write_workflow(tmp_path, *steps, **{"resources": RESOURCES} | fields)

    return write


def test_the_variables_of_an_image_are_its_own(penstock, contained, tmp_path):
    # A link in the image means a directory of the image, not the directory of that name on this machine.
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "environment").write_text("FROM_HERE=leaked\n")
    inside = str(tmp_path / "etc").lstrip("/")
    path = contained('echo "[$FROM_HERE][$FROM_IMAGE]"', layers=[layer({"etc": ("l", "/" + inside), inside + "/environment": "FROM_IMAGE=yes\n"})])

    assert penstock.run("run", path).ok().out == "[][yes]\n"


USER = 4711
AS_USER = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]


@pytest.mark.users
@pytest.mark.parametrize("user", [[], AS_USER], ids=["caller", "unprivileged"])
def test_nobody_can_write_to_the_crun_that_starts_a_container(penstock, contained, tmp_path, user):
    # In /proc, a container sees the program that started it. Therefore crun runs from a copy of
    # itself if the container could write to crun's file.
    if user and (os.geteuid() != 0 or subprocess.run([*user, "unshare", "-Ur", "true"], capture_output=True).returncode):
        pytest.skip("user namespaces are not available")
    tried = tmp_path / "tried"
    tried.touch()
    tool = tmp_path / "bin" / "crun"
    tool.parent.mkdir()
    tool.write_text(f'#!/bin/sh\n(: >> "$0") 2> /dev/null && echo written >> {tried} || echo refused >> {tried}\nexec {shutil.which("crun")} "$@"\n')
    tool.chmod(0o755)
    path = contained("echo ran", "exit 3")
    if user:
        subprocess.run(["chown", "-R", f"{USER}:{USER}", tmp_path], check=True)

    ran = subprocess.run([*user, binary(), "run", path], env=penstock.env | {"PATH": f"{tool.parent}:{penstock.env['PATH']}"}, cwd=penstock.cwd,
                         capture_output=True, text=True, timeout=120)  # fmt: skip

    assert (ran.returncode, ran.stdout) == (3, "ran\n"), ran.stderr
    assert tried.read_text() == "refused\n" * 2


def test_an_environment_file_of_any_length_is_refused(penstock, contained):
    path = contained("echo never", layers=[layer({"etc/environment": "A=" + "x" * 2_000_000})])

    refused = penstock.run("run", path)

    assert refused.code != 0 and "/etc/environment" in refused.err and "never" not in refused.out


# The container can change the storage, in which penstock reads and writes: links in it must not lead penstock elsewhere.


@pytest.fixture
def victim(tmp_path):
    """A directory of the machine's user that no step was given."""
    folder = tmp_path / "victim"
    folder.mkdir()
    (folder / "best.pth").write_text("mine")
    return folder


def untouched(victim):
    return {path.name: path.read_text() for path in victim.iterdir()} == {"best.pth": "mine"}


@pytest.mark.parametrize("made", ["/bin/busybox mkfifo $DEEPSQUARE_ENV", "/bin/busybox ln -s /etc/hosts $DEEPSQUARE_ENV", "mkdir $DEEPSQUARE_ENV"])
def test_the_environment_file_is_a_file(penstock, contained, made):
    # A FIFO would make penstock wait for a writer, a link would show it a file of the machine.
    path = contained(f"rm -f $DEEPSQUARE_ENV; {made}", "echo never")

    result = penstock.run("run", path)

    assert result.code != 0 and "DEEPSQUARE_ENV" in result.err and "never" not in result.out


def test_what_a_module_puts_out_goes_to_no_file_of_the_machine(penstock, contained, victim, tmp_path):
    (tmp_path / "mod").mkdir()
    steps = [{"run": {"command": "echo RESULT=evil >> $DEEPSQUARE_ENV"}}]
    (tmp_path / "mod" / "module.yaml").write_text(json.dumps({"name": "m", "outputs": [{"key": "RESULT", "description": "r"}], "steps": steps}))
    path = contained(f"rm -f $DEEPSQUARE_ENV; /bin/busybox ln -s {victim}/new $DEEPSQUARE_ENV", {"use": {"source": "./mod", "exportEnvAs": "M"}})

    result = penstock.run("run", path)

    assert result.code != 0 and "DEEPSQUARE_ENV" in result.err and untouched(victim)


@pytest.mark.parametrize("made", ["rm -rf models && /bin/busybox ln -s {} models", "rm -rf ../output/models && /bin/busybox ln -s {} ../output/models && mkdir -p models && touch models/best.pth"])
def test_an_artifact_is_what_the_run_made(penstock, contained, victim, made):
    # If penstock followed the link to the machine's directory, it would move `models/best.pth` from
    # or into that directory.
    path = contained(made.format(victim), context=".", artifacts=["models/best.pth"])

    penstock.run("run", path)

    assert untouched(victim)
    assert not [found for found in penstock.home.glob("runs/*/storage/output/**/best.pth") if found.is_file() and found.read_text() == "mine" and not found.parent.is_symlink()]


@pytest.mark.parametrize("name", ["output", "input"])
def test_a_run_goes_on_only_with_directories_of_its_own(penstock, contained, victim, name):
    path = contained(f"cd /deepsquare && /bin/busybox mv {name} aside && /bin/busybox ln -s {victim} {name}; exit 1")
    penstock.run("run", path).exits(1)
    run = penstock.ps()[0]["id"]

    refused = penstock.run("resume", run)
    anew = penstock.run("run", "--fresh", path).exits(1)

    assert refused.code != 0 and name in refused.err and "--fresh" in refused.err
    assert untouched(victim) and "--fresh" not in anew.err


def test_a_command_beside_a_step_may_no_more_than_the_step(penstock, contained, wait_for):
    look = "grep -E 'Cap|NoNewPrivs' /proc/self/status"
    path = contained(f"{look}; echo there > $STORAGE_PATH/there; sleep 1000")
    run = penstock.popen("run", path)
    wait_for(lambda: list(penstock.home.glob("runs/*/storage/there")))
    name = penstock.ps()[0]["id"]

    beside = penstock.run("exec", name, "sh", "-c", f"{look}; exit 7").exits(7)
    killed = penstock.run("exec", name, "sh", "-c", "kill -9 $$")
    run.send(signal.SIGINT)
    run.wait()

    assert "NoNewPrivs:\t1" in beside.out and beside.out == run.out and killed.code == -9


def test_who_joins_a_container_shows_it_no_program_of_the_machine(penstock, contained, wait_for):
    # A script in the image with /proc/self/exe as its interpreter could open penstock's program,
    # and write to it with the caller's rights.
    path = contained("echo there > $STORAGE_PATH/there; sleep 1000")
    run = penstock.popen("run", path)
    wait_for(lambda: list(penstock.home.glob("runs/*/storage/there")))
    beside = penstock.popen("exec", penstock.ps()[0]["id"], "sh", "-c", "echo joined > $STORAGE_PATH/joined; sleep 1000")
    wait_for(lambda: list(penstock.home.glob("runs/*/storage/joined")))

    program = os.readlink(f"/proc/{beside.pid}/exe")
    run.send(signal.SIGINT)
    run.wait()
    beside.wait()

    assert program.startswith("/memfd:penstock")


@pytest.mark.parametrize("network", ["slirp4netns", "pasta"])
def test_a_network_of_its_own_does_not_reach_the_machines_loopback(penstock, contained, network):
    # Services on the loopback address are for this machine alone, and mostly need no password; the gateway must not reach these services.
    class Secret(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"reached\n")

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Secret)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    look = f"printf 'GET / HTTP/1.0\\r\\n\\r\\n' | /bin/busybox timeout 3 /bin/busybox nc -w 2 $gateway {server.server_port}"
    gateways = "$(/bin/busybox ip route | /bin/busybox awk '/default/ {print $3}')"
    path = contained({"command": f"for gateway in {gateways}; do {look}; done; echo looked", "network": network})
    try:
        out = penstock.run("run", path).ok().out
    finally:
        server.shutdown()
        server.server_close()

    assert "looked" in out and "reached" not in out


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_what_is_mounted_below_a_read_only_directory_is_read_only(penstock, contained, tmp_path):
    inner = tmp_path / "data" / "inner"
    inner.mkdir(parents=True)
    if subprocess.run(["mount", "-t", "tmpfs", "tmpfs", inner], capture_output=True).returncode:
        pytest.skip("mounting is not allowed")
    try:
        path = contained("touch /data/a; touch /data/inner/b; ls /data/inner; echo looked",
                         container={"mounts": [{"hostDir": str(tmp_path / "data"), "containerDir": "/data", "options": "ro"}]})  # fmt: skip
        out = penstock.run("run", path).ok().out
        made = list(inner.iterdir())
    finally:
        subprocess.run(["umount", inner], check=True)

    assert out == "looked\n" and not made


def test_the_secrets_of_a_step_lie_in_no_file_while_it_runs(penstock, contained, wait_for):
    secret = "s3cret-of-the-step-4711"
    path = contained({"command": "echo $TOKEN there; touch $STORAGE_PATH/there; sleep 1000", "env": [{"key": "TOKEN", "value": "${{ secrets.MINE }}"}]})
    run = penstock.popen("run", path, env={"PENSTOCK_SECRET_MINE": secret})
    wait_for(lambda: list(penstock.home.glob("runs/*/storage/there")))

    def holders():
        """Yields the files of the home that contain the secret; some disappear during the
        search."""
        for folder, _, names in os.walk(penstock.home):
            for name in names:
                try:
                    if secret.encode() in (Path(folder) / name).read_bytes():
                        yield Path(folder) / name
                except OSError:
                    pass

    wait_for(lambda: not list(holders()))  # the file of secrets is removed shortly after the start
    run.send(signal.SIGINT)
    ended = run.wait()

    assert ended.out == "*** there\n"
