"""Steps in containers: what they see, what they may do, how they end, and that nothing of them is left."""
import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from harness import processes, workflows
from harness.program import binary
from harness.registry import BUSYBOX, Registry, busybox, image, layer, write_layout
from harness.workflows import write_workflow

pytestmark = pytest.mark.skipif(not os.path.exists(BUSYBOX), reason="busybox-static is not installed")

RESOURCES = workflows.RESOURCES | {"memPerCpu": 64}
TOOL = busybox()


@pytest.fixture
def contained(tmp_path):
    """contained(command, config={}, **fields): a workflow file whose steps run in an image of
    busybox. `config` is the configuration of the image; `layers` are added to the image."""
    made = {}

    def write(*commands, layers=(), config=None, container=None, **fields):
        key = json.dumps([config, len(layers)])
        if key not in made:
            made[key] = write_layout(tmp_path / f"image{len(made)}", image([TOOL, *layers], **(config or {})))
        steps = []
        for command in commands:
            run = command if isinstance(command, dict) else {"command": command}
            steps.append({"run": {"container": {"image": str(made[key])} | (container or {})} | run})
        return write_workflow(tmp_path, *steps, **{"resources": RESOURCES} | fields)

    return write


def boxes(penstock):
    return list(penstock.home.glob("runs/*/tmp/container-*"))


def mounts_below(folder):
    return [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(folder) in line]


def test_a_step_sees_its_image_and_the_runs_storage(penstock, contained):
    path = contained(
        'pwd; cat /etc/motd; echo $STORAGE_PATH $DEEPSQUARE_INPUT $DEEPSQUARE_OUTPUT $DEEPSQUARE_ENV $DEEPSQUARE_TMP; id -u; '
        'echo made > $STORAGE_PATH/file; echo "NEXT=a b" >> $DEEPSQUARE_ENV; echo x > /only-here; test ! -e /usr/bin/python3',
        'echo "[$NEXT]"; cat $STORAGE_PATH/file; test ! -e /only-here && echo fresh',
        {"command": 'cat "$STORAGE_PATH/file"', "container": None},
        layers=[layer({"etc/motd": "hello\n", "work/": None})], config={"WorkingDir": "/work"},
    )  # fmt: skip

    out = penstock.run("run", path).ok().out

    assert out.splitlines() == ["/work", "hello", "/deepsquare /deepsquare/input /deepsquare/output /deepsquare/env /deepsquare/tmp",
                                "0", "[a b]", "made", "fresh", "made"]  # fmt: skip


def test_variables_follow_their_precedence(penstock, contained):
    # Each of these overrides the ones before: the job's env, DeepSquare's variables, the image's
    # ENV, the image's /etc/environment, the step's env. The caller's variables are not passed on.
    environment = '# comment\nFROM_FILE="of the file"\nBOTH=file\nexport STEP=file\n'
    path = contained(
        {"command": 'echo "[$JOB][$NTASKS][$FROM_IMAGE][$FROM_FILE][$BOTH][$STEP][$OUTER]"; echo $PATH',
         "env": [{"key": "STEP", "value": "step"}]},
        layers=[layer({"etc/environment": environment})], config={"Env": ["FROM_IMAGE=image", "BOTH=image", "NTASKS=image", "JOB=image"]},
        env=[{"key": "JOB", "value": "job"}],
    )  # fmt: skip

    out = penstock.run("run", path, env={"OUTER": "outside", "LD_LIBRARY_PATH": "/nowhere"}).ok().out

    assert out.splitlines() == ["[image][image][image][of the file][file][step][]", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]


def test_an_image_with_a_user_writes_the_storage_as_the_caller(penstock, contained):
    # The image is like curlimages/curl, whose USER is not root.
    path = contained("id -u; touch $STORAGE_PATH/mine $DEEPSQUARE_OUTPUT/out $DEEPSQUARE_TMP/kept /root-file && ls $DEEPSQUARE_OUTPUT", config={"User": "user"})

    assert penstock.run("run", path).ok().out == "0\nout\n"


