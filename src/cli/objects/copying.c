#include "cli/objects/copying.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/log.h"
#include "records/records.h"

int copying_options(struct copying *v, const struct cli *cli)
{
	static const char *const resumes[] = {"resume", "no-resume", NULL};
	struct copy_options *o = &v->options;
	int64_t parallel;
	int r = cli_refuse_together(cli, resumes);

	if (r == 0)
		r = remote_put_options(cli, &o->put);
	if (r == 0)
		r = remote_limit_rate(cli);
	if (r)
		return r;
	remote_many_requests();
	v->cli = cli;
	o->dry_run = cli_has(cli, "dry-run");
	o->preserve = cli_has(cli, "preserve");
	o->force = cli_has(cli, "force");
	o->filter = (struct path_filter){cli_values(cli, "include"), cli_values(cli, "exclude")};
	o->skip_links = cli_has(cli, "no-follow-symlinks");
	if (o->preserve && o->put.metadata &&
		(strlist_get(o->put.metadata, "mtime") || strlist_get(o->put.metadata, "mode")))
		return cli_misuse(
			cli, "--preserve sets mtime and mode; leave them out of --metadata");
	if (!cli_number(cli, "parallel", 1, LIMIT_HTTP_CONNECTIONS, 0, &parallel))
		return CLI_EXIT_USAGE;
	o->parallel = parallel ? (unsigned)parallel : remote_limit_parallel();
	o->resume = !cli_has(cli, "no-resume");
	report_begin(&v->report, cli, o->dry_run);
	o->report = report_callbacks(&v->report);
	return 0;
}

static int open_stores(struct copying *v, const struct place *from, const struct place *to,
	struct penstock_error *err)
{
	/* The sources are in another store if options name one, or if only one side is Google's. */
	bool elsewhere = remote_has_source(v->cli) || (from && to && from->google != to->google);
	struct copy_options *o = &v->options;
	int r;

	if (elsewhere && !from)
		return error_set(err, PENSTOCK_E_INVALID,
			"--source-endpoint-url and similar options need an s3:// source");
	r = remote_open_engine(&v->remote, err);
	if (r == 0 && (to || (from && !elsewhere)))
		r = remote_open(&v->remote, v->cli, err);
	if (r == 0 && elsewhere)
		r = remote_open_source(&v->source, &v->remote, v->cli, from->google, err);
	if (r < 0)
		return r;
	o->to = to ? v->remote.client : NULL;
	o->from = !from ? NULL : elsewhere ? v->source.client : v->remote.client;
	o->same_store = from && to &&
			(o->from == o->to ||
				copy_is_same_store(object_client_settings(o->from)->endpoint_url,
					object_client_settings(o->to)->endpoint_url));
	o->engine = v->remote.engine;
	o->twin = v->remote.twin;
	o->cancel = v->remote.cancel;
	return 0;
}

int copying_open(struct copying *v, const struct place *from, const struct place *to,
	struct penstock_error *err)
{
	bool resume = v->options.resume, delta = cli_has(v->cli, "delta");
	_cleanup_free_ char *home = NULL;
	int r = open_stores(v, from && place_is_object(from) ? from : NULL,
		place_is_object(to) ? to : NULL, err);

	/* Keep the progress of uploads in the home. Files next to the source would be uploaded,
	 * too. */
	if (r == 0 && (delta || cli_has(v->cli, "resume")))
		r = records_home(&home, err);
	else if (r == 0 && resume)
		resume = records_home(&home, NULL) == 0;
	if (r == 0 && resume && !(v->resume_dir = path_join(home, "transfers")))
		r = error_memory(err);
	if (r == 0 && delta && !(v->delta_dir = path_join(home, "sent")))
		r = error_memory(err);
	v->options.put.resume_dir = v->resume_dir;
	v->options.put.delta_dir = v->delta_dir;
	return r == 0 ? copy_begin(&v->copy, &v->options, err) : r;
}

static void close_all(struct copying *v)
{
	copy_end(&v->copy);
	free(v->resume_dir);
	free(v->delta_dir);
	remote_release(&v->source);
	remote_release(&v->remote);
}

int copying_refuse(struct copying *v, struct penstock_error *err)
{
	int code = remote_fail(v->cli, err);

	progress_free(v->report.progress);
	close_all(v);
	return code;
}

int copying_end(struct copying *v, int r, struct penstock_error *err)
{
	if (r < 0) {
		/* Wait for the items in flight: each completes, or leaves nothing. */
		copy_finish(&v->copy, NULL);
		report_error(&v->report, err);
	}
	close_all(v);
	return report_end(&v->report);
}

void copying_warn_spared(const struct copying *v, const char *verb)
{
	uint64_t n = v->copy.spared;

	if (n)
		log_warn("left %llu object%s below .penstock/, the state of runs; --force %s "
			 "them, too",
			(unsigned long long)n, n == 1 ? "" : "s", verb);
}
