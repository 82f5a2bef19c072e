"""Notifications of buckets: events in the transaction of their change, delivered to a webhook at least once."""
import http.server
import json
import socket
import socketserver
import sqlite3
import threading
import time
import urllib.request

import pytest
from botocore.exceptions import ClientError

from harness.program import Store
from harness.waiting import wait_for

ARN = "arn:penstock:sqs::ci:webhook"
OTHER_ARN = ARN.replace("ci", "other")


class Hook:
    """Keeps the events that are posted to it; refuses them while `status` is not 200, and those with the text `refused`."""

    def __init__(self, delay=0):
        self.events, self.tokens, self.status, self.lock = [], [], 200, threading.Lock()
        self.refused, self.refusal, self.refusals = None, 400, 0
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                text = self.rfile.read(int(self.headers["content-length"])).decode()
                time.sleep(delay)
                with outer.lock:
                    status = outer.refusal if outer.refused and outer.refused in text else outer.status
                    outer.refusals += status == outer.refusal
                    if status == 200:
                        outer.events.append(json.loads(text))
                        outer.tokens.append(self.headers.get("authorization"))
                self.send_response(status)
                if 300 <= status < 400:
                    self.send_header("location", "/elsewhere")
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        class Threads(socketserver.ThreadingMixIn, http.server.HTTPServer):
            daemon_threads = True

        self.httpd = Threads(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.httpd.server_address[1]}/hook"
        threading.Thread(target=self.httpd.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def records(self):
        with self.lock:
            return [record for event in self.events for record in event.get("Records", [])]

    def names(self):
        return [(record["eventName"], record["s3"]["object"]["key"]) for record in self.records()]

    def close(self):
        self.httpd.shutdown()
        self.httpd.server_close()


@pytest.fixture
def hook():
    server = Hook()
    yield server
    server.close()


def name_hooks(store, text, mode=0o600):
    path = store.root / "webhooks"
    path.write_text(text)
    path.chmod(mode)


@pytest.fixture
def notified(penstock, tmp_path, hook):
    """A store with the bucket `bkt`, whose operator has named the hook."""
    running = Store(penstock, tmp_path / "store")
    running.stop()
    name_hooks(running, f"# comment\nci {hook.url} t0ken\n\nother http://127.0.0.1:1/\n")
    running.options += ["--lifecycle-day", "100ms"]
    running.start()
    running.client.create_bucket(Bucket="bkt")
    yield running
    running.stop()


def set_rules(store, *rules):
    queues = [{"QueueArn": ARN, **rule} for rule in rules]
    store.client.put_bucket_notification_configuration(Bucket="bkt", NotificationConfiguration={"QueueConfigurations": queues})


def filters(**rules):
    return {"Key": {"FilterRules": [{"Name": name, "Value": value} for name, value in rules.items()]}}


def test_the_configuration_is_kept_and_removed(notified, hook):
    s3 = notified.client
    rule = {"Id": "r", "Events": ["s3:ObjectCreated:*"], "Filter": filters(Prefix="p/", Suffix=".x")}
    assert "QueueConfigurations" not in s3.get_bucket_notification_configuration(Bucket="bkt")
    set_rules(notified, rule)
    assert s3.get_bucket_notification_configuration(Bucket="bkt")["QueueConfigurations"] == [{"QueueArn": ARN, **rule}]
    wait_for(lambda: [event.get("Event") for event in hook.events] == ["s3:TestEvent"], 30)
    set_rules(notified)
    assert "QueueConfigurations" not in s3.get_bucket_notification_configuration(Bucket="bkt")
    with pytest.raises(ClientError, match="NoSuchBucket"):
        s3.get_bucket_notification_configuration(Bucket="none")


@pytest.mark.parametrize("arn", ["arn:penstock:sqs::none:webhook", "arn:aws:sqs:us-east-1:1:ci", "arn:penstock:sqs::ci"])
def test_a_destination_that_the_operator_has_not_named_is_refused(notified, arn):
    with pytest.raises(ClientError, match="InvalidArgument"):
        set_rules(notified, {"QueueArn": arn, "Events": ["s3:ObjectCreated:*"]})
    assert "QueueConfigurations" not in notified.client.get_bucket_notification_configuration(Bucket="bkt")


def test_a_configuration_is_not_stored_if_its_test_event_fails(notified):
    notified.stop()
    with sqlite3.connect(notified.root / "meta.db") as database:
        database.execute("CREATE TRIGGER no_events BEFORE INSERT ON events BEGIN SELECT RAISE(ABORT, 'no events'); END")
    database.close()
    notified.start()

    with pytest.raises(ClientError) as error:
        set_rules(notified, {"Events": ["s3:ObjectCreated:*"]})

    assert error.value.response["ResponseMetadata"]["HTTPStatusCode"] == 500
    assert "QueueConfigurations" not in notified.client.get_bucket_notification_configuration(Bucket="bkt")


def test_changes_are_events_in_their_order(notified, hook):
    s3 = notified.client
    set_rules(notified, {"Id": "r", "Events": ["s3:ObjectCreated:*", "s3:ObjectRemoved:*"], "Filter": filters(prefix="p/", suffix="x")})
    s3.put_object(Bucket="bkt", Key="p/a bx", Body=b"text")
    s3.put_object(Bucket="bkt", Key="q/x", Body=b"text")
    s3.put_object(Bucket="bkt", Key="p/y", Body=b"text")
    s3.copy_object(Bucket="bkt", Key="p/copyx", CopySource="bkt/q/x")
    upload = s3.create_multipart_upload(Bucket="bkt", Key="p/partsx")["UploadId"]
    part = s3.upload_part(Bucket="bkt", Key="p/partsx", UploadId=upload, PartNumber=1, Body=b"part")
    s3.complete_multipart_upload(Bucket="bkt", Key="p/partsx", UploadId=upload,
                                 MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]})  # fmt: skip
    s3.delete_object(Bucket="bkt", Key="p/nonex")
    s3.delete_objects(Bucket="bkt", Delete={"Objects": [{"Key": "p/copyx"}, {"Key": "p/y"}]})
    s3.put_bucket_versioning(Bucket="bkt", VersioningConfiguration={"Status": "Enabled"})
    made = s3.put_object(Bucket="bkt", Key="p/vx", Body=b"version")
    s3.delete_object(Bucket="bkt", Key="p/vx")
    s3.delete_object(Bucket="bkt", Key="p/vx", VersionId=made["VersionId"])

    wait_for(lambda: len(hook.names()) >= 7, 30)
    assert hook.names() == [
        ("ObjectCreated:Put", "p/a+bx"),
        ("ObjectCreated:Copy", "p/copyx"),
        ("ObjectCreated:CompleteMultipartUpload", "p/partsx"),
        ("ObjectRemoved:Delete", "p/copyx"),
        ("ObjectCreated:Put", "p/vx"),
        ("ObjectRemoved:DeleteMarkerCreated", "p/vx"),
        ("ObjectRemoved:Delete", "p/vx"),
    ]
    first, version = hook.records()[0], hook.records()[4]
    assert first["eventSource"] == "aws:s3" and first["requestParameters"]["sourceIPAddress"] == "127.0.0.1"
    assert first["s3"]["configurationId"] == "r" and first["s3"]["bucket"]["name"] == "bkt"
    assert first["s3"]["object"]["size"] == 4 and first["s3"]["object"]["eTag"] == "1cb251ec0d568de6a929b520c4aed8d1"
    assert version["s3"]["object"]["versionId"] == made["VersionId"]
    sequencers = [record["s3"]["object"]["sequencer"] for record in hook.records()]
    assert sequencers == sorted(sequencers)
    assert set(hook.tokens) == {"Bearer t0ken"}


