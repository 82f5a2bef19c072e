"""Writes and reads a Parquet data set of several partitions by the S3FileSystem of pyarrow. Endpoint and keys come from the environment."""
import os
import sys

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow import fs

ROWS, DAYS, GROUP = 60_000, 3, 5_000


def refused(kind, call):
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError("it succeeded")


def make():
    number = range(ROWS)
    return pa.table({
        "number": pa.array(number, pa.int64()),
        "day": pa.array([f"day {n % DAYS}" for n in number]),
        "text": pa.array([f"row {n}" for n in number]),
        "blob": pa.array([os.urandom(400) for _ in number], pa.binary()),
    })  # fmt: skip


def partitions(s3, table):
    """Files of several megabytes, which the SDK sends in parts."""
    ds.write_dataset(
        table, "lake/table", filesystem=s3, format="parquet", partitioning=ds.partitioning(pa.schema([("day", pa.string())]), flavor="hive"),
        max_rows_per_group=GROUP, max_rows_per_file=2 * GROUP,
    )  # fmt: skip
    files = [info for info in s3.get_file_info(fs.FileSelector("lake/table", recursive=True)) if info.is_file]
    assert len(files) == DAYS * 2 and sum(info.size for info in files) > ROWS * 400, files
    data = ds.dataset("lake/table", filesystem=s3, partitioning="hive")
    assert data.count_rows() == ROWS
    assert data.to_table(columns=table.schema.names).sort_by("number") == table


def selection(s3, table):
    """Columns, partitions and row groups: the reader fetches ranges."""
    data = ds.dataset("lake/table", filesystem=s3, partitioning="hive")
    picked = data.to_table(columns=["number", "text"], filter=(pc.field("day") == "day 1") & (pc.field("number") >= ROWS - 100))
    assert picked.column("number").to_pylist() == [n for n in range(ROWS - 100, ROWS) if n % DAYS == 1]
    fragment = next(data.get_fragments(filter=pc.field("day") == "day 2"))
    with pq.ParquetFile(fragment.path, filesystem=s3) as file:
        assert file.num_row_groups == 2
        group = file.read_row_group(1, columns=["number"])
        assert group.column("number").to_pylist() == [n for n in range(ROWS) if n % DAYS == 2][GROUP : 2 * GROUP]


def files(s3):
    body = os.urandom(23_000_000)
    with s3.open_output_stream("lake/dir/ü &+%20#?", metadata={"Content-Type": "a/b", "x": "y"}) as out:
        for at in range(0, len(body), 1_000_003):
            out.write(body[at : at + 1_000_003])
    with s3.open_input_file("lake/dir/ü &+%20#?") as file:
        assert file.size() == len(body) and file.metadata()["Content-Type"] == b"a/b"
        file.seek(len(body) - 5)
        assert file.read() == body[-5:] and file.read_at(100, 7_000_000) == body[7_000_000:7_000_100]
    with s3.open_input_stream("lake/dir/ü &+%20#?") as file:
        assert file.read() == body
    with s3.open_output_stream("lake/dir/empty"):
        pass
    s3.copy_file("lake/dir/ü &+%20#?", "lake/copy")
    s3.move("lake/copy", "lake/moved/copy")
    assert s3.get_file_info("lake/copy").type == fs.FileType.NotFound
    assert s3.get_file_info("lake/moved/copy").size == len(body)
    assert s3.get_file_info("lake/moved").type == fs.FileType.Directory


def directories(s3):
    # With this option a small file is one PUT, by default an upload in parts.
    plain = fs.S3FileSystem(endpoint_override=os.environ["AWS_ENDPOINT_URL"], allow_delayed_open=True)
    for i in range(1005):
        with plain.open_output_stream(f"lake/many/{i % 2}/{i:04}") as out:
            out.write(b"%d" % i)
    s3.create_dir("lake/many/made/deeper", recursive=True)
    found = s3.get_file_info(fs.FileSelector("lake/many", recursive=True))
    assert sorted(info.path for info in found if info.is_file) == sorted(f"lake/many/{i % 2}/{i:04}" for i in range(1005))
    assert [info.path for info in s3.get_file_info(fs.FileSelector("lake/many"))] == ["lake/many/0", "lake/many/1", "lake/many/made"]
    s3.delete_dir("lake/many")
    s3.delete_file("lake/dir/empty")
    assert "many" not in str(s3.get_file_info(fs.FileSelector("lake")))


def errors(s3):
    refused(FileNotFoundError, lambda: s3.open_input_file("lake/none"))
    refused(FileNotFoundError, lambda: s3.get_file_info(fs.FileSelector("lake/none")))
    refused(FileNotFoundError, lambda: s3.delete_file("lake/none"))
    assert "NO_SUCH_BUCKET" in refused(OSError, lambda: s3.open_output_stream("nobucket/none").close())
    endpoint, key = os.environ["AWS_ENDPOINT_URL"], os.environ["AWS_ACCESS_KEY_ID"]
    wrong = fs.S3FileSystem(endpoint_override=endpoint, access_key=key, secret_key="wrong")
    assert "ACCESS_DENIED" in refused(OSError, lambda: wrong.open_input_file("lake/none"))
    assert "SIGNATURE_DOES_NOT_MATCH" in refused(OSError, lambda: wrong.open_output_stream("lake/none").close())


def main():
    s3 = fs.S3FileSystem(endpoint_override=os.environ["AWS_ENDPOINT_URL"], allow_bucket_creation=True, allow_bucket_deletion=True)
    s3.create_dir("lake")
    table = make()
    for step, *arguments in ((partitions, table), (selection, table), (files,), (directories,), (errors,)):
        step(s3, *arguments)
        print(step.__name__, "ok", flush=True)
    s3.delete_dir("lake")
    assert s3.get_file_info("lake").type == fs.FileType.NotFound
    print("done")


if __name__ == "__main__":
    sys.exit(main())
