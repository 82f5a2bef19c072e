#include "run/notices/reaction.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
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
#include "run/config/times.h"

enum {
	/* Share of the total time for publishing: a sixth, within these bounds. */
	RESERVE_SHARE = 6,
	RESERVE_MIN_MS = 1000,
	RESERVE_MAX_MS = 30000,
	FINALLY_MIN_MS = 1000,
	/* Time for writing the state at the very end: a tenth of the reserve, within these
	 * bounds. */
	STATE_SHARE = 10,
	STATE_MIN_MS = 300,
	STATE_MAX_MS = 2000,
};

/* ---- files ---- */

static void remove_file(const char *dir, const char *name)
{
	_cleanup_free_ char *path = path_join(dir, name);

	if (path)
		unlink(path);
}

/* Opens REACTION_DIR. Returns -1 if it is missing or not a directory. */
static int open_tasks_dir(const struct reaction *reaction)
{
	_cleanup_free_ char *dir = path_join(reaction->attempt->layout.storage, REACTION_DIR);

	return dir ? open(dir, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
}

/* Returns `path`, which begins with REACTION_DIR, without REACTION_DIR and the slash. */
static const char *below_dir(const char *path)
{
	return path + strlen(REACTION_DIR "/");
}

int reaction_prepare(struct reaction *reaction, struct penstock_error *err)
{
	_cleanup_free_ char *dir = path_join(reaction->attempt->layout.storage, REACTION_DIR);

	if (!dir)
		return error_memory(err);
	remove_file(reaction->attempt->layout.dir,
		run_file_name(RUN_FILE_NOTICE)); /* files of an earlier attempt */
	remove_file(reaction->attempt->layout.dir, run_file_name(RUN_FILE_PREEMPT));
	if (fs_remove_tree(dir, err) < 0)
		return -(int)PENSTOCK_E_IO;
	return fs_mkdirs(dir, 0700, err);
}

void reaction_begin(struct reaction *reaction, const struct notice *notice)
{
	int64_t until = reaction_tasks_until(reaction, notice);
	double grace = (double)(until - clock_monotonic_ms()) / 1000;
	json_auto_t *json = json_pack("{s:s, s:s, s:o*, s:o*}", "source", notice->source, "reason",
		notice->reason, "deadline", notice->soon ? NULL : json_real(clock_wall_s(until)),
		"grace_s", notice->soon ? NULL : json_real(grace > 0 ? grace : 0));
	_cleanup_free_ char *text = json ? json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(16))
					 : NULL;
	const char *file = notice->soon ? REACTION_SAVE_FILE : REACTION_PREEMPT_FILE;
	_cleanup_close_ int dir = open_tasks_dir(reaction);

	if (!text)
		errno = ENOMEM;
	if (!text || dir < 0 || fs_write_text_at(dir, below_dir(file), text, 0644) < 0)
		log_warn("cannot write '%s/%s': %s", reaction->attempt->layout.storage, file,
			strerror(errno));
}

void reaction_take_back(const struct reaction *reaction, bool soon)
{
	_cleanup_close_ int dir = open_tasks_dir(reaction);

	if (dir >= 0)
		unlinkat(dir, below_dir(soon ? REACTION_SAVE_FILE : REACTION_PREEMPT_FILE), 0);
}

bool reaction_is_done(const struct reaction *reaction, unsigned long serial)
{
	_cleanup_close_ int dir = open_tasks_dir(reaction);
	char name[48];

	snprintf(name, sizeof(name), "%s%lu", below_dir(REACTION_DONE_FILE), serial);
	return dir >= 0 && unlinkat(dir, name, 0) == 0;
}

/* ---- messages ---- */

/* Describes a signal. With SIGUSR1 also reads the request of `penstock preempt`, which contains the
 * remaining milliseconds. */
static void on_signal(void *cookie, int signal, struct notice *notice)
{
	const struct reaction *reaction = cookie;
	_cleanup_free_ char *path = NULL;
	_cleanup_(buf_release) struct buf text = BUF_INIT(32);
	uint64_t grace;

	if (reaction->describe)
		reaction->describe(reaction->describe_cookie, signal, notice);
	if (signal != SIGUSR1 || !atomic_load(&reaction->laid_out))
		return;
	path = path_join(reaction->attempt->layout.dir, run_file_name(RUN_FILE_PREEMPT));
	if (!path || fs_read(path, &text, NULL) < 0 || unlink(path) < 0)
		return;
	notice_set(notice, "preempt", "simulated by penstock preempt");
	notice->hard = true;
	if (str_to_u64(buf_str(&text), 1, INT32_MAX, &grace))
		notice_set_lead(notice, (int64_t)grace);
}

