"""MinIO as one process with one directory."""
import os
from pathlib import Path

from botocore.exceptions import ClientError

from ..waiting import wait_for
from .daemons import Daemons, PeerMissing, free_port


class Minio(Daemons):
    kind = "minio"

    def __init__(self, tools, keep_process=lambda pid: None, settings=None):
        binary = Path(tools) / "bin" / "minio"
        if not os.access(binary, os.X_OK):
            raise PeerMissing(f"'{binary}' is missing; run tools/test-peers")
        super().__init__("minio", keep_process)
        self.port = free_port(self.address)
        console = f"{self.address}:{free_port(self.address)}"
        try:
            env = (settings or {}) | {"MINIO_ROOT_USER": self.access_key, "MINIO_ROOT_PASSWORD": self.secret_key, "MINIO_BROWSER": "off", "MINIO_UPDATE": "off"}
            self.start(
                "minio",
                [binary, "server", "--quiet", "--address", f"{self.address}:{self.port}", "--console-address", console, self.folder / "data"],
                env=env,
            )  # fmt: skip
            self.wait_for_port("minio", self.port)
            # MinIO replies to requests before it has loaded its keys.
            wait_for(self.knows_us, 120, "MinIO's start")
        except BaseException:
            self.stop()
            raise

    def knows_us(self):
        try:
            return bool(self.client.list_buckets())
        except ClientError:
            return False
