/*
 * Decides, for a run that may also be on another machine, if the records and the storage of this
 * home are current, and publishes what the next machine needs to continue the run.
 */
#include "run/internal.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "records/records.h"
#include "records/supervisor.h"
#include "run/owner/lease.h"
#include "run/process/strays.h"
#include "run/takeover.h"
#include "transfer/objects.h"

/* Decision made from the state object in the output. */
struct verdict {
	struct run *run;
	/* the last attempt belongs to another home, or is not in these records, or a newer output
	 * elsewhere was never restored */
	bool theirs;
	bool continuing; /* the attempt continues; with `theirs` this overrides the local records */
	bool ended; /* the run has ended elsewhere: there is nothing to continue */
};

bool run_is_superseded(const struct attempt *attempt)
{
	return access(attempt->layout.superseded, F_OK) == 0;
}

static int write_number(const char *path, int attempt, struct penstock_error *err)
{
	char text[16];
	int n = snprintf(text, sizeof(text), "%d", attempt);

	return fs_write_atomic(path, text, (size_t)n, 0600, err);
}

/* Records that this attempt starts from scratch: the bucket may have output, and a tracker may have
 * runs, from before this attempt. */
static int record_began(const struct attempt *attempt, struct penstock_error *err)
{
	if (attempt->continuing)
		return 0;
	return write_number(attempt->layout.began, attempt->number, err);
}

static int record_continuing(const struct attempt *attempt, struct penstock_error *err)
{
	return attempt->continuing ? fs_write_atomic(attempt->layout.goes_on, "", 0, 0600, err) : 0;
}

int run_record_start(const struct attempt *attempt, struct penstock_error *err)
{
	int r = record_began(attempt, err);

	return r < 0 ? r : record_continuing(attempt, err);
}

static void on_lost(void *voice, const char *owner)
{
	run_say(voice, RUN_EVENT_WARNING, "%s: nothing more is published from here", owner);
}

/*
 * Unless the run starts from scratch (`fresh`, or `resume: never`), an attempt of another machine
 * is continued if it is unfinished or has failed, or, with `resume`, was stopped. With `resume` a
 * run that succeeded elsewhere is refused. With `due` a run that failed or was stopped elsewhere is
 * also refused. For attempts of this home the records of the home count, not the state object: the
 * end of an attempt may be missing in the object.
 */
static int decide(void *cookie, const struct lease_found *found, int attempt, int *began,
	struct penstock_error *err)
{
	struct verdict *verdict = cookie;
	const struct run *run = verdict->run;
	const struct run_options *o = run->options;
	bool never = o->fresh || run->attempt.workflow->resume == WORKFLOW_RESUME_NEVER;
	int r = 0;

	verdict->theirs = found->any && (!found->ours || found->attempt >= run->attempt.number ||
						run_is_superseded(&run->attempt));
	if (verdict->theirs) {
		/* Record this before the state object names this home: if this attempt ends before
		 * it restores the newer output, no flush may publish the older files here. */
		char text[128];
		int n = snprintf(
			text, sizeof(text), "attempt %d on %s", found->attempt, found->host);

		r = run_is_superseded(&run->attempt)
			    ? 0
			    : fs_write_atomic(
				      run->attempt.layout.superseded, text, (size_t)n, 0600, err);
	}
	if (r < 0)
		return r;
	verdict->continuing = run->attempt.continuing;
	if (verdict->theirs && o->resume && !found->unfinished &&
		(o->due || strcmp(found->state, "succeeded") == 0)) {
		verdict->ended = true;
		return error_set(err, PENSTOCK_E_UNAVAILABLE,
			"cannot continue run '%s': it has %s on %s as attempt %d; 'penstock run' "
			"of its workflow starts it from scratch",
			run->attempt.id, found->state, found->host, found->attempt);
	}
	if (verdict->theirs)
		verdict->continuing = !never && (o->resume || found->unfinished ||
							strcmp(found->state, "failed") == 0);
	if (!verdict->continuing)
		*began = attempt;
	else if (!verdict->theirs)
		*began = run_layout_read_attempt(run->attempt.layout.began);
	return 0;
}

static int take_lease(struct run *run, struct verdict *verdict, struct lease_found *found,
	struct penstock_error *err)
{
	char home_id[RECORDS_HOME_ID_SIZE];
	int r = records_home_id(run->attempt.home, home_id, err);

	if (r < 0)
		return r;
	r = lease_take(&run->publisher.lease,
		&(struct lease_options){
			.client = run->publisher.store->client,
			.bucket = run->publisher.store->bucket,
			.prefix = run->publisher.store->prefix,
			.state_prefix = run->publisher.state_prefix,
			.run_id = run->attempt.id,
			.name = run->attempt.workflow->name.value,
			.price = verdict ? run->attempt.workflow->price.value : NULL,
			.home = run->attempt.home,
			.home_id = home_id,
			.attempt = run->attempt.number,
			.cancel = &run->reaction.interrupts.cancel,
			.waiting = run_voice_warning,
			.lost = on_lost,
			.decide = verdict ? decide : NULL,
			.decide_cookie = verdict,
			.cookie = &run->attempt.voice,
			.completes = !verdict,
			.held = run_layout_read_attempt(run->attempt.layout.held),
		},
		found, err);
	if (r == 0)
		object_client_gate(run->publisher.store->client, lease_gate(run->publisher.lease));
	return r;
}

