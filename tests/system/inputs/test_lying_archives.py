"""Malicious archives: nothing leaves the input directory, the disk is not filled, and no half archive looks complete."""
import bz2
import gzip
import io
import lzma
import os
import shutil
import stat
import struct
import subprocess
import tarfile
import zipfile
import zlib

import pytest

from harness.lying import Staging, sha256, short


@pytest.fixture
def staging(penstock, tmp_path):
    return Staging(penstock, tmp_path)


@pytest.fixture
def stage(staging, http_server):
    """stage(name, data): returns the Result, and the files that the step saw, without the archive itself."""

    def run(name, data, **more):
        result, seen = staging.run(input={"http": {"url": http_server.add("/" + name, data)}}, **more)
        result.ok()
        assert seen.pop(name)[1] == sha256(data)
        return result, seen

    return run


@pytest.fixture
def refuse(staging, http_server):
    """refuse(name, data, says): checks that the run ends before its step, with one line that has
    the archive's name."""

    def run(name, data, says, **more):
        return staging.fails(name, says, input={"http": {"url": http_server.add("/" + name, data)}}, **more)

    return run


def member(name, kind=tarfile.REGTYPE, data=b"", **more):
    info = tarfile.TarInfo(name)
    info.type = kind
    info.size = len(data)
    for key, value in more.items():
        setattr(info, key, value)
    return info, data


def tar(*members, mode="w:gz", **options):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode, **options) as archive:
        for info, data in members:
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def zipped(members, **options):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, **options) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return out.getvalue()


GOOD = member("good", data=b"good")

