#include "server/request/cors.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "s3/bucket/cors.h"
#include "server/request/framing.h"
#include "server/request/reply.h"
#include "server/request/request.h"

/* Gets the bucket from the path of a request. The request may have been refused before its path was
 * split. Returns false if the path has no bucket. */
static bool bucket_of(const struct request *req, char out[static sizeof(req->bucket)])
{
	const char *name = req->resource + (req->resource[0] == '/');
	size_t len = strcspn(name, "/");

	if (!len || len >= sizeof(req->bucket))
		return false;
	memcpy(out, name, len);
	out[len] = '\0';
	return true;
}

/* Reads the rules of the bucket. `out` stays empty if the bucket is missing, or has no
 * configuration. */
static int load(struct request *req, struct s3_cors *out, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_XML_BODY);
	char bucket[sizeof(req->bucket)];
	enum store_status status;

	if (!bucket_of(req, bucket))
		return 0;
	status = store_config_get(req->server->store, bucket, CORS_CONFIG, &text, err);
	if (status == STORE_FAILED)
		return -(int)err->code;
	return status == STORE_OK ? s3_cors_parse(buf_str(&text), text.len, out, err) : 0;
}

static void add_list(struct request *req, const char *name, const struct buf *list)
{
	req->no_memory = req->no_memory || buf_failed(list);
	if (list->len)
		reply_header(req, name, buf_str(list));
}

static void add_rule(struct request *req, const struct s3_cors_rule *rule, const char *origin,
	const char *requested)
{
	_cleanup_(buf_release) struct buf methods = BUF_INIT(LIMIT_S3_CORS);
	_cleanup_(buf_release) struct buf names = BUF_INIT(2 * LIMIT_HTTP_HEADERS);
	_cleanup_(buf_release) struct buf exposed = BUF_INIT(LIMIT_S3_CORS);

	reply_header(req, "Access-Control-Allow-Origin", origin);
	s3_cors_join(&methods, &rule->methods);
	add_list(req, "Access-Control-Allow-Methods", &methods);
	s3_cors_join_names(&names, requested ? requested : "");
	add_list(req, "Access-Control-Allow-Headers", &names);
	s3_cors_join(&exposed, &rule->exposed);
	add_list(req, "Access-Control-Expose-Headers", &exposed);
	reply_header(req, "Access-Control-Max-Age", rule->max_age);
	if (strcmp(origin, "*") != 0)
		reply_header(req, "Access-Control-Allow-Credentials", "true");
	reply_header(req, "Vary",
		"Origin, Access-Control-Request-Headers, Access-Control-Request-Method");
}

static void refuse(struct request *req, const char *method, const char *message)
{
	_cleanup_(buf_release) struct buf xml = BUF_INIT(LIMIT_HTTP_ERROR_BODY);
	const char *slash = strchr(req->resource + (req->resource[0] == '/'), '/');

	s3_reply_write(&xml, &(struct s3_reply){.kind = S3_REPLY_ERROR,
				     .code = "AccessForbidden",
				     .message = message,
				     .method = method,
				     .resource_type = slash && slash[1] ? "OBJECT" : "BUCKET",
				     .request_id = req->id});
	reply_xml(req, MHD_HTTP_FORBIDDEN, &xml);
}

static size_t count_names(const char *list)
{
	size_t n = 1;

	for (; *list; list++)
		n += *list == ',';
	return n;
}

void cors_preflight(struct request *req)
{
	const struct s3_cors_request wanted = {.origin = request_header(req, "origin"),
		.method = request_header(req, "access-control-request-method"),
		.headers = request_header(req, "access-control-request-headers")};
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	const struct s3_cors_rule *rule;
	struct s3_cors cors = {0};
	const char *origin;

	if (!wanted.origin || !*wanted.origin) {
		reply_code(req, MHD_HTTP_BAD_REQUEST, "BadRequest",
			"Insufficient information. Origin request header needed.");
		return;
	}
	if (!wanted.method || !s3_cors_method_is_valid(wanted.method)) {
		reply_code(req, MHD_HTTP_BAD_REQUEST, "BadRequest",
			wanted.method ? "Invalid Access-Control-Request-Method"
				      : "Invalid Access-Control-Request-Method: null");
		return;
	}
	/* The reply repeats the names, and libmicrohttpd has for them only the memory that the head
	 * of the request has left. */
	if (wanted.headers && (count_names(wanted.headers) > LIMIT_S3_CORS_NAMES ||
				      strlen(wanted.headers) > LIMIT_S3_CORS_REQUEST)) {
		refuse(req, wanted.method,
			"CORSResponse: Access-Control-Request-Headers is too long or has too many names");
		return;
	}
	if (load(req, &cors, &err) < 0) {
		reply_failure(req, &err);
		return;
	}
	rule = s3_cors_match(&cors, &wanted, &origin);
	if (rule) {
		reply_empty(req, MHD_HTTP_OK);
		add_rule(req, rule, origin, wanted.headers);
	} else {
		refuse(req, wanted.method,
			cors.n ? "CORSResponse: This CORS request is not allowed: no rule of the "
				 "bucket has its Origin, Access-Control-Request-Method and "
				 "Access-Control-Request-Headers"
			       : "CORSResponse: CORS is not enabled for this bucket.");
	}
	s3_cors_release(&cors);
}

void cors_complete(struct request *req)
{
	struct s3_cors_request sent = {.origin = request_header(req, "origin")};
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	const struct s3_cors_rule *rule;
	struct s3_cors cors = {0};
	const char *origin;

	/* Check the value, because a malformed head is refused before its values are checked. */
	if (!sent.origin || !*sent.origin || !framing_is_header("Origin", sent.origin) ||
		!request_replied(req) || strcmp(req->method, MHD_HTTP_METHOD_OPTIONS) == 0)
		return;
	sent.method = req->method;
	/* The request may have changed something, so its reply must not become an error. */
	if (load(req, &cors, &err) < 0) {
		log_warn("cannot add CORS headers to the reply to %s '%s': %s", req->method,
			req->path, err.message ? err.message : penstock_code_name(err.code));
		penstock_error_release(&err);
		return;
	}
	rule = s3_cors_match(&cors, &sent, &origin);
	if (rule)
		add_rule(req, rule, origin, NULL);
	s3_cors_release(&cors);
}
