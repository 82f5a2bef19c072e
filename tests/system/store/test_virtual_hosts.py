"""Buckets in the host name of the request: `penstock serve --domain`."""
import socket
import urllib.error
import urllib.request

import pytest

from harness.program import Store
from harness.s3_wire import Wire

DOMAIN = "s3.test"


@pytest.fixture
def hosted(penstock, tmp_path, monkeypatch):
    """A store with two domains; all host names in both lead to this machine."""
    store = Store(penstock, tmp_path / "store", options=["--domain", f"test,{DOMAIN}"])
    real = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *rest, **more: real("127.0.0.1" if host.endswith("test") else host, *rest, **more))
    yield store
    store.stop()


def client(store, style="virtual", version="s3v4", host=DOMAIN):
    port = store.endpoint.rpartition(":")[2]
    return store.boto3(f"http://{host}:{port}", signature_version=version, s3={"addressing_style": style})


@pytest.mark.parametrize("version", ["s3v4", "s3"])
def test_the_host_names_the_bucket(hosted, version):
    s3 = client(hosted, version=version)
    s3.create_bucket(Bucket="my.data")
    s3.create_bucket(Bucket="data")
    s3.put_object(Bucket="data", Key="a b/ä", Body=b"x")

    assert s3.get_object(Bucket="data", Key="a b/ä")["Body"].read() == b"x"
    assert hosted.keys("data") == ["a b/ä"]
    assert sorted(bucket["Name"] for bucket in s3.list_buckets()["Buckets"]) == ["data", "my.data"]
    url = s3.generate_presigned_url("get_object", Params={"Bucket": "data", "Key": "a b/ä"})
    assert "//data.s3.test:" in url
    with urllib.request.urlopen(url) as reply:
        assert reply.read() == b"x"
    with pytest.raises(urllib.error.HTTPError) as failure:  # either the host or the bucket is signed
        urllib.request.urlopen(url.replace("//data.", "//my.data."))
    assert failure.value.code == 403
    s3.delete_object(Bucket="data", Key="a b/ä")
    s3.delete_bucket(Bucket="data")


def test_uploads_copies_and_paths(hosted):
    s3, by_path, address = client(hosted), client(hosted, "path"), hosted.client
    s3.create_bucket(Bucket="data")
    by_path.put_object(Bucket="data", Key="p", Body=b"path")
    address.put_object(Bucket="data", Key="q", Body=b"address")
    s3.copy_object(Bucket="data", Key="copy", CopySource="data/p")
    upload = s3.create_multipart_upload(Bucket="data", Key="m")["UploadId"]
    part = s3.upload_part(Bucket="data", Key="m", UploadId=upload, PartNumber=1, Body=b"part")["ETag"]
    done = s3.complete_multipart_upload(Bucket="data", Key="m", UploadId=upload, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part}]})

    assert done["Location"] == f"{hosted.endpoint}/data/m"
    assert [entry["Key"] for entry in s3.list_objects_v2(Bucket="data")["Contents"]] == ["copy", "m", "p", "q"]
    assert by_path.get_object(Bucket="data", Key="copy")["Body"].read() == b"path"


def test_hosts_of_all_kinds(hosted):
    client(hosted).create_bucket(Bucket="data")
    hosted.client.put_object(Bucket="data", Key="k", Body=b"x", ACL="public-read")
    wire = Wire(hosted)

    def get(host, path="/k"):
        reply = wire.raw("GET", path, {"host": host})
        return reply.status, getattr(reply, "code", None) if reply.status >= 300 else reply.body

    for host in ("data.s3.test", "DATA.S3.Test:1", "data.test"):
        assert get(host) == (200, b"x"), host
    for host in ("s3.test", "test", "other", "data.s3.test.", "datatest", "127.0.0.1"):
        assert get(host, "/data/k") == (200, b"x"), host
    assert get("s3.test", "/missing/k")[0] == 404
    for host in ("data/k.s3.test", "%64ata.s3.test", "da_ta.s3.test", ".s3.test"):
        assert get(host)[0] in (400, 403), host
    assert get("x" * 300 + ".s3.test")[0] == 400


def test_forms_and_preflights(hosted):
    s3 = client(hosted)
    s3.create_bucket(Bucket="data")
    rule = {"AllowedMethods": ["GET"], "AllowedOrigins": ["http://page"]}
    s3.put_bucket_cors(Bucket="data", CORSConfiguration={"CORSRules": [rule]})
    form = s3.generate_presigned_post("data", "k")
    import requests

    assert requests.post(form["url"], data=form["fields"], files={"file": b"body"}, timeout=20).status_code == 204
    assert s3.get_object(Bucket="data", Key="k")["Body"].read() == b"body"
    asked = {"Origin": "http://page", "Access-Control-Request-Method": "GET"}
    reply = requests.options(form["url"].rstrip("/") + "/k", headers=asked, timeout=20)
    assert reply.status_code == 200 and reply.headers["Access-Control-Allow-Origin"] == "http://page"


@pytest.mark.parametrize("domain", ["", "s3.test,", "s3.test:9000", ".test", "s3..test", "-s3.test", "s3_test", "10.0.0.1", "http://s3.test", "a" * 64])
def test_domains_that_no_host_can_have_are_refused(penstock, tmp_path, domain):
    found = penstock.run("serve", "--root", tmp_path / "store", "--listen", "127.0.0.1:0", "--domain", domain).exits(64)

    assert "cannot serve the domain '" in found.err