@pytest.mark.parametrize("ids, seen", [({"mapUid": 0, "mapGid": 0}, "0\n0\n"), ({"mapUid": 1234, "mapGid": 77}, "1234\n77\n"), ({"mapGid": 5}, "0\n5\n")])
def test_a_container_may_see_itself_as_another(penstock, contained, ids, seen):
    # Outside the container, the step runs as the caller, who owns the files that the step makes.
    # The second step prints their owner.
    path = contained({"command": "id -u; id -g; touch $STORAGE_PATH/made /root-file; ls /proc/self/status > /dev/null && echo seen"} | ids,
                     {"command": "stat -c '%u %g' $STORAGE_PATH/made", "container": None})  # fmt: skip

    assert penstock.run("run", path).ok().out == f"{seen}seen\n{os.geteuid()} {os.getegid()}\n"


def test_a_stop_reaches_a_container_that_sees_itself_as_another(penstock, contained, wait_for):
    path = contained({"command": "trap 'echo saved > $STORAGE_PATH/saved; exit 0' TERM; echo up > $STORAGE_PATH/up; while :; do sleep 0.05; done", "mapUid": 1234})
    run = penstock.popen("run", path)
    wait_for(lambda: list(penstock.home.glob("runs/*/storage/up")))
    seen = penstock.run("exec", penstock.ps()[0]["id"], "sh", "-c", "id -u").ok().out

    run.send(signal.SIGINT)

    assert seen == "1234\n" and run.wait().code == 130 and list(penstock.home.glob("runs/*/storage/saved"))


@pytest.mark.parametrize("step, config, out", [
    ({"command": "'a  b' c\\ d \"e\"", "shell": "ENTRYPOINT"}, {"Entrypoint": ["/bin/echo", "-n"], "Cmd": ["not"]}, "a  b c d e"),
    ({"command": ""}, {"Entrypoint": ["/bin/echo"], "Cmd": ["of", "image"]}, "of image\n"),
    ({"command": ""}, {"Cmd": ["/bin/sh", "-c", "echo $0"]}, "/bin/sh\n"),
    ({"command": "echo $0", "shell": "/bin/ash"}, {"Entrypoint": ["/bin/false"]}, "/bin/ash\n"),
    ({"command": "pwd", "workDir": "/bin"}, {"WorkingDir": "/tmp"}, "/bin\n"),
])  # fmt: skip
def test_what_runs_is_the_command_or_what_the_image_says(penstock, contained, step, config, out):
    assert penstock.run("run", contained(step, config=config)).ok().out == out


@pytest.mark.parametrize("command, code, number", [("exit 3", 3, "3"), ("exit 70", 79, "70"), ("kill -9 $$", 137, "9"), ("kill -TERM $$", 143, "15")])
def test_exit_codes_and_signals_come_through(penstock, contained, command, code, number):
    penstock.run("run", contained(command)).exits(code)

    shown = penstock.ps()[0]
    assert shown["state"] == "failed" and re.search(rf"\b{number}\b", shown["message"])
    assert not boxes(penstock) and not mounts_below(penstock.home)


def test_what_the_image_lacks_is_told(penstock, contained):
    no_shell = penstock.run("run", contained({"command": "true", "shell": "/bin/bash"})).exits(66)
    nothing = penstock.run("run", contained({"command": ""}))
    no_mount = penstock.run("run", contained("true", container={"mounts": [{"hostDir": "/nowhere/at/all", "containerDir": "/x"}]}))

    assert "/bin/bash" in no_shell.err and "shell" in no_shell.err
    assert "command" in nothing.err and nothing.code == 65
    assert "/nowhere/at/all" in no_mount.err and no_mount.code == 66
    assert not boxes(penstock)
    assert all(json.loads(penstock.run("show", run["id"], "--json").out)["class"] == "image" for run in penstock.ps())


