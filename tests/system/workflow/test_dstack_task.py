"""`type: task` of current dstack runs as it is."""
import os
import subprocess
import textwrap

import pytest


mounting = pytest.mark.skipif(subprocess.run(["unshare", "--user", "--map-current-user", "--keep-caps", "--mount", "true"]).returncode != 0
                              and os.geteuid() != 0, reason="mount namespaces are not allowed here")  # fmt: skip


@pytest.fixture
def project(penstock, tmp_path):
    """project(files): a directory with these files, in which penstock is started."""

    def write(files):
        for path, text in files.items():
            place = tmp_path / "project" / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(textwrap.dedent(text))
        penstock.cwd = tmp_path / "project"
        return penstock.cwd

    return write


@mounting
def test_a_task_has_its_files_volumes_variables_and_arguments(penstock, project, tmp_path):
    project({
        ".dstack.yml": f"""
            type: task
            name: train
            env: [A=1, TOKEN]
            repos: ["."]
            files: [one.txt, "tree:/penstock-files", "~/two.txt"]
            volumes: ["{tmp_path}/disk:/penstock-disk", "ckpts:/penstock-ckpts"]
            commands:
              - |
                # the working directory
                cd src
              - cat main.txt ../one.txt ~/two.txt /penstock-files/a /penstock-disk/old
              - echo $A $TOKEN $DSTACK_NODE_RANK $DSTACK_NODES_NUM $DSTACK_MASTER_NODE_IP ${{{{ run.args }}}}
              - echo new > /penstock-disk/new && echo weights > /penstock-ckpts/model.pt
              - "false"
              - echo not reached
            """,
        "src/main.txt": "main\n", "one.txt": "one\n", "tree/a": "tree\n", "../disk/old": "old\n", "../user/two.txt": "two\n",
    })  # fmt: skip
    penstock.env |= {"TOKEN": "hf", "HOME": str(tmp_path / "user")}

    result = penstock.run("run", ".dstack.yml", "--epochs", "3").exits(1)

    assert result.out == "main\none\ntwo\ntree\nold\n1 hf 0 1 127.0.0.1 --epochs 3\n"
    assert (tmp_path / "disk/new").read_text() == "new\n"
    assert [path.read_text() for path in penstock.home.glob("runs/*/storage/output/ckpts/model.pt")] == ["weights\n"]
    assert not os.path.exists("/penstock-disk") and os.listdir(tmp_path / "user") == ["two.txt"]


def test_a_task_that_fails_is_retried_and_one_that_takes_too_long_ends(penstock, project):
    project({
        "retry.dstack.yml": "type: task\nname: again\nretry: true\ncommands: [test $PENSTOCK_ATTEMPT = 2]\n",
        "long.dstack.yml": "type: task\nname: long\nmax_duration: 1\ncommands: [sleep 60]\n",
    })  # fmt: skip

    penstock.run("run", "retry.dstack.yml", "--set", "retry.backoff=1ms").ok()
    long = penstock.run("run", "long.dstack.yml")

    assert long.code != 0 and {run["name"]: run["state"] for run in penstock.ps()} == {"again": "succeeded", "long": "failed"}
