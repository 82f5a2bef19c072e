"""Versions of objects on the page of penstock ui, in a real browser."""
import json
import re
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone

import pytest

from harness.ui import focus, seen, serious
from harness.waiting import wait_for

HOSTILE = "<img src=x onerror=alert(1)>'&"


@pytest.fixture
def bucket(store):
    """The store; s3://bkt has versioning, and put() and delete() return ids."""
    store.client.create_bucket(Bucket="bkt")
    store.client.put_bucket_versioning(Bucket="bkt", VersioningConfiguration={"Status": "Enabled"})
    store.put = lambda key, body: store.client.put_object(Bucket="bkt", Key=key, Body=body)["VersionId"]
    store.delete = lambda key: store.client.delete_object(Bucket="bkt", Key=key)["VersionId"]
    return store


def ids(store, key):
    """Returns the ids of the key's versions and markers, newest first."""
    page = store.client.list_object_versions(Bucket="bkt", Prefix=key)
    rows = [*page.get("Versions", []), *page.get("DeleteMarkers", [])]
    return [row["VersionId"] for row in sorted(rows, key=lambda row: row["LastModified"], reverse=True) if row["Key"] == key]


def open_bucket(tab, name="bkt"):
    tab.goto(tab.url.split("#")[0] + f"#/buckets/s3://{name}/")


def row_of(tab, version):
    return tab.get_by_role("table", name="Versions").get_by_role("row").filter(has_text=version)


def confirm(tab, verb, *texts):
    """Checks that the top dialog has these texts, and presses its button `verb`."""
    dialog = tab.get_by_role("dialog").last
    for text in texts:
        dialog.get_by_text(text).first.wait_for()
    dialog.get_by_role("button", name=verb, exact=True).click()


def test_a_deleted_object_is_shown_and_its_versions_are_read_restored_and_deleted(ui, page, bucket):
    old, new = bucket.put("note.txt", b"the first words"), bucket.put("note.txt", b"other words")
    marker = bucket.delete("note.txt")
    bucket.put("kept.txt", b"x")
    tab = page(ui(**bucket.env))
    open_bucket(tab)

    tab.get_by_role("button", name="kept.txt", exact=True).wait_for()
    assert not tab.get_by_role("button", name="note.txt", exact=True).count()
    tab.get_by_label("Show deleted").check()
    tab.get_by_role("row").filter(has_text="note.txt").get_by_text("deleted", exact=True).wait_for()
    tab.get_by_role("button", name="note.txt", exact=True).click()
    seen(tab, "The object is deleted.")
    row_of(tab, marker).filter(has_text="current").get_by_text("deleted", exact=True).wait_for()
    tab.get_by_role("button", name=f"Preview version {old}").click()
    tab.get_by_role("dialog").last.get_by_text("the first words").wait_for()
    tab.keyboard.press("Escape")
    tab.get_by_text("the first words").wait_for(state="detached")
    with tab.expect_download() as saved:
        tab.get_by_role("link", name=f"Download version {old}").click()
    assert open(saved.value.path(), "rb").read() == b"the first words" and saved.value.suggested_filename == "note.txt"

    tab.get_by_role("button", name=f"Restore version {old}").click()
    confirm(tab, "Restore", "s3://bkt/note.txt", old, "over the current one")
    seen(tab, "The version was restored.")
    seen(tab, "the first words")  # the contents of the object
    assert bucket.bytes("bkt", "note.txt") == b"the first words" and ids(bucket, "note.txt")[1:] == [marker, new, old]
    tab.get_by_role("button", name=f"Delete permanently version {new}").click()
    confirm(tab, "Delete permanently", "s3://bkt/note.txt", new, "lost")
    row_of(tab, new).wait_for(state="detached")
    assert ids(bucket, "note.txt")[1:] == [marker, old]
    tab.get_by_role("dialog").get_by_role("button", name="Close").click()
    tab.get_by_role("row").filter(has_text="note.txt").get_by_text("15 B").wait_for()


