#include "s3/bucket/logging.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "s3/date.h"
#include "s3/message/table.h"
#include "s3/message/xml.h"
#include "s3/uri.h"

/* bytes; the rest of the longest key is for the other parts of a log key */
#define PREFIX_MAX 800

/* ---- the document ---- */

#define ENABLED		"/LoggingEnabled"
#define FORMAT		ENABLED "/TargetObjectKeyFormat"
#define L(path, member) D(path, TEXT, s3_logging, member)
static const struct field logging_fields[] = {L(ENABLED, enabled),
	L(ENABLED "/TargetBucket", target), L(ENABLED "/TargetPrefix", prefix),
	F(ENABLED "/TargetGrants", REFUSED), L(FORMAT, format), L(FORMAT "/SimplePrefix", simple),
	L(FORMAT "/PartitionedPrefix", partitioned),
	L(FORMAT "/PartitionedPrefix/PartitionDateSource", source), END};
static const struct table logging_table = {.what = "the BucketLoggingStatus",
	.strict = true,
	.roots = {"BucketLoggingStatus"},
	.fields = logging_fields,
	.size = sizeof(struct s3_logging)};

RELEASE(logging)

static bool is_valid(const struct s3_logging *l)
{
	if (!l->enabled)
		return true;
	if (!l->target || !*l->target || !l->prefix || strlen(l->prefix) > PREFIX_MAX)
		return false;
	if (l->format && !l->simple == !l->partitioned)
		return false;
	return !l->source || strcmp(l->source, "EventTime") == 0 ||
	       strcmp(l->source, "DeliveryTime") == 0;
}

int s3_logging_parse(
	const char *xml, size_t len, struct s3_logging *out, struct penstock_error *err)
{
	int rc = table_parse(&logging_table, out, xml, len, err);

	if (rc < 0) {
		out->problem = rc == -PENSTOCK_E_MEMORY ? S3_E_SLOW_DOWN : S3_E_MALFORMED_XML;
		return rc;
	}
	if (is_valid(out))
		return 0;
	s3_logging_release(out);
	out->problem = S3_E_MALFORMED_XML;
	return error_set(err, PENSTOCK_E_PROTOCOL, "%s is invalid", logging_table.what);
}

bool s3_logging_by_event(const struct s3_logging *logging)
{
	return logging->partitioned &&
	       !(logging->source && strcmp(logging->source, "DeliveryTime") == 0);
}

void s3_logging_write(struct buf *out, const struct s3_logging *logging)
{
	xml_declaration(out);
	xml_open_root(out, "BucketLoggingStatus");
	if (logging->enabled) {
		xml_open(out, "LoggingEnabled");
		xml_element(out, "TargetBucket", logging->target);
		xml_element(out, "TargetPrefix", logging->prefix);
		xml_open(out, "TargetObjectKeyFormat");
		if (logging->partitioned) {
			xml_open(out, "PartitionedPrefix");
			xml_element(out, "PartitionDateSource",
				s3_logging_by_event(logging) ? "EventTime" : "DeliveryTime");
			xml_close(out, "PartitionedPrefix");
		} else {
			xml_element(out, "SimplePrefix", "");
		}
		xml_close(out, "TargetObjectKeyFormat");
		xml_close(out, "LoggingEnabled");
	}
	xml_close(out, "BucketLoggingStatus");
}

/* ---- keys ---- */

void s3_log_key(struct buf *out, const struct s3_logging *logging,
	const struct s3_log_source *source, int64_t time_ns, const char *unique)
{
	char date[DATE_ISO_SIZE]; /* 2009-10-12T17:50:30.000Z */

	date_format_iso(time_ns, date);
	buf_add_str(out, logging->prefix);
	if (logging->partitioned)
		buf_printf(out, "%s/%s/%s/%.4s/%.2s/%.2s/", source->account,
			*source->region ? source->region : "us-east-1", source->bucket, date,
			date + 5, date + 8);
	/* A key with the date of the requests has no time of day. */
	if (s3_logging_by_event(logging))
		buf_printf(out, "%.10s-00-00-00-%s", date, unique);
	else
		buf_printf(out, "%.10s-%.2s-%.2s-%.2s-%s", date, date + 11, date + 14, date + 17,
			unique);
}

