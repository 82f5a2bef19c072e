"""The workflow files of the page "Persisting Data", byte for byte, in a network whose host names
lead to servers of the test.

Three things differ from the page: the addresses of the names, the trusted authority, and the
numbers of GPUs and CPUs, which --set adapts to this machine. The images have the page's names; they
are made of Debian packages.
"""
import json
import os
import pickle
import re
import shutil
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest
from botocore.exceptions import ClientError

from harness import debian_image
from harness.http_server import Server
from harness.jobs import EXAMPLE, PUBLISHED, SMALL, published, published_text, unbroken, weights
from harness.program import TOP, Penstock, Store
from harness.registry import BUSYBOX, Registry, busybox, image, layer
from harness.waiting import wait_for
from harness.world import World, is_possible

pytestmark = [
    pytest.mark.skipif(not os.path.exists(BUSYBOX), reason="busybox-static is not installed"),
    pytest.mark.skipif(not is_possible(), reason="a separate network namespace needs root"),
]

LESS = ["--set", "resources.gpusPerTask=0", "--set", "resources.cpusPerTask=1"]
ARCHIVE = "/~kriz/cifar-10-python.tar.gz"
SMALL_TRAINER = TOP / "tests" / "system" / "harness" / "small_trainer.py"
VENV = {".venv/pyvenv.cfg": b"home = /usr/bin\ninclude-system-site-packages = true\n", ".venv/bin/python3": "/usr/bin/python3"}
NAMES = {"etc/nsswitch.conf": b"hosts: files dns\n"}


def keys(name):
    """Returns the store's keys in the page's file."""
    s3 = published(name)["output"]["s3"]
    return s3["accessKeyId"], s3["secretAccessKey"]


def curl_image(authority):
    """An image like curlimages/curl: its user is not root, and it has only curl and a shell with its tools."""
    certificates = {"etc/ssl/certs/ca-certificates.crt": Path(authority).read_bytes()}
    layers = [busybox(), layer({"home/curl_user/": None}), debian_image.layer(debian_image.programs("/usr/bin/curl"), NAMES | certificates)]
    return image(layers, User="curl_user", WorkingDir="/home/curl_user", Entrypoint=["/entrypoint.sh"], Cmd=["curl"])


def trainer_image(package, files):
    return image([busybox(), debian_image.layer(debian_image.packages(package), VENV), debian_image.layer([], files)], WorkingDir="/app",
                 Env=["PATH=/.venv/bin:/usr/bin:/bin"])  # fmt: skip


def small_image():
    return trainer_image("python3-numpy", {"app/main.py": SMALL_TRAINER.read_bytes()})


# The files hold-EPOCH make this program wait, like the small trainer. The waiting program still
# detects a request to stop.
HELD = """
import os, sys, time
sys.argv += %r
sys.path.insert(0, "/app")
import example, checkpoint
written, hold = checkpoint.save, os.path.join(os.environ["DEEPSQUARE_TMP"], "hold-1")
watch = example.StopWatch
class Held(watch):
    def requested(self):
        while self.held and os.path.exists(hold) and not watch.requested(self):
            time.sleep(0.02)
        return watch.requested(self)
    held = False
def save(path, content):
    written(path, content)
    Held.held = True
checkpoint.save, example.StopWatch = save, Held
sys.exit(example.main())
"""


def torch_image():
    """Returns an image with examples/cifar10 in the place of the page's program."""
    files = {f"app/{path.name}": path.read_bytes() for path in EXAMPLE.glob("*.py")}
    files["app/example.py"] = files["app/main.py"]
    files["app/main.py"] = (HELD % SMALL.split()).encode()
    return trainer_image("python3-torch", files)


