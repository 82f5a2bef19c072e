/*
 * XML as used by S3: elements with text. The writer appends to a bounded buffer (check it once at
 * the end with buf_failed()); the reader is expat with a limited depth and size. The reader rejects
 * any document type declaration, and ignores namespaces, attributes, comments and processing
 * instructions.
 */
#ifndef S3_MESSAGE_XML_H
#define S3_MESSAGE_XML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct penstock_error;

/* Writes <?xml version="1.0" encoding="UTF-8"?> and a newline. */
void xml_declaration(struct buf *out);
/* Writes <name xmlns="http://s3.amazonaws.com/doc/2006-03-01/">. */
void xml_open_root(struct buf *out, const char *name);
void xml_open(struct buf *out, const char *name);
void xml_close(struct buf *out, const char *name);
/* Writes escaped text; characters that XML 1.0 cannot represent, and bytes that are not UTF-8,
 * become &#xFFFD;. */
void xml_text(struct buf *out, const char *s, size_t n);
/* Returns true if a reader of xml_text() gets `s` back: XML 1.0 cannot represent most control
 * characters. */
bool xml_can_hold(const char *s);
/* Writes <name>text</name>, or nothing if `text` is NULL. */
void xml_element(struct buf *out, const char *name, const char *text);
void xml_element_u64(struct buf *out, const char *name, uint64_t value);
void xml_element_bool(struct buf *out, const char *name, bool value);
/* Writes <name>text</name> with the text percent-encoded if `url_encoded` is set; nothing if `text`
 * is NULL. */
void xml_element_url(struct buf *out, const char *name, const char *text, bool url_encoded);
/* Writes a date with milliseconds, as in <LastModified> of S3. */
void xml_element_date(struct buf *out, const char *name, int64_t ns);

struct xml_events {
	/* `path` is "/ListBucketResult/Contents/Key". A non-zero result ends the parse; call
	 * error_set() first. Each callback may be NULL. */
	int (*start)(void *cookie, const char *path, struct penstock_error *err);
	/* Called at the end of each element, with the text directly inside it (complete,
	 * NUL-terminated). */
	int (*end)(void *cookie, const char *path, const char *text, size_t len,
		struct penstock_error *err);
	void *cookie;
};
/*
 * Parses one complete document, which messages call `what`. Fails with PENSTOCK_E_PROTOCOL if the
 * document is not well-formed, is deeper than LIMIT_XML_DEPTH, or has a document type declaration,
 * and with PENSTOCK_E_LIMIT if the document is longer than LIMIT_XML_BODY or the path of an element
 * longer than 4,096 bytes.
 */
int xml_parse(const char *data, size_t len, const struct xml_events *events, const char *what,
	struct penstock_error *err);

#endif
