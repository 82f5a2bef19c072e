/* `store`: maintains a store of `penstock serve`. */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <fcntl.h>
#include <jansson.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/str.h"
#include "cli/commands.h"
#include "cli/print/progress.h"
#include "cli/print/util.h"
#include "records/records.h"
#include "store/upkeep/upkeep.h"

static atomic_int interrupted;

static void on_signal(int number)
{
	(void)number;
	atomic_store(&interrupted, 1);
}

/* The first signal ends a long action cleanly; the same signal again kills the process. */
static void catch_signals(void)
{
	struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
}

static int root_of(const struct cli *cli, char **out, struct penstock_error *err)
{
	_cleanup_free_ char *home = NULL;
	int r = 0;

	if (cli_has(cli, "root"))
		*out = strdup(cli_value(cli, "root"));
	else if ((r = records_home(&home, err)) == 0)
		*out = path_join(home, "store");
	return r == 0 && !*out ? error_memory(err) : r;
}

/* --- stat ------------------------------------------------------------------------------------ */

static json_t *bucket_json(const struct upkeep_bucket *b)
{
	static const char *const versioning[] = {"off", "enabled", "suspended"};

	return json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "name", b->name,
		"versioning", versioning[b->versioning], "objects", (json_int_t)b->objects, "bytes",
		(json_int_t)b->bytes, "versions", (json_int_t)b->versions, "version_bytes",
		(json_int_t)b->version_bytes, "markers", (json_int_t)b->markers, "uploads",
		(json_int_t)b->uploads, "upload_bytes", (json_int_t)b->upload_bytes);
}

/* Returns the age of the oldest pending version in seconds. */
static double age_of(const struct upkeep_lag *lag)
{
	int64_t ns = clock_wall_ns() - lag->oldest_ns;

	return ns > 0 ? (double)ns / NS_PER_S : 0;
}

static json_t *lag_json(const struct upkeep_lag *lag)
{
	return json_pack("{s:s, s:s, s:I, s:I, s:f}", "bucket", lag->bucket, "target", lag->target,
		"versions", (json_int_t)lag->versions, "bytes", (json_int_t)lag->bytes,
		"oldest_seconds", age_of(lag));
}

static int stat_json(const struct upkeep_stat *s)
{
	json_t *buckets = json_array(), *lags = json_array();

	for (size_t i = 0; i < s->n_lags; i++)
		json_array_append_new(lags, lag_json(&s->lags[i]));
	for (size_t i = 0; i < s->n_buckets; i++)
		json_array_append_new(buckets, bucket_json(&s->buckets[i]));
	return show_json(json_pack("{s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:s}",
		"buckets", buckets, "replication", lags, "objects", (json_int_t)s->total.objects,
		"files", (json_int_t)s->files, "file_bytes", (json_int_t)s->file_bytes,
		"database_bytes", (json_int_t)s->database_bytes, "log_bytes",
		(json_int_t)s->log_bytes, "free_bytes", (json_int_t)s->free_bytes, "format",
		(json_int_t)s->format, "served", (int)s->served, "durability",
		s->relaxed ? "relaxed" : "full"));
}

static void add_bucket(struct grid *grid, const struct upkeep_bucket *b, const char *name)
{
	char size[STR_SIZE_SIZE], old[STR_SIZE_SIZE];

	str_format_size(b->bytes, size);
	str_format_size(b->version_bytes, old);
	grid_add(grid, name);
	grid_addf(grid, "%llu", (unsigned long long)b->objects);
	grid_add(grid, size);
	grid_addf(grid, "%llu", (unsigned long long)b->versions);
	grid_add(grid, old);
	grid_addf(grid, "%llu", (unsigned long long)b->markers);
	grid_addf(grid, "%llu", (unsigned long long)b->uploads);
}

static void stat_text(const struct upkeep_stat *s)
{
	struct grid grid = grid_new(
		"BUCKET", "OBJECTS", "SIZE", "OLDER VERSIONS", "SIZE", "MARKERS", "UPLOADS");
	char files[STR_SIZE_SIZE], database[STR_SIZE_SIZE], log[STR_SIZE_SIZE], free[STR_SIZE_SIZE];

	for (size_t i = 0; i < s->n_buckets; i++)
		add_bucket(&grid, &s->buckets[i], s->buckets[i].name);
	add_bucket(&grid, &s->total, "all");
	grid_print(&grid);
	str_format_size(s->file_bytes, files);
	str_format_size(s->database_bytes, database);
	str_format_size(s->log_bytes, log);
	str_format_size(s->free_bytes, free);
	printf("\n%llu data files with %s, database %s, its log %s, free %s; format %lld%s%s\n",
		(unsigned long long)s->files, files, database, log, free, (long long)s->format,
		s->served ? "; the store is being served" : "",
		s->relaxed ? "; relaxed durability: a power failure loses the last changes" : "");
}

