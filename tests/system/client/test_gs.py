"""gs:// through the XML API: the verbs, with a simulator that checks what Google checks (harness/gcs.py)."""
import json
import os
import re
import subprocess
import time
import urllib.request

import pytest

from harness.gcs import Gcs
from harness.program import binary

INPUT, UNAVAILABLE, USAGE, PERMISSION = 66, 69, 64, 77


# Uploads and downloads a checkpoint with each kind of identity. The name of the checkpoint has
# special characters.
def test_the_verbs_work_with_every_identity(penstock, gcs, who):
    key, body = "runs/a b+c%/ü~.pth", os.urandom(100_000)
    penstock.run("put", f"gs://train/{key}", input=body, env=who).exits(0)
    stat = json.loads(penstock.run("stat", "--json", f"gs://train/{key}", env=who).exits(0).out)[0]
    listed = json.loads(penstock.run("ls", "-r", "--json", "gs://train/runs/", env=who).exits(0).out)
    got = subprocess.run([binary(), "cat", f"gs://train/{key}"], env=penstock.env | who, stdout=subprocess.PIPE, check=True).stdout
    total = penstock.run("du", "gs://train/", env=who).exits(0).out
    removed = penstock.run("rm", f"gs://train/{key}", env=who).exits(0).out

    assert got == body and stat["size"] == len(body) and "100000" in total
    assert stat["etag"] == listed[0]["etag"] and re.fullmatch(r'"17\d{14}"', stat["etag"])
    assert listed[0]["key"] == key and f"removed gs://train/{key}" in removed and not gcs.buckets["train"]
    assert not any(name.startswith("x-amz-") for r in gcs.requests for name in r["headers"])


def test_buckets_are_made_for_the_project_and_removed(penstock, gcs, tmp_path):
    gcs.guarded = True
    env = gcs.token_env(gcs.key_file(tmp_path / "key.json"))

    made = penstock.run("mb", "gs://new-bucket", env=env).exits(0).out
    penstock.run("rb", "gs://new-bucket", env=env).exits(0)

    assert made.strip().endswith("gs://new-bucket") and "new-bucket" not in gcs.buckets
    assert gcs.seen("PUT", x_goog_project_id="lab")


# The checksum is sent with the bytes; an object in parts is verified as a whole after its upload.
def test_uploads_carry_crc32c_and_go_in_parts_where_large(penstock, gcs):
    body = os.urandom(17 << 20)

    penstock.run("put", "gs://train/large", input=body, env=gcs.env).exits(0)

    assert gcs.buckets["train"]["large"].body == body and gcs.buckets["train"]["large"].composed and not gcs.uploads
    parts = [r for r in gcs.seen("PUT") if "partNumber" in r["path"]]
    assert len(parts) == 3 and all(r["headers"]["x-goog-hash"].startswith("crc32c=") for r in parts)


# Google has no condition on uploads in parts: the stream is stored under another name, and copied under the condition.
def test_create_only_holds_for_streams_of_any_length(penstock, gcs):
    penstock.run("put", "--if-none-match", "gs://train/lock", input=b"first", env=gcs.env).exits(0)
    refused = penstock.run("put", "--if-none-match", "gs://train/lock", input=b"second", env=gcs.env)
    penstock.run("put", "--if-none-match", "gs://train/big", input=b"b" * (17 << 20), env=gcs.env).exits(0)
    late = penstock.run("put", "--if-none-match", "gs://train/big", input=b"c" * (17 << 20), env=gcs.env)

    assert refused.code != 0 and late.code != 0 and gcs.buckets["train"]["lock"].body == b"first"
    assert set(gcs.buckets["train"]) == {"lock", "big"} and gcs.buckets["train"]["big"].body[:1] == b"b"
    assert gcs.seen("PUT", x_goog_if_generation_match="0") and not gcs.uploads


@pytest.mark.parametrize("size, composed", [(11, False), (11, True), (20 << 20, True)])
def test_damaged_bytes_are_found(penstock, gcs, size, composed):
    found = gcs.put("train", "damaged", b"y" * size)
    found.composed, found.body = composed, b"z" + found.body[1:]

    result = penstock.run("cat", "gs://train/damaged", env=gcs.env)

    assert result.code == UNAVAILABLE and "crc32c" in result.err.lower()


