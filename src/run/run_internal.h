/* One run while it lives; shared by the files of src/run and by nobody else. */
#ifndef RUN_RUN_INTERNAL_H
#define RUN_RUN_INTERNAL_H

#include <pthread.h>

#include <penstock/error.h>

#include "base/limits.h"
#include "records/claims.h"
#include "run/executor.h"
#include "run/interrupts.h"
#include "run/layout.h"
#include "run/notice_settings.h"
#include "run/run.h"
#include "run/shares.h"
#include "run/stores.h"

struct cgroup;
struct lease;
struct run_image;
struct log_upload;
struct run_checkpoints;
struct notify;
struct output;
struct sync;
struct sync_options;

/* How a run ends; decided once, by the first thing that ends it. */
struct run_end {
	bool decided;
	enum run_state state;
	enum run_class class;
	int exit_code; /* of penstock */
	int step_code; /* the step's own exit code where penstock shows another; else 0 */
	char *message; /* owned */
};

struct run {
	const struct run_options *options;
	const struct workflow *workflow;
	char id[RECORDS_ID_SIZE];
	atomic_int attempt;
	bool continuing;   /* goes on with what earlier attempts left */
	bool strays;	   /* processes of a lost attempt may still live */
	bool only_copy;	   /* the output of the last attempt may be nowhere else */
	bool steps_began;  /* of this attempt, or found to be finished */
	size_t steps_done; /* finished by earlier attempts, to be skipped */
	struct run_layout layout;
	int lock_fd;
	struct machine_capacity machine;
	struct claim_limits limits; /* of this user */
	struct claim *claim;
	struct shares shares;	  /* of the claim, among the steps that live */
	unsigned long serial;	  /* of the last execution of a step */
	struct live_files *live;  /* of those that live; NULL: none has begun */
	int64_t overdue_until_ms; /* that is over: when what cleans up after it has to be through */
	int64_t deadline_ms;	  /* of all steps together; 0: none, or none has begun */
	int ports[LIMIT_WORKFLOW_PORTS]; /* workflow->ports of them, found before the first step */
	bool told_no_limits;		 /* that this machine does not hold the limits, once */
	bool told_no_processes;
	struct {
		bool made;
		struct cgroup *cgroup; /* around those of its steps; NULL: none is, or can be */
		uint64_t memory_limit;
	} group;
	struct interrupts interrupts;
	struct notice_settings preemption;
	atomic_bool laid_out;	 /* `layout` stays as it is: other threads may use it */
	struct notices *notices; /* NULL: none are watched for */
	/* Set by the main thread; interrupts and sources of notices write notes to it, too. */
	struct output *_Atomic output;
	struct stores stores;
	struct run_image *images; /* of the steps' containers */
	char *staged;	       /* owned; what the inputs were, a JSON array; NULL: not staged yet */
	struct run_store *out; /* of an S3 output, else NULL */
	char *state_prefix;    /* ".penstock/runs/ID" */
	struct sync *sync;     /* NULL unless the output is S3 */
	struct lease *lease;   /* likewise */
	atomic_bool out_of_time;   /* the machine goes before all of the output can be published */
	struct flush_clock *clock; /* NULL: nobody looks at the time */
	bool fenced;		   /* another owner has the run: nothing is published any more */
	char *checkpoint; /* owned; below the output: the newest that is whole, NULL: none */
	pthread_mutex_t checkpoints_lock;
	struct run_checkpoints *checkpoints; /* under that lock; NULL: nobody looks after them */
	struct log_upload *log_upload;
	struct notify *notify; /* NULL: nobody is told */
	char *venv;	       /* owned; of the steps' Python packages, NULL: none */
	struct run_end end;
	int reserve_fd; /* an unnamed file that keeps room for the end; -1: none, or given back */
	int64_t retry_in_ms; /* known at the end; -1: no other attempt follows */
	char *output_place;  /* owned; of a run that succeeded: where its output is */
};

void run_event(const struct run *run, enum run_event_kind kind, const char *text, uint64_t done,
	uint64_t total);
