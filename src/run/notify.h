/*
 * The webhook of a run: a POST for its beginning, its end and its failure. A thread of its own sends them, so
 * that no step waits for a receiver, and the end of the run waits for no more than a few seconds.
 *
 *	notify_start(&notify, workflow->notify, err);
 *	notify_tell(notify, WORKFLOW_NOTIFY_START, &(struct notify_news){ ... });
 *	notify_free(notify);		waits, then gives up with a warning
 */
#ifndef RUN_NOTIFY_H
#define RUN_NOTIFY_H

#include "workflow/model.h"

struct notify;
struct penstock_error;

/* What is told; nothing in here is a secret. */
struct notify_news {
	const char *run_id;
	const char *name; /* NULL: none */
	int attempt;
	const char *state;
	const char *run_class; /* NULL: none */
	int exit_code;
	const char *message; /* NULL: none */
	bool ended;
};

/* *out stays NULL where the workflow names nobody. */
int notify_start(struct notify **out, const struct workflow_notify *to, struct penstock_error *err);
/* Does nothing for an event that was not asked for, and for a NULL notify. */
void notify_tell(
	struct notify *notify, enum workflow_notify_event event, const struct notify_news *news);
void notify_free(struct notify *notify);

#endif