def test_a_variable_that_is_not_utf8_is_refused(penstock, contained):
    path = contained("printf 'ODD=\\377\\n' >> $DEEPSQUARE_ENV", "echo started")

    result = penstock.run("run", path).exits(65)

    assert "'ODD'" in result.err and "started" not in result.out


@pytest.mark.parametrize("image_name, code, says", [("job/nope:v1", 66, "job/nope:v1"), ("Bad/Name", 65, "Bad/Name")])
def test_an_image_that_cannot_be_had_ends_the_run_before_its_steps(penstock, tmp_path, image_name, code, says):
    registry = Registry(tmp_path / "registry")
    path = tmp_path / "wf.json"
    path.write_text(json.dumps({"resources": RESOURCES, "steps": [
        {"run": {"command": "echo never"}}, {"run": {"command": "true", "container": {"image": image_name, "registry": registry.host}}}]}))  # fmt: skip
    try:
        result = penstock.run("run", path).exits(code)
    finally:
        registry.close()

    assert says in result.err and "never" not in result.out


def test_a_registrys_login_stands_in_the_workflow_or_in_a_secret(penstock, tmp_path):
    registry = Registry(tmp_path / "registry", login=("ann", "s3cret-pass"))
    registry.push("job/tool:v1", image([TOOL]))
    path = tmp_path / "wf.json"

    def write(password):
        container = {"image": "job/tool:v1", "registry": registry.host, "username": "ann", "password": password}
        path.write_text(json.dumps({"resources": RESOURCES, "steps": [{"run": {"command": "echo inside", "container": container}}]}))

    try:
        write("wrong-pass")
        wrong = penstock.run("run", path).exits(77)
        write("s3cret-pass")
        right = penstock.run("run", path).ok()
        write("${{ env.REGISTRY_PASSWORD }}")
        referred = penstock.run("run", path, env={"REGISTRY_PASSWORD": "s3cret-pass"}).ok()
    finally:
        registry.close()

    assert "ann" in wrong.err
    assert right.out == referred.out == "inside\n"
    kept = b"".join(file.read_bytes() for file in penstock.home.rglob("*") if file.is_file())
    assert b"s3cret-pass" not in kept and b"wrong-pass" not in kept


def test_mounts_and_a_read_only_root(penstock, contained, tmp_path):
    shared = tmp_path / "data"
    shared.mkdir()
    (shared / "file").write_text("of the machine\n")
    (penstock.user_home / "mine").write_text("home\n")
    mounts = [{"hostDir": str(shared), "containerDir": "/data/ro", "options": "ro"}, {"hostDir": str(shared), "containerDir": "/data/rw"}]
    path = contained(
        "cat /data/ro/file; echo x > /data/ro/new || echo refused; echo y > /data/rw/new; echo z > /etc/new || echo root; echo s > $STORAGE_PATH/s; cat $HOME/mine",
        container={"mounts": mounts, "readOnlyRootFS": True, "mountHome": True},
    )  # fmt: skip

    out = penstock.run("run", path).ok().out

    assert out.splitlines() == ["of the machine", "refused", "root", "home"]
    assert (shared / "new").read_text() == "y\n"


