"""An HTTP server with faults that a test sets before the request.

    url = server.add("/data.bin", content)
    server.fault("/data.bin", cut_after=1000)       # cuts the next GET after 1,000 body bytes
    server.fault("/data.bin", status=503, times=2)  # then two requests get a 503

Without faults it serves ranges, If-Range and conditional requests, and keeps bodies of PUT and POST in `received`.
"""
import hashlib
import http.server
import re
import socket
import socketserver
import struct
import threading
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

BLOCK = 64 * 1024


@dataclass
class Fault:
    """The fault of one reply. A field that is not set changes nothing."""

    status: Optional[int] = None  # with `body`
    body: Optional[bytes] = None  # instead of the content
    headers: dict = field(default_factory=dict)  # adds headers; None removes one
    cut_after: Optional[int] = None  # close after this many body bytes
    reset: bool = False  # close with RST instead of FIN
    stall_after: Optional[int] = None  # pause after this many body bytes
    stall_s: float = 3600
    claim: Optional[int] = None  # Content-Length has this value
    ignore_range: bool = False  # replies with 200 and all bytes
    shift_range: int = 0  # moves the start of the range
    corrupt_at: Optional[int] = None  # flip this byte of the content
    rate: Optional[int] = None  # bytes per second
    methods: tuple = ("GET",)


@dataclass
class Request:
    method: str
    path: str
    headers: dict
    status: int = 0
    sent: int = 0  # body bytes


class Content:
    def __init__(self, source, headers):
        self.path = source if isinstance(source, Path) else None
        self.data = None if self.path else bytes(source)
        self.headers = headers

    def etag(self):
        if self.path:
            found = self.path.stat()
            return f'"{found.st_size:x}-{found.st_mtime_ns:x}"'
        return f'"{hashlib.sha256(self.data).hexdigest()[:32]}"'

    def size(self):
        return self.path.stat().st_size if self.path else len(self.data)

    def blocks(self, start, end):
        if self.data is not None:
            yield from (self.data[at : min(at + BLOCK, end)] for at in range(start, end, BLOCK))
            return
        with open(self.path, "rb") as file:
            file.seek(start)
            while start < end and (block := file.read(min(BLOCK, end - start))):
                start += len(block)
                yield block


