"""Fixtures of the system tests; harness/ has their classes."""
import functools
import os
import re
import signal
import ssl
import subprocess
import tempfile
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness import processes
from harness.fault_proxy import FaultProxy
from harness.http_server import Server
from harness.nginx import Nginx
from harness.peers.again import Shared
from harness.peers.ceph import Ceph
from harness.peers.fake_gcs import FakeGcs
from harness.peers.minio import Minio
from harness.program import SHARED, TOP, Penstock, Store
from harness.slurm import Cluster, ClusterPenstock, ClusterStore
from harness.waiting import wait_for as wait_for_condition
from harness.workflows import write_workflow

INVOKED_WITH = dict(os.environ)
PATIENCE_S = 60
# The files with the longest tests. These files run first, so that no worker runs one of them alone at the end.
LONGEST = (
    "jobs/", "run/test_takeover", "sync/test_fire", "cli/test_objects", "client/test_dataset", "run/test_ownership", "ui/test_page", "deploy/",
    "store/test_notifications", "run/test_preemption", "workflow/test_determined", "run/test_keys", "run/test_checkpoints", "sync/test_publish",
    "store/test_cors", "store/test_connections", "containers/test_images", "transfer/test_races", "transfer/test_verbs", "workflow/test_dialects",
    "store/test_power", "run/test_tracking",
)  # fmt: skip
REMOVED = ("AWS_", "XDG_", "PENSTOCK_", "GOOGLE_", "GS_", "GCE_", "CLOUDSDK_", "STORAGE_EMULATOR_")
KEPT = ("PENSTOCK_TEST_CACHE", "PENSTOCK_SOAK_S", "PENSTOCK_TEST_WITHOUT_PEERS", "PENSTOCK_KILLS", "PENSTOCK_KILL_SEED", "PENSTOCK_SCREENSHOTS")


def pytest_configure(config):
    # Tests must not read or write the home, the credentials or the runs of the user who started them.
    config.private_home = tempfile.TemporaryDirectory(prefix="penstock-test-home-")
    for name in list(os.environ):
        if name.startswith(REMOVED) and name not in KEPT:
            del os.environ[name]
    os.environ["HOME"] = config.private_home.name
    os.environ["AWS_EC2_METADATA_DISABLED"] = "true"
    os.environ["NO_GCE_CHECK"] = "true"
    # Shells ignore SIGINT in background processes, and the processes of the tests would inherit the
    # ignored signal.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    processes.adopt_orphans()


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: not item.nodeid.startswith(LONGEST))


def pytest_runtest_setup(item):
    if item.get_closest_marker("preloads") and "tsan" in INVOKED_WITH.get("PENSTOCK", ""):
        pytest.skip("with a preloaded library, ThreadSanitizer does not see the program's locks")


def pytest_unconfigure(config):
    config.private_home.cleanup()


@pytest.fixture(autouse=True)
def nothing_survives(request):
    """Fails a test that leaves a process, such as a daemon. Processes of longer-lived fixtures may stay."""
    before = set(processes.descendants())
    yield
    kept = getattr(request.config, "kept_processes", set())
    left = processes.survivors(before | kept, PATIENCE_S)
    if left:
        processes.end(left)
        pytest.fail("left running: " + "; ".join(f"{pid} {command}" for pid, command in left.items()))


@pytest.fixture(scope="session")
def keep_process(request):
    """keep_process(pid): this process belongs to a fixture that outlives the test."""
    request.config.kept_processes = set()
    return request.config.kept_processes.add


@pytest.fixture
def wait_for():
    return wait_for_condition


@pytest.fixture
def tmp_path(request, tmp_path):
    """pytest's own directory, or, with the mark `users`, a directory that every user can enter, unlike pytest's."""
    if not request.node.get_closest_marker("users"):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="penstock-user-") as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@pytest.fixture
def penstock(tmp_path):
    """The program under test; each test has its own home and claims."""
    program = Penstock(tmp_path / "p")
    yield program
    program.close()


