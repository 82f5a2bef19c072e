"""Versions in service: newer ones take over, bad ones do not, and no request fails meanwhile."""
import base64
import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness.deployment import BUCKET, QUICK, Load, publish, weights
from harness.processes import command_line, is_alive, is_stopped
from harness.waiting import wait_for


def test_newer_versions_take_over_without_a_failed_request(deploy, models):
    publish(models, 1, weights(1))
    deployment = deploy()
    load = Load(deployment.wait_in_service(1))
    for version in range(2, 7):
        publish(models, version, weights(version))
        deployment.wait_in_service(version)
    wait_for(lambda: load.versions[-1] == 6)
    load.stop()
    assert load.errors == [] and load.count > 100
    assert deployment.get()["weights"] == weights(6)
    wait_for(lambda: len(deployment.servers()) == 1)
    entry = wait_for(lambda: next((e for e in deployment.replicas().values() if e["state"] == "serving"), None))
    assert entry["serving"]["version"] == "6"
    deployment.stop()
    assert deployment.replicas() == {}
    assert deployment.servers() == []


@pytest.mark.parametrize("behaviour", ["crash", "sick", "hang", "late-crash"])
def test_a_version_that_fails_is_given_up(deploy, models, behaviour):
    publish(models, 1, weights(1))
    deployment = deploy("--health", "/health", "--start-timeout", "3s", quick=(*QUICK[:4], "--watch", "3s", "--drain", "10s"))
    load = Load(deployment.wait_in_service(1))
    publish(models, 2, weights(2), behaviour)
    deployment.wait_for("cannot serve version '2': .*; version '1'")
    entry, = wait_for(lambda: [e for e in deployment.replicas().values() if "failed" in e and e.get("serving", {}).get("version") == "1"])
    assert entry["failed"]["version"] == "2"
    if behaviour != "late-crash":
        assert 2 not in load.versions
    publish(models, 3, weights(3))
    deployment.wait_in_service(3)
    wait_for(lambda: all("failed" not in entry for entry in deployment.replicas().values()))
    load.stop()
    # Only the requests that a crashed server had accepted are lost.
    assert behaviour == "late-crash" or load.errors == []
    assert deployment.err.count("cannot serve version '2'") == 1
    deployment.stop()


@pytest.mark.parametrize("when", ["later", "first", "signal"])
def test_a_version_that_failed_is_not_tried_again_after_a_kill(deploy, models, when):
    """Version 2 is published after version 1 is in service, or before the start, or is loaded on a signal."""
    behaviour, options = "crash", {}
    if when == "signal":
        behaviour, options = "sick", {"server": ("{model}", "--port", "{port}", "--health-port", "{health_port}")}
    publish(models, 1, weights(1))
    if when == "first":
        publish(models, 2, weights(2), behaviour)
    deployment = deploy(*(("--traffic", "HUP", "--health", "http://127.0.0.1:{health_port}/health", "--start-timeout", "3s") if options else
                          ("--health", "/health")), **options)
    deployment.wait_in_service(1)
    if when != "first":
        publish(models, 2, weights(2), behaviour)
    main, _ = deployment.both()
    deployment.wait_for("cannot serve version '2'")
    os.kill(main, signal.SIGKILL)
    deployment.wait_for("the previous process was killed")
    publish(models, 3, weights(3), behaviour)
    deployment.wait_for("cannot serve version '3'")
    assert deployment.err.count("cannot serve version '2'") == 1
    assert len(deployment.state()["refused"]) == 2
    wait_for(lambda: deployment.get()["weights"] == weights(1))
    deployment.stop()


