/* Reads signatures: the Authorization header, the query of a presigned URL, and the fields of a
 * form. */
#include "s3/sign/sigv4.h"

#include <string.h>

#include "base/limits.h"
#include "base/str.h"
#include "s3/ascii.h"
#include "s3/uri.h"

#define ALGORITHM  "AWS4-HMAC-SHA256"
#define TERMINATOR "aws4_request"

static const struct {
	enum s3_error error;
	const char *message;
} failures[SIGV4_FAILURE_COUNT_] = {
	[SIGV4_VALID] = {S3_OK, "The signature is valid"},
	[SIGV4_ANONYMOUS] = {S3_E_ACCESS_DENIED, "The request is not signed"},
	[SIGV4_MALFORMED_HEADER] = {S3_E_AUTHORIZATION_HEADER_MALFORMED,
		"The Authorization header must contain Credential, SignedHeaders and Signature "
		"of AWS4-HMAC-SHA256"},
	[SIGV4_MALFORMED_QUERY] = {S3_E_AUTHORIZATION_QUERY_PARAMETERS,
		"A presigned request needs X-Amz-Algorithm, X-Amz-Credential, X-Amz-Date, "
		"X-Amz-Expires, X-Amz-SignedHeaders and X-Amz-Signature, each once"},
	[SIGV4_MALFORMED_FORM] = {S3_E_INVALID_ARGUMENT,
		"A form needs valid fields X-Amz-Credential and X-Amz-Date"},
	[SIGV4_UNSUPPORTED] = {S3_E_INVALID_REQUEST,
		"The authorization mechanism you have provided is not supported. Please use "
		"AWS4-HMAC-SHA256"},
	[SIGV4_AMBIGUOUS] = {S3_E_INVALID_ARGUMENT,
		"Only one auth mechanism allowed: the Authorization header or the X-Amz-Signature "
		"parameter"},
	[SIGV4_DATE_MISSING] = {S3_E_ACCESS_DENIED,
		"AWS authentication requires a valid Date or x-amz-date header"},
	[SIGV4_SCOPE_DATE] = {S3_E_AUTHORIZATION_HEADER_MALFORMED,
		"The date of the credential scope differs from the date of the request"},
	[SIGV4_SCOPE_SERVICE] = {S3_E_AUTHORIZATION_HEADER_MALFORMED,
		"The credential scope must end in /s3/aws4_request"},
	[SIGV4_SKEWED] = {S3_E_REQUEST_TIME_TOO_SKEWED,
		"The difference between the request time and the current time is too large"},
	[SIGV4_EXPIRED] = {S3_E_REQUEST_EXPIRED, "Request has expired"},
	[SIGV4_NOT_YET_VALID] = {S3_E_REQUEST_EXPIRED, "Request is not yet valid"},
	[SIGV4_EXPIRES_RANGE] = {S3_E_AUTHORIZATION_QUERY_PARAMETERS,
		"X-Amz-Expires must be between 1 and 604800 seconds"},
	[SIGV4_HOST_UNSIGNED] = {S3_E_UNSIGNED_HEADERS, "The host header must be signed"},
	[SIGV4_HEADER_UNSIGNED] = {S3_E_UNSIGNED_HEADERS,
		"There were headers present in the request which were not signed"},
	[SIGV4_HEADER_ABSENT] = {S3_E_SIGNATURE_DOES_NOT_MATCH,
		"A signed header was not sent with the request"},
	[SIGV4_PAYLOAD_HASH] = {S3_E_INVALID_ARGUMENT,
		"x-amz-content-sha256 must be UNSIGNED-PAYLOAD, "
		"STREAMING-UNSIGNED-PAYLOAD-TRAILER, "
		"STREAMING-AWS4-HMAC-SHA256-PAYLOAD, STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER or "
		"a valid sha256 value"},
	[SIGV4_MALFORMED_URI] = {S3_E_INVALID_URI, "The path or query cannot be decoded"},
	[SIGV4_MISMATCH] = {S3_E_SIGNATURE_DOES_NOT_MATCH,
		"The request signature we calculated does not match the signature you provided. "
		"Check your key and signing method."},
	[SIGV4_TOO_LARGE] = {S3_E_INVALID_REQUEST,
		"The request has more headers or query parameters than can be signed"},
	[SIGV4_NO_MEMORY] = {S3_E_SLOW_DOWN, "Out of memory; try again"},
};

