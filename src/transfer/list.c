/* Listings and the deletion of many keys. */
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "s3/messages.h"
#include "s3/xml.h"
#include "transfer/list_page.h"
#include "transfer/objects_internal.h"
#include "base/banned.h"

struct listing {
	struct list_query query;
	object_list_fn fn;
	void *cookie;
	bool stopped;

	/*
	 * A store may hand out pages in a circle. Each page is compared with one that is kept, and the one
	 * that is kept becomes a later one each time the number of pages has doubled: so every circle
	 * closes, whatever its length.
	 */
	struct buf kept_token;
	struct buf kept_first; /* its first key or prefix */
	uint64_t pages;
	uint64_t keep_at; /* the page that is kept next */
	unsigned empty;	  /* pages in a row without anything */
};

static int keep_page(
	struct listing *l, const char *token, const char *first, struct penstock_error *err)
{
	buf_clear(&l->kept_token);
	buf_clear(&l->kept_first);
	buf_add_str(&l->kept_token, token);
	buf_add_str(&l->kept_first, first);
	return buf_failed(&l->kept_token) || buf_failed(&l->kept_first) ? error_memory(err) : 0;
}

/* Whether a page that leads to another gets on from those before it. */
static int check_progress(
	struct listing *l, const struct list_page *page, struct penstock_error *err)
{
	const char *first = page->n ? list_page_key(page, 0) : "";

	l->empty = *first ? 0 : l->empty + 1;
	if (l->empty > LIMIT_S3_EMPTY_PAGES ||
		(l->pages && (strcmp(page->token, buf_str(&l->kept_token)) == 0 ||
				     (*first && strcmp(first, buf_str(&l->kept_first)) == 0))))
		return list_stuck(&l->query, err);
	if (l->pages++ < l->keep_at)
		return 0;
	l->keep_at = 2 * l->pages;
	return keep_page(l, page->token, first, err);
}

static void give_page(struct listing *l, const struct list_page *page)
{
	for (size_t i = 0; i < page->n && !l->stopped; i++) {
		const struct list_item *item = &page->items[i];
		struct object_info info = {.key = page->text + item->key,
			.size = item->size,
			.modified_ns = item->modified_ns,
			.is_prefix = item->is_prefix};

		object_etag_copy(info.etag, page->text + item->etag);
		l->stopped = l->fn(l->cookie, &info) != 0;
	}
}

int object_list(struct object_client *client, const char *bucket, const char *prefix,
	const char *delimiter, object_list_fn fn, void *cookie, const atomic_int *cancel,
	struct penstock_error *err)
{
	struct listing l = {.query = {.client = client,
				    .bucket = bucket,
				    .prefix = prefix,
				    .delimiter = delimiter,
				    .cancel = cancel},
		.fn = fn,
		.cookie = cookie,
		.kept_token = BUF_INIT(LIMIT_STRING),
		.kept_first = BUF_INIT(LIMIT_STRING)};
	struct list_page *page = NULL;
	int r;

	for (;;) {
		struct list_page *before = page;

		page = NULL;
		r = list_page_fetch(&page, &l.query, err);
		list_page_free(before); /* its token was asked for */
		if (r == 0 && page->token)
			r = check_progress(&l, page, err);
		if (r == 0)
			give_page(&l, page);
		if (r < 0 || l.stopped || !page->token)
			break;
		l.query.token = page->token;
		l.query.v1 = page->v1;
	}
	list_page_free(page);
	buf_release(&l.kept_token);
	buf_release(&l.kept_first);
	return r;
}

/* ---- deleting many ---- */

#define SINGLE_PARALLEL 16 /* deletes of one key each under way at a time */

struct deletion {
	struct object_client *client;
	const char *bucket;
	void (*on_error)(void *cookie, const char *key, const struct penstock_error *err);
	void *cookie;
	struct penstock_error first;
};

