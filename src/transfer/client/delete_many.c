/*
 * Deletes many keys, optionally each only while its object is still the expected one. A store that
 * supports the condition decides; otherwise each object is checked just before its deletion.
 */
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "s3/message/messages.h"
#include "s3/message/xml.h"
#include "transfer/client/internal.h"

#define SINGLE_PARALLEL 16 /* requests about one key each in flight */
/* Number of keys that are checked together right before their deletion: an object replaced in
 * between is lost. */
#define LOOK_AHEAD SINGLE_PARALLEL

struct deletion {
	const struct object_deletion *asked;
	struct object_client *client;
	int64_t deadline_ms; /* 0 if there is no deadline */
	struct penstock_error first;

	/* The current batch. */
	char *const *keys;
	char *const *etags; /* expected ETags, "" for any ETag; NULL if no ETag is expected */
	size_t n;
	bool settled[LIMIT_S3_LIST_KEYS]; /* no more requests for this key */
	bool compares; /* the store itself compares the ETags */
};

static void deletion_failed(struct deletion *d, const char *key, struct penstock_error *err)
{
	if (d->asked->on_error)
		d->asked->on_error(d->asked->cookie, key, err);
	if (d->first.code)
		penstock_error_release(err);
	else
		error_move(&d->first, err);
}

static struct object_ref object_of(const struct deletion *d, const char *key)
{
	return object_at(d->client, d->asked->bucket, key);
}

static const char *expected(const struct deletion *d, size_t i)
{
	return d->etags && d->etags[i][0] ? d->etags[i] : NULL;
}

static bool was_asked(const struct deletion *d, const char *key)
{
	for (size_t i = 0; i < d->n; i++) {
		if (strcmp(d->keys[i], key) == 0)
			return true;
	}
	return false;
}

/* Reports the errors of keys. An error for a key that was not requested must concern a requested
 * key, but which one is unknown, so the error fails the whole request. */
static int report_outcomes(
	struct deletion *d, const struct s3_delete_result *result, struct penstock_error *whole)
{
	int r = 0;

	for (size_t i = 0; i < result->n; i++) {
		const struct s3_delete_outcome *outcome = &result->outcomes[i];
		const char *key = outcome->key ? outcome->key : "";
		struct penstock_error err = PENSTOCK_ERROR_INIT;
		enum s3_error e;

		if (!outcome->code || strcmp(outcome->code, "NoSuchKey") == 0)
			continue;
		e = s3_error_find(outcome->code);
		/* The condition failed on a missing object: an earlier attempt, whose reply was
		 * lost, deleted the object. */
		if (d->etags && e && s3_error_info(e)->means == PENSTOCK_E_PRECONDITION &&
			object_head(object_of(d, key), NULL, NULL) == -(int)PENSTOCK_E_NOT_FOUND)
			continue;
		object_error(&err, e ? s3_error_info(e)->means : PENSTOCK_E_UNAVAILABLE, "DELETE",
			object_of(d, key), "%s: %s", outcome->code,
			outcome->message ? outcome->message : "no reason given");
		if (was_asked(d, key))
			deletion_failed(d, key, &err);
		else if (r == 0)
			r = error_move(whole, &err);
		else
			penstock_error_release(&err);
	}
	return r;
}

static void set_bounds(const struct deletion *d, struct http_request *request)
{
	request->tidies_up = d->asked->tidies_up;
	request->deadline_ms = d->deadline_ms;
}

/* Deletes the batch in one request, without the keys that XML cannot express: with such a key, the
 * document could name another object. */
