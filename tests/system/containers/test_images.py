"""Container images: pulled from registries and files, verified, each stored once."""
import base64
import fcntl
import gzip
import io
import json
import os
import shutil
import signal
import socket
import stat
import struct
import subprocess
import tarfile
from pathlib import Path

import pytest

from harness.fault_proxy import FaultProxy
from harness.registry import BUSYBOX, Registry, busybox, digest, image, index, layer, write_layout
from harness.slow_link import SlowLink
from harness.terminal import CTRL_C, Terminal
from harness.workflows import write_workflow

pytestmark = pytest.mark.skipif(not os.path.exists(BUSYBOX), reason="busybox-static is not installed")


@pytest.fixture
def registry(tmp_path, request):
    """A registry; `indirect` parameters are its options."""
    made = Registry(tmp_path / "registry", **getattr(request, "param", {}))
    yield made
    made.close()


@pytest.fixture
def authority(tmp_path):
    """A PEM file with a key and a self-signed certificate for 127.0.0.1."""
    path = tmp_path / "authority.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", path, "-out", tmp_path / "certificate"],
        check=True, capture_output=True)  # fmt: skip
    path.write_text(path.read_text() + (tmp_path / "certificate").read_text())
    return path


def images(penstock):
    return penstock.home / "images"


def layers(penstock):
    return {path.name for path in (images(penstock) / "layers").iterdir() if path.is_dir()}


def files_of(penstock, data):
    """The directory of a layer."""
    return images(penstock) / "layers" / digest(data)[7:31]


def has_open(pid, path):
    for entry in os.scandir(f"/proc/{pid}/fd"):
        try:
            if os.readlink(entry.path) == str(path):
                return True
        except OSError:  # the descriptor was closed meanwhile
            pass
    return False


SMALL = {"etc/motd": "hello\n"}


def test_an_image_is_brought_once_and_kept_by_digest(penstock, registry):
    made = image([layer(SMALL), layer({"etc/other": "x"})])
    name = f"{registry.host}/job/tool"
    pushed = registry.push("job/tool:v1", made)

    first = penstock.run("pull", f"{name}:v1").ok()
    penstock.run("pull", f"{name}:v1").ok()
    blobs = registry.requests("GET", "/blobs/")
    by_digest = penstock.run("pull", f"{name}@{pushed}").ok()
    asked = len(registry.requests("GET"))
    penstock.run("pull", f"{name}@{pushed}").ok()

    assert first.out == f"{name}:v1 {pushed}\n" and by_digest.out == f"{name}@{pushed} {pushed}\n"
    assert len(blobs) == 3  # two layers and the configuration, none of which was requested twice
    assert len(registry.requests("GET")) == asked  # the content of a digest never changes
    assert layers(penstock) == {digest(data)[7:31] for data in made[0].values() if data[:2] == b"\x1f\x8b"}


def test_a_registry_that_is_away_is_no_reason_to_stop(penstock, registry):
    # If the registry does not answer, a tag means the image that was pulled last, and a message
    # says so. A missing image is an error with a remedy.
    registry.push("job/tool:v1", image([layer(SMALL)]))
    name = f"{registry.host}/job/tool:v1"
    penstock.run("pull", name).ok()
    registry.close()

    again = penstock.run("pull", name).ok()
    missing = penstock.run("pull", f"{registry.host}/job/other:v1").exits(69)

    assert again.out and registry.host in again.err
    assert registry.host in missing.err


@pytest.mark.parametrize("by", ["manifest", "index"])
def test_an_image_that_came_by_its_tag_is_found_by_its_digest_without_the_registry(penstock, registry, by):
    made = image([layer(SMALL)])
    whole = index(("amd64", made))
    registry.push("job/many:", made)
    registry.push_manifest("job/many", "v1", whole)
    penstock.run("pull", f"{registry.host}/job/many:v1").ok()
    registry.close()

    penstock.run("pull", f"{registry.host}/job/many@{digest(made[1] if by == 'manifest' else whole)}").ok()


