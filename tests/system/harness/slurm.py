"""A real Slurm whose controller and nodes are network namespaces of this machine, each with its own name and address.

All files of a cluster are below one directory, and all names and addresses contain the number of the cluster, so several test
suites can have a cluster at the same time. Namespaces need root (CAP_SYS_ADMIN and CAP_NET_ADMIN).
"""
import fcntl
import os
import re
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from . import processes
from .program import Penstock, Process, Store, binary
from .waiting import wait_for

PATIENCE_S = 60
LOCKS = Path(tempfile.gettempdir()) / "penstock-test-slurm"
NETS = Path("/run/netns")


class Cluster:
    """A controller and `n` nodes with two CPUs each. `env` has the variables for Slurm's commands."""

    def __init__(self, keep_process, n=2, settings=()):
        missing = [name for name in ("slurmctld", "slurmd", "munged", "ip", "nsenter") if not shutil.which(name, path=SEARCHED)]
        assert not missing, f"{', '.join(missing)} not found: run tools/install-deps test"
        self.keep_process = keep_process
        self.settings = settings  # lines of slurm.conf, which replace those with the same key
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-slurm-"))
        self.number, self.lock = take_number(self.folder)
        self.control = f"pt{self.number}c"
        self.nodes = [f"pt{self.number}n{i + 1}" for i in range(n)]
        self.net = f"10.{64 + self.number // 256}.{self.number % 256}"
        self.hosts = self.folder / "hosts"
        self.conf = self.folder / "slurm.conf"
        self.env = {"SLURM_CONF": str(self.conf), "PATH": SEARCHED}
        self.pids = []
        try:
            self.lay_out()
            self.start()
        except BaseException:
            self.stop()
            raise

    # ---- setting up ----

    def lay_out(self):
        for name in ("munge", "state", "spool", "log"):
            (self.folder / name).mkdir(mode=0o700)
        for node in self.nodes:
            (self.folder / f"tmp-{node}").mkdir()
        (self.folder / "munge" / "key").write_bytes(os.urandom(128))
        os.chmod(self.folder / "munge" / "key", 0o600)
        names = [(self.control, 1)] + [(node, 11 + i) for i, node in enumerate(self.nodes)]
        self.hosts.write_text("127.0.0.1 localhost\n" + "".join(f"{self.net}.{end} {name}\n" for name, end in names))
        given = {line.split("=")[0] for line in self.settings}
        usual = [line for line in self.configuration().splitlines() if line.split("=")[0] not in given]
        self.conf.write_text("\n".join([*self.settings, *usual]) + "\n")
        bridge = f"ptb{self.number}"
        made = ip("netns", "add", self.control, check=False)
        assert made.returncode == 0, (
            f"cannot create a network namespace: {made.stderr.strip()}; run the tests as root, with CAP_SYS_ADMIN and CAP_NET_ADMIN"
        )
        inside = ("-n", self.control)
        ip(*inside, "link", "set", "lo", "up")
        ip(*inside, "link", "add", bridge, "type", "bridge")
        ip(*inside, "addr", "add", f"{self.net}.1/24", "dev", bridge)
        ip(*inside, "link", "set", bridge, "up")
        for i, node in enumerate(self.nodes):
            ip("netns", "add", node)
            ip("-n", node, "link", "set", "lo", "up")
            ip(*inside, "link", "add", f"ptv{self.number}-{i}", "type", "veth", "peer", "name", "eth0", "netns", node)
            ip(*inside, "link", "set", f"ptv{self.number}-{i}", "master", bridge, "up")
            ip("-n", node, "addr", "add", f"{self.net}.{11 + i}/24", "dev", "eth0")
            ip("-n", node, "link", "set", "eth0", "up")

    def configuration(self):
        w = self.folder
        nodes = "".join(
            f"NodeName={node} NodeAddr={self.net}.{11 + i} CPUs=2 RealMemory=4000\n" for i, node in enumerate(self.nodes)
        )
        return f"""ClusterName=pt{self.number}
SlurmctldHost={self.control}({self.net}.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={w}/munge/sock,cred_expire=20
CredType=cred/munge
StateSaveLocation={w}/state
SlurmdSpoolDir={w}/spool/%n
TmpFS={w}/tmp-%n
SlurmctldPidFile={w}/slurmctld.pid
SlurmdPidFile={w}/slurmd-%n.pid
SlurmctldLogFile={w}/log/slurmctld.log
SlurmdLogFile={w}/log/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
SchedulerParameters=bf_interval=1,sched_interval=1,batch_sched_delay=0
SlurmctldParameters=preempt_send_user_signal
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
KillWait=20
MessageTimeout=60
TCPTimeout=30
BatchStartTimeout=60
MinJobAge=30
{nodes}PartitionName=low Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=10
PartitionName=cheap Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=CANCEL
PartitionName=high Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
"""

    def start(self):
        munge = self.folder / "munge"
        self.daemon(
            ["munged", f"--key-file={munge}/key", f"--socket={munge}/sock", f"--pid-file={munge}/pid",
             f"--log-file={munge}/log", f"--seed-file={munge}/seed", "--force"], munge / "pid", None,
        )  # fmt: skip
        self.daemon(["slurmctld", "-c", "-f", self.conf], self.folder / "slurmctld.pid", self.control)
        for node in self.nodes:
            self.daemon(["slurmd", "-N", node, "-f", self.conf], self.folder / f"slurmd-{node}.pid", node)
        wait_for(lambda: set(self.states().values()) == {"idle"}, PATIENCE_S, "idle nodes")

    def daemon(self, words, pid_file, place):
        """Starts a daemon, which goes into the background, and notes its pid."""
        words = [str(word) for word in words]
        started = subprocess.run(self.inside(place, words) if place else words, env=os.environ | self.env, capture_output=True, text=True)
        assert started.returncode == 0, f"{' '.join(words)}: {started.stdout}{started.stderr}"
        pid = int(wait_for(lambda: pid_file.exists() and pid_file.read_text().strip(), PATIENCE_S, f"{pid_file}"))
        self.pids.append(pid)
        self.keep_process(pid)

    def inside(self, place, words):
        """Returns a command that runs `words` on a node or the controller, with its network, its name and an /etc/hosts."""
        script = f'hostname {place} && mount --bind {self.hosts} /etc/hosts && exec "$@"'
        return ["nsenter", f"--net={NETS / place}", "unshare", "--uts", "--mount", "sh", "-c", script, "sh", *words]

    # ---- using it ----

    def run(self, *words, env=None, check=True):
        """Runs a command of Slurm on the controller, which is also the login node. Returns its output."""
        done = subprocess.run(
            self.inside(self.control, [str(word) for word in words]), env=os.environ | self.env | (env or {}), capture_output=True, text=True, timeout=120
        )
        assert not check or done.returncode == 0, f"{' '.join(map(str, words))}: {done.stdout}{done.stderr}"
        return done.stdout

    def states(self):
        rows = self.run("sinfo", "--noheader", "--Node", "--format=%N %T", check=False).split("\n")
        return dict(row.split() for row in rows if len(row.split()) == 2)

    def jobs(self, states="all"):
        """Returns {number: (state, reason)} of the jobs."""
        rows = self.run("squeue", "--noheader", f"--states={states}", "--format=%i|%T|%r").split("\n")
        return {row.split("|")[0]: tuple(row.split("|")[1:]) for row in rows if row}

    def clear(self):
        """Cancels all jobs, and waits until the nodes are idle."""
        live = [number for number, (state, _) in self.jobs().items() if state in ("PENDING", "RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED")]
        if live:
            self.run("scancel", *live, check=False)
        wait_for(lambda: not self.run("squeue", "--noheader").strip() and set(self.states().values()) == {"idle"}, 2 * PATIENCE_S, "idle nodes")

    def logs(self):
        return "".join(f"--- {path.name}\n{path.read_text(errors='replace')[-4000:]}" for path in sorted((self.folder / "log").iterdir()))

    # ---- the end ----

    def stop(self):
        for pid in reversed(self.pids):
            self.end(pid)
        for place in [self.control, *self.nodes]:
            for pid in in_namespace(place):
                self.end(pid, signal.SIGKILL)
            ip("netns", "del", place, check=False)
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self.lock)

    def end(self, pid, number=signal.SIGTERM):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return
        try:
            wait_for(lambda: gone(pid), 20, f"the end of {pid}")
        except AssertionError:
            os.kill(pid, signal.SIGKILL)
            wait_for(lambda: gone(pid), 20, f"the end of {pid}")


