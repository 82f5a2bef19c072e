/*
 * JSON documents of requests. jansson drops characters of a text if it cannot allocate memory for
 * them; a condition that was cut short would allow more, so such a document is a failure here.
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
#include <stddef.h>

struct penstock_error;

/* Reads an object or an array, whose objects name each key once. */
int s3_json_load(const char *text, size_t len, json_t **out, struct penstock_error *err);

static inline void s3_json_freep(json_t **value)
{
	json_decref(*value);
}

#endif
