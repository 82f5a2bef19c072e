"""The tests put a recognisable secret into every place that may have one, and search all other places for the secrets."""
import base64
import fcntl
import json
import os
import re
import resource
import secrets
import shutil
import signal
import subprocess
import tempfile
import termios
import threading
import urllib.parse
from pathlib import Path

import pytest

from harness import processes
from harness.fault_proxy import FaultProxy, s3_error
from harness.gcs import Gcs
from harness.http_server import Server
from harness.program import Store, binary
from harness.small_store import SmallStore
from harness.terminal import Terminal
from harness.waiting import wait_for
from harness.workflows import RESOURCES, s3_place, write_workflow

TIOCGPTPEER = 0x5441  # opens the other end of a pty; termios lacks the name


def forms(secret):
    """Returns the byte strings that reveal a secret: as it is, in URLs, and in base64 at any offset of the encoded text."""
    raw = secret.encode()
    found = {raw, urllib.parse.quote(secret, safe="").encode(), urllib.parse.quote(secret, safe="/").encode()}
    found |= {form.replace(b"%2F", b"%2f").replace(b"%2B", b"%2b").replace(b"%3D", b"%3d") for form in found}
    for before in range(3):
        text = base64.b64encode(b"\0" * before + raw)[(before * 8 + 5) // 6 : (before + len(raw)) * 8 // 6]
        found |= {text, text.replace(b"+", b"-").replace(b"/", b"_")}
    return found


class Canaries:
    """Makes secrets, and finds them."""

    def __init__(self):
        self.made = {}

    def __call__(self, place, odd=True):
        """Returns the secret of a place; two calls with the same place return the same secret."""
        if place not in self.made:
            self.made[place] = f"{place}{'/+=' if odd else '-'}{secrets.token_hex(12)}"
            self.patterns = re.compile(b"|".join(re.escape(form) for secret in self.made.values() for form in forms(secret)))
        return self.made[place]

    def url(self, place):
        return urllib.parse.quote(self(place), safe="")

    def within(self, data):
        """Returns the places whose secret is in the bytes."""
        if not self.patterns.search(data):
            return set()
        return {place for place, secret in list(self.made.items()) if any(form in data for form in forms(secret))}


class Watch:
    """Reads the command line and the environment of every process below the test, again and again."""

    def __init__(self, canary):
        self.canary, self.found, self.rounds = canary, set(), 0
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def look(self, pid):
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return
        name = os.path.basename(command.split(b"\0")[0]).decode(errors="replace")
        kind = "owner" if b"--embedded" in command else "penstock" if name == "penstock" else "step"
        for place in self.canary.within(command):
            self.found.add((kind, "command line", place))
        for place in self.canary.within(environment):
            self.found.add((kind, "environment", place))

    def run(self):
        while not self.stopping.is_set():
            for pid in processes.descendants():
                self.look(pid)
            self.rounds += 1
            self.stopping.wait(0.003)

    def stop(self):
        self.stopping.set()
        self.thread.join()
        return self.found


@pytest.fixture
def canary():
    return Canaries()


@pytest.fixture
def watch(canary):
    canary("none")
    running = Watch(canary)
    yield running
    running.stop()


@pytest.fixture
def scratch(penstock, tmp_path):
    """Sets TMPDIR to a directory that the test searches."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    penstock.env["TMPDIR"] = str(folder)
    return folder


@pytest.fixture
def guarded(penstock, canary):
    """A store whose secret key is a canary."""
    running = Store(penstock, penstock.folder / "guarded", secret_key=canary("store", odd=False))
    yield running
    running.stop()


@pytest.fixture
def write(tmp_path):
    return lambda steps, file="wf.json", **fields: write_workflow(tmp_path, *steps, file=file, **fields)


def output_of(store, **changes):
    return s3_place(store, **changes)


def said(penstock):
    """Returns {command: output} of all programs that the test has started."""
    return {" ".join(map(str, p.arguments))[:60]: b"".join(p.chunks["out"] + p.chunks["err"]) for p in penstock.started}


def assert_nothing_leaked(penstock, canary, scratch, *stores):
    """Checks that no secret is in outputs, files or buckets."""
    leaks = {where: canary.within(text) for where, text in said(penstock).items()}
    for folder in (penstock.home, penstock.claims, penstock.cwd, penstock.folder / "guarded", scratch):
        for path in folder.rglob("*"):
            if path.is_file() and not path.is_symlink():
                leaks[str(path)] = canary.within(path.read_bytes())
            leaks[f"name of {path}"] = canary.within(str(path.relative_to(folder)).encode())
    for store in stores:
        for bucket in store.client.list_buckets()["Buckets"]:
            for key in store.keys(bucket["Name"]):
                got = store.client.get_object(Bucket=bucket["Name"], Key=key)
                leaks[f"s3://{bucket['Name']}/{key}"] = canary.within(key.encode() + str(got["Metadata"]).encode() + got["Body"].read())
    assert {where: places for where, places in leaks.items() if places} == {}


def assert_private(home):
    """Checks that all files are for their owner alone; files of steps are below a directory that other users cannot enter."""
    for path in [home, *home.rglob("*")]:
        if not any(part in ("storage", "tmp") for part in path.relative_to(home).parts[:-1]) and not path.is_symlink():
            assert path.stat().st_mode & 0o077 == 0, f"{path}: {path.stat().st_mode:o}"


TELL = r"""
# Prints each secret as it is, in two writes with a pause, and in base64.
for v in "$AWS_SECRET_ACCESS_KEY" "$HF_TOKEN" "$FROM_SECRET" "$FROM_ENV_TOKEN" "$OPTION_TOKEN" "$SET_TOKEN" "$FILE_TOKEN"; do
    echo "is $v."; echo "or on the other side $v" >&2
    printf %s "${v%????????}"; sleep 0.3; printf '%s\n' "${v#"${v%????????}"}"
    printf '%s' "$v" | base64 -w0; echo; printf 'x:%s' "$v" | base64 -w0; echo
done
"""


def test_a_run_leaves_its_secrets_where_they_were(penstock, canary, watch, scratch, guarded, write, tmp_path):
    # There are secrets in the workflow, the environment, options, $DEEPSQUARE_ENV, a signed URL
    # with a user, and a proxy with a password.
    token = tmp_path / "token"
    token.write_text(canary("env-file"))
    proxy = Server()
    proxy.add("http://input.invalid/data.bin", b"input")
    secret_url = f"http://{canary.url('url-user')}:{canary.url('url-password')}@input.invalid/data.bin?X-Amz-Signature={canary.url('signature')}"
    path = write(
        [f"echo FILE_TOKEN=$(cat {token}) >> $DEEPSQUARE_ENV; cat $DEEPSQUARE_INPUT/data.bin; echo kept > $DEEPSQUARE_OUTPUT/x",
         {"command": TELL + "echo ready; while [ ! -e $STORAGE_PATH/go ]; do sleep 0.02; done", "env": [{"key": "SET_TOKEN", "value": "x"}]}],
        env=[{"key": "HF_TOKEN", "value": canary("workflow-env")}, {"key": "FROM_SECRET", "value": "${{ secrets.MINE }}"},
             {"key": "FROM_ENV_TOKEN", "value": "${{ env.OUTER_TOKEN }}"}],
        input={"http": {"url": secret_url}}, output=output_of(guarded), enableLogging=True, continuousOutputSync=True,
    )  # fmt: skip
    environment = {
        "PENSTOCK_SECRET_MINE": canary("secret"), "PENSTOCK_SECRET_UNUSED": canary("secret-unused"), "OUTER_TOKEN": canary("outer"),
        "http_proxy": f"http://{canary.url('proxy-user')}:{canary.url('proxy-password')}@{proxy.url.removeprefix('http://')}",
        "no_proxy": "127.0.0.1", "PENSTOCK_LOG": "debug", "AWS_SECRET_ACCESS_KEY": canary("inherited"), "AWS_ACCESS_KEY_ID": "AKINHERITED",
        "AWS_SESSION_TOKEN": canary("inherited-session"),
    }  # fmt: skip

    run = penstock.popen("run", path, "--env", f"OPTION_TOKEN={canary('option-env')}", "-s",
                         f"steps[1].run.env.SET_TOKEN={canary('option-set')}", env=environment)  # fmt: skip
    run.wait_for_output("^ready")
    assert canary.within(Path(f"/proc/{run.pid}/cmdline").read_bytes()) == set()
    (storage,) = penstock.home.glob("runs/*/storage")
    (storage / "go").touch()
    run.wait().ok()
    for verb in ("show", "ps", "logs"):
        arguments = [penstock.ps()[0]["id"]] if verb != "ps" else []
        penstock.run(verb, *(["--json"] if verb != "logs" else []), *arguments).ok()
    proxy.close()

    found = watch.stop()
    assert run.out.startswith("input") and run.out.count("***") >= 28
    assert_nothing_leaked(penstock, canary, scratch, guarded)
    # Not even the first half of a secret appears, although the second half arrives after the
    # longest time for which penstock holds back output.
    assert not [place for place, secret in canary.made.items() if secret[3:-8] in run.out]
    assert_private(penstock.home)
    assert proxy.requests[0].headers["proxy-authorization"].startswith("Basic ")
    # On command lines, secrets are only in penstock's own options, until penstock has read them.
    assert {entry for entry in found if entry[1] == "command line"} <= {("penstock", "command line", p) for p in ("option-env", "option-set")}
    # The environment of steps has only the secrets that the steps were given, and those of the
    # user's shell.
    asked_for = {"store", "workflow-env", "secret", "outer", "option-env", "option-set", "env-file"} | {"proxy-user", "proxy-password"}
    in_steps = {place for kind, where, place in found if (kind, where) == ("step", "environment")}
    assert {"store", "secret"} <= in_steps <= asked_for


def test_temporary_keys_reach_the_steps_with_their_token(penstock, canary, watch, scratch, write):
    # The keys come from the files of a profile; without the token they would be refused.
    folder = penstock.user_home / ".aws"
    folder.mkdir()
    (folder / "credentials").write_text(
        f"[work]\naws_access_key_id = AKPROFILE\naws_secret_access_key = {canary('profile')}\naws_session_token = {canary('session')}\n"
    )
    with SmallStore() as store:
        (folder / "config").write_text(f"[profile work]\nendpoint_url = {store.endpoint}\nregion = us-east-1\n")
        step = 'echo "$AWS_ACCESS_KEY_ID $AWS_SECRET_ACCESS_KEY $AWS_SESSION_TOKEN"; echo 1 > $DEEPSQUARE_OUTPUT/x'
        path = write([step], output={"s3": {"region": "us-east-1", "bucketUrl": "s3://out", "path": "/", "endpointUrl": store.endpoint}}, enableLogging=True)
        environment = {"AWS_PROFILE": "work", "PENSTOCK_LOG": "debug"}
        ended = penstock.run("run", path, env=environment).ok()
        penstock.run("doctor", "--json", "--bucket", "s3://out", env=environment)

        assert ended.out == "AKPROFILE *** ***\n"
        assert not [name for name, versions in store.objects.items() if canary.within(versions[-1].body)]
    assert_nothing_leaked(penstock, canary, scratch)
    assert not [entry for entry in watch.stop() if entry[1] == "command line"]


def test_failures_name_no_secret(penstock, canary, watch, scratch, guarded, write, http_server):
    # The failures: wrong keys, missing objects, refusals, denied access, no TLS, a redirect to a
    # signed URL, and a store that repeats the request in its reply.
    environment = {"PENSTOCK_LOG": "debug", "PENSTOCK_SECRET_KEY": canary("secret"), "PENSTOCK_FLUSH_PATIENCE": "0",
                   "PENSTOCK_NETWORK_PATIENCE": "0"}  # fmt: skip
    query = f"?X-Amz-Credential={canary.url('credential')}&X-Amz-Security-Token={canary.url('token')}&X-Amz-Signature={canary.url('signature')}"
    user = f"{canary.url('url-user')}:{canary.url('url-password')}@"
    here = http_server.url.removeprefix("http://")
    http_server.add("/found", b"x")
    http_server.fault("/forbidden", times=10**6, status=403, body=f"no: {canary('token')} {canary('signature')}".encode())
    http_server.fault("/redirect", times=10**6, status=302, headers={"Location": f"{http_server.url}/missing{query}&again=1"})
    closed = FaultProxy(guarded.endpoint, listen=False)
    # The server makes a new signature for each request, which penstock has not seen before.
    fresh = f"?q-signature={canary.url('fresh')}&X-Amz-Security-Token={canary.url('fresh-token')}"
    http_server.fault("/repeats", times=10**6, status=403, body=f"no: {http_server.url}/repeats{fresh} {canary('fresh')}".encode())
    places = [f"{http_server.url}/missing", f"{http_server.url}/repeats", f"{closed.url}/x", f"https://{here}/found", "ftp://h/x"]
    for i, place in enumerate(places):
        http_server.fault(f"/fresh{i}", times=10**6, status=302, headers={"Location": place + fresh}, methods=("GET", "HEAD"))
    urls = [f"{http_server.url}/fresh{i}" for i in range(len(places))]
    urls += [
        f"http://{user}{here}/missing{query}", f"http://{user}{here}/forbidden{query}", f"http://{user}{here}/redirect{query}",
        f"https://{user}{here}/found{query}", f"http://{user}{closed.url.removeprefix('http://')}/x{query}",
        f"http://{user}no-such-host.invalid/x{query}", f"ftp://{user}{here}/x{query}",
    ]  # fmt: skip
    for i, url in enumerate(urls):
        ended = penstock.run("run", write(["true"], f"in{i}.json", input={"http": {"url": url}}), env=environment)
        assert ended.code not in (0, 70), ended.err

    with FaultProxy(guarded.endpoint) as echo, FaultProxy(guarded.endpoint) as denied:
        body = s3_error("AccessDenied", f"no: {canary('store')}")
        echo.fault(times=10**6, status=403, body=body)
        denied.fault("PUT", "/out/x", times=10**6, status=403, body=s3_error("SignatureDoesNotMatch", canary("store")))
        outputs = [
            output_of(guarded, secretAccessKey=canary("wrong-key")), output_of(guarded, secretAccessKey="${{ secrets.KEY }}"),
            output_of(guarded, secretAccessKey="${{ secrets.MISSING }}"), output_of(guarded, endpointUrl=closed.url),
            output_of(guarded, endpointUrl=f"http://{user}{here}"), output_of(guarded, endpointUrl=echo.url),
            output_of(guarded, endpointUrl=denied.url), output_of(guarded, secretAccessKey=[canary("wrong-key")]),
            output_of(guarded, secretAccessKey=canary("wrong-key"), secretAcessKey=canary("misspelt")),
        ]  # fmt: skip
        for i, output in enumerate(outputs):
            path = write(["echo 1 > $DEEPSQUARE_OUTPUT/x"], f"out{i}.json", output=output, name=f"out{i}")
            ended = penstock.run("run", path, env=environment)
            assert ended.code not in (0, 70), ended.err
        for i in range(len(outputs)):
            penstock.run("show", f"out{i}", env=environment)
            penstock.run("flush", f"out{i}", env=environment)
        broken = write(["true"], "broken.json", output=output_of(guarded))
        broken.write_text(broken.read_text()[:-20])
        penstock.run("run", broken, env=environment).exits(65)
    sets = [f"output.s3.secretAccessKey={canary('option-set')}", canary("option-set"), f"outputs.s3={canary('option-set')}"]
    for value in sets:
        penstock.run("run", write(["true"]), "--set", value, env=environment)
    penstock.run("run", write(["true"]), "--env", canary("option-env"), env=environment).exits(65)
    keys = {"AWS_ACCESS_KEY_ID": "AKWRONG", "AWS_SECRET_ACCESS_KEY": canary("environment"), "AWS_ENDPOINT_URL": guarded.endpoint}
    penstock.run("doctor", "--bucket", "s3://out", env=keys | {"PENSTOCK_LOG": "debug"})
    penstock.run("run", "s3://out/workflow.json", env=keys | {"PENSTOCK_LOG": "debug"})
    closed.close()

    found = watch.stop()
    assert_nothing_leaked(penstock, canary, scratch, guarded)
    assert_private(penstock.home)
    assert {entry for entry in found if entry[1] == "command line"} <= {("penstock", "command line", p) for p in ("option-env", "option-set")}


def test_a_redirect_to_a_signed_address_is_followed_and_forgotten(penstock, canary, scratch, write, http_server):
    # Like dataset hosts and forges, the server redirects to a URL that it has signed. The signature
    # is in no log, no record, and no leftovers of an interrupted input.
    signed = f"/found?X-Oss-Signature={canary.url('fresh')}&Expires=7"
    http_server.add("/found", b"found")
    http_server.fault("/data.bin", times=10**6, status=302, headers={"Location": http_server.url + signed}, methods=("GET", "HEAD"))
    path = write(["cat $DEEPSQUARE_INPUT/*; exit 5"], input={"http": {"url": f"{http_server.url}/data.bin"}})

    first = penstock.run("run", path, env={"PENSTOCK_LOG": "debug"}).exits(5)
    run = penstock.ps()[0]["id"]
    penstock.run("show", "--json", run).ok()
    penstock.run("resume", run, env={"PENSTOCK_LOG": "debug"}).exits(5)

    assert first.out == "found" and [r for r in http_server.requests if canary.url("fresh") in r.path or "/found" in r.path]
    assert_nothing_leaked(penstock, canary, scratch)


def test_the_verbs_that_move_objects_name_no_secret(penstock, canary, watch, scratch, guarded, tmp_path):
    # The keys come from the environment and from a profile; some are wrong. The debug log is on.
    folder = tmp_path / "files"
    folder.mkdir()
    for name in ("a", "b c"):
        (folder / name).write_bytes(b"x" * 1000)
    (folder / "large").write_bytes(os.urandom(20 << 20))
    config = tmp_path / "credentials"
    config.write_text(f"[default]\naws_access_key_id = {guarded.access_key}\naws_secret_access_key = {canary('wrong-key')}\n")
    here = {"PENSTOCK_LOG": "debug", "AWS_ENDPOINT_URL": guarded.endpoint, "PENSTOCK_SECRET_MINE": canary("secret"), "AWS_REGION": "us-east-1",
            "https_proxy": f"http://me:{canary.url('proxy-password')}@127.0.0.1:9", "no_proxy": "127.0.0.1"}  # fmt: skip
    good = here | {"AWS_ACCESS_KEY_ID": guarded.access_key, "AWS_SECRET_ACCESS_KEY": guarded.secret_key}
    wrong = here | {"AWS_SHARED_CREDENTIALS_FILE": str(config)}
    token = good | {"AWS_SESSION_TOKEN": canary("session")}
    penstock.run("mb", "s3://out", env=good).ok()
    verbs = [("sync", folder, "s3://out/f/"), ("cp", "-r", folder, "s3://out/g/"), ("ls", "s3://out/f/"), ("stat", "s3://out/f/a"), ("cat", "s3://out/f/a"), ("du", "s3://out"),
             ("cp", "s3://out/f/large", tmp_path / "back"), ("rm", "s3://out/f/b c")]  # fmt: skip

    for verb in verbs:
        penstock.run(*verb, env=good).ok()
        for env in (wrong, token):
            failed = penstock.run(*verb, env=env)
            assert env is token or failed.code not in (0, 70), failed.err

    assert (tmp_path / "back").read_bytes() == (folder / "large").read_bytes()
    assert not [entry for entry in watch.stop() if entry[1] == "command line"]
    assert_nothing_leaked(penstock, canary, scratch, guarded)


def test_a_key_of_google_is_in_no_file_and_on_no_command_line(penstock, canary, watch, scratch, write, tmp_path):
    with Gcs() as gcs:
        gcs.buckets |= {"out": {}}
        gcs.guarded = True
        key = gcs.key_file(tmp_path / "key.json").read_text()
        canary("none")
        canary.made |= {"private-key": json.loads(key)["private_key"].splitlines()[5], "hmac": gcs.secret_key}
        canary.patterns = re.compile(b"|".join(re.escape(form) for secret in canary.made.values() for form in forms(secret)))
        place = {"endpointUrl": gcs.url, "bucketUrl": "gs://out", "path": "/run"}
        step = "echo 1 > $DEEPSQUARE_OUTPUT/x; [ -e $STORAGE_PATH/again ] || { touch $STORAGE_PATH/again; exit 7; }"
        account = write([step], "account.json", name="account", output={"gs": place | {"serviceAccountKey": "${{ secrets.GCP }}"}})
        pair = {"accessKeyId": gcs.access_key, "secretAccessKey": gcs.secret_key, "path": "/other"}
        keys = write([step], "pair.json", name="pair", output={"gs": place | pair})
        environment = {"PENSTOCK_SECRET_GCP": key, "PENSTOCK_LOG": "debug", "NO_GCE_CHECK": "true"}

        for path, name in ((account, "account"), (keys, "pair")):
            penstock.run("run", path, env=environment).exits(7)
            penstock.run("resume", name, env=environment).ok()
            penstock.run("show", "--json", name).ok()

        assert {"run/x", "other/x"} <= set(gcs.buckets["out"])
        leaked = {name: canary.within(body) for name, body in gcs.bodies("out").items()}
    assert {name: places for name, places in leaked.items() if places} == {}
    assert not [entry for entry in watch.stop() if entry[1] == "command line"]
    assert_nothing_leaked(penstock, canary, scratch)


def test_a_detached_run_and_the_owner_of_the_store_hold_no_secrets_of_others(penstock, canary, watch, scratch, write):
    # The embedded store outlives the run and serves other runs, so its process must not have the
    # secrets of this run's environment.
    s3 = {"region": "us-east-1", "bucketUrl": "s3://out", "path": "/", "endpointUrl": "embedded"}
    step = 'echo "$AWS_SECRET_ACCESS_KEY" > $STORAGE_PATH/key; echo "it is $AWS_SECRET_ACCESS_KEY"; echo $MINE; exit 3'
    path = write([step], output={"s3": s3}, env=[{"key": "MINE", "value": "${{ secrets.MINE }}"}], enableLogging=True)
    environment = {"PENSTOCK_SECRET_MINE": canary("secret"), "AWS_SECRET_ACCESS_KEY": canary("inherited"), "AWS_ACCESS_KEY_ID": "AKOTHERS"}

    run = penstock.run("run", "--detach", path, env=environment).ok().out.strip()
    wait_for(lambda: penstock.ps()[0]["state"] == "failed", 60)
    log = penstock.run("logs", run).ok().out

    found = watch.stop()
    own_key = (penstock.home / "runs" / run / "storage" / "key").read_text().strip()
    assert len(own_key) >= 16 and own_key not in log and "it is ***" in log
    assert [entry for entry in found if entry[0] == "owner"] == []
    assert_nothing_leaked(penstock, canary, scratch)


def test_helpers_get_none_of_penstocks_secrets_and_say_none(penstock, canary, scratch, guarded, write, http_server, tmp_path):
    # The helpers are programs that penstock runs for its own purposes: sources of keys and logins,
    # a source of notices, an installer of packages.
    noted = tmp_path / "noted"
    programs = tmp_path / "programs"
    for folder in (noted, programs):
        folder.mkdir()

    def program(name, body):
        path = programs / name
        path.write_text(f'#!/bin/sh\n{{ echo "$0 $*"; env; }} > {noted}/{name}.part; mv {noted}/{name}.part {noted}/{name}\n{body}\n')
        path.chmod(0o755)
        return path

    keys = {"Version": 1, "AccessKeyId": guarded.access_key, "SecretAccessKey": guarded.secret_key}
    halves = canary("inline")[:9], canary("inline")[9:]
    printer = program("printer", f"printf 'with %s' '{halves[0]}' >&2; sleep 0.2; echo '{halves[1]}, or %2F' >&2\ncat <<E\n{json.dumps(keys)}\nE")
    login = {"ServerURL": "x", "Username": "ann", "Secret": canary("registry")}
    program("docker-credential-kept", f"cat > /dev/null; cat <<E\n{json.dumps(login)}\nE")
    (penstock.user_home / ".docker").mkdir()
    (penstock.user_home / ".docker" / "config.json").write_text(json.dumps({"credsStore": "kept"}))
    for place in ("/v2/", "/v2/job/tool/manifests/v1"):
        http_server.fault(place, times=10**6, status=401, headers={"WWW-Authenticate": 'Basic realm="x"'}, methods=("GET", "HEAD"))
    python = program("python", f"echo 'pip says {canary('inline')}'; [ $2 = pip ] || {{ for last; do :; done; mkdir -p $last/bin; ln -s /bin/true $last/bin/python3; }}")
    config = tmp_path / "config"
    config.write_text(f"[default]\ncredential_process = {printer}\n")
    output = output_of(guarded)
    del output["s3"]["accessKeyId"], output["s3"]["secretAccessKey"]
    context = tmp_path / "context"
    context.mkdir()
    (context / "requirements.txt").write_text("pip\n")
    step = f"while [ ! -e {noted}/asking ]; do sleep 0.02; done; echo x > $DEEPSQUARE_OUTPUT/x"
    path = write([step], output=output, preemption={"sources": [{"command": str(program("asking", "exit 1"))}]}, context=str(context),
                 python={"requirements": "requirements.txt"},
                 env=[{"key": "HF_TOKEN", "value": canary("inline")}, {"key": "MINE", "value": "${{ secrets.MINE }}"}])  # fmt: skip
    environment = {
        "PENSTOCK_SECRET_MINE": canary("secret"), "PENSTOCK_SECRET_ACCESS_KEY": canary("account"), "PENSTOCK_ACCESS_KEY_ID": "AKACCOUNT",
        "AWS_CONFIG_FILE": str(config), "AWS_SHARED_CREDENTIALS_FILE": "/dev/null", "AWS_EC2_METADATA_DISABLED": "true", "FOR_ALL": "for all",
        "PENSTOCK_PYTHON": str(python), "PATH": f"{programs}:/usr/bin:/bin", "PENSTOCK_LOG": "debug",
    }  # fmt: skip

    ended = penstock.run("run", path, env=environment).ok()
    refused = penstock.run("pull", f"{http_server.url.removeprefix('http://')}/job/tool:v1", env=environment)

    assert {entry.name for entry in noted.iterdir()} == {"printer", "docker-credential-kept", "asking", "python"}
    for entry in noted.iterdir():
        text = entry.read_text()
        assert "FOR_ALL=for all" in text and canary.within(text.encode()) == set(), entry.name
    assert "with ***, or %2F" in ended.err and "pip says ***" in ended.text
    assert refused.code not in (0, 70) and [r for r in http_server.requests if "authorization" in r.headers]
    assert_nothing_leaked(penstock, canary, scratch)


def test_nobody_reads_the_memory_of_a_supervisor(canary):
    # A supervisor never leaves a core file, and the environ and mem in its /proc/PID belong to
    # root, even if the supervisor runs as another user. Steps keep the user's core limit.
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        program = shutil.copy(binary(), folder)
        home = Path(folder) / "home"
        home.mkdir()
        user = []
        if os.getuid() == 0:
            os.chown(home, 65534, 65534)
            user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        workflow = home / "wf.json"
        workflow.write_text(json.dumps({"resources": RESOURCES, "steps": [{"name": "s", "run": {"command": "echo $$ > pid; exec sleep 1000"}}]}))
        workflow.chmod(0o644)
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(home), "PENSTOCK_HOME": str(home / "p"), "PENSTOCK_CLAIMS_DIR": str(home),
                       "PENSTOCK_SECRET_MINE": canary("secret")}  # fmt: skip
        # Sanitizers would set the core limit to 0 before main().
        environment |= {f"{name}_OPTIONS": "disable_coredump=0" for name in ("ASAN", "TSAN")}
        hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
        some = 4096 if hard == resource.RLIM_INFINITY else hard
        run = subprocess.Popen([*user, program, "run", workflow], env=environment, cwd=home, stderr=subprocess.DEVNULL,
                               preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (some, hard)))  # fmt: skip
        try:
            (text,) = wait_for(lambda: [t for t in (path.read_text() for path in home.glob("p/runs/*/storage/pid")) if t.endswith("\n")], 60)
            limits = {pid: Path(f"/proc/{pid}/limits").read_text() for pid in (run.pid, int(text))}
            owners = {name: os.stat(f"/proc/{run.pid}/{name}").st_uid for name in ("environ", "mem", "fd", "maps")}
            (identity,) = os.listdir(home / "p/runs")
            # penstock finds the run although its descriptors are hidden, too.
            stopped = subprocess.run([*user, program, "stop", identity], env=environment, cwd=home, capture_output=True, text=True, timeout=120)
            assert stopped.returncode == 0, stopped.stderr
            assert run.wait(60) == 130
        finally:
            run.kill()
            run.wait()

        core = re.compile(r"^Max core file size +(\S+) ", re.M)
        assert core.search(limits[run.pid]).group(1) == "0"
        assert core.search(limits[int(text)]).group(1) == str(some)
        assert set(owners.values()) == {0}


def test_a_secret_that_cannot_be_kept_leaves_the_others_alone(penstock):
    # Invalid UTF-8 and too many bytes are refused. Both once made the file of secrets unusable.
    penstock.run("secret", "set", "MINE", input="of-the-file-1234\n").ok()
    raw = penstock.popen("secret", "set", "MINE", stdin=subprocess.PIPE)
    with raw.popen.stdin as pipe:
        pipe.write(b"\xff\xfe\n")
    no_text = raw.wait().exits(65)
    penstock.run("secret", "set", "LONG", input="x" * 700_000).ok()
    too_many = penstock.run("secret", "set", "LONGER", input="x" * 700_000)

    assert "UTF-8" in no_text.err and too_many.code != 0
    assert penstock.run("secret", "list").ok().out.split() == ["LONG", "MINE"]
    assert json.loads((penstock.home / "secrets.json").read_text())["MINE"] == "of-the-file-1234"


def test_a_terminal_gets_its_echo_back_when_the_question_is_interrupted(penstock):
    terminal = Terminal(penstock, "secret", "set", "MINE")
    held = fcntl.ioctl(terminal.master, TIOCGPTPEER, os.O_RDWR | os.O_NOCTTY)
    try:

        def echoes():
            return bool(termios.tcgetattr(held)[3] & termios.ECHO)

        wait_for(lambda: not echoes())
        terminal.press(b"half a sec")
        terminal.press()
        code = terminal.popen.wait(60)

        assert code == -signal.SIGINT and echoes() and "half" not in terminal.raw
    finally:
        os.close(held)