def test_the_keyboard_undoes_a_deletion_and_deletes_a_version(ui, page, bucket, axe):
    old, new = bucket.put("note.txt", b"old"), bucket.put("note.txt", b"new")
    marker = bucket.delete("note.txt")
    tab = page(ui(**bucket.env))
    open_bucket(tab)
    tab.get_by_label("Show deleted").wait_for()

    focus(tab, "checkbox", "Show deleted")
    tab.keyboard.press("Space")
    tab.get_by_role("button", name="note.txt", exact=True).wait_for()
    assert serious(tab, axe) == []
    focus(tab, "button", "note.txt")
    tab.keyboard.press("Enter")
    row_of(tab, marker).wait_for()
    assert serious(tab, axe) == []
    focus(tab, "button", f"Restore version {marker}")
    tab.keyboard.press("Enter")
    tab.get_by_text("The delete marker is removed.").wait_for()
    assert serious(tab, axe) == []
    focus(tab, "button", "Restore")
    tab.keyboard.press("Enter")
    row_of(tab, marker).wait_for(state="detached")
    assert bucket.bytes("bkt", "note.txt") == b"new"
    focus(tab, "button", f"Preview version {old}")
    tab.keyboard.press("Enter")
    tab.get_by_role("heading", name=f"note.txt, version {old}").wait_for()
    assert serious(tab, axe) == []
    tab.keyboard.press("Escape")
    focus(tab, "button", f"Delete permanently version {old}")
    tab.keyboard.press("Enter")
    focus(tab, "button", "Delete permanently")
    tab.keyboard.press("Enter")
    row_of(tab, old).wait_for(state="detached")
    assert ids(bucket, "note.txt") == [new]
    tab.keyboard.press("Escape")
    tab.get_by_role("dialog").wait_for(state="detached")


@pytest.mark.parametrize("scheme, width", [("dark", 400), ("light", 1280)])
def test_versions_fit_into_the_window(ui, page, bucket, axe, scheme, width):
    bucket.put(HOSTILE, HOSTILE.encode())
    bucket.delete(HOSTILE)
    tab = page(ui(**bucket.env), width=width, color_scheme=scheme)
    open_bucket(tab)

    tab.get_by_label("Show deleted").check()
    tab.get_by_role("button", name=HOSTILE).click()
    tab.get_by_role("table", name="Versions").wait_for()

    assert serious(tab, axe) == []
    assert tab.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert tab.evaluate("document.querySelector('dialog').scrollWidth <= document.querySelector('dialog').clientWidth")
    assert not tab.locator("img[src='x']").count()


def test_versions_are_read_in_pages(ui, page, bucket):
    oldest = bucket.put("k", b"0")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: bucket.put("k", b"1"), range(1005)))
    bucket.put("k2", b"2")
    tab = page(ui(**bucket.env))
    open_bucket(tab)

    tab.get_by_role("button", name="k", exact=True).click()
    table = tab.get_by_role("table", name="Versions")
    wait_for(lambda: table.get_attribute("aria-rowcount") == "1001", what="the first page is there")
    tab.get_by_role("region", name="Versions").evaluate("box => box.scrollTo(0, box.scrollHeight)")
    wait_for(lambda: table.get_attribute("aria-rowcount") == "1007", what="the second page is there")
    tab.get_by_role("region", name="Versions").evaluate("box => box.scrollTo(0, box.scrollHeight)")

    row_of(tab, oldest).wait_for()


def test_a_locked_version_has_the_error_of_the_store_in_its_dialog(ui, page, store):
    store.client.create_bucket(Bucket="locked", ObjectLockEnabledForBucket=True)
    version = store.client.put_object(Bucket="locked", Key="k", Body=b"x", ObjectLockLegalHoldStatus="ON")["VersionId"]
    tab = page(ui(**store.env))
    open_bucket(tab, "locked")

    tab.get_by_role("button", name="k", exact=True).click()
    tab.get_by_role("button", name=f"Delete permanently version {version}").click()
    confirm(tab, "Delete permanently", "s3://locked/k", version)

    tab.get_by_role("alert").get_by_text("AccessDenied").wait_for()
    assert store.bytes("locked", "k") == b"x"


