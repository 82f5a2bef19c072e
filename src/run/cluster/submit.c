/* Submits a run as a batch job. */
#include "run/cluster/slurm.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "records/layout.h"

/* Seconds before the end of the job for a save and its upload. Slurm may send the signal a minute
 * earlier. */
#define LEAD_S 60

static int refuse(const struct workflow *workflow, const struct workflow_place *at,
	const char *what, const char *path, const char *field, struct penstock_error *err)
{
	error_set(err, PENSTOCK_E_INVALID, "%s; run with --set %s%s%s=null", what, path,
		*path ? ".run." : "", field);
	return workflow_error_at(workflow, at, err);
}

struct checking {
	const struct workflow *workflow;
	struct penstock_error *err;
};

/* Refuses a credential that the batch job cannot read again: the job has neither the options nor
 * the standard input of this process. */
static int check_credential(const struct workflow *workflow,
	const struct workflow_credential *credential, struct penstock_error *err)
{
	bool gone = credential->source == WORKFLOW_FROM_OPTION ||
		    (credential->source == WORKFLOW_FROM_FILE && *workflow->file != '/');

	if (!gone)
		return 0;
	error_set(err, PENSTOCK_E_INVALID,
		"the batch job cannot read this credential again; store it with 'penstock "
		"secret set NAME', and write ${{ secrets.NAME }}");
	return workflow_error_at(workflow, &credential->at, err);
}

static int check_step(void *cookie, const struct workflow_step *step)
{
	const struct checking *c = cookie;
	int r;

	if (step->kind != WORKFLOW_STEP_RUN)
		return 0;
	r = check_credential(c->workflow, &step->run.container.password, c->err);
	if (r < 0)
		return r;
	if (step->run.resources.max_processes.given)
		return refuse(c->workflow, &step->run.resources.max_processes.at,
			"`maxProcesses` has no effect on the nodes of a cluster", step->path,
			"resources.maxProcesses", c->err);
	if (!step->run.timeouts.hang.given)
		return 0;
	return refuse(c->workflow, &step->run.timeouts.hang.at,
		"`hangTimeout` has no effect on the nodes of a cluster", step->path, "hangTimeout",
		c->err);
}

static int check_store(
	const struct workflow *workflow, const struct workflow_s3 *s3, struct penstock_error *err)
{
	int r = check_credential(workflow, &s3->access_key_id, err);

	if (r == 0)
		r = check_credential(workflow, &s3->secret_access_key, err);
	return r == 0 ? check_credential(workflow, &s3->service_account_key, err) : r;
}

int slurm_check(const struct workflow *workflow, struct penstock_error *err)
{
	struct checking checking = {workflow, err};
	int r = check_credential(workflow, &workflow->notify.url, err);

	if (r == 0 && workflow->output.kind == WORKFLOW_S3)
		r = check_store(workflow, &workflow->output.s3, err);
	for (size_t i = 0; r == 0 && i < workflow->n_inputs; i++) {
		if (workflow->inputs[i].kind == WORKFLOW_S3)
			r = check_store(workflow, &workflow->inputs[i].s3, err);
	}
	if (r < 0)
		return r;
	if (workflow->timeouts.hang.given)
		return refuse(workflow, &workflow->timeouts.hang.at,
			"`hangTimeout` has no effect on the nodes of a cluster", "", "hangTimeout",
			err);
	return workflow_walk(&workflow->steps, check_step, &checking);
}

static int add_number(struct strlist *options, const char *name, int64_t value, const char *unit)
{
	return strlist_addf(options, "--%s=%" PRId64 "%s", name, value, unit);
}

/* Adds --output with each "%" of the home doubled, because sbatch replaces patterns like "%j". */
static int add_output(struct strlist *options, const char *home, const char *id)
{
	_cleanup_(buf_release) struct buf name = BUF_INIT(LIMIT_STRING);

	for (; *home; home++)
		buf_add_str(&name, *home == '%' ? "%%" : (const char[]){*home, '\0'});
	buf_printf(&name, "/runs/%s/slurm-%%j.out", id);
	return buf_failed(&name) ? -1 : strlist_addf(options, "--output=%s", buf_str(&name));
}

