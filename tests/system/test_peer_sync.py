"""Continuous sync and restore with radosgw and MinIO."""
import pytest
import test_sync
import test_sync_restore
from harness.peers.again import once_more

globals().update(once_more(test_sync))
globals().update(once_more(test_sync_restore))

pytestmark = pytest.mark.long


@pytest.fixture
def store(peer):
    return peer
