#include "run/notices/interrupts.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/process/process.h"
#include "base/thread.h"
#include "run/config/times.h"

static void interrupt_signals(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGINT);
	sigaddset(set, SIGTERM);
	/* A blocked signal arrives at the signalfd even if it is ignored. */
	if (!process_ignores(SIGHUP))
		sigaddset(set, SIGHUP);
	sigaddset(set, SIGUSR1);
	sigaddset(set, SIGUSR2);
}

void interrupts_block_signals(void)
{
	sigset_t set;

	interrupt_signals(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGPIPE);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	signal(SIGXFSZ, SIG_IGN); /* a file size limit is reported like a full disk */
	/* A shell starts background jobs with SIGINT ignored, but SIGINT must stop a run in the
	 * background, too. */
	signal(SIGINT, SIG_DFL);
}

static void raise_event(struct interrupts *interrupts)
{
	uint64_t one = 1;

	atomic_fetch_add(&interrupts->news, 1);
	if (write(interrupts->event_fd, &one, sizeof(one)) < 0)
		return; /* EAGAIN: an event is already pending */
}

/* ---- notices ---- */

static bool same_source(const struct notice *a, const struct notice *b)
{
	return a->origin == b->origin && strcmp(a->source, b->source) == 0;
}

/* Returns the index of the active notice of the same source, or the number of active notices. Call
 * it with the lock held. */
static size_t find_active(const struct interrupts *interrupts, const struct notice *given)
{
	size_t i = 0;

	while (i < interrupts->n_active && !same_source(&interrupts->active[i], given))
		i++;
	return i;
}

/* Merges a notice into an active one. A notice that is not `hard` changes nothing. A `hard` one
 * makes the active notice `hard`, and may bring its deadline forward; the remaining time never
 * grows. */
static void add_to(struct notice *active, const struct notice *more)
{
	if (!more->hard || (active->hard && more->deadline_ms >= active->deadline_ms))
		return;
	active->hard = true;
	if (more->deadline_ms < active->deadline_ms)
		active->deadline_ms = more->deadline_ms;
}

/* Recomputes `notice` from the active notices, with the source and reason of the first. Call it
 * with the lock held. */
static void sum_up(struct interrupts *interrupts)
{
	struct notice *notice = &interrupts->notice;
	unsigned eased = notice->eased;

	if (!interrupts->n_active) {
		notice->withdrawn = true;
		return;
	}
	*notice = interrupts->active[0];
	for (size_t i = 1; i < interrupts->n_active; i++)
		add_to(notice, &interrupts->active[i]);
	notice->eased = eased;
	notice->serial = ++interrupts->serial;
}

/* Withdraws a notice. Returns false if nothing has changed. Call it with the lock held. */
static bool withdraw(struct interrupts *interrupts, const struct notice *given)
{
	struct notice *active = interrupts->active;
	size_t i = find_active(interrupts, given);

	if (given->soon) {
		if (!*interrupts->soon.source || !same_source(&interrupts->soon, given))
			return false;
		interrupts->soon = (struct notice){0};
		return true;
	}
	if (i == interrupts->n_active)
		return false;
	interrupts->n_active--;
	memmove(&active[i], &active[i + 1], (interrupts->n_active - i) * sizeof(*active));
	interrupts->notice.eased++;
	sum_up(interrupts);
	return true;
}

/* Adds a notice of the machine's end; several notices count as one. Returns true if the deadline is
 * earlier than before. Call it with the lock held. */
static bool ask(struct interrupts *interrupts, const struct notice *given)
{
	struct notice *active = interrupts->active;
	int64_t before_ms = interrupts->n_active ? interrupts->notice.deadline_ms : INT64_MAX;
	int none = INTERRUPT_NONE;
	size_t i = find_active(interrupts, given);

	if (i < interrupts->n_active)
		add_to(&active[i], given);
	else if (i < INTERRUPT_NOTICES)
		active[interrupts->n_active++] = *given;
	sum_up(interrupts);
	atomic_compare_exchange_strong(&interrupts->reason, &none, INTERRUPT_PREEMPT);
	if (!atomic_load(&interrupts->count))
		atomic_store(&interrupts->count, 1);
	if (interrupts->phase == PHASE_BEGIN)
		atomic_store(&interrupts->cancel, 1);
	return interrupts->notice.deadline_ms < before_ms;
}

/* Records a request to save; each request of a source asks for one more save. Ignores other sources
 * (returns false) until the first source withdraws its request. Call it with the lock held. */
static bool ask_for_a_save(struct interrupts *interrupts, const struct notice *given)
{
	if (*interrupts->soon.source && !same_source(&interrupts->soon, given))
		return false;
	interrupts->soon = *given;
	interrupts->soon.serial = ++interrupts->serial;
	return true;
}

void interrupts_notice(struct interrupts *interrupts, const struct notice *given)
{
	struct notice notice = *given;
	bool news;

	if (!notice.noticed_ms)
		notice.noticed_ms = clock_monotonic_ms();
	if (!notice.noticed_wall)
		notice.noticed_wall = clock_wall_ns();
	if (!notice.deadline_ms)
		notice.deadline_ms = notice.noticed_ms + (interrupts->grace_ms
									 ? interrupts->grace_ms
									 : STOP_GRACE_DEFAULT_MS);
	pthread_mutex_lock(&interrupts->lock);
	if (notice.withdrawn)
		news = withdraw(interrupts, &notice);
	else if (notice.soon)
		news = ask_for_a_save(interrupts, &notice);
	else
		news = ask(interrupts, &notice);
	pthread_mutex_unlock(&interrupts->lock);
	if (!news)
		return;
	raise_event(interrupts); /* first, because the tasks wait for the event */
	if (interrupts->noticed)
		interrupts->noticed(interrupts->cookie, &notice);
}

