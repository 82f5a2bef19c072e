"""Reads samples and writes checkpoints by s3torchconnector. Endpoint and keys come from the environment; the bucket "torch" exists."""
import os
import sys

import torch
from s3torchconnector import S3Checkpoint, S3ClientConfig, S3Exception, S3IterableDataset, S3MapDataset, S3ReaderConstructor

MIB = 1 << 20
KEYS = [f"samples/{i:05} ü+&%20" for i in range(1203)]
# Uploads use parts, and downloads ranges, of 8 MiB.
AT = {"region": "us-east-1", "endpoint": os.environ["AWS_ENDPOINT_URL"], "s3client_config": S3ClientConfig(force_path_style=True, max_attempts=1)}


def loaded(data, workers):
    return [sample for batch in torch.utils.data.DataLoader(data, 64, num_workers=workers, collate_fn=list) for sample in batch]


def sample(reader):
    return reader.key, reader.read()


def write(checkpoint, uri, body, step):
    with checkpoint.writer(uri) as out:
        for at in range(0, len(body), step):
            out.write(body[at : at + step])


def datasets(checkpoint):
    for i, key in enumerate(KEYS):
        write(checkpoint, f"s3://torch/{key}", b"%d" % i * 100, MIB)
    wanted = [(key, b"%d" % i * 100) for i, key in enumerate(KEYS)]
    listed = S3MapDataset.from_prefix("s3://torch/samples/", transform=sample, **AT)
    assert len(listed) == len(KEYS) and listed[7] == wanted[7]
    assert loaded(listed, 0) == loaded(listed, 2) == wanted
    named = S3MapDataset.from_objects([f"s3://torch/{key}" for key in KEYS[-3:]], transform=sample, **AT)
    assert loaded(named, 0) == wanted[-3:]
    assert loaded(S3IterableDataset.from_prefix("s3://torch/samples/", transform=sample, **AT), 0) == wanted
    shared = S3IterableDataset.from_prefix("s3://torch/samples/", transform=sample, enable_sharding=True, **AT)
    assert sorted(loaded(shared, 2)) == wanted


def readers(checkpoint):
    body = os.urandom(21 * MIB + 7)
    write(checkpoint, "s3://torch/large", body, 5 * MIB + 1)
    for constructor in (S3ReaderConstructor.sequential(), S3ReaderConstructor.range_based(), S3ReaderConstructor.range_based(buffer_size=0)):
        data = S3MapDataset.from_objects("s3://torch/large", reader_constructor=constructor, **AT)
        with data[0] as reader:
            assert reader.read(10) == body[:10] and reader.seek(20 * MIB) == 20 * MIB and reader.read(2 * MIB) == body[20 * MIB :]
            reader.seek(-5, os.SEEK_END)
            assert reader.read() == body[-5:]
        with data[0] as reader:
            assert reader.read() == body


def checkpoints(checkpoint):
    state = {"step": 7, "model": {f"layer{i}": torch.randn(1024, 700) for i in range(8)}}
    with checkpoint.writer("s3://torch/run/ckpt.pt") as out:
        torch.save(state, out)
    with checkpoint.reader("s3://torch/run/ckpt.pt") as reader:
        back = torch.load(reader)
    assert back["step"] == 7 and all(torch.equal(back["model"][name], tensor) for name, tensor in state["model"].items())
    # A writer that fails publishes nothing.
    try:
        with checkpoint.writer("s3://torch/run/failed.pt") as out:
            out.write(bytes(20 * MIB))
            raise RuntimeError
    except RuntimeError:
        pass
    for uri in ("s3://torch/run/failed.pt", "s3://nobucket/k"):
        try:
            checkpoint.reader(uri).read()
            raise AssertionError("it was read")
        except S3Exception:
            pass


def main():
    checkpoint = S3Checkpoint(**AT)
    for step in (datasets, readers, checkpoints):
        step(checkpoint)
        print(step.__name__, "ok", flush=True)
    print("done")


if __name__ == "__main__":
    sys.exit(main())