void run_say(const struct run *run, enum run_event_kind kind, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Decides the end unless it is decided; later ones are only logged. */
void run_end(struct run *run, enum run_state state, enum run_class class, int exit_code,
	const char *fmt, ...) __attribute__((format(printf, 5, 6)));
/* Of penstock, where an error ends something of this class. */
int run_exit_code(enum run_class class, enum penstock_code code);
/* The same from an error; releases it. A cancelled one ends as the interrupt says. */
void run_end_error(struct run *run, enum run_class class, struct penstock_error *err);

/*
 * Everything that is refused without leaving a trace: a live identity, resources that can never fit,
 * output that was not uploaded. Then records the attempt.
 */
int run_begin(struct run *run, struct penstock_error *err);
/* Holds runs/ID/lock; refuses, and names the owner, where somebody does. */
int run_take_lock(struct run *run, struct penstock_error *err);
/* For a run that starts anew. What may not have been uploaded is moved aside, never removed. */
int run_clear_storage(struct run *run, struct penstock_error *err);
/* Whether the output directory holds anything. */
bool run_has_output(const struct run *run);
/* Says where the output goes, for people and records; NULL: nowhere, or no memory. */
char *run_describe_output(const struct workflow_output *output);
int run_keep_workflow(struct run *run, struct penstock_error *err);
void run_claim_request(const struct run *run, struct claim_request *request);

/* The pieces that `penstock flush` shares with the end of a run. */
int run_open_output(struct run *run, struct penstock_error *err);
void run_sync_options(struct run *run, const char *journal, struct sync_options *options);
/* Until all is published, or nothing has moved for FLUSH_PATIENCE while uploads fail. */
int run_flush_sync(struct run *run, struct sync *sync, struct penstock_error *err);
int run_flush_http(struct run *run, struct penstock_error *err);
/*
 * Ends what still sends (interrupts.cancel) when the machine is about to go: first so early that there is time for the
 * last words, then those. Nothing waits for a store longer than the machine stays.
 */
void run_watch_the_time(struct run *run);
void run_watch_the_last_words(struct run *run);
void run_forget_the_time(struct run *run);
/* What has to happen before a flush that failed so can succeed: "; make room in the store, then". */
/* Stands between a directory and 'penstock flush'. */
const char *run_flush_hint(enum penstock_code code);
/* What would make the first step fail, before anything is brought in for it. */
int run_check_first_step(struct run *run, struct penstock_error *err);
/* Makes the run and its output ours, or refuses. What another machine had of it since decides how it goes on. */
int run_take_lease(struct run *run, struct penstock_error *err);
/* For what the last attempt left to be uploaded. */
int run_take_lease_to_flush(struct run *run, struct penstock_error *err);
/* Whether another home's attempt came after what is in the storage, which is not restored yet. */
bool run_is_superseded(const struct run *run);
/* The attempt that began anew what this one continues; 0: not known. */
int run_began_with(const struct run *run);
/* So that an attempt that continues this one knows what was there before it. */
int run_note_beginning(const struct run *run, struct penstock_error *err);
/* So that what this attempt continues is not forgotten if it ends before its steps. */
int run_note_going_on(const struct run *run, struct penstock_error *err);
int run_begin_log_upload(struct run *run, struct penstock_error *err);
void run_record_sync(struct run *run);

/* Keeps some room on the disk of the records and the log, which a step may fill. */
void run_reserve_room(struct run *run);
/* Gives it back; true: there was some, so what had no room may try again. */
bool run_give_room(struct run *run);

/* Tells the webhook, if it wants to know. */
void run_tell(const struct run *run, enum workflow_notify_event event);
/* The steps' free ports, which the file `ports` of the run shows. */
int run_find_ports(struct run *run, struct penstock_error *err);

/* Runs the steps that are not done yet; every way out leaves no process behind. */
void run_steps(struct run *run);
/* At the end of a preempted attempt, whose next one may come after another boot: what its finished steps left stays whole. */
void run_settle_storage(const struct run *run, bool flushed);

#endif
