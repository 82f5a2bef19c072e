"""The runs on the page of penstock ui, and the actions on them."""
import contextlib
import gzip
import http.client
import json
import os
import secrets
import threading
import time

from harness.program import Penstock, Store
from harness.records import change_runs, many_runs
from harness.waiting import wait_for
from harness.workflows import s3_place, write_workflow


def make_metrics(penstock, identity):
    """Makes a directory with a metric of many points; returns its path."""
    folder = penstock.home / "runs" / identity / "metrics"
    folder.mkdir()
    (folder / "metrics.jsonl").write_text("".join(f'{{"step": {step}, "loss": 0.5}}\n' for step in range(5000)))
    return f"{folder}/"


def run_id(penstock):
    return penstock.ps()[0]["id"]


def output_of(penstock, folder, name, store):
    """Starts a run in another home, with an output in the store. Returns its id."""
    other = Penstock(folder / name)
    path = write_workflow(folder, "cd $STORAGE_PATH/output; echo 7 > a; echo '{\"step\": 1, \"loss\": 1}' > metrics.jsonl; echo hello", file=f"{name}.json", name=name,
                          output=s3_place(store, "/exp/r"), enableLogging=True)  # fmt: skip
    other.run("run", path).ok()
    other.close()
    return other.ps()[0]["id"]


def test_outputs_are_in_several_stores(ui, penstock, tmp_path):
    one, two = Store(penstock, tmp_path / "one"), Store(penstock, tmp_path / "two")
    ids = {name: output_of(penstock, tmp_path, name, of) for name, of in [("one", one), ("two", two)]}
    (tmp_path / "config").write_text("".join(
        f"[profile {name}]\nendpoint_url = {of.endpoint}\nregion = us-east-1\n"
        f"aws_access_key_id = {of.access_key}\naws_secret_access_key = {of.secret_key}\n" for name, of in [("one", one), ("two", two)]))  # fmt: skip
    places = [f"{name}:s3://out/exp/" for name in ids]
    server = ui("--output", places[0], "--output", places[1], "--output", "three:s3://out/exp/", AWS_CONFIG_FILE=str(tmp_path / "config"))

    runs = {run["name"]: run for run in server.get("runs")}

    assert {name: run["id"] for name, run in runs.items()} == ids
    assert {name: run["place"] for name, run in runs.items()} == {name: f"{name}:s3://out/exp/r/" for name in ids}
    assert [one["place"] for one in server.get("failures")] == ["three:s3://out/exp/"]
    for name, identity in ids.items():
        where = {"run": identity, "place": runs[name]["place"]}
        assert server.get("run", **where)["place"] == where["place"]
        assert {"path": "a", "size": 2} in server.get("files", **where)
        assert server.request("GET", "/api/file", path="a", **where).body == b"7\n"
        assert b"hello" in server.request("GET", "/api/log", attempt=1, **where).body
        assert json.loads(server.request("GET", "/api/workflow", **where).body)["name"] == name
        assert {one["file"] for one in server.get("checkpoints", **where)} == {"a", "metrics.jsonl"}
        assert [one["name"] for one in server.get("metrics", **where)] == ["loss"]
    assert "'two:out/exp/'" in penstock.run("ui", "--output", "two:out/exp/").exits(64).err
    one.stop()
    two.stop()


def test_runs_are_those_of_the_verbs(ui, penstock, workflow):
    penstock.run("run", workflow("echo hello; echo 1,2 > $STORAGE_PATH/output/a")).ok()
    server = ui()
    identity = run_id(penstock)

    reply = server.request("GET", "/api/runs")
    same = server.request("GET", "/api/runs", headers={"If-None-Match": reply.headers["ETag"]})

    packed = server.request("GET", "/api/runs", headers={"Accept-Encoding": "gzip"})
    assert "Content-Encoding" not in packed.headers  # too short
    assert reply.json == penstock.run("ps", "-a", "--json").json()
    assert (same.status, same.body) == (304, b"")
    assert server.get("run", run=identity) == penstock.run("show", "--json", identity).json()
    assert server.get("files", run=identity) == [{"path": "a", "size": 4}]
    assert server.request("GET", "/api/file", run=identity, path="a", offset=1, length=2).body == b",2"
    assert json.loads(server.request("GET", "/api/workflow", run=identity).body)["name"] == "t"
    assert server.get("claims") == [] and len(server.get("runners")) == 1