/* ---- lines ---- */

static void add_plain(struct buf *out, const char *text)
{
	buf_printf(out, " %s", text && *text ? text : "-");
}

static void add_number(struct buf *out, int64_t number)
{
	if (number < 0)
		add_plain(out, NULL);
	else
		buf_printf(out, " %" PRId64, number);
}

/* Adds a text that a client has sent. Percent-encodes quotes, backslashes and all bytes except
 * visible ASCII and blanks. */
static void add_escaped_part(struct buf *out, const char *text, size_t len)
{
	for (const unsigned char *p = (const unsigned char *)text; len; p++, len--)
		if (*p < ' ' || *p == '"' || *p == '\\' || *p >= 0x7f)
			buf_printf(out, "%%%02X", *p);
		else
			buf_add_char(out, (char)*p);
}

static void add_escaped(struct buf *out, const char *text)
{
	add_escaped_part(out, text, text ? strlen(text) : 0);
}

/* Adds a word that a client has sent; blanks are percent-encoded, too. */
static void add_sent(struct buf *out, const char *text)
{
	if (!text || !*text) {
		add_plain(out, NULL);
		return;
	}
	buf_add_char(out, ' ');
	for (const char *p = text; *p; p++)
		if (*p == ' ')
			buf_add_str(out, "%20");
		else
			add_escaped_part(out, p, 1);
}

/* Returns true if the value of a query parameter must not be in the log: a reader of the log could
 * use a signature or a session token until its expiry, and a customer's key without a time limit. A
 * parameter whose name cannot be decoded counts as secret, too. */
static bool is_secret(const char *name, size_t len)
{
	static const char *const names[] = {"X-Amz-Signature", "X-Amz-Security-Token", "Signature",
		"X-Amz-Server-Side-Encryption-Customer-Key",
		"X-Amz-Copy-Source-Server-Side-Encryption-Customer-Key"};
	_cleanup_(buf_release) struct buf plain = BUF_INIT(LIMIT_HTTP_HEADERS);

	if (uri_decode(&plain, name, len, URI_PLUS_SPACE) < 0)
		return true;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (strcasecmp(buf_str(&plain), names[i]) == 0)
			return true;
	return false;
}

static void add_query(struct buf *out, const char *query)
{
	for (const char *p = query; p && *p;) {
		size_t len = strcspn(p, "&"), name = strcspn(p, "=&");
		bool secret = is_secret(p, name);

		buf_add_char(out, p == query ? '?' : '&');
		add_escaped_part(out, p, secret ? name : len);
		if (secret)
			buf_add_str(out, "=-");
		p += len + (p[len] == '&');
	}
}

static void add_quoted(struct buf *out, const char *text)
{
	if (!text || !*text) {
		buf_add_str(out, " \"-\"");
		return;
	}
	buf_add_str(out, " \"");
	add_escaped(out, text);
	buf_add_char(out, '"');
}

static void add_key(struct buf *out, const char *key)
{
	if (!key) {
		add_plain(out, NULL);
		return;
	}
	buf_add_char(out, ' ');
	uri_encode(out, key, strlen(key), true);
}

/* Adds "[06/Feb/2019:00:00:38 +0000]". */
static void add_time(struct buf *out, int64_t time_ns)
{
	char date[DATE_HTTP_SIZE]; /* Sun, 06 Nov 1994 08:49:37 GMT */

	date_format_http(time_ns / NS_PER_S, date);
	buf_printf(out, " [%.2s/%.3s/%.4s:%.8s +0000]", date + 5, date + 8, date + 12, date + 17);
}

