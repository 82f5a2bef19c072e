"""What stood there before is kept, in radosgw and in MinIO, too."""
import pytest
import test_overwriting
from harness.peers.again import once_more

globals().update(
    once_more(
        test_overwriting,
        without=(
            "test_a_store_that_ignores_conditions_is_looked_at_before_every_overwriting",
        ),
    )
)

pytestmark = pytest.mark.long


@pytest.fixture
def store(peer):
    return peer
