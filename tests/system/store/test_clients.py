"""Common S3 programs, each against `penstock serve`: put, multipart, range, a list of more than
1,000 keys, copy, delete, presign."""
import os
import shutil
import subprocess
import urllib.request

import pytest

from harness.program import TOP

MIB = 1024 * 1024
KEYS = 1005
HARNESS = TOP / "tests" / "system" / "harness"


@pytest.fixture
def shell(store, penstock, tmp_path):
    """shell("aws", "s3", ...): its standard output; the store's keys and endpoint are in the environment."""
    folder = tmp_path / "work"
    folder.mkdir()

    def run(*arguments, env=None, text=True):
        done = subprocess.run(
            [str(argument) for argument in arguments],
            env=penstock.env | store.env | {"NO_PROXY": "127.0.0.1"} | (env or {}),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=300,
        )
        assert done.returncode == 0, f"{arguments}\n{done.stdout.decode()}\n{done.stderr.decode()}"
        return done.stdout.decode() if text else done.stdout

    run.folder = folder
    return run


@pytest.fixture
def files(shell):
    """Makes a small file, a large file, and a folder of more than a thousand files."""
    (shell.folder / "small").write_bytes(b"small\n")
    (shell.folder / "large").write_bytes(os.urandom(20 * MIB + 3))
    (shell.folder / "many").mkdir()
    for i in range(KEYS):
        (shell.folder / "many" / f"f{i:05}").write_bytes(b"%d" % i)
    return shell.folder


def fetch(url):
    return urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=30).read()


# Most programs use boto3. The test uses Debian's version.
def test_boto3_of_debian(shell):
    assert "done" in shell("/usr/bin/python3", HARNESS / "boto3_exercise.py")


# The current version signs and adds checksums differently: by default, it sends aws-chunked bodies
# with trailers.
def test_boto3_of_today(shell, venv):
    assert "done" in shell(venv / "bin" / "python", HARNESS / "boto3_exercise.py")


# The program uses the SDK for JavaScript, whose modules must be in a directory next to the program.
@pytest.mark.long
def test_javascript(shell, javascript_libraries):
    shutil.copy(TOP / "tests" / "javascript" / "exercise.mjs", shell.folder)
    (shell.folder / "node_modules").symlink_to(javascript_libraries)

    assert "done" in shell("node", "exercise.mjs")


# pyarrow uses the SDK for C++, which has checksums and parts of its own.
@pytest.mark.long
def test_pyarrow(shell, tables_venv):
    assert "done" in shell(tables_venv / "bin" / "python", HARNESS / "arrow_exercise.py")


# s3torchconnector uses AWS's common runtime, through the client of mountpoint-s3.
@pytest.mark.long
def test_s3torchconnector(shell, s3torch_venv, store):
    store.client.create_bucket(Bucket="torch")

    assert "done" in shell(s3torch_venv / "bin" / "python", HARNESS / "torch_exercise.py")
    assert store.client.list_multipart_uploads(Bucket="torch").get("Uploads", []) == []


@pytest.mark.long
def test_awscli(shell, files, store):
    def aws(*arguments, **more):
        return shell("/usr/bin/aws", "--endpoint-url", store.endpoint, *arguments, **more)

    aws("s3", "mb", "s3://cli")
    aws("s3", "cp", "--no-progress", "small", "s3://cli/d/small")
    aws("s3", "cp", "--no-progress", "large", "s3://cli/d/large")
    aws("s3", "cp", "--no-progress", "s3://cli/d/large", "back")
    assert (files / "back").read_bytes() == (files / "large").read_bytes()
    assert "-3" in aws("s3api", "head-object", "--bucket", "cli", "--key", "d/large")
    aws("s3api", "get-object", "--bucket", "cli", "--key", "d/large", "--range", "bytes=100-199", "part")
    assert (files / "part").read_bytes() == (files / "large").read_bytes()[100:200]

    aws("s3", "sync", "--no-progress", "--quiet", "many", "s3://cli/many")
    assert len(aws("s3", "ls", "s3://cli/many/").splitlines()) == KEYS
    assert "PRE many/" in aws("s3", "ls", "s3://cli/")
    aws("s3", "cp", "s3://cli/d/large", "s3://cli/copied")
    aws("s3", "mv", "s3://cli/d/small", "s3://cli/moved")
    assert aws("s3", "cp", "s3://cli/moved", "-") == "small\n"
    assert fetch(aws("s3", "presign", "s3://cli/copied").strip()) == (files / "large").read_bytes()
    aws("s3", "rm", "--quiet", "--recursive", "s3://cli/many")
    assert aws("s3", "ls", "--recursive", "s3://cli").count("\n") == 3
    aws("s3", "rb", "--force", "s3://cli")


