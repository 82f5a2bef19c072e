"""Staging: inputs fetched from good and bad servers, unpacked while they arrive, and fetched once."""
import functools
import hashlib
import http.server
import io
import json
import os
import re
import shutil
import signal
import subprocess
import tarfile
import threading
import zipfile

import pytest

from harness.fault_proxy import FaultProxy
from harness.http_server import Server
from harness.waiting import wait_for
from harness.workflows import write_workflow

LIST = """
import hashlib, json, os, stat, sys
top = os.environ["DEEPSQUARE_INPUT"]
found = {}
for folder, folders, files in os.walk(top):
    for name in files + folders:
        path = os.path.join(folder, name)
        mode = os.lstat(path).st_mode
        kind = oct(mode & 0o777)
        if stat.S_ISREG(mode):
            found[os.path.relpath(path, top)] = hashlib.sha256(open(path, "rb").read()).hexdigest()
        found[os.path.relpath(path, top) + ":mode"] = kind
json.dump(found, open(sys.argv[1], "w"))
"""


def workflow(path, command, **job):
    """Writes a workflow file of one step, with the other given keys of the job."""
    return write_workflow(path.parent, command, file=path.name, named="look", **job)


@pytest.fixture
def staged(penstock, tmp_path):
    """staged(*options, **job) runs a workflow with these keys. It returns the Result, and the files that the step saw: NAME to SHA-256, and NAME:mode to
    the mode; None if the step did not run."""
    script, seen = tmp_path / "list.py", tmp_path / "seen.json"
    script.write_text(LIST)

    def run(*options, **job):
        seen.unlink(missing_ok=True)
        file = workflow(tmp_path / "wf.json", f"/usr/bin/python3 {script} {seen}", **job)
        result = penstock.run("run", *options, file)
        return result, json.loads(seen.read_text()) if seen.exists() else None

    return run


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def members_of(archive):
    with tarfile.open(archive) as tar:
        return {member.name: sha256(tar.extractfile(member).read()) for member in tar if member.isfile()}


def make_tar(files, mode="w:gz"):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode=mode) as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return data.getvalue()


def assert_staged(seen, archive):
    """Checks the contents of the archive, and that the archive is next to them."""
    expected = members_of(archive)
    assert expected
    assert {name: seen.get(name) for name in expected} == expected
    assert seen[archive.name] == sha256(archive.read_bytes())


# The input is that of the main job (jobs/test_main_job.py), from a server with ranges and from one
# without them.
@pytest.mark.parametrize("ranges", [True, False])
def test_an_archive_is_unpacked_and_kept(staged, cifar_archive, ranges):
    server = Server(ranges=ranges)
    try:
        url = server.add("/~kriz/" + cifar_archive.name, cifar_archive)

        result, seen = staged(input={"http": {"url": url}})

        result.ok()
        assert_staged(seen, cifar_archive)
    finally:
        server.close()


# Python's own server is as simple as possible: HTTP/1.0, no ranges, no ETag.
def test_pythons_own_server_will_do(staged, cifar_archive):
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=cifar_archive.parent)
    handler.log_message = lambda *_: None
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()

        result, seen = staged(input={"http": {"url": f"http://127.0.0.1:{server.server_port}/{cifar_archive.name}"}})

        server.shutdown()
        thread.join()
    result.ok()
    assert_staged(seen, cifar_archive)


# nginx is a common server for data sets.
def test_an_archive_comes_from_nginx(staged, nginx, cifar_archive):
    url = nginx(cifar_archive.parent)

    result, seen = staged(input={"http": {"url": f"{url}/{cifar_archive.name}"}})

    result.ok()
    assert_staged(seen, cifar_archive)


# Every kind of archive that DeepSquare's own runner unpacks is unpacked here, too.
def test_every_kind_of_archive_is_unpacked(staged, http_server, tmp_path):
    files = {"dir/one.txt": b"one" * 1000, "two.bin": os.urandom(50000)}
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    kinds = {
        "a.tar": make_tar(files, "w:"), "a.tgz": make_tar(files), "a.tar.bz2": make_tar(files, "w:bz2"),
        "a.tar.xz": make_tar(files, "w:xz"), "a.zip": packed.getvalue(), "no-suffix": make_tar(files),
    }  # fmt: skip
    if program := shutil.which("7z"):
        for name, content in files.items():
            (tmp_path / "7z" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "7z" / name).write_bytes(content)
        subprocess.run([program, "a", tmp_path / "a.7z", "."], cwd=tmp_path / "7z", stdout=subprocess.DEVNULL, check=True)
        kinds["a.7z"] = (tmp_path / "a.7z").read_bytes()
    inputs = [{"http": {"url": http_server.add(f"/{name}", data)}, "path": f"from/{name}"} for name, data in kinds.items()]

    result, seen = staged(inputs=inputs)

    result.ok()
    for kind, data in kinds.items():
        assert seen[f"from/{kind}/{kind}"] == sha256(data)
        for name, content in files.items():
            assert seen[f"from/{kind}/{name}"] == sha256(content), (kind, name)