static void deletion_failed(struct deletion *d, const char *key, struct penstock_error *err)
{
	if (d->on_error)
		d->on_error(d->cookie, key, err);
	if (d->first.code)
		penstock_error_release(err);
	else
		error_move(&d->first, err);
}

/* Content-MD5 is what every store accepts for a multi-delete, old ones demand it. */
static int add_md5(struct s3_op *op, const struct buf *body, struct penstock_error *err)
{
	uint8_t digest[CHECKSUM_MAX_SIZE];
	char text[CHECKSUM_TEXT_SIZE];
	int r = checksum_of(CHECKSUM_MD5, body->data, body->len, digest, err);

	if (r < 0)
		return r;
	checksum_format(CHECKSUM_MD5, digest, text);
	return s3_op_header(op, "content-md5", text, err);
}

static void report_outcomes(struct deletion *d, const struct s3_delete_result *result)
{
	for (size_t i = 0; i < result->n; i++) {
		const struct s3_delete_outcome *outcome = &result->outcomes[i];
		struct penstock_error err = PENSTOCK_ERROR_INIT;
		enum s3_error e;

		if (!outcome->code || strcmp(outcome->code, "NoSuchKey") == 0)
			continue;
		e = s3_error_find(outcome->code);
		error_set(&err, e ? s3_error_info(e)->means : PENSTOCK_E_UNAVAILABLE,
			"DELETE s3://%s/%s: %s: %s", d->bucket, outcome->key ? outcome->key : "",
			outcome->code, outcome->message ? outcome->message : "no reason given");
		deletion_failed(d, outcome->key ? outcome->key : "", &err);
	}
}

/* All keys but those that the document would name wrongly, which may be those of other objects. */
static int delete_batch(struct deletion *d, char *const *keys, size_t n, struct penstock_error *err)
{
	_cleanup_(s3_op_release) struct s3_op op = {0};
	_cleanup_(buf_release) struct buf body = BUF_INIT(LIMIT_XML_BODY);
	_cleanup_(s3_delete_result_release) struct s3_delete_result result = {0};
	struct s3_delete_item items[LIMIT_S3_LIST_KEYS] = {{0}};
	size_t n_items = 0;
	int r;

	for (size_t i = 0; i < n; i++) {
		if (xml_can_hold(keys[i]))
			items[n_items++].key = keys[i];
	}
	if (!n_items)
		return 0;
	r = s3_op_init(&op, d->client, "POST", d->bucket, NULL, err);
	if (r < 0)
		return r;
	s3_delete_write(&body, &(struct s3_delete){.quiet = true, .items = items, .n = n_items});
	if (buf_failed(&body))
		return buf_error(&body, "the list of keys", err);
	r = s3_op_query(&op, "delete", NULL, err);
	if (r == 0)
		r = s3_op_header(&op, "content-type", "application/xml", err);
	if (r == 0)
		r = s3_op_body(&op, body.data, body.len, err);
	if (r == 0)
		r = add_md5(&op, &body, err);
	if (r < 0)
		return r;
	s3_op_wants_document(&op);
	r = s3_op_perform(&op, err);
	if (r < 0)
		return r;
	if (s3_delete_result_parse(op.document.data, op.document.len, &result, err) < 0)
		return error_prefix(err, "%s", op.what);
	report_outcomes(d, &result);
	return 0;
}

/* One key by itself, on its way. */
struct single {
	struct s3_op op; /* first: `done` gets its address */
	struct fan *fan;
	const char *key; /* NULL: empty */
	atomic_bool flying;
	struct penstock_error error;
};

static void single_done(void *cookie, struct http_request *request, struct http_reply *reply,
	struct penstock_error *err)
{
	struct s3_op *op = cookie;
	struct single *single = (struct single *)(void *)op;

	(void)request;
	(void)reply;
	/* The failure of one is not the others', and what is not there is gone. */
	if (err && (op->error == S3_E_NO_SUCH_BUCKET || err->http_status != 404))
		error_move(&single->error, err);
	else if (err)
		penstock_error_release(err);
	atomic_store(&single->flying, false);
	fan_ended(single->fan, NULL);
}

