/* Tags of an object or a bucket. Tags as text are the value of x-amz-tagging: a URL query. */
#ifndef SERVER_REQUEST_TAGS_H
#define SERVER_REQUEST_TAGS_H

#include <stdbool.h>
#include <stddef.h>

struct buf;
struct request;
struct s3_tagging;

/* Names of the stored header that has the tags of an object, and of the configuration that has the
 * tags of a bucket. */
#define TAGS_HEADER ":tags"
#define TAGS_CONFIG "tagging"

/* Checks tags, of which an object or a bucket may have `most`. Sets the reply and returns false on
 * failure. */
bool tags_acceptable(struct request *req, const struct s3_tagging *tags, size_t most);
/* Returns the text form of the tags; the text lives as long as the request. Sets the reply and
 * returns NULL on failure. */
const char *tags_text(struct request *req, const struct s3_tagging *tags);
/* Returns the text form of a Tagging document with at most `most` tags; the text lives as long as
 * the request. Sets the reply and returns NULL on failure. */
const char *tags_of_document(struct request *req, const char *xml, size_t len, size_t most);
/* Appends the stored header with an object's tags, if the request has x-amz-tagging. Sets the reply
 * and returns false on failure. */
bool tags_add(struct request *req, struct buf *out);
/* Adds x-amz-tagging-count. */
void reply_tag_count(struct request *req, const char *text);

#endif
