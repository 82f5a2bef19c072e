#!/usr/bin/python3
"""Opens the pages of a running server in Chromium, and reports defects that a user would meet.

    penstock ui &                                    prints the link
    web/test/page.py 'http://127.0.0.1:8800/?token=…'

A violation of axe that is serious or critical, an error of the console (also one of the CSP), an
exception, or a page that is wider than the window is a failure. Needs Playwright for Python, and
Chromium: CHROMIUM=/usr/bin/chromium. The server needs one run at least.
"""
import json
import os
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

AXE = Path(__file__).parent.parent / "node_modules/axe-core/axe.min.js"
TABS = ["", "/log", "/plots", "/checkpoints", "/files", "/workflow"]
WINDOWS = [(1280, 800, "light"), (1280, 800, "dark"), (400, 800, "light")]
SETTLED_MS = 1500
FIND = """async () => (await axe.run()).violations
    .filter((one) => ["serious", "critical"].includes(one.impact))
    .map((one) => `${one.id}: ${one.nodes.map((node) => node.html.slice(0, 200)).slice(0, 3)}`)"""


def visit(page, address, found):
    """Opens a page and adds its defects to `found`."""
    page.goto(address)
    page.wait_for_timeout(SETTLED_MS)
    found += [f"{address}: {violation}" for violation in page.evaluate(FIND)]
    width = page.evaluate("document.documentElement.scrollWidth")
    if width > page.viewport_size["width"]:
        found.append(f"{address}: {width} pixels wide")


def routes(page, root):
    """The addresses of all pages, with those of the first run and the first bucket."""
    runs = json.loads(page.request.get(f"{root}/api/runs").text())
    buckets = json.loads(page.request.get(f"{root}/api/buckets?store=embedded").text())
    run = runs[0]["id"]
    found = ["runs", "runners", "buckets?store=embedded", f"compare/{run}"]
    found += [f"run/{run}{tab}" for tab in TABS]
    found += [f"buckets/s3://{one['bucket']}/?store=embedded" for one in buckets[:1]]
    return [f"{root}/#/{route}" for route in found]


def main():
    link = sys.argv[1]
    root = "/".join(link.split("/", 3)[:3])
    found, pages = [], 0
    with sync_playwright() as playwright:
        chromium = os.environ.get("CHROMIUM", "/usr/bin/chromium")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for width, height, scheme in WINDOWS:
            context = browser.new_context(
                viewport={"width": width, "height": height}, color_scheme=scheme
            )
            context.add_init_script(path=AXE)
            page = context.new_page()
            page.on("pageerror", lambda error: found.append(f"exception: {error}"))
            page.on(
                "console",
                lambda line: found.append(f"console: {line.text} ({line.location.get('url')})")
                if line.type == "error"
                else None,
            )
            page.goto(link)
            for address in routes(page, root):
                visit(page, address, found)
                pages += 1
            context.close()
        browser.close()
    # A machine without Slurm answers so; the page leaves the cluster out.
    found = [line for line in found if "/api/cluster" not in line]
    for line in dict.fromkeys(found):
        print(line)
    print(f"page: {pages} pages, {len(found)} defects")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
