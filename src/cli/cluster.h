/*
 * Runs that are carried by a cluster: whether one is wanted, and the verbs' share in it.
 *
 *	cluster_wanted(&cluster, cli, err);
 *	if (cluster.slurm)
 *		return cluster_run(cli, &(struct cluster_run){ ... });
 */
#ifndef CLI_CLUSTER_H
#define CLI_CLUSTER_H

#include <stdbool.h>

#include "base/str.h"
#include "cli/command.h"
#include "records/records.h"
#include "workflow/model.h"

struct penstock_error;

/* For a verb's table. */
#define CLUSTER_WHERE                                                                              \
	{                                                                                          \
		0, "on", "WHERE",                                                                  \
			"slurm: the cluster; local: this machine, whatever the configuration says" \
	}
#define CLUSTER_OPTIONS                                                                            \
	{0, "on", "WHERE",                                                                         \
		"slurm: submit it as a batch job, and follow it; local: this machine, whatever "   \
		"the configuration says"},                                                         \
		{0, "partition", "NAME", "The partition of the batch job"},                        \
	{                                                                                          \
		0, "sbatch", "OPTION",                                                             \
			"An option of sbatch as it is, such as --sbatch=--time=2:00:00; may be "   \
			"repeated"                                                                 \
	}

struct cluster {
	bool slurm;
	bool given;		/* by an option, not by a configuration */
	struct strlist options; /* of sbatch */
	char *node_dir;		/* owned; on a disk of each node, for inputs; NULL: not given */
};
/* From the options, else the configuration. PENSTOCK_E_INVALID: one of them is wrong. */
int cluster_wanted(struct cluster *cluster, const struct cli *cli, struct penstock_error *err);
/* The same for a verb that has CLUSTER_WHERE alone. */
int cluster_where(struct cluster *cluster, const struct cli *cli, struct penstock_error *err);
void cluster_release(struct cluster *cluster);

struct cluster_run {
	const char *home;
	struct records *records;
	const struct workflow *workflow;
	const char *shown; /* the workflow's name for people */
	const char *id;	   /* NULL: the workflow's */
	const char *provenance;
	const struct strlist *options;
	const char *node_dir;
	bool fresh, resume, detach;
};
/* Submits it and, unless detached, follows it to its end; returns the exit code. */
int cluster_run(const struct cli *cli, const struct cluster_run *spec);

/* Whether the run was last submitted to a cluster. */
bool cluster_has(const char *home, const char *id);

/*
 * The log of a run on a cluster as it grows, from its last `lines` lines (-1: all) over whatever attempts its jobs make, to its
 * end. `*code` is the exit code of the run, or 128+n where signal n ended only this.
 */
int cluster_follow(const struct cli *cli, struct records *records, const char *home, const char *id,
	int64_t lines, int *code, struct penstock_error *err);

/* Ends it and waits for that. PENSTOCK_E_NOT_FOUND: no job of it lives. */
int cluster_stop(const struct cli *cli, struct records *records, const char *home,
	const struct records_run *run, int64_t grace_ms, struct penstock_error *err);

/* What Slurm knows of several runs, asked once and only if one of them needs it. */
struct cluster_view {
	bool asked;
	char *jobs; /* "12|PENDING|Priority||N/A\n…"; NULL: not known */
};
/*
 * Corrects the state of a run that looks lost, or preempted, while its job waits or begins. True: it did, and what the run was
 * told of the machine it was on does not concern it any more. Of one that is lost it says how its job ended.
 */
bool cluster_view_correct(struct cluster_view *view, const char *home, const char *id,
	struct records_attempt *attempt);
void cluster_view_release(struct cluster_view *view);

/* The nodes, for `penstock runners`. */
int cluster_show_nodes(bool json, struct penstock_error *err);

#endif
