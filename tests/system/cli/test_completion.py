"""Completion in bash, zsh and fish: the words that the real shells offer for the Tab key."""
import re
import shutil
import subprocess

import pytest

from harness.program import binary
from harness.workflows import write_workflow

SHELLS = ["bash", "zsh", "fish"]


@pytest.fixture(params=SHELLS)
def tab(request, penstock, tmp_path):
    """tab("penstock sh"): the words that the shell offers for the end of this line."""
    if not shutil.which(request.param):
        pytest.skip(f"{request.param} is not installed")
    script = tmp_path / "completion"
    script.write_text(penstock.run("--completion", request.param).ok().out)
    env = penstock.env | {"PATH": f"{binary().parent}:{penstock.env['PATH']}", "HOME": str(tmp_path)}

    def bash(line):
        # Divide the line into words as readline does.
        words = [word for word in re.split(r"\s+|([=:])", line) if word]
        words += [""] if line[-1] in " =:" and line[-1] == " " else []
        array = " ".join(f"'{word}'" for word in words)
        text = f"source {script}\nCOMP_WORDS=({array}); COMP_CWORD={len(words) - 1}; COMP_LINE='{line}'; COMP_POINT={len(line)}; _penstock; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        out = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=True, env=env, cwd=tmp_path).stdout
        return out.splitlines()

    def fish(line):
        text = f"source {script}\ncomplete --do-complete '{line}'"
        out = subprocess.run(["fish", "--no-config", "-c", text], capture_output=True, text=True, check=True, env=env, cwd=tmp_path).stdout
        return [each.split("\t")[0] for each in out.splitlines()]

    def zsh(line):
        # zsh's line editor needs a pseudo-terminal, which zsh/zpty provides. The shell gets its own
        # compadd, which prints the words that the completion passes to it.
        folder = tmp_path / "functions"
        folder.mkdir(exist_ok=True)
        shutil.copy(script, folder / "_penstock")
        setup = f"""
            fpath=({folder} $fpath); autoload -Uz compinit; compinit -u -D
            compadd() {{
                if [[ "${{@[1,(i)(-|--)]}}" == *-(O|A|D)\\ * ]]; then builtin compadd "$@"; return $?; fi
                builtin compadd -O found "$@"; print -rl -- "W<${{^found[@]}}>W" > /dev/tty
                builtin compadd "$@"
            }}
            bindkey '^I' complete-word; zle -C complete-word complete-word one
            one() {{ _main_complete; print -r 'E<>E' > /dev/tty; exit }}
        """
        text = f"""
            zmodload zsh/zpty
            zpty shell zsh -f -i
            zpty -w shell {repr_zsh(setup)}
            zpty -w shell {repr_zsh("PS1=; print READY")}
            zpty -r shell out '*READY*READY*'
            zpty -w -n shell {repr_zsh(line)}$'\\t'
            zpty -r shell out '*E<>E*'
            print -r -- "$out"
        """
        out = subprocess.run(["zsh", "-f", "-c", text], capture_output=True, text=True, env=env, cwd=tmp_path, timeout=60).stdout
        return [word for word in re.findall(r"W<(.*?)>W", out) if word]

    def repr_zsh(text):
        return "'" + text.replace("'", "'\\''") + "'"

    asked = {"bash": bash, "zsh": zsh, "fish": fish}[request.param]
    asked.shell = request.param
    return asked


def words(tab, line):
    """Returns the offered words in order. A word in bash begins after the last '=' or ':', as
    readline requires."""
    return sorted({word.rstrip() for word in tab(line)} - {""})


def test_verbs_options_and_their_values(tab):
    joined = "" if tab.shell == "bash" else "--on="  # bash inserts only the rest

    assert words(tab, "penstock sh") == ["show"]
    assert words(tab, "penstock ps --js") == ["--json"]
    assert words(tab, "penstock run --on ") == ["local", "slurm"]
    assert words(tab, "penstock run --on=s") == [joined + "slurm"]
    assert words(tab, "penstock --log-level er") == ["error"]
    assert words(tab, "penstock help val") == ["validate"]
    assert words(tab, "penstock run --set resources.tasks") == ["resources.tasks=", "resources.tasksPerNode="]


def test_names_of_runs_and_tags_once(tab, penstock, tmp_path):
    penstock.run("run", write_workflow(tmp_path, "true", name="shapes")).ok()
    penstock.run("run", write_workflow(tmp_path, "false", name="other"))
    (penstock.home / "tags").mkdir()
    (penstock.home / "tags/best.json").write_text("{}")
    ids = [run["id"] for run in penstock.ps()]

    assert words(tab, "penstock show ") == sorted([*ids, "other", "shapes"])
    assert words(tab, f"penstock logs {ids[0][:6]}") == [ids[0]]
    assert words(tab, "penstock show shapes ") == []  # `show` takes one run
    assert words(tab, "penstock checkpoints ") == ["get", "list", "rm", "verify"]
    assert words(tab, "penstock checkpoints list sh") == ["shapes"]
    assert words(tab, "penstock tag ") == ["add", "list", "rm"]
    assert words(tab, "penstock tag rm ") == ["best"]
    assert words(tab, "penstock artifacts list :b") == [":best" if tab.shell != "bash" else "best"]


def test_files_where_files_are_meant(tab, tmp_path):
    (tmp_path / "some-workflow.yaml").write_text("")

    assert words(tab, "penstock validate some-w") == ["some-workflow.yaml"]
    assert words(tab, "penstock cp some-w") == ["some-workflow.yaml"]