def test_the_entry_of_a_replica_survives_a_kill(deploy, models):
    publish(models, 1, weights(1))
    deployment = deploy("--health", "/health")
    deployment.wait_in_service(1)

    def written(what):
        entry = wait_for(lambda: next((entry for entry in deployment.replicas().values() if what(entry)), None))
        return entry.pop("beat"), entry.pop("updated"), entry

    publish(models, 2, weights(2), "crash")
    written(lambda entry: "failed" in entry)
    publish(models, 3, weights(3), "hang")
    main, _ = deployment.both()
    # Wait for the server of version 3: if the main process were killed earlier, the spare would
    # first write an entry without `next`, and then start the server again.
    deployment.wait_for("version '3' has started")
    beat, _, before = written(lambda entry: "next" in entry)
    assert before["state"] == "rolling"
    assert [before[name]["version"] for name in ("serving", "failed", "next")] == ["1", "2", "3"]
    os.kill(main, signal.SIGKILL)
    # The heartbeat numbers of a process begin with the current time in nanoseconds, so the larger
    # number comes from the spare.
    assert written(lambda entry: entry["beat"] > beat + 1000)[2] == before
    deployment.stop()


def test_each_state_is_whole(deploy, models):
    """A process that takes over may read any state, so each state must be complete: the version
    that gets new connections, and the versions that failed."""
    publish(models, 1, weights(1))
    deployment = deploy("--health", "/health", quick=(*QUICK[:4], "--watch", "30s", "--drain", "10s"))
    deployment.wait_in_service(1)

    def wait_for_front(version):
        def whole():
            state = deployment.state()
            server = state["servers"][state["front"]]
            return state if server and server["model"]["version"] == version else None

        return wait_for(whole, every_s=0)

    publish(models, 2, weights(2), "crash")
    wait_for(lambda: deployment.state()["failed"])
    publish(models, 3, weights(3), "late-crash")
    state = wait_for_front("3")
    assert state["failed"] is None and len(state["refused"]) == 1
    state = wait_for_front("1")
    assert state["failed"]["version"] == "3" and len(state["refused"]) == 2
    deployment.stop()


def test_a_version_without_another_is_tried_later(deploy, models):
    publish(models, 1, weights(1), "crash")
    deployment = deploy("--health", "/health")
    deployment.wait_for("cannot serve version '1': .*; no version")
    refused, = deployment.state()["refused"]
    assert refused["until_ms"] > 0
    publish(models, 2, weights(2))
    deployment.wait_in_service(2)
    deployment.stop()


def test_connections_that_wait_for_a_server_that_dies_are_served_by_the_other_one(deploy, models):
    publish(models, 1, weights(1))
    deployment = deploy("--health", "/health", quick=(*QUICK[:4], "--watch", "10s", "--drain", "10s"))
    deployment.wait_in_service(1)
    publish(models, 2, weights(2), "late-stuck")
    deployment.wait_in_service(2)
    deployment.process.wait_for_output("stuck")
    with ThreadPoolExecutor(20) as clients:
        replies = list(clients.map(lambda _: deployment.get(), range(20)))
    assert {reply["version"] for reply in replies} == {"1"}
    deployment.wait_for("cannot serve version '2'")
    deployment.stop()


def test_a_process_that_is_killed_while_a_server_starts_leaves_its_turn_to_the_next(deploy, models):
    publish(models, 1, weights(1))
    deployment = deploy()
    deployment.wait_in_service(1)
    publish(models, 2, weights(2), "slow")
    wait_for(lambda: any(server and server["phase"] == "starting" for server in deployment.state()["servers"]))
    main, spare = deployment.both()
    os.kill(main, signal.SIGKILL)
    deployment.wait_in_service(2)
    publish(models, 3, weights(3))
    deployment.wait_in_service(3)
    deployment.stop()


def test_a_process_that_is_killed_before_its_server_begins_leaves_it_to_the_next(deploy, models):
    """The shell of a server waits until the main process has written the state to the disk, and
    exits if the main process is killed before that."""
    publish(models, 1, weights(1))
    deployment = deploy()
    deployment.wait_in_service(1)
    for version in range(2, 8):
        main, _ = deployment.both()
        publish(models, version, weights(version), "slow")
        while not any(server and server["phase"] == "starting" for server in deployment.state()["servers"]):
            pass
        os.kill(main, signal.SIGKILL)
        deployment.wait_in_service(version)
    deployment.stop()


