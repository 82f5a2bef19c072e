#include "server/request/headers.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "s3/ascii.h"
#include "s3/date.h"
#include "s3/uri.h"
#include "server/request/framing.h"
#include "server/request/reply.h"
#include "server/request/request.h"
#include "store/header.h"

/* Headers that are stored with the object and sent with it. */
static const char *const kept[] = {"content-type", "cache-control", "content-disposition",
	"content-language", "expires", REDIRECT_HEADER};

/* A header with one of these prefixes asks for a feature that this store does not have, unless its
 * value is `none`, which may be NULL. */
static const struct {
	const char *prefix, *none;
} refused[] = {
	{"x-amz-bucket-namespace", "global"},
	{"x-amz-object-lock-event-hold", "OFF"},
	{MINIMUM_HEADER, MINIMUM_DEFAULT},
	{"x-amz-rename-source", NULL},
	{"x-amz-write-offset-bytes", NULL},
};

/* Headers that can only have one of these words as their value. */
static const struct {
	const char *name, *words[2];
	bool any_case;
} choices[] = {
	{"x-amz-bypass-governance-retention", {"true", "false"}, true},
	{"x-amz-checksum-mode", {"ENABLED"}, true},
	{"x-amz-confirm-remove-self-bucket-access", {"true", "false"}, true},
	{"x-amz-metadata-directive", {"COPY", "REPLACE"}, false},
	{"x-amz-skip-destination-validation", {"true", "false"}, true},
	{"x-amz-tagging-directive", {"COPY", "REPLACE"}, false},
};

static const char *const storage_classes[] = {"STANDARD", "REDUCED_REDUNDANCY", "STANDARD_IA",
	"ONEZONE_IA", "INTELLIGENT_TIERING", "GLACIER", "DEEP_ARCHIVE", "OUTPOSTS", "GLACIER_IR",
	"SNOW", "EXPRESS_ONEZONE"};

/* Compares the first letters before strcasecmp() is called: most names differ in the first
 * letter. */
static bool same_name(const char *a, const char *b)
{
	return ascii_lower(a[0]) == ascii_lower(b[0]) && strcasecmp(a, b) == 0;
}

static void trim_end(struct buf *text)
{
	while (text->len && strchr(" \t", text->data[text->len - 1]))
		buf_truncate(text, text->len - 1);
}

/* Joins the values of `h` and of all headers from `i` on with the name of `h`, with commas between
 * the values, and clears the names of these headers. All values are joined in one pass, because
 * joining one by one takes quadratic time. Returns false if out of memory. */
static bool join_with_rest(struct request *req, struct sigv4_header *h, size_t i)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_HTTP_HEADERS);
	const char *joined;

	buf_add_str(&text, h->value);
	for (; i < req->n_headers; i++) {
		struct sigv4_header *other = &req->headers[i];

		if (!other->name || !same_name(h->name, other->name))
			continue;
		trim_end(&text);
		buf_printf(&text, ",%s", other->value + strspn(other->value, " \t"));
		other->name = NULL;
	}
	joined = buf_failed(&text) ? NULL : request_strdup(req, buf_str(&text));
	if (joined)
		h->value = joined;
	return joined != NULL;
}

bool headers_join(struct request *req)
{
	bool whole = true;
	size_t n = 0;

	for (size_t i = 0; i < req->n_headers; i++) {
		const struct sigv4_header *h = &req->headers[i];
		size_t k = 0;

		if (!h->name)
			continue;
		while (k < n && !same_name(req->headers[k].name, h->name))
			k++;
		if (k == n)
			req->headers[n++] = *h;
		else
			whole = join_with_rest(req, &req->headers[k], i) && whole;
	}
	req->n_headers = n;
	return whole || reply_error(req, S3_E_SLOW_DOWN);
}

/* Appends the codings except aws-chunked, which applied only to the transfer. */
static void add_encoding(struct buf *out, const char *value)
{
	_cleanup_(buf_release) struct buf rest = BUF_INIT(LIMIT_HTTP_HEADERS);
	static const char chunked[] = "aws-chunked";

	for (const char *p = value; *p;) {
		size_t len;

		p += strspn(p, " \t,");
		len = strcspn(p, " \t,");
		if (len && (len != sizeof(chunked) - 1 || strncasecmp(p, chunked, len) != 0))
			buf_printf(&rest, "%s%.*s", rest.len ? ", " : "", (int)len, p);
		p += len;
	}
	if (rest.len)
		store_header_add(out, "content-encoding", rest.data);
}

