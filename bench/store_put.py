"""Measures signed PUTs to the store.

The peer of relaxed durability is nginx's DAV. The peers of durable PUTs are threads that write and sync files, and a bare server
that receives the bodies of the same requests, and writes and syncs them.

All of them send or write the same bytes, with the same number of connections or threads, to names that are replaced in turn.
nginx does not verify signatures, hash or sync; the store computes the MD5 of the object's ETag.
"""
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import report as reporting
from store_get import CONNECTIONS, start_nginx, start_store

SIZES = {"4 KiB": 4096, "256 KiB": 262144, "8 MiB": 8 << 20}
AT_LEAST = 0.8
OF_A_SERVER = 0.6  # lower limit of the ratio to the bare server, which shares the processors with the client, as the store does
ROUNDS = 5
SECONDS = 3
# Names for each size: enough that two connections rarely write the same name, few enough for wrk's memory.
NAMES = 256
# nginx writes a body to a file and renames the file. With `client_body_in_file_only off`, a small
# body stays in memory until nginx writes the file.
NGINX = """
worker_processes 1;
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
  access_log off; keepalive_requests 1000000000; client_max_body_size 1g; client_body_buffer_size 512k;
  client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  server {{ listen 127.0.0.1:{port}; root {folder}/www; location / {{ dav_methods PUT; create_full_put_path on; }} }}
}}
"""
# A script for wrk: all requests have one body; a file has the heads of the requests.
LOAD = """
local file = io.open("{body}", "rb")
local body = file:read("*a")
file:close()
local heads, at = {{}}, 0
for line in io.lines("{heads}") do
  local method, path, fields = line:match("^(%S+) (%S+)\\t(.*)$")
  local headers = {{}}
  for name, value in fields:gmatch("([^\\t=]+)=([^\\t]*)") do headers[name] = value end
  heads[#heads + 1] = wrk.format(method, path, headers, body)
end
request = function()
  at = at % #heads + 1
  return heads[at]
end
"""


def load(folder, wrk, seconds, wire, port, body, names):
    """Returns requests per second; every reply must be 2xx."""
    heads = folder / "heads"
    with heads.open("w") as file:
        for number in range(names):
            path = f"/bench/{body.name}-{number}"
            headers = wire.sign("PUT", path, payload="UNSIGNED-PAYLOAD")
            headers["host"] = f"{wire.host}:{wire.port}"
            file.write(f"PUT {path}\t" + "\t".join(f"{name}={value}" for name, value in headers.items()) + "\n")
    script = folder / "load.lua"
    script.write_text(LOAD.format(body=body, heads=heads))
    out = subprocess.run(
        [wrk, "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "--timeout", "30s", "-s", script, f"http://127.0.0.1:{port}/"],
        stdout=subprocess.PIPE, text=True, check=True,
    ).stdout  # fmt: skip
    if "Non-2xx" in out or "Socket errors" in out:
        sys.exit(f"the load of {body.name} failed:\n{out}")
    return float(re.search(r"Requests/sec:\s*([\d.]+)", out).group(1))


def main(report):
    wrk, nginx = report.peer("wrk"), report.peer("nginx", path=next((p for p in ("/usr/sbin/nginx",) if os.path.exists(p)), None))
    if not wrk or not nginx:
        return
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        folder = Path(name)
        os.chmod(folder, 0o755)
        bare, server = report.compiled("bare_writes", folder), report.compiled("bare_puts", folder)
        if not bare or not server:
            return
        for made in ("www/bench", "bare", "puts"):
            (folder / made).mkdir(parents=True)
        os.chmod(folder / "www" / "bench", 0o777)
        stores = {durability: start_store(folder / durability, durability) for durability in ("relaxed", "full")}
        peer, port = start_nginx(folder, nginx, NGINX)
        puts = subprocess.Popen([server, folder / "puts"], stdout=subprocess.PIPE, text=True)
        puts_port = int(puts.stdout.readline())
        try:
            for _, wire in stores.values():
                assert wire.send("PUT", "/bench").status == 200
            for what, size in SIZES.items():
                body = folder / str(size)
                body.write_bytes(os.urandom(size))
                names = min(NAMES, (256 << 20) // size)
                seconds = report.size(SECONDS if size < 1 << 20 else 3 * SECONDS, 2)

                def ours(durability):
                    wire = stores[durability][1]
                    return load(folder, wrk, seconds, wire, wire.port, body, names)  # noqa: B023

                def dav():
                    return load(folder, wrk, seconds, stores["full"][1], port, body, names)  # noqa: B023

                def writes():
                    command = [bare, folder / "bare", str(CONNECTIONS), str(size), str(seconds)]  # noqa: B023
                    return float(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)

                def received():
                    return load(folder, wrk, seconds, stores["full"][1], puts_port, body, names)  # noqa: B023

                relaxed, peers, full, floor, bodies = report.interleave(ROUNDS, lambda: ours("relaxed"), dav, lambda: ours("full"), writes, received)
                what = f"signed PUT of {what}, {CONNECTIONS} connections"
                report.ratio(f"{what}, relaxed", relaxed, peers, at_least=AT_LEAST, unit="requests/s", peer_name="nginx DAV")
                report.figure(f"{what}, durable", full, unit="requests/s", peer=floor, peer_name="bare writes with fsync")
                report.ratio(f"{what}, durable", full, bodies, at_least=OF_A_SERVER, unit="requests/s", peer_name="a bare server with fsync")
        finally:
            for process in (peer, puts, *(process for process, _ in stores.values())):
                process.send_signal(signal.SIGTERM)
                process.wait(60)
