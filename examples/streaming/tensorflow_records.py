"""The records of records.py as a tf.data pipeline: `tensorflow_records.py s3://cifar10/train.bin`."""
import sys

import tensorflow as tf
from penstock.data import Dataset, Loader

loader = Loader(Dataset(sys.argv[1], "records", record_size=3073), batch_size=256, shuffle="window", seed=7)
batch = tf.TensorSpec((None, 3073), tf.uint8)
batches = tf.data.Dataset.from_generator(lambda: iter(loader), output_signature=batch)
batches = batches.map(lambda rows: (tf.reshape(rows[:, 1:], (-1, 3, 32, 32)), rows[:, 0])).prefetch(2)
for pictures, labels in batches:
    print(f"{len(labels)} pictures, mean {tf.reduce_mean(tf.cast(pictures, tf.float32)):.3f}")
