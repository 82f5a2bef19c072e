/* Uploads from HTML forms: POST to a bucket, signed by the policy in the form. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/str.h"
#include "s3/ascii.h"
#include "s3/message/tags.h"
#include "s3/message/xml.h"
#include "s3/uri.h"
#include "server/access/access.h"
#include "server/access/auth_v2.h"
#include "server/form/multipart.h"
#include "server/form/policy.h"
#include "server/op/op.h"
#include "server/directory/identity.h"
#include "server/access/grants.h"
#include "server/access/owner.h"
#include "server/request/framing.h"
#include "server/request/headers.h"
#include "server/request/lock.h"
#include "server/request/reply.h"
#include "server/request/request.h"
#include "server/request/tags.h"
#include "server/sse/sse.h"
#include "store/header.h"

struct form {
	struct multipart parser;
	struct policy_field fields[LIMIT_FORM_FIELDS]; /* texts in the request's arena */
	size_t n;
	bool has_file;
	struct policy_sizes sizes; /* allowed sizes of the file */
};

void op_post_release(struct request *req)
{
	if (req->form)
		multipart_release(&req->form->parser);
	free(req->form);
	req->form = NULL;
}

/* Returns a negative code, which ends the parse after the reply was set. */
static int refused(struct penstock_error *err)
{
	return error_set(err, PENSTOCK_E_PROTOCOL, "the form is refused");
}

/* --- fields ---------------------------------------------------------------------------------- */

/* Returns the value of a field, or NULL if it is absent. */
static const char *field_of(const struct form *form, const char *name)
{
	for (size_t i = 0; i < form->n; i++)
		if (strcmp(form->fields[i].name, name) == 0)
			return form->fields[i].value;
	return NULL;
}

static int on_field(
	void *cookie, const char *name, const char *value, size_t len, struct penstock_error *err)
{
	struct request *req = cookie;
	struct form *form = req->form;
	char *own = request_strdup(req, name);
	char *text = request_strdup(req, value);

	if (!own || !text)
		return error_memory(err);
	for (char *p = own; *p; p++)
		*p = ascii_lower(*p);
	if (strlen(value) != len)
		reply_errorf(req, S3_E_INVALID_ARGUMENT, "The field %s contains a NUL", own);
	else if (field_of(form, own) && !str_starts(own, "x-ignore-"))
		reply_errorf(req, S3_E_INVALID_ARGUMENT, "The field %s is repeated", own);
	if (request_replied(req))
		return refused(err);
	form->fields[form->n++] = (struct policy_field){own, text};
	return 0;
}

/* Returns the value of a field that a form needs. Sets the reply and returns NULL on failure. */
static const char *need_field(struct request *req, const char *name, const char *shown)
{
	const char *value = field_of(req->form, name);

	if (!value)
		reply_errorf(req, S3_E_INVALID_ARGUMENT,
			"Bucket POST must contain a field named '%s'. If it is specified, please "
			"check the order of the fields.",
			shown);
	return value;
}

/* Replaces ${filename}, which all fields except the policy may contain. Some browsers send a whole
 * path. All replaced fields together are limited to the size of a form: otherwise an unknown sender
 * could have a long name inserted into a hundred fields. */
static bool insert_filename(struct request *req, const char *filename)
{
	static const char variable[] = "${filename}";
	struct form *form = req->form;
	size_t left = LIMIT_FORM;

	for (const char *p = filename; *p; p++)
		if (*p == '/' || *p == '\\')
			filename = p + 1;
	for (size_t i = 0; i < form->n; i++) {
		_cleanup_(buf_release) struct buf text = BUF_INIT(left);
		const char *at = form->fields[i].value, *found;

		if (!strstr(at, variable) || strcmp(form->fields[i].name, "policy") == 0)
			continue;
		for (; (found = strstr(at, variable)); at = found + strlen(variable)) {
			buf_add(&text, at, (size_t)(found - at));
			buf_add_str(&text, filename);
		}
		buf_add_str(&text, at);
		if (buf_failed(&text))
			return reply_error(req, text.failure == BUF_NO_MEMORY
							? S3_E_SLOW_DOWN
							: S3_E_MAX_POST_PRE_DATA_LENGTH_EXCEEDED);
		left -= text.len;
		form->fields[i].value = request_strdup(req, buf_str(&text));
		if (!form->fields[i].value)
			return reply_error(req, S3_E_SLOW_DOWN);
	}
	return true;
}

/* --- the signature and the policy ------------------------------------------------------------ */

static bool authenticate_v2(struct request *req)
{
	const char *policy = need_field(req, "policy", "policy"), *id, *signature;

	return policy && (id = need_field(req, "awsaccesskeyid", "AWSAccessKeyId")) &&
	       (signature = need_field(req, "signature", "signature")) &&
	       auth_v2_verify_form(
		       req, id, signature, policy, field_of(req->form, "x-amz-security-token"));
}

