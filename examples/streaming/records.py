"""One object of records of a fixed size, from which each batch reads what it needs: `records.py s3://cifar10/train.bin`."""
import sys

from penstock.data import Dataset, Loader

# The data set and its order, in five lines; a record is a label and the 3,072 bytes of a picture.
data = Dataset(sys.argv[1], "records", record_size=3073)
loader = Loader(data, batch_size=256, shuffle="window", seed=7)
for batch in loader:
    labels, pictures = batch[:, 0], batch[:, 1:].reshape(-1, 3, 32, 32)
    print(f"{len(labels)} pictures, mean {pictures.mean():.3f}, {len(set(labels.tolist()))} classes")
