/* Listings and the deletion of many keys. */
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "s3/messages.h"
#include "s3/xml.h"
#include "transfer/objects_internal.h"
#include "base/banned.h"

struct listing {
	struct object_client *client;
	const char *bucket;
	const char *prefix;
	const char *delimiter;
	object_list_fn fn;
	void *cookie;
	const atomic_int *cancel;
	struct buf token; /* where the next page begins */
	bool v1;	  /* the store answers the old form; `token` is a marker */
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

static int page_query(struct listing *l, struct s3_op *op, struct penstock_error *err)
{
	int r = s3_op_query(op, "list-type", "2", err);

	if (r == 0)
		r = s3_op_query(op, "encoding-type", "url", err);
	if (r == 0 && l->prefix && *l->prefix)
		r = s3_op_query(op, "prefix", l->prefix, err);
	if (r == 0 && l->delimiter && *l->delimiter)
		r = s3_op_query(op, "delimiter", l->delimiter, err);
	if (r == 0 && l->token.len)
		r = s3_op_query(
			op, l->v1 ? "marker" : "continuation-token", buf_str(&l->token), err);
	return r;
}

static bool give_entry(struct listing *l, const struct s3_list_entry *entry)
{
	struct object_info info = {
		.key = (char *)entry->key, .size = entry->size, .modified_ns = entry->modified_ns};

	object_etag_copy(info.etag, entry->etag);
	l->stopped = l->fn(l->cookie, &info) != 0;
	return !l->stopped;
}

static bool give_prefix(struct listing *l, const char *prefix)
{
	const struct object_info info = {.key = (char *)prefix, .is_prefix = true};

	l->stopped = l->fn(l->cookie, &info) != 0;
	return !l->stopped;
}

static int not_below(const struct listing *l, const char *key, struct penstock_error *err)
{
	return error_set(err, PENSTOCK_E_PROTOCOL,
		"GET s3://%s: the store lists %s, which is not below the %s asked for", l->bucket,
		key, l->prefix);
}

/* What a caller would take for an object below its prefix must be one. */
static int check_names(
	const struct listing *l, const struct s3_list *page, struct penstock_error *err)
{
	const char *prefix = l->prefix ? l->prefix : "";

	for (size_t i = 0; i < page->n_entries; i++) {
		if (!str_starts(page->entries[i].key, prefix))
			return not_below(l, page->entries[i].key, err);
	}
	for (size_t i = 0; i < page->n_prefixes; i++) {
		if (!str_starts(page->prefixes[i], prefix))
			return not_below(l, page->prefixes[i], err);
	}
	return 0;
}

static int keep_page(
	struct listing *l, const char *token, const char *first, struct penstock_error *err)
{
	buf_clear(&l->kept_token);
	buf_clear(&l->kept_first);
	buf_add_str(&l->kept_token, token);
	buf_add_str(&l->kept_first, first);
	return buf_failed(&l->kept_token) || buf_failed(&l->kept_first) ? error_memory(err) : 0;
}

/* Whether a page that leads to `token` gets on from those before it. */
static int check_progress(struct listing *l, const struct s3_list *page, const char *token,
	struct penstock_error *err)
{
	const char *first = page->n_entries    ? page->entries[0].key
			    : page->n_prefixes ? page->prefixes[0]
					       : "";

	l->empty = *first ? 0 : l->empty + 1;
	if (l->empty > LIMIT_S3_EMPTY_PAGES ||
		(l->pages && (strcmp(token, buf_str(&l->kept_token)) == 0 ||
				     (*first && strcmp(first, buf_str(&l->kept_first)) == 0))))
		return error_set(err, PENSTOCK_E_PROTOCOL,
			"GET s3://%s: the store's listing does not get on: it lists the same again",
			l->bucket);
	if (l->pages++ < l->keep_at)
		return 0;
	l->keep_at = 2 * l->pages;
	return keep_page(l, token, first, err);
}

/* Keys and common prefixes come as two sorted lists; together they are in byte order. */
static void give_page(struct listing *l, const struct s3_list *page)
{
	size_t e = 0;
	size_t p = 0;
	bool go_on = true;

	while (go_on && (e < page->n_entries || p < page->n_prefixes)) {
		bool entry = p == page->n_prefixes ||
			     (e < page->n_entries &&
				     strcmp(page->entries[e].key, page->prefixes[p]) < 0);

		go_on = entry ? give_entry(l, &page->entries[e++])
			      : give_prefix(l, page->prefixes[p++]);
	}
}

static const char *next_token(struct listing *l, const struct s3_list *page)
{
	const char *last_entry = page->n_entries ? page->entries[page->n_entries - 1].key : NULL;
	const char *last_prefix = page->n_prefixes ? page->prefixes[page->n_prefixes - 1] : NULL;

	if (!page->truncated)
		return NULL;
	if (page->next_continuation_token)
		return page->next_continuation_token;
	l->v1 = true;
	if (page->next_marker)
		return page->next_marker;
	if (last_entry && last_prefix)
		return strcmp(last_entry, last_prefix) > 0 ? last_entry : last_prefix;
	return last_entry ? last_entry : last_prefix;
}

/* 1: there is another page. */
static int list_page(struct listing *l, struct penstock_error *err)
{
	_cleanup_(s3_op_release) struct s3_op op = {0};
	_cleanup_(s3_list_release) struct s3_list page = {0};
	const char *token;
	int r = s3_op_init(&op, l->client, "GET", l->bucket, NULL, err);

	if (r == 0)
		r = page_query(l, &op, err);
	if (r < 0)
		return r;
	s3_op_wants_document(&op);
	s3_op_cancel(&op, l->cancel);
	r = s3_op_perform(&op, err);
	if (r < 0)
		return r;
	if (s3_list_parse(op.document.data, op.document.len, &page, err) < 0)
		return error_prefix(err, "%s", op.what);
	token = next_token(l, &page);
	r = check_names(l, &page, err);
	if (r == 0 && token)
		r = check_progress(l, &page, token, err);
	if (r < 0)
		return r;
	give_page(l, &page);
	if (l->stopped || !token)
		return 0;
	buf_clear(&l->token);
	buf_add_str(&l->token, token);
	return buf_failed(&l->token) ? buf_error(&l->token, "the listing's token", err) : 1;
}

int object_list(struct object_client *client, const char *bucket, const char *prefix,
	const char *delimiter, object_list_fn fn, void *cookie, const atomic_int *cancel,
	struct penstock_error *err)
{
	struct listing l = {.client = client,
		.bucket = bucket,
		.prefix = prefix,
		.delimiter = delimiter,
		.fn = fn,
		.cookie = cookie,
		.cancel = cancel,
		.token = BUF_INIT(LIMIT_STRING),
		.kept_token = BUF_INIT(LIMIT_STRING),
		.kept_first = BUF_INIT(LIMIT_STRING)};
	int r;

	do {
		r = list_page(&l, err);
	} while (r > 0);
	buf_release(&l.token);
	buf_release(&l.kept_token);
	buf_release(&l.kept_first);
	return r;
}

/* ---- deleting many ---- */

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

/* All of them where the store has no multi-delete, else those that it was not told. */
static void delete_singly(struct deletion *d, char *const *keys, size_t n, bool all)
{
	for (size_t i = 0; i < n; i++) {
		struct penstock_error err = PENSTOCK_ERROR_INIT;

		if (!all && xml_can_hold(keys[i]))
			continue;
		if (object_delete(d->client, d->bucket, keys[i], NULL, &err) < 0)
			deletion_failed(d, keys[i], &err);
	}
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
