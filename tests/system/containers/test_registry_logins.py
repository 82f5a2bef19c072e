"""Registries as they are in practice: tokens of their own service, blobs on another host, logins that programs keep."""
import base64
import json
import os
from pathlib import Path

import pytest

from harness.http_server import Server
from harness.registry import Registry, digest, image, layer
from harness.token_service import NAME, TokenService, make_key

LONG = pytest.mark.long
SMALL = image([layer({"etc/motd": "hello\n"}), layer({"etc/other": os.urandom(200_000)})])
PASSWORD = "s3cret-pass"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """The folder of a registry that has job/tool and job/open."""
    registry = Registry(tmp_path_factory.mktemp("data") / "pushed")
    for name in ("job/tool:v1", "job/open:v1"):
        registry.push(name, SMALL)
    registry.close()
    return registry.folder


@pytest.fixture(scope="module")
def key(tmp_path_factory):
    return make_key(tmp_path_factory.mktemp("key") / "key")


@pytest.fixture
def registries(tmp_path, data):
    """registries(**options): a registry with the images job/tool and job/open. All registries are
    closed at the end of the test."""
    started = []

    def start(**options):
        started.append(Registry(tmp_path / f"registry{len(started)}", data=data, **options))
        return started[-1]

    yield start
    for registry in started:
        registry.close()


@pytest.fixture(params=["token"])
def service(key, request):
    made = TokenService(key, {"ann": PASSWORD}, public=("job/open",), field=request.param)
    yield made
    made.close()


def log_in(penstock, host, password=PASSWORD):
    path = penstock.user_home / ".docker" / "config.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"auths": {host: {"auth": base64.b64encode(f"ann:{password}".encode()).decode()}}}))


# ---- tokens ----


@pytest.mark.parametrize("service", ["token", pytest.param("access_token", marks=LONG)], indirect=True)
def test_a_token_is_asked_for_where_the_registry_sends_for_one(penstock, registries, service):
    registry = registries(more=service.registry_lines())

    anonymous = penstock.run("pull", f"{registry.host}/job/open:v1").ok()
    refused = penstock.run("pull", f"{registry.host}/job/tool:v1").exits(77)
    log_in(penstock, registry.host, "wrong-pass")
    wrong = penstock.run("pull", f"{registry.host}/job/tool:v1").exits(77)
    log_in(penstock, registry.host)
    right = penstock.run("pull", f"{registry.host}/job/tool:v1").ok()

    assert "job/tool" in refused.err and "ann" in wrong.err
    assert service.asked[0] == (None, {"service": [NAME], "scope": ["repository:job/open:pull"]})
    assert [user for user, _ in service.asked] == [None] * len([user for user, _ in service.asked if not user]) + ["ann", "ann"]
    for result in (anonymous, refused, wrong, right):
        assert PASSWORD not in result.text and "wrong-pass" not in result.text and "eyJ" not in result.text


def test_one_token_is_enough_for_an_image_and_another_is_got_when_it_has_expired(penstock, registries, service):
    registry = registries(more=service.registry_lines())

    service.stale = 1
    penstock.run("pull", f"{registry.host}/job/open:v1").ok()

    assert len(service.asked) == 2


def test_tokens_that_never_do_are_not_asked_for_forever(penstock, registries, service):
    registry = registries(more=service.registry_lines())

    service.stale = 100
    penstock.run("pull", f"{registry.host}/job/open:v1").exits(77)

    assert len(service.asked) < 10


@LONG
def test_a_token_service_that_is_away_is_named(penstock, registries, service):
    registry = registries(more=service.registry_lines())
    service.close()

    result = penstock.run("pull", f"{registry.host}/job/open:v1").exits(69)

    assert str(service.httpd.server_address[1]) in result.err


# ---- redirects ----


def place(blob):
    return f"/docker/registry/v2/blobs/sha256/{blob[7:9]}/{blob[7:]}/data"


def elsewhere(server):
    return ["middleware: {storage: [{name: redirect, options: {baseurl: '%s'}}]}" % server.url]


@pytest.fixture
def host(http_server):
    """The other host, to which the registry redirects: it has the blobs."""
    for name, content in SMALL[0].items():
        http_server.add(place(name), content)
    return http_server


def test_blobs_come_from_another_host_which_gets_no_login(penstock, registries, host):
    registry = registries(login=("ann", PASSWORD), more=elsewhere(host))
    log_in(penstock, registry.host)

    penstock.run("pull", f"{registry.host}/job/tool:v1").ok()

    seen = [request for request in host.seen() if request.status in (200, 206)]
    assert {request.path for request in seen} == {place(name) for name in SMALL[0]}
    assert not [request for request in seen if "authorization" in request.headers or "cookie" in request.headers]


def test_a_token_is_not_passed_on_either_nor_over_a_second_redirect(penstock, registries, host, service):
    last = Server()
    big = max(SMALL[0], key=lambda name: len(SMALL[0][name]))
    last.add("/elsewhere", SMALL[0][big])
    host.fault(place(big), status=302, headers={"Location": last.url + "/elsewhere"})
    registry = registries(more=service.registry_lines() + elsewhere(host))
    log_in(penstock, registry.host)
    try:
        penstock.run("pull", f"{registry.host}/job/tool:v1").ok()
    finally:
        last.close()

    assert last.seen("/elsewhere") and service.asked[-1][0] == "ann"
    assert not [request for request in host.seen() + last.seen() if "authorization" in request.headers]


