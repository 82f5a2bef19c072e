"""`penstock store`: each kind of damage is found, and repaired if nothing is lost."""
import base64
import copy
import json
import os
import re
import shutil
import sqlite3
import subprocess
import tarfile
import tempfile
import threading
from pathlib import Path

import pytest
from harness.program import Penstock, Store
from harness.waiting import wait_for

LARGE = 70_000  # large enough for a file of its own


def put(store, key, body, bucket="bkt"):
    return store.client.put_object(Bucket=bucket, Key=key, Body=body).get("VersionId")


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A stopped store: small and large objects, an upload in parts, older versions, a marker, an
    unfinished upload."""
    program = Penstock(tmp_path_factory.mktemp("program"))
    store = Store(program, tmp_path_factory.mktemp("template") / "store")
    fill(store)
    yield store
    program.close()


@pytest.fixture
def filled(template, penstock, tmp_path):
    """A copy of the template for one test."""
    store = copy.copy(template)
    store.penstock, store.root = penstock, tmp_path / "store"
    shutil.copytree(template.root, store.root)
    yield store
    if store.process.running():
        store.stop()


def fill(store):
    s3 = store.client
    s3.create_bucket(Bucket="bkt")
    s3.create_bucket(Bucket="old")
    s3.put_bucket_versioning(Bucket="old", VersioningConfiguration={"Status": "Enabled"})
    s3.put_bucket_tagging(Bucket="bkt", Tagging={"TagSet": [{"Key": "a", "Value": "b"}]})
    s3.put_object(Bucket="bkt", Key="small", Body=b"small", Metadata={"name": "value"})
    put(store, "large", os.urandom(LARGE))
    s3.copy_object(Bucket="bkt", Key="copy", CopySource="bkt/large")
    for _ in range(2):
        put(store, "v", os.urandom(LARGE), "old")
    put(store, "gone", b"gone", "old")
    s3.delete_object(Bucket="old", Key="gone")
    upload = s3.create_multipart_upload(Bucket="bkt", Key="parts")["UploadId"]
    parts = [
        {"PartNumber": n, "ETag": s3.upload_part(Bucket="bkt", Key="parts", UploadId=upload, PartNumber=n, Body=body)["ETag"]}
        for n, body in ((1, os.urandom(5 << 20)), (2, b"end"))
    ]
    s3.complete_multipart_upload(Bucket="bkt", Key="parts", UploadId=upload, MultipartUpload={"Parts": parts})
    upload = s3.create_multipart_upload(Bucket="bkt", Key="open")["UploadId"]
    s3.upload_part(Bucket="bkt", Key="open", UploadId=upload, PartNumber=1, Body=b"part")
    store.stop()


@pytest.fixture
def upkeep(penstock, filled):
    """upkeep("check"): runs `penstock store check` on the store, or on another root; returns its
    result."""
    return lambda verb, *rest, root=None: penstock.run("store", verb, "--root", root or filled.root, *rest)


def database(store, *statements, root=None):
    """Changes or reads the database; returns the rows of the last statement."""
    with sqlite3.connect((root or store.root) / "meta.db") as db:
        for statement in statements:
            rows = db.execute(statement).fetchall()
    db.close()
    return rows


def file_of(store, key, table="objects"):
    """The data file of an object, from its layout: a version, two counts, parts, pieces."""
    (layout,) = database(store, f"SELECT layout FROM {table} WHERE key=CAST('{key}' AS BLOB)")[0]
    number = int.from_bytes(layout[9:17], "little") if layout[1:5] == bytes(4) else int.from_bytes(layout[-24:-16], "little")
    return store.root / f"data/{number >> 8 & 0xff:02x}/{number:016x}"


def flip(path, at=1000):
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def kinds(result):
    return {line.split(":")[0] for line in result.out.splitlines()}


def test_a_whole_store_has_no_problem(upkeep):
    """Before any damage there is no problem: the other tests rely on that."""
    upkeep("check").ok()
    upkeep("scrub").ok()
    before = upkeep("stat", "--json").json()

    upkeep("repair").ok()

    buckets = {b["name"]: b for b in before["buckets"]}
    assert (buckets["bkt"]["objects"], buckets["bkt"]["uploads"], buckets["old"]["versions"], buckets["old"]["markers"]) == (4, 1, 2, 1)
    assert before["files"] == 6 and not before["served"]
    assert upkeep("stat", "--json").json()["files"] == before["files"]


@pytest.mark.parametrize("damage", ["missing", "short", "long"])
def test_a_data_file_of_another_size_is_found_and_kept(filled, upkeep, damage):
    """The message names the file's objects, and a repair neither removes the objects nor changes
    the file."""
    path = file_of(filled, "large")
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(content[:-1] if damage == "short" else content + b"x")

    found = upkeep("check").exits(66)
    upkeep("repair").exits(66)

    lost = {line.split()[1] for line in found.out.splitlines() if line.startswith("lost:")}
    assert "missing" in kinds(found) and lost == (set() if damage == "long" else {"s3://bkt/large", "s3://bkt/copy"})
    assert path.exists() == (damage != "missing") and upkeep("stat", "--json").json()["objects"] == 5
    if damage != "long":
        assert upkeep("scrub").exits(66).out.count("s3://bkt/") == 2


def test_the_objects_of_several_lost_files_are_named(filled, upkeep):
    for path in (file_of(filled, "large"), file_of(filled, "parts"), file_of(filled, "v", "versions")):
        path.unlink()

    found = upkeep("check").exits(66)

    lost = [line.split()[1] for line in found.out.splitlines() if line.startswith("lost:")]
    assert sorted(lost) == ["s3://bkt/copy", "s3://bkt/large", "s3://bkt/parts", "s3://old/v"]


@pytest.mark.parametrize("key, table", [("large", "objects"), ("v", "versions"), ("parts", "objects")])
def test_a_flipped_bit_in_a_file_is_found_by_scrub(filled, upkeep, key, table):
    """`check` does not read the files. `scrub` reads all of them, including those of older versions
    and parts."""
    flip(file_of(filled, key, table), at=1 if key == "parts" else 1000)

    upkeep("check").ok()
    assert f"/{key}" in upkeep("scrub").exits(66).out


def test_a_flipped_bit_in_the_database_is_found_by_scrub(filled, upkeep):
    """A small object has its body in a row of the database."""
    database(filled, "UPDATE bodies SET bytes=CAST('smell' AS BLOB) WHERE id=(SELECT body FROM objects WHERE key=CAST('small' AS BLOB))")

    assert "s3://bkt/small" in upkeep("scrub").exits(66).out


# The damage is in the tag at the end, or even in the seal, which is before the bytes.
@pytest.mark.parametrize("damaged", ["CAST(substr(bytes,1,length(bytes)-8)||zeroblob(8) AS BLOB)", "zeroblob(length(bytes))"])
def test_an_encrypted_body_that_cannot_be_opened_is_named(filled, upkeep, tmp_path, damaged):
    filled.start()
    s3 = filled.client
    s3.put_object(Bucket="old", Key="sealed", Body=b"old", ServerSideEncryption="AES256")
    s3.put_object(Bucket="old", Key="sealed", Body=b"new", ServerSideEncryption="AES256")
    s3.put_object(Bucket="bkt", Key="sealed", Body=b"text", ServerSideEncryption="AES256")
    filled.stop()
    sealed = "key=CAST('sealed' AS BLOB)"
    bodies = f"SELECT body FROM versions WHERE {sealed} UNION SELECT body FROM objects WHERE {sealed} AND size=4"
    database(filled, f"UPDATE bodies SET bytes={damaged} WHERE id IN ({bodies})")

    found = upkeep("scrub").exits(66).out

    assert "s3://bkt/sealed: cannot read an object" in found and "s3://old/sealed (an older version): cannot read an object" in found
    export = upkeep("export", tmp_path / "all.tar")
    assert export.code != 0 and "cannot export 's3://bkt/sealed': cannot read an object" in export.text


def test_a_lost_row_of_a_body_is_found(filled, upkeep):
    database(filled, "DELETE FROM bodies WHERE id=(SELECT body FROM objects WHERE key=CAST('small' AS BLOB))")

    found = upkeep("check").exits(66)
    upkeep("repair").exits(66)

    assert "s3://bkt/small" in found.out and kinds(found) == {"lost"}
    assert "s3://bkt/small" in upkeep("scrub").exits(66).out


def test_a_damaged_version_hides_no_older_one(filled):
    filled.start()
    s3 = filled.client
    first = s3.put_object(Bucket="old", Key="e", Body=b"first", ServerSideEncryption="AES256")["VersionId"]
    s3.put_object(Bucket="old", Key="e", Body=b"second", ServerSideEncryption="AES256")
    filled.stop()
    database(filled, "UPDATE bodies SET bytes=CAST(zeroblob(length(bytes)) AS BLOB) WHERE id=(SELECT body FROM objects WHERE key=CAST('e' AS BLOB))")

    filled.start()
    assert filled.client.get_object(Bucket="old", Key="e", VersionId=first)["Body"].read() == b"first"


def test_no_body_gets_the_id_of_a_lost_body(filled, upkeep):
    """An object whose body is lost must not get the body of a later object."""
    ((lost,),) = database(filled, "SELECT max(id) FROM bodies")
    database(filled, "DELETE FROM bodies")
    filled.start()
    filled.client.put_object(Bucket="bkt", Key="later", Body=b"later")
    filled.stop()

    ((later,),) = database(filled, "SELECT id FROM bodies")
    assert later > lost


def test_a_body_of_several_objects_is_found(filled, upkeep):
    """The deletion of one of the objects would delete the body of the other one."""
    database(filled, "INSERT INTO objects SELECT bucket,CAST('twin' AS BLOB),size,modified,etag,ck_algorithm,ck_type,ck_value,headers,upload,layout,body"
             " FROM objects WHERE key=CAST('small' AS BLOB)")  # fmt: skip

    assert kinds(upkeep("check").exits(66)) == {"row"}


def test_a_body_that_no_object_uses_is_moved_aside(filled, upkeep):
    database(filled, "INSERT INTO bodies(id,bytes) VALUES(4711,CAST('lost' AS BLOB))")

    assert kinds(upkeep("check").exits(66)) == {"surplus"}
    upkeep("repair").ok()

    upkeep("check").ok()
    assert (filled.root / f"aside/body-{4711:016x}").read_text() == "lost"
    assert database(filled, "SELECT count(*) FROM bodies WHERE id=4711") == [(0,)]


def test_a_store_of_format_4_has_its_bodies_in_the_rows_of_objects(filled, upkeep):
    """The rows stay as they are until their objects are written again."""
    moved = "UPDATE {} SET body=(SELECT bytes FROM bodies WHERE id=body) WHERE typeof(body)='integer'"
    database(filled, moved.format("objects"), moved.format("versions"), "DROP TABLE bodies", "PRAGMA user_version=4")
    filled.start()
    s3 = filled.client
    s3.put_object(Bucket="bkt", Key="small2", Body=b"more")
    s3.copy_object(Bucket="bkt", Key="small3", CopySource="bkt/small")
    assert s3.get_object(Bucket="bkt", Key="small")["Body"].read() == b"small"
    s3.put_object(Bucket="bkt", Key="small", Body=b"changed")
    assert s3.get_object(Bucket="bkt", Key="small")["Body"].read() == b"changed"
    assert s3.get_object(Bucket="bkt", Key="small3")["Body"].read() == b"small"
    filled.stop()

    for verb in ("check", "scrub"):
        upkeep(verb).ok()
    assert database(filled, "SELECT count(*) FROM bodies") == [(3,)]


def test_a_damaged_part_of_an_unfinished_upload_is_found_by_scrub(filled, upkeep):
    """An object that is completed from the damaged part would be damaged, too."""
    (layout,) = database(filled, "SELECT layout FROM parts")[0]
    number = int.from_bytes(layout[-24:-16], "little")
    flip(filled.root / f"data/{number >> 8 & 0xff:02x}/{number:016x}", at=0)

    assert "part 1 of an upload of s3://bkt/open" in upkeep("scrub").exits(66).out


@pytest.mark.parametrize(
    "statement",
    ["UPDATE blobs SET refs=refs+1", "UPDATE blobs SET refs=1", "DELETE FROM blobs WHERE id=(SELECT min(id) FROM blobs)"],
)  # fmt: skip
def test_wrong_references_are_mended(filled, upkeep, statement):
    """If a file had too few references, it would be deleted although an object needs it."""
    database(filled, statement)

    assert kinds(upkeep("check").exits(66)) == {"references"}
    upkeep("repair").ok()

    upkeep("check").ok()
    upkeep("scrub").ok()


def test_a_start_after_a_crash_leaves_the_files_of_lost_rows_to_a_repair(filled, upkeep):
    """The start removes only files that were arriving during the crash."""
    stray = filled.root / "data/00/00000000000000ff"
    stray.parent.mkdir(exist_ok=True)
    stray.write_bytes(b"arriving")
    database(filled, "DELETE FROM blobs", "UPDATE meta SET value=0 WHERE name='clean'")

    filled.start()

    filled.process.wait_for_output("6 data files of objects have no row", 30)
    wait_for(lambda: not stray.exists(), 30)
    filled.stop()
    upkeep("repair").ok()
    upkeep("check").ok()
    upkeep("scrub").ok()


def test_a_start_after_a_crash_removes_nothing_while_a_layout_is_invalid(filled, upkeep):
    path = file_of(filled, "large")
    database(filled, "DELETE FROM blobs", "UPDATE objects SET layout=x'07' WHERE key=CAST('large' AS BLOB)",
             "UPDATE meta SET value=0 WHERE name='clean'")  # fmt: skip

    filled.start()

    filled.process.wait_for_output("cannot remove files left by a crash", 30)
    assert path.exists()


def test_files_that_nothing_names_are_moved_aside(filled, upkeep):
    """Files without a row may be the only copy of lost objects."""
    stray = filled.root / "data/00/0000000000000042"
    stray.write_bytes(b"stray")
    used = file_of(filled, "v", "versions")
    database(filled, "DELETE FROM versions WHERE key=CAST('v' AS BLOB)")
    body = used.read_bytes()

    assert kinds(upkeep("check").exits(66)) == {"surplus", "references"}
    upkeep("repair").ok()

    upkeep("check").ok()
    assert not stray.exists() and (filled.root / "aside" / stray.name).read_bytes() == b"stray"
    assert not used.exists() and (filled.root / "aside" / used.name).read_bytes() == body


def test_an_invalid_layout_keeps_the_files_that_it_may_name(filled, upkeep):
    """A user may repair the row by hand later, and then needs the file, the references and the
    seal."""
    path, body = file_of(filled, "v", "versions"), file_of(filled, "large").read_bytes()
    ((layout,),) = database(filled, "SELECT hex(layout) FROM objects WHERE key=CAST('large' AS BLOB)")
    before = database(filled, "SELECT * FROM blobs ORDER BY id")
    damage = "UPDATE {} SET layout=x'07' WHERE key=CAST('{}' AS BLOB)"
    database(filled, damage.format("objects", "large"), damage.format("versions", "v"))

    upkeep("repair").exits(66)

    assert database(filled, "SELECT * FROM blobs ORDER BY id") == before and path.exists()
    database(filled, f"UPDATE objects SET layout=x'{layout}' WHERE key=CAST('large' AS BLOB)")
    filled.start()
    filled.client.delete_object(Bucket="bkt", Key="copy")
    assert filled.bytes("bkt", "large") == body


def test_a_file_that_is_moved_aside_keeps_its_seal(penstock, tmp_path):
    """Without its seal, the file could not be decrypted."""
    store = Store(penstock, tmp_path / "store")
    store.client.create_bucket(Bucket="bkt")
    store.client.put_object(Bucket="bkt", Key="large", Body=bytes(LARGE), ServerSideEncryption="AES256")
    store.stop()
    path = file_of(store, "large")
    ((seal,),) = database(store, "SELECT hex(seal) FROM blobs")
    database(store, "DELETE FROM objects")

    penstock.run("store", "repair", "--root", store.root).ok()

    assert (store.root / "aside" / f"{path.name}.seal").read_text() == seal.lower() + "\n"
    assert (store.root / "aside" / path.name).exists() and database(store, "SELECT * FROM blobs") == []


@pytest.fixture
def encrypted(penstock, tmp_path):
    """A stopped store with encrypted objects: one from a PUT, one from parts, and a part of an
    unfinished upload."""
    store = Store(penstock, tmp_path / "store")
    s3 = store.client
    s3.create_bucket(Bucket="bkt")
    s3.put_object(Bucket="bkt", Key="large", Body=bytes(LARGE), ServerSideEncryption="AES256")
    for key in ("parts", "open"):
        upload = s3.create_multipart_upload(Bucket="bkt", Key=key, ServerSideEncryption="AES256")["UploadId"]
        tag = s3.upload_part(Bucket="bkt", Key=key, UploadId=upload, PartNumber=1, Body=bytes(LARGE))["ETag"]
        if key == "parts":
            s3.complete_multipart_upload(Bucket="bkt", Key=key, UploadId=upload, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": tag}]})
    store.stop()
    yield store
    if store.process.running():
        store.stop()


def noted(path):
    """Returns the seal in the extended attribute of a data file. Skips the test if the file system
    has no extended attributes."""
    if "user.penstock.seal" not in os.listxattr(path):
        pytest.skip("no extended attributes")
    return os.getxattr(path, "user.penstock.seal")


@pytest.mark.parametrize("copied", [False, True])
def test_lost_rows_of_encrypted_files_come_back_with_their_seals(penstock, encrypted, tmp_path, copied):
    """A backup has the seals, too."""
    noted(file_of(encrypted, "large"))
    if copied:
        penstock.run("store", "backup", "--root", encrypted.root, tmp_path / "backup").ok()
        encrypted.root = tmp_path / "backup"
    before = database(encrypted, "SELECT id, refs, size, hex(seal) FROM blobs ORDER BY id")
    database(encrypted, "DELETE FROM blobs")

    assert "3 problems" in penstock.run("store", "check", "--root", encrypted.root).exits(66).err
    penstock.run("store", "repair", "--root", encrypted.root).ok()

    assert database(encrypted, "SELECT id, refs, size, hex(seal) FROM blobs ORDER BY id") == before
    penstock.run("store", "scrub", "--root", encrypted.root).ok()
    encrypted.start()
    assert encrypted.bytes("bkt", "large") == encrypted.bytes("bkt", "parts") == bytes(LARGE)


def test_an_encrypted_file_without_row_and_seal_is_not_mended(penstock, encrypted):
    """A new row without a seal would hide that the file cannot be decrypted."""
    path = file_of(encrypted, "large")
    noted(path)
    os.removexattr(path, "user.penstock.seal")
    database(encrypted, f"DELETE FROM blobs WHERE id={int(path.name, 16)}")

    result = penstock.run("store", "repair", "--root", encrypted.root).exits(66)

    assert "is encrypted without a seal" in result.out and "lost: s3://bkt/large has lost bytes" in result.out
    assert path.exists() and database(encrypted, "SELECT count(*) FROM blobs") == [(2,)]


def test_objects_without_a_bucket_get_one(filled, upkeep):
    """The objects get a new bucket with an unused name, so that they can be read again."""
    ((number,),) = database(filled, "SELECT id FROM buckets WHERE name='bkt'")
    database(filled, "DELETE FROM buckets WHERE name='bkt'")

    assert kinds(upkeep("check").exits(66)) == {"row"}
    upkeep("repair").ok()

    upkeep("check").ok()
    filled.start()
    assert filled.bytes(f"recovered-{number}", "small") == b"small"


def test_parts_without_an_upload_are_moved_aside(filled, upkeep):
    """No request can reach parts without an upload."""
    database(filled, "DELETE FROM uploads")

    assert kinds(upkeep("check").exits(66)) == {"row", "references"}
    upkeep("repair").ok()

    upkeep("check").ok()
    assert len(list((filled.root / "aside").iterdir())) == 1


def test_an_invalid_layout_and_a_wrong_size_are_found(filled, upkeep):
    """These rows cannot be repaired, and stay."""
    database(filled, "UPDATE objects SET layout=x'07' WHERE key=CAST('small' AS BLOB)",
             "UPDATE objects SET size=size+1 WHERE key=CAST('large' AS BLOB)")  # fmt: skip

    found = upkeep("check").exits(66)
    upkeep("repair").exits(66)

    assert "s3://bkt/small" in found.out and "s3://bkt/large" in found.out
    assert database(filled, "SELECT count(*) FROM objects") == [(5,)]


def test_a_damaged_database_is_found(filled, upkeep):
    """`check` also runs SQLite's own integrity check."""
    database(filled, "PRAGMA wal_checkpoint(TRUNCATE)")
    content = bytearray((filled.root / "meta.db").read_bytes())
    ((page,),) = database(filled, "SELECT rootpage FROM sqlite_master WHERE name='objects'")
    content[(page - 1) * 4096 + 8 : (page - 1) * 4096 + 40] = bytes(range(32))
    (filled.root / "meta.db").write_bytes(content)

    upkeep("check").exits(66)


