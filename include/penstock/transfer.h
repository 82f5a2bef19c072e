/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transfers objects of S3-compatible stores and of Google Cloud Storage: the engine of penstock's
 * own commands, as a library.
 *
 *	struct penstock_error err = PENSTOCK_ERROR_INIT;
 *	struct penstock_transfer *t = NULL;
 *
 *	if (penstock_transfer_new(&t, NULL, &err) < 0 ||
 *		penstock_put_file(t, "s3://models/run-7/a.pth", "a.pth", NULL, NULL, &err) < 0) {
 *		fprintf(stderr, "%s\n", err.message);
 *		penstock_error_release(&err);
 *	}
 *	penstock_transfer_free(t);
 *
 * Names. An object is "s3://BUCKET/KEY" or "gs://BUCKET/KEY"; the key is literal, without
 * %-decoding.
 *
 * Results. A function that can fail returns 0, or a negative number. After a failure `err`, unless
 * it is NULL, says what failed, where, and what to do (penstock/error.h). Retryable failures have
 * been retried before an error is returned. A failed call returns nothing that the caller must
 * free, and leaves no partial object and no partial file under its final name.
 *
 * Threads. Every function may be called from any thread, several at a time on one handle, except
 * that a handle must not be in use while it is freed. A call blocks until its end; the work is done
 * by threads of the handle, which block every signal. Callbacks run on the calling thread, but
 * `progress` may run on any thread. Callbacks must not free the handle. After fork() only the
 * parent can use a handle.
 *
 * Ownership. Arguments belong to the caller and are not kept beyond the call (options of
 * penstock_transfer_new() are copied). Results belong to the caller: release an object's
 * description with penstock_object_release(), memory with penstock_free().
 *
 * Units. Sizes and offsets are bytes, times are nanoseconds since 1970 in UTC, durations are
 * seconds.
 *
 * Compatibility. A struct that begins with `struct_size` must be initialised by its initialiser, so
 * that a program built against an older header works with a newer library. Zero members mean the
 * default.
 */
#ifndef PENSTOCK_TRANSFER_H
#define PENSTOCK_TRANSFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <penstock/error.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the handle: connections, credentials, threads ---- */

struct penstock_transfer;
struct penstock_cancel;

struct penstock_transfer_options {
	size_t struct_size;
	/*
	 * For s3://. Members that are NULL come from AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL,
	 * AWS_REGION, the profile, or AWS's defaults. Credentials not given here come from the
	 * environment, the profile, a web identity, or the role of the container or instance.
	 * Temporary credentials are renewed before they expire.
	 */
	const char *endpoint_url;
	const char *region;
	const char *profile;
	const char *access_key_id;
	const char *secret_access_key;
	const char *session_token;
	/*
	 * For gs://. An endpoint of NULL means STORAGE_EMULATOR_HOST, else Google. A key file of
	 * NULL means GOOGLE_APPLICATION_CREDENTIALS, GS_ACCESS_KEY_ID, gcloud's application default
	 * credentials, or the machine's service account.
	 */
	const char *google_endpoint_url;
	const char *google_key_file; /* path of a service account's key */
	bool anonymous; /* ignores all credentials */
	unsigned max_connections; /* limit, in all; 0 for 64 to each host */
	/* Cancels every call on the handle and outlives the handle. May be NULL. */
	struct penstock_cancel *cancel;
};
/* clang-format off */
#define PENSTOCK_TRANSFER_OPTIONS_INIT { sizeof(struct penstock_transfer_options), \
	0, 0, 0, 0, 0, 0, 0, 0, false, 0, 0 }
/* clang-format on */

/* `options` may be NULL. No request is sent, and no credentials are fetched, before the first call
 * that needs them. */
PENSTOCK_API int penstock_transfer_new(struct penstock_transfer **out,
	const struct penstock_transfer_options *options, struct penstock_error *err);
/* Closes the connections and ends the threads. NULL is allowed. */
PENSTOCK_API void penstock_transfer_free(struct penstock_transfer *transfer);

/* A flag that cancels calls, set by any thread or a signal handler: the calls return
 * PENSTOCK_E_CANCELLED within 0.1 s. */
PENSTOCK_API struct penstock_cancel *penstock_cancel_new(void); /* NULL if out of memory */
PENSTOCK_API void penstock_cancel_set(struct penstock_cancel *cancel);
PENSTOCK_API void penstock_cancel_reset(struct penstock_cancel *cancel);
PENSTOCK_API void penstock_cancel_free(struct penstock_cancel *cancel);

/* ---- objects ---- */

