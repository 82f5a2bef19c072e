#include "server/op/op.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "s3/message/messages.h"
#include "s3/uri.h"
#include "s3/message/xml.h"
#include "server/access/grants.h"
#include "server/directory/identity.h"
#include "server/access/owner.h"
#include "server/access/settings.h"
#include "server/access/access.h"
#include "server/request/headers.h"
#include "server/request/lock.h"
#include "server/request/reply.h"
#include "server/request/request.h"
#include "server/request/tags.h"

/* --- the service ----------------------------------------------------------------------------- */

/* The region of buckets that were created without a region. */
#define DEFAULT_REGION "us-east-1"

static const char *region_of(const struct store_bucket *bucket)
{
	return bucket->region[0] ? bucket->region : DEFAULT_REGION;
}

/* Returns the owner of the sender's buckets in the store. */
static const char *sender_owner(const struct request *req)
{
	const char *account = req->identity->account;

	return strcmp(account, ACCOUNT_FIRST) == 0 ? NULL : account;
}

static bool read_bucket_query(struct request *req, struct store_bucket_query *q)
{
	const char *token = request_query(req, "continuation-token");
	const char *region = request_query(req, "bucket-region");

	*q = (struct store_bucket_query){.owner = sender_owner(req),
		.prefix = request_query(req, "prefix"),
		.region = region && strcmp(region, DEFAULT_REGION) == 0 ? "" : region,
		.max = LIMIT_S3_LIST_BUCKETS};
	if (request_has_query(req, "max-buckets") &&
		!request_query_number(req, "max-buckets", 1, LIMIT_S3_LIST_BUCKETS, &q->max))
		return false;
	if (token && *token)
		q->after = op_token_decode(req, token);
	return !request_replied(req);
}

void op_list_buckets(struct request *req)
{
	_cleanup_(buf_release) struct buf xml = BUF_INIT(LIMIT_LIST_REPLY);
	_cleanup_free_ struct store_bucket *found = NULL;
	_cleanup_free_ struct s3_bucket *buckets = NULL;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct s3_buckets list = {.owner = owner_of_account(req, req->identity->account)};
	struct store_bucket_query q;
	size_t n = 0;

	if (!read_bucket_query(req, &q))
		return;
	q.max++; /* one more shows that the list goes on after the page */
	if (!reply_unless_stored(
		    req, store_bucket_list(req->server->store, &q, &found, &n, &err), &err))
		return;
	list.n = n < q.max ? n : n - 1;
	buckets = calloc(n + 1, sizeof(*buckets));
	if (!buckets) {
		reply_error(req, S3_E_SLOW_DOWN);
		return;
	}
	for (size_t i = 0; i < list.n; i++)
		buckets[i] = (struct s3_bucket){
			found[i].name, region_of(&found[i]), found[i].created_ns};
	if (list.n < n)
		list.continuation_token = op_token(req, buckets[list.n - 1].name);
	list.buckets = buckets;
	list.prefix = q.prefix;
	s3_buckets_write(&xml, &list);
	reply_xml(req, MHD_HTTP_OK, &xml);
}

/* --- one bucket ------------------------------------------------------------------------------ */

/* Returns true for a valid region name. Every valid name is accepted and stored. */
static bool is_region(const char *text)
{
	size_t len = strlen(text);

	return len < STORE_REGION_SIZE &&
	       strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-") ==
		       len;
}

static void add_config(struct store_new_bucket *out, const char *name, const char *text)
{
	if (!text)
		return;
	out->configs[out->n_configs].name = name;
	out->configs[out->n_configs++].text = text;
}

/* Selects the tags of a new bucket. Sets the reply and returns false on failure. */
static bool choose_tags(
	struct request *req, const struct s3_create_bucket *config, struct store_new_bucket *out)
{
	const struct s3_tagging tags = {.tags = config->tags, .n = config->n_tags};

	const char *text;

	if (!tags.n)
		return true;
	/* AWS checks s3:TagResource; this store checks s3:PutBucketTagging for later changes. */
	if (!access_check_implied(req, "s3:TagResource", true) ||
		!access_check_implied(req, "s3:PutBucketTagging", false))
		return false;
	if (!tags_acceptable(req, &tags, S3_BUCKET_TAGS))
		return false;
	text = tags_text(req, &tags);
	add_config(out, TAGS_CONFIG, text);
	return text != NULL;
}

/* Selects the grants and the object ownership of a new bucket. Sets the reply and returns false on
 * failure. */
