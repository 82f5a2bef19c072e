"""The language of workflows in execution: conditions, loops, launches, catch and finally, passed values, resuming."""
import functools
import os
import re
import signal
import subprocess

import pytest

from harness.program import TOP
from harness.workflows import write_workflow



def run(command, **more):
    return {"run": {"command": command, **more}}


@pytest.fixture
def job(tmp_path):
    """job(*steps, **fields): the path of a workflow with these steps."""
    return functools.partial(write_workflow, tmp_path)


# bash evaluates `if` with the environment of a step; an invalid condition fails the step, and `catch` gets the failure.
@pytest.mark.parametrize(
    "condition, runs",
    [("3 -eq 3", True), ('3 -eq 3 && "$A" = "y"', True), ('"$A" = n', False), ('"$(echo y)" = "$A"', True), ("-d $STORAGE_PATH", True),
     ("-e /nonexistent", False), ('"$FROM_STEP" = "a b"', True), ("", True)],
)  # fmt: skip
def test_a_condition_decides(penstock, job, condition, runs):
    path = job(run("echo 'FROM_STEP=a b' >> $DEEPSQUARE_ENV"), {"if": condition} | run("echo ran"), env=[{"key": "A", "value": "y"}])

    out = penstock.run("run", path).ok().out

    assert ("ran\n" in out) is runs


def test_what_is_no_condition_fails_the_step(penstock, job):
    path = job({"name": "odd", "if": "a b c"} | run("echo ran"))
    caught = job({"if": "a b c", "catch": [run("echo caught $DEEPSQUARE_ERROR_CODE")]} | run("echo ran"), run("echo after"), file="c.json")

    result = penstock.run("run", path).exits(2)

    assert "ran" not in result.out and "'odd'" in result.err and "binary operator" in result.err
    assert penstock.run("run", caught).ok().out == "caught 2\nafter\n"


# A step is skipped together with its catch and finally.
def test_a_step_that_is_left_out_has_neither_catch_nor_finally(penstock, job):
    path = job({"if": "1 -eq 2", "catch": [run("echo c")], "finally": [run("echo f")], "steps": [run("echo s")]}, run("echo after"))

    assert penstock.run("run", path).ok().out == "after\n"


# After a catch the workflow continues; finally runs in any case, and gets the exit code of the step.
@pytest.mark.parametrize(
    "body, caught, finally_, expect, code",
    [
        ("exit 7", "echo c$DEEPSQUARE_ERROR_CODE", "echo f$DEEPSQUARE_ERROR_CODE", "c7\nf7\nafter\n", 0),
        ("echo ok", "echo c", "echo f$DEEPSQUARE_ERROR_CODE", "ok\nf0\nafter\n", 0),
        ("exit 7", None, "echo f$DEEPSQUARE_ERROR_CODE", "f7\n", 7),
        ("exit 7", "exit 8", "echo f", "f\n", 8),
        ("exit 7", "exit 8", "exit 9", "", 8),
        ("true", None, "exit 9", "", 9),
        ("kill -9 $$", "echo c$DEEPSQUARE_ERROR_CODE", None, "c137\nafter\n", 0),
        ("exit 70", "echo c$DEEPSQUARE_ERROR_CODE", None, "c70\nafter\n", 0),
    ],
)
def test_catch_and_finally(penstock, job, body, caught, finally_, expect, code):
    step = {"steps": [run(body), run("true")]}
    if caught:
        step["catch"] = [run(caught)]
    if finally_:
        step["finally"] = [run(finally_)]

    result = penstock.run("run", job(step, run("echo after"))).exits(code)

    assert result.out == expect


# A failure ends each list around it, up to the step with `catch`; each `finally` on the way runs.
def test_a_failure_goes_up_to_its_catch(penstock, job):
    inner = {"name": "inner", "steps": [run("echo 1; exit 3"), run("echo never")], "finally": [run("echo inner")]}
    outer = {"name": "outer", "steps": [{"steps": [inner, run("echo never")]}], "catch": [run("echo caught $DEEPSQUARE_ERROR_CODE")], "finally": [run("echo outer")]}

    assert penstock.run("run", job(outer, run("echo after"))).ok().out == "1\ninner\ncaught 3\nouter\nafter\n"


