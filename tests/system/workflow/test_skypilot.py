"""Task files of SkyPilot mean the same here: files and results are at the paths that they name."""
import os
import re
import subprocess
import textwrap

import pytest

from harness import debian_image
from harness.gcs import Gcs
from harness.registry import BUSYBOX, Registry, busybox, image

contained = pytest.mark.skipif(not os.path.exists(BUSYBOX), reason="busybox-static is not installed")
# penstock needs mount namespaces to mount files without mount points on the machine.
mounting = pytest.mark.skipif(subprocess.run(["unshare", "--user", "--map-current-user", "--keep-caps", "--mount", "true"]).returncode != 0
                              and os.geteuid() != 0, reason="mount namespaces are not allowed here")  # fmt: skip


@pytest.fixture
def project(penstock, tmp_path):
    """project(files): a directory with these files, in which penstock is started."""
    penstock.env |= {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(tmp_path / "user"), "PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": "/dev/null"}
    (tmp_path / "user").mkdir()

    def write(files, host=""):
        for path, text in files.items():
            place = tmp_path / "project" / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(textwrap.dedent(text).replace("HOST", host))
        penstock.cwd = tmp_path / "project"
        return penstock.cwd

    return write


def use(penstock, store):
    """Sets the store in the environment, as for the AWS tools."""
    penstock.env |= {"AWS_ENDPOINT_URL": store.endpoint, "AWS_ACCESS_KEY_ID": store.access_key, "AWS_SECRET_ACCESS_KEY": store.secret_key}


@mounting
def test_files_are_at_absolute_paths_and_below_the_home_and_nowhere_on_the_machine(penstock, project, tmp_path):
    where = project({
        "task.yaml": f"""
            workdir: code
            envs: {{SET: corpus}}
            file_mounts:
              /penstock-test/${{SET}}: ./tree
              /penstock-test/one.txt: ./one.txt
              {tmp_path}/beside/new.txt: ./one.txt
              ~/.config/tool/one.txt: ./one.txt
              ~/${{SET}}: ./tree
              /penstock-list: {{source: [./one.txt, ./tree], mode: COPY}}
            setup: echo set up > ~/made; mkdir /penstock-made
            run: |
              cat /penstock-test/corpus/a /penstock-test/one.txt {tmp_path}/beside/new.txt ~/.config/tool/one.txt ~/corpus/a
              cat ~/sky_workdir/main.txt ~/made ~/own /penstock-list/one.txt /penstock-list/tree/a {tmp_path}/beside/old
              ls -d /penstock-made ~/.config/other
            """,
        "code/main.txt": "main\n", "one.txt": "one\n", "tree/a": "tree\n", "../beside/old": "old\n",
        "../user/own": "own\n", "../user/.config/other": "",
    })  # fmt: skip

    result = penstock.run("run", "task.yaml").ok()

    lines = "tree one one one tree main set\x00up own one tree old /penstock-made".split()
    assert result.out.split("\n")[:-2] == [line.replace("\x00", " ") for line in lines]
    assert not os.path.exists("/penstock-test") and not os.path.exists("/penstock-made") and not os.path.exists("/penstock-list")
    assert sorted(os.listdir(tmp_path / "beside")) == ["old"]
    assert sorted(os.listdir(tmp_path / "user")) == [".config", "own"] and os.listdir(tmp_path / "user/.config") == ["other"]
    assert sorted(os.listdir(where)) == ["code", "one.txt", "task.yaml", "tree"]


