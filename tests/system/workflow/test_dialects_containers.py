"""Files of dstack, Determined and SkyPilot that name an image, and packages that come from an index."""
import hashlib
import io
import os
import re
import subprocess
import textwrap
import zipfile

import boto3
import pytest

from harness import debian_image
from harness.program import binary
from harness.registry import BUSYBOX, Registry, busybox, image
from harness.world import World, is_possible

contained = pytest.mark.skipif(not os.path.exists(BUSYBOX), reason="busybox-static is not installed")


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """Returns the host of a registry with the image job/bash:v1, which has bash, ln and a user."""
    registry = Registry(tmp_path_factory.mktemp("images") / "registry")
    registry.push("job/bash:v1", image([busybox(), debian_image.layer(debian_image.programs("/bin/bash", "/usr/bin/ln"))], User="user", WorkingDir="/tmp"))
    yield registry.host
    registry.close()


@pytest.fixture
def project(penstock, tmp_path):
    """project(files): a directory with these files, in which penstock is started; HOST in a file is
    replaced by the registry's host."""

    def write(files, host=""):
        for path, text in files.items():
            place = tmp_path / "project" / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(textwrap.dedent(text).replace("HOST", host))
        penstock.cwd = tmp_path / "project"
        return penstock.cwd

    return write


def output_of(result):
    """Returns the directory that the run's last line names."""
    return result.err.rsplit("its output is in ", 1)[1].strip()


DSTACK = """
workflows:
  - name: prepare
    provider: docker
    image: HOST/job/bash:v1
    commands:
      - mkdir -p data/words
      - echo "$GREETING $(cat word.txt)" > data/words/all.txt
    environment: {GREETING: hello}
    artifacts: [data]
  - name: train
    image: HOST/job/bash:v1
    deps:
      - workflow: prepare
    ports: 1
    commands:
      - cat data/words/all.txt > model.txt
      - test $PORT_0 -gt 1023 && pwd && id -u
      - "false"
      - echo "not reached"
    artifacts: [model.txt]
"""


@contained
def test_dstack_runs_in_its_image_with_what_another_workflow_made(penstock, project, images):
    project({".dstack/workflows.yaml": DSTACK, "word.txt": "world\n"}, images)

    prepared = penstock.run("run", "prepare").ok()
    trained = penstock.run("run", "train")
    said = penstock.run("validate", "train").ok().out

    assert open(output_of(prepared) + "/data/words/all.txt").read() == "hello world\n"
    assert trained.out == "/deepsquare/work\n0\n" and trained.code == 1
    got = penstock.run("artifacts", "get", penstock.ps()[0]["id"], "-o", "got")
    assert got.code == 0 and (penstock.cwd / "got/model.txt").read_text() == "hello world\n"
    assert ", a file of dstack\n" in said and f": in a container of {images}/job/bash:v1\n" in said


