#include "s3/bucket/refusal.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/error.h"
#include "base/str.h"

bool s3_refuse(struct s3_refusal *refusal, enum s3_error problem, const char *fmt, ...)
{
	va_list ap;

	refusal->problem = problem;
	va_start(ap, fmt);
	vsnprintf(refusal->message, sizeof(refusal->message), fmt, ap);
	va_end(ap);
	str_make_utf8(refusal->message);
	return false;
}

bool s3_refuse_malformed(struct s3_refusal *refusal)
{
	return s3_refuse(refusal, S3_E_MALFORMED_XML, "%s", "");
}

int s3_refuse_table(struct s3_refusal *refusal, int rc)
{
	refusal->problem = rc == -PENSTOCK_E_MEMORY	   ? S3_E_SLOW_DOWN
			   : rc == -PENSTOCK_E_UNSUPPORTED ? S3_E_NOT_IMPLEMENTED
							   : S3_E_MALFORMED_XML;
	return rc;
}

int s3_refusal_error(const struct s3_refusal *refusal, const char *what, struct penstock_error *err)
{
	if (refusal->problem == S3_E_SLOW_DOWN)
		return error_memory(err);
	return error_set(err, PENSTOCK_E_PROTOCOL, "%s has an invalid rule", what);
}
