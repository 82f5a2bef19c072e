/*
 * Notifications of buckets: an observer of the store writes an event in the transaction of its
 * change, and a thread delivers it to a webhook, at least once, those of a webhook in their order.
 *
 * The operator names the webhooks in ROOT/webhooks, one on a line: NAME URL [TOKEN]. The ARN of one
 * is arn:penstock:sqs::NAME:webhook. A token is sent as a bearer.
 *
 *	r = notifier_start(&notify, store, root, err);
 *	...
 *	if (notifier_has(notify, "arn:penstock:sqs::ci:webhook"))
 *	...
 *	notifier_stop(notify);
 */
#ifndef SERVER_BUCKET_NOTIFIER_H
#define SERVER_BUCKET_NOTIFIER_H

#include <stdbool.h>

struct notifier;
struct penstock_error;
struct store;

/* The configuration of a bucket. */
#define NOTIFICATION_CONFIG "notification"

int notifier_start(
	struct notifier **out, struct store *store, const char *root, struct penstock_error *err);
/* Returns true if a bucket has notifications; false if `notify` is NULL. */
bool notifier_any(struct notifier *notify);
/* Returns true if the operator has named that webhook. */
bool notifier_has(const struct notifier *notify, const char *arn);
/* Adds AWS's test event for a new destination. */
int notifier_test(struct notifier *notify, const char *arn, const char *bucket,
	const char *request_id, struct penstock_error *err);
/* Ends a delivery in progress, whose event stays. NULL is allowed. */
void notifier_stop(struct notifier *notify);

#endif