# A starting run waits for an unreachable registry, as it does for its inputs.
def test_a_run_waits_for_a_registry_that_is_not_there_yet(penstock, registry, tmp_path):
    registry.push("job/tool:v1", image([busybox()]))
    away = FaultProxy(f"http://{registry.host}", listen=False)
    path = write_workflow(tmp_path, {"run": {"command": "echo inside", "container": {"image": "job/tool:v1", "registry": away.url}}})

    run = penstock.popen("run", path)
    run.wait_for_output(rf"127\.0\.0\.1:{away.port}")
    away.up()

    assert "inside" in run.wait().ok().out
    away.close()


# Connections succeed, but no data arrives, as behind a firewall that drops packets.
def test_a_registry_that_says_nothing_costs_seconds(penstock, registry):
    registry.push("job/tool:v1", image([layer(SMALL)]))
    name = f"{registry.host}/job/tool:v1"
    penstock.run("pull", name).ok()
    registry.close()

    with socket.create_server(("127.0.0.1", int(registry.host.rpartition(":")[2]))):
        pulled = penstock.run("pull", name).ok()

    assert pulled.seconds < 15


@pytest.mark.parametrize("reference, says", [
    ("job/tool:nope", "job/tool:nope"), ("job/nope:v1", "job/nope:v1"),
    ("job/tool@sha256:" + "0" * 64, "job/tool@sha256:0000"),
])  # fmt: skip
def test_what_is_not_there_is_named(penstock, registry, reference, says):
    registry.push("job/tool:v1", image([layer(SMALL)]))

    missing = penstock.run("pull", f"{registry.host}/{reference}").exits(66)

    assert says in missing.err and missing.err.count("\n") == 1


@pytest.mark.parametrize("name", ["Upper/case", "a//b", "a:", "a@sha256:12", "../up", "a b", "a:b:c", "http://x/y"])
def test_names_that_are_none_are_refused(penstock, name):
    refused = penstock.run("pull", name).exits(65)

    assert refused.err.count("\n") == 1


def test_the_platform_of_this_machine_is_chosen(penstock, registry):
    mine, other = image([layer(SMALL)]), image([layer({"other": "x"})], architecture="s390x")
    for made in (mine, other):
        registry.push("job/many:", made)
    registry.push_manifest("job/many", "all", index(("s390x", other), ("amd64", mine)))
    registry.push_manifest("job/many", "foreign", index(("s390x", other)))

    chosen = penstock.run("pull", f"{registry.host}/job/many:all").ok()
    refused = penstock.run("pull", f"{registry.host}/job/many:foreign").exits(66)

    assert chosen.out.endswith(digest(mine[1]) + "\n")
    assert "linux/amd64" in refused.err and "linux/s390x" in refused.err


