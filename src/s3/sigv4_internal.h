/* What sigv4.c and sigv4_canonical.c share. */
#ifndef S3_SIGV4_INTERNAL_H
#define S3_SIGV4_INTERNAL_H

#include <stdint.h>

#include "base/buf.h"
#include "s3/sigv4.h"

/* One encoded parameter, as offsets into sigv4.text (which moves as it grows), or one header. */
struct sigv4_order {
	union {
		struct {
			uint32_t name, name_len, value_len; /* the value is behind the name */
		};
		const char *header;
	};
};

/* Appends the canonical request; ws->text and ws->order are its working memory. */
enum sigv4_failure sigv4_build_canonical(struct sigv4 *ws, const struct sigv4_request *req,
	const char *signed_headers, const char *payload_hash, struct buf *out);
/* Why a buffer failed. */
enum sigv4_failure sigv4_buf_problem(const struct buf *b);

#endif
