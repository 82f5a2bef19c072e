import subprocess
import sys

import pytest

from harness.program import TOP
from harness.ui import Ui


@pytest.fixture
def ui(penstock):
    """ui(options…): starts a server of the page, which ends with the test."""
    started = []

    def start(*options, **env):
        started.append(Ui(penstock, *options, env=env))
        return started[-1]

    yield start
    for server in started:
        server.close()


@pytest.fixture
def browser(venv):
    """Chromium, driven by Playwright."""
    sys.path.append(str(next(venv.glob("lib/python3*/site-packages"))))
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu"])
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser):
    """page(server, width=1280, …): opens the server's page in a new tab, and returns the tab.
    Errors of the page's scripts fail the test."""
    errors = []

    def open_page(server, width=1280, height=800, **options):
        tab = browser.new_page(viewport={"width": width, "height": height}, accept_downloads=True, **options)
        tab.set_default_timeout(20000)
        tab.on("pageerror", lambda error: errors.append(str(error)))
        tab.on("dialog", lambda dialog: errors.append(f"dialog: {dialog.message}"))
        tab.on("console", lambda message: errors.append(message.text) if "Content Security Policy" in message.text else None)
        tab.goto(server.link)
        return tab

    yield open_page
    assert errors == []


@pytest.fixture(scope="session")
def axe():
    """The source text of axe-core, which is installed with the checks of the page."""
    work = TOP / "build" / "page-check"
    if not work.exists():
        subprocess.run([TOP / "tools" / "build-page", work, "check"], check=True, stdout=subprocess.DEVNULL)
    return (work / "page.build/node_modules/axe-core/axe.min.js").read_text()
