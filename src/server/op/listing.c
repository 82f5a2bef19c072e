#include "server/op/op.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "s3/message/messages.h"
#include "s3/uri.h"
#include "s3/message/xml.h"
#include "server/access/owner.h"
#include "server/request/headers.h"
#include "server/request/reply.h"
#include "server/request/request.h"

/* --- shared by the lists of objects, of versions and of uploads ------------------------------ */

bool op_list_begin(struct request *req, const char *max_name, struct s3_list *list,
	struct store_list_query *query)
{
	const char *encoding = request_query(req, "encoding-type");
	uint64_t max = LIMIT_S3_LIST_KEYS;

	if (encoding && strcmp(encoding, "url") != 0)
		return reply_errorf(
			req, S3_E_INVALID_ARGUMENT, "Invalid Encoding Method specified in Request");
	if (!request_query_number(req, max_name, 0, INT32_MAX, &max))
		return false;
	list->bucket = req->bucket;
	list->prefix = request_query(req, "prefix");
	if (!list->prefix)
		list->prefix = "";
	list->delimiter = request_query(req, "delimiter");
	if (list->delimiter && !*list->delimiter)
		list->delimiter = NULL;
	list->url_encoded = encoding != NULL;
	list->max_keys = max > LIMIT_S3_LIST_KEYS ? LIMIT_S3_LIST_KEYS : (unsigned)max;
	query->bucket = req->bucket;
	query->prefix = list->prefix;
	query->delimiter = list->delimiter;
	query->max = list->max_keys;
	return true;
}

bool op_names_fit(const struct store_list *found)
{
	for (size_t i = 0; i < found->n; i++)
		if (!xml_can_hold(found->entries[i].key))
			return false;
	return true;
}

/* Fills in the entries and prefixes of the document; list_reply() frees the arrays. */
static bool list_fill(struct request *req, struct s3_list *list, const struct store_list *found,
	const struct s3_owner *owner)
{
	list->entries = calloc(found->n + 1, sizeof(*list->entries));
	list->prefixes = calloc(found->n + 1, sizeof(*list->prefixes));
	if (!list->entries || !list->prefixes)
		return reply_error(req, S3_E_SLOW_DOWN);
	for (size_t i = 0; i < found->n; i++) {
		const struct store_list_entry *f = &found->entries[i];
		struct s3_list_entry *e;

		if (f->is_prefix) {
			list->prefixes[list->n_prefixes++] = f->key;
			continue;
		}
		e = &list->entries[list->n_entries++];
		*e = (struct s3_list_entry){.key = f->key,
			.etag = request_quote(req, f->etag),
			.storage_class = f->storage_class[0] ? f->storage_class : NULL,
			.owner = owner,
			.size = f->size,
			.modified_ns = f->modified_ns};
		if (f->checksum.algorithm[0]) {
			e->checksum_algorithm = f->checksum.algorithm;
			e->checksum_type = f->checksum.type;
		}
	}
	list->truncated = found->truncated;
	return true;
}

/* Reads the list and replies; `*next` (the marker of v1, or the token of v2) is set to the last
 * entry of a truncated list. */
static void list_reply(struct request *req, struct s3_list *list,
	const struct store_list_query *query, bool owners, const char **next, bool token)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_(buf_release) struct buf xml = BUF_INIT(LIMIT_LIST_REPLY);
	_cleanup_(store_list_release) struct store_list found = {0};
	struct store_bucket bucket;
	struct s3_owner owner;

	if (owners && !owner_of_request_bucket(req, &bucket, &owner))
		return;
	if (!reply_unless_stored(
		    req, store_list_objects(req->server->store, query, &found, &err), &err))
		return;
	list->url_encoded = list->url_encoded || !op_names_fit(&found);
	if (list_fill(req, list, &found, owners ? &owner : NULL)) {
		if (found.truncated && next) {
			const char *last = found.entries[found.n - 1].key;

			*next = token ? op_token(req, last) : last;
		}
		s3_list_write(&xml, list);
		reply_xml(req, MHD_HTTP_OK, &xml);
	}
	free(list->entries);
	free(list->prefixes);
}

/* --- version 1 ------------------------------------------------------------------------------- */

void op_list_objects(struct request *req)
{
	struct s3_list list = {.version = 1};
	struct store_list_query query = {0};

	if (op_list_begin(req, "max-keys", &list, &query)) {
		list.marker = request_query(req, "marker");
		if (!list.marker)
			list.marker = "";
		query.after = list.marker;
		list_reply(
			req, &list, &query, true, list.delimiter ? &list.next_marker : NULL, false);
	}
}

