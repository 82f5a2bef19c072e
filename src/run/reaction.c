#include "run/reaction.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/str.h"
#include "records/claims.h"
#include "run/run_internal.h"
#include "run/slurm/slurm.h"
#include "base/banned.h"

enum {
	/* Of the whole time, for publishing: a sixth, within these. */
	RESERVE_SHARE = 6,
	RESERVE_MIN_MS = 1000,
	RESERVE_MAX_MS = 30000,
	FINALLY_MIN_MS = 1000,
	/* For writing the state, at the very end: a tenth of the reserve, within these. */
	STATE_SHARE = 10,
	STATE_MIN_MS = 300,
	STATE_MAX_MS = 2000,
};

/* ---- files ---- */

/*
 * Of no use after a crash of the machine, so nothing is made durable: that would cost the time that is short. Tasks may
 * have put links or FIFOs there: nothing is followed, and nothing that is there is opened.
 */
static int place(int dir, const char *name, const char *text)
{
	_cleanup_close_ int fd = -1;
	char fresh[32];

	/* Several sources may tell something at the same time. */
	snprintf(fresh, sizeof(fresh), ".new-%d", (int)gettid());
	unlinkat(dir, fresh, 0);
	fd = openat(dir, fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (fd < 0)
		return -1;
	if (fs_write_all(fd, text, strlen(text)) < 0 || renameat(dir, fresh, dir, name) < 0) {
		int saved = errno;

		unlinkat(dir, fresh, 0);
		errno = saved;
		return -1;
	}
	return 0;
}

static void write_quickly(const char *dir, const char *name, const char *text)
{
	_cleanup_close_ int fd = open(dir, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0 || place(fd, name, text) < 0)
		log_warn("cannot write %s/%s: %s", dir, name, strerror(errno));
}

static void remove_file(const char *dir, const char *name)
{
	_cleanup_free_ char *path = path_join(dir, name);

	if (path)
		unlink(path);
}

/* REACTION_DIR; -1: it is not there, or no directory. */
static int open_tasks_dir(const struct run *run)
{
	_cleanup_free_ char *dir = path_join(run->layout.storage, REACTION_DIR);

	return dir ? open(dir, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
}

/* A path below the storage without REACTION_DIR. */
static const char *below_dir(const char *path)
{
	return path + strlen(REACTION_DIR "/");
}

int reaction_prepare(struct run *run, struct penstock_error *err)
{
	_cleanup_free_ char *dir = path_join(run->layout.storage, REACTION_DIR);

	if (!dir)
		return error_memory(err);
	remove_file(run->layout.dir, REACTION_NOTICE_FILE); /* of an earlier attempt */
	remove_file(run->layout.dir, REACTION_REQUEST_FILE);
	if (fs_remove_tree(dir, err) < 0)
		return -(int)PENSTOCK_E_IO;
	return fs_mkdirs(dir, 0700, err);
}

/* The wall clock's time of a monotonic one, in seconds. */
static double wall_s(int64_t monotonic_ms)
{
	return (double)clock_wall_ns() / NS_PER_S +
	       (double)(monotonic_ms - clock_monotonic_ms()) / 1000;
}

static json_t *describe_end(const struct run *run, const struct notice *notice)
{
	int64_t until = reaction_tasks_until(run, notice);
	double grace = (double)(until - clock_monotonic_ms()) / 1000;

	return json_pack("{s:s, s:s, s:f, s:f}", "source", notice->source, "reason", notice->reason,
		"deadline", wall_s(until), "grace_s", grace > 0 ? grace : 0);
}

void reaction_begin(struct run *run, const struct notice *notice)
{
	json_auto_t *json = notice->soon ? json_pack("{s:s, s:s}", "source", notice->source,
						   "reason", notice->reason)
					 : describe_end(run, notice);
	_cleanup_free_ char *text = json ? json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(16))
					 : NULL;
	const char *file = notice->soon ? REACTION_SAVE_FILE : REACTION_PREEMPT_FILE;
	_cleanup_close_ int dir = open_tasks_dir(run);

	if (!text)
		errno = ENOMEM;
	if (!text || dir < 0 || place(dir, below_dir(file), text) < 0)
		log_warn("cannot write %s/%s: %s", run->layout.storage, file, strerror(errno));
}

void reaction_take_back(const struct run *run, bool soon)
{
	_cleanup_close_ int dir = open_tasks_dir(run);

	if (dir >= 0)
		unlinkat(dir, below_dir(soon ? REACTION_SAVE_FILE : REACTION_PREEMPT_FILE), 0);
}

bool reaction_is_done(const struct run *run, unsigned long serial)
{
	_cleanup_close_ int dir = open_tasks_dir(run);
	char name[48];

	snprintf(name, sizeof(name), "%s%lu", below_dir(REACTION_DONE_FILE), serial);
	return dir >= 0 && unlinkat(dir, name, 0) == 0;
}

/* ---- what was noticed ---- */

/* What `penstock preempt` has left: how long there is. */
void reaction_describe(void *cookie, int signal, struct notice *notice)
{
	const struct run *run = cookie;
	_cleanup_free_ char *path = NULL;
	_cleanup_(buf_release) struct buf text = BUF_INIT(32);
	uint64_t grace;

	if (run->options->slurm)
		slurm_describe(run->options->slurm, signal, notice);
	if (signal != SIGUSR1 || !atomic_load(&run->laid_out))
		return;
	path = path_join(run->layout.dir, REACTION_REQUEST_FILE);
	if (!path || fs_read(path, &text, NULL) < 0 || unlink(path) < 0)
		return;
	notice_set(notice, "preempt", "simulated by penstock preempt");
	notice->hard = true;
	if (str_to_u64(buf_str(&text), 1, INT32_MAX, &grace))
		notice_set_lead(notice, (int64_t)grace);
}

static void keep(const struct run *run, const struct notice *notice)
{
	char noticed[CLOCK_RFC3339_SIZE];
	char deadline[CLOCK_RFC3339_SIZE];
	json_auto_t *json = NULL;
	_cleanup_free_ char *text = NULL;

	clock_format_rfc3339(notice->noticed_wall, noticed);
	clock_format_rfc3339(
		notice->noticed_wall + (notice->deadline_ms - notice->noticed_ms) * NS_PER_MS,
		deadline);
	json = json_pack("{s:i, s:s, s:s, s:s, s:b, s:b}", "attempt", run->attempt, "source",
		notice->source, "reason", notice->reason, "noticed", noticed, "soon", notice->soon,
		"withdrawn", notice->withdrawn);
	if (!notice->soon && !notice->withdrawn)
		json_object_set_new(json, "deadline", json_string(deadline));
	text = json_dumps(json, JSON_COMPACT);
	if (text)
		write_quickly(run->layout.dir, REACTION_NOTICE_FILE, text);
}

static void say_withdrawn(struct run *run, const struct notice *notice)
{
	struct notice standing;

	if (notice->soon) {
		run_say(run, RUN_EVENT_MESSAGE, "this machine stays for now (%s: %s)",
			notice->source, notice->reason);
		return;
	}
	run_say(run, RUN_EVENT_MESSAGE, "the preemption notice of %s was withdrawn: %s",
		notice->source, notice->reason);
	if (!interrupts_get_notice(&run->interrupts, &standing) || standing.withdrawn) {
		keep(run, notice);
		return;
	}
	keep(run, &standing);
	run_say(run, RUN_EVENT_MESSAGE, "that of %s stands: %s", standing.source, standing.reason);
}

void reaction_noticed(void *cookie, const struct notice *notice)
{
	struct run *run = cookie;
	double left = (double)(notice->deadline_ms - notice->noticed_ms) / 1000;
	struct notice standing;

	if (!atomic_load(&run->laid_out)) /* it is hardly on record */
		return;
	if (notice->withdrawn) {
		say_withdrawn(run, notice);
		return;
	}
	if (!notice->soon || !interrupts_get_notice(&run->interrupts, &standing))
		keep(run, notice);
	if (notice->soon)
		run_say(run, RUN_EVENT_MESSAGE,
			"this machine may be preempted soon (%s: %s): the steps are asked to save",
			notice->source, notice->reason);
	else
		run_say(run, RUN_EVENT_MESSAGE, "preemption notice of %s: %s; %.3g s are left",
			notice->source, notice->reason, left > 0 ? left : 0);
}

/* ---- times ---- */

int reaction_signal(const struct run *run)
{
	return run->preemption.preemption.signal_given ? run->preemption.preemption.signal
						       : SIGTERM;
}

int64_t stop_grace_given_ms(void)
{
	const char *given = getenv("PENSTOCK_STOP_GRACE");
	uint64_t value;

	return given && str_to_u64(given, 0, 7 * 24 * 3600, &value) ? (int64_t)value * 1000 : -1;
}

static void sooner(double *at, double other)
{
	if (other > 0 && (*at <= 0 || other < *at))
		*at = other;
}

void reaction_deadline(const struct run *run, const struct workflow_run *what,
	char out[static REACTION_DEADLINE_SIZE])
{
	const struct workflow_number *own = &what->timeouts.timeout;
	const struct workflow_number *job = &run->workflow->timeouts.timeout;
	const char *slurm = getenv("SLURM_JOB_END_TIME");
	int64_t now = clock_monotonic_ms();
	uint64_t end;
	double at = 0;

	if (own->given)
		sooner(&at, wall_s(now + own->value));
	if (run->deadline_ms || job->given)
		sooner(&at, wall_s(run->deadline_ms ? run->deadline_ms : now + job->value));
	if (slurm && str_to_u64(slurm, 1, UINT32_MAX, &end))
		sooner(&at, (double)end);
	*out = '\0';
	if (at > 0)
		snprintf(out, REACTION_DEADLINE_SIZE, "%.3f", at);
}

static int64_t within(int64_t value, int64_t min, int64_t max)
{
	return value < min ? min : value > max ? max : value;
}

/* What of the time is kept for publishing. */
static int64_t reserve_ms(const struct run *run, const struct notice *notice)
{
	const struct workflow_number *given = &run->preemption.preemption.reserve;
	int64_t all = notice->deadline_ms - notice->noticed_ms;
	int64_t reserve = within(all / RESERVE_SHARE, RESERVE_MIN_MS, RESERVE_MAX_MS);

	/* What was told on starting penstock is what the tasks get. */
	if (!notice->hard && stop_grace_given_ms() >= 0)
		return 0;
	if (given->given)
		reserve = given->value;
	return reserve < all / 2 ? reserve : all / 2;
}

int64_t reaction_tasks_until(const struct run *run, const struct notice *notice)
{
	return notice->deadline_ms - reserve_ms(run, notice);
}

int64_t reaction_finally_until(const struct run *run, const struct notice *notice)
{
	int64_t more = reserve_ms(run, notice) / 2;

	if (!notice->hard && more < FINALLY_MIN_MS)
		more = FINALLY_MIN_MS;
	return reaction_tasks_until(run, notice) + more;
}

/* Where only our own guess says when, publishing goes on for as long as the machine lets it. */
static bool get_sure(struct run *run, struct notice *notice)
{
	return interrupts_get_notice(&run->interrupts, notice) && notice->hard &&
	       !notice->withdrawn;
}

int64_t reaction_flush_until(struct run *run)
{
	struct notice notice;

	if (!get_sure(run, &notice))
		return 0;
	return notice.deadline_ms -
	       within(reserve_ms(run, &notice) / STATE_SHARE, STATE_MIN_MS, STATE_MAX_MS);
}

int64_t reaction_gone_at(struct run *run)
{
	struct notice notice;

	return get_sure(run, &notice) ? notice.deadline_ms : 0;
}

static int note_holder(void *cookie, const struct claim_holder *holder)
{
	bool *any = cookie;

	*any |= !holder->waiting;
	return *any;
}

bool reaction_is_alone(void)
{
	bool any = false;

	return claims_list(note_holder, &any, NULL) >= 0 && !any;
}