@pytest.fixture
def workflow(tmp_path):
    """workflow(run, **fields): writes a workflow of one step, `train`, without `resources`; returns its path."""
    return functools.partial(write_workflow, tmp_path, named="train", name="t", resources=None)


@pytest.fixture
def store(penstock, tmp_path):
    """A running object store without buckets."""
    running = Store(penstock, tmp_path / "store")
    yield running
    if running.process.running():
        running.stop()


@pytest.fixture
def fault_proxy(store):
    """A FaultProxy in front of the store; without rules it passes on all requests."""
    proxy = FaultProxy(store.endpoint)
    yield proxy
    proxy.close()


@pytest.fixture
def http_server():
    server = Server()
    yield server
    server.close()


@pytest.fixture
def nginx(tmp_path):
    """nginx(root, more=""): serves a directory, with further lines of configuration; returns its URL."""
    server = Nginx(tmp_path)
    yield server.start
    server.stop()


@pytest.fixture
def certificate(tmp_path):
    """A self-signed certificate for 127.0.0.1: `context` is an SSLContext for a server, `path` the
    certificate file for clients that trust the server."""
    path, key = tmp_path / "certificate.pem", tmp_path / "certificate-key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", path],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path, key)
    return SimpleNamespace(context=context, path=str(path))


@pytest.fixture
def https(certificate):
    """An HTTPS server; `certificate` is the file for clients that trust it."""
    server = Server()
    server.httpd.socket = certificate.context.wrap_socket(server.httpd.socket, server_side=True)
    server.url = server.url.replace("http://", "https://")
    server.certificate = certificate.path
    yield server
    server.close()


@pytest.fixture(scope="session")
def test_cache():
    path = Path(os.environ.get("PENSTOCK_TEST_CACHE", TOP / "build" / "test-cache"))
    path.mkdir(parents=True, exist_ok=True)
    return path


def installed(tool, *names, **variables):
    """Directory that a tool of tools/ has installed and printed."""
    made = subprocess.run([TOP / "tools" / tool, *names], env=INVOKED_WITH | variables, stdout=subprocess.PIPE, text=True, check=True)
    return Path(made.stdout.strip())


@pytest.fixture(scope="session")
def venv():
    """Directory of the environment with current versions of boto3, moto and others;
    /usr/bin/python3 has Debian's versions."""
    return installed("test-venv")


@pytest.fixture(scope="session")
def determined_venv():
    """Directory of the environment with the package of Determined, and Debian's torch."""
    return installed("test-venv", "determined")


@pytest.fixture(scope="session")
def tracking_venv():
    """Directory of the environment with MLflow and the client of Weights & Biases."""
    return installed("test-venv", "tracking")


@pytest.fixture(scope="session")
def aim_venv():
    """Directory of the environment with Aim."""
    return installed("test-venv", "aim")


@pytest.fixture(scope="session")
def tables_venv():
    """Directory of the environment with pandas and pyarrow."""
    return installed("test-venv", "fsspec")


@pytest.fixture(scope="session")
def s3torch_venv():
    """Directory of the environment with s3torchconnector, and Debian's torch."""
    return installed("test-venv", "s3torch", PIP_NO_DEPS="1")


@pytest.fixture(scope="session")
def torchserve_venv():
    """Directory of the environment with TorchServe, and Debian's torch."""
    return installed("test-venv", "torchserve")


@pytest.fixture(scope="session")
def javascript_libraries():
    """The node_modules of tests/javascript."""
    return installed("test-javascript")


@pytest.fixture(scope="session")
def peer_tools():
    """Directory of the peers that Debian does not have. A missing peer fails its tests, unless PENSTOCK_TEST_WITHOUT_PEERS is set."""
    if os.environ.get("PENSTOCK_TEST_WITHOUT_PEERS"):
        pytest.skip("PENSTOCK_TEST_WITHOUT_PEERS is set")
    made = subprocess.run([TOP / "tools" / "test-peers"], env=INVOKED_WITH, stdout=subprocess.PIPE, text=True)
    assert made.returncode == 0, "cannot install Ceph, MinIO and s3fs: tools/test-peers failed; see its output above"
    return Path(made.stdout.strip())


