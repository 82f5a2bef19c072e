/*
 * The error codes of S3: number, name on the wire, HTTP status, default message, and the matching
 * code of penstock.
 *
 * Server: s3_error_info(S3_E_NO_SUCH_KEY) gives the reply. Client: s3_error_find("NoSuchKey") after
 * an error reply, or s3_error_of_status(404) if the reply had no body (HEAD) or a body not from S3.
 */
#ifndef S3_MESSAGE_ERRORS_H
#define S3_MESSAGE_ERRORS_H

#include <stdbool.h>

#include <penstock/error.h>

enum s3_error {
	S3_OK = 0,
	S3_E_ACCESS_DENIED,
	S3_E_AUTHORIZATION_HEADER_MALFORMED,
	S3_E_AUTHORIZATION_QUERY_PARAMETERS,
	S3_E_BAD_DIGEST,
	S3_E_BAD_REQUEST,
	S3_E_BUCKET_ALREADY_EXISTS,
	S3_E_BUCKET_ALREADY_OWNED_BY_YOU,
	S3_E_BUCKET_NOT_EMPTY,
	S3_E_CONDITIONAL_REQUEST_CONFLICT,
	S3_E_ENTITY_TOO_LARGE,
	S3_E_ENTITY_TOO_SMALL,
	S3_E_EXPIRED_TOKEN,
	S3_E_ILLEGAL_LOCATION_CONSTRAINT,
	S3_E_INCOMPLETE_BODY,
	S3_E_INTERNAL_ERROR,
	S3_E_INVALID_ACCESS_KEY_ID,
	S3_E_INVALID_ARGUMENT,
	S3_E_INVALID_BUCKET_NAME,
	S3_E_INVALID_BUCKET_OWNER,
	S3_E_INVALID_BUCKET_STATE,
	S3_E_INVALID_CHUNK_SIZE,
	S3_E_INVALID_DIGEST,
	S3_E_INVALID_OBJECT_STATE,
	S3_E_INVALID_PART,
	S3_E_INVALID_PART_NUMBER,
	S3_E_INVALID_PART_ORDER,
	S3_E_INVALID_POLICY_DOCUMENT,
	S3_E_INVALID_RANGE,
	S3_E_INVALID_REQUEST,
	S3_E_INVALID_STORAGE_CLASS,
	S3_E_INVALID_TAG,
	S3_E_INVALID_TOKEN,
	S3_E_INVALID_URI,
	S3_E_KEY_TOO_LONG,
	S3_E_MALFORMED_ACL,
	S3_E_MALFORMED_POST_REQUEST,
	S3_E_MALFORMED_TRAILER,
	S3_E_MALFORMED_XML,
	S3_E_MAX_MESSAGE_LENGTH_EXCEEDED,
	S3_E_MAX_POST_PRE_DATA_LENGTH_EXCEEDED,
	S3_E_METADATA_TOO_LARGE,
	S3_E_METHOD_NOT_ALLOWED,
	S3_E_MISSING_AUTHENTICATION_TOKEN,
	S3_E_MISSING_CONTENT_LENGTH,
	S3_E_MISSING_REQUEST_BODY,
	S3_E_MISSING_SECURITY_HEADER,
	S3_E_NO_SUCH_BUCKET,
	S3_E_NO_SUCH_KEY,
	S3_E_NO_SUCH_UPLOAD,
	S3_E_NO_SUCH_VERSION,
	S3_E_NOT_IMPLEMENTED,
	S3_E_NOT_MODIFIED, /* 304; the reply never has a body */
	S3_E_OBJECT_LOCKED, /* <Code> is AccessDenied */
	S3_E_OPERATION_ABORTED,
	S3_E_PERMANENT_REDIRECT,
	S3_E_PRECONDITION_FAILED,
	S3_E_QUOTA_EXCEEDED,
	S3_E_REQUEST_EXPIRED, /* <Code> is AccessDenied, <Message> "Request has expired" */
	S3_E_REQUEST_TIMEOUT,
	S3_E_REQUEST_TIME_TOO_SKEWED,
	S3_E_SERVICE_UNAVAILABLE,
	S3_E_SIGNATURE_DOES_NOT_MATCH,
	S3_E_SLOW_DOWN,
	S3_E_STORAGE_FULL,
	S3_E_TOO_MANY_BUCKETS,
	/* <Code> is AccessDenied, <Message> "There were headers present in the request which…" */
	S3_E_UNSIGNED_HEADERS,
	S3_E_XAMZ_CONTENT_CHECKSUM_MISMATCH,
	S3_E_XAMZ_CONTENT_SHA256_MISMATCH,
	S3_ERROR_COUNT_ /* not an error */
};

struct s3_error_info {
	const char *code; /* as in <Code> */
	int status; /* HTTP */
	bool retryable; /* the same request may succeed later, so it may be retried */
	enum penstock_code means;
	const char *message; /* as in <Message> */
};

/* Returns the properties of an error, never NULL; a value out of range gives InternalError. */
const struct s3_error_info *s3_error_info(enum s3_error e);
/*
 * Finds an error by its <Code>. Returns S3_OK if the code is unknown (then use the status). Also
 * knows the names used by other stores (ServerBusy, RequestThrottled, ThrottlingException,
 * XMinioStorageFull, …).
 */
enum s3_error s3_error_find(const char *code);
/* Returns the best guess from a status alone; S3_OK below 300. */
enum s3_error s3_error_of_status(int status);
/* Returns the code for an unexpected status, in S3 or plain HTTP, if the reply has no better
 * information. Never returns PENSTOCK_OK. */
enum penstock_code s3_code_of_status(int status);
bool s3_status_is_retryable(int status);

#endif
