"""fake-gcs-server, a simulation of Google Cloud Storage. Its XML API reads, lists and deletes objects, and takes signed uploads."""
import json
import os
import urllib.parse
import urllib.request
from pathlib import Path

from .daemons import Daemons, PeerMissing, free_port


class FakeGcs(Daemons):
    kind = "fake-gcs-server"

    def __init__(self, tools, keep_process=lambda pid: None):
        program = Path(tools) / "bin" / "fake-gcs-server"
        if not os.access(program, os.X_OK):
            raise PeerMissing(f"'{program}' is missing; run tools/test-fake-gcs")
        super().__init__("fake-gcs-server", keep_process)
        self.port = free_port(self.address)
        self.authority = f"{self.address}:{self.port}"
        self.url = f"http://{self.authority}"
        try:
            self.start("fake-gcs-server", [
                program, "-scheme", "http", "-host", self.address, "-port", self.port, "-public-host", self.authority, "-backend", "memory",
            ])  # fmt: skip
            self.wait_for_port("fake-gcs-server", self.port)
        except BaseException:
            self.stop()
            raise

    @property
    def env(self):
        return {"STORAGE_EMULATOR_HOST": self.url, "NO_GCE_CHECK": "true"}

    def call_api(self, method, path, body=None, kind="application/json"):
        """Sends a request of the JSON API, which tests use to write and read objects."""
        request = urllib.request.Request(self.url + path, data=body, method=method, headers={"Content-Type": kind} if body else {})
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.read()

    def make_bucket(self, name):
        self.call_api("POST", "/storage/v1/b?project=tests", json.dumps({"name": name}).encode())

    def put(self, bucket, key, body):
        name = urllib.parse.quote(key, safe="")
        return json.loads(self.call_api("POST", f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={name}", body, "text/plain"))

    def bytes(self, bucket, key):
        return self.call_api("GET", f"/storage/v1/b/{bucket}/o/{urllib.parse.quote(key, safe='')}?alt=media")

    def keys(self, bucket):
        return sorted(item["name"] for item in json.loads(self.call_api("GET", f"/storage/v1/b/{bucket}/o")).get("items", []))