# Each archive is refused as a whole: the good member next to the bad one is not unpacked either.
REFUSED = {
    "traversal": (tar(GOOD, member("../outside", data=b"x")), r"\.\./outside"),
    "traversal in the middle": (tar(GOOD, member("a/../../outside", data=b"x")), "outside"),
    "absolute name": (tar(GOOD, member("/tmp/outside", data=b"x")), "/tmp/outside"),
    "link to an absolute name": (tar(GOOD, member("l", tarfile.SYMTYPE, linkname="/etc/passwd")), r"\bl\b"),
    "link to outside": (tar(GOOD, member("l", tarfile.SYMTYPE, linkname="../../x")), r"\bl\b"),
    "file through a link": (tar(GOOD, member("l", tarfile.SYMTYPE, linkname="good"), member("l/x", data=b"x")), "l/x"),
    "file through a link to a directory": (
        tar(member("d", tarfile.DIRTYPE), member("l", tarfile.SYMTYPE, linkname="d"), member("l/x", data=b"x")),
        "l/x",
    ),
    "hard link to outside": (tar(GOOD, member("l", tarfile.LNKTYPE, linkname="../../../etc/passwd")), r"\bl\b"),
    "hard link to an absolute name": (tar(GOOD, member("l", tarfile.LNKTYPE, linkname="/etc/passwd")), r"\bl\b"),
    "hard link to nothing": (tar(GOOD, member("l", tarfile.LNKTYPE, linkname="missing")), r"\bl\b"),
    "character device": (tar(GOOD, member("null", tarfile.CHRTYPE, devmajor=1, devminor=3)), "null"),
    "block device": (tar(GOOD, member("sda", tarfile.BLKTYPE, devmajor=8)), "sda"),
    "fifo": (tar(GOOD, member("pipe", tarfile.FIFOTYPE)), "pipe"),
    "directory over a file": (tar(GOOD, member("good/x", data=b"x")), "good"),
    "a member with the archive's own name": (tar(GOOD, member("evil.tar.gz", data=b"x")), "evil.tar.gz"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_tar_is_refused_for_its(refuse, name):
    data, says = REFUSED[name]

    refuse("evil.tar.gz", data, says)


@pytest.mark.parametrize("name", ["../outside", "/tmp/outside", "a/../../outside"])
def test_a_zip_is_refused_for_its_member(refuse, name):
    refuse("evil.zip", zipped([("good", b"good"), (name, b"x")]), "outside")


def test_a_zip_is_refused_for_its_link(refuse):
    link = zipfile.ZipInfo("l")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    link.create_system = 3

    refuse("evil.zip", zipped([("good", b"good"), (link, b"../../outside")]), r"\bl\b")


# Odd but harmless members are unpacked, without setuid bits and foreign owners.
def test_setuid_bits_and_owners_are_dropped(stage):
    data = tar(member("su", data=b"#!/bin/sh", mode=0o6755, uid=0), member("d", tarfile.DIRTYPE, mode=0o3777))

    _, seen = stage("odd.tar.gz", data)

    assert int(seen["su"][0], 8) & 0o7000 == 0 and int(seen["su"][0], 8) & 0o700 == 0o700
    assert int(seen["d"][0], 8) & 0o7000 == 0


def test_the_last_of_several_members_with_one_name_wins(stage):
    twice = [("x", b"first"), ("x", b"second")]

    assert stage("twice.tar.gz", tar(*(member(n, data=d) for n, d in twice)))[1]["x"][1] == sha256(b"second")


@pytest.mark.parametrize("first, second", [("file", "directory"), ("directory", "file"), ("link", "file")])
def test_one_name_that_is_two_kinds_of_thing(staging, http_server, first, second):
    made = {"file": member("x", data=b"file"), "directory": member("x/y", data=b"below"), "link": member("x", tarfile.SYMTYPE, linkname="z")}
    url = http_server.add("/mixed.tar.gz", tar(member("z", data=b"z"), made[first], made[second]))

    result, seen = staging.run(input={"http": {"url": url}})

    # The second of the two members is unpacked, or the archive is refused. Nothing is written
    # through a link.
    if result.code == 0:
        assert seen["z"][1] == sha256(b"z")
        assert ("x/y" in seen) if second == "directory" else seen["x"][1] == sha256(b"file")
    else:
        assert seen is None and "mixed.tar.gz" in result.err and "x" in result.err


# A name may have all bytes except / and NUL; a terminal shows each name on one line.
@pytest.mark.parametrize("name", [b"new\nline", b"\xff\xfe not UTF-8", b"\x1b[31mred", b"-rf", b"a" * 255])
def test_names_are_bytes(stage, name):
    result, seen = stage("names.tar", tar(member(os.fsdecode(name), data=b"x"), mode="w:", format=tarfile.GNU_FORMAT, errors="surrogateescape"))

    assert seen[name.decode("utf-8", "backslashreplace")][1] == sha256(b"x")
    assert "\x1b[31m" not in result.text


def test_a_refused_name_is_shown_on_one_line(refuse):
    data = tar(member("../new\nline\x1b[31m", data=b"x"), mode="w:", format=tarfile.GNU_FORMAT)

    assert "\x1b[31m" not in refuse("names.tar", data, "new.*line").text


# A NUL ends a name in a tar header; in a zip no name has a NUL.
def test_a_name_with_a_nul_reaches_no_other_place(staging, http_server):
    plain = zipped([("good", b"good"), ("aXb", b"x")])
    url = http_server.add("/nul.zip", plain.replace(b"aXb", b"a\0b"))

    result, seen = staging.run(input={"http": {"url": url}})

    if result.code == 0:
        assert set(seen) <= {"nul.zip", "good", "a"}
    else:
        assert seen is None and "nul.zip" in result.err


def archives():
    """Returns archives of every kind, each with one incompressible and one compressible member."""
    files = [("noise", os.urandom(200_000)), ("text", b"text " * 40_000)]
    members = [member(n, data=d) for n, d in files]
    plain = tar(*members, mode="w:")
    kinds = {
        "a.tar": plain, "a.tar.gz": gzip.compress(plain), "a.tar.bz2": bz2.compress(plain), "a.tar.xz": lzma.compress(plain),
        "a.tar.lzma": lzma.compress(plain, format=lzma.FORMAT_ALONE), "a.zip": zipped(files), "a.csv.gz": gzip.compress(files[0][1]),
    }  # fmt: skip
    for program, suffix in (("zstd", "zst"), ("lz4", "lz4")):
        if shutil.which(program):
            kinds[f"a.tar.{suffix}"] = subprocess.run([program, "-c"], input=plain, stdout=subprocess.PIPE, check=True).stdout
    return kinds


ARCHIVES = archives()


@pytest.mark.parametrize("missing", [pytest.param(0.7, marks=pytest.mark.long), 20_000])
@pytest.mark.parametrize("kind", ARCHIVES)
def test_a_cut_archive_is_refused(refuse, kind, missing):
    data = ARCHIVES[kind]

    refuse(kind, data[: -(missing if missing > 1 else int(len(data) * missing))], "cut|damaged|too early|missing|truncated")


@pytest.mark.parametrize("kind", [kind for kind in ARCHIVES if kind != "a.tar"])  # a plain tar has no checksum of contents
def test_an_archive_with_a_wrong_bit_is_refused(refuse, kind):
    data = bytearray(ARCHIVES[kind])
    data[100_000] ^= 1

    refuse(kind, bytes(data), "damaged|checksum|CRC|cut")


def test_a_wrong_crc_is_found(refuse):
    packed = bytearray(gzip.compress(b"contents " * 1000))
    packed[-8:-4] = struct.pack("<I", zlib.crc32(b"other"))

    refuse("data.csv.gz", bytes(packed), "checksum")


def test_a_wrong_length_is_found(refuse):
    packed = bytearray(gzip.compress(b"contents " * 1000))
    packed[-4:] = struct.pack("<I", 17)

    refuse("data.csv.gz", bytes(packed), "")


def test_an_encrypted_zip_is_named(refuse, tmp_path):
    program = shutil.which("7z") or shutil.which("7za")
    if not program:
        pytest.skip("7z is not installed")
    (tmp_path / "secret").write_bytes(b"secret " * 100)
    subprocess.run([program, "a", "-pPassword", "-tzip", tmp_path / "e.zip", tmp_path / "secret"], stdout=subprocess.DEVNULL, check=True)

    refuse("e.zip", (tmp_path / "e.zip").read_bytes(), "secret")


UNIT = 48 << 20  # a piece of a bomb; each decompressor continues with the next stream after the end of one
ENOUGH = 6 * UNIT


def bomb_tar(compress):
    """A tar of one member of zeros."""
    info = tarfile.TarInfo("zeros")
    info.size = ENOUGH
    return compress(info.tobuf()) + compress(bytes(UNIT)) * (ENOUGH // UNIT) + compress(bytes(1024))


BOMBS = {
    "bomb.bin.bz2": lambda: bz2.compress(bytes(UNIT)) * (ENOUGH // UNIT),  # a million to one
    "bomb.tar.bz2": lambda: bomb_tar(bz2.compress),
    "bomb.tar.gz": lambda: bomb_tar(gzip.compress),
    "bomb.tar.xz": lambda: bomb_tar(lambda data: lzma.compress(data, preset=0)),
    "bomb.zip": lambda: zipped([("zeros", bytes(ENOUGH))]),
}

# The unpacking of a bomb ends once it is detected, long before the disk is full.
@pytest.mark.parametrize("name", short(BOMBS, "bomb.bin.bz2"))
def test_a_bomb_ends_early(refuse, name):
    refuse(name, BOMBS[name](), "2[0-9]{2}[. ].*MB.* more than 500 times")


# A user whose archive is compressed as strongly as a bomb can raise the limit.
@pytest.mark.long
def test_the_limit_of_compression_can_be_raised(stage):
    _, seen = stage("zeros.bin.bz2", BOMBS["bomb.bin.bz2"](), env={"PENSTOCK_UNPACK_RATIO": "10000000"})

    assert "zeros.bin" in seen


def tiny_members(count):
    """A tar of `count` empty files in directories of a thousand; made by hand, since tarfile is slow."""
    out = io.BytesIO()
    packer = gzip.GzipFile(fileobj=out, mode="wb", compresslevel=1)
    for number in range(count):
        packer.write(tarfile.TarInfo(f"d{number // 1000:04}/f{number}").tobuf(tarfile.USTAR_FORMAT))
    packer.write(bytes(1024))
    packer.close()
    return out.getvalue()


@pytest.mark.parametrize("count", [5_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_many_tiny_members_are_unpacked(staging, http_server, tmp_path, count):
    url = http_server.add("/tiny.tar.gz", tiny_members(count))
    file = staging.write(f"find $DEEPSQUARE_INPUT -type f | wc -l > {tmp_path}/count", input={"http": {"url": url}})

    staging.penstock.run("run", file, deadline_s=900).ok()

    assert int((tmp_path / "count").read_text()) == count + 1
