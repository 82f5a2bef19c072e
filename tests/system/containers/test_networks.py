"""Steps with their own network and its interfaces, on the machine and in containers."""
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest

from harness import processes
from harness.program import Penstock, binary
from harness.registry import BUSYBOX, busybox, image, write_layout
from harness.workflows import RESOURCES, write_workflow

USER = 4713

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="a network namespace for the test needs root")


@pytest.fixture
def workflow(tmp_path):
    """workflow(command or run, ..., **fields): the path of a workflow whose steps have networks of their own."""

    def write(*steps, **fields):
        runs = [{"network": "slirp4netns"} | ({"command": step} if isinstance(step, str) else step) for step in steps]
        return write_workflow(tmp_path, *runs, **fields)

    return write


def helpers():
    return [line for line in processes.descendants().values() if re.search("slirp4netns|pasta|wireguard-go wg", line)]


def boxes(penstock):
    return list(penstock.home.glob("runs/*/tmp/container-*"))


@pytest.mark.parametrize("network", ["slirp4netns", "pasta"])
def test_a_step_on_the_machine_has_a_network_of_its_own(penstock, workflow, network):
    # The step runs as the caller, in its usual directory, and sees the machine's files. The
    # processes that it leaves behind end with it.
    path = workflow({"command": "awk -F: 'NR > 2 {print $1}' /proc/net/dev | sort | xargs; cat /etc/resolv.conf; id -u; pwd; echo x > $DEEPSQUARE_OUTPUT/x; (setsid sleep 4341 &); exit 7",
                     "network": network, "dns": ["192.0.2.53"]})  # fmt: skip

    out = penstock.run("run", path).exits(7).out.splitlines()

    assert "lo" in out[0].split() and len(out[0].split()) == 2
    assert out[1:] == ["nameserver 192.0.2.53", str(os.geteuid()), str(next(penstock.home.glob("runs/*/storage")))]
    assert list(penstock.home.glob("runs/*/storage/output/x")) and not boxes(penstock)
    assert not helpers() and "sleep 4341" not in processes.descendants().values()


@pytest.mark.parametrize("network", ["slirp4netns", "pasta"])
def test_what_listens_on_the_machine_alone_is_not_reached(penstock, workflow, http_server, network):
    fetch = f"curl -sS --max-time 20 {http_server.add('/file', bytes('from the machine', 'ascii'))}"
    own = penstock.run("run", workflow({"command": f"{fetch} || echo kept out", "network": network}))
    hosts = penstock.run("run", workflow({"command": fetch, "network": "host"}), "--fresh")

    assert own.ok().out == "kept out\n" and hosts.ok().out == "from the machine"


def test_it_sees_itself_as_another_too(penstock, workflow):
    path = workflow({"command": "id -u; id -g; touch $STORAGE_PATH/made", "mapUid": 1234, "mapGid": 77}, "stat -c '%u %g' $STORAGE_PATH/made")

    assert penstock.run("run", path).ok().out == f"1234\n77\n{os.geteuid()} {os.getegid()}\n"


@pytest.mark.skipif(os.path.exists("/bin/ash"), reason="this machine has all the shells that a workflow may name")
def test_what_cannot_be_begun_is_told(penstock, workflow):
    told = penstock.run("run", workflow({"command": "true", "shell": "/bin/ash"}))

    assert told.code == 70 and "/bin/ash" in told.err
    assert not boxes(penstock) and not helpers()


def test_a_stop_reaches_the_step_and_not_what_leads_outside(penstock, workflow, wait_for):
    # slirp4netns handles SIGTERM, too, but only the step's program must get the signal. The program
    # is the child of a shell that does not handle SIGTERM.
    path = workflow("sh -c \"trap 'echo saved > $STORAGE_PATH/saved; exit 0' TERM; echo up > $STORAGE_PATH/up; while :; do sleep 0.05; done\"; exit $?")
    run = penstock.popen("run", path)
    wait_for(lambda: list(penstock.home.glob("runs/*/storage/up")))

    run.send(signal.SIGINT)

    assert run.wait().code == 130 and list(penstock.home.glob("runs/*/storage/saved")) and not helpers()


def test_a_stop_ends_what_handles_nothing(penstock, workflow, wait_for):
    # The step does not handle SIGTERM. The helper that handles SIGTERM must not be taken for the
    # step, which would then be killed only after the grace of 30 s.
    path = workflow("echo up > $STORAGE_PATH/up; exec sleep 4342")
    run = penstock.popen("run", path)
    wait_for(lambda: list(penstock.home.glob("runs/*/storage/up")))

    run.send(signal.SIGINT)
    ended = run.wait()

    assert ended.code == 130 and not helpers()


def test_a_killed_penstock_takes_it_along(penstock, workflow, wait_for):
    path = workflow("[ -e $DEEPSQUARE_TMP/second ] || { touch $DEEPSQUARE_TMP/second; sleep 4343 & setsid sleep 4343; }; echo again")
    run = penstock.popen("run", path)
    wait_for(lambda: list(processes.descendants().values()).count("sleep 4343") == 2)

    run.kill()

    wait_for(lambda: "sleep 4343" not in processes.descendants().values() and not helpers())
    assert penstock.run("run", path).ok().out == "again\n" and not boxes(penstock)


