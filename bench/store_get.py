"""Measures signed GETs from the store: their rate, the server's processor time, and the memory of connections.

The peers are nginx (one worker, sendfile) and bare_gets.c, a minimal server of signed GETs.
"""
import os
import re
import resource
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import report as reporting

sys.path.insert(0, str(reporting.TOP / "tests" / "system"))
from harness.s3_wire import EMPTY, Wire  # noqa: E402

SIZES = {"4 KiB": 4096, "64 KiB": 65536, "256 KiB": 262144, "1 MiB": 1 << 20, "8 MiB": 8 << 20}
# nginx verifies no signatures, so a figure that misses its limit for nginx may reach the limit for
# the bare server instead.
OF_NGINX, OF_BARE = 1.0, 0.6
CPU_OF_NGINX = 1.2
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


def start_store(root, durability="full"):
    process, endpoint = reporting.serve(root, durability=durability)
    return process, Wire(Address(endpoint))


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
    """Measures memory with 1,000 active connections, and with 10,000 idle ones, each of which must still work."""
    few, many, size = report.size(1000, 50), report.size(10_000, 200), 4096
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # The store inherits this limit, and uses three quarters of its descriptors for connections.
    # This process has a descriptor for each connection, too.
    wanted = 3 * many // 2 + 1000
    if hard < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, wanted))
        except (OSError, ValueError):
            report.missing(f"{many:,} connections", f"a limit of {hard:,} open files")
            return
    else:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    store, wire = start_store(folder / "store")
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


class Server:
    """A server under load: `cpu` has the seconds per request of each call of load()."""

    def __init__(self, name, process, port):
        self.name, self.process, self.port, self.cpu = name, process, port, []

    def load(self, folder, wrk, seconds, headers, path):
        """Returns requests per second; every reply must be 2xx."""
        script = folder / "load.lua"
        script.write_text("".join(f'wrk.headers["{name}"] = "{value}"\n' for name, value in headers.items()))
        before = reporting.cpu_of(self.process.pid)
        out = subprocess.run(
            [wrk, "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "-s", script, f"http://127.0.0.1:{self.port}{path}"],
            stdout=subprocess.PIPE, text=True, check=True,
        ).stdout  # fmt: skip
        if "Non-2xx" in out or "Socket errors" in out:
            sys.exit(f"the load of {path} failed:\n{out}")
        self.cpu.append((reporting.cpu_of(self.process.pid) - before) / int(re.search(r"(\d+) requests in", out).group(1)))
        return float(re.search(r"Requests/sec:\s*([\d.]+)", out).group(1))


def compare(report, what, servers, rates):
    """Compares the store, the first server, with the others. A figure must reach its limit for nginx, or that for the bare server."""
    cpu = [statistics.median(server.cpu[1:]) for server in servers]  # the first call warms up
    names = [server.name for server in servers]
    bare = names.index("bare server") if "bare server" in names else None
    for i, name in enumerate(names[1:], 1):
        limits = (OF_BARE, 1 / OF_BARE) if name == "bare server" else (OF_NGINX, CPU_OF_NGINX)
        near = bare is not None and name != "bare server"
        enough = rates[0] >= limits[0] * rates[i] or (near and rates[0] >= OF_BARE * rates[bare])
        report.add(what, rates[0], rates[i], name, "requests/s", f"{rates[0] / rates[i]:.2f} x",
                   f">= {limits[0]:g} x" + (" or near the bare server" if near else ""), enough, rates[0] / rates[i])  # fmt: skip
        enough = cpu[0] <= limits[1] * cpu[i] or (near and cpu[0] <= cpu[bare] / OF_BARE)
        report.add(f"{what}, CPU of the server", 1e6 * cpu[0], 1e6 * cpu[i], name, "us", f"{cpu[0] / cpu[i]:.2f} x",
                   f"<= {limits[1]:.2g} x" + (" or near the bare server" if near else ""), enough, cpu[0] / cpu[i])  # fmt: skip


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
        store, wire = start_store(folder / "store")
        servers = [Server("penstock", store, wire.port)]
        if nginx:
            servers.append(Server("nginx unsigned", *start_nginx(folder, nginx)))
        bare = report.compiled("bare_gets", folder, "crypto")
        if bare:
            process = subprocess.Popen([bare, folder / "www", wire.secret_key], stdout=subprocess.PIPE, text=True)
            servers.append(Server("bare server", process, int(process.stdout.readline())))
        try:
            assert wire.send("PUT", "/bench").status == 200
            for what, size in SIZES.items():
                path, body = f"/bench/{size}", os.urandom(size)
                assert wire.send("PUT", path, body=body).status == 200
                (folder / "www" / "bench" / str(size)).write_bytes(body)
                headers = {key: value for key, value in wire.sign("GET", path, "", None, EMPTY).items() if key != "host"}
                headers["Host"] = f"{wire.host}:{wire.port}"
                for server in servers:
                    server.cpu.clear()
                calls = [lambda server=server: server.load(folder, wrk, seconds, headers, path) for server in servers]  # noqa: B023
                rates = report.interleave(ROUNDS, *calls)
                compare(report, f"signed GET of {what}, {CONNECTIONS} connections", servers, rates if len(servers) > 1 else [rates])
        finally:
            for server in servers:
                server.process.send_signal(signal.SIGTERM)
                server.process.wait(30)
