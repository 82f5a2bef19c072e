"""The example of README.md: its workflow is examples/first, and a killed run resumes to the end that README shows."""
import json
import re
import shutil

from harness.program import TOP
from harness.sessions import assert_printed, fenced, session

EXAMPLE = TOP / "examples" / "first"
README = (TOP / "README.md").read_text(encoding="utf-8")


def test_readme_shows_the_workflow_of_the_example():
    shown = fenced(README, "yaml")[0]

    assert shown == (EXAMPLE / "workflow.yaml").read_text(encoding="utf-8")


# Runs README's session in a copy of the example, and compares penstock's lines and the model.
def test_killed_run_of_the_readme_resumes_to_the_model_that_it_prints(penstock, tmp_path):
    folder = shutil.copytree(EXAMPLE, tmp_path / "first")
    (_, killed_shows), (_, resumed_shows), (_, (model,)) = session(README)
    first = penstock.popen("run", "workflow.yaml", cwd=folder)
    first.wait_for_output(r"^step 3 ")
    first.kill()
    first.finish()

    resumed = penstock.run("run", "workflow.yaml", "--env", "DELAY=0", cwd=folder).ok()

    assert_printed(killed_shows, first.err)
    assert_printed(resumed_shows, resumed.err)
    assert re.search(r"^resumed at step [1-9]", resumed.out, re.M), resumed.text
    assert [line for line in resumed_shows if line.startswith("y = ")] == resumed.out.splitlines()[-1:]
    kept = json.loads(penstock.run("cat", "s3://first/model.json", "--endpoint-url", "embedded").ok().out)
    assert kept == json.loads(model)
    listed = penstock.run("checkpoints", "list", "first").ok()
    assert re.search(r"^model\.json +\d+ B +\d", listed.out, re.M), listed.text