# Three kinds of files are not unpacked: other files than archives, files with `unpack: false`, and
# archives that programs read as they are.
def test_what_is_used_whole_stays_whole(staged, http_server):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("archive/data.pkl", b"pickled")
    contents = {"/plain.csv": b"1,2\n", "/model.pth": packed.getvalue(), "/model.bin": packed.getvalue(), "/kept.tgz": make_tar({"x": b"x"})}
    inputs = [{"http": {"url": http_server.add(path, data)}} for path, data in contents.items()]
    inputs[-1]["unpack"] = False

    result, seen = staged(inputs=inputs)

    result.ok()
    assert {name for name in seen if not name.endswith(":mode")} == {path[1:] for path in contents}


# A download survives lost connections, from a server with ranges and from one without them. No file
# is torn.
@pytest.mark.parametrize("ranges", [True, False])
def test_a_cut_connection_goes_on(staged, cifar_archive, ranges):
    server = Server(ranges=ranges)
    try:
        url = server.add("/" + cifar_archive.name, cifar_archive)
        server.fault("/" + cifar_archive.name, cut_after=300_000, reset=True, times=2)

        result, seen = staged(input={"http": {"url": url}})

        result.ok()
        assert_staged(seen, cifar_archive)
    finally:
        server.close()


# kill -9 while the archive arrives: the same command resumes, and the bytes that had arrived are not fetched again.
def test_a_killed_staging_goes_on(penstock, http_server, tmp_path):
    files = {f"noise/{number}": os.urandom(1 << 20) for number in range(48)}
    data = make_tar(files, "w:")
    url = http_server.add("/noise.tar", data)
    http_server.fault("/noise.tar", times=3)  # some ranges come whole
    http_server.fault("/noise.tar", stall_after=100_000, times=100)
    seen = tmp_path / "seen.json"
    (tmp_path / "list.py").write_text(LIST)
    file = workflow(tmp_path / "wf.json", f"/usr/bin/python3 {tmp_path / 'list.py'} {seen}", input={"http": {"url": url}})

    def fetched():
        return sum(request.sent for request in http_server.seen("/noise.tar"))

    first = penstock.popen("run", file)
    wait_for(lambda: fetched() > len(data) // 4, 60, "a quarter of the archive")
    wait_for(lambda: any((penstock.home / "runs").rglob("*.penstock-part.json")), 60, "the note of what has arrived")
    first.kill()
    http_server.faults.clear()
    before = fetched()
    result = penstock.run("run", file).ok()

    assert fetched() - before < len(data), f"{fetched() - before} of {len(data)} bytes came again\n{result.text}"
    found = json.loads(seen.read_text())
    assert {name: found.get(name) for name in files} == {name: sha256(content) for name, content in files.items()}
    assert found["noise.tar"] == sha256(data)
    assert not list((penstock.home / "runs").rglob(".penstock-unpack-*"))
    assert not list((penstock.home / "runs").rglob("*.penstock-part*"))


# A run that lost its supervisor during a step resumes with the inputs that it has.
def test_a_resumed_run_fetches_nothing_again(penstock, http_server, cifar_archive, tmp_path):
    path = "/" + cifar_archive.name
    url = http_server.add(path, cifar_archive)
    mark = tmp_path / "second"
    command = f"test -e {mark} && exit 0; touch {mark}; echo waiting; exec sleep 600"
    file = workflow(tmp_path / "wf.json", command, input={"http": {"url": url}})

    first = penstock.popen("run", file)
    wait_for(mark.exists, 60, "the step")
    first.kill()
    before = len(http_server.seen(path))
    penstock.run("run", file).ok()

    assert before > 0
    assert len(http_server.seen(path)) == before


# One run has several sources, each below its own path; among them are a local file and a local
# directory.
def test_inputs_come_from_several_places(staged, http_server, tmp_path):
    (tmp_path / "set" / "sub").mkdir(parents=True)
    (tmp_path / "set" / "sub" / "file").write_bytes(b"local")
    (tmp_path / "one.tar.gz").write_bytes(make_tar({"inside": b"x"}))
    data = os.urandom(1000)

    result, seen = staged(
        inputs=[
            {"http": {"url": http_server.add("/d/a.bin", data)}, "path": "http", "sha256": sha256(data)},
            {"local": {"path": "set"}, "path": "tree"},
            {"local": {"path": str(tmp_path / "one.tar.gz")}},
        ]
    )

    result.ok()
    assert seen["http/a.bin"] == sha256(data)
    assert seen["tree/sub/file"] == sha256(b"local")
    assert seen["inside"] == sha256(b"x")
    assert "one.tar.gz" in seen


# A relative path of an input begins at the workflow file, not at the current directory. The link
# that the input asks for leads to the directory, even if the directory has only one file.
def test_a_local_directory_of_one_file_is_linked(penstock, tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "only").write_text("local\n")
    file = workflow(tmp_path / "wf.json", "cat data/only", inputs=[{"local": {"path": "set"}, "path": "in", "link": "data"}])

    assert penstock.run("run", file).ok().out == "local\n"


# inputMode is a decimal number (493 for the mode 0755), and applies to everything that was staged.
def test_the_input_mode_is_applied(staged, http_server):
    url = http_server.add("/a.tar.gz", make_tar({"dir/file": b"x"}))

    result, seen = staged(input={"http": {"url": url}}, inputMode=0o755)

    result.ok()
    assert {seen[name] for name in seen if name.endswith(":mode")} == {"0o755"}


# Each of these inputs ends the run before its first step, with one line that names the input.
@pytest.mark.parametrize(
    "content, fault, entry, says",
    [
        (b"", {"status": 404}, {}, "404"),
        (b"x" * 1000, {}, {"sha256": "0" * 64}, "sha256"),
        (make_tar({"../outside": b"x"}), {}, {}, "../outside"),
        (make_tar({"/etc/passwd": b"x"}), {}, {}, "/etc/passwd"),
        (make_tar({"a": os.urandom(50000)})[:-20000], {}, {}, ""),
        (b"x", {"claim": 10**17, "ignore_range": True}, {}, ""),
        (b"<html>please log in</html>", {}, {"unpack": True}, ""),
    ],
    ids=["missing", "digest", "traversal", "absolute", "cut", "too large", "login page"],
)
def test_a_bad_input_ends_the_run(penstock, staged, http_server, content, fault, entry, says):
    url = http_server.add("/bad.tar.gz", content)
    if fault:
        http_server.fault("/bad.tar.gz", times=50, methods=("GET", "HEAD"), **fault)

    result, seen = staged(input={"http": {"url": url}} | entry)

    assert result.code != 0
    assert seen is None
    line = [line for line in result.err.splitlines() if "bad.tar.gz" in line and says in line]
    assert line, result.err
    assert penstock.ps()[0]["class"] == "input"


# Ctrl-C while an input arrives ends the run at once, and the next call fetches the rest of the
# input.
def test_an_interrupted_staging_ends_at_once(penstock, http_server, cifar_archive, tmp_path):
    path = "/" + cifar_archive.name
    url = http_server.add(path, cifar_archive)
    http_server.fault(path, stall_after=1000, stall_s=600, times=50)
    file = workflow(tmp_path / "wf.json", "true", input={"http": {"url": url}})

    process = penstock.popen("run", file)
    wait_for(lambda: any(r.sent for r in http_server.seen(path, "GET")), 60, "the first bytes")
    process.send(signal.SIGINT)
    result = process.wait(20)
    http_server.faults.clear()

    assert result.code != 0
    penstock.run("run", file).ok()


def s3_input(store, below, **more):
    s3 = {"region": "us-east-1", "bucketUrl": "s3://data", "path": below, "endpointUrl": store.endpoint}
    return {"s3": s3 | {"accessKeyId": store.access_key, "secretAccessKey": store.secret_key}} | more


# A path in a bucket is a directory: its objects are fetched, but not those of a longer name, and
# not those of penstock itself.
def test_an_s3_path_is_staged(staged, store):
    store.client.create_bucket(Bucket="data")
    for key in ("foo/a", "foo/sub/b c", "foobar", "foo/.penstock/runs/x"):
        store.client.put_object(Bucket="data", Key=key, Body=key.encode())

    result, seen = staged(input=s3_input(store, "/foo"))

    result.ok()
    assert {name: digest for name, digest in seen.items() if not name.endswith(":mode")} == {
        "a": sha256(b"foo/a"), "sub/b c": sha256(b"foo/sub/b c"),
    }  # fmt: skip
    assert store.secret_key not in result.text


# Objects are not unpacked, unless the workflow asks for it.
def test_s3_objects_are_unpacked_where_asked(staged, store):
    store.client.create_bucket(Bucket="data")
    store.client.put_object(Bucket="data", Key="set/x.tar.gz", Body=make_tar({"inside": b"x"}))

    result, seen = staged(inputs=[s3_input(store, "/set", path="whole"), s3_input(store, "/set", path="unpacked", unpack=True)])

    result.ok()
    assert {name for name in seen if ":" not in name} == {"whole/x.tar.gz", "unpacked/x.tar.gz", "unpacked/inside"}


# A disk that is too small is this machine's failure, not the input's.
def test_an_input_larger_than_the_disk(staged):
    server = Server(ranges=False)
    server.add("/huge", b"x")
    server.fault("/huge", times=10, claim=1 << 60)

    result, seen = staged(input={"http": {"url": server.url + "/huge"}})
    server.close()

    assert result.exits(70) and seen is None
    assert "PENSTOCK_HOME" in result.err
    assert result.err.count("/huge") == 2, result.err  # once in the report of its start, once in the error


# A disk that is too small for the listed objects is reported before any object is fetched.
def test_an_s3_input_larger_than_the_disk(staged, store, fault_proxy):
    store.client.create_bucket(Bucket="data")
    store.client.put_object(Bucket="data", Key="huge/a", Body=b"x" * 7)
    listed = fault_proxy.fault("GET", query="list-type=2", times=10, rewrite=lambda body: body.replace(b"<Size>7</Size>", b"<Size>%d</Size>" % (1 << 60)))
    place = s3_input(store, "/huge")
    place["s3"]["endpointUrl"] = fault_proxy.url

    result, seen = staged(input=place)

    assert listed.hits and result.exits(70) and seen is None
    assert "PENSTOCK_HOME" in result.err
    assert not fault_proxy.seen("GET", path="/huge/a")


# No input waits for another: each gets its reply only once all were requested.
def test_inputs_are_fetched_side_by_side(penstock, http_server, tmp_path):
    names = ["one", "two", "three"]
    for name in names:
        http_server.add(f"/{name}", name.encode())
    proxy = FaultProxy(http_server.url)
    try:
        held = [proxy.fault(path=f"^/{name}$", times=10**6, hold="request") for name in names]
        inputs = [{"path": name, "http": {"url": f"{proxy.url}/{name}"}} for name in names]
        run = penstock.popen("run", workflow(tmp_path / "wf.json", "cat $DEEPSQUARE_INPUT/*/*", inputs=inputs))
        for rule in held:
            rule.wait()
        for rule in held:
            rule.release()

        assert sorted(re.findall("one|two|three", run.wait().ok().out)) == sorted(names)
    finally:
        proxy.close()


# A path without objects is a mistake in the workflow, and reported before a step fails because of it.
def test_an_empty_s3_path_is_an_error(penstock, staged, store):
    store.client.create_bucket(Bucket="data")

    result, seen = staged(input=s3_input(store, "/nothing"))

    assert result.exits(66) and seen is None
    assert "s3://data/nothing" in result.err
    assert penstock.ps()[0]["class"] == "input"


# Neither a password in a URL nor the query that signs it reaches a line, a record or a file of the run.
def test_secrets_of_an_address_are_shown_nowhere(penstock, staged, http_server):
    url = http_server.add("/signed/a.csv", b"1,2").replace("http://", "http://user:pa55w0rd@") + "?X-Amz-Signature=c0ffee5ecret"

    result, seen = staged(input={"http": {"url": url}})

    result.ok()
    assert seen["a.csv"] == sha256(b"1,2")
    kept = [path for path in penstock.home.rglob("*") if path.is_file() and path.name != "workflow"]
    for text in [result.text.encode()] + [path.read_bytes() for path in kept]:
        assert b"pa55w0rd" not in text and b"c0ffee5ecret" not in text


# An archive of some hundred bytes that unpacks to more than the disk holds is refused before it has filled the disk.
def test_an_archive_bomb_is_stopped(penstock, staged, http_server, tmp_path):
    with open(tmp_path / "bomb", "wb") as file:
        file.truncate(8 << 40)
    subprocess.run(["tar", "-czSf", tmp_path / "bomb.tar.gz", "-C", tmp_path, "bomb"], check=True)
    (tmp_path / "bomb").unlink()

    result, seen = staged(input={"http": {"url": http_server.add("/bomb.tar.gz", tmp_path / "bomb.tar.gz")}})

    assert result.code != 0 and seen is None
    assert re.search(r"bomb\.tar\.gz.*\b500\b", result.err), result.err
    assert not list(penstock.home.rglob(".penstock-unpack-*"))
