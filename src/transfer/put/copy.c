/* Copies within a store, presigned URLs, and a store's support for conditions. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/log.h"
#include "net/credentials/google.h"
#include "s3/message/messages.h"
#include "s3/multipart.h"
#include "transfer/put/parts.h"

#define COPY_PARALLEL 8
#define COPY_PART     (512 * MIB)

/* The result of a HEAD of the source, or of an object that may be its copy. */
struct copy_source {
	struct s3_op head;
	struct object_info info;
};

static void copy_source_release(struct copy_source *source)
{
	s3_op_release(&source->head);
	object_info_release(&source->info);
}

/* Called if the reply to a copy was lost or is unclear: returns true if the object at `at` is the
 * copy. Works only if both objects have a checksum, or an ETag that is an MD5. */
static bool copy_is_there(
	const struct copy_source *source, struct object_ref at, struct object_info *info)
{
	_cleanup_(copy_source_release) struct copy_source there = {0};
	uint8_t md5[16], ours[CHECKSUM_MAX_SIZE], theirs[CHECKSUM_MAX_SIZE];
	enum checksum_kind kind = object_reply_checksum(&source->head.reply, ours);
	bool same;

	if (s3_op_head(&there.head, at, NULL, true, NULL, &there.info, NULL) < 0 ||
		there.info.size != source->info.size)
		return false;
	same = object_etag_md5(source->info.etag, md5) &&
	       strcmp(source->info.etag, there.info.etag) == 0;
	if (!same && kind != CHECKSUM_NONE)
		same = object_reply_checksum(&there.head.reply, theirs) == kind &&
		       memcmp(ours, theirs, checksum_size(kind)) == 0;
	if (!same)
		return false;
	*info = there.info;
	there.info = (struct object_info){0};
	return true;
}

/* Sets `*out` to the properties of the copy: the requested properties, else those of the source,
 * some of which are added to `properties`. */
static int put_options_of(const struct copy_source *source,
	const struct object_copy_options *options, struct strlist *properties,
	struct object_put_options *out, struct penstock_error *err)
{
	const struct object_put_options *put = options->put;
	const struct http_reply *reply = &source->head.reply;

	*out = (struct object_put_options){
		.content_type = put && put->content_type ? put->content_type
							 : http_reply_header(reply, "content-type"),
		.metadata = put && put->metadata ? put->metadata : &source->info.metadata,
		.storage_class = put ? put->storage_class : NULL,
		.properties = properties};
	return put_properties(source->head.at.client, reply, properties, err);
}

/* Adds headers for the properties that `put` changes. A copy in one request keeps all properties of
 * the source, unless a header asks the store to replace them. */
static void add_other_properties(struct s3_op *op, const struct copy_source *source,
	const struct object_copy_options *options)
{
	_cleanup_(strlist_release) struct strlist properties = {0};
	struct object_put_options put;

	if (!options->put)
		return;
	if (!options->put->content_type && !options->put->metadata) {
		s3_op_header(op, "x-amz-storage-class", options->put->storage_class);
		return;
	}
	s3_op_header(op, "x-amz-metadata-directive", "REPLACE");
	if (put_options_of(source, options, &properties, &put, &op->failed) == 0)
		put_headers(op, &put);
}

static int copy_whole(const struct copy_source *source, struct object_ref to,
	const struct object_copy_options *options, struct object_info *info,
	struct penstock_error *err)
{
	struct object_ref from = source->head.at;
	_cleanup_(s3_op_release) struct s3_op op = {0};
	_cleanup_(s3_reply_release) struct s3_reply reply = {0};
	struct penstock_error own = PENSTOCK_ERROR_INIT;
	int r;

	s3_op_init(&op, "PUT", to);
	s3_op_copy_source(&op, from, options->if_match);
	s3_op_header(&op, "if-none-match", options->if_none_match ? "*" : NULL);
	add_other_properties(&op, source, options);
	s3_op_body(&op, NULL, 0);
	s3_op_cancel(&op, options->cancel);
	op.request.stall_timeout_ms = PUT_STALL_MS;
	op.request.fresh_connection = options->if_none_match;
	r = s3_op_ask(&op, &own);
	if (r == -(int)PENSTOCK_E_PRECONDITION && op.reply.sent_before &&
		copy_is_there(source, to, info)) {
		penstock_error_release(&own);
		return 0;
	}
	if (r < 0) {
		/* The failed condition may be the one on the source, so name the source. */
		error_suffix(&own, " (copying %s://%s/%s)", object_client_scheme(from.client),
			from.bucket, from.key);
		return error_move(err, &own);
	}
	r = s3_reply_parse(op.document.data, op.document.len, &reply, &own);
	if ((r < 0 || reply.kind != S3_REPLY_COPY_OBJECT || !reply.etag) &&
		copy_is_there(source, to, info)) {
		penstock_error_release(&own);
		return 0;
	}
	if (r < 0)
		return error_prefix(&own, "%s", op.what), error_move(err, &own);
	if (reply.kind != S3_REPLY_COPY_OBJECT || !reply.etag)
		return error_set(err, PENSTOCK_E_PROTOCOL, "%s: the store did not confirm the copy",
			op.what);
	r = object_info_from_reply(&op.reply, info, err);
	if (r == 0 && to.client->google) {
		/* Google's reply may lack the generation of the copy; then a HEAD gets it. */
		if (info->etag[0])
			return 0;
		object_info_release(info);
		return object_head(to, info, err);
	}
	object_etag_copy(info->etag, reply.etag);
	info->modified_ns = reply.modified_ns;
	return r;
}

