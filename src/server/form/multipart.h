/*
 * The body of a browser's form (multipart/form-data, RFC 7578), which may arrive in pieces of any
 * size.
 *
 *	struct multipart m = {0};
 *
 *	r = multipart_init(&m, content_type, &(struct multipart_events){ .field = on_field,
 *		.file = on_file, .data = on_data, .cookie = me }, err);
 *	while (r == 0 && (len = read(fd, bytes, sizeof(bytes))) > 0)
 *		r = multipart_feed(&m, bytes, len, err);
 *	if (r == 0)
 *		r = multipart_finish(&m, err);
 *	multipart_release(&m);
 *
 * The part called "file" is the file, and its bytes are passed on as they arrive. All other parts
 * are fields; fields after the file are ignored. Lines end in CRLF.
 *
 * The functions fail with PENSTOCK_E_PROTOCOL if the form is malformed, and with PENSTOCK_E_LIMIT
 * if it has more than LIMIT_FORM bytes or LIMIT_FORM_FIELDS fields in addition to the file.
 */
#ifndef SERVER_FORM_MULTIPART_H
#define SERVER_FORM_MULTIPART_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

struct penstock_error;

struct multipart_events {
	/* Each callback returns 0; a negative code with `err` set ends the parse. */
	/* A field before the file. The texts are only valid during the call; a NUL follows the
	 * value, which may contain more NULs. */
	int (*field)(void *cookie, const char *name, const char *value, size_t len,
		struct penstock_error *err);
	/* The beginning of a file; `name` is "" if the client gave none. Called again if the form
	 * has another file. */
	int (*file)(void *cookie, const char *name, struct penstock_error *err);
	int (*data)(void *cookie, const void *data, size_t len, struct penstock_error *err);
	void *cookie;
};

#define MULTIPART_BOUNDARY_MAX 70 /* RFC 2046 */

struct multipart {
	struct multipart_events events;
	/* the members below are private to the parser */
	char delimiter[4 + MULTIPART_BOUNDARY_MAX + 1]; /* CRLF, "--", the boundary, NUL */
	size_t delimiter_len;
	size_t matched; /* bytes of the delimiter at the end of the last piece */
	int state, part;
	char last; /* the last byte on the line of a delimiter */
	bool has_file;
	size_t spent; /* bytes outside the file */
	size_t n_fields;
	struct buf line; /* current line of the head of a part */
	struct buf name, filename; /* parameters of the part */
	bool has_name;
	struct buf value; /* value of a field */
};

/* Returns true for the Content-Type of a form, with or without a boundary. */
bool multipart_is_form(const char *content_type);
/* Fails if `content_type` is not the type of a form, or has no valid boundary. */
int multipart_init(struct multipart *m, const char *content_type,
	const struct multipart_events *events, struct penstock_error *err);
int multipart_feed(struct multipart *m, const void *data, size_t len, struct penstock_error *err);
/* Fails if the last delimiter is missing. */
int multipart_finish(const struct multipart *m, struct penstock_error *err);
/* `m` may be a zeroed struct. */
void multipart_release(struct multipart *m);

#endif