# A range includes both ends; an item is one text, with any characters.
def test_loops_have_their_variables(penstock, job):
    path = job(
        {"for": {"parallel": False, "range": {"begin": 1, "end": 7, "increment": 3}, "steps": [run("echo i$index")]}},
        {"for": {"parallel": False, "range": {"begin": 2, "end": -2, "increment": -2}, "steps": [run("echo d$index")]}},
        {"for": {"parallel": False, "range": {"begin": 2, "end": 1}, "steps": [run("echo never")]}},
        {"for": {"parallel": False, "items": ["a b", 'c"$d', "x,y=z"], "steps": [{"steps": [run('echo "<$item>"'), {"if": '"$item" = "a b"'} | run("echo first")]}]}},
        {"for": {"parallel": False, "range": {"begin": 1, "end": 2}, "steps": [{"for": {"parallel": False, "items": ["p"], "steps": [run("echo $index$item")]}}]}},
        run('echo "[$index][$item]"'),
    )  # fmt: skip

    out = penstock.run("run", path).ok().out

    assert out == 'i1\ni4\ni7\nd2\nd0\nd-2\n<a b>\nfirst\n<c"$d>\n<x,y=z>\n1p\n2p\n[][]\n'


# Each iteration waits for all others, so they must run at the same time.
def test_parallel_iterations_run_at_the_same_time(penstock, job):
    meet = "touch $STORAGE_PATH/$index; for i in 1 2 3 4 5; do while [ ! -e $STORAGE_PATH/$i ]; do sleep 0.01; done; done; echo met"
    path = job({"for": {"parallel": True, "range": {"begin": 1, "end": 5}, "steps": [run(meet)]}}, run("echo after"))

    assert penstock.run("run", path).ok().out == "met\n" * 5 + "after\n"


# There are more iterations than can run at a time; each runs once.
def test_all_iterations_of_a_wide_loop_run(penstock, job):
    path = job({"for": {"parallel": True, "range": {"begin": 1, "end": 300}, "steps": [run("echo $index")]}})

    assert sorted(penstock.run("run", path).ok().out.split(), key=int) == [str(i) for i in range(1, 301)]


# The supervisor raises its soft limit of descriptors, but a step gets the original limit.
def test_more_iterations_run_at_a_time_than_the_soft_limit_has_descriptors_for(penstock, job):
    meet = "touch $STORAGE_PATH/$index; while [ ! -e $STORAGE_PATH/120 ]; do sleep 0.5; done; ulimit -S -n"
    path = job({"for": {"parallel": True, "range": {"begin": 1, "end": 120}, "steps": [run(meet)]}})
    penstock.prefix = ["prlimit", "--nofile=1024:8192"]

    assert penstock.run("run", path).ok().out == "1024\n" * 120


# Iterations for which the hard limit has no descriptors wait until others end, including those of nested loops.
def test_iterations_wait_for_descriptors(penstock, job):
    inner = {"for": {"parallel": True, "range": {"begin": 1, "end": 10}, "steps": [run("sleep 0.05; echo done")]}}
    path = job({"for": {"parallel": True, "range": {"begin": 1, "end": 10}, "steps": [inner]}})
    penstock.prefix = ["prlimit", "--nofile=256:256"]

    assert penstock.run("run", path).ok().out == "done\n" * 100


# A failed iteration ends the loop: no other iteration starts, running iterations continue to their
# end, and the loop has the exit code of the failed one.
def test_one_failing_iteration_ends_the_loop(penstock, job):
    serial = job({"name": "loop", "for": {"parallel": False, "items": ["a", "b", "c"], "steps": [run('echo $item; [ $item = a ] || exit 4')]}})
    together = 'touch $STORAGE_PATH/$item; while [ ! -e $STORAGE_PATH/a ] || [ ! -e $STORAGE_PATH/b ]; do sleep 0.01; done; '
    parallel = job({"for": {"parallel": True, "items": ["a", "b"], "steps": [run(together + '[ $item = a ] && exit 5; echo end of $item')]}}, run("echo never"), file="p.json")

    first = penstock.run("run", serial).exits(4)
    second = penstock.run("run", parallel).exits(5)

    assert first.out == "a\nb\n" and re.search(r"'loop \[b\] / step 1.1'.* 4\b", first.err)
    assert second.out == "end of b\n"


