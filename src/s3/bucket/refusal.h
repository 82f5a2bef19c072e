/*
 * The refusal of a document that is well-formed XML but breaks a rule of S3.
 *
 *	struct s3_refusal refusal = {0};
 *
 *	if (days < 1)
 *		return s3_refuse(&refusal, S3_E_INVALID_ARGUMENT, "%d days are too few", days);
 */
#ifndef S3_BUCKET_REFUSAL_H
#define S3_BUCKET_REFUSAL_H

#include <stdbool.h>

#include "s3/message/errors.h"

struct penstock_error;

/* The error for the reply, and its text, "" for the default text. Set by a failed parse. */
struct s3_refusal {
	enum s3_error problem;
	char message[160];
};

/* Sets the error for the reply. Always returns false. */
bool s3_refuse(struct s3_refusal *refusal, enum s3_error problem, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Sets S3_E_MALFORMED_XML with the default text. Always returns false. */
bool s3_refuse_malformed(struct s3_refusal *refusal);
/* Records the failure `rc` of table_parse(), and returns `rc`. */
int s3_refuse_table(struct s3_refusal *refusal, int rc);
/* Raises the error of a refused document; `what` is the name of the document. */
int s3_refusal_error(
	const struct s3_refusal *refusal, const char *what, struct penstock_error *err);

#endif
