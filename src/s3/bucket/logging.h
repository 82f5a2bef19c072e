/*
 * The logging of a bucket: its document, and the keys and lines of server access logs.
 *
 *	struct s3_logging logging = {0};
 *
 *	if (s3_logging_parse(text, len, &logging, err) < 0)
 *		return -err->code;
 *	if (logging.target)
 *		s3_log_write(&lines, &record);
 *	s3_logging_release(&logging);
 */
#ifndef S3_BUCKET_LOGGING_H
#define S3_BUCKET_LOGGING_H

#include "s3/message/messages.h"

/* BucketLoggingStatus. */
struct s3_logging {
	struct arena arena;
	const char *enabled; /* NULL if the document turns logging off */
	const char *target, *prefix;
	/* The format of keys; NULL if the document lacks the element. */
	const char *format, *simple, *partitioned;
	/* "EventTime" or "DeliveryTime": the date of a partitioned key; may be NULL */
	const char *source;
	/* The error for the reply, set by a failed parse. */
	enum s3_error problem;
};
int s3_logging_parse(
	const char *xml, size_t len, struct s3_logging *out, struct penstock_error *err);
void s3_logging_write(struct buf *out, const struct s3_logging *logging);
void s3_logging_release(struct s3_logging *message);

/* Returns true if keys of log objects have the date of the requests, not the date of the
 * delivery. */
bool s3_logging_by_event(const struct s3_logging *logging);
/* The source of a log, for partitioned keys. */
struct s3_log_source {
	const char *account, *bucket;
	const char *region; /* "" is us-east-1 */
};
/* Appends the key of a log object. */
void s3_log_key(struct buf *out, const struct s3_logging *logging,
	const struct s3_log_source *source, int64_t time_ns, const char *unique);

/* One request. NULL texts and negative numbers are written as "-"; `owner`, `method` and `path` are
 * not NULL. */
struct s3_log_record {
	const char *owner, *bucket, *remote, *requester, *request_id, *operation;
	const char *key; /* decoded */
	const char *method, *path, *query; /* as sent */
	const char *error, *referer, *user_agent, *version, *signature, *auth_type, *host, *tls;
	int64_t time_ns;
	int status;
	int64_t sent, size, total_ms, turn_around_ms;
	bool acl_required;
};
/* Appends a line in AWS's format. */
void s3_log_write(struct buf *out, const struct s3_log_record *record);

/* The properties of a request from which s3_log_operation() forms the name of its operation. */
struct s3_log_subject {
	const char *method, *sub; /* `sub` is the subresource; NULL if there is none */
	bool object, copy;
};
#define S3_LOG_OPERATION_SIZE 64
/* Formats AWS's name of the operation, such as "REST.GET.OBJECT". */
void s3_log_operation(const struct s3_log_subject *subject, char out[static S3_LOG_OPERATION_SIZE]);

#endif
