"""Resumed transfers, and deltas, with radosgw and MinIO."""
import pytest

from client import test_resume
from harness.peers.again import once_more
from transfer import test_delta

globals().update(once_more(test_resume, without=("test_uploads_of_unknown_age_are_left_alone",)))
globals().update(once_more(test_delta))
pytestmark = pytest.mark.long

NO_PART_COPY = "MinIO copies no parts into an upload with checksums, so the whole file is sent"
NOT_WITH_MINIO = {
    "test_unfinished_uploads_are_listed_and_ended": "MinIO lists uploads only by their complete key",
    "test_the_continuous_sync_sends_what_has_changed_of_a_checkpoint": NO_PART_COPY,
    "test_cp_sends_what_has_changed_of_a_file": NO_PART_COPY,
    "test_what_a_restore_has_fetched_is_built_upon": NO_PART_COPY,
}


@pytest.fixture
def store(request, peer):
    why = NOT_WITH_MINIO.get(request.function.__name__)
    if peer.kind == "minio" and why:
        pytest.skip(why)
    return peer
