"""A proxy in front of a plain HTTP server, such as `penstock serve`; chosen requests get faults.

    proxy = FaultProxy(store.endpoint)              # clients use proxy.url; Host stays, so signatures still verify
    proxy.fault(method="GET", path=r"/data$", cut_after=1000)               # the next such reply loses its connection
    proxy.fault(method="PUT", skip=2, times=3, status=503, headers={"Retry-After": "0"})   # the third to the fifth
    lost = proxy.fault(method="POST", query="uploadId=", lose_reply=True)   # carried out, but without a reply
    held = proxy.fault(method="PUT", hold="reply")  # held.wait() waits for the request; held.release() lets it go on
    proxy.down(); proxy.up()                        # refuses connections, then accepts them on the same port again
    proxy.seen("POST", query="uploadId=")           # the requests so far, in order

A request gets the first matching rule that is not used up; without such a rule the proxy passes the
request on unchanged. `path` and `query` are regular expressions for parts of the path (without its
query, percent-encoded) and of the query.
"""
import http.client
import http.server
import re
import select
import socket
import struct
import threading
from dataclasses import dataclass, field
from typing import Callable, Optional
from urllib.parse import urlsplit

from .waiting import wait_for

BLOCK = 64 * 1024
HOP_BY_HOP = ("connection", "keep-alive", "transfer-encoding", "expect", "proxy-connection")
LOGIN_PAGE = b"<!DOCTYPE html><html><head><title>Sign in</title></head><body><form>password</form></body></html>\n"


def s3_error(code, message="the test says so"):
    """Returns the body of an S3 error."""
    return f'<?xml version="1.0" encoding="UTF-8"?><Error><Code>{code}</Code><Message>{message}</Message></Error>'.encode()


@dataclass
class Fault:
    """The fault of one reply. A field that is not set changes nothing. Bytes are counted in the
    body."""

    # Before the request is passed on.
    drop: bool = False  # the connection is reset; the request is not carried out
    cut_request_after: Optional[int] = None  # cuts both connections after so many body bytes
    corrupt_request_at: Optional[int] = None  # flips a bit of this byte
    ignore_range: bool = False  # removes Range, for clients that do not sign it
    twice: bool = False  # the server gets the request twice; the client gets the second reply
    # Instead of the server's reply.
    status: Optional[int] = None  # with `body` and `headers`
    body: object = b""  # or a function of the request
    carry_out: bool = False  # the server carries out the request first
    endless: Optional[str] = None  # the part of the reply that never ends: "body" or "headers"
    # The reply.
    lose_reply: bool = False  # the request is carried out, then the connection is reset
    delay_s: float = 0  # before the reply
    # The place where the request waits for release(): "request" (before the server gets any of it),
    # "body" (after half of the request's body), "reply" (before the reply), or a number of bytes of
    # the reply's body.
    hold: object = None
    cut_after: Optional[int] = None  # the connection ends after this many bytes
    reset: bool = False  # with RST, after which the client may lose bytes that were sent before
    truncate_to: Optional[int] = None  # shortens the reply, with a correct Content-Length
    claim: Optional[int] = None  # Content-Length has this value; the connection ends after the real bytes
    corrupt_at: Optional[int] = None  # flips a bit of this byte of the reply
    repeat_at: Optional[int] = None  # repeats the `repeat` bytes before this byte; cuts off the end
    repeat: int = 4096
    rate: Optional[int] = None  # bytes per second
    headers: dict = field(default_factory=dict)  # sets headers; None removes one
    rewrite: Optional[Callable] = None  # body -> body; Content-Length is adjusted


class Rule:
    """A fault, and the requests that get it."""

    def __init__(self, proxy, fault, method, path, query, range, when, skip, times):
        self.proxy, self.fault = proxy, fault
        self.method, self.path, self.query, self.range, self.when = method, path, query, range, when
        self.skip, self.times = skip, times
        self.hits = 0
        self.released = threading.Event()

    def matches(self, request):
        return (
            (self.method is None or request.method in self.method.split("|"))
            and (self.path is None or re.search(self.path, request.path))
            and (self.query is None or re.search(self.query, request.query))
            and (self.range is None or re.search(self.range, request.headers.get("range", "")))
            and (self.when is None or self.when(request))
        )

    def wait(self, count=1, deadline_s=60):
        """Waits until `count` requests have met the fault."""
        wait_for(lambda: self.hits >= count, deadline_s, f"request {count} of {self.method} {self.path} {self.query}")
        return self

    def release(self):
        """Lets held requests go on, and does not hold later ones."""
        self.released.set()

    def stop(self):
        """Ends the rule: no further request gets the fault, and held requests go on."""
        with self.proxy.lock:
            self.times = 0
        self.release()


