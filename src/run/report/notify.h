/*
 * The webhook of a run: a POST at its start, its end and its failure. A thread sends the requests,
 * so that no step waits for a receiver, and the end of the run waits for a few seconds at most.
 *
 *	notify_start(&notify, workflow->notify, err);
 *	notify_send(notify, WORKFLOW_NOTIFY_START, &(struct notify_event){ ... });
 *	notify_free(notify);	// waits, then gives up with a warning
 */
#ifndef RUN_REPORT_NOTIFY_H
#define RUN_REPORT_NOTIFY_H

#include "workflow/model.h"

struct notify;
struct penstock_error;

/* Contents of a request, which holds no secret. */
struct notify_event {
	const char *run_id;
	const char *name; /* NULL if the workflow has no name */
	int attempt;
	const char *state;
	const char *run_class; /* NULL if the run has no class */
	int exit_code;
	const char *message; /* NULL if the end has no message */
	bool ended;
};

/* Starts the thread of the webhook. *out stays NULL if the workflow names no webhook. */
int notify_start(struct notify **out, const struct workflow_notify *to, struct penstock_error *err);
/* Ignores events that the workflow does not ask for; `notify` may be NULL. */
void notify_send(
	struct notify *notify, enum workflow_notify_event event, const struct notify_event *news);
void notify_free(struct notify *notify);

#endif