def test_a_retention_for_governance_is_bypassed_after_its_effect_was_said(ui, page, store, axe):
    store.client.create_bucket(Bucket="locked", ObjectLockEnabledForBucket=True)
    until = datetime.now(timezone.utc) + timedelta(days=1)
    governed, final = (
        store.client.put_object(Bucket="locked", Key="k", Body=b"x", ObjectLockMode=mode, ObjectLockRetainUntilDate=until)["VersionId"]
        for mode in ("GOVERNANCE", "COMPLIANCE")
    )
    tab = page(ui(**store.env))
    open_bucket(tab, "locked")
    dialog = tab.get_by_role("dialog").last

    tab.get_by_role("button", name="k", exact=True).click()
    seen(tab, re.compile("^COMPLIANCE until 20"))
    tab.get_by_role("button", name=f"Delete permanently version {final}").click()
    confirm(tab, "Delete permanently", re.compile("COMPLIANCE until 20"))
    dialog.get_by_role("alert").get_by_text("AccessDenied").wait_for()
    assert not dialog.get_by_role("checkbox").count()
    tab.keyboard.press("Escape")
    tab.get_by_role("button", name=f"Delete permanently version {governed}").click()
    confirm(tab, "Delete permanently", re.compile("GOVERNANCE until 20"))  # the box must be checked first
    assert serious(tab, axe) == [] and not dialog.get_by_role("alert").count()
    dialog.get_by_role("checkbox", name="Bypass the retention").check()
    confirm(tab, "Delete permanently")

    row_of(tab, governed).wait_for(state="detached")
    assert [version["VersionId"] for version in store.client.list_object_versions(Bucket="locked")["Versions"]] == [final]


def test_a_retention_that_may_not_be_read_is_bypassed_after_a_refusal(ui, page, store):
    store.client.create_bucket(Bucket="locked", ObjectLockEnabledForBucket=True)
    until = datetime.now(timezone.utc) + timedelta(days=1)
    version = store.client.put_object(
        Bucket="locked", Key="k", Body=b"x", ObjectLockMode="GOVERNANCE", ObjectLockRetainUntilDate=until)["VersionId"]
    statement = {"Effect": "Deny", "Principal": "*", "Action": "s3:GetObjectRetention", "Resource": "arn:aws:s3:::locked/*"}
    store.client.put_bucket_policy(Bucket="locked", Policy=json.dumps({"Version": "2012-10-17", "Statement": [statement]}))
    tab = page(ui(**store.env))
    open_bucket(tab, "locked")
    dialog = tab.get_by_role("dialog").last

    tab.get_by_role("button", name="k", exact=True).click()
    tab.get_by_role("button", name=f"Delete permanently version {version}").click()
    confirm(tab, "Delete permanently")
    dialog.get_by_role("alert").get_by_text("AccessDenied").wait_for()
    dialog.get_by_role("checkbox", name="Bypass the retention").check()
    confirm(tab, "Delete permanently")

    row_of(tab, version).wait_for(state="detached")
    assert "Versions" not in store.client.list_object_versions(Bucket="locked")


def test_a_read_only_page_reads_versions_and_changes_none(ui, page, bucket):
    version = bucket.put("note.txt", b"the first words")
    bucket.delete("note.txt")
    tab = page(ui("--read-only", **bucket.env))
    open_bucket(tab)

    tab.get_by_label("Show deleted").check()
    tab.get_by_role("button", name="note.txt", exact=True).click()
    tab.get_by_role("button", name=f"Preview version {version}").click()

    tab.get_by_role("dialog").last.get_by_text("the first words").wait_for()
    assert not tab.get_by_role("button", name=re.compile("Restore|Delete")).count()


def test_a_bucket_without_versioning_has_no_switch(ui, page, store):
    store.client.create_bucket(Bucket="plain")
    store.client.put_object(Bucket="plain", Key="k", Body=b"x")
    tab = page(ui(**store.env))
    open_bucket(tab, "plain")

    tab.get_by_role("button", name="k", exact=True).click()
    seen(tab, "The bucket keeps no versions.")

    assert not tab.get_by_label("Show deleted").count()
