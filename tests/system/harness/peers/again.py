"""The tests of another module once more, with the fixtures of the one that asks for them."""
import types

import pytest


def once_more(module, without=()):
    """Its tests and what they need, for globals().update(); a name in `without` is a test that has nothing to do with the store."""
    return {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("__") and name not in (*without, "pytestmark", "store") and not isinstance(value, types.ModuleType)
    }


class Shared:
    """A running peer as a test's `store`. It serves other tests as well, so one that would stop it is skipped."""

    def __init__(self, peer):
        self.peer = peer

    def __getattr__(self, name):
        if name in ("process", "start", "stop", "kill", "root", "options", "penstock"):
            pytest.skip(f"this test needs a store of its own (it uses store.{name})")
        return getattr(self.peer, name)