@contained
def test_determined_runs_in_its_image_with_its_mounts(penstock, project, images, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/training").write_text("samples\n")
    (tmp_path / "checkpoints").mkdir()
    project({
        "const.yaml": f"""
            name: const
            entrypoint: sh model.sh
            environment:
              image: {{cpu: HOST/job/bash:v1, cuda: HOST/job/none:v1}}
              environment_variables: [WORD=hello]
            hyperparameters: {{lr: 1e-1, decay: 1.0, layers: 3}}
            searcher: {{name: single, metric: loss, max_length: {{batches: 10}}}}
            bind_mounts:
              - {{host_path: {tmp_path}/data, container_path: /data, read_only: true}}
            checkpoint_storage: {{type: shared_fs, host_path: {tmp_path}/checkpoints}}
            max_restarts: 1
            """,
        "model.sh": """
            echo $DET_TRIAL_RUN_ID $WORD $(pwd) $(ls) $DET_HPARAMS
            cat /data/training
            touch /data/x && echo written
            echo saved >> /determined_shared_fs/checkpoint
            exit 7
            """,
        ".detignore": "*.tmp\n", "x.tmp": "",
    }, images)  # fmt: skip

    result = penstock.run("run", "const.yaml", "--context", ".").exits(7)
    said = penstock.run("validate", "const.yaml").ok().out

    words = 'hello /deepsquare/work const.yaml model.sh {"lr": 0.1, "decay": 1.0, "layers": 3}'
    assert result.out == f"1 {words}\nsamples\n2 {words}\nsamples\n"
    assert (tmp_path / "checkpoints/checkpoint").read_text() == "saved\nsaved\n" and not (tmp_path / "data/x").exists()
    assert ", a file of Determined\n" in said and "job/bash:v1" in said


@contained
def test_an_image_has_relative_mounts_and_the_core_api(penstock, project, images, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/training").write_text("samples\n")
    project({
        "const.yaml": f"""
            name: const
            entrypoint: cat sets/a/training /run/determined/workdir/b/training b/training $PYTHONPATH/sitecustomize.py
            environment: {{image: HOST/job/bash:v1}}
            searcher: {{name: single, metric: loss}}
            resources: {{slots: 0}}
            bind_mounts:
              - {{host_path: {tmp_path}/data, container_path: sets/a, read_only: true, propagation: rslave}}
              - {{host_path: {tmp_path}/data, container_path: /run/determined/workdir/b}}
            """,
    }, images)  # fmt: skip

    result = penstock.run("run", "const.yaml").ok()

    assert result.out.startswith("samples\nsamples\nsamples\n") and "DET_EXPERIMENT_CONFIG" in result.out


@contained
def test_skypilot_runs_in_its_image_with_its_files(penstock, project, images):
    project({
        "task.yaml": """
            workdir: code
            resources: {image_id: "docker:HOST/job/bash:v1", cpus: 1+}
            envs: {WORD: hello}
            file_mounts: {data/local.txt: ./local.txt, ~/sky_workdir/tree: ./tree}
            setup: |
              [[ -n $BASH_VERSION ]] && cat data/local.txt tree/a
              echo made > made.txt
            run: |
              echo $WORD $SKYPILOT_NODE_RANK; cat main.txt made.txt
              echo kept > $DEEPSQUARE_OUTPUT/model
            """,
        "code/main.txt": "main\n", "local.txt": "local\n", "tree/a": "tree\n",
    }, images)  # fmt: skip

    result = penstock.run("run", "task.yaml").ok()
    said = penstock.run("validate", "task.yaml").ok().out

    assert result.out == "local\ntree\nhello 0\nmain\nmade\n"
    assert open(output_of(result) + "/model").read() == "kept\n"
    assert ", a file of SkyPilot\n" in said and "  run: in a container of " in said


@contained
def test_an_image_that_is_not_there_is_told_at_once_in_every_dialect(penstock, project, images):
    project({
        ".dstack/workflows.yaml": "workflows: [{name: w, provider: docker, image: HOST/job/none:v1, commands: [echo ran]}]\n",
        "const.yaml": "name: c\nentrypoint: echo ran\nenvironment: {image: HOST/job/none:v1}\n",
        "task.yaml": "resources: {image_id: 'docker:HOST/job/none:v1'}\nrun: echo ran\n",
    }, images)  # fmt: skip

    for words in (["w"], ["const.yaml", "--context", "."], ["task.yaml"]):
        missing = penstock.run("run", *words).exits(66)
        assert "job/none:v1" in missing.err and "ran" not in missing.out


@pytest.mark.long
@pytest.mark.skipif(not is_possible(), reason="a separate network namespace needs root")
def test_skypilots_files_come_from_amazons_s3_and_the_web(penstock, project, tmp_path, http_server, moto):
    world = World(tmp_path / "world", ["s3.amazonaws.com", "data.s3.amazonaws.com", "files.example"])
    try:
        client = boto3.client("s3", endpoint_url=moto, region_name="us-east-1", aws_access_key_id="AKID", aws_secret_access_key="secret-of-nobody")
        client.create_bucket(Bucket="data")
        for key in ("set/one", "set/deep/two", "other"):
            client.put_object(Bucket="data", Key=key, Body=f"{key}\n".encode())
        http_server.add("/web.txt", b"of the web\n")
        for name in ("s3.amazonaws.com", "data.s3.amazonaws.com"):
            world.lead(name, moto)
        world.lead("files.example", http_server.url)
        project({"task.yaml": """
            envs: {BUCKET: data}
            file_mounts:
              in/set: s3://$BUCKET/set
              in/again: {source: "s3://data", mode: COPY}
              in/web.txt: https://files.example/web.txt
            run: |
              find in/set/ in/again/ -type f | sort
              cat in/set/deep/two in/web.txt
            """})  # fmt: skip
        keys = {"AWS_ACCESS_KEY_ID": "AKID", "AWS_SECRET_ACCESS_KEY": "secret-of-nobody"}
        penstock.prefix, penstock.env["SSL_CERT_FILE"] = world.prefix, str(world.authority)

        result = penstock.run("run", "task.yaml", env=keys).ok()
    finally:
        penstock.close()
        world.close()

    assert result.out.split("\n") == ["in/again/other", "in/again/set/deep/two", "in/again/set/one", "in/set/deep/two", "in/set/one",
                                      "set/deep/two", "of the web", ""]  # fmt: skip


def wheel(name, version, text):
    """A wheel of one module."""
    out, info = io.BytesIO(), f"{name}-{version}.dist-info"
    files = {f"{name}.py": text, f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
             f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}  # fmt: skip
    with zipfile.ZipFile(out, "w") as made:
        for path, content in files.items():
            made.writestr(path, content)
        made.writestr(f"{info}/RECORD", "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"]))
    return out.getvalue()


