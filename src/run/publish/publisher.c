#include "run/publish/publisher.h"

#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/str.h"
#include "records/layout.h"
#include "run/owner/lease.h"
#include "run/publish/keeper.h"
#include "run/publish/log.h"
#include "sync/replaced.h"
#include "sync/sync.h"
#include "transfer/objects.h"

/* Users watch a log from other machines, so upload it often; samples of the usage are rare. */
enum { LOG_INTERVAL_MS = 2000, USAGE_INTERVAL_MS = 5 * 60 * 1000 };

void publisher_init(struct publisher *p, struct attempt *attempt, struct reaction *reaction,
	struct stores *stores)
{
	*p = (struct publisher){.attempt = attempt, .reaction = reaction, .stores = stores};
	run_checkpoints_init(&p->checkpoints);
}

void publisher_release(struct publisher *p)
{
	run_checkpoints_release(&p->checkpoints);
}

int publisher_open(struct publisher *p, struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error e = PENSTOCK_ERROR_INIT;
	const struct workflow_output *output = &p->attempt->workflow->output;
	struct object_client *client;
	int r;

	run_state_prefix(p->attempt->id, p->state_prefix);
	if (output->kind != WORKFLOW_S3)
		return 0;
	r = stores_open(p->stores, p->attempt->workflow, &output->s3, &p->store, err);
	if (r < 0)
		return r;
	client = p->store->client;
	r = bucket_head(client, p->store->bucket, &e);
	if (r == -(int)PENSTOCK_E_NOT_FOUND && !output->s3.embedded &&
		!output->s3.create_bucket.value) {
		const char *scheme = object_client_scheme(client), *bucket = p->store->bucket;

		return error_set(err, PENSTOCK_E_NOT_FOUND,
			"cannot publish to '%s://%s': there is no such bucket; check its name, "
			"make it with 'penstock mb %s://%s', or set `createBucket: true` in the "
			"workflow's output",
			scheme, bucket, scheme, bucket);
	}
	if (r == -(int)PENSTOCK_E_NOT_FOUND) {
		r = bucket_create(client, p->store->bucket, err);
		if (r == 0)
			run_say(&p->attempt->voice, RUN_EVENT_MESSAGE, "created the bucket %s://%s",
				object_client_scheme(client), p->store->bucket);
		return r;
	}
	/* Keys that may write objects but not read the bucket are common. The first write shows if
	 * these keys may write. */
	if (r == -(int)PENSTOCK_E_PERMISSION && e.http_status == 403)
		return 0;
	return r < 0 ? error_move(err, &e) : 0;
}

static void on_sync_event(
	void *cookie, enum sync_event event, const char *path, uint64_t bytes, const char *detail)
{
	struct publisher *p = cookie;
	const struct run_voice *voice = &p->attempt->voice;
	char size[STR_SIZE_SIZE];

	switch (event) {
	case SYNC_PUBLISHED:
		run_checkpoints_published(p, path);
		break;
	case SYNC_PARTIAL:
		run_say(voice, RUN_EVENT_WARNING,
			"'%s' may be incomplete: it is kept as '%s', and the last good object "
			"stays",
			path, detail);
		break;
	case SYNC_KEPT:
		str_format_size(bytes, size);
		if (path) {
			atomic_fetch_add(&p->kept, 1);
			atomic_fetch_add(&p->kept_bytes, bytes);
			log_debug("%s already existed: the old object (%s) is kept as %s", path,
				size, detail);
		} else if (!p->attempt->continuing) {
			run_say(voice, RUN_EVENT_MESSAGE,
				"started from scratch: the output of earlier attempts (%s, %s) "
				"stays in the bucket, and is kept when it is overwritten%s",
				detail, size,
				p->attempt->workflow->checkpoints.keeps
					? "; its checkpoints count for `checkpoints.keep` once "
					  "this attempt has succeeded"
					: "");
		}
		break;
	case SYNC_WARNING:
		run_event(voice, RUN_EVENT_WARNING, detail, 0, 0);
		break;
	case SYNC_LOST:
		run_say(voice, RUN_EVENT_WARNING,
			"another run has taken over this output; nothing more is published");
		break;
	default:
		log_debug("%s: %s", path ? path : "", detail ? detail : "");
		break;
	}
}

