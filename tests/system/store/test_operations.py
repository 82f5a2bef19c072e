"""Running `penstock serve` for other users: access log, metrics, health, a socket from systemd, the
shutdown."""
import base64
import contextlib
import http.client
import re
import select
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request

import pytest
from harness.program import Store, binary, environment
from harness.s3_wire import Wire


@pytest.fixture
def watched(penstock, tmp_path):
    """A store with an access log, and metrics."""

    class Watched(Store):
        def start(self, listen="127.0.0.1:0"):
            super().start(listen)
            self.metrics = self.process.wait_for_output(r"metrics on (http://\S+)/metrics", 30).group(1)

        def scrape(self):
            text = urllib.request.urlopen(self.metrics + "/metrics").read().decode()
            return {name: float(value) for name, value in re.findall(r"^(\w+(?:\{[^}]*\})?) (\S+)$", text, re.MULTILINE)}

    running = Watched(penstock, tmp_path / "store", options=["--access-log", tmp_path / "access.log", "--metrics", "0"])
    running.client.create_bucket(Bucket="bkt")
    yield running
    if running.process.running():
        running.stop()


def lines(path):
    return [re.findall(r'\[[^\]]*\]|"[^"]*"|\S+', line) for line in path.read_text().splitlines()]


def test_each_request_is_a_line_of_the_access_log(watched, tmp_path, wait_for):
    """The lines have the format of S3's own logs, which tools read."""
    s3 = watched.client
    s3.put_object(Bucket="bkt", Key="a key", Body=b"12345")
    s3.get_object(Bucket="bkt", Key="a key")["Body"].read()
    with pytest.raises(s3.exceptions.NoSuchKey):
        s3.get_object(Bucket="bkt", Key="none")

    wait_for(lambda: len(lines(tmp_path / "access.log")) == 4, 10)
    _, put, get, none = lines(tmp_path / "access.log")
    assert put[1] == "bkt" and put[3] == "127.0.0.1" and put[6:8] == ["REST.PUT.OBJECT", "a%20key"]
    assert get[6] == "REST.GET.OBJECT" and get[8] == '"GET /bkt/a%20key HTTP/1.1"' and get[9:12] == ["200", "-", "5"]
    assert none[9:11] == ["404", "NoSuchKey"] and none[-5] == "AuthHeader"


def test_the_access_log_has_no_signature(watched, tmp_path, wait_for):
    """With a signature from the log, a reader of the log could repeat the request until the
    signature expires."""
    url = watched.boto3(signature_version="s3v4").generate_presigned_url("get_object", Params={"Bucket": "bkt", "Key": "k"})
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(url)

    wait_for(lambda: len(lines(tmp_path / "access.log")) == 2, 10)
    line = (tmp_path / "access.log").read_text().splitlines()[1]
    signature = re.search("X-Amz-Signature=([0-9a-f]+)", url).group(1)
    assert signature not in line and "X-Amz-Signature=- " in line and "QueryString" in line


def test_a_client_adds_no_lines_of_its_own(watched, tmp_path, wait_for):
    """Each request makes one line of visible characters. A client could otherwise forge a line that
    shows another sender."""
    host, port = watched.address.rsplit(":", 1)
    for head in (b"GET /bkt/k?versionId=v%0Aforged%20by%20me HTTP/1.1", b"G\x1b[2J\"T /bkt/k HTTP/1.1", b"GET /b\x1b\"/k HTTP/1.1"):
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(head + b"\r\nHost: h\r\nConnection: close\r\n\r\n")
            while connection.recv(4096):
                pass

    wait_for(lambda: (tmp_path / "access.log").read_bytes().count(b"\n") >= 3, 10)
    text = (tmp_path / "access.log").read_bytes()
    assert not re.search(rb"[^\n -~]|^forged| forged", text, re.MULTILINE)
    assert {len(line) for line in lines(tmp_path / "access.log")} == {26}


def test_metrics_are_read_until_the_end(watched):
    """At shutdown, the metrics server must end before the objects that it reads are freed."""
    stop = threading.Event()

    def read():
        while not stop.is_set():
            try:
                watched.scrape()
            except OSError:
                pass

    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    watched.process.send()

    assert watched.process.wait(20).code == 0
    stop.set()
    for reader in readers:
        reader.join()


