"""The main job with radosgw and with MinIO: the same tests as with `penstock serve`."""
import pytest

from harness.peers.again import once_more
from jobs import test_main_job

globals().update(
    once_more(
        test_main_job,
        without=(
            "test_example_runs_with_the_embedded_store",
            "test_example_resume_runs_with_the_embedded_store",
            "test_published_workflow_as_it_is_names_what_this_machine_lacks",
        ),
    )
)

pytestmark = pytest.mark.long


@pytest.fixture
def store(peer):
    return peer