static int delete_batch(struct deletion *d, struct penstock_error *err)
{
	_cleanup_(s3_op_release) struct s3_op op = {0};
	_cleanup_(buf_release) struct buf body = BUF_INIT(LIMIT_XML_BODY);
	_cleanup_(s3_delete_result_release) struct s3_delete_result result = {0};
	struct s3_delete_item items[LIMIT_S3_LIST_KEYS] = {{0}};
	uint8_t digest[CHECKSUM_MAX_SIZE];
	char md5[CHECKSUM_TEXT_SIZE];
	size_t n_items = 0;
	int r;

	for (size_t i = 0; i < d->n; i++) {
		if (d->settled[i] || !xml_can_hold(d->keys[i]))
			continue;
		items[n_items].key = d->keys[i];
		items[n_items++].etag = d->compares ? expected(d, i) : NULL;
	}
	if (!n_items)
		return 0;
	s3_op_init(&op, "POST", object_of(d, NULL));
	set_bounds(d, &op.request);
	s3_delete_write(&body, &(struct s3_delete){.quiet = true, .items = items, .n = n_items});
	s3_op_query(&op, "delete", NULL);
	s3_op_xml(&op, &body, "the list of keys");
	/* Every store accepts Content-MD5 for a multi-delete; old ones require it. */
	if (checksum_of(CHECKSUM_MD5, body.data, body.len, digest, &op.failed) == 0) {
		checksum_format(CHECKSUM_MD5, digest, md5);
		s3_op_header(&op, "content-md5", md5);
	}
	r = s3_op_read(&op, s3_delete_result_parse, &result, err);
	return r < 0 ? r : report_outcomes(d, &result, err);
}

/* ---- one key per request ---- */

/* The deletion of one key in flight, or with `look` a HEAD that checks the ETag. */
struct single {
	struct s3_op op; /* first: `done` gets its address */
	struct fan *fan;
	size_t i;
	bool used;
	bool look;
	atomic_bool flying;
	struct penstock_error error;
};

static void single_done(void *cookie, struct http_request *request, struct http_reply *reply,
	struct penstock_error *err)
{
	struct single *single = cookie;

	(void)request;
	(void)reply;
	/* The failure of one key does not stop the others. */
	if (err)
		error_move(&single->error, err);
	fan_ended(single->fan, &single->flying, NULL);
}

static int compare_etag(
	const struct deletion *d, size_t i, const char *there, struct penstock_error *err)
{
	char wanted[OBJECT_ETAG_SIZE];

	object_etag_copy(wanted, expected(d, i));
	return strcmp(there, wanted) == 0
		       ? 0
		       : object_error(err, PENSTOCK_E_PRECONDITION, "DELETE",
				 object_of(d, d->keys[i]), "it was replaced meanwhile");
}

/* Repeats the request of one key by a blocking call, with renewed credentials. */
static void once_more(struct deletion *d, struct single *single)
{
	_cleanup_(object_info_release) struct object_info info = {0};
	struct object_ref at = object_of(d, d->keys[single->i]);

	penstock_error_release(&single->error);
	credentials_invalidate(d->client->settings.credentials);
	if (!single->look)
		object_delete(at, d->compares ? expected(d, single->i) : NULL, &single->error);
	else if (object_head(at, &info, &single->error) == 0)
		compare_etag(d, single->i, info.etag, &single->error);
}

static void single_collect(struct deletion *d, struct single *single)
{
	char etag[OBJECT_ETAG_SIZE];
	bool gone;

	if (!single->used)
		return;
	if (single->error.http_status == 401 || single->op.error == S3_E_EXPIRED_TOKEN) {
		once_more(d, single);
	} else if (single->look && !single->error.code) {
		object_etag_copy(etag, http_reply_header(&single->op.reply, "ETag"));
		compare_etag(d, single->i, etag, &single->error);
	}
	/* A missing object counts as deleted, even if the condition failed because an earlier
	 * attempt deleted it. */
	gone = (single->error.http_status == 404 && single->op.error != S3_E_NO_SUCH_BUCKET) ||
	       (single->error.http_status == 412 &&
		       object_head(object_of(d, d->keys[single->i]), NULL, NULL) ==
			       -(int)PENSTOCK_E_NOT_FOUND);
	if (!single->look || gone || single->error.code)
		d->settled[single->i] = true;
	if (gone)
		penstock_error_release(&single->error);
	else if (single->error.code)
		deletion_failed(d, d->keys[single->i], &single->error);
	s3_op_release(&single->op);
	single->used = false;
}

