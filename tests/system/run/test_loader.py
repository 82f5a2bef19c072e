"""Numbers of a loader of penstock.data in the output of a run."""
import json

from harness.program import TOP, binary
from harness.workflows import s3_place, write_workflow

# Python runs without sanitizers even if the program is built with them.
PACKAGE = next(path for path in (TOP / "build" / "python", binary().parent / "python") if (path / "penstock").is_dir())
SCRIPT = """
import sys
from penstock.data import Dataset, Loader

loader = Loader(Dataset(sys.argv[1], "objects"), 4, on_error="skip")
for epoch in range(2):
    for batch in loader:
        pass
"""


def test_each_epoch_is_a_line_in_the_output(penstock, tmp_path, store):
    data, script = tmp_path / "data", tmp_path / "train.py"
    data.mkdir()
    for i in range(10):
        (data / str(i)).write_bytes(b"12345")
    script.write_text(SCRIPT)
    command = f"PYTHONPATH={PACKAGE} /usr/bin/python3 {script} {data}"
    path = write_workflow(tmp_path, command, name="run", output=s3_place(store, "/run"), continuousOutputSync=True)

    penstock.run("run", path).ok()

    (key,) = [key for key in store.keys("out", "run/datasets/")]
    lines = [json.loads(line) for line in store.bytes("out", key).decode().splitlines()]
    assert key.endswith("/loader-0.jsonl") and [(line["epoch"], line["samples"], line["bytes"], line["ended"]) for line in lines] == [
        (0, 10, 50, True), (1, 10, 50, True)]  # fmt: skip
    assert all(0 <= line["waiting"] <= 1 and line["data"] == str(data) and line["attempt"] == 1 for line in lines)