# A launch runs while the next steps run. When these steps have ended, the launch gets its signal,
# and the run waits until the launch has ended.
def test_a_launch_ends_with_its_scope(penstock, job):
    server = 'trap "echo got it; exit 0" USR1; touch $STORAGE_PATH/up; while :; do sleep 0.01; done'
    path = job(
        {"launch": {"handleName": "server", "signalOnParentStepExit": 10, "steps": [run(server), run("echo never")]}},
        run('while [ ! -e $STORAGE_PATH/up ]; do sleep 0.01; done; kill -0 $PID_SERVER && echo alive; ps -o pid= $PID_SERVER >/dev/null && echo there'),
    )  # fmt: skip

    assert penstock.run("run", path).ok().out == "alive\nthere\ngot it\n"


def test_a_launch_that_does_not_end_is_killed(penstock, job):
    stubborn = 'trap "" TERM; touch $STORAGE_PATH/up; while :; do sleep 0.01; done'
    path = job({"name": "stubborn", "launch": {"steps": [run(stubborn)]}}, run("while [ ! -e $STORAGE_PATH/up ]; do sleep 0.01; done"))

    result = penstock.run("run", path, env={"PENSTOCK_LAUNCH_GRACE": "0"}).ok()

    assert re.search(r"'stubborn'.* 0 s", result.err)


# A launch in a plain group belongs to the scope around the group. Scopes are a step with a finally,
# a module and a parallel iteration.
def test_a_plain_group_is_no_scope(penstock, job):
    wait = 'trap "echo $NAME ends; exit 0" TERM; touch $STORAGE_PATH/$NAME; while :; do sleep 0.01; done'
    up = "while [ ! -e $STORAGE_PATH/%s ]; do sleep 0.01; done"

    def launch(name):
        return {"launch": {"handleName": name, "steps": [run(wait, env=[{"key": "NAME", "value": name}])]}}

    path = job(
        {"steps": [launch("open"), run(up % "open")]},
        {"steps": [launch("closed"), run(up % "closed")], "finally": [run("echo finally")]},
        run("kill -0 $PID_OPEN && echo still there"),
    )

    assert penstock.run("run", path).ok().out == "finally\nclosed ends\nstill there\nopen ends\n"


# With signal 0 the launch is not signalled, and the run waits until the launch has ended.
def test_a_launch_without_a_signal_is_waited_for(penstock, job):
    path = job({"name": "alone", "launch": {"signalOnParentStepExit": 0, "steps": [run("while [ ! -e $STORAGE_PATH/go ]; do sleep 0.01; done; echo done")]}},
               {"steps": [run("true")], "finally": [run("touch $STORAGE_PATH/go")]})  # fmt: skip

    assert penstock.run("run", path).ok().out == "done\n"


def test_depends_on_waits_for_a_launch(penstock, job):
    path = job(
        {"launch": {"handleName": "work", "steps": [run("while [ ! -e $STORAGE_PATH/go ]; do sleep 0.01; done; echo 'RESULT=42' >> $DEEPSQUARE_ENV")]}},
        run("touch $STORAGE_PATH/go"),
        {"dependsOn": ["Work"]} | run("echo result $RESULT"),
    )  # fmt: skip

    assert penstock.run("run", path).ok().out == "result 42\n"


# A step must not run if a launch that it depends on has failed. A failed launch that no step waits
# for is reported.
def test_depends_on_a_launch_that_failed_fails(penstock, job):
    launch = {"name": "work", "launch": {"handleName": "work", "steps": [run("exit 6")]}}
    path = job(launch, {"name": "use", "dependsOn": ["work"]} | run("echo never"))
    caught = job(launch, {"dependsOn": ["work"], "catch": [run("echo caught $DEEPSQUARE_ERROR_CODE")]} | run("echo never"), file="c.json")

    result = penstock.run("run", path).exits(6)

    assert "never" not in result.out and re.search(r"'use'.*'work / step 1.1'.* 6\b", result.err)
    assert penstock.run("run", caught).ok().out == "caught 6\n"


def test_a_failing_launch_that_nobody_waits_for_is_told(penstock, job):
    path = job({"name": "work", "launch": {"handleName": "w", "steps": [run("touch $STORAGE_PATH/x; exit 6")]}},
               run('while [ ! -e $STORAGE_PATH/x ] || kill -0 ${PID_W:-999999999} 2>/dev/null; do sleep 0.01; done'))  # fmt: skip

    assert re.search(r"'work / step 1.1'.* 6\b", penstock.run("run", path).ok().err)


