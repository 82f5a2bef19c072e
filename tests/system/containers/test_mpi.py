"""Ranks of MPI in containers, started by the machine's own launcher."""
import json
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest

from harness import processes
from harness.program import Penstock, binary
from harness.registry import BUSYBOX, busybox, image, layer, write_layout

USER = 4714
NOBODY = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]

pytestmark = [
    pytest.mark.skipif(not os.path.exists(BUSYBOX) or not shutil.which("mpirun"), reason="busybox-static or a launcher of MPI is not installed"),
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two tasks need two CPUs"),
]

# Calls the functions of the library without headers or a module; 400 kB go through memory that the ranks share.
PROGRAM = """
import ctypes, os
mpi = ctypes.CDLL("libmpi.so.40", mode=ctypes.RTLD_GLOBAL)
name = lambda symbol: ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(mpi, symbol)))
mpi.MPI_Init(None, None)
rank, size = ctypes.c_int(), ctypes.c_int()
mpi.MPI_Comm_rank(name("ompi_mpi_comm_world"), ctypes.byref(rank))
mpi.MPI_Comm_size(name("ompi_mpi_comm_world"), ctypes.byref(size))
own, summed = (ctypes.c_int * 100000)(*[rank.value + 1] * 100000), (ctypes.c_int * 100000)()
mpi.MPI_Allreduce(own, summed, 100000, name("ompi_mpi_int"), name("ompi_mpi_op_sum"), name("ompi_mpi_comm_world"))
print("rank", rank.value, "of", size.value, "sum", set(summed), os.environ["RANK"], os.environ["WORLD_SIZE"], os.path.exists("/usr-only"), flush=True)
mpi.MPI_Finalize()
"""


def describe(folder, command, **more):
    """A workflow of two ranks in an image with busybox and links into /usr. The machine's
    /usr and /etc are mounted over those of the image."""
    where = write_layout(folder / "image", image([busybox(), layer({"lib": ("l", "usr/lib"), "lib64": ("l", "usr/lib64"), "tmp/": None, "usr-only": ""})]))
    (folder / "program").mkdir()
    (folder / "program" / "sum.py").write_text(PROGRAM)
    mounts = [{"hostDir": "/usr", "containerDir": "/usr", "options": "ro"}, {"hostDir": "/etc", "containerDir": "/etc", "options": "ro"},
              {"hostDir": str(folder / "program"), "containerDir": "/program", "options": "ro"}]  # fmt: skip
    run = {"command": command, "mpi": "pmix_v4", "resources": {"tasks": 2}, "container": {"image": str(where), "mounts": mounts}} | more
    path = folder / "wf.json"
    path.write_text(json.dumps({"resources": {"tasks": 2, "cpusPerTask": 1}, "steps": [{"run": run}]}))
    return path


SUMS = ["[0] rank 0 of 2 sum {3} 0 2 True", "[1] rank 1 of 2 sum {3} 1 2 True"]


def nothing_is_left(home):
    lines = list(processes.descendants().values())
    return not [line for line in lines if "mpi" in line] and not list(home.glob("runs/*/tmp/container-*"))


@pytest.mark.parametrize("more", [{}, {"mapUid": 1234, "mapGid": 77}, {"network": "slirp4netns"}], ids=["plain", "mapped", "own network"])
def test_ranks_in_containers_compute_together(penstock, tmp_path, more):
    out = penstock.run("run", describe(tmp_path, "exec /usr/bin/python3 /program/sum.py", **more)).ok().out

    assert sorted(out.splitlines()) == SUMS and nothing_is_left(penstock.home)


def test_a_rank_that_fails_ends_the_others(penstock, tmp_path):
    path = describe(tmp_path, "[ $RANK = 1 ] && exit 7; /bin/busybox sleep 4351")

    penstock.run("run", path).exits(7)

    assert nothing_is_left(penstock.home) and not [line for line in processes.descendants().values() if "4351" in line]


def test_a_killed_penstock_takes_its_ranks_with_it(penstock, tmp_path, wait_for):
    path = describe(tmp_path, "echo up > $STORAGE_PATH/up$RANK; exec /bin/busybox sleep 4352")

    def asleep():
        return [line for line in processes.descendants().values() if line == "/bin/busybox sleep 4352"]

    run = penstock.popen("run", path)
    wait_for(lambda: len(asleep()) == 2)

    run.kill()
    wait_for(lambda: not asleep())
    again = penstock.popen("run", path)
    wait_for(lambda: len(asleep()) == 2)
    again.send(signal.SIGINT)

    assert again.wait().code == 130 and not asleep() and nothing_is_left(penstock.home)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run the program as another user")
def test_a_user_without_rights_has_ranks_in_containers():
    # The launcher's server sees the rank as the user who started it, not as the container's root.
    if subprocess.run([*NOBODY, "unshare", "-Urm", "true"], capture_output=True).returncode:
        pytest.skip("user namespaces are not available")
    folder = Path(tempfile.mkdtemp(prefix="penstock-user-"))
    folder.chmod(0o755)
    program = Penstock(folder / "p")
    program.env["TMPDIR"] = str(folder)
    shutil.copy(binary(), folder / "penstock")
    path = describe(folder, "exec /usr/bin/python3 /program/sum.py")
    for owned in (folder, *folder.rglob("*")):
        os.chown(owned, USER, USER, follow_symlinks=False)
    before = os.environ.get("PENSTOCK")
    os.environ["PENSTOCK"], program.prefix = str(folder / "penstock"), NOBODY
    try:
        result = program.run("run", path)
    finally:
        os.environ.pop("PENSTOCK")
        if before:
            os.environ["PENSTOCK"] = before
        program.close()
        shutil.rmtree(folder)

    assert sorted(result.ok().out.splitlines()) == SUMS