/* Adds a word of a line, or "-" if the text has a blank. */
static void add_word(struct buf *out, const char *text)
{
	if (!text || !*text || strchr(text, ' ')) {
		add_plain(out, NULL);
		return;
	}
	buf_add_char(out, ' ');
	add_escaped(out, text);
}

void s3_log_write(struct buf *out, const struct s3_log_record *r)
{
	buf_add_str(out, r->owner);
	add_sent(out, r->bucket);
	add_time(out, r->time_ns);
	add_plain(out, r->remote);
	add_plain(out, r->requester);
	add_plain(out, r->request_id);
	add_sent(out, r->operation);
	add_key(out, r->key);
	buf_add_str(out, " \"");
	add_escaped(out, r->method);
	buf_add_char(out, ' ');
	add_escaped(out, r->path);
	add_query(out, r->query);
	buf_add_str(out, " HTTP/1.1\"");
	add_number(out, r->status);
	add_plain(out, r->error);
	add_number(out, r->sent);
	add_number(out, r->size);
	add_number(out, r->total_ms);
	add_number(out, r->turn_around_ms);
	add_quoted(out, r->referer);
	add_quoted(out, r->user_agent);
	add_sent(out, r->version);
	add_plain(out, NULL); /* host id */
	add_plain(out, r->signature);
	add_plain(out, NULL); /* cipher suite */
	add_plain(out, r->auth_type);
	add_word(out, r->host);
	add_plain(out, r->tls);
	add_plain(out, NULL); /* access point */
	add_plain(out, r->acl_required ? "Yes" : NULL);
	buf_add_char(out, '\n');
}

/* ---- operations ---- */

void s3_log_operation(const struct s3_log_subject *subject, char out[static S3_LOG_OPERATION_SIZE])
{
	static const struct {
		const char *sub;
		int object; /* -1: either */
		const char *method, *name; /* `method` is NULL if the row is for any method */
	} rows[] = {
		{"uploadId", 1, "PUT", "PART"},
		{"uploadId", 1, NULL, "UPLOAD"},
		{"uploads", -1, NULL, "UPLOADS"},
		{"delete", 0, "POST", "MULTI_OBJECT_DELETE"},
		{"partNumber", 1, NULL, "OBJECT"},
		{"list-type", 0, NULL, "BUCKET"},
		{"versions", 0, NULL, "BUCKETVERSIONS"},
		{"logging", 0, NULL, "LOGGING_STATUS"},
		{"policy", 0, NULL, "BUCKETPOLICY"},
		{"tagging", 1, NULL, "OBJECT_TAGGING"},
		{"object-lock", 0, NULL, "OBJECT_LOCK_CONFIGURATION"},
		{"attributes", 1, NULL, "OBJECT_ATTRIBUTES"},
		{"publicAccessBlock", 0, NULL, "PUBLIC_ACCESS_BLOCK"},
		{"ownershipControls", 0, NULL, "OWNERSHIP_CONTROLS"},
	};
	const char *name = subject->object ? "OBJECT" : "BUCKET", *sub = subject->sub;
	size_t len;

	if (sub)
		name = sub;
	for (size_t i = 0; sub && i < ARRAY_SIZE(rows); i++) {
		if (strcmp(rows[i].sub, sub) != 0 ||
			(rows[i].object >= 0 && rows[i].object != subject->object) ||
			(rows[i].method && strcmp(rows[i].method, subject->method) != 0))
			continue;
		name = rows[i].name;
		break;
	}
	if (strcmp(subject->method, "OPTIONS") == 0)
		name = "PREFLIGHT";
	len = (size_t)snprintf(out, S3_LOG_OPERATION_SIZE, "REST.%s.%s",
		subject->copy ? "COPY" : subject->method, name);
	for (size_t i = 0; i < len && out[i]; i++)
		out[i] = out[i] == '-' ? '_' : (char)toupper((unsigned char)out[i]);
}
