"""The page of penstock ui in a real browser."""
import json
import os
import re
import shlex
import struct
import subprocess
import urllib.parse
from pathlib import Path

import pytest
from harness.mlflow import FakeMlflow
from harness.program import Penstock, binary
from harness.records import change_runs, many_runs
from harness.ui import focus, seen, serious
from harness.waiting import wait_for
from harness.workflows import s3_place, step, write_workflow

HOSTILE = "<img src=x onerror=alert(1)>'\"&<script>alert(2)</script>"
PICTURE = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c4944415408d763f8cfc000000301010018dd8db00000000049454e44ae426082"
)
TRAINING = r"""
cd $STORAGE_PATH/output
for i in 1 2 3 4 5; do printf '{"step": %d, "loss": 0.%d}\n' $i $((9 - i)) >> metrics.jsonl; done
printf '\033[31mred text\033[0m and plain\n'
printf '10%%\r50%%\r100%%\n'
echo '{"a": [1, 2]}' > result.json
"""


def open_run(tab, name):
    tab.get_by_role("link", name=name, exact=True).first.click()
    tab.get_by_role("heading", name=name, level=1, exact=True).wait_for()


def tab_of(tab, name):
    tab.get_by_role("navigation", name="Parts of the run").get_by_role("link", name=name).click()


# The link does not pass on the address of the page, which has the token.
def test_a_tracked_run_has_its_link(ui, page, penstock, workflow):
    mlflow = FakeMlflow()
    try:
        penstock.run("run", workflow("true", tracking={"mlflow": {"uri": mlflow.uri}, "wandb": {"project": "p"}})).ok()
        tab = page(ui())

        open_run(tab, "t")

        (run,) = mlflow.runs
        link = tab.get_by_role("link", name=f"{mlflow.uri}/#/experiments/1/runs/{run}")
        link.wait_for()
        assert link.get_attribute("rel") == "noreferrer" and link.get_attribute("href") == link.inner_text()
        seen(tab, "in wandb/ of the output")
    finally:
        mlflow.close()


# Only the warning of the reply shows that a plot is incomplete.
def test_plots_of_a_tracked_run_come_from_the_server(ui, page, penstock, workflow):
    mlflow = FakeMlflow()
    try:
        penstock.run("run", workflow(TRAINING, tracking={"mlflow": {"uri": f"http://me:the-pass-word@{mlflow.address}"}})).ok()
        for step in range(3):
            mlflow.log("accuracy", step, step / 3)
        server = ui()
        tab = page(server)

        open_run(tab, "t")
        tab_of(tab, "Plots")
        tab.get_by_role("heading", name="mlflow/accuracy").wait_for()
        assert not tab.get_by_role("alert").count()
        mlflow.refuses = 503
        tab.reload()

        tab.get_by_role("alert").filter(has_text=mlflow.address).wait_for()
        tab.get_by_role("heading", name="mlflow/accuracy").wait_for()
        tab.get_by_role("heading", name="loss").wait_for()
        reply = server.request("GET", "/api/metrics", run=penstock.ps()[0]["id"])
        assert mlflow.address in urllib.parse.unquote(reply.headers["X-Penstock-Warning"])
        assert "the-pass-word" not in reply.body.decode() + str(reply.headers)
    finally:
        mlflow.close()


# Only the changes of the list are sent after its first reply.
def test_the_list_of_runs_follows_their_changes(ui, page, penstock, workflow):
    penstock.run("run", workflow("true")).ok()
    many_runs(penstock.home, 30)
    tab = page(ui())
    polls = []
    rows = tab.get_by_role("table", name="List of runs")
    seen(tab, "31 runs")
    tab.on("response", lambda reply: polls.append(reply) if "since=" in reply.url else None)

    change_runs(penstock.home, "update attempts set message = 'it has changed' where run = ?", f"{7:012x}")
    rows.get_by_text("it has changed").first.wait_for()
    change_runs(penstock.home, "delete from runs where id = ?", f"{8:012x}")
    seen(tab, "30 runs")

    assert polls and all(set(reply.json()) == {"removed", "changed"} for reply in polls)