@mounting
def test_results_that_are_written_to_a_mounted_bucket_are_in_the_bucket(penstock, project, store):
    # The task uses the store of the environment, one object as a file, and a bucket that it only
    # reads.
    use(penstock, store)
    store.client.create_bucket(Bucket="corpus")
    store.client.create_bucket(Bucket="results")
    store.client.put_object(Bucket="corpus", Key="v2/words.txt", Body=b"words\n")
    project({"task.yaml": """
        envs: {TO: results}
        file_mounts:
          /penstock-checkpoints: {name: "${TO}", store: s3, mode: MOUNT}
          /penstock-corpus: {source: "s3://corpus/v2"}
          in/words.txt: s3://corpus/v2/words.txt
          ~/words.txt: s3://corpus/v2/words.txt
        run: |
          cat /penstock-corpus/words.txt in/words.txt ~/words.txt
          mkdir /penstock-checkpoints/epoch-1
          echo weights > /penstock-checkpoints/epoch-1/model.pt
        """})  # fmt: skip

    result = penstock.run("run", "task.yaml").ok()

    assert result.out == "words\nwords\nwords\n"
    assert store.client.get_object(Bucket="results", Key="epoch-1/model.pt")["Body"].read() == b"weights\n"


def test_a_bucket_is_not_mounted_over_files(penstock, project, store):
    """Results would be in a directory of the machine instead of the bucket."""
    use(penstock, store)
    store.client.create_bucket(Bucket="results")
    project({
        "task.yaml": """
            workdir: code
            file_mounts:
              out: {name: results, store: s3, mode: MOUNT}
            run: echo weights > out/model.pt
            """,
        "code/out/old": "old\n",
    })  # fmt: skip

    result = penstock.run("run", "task.yaml").exits(1)

    assert "cannot mount" in result.err


# The task file of the page "ML training on preemptible VMs", unchanged.
SPOT = """\
resources:
  # Optional; if left out, automatically pick the cheapest cloud.
  cloud: gcp
  region: us-west1
  use_spot: true

# Working directory (optional) containing the project codebase.
# Its contents are synced to ~/sky_workdir/ on the cluster.
# workdir: .

file_mounts:
  /checkpoints:
    name: skypilot-pytorch-checkpoints
    store: gcs
    mode: MOUNT

# Typical use: pip install -r requirements.txt
# Invoked under the workdir (i.e., can use its files).
setup: |
  sudo apt-get update
  ls --all
  echo "Running SkyPilot setup script."
  pip install -r requirements.txt
  echo "Finished SkyPilot setup script."

# Typical use: make use of resources, such as running training.
# Invoked under the workdir (i.e., can use its files).
run: |
  echo "Hello, SkyPilot!"
  python index.py
"""


@mounting
def test_the_task_of_the_page_on_spot_machines_runs_as_it_is(penstock, project, tmp_path):
    gcs = Gcs()
    try:
        gcs.buckets["skypilot-pytorch-checkpoints"] = {}
        penstock.env |= gcs.env
        project({
            "skypilot.yaml": SPOT,
            "requirements.txt": "",
            "../bin/apt-get": "#!/bin/sh\necho apt-get $1\n", "../bin/sudo": "#!/bin/sh\nexec \"$@\"\n",
            "index.py": "import sys; open('/checkpoints/cifar.pth', 'w').write('trained'); print(sys.prefix)",
        })  # fmt: skip

        for name in ("apt-get", "sudo"):  # fakes, because the machine may have no network
            (tmp_path / "bin" / name).chmod(0o755)
        penstock.env["PATH"] = f"{tmp_path}/bin:" + penstock.env["PATH"]

        result = penstock.run("run", "skypilot.yaml", "--context", ".").ok()

        assert "Finished SkyPilot setup script." in result.out and re.search(r"/storage/venv$", result.out, re.M)
        assert gcs.bodies("skypilot-pytorch-checkpoints")["cifar.pth"] == b"trained"
    finally:
        gcs.close()


@contained
def test_setup_and_run_share_one_container_with_root_and_its_files(penstock, project, tmp_path):
    registry = Registry(tmp_path / "registry")
    try:
        registry.push("job/bash:v1", image([busybox(), debian_image.layer(debian_image.programs("/bin/bash", "/usr/bin/readlink", "/usr/bin/id", "/usr/bin/ln"))], User="user", WorkingDir="/tmp"))
        project({
            "task.yaml": """
                workdir: code
                resources: {image_id: "HOST/job/bash:v1"}
                file_mounts: {/data/in: ./tree, ~/more: ./tree}
                setup: sudo sh -c 'echo installed > /tool'
                run: cat /tool /data/in/a ~/more/a ~/sky_workdir/main.txt
                """,
            "code/main.txt": "main\n", "tree/a": "tree\n",
        }, registry.host)  # fmt: skip

        result = penstock.run("run", "task.yaml").ok()

        assert result.out == "installed\ntree\ntree\nmain\n"
    finally:
        registry.close()