def test_mounts_of_the_workflow_are_in_every_container(penstock, contained, tmp_path):
    for name in ("common", "own"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(f"{name}\n")
    own = {"command": "cat /a/file /b/file", "container": {"image": None, "mounts": [{"hostDir": str(tmp_path / "own"), "containerDir": "/b"}]}}
    common = [{"hostDir": str(tmp_path / "common"), "containerDir": place, "options": "ro"} for place in ("/a", "/b")]
    path = contained("cat /a/file /b/file; touch /a/x || echo refused", own, mounts=common)
    steps = json.loads(path.read_text())
    steps["steps"][1]["run"]["container"]["image"] = steps["steps"][0]["run"]["container"]["image"]
    path.write_text(json.dumps(steps))

    out = penstock.run("run", path).ok().out
    without = penstock.run("run", "--set", "mounts=null", path)
    steps["mounts"][0]["hostDir"] = "/nowhere/at/all"
    path.write_text(json.dumps(steps))
    missing = penstock.run("run", path).exits(66)
    steps["steps"] = [{"run": {"command": "true"}}]
    path.write_text(json.dumps(steps))

    assert out.splitlines() == ["common", "common", "refused", "common", "own"] and without.code == 1
    assert "/nowhere/at/all" in missing.err and "wf.json:1:" in missing.err
    assert "mounts" in penstock.run("validate", path).ok().err


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_places_of_mounts_are_not_made_for_each_container(penstock, contained, wait_for, umask):
    # The image lacks the directories for the mounts. Making them on disk for each container, and
    # removing them, would take a large part of the time in which a container starts.
    path = contained('ls -ld /etc | cut -c1-10; echo up; while [ ! -e $STORAGE_PATH/go ]; do sleep 0.05; done; echo x > /etc/own; cat /etc/own')
    before = os.umask(umask)
    try:
        running = penstock.popen("run", path)
    finally:
        os.umask(before)
    running.wait_for_output("^up")
    [box] = boxes(penstock)

    made = [str(file.relative_to(box / "upper")) for file in (box / "upper").rglob("*")]
    next(penstock.home.glob("runs/*/storage")).joinpath("go").touch()
    result = running.wait().ok()

    assert made == [] and result.out == "drwxr-xr-x\nup\nx\n" and (penstock.home / "images/places/deepsquare").is_dir()
    assert not (penstock.home / "images/places/etc/own").exists()


def test_a_container_may_little(penstock, contained):
    # A container gets no new privileges, sees no other processes, and cannot create devices, change settings of the kernel or mount file systems.
    path = contained("ps | grep -c '[s]h -c'; mknod /dev/x b 8 0 && echo device; grep -E '^(NoNewPrivs|CapEff)' /proc/self/status; "
                     "echo 1 > /proc/sys/kernel/sysrq && echo sysrq; mount -t tmpfs x /tmp && echo mounted; touch /dev/shm/x && echo shm")  # fmt: skip

    out = penstock.run("run", path).ok().out.split()

    assert out[-1] == "shm" and out[out.index("NoNewPrivs:") + 1] == "1"
    assert int(out[out.index("CapEff:") + 1], 16) & (1 << 21 | 1 << 27 | 1 << 19 | 1 << 13) == 0  # SYS_ADMIN, MKNOD, SYS_PTRACE, NET_RAW
    assert not {"device", "sysrq", "mounted"} & set(out)


def test_nothing_of_a_container_outlives_its_step(penstock, contained):
    # A failed step's directories are kept, except the container's own directory.
    path = contained("setsid sleep 4321 & (sleep 4322 &); sleep 4323 & echo started", "true", {"command": "ps; test -e /dev/shm/x || echo gone; exit 3"})

    out = penstock.run("run", path).exits(3).out

    assert out.endswith("gone\n") and "432" not in out.partition("started")[2]
    assert not [line for line in processes.descendants().values() if "sleep 432" in line]
    assert not boxes(penstock) and not mounts_below(penstock.home)


def test_a_stop_reaches_the_program_that_handles_it(penstock, contained, wait_for):
    # The program saves, and ends the run. The shell above the program does not pass the signal on,
    # so penstock must send the signal to the program itself.
    saving = "trap 'echo saved > $STORAGE_PATH/saved; exit 0' TERM; echo up > $STORAGE_PATH/up; while :; do sleep 0.05; done"
    path = contained({"command": f'sh -c "{saving.replace("$", chr(92) + "$")}"; exit $?'})
    run = penstock.popen("run", path)
    wait_for(lambda: list(penstock.home.glob("runs/*/storage/up")))

    run.send(signal.SIGINT)
    ended = run.wait()

    assert ended.code == 130 and list(penstock.home.glob("runs/*/storage/saved"))


def test_a_stop_ends_what_handles_nothing(penstock, contained, wait_for):
    # The kernel ignores the signal for the first process of a namespace; the task is another process.
    run = penstock.popen("run", contained("echo up > $STORAGE_PATH/up; exec sleep 4324"))
    wait_for(lambda: list(penstock.home.glob("runs/*/storage/up")))

    run.send(signal.SIGINT)

    assert run.wait().code == 130 and not boxes(penstock)


def test_a_killed_penstock_takes_its_containers_with_it(penstock, contained, wait_for):
    # Search for exactly this command: the shell that is about to start it has the text in its own command line.
    def asleep():
        return [pid for pid, command in processes.descendants().items() if command == "sleep 4325"]

    path = contained("echo up > $STORAGE_PATH/up; [ -e $DEEPSQUARE_TMP/second ] || { touch $DEEPSQUARE_TMP/second; setsid sleep 4325 & sleep 4325; }; echo again")
    run = penstock.popen("run", path)
    wait_for(lambda: len(asleep()) == 2)
    assert boxes(penstock)

    run.kill()
    wait_for(lambda: not asleep())
    wait_for(lambda: not mounts_below(penstock.home))
    again = penstock.run("run", path).ok()

    assert again.out == "again\n" and not boxes(penstock)


def test_a_command_runs_beside_a_step(penstock, contained, wait_for):
    # The command has the environment and the directory of the step, and sees the processes and files of the step, not those of the machine.
    path = contained({"command": "cd /tmp; echo up > $STORAGE_PATH/up; sleep 4326", "env": [{"key": "OWN", "value": "1"}]})
    run = penstock.popen("run", path)
    wait_for(lambda: list(penstock.home.glob("runs/*/storage/up")))
    name = penstock.ps()[0]["id"]

    seen = penstock.run("exec", name, "sh", "-c", "echo $OWN $STORAGE_PATH; pwd; ls /; ps").ok().out
    run.send(signal.SIGINT)
    run.wait()

    lines = seen.splitlines()
    assert lines[:2] == ["1 /deepsquare", "/tmp"] and "deepsquare" in lines and "usr" not in lines
    # The output of ps does not have the machine's processes.
    assert "sleep 4326" in seen and len(seen.partition("COMMAND")[2].splitlines()) < 8


WITH_VALUES = ("A=b", "", "--lr=0.1", "a=b=c", "https://user:word@h/x?X-Amz-Signature=abc", "https://h/x?y", "two words = one argument")


def test_the_arguments_of_a_command_beside_a_step_arrive_as_they_are(penstock, contained, wait_for):
    # The arguments stay as they are, although penstock removes values from its own command line,
    # and executes itself once more before it enters a container.
    path = contained({"command": "echo up > $STORAGE_PATH/up; sleep 4327", "env": [{"key": "OWN", "value": "1"}]})
    run = penstock.popen("run", path)
    wait_for(lambda: list(penstock.home.glob("runs/*/storage/up")))
    name = penstock.ps()[0]["id"]

    plain = penstock.run("exec", name, "--", "sh", "-c", 'for word; do echo "$word"; done', "sh", *WITH_VALUES).ok().out
    behind = penstock.run("--quiet", "exec", name, "--rank=0", "sh", "-c", "echo r=$OWN $*", "--set=x", "A=b", "--lr=0.1").ok().out
    line = penstock.run("exec", name, "echo $OWN").exits(66).err
    run.send(signal.SIGINT)
    run.wait()

    assert tuple(plain.splitlines()) == WITH_VALUES
    assert behind == "r=1 A=b --lr=0.1\n"
    assert "echo $OWN" in line and "No such file" in line and "sh -c" in line


def test_memory_has_a_limit(penstock, contained):
    # Files in /dev/shm count as memory of the step, too.
    told = penstock.run("run", contained("head -c 300000000 /dev/zero > /dev/shm/big; echo not reached")).exits(137)

    assert "64 MB" in told.err and not boxes(penstock)


def test_several_layers_lie_over_each_other(penstock, contained):
    path = contained(
        "cat /a; test ! -e /gone && echo removed; ls /opaque; readlink /link; ls /kept",
        layers=[layer({"a": "lower\n", "gone": "x", "opaque/old": "x", "kept/one": "1"}),
                layer({"a": "upper\n", ".wh.gone": "", "opaque/.wh..wh..opq": "", "opaque/new": "x", "link": ("l", "/a"), "kept/two": "2"})],
    )  # fmt: skip

    assert penstock.run("run", path).ok().out.split() == ["upper", "removed", "new", "/a", "one", "two"]


def test_the_images_digest_is_on_record(penstock, contained, tmp_path):
    penstock.run("run", contained("true", "true")).ok()

    shown = penstock.run("show", penstock.ps()[0]["id"], "--json").json()

    images = shown["attempts"][-1]["provenance"]["images"]
    (entry,) = json.loads((tmp_path / "image0" / "index.json").read_text())["manifests"]
    assert len(images) == 1 and images[0]["digest"] == entry["digest"] and images[0]["name"].endswith("image0")


def test_without_crun_it_says_what_is_missing(penstock, contained, tmp_path):
    # penstock searches the usual places in addition to PATH, so the program is hidden in all of them.
    if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode:
        pytest.skip("a private mount needs root")
    path = contained("true")
    nothing = tmp_path / "nothing"
    nothing.write_text("")
    nothing.chmod(0o644)
    hide = f'mount --bind {nothing} /usr/bin/crun && exec "$@"'
    hidden = subprocess.run(["unshare", "-m", "sh", "-c", hide, "sh", binary(), "run", path], env=penstock.env, cwd=penstock.cwd, capture_output=True, text=True)

    assert "crun" in hidden.stderr and hidden.returncode == 70


@pytest.mark.parametrize("network", ["slirp4netns", "pasta"])
def test_a_network_of_its_own(penstock, contained, network):
    path = contained({"command": "ls /sys/class/net | sort; cat /etc/resolv.conf", "network": network, "dns": ["192.0.2.53"]})

    out = penstock.run("run", path).ok().out

    own = [line for line in out.splitlines() if not line.startswith("nameserver")]
    assert "lo" in own and len(own) == 2 and sorted(own) != sorted(os.listdir("/sys/class/net"))
    assert out.endswith("nameserver 192.0.2.53\n")
    assert not [line for line in processes.descendants().values() if network in line]


USER = 4711


@pytest.mark.users
def test_a_user_without_privileges_runs_containers(penstock, contained, tmp_path, wait_for):
    # The task runs in a user namespace: as root inside, and outside as the user, who owns the
    # files.
    if os.geteuid() != 0 or subprocess.run(["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "unshare", "-Ur", "true"], capture_output=True).returncode:
        pytest.skip("user namespaces are not available")
    path = contained(
        "id -u; touch $STORAGE_PATH/mine; ls /opaque; test ! -e /gone && echo removed; echo x > /etc/new && chown 0:0 /etc/new; exit 5", config={"User": "user"},
        layers=[layer({"gone": "x", "opaque/old": "x"}), layer({".wh.gone": "", "opaque/.wh..wh..opq": "", "opaque/new": "x"})],
    )  # fmt: skip
    subprocess.run(["chown", "-R", f"{USER}:{USER}", tmp_path], check=True)

    result = subprocess.run(["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", binary(), "run", path],
                            env=penstock.env, cwd=penstock.cwd, capture_output=True, text=True, timeout=120)  # fmt: skip

    assert result.returncode == 5, result.stderr
    assert result.stdout.split() == ["0", "new", "removed"]
    written = list(penstock.home.glob("runs/*/storage/mine"))
    assert written and written[0].stat().st_uid == USER
    assert not boxes(penstock)