static void keep(const struct reaction *reaction, const struct notice *notice)
{
	char noticed[CLOCK_RFC3339_SIZE];
	char deadline[CLOCK_RFC3339_SIZE];
	const char *name = run_file_name(RUN_FILE_NOTICE);
	_cleanup_close_ int fd = open(
		reaction->attempt->layout.dir, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	json_auto_t *json = NULL;
	_cleanup_free_ char *text = NULL;

	clock_format_rfc3339(notice->noticed_wall, noticed);
	clock_format_rfc3339(
		notice->noticed_wall + (notice->deadline_ms - notice->noticed_ms) * NS_PER_MS,
		deadline);
	json = json_pack("{s:i, s:s, s:s, s:s, s:b, s:b, s:s*}", "attempt",
		reaction->attempt->number, "source", notice->source, "reason", notice->reason,
		"noticed", noticed, "soon", notice->soon, "withdrawn", notice->withdrawn,
		"deadline", notice->soon || notice->withdrawn ? NULL : deadline);
	text = json_dumps(json, JSON_COMPACT);
	if (!text)
		errno = ENOMEM;
	if (!text || fd < 0 || fs_write_text_at(fd, name, text, 0644) < 0)
		log_warn("cannot write '%s/%s': %s", reaction->attempt->layout.dir, name,
			strerror(errno));
}

static void report_withdrawn(struct reaction *reaction, const struct notice *notice)
{
	struct notice active;

	if (notice->soon) {
		run_say(&reaction->attempt->voice, RUN_EVENT_MESSAGE,
			"this machine stays for now (%s: %s)", notice->source, notice->reason);
		return;
	}
	run_say(&reaction->attempt->voice, RUN_EVENT_MESSAGE,
		"the preemption notice of %s was withdrawn: %s", notice->source, notice->reason);
	if (!interrupts_get_notice(&reaction->interrupts, &active) || active.withdrawn) {
		keep(reaction, notice);
		return;
	}
	keep(reaction, &active);
	run_say(&reaction->attempt->voice, RUN_EVENT_MESSAGE, "the notice of %s still holds: %s",
		active.source, active.reason);
}

static void on_noticed(void *cookie, const struct notice *notice)
{
	struct reaction *reaction = cookie;
	double left = (double)(notice->deadline_ms - notice->noticed_ms) / 1000;
	struct notice active;

	if (!atomic_load(&reaction->laid_out)) /* nothing to record yet */
		return;
	if (notice->withdrawn) {
		report_withdrawn(reaction, notice);
		return;
	}
	if (!notice->soon || !interrupts_get_notice(&reaction->interrupts, &active))
		keep(reaction, notice);
	if (notice->soon)
		run_say(&reaction->attempt->voice, RUN_EVENT_MESSAGE,
			"this machine may be preempted soon (%s: %s); asking the steps to save",
			notice->source, notice->reason);
	else
		run_say(&reaction->attempt->voice, RUN_EVENT_MESSAGE,
			"preemption notice from %s: %s; %.3g s left", notice->source,
			notice->reason, left > 0 ? left : 0);
}

/* ---- start and end of a reaction ---- */

static void on_note(void *cookie, const char *text)
{
	const struct reaction *reaction = cookie;

	run_event(&reaction->attempt->voice, RUN_EVENT_MESSAGE, text, 0, 0);
}

int reaction_init_plain(
	struct reaction *reaction, struct attempt *attempt, struct penstock_error *err)
{
	reaction->attempt = attempt;
	reaction->interrupts = (struct interrupts){.event_fd = -1, .signal_fd = -1, .quit_fd = -1};
	return interrupts_start(&reaction->interrupts, err);
}

int reaction_init(struct reaction *reaction, struct attempt *attempt, struct penstock_error *err)
{
	int r;

	reaction->attempt = attempt;
	reaction->interrupts = (struct interrupts){
		.event_fd = -1,
		.signal_fd = -1,
		.quit_fd = -1,
		.note = on_note,
		.describe = on_signal,
		.noticed = on_noticed,
		.cookie = reaction,
	};
	r = notice_settings_read(&reaction->settings, &attempt->workflow->preemption, err);
	reaction->interrupts.grace_ms = notice_settings_grace_ms(&reaction->settings);
	return r < 0 ? r : interrupts_start(&reaction->interrupts, err);
}

void reaction_release(struct reaction *reaction)
{
	interrupts_stop(&reaction->interrupts);
	notice_settings_release(&reaction->settings);
}

static void on_notice(void *cookie, const struct notice *notice)
{
	struct reaction *reaction = cookie;

	interrupts_notice(&reaction->interrupts, notice);
}

int reaction_watch(struct reaction *reaction, struct penstock_error *err)
{
	return notices_start(&reaction->notices,
		&(struct notices_options){
			.preemption = &reaction->settings.preemption,
			.on_notice = on_notice,
			.cookie = reaction,
		},
		err);
}

static int note_holder(void *cookie, const struct claim_holder *holder)
{
	bool *any = cookie;

	*any |= !holder->waiting;
	return *any;
}

void reaction_unwatch(struct reaction *reaction)
{
	bool any = false;

	/* Another run that has claimed something of this machine may still be saving. */
	notices_done(reaction->notices, claims_list(note_holder, &any, NULL) >= 0 && !any);
	notices_stop(take_pointer(reaction->notices));
}

void reaction_end_error(struct reaction *reaction, enum run_class class, struct penstock_error *err)
{
	struct attempt *attempt = reaction->attempt;
	enum interrupt_reason reason = interrupts_reason(&reaction->interrupts);

	if (reason == INTERRUPT_PREEMPT)
		run_end(attempt, RUN_PREEMPTED, RUN_CLASS_PREEMPTED, 75,
			"preempted before the steps finished; the same command continues the run");
	else if (reason == INTERRUPT_STOP)
		run_end(attempt, RUN_STOPPED, RUN_CLASS_USER, 130,
			"stopped; 'penstock resume %s' continues the run", attempt->id);
	else /* a refused attempt that was to continue the run can be started again later */
		run_end(attempt,
			err->code == PENSTOCK_E_EXISTS && attempt->continuing ? RUN_PREEMPTED
									      : RUN_FAILED,
			class, run_exit_code(class, err->code), "%s",
			err->message ? err->message : penstock_code_name(err->code));
	penstock_error_release(err);
}

/* ---- times ---- */

int reaction_signal(const struct reaction *reaction)
{
	return reaction->settings.preemption.signal_given ? reaction->settings.preemption.signal
							  : SIGTERM;
}

static int64_t within(int64_t value, int64_t min, int64_t max)
{
	return value < min ? min : value > max ? max : value;
}

/* Returns the part of the time that is reserved for publishing. */
static int64_t reserve_ms(const struct reaction *reaction, const struct notice *notice)
{
	const struct workflow_number *given = &reaction->settings.preemption.reserve;
	int64_t all = notice->deadline_ms - notice->noticed_ms;
	int64_t reserve = within(all / RESERVE_SHARE, RESERVE_MIN_MS, RESERVE_MAX_MS);

	/* If the caller of penstock has set a grace period, the tasks get all of it. */
	if (!notice->hard && stop_grace_given_ms() >= 0)
		return 0;
	if (given->given)
		reserve = given->value;
	return reserve < all / 2 ? reserve : all / 2;
}

int64_t reaction_tasks_until(const struct reaction *reaction, const struct notice *notice)
{
	return notice->deadline_ms - reserve_ms(reaction, notice);
}

int64_t reaction_finally_until(const struct reaction *reaction, const struct notice *notice)
{
	int64_t more = reserve_ms(reaction, notice) / 2;

	if (!notice->hard && more < FINALLY_MIN_MS)
		more = FINALLY_MIN_MS;
	return reaction_tasks_until(reaction, notice) + more;
}

/* Gets the notice. Returns false if no notice holds, or if the notice is not `hard`: then
 * publishing continues as long as the machine allows. */
static bool get_sure(struct reaction *reaction, struct notice *notice)
{
	return interrupts_get_notice(&reaction->interrupts, notice) && notice->hard &&
	       !notice->withdrawn;
}

int64_t reaction_flush_until(struct reaction *reaction)
{
	struct notice notice;

	if (!get_sure(reaction, &notice))
		return 0;
	return notice.deadline_ms -
	       within(reserve_ms(reaction, &notice) / STATE_SHARE, STATE_MIN_MS, STATE_MAX_MS);
}

int64_t reaction_gone_at(struct reaction *reaction)
{
	struct notice notice;

	return get_sure(reaction, &notice) ? notice.deadline_ms : 0;
}
