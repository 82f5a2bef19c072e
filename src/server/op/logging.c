/* The logging of a bucket, and the lines of its log. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "s3/bucket/logging.h"
#include "s3/uri.h"
#include "server/directory/identity.h"
#include "server/access/access.h"
#include "server/access/owner.h"
#include "server/bucket/access_log.h"
#include "server/monitor/log_file.h"
#include "server/op/op.h"
#include "server/request/headers.h"
#include "server/request/reply.h"
#include "server/request/request.h"

/* Maximum bytes of a text of the request that is repeated in the line of each of its objects; a
 * request may have thousands of objects. */
#define BRIEF_MAX 1024

/* --- the configuration ----------------------------------------------------------------------- */

void op_bucket_logging(struct request *req)
{
	_cleanup_(buf_release) struct buf xml = BUF_INIT(LIMIT_XML_BODY);
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	enum store_status status = store_config_get(
		req->server->store, req->bucket, LOGGING_CONFIG, &xml, &err);

	if (status == STORE_NO_SUCH_KEY) {
		s3_logging_write(&xml, &(struct s3_logging){0});
		status = STORE_OK;
	}
	if (reply_unless_stored(req, status, &err))
		reply_xml(req, MHD_HTTP_OK, &xml);
}

/* Checks the right to write log objects, because the store will write them with its own rights. The
 * keys of log objects are longer than the prefix, so the key of an object of today is checked. Sets
 * the reply and returns false on failure. */
static bool check_key(
	struct request *req, const struct s3_logging *logging, const struct store_bucket *source)
{
	_cleanup_(buf_release) struct buf key = BUF_INIT(LIMIT_HTTP_HEADERS);
	const char *text;

	s3_log_key(&key, logging,
		&(struct s3_log_source){.account = source->owner[0] ? source->owner : ACCOUNT_FIRST,
			.region = source->region,
			.bucket = req->bucket},
		clock_wall_ns(), "0123456789abcdef");
	text = buf_failed(&key) ? NULL : request_strdup(req, buf_str(&key));
	return text ? access_check_subject(req, "s3:PutObject",
			      &(struct access_subject){.bucket = logging->target, .key = text})
		    : reply_error(req, S3_E_SLOW_DOWN);
}

/* Checks that the target bucket exists, belongs to the same owner and has no default retention, and
 * that the sender may write the log objects. Sets the reply and returns false if a check fails. */
static bool check_target(struct request *req, const struct s3_logging *logging)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct store *store = req->server->store;
	struct store_bucket source = {0}, target = {0};
	struct store_lock lock = {0};
	enum store_status status;

	if (!reply_unless_stored(req, store_bucket_get(store, req->bucket, &source, &err), &err))
		return false;
	status = store_bucket_get(store, logging->target, &target, &err);
	if (status == STORE_OK &&
		strcmp(owner_of_bucket(req, &source).id, owner_of_bucket(req, &target).id) != 0)
		return reply_code(req, MHD_HTTP_BAD_REQUEST, "InvalidTargetBucketForLogging",
			       "The owner for the bucket to be logged and the target bucket must be "
			       "the same."),
		       false;
	if (status == STORE_NO_SUCH_BUCKET)
		return reply_code(req, MHD_HTTP_BAD_REQUEST, "InvalidTargetBucketForLogging",
			       "The target bucket for logging does not exist"),
		       false;
	if (!reply_unless_stored(req, status, &err))
		return false;
	status = store_lock_get(store, logging->target, &lock, &err);
	if (status == STORE_OK && lock.mode != STORE_NOT_LOCKED)
		return reply_code(req, MHD_HTTP_BAD_REQUEST, "InvalidTargetBucketForLogging",
			       "The target bucket for logging has a default retention"),
		       false;
	if (status != STORE_NO_SUCH_KEY && !reply_unless_stored(req, status, &err))
		return false;
	return check_key(req, logging, &source);
}

void op_put_bucket_logging(struct request *req)
{
	_cleanup_(buf_release) struct buf xml = BUF_INIT(LIMIT_XML_BODY);
	const struct buf *document = &req->body.document;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct s3_logging logging = {0};

	if (s3_logging_parse(buf_str(document), document->len, &logging, &err) < 0) {
		reply_document_error(req, logging.problem, &err);
		return;
	}
	s3_logging_write(&xml, &logging);
	if ((!logging.enabled || check_target(req, &logging)) &&
		op_set_rules(req, LOGGING_CONFIG, logging.enabled ? &xml : NULL))
		reply_empty(req, MHD_HTTP_OK);
	s3_logging_release(&logging);
}

/* --- lines ----------------------------------------------------------------------------------- */

_Static_assert(REMOTE_SIZE >= INET6_ADDRSTRLEN, "any address fits");

