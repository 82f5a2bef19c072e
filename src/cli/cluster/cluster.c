/* Decides whether a run goes to a cluster, and reads the states of the runs on the cluster. */
#include "cli/cluster/cluster.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "cli/print/util.h"
#include "run/cluster/slurm.h"
#include "run/config/user_limits.h"
#include "workflow/document/document.h"

void cluster_release(struct cluster *cluster)
{
	strlist_release(&cluster->options);
	free(cluster->node_dir);
}

/* ---- the configuration ---- */

static int read_options(
	const struct user_config *c, const struct node *slurm, struct cluster *cluster)
{
	const struct node *options = slurm->kind == NODE_MAP ? node_get(slurm, "options") : NULL;
	const struct node *dir = slurm->kind == NODE_MAP ? node_get(slurm, "nodeDir") : NULL;

	if (slurm->kind != NODE_MAP)
		return user_config_wrong(
			c, slurm, "`slurm` must be a map with `options` and `nodeDir`");
	for (size_t i = 0; i < slurm->n; i++) {
		if (strcmp(slurm->entries[i].key, "options") != 0 &&
			strcmp(slurm->entries[i].key, "nodeDir") != 0)
			return user_config_wrong(c, slurm->entries[i].value,
				"unknown key: `slurm` has `options`, a list of options of "
				"sbatch, and `nodeDir`, a directory on a disk of each node");
	}
	if (dir && (dir->kind != NODE_SCALAR || (*dir->text != '/' && *dir->text != '$')))
		return user_config_wrong(c, dir,
			"`nodeDir` must be a directory on a disk of each node, such as /scratch "
			"or $SLURM_TMPDIR");
	if (dir) {
		free(cluster->node_dir);
		cluster->node_dir = strdup(dir->text);
		if (!cluster->node_dir)
			return error_memory(c->err);
	}
	if (options && options->kind != NODE_LIST)
		return user_config_wrong(
			c, options, "`options` must be a list of options of sbatch");
	for (size_t i = 0; options && i < options->n; i++) {
		const struct node *option = options->entries[i].value;

		if (option->kind != NODE_SCALAR || *option->text != '-')
			return user_config_wrong(
				c, option, "an option of sbatch must begin with `-`");
		if (strlist_add(&cluster->options, option->text) < 0)
			return error_memory(c->err);
	}
	return 0;
}

static int read_config(const struct user_config *c, const struct node *root, void *out)
{
	const struct node *on = node_get(root, "on"), *slurm = node_get(root, "slurm");
	struct cluster *cluster = out;

	if (on && (on->kind != NODE_SCALAR ||
			  (strcmp(on->text, "slurm") != 0 && strcmp(on->text, "local") != 0)))
		return user_config_wrong(c, on, "`on` must be `slurm` or `local`");
	if (on)
		cluster->slurm = strcmp(on->text, "slurm") == 0;
	return slurm ? read_options(c, slurm, cluster) : 0;
}

int cluster_where(struct cluster *cluster, const struct cli *cli, struct penstock_error *err)
{
	const char *on = cli_value(cli, "on");
	int r = user_config_read(read_config, cluster, err);

	if (r < 0)
		return r;
	if (on)
		cluster->slurm = strcmp(on, "slurm") == 0;
	cluster->given = on != NULL;
	return 0;
}

int cluster_wanted(struct cluster *cluster, const struct cli *cli, struct penstock_error *err)
{
	const struct strlist *given = cli_values(cli, "sbatch");
	const char *partition = cli_value(cli, "partition");
	int r = cluster_where(cluster, cli, err);

	if (r < 0)
		return r;
	if (!cluster->slurm && !cluster->given && (given->n || partition))
		cluster->slurm = true; /* options of sbatch imply Slurm */
	if (!cluster->slurm && (given->n || partition))
		return error_set(err, PENSTOCK_E_INVALID, "cannot use --%s with --on local",
			partition ? "partition" : "sbatch");
	if (partition && strlist_addf(&cluster->options, "--partition=%s", partition) < 0)
		return error_memory(err);
	for (size_t i = 0; i < given->n; i++) {
		if (*given->items[i] != '-')
			return error_set(err, PENSTOCK_E_INVALID,
				"invalid --sbatch='%s': an option of sbatch begins with a dash, "
				"such as --sbatch=--time=2:00:00",
				given->items[i]);
		if (strlist_add(&cluster->options, given->items[i]) < 0)
			return error_memory(err);
	}
	return 0;
}

bool cluster_has(const char *home, const char *id)
{
	_cleanup_(slurm_job_release) struct slurm_job job = {0};

	return !slurm_job_is_left(home, id) && slurm_job_read(&job, home, id, NULL) == 0;
}

/* ---- the state of several runs ---- */