struct penstock_object {
	size_t struct_size;
	char *key; /* in lists: the object's key, or a common prefix; else NULL */
	uint64_t size;
	char *etag; /* with its quotes; on gs:// the generation in quotes; for `if_match` */
	int64_t modified_ns;
	char *version; /* NULL if the store has no versions */
	char **metadata; /* "name=value", NULL-terminated; NULL in lists */
	bool is_prefix;
};
/* clang-format off */
#define PENSTOCK_OBJECT_INIT { sizeof(struct penstock_object), 0, 0, 0, 0, 0, 0, false }
/* clang-format on */
/* Frees the members of `object` and prepares it for reuse. NULL is allowed. */
PENSTOCK_API void penstock_object_release(struct penstock_object *object);
/* Frees memory that these functions returned. NULL is allowed. */
PENSTOCK_API void penstock_free(void *memory);

/* Options of every call that moves bytes. "put", "get" and "copy" in the comments of the members
 * are the calls that use the member. */
struct penstock_call_options {
	size_t struct_size;
	const char *if_match; /* ETag that the object (copy: the source) must have */
	/* put, copy: only create; PENSTOCK_E_PRECONDITION if the object exists */
	bool if_none_match;
	const char *content_type; /* put; NULL for application/octet-stream */
	const char *const *metadata; /* put: "name=value", NULL-terminated */
	const char *storage_class; /* put; NULL for the store's default */
	uint64_t part_size; /* put; 0 to choose the part size by the size of the object */
	unsigned parallel; /* limit of requests for one object; 0 to adapt the limit to the store */
	uint64_t offset; /* get into memory or a callback: start of a range */
	uint64_t length; /* length of the range; 0 for the rest of the object */
	/* get into memory: the call fails with PENSTOCK_E_LIMIT if the object has more bytes; 0 for
	 * 64 MiB */
	uint64_t max_size;
	/* Reports the bytes moved since the last call; negative if some must be moved again. May
	 * run on any thread. */
	void (*progress)(void *cookie, int64_t bytes);
	void *cookie; /* passed to `progress` */
	struct penstock_cancel *cancel; /* cancels this call; may be NULL */
};
/* clang-format off */
#define PENSTOCK_CALL_OPTIONS_INIT { sizeof(struct penstock_call_options), \
	0, false, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
/* clang-format on */

/*
 * In all of these functions `options` and `object` may be NULL; `object` is filled on success.
 * Bytes are verified end to end by a checksum in both directions (CRC64NVME, CRC32C or MD5, as the
 * store supports). A call fails with PENSTOCK_E_CORRUPT if a checksum does not match.
 */

/* Uploads a file, in parallel parts if it is large. Fails with PENSTOCK_E_CHANGED if the file
 * becomes shorter during the upload. */
PENSTOCK_API int penstock_put_file(struct penstock_transfer *transfer, const char *url,
	const char *path, const struct penstock_call_options *options,
	struct penstock_object *object, struct penstock_error *err);
PENSTOCK_API int penstock_put_memory(struct penstock_transfer *transfer, const char *url,
	const void *data, size_t size, const struct penstock_call_options *options,
	struct penstock_object *object, struct penstock_error *err);
/* Uploads a pipe, a socket or any descriptor until end of file, of any length. `fd` stays open. */
PENSTOCK_API int penstock_put_stream(struct penstock_transfer *transfer, const char *url, int fd,
	const struct penstock_call_options *options, struct penstock_object *object,
	struct penstock_error *err);

/* Downloads to a file that appears complete, verified and synced, and replaces an existing file. */
PENSTOCK_API int penstock_get_file(struct penstock_transfer *transfer, const char *url,
	const char *path, const struct penstock_call_options *options,
	struct penstock_object *object, struct penstock_error *err);
/* Free `*data` with penstock_free(); a NUL follows its last byte. */
PENSTOCK_API int penstock_get_memory(struct penstock_transfer *transfer, const char *url,
	void **data, size_t *size, const struct penstock_call_options *options,
	struct penstock_object *object, struct penstock_error *err);
/*
 * Passes the object to `write` in order, in pieces of any size, while the next pieces are fetched.
 * If `write` returns non-zero, the call ends with PENSTOCK_E_CANCELLED. A wrong checksum is
 * detected, and reported, after bytes were passed on, usually after the last piece.
 */
PENSTOCK_API int penstock_get_stream(struct penstock_transfer *transfer, const char *url,
	int (*write)(void *cookie, const void *data, size_t size), void *cookie,
	const struct penstock_call_options *options, struct penstock_object *object,
	struct penstock_error *err);

/* A copy within one store, even between buckets, is made by the store itself. The bytes of other
 * copies go through this machine. */
PENSTOCK_API int penstock_copy(struct penstock_transfer *transfer, const char *from_url,
	const char *to_url, const struct penstock_call_options *options,
	struct penstock_object *object, struct penstock_error *err);