SEARCHED = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def gone(pid):
    processes.reap(pid)
    return not processes.is_alive(pid)


def ip(*words, check=True):
    done = subprocess.run(["ip", *words], env=os.environ | {"PATH": SEARCHED}, capture_output=True, text=True)
    assert not check or done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"
    return done


def in_namespace(place):
    try:
        wanted = os.stat(NETS / place).st_ino
    except OSError:
        return []
    found = []
    for entry in os.listdir("/proc"):
        if re.fullmatch(r"\d+", entry):
            try:
                if os.stat(f"/proc/{entry}/ns/net").st_ino == wanted:
                    found.append(int(entry))
            except OSError:
                pass
    return found


def remove_left(folder):
    """Removes the directory of a killed cluster, and kills its munged, which is not in a namespace."""
    try:
        pid = int((folder / "munge" / "pid").read_text())
        if str(folder) in processes.command_line(pid):
            os.kill(pid, signal.SIGKILL)
    except (OSError, ValueError):
        pass
    if folder.name.startswith("penstock-slurm-"):
        shutil.rmtree(folder, ignore_errors=True)


def take_number(folder):
    """Returns an unused number for a cluster, and the lock that reserves it. Removes the remains of a killed cluster with this number."""
    LOCKS.mkdir(mode=0o777, exist_ok=True)
    for number in range(1, 1000):
        lock = os.open(LOCKS / str(number), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            continue
        for left in NETS.glob(f"pt{number}[cn]*") if NETS.is_dir() else []:
            for pid in in_namespace(left.name):
                os.kill(pid, signal.SIGKILL)
            ip("netns", "del", left.name, check=False)
        remove_left(Path(os.pread(lock, 4096, 0).decode() or "/nonexistent"))
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(folder).encode(), 0)
        return number, lock
    raise AssertionError("cannot reserve a number for a cluster: all 999 are in use")