class Server:
    def __init__(self, ranges=True):
        self.ranges = ranges
        self.contents = {}
        self.faults = defaultdict(list)
        self.requests = []
        self.received = {}
        self.lock = threading.Lock()
        self.stopping = threading.Event()
        self.httpd = _Threads(("127.0.0.1", 0), _Handler)
        self.httpd.owner = self
        self.url = f"http://127.0.0.1:{self.httpd.server_address[1]}"
        self.thread = threading.Thread(target=self.httpd.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self.thread.start()

    def add(self, path, source, **headers):
        """Serves bytes, or a file given as a Path, at `path`; returns its URL. `headers` use _ for -."""
        self.contents[path] = Content(source, {name.replace("_", "-"): value for name, value in headers.items()})
        return self.url + path

    def fault(self, path, times=1, **how):
        """Sets a fault for the next `times` requests for `path` with one of the fault's methods."""
        with self.lock:
            self.faults[path] += [Fault(**how)] * times

    def take_fault(self, method, path):
        with self.lock:
            for index, fault in enumerate(self.faults[path]):
                if method in fault.methods:
                    return self.faults[path].pop(index)
        return Fault()

    def seen(self, path=None, method=None):
        with self.lock:
            return [r for r in self.requests if path in (None, r.path) and method in (None, r.method)]

    def close(self):
        self.stopping.set()
        self.httpd.shutdown()
        self.httpd.server_close()
        self.thread.join(5)


class _Threads(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def handle_error(self, request, client_address):
        pass  # the client has closed the connection, as in many tests


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format, *args):
        pass

    def begin(self):
        owner = self.server.owner
        path = self.path.partition("?")[0]
        request = Request(self.command, path, {name.lower(): value for name, value in self.headers.items()})
        with owner.lock:
            owner.requests.append(request)
        return owner, path, request, owner.take_fault(self.command, path)

    def head(self, request, status, headers):
        request.status = status
        self.send_response(status)
        for name, value in headers.items():
            if value is not None:
                self.send_header(name, str(value))
        self.end_headers()

    def simple(self, request, status, body=b"", headers=None):
        self.head(request, status, {"Content-Length": len(body)} | (headers or {}))
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self):
        owner, path, request, fault = self.begin()
        content = owner.contents.get(path)
        if fault.status is not None:
            return self.simple(request, fault.status, fault.body or b"", fault.headers)
        if fault.body is not None:
            return self.simple(request, 200, fault.body, fault.headers)
        if content is None:
            return self.simple(request, 404, b"not here\n")
        size, etag = content.size(), content.etag()
        if request.headers.get("if-none-match") == etag:
            return self.simple(request, 304)
        if request.headers.get("if-match", etag) not in (etag, "*"):
            return self.simple(request, 412)
        start, end, status = 0, size, 200
        headers = {"ETag": etag, "Content-Type": "application/octet-stream"}
        if owner.ranges and not fault.ignore_range:
            headers["Accept-Ranges"] = "bytes"
            wanted = self.range(request, size, etag)
            if wanted == "none":
                return self.simple(request, 416, b"", {"Content-Range": f"bytes */{size}"})
            if wanted:
                start, end, status = wanted[0], wanted[1], 206
                start, end = (min(max(0, at + fault.shift_range), size) for at in (start, end))
                headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
        length = end - start if fault.claim is None else fault.claim
        headers |= {"Content-Length": length} | content.headers | fault.headers
        if fault.cut_after is not None or fault.claim is not None:
            headers["Connection"] = "close"
            self.close_connection = True
        self.head(request, status, headers)
        if self.command != "HEAD":
            self.body(request, content, start, end, fault)

    do_HEAD = do_GET

    def range(self, request, size, etag):
        """Returns (start, end) of the requested range; None for all bytes; "none" if the range is outside of them."""
        found = re.fullmatch(r"bytes=(\d*)-(\d*)", request.headers.get("range", ""))
        if not found or found.groups() == ("", "") or request.headers.get("if-range", etag) != etag:
            return None
        first, last = found.groups()
        if first == "":
            return (max(0, size - int(last)), size) if int(last) else "none"
        if int(first) >= size:
            return "none"
        return int(first), min(size, int(last) + 1 if last else size)

    def body(self, request, content, start, end, fault):
        stalled = False
        for block in content.blocks(start, end):
            at = start + request.sent
            if fault.corrupt_at is not None and at <= fault.corrupt_at < at + len(block):
                index = fault.corrupt_at - at
                block = block[:index] + bytes([block[index] ^ 0x20]) + block[index + 1 :]
            while block:
                piece = block
                for limit in (fault.cut_after, None if stalled else fault.stall_after):
                    if limit is not None:
                        piece = piece[: max(0, limit - request.sent)]
                if piece:
                    self.wfile.write(piece)
                    request.sent += len(piece)
                    block = block[len(piece) :]
                if fault.rate:
                    self.server.owner.stopping.wait(len(piece) / fault.rate)
                if fault.stall_after is not None and not stalled and request.sent >= fault.stall_after:
                    stalled = True
                    self.server.owner.stopping.wait(fault.stall_s)
                if fault.cut_after is not None and request.sent >= fault.cut_after:
                    return self.cut(fault)

    def cut(self, fault):
        if fault.reset:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()

    def read_body(self):
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return body

    def do_PUT(self):
        owner, path, request, fault = self.begin()
        if self.headers.get("Expect", "").lower() == "100-continue" and fault.status is None:
            self.send_response_only(100)
            self.end_headers()
        if fault.status is not None:
            self.close_connection = True
            return self.simple(request, fault.status, fault.body or b"", fault.headers | {"Connection": "close"})
        body = self.read_body()
        with owner.lock:
            owner.received[path] = body
        self.simple(request, 201)

    do_POST = do_PUT

    def handle_expect_100(self):
        return True  # do_PUT sends the reply, so that a fault can replace it
