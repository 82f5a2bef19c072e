/*
 * Signals that ask a run to end, and how urgently.
 *
 *	interrupts_start(&interrupts, err);
 *	interrupts_phase(&interrupts, PHASE_FLUSH);
 *	... pass &interrupts.cancel to what blocks; poll interrupts.event_fd; read interrupts_reason()
 *	interrupts_stop(&interrupts);
 *
 * One thread reads the signals. In every phase the first request asks and the second insists:
 *
 *	phase         first                         second
 *	begin         `cancel` is set               `cancel` stays set in the flush phase, too
 *	steps         the steps are told to end     they are killed
 *	flush         a note that it is uploading   `cancel` is set: `penstock flush` goes on later
 *
 * A request of the begin phase counts in a flush phase that follows at once, where only the run's
 * last words are to be sent; after steps the count begins anew.
 *
 * SIGINT and SIGHUP mean stop (the user's wish), SIGTERM means that the machine is going away
 * (preempted, to be continued); the first to come gives the run its end state.
 */
#ifndef RUN_INTERRUPTS_H
#define RUN_INTERRUPTS_H

#include <pthread.h>
#include <stdatomic.h>

struct penstock_error;

enum interrupt_reason { INTERRUPT_NONE, INTERRUPT_STOP, INTERRUPT_PREEMPT };
enum interrupt_phase { PHASE_BEGIN, PHASE_STEPS, PHASE_FLUSH };

struct interrupts {
	atomic_int cancel;	    /* non-zero: what blocks shall end */
	atomic_int reason;	    /* enum interrupt_reason of the first request */
	atomic_int count;	    /* requests in this phase; written under lock */
	enum interrupt_phase phase; /* under lock */
	pthread_mutex_t lock;	    /* a request belongs to one phase */
	int event_fd;		    /* readable after each request; interrupts_clear_event() */
	int signal_fd;
	int quit_fd;
	pthread_t thread;
	void (*note)(void *cookie, const char *text); /* called from the thread */
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
void interrupts_clear_event(const struct interrupts *interrupts);

#endif
