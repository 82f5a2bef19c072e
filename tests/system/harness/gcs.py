"""Google Cloud Storage's XML API in memory, as its documentation describes it, and the services that issue tokens.

    gcs = Gcs()                         # buckets: gcs.buckets["train"] = {}
    gcs.env                             # STORAGE_EMULATOR_HOST, without an identity
    gcs.hmac_env / gcs.key_file(path)   # environment or key file with an identity
    gcs.guarded = True                  # requests must have an identity

Like Google, the server refuses a request with both x-goog and x-amz headers, checks x-goog-hash,
generation preconditions (refused for uploads in parts), signatures and tokens, and can neither
copy parts nor delete several keys at once.
"""
import base64
import ctypes
import functools
import hashlib
import hmac
import http.server
import itertools
import json
import socketserver
import subprocess
import threading
import time
from dataclasses import dataclass, field
from email.utils import formatdate
from urllib.parse import parse_qs, parse_qsl, quote, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

XML = '<?xml version="1.0" encoding="UTF-8"?>\n'
SPACE = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
_isal = ctypes.CDLL("libisal.so.2")


def crc32c(data):
    return _isal.crc32_iscsi(bytes(data), len(data), 0xFFFFFFFF) & 0xFFFFFFFF ^ 0xFFFFFFFF


assert crc32c(b"123456789") == 0xE3069283  # RFC 3720's check value


def crc32c_text(data):
    return base64.b64encode(crc32c(data).to_bytes(4, "big")).decode()


def md5_text(data):
    return base64.b64encode(hashlib.md5(data).digest()).decode()


@functools.cache
def rsa_key():
    """Returns the private and the public key of all tests, in PEM."""
    made = subprocess.run(["openssl", "genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"], check=True, capture_output=True)
    public = subprocess.run(["openssl", "pkey", "-pubout"], input=made.stdout, check=True, capture_output=True)
    return made.stdout.decode(), public.stdout


@dataclass
class Object:
    body: bytes
    generation: int
    headers: dict
    composed: bool = False  # uploaded in parts, without an MD5
    changed: float = field(default_factory=time.time)
    crc: str = ""

    def __post_init__(self):
        self.crc = self.crc or crc32c_text(self.body)

    @property
    def etag(self):
        return f'"-CK{self.generation}EAE="' if self.composed else f'"{hashlib.md5(self.body).hexdigest()}"'

    def reply_headers(self):
        return self.headers | {
            "ETag": self.etag, "x-goog-generation": str(self.generation), "x-goog-metageneration": "1",
            "x-goog-hash": f"crc32c={self.crc}" + ("" if self.composed else f",md5={md5_text(self.body)}"),
            "x-goog-stored-content-length": str(len(self.body)), "Last-Modified": formatdate(self.changed, usegmt=True),
            "x-goog-storage-class": self.headers.get("x-goog-storage-class", "STANDARD"),
        }  # fmt: skip


