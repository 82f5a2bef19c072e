/*
 * The notifications of a bucket: their document, and the rules that apply to an event.
 *
 *	struct s3_notification rules = {0};
 *
 *	if (s3_notification_parse(text, len, &rules, err) < 0)
 *		return -err->code;
 *	for (size_t i = 0; i < rules.n; i++)
 *		if (s3_notification_means(&rules.rules[i], "ObjectCreated:Put", "key"))
 *			... an event for rules.rules[i].queue ...
 *	s3_notification_release(&rules);
 */
#ifndef S3_BUCKET_NOTIFICATION_H
#define S3_BUCKET_NOTIFICATION_H

#include "s3/bucket/refusal.h"
#include "s3/message/messages.h"

struct s3_notification_rule {
	const char *id; /* NULL if the document has no id: set an id before writing */
	const char *queue; /* the name of the destination (an ARN) */
	struct s3_texts events; /* "s3:ObjectCreated:*" */
	const char *prefix, *suffix; /* NULL if the rule has no such condition */
	/* The texts of the document, from which the parser sets `prefix` and `suffix`. */
	struct s3_texts names, values;
};

/* NotificationConfiguration. */
struct s3_notification {
	struct arena arena;
	struct s3_notification_rule *rules;
	size_t n;
	struct s3_refusal refusal; /* set by a failed parse */
};
int s3_notification_parse(
	const char *xml, size_t len, struct s3_notification *out, struct penstock_error *err);
void s3_notification_write(struct buf *out, const struct s3_notification *notification);
void s3_notification_release(struct s3_notification *message);

/* Returns true if a rule matches the key, and an event such as "ObjectCreated:Put". */
bool s3_notification_means(
	const struct s3_notification_rule *rule, const char *event, const char *key);

#endif