def damage_long_body(store):
    """Adds a small object whose body has several pages, and damages the link from its first to its
    next page."""
    store.start()
    put(store, "long", b"x" * 15_000)
    store.stop()
    database(store, "PRAGMA wal_checkpoint(TRUNCATE)")
    content = bytearray((store.root / "meta.db").read_bytes())
    page = content.index(b"x" * 4000) // 4096 * 4096
    content[page : page + 4] = b"\xff" * 4
    (store.root / "meta.db").write_bytes(content)


def test_a_resumed_scrub_ends_at_a_damaged_database(filled, upkeep):
    damage_long_body(filled)
    numbers = ("stage", "bucket", "number", "objects", "bytes", "unverified", "damaged", "all_bytes")
    (filled.root / "scrub.json").write_text(json.dumps(dict.fromkeys(numbers, 0) | {"key": ""}))

    upkeep("scrub").exits(66)


def test_a_damaged_body_prevents_no_repair_of_other_things(filled, upkeep):
    """`check` and `repair` need the length of a body, but not its bytes."""
    damage_long_body(filled)
    surplus = filled.root / f"data/47/{0x4700:016x}"
    surplus.parent.mkdir(exist_ok=True)
    surplus.write_bytes(b"surplus")

    assert kinds(upkeep("check").exits(66)) == {"database", "surplus"}
    upkeep("repair").exits(66)

    assert (filled.root / f"aside/{0x4700:016x}").read_bytes() == b"surplus"


