/*
 * The same run on another machine: whether what this home knows of it is the last word, what of its storage is of
 * any use then, and what the next machine needs to go on by itself.
 */
#include "run/run_internal.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/str.h"
#include "records/records.h"
#include "records/supervisor.h"
#include "run/lease.h"
#include "run/live.h"
#include "run/strays.h"
#include "transfer/objects.h"
#include "base/banned.h"

/* What follows from the state beside the output. */
struct verdict {
	struct run *run;
	bool theirs;	 /* the last attempt was another home's, or is not in these records */
	bool continuing; /* whatever the records here say */
};

/* 0: none is there. */
static int read_number(const char *path)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(16);
	uint64_t attempt;

	if (fs_read(path, &text, NULL) < 0 || !str_to_u64(buf_str(&text), 1, INT_MAX, &attempt))
		return 0;
	return (int)attempt;
}

int run_began_with(const struct run *run)
{
	return read_number(run->layout.began);
}

bool run_is_superseded(const struct run *run)
{
	return access(run->layout.superseded, F_OK) == 0;
}

/*
 * Before the state beside the output says that the run is ours: an attempt that ends before it has restored what is there
 * leaves here what is older, and no flush may take that for its own.
 */
static int note_superseded(
	const struct run *run, const struct lease_found *found, struct penstock_error *err)
{
	char text[128];
	int n = snprintf(text, sizeof(text), "attempt %d on %s", found->attempt, found->host);

	return run_is_superseded(run)
		       ? 0
		       : fs_write_atomic(run->layout.superseded, text, (size_t)n, 0600, err);
}

static int note_number(const char *path, int attempt, struct penstock_error *err)
{
	char text[16];
	int n = snprintf(text, sizeof(text), "%d", attempt);

	return fs_write_atomic(path, text, (size_t)n, 0600, err);
}

int run_note_beginning(const struct run *run, struct penstock_error *err)
{
	/* Only what lies in a bucket can be of before. */
	if (run->continuing || run->workflow->output.kind != WORKFLOW_S3)
		return 0;
	return note_number(run->layout.began, run->attempt, err);
}

int run_note_going_on(const struct run *run, struct penstock_error *err)
{
	return run->continuing ? fs_write_atomic(run->layout.goes_on, "", 0, 0600, err) : 0;
}

static void on_waiting(void *cookie, const char *text)
{
	run_event(cookie, RUN_EVENT_WARNING, text, 0, 0);
}

static void on_lost(void *cookie, const char *owner)
{
	run_say(cookie, RUN_EVENT_WARNING, "%s: nothing is published from here any more", owner);
}

/* What another machine did not finish is continued as if it had been here, and what it finished is not; of what
 * was here the records know better, also where its end could not be written beside the output. */
static int judge(void *cookie, const struct lease_found *found, int attempt, int *began,
	struct penstock_error *err)
{
	struct verdict *verdict = cookie;
	const struct run *run = verdict->run;
	const struct run_options *o = run->options;
	bool never = o->fresh || run->workflow->resume == WORKFLOW_RESUME_NEVER;
	int r = 0;

	verdict->theirs = found->any && (!found->ours || found->attempt >= run->attempt ||
						run_is_superseded(run));
	if (verdict->theirs)
		r = note_superseded(run, found, err);
	if (r < 0)
		return r;
	verdict->continuing = run->continuing;
	if (verdict->theirs && o->resume && !found->unfinished &&
		(o->due || strcmp(found->state, "succeeded") == 0))
		return error_set(err, PENSTOCK_E_UNAVAILABLE,
			"run %s has %s on %s as attempt %d, so there is nothing to continue; "
			"'penstock run' of its workflow begins it anew",
			run->id, found->state, found->host, found->attempt);
	if (verdict->theirs)
		verdict->continuing = !never && (o->resume || found->unfinished);
	if (!verdict->continuing)
		*began = attempt;
	else if (!verdict->theirs)
		*began = run_began_with(run);
	return 0;
}

static int take(struct run *run, struct verdict *verdict, struct lease_found *found,
	struct penstock_error *err)
{
	char home_id[RECORDS_HOME_ID_SIZE];
	int r = records_home_id(run->options->home, home_id, err);

	if (r < 0)
		return r;
	r = lease_take(&run->lease,
		&(struct lease_options){
			.client = run->out->client,
			.bucket = run->out->bucket,
			.prefix = run->out->prefix,
			.state_prefix = run->state_prefix,
			.run_id = run->id,
			.name = run->workflow->name.value,
			.home = run->options->home,
			.home_id = home_id,
			.attempt = run->attempt,
			.cancel = &run->interrupts.cancel,
			.waiting = on_waiting,
			.lost = on_lost,
			.judge = verdict ? judge : NULL,
			.judge_cookie = verdict,
			.cookie = run,
			.completes = !verdict,
			.held = read_number(run->layout.held),
		},
		found, err);

	if (r == 0)
		object_client_gate(run->out->client, lease_gate(run->lease));
	return r;
}

/*
 * Its owner was killed under another home of this machine, and what it began may live on. That name comes from the store, so what
 * is there is only looked at where it is this user's; and if somebody begins there now, it is his.
 */