static void lag_text(const struct upkeep_stat *s)
{
	struct grid grid = grid_new("BUCKET", "REPLICATED TO", "WAITING", "SIZE", "OLDEST");
	char size[STR_SIZE_SIZE];

	for (size_t i = 0; i < s->n_lags; i++) {
		const struct upkeep_lag *lag = &s->lags[i];

		str_format_size(lag->bytes, size);
		grid_add(&grid, lag->bucket);
		grid_add(&grid, lag->target);
		grid_addf(&grid, "%llu", (unsigned long long)lag->versions);
		grid_add(&grid, size);
		grid_addf(&grid, "%.0f s", age_of(lag));
	}
	printf("\n");
	grid_print(&grid);
}

static int do_stat(const struct cli *cli, struct store *store, struct penstock_error *err)
{
	struct upkeep_stat stat;
	int r = upkeep_stat(store, &stat, err);

	if (r == 0 && cli_has(cli, "json"))
		r = stat_json(&stat);
	else if (r == 0)
		stat_text(&stat);
	if (r == 0 && stat.n_lags && !cli_has(cli, "json"))
		lag_text(&stat);
	free(stat.buckets);
	free(stat.lags);
	return r;
}

/* --- check, repair --------------------------------------------------------------------------- */

static void print_problem(
	void *cookie, enum upkeep_problem problem, bool repairable, const char *text)
{
	(void)cookie;
	printf("%s: ", upkeep_problem_name(problem));
	show_name(stdout, text);
	printf("%s\n", repairable ? " (repair can fix it)" : "");
}

static void print_repair(
	void *cookie, enum upkeep_problem problem, bool repairable, const char *text)
{
	(void)cookie;
	printf("%s: ", upkeep_problem_name(problem));
	show_name(stdout, text);
	printf("%s\n", repairable ? " (repaired)" : "");
}

static int end_report(const struct cli *cli, const struct upkeep_report *report, uint64_t left,
	struct penstock_error *err)
{
	if (!cli_quiet(cli))
		fprintf(stderr, "checked %llu objects, versions and parts, %llu data files%s\n",
			(unsigned long long)report->objects, (unsigned long long)report->files,
			report->served
				? "; surplus files are not searched while the store is served"
				: "");
	return left ? error_set(err, PENSTOCK_E_CORRUPT, "the store has %llu problems",
			      (unsigned long long)left)
		    : 0;
}

static int do_check(const struct cli *cli, struct store *store, struct penstock_error *err)
{
	struct upkeep_report report = {.problem = print_problem};
	int r = upkeep_check(store, &report, err);

	return r < 0 ? r : end_report(cli, &report, report.problems, err);
}

static int do_repair(const struct cli *cli, struct store *store, struct penstock_error *err)
{
	struct upkeep_report report = {.problem = print_repair};
	int r = upkeep_repair(store, &report, err);

	return r < 0 ? r : end_report(cli, &report, report.problems - report.repairable, err);
}

/* --- scrub ----------------------------------------------------------------------------------- */

static void print_damaged(void *cookie, const char *text)
{
	progress_suspend(cookie);
	show_name(stdout, text);
	printf("\n");
	progress_resume(cookie);
}

static void show_scrub(void *cookie, const struct upkeep_progress *done)
{
	progress_update(cookie, "scrub", done->bytes,
		done->all_bytes > done->bytes ? done->all_bytes : done->bytes + 1);
}

static int do_scrub(const struct cli *cli, struct store *store, struct penstock_error *err)
{
	struct progress *progress = progress_new(cli_quiet(cli));
	struct upkeep_scrub scrub = {.restart = cli_has(cli, "restart"),
		.stop = &interrupted,
		.damaged = print_damaged,
		.progress = show_scrub,
		.cookie = progress};
	const char *rate = cli_value(cli, "rate");
	char size[STR_SIZE_SIZE];
	int r;

	if (rate && !str_to_size(rate, &scrub.bytes_per_second)) {
		progress_free(progress);
		return cli_misuse(cli, "invalid --rate '%s': expected a size such as 50M", rate);
	}
	r = upkeep_scrub(store, &scrub, err);
	if (r == 0 && !scrub.interrupted)
		progress_complete(progress);
	progress_free(progress);
	if (r < 0)
		return r;
	str_format_size(scrub.done.bytes, size);
	if (!cli_quiet(cli))
		fprintf(stderr,
			"%s%llu objects, versions and parts with %s read, %llu without a checksum%s\n",
			scrub.resumed ? "resumed; " : "", (unsigned long long)scrub.done.objects,
			size, (unsigned long long)scrub.done.unverified,
			scrub.interrupted ? "; interrupted, the next scrub continues here" : "");
	if (scrub.done.damaged)
		return error_set(err, PENSTOCK_E_CORRUPT, "%llu objects are damaged",
			(unsigned long long)scrub.done.damaged);
	return scrub.interrupted ? error_set(err, PENSTOCK_E_CANCELLED, "interrupted") : 0;
}

