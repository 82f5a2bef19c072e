/* Errors about one member of an archive. */
#ifndef ARCHIVE_MEMBER_H
#define ARCHIVE_MEMBER_H

#include <penstock/error.h>

/* Raises "member NAME: text", with unprintable bytes of the name as \xNN. */
int member_error(struct penstock_error *err, enum penstock_code code, const char *name,
	const char *fmt, ...) __attribute__((format(printf, 4, 5)));

#endif