/*
 * Ends the processes that an owner left when it was killed under another home of this machine. The
 * path of that home comes from the store, so the directory of the run is used only if it belongs to
 * this user and no other user can write to it. Nothing is killed if a new supervisor holds the lock
 * in that directory.
 */
static int end_strays_of(struct run *run, const char *home, struct penstock_error *err)
{
	_cleanup_(run_layout_release) struct run_layout layout = {0};
	_cleanup_close_ int lock = -1;
	struct stat st;
	int r = run_layout_init(&layout, home, run->attempt.id, run->attempt.number, err);

	if (r < 0)
		return r;
	if (lstat(layout.dir, &st) < 0 || !S_ISDIR(st.st_mode) || st.st_uid != geteuid() ||
		(st.st_mode & 022) ||
		supervisor_begin(layout.lock, run->attempt.id, &lock, NULL) < 0)
		return 0;
	r = strays_end(run->attempt.id, &layout, STRAYS_GRACE_MS, err);
	if (r > 0)
		run_say(&run->attempt.voice, RUN_EVENT_WARNING,
			"killed %d process%s that the last attempt left running under %s", r,
			r == 1 ? "" : "es", home);
	return r < 0 ? r : 0;
}

int run_take_lease_to_flush(struct run *run, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(128);
	struct lease_found found = {0};

	if (run_is_superseded(&run->attempt))
		return error_set(err, PENSTOCK_E_EXISTS,
			"cannot flush run '%s': it continued elsewhere, and the output of %s is "
			"newer than the output here",
			run->attempt.id,
			fs_read(run->attempt.layout.superseded, &text, NULL) == 0
				? buf_str(&text)
				: "another attempt");
	return run->publisher.store ? take_lease(run, NULL, &found, err) : 0;
}

/* Gives the attempt and its log the number that is unique over all machines. */
static int renumber(struct run *run, int to, struct penstock_error *err)
{
	struct run_layout layout = {0};
	int r = run_layout_init(&layout, run->attempt.home, run->attempt.id, to, err);

	if (r < 0)
		return r;
	if (rename(run->attempt.layout.log, layout.log) < 0 && errno != ENOENT)
		r = error_errno(err, errno, "cannot rename '%s'", run->attempt.layout.log);
	if (r == 0)
		r = records_renumber(
			run->attempt.records, run->attempt.id, run->attempt.number, to, err);
	if (r < 0) {
		run_layout_release(&layout);
		return r;
	}
	run_log_move_rest(run->attempt.layout.log, layout.log);
	/* Replace only the path of the log: no other path contains the number, and other threads
	 * read the other paths. */
	free(run->attempt.layout.log);
	run->attempt.layout.log = take_pointer(layout.log);
	run_layout_release(&layout);
	run->attempt.number = to;
	return 0;
}

static int continue_from(struct run *run, const struct verdict *verdict,
	const struct lease_found *found, struct penstock_error *err)
{
	bool same = verdict->continuing && found->began &&
		    found->began == run_layout_read_attempt(run->attempt.layout.began);
	int r = 0;

	if (run->attempt.continuing && !same) {
		/* Discard a storage that is from before the run last started from scratch, or
		 * of unknown origin. The first step runs again. */
		run->attempt.continuing = false;
		r = run_clear_storage(run, err);
		if (r == 0)
			r = run_layout_create(&run->attempt.layout, err);
		if (r == 0 && run->attempt.steps_done)
			r = records_forget_steps(
				run->attempt.records, run->attempt.id, run->attempt.number, err);
		run->attempt.steps_done = 0;
	}
	if (r < 0)
		return r;
	run->attempt.continuing = verdict->continuing;
	if (!run->attempt.continuing)
		return 0;
	run_say(&run->attempt.voice, RUN_EVENT_MESSAGE, "attempt %d continues attempt %d on %s",
		run->attempt.number, found->attempt, found->host);
	if (found->began)
		r = write_number(run->attempt.layout.began, found->began, err);
	else
		unlink(run->attempt.layout.began);
	return r == 0 ? record_continuing(&run->attempt, err) : r;
}

/* Reports the differences from the workflow of another machine's attempt. */
static void compare_published(
	struct run *run, const char *key, const struct buf *ours, const struct lease_found *found)
{
	_cleanup_(buf_release) struct buf theirs = BUF_INIT(2 * LIMIT_WORKFLOW_FILE);
	struct workflow_changes changes;

