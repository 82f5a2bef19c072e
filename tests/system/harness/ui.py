"""`penstock ui`, a client without a browser, and steps in a browser."""
import http.client
import json
import re
import urllib.parse


class Reply:
    def __init__(self, response):
        self.status, self.headers, self.body = response.status, response.headers, response.read()

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        return self.json["error"]


class Ui:
    """The server, its link and its cookie; `process` is penstock."""

    def __init__(self, penstock, *options, env=None):
        self.process = penstock.popen("ui", "--listen", "127.0.0.1:0", *options, env=env)
        self.link = self.process.wait_for_output(r"^open (http://\S+)$")[1]
        self.host = urllib.parse.urlsplit(self.link).netloc
        self.token = self.link.partition("token=")[2]
        reply = self.request("GET", f"/?token={self.token}", cookie=False)
        assert reply.status == 303 and reply.headers["Location"] == "/", reply.body
        self.cookie = re.match(r"(\w+=\w+);", reply.headers["Set-Cookie"])[1]

    def connect(self):
        return http.client.HTTPConnection(self.host, timeout=60)

    def request(self, method, target, body=None, headers=None, cookie=True, **query):
        headers = {"Host": self.host} | ({"Cookie": self.cookie} if cookie else {}) | (headers or {})
        if query:
            target += "?" + urllib.parse.urlencode(query)
        connection = self.connect()
        try:
            connection.request(method, target, body, headers)
            return Reply(connection.getresponse())
        finally:
            connection.close()

    def get(self, name, **query):
        """Sends a request that must succeed. Returns its JSON."""
        reply = self.request("GET", f"/api/{name}", **query)
        assert reply.status == 200, (reply.status, reply.body)
        return reply.json

    def post(self, name, method="POST", body=None, **query):
        return self.request(method, f"/api/{name}", body, {"X-Penstock": "1"}, **query)

    def close(self):
        if self.process.running():
            self.process.send()
            self.process.wait(60).exits(0)


def serious(tab, axe):
    tab.evaluate(axe)
    found = tab.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [(one["id"], [node["html"] for node in one["nodes"]][:3]) for one in found["violations"] if one["impact"] in ("serious", "critical")]


def seen(tab, text):
    tab.get_by_text(text).filter(visible=True).first.wait_for()


def focus(tab, role, name):
    """Presses Tab until the element has the focus."""
    for _ in range(60):
        tab.keyboard.press("Tab")
        if tab.get_by_role(role, name=name, exact=True).first.evaluate("element => element === document.activeElement"):
            return
    raise AssertionError(f"no way to {name} with the keyboard")
