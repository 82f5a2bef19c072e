"""A service that issues tokens for a registry, by the token authentication of the distribution specification.

    service = TokenService(make_key(folder), users={"ann": "password"}, public=("job/open",))
    registry = Registry(folder, more=service.registry_lines())
    service.asked          # [(login or None, the query)] of every request for a token
    service.stale = 1      # the next token is already expired

Tokens are JSON Web Tokens. They contain the certificate of their key (x5c), which the registry trusts.
"""
import base64
import http.server
import json
import os
import socketserver
import subprocess
import threading
import time
from urllib.parse import parse_qs, urlsplit

NAME, ISSUER = "registry.test", "token service of a test"


def text64(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def make_key(folder):
    """Makes a private key and its certificate; returns both paths."""
    folder.mkdir()
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=tokens", "-keyout", key, "-out", certificate],
                   check=True, capture_output=True)  # fmt: skip
    return key, certificate


class TokenService:
    def __init__(self, key, users, public=(), field="token"):
        self.key, self.certificate = key
        self.users, self.public, self.field = users, public, field
        self.asked, self.stale = [], 0
        self.lock = threading.Lock()
        self.httpd = _Threads(("127.0.0.1", 0), _Handler)
        self.httpd.owner = self
        self.url = f"http://127.0.0.1:{self.httpd.server_address[1]}/token"
        self.thread = threading.Thread(target=self.httpd.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self.thread.start()

    def registry_lines(self):
        return [f"auth: {{token: {{realm: '{self.url}', service: {NAME}, issuer: {ISSUER}, rootcertbundle: {self.certificate}}}}}"]

    def access(self, user, scopes):
        """Returns the granted scopes of a user, or of an anonymous client: pull only."""
        granted = []
        for scope in scopes:
            kind, name, actions = scope.split(":")
            if user or name in self.public:
                granted.append({"type": kind, "name": name, "actions": [action for action in actions.split(",") if action == "pull"]})
        return granted

    def token(self, user, scopes):
        now = int(time.time())
        with self.lock:
            fresh, self.stale = self.stale == 0, max(0, self.stale - 1)
        chain = ["".join(self.certificate.read_text().split("-----")[2].split())]
        header = {"typ": "JWT", "alg": "RS256", "x5c": chain}
        claims = {"iss": ISSUER, "sub": user or "", "aud": NAME, "exp": now + 300 if fresh else now - 7200, "nbf": now - 9000, "iat": now - 9000,
                  "jti": text64(os.urandom(9)), "access": self.access(user, scopes)}  # fmt: skip
        signed = ".".join(text64(json.dumps(part).encode()) for part in (header, claims))
        made = subprocess.run(["openssl", "dgst", "-sha256", "-sign", self.key], input=signed.encode(), stdout=subprocess.PIPE, check=True)
        return f"{signed}.{text64(made.stdout)}"

    def close(self):
        self.httpd.shutdown()
        self.httpd.server_close()
        self.thread.join(5)


class _Threads(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format, *args):
        pass

    def answer(self, status, content):
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        owner, query = self.server.owner, parse_qs(urlsplit(self.path).query)
        header, user = self.headers.get("Authorization", ""), None
        if header.startswith("Basic "):
            user, _, password = base64.b64decode(header[6:]).decode().partition(":")
        with owner.lock:
            owner.asked.append((user, query))
        if header and owner.users.get(user) != password:
            return self.answer(401, {"errors": [{"code": "UNAUTHORIZED", "message": "wrong login"}]})
        self.answer(200, {owner.field: owner.token(user, query.get("scope", [])), "expires_in": 300})