def merged(old, reply):
    """Returns the list that the page makes of its old list and a reply."""
    made = [one for i, one in enumerate(old) if i not in reply["removed"]]
    for index, one in reply["changed"]:
        made.insert(index, one)
    return made


# A live run changes all the time, and the page polls each second.
def test_a_page_gets_only_the_runs_that_changed(ui, penstock, workflow):
    penstock.run("run", workflow("true")).ok()
    many_runs(penstock.home, 2000)
    server = ui()
    packed = {"Accept-Encoding": "gzip"}
    changes = [
        lambda: change_runs(penstock.home, "update attempts set message = 'changed' where run = ?", f"{7:012x}"),
        lambda: change_runs(penstock.home, "delete from runs where id = ?", f"{8:012x}"),
        lambda: penstock.run("run", workflow("true")).ok(),  # a new attempt puts the run first
    ]

    first = server.request("GET", "/api/runs", headers=packed)
    old, tag = json.loads(gzip.decompress(first.body)), first.headers["ETag"]
    assert len(old) == 2001
    for change in changes:
        change()
        poll = server.request("GET", "/api/runs", headers=packed, since=tag)
        whole = server.request("GET", "/api/runs", headers=packed)
        old, tag = merged(old, poll.json), poll.headers["ETag"]
        assert old == json.loads(gzip.decompress(whole.body)) and tag == whole.headers["ETag"]
        assert len(poll.body) < 2000 < len(whole.body) / 5  # the whole list is compressed, and its runs are alike
    assert server.request("GET", "/api/runs", since=tag).json == {"removed": [], "changed": []}
    assert server.request("GET", "/api/runs", since="unknown").json == old


def test_files_of_an_output_are_only_those(ui, penstock, workflow):
    penstock.run("run", workflow("cd $STORAGE_PATH/output; echo x > x; ln -s /etc/passwd link; mkdir d; mkfifo pipe; printf y > 'a b\"<img>.txt'")).ok()
    server = ui()
    identity = run_id(penstock)

    for path in ("link", "../env", "/etc/passwd", "d", "pipe", "none"):
        reply = server.request("GET", "/api/file", run=identity, path=path)
        assert reply.status in (404, 500) and "root:" not in reply.error, path
    saved = server.request("GET", "/api/file", run=identity, path='a b"<img>.txt', download=1)
    assert saved.body == b"y" and saved.headers["Content-Type"] == "application/octet-stream"
    assert saved.headers["Content-Disposition"] == "attachment; filename*=UTF-8''a%20b%22%3Cimg%3E.txt"


# The output of run 2 is in a directory of run 1's output.
def test_files_of_an_output_in_a_store_are_not_those_of_another_run(ui, store):
    store.client.create_bucket(Bucket="out")
    for key in (".penstock/runs/1/state.json", "a", "sub/.penstock/runs/2/state.json", "sub/b", "sub2/c"):
        store.client.put_object(Bucket="out", Key=f"r/{key}", Body=b"{}")
    server = ui(**store.env)

    assert [file["path"] for file in server.get("files", place="s3://out/r/")] == ["a", "sub2/c"]
    assert [file["path"] for file in server.get("files", place="s3://out/r/sub/")] == ["b"]


# A live run writes temporary files and removes them.
def test_files_that_vanish_do_not_hide_the_others(ui, penstock, workflow):
    penstock.run("run", workflow("echo x > $STORAGE_PATH/output/x")).ok()
    server = ui()
    identity = run_id(penstock)
    output = penstock.home / "runs" / identity / "storage" / "output"
    ended = threading.Event()

    def churn():
        while not ended.is_set():
            for i in range(500):
                (output / f"d{i}").mkdir()
                (output / f"d{i}" / "f").touch()
            for i in range(500):
                (output / f"d{i}" / "f").unlink()
                (output / f"d{i}").rmdir()

    churning = threading.Thread(target=churn)
    churning.start()
    replies = [server.request("GET", "/api/files", run=identity) for _ in range(30)]
    ended.set()
    churning.join()

    assert {reply.status for reply in replies} == {200}
    assert all({"path": "x", "size": 2} in reply.json for reply in replies)