/* Rejects options with which sbatch does something other than submit one job. */
static int check_option(const char *option, struct penstock_error *err)
{
	static const char *const refused[] = {
		"array", "test-only", "wait", "wrap", "help", "usage", "version"};
	const char *given = option;
	size_t len = strcspn(option, "=");

	for (size_t i = 0; str_starts(option, "--") && i < ARRAY_SIZE(refused); i++) {
		/* sbatch accepts abbreviated options; --wait-all-nodes is a different option. */
		if (len >= 4 && len - 2 <= strlen(refused[i]) &&
			strncmp(option + 2, refused[i], len - 2) == 0)
			option = "-a";
	}
	if (strcmp(option, "--") != 0 && strcmp(option, "-") != 0 &&
		(option[1] == '-' || !strchr("aWhuV", option[1])))
		return 0;
	return error_set(err, PENSTOCK_E_INVALID,
		"cannot pass '%.*s' to sbatch: a run is a single job with its own script",
		(int)strcspn(given, "="), given);
}

int slurm_options(const struct slurm_submission *submission, struct strlist *options,
	struct penstock_error *err)
{
	const struct workflow_resources *r = &submission->workflow->resources;
	const char *name = submission->workflow->name.value;

	if (strlist_addf(options, "--job-name=%s", name ? name : submission->id) < 0 ||
		add_output(options, submission->home, submission->id) < 0 ||
		strlist_add(options, "--open-mode=append") < 0 ||
		strlist_add(options, "--requeue") < 0 ||
		strlist_addf(options, "--signal=B:USR1@%d", LEAD_S) < 0 ||
		add_number(options, "ntasks", r->tasks.value, "") < 0 ||
		add_number(options, "cpus-per-task", r->cpus_per_task.value, "") < 0 ||
		(r->tasks_per_node.given &&
			add_number(options, "ntasks-per-node", r->tasks_per_node.value, "") < 0) ||
		(r->mem_per_cpu.value &&
			add_number(options, "mem-per-cpu", r->mem_per_cpu.value, "M") < 0) ||
		(r->gpus.value && add_number(options, "gpus", r->gpus.value, "") < 0))
		return error_memory(err);
	for (size_t i = 0; submission->options && i < submission->options->n; i++) {
		if (check_option(submission->options->items[i], err) < 0)
			return -(int)PENSTOCK_E_INVALID;
		if (strlist_add(options, submission->options->items[i]) < 0)
			return error_memory(err);
	}
	return 0;
}

int slurm_submission_lock(const char *home, const char *id, struct penstock_error *err)
{
	_cleanup_free_ char *path = run_path(home, id, RUN_FILE_SLURM_LOCK);

	return path ? fs_lock_file(path, err) : error_memory(err);
}

static int run_sbatch(struct slurm_job *job, const char *script, struct penstock_error *err)
{
	_cleanup_free_ const char **argv = calloc(job->options.n + 4, sizeof(*argv));
	_cleanup_(buf_release) struct buf out = BUF_INIT(64 * KIB);
	size_t n = 0;
	int r;

	if (!argv)
		return error_memory(err);
	argv[n++] = "sbatch";
	argv[n++] = "--parsable";
	for (size_t i = 0; i < job->options.n; i++)
		argv[n++] = job->options.items[i];
	argv[n++] = script;
	r = slurm_command(argv, &out, err);
	if (r < 0)
		return r;
	/* "12" or "12;cluster", alone on the last line: sites print greetings before it. */
	const char *text = buf_str(&out);
	size_t len = strlen(text);
	size_t digits;

	while (len && (text[len - 1] == '\n' || text[len - 1] == ' '))
		len--;
	for (size_t i = len; i-- > 0;) {
		if (text[i] == '\n') {
			text += i + 1;
			len -= i + 1;
			break;
		}
	}
	digits = strspn(text, "0123456789");
	if (!digits || len >= sizeof(job->job) || (digits < len && text[digits] != ';'))
		return error_set(err, PENSTOCK_E_UNAVAILABLE,
			"cannot read the number of the job: unexpected output of sbatch: '%.80s'",
			text);
	snprintf(job->job, sizeof(job->job), "%.*s", (int)len, text);
	return 0;
}

