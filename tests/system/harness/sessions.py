"""Terminal sessions of the documentation: their commands, the lines shown below each, and a shell that runs them."""
import os
import re
import shlex
import signal
import subprocess

from .program import Process


def fenced(text, language):
    """Returns the fenced blocks of that language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)


def session(text):
    """Returns [(command, lines shown below it), …] of the indented blocks, in order."""
    found, inside = [], False
    for line in text.splitlines():
        inside = line.startswith("    ") and (inside or line.startswith("    $ "))
        if line.startswith("    $ "):
            found.append((line[6:], []))
        elif inside:
            found[-1][1].append(line[4:])
    return found


def comparable(text):
    """Returns the text without parts that differ between runs: ids, and the last step of a killed run."""
    text = re.sub(r"\b[0-9a-f]{12}\b", "ID", text)
    return re.sub(r"step-\d+(\.\w+): step \d+, \d+ B\b", r"step-N\1: step N, N B", text)


def assert_printed(shown, stderr):
    """Checks that stderr has the shown lines of penstock, in the same order; "..." matches any further lines."""
    lines = [line for line in shown if line == "..." or line.startswith("penstock: ")]
    pattern = "".join(r"(?:.*\n)*?" if line == "..." else re.escape(comparable(line)) + r"\n" for line in lines)
    printed = "".join(comparable(line) + "\n" for line in stderr.splitlines() if line.startswith("penstock: "))
    assert re.fullmatch(pattern, printed), "shown:\n" + "\n".join(lines) + f"\nprinted:\n{printed}"


class Shell:
    """A bash that runs commands one at a time; each command sees the variables and processes of the earlier ones."""

    def __init__(self, env, cwd):
        self.process = Process(["bash"], env, cwd, stdin=subprocess.PIPE)
        self.typed = 0

    def type(self, command, stdin="/dev/null", deadline_s=120):
        """Runs a command. Returns its exit code, stdout and stderr."""
        self.typed += 1
        marks = [f"\n-- typed {self.typed}, {name}: " for name in ("out", "err")]
        before = len(self.process.out), len(self.process.err)
        out, err = (shlex.quote(mark) for mark in marks)
        line = f"{{ {command}\n}} < {shlex.quote(str(stdin))}; code=$?; echo {out}$code; echo {err}$code >&2\n"
        self.process.popen.stdin.write(line.encode())
        self.process.popen.stdin.flush()
        code = int([self.process.wait_for_output(f"{mark}(\\d+)\n", deadline_s).group(1) for mark in marks][0])
        return code, *(text[start:].partition(mark)[0] for text, start, mark in zip((self.process.out, self.process.err), before, marks))

    def close(self):
        """Kills the shell and its background processes."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.popen.stdin.close()
        self.process.wait()
