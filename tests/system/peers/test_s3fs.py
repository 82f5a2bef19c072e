"""s3fs, a file system over S3, mounted on `penstock serve`: everyday commands, and the bytes compared on both sides."""
import hashlib
import json
import os
import subprocess

import pytest
from harness.peers.daemons import program
from harness.s3tool import Tool
from harness.waiting import wait_for

pytestmark = pytest.mark.long

MIB = 1 << 20
OPTIONS = ["use_path_request_style", "multipart_size=10", "parallel_count=4", "retries=2", "ensure_diskfree=0"]


@pytest.fixture
def mounted(peer_tools, store, tmp_path):
    """The bucket "bucket" as a directory."""
    assert os.path.exists("/dev/fuse"), "cannot mount a bucket: /dev/fuse is missing; PENSTOCK_TEST_WITHOUT_PEERS=1 skips these tests"
    store.client.create_bucket(Bucket="bucket")
    keys = tmp_path / "keys"
    keys.touch(0o600)
    keys.write_text(f"{store.access_key}:{store.secret_key}")
    folder = tmp_path / "mounted"
    folder.mkdir()
    spool = tmp_path / "spool"
    spool.mkdir()
    options = [f"passwd_file={keys}", f"url={store.endpoint}", f"tmpdir={spool}", *OPTIONS]
    log = tmp_path / "s3fs.log"
    with open(log, "wb") as out:
        s3fs = subprocess.Popen(
            [program("s3fs", "s3fs"), "bucket", folder, "-f", *[word for option in options for word in ("-o", option)]],
            stdout=out, stderr=out, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    try:
        wait_for(lambda: os.path.ismount(folder) or s3fs.poll() is not None, 60, "s3fs has mounted the bucket")
        assert s3fs.poll() is None, f"s3fs could not mount: {log.read_text()}"
        yield folder
        subprocess.run([program("fusermount3", "fuse3"), "-u", folder], check=True)
        assert s3fs.wait(60) == 0, log.read_text()
    finally:
        if os.path.ismount(folder):
            subprocess.run([program("fusermount3", "fuse3"), "-uz", folder], check=False)
        if s3fs.poll() is None:
            s3fs.kill()
            s3fs.wait(60)


def shell(script, folder):
    """Returns the output of the script; every command must succeed."""
    done = subprocess.run(["bash", "-euc", script], cwd=folder, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def contents(folder):
    """Returns {path: digest} of all files below the folder."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.rglob("*")) if path.is_file()
    }


# Users type commands like these. Each command makes one or more requests, and the next command sees
# the effect of the requests.
def test_everyday_commands_do_what_they_do_on_a_disk(mounted, store):
    printed = shell(
        """
        echo one > a; cat a; echo two >> a; cat a
        mkdir -p d/e; cp a d/e/b; mv a d/c; cat d/e/b d/c
        ln -s c d/link; cat d/link; chmod 640 d/c; stat -c %a d/c
        truncate -s 3 d/c; cat d/c; echo; : > empty; stat -c %s empty
        rm d/e/b; rmdir d/e; ls -A . d
        """,
        mounted,
    )

    assert printed.split() == ["one", *["one", "two"] * 4, "640", "one", "0", ".:", "d", "empty", "d:", "c", "link"]
    assert store.bytes("bucket", "d/c") == b"one"
    assert store.bytes("bucket", "empty") == b""
    assert store.keys("bucket") == ["d/", "d/c", "d/link", "empty"]


# s3fs uploads in parts and downloads in ranges; an append sends only the end of the file, and a
# rename copies within the store.
def test_a_large_file_comes_back_after_append_and_rename(mounted, store, tmp_path):
    large = os.urandom(64 * MIB + 12345)
    (tmp_path / "large").write_bytes(large)

    shell(f"cp {tmp_path / 'large'} large; cmp {tmp_path / 'large'} large; printf 'the end' >> large; mv large renamed", mounted)

    assert store.bytes("bucket", "renamed") == large + b"the end"
    assert store.keys("bucket") == ["renamed"]
    assert "-" in store.client.head_object(Bucket="bucket", Key="renamed")["ETag"]
    assert store.client.list_multipart_uploads(Bucket="bucket").get("Uploads", []) == []


# The listing of the directory has more than one page; then the directory is removed.
def test_a_directory_of_many_files_is_listed_whole(mounted, store, tmp_path):
    names = [f"{i:05}" for i in range(2300)]
    store.client.put_object(Bucket="bucket", Key="many/")
    Tool(tmp_path, store.endpoint, store.access_key, store.secret_key).ok("put-many", "bucket", "many/%05d", len(names))

    assert shell("ls many", mounted).split() == names
    for name in ("00000", "00999", "01000", "02299"):
        assert (mounted / "many" / name).read_bytes() == store.bytes("bucket", f"many/{name}")
    shell("rm many/022*", mounted)
    assert len(store.keys("bucket", "many/")) == 1 + 2200


# rsync writes temporary names and renames them, sets times, and compares when it runs again.
def test_a_tree_goes_in_and_out_by_rsync(mounted, store, tmp_path):
    tree, back = tmp_path / "tree", tmp_path / "back"
    names = ["plain", "with space", "ü/ä+b=c&d", "per%20cent", "deep/er/and/deeper", "#hash?", "quote'\"", "back\\slash", "tab\tin", ".hidden"]
    for number, name in enumerate(names):
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(number * 4321))
        os.utime(path, (1_600_000_000 + number, 1_600_000_000 + number))

    shell(f"rsync -rlt --stats {tree}/ {mounted}/tree", tmp_path)
    again = shell(f"rsync -rlt --stats {tree}/ {mounted}/tree", tmp_path)
    shell(f"rsync -rlt {mounted}/tree/ {back}", tmp_path)

    assert contents(back) == contents(tree) == contents(mounted / "tree")
    assert "Number of regular files transferred: 0" in again
    assert {(back / name).stat().st_mtime for name in names} == {(tree / name).stat().st_mtime for name in names}
    for name in names:
        assert store.bytes("bucket", f"tree/{name}") == (tree / name).read_bytes()


# The published files look the same in the mounted bucket as on the run's machine: content, time and
# permissions.
def test_the_output_of_a_run_is_seen_as_it_was_written(mounted, penstock, store, tmp_path):
    s3 = {
        "region": "us-east-1", "bucketUrl": "s3://bucket", "path": "/", "accessKeyId": store.access_key,
        "secretAccessKey": store.secret_key, "endpointUrl": store.endpoint,
    }  # fmt: skip
    step = "cd $DEEPSQUARE_OUTPUT; echo weights > ckpt.pth; chmod 640 ckpt.pth; touch -d @1500000000 ckpt.pth"
    path = tmp_path / "wf.json"
    path.write_text(json.dumps({
        "resources": {"tasks": 1, "cpusPerTask": 1, "memPerCpu": 512, "gpus": 0}, "output": {"s3": s3}, "continuousOutputSync": True,
        "steps": [{"name": "one", "run": {"command": step}}],
    }))  # fmt: skip

    penstock.run("run", path).ok()

    assert shell("cat ckpt.pth; stat -c '%s %a %Y' ckpt.pth", mounted) == "weights\n8 640 1500000000\n"
