"""The Debian packages in a bare Debian 12."""
import re
import subprocess

from conftest import TOP, VERSION, built

NAMES = ("penstock", "libpenstock0", "libpenstock-dev", "python3-penstock")
INSTALL = ("apt-get", "-qq", "install", "-y")


def field(deb, name):
    return subprocess.run(["dpkg-deb", "--field", deb, name], check=True, capture_output=True, text=True).stdout.strip()


def listed(deb):
    out = subprocess.run(["dpkg-deb", "--contents", deb], check=True, capture_output=True, text=True).stdout
    return {line.split()[5].lstrip(".") for line in out.splitlines()}


# A library that is loaded by dlopen() is a dependency like any other.
def test_the_program_depends_on_the_libraries_that_it_loads_late():
    depends = field(built("penstock_*.deb"), "Depends")

    assert {"libarchive13", "libcurl4", "libmicrohttpd12"} <= set(re.findall(r"[a-z0-9.+-]+", depends))


# Each file is where its reader expects it.
def test_units_completions_and_man_pages_are_in_their_places():
    files = listed(built("penstock_*.deb"))

    assert {
        "/usr/bin/penstock",
        "/lib/systemd/system/penstock-watch@.service",
        "/usr/lib/systemd/user/penstock-watch.service",
        "/usr/share/bash-completion/completions/penstock",
        "/usr/share/zsh/vendor-completions/_penstock",
        "/usr/share/fish/vendor_completions.d/penstock.fish",
        "/usr/share/man/man1/penstock-run.1.gz",
        "/usr/share/man/man5/penstock-workflow.5.gz",
        "/usr/share/doc/penstock/copyright",
    } <= files
    assert "/usr/include/penstock/transfer.h" in listed(built("libpenstock-dev_*.deb"))


# Install an older version, run, install this version, run again, and remove the package.
def test_it_installs_upgrades_runs_and_leaves_nothing(root, tmp_path):
    bare = root("bookworm")
    older = tmp_path / "older.deb"
    subprocess.run(["dpkg-deb", "-R", built("penstock_*.deb"), tmp_path / "older"], check=True)
    control = tmp_path / "older" / "DEBIAN" / "control"
    control.write_text(control.read_text().replace(f"Version: {VERSION}", f"Version: {VERSION}~before"))
    subprocess.run(["dpkg-deb", "--build", "--root-owner-group", tmp_path / "older", older], check=True, capture_output=True)
    before = bare.files()

    bare.run(*INSTALL, bare.copy(older))
    first = bare.run("dpkg-query", "-W", "penstock")
    bare.real_run()
    bare.run(*INSTALL, bare.copy(built("penstock_*.deb")))
    second = bare.run("dpkg-query", "-W", "penstock")
    bare.real_run()
    # `systemctl enable` creates the same link.
    wants = bare.path / "etc/systemd/system/multi-user.target.wants"
    wants.mkdir(parents=True, exist_ok=True)
    (wants / "penstock-watch@trainer.service").symlink_to("/lib/systemd/system/penstock-watch@.service")
    bare.run("apt-get", "-qq", "remove", "-y", "penstock")
    bare.run("apt-get", "-qq", "purge", "-y", "--auto-remove", "penstock")

    assert first.split()[1] == f"{VERSION}~before" and second.split()[1] == VERSION
    left = {path for path in bare.files() - before if not path.endswith(".wants") and path != "/etc/systemd" and path != "/etc/systemd/system"}
    assert left == set()
    assert bare.run("dpkg-query", "-W", "penstock", check=False).startswith("dpkg-query: no packages found")


# Two programs, linked with the shared and with the static library, and the Python module.
def test_the_library_and_the_module_work(root):
    bare = root("bookworm", "gcc", "libc6-dev", "pkg-config")
    bare.run(*INSTALL, *(bare.copy(built(f"{name}_*.deb")) for name in NAMES[1:]))
    source = bare.copy(TOP / "examples" / "transfer" / "put_get.c")
    save = "from penstock import checkpoint as c; c.save({'x': [1, 2.5]}, 3, format='safetensors'); print(c.load(), c.latest().step)"

    bare.run("sh", "-c", f"cc -o /shared {source} $(pkg-config --cflags --libs penstock)")
    bare.run("sh", "-c", f"cc -o /static {source} $(pkg-config --cflags penstock) -l:libpenstock.a -lcurl -lcrypto -ljansson -lexpat -lisal -ljpeg -lzstd -lm")

    assert "libpenstock.so.0" in bare.run("ldd", "/shared") and "libpenstock.so.0" not in bare.run("ldd", "/static")
    for program in ("/shared", "/static"):
        assert "FILE URL COPY" in bare.run(program, check=False)
    assert bare.run("python3", "-c", save, PENSTOCK_CHECKPOINT_DIR="/tmp/checkpoints") == "{'x': [1, 2.5]} 3\n"
