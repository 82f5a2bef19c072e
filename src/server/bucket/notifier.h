/*
 * Notifications of buckets: an observer of the store writes an event in the transaction of a
 * change. Each webhook has a thread, which delivers the events of the webhook in their order, each
 * at least once. An event that its webhook refuses again and again is dropped, so that it does not
 * block other events.
 *
 * The operator names the webhooks in ROOT/webhooks, one per line: NAME URL [TOKEN]
 * [account=NUMBER]. The ARN of a webhook is arn:penstock:sqs::NAME:webhook. TOKEN is sent as a
 * bearer token. Buckets of the account NUMBER may notify the webhook; the default is the store's
 * first account.
 *
 *	r = notifier_start(&notify, store, root, 1000, err);
 *	...
 *	if (notifier_has(notify, "arn:penstock:sqs::ci:webhook", bucket.owner))
 *	...
 *	notifier_stop(notify);
 */
#ifndef SERVER_BUCKET_NOTIFIER_H
#define SERVER_BUCKET_NOTIFIER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct notifier;
struct penstock_error;
struct store;

/* Name of a bucket's notification configuration in the store. */
#define NOTIFICATION_CONFIG "notification"

/* A webhook that fails is tried again after `retry_ms`, and then after longer pauses. */
int notifier_start(struct notifier **out, struct store *store, const char *root, int64_t retry_ms,
	struct penstock_error *err);
/* Returns true if any bucket has notifications; false if `notify` is NULL. */
bool notifier_any(struct notifier *notify);
/* Applies a change of a bucket's configuration, as configs_update() does; `notify` may be NULL. */
bool notifier_update(struct notifier *notify, const char *bucket);
/* Returns true if the operator has named a webhook with this ARN for the account `owner`, which may
 * be "" for ACCOUNT_FIRST. */
bool notifier_has(const struct notifier *notify, const char *arn, const char *owner);
/* Adds AWS's test event for a new destination. */
int notifier_test(struct notifier *notify, const char *arn, const char *bucket,
	const char *request_id, struct penstock_error *err);
struct notifier_stat {
	const char *name;
	size_t waiting;
	int64_t lag_ns; /* the age of the oldest event that waits */
	uint64_t dropped; /* events dropped since the start because too many events waited */
	/* events dropped since the start because the webhook refused them too often */
	uint64_t refused;
};
/* Gets the statistics of webhook `i`. Returns false if there is no such webhook, or if `notify` is
 * NULL. */
bool notifier_stat(struct notifier *notify, size_t i, struct notifier_stat *out);
/* Ends a delivery in progress, whose event stays in the queue. `notify` may be NULL. */
void notifier_stop(struct notifier *notify);

#endif
