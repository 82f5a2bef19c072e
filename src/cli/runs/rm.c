#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/str.h"
#include "cli/cluster/cluster.h"
#include "cli/commands.h"
#include "cli/objects/remote.h"
#include "cli/print/util.h"
#include "records/supervisor.h"
#include "records/layout.h"
#include "run/process/strays.h"

/* Returns true if the directory has entries, or exists and cannot be read. */
static bool has_entries(const char *path)
{
	_cleanup_closedir_ DIR *dir = path ? opendir(path) : NULL;

	return dir ? fs_next_entry(dir) || errno : path && errno != ENOENT;
}

/* Returns the path of output that was set aside by a restart before its upload, or NULL if there is
 * none. */
static char *find_aside(const char *run_dir)
{
	_cleanup_closedir_ DIR *dir = run_dir ? opendir(run_dir) : NULL;

	for (struct dirent *e; dir && (e = readdir(dir));) {
		_cleanup_free_ char *path = str_starts(e->d_name, RUN_ASIDE_PREFIX)
						    ? path_join(run_dir, e->d_name)
						    : NULL;

		if (has_entries(path))
			return take_pointer(path);
	}
	return NULL;
}

/* Refuses to remove a run whose output goes to another place, if the only copy of some output may
 * be on this machine. */
static int check_flushed(
	const struct records_run *run, const struct run_layout *layout, struct penstock_error *err)
{
	_cleanup_free_ char *aside = run->output ? find_aside(layout->dir) : NULL;

	if (aside)
		return error_set(err, PENSTOCK_E_EXISTS,
			"cannot remove run '%s': it was restarted, and earlier output that was "
			"not uploaded is in '%s'; copy the files that you need, then use --force",
			run->id, aside);
	if (run->output && records_was_fenced(&run->last) && has_entries(layout->output))
		return error_set(err, PENSTOCK_E_EXISTS,
			"cannot remove run '%s': it continued on another machine, and the later "
			"output of this machine is only in '%s'; copy the files that you need, "
			"then use --force",
			run->id, layout->output);
	if (run->last.unflushed)
		return error_set(err, PENSTOCK_E_EXISTS,
			"cannot remove run '%s': its output in '%s' is not uploaded; 'penstock "
			"flush %s' uploads it, --force removes it",
			run->id, layout->output, run->id);
	/* A lost run may have output that was not uploaded, unless `penstock flush` has recorded
	 * the end. */
	if (run->output && run->last.state == RUN_LOST && !run->last.ended_ns &&
		has_entries(layout->output))
		return error_set(err, PENSTOCK_E_EXISTS,
			"cannot remove run '%s': it was lost, and its output in '%s' may not be "
			"uploaded; the same 'penstock run' continues the run, 'penstock flush %s' "
			"uploads the output, --force removes both",
			run->id, layout->output, run->id);
	return 0;
}

/* Reads the last attempt again, now that the caller holds the run's lock: the run may have been
 * live before. */
static int read_end(struct records *records, struct records_run *run, struct penstock_error *err)
{
	int r;

	records_attempt_release(&run->last);
	r = records_last_attempt(records, run->id, &run->last, err);
	/* The lock that we hold makes a lost attempt look live. */
	if (r == 0 && run_state_is_live(run->last.state))
		run->last.state = RUN_LOST;
	return r;
}

static int remove_run(const struct cli *cli, struct records *records, const char *home,
	const char *word, struct penstock_error *err)
{
	_cleanup_(records_run_release) struct records_run run = {0};
	_cleanup_(run_layout_release) struct run_layout layout = {0};
	_cleanup_close_ int lock = -1, turn = -1;
	int r = records_find(records, word, &run, err);

	if (r == 0)
		r = run_layout_init(&layout, home, run.id, run.last.attempt, err);
	if (r == 0)
		r = fs_mkdirs(layout.dir, 0700, err); /* in case only the record is left */
	if (r < 0)
		return r;
	turn = cluster_hold(records, home, run.id, err);
	if (turn < 0 && (err->code == PENSTOCK_E_EXISTS || !cli_has(cli, "force")))
		return turn;
	penstock_error_release(err);
	r = supervisor_begin(layout.lock, run.id, &lock, err);
	if (r == 0)
		r = read_end(records, &run, err);
	/* If another 'penstock rm' has removed the run meanwhile, remove the directory that this
	 * process has created again. */
	if (r == -(int)PENSTOCK_E_NOT_FOUND && lock >= 0)
		fs_remove_tree(layout.dir, NULL);
	if (r < 0)
		return r;
	if (!cli_has(cli, "force"))
		r = check_flushed(&run, &layout, err);
	if (r < 0) {
		cli_fail(cli, err);
		return CLI_EXIT_OUTPUT;
	}
	/* Steps of a killed supervisor may still be running and writing to the directory. */
	r = strays_end(run.id, &layout, STRAYS_GRACE_MS, err);
	/* Remove the record last, so that the removal can be repeated after a crash. */
	if (r >= 0)
		r = fs_remove_tree(layout.dir, err);
	if (r == 0)
		r = records_remove(records, run.id, err);
	if (r == 0 && !cli_quiet(cli))
		printf("removed run %s%s%s\n", run.id, run.output ? "; its output stays in " : "",
			run.output ? run.output : "");
	return r;
}

