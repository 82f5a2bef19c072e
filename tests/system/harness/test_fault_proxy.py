"""Tests of the fault proxy: it causes the configured faults and no others."""
import threading

import botocore.exceptions
import pytest
from botocore.exceptions import ClientError

from harness.fault_proxy import LOGIN_PAGE, s3_error

CONTENT = bytes(range(256)) * 1000


@pytest.fixture
def client(store, fault_proxy):
    """A boto3 client that uses the proxy, and never retries."""
    made = store.boto3(fault_proxy.url, read_timeout=60, retries={"max_attempts": 0})
    made.create_bucket(Bucket="bucket")
    made.put_object(Bucket="bucket", Key="k", Body=CONTENT)
    return made


def get(client, **more):
    return client.get_object(Bucket="bucket", Key="k", **more)["Body"].read()


# Signatures cover Host: they must verify although the request went through the proxy.
def test_without_rules_it_changes_nothing(client, fault_proxy, store):
    client.put_object(Bucket="bucket", Key="odd name+%&/x", Body=b"x" * 300_000)

    assert get(client) == CONTENT and get(client, Range="bytes=7-9") == CONTENT[7:10]
    assert store.keys("bucket") == [e["Key"] for e in client.list_objects_v2(Bucket="bucket")["Contents"]]
    assert client.head_object(Bucket="bucket", Key="k")["ContentLength"] == len(CONTENT)
    seen = fault_proxy.seen("PUT", path="odd")
    assert [(r.received >= 300_000, r.carried_out, r.status, r.rule) for r in seen] == [(True, 200, 200, None)]


# A rule applies to matching requests in order: `times` of them, after the first `skip`.
def test_a_rule_is_met_by_the_requests_that_it_names(client, fault_proxy):
    rule = fault_proxy.fault(method="GET", path="/k$", range="bytes=1-", skip=1, times=2, status=503, body=s3_error("SlowDown"))

    assert get(client) == CONTENT and get(client, Range="bytes=1-") == CONTENT[1:]
    for _ in range(2):
        with pytest.raises(ClientError, match="SlowDown"):
            get(client, Range="bytes=1-")
    assert get(client, Range="bytes=1-") == CONTENT[1:]
    assert rule.hits == 2


@pytest.mark.parametrize("how", [{"cut_after": 1000}, {"cut_after": 1000, "reset": True}, {"claim": len(CONTENT) + 1}], ids=str)
def test_a_cut_reply_is_not_whole(client, fault_proxy, how):
    fault_proxy.fault(method="GET", **how)

    with pytest.raises(botocore.exceptions.BotoCoreError):
        get(client)
    assert get(client) == CONTENT


def test_a_reply_is_changed_as_told(client, fault_proxy):
    for how in ({"truncate_to": 1000}, {"corrupt_at": 70_000}, {"repeat_at": 8192}, {"rewrite": lambda body: body[::-1]}, {"status": 200, "body": LOGIN_PAGE}):
        fault_proxy.fault(method="GET", headers={"x-amz-checksum-crc32": None, "x-amz-checksum-crc64nvme": None}, **how)

    assert get(client) == CONTENT[:1000]
    assert get(client) == CONTENT[:70_000] + bytes([CONTENT[70_000] ^ 0x20]) + CONTENT[70_001:]
    assert get(client) == (CONTENT[:8192] + CONTENT[4096:])[: len(CONTENT)]
    assert get(client) == CONTENT[::-1]
    assert get(client) == LOGIN_PAGE


def test_a_request_is_lost_before_or_after_it_was_carried_out(client, fault_proxy, store):
    lost = botocore.exceptions.BotoCoreError
    fault_proxy.fault(method="PUT", path="before", drop=True)
    fault_proxy.fault(method="PUT", path="half", cut_request_after=50_000)
    fault_proxy.fault(method="PUT", path="after", lose_reply=True)

    for key in ("before", "half", "after"):
        with pytest.raises(lost):
            client.put_object(Bucket="bucket", Key=key, Body=CONTENT)

    assert store.keys("bucket") == ["after", "k"]
    assert [r.carried_out for r in fault_proxy.seen("PUT", path="before|half|after")] == [None, None, 200]


def test_a_request_is_held_until_it_is_released(client, fault_proxy, store):
    before = fault_proxy.fault(method="PUT", path="one", hold="request")
    after = fault_proxy.fault(method="PUT", path="two", hold="reply")
    threads = [threading.Thread(target=client.put_object, kwargs={"Bucket": "bucket", "Key": key, "Body": b"x"}) for key in ("one", "two")]
    for thread in threads:
        thread.start()

    before.wait()
    after.wait()
    assert "one" not in store.keys("bucket")
    before.release()
    after.release()
    for thread in threads:
        thread.join(60)

    assert store.keys("bucket") == ["k", "one", "two"]


def test_a_store_goes_away_and_comes_back_at_the_same_address(client, fault_proxy):
    assert get(client) == CONTENT

    fault_proxy.down()
    with pytest.raises(botocore.exceptions.BotoCoreError):
        get(client)
    with pytest.raises(botocore.exceptions.EndpointConnectionError):
        get(client)
    fault_proxy.up()

    assert get(client) == CONTENT


def test_endless_replies_end_with_the_client(client, fault_proxy):
    fault_proxy.fault(method="GET", endless="body")
    fault_proxy.fault(method="GET", endless="headers")

    body = client.get_object(Bucket="bucket", Key="k")["Body"]
    assert len(body.read(1 << 20)) == 1 << 20
    body.close()
    with pytest.raises(botocore.exceptions.BotoCoreError):
        get(client)