def test_a_command_runs_in_the_steps_network(penstock, workflow, wait_for):
    path = workflow({"command": "cat /proc/net/dev > $STORAGE_PATH/seen; echo > $STORAGE_PATH/up; sleep 4344", "env": [{"key": "OWN", "value": "1"}]})
    run = penstock.popen("run", path)
    wait_for(lambda: list(penstock.home.glob("runs/*/storage/up")))

    seen = penstock.run("exec", penstock.ps()[0]["id"], "sh", "-c", "echo $OWN; awk -F: 'NR > 2 {print $1}' /proc/net/dev | sort | xargs; pwd").ok().out
    run.send(signal.SIGINT)
    run.wait()

    assert seen.splitlines() == ["1", "lo tap0", str(next(penstock.home.glob("runs/*/storage")))]


# ---- interfaces ----

WORLD = """set -e
ip link set lo up
ip link add v0 type veth peer name v1
ip addr add 198.51.100.1/24 dev v0; ip link set v0 up; ip link set v1 up
ip route add default via 198.51.100.2
mount -t tmpfs tmpfs /run; mkdir /run/wireguard
cp "$1" /run/wireguard/away.conf; chmod 600 /run/wireguard/away.conf
wg-quick up /run/wireguard/away.conf
cd "$2"; /usr/bin/python3 -c '
import http.server, socketserver, sys
server = socketserver.ThreadingTCPServer(("10.9.0.1", 8000), http.server.SimpleHTTPRequestHandler)
sys.stdout.write("ready\\n"); sys.stdout.flush(); server.serve_forever()' """


def wg(*words, text=None):
    return subprocess.run(["wg", *words], input=text, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def far_away(tmp_path):
    """A network namespace with a simulated distant machine, 198.51.100.1: the other end of a
    tunnel, in which a web server has the address 10.9.0.1."""
    if not shutil.which("wg-quick") or not (shutil.which("wireguard-go") or os.path.exists("/sys/module/wireguard")):
        pytest.skip("this machine has no WireGuard, in the kernel or as a program")
    ours, theirs = wg("genkey"), wg("genkey")
    config = tmp_path / "away.conf"
    config.write_text(f"[Interface]\nPrivateKey = {theirs}\nAddress = 10.9.0.1/24\nListenPort = 51820\n[Peer]\nPublicKey = {wg('pubkey', text=ours)}\nAllowedIPs = 10.9.0.2/32\n")
    pages = tmp_path / "pages"
    pages.mkdir()
    (pages / "file").write_text("through the tunnel\n")
    holder = subprocess.Popen(["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", WORLD, "sh", config, pages],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)  # fmt: skip
    try:
        said = []
        while "ready\n" not in said:
            said.append(holder.stdout.readline())
            assert said[-1], f"the simulated distant machine did not start: {said}"
        inside = processes.children(holder.pid)[0]
        yield ["nsenter", f"--net=/proc/{inside}/ns/net"], ours, wg("pubkey", text=theirs)
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()


def tunnel(key, peer):
    end = {"publicKey": peer, "allowedIPs": ["10.9.0.0/24"], "endpoint": "198.51.100.1:51820", "persistentKeepalive": 25}
    return {"customNetworkInterfaces": [{"wireguard": {"address": ["10.9.0.2/24"], "privateKey": key, "peers": [end]}}]}


def place_of(where, tmp_path):
    """The keys of `run` for a step on the machine, or in a container."""
    if where == "machine":
        return {}
    if not os.path.exists(BUSYBOX):
        pytest.skip("busybox-static is not installed")
    return {"container": {"image": str(write_layout(tmp_path / "image", image([busybox()])))}}


@root_only
@pytest.mark.parametrize("where", ["machine", "container"])
def test_a_step_reaches_another_network_through_wireguard(penstock, workflow, far_away, tmp_path, where):
    prefix, key, peer = far_away
    penstock.prefix = prefix
    place = place_of(where, tmp_path)
    fetch = "wget -q -O - http://10.9.0.1:8000/file" if place else "curl -sS --max-time 60 http://10.9.0.1:8000/file"

    result = penstock.run("run", workflow({"command": f"{fetch}; ls /run/wireguard 2> /dev/null; true"} | tunnel(key, peer) | place)).ok()

    assert result.out == "through the tunnel\n" and not helpers() and not boxes(penstock)
    kept = subprocess.run(["grep", "-rlF", key, penstock.home], capture_output=True, text=True)
    assert kept.stdout == "" and key not in result.err  # the key is on no disk


@root_only
@pytest.mark.parametrize("where", ["machine", "container"])
def test_a_tunnel_that_cannot_be_made_is_told(penstock, workflow, far_away, tmp_path, where):
    prefix, key, peer = far_away
    penstock.prefix = prefix
    step = {"command": "echo never"} | place_of(where, tmp_path)

    told = penstock.run("run", workflow(step | tunnel("this-is-no-key", peer)))
    lines = penstock.run("run", workflow(step | tunnel(f"{key}\nPostUp = touch /tmp/never", peer)), "--fresh")

    assert told.code == 70 and told.out == "" and "crun" not in told.err
    assert lines.code == 65 and "PrivateKey" in lines.err and lines.out == ""


@root_only
def test_what_an_interface_needs_is_named_before_anything_starts(penstock, workflow, tmp_path):
    nothing = tmp_path / "nothing"
    nothing.write_text("")
    path = workflow({"command": "echo never"} | tunnel("k3y-of-the-tunnel", "peer"))
    hide = f'mount --bind {nothing} "$(command -v wg-quick || command -v true)" && exec "$@"'

    told = subprocess.run(["unshare", "-m", "sh", "-c", hide, "sh", binary(), "run", path], env=penstock.env, cwd=penstock.cwd, capture_output=True, text=True)
    bore = penstock.run("run", workflow({"command": "echo never", "customNetworkInterfaces": [{"bore": {"boreAddress": "h:1", "targetPort": 1}}]}))

    assert told.returncode == 65 and "wg-quick" in told.stderr and "k3y" not in told.stderr
    assert re.search(r"wf.json:1:\d+: .*\bbore\b", bore.exits(65).err)
    assert penstock.ps() == []


def test_a_bore_tunnel_runs_beside_its_step(penstock, workflow, tmp_path):
    # A fake bore. Like the real program, it exits if the port has no listener yet, and prints its
    # address.
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "bore").write_text(f"""#!/usr/bin/python3
import socket, sys, time
sys.argv[1:5] == ["-s", "bore.example", "-p", "2200"] or sys.exit("wrong server")
socket.create_connection((sys.argv[6], int(sys.argv[8]))).close()
print("Generated HTTP URL: http://somewhere, for", *sys.argv[9:], flush=True)
open("{tmp_path}/told", "w").close()
time.sleep(4345)
""")
    (tools / "bore").chmod(0o755)
    serve = f"import http.server, threading, os, time; s = http.server.HTTPServer(('127.0.0.1', 8080), http.server.BaseHTTPRequestHandler); threading.Thread(target=s.serve_forever, daemon=True).start(); [time.sleep(0.05) for _ in iter(lambda: os.path.exists('{tmp_path}/told'), True)]"
    path = workflow({"command": f'sleep 0.2; /usr/bin/python3 -c "{serve}"', "customNetworkInterfaces": [{"bore": {"boreAddress": "bore.example:2200", "targetPort": 8080, "secret": "of-the-route"}}]})

    result = penstock.run("run", path, env={"PATH": f"{tools}:{os.environ['PATH']}"}).ok()

    assert "Generated HTTP URL: http://somewhere" in result.out and "of-the-route" not in result.out
    assert not [line for line in processes.descendants().values() if "bin/bore" in line]