static int copy_in_parts(const struct copy_source *source, struct object_ref to,
	const struct object_copy_options *options, struct object_info *info,
	struct penstock_error *err)
{
	_cleanup_(strlist_release) struct strlist properties = {0};
	struct object_put_options put;
	int r = put_options_of(source, options, &properties, &put, err);

	put.if_none_match = options->if_none_match;
	put.part_size = options->part_size ? options->part_size : COPY_PART;
	put.parallel = COPY_PARALLEL;
	put.progress = options->progress;
	put.cookie = options->cookie;
	put.cancel = options->cancel;
	return r < 0 ? r
		     : put_parts_copied(to, source->info.size, &put, source->head.at,
			       source->info.etag, info, err);
}

/* Fails if the source was replaced during the copy. Ceph ignores the condition on a copy's source.
 * On an unknown store, the source is checked again: if it still has the expected ETag, the right
 * object was copied. */
static int check_source(struct object_ref at, const char *expected, struct penstock_error *err)
{
	_cleanup_(object_info_release) struct object_info now = {0};

	if (at.client->aws || atomic_load(&at.client->own_kind) ||
		object_head(at, &now, NULL) < 0 || strcmp(now.etag, expected) == 0)
		return 0;
	return object_error(err, PENSTOCK_E_PRECONDITION, "COPY", at,
		"the object was replaced while it was copied");
}

int object_copy(struct object_ref from, struct object_ref to,
	const struct object_copy_options *options, struct object_info *info,
	struct penstock_error *err)
{
	const struct object_copy_options *o = options ? options : &(struct object_copy_options){0};
	_cleanup_(copy_source_release) struct copy_source source = {0};
	struct object_info made = {0};
	int r = s3_op_head(&source.head, from, NULL, true, o->cancel, &source.info, err);

	if (r < 0)
		return r;
	if (o->if_match && strcmp(o->if_match, source.info.etag) != 0)
		return object_error(err, PENSTOCK_E_PRECONDITION, "COPY", from,
			"the object is not the expected one");
	/* Ceph and MinIO ignore If-None-Match on a copy; for other stores, the request has the
	 * condition as well. */
	if (o->if_none_match && object_head(to, NULL, NULL) == 0)
		return object_error(err, PENSTOCK_E_PRECONDITION, "COPY", from,
			"'%s://%s/%s' exists", object_client_scheme(to.client), to.bucket, to.key);
	if (source.info.size > (o->part_size ? o->part_size : LIMIT_S3_PUT_MAX) &&
		!from.client->google) {
		r = copy_in_parts(&source, to, o, &made, err);
	} else {
		r = copy_whole(&source, to, o, &made, err);
		if (r == 0 && o->progress)
			o->progress(o->cookie, (int64_t)source.info.size);
	}
	made.size = source.info.size;
	if (r == 0 && o->if_match) {
		r = check_source(from, o->if_match, err);
		if (r < 0 && o->if_none_match)
			object_delete(to, made.etag, NULL);
	}
	return object_info_pass(r, &made, info);
}

/* ---- presigned URLs ---- */

/* Chooses the signer: the account of the key file, or the owner of the keys. */
static int presign_keys(const struct s3_op *op, struct sigv4 *signer,
	struct sigv4_credentials *keys, struct penstock_error *err)
{
	const struct object_client *client = op->at.client;
	const struct google_key *key = client->settings.key;

	signer->kind = client->signers[0].sigv4.kind;
	if (client->google && key && key->kind == GOOGLE_SERVICE_ACCOUNT) {
		signer->kind = SIGV4_GOOG_RSA;
		signer->rsa = google_sign_hex;
		signer->cookie = (void *)key;
		*keys = (struct sigv4_credentials){key->client_email, "", NULL};
		return 0;
	}
	if (op->keys.access_key_id) {
		*keys = (struct sigv4_credentials){
			op->keys.access_key_id, op->keys.secret_access_key, op->keys.session_token};
		return 0;
	}
	return error_set(err, PENSTOCK_E_PERMISSION, "%s",
		op->keys.bearer
			? "cannot presign a URL with a token; use HMAC keys or the key file of a "
			  "service account"
			: "cannot presign a URL without credentials");
}

