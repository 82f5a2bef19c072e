"""Programs of MPI as steps on a real Slurm of two nodes: Debian's Open MPI through PMIx, and PMI-2 spoken by hand."""
import json
import re

import pytest

# Calls Open MPI's library without a compiler or headers: its handles are the addresses of exported
# objects.
PROGRAM = """
import ctypes, socket, sys
mpi = ctypes.CDLL("libmpi.so.40", mode=ctypes.RTLD_GLOBAL)
handle = lambda name: ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(mpi, name)))
world, integer, add = map(handle, ("ompi_mpi_comm_world", "ompi_mpi_int", "ompi_mpi_op_sum"))
assert mpi.MPI_Init(None, None) == 0
rank, size, total = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
mpi.MPI_Comm_rank(world, ctypes.byref(rank)); mpi.MPI_Comm_size(world, ctypes.byref(size))
assert mpi.MPI_Allreduce(ctypes.byref(ctypes.c_int(rank.value + 1)), ctypes.byref(total), 1, integer, add, world) == 0
print(f"rank {rank.value} of {size.value} on {socket.gethostname()}, sum {total.value}", flush=True)
mpi.MPI_Finalize()
"""


@pytest.fixture
def program(tmp_path):
    script = tmp_path / "sum.py"
    script.write_text(PROGRAM)
    return f"exec /usr/bin/python3 {script}"


def workflow(tmp_path, command, mpi, tasks=4):
    resources = {"tasks": tasks, "cpusPerTask": 1}
    path = tmp_path / "wf.json"
    # Open MPI needs these variables here to run as root and over plain TCP; penstock does not.
    env = [{"key": key, "value": "1"} for key in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")]
    env += [{"key": "OMPI_MCA_btl", "value": "self,tcp"}, {"key": "OMPI_MCA_pml", "value": "ob1"}]
    path.write_text(json.dumps({"name": "t", "resources": resources, "env": env, "steps": [{"name": "s", "run": {"command": command, "mpi": mpi, "resources": resources}}]}))
    return path


@pytest.mark.long
def test_a_program_of_mpi_runs_over_two_nodes(login, slurm, program, tmp_path):
    done = login.on_slurm(workflow(tmp_path, program, "pmix_v4"), "--sbatch=--nodes=2").wait().exits(0)

    found = sorted(re.findall(r"^\d: rank (\d) of (\d) on (\S+), sum (\d+)$", done.out, re.M))
    assert found == [(str(rank), "4", slurm.nodes[rank // 2], "10") for rank in range(4)]


@pytest.mark.long
def test_pmi2_gives_each_task_its_connection(login, slurm, tmp_path):
    # PMI-2 is the interface of MPICH and of libraries derived from MPICH. Each task has a rank and
    # a descriptor, over which the task sends requests and gets replies.
    script = tmp_path / "pmi2.py"
    script.write_text(
        "import os\n"
        "fd = int(os.environ['PMI_FD'])\n"
        "os.write(fd, b'cmd=init pmi_version=2 pmi_subversion=0\\n')\n"
        "assert os.read(fd, 1000).startswith(b'cmd=response_to_init rc=0')\n"
        "words = b'cmd=fullinit;pmijobid=x;pmirank=' + os.environ['PMI_RANK'].encode() + b';threaded=FALSE;'\n"
        "os.write(fd, b'%6d' % len(words) + words)\n"
        "print('answer', os.read(fd, int(os.read(fd, 6))).decode())\n"
    )

    done = login.on_slurm(workflow(tmp_path, f"/usr/bin/python3 {script}", "pmi2", tasks=2), "--sbatch=--nodes=2").wait().exits(0)

    assert sorted(re.findall(r"^(\d): answer cmd=fullinit-response;.*rank=(\d);size=2;", done.out, re.M)) == [("0", "0"), ("1", "1")]