static bool authenticate(struct request *req)
{
	const struct form *form = req->form;
	struct sigv4 *signer = server_signer(req->server);
	struct sigv4_form fields = {.algorithm = field_of(form, "x-amz-algorithm")};
	const char *policy;
	enum sigv4_failure f;

	if (!signer)
		return reply_error(req, S3_E_SLOW_DOWN);
	if (!fields.algorithm && (field_of(form, "signature") || field_of(form, "awsaccesskeyid")))
		return authenticate_v2(req);
	req->anonymous = !fields.algorithm && !field_of(form, "x-amz-signature") &&
			 !field_of(form, "policy");
	if (req->anonymous)
		return true;
	if (!(policy = need_field(req, "policy", "policy")) ||
		!(fields.algorithm = need_field(req, "x-amz-algorithm", "X-Amz-Algorithm")) ||
		!(fields.credential = need_field(req, "x-amz-credential", "X-Amz-Credential")) ||
		!(fields.date = need_field(req, "x-amz-date", "X-Amz-Date")) ||
		!(fields.signature = need_field(req, "x-amz-signature", "X-Amz-Signature")))
		return false;
	f = sigv4_parse_form(&fields, &req->auth);
	if (f == SIGV4_VALID && !request_identify(req, req->auth.access_key,
					field_of(form, "x-amz-security-token")))
		return false;
	if (f == SIGV4_VALID)
		f = sigv4_verify_form(signer, &req->auth, req->identity->secret_access_key, policy,
			clock_wall_ns() / NS_PER_S);
	if (f != SIGV4_VALID)
		return reply_errorf(req, sigv4_failure_error(f), "%s", sigv4_failure_message(f));
	return true;
}

static bool check_policy(struct request *req)
{
	_cleanup_(buf_release) struct buf base64 = BUF_INIT(LIMIT_FORM);
	_cleanup_(buf_release) struct buf json = BUF_INIT(LIMIT_FORM);
	_cleanup_(buf_release) struct buf message = BUF_INIT(LIMIT_FORM);
	struct form *form = req->form;
	const struct policy_form sent = {.fields = form->fields,
		.n = form->n,
		.bucket = req->bucket,
		.now_ns = clock_wall_ns()};
	enum s3_error problem;

	form->sizes = (struct policy_sizes){.max = UINT64_MAX};
	if (req->anonymous)
		return true;
	for (const char *p = field_of(form, "policy"); *p; p++)
		if (!ascii_space(*p))
			buf_add_char(&base64, *p);
	if (base64_decode(&json, buf_str(&base64), base64.len) < 0 && !buf_failed(&json) &&
		!buf_failed(&base64))
		return reply_errorf(req, S3_E_INVALID_POLICY_DOCUMENT,
			"Invalid Policy: it is not encoded in base64.");
	if (buf_failed(&json) || buf_failed(&base64))
		return reply_error(req, S3_E_SLOW_DOWN);
	problem = policy_check(buf_str(&json), json.len, &sent, &form->sizes, &message);
	if (problem && buf_failed(&message))
		return reply_error(req, problem);
	return !problem || reply_errorf(req, problem, "%s", buf_str(&message));
}

/* --- the object ------------------------------------------------------------------------------ */

/* Returns the name of the header that a field sets, or NULL if it sets no header. */
static const char *header_of(const char *field)
{
	static const char *const headers[] = {"cache-control", "content-disposition",
		"content-encoding", "content-language", "content-md5", "content-type", "expires",
		"if-match", "if-none-match"};
	static const char *const signing[] = {"x-amz-algorithm", "x-amz-credential", "x-amz-date",
		"x-amz-security-token", "x-amz-signature"};

	if (strcmp(field, "acl") == 0)
		return "x-amz-acl";
	if (strcmp(field, "tagging") == 0)
		return "x-amz-tagging";
	for (size_t i = 0; i < ARRAY_SIZE(headers); i++)
		if (strcmp(field, headers[i]) == 0)
			return field;
	for (size_t i = 0; i < ARRAY_SIZE(signing); i++)
		if (strcmp(field, signing[i]) == 0)
			return NULL;
	return str_starts(field, "x-amz-") ? field : NULL;
}

/* Keeps only the headers that describe the page, its browser and the framing of the body, which no
 * field sets. */
static void keep_headers(struct request *req)
{
	static const char *const names[] = {
		"content-length", "host", "origin", "referer", "transfer-encoding", "user-agent"};
	const char *values[ARRAY_SIZE(names)];

	_Static_assert(ARRAY_SIZE(names) + LIMIT_FORM_FIELDS <= REQUEST_HEADERS_MAX,
		"the headers of a form have room");
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		values[i] = request_header(req, names[i]);
	req->n_headers = 0;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (values[i])
			req->headers[req->n_headers++] = (struct sigv4_header){names[i], values[i]};
}