static int end_strays_of(struct run *run, const char *home, struct penstock_error *err)
{
	_cleanup_(run_layout_release) struct run_layout layout = {0};
	_cleanup_close_ int lock = -1;
	struct stat st;
	int r = run_layout_init(&layout, home, run->id, run->attempt, err);

	if (r < 0)
		return r;
	if (lstat(layout.dir, &st) < 0 || !S_ISDIR(st.st_mode) || st.st_uid != geteuid() ||
		(st.st_mode & 022) || supervisor_begin(layout.lock, run->id, &lock, NULL) < 0)
		return 0;
	r = strays_end(run->id, layout.storage, STRAYS_GRACE_MS, err);
	if (r < 0)
		return r;
	r += live_end(layout.dir);
	if (r > 0)
		run_say(run, RUN_EVENT_WARNING,
			"ended %d process%s that the last attempt has left behind under %s", r,
			r == 1 ? "" : "es", home);
	return 0;
}

int run_take_lease_to_flush(struct run *run, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(128);
	struct lease_found found = {0};

	if (run_is_superseded(run))
		return error_set(err, PENSTOCK_E_EXISTS,
			"run %s went on elsewhere: %s came after what is left here, which would "
			"replace what is newer",
			run->id,
			fs_read(run->layout.superseded, &text, NULL) == 0 ? buf_str(&text)
									  : "another attempt");
	return run->out ? take(run, NULL, &found, err) : 0;
}

/* The attempt gets the number that it has over all machines, and with it its log. */
static int renumber(struct run *run, int to, struct penstock_error *err)
{
	struct run_layout layout = {0};
	int r = run_layout_init(&layout, run->options->home, run->id, to, err);

	if (r < 0)
		return r;
	if (rename(run->layout.log, layout.log) < 0 && errno != ENOENT)
		r = error_errno(err, errno, "cannot rename %s", run->layout.log);
	if (r == 0)
		r = records_renumber(run->options->records, run->id, run->attempt, to, err);
	if (r < 0) {
		run_layout_release(&layout);
		return r;
	}
	/* Nothing else of the layout has the number in it, and other threads read the rest. */
	free(run->layout.log);
	run->layout.log = take_pointer(layout.log);
	run_layout_release(&layout);
	run->attempt = to;
	return 0;
}

/* What is here of the run is of before it began anew, or nobody knows: its first step is the first again. */
static int leave_storage(struct run *run, struct penstock_error *err)
{
	int r;

	run->continuing = false;
	r = run_clear_storage(run, err);
	if (r == 0)
		r = run_layout_create(&run->layout, err);
	if (r == 0 && run->steps_done)
		r = records_forget_steps(run->options->records, run->id, run->attempt, err);
	run->steps_done = 0;
	run->only_copy = false;
	return r;
}

static int follow(struct run *run, const struct verdict *verdict, const struct lease_found *found,
	struct penstock_error *err)
{
	bool same = verdict->continuing && found->began && found->began == run_began_with(run);
	int r = 0;

	if (run->continuing && !same)
		r = leave_storage(run, err);
	if (r < 0)
		return r;
	run->continuing = verdict->continuing;
	if (!run->continuing)
		return 0;
	run_say(run, RUN_EVENT_MESSAGE, "attempt %d goes on where attempt %d on %s ended",
		run->attempt, found->attempt, found->host);
	if (found->began)
		r = note_number(run->layout.began, found->began, err);
	else
		unlink(run->layout.began);
	return r == 0 ? run_note_going_on(run, err) : r;
}

/* With it and its secrets any machine can go on: `penstock resume s3://…`. */
static int publish_workflow(struct run *run, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(2 * LIMIT_WORKFLOW_FILE);
	_cleanup_free_ char *key = NULL;
	unsigned long refusals;
	int r = fs_read(run->layout.workflow, &text, err);

	if (r < 0)
		return r;
	if (asprintf(&key, "%s%s/workflow", run->out->prefix, run->state_prefix) < 0)
		return error_memory(err);
	/* Not over what a later owner is run from, should this one have stood still since it took the run. */
	do {
		penstock_error_release(err);
		if (!lease_wait(run->lease, &run->interrupts.cancel))
			return error_set(err, PENSTOCK_E_EXISTS, "%s",
				lease_is_lost(run->lease) ? lease_owner_now(run->lease)
							  : "ended while the run was taken");
		refusals = lease_refusals(run->lease);
		r = object_put(run->out->client, run->out->bucket, key, text.data, text.len,
			&(struct object_put_options){.cancel = &run->interrupts.cancel}, NULL, err);
	} while (r == -(int)PENSTOCK_E_UNAVAILABLE && refusals != lease_refusals(run->lease));
	return r;
}

int run_take_lease(struct run *run, struct penstock_error *err)
{
	struct verdict verdict = {.run = run};
	struct lease_found found = {0};
	int r;

	if (!run->out)
		return 0;
	r = take(run, &verdict, &found, err);
	if (r == 0 && found.home[0])
		r = end_strays_of(run, found.home, err);
	if (r == 0 && lease_attempt(run->lease) != run->attempt)
		r = renumber(run, lease_attempt(run->lease), err);
	if (r == 0 && verdict.theirs)
		r = follow(run, &verdict, &found, err);
	if (r == 0 && found.any && found.attempt)
		r = run_note_beginning(run, err); /* by its new number */
	if (r == 0)
		r = note_number(run->layout.held, run->attempt, err);
	return r == 0 ? publish_workflow(run, err) : r;
}
