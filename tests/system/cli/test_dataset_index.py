"""`penstock dataset index`, and reading what it wrote."""
import os

INDEX = ".penstock-index"


def fill(store, n=3):
    store.client.create_bucket(Bucket="bucket")
    for i in range(n):
        store.client.put_object(Bucket="bucket", Key=f"d/{i}.txt", Body=b"x" * (i + 1))


# The hidden object is the only one that is written.
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