def test_conda_is_activated_as_in_a_login_shell(penstock, project, tmp_path):
    project({
        "task.yaml": "setup: conda activate mine && echo $ENVIRONMENT\nrun: conda activate other && echo $ENVIRONMENT\n",
        "../user/miniconda3/etc/profile.d/conda.sh": "conda() { ENVIRONMENT=$2; }\n",
    })  # fmt: skip

    assert penstock.run("run", "task.yaml").ok().out == "mine\nother\n"


def test_the_working_directory_is_a_commit_of_a_repository(penstock, project, tmp_path):
    where = tmp_path / "repository"
    where.mkdir()
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "x"], ["tag", "v1"]):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=where, check=True)
    (where / "later.txt").write_text("later")
    for words in (["add", "."], ["commit", "-q", "-m", "later"]):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=where, check=True)
    project({
        "first.yaml": f"workdir: {{url: 'file://{where}', ref: v1}}\nfile_mounts: {{in.txt: ./in.txt}}\nrun: ls\n",
        "last.yaml": f"workdir: {{url: 'file://{where}'}}\nrun: ls\n",
        "in.txt": "in\n",
    })  # fmt: skip

    assert penstock.run("run", "first.yaml").ok().out == "in.txt\n"
    assert penstock.run("run", "last.yaml").ok().out == "later.txt\n"


def test_a_continued_run_has_the_commit_that_is_there_now(penstock, project, tmp_path):
    # A step of the earlier attempt has changed a file of the working directory.
    where = tmp_path / "repository"
    where.mkdir()

    def commit(text):
        (where / "code.sh").write_text(text)
        (where / "other.sh").write_text("echo other\n")
        for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "x"]):
            subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=where, check=True)

    commit("echo first; exit 3\n")
    project({"task.yaml": f"name: task\nworkdir: {{url: 'file://{where}'}}\nresources: {{cpus: 1}}\n"
                          "setup: echo echo changed >> other.sh\nrun: sh other.sh; sh code.sh\n"})  # fmt: skip

    first = penstock.run("run", "task.yaml").exits(3)
    same = penstock.run("run", "task.yaml").exits(3)
    commit("echo second\n")
    fixed = penstock.run("run", "task.yaml").ok()

    assert first.out == same.out == "other\nchanged\nfirst\n" and "code.sh" not in same.err
    assert fixed.out == "other\nsecond\n" and "code.sh" in fixed.err


def test_several_nodes_are_refused_on_one_machine_with_what_helps(penstock, project):
    project({"task.yaml": "num_nodes: 2\nresources: {cpus: 1}\nrun: echo $SKYPILOT_NUM_NODES\n"})

    refused = penstock.run("run", "task.yaml").exits(65)
    here = penstock.run("run", "task.yaml", "--set", "resources.tasksPerNode=null")

    assert "--on slurm" in refused.err and "--set resources.tasksPerNode=null" in refused.err
    if (os.cpu_count() or 1) > 1:
        assert sorted(here.ok().out.splitlines()) == ["[0] 2", "[1] 2"]