static bool get(struct interrupts *interrupts, const struct notice *from, struct notice *out)
{
	LOCK_SCOPE(&interrupts->lock);
	*out = *from;
	return *out->source;
}

bool interrupts_get_notice(struct interrupts *interrupts, struct notice *out)
{
	return get(interrupts, &interrupts->notice, out);
}

bool interrupts_get_soon(struct interrupts *interrupts, struct notice *out)
{
	return get(interrupts, &interrupts->soon, out);
}

bool interrupts_forget_notice(struct interrupts *interrupts)
{
	LOCK_SCOPE(&interrupts->lock);
	if (!interrupts->notice.withdrawn ||
		atomic_load(&interrupts->reason) != INTERRUPT_PREEMPT ||
		atomic_load(&interrupts->count) > 1)
		return false;
	interrupts->notice = (struct notice){0};
	atomic_store(&interrupts->reason, INTERRUPT_NONE);
	atomic_store(&interrupts->count, 0);
	if (interrupts->phase == PHASE_BEGIN)
		atomic_store(&interrupts->cancel, 0);
	return true;
}

static void take_signal(struct interrupts *interrupts, int signal)
{
	struct notice notice = {0};
	char name[24];

	if (signal == SIGINT || signal == SIGHUP) {
		int none = INTERRUPT_NONE;
		enum interrupt_phase phase;
		int count;

		pthread_mutex_lock(&interrupts->lock);
		phase = interrupts->phase;
		atomic_compare_exchange_strong(&interrupts->reason, &none, INTERRUPT_STOP);
		count = atomic_fetch_add(&interrupts->count, 1) + 1;
		if (phase == PHASE_BEGIN || (phase == PHASE_FLUSH && count >= 2))
			atomic_store(&interrupts->cancel, 1);
		pthread_mutex_unlock(&interrupts->lock);
		if (phase == PHASE_FLUSH && count == 1 && interrupts->note)
			interrupts->note(interrupts->cookie,
				"still uploading the output; interrupt again to leave the rest for "
				"'penstock flush'");
		else if (phase == PHASE_BEGIN && count == 1 && interrupts->note)
			interrupts->note(interrupts->cookie,
				"stopping before the steps; interrupt again to stop without waiting for "
				"any store");
		raise_event(interrupts);
		return;
	}
	snprintf(name, sizeof(name), "SIG%s", sigabbrev_np(signal));
	notice_set(&notice, "signal", name);
	if (interrupts->describe)
		interrupts->describe(interrupts->cookie, signal, &notice);
	interrupts_notice(interrupts, &notice);
}

static void *read_signals(void *cookie)
{
	struct interrupts *interrupts = cookie;
	struct pollfd fds[2] = {
		{interrupts->signal_fd, POLLIN, 0}, {interrupts->quit_fd, POLLIN, 0}};

	for (;;) {
		struct signalfd_siginfo info;

		if (poll(fds, 2, -1) < 0 && errno != EINTR)
			return NULL;
		if (fds[1].revents)
			return NULL;
		while (read(interrupts->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info))
			take_signal(interrupts, (int)info.ssi_signo);
	}
}

static void close_all(struct interrupts *interrupts)
{
	int *fds[] = {&interrupts->event_fd, &interrupts->signal_fd, &interrupts->quit_fd};

	for (int i = 0; i < 3; i++) {
		if (*fds[i] >= 0)
			close(*fds[i]);
		*fds[i] = -1;
	}
}

int interrupts_start(struct interrupts *interrupts, struct penstock_error *err)
{
	sigset_t set;
	int r;

	pthread_mutex_init(&interrupts->lock, NULL);
	interrupt_signals(&set);
	interrupts->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	interrupts->quit_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	interrupts->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	r = interrupts->event_fd < 0 || interrupts->quit_fd < 0 || interrupts->signal_fd < 0
		    ? error_errno(err, errno, "cannot watch for signals")
		    : thread_start(&interrupts->thread, "signals", read_signals, interrupts, err);
	if (r < 0)
		close_all(interrupts);
	return r;
}

void interrupts_stop(struct interrupts *interrupts)
{
	uint64_t one = 1;

	if (interrupts->quit_fd < 0)
		return;
	if (write(interrupts->quit_fd, &one, sizeof(one)) == (ssize_t)sizeof(one))
		pthread_join(interrupts->thread, NULL);
	close_all(interrupts);
}

void interrupts_phase(struct interrupts *interrupts, enum interrupt_phase phase)
{
	LOCK_SCOPE(&interrupts->lock);
	/* Keep the count of the begin phase: a request may have come after its last check. */
	if (interrupts->phase != PHASE_BEGIN)
		atomic_store(&interrupts->count, 0);
	interrupts->phase = phase;
	atomic_store(&interrupts->cancel, atomic_load(&interrupts->count) >= 2);
}

enum interrupt_reason interrupts_reason(const struct interrupts *interrupts)
{
	return (enum interrupt_reason)atomic_load(&interrupts->reason);
}

int interrupts_count(const struct interrupts *interrupts)
{
	return atomic_load(&interrupts->count);
}

unsigned interrupts_news(const struct interrupts *interrupts)
{
	return atomic_load(&interrupts->news);
}

void interrupts_give_up(struct interrupts *interrupts)
{
	atomic_store(&interrupts->cancel, 1);
}

void interrupts_try_again(struct interrupts *interrupts)
{
	atomic_store(&interrupts->cancel, 0);
}

void interrupts_clear_event(const struct interrupts *interrupts)
{
	uint64_t count;

	if (read(interrupts->event_fd, &count, sizeof(count)) < 0)
		return;
}