@pytest.mark.parametrize("registry", [{"login": ("ann", "s3cret-pass")}], indirect=True)
def test_a_registry_that_wants_a_login_gets_the_users_own(penstock, registry, tmp_path):
    registry.push("job/tool:v1", image([layer(SMALL)]))
    name = f"{registry.host}/job/tool:v1"

    def logins(path, password):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"auths": {registry.host: {"auth": base64.b64encode(f"ann:{password}".encode()).decode()}}}))
        return path

    none = penstock.run("pull", name).exits(77)
    logins(penstock.user_home / ".docker" / "config.json", "wrong-pass")
    wrong = penstock.run("pull", name).exits(77)
    logins(penstock.user_home / ".docker" / "config.json", "s3cret-pass")
    docker = penstock.run("pull", name).ok()
    podman = penstock.run("pull", name, env={"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path / "run")}).exits(77)
    logins(tmp_path / "run" / "containers" / "auth.json", "s3cret-pass")
    penstock.run("pull", name, env={"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path / "run")}).ok()
    penstock.run("pull", name, env={"HOME": str(tmp_path), "REGISTRY_AUTH_FILE": str(logins(tmp_path / "mine.json", "s3cret-pass"))}).ok()

    assert registry.host in none.err and registry.host in podman.err
    assert "'ann'" in wrong.err
    for result in (none, wrong, docker, podman):
        assert "wrong-pass" not in result.text and "s3cret-pass" not in result.text


def test_tls_by_an_authority_of_ones_own(penstock, tmp_path, authority):
    registry = Registry(tmp_path / "tls", certificate=authority)
    registry.push("job/tool:v1", image([layer(SMALL)]))
    try:
        unknown = penstock.run("pull", f"{registry.host}/job/tool:v1").exits(77)
        penstock.run("pull", f"{registry.host}/job/tool:v1", env={"SSL_CERT_FILE": str(authority)}).ok()
    finally:
        registry.close()

    assert "certificate" in unknown.err


def test_damaged_bytes_are_found_and_nothing_of_them_stays(penstock, registry):
    bad = layer({"etc/data": os.urandom(50_000)}, compress=False)
    made = image([layer(SMALL), bad])
    registry.push("job/tool:v1", made)
    registry.damage(digest(bad))

    refused = penstock.run("pull", f"{registry.host}/job/tool:v1").exits(70)

    assert "sha256:" in refused.err
    assert not files_of(penstock, bad).exists() and not list((images(penstock) / "manifests").iterdir())
    assert not list((images(penstock) / "layers").glob("*.part"))


def test_a_layer_becomes_the_directory_that_it_describes(penstock, tmp_path):
    # Links, modes, times and Unicode names are kept; devices are left out; removed files are marked
    # for overlayfs.
    data = layer({
        "usr/": (0o755, None), "usr/bin/tool": (0o4755, "#!"), "usr/bin/same": ("h", "usr/bin/tool"), "etc/motd": "héllo",
        "lib": ("l", "/usr/lib"), "dev/null": ("c", None), "run/pipe": ("p", None), "müll/datei": "x", "/absolute": "kept below",
        "etc/.wh.gone": "", "opt/.wh..wh..opq": "", "opt/new": "n", "secret/": (0o700, None), "replaced": "one", "./replaced": "two",
    })  # fmt: skip
    write_layout(tmp_path / "layout", image([data]))

    penstock.run("pull", tmp_path / "layout").ok()

    root = files_of(penstock, data)
    tool = (root / "usr/bin/tool").stat()
    assert stat.S_IMODE(tool.st_mode) == 0o4755 and tool.st_ino == (root / "usr/bin/same").stat().st_ino and tool.st_mtime == 1_600_000_000
    assert os.readlink(root / "lib") == "/usr/lib" and (root / "müll/datei").read_text() == "x" and (root / "absolute").exists()
    assert not (root / "dev/null").exists() and stat.S_ISFIFO((root / "run/pipe").stat().st_mode)
    assert stat.S_ISCHR((root / "etc/gone").stat().st_mode) and (root / "etc/gone").stat().st_rdev == 0
    assert "trusted.overlay.opaque" in os.listxattr(root / "opt") or "user.overlay.opaque" in os.listxattr(root / "opt")
    assert stat.S_IMODE((root / "secret").stat().st_mode) == 0o700 and (root / "replaced").read_text() == "two"
    assert stat.S_IMODE(images(penstock).stat().st_mode) == 0o700  # other users cannot reach setuid programs of images


def test_a_program_keeps_its_capabilities(penstock, tmp_path):
    # The kernel drops a file's capabilities at each chown(), even to the same owner.
    name, capabilities = "security.capability", struct.pack("<5I", 0x02000001, 1 << 13, 0, 0, 0)  # cap_net_raw
    (tmp_path / "probe").touch()
    try:
        os.setxattr(tmp_path / "probe", name, capabilities)
    except OSError as error:
        pytest.skip(f"files have no capabilities here: {error}")
    data = layer({"bin/ping": (0o755, "#!")}, xattrs={"bin/ping": {name: capabilities, "user.overlay.opaque": b"y"}})
    write_layout(tmp_path / "layout", image([data]))

    penstock.run("pull", tmp_path / "layout").ok()

    ping = files_of(penstock, data) / "bin/ping"
    assert os.getxattr(ping, name) == capabilities and "user.overlay.opaque" not in os.listxattr(ping)
    assert stat.S_IMODE(ping.stat().st_mode) == 0o755 and ping.stat().st_mtime == 1_600_000_000


@pytest.mark.parametrize("members, says", [
    ({"../outside": "x"}, ".."), ({"a/../../outside": "x"}, ".."), ({"h": ("h", "../../../etc/passwd")}, "'h'"),
    ({"h": ("h", "/etc/passwd")}, "'h'"), ({"etc/.wh.": ""}, ".wh."), ({"a/.wh...": ""}, ".wh..."),
    ({"up": ("l", "../../.."), "up/outside": "x"}, None), ({"abs": ("l", "/tmp"), "abs/outside": "x"}, None),
])  # fmt: skip
def test_no_member_leaves_the_layer(penstock, tmp_path, members, says):
    data = layer(members)
    write_layout(tmp_path / "layout", image([data]))

    result = penstock.run("pull", tmp_path / "layout")

    assert result.code != 0 or says is None, result.text
    if says:
        assert says in result.err and not files_of(penstock, data).exists()
    found = [path for path in tmp_path.rglob("outside") if images(penstock) not in path.parents]
    assert not found and not Path("/tmp/outside").exists()


@pytest.mark.parametrize("kind", ["file", "link", "fifo", "hard link"])
def test_what_a_member_replaces_is_looked_for_in_the_layer(penstock, tmp_path, kind):
    # The layer's link leads to a directory of the machine. A file in that directory must not be
    # taken for a file of the layer.
    mine = tmp_path / "mine" / "kept"
    mine.mkdir(parents=True)
    (mine / "work").write_text("of a year")
    later = {"file": "new", "link": ("l", "x"), "fifo": ("p", None), "hard link": ("h", "first")}[kind]
    inside = str(mine).lstrip("/")
    data = layer({"first": "1", inside + "/": None, inside + "/work": "in the layer", "link": ("l", str(mine.parent)), "link/kept": later})
    write_layout(tmp_path / "layout", image([data]))

    penstock.run("pull", tmp_path / "layout").ok()

    assert (mine / "work").read_text() == "of a year"
    assert not (files_of(penstock, data) / inside).is_dir() and (files_of(penstock, data) / inside).lstat()


def test_a_hard_link_is_made_where_it_is_asked_for(penstock, tmp_path):
    # Both directories are deeper than the chain of directories that the unpacking keeps open.
    far, near = "a/" * 100, "b/" * 70
    data = layer({far + "file": "x", near + "link": ("h", far + "file"), near + "other": "y"})
    write_layout(tmp_path / "layout", image([data]))

    penstock.run("pull", tmp_path / "layout").ok()

    root = files_of(penstock, data)
    assert (root / near / "link").read_text() == "x" and (root / near / "other").read_text() == "y"
    assert sum(len(files) for _, _, files in os.walk(root)) == 3


def test_a_directory_that_replaces_a_link_is_no_longer_the_links(penstock, tmp_path):
    data = layer({"c/": None, "a": ("l", "c"), "a/first": "1", "a/": (0o700, None), "a/second": "2", "d/": None, "d/x": "3", "d": "a file"})
    write_layout(tmp_path / "layout", image([data]))

    penstock.run("pull", tmp_path / "layout").ok()

    root = files_of(penstock, data)
    assert [path.name for path in (root / "c").iterdir()] == ["first"] and stat.S_IMODE((root / "c").stat().st_mode) == 0o755
    assert [path.name for path in (root / "a").iterdir()] == ["second"] and stat.S_IMODE((root / "a").lstat().st_mode) == 0o700
    assert (root / "d").read_text() == "a file"


def test_files_of_images_are_read(penstock, tmp_path):
    layout = write_layout(tmp_path / "layout", image([layer(SMALL)]))
    with tarfile.open(tmp_path / "image.tar", "w") as tar:
        for path in layout.rglob("*"):
            tar.add(path, path.relative_to(layout), recursive=False)
    subprocess.run(["skopeo", "--insecure-policy", "copy", "--quiet", f"oci:{layout}", f"docker-archive:{tmp_path}/docker.tar:tool:v1"], check=True, capture_output=True)
    (tmp_path / "other.tar").write_bytes(layer({"x": "y"}, compress=False))
    (tmp_path / "text").write_text("hello")

    for name in ("layout", "image.tar", "docker.tar"):
        assert penstock.run("pull", tmp_path / name).ok().out.startswith(f"{tmp_path / name} sha256:")
    for name, says in (("other.tar", "other.tar"), ("text", "text"), ("missing", "No such file")):
        assert says in penstock.run("pull", tmp_path / name).text
    assert not list(images(penstock).glob("image-*"))


def test_what_a_killed_reader_of_a_file_unpacked_is_removed(penstock, tmp_path, wait_for):
    # The first pull waits for more data of a pipe. The second pull removes leftovers of killed
    # pulls, but not the files of a pull that still runs.
    layout = write_layout(tmp_path / "layout", image([layer(SMALL)]))
    with tarfile.open(tmp_path / "image.tar", "w") as tar:
        for path in layout.rglob("*"):
            tar.add(path, path.relative_to(layout), recursive=False)
    os.mkfifo(tmp_path / "pipe")
    process = penstock.popen("pull", tmp_path / "pipe")
    with open(tmp_path / "pipe", "wb") as pipe:
        pipe.write((tmp_path / "image.tar").read_bytes()[:1024])
        pipe.flush()
        wait_for(lambda: list(images(penstock).glob("image-*")))
        penstock.run("pull", layout).ok()
        kept = list(images(penstock).glob("image-*"))
        process.kill()
    penstock.run("pull", layout).ok()

    assert kept and not list(images(penstock).glob("image-*")) and not list((images(penstock) / "locks").glob("image-*"))


def test_many_at_once_bring_each_layer_once(penstock, registry):
    made = image([layer({f"f{i}": os.urandom(200_000)}) for i in range(4)])
    registry.push("job/tool:v1", made)

    running = [penstock.popen("pull", f"{registry.host}/job/tool:v1") for _ in range(5)]
    for process in running:
        process.wait().ok()

    brought = [path for path in registry.requests("GET", "/blobs/") if any(path.endswith(name) for name in made[0] if made[0][name][:2] == b"\x1f\x8b")]
    assert len(brought) == 4, brought


def test_a_killed_pull_leaves_nothing_behind(penstock, registry, wait_for):
    data = layer({"big": os.urandom(3_000_000)})
    registry.push("job/tool:v1", image([data]))
    link = SlowLink(registry.url, slow="down")
    name = link.url.removeprefix("http://") + "/job/tool:v1"
    part = files_of(penstock, data).with_suffix(".part")
    try:
        link.hold(after=2_000_000)
        process = penstock.popen("pull", name)
        wait_for(lambda: (part / "big").exists())
        process.kill()
        link.open()
        other = image([layer(SMALL)])
        registry.push("job/other:v1", other)
        penstock.run("pull", f"{registry.host}/job/other:v1").ok()
        swept = not part.exists()
        penstock.run("pull", name).ok()
    finally:
        link.close()

    assert swept and files_of(penstock, data).is_dir() and (files_of(penstock, data) / "big").stat().st_size == 3_000_000


# Ctrl-C keeps the layers that are whole and says so; on a terminal, a progress bar is shown.
def test_an_interrupted_pull_keeps_whole_layers(penstock, registry, wait_for):
    small, large = layer({"small": "1"}), layer({"big": os.urandom(3_000_000)})
    registry.push("job/tool:v1", image([small, large]))
    proxy = FaultProxy(registry.url)
    name = proxy.url.removeprefix("http://") + "/job/tool:v1"
    try:
        held = proxy.fault(method="GET", path=digest(large)[7:], hold=1_500_000)
        terminal = Terminal(penstock, "pull", name)
        terminal.wait_for_output(r"tool:v1 +\[#+ +\] .* of 3(\.\d)? MB")
        wait_for(lambda: files_of(penstock, small).is_dir())
        terminal.press(CTRL_C)
        result = terminal.wait().exits(130)
        held.release()
        again = penstock.run("pull", name).ok()
    finally:
        proxy.close()

    assert "interrupted: kept 1 of 2 layers" in result.out
    assert again.out.startswith(name) and files_of(penstock, large).is_dir()


def test_an_interrupted_pull_counts_the_images_that_are_whole(penstock, registry):
    first, second = layer(SMALL), layer({"big": os.urandom(3_000_000)})
    registry.push("job/first:v1", image([first]))
    registry.push("job/second:v1", image([second]))
    proxy = FaultProxy(registry.url)
    host = proxy.url.removeprefix("http://")
    try:
        held = proxy.fault(method="GET", path="/second/manifests/", hold="request", times=10)
        process = penstock.popen("pull", f"{host}/job/first:v1", f"{host}/job/second:v1")
        held.wait(1)
        process.send(signal.SIGINT)
        result = process.wait().exits(130)
        held.release()
    finally:
        proxy.close()

    assert "1 of 2 images" in result.err and files_of(penstock, first).is_dir()


def test_layers_that_a_power_loss_may_have_taken_are_brought_again(penstock, registry):
    # A layer that was not yet synced carries the id of the boot during which it was written.
    data = layer(SMALL)
    registry.push("job/tool:v1", image([data]))
    name = f"{registry.host}/job/tool:v1"
    penstock.run("pull", name).ok()
    mark = files_of(penstock, data).with_suffix(".new")
    assert mark.exists()
    mark.write_text("00000000-0000-0000-0000-000000000000")
    (files_of(penstock, data) / "etc/motd").write_text("")

    penstock.run("pull", name).ok()

    assert (files_of(penstock, data) / "etc/motd").read_text() == "hello\n"


def test_a_layer_that_another_process_is_removing_is_waited_for(penstock, registry, wait_for):
    # The layer is at its place, with half of its files: only its lock shows that it is being removed.
    data = layer(SMALL)
    registry.push("job/tool:v1", image([data]))
    name = f"{registry.host}/job/tool:v1"
    penstock.run("pull", name).ok()
    files, lock = files_of(penstock, data), images(penstock) / "locks" / files_of(penstock, data).name
    files.with_suffix(".new").write_text("00000000-0000-0000-0000-000000000000")
    with open(lock, "r+") as held:
        fcntl.lockf(held, fcntl.LOCK_EX)
        (files / "etc/motd").unlink()
        process = penstock.popen("pull", name)
        wait_for(lambda: not process.running() or has_open(process.pid, lock))
        shutil.rmtree(files)
        files.with_suffix(".new").unlink()

    process.wait().ok()

    assert (files / "etc/motd").read_text() == "hello\n"


def test_a_full_disk_is_told_before_it_is_full(penstock, registry, tmp_path):
    registry.push("job/tool:v1", image([layer({"f": os.urandom(3_000_000)})]))
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", small], capture_output=True).returncode:
        pytest.skip("mounting needs root")
    try:
        refused = penstock.run("pull", f"{registry.host}/job/tool:v1", env={"PENSTOCK_HOME": str(small)}).exits(70)
    finally:
        subprocess.run(["umount", small], check=True)

    assert "PENSTOCK_HOME" in refused.err


def test_plain_http_is_only_for_this_machine_or_on_request(penstock, registry):
    registry.push("job/tool:v1", image([layer(SMALL)]))

    refused = penstock.run("pull", "registry.invalid:1/job/tool:v1").exits(69)
    penstock.run("pull", "--registry", registry.url, "job/tool:v1").ok()

    assert "https://registry.invalid:1/v2/" in refused.err
    assert "TLS" not in registry.text()  # the registry logs an attempt at TLS


@pytest.mark.parametrize("compression", ["zstd", "plain"])
def test_layers_come_in_other_forms(penstock, tmp_path, compression):
    data = layer(SMALL, compress=False)
    if compression == "zstd":
        data = subprocess.run(["zstd", "-q", "-c"], input=data, stdout=subprocess.PIPE, check=True).stdout
    write_layout(tmp_path / "layout", image([busybox(), data]))

    penstock.run("pull", tmp_path / "layout").ok()

    assert (files_of(penstock, data) / "etc/motd").read_text() == "hello\n"


def bare(members):
    """A layer without the padding of its last member, and without the blocks that end a tar."""
    data = layer(members, compress=False)
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        last = tar.getmembers()[-1]
    return data[: last.offset_data + last.size]


@pytest.mark.parametrize("less", [0, -100, -512 + 6, -512 + 6 - 100])
@pytest.mark.parametrize("compressed", [False, True])
def test_a_layer_may_lack_what_stands_behind_its_last_byte(penstock, tmp_path, less, compressed):
    # The layer ends within or after the padding of its last member; no byte of any member is
    # missing.
    data = bare(SMALL) + bytes(-less)
    if compressed:
        data = gzip.compress(data)
    write_layout(tmp_path / "layout", image([busybox(), data]))

    penstock.run("pull", tmp_path / "layout").ok()

    assert (files_of(penstock, data) / "etc/motd").read_text() == "hello\n"


@pytest.mark.parametrize("cut", [
    lambda: bare(SMALL)[:-1], lambda: bare({"a": "x" * 700})[:-1], lambda: bare({"a": "x" * 700})[:-300], lambda: bare({"a": "x", "b": "y"})[:-200],
    lambda: bare({"a": "x", "n" * 150: "y"})[:-513], lambda: bare({"a": "x", "n" * 150: "y"})[:-1026],
], ids=["byte", "second-block", "more", "header", "long-name", "long-name-cut"])  # fmt: skip
def test_a_layer_that_lacks_a_byte_of_a_member_is_refused(penstock, tmp_path, cut):
    data = cut()
    write_layout(tmp_path / "layout", image([data]))

    refused = penstock.run("pull", tmp_path / "layout").exits(70)

    assert "sha256:" in refused.err
    assert not files_of(penstock, data).exists()


# ---- what is kept ----


def kept(penstock):
    return penstock.run("images", "--json").json()


def test_images_are_listed_and_removed_with_the_layers_that_are_theirs_alone(penstock, registry):
    shared = layer({"shared": "x" * 5000})
    for name, own in (("job/one:v1", "1"), ("job/two:v1", "2")):
        registry.push(name, image([shared, layer({own: own * 5000})]))
        penstock.run("pull", f"{registry.host}/{name}").ok()
    before = layers(penstock)

    listed = kept(penstock)
    unknown = penstock.run("images", "rm", "job/three").exits(66)
    penstock.run("images", "rm", f"{registry.host}/job/one:v1").ok()

    assert [one["names"] for one in listed] == [[f"{registry.host}/job/two:v1"], [f"{registry.host}/job/one:v1"]]
    assert all(one["bytes"] >= 8192 and not one["in_use"] for one in listed) and "job/three" in unknown.err
    assert [one["digest"] for one in kept(penstock)] == [listed[0]["digest"]]
    assert len(before) == 3 and len(layers(penstock)) == 2 and set(layers(penstock)) < set(before)
    assert f"{registry.host}/job/two:v1" in penstock.run("images").ok().out
    penstock.run("pull", f"{registry.host}/job/one:v1").ok()  # the image can be pulled again
    assert layers(penstock) == before


def test_pruning_begins_with_what_was_not_used_for_longest(penstock, registry):
    names = [f"{registry.host}/job/{name}:v1" for name in "abc"]
    for name in names:
        registry.push(name.partition("/")[2], image([layer({"file": name * 2000})]))
        penstock.run("pull", name).ok()
    penstock.run("pull", names[0]).ok()  # the first image is the last one used
    size = kept(penstock)[0]["bytes"]

    nothing = penstock.run("images", "prune", "--older-than", "1d").ok()
    some = penstock.run("images", "prune", "--max-size", str(2 * size)).ok()
    rest = penstock.run("images", "prune", "--older-than", "0s").ok()

    assert nothing.out == "" and some.out == names[1] + "\n" and rest.out == f"{names[2]}\n{names[0]}\n"
    assert kept(penstock) == [] and not layers(penstock)


@pytest.mark.parametrize("brought_by", ["pull", "run"])
def test_no_more_is_kept_than_the_configuration_allows(penstock, registry, tmp_path, brought_by):
    # The shared layer counts once for all images. To make room, a pull removes other images, never the one that it fetches.
    shared = layer({"shared": "x" * 200_000})
    names = [f"{registry.host}/job/{name}:v1" for name in "abc"]
    for name in names:
        registry.push(name.partition("/")[2], image([busybox(), shared, layer({"file": name * 10_000})]))
    for name in names[:2]:
        penstock.run("pull", name).ok()
    penstock.run("pull", names[0]).ok()  # the second image is now the least recently used one
    one = kept(penstock)[0]["bytes"]
    config, system = tmp_path / "config.yaml", tmp_path / "system.yaml"
    system.write_text("images: {maxSize: 1TiB}\n")
    env = {"PENSTOCK_CONFIG": str(config), "PENSTOCK_SYSTEM_CONFIG": str(system)}

    def bring(bound):
        config.write_text(f"images: {{maxSize: {bound}}}\n")
        if brought_by == "pull":
            return penstock.run("pull", names[2], env=env)
        path = tmp_path / "wf.json"
        path.write_text(json.dumps({"steps": [{"run": {"command": "true", "container": {"image": "job/c:v1", "registry": registry.host}}}]}))
        return penstock.run("run", path, env=env)

    wrong = bring("much").exits(78)
    bring(one + 250_000).ok()
    left = [image["names"][0] for image in kept(penstock)]
    penstock.run("images", "rm", names[2]).ok()
    bring(1).ok()

    assert "maxSize" in wrong.err
    assert left == [names[2], names[0]]
    assert [image["names"][0] for image in kept(penstock)] == [names[2]]


def test_an_image_that_a_run_has_stays(penstock, registry, tmp_path, wait_for):
    registry.push("job/tool:v1", image([busybox()]))
    path = tmp_path / "wf.json"
    run = {"command": "while [ ! -e $STORAGE_PATH/go ]; do sleep 0.05; done; echo done", "container": {"image": "job/tool:v1", "registry": registry.host}}
    path.write_text(json.dumps({"resources": {"tasks": 1, "cpusPerTask": 1}, "steps": [{"run": {"command": "echo up > $STORAGE_PATH/up"}}, {"run": run}]}))
    running = penstock.popen("run", path)
    wait_for(lambda: list(penstock.home.glob("runs/*/storage/up")))

    listed = kept(penstock)
    table = penstock.run("images").ok().out.splitlines()
    refused = penstock.run("images", "rm", f"{registry.host}/job/tool:v1")
    pruned = penstock.run("images", "prune", "--older-than", "0s").ok()
    (next(penstock.home.glob("runs/*/storage")) / "go").touch()
    ended = running.wait()

    assert table[0].split() == ["DIGEST", "SIZE", "USED", "STATE", "NAME"] and "in use" in table[1]
    assert listed[0]["in_use"] and refused.code == 69 and "job/tool" in refused.err and pruned.out == ""
    assert ended.ok().out == "done\n"
    assert penstock.run("images", "rm", kept(penstock)[0]["digest"]).ok().out and not layers(penstock)
