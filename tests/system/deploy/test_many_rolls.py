"""A hundred versions and twenty kills under the load of wrk, which counts failures."""
import os
import re
import shutil
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from harness.deployment import QUICK, Load, publish, weights
from harness.program import TOP
from harness.waiting import wait_for
from harness.world import own_network

ROLLS, KILLS, CONNECTIONS = 100, 20, 16


@pytest.fixture
def wrk():
    """wrk(port): runs until finish(), which returns requests, errors of sockets, and replies that were not 2xx."""
    started = []

    class Wrk:
        def __init__(self, port):
            self.process = subprocess.Popen(["wrk", "-t1", f"-c{CONNECTIONS}", "-d1h", "--timeout", "30s", f"http://127.0.0.1:{port}/"],
                                            stdout=subprocess.PIPE, text=True)
            started.append(self.process)

        def finish(self):
            self.process.send_signal(signal.SIGINT)
            text = self.process.communicate(timeout=60)[0]
            sockets = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", text)
            refused = re.search(r"Non-2xx or 3xx responses: (\d+)", text)
            return (int(re.search(r"(\d+) requests in", text)[1]), [int(n) for n in sockets.groups()] if sockets else [0] * 4,
                    int(refused[1]) if refused else 0)

    if not shutil.which("wrk"):
        pytest.fail("wrk is missing; make deps installs it")
    yield Wrk
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_hundred_versions_and_twenty_kills(deploy, models, wrk):
    publish(models, 1, weights(1))
    deployment = deploy(quick=("--interval", "100ms", "--settle", "100ms", *QUICK[4:]))
    port = deployment.wait_in_service(1)
    load, checked = wrk(port), Load(port, clients=2)
    for version in range(2, ROLLS + 2):
        if version % (ROLLS // KILLS) == 0:
            # Kill the main process and its spare in turn, at any moment of the previous roll.
            os.kill(deployment.both()[version // (ROLLS // KILLS) % 2], signal.SIGKILL)
        publish(models, version, weights(version))
        deployment.wait_in_service(version)
    wait_for(lambda: checked.versions[-1] == ROLLS + 1)
    requests, errors, refused = load.finish()
    checked.stop()
    print(f"{requests} requests by wrk and {checked.count} with their contents checked, {ROLLS} versions, {KILLS} kills")
    assert (errors, refused, checked.errors) == ([0] * 4, 0, [])
    assert requests > 10 * ROLLS
    deployment.stop()


@pytest.fixture
def migrating():
    """A network in which pending connections of a closed socket move to another socket of the port."""
    with own_network():
        Path("/proc/sys/net/ipv4/tcp_migrate_req").write_text("1")
        yield


@pytest.mark.long
@pytest.mark.parametrize("how", ["reuseport", "HUP"])
def test_servers_that_listen_themselves_lose_no_request(migrating, deploy, models, wrk, how):
    publish(models, 1, weights(1))
    deployment = deploy("--traffic", how, "--health", "http://127.0.0.1:{health_port}/health",
                        server=("{model}", "--port", "{port}", "--health-port", "{health_port}"))  # fmt: skip
    load = wrk(deployment.wait_in_service(1))
    for version in range(2, KILLS + 2):
        publish(models, version, weights(version))
        deployment.wait_in_service(version)
    wait_for(lambda: deployment.get()["weights"] == weights(KILLS + 1))
    requests, errors, refused = load.finish()
    print(f"{requests} requests, {KILLS} versions by {how}")
    assert (errors, refused) == ([0] * 4, 0)
    assert requests > 10 * KILLS
    deployment.stop()


def kill_servers(deployment):
    for _ in range(KILLS):
        pid = deployment.servers()[0]
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: deployment.servers() not in ([], [pid]))
        wait_for(lambda: deployment.state()["servers"][0]["phase"] == "ready")


@pytest.mark.long
def test_a_killed_server_loses_no_request_that_it_had_not_accepted(deploy, models, wrk):
    publish(models, 1, weights(1))
    deployment = deploy()
    load = wrk(deployment.wait_in_service(1))
    kill_servers(deployment)
    requests, errors, refused = load.finish()
    print(f"{requests} requests, {KILLS} killed servers, errors {errors}")
    assert errors[0] == errors[3] == refused == 0  # no connection is refused, and no request hangs
    assert sum(errors) <= KILLS * CONNECTIONS
    deployment.stop()


@pytest.fixture
def haproxy(tmp_path):
    """haproxy(port): starts an HAProxy in front of the port, with the configuration of
    docs/deploy.md; returns HAProxy's own port."""
    started = []

    def start(port):
        text = re.search(r"```haproxy\n(.*?)```", (TOP / "docs" / "deploy.md").read_text(encoding="utf-8"), re.DOTALL)[1]
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen(128)
            # HAProxy inherits the socket, so that no other program can take the port.
            config = tmp_path / "haproxy.cfg"
            config.write_text(text.replace("bind 127.0.0.1:8080", f"bind fd@{listener.fileno()}").replace(":8000", f":{port}"))
            started.append(subprocess.Popen(["/usr/sbin/haproxy", "-db", "-f", config], pass_fds=[listener.fileno()]))
            return listener.getsockname()[1]

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.long
def test_a_proxy_repeats_the_requests_of_killed_servers(deploy, models, wrk, haproxy):
    publish(models, 1, weights(1))
    deployment = deploy()
    port = haproxy(deployment.wait_in_service(1))
    load, checked = wrk(port), Load(port, clients=2)
    kill_servers(deployment)
    requests, errors, refused = load.finish()
    checked.stop()
    print(f"{requests} requests by wrk and {checked.count} with their contents checked, {KILLS} killed servers")
    assert (errors, refused, checked.errors) == ([0] * 4, 0, [])
    assert requests > 10 * KILLS
    deployment.stop()