/* Replaces the other headers of the request with the headers that the fields set, so that the
 * object is made as by a PUT. */
static bool adopt_fields(struct request *req)
{
	const struct form *form = req->form;

	keep_headers(req);
	for (size_t i = 0; i < form->n; i++) {
		const char *name = header_of(form->fields[i].name);
		const char *value = form->fields[i].value;

		if (!name)
			continue;
		if (strcmp(form->fields[i].name, "tagging") == 0)
			value = tags_of_document(req, value, strlen(value), S3_OBJECT_TAGS);
		if (!value)
			return false;
		if (str_starts(name, "x-amz-copy-source"))
			return reply_errorf(req, S3_E_NOT_IMPLEMENTED,
				"This store does not implement copies with a POST form");
		if (!framing_is_header(name, value))
			return reply_errorf(req, S3_E_INVALID_ARGUMENT,
				"The field %s is not a valid header", form->fields[i].name);
		if (request_header(req, name))
			return reply_errorf(req, S3_E_INVALID_ARGUMENT,
				"The header %s is repeated by the field %s", name,
				form->fields[i].name);
		req->headers[req->n_headers++] = (struct sigv4_header){name, value};
	}
	return true;
}

static bool take_key(struct request *req)
{
	const char *key = need_field(req, "key", "key");
	const char *problem;

	if (!key)
		return false;
	req->key_len = strlen(key);
	if (!req->key_len)
		return reply_errorf(
			req, S3_E_INVALID_ARGUMENT, "User key must have a length greater than 0.");
	if (req->key_len > LIMIT_S3_KEY)
		return reply_error(req, S3_E_KEY_TOO_LONG);
	problem = s3_key_problem(key, req->key_len);
	if (problem)
		return reply_errorf(req, S3_E_INVALID_ARGUMENT, "The key %s", problem);
	req->key = request_strdup(req, key);
	return req->key || reply_error(req, S3_E_SLOW_DOWN);
}

static bool begin_object(struct request *req)
{
	req->action = "s3:PutObject";
	if (!adopt_fields(req))
		return false;
	req->put.condition = headers_condition(req);
	return access_check_sender(req) && headers_acceptable(req) &&
	       owner_is_expected(req, "x-amz-expected-bucket-owner", req->bucket) &&
	       access_check_request(req) && sse_read(req, NULL) &&
	       headers_collect(req, &req->stored_headers) && tags_add(req, &req->stored_headers) &&
	       grants_add(req, &req->stored_headers) && lock_add(req, &req->stored_headers) &&
	       lock_has_checksum(req) && sse_add(req, &req->stored_headers) &&
	       op_get_bucket(req, NULL) && op_check_condition_early(req) && body_begin_file(req);
}

static int on_file(void *cookie, const char *name, struct penstock_error *err)
{
	struct request *req = cookie;
	bool first = !req->form->has_file;

	req->form->has_file = true;
	if (!first)
		reply_errorf(req, S3_E_INVALID_ARGUMENT,
			"POST requires exactly one file upload per request.");
	else if (authenticate(req) && insert_filename(req, name) && take_key(req) &&
		 check_policy(req)) {
		/* The sender counts as known only after these checks: forms are public, so anyone
		 * could send an expired form. */
		if (!req->anonymous)
			request_sender_is_known(req);
		begin_object(req);
	}
	return request_replied(req) ? refused(err) : 0;
}

static int on_bytes(void *cookie, const void *data, size_t len, struct penstock_error *err)
{
	struct request *req = cookie;
	uint64_t max = req->form->sizes.max, stored = store_body_size(req->body.object);

	if (max > LIMIT_S3_PUT_MAX)
		max = LIMIT_S3_PUT_MAX;
	if (stored > max || len > max - stored) {
		reply_error(req, S3_E_ENTITY_TOO_LARGE);
		return refused(err);
	}
	return body_store(req, data, len, err);
}

/* --- the reply ------------------------------------------------------------------------------- */

/* Returns the address to which the browser is redirected, or NULL if there is none. Like AWS,
 * ignores an invalid address. */
static const char *redirect_of(const struct form *form)
{
	const char *url = field_of(form, "success_action_redirect");

	if (!url)
		url = field_of(form, "redirect");
	if (!url || (!str_starts(url, "http://") && !str_starts(url, "https://")) ||
		!store_header_is_value(url) || strpbrk(url, " \t"))
		return NULL;
	return url;
}

