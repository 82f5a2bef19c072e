"""cp, mv and sync: the names of the targets, and the items that are overwritten, refused and deleted; against `penstock serve` and moto."""
import json
import os
import re
import stat
import subprocess
import time
from pathlib import Path

import pytest

from harness.program import Store, binary
from harness.verbs import Fixture
from harness.waiting import wait_for


@pytest.fixture
def ours(penstock, store, tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    return Fixture(penstock, store.env, store.client, folder, "penstock")


@pytest.fixture(params=["penstock", "moto"])
def s3(request, penstock, tmp_path):
    if request.param == "penstock":
        return request.getfixturevalue("ours")
    import boto3

    url = request.getfixturevalue("moto")
    keys = {"aws_access_key_id": "AKIDEXAMPLE", "aws_secret_access_key": "not-a-secret", "region_name": "us-east-1"}
    env = {name.upper().replace("REGION_NAME", "AWS_REGION"): value for name, value in keys.items()} | {"AWS_ENDPOINT_URL": url}
    folder = tmp_path / "work"
    folder.mkdir()
    return Fixture(penstock, env, boto3.client("s3", endpoint_url=url, **keys), folder, "moto")


# --- names

TREE = ["d/a.txt", "d/sub/b.txt", "d/sub/deep/c.txt"]


# There is one case of each kind; tests/unit/copy tests all rules.
UPLOADS = [
    (["d/a.txt", "s3://bucket"], ["a.txt"]),
    (["d/a.txt", "s3://bucket/x/"], ["x/a.txt"]),
    (["d/a.txt", "d/sub/b.txt", "s3://bucket/x"], ["x/a.txt", "x/b.txt"]),
    (["-r", "d", "s3://bucket/x/"], ["x/d/a.txt", "x/d/sub/b.txt", "x/d/sub/deep/c.txt"]),
    (["-r", "d/sub", "d/a.txt", "s3://bucket/x"], ["x/a.txt", "x/sub/b.txt", "x/sub/deep/c.txt"]),
    (["-r", "d/.", "s3://bucket/x/"], ["x/a.txt", "x/sub/b.txt", "x/sub/deep/c.txt"]),
    (["d/*.txt", "s3://bucket/x"], ["x/a.txt", "x/sub/b.txt", "x/sub/deep/c.txt"]),
    (["-r", "--include", "*c*", "d/", "s3://bucket"], ["sub/deep/c.txt"]),
]  # fmt: skip


def test_the_names_that_uploads_get(ours):
    ours.write(*TREE)
    for arguments, keys in UPLOADS:
        dry = ours("cp", "-n", *arguments).ok().out.splitlines()
        assert ours.keys() == []
        ours("cp", *arguments).ok()

        assert ours.keys() == keys, arguments
        assert len(dry) == len(keys) and all(any(line.endswith(f" -> s3://bucket/{key}") for line in dry) for key in keys), dry
        ours.empty()


DOWNLOADS = [
    (["s3://bucket/d/a.txt", "new"], ["new"]),
    (["s3://bucket/d/a.txt", "deep/down/new"], ["deep/down/new"]),
    (["s3://bucket/d/a.txt", "s3://bucket/d/sub/b.txt", "new"], ["new/a.txt", "new/b.txt"]),
    (["-r", "s3://bucket/d", "."], ["d/a.txt", "d/sub/b.txt", "d/sub/deep/c.txt"]),
    (["-r", "s3://bucket", "new"], ["new/d/a.txt", "new/d/sub/b.txt", "new/d/sub/deep/c.txt"]),
    (["s3://bucket/d/*.txt", "new"], ["new/a.txt", "new/sub/b.txt", "new/sub/deep/c.txt"]),
]  # fmt: skip


def test_the_names_that_downloads_get(ours, tmp_path):
    ours.put(*TREE)
    for number, (arguments, files) in enumerate(DOWNLOADS):
        ours.folder = tmp_path / str(number)
        ours.folder.mkdir()
        dry = ours("cp", "-n", *arguments).ok().out.splitlines()
        assert ours.files() == []
        ours("cp", *arguments).ok()

        assert [name for name in ours.files() if not name.endswith("/")] == files and len(dry) == len(files), arguments
        assert all(ours.read(name).endswith(os.path.basename(name).encode()) or name.endswith("new") for name in files)


# Arguments that s5cmd or aws also accept have the same meaning as in these programs.
def test_uploads_are_named_as_s5cmd_does(ours, s5cmd):
    ours.write(*TREE)
    env = ours.penstock.env | ours.env | {"S3_ENDPOINT_URL": ours.env["AWS_ENDPOINT_URL"]}
    for number, source in enumerate(["d/", "d", "d/*"]):
        ours.client.create_bucket(Bucket=f"other{number}")
        subprocess.run([s5cmd, "cp", source, f"s3://other{number}/x/"], env=env, cwd=ours.folder, check=True, capture_output=True)

        ours("cp", "-r", source, "s3://bucket/x/").ok()

        assert ours.keys() == ours.keys(f"other{number}")
        ours.empty()


def foreign(ours, *arguments):
    env = ours.penstock.env | ours.env | {"NO_PROXY": "127.0.0.1", "TZ": "UTC"}
    done = subprocess.run(list(map(str, arguments)), env=env, cwd=ours.folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


# If a user uses both tools, neither copies again what the other has copied.
@pytest.mark.long
def test_aws_finds_nothing_to_do_where_we_do_not(ours):
    ours.write(*TREE)
    aws = ["/usr/bin/aws", "--endpoint-url", ours.env["AWS_ENDPOINT_URL"], "s3", "sync"]

    ours("sync", "d", "s3://bucket/x").ok()
    assert foreign(ours, *aws, "d", "s3://bucket/x") == ""
    ours("sync", "s3://bucket/x", "back").ok()
    assert foreign(ours, *aws, "s3://bucket/x", "back") == ""
    foreign(ours, *aws, "s3://bucket/x", "theirs")
    assert "3 unchanged" in ours("sync", "s3://bucket/x", "theirs").ok().err


def test_rclone_and_we_keep_times_alike(ours):
    ours.write("d/ours", "theirs")
    for name, ns in [("d/ours", 1_600_000_000_123_456_789), ("theirs", 1_500_000_000_500_000_000)]:
        os.utime(ours.folder / name, ns=(0, ns))
    rclone = ["/usr/bin/rclone", "--config", "/dev/null", "--s3-provider", "Other", "--s3-env-auth", "--s3-endpoint", ours.env["AWS_ENDPOINT_URL"]]

    ours("sync", "--preserve", "d", "s3://bucket/x").ok()
    assert "2020-09-13 12:26:40.123456789 ours" in foreign(ours, *rclone, "lsl", ":s3:bucket/x")
    foreign(ours, *rclone, "copy", "theirs", ":s3:bucket/x")
    ours("cp", "--preserve", "s3://bucket/x/theirs", "back").ok()

    assert (ours.folder / "back").stat().st_mtime_ns == 1_500_000_000_500_000_000


@pytest.fixture
def s5cmd():
    from harness.program import TOP

    path = TOP.parent / "peers" / "s5cmd"
    if not path.exists():
        pytest.skip("no s5cmd next to the checkout")
    return path


def test_copies_within_the_store(s3):
    s3.put(*TREE)
    s3.client.create_bucket(Bucket="other")
    s3.client.put_object(Bucket="bucket", Key="typed", Body=b"x", ContentType="text/x-own", Metadata={"color": "blue"})

    s3("cp", "s3://bucket/d/a.txt", "s3://other").ok()
    s3("cp", "-r", "s3://bucket/d/", "s3://other/x").ok()
    s3("cp", "s3://bucket/typed", "s3://bucket/copy").ok()

    assert s3.keys("other") == ["a.txt", "x/a.txt", "x/sub/b.txt", "x/sub/deep/c.txt"]
    assert s3.bytes("x/sub/deep/c.txt", "other") == b"d/sub/deep/c.txt"
    copied = s3.client.head_object(Bucket="bucket", Key="copy")
    assert (copied["ContentType"], copied["Metadata"]) == ("text/x-own", {"color": "blue"})


def test_between_two_stores_what_is_sent_goes_through_here(ours, tmp_path):
    body = os.urandom(20_000_000)
    other = Store(ours.penstock, tmp_path / "other")
    other.client.create_bucket(Bucket="bucket")
    other.client.put_object(Bucket="bucket", Key="d/big", Body=body, ContentType="text/x-own", Metadata={"color": "blue"})
    other.client.put_object(Bucket="bucket", Key="d/small", Body=b"small")
    (ours.folder / "config").write_text(
        f"[profile far]\naws_access_key_id = {other.access_key}\naws_secret_access_key = {other.secret_key}\nendpoint_url = {other.endpoint}\n"
    )
    env = {"AWS_CONFIG_FILE": str(ours.folder / "config"), "AWS_ENDPOINT_URL": None}
    here = ["--endpoint-url", ours.env["AWS_ENDPOINT_URL"], "--source-profile", "far"]

    ours("cp", "-r", *here, "s3://bucket/d/", "s3://bucket/x/", env=env).ok()
    ours("sync", *here, "s3://bucket/d", "s3://bucket/y", env=env).ok()
    ours("mv", *here, "s3://bucket/d/small", "s3://bucket/d/small", env=env).ok()

    assert ours.keys() == ["d/small", "x/big", "x/small", "y/big", "y/small"]
    assert ours.bytes("x/big") == body and ours.bytes("d/small") == b"small"
    copied = ours.client.head_object(Bucket="bucket", Key="x/big")
    assert (copied["ContentType"], copied["Metadata"]) == ("text/x-own", {"color": "blue"})
    assert other.keys("bucket") == ["d/big"]
    other.stop()


def test_pipes(s3):
    body = os.urandom(100_000)
    s3("cp", "-", "s3://bucket/piped.csv", input=body).ok()

    assert s3.bytes("piped.csv") == body
    assert s3.client.head_object(Bucket="bucket", Key="piped.csv")["ContentType"] == "text/csv"
    raw = subprocess.run([binary(), "cp", "s3://bucket/piped.csv", "-"], env=s3.penstock.env | s3.env, stdout=subprocess.PIPE, timeout=120)
    assert (raw.returncode, raw.stdout) == (0, body)
    assert "none" in s3("cp", "s3://bucket/none", "-").exits(66).err


def rests(pid):
    def ticks():
        return sum(map(int, Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[11:13]))

    before = ticks()
    time.sleep(0.4)
    return ticks() - before <= 1


# Programs with an event loop start children with non-blocking pipes.
def test_standard_input_that_has_nothing_yet_takes_no_processor(ours, http_server):
    read, write = os.pipe()
    os.set_blocking(read, False)
    held = ours.folder / "held"
    held.mkdir()
    env = ours.penstock.env | {"TMPDIR": str(held)}

    command = [binary(), "cp", "-", http_server.url + "/slow"]
    with subprocess.Popen(command, env=env, stdin=read) as program, open(write, "wb", buffering=0) as pipe:
        os.close(read)
        pipe.write(b"first ")
        wait_for(lambda: any(path.stat().st_size for path in held.glob("*/held")))
        wait_for(lambda: rests(program.pid), 10)
        pipe.write(b"and last")

    assert program.returncode == 0
    assert http_server.received["/slow"] == b"first and last"


def test_web_servers(ours, http_server):
    content = os.urandom(300_000)
    url = http_server.add("/data/one%20file.json", content)
    ours.write("d/a b.txt", "d/sub/c.txt")

    ours("cp", url, ".").ok()
    ours("cp", url, "s3://bucket/").ok()
    ours("cp", ours.folder / "d/a b.txt", http_server.url + "/up/").ok()
    ours("cp", "-r", "d/", http_server.url + "/tree/").ok()
    ours("cp", "s3://bucket/one file.json", http_server.url + "/from-store").ok()
    ours("cp", "-", http_server.url + "/from-pipe", input="piped").ok()
    raw = subprocess.run([binary(), "cp", url, "-"], env=ours.penstock.env, stdout=subprocess.PIPE, timeout=120, check=True)

    assert ours.read("one file.json") == ours.bytes("one file.json") == raw.stdout == content
    assert ours.client.head_object(Bucket="bucket", Key="one file.json")["ContentType"] == "application/json"
    received = {path: body for path, body in http_server.received.items()}
    assert received["/up/a%20b.txt"] == b"d/a b.txt" and received["/tree/sub/c.txt"] == b"d/sub/c.txt"
    assert received["/from-store"] == content and received["/from-pipe"] == b"piped"
    assert "/data/none" in ours("cp", http_server.url + "/data/none", ".").exits(66).err
    assert os.listdir(ours.penstock.env["TMPDIR"]).count("held") == 0


def test_files_before_a_web_server_are_reported(ours, http_server):
    ours.write("a", "b")
    http_server.add("/c", b"cc")

    items = ours("cp", "--json", "a", "b", http_server.url + "/c", "s3://bucket/").json()

    assert ours.keys() == ["a", "b", "c"]
    assert {(each["source"], each["status"], each["size"]) for each in items} == {
        ("a", "done", 1),
        ("b", "done", 1),
        (http_server.url + "/c", "done", 2),
    }


def test_secrets_of_urls_are_not_told(ours, http_server):
    """Users, passwords and queries of URLs must not appear in a message, a summary, a dry run or
    the list of --json."""
    ours.write("f")
    base = http_server.url.replace("http://", "http://somebody:hunter2pass@")
    http_server.add("/there", b"x")
    for arguments in [
        [base + "/a?sig=querysecret1", "f/"],
        [base + "/?sig=querysecret1", "d/"],
        [base + "/none?sig=querysecret1", "d/"],
        ["-n", base + "/none?sig=querysecret1", "d/"],
        ["-v", base + "/there?sig=querysecret1", "d/"],
        [base + "/there?sig=querysecret1", base + "/there?sig=querysecret1", "d"],
        [base + "/none?sig=querysecret1", "-"],
        ["-v", "f", base + "/up?sig=querysecret1"],
        ["-v", "-", base + "/up?sig=querysecret1"],
        ["s3://bucket/none", base + "/up?sig=querysecret1"],
        ["-r", base + "/none?sig=querysecret1", "s3://bucket/"],
    ]:
        for more in [[], ["--json"]]:
            result = ours("cp", *more, *arguments, input="x")

            assert "hunter2" not in result.out + result.err and "querysecret" not in result.out + result.err, arguments


# A shell may pass thousands of operands. penstock does not query each operand before it starts the
# next.
def test_thousands_of_operands(ours):
    names = [f"n{number}" for number in range(600)]
    ours.write(*("d/" + name for name in names))

    ours("cp", *("d/" + name for name in names), "s3://bucket/").ok()
    ours("cp", *("s3://bucket/" + name for name in names[:300]), "out").ok()

    assert ours.files("out") == sorted(names[:300]) and ours.read("out/n299") == b"d/n299"


# --- what is refused


NONSENSE = [
    (["cp", "d/a.txt", "new"], "use 'cp' instead"),
    (["sync", "d", "e"], "use rsync instead"),
    (["cp", "-", "s3://bucket/"], "standard input has no name"),
    (["cp", "-", "d/a.txt", "s3://bucket/"], "one of several"),
    (["cp", "-r", "s3://bucket/d/", "-"], "standard output"),
    (["cp", "-r", "s3://bucket/d/", "s3://bucket/d/x/"], "the source itself or below"),
    (["cp", "-r", "s3://bucket/d", "s3://bucket/"], "the source itself or below"),
    (["cp", "-r", "s3://bucket", "s3://bucket/x/"], "the source itself or below"),
    (["sync", "s3://bucket/d", "s3://bucket/d/"], "source and target are the same, or one contains the other"),
    (["sync", "s3://bucket/d", "s3://bucket/d/sub"], "source and target are the same, or one contains the other"),
    (["sync", "s3://bucket/d/sub", "s3://bucket/d"], "source and target are the same, or one contains the other"),
    (["mv", "http://127.0.0.1:1/x", "s3://bucket/"], "penstock cp"),
    (["mv", "d/a.txt", "http://127.0.0.1:1/x"], "penstock cp"),
    (["cp", "http://127.0.0.1:1/x/", "s3://bucket/"], "cannot list the files of a web server"),
    (["cp", "d/a.txt", "e/a.txt", "s3://bucket/"], "'e/a.txt'"),
    (["mv", "-r", "d/", "e/", "s3://bucket/x/"], "'e/'"),
    (["sync", "d/a.txt", "s3://bucket/"], "not a directory"),
    (["sync", "s3://bucket/", "d/a.txt"], "exists and is not a directory"),
    (["cp", "--metadata", "novalue", "d/a.txt", "s3://bucket/"], "is not NAME=VALUE"),
    (["cp", "--part-size", "1k", "d/a.txt", "s3://bucket/"], "must be 5MiB to 5GiB"),
    (["cp", "--source-profile", "x", "d/a.txt", "s3://bucket/"], "need an s3:// source"),
    (["cp", "gopher://x/y", "s3://bucket/"], "'gopher://x/y'"),
]  # fmt: skip


def test_what_makes_no_sense_is_refused(ours):
    ours.write(*TREE, "e/a.txt")
    ours.put(*TREE)
    for arguments, says in NONSENSE:
        result = ours(*arguments).exits(64)

        assert says in result.err and result.err.count("\n") == 1 and result.out == "", arguments
    assert ours.keys() == TREE


MISSING = [
    (["cp", "d", "s3://bucket/"], "--recursive"),
    (["cp", "s3://bucket/d/", "."], "--recursive"),
    (["cp", "s3://bucket", "."], "--recursive"),
    (["cp", "s3://bucket/d/a.txt", "s3://bucket/d/a.txt"], "the same object"),
    (["mv", "s3://bucket/d/a.txt", "s3://bucket/d/"], "the same object"),
    (["cp", "none", "s3://bucket/"], "none: No such file"),
    (["cp", "none*", "s3://bucket/"], "nothing matches"),
    (["cp", "s3://bucket/none", "."], "no such object"),
    (["cp", "s3://nowhere/none", "."], "no bucket 'nowhere'"),
    (["cp", "s3://bucket/none*", "."], "nothing matches"),
    (["cp", "-r", "s3://bucket/none", "."], "s3://bucket/none"),
    (["cp", "d/a.txt", "s3://nowhere/x"], "NoSuchBucket"),
    (["sync", "d", "s3://nowhere/x"], "nowhere"),
]  # fmt: skip


def test_what_cannot_be_had_is_told(ours):
    ours.write(*TREE)
    ours.put(*TREE)
    for arguments, says in MISSING:
        result = ours(*arguments).exits(66)

        assert says in result.err, result.text
    assert ours.keys() == TREE


# Both addresses lead to the same store. The object would be "moved" onto itself, and then removed.
def test_a_store_is_known_by_its_address(ours):
    ours.put("k")
    port = ours.env["AWS_ENDPOINT_URL"].rpartition(":")[2]

    result = ours("mv", "--source-endpoint-url", f"http://localhost:{port}", "s3://bucket/k", "s3://bucket/k")

    assert result.code == 66
    assert ours.bytes("k") == b"k"


@pytest.mark.parametrize("verb", [["cp", "-r"], ["mv", "-r"], ["sync"]])
def test_an_object_with_the_name_of_a_directory_keeps_its_bytes(s3, verb):
    s3.put("x/d/", body=b"bytes")
    s3.put("x/e/", body=b"")
    s3.put("x/f")

    result = s3(*verb, "s3://bucket/x/", "out").exits(66)

    assert "s3://bucket/x/d/" in result.err and "5 bytes" in result.err
    assert s3.bytes("x/d/") == b"bytes" and s3.files("out") == ["e/", "f"]


def test_what_is_left_out_is_no_failure(ours):
    ours.write("d/x")
    os.symlink("nowhere", ours.folder / "d" / "broken")
    os.mkfifo(ours.folder / "d" / "pipe")
    ours.put("up/old")

    ours("sync", "d", "s3://bucket/up").exits(69)
    ours("sync", "--delete", "--exclude", "broken", "--exclude", "pipe", "d", "s3://bucket/up").ok()

    assert ours.keys() == ["up/x"]


def test_patterns_hold_for_the_objects_of_directories(ours):
    ours.put("pipe.txt", "p/ipe2", "yes")
    ours.put("marker/", "pipes/", "zz/e/", body=b"")
    ours.put("p/bytes/", body=b"bytes")
    before = ours.keys()
    ours.client.create_bucket(Bucket="other")

    ours("mv", "s3://bucket/y*", "down/").ok()
    assert ours.keys() == [key for key in before if key != "yes"]
    ours("mv", "s3://bucket/pipe*", "s3://other/o/").ok()
    assert ours.keys("other") == ["o/pipe.txt", "o/pipes/"] and ours.keys() == ["marker/", "p/bytes/", "p/ipe2", "zz/e/"]
    ours("cp", "-r", "--include", "*2", "s3://bucket/", "s3://other/c/").ok()
    assert ours.keys("other") == ["c/p/ipe2", "o/pipe.txt", "o/pipes/"]
    (ours.folder / "tree" / "empty").mkdir(parents=True)
    ours("sync", "--preserve", "--delete", "--include", "y*", "tree", "s3://bucket").ok()
    assert ours.keys() == ["marker/", "p/bytes/", "p/ipe2", "zz/e/"]
    ours("sync", "--preserve", "--exclude", "m*", "--delete", "tree", "s3://bucket").ok()
    assert ours.keys() == ["empty/", "marker/"]


def test_no_clobber_leaves_the_objects_of_directories(ours):
    (ours.folder / "tree" / "d").mkdir(parents=True)
    ours.put("x/d/", body=b"bytes")

    ours("cp", "-r", "--preserve", "--no-clobber", "tree/", "s3://bucket/x/").ok()

    assert ours.bytes("x/d/") == b"bytes"


def test_one_bad_source_does_not_stop_the_others(s3):
    s3.write("a", "c")

    result = s3("cp", "--json", "a", "b", "c", "s3://bucket/").exits(66)

    assert s3.keys() == ["a", "c"] and "No such file" in result.err
    told = json.loads(result.out)
    assert {(each["source"], each["status"]) for each in told} == {("a", "done"), ("b", "failed"), ("c", "done")}
    assert "No such file" in next(each["error"] for each in told if each["source"] == "b")


# --- overwriting


def test_what_is_there_is_written_over_unless_told(s3):
    s3.write("a", "b")
    s3.put("a", "b", body=b"old")

    skipped = s3("cp", "--no-clobber", "-v", "a", "s3://bucket/").ok()
    assert "skipped" in skipped.text and s3.bytes("a") == b"old"
    refused = s3("cp", "--if-none-match", "a", "s3://bucket/").exits(69)
    assert "s3://bucket/a" in refused.err and s3.bytes("a") == b"old"
    s3("cp", "a", "s3://bucket/").ok()
    assert s3.bytes("a") == b"a"

    s3("cp", "--no-clobber", "s3://bucket/b", ".").ok()
    assert s3.read("b") == b"b"
    assert "b" in s3("cp", "--if-none-match", "s3://bucket/b", ".").exits(69).err
    s3("cp", "s3://bucket/b", ".").ok()
    assert s3.read("b") == b"old"


def test_options_of_what_is_made(s3):
    s3.write("page.HTML", "blob", "d/x.json")

    s3("cp", "page.HTML", "blob", "s3://bucket/").ok()
    s3("cp", "-r", "--metadata", "epoch=3", "--metadata", "who=me", "--storage-class", "STANDARD_IA", "d/", "s3://bucket/d").ok()
    s3("cp", "--content-type", "text/x-own", "blob", "s3://bucket/typed").ok()

    def of(key):
        return s3.client.head_object(Bucket="bucket", Key=key)

    assert of("page.HTML")["ContentType"] == "text/html" and of("typed")["ContentType"] == "text/x-own"
    assert of("blob")["ContentType"] in ("application/octet-stream", "binary/octet-stream")
    made = of("d/x.json")
    assert (made["Metadata"], made["ContentType"]) == ({"epoch": "3", "who": "me"}, "application/json")
    assert made.get("StorageClass") == "STANDARD_IA" or s3.name == "penstock"


# Only a few bytes of a slightly changed checkpoint are sent.
def test_a_delta_is_sent(ours, fault_proxy):
    env = {"AWS_ENDPOINT_URL": fault_proxy.url}
    body = bytearray(os.urandom(40 << 20))
    (ours.folder / "ckpt").write_bytes(body)
    ours("cp", "--delta", "ckpt", "s3://bucket/", env=env).ok()
    body[7_000_000:7_100_000] = bytes(100_000)
    (ours.folder / "ckpt").write_bytes(body)
    before = len(fault_proxy.seen())

    ours("sync", "--delta", "--include", "ckpt", ".", "s3://bucket/", env=env).ok()

    assert sum(request.received for request in fault_proxy.seen()[before:]) < 20 << 20
    assert ours.bytes("ckpt") == body


def test_options_of_what_is_copied(s3):
    """The store itself makes the copy: requested properties are set, and all others stay."""
    s3.client.put_object(Bucket="bucket", Key="a", Body=b"a", ContentType="text/csv", CacheControl="no-store", Metadata={"epoch": "3"})

    s3("cp", "s3://bucket/a", "s3://bucket/plain").ok()
    s3("cp", "--content-type", "text/x-own", "s3://bucket/a", "s3://bucket/typed").ok()
    s3("cp", "-r", "--metadata", "who=me", "s3://bucket/a", "s3://bucket/told").ok()
    s3("cp", "--storage-class", "STANDARD_IA", "s3://bucket/a", "s3://bucket/classed").ok()

    def of(key):
        head = s3.client.head_object(Bucket="bucket", Key=key)
        return head["ContentType"], head.get("CacheControl"), head["Metadata"]

    assert of("plain") == of("classed") == of("a") == ("text/csv", "no-store", {"epoch": "3"})
    assert of("typed") == ("text/x-own", "no-store", {"epoch": "3"})
    assert of("told") == ("text/csv", "no-store", {"who": "me"})
    assert s3.client.head_object(Bucket="bucket", Key="classed").get("StorageClass") == "STANDARD_IA" or s3.name == "penstock"


# --- moving


def test_what_is_moved_is_gone_where_it_was(s3):
    s3.write(*TREE, "single")
    s3("mv", "single", "s3://bucket/").ok()
    s3("mv", "-r", "d", "s3://bucket/").ok()
    assert s3.files() == [] and s3.keys() == [*TREE, "single"]

    s3("mv", "-r", "s3://bucket/d/sub/", "s3://bucket/e/").ok()
    assert s3.keys() == ["d/a.txt", "e/b.txt", "e/deep/c.txt", "single"]
    s3("mv", "s3://bucket/*", "back/").ok()
    assert s3.keys() == [] and s3.files("back") == ["d/a.txt", "e/b.txt", "e/deep/c.txt", "single"]
    assert s3.read("back/e/deep/c.txt") == b"d/sub/deep/c.txt"


def test_what_runs_keep_is_not_moved_in_passing(ours):
    ours.put("d/a", ".penstock/x", "d/.penstock/runs/1/log")

    result = ours("mv", "-r", "s3://bucket/", "out").ok()

    assert ours.keys() == [".penstock/x", "d/.penstock/runs/1/log"] and " 2 objects" in result.err and ".penstock/" in result.err
    ours("mv", "-r", "--force", "s3://bucket/", "out").ok()
    assert ours.keys() == []


def test_a_tree_that_is_moved_up_loses_nothing(ours):
    """a/b/b/x would be moved to a/b/x, which is moved itself. In the wrong order, the bytes of
    a/b/x would be lost."""
    for source in ["s3://bucket/a/b/", "s3://bucket/a/b/*"]:
        ours.empty()
        ours.put("a/b/b/x", "a/b/x", "a/b/y")

        result = ours("mv", "-r", source, "s3://bucket/a/").exits(66)

        assert "s3://bucket/a/b/b/x" in result.err
        assert sorted(ours.bytes(key) for key in ours.keys()) == [b"a/b/b/x", b"a/b/x", b"a/b/y"]
        assert ours.keys() == ["a/b/b/x", "a/x", "a/y"]


def test_what_could_not_be_copied_stays_where_it_is(ours, fault_proxy):
    ours.write("d/a", "d/b")
    fault_proxy.fault(method="PUT", path="/b$", status=403, times=100)

    result = ours("mv", "-r", "d", "s3://bucket/", env={"AWS_ENDPOINT_URL": fault_proxy.url})

    assert result.code == 77 and ours.files() == ["d/b"] and ours.keys() == ["d/a"]


# The target of a link is not part of the source, so it is not removed.
def test_nothing_is_moved_from_beyond_a_link(ours):
    ours.write("d/a", "elsewhere/b", "c")
    (ours.folder / "d/dir").symlink_to("../elsewhere")
    (ours.folder / "d/file").symlink_to("../c")

    result = ours("mv", "-r", "d", "s3://bucket/").exits(66)

    assert "d/dir" in result.err and ours.keys() == ["d/a", "d/file"] and ours.bytes("d/file") == b"c"
    assert ours.files() == ["c", "d/dir", "elsewhere/b"]
    ours("mv", "-r", "--preserve", "d", "s3://bucket/").ok()
    assert ours.files() == ["c", "elsewhere/b"] and ours.bytes("d/dir") == b"../elsewhere"


def test_a_device_does_not_become_a_file(ours):
    ours.put("k")
    os.mkfifo(ours.folder / "fifo")
    (ours.folder / "link").symlink_to("fifo")

    for name in ("fifo", "link"):
        assert "s3://bucket/k" in ours("cp", "s3://bucket/k", name).exits(66).err
    assert stat.S_ISFIFO((ours.folder / "fifo").stat().st_mode) and (ours.folder / "link").is_symlink()


# --- sync


def test_a_sync_sends_what_differs(s3):
    s3.write(*TREE)
    s3("sync", "d", "s3://bucket/x").ok()
    assert s3.keys() == ["x/a.txt", "x/sub/b.txt", "x/sub/deep/c.txt"]
    assert "3 unchanged" in s3("sync", "d/", "s3://bucket/x/").ok().err

    (s3.folder / "d/a.txt").write_text("longer than before")
    result = s3("sync", "-v", "d", "s3://bucket/x").ok()
    assert result.out == "upload d/a.txt -> s3://bucket/x/a.txt\n"
    s3("sync", "s3://bucket/x", "back").ok()
    assert s3.files("back") == s3.files("d") and s3.read("back/a.txt") == b"longer than before"
    assert "3 unchanged" in s3("sync", "s3://bucket/x", "back").ok().err
    s3("sync", "s3://bucket/x", "s3://bucket/y").ok()
    assert "3 unchanged" in s3("sync", "s3://bucket/x", "s3://bucket/y").ok().err
    assert "1 copied" in s3("sync", "--include", "*.txt", "--exclude", "sub/*", "s3://bucket/x", "part").ok().err


# "xa" is not below "x".
def test_a_prefix_is_a_directory(s3):
    s3.put("x/1", "xa", "x", "x!/2")

    s3("sync", "s3://bucket/x", "out").ok()

    assert s3.files("out") == ["1"]


def test_the_same_size_at_another_time(ours):
    ours.write("d/a")
    ours("sync", "d", "s3://bucket").ok()
    modified = ours.client.head_object(Bucket="bucket", Key="a")["LastModified"].timestamp()

    (ours.folder / "d/a").write_text("x/x")
    os.utime(ours.folder / "d/a", (modified + 100, modified + 100))
    assert "1 unchanged" in ours("sync", "--size-only", "d", "s3://bucket").ok().err
    assert "1 copied" in ours("sync", "d", "s3://bucket").ok().err

    (ours.folder / "d/a").write_text("y/y")
    os.utime(ours.folder / "d/a", (1000, 1000))
    assert "1 unchanged" in ours("sync", "d", "s3://bucket").ok().err
    assert "1 copied" in ours("sync", "--checksum", "d", "s3://bucket").ok().err
    assert "1 unchanged" in ours("sync", "--checksum", "d", "s3://bucket").ok().err
    assert ours.bytes("a") == b"y/y"


def test_a_sync_deletes_only_when_asked_and_only_its_own(s3):
    s3.write(*TREE)
    s3.put("x/old", "x/sub/old", "x/keep.log", "xa", "other/old")

    s3("sync", "d", "s3://bucket/x").ok()
    assert "x/old" in s3.keys()
    dry = s3("sync", "--delete", "--exclude", "*.log", "-n", "d", "s3://bucket/x").ok()
    assert dry.out.splitlines() == ["would delete s3://bucket/x/old", "would delete s3://bucket/x/sub/old"]
    s3("sync", "--delete", "--exclude", "*.log", "d", "s3://bucket/x").ok()

    assert s3.keys() == ["other/old", "x/a.txt", "x/keep.log", "x/sub/b.txt", "x/sub/deep/c.txt", "xa"]
    s3.write("out/old", "out/keep.log", "outside")
    s3("sync", "--delete", "--exclude", "*.log", "s3://bucket/x", "out").ok()
    assert s3.files("out") == ["a.txt", "keep.log", "sub/b.txt", "sub/deep/c.txt"] and (s3.folder / "outside").exists()


def test_a_sync_deletes_nothing_when_something_failed(ours, fault_proxy):
    ours.write("d/a", "d/b")
    ours.put("x/old")
    fault_proxy.fault(method="PUT", path="/b$", status=403, times=100)

    result = ours("sync", "--delete", "d", "s3://bucket/x", env={"AWS_ENDPOINT_URL": fault_proxy.url})

    assert result.code == 77 and ours.keys() == ["x/a", "x/old"]
    assert result.code != 0


# A mistyped source looks like a source from which everything was deleted.
def test_a_sync_of_nothing_deletes_nothing(ours):
    ours.put("x/old")
    (ours.folder / "empty").mkdir()
    ours.write("out/old")

    assert "--force" in ours("sync", "--delete", "empty", "s3://bucket/x").exits(66).err
    assert "--force" in ours("sync", "--delete", "s3://bucket/typo", "out").exits(66).err
    ours("sync", "--delete", "none", "s3://bucket/x").exits(66)
    assert ours.keys() == ["x/old"] and ours.files("out") == ["old"]
    ours("sync", "--delete", "--force", "empty", "s3://bucket/x").ok()
    assert ours.keys() == []


def test_what_runs_keep_is_not_deleted_in_passing(ours):
    ours.write("d/a", "out/.penstock/runs/1/log")
    ours.put("x/a", "x/.penstock/runs/1/log", "x/deep/.penstock/log")

    result = ours("sync", "--delete", "d", "s3://bucket/x").ok()
    assert ours.keys() == ["x/.penstock/runs/1/log", "x/a", "x/deep/.penstock/log"] and " 2 objects" in result.err
    ours("sync", "--delete", "--exclude", "*.penstock/*", "s3://bucket/x", "out").ok()
    assert ours.files("out") == [".penstock/runs/1/log", "a"]
    ours("sync", "--delete", "--force", "d", "s3://bucket/x").ok()
    assert ours.keys() == ["x/a"]


# A link at the target is not followed, neither to write nor to delete.
def test_nothing_happens_beyond_a_link_at_the_target(ours):
    ours.write("outside/precious", "out/here")
    (ours.folder / "out/link").symlink_to("../outside")
    (ours.folder / "out/file").symlink_to("../outside/precious")
    ours.put("x/link/precious", "x/file", body=b"bad")

    result = ours("sync", "--delete", "s3://bucket/x", "out")
    assert result.code == 69 and "out/link" in result.err, result.text
    assert ours.read("outside/precious") == b"outside/precious"
    assert not (ours.folder / "out/file").is_symlink() and ours.read("out/file") == b"bad"
    ours("sync", "--delete", "--exclude", "link/*", "s3://bucket/x", "out").ok()
    assert ours.files("outside") == ["precious"]


# --- keeping times, modes, links and empty directories


def test_preserve_brings_a_tree_back_as_it_was(s3):
    s3.write("d/a", "d/sub/b")
    (s3.folder / "d/none/deep").mkdir(parents=True)
    (s3.folder / "d/link").symlink_to("sub/b")
    (s3.folder / "d/dangling").symlink_to("/nowhere")
    os.chmod(s3.folder / "d/a", 0o750)
    os.chmod(s3.folder / "d/none/deep", 0o711)
    for name in ("a", "sub/b", "none/deep"):
        os.utime(s3.folder / "d" / name, ns=(0, 1_600_000_000_123_456_789))

    s3("sync", "--preserve", "d", "s3://bucket/x").ok()
    kept = s3.client.head_object(Bucket="bucket", Key="x/a")["Metadata"]
    assert (kept["mtime"], int(kept["mode"], 8)) == ("1600000000.123456789", 0o100750)
    s3("sync", "--preserve", "s3://bucket/x", "back").ok()

    assert s3.files("back") == s3.files("d")
    for name in ("a", "sub/b", "none/deep"):
        one, other = (s3.folder / "d" / name).stat(), (s3.folder / "back" / name).stat()
        assert (one.st_mode, one.st_mtime_ns) == (other.st_mode, other.st_mtime_ns), name
    assert os.readlink(s3.folder / "back/link") == "sub/b" and os.readlink(s3.folder / "back/dangling") == "/nowhere"
    assert " copied" not in s3("sync", "--preserve", "s3://bucket/x", "back").ok().err
    assert " copied" not in s3("sync", "--preserve", "d", "s3://bucket/x").ok().err


@pytest.mark.parametrize("target", ["out", "."])
def test_preserve_sets_the_mode_of_a_directory_after_its_files(ours, target):
    # Root can write everywhere, unless it lacks these capabilities.
    ours.penstock.prefix = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    for name in ("d", "d/in"):
        ours.client.put_object(Bucket="bucket", Key=f"x/{name}/", Metadata={"mode": oct(stat.S_IFDIR | 0o500)[2:]})
    ours.put("x/d/a", "x/d/in/b")

    ours("cp", "-r", "--preserve", "s3://bucket/x/", target).ok()

    assert (ours.read(f"{target}/d/a"), ours.read(f"{target}/d/in/b")) == (b"x/d/a", b"x/d/in/b")
    assert [stat.S_IMODE((ours.folder / target / name).stat().st_mode) for name in ("d", "d/in")] == [0o500, 0o500]


def test_links_are_followed_left_out_or_told(ours):
    ours.write("d/a", "elsewhere/b")
    (ours.folder / "d/dir").symlink_to("../elsewhere")
    (ours.folder / "d/dangling").symlink_to("/nowhere")

    result = ours("sync", "d", "s3://bucket/x")
    assert result.code == 66 and "dangling" in result.err and ours.keys() == ["x/a", "x/dir/b"]
    ours("sync", "--no-follow-symlinks", "d", "s3://bucket/y").ok()
    assert ours.keys() == ["x/a", "x/dir/b", "y/a"]


# The metadata of an object may say that it is a link, and the key of another object may be a path
# through this link.
def test_a_hostile_bucket_writes_nothing_outside(ours):
    ours.write("outside/precious")
    link = {"mode": oct(stat.S_IFLNK | 0o777)[2:], "mtime": "0"}
    for key, target in [("x/a", "../outside"), ("x/b", str(ours.folder / "outside"))]:
        ours.client.put_object(Bucket="bucket", Key=key, Body=target.encode(), Metadata=link)
    ours.put("x/a/precious", "x/b/precious", "x/../precious", "x/../../outside/precious", body=b"bad")

    for verb in (["cp", "-r"], ["sync"]):
        ours(*verb, "--preserve", "s3://bucket/x/", "out").exits(66)
        ours(*verb, "--preserve", "s3://bucket/x/", "out").exits(66)

    assert ours.read("outside/precious") == b"outside/precious" and ours.files("outside") == ["precious"]
    assert not (ours.folder / "precious").exists()


# --- odd names

ODD = ["a b", "ü", "a%2Fb", "a+b", "a&b=c", "~", "a#b?c", "a'\"b", "a\\b", "-", "-r", "\u202e", "a\tb", "*", "..a", "a..", "日本/語"]


def test_odd_names_go_there_and_back(s3):
    s3.write(*("d/" + name for name in ODD))
    s3("cp", "-r", "d/", "s3://bucket/x/").ok()
    assert sorted(s3.keys()) == sorted("x/" + name for name in ODD)

    s3("sync", "s3://bucket/x", "back").ok()
    assert s3.files("back") == s3.files("d")
    s3("cp", "--raw", "s3://bucket/x/*", "star").ok()
    assert s3.read("star") == b"d/*"
    s3("sync", "--delete", "s3://bucket/x", "s3://bucket/y").ok()
    assert sorted(s3.bytes("y/" + name) for name in ODD) == sorted(b"d/" + name.encode() for name in ODD)


def test_keys_that_cannot_be_files_are_named_and_left_out(ours):
    bad = ["x/../up", "x//double", "x/./dot", "x/a/../b", "x/" + "n" * 300, "x/clash/below"]
    good = ["x/fine", "x/clash", "x/dir/", "x/" + "d/" * 500 + "deep"]
    ours.put(*bad, *good)
    ours.put("x/dir/", body=b"")

    for verb in (["cp", "-r"], ["sync"]):
        result = ours(*verb, "s3://bucket/x/", "out").exits(66)

        lines = [line for line in result.err.splitlines() if line.startswith(f"penstock {verb[0]}: ")]
        assert len(lines) == len(bad), result.err
        for key in bad:
            assert any(key in line and ("rename" in line or "leave" in line) for line in lines), key
        assert ours.files("out") == sorted(["fine", "clash", "dir/", "d/" * 500 + "deep"])
    assert ours.files() == ["out/" + name for name in ours.files("out")]


def test_keys_of_every_legal_byte_are_copied_and_moved(ours):
    odd = [bytes([number]).decode() for number in range(1, 128)] + ["é", "\u0080", "\U0010ffff", "/", "//", "../x", "k" * 1024, "t/"]
    ours.put(*odd)
    ours.client.create_bucket(Bucket="other")

    ours("cp", "-r", "s3://bucket", "s3://other").ok()
    assert ours.keys("other") == ours.keys()
    ours.client.create_bucket(Bucket="third")
    ours("mv", "-r", "s3://other", "s3://third").ok()

    assert ours.keys("other") == [] and ours.keys("third") == ours.keys()
    assert all(ours.bytes(key, "third") == key.encode() for key in odd)


def test_files_that_cannot_be_objects_are_named_and_left_out(ours):
    ours.write("d/fine")
    for name in (b"latin-\xe9", b"half-\xc3"):
        with open(os.path.join(os.fsencode(ours.folder), b"d", name), "wb") as file:
            file.write(b"x")
    deep = ours.folder / "d" / "/".join(["p" * 200] * 5)
    deep.mkdir(parents=True)
    (deep / "q").write_text("x")
    os.mkfifo(ours.folder / "d/pipe")

    result = ours("cp", "-r", "d", "s3://bucket/" + "k" * 20 + "/").exits(69)

    assert ours.keys() == ["k" * 20 + "/d/fine"]
    lines = [line for line in result.err.splitlines() if line.startswith("penstock cp: ")]
    assert len(lines) == 4, result.err


def test_empty_things(s3):
    (s3.folder / "d/none").mkdir(parents=True)
    (s3.folder / "d/empty").touch()
    s3.put("x/empty", "x/dir/", body=b"")

    s3("cp", "-r", "d", "s3://bucket/").ok()
    s3("cp", "-r", "s3://bucket/x/", "out").ok()
    s3("cp", "-r", "s3://bucket/none/", "none").ok()

    assert s3.keys() == ["d/empty", "x/dir/", "x/empty"] and s3.bytes("d/empty") == b""
    assert s3.files("out") == ["dir/", "empty"] and s3.files("none") == []


# --- output


def test_what_is_told(ours):
    ours.write(*TREE)

    assert ours("cp", "-r", "d", "s3://bucket/").ok().out == ""
    quiet = ours("cp", "-q", "-r", "d", "s3://bucket/").ok()
    assert quiet.text == ""
    verbose = ours("cp", "-v", "-r", "d", "s3://bucket/").ok()
    assert sorted(verbose.out.splitlines()) == [f"upload {name} -> s3://bucket/{name}" for name in TREE]
    assert "3 copied, " in verbose.err and verbose.err.count("\n") == 1
    told = ours("cp", "--json", "-r", "d", "s3://bucket/").json()
    etags = {entry["Key"]: entry["ETag"] for entry in ours.client.list_objects_v2(Bucket="bucket")["Contents"]}
    assert {(each["action"], each["status"], each["source"], each["target"], each["size"], each["etag"]) for each in told} == {
        ("upload", "done", name, "s3://bucket/" + name, len(name), etags[name]) for name in TREE
    }
    assert ours("sync", "--json", "d", "s3://bucket/d").json() == []