def test_an_expiration_is_an_event_of_its_own(notified, hook):
    s3 = notified.client
    set_rules(notified, {"Events": ["s3:LifecycleExpiration:*", "s3:ObjectRemoved:*"]})
    s3.put_object(Bucket="bkt", Key="k", Body=b"x")
    rule = {"ID": "all", "Status": "Enabled", "Filter": {"Prefix": ""}, "Expiration": {"Days": 1}}
    s3.put_bucket_lifecycle_configuration(Bucket="bkt", LifecycleConfiguration={"Rules": [rule]})

    wait_for(lambda: hook.names() == [("LifecycleExpiration:Delete", "k")], 30)


def test_events_wait_for_a_webhook_that_fails_also_across_a_kill(notified, hook):
    set_rules(notified, {"Events": ["s3:ObjectCreated:*"]})
    wait_for(lambda: len(hook.events) == 1, 30)
    hook.status = 503
    keys = [f"k{number:03}" for number in range(150)]
    for key in keys:
        notified.client.put_object(Bucket="bkt", Key=key, Body=b"x")
    notified.process.wait_for_output(r"webhook 'ci'", 30)
    notified.kill()
    hook.status = 200
    notified.start()

    wait_for(lambda: {key for _, key in hook.names()} == set(keys), 60)
    # The events arrive in order. An event may only be repeated if it was sent, and not yet removed,
    # when the process was killed.
    order = [key for _, key in hook.names()]
    assert [key for at, key in enumerate(order) if key not in order[:at]] == keys


