/*
 * Runs on a cluster: decides whether a run goes to the cluster, and does the work of the verbs for
 * such runs.
 *
 *	cluster_wanted(&cluster, cli, err);
 *	if (cluster.slurm)
 *		return cluster_run(cli, &options, &cluster);
 */
#ifndef CLI_CLUSTER_CLUSTER_H
#define CLI_CLUSTER_CLUSTER_H

#include <stdbool.h>

#include "base/str.h"
#include "cli/command.h"
#include "records/records.h"

struct follow;
struct penstock_error;
struct run_options;

/* Rows of a verb's option table. */
#define CLUSTER_WHERE                                                                              \
	{                                                                                          \
		0, "on", "slurm|local",                                                            \
			"slurm: the cluster; local: this machine; overrides the configuration"     \
	}
#define CLUSTER_OPTIONS                                                                            \
	{0, "on", "slurm|local",                                                                   \
		"slurm: submit the run as a batch job, and follow it; local: this machine; "       \
		"overrides the configuration"},                                                    \
		{0, "partition", "NAME", "Partition of the batch job"},                            \
	{                                                                                          \
		0, "sbatch", "OPTION",                                                             \
			"Pass an option to sbatch, such as --sbatch=--time=2:00:00; may be "       \
			"repeated"                                                                 \
	}

struct cluster {
	bool slurm;
	bool given; /* --on was given */
	struct strlist options; /* options of sbatch */
	char *node_dir; /* owned; directory for inputs on a disk of each node; NULL if not set */
};
/* Reads the configuration, then the options of the command line, which take precedence. Fails with
 * PENSTOCK_E_INVALID if a value is invalid. */
int cluster_wanted(struct cluster *cluster, const struct cli *cli, struct penstock_error *err);
/* Like cluster_wanted(), for a verb that has only CLUSTER_WHERE. */
int cluster_where(struct cluster *cluster, const struct cli *cli, struct penstock_error *err);
void cluster_release(struct cluster *cluster);

/* Submits the run and, unless --detach was given, follows it to its end. Returns the exit code. The
 * stored workflow contains the overrides of the command line, because the job does not get the
 * command line. */
int cluster_run(
	const struct cli *cli, const struct run_options *options, const struct cluster *cluster);

/* Returns true if the run was submitted to a cluster, and has not been started on this machine
 * since then. */
bool cluster_has(const char *home, const char *id);

/*
 * Prints the log of a run on a cluster as it grows, across all attempts of its jobs, until the run
 * ends; `how` selects the part of the existing log to print. `*code` is the exit code of the run,
 * or 128+n if signal n ended the output of the log, but not the run.
 */
int cluster_follow(const struct cli *cli, struct records *records, const char *home, const char *id,
	const struct follow *how, int *code, struct penstock_error *err);

/* Stops the run and waits for its end. Fails with PENSTOCK_E_NOT_FOUND if the run was never
 * submitted, or if its job has ended. */
int cluster_stop(const struct cli *cli, struct records *records, const char *home,
	const struct records_run *run, int64_t grace_ms, struct penstock_error *err);

/* Prevents other processes from submitting a run that is to be removed, until the returned
 * descriptor is closed. Fails with PENSTOCK_E_EXISTS if a job of the run is pending or running, and
 * with another code if the state of the job is unknown. */
int cluster_hold(
	struct records *records, const char *home, const char *id, struct penstock_error *err);

/* If the run was started on this machine while its job was pending, and the job is still pending,
 * cancels the job. */
int cluster_cancel_left(const char *home, const char *id, struct penstock_error *err);

/* Slurm's list of this user's jobs, for the states of several runs. The list is read once, when the
 * first run needs it. */
struct cluster_view {
	bool asked;
	char *jobs; /* "12|PENDING|Priority||N/A\n…"; NULL if unknown */
};
/*
 * Corrects the state of a run that looks lost or preempted although its job is pending or starting.
 * Returns true if the state was corrected; a recorded notice then no longer applies, because it is
 * about the machine of the earlier attempt. For a run that stays lost, sets a message about the
 * end of its job.
 */
bool cluster_view_correct(struct cluster_view *view, const char *home, const char *id,
	struct records_attempt *attempt);
void cluster_view_release(struct cluster_view *view);

/* Prints the nodes, for `penstock runners`. */
int cluster_show_nodes(bool json, struct penstock_error *err);

#endif
