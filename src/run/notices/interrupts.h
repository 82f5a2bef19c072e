/*
 * Requests and notices that end a run, and their urgency: signals, and preemption notices.
 *
 *	interrupts_start(&interrupts, err);
 *	interrupts_phase(&interrupts, PHASE_FLUSH);
 *	... pass &interrupts.cancel to blocking calls; poll interrupts.event_fd;
 *	... read interrupts_reason()
 *	interrupts_stop(&interrupts);
 *
 * One thread reads the signals; notices come from the threads of their sources. Requests of the
 * user (SIGINT and SIGHUP, `penstock stop`) are more urgent when repeated:
 *
 *	phase         first                         second
 *	begin         `cancel` is set               `cancel` stays set in the flush phase, too
 *	steps         the steps are asked to end    they are killed
 *	flush         a note: still uploading       `cancel` is set; `penstock flush` resumes later
 *
 * A request of the begin phase counts in the phase that follows: the steps are asked to end, or the
 * flush only sends the run's final state. After the steps phase the count starts again.
 *
 * SIGTERM, SIGUSR1 and SIGUSR2 are notices of the machine (preempted, to be resumed). Several
 * notices count as one: a machine that goes away announces its end in several ways, and no further
 * notice may end a save in progress. The first request or notice determines the end state of the
 * run.
 */
#ifndef RUN_NOTICES_INTERRUPTS_H
#define RUN_NOTICES_INTERRUPTS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "run/notices/notice.h"

struct penstock_error;

enum interrupt_reason { INTERRUPT_NONE, INTERRUPT_STOP, INTERRUPT_PREEMPT };
enum interrupt_phase { PHASE_BEGIN, PHASE_STEPS, PHASE_FLUSH };
enum { INTERRUPT_NOTICES = 64 }; /* notices that are active at a time: one per source */

struct interrupts {
	atomic_int cancel; /* non-zero: blocking calls must end */
	atomic_int reason; /* enum interrupt_reason of the first request or notice */
	atomic_int count; /* requests in this phase, see interrupts_count(); written under lock */
	atomic_uint news; /* incremented with each event */
	enum interrupt_phase phase; /* under lock */
	/* under lock: all notices of the machine's end, merged; the source is "" if there is
	 * none */
	struct notice notice;
	/* under lock: warning that the machine may end soon; the source is "" if there is none */
	struct notice soon;
	struct notice active[INTERRUPT_NOTICES]; /* under lock: the notices merged in `notice` */
	size_t n_active;
	unsigned serial; /* under lock */
	/* held while a request or a notice is recorded, so that it belongs to one phase */
	pthread_mutex_t lock;
	int event_fd; /* readable after each request or notice, until interrupts_clear_event() */
	int signal_fd;
	int quit_fd;
	pthread_t thread;
	int64_t grace_ms; /* grace period of a notice without a deadline; 0 for 30 s */
	void (*note)(void *cookie, const char *text); /* called from the signal thread */
	/* Adds what is known about a signal; called from the thread that reads signals. May be
	 * NULL. */
	void (*describe)(void *cookie, int signal, struct notice *notice);
	/* Called for each notice with new information, from the thread of its source or of the
	 * signals. */
	void (*noticed)(void *cookie, const struct notice *notice);
	void *cookie;
};

/* Blocks the signals that interrupts_start() reads, and SIGCHLD and SIGPIPE. Ignores SIGXFSZ, and
 * no longer ignores SIGINT. Call it before the first thread is made. */
void interrupts_block_signals(void);

/* Starts the thread that reads the signals, which must be blocked already. */
int interrupts_start(struct interrupts *interrupts, struct penstock_error *err);
void interrupts_stop(struct interrupts *interrupts);

void interrupts_phase(struct interrupts *interrupts, enum interrupt_phase phase);
enum interrupt_reason interrupts_reason(const struct interrupts *interrupts);
/* Returns the number of requests in this phase, or 0. All notices before the first request together
 * count as one request. */
int interrupts_count(const struct interrupts *interrupts);
/* Sets `cancel` without a request, if the remaining data cannot be sent. */
void interrupts_give_up(struct interrupts *interrupts);
/* Clears `cancel` again, for the last writes of the run. */
void interrupts_try_again(struct interrupts *interrupts);
/* Returns a number that changes with each request and each notice. */
unsigned interrupts_news(const struct interrupts *interrupts);
void interrupts_clear_event(const struct interrupts *interrupts);

/* Reports a notice, from any thread. If there are several notices of the machine's end, the
 * earliest deadline counts, and the merged notice is withdrawn once each source has withdrawn its
 * own. */
void interrupts_notice(struct interrupts *interrupts, const struct notice *given);
/* Return false if there is no notice. `withdrawn` is set if the notice no longer holds. */
bool interrupts_get_notice(struct interrupts *interrupts, struct notice *out);
bool interrupts_get_soon(struct interrupts *interrupts, struct notice *out);
/* Removes a withdrawn notice that had no effect, and in the begin phase clears `cancel`. Returns
 * false if the notice still holds, or if the user has also requested the end. */
bool interrupts_forget_notice(struct interrupts *interrupts);

#endif