bool headers_add_storage_class(struct request *req, struct buf *out)
{
	const char *class = request_header(req, "x-amz-storage-class");

	if (!class || strcmp(class, "STANDARD") == 0)
		return true;
	for (size_t i = 0; i < ARRAY_SIZE(storage_classes); i++) {
		if (strcmp(class, storage_classes[i]) != 0)
			continue;
		store_header_add(out, STORE_CLASS_HEADER, class);
		return true;
	}
	return reply_error(req, S3_E_INVALID_STORAGE_CLASS);
}

/* Returns true for a parameter of the signature, which is not a header, and for a checksum. Like
 * AWS, the store ignores checksums in a URL: the JavaScript SDK signs the checksum of an empty
 * body. */
static bool is_ignored(const char *name)
{
	static const char *const names[] = {"x-amz-algorithm", "x-amz-credential", "x-amz-date",
		"x-amz-expires", "x-amz-signedheaders", "x-amz-signature", "x-amz-security-token",
		"x-amz-content-sha256", "x-amz-sdk-checksum-algorithm"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (strcasecmp(name, names[i]) == 0)
			return true;
	return headers_is_checksum(name);
}

static bool take_parameter(struct request *req, const char *name, const char *value)
{
	const char *given = request_header(req, name);

	if (!framing_is_header(name, value)) /* replies may contain the name and the value */
		return reply_errorf(req, S3_E_INVALID_ARGUMENT,
			"The URL has a parameter that is not a valid header");
	if (given && strcmp(given, value) != 0)
		return reply_errorf(req, S3_E_INVALID_ARGUMENT,
			"The header %s has a different value in the URL", name);
	if (given)
		return true;
	if (req->n_headers == REQUEST_HEADERS_MAX)
		return reply_errorf(req, S3_E_INVALID_REQUEST,
			"The request has more than %d headers", REQUEST_HEADERS_MAX);
	name = request_strdup(req, name);
	value = request_strdup(req, value);
	if (!name || !value)
		return reply_error(req, S3_E_SLOW_DOWN);
	req->headers[req->n_headers++] = (struct sigv4_header){name, value};
	return true;
}

bool headers_from_query(struct request *req, bool is_signed)
{
	_cleanup_(buf_release) struct buf name = BUF_INIT(LIMIT_HTTP_HEADERS);
	_cleanup_(buf_release) struct buf value = BUF_INIT(LIMIT_HTTP_HEADERS);
	struct span n, v;

	for (const char *at = req->query; uri_query_next(&at, &n, &v);) {
		if (n.n < 6 || strncasecmp(n.p, "x-amz-", 6) != 0)
			continue;
		buf_truncate(&name, 0);
		buf_truncate(&value, 0);
		/* The caller has checked that the query can be decoded. */
		if (uri_decode(&name, n.p, n.n, URI_PLUS_SPACE) < 0 ||
			(v.n && uri_decode(&value, v.p, v.n, URI_PLUS_SPACE) < 0))
			return reply_error(req, S3_E_SLOW_DOWN);
		if (is_ignored(buf_str(&name)))
			continue;
		/* Anyone could add the parameter to a URL with a signature of version 2. */
		if (!is_signed)
			return reply_errorf(req, S3_E_ACCESS_DENIED,
				"Signature Version 2 does not sign the parameter %s",
				buf_str(&name));
		if (!take_parameter(req, buf_str(&name), buf_str(&value)))
			return false;
	}
	return true;
}

static bool is_choice(const char *value, size_t i)
{
	for (size_t k = 0; k < ARRAY_SIZE(choices[i].words) && choices[i].words[k]; k++)
		if ((choices[i].any_case ? strcasecmp : strcmp)(value, choices[i].words[k]) == 0)
			return true;
	return false;
}

static bool check_header(struct request *req, const struct sigv4_header *h)
{
	for (size_t i = 0; i < ARRAY_SIZE(refused); i++)
		if (strncasecmp(h->name, refused[i].prefix, strlen(refused[i].prefix)) == 0 &&
			!(refused[i].none && strcmp(h->value, refused[i].none) == 0))
			return reply_errorf(req, S3_E_NOT_IMPLEMENTED,
				"This store does not implement the header %s", h->name);
	for (size_t i = 0; i < ARRAY_SIZE(choices); i++)
		if (strcasecmp(h->name, choices[i].name) == 0 && !is_choice(h->value, i))
			return reply_errorf(req, S3_E_INVALID_ARGUMENT,
				"The value of the header %s is unknown", h->name);
	return true;
}

bool headers_acceptable(struct request *req)
{
	const char *redirect = request_header(req, REDIRECT_HEADER);

	for (size_t i = 0; i < req->n_headers; i++)
		if (strncasecmp(req->headers[i].name, "x-amz-", 6) == 0 &&
			!check_header(req, &req->headers[i]))
			return false;
	if (redirect && *redirect && *redirect != '/' && !str_starts(redirect, "http://") &&
		!str_starts(redirect, "https://"))
		return reply_code(req, MHD_HTTP_BAD_REQUEST, "InvalidRedirectLocation",
			       "The website redirect location must have a prefix of 'http://' or "
			       "'https://' or '/'."),
		       false;
	return true;
}

bool headers_collect(struct request *req, struct buf *out)
{
	size_t metadata = 0;

	buf_init(out, LIMIT_HTTP_HEADERS);
	for (size_t i = 0; i < ARRAY_SIZE(kept); i++) {
		const char *value = request_header(req, kept[i]);

		if (value && *value)
			store_header_add(out, kept[i], value);
		else if (i == 0)
			store_header_add(out, kept[i], "binary/octet-stream");
	}
	if (request_header(req, "content-encoding"))
		add_encoding(out, request_header(req, "content-encoding"));
	if (!headers_add_storage_class(req, out))
		return false;
	for (size_t i = 0; i < req->n_headers; i++) {
		const struct sigv4_header *h = &req->headers[i];

		if (strncasecmp(h->name, "x-amz-meta-", 11) != 0)
			continue;
		metadata += strlen(h->name) - 11 + strlen(h->value);
		store_header_add(out, h->name, h->value);
	}
	if (buf_failed(out))
		return reply_error(req, S3_E_SLOW_DOWN);
	if (metadata > LIMIT_S3_METADATA || out->len > LIMIT_S3_PUT_HEADERS)
		return reply_error(req, S3_E_METADATA_TOO_LARGE);
	return true;
}

bool headers_ask_copy(const struct request *req)
{
	return request_header(req, "x-amz-copy-source") && strcmp(req->method, "PUT") == 0 &&
	       (!req->sub || strcmp(req->sub, "uploadId") == 0);
}

size_t copy_source_length(const char *text, const char **version)
{
	static const char parameter[] = "?versionId=";
	const char *found = strstr(text, parameter);

	*version = found ? found + strlen(parameter) : NULL;
	return found ? (size_t)(found - text) : strlen(text);
}

char *etag_unquote(char *etag)
{
	size_t len = strlen(etag);

	if (len >= 2 && etag[0] == '"' && etag[len - 1] == '"') {
		etag[len - 1] = '\0';
		return etag + 1;
	}
	return etag;
}

struct store_condition headers_condition(const struct request *req)
{
	return (struct store_condition){.if_match = request_header(req, "if-match"),
		.if_none_match = request_header(req, "if-none-match")};
}

bool condition_add_state(struct store_condition *out, const char *size, const char *modified)
{
	int64_t ns;

	out->has_size = size != NULL;
	out->has_modified = modified != NULL;
	if (size && !str_to_u64(size, 0, UINT64_MAX, &out->size))
		return false;
	if (!modified || date_parse_http(modified, &out->modified_s))
		return true;
	if (!date_parse_iso(modified, &ns))
		return false;
	out->modified_s = ns / NS_PER_S;
	return true;
}

bool headers_is_checksum(const char *name)
{
	static const char *const others[] = {"algorithm", "mode", "type"};
	static const char prefix[] = "x-amz-checksum-";

	if (strncasecmp(name, prefix, sizeof(prefix) - 1) != 0)
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		if (strcasecmp(name + sizeof(prefix) - 1, others[i]) == 0)
			return false;
	return true;
}

void reply_checksum(struct request *req, const struct store_checksum *checksum)
{
	enum checksum_kind kind = checksum_find(checksum->algorithm);

	if (kind == CHECKSUM_NONE || !checksum->value[0])
		return;
	reply_header(req, checksum_header(kind), checksum->value);
	reply_header(req, "x-amz-checksum-type", checksum->type);
}
