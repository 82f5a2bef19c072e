/*
 * The documents of Object Lock, as requests and replies. Texts are as in the document, NULL if
 * missing; the caller checks them.
 *
 *	struct s3_retention retention = {0};
 *
 *	if (s3_retention_parse(body.data, body.len, &retention, err) < 0)
 *		return -err->code;
 *	... retention.mode ...
 *	s3_retention_release(&retention);
 *
 * Parsers and writers are as in s3/message/messages.h.
 */
#ifndef S3_MESSAGE_LOCK_H
#define S3_MESSAGE_LOCK_H

#include <stddef.h>

#include "base/buf.h"
#include "s3/message/arena.h"

struct penstock_error;

/* ObjectLockConfiguration. */
struct s3_object_lock {
	struct arena arena;
	const char *enabled;
	const char *rule, *retention; /* not NULL if there is such an element; not written */
	const char *mode, *days, *years;
};
int s3_object_lock_parse(
	const char *xml, size_t len, struct s3_object_lock *out, struct penstock_error *err);
/* Writes a rule if there is a mode. */
void s3_object_lock_write(struct buf *out, const struct s3_object_lock *lock);
void s3_object_lock_release(struct s3_object_lock *message);

/* Retention. */
struct s3_retention {
	struct arena arena;
	const char *mode, *until;
};
int s3_retention_parse(
	const char *xml, size_t len, struct s3_retention *out, struct penstock_error *err);
void s3_retention_write(struct buf *out, const struct s3_retention *retention);
void s3_retention_release(struct s3_retention *message);

/* LegalHold. */
struct s3_legal_hold {
	struct arena arena;
	const char *status;
};
int s3_legal_hold_parse(
	const char *xml, size_t len, struct s3_legal_hold *out, struct penstock_error *err);
void s3_legal_hold_write(struct buf *out, const struct s3_legal_hold *hold);
void s3_legal_hold_release(struct s3_legal_hold *message);

#endif
