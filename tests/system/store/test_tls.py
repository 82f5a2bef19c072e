"""HTTPS of `penstock serve`, and new certificates while it runs."""
import json
import os
import signal
import socket
import ssl
import subprocess

import pytest
from botocore.exceptions import BotoCoreError, ClientError, SSLError

from harness.program import Store
from harness.waiting import wait_for


def make_certificate(folder, name, ca):
    """Signs a certificate for 127.0.0.1; its subject is `name`."""
    key, request, cert = (folder / f"{name}.{suffix}" for suffix in ("key", "csr", "pem"))
    extensions = folder / "extensions"
    extensions.write_text("subjectAltName=IP:127.0.0.1\n")
    quiet = {"check": True, "capture_output": True}
    subprocess.run(["openssl", "req", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", request, "-subj", f"/CN={name}"], **quiet)
    subprocess.run(["openssl", "x509", "-req", "-in", request, "-CA", ca.with_suffix(".pem"), "-CAkey", ca.with_suffix(".key"),
                    "-CAcreateserial", "-days", "2", "-extfile", extensions, "-out", cert], **quiet)  # fmt: skip
    return cert, key


@pytest.fixture
def ca(tmp_path):
    path = tmp_path / "ca"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test CA", "-keyout",
                    path.with_suffix(".key"), "-out", path.with_suffix(".pem")], check=True, capture_output=True)  # fmt: skip
    return path


def install(files, folder):
    """Puts certificate and key in place like certbot, which replaces each file atomically."""
    for path, name in zip(files, ("cert.pem", "key.pem")):
        new = folder / f"new-{name}"
        new.write_bytes(path.read_bytes())
        new.chmod(0o600)
        os.replace(new, folder / name)


@pytest.fixture
def secure(penstock, tmp_path, ca):
    install(make_certificate(tmp_path, "first", ca), tmp_path)
    options = ["--tls-cert", tmp_path / "cert.pem", "--tls-key", tmp_path / "key.pem", "--access-log", tmp_path / "log"]
    store = Store(penstock, tmp_path / "store", options=options)
    yield store
    if store.process.running():
        store.stop()


def client(store, ca):
    return store.boto3(verify=str(ca) if ca else None)


def connect(store, ca, **arguments):
    context = ssl.create_default_context(cafile=ca.with_suffix(".pem"))
    for name, value in arguments.items():
        setattr(context, name, value)
    host, port = store.endpoint.split("//")[1].split(":")
    return context.wrap_socket(socket.create_connection((host, int(port)), timeout=20), server_hostname=host)


def subject(connection):
    return dict(part[0] for part in connection.getpeercert()["subject"])["commonName"]


def test_clients_that_trust_the_authority(secure, ca, penstock, tmp_path):
    s3 = client(secure, ca.with_suffix(".pem"))

    assert secure.endpoint.startswith("https://127.0.0.1:")
    s3.create_bucket(Bucket="data")
    s3.upload_fileobj(open("/usr/bin/python3", "rb"), "data", "large")
    assert s3.get_object(Bucket="data", Key="large")["Body"].read() == open("/usr/bin/python3", "rb").read()
    denied = {"Effect": "Deny", "Principal": "*", "Action": "s3:*", "Resource": "arn:aws:s3:::data/*",
              "Condition": {"Bool": {"aws:SecureTransport": "false"}}}  # fmt: skip
    old = denied | {"Condition": {"NumericNotEquals": {"s3:TlsVersion": "1.3"}}}
    s3.put_bucket_policy(Bucket="data", Policy=json.dumps({"Version": "2012-10-17", "Statement": [denied, old]}))
    environment = {"AWS_ENDPOINT_URL": secure.endpoint, "AWS_ACCESS_KEY_ID": secure.access_key, "AWS_SECRET_ACCESS_KEY": secure.secret_key}
    trusting = {**environment, "AWS_CA_BUNDLE": str(ca.with_suffix(".pem"))}
    penstock.run("cp", "s3://data/large", tmp_path / "copy", env=trusting).ok()
    assert (tmp_path / "copy").read_bytes() == open("/usr/bin/python3", "rb").read()
    assert penstock.run("ls", "s3://data", env=environment).code != 0
    with pytest.raises(SSLError):
        client(secure, None).list_buckets()
    wait_for(lambda: "REST.PUT.BUCKET " in (tmp_path / "log").read_text(), 20)
    assert " TLSv1.3 - -\n" in (tmp_path / "log").read_text()


