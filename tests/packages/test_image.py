"""The container image, run by penstock itself."""
import json
import subprocess

from conftest import VERSION, built

# Starts a run with a store of its own inside the container of another run.
COMMAND = r"""
set -eu
penstock --version
echo '{"name": "inner", "steps": [{"name": "s", "run": {"command": "echo inside > $DEEPSQUARE_OUTPUT/a.txt"}}],
  "output": {"s3": {"endpointUrl": "embedded", "bucketUrl": "s3://inner", "path": "/"}}}' > inner.json
penstock run inner.json
penstock cat s3://inner/a.txt --endpoint-url embedded
"""


def test_a_step_in_the_image_runs_penstock(root):
    host = root("bookworm", "crun")
    host.run("apt-get", "-qq", "install", "-y", host.copy(built("penstock_*.deb")))
    image = host.copy(built("*-oci.tar"))
    step = {"name": "s", "run": {"command": COMMAND, "workDir": "/root", "shell": "/bin/bash", "container": {"image": image}}}
    (host.path / "outer.json").write_text(json.dumps({"name": "outer", "steps": [step]}))

    out = host.run("penstock", "run", "/outer.json")

    assert f"penstock {VERSION}" in out and "inside\n" in out


# Other programs read the configuration of the image.
def test_the_entry_point_is_penstock():
    config = subprocess.run(["skopeo", "inspect", "--config", f"oci-archive:{built('*-oci.tar')}"], check=True, capture_output=True, text=True)

    config = json.loads(config.stdout)["config"]

    assert config["Entrypoint"] == ["penstock"] and config["Cmd"] == ["--help"]