@pytest.mark.long
def test_s3cmd(shell, files, store):
    (files / "config").write_text(
        f"[default]\naccess_key = {store.access_key}\nsecret_key = {store.secret_key}\n"
        f"host_base = {store.address}\nhost_bucket = {store.address}\nuse_https = False\n"
    )

    def s3cmd(*arguments):
        return shell("/usr/bin/s3cmd", "-c", "config", "--no-progress", *arguments)

    s3cmd("mb", "s3://cmd")
    s3cmd("put", "small", "s3://cmd/d/small")
    s3cmd("put", "--multipart-chunk-size-mb=5", "large", "s3://cmd/d/large")
    s3cmd("get", "s3://cmd/d/large", "back")
    assert (files / "back").read_bytes() == (files / "large").read_bytes()
    (files / "resumed").write_bytes((files / "large").read_bytes()[:MIB])
    s3cmd("get", "--continue", "s3://cmd/d/large", "resumed")  # a range
    assert (files / "resumed").read_bytes() == (files / "large").read_bytes()

    s3cmd("put", "--recursive", "many", "s3://cmd/")
    assert len(s3cmd("ls", "s3://cmd/many/").splitlines()) == KEYS
    s3cmd("cp", "s3://cmd/d/small", "s3://cmd/copied")
    s3cmd("mv", "s3://cmd/copied", "s3://cmd/moved")
    assert "MD5 sum" in s3cmd("info", "s3://cmd/moved")
    assert fetch(s3cmd("signurl", "s3://cmd/moved", "+600").strip()) == b"small\n"
    s3cmd("del", "--recursive", "--force", "s3://cmd/many/")
    assert len(s3cmd("ls", "--recursive", "s3://cmd").splitlines()) == 3
    s3cmd("rb", "--force", "--recursive", "s3://cmd")


@pytest.mark.long
def test_rclone(shell, files, store):
    env = {
        "RCLONE_CONFIG": str(files / "none"),
        "RCLONE_CONFIG_P_TYPE": "s3",
        "RCLONE_CONFIG_P_PROVIDER": "Other",
        "RCLONE_CONFIG_P_ENDPOINT": store.endpoint,
        "RCLONE_CONFIG_P_ACCESS_KEY_ID": store.access_key,
        "RCLONE_CONFIG_P_SECRET_ACCESS_KEY": store.secret_key,
    }

    def rclone(*arguments, **more):
        return shell("/usr/bin/rclone", *arguments, env=env, **more)

    rclone("mkdir", "p:rclone")
    rclone("copyto", "small", "p:rclone/d/small")
    rclone("copyto", "--s3-upload-cutoff", "5M", "--s3-chunk-size", "5M", "large", "p:rclone/d/large")
    rclone("copyto", "p:rclone/d/large", "back")
    assert (files / "back").read_bytes() == (files / "large").read_bytes()
    assert rclone("cat", "--offset", "100", "--count", "100", "p:rclone/d/large", text=False) == (files / "large").read_bytes()[100:200]

    rclone("copy", "--transfers", "8", "many", "p:rclone/many")
    assert len(rclone("lsf", "p:rclone/many").splitlines()) == KEYS
    rclone("check", "many", "p:rclone/many")
    rclone("copyto", "p:rclone/d/large", "p:rclone/copied")
    rclone("moveto", "p:rclone/d/small", "p:rclone/moved")
    assert fetch(rclone("link", "p:rclone/moved").strip()) == b"small\n"
    rclone("delete", "p:rclone/many")
    assert sorted(rclone("lsf", "-R", "--files-only", "p:rclone").split()) == ["copied", "d/large", "moved"]
    rclone("purge", "p:rclone")
    assert "rclone" not in rclone("lsd", "p:")