/* Gets size, ETag, time and metadata. Fails with PENSTOCK_E_NOT_FOUND if the object does not
 * exist. */
PENSTOCK_API int penstock_head(struct penstock_transfer *transfer, const char *url,
	struct penstock_object *object, struct penstock_error *err);
/* Deletes an object; a missing object is a success. Fails with PENSTOCK_E_PRECONDITION if the
 * object has another ETag than `if_match`. Uses only `if_match` of `options`. */
PENSTOCK_API int penstock_delete(struct penstock_transfer *transfer, const char *url,
	const struct penstock_call_options *options, struct penstock_error *err);

/*
 * Lists all objects whose key begins with the key of the URL, in byte order of the keys. If
 * `delimiter` is "/", keys with a further "/" are combined into one entry with `is_prefix`; if
 * `delimiter` is NULL, all keys are listed. `each` returns 0 to continue, 1 to stop without an
 * error; `object` is valid during that call. Uses only `cancel` of `options`.
 */
PENSTOCK_API int penstock_list(struct penstock_transfer *transfer, const char *url,
	const char *delimiter, int (*each)(void *cookie, const struct penstock_object *object),
	void *cookie, const struct penstock_call_options *options, struct penstock_error *err);

/* ---- trees ---- */

struct penstock_tree_options {
	size_t struct_size;
	/* Patterns ('*', '?') for names below the tree; each list ends with NULL. A name is copied
	 * if `include` is empty or has a pattern that matches, and no pattern of `exclude`
	 * matches. */
	const char *const *include;
	const char *const *exclude;
	bool update; /* copies only what is missing, differs in size, or is newer than the target */
	/* with `update`: removes items that only the target has, unless an item failed */
	bool remove;
	bool if_none_match; /* an existing target is an error */
	unsigned parallel; /* limit of requests in flight; 0 to adapt the limit to the store */
	/* Called for each item that was copied or removed, or that failed; `error` is NULL unless
	 * the item failed. `from` and `to` are for messages and valid during the call; `to` is NULL
	 * for an item that was removed. */
	void (*each)(void *cookie, const char *from, const char *to, uint64_t size,
		const struct penstock_error *error);
	void (*progress)(void *cookie, int64_t bytes); /* as in struct penstock_call_options */
	void *cookie; /* passed to both callbacks */
	struct penstock_cancel *cancel; /* cancels this call; may be NULL */
};
/* clang-format off */
#define PENSTOCK_TREE_OPTIONS_INIT { sizeof(struct penstock_tree_options), \
	0, 0, false, false, false, 0, 0, 0, 0, 0 }
/* clang-format on */

struct penstock_tree_result {
	size_t struct_size;
	uint64_t copied, removed, same, failed; /* items */
	uint64_t bytes; /* bytes of the copied items */
};
/* clang-format off */
#define PENSTOCK_TREE_RESULT_INIT { sizeof(struct penstock_tree_result), 0, 0, 0, 0, 0 }
/* clang-format on */

/*
 * Copies everything below `from` to below `to`, under the same names. Each of the two is
 * "s3://BUCKET/PREFIX", "gs://BUCKET/PREFIX" or a local directory, and at least one is in a store;
 * a "/" at the end makes no difference. Missing directories are created; a key that ends in "/"
 * becomes a directory. Links in a local tree are followed. Each item appears whole or not at all;
 * downloads are synced to disk at the end. An item that fails does not stop the others: the call
 * then returns the first error. An item fails if the target cannot have its name. `options` and
 * `result` may be NULL; `result` is set after a failure, too.
 */
PENSTOCK_API int penstock_copy_tree(struct penstock_transfer *transfer, const char *from,
	const char *to, const struct penstock_tree_options *options,
	struct penstock_tree_result *result, struct penstock_error *err);

/* Creates the bucket of "s3://BUCKET". Succeeds even if the bucket exists and belongs to the
 * caller. */
PENSTOCK_API int penstock_make_bucket(
	struct penstock_transfer *transfer, const char *url, struct penstock_error *err);

/* ---- diagnostics ---- */

/* Sets the receiver of warnings for the whole process, such as a warning about a wrong clock. `log`
 * is called from any thread with one line without secrets; `level` is 0 (debug) to 3 (error). NULL,
 * the initial value, disables the log. */
PENSTOCK_API void penstock_set_log(
	void (*log)(void *cookie, int level, const char *line), void *cookie);
/* Returns the version of the running library, such as "0.1.0"; PENSTOCK_VERSION is the version of
 * the header. */
PENSTOCK_API const char *penstock_version(void);

#ifdef __cplusplus
}
#endif

#endif