@mounting
def test_a_file_of_several_tasks_is_a_chain_of_runs(penstock, project, store):
    use(penstock, store)
    store.client.create_bucket(Bucket="models")
    mounts = "file_mounts: {/penstock-models: {name: models, store: s3}}\nresources: {cpus: 1}"
    project({
        "pipeline.yaml": "name: pipeline\n---\nname: train\nMOUNTS\nrun: echo weights > /penstock-models/m\n---\n"
                         "name: eval\nMOUNTS\nrun: cat /penstock-models/m\n---\nname: last\nresources: {cpus: 1}\nrun: exit 3\n".replace("MOUNTS", mounts),
    })  # fmt: skip

    result = penstock.run("run", "pipeline.yaml").exits(3)
    one = penstock.run("run", "pipeline.yaml", "--workflow", "eval").ok()

    assert result.out == "weights\n" and one.out == "weights\n"
    assert {run["name"]: run["state"] for run in penstock.ps()} == {"train": "succeeded", "eval": "succeeded", "last": "failed"}
    assert penstock.run("validate", "pipeline.yaml").ok().out.count(", a file of SkyPilot") == 3


def test_a_task_of_several_is_resumed_with_its_fix_and_its_secret(penstock, project):
    where = project({"pipeline.yaml": """
        name: pipeline
        ---
        name: prepare
        resources: {cpus: 1}
        run: "true"
        ---
        name: train
        resources: {cpus: 1}
        envs: {HF_TOKEN: hf_abcdefghijklmnopqrstuvwxyz012345}
        run: echo first ${#HF_TOKEN}; exit 3
        """})  # fmt: skip
    path = where / "pipeline.yaml"
    penstock.run("run", "pipeline.yaml").exits(3)
    again = penstock.run("resume", "train").exits(3)
    path.write_text(path.read_text().replace("first", "second").replace("exit 3", "exit 0"))

    fixed = penstock.run("resume", "train").ok()

    assert (again.out, fixed.out) == ("first 35\n", "second 35\n")


def test_strict_makes_notes_mistakes(penstock, project):
    project({"task.yaml": "resources: {cpus: 1, region: west}\nrun: echo ran\n"})

    refused = penstock.run("run", "--strict", "task.yaml").exits(65)

    assert "task.yaml:1:22: " in refused.err and "ran" not in refused.out and penstock.ps() == []
    assert penstock.run("validate", "task.yaml").code == 0 and penstock.run("validate", "--strict", "task.yaml").code == 65
    assert penstock.run("run", "task.yaml").ok().out == "ran\n"


def test_what_setup_appends_to_bashrc_is_read_by_run_and_stays_in_the_run(penstock, project, tmp_path):
    # SkyPilot's shells read ~/.bashrc, on a machine that is discarded.
    home = tmp_path / "own-home"
    home.mkdir()
    (home / ".bashrc").write_text("return\n")
    penstock.env["HOME"] = str(home)
    project({"task.yaml": "setup: echo export WHO=setup >> ~/.bashrc\nrun: echo $WHO\n"})

    assert penstock.run("run", "task.yaml").ok().out == "setup\n"
    assert (home / ".bashrc").read_text() == "return\n"


def test_uv_makes_environments_where_it_is_missing(penstock, project):
    # Machines of SkyPilot and dstack have uv.
    penstock.env["PATH"] = "/usr/bin:/bin"
    project({"task.yaml": "run: |\n  uv venv --seed --python=3 own\n  . own/bin/activate\n  python -c 'import sys; print(sys.prefix)'\n"})

    assert penstock.run("run", "task.yaml").ok().out.rstrip().endswith("/work/own")


def test_on_a_cluster_a_file_without_cpus_has_a_note(penstock, project):
    project({"task.yaml": "num_nodes: 2\nrun: x\n"})

    assert "resources.cpusPerTask" in penstock.run("run", "--dry-run", "--on", "slurm", "task.yaml").ok().err
    assert "resources.cpusPerTask" not in penstock.run("validate", "task.yaml").ok().err


def test_what_only_machines_of_skypilot_have_is_a_note(penstock, project):
    project({"task.yaml": "num_nodes: 2\nsetup: ~/sky_templates/ray/start_cluster\nrun: mpirun -H a,b cat /home/ubuntu/x\n"})

    err = penstock.run("validate", "task.yaml").ok().err

    assert "'setup' uses ~/sky_templates" in err and "'run' uses `mpirun`" in err and "/home/ubuntu/" in err