/* --- copies ---------------------------------------------------------------------------------- */

static int print_copied(const struct cli *cli, const char *what, const struct upkeep_copied *copied)
{
	char size[STR_SIZE_SIZE];

	str_format_size(copied->bytes, size);
	if (!cli_quiet(cli))
		fprintf(stderr, "%s %llu buckets with %llu objects and versions; %s copied\n", what,
			(unsigned long long)copied->buckets, (unsigned long long)copied->objects,
			size);
	if (copied->accounts && !cli_quiet(cli))
		fprintf(stderr, "%s %llu accounts, users, groups, roles and policies\n", what,
			(unsigned long long)copied->accounts);
	return 0;
}

static int do_backup(const struct cli *cli, struct store *store, struct penstock_error *err)
{
	struct upkeep_copied copied;
	int r = upkeep_backup(store, cli_operand(cli, 1), &interrupted, &copied, err);

	return r < 0 ? r : print_copied(cli, "saved", &copied);
}

static int do_export(const struct cli *cli, struct store *store, struct penstock_error *err)
{
	const char *path = cli_operand(cli, 1);
	size_t n = cli_n_operands(cli);
	_cleanup_free_ const char **buckets = calloc(n, sizeof(*buckets));
	_cleanup_close_ int fd = -1;
	struct upkeep_copied copied;
	int r;

	if (!buckets)
		return error_memory(err);
	for (size_t i = 2; i < n; i++)
		buckets[i - 2] = cli_operand(cli, i);
	if (strcmp(path, "-") == 0)
		fd = dup(STDOUT_FILENO);
	else
		fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return error_errno(err, errno, "cannot create '%s'", path);
	r = upkeep_export(store,
		&(struct upkeep_archive){.fd = fd,
			.buckets = buckets,
			.accounts = cli_has(cli, "with-accounts"),
			.stop = &interrupted},
		&copied, err);
	if (r == 0 && strcmp(path, "-") != 0 && fsync(fd) < 0)
		r = error_errno(err, errno, "cannot sync '%s'", path);
	if (r < 0 && strcmp(path, "-") != 0)
		unlink(path);
	if (r < 0)
		return r;
	print_copied(cli, "exported", &copied);
	return copied.left_out
		       ? error_set(err, PENSTOCK_E_UNSUPPORTED,
				 "cannot export %llu objects and versions: they are encrypted with "
				 "keys of clients; the archive has all others",
				 (unsigned long long)copied.left_out)
		       : 0;
}

static int do_import(const struct cli *cli, struct store *store, struct penstock_error *err)
{
	const char *path = cli_operand(cli, 1);
	_cleanup_close_ int fd = strcmp(path, "-") == 0 ? dup(STDIN_FILENO)
							: open(path, O_RDONLY | O_CLOEXEC);
	struct upkeep_copied copied;
	int r;

	if (fd < 0)
		return error_errno(err, errno, "cannot open '%s'", path);
	r = upkeep_import(store,
		&(struct upkeep_archive){
			.fd = fd, .accounts = cli_has(cli, "with-accounts"), .stop = &interrupted},
		&copied, err);
	if (r == 0 && copied.left_accounts && !cli_quiet(cli))
		fprintf(stderr, "the accounts of the archive are left out; --with-accounts imports "
				"them\n");
	return r < 0 ? r : print_copied(cli, "imported", &copied);
}

/* --- the verb -------------------------------------------------------------------------------- */

static const struct action {
	const char *name;
	size_t min, max; /* operands after the name */
	struct store_options options;
	int (*run)(const struct cli *cli, struct store *store, struct penstock_error *err);
} actions[] = {
	{"stat", 0, 0, {.guest = true}, do_stat},
	{"check", 0, 0, {.guest = true}, do_check},
	{"repair", 0, 0, {.keep_orphans = true}, do_repair},
	{"scrub", 0, 0, {.guest = true}, do_scrub},
	{"backup", 1, 1, {.guest = true}, do_backup},
	{"export", 1, SIZE_MAX, {.guest = true}, do_export},
	/* An import needs no sync of each change: the buckets appear only when the whole import is
	 * on the disk. */
	{"import", 1, 1, {.relaxed = true}, do_import},
};

static const struct action *find_action(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(actions); i++)
		if (strcmp(actions[i].name, name) == 0)
			return &actions[i];
	return NULL;
}

