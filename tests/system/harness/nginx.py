"""nginx that serves a directory: a real server, with ranges and conditions.

    server = Nginx(tmp_path)            # directory of its configuration and logs
    url = server.start(root)            # http://127.0.0.1:PORT
    url = server.start(root, "max_ranges 0;")
    server.stop()
"""
import os
import shutil
import socket
import subprocess

import pytest

from .waiting import wait_for

CONFIGURATION = """
daemon off; user root; worker_processes 1; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 64; }}
http {{
    access_log off; client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c;
    uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e; sendfile on;
    server {{ listen 127.0.0.1:{port}; root {root}; {more} }}
}}
"""


class Nginx:
    def __init__(self, folder):
        self.folder = folder
        self.started = []
        self.program = shutil.which("nginx") or "/usr/sbin/nginx"
        if not os.access(self.program, os.X_OK):
            pytest.skip("nginx is not installed")

    def start(self, root, more=""):
        for _ in range(20):
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port = probe.getsockname()[1]
            config = self.folder / "nginx.conf"
            config.write_text(CONFIGURATION.format(folder=self.folder, root=root, port=port, more=more))
            process = subprocess.Popen([self.program, "-c", config, "-e", self.folder / "error.log"], stderr=subprocess.DEVNULL)
            self.started.append(process)

            def answers(process=process, port=port):
                if process.poll() is not None:
                    return "ended"
                with socket.socket() as client:
                    return client.connect_ex(("127.0.0.1", port)) == 0

            if wait_for(answers, 60, "nginx") is True:
                return f"http://127.0.0.1:{port}"
        raise AssertionError("nginx finds no port")

    def stop(self):
        for process in self.started:
            process.terminate()
            process.wait(20)