class ClusterPenstock(Penstock):
    """The program on the login node of a cluster, which shares its home with the nodes."""

    def __init__(self, folder, cluster):
        super().__init__(folder)
        self.cluster = cluster
        self.env |= cluster.env

    def popen(self, *arguments, env=None, cwd=None, stdin=subprocess.DEVNULL):
        merged = {key: value for key, value in (self.env | (env or {})).items() if value is not None}
        words = self.cluster.inside(self.cluster.control, [*self.prefix, str(binary()), *map(str, arguments)])
        process = Process(words, merged, cwd or self.cwd, stdin)
        self.started.append(process)
        return process

    def supervisor(self):
        """Returns the pid of the run's supervisor. All nodes are on this machine."""
        return int(next(self.home.glob("runs/*/lock")).read_text().split()[0])

    def on_slurm(self, workflow, *arguments, **more):
        return self.popen("run", "--on", "slurm", workflow, *arguments, **more)


class ClusterStore(Store):
    """An object store in the cluster's network. The tests are outside of this network, and read the store with penstock's commands."""

    def start(self, listen=None):
        super().start(listen or f"{self.penstock.cluster.net}.1:0")

    def workflow_output(self, bucket, path):
        return {"s3": {"region": "us-east-1", "bucketUrl": f"s3://{bucket}", "path": path, "endpointUrl": self.endpoint,
                       "accessKeyId": self.access_key, "secretAccessKey": self.secret_key, "createBucket": True}}  # fmt: skip

    def text(self, bucket, key):
        return self.penstock.run("cat", f"s3://{bucket}/{key}", env=self.env).ok().out
