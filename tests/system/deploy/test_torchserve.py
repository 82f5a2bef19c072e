"""A model store of the real TorchServe, which examples/torchserve serves."""
import subprocess
import sys
import tempfile

import pytest

from harness.deployment import BUCKET, QUICK, Load
from harness.program import TOP
from harness.waiting import wait_for

SERVE = TOP / "examples" / "torchserve" / "serve.sh"
START_S = 300  # a start takes 15 s on a machine without other programs
VERSIONS = 2
HANDLER = """
import torch
from ts.torch_handler.base_handler import BaseHandler

class Handler(BaseHandler):
    def preprocess(self, data):
        return torch.zeros(len(data), 1)

    def postprocess(self, output):
        return [{"version": int(row), "weights": f"weights of {int(row)}"} for row in output]
"""
MODEL = """
import sys
import torch
model = torch.nn.Linear(1, 1)
torch.nn.init.constant_(model.bias, int(sys.argv[1]))
torch.jit.script(model).save("model.pt")
"""


@pytest.fixture
def publish(models, torchserve_venv, tmp_path):
    """publish(name, version): archives a model that replies with the version, and uploads the archive."""

    def upload(name, version, handler=HANDLER):
        subprocess.run(["/usr/bin/python3", "-c", MODEL, str(version)], cwd=tmp_path, check=True)
        (tmp_path / "handler.py").write_text(handler)
        subprocess.run([torchserve_venv / "bin" / "torch-model-archiver", "--model-name", name, "--version", "1.0", "--serialized-file", "model.pt",
                        "--handler", "handler.py", "--force"], cwd=tmp_path, check=True)  # fmt: skip
        models.client.put_object(Bucket=BUCKET, Key=f"mnist/{name}.mar", Body=(tmp_path / f"{name}.mar").read_bytes())

    return upload


@pytest.fixture
def torchserve(penstock, torchserve_venv):
    """The environment of the deployment: TorchServe, Java and HAProxy, and a directory for sockets, whose paths are short."""
    subprocess.run([TOP / "tools" / "install-deps", "peers"], stdout=sys.stderr, check=True)
    with tempfile.TemporaryDirectory(prefix="torchserve-") as folder:
        penstock.env |= {"PATH": f"{torchserve_venv}/bin:{penstock.env['PATH']}", "TMPDIR": folder}
        yield


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_model_store_changes_without_a_failed_request(torchserve, deploy, models, publish):
    publish("digits", 1)
    deployment = deploy("--health", "/ping", "--start-timeout", f"{START_S}s", quick=(*QUICK[:4], "--watch", "2s"), command=[SERVE])

    def in_service(count):
        wait_for(lambda: len(deployment.look("is in service")) == count, START_S, f"{count} versions in {deployment.err!r}")

    in_service(1)
    load = Load(deployment.wait_in_service("[0-9a-f]{12}"), path="/predictions/digits")
    for version in range(2, VERSIONS + 1):
        publish("digits", version)
        in_service(version)
        wait_for(lambda: load.versions[-1:] == [version])
    publish("letters", 26)
    in_service(VERSIONS + 1)
    assert deployment.get("/predictions/letters")["version"] == 26
    publish("letters", 27, "raise RuntimeError('the weights cannot be loaded')")
    wait_for(lambda: deployment.look("cannot serve version"), START_S, "a refused version")
    assert deployment.get("/predictions/letters")["version"] == 26
    publish("letters", 28)
    in_service(VERSIONS + 2)
    assert deployment.get("/predictions/letters")["version"] == 28
    load.stop()
    assert load.errors == []
    print(f"{load.count} requests, {VERSIONS + 2} versions")
    deployment.stop()
