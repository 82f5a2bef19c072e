"""Transfers that are gone on with, and deltas, against radosgw and MinIO."""
import pytest
import test_delta
import test_resume
from harness.peers.again import once_more

globals().update(once_more(test_resume, without=("test_uploads_of_unknown_age_are_left_alone",)))
globals().update(once_more(test_delta))
pytestmark = pytest.mark.long


@pytest.fixture
def store(peer):
    return peer
