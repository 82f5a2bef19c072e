import pytest

from harness.ui import Ui


@pytest.fixture
def ui(penstock):
    """ui(options…): a server of the page, which ends with the test."""
    started = []

    def start(*options, **env):
        started.append(Ui(penstock, *options, env=env))
        return started[-1]

    yield start
    for server in started:
        server.close()
