/*
 * The usage of a step on the nodes of a cluster. On each node the penstock of the first task keeps
 * one line in the file use.NODE of a directory that all nodes share; the supervisor adds the lines
 * up.
 *
 *	struct node_usage usage = NODE_USAGE_INIT;
 *
 *	wait_ms = node_usage_sample(&usage, dir);	// on the node; repeat it after this time
 *	node_usage_end(&usage);				// removes the file
 *
 *	if (node_usage_sum(dir, n_nodes, &sample))	// the supervisor
 *		usage_file_add(&file, path, &sample);
 *
 * All processes of the step on the node count, including those of penstock. The rates are those
 * since the previous sample on the same node.
 */
#ifndef RUN_CLUSTER_NODE_USAGE_H
#define RUN_CLUSTER_NODE_USAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "records/claims.h"
#include "run/report/usage_file.h"
#include "run/report/usage_meter.h"

struct node_usage {
	char *path; /* NULL before the first sample, and if another task takes the samples */
	int fd;
	bool begun;
	struct usage_file pace; /* only paces the samples; has no file */
	int64_t next_ms; /* monotonic */
	struct usage_meter meter;
	int gpus[CLAIMS_MAX_GPUS];
	size_t n_gpus;
};
/* clang-format off */
#define NODE_USAGE_INIT { .fd = -1 }
/* clang-format on */

/* Takes a sample if one is due. Returns the time in ms until the next sample is due; -1 if another
 * task of the node takes the samples, or if the file cannot be made. */
int64_t node_usage_sample(struct node_usage *usage, const char *dir);
void node_usage_end(struct node_usage *usage);

/* Adds the last samples of all nodes to `sum`. Returns false before the first sample. */
bool node_usage_sum(const char *dir, size_t n_nodes, struct usage_sample *sum);

#endif
