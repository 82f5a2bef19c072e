/*
 * Amazon EC2: two documents that appear when there is a notice, polled every five seconds with a
 * session token (IMDSv2).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "net/metadata.h"
#include "run/notices/notice.h"
#include "run/notices/replies.h"

#define ACTION_PATH    "/latest/meta-data/spot/instance-action"
#define REBALANCE_PATH "/latest/meta-data/events/recommendations/rebalance"

enum {
	POLL_MS = 5000,
	TIMEOUT_MS = 1000,
	TOKEN_S = 21600,
	TOKEN_KEPT_MS = (TOKEN_S - 600) * 1000,
};

struct aws_state {
	struct buf header; /* header with the session token; empty if there is none yet */
	int64_t token_until_ms;
	int64_t asked_ms;
	bool asked; /* the service was queried at least once */
	bool action_reported;
	int64_t action_ns; /* the time of the action */
	bool rebalance_reported;
};

static void release(struct notice_watch *watch)
{
	struct aws_state *state = watch->state;

	if (state->header.data)
		explicit_bzero(state->header.data, state->header.cap);
	buf_release(&state->header);
	free(state);
}

static struct aws_state *state_of(struct notice_watch *watch)
{
	struct aws_state *state = watch->state;

	if (!state && (state = calloc(1, sizeof(*state)))) {
		state->header = (struct buf)BUF_INIT(LIMIT_HTTP_HEADERS);
		watch->state = state;
	}
	return state;
}

static int renew_token(struct notice_watch *watch)
{
	struct aws_state *state = state_of(watch);
	struct http_engine *engine = notice_engine(watch);

	if (!state || !engine)
		return -1;
	if (metadata_aws_token(engine,
		    &(struct metadata_request){.url = watch->base,
			    .timeout_ms = TIMEOUT_MS,
			    .attempts = 1,
			    .cancel = watch->cancel},
		    TOKEN_S, &state->header, NULL) < 0) {
		buf_clear(&state->header);
		return -1;
	}
	state->token_until_ms = clock_monotonic_ms() + TOKEN_KEPT_MS;
	return 0;
}

static bool probe(struct notice_watch *watch)
{
	return renew_token(watch) == 0;
}

/* Requests a document. Returns 1 if the document exists, 0 if not, -1 if unknown. A rejected token
 * is renewed once. */
static int ask(
	struct notice_watch *watch, const char *path, struct buf *out, struct http_reply *reply)
{
	struct aws_state *state = state_of(watch);
	_cleanup_(buf_release) struct buf url = BUF_INIT(LIMIT_STRING);

	buf_printf(&url, "%s%s", watch->base, path);
	if (!state || buf_failed(&url))
		return -1;
	for (int i = 0; i < 2; i++) {
		_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
		int r;

		if ((!state->header.len || clock_monotonic_ms() >= state->token_until_ms) &&
			renew_token(watch) < 0)
			return -1;
		http_reply_release(reply);
		*reply = (struct http_reply)HTTP_REPLY_INIT;
		r = metadata_ask(notice_engine(watch),
			&(struct metadata_request){
				.url = buf_str(&url),
				.headers = {buf_str(&state->header)},
				.timeout_ms = TIMEOUT_MS,
				.cancel = watch->cancel,
			},
			out, reply, &err);
		if (r == 0)
			return 1;
		if (r == -PENSTOCK_E_NOT_FOUND)
			return 0;
		if (err.http_status != 401)
			return -1;
		buf_clear(&state->header);
	}
	return -1;
}

/* Returns true if `out` is a new notice, or withdraws one because the reported action is gone
 * (404). A failed request changes nothing. */
static bool check_action(struct notice_watch *watch, struct notice *out)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_METADATA_REPLY);
	_cleanup_(http_reply_release) struct http_reply reply = HTTP_REPLY_INIT;
	struct aws_state *state = watch->state;
	struct aws_action action;
	char reason[80];
	int found = ask(watch, ACTION_PATH, &text, &reply);

	if (found == 0 && state->action_reported) {
		state->action_reported = false;
		notice_set(out, "aws", "spot/instance-action was withdrawn");
		out->withdrawn = true;
		return true;
	}
	if (found != 1 || !reply_aws_action(buf_str(&text), text.len, &action) ||
		(state->action_reported && state->action_ns == action.time_ns))
		return false;
	state->action_reported = true;
	state->action_ns = action.time_ns;
	snprintf(reason, sizeof(reason), "spot/instance-action: %s", action.action);
	notice_set(out, "aws", reason);
	out->hard = true;
	if (action.time_ns)
		notice_set_lead(out,
			reply_lead_ms(action.time_ns / NS_PER_S, http_reply_header(&reply, "Date"),
				clock_wall_ns() / NS_PER_S));
	return true;
}

static bool check_rebalance(struct notice_watch *watch, struct notice *out)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_METADATA_REPLY);
	_cleanup_(http_reply_release) struct http_reply reply = HTTP_REPLY_INIT;
	struct aws_state *state = watch->state;
	int found = ask(watch, REBALANCE_PATH, &text, &reply);
	bool there = found == 1 && reply_aws_rebalance(buf_str(&text), text.len);

	if (there == state->rebalance_reported || (!there && found != 0))
		return false;
	state->rebalance_reported = there;
	notice_set(out, "aws",
		there ? "rebalance recommendation" : "the rebalance recommendation was withdrawn");
	out->soon = true;
	out->withdrawn = !there;
	return true;
}

static bool wait_for_notice(struct notice_watch *watch, struct notice *out)
{
	struct aws_state *state = state_of(watch);

	if (!state)
		return false;
	while (!state->asked || notice_next(watch, &state->asked_ms, POLL_MS)) {
		state->asked = true;
		if (check_action(watch, out) || check_rebalance(watch, out))
			return true;
	}
	return false;
}

const struct notice_source_ops notice_aws = {
	.name = "aws", .probe = probe, .wait = wait_for_notice, .release = release};
