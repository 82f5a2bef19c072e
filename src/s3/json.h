/*
 * Reads the JSON documents of requests. If memory runs out, jansson drops characters of a string,
 * and a truncated condition of a policy could allow more. s3_json_load() therefore fails if an
 * allocation has failed.
 *
 *	json_t *root = NULL;
 *	int rc = s3_json_load(text, len, &root, err);
 *
 *	if (rc < 0)
 *		return rc;	// -PENSTOCK_E_MEMORY, or -PENSTOCK_E_PROTOCOL if it is not JSON
 *	...
 *	json_decref(root);
 */
#ifndef S3_JSON_H
#define S3_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct penstock_error;

/* Reads an object or an array. Refuses a document in which an object has the same key twice. */
int s3_json_load(const char *text, size_t len, json_t **out, struct penstock_error *err);

/* Returns the text of a member, or "" if the member is missing or is not a string. */
static inline const char *s3_json_text(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "";
}

/* Reads an integer from 0 to `max`. Returns false for any other value. */
static inline bool s3_json_number(const json_t *value, uint64_t max, uint64_t *out)
{
	if (!json_is_integer(value) || json_integer_value(value) < 0 ||
		(uint64_t)json_integer_value(value) > max)
		return false;
	*out = (uint64_t)json_integer_value(value);
	return true;
}

static inline void s3_json_freep(json_t **value)
{
	json_decref(*value);
}

#endif
