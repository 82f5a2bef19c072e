"""Continuous sync and restore with radosgw and MinIO."""
import pytest

from harness.peers.again import once_more
from sync import test_publish, test_restore

globals().update(once_more(test_publish))
globals().update(once_more(test_restore))

pytestmark = pytest.mark.long


@pytest.fixture
def store(peer):
    return peer