	if (object_get(object_at(run->publisher.store->client, run->publisher.store->bucket, key),
		    &(struct object_get_options){.cancel = &run->reaction.interrupts.cancel},
		    &theirs, NULL, NULL) == 0 &&
		workflow_compare(buf_str(&theirs), buf_str(ours), &changes, NULL) == 0 && changes.n)
		run_say(&run->attempt.voice, RUN_EVENT_MESSAGE,
			"the workflow differs from that of attempt %d on %s: %s", found->attempt,
			found->host, changes.names);
}

struct put {
	struct object_ref at;
	const struct buf *text;
	const atomic_int *cancel;
};

static int put_text(void *cookie, struct penstock_error *err)
{
	const struct put *put = cookie;

	return object_put(put->at, put->text->data, put->text->len,
		&(struct object_put_options){.cancel = put->cancel}, NULL, err);
}

/* Publishes the workflow, so that any machine that has the secrets of the workflow can continue the
 * run: `penstock resume s3://…`. */
static int publish_workflow(struct run *run, const struct verdict *verdict,
	const struct lease_found *found, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(2 * LIMIT_WORKFLOW_FILE);
	_cleanup_free_ char *key = str_printf(
		"%s%s/workflow", run->publisher.store->prefix, run->publisher.state_prefix);
	struct put put = {
		object_at(run->publisher.store->client, run->publisher.store->bucket, key), &text,
		&run->reaction.interrupts.cancel};
	int r = fs_read(run->attempt.layout.workflow, &text, err);

	if (r < 0)
		return r;
	if (!key)
		return error_memory(err);
	if (verdict->theirs && verdict->continuing)
		compare_published(run, key, &text, found);
	/* Do not replace the workflow of a later owner, if this process was suspended after it took
	 * the run. */
	return lease_perform(run->publisher.lease, put.cancel, put_text, &put, err);
}

void run_note_elsewhere(const struct run *run, const struct lease_found *found)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_free_ char *path = run_path(
		run->attempt.home, run->attempt.id, RUN_FILE_ELSEWHERE);
	json_auto_t *root = json_pack("{s:s, s:s, s:i}", "state", found->state, "host", found->host,
		"attempt", found->attempt);
	_cleanup_free_ char *text = root ? json_dumps(root, JSON_COMPACT) : NULL;

	if (!path || !text || fs_write_atomic(path, text, strlen(text), 0600, &err) < 0)
		log_warn("cannot record that run '%s' is on %s: %s", run->attempt.id, found->host,
			err.message ? err.message : "out of memory");
}

/* Refuses a run that another machine has or has ended, or whose output another run has. The attempt
 * is withdrawn, except in a batch job. The first attempt of a run in the background is also kept:
 * its record alone shows the reason. */
static void refuse(struct run *run, const struct verdict *verdict, const struct lease_found *found)
{
	if (found->refused || verdict->ended)
		run_note_elsewhere(run, found);
	run->refused = !run->options->slurm && (!run->options->on_ready || run->attempt.number > 1);
	run->finished = verdict->ended && strcmp(found->state, "succeeded") == 0;
}

static void forget_elsewhere(const struct run *run)
{
	_cleanup_free_ char *path = run_path(
		run->attempt.home, run->attempt.id, RUN_FILE_ELSEWHERE);

	if (path)
		unlink(path);
}

/* Reports the number only once this attempt has the lease: before that, an attempt of another
 * machine may have the same number. If this attempt continues an attempt of another machine,
 * continue_from() reports the number. */
static void say_number(const struct run *run, const struct verdict *verdict)
{
	if (!verdict->theirs || !verdict->continuing)
		run_say(&run->attempt.voice, RUN_EVENT_MESSAGE, "attempt %d",
			(int)run->attempt.number);
}

int run_take_lease(struct run *run, struct penstock_error *err)
{
	struct verdict verdict = {.run = run};
	struct lease_found found = {0};
	int r;

	if (!run->publisher.store)
		return 0;
	r = take_lease(run, &verdict, &found, err);
	if (verdict.ended || r == -(int)PENSTOCK_E_EXISTS)
		refuse(run, &verdict, &found);
	if (r == 0)
		forget_elsewhere(run);
	if (r == 0 && found.home[0])
		r = end_strays_of(run, found.home, err);
	if (r == 0 && lease_attempt(run->publisher.lease) != run->attempt.number)
		r = renumber(run, lease_attempt(run->publisher.lease), err);
	if (r == 0)
		say_number(run, &verdict);
	if (r == 0 && verdict.theirs)
		r = continue_from(run, &verdict, &found, err);
	if (r == 0 && found.any && found.attempt)
		r = record_began(&run->attempt, err); /* under its new number */
	if (r == 0)
		r = write_number(run->attempt.layout.held, run->attempt.number, err);
	return r == 0 ? publish_workflow(run, &verdict, &found, err) : r;
}
