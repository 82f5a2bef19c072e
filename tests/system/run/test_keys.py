"""Steps with a store whose keys expire: they get new keys while they run."""
import json
import re
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from harness import debian_image, expiring
from harness.metadata import Service
from harness.program import Process
from harness.registry import busybox, image, write_layout
from harness.workflows import write_workflow

LIFETIME_S = 6
SOURCE = Path(expiring.__file__)

# Uses one client, as a training program does, until the client has had three keys. The printed line
# describes where the keys came from.
TRAINER = """
import json, os, sys, time
import boto3
session = boto3.Session()
client = session.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"]) if sys.argv[1:] == ["store"] else None
tokens, until = set(), time.monotonic() + 60
while len(tokens) < 3 and time.monotonic() < until:
    if client:
        client.put_object(Bucket="out", Key=f"step-{len(tokens)}", Body=b"x")
    tokens.add(session.get_credentials().get_frozen_credentials().token)
    time.sleep(0.1)
print(json.dumps({"tokens": len(tokens), "method": session.get_credentials().method, "env": {k: v for k, v in os.environ.items() if k.startswith("AWS_")}}))
"""


class Ecs(Service):
    """The endpoint that gives a container the keys of its role, which expire soon."""

    def __init__(self):
        super().__init__()
        self.env = {"AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{self.url}/role", "AWS_CONTAINER_AUTHORIZATION_TOKEN": "token-of-the-machine",
                    "AWS_EC2_METADATA_DISABLED": "true"}  # fmt: skip

    def answer(self, handler, method, path, query, body):
        if handler.headers.get("Authorization") != "token-of-the-machine":
            return 401, {}, b"{}"
        return 200, {"Content-Type": "application/json"}, json.dumps(expiring.keys(LIFETIME_S)).encode()


@pytest.fixture
def ecs():
    service = Ecs()
    yield service
    service.close()


@pytest.fixture
def ending():
    with expiring.ExpiringStore() as store:
        yield store


@pytest.fixture(scope="session")
def boto3_layout(tmp_path_factory):
    """An image with Debian's boto3, reduced to the services that the test uses."""
    others = re.compile(r"/boto(core|3)/data/(?!s3/|sts/|[^/]*$)")
    files = {path for path in debian_image.packages("python3-boto3") if not others.search(path)} | debian_image.programs("/usr/bin/python3")
    return write_layout(tmp_path_factory.mktemp("boto3"), image([busybox(), debian_image.layer(files)]))


def place(endpoint):
    return {"s3": {"region": "us-east-1", "bucketUrl": "s3://out", "path": "/", "endpointUrl": endpoint}}


def trained(result):
    """Returns the report of the trainer."""
    return json.loads(next(line for line in reversed(result.ok().out.splitlines()) if line.startswith("{")))


def trainer(tmp_path, *words):
    path = tmp_path / "trainer.py"
    path.write_text(TRAINER)
    return " ".join(["/usr/bin/python3", str(path), *words])


