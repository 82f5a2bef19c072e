/*
 * Google Compute Engine: requests that hang until a value changes. Each request after the first
 * contains the ETag of the last value, so that no change between two requests is missed, and asks
 * for a reply after a minute in any case.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "net/metadata.h"
#include "run/notices/notice.h"
#include "run/notices/replies.h"

enum {
	PROBE_MS = 1000,
	HANG_S = 60,
	HANG_SLACK_MS = 15000,
	POLL_MS = 5000, /* time between two requests if the server does not let requests hang */
	AGAIN_MS = 1000,
};

struct gcp_state {
	/* ETag of the last value; "" if it is missing or cannot be sent in a query */
	char etag[80];
	bool reported;
	bool soon_reported;
};

static struct gcp_state *state_of(struct notice_watch *watch)
{
	if (!watch->state)
		watch->state = calloc(1, sizeof(struct gcp_state));
	return watch->state;
}

static void release(struct notice_watch *watch)
{
	free(watch->state);
}

/* Gets the value of `key`. With `hang` the service replies once the ETag of the value differs from
 * the last ETag, or after HANG_S. */
static int ask(struct notice_watch *watch, const char *key, bool hang, struct buf *out)
{
	struct http_engine *engine = notice_engine(watch);
	struct gcp_state *state = state_of(watch);
	_cleanup_(buf_release) struct buf url = BUF_INIT(LIMIT_STRING);
	_cleanup_(http_reply_release) struct http_reply reply = HTTP_REPLY_INIT;
	const char *flavor;
	int r;

	if (!engine || !state)
		return -1;
	buf_printf(&url, "%s/computeMetadata/v1/instance/%s", watch->base, key);
	if (hang)
		buf_printf(&url, "?wait_for_change=true&timeout_sec=%d&last_etag=%s", HANG_S,
			state->etag);
	if (buf_failed(&url))
		return -1;
	r = metadata_ask(engine,
		&(struct metadata_request){
			.url = buf_str(&url),
			.headers = {"Metadata-Flavor: Google"},
			.timeout_ms = hang ? HANG_S * 1000 + HANG_SLACK_MS : PROBE_MS,
			.cancel = watch->cancel,
		},
		out, &reply, NULL);
	flavor = http_reply_header(&reply, "Metadata-Flavor");
	if (r < 0 || !flavor || strcmp(flavor, "Google") != 0)
		return -1;
	/* Keep the ETag only if it needs no encoding in a query. */
	const char *etag = http_reply_header(&reply, "ETag");
	bool plain = etag && strlen(etag) < sizeof(state->etag) &&
		     !etag[strspn(etag, "0123456789abcdefABCDEFghijklmnopqrstuvwxyz"
					"GHIJKLMNOPQRSTUVWXYZ-_.~")];

	snprintf(state->etag, sizeof(state->etag), "%s", plain ? etag : "");
	return 0;
}

static bool probe(struct notice_watch *watch)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_METADATA_REPLY);
	int r = ask(watch, "id", false, &text);
	struct gcp_state *state = watch->state;

	if (state)
		*state = (struct gcp_state){0};
	return r == 0;
}

/* Calls `check` with each value until `check` reports a notice. A failed request (503 while the
 * machine migrates, for example) is retried. */
static bool follow(struct notice_watch *watch, const char *key, struct notice *out,
	bool (*check)(struct gcp_state *state, const struct buf *text, struct notice *out))
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_METADATA_REPLY);
	struct gcp_state *state = state_of(watch);
	char last[sizeof(state->etag)];

	while (state && !atomic_load(watch->cancel)) {
		int64_t began = clock_monotonic_ms();
		bool hang = *state->etag != '\0';
		int64_t took;
		int r;

		snprintf(last, sizeof(last), "%s", state->etag);
		r = ask(watch, key, hang, &text);
		if (r == 0 && check(state, &text, out))
			return true;
		took = clock_monotonic_ms() - began;
		if (r < 0 && !notice_sleep(watch, AGAIN_MS))
			return false;
		/* Wait if the reply came at once without a change, or if the server sends no
		 * ETag. */
		if (r == 0 && took < POLL_MS &&
			(!*state->etag || (hang && strcmp(last, state->etag) == 0)) &&
			!notice_sleep(watch, POLL_MS - took))
			return false;
	}
	return false;
}

/* ---- instance/preempted ---- */

static bool check_preempted(struct gcp_state *state, const struct buf *text, struct notice *out)
{
	bool preempted = reply_gcp_preempted(buf_str(text), text->len);

	/* Only the value FALSE withdraws the notice; other text, such as the reply of a proxy, does
	 * not. */
	if (state->reported == preempted ||
		(!preempted && !reply_gcp_not_preempted(buf_str(text), text->len)))
		return false;
	state->reported = preempted;
	notice_set(out, "gcp",
		preempted ? "instance/preempted is TRUE" : "instance/preempted is FALSE again");
	out->hard = preempted;
	out->withdrawn = !preempted;
	return true;
}

static bool wait_preempted(struct notice_watch *watch, struct notice *out)
{
	return follow(watch, "preempted", out, check_preempted);
}

/* ---- instance/maintenance-event ---- */

static bool check_maintenance(struct gcp_state *state, const struct buf *text, struct notice *out)
{
	enum gcp_maintenance event = reply_gcp_maintenance(buf_str(text), text->len);

	bool terminates = event == GCP_TERMINATES, migrates = event == GCP_MIGRATES;
	bool changed = terminates != state->reported;

	/* A migration is only a warning, because the machine continues on another host. */
	if (!changed && (migrates == state->soon_reported))
		return false;
	notice_set(out, "gcp-maintenance",
		terminates && changed ? "maintenance-event is TERMINATE_ON_HOST_MAINTENANCE"
		: migrates	      ? "maintenance-event is MIGRATE_ON_HOST_MAINTENANCE"
				      : "maintenance-event is back to NONE");
	if (changed) {
		state->reported = terminates;
		if (!terminates)
			*state->etag = '\0'; /* get the value again: it may announce a migration */
		out->hard = terminates;
		out->withdrawn = !terminates;
	} else {
		state->soon_reported = migrates;
		out->soon = true;
		out->withdrawn = !migrates;
	}
	return true;
}

static bool wait_maintenance(struct notice_watch *watch, struct notice *out)
{
	return follow(watch, "maintenance-event", out, check_maintenance);
}

const struct notice_source_ops notice_gcp_preempted = {
	.name = "gcp", .probe = probe, .wait = wait_preempted, .release = release};
const struct notice_source_ops notice_gcp_maintenance = {
	.name = "gcp", .probe = probe, .wait = wait_maintenance, .release = release};
