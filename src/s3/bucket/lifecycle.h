/*
 * The lifecycle rules, by which objects, versions and uploads of a bucket expire: their document,
 * and the decisions that follow from it.
 *
 *	struct s3_lifecycle rules = {0};
 *	struct s3_lifecycle_end end;
 *
 *	if (s3_lifecycle_parse(text, len, &rules, err) < 0)
 *		return -err->code;
 *	if (s3_lifecycle_object_end(&rules, &object, S3_DAY_NS, &end) && end.at_ns <= now)
 *		... the object has expired by the rule end.id ...
 *	s3_lifecycle_release(&rules);
 *
 * A number of days counts from an event; the resulting time is rounded up to midnight (UTC). The
 * functions that compute times take the length of a day, which only tests change.
 */
#ifndef S3_BUCKET_LIFECYCLE_H
#define S3_BUCKET_LIFECYCLE_H

#include "s3/bucket/refusal.h"
#include "s3/message/messages.h"

#define S3_DAY_NS (INT64_C(86400) * 1000000000)

struct s3_lifecycle_rule {
	const char *id; /* NULL if the document has no id: set an id before writing */
	bool enabled;
	bool old_form; /* the prefix is not part of a Filter */
	/* Conditions; all of them must hold. */
	const char *prefix; /* NULL if the rule has no prefix */
	bool is_and; /* the document has an element And */
	struct s3_texts tags; /* each as in x-amz-tagging: "key=value" */
	bool has_above, has_below;
	uint64_t above, below; /* bytes, both exclusive */
	/* Actions; 0 days if there is no such action. */
	unsigned days;
	bool has_date, lone_markers;
	int64_t date_ns;
	unsigned noncurrent_days;
	unsigned keep; /* number of newest noncurrent versions that stay */
	unsigned upload_days;
	/* The texts of the document, from which the parser sets the members above. */
	struct {
		const char *status, *prefix, *filter, *and, *expiration, *days, *date, *marker;
		const char *noncurrent, *noncurrent_days, *keep, *upload, *upload_days;
		struct s3_texts prefixes, tags, keys, values, above, below;
		struct s3_texts transition, transition_days, transition_date;
	} raw;
};

/* LifecycleConfiguration. */
struct s3_lifecycle {
	struct arena arena;
	struct s3_lifecycle_rule *rules;
	size_t n;
	struct s3_refusal refusal; /* set by a failed parse */
};
int s3_lifecycle_parse(
	const char *xml, size_t len, struct s3_lifecycle *out, struct penstock_error *err);
void s3_lifecycle_write(struct buf *out, const struct s3_lifecycle *lifecycle);
void s3_lifecycle_release(struct s3_lifecycle *message);

struct s3_lifecycle_object {
	const char *key;
	uint64_t size;
	int64_t modified_ns;
	const char *tags; /* as s3_tagging_write_query() writes them; may be NULL */
};
struct s3_lifecycle_end {
	int64_t at_ns;
	const char *id; /* id of the rule */
};
/* Gets the earliest time at which the current version of a key expires under a rule. Returns false
 * if no rule makes the version expire. */
bool s3_lifecycle_object_end(const struct s3_lifecycle *lifecycle,
	const struct s3_lifecycle_object *object, int64_t day_ns, struct s3_lifecycle_end *out);
/* A noncurrent version, or a delete marker that is noncurrent. */
struct s3_lifecycle_version {
	struct s3_lifecycle_object object;
	bool marker;
	int64_t since_ns; /* time at which the version became noncurrent */
	size_t newer; /* number of noncurrent versions of the key that are newer */
};
/* Returns true if a noncurrent version is to be deleted. */
bool s3_lifecycle_version_ends(const struct s3_lifecycle *lifecycle,
	const struct s3_lifecycle_version *version, int64_t day_ns, int64_t now_ns);
/* Returns true if a delete marker that is the only version of its key is to be deleted. */
bool s3_lifecycle_marker_ends(const struct s3_lifecycle *lifecycle, const char *key,
	int64_t modified_ns, int64_t day_ns, int64_t now_ns);
/* Gets the earliest time at which a rule aborts an unfinished upload. Returns false if no rule
 * aborts the upload. */
bool s3_lifecycle_upload_end(const struct s3_lifecycle *lifecycle, const char *key,
	int64_t started_ns, int64_t day_ns, struct s3_lifecycle_end *out);

#endif
