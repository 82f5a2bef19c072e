"""examples/mnist-service as its README runs it."""
import gzip
import http.client
import json
import shutil
import struct
import subprocess

import numpy as np
import pytest

from harness.program import SHARED, TOP, binary
from harness.waiting import wait_for

EXAMPLE = TOP / "examples" / "mnist-service"
PYTHON = "/usr/bin/python3"
PACKAGE = TOP / "build" / "python"
PICTURES = 2000


@pytest.fixture
def digits(store):
    """MNIST's own digits if the machine has them, else noise with a bar, whose place shows the
    number."""
    images, labels = (SHARED / "data" / f"t10k-{name}-ubyte.gz" for name in ("images-idx3", "labels-idx1"))
    if images.exists():
        pictures = np.frombuffer(gzip.decompress(images.read_bytes()), "uint8", offset=16).reshape(-1, 28, 28)[:PICTURES]
        numbers = np.frombuffer(gzip.decompress(labels.read_bytes()), "uint8", offset=8)[:PICTURES]
    else:
        random = np.random.default_rng(7)
        numbers = random.integers(0, 10, PICTURES, dtype="uint8")
        pictures = random.integers(0, 90, (PICTURES, 28, 28), dtype="uint8")
        for picture, number in zip(pictures, numbers):
            picture[2 * number : 2 * number + 3] += 120
    store.client.create_bucket(Bucket="digits")
    for name, head, body in (("images-idx3", struct.pack(">4B3I", 0, 0, 8, 3, *pictures.shape), pictures),
                             ("labels-idx1", struct.pack(">4BI", 0, 0, 8, 1, len(numbers)), numbers)):
        store.client.put_object(Bucket="digits", Key=f"data/t10k-{name}-ubyte.gz", Body=gzip.compress(head + body.tobytes()))
    return pictures, numbers


def test_a_better_model_takes_over(penstock, store, digits, tmp_path):
    pictures, numbers = digits
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "penstock").symlink_to(binary())
    shutil.copytree(EXAMPLE, tmp_path / "example")
    env = penstock.env | store.env | {"PATH": f"{programs}:/usr/bin:/bin", "PYTHONPATH": str(PACKAGE)}

    def publish(name, options):
        settings = [word for setting in (f"output.s3.endpointUrl={store.endpoint}", f"name={name}", f"output.s3.path=/{name}") for word in ("--set", setting)]
        penstock.run("run", tmp_path / "example" / "workflow.yaml", *settings, "--env", f"PYTHONPATH={PACKAGE}", "--env",
                     f"TRAIN_OPTIONS={options}", env=env).ok()
        done = subprocess.run([PYTHON, tmp_path / "example" / "publish.py", name, "s3://digits/model"], env=env, text=True,
                              stdout=subprocess.PIPE, check=True)
        return float(done.stdout.split("accuracy ")[1].split()[0])

    def ask(picture):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("POST", "/", picture.tobytes())
        reply = json.loads(connection.getresponse().read())
        connection.close()
        return reply

    first = publish("small", "--hidden 4")
    deployment = penstock.popen("deploy", "s3://digits/model", "--listen", "127.0.0.1:0", "--interval", "200ms", "--watch", "300ms", "--",
                                PYTHON, tmp_path / "example" / "serve.py", "{model}", env=env)
    port = int(deployment.wait_for_output(r"version '1' is in service on \S+ port (\d+)")[1])
    assert ask(pictures[0])["version"] == "1"
    second = publish("large", "--hidden 64 --epochs 3")
    assert second > first
    deployment.wait_for_output("version '2' is in service")
    replies = [ask(picture) for picture in pictures[:100]]
    assert {reply["version"] for reply in replies} == {"2"}
    assert np.mean([reply["digit"] == number for reply, number in zip(replies, numbers)]) > 0.6
    store.client.put_object(Bucket="digits", Key="model/3/weights", Body=b"no checkpoint")
    deployment.wait_for_output("cannot serve version '3'")
    assert wait_for(lambda: ask(pictures[0]))["version"] == "2"
    deployment.send()
    deployment.wait(60).exits(0)