def test_a_webhook_that_is_down_does_not_hold_up_another(notified, hook):
    dead = {"QueueArn": "arn:penstock:sqs::other:webhook", "Events": ["s3:ObjectRemoved:*"]}
    set_rules(notified, dead, {"Events": ["s3:ObjectCreated:*"]})
    notified.client.put_object(Bucket="bkt", Key="k", Body=b"x")
    notified.client.delete_object(Bucket="bkt", Key="k")
    notified.client.put_object(Bucket="bkt", Key="k", Body=b"x")

    wait_for(lambda: hook.names() == [("ObjectCreated:Put", "k")] * 2, 30)


def test_events_of_a_removed_webhook_are_dropped(notified, hook):
    """Events that no webhook can get would take the space of other events."""
    set_rules(notified, {"QueueArn": "arn:penstock:sqs::other:webhook", "Events": ["s3:ObjectCreated:*"]})
    notified.client.put_object(Bucket="bkt", Key="k", Body=b"x")
    notified.process.wait_for_output(r"webhook 'other'", 30)
    notified.stop()
    with sqlite3.connect(notified.root / "meta.db") as database:
        assert database.execute("SELECT count(*) FROM events").fetchone() == (2,)  # the test event, too
    (notified.root / "webhooks").write_text(f"ci {hook.url} t0ken\n")
    notified.start()

    notified.process.wait_for_output(r"dropped 2 events of webhooks", 30)
    notified.stop()
    with sqlite3.connect(notified.root / "meta.db") as database:
        assert database.execute("SELECT count(*) FROM events").fetchone() == (0,)
    notified.start()


def test_a_slow_webhook_does_not_hold_up_another(notified, hook):
    """The slow webhook has many events, and replies to each of them, so no failure pauses the
    webhook."""
    slow = Hook(delay=0.5)
    notified.stop()
    (notified.root / "webhooks").write_text(f"ci {slow.url}\nother {hook.url}\n")
    notified.start()
    set_rules(notified, {"Events": ["s3:ObjectCreated:*"]}, {"QueueArn": OTHER_ARN, "Events": ["s3:ObjectRemoved:*"]})
    for number in range(100):
        notified.client.put_object(Bucket="bkt", Key=f"k{number}", Body=b"x")
    wait_for(lambda: len(slow.events) > 3, 15)  # more events of the batch follow
    notified.client.delete_object(Bucket="bkt", Key="k0")

    wait_for(lambda: hook.names() == [("ObjectRemoved:Delete", "k0")], 15)
    slow.close()


def test_a_webhook_that_does_not_reply_does_not_hold_up_another(notified, hook):
    with socket.create_server(("127.0.0.1", 0)) as mute:
        notified.stop()
        (notified.root / "webhooks").write_text(f"ci http://127.0.0.1:{mute.getsockname()[1]}/\nother {hook.url}\n")
        notified.start()
        set_rules(notified, {"Events": ["s3:ObjectCreated:*"]}, {"QueueArn": OTHER_ARN, "Events": ["s3:ObjectRemoved:*"]})
        notified.client.put_object(Bucket="bkt", Key="k", Body=b"x")
        connection, _ = mute.accept()
        assert connection.recv(4) == b"POST"
        notified.client.delete_object(Bucket="bkt", Key="k")

        wait_for(lambda: hook.names() == [("ObjectRemoved:Delete", "k")], 30)
        connection.setblocking(False)
        with pytest.raises(BlockingIOError):  # the store still waits for the reply
            while connection.recv(10_000):
                pass
        connection.close()


