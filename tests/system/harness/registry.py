"""A registry (Debian's docker-registry) on a free port of the loopback address, and images made by hand.

    registry = Registry(folder, login=("ann", "password"), certificate=None)
    registry.push("job/tool:v1", image([busybox(), layer({"etc/motd": "hello"})], User="100"))
    registry.requests("GET", "/blobs/")       # paths of logged requests
    registry.close()
"""
import base64
import gzip
import hashlib
import io
import json
import re
import ssl
import subprocess
import tarfile
import urllib.request
import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import crypt  # the only way to bcrypt without another package

from .waiting import wait_for

BUSYBOX = "/bin/busybox"
APPLETS = "sh ash true false ls cat echo env id sleep pwd mount ps head sort touch mkdir rm stat test wget kill dd nproc grep tail chmod ip nslookup tar tr".split()
KINDS = {"d": tarfile.DIRTYPE, "l": tarfile.SYMTYPE, "h": tarfile.LNKTYPE, "c": tarfile.CHRTYPE, "p": tarfile.FIFOTYPE}


def layer(members, compress=True, xattrs=None):
    """Returns a layer of {name: text, bytes, (kind, link), or (mode, any of these)}; a name that ends in "/" is a directory.

    `xattrs` is {name: {attribute: bytes}}.
    """
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, contents in members.items():
            info = tarfile.TarInfo(name.rstrip("/"))
            info.mtime, info.mode = 1_600_000_000, 0o755
            attributes = (xattrs or {}).get(name, {})
            info.pax_headers = {f"SCHILY.xattr.{attribute}": value.decode() for attribute, value in attributes.items()}
            if isinstance(contents, tuple) and isinstance(contents[0], int):
                info.mode, contents = contents
            if name.endswith("/"):
                info.type = tarfile.DIRTYPE
                tar.addfile(info)
            elif isinstance(contents, tuple):
                info.type, info.linkname = KINDS[contents[0]], contents[1] or ""
                tar.addfile(info)
            else:
                data = contents.encode() if isinstance(contents, str) else contents
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    return gzip.compress(out.getvalue(), 1, mtime=0) if compress else out.getvalue()


def busybox(**more):
    """Returns the base layer of the test images: Debian's busybox-static and a few files."""
    with open(BUSYBOX, "rb") as file:
        members = {"bin/busybox": file.read()}
    members |= {f"bin/{name}": ("l", "busybox") for name in APPLETS}
    members |= {"etc/passwd": "root:x:0:0:root:/root:/bin/sh\nuser:x:100:101:user:/home/user:/bin/sh\n", "tmp/": (0o1777, None), "root/": None}
    return layer(members | more)