# A byte changes on its way to the store, which must not keep the object.
def test_a_put_whose_bytes_do_not_fit_is_refused_by_its_hash(penstock, gcs):
    gcs.damage = True
    result = penstock.run("put", "gs://train/x", input=b"payload", env=gcs.env)

    assert result.code != 0 and "BadDigest" in result.err and not gcs.buckets["train"]


def test_packed_objects_come_as_they_are_stored(penstock, gcs):
    gcs.put("train", "log.gz", b"\x1f\x8bpacked", **{"content-encoding": "gzip"})

    assert subprocess.run([binary(), "cat", "gs://train/log.gz"], env=penstock.env | gcs.env, stdout=subprocess.PIPE).stdout == b"\x1f\x8bpacked"


# Each object takes one request; a missing object is not a failure.
def test_many_objects_are_removed_one_by_one(penstock, gcs):
    for i in range(60):
        gcs.put("train", f"tmp/{i:03}")
    gcs.put("train", "kept")

    penstock.run("rm", "-r", "gs://train/tmp/", env=gcs.env).exits(0)

    assert set(gcs.buckets["train"]) == {"kept"} and len(gcs.seen("DELETE")) == 60


def test_a_link_signed_with_either_key_opens_the_object(penstock, gcs, tmp_path):
    gcs.guarded = True
    gcs.put("train", "a file.txt", b"shared")
    for env in (gcs.hmac_env, gcs.token_env(gcs.key_file(tmp_path / "key.json"))):
        link = penstock.run("presign", "gs://train/a file.txt", env=env).exits(0).out.strip()
        written = penstock.run("presign", "--method", "PUT", "gs://train/in.txt", env=env).exits(0).out.strip()

        assert urllib.request.urlopen(link, timeout=60).read() == b"shared"
        urllib.request.urlopen(urllib.request.Request(written, data=b"given", method="PUT"), timeout=60)
        assert gcs.buckets["train"].pop("in.txt").body == b"given"
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(link.replace("a%20file", "other"), timeout=60)
    assert not gcs.assertions, "a link needs no token"


# The token is fetched once for all requests, and again when it has expired or is refused.
def test_a_token_is_fetched_once_and_renewed(penstock, gcs, tmp_path):
    gcs.guarded = True
    env = gcs.token_env(gcs.key_file(tmp_path / "key.json"))
    for i in range(30):
        gcs.put("train", f"k{i:02}")
    penstock.run("rm", "-r", "gs://train/", env=env).exits(0)
    once = len(gcs.assertions)
    with subprocess.Popen([binary(), "put", "gs://train/slow"], env=penstock.env | env, stdin=subprocess.PIPE) as process:
        process.stdin.write(b"a" * (9 << 20))
        process.stdin.flush()
        deadline = time.monotonic() + 60
        while not [r for r in gcs.seen("PUT") if "partNumber" in r["path"]]:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        for token in gcs.tokens:
            gcs.tokens[token] = 0  # expired before its announced time
        process.stdin.write(b"b" * (9 << 20))
        process.stdin.close()
    assert process.returncode == 0 and len(gcs.buckets["train"]["slow"].body) == 18 << 20
    assert once == 1 and len(gcs.assertions) == 3
    claims = gcs.assertions[0]
    assert claims["exp"] - claims["iat"] == 3600 and claims["aud"].endswith("/token") and "devstorage" in claims["scope"]


# Neither the key's signature nor the token goes to a server without a valid certificate.
def test_store_and_token_service_are_spoken_to_over_tls(penstock, certificate, tmp_path):
    with Gcs(certificate.context) as gcs:
        gcs.guarded, gcs.buckets["train"] = True, {}
        gcs.put("train", "k")
        env = gcs.token_env(gcs.key_file(tmp_path / "key.json"))
        trust = {"SSL_CERT_FILE": certificate.path, "AWS_CA_BUNDLE": None, "CURL_CA_BUNDLE": None}

        untrusted = penstock.run("ls", "gs://train", env=env | {"SSL_CERT_FILE": None, "AWS_CA_BUNDLE": None, "CURL_CA_BUNDLE": None})
        sent = len(gcs.requests)
        trusted = penstock.run("ls", "gs://train", env=env | trust).exits(0)

        assert untrusted.code in (UNAVAILABLE, PERMISSION) and "SSL_CERT_FILE" in untrusted.err and not sent
        assert "k" in trusted.out and len(gcs.assertions) == 1


