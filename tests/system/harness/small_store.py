"""An object store in memory that can lack features of the embedded store, such as conditions.

    store = SmallStore(conditions=False)    # ignores conditions; store.env is for clients; signatures are not checked
    SmallStore(parts=True)                  # supports uploads in parts, without conditions at their completion
    store.objects["bucket/key"]             # [Version, …], the newest last
"""
import hashlib
import http.server
import itertools
import socketserver
import threading
import time
from dataclasses import dataclass
from email.utils import formatdate
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

XML = '<?xml version="1.0" encoding="UTF-8"?>\n'


@dataclass
class Version:
    name: str
    body: bytes
    metadata: dict
    odd_etag: str = ""  # an ETag that does not depend on the body

    @property
    def etag(self):
        return self.odd_etag or f'"{hashlib.md5(self.body).hexdigest()}"'


class SmallStore:
    def __init__(self, conditions=True, parts=False, address="127.0.0.1", handler=None):
        self.conditions, self.parts = conditions, parts
        self.uploads = {}  # {id: (metadata, {number: body})}
        self.objects, self.numbers, self.lock = {}, itertools.count(1), threading.Lock()
        self.httpd = _Threads((address, 0), handler or _Handler)
        self.httpd.owner = self
        self.endpoint = f"http://{address}:{self.httpd.server_address[1]}"
        self.access_key, self.secret_key = "AKSMALLSTORE", "secret-of-the-small-store"
        self.env = {
            "AWS_ACCESS_KEY_ID": self.access_key, "AWS_SECRET_ACCESS_KEY": self.secret_key, "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true",
        }  # fmt: skip
        self.thread = threading.Thread(target=self.httpd.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self.thread.start()

    def put(self, name, body, metadata=None):
        version = Version(f"v{next(self.numbers)}", body, metadata or {})
        self.objects[name] = [version]
        return version

    def bytes(self, bucket, key):
        return self.objects[f"{bucket}/{key}"][-1].body

    def keys(self, bucket, prefix=""):
        return sorted(name.partition("/")[2] for name in self.objects if name.startswith(f"{bucket}/{prefix}"))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.httpd.shutdown()
        self.httpd.server_close()
        self.thread.join(5)


class _Threads(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def handle_error(self, request, client_address):
        pass  # the client has closed the connection


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format, *args):
        pass

    def handle_expect_100(self):
        return True  # whole() sends the reply

    def reply(self, status, body=b"", headers=None):
        headers = {"Content-Length": len(body)} | (headers or {})
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def fail(self, status, code):
        self.reply(status, f"{XML}<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode())

    def described(self, version):
        headers = {"ETag": version.etag, "Last-Modified": formatdate(usegmt=True)}
        return headers | {f"x-amz-meta-{name}": value for name, value in version.metadata.items()}

    def refused(self, there):
        """Returns True if a condition of the request does not hold."""
        store, wanted = self.server.owner, self.headers.get("If-Match")
        if not store.conditions:
            return False
        return (self.headers.get("If-None-Match") == "*" and there) or (wanted and (not there or there.etag != wanted))

    def whole(self):
        if self.headers.get("Expect", "").lower() == "100-continue":
            self.send_response_only(100)
            self.end_headers()
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def answer(self):
        store, parts, body = self.server.owner, urlsplit(self.path), self.whole()
        bucket, _, key = unquote(parts.path)[1:].partition("/")
        query = parse_qs(parts.query, keep_blank_values=True)
        if self.command == "POST" and not query.keys() & {"uploads", "uploadId"}:
            return self.fail(501, "NotImplemented")
        with store.lock:
            if not key:
                return self.bucket(store, bucket, query)
            versions = store.objects.get(f"{bucket}/{key}", [])
            there = versions[-1] if versions else None
            if "uploads" in query or "uploadId" in query:
                return self.upload(store, bucket, key, query, body) if store.parts else self.fail(501, "NotImplemented")
            if self.command == "PUT":
                return self.put(store, f"{bucket}/{key}", there, body)
            if self.command == "DELETE":
                if self.refused(there) and there:
                    return self.fail(412, "PreconditionFailed")
                store.objects.pop(f"{bucket}/{key}", None)
                return self.reply(204)
            if not there:
                return self.fail(404, "NoSuchKey")
            length = {"Content-Length": len(there.body)}
            return self.reply(200, there.body, length | self.described(there))

    do_GET = do_HEAD = do_PUT = do_DELETE = do_POST = answer

    def metadata(self):
        return {key.lower()[len("x-amz-meta-") :]: value for key, value in self.headers.items() if key.lower().startswith("x-amz-meta-")}

    def upload(self, store, bucket, key, query, body):
        if "uploads" in query and self.command == "POST":
            made = f"upload{next(store.numbers)}"
            store.uploads[made] = (self.metadata(), {})
            begun = f"<InitiateMultipartUploadResult><Bucket>{bucket}</Bucket><Key>{escape(key)}</Key><UploadId>{made}</UploadId></InitiateMultipartUploadResult>"
            return self.reply(200, (XML + begun).encode())
        (name,) = query.get("uploadId", [""])
        if name not in store.uploads:
            return self.fail(404, "NoSuchUpload")
        metadata, parts = store.uploads[name]
        if self.command == "PUT":
            if "x-amz-copy-source" in self.headers:
                return self.fail(501, "NotImplemented")
            parts[int(query["partNumber"][0])] = body
            return self.reply(200, b"", {"ETag": f'"{hashlib.md5(body).hexdigest()}"'})
        del store.uploads[name]
        if self.command == "DELETE":
            return self.reply(204)
        whole = [parts[number] for number in sorted(parts)]
        made = store.put(f"{bucket}/{key}", b"".join(whole), metadata)
        made.odd_etag = f'"{hashlib.md5(b"".join(hashlib.md5(part).digest() for part in whole)).hexdigest()}-{len(whole)}"'
        done = f"<CompleteMultipartUploadResult><Bucket>{bucket}</Bucket><Key>{escape(key)}</Key><ETag>{escape(made.etag)}</ETag></CompleteMultipartUploadResult>"
        self.reply(200, (XML + done).encode())

    def bucket(self, store, bucket, query):
        prefix = query.get("prefix", [""])[0]
        found = "".join(
            f"<Contents><Key>{escape(key)}</Key><ETag>{escape(store.objects[f'{bucket}/{key}'][-1].etag)}</ETag>"
            f"<Size>{len(store.bytes(bucket, key))}</Size><LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            for key in store.keys(bucket, prefix)
        )
        listing = f"<ListBucketResult><Name>{bucket}</Name><IsTruncated>false</IsTruncated>{found}</ListBucketResult>"
        self.reply(200, (XML + listing).encode() if self.command == "GET" else b"")

    def put(self, store, name, there, body):
        source = self.headers.get("x-amz-copy-source")
        if self.refused(there):
            return self.fail(412, "PreconditionFailed")
        if source:
            copied = store.objects[unquote(source).lstrip("/")][-1]
            made = store.put(name, copied.body, copied.metadata)
            stamp = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime())
            done = f"{XML}<CopyObjectResult><ETag>{escape(made.etag)}</ETag><LastModified>{stamp}</LastModified></CopyObjectResult>"
            return self.reply(200, done.encode(), self.described(made))
        made = store.put(name, body, self.metadata())
        return self.reply(200, b"", {"ETag": made.etag})
