#include "server/form/multipart.h"

#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "base/limits.h"
#include "store/header.h"

enum state {
	BYTES, /* in the bytes of a part, or before the first part */
	AFTER, /* on the line of a delimiter */
	HEAD, /* in the headers of a part */
	END /* after the last delimiter */
};
enum part { IGNORED, FIELD, FILE_PART };

static int malformed(const char *reason, struct penstock_error *err)
{
	return error_set(err, PENSTOCK_E_PROTOCOL, "the form is malformed: %s", reason);
}

/* --- parameters of headers ------------------------------------------------------------------- */

/* Returns true for the characters of a token (RFC 9110, 5.6.2). */
static bool is_token_char(char c)
{
	return c > ' ' && c < 0x7f && !strchr("()<>@,;:\\\"/[]?={}", c);
}

/* Appends a token or a quoted string. A backslash is kept unless it escapes a quote or a backslash,
 * because some browsers send Windows paths. Returns the end of the value, or NULL if the value is
 * malformed. */
static const char *read_value(const char *p, struct buf *out)
{
	if (*p != '"') {
		size_t n = 0;

		while (is_token_char(p[n]))
			n++;
		buf_add(out, p, n);
		return n ? p + n : NULL;
	}
	for (p++; *p && *p != '"'; p++) {
		if (*p == '\\' && (p[1] == '"' || p[1] == '\\'))
			p++;
		buf_add_char(out, *p);
	}
	return *p ? p + 1 : NULL;
}

/* Reads "; name=value" into the buffer of that name; other parameters are skipped. Returns the end,
 * or NULL if the parameter is malformed or repeated. */
static const char *read_parameter(
	const char *p, const char *const *names, struct buf *const *values, unsigned *seen)
{
	struct buf other = BUF_INIT(LIMIT_FORM);
	struct buf *out = &other;
	size_t n = 0;

	p += strspn(p, " \t");
	if (*p++ != ';')
		return NULL;
	p += strspn(p, " \t");
	while (is_token_char(p[n]))
		n++;
	if (!n || p[n] != '=')
		return NULL;
	for (unsigned i = 0; names[i]; i++) {
		if (strlen(names[i]) != n || strncasecmp(p, names[i], n) != 0)
			continue;
		if (*seen & 1U << i)
			return NULL;
		*seen |= 1U << i;
		out = values[i];
	}
	p = read_value(p + n + 1, out);
	buf_release(&other);
	return p;
}

/* --- start and end --------------------------------------------------------------------------- */

static const char form_type[] = "multipart/form-data";

bool multipart_is_form(const char *content_type)
{
	size_t n = sizeof(form_type) - 1;

	return content_type && strncasecmp(content_type, form_type, n) == 0 &&
	       !is_token_char(content_type[n]) && content_type[n] != '/';
}