def assert_served(seen):
    assert seen["tokens"] == 3 and seen["method"] == "container-role"
    assert not {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"} & seen["env"].keys()


# The first keys expire before the training ends, but each request of the training has valid keys. A
# request without the token gets no keys.
def test_a_process_outlives_its_keys(penstock, ecs, ending, tmp_path):
    curl = 'curl -s -o /dev/null -w "%{http_code}\\n"'
    ask = f'{curl} "$AWS_CONTAINER_CREDENTIALS_FULL_URI"; {curl} -H "Authorization: $AWS_CONTAINER_AUTHORIZATION_TOKEN" "$AWS_CONTAINER_CREDENTIALS_FULL_URI"'
    path = write_workflow(tmp_path, f"{ask}; {trainer(tmp_path, 'store')}", output=place(ending.endpoint))

    result = penstock.run("run", path, env=ecs.env)

    seen = trained(result)
    assert_served(seen)
    assert ending.refused == 0 and "step-2" in ending.keys("out")
    assert result.out.splitlines()[:2] == ["401", "200"]
    assert seen["env"]["AWS_CONTAINER_AUTHORIZATION_TOKEN"] == "***", "the log hides the token"
    with pytest.raises(urllib.error.URLError):  # the listener has ended with the run
        urllib.request.urlopen(seen["env"]["AWS_CONTAINER_CREDENTIALS_FULL_URI"], timeout=10)


@pytest.mark.parametrize("network", ["host", "slirp4netns", "pasta"])
def test_a_container_outlives_its_keys(penstock, ecs, ending, boto3_layout, tmp_path, network):
    mounts = [{"hostDir": str(tmp_path / "trainer.py"), "containerDir": str(tmp_path / "trainer.py"), "options": "ro"}]
    words = ["store"] if network == "host" else []  # the store is on the machine's loopback address
    step = {"command": trainer(tmp_path, *words), "network": network, "container": {"image": str(boto3_layout), "mounts": mounts}}

    result = penstock.run("run", write_workflow(tmp_path, step, output=place(ending.endpoint)), env=ecs.env)

    assert_served(trained(result))
    assert ending.refused == 0


@pytest.mark.parametrize("network", ["slirp4netns", "pasta"])
def test_a_process_with_its_own_network_outlives_its_keys(penstock, ecs, ending, tmp_path, network):
    path = write_workflow(tmp_path, {"command": trainer(tmp_path), "network": network}, output=place(ending.endpoint))

    assert_served(trained(penstock.run("run", path, env=ecs.env)))


# SDKs prefer the keys of a profile to those of the endpoint. Therefore the step gets a copy of the
# profile without its source of keys.
@pytest.mark.parametrize("name", ["default", "trainer"])
def test_a_profile_with_a_role_does_not_hide_the_endpoint(penstock, ending, tmp_path, name):
    (penstock.user_home / ".aws").mkdir()
    (penstock.user_home / ".aws" / "config").write_text(
        f"[{'' if name == 'default' else 'profile '}{name}]\ncredential_process = {sys.executable} {SOURCE} keys {LIFETIME_S}\n"
        "output = text\ns3 =\n    addressing_style = path\n[profile other]\noutput = json\n"
    )
    command = f"cat $AWS_CONFIG_FILE; {trainer(tmp_path, 'store')}"

    result = penstock.run("run", write_workflow(tmp_path, command, output=place(ending.endpoint)),
                          env={} if name == "default" else {"AWS_PROFILE": name})  # fmt: skip

    assert_served(trained(result))
    lines = result.out.splitlines()
    assert "output = text" in lines and "  addressing_style = path" in lines and "credential_process" not in result.out


# Without the directory, the next step has no copy of the profile, and gets its keys from the
# machine's own profile.
def test_a_step_that_removes_the_directory_of_its_profile_is_followed_by_others(penstock, ending, tmp_path):
    (penstock.user_home / ".aws").mkdir()
    (penstock.user_home / ".aws" / "config").write_text(f"[default]\ncredential_process = {sys.executable} {SOURCE} keys {LIFETIME_S}\n")
    path = write_workflow(tmp_path, "rm -r $STORAGE_PATH/.penstock", trainer(tmp_path, "store"), output=place(ending.endpoint))

    seen = trained(penstock.run("run", path))

    assert seen["tokens"] == 3 and seen["method"] == "custom-process"


# Permanent keys are set as variables, because some programs do not know the endpoint.
def test_keys_that_stay_are_in_the_environment(penstock, store, tmp_path):
    out = place(store.endpoint)
    out["s3"]["createBucket"] = True
    path = write_workflow(tmp_path, 'echo "id=$AWS_ACCESS_KEY_ID uri=$AWS_CONTAINER_CREDENTIALS_FULL_URI"', output=out)

    assert f"id={store.access_key} uri=\n" in penstock.run("run", path, env=store.env).ok().out


# Each node gets keys for itself, and serves them to its tasks.
def test_a_step_on_slurm_outlives_its_keys(login, tmp_path):
    server = Process(login.cluster.inside(login.cluster.control, [sys.executable, str(SOURCE), "serve", f"{login.cluster.net}.1"]),
                     login.env, tmp_path, stdin=-1)  # fmt: skip
    try:
        endpoint = server.wait_for_output("http://.*")[0]
        (login.user_home / ".aws").mkdir()
        (login.user_home / ".aws" / "config").write_text(f"[default]\ncredential_process = {sys.executable} {SOURCE} keys {LIFETIME_S}\n")
        step = {"command": trainer(tmp_path, "store"), "resources": {"tasks": 2}}

        result = login.on_slurm(write_workflow(tmp_path, step, resources=None, output=place(endpoint))).wait()

        reports = [json.loads(line.partition(": ")[2]) for line in result.ok().out.splitlines() if re.match(r"\d: \{", line)]
        assert len(reports) == 2
        for seen in reports:
            assert_served(seen)
            assert seen["env"]["AWS_CONTAINER_AUTHORIZATION_TOKEN"] == "***", "the log hides the token"
    finally:
        server.close()