# A failing step ends the run; a launch does not outlive the run, even if it has detached itself.
def test_nothing_of_a_launch_outlives_the_run(penstock, job, tmp_path):
    mark = f"penstock-test-{os.getpid()}-{tmp_path.name}"
    detached = f"setsid setsid sh -c 'trap : TERM; echo {mark} >/dev/null; touch $STORAGE_PATH/up; while :; do sleep 0.02; done' & trap : TERM; while :; do sleep 0.02; done"
    path = job({"launch": {"steps": [run(detached)]}}, run("while [ ! -e $STORAGE_PATH/up ]; do sleep 0.01; done; exit 3"))

    penstock.run("run", path, env={"PENSTOCK_LAUNCH_GRACE": "0"}).exits(3)

    assert mark not in subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout


# While a launch runs, leftover processes of a step still end with the step, and the launch
# continues.
def test_what_a_step_leaves_behind_ends_beside_a_launch(penstock, job):
    left = "sh -c 'while :; do date +%s%N > $STORAGE_PATH/left; sleep 0.01; done' & setsid sh -c 'while :; do date +%s%N > $STORAGE_PATH/gone; sleep 0.01; done' &"
    see = "while [ ! -e $STORAGE_PATH/up ]; do sleep 0.01; done; for f in left gone; do cmp $STORAGE_PATH/$f $STORAGE_PATH/$f.1 && echo same; done; kill -0 $PID_L && echo alive"
    path = job(
        {"launch": {"handleName": "l", "steps": [run("touch $STORAGE_PATH/up; while :; do sleep 0.01; done")]}},
        run(left + " while [ ! -s $STORAGE_PATH/left ] || [ ! -s $STORAGE_PATH/gone ]; do sleep 0.01; done"),
        run("cp $STORAGE_PATH/left $STORAGE_PATH/left.1; cp $STORAGE_PATH/gone $STORAGE_PATH/gone.1"),
        run(see),
    )  # fmt: skip

    assert penstock.run("run", path).ok().out == "same\nsame\nalive\n"


# Values keep commas, quotes and line breaks; a secret value is in no line of the log.
def test_values_are_passed_on_whole(penstock, job):
    write = "printf '%s\\n' 'PLAIN=a,b=\"c\" $d' 'API_TOKEN=very-secret-token' 'LINES<<END' 'one' 'two, three' 'END' >> $DEEPSQUARE_ENV"
    path = job({"for": {"parallel": False, "items": ["x"], "steps": [run(write)]}}, {"steps": [run('echo "$PLAIN"; echo "$LINES"; echo "$API_TOKEN"')]})

    result = penstock.run("run", path).ok()

    assert result.out == 'a,b="c" $d\none\ntwo, three\n***\n'


# A line without an effect is reported once, with its step and its number, but without its text.
def test_a_line_that_sets_nothing_is_told(penstock, job):
    first = run("printf '%s\\n' A=1 '# note' 'export HIDDEN=3' '' B=2 PATH=/none >> $DEEPSQUARE_ENV") | {"name": "first"}
    path = job(first, run("echo $A$B; echo C=3 >> $DEEPSQUARE_ENV"), run("echo $C; printf 'MORE HIDDEN\\n' >> $DEEPSQUARE_ENV") | {"name": "third"})

    result = penstock.run("run", path).ok()
    warned = [line for line in result.err.splitlines() if "$DEEPSQUARE_ENV" in line]

    assert result.out == "12\n3\n" and len(warned) == 2 and "HIDDEN" not in result.err
    assert "'first'" in warned[0] and "3, 6" in warned[0] and "KEY=value" in warned[0]
    assert "'third'" in warned[1] and "8" in warned[1]


# A step that begins a value and does not end it has failed; the values before it are passed on.
@pytest.mark.parametrize("catch", [False, True])
def test_a_value_without_its_end_is_the_mistake_of_its_step(penstock, job, catch):
    writer = run("printf '%s\\n' A=1 'KEY<<END' hidden >> $DEEPSQUARE_ENV; echo done") | {"name": "writer"}
    caught = {"catch": [run('echo "$DEEPSQUARE_ERROR_CODE $A$KEY"; echo B=2 >> $DEEPSQUARE_ENV')]} if catch else {}
    path = job(writer | caught, run("echo next $A$B") | {"name": "next"})

    result = penstock.run("run", path).exits(0 if catch else 1)

    assert re.search(r"'writer'.*'KEY<<END'.*DEEPSQUARE_ENV", result.err)
    assert result.out == ("done\n1 1\nnext 12\n" if catch else "done\n")
    assert "hidden" not in result.err and "'next' cannot" not in result.err
    if not catch:
        assert penstock.ps()[0]["class"] == "user"