static char *ask_for_all(void)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_SLURM_REPLY);
	char user[16];

	snprintf(user, sizeof(user), "%u", (unsigned)geteuid());
	if (slurm_command((const char *const[]){"squeue", "--noheader", "--states=all", "--user",
				  user, SLURM_LIST_FORMAT, NULL},
		    &text, NULL) < 0)
		return NULL;
	return text.len ? buf_take(&text) : strdup("");
}

/* Parses the line of the job in the list `jobs`. Returns false if the list lacks the job, or if the
 * line is invalid. */
static bool find_job(const char *jobs, const char *job, const char *id, struct slurm_status *status)
{
	size_t len = strlen(job);

	for (const char *at = jobs; at && *at; at = strchr(at, '\n'), at += at != NULL) {
		if (strncmp(at, job, len) == 0 && at[len] == '|')
			return slurm_status_parse(at + len + 1, id, status);
	}
	return false;
}

/* Sets the message of a lost run whose end was not recorded, because no process followed its job.
 * Skips jobs of other clusters, because the list of jobs does not contain them. */
static void explain_loss(const struct slurm_job *job, const struct slurm_status *status,
	struct records_attempt *attempt)
{
	if (attempt->state != RUN_LOST || attempt->class != RUN_CLASS_NONE || !job->job[0] ||
		strchr(job->job, ';'))
		return;
	attempt->class = RUN_CLASS_NODE;
	free(attempt->message);
	attempt->message = str_printf(
		"Slurm job %s ended (%s)%s%s; the same command resumes the run", job->job,
		status->known ? status->state : "no longer known to Slurm",
		*status->nodes ? " on " : "", status->nodes);
}

bool cluster_view_correct(struct cluster_view *view, const char *home, const char *id,
	struct records_attempt *attempt)
{
	_cleanup_(slurm_job_release) struct slurm_job job = {0};
	struct slurm_status status = {0};
	bool waits;

	if ((attempt->state != RUN_LOST && attempt->state != RUN_PREEMPTED) ||
		slurm_job_is_left(home, id) || slurm_job_read(&job, home, id, NULL) < 0)
		return false;
	if (!view->asked)
		view->jobs = ask_for_all();
	view->asked = true;
	waits = find_job(view->jobs, job.job, id, &status) && status.lives &&
		(status.pending || attempt->state == RUN_LOST);
	if (waits) {
		free(attempt->message);
		attempt->message = str_printf("Slurm job %s: %s (%s)%s%s", job.job, status.state,
			status.reason, *status.nodes ? " on " : "", status.nodes);
		attempt->state = RUN_QUEUED;
		attempt->class = RUN_CLASS_NONE;
		attempt->ended_ns = 0;
	} else if (view->jobs && !status.lives) {
		explain_loss(&job, &status, attempt);
	}
	return waits;
}

void cluster_view_release(struct cluster_view *view)
{
	free(view->jobs);
}

/* ---- nodes ---- */

#define NODE_FIELDS 6

int cluster_show_nodes(bool json, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_SLURM_REPLY);
	struct grid grid = grid_new("NODE", "PARTITION", "STATE", "CPUS IN USE", "MEMORY", "GPUS");
	json_t *array = json ? json_array() : NULL;
	_cleanup_free_ char *lines = NULL;
	char *rest, *line;
	int r = slurm_command((const char *const[]){"sinfo", "--noheader", "--Node",
				      "--format=%N|%T|%C|%m|%G|%R", NULL},
		&text, err);

	rest = lines = r == 0 && text.len ? buf_take(&text) : NULL;
	while (rest && (line = strsep(&rest, "\n"))) {
		char memory[STR_SIZE_SIZE], *fields[NODE_FIELDS];
		uint64_t bytes;
		int n = 0, used, idle, other, all;

		while (n < NODE_FIELDS && (fields[n] = strsep(&line, "|")))
			n++;
		if (n < NODE_FIELDS)
			continue;
		/* CPUs: "allocated/idle/other/all" */
		if (sscanf(fields[2], "%d/%d/%d/%d", &used, &idle, &other, &all) != 4)
			used = all = 0;
		bytes = strtoull(fields[3], NULL, 10) * MIB;
		str_format_size(bytes, memory);
		json_array_append_new(
			array, json_pack("{s:o, s:o, s:{s:i, s:I, s:i}, s:{s:i}, s:o}", "name",
				       json_text(fields[0]), "status", json_text(fields[1]),
				       "capacity", "cpus", all, "memory", (json_int_t)bytes, "gpus",
				       slurm_gpus_of(fields[4]), "used", "cpus", used, "partition",
				       json_text(fields[5])));
		grid_add(&grid, fields[0]);
		grid_add(&grid, fields[5]);
		grid_add(&grid, fields[1]);
		grid_addf(&grid, "%d of %d", used, all);
		grid_add(&grid, memory);
		grid_addf(&grid, "%d", slurm_gpus_of(fields[4]));
	}
	return show_list(&grid, array, r);
}
