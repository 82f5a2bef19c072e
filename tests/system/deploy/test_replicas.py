"""Several replicas, the cache of a machine, and a store that is unavailable or refuses requests."""
import json
import threading

import pytest

from harness.deployment import BUCKET, QUICK, publish, weights
from harness.waiting import wait_for


def test_replicas_of_one_machine_fetch_a_version_once(deploy, models, fault_proxy):
    publish(models, 1, weights(1))
    replicas = [deploy(endpoint=fault_proxy.url) for _ in range(3)]
    assert len({replica.wait_in_service(1) for replica in replicas}) == 3
    publish(models, 2, weights(2))
    for replica in replicas:
        replica.wait_in_service(2)
    for version in (1, 2):
        assert len(fault_proxy.seen("GET", path=rf"/mnist/{version}/weights$")) == 1
    for replica in replicas:
        replica.stop()


@pytest.mark.parametrize("unavailable", [1, 2])
def test_machines_take_turns(deploy, models, tmp_path, unavailable):
    publish(models, 1, weights(1))
    replicas = [deploy("--unavailable", unavailable, home=tmp_path / f"home-{i}") for i in range(4)]
    for replica in replicas:
        replica.wait_in_service(1)
    ended, most = threading.Event(), []

    def watch():
        while not ended.is_set():
            most.append(sum(entry["state"] == "rolling" for entry in replicas[0].replicas().values()))

    watcher = threading.Thread(target=watch)
    watcher.start()
    publish(models, 2, weights(2))
    for replica in replicas:
        replica.wait_in_service(2)
    ended.set()
    watcher.join()
    assert 1 <= max(most) <= unavailable
    states = wait_for(lambda: (lambda r: r if all(e["state"] == "serving" for e in r.values()) else None)(replicas[0].replicas()))
    assert sorted(e["serving"]["version"] for e in states.values()) == ["2"] * 4
    for replica in replicas:
        replica.stop()


def test_a_killed_machine_does_not_keep_its_turn(deploy, models, tmp_path):
    """The entry of the dead machine stays in the state 'rolling'; the other replica waits for one
    term by its own clock."""
    publish(models, 1, weights(1))
    deployment = deploy(home=tmp_path / "home")
    deployment.wait_in_service(1)
    replicas = deployment.replicas()
    replicas["gone:1"] = {"state": "rolling", "beat": 7, "updated": "2099-01-01T00:00:00.000Z"}
    wait_for(lambda: deployment.replicas())
    models.client.put_object(Bucket=BUCKET, Key="mnist/.penstock/deploy.json",
                             Body=json.dumps({"format": "penstock.deploy/1", "replicas": replicas}))
    publish(models, 2, weights(2))
    deployment.wait_for("fetching version '2'")
    assert "version '2' is in service" not in deployment.err
    deployment.wait_in_service(2)
    deployment.stop()
    assert list(deployment.replicas()) == ["gone:1"]


def test_the_cache_keeps_within_its_bound(deploy, models):
    size = 1_000_000
    for version in (1, 2, 3, 4):
        publish(models, version, str(version) * size)
        if version == 1:
            deployment = deploy("--cache-size", "2500kB", "--watch", "0s")
        deployment.wait_in_service(version)
        kept = sum(len(list(path.glob("**/weights"))) for path in deployment.home.glob("models/*"))
        assert kept <= 2
    publish(models, 5, "5" * 3 * size)
    deployment.wait_for("cannot fetch version '5'")
    assert deployment.get()["version"] == "4"
    deployment.stop()


def test_versions_out_of_service_are_pruned(deploy, models, penstock):
    def prune():
        found = penstock.run("prune", "--json", "--only", "models", "--older-than", "1ms").json()
        return [(item["stays"], item["bytes"] > 0) for item in found["items"]], len(list(penstock.home.glob("models/*/*/mnist")))

    publish(models, 1, weights(1))
    deployment = deploy()
    deployment.wait_in_service(1)
    publish(models, 2, weights(2))
    deployment.wait_in_service(2)
    wait_for(lambda: len(deployment.servers()) == 1)
    items, n = prune()
    assert sorted(items, key=str) == [("in use", True), (None, True)] and n == 1
    deployment.stop()
    assert prune() == ([(None, True)], 0)


def test_a_damaged_version_in_the_cache_is_fetched_again(deploy, models):
    publish(models, 1, weights(1))
    deployment = deploy()
    deployment.wait_in_service(1)
    deployment.stop()
    path = next(deployment.home.glob("models/*/*/mnist/1/weights"))
    path.write_text("xxxxxxxxxxxx")
    second = deploy()
    second.wait_in_service(1)
    assert second.get()["weights"] == weights(1) and "damaged" in second.err
    second.stop()


