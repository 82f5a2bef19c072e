"""Temporary keys from MinIO's STS: a role that is assumed with permanent keys, and a token of an identity provider that is exchanged."""
import base64
import json
import subprocess
import time

import pytest

from harness.peers.minio import Minio

pytestmark = pytest.mark.long
CLIENT = "trainers"


def text(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Issuer:
    """An identity provider: http_server serves its documents, and openssl signs with its key."""

    def __init__(self, http_server, folder):
        self.key, self.url = folder / "issuer.pem", http_server.url
        subprocess.run(["openssl", "genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", self.key], check=True, capture_output=True)
        modulus = subprocess.run(["openssl", "rsa", "-in", self.key, "-noout", "-modulus"], check=True, capture_output=True, text=True).stdout
        number = bytes.fromhex(modulus.strip().partition("=")[2])
        keys = [{"kty": "RSA", "use": "sig", "alg": "RS256", "kid": "one", "n": text(number), "e": "AQAB"}]
        http_server.add("/keys", json.dumps({"keys": keys}).encode())
        self.configuration = http_server.add("/.well-known/openid-configuration", json.dumps({
            "issuer": self.url, "jwks_uri": self.url + "/keys", "authorization_endpoint": self.url + "/authorize", "token_endpoint": self.url + "/token",
            "response_types_supported": ["code"], "subject_types_supported": ["public"], "id_token_signing_alg_values_supported": ["RS256"],
        }).encode())  # fmt: skip

    def token(self, **claims):
        now = int(time.time())
        claims = {"iss": self.url, "sub": "trainer", "aud": CLIENT, "azp": CLIENT, "iat": now, "exp": now + 3600, "policy": "readwrite"} | claims
        signed = ".".join(text(json.dumps(part).encode()) for part in ({"alg": "RS256", "typ": "JWT", "kid": "one"}, claims))
        made = subprocess.run(["openssl", "dgst", "-sha256", "-sign", self.key], input=signed.encode(), check=True, capture_output=True)
        return f"{signed}.{text(made.stdout)}"


@pytest.fixture
def issuer(http_server, tmp_path):
    return Issuer(http_server, tmp_path)


@pytest.fixture
def minio(peer_tools, keep_process, issuer):
    server = Minio(peer_tools, keep_process, {"MINIO_IDENTITY_OPENID_CONFIG_URL": issuer.configuration, "MINIO_IDENTITY_OPENID_CLIENT_ID": CLIENT})
    try:
        server.client.create_bucket(Bucket="bucket")
        yield server
    finally:
        server.stop()


@pytest.fixture
def verbs(penstock, minio, tmp_path):
    """Runs verbs without any keys in the environment, with a configuration file if one is given."""

    def run(*arguments, configuration="", **env):
        path = tmp_path / "config"
        path.write_text(configuration)
        env |= {"AWS_ENDPOINT_URL": minio.endpoint, "AWS_CONFIG_FILE": str(path), "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
                "AWS_EC2_METADATA_DISABLED": "true", "PENSTOCK_LOG": "debug"}  # fmt: skip
        return penstock.run(*arguments, env=env, cwd=tmp_path)

    return run


def test_a_role_is_assumed(verbs, minio, tmp_path):
    configuration = (
        f"[profile base]\naws_access_key_id = {minio.access_key}\naws_secret_access_key = {minio.secret_key}\n"
        "[profile trainer]\nrole_arn = arn:minio:iam:::role/trainer\nsource_profile = base\nduration_seconds = 900\n"
    )
    (tmp_path / "file").write_bytes(b"by a role")

    done = verbs("cp", "--profile", "trainer", "file", "s3://bucket/", configuration=configuration).ok()

    assert minio.bytes("bucket", "file") == b"by a role" and minio.secret_key not in done.text
    wrong = configuration.replace(minio.secret_key, "not-the-secret")
    refused = verbs("ls", "--profile", "trainer", "s3://bucket", configuration=wrong).exits(77)
    assert "403" in refused.err and "not-the-secret" not in refused.text


# The object is uploaded in parts, and each request carries the token of the session.
def test_a_web_identity_is_exchanged(verbs, minio, issuer, tmp_path):
    token, body = issuer.token(), b"0123456789abcdef" * (5 << 20)
    (tmp_path / "token").write_text(token + "\n")
    (tmp_path / "file").write_bytes(body)

    done = verbs("cp", "file", "s3://bucket/", AWS_WEB_IDENTITY_TOKEN_FILE=str(tmp_path / "token")).ok()
    verbs("cp", "s3://bucket/file", "back", AWS_WEB_IDENTITY_TOKEN_FILE=str(tmp_path / "token")).ok()

    assert minio.bytes("bucket", "file") == (tmp_path / "back").read_bytes() == body and token not in done.text


@pytest.mark.parametrize("claims", [{"exp": 1_000_000_000}, {"aud": "others", "azp": "others"}, {"policy": "none-of-this-name"}], ids=str)
def test_a_token_that_is_not_taken_is_told(verbs, issuer, tmp_path, claims):
    token = issuer.token(**claims)
    (tmp_path / "token").write_text(token)

    refused = verbs("ls", "s3://bucket", AWS_WEB_IDENTITY_TOKEN_FILE=str(tmp_path / "token")).exits(77)

    assert "InvalidParameterValue" in refused.err and token not in refused.text