def test_the_list_is_sorted_and_shows_one_state(ui, page, penstock, tmp_path):
    for name, code in (("b", 0), ("c", 3), ("a", 0)):
        penstock.run("run", write_workflow(tmp_path, f"exit {code}", name=name)).exits(code)
    tab = page(ui())
    table = tab.get_by_role("table", name="List of runs")
    names = lambda: [text.strip() for text in table.locator("td.name").all_inner_texts()]  # noqa: E731

    wait_for(lambda: names() == ["a", "c", "b"], what="the youngest run is first")
    table.get_by_role("button", name="Name").click()
    wait_for(lambda: names() == ["a", "b", "c"], what="the names are in order")
    table.get_by_role("button", name="Name").click()
    wait_for(lambda: names() == ["c", "b", "a"], what="the order is reversed")
    tab.get_by_label("State", exact=True).select_option("failed")

    wait_for(lambda: names() == ["c"], what="the failed run is left")
    seen(tab, "1 run of 3")


def test_a_log_is_searched(ui, page, penstock, workflow):
    penstock.run("run", workflow("seq -f 'step %.0f ends' 1 3000")).ok()
    tab = page(ui())
    open_run(tab, "t")
    tab_of(tab, "Log")
    seen(tab, "step 3000 ends")
    found = tab.locator(".line.found")

    tab.get_by_label("Search the log").fill("step 17")
    tab.keyboard.press("Enter")
    seen(tab, "1 of 111")
    found.get_by_text("step 17 ends").wait_for()
    tab.keyboard.press("Enter")
    found.get_by_text("step 170 ends").wait_for()
    tab.get_by_role("button", name="Previous match").click()
    tab.get_by_role("button", name="Previous match").click()

    seen(tab, "111 of 111")
    found.get_by_text("step 1799 ends").wait_for()
    assert found.locator("mark").inner_text() == "step 17"
    tab.get_by_label("Search the log").fill("no such line")
    tab.keyboard.press("Enter")
    seen(tab, "no match")