def digest(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def image(layers, architecture="amd64", **config):
    """Returns ({digest: bytes} of the image's blobs, bytes of its manifest). `config`: Entrypoint, Cmd, Env, User, WorkingDir."""
    diffs = [digest(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data) for data in layers]
    described = json.dumps({"architecture": architecture, "os": "linux", "config": config, "rootfs": {"type": "layers", "diff_ids": diffs}}).encode()
    oci = "application/vnd.oci.image."

    def entry(kind, data):
        return {"mediaType": oci + kind, "digest": digest(data), "size": len(data)}

    kinds = ["layer.v1.tar+gzip" if data[:2] == b"\x1f\x8b" else "layer.v1.tar" for data in layers]
    manifest = {"schemaVersion": 2, "mediaType": oci + "manifest.v1+json", "config": entry("config.v1+json", described),
                "layers": [entry(kind, data) for kind, data in zip(kinds, layers)]}  # fmt: skip
    return {digest(data): data for data in [described, *layers]}, json.dumps(manifest).encode()


def index(*described):
    """Returns the manifest of an image for several platforms, from pairs (architecture, image)."""
    entries = [{"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": digest(made[1]), "size": len(made[1]),
                "platform": {"os": "linux", "architecture": architecture}} for architecture, made in described]  # fmt: skip
    return json.dumps({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": entries}).encode()


def write_layout(folder, made):
    """Writes the image as an OCI layout."""
    blobs, manifest = made
    (folder / "blobs" / "sha256").mkdir(parents=True)
    for name, data in (blobs | {digest(manifest): manifest}).items():
        (folder / "blobs" / "sha256" / name.partition(":")[2]).write_bytes(data)
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    (folder / "index.json").write_bytes(index(("amd64", made)))
    return folder


def serve(server, reference, made):
    """Makes a harness.http_server.Server serve an image like a registry. Returns the image's name
    at this registry, and the paths of the image's layers."""
    name, _, tag = reference.partition(":")
    blobs, manifest = made
    server.add("/v2/", b"{}")
    server.add(f"/v2/{name}/manifests/{tag}", manifest, Content_Type=json.loads(manifest)["mediaType"])
    for identity, data in blobs.items():
        server.add(f"/v2/{name}/blobs/{identity}", data)
    layers = [f"/v2/{name}/blobs/{entry['digest']}" for entry in json.loads(manifest)["layers"]]
    return f"{server.url.removeprefix('http://')}/{reference}", layers


class Registry:
    def __init__(self, folder, login=None, certificate=None, data=None, more=()):
        """Starts a registry. `certificate`: a PEM file with a key and a self-signed certificate; `data`: the folder of another
        registry, whose images this registry has; `more`: further lines of the configuration."""
        folder.mkdir()
        self.folder, self.login = folder, login
        self.context = ssl.create_default_context(cafile=certificate) if certificate else None
        lines = ["version: 0.1", "log: {level: info, formatter: text}", f"storage: {{filesystem: {{rootdirectory: {data or folder}/data}}}}",
                 "http: {addr: '127.0.0.1:0', secret: test" + (f", tls: {{certificate: {certificate}, key: {certificate}}}" if certificate else "") + "}", *more]  # fmt: skip
        if login:
            salted = crypt.crypt(login[1], "$2b$04$" + "abcdefghijklmnopqrstuu")
            (folder / "htpasswd").write_text(f"{login[0]}:{salted}\n")
            lines.append(f"auth: {{htpasswd: {{realm: test, path: {folder}/htpasswd}}}}")
        (folder / "config.yml").write_text("\n".join(lines) + "\n")
        self.log = open(folder / "log", "w+b")
        self.process = subprocess.Popen(["docker-registry", "serve", folder / "config.yml"], stdin=subprocess.DEVNULL, stdout=self.log,
                                        stderr=self.log, env={"PATH": "/usr/bin:/bin", "OTEL_TRACES_EXPORTER": "none"})  # fmt: skip
        self.host = "127.0.0.1:" + wait_for(self.port, what="the registry listens")
        self.url = ("https://" if certificate else "http://") + self.host

    def text(self):
        return (self.folder / "log").read_text(errors="replace")

    def port(self):
        assert self.process.poll() is None, self.text()
        found = re.search(r"listening on 127\.0\.0\.1:(\d+)", self.text())
        return found and found[1]

    def requests(self, method, part=""):
        """Returns the paths of the logged requests with `method` whose path contains `part`."""
        return [line for line in re.findall(rf'"{method} (\S+) HTTP', self.text()) if part in line]

    def call(self, method, path, data=None, kind="application/octet-stream"):
        url = path if path.startswith("http") else self.url + path
        request = urllib.request.Request(url, data=data, method=method, headers={"Content-Type": kind})
        if self.login:
            request.add_header("Authorization", "Basic " + base64.b64encode(":".join(self.login).encode()).decode())
        handlers = [urllib.request.ProxyHandler({})] + ([urllib.request.HTTPSHandler(context=self.context)] if self.context else [])
        return urllib.request.build_opener(*handlers).open(request, timeout=60)

    def put_blob(self, name, data):
        place = self.call("POST", f"/v2/{name}/blobs/uploads/").headers["Location"]
        self.call("PUT", f"{place}{'&' if '?' in place else '?'}digest={digest(data)}", data)

    def push(self, reference, made):
        """Pushes an image; returns its digest."""
        name, _, tag = reference.partition(":")
        blobs, manifest = made
        for data in blobs.values():
            self.put_blob(name, data)
        return self.push_manifest(name, tag, manifest)

    def push_manifest(self, name, tag, manifest):
        self.call("PUT", f"/v2/{name}/manifests/{tag or digest(manifest)}", manifest, json.loads(manifest)["mediaType"])
        return digest(manifest)

    def damage(self, blob):
        """Damages one byte of a blob on the registry's disk."""
        path = self.folder / "data/docker/registry/v2/blobs/sha256" / blob[7:9] / blob[7:] / "data"
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 0x55
        path.write_bytes(data)

    def close(self):
        self.process.kill()
        self.process.wait()
        self.log.close()