def test_other_identities_are_exchanged_too(penstock, gcs, tmp_path):
    gcs.guarded = True
    gcs.put("train", "k")
    user = tmp_path / "home" / "application_default_credentials.json"
    user.parent.mkdir()
    user.write_text(json.dumps({
        "type": "authorized_user", "client_id": "id", "client_secret": "secret-of-the-client", "refresh_token": "refresh-of-the-tests",
        "token_uri": gcs.url + "/token", "quota_project_id": "lab",
    }))  # fmt: skip
    machine = {"NO_GCE_CHECK": "false", "GCE_METADATA_HOST": gcs.authority}

    for env in (gcs.env | {"CLOUDSDK_CONFIG": str(user.parent)}, machine):
        options = ["--endpoint-url", gcs.url] if env is machine else []
        assert "k" in penstock.run("ls", *options, "gs://train", env=env).exits(0).out


@pytest.mark.parametrize(
    "spoil, code, says",
    [
        (lambda gcs, key: key.write_text("{"), USAGE, "JSON"),
        (lambda gcs, key: key.unlink(), INPUT, "key.json"),
        (lambda gcs, key: setattr(gcs, "token_error", "Invalid grant: account not found"), PERMISSION, "account not found"),
        (lambda gcs, key: setattr(gcs, "public_key", b""), PERMISSION, "Invalid JWT Signature"),
    ],
    ids=["no JSON", "missing", "unknown account", "another key"],
)
def test_mistakes_in_keys_are_one_line_without_the_key(penstock, gcs, tmp_path, spoil, code, says):
    gcs.guarded = True
    key = gcs.key_file(tmp_path / "key.json")
    secret = json.loads(key.read_text())["private_key"].splitlines()[2]
    spoil(gcs, key)

    result = penstock.run("ls", "gs://train", env=gcs.token_env(key) | {"PENSTOCK_LOG": "debug"})

    assert result.code == code and says in result.err, result.err
    assert secret not in result.err and "eyJ" not in result.err


@pytest.mark.parametrize(
    "arguments, says",
    [
        (["ls", "gs://train", "s3://train"], "use separate commands"),
        (["ls", "--endpoint-url", "embedded", "gs://train"], "in the embedded store"),
        (["cat", "gs://train/none"], "no such object"),
        (["ls", "gs://B_"], "3 to 63 characters"),
    ],
)
def test_mistakes_in_operands_are_named(penstock, gcs, arguments, says):
    result = penstock.run(*arguments, env=gcs.env | {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"})

    assert result.code != 0 and says in result.err and len(result.err.splitlines()) == 1, result.err


def test_without_any_identity_it_says_where_it_looked(penstock):
    result = penstock.run("ls", "gs://train", env={"NO_GCE_CHECK": "true"}).exits(PERMISSION)

    assert "GOOGLE_APPLICATION_CREDENTIALS" in result.err and "--no-sign-request" in result.err


# An upload with a condition is retried, too.
def test_a_busy_store_is_asked_again(penstock, gcs):
    gcs.fault(503, times=2)
    penstock.run("put", "--if-none-match", "gs://train/k", input=b"once", env=gcs.env).exits(0)

    assert gcs.buckets["train"]["k"].body == b"once"


# The tree has small files, and one that is uploaded in parts. The second sync has nothing to do.
# Then the tree is downloaded, and a part of it is copied to an S3 store.
def test_trees_are_copied_and_synced(penstock, gcs, store, tmp_path):
    tree, back = tmp_path / "tree", tmp_path / "back"
    contents = {f"d{i % 3}/f{i}": os.urandom(i * 100) for i in range(40)} | {"large": os.urandom(18 << 20)}
    for name, body in contents.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_bytes(body)

    penstock.run("sync", str(tree), "gs://train/t/", env=gcs.env).exits(0)
    sent = len(gcs.seen("PUT"))
    penstock.run("sync", str(tree), "gs://train/t/", env=gcs.env).exits(0)
    penstock.run("cp", "-r", "gs://train/t/", str(back), env=gcs.env).exits(0)
    penstock.run("mb", "s3://other", env=store.env).exits(0)
    penstock.run("cp", "-r", "gs://train/t/d1/", "s3://other/copied/", env=gcs.env | store.env).exits(0)

    assert {key[2:]: body for key, body in gcs.bodies("train").items()} == contents
    assert len(gcs.seen("PUT")) == sent, "the second sync sent something"
    assert {str(p.relative_to(back)): p.read_bytes() for p in back.rglob("*") if p.is_file()} == contents
    assert store.bytes("other", "copied/f4") == contents["d1/f4"]