# A value that penstock cannot read is a mistake of its step, too.
def test_values_that_cannot_be_read_are_the_mistake_of_their_step(penstock, job):
    path = job(run("printf 'A=1\\000\\n' >> $DEEPSQUARE_ENV") | {"name": "writer"}, run("echo next") | {"name": "next"})

    result = penstock.run("run", path).exits(1)

    assert re.search(r"'writer'.*DEEPSQUARE_ENV.*NUL", result.err) and result.out == ""


# `catch`, `finally` and later steps get the complete values from before the mistake, unless the
# step has overwritten the file.
@pytest.mark.parametrize(
    "write, kept",
    [("printf 'B=1\\000\\n' >>", "1"), ("head -c 1100000 /dev/zero | tr '\\0' x >>", "1"), ("head -c 1100000 /dev/zero | tr '\\0' x >", "")],
)  # fmt: skip
def test_values_that_cannot_be_read_are_caught(penstock, job, write, kept):
    after = {"catch": [run('echo "catch $DEEPSQUARE_ERROR_CODE $A"; echo B=2 >> $DEEPSQUARE_ENV')], "finally": [run('echo "finally $A$B"')]}
    path = job(run("echo A=1 >> $DEEPSQUARE_ENV"), run(f'{write} "$DEEPSQUARE_ENV"') | {"name": "writer"} | after, run('echo "next $A$B"'))

    result = penstock.run("run", path).ok()

    assert re.search(r"'writer'.*DEEPSQUARE_ENV", result.err)
    assert result.out == f"catch 1 {kept}\nfinally {kept}2\nnext {kept}2\n"


# If several steps ran at the same time, the writer of an invalid line is unknown, so no step fails
# because of the line. A step that ran alone fails.
@pytest.mark.parametrize("write, says", [("printf 'K<<E\\nx\\n' >>", "K<<E"), ("printf 'K=x\\000\\n' >>", "NUL")])
def test_nobody_fails_for_what_another_wrote(penstock, job, write, says):
    bad = f'until [ -e $STORAGE_PATH/up ]; do sleep 0.01; done; {write} "$DEEPSQUARE_ENV"'
    good = "touch $STORAGE_PATH/up; until grep -qsx 'd 1.i0' $STORAGE_PATH/../state/steps; do sleep 0.01; done; echo fine"
    body = run(f"if [ $item = bad ]; then {bad}; else {good}; fi") | {"name": "s"}
    loop = {"name": "loop", "for": {"parallel": True, "items": ["bad", "good"], "steps": [body]}}
    alone = run("echo next $A$K; printf 'L<<E\\n' >> $DEEPSQUARE_ENV") | {"name": "alone"}

    result = penstock.run("run", job(run("echo A=1 >> $DEEPSQUARE_ENV"), loop, alone)).exits(1)

    assert re.search(rf"'loop \[good\] / s'.*{says}", result.err)
    assert re.search(r"'alone'.*'L<<E'.*DEEPSQUARE_ENV", result.err) and result.out == "fine\nnext 1\n"


# A step can set its exit code, but not hide that it was asked to end.
def test_a_limit_that_is_caught_is_told(penstock, job):
    path = job(run("sleep 100", timeout="200ms") | {"name": "slow", "catch": [run("echo caught $DEEPSQUARE_ERROR_CODE")]},
               run("exit 3") | {"name": "bad", "catch": [run("echo caught $DEEPSQUARE_ERROR_CODE")]})  # fmt: skip

    result = penstock.run("run", path).ok()

    assert result.out == "caught 124\ncaught 3\n"
    (line,) = [line for line in result.err.splitlines() if "`catch`" in line or "'catch'" in line]
    assert "'slow'" in line and "0.2 s" in line and "timeout" in line


