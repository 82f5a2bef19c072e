"""Measures the page of `penstock ui` in Chromium: the time from opening its link to the first
paint, and the time until a line that a step writes appears in the page.

With 10,000 runs, and with a log of 10 million lines, measures the bytes that the browser receives, and late frames while the
page scrolls.
"""
import http.server
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import report as reporting

sys.path.insert(0, str(reporting.TOP / "tests" / "system"))
from harness.program import Penstock  # noqa: E402
from harness.records import change_runs, many_runs  # noqa: E402
from harness.ui import Ui  # noqa: E402
from harness.waiting import wait_for  # noqa: E402
from harness.workflows import write_workflow  # noqa: E402

CHROMIUM = "/usr/bin/chromium"
ROUNDS = 5
RUNS, LINES = 10_000, 10_000_000
FRAME_MS = 50  # users notice longer frames
PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
# Scrolls for some seconds. Returns the share of late frames.
SCROLL = """async ([seconds, jump]) => {
    const box = [...document.querySelectorAll('*')].find((e) => e.scrollHeight > e.clientHeight + 1000 && getComputedStyle(e).overflowY !== 'visible');
    let frames = 0, late = 0, last = performance.now();
    const end = last + 1000 * seconds;
    while (last < end) {
        await new Promise(requestAnimationFrame);
        const now = performance.now();
        frames++;
        late += now - last > FRAME;
        last = now;
        box.scrollTop += jump;
    }
    return late / frames;
}""".replace("FRAME", str(FRAME_MS))


def playwright():
    venv = subprocess.run([reporting.TOP / "tools" / "test-venv"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    sys.path.append(str(next(Path(venv).glob("lib/python3*/site-packages"))))
    from playwright.sync_api import sync_playwright

    return sync_playwright()


def launch(driver):
    return driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])


class Bare(http.server.BaseHTTPRequestHandler):
    """A page of one word."""

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>x</title><p>word")

    def log_message(self, *_):
        pass


def first_paint(browser, link):
    tab = browser.new_page()
    tab.goto(link)
    found = wait_for(lambda: tab.evaluate(PAINT), what="the first paint")
    tab.close()
    return found / 1000


def line_latency(browser, server, identity, pipe, rounds):
    """Yields the seconds until a line that a step writes appears in the page."""
    tab = browser.new_page()
    tab.goto(server.link)
    tab.goto(f"{tab.url.split('#')[0]}#/run/{identity}/log")
    tab.get_by_text("begins").first.wait_for()
    for n in range(rounds):
        tab.evaluate(
            """(text) => { window.seen = new Promise((resolve) => {
            const observer = new MutationObserver(() => {
                if (document.body.textContent.includes(text)) { observer.disconnect(); resolve(Date.now()); }
            });
            observer.observe(document.body, {childList: true, subtree: true, characterData: true});
        }); }""",
            f"line {n} ends",
        )
        time.sleep(0.3)
        written = time.time()
        pipe.write(f"line {n} ends\n")
        pipe.flush()
        yield tab.evaluate("window.seen") / 1000 - written
    tab.close()


def scrolled(browser, server, place, sign, seconds, jump):
    """Returns the share of late frames, and the bytes that were received while the page was opened and scrolled."""
    tab = browser.new_page()
    received = []
    client = tab.context.new_cdp_session(tab)
    client.send("Network.enable")
    client.on("Network.dataReceived", lambda event: received.append(event["encodedDataLength"]))
    tab.goto(server.link)
    tab.goto(f"{tab.url.split('#')[0]}#/{place}")
    tab.get_by_text(sign).filter(visible=True).first.wait_for(timeout=60000)
    late = tab.evaluate(SCROLL, [seconds, jump])
    tab.close()
    return late, sum(received)


def poll_after_change(server, home):
    """Changes one run. Returns the bytes of the reply to a page that has the list from before the change."""
    packed = {"Accept-Encoding": "gzip"}
    tag = server.request("GET", "/api/runs", headers=packed).headers["ETag"]
    change_runs(home, "update runs set name = 'changed' where id = ?", f"{7:012x}")
    return len(server.request("GET", "/api/runs", headers=packed, since=tag).body)


def main(report):
    if not os.path.exists(CHROMIUM):
        report.missing("Chromium", "it is not installed")
        return
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name, playwright() as driver:
        folder = Path(name)
        penstock = Penstock(folder)
        os.mkfifo(folder / "pipe")
        run = penstock.popen("run", write_workflow(folder, f"echo begins; while read -r line; do echo $line; done < {folder}/pipe", name="t"))
        browser = launch(driver)
        server = Ui(penstock)
        with open(folder / "pipe", "w") as pipe:
            identity = wait_for(lambda: penstock.ps() and penstock.ps()[0]["id"], what="the run is recorded")
            bare = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Bare)
            threading.Thread(target=bare.serve_forever, daemon=True).start()
            word = f"http://127.0.0.1:{bare.server_port}/"
            ours, floor = report.interleave(ROUNDS, lambda: first_paint(browser, server.link), lambda: first_paint(browser, word))
            bare.shutdown()
            report.limit("first paint of the page", ours, at_most=0.15, unit="s")
            report.figure("first paint of a page of one word", floor, unit="s")
            lines = line_latency(browser, server, identity, pipe, 2 * ROUNDS)
            report.limit("from a step's write to the line in the browser", report.interleave(ROUNDS, lambda: next(lines)), at_most=0.2, unit="s")
        run.wait()

        many_runs(penstock.home, report.size(RUNS, 200))
        late, received = scrolled(browser, server, "runs", "succeeded", report.size(3, 0.5), 300)
        report.limit(f"{RUNS:,} runs: frames beyond {FRAME_MS} ms while scrolling", late, at_most=0.05, unit="of all")
        report.figure(f"{RUNS:,} runs: bytes received", received, unit="bytes")
        report.figure(f"{RUNS:,} runs: bytes of the reply after one run has changed", poll_after_change(server, penstock.home) / 1000, unit="kB")
        log = penstock.home / "runs" / identity / "log" / "1"
        with open(log, "w") as file:
            for n in range(report.size(LINES, 100_000) // 1000):
                file.write("".join(f"step {1000 * n + i} loss 0.123456 of the training\n" for i in range(1000)))
        late, received = scrolled(browser, server, f"run/{identity}/log", "of the training", report.size(3, 0.5), -5000)
        report.limit(f"a log of {LINES:,} lines: frames beyond {FRAME_MS} ms while scrolling", late, at_most=0.05, unit="of all")
        report.figure(f"a log of {LINES:,} lines: bytes received", received, unit="bytes")
        server.close()
        browser.close()
        penstock.close()
