"""Runs penstock on a pseudo terminal: its output, and the keys that a user presses."""
import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
import threading
import time

from .program import Result, binary
from .waiting import wait_for

CTRL_C = b"\x03"


class Terminal:
    """A penstock in the foreground of a new pseudo terminal; Ctrl-C arrives as from a keyboard."""

    def __init__(self, penstock, *arguments, columns=100, rows=40, env=None):
        self.arguments = [binary(), *arguments]
        self.started = time.monotonic()
        self.pressed_at = 0
        self.chunks = []  # (time of the read, bytes)
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.popen = subprocess.Popen(
            [str(argument) for argument in self.arguments],
            env=penstock.env | {"TERM": "xterm"} | (env or {}), cwd=penstock.cwd,
            stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        os.close(slave)
        penstock.started.append(self)
        self.reader = threading.Thread(target=self.collect, daemon=True)
        self.reader.start()

    def collect(self):
        while True:
            try:
                chunk = os.read(self.master, 65536)
            except OSError:  # EIO: all processes have closed the terminal
                return
            if not chunk:
                return
            self.chunks.append((time.monotonic(), chunk))

    @property
    def pid(self):
        return self.popen.pid

    @property
    def raw(self):
        return b"".join(chunk for _, chunk in self.chunks).decode(errors="replace")

    def running(self):
        return self.popen.poll() is None

    def press(self, keys=CTRL_C):
        """Presses keys. wait_for_new_output() then searches only later output."""
        self.pressed_at = len(self.raw)
        os.write(self.master, keys)

    def wait_for_new_output(self, pattern, deadline_s=60):
        return self.wait_for_output(pattern, deadline_s, self.pressed_at)

    def wait_for_output(self, pattern, deadline_s=60, since=0):
        def look():
            alive = self.running()
            found = re.search(pattern, self.raw[since:], re.M)
            if not found and not alive:
                self.reader.join(5)
                found = re.search(pattern, self.raw[since:], re.M)
                assert found, f"ended with {self.popen.returncode} before {pattern!r}\n{self.raw}"
            return found

        try:
            return wait_for(look, deadline_s, f"{pattern!r} on the terminal")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.raw}") from None

    def wait(self, deadline_s=120):
        try:
            code = self.popen.wait(deadline_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {deadline_s} s\n{self.raw}") from None
        self.reader.join(5)
        return Result(self.arguments, code, self.raw.replace("\r\n", "\n"), "", time.monotonic() - self.started)

    def close(self):
        if self.running():
            self.popen.kill()
            self.popen.wait(30)
        self.reader.join(5)
        if self.master >= 0:
            os.close(self.master)
            self.master = -1