void publisher_sync_options(struct publisher *p, const char *journal, struct sync_options *options)
{
	const struct workflow *workflow = p->attempt->workflow;
	const struct run_layout *layout = &p->attempt->layout;

	*options = (struct sync_options){
		.dir = layout->output,
		.private_dir = layout->tmp,
		.client = p->store->client,
		.bucket = p->store->bucket,
		.prefix = p->store->prefix,
		.state_prefix = p->state_prefix,
		.run_id = p->attempt->id,
		.attempt = p->attempt->number,
		.began = run_layout_read_attempt(layout->began),
		.journal_path = journal,
		.delete_sync = workflow->output.s3.delete_sync.value,
		.continuous = workflow->continuous_output_sync.value,
		.on_event = on_sync_event,
		.is_whole = checkpoint_is_single,
		.cookie = p,
		.cancel = &p->reaction->interrupts.cancel,
	};
}

struct restore {
	struct sync_options options;
	struct sync_restored restored;
};

static int restore(void *cookie, struct penstock_error *err)
{
	struct restore *restore = cookie;

	return sync_restore(&restore->options, &restore->restored, err);
}

int publisher_start(struct publisher *p, struct penstock_error *err)
{
	const struct run_layout *layout = &p->attempt->layout;
	_cleanup_free_ char *journal = path_join(layout->state, "sync");
	struct restore all = {0};
	int r;

	if (!p->store)
		return 0;
	if (!journal)
		return error_memory(err);
	publisher_sync_options(p, journal, &all.options);
	if (!p->attempt->continuing)
		all.options.began = INT_MAX;
	if (p->attempt->continuing) {
		r = lease_perform(p->lease, &p->reaction->interrupts.cancel, restore, &all, err);
		if (r < 0)
			return error_prefix(err, "cannot restore the output of the last attempt");
		run_say(&p->attempt->voice, RUN_EVENT_MESSAGE,
			"restored the output: %" PRIu64 " files kept, %" PRIu64 " fetched",
			all.restored.files_kept, all.restored.files_fetched);
	}
	unlink(layout->superseded);
	return sync_start(&p->sync, &all.options, err);
}

static char *key_of_log(const struct publisher *p, const char *ending)
{
	return str_printf(
		"%s%s/log/%d%s", p->store->prefix, p->state_prefix, p->attempt->number, ending);
}

int publisher_start_log(struct publisher *p, struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error e = PENSTOCK_ERROR_INIT;
	int r = 0;

	if (!p->store)
		return 0;
	if (p->attempt->workflow->enable_logging.value)
		r = log_upload_start(&p->log,
			&(struct log_upload_target){.client = p->store->client,
				.bucket = p->store->bucket,
				.key = key_of_log(p, ""),
				.path = strdup(p->attempt->layout.log),
				.interval_ms = LOG_INTERVAL_MS,
				.ungated = true,
				.warns = true},
			err);
	if (r < 0)
		return r;
	if (log_upload_start(&p->usage,
		    &(struct log_upload_target){.client = p->store->client,
			    .bucket = p->store->bucket,
			    .key = key_of_log(p, ".usage"),
			    .path = run_log_usage(p->attempt->layout.log),
			    .interval_ms = USAGE_INTERVAL_MS},
		    &e) < 0)
		log_warn("cannot upload the usage of the steps: %s", e.message);
	return 0;
}

int publisher_finish_log(struct publisher *p, struct penstock_error *err)
{
	const atomic_int *cancel = &p->reaction->interrupts.cancel;
	_cleanup_error_ struct penstock_error e = PENSTOCK_ERROR_INIT;
	int r = log_upload_finish(take_pointer(p->log), cancel, err);

	/* A failure here is only a warning: the output is complete without the usage. */
	if (log_upload_finish(take_pointer(p->usage), cancel, &e) < 0 && r == 0 && !p->fenced &&
		e.code != PENSTOCK_E_CANCELLED)
		log_warn("cannot upload the usage of the steps: %s", e.message);
	return r;
}

