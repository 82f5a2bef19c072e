/* The job of a run, and its state in Slurm. */
#include "run/cluster/slurm.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "records/layout.h"

/* ---- the record ---- */

static int fill(struct slurm_job *job, const json_t *root)
{
	const json_t *options = json_object_get(root, "options");
	const char *number = json_string_value(json_object_get(root, "job"));
	const char *node_dir = json_string_value(json_object_get(root, "node_dir"));
	const json_t *option;
	size_t i;

	*job = (struct slurm_job){
		.attempt = (int)json_integer_value(json_object_get(root, "attempt")),
		.submissions = (int)json_integer_value(json_object_get(root, "submissions")),
		.fresh = json_is_true(json_object_get(root, "fresh")),
		.resume = json_is_true(json_object_get(root, "resume")),
		.keep_context = json_is_true(json_object_get(root, "keep_context")),
	};
	/* The text must begin with a digit, so that no Slurm command mistakes it for an option. */
	if (number && strspn(number, "0123456789") && strlen(number) < sizeof(job->job))
		snprintf(job->job, sizeof(job->job), "%s", number);
	if (node_dir && !(job->node_dir = strdup(node_dir)))
		return -1;
	json_array_foreach ((json_t *)(uintptr_t)options, i, option) {
		const char *text = json_string_value(option);

		if (text && strlist_add(&job->options, text) < 0)
			return -1;
	}
	return 0;
}

int slurm_job_read(
	struct slurm_job *job, const char *home, const char *id, struct penstock_error *err)
{
	_cleanup_free_ char *path = run_path(home, id, RUN_FILE_SLURM);
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_SLURM_JOB);
	json_auto_t *root = NULL;
	int r;

	if (!path)
		return error_memory(err);
	r = fs_read(path, &text, err);
	if (r < 0)
		return r;
	root = json_loadb(buf_str(&text), text.len, 0, NULL);
	if (!json_is_object(root))
		return error_set(err, PENSTOCK_E_CORRUPT,
			"cannot read '%s': it is not a record of penstock; remove the file once the job "
			"has ended",
			path);
	if (fill(job, root) < 0) {
		slurm_job_release(job);
		return error_memory(err);
	}
	return 0;
}

int slurm_job_write(
	const struct slurm_job *job, const char *home, const char *id, struct penstock_error *err)
{
	_cleanup_free_ char *path = run_path(home, id, RUN_FILE_SLURM);
	_cleanup_free_ char *text = NULL;
	json_auto_t *root = NULL;
	json_t *options = json_array();

	for (size_t i = 0; i < job->options.n; i++)
		json_array_append_new(options, json_string(job->options.items[i]));
	root = json_pack("{s:s, s:i, s:i, s:b, s:b, s:b, s:s*, s:o}", "job", job->job, "attempt",
		job->attempt, "submissions", job->submissions, "fresh", (int)job->fresh, "resume",
		(int)job->resume, "keep_context", (int)job->keep_context, "node_dir", job->node_dir,
		"options", options);
	text = json_dumps(root, JSON_INDENT(2));
	if (!path || !text)
		return error_memory(err);
	return fs_write_atomic(path, text, strlen(text), 0600, err);
}

int slurm_job_set_node_dir(
	struct slurm_job *job, const char *configured, struct penstock_error *err)
{
	const char *given = str_env("PENSTOCK_SLURM_NODE_DIR");
	const char *dir = given ? given : configured;

	free(job->node_dir);
	job->node_dir = dir ? strdup(dir) : NULL;
	if (dir && !job->node_dir)
		return error_memory(err);
	if (!dir || *dir == '/' || *dir == '$')
		return 0;
	return error_set(err, PENSTOCK_E_INVALID,
		"invalid `nodeDir` '%s': it must be a directory on a disk of each node, such as "
		"/scratch or $SLURM_TMPDIR",
		dir);
}

void slurm_job_release(struct slurm_job *job)
{
	free(job->node_dir);
	strlist_release(&job->options);
	*job = (struct slurm_job){0};
}

int slurm_job_leave(const char *home, const char *id, bool left, struct penstock_error *err)
{
	_cleanup_free_ char *job = run_path(home, id, RUN_FILE_SLURM);
	_cleanup_free_ char *mark = run_path(home, id, RUN_FILE_SLURM_LEFT);

	if (!job || !mark)
		return error_memory(err);
	if (left)
		return access(job, F_OK) == 0 ? fs_write_atomic(mark, "", 0, 0600, err) : 0;
	return unlink(mark) < 0 && errno != ENOENT
		       ? error_errno(err, errno, "cannot remove '%s'", mark)
		       : 0;
}

bool slurm_job_is_left(const char *home, const char *id)
{
	_cleanup_free_ char *mark = run_path(home, id, RUN_FILE_SLURM_LEFT);

	return mark && access(mark, F_OK) == 0;
}

/* ---- the state of the job ---- */

static bool is_one_of(const char *word, const char *const *words, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (strcmp(word, words[i]) == 0)
			return true;
	}
	return false;
}

/* Parses "2026-11-21T22:10:05" in this machine's time zone. Returns 0 if invalid. */
static int64_t read_time(const char *text)
{
	struct tm tm = {.tm_isdst = -1};
	const char *rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);

	return rest && !*rest ? (int64_t)mktime(&tm) : 0;
}

