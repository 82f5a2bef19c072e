"""Servers of other projects as processes of one fixture: loopback only, with logs and data in one temporary folder."""
import secrets
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

from ..program import Store
from ..waiting import wait_for


class PeerMissing(Exception):
    """The peer is not installed; the message has the command that installs it."""


def private_address():
    """Returns a random loopback address, on which a free port stays free until the daemon uses it."""
    return f"127.{secrets.randbelow(253) + 1}.{secrets.randbelow(254)}.{secrets.randbelow(253) + 1}"


def free_port(address):
    with socket.socket() as probe:
        probe.bind((address, 0))
        return probe.getsockname()[1]


def accepts(address, port):
    try:
        socket.create_connection((address, port), timeout=5).close()
    except OSError:
        return False
    return True


class Daemons:
    """Processes, which end in the reverse order of their start, and their files."""

    def __init__(self, name, keep_process=lambda pid: None):
        self.name = name
        self.keep_process = keep_process
        self.folder = Path(tempfile.mkdtemp(prefix=f"{name}-"))
        self.address = private_address()
        self.access_key = "AK" + secrets.token_hex(8).upper()
        self.secret_key = secrets.token_hex(20)
        self.processes = []
        self.environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(self.folder), "LANG": "C.UTF-8"}

    def start(self, label, arguments, env=None):
        with open(self.folder / f"{label}.out", "ab") as out:
            process = subprocess.Popen(
                list(map(str, arguments)), stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=self.folder,
                env=self.environment | (env or {}), start_new_session=True,
            )  # fmt: skip
        self.keep_process(process.pid)
        self.processes.append((label, process))
        return process

    def call(self, *arguments, deadline_s=120):
        """Runs a command that must succeed; returns its output."""
        done = subprocess.run(
            list(map(str, arguments)), env=self.environment, cwd=self.folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=deadline_s
        )
        assert done.returncode == 0, f"{self.name}: {' '.join(map(str, arguments))}: {done.stderr.decode(errors='replace')}"
        return done.stdout.decode()

    def wait_for_port(self, label, port, deadline_s=180):
        process = dict(self.processes)[label]

        def look():
            if process.poll() is not None:
                raise AssertionError(f"{self.name}: {label} ended with {process.returncode}: {self.tail(label)}")
            return accepts(self.address, port)

        try:
            wait_for(look, deadline_s, f"{label} at {self.address}:{port}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.tail(label)}") from None

    def tail(self, label):
        text = "".join(path.read_text(errors="replace")[-3000:] for path in sorted(self.folder.glob(f"{label}.*")) if path.is_file())
        return text or "no output"

    def stop(self):
        for _label, process in reversed(self.processes):
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait(30)
        self.processes = []
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def endpoint(self):
        return f"http://{self.address}:{self.port}"

    # A peer has the same helpers as `penstock serve`.
    env = Store.env
    boto3 = Store.boto3
    made_client = Store.made_client
    client = Store.client
    bytes = Store.bytes
    keys = Store.keys

    def remove_bucket(self, bucket):
        """Removes a bucket, if it exists, with all objects, versions and unfinished uploads."""
        client = self.boto3()
        try:
            versions = client.get_paginator("list_object_versions").paginate(Bucket=bucket)
            for page in versions:
                for entry in page.get("Versions", []) + page.get("DeleteMarkers", []):
                    client.delete_object(Bucket=bucket, Key=entry["Key"], VersionId=entry["VersionId"])
            for upload in client.list_multipart_uploads(Bucket=bucket).get("Uploads", []):
                client.abort_multipart_upload(Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"])
            client.delete_bucket(Bucket=bucket)
        except client.exceptions.NoSuchBucket:
            pass


def program(name, package):
    found = shutil.which(name, path="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
    if not found:
        raise PeerMissing(f"{name} is not installed (Debian: {package}); run tools/test-peers")
    return found
