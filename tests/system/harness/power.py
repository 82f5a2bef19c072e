"""A store whose writes are recorded, a client that notes acknowledgements, and the replay of both (tests/support/power)."""
import base64
import hashlib
import os
import re
import sqlite3
import struct
import subprocess
import tempfile
import threading
import zlib
from pathlib import Path

from .program import Store, binary, preloading
from .s3_wire import Reply, Wire

FAULTS = struct.Struct("=IIiIq")  # struct power_faults
WRITE, SYNC, CREATE, READ = 1, 2, 4, 8
DATA, WAL, DATABASE, OTHER, DIRECTORY = 1, 2, 4, 8, 16


def tool(name):
    return binary().parent / "tests" / "support" / "power" / name


def preload(penstock, **variables):
    """Makes later starts of the program preload the recorder."""
    penstock.env |= preloading(tool("libpower-recorder.so")) | {name: str(value) for name, value in variables.items()}


class Faults:
    """Makes writes, syncs, creations or reads of files fail in the running program."""

    def __init__(self, penstock, folder):
        self.path = Path(folder) / "faults"
        self.path.write_bytes(bytes(FAULTS.size))
        preload(penstock, POWER_ROOT=folder, POWER_FAULTS=self.path)

    def set(self, ops, classes, error, allow_bytes=0):
        self.write(FAULTS.pack(ops, classes, error, 0, allow_bytes))

    def clear(self):
        self.write(bytes(FAULTS.size))

    def write(self, data):
        with open(self.path, "r+b") as file:
            file.write(data)

    @property
    def hits(self):
        return FAULTS.unpack(self.path.read_bytes())[3]


class Recording:
    """`penstock serve` with a root three directories below the recorded one, so that it makes parent directories, too."""

    STORE = "new/parents/store"

    def __init__(self, penstock, folder, durability=None):
        self.folder = Path(folder)
        self.disk = self.folder / "disk"
        self.disk.mkdir()
        self.log = self.folder / "write.log"
        self.expected = self.folder / "expected"
        self.lines = []
        self.views = []
        self.requests = []
        self.lock = threading.Lock()
        preload(penstock, POWER_ROOT=self.disk, POWER_LOG=self.log)
        self.store = Store(penstock, self.disk / self.STORE, durability)

    def note(self, *words):
        with self.lock:
            self.lines.append(" ".join(map(str, words)))

    def restart(self, kill=False):
        self.store.kill() if kill else self.store.stop().ok()
        self.store.start()

    def script(self, code, *arguments):
        """Runs a Python script whose writes are recorded, too."""
        words = ["/usr/bin/python3", "-c", code, *map(str, arguments)]
        subprocess.run(words, env=self.store.penstock.env, check=True, timeout=60)

    def finish(self):
        self.store.stop().ok()

    def replay(self, *options):
        """Runs a replay. Returns (exit code, output)."""
        store = self.store
        lines = [f"keys {store.access_key} {store.secret_key}", *(view.line(store) for view in self.views), *self.lines]
        self.expected.write_text("\n".join(lines) + "\n")
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        with tempfile.TemporaryDirectory(dir=memory, prefix="penstock-power-") as work:
            done = subprocess.run(
                [tool("power-replay"), *map(str, options), self.log, self.expected, self.STORE],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=3000,
                env=os.environ | {"TMPDIR": work},
            )  # fmt: skip
        return done.returncode, done.stdout