enum s3_error sigv4_failure_error(enum sigv4_failure f)
{
	return (unsigned)f < SIGV4_FAILURE_COUNT_ ? failures[f].error : S3_E_INTERNAL_ERROR;
}

const char *sigv4_failure_message(enum sigv4_failure f)
{
	return (unsigned)f < SIGV4_FAILURE_COUNT_ ? failures[f].message : "Internal error";
}

/* Returns the value of the first header called `name`, or NULL if there is none. */
static const char *find_header(const struct sigv4_request *req, const char *name)
{
	size_t n = strlen(name);

	for (size_t i = 0; i < req->n_headers; i++) {
		const char *have = req->headers[i].name;

		if (ascii_lower(have[0]) == name[0] && strlen(have) == n &&
			ascii_equal(have, n, name))
			return req->headers[i].value;
	}
	return NULL;
}

/* Copies a piece of text. Returns false if the text does not fit or contains a NUL. */
static bool copy_span(const char *p, size_t n, char *out, size_t size)
{
	if (n >= size || memchr(p, '\0', n))
		return false;
	memcpy(out, p, n);
	out[n] = '\0';
	return true;
}

/* Percent-decodes a piece of text into `out`. Returns false if the text is malformed or does not
 * fit. */
static bool decode_span(const struct span *v, char *out, size_t size)
{
	size_t at = 0;

	for (size_t i = 0, used; i < v->n; i += used) {
		char c;

		used = ascii_decode_byte(v->p + i, v->n - i, true, &c);
		if (!used || c == '\0' || at + 1 >= size)
			return false;
		out[at++] = c;
	}
	out[at] = '\0';
	return true;
}

/* Parses "KEY/20130524/us-east-1/s3/aws4_request"; the key itself may contain slashes. */
static bool parse_credential(const char *p, size_t n, struct sigv4_auth *out, bool *terminated)
{
	const char *cut[4];
	const char *end = p + n;

	for (int i = 3; i >= 0; i--) {
		cut[i] = memrchr(p, '/', (size_t)((i == 3 ? end : cut[i + 1]) - p));
		if (!cut[i])
			return false;
	}
	size_t tail = (size_t)(end - cut[3] - 1);

	*terminated = span_is((struct span){cut[3] + 1, tail}, TERMINATOR);
	return cut[0] > p &&
	       copy_span(p, (size_t)(cut[0] - p), out->access_key, sizeof(out->access_key)) &&
	       (size_t)(cut[1] - cut[0] - 1) == sizeof(out->scope.date) - 1 &&
	       copy_span(cut[0] + 1, (size_t)(cut[1] - cut[0] - 1), out->scope.date,
		       sizeof(out->scope.date)) &&
	       copy_span(cut[1] + 1, (size_t)(cut[2] - cut[1] - 1), out->scope.region,
		       sizeof(out->scope.region)) &&
	       copy_span(cut[2] + 1, (size_t)(cut[3] - cut[2] - 1), out->scope.service,
		       sizeof(out->scope.service));
}

static bool valid_signature(const char *s)
{
	size_t n = 0;

	while (str_hex_digit(s[n]) >= 0)
		n++;
	return s[n] == '\0' && n == SIGV4_SIGNATURE_SIZE - 1;
}

/* Returns true if the text is a list of one or more lower-case names, with semicolons between
 * them. */
static bool valid_signed_headers(const char *s)
{
	bool empty = true;

	for (; *s; s++) {
		if (*s == ';') {
			if (empty)
				return false;
			empty = true;
			continue;
		}
		if (*s <= ' ' || *s == ':' || *s == 0x7f || (*s >= 'A' && *s <= 'Z'))
			return false;
		empty = false;
	}
	return !empty;
}

static const char *const components[] = {"Credential=", "SignedHeaders=", "Signature="};

static int component_at(const char *p)
{
	for (int i = 0; i < 3; i++) {
		if (str_starts(p, components[i]))
			return i;
	}
	return -1;
}

/* Returns the end of a component's value: the comma before the next component, or the end of the
 * text. */
static const char *component_end(const char *p)
{
	while (*(p = strchrnul(p, ','))) {
		const char *next = p + strspn(p, ", \t");

		if (*next == '\0' || component_at(next) >= 0)
			break;
		p = next;
	}
	return p;
}

/* Splits "Credential=…, SignedHeaders=…, Signature=…"; each component must occur exactly once, in
 * any order. */