static int run_rm(const struct cli *cli)
{
	static const char *const of_objects[] = {"recursive", "include", "exclude", "raw",
		"version-id", "bypass-governance-retention", "older-than", "dry-run", "json", NULL};
	static const char *const of_names[] = {
		"include", "exclude", "raw", "version-id", "bypass-governance-retention", NULL};
	static const char *const of_many[] = {
		"recursive", "include", "exclude", "older-than", NULL};
	static const char *const of_uploads[] = {"older-than", NULL};
	_cleanup_(records_freep) struct records *records = NULL;
	_cleanup_free_ char *home = NULL;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	size_t objects = 0;
	int code = 0;

	for (size_t i = 0; i < cli_n_operands(cli); i++)
		objects += location_is_object(cli_operand(cli, i));
	if (objects != cli_n_operands(cli) && (objects || cli_has(cli, "uploads")))
		return cli_misuse(cli, "cannot remove runs and objects in one command");
	/* Refuse options that would be ignored: without the filter, too much might be removed. */
	if (!objects)
		code = cli_refuse_options(cli, of_objects, "is for objects, not for runs");
	else if (cli_has(cli, "uploads"))
		code = cli_refuse_options(cli, of_names,
			"is for objects; --uploads selects by the beginning of the keys");
	else if (cli_has(cli, "version-id"))
		code = cli_refuse_options(
			cli, of_many, "selects several objects; --version-id removes one version");
	else
		code = cli_refuse_options(
			cli, of_uploads, "is for multipart uploads, with --uploads");
	if (code)
		return code;
	if (objects)
		return cli_has(cli, "uploads") ? uploads_end(cli) : rm_objects(cli);
	if (show_open(&records, &home, &err) < 0)
		return cli_fail(cli, &err);
	for (size_t i = 0; i < cli_n_operands(cli); i++) {
		int r = remove_run(cli, records, home, cli_operand(cli, i), &err);

		if (r < 0)
			r = cli_fail(cli, &err);
		if (r)
			code = r;
	}
	return code;
}

const struct command command_rm = {
	.name = "rm",
	.summary = "remove ended runs from this machine, or objects",
	.operands = "RUN...|s3://BUCKET/KEY...",
	.min_operands = 1,
	.max_operands = (unsigned)-1,
	.description =
		"Removes everything that this machine keeps of a run: its records, logs, inputs "
		"and outputs. Nothing in object storage is touched. Fails if output is not "
		"uploaded yet.\n"
		"\n"
		"RUN is an id, the beginning of one, or a name.\n"
		"\n"
		"With s3:// operands rm removes objects: one key, all keys that match a pattern "
		"with '*' and '?', or with --recursive a key and all below it. The "
		"patterns of --include and --exclude are matched against the part after the "
		"last '/' before the first wildcard. Objects of runs below .penstock/ (state, "
		"logs, copies of overwritten objects) are not removed, unless they are named, or "
		"with --force.\n"
		"\n"
		"In a bucket with versioning the versions of a removed object stay. --version-id "
		"removes one version permanently. If that version marks a deletion, the version "
		"before it becomes the current one again. A missing version is not an error. A "
		"version that Object Lock protects stays; --bypass-governance-retention removes it "
		"if its retention is in the mode GOVERNANCE and you have the right "
		"s3:BypassGovernanceRetention.",
	.options = OPTIONS(
		{0, "force", NULL,
			"Runs: remove output that is not uploaded, too, and runs of which Slurm "
			"cannot report the state. Objects: include the state of runs below "
			".penstock/"},
		{'r', "recursive", NULL,
			"Objects: also everything below an operand, which may be a bucket"},
		{0, "include", "PATTERN",
			"Objects: only those that match one of these patterns; may be repeated"},
		{0, "exclude", "PATTERN",
			"Objects: none that match one of these patterns; may be repeated"},
		{0, "raw", NULL,
			"Objects: an operand is one key, in which '*', '?' and a '/' at the end are "
			"ordinary characters"},
		{0, "version-id", "ID",
			"Objects: remove only this version of the operand, which is one key, as with "
			"--raw"},
		{0, "bypass-governance-retention", NULL,
			"Objects: with --version-id, also remove a version that is protected by a "
			"retention in the mode GOVERNANCE"},
		{0, "uploads", NULL,
			"Abort unfinished multipart uploads of keys that begin with the operand's; "
			"objects stay"},
		{0, "older-than", "AGE",
			"Uploads: only those at least this old, such as 12h or 7d; default: 1d, as "
			"newer ones may be in progress"},
		{'n', "dry-run", NULL, "Objects: only list the objects that would be removed"},
		{0, "json", NULL, "Objects: print a list of the removed objects"}, REMOTE_OPTIONS),
	.examples = EXAMPLES(
		{"penstock rm cifar10",
			"Remove the records and local directories of the run named cifar10"},
		{"penstock rm 's3://cifar10/tmp/*'", "Remove the objects that match"},
		{"penstock rm --uploads --older-than 7d s3://cifar10/",
			"Free the space of interrupted uploads"},
		{"penstock rm -r --exclude '*.pth' s3://cifar10/runs/",
			"Remove everything except checkpoints"}),
	.exits = EXITS({"66", "There is no such run or object"},
		{"69", "The run is live or queued, or the store or Slurm does not respond"},
		{"73", "The run has output that is not uploaded"},
		{"77", "The store denies access to at least some of the objects"}),
	.run = run_rm,
};
