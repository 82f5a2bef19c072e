/* Headers that are stored with an object, conditions and ETags. */
#ifndef SERVER_REQUEST_HEADERS_H
#define SERVER_REQUEST_HEADERS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "store/store.h"

#define REDIRECT_HEADER "x-amz-website-redirect-location"
/* The header with the size of the smallest object that a transition moves, and its only accepted
 * value: this store has no transitions. */
#define MINIMUM_HEADER	"x-amz-transition-default-minimum-object-size"
#define MINIMUM_DEFAULT "all_storage_classes_128K"

struct request;

/* Joins headers of the same name, in their order, with commas. Sets the reply and returns false on
 * failure. */
bool headers_join(struct request *req);
/* Adds the parameters of the URL that are headers, as SDKs put them into signed URLs: x-amz-acl,
 * x-amz-meta-…, x-amz-copy-source. Call this function after the signature is verified, because
 * these headers are not among the signed headers. Refuses the parameters if the signature does not
 * cover the query (`is_signed` is false). Sets the reply and returns false on failure. */
bool headers_from_query(struct request *req, bool is_signed);
/* Refuses a request of any kind whose headers ask for a feature that this store does not have. Sets
 * the reply and returns false after a refusal. */
bool headers_acceptable(struct request *req);
/* Appends the storage class of the request, unless it is STANDARD. Sets the reply and returns false
 * on failure. */
bool headers_add_storage_class(struct request *req, struct buf *out);
/* Appends the headers of the request that are stored with the object. Sets the reply and returns
 * false on failure. */
bool headers_collect(struct request *req, struct buf *out);
/* Gets If-Match and If-None-Match of a write; the strings live in the request. */
struct store_condition headers_condition(const struct request *req);
/* Adds the conditions of a delete on size and time, in the formats of a request. `size` or
 * `modified` is NULL if absent. Returns false if either is malformed. */
bool condition_add_state(struct store_condition *out, const char *size, const char *modified);
/* Returns true if the request has x-amz-copy-source and copies an object or a part. */
bool headers_ask_copy(const struct request *req);
/* Returns the length of "[/]bucket/key", still encoded, at the start of x-amz-copy-source.
 * `*version` is the id after "?versionId=", or NULL if it is missing. */
size_t copy_source_length(const char *text, const char **version);
/* Removes quotes, if present, in place. */
char *etag_unquote(char *etag);
/* Returns true for the name of a header with a checksum of any algorithm. */
bool headers_is_checksum(const char *name);
/* Adds the x-amz-checksum-… headers of a reply. */
void reply_checksum(struct request *req, const struct store_checksum *checksum);

#endif