def test_a_checkpoint_has_its_metrics_and_its_files(ui, page, penstock, workflow):
    tool = binary().parent / "tests" / "unit" / "checkpoint-tool"
    penstock.run("run", workflow(f"{tool} save $PENSTOCK_CHECKPOINT_DIR 10 2000 loss=0.25")).ok()
    header = json.dumps({"layer.weight": {"dtype": "F16", "shape": [4, 8], "data_offsets": [0, 64]}}).encode()
    output = penstock.home / "runs" / penstock.ps()[0]["id"] / "storage" / "output"
    (output / "checkpoints/step-000000000010-1/model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(64))
    tab = page(ui())
    open_run(tab, "t")

    tab_of(tab, "Checkpoints")
    seen(tab, "loss 0.25")
    tab.get_by_role("link", name="step-000000000010-1").click()
    tab.get_by_role("button", name="model-0.bin").wait_for()
    tab.get_by_role("button", name="model.safetensors").click()

    seen(tab, "1 tensor, 32 parameters")
    assert "layer.weight" in tab.get_by_role("table", name="Tensors").inner_text()


def test_ages_are_right_if_the_clock_of_the_browser_is_an_hour_ahead(ui, page, penstock, workflow):
    penstock.run("run", workflow("true")).ok()
    tab = page(ui())

    tab.add_init_script("const now = Date.now; Date.now = () => now() + 3600e3")
    tab.reload()

    assert re.fullmatch(r"\d+ s", tab.locator("td.age").first.inner_text())


def test_a_run_from_the_list_to_its_files(ui, page, penstock, workflow):
    penstock.run("run", workflow(TRAINING)).ok()
    (penstock.home / "runs" / penstock.ps()[0]["id"] / "storage" / "output" / "picture.png").write_bytes(PICTURE)
    tab = page(ui())

    seen(tab, "succeeded")
    open_run(tab, "t")
    seen(tab, "train")
    tab_of(tab, "Log")
    seen(tab, "red text")
    seen(tab, "100%")
    assert not tab.get_by_text("50%").count()
    tab_of(tab, "Plots")
    tab.locator("canvas").first.wait_for()
    seen(tab, "loss")
    tab_of(tab, "Files")
    tab.get_by_role("button", name="result.json").click()
    tab.get_by_text('"a": [').wait_for()
    tab.keyboard.press("Escape")
    tab.get_by_role("button", name="picture.png").click()
    wait_for(lambda: tab.locator("img.preview-image").evaluate("image => image.naturalWidth") == 1, what="the picture is drawn")
    with tab.expect_download() as saved:
        tab.get_by_role("dialog").get_by_role("link", name="Download").click()
    assert open(saved.value.path(), "rb").read() == PICTURE and saved.value.suggested_filename == "picture.png"
    tab.keyboard.press("Escape")
    tab_of(tab, "Workflow")
    seen(tab, "metrics.jsonl")
    tab_of(tab, "Checkpoints")
    tab.get_by_role("link", name="result.json", exact=True).click()
    assert tab.get_by_label("Filter the files").input_value() == "result.json"
    tab.get_by_role("button", name="result.json").wait_for()
    assert not tab.get_by_role("button", name="picture.png").count()


def test_a_file_of_torch_shows_its_tensors(ui, page, penstock, workflow):
    penstock.run("run", workflow("touch $STORAGE_PATH/output/x")).ok()
    output = penstock.home / "runs" / penstock.ps()[0]["id"] / "storage" / "output"
    save = "import sys, torch; m = torch.nn.Linear(3, 2); torch.save({'model': m.state_dict(), 'p': m.bias, 'epoch': 7}, sys.argv[1])"
    subprocess.run(["/usr/bin/python3", "-c", save, output / "model.pt"], check=True)
    tab = page(ui())
    open_run(tab, "t")
    tab_of(tab, "Files")

    tab.get_by_role("button", name="model.pt").click()

    seen(tab, "3 tensors, 10 parameters")
    rows = tab.get_by_role("dialog").locator("tr").all_inner_texts()
    assert ["model.weight", "float32", "2 × 3", "24 B"] in [row.split("\t") for row in rows]
    seen(tab, "epoch")


def test_runs_are_compared_by_their_parameters(ui, page, penstock, tmp_path):
    for name, rate, command in (("a", "0.1", TRAINING), ("b", "0.2", "true")):  # the second one has no metrics
        env = [{"key": "RATE", "value": rate}, {"key": "SEED", "value": "1"}]
        path = write_workflow(tmp_path, command, name=name, file=f"{name}.json", env=env if name == "a" else env[::-1])
        penstock.run("run", path).ok()
    tab = page(ui())

    for name in ("a", "b"):
        tab.get_by_role("checkbox", name=f"Compare {name}", exact=True).check()
    tab.get_by_role("link", name="Compare 2 runs").click()

    rows = tab.get_by_role("table", name="Parameters").get_by_role("row")
    differing = rows.filter(has_text="RATE.value")
    differing.get_by_text("0.1").wait_for()
    differing.get_by_text("0.2").wait_for()
    assert not rows.filter(has_text="SEED").count()
    seen(tab, "last loss")
    tab.locator("canvas").first.wait_for()
    assert not tab.get_by_role("alert").count()


SHOWN = r"""
cd $STORAGE_PATH/output
awk 'BEGIN {
    for (step = 1; step <= 60; step++) {
        loss = 2.3 / (1 + 0.1 * step) + step * 37 % 10 / 100
        printf "{\"step\": %d, \"loss\": %.4f, \"accuracy\": %.4f}\n", step, loss, 1 - 1 / (1 + 0.08 * step) >> "metrics.jsonl"
        printf "\033[32mepoch %2d\033[0m loss %.4f\n", step, loss
    }
}'
"""


def test_the_picture_of_the_document(ui, page, penstock, tmp_path):
    # With PENSTOCK_SCREENSHOTS=docs, this test makes docs/ui.png.
    picture = Path(os.environ.get("PENSTOCK_SCREENSHOTS", tmp_path)) / "ui.png"
    penstock.run("run", write_workflow(tmp_path, SHOWN, name="cifar10")).ok()
    tab = page(ui(), height=560, color_scheme="light")

    open_run(tab, "cifar10")
    tab_of(tab, "Plots")
    tab.locator("canvas").first.wait_for()
    seen(tab, "accuracy")
    tab.screenshot(path=picture)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_run_is_preempted_and_resumed_while_it_is_watched(ui, page, penstock, workflow):
    run = penstock.popen("run", workflow("trap 'echo saved; exit 0' TERM; echo begins $PENSTOCK_ATTEMPT; while :; do sleep 0.05; done"))
    run.wait_for_output("begins")
    tab = page(ui())
    open_run(tab, "t")
    tab_of(tab, "Log")
    seen(tab, "begins")

    tab.get_by_role("button", name="Preempt").click()
    tab.get_by_role("dialog").get_by_role("button", name="Preempt").click()

    seen(tab, "preempted")
    seen(tab, "saved")
    assert penstock.ps()[0]["state"] == "preempted"
    state = tab.locator(".bar .state").filter(has_text="preempted").first
    # The failure class, which is the same word, is not shown again.
    assert state.inner_text().split() == ["preempted"]
    tab.get_by_role("dialog").wait_for(state="detached")
    tab.get_by_role("button", name="Resume").click()
    tab.get_by_role("dialog").get_by_role("button", name="Resume").click()
    wait_for(lambda: penstock.ps()[0]["state"] == "running", what="the run is resumed")
    seen(tab, "running")
    tab.get_by_role("dialog").wait_for(state="detached")
    tab.get_by_role("button", name="Stop").click()
    tab.get_by_role("dialog").get_by_text("SIGTERM").first.wait_for()
    tab.get_by_role("dialog").get_by_role("button", name="Stop").click()
    seen(tab, "stopped")
    tab_of(tab, "Overview")
    bars = tab.locator(".timeline .segment:not(.gap)")
    wait_for(lambda: [bar.get_attribute("title").split(",")[0] for bar in bars.all()] == ["attempt 1: preempted", "attempt 2: stopped"])


def test_the_graph_of_steps_follows_the_run(ui, page, penstock, tmp_path):
    go = tmp_path / "go"
    wait = f"until test -e {go}; do sleep 0.05; done"
    server = {"name": "server", "launch": {"handleName": "SERVER", "steps": [step(wait, "serve")]}}
    loop = {"name": "epochs", "for": {"range": {"begin": 1, "end": 3}, "steps": [step(f"test $index = 1 || {wait}", "epoch")]}}
    last = {"name": "last", "run": {"command": "true"}, "dependsOn": ["SERVER"], "finally": [step("true", "tidy")]}
    run = penstock.popen("run", write_workflow(tmp_path, server, loop, last, name="t"))
    tab = page(ui())
    open_run(tab, "t")

    def box(name):
        return tab.locator(".steps li").filter(has=tab.get_by_text(name, exact=True)).last.bounding_box()

    seen(tab, "1 of 3 iterations")
    seen(tab, "in the background as SERVER")
    seen(tab, "waits for SERVER")
    assert box("server")["x"] > box("epochs")["x"] and box("server")["y"] == box("epochs")["y"] < box("last")["y"]
    go.touch()
    run.wait()
    seen(tab, "3 of 3 iterations")
    wait_for(lambda: tab.locator(".steps > li.state-done").count() >= 3, what="all steps are done")


def test_a_broken_attempt_has_the_work_that_was_lost_with_it(ui, page, penstock, workflow):
    step = """python3 -c '
import json, os, time
first = int(os.environ["PENSTOCK_ATTEMPT"]) > 1
with open(os.environ["DEEPSQUARE_OUTPUT"] + "/metrics.jsonl", "a") as log:
    for step in range(100 if first else 0, 120):
        print(json.dumps({"step": step, "time": time.time(), "loss": 1}), file=log)
raise SystemExit(0 if first else 3)'"""
    penstock.run("run", workflow(step, price="36000")).exits(3)
    tab = page(ui())

    open_run(tab, "t")

    row = tab.get_by_role("table", name="Attempts").get_by_role("row").nth(1)
    row.get_by_text(re.compile(r"at most \d+ s, \d+\.\d\d")).wait_for()
    seen(tab, "Cost")
    penstock.run("resume", "t").ok()
    row.get_by_text("20 steps").wait_for()
    seen(tab, "Work lost with attempts:")


# The embedded store reports its directory on stderr, which is not a warning.
def test_a_message_of_a_verb_that_is_not_a_warning_is_not_shown(ui, page, penstock, workflow):
    penstock.run("run", workflow(TRAINING, output={"s3": {"endpointUrl": "embedded", "bucketUrl": "s3://bkt", "path": "/"}})).ok()
    tab = page(ui())

    open_run(tab, "t")
    tab_of(tab, "Plots")

    tab.get_by_role("heading", name="loss").wait_for()
    assert not tab.get_by_role("alert").count()


def test_names_and_logs_that_try_to_be_a_page_are_text(ui, page, penstock, workflow, store):
    file = HOSTILE.split("/")[0]
    penstock.run("run", workflow(f"printf %s {shlex.quote(HOSTILE)} | tee $STORAGE_PATH/output/{shlex.quote(file)}; exit 3")).exits(3)
    identity = penstock.ps()[0]["id"]
    store.client.create_bucket(Bucket="hostile")
    state = {"run": "0123456789ab", "name": HOSTILE, "attempt": 1, "state": "failed", "owner": {"host": HOSTILE, "since": "2026-01-31T12:00:00Z"}}
    objects = {
        f"{file}.txt": HOSTILE, "javascript:alert(3)": "<html><script>alert(4)</script>",
        "page.svg": "<svg xmlns='http://www.w3.org/2000/svg'><script>alert(5)</script><rect width='9' height='9'/></svg>",
        f"{HOSTILE}/.penstock/runs/0123456789ab/state.json": json.dumps(state),
    }  # fmt: skip
    for key, body in objects.items():
        store.client.put_object(Bucket="hostile", Key=key, Body=body.encode(), Metadata={"x": "<b>bold</b>"})
    tab = page(ui("--output", f"s3://hostile/{HOSTILE}/", **store.env))
    home = tab.url.split("#")[0]

    seen(tab, HOSTILE)
    tab.get_by_role("link", name=HOSTILE).first.click()
    tab.get_by_role("heading", name=HOSTILE, level=1).wait_for()
    tab.goto(f"{home}#/run/{identity}/log")
    tab.get_by_text(HOSTILE).last.wait_for()
    tab.goto(f"{home}#/run/{identity}/files")
    tab.get_by_role("button", name=file).first.click()
    tab.get_by_role("dialog").get_by_text(HOSTILE).first.wait_for()
    tab.goto(f"{home}#/buckets/s3://hostile/")
    for name in ("javascript:alert(3)", "page.svg", ".txt"):
        tab.get_by_role("button", name=name).first.click()
        tab.get_by_role("heading", name="Contents").wait_for()
        tab.keyboard.press("Escape")
        tab.get_by_role("dialog").wait_for(state="detached")

    assert not tab.locator("img[src='x']").count() and not tab.locator("main b").count()


def test_objects_are_uploaded_shown_linked_and_deleted(ui, page, store, tmp_path):
    store.client.create_bucket(Bucket="bkt")
    big = os.urandom((9 << 20) + 5)
    (tmp_path / "big.bin").write_bytes(big)
    (tmp_path / "hello.txt").write_text("hello from a file")
    tab = page(ui(**store.env))

    tab.get_by_role("link", name="Buckets").click()
    tab.get_by_role("link", name="bkt").click()
    tab.get_by_text("There are no objects here").wait_for()
    tab.get_by_label("Files to upload").set_input_files([tmp_path / "big.bin", tmp_path / "hello.txt"])
    tab.get_by_role("button", name="hello.txt").first.wait_for()
    uploads = tab.get_by_label("Uploads", exact=True)
    wait_for(lambda: uploads.inner_text().split().count("done") == 2 or "cannot" in uploads.inner_text(), what="the uploads have ended")
    assert store.keys("bkt") == ["big.bin", "hello.txt"], uploads.inner_text()
    assert store.bytes("bkt", "big.bin") == big
    tab.get_by_role("button", name="hello.txt").first.click()
    dialog = tab.get_by_role("dialog")
    dialog.get_by_text("hello from a file").wait_for()
    dialog.get_by_role("button", name="Make a link").click()
    link = dialog.get_by_label("Link", exact=True)
    link.wait_for()
    assert re.match(rf"{store.endpoint}/bkt/hello\.txt\?.*X-Amz-Expires=3600", link.input_value())
    dialog.get_by_role("button", name="Delete").click()
    tab.get_by_role("dialog").get_by_text("s3://bkt/hello.txt").wait_for()
    tab.get_by_role("dialog").get_by_role("button", name="Delete").click()
    tab.get_by_role("button", name="hello.txt").first.wait_for(state="detached")
    assert store.keys("bkt") == ["big.bin"]


def test_a_directory_without_objects_is_empty_and_a_missing_bucket_is_an_error(ui, page, store):
    store.client.create_bucket(Bucket="bkt")
    store.client.put_object(Bucket="bkt", Key="d/x", Body=b"x")
    tab = page(ui(**store.env))
    home = tab.url.split("#")[0]

    tab.goto(f"{home}#/buckets/s3://bkt/d/")
    tab.get_by_role("button", name="Delete d/x").click()
    tab.get_by_role("dialog").get_by_role("button", name="Delete").click()
    seen(tab, "There are no objects here")
    assert not tab.get_by_role("alert").count() and store.keys("bkt") == []
    tab.goto(f"{home}#/buckets/s3://nowhere/d/")

    tab.get_by_role("alert").get_by_text("nowhere").first.wait_for()


DROP = """size => {
    const data = new DataTransfer();
    data.items.add(new File([new Uint8Array(size).fill(7)], "dropped.bin", {lastModified: 1}));
    document.querySelector(".drop").dispatchEvent(new DragEvent("drop", {dataTransfer: data, bubbles: true, cancelable: true}));
}"""


def test_a_dropped_file_continues_after_its_tab_was_closed(ui, page, store):
    size = (32 << 20) + 5  # five parts
    store.client.create_bucket(Bucket="bkt")
    server = ui(**store.env)

    def open_bucket():
        tab = page(server)
        tab.goto(tab.url.split("#")[0] + "#/buckets/s3://bkt/d/")
        tab.get_by_text("There are no objects here").wait_for()
        return tab

    first = open_bucket()
    slow = {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": 4 << 20}  # two seconds for a part
    first.context.new_cdp_session(first).send("Network.emulateNetworkConditions", slow)
    with first.expect_response(lambda reply: "number=1" in reply.url and reply.ok):
        first.evaluate(DROP, size)
    first.close()
    second, sent = open_bucket(), []
    second.on("request", lambda request: sent.extend(re.findall(r"number=(\d+)", request.url)))
    second.evaluate(DROP, size)

    second.get_by_role("button", name="dropped.bin", exact=True).wait_for()
    assert store.bytes("bkt", "d/dropped.bin") == bytes([7]) * size
    assert sent and sent == ["2", "3", "4", "5"][-len(sent) :]


def test_a_store_that_refuses_the_keys_is_an_error_on_the_page(ui, page, store):
    store.client.create_bucket(Bucket="bkt")
    tab = page(ui(**store.env | {"AWS_SECRET_ACCESS_KEY": "wrong"}))

    tab.get_by_role("link", name="Buckets").click()
    tab.get_by_role("alert").get_by_text("SignatureDoesNotMatch").wait_for()
    tab.goto(tab.url.split("#")[0] + "#/buckets/s3://bkt/")

    tab.get_by_role("alert").get_by_text("SignatureDoesNotMatch").first.wait_for()
    assert not tab.get_by_text("There are no objects here").count()


def test_an_object_shows_its_tags_and_versions(ui, page, store):
    store.client.create_bucket(Bucket="bkt")
    store.client.put_bucket_versioning(Bucket="bkt", VersioningConfiguration={"Status": "Enabled"})
    for size in (11, 22):
        store.client.put_object(Bucket="bkt", Key="d/x", Body=b"x" * size, Tagging="team=blue")
    store.client.put_object(Bucket="bkt", Key="d/x2", Body=b"x" * 33)
    tab = page(ui(**store.env))

    tab.goto(tab.url.split("#")[0] + "#/buckets/s3://bkt/d/")
    tab.get_by_role("button", name="x", exact=True).first.click()
    dialog = tab.get_by_role("dialog")
    dialog.get_by_text("team").wait_for()
    dialog.get_by_text("blue").wait_for()
    dialog.get_by_text("11 B").wait_for()
    assert not dialog.get_by_text("33 B").count()


def test_read_only_shows_no_way_to_change_anything(ui, page, penstock, workflow, store):
    run = penstock.popen("run", workflow("echo begins; while :; do sleep 0.05; done"))
    run.wait_for_output("begins")
    store.client.create_bucket(Bucket="bkt")
    store.client.put_object(Bucket="bkt", Key="x", Body=b"x")
    tab = page(ui("--read-only", **store.env))

    open_run(tab, "t")
    seen(tab, "running")
    assert not tab.get_by_role("button", name=re.compile("Stop|Preempt|Resume")).count()
    tab.goto(tab.url.split("#")[0] + "#/buckets/s3://bkt/")
    tab.get_by_role("button", name="x", exact=True).wait_for()
    assert not tab.get_by_role("button", name=re.compile("Delete|Upload")).count()
    penstock.run("stop", penstock.ps()[0]["id"])
    run.wait()


def test_runners_show_who_holds_what_and_why_others_wait(ui, page, penstock, tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text("limits: {'*': {gpus: 1, runs: 5}}")
    env = {"PENSTOCK_GPUS": "3", "PENSTOCK_SYSTEM_CONFIG": config}
    one = {"tasks": 1, "cpusPerTask": 1, "memPerCpu": 64, "gpus": 1}
    hold = write_workflow(tmp_path, "echo begins; while :; do sleep 0.05; done", name="holds", resources=one)
    holds = penstock.popen("run", hold, env=env)
    holds.wait_for_output("begins")
    waits = penstock.popen("run", write_workflow(tmp_path, "true", name="waits", file="w.json", resources=one), env=env)
    waits.wait_for_output("waiting for")
    tab = page(ui(**env), width=3840, height=2160)

    tab.get_by_role("link", name="Runners").click()

    claims = tab.get_by_role("table", name="Claims")
    claims.get_by_text("your limit of GPUs is 1").wait_for()
    assert re.search(r"\t1 \(\d\)\t", claims.get_by_role("row").filter(has_text="holds").inner_text())
    assert "1 of 1" in tab.get_by_role("table", name="Users").inner_text()
    assert tab.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    claims.get_by_role("link", name="waits").click()
    seen(tab, "Waits: your limit of GPUs is 1.")
    tab.get_by_role("link", name="Show the runners").click()
    penstock.run("stop", "holds")
    for run in (holds, waits):
        run.wait()
    seen(tab, "No run holds or waits for resources.")


# The browser is in the network of the cluster, as if it used an `ssh -L` to the login node.
@pytest.mark.long
def test_the_nodes_of_slurm_are_shown(browser, login, slurm, tmp_path):
    go, chromium = tmp_path / "go", tmp_path / "chromium"
    chromium.write_text(f"""#!/bin/sh\nexec {shlex.join(slurm.inside(slurm.control, ["/usr/bin/chromium"]))} "$@"\n""")
    chromium.chmod(0o755)
    run = login.on_slurm(write_workflow(tmp_path, f"echo begins; while [ ! -e {go} ]; do sleep 0.05; done", resources=None))
    run.wait_for_output("begins")
    server = login.popen("ui", "--listen", "127.0.0.1:0")
    inside = browser.browser_type.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
    tab = inside.new_page()

    tab.goto(server.wait_for_output(r"^open (http://\S+)$")[1])
    tab.get_by_role("link", name="Runners").click()

    nodes = tab.get_by_role("table", name="Nodes")
    for name in slurm.nodes:
        nodes.get_by_role("row").filter(has_text=name).filter(has_text=" of 2").first.wait_for()
    tab.get_by_role("table", name="Partitions").get_by_role("row").filter(has_text="low").filter(has_text=" of 4").wait_for()
    go.touch()
    run.wait().ok()
    inside.close()


def test_the_keyboard_is_enough(ui, page, penstock, tmp_path):
    for name in ("alpha", "beta"):
        penstock.run("run", write_workflow(tmp_path, "echo said by $0", name=name)).ok()
    tab = page(ui())
    tab.get_by_role("link", name="alpha").first.wait_for()

    tab.keyboard.press("/")
    tab.keyboard.type("alp")
    tab.get_by_role("link", name="beta").wait_for(state="detached")
    focus(tab, "link", "alpha")
    tab.keyboard.press("Enter")
    tab.get_by_role("heading", name="alpha", level=1).wait_for()
    focus(tab, "link", "Log")
    tab.keyboard.press("Enter")
    seen(tab, "said by")


@pytest.mark.parametrize("scheme, width", [("light", 1280), ("dark", 400)])
def test_axe_finds_nothing_serious(ui, page, penstock, workflow, store, axe, scheme, width):
    penstock.run("run", workflow(TRAINING)).ok()
    store.client.create_bucket(Bucket="bkt")
    store.client.put_object(Bucket="bkt", Key="x.txt", Body=b"x")
    tab = page(ui(**store.env), width=width, color_scheme=scheme)
    home = tab.url.split("#")[0]
    identity = penstock.ps()[0]["id"]

    for place, sign in (("runs", "succeeded"), (f"run/{identity}", "Attempts"), (f"run/{identity}/log", "red text"), (f"run/{identity}/plots", "loss"),
                        (f"run/{identity}/checkpoints", "result.json"), (f"run/{identity}/files", "result.json"), (f"run/{identity}/workflow", "metrics.jsonl"),
                        (f"compare/{identity}", "loss"), ("runners", "Memory"), ("buckets", "bkt"), ("buckets/s3://bkt/", "x.txt")):
        tab.goto(f"{home}#/{place}")
        seen(tab, sign)
        assert serious(tab, axe) == [], place
        assert tab.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), f"{place} is wider than the window"
    tab.get_by_role("button", name="x.txt").first.click()
    tab.get_by_role("dialog").wait_for()
    assert serious(tab, axe) == []


def test_a_server_that_is_gone_is_noticed_and_found_again(ui, page, penstock, workflow):
    penstock.run("run", workflow("true")).ok()
    server = ui()
    tab = page(server)
    tab.get_by_role("link", name="t", exact=True).first.wait_for()

    server.process.send()
    server.process.wait().exits(0)
    seen(tab, re.compile("no connection", re.I))


def test_a_place_that_cannot_be_read_is_named_and_the_others_are_shown(ui, page, penstock, workflow, store):
    penstock.run("run", workflow("true")).ok()
    tab = page(ui("--output", "s3://nowhere/x/", **store.env))

    tab.get_by_role("link", name="t", exact=True).first.wait_for()
    tab.get_by_text("cannot list s3://nowhere/x/").first.wait_for()


def test_a_run_of_another_machine_has_no_attempts_that_are_not_in_its_state(ui, page, store):
    run = "0123456789ab"
    owner = {"host": "gpu7", "since": "2026-01-31T12:00:00Z"}
    state = {"run": run, "name": "far", "attempt": 3, "state": "failed", "exit_code": 3, "owner": owner, "updated": "2026-01-31T12:05:00Z"}
    store.client.create_bucket(Bucket="out")
    store.client.put_object(Bucket="out", Key=f"exp/far/.penstock/runs/{run}/state.json", Body=json.dumps(state).encode())
    tab = page(ui("--output", "s3://out/exp/", **store.env))

    open_run(tab, "far")

    seen(tab, "Known here: 1 of 3 attempts")
    row = tab.get_by_role("table", name="Attempts").get_by_role("row").nth(1)
    row.get_by_text("at most 5 min").wait_for()
    assert not tab.get_by_text("Time lost between attempts").count()
    facts = tab.locator("dl.facts dt").all_inner_texts()
    assert "Attempt" in facts and not {"Attempts", "Workflow", "Sync", "Published"} & set(facts)


def test_a_run_of_another_machine_is_resumed_here(ui, page, penstock, tmp_path, store):
    output = {"s3": {"region": "us-east-1", "bucketUrl": "s3://out", "path": "/exp/far", "endpointUrl": store.endpoint, "createBucket": True}}
    other = Penstock(tmp_path / "other")
    other.run("run", write_workflow(tmp_path, "test $PENSTOCK_ATTEMPT = 2", name="far", output=output), env=store.env).exits(1)
    other.close()
    tab = page(ui("--output", "s3://out/exp/", **store.env))
    open_run(tab, "far")

    tab.get_by_role("button", name="Resume").click()
    tab.get_by_role("dialog").get_by_text("commands of the workflow in").wait_for()
    tab.get_by_role("dialog").get_by_role("button", name="Resume").click()

    wait_for(lambda: [(run["name"], run["state"], run["attempt"]) for run in penstock.ps()] == [("far", "succeeded", 2)], what="the run is resumed")
    tab.locator(".bar .state").get_by_text("succeeded").wait_for()
    assert tab.url.endswith(f"#/run/{penstock.ps()[0]['id']}")


def test_only_runs_of_the_places_of_output_are_resumed(ui, penstock, tmp_path, store):
    other = Penstock(tmp_path / "other")
    other.run("run", write_workflow(tmp_path, "false", name="far", output=s3_place(store, "/exp/far")), env=store.env).exits(1)
    (run,) = other.ps()
    server = ui("--output", "s3://out/ex", **store.env)

    for place in ("s3://out/exp/far/", "s3://elsewhere/", "embedded:s3://out/ex/"):
        reply = server.request("POST", "/api/resume", headers={"X-Penstock": "1"}, run=run["id"], place=place)
        assert reply.status == 403 and b"--output" in reply.body, (place, reply.body)
    assert penstock.ps() == []
    other.close()


def test_runs_of_other_machines_are_shown_from_their_store(ui, page, penstock, tmp_path, store):
    other = Penstock(tmp_path / "other")
    path = write_workflow(tmp_path, TRAINING, name="far", output=s3_place(store, "/exp/far"), enableLogging=True)
    other.run("run", path).ok()
    tab = page(ui("--output", "s3://out/exp/", **store.env))

    seen(tab, "succeeded")
    tab.get_by_role("row").filter(has_text="far").get_by_text("in sync").wait_for()
    open_run(tab, "far")
    assert not tab.get_by_role("button", name=re.compile("Stop|Resume")).count()
    tab.locator("ol.steps li", has_text="done").first.wait_for()
    tab_of(tab, "Files")
    tab.get_by_role("button", name="result.json").click()
    tab.get_by_text('"a": [').wait_for()
    tab.keyboard.press("Escape")
    tab_of(tab, "Workflow")
    seen(tab, "metrics.jsonl")
    tab_of(tab, "Log")
    seen(tab, "red text")
    other.close()