@pytest.mark.parametrize("status", [307, *(pytest.param(status, marks=LONG) for status in (301, 302, 303, 308))])
def test_a_registry_that_only_says_where_another_is(penstock, host, status):
    # Like registry.k8s.io, this registry redirects manifests, too.
    front = host
    wants = {"status": 401, "headers": {"WWW-Authenticate": 'Basic realm="x"'}}
    front.fault("/v2/", **wants)
    front.fault("/v2/job/tool/manifests/v1", **wants)
    paths = ["manifests/v1"] + [f"blobs/{name}" for name in SMALL[0]]
    front.add("/there", SMALL[1])
    for path in paths:
        where = "/there" if path.startswith("manifests") else place(path[6:])
        front.fault(f"/v2/job/tool/{path}", status=status, headers={"Location": where})
    name = front.url.removeprefix("http://")
    log_in(penstock, name)

    penstock.run("pull", f"{name}/job/tool:v1").ok()

    assert front.seen("/there")[0].headers["accept"].startswith("application/vnd.oci.image.index")
    with_login = {request.path for request in front.seen() if "authorization" in request.headers}
    assert with_login == {f"/v2/job/tool/{path}" for path in paths}


def test_a_blob_elsewhere_is_gone_on_with_after_a_cut(penstock, registries, host):
    big = max(SMALL[0], key=lambda name: len(SMALL[0][name]))
    host.fault(place(big), cut_after=100_000)
    registry = registries(more=elsewhere(host))

    penstock.run("pull", f"{registry.host}/job/tool:v1").ok()

    ranges = [request.headers.get("range") for request in host.seen(place(big))]
    assert "bytes=100000-" in ranges[-1]


@LONG
def test_a_blob_that_is_another_one_elsewhere_is_refused(penstock, registries, host):
    big = max(SMALL[0], key=lambda name: len(SMALL[0][name]))
    host.fault(place(big), times=20, corrupt_at=5000)
    registry = registries(more=elsewhere(host))

    refused = penstock.run("pull", f"{registry.host}/job/tool:v1").exits(70)

    assert "sha256:" in refused.err
    assert not (penstock.home / "images" / "layers" / digest(SMALL[0][big])[7:31]).exists()


def test_a_registry_with_tls_sends_nobody_to_an_address_without(penstock, registries, host, certificate, tmp_path):
    authority = tmp_path / "authority.pem"
    authority.write_text(Path(certificate.path).read_text() + (tmp_path / "certificate-key.pem").read_text())
    registry = registries(certificate=str(authority), more=elsewhere(host))

    refused = penstock.run("pull", f"{registry.host}/job/tool:v1", env={"SSL_CERT_FILE": certificate.path})

    assert refused.code == 69 and "without TLS" in refused.err and not host.seen()


# ---- helpers ----

HELPER = """#!/bin/sh
read host
echo "$1 $host" >> "%s"
%s
"""


@pytest.fixture
def helper(penstock, tmp_path):
    """helper(body, **configuration): puts a shell script docker-credential-kept on PATH, and writes
    the configuration that names it; returns the file in which the script notes its calls."""
    calls = tmp_path / "calls"
    calls.write_text("")
    (tmp_path / "bin").mkdir()
    penstock.env["PATH"] = f"{tmp_path}/bin:{penstock.env['PATH']}"

    def write(body, folder=".docker", **configuration):
        program = tmp_path / "bin" / "docker-credential-kept"
        program.write_text(HELPER % (calls, body))
        program.chmod(0o755)
        path = penstock.user_home / folder / ("auth.json" if folder.endswith("containers") else "config.json")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(configuration))
        return calls

    return write


GOOD = f"""echo '{{"ServerURL": "x", "Username": "ann", "Secret": "{PASSWORD}"}}'"""


@pytest.mark.parametrize("configuration", [
    {"credsStore": "kept"},  # the store knows registries that the file does not
    {"auths": {"HOST": {}}, "credHelpers": {"HOST": "kept"}, "credsStore": "other"},
    pytest.param({"credHelpers": {"HOST": "kept"}}, marks=LONG), pytest.param({"auths": {"HOST": {}}, "credsStore": "kept"}, marks=LONG),
])  # fmt: skip
def test_a_login_that_a_program_keeps_is_asked_of_it(penstock, registries, helper, configuration):
    registry = registries(login=("ann", PASSWORD))
    calls = helper(GOOD, **json.loads(json.dumps(configuration).replace("HOST", registry.host)))

    result = penstock.run("pull", f"{registry.host}/job/tool:v1").ok()

    assert calls.read_text() == f"get {registry.host}\n" and PASSWORD not in result.text


@pytest.mark.parametrize("body", ["echo credentials not found in native keychain; exit 1", *(pytest.param(body, marks=LONG) for body in (
    "echo '{'", """echo '{"Username": "<token>", "Secret": "t"}'""", "kill -9 $$"))])  # fmt: skip
def test_a_helper_that_knows_nothing_is_no_reason_to_stop(penstock, registries, helper, body):
    # penstock continues without the helper: a public image needs no login, and the next file may
    # have the login of a private image.
    public, private = registries(), registries(login=("ann", PASSWORD))
    hosts = {public.host: "kept", private.host: "kept"}
    helper(body, folder=".config/containers", credHelpers=hosts)

    penstock.run("pull", f"{public.host}/job/tool:v1").ok()
    refused = penstock.run("pull", f"{private.host}/job/tool:v1").exits(77)
    log_in(penstock, private.host)
    penstock.run("pull", f"{private.host}/job/tool:v1").ok()

    assert private.host in refused.err


def test_a_helper_that_is_not_installed_is_named_where_it_is_meant(penstock, registries, helper):
    registry = registries()
    helper("true", credHelpers={registry.host: "nowhere"})

    meant = penstock.run("pull", f"{registry.host}/job/tool:v1").ok()
    helper("true", credsStore="nowhere")
    general = penstock.run("pull", f"{registry.host}/job/tool:v1").ok()

    assert "docker-credential-nowhere" in meant.err
    assert "docker-credential" not in general.err