static bool choose_access(struct request *req, struct store_new_bucket *out)
{
	const char *ownership = request_header(req, "x-amz-object-ownership");
	const char *acl;

	if (ownership && !ownership_find(ownership))
		return reply_errorf(req, S3_E_INVALID_ARGUMENT,
			"Invalid x-amz-object-ownership header: %s", ownership);
	if (!grants_of_new_bucket(req, &acl))
		return false;
	add_config(out, ACL_CONFIG, acl);
	add_config(out, OWNERSHIP_CONFIG, ownership);
	return true;
}

/* Reads x-amz-bucket-object-lock-enabled. Sets the reply and returns false if the value is not a
 * boolean. */
static bool choose_lock(struct request *req, struct store_new_bucket *out)
{
	const char *lock = request_header(req, "x-amz-bucket-object-lock-enabled");

	out->lock = lock && strcasecmp(lock, "true") == 0;
	return !lock || out->lock || strcasecmp(lock, "false") == 0 ||
	       reply_errorf(req, S3_E_INVALID_ARGUMENT,
		       "x-amz-bucket-object-lock-enabled must be true or false");
}

/* Handles a request to create a bucket that already exists. As with AWS, the account that owns a
 * bucket in the default region may create it again if nothing would change. */
static enum store_status create_again(struct request *req, const struct store_new_bucket *new)
{
	_cleanup_(settings_unrefp) struct access_settings *settings = NULL;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct store_bucket there;

	if (!reply_unless_stored(
		    req, store_bucket_get(req->server->store, new->name, &there, &err), &err))
		return STORE_FAILED;
	if (settings_get(req->server, new->name, &settings, &err) < 0) {
		reply_failure(req, &err);
		return STORE_FAILED;
	}
	if (!owner_is_sender(req, &there) || settings->acl || grants_are_asked(req)) {
		reply_error(req, S3_E_BUCKET_ALREADY_EXISTS);
		return STORE_FAILED;
	}
	return !*new->region && !new->n_configs && !new->lock && !*there.region
		       ? STORE_OK
		       : STORE_BUCKET_EXISTS;
}

static void add_bucket(struct request *req, const struct store_new_bucket *new)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	enum store_status status = store_bucket_add(req->server->store, new, &err);

	if (status == STORE_BUCKET_EXISTS)
		status = create_again(req, new);
	if (request_replied(req))
		return;
	/* The rules of a bucket of this name that was just deleted may still be in memory. */
	if (reply_unless_stored(req, status, &err) && op_update_rules(req)) {
		reply_empty(req, MHD_HTTP_OK);
		reply_headerf(req, "Location", "/%s", new->name);
	}
}

static void create_bucket(struct request *req, const struct s3_create_bucket *config)
{
	struct store_new_bucket new = {.name = req->bucket,
		.owner = sender_owner(req),
		.max = LIMIT_S3_LIST_BUCKETS,
		.region = config->location && strcmp(config->location, DEFAULT_REGION) != 0
				  ? config->location
				  : ""};

	if (!is_region(new.region))
		reply_code(req, 400, "InvalidLocationConstraint",
			"The specified location constraint is not valid");
	else if (choose_lock(req, &new) && choose_access(req, &new) &&
		 choose_tags(req, config, &new))
		add_bucket(req, &new);
}

void op_create_bucket(struct request *req)
{
	const struct buf *document = &req->body.document;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct s3_create_bucket config = {0};

	if (s3_create_bucket_parse(buf_str(document), document->len, &config, &err) < 0) {
		reply_document_error(req, S3_E_MALFORMED_XML, &err);
		return;
	}
	create_bucket(req, &config);
	s3_create_bucket_release(&config);
}

bool op_get_bucket(struct request *req, struct store_bucket *out)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;

	return reply_unless_stored(
		req, store_bucket_get(req->server->store, req->bucket, out, &err), &err);
}

bool op_subject_exists(struct request *req)
{
	struct store_object *object;

	if (!req->key)
		return op_get_bucket(req, NULL);
	object = reply_unless_found(req, req->bucket, req->key, req->version);
	store_object_unref(object);
	return object != NULL;
}

void op_head_bucket(struct request *req)
{
	struct store_bucket bucket;

	if (!op_get_bucket(req, &bucket))
		return;
	reply_empty(req, MHD_HTTP_OK);
	reply_header(req, "x-amz-bucket-region", region_of(&bucket));
}

