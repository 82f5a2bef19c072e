"""Access to the page of penstock ui: the token, the cookie, foreign hosts and foreign pages."""
import gzip
import os
import re
import socket
import stat
import subprocess

import pytest

WRITES = [("POST", "stop"), ("POST", "resume"), ("POST", "preempt"), ("POST", "remove"), ("POST", "remove-version"), ("POST", "restore"), ("POST", "link"), ("POST", "upload"), ("PUT", "upload"), ("DELETE", "upload")]
LONG = "gpu7." + 60 * "a" + ".example.com"  # longer than the name of a machine may be


def test_the_link_gives_a_cookie_that_scripts_and_other_pages_cannot_use(ui):
    server = ui()

    reply = server.request("GET", f"/?token={server.token}", cookie=False)

    assert len(server.token) == 64 and server.token not in str(reply.headers)
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(reply.headers["Set-Cookie"].split("; "))
    assert server.request("GET", "/?token=" + "0" * 64, cookie=False).status == 403
    assert server.request("GET", "/api/runs", cookie=False).status == 401
    assert server.request("GET", "/api/runs", cookie=False, headers={"Cookie": server.cookie[:-1] + "x"}).status == 401
    assert server.request("GET", "/api/runs").status == 200


def test_two_servers_of_one_host_have_two_cookies(ui):
    first, second = ui(), ui()

    both = {"Cookie": f"{first.cookie}; {second.cookie}"}

    assert first.cookie.split("=")[0] != second.cookie.split("=")[0]
    for server in (first, second):
        assert server.request("GET", "/api/about", cookie=False, headers=both).status == 200


@pytest.mark.parametrize("host, status", [
    ("127.0.0.1:1", 200), ("localhost", 200), ("LOCALHOST:80", 200), ("[::1]:80", 200), ("10.1.2.3:8780", 200), (os.uname().nodename, 200),
    ("gpu7.example.com", 200), (LONG, 200), ("evil.example.com", 421), ("gpu7.example.com.evil.com", 421), ("localhost.evil.com", 421), ("127.0.0.1.evil.com:80", 421),
    ("", 421), ("[::1", 421), (":80", 421), ("a" * 300, 421),
])  # fmt: skip
def test_a_foreign_name_that_leads_here_is_refused(ui, host, status):
    server = ui("--host", "gpu7.example.com", "--host", LONG)

    assert server.request("GET", "/api/about", headers={"Host": host}).status == status
    assert server.request("GET", "/", headers={"Host": host, "Accept-Encoding": "gzip"}).status == status


def test_other_pages_get_nothing_with_the_browsers_cookie(ui):
    server = ui()

    for headers in ({"Origin": "http://evil.com"}, {"Origin": "null"}, {"Origin": f"http://{server.host}.evil.com"}, {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}):
        assert server.request("GET", "/api/runs", headers=headers).status == 403, headers
        assert server.request("POST", "/api/stop?run=x", headers=headers | {"X-Penstock": "1"}).status == 403, headers
    own = {"Origin": f"http://{server.host}", "Sec-Fetch-Site": "same-origin"}
    assert server.request("GET", "/api/runs", headers=own).status == 200
    assert server.request("POST", "/api/stop?run=x", headers=own | {"X-Penstock": "1"}).status == 404
    # This request lacks the header that only the page's script sends.
    assert server.request("POST", "/api/stop?run=x", headers=own).status == 403


@pytest.mark.parametrize("method, name", WRITES)
def test_read_only_means_all_that_changes_something(ui, method, name):
    server = ui("--read-only")

    reply = server.post(name, method, run="x", url="s3://b/k", version="v", size=1, id="0" * 32)

    assert reply.status == 403 and "read-only" in reply.error
    assert server.get("about")["readOnly"] is True


def test_every_reply_forbids_scripts_frames_and_guesses(ui):
    server = ui()

    for path in ("/", "/api/about", "/api/none", "/none", "/api/object?url=s3://x/y"):
        headers = server.request("GET", path, headers={"Accept-Encoding": "gzip"}).headers
        policy = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; "))
        assert policy["default-src"] == "'none'" and policy["script-src"] == "'self'" and policy["frame-ancestors"] == "'none'"
        assert headers["X-Content-Type-Options"] == "nosniff" and headers["Referrer-Policy"] == "no-referrer"


def test_clients_without_gzip_get_the_same_page(ui):
    server = ui()

    packed = server.request("GET", "/", headers={"Accept-Encoding": "gzip"})
    plain = server.request("GET", "/")  # identity

    assert (plain.status, packed.status) == (200, 200)
    assert packed.headers["Content-Encoding"] == "gzip" and "Content-Encoding" not in plain.headers
    assert plain.body == gzip.decompress(packed.body)
    assert plain.headers["ETag"] == packed.headers["ETag"]
    assert plain.headers["Content-Type"] == packed.headers["Content-Type"]
    for encoding in ("gzip", "identity"):
        known = {"Accept-Encoding": encoding, "If-None-Match": plain.headers["ETag"]}
        assert server.request("GET", "/", headers=known).status == 304, encoding


def test_unknown_requests_and_parameters_are_refused(ui):
    server = ui()

    assert server.request("GET", "/api/none").status == 404
    assert server.request("DELETE", "/api/runs", headers={"X-Penstock": "1"}).status == 405
    assert server.request("GET", "/../etc/passwd", headers={"Accept-Encoding": "gzip"}).status == 404
    for name, query in (("run", {}), ("object", {"url": "/etc/passwd"}), ("object", {"url": "-"}), ("log", {"run": "../../x"}), ("log", {"run": "0" * 12, "attempt": "x"}), ("workflow", {"run": "../.."})):
        assert server.request("GET", f"/api/{name}", **query).status == 400, (name, query)
    for name in ("run", "metrics", "files", "checkpoints"):
        assert server.request("GET", f"/api/{name}", run="--help").status == 404  # a name, and no option


def test_a_usual_port_in_use_is_no_obstacle_and_a_chosen_one_is(ui, penstock):
    server = ui()

    other = penstock.run("ui", "--listen", server.host)

    other.exits(69)
    assert penstock.run("ui", "--listen", "nowhere").code == 64


# Anyone can open connections, even without the link and the cookie.
def test_the_connections_of_one_address_leave_some_for_others(ui):
    server = ui()
    host, port = server.host.split(":")

    held = [socket.create_connection((host, int(port)), source_address=("127.0.0.2", 0)) for _ in range(80)]
    reply = server.request("GET", "/api/about")

    assert reply.status == 200
    for connection in held:
        connection.close()


def test_the_token_is_not_in_the_arguments_of_the_process(ui):
    server = ui()

    with open(f"/proc/{server.process.pid}/cmdline", "rb") as file:
        assert server.token.encode() not in file.read()
