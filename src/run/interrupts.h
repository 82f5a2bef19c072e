/*
 * What asks a run to end, and how urgently: signals, and notices that the machine goes away.
 *
 *	interrupts_start(&interrupts, err);
 *	interrupts_phase(&interrupts, PHASE_FLUSH);
 *	... pass &interrupts.cancel to what blocks; poll interrupts.event_fd; read interrupts_reason()
 *	interrupts_stop(&interrupts);
 *
 * One thread reads the signals; notices come from the threads of their sources. The user's requests (SIGINT and SIGHUP,
 * `penstock stop`) insist when they come again:
 *
 *	phase         first                         second
 *	begin         `cancel` is set               `cancel` stays set in the flush phase, too
 *	steps         the steps are told to end     they are killed
 *	flush         a note that it is uploading   `cancel` is set: `penstock flush` goes on later
 *
 * A request of the begin phase counts in a flush phase that follows at once, where only the run's
 * last words are to be sent; after steps the count begins anew.
 *
 * SIGTERM, SIGUSR1 and SIGUSR2 are notices of the machine (preempted, to be continued). A notice asks once, however many
 * come: a machine that goes away says so in several ways, and none of them must end a save that is under way. The first
 * to come, a request or a notice, gives the run its end state.
 */
#ifndef RUN_INTERRUPTS_H
#define RUN_INTERRUPTS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "run/notice.h"

struct penstock_error;

enum interrupt_reason { INTERRUPT_NONE, INTERRUPT_STOP, INTERRUPT_PREEMPT };
enum interrupt_phase { PHASE_BEGIN, PHASE_STEPS, PHASE_FLUSH };
enum { INTERRUPT_NOTICES = 64 }; /* that stand at once: of each source one */

struct interrupts {
	atomic_int cancel;	    /* non-zero: what blocks shall end */
	atomic_int reason;	    /* enum interrupt_reason of the first request */
	atomic_int count;	    /* requests in this phase; written under lock */
	atomic_uint news;	    /* grows with each event */
	enum interrupt_phase phase; /* under lock */
	struct notice notice; /* under lock: of all that ask for the end; no source: none has */
	struct notice soon;   /* under lock: that only says what may come; no source: none */
	struct notice standing[INTERRUPT_NOTICES]; /* under lock: what `notice` is made of */
	size_t n_standing;
	unsigned serial;      /* under lock */
	pthread_mutex_t lock; /* a request belongs to one phase */
	int event_fd;	      /* readable after each request; interrupts_clear_event() */
	int signal_fd;
	int quit_fd;
	pthread_t thread;
	int64_t grace_ms; /* of a notice that does not say when; 0: 30 s */
	void (*note)(void *cookie, const char *text); /* called from the thread */
	/* Fills in what a signal means, where more is known of it; from the thread. NULL: nothing is. */
	void (*describe)(void *cookie, int signal, struct notice *notice);
	/* Called for each notice that says something new, from the thread that brought it. */
	void (*noticed)(void *cookie, const struct notice *notice);
	void *cookie;
};

/* Blocks what interrupts read, and SIGCHLD and SIGPIPE; call it before the first thread is made. */
void interrupts_block_signals(void);

/* The signals must be blocked already. */
int interrupts_start(struct interrupts *interrupts, struct penstock_error *err);
void interrupts_stop(struct interrupts *interrupts);

void interrupts_phase(struct interrupts *interrupts, enum interrupt_phase phase);
enum interrupt_reason interrupts_reason(const struct interrupts *interrupts);
/* Requests in this phase: 0 none, 1 asked, 2 and more insisted. */
int interrupts_count(const struct interrupts *interrupts);
/* Sets `cancel` without a request: what is left to be sent cannot be. */
void interrupts_give_up(struct interrupts *interrupts);
/* Another number than before: something has come. */
unsigned interrupts_news(const struct interrupts *interrupts);
/* Takes that back, for the last words. */
void interrupts_try_again(struct interrupts *interrupts);
void interrupts_clear_event(const struct interrupts *interrupts);

/*
 * Any thread. Of several that ask for the end the earliest deadline counts; it is withdrawn when each source that has
 * asked has withdrawn its own.
 */
void interrupts_notice(struct interrupts *interrupts, const struct notice *given);
/* False: there is none. Its `withdrawn` says that it does not hold any more. */
bool interrupts_get_notice(struct interrupts *interrupts, struct notice *out);
bool interrupts_get_soon(struct interrupts *interrupts, struct notice *out);
/* The notice was withdrawn and nothing has come of it: as if it had never been. False: it stands, or the user insists. */
bool interrupts_forget_notice(struct interrupts *interrupts);

#endif