class Gcs:
    def __init__(self, context=None):
        self.buckets, self.uploads, self.numbers = {}, {}, itertools.count(1_700_000_000_000_001)
        self.lock, self.requests, self.guarded, self.faults, self.damage = threading.RLock(), [], False, [], False
        self.access_key, self.secret_key = "GOOG1EOFTHETESTS", "hmac-secret-of-the-tests"
        self.tokens, self.token_life_s, self.assertions, self.token_error = {}, 3600, [], None
        self.httpd = _Threads(("127.0.0.1", 0), _Handler)
        self.httpd.owner = self
        if context:
            self.httpd.socket = context.wrap_socket(self.httpd.socket, server_side=True)
        self.authority = f"127.0.0.1:{self.httpd.server_address[1]}"
        self.url = f"http{'s' if context else ''}://{self.authority}"
        self.thread = threading.Thread(target=self.httpd.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self.thread.start()

    def put(self, bucket, key, body=b"x", **headers):
        """Stores an object without a request; returns the object."""
        self.buckets[bucket][key] = Object(body, next(self.numbers), {"content-type": "text/plain"} | headers)
        return self.buckets[bucket][key]

    @property
    def env(self):
        return {"STORAGE_EMULATOR_HOST": self.url, "NO_GCE_CHECK": "true"}

    @property
    def hmac_env(self):
        return self.env | {"GS_ACCESS_KEY_ID": self.access_key, "GS_SECRET_ACCESS_KEY": self.secret_key}

    def key_file(self, path, token_uri=None):
        """Writes the key file of a service account that this server knows; returns the path."""
        private, self.public_key = rsa_key()
        self.email = "trainer@lab.iam.gserviceaccount.com"
        path.write_text(json.dumps({
            "type": "service_account", "project_id": "lab", "private_key_id": "key-1", "private_key": private,
            "client_email": self.email, "token_uri": token_uri or f"{self.url}/token",
        }))  # fmt: skip
        self.key_folder = path.parent
        return path

    def token_env(self, path):
        return self.env | {"GOOGLE_APPLICATION_CREDENTIALS": str(path)}

    def bodies(self, bucket):
        return {key: found.body for key, found in self.buckets[bucket].items()}

    def seen(self, method=None, **headers):
        with self.lock:
            return [r for r in self.requests if method in (None, r["method"]) and all(
                r["headers"].get(name.replace("_", "-")) == value for name, value in headers.items())]  # fmt: skip

    def fault(self, status, method="PUT", code="ServiceUnavailable", times=1):
        """Refuses the next requests with `method`, before they have an effect."""
        with self.lock:
            self.faults += [(method, status, code)] * times

    def verified(self, text, signature):
        """Returns True if openssl finds that the service account signed the text."""
        paths = [self.key_folder / f"{name}-{next(self.numbers)}" for name in ("public", "signature")]
        for path, data in zip(paths, (self.public_key, signature)):
            path.write_bytes(data)
        done = subprocess.run(
            ["openssl", "dgst", "-sha256", "-verify", paths[0], "-signature", paths[1]], input=text, capture_output=True
        )
        return done.returncode == 0

    def grant(self):
        token = f"ya29.token-of-the-tests-{next(self.numbers)}"
        self.tokens[token] = time.monotonic() + self.token_life_s
        return {"access_token": token, "expires_in": self.token_life_s, "token_type": "Bearer"}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.httpd.shutdown()
        self.httpd.server_close()
        self.thread.join(5)


class _Threads(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads, request_queue_size = True, 128

    def handle_error(self, request, client_address):
        pass


class Refused(Exception):
    def __init__(self, status, code, message="refused"):
        self.status, self.code, self.message = status, code, message


def unbase64url(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version, disable_nagle_algorithm = "HTTP/1.1", True

    def log_message(self, *args):
        pass

    def answer(self, status, body=b"", headers=None):
        body = body.encode() if isinstance(body, str) else body
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if "Content-Length" not in (headers or {}):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def xml(self, text, status=200, headers=None):
        self.answer(status, XML + text, {"Content-Type": "application/xml; charset=UTF-8"} | (headers or {}))

    def handle_request(self):
        gcs = self.gcs = self.server.owner
        url = urlsplit(self.path)
        self.query = {name: values[0] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
        self.raw_path, self.raw_query = url.path, url.query
        self.bucket, _, key = url.path[1:].partition("/")
        self.key = unquote(key)
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.h = {name.lower(): value for name, value in self.headers.items()}
        with gcs.lock:
            gcs.requests.append({"method": self.command, "path": self.path, "headers": self.h})
            fault = next((f for f in gcs.faults if f[0] == self.command), None)
            if fault:
                gcs.faults.remove(fault)
        try:
            if fault:
                raise Refused(fault[1], fault[2])
            if url.path == "/token" or url.path.startswith("/computeMetadata/"):
                return self.token()
            self.check()
            with gcs.lock:
                getattr(self, f"{'object' if self.key else 'bucket' if self.bucket else 'service'}_{self.command.lower()}")()
        except Refused as why:
            self.xml(f"<Error><Code>{why.code}</Code><Message>{escape(why.message)}</Message></Error>", why.status)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_request

    # --- identities

    def token(self):
        form = dict(parse_qsl(self.body.decode()))
        if self.raw_path.startswith("/computeMetadata/"):
            if self.h.get("metadata-flavor") != "Google":
                return self.answer(403, "Missing Metadata-Flavor")
        elif form.get("grant_type") == "refresh_token":
            if form["refresh_token"] != "refresh-of-the-tests":
                return self.answer(400, json.dumps({"error": "invalid_grant", "error_description": "Token has been revoked."}))
        else:
            jwt = form["assertion"]
            claims = json.loads(unbase64url(jwt.split(".")[1]))
            signed = self.gcs.verified(jwt.rpartition(".")[0].encode(), unbase64url(jwt.split(".")[2]))
            self.gcs.assertions.append(claims)
            if self.gcs.token_error or not signed or claims["iss"] != self.gcs.email or abs(claims["iat"] - time.time()) > 300:
                why = self.gcs.token_error or "Invalid JWT Signature."
                return self.answer(400, json.dumps({"error": "invalid_grant", "error_description": why}))
        self.answer(200, json.dumps(self.gcs.grant()), {"Content-Type": "application/json"})

    def check(self):
        """Refuses requests for reasons that Google checks before the operation."""
        if any(n.startswith("x-goog-") for n in self.h) and any(n.startswith("x-amz-") for n in self.h):
            raise Refused(400, "InvalidArgument", "Requests cannot specify both x-amz and x-goog headers")
        if any(n.startswith("x-amz-") for n in self.h) or "if-none-match" in self.h:
            raise Refused(400, "InvalidArgument", "a header of S3")
        if not self.gcs.guarded:
            return
        authorization = self.h.get("authorization", "")
        if authorization.startswith("Bearer "):
            if self.gcs.tokens.get(authorization[7:], 0) < time.monotonic():
                raise Refused(401, "AuthenticationRequired", "Authentication required.")
        elif authorization.startswith("GOOG4-HMAC-SHA256 "):
            parts = dict(part.strip().split("=", 1) for part in authorization.split(" ", 1)[1].split(","))
            names = parts["SignedHeaders"].split(";")
            if not {"host", "x-goog-date", "x-goog-content-sha256"} <= set(names) or any(
                n.startswith("x-goog-") and n not in names for n in self.h
            ):  # fmt: skip
                raise Refused(403, "SignatureDoesNotMatch", "a header is not signed")
            hashed = self.h["x-goog-content-sha256"]
            if hashed != "UNSIGNED-PAYLOAD" and hashed != hashlib.sha256(self.body).hexdigest():
                raise Refused(400, "BadDigest")
            self.check_signature("GOOG4-HMAC-SHA256", parts["Credential"], self.h["x-goog-date"], names, self.raw_query, hashed, parts["Signature"])
        elif "X-Goog-Signature" in self.query:
            q, rest = self.query, "&".join(p for p in self.raw_query.split("&") if not p.startswith("X-Goog-Signature="))
            self.check_signature(q["X-Goog-Algorithm"], q["X-Goog-Credential"], q["X-Goog-Date"], q["X-Goog-SignedHeaders"].split(";"),
                                 rest, "UNSIGNED-PAYLOAD", q["X-Goog-Signature"])  # fmt: skip
        else:
            raise Refused(401, "AuthenticationRequired", "Authentication required.")

    def check_signature(self, algorithm, credential, date, names, query, hashed, signature):
        who, day, place, service, end = credential.rsplit("/", 4)
        sorted_query = "&".join(f"{quote(n, safe='-_.~')}={quote(v, safe='-_.~')}" for n, v in sorted(parse_qsl(query, keep_blank_values=True)))
        canonical = "\n".join([self.command, self.raw_path, sorted_query, *(f"{n}:{' '.join(self.h[n].split())}" for n in names), "",
                               ";".join(names), hashed])  # fmt: skip
        text = "\n".join([algorithm, date, f"{day}/{place}/{service}/{end}", hashlib.sha256(canonical.encode()).hexdigest()])
        if algorithm == "GOOG4-RSA-SHA256":
            good = who == self.gcs.email and self.gcs.verified(text.encode(), bytes.fromhex(signature))
        else:
            key = ("GOOG4" + self.gcs.secret_key).encode()
            for piece in (day, place, service, end):
                key = hmac.new(key, piece.encode(), hashlib.sha256).digest()
            good = who == self.gcs.access_key and hmac.new(key, text.encode(), hashlib.sha256).hexdigest() == signature
        if not good or (service, end) != ("storage", "goog4_request"):
            raise Refused(403, "SignatureDoesNotMatch", "The request signature we calculated does not match.")

    # --- the service and its buckets

    def objects(self):
        if self.bucket not in self.gcs.buckets:
            raise Refused(404, "NoSuchBucket", "The specified bucket does not exist.")
        return self.gcs.buckets[self.bucket]

    def service_get(self):
        rows = "".join(f"<Bucket><Name>{n}</Name><CreationDate>2026-01-01T00:00:00.000Z</CreationDate></Bucket>" for n in self.gcs.buckets)
        self.xml(f"<ListAllMyBucketsResult {SPACE}><Owner><ID>1</ID></Owner><Buckets>{rows}</Buckets></ListAllMyBucketsResult>")

    def bucket_put(self):
        if self.bucket in self.gcs.buckets:
            raise Refused(409, "BucketAlreadyOwnedByYou", "Your previous request to create the named bucket succeeded.")
        self.gcs.buckets[self.bucket] = {}
        self.answer(200)

    def bucket_head(self):
        self.objects()
        self.answer(200)

    def bucket_delete(self):
        if self.objects():
            raise Refused(409, "BucketNotEmpty", "The bucket you tried to delete is not empty.")
        del self.gcs.buckets[self.bucket]
        self.answer(204)

    def bucket_post(self):
        raise Refused(400, "InvalidArgument", "there is no such request")

    def bucket_get(self):
        found, q = self.objects(), self.query
        if "uploads" in q:
            rows = "".join(f"<Upload><Key>{escape(u['key'])}</Key><UploadId>{i}</UploadId><Initiated>2026-01-01T00:00:00.000Z</Initiated></Upload>"
                           for i, u in self.gcs.uploads.items() if u["bucket"] == self.bucket)  # fmt: skip
            return self.xml(f"<ListMultipartUploadsResult {SPACE}><IsTruncated>false</IsTruncated>{rows}</ListMultipartUploadsResult>")
        prefix, delimiter, most = q.get("prefix", ""), q.get("delimiter"), int(q.get("max-keys", 1000))
        after = q.get("continuation-token") or q.get("start-after") or q.get("marker") or ""
        shown = quote if q.get("encoding-type") == "url" else escape
        rows, prefixes, last, truncated = [], [], "", False
        for key in sorted(found, key=lambda k: k.encode()):
            group = prefix + key[len(prefix):].split(delimiter)[0] + delimiter if delimiter and delimiter in key[len(prefix):] else None
            if not key.startswith(prefix) or (group or key).encode() <= after.encode() or group in prefixes or (group and group <= after):
                continue
            if len(rows) + len(prefixes) == most:
                truncated = True
                break
            last = group or key
            if group:
                prefixes.append(group)
                continue
            o = found[key]
            when = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(o.changed))
            rows.append(f"<Contents><Key>{shown(key)}</Key><Generation>{o.generation}</Generation><MetaGeneration>1</MetaGeneration>"
                        f"<LastModified>{when}</LastModified><ETag>{escape(o.etag)}</ETag><Size>{len(o.body)}</Size></Contents>")  # fmt: skip
        encoding = "<EncodingType>url</EncodingType>" if q.get("encoding-type") == "url" else ""
        token = f"<NextContinuationToken>{escape(last)}</NextContinuationToken>" if truncated else ""
        self.xml(f"<ListBucketResult {SPACE}><Name>{self.bucket}</Name><Prefix>{shown(prefix)}</Prefix>{encoding}<KeyCount>{len(rows)}</KeyCount>"
                 f"<IsTruncated>{str(truncated).lower()}</IsTruncated>{token}{''.join(rows)}"
                 f"{''.join(f'<CommonPrefixes><Prefix>{shown(p)}</Prefix></CommonPrefixes>' for p in prefixes)}</ListBucketResult>")  # fmt: skip

    # --- objects

    def precondition(self, present, name="x-goog-if-generation-match"):
        wanted = self.h.get(name)
        if wanted is not None and int(wanted) != (present.generation if present else 0):
            raise Refused(412, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold.")

    def there(self):
        found = self.objects().get(self.key)
        if not found:
            raise Refused(404, "NoSuchKey", "The specified key does not exist.")
        return found

    def own_headers(self):
        kept = {"content-type": self.h.get("content-type", "application/octet-stream")}
        return kept | {n: v for n, v in self.h.items() if n.startswith("x-goog-meta-") or n in ("x-goog-storage-class", "content-encoding")}

    def check_hash(self):
        if self.gcs.damage:
            self.body = bytes([self.body[0] ^ 1]) + self.body[1:]
        for kind, _, value in (part.strip().partition("=") for part in self.h.get("x-goog-hash", "").split(",") if part):
            if value != (crc32c_text(self.body) if kind == "crc32c" else md5_text(self.body)):
                raise Refused(400, "BadDigest", "The CRC32C you specified did not match what was computed.")

    def object_head(self):
        self.object_get()

    def object_get(self):
        found = self.there()
        self.precondition(found)
        body, headers, status = found.body, found.reply_headers(), 200
        if found.headers.get("content-encoding") == "gzip" and "gzip" not in self.h.get("accept-encoding", ""):
            raise Refused(500, "InternalError", "would be unpacked on its way")
        wanted = self.h.get("range")
        if wanted and self.command == "GET":
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            if int(first) >= len(body):
                raise Refused(416, "InvalidRange")
            last = min(int(last or len(body)), len(body) - 1)
            headers["Content-Range"], status = f"bytes {first}-{last}/{len(body)}", 206
            body = body[int(first) : last + 1]
        self.answer(status, body, headers | {"Content-Length": str(len(body))})

    def put(self, body, headers, composed=False):
        made = Object(body, next(self.gcs.numbers), headers, composed)
        self.objects()[self.key] = made
        return made

    def object_put(self):
        present = self.objects().get(self.key)
        if "uploadId" in self.query:
            if "x-goog-copy-source" in self.h:
                raise Refused(400, "InvalidArgument", "there are no copies of parts")
            upload = self.gcs.uploads.get(self.query["uploadId"])
            if not upload:
                raise Refused(404, "NoSuchUpload")
            self.check_hash()
            upload["parts"][int(self.query["partNumber"])] = self.body
            return self.answer(200, headers={"ETag": f'"{hashlib.md5(self.body).hexdigest()}"', "x-goog-hash": f"crc32c={crc32c_text(self.body)}"})
        self.precondition(present)
        if "x-goog-copy-source" in self.h:
            bucket, _, key = unquote(self.h["x-goog-copy-source"]).lstrip("/").partition("/")
            source = self.gcs.buckets.get(bucket, {}).get(key)
            if not source:
                raise Refused(404, "NoSuchKey")
            self.precondition(source, "x-goog-copy-source-if-generation-match")
            made = self.put(source.body, source.headers, source.composed)
            when = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(made.changed))
            return self.xml(f"<CopyObjectResult><LastModified>{when}</LastModified><ETag>{escape(made.etag)}</ETag></CopyObjectResult>",
                            headers={"x-goog-generation": str(made.generation)})  # fmt: skip
        self.check_hash()
        made = self.put(self.body, self.own_headers())
        self.answer(200, headers={n: v for n, v in made.reply_headers().items() if n in ("ETag", "x-goog-generation", "x-goog-hash")})

    def object_delete(self):
        if "uploadId" in self.query:
            if not self.gcs.uploads.pop(self.query["uploadId"], None):
                raise Refused(404, "NoSuchUpload")
            return self.answer(204)
        found = self.there()
        self.precondition(found)
        del self.objects()[self.key]
        self.answer(204)

    def object_post(self):
        self.objects()
        if "x-goog-if-generation-match" in self.h:
            raise Refused(400, "InvalidArgument", "preconditions are not for uploads in parts")
        if "uploads" in self.query:
            name = f"upload-{next(self.gcs.numbers)}"
            self.gcs.uploads[name] = {"bucket": self.bucket, "key": self.key, "parts": {}, "headers": self.own_headers()}
            return self.xml(f"<InitiateMultipartUploadResult {SPACE}><Bucket>{self.bucket}</Bucket><Key>{escape(self.key)}</Key>"
                            f"<UploadId>{name}</UploadId></InitiateMultipartUploadResult>")  # fmt: skip
        upload = self.gcs.uploads.get(self.query.get("uploadId"))
        if not upload:
            raise Refused(404, "NoSuchUpload")
        parts = []
        for part in ElementTree.fromstring(self.body).iter():
            if part.tag.endswith("}Part") or part.tag == "Part":
                texts = {child.tag.rpartition("}")[2]: child.text for child in part}
                data = upload["parts"].get(int(texts["PartNumber"]))
                if data is None or texts["ETag"].strip('"') != hashlib.md5(data).hexdigest():
                    raise Refused(400, "InvalidPart")
                parts.append(data)
        if any(len(part) < 5 << 20 for part in parts[:-1]):
            raise Refused(400, "EntityTooSmall")
        del self.gcs.uploads[self.query["uploadId"]]
        made = self.put(b"".join(parts), upload["headers"], composed=True)
        self.xml(f"<CompleteMultipartUploadResult {SPACE}><Location>x</Location><Bucket>{self.bucket}</Bucket><Key>{escape(self.key)}</Key>"
                 f"<ETag>{escape(made.etag)}</ETag></CompleteMultipartUploadResult>")  # fmt: skip
