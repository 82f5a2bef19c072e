"""Every verb for one key accepts every key: dots, double and final slashes, all legal bytes,
literal wildcards, 1,024 bytes."""
import shlex
import subprocess
import urllib.request

import pytest

from harness.program import binary

KEYS = ["a/../b", "//", "a/", "\x01", "*", "k" * 1024]
MORE = ["..", ".", "../up", "a//b", "/a", "\x7f", "a?", "a%2Fb", "-r", "a b+&=#", "日本/語"]
EACH = [(key, b"\0 bytes \xff") for key in KEYS] + [("日/\t", b"")]
EACH += [pytest.param(key, body, marks=pytest.mark.long) for key in MORE for body in (b"", b"some")]


@pytest.fixture
def s3(penstock, store, tmp_path):
    store.client.create_bucket(Bucket="bucket")

    def run(*arguments, input=None):
        return penstock.run(*arguments, env=store.env, cwd=tmp_path, input=input)

    def bytes_of(*arguments):
        made = [binary(), *arguments]
        return subprocess.run(made, env=penstock.env | store.env, cwd=tmp_path, stdout=subprocess.PIPE, timeout=120, check=True).stdout

    run.store, run.folder, run.bytes_of = store, tmp_path, bytes_of
    return run


@pytest.mark.parametrize("key, body", EACH, ids=lambda text: ascii(text[:10]))
def test_each_verb_takes_every_key(s3, key, body):
    url, others = f"s3://bucket/{key}", ["other", "ü/k" + "\x02"]
    for other in others:
        s3.store.client.put_object(Bucket="bucket", Key=other, Body=b"another")

    s3("put", "-q", url, input=body).ok()
    assert s3.store.bytes("bucket", key) == body and s3.store.keys("bucket") == sorted([key, *others], key=str.encode)
    assert s3.bytes_of("cat", url) == body
    assert s3("stat", "--json", url).json()[0]["size"] == len(body)
    assert [entry["size"] for entry in s3("ls", "-r", "--json", "s3://bucket/").json() if entry["key"] == key] == [len(body)]
    assert urllib.request.urlopen(s3("presign", url).ok().out.strip(), timeout=60).read() == body

    s3("cp", "--raw", url, "down").ok()
    assert (s3.folder / "down").read_bytes() == body
    s3("cp", "--raw", url, "s3://bucket/copy").ok()
    s3("rm", "--raw", url).ok()
    assert s3.store.keys("bucket") == sorted(["copy", *others], key=str.encode)
    if key.endswith("/"):  # as a target, the key would be a directory
        return
    s3("cp", "down", url).ok()
    assert s3.store.bytes("bucket", key) == body
    s3("mv", "s3://bucket/copy", url).ok()
    (s3.folder / "lines").write_text(f"cp --raw {shlex.quote(url)} s3://bucket/again\nrm --raw {shlex.quote(url)}\n")
    s3("batch", "lines").ok()

    assert s3.store.keys("bucket") == sorted(["again", *others], key=str.encode) and s3.store.bytes("bucket", "again") == body
