"""Measures a run that stages in the full CIFAR-10 archive from a local nginx, next to `curl | tar xz`."""
import json
import os
import random
import shutil
import socket
import subprocess
import tarfile
import tempfile
import time
from io import BytesIO
from pathlib import Path

import report as reporting

TOP = Path(__file__).resolve().parent.parent
NAME = "cifar-10-python.tar.gz"
CONFIG = """
daemon off; worker_processes 1; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 256; }}
http {{
    access_log off; sendfile on; client_body_temp_path {folder}/a; proxy_temp_path {folder}/b;
    fastcgi_temp_path {folder}/c; uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;
    server {{ listen 127.0.0.1:{port}; root {root}; }}
}}
"""


def make_archive(folder, quick):
    """Makes an archive of the real images if they exist here, else of bytes that compress as little as images."""
    maker = TOP.parent / "shared" / "tools" / "make-cifar.py"
    archive = folder / NAME
    if maker.exists() and not quick:
        reporting.run_checked(["/usr/bin/python3", maker, folder])
        (folder / "cifar-10-binary.tar.gz").unlink(missing_ok=True)
        return archive
    noise = random.Random(10)
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        for name in [f"data_batch_{number}" for number in range(1, 6)] + ["test_batch"]:
            pixels = bytes(byte & 0x7F for byte in noise.randbytes((300 if quick else 30000) * 1024))
            info = tarfile.TarInfo("cifar-10-batches-py/" + name)
            info.size = len(pixels)
            tar.addfile(info, BytesIO(pixels))
    return archive


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start_nginx(program, folder, root):
    """Starts nginx on a free port. Tries another port if a different process has taken the first one."""
    for _ in range(20):
        port = free_port()
        config = folder / "nginx.conf"
        config.write_text(CONFIG.format(folder=folder, root=root, port=port))
        process = subprocess.Popen([program, "-c", config, "-e", folder / "error.log"], stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 20
        while process.poll() is None and time.monotonic() < deadline:
            with socket.socket() as client:
                if client.connect_ex(("127.0.0.1", port)) == 0:
                    return process, f"http://127.0.0.1:{port}/{NAME}"
            time.sleep(0.02)
    raise SystemExit("nginx did not start: " + (folder / "error.log").read_text())


def timed(function, *arguments):
    begin = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - begin


def measure(report, folder, url, archive):
    program = reporting.binary()
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "PENSTOCK_CLAIMS_DIR": str(folder / "claims")}
    env["PENSTOCK_HOME"] = str(folder / "home")
    (folder / "claims").mkdir()
    workflow = folder / "stage.json"
    peer = folder / "peer"

    def ours(command="true"):
        shutil.rmtree(folder / "home", ignore_errors=True)
        job = {"resources": {"tasks": 1, "cpusPerTask": 1, "memPerCpu": 64}, "input": {"http": {"url": url}}}
        workflow.write_text(json.dumps(job | {"steps": [{"run": {"command": command}}]}))
        return timed(lambda: reporting.run_checked([program, "run", workflow], env=env, cwd=folder, stdin=subprocess.DEVNULL))

    def tar():
        shutil.rmtree(peer, ignore_errors=True)
        peer.mkdir()
        script = f"curl -sSf '{url}' | tar xz -C '{peer}'"
        return timed(lambda: reporting.run_checked(["/bin/bash", "-o", "pipefail", "-c", script], env=env))

    def keep():
        shutil.rmtree(peer, ignore_errors=True)
        peer.mkdir()
        script = f"curl -sSf '{url}' | tee '{peer / NAME}' | tar xz -C '{peer}'"
        return timed(lambda: reporting.run_checked(["/bin/bash", "-o", "pipefail", "-c", script], env=env))

    run_s, tar_s, keep_s = report.interleave(7, ours, tar, keep)
    ours(f"diff -r $DEEPSQUARE_INPUT '{peer}'")  # ends the benchmark if the two directories differ
    # With a small archive, most of the time is that of the run itself.
    report.ratio("stage-in of the archive", run_s, tar_s, at_least=report.size(1.0, 0.0), peer_name="curl | tar xz")
    report.figure("the same, compared with keeping the archive", run_s, unit="s", peer=keep_s, peer_name="curl | tee | tar xz")
    report.figure("stage-in", archive.stat().st_size / run_s, unit="bytes/s")


def main(report):
    nginx = report.peer("nginx", path=shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin"))
    curl, tar = report.peer("curl"), report.peer("tar")
    if not (nginx and curl and tar):
        return
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        folder = Path(name)
        root = folder / "root"
        root.mkdir()
        archive = make_archive(root, report.quick)
        os.chmod(folder, 0o755)  # if root starts nginx, its workers run as another user
        process, url = start_nginx(nginx, folder, root)
        try:
            archive.read_bytes()  # so that both read it from the page cache
            measure(report, folder, url, archive)
        finally:
            process.terminate()
            process.wait(20)
