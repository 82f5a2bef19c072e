/*
 * The rules by which web pages of other origins may use a bucket (CORS): their document, and the
 * search for the rule of a request.
 *
 *	struct s3_cors cors = {0};
 *	const char *origin;
 *
 *	if (s3_cors_parse(text, len, &cors, err) < 0)
 *		return -err->code;
 *	rule = s3_cors_match(&cors, &(struct s3_cors_request){ "http://a.example", "PUT", NULL },
 *		&origin);
 *	if (rule)
 *		... Access-Control-Allow-Origin: origin ...
 *	s3_cors_release(&cors);
 */
#ifndef S3_BUCKET_CORS_H
#define S3_BUCKET_CORS_H

#include "s3/bucket/refusal.h"
#include "s3/message/messages.h"

struct s3_cors_rule {
	const char *id; /* NULL if the rule has no id */
	struct s3_texts origins, methods; /* not empty */
	struct s3_texts headers, exposed;
	const char *max_age; /* seconds; NULL if the rule has no MaxAgeSeconds */
};

/* CORSConfiguration. */
struct s3_cors {
	struct arena arena;
	struct s3_cors_rule *rules;
	size_t n;
	struct s3_refusal refusal; /* set by a failed parse */
};
int s3_cors_parse(const char *xml, size_t len, struct s3_cors *out, struct penstock_error *err);
void s3_cors_write(struct buf *out, const struct s3_cors *cors);
void s3_cors_release(struct s3_cors *message);

struct s3_cors_request {
	const char *origin;
	const char *method; /* for a preflight: Access-Control-Request-Method */
	const char *headers; /* Access-Control-Request-Headers; NULL if absent */
};
/* Returns the first rule that allows the request, or NULL if there is none. `origin` gets the value
 * of Access-Control-Allow-Origin: "*", or the origin of the request. */
const struct s3_cors_rule *s3_cors_match(
	const struct s3_cors *cors, const struct s3_cors_request *req, const char **origin);
/* Returns true for a method that a rule may have. */
bool s3_cors_method_is_valid(const char *method);
/* Appends the texts with ", " between them. */
void s3_cors_join(struct buf *out, const struct s3_texts *texts);
/* Appends the names of a list of headers, in lower case, with ", " between them. */
void s3_cors_join_names(struct buf *out, const char *list);

#endif
