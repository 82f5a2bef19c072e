"""Measures signed GETs of small objects from the store, next to nginx (one worker, sendfile), and the memory of connections."""
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import report as reporting

sys.path.insert(0, str(reporting.TOP / "tests" / "system"))
from harness.s3_wire import EMPTY, Wire  # noqa: E402

SIZES = {"4 KiB": 4096, "256 KiB": 262144}
# nginx verifies no signatures, so half of its rate is enough.
AT_LEAST = 0.5
ROUNDS = 7
SECONDS = 3
CONNECTIONS = 32

NGINX = """
worker_processes 1;
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
  access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000000; types {{}} default_type binary/octet-stream;
  open_file_cache max=100; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  server {{ listen 127.0.0.1:{port}; root {folder}/www; }}
}}
"""


class Address:
    """The members of a store that Wire uses."""

    def __init__(self, endpoint):
        self.address, self.access_key, self.secret_key = endpoint.removeprefix("http://"), "bench", "bench-secret"


def start_store(folder):
    env = {"PATH": os.environ["PATH"], "PENSTOCK_ACCESS_KEY_ID": "bench", "PENSTOCK_SECRET_ACCESS_KEY": "bench-secret"}
    command = [reporting.binary(), "serve", "--root", folder / "store", "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
    return process, Wire(Address(process.stdout.readline().split()[-1]))


def start_nginx(folder, program, configuration=NGINX):
    """Starts nginx. nginx does not accept port 0, so ports are tried until one is free."""
    for port in range(20000 + os.getpid() % 20000, 65000):
        (folder / "nginx.conf").write_text(configuration.format(folder=folder, port=port))
        process = subprocess.Popen([program, "-c", folder / "nginx.conf", "-e", folder / "error.log"], stderr=subprocess.DEVNULL)
        for _ in range(100):
            if process.poll() is not None:
                break
            if (folder / "nginx.pid").exists() and (folder / "nginx.pid").read_text().strip():
                return process, port
            time.sleep(0.02)
    sys.exit("nginx did not start: " + (folder / "error.log").read_text())


def connections(report, folder):
    """Measures memory with 1,000 active connections, and with 10,000 idle ones, each of which must work again."""
    few, many, size = report.size(1000, 50), report.size(10_000, 200), 4096
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # The store uses three quarters of its descriptors for connections. This process has as many connections.
    wanted = 3 * many // 2 + 1000
    if hard < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, wanted))
        except (OSError, ValueError):
            report.missing(f"{many:,} connections", f"a limit of {hard:,} open files")
            return
    else:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    store, wire = start_store(folder)
    try:
        body = os.urandom(size)
        assert wire.send("PUT", "/bench").status == 200 and wire.send("PUT", "/bench/a", body=body).status == 200
        request = wire.head("GET", "/bench/a", wire.sign("GET", "/bench/a"))

        def ask(some):
            for connection in some:
                connection.sendall(request)
            for connection in some:
                got = b""
                while not got.endswith(body):
                    piece = connection.recv(65536)
                    if not piece:
                        sys.exit("the store closed a connection")
                    got += piece

        def resident():
            return int(re.search(r"^VmRSS:\s*(\d+)", Path(f"/proc/{store.pid}/status").read_text(), re.M).group(1)) * 1024

        opened = []
        for number in range(many):
            # The store allows one address at most half of all connections.
            opened.append(socket.create_connection((wire.host, wire.port), 30, source_address=(f"127.0.0.{2 + number % 4}", 0)))
            if number + 1 == few:
                for _ in range(3):
                    ask(opened)
                report.limit(f"resident memory under {few:,} connections", resident(), at_most=128 << 20, unit="bytes")
            elif number >= few and (number + 1) % 500 == 0:
                ask(opened[-500:])
        report.figure(f"resident memory with {many:,} idle connections", resident(), unit="bytes")
        ask(opened)
        report.limit("idle connections that work again", many, at_least=many, unit="connections")
        for connection in opened:
            connection.close()
    finally:
        store.send_signal(signal.SIGTERM)
        store.wait(30)


def load(folder, wrk, seconds, port, headers, path):
    """Returns requests per second; every reply must be 2xx."""
    script = folder / "load.lua"
    script.write_text("".join(f'wrk.headers["{name}"] = "{value}"\n' for name, value in headers.items()))
    out = subprocess.run(
        [wrk, "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "-s", script, f"http://127.0.0.1:{port}{path}"],
        stdout=subprocess.PIPE, text=True, check=True,
    ).stdout  # fmt: skip
    if "Non-2xx" in out or "Socket errors" in out:
        sys.exit(f"the load of {path} failed:\n{out}")
    return float(re.search(r"Requests/sec:\s*([\d.]+)", out).group(1))


def main(report):
    wrk, nginx = report.peer("wrk"), report.peer("nginx", path=next((p for p in ("/usr/sbin/nginx",) if os.path.exists(p)), None))
    if not wrk:
        return
    seconds = report.size(SECONDS, 1)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        folder = Path(name)
        os.chmod(folder, 0o755)
        (folder / "many").mkdir()
        connections(report, folder / "many")
        (folder / "www" / "bench").mkdir(parents=True)
        store, wire = start_store(folder)
        peer, port = start_nginx(folder, nginx) if nginx else (None, None)
        try:
            assert wire.send("PUT", "/bench").status == 200
            for what, size in SIZES.items():
                path, body = f"/bench/{size}", os.urandom(size)
                assert wire.send("PUT", path, body=body).status == 200
                (folder / "www" / "bench" / str(size)).write_bytes(body)
                headers = {key: value for key, value in wire.sign("GET", path, "", None, EMPTY).items() if key != "host"}
                headers["Host"] = f"{wire.host}:{wire.port}"
                calls = [lambda: load(folder, wrk, seconds, wire.port, headers, path)]  # noqa: B023
                if peer:
                    calls.append(lambda: load(folder, wrk, seconds, port, headers, path))  # noqa: B023
                figures = report.interleave(ROUNDS, *calls)
                if peer:
                    what = f"signed GET of {what}, {CONNECTIONS} connections"
                    report.ratio(what, *figures, at_least=AT_LEAST, unit="requests/s", peer_name="nginx unsigned")
                else:
                    report.figure(f"signed GET of {what}", figures, unit="requests/s")
        finally:
            for process in (store, peer):
                if process:
                    process.send_signal(signal.SIGTERM)
                    process.wait(30)