/* Copies the text up to the next bar, or the end; returns the text after the bar, or NULL after the
 * last field. */
static const char *take_field(const char *at, char *out, size_t size)
{
	size_t len = strcspn(at, "|\n");

	snprintf(out, size, "%.*s", (int)len, at);
	return at[len] == '|' ? at + len + 1 : NULL;
}

/* Returns true if the job runs the script of this run, under any path, or if squeue omits the
 * script. */
static bool is_script_of(const char *command, const char *id)
{
	_cleanup_(buf_release) struct buf end = BUF_INIT(128);
	size_t len = strcspn(command, "\n");

	if (len == 0 || strncmp(command, "(null)", len) == 0)
		return true;
	buf_printf(&end, "/%s/slurm.sh", id);
	return len >= end.len && memcmp(command + len - end.len, end.data, end.len) == 0;
}

bool slurm_status_parse(const char *line, const char *id, struct slurm_status *status)
{
	static const char *const ended[] = {"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE",
		"FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT"};
	static const char *const without[] = {
		"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT"};
	char end[32] = "";
	const char *at;

	*status = (struct slurm_status){0};
	at = take_field(line, status->state, sizeof(status->state));
	if (at)
		at = take_field(at, status->reason, sizeof(status->reason));
	if (at)
		at = take_field(at, status->nodes, sizeof(status->nodes));
	if (at)
		at = take_field(at, end, sizeof(end));
	if (!at || !status->state[0]) {
		*status = (struct slurm_status){0};
		return false;
	}
	if (!is_script_of(at, id)) {
		*status = (struct slurm_status){0};
		return true;
	}
	status->known = true;
	status->lives = !is_one_of(status->state, ended, ARRAY_SIZE(ended));
	status->pending = is_one_of(status->state, without, ARRAY_SIZE(without));
	/*
	 * A job held by Slurm because it was requeued too often is submitted again. A job held by a
	 * person ("JobHeldUser", "JobHeldAdmin", "job requeued in held state"), or one that the
	 * nodes could not start ("launch failed requeued held"), waits for a person.
	 */
	status->max_requeue = status->pending && strcmp(status->reason, "JobHoldMaxRequeue") == 0;
	status->held = status->max_requeue ||
		       (status->pending && (str_starts(status->reason, "JobHeld") ||
						   strcmp(status->state, "REQUEUE_HOLD") == 0 ||
						   strstr(status->reason, "requeue")));
	status->end_s = status->pending ? 0 : read_time(end);
	return true;
}

/* Splits `job` into the number and the option that names the cluster, which is "" for the default
 * cluster. */
static void split(const char *job, char number[static SLURM_JOB_SIZE],
	char cluster[static SLURM_JOB_SIZE + 16])
{
	const char *name = strchr(job, ';');

	snprintf(number, SLURM_JOB_SIZE, "%.*s", (int)strcspn(job, ";"), job);
	snprintf(cluster, SLURM_JOB_SIZE + 16, "%s%s", name ? "--clusters=" : "",
		name ? name + 1 : "");
}

int slurm_status_read(
	const char *job, const char *id, struct slurm_status *status, struct penstock_error *err)
{
	char number[SLURM_JOB_SIZE], cluster[SLURM_JOB_SIZE + 16], jobs[SLURM_JOB_SIZE + 8];
	_cleanup_error_ struct penstock_error e = PENSTOCK_ERROR_INIT;
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_SLURM_REPLY);
	int r;

	split(job, number, cluster);
	snprintf(jobs, sizeof(jobs), "--jobs=%s", number);
	r = slurm_command((const char *const[]){"squeue", "--noheader", "--states=all", jobs,
				  SLURM_STATUS_FORMAT, *cluster ? cluster : NULL, NULL},
		&text, &e);
	*status = (struct slurm_status){0};
	if (r < 0 && e.message && strstr(e.message, "Invalid job id"))
		return 0;
	if (r < 0)
		return error_move(err, &e);
	if (text.len && !slurm_status_parse(buf_str(&text), id, status)) {
		char line[80];

		snprintf(line, sizeof(line), "%.*s", (int)strcspn(buf_str(&text), "\n"),
			buf_str(&text));
		return error_set(err, PENSTOCK_E_UNAVAILABLE,
			"cannot read the state of the job: unexpected output of squeue: '%s'",
			line);
	}
	return 0;
}

int slurm_signal(const char *job, const char *signal, struct penstock_error *err)
{
	_cleanup_free_ char *option = str_printf("--signal=%s", signal);
	_cleanup_(buf_release) struct buf out = BUF_INIT(LIMIT_SLURM_REPLY);
	char number[SLURM_JOB_SIZE], cluster[SLURM_JOB_SIZE + 16];

	if (!option)
		return error_memory(err);
	split(job, number, cluster);
	return slurm_command((const char *const[]){"scancel", "--batch", option, number,
				     *cluster ? cluster : NULL, NULL},
		&out, err);
}

int slurm_cancel(const char *job, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf out = BUF_INIT(LIMIT_SLURM_REPLY);

	char number[SLURM_JOB_SIZE], cluster[SLURM_JOB_SIZE + 16];

	split(job, number, cluster);
	return slurm_command(
		(const char *const[]){"scancel", number, *cluster ? cluster : NULL, NULL}, &out,
		err);
}
