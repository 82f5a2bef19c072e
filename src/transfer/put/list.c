/* Lists the parts of an unfinished upload, and aborts it. */
#include "transfer/put/parts.h"

#include <stdio.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/log.h"
#include "s3/message/messages.h"

int upload_list_parts(struct upload *u, void (*each)(struct upload *u, const struct s3_part *part),
	struct penstock_error *err)
{
	unsigned after = 0;
	bool more = true;
	int r = 0;

	while (r == 0 && more) {
		_cleanup_(s3_op_release) struct s3_op op = {0};
		_cleanup_(s3_parts_release) struct s3_parts page = {0};
		char text[16];

		s3_op_init(&op, "GET", u->at);
		snprintf(text, sizeof(text), "%u", after);
		s3_op_query(&op, "uploadId", u->id);
		s3_op_query(&op, "max-parts", "1000");
		if (after)
			s3_op_query(&op, "part-number-marker", text);
		s3_op_cancel(&op, u->options->cancel);
		r = s3_op_read(&op, s3_parts_parse, &page, err);
		for (size_t i = 0; r == 0 && i < page.n; i++)
			each(u, &page.parts[i]);
		more = r == 0 && page.truncated && page.n && page.parts[page.n - 1].number > after;
		if (more)
			after = page.parts[page.n - 1].number;
	}
	return r;
}

bool upload_abort(struct upload *u)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;

	if (!u->id || object_abort_upload(u->at, u->id, &err) == 0)
		return u->id != NULL;
	log_debug("the parts of an abandoned upload remain in the store: %s",
		err.message ? err.message : "");
	return false;
}
