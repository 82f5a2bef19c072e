/*
 * The rules by which the versions of a bucket are sent to other buckets: their document, and the
 * rule that applies to a version.
 *
 *	struct s3_replication rules = {0};
 *	const struct s3_replication_rule *rule;
 *
 *	if (s3_replication_parse(text, len, &rules, err) < 0)
 *		return -err->code;
 *	rule = s3_replication_choose(&rules, "backup", &(struct s3_replication_version){
 *		.key = "key", .tags = "team=a" });
 *	if (rule)
 *		... the version is sent to arn:aws:s3:::backup ...
 *	s3_replication_release(&rules);
 */
#ifndef S3_BUCKET_REPLICATION_H
#define S3_BUCKET_REPLICATION_H

#include "s3/bucket/refusal.h"
#include "s3/message/messages.h"

struct s3_replication_rule {
	const char *id; /* NULL if the document has no id: set an id before writing */
	bool enabled;
	bool old_form; /* the prefix is not part of a Filter */
	bool markers; /* delete markers are sent, too */
	unsigned priority;
	/* Conditions; all of them must hold. */
	const char *prefix; /* NULL if the rule has no prefix */
	bool is_and; /* the document has an element And */
	struct s3_texts tags; /* each as in x-amz-tagging: "key=value" */
	const char *bucket; /* the name of the destination, without "arn:aws:s3:::" */
	bool first; /* the first of the rules with this destination */
	const char *class; /* the storage class of the copies; NULL for the version's class */
	/* The texts of the document, from which the parser sets the members above. */
	struct {
		const char *status, *priority, *prefix, *filter, *and, *markers, *marker_status;
		const char *destination, *time, *metrics;
		const char *existing, *selection, *kms, *modifications;
		struct s3_texts prefixes, tags, keys, values;
	} raw;
};

/* ReplicationConfiguration. */
struct s3_replication {
	struct arena arena;
	const char *role;
	struct s3_replication_rule *rules;
	size_t n;
	struct s3_refusal refusal; /* set by a failed parse */
};
int s3_replication_parse(
	const char *xml, size_t len, struct s3_replication *out, struct penstock_error *err);
void s3_replication_write(struct buf *out, const struct s3_replication *replication);
void s3_replication_release(struct s3_replication *message);

struct s3_replication_version {
	const char *key;
	const char *tags; /* as s3_tagging_write_query() writes them; may be NULL */
	bool marker; /* a delete marker, which has no tags */
};
/* Returns the rule by which a version is sent to a destination: the rule with the highest priority
 * of those that apply to the version. Returns NULL if the version is not sent. */
const struct s3_replication_rule *s3_replication_choose(const struct s3_replication *replication,
	const char *bucket, const struct s3_replication_version *version);

#endif