void op_delete_bucket(struct request *req)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;

	if (reply_unless_stored(req,
		    store_bucket_delete(req->server->store, req->bucket, req->bucket_id, &err),
		    &err) &&
		op_update_rules(req))
		reply_empty(req, MHD_HTTP_NO_CONTENT);
}

void op_bucket_location(struct request *req)
{
	_cleanup_(buf_release) struct buf xml = BUF_INIT(LIMIT_XML_BODY);
	struct store_bucket bucket;

	if (!op_get_bucket(req, &bucket))
		return;
	s3_reply_write(
		&xml, &(struct s3_reply){.kind = S3_REPLY_LOCATION, .location = bucket.region});
	reply_xml(req, MHD_HTTP_OK, &xml);
}

/* --- deleting objects ------------------------------------------------------------------------- */

void op_delete_object(struct request *req)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct store_delete item = {.key = req->key,
		.version = req->version,
		.condition = headers_condition(req),
		.bypass = lock_is_bypassed(req),
		.origin = op_origin(req, "ObjectRemoved")};
	enum store_status status;
	const char *version;

	if (!op_replica_version(req, &item.replica))
		return;
	if (!condition_add_state(&item.condition, request_header(req, "x-amz-if-match-size"),
		    request_header(req, "x-amz-if-match-last-modified-time"))) {
		reply_errorf(req, S3_E_INVALID_ARGUMENT,
			"A condition on the size or the time is malformed");
		return;
	}
	request_bind(req, req->key, req->version, &item.condition);
	status = store_delete(req->server->store, req->bucket, req->bucket_id, &item, 1, &err);
	if (!reply_unless_stored(req, status == STORE_OK ? item.status : status, &err))
		return;
	reply_empty(req, MHD_HTTP_NO_CONTENT);
	version = *item.made ? item.made : item.version;
	if (version)
		reply_header(req, "x-amz-version-id", version);
	if (item.marker)
		reply_header(req, "x-amz-delete-marker", "true");
}

/* Returns true if the sender may delete `item`, an entry of a DeleteObjects request. */
static bool may_delete(struct request *req, const struct s3_delete_item *item)
{
	const struct access_subject subject = {
		.bucket = req->bucket, .key = item->key, .version = item->version_id};

	return access_of(req, "s3:DeleteObject", &subject) == ACCESS_ALLOWED &&
	       (!access_needs_read(item->etag, item->size, item->modified) ||
		       access_of(req, "s3:GetObject", &subject) == ACCESS_ALLOWED) &&
	       (!lock_is_bypassed(req) ||
		       access_of(req, "s3:BypassGovernanceRetention", &subject) == ACCESS_ALLOWED);
}

static enum s3_error deletion_error(enum store_status status)
{
	switch (status) {
	case STORE_PRECONDITION:
		return S3_E_PRECONDITION_FAILED;
	case STORE_LOCKED:
		return S3_E_OBJECT_LOCKED;
	case STORE_NO_SPACE:
		return S3_E_STORAGE_FULL;
	default:
		return S3_E_CONDITIONAL_REQUEST_CONFLICT;
	}
}

/* Adds the outcome for one key; if `quiet`, only an error. `done` is NULL if access was refused. */
static void delete_outcome(const struct s3_delete_item *item, const struct store_delete *done,
	struct s3_delete_result *result, bool quiet)
{
	struct s3_delete_outcome *o = &result->outcomes[result->n];

	*o = (struct s3_delete_outcome){.key = item->key, .version_id = item->version_id};
	if (item->version_id && !store_version_is_valid(item->version_id)) {
		o->code = s3_error_info(S3_E_NO_SUCH_VERSION)->code;
		o->message = s3_error_info(S3_E_NO_SUCH_VERSION)->message;
	} else if (s3_key_problem(item->key, strlen(item->key))) {
		o->code = s3_error_info(S3_E_KEY_TOO_LONG)->code;
		o->message = s3_key_problem(item->key, strlen(item->key));
	} else if (!done) {
		o->code = s3_error_info(S3_E_ACCESS_DENIED)->code;
		o->message = s3_error_info(S3_E_ACCESS_DENIED)->message;
	} else if (done->status != STORE_OK) {
		o->code = s3_error_info(deletion_error(done->status))->code;
		o->message = s3_error_info(deletion_error(done->status))->message;
	} else if (quiet) {
		return;
	} else if (done->marker) {
		o->marker = true;
		o->marker_version = *done->made ? done->made : item->version_id;
	}
	result->n++;
}