def test_an_interrupted_scrub_resumes(filled, upkeep, penstock):
    """A scrub of a large store takes hours, so an interrupted scrub must not start over."""
    put_in = filled.root / "scrub.json"
    slow = penstock.popen("store", "scrub", "--root", filled.root, "--rate", "2M")
    slow.wait_for_output("scrub", 30)
    slow.send(2)
    assert slow.wait(30).code == 130 and put_in.exists()

    resumed = upkeep("scrub").ok()

    assert "resumed" in resumed.err and not put_in.exists()


def test_an_archive_makes_the_same_store(filled, upkeep, tmp_path):
    """The archive includes older versions, markers, headers, parts and configurations."""
    archive = tmp_path / "all.tar"
    upkeep("export", archive).ok()

    upkeep("import", archive, root=tmp_path / "new").ok()

    upkeep("export", tmp_path / "again.tar", root=tmp_path / "new").ok()
    assert archive.read_bytes() == (tmp_path / "again.tar").read_bytes()
    upkeep("check", root=tmp_path / "new").ok()
    upkeep("scrub", root=tmp_path / "new").ok()
    assert upkeep("import", archive, root=tmp_path / "new").code == 69
    filled.root = tmp_path / "new"
    filled.start()
    head = filled.client.head_object(Bucket="bkt", Key="small")
    assert head["Metadata"] == {"name": "value"} and len(filled.bytes("bkt", "parts")) == (5 << 20) + 3
    assert filled.client.get_bucket_tagging(Bucket="bkt")["TagSet"] == [{"Key": "a", "Value": "b"}]


