"""A pytest plugin for tools/s3-compat: gives each worker its own store, and writes each result as a line of JSON."""
import json
import os


def pytest_configure(config):
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker:
        os.environ["S3TEST_CONF"] = os.path.join(os.environ["S3COMPAT_DIRECTORY"], worker + ".conf")


def pytest_collection_modifyitems(items):
    for item in items:
        item.user_properties.append(("markers", sorted({mark.name for mark in item.iter_markers()})))


def pytest_runtest_logreport(report):
    if os.environ.get("PYTEST_XDIST_WORKER"):
        return
    outcome = "skipped" if hasattr(report, "wasxfail") else report.outcome
    crash = getattr(report.longrepr, "reprcrash", None)
    line = {"test": report.nodeid.rpartition("/")[2], "phase": report.when, "outcome": outcome, "seconds": report.duration,
            "markers": dict(report.user_properties).get("markers", []), "error": crash.message if crash else "",
            "where": f"{crash.path}:{crash.lineno}" if crash else "", "text": report.longreprtext if outcome == "failed" else ""}
    with open(os.path.join(os.environ["S3COMPAT_DIRECTORY"], "results"), "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