def metrics(store):
    """Returns {name with labels: value} of the metrics of webhooks."""
    url = store.process.wait_for_output(r"(http://\S+/metrics)", 30).group(1)
    with urllib.request.urlopen(url) as reply:
        lines = reply.read().decode().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if line.startswith("penstock_webhook"))
    return {name.removeprefix("penstock_webhook_"): float(value) for name, value in pairs}


def restart(store, *options):
    store.stop()
    store.options += [*options, "--metrics", "0"]
    store.start()


@pytest.mark.parametrize("status", [400, 307])
def test_an_event_that_is_refused_again_and_again_is_dropped(notified, hook, status):
    """Without a limit of attempts, later events would wait forever. A redirect counts as a
    refusal."""
    restart(notified, "--webhook-retry", "1ms")
    hook.refused, hook.refusal = '"key":"bad"', status
    set_rules(notified, {"Events": ["s3:ObjectCreated:*"]})
    for key in ("a", "bad", "b"):
        notified.client.put_object(Bucket="bkt", Key=key, Body=b"x")

    wait_for(lambda: [key for _, key in hook.names()] == ["a", "b"], 30)
    assert hook.refusals == 10
    notified.process.wait_for_output(r"webhook 'ci': dropped an event that the webhook refused 10 times, with status %d" % status, 30)
    wait_for(lambda: metrics(notified)['events{webhook="ci"}'] == 0, 30)
    assert metrics(notified)['dropped_total{webhook="ci",reason="refused"}'] == 1
    assert metrics(notified)['dropped_total{webhook="other",reason="refused"}'] == 0


def test_an_event_that_cannot_be_removed_is_counted_once(notified, hook):
    """A trigger of the database makes the removal of the event fail, as a full disk would."""
    restart(notified, "--webhook-retry", "1ms")
    set_rules(notified, {"Events": ["s3:ObjectCreated:*"]})
    wait_for(lambda: metrics(notified)['events{webhook="ci"}'] == 0, 30)
    hook.refused = '"key":"bad"'
    with sqlite3.connect(notified.root / "meta.db") as database:
        database.execute("CREATE TRIGGER full BEFORE DELETE ON events BEGIN SELECT RAISE(ABORT, 'full'); END")
    notified.client.put_object(Bucket="bkt", Key="bad", Body=b"x")
    wait_for(lambda: hook.refusals >= 12, 60)
    assert metrics(notified)['dropped_total{webhook="ci",reason="refused"}'] == 1
    with database:
        database.execute("DROP TRIGGER full")
    database.close()

    wait_for(lambda: metrics(notified)['events{webhook="ci"}'] == 0, 60)
    assert metrics(notified)['dropped_total{webhook="ci",reason="refused"}'] == 1


@pytest.mark.parametrize("status", [408, 429, 503])
def test_an_event_that_may_be_taken_later_is_kept(notified, hook, status):
    restart(notified, "--webhook-retry", "1ms")
    set_rules(notified, {"Events": ["s3:ObjectCreated:*"]})
    wait_for(lambda: len(hook.events) == 1, 30)
    hook.status = status
    notified.client.put_object(Bucket="bkt", Key="k", Body=b"x")
    # The pauses of ten attempts (1 ms, 2 ms, …) take a second.
    wait_for(lambda: metrics(notified)['lag_seconds{webhook="ci"}'] > 2, 30)
    hook.status = 200

    wait_for(lambda: [key for _, key in hook.names()] == ["k"], 90)


