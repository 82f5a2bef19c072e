"""One large object, up and down, while the store or the network fails for some of its requests."""
import os

import pytest
from harness.s3tool import Tool

MIB = 1 << 20
PATIENT = {"PENSTOCK_NETWORK_STALL": 3600}  # nothing else ends a silent request before the test's own deadline
PART = r"^partNumber=\d+&uploadId="


def make_file(path, size):
    block = os.urandom(MIB)
    path.write_bytes(b"".join(i.to_bytes(8, "big") + block[8:] for i in range(size // MIB)))
    return path


@pytest.fixture
def tool(store, fault_proxy, tmp_path):
    """The client, which sees the store through the proxy."""
    direct = Tool(tmp_path, store.endpoint, store.access_key, store.secret_key)
    direct.ok("bucket-create", "bucket")
    through = Tool(tmp_path, fault_proxy.url, store.access_key, store.secret_key)
    through.direct = direct
    return through


def ranges(proxy):
    return [request for request in proxy.seen("GET", path="/large$") if "range" in request.headers]


def test_a_part_that_hangs_is_sent_again(tool, store, fault_proxy, tmp_path):
    """The store reads a part and does not reply: another request sends the part again, and the
    object has it once."""
    source = make_file(tmp_path / "source", 80 * MIB)
    hung = fault_proxy.fault(method="PUT", query="partNumber=12&", hold="reply")

    tool.ok("put", "bucket", "large", source, PART_SIZE=5 * MIB, **PATIENT)

    assert hung.hits == 1 and not hung.released.is_set()
    assert len(fault_proxy.seen("PUT", query="partNumber=12&")) >= 2
    tool.direct.ok("get", "bucket", "large", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == source.read_bytes()
    assert store.client.head_object(Bucket="bucket", Key="large")["ETag"].endswith('-16"')
    assert not store.client.list_multipart_uploads(Bucket="bucket").get("Uploads")
    hung.release()


@pytest.mark.parametrize("hold", ["reply", 3 * MIB], ids=["before its first byte", "in the middle"])
def test_a_range_that_hangs_is_asked_for_again(tool, fault_proxy, tmp_path, hold):
    source = make_file(tmp_path / "source", 200 * MIB)
    tool.direct.ok("put", "bucket", "large", source)
    hung = fault_proxy.fault(method="GET", range=f"bytes={160 * MIB}-", hold=hold)

    tool.ok("get", "bucket", "large", tmp_path / "back", **PATIENT)

    assert hung.hits == 1 and not hung.released.is_set()
    assert (tmp_path / "back").read_bytes() == source.read_bytes()
    hung.release()


def test_cp_of_one_object_has_as_many_requests_under_way_as_the_engine_allows(store, penstock, fault_proxy, tmp_path):
    """A distant store gets many requests at a time: the first eight get no reply before all have
    arrived. An upload that may be resumed starts with fewer requests."""
    source = make_file(tmp_path / "source", 72 * MIB)
    env = store.env | {"AWS_ENDPOINT_URL": fault_proxy.url, "PENSTOCK_NETWORK_STALL": "3600"}
    store.client.create_bucket(Bucket="bucket")

    ways = [
        (["--no-resume", source, "s3://bucket/large"], {"method": "PUT", "query": PART, "hold": "reply"}),
        (["s3://bucket/large", tmp_path / "back"], {"method": "GET", "range": "bytes=", "hold": "request"}),
    ]
    for way, fault in ways:
        held = fault_proxy.fault(**fault, times=8)
        process = penstock.popen("cp", "--part-size", "5MiB", *way, env=env)
        held.wait(8)
        held.release()
        process.wait().exits(0)

    assert (tmp_path / "back").read_bytes() == source.read_bytes()


def test_a_question_that_hangs_is_asked_again(tool, fault_proxy, tmp_path):
    """The request for the parts' checksums comes before the last ranges, and moves few bytes."""
    source = make_file(tmp_path / "source", 120 * MIB)
    tool.direct.ok("put", "bucket", "large", source, PART_SIZE=8 * MIB)
    hung = fault_proxy.fault(method="GET", query="attributes", hold="reply")

    tool.ok("get", "bucket", "large", tmp_path / "back", **PATIENT)

    assert hung.hits == 1 and not hung.released.is_set()
    assert len(fault_proxy.seen("GET", query="attributes")) >= 2
    assert (tmp_path / "back").read_bytes() == source.read_bytes()
    hung.release()


def test_a_damaged_range_is_found_and_fetched_again_alone(tool, fault_proxy, tmp_path):
    """The store returns the checksum of each part, so one wrong bit costs one range, not the object."""
    source = make_file(tmp_path / "source", 96 * MIB)
    tool.direct.ok("put", "bucket", "large", source, PART_SIZE=8 * MIB)
    damaged = fault_proxy.fault(method="GET", range=f"bytes={32 * MIB}-", corrupt_at=5 * MIB)

    tool.ok("get", "bucket", "large", tmp_path / "back")

    assert damaged.hits == 1
    assert (tmp_path / "back").read_bytes() == source.read_bytes()
    assert sum(request.sent for request in ranges(fault_proxy)) <= (96 + 16) * MIB


def test_damage_that_stays_is_refused_and_named(tool, fault_proxy, tmp_path):
    source = make_file(tmp_path / "source", 40 * MIB)
    tool.direct.ok("put", "bucket", "large", source, PART_SIZE=8 * MIB)
    fault_proxy.fault(method="GET", range="bytes=", corrupt_at=MIB, times=1000)

    said = tool.call("get", "bucket", "large", tmp_path / "back")

    assert said.returncode != 0
    assert b"s3://bucket/large" in said.stderr and b"checksum" in said.stderr
    assert not (tmp_path / "back").exists()


def test_an_object_whose_parts_nobody_knows_is_verified_whole(tool, fault_proxy, tmp_path):
    source = make_file(tmp_path / "source", 40 * MIB)
    tool.direct.ok("put", "bucket", "large", source, PART_SIZE=8 * MIB)
    denied = fault_proxy.fault(method="GET", query="attributes", status=403, times=1000)
    damaged = fault_proxy.fault(method="GET", range=f"bytes={16 * MIB}-", corrupt_at=5 * MIB)

    tool.ok("get", "bucket", "large", tmp_path / "back")

    assert denied.hits and damaged.hits == 1
    assert (tmp_path / "back").read_bytes() == source.read_bytes()


def test_a_store_that_is_busy_for_a_while_gets_all_parts(tool, store, fault_proxy, tmp_path):
    source = make_file(tmp_path / "source", 60 * MIB)
    busy = fault_proxy.fault(method="PUT", query=PART, status=503, times=12)

    tool.ok("put", "bucket", "large", source, PART_SIZE=5 * MIB)

    assert busy.hits == 12
    tool.direct.ok("get", "bucket", "large", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == source.read_bytes()


def test_a_file_is_read_once_where_the_store_takes_its_checksum_at_the_end(tool, fault_proxy, tmp_path):
    source = make_file(tmp_path / "source", 20 * MIB)

    tool.ok("put", "bucket", "large", source, PART_SIZE=5 * MIB)

    parts = fault_proxy.seen("PUT", query=PART)
    assert len(parts) == 4
    assert {part.headers.get("x-amz-trailer") for part in parts} == {"x-amz-checksum-crc64nvme"}


@pytest.mark.parametrize("times", [1, 1000], ids=["once", "each time"])
def test_an_object_with_nothing_but_an_md5_is_verified(tool, fault_proxy, tmp_path, times):
    source = make_file(tmp_path / "source", 40 * MIB)
    tool.direct.ok("put", "bucket", "large", source)
    bare = {"x-amz-checksum-crc64nvme": None, "x-amz-checksum-type": None}
    fault_proxy.fault(method="HEAD", headers=bare, times=1000)
    fault_proxy.fault(method="GET", range=f"bytes={16 * MIB}-", corrupt_at=MIB, headers=bare, times=times)
    fault_proxy.fault(method="GET", headers=bare, times=1000)

    done = tool.call("get", "bucket", "large", tmp_path / "back")

    if times == 1:
        assert done.returncode == 0, done.stderr
        assert (tmp_path / "back").read_bytes() == source.read_bytes()
    else:
        assert done.returncode != 0 and b"checksum (MD5)" in done.stderr
        assert not (tmp_path / "back").exists()


def test_whoever_wants_no_checksums_looked_at_gets_none(tool, fault_proxy, tmp_path):
    source = make_file(tmp_path / "source", 40 * MIB)
    tool.direct.ok("put", "bucket", "large", source, PART_SIZE=8 * MIB)
    fault_proxy.fault(method="GET", range=f"bytes={16 * MIB}-", corrupt_at=MIB)

    tool.ok("get", "bucket", "large", tmp_path / "back", AWS_RESPONSE_CHECKSUM_VALIDATION="when_required")

    assert (tmp_path / "back").read_bytes() != source.read_bytes()
    assert not fault_proxy.seen("GET", query="attributes")
    assert not [one for one in fault_proxy.seen() if "x-amz-checksum-mode" in one.headers]