@pytest.mark.parametrize("behind", [True, False])
def test_a_server_that_ends_before_the_spare_takes_over(deploy, models, behind):
    """The spare does what the killed process would have done: the older server takes over, or the
    version is started once more."""
    publish(models, 1, weights(1))
    deployment = deploy("--health", "/health", quick=(*QUICK[:4], "--watch", "60s", "--drain", "10s"))
    deployment.wait_in_service(1)
    if behind:
        publish(models, 2, weights(2))
        deployment.wait_in_service(2)
    main, _ = deployment.both()
    server = deployment.get()["pid"]
    os.kill(main, signal.SIGSTOP)
    wait_for(lambda: is_stopped(main))
    os.kill(server, signal.SIGKILL)
    wait_for(lambda: not is_alive(server))
    os.kill(main, signal.SIGKILL)
    deployment.wait_for("the previous process was killed")
    assert deployment.get()["weights"] == weights(1)
    if behind:
        deployment.wait_for("cannot serve version '2'")
        assert len(deployment.state()["refused"]) == 1
    publish(models, 3, weights(3))
    deployment.wait_in_service(3)
    assert deployment.err.count("has started") == 3
    deployment.stop()


def test_a_restart_serves_the_version_of_the_bucket(deploy, models):
    for version in (1, 2):
        publish(models, version, weights(version))
    deployment = deploy()
    deployment.wait_in_service(2)
    models.client.delete_object(Bucket=BUCKET, Key="mnist/2/weights")
    deployment.wait_in_service(1)
    deployment.stop()
    publish(models, 3, weights(3))
    second = deploy()
    second.wait_in_service(3)
    second.stop()


def test_a_version_with_a_commit_waits_for_all_its_files(deploy, models, penstock, tmp_path):
    publish(models, 1, weights(1))
    deployment = deploy()
    deployment.wait_in_service(1)
    commit = {"format": "penstock.checkpoint/1", "step": 2, "attempt": 1, "run": "r", "time": "2026-11-21T09:05:00.000Z", "world_size": 1,
              "metrics": {}, "files": [{"path": "weights", "size": 12, "crc64nvme": "0" * 16}]}
    models.client.put_object(Bucket=BUCKET, Key="mnist/2/COMMIT.json", Body=json.dumps(commit))
    publish(models, 3, "late", before=[("COMMIT.json", json.dumps(commit | {"files": [{"path": "missing", "size": 1, "crc64nvme": "0" * 16}]}))])
    publish(models, 2, weights(2))  # complete, but its checksum differs
    deployment.wait_for("cannot serve version '2'")
    assert "version '3'" not in deployment.err
    assert deployment.get()["version"] == "1"
    publish(models, 4, weights(4))
    deployment.wait_in_service(4)
    deployment.stop()


def test_a_marker_completes_a_version(deploy, models):
    publish(models, 1, weights(1), before=[("READY", b"")])
    deployment = deploy("--ready", "READY")
    deployment.wait_in_service(1)
    publish(models, 2, weights(2))
    publish(models, 3, weights(3), before=[("READY", b"")])
    deployment.wait_in_service(3)
    assert "version '2'" not in deployment.err
    deployment.stop()


def test_a_prefix_without_versions_is_one(deploy, models):
    models.client.put_object(Bucket=BUCKET, Key="mnist/weights", Body="first")
    models.client.put_object(Bucket=BUCKET, Key="mnist/tokens/a", Body="a")
    deployment = deploy()
    deployment.wait_for("all of s3://models/mnist/ is one version")
    deployment.wait_in_service("[0-9a-f]{12}")
    assert deployment.get()["weights"] == "first"
    models.client.put_object(Bucket=BUCKET, Key="mnist/weights", Body="second")
    wait_for(lambda: deployment.get()["weights"] == "second")
    deployment.stop()