/*
 * The number of the submission is recorded before the job can exist. If sbatch does not reply in
 * time, the number stays recorded, because sbatch may still have created a job with that number.
 * After a later submission such a job does nothing.
 */
int slurm_submit(
	struct slurm_job *job, const char *home, const char *id, struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error e = PENSTOCK_ERROR_INIT;
	_cleanup_free_ char *script = run_path(home, id, RUN_FILE_SLURM_SCRIPT);
	char before[SLURM_JOB_SIZE];
	int r;

	if (!script)
		return error_memory(err);
	memcpy(before, job->job, sizeof(before));
	job->job[0] = '\0';
	job->submissions++;
	/* Write the script, which prints an error if penstock or the home is missing on the
	 * node. */
	_cleanup_(buf_release) struct buf text = BUF_INIT(64 * KIB);
	_cleanup_free_ char *program = realpath("/proc/self/exe", NULL);

	if (!program)
		return error_errno(err, errno, "cannot find the path of this program");
	buf_printf(&text, "#!/bin/sh\n# The batch job of penstock's run %s.\nhome=", id);
	buf_add_quoted(&text, home);
	buf_add_str(&text, "\nprogram=");
	buf_add_quoted(&text, program);
	buf_printf(&text,
		"\n"
		"if [ ! -d \"$home/runs/%s\" ]; then\n"
		"\techo \"penstock: $home is not shared with $(hostname): PENSTOCK_HOME must be "
		"on a file system that all nodes see\" >&2\n"
		"\texit 78\n"
		"fi\n"
		"if [ ! -x \"$program\" ]; then\n"
		"\techo \"penstock: $program is not on $(hostname): install penstock there, or "
		"on a file system that all nodes see\" | tee -a \"$home/runs/%s/slurm-error\" "
		">&2\n"
		"\texit 78\n"
		"fi\n"
		"PENSTOCK_HOME=$home\n"
		"export PENSTOCK_HOME\n"
		"PENSTOCK_SLURM_SUBMISSION=%d\n"
		"export PENSTOCK_SLURM_SUBMISSION\n"
		"exec \"$program\" resume --in-allocation %s\n",
		id, id, job->submissions, id);
	if (buf_failed(&text))
		return buf_error(&text, "the batch script", err);
	r = fs_write_atomic(script, text.data, text.len, 0700, err);
	if (r == 0)
		r = slurm_job_write(job, home, id, err);
	if (r < 0)
		return r;
	r = run_sbatch(job, script, &e);
	if (r < 0 && r != -(int)PENSTOCK_E_TIMEOUT) {
		job->submissions--;
		memcpy(job->job, before, sizeof(before));
		slurm_job_write(job, home, id, NULL);
	}
	if (r < 0)
		return error_move(err, &e);
	return slurm_job_write(job, home, id, err);
}

int slurm_submit_again(
	struct slurm_job *job, const char *home, const char *id, struct penstock_error *err)
{
	_cleanup_close_ int lock = slurm_submission_lock(home, id, err);
	struct slurm_job now = {0};
	int r = lock < 0 ? lock : slurm_job_read(&now, home, id, err);

	if (r < 0)
		return r;
	if (now.submissions != job->submissions) {
		slurm_job_release(job);
		*job = now;
		return 1;
	}
	slurm_job_release(&now);
	return slurm_submit(job, home, id, err);
}
