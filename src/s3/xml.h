/*
 * XML as S3 uses it: elements with text. The writer appends to a bounded buffer (check it once at
 * the end with buf_failed()); the reader is expat with a bounded depth and size, which refuses any
 * document type declaration, and ignores namespaces, attributes, comments and instructions.
 */
#ifndef S3_XML_H
#define S3_XML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct penstock_error;

/* <?xml version="1.0" encoding="UTF-8"?> and a newline. */
void xml_declaration(struct buf *out);
/* <name xmlns="http://s3.amazonaws.com/doc/2006-03-01/"> */
void xml_open_root(struct buf *out, const char *name);
void xml_open(struct buf *out, const char *name);
void xml_close(struct buf *out, const char *name);
/* Text, escaped; characters that XML 1.0 cannot carry become &#xFFFD;. */
void xml_text(struct buf *out, const char *s, size_t n);
/* Whether a reader of xml_text() gets `s` back: XML 1.0 has no way to say most control characters. */
bool xml_can_hold(const char *s);
/* <name>text</name>; nothing at all where `text` is NULL. */
void xml_element(struct buf *out, const char *name, const char *text);
void xml_element_u64(struct buf *out, const char *name, uint64_t value);
void xml_element_bool(struct buf *out, const char *name, bool value);
/* Milliseconds, as S3's <LastModified>. */
void xml_element_date(struct buf *out, const char *name, int64_t ns);

struct xml_events {
	/* `path` is "/ListBucketResult/Contents/Key". Non-zero ends the parse as refused; call
	 * error_set() before. All may be NULL. */
	int (*start)(void *cookie, const char *path, struct penstock_error *err);
	/* At the end of each element, with the text directly inside it (whole, NUL-terminated). */
	int (*end)(void *cookie, const char *path, const char *text, size_t len,
		struct penstock_error *err);
	void *cookie;
};
/*
 * Parses one whole document. `what` names it in messages. PENSTOCK_E_PROTOCOL: not well-formed,
 * deeper than LIMIT_XML_DEPTH or with a declaration; PENSTOCK_E_LIMIT: longer than LIMIT_XML_BODY.
 */
int xml_parse(const char *data, size_t len, const struct xml_events *events, const char *what,
	struct penstock_error *err);

#endif
