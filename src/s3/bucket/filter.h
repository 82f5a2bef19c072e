/*
 * The tags of a rule's filter: read from its document, and compared with those of an object.
 *
 *	const char *message;
 *
 *	problem = s3_filter_tags(&arena, &keys, &values, &tags, &message);
 *	if (problem == S3_OK && s3_filter_has(&tags, "team=a&stage=b"))
 *		... the object has all of them ...
 */
#ifndef S3_BUCKET_FILTER_H
#define S3_BUCKET_FILTER_H

#include "s3/message/messages.h"

/* Converts each tag to a text "key=value", encoded as in x-amz-tagging. Returns S3_OK, or the error
 * for the reply; `message` is then the text of the error, "" for the default text. */
enum s3_error s3_filter_tags(struct arena *arena, const struct s3_texts *keys,
	const struct s3_texts *values, struct s3_texts *out, const char **message);
/* Returns true if an object has all tags of `wanted`. `tags` has the tags of the object, as
 * s3_tagging_write_query() writes them, or is NULL if there are none. */
bool s3_filter_has(const struct s3_texts *wanted, const char *tags);
/* Writes an element Tag for each key and its value. */
void s3_filter_write_tags(
	struct buf *out, const struct s3_texts *keys, const struct s3_texts *values);

#endif