int object_presign(struct object_ref at, const char *method, uint32_t expires_s, struct buf *out,
	struct penstock_error *err)
{
	_cleanup_(s3_op_release) struct s3_op op = {0};
	_cleanup_(buf_release) struct buf query = BUF_INIT(LIMIT_STRING);
	_cleanup_(sigv4_release) struct sigv4 signer = {0};
	struct sigv4_credentials keys;
	/* A key file signs without a token. */
	bool offline = at.client->google && at.client->settings.key;
	int r;

	s3_op_init(&op, method, at);
	r = offline ? s3_op_url(&op, err) : s3_op_ready(&op, err);
	if (r == 0)
		r = sigv4_init(&signer, err);
	if (r == 0)
		r = presign_keys(&op, &signer, &keys, err);
	if (r == 0) {
		const struct sigv4_header host = {"host", buf_str(&op.host)};
		const struct sigv4_request request = {.method = method,
			.path = buf_str(&op.path),
			.query = "",
			.headers = &host,
			.n_headers = 1,
			.payload_hash = SIGV4_UNSIGNED_PAYLOAD};
		int64_t now = clock_wall_ns() / NS_PER_S + atomic_load(&at.client->skew_s);

		r = sigv4_presign(&signer, &request,
			(struct sigv4_identity){&keys, at.client->settings.region,
				at.client->google ? "storage" : "s3", now},
			expires_s, &query, err);
	}
	if (r < 0)
		return r;
	buf_printf(out, "%s?%s", op.request.url, buf_str(&query));
	return buf_failed(out) ? buf_error(out, "the URL", err) : 0;
}

/* ---- conditions ---- */

/* Returns 1 if the store refused because of the condition, 0 if it ignored or does not support the
 * condition, or a negative error. */
static int refused(int r, struct penstock_error *err)
{
	if (r == -(int)PENSTOCK_E_PRECONDITION || r == -(int)PENSTOCK_E_EXISTS ||
		r == -(int)PENSTOCK_E_UNSUPPORTED) {
		bool precondition = r != -(int)PENSTOCK_E_UNSUPPORTED;

		penstock_error_release(err);
		return precondition;
	}
	return r < 0 ? r : 0;
}

/* Completes a multipart upload over an existing object under If-None-Match, which the store must
 * refuse. Returns 1 if the store refuses because of the condition, 0 if not, or a retryable
 * error. */
static int probe_complete(struct object_ref at, struct penstock_error *err)
{
	static const char text[] = "complete";
	_cleanup_close_ int fd = memfd_create("probe", MFD_CLOEXEC);
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;
	int r;

	if (fd < 0 || fs_write_all(fd, text, strlen(text)) < 0)
		return error_errno(err, errno, "cannot create a file in memory");
	r = refused(put_in_parts(at, fd, strlen(text),
			    &(struct object_put_options){.if_none_match = true}, NULL, &own),
		&own);
	/* A permanent failure is no error here: if the store has no multipart uploads, the first
	 * large file will show that. */
	if (r < 0 && error_is_retryable(&own))
		return error_move(err, &own);
	return r < 0 ? 0 : r;
}

static int probe(
	struct object_ref at, struct object_conditions *honoured, struct penstock_error *err)
{
	static const char wrong[] = "\"00000000000000000000000000000000\"";
	int r = object_put(at, "probe", 5, NULL, NULL, err);

	if (r < 0)
		return r;
	if (atomic_load(&at.client->own_kind)) {
		*honoured = (struct object_conditions){true, true, true};
		return 0;
	}
	r = refused(object_put(at, "create", 6, &(struct object_put_options){.if_none_match = true},
			    NULL, err),
		err);
	if (r > 0)
		r = refused(object_put(at, "replace", 7,
				    &(struct object_put_options){.if_match = wrong}, NULL, err),
			err);
	if (r <= 0)
		return r;
	honoured->put = true;
	/* Google supports no condition on CompleteMultipartUpload. It counts as honoured, because a
	 * conditional upload to Google is never sent in parts. */
	r = at.client->google ? 1 : probe_complete(at, err);
	honoured->complete = r > 0;
	if (r >= 0)
		r = refused(object_delete(at, wrong, err), err);
	honoured->remove = r > 0 && object_head(at, NULL, NULL) == 0;
	return r < 0 ? r : 0;
}

int object_probe_conditions(
	struct object_ref at, struct object_conditions *honoured, struct penstock_error *err)
{
	_cleanup_free_ char *key = NULL;
	struct object_conditions result = {0};
	uint64_t random = 0;
	int r;

	LOCK_SCOPE(&at.client->probe_lock);
	if (at.client->probed) {
		*honoured = at.client->conditions;
		return 0;
	}
	if (getrandom(&random, sizeof(random), 0) < 0)
		random = (uint64_t)clock_wall_ns();
	key = str_printf("%sprobe-%016" PRIx64, at.key ? at.key : "", random);
	if (!key)
		return error_memory(err);
	r = probe(object_at(at.client, at.bucket, key), &result, err);
	object_delete(object_at(at.client, at.bucket, key), NULL, NULL);
	if (r < 0)
		return r;
	at.client->probed = true;
	at.client->conditions = result;
	*honoured = result;
	return 0;
}
