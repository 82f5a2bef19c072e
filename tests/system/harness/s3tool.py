"""Runs tests/support/s3tool.c: one operation of penstock's client per call."""
import json
import os
import subprocess

from .program import PASSED_ON, TOP, binary

# enum penstock_code
INVALID, NOT_FOUND, PERMISSION, UNAVAILABLE, PRECONDITION, EXISTS = 1, 2, 3, 4, 5, 6


class Tool:
    def __init__(self, home, endpoint=None, access_key=None, secret_key=None):
        keys = {
            "AWS_ACCESS_KEY_ID": access_key,
            "AWS_SECRET_ACCESS_KEY": secret_key,
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_REGION": "us-east-1",
        }
        self.path = binary().parent / "tests" / "unit" / "s3tool"
        self.env = {"PATH": os.environ["PATH"], "HOME": str(home)}
        self.env |= {name: value for name, value in keys.items() if value}
        self.env |= {name: os.environ[name] for name in PASSED_ON if name in os.environ}

    def popen(self, *arguments, **env):
        changed = {key: str(value) for key, value in env.items()}
        return subprocess.Popen(
            [self.path, *map(str, arguments)], env=self.env | changed, cwd=TOP, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def call(self, *arguments, **env):
        process = self.popen(*arguments, **env)
        out, err = process.communicate(timeout=120)
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def ok(self, *arguments, **env):
        done = self.call(*arguments, **env)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout

    def json(self, *arguments, **env):
        return [json.loads(line) for line in self.ok(*arguments, **env).splitlines()]

    def fails(self, code, *arguments, **env):
        """Calls the tool, which must fail with `code`. Returns its standard error."""
        done = self.call(*arguments, **env)
        assert done.returncode == code, (done.returncode, done.stderr.decode())
        return done.stderr.decode()