def test_the_best_checkpoint_is_served(deploy, models):
    def save(step, loss, crc):
        body = f"weights of step-{step:012}-1"
        files = [{"path": "weights", "size": len(body), "crc64nvme": crc(body)}]
        commit = {"format": "penstock.checkpoint/1", "step": step, "attempt": 1, "run": "r", "time": "2026-11-21T09:05:00.000Z",
                  "world_size": 1, "metrics": {} if loss is None else {"loss": loss}, "files": files}
        publish(models, f"step-{step:012}-1", body, before=[("COMMIT.json", json.dumps(commit))])

    def crc(body):
        models.client.put_object(Bucket=BUCKET, Key="crc", Body=body)
        head = models.client.head_object(Bucket=BUCKET, Key="crc", ChecksumMode="ENABLED")
        return base64.b64decode(head["ResponseMetadata"]["HTTPHeaders"]["x-amz-checksum-crc64nvme"]).hex()

    save(1, 0.5, crc)
    save(2, 0.25, crc)
    save(3, 0.75, crc)
    save(4, None, crc)
    wrong = deploy("--best", "los:min")
    wrong.wait_for("no checkpoint has the metric 'los'")
    wrong.stop()
    deployment = deploy("--best", "loss:min")
    deployment.wait_in_service("step-000000000002-1")
    save(5, 0.125, crc)
    deployment.wait_in_service("step-000000000005-1")
    deployment.stop()


@pytest.mark.parametrize("how", ["reuseport", "HUP"])
def test_servers_that_listen_themselves(deploy, models, how):
    publish(models, 1, weights(1))
    server = ("{model}", "--port", "{port}", "--health-port", "{health_port}")
    deployment = deploy("--traffic", how, "--health", "http://127.0.0.1:{health_port}/health", "--start-timeout", "3s", server=server)
    deployment.wait_in_service(1)
    pid = deployment.servers()[0]
    publish(models, 2, weights(2), None if how == "reuseport" else "sick")
    if how == "HUP":
        deployment.wait_for("cannot serve version '2'")
        wait_for(lambda: deployment.get()["weights"] == weights(1))
        publish(models, 3, weights(3))
        deployment.wait_in_service(3)
        assert deployment.servers() == [pid]
    else:
        deployment.wait_in_service(2)
        wait_for(lambda: not is_alive(pid))
        # The spare continues with this server, which is in the second slot of the recorded state.
        pid = deployment.get()["pid"]
        os.kill(deployment.both()[0], signal.SIGKILL)
        kept = wait_for(lambda: (lambda found: found[1:])(deployment.look(r"version '2' is in service on .* \(process (\d+)\)")))
        assert kept == [str(pid)] and deployment.servers() == [pid]
    wait_for(lambda: deployment.get()["weights"] == weights(3 if how == "HUP" else 2))
    deployment.stop()


def test_any_process_may_be_killed(deploy, models):
    publish(models, 1, weights(1))
    deployment = deploy()
    load = Load(deployment.wait_in_service(1))
    main, spare = deployment.both()
    assert main == deployment.process.pid
    words = command_line(main)
    os.kill(spare, signal.SIGKILL)
    wait_for(lambda: len(deployment.mains()) == 2 and spare not in deployment.mains())
    for version in (2, 3, 4):
        main, spare = deployment.both()
        os.kill(main, signal.SIGKILL)
        publish(models, version, weights(version))
        deployment.wait_in_service(version)
        assert command_line(spare) == words
    wait_for(lambda: load.versions[-1] == 4)
    load.stop()
    assert load.errors == []
    # A server that is killed loses the requests that it has; later ones wait for the next server.
    os.kill(deployment.servers()[0], signal.SIGKILL)
    assert deployment.get()["weights"] == weights(4)
    deployment.stop()
    assert deployment.mains() == [] and deployment.servers() == []