@pytest.fixture(scope="module")
def world(tmp_path_factory, cifar_archive):
    """The hosts of the page, which lead to `http` and `registry`, and to `store` if a test sets one."""
    folder = tmp_path_factory.mktemp("page")
    names = ["www.cs.toronto.edu", "ghcr.io", "registry-1.docker.io", "sos-at-vie-1.exo.io"]
    made = World(folder / "world", names)
    http, registry = Server(), Registry(folder / "registry")
    http.add(ARCHIVE, cifar_archive)
    registry.push("curlimages/curl:latest", curl_image(made.authority))
    for name, url in zip(names, (http.url, registry.url, registry.url)):
        made.lead(name, url)
    made.http, made.registry = http, registry
    yield made
    registry.close()
    shutil.rmtree(registry.folder)
    http.close()
    made.close()


@pytest.fixture
def pages(world, penstock, tmp_path):
    """pages.file(name): the path of one of the page's files; pages.store(name): a store that
    accepts the keys in that file."""
    program = Penstock(tmp_path / "servers")
    stores = []

    def store(name):
        for before in stores:
            before.stop()
        stores.append(Store(program, tmp_path / "store", None, *keys(name)))
        world.lead("sos-at-vie-1.exo.io", stores[-1].endpoint)
        return stores[-1]

    def file(name):
        path = tmp_path / f"{name}.json"
        path.write_text(published_text(name))
        return path

    penstock.prefix, penstock.env["SSL_CERT_FILE"] = world.prefix, str(world.authority)
    (penstock.home / "tmp").mkdir(parents=True)
    yield SimpleNamespace(store=store, file=file, tmp=penstock.home / "tmp")
    penstock.close()
    program.close()
    # Images are large, and pytest keeps the directories of three sessions.
    shutil.rmtree(penstock.home / "images", ignore_errors=True)


def checkpoint(store):
    """The checkpoint in the store; None if it is missing."""
    try:
        return store.bytes("cifar10", "ckpt.pth")
    except ClientError as error:
        assert error.response["Error"]["Code"] in ("NoSuchKey", "NoSuchBucket"), error
        return None


def test_the_committed_copies_are_what_the_page_says_but_for_keys():
    if not PUBLISHED.exists():
        pytest.skip(f"'{PUBLISHED}' is missing; the tests use the copies in tests/system/data")
    for name, copy in (("first", "seed-1-workflow.json"), ("resume", "seed-1-workflow-resume.json")):
        text = published_text(name)
        for key, shown in zip(keys(name), ("EXO***", "***")):
            text = text.replace(f'"{key}"', f'"{shown}"')
        assert text == (TOP / "tests/system/data" / copy).read_text()


def test_the_story_of_the_page(world, pages, penstock, pictures):
    # The first file stages the data, trains, publishes continuously, and is stopped; the second
    # file resumes from the checkpoint in the store.
    world.registry.push("deepsquare-io/cifar-10-example:latest", small_image())
    first, second = pages.file("first"), pages.file("resume")
    store = pages.store("first")
    store.client.create_bucket(Bucket="cifar10")
    (pages.tmp / "hold-2").touch()

    lacking = penstock.run("run", first).exits(65)
    training = penstock.popen("run", first, *LESS)
    training.wait_for_output("^epoch 2 ")
    wait_for(lambda: (checkpoint(store) or b"") and pickle.loads(checkpoint(store))["epoch"] == 2, what="the checkpoint is published")
    published_while_training = training.running()
    penstock.run("stop", penstock.ps()[0]["id"]).ok()
    stopped = training.wait()
    store = pages.store("resume")
    (pages.tmp / "hold-2").unlink()
    resumed = penstock.run("run", second, *LESS).ok()

    assert "--set resources.gpusPerTask=0" in lacking.err
    assert published_while_training and "stopping: saved epoch 2" in stopped.out
    assert [run["state"] for run in penstock.ps()] == ["succeeded", "stopped"]
    assert "resumed at epoch 2 from /deepsquare/input/ckpt.pth\nepoch 3" in resumed.out and "cifar-10-batches-py/data_batch_1\n" in resumed.out
    assert weights(resumed.out) == unbroken(pictures, "", SMALL_TRAINER)
    assert pickle.loads(checkpoint(store))["epoch"] == 4
    records = {key: store.bytes("cifar10", key).decode(errors="replace") for key in store.keys("cifar10", ".penstock/runs/")}
    logs = [text for key, text in records.items() if re.search(r"/log/\d+$", key)]
    assert len(logs) == 2 and any("epoch 4 " in log for log in logs)
    secret = keys("resume")[1]
    assert secret == "***" or not [text for text in (resumed.text, stopped.text, *records.values()) if secret in text]
    # penstock fetches the archive, and curl fetches it once, in a container without root.
    agents = [request.headers.get("user-agent", "") for request in world.http.seen(ARCHIVE, "GET") if request.status in (200, 206)]
    assert len([agent for agent in agents if agent.startswith("curl/")]) == 1 and len(agents) >= 2
    assert first.read_text() == published_text("first") and second.read_text() == published_text("resume")


