/*
 * The lifecycle rules of all buckets in memory, for headers of replies with the expiry date of an
 * object or an upload.
 *
 *	struct expiry_note note;
 *
 *	if (expiry_of_object(configs, "bucket", &object, &note))
 *		... x-amz-expiration ...
 */
#ifndef SERVER_BUCKET_EXPIRY_H
#define SERVER_BUCKET_EXPIRY_H

#include <stdbool.h>
#include <stdint.h>

struct configs;
struct penstock_error;
struct s3_lifecycle_object;
struct store;

struct expiry_note {
	int64_t at_ns;
	char id[256]; /* ID of the rule */
};

int expiry_new(struct configs **out, struct store *store, struct penstock_error *err);
bool expiry_of_object(struct configs *configs, const char *bucket,
	const struct s3_lifecycle_object *object, struct expiry_note *out);
bool expiry_of_upload(struct configs *configs, const char *bucket, const char *key,
	int64_t started_ns, struct expiry_note *out);

#endif
