"""Inputs from radosgw and from MinIO."""
import pytest

from harness.peers.again import once_more
from inputs import test_staging

FROM_S3 = ("test_an_s3_path_is_staged", "test_s3_objects_are_unpacked_where_asked", "test_an_empty_s3_path_is_an_error")

others = [name for name in vars(test_staging) if name.startswith("test_") and name not in FROM_S3]
globals().update(once_more(test_staging, without=others))
pytestmark = pytest.mark.long


@pytest.fixture
def store(peer):
    return peer
