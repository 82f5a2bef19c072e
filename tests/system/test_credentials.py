"""Temporary keys from where moto gives them: an instance's metadata service, STS for a role and for a web identity."""
import json
import urllib.request

import pytest
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