static void single_collect(struct deletion *d, struct single *single)
{
	if (!single->key)
		return;
	/* Once more, with credentials that live. */
	if (single->error.http_status == 401 || single->op.error == S3_E_EXPIRED_TOKEN) {
		penstock_error_release(&single->error);
		credentials_invalidate(d->client->credentials);
		object_delete(d->client, d->bucket, single->key, NULL, &single->error);
	}
	if (single->error.code)
		deletion_failed(d, single->key, &single->error);
	s3_op_release(&single->op);
	single->key = NULL;
}

static int single_start(struct deletion *d, struct single *single, struct fan *fan, const char *key)
{
	int r = s3_op_init(&single->op, d->client, "DELETE", d->bucket, key, &single->error);

	if (r == 0) {
		single->key = key;
		single->fan = fan;
		single->op.request.done = single_done;
		r = s3_op_ready(&single->op, &single->error);
	}
	if (r == 0) {
		atomic_store(&single->flying, true);
		r = fan_submit(fan, &single->op.request, &single->op.reply, &single->error);
		if (r < 0)
			atomic_store(&single->flying, false);
	}
	if (r < 0 && !single->key)
		deletion_failed(d, key, &single->error);
	return r;
}

/* All of them where the store has no multi-delete, else those that it was not told. */
static void delete_singly(struct deletion *d, char *const *keys, size_t n, bool all)
{
	struct single *singles = calloc(SINGLE_PARALLEL, sizeof(*singles));
	struct fan fan;

	fan_init(&fan, d->client->engine, NULL);
	for (size_t i = 0; i < n; i++) {
		struct penstock_error err = PENSTOCK_ERROR_INIT;
		struct single *free_one = NULL;

		if (!all && xml_can_hold(keys[i]))
			continue;
		if (!singles) {
			if (object_delete(d->client, d->bucket, keys[i], NULL, &err) < 0)
				deletion_failed(d, keys[i], &err);
			continue;
		}
		fan_wait(&fan, SINGLE_PARALLEL);
		for (unsigned s = 0; s < SINGLE_PARALLEL && !free_one; s++)
			free_one = atomic_load(&singles[s].flying) ? NULL : &singles[s];
		single_collect(d, free_one);
		single_start(d, free_one, &fan, keys[i]);
	}
	fan_finish(&fan, NULL);
	for (unsigned s = 0; singles && s < SINGLE_PARALLEL; s++)
		single_collect(d, &singles[s]);
	fan_release(&fan);
	free(singles);
}

int object_delete_many(struct object_client *client, const char *bucket, const struct strlist *keys,
	void (*on_error)(void *cookie, const char *key, const struct penstock_error *err),
	void *cookie, struct penstock_error *err)
{
	struct deletion d = {
		.client = client, .bucket = bucket, .on_error = on_error, .cookie = cookie};
	int r = 0;

	for (size_t at = 0; r == 0 && at < keys->n; at += LIMIT_S3_LIST_KEYS) {
		_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;
		size_t n = keys->n - at < LIMIT_S3_LIST_KEYS ? keys->n - at : LIMIT_S3_LIST_KEYS;

		/* Google has no such request. */
		if (client->google) {
			delete_singly(&d, keys->items + at, n, true);
			continue;
		}
		r = delete_batch(&d, keys->items + at, n, &own);
		if (r < 0 && (own.http_status == 501 || own.http_status == 405)) {
			delete_singly(&d, keys->items + at, n, true);
			r = 0;
		} else if (r < 0) {
			error_move(err, &own);
		} else {
			delete_singly(&d, keys->items + at, n, false);
		}
	}
	if (r == 0 && d.first.code)
		return error_move(err, &d.first);
	penstock_error_release(&d.first);
	return r;
}
