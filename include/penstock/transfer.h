/*
 * Objects of S3-compatible stores and of Google Cloud Storage: the engine of penstock's own verbs, as a library.
 *
 *	struct penstock_error err = PENSTOCK_ERROR_INIT;
 *	struct penstock_transfer *t = NULL;
 *
 *	if (penstock_transfer_new(&t, NULL, &err) < 0 ||
 *		penstock_put_file(t, "s3://models/run-7/ckpt.pth", "ckpt.pth", NULL, NULL, &err) < 0) {
 *		fprintf(stderr, "%s\n", err.message);
 *		penstock_error_release(&err);
 *	}
 *	penstock_transfer_free(t);
 *
 * Names. An object is "s3://BUCKET/KEY" or "gs://BUCKET/KEY"; the key is taken literally, without %-decoding.
 *
 * Results. A function that can fail returns 0, or a negative number after which `err` (which may be NULL) says
 * what, where and what to do (penstock/error.h). What could be repeated was repeated before an error comes back.
 * After a failure nothing was given to the caller, no half object is visible, and no half file stands under its
 * final name.
 *
 * Threads. Every function may be called from any thread, several at a time on one handle, except that nobody may
 * use a handle while it is freed. A call blocks until its end; the work is done by threads of the handle, which
 * block every signal. Callbacks are called on the calling thread, but `progress`, which may be called on any. They
 * must not free the handle. After fork() a handle is of use in the parent only.
 *
 * Ownership. What goes in is the caller's and is not kept beyond the call (options of penstock_transfer_new() are
 * copied). What comes out is the caller's: an object's description ends with penstock_object_release(), memory
 * with penstock_free().
 *
 * Units. Sizes and offsets are bytes, times are nanoseconds since 1970 in UTC, durations seconds.
 *
 * Compatibility. A struct that begins with `struct_size` is set up by its initialiser, so that a program that was
 * built against an older header goes on working with a newer library. Members that are zero mean the default.
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
	 * Of s3://. NULL: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, AWS_REGION, the profile's, AWS. Credentials, where
	 * none are given: the environment, the profile, a web identity, the container's or the instance's role. They
	 * are renewed before they end.
	 */
	const char *endpoint_url;
	const char *region;
	const char *profile;
	const char *access_key_id;
	const char *secret_access_key;
	const char *session_token;
	/*
	 * Of gs://. NULL: STORAGE_EMULATOR_HOST or Google; GOOGLE_APPLICATION_CREDENTIALS, GS_ACCESS_KEY_ID, gcloud's
	 * application default credentials, the machine's service account.
	 */
	const char *google_endpoint_url;
	const char *google_key_file; /* path of a service account's key */
	bool anonymous;		     /* no credentials, whatever is there */
	unsigned max_connections;    /* 0: 64 to each host */
	/* Ends every call of the handle; outlives it. NULL: none. */
	struct penstock_cancel *cancel;
};
/* clang-format off */
#define PENSTOCK_TRANSFER_OPTIONS_INIT { sizeof(struct penstock_transfer_options), \
	0, 0, 0, 0, 0, 0, 0, 0, false, 0, 0 }
/* clang-format on */

/* `options` may be NULL. Nothing is sent, and no credentials are looked for, before the first call that needs them. */
PENSTOCK_API int penstock_transfer_new(struct penstock_transfer **out,
	const struct penstock_transfer_options *options, struct penstock_error *err);
/* NULL is fine. Closes the connections and ends the threads. */
PENSTOCK_API void penstock_transfer_free(struct penstock_transfer *transfer);

/* A flag that ends calls, from any thread or a signal handler: they return PENSTOCK_E_CANCELLED within 0.1 s. */
PENSTOCK_API struct penstock_cancel *penstock_cancel_new(void); /* NULL: out of memory */
PENSTOCK_API void penstock_cancel_set(struct penstock_cancel *cancel);
PENSTOCK_API void penstock_cancel_reset(struct penstock_cancel *cancel);
PENSTOCK_API void penstock_cancel_free(struct penstock_cancel *cancel);

/* ---- objects ---- */

struct penstock_object {
	size_t struct_size;
	char *key; /* in lists: of the object, or a common prefix; else NULL */
	uint64_t size;
	char *etag; /* with its quotes; on gs:// the generation in quotes; for `if_match` */
	int64_t modified_ns;
	char *version;	 /* NULL where the store keeps none */
	char **metadata; /* "name=value", ends with NULL; NULL in lists */
	bool is_prefix;
};
/* clang-format off */
#define PENSTOCK_OBJECT_INIT { sizeof(struct penstock_object), 0, 0, 0, 0, 0, 0, false }
/* clang-format on */
/* Frees what it holds and makes it ready for reuse. NULL is fine. */
PENSTOCK_API void penstock_object_release(struct penstock_object *object);
/* Frees what these functions gave as plain memory. NULL is fine. */
PENSTOCK_API void penstock_free(void *memory);