/* Returns true for a valid boundary (RFC 2046, 5.1.1), which does not end in a space. */
static bool is_boundary(const struct buf *text)
{
	if (buf_failed(text) || !text->len || text->data[text->len - 1] == ' ')
		return false;
	for (size_t i = 0; i < text->len; i++) {
		char c = text->data[i];

		if (!(c >= '0' && c <= '9') && !(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') &&
			(!c || !strchr("'()+_,-./:=? ", c)))
			return false;
	}
	return true;
}

int multipart_init(struct multipart *m, const char *content_type,
	const struct multipart_events *events, struct penstock_error *err)
{
	static const char *const names[] = {"boundary", NULL};
	struct buf boundary = BUF_INIT(MULTIPART_BOUNDARY_MAX);
	struct buf *const values[] = {&boundary};
	const char *p = content_type;
	unsigned seen = 0;
	int rc = 0;

	*m = (struct multipart){.events = *events, .state = BYTES, .part = IGNORED};
	buf_init(&m->line, LIMIT_FORM);
	buf_init(&m->name, LIMIT_FORM);
	buf_init(&m->filename, LIMIT_FORM);
	buf_init(&m->value, LIMIT_FORM);
	if (!multipart_is_form(content_type))
		return malformed("its type is not multipart/form-data", err);
	p += sizeof(form_type) - 1;
	while (p && p[strspn(p, " \t")])
		p = read_parameter(p, names, values, &seen);
	if (boundary.failure == BUF_NO_MEMORY) {
		rc = error_memory(err);
	} else if (!p || !is_boundary(&boundary)) {
		rc = malformed("it has no valid boundary", err);
	} else {
		memcpy(m->delimiter, "\r\n--", 4);
		memcpy(m->delimiter + 4, boundary.data, boundary.len + 1);
		m->delimiter_len = 4 + boundary.len;
		m->matched = 2; /* the first delimiter may lack the CRLF before it */
	}
	buf_release(&boundary);
	return rc;
}

void multipart_release(struct multipart *m)
{
	buf_release(&m->line);
	buf_release(&m->name);
	buf_release(&m->filename);
	buf_release(&m->value);
}

/* --- the bytes of a part --------------------------------------------------------------------- */

/* Counts bytes outside the file; fails if the form has more than LIMIT_FORM of these bytes. */
static int spend(struct multipart *m, size_t n, struct penstock_error *err)
{
	if (n > LIMIT_FORM - m->spent)
		return error_set(err, PENSTOCK_E_LIMIT, "the form has more than %d bytes %s",
			(int)LIMIT_FORM, m->has_file ? "after its file" : "before its file");
	m->spent += n;
	return 0;
}

static int emit(struct multipart *m, const char *data, size_t len, struct penstock_error *err)
{
	int rc;

	if (!len)
		return 0;
	if (m->part == FILE_PART)
		return m->events.data(m->events.cookie, data, len, err);
	rc = spend(m, len, err);
	if (rc == 0 && m->part == FIELD && buf_add(&m->value, data, len) < 0)
		rc = buf_error(&m->value, "a field of a form", err);
	return rc;
}

static int end_part(struct multipart *m, struct penstock_error *err)
{
	int rc = spend(m, m->delimiter_len, err);

	if (rc == 0 && m->part == FIELD)
		rc = m->events.field(
			m->events.cookie, buf_str(&m->name), buf_str(&m->value), m->value.len, err);
	buf_clear(&m->value);
	m->part = IGNORED;
	m->state = AFTER;
	m->last = '\0';
	m->matched = 0;
	return rc;
}

/* Continues a delimiter that began in the last piece. Returns the number of its bytes in this
 * piece, or 0 if other bytes follow. */
static size_t rest_of_delimiter(struct multipart *m, const char *data, size_t len)
{
	size_t want = m->delimiter_len - m->matched;
	size_t n = len < want ? len : want;

	return memcmp(m->delimiter + m->matched, data, n) == 0 ? n : 0;
}

/* Takes bytes up to the end of the next delimiter. A delimiter contains no CR except its first
 * byte, so all bytes of a failed match are data. */
static int feed_bytes(
	struct multipart *m, const char **at, const char *end, struct penstock_error *err)
{
	const char *from = *at, *cr = from;
	int rc = 0;

	if (m->matched) {
		size_t n = rest_of_delimiter(m, from, (size_t)(end - from)), before = m->matched;

		m->matched += n;
		*at = from + n;
		if (n)
			return m->matched == m->delimiter_len ? end_part(m, err) : 0;
		m->matched = 0;
		rc = emit(m, m->delimiter, before, err);
	}
	while (rc == 0 && (cr = memchr(cr, '\r', (size_t)(end - cr)))) {
		size_t left = (size_t)(end - cr);
		size_t n = left < m->delimiter_len ? left : m->delimiter_len;

		if (memcmp(cr, m->delimiter, n) != 0) {
			cr++;
			continue;
		}
		m->matched = n;
		*at = cr + n;
		rc = emit(m, from, (size_t)(cr - from), err);
		if (rc == 0 && n == m->delimiter_len)
			rc = end_part(m, err);
		return rc;
	}
	*at = end;
	return rc < 0 ? rc : emit(m, from, (size_t)(end - from), err);
}

/* --- delimiters and heads -------------------------------------------------------------------- */

/* Takes a byte after a delimiter: "--" ends the form, and a line end begins a part. */
static int feed_after(struct multipart *m, char c, struct penstock_error *err)
{
	if (c == '-' && m->last == '-')
		m->state = END;
	else if (c == '\n' && m->last == '\r')
		m->state = HEAD;
	else if (m->last == '-' || m->last == '\r' || (c == '-' && m->last) ||
		 !strchr("- \t\r", c) || !c)
		return malformed("other bytes follow a delimiter", err);
	m->last = c;
	return spend(m, 1, err);
}

/* Reads 'form-data; name="…"; filename="…"'. */
static int read_disposition(struct multipart *m, const char *value, struct penstock_error *err)
{
	static const char type[] = "form-data";
	static const char *const names[] = {"name", "filename", NULL};
	struct buf *const values[] = {&m->name, &m->filename};
	const char *p = value + strspn(value, " \t");
	unsigned seen = 0;

	if (strncasecmp(p, type, sizeof(type) - 1) != 0 || is_token_char(p[sizeof(type) - 1]))
		return malformed("a part is not form-data", err);
	p += sizeof(type) - 1;
	while (p && p[strspn(p, " \t")])
		p = read_parameter(p, names, values, &seen);
	if (!p || !(seen & 1))
		return malformed("a part has an invalid Content-Disposition", err);
	if (buf_failed(&m->name) || buf_failed(&m->filename))
		return error_memory(err);
	m->has_name = true;
	return 0;
}

static int end_line(struct multipart *m, struct penstock_error *err)
{
	static const char disposition[] = "content-disposition:";
	const char *line = buf_str(&m->line);
	size_t n = sizeof(disposition) - 1;

	if (strlen(line) != m->line.len || !store_header_is_value(line))
		return malformed("the head of a part has a control character", err);
	if (!is_token_char(*line) || !strchr(line, ':'))
		return malformed("the head of a part has a line that is not a header", err);
	if (strncasecmp(line, disposition, n) != 0)
		return 0;
	if (m->has_name)
		return malformed("a part has two names", err);
	return read_disposition(m, line + n, err);
}

static int begin_part(struct multipart *m, struct penstock_error *err)
{
	if (!m->has_name)
		return malformed("a part has no name", err);
	m->state = BYTES;
	if (strcasecmp(buf_str(&m->name), "file") == 0) {
		m->part = FILE_PART;
		m->has_file = true;
		m->spent = 0;
		return m->events.file(m->events.cookie, buf_str(&m->filename), err);
	}
	m->part = m->has_file ? IGNORED : FIELD;
	if (m->n_fields++ == LIMIT_FORM_FIELDS)
		return error_set(err, PENSTOCK_E_LIMIT, "the form has more than %d fields",
			LIMIT_FORM_FIELDS);
	return 0;
}

/* Takes a byte of the head of a part. */
static int feed_head(struct multipart *m, char c, struct penstock_error *err)
{
	int rc = spend(m, 1, err);
	bool ends = c == '\n' && m->line.len && m->line.data[m->line.len - 1] == '\r';

	if (rc < 0)
		return rc;
	if (!ends) {
		if (buf_add_char(&m->line, c) < 0)
			return buf_error(&m->line, "the head of a part", err);
		return 0;
	}
	buf_truncate(&m->line, m->line.len - 1);
	rc = m->line.len ? end_line(m, err) : begin_part(m, err);
	buf_clear(&m->line);
	return rc;
}

static void prepare_head(struct multipart *m)
{
	buf_clear(&m->line);
	buf_clear(&m->name);
	buf_clear(&m->filename);
	m->has_name = false;
}

int multipart_feed(struct multipart *m, const void *data, size_t len, struct penstock_error *err)
{
	const char *at = data, *end = at + len;
	int rc = 0;

	while (rc == 0 && at < end) {
		switch ((enum state)m->state) {
		case BYTES:
			rc = feed_bytes(m, &at, end, err);
			break;
		case AFTER:
			rc = feed_after(m, *at++, err);
			if (m->state == HEAD)
				prepare_head(m);
			break;
		case HEAD:
			rc = feed_head(m, *at++, err);
			break;
		case END:
			return spend(m, (size_t)(end - at), err);
		}
	}
	return rc;
}

int multipart_finish(const struct multipart *m, struct penstock_error *err)
{
	return m->state == END ? 0 : malformed("its last delimiter is missing", err);
}
