"""Measures a trivial step in a container whose image is on this machine, next to a bare crun and `podman run`."""
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import report as reporting

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "system"))
from harness import registry as images  # noqa: E402

FURTHER = 20

# crun 1.8 and podman refuse machines with control groups of both versions. This program starts both
# in a mount namespace that hides the control groups; the time to enter the namespace is not
# measured. The program reads commands (lists of words in JSON), runs each command, and replies with
# its seconds.
SERVER = """
import json, subprocess, sys, time
for line in sys.stdin:
    begin = time.perf_counter()
    done = subprocess.run(json.loads(line), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    print(json.dumps([time.perf_counter() - begin, done.returncode, done.stderr.decode(errors="replace")]), flush=True)
"""
HIDE = 'test "$(stat -fc %T /sys/fs/cgroup)" != tmpfs || mount -t tmpfs tmpfs /sys/fs/cgroup; exec "$@"'


class Hidden:
    def __init__(self, env):
        command = ["unshare", "-m", "--propagation", "private", "sh", "-c", HIDE, "sh", sys.executable, "-c", SERVER]
        self.process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, *words):
        self.process.stdin.write(json.dumps([str(word) for word in words]) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def timed(self, *words):
        seconds, code, errors = self.run(*words)
        if code:
            raise SystemExit(f"{words[0]} ends with {code}: {errors}")
        return seconds

    def close(self):
        self.process.stdin.close()
        self.process.wait(20)


def bundle(umoci, folder, layout):
    """Returns a bundle for a bare crun: the image unpacked by umoci, with the host's network, as in penstock's container."""
    reporting.run_checked([umoci, "unpack", "--image", f"{layout}:v1", folder / "bundle"])
    path = folder / "bundle" / "config.json"
    config = json.loads(path.read_text())
    config["process"] |= {"terminal": False, "args": ["/bin/sh", "-c", "true"]}
    config["linux"]["namespaces"] = [entry for entry in config["linux"]["namespaces"] if entry["type"] != "network"]
    config["mounts"] = [mount for mount in config["mounts"] if mount["type"] != "cgroup"]
    path.write_text(json.dumps(config))
    return folder / "bundle"


def main(report):
    crun, umoci, podman, skopeo = (report.peer(name) for name in ("crun", "umoci", "podman", "skopeo"))
    if not (crun and umoci and skopeo):
        return
    program = reporting.binary()
    # podman makes a name from this path, and refuses an underscore at either end of the name.
    with tempfile.TemporaryDirectory(prefix="penstock-bench-a", suffix="z") as name:
        folder = Path(name)
        env = {"PATH": os.environ["PATH"], "HOME": str(folder), "PENSTOCK_HOME": str(folder / "home"), "PENSTOCK_CLAIMS_DIR": str(folder / "claims")}
        (folder / "claims").mkdir()
        layout = images.write_layout(folder / "image", images.image([images.busybox()]))
        reporting.run_checked([skopeo, "--insecure-policy", "copy", "--quiet", f"oci:{layout}", f"oci:{folder}/named:v1"], env=env)
        step = {"run": {"command": "true", "container": {"image": str(layout)}}}
        paths = []
        for count in (1, 1 + FURTHER):
            paths.append(folder / f"{count}.json")
            paths[-1].write_text(json.dumps({"resources": {"tasks": 1, "cpusPerTask": 1, "memPerCpu": 64}, "steps": [step] * count}))
        hidden = Hidden(env)
        try:
            made = bundle(umoci, folder, folder / "named")
            storage = ["--root", folder / "podman", "--runroot", folder / "podman-run", "--storage-driver", "overlay"]
            if podman:
                seconds, code, errors = hidden.run(podman, *storage, "pull", "--quiet", f"oci:{folder}/named:v1")
                listed = subprocess.run([podman, *storage, "images", "--quiet", "--no-trunc"], env=env, capture_output=True, text=True)
                if code or not listed.stdout.strip():
                    report.missing("podman", f"cannot pull the image: {errors.strip()[-200:]}")
                    podman = None

            def run(path):
                reporting.run_checked([program, "run", path], env=env, cwd=folder, stdin=subprocess.DEVNULL)

            def bare():
                return hidden.timed(crun, "--root", folder / "crun", "--cgroup-manager=disabled", "run", "--bundle", made, "bench")

            def by_podman():
                return hidden.timed(podman, *storage, "run", "--rm", "--network=host", "--cgroups=disabled", "--runtime", crun, "--ulimit=nofile=1024:1024",
                                    "--ulimit=nproc=4096:4096", listed.stdout.split()[0], "/bin/sh", "-c", "true")  # fmt: skip

            one_s, many_s, bare_s = report.interleave(15, lambda: run(paths[0]), lambda: run(paths[1]), bare)
            step_s = (many_s - one_s) / FURTHER
            report.ratio("`true` in a container", step_s, bare_s, at_least=report.size(1 / 1.5, 0.0), peer_name="bare crun")
            report.figure("a run of one such step", one_s, unit="s")
            if podman:
                try:
                    by_podman()
                except SystemExit as error:
                    report.missing("podman", str(error)[-200:])
                    return
                podman_s = report.interleave(7, by_podman)
                report.ratio("`true` in a container", step_s, podman_s, at_least=report.size(5.0, 0.0), peer_name="podman run")
        finally:
            hidden.close()
