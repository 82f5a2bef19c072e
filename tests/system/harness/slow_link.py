"""A link between clients and a server that a test can slow down, stop and cut.

    link = SlowLink(store.endpoint)       # clients use link.url; Host stays, so signatures still verify
    link.refuse(); link.open()            # closes all connections and refuses new ones, then accepts them again
    link.hold(after=2 << 20)              # stops the bytes of the clients after this many more bytes, until open()
    link.open(rate=500_000)               # bytes per second of each connection towards the server
    link.carried                          # bytes that clients sent to the server

With `slow="down"`, all of this applies to the bytes of the server.
"""
import socket
import threading
from urllib.parse import urlsplit

BLOCK = 16 * 1024


def cut(one):
    try:
        one.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # the connection is closed already


class SlowLink:
    def __init__(self, upstream, slow="up"):
        self.slow_up, self.carried = slow == "up", 0
        parts = urlsplit(upstream)
        self.upstream = (parts.hostname, parts.port)
        self.refused = 0
        self.changed = threading.Condition()
        self.refusing, self.rate, self.left, self.closed = False, None, None, False
        self.sockets = set()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        self.thread = threading.Thread(target=self.accept, daemon=True)
        self.thread.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}"

    def set(self, **values):
        with self.changed:
            self.__dict__.update(values)
            self.changed.notify_all()

    def refuse(self):
        self.set(refusing=True)
        for one in list(self.sockets):
            cut(one)

    def open(self, rate=None):
        self.set(refusing=False, rate=rate, left=None)

    def hold(self, after=0):
        self.set(refusing=False, left=after)

    def held(self):
        """Returns True if the bytes that hold() allows have passed and were read by their
        receivers."""
        port = self.listener.getsockname()[1]
        with open("/proc/net/tcp") as table:
            rows = [line.split() for line in table.readlines()[1:]]
        unread = [row[4] for row in rows if row[2].endswith(f":{port:04X}") and not row[4].endswith(":00000000")]
        return self.left == 0 and not unread

    def close(self):
        self.set(closed=True)
        self.refuse()
        # Closing the listener would not wake the thread in accept().
        socket.create_connection(self.listener.getsockname()).close()
        self.thread.join(10)
        self.listener.close()

    def accept(self):
        while not self.closed:
            client, _ = self.listener.accept()
            if self.refusing or self.closed:
                self.refused += 1
                client.close()
                continue
            try:
                server = socket.create_connection(self.upstream)
            except OSError:
                client.close()
                continue
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.sockets.add(one)
            for source, sink, slow in ((client, server, self.slow_up), (server, client, not self.slow_up)):
                threading.Thread(target=self.carry, args=(source, sink, slow), daemon=True).start()

    def allowed(self, want):
        """Waits until a byte may pass. Returns the number of bytes that may pass now."""
        with self.changed:
            self.changed.wait_for(lambda: self.left != 0 or self.refusing)
            if self.left is None:
                return want
            allowed = min(want, self.left)
            self.left -= allowed
            return allowed

    def carry(self, source, sink, slow):
        try:
            while data := source.recv(BLOCK):
                while data:
                    n = self.allowed(len(data)) if slow else len(data)
                    if slow and self.rate:
                        with self.changed:
                            self.changed.wait_for(lambda: not self.rate or self.refusing, n / self.rate)
                    sink.sendall(data[:n])
                    if slow:
                        with self.changed:
                            self.carried += n
                    data = data[n:]
        except OSError:
            pass
        for one in (source, sink):
            self.sockets.discard(one)
            cut(one)