def test_an_imported_version_does_not_wait_for_its_replication(filled, upkeep, tmp_path):
    """An archive has no events, so nothing would send the version, and the lifecycle would never
    delete it."""
    ((headers,),) = database(filled, "SELECT hex(headers) FROM objects WHERE key=CAST('small' AS BLOB)")
    states = b":replication/a\0COMPLETED\0:replication/b\0PENDING\0:replication/c\0REFUSED\0"
    database(filled, f"UPDATE objects SET headers=x'{headers}{states.hex()}' WHERE key=CAST('small' AS BLOB)")
    upkeep("export", tmp_path / "all.tar").ok()

    upkeep("import", tmp_path / "all.tar", root=tmp_path / "new").ok()

    ((imported,),) = database(filled, "SELECT hex(headers) FROM objects WHERE key=CAST('small' AS BLOB)", root=tmp_path / "new")
    assert bytes.fromhex(imported) == bytes.fromhex(headers) + b":replication/a\0COMPLETED\0"


def test_a_version_after_the_latest_replica_is_imported(filled, upkeep, tmp_path):
    filled.start()
    client = filled.boto3()
    client.meta.events.register("before-call.s3.PutObject", lambda params, **_: params["headers"].update({"x-amz-penstock-replica": "3" + "f" * 15}))
    client.put_object(Bucket="old", Key="late", Body=b"replica")
    assert put(filled, "late", b"after", "old") == "4" + "0" * 15
    filled.stop()
    upkeep("export", tmp_path / "all.tar").ok()

    upkeep("import", tmp_path / "all.tar", root=tmp_path / "new").ok()

    filled.root = tmp_path / "new"
    filled.start()
    assert filled.bytes("old", "late") == b"after"
    assert put(filled, "late", b"last", "old") == "4" + "0" * 14 + "1"