def test_a_webhook_that_is_down_takes_no_more_than_its_share(notified, hook):
    """Each webhook has an equal share of the 100,000 pending events, so that other webhooks lose no
    events."""
    notified.stop()
    with sqlite3.connect(notified.root / "meta.db") as database:
        database.executemany("INSERT INTO events(target, added, document) VALUES('other', 1, '{}')", [()] * 100_000)
    database.close()
    restart(notified)
    set_rules(notified, {"Events": ["s3:ObjectCreated:*"]}, {"QueueArn": OTHER_ARN, "Events": ["s3:ObjectRemoved:*"]})
    notified.client.put_object(Bucket="bkt", Key="k", Body=b"x")
    notified.client.delete_object(Bucket="bkt", Key="k")

    wait_for(lambda: hook.names() == [("ObjectCreated:Put", "k")], 30)
    found = metrics(notified)
    assert found['events{webhook="other"}'] == 100_000 and found['dropped_total{webhook="other",reason="full"}'] == 2
    assert found['dropped_total{webhook="ci",reason="full"}'] == 0 and found['lag_seconds{webhook="other"}'] > 1000
    notified.process.wait_for_output(r"webhook 'other': dropped \d+ events, because 100000 events already wait", 30)


def test_a_webhook_is_for_the_buckets_of_one_account(penstock, tmp_path, hook):
    other = {"number": "111122223333", "name": "other", "access_key_id": "OTHERKEY", "secret_access_key": "the secret of the other"}
    accounts = tmp_path / "accounts.json"
    accounts.write_text(json.dumps([other]))
    accounts.chmod(0o600)
    store = Store(penstock, tmp_path / "store", options=["--accounts", accounts])
    store.stop()
    name_hooks(store, f"ci {hook.url} t0ken account=111122223333\nother {hook.url}\n")
    store.start()
    theirs = store.boto3(keys=(other["access_key_id"], other["secret_access_key"]))
    store.client.create_bucket(Bucket="bkt")
    theirs.create_bucket(Bucket="foreign")

    def notify(client, bucket, arn):
        queues = [{"QueueArn": arn, "Events": ["s3:ObjectCreated:*"]}]
        client.put_bucket_notification_configuration(Bucket=bucket, NotificationConfiguration={"QueueConfigurations": queues})

    for client, bucket, arn in ((theirs, "foreign", OTHER_ARN), (store.client, "bkt", ARN)):
        with pytest.raises(ClientError, match="InvalidArgument"):
            notify(client, bucket, arn)
    notify(theirs, "foreign", ARN)
    notify(store.client, "bkt", OTHER_ARN)
    theirs.put_object(Bucket="foreign", Key="k", Body=b"x")
    wait_for(lambda: hook.records())

    # The operator gives the webhook's name to another account, so the bucket's rule has no effect
    # any more.
    store.stop().ok()
    (store.root / "webhooks").write_text(f"ci {hook.url} t0ken\n")
    store.start()
    theirs = store.boto3(keys=(other["access_key_id"], other["secret_access_key"]))
    theirs.put_object(Bucket="foreign", Key="late", Body=b"x")
    notify(store.client, "bkt", ARN)
    store.client.put_object(Bucket="bkt", Key="mine", Body=b"x")
    wait_for(lambda: ("ObjectCreated:Put", "mine") in hook.names(), 30)
    assert "late" not in [key for _, key in hook.names()]
    store.stop().ok()


def test_lines_of_the_webhooks_file_are_checked(penstock, store):
    store.stop()
    lines = ("ci", "ci ftp://x", "a/b http://x", "ci http://x\nci http://y", "ci http://x t u", "ci http://x account=1",
             "ci http://x account=000000000001 t")  # fmt: skip
    for line, mode in [(line, 0o600) for line in lines] + [("ci http://x t", 0o640), ("ci http://x t", 0o604)]:
        name_hooks(store, line + "\n", mode)
        result = penstock.run("serve", "--root", store.root, "--listen", "127.0.0.1:0",
                              env={"PENSTOCK_ACCESS_KEY_ID": "a", "PENSTOCK_SECRET_ACCESS_KEY": "b"})  # fmt: skip
        assert result.code == 78 and "webhooks" in result.text
    name_hooks(store, "ci http://x\n", 0o644)
    store.start()
