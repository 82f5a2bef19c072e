"""JPEG images that are decoded while they are read, compared with Pillow's."""
import contextlib
import io
import json
import os
import pathlib
import pickle
import struct
import tarfile
import threading

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from penstock.data import Dataset, DatasetDamaged, DatasetError, Loader

SIZES = [(64, 64), (32, 96), (300, 200), (224, 224)]


def picture(width, height, mode="RGB"):
    """A smooth picture with a little noise."""
    y, x = np.mgrid[0:height, 0:width]
    waves = [128 + 90 * np.sin(x / 17 + y / 31), 128 + 90 * np.cos(x / 23), 128 + 100 * np.sin(y / 41)]
    noise = np.random.default_rng(width).normal(0, 5, (height, width, 3))
    return Image.fromarray((np.stack(waves, -1) + noise).clip(0, 255).astype("uint8")).convert(mode)


def jpeg(image, **options):
    out = io.BytesIO()
    image.save(out, "JPEG", quality=92, **options)
    return out.getvalue()


def by_pillow(data, size):
    image = Image.open(io.BytesIO(data)).convert("RGB")
    return np.asarray(ImageOps.fit(image, (size[1], size[0]), Image.BILINEAR)).astype(int)


@pytest.fixture(scope="module")
def images():
    return [
        jpeg(picture(640, 480)),
        jpeg(picture(300, 500), progressive=True),
        jpeg(picture(200, 160, "L")),
        jpeg(picture(180, 140, "CMYK")),
        jpeg(picture(225, 224), subsampling=0),
    ]


def test_pixels_are_those_of_pillow_within_a_few_values(tmp_path, images):
    for i, data in enumerate(images):
        (tmp_path / f"{i}.jpg").write_bytes(data)
    for size in SIZES:
        batch = Dataset(str(tmp_path), decode=size).__getitems__(range(len(images)))
        assert batch.shape == (len(images), *size, 3) and batch.dtype == np.uint8
        for data, got in zip(images, batch):
            difference = np.abs(by_pillow(data, size) - got)
            assert difference.mean() < 1.5 and difference.max() <= 12


# No other batches keep the processors busy, so a single large read uses several threads.
@pytest.mark.skipif(os.cpu_count() == 1, reason="one processor")
def test_one_large_read_decodes_on_several_threads(tmp_path, images):
    for i, image in enumerate(images):
        (tmp_path / f"{i}.jpg").write_bytes(image)
    data = Dataset(str(tmp_path), decode=(224, 224))
    alone = data.__getitems__(range(len(images)))
    numbers = [i % len(images) for i in range(200)]
    seen, got = set(), []

    reader = threading.Thread(target=lambda: got.append(data.__getitems__(numbers)))
    reader.start()
    while reader.is_alive():
        for path in pathlib.Path("/proc/self/task").glob("*/comm"):
            with contextlib.suppress(OSError):
                seen.add(path.read_text().strip())

    assert "images" in seen
    assert all(np.array_equal(image, alone[i]) for i, image in zip(numbers, got[0]))


def test_the_image_of_a_tar_and_of_mosaicml_is_found_by_itself_or_by_name(tmp_path, images):
    (tmp_path / "tar").mkdir()
    with tarfile.open(tmp_path / "tar" / "a.tar", "w") as archive:
        for i, data in enumerate(images):
            for name, content in ((f"{i}.cls", b"7"), (f"{i}.jpg", data)):
                info = tarfile.TarInfo(name)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    (tmp_path / "mds").mkdir()
    samples = [struct.pack("<I", len(data)) + data + struct.pack("<q", 3) for data in images]
    ends = np.cumsum([4 + 4 * (len(samples) + 1)] + [len(sample) for sample in samples]).astype("<u4")
    shard = struct.pack("<I", len(samples)) + ends.tobytes() + b"".join(samples)
    (tmp_path / "mds" / "shard.00000.mds").write_bytes(shard)
    raw = {"basename": "shard.00000.mds", "bytes": len(shard), "hashes": {}}
    entry = {
        "column_encodings": ["jpeg", "int"], "column_names": ["image", "label"], "column_sizes": [None, 8], "compression": None,
        "format": "mds", "hashes": [], "raw_data": raw, "samples": len(samples), "size_limit": 1 << 26, "version": 2, "zip_data": None,
    }  # fmt: skip
    (tmp_path / "mds" / "index.json").write_text(json.dumps({"shards": [entry], "version": 2}))
    for name, column in (("tar", "jpg"), ("mds", "image")):
        found = Dataset(str(tmp_path / name), decode=(64, 48))
        named = Dataset(str(tmp_path / name), decode=(64, 48), column=column)
        assert found.format == name
        stored = Dataset(str(tmp_path / name))
        for i, (sample, data) in enumerate(zip(found.__getitems__(range(len(images))), images)):
            assert sample[column].shape == (64, 48, 3) and np.abs(by_pillow(data, (64, 48)) - sample[column]).mean() < 1.5
            assert np.array_equal(sample[column], named[i][column])
            assert {key: value for key, value in sample.items() if key != column} == {key: value for key, value in stored[i].items() if key != column}
        assert len(sample) > 1
        batch = next(iter(Loader(found, batch_size=len(images), collate="torch", shuffle=False)))
        assert batch[column].dtype == torch.uint8 and np.array_equal(batch[column][1], found[1][column])
        with pytest.raises(DatasetDamaged, match="no column nothing"):
            Dataset(str(tmp_path / name), decode=(64, 48), column="nothing")[0]


def test_batches_are_tensors_and_a_damaged_image_is_skipped(tmp_path, images):
    for i, data in enumerate(images):
        (tmp_path / f"{i}.jpg").write_bytes(data)
    (tmp_path / "2.jpg").write_bytes(images[2][: len(images[2]) // 2])
    data = pickle.loads(pickle.dumps(Dataset(str(tmp_path), decode=(32, 32))))
    with pytest.raises(DatasetDamaged, match=r"cannot read '2.jpg' of '.*' at byte 0: the JPEG image is damaged: Premature end"):
        data.__getitems__([1, 2])
    with pytest.warns(RuntimeWarning, match="2.jpg"):
        batches = list(Loader(data, batch_size=5, collate="torch", on_error="skip"))
    assert [tuple(batch.shape) for batch in batches] == [(4, 32, 32, 3)] and batches[0].dtype == torch.uint8


def test_images_of_folders_have_labels(tmp_path, images):
    for i, data in enumerate(images):
        (tmp_path / f"{'ab'[i % 2]}").mkdir(exist_ok=True)
        (tmp_path / f"{'ab'[i % 2]}" / f"{i}.jpg").write_bytes(data)
    data = Dataset(tmp_path, decode=(16, 24), labels="folder")

    (batch,) = Loader(data, len(data), collate="torch")

    assert batch["label"].tolist() == [0, 0, 0, 1, 1] and batch["data"].shape == (5, 16, 24, 3)
    assert np.array_equal(batch["data"].numpy(), Dataset(tmp_path, decode=(16, 24)).__getitems__(range(5)))


def test_sizes_and_formats_without_images_are_refused(tmp_path, images):
    (tmp_path / "a.jpg").write_bytes(images[0])
    for options, message in (
        ({"decode": (3, 3), "column": "x"}, "samples of format 'objects' have none"),
        ({"decode": (3, 3), "format": "records", "record_size": 1}, "cannot decode JPEG images"),
    ):
        with pytest.raises(DatasetError, match=message):
            Dataset(str(tmp_path), **options)
    with pytest.raises(ValueError, match="decode"):
        Dataset(str(tmp_path), decode=(0, 3))