# A loop variable overrides the job's variables, and the step's own variables override the loop
# variable.
def test_a_loop_variable_has_its_place(penstock, job):
    path = job({"for": {"parallel": False, "items": ["loop"], "steps": [run("echo $item"), run("echo $item", env=[{"key": "item", "value": "step"}])]}},
               env=[{"key": "item", "value": "job"}])  # fmt: skip

    assert penstock.run("run", path).ok().out == "loop\nstep\n"


# After Ctrl-C or a preemption, running steps are asked to end, and no catch starts, but every
# finally around them still runs.
@pytest.mark.parametrize("number, code, state", [(signal.SIGINT, 130, "stopped"), (signal.SIGTERM, 75, "preempted")])
def test_finally_runs_when_the_run_is_asked_to_end(penstock, job, number, code, state):
    long = 'trap "echo asked; exit 1" TERM; echo up; while :; do sleep 0.01; done'
    path = job({"steps": [{"steps": [run(long)], "catch": [run("echo never")], "finally": [run("echo inner")]}, run("echo never")], "finally": [run("echo outer")]},
               run("echo never"))  # fmt: skip
    started = penstock.popen("run", path)
    started.wait_for_output("^up")

    started.popen.send_signal(number)
    result = started.wait()

    assert result.code == code and penstock.ps()[0]["state"] == state
    assert result.out == "up\nasked\ninner\nouter\n"


# A finally has only the rest of the grace.
def test_a_finally_that_takes_too_long_is_killed(penstock, job):
    path = job({"steps": [run("echo up; exec sleep 1000")], "finally": [run("echo finally; exec sleep 1000")]})
    started = penstock.popen("run", path, env={"PENSTOCK_STOP_GRACE": "1"})
    started.wait_for_output("^up")

    started.popen.send_signal(signal.SIGTERM)
    result = started.wait()

    assert result.code == 75 and " 1 s" in result.err and result.out == "up\nfinally\n"


# A resumed attempt starts at the first iteration that is not finished, and within it at the first
# unfinished step.
def test_a_loop_is_continued_where_it_was(penstock, job):
    body = [run("echo a$index"), {"if": "! ( $index -eq 3 && ! -e $DEEPSQUARE_TMP/again )"} | run("true"), run('[ $index -ne 3 ] || [ -e $DEEPSQUARE_TMP/again ] || { touch $DEEPSQUARE_TMP/again; kill -TERM $PPID; sleep 1000; }; echo b$index')]
    path = job(run("echo first"), {"steps": [{"for": {"parallel": False, "range": {"begin": 1, "end": 5}, "steps": body}}]}, run("echo last"))

    before = penstock.run("run", path, env={"PENSTOCK_STOP_GRACE": "0"}).exits(75)
    after = penstock.run("run", path).ok()

    assert before.out == "first\na1\nb1\na2\nb2\na3\n"
    assert after.out == "b3\na4\nb4\na5\nb5\nlast\n"


# Finished iterations of a parallel loop are not run again.
def test_a_parallel_loop_is_continued(penstock, job):
    body = run('[ $item = slow ] || { echo $item; echo x >> $STORAGE_PATH/n; exit 0; }; [ -e $DEEPSQUARE_TMP/again ] && { echo slow; exit 0; }; '
               'while [ $(cat $STORAGE_PATH/n | wc -l) -lt 2 ]; do sleep 0.01; done; touch $DEEPSQUARE_TMP/again; kill -TERM $PPID; sleep 1000')  # fmt: skip
    path = job(run("touch $STORAGE_PATH/n"), {"for": {"parallel": True, "items": ["a", "slow", "b"], "steps": [run("true"), body, run("true")]}})

    before = penstock.run("run", path, env={"PENSTOCK_STOP_GRACE": "0"}).exits(75)
    after = penstock.run("run", path).ok()

    assert sorted(before.out.split()) == ["a", "b"] and after.out == "slow\n"


