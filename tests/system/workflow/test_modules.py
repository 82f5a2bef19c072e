"""`use`: modules from a directory and from Git, their inputs and outputs, and the copies that
penstock keeps."""
import base64
import http.server
import os
import re
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from harness import processes, progress
from harness.workflows import write_workflow

MODULE = """
name: greeter
description: greets
minimumResources: {tasks: 1, cpusPerTask: 1, memPerCpu: 1, gpus: 0}
inputs:
  - {key: WHO, description: who, default: World}
outputs:
  - {key: RESULT, description: what was said}
steps:
  - run: {command: "echo VERSION hello $WHO; printf 'RESULT<<E\\\\n%s\\\\nE\\\\n' \\"hello, $WHO\\ntwice\\" >> $DEEPSQUARE_ENV; echo OTHER=x >> $DEEPSQUARE_ENV"}
  {{- .Step.Use.Steps | toYaml | nindent 2 }}
  - run: {command: "echo inside $OTHER"}
"""


def write(folder, version="one", text=MODULE):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "module.yaml").write_text(text.replace("VERSION", version))


def git(folder, *arguments):
    env = os.environ | {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null"}
    command = ["git", "-c", "user.name=n", "-c", "user.email=n@example.org", "-c", "init.defaultBranch=main", *arguments]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def repository(tmp_path):
    """A repository with a module at its top and one in sub/. The tag v1 is one commit before
    HEAD."""
    folder = tmp_path / "far" / "owner" / "name"
    write(folder)
    write(folder / "sub", "sub")
    git(folder, "init", "--quiet")
    git(folder, "add", "-A")
    git(folder, "commit", "--quiet", "-m", "one")
    git(folder, "tag", "v1")
    git(folder, "tag", "sub/v1")
    write(folder, "two")
    git(folder, "commit", "--quiet", "-am", "two")
    return folder


@pytest.fixture
def job(tmp_path):
    def make(source, *more, name="wf.json", **use):
        return write_workflow(tmp_path, {"name": "greet", "use": {"source": source} | use}, *more, file=name)

    return make


# Inputs are variables of the module, with their defaults; outputs are returned only on request, with a prefix.
def test_a_module_of_a_directory(penstock, job, tmp_path):
    write(tmp_path / "mods" / "greet")
    user = {"name": "user", "run": {"command": "echo user $WHO"}}
    path = job("./mods/greet", {"run": {"command": 'echo "$G_RESULT [$RESULT][$OTHER][$WHO]"'}}, args=[{"key": "WHO", "value": "a, b"}], exportEnvAs="G", steps=[user])
    plain = job("./mods/greet", {"run": {"command": 'echo "[$G_RESULT][$OTHER]"'}}, name="plain.json")

    assert penstock.run("run", path).ok().out == "one hello a, b\nuser a, b\ninside x\nhello, a, b\ntwice [][][]\n"
    assert penstock.run("run", plain, cwd="/").ok().out == "one hello World\ninside x\n[][x]\n"


# A step may end $DEEPSQUARE_ENV without a newline.
def test_outputs_of_a_module_follow_an_unfinished_line(penstock, tmp_path):
    write(tmp_path / "greet")
    path = write_workflow(tmp_path, "printf A=1 >> $DEEPSQUARE_ENV", {"use": {"source": "./greet", "exportEnvAs": "G"}}, 'echo "[$A][$G_RESULT]"')

    assert penstock.run("run", path).ok().out.endswith("[1][hello, World\ntwice]\n")


# The source may name a tag, a full or short commit id, no version (HEAD), and a folder of the
# repository.
def test_a_module_of_a_git_repository(penstock, job, repository):
    commit = git(repository, "rev-parse", "v1")
    env = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": f"url.file://{repository.parent.parent}/.insteadOf", "GIT_CONFIG_VALUE_0": "https://git.example/"}

    for source, says in [
        (f"file://{repository}@v1", "one"),
        (f"file://{repository}@{commit}", "one"),
        (f"file://{repository}@{commit[:9]}", "one"),
        (f"file://{repository}", "two"),
        (f"file://{repository}//sub@sub/v1", "sub"),
        ("git.example/owner/name@v1", "one"),
        ("git.example/owner/name/sub@v1", "sub"),
        (f"git.example/owner/name/sub@{commit[:7]}", "sub"),
    ]:
        assert penstock.run("run", "--fresh", job(source), env=env).ok().out.startswith(f"{says} hello World\n"), source


# A fetched module works without its repository; a module that was not fetched is an error before
# anything starts.
def test_without_a_network(penstock, job, repository):
    commit = git(repository, "rev-parse", "v1")
    penstock.run("run", job(f"file://{repository}@v1")).ok()
    penstock.run("run", job(f"file://{repository}@{commit}", name="commit.json")).ok()
    shutil.rmtree(repository)

    again = penstock.run("run", job(f"file://{repository}@v1")).ok()
    exact = penstock.run("run", job(f"file://{repository}@{commit}", name="commit.json")).ok()
    other = penstock.run("run", job(f"file://{repository}@v2", {"run": {"command": "echo never"}}, name="other.json")).exits(65)

    assert "one hello" in again.out and re.search(progress.OLD_MODULE, again.err)
    assert "one hello" in exact.out and not re.search(progress.OLD_MODULE, exact.err)
    assert "other.json:1:" in other.err and "fatal: " in other.err and "never" not in other.out


# git's message about a missing tag names an internal ref; the error names the tag.
def test_a_tag_that_is_not_there_is_told(penstock, job, repository):
    told = penstock.run("run", job(f"file://{repository}@v9")).exits(65)

    assert "v9" in told.err and f"'git ls-remote --tags file://{repository}'" in told.err
    assert "refs/" not in told.err


# validate uses the local copy and fetches nothing.
def test_validate_fetches_nothing(penstock, job, repository, tmp_path):
    path = job(f"file://{repository}@v1")

    before = penstock.run("validate", path).ok()
    penstock.run("run", path).ok()
    after = penstock.run("validate", path).ok()
    write(tmp_path / "bad", text="name: bad\nsteps:\n  - run: {comand: x}\n")
    bad = penstock.run("validate", job("./bad", name="bad.json")).exits(65)

    assert "'penstock run'" in before.err
    assert after.err == ""
    assert re.search(r"./bad: module.yaml:3:11: .*\bcomand\b.*\brun\b", bad.err)


# A resumed run has the module that it started with, even if the source has changed or is gone.
def test_a_resumed_run_has_its_module(penstock, job, tmp_path):
    text = "name: m\nsteps:\n  - run: {command: echo first}\n  - run: {command: '[ -e $DEEPSQUARE_TMP/again ] || { touch $DEEPSQUARE_TMP/again; kill -TERM $PPID; sleep 1000; }; echo VERSION'}\n"
    write(tmp_path / "m", text=text)
    path = job("./m")

    penstock.run("run", path, env={"PENSTOCK_STOP_GRACE": "0"}).exits(75)
    shutil.rmtree(tmp_path / "m")
    run = penstock.ps()[0]["id"]
    result = penstock.run("resume", run).ok()

    assert result.out == "one\n"


@pytest.mark.parametrize(
    "source, says",
    [("./nowhere", "cannot read module './nowhere': "), ("ftp://host/x", "only https://"), ("file:///nowhere/at/all@-x", "neither a tag nor a commit"),
     ("https://host/a//../b@v1", "contains '..'")],
)  # fmt: skip
def test_a_source_that_is_none_is_told(penstock, job, source, says):
    told = penstock.run("run", job(source)).exits(65)

    assert says in told.err and "wf.json:1:" in told.err


# A killed git leaves locks, and a directory that is not a repository yet. The next run must still
# work.
@pytest.mark.parametrize("left", ["empty", "half", "locks"])
def test_what_a_killed_git_leaves_is_no_obstacle(penstock, job, repository, left):
    path = job(f"file://{repository}@v1")
    penstock.run("run", path).ok()
    (kept,) = (penstock.home / "modules").glob("*.git")
    if left == "locks":
        for name in ("shallow.lock", "config.lock", "packed-refs.lock", "HEAD.lock", "refs/penstock/tags/v1.lock"):
            (kept / name).touch()
    else:
        shutil.rmtree(kept)
        kept.mkdir()
        if left == "half":
            (kept / "config").write_text("")
            (kept / "refs").mkdir()
    git(repository, "tag", "-f", "v1", "HEAD")

    again = penstock.run("run", "--fresh", path).ok()

    assert again.out.startswith("two hello World") and not re.search(progress.OLD_MODULE, again.err)


# A password in an address is sent to its server, and appears nowhere else.
def test_a_password_in_the_address_of_a_module_is_shown_nowhere(penstock, job):
    path = job("https://ann:s3cret-of-ann@127.0.0.1:1/owner/name@v1")

    refused = penstock.run("run", path).exits(65)
    checked = penstock.run("validate", path)

    assert "https://" in refused.err and "s3cret-of-ann" not in refused.text + checked.text


class GitServer(http.server.ThreadingHTTPServer):
    """Serves the repositories below a folder over HTTP to known users; while git waits for a reply, checks the places where a password may be seen."""

    def __init__(self, folder):
        super().__init__(("127.0.0.1", 0), GitHandler)
        self.folder, self.known, self.password, self.seen, self.logins = folder, [], None, [], []
        self.thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self.thread.start()

    def look_around(self):
        """Searches the arguments and environments of all processes of the test for the password."""
        for pid in processes.descendants():
            for what in ("cmdline", "environ"):
                try:
                    if self.password.encode() in Path(f"/proc/{pid}/{what}").read_bytes():
                        self.seen.append(f"{what} of {pid}")
                except OSError:
                    pass

    def close(self):
        self.shutdown()
        self.server_close()
        self.thread.join(30)


class GitHandler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        server, login = self.server, self.headers.get("Authorization", "")
        server.look_around()
        login = base64.b64decode(login.removeprefix("Basic ")).decode()
        server.logins.append(login)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if login not in server.known:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="git"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        path, _, query = self.path.partition("?")
        env = {"PATH": os.environ["PATH"], "GIT_PROJECT_ROOT": str(server.folder), "GIT_HTTP_EXPORT_ALL": "1", "PATH_INFO": path, "QUERY_STRING": query,
               "REQUEST_METHOD": self.command, "CONTENT_TYPE": self.headers.get("Content-Type", ""), "CONTENT_LENGTH": str(len(body)),
               "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""), "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
               "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}  # fmt: skip
        answer = subprocess.run(["git", "http-backend"], input=body, env=env, capture_output=True, check=True).stdout
        head, _, content = answer.partition(b"\r\n\r\n")
        self.send_response(200)
        for line in head.decode().split("\r\n"):
            self.send_header(*line.split(": ", 1))
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_POST = do_GET


@pytest.fixture
def git_server(repository):
    server = GitServer(repository.parent)
    yield server
    server.close()


def holding(folder, password):
    """Returns the files below the folder that contain the password, in clear or as it is sent to servers."""
    forms = [password.encode(), base64.b64encode(password.encode()).rstrip(b"=")]
    return [path for path in Path(folder).rglob("*") if path.is_file() and any(form in path.read_bytes() for form in forms)]


# Every user can read the arguments of other users' processes, and git keeps the URL that it gets.
@pytest.mark.parametrize("login, in_address", [("ann:s3cret/of+ann", "ann:s3cret%2Fof+ann"), ("t0ken-of-ann:", "t0ken-of-ann")], ids=["password", "token"])
def test_what_logs_in_to_a_repository_is_seen_by_nobody_else(penstock, job, git_server, tmp_path, login, in_address):
    git_server.known, git_server.password = [login], login.strip(":").removeprefix("ann:")
    store = tmp_path / "kept-by-git"
    gitconfig = tmp_path / "gitconfig"
    gitconfig.write_text(f"[credential]\n\thelper = store --file={store}\n")
    env = {"GIT_CONFIG_GLOBAL": str(gitconfig)}
    host = f"127.0.0.1:{git_server.server_address[1]}"

    tag = penstock.run("run", job(f"http://{in_address}@{host}/name@v1"), env=env).ok()
    head = penstock.run("run", job(f"http://{in_address}@{host}/name", name="head.json"), env=env).ok()
    git_server.known = []
    refused = penstock.run("run", job(f"http://{in_address}@{host}/name@v2", name="refused.json"), env=env).exits(65)

    assert tag.out.startswith("one hello") and head.out.startswith("two hello")
    assert login in git_server.logins and git_server.seen == [] and holding(penstock.home, git_server.password) == []
    assert not store.exists() and git_server.password not in refused.text and "fatal: " in refused.err


# git's own credential helpers may know the password of a user whose name alone is in the address.
def test_a_user_alone_is_looked_up_by_the_helpers_of_git(penstock, job, git_server, tmp_path):
    git_server.known, git_server.password = ["ann:of-the-helper"], "of-the-helper"
    host = f"127.0.0.1:{git_server.server_address[1]}"
    (tmp_path / "store").write_text(f"http://bob:other@{host}\nhttp://ann:of-the-helper@{host}\n")
    (tmp_path / "gitconfig").write_text(f"[credential]\n\thelper = store --file={tmp_path}/store\n")

    result = penstock.run("run", job(f"http://ann@{host}/name@v1"), env={"GIT_CONFIG_GLOBAL": str(tmp_path / "gitconfig")}).ok()

    assert result.out.startswith("one hello") and git_server.seen == []


def test_ssh_takes_no_password_from_an_address(penstock, job):
    refused = penstock.run("run", job("ssh://git:s3cret-of-git@host.invalid/owner/name@v1")).exits(65)

    assert "https://" in refused.err and "s3cret-of-git" not in refused.text


def test_a_module_of_any_length_is_refused(penstock, job, repository):
    write(repository, text=MODULE + "#" * 20_000_000)
    git(repository, "commit", "--quiet", "-am", "three")

    refused = penstock.run("run", job(f"file://{repository}")).exits(65)

    assert "module.yaml" in refused.err