/* Fails for a repair if the directory is not a store, because a repair would turn it into a
 * store. */
static int check_root(const struct action *action, const char *root, struct penstock_error *err)
{
	_cleanup_free_ char *path = path_join(root, "meta.db");

	if (!path)
		return error_memory(err);
	if (action->run == do_repair && access(path, F_OK) < 0)
		return error_errno(err, errno, "cannot open '%s'", path);
	return 0;
}

static int run_store(const struct cli *cli)
{
	const struct action *action = find_action(cli_operand(cli, 0));
	size_t n = cli_n_operands(cli) - 1;
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_free_ char *root = NULL;
	struct store_options options;
	struct store *store = NULL;
	int r;

	if (!action)
		return cli_misuse(cli,
			"'%s' is not one of stat, check, repair, scrub, backup, export and import",
			cli_operand(cli, 0));
	if (n < action->min || n > action->max)
		return cli_misuse(cli, "%s", n ? "too many operands" : "an operand is missing");
	r = root_of(cli, &root, &err);
	if (r == 0)
		r = check_root(action, root, &err);
	options = action->options;
	options.root = root;
	options.master_key = cli_value(cli, "master-key");
	if (!options.master_key)
		options.master_key = str_env("PENSTOCK_MASTER_KEY_FILE");
	catch_signals();
	if (r == 0)
		r = store_open(&store, &options, &err);
	if (r == 0)
		r = action->run(cli, store, &err);
	store_close(store);
	if (r < 0) {
		bool damaged = err.code == PENSTOCK_E_CORRUPT;
		int code = cli_fail(cli, &err);

		return damaged ? CLI_EXIT_INPUT : code;
	}
	return r;
}

const struct command command_store = {
	.name = "store",
	.summary = "check, repair, copy and measure an object store",
	.operands = "ACTION [PATH] [BUCKET...]",
	.min_operands = 1,
	.max_operands = (unsigned)-1,
	.description =
		"Maintains a store of 'penstock serve': the store of this home, or the one in DIR. "
		"ACTION is stat, check, scrub, repair, backup, export or import.\n\n"
		"stat prints the number and size of objects, older versions, unfinished uploads "
		"and files. check compares the database with itself and with the data files, "
		"without reading these; each problem is a line. scrub reads every object from the "
		"disk and compares it with its checksums; an interrupted scrub resumes. repair "
		"fixes the problems that check marks with 'repair can fix it'. repair deletes "
		"nothing: data files and small bodies that no object needs are moved to DIR/aside.\n\n"
		"backup PATH makes the directory PATH a store with the state of this instant, "
		"which 'penstock serve --root PATH' serves. If PATH has an earlier backup, only "
		"new data files are copied; a store, or a backup that was served, is refused. A "
		"master key outside of DIR is not copied. export PATH writes all buckets, or those "
		"that are named, with older versions and configurations as a tar archive, and "
		"import PATH adds the buckets of one; both verify every object. PATH may be '-'. "
		"With --with-accounts accounts, users, groups, roles and policies are in the "
		"archive, or imported, too; the archive then has their secret keys. Unfinished "
		"uploads, and objects that are encrypted with the key of a client, are in backups "
		"only; if there are such objects, export writes the others and exits with 69.\n\n"
		"stat, check, scrub, backup and export also work while the store is served: they "
		"see one state, whose data files are kept meanwhile. repair and import need the "
		"store for themselves.",
	.options = OPTIONS(
		{0, "root", "DIR",
			"Directory of the store. Default: the embedded store of this home"},
		{0, "master-key", "FILE",
			"File of the master key of encrypted objects. Default: "
			"$PENSTOCK_MASTER_KEY_FILE, else DIR/master-key"},
		{0, "json", NULL, "stat: print an object"},
		{0, "rate", "SIZE", "scrub: read at most this many bytes in a second, such as 50M"},
		{0, "with-accounts", NULL,
			"export, import: also accounts and users, with their secret keys"},
		{0, "restart", NULL, "scrub: start over, even if the last scrub was interrupted"}),
	.examples = EXAMPLES({"penstock store stat --root /srv/store", "Print what the store has"},
		{"penstock store scrub --root /srv/store --rate 50M",
			"Verify every object, from a timer"},
		{"penstock store backup --root /srv/store /mnt/backup",
			"Bring a backup up to date while the store is served"},
		{"penstock store export --root /srv/store - data | zstd > data.tar.zst",
			"Keep one bucket as an archive"}),
	.exits = EXITS({"66", "DIR is not a store, an archive is damaged, or a problem was found"},
		{"69", "Another process serves DIR, a bucket of the archive exists, or the "
		       "archive lacks objects with keys of clients"},
		{"130", "interrupted"}),
	.run = run_store,
};