def test_sighup_reopens_the_access_log(watched, tmp_path, wait_for):
    """logrotate renames the file, and sends SIGHUP."""
    wait_for(lambda: lines(tmp_path / "access.log"), 10)
    (tmp_path / "access.log").rename(tmp_path / "access.log.1")
    watched.process.send(1)
    wait_for((tmp_path / "access.log").exists, 10)

    watched.client.head_bucket(Bucket="bkt")

    wait_for(lambda: lines(tmp_path / "access.log"), 10)
    assert len(lines(tmp_path / "access.log.1")) == 1


def test_metrics_count_requests_bytes_and_changes(watched, wait_for):
    """Requests are counted by operation and status, and their times are a histogram."""
    s3 = watched.client
    s3.put_object(Bucket="bkt", Key="k", Body=bytes(1000))
    for _ in range(3):
        s3.get_object(Bucket="bkt", Key="k")["Body"].read()
    with pytest.raises(s3.exceptions.NoSuchKey):
        s3.get_object(Bucket="bkt", Key="none")

    get = 'operation="REST.GET.OBJECT"'
    wait_for(lambda: watched.scrape().get(f'penstock_requests_total{{{get},status="404"}}') == 1, 10)
    found = watched.scrape()
    assert found[f'penstock_requests_total{{{get},status="200"}}'] == 3
    assert found[f'penstock_request_seconds_bucket{{{get},le="+Inf"}}'] == found[f"penstock_request_seconds_count{{{get}}}"] == 4
    assert found[f"penstock_sent_bytes_total{{{get}}}"] >= 3000
    assert found['penstock_received_bytes_total{operation="REST.PUT.OBJECT"}'] == 1000
    assert found["penstock_changes_total"] >= 2 and found["penstock_commit_queue"] == 0 and found["penstock_connections"] >= 1
    assert found["penstock_disk_free_bytes"] > 0 and watched.secret_key not in str(found)


def test_a_store_shows_its_durability(penstock, watched):
    def shown():
        return penstock.run("store", "stat", "--root", watched.root, "--json").json()["durability"]

    assert watched.scrape()["penstock_relaxed_durability"] == 0 and shown() == "full"
    watched.stop().ok()
    assert "relaxed" not in watched.process.err

    watched.options += ["--durability", "relaxed"]
    watched.start()
    watched.process.wait_for_output("relaxed durability", 30)
    assert watched.scrape()["penstock_relaxed_durability"] == 1 and shown() == "relaxed"
    assert "relaxed" in penstock.run("store", "stat", "--root", watched.root).ok().out
    watched.stop().ok()
    assert shown() == "full"


def test_metrics_count_the_bytes_of_a_body_that_is_refused(watched, wait_for):
    refused = Wire(watched).send("PUT", "/bkt/k", headers={"content-md5": base64.b64encode(bytes(16)).decode()}, body=bytes(1000))

    assert refused.code == "BadDigest"
    wait_for(lambda: watched.scrape().get('penstock_received_bytes_total{operation="REST.PUT.OBJECT"}') == 1000, 10)


def test_health_is_served_and_nothing_else(watched):
    """The port of the metrics needs no signature, so it must not give access to objects."""
    assert urllib.request.urlopen(watched.metrics + "/health/live").status == 200
    assert urllib.request.urlopen(watched.metrics + "/health/ready").status == 200
    with pytest.raises(urllib.error.HTTPError) as failure:
        urllib.request.urlopen(watched.metrics + "/bkt")
    assert failure.value.code == 404


def slow_clients(watched, n, *addresses):
    """Opens `n` connections from each address, and sends only the beginning of a request on
    each."""
    host, port = watched.metrics.removeprefix("http://").split(":")
    crowd = [socket.create_connection((host, int(port)), 30, (address, 0)) for address in addresses for _ in range(n)]
    for one in crowd:
        with contextlib.suppress(ConnectionError):
            one.sendall(b"GET /metrics HTTP/1.1\r\n")
    return crowd


def test_slow_clients_make_room_for_a_probe(watched):
    crowd = slow_clients(watched, 16, *[f"127.0.0.{i}" for i in range(2, 6)])

    for _ in range(3):
        assert urllib.request.urlopen(watched.metrics + "/health/live", timeout=5).status == 200
    for one in crowd:
        one.close()


