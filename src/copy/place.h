/*
 * Sources and targets of a copy, and the names that items get.
 *
 *	_cleanup_(place_release) struct place to = {0};
 *	_cleanup_(target_release) struct target target = {0};
 *
 *	place_parse(&to, "s3://bucket/data", false, err);
 *	target_resolve(&target, &to, "a/b", err);	// target.key is "data/a/b"
 */
#ifndef COPY_PLACE_H
#define COPY_PLACE_H

#include "transfer/location.h"
#include "transfer/objects.h"

struct place {
	enum location_kind kind;
	/* The place as the user gave it, but a URL without user, query and fragment; for messages.
	 * Owned. */
	char *text;
	/* One of the next three is set, unless the place is a pipe; owned. */
	char *key; /* key of an object; "" names the bucket */
	char *path; /* path of a local file or directory */
	char *url; /* URL of a web server */
	char bucket[64]; /* bucket of an object */
	bool google; /* the object is in gs:// */
	bool literal; /* '*' and '?' are ordinary characters, and so is a "/" at the end of a key */
	bool wildcard; /* '*' or '?' in the place match other characters */
	bool directory; /* the place ends in "/", or is a bucket or a local directory */
	/*
	 * Start of all names below the place: "" or a key with a "/" at its end; a local path
	 * without a "/" at its end; a URL with a "/" at its end. If the place has a wildcard,
	 * `base` has only the directories before the wildcard. Owned; NULL for pipes.
	 */
	char *base;
};

/* `literal`: see struct place. */
int place_parse(struct place *out, const char *text, bool literal, struct penstock_error *err);
/* Creates a place of a local directory, taken literally. Returns -1 if out of memory. */
int place_of_directory(struct place *out, const char *path);
/* Creates a place of the objects "PREFIX/…" of a bucket, or of all its objects if the prefix is "".
 * `scheme` is that of the store, such as "s3". Returns -1 if out of memory. */
int place_of_prefix(struct place *out, const char *scheme, const char *bucket, const char *prefix);
void place_release(struct place *place);
static inline bool place_is_object(const struct place *place)
{
	return place->kind == LOCATION_OBJECT;
}
static inline struct object_ref place_object(
	const struct place *place, struct object_client *client)
{
	return object_at(client, place->bucket, place->key);
}
/* Returns 1 if the pattern of the place matches a path below its base, 0 if not, -1 if out of
 * memory. */
int place_matches(const struct place *place, const char *path);
/* Returns the last component of the place without a slash; "" if the place has no name, or if the
 * name is "." or "..". NULL if out of memory. free() the result. */
char *place_name(const struct place *place);

/* The place of one item; at most one of the texts is set. */
struct target {
	char *key, *path, *url;
	/* Bytes of `path` that name the target directory: missing directories are created below
	 * that directory. 0 if `path` is the target itself. */
	size_t path_root;
};
/* Resolves `name` ("a/b") below the place, or the place itself if `name` is NULL. Fails with
 * PENSTOCK_E_INVALID if the key or the file name is impossible. */
int target_resolve(struct target *out, const struct place *place, const char *name,
	struct penstock_error *err);
void target_release(struct target *target);

/* Fails with PENSTOCK_E_INVALID if `name` cannot be a path below a directory: it is empty or
 * absolute, or has an empty part, ".", ".." or a part of more than 255 bytes. One "/" at its end is
 * allowed. */
int place_check_file_name(const char *name, struct penstock_error *err);

#endif