def test_a_line_of_the_log_comes_when_it_is_written(ui, penstock, workflow, tmp_path):
    path = workflow(f"while read -r line; do echo \"$line\"; done < {tmp_path}/pipe")
    os.mkfifo(tmp_path / "pipe")
    run = penstock.popen("run", path)
    with open(tmp_path / "pipe", "w") as pipe:
        server = ui()
        identity = wait_for(lambda: penstock.ps() and run_id(penstock), what="the run is recorded")
        wait_for(lambda: server.request("GET", "/api/log", run=identity, attempt=1).status == 200, what="the log is there")
        size = int(server.request("GET", "/api/log", run=identity, attempt=1).headers["X-Log-Size"])
        got = {}

        def wait():
            got["reply"] = server.request("GET", "/api/log", run=identity, attempt=1, offset=size, wait=1)
            got["at"] = time.monotonic()

        waiting = threading.Thread(target=wait)
        waiting.start()
        time.sleep(0.3)  # the request may be in flight, or the line may have arrived; both are valid
        assert "reply" not in got
        pipe.write("a line\n")
        pipe.flush()
        waiting.join(30)
        assert got["reply"].body == b"a line\n" and got["reply"].headers["X-Log-Live"] == "1"
    run.wait().ok()
    wait_for(lambda: server.request("GET", "/api/log", run=identity, attempt=1).headers["X-Log-Live"] == "0", what="the log has ended")
    reply = server.request("GET", "/api/log", run=identity, attempt=1, offset=10**9, wait=1)
    assert reply.body == b""


def test_a_long_log_is_read_in_pieces(ui, penstock, workflow):
    penstock.run("run", workflow("seq 1 300000 | sed 's/$/ of the lines/'; printf 'the end'")).ok()
    server = ui()
    identity = run_id(penstock)
    text = penstock.run("logs", identity).ok().out.encode()
    lines = text.splitlines(keepends=True)
    query = {"run": identity, "attempt": 1}

    packed = server.request("GET", "/api/metrics", run=make_metrics(penstock, identity), headers={"Accept-Encoding": "gzip"})
    assert packed.headers["Content-Encoding"] == "gzip" and len(gzip.decompress(packed.body)) > 4 * len(packed.body)

    index = server.get("log-lines", **query)
    found = server.get("log-search", text="299999 OF", **query)
    many = server.get("log-search", text="of the", **query)

    assert (index["size"], index["lines"]) == (len(text), len(lines)) and len(index["offsets"]) <= 10000
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    assert index["offsets"] == starts[: len(lines) : index["every"]]
    assert server.get("log-lines", **query) == index
    assert [lines[match["line"]] for match in found["matches"]] == [b"299999 of the lines\n"] and found["next"] is None
    assert starts[found["matches"][0]["line"]] == found["matches"][0]["offset"]
    assert len(many["matches"]) == 1000 and many["next"]
    more = server.get("log-search", text="of the", offset=many["next"], **query)
    assert more["matches"][0]["line"] == many["matches"][-1]["line"] + 1 and starts[more["matches"][0]["line"]] == more["matches"][0]["offset"]
    at = index["offsets"][7]
    assert server.request("GET", "/api/log", offset=at, length=5000, **query).body == text[at : at + 5000]
    assert server.request("GET", "/api/log", offset=-100, **query).body == text[-100:]


def test_the_index_of_a_log_grows_with_it(ui, penstock, workflow):
    penstock.run("run", workflow("true")).ok()
    server = ui()
    identity = run_id(penstock)
    log = penstock.home / "runs" / identity / "log" / "1"
    log.write_bytes(b"")
    text = b""

    for piece in (b"a", b"b\n", b"\n", b"c\nd", b"\n", b"e\nf\n"):
        text += piece
        log.write_bytes(text)
        index = server.get("log-lines", run=identity, attempt=1)
        expected = [0] + [at + 1 for at in range(len(text) - 1) if text[at : at + 1] == b"\n"]
        assert index["offsets"] == expected and index["lines"] == len(expected), text


