/*
 * Azure: scheduled events are polled every second. Only a Preempt event with this machine's name
 * counts. The first reply may take two minutes, because the request enables the service. Once the
 * run's state is written, the event is acknowledged, so that Azure can end the machine early. An
 * event is not acknowledged if it names other machines too, or if other runs on this machine may
 * still be saving.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "net/metadata.h"
#include "run/notices/notice.h"
#include "run/notices/replies.h"

#define EVENTS_PATH "/metadata/scheduledevents?api-version=2020-07-01"
#define NAME_PATH   "/metadata/instance/compute/name?api-version=2021-02-01&format=text"

enum {
	POLL_MS = 1000,
	TIMEOUT_MS = 1000,
	FIRST_TIMEOUT_MS = 150 * 1000,
	NEXT_TIMEOUT_MS = 5000,
};

struct azure_state {
	char name[256];
	int64_t asked_ms;
	bool answered; /* the service is enabled */
	struct azure_event event; /* the reported event; its id is "" if there is none */
};

static void release(struct notice_watch *watch)
{
	free(watch->state);
}

static int ask(struct notice_watch *watch, const char *path, const char *body, int64_t timeout_ms,
	struct buf *out, struct http_reply *reply)
{
	_cleanup_(buf_release) struct buf url = BUF_INIT(LIMIT_STRING);
	struct http_engine *engine = notice_engine(watch);

	buf_printf(&url, "%s%s", watch->base, path);
	if (!engine || buf_failed(&url))
		return -1;
	return metadata_ask(engine,
		&(struct metadata_request){
			.method = body ? "POST" : "GET",
			.url = buf_str(&url),
			.headers = {"Metadata: true",
				body ? "Content-Type: application/json" : NULL},
			.body = body,
			.timeout_ms = timeout_ms,
			.cancel = watch->cancel,
		},
		out, reply, NULL);
}

/* Gets the name that events use for this machine. */
static bool probe(struct notice_watch *watch)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_METADATA_REPLY);
	struct azure_state *state = watch->state ? watch->state : calloc(1, sizeof(*state));

	watch->state = state;
	if (!state || ask(watch, NAME_PATH, NULL, TIMEOUT_MS, &text, NULL) < 0)
		return false;
	snprintf(state->name, sizeof(state->name), "%.*s", (int)strcspn(buf_str(&text), "\r\n"),
		buf_str(&text));
	return *state->name;
}

static bool check(struct notice_watch *watch, struct notice *out)
{
	struct azure_state *state = watch->state;
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_METADATA_REPLY);
	_cleanup_(http_reply_release) struct http_reply reply = HTTP_REPLY_INIT;
	struct azure_event event = {0};
	int found;

	if (ask(watch, EVENTS_PATH, NULL, state->answered ? NEXT_TIMEOUT_MS : FIRST_TIMEOUT_MS,
		    &text, &reply) < 0)
		return false;
	found = reply_azure_events(buf_str(&text), text.len, state->name, &event);
	state->answered |= found >= 0;
	if (found < 0 || strcmp(event.id, state->event.id) == 0)
		return false;
	if (found == 1) {
		char reason[200];

		state->event = event;
		snprintf(reason, sizeof(reason), "scheduled event %.120s: Preempt, %.24s", event.id,
			*event.status ? event.status : "no status");
		notice_set(out, "azure", reason);
		out->hard = true;
		if (event.not_before_s)
			notice_set_lead(out,
				reply_lead_ms(event.not_before_s, http_reply_header(&reply, "Date"),
					clock_wall_ns() / NS_PER_S));
		return true;
	}
	notice_set(out, "azure", "the scheduled event was withdrawn");
	out->withdrawn = true;
	state->event = (struct azure_event){0};
	return true;
}

static bool wait_for_event(struct notice_watch *watch, struct notice *out)
{
	struct azure_state *state = watch->state;

	do {
		if (check(watch, out))
			return true;
	} while (notice_next(watch, &state->asked_ms, POLL_MS));
	return false;
}

static void acknowledge(struct notice_watch *watch)
{
	struct azure_state *state = watch->state;
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_METADATA_REPLY);
	_cleanup_free_ char *body = NULL;
	json_auto_t *json = NULL;

	if (!*state->event.id || !state->event.alone)
		return;
	json = json_pack("{s:[{s:s}]}", "StartRequests", "EventId", state->event.id);
	body = json ? json_dumps(json, JSON_COMPACT) : NULL;
	if (!body || ask(watch, EVENTS_PATH, body, NEXT_TIMEOUT_MS, &text, NULL) < 0)
		log_debug("cannot acknowledge Azure event '%s'", state->event.id);
}

const struct notice_source_ops notice_azure = {.name = "azure",
	.probe = probe,
	.wait = wait_for_event,
	.done = acknowledge,
	.release = release};