class Client:
    """Sends requests and notes the acknowledged changes."""

    def __init__(self, recording):
        self.recording = recording
        self.objects = {}  # (bucket, key): body and meta

    @property
    def wire(self):
        return Wire(self.recording.store)

    def send(self, status, method, path, query="", headers=None, body=b""):
        reply = self.wire.send(method, path, query, headers, body)
        assert reply.status == status, (method, path, query, reply.status, reply.body)
        return reply, reply.headers["x-amz-request-id"]

    def make_bucket(self, name):
        _, reply_id = self.send(200, "PUT", f"/{name}")
        self.recording.note("bucket", name, "make", reply_id)

    def remove_bucket(self, name):
        _, reply_id = self.send(204, "DELETE", f"/{name}")
        self.recording.note("bucket", name, "remove", reply_id)

    def note_object(self, bucket, key, reply_id, etag, body, meta):
        self.objects[bucket, key] = (body, meta)
        self.recording.note("object", bucket, key, reply_id, etag.strip('"'), len(body), f"{zlib.crc32(body):08x}", meta)

    def put(self, bucket, key, body, meta="-", status=200, **headers):
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        reply, reply_id = self.send(status, "PUT", f"/{bucket}/{key}", headers=headers | {"x-amz-meta-v": meta}, body=body)
        if status == 200:
            self.note_object(bucket, key, reply_id, reply.headers["etag"], body, meta)
            return reply.headers["etag"]
        return None

    def copy(self, source, bucket, key):
        reply, reply_id = self.send(200, "PUT", f"/{bucket}/{key}", headers={"x-amz-copy-source": "/".join(source)})
        etag = re.search(rb"<ETag>(?:&quot;|\")?([^&\"<]+)", reply.body).group(1).decode()
        self.note_object(bucket, key, reply_id, etag, *self.objects[source])

    def delete(self, bucket, key):
        _, reply_id = self.send(204, "DELETE", f"/{bucket}/{key}")
        self.note_gone(bucket, key, reply_id)

    def note_gone(self, bucket, key, reply_id):
        self.objects.pop((bucket, key), None)
        self.recording.note("gone", bucket, key, reply_id)

    def delete_many(self, bucket, keys):
        body = "<Delete>" + "".join(f"<Object><Key>{key}</Key></Object>" for key in keys) + "</Delete>"
        reply, reply_id = self.send(200, "POST", f"/{bucket}", "delete=", body=body.encode())
        assert b"<Error>" not in reply.body
        for key in keys:
            self.note_gone(bucket, key, reply_id)

    def create_upload(self, bucket, key, meta="-"):
        reply, reply_id = self.send(200, "POST", f"/{bucket}/{key}", "uploads=", {"x-amz-meta-v": meta})
        upload = Upload(self, bucket, key, re.search(rb"<UploadId>(\w+)<", reply.body).group(1).decode(), meta)
        self.recording.note("upload", bucket, key, upload.id, reply_id)
        return upload


class Upload:
    def __init__(self, client, bucket, key, upload_id, meta):
        self.client, self.bucket, self.key, self.id, self.meta = client, bucket, key, upload_id, meta
        self.parts = {}

    def note(self, number, reply_id, etag, body):
        self.parts[number] = (etag, body)
        self.client.recording.note("part", self.id, number, reply_id, etag, len(body))

    def part(self, number, body):
        query = f"partNumber={number}&uploadId={self.id}"
        reply, reply_id = self.client.send(200, "PUT", f"/{self.bucket}/{self.key}", query, body=body)
        self.note(number, reply_id, reply.headers["etag"].strip('"'), body)

    def part_copy(self, number, source, first, last):
        headers = {"x-amz-copy-source": "/".join(source), "x-amz-copy-source-range": f"bytes={first}-{last}"}
        query = f"partNumber={number}&uploadId={self.id}"
        reply, reply_id = self.client.send(200, "PUT", f"/{self.bucket}/{self.key}", query, headers)
        etag = re.search(rb"<ETag>(?:&quot;|\")?([^&\"<]+)", reply.body).group(1).decode()
        self.note(number, reply_id, etag, self.client.objects[source][0][first : last + 1])

    def complete(self):
        parts = "".join(f"<Part><PartNumber>{n}</PartNumber><ETag>{self.parts[n][0]}</ETag></Part>" for n in sorted(self.parts))
        body = f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode()
        reply, reply_id = self.client.send(200, "POST", f"/{self.bucket}/{self.key}", f"uploadId={self.id}", body=body)
        etag = re.search(rb"<ETag>(?:&quot;|\")?([^&\"<]+)", reply.body).group(1).decode()
        whole = b"".join(self.parts[n][1] for n in sorted(self.parts))
        self.client.note_object(self.bucket, self.key, reply_id, etag, whole, self.meta)
        self.client.recording.note("ended", self.id, reply_id)

    def abort(self):
        _, reply_id = self.client.send(204, "DELETE", f"/{self.bucket}/{self.key}", f"uploadId={self.id}")
        self.client.recording.note("ended", self.id, reply_id)