# Some programs truncate their log and start it again.
def test_the_index_of_a_log_that_was_cut_has_its_new_lines_only(ui, penstock, workflow):
    penstock.run("run", workflow("seq 1 10")).ok()
    server = ui()
    identity = run_id(penstock)
    path = penstock.home / "runs" / identity / "log" / "1"
    before = server.get("log-lines", run=identity, attempt=1)
    path.write_text("short\n")
    server.get("log-lines", run=identity, attempt=1)

    with path.open("a") as log:
        log.write("a line that is longer\n" * 10)
    after = server.get("log-lines", run=identity, attempt=1)

    assert after["size"] > before["size"]
    assert (after["lines"], after["offsets"]) == (11, [0, *(6 + 22 * i for i in range(10))])


def test_a_run_is_stopped_and_resumed(ui, penstock, workflow):
    run = penstock.popen("run", workflow("trap 'echo ends; exit 0' TERM; echo begins; while :; do sleep 0.05; done"))
    run.wait_for_output("begins")
    server = ui()
    identity = run_id(penstock)

    stopped = server.post("stop", run=identity)
    assert stopped.status == 200, stopped.body
    run.wait()
    assert [row["state"] for row in server.get("runs")] == ["stopped"]
    assert [step["state"] for step in server.get("run", run=identity)["steps"]] == ["stopped"]
    resumed = server.post("resume", run=identity)
    assert resumed.status == 200 and resumed.json["out"] == identity
    wait_for(lambda: server.get("runs")[0]["state"] == "running", what="the run is resumed")
    noticed = server.post("preempt", run=identity, grace="5s")
    assert noticed.status == 200, noticed.body
    assert (server.get("runs")[0]["state"], server.get("runs")[0]["attempt"]) == ("preempted", 2)
    assert server.post("stop", run="nothing").status == 404
    assert server.post("stop", run=identity, grace="soon").status == 400


def test_secrets_of_a_workflow_are_in_no_reply(ui, penstock, store, tmp_path):
    secret = secrets.token_hex(16)
    place = s3_place(store, "r")
    path = write_workflow(tmp_path, "echo key $KEY; echo $KEY > $STORAGE_PATH/output/a", name="t", output=place, enableLogging=True, env=[{"key": "KEY", "value": "${{ secrets.KEY }}"}])
    store.client.create_bucket(Bucket="out")
    penstock.run("run", path, env={"PENSTOCK_SECRET_KEY": secret}).ok()
    server = ui(**store.env)
    identity = run_id(penstock)

    replies = [server.request("GET", f"/api/{name}", run=identity, attempt=1, url="s3://out/r/", text="key") for name in
               ("about", "stores", "runs", "run", "metrics", "checkpoints", "files", "log", "log-lines", "log-search", "workflow", "buckets", "list")]

    assert all(reply.status in (200, 404) for reply in replies), [(reply.status, reply.body) for reply in replies]  # 404: no metrics
    for reply in replies:
        for hidden in (secret, store.secret_key, server.token):
            assert hidden.encode() not in reply.body


# A log of a terabyte takes minutes to read.
def test_ctrl_c_does_not_wait_for_the_index_of_a_log(ui, penstock, workflow):
    penstock.run("run", workflow("echo begins")).ok()
    server = ui()
    identity = run_id(penstock)
    os.truncate(penstock.home / "runs" / identity / "log" / "1", 1 << 40)

    def look():
        with contextlib.suppress(OSError, http.client.HTTPException):
            server.request("GET", "/api/log-lines", run=identity, attempt=1)

    looking = threading.Thread(target=look)
    looking.start()
    time.sleep(0.3)  # the request may be on its way, or may have started; both are valid

    server.process.send(2)

    server.process.wait(15).exits(0)
    looking.join(30)


def test_ctrl_c_ends_the_page_and_what_it_runs(ui, penstock, workflow):
    run = penstock.popen("run", workflow("trap '' TERM; echo begins; while :; do sleep 0.05; done"))
    run.wait_for_output("begins")
    server = ui()
    identity = run_id(penstock)

    def wait():
        with contextlib.suppress(OSError, http.client.HTTPException):
            server.request("GET", "/api/log", run=identity, attempt=1, offset=10**6, wait=1)

    waiting = threading.Thread(target=wait)
    waiting.start()

    server.process.send(2)

    server.process.wait(30).exits(0)
    waiting.join(30)
    assert run.running() and penstock.ps()[0]["state"] == "running"
    penstock.run("stop", "--grace", "0s", penstock.ps()[0]["id"])
    run.wait()
