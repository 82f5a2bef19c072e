"""Makes host names of the internet lead to servers of a test, for programs in a separate network.

    world = World(folder, ["ghcr.io", "www.cs.toronto.edu"])
    world.lead("ghcr.io", registry.url)       # decrypts TLS of port 443, and forwards the bytes to that server
    penstock.prefix = world.prefix            # runs in that network, with an /etc/hosts of these names
    penstock.env["SSL_CERT_FILE"] = world.authority
    world.close()

The separate network is a network namespace and a mount namespace, which need root. Servers and
tests are outside of both.
"""
import asyncio
import contextlib
import ctypes
import socket
import ssl
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

from .waiting import wait_for

CLONE_NEWNET = 0x40000000
BLOCK = 1 << 18
BEGIN = """ip link set lo up && mount --bind "$1" /etc/hosts && echo ready && exec cat"""
# nsenter changes to the root of the mount namespace; the script changes back to the current directory.
ENTER = """exec nsenter --net=/proc/%d/ns/net --mount=/proc/%d/ns/mnt -- sh -c 'cd "$0" && exec "$@"' "$(pwd)" "$@" """


def is_possible():
    return subprocess.run(["unshare", "--net", "--mount", "true"], capture_output=True).returncode == 0


@contextlib.contextmanager
def own_network():
    """A network namespace with a loopback interface, for the calling thread and all threads and processes that it starts."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/thread-self/ns/net", "rb") as before:
        if libc.unshare(CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "cannot create a network namespace; run the test as root")
        try:
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
            yield
        finally:
            libc.setns(before.fileno(), CLONE_NEWNET)


def openssl(*words, **more):
    return subprocess.run(["openssl", *words], check=True, capture_output=True, **more).stdout


KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]


def make_certificate(folder, names):
    """Returns (the authority's certificate, a file with key and certificate for these names)."""
    authority, key, leaf, request = (folder / name for name in ("authority.pem", "authority.key", "leaf.pem", "request.pem"))
    openssl("req", "-x509", *KEY, "-days", "2", "-subj", "/CN=authority of a test", "-addext", "keyUsage=critical,keyCertSign",
            "-keyout", key, "-out", authority)  # fmt: skip
    alternatives = ",".join("DNS:" + name for name in names)
    openssl("req", "-new", *KEY, "-subj", "/CN=test", "-addext", f"subjectAltName={alternatives}", "-keyout", leaf, "-out", request)
    certificate = openssl("x509", "-req", "-in", request, "-CA", authority, "-CAkey", key, "-CAcreateserial", "-days", "2", "-copy_extensions", "copy")
    with open(leaf, "ab") as file:
        file.write(certificate)
    return authority, leaf


async def pass_on(reader, writer):
    try:
        while block := await reader.read(BLOCK):
            writer.write(block)
            await writer.drain()
    except OSError:  # one side has closed its connection; `finally` closes the other side
        pass
    finally:
        writer.close()


class World:
    def __init__(self, folder, names):
        folder.mkdir()
        self.addresses = {name: f"127.0.1.{number}" for number, name in enumerate(names, 1)}
        self.targets = {}
        self.authority, leaf = make_certificate(folder, names)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(leaf)
        hosts = folder / "hosts"
        hosts.write_text("127.0.0.1 localhost\n" + "".join(f"{address} {name}\n" for name, address in self.addresses.items()))
        self.holder = subprocess.Popen(["unshare", "--net", "--mount", "sh", "-c", BEGIN, "sh", hosts], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.holder.stdout.readline() == b"ready\n", "cannot create a network namespace"
        self.prefix = ["sh", "-c", ENTER % (self.holder.pid, self.holder.pid), "sh"]
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.listening = [self.call(self.listen(name)) for name in names]

    def call(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(60)

    def inside(self, action):
        """Calls action() in a thread that has entered the network; sockets that it opens are in this network."""

        def moved():
            with open(f"/proc/{self.holder.pid}/ns/net", "rb") as network:
                if ctypes.CDLL(None, use_errno=True).setns(network.fileno(), CLONE_NEWNET) != 0:
                    raise OSError(ctypes.get_errno(), "setns")
            return action()

        with ThreadPoolExecutor(1) as pool:
            return pool.submit(moved).result(60)

    async def listen(self, name):
        listening = self.inside(lambda: socket.create_server((self.addresses[name], 443), backlog=128))

        async def take(reader, writer):
            try:
                there = await asyncio.open_connection(*self.targets[name])
            except (KeyError, OSError):  # no server for that name now
                writer.close()
                return
            await asyncio.gather(pass_on(reader, there[1]), pass_on(there[0], writer))

        return await asyncio.start_server(take, sock=listening, ssl=self.context)

    def lead(self, name, url):
        """Makes new connections to that name go to that server."""
        parts = urlsplit(url)
        self.targets[name] = (parts.hostname, parts.port)

    def run(self, *words, **more):
        return subprocess.run([*self.prefix, *map(str, words)], capture_output=True, text=True, timeout=120, **more)

    async def end(self):
        for server in self.listening:
            server.close()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def close(self):
        self.call(self.end())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(60)
        self.loop.close()
        self.holder.stdin.close()
        self.holder.stdout.close()
        wait_for(lambda: self.holder.poll() is not None, what="the namespace ends")