@dataclass
class Seen:
    """A received request."""

    number: int
    method: str
    path: str
    query: str
    headers: dict  # lower-case names
    rule: Optional[Rule] = None
    carried_out: Optional[int] = None  # the status of the server's reply
    status: Optional[int] = None  # the status that the client got
    received: int = 0  # body bytes from the client
    sent: int = 0  # body bytes to the client
    ended: bool = False


class FaultProxy:
    def __init__(self, upstream, listen=True):
        self.upstream = urlsplit(upstream)
        self.lock = threading.Lock()
        self.rules, self.requests = [], []
        self.stopping = threading.Event()
        self.connections, self.threads = set(), []
        self.listener = None
        # A socket that never listens keeps the port while connections are refused.
        self.keeper = self.bind(0)
        self.port = self.keeper.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        if listen:
            self.up()

    # --- for tests

    def fault(self, method=None, path=None, query=None, range=None, when=None, skip=0, times=1, **how):
        """Adds a rule for the next `times` matching requests, after the first `skip` of them. `method` may be "GET|HEAD"."""
        rule = Rule(self, Fault(**how), method, path, query, range, when, skip, times)
        with self.lock:
            self.rules.append(rule)
        return rule

    def clear(self):
        """Removes all rules; held requests go on."""
        with self.lock:
            rules, self.rules = self.rules, []
        for rule in rules:
            rule.release()

    def seen(self, method=None, path=None, query=None):
        wanted = Rule(self, None, method, path, query, None, None, 0, 0)
        with self.lock:
            return [request for request in self.requests if wanted.matches(request)]

    def up(self):
        """Accepts connections."""
        self.listener = self.bind(self.port)
        self.listener.listen(128)
        self.spawn(self.accept, self.listener)

    def down(self):
        """Refuses connections, and resets the existing ones."""
        listener, self.listener = self.listener, None
        if listener:
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        self.cut_all()

    def cut_all(self):
        """Resets every connection."""
        with self.lock:
            connections = list(self.connections)
        for connection in connections:
            linger_not(connection)
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        self.stopping.set()
        self.down()
        self.keeper.close()
        with self.lock:
            threads = list(self.threads)
        for thread in threads:
            thread.join(10)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # --- implementation

    def bind(self, port):
        made = socket.socket()
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        made.bind(("127.0.0.1", port))
        return made

    def spawn(self, target, *arguments):
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        with self.lock:
            self.threads = [one for one in self.threads if one.is_alive()] + [thread]
            thread.start()

    def accept(self, listener):
        while True:
            try:
                connection, address = listener.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self.lock:
                self.connections.add(connection)
            self.spawn(self.serve, connection, address)

    def serve(self, connection, address):
        try:
            _Handler(connection, address, self)
        except (OSError, http.client.HTTPException, ValueError):
            pass  # one side has closed the connection, as in many tests
        finally:
            with self.lock:
                self.connections.discard(connection)
            connection.close()

    def enter(self, request):
        with self.lock:
            request.number = len(self.requests)
            self.requests.append(request)
            for rule in self.rules:
                if not rule.times or not rule.matches(request):
                    continue
                if rule.skip:
                    rule.skip -= 1
                    continue
                rule.times -= 1
                rule.hits += 1
                request.rule = rule
                return rule.fault
        return Fault()


def linger_not(connection):
    """Makes close() reset the connection."""
    try:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    except OSError:
        pass


class _Cut(OSError):
    """Raised to end the connection to the client."""


