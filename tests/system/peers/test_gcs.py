"""gs:// with fake-gcs-server, a program of another project: reading, listing, deleting, signed
URLs, staging. The server accepts a PUT only at a signed URL, and its XML API has neither conditions
nor uploads in parts; the simulator in harness/gcs.py has both."""
import json
import os
import secrets
import urllib.request

import pytest

from harness.gcs import Gcs

pytestmark = pytest.mark.long


@pytest.fixture
def bucket(fake_gcs):
    name = f"b{secrets.token_hex(6)}"
    fake_gcs.make_bucket(name)
    return name


def test_listing_and_reading(penstock, fake_gcs, bucket, tmp_path):
    contents = {f"d{i % 3}/a b+{i}": os.urandom(i * 1000) for i in range(30)} | {"large": os.urandom(20 << 20), "ü": b"utf-8"}
    made = {key: fake_gcs.put(bucket, key, body) for key, body in contents.items()}

    listed = json.loads(penstock.run("ls", "-r", "--json", f"gs://{bucket}/", env=fake_gcs.env).exits(0).out)
    stat = json.loads(penstock.run("stat", "--json", f"gs://{bucket}/large", env=fake_gcs.env).exits(0).out)[0]
    penstock.run("sync", f"gs://{bucket}/", str(tmp_path / "back"), env=fake_gcs.env).exits(0)

    assert {entry["key"]: entry["size"] for entry in listed} == {key: len(body) for key, body in contents.items()}
    assert stat["etag"] == f'"{made["large"]["generation"]}"' == next(e["etag"] for e in listed if e["key"] == "large")
    back = tmp_path / "back"
    assert {str(p.relative_to(back)): p.read_bytes() for p in back.rglob("*") if p.is_file()} == contents


def test_removing(penstock, fake_gcs, bucket):
    for i in range(40):
        fake_gcs.put(bucket, f"tmp/{i}", b"x")
    fake_gcs.put(bucket, "kept", b"y")

    penstock.run("rm", "-r", f"gs://{bucket}/tmp/", env=fake_gcs.env).exits(0)

    assert fake_gcs.keys(bucket) == ["kept"]


# The server checks no signature, but address and parameters must be those of Google's signed URLs.
def test_links(penstock, fake_gcs, bucket, tmp_path):
    fake_gcs.put(bucket, "a b.txt", b"shared")
    with Gcs() as accounts:
        env = fake_gcs.env | {"GOOGLE_APPLICATION_CREDENTIALS": str(accounts.key_file(tmp_path / "key.json"))}
        link = penstock.run("presign", f"gs://{bucket}/a b.txt", env=env).exits(0).out.strip()
        place = penstock.run("presign", "--method", "PUT", f"gs://{bucket}/in.txt", env=env).exits(0).out.strip()

    assert urllib.request.urlopen(link, timeout=60).read() == b"shared"
    urllib.request.urlopen(urllib.request.Request(place, data=b"given", method="PUT"), timeout=60)
    assert fake_gcs.bytes(bucket, "in.txt") == b"given"


def test_an_input_is_staged(penstock, fake_gcs, bucket, tmp_path):
    fake_gcs.put(bucket, "train/a/b.txt", b"samples")
    workflow = tmp_path / "wf.json"
    workflow.write_text(json.dumps({
        "resources": {"tasks": 1, "cpusPerTask": 1, "memPerCpu": 512},
        "input": {"gs": {"bucketUrl": f"gs://{bucket}", "path": "/train", "endpointUrl": fake_gcs.url}},
        "steps": [{"name": "only", "run": {"command": 'cat "$DEEPSQUARE_INPUT/a/b.txt"'}}],
    }))  # fmt: skip

    assert penstock.run("run", workflow, env=fake_gcs.env).ok().out == "samples"


# An operation that the server lacks leads to an error with the server's reply, and never looks like
# a success.
def test_what_it_does_not_take_is_told(penstock, fake_gcs, bucket):
    result = penstock.run("put", f"gs://{bucket}/new", input=b"x", env=fake_gcs.env)

    assert result.code != 0 and f"gs://{bucket}/new" in result.err and fake_gcs.keys(bucket) == []