static bool split_components(const char *p, struct span found[3])
{
	memset(found, 0, 3 * sizeof(*found));
	for (;;) {
		while (*p == ' ' || *p == '\t' || *p == ',')
			p++;
		if (*p == '\0')
			break;
		int which = component_at(p);

		if (which < 0 || found[which].p)
			return false;
		p += strlen(components[which]);
		const char *end = component_end(p);
		const char *next = end;

		while (end > p && ascii_space(end[-1]))
			end--;
		found[which] = (struct span){p, (size_t)(end - p)};
		p = next;
	}
	return found[0].p && found[1].p && found[2].p;
}

/* Accepts 64 hexadecimal digits, UNSIGNED-PAYLOAD and STREAMING-…. */
static bool valid_payload_hash(const char *s)
{
	return valid_signature(s) || strcmp(s, SIGV4_UNSIGNED_PAYLOAD) == 0 ||
	       str_starts(s, "STREAMING-");
}

/* Reads x-amz-date, else Date. botocore sends Date with the zone "-0000". */
static bool parse_date(const struct sigv4_request *req, struct sigv4_auth *out)
{
	const char *date = find_header(req, "x-amz-date");

	if (!date)
		date = find_header(req, "date");
	if (!date || (!date_parse_basic(date, &out->when) && !date_parse_mail(date, &out->when)))
		return false;
	date_format_basic(out->when, out->date);
	return true;
}

static enum sigv4_failure parse_header(
	const struct sigv4_request *req, const char *value, struct sigv4_auth *out)
{
	struct span found[3];
	bool terminated;

	if (!str_starts(value, ALGORITHM) || !ascii_space(value[strlen(ALGORITHM)]))
		return str_starts(value, "AWS ") || str_starts(value, "AWS4-ECDSA") ||
				       !str_starts(value, "AWS4")
			       ? SIGV4_UNSUPPORTED
			       : SIGV4_MALFORMED_HEADER;
	if (!split_components(value + strlen(ALGORITHM), found) ||
		!parse_credential(found[0].p, found[0].n, out, &terminated) ||
		!copy_span(
			found[1].p, found[1].n, out->signed_headers, sizeof(out->signed_headers)) ||
		!copy_span(found[2].p, found[2].n, out->signature, sizeof(out->signature)) ||
		!valid_signature(out->signature) || !valid_signed_headers(out->signed_headers))
		return SIGV4_MALFORMED_HEADER;
	if (!terminated)
		return SIGV4_SCOPE_SERVICE;
	if (!parse_date(req, out))
		return SIGV4_DATE_MISSING;
	out->presigned = false;
	out->expires = 0;
	out->payload_hash = req->payload_hash ? req->payload_hash
					      : find_header(req, "x-amz-content-sha256");
	if (!out->payload_hash || !valid_payload_hash(out->payload_hash))
		return SIGV4_PAYLOAD_HASH;
	return SIGV4_VALID;
}

enum query_parameter {
	Q_ALGORITHM,
	Q_CREDENTIAL,
	Q_DATE,
	Q_EXPIRES,
	Q_SIGNED_HEADERS,
	Q_SIGNATURE,
	Q_REQUIRED,
	Q_CONTENT_SHA256 = Q_REQUIRED,
	Q_COUNT
};
static const char *const query_names[Q_COUNT] = {"X-Amz-Algorithm", "X-Amz-Credential",
	"X-Amz-Date", "X-Amz-Expires", "X-Amz-SignedHeaders", "X-Amz-Signature",
	"X-Amz-Content-Sha256"};

/* Finds the parameters of a presigned URL. Returns the bit set of the parameters found, or -1 if a
 * parameter occurs twice. */
static int find_parameters(const char *query, struct span found[Q_COUNT], bool *version2)
{
	struct span name, value;
	int seen = 0;

	*version2 = false;
	for (const char *at = query; uri_query_next(&at, &name, &value);) {
		if (span_is(name, "AWSAccessKeyId"))
			*version2 = true;
		if (name.n < strlen("X-Amz-Date") || ascii_lower(name.p[0]) != 'x')
			continue;
		for (int i = 0; i < Q_COUNT; i++) {
			if (!ascii_equal(name.p, name.n, query_names[i]))
				continue;
			if (seen & 1 << i)
				return -1;
			seen |= 1 << i;
			found[i] = value.p ? value : (struct span){"", 0};
		}
	}
	return seen;
}