# A launch that had not ended is launched again: the steps after it need it.
def test_a_launch_is_launched_again(penstock, job):
    server = 'echo server; trap "exit 0" TERM; touch $STORAGE_PATH/up; while :; do sleep 0.01; done'
    path = job(
        {"steps": [{"launch": {"handleName": "s", "steps": [run(server)]}}, run("echo beside; while [ ! -e $STORAGE_PATH/up ]; do sleep 0.01; done; rm $STORAGE_PATH/up")]},
        {"launch": {"handleName": "quick", "steps": [run("echo quick")]}},
        {"dependsOn": ["quick"]} | run("true"),
        run("[ -e $DEEPSQUARE_TMP/again ] || { touch $DEEPSQUARE_TMP/again; kill -TERM $PPID; sleep 1000; }; while [ ! -e $STORAGE_PATH/up ]; do sleep 0.01; done; kill -0 $PID_S && echo found"),
    )  # fmt: skip

    before = penstock.run("run", path, env={"PENSTOCK_STOP_GRACE": "0"}).exits(75)
    after = penstock.run("run", path).ok()

    assert sorted(before.out.split()) == ["beside", "quick", "server"]
    assert sorted(after.out.split()) == ["found", "server"]


# `finally` and `catch` run again with their step in each attempt.
def test_catch_and_finally_run_again_with_their_step(penstock, job):
    body = run("[ -e $DEEPSQUARE_TMP/again ] && { echo ok; exit 0; }; touch $DEEPSQUARE_TMP/again; kill -TERM $PPID; sleep 1000")
    path = job({"steps": [run("echo once"), body], "finally": [run("echo finally")]})

    assert penstock.run("run", path, env={"PENSTOCK_STOP_GRACE": "0"}).exits(75).out == "once\nfinally\n"
    assert penstock.run("run", path).ok().out == "ok\nfinally\n"


# If a nested step fails, the log and the message have the names of all steps around it, too.
def test_the_whole_name_is_told(penstock, job):
    path = job({"name": "outer", "steps": [{"name": "loop", "for": {"parallel": False, "items": ["x"], "steps": [{"name": "in"} | run("exit 9")]}}]}, run("true"))

    result = penstock.run("run", path).exits(9)

    assert "1 of 2: outer / loop [x] / in" in result.err
    assert re.search(r"'outer / loop \[x\] / in'.* 9\b", penstock.ps()[0]["message"])


# The step sees itself as the mapped user. On the machine, the step runs as the caller, who owns the
# files of the step.
def test_a_step_may_see_itself_as_another(penstock, job):
    path = job(
        run("id -u; id -g; touch $STORAGE_PATH/made", mapUid=1234, mapGid=77),
        run("id -u; exec sh -c 'kill -0 $$ && echo alive'", mapRoot=True),
        run("stat -c '%u %g' $STORAGE_PATH/made"),
    )

    assert penstock.run("run", path).ok().out == f"1234\n77\n0\nalive\n{os.geteuid()} {os.getegid()}\n"


# A valid key that this machine cannot honour is reported with its place, the reason and a remedy, before anything starts.
@pytest.mark.parametrize(
    "fields, says",
    [
        ({"network": "pasta", "customNetworkInterfaces": [{"bore": {"boreAddress": "h:1", "targetPort": 1, "secret": "k3y-of-the-tunnel"}}]},
         "'bore'"),
        ({"network": "pasta", "customNetworkInterfaces": [{"vnet": {"name": "lan", "address": "10.0.0.2/24"}}]},
         "not supported by this version; run with --set steps[1].run.customNetworkInterfaces=null"),
    ],
)  # fmt: skip
def test_what_cannot_be_run_is_refused_by_name(penstock, job, fields, says):
    path = job(run("echo first"), run("echo second", **fields), virtualNetworks=[{"name": "lan", "gatewayAddress": "10.0.0.1/24"}])

    told = penstock.run("run", path).exits(65)
    looked = penstock.run("validate", path)

    # `validate` accepts the key if only a program is missing, because another machine may have it.
    assert looked.code == (0 if "bore" in says else 65) and (looked.code == 0 or says in looked.err and "wf.json:1:" in looked.err)
    assert says in told.err and "wf.json:1:" in told.err and "k3y" not in told.err
    assert told.out == "" and penstock.ps() == []


# The example of the language works as described: it has a module, a launch, trials at the same
# time, a choice, and a clean end.
def test_the_example_runs(penstock):
    result = penstock.run("run", TOP / "examples" / "language" / "workflow.yaml").ok()

    lines = result.out.splitlines()
    assert lines[0] == "50" and lines[-2].startswith("best rate 0.") and lines[-1] == "status: done"
    output = result.err.rpartition("its output is in ")[2].strip()
    assert open(os.path.join(output, "best")).read().strip() in lines[-2]
