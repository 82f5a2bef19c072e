"""Measures the time that penstock adds to a bare exec of a trivial step, and the time of further steps and iterations."""
import json
import os
import subprocess
import tempfile
from pathlib import Path

import report as reporting

FURTHER = 20
ITERATIONS = 1000


def write_workflow(path, steps):
    step = {"name": "nothing", "run": {"command": "true"}}
    path.write_text(json.dumps({"resources": {"tasks": 1, "cpusPerTask": 1, "memPerCpu": 64}, "steps": [step] * steps}))


def write_loop(path, iterations, parallel=False):
    loop = {"parallel": parallel, "range": {"begin": 1, "end": iterations}, "steps": [{"run": {"command": "true"}}]}
    path.write_text(json.dumps({"resources": {"tasks": 1, "cpusPerTask": 1, "memPerCpu": 64}, "steps": [{"for": loop}]}))


def main(report):
    program = reporting.binary()
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        folder = Path(folder)
        env = {"PATH": os.environ["PATH"], "HOME": str(folder)}
        env |= {"PENSTOCK_HOME": str(folder / "penstock"), "PENSTOCK_CLAIMS_DIR": str(folder / "claims")}
        (folder / "claims").mkdir()
        one, many = folder / "one.json", folder / "many.json"
        write_workflow(one, 1)
        write_workflow(many, 1 + FURTHER)

        def bare():
            subprocess.run(["/bin/sh", "-c", "true"], env=env, check=True)

        def run(workflow):
            reporting.run_checked([program, "run", workflow], env=env, cwd=folder, stdin=subprocess.DEVNULL)

        exec_s, one_s, many_s = report.interleave(25, bare, lambda: run(one), lambda: run(many))
        once, serial, parallel = folder / "once.json", folder / "serial.json", folder / "parallel.json"
        write_loop(once, 1)
        write_loop(serial, ITERATIONS)
        write_loop(parallel, ITERATIONS, parallel=True)
        once_s, serial_s, parallel_s = report.interleave(3, lambda: run(once), lambda: run(serial), lambda: run(parallel))
    report.more("run of a trivial step", one_s, exec_s, at_most=0.030, peer_name="bare exec")
    report.limit("each further step", (many_s - one_s) / FURTHER, at_most=0.005, unit="s")
    report.limit("each of 1,000 iterations", (serial_s - once_s) / ITERATIONS, at_most=0.005, unit="s")
    report.limit("each of 1,000 parallel iterations", (parallel_s - once_s) / ITERATIONS, at_most=0.005, unit="s")