def test_an_authority_that_nobody_trusts_is_refused_everywhere(world, pages, penstock):
    pages.store("first")

    refused = penstock.run("run", pages.file("first"), *LESS, env={"SSL_CERT_FILE": "/etc/ssl/certs/ca-certificates.crt"})

    assert refused.code in (66, 69, 77) and "certificate" in refused.err


def kill_the_supervisor(training):
    """Kills penstock itself: the shells that entered the namespace have called exec, so the pid is
    that of penstock."""
    training.send(signal.SIGKILL)
    training.wait()


@pytest.mark.long
def test_the_first_file_goes_on_after_kill_9(world, pages, penstock, pictures):
    world.registry.push("deepsquare-io/cifar-10-example:latest", small_image())
    store = pages.store("first")
    store.client.create_bucket(Bucket="cifar10")
    (pages.tmp / "hold-2").touch()

    training = penstock.popen("run", pages.file("first"), *LESS)
    training.wait_for_output("^epoch 2 ")
    wait_for(lambda: (checkpoint(store) or b"") and pickle.loads(checkpoint(store))["epoch"] == 2, what="the checkpoint is published")
    kill_the_supervisor(training)
    (pages.tmp / "hold-2").unlink()
    again = penstock.run("run", pages.file("first"), *LESS).ok()

    assert "resumed at epoch 2 from /deepsquare/output/ckpt.pth" in again.out
    assert weights(again.out) == unbroken(pictures, "", SMALL_TRAINER)
    assert [(run["state"], run["attempt"]) for run in penstock.ps()] == [("succeeded", 2)]


@pytest.mark.long
def test_the_story_of_the_page_with_pytorch(world, pages, penstock, pictures):
    world.registry.push("deepsquare-io/cifar-10-example:latest", torch_image())
    store = pages.store("first")
    store.client.create_bucket(Bucket="cifar10")
    (pages.tmp / "hold-1").touch()

    training = penstock.popen("run", pages.file("first"), *LESS)
    training.wait_for_output("checkpoint at step 3")
    wait_for(lambda: checkpoint(store), what="the checkpoint is published")
    penstock.run("stop", penstock.ps()[0]["id"]).ok()
    stopped = training.wait()
    store = pages.store("resume")
    (pages.tmp / "hold-1").unlink()
    resumed = penstock.run("run", pages.file("resume"), *LESS, deadline_s=600).ok()

    step = re.search(r"stopping: SIGTERM; saved step (\d+)", stopped.out).group(1)
    assert f"resumed at step {step} from /deepsquare/input/ckpt.pth" in resumed.out
    assert weights(resumed.out) == unbroken(pictures)
    shown = penstock.run("show", penstock.ps()[0]["id"], "--json").json()
    assert {entry["name"] for entry in shown["attempts"][-1]["provenance"]["images"]} == {
        "ghcr.io/deepsquare-io/cifar-10-example:latest", "docker.io/curlimages/curl:latest"}  # fmt: skip
    assert json.loads(published_text("first"))["continuousOutputSync"]