/* Of every call that moves bytes. */
struct penstock_call_options {
	size_t struct_size;
	const char *if_match; /* put, delete: only over this ETag; get, copy: only this object */
	bool if_none_match; /* put, copy: only where there is none: else PENSTOCK_E_PRECONDITION */
	const char *content_type;    /* put; NULL: application/octet-stream */
	const char *const *metadata; /* put: "name=value", ends with NULL */
	const char *storage_class;   /* put; NULL: the store's default */
	uint64_t part_size;	     /* put; 0: by the size */
	unsigned parallel;	     /* requests at a time for one object; 0: as many as pay */
	uint64_t offset;	     /* get into memory or a callback: of a range… */
	uint64_t length;	     /* …and how long it is; 0: to the end */
	uint64_t max_size; /* get into memory: a larger object is PENSTOCK_E_LIMIT; 0: 64 MiB */
	/* Told the bytes moved since the last call; negative where some are to be moved again. Any thread. */
	void (*progress)(void *cookie, int64_t bytes);
	void *cookie;			/* of `progress` */
	struct penstock_cancel *cancel; /* of this call; NULL: none */
};
/* clang-format off */
#define PENSTOCK_CALL_OPTIONS_INIT { sizeof(struct penstock_call_options), \
	0, false, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
/* clang-format on */

/*
 * In all of these `options` and `object` may be NULL; `object` is described on success. Bytes are guarded by a
 * checksum end to end in both directions (CRC64NVME, CRC32C, MD5, as the store offers): PENSTOCK_E_CORRUPT.
 */

/* A file, in parallel parts where it is large. PENSTOCK_E_CHANGED: it got shorter meanwhile. */
PENSTOCK_API int penstock_put_file(struct penstock_transfer *transfer, const char *url,
	const char *path, const struct penstock_call_options *options,
	struct penstock_object *object, struct penstock_error *err);
PENSTOCK_API int penstock_put_memory(struct penstock_transfer *transfer, const char *url,
	const void *data, size_t size, const struct penstock_call_options *options,
	struct penstock_object *object, struct penstock_error *err);
/* What a pipe, a socket or any descriptor gives until its end, however long that is. `fd` stays open. */
PENSTOCK_API int penstock_put_stream(struct penstock_transfer *transfer, const char *url, int fd,
	const struct penstock_call_options *options, struct penstock_object *object,
	struct penstock_error *err);

/* Into a file that appears whole, verified and synced to disk, in place of what was there. */
PENSTOCK_API int penstock_get_file(struct penstock_transfer *transfer, const char *url,
	const char *path, const struct penstock_call_options *options,
	struct penstock_object *object, struct penstock_error *err);
/* `*data` is to be given to penstock_free(); it has a NUL behind its last byte. */
PENSTOCK_API int penstock_get_memory(struct penstock_transfer *transfer, const char *url,
	void **data, size_t *size, const struct penstock_call_options *options,
	struct penstock_object *object, struct penstock_error *err);
/*
 * Piece by piece in order, while the next ones are fetched; pieces are of any size. Non-zero from `write` ends it
 * with PENSTOCK_E_CANCELLED. A checksum that does not fit is known, and told, after the last piece.
 */
PENSTOCK_API int penstock_get_stream(struct penstock_transfer *transfer, const char *url,
	int (*write)(void *cookie, const void *data, size_t size), void *cookie,
	const struct penstock_call_options *options, struct penstock_object *object,
	struct penstock_error *err);

/* Within one store by the store itself, also from bucket to bucket; else through this machine. */
PENSTOCK_API int penstock_copy(struct penstock_transfer *transfer, const char *from_url,
	const char *to_url, const struct penstock_call_options *options,
	struct penstock_object *object, struct penstock_error *err);
/* Size, ETag, time and metadata. PENSTOCK_E_NOT_FOUND: there is none. */
PENSTOCK_API int penstock_head(struct penstock_transfer *transfer, const char *url,
	struct penstock_object *object, struct penstock_error *err);
/* One that is not there is a success. Of `options` only `if_match` is looked at. */
PENSTOCK_API int penstock_delete(struct penstock_transfer *transfer, const char *url,
	const struct penstock_call_options *options, struct penstock_error *err);

/*
 * Everything whose key begins with the URL's, in byte order of the keys. `delimiter` "/": what is deeper comes as
 * one entry with `is_prefix`; NULL: all of it. `each` returns 0 to go on; 1 ends the list without an error. What it
 * is given is valid during its call. Of `options` only `cancel` is looked at.
 */
PENSTOCK_API int penstock_list(struct penstock_transfer *transfer, const char *url,
	const char *delimiter, int (*each)(void *cookie, const struct penstock_object *object),
	void *cookie, const struct penstock_call_options *options, struct penstock_error *err);

/* "s3://BUCKET". One that is there already and ours is a success. */
PENSTOCK_API int penstock_make_bucket(
	struct penstock_transfer *transfer, const char *url, struct penstock_error *err);

/* ---- diagnostics ---- */

/*
 * Warnings, such as a clock that is wrong, one line each without secrets; `level` is 0 (debug) to 3 (error). For the
 * whole process; from any thread. NULL, as at the beginning: nobody is told.
 */
PENSTOCK_API void penstock_set_log(
	void (*log)(void *cookie, int level, const char *line), void *cookie);
/* "0.1.0" of the library that is running; PENSTOCK_VERSION is that of the header. */
PENSTOCK_API const char *penstock_version(void);

#ifdef __cplusplus
}
#endif

#endif