@pytest.fixture(scope="session")
def radosgw(peer_tools, keep_process):
    """A Ceph cluster with a radosgw, shared by all tests."""
    cluster = Ceph(keep_process)
    yield cluster
    cluster.stop()


@pytest.fixture(scope="session")
def minio(peer_tools, keep_process):
    server = Minio(peer_tools, keep_process)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def fake_gcs(keep_process):
    if os.environ.get("PENSTOCK_TEST_WITHOUT_PEERS"):
        pytest.skip("PENSTOCK_TEST_WITHOUT_PEERS is set")
    made = subprocess.run([TOP / "tools" / "test-fake-gcs"], env=INVOKED_WITH, stdout=subprocess.PIPE, text=True)
    assert made.returncode == 0, "cannot build fake-gcs-server: tools/test-fake-gcs failed; see its output above"
    server = FakeGcs(made.stdout.strip(), keep_process)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def slurm_cluster(keep_process):
    cluster = Cluster(keep_process)
    yield cluster
    cluster.stop()


@pytest.fixture
def slurm(slurm_cluster):
    """A Slurm of two nodes, idle and without jobs."""
    slurm_cluster.clear()
    yield slurm_cluster
    slurm_cluster.clear()


@pytest.fixture
def login(slurm, tmp_path):
    """The program on the login node of the cluster."""
    program = ClusterPenstock(tmp_path / "p", slurm)
    yield program
    program.close()


@pytest.fixture
def cluster_store(login, tmp_path):
    running = ClusterStore(login, tmp_path / "store")
    yield running
    if running.process.running():
        running.stop()


@pytest.fixture(params=["radosgw", "minio"])
def peer(request):
    """Each peer in turn, without buckets."""
    store = request.getfixturevalue(request.param)
    for bucket in store.client.list_buckets()["Buckets"]:
        store.remove_bucket(bucket["Name"])
    return Shared(store)


@pytest.fixture(scope="session")
def pictures(cifar_archive, tmp_path_factory):
    """A directory with the contents of the archive."""
    folder = tmp_path_factory.mktemp("pictures")
    subprocess.run(["tar", "-C", folder, "-xzf", cifar_archive], check=True)
    return folder


@pytest.fixture(scope="session")
def cifar_archive(test_cache):
    """cifar-10-python.tar.gz with 1,000 training and 200 test images: real images if the machine
    has them, else images that examples/cifar10/draw.py draws."""
    maker = SHARED / "tools" / "make-cifar.py"
    real = maker.exists() and (SHARED / "data" / "cifar10-jpeg.tar.gz").exists()
    if not real:
        maker = TOP / "examples" / "cifar10" / "draw.py"
    folder = test_cache / ("cifar-real" if real else "cifar-drawn")
    archive = folder / "cifar-10-python.tar.gz"
    if not archive.exists():
        with tempfile.TemporaryDirectory(dir=test_cache) as fresh:
            subprocess.run(["/usr/bin/python3", maker, fresh, "--train", "1000", "--test", "200"], check=True)
            folder.mkdir(exist_ok=True)
            os.replace(Path(fresh) / archive.name, archive)
    return archive


@pytest.fixture(scope="session")
def moto_server(venv, keep_process, tmp_path_factory):
    log = tmp_path_factory.mktemp("moto") / "moto.log"
    with open(log, "wb") as out:
        # moto writes its recording to its working directory, so each worker has its own.
        server = subprocess.Popen(
            [venv / "bin" / "moto_server", "-H", "127.0.0.1", "-p", "0"], stdout=out, stderr=out, cwd=log.parent
        )
    keep_process(server.pid)
    try:
        found = wait_for_condition(lambda: re.search(rb"http://127\.0\.0\.1:\d+", log.read_bytes()), 60, "moto's address")
        yield found.group().decode()
    finally:
        server.terminate()
        server.wait(60)


@pytest.fixture
def moto(moto_server):
    """A moto server without data."""
    urllib.request.urlopen(urllib.request.Request(moto_server + "/moto-api/reset", method="POST"), timeout=30).close()
    return moto_server
