#include "s3/message/xml.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <expat.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/str.h"
#include "s3/ascii.h"
#include "s3/date.h"
#include "s3/uri.h"

#define NAMESPACE  "http://s3.amazonaws.com/doc/2006-03-01/"
#define PATH_LIMIT 4096 /* bytes of "/a/b/c" */

void xml_declaration(struct buf *out)
{
	buf_add_str(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
}

void xml_open_root(struct buf *out, const char *name)
{
	buf_add_char(out, '<');
	buf_add_str(out, name);
	buf_add_str(out, " xmlns=\"" NAMESPACE "\">");
}

static void add_tag(struct buf *out, const char *begin, const char *name)
{
	size_t begin_len = strlen(begin), len = strlen(name);
	char *room = buf_reserve(out, begin_len + len + 1);

	if (!room)
		return;
	memcpy(room, begin, begin_len);
	memcpy(room + begin_len, name, len);
	room[begin_len + len] = '>';
	buf_grown(out, begin_len + len + 1);
}

void xml_open(struct buf *out, const char *name)
{
	add_tag(out, "<", name);
}

void xml_close(struct buf *out, const char *name)
{
	add_tag(out, "</", name);
}

/* Returns the length of the character at `s`, or 0 if the bytes are not well-formed UTF-8 or XML
 * 1.0 cannot represent the character. */
static size_t character_length(const char *s, size_t n)
{
	const unsigned char *p = (const unsigned char *)s;
	size_t len = p[0] < 0x80 ? 1 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;

	if (len > n || !str_is_utf8(s, len))
		return 0;
	if (len == 1 && p[0] < 0x20 && p[0] != '\t' && p[0] != '\n' && p[0] != '\r')
		return 0;
	/* U+FFFE and U+FFFF are not characters. */
	return len == 3 && p[0] == 0xef && p[1] == 0xbf && p[2] >= 0xbe ? 0 : len;
}

static const char *entity(char c)
{
	switch (c) {
	case '&':
		return "&amp;";
	case '<':
		return "&lt;";
	case '>':
		return "&gt;";
	case '"':
		return "&quot;";
	case '\r': /* a parser would read an unescaped CR as a newline */
		return "&#xD;";
	default:
		return NULL;
	}
}

bool xml_can_hold(const char *s)
{
	size_t left = strlen(s), len;

	for (; left; s += len, left -= len) {
		len = character_length(s, left);
		if (!len)
			return false;
	}
	return true;
}

/* Returns true for a printable ASCII character, unless it needs an entity. */
static bool is_plain(char c)
{
	return c >= ' ' && c < 0x7f && c != '&' && c != '<' && c != '>' && c != '"';
}

void xml_text(struct buf *out, const char *s, size_t n)
{
	size_t plain = 0; /* start of the text not yet written */

	for (size_t i = 0; i < n;) {
		const char *replaced;
		size_t len;

		if (is_plain(s[i])) {
			i++;
			continue;
		}
		replaced = entity(s[i]);
		len = replaced ? 1 : character_length(s + i, n - i);

		if (len == 0) {
			replaced = "&#xFFFD;";
			len = 1;
		}
		if (replaced) {
			buf_add(out, s + plain, i - plain);
			buf_add_str(out, replaced);
			plain = i + len;
		}
		i += len;
	}
	buf_add(out, s + plain, n - plain);
}

void xml_element(struct buf *out, const char *name, const char *text)
{
	if (!text)
		return;
	xml_open(out, name);
	xml_text(out, text, strlen(text));
	xml_close(out, name);
}

void xml_element_u64(struct buf *out, const char *name, uint64_t value)
{
	char text[sizeof("18446744073709551615")];

	snprintf(text, sizeof(text), "%" PRIu64, value);
	xml_element(out, name, text);
}

void xml_element_bool(struct buf *out, const char *name, bool value)
{
	xml_element(out, name, value ? "true" : "false");
}

void xml_element_url(struct buf *out, const char *name, const char *text, bool url_encoded)
{
	if (!text)
		return;
	if (!url_encoded) {
		xml_element(out, name, text);
		return;
	}
	xml_open(out, name);
	uri_encode(out, text, strlen(text), true);
	xml_close(out, name);
}

void xml_element_date(struct buf *out, const char *name, int64_t ns)
{
	char date[DATE_ISO_SIZE];

	date_format_iso(ns, date);
	xml_element(out, name, date);
}

/* ---- reading ---- */

struct reader {
	XML_Parser parser;
	const struct xml_events *events;
	const char *what;
	struct penstock_error *err;
	int rc; /* error of a callback, or of the reader itself */
	struct buf path;
	struct buf text; /* text of all open elements, concatenated */
	size_t starts[LIMIT_XML_DEPTH]; /* start of the text of each open element */
	unsigned depth;
};

static void stop(struct reader *r, int rc)
{
	if (r->rc == 0)
		r->rc = rc;
	XML_StopParser(r->parser, XML_FALSE);
}

static void on_start(void *cookie, const XML_Char *name, const XML_Char **attributes)
{
	struct reader *r = cookie;
	const char *colon = strrchr(name, ':');

	(void)attributes;
	if (r->rc)
		return;
	if (r->depth == LIMIT_XML_DEPTH) {
		stop(r, error_set(r->err, PENSTOCK_E_PROTOCOL,
				"%s is nested more than %d elements deep", r->what,
				LIMIT_XML_DEPTH));
		return;
	}
	r->starts[r->depth++] = r->text.len;
	buf_add_char(&r->path, '/');
	buf_add_str(&r->path, colon ? colon + 1 : name);
	if (buf_failed(&r->path)) {
		stop(r, buf_error(&r->path, r->what, r->err));
		return;
	}
	if (r->events->start) {
		int rc = r->events->start(r->events->cookie, buf_str(&r->path), r->err);

		if (rc)
			stop(r, rc);
	}
}

static void on_end(void *cookie, const XML_Char *name)
{
	struct reader *r = cookie;

	(void)name;
	if (r->rc || r->depth == 0)
		return;
	size_t start = r->starts[--r->depth];

	if (r->events->end) {
		int rc = r->events->end(r->events->cookie, buf_str(&r->path),
			buf_str(&r->text) + start, r->text.len - start, r->err);

		if (rc) {
			stop(r, rc);
			return;
		}
	}
	buf_truncate(&r->text, start);
	buf_truncate(&r->path, (size_t)(strrchr(buf_str(&r->path), '/') - buf_str(&r->path)));
}

static void on_text(void *cookie, const XML_Char *s, int len)
{
	struct reader *r = cookie;

	if (r->rc == 0 && buf_add(&r->text, s, (size_t)len) < 0)
		stop(r, buf_error(&r->text, r->what, r->err));
}

static void on_doctype(void *cookie, const XML_Char *name, const XML_Char *system,
	const XML_Char *public_id, int internal)
{
	struct reader *r = cookie;

	(void)name;
	(void)system;
	(void)public_id;
	(void)internal;
	stop(r, error_set(r->err, PENSTOCK_E_PROTOCOL,
			"%s has a document type declaration, which is not allowed", r->what));
}

static void free_parser(XML_Parser *p)
{
	if (*p)
		XML_ParserFree(*p);
}

int xml_parse(const char *data, size_t len, const struct xml_events *events, const char *what,
	struct penstock_error *err)
{
	_cleanup_(free_parser) XML_Parser parser = NULL;
	struct reader r = {.events = events,
		.what = what,
		.err = err,
		.path = BUF_INIT(PATH_LIMIT),
		.text = BUF_INIT(LIMIT_XML_BODY)};

	if (len > LIMIT_XML_BODY)
		return error_set(
			err, PENSTOCK_E_LIMIT, "%s is longer than %zu bytes", what, LIMIT_XML_BODY);
	parser = XML_ParserCreate(NULL);
	if (!parser)
		return error_memory(err);
	r.parser = parser;
	XML_SetUserData(parser, &r);
	XML_SetElementHandler(parser, on_start, on_end);
	XML_SetCharacterDataHandler(parser, on_text);
	XML_SetStartDoctypeDeclHandler(parser, on_doctype);
	enum XML_Status status = XML_Parse(parser, data ? data : "", (int)len, 1);

	if (r.rc == 0 && status != XML_STATUS_OK) {
		if (XML_GetErrorCode(parser) == XML_ERROR_NO_MEMORY)
			r.rc = error_memory(err);
		else
			r.rc = error_set(err, PENSTOCK_E_PROTOCOL,
				"%s is not well-formed XML: %s at byte %lld", what,
				XML_ErrorString(XML_GetErrorCode(parser)),
				(long long)XML_GetCurrentByteIndex(parser));
	}
	buf_release(&r.path);
	buf_release(&r.text);
	return r.rc;
}