/* Adds the deletion of an entry of a DeleteObjects request to `out`. Sets the reply and returns
 * false on failure. */
static bool add_deletion(struct request *req, const struct s3_delete_item *item,
	const struct store_origin *origin, struct store_delete *out)
{
	*out = (struct store_delete){.key = item->key,
		.version = item->version_id,
		.bypass = lock_is_bypassed(req),
		.origin = origin,
		.condition.if_match = item->etag};
	request_bind_ref(req, item->key, item->version_id, &out->condition);
	return condition_add_state(&out->condition, item->size, item->modified) ||
	       reply_error(req, S3_E_MALFORMED_XML);
}

/* Checks access again and deletes a key whose object has changed since the last access check, for
 * example because of an earlier entry of the list. Returns NULL if access is now refused. */
static struct store_delete *delete_again(
	struct request *req, const struct s3_delete_item *w, struct store_delete *item)
{
	access_forget(req);
	if (!may_delete(req, w))
		return NULL;
	store_object_unref(item->condition.decided);
	request_bind_ref(req, w->key, w->version_id, &item->condition);
	if (store_delete(req->server->store, req->bucket, req->bucket_id, item, 1, NULL) !=
		STORE_OK)
		item->status = STORE_CHANGED; /* not deleted: the client may repeat the request */
	return item;
}

/* Deletes the objects that `wanted` lists, and replies. `items` is zeroed, and has one item more
 * than `wanted`. */
static void delete_listed(struct request *req, const struct s3_delete *wanted,
	struct store_delete *items, struct store_delete **place, struct s3_delete_result *result)
{
	_cleanup_(buf_release) struct buf xml = BUF_INIT(LIMIT_LIST_REPLY);
	const struct store_origin *origin = op_origin(req, "ObjectRemoved");
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	size_t n = 0;

	for (size_t i = 0; i < wanted->n; i++) {
		const struct s3_delete_item *w = &wanted->items[i];

		place[i] = &items[wanted->n]; /* the zeroed item after the last one */
		if ((w->version_id && !store_version_is_valid(w->version_id)) ||
			s3_key_problem(w->key, strlen(w->key)))
			continue;
		place[i] = may_delete(req, w) ? &items[n] : NULL;
		if (place[i] && !add_deletion(req, w, origin, &items[n++]))
			return;
	}
	if (!reply_unless_stored(req,
		    store_delete(req->server->store, req->bucket, req->bucket_id, items, n, &err),
		    &err))
		return;
	for (size_t i = 0; i < wanted->n; i++) {
		const struct s3_delete_item *w = &wanted->items[i];
		const char *code;
		size_t at = result->n;

		if (place[i] && place[i]->status == STORE_CHANGED)
			place[i] = delete_again(req, w, place[i]);
		delete_outcome(w, place[i], result, wanted->quiet);
		code = result->n > at ? result->outcomes[at].code : NULL;
		op_log_item(req, &(struct op_log_item){.operation = "BATCH.DELETE.OBJECT",
					 .key = w->key,
					 .version = w->version_id,
					 .error = code,
					 .status = code ? -1 : MHD_HTTP_NO_CONTENT,
					 .sent = -1,
					 .size = -1});
	}
	s3_delete_result_write(&xml, result);
	reply_xml(req, MHD_HTTP_OK, &xml);
}

static void delete_many(struct request *req, const struct s3_delete *wanted)
{
	_cleanup_free_ struct store_delete *items = calloc(wanted->n + 1, sizeof(*items));
	_cleanup_free_ struct store_delete **place = calloc(wanted->n + 1, sizeof(void *));
	_cleanup_free_ struct s3_delete_outcome *outcomes = calloc(
		wanted->n + 1, sizeof(*outcomes));

	if (!items || !outcomes || !place) {
		reply_error(req, S3_E_SLOW_DOWN);
		return;
	}
	delete_listed(req, wanted, items, place, &(struct s3_delete_result){.outcomes = outcomes});
	for (size_t i = 0; i < wanted->n; i++)
		store_object_unref(items[i].condition.decided);
}

void op_delete_objects(struct request *req)
{
	const struct buf *document = &req->body.document;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct s3_delete wanted = {0};

	if (s3_delete_parse(buf_str(document), document->len, &wanted, &err) < 0) {
		reply_document_error(req, wanted.problem, &err);
		return;
	}
	delete_many(req, &wanted);
	s3_delete_release(&wanted);
}
