"""The metadata services of three clouds, with the headers, delays and error codes of the real ones.

    gcp = Gcp(); gcp.set("preempted", "TRUE")       # waiting requests get a reply
    aws = Aws(); aws.action("terminate", lead_s=120)
    azure = Azure("vm-7"); azure.event("Preempt", ["vm-7"], lead_s=30)

`url` is the base address; `seen` holds (method, path, headers, time) of every request.
"""
import http.server
import json
import secrets
import socketserver
import threading
import time
from email.utils import formatdate
from urllib.parse import parse_qs, urlsplit

NOT_FOUND = (
    b'<?xml version="1.0" encoding="iso-8859-1"?>\n<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Transitional//EN"\n'
    b'\t"http://www.w3.org/TR/xhtml1/DTD/xhtml1-transitional.dtd">\n<html xmlns="http://www.w3.org/1999/xhtml" xml:lang="en" lang="en">\n'
    b" <head>\n  <title>404 - Not Found</title>\n </head>\n <body>\n  <h1>404 - Not Found</h1>\n </body>\n</html>\n"
)


class Service:
    def __init__(self):
        self.seen = []
        self.changed = threading.Condition()
        self.stopping = False
        self.httpd = _Threads(("127.0.0.1", 0), _Handler)
        self.httpd.owner = self
        self.url = f"http://127.0.0.1:{self.httpd.server_address[1]}"
        self.thread = threading.Thread(target=self.httpd.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self.thread.start()

    def asked(self, path, method="GET"):
        with self.changed:
            return [request for request in self.seen if request[0] == method and request[1].partition("?")[0] == path]

    def close(self):
        with self.changed:
            self.stopping = True
            self.changed.notify_all()
        self.httpd.shutdown()
        self.httpd.server_close()
        self.thread.join(5)


class Gcp(Service):
    """Values below computeMetadata/v1/instance/; a request may wait until one changes."""

    ROOT = "/computeMetadata/v1/instance/"

    def __init__(self, **values):
        self.values = {"id": "4520031799277581759", "preempted": "FALSE", "maintenance-event": "NONE"} | values
        self.etags = {name: secrets.token_hex(8) for name in self.values}
        self.unavailable = 0  # number of requests that get 503, as during a migration of the machine
        super().__init__()

    def set(self, name, value):
        with self.changed:
            self.values[name], self.etags[name] = value, secrets.token_hex(8)
            self.changed.notify_all()

    def answer(self, handler, method, path, query, body):
        headers = {"Metadata-Flavor": "Google", "Content-Type": "application/text", "Server": "Metadata Server for VM",
                   "X-XSS-Protection": "0", "X-Frame-Options": "SAMEORIGIN"}  # fmt: skip
        name = path.removeprefix(self.ROOT)
        if handler.headers.get("Metadata-Flavor") != "Google":
            return 403, headers | {"Content-Type": "text/html; charset=UTF-8"}, b"<!DOCTYPE html><title>Error 403 (Forbidden)!!1</title>"
        if name not in self.values:
            return 404, headers | {"Content-Type": "text/html; charset=UTF-8"}, b"<!DOCTYPE html><title>Error 404 (Not Found)!!1</title>"
        with self.changed:
            if self.unavailable:
                self.unavailable -= 1
                return 503, headers | {"Content-Type": "text/html; charset=UTF-8"}, b"<title>Error 503 (Service Unavailable)!!1</title>"
            if query.get("wait_for_change") == ["true"]:
                last = query.get("last_etag", [self.etags[name]])[0]
                timeout = float(query.get("timeout_sec", ["3600"])[0])
                self.changed.wait_for(lambda: self.stopping or self.etags[name] != last, timeout)
            return 200, headers | {"ETag": self.etags[name]}, self.values[name].encode()


class Aws(Service):
    """IMDSv2: requests need a session token."""

    def __init__(self):
        self.documents = {}
        self.tokens = set()
        super().__init__()

    def action(self, action, lead_s=None, skew_s=0):
        """Sets the action of a spot instance. `skew_s` seconds are added to the clock of the service."""
        self.skew_s = skew_s
        document = {"action": action}
        if lead_s is not None:
            document["time"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + skew_s + lead_s))
        self.documents["/latest/meta-data/spot/instance-action"] = document

    def rebalance(self):
        self.documents["/latest/meta-data/events/recommendations/rebalance"] = {"noticeTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}

    skew_s = 0

    def answer(self, handler, method, path, query, body):
        headers = {"Server": "EC2ws", "Connection": "close", "Content-Type": "text/plain",
                   "Date": formatdate(time.time() + self.skew_s, usegmt=True)}  # fmt: skip
        if path == "/latest/api/token":
            ttl = handler.headers.get("X-aws-ec2-metadata-token-ttl-seconds")
            if method != "PUT" or not ttl or not 1 <= int(ttl) <= 21600:
                return 400, headers, b""
            token = "AQAEA" + secrets.token_urlsafe(48)[:46] + "=="
            self.tokens.add(token)
            return 200, headers | {"X-Aws-Ec2-Metadata-Token-Ttl-Seconds": ttl}, token.encode()
        if handler.headers.get("X-aws-ec2-metadata-token") not in self.tokens:
            return 401, headers | {"Content-Type": "text/html"}, NOT_FOUND.replace(b"404 - Not Found", b"401 - Unauthorized")
        if path not in self.documents:
            return 404, headers | {"Content-Type": "text/html"}, NOT_FOUND
        return 200, headers, json.dumps(self.documents[path]).encode()


class Azure(Service):
    """Scheduled events of a machine. The first request turns the service on, which takes `first_s` seconds."""

    EVENTS = "/metadata/scheduledevents"

    def __init__(self, name, first_s=0):
        self.name = name
        self.first_s = first_s
        self.events = []
        self.incarnation = 1
        self.started = []  # ids that were acknowledged
        super().__init__()

    def event(self, kind, resources, lead_s=30, status="Scheduled"):
        event = {
            "EventId": secrets.token_hex(4).upper() + "-6C75-4D18-A0AA-5E1DD4DC21C5",
            "EventStatus": status,
            "EventType": kind,
            "ResourceType": "VirtualMachine",
            "Resources": resources,
            "NotBefore": formatdate(time.time() + lead_s, usegmt=True),
            "Description": "",
            "EventSource": "Platform",
            "DurationInSeconds": -1,
        }
        with self.changed:
            self.events.append(event)
            self.incarnation += 1
        return event["EventId"]

    def withdraw(self):
        with self.changed:
            self.events.clear()
            self.incarnation += 1

    def answer(self, handler, method, path, query, body):
        headers = {"Content-Type": "application/json; charset=utf-8", "Server": "IMDS/150.870.65.1854"}
        if handler.headers.get("Metadata") != "true":
            return 400, headers, b'{ "error": "Bad request. Required metadata header not specified" }'
        if "api-version" not in query:
            return 400, headers, b'{ "error": "Bad request. api-version was not specified in the request" }'
        if path == "/metadata/instance/compute/name":
            return 200, headers | {"Content-Type": "text/plain; charset=utf-8"}, self.name.encode()
        if path != self.EVENTS:
            return 404, headers, b'{ "error": "Not found" }'
        if method == "POST":
            with self.changed:
                self.started += [request["EventId"] for request in json.loads(body)["StartRequests"]]
            return 200, headers, b""
        first, self.first_s = self.first_s, 0
        with self.changed:
            self.changed.wait_for(lambda: self.stopping, first)
            return 200, headers, json.dumps({"DocumentIncarnation": self.incarnation, "Events": self.events}).encode()


class _Threads(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request, client_address):
        pass


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format, *args):
        pass

    def do_GET(self):
        owner = self.server.owner
        with owner.changed:
            owner.seen.append((self.command, self.path, dict(self.headers), time.monotonic()))
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = urlsplit(self.path)
        status, headers, content = owner.answer(self, self.command, parts.path, parse_qs(parts.query), body)
        self.send_response_only(status)
        for name, value in ({"Date": formatdate(usegmt=True)} | headers | {"Content-Length": str(len(content))}).items():
            self.send_header(name, value)
        self.close_connection = headers.get("Connection") == "close"
        self.end_headers()
        self.wfile.write(content)

    do_PUT = do_POST = do_GET