def test_one_address_cannot_close_the_connections_of_another(watched, wait_for):
    probe = http.client.HTTPConnection(watched.metrics.removeprefix("http://"), timeout=5)
    probe.request("GET", "/health/live")
    assert probe.getresponse().read() == b"live\n"

    crowd = slow_clients(watched, 40, "127.0.0.2")

    wait_for(lambda: len(select.select(crowd, [], [], 0)[0]) >= 24, 5, "those above the limit to be closed")
    probe.request("GET", "/health/live")
    assert probe.getresponse().read() == b"live\n"
    for one in crowd:
        one.close()


def test_a_head_that_trickles_has_a_time(watched):
    (slow,) = slow_clients(watched, 1, "127.0.0.2")
    begun = time.monotonic()

    while not select.select([slow], [], [], 1)[0]:
        slow.sendall(b"x")
        assert time.monotonic() < begun + 30

    assert slow.recv(1) == b""


def test_a_request_in_flight_ends_before_the_server(watched, wait_for):
    """After SIGTERM, a client that is uploading still gets its reply; meanwhile the server reports
    that it is not ready."""
    url = watched.boto3(signature_version="s3v4").generate_presigned_url("put_object", Params={"Bucket": "bkt", "Key": "slow"})
    path = url.removeprefix(watched.endpoint)
    connection = http.client.HTTPConnection(watched.address)
    connection.putrequest("PUT", path)
    connection.putheader("Content-Length", "10")
    connection.endheaders()
    connection.send(b"12345")
    wait_for(lambda: watched.scrape()["penstock_requests_in_flight"] == 1, 10)

    def is_ready():
        try:
            return urllib.request.urlopen(watched.metrics + "/health/ready").status == 200
        except urllib.error.HTTPError:
            return False

    watched.process.send()
    wait_for(lambda: not is_ready(), 10)
    connection.send(b"67890")

    assert connection.getresponse().status == 200
    assert watched.process.wait(20).code == 0


