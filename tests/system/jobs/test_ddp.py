"""Data-parallel training on two tasks of one step, with Debian's PyTorch and its gloo back end."""
import os
import re

import pytest

from harness.program import TOP

EXAMPLE = TOP / "examples" / "ddp"


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two tasks need two CPUs")
def test_two_tasks_learn_what_one_learns_from_the_same_global_batch(penstock):
    words = ["run", EXAMPLE / "workflow.yaml", "--env", f"EXAMPLE={EXAMPLE}"]

    two = penstock.run(*words, "--fresh").ok().out
    one = penstock.run(*words, "--fresh", "--set", "steps.train.run.resources.tasks=1").ok().out

    def losses(text, begin):
        return [float(found) for found in re.findall(rf"^{begin}step \d+ loss (\S+)$", text, re.M)]

    apart, together = losses(two, r"\[0\] "), losses(one, "")
    assert len(apart) == len(together) == 20
    assert apart == pytest.approx(together, rel=1e-6)
    assert apart[-1] < 0.9 * apart[0]
