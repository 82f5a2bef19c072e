"""Servers of MLflow: the real one, and a fake that keeps its requests."""
import http.server
import json
import os
import re
import signal
import subprocess
import threading
import urllib.request
from urllib.parse import parse_qs, urlsplit

from .waiting import wait_for


class Mlflow:
    """`mlflow server` of an environment, on a free port, with SQLite below `folder`."""

    def __init__(self, venv, folder, *options, env):
        folder.mkdir()
        self.log = folder / "server.log"
        variables = {"PATH": f"{venv}/bin:/usr/bin:/bin", "HOME": str(folder), "MLFLOW_DISABLE_TELEMETRY": "true",
                     "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "GIT_PYTHON_REFRESH": "quiet"}
        with open(self.log, "wb") as out:
            self.process = subprocess.Popen(
                [venv / "bin" / "mlflow", "server", "--host", "127.0.0.1", "--port", "0", "--workers", "1",
                 "--backend-store-uri", f"sqlite:///{folder}/mlflow.db", *options],
                stdout=out, stderr=out, cwd=folder, env=variables | env, start_new_session=True,
            )  # fmt: skip
        self.uri = wait_for(self.address, 300, "the address of mlflow server")
        wait_for(self.replies, 120, "a reply of mlflow server")

    def address(self):
        text = self.log.read_text(errors="replace")
        assert self.process.poll() is None, text
        found = re.search(r"Uvicorn running on (http://127\.0\.0\.1:\d+)", text)
        return found and found.group(1)

    def replies(self):
        try:
            return self.get("experiments/search?max_results=1") is not None
        except OSError:
            return False

    def ask(self, path, body=None):
        request = urllib.request.Request(
            f"{self.uri}/api/2.0/mlflow/{path}", json.dumps(body).encode() if body else None, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as reply:
            return json.load(reply)

    def get(self, path):
        return self.ask(path)

    def runs(self, experiment):
        """Returns all runs of an experiment, newest first, each with `info` and `data`."""
        found = self.get(f"experiments/get-by-name?experiment_name={experiment}")["experiment"]["experiment_id"]
        return self.ask("runs/search", {"experiment_ids": [found], "max_results": 100}).get("runs", [])

    def history(self, run, metric):
        """Returns the logged steps and values."""
        found = self.get(f"metrics/get-history?run_id={run}&metric_key={metric}&max_results=1000").get("metrics", [])
        return [(int(point["step"]), point["value"]) for point in found]

    def stop(self):
        """Kills the server: its database is not needed any more, and its workers would end slowly."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(60)


class FakeMlflow:
    """A server that keeps experiments, runs and its requests in memory."""

    def __init__(self):
        self.experiments, self.runs, self.requests = {}, {}, []
        self.metrics = {}  # points of each metric, of any run
        self.refuses = None  # status of all replies, if set
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                self.reply(None)

            def do_POST(self):
                self.reply(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def reply(self, body):
                server.requests.append((self.path, body, dict(self.headers)))
                status, what = (server.refuses, {}) if server.refuses else server.answer(self.path, body)
                text = json.dumps(what).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_):
                pass

        self.httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.httpd.server_address[1]}"
        self.uri = f"http://{self.address}"
        self.thread = threading.Thread(target=self.httpd.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()

    def log(self, metric, step, value):
        self.metrics.setdefault(metric, []).append({"key": metric, "value": value, "timestamp": 1700000000000 + step, "step": step})

    def asked(self, verb):
        return [path for path, _, _ in self.requests if path.startswith(f"/api/2.0/mlflow/{verb}?")]

    def answer(self, path, body):
        verb = urlsplit(path).path.removeprefix("/api/2.0/mlflow/")
        if verb == "runs/get":
            last = [max(points, key=lambda point: point["step"]) for points in self.metrics.values()]
            return 200, {"run": {"info": {"run_id": parse_qs(urlsplit(path).query)["run_id"][0]}, "data": {"metrics": last}}}
        if verb == "metrics/get-history":
            return 200, {"metrics": self.metrics[parse_qs(urlsplit(path).query)["metric_key"][0]]}
        if verb == "experiments/get-by-name":
            name = parse_qs(urlsplit(path).query)["experiment_name"][0]
            if name not in self.experiments:
                return 404, {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "no such experiment"}
            return 200, {"experiment": {"experiment_id": self.experiments[name], "name": name, "lifecycle_stage": "active"}}
        if verb == "experiments/create":
            self.experiments[body["name"]] = str(len(self.experiments) + 1)
            return 200, {"experiment_id": self.experiments[body["name"]]}
        if verb == "runs/create":
            run = f"{len(self.runs) + 1:032x}"
            tags = {tag["key"]: tag["value"] for tag in body["tags"]}
            self.runs[run] = {"name": body["run_name"], "tags": tags, "statuses": ["RUNNING"], "end_time": None}
            return 200, {"run": {"info": {"run_id": run, "status": "RUNNING"}}}
        if verb == "runs/search":
            wanted = re.fullmatch(r"tags\.`penstock\.tracked` = '(\w+)'", body["filter"]).group(1)
            found = [run for run, kept in self.runs.items() if kept["tags"]["penstock.tracked"] == wanted]
            return 200, {"runs": [{"info": {"run_id": run}} for run in found[-1:]]} if found else {}
        if verb == "runs/update":
            run = self.runs[body["run_id"]]
            run["statuses"].append(body["status"])
            run["end_time"] = body.get("end_time", run["end_time"])
            return 200, {"run_info": {}}
        return 404, {}

    def close(self):
        self.httpd.shutdown()
        self.httpd.server_close()
        self.thread.join()
