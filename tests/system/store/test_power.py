"""Power loss: any state that the disk may have at any point of the store's write log opens as a
store with all acknowledged changes.

The store's writes, syncs and replies are recorded while clients use the store. Between any two
syncs, the replay (tests/support/power) then loses all or some of the bytes that were not synced,
also out of order.
"""
import sqlite3
import threading

import pytest

from harness.power import Client, Recording, body
from harness.waiting import wait_for

pytestmark = pytest.mark.preloads

MIB = 1024 * 1024
INLINE, FILE = 3000, 20_000  # bytes: below and above what the store keeps in its database
CLASSES = ["data", "data-dir", "data-parent", "root", "wal", "database"]


def objects(client, bucket, rounds):
    """Small and large objects are created, overwritten, copied and deleted, with and without conditions."""
    for i in range(rounds):
        for size in (INLINE, FILE):
            client.put(bucket, f"plain-{size}", body(i, size + i), meta=f"v{i}")
            client.put(bucket, f"sealed-{size}", body(i, size + i), meta=f"v{i}", x_amz_server_side_encryption="AES256")
        client.put(bucket, f"new-{i}", body(i, FILE if i % 2 else INLINE), if_none_match="*")
        client.put(bucket, f"new-{i}", b"never", status=412, if_none_match="*")
        etag = client.put(bucket, "checked", body(i, FILE if i % 3 == 0 else INLINE))
        client.put(bucket, "checked", body(i + 1, FILE), meta="second", if_match=etag)
        client.copy((bucket, f"plain-{FILE}"), bucket, f"copy-{i}")
        if i % 2:
            client.delete(bucket, f"new-{i}")
            client.delete_many(bucket, [f"copy-{i}", f"new-{i - 1}", f"plain-{INLINE}"])


def buckets(client, name, rounds):
    for i in range(rounds):
        client.make_bucket(f"{name}-{i % 2}")
        client.put(f"{name}-{i % 2}", "inside", body(i, FILE))
        client.delete(f"{name}-{i % 2}", "inside")
        client.remove_bucket(f"{name}-{i % 2}")


def uploads(client, bucket, rounds, large):
    client.put(bucket, "source", body(99, 5 * MIB if large else FILE))
    for i in range(rounds):
        upload = client.create_upload(bucket, "parts", meta=f"m{i}")
        given_up = client.create_upload(bucket, f"given-up-{i}")
        given_up.part(1, body(i, 500))
        if large:
            upload.part_copy(1, (bucket, "source"), 0, 5 * MIB - 1)
            upload.part(2, body(i, FILE))
        else:
            upload.part_copy(1, (bucket, "source"), 7, FILE - 2)
        upload.complete()
        given_up.abort()
        unfinished = client.create_upload(bucket, f"unfinished-{i}")
        unfinished.part(1, body(i, FILE))


def together(*calls):
    """Makes the calls at the same time, so that they share a transaction and its sync."""
    failed = []

    def guarded(call):
        try:
            call()
        except BaseException as error:  # noqa: B902
            failed.append(error)

    threads = [threading.Thread(target=guarded, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def scenario(recording, rounds, large=False):
    clients = [Client(recording) for _ in range(3)]
    clients[0].make_bucket("bkt")
    for restart in ("kill", "stop", None):
        part = recording.lines and restart or "last"
        together(
            lambda: objects(clients[0], "bkt", rounds),
            lambda: buckets(clients[1], f"own-{part}", rounds),
            lambda: uploads(clients[2], "bkt", rounds, large and restart is None),
        )
        if restart:
            recording.restart(kill=restart == "kill")
    recording.finish()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A log of the store's writes, all of them durable; several tests replay it."""
    from harness.program import Penstock

    folder = tmp_path_factory.mktemp("power")
    penstock = Penstock(folder / "p")
    recording = Recording(penstock, folder)
    scenario(recording, rounds=2)
    penstock.close()
    return recording


def test_no_power_loss_takes_what_was_acknowledged_or_leaves_a_half(recorded):
    code, output = recorded.replay("--disk", recorded.disk)

    assert code == 0, output
    print(output)


@pytest.mark.parametrize("syncs", CLASSES)
def test_the_replay_finds_each_sync_that_is_missing(recorded, syncs):
    code, output = recorded.replay("--ignore", syncs)

    assert code == 1 and "unsynced changes" in output, output


def test_relaxed_durability_loses_changes_but_never_halves_one(penstock, tmp_path):
    recording = Recording(penstock, tmp_path, durability="relaxed")
    scenario(recording, rounds=2)

    code, output = recording.replay("--disk", recording.disk, "--relaxed", "--every", 25)

    assert code == 0, output
    print(output)
    code, output = recording.replay("--every", 25)
    assert code == 1 and "was acknowledged and is gone" in output, output


@pytest.mark.long
def test_sync_points_of_relaxed_durability(penstock, tmp_path):
    """There are three sync points. At the second one, a reader prevents SQLite from copying the log
    into the database."""
    recording = Recording(penstock, tmp_path, durability="relaxed")
    root = recording.disk / recording.STORE
    mark = root / "relaxed"
    reader = sqlite3.connect(f"file:{root}/meta.db?mode=ro", uri=True, isolation_level=None)
    client = Client(recording)
    for number, reads in enumerate((False, True, False)):
        client.make_bucket(f"bkt-{number}")
        if reads:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM objects").fetchall()
        before = mark.read_bytes()
        objects(client, f"bkt-{number}", 2)
        uploads(client, f"bkt-{number}", 1, large=False)
        for i in range(4):
            client.put("bkt-0", "replaced", body(number + i, FILE + i))
        wait_for(lambda: mark.read_bytes() != before, 120)  # noqa: B023
        client.put("bkt-0", "replaced", body(number, FILE))
        if reads:
            reader.execute("COMMIT")
    reader.close()
    recording.finish()

    code, output = recording.replay("--disk", recording.disk, "--relaxed", "--every", 10)

    assert code == 0, output
    print(output)


@pytest.mark.long
def test_no_power_loss_is_found_in_a_long_run(penstock, tmp_path):
    """Large parts, more rounds, and a log that is copied into the database several times on the way."""
    recording = Recording(penstock, tmp_path)
    client = Client(recording)
    client.make_bucket("filling")
    for i in range(300):
        client.put("filling", f"key-{i % 40}", body(i, 16_000))
    scenario(recording, rounds=4, large=True)

    code, output = recording.replay("--disk", recording.disk, "--draws", 6, "--upkeep")

    assert code == 0, output
    print(output)
