"""A large file that has changed in part: the amount that is sent again, by the continuous sync and by `cp --delta`."""
import os
import re

import pytest
from harness.slow_link import SlowLink
from harness.sync_driver import Syncer

MB = 1000 * 1000
SIZE = 40 * MB


@pytest.fixture
def link(store):
    link = SlowLink(store.endpoint)
    yield link
    link.close()


def change(data, at, length):
    data[at : at + length] = os.urandom(length)
    return data


# The design promises: if 5 % of a file has changed, at most 15 % of its bytes are sent.
def test_the_continuous_sync_sends_what_has_changed_of_a_checkpoint(penstock, store, link, tmp_path):
    sync = Syncer(penstock, store, tmp_path, endpoint=link.url)
    data = bytearray(os.urandom(SIZE))

    (sync.out / "ckpt.pth").write_bytes(data)
    sync.wait_event("published", "ckpt.pth")
    for version in range(2, 4):
        before = link.carried
        # Write outside of the output. In the output, a closed file may be sent before it is
        # renamed.
        (tmp_path / "ckpt.tmp").write_bytes(change(data, version * 7 * MB, SIZE // 20))
        os.rename(tmp_path / "ckpt.tmp", sync.out / "ckpt.pth")
        sync.wait_event("published", "ckpt.pth", count=version)
        assert link.carried - before <= SIZE * 15 // 100
        assert sync.object("ckpt.pth") == data

    sync.flush()
    # The sync's own count agrees with the bytes that the link has carried.
    assert SIZE < sync.ask("status")["bytes_published"] <= SIZE + 2 * SIZE * 15 // 100
    assert not [part for part in store.client.list_multipart_uploads(Bucket=sync.BUCKET).get("Uploads", [])]


# After a preemption, the next machine has sent nothing yet, but it has fetched the files, so deltas
# are possible.
def test_what_a_restore_has_fetched_is_built_upon(penstock, store, link, tmp_path):
    data = bytearray(os.urandom(SIZE))
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first = Syncer(penstock, store, tmp_path / "a")
    (first.out / "ckpt.pth").write_bytes(data)
    first.flush().quit()
    second = Syncer(penstock, store, tmp_path / "b", attempt=2, start=False, endpoint=link.url)
    second.restore()
    assert (second.out / "ckpt.pth").read_bytes() == data
    second.start()

    before = link.carried
    (tmp_path / "ckpt.tmp").write_bytes(change(data, 14 * MB, SIZE // 20))
    os.rename(tmp_path / "ckpt.tmp", second.out / "ckpt.pth")
    second.wait_event("published", "ckpt.pth")

    assert link.carried - before <= SIZE * 15 // 100
    assert second.object("ckpt.pth") == data


# An object of another client is neither used as a base nor mixed with the file.
def test_cp_sends_what_has_changed_of_a_file(penstock, store, link, tmp_path):
    store.client.create_bucket(Bucket="bucket")
    source = tmp_path / "model.bin"
    data = bytearray(os.urandom(SIZE))
    env = store.env | {"AWS_ENDPOINT_URL": link.url}

    counts = []

    def sent():
        source.write_bytes(data)
        before = link.carried
        done = penstock.run("cp", "--delta", source, "s3://bucket/model.bin", env=env, cwd=tmp_path).ok()
        counts.append(re.findall(r"([\d.]+) (k?M?B)\b(?!/)", done.err))
        assert store.client.get_object(Bucket="bucket", Key="model.bin")["Body"].read() == data
        return link.carried - before

    assert sent() > SIZE
    change(data, 20 * MB, SIZE // 20)
    assert sent() <= SIZE * 15 // 100
    assert sent() < SIZE // 100
    # The summary has the size, and the number of bytes sent.
    assert [len(numbers) for numbers in counts] == [1, 2, 2] and counts[1][0] == counts[0][0]
    assert 1.9 < float(counts[1][1][0]) < 6 and counts[1][1][1] == "MB" and counts[2][1][0] == "0"

    store.client.put_object(Bucket="bucket", Key="model.bin", Body=bytes(SIZE))
    change(data, 3 * MB, 1)
    assert sent() > SIZE


# If the store replies that it cannot copy parts, the same call sends the whole file.
def test_a_store_without_part_copies_gets_the_whole_file(penstock, store, fault_proxy, tmp_path):
    store.client.create_bucket(Bucket="bucket")
    source = tmp_path / "model.bin"
    data = bytearray(os.urandom(20 * MB))
    env = store.env | {"AWS_ENDPOINT_URL": fault_proxy.url}
    copies = lambda request: bool(request.headers.get("x-amz-copy-source"))  # noqa: E731
    refused = fault_proxy.fault(method="PUT", query="partNumber=", when=copies, times=1000, status=501)

    for _ in range(2):
        source.write_bytes(change(data, 9 * MB, 1000))
        penstock.run("cp", "--delta", source, "s3://bucket/model.bin", env=env, cwd=tmp_path).ok()
        assert store.client.get_object(Bucket="bucket", Key="model.bin")["Body"].read() == data

    assert refused.hits
    assert not store.client.list_multipart_uploads(Bucket="bucket").get("Uploads")


# If the reply about copied parts has another checksum, the parts are not used.
def test_a_copy_that_the_store_lies_about_is_found_out(penstock, store, fault_proxy, tmp_path):
    store.client.create_bucket(Bucket="bucket")
    source = tmp_path / "model.bin"
    data = bytearray(os.urandom(20 * MB))
    env = store.env | {"AWS_ENDPOINT_URL": fault_proxy.url}

    source.write_bytes(data)
    penstock.run("cp", "--delta", source, "s3://bucket/model.bin", env=env, cwd=tmp_path).ok()
    copies = lambda request: bool(request.headers.get("x-amz-copy-source"))  # noqa: E731
    wrong = lambda body: re.sub(rb"(<ChecksumCRC64NVME>)[^<]*", rb"\1AAAAAAAAAAA=", body)  # noqa: E731
    lied = fault_proxy.fault(method="PUT", query="partNumber=", when=copies, times=1, rewrite=wrong)
    source.write_bytes(change(data, 9 * MB, 1000))
    penstock.run("cp", "--delta", source, "s3://bucket/model.bin", env=env, cwd=tmp_path).ok()

    assert lied.hits == 1
    assert store.client.get_object(Bucket="bucket", Key="model.bin")["Body"].read() == data
    assert not store.client.list_multipart_uploads(Bucket="bucket").get("Uploads")
