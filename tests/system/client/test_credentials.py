"""Temporary keys from moto: an instance's metadata service, STS for a role and for a web identity."""
import json
import os
import urllib.request

import pytest
from harness.fault_proxy import s3_error
from harness.s3tool import PERMISSION, Tool


@pytest.fixture
def tool(moto, tmp_path):
    """The client without any keys in its environment, and a home for its configuration."""
    tool = Tool(tmp_path, moto)
    tool.home = tmp_path
    (tmp_path / ".aws").mkdir()
    tool.configure = lambda text: (tmp_path / ".aws" / "config").write_text(text)
    return tool


def signers(moto):
    """The access key ids of the requests that moto got."""
    with urllib.request.urlopen(moto + "/moto-api/recorder/download-recording", timeout=30) as reply:
        lines = [json.loads(line) for line in reply.read().splitlines()]
    found = []
    for line in lines:
        authorization = {name.lower(): value for name, value in line["headers"].items()}.get("authorization", "")
        found.append(authorization.partition("Credential=")[2].partition("/")[0])
    return found


@pytest.fixture
def recorded(moto):
    def post(action):
        urllib.request.urlopen(urllib.request.Request(f"{moto}/moto-api/recorder/{action}", method="POST"), timeout=30).close()

    post("reset-recording")
    post("start-recording")
    yield lambda: signers(moto)
    post("stop-recording")


def test_an_instance_gives_its_role(tool, moto, recorded):
    enabled = {"AWS_EC2_METADATA_DISABLED": "false", "AWS_EC2_METADATA_SERVICE_ENDPOINT": moto}

    tool.ok("bucket-create", "bucket", **enabled)

    assert recorded()[-1] == "test-key"


def test_a_role_is_assumed_with_the_keys_of_a_profile(tool, recorded):
    tool.configure(
        "[profile base]\naws_access_key_id = AKIABASE\naws_secret_access_key = secret\n"
        "[profile trainer]\nrole_arn = arn:aws:iam::123456789012:role/trainer\nsource_profile = base\n"
    )

    tool.ok("bucket-create", "bucket", AWS_PROFILE="trainer")

    assumed, used = recorded()[-2:]
    assert assumed == "AKIABASE"
    assert used.startswith("ASIA")


def test_a_web_identity_is_exchanged_for_keys(tool, recorded, tmp_path):
    (tmp_path / "token").write_text("eyJhbGciOiJub25lIn0.e30.\n")

    tool.ok(
        "bucket-create", "bucket",
        AWS_WEB_IDENTITY_TOKEN_FILE=tmp_path / "token", AWS_ROLE_ARN="arn:aws:iam::123456789012:role/trainer",
    )  # fmt: skip

    exchanged, used = recorded()[-2:]
    assert exchanged == ""
    assert used.startswith("ASIA")


def test_a_process_prints_keys_that_are_used(tool, recorded):
    tool.configure(
        "[default]\ncredential_process = echo '{\"Version\": 1, \"AccessKeyId\": \"AKIAPRINTED\", \"SecretAccessKey\": \"s\"}'\n"
    )

    tool.ok("bucket-create", "bucket")

    assert recorded()[-1] == "AKIAPRINTED"


def test_without_any_source_it_says_where_it_looked(tool):
    told = tool.fails(PERMISSION, "bucket-create", "bucket", AWS_EC2_METADATA_DISABLED="true")

    assert "AWS_ACCESS_KEY_ID" in told and ".aws/config" in told


# --- the verbs, with keys that expire and are fetched again


@pytest.fixture
def verbs(penstock, store, fault_proxy, tmp_path):
    """Runs verbs without any keys in the environment, through the proxy."""
    store.client.create_bucket(Bucket="bucket")

    def run(*arguments, **env):
        place = {"AWS_ENDPOINT_URL": fault_proxy.url, "AWS_EC2_METADATA_DISABLED": "true", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null"}
        return penstock.run(*arguments, env=place | env, cwd=tmp_path)

    return run


# As in ECS and EKS, the token is in a file that is read again for each request.
def test_a_container_gets_its_keys_with_a_token(verbs, store, http_server, tmp_path):
    keys = {"AccessKeyId": store.access_key, "SecretAccessKey": store.secret_key, "Token": "", "Expiration": "2099-01-01T00:00:00Z"}
    url = http_server.add("/v1/credentials", json.dumps(keys).encode())
    (tmp_path / "token").write_text("token-of-the-pod\n")
    (tmp_path / "file").write_bytes(b"x")

    verbs("cp", "file", "s3://bucket/", AWS_CONTAINER_CREDENTIALS_FULL_URI=url, AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE=str(tmp_path / "token")).ok()

    assert store.bytes("bucket", "file") == b"x"
    assert [request.headers.get("authorization") for request in http_server.requests] == ["token-of-the-pod"]


# The store rejects the keys as expired while parts are in flight: new keys are fetched, and the transfer continues.
@pytest.mark.parametrize("way", ["up", "down"])
def test_keys_that_expire_in_mid_transfer_are_fetched_again(verbs, store, fault_proxy, tmp_path, way):
    body = os.urandom(72 << 20)
    printer = tmp_path / "printer"
    printer.write_text(
        f"#!/bin/sh\necho asked >> {tmp_path}/asked\n"
        f'echo \'{{"Version": 1, "AccessKeyId": "{store.access_key}", "SecretAccessKey": "{store.secret_key}", "Expiration": "2099-01-01T00:00:00Z"}}\'\n'
    )
    printer.chmod(0o755)
    (tmp_path / "config").write_text(f"[default]\ncredential_process = {printer}\n")
    (tmp_path / "file").write_bytes(body)
    store.client.put_object(Bucket="bucket", Key="there", Body=body)
    expired = fault_proxy.fault(method="PUT" if way == "up" else "GET", skip=2, times=3, status=400, body=s3_error("ExpiredToken"))

    arguments = ["file", "s3://bucket/new"] if way == "up" else ["s3://bucket/there", "back"]
    verbs("cp", *arguments, AWS_CONFIG_FILE=str(tmp_path / "config")).ok()

    assert expired.hits == 3 and len((tmp_path / "asked").read_text().splitlines()) >= 2
    assert (store.bytes("bucket", "new") if way == "up" else (tmp_path / "back").read_bytes()) == body
