"""Histories of concurrent clients are linearizable, even while the store is killed; tests/histories describes the check."""
import os
import random
import subprocess
import threading
import time

import pytest

from harness.program import TOP


@pytest.fixture(scope="module")
def histories():
    """The program, built with the Go of tools/go-build."""
    built = subprocess.run([TOP / "tools" / "go-build", "histories", TOP / "tests" / "histories"], stdout=subprocess.PIPE, text=True, check=True)
    return os.path.join(built.stdout.strip(), "bin", "histories")


def check(store, program, *arguments, kills=False):
    """Runs the program; if `kills` is True, kills and restarts the store while the program runs.
    Returns the number of kills."""
    command = [program, "-endpoint", store.endpoint, *arguments]
    running = subprocess.Popen(command, env=os.environ | store.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    output = []
    reader = threading.Thread(target=lambda: output.append(running.stdout.read()))
    reader.start()
    moments, killed = random.Random(1), 0
    while kills and running.poll() is None:
        # A random moment is intended here: the test waits for no condition.
        time.sleep(moments.uniform(0.2, 1.0))
        address = store.address
        store.process.kill()
        store.process.wait()
        store.start(address)
        killed += 1
    reader.join()
    assert running.wait() == 0, output[0]
    return killed


@pytest.mark.long
@pytest.mark.parametrize("versions", [False, True])
def test_histories_are_linearizable(store, histories, versions):
    check(store, histories, "-operations", "60000", *(["-versions"] if versions else []))


@pytest.mark.long
@pytest.mark.parametrize("versions", [False, True])
def test_histories_are_linearizable_while_the_store_is_killed(store, histories, versions):
    # A lost reply makes many orders of the operations possible. Short rounds limit the search for a
    # valid order.
    killed = check(store, histories, "-operations", "20000", "-round", "160", *(["-versions"] if versions else []), kills=True)

    assert killed > 3


@pytest.mark.soak
def test_a_million_operations_are_linearizable(store, histories):
    check(store, histories, "-operations", "700000")
    check(store, histories, "-operations", "300000", "-versions", "-bucket", "versions")