def test_a_damaged_object_is_not_exported(filled, upkeep, tmp_path):
    """In a copy, new checksums would hide the damage."""
    flip(file_of(filled, "large"))

    assert "s3://bkt/" in upkeep("export", tmp_path / "all.tar").exits(66).err
    assert not (tmp_path / "all.tar").exists()
    upkeep("export", tmp_path / "old.tar", "old").ok()


@pytest.mark.parametrize("table", ["objects", "versions"])
def test_an_export_ignores_a_damaged_row_of_the_next_bucket(filled, upkeep, tmp_path, table):
    """The export reads the first row of the next bucket, to find the end of the exported bucket."""
    database(filled, f"UPDATE {table} SET layout=x'07' WHERE bucket=(SELECT id FROM buckets WHERE name='old')")

    upkeep("export", tmp_path / "bkt.tar", "bkt").ok()
    upkeep("export", tmp_path / "old.tar", "old").exits(66)

    upkeep("import", tmp_path / "bkt.tar", root=tmp_path / "new").ok()
    assert upkeep("stat", "--json", root=tmp_path / "new").json()["objects"] == 4


def test_an_error_of_the_database_is_not_the_end_of_the_configurations(filled, upkeep, tmp_path):
    """If the export took the error for the end of the rows, the archive would be incomplete."""
    database(
        filled,
        "ALTER TABLE configs RENAME TO saved",
        "CREATE VIEW configs AS SELECT bucket, name, value FROM saved UNION ALL SELECT id, 'z', abs(-9223372036854775808) FROM buckets",
    )

    assert "read the configurations" in upkeep("export", tmp_path / "all.tar").exits(70).err
    assert not (tmp_path / "all.tar").exists()


