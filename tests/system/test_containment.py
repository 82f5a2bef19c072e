"""What a container may not: its image and its steps reach nothing of the machine but what the workflow gives them."""
import json
import os
from pathlib import Path

import pytest

from harness.registry import BUSYBOX, busybox, image, layer, write_layout

pytestmark = pytest.mark.skipif(not os.path.exists(BUSYBOX), reason="busybox-static is not installed")

RESOURCES = {"tasks": 1, "cpusPerTask": 1, "memPerCpu": 64, "gpus": 0}
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
        path = tmp_path / "wf.json"
        path.write_text(json.dumps({"resources": RESOURCES, "steps": steps} | fields))
        return path

    return write


def test_the_variables_of_an_image_are_its_own(penstock, contained, tmp_path):
    # A link in the image means a directory of the image, not the one of that name on this machine.
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "environment").write_text("FROM_HERE=leaked\n")
    inside = str(tmp_path / "etc").lstrip("/")
    path = contained('echo "[$FROM_HERE][$FROM_IMAGE]"', layers=[layer({"etc": ("l", "/" + inside), inside + "/environment": "FROM_IMAGE=yes\n"})])

    assert penstock.run("run", path).ok().out == "[][yes]\n"


def test_an_environment_file_of_any_length_is_refused(penstock, contained):
    path = contained("echo never", layers=[layer({"etc/environment": "A=" + "x" * 2_000_000})])

    refused = penstock.run("run", path)

    assert refused.code != 0 and "has a /etc/environment of more than" in refused.err and "never" not in refused.out
