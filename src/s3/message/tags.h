/*
 * Tags of objects and buckets, as a document and as the query of x-amz-tagging, with the rules of
 * AWS for them.
 *
 *	struct s3_tagging tags = {0};
 *	const char *message;
 *
 *	if (s3_tagging_parse_query("a=1&b=2", &tags, err) < 0)
 *		return -err->code;
 *	if (s3_tagging_check(&tags, S3_OBJECT_TAGS, &message) == S3_OK)
 *		s3_tagging_write(&xml, &tags);
 *	s3_tagging_release(&tags);
 *
 * Parsers and writers are as in s3/message/messages.h. Parsed tags are in the order of their keys.
 */
#ifndef S3_MESSAGE_TAGS_H
#define S3_MESSAGE_TAGS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "s3/message/arena.h"
#include "s3/message/errors.h"

struct penstock_error;

/* maximum number of tags of an object or a bucket */
#define S3_OBJECT_TAGS 10
#define S3_BUCKET_TAGS 50
/* Maximum number of tags in a parsed text: more than allowed, so that s3_tagging_check() can refuse
 * them. */
#define S3_TAGS_MAX 1000

struct s3_tag {
	const char *key, *value;
};
/* Tagging. */
struct s3_tagging {
	struct arena arena;
	/* The text of the element TagSet, which a document must have; NULL until it is parsed. */
	const char *set;
	struct s3_tag *tags;
	size_t n;
};
/* Parses a request. */
int s3_tagging_parse(
	const char *xml, size_t len, struct s3_tagging *out, struct penstock_error *err);
/* Parses a reply, which may have unknown elements. */
int s3_tagging_parse_reply(
	const char *xml, size_t len, struct s3_tagging *out, struct penstock_error *err);
void s3_tagging_write(struct buf *out, const struct s3_tagging *tagging);
void s3_tagging_release(struct s3_tagging *message);

/* Parses "key=value&key=value", encoded as in a URL. */
int s3_tagging_parse_query(const char *query, struct s3_tagging *out, struct penstock_error *err);
void s3_tagging_write_query(struct buf *out, const struct s3_tagging *tagging);

/* Returns true if two tags have the same key. */
bool s3_tagging_repeats(const struct s3_tagging *tagging);
/* Checks the tags against AWS's rules; `most` is the maximum number of tags. Returns S3_OK, or the
 * error for the reply, whose text is then in `*message`. */
enum s3_error s3_tagging_check(const struct s3_tagging *tagging, size_t most, const char **message);

#endif