def test_the_rest_of_a_killed_import_is_not_a_bucket(filled, upkeep, tmp_path):
    """The next import removes the leftovers."""
    database(filled, "INSERT INTO buckets(name, created) VALUES('.import-new', 1)")
    filled.start()
    listed = [bucket["Name"] for bucket in filled.client.list_buckets()["Buckets"]]
    upkeep("export", tmp_path / "all.tar").ok()
    filled.stop()

    upkeep("import", tmp_path / "all.tar", root=tmp_path / "new").ok()
    upkeep("import", tmp_path / "all.tar").exits(69)

    assert listed == ["bkt", "old"]
    for root in (tmp_path / "new", filled.root):
        assert [bucket["name"] for bucket in upkeep("stat", "--json", root=root).json()["buckets"]] == ["bkt", "old"]


@pytest.mark.parametrize("damage", ["cut", "flipped", "member lost"])
def test_a_damaged_archive_adds_nothing(filled, upkeep, tmp_path, damage):
    """An imported bucket appears only once all of its objects are complete."""
    archive, new = tmp_path / "all.tar", tmp_path / "new"
    upkeep("export", archive, "bkt").ok()
    with tarfile.open(archive) as tar:
        members = {m.name: m for m in tar.getmembers()}
    content = bytearray(archive.read_bytes())
    if damage == "cut":
        content = content[: members["bkt/end.json"].offset]
    elif damage == "flipped":
        content[members["bkt/2"].offset_data + 5] ^= 1
    else:
        del content[members["bkt/2"].offset : members["bkt/3"].offset]
    archive.write_bytes(content)

    upkeep("import", archive, root=new).exits(66)

    assert upkeep("stat", "--json", root=new).json()["buckets"] == []
    assert upkeep("check", root=new).ok() and upkeep("stat", "--json", root=new).json()["files"] == 0


