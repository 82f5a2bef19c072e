import pytest

from harness.deployment import BUCKET, Deployment


@pytest.fixture
def models(store):
    """The store, with the bucket of the models."""
    store.client.create_bucket(Bucket=BUCKET)
    return store


@pytest.fixture
def deploy(penstock, models):
    """deploy(options…): starts a deployment, which ends with the test."""
    started = []

    def start(*options, **how):
        started.append(Deployment(penstock, models, *options, **how))
        return started[-1]

    yield start
    for deployment in started:
        deployment.close()
