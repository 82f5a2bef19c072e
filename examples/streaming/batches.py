"""Reads objects of one batch each in a random order: `batches.py s3://cifar10/batches/`.

Each object has the bytes that numpy.save() writes.
"""
import io
import sys

import numpy
from penstock.data import Dataset, Loader

loader = Loader(Dataset(sys.argv[1], "objects"), batch_size=1, shuffle=True, seed=7)
for (blob,) in loader:
    batch = numpy.load(io.BytesIO(blob))
    print(f"{len(batch)} pictures, mean {batch[:, 1:].mean():.3f}")
