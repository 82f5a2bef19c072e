"""Google Cloud Storage for the tests of clients."""
import pytest

from harness.gcs import Gcs


@pytest.fixture
def gcs():
    """The store with an empty bucket "train"."""
    with Gcs() as running:
        running.buckets["train"] = {}
        yield running


# Except for "anonymous", the store requires an identity: a signature, or a token for a signed assertion.
@pytest.fixture(params=["hmac", "service account", "anonymous"])
def who(request, gcs, tmp_path):
    """Returns the environment of each kind of identity."""
    gcs.guarded = request.param != "anonymous"
    if request.param == "hmac":
        return gcs.hmac_env
    return gcs.token_env(gcs.key_file(tmp_path / "key.json")) if gcs.guarded else gcs.env