def headers_with(old, new):
    """Returns a function that replaces bytes in the member "headers" of a document by as many other
    bytes."""
    return lambda m: b'"headers":"%s"' % base64.b64encode(base64.b64decode(m[1]).replace(old, new))


@pytest.mark.parametrize("key, pattern, text", [
    ("parts", rb'("number": ?)1\b', rb"\g<1>3"),  # parts 3 and 2
    ("parts", rb'("number": ?)2\b', rb"\g<1>1"),  # part 1 twice
    ("parts", rb'("size": ?\d+, ?"etag": ?")\w', rb"\g<1><"),
    ("small", rb'("etag": ?")\w', rb"\g<1><"),
    ("small", rb'("modified": ?)\d{19}', rb"\g<1>9223372036854775807"),  # no later version could be newer
    ("small", rb'"headers": ?"([^"]*)"', headers_with(b"value", b"v\r\nue")),
    ("small", rb'"headers": ?"([^"]*)"', headers_with(b"meta-name", b"meta name")),
])  # fmt: skip
def test_an_archive_with_an_invalid_object_is_refused(filled, upkeep, tmp_path, key, pattern, text):
    archive, new = tmp_path / "all.tar", tmp_path / "new"
    upkeep("export", archive, "bkt").ok()
    with tarfile.open(archive) as tar:
        members = [m for m in tar.getmembers() if m.name.endswith(".json")]
    content, changes = bytearray(archive.read_bytes()), 0
    for m in members:
        document = bytes(content[m.offset_data : m.offset_data + m.size])
        if json.loads(document).get("key") == key:
            content[m.offset_data : m.offset_data + m.size], changes = re.subn(pattern, text, document)
    archive.write_bytes(content)

    assert changes and key in upkeep("import", archive, root=new).exits(66).err
    assert upkeep("stat", "--json", root=new).json()["buckets"] == []


def test_a_backup_is_of_one_instant_while_the_store_changes(filled, upkeep, tmp_path):
    """The writer replaces both objects in turn, so in a consistent backup their versions differ by
    at most one."""
    filled.start()
    s3, stop, n = filled.client, threading.Event(), 0
    for key in ("a", "b"):
        put(filled, key, b"%08d" % 0 + bytes(LARGE))

    def write():
        nonlocal n
        while not stop.is_set():
            n += 1
            for key in ("a", "b"):
                s3.put_object(Bucket="bkt", Key=key, Body=b"%08d" % n + bytes(LARGE))

    writer = threading.Thread(target=write)
    writer.start()
    backups = [tmp_path / "one", tmp_path / "one", tmp_path / "two"]
    for backup in backups:
        upkeep("backup", backup).ok()
    upkeep("check").ok()
    stop.set()
    writer.join()
    filled.stop()

    for backup in {*backups}:
        upkeep("check", root=backup).ok()
        upkeep("scrub", root=backup).ok()
        filled.root = backup
        filled.start()
        a, b = (int(filled.bytes("bkt", key)[:8]) for key in ("a", "b"))
        assert a in (b, b + 1)
        filled.stop()


