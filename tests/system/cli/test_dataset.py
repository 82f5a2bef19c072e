"""`penstock dataset`: index, inspect and bench."""
import os

INDEX = ".penstock-index"


def fill(store, n=3):
    store.client.create_bucket(Bucket="bucket")
    for i in range(n):
        store.client.put_object(Bucket="bucket", Key=f"d/{i}.txt", Body=b"x" * (i + 1))


# The verb writes the index, a hidden object, and no other object.
def test_an_index_is_written_next_to_the_objects(penstock, store):
    fill(store)
    keys = set(store.keys("bucket"))

    result = penstock.run("dataset", "index", "s3://bucket/d/", env=store.env).ok()

    assert "3 samples" in result.out
    assert set(store.keys("bucket")) - keys == {f"d/{INDEX}"}
    again = penstock.run("dataset", "index", "s3://bucket/d", env=store.env).ok()
    assert "3 samples" in again.out


def test_an_index_is_written_into_a_directory_as_a_whole(penstock, tmp_path):
    directory = tmp_path / "d"
    directory.mkdir()
    for i in range(4):
        (directory / f"{i}.bin").write_bytes(b"12345678")

    result = penstock.run("dataset", "index", directory, "--format", "records", "--record-size", "4").ok()

    assert "8 samples" in result.out
    assert sorted(os.listdir(directory)) == [INDEX, "0.bin", "1.bin", "2.bin", "3.bin"]


def test_places_without_samples_are_refused(penstock, tmp_path, store):
    store.client.create_bucket(Bucket="bucket")
    (tmp_path / "one.bin").write_bytes(b"x")

    penstock.run("dataset", "index", tmp_path / "missing").exits(66)
    penstock.run("dataset", "index", "s3://bucket/d/", env=store.env).exits(66)
    penstock.run("dataset", "index", tmp_path / "one.bin").exits(64)
    penstock.run("dataset", "forget", tmp_path).exits(64)


def test_inspect_prints_the_content_and_the_state_of_the_index(penstock, tmp_path, store):
    directory = tmp_path / "d"
    directory.mkdir()
    for i in range(5):
        (directory / f"{i}.txt").write_text(f"text {i}")
        (directory / f"{i}.cls").write_text(str(i))
    store.client.create_bucket(Bucket="bucket")
    penstock.run("pack", directory, "s3://bucket/d/", "--format", "tar", env=store.env).ok()

    def inspect(url):
        return penstock.run("dataset", "inspect", url, "--json", env=store.env).json()

    found = inspect("s3://bucket/d/")
    assert [found[name] for name in ("format", "samples", "shards", "index")] == ["tar", 5, 1, "current"]
    assert [[field["name"], field["type"], field["bytes"]] for field in found["fields"]] == [["cls", "text", 1], ["txt", "text", 6]]
    body = store.client.get_object(Bucket="bucket", Key="d/shard-000000.tar")["Body"].read()
    store.client.put_object(Bucket="bucket", Key="d/shard-000001.tar", Body=body)
    later = inspect("s3://bucket/d/")
    assert later["index"] == "out of date" and later["samples"] == 10
    assert inspect(directory)["index"] == "missing"
    assert "cls: text" in penstock.run("dataset", "inspect", "s3://bucket/d/", env=store.env).ok().out


def test_bench_measures_each_order(penstock, tmp_path, store):
    fill(store, 50)

    orders = penstock.run("dataset", "bench", "s3://bucket/d/", "--seconds", "200ms", "--json", env=store.env).json()

    assert [order["order"] for order in orders] == ["in order", "window", "random"]
    assert all(order["samples_per_s"] > 0 and order["limit"] in ("processor", "bandwidth", "latency") for order in orders)
    penstock.run("dataset", "bench", "s3://bucket/d/", "--seconds", "0", env=store.env).exits(64)


# 256 of these samples have more than 4 GiB together.
def test_bench_measures_large_samples(penstock, tmp_path):
    directory = tmp_path / "d"
    directory.mkdir()
    for i in range(256):
        with open(directory / f"{i}.bin", "wb") as file:
            file.truncate(17 << 20)

    orders = penstock.run("dataset", "bench", directory, "--seconds", "100ms", "--json").json()

    assert len(orders) == 3