def test_a_file_that_loses_its_bytes_ends_no_more_than_its_request(secure, ca):
    """With TLS, the store's process reads the mapped file, and a mapping beyond the end of the file
    would cause a SIGBUS."""
    s3 = client(secure, ca.with_suffix(".pem"))
    s3.create_bucket(Bucket="bkt")
    s3.put_object(Bucket="bkt", Key="k", Body=bytes(300_000))
    for _ in range(2):
        assert s3.get_object(Bucket="bkt", Key="k", Range="bytes=0-199999")["Body"].read() == bytes(200_000)

    (data,) = [path for path in (secure.root / "data").glob("*/*") if path.is_file()]
    os.truncate(data, 0)
    with pytest.raises((BotoCoreError, ClientError)):
        s3.get_object(Bucket="bkt", Key="k", Range="bytes=0-199999")["Body"].read()

    assert [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]] == ["bkt"]


def test_versions_before_1_2_and_plain_requests_get_nothing(secure, ca):
    with connect(secure, ca) as connection:
        assert connection.version() == "TLSv1.3"
    with connect(secure, ca, maximum_version=ssl.TLSVersion.TLSv1_2) as connection:
        assert connection.version() == "TLSv1.2"
    with pytest.raises((ssl.SSLError, OSError)):
        connect(secure, ca, minimum_version=ssl.TLSVersion.MINIMUM_SUPPORTED, maximum_version=ssl.TLSVersion.TLSv1_1)
    host, port = secure.endpoint.split("//")[1].split(":")
    with socket.create_connection((host, int(port)), timeout=20) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        try:
            assert b"HTTP/" not in plain.recv(100)
        except ConnectionError:
            pass
    client(secure, ca.with_suffix(".pem")).list_buckets()


