"""Ownership of a run and its output, with radosgw and MinIO."""
import json

import pytest

from harness.peers.again import once_more
from run import test_ownership
from run.test_ownership import STATE

globals().update(
    once_more(
        test_ownership,
        without=(
            "test_a_run_is_its_workflow_as_written_and_its_output",
            "test_a_reference_to_a_secret_is_the_same_run_whatever_it_stands_for",
            "test_a_second_run_of_a_live_identity_is_refused_and_a_name_makes_another",
        ),
    )
)
pytestmark = pytest.mark.long


# Tests in which a run is taken over from a dead machine. Ceph ignores conditions at the completion
# of an upload in parts, so a former owner that wakes up could still overwrite objects. Therefore
# penstock refuses takeovers on Ceph, as the tests below show.
TAKEOVERS = (
    "test_a_run_whose_owner_does_not_move_is_taken_over",
    "test_a_run_that_is_live_elsewhere_is_refused_by_name",
    "test_an_owner_in_another_container_is_watched",
    "test_a_state_that_is_not_known_is_no_end",
    "test_the_output_of_a_machine_that_is_gone_is_free_after_one_term",
)


@pytest.fixture
def store(peer, request):
    if peer.kind == "radosgw" and request.node.originalname in TAKEOVERS:
        pytest.skip("no takeover between machines on radosgw; see test_a_store_that_ignores_some_conditions_is_refused_a_takeover")
    return peer


@pytest.mark.parametrize("peer", ["radosgw"], indirect=True)
def test_a_store_that_ignores_some_conditions_is_refused_a_takeover(elsewhere, store, lost_run):
    path, identity, state = lost_run
    state["owner"] |= {"boot_id": "another", "host": "node7"}
    state["lease"]["term_ms"] = 1500
    store.client.put_object(Bucket="out", Key=STATE.format(identity), Body=json.dumps(state).encode())

    refused = elsewhere.run("run", path).exits(69)

    assert "node7" in refused.err and "--name" in refused.err
    assert refused.out == "" and json.loads(store.bytes("out", STATE.format(identity))) == state


@pytest.mark.parametrize("peer", ["radosgw"], indirect=True)
def test_nor_is_an_output_taken_over_there(penstock, store, lost_run, job):
    _, identity, state = lost_run
    state["owner"] |= {"boot_id": "another", "host": "node7"}
    state["lease"]["term_ms"] = 1500
    store.client.put_object(Bucket="out", Key=STATE.format(identity), Body=json.dumps(state).encode())

    refused = penstock.run("run", job("second", "echo second > $DEEPSQUARE_OUTPUT/ckpt")).exits(69)

    assert "node7" in refused.err
    assert refused.out == "" and store.bytes("out", "ckpt") == b"7\n"


# The lease is renewed every ten seconds with If-Match. Ceph before 18 compares the value including
# its quotes.
def test_a_run_of_several_terms_keeps_its_lease(penstock, store, job):
    workflow = job("long", "echo one > $DEEPSQUARE_OUTPUT/x; sleep 25; echo two > $DEEPSQUARE_OUTPUT/x")

    penstock.run("run", workflow).ok()

    state = json.loads(store.bytes("out", STATE.format(penstock.ps()[0]["id"])))
    assert state["state"] == "succeeded" and state["lease"]["beat"] >= 5
    assert store.bytes("out", "x") == b"two\n"