static void reply_redirect(struct request *req, const char *url, const char *etag)
{
	_cleanup_(buf_release) struct buf query = BUF_INIT(LIMIT_FORM);
	_cleanup_(buf_release) struct buf target = BUF_INIT(2 * LIMIT_FORM);

	uri_query_add(&query, "bucket", req->bucket);
	uri_query_add(&query, "key", req->key);
	uri_query_add(&query, "etag", etag);
	buf_printf(&target, "%s%c%s", url, strchr(url, '?') ? '&' : '?', buf_str(&query));
	req->no_memory = req->no_memory || buf_failed(&query) || buf_failed(&target);
	reply_empty(req, MHD_HTTP_SEE_OTHER);
	reply_header(req, "Location", buf_str(&target));
}

static void reply_created(struct request *req, const char *location, const char *etag)
{
	_cleanup_(buf_release) struct buf xml = BUF_INIT(LIMIT_XML_BODY);

	xml_declaration(&xml);
	xml_open(&xml, "PostResponse");
	xml_element(&xml, "Location", location);
	xml_element(&xml, "Bucket", req->bucket);
	xml_element(&xml, "Key", req->key);
	xml_element(&xml, "ETag", etag);
	xml_close(&xml, "PostResponse");
	reply_xml(req, MHD_HTTP_CREATED, &xml);
}

static void post_after(struct request *req)
{
	_cleanup_(buf_release) struct buf location = BUF_INIT(LIMIT_HTTP_HEADERS);
	const char *status = field_of(req->form, "success_action_status");
	const char *redirect = redirect_of(req->form);
	struct store_put *put = &req->put;
	char etag[STORE_ETAG_SIZE + 2];

	if (!reply_unless_stored(req, put->status, &put->error))
		return;
	snprintf(etag, sizeof(etag), "\"%s\"", put->etag);
	buf_printf(&location, "%s/%s/", req->server->url, req->bucket);
	uri_encode(&location, req->key, req->key_len, true);
	req->no_memory = req->no_memory || buf_failed(&location);
	if (redirect)
		reply_redirect(req, redirect, etag);
	else if (status && strcmp(status, "201") == 0)
		reply_created(req, buf_str(&location), etag);
	else
		reply_empty(req,
			status && strcmp(status, "200") == 0 ? MHD_HTTP_OK : MHD_HTTP_NO_CONTENT);
	if (!redirect)
		reply_header(req, "Location", buf_str(&location));
	reply_header(req, "ETag", etag);
	reply_checksum(req, &put->checksum);
	reply_made(req, put->version);
	op_reply_put_end(req);
	reply_sse(req, req->encryption.mode);
}

/* --- the operation --------------------------------------------------------------------------- */

static int take(struct request *req, const void *data, size_t len, struct penstock_error *err)
{
	int rc = multipart_feed(&req->form->parser, data, len, err);

	if (rc < 0 && !request_replied(req) && err->code == PENSTOCK_E_PROTOCOL)
		reply_error(req, S3_E_MALFORMED_POST_REQUEST);
	else if (rc < 0 && !request_replied(req) && err->code == PENSTOCK_E_LIMIT)
		reply_error(req, req->form->has_file ? S3_E_MALFORMED_POST_REQUEST
						     : S3_E_MAX_POST_PRE_DATA_LENGTH_EXCEEDED);
	return rc;
}

static void op_post_object(struct request *req)
{
	struct form *form = req->form;
	struct penstock_error err = PENSTOCK_ERROR_INIT;

	if (multipart_finish(&form->parser, &err) < 0) {
		penstock_error_release(&err);
		reply_error(req, S3_E_MALFORMED_POST_REQUEST);
	} else if (!form->has_file) {
		reply_errorf(req, S3_E_INVALID_ARGUMENT,
			"POST requires exactly one file upload per request.");
	} else if (store_body_size(req->body.object) < form->sizes.min) {
		reply_error(req, S3_E_ENTITY_TOO_SMALL);
	} else {
		op_store_object(req, post_after);
		return;
	}
	body_release(req);
}

void op_post_object_begin(struct request *req)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct form *form;

	if (!multipart_is_form(request_header(req, "content-type"))) {
		reply_errorf(req, S3_E_PRECONDITION_FAILED,
			"Bucket POST must be of the enclosure-type multipart/form-data");
		return;
	}
	form = calloc(1, sizeof(*form));
	if (!form) {
		reply_error(req, S3_E_SLOW_DOWN);
		return;
	}
	req->form = form;
	req->finish = op_post_object;
	if (multipart_init(&form->parser, request_header(req, "content-type"),
		    &(struct multipart_events){
			    .field = on_field, .file = on_file, .data = on_bytes, .cookie = req},
		    &err) == 0)
		body_begin_form(req, take, LIMIT_S3_PUT_MAX + (uint64_t)2 * LIMIT_FORM);
	else if (err.code == PENSTOCK_E_MEMORY)
		reply_error(req, S3_E_SLOW_DOWN);
	else
		reply_error(req, S3_E_MALFORMED_POST_REQUEST);
	penstock_error_release(&err);
}
