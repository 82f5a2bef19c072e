"""Runs the tests of another module again, with the fixtures of the importing module."""
import types

import pytest


def once_more(module, without=()):
    """Returns the module's tests and helpers, for globals().update(); `without` names tests that do not use the store."""
    return {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("__") and name not in (*without, "pytestmark", "store") and not isinstance(value, types.ModuleType)
    }


class Shared:
    """A running peer as a test's `store`. All tests share the peer, so tests that would stop it are skipped."""

    def __init__(self, peer):
        self.peer = peer

    def __getattr__(self, name):
        if name in ("process", "start", "stop", "kill", "root", "options", "penstock"):
            pytest.skip(f"this test needs a store of its own (it uses store.{name})")
        return getattr(self.peer, name)