def test_a_backup_goes_to_another_file_system(filled, upkeep):
    """Between some pairs of file systems, the kernel cannot copy, and the verb copies the bytes
    itself."""
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="penstock-test-") as other:
        if os.stat(other).st_dev == os.stat(filled.root).st_dev:
            pytest.skip("the store is in /dev/shm")

        for _ in range(2):
            upkeep("backup", Path(other) / "one").ok()

        upkeep("check", root=Path(other) / "one").ok()
        upkeep("scrub", root=Path(other) / "one").ok()


def test_a_backup_never_overwrites_a_store(filled, upkeep, tmp_path):
    upkeep("backup", tmp_path / "one").ok()
    served, filled.root = filled.root, tmp_path / "one"
    filled.start()
    put(filled, "of-the-copy", b"new")
    filled.stop()

    upkeep("backup", tmp_path / "one", root=served).exits(69)

    assert upkeep("check", root=tmp_path / "one").ok()
    filled.start()
    assert filled.bytes("bkt", "of-the-copy") == b"new"


def test_an_interrupted_backup_leaves_the_previous_one_whole(filled, upkeep, tmp_path):
    """A new data file may have the same name as an older file in the previous backup, and must not
    replace that file."""
    filled.start()
    put(filled, "last", b"a" * LARGE)
    upkeep("backup", tmp_path / "backup").ok()
    filled.client.delete_object(Bucket="bkt", Key="last")
    filled.stop()
    filled.start()
    put(filled, "next", b"b" * LARGE)
    # A directory cannot be copied as a file; the backup fails there, after all data files.
    (filled.root / "webhooks").mkdir()

    assert "webhooks" in upkeep("backup", tmp_path / "backup").exits(70).err

    filled.stop()
    upkeep("scrub", root=tmp_path / "backup").ok()
    filled.root = tmp_path / "backup"
    filled.start()
    assert filled.bytes("bkt", "last") == b"a" * LARGE


def test_files_kept_for_a_guest_are_removed_after_it(filled, upkeep, tmp_path):
    """While a verb such as a backup reads a served store, the store keeps the files of deleted
    objects. If these files stayed after the end of the verb, each backup would leave some."""
    filled.start()
    (filled.root / "hold").touch()
    guest = subprocess.Popen(["flock", "-s", filled.root / "hold", "sh", "-c", "echo held; exec cat"], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE)  # fmt: skip
    guest.stdout.readline()
    path = file_of(filled, "copy")

    for key in ("large", "copy"):
        put(filled, key, b"new")
    kept = path.exists()
    guest.communicate()
    put(filled, "large", b"newer")

    assert kept
    wait_for(lambda: not path.exists())
    filled.stop()
    upkeep("check").ok()


def test_a_guest_neither_makes_nor_upgrades_a_store(upkeep, tmp_path, filled):
    """A wrong directory must lead to an error, not to an empty store."""
    upkeep("stat", root=tmp_path / "none").exits(66)
    upkeep("repair", root=tmp_path / "none").exits(66)
    assert not (tmp_path / "none").exists()
    shutil.copytree(filled.root, tmp_path / "copy")
    database(filled, "PRAGMA user_version=1", root=tmp_path / "copy")

    upkeep("check", root=tmp_path / "copy").exits(69)


@pytest.mark.parametrize("served", [False, True])
def test_a_store_on_a_read_only_file_system_is_read(filled, upkeep, penstock, tmp_path, served):
    """On a read-only file system, SQLite cannot create its files next to the database."""
    mount = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'
    read_only = ["unshare", "-m", "sh", "-c", mount, str(filled.root)]
    if subprocess.run([*read_only, "true"], capture_output=True).returncode:
        pytest.skip("mounting needs root")
    if served:
        filled.start()
    penstock.prefix = read_only

    upkeep("check").ok()
    upkeep("backup", tmp_path / "backup").ok()

    assert upkeep("stat", "--json").json()["served"] == served
    penstock.prefix = []
    upkeep("scrub", root=tmp_path / "backup").ok()


def test_repair_and_import_need_the_store_for_themselves(filled, upkeep, tmp_path):
    """Two writers would destroy the store."""
    upkeep("export", tmp_path / "all.tar").ok()
    filled.start()

    assert upkeep("repair").code == 69 and upkeep("import", tmp_path / "all.tar").code == 69
    assert upkeep("stat", "--json").json()["served"]