static void single_start(struct deletion *d, struct single *single, struct fan *fan, size_t i)
{
	s3_op_init(&single->op, single->look ? "HEAD" : "DELETE", object_of(d, d->keys[i]));
	set_bounds(d, &single->op.request);
	single->used = true;
	single->fan = fan;
	single->i = i;
	single->op.request.done = single_done;
	if (single->look)
		single->op.request.on_headers = s3_op_check_etag;
	else if (d->compares)
		s3_op_header(&single->op, "if-match", expected(d, i));
	if (s3_op_ready(&single->op, &single->error) == 0)
		fan_submit(fan, &single->op.request, &single->op.reply, &single->flying,
			&single->error);
}

typedef bool (*wanted_fn)(const struct deletion *d, size_t i);

static bool is_left(const struct deletion *d, size_t i)
{
	return !d->settled[i];
}

static bool has_odd_name(const struct deletion *d, size_t i)
{
	return !d->settled[i] && !xml_can_hold(d->keys[i]);
}

static bool is_guarded(const struct deletion *d, size_t i)
{
	return expected(d, i) != NULL;
}

/* Deletes each wanted key, or, with `look`, checks the ETag of its object. Failures are reported;
 * keys that need no more requests are marked in `settled`. */
static void go_singly(struct deletion *d, wanted_fn wanted, bool look, struct single *singles)
{
	struct fan fan;

	fan_init(&fan, d->client->engine, NULL);
	for (size_t i = 0; i < d->n; i++) {
		struct single *one = NULL;

		if (!wanted(d, i))
			continue;
		fan_wait(&fan, SINGLE_PARALLEL);
		for (unsigned s = 0; s < SINGLE_PARALLEL && !one; s++)
			one = atomic_load(&singles[s].flying) ? NULL : &singles[s];
		single_collect(d, one);
		one->look = look;
		single_start(d, one, &fan, i);
	}
	fan_finish(&fan, NULL);
	for (unsigned s = 0; s < SINGLE_PARALLEL; s++)
		single_collect(d, &singles[s]);
	fan_release(&fan);
}

static int delete_keys(struct deletion *d, struct single *singles, struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;
	int r;

	memset(d->settled, 0, sizeof(d->settled));
	if (d->etags && !d->compares)
		go_singly(d, is_guarded, true, singles);
	/* Google has no multi-delete. */
	if (d->client->google) {
		go_singly(d, is_left, false, singles);
		return 0;
	}
	r = delete_batch(d, &own);
	if (r < 0 && own.http_status != 501 && own.http_status != 405)
		return error_move(err, &own);
	go_singly(d, r < 0 ? is_left : has_odd_name, false, singles);
	return 0;
}

int object_delete_many(
	const struct object_deletion *deletion, size_t *decided, struct penstock_error *err)
{
	const struct strlist *keys = deletion->keys, *etags = deletion->etags;
	const struct object_client *client = deletion->client;
	struct deletion d = {.asked = deletion, .client = deletion->client};
	_cleanup_free_ struct single *singles = calloc(SINGLE_PARALLEL, sizeof(*singles));
	size_t most, at = 0;
	int r = 0;

	if (decided)
		*decided = 0;
	if (!singles)
		return error_memory(err);
	if (deletion->tidies_up)
		d.deadline_ms = clock_monotonic_ms() + LIMIT_TIDY_MS;
	d.compares = client->google || client->aws || atomic_load(&client->own_kind);
	most = etags && !d.compares ? LOOK_AHEAD : LIMIT_S3_LIST_KEYS;
	for (; r == 0 && at < keys->n; at += d.n) {
		if (decided)
			*decided = at;
		d.keys = keys->items + at;
		d.etags = etags ? etags->items + at : NULL;
		d.n = keys->n - at < most ? keys->n - at : most;
		r = delete_keys(&d, singles, err);
	}
	if (r == 0 && decided)
		*decided = keys->n;
	if (r == 0 && d.first.code)
		return error_move(err, &d.first);
	penstock_error_release(&d.first);
	return r;
}
