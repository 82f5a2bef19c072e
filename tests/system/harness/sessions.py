"""Sessions in a terminal that the documentation prints: their commands, what is shown below each, and a shell that types them."""
import os
import re
import shlex
import signal
import subprocess

from .program import Process


def fenced(text, language):
    """The blocks of that language, in their order."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)


def session(text):
    """[(command, lines shown below it), …] of the indented blocks, in their order."""
    found, inside = [], False
    for line in text.splitlines():
        inside = line.startswith("    ") and (inside or line.startswith("    $ "))
        if line.startswith("    $ "):
            found.append((line[6:], []))
        elif inside:
            found[-1][1].append(line[4:])
    return found


def comparable(text):
    """Without what differs between two runs: ids, and how far a killed one came."""
    text = re.sub(r"\b[0-9a-f]{12}\b", "ID", text)
    return re.sub(r"step-\d+(\.\w+): step \d+, \d+ B\b", r"step-N\1: step N, N B", text)


def assert_printed(shown, stderr):
    """Its lines of penstock are those among the shown ones, in the same order; where these have "..." there may be more."""
    lines = [line for line in shown if line == "..." or line.startswith("penstock: ")]
    pattern = "".join(r"(?:.*\n)*?" if line == "..." else re.escape(comparable(line)) + r"\n" for line in lines)
    printed = "".join(comparable(line) + "\n" for line in stderr.splitlines() if line.startswith("penstock: "))
    assert re.fullmatch(pattern, printed), "shown:\n" + "\n".join(lines) + f"\nprinted:\n{printed}"


class Shell:
    """A bash whose commands are typed one at a time; each sees what those before it exported and started."""

    def __init__(self, env, cwd):
        self.process = Process(["bash"], env, cwd, stdin=subprocess.PIPE)
        self.typed = 0

    def type(self, command, stdin="/dev/null", deadline_s=120):
        """Its exit code, stdout and stderr."""
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
        """Kills it, and what it started in the background."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.popen.stdin.close()
        self.process.wait()