def test_a_policy_denies_an_old_version(secure, ca):
    s3 = client(secure, ca.with_suffix(".pem"))
    s3.create_bucket(Bucket="data")
    s3.put_object(Bucket="data", Key="k", Body=b"x", ACL="public-read")
    denied = {"Effect": "Deny", "Principal": "*", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::data/*",
              "Condition": {"NumericLessThan": {"s3:TlsVersion": "1.3"}}}  # fmt: skip
    s3.put_bucket_policy(Bucket="data", Policy=json.dumps({"Version": "2012-10-17", "Statement": [denied]}))

    for version, status in ((ssl.TLSVersion.TLSv1_2, b"403"), (ssl.TLSVersion.TLSv1_3, b"200")):
        with connect(secure, ca, maximum_version=version) as connection:
            connection.sendall(b"GET /data/k HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert connection.recv(12) == b"HTTP/1.1 " + status


@pytest.mark.parametrize("hangup", [False, True])
def test_a_new_certificate_is_used_and_no_connection_is_cut(secure, ca, tmp_path, hangup):
    s3 = client(secure, ca.with_suffix(".pem"))
    s3.create_bucket(Bucket="data")
    body = os.urandom(30_000_000)
    s3.put_object(Bucket="data", Key="k", Body=body)
    download = s3.get_object(Bucket="data", Key="k")["Body"]
    begun = download.read(1000)
    with connect(secure, ca) as idle:
        assert subject(idle) == "first"
        install(make_certificate(tmp_path, "second", ca), tmp_path)
        if hangup:
            secure.process.send(signal.SIGHUP)

        def current():
            with connect(secure, ca) as connection:
                return subject(connection)

        wait_for(lambda: current() == "second", 20)
        idle.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert idle.recv(100).startswith(b"HTTP/1.1 403")
    assert begun + download.read() == body
    install(make_certificate(tmp_path, "third", ca), tmp_path)
    wait_for(lambda: current() == "third", 20)
    s3.list_buckets()
    secure.stop()


def read_head(connection):
    text = b""
    while b"\r\n\r\n" not in text:
        text += connection.recv(1000)
    return text.decode().lower()


# The threads of the old certificate stay until its last connection ends, so the store ends these
# connections early.
def test_a_connection_of_an_old_certificate_ends_with_its_next_reply(secure, ca, tmp_path):
    s3 = client(secure, ca.with_suffix(".pem"))
    s3.create_bucket(Bucket="data")
    s3.put_object(Bucket="data", Key="k", Body=b"x", ACL="public-read")
    s3.close()
    request = b"HEAD /data/k HTTP/1.1\r\nHost: x\r\n\r\n"

    def threads():
        return len(os.listdir(f"/proc/{secure.process.pid}/task"))

    def current():
        with connect(secure, ca) as connection:
            return subject(connection)

    with connect(secure, ca) as kept:
        kept.sendall(request)
        assert "connection: close" not in read_head(kept)
        before = threads()
        install(make_certificate(tmp_path, "second", ca), tmp_path)
        wait_for(lambda: current() == "second", 20)
        kept.sendall(request)
        assert "connection: close" in read_head(kept)
        assert kept.recv(1) == b""
        wait_for(lambda: threads() == before, 20)

        with connect(secure, ca) as new:
            for _ in range(2):
                new.sendall(request)
                assert "connection: close" not in read_head(new)


def test_a_hangup_without_new_files_changes_nothing(secure, ca):
    with connect(secure, ca) as idle:
        for _ in range(3):
            secure.process.send(signal.SIGHUP)
        client(secure, ca.with_suffix(".pem")).list_buckets()
        idle.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert idle.recv(100).startswith(b"HTTP/1.1 403")
    assert "is used from now on" not in secure.process.err


def test_an_invalid_pair_leaves_the_old_one_in_use(secure, ca, tmp_path):
    other, _ = make_certificate(tmp_path, "other", ca)
    new = tmp_path / "new"
    new.write_bytes(other.read_bytes())
    os.replace(new, tmp_path / "cert.pem")  # the new certificate does not fit the old key

    wait_for(lambda: "is still used" in secure.process.err, 20)
    with connect(secure, ca) as connection:
        assert subject(connection) == "first"
    install(make_certificate(tmp_path, "second", ca), tmp_path)
    wait_for(lambda: "is used from now on" in secure.process.err, 20)
    with connect(secure, ca) as connection:
        assert subject(connection) == "second"


def test_files_that_cannot_be_used(penstock, tmp_path, ca):
    cert, key = make_certificate(tmp_path, "first", ca)
    _, other = make_certificate(tmp_path, "other", ca)
    empty = tmp_path / "empty"
    empty.touch()
    serve = ["serve", "--root", tmp_path / "store", "--listen", "127.0.0.1:0"]

    for arguments, code in [
        (["--tls-cert", cert], 64),
        (["--tls-key", key], 64),
        (["--tls-cert", cert, "--tls-key", other], 78),
        (["--tls-cert", key, "--tls-key", cert], 78),
        (["--tls-cert", empty, "--tls-key", key], 78),
    ]:
        found = penstock.run(*serve, *arguments)
        assert found.code == code and len(found.err.strip().splitlines()) == 1, (arguments, found.err)
    missing = penstock.run(*serve, "--tls-cert", tmp_path / "missing", "--tls-key", key)
    assert missing.code not in (0, 64) and "missing" in missing.err


# A handshake with a large finite field takes the server 0.4 s, and any client can request it.
@pytest.mark.parametrize("options", [["-groups", "ffdhe8192"], ["-groups", "ffdhe2048"], ["-groups", "P-256"]])
def test_handshakes_use_elliptic_curves(secure, options):
    words = ["openssl", "s_client", "-connect", secure.address.removeprefix("https://"), *options]

    shown = subprocess.run(words, input="", capture_output=True, text=True).stdout

    assert "Server Temp Key: DH" not in shown
    assert ("Server Temp Key: ECDH" in shown) == ("P-256" in options)
