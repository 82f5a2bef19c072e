"""Objects are kept before they are overwritten, in radosgw and in MinIO, too."""
import pytest

from harness.peers.again import once_more
from sync import test_overwriting

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
def store(peer, request):
    if peer.kind == "radosgw" and request.node.originalname == "test_what_an_upload_in_parts_overwrites_is_kept":
        pytest.skip("radosgw ignores conditions of Complete, so an object that is written after penstock's check is lost (docs/stores.md)")
    return peer


@pytest.mark.parametrize("peer", ["radosgw"], indirect=True)
def test_what_stood_there_before_an_upload_in_parts_is_kept_there_too(penstock, store, job):
    test_overwriting.put(store, "model", b"theirs")

    penstock.run("run", job(f"truncate -s {test_overwriting.LARGE} $DEEPSQUARE_OUTPUT/model")).ok()

    assert test_overwriting.kept(store, "model") == [b"theirs"] and len(test_overwriting.shown(penstock)) == 1