const char *op_remote(const struct request *req, char out[static REMOTE_SIZE])
{
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(
		req->connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
	const struct sockaddr *at = info ? info->client_addr : NULL;

	if (at && at->sa_family == AF_INET)
		return inet_ntop(
			AF_INET, &((const struct sockaddr_in *)at)->sin_addr, out, REMOTE_SIZE);
	if (at && at->sa_family == AF_INET6)
		return inet_ntop(
			AF_INET6, &((const struct sockaddr_in6 *)at)->sin6_addr, out, REMOTE_SIZE);
	return NULL; /* a Unix socket */
}

/* Gets the bucket of a request. If the request was refused before its path was split, gets bucket
 * and key from the path. Returns false if the request has no bucket. */
static bool find_subject(
	const struct request *req, char bucket[static sizeof(req->bucket)], struct buf *key)
{
	const char *name = req->resource + (req->resource[0] == '/');
	size_t len = strcspn(name, "/");

	snprintf(bucket, sizeof(req->bucket), "%s", req->bucket);
	if (req->bucket[0])
		return true;
	if (!len || len >= sizeof(req->bucket))
		return false;
	memcpy(bucket, name, len);
	bucket[len] = '\0';
	if (name[len] &&
		uri_decode(key, name + len + 1, strlen(name + len + 1), URI_PLUS_LITERAL) < 0)
		buf_clear(key);
	return true;
}

static void describe_sender(const struct request *req, struct s3_log_record *record)
{
	record->tls = request_tls_version(req);
	if (req->form)
		record->auth_type = "HtmlForm";
	else if (request_header(req, "authorization"))
		record->auth_type = "AuthHeader";
	else if (req->auth.presigned || request_has_query(req, "Signature"))
		record->auth_type = "QueryString";
	else
		return;
	record->signature = *req->auth.access_key ? "SigV4" : "SigV2";
	/* A sender whose signature was refused is unknown. */
	if (req->known && req->identity->owner)
		record->requester = req->identity->is_root ? req->identity->owner->id
							   : req->identity->arn;
}

const char *op_owner_id(struct request *req, const char *bucket)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct store_bucket found = {0};

	if (store_bucket_get(req->server->store, bucket, &found, &err) != STORE_OK)
		penstock_error_release(&err);
	return owner_of_bucket(req, &found).id;
}

/* Fills in the members that all records of a request have. */
static void describe(struct request *req, const char *bucket, struct s3_log_record *record)
{
	int64_t now_ns = clock_monotonic_ns();

	*record = (struct s3_log_record){.owner = op_owner_id(req, bucket),
		.bucket = bucket,
		.request_id = req->id,
		.key = req->key,
		.method = req->method,
		.path = req->path,
		.query = req->query,
		.error = req->error_code,
		.referer = request_header(req, "referer"),
		.user_agent = request_header(req, "user-agent"),
		.host = request_header(req, "host"),
		.version = req->made[0] ? req->made : req->version,
		.time_ns = clock_wall_ns() - (now_ns - req->begun_ns),
		.acl_required = req->acl_required,
		.status = req->status ? (int)req->status : -1,
		.sent = req->sent ? (int64_t)req->sent : -1,
		.size = req->object_size,
		.total_ms = (now_ns - req->begun_ns) / NS_PER_MS,
		.turn_around_ms = req->replied_ns ? (req->replied_ns - req->begun_ns) / NS_PER_MS
						  : -1};
	describe_sender(req, record);
}

static void write_line(struct log_file *file, const struct s3_log_record *record)
{
	_cleanup_(buf_release) struct buf line = BUF_INIT(LIMIT_SERVER_LOG_OBJECT);

	s3_log_write(&line, record);
	log_file_write(file, &line);
}

void op_log_request(struct request *req)
{
	char bucket[sizeof(req->bucket)], remote[REMOTE_SIZE], name[S3_LOG_OPERATION_SIZE];
	_cleanup_(buf_release) struct buf key = BUF_INIT(LIMIT_HTTP_HEADERS);
	struct s3_log_record record;

	bool has_bucket;

	if (!req->method || (!access_log_any(req->server->access_log) && !req->server->log_file))
		return;
	has_bucket = find_subject(req, bucket, &key);
	describe(req, has_bucket ? bucket : NULL, &record);
	if (key.len)
		record.key = key.data;
	record.remote = op_remote(req, remote);
	s3_log_operation(&(struct s3_log_subject){.method = req->method,
				 .sub = req->sub,
				 .object = record.key != NULL,
				 .copy = record.key && headers_ask_copy(req)},
		name);
	record.operation = name;
	if (req->server->log_file)
		write_line(req->server->log_file, &record);
	if (has_bucket && access_log_any(req->server->access_log))
		access_log_add(req->server->access_log, bucket, &record);
}

static const char *brief(const char *text)
{
	return text && strlen(text) <= BRIEF_MAX ? text : NULL;
}

void op_log_item(struct request *req, const struct op_log_item *item)
{
	char remote[REMOTE_SIZE];
	struct s3_log_record record;

	if (!access_log_has(req->server->access_log, req->bucket))
		return;
	describe(req, req->bucket, &record);
	record.query = brief(record.query);
	record.referer = brief(record.referer);
	record.user_agent = brief(record.user_agent);
	record.host = brief(record.host);
	record.remote = op_remote(req, remote);
	record.operation = item->operation;
	record.key = item->key;
	record.version = item->version;
	record.error = item->error;
	record.status = item->status;
	record.sent = item->sent;
	record.size = item->size;
	access_log_add(req->server->access_log, req->bucket, &record);
}
