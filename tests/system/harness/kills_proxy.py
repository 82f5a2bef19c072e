"""A proxy in front of an object store that can stop a chosen request in the middle."""
import re
import select
import socket
import threading
from dataclasses import dataclass, field

BLOCK = 65536
HEAD_LIMIT = 256 * 1024


@dataclass
class Hold:
    """
    Stops the `number`-th request whose text matches `pattern`: a line "METHOD /path?query", and its headers in lower case, a
    line each. `where` is "head": the store gets nothing of the request; "body": the store gets half of its body; "reply": the
    store has replied, and the client gets nothing; "reply-body": the client gets half of the reply; "nowhere": the request is
    not stopped. `reached` is set when the request has come that far.
    """

    pattern: str
    where: str = "head"
    number: int = 1
    body: bytes = b""  # the request's body must contain these bytes
    on_reached: object = None
    patience_s: float = 60
    reached: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self):
        self.regex = re.compile(self.pattern, re.S)
        self.matches = 0

    def stop(self):
        self.reached.set()
        if self.on_reached:
            self.on_reached()
        self.released.wait(self.patience_s)


class Proxy:
    def __init__(self, upstream):
        self.upstream = upstream  # (host, port)
        self.hold = None
        self.seen = []
        self.lock = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def arm(self, hold):
        with self.lock:
            self.hold = hold
            self.seen = []
        return hold

    def disarm(self):
        with self.lock:
            hold, self.hold = self.hold, None
        if hold:
            hold.released.set()

    def match(self, text):
        """Returns the hold if it matches this request, else None."""
        with self.lock:
            self.seen.append(text.partition("\n")[0])
            hold = self.hold
            if not hold or not hold.regex.match(text):
                return None
            if hold.body:
                return hold  # match_body() counts the request
            hold.matches += 1
            return hold if hold.matches == hold.number else None

    def serve(self, client):
        try:
            with client, socket.create_connection(self.upstream) as store:
                for each in (client, store):
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                Connection(self, client, store).relay()
        except OSError:
            pass  # tests kill clients and stores

    def close(self):
        self.disarm()
        self.listener.close()


class Connection:
    def __init__(self, proxy, client, store):
        self.proxy = proxy
        self.client = client
        self.store = store
        self.buffered = b""

    def relay(self):
        """Passes on requests one after another. Bytes that the store sends meanwhile (100 Continue) are passed back at once."""
        while self.one_request():
            pass

    def fill(self):
        """Receives bytes of the client, and passes back replies of the store. Returns False if either has closed its connection."""
        while True:
            ready, _, _ = select.select([self.client, self.store], [], [])
            if self.store in ready and not self.pass_back():
                return False
            if self.client in ready:
                data = self.client.recv(BLOCK)
                self.buffered += data
                return bool(data)

    def pass_back(self):
        data = self.store.recv(BLOCK)
        if data:
            self.client.sendall(data)
        return bool(data)

    def one_request(self):
        while b"\r\n\r\n" not in self.buffered:
            if len(self.buffered) > HEAD_LIMIT or not self.fill():
                return False
        head, _, self.buffered = self.buffered.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        method, target, _ = lines[0].split(" ", 2)
        headers = "\n".join(line.lower() for line in lines[1:])
        length = re.search(r"^content-length: *(\d+)", headers, re.M)
        length = int(length.group(1)) if length else 0
        hold = self.proxy.match(f"{method} {target}\n{headers}")
        if hold and hold.body:
            hold = self.match_body(hold, length)
        if hold and hold.where == "nowhere":
            hold.released.set()
            hold.stop()
            hold = None
        if hold and hold.where == "head":
            hold.stop()
            return False
        if hold and hold.where == "reply-body":
            return self.half_reply(hold, head, length)
        self.store.sendall(head + b"\r\n\r\n")
        if hold and hold.where == "body":
            self.pass_on(max(1, length // 2))
            hold.stop()
            return False
        if hold:  # "reply"
            self.pass_on(length)
            self.store.recv(BLOCK)
            hold.stop()
            return False
        return self.pass_on(length)

    def match_body(self, hold, length):
        while len(self.buffered) < length:
            if not self.fill():
                return None
        if hold.body not in self.buffered[:length]:
            return None
        hold.matches += 1
        return hold if hold.matches == hold.number else None

    def pass_on(self, length):
        while length > 0:
            if not self.buffered and not self.fill():
                return False
            piece, self.buffered = self.buffered[:length], self.buffered[length:]
            self.store.sendall(piece)
            length -= len(piece)
        return True

    def half_reply(self, hold, head, length):
        self.store.sendall(head + b"\r\n\r\n")
        self.pass_on(length)
        reply = b""
        while b"\r\n\r\n" not in reply:
            data = self.store.recv(BLOCK)
            if not data:
                return False
            reply += data
        found = re.search(rb"(?i)\r\ncontent-length: *(\d+)", reply)
        whole = reply.index(b"\r\n\r\n") + 4 + (int(found.group(1)) if found else 0)
        while len(reply) < min(whole, BLOCK):
            reply += self.store.recv(BLOCK)
        body_at = reply.index(b"\r\n\r\n") + 4
        self.client.sendall(reply[: body_at + (len(reply) - body_at) // 2])
        hold.stop()
        return False
