#include "server/request/lock.h"

#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "s3/date.h"
#include "server/request/headers.h"
#include "server/request/reply.h"
#include "server/request/request.h"
#include "store/header.h"

#define MODE_HEADER  "x-amz-object-lock-mode"
#define UNTIL_HEADER "x-amz-object-lock-retain-until-date"
#define HOLD_HEADER  "x-amz-object-lock-legal-hold"

/* --- names ----------------------------------------------------------------------------------- */

const char *lock_mode_name(enum store_lock_mode mode)
{
	return mode == STORE_GOVERNANCE	  ? "GOVERNANCE"
	       : mode == STORE_COMPLIANCE ? "COMPLIANCE"
					  : NULL;
}

enum store_lock_mode lock_mode_find(const char *name)
{
	return strcmp(name, "GOVERNANCE") == 0	 ? STORE_GOVERNANCE
	       : strcmp(name, "COMPLIANCE") == 0 ? STORE_COMPLIANCE
						 : STORE_NOT_LOCKED;
}

bool lock_until(struct request *req, const char *text, int64_t *ns)
{
	if (!date_parse_iso_end(text, ns))
		return reply_errorf(req, S3_E_INVALID_ARGUMENT,
			"The retain until date must be provided in ISO 8601 format");
	if (*ns == INT64_MAX)
		return reply_errorf(req, S3_E_INVALID_ARGUMENT,
			"The retain until date must be before the year 2262");
	return *ns > clock_wall_ns() || reply_errorf(req, S3_E_INVALID_ARGUMENT,
						"The retain until date must be in the future!");
}

bool lock_hold_is_valid(const char *status)
{
	return strcmp(status, STORE_HOLD_ON) == 0 || strcmp(status, "OFF") == 0;
}

bool lock_is_bypassed(const struct request *req)
{
	const char *value = request_header(req, "x-amz-bypass-governance-retention");

	return value && strcasecmp(value, "true") == 0;
}

bool lock_of_request(struct request *req, struct store_lock *out)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	enum store_status status = store_lock_get(req->server->store, req->bucket, out, &err);

	if (status == STORE_NO_SUCH_KEY)
		return reply_errorf(
			req, S3_E_INVALID_REQUEST, "Bucket is missing Object Lock Configuration");
	return reply_unless_stored(req, status, &err);
}

/* --- requests -------------------------------------------------------------------------------- */

static bool add_retention(struct request *req, struct buf *out)
{
	const char *mode = request_header(req, MODE_HEADER);
	const char *until = request_header(req, UNTIL_HEADER);
	struct store_retention retention = {0};
	char text[STORE_RETENTION_SIZE];

	if (!mode && !until)
		return true;
	if (!mode || !until)
		return reply_errorf(req, S3_E_INVALID_ARGUMENT,
			UNTIL_HEADER " and " MODE_HEADER " must both be supplied");
	retention.mode = lock_mode_find(mode);
	if (retention.mode == STORE_NOT_LOCKED)
		return reply_errorf(req, S3_E_INVALID_ARGUMENT, "Unknown wormMode directive.");
	if (!lock_until(req, until, &retention.until_ns))
		return false;
	store_retention_format(&retention, text);
	store_header_add(out, STORE_RETENTION_HEADER, text);
	return true;
}

bool lock_add(struct request *req, struct buf *out)
{
	const char *hold = request_header(req, HOLD_HEADER);
	struct store_lock lock;
	size_t before = out->len;

	if (!add_retention(req, out))
		return false;
	if (hold && !lock_hold_is_valid(hold))
		return reply_errorf(
			req, S3_E_INVALID_ARGUMENT, "Legal Hold must be either of 'ON' or 'OFF'");
	if (hold)
		store_header_add(out, STORE_HOLD_HEADER, hold);
	if (buf_failed(out))
		return reply_error(req, S3_E_SLOW_DOWN);
	return out->len == before || lock_of_request(req, &lock);
}

bool lock_has_checksum(struct request *req)
{
	if (!request_header(req, MODE_HEADER) && !request_header(req, HOLD_HEADER))
		return true;
	if (request_header(req, "content-md5") || request_header(req, "x-amz-trailer"))
		return true;
	for (size_t i = 0; i < req->n_headers; i++)
		if (headers_is_checksum(req->headers[i].name))
			return true;
	return reply_errorf(req, S3_E_INVALID_REQUEST,
		"Content-MD5 OR x-amz-checksum- HTTP header is required for Put Object requests "
		"with Object Lock parameters");
}

/* --- replies --------------------------------------------------------------------------------- */

void reply_retention(struct request *req, const char *text)
{
	const struct store_retention retention = store_retention_parse(text);
	char until[DATE_ISO_SIZE];

	if (retention.mode == STORE_NOT_LOCKED)
		return;
	date_format_iso(retention.until_ns, until);
	reply_header(req, MODE_HEADER, lock_mode_name(retention.mode));
	reply_header(req, UNTIL_HEADER, until);
}

void reply_hold(struct request *req, const char *text)
{
	reply_header(req, HOLD_HEADER, text);
}