/* --- version 2 ------------------------------------------------------------------------------- */

const char *op_token(struct request *req, const char *last)
{
	char *coded = arena_alloc(&req->arena, 2 * strlen(last) + 1);

	req->no_memory = req->no_memory || !coded;
	if (coded)
		str_hex(last, strlen(last), coded);
	return coded;
}

const char *op_token_decode(struct request *req, const char *token)
{
	size_t len = strlen(token) / 2;
	char *plain = request_strdup(req, token);

	if (plain && len && len <= 2 * LIMIT_S3_KEY && str_unhex(token, plain, len) == 0) {
		plain[len] = '\0';
		return plain;
	}
	reply_errorf(req, S3_E_INVALID_ARGUMENT, "The continuation token provided is incorrect");
	return NULL;
}

void op_list_objects_v2(struct request *req)
{
	struct s3_list list = {.version = 2};
	struct store_list_query query = {0};
	const char *type = request_query(req, "list-type"), *fetch_owner;

	if (!type || strcmp(type, "2") != 0) {
		reply_errorf(req, S3_E_INVALID_ARGUMENT, "list-type must be 2");
		return;
	}
	if (!op_list_begin(req, "max-keys", &list, &query))
		return;
	list.start_after = request_query(req, "start-after");
	list.continuation_token = request_query(req, "continuation-token");
	query.after = list.start_after;
	if (list.continuation_token) {
		query.after = op_token_decode(req, list.continuation_token);
		if (!query.after)
			return;
	}
	fetch_owner = request_query(req, "fetch-owner");
	list_reply(req, &list, &query, fetch_owner && strcmp(fetch_owner, "true") == 0,
		&list.next_continuation_token, true);
}

/* --- ListMultipartUploads -------------------------------------------------------------------- */

static void write_uploads(
	struct request *req, struct s3_uploads *list, const struct store_list *found)
{
	_cleanup_(buf_release) struct buf xml = BUF_INIT(LIMIT_LIST_REPLY);

	list->uploads = calloc(found->n + 1, sizeof(*list->uploads));
	list->prefixes = calloc(found->n + 1, sizeof(*list->prefixes));
	if (!list->uploads || !list->prefixes) {
		reply_error(req, S3_E_SLOW_DOWN);
		goto out;
	}
	for (size_t i = 0; i < found->n; i++) {
		const struct store_list_entry *u = &found->entries[i];

		if (u->is_prefix) {
			list->prefixes[list->n_prefixes++] = u->key;
			continue;
		}
		list->uploads[list->n_uploads++] = (struct s3_upload){.key = u->key,
			.upload_id = u->etag,
			.storage_class = u->storage_class[0] ? u->storage_class : NULL,
			.checksum_algorithm = u->checksum.algorithm[0] ? u->checksum.algorithm
								       : NULL,
			.checksum_type = u->checksum.algorithm[0] ? u->checksum.type : NULL,
			.initiated_ns = u->modified_ns,
			.owner = owner_of_account(req, u->owner)};
	}
	list->truncated = found->truncated;
	list->url_encoded = list->url_encoded || !op_names_fit(found);
	if (found->truncated) {
		const struct store_list_entry *last = &found->entries[found->n - 1];

		list->next_key_marker = last->key;
		list->next_upload_id_marker = last->is_prefix ? "" : last->etag;
	}
	s3_uploads_write(&xml, list);
	reply_xml(req, MHD_HTTP_OK, &xml);
out:
	free(list->uploads);
	free(list->prefixes);
}

void op_list_uploads(struct request *req)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	const char *id = request_query(req, "upload-id-marker");
	struct s3_list asked = {0};
	struct store_list_query query = {.after = request_query(req, "key-marker")};
	_cleanup_(store_list_release) struct store_list found = {0};
	enum store_status status;

	if (!op_list_begin(req, "max-uploads", &asked, &query))
		return;
	status = store_upload_list(req->server->store, &query, id && *id ? id : NULL, &found, &err);
	if (reply_unless_stored(req, status, &err))
		write_uploads(req,
			&(struct s3_uploads){.bucket = req->bucket,
				.prefix = asked.prefix,
				.delimiter = asked.delimiter,
				.key_marker = query.after,
				.upload_id_marker = id,
				.max_uploads = asked.max_keys,
				.url_encoded = asked.url_encoded},
			&found);
}
