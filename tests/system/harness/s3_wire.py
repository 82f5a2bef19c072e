"""Signature Version 4, and requests over a plain socket, for requests that no SDK sends."""
import base64
import hashlib
import hmac
import socket
import time
import urllib.parse
import zlib

EMPTY = hashlib.sha256(b"").hexdigest()


def quote(text, safe="-._~"):
    return urllib.parse.quote(text, safe=safe)


def hmac256(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def crc32(body):
    return base64.b64encode(zlib.crc32(body).to_bytes(4, "big")).decode()


class Reply:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def code(self):
        """Returns the <Code> of an error."""
        start = self.body.find(b"<Code>")
        return self.body[start + 6 : self.body.find(b"</Code>")].decode() if start >= 0 else None


class Wire:
    """A client of a store that controls every byte."""

    service = "s3"

    def __init__(self, store):
        self.host, port = store.address.rsplit(":", 1)
        self.port = int(port)
        self.access_key, self.secret_key = store.access_key, store.secret_key

    def connect(self):
        return socket.create_connection((self.host, self.port), timeout=30)

    # --- signing

    def stamp(self, skew_s=0):
        return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(time.time() + skew_s))

    def key(self, date, region):
        key = ("AWS4" + self.secret_key).encode()
        for part in (date[:8], region, self.service, "aws4_request"):
            key = hmac256(key, part)
        return key

    def signature(self, method, path, query, headers, payload, date, region="us-east-1"):
        headers = {name.lower(): value for name, value in headers.items()}
        names = sorted(headers)
        pairs = sorted((quote(k), quote(v)) for k, v in urllib.parse.parse_qsl(query, keep_blank_values=True))
        canonical = "\n".join(
            [method, quote(urllib.parse.unquote_to_bytes(path), "/-._~"), "&".join(f"{k}={v}" for k, v in pairs)]
            + [f"{name}:{headers[name].strip()}" for name in names]
            + ["", ";".join(names), payload]
        )
        scope = f"{date[:8]}/{region}/{self.service}/aws4_request"
        text = f"AWS4-HMAC-SHA256\n{date}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
        return hmac256(self.key(date, region), text).hex(), ";".join(names), scope

    def sign(self, method, path, query="", headers=None, payload=EMPTY, skew_s=0, region="us-east-1"):
        """Returns all headers of a signed request."""
        date = self.stamp(skew_s)
        headers = {"host": f"{self.host}:{self.port}", "x-amz-date": date, "x-amz-content-sha256": payload} | (headers or {})
        signature, names, scope = self.signature(method, path, query, headers, payload, date, region)
        headers["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={self.access_key}/{scope}, SignedHeaders={names}, Signature={signature}"
        )
        return headers

    def presign(self, method, path, expires=60, skew_s=0, payload="UNSIGNED-PAYLOAD", **parameters):
        date = self.stamp(skew_s)
        query = parameters | {
            "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
            "X-Amz-Credential": f"{self.access_key}/{date[:8]}/us-east-1/s3/aws4_request",
            "X-Amz-Date": date,
            "X-Amz-Expires": str(expires),
            "X-Amz-SignedHeaders": "host",
        }
        text = "&".join(f"{quote(k)}={quote(v)}" for k, v in query.items())
        headers = {"host": f"{self.host}:{self.port}"}
        return text + "&X-Amz-Signature=" + self.signature(method, path, text, headers, payload, date)[0]

    # --- aws-chunked

    def chunked(self, chunks, headers, region="us-east-1", trailer=None, spoil=None, documented=False):
        """Returns the body of a STREAMING-AWS4-HMAC-SHA256-PAYLOAD request with these signed headers."""
        date, previous = headers["x-amz-date"], headers["authorization"].rsplit("=", 1)[1]
        scope = f"{date[:8]}/{region}/s3/aws4_request"
        body = b""

        def next_signature(kind, *digests):
            return hmac256(self.key(date, region), "\n".join([kind, date, scope, previous, *digests])).hex()

        for i, chunk in enumerate([*chunks, b""]):
            previous = next_signature("AWS4-HMAC-SHA256-PAYLOAD", EMPTY, hashlib.sha256(chunk).hexdigest())
            sent = "0" * 64 if spoil == i else previous
            body += f"{len(chunk):x};chunk-signature={sent}\r\n".encode() + chunk + (b"\r\n" if chunk else b"")
        if trailer:
            line = f"{trailer[0]}:{trailer[1]}\n"
            previous = next_signature("AWS4-HMAC-SHA256-TRAILER", hashlib.sha256(line.encode()).hexdigest())
            sent = "0" * 64 if spoil == "trailer" else previous
            newline = "\n\r\n" if documented else "\r\n"  # AWS's documentation has an empty line before the signature
            body += f"{trailer[0]}:{trailer[1]}{newline}x-amz-trailer-signature:{sent}\r\n".encode()
        return body + b"\r\n"

    # --- sending

    def head(self, method, target, headers):
        lines = [f"{method} {target} HTTP/1.1"] + [f"{name}: {value}" for name, value in headers.items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    def read(self, connection, method="GET"):
        stream = connection.makefile("rb")
        line = stream.readline()
        assert line, "the connection was closed without a reply"
        status = int(line.split()[1])
        headers = {}
        while (line := stream.readline().strip()) != b"":
            name, _, value = line.decode().partition(":")
            headers[name.lower()] = value.strip()
        if status == 100:
            return self.read(connection, method)
        length = int(headers.get("content-length", 0))
        body = b"" if method == "HEAD" or status in (204, 304) else stream.read(length)
        return Reply(status, headers, body)

    def send(self, method, path, query="", headers=None, body=b"", **how):
        """Sends a signed request with the hash of its body. Returns the reply."""
        payload = how.pop("payload", hashlib.sha256(body).hexdigest())
        signed = self.sign(method, path, query, headers, payload, **how)
        return self.raw(method, path + ("?" + query if query else ""), signed, body)

    def raw(self, method, target, headers, body=b""):
        if "content-length" not in {name.lower() for name in headers} and "transfer-encoding" not in headers:
            headers = headers | {"content-length": str(len(body))}
        with self.connect() as connection:
            connection.sendall(self.head(method, target, headers) + body)
            return self.read(connection, method)