class _Handler(http.server.BaseHTTPRequestHandler):
    """One connection of a client; `server` is the proxy."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format, *args):
        pass

    def handle_expect_100(self):
        return True  # body() sends the reply

    def answer(self):
        path, _, query = self.path.partition("?")
        request = Seen(0, self.command, path, query, {name.lower(): value for name, value in self.headers.items()})
        fault = self.server.enter(request)
        try:
            self.carry(request, fault)
        except _Cut:
            self.close_connection = True
            if fault.cut_after is None or fault.reset:
                linger_not(self.connection)
        finally:
            request.ended = True

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = answer

    def carry(self, request, fault):
        if fault.drop:
            self.swallow(request)
            raise _Cut
        if fault.hold == "request":
            self.hold(request)
        if fault.endless:
            return self.answer_endlessly(request, fault)
        if fault.status is not None and not fault.carry_out:
            self.swallow(request)
            self.pause(fault.delay_s)
            if fault.hold == "reply":
                self.hold(request)
            return self.answer_status(request, fault)
        upstream, reply = self.forward(request, fault)
        try:
            request.carried_out = reply.status
            if fault.lose_reply:
                reply.read()
                raise _Cut
            self.pause(fault.delay_s)
            if fault.hold == "reply":
                self.hold(request)
            if fault.status is not None:
                reply.read()
                return self.answer_status(request, fault)
            self.pass_back(request, reply, fault)
        finally:
            upstream.close()

    # --- the request

    def body(self, request):
        """Yields the blocks of the request's body, without chunk framing."""
        if self.headers.get("Expect", "").lower() == "100-continue":
            self.send_response_only(100)
            self.end_headers()
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            while size := int(self.rfile.readline().split(b";")[0], 16):
                yield from self.exactly(request, size)
                self.rfile.readline()
            while self.rfile.readline().strip():
                pass
        else:
            yield from self.exactly(request, int(self.headers.get("Content-Length", 0)))

    def exactly(self, request, size):
        while size:
            block = self.rfile.read1(min(size, BLOCK))
            if not block:
                raise _Cut
            size -= len(block)
            request.received += len(block)
            yield block

    def swallow(self, request):
        for _ in self.body(request):
            pass

    def forward(self, request, fault):
        """Passes on the request. Returns (connection, reply)."""
        blocks = self.body(request)
        if fault.twice:
            blocks = list(blocks)
            upstream, reply = self.forward_once(request, fault, blocks)
            reply.read()
            upstream.close()
        return self.forward_once(request, fault, blocks)

    def forward_once(self, request, fault, blocks):
        upstream = http.client.HTTPConnection(self.server.upstream.hostname, self.server.upstream.port, timeout=300)
        try:
            upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in HOP_BY_HOP and not (fault.ignore_range and name.lower() == "range"):
                    upstream.putheader(name, value)
            chunked = self.headers.get("Transfer-Encoding", "").lower() == "chunked"
            if chunked:
                upstream.putheader("Transfer-Encoding", "chunked")
            upstream.putheader("Connection", "close")
            upstream.endheaders()
            self.send_body(request, upstream, fault, blocks, chunked)
            return upstream, upstream.getresponse()
        except (OSError, http.client.HTTPException):
            if upstream.sock:
                linger_not(upstream.sock)
            upstream.close()
            raise _Cut from None

    def send_body(self, request, upstream, fault, blocks, chunked):
        at, half = 0, int(self.headers.get("Content-Length", 0)) // 2
        for block in blocks:
            if fault.hold == "body" and at <= half < at + len(block):
                self.hold(request)
            block = flip(block, at, fault.corrupt_request_at)
            if fault.cut_request_after is not None and at + len(block) >= fault.cut_request_after:
                upstream.send(block[: fault.cut_request_after - at])
                raise _Cut
            upstream.send(b"%x\r\n%s\r\n" % (len(block), block) if chunked else block)
            at += len(block)
        if fault.cut_request_after is not None:
            raise _Cut
        if chunked:
            upstream.send(b"0\r\n\r\n")

    # --- the reply

    def pause(self, seconds):
        if seconds:
            self.server.stopping.wait(seconds)

    def hold(self, request):
        """Waits until the rule is released. Ends the connection if the proxy is closed or the client is gone."""
        released = False
        while not released:
            released = request.rule.released.wait(0.05)
            if self.server.stopping.is_set() or self.client_gone():
                raise _Cut

    def client_gone(self):
        """Returns True if the client has closed the connection, even if bytes of its request are unread."""
        watch = select.poll()
        watch.register(self.connection, select.POLLRDHUP)
        return bool(watch.poll(0))

    def head(self, request, status, headers):
        request.status = status
        lines = [f"HTTP/1.1 {status} {http.client.responses.get(status, 'Unknown')}"]
        lines += [f"{name}: {value}" for name, value in headers]
        self.wfile.write("\r\n".join(lines + ["", ""]).encode("latin-1"))

    def answer_status(self, request, fault):
        body = fault.body(request) if callable(fault.body) else fault.body
        headers = {"Content-Length": len(body), "Content-Type": "application/xml"} | fault.headers
        self.head(request, fault.status, [(name, value) for name, value in headers.items() if value is not None])
        if self.command != "HEAD":
            self.wfile.write(body)
            request.sent = len(body)
        if fault.headers.get("Content-Length", 0) is None:
            self.close_connection = True

    def answer_endlessly(self, request, fault):
        self.swallow(request)
        self.close_connection = True
        if fault.endless == "headers":
            self.wfile.write(b"HTTP/1.1 200 OK\r\n")
            block = b"X-More: " + b"y" * 1000 + b"\r\n"
        else:
            self.head(request, 200, [("Content-Type", "application/octet-stream"), ("Connection", "close")])
            block = b"x" * BLOCK
        while not self.server.stopping.is_set():
            self.wfile.write(block)
            request.sent += len(block)

    def pass_back(self, request, reply, fault):
        headers = [(name, value) for name, value in reply.getheaders() if name.lower() not in HOP_BY_HOP]
        length = reply.getheader("Content-Length")
        whole = None
        if fault.rewrite:
            whole = fault.rewrite(reply.read())
            length = len(whole)
        if length is not None and fault.truncate_to is not None:
            length = min(int(length), fault.truncate_to)
        changed = {"Content-Length": length} | fault.headers
        if fault.claim is not None:
            changed["Content-Length"] = fault.claim
        if changed["Content-Length"] is None or fault.claim is not None or fault.cut_after is not None:
            changed["Connection"] = "close"
            self.close_connection = True
        replaced = {name.lower() for name in changed}
        headers = [(name, value) for name, value in headers if name.lower() not in replaced]
        self.head(request, reply.status, headers + [(n, v) for n, v in changed.items() if v is not None])
        if self.command != "HEAD" and reply.status not in (204, 304):
            blocks = [whole] if whole is not None else iter(lambda: reply.read(BLOCK), b"")
            self.send_reply(request, self.repeated(blocks, fault), fault)

    def repeated(self, blocks, fault):
        """Yields the body with the `repeat` bytes before `repeat_at` twice, and cuts the same
        number of bytes off the end."""
        if fault.repeat_at is None:
            yield from blocks
            return
        body = b"".join(blocks)
        at = min(fault.repeat_at, len(body))
        yield (body[:at] + body[max(0, at - fault.repeat) : at] + body[at:])[: len(body)]

    def send_reply(self, request, blocks, fault):
        limits = [at for at in (fault.cut_after, fault.truncate_to) if at is not None]
        hold = fault.hold if isinstance(fault.hold, int) else None
        for block in blocks:
            block = flip(block, request.sent, fault.corrupt_at)
            while block:
                stops = [at for at in [*limits, hold] if at is not None and at >= request.sent]
                piece = block[: min(stops) - request.sent] if stops else block
                self.wfile.write(piece)
                request.sent += len(piece)
                block = block[len(piece) :]
                if fault.rate:
                    self.pause(len(piece) / fault.rate)
                if hold is not None and request.sent >= hold:
                    hold = None
                    self.hold(request)
                if fault.truncate_to is not None and request.sent >= fault.truncate_to:
                    return
                if fault.cut_after is not None and request.sent >= fault.cut_after:
                    raise _Cut


def flip(block, at, where):
    """Returns the block that begins at `at`, with one bit of byte `where` of the body flipped."""
    if where is None or not at <= where < at + len(block):
        return block
    index = where - at
    return block[:index] + bytes([block[index] ^ 0x20]) + block[index + 1 :]
