/* Shared by sigv4.c and canonical.c. */
#ifndef S3_SIGN_INTERNAL_H
#define S3_SIGN_INTERNAL_H

#include <stdint.h>

#include "base/buf.h"
#include "s3/sign/sigv4.h"

/* One encoded parameter, as offsets into sigv4.text (which moves as it grows), or one header. */
struct sigv4_order {
	union {
		struct {
			uint32_t name, name_len, value_len; /* the value follows the name */
		};
		const char *header;
	};
};

/* Appends the canonical request; uses ws->text and ws->order as working memory. */
enum sigv4_failure sigv4_build_canonical(struct sigv4 *ws, const struct sigv4_request *req,
	const char *signed_headers, const char *payload_hash, struct buf *out);
/* Returns the reason why a buffer failed. */
enum sigv4_failure sigv4_buf_problem(const struct buf *b);

#endif
