/*
 * The actions of `penstock dataset`; each opens the data set, and prints to standard output.
 *
 *	r = dataset_inspect(&in, "s3://cifar10/train/", &err);
 */
#ifndef CLI_DATASET_DATASET_H
#define CLI_DATASET_DATASET_H

#include "cli/dataset/set.h"

/* Prints the format, the numbers, the fields of the first sample, and the state of the index. */
int dataset_inspect(struct set_operand *in, const char *url, struct penstock_error *err);
/* Reads samples for some seconds in each order, and prints the speeds and what limits them. */
int dataset_bench(struct set_operand *in, const char *url, struct penstock_error *err);

#endif