# ---- without privileges ----


@root_only
@pytest.mark.parametrize("network", ["slirp4netns", "pasta"])
def test_a_user_without_rights_has_it_too(wait_for, network):
    # The program runs as a real user, not as the root of a user namespace. The /dev/net/tun of this
    # test has Debian's default mode.
    as_user = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]
    if subprocess.run([*as_user, "unshare", "-Urm", "true"], capture_output=True).returncode:
        pytest.skip("user namespaces are not available")
    folder = Path(tempfile.mkdtemp(prefix="penstock-user-"))
    folder.chmod(0o755)
    program = Penstock(folder / "p")
    device = folder / "tun"
    os.mknod(device, 0o020666, os.makedev(10, 200))
    device.chmod(0o666)
    shutil.copy(binary(), folder / "program")
    program.prefix = ["unshare", "-m", "sh", "-c", f'mount --bind {device} /dev/net/tun && shift && exec "$@"', "sh", "_", *as_user]
    path = folder / "wf.json"
    path.write_text(json.dumps({"resources": RESOURCES, "steps": [{"run": run | {"network": network}} for run in (
        {"command": "id -u; awk -F: 'NR > 2 {print $1}' /proc/net/dev | wc -l; cat /etc/resolv.conf; echo x > $DEEPSQUARE_OUTPUT/x", "dns": ["192.0.2.53"]},
        {"command": "id -u", "mapUid": 55})]}))  # fmt: skip
    for owned in (folder, *folder.rglob("*")):
        os.chown(owned, USER, USER)
    os.environ["PENSTOCK"], before = str(folder / "program"), os.environ.get("PENSTOCK")
    try:
        result = program.run("run", path)
    finally:
        os.environ.pop("PENSTOCK")
        if before:
            os.environ["PENSTOCK"] = before
        program.close()
    out = next(folder.glob("p/**/storage/output/x"), None)
    owner = out and out.stat().st_uid
    shutil.rmtree(folder)

    assert result.ok().out == f"{USER}\n2\nnameserver 192.0.2.53\n55\n" and owner == USER