def test_a_hangup_ends_a_server_without_files_to_reopen(penstock, tmp_path):
    """For example when the terminal of the server is closed. The state of relaxed durability shows
    that the server ended in good order."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup may have started the tests
    server = Store(penstock, tmp_path / "store", options=["--durability", "relaxed"])
    signal.signal(signal.SIGHUP, before)
    server.client.create_bucket(Bucket="bkt")
    assert (tmp_path / "store/relaxed").exists()

    server.process.send(signal.SIGHUP)

    assert server.process.wait(20).code == 0
    assert not (tmp_path / "store/relaxed").exists()


def share_bytes(s3, key, times):
    """Makes an object that repeats the bytes of `seed`. The store shares these bytes, and neither
    reads nor writes them."""
    upload = {"Bucket": "bkt", "Key": key, "UploadId": s3.create_multipart_upload(Bucket="bkt", Key=key)["UploadId"]}
    parts = []
    for number in range(1, times + 1):
        copy = s3.upload_part_copy(**upload, PartNumber=number, CopySource={"Bucket": "bkt", "Key": "seed"})
        parts.append({"PartNumber": number, "ETag": copy["CopyPartResult"]["ETag"]})
    s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})


def start_long_copies(watched, wait_for):
    """Starts 24 copies, each of which reads 4 GiB for its checksum. Returns their connections."""
    watched.client.put_object(Bucket="bkt", Key="seed", Body=bytes(64 << 20))
    share_bytes(watched.client, "large", 64)
    wire, copies = Wire(watched), []
    for target in (f"/bkt/copy-{i}" for i in range(24)):
        signed = wire.sign("PUT", target, headers={"x-amz-copy-source": "/bkt/large", "x-amz-checksum-algorithm": "SHA256"})
        copies.append(wire.connect())
        copies[-1].sendall(wire.head("PUT", target, signed | {"content-length": "0"}))
    wait_for(lambda: watched.scrape()["penstock_requests_in_flight"] == len(copies), 30)
    return copies


def test_long_copies_leave_threads_for_others_and_end_with_their_clients(watched, tmp_path, wait_for):
    copies = start_long_copies(watched, wait_for)

    assert watched.keys("bkt") == ["large", "seed"]
    assert not select.select(copies, [], [], 0)[0]
    for copy in copies:
        copy.close()
    wait_for(lambda: watched.scrape()["penstock_requests_in_flight"] == 0, 60)
    ends = [line[9:11] for line in lines(tmp_path / "access.log") if line[6] == "REST.COPY.OBJECT"]
    assert ends == [["400", "RequestTimeout"]] * len(copies)
    assert watched.keys("bkt") == ["large", "seed"]


def test_a_copy_does_not_change_a_later_bucket_of_the_name(watched, wait_for):
    """Somebody else may create a bucket with the name of a deleted one. The sender of the copy may
    have no right to write to it."""
    s3, wire = watched.client, Wire(watched)
    s3.put_object(Bucket="bkt", Key="seed", Body=bytes(64 << 20))
    share_bytes(s3, "large", 16)
    s3.create_bucket(Bucket="name")
    signed = wire.sign("PUT", "/name/k", headers={"x-amz-copy-source": "/bkt/large", "x-amz-checksum-algorithm": "SHA256"})
    with wire.connect() as copy:
        copy.sendall(wire.head("PUT", "/name/k", signed | {"content-length": "0"}))
        wait_for(lambda: watched.scrape()["penstock_requests_in_flight"] == 1, 30)

        s3.delete_bucket(Bucket="name")
        s3.create_bucket(Bucket="name")

        assert copy.recv(100).startswith(b"HTTP/1.1 404 ")
    assert watched.keys("name") == []


def test_long_copies_end_with_the_server(watched, wait_for):
    watched.stop().ok()
    watched.options += ["--drain", "100ms"]
    watched.start()
    copies = start_long_copies(watched, wait_for)

    assert watched.stop().code == 0
    watched.start()
    assert watched.keys("bkt") == ["large", "seed"]
    for copy in copies:
        copy.close()


@pytest.mark.parametrize("mode", [0o640, 0o644])
def test_secrets_that_every_user_can_read_are_a_warning(penstock, tmp_path, mode):
    """A file that only its group can read causes no warning, because the group may be the
    server's."""
    root, master, accounts = tmp_path / "store", tmp_path / "master", tmp_path / "accounts"
    credentials = root / "credentials"
    root.mkdir()
    master.write_text("1f" * 32 + "\n")
    accounts.write_text("[]")
    credentials.write_text("aws_access_key_id = AKEY\naws_secret_access_key = a-secret-of-the-test\n")
    for path in (master, accounts, credentials):
        path.chmod(mode)

    process = penstock.popen("serve", "--root", root, "--listen", "127.0.0.1:0", "--master-key", master, "--accounts", accounts)
    process.wait_for_output("listening on", 30)
    process.send()

    warned = re.findall(r"chmod 600 ([^' ]+)", process.wait(30).err)
    assert sorted(warned) == (sorted(map(str, (master, accounts, credentials))) if mode == 0o644 else [])


def test_a_socket_of_systemd_is_used_and_it_is_notified(penstock, tmp_path):
    """The unit in systemd/ starts the store at the first connection."""
    notified = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notified.bind(str(tmp_path / "notify"))
    notified.settimeout(30)
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    program = tmp_path / "activate"
    program.write_text('#!/bin/bash\nexec 3<&"$1"; shift; export LISTEN_FDS=1 LISTEN_PID=$$; exec "$@"\n')
    program.chmod(0o755)

    process = subprocess.Popen(
        [program, str(listening.fileno()), binary(), "serve", "--root", tmp_path / "store"],
        env=environment(tmp_path) | {"NOTIFY_SOCKET": str(tmp_path / "notify"), "PENSTOCK_ACCESS_KEY_ID": "key",
                                     "PENSTOCK_SECRET_ACCESS_KEY": "secret-of-the-test"},
        pass_fds=[listening.fileno()], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip

    states = [notified.recv(100)]
    with pytest.raises(urllib.error.HTTPError) as failure:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/bkt")
    process.terminate()
    states.append(notified.recv(100))
    process.wait(30)

    assert failure.value.code in (403, 404) and states == [b"READY=1", b"STOPPING=1"]