class Request:
    """A request that is signed when it is sent; `keys` are those of another sender, or empty for an anonymous one."""

    def __init__(self, method, path, query="", headers=None, body=b"", keys=None, service="s3"):
        self.method, self.path, self.query, self.headers, self.body = method, path, query, headers or {}, body
        self.keys, self.service = keys, service
        self.signed = None

    def bytes(self, store, skew_s=0):
        wire, headers = Wire(store), {"host": "store"} | self.headers
        wire.service = self.service
        if self.keys:
            wire.access_key, wire.secret_key, *token = self.keys
            headers |= {"x-amz-security-token": text for text in token}
        if self.keys != ():
            headers = wire.sign(self.method, self.path, self.query, headers, hashlib.sha256(self.body).hexdigest(), skew_s)
        headers |= {"connection": "close", "content-length": str(len(self.body))}
        return wire.head(self.method, self.path + ("?" + self.query if self.query else ""), headers) + self.body

    def send(self, store):
        """Returns all bytes of the reply. The signature is made once, and valid for 15 minutes."""
        self.signed = self.signed or self.bytes(store)
        with Wire(store).connect() as connection:
            connection.sendall(self.signed)
            return b"".join(iter(lambda: connection.recv(65536), b""))

    # --- as a view

    def line(self, store):
        """Signs for a time 14 minutes ahead. The store accepts a difference of 15 minutes in both
        directions, so the signature is valid for 29 minutes."""
        return f"view {self.method}:{self.path}?{self.query} {base64.b64encode(self.bytes(store, skew_s=840)).decode()}"

    def digest(self, store):
        """Returns a checksum of the reply; power-replay computes the same checksum."""
        head, _, body = self.send(store).partition(b"\r\n\r\n")
        head = re.sub(rb"(?im)^(?:date|x-amz-request-id): .*\r\n", b"", head + b"\r\n")
        return f"{zlib.crc32(head + re.sub(rb'<RequestId>[^<]*', b'', body, count=1)):08x}"


class Events:
    """The number of pending events, which no request shows."""

    def line(self, _store):
        return "events"

    def digest(self, store):
        database = sqlite3.connect(f"file:{store.root}/meta.db?mode=ro", uri=True)
        (count,) = database.execute("SELECT count(*) FROM events").fetchone()
        database.close()
        return f"{count:08x}"


class Witness:
    """Sends one change after the other, and notes all views after each change. A view is a request
    whose reply shows changes."""

    def __init__(self, recording):
        self.recording, self.first, self.seen, self.last = recording, 0, (), "-"

    def subject(self):
        """Notes all views once more. Later changes must show in the views that are added after this
        call."""
        self.first = 0
        self.happened(self.last)
        self.first = len(self.recording.views)

    def see(self, *views):
        """Adds views, which also show the state after the last change."""
        self.recording.views += views
        self.happened(self.last)

    def happened(self, reply, steps=False):
        """Notes the views after a change; `steps` is True if the store makes the change in several
        steps, in any order."""
        before, same, self.last = self.seen, reply == self.last, reply
        self.seen = (self.first, *(view.digest(self.recording.store) for view in self.recording.views[self.first :]))
        self.recording.note("steps" if steps else "shows", reply, *self.seen)
        assert same or self.seen != before, "no view shows the change"

    def do(self, *request, steps=False, **more):
        """Sends a change that succeeds. Returns the status, the headers and the body of the reply."""
        self.recording.requests.append(Request(*request, **more))
        head, _, body = self.recording.requests[-1].send(self.recording.store).partition(b"\r\n\r\n")
        status, *lines = head.decode().split("\r\n")
        pairs = (line.partition(": ") for line in lines)
        reply = Reply(int(status.split()[1]), {name.lower(): value for name, _, value in pairs}, body)
        assert reply.status in (200, 201, 204), (request, head, body)
        self.happened(reply.headers["x-amz-request-id"], steps)
        return reply


def body(seed, size):
    """Returns bytes that depend on the seed: the seed as text, then a pattern."""
    filling = bytes((seed * 31 + i * 7) & 255 for i in range(251))
    return (f"{seed:015} ".encode() + filling * (size // 251 + 1))[:size]