@pytest.fixture
def package_index(penstock, http_server):
    """A package index (PEP 503) with tinylib 1.0 and 2.0; pip's environment names the index."""
    links = ""
    for version in ("1.0", "2.0"):
        made = wheel("tinylib", version, f"version = '{version}'\n")
        path = f"/files/tinylib-{version}-py3-none-any.whl"
        http_server.add(path, made)
        links += f'<a href="{path}#sha256={hashlib.sha256(made).hexdigest()}">{path.rsplit("/", 1)[1]}</a>\n'
    http_server.add("/simple/tinylib/", f"<!DOCTYPE html><html><body>{links}</body></html>".encode(), Content_Type="text/html")
    penstock.env |= {"PIP_INDEX_URL": http_server.url + "/simple/", "PIP_CONFIG_FILE": "/dev/null", "PIP_RETRIES": "0", "PIP_NO_CACHE_DIR": "1"}
    return http_server


PYTHON = """
workflows:
  - name: train
    provider: python
    requirements: requirements.txt
    file: train.py
    args: [--lr, 0.1]
"""


@pytest.mark.long
def test_requirements_are_installed_once_from_the_index_and_kept(penstock, project, package_index):
    where = project({".dstack/workflows.yaml": PYTHON, "requirements.txt": "-r more.txt\n", "more.txt": "tinylib==1.0\n",
                     "train.py": "import sys, tinylib; print(tinylib.version, tinylib.__file__, sys.argv[1:])"})  # fmt: skip
    files = [f"/files/tinylib-{version}-py3-none-any.whl" for version in ("1.0", "2.0")]

    first = penstock.run("run", "train").ok()
    second = penstock.run("run", "train", env={"PIP_NO_INDEX": "1"}).ok()
    fetched = [len(package_index.seen(path, "GET")) for path in files]
    (where / "more.txt").write_text("tinylib>1\n")
    other = penstock.run("run", "train").ok()
    (where / "more.txt").write_text("tinylib==3\n")
    missing = penstock.run("run", "train").exits(65)

    printed = [result.out.splitlines()[-1] for result in (first, second, other)]  # after the output of pip
    assert printed[0] == printed[1] and re.fullmatch(r"1\.0 \S+/venvs/\S+/tinylib\.py \['--lr', '0\.1'\]", printed[0])
    assert fetched == [1, 0] and second.out.count("\n") == 1 and printed[2].startswith("2.0 ")
    assert "requirements.txt" in missing.err
    assert "tinylib==3" in penstock.run("logs", penstock.ps()[0]["id"]).ok().out
    assert len([entry for entry in os.scandir(penstock.home / "venvs") if entry.is_dir()]) == 2


@contained
@pytest.mark.skipif(os.geteuid() != 0, reason="a mount on the machine needs root")
@pytest.mark.parametrize("propagation, seen", [("rslave", True), ("rshared", True), ("private", False)])
def test_a_container_sees_what_the_machine_mounts_later_if_its_propagation_says_so(penstock, project, images, tmp_path, wait_for, propagation, seen):
    # The machine's mounts are in a mount namespace of the test.
    data = tmp_path / "data"
    data.mkdir()
    project({
        "const.yaml": f"""
            name: const
            entrypoint: "echo up > /data/up; until [ -e /data/go ]; do sleep 0.05; done; ls /data/later"
            environment: {{image: HOST/job/bash:v1}}
            searcher: {{name: single, metric: loss}}
            resources: {{slots: 0}}
            max_restarts: 0
            bind_mounts: [{{host_path: {data}, container_path: /data, propagation: {propagation}}}]
            """,
    }, images)  # fmt: skip
    script = f"""
        set -e
        mount -t tmpfs data {data}; mount --make-shared {data}; mkdir {data}/later
        {binary()} run const.yaml & run=$!
        until [ -e {data}/up ]; do sleep 0.05; kill -0 $run; done
        mount -t tmpfs later {data}/later; : > {data}/later/file; : > {data}/go
        wait $run
    """

    done = subprocess.run(["unshare", "--mount", "bash", "-c", script], cwd=penstock.cwd, env=penstock.env, capture_output=True, text=True, timeout=60)

    assert done.returncode == 0, done.stderr
    assert done.stdout == ("file\n" if seen else "")


@contained
def test_steps_are_put_into_an_image_of_the_command_line_and_stay_there(penstock, project, images):
    # `resume` reads the edited file, and keeps the image.
    where = project({"task.yaml": "name: t\nrun: |\n  [ -e /etc/debian_version ] || echo inside\n  exit 3\n"})

    first = penstock.run("run", "--image", f"{images}/job/bash:v1", "task.yaml").exits(3)
    (where / "task.yaml").write_text((where / "task.yaml").read_text().replace("exit 3", "echo fixed"))
    second = penstock.run("resume", "t").ok()

    assert first.out == "inside\n" and second.out == "inside\nfixed\n"
