"""Serves a checkpoint of train.py over HTTP: POST / with the 784 bytes of a picture replies with its digit.

The program serves the socket that `penstock deploy` passes as descriptor 3. Before the program
ends, it replies to all requests that it has received.
"""
import json
import os
import signal
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch
from penstock import checkpoint

saved = checkpoint.load(sys.argv[1])
model = torch.nn.Sequential(torch.nn.Linear(784, saved["hidden"]), torch.nn.ReLU(), torch.nn.Linear(saved["hidden"], 10))
model.load_state_dict(saved["model"])
torch.set_num_threads(1)
VERSION = os.environ["PENSTOCK_MODEL_VERSION"]


class Handler(BaseHTTPRequestHandler):
    def reply(self, status, **values):
        body = json.dumps(values).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.reply(200, version=VERSION)

    def do_POST(self):
        picture = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if len(picture) != 784:
            return self.reply(400, error="expected 784 bytes, 28 x 28 pixels")
        with torch.no_grad():
            scores = model(torch.frombuffer(bytearray(picture), dtype=torch.uint8).float() / 255)
        self.reply(200, digit=int(scores.argmax()), version=VERSION)

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    def handle_error(self, request, client_address):
        pass  # the client has gone: for example a health check from before the server was ready

    daemon_threads = False  # server_close() waits until the threads have replied

    def __init__(self, listener):
        super().__init__(listener.getsockname(), Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener


server = Server(socket.socket(fileno=3))
signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
server.serve_forever()
server.server_close()