def test_without_the_store_the_last_version_is_served(deploy, models, fault_proxy):
    publish(models, 1, weights(1))
    first = deploy(endpoint=fault_proxy.url, port=0)
    first.wait_in_service(1)
    first.stop()
    fault_proxy.down()
    second = deploy(endpoint=fault_proxy.url)
    second.wait_in_service(1)
    assert second.get()["weights"] == weights(1)
    fault_proxy.up()
    publish(models, 2, weights(2))
    second.wait_in_service(2)
    second.stop()


def test_a_reader_without_rights_to_write(deploy, models, fault_proxy):
    publish(models, 1, weights(1))
    fault_proxy.fault(method="PUT", times=10**6, status=403)
    deployment = deploy(endpoint=fault_proxy.url)
    deployment.wait_in_service(1)  # the replica serves, but does not change its version without a turn
    deployment.wait_for("403|denied|Forbidden|forbidden")
    deployment.stop()
    second = deploy("--no-state", endpoint=fault_proxy.url)
    second.wait_in_service(1)
    publish(models, 2, weights(2))
    second.wait_in_service(2)
    second.stop()


def test_a_file_that_is_removed_while_it_is_fetched_is_no_missing_bucket(deploy, models, fault_proxy):
    publish(models, 1, weights(1))
    gone = fault_proxy.fault(method="GET", path="weights", times=1, status=404)
    deployment = deploy(endpoint=fault_proxy.url)
    deployment.wait_in_service(1)
    assert gone.hits == 1
    deployment.stop()


@pytest.mark.parametrize("model", ["mnist", "other"])
def test_an_address_belongs_to_one_deployment(deploy, models, penstock, model):
    """With SO_REUSEPORT, two deployments could share the address."""
    publish(models, 1, weights(1))
    first = deploy()
    port = first.wait_in_service(1)
    again = penstock.run("deploy", f"s3://{BUCKET}/{model}", "--listen", f"127.0.0.1:{port}", *QUICK, "--", "true", env=models.env)
    assert again.code == 69, again.err
    assert first.get()["weights"] == weights(1)
    first.stop()


def test_the_replicas_are_printed(deploy, models, penstock):
    publish(models, 1, weights(1))
    deployment = deploy()
    port = deployment.wait_in_service(1)
    wait_for(lambda: any(e["state"] == "serving" for e in deployment.replicas().values()))
    printed = penstock.run("deploy", "--status", f"s3://{BUCKET}/mnist", "--json", env=models.env).json()
    (name, entry), = printed.items()
    assert name.endswith(f":{port}") and entry["serving"]["version"] == "1"
    assert f":{port}" in penstock.run("deploy", "--status", f"s3://{BUCKET}/mnist", env=models.env).ok().out
    deployment.stop()
    for options in ((), ("--json",)):
        assert penstock.run("deploy", "--status", f"s3://{BUCKET}/mnist", *options, env=models.env).exits(66).out == ""


@pytest.mark.parametrize("arguments, code", [
    ((f"s3://{BUCKET}/m",), 64),
    (("models/m", "--", "true"), 64),
    ((f"s3://{BUCKET}/m", "--traffic", "magic", "--", "true"), 64),
    ((f"s3://{BUCKET}/m", "--traffic", "reuseport", "--health", "/x", "--", "true"), 64),
    ((f"s3://{BUCKET}/m", "--traffic", "HUP", "--", "true"), 64),
    ((f"s3://{BUCKET}/m", "--best", "loss", "--", "true"), 64),
    ((f"s3://{BUCKET}/m", "--cache-size", "much", "--", "true"), 64),
    ((f"s3://{BUCKET}/m", "--listen", "[::1]:0", "--", "true"), 64),
    ((f"s3://{BUCKET}/m", "--json", "--", "true"), 64),
    (("--status", f"s3://{BUCKET}/m", "--", "true"), 64),
    (("s3://missing-bucket/m", "--listen", "127.0.0.1:0", "--", "true"), 66),
    ((f"s3://{BUCKET}/m", "--", "no-such-program"), 66),
    (("--status", f"s3://{BUCKET}/m"), 66),
    (("--status", "s3://missing-bucket/m", "--json"), 66),
])
def test_misuse(models, penstock, arguments, code):
    result = penstock.run("deploy", *arguments, env=models.env)
    assert result.code == code, result.err
    assert len(result.err.strip().splitlines()) == 1
