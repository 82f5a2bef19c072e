"""The tarball and the wheel on Debian 11, 12 and 13: three versions of the C library and of Python."""
import http.server
import re
import ssl
import subprocess
import threading

import pytest

from conftest import VERSION, built

EVERYWHERE = pytest.mark.parametrize("suite", ["bullseye", "bookworm", "trixie"])


@pytest.fixture(scope="module")
def shared_root(make_root):
    """shared_root(suite): one Root for all tests of this file."""
    made = {}

    def find(suite):
        if suite not in made:
            made[suite] = make_root(suite, "python3-venv")
        return made[suite]

    return find


@pytest.fixture
def tls_server(tmp_path):
    """(port, certificate): a server that sends one file to clients that trust the certificate."""
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", "6")
            self.end_headers()
            self.wfile.write(b"hello\n")

        def do_HEAD(self):
            self.send_response(200)
            self.send_header("Content-Length", "6")
            self.end_headers()

        def log_message(self, *arguments):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_address[1], certificate
    server.shutdown()
    thread.join()
    server.server_close()


# The tarball runs without any package, even with a C library that is older than that of the build.
@EVERYWHERE
def test_the_tarball_runs(shared_root, tls_server, suite):
    bare = shared_root(suite)
    port, certificate = tls_server
    bare.run("tar", "-xzf", bare.copy(built("*.tar.gz")), "-C", "/usr/local", "--strip-components=1")
    trusted = bare.path / "etc/ssl/certs/ca-certificates.crt"
    fetch = ("/usr/local/bin/penstock", "cp", f"https://127.0.0.1:{port}/a.txt", "/tmp/a.txt")

    refused = bare.run(*fetch, check=False)
    authorities = trusted.read_bytes() if trusted.exists() else None
    trusted.parent.mkdir(parents=True, exist_ok=True)
    trusted.write_bytes(certificate.read_bytes())
    bare.run(*fetch)
    trusted.unlink()
    if authorities:
        trusted.write_bytes(authorities)
    bare.run(*fetch, SSL_CERT_FILE=bare.copy(certificate))

    assert bare.run("penstock", "--version").split()[1] == VERSION
    assert "SSL_CERT_FILE" in refused
    assert (bare.path / "tmp/a.txt").read_text() == "hello\n"
    bare.real_run()
    # The command of docs/install.md that removes the files.
    bare.run("sh", "-c", f"tar -tzf /{built('*.tar.gz').name} | sed -n 's,^[^/]*/\\(.*[^/]\\)$,/usr/local/\\1,p' | xargs rm")
    assert not [path for path in (bare.path / "usr/local").rglob("*penstock*") if not path.is_dir()]


# The wheel needs one file, no package index and no other package.
@EVERYWHERE
def test_the_wheel_brings_program_and_module(shared_root, suite):
    bare = shared_root(suite)
    wheel = bare.copy(built("*.whl"))
    save = "from penstock import checkpoint as c; c.save({'x': [1, 2.5]}, 3, format='safetensors'); print(c.load(), c.latest().step)"
    bare.run("python3", "-m", "venv", "/venv")
    before = bare.files()

    bare.run("/venv/bin/pip", "install", "--quiet", "--no-index", "--disable-pip-version-check", wheel)

    path = "/venv/bin:/usr/bin:/bin"
    assert bare.run("penstock", "--version", PATH=path).split()[1] == VERSION
    assert bare.run("python", "-c", save, PATH=path, PENSTOCK_CHECKPOINT_DIR="/tmp/checkpoints") == "{'x': [1, 2.5]} 3\n"
    assert (bare.path / "venv/share/man/man1/penstock-run.1").exists()
    bare.real_run(PATH=path)
    bare.run("/venv/bin/pip", "uninstall", "--quiet", "--yes", "penstock")
    assert {name for name in bare.files() - before if "__pycache__" not in name and (bare.path / name[1:]).is_file()} == set()


# A tag that allows older C libraries than the files need would fail only on other machines.
def test_the_tag_of_the_wheel_is_what_the_files_need(tmp_path):
    wheel = built("*.whl")
    subprocess.run(["/usr/bin/python3", "-m", "zipfile", "-e", wheel, tmp_path], check=True)
    files = [tmp_path / f"penstock-{VERSION}.data/scripts/penstock", tmp_path / "penstock/_native.abi3.so"]
    out = subprocess.run(["objdump", "-p", *files], check=True, capture_output=True, text=True).stdout

    needed = max(int(minor) for minor in re.findall(r"GLIBC_2\.(\d+)", out))
    libraries = set(re.findall(r"NEEDED +(\S+)", out))

    assert re.fullmatch(rf"penstock-{VERSION}-cp39-abi3-manylinux_2_{needed}_\w+\.whl", wheel.name)
    assert libraries <= {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libresolv.so.2", "ld-linux-x86-64.so.2"}
