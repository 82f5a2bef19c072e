"""Files of dstack, Determined and SkyPilot are run as they are."""
import os
import textwrap

import pytest

# The files of the page "Train your deep learning models on cloud" as they stand there; only the program is a small one, and
# the packages are those of this machine instead of "torch, torchvision, pytorch-lightning==1.6.2".
DSTACK = """
workflows:
  - name: train-mnist-no-gpu
    provider: python
    requirements: requirements.txt
    python_script: train.py
    artifacts:
      - data
    resources:
      cpu: 1

  - name: train-mnist-one-gpu
    provider: python
    requirements: requirements.txt
    python_script: train.py
    artifacts:
      - data
    resources:
      gpu: 1

  - name: train-mnist-multi-gpu
    provider: python
    requirements: requirements.txt
    python_script: train.py
    artifacts:
      - data
    resources:
      gpu: 4
"""
PLAIN = {"PATH": "/usr/bin:/bin", "PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": "/dev/null"}


@pytest.fixture
def project(tmp_path):
    """project(files): a directory with these files, each text without its indentation."""

    def write(files, name="dstack_test"):
        for path, text in files.items():
            place = tmp_path / name / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(textwrap.dedent(text))
        return tmp_path / name

    return write


@pytest.fixture
def dialects(penstock):
    penstock.env |= PLAIN
    return penstock


def output_of(result):
    """The directory that the run's last line names."""
    return result.err.rsplit("its output is in ", 1)[1].strip()


def test_the_dstack_workflows_of_the_seed_run_in_their_directory_and_below(dialects, project):
    where = project({
        ".dstack/workflows.yaml": DSTACK,
        "requirements.txt": "\n",
        "train.py": """
            import os, sys
            os.makedirs("data/MNIST/raw", exist_ok=True)
            open("data/MNIST/raw/model.pth", "w").write("trained")
            print("prefix", sys.prefix, os.environ["RUN_NAME"])
            """,
        "below/x": "",
    })  # fmt: skip
    dialects.cwd = where / "below"

    first = dialects.run("run", "train-mnist-no-gpu").ok()
    others = dialects.run("run", "train-mnist-one-gpu", "train-mnist-multi-gpu", "--set", "resources.gpusPerTask=0", "--wait").ok()

    assert "train-mnist-no-gpu" in first.out and "/venvs/" in first.out
    assert "train-mnist-one-gpu\n" in others.out and "train-mnist-multi-gpu\n" in others.out
    assert open(output_of(first) + "/data/MNIST/raw/model.pth").read() == "trained"
    # Three runs, one environment.
    assert len([name for name in os.listdir(dialects.home / "venvs") if not name.endswith(".lock")]) == 1
    assert not (where / "data").exists()


def test_gpus_that_are_not_there_are_told_with_what_helps(dialects, project):
    where = project({".dstack/workflows.yaml": DSTACK, "requirements.txt": "", "train.py": ""})
    dialects.cwd = where

    result = dialects.run("run", "train-mnist-multi-gpu").exits(65)

    assert "workflows.yaml:28:7: " in result.err and "--set resources.gpusPerTask=0" in result.err