bool publisher_sends_http(const struct publisher *p)
{
	return p->attempt->workflow->output.kind == WORKFLOW_HTTP && p->attempt->steps_began &&
	       p->attempt->end.state != RUN_PREEMPTED;
}

/* Reports all objects, which may be thousands, in one line. */
static void report_kept(struct publisher *p)
{
	unsigned long long n = atomic_exchange(&p->kept, 0);
	char size[STR_SIZE_SIZE];

	if (!n)
		return;
	str_format_size(atomic_exchange(&p->kept_bytes, 0), size);
	run_say(&p->attempt->voice, RUN_EVENT_MESSAGE,
		"%llu object%s (%s) kept before being overwritten; see 'penstock show %s'", n,
		n == 1 ? "" : "s", size, p->attempt->id);
}

void publisher_bound_replaced(struct publisher *p)
{
	const struct workflow_replaced *w = &p->attempt->workflow->replaced;
	const struct replaced_bound bound = {
		.keep = (uint64_t)w->keep.value,
		.before_ns = w->age.given ? clock_wall_ns() - w->age.value * NS_PER_MS : INT64_MIN,
	};
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct replaced_sum removed = {0};
	char size[STR_SIZE_SIZE];
	int r;

	/* Skip the cleanup if the machine is being preempted. */
	if (!p->sync || p->attempt->end.state == RUN_PREEMPTED)
		return;
	r = sync_bound_replaced(p->sync, &bound, &removed, &err);
	str_format_size(removed.bytes, size);
	if (removed.copies)
		run_say(&p->attempt->voice, RUN_EVENT_MESSAGE,
			"removed %" PRIu64
			" cop%s of replaced objects (%s) beyond `replaced.keep`%s",
			removed.copies, removed.copies == 1 ? "y" : "ies", size,
			w->age.given ? " and `replaced.age`" : "");
	if (r < 0)
		run_say(&p->attempt->voice, RUN_EVENT_WARNING,
			"cannot remove old copies of replaced objects: %s; 'penstock prune %s' "
			"removes them",
			err.message ? err.message : penstock_code_name(err.code), p->attempt->id);
}

int publisher_flush(struct publisher *p, struct penstock_error *err)
{
	int r = 0;

	if (p->fenced)
		r = 0; /* the output stays here */
	else if (lease_is_lost(p->lease))
		r = error_set(err, PENSTOCK_E_PRECONDITION, "%s", lease_owner_now(p->lease));
	else if (p->sync)
		r = publisher_flush_sync(p, err);
	else if (publisher_sends_http(p))
		r = publisher_flush_http(p, err);
	if (run_checkpoints_end(p) && r == 0 && p->sync)
		r = publisher_flush_sync(p, err);
	if (r == 0 && p->attempt->steps_began && !p->fenced)
		r = run_checkpoints_settle(
			p, !p->attempt->end.decided || p->attempt->end.state == RUN_SUCCEEDED, err);
	run_checkpoints_report(p);
	if (r == 0 && !p->fenced)
		publisher_bound_replaced(p);
	/* If the store did not accept the output, later uploads must not wait for the store. */
	if (r < 0 && err && error_is_retryable(err))
		interrupts_give_up(&p->reaction->interrupts);
	report_kept(p);
	return r;
}

void publisher_fence(struct publisher *p)
{
	run_checkpoints_end(p); /* the thread of checkpoints uses the sync */
	p->fenced = true;
	sync_free(take_pointer(p->sync));
}

void publisher_record(struct publisher *p)
{
	struct sync_status status;
	struct records_sync sync;

	if (!p->sync)
		return;
	sync_get_status(p->sync, &status);
	publisher_report_store(p, &status);
	sync = (struct records_sync){
		.lag_ms = status.lag_ms,
		.bytes_waiting = status.bytes_waiting,
		.files_published = status.files_published,
		.bytes_published = status.bytes_published,
		.last_error = status.last_error,
	};
	records_set_sync(p->attempt->records, p->attempt->id, p->attempt->number, &sync, NULL);
	lease_set_sync(p->lease, &sync);
}
