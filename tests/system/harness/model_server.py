#!/usr/bin/python3
"""A model server like those of users: it replies with its weights, and drains its connections on SIGTERM.

    model_server.py DIRECTORY [--port N] [--health-port N]

The weights are the file DIRECTORY/weights. DIRECTORY/behaviour may contain "crash" or "hang" (at
the start), "slow" (starts after 3 s), "sick" (is never healthy), "late-crash" (crashes 0.5 s after
it was healthy), or "late-stuck" (blocks 0.5 s after it was healthy, and crashes 1 s later). Without
--port the server uses the socket that its parent passes (sd_listen_fds(3)). On SIGHUP the server
reads the weights again.
"""
import argparse
import asyncio
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

IDLE_S = 5  # closes an idle connection after this time


class Server:
    def __init__(self, directory):
        self.directory, self.draining, self.open = Path(directory), False, set()
        self.sick = False
        self.load()

    def load(self):
        self.weights = (self.directory / "weights").read_text()
        behaviour = self.directory / "behaviour"
        self.behaviour = behaviour.read_text().strip() if behaviour.exists() else ""
        self.sick = self.behaviour == "sick"

    def reply(self, path):
        if path == "/health" and self.sick:
            return 503, "sick"
        if path == "/health" and self.behaviour == "late-crash":
            asyncio.get_running_loop().call_later(0.5, os._exit, 3)
        if path == "/health" and self.behaviour == "late-stuck":
            asyncio.get_running_loop().call_later(0.5, self.stick)
        return 200, json.dumps({"weights": self.weights, "version": os.environ.get("PENSTOCK_MODEL_VERSION"), "pid": os.getpid()})

    def stick(self):
        print("stuck", flush=True)
        time.sleep(1)
        os._exit(3)

    async def serve(self, reader, writer):
        self.open.add(writer)
        try:
            while True:
                request = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), IDLE_S)
                status, text = self.reply(request.split(b" ")[1].decode())
                last = self.draining or b"connection: close" in request.lower()
                body = text.encode()
                head = f"HTTP/1.1 {status} OK\r\nContent-Length: {len(body)}\r\n" + ("Connection: close\r\n" if last else "") + "\r\n"
                writer.write(head.encode() + body)
                await writer.drain()
                if last:
                    break
        except (asyncio.IncompleteReadError, asyncio.TimeoutError, ConnectionError):
            pass
        finally:
            self.open.discard(writer)
            writer.close()


def sockets(arguments):
    if arguments.port is None:
        assert os.environ["LISTEN_PID"] == str(os.getpid()) and os.environ["LISTEN_FDS"] == "1"
        yield socket.socket(fileno=3)
    for port in (arguments.port, arguments.health_port):
        if port is not None:
            listener = socket.socket()
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            listener.bind(("127.0.0.1", port))
            listener.listen(1000)
            yield listener


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("directory")
    parser.add_argument("--port", type=int)
    parser.add_argument("--health-port", type=int)
    arguments = parser.parse_args()
    server = Server(arguments.directory)
    if server.behaviour == "crash":
        sys.exit("the weights cannot be loaded")
    if server.behaviour == "slow":
        time.sleep(3)
    if server.behaviour == "hang":
        await asyncio.sleep(1000)
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    loop.add_signal_handler(signal.SIGHUP, server.load)
    listeners = [await asyncio.start_server(server.serve, sock=sock) for sock in sockets(arguments)]
    await ended.wait()
    server.draining = True
    for listener in listeners:
        listener.close()
    while server.open:
        await asyncio.sleep(0.01)


asyncio.run(main())