static enum sigv4_failure presigned_payload(
	const struct sigv4_request *req, const struct span *parameter, struct sigv4_auth *out)
{
	const char *hash = req->payload_hash ? req->payload_hash
					     : find_header(req, "x-amz-content-sha256");

	if (!hash && parameter->p) {
		static const char *const words[] = {SIGV4_UNSIGNED_PAYLOAD, SIGV4_EMPTY_SHA256};

		/* `out` must point to a NUL-terminated text, so a value is accepted only if it
		 * equals one of these constants; clients send no other values. */
		for (size_t i = 0; i < sizeof(words) / sizeof(*words) && !hash; i++) {
			if (span_is(*parameter, words[i]))
				hash = words[i];
		}
		if (!hash)
			return SIGV4_PAYLOAD_HASH;
	}
	out->payload_hash = hash ? hash : SIGV4_UNSIGNED_PAYLOAD;
	return valid_payload_hash(out->payload_hash) ? SIGV4_VALID : SIGV4_PAYLOAD_HASH;
}

static enum sigv4_failure parse_query(
	const struct sigv4_request *req, const struct span found[Q_COUNT], struct sigv4_auth *out)
{
	char text[SIGV4_ACCESS_KEY_MAX + SIGV4_REGION_MAX + 64];
	char algorithm[64];
	uint64_t expires;
	bool terminated;

	if (!decode_span(&found[Q_ALGORITHM], algorithm, sizeof(algorithm)))
		return SIGV4_MALFORMED_QUERY;
	if (strcmp(algorithm, ALGORITHM) != 0)
		return SIGV4_UNSUPPORTED;
	if (!decode_span(&found[Q_CREDENTIAL], text, sizeof(text)) ||
		!parse_credential(text, strlen(text), out, &terminated) ||
		!decode_span(&found[Q_SIGNED_HEADERS], out->signed_headers,
			sizeof(out->signed_headers)) ||
		!decode_span(&found[Q_SIGNATURE], out->signature, sizeof(out->signature)) ||
		!valid_signature(out->signature) || !valid_signed_headers(out->signed_headers) ||
		!decode_span(&found[Q_DATE], out->date, sizeof(out->date)) ||
		!date_parse_basic(out->date, &out->when))
		return SIGV4_MALFORMED_QUERY;
	if (!decode_span(&found[Q_EXPIRES], text, sizeof(text)) ||
		!str_to_u64(text, 1, SIGV4_EXPIRES_MAX, &expires))
		return SIGV4_EXPIRES_RANGE;
	if (!terminated)
		return SIGV4_SCOPE_SERVICE;
	out->presigned = true;
	out->expires = (unsigned)expires;
	return presigned_payload(req, &found[Q_CONTENT_SHA256], out);
}

enum sigv4_failure sigv4_parse(const struct sigv4_request *req, struct sigv4_auth *out)
{
	const int signs = 1 << Q_SIGNATURE | 1 << Q_CREDENTIAL | 1 << Q_ALGORITHM;
	const int required = (1 << Q_REQUIRED) - 1;
	const char *header = find_header(req, "authorization");
	struct span found[Q_COUNT] = {{0}};
	bool version2;
	int seen = find_parameters(req->query, found, &version2);

	if (header && (seen < 0 || (seen & 1 << Q_SIGNATURE) || version2))
		return SIGV4_AMBIGUOUS;
	if (header)
		return parse_header(req, header, out);
	if (version2)
		return SIGV4_UNSUPPORTED;
	if (seen < 0)
		return SIGV4_MALFORMED_QUERY;
	if (!(seen & signs))
		return SIGV4_ANONYMOUS;
	if ((seen & required) != required)
		return SIGV4_MALFORMED_QUERY;
	return parse_query(req, found, out);
}

enum sigv4_failure sigv4_parse_form(const struct sigv4_form *form, struct sigv4_auth *out)
{
	bool terminated;

	if (strcmp(form->algorithm, ALGORITHM) != 0)
		return SIGV4_UNSUPPORTED;
	if (!parse_credential(form->credential, strlen(form->credential), out, &terminated) ||
		!copy_span(form->date, strlen(form->date), out->date, sizeof(out->date)) ||
		!date_parse_basic(out->date, &out->when))
		return SIGV4_MALFORMED_FORM;
	if (!terminated)
		return SIGV4_SCOPE_SERVICE;
	out->presigned = false;
	out->expires = SIGV4_EXPIRES_MAX;
	if (!copy_span(form->signature, strlen(form->signature), out->signature,
		    sizeof(out->signature)) ||
		!valid_signature(out->signature))
		return SIGV4_MISMATCH;
	return SIGV4_VALID;
}
