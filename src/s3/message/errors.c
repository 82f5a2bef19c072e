#include "s3/message/errors.h"

#include <stddef.h>
#include <string.h>

#define INVALID	     PENSTOCK_E_INVALID
#define PERMISSION   PENSTOCK_E_PERMISSION
#define UNAVAILABLE  PENSTOCK_E_UNAVAILABLE
#define PRECONDITION PENSTOCK_E_PRECONDITION
#define NOT_FOUND    PENSTOCK_E_NOT_FOUND
#define EXISTS	     PENSTOCK_E_EXISTS
#define CORRUPT	     PENSTOCK_E_CORRUPT
#define LIMIT	     PENSTOCK_E_LIMIT
#define NO_SPACE     PENSTOCK_E_NO_SPACE
#define UNSUPPORTED  PENSTOCK_E_UNSUPPORTED
#define PROTOCOL     PENSTOCK_E_PROTOCOL

/* clang-format off */
static const struct s3_error_info infos[S3_ERROR_COUNT_] = {
	[S3_OK] = {"", 200, false, PENSTOCK_OK, ""},
	[S3_E_ACCESS_DENIED] = {"AccessDenied", 403, false, PERMISSION, "Access Denied"},
	[S3_E_AUTHORIZATION_HEADER_MALFORMED] = {"AuthorizationHeaderMalformed", 400, false, PERMISSION,
		"The authorization header that you provided is not valid"},
	[S3_E_AUTHORIZATION_QUERY_PARAMETERS] = {"AuthorizationQueryParametersError", 400, false, PERMISSION,
		"The authorization query parameters that you provided are not valid"},
	[S3_E_BAD_DIGEST] = {"BadDigest", 400, false, CORRUPT,
		"The Content-MD5 or checksum value that you specified did not match what the server received"},
	[S3_E_BAD_REQUEST] = {"BadRequest", 400, false, INVALID, "Bad request"},
	[S3_E_BUCKET_ALREADY_EXISTS] = {"BucketAlreadyExists", 409, false, EXISTS,
		"The requested bucket name is not available"},
	[S3_E_BUCKET_ALREADY_OWNED_BY_YOU] = {"BucketAlreadyOwnedByYou", 409, false, EXISTS,
		"The bucket that you tried to create already exists, and you own it"},
	[S3_E_BUCKET_NOT_EMPTY] = {"BucketNotEmpty", 409, false, EXISTS,
		"The bucket that you tried to delete is not empty"},
	[S3_E_CONDITIONAL_REQUEST_CONFLICT] = {"ConditionalRequestConflict", 409, true, PRECONDITION,
		"A conflicting operation occurred during the request; try again"},
	[S3_E_ENTITY_TOO_LARGE] = {"EntityTooLarge", 400, false, LIMIT,
		"Your proposed upload exceeds the maximum allowed object size"},
	[S3_E_ENTITY_TOO_SMALL] = {"EntityTooSmall", 400, false, INVALID,
		"Your proposed upload is smaller than the minimum allowed size"},
	[S3_E_EXPIRED_TOKEN] = {"ExpiredToken", 400, false, PERMISSION, "The provided token has expired"},
	[S3_E_ILLEGAL_LOCATION_CONSTRAINT] = {"IllegalLocationConstraintException", 400, false, INVALID,
		"The specified location constraint is not valid for this endpoint"},
	[S3_E_INCOMPLETE_BODY] = {"IncompleteBody", 400, true, CORRUPT,
		"You did not provide the number of bytes specified by the Content-Length HTTP header"},
	[S3_E_INTERNAL_ERROR] = {"InternalError", 500, true, UNAVAILABLE,
		"An internal error occurred. Try again"},
	[S3_E_INVALID_ACCESS_KEY_ID] = {"InvalidAccessKeyId", 403, false, PERMISSION,
		"The access key ID that you provided does not exist in our records"},
	[S3_E_INVALID_ARGUMENT] = {"InvalidArgument", 400, false, INVALID, "Invalid argument"},
	[S3_E_INVALID_BUCKET_NAME] = {"InvalidBucketName", 400, false, INVALID,
		"The specified bucket is not valid"},
	[S3_E_INVALID_BUCKET_OWNER] = {"InvalidBucketOwnerAWSAccountID", 400, false, INVALID,
		"The value of the expected bucket owner parameter must be an AWS account ID"},
	[S3_E_INVALID_BUCKET_STATE] = {"InvalidBucketState", 409, false, INVALID,
		"The request is not valid for the current state of the bucket"},
	[S3_E_INVALID_CHUNK_SIZE] = {"InvalidChunkSizeError", 400, false, PROTOCOL,
		"The chunk size is not valid"},
	[S3_E_INVALID_DIGEST] = {"InvalidDigest", 400, false, INVALID,
		"The Content-MD5 or checksum value that you specified is not valid"},
	[S3_E_INVALID_OBJECT_STATE] = {"InvalidObjectState", 403, false, PERMISSION,
		"The operation is not valid for the current state of the object"},
	[S3_E_INVALID_PART] = {"InvalidPart", 400, false, CORRUPT,
		"One or more of the specified parts could not be found. The part might not have been uploaded, "
		"or the specified entity tag might not have matched the part's entity tag"},
	[S3_E_INVALID_PART_NUMBER] = {"InvalidPartNumber", 416, false, INVALID,
		"The requested part number is not satisfiable"},
	[S3_E_INVALID_PART_ORDER] = {"InvalidPartOrder", 400, false, INVALID,
		"The list of parts was not in ascending order. The parts list must be specified in order by "
		"part number"},
	[S3_E_INVALID_POLICY_DOCUMENT] = {"InvalidPolicyDocument", 400, false, INVALID,
		"The policy document of the form is not valid"},
	[S3_E_INVALID_RANGE] = {"InvalidRange", 416, false, INVALID,
		"The requested range is not satisfiable"},
	[S3_E_INVALID_REQUEST] = {"InvalidRequest", 400, false, INVALID, "Invalid request"},
	[S3_E_INVALID_STORAGE_CLASS] = {"InvalidStorageClass", 400, false, INVALID,
		"The storage class you specified is not valid"},
	[S3_E_INVALID_TAG] = {"InvalidTag", 400, false, INVALID,
		"The tag provided was not a valid tag"},
	[S3_E_INVALID_TOKEN] = {"InvalidToken", 400, false, PERMISSION,
		"The provided token is malformed or otherwise not valid"},
	[S3_E_INVALID_URI] = {"InvalidURI", 400, false, INVALID,
		"The specified URI couldn't be parsed"},
	[S3_E_KEY_TOO_LONG] = {"KeyTooLongError", 400, false, LIMIT, "Your key is too long"},
	[S3_E_MALFORMED_ACL] = {"MalformedACLError", 400, false, INVALID,
		"The XML that you provided was not well-formed or did not validate against our published schema"},
	[S3_E_MALFORMED_POST_REQUEST] = {"MalformedPOSTRequest", 400, false, PROTOCOL,
		"The body of your POST request is not well-formed multipart/form-data"},
	[S3_E_MALFORMED_TRAILER] = {"MalformedTrailerError", 400, false, PROTOCOL,
		"The request contained trailing data that was not well-formed"},
	[S3_E_MALFORMED_XML] = {"MalformedXML", 400, false, INVALID,
		"The XML that you provided was not well-formed or did not validate against our published schema"},
	[S3_E_MAX_MESSAGE_LENGTH_EXCEEDED] = {"MaxMessageLengthExceeded", 400, false, LIMIT,
		"Your request was too large"},
	[S3_E_MAX_POST_PRE_DATA_LENGTH_EXCEEDED] = {"MaxPostPreDataLengthExceeded", 400, false, LIMIT,
		"Your POST request fields preceding the upload file were too large"},
	[S3_E_METADATA_TOO_LARGE] = {"MetadataTooLarge", 400, false, LIMIT,
		"Your metadata headers exceed the maximum allowed metadata size"},
	[S3_E_METHOD_NOT_ALLOWED] = {"MethodNotAllowed", 405, false, UNSUPPORTED,
		"The specified method is not allowed against this resource"},
	[S3_E_MISSING_AUTHENTICATION_TOKEN] = {"MissingAuthenticationToken", 403, false, PERMISSION,
		"The request was not signed"},
	[S3_E_MISSING_CONTENT_LENGTH] = {"MissingContentLength", 411, false, PROTOCOL,
		"You must provide the Content-Length HTTP header"},
	[S3_E_MISSING_REQUEST_BODY] = {"MissingRequestBodyError", 400, false, INVALID,
		"Request body is empty"},
	[S3_E_MISSING_SECURITY_HEADER] = {"MissingSecurityHeader", 400, false, INVALID,
		"Your request is missing a required header"},
	[S3_E_NO_SUCH_BUCKET] = {"NoSuchBucket", 404, false, NOT_FOUND,
		"The specified bucket does not exist"},
	[S3_E_NO_SUCH_KEY] = {"NoSuchKey", 404, false, NOT_FOUND, "The specified key does not exist"},
	[S3_E_NO_SUCH_UPLOAD] = {"NoSuchUpload", 404, false, NOT_FOUND,
		"The specified multipart upload does not exist. The upload ID might not be valid, or the "
		"multipart upload might have been aborted or completed"},
	[S3_E_NO_SUCH_VERSION] = {"NoSuchVersion", 404, false, NOT_FOUND,
		"The version ID specified in the request does not match an existing version"},
	[S3_E_NOT_IMPLEMENTED] = {"NotImplemented", 501, false, UNSUPPORTED,
		"A header or query you provided requests a function that is not implemented"},
	[S3_E_NOT_MODIFIED] = {"NotModified", 304, false, PRECONDITION, "Not Modified"},
	[S3_E_OBJECT_LOCKED] = {"AccessDenied", 403, false, PERMISSION,
		"Access Denied because object protected by object lock."},
	[S3_E_OPERATION_ABORTED] = {"OperationAborted", 409, true, UNAVAILABLE,
		"A conflicting conditional operation is currently in progress against this resource. Try again"},
	[S3_E_PERMANENT_REDIRECT] = {"PermanentRedirect", 301, false, INVALID,
		"The bucket that you are attempting to access must be addressed using the specified endpoint"},
	[S3_E_PRECONDITION_FAILED] = {"PreconditionFailed", 412, false, PRECONDITION,
		"At least one of the preconditions that you specified did not hold"},
	[S3_E_QUOTA_EXCEEDED] = {"QuotaExceeded", 403, false, NO_SPACE, "The quota is exceeded"},
	[S3_E_REQUEST_EXPIRED] = {"AccessDenied", 403, false, PERMISSION, "Request has expired"},
	[S3_E_REQUEST_TIMEOUT] = {"RequestTimeout", 400, true, UNAVAILABLE,
		"Your socket connection to the server was not read from or written to within the timeout period"},
	[S3_E_REQUEST_TIME_TOO_SKEWED] = {"RequestTimeTooSkewed", 403, false, PERMISSION,
		"The difference between the request time and the server's time is too large"},
	[S3_E_SERVICE_UNAVAILABLE] = {"ServiceUnavailable", 503, true, UNAVAILABLE,
		"Service is unable to handle request"},
	[S3_E_SIGNATURE_DOES_NOT_MATCH] = {"SignatureDoesNotMatch", 403, false, PERMISSION,
		"The request signature that the server calculated does not match the signature that you "
		"provided. Check your secret access key and signing method"},
	[S3_E_SLOW_DOWN] = {"SlowDown", 503, true, UNAVAILABLE, "Please reduce your request rate"},
	[S3_E_STORAGE_FULL] = {"StorageFull", 507, false, NO_SPACE, "The disk of the store is full"},
	[S3_E_TOO_MANY_BUCKETS] = {"TooManyBuckets", 400, false, LIMIT,
		"You have attempted to create more buckets than are allowed"},
	[S3_E_UNSIGNED_HEADERS] = {"AccessDenied", 403, false, PERMISSION,
		"There were headers present in the request which were not signed"},
	[S3_E_XAMZ_CONTENT_CHECKSUM_MISMATCH] = {"XAmzContentChecksumMismatch", 400, false, CORRUPT,
		"The provided checksum does not match what was computed"},
	[S3_E_XAMZ_CONTENT_SHA256_MISMATCH] = {"XAmzContentSHA256Mismatch", 400, false, CORRUPT,
		"The provided 'x-amz-content-sha256' header does not match what was computed"},
};
/* clang-format on */

/* Names of the same conditions in other stores, gateways and older protocols. */
static const struct {
	const char *code;
	enum s3_error error;
} aliases[] = {
	{"SlowDownRead", S3_E_SLOW_DOWN},
	{"SlowDownWrite", S3_E_SLOW_DOWN},
	{"ServerBusy", S3_E_SLOW_DOWN},
	{"RequestThrottled", S3_E_SLOW_DOWN},
	{"RequestLimitExceeded", S3_E_SLOW_DOWN},
	{"Throttling", S3_E_SLOW_DOWN},
	{"ThrottlingException", S3_E_SLOW_DOWN},
	{"ThrottledException", S3_E_SLOW_DOWN},
	{"TooManyRequests", S3_E_SLOW_DOWN},
	{"BandwidthLimitExceeded", S3_E_SLOW_DOWN},
	{"PriorRequestNotComplete", S3_E_SLOW_DOWN},
	{"RequestTimeoutException", S3_E_REQUEST_TIMEOUT},
	{"InternalFailure", S3_E_INTERNAL_ERROR},
	{"InternalServerError", S3_E_INTERNAL_ERROR},
	{"XMinioServerNotInitialized", S3_E_SERVICE_UNAVAILABLE},
	{"XMinioStorageFull", S3_E_STORAGE_FULL},
	{"XMinioAdminBucketQuotaExceeded", S3_E_QUOTA_EXCEEDED},
	{"XMinioInvalidObjectName", S3_E_INVALID_REQUEST},
	{"InvalidSecurity", S3_E_ACCESS_DENIED},
	{"AllAccessDisabled", S3_E_ACCESS_DENIED},
	{"AccountProblem", S3_E_ACCESS_DENIED},
	{"Forbidden", S3_E_ACCESS_DENIED},
	{"TokenRefreshRequired", S3_E_EXPIRED_TOKEN},
	{"InvalidClientTokenId", S3_E_INVALID_ACCESS_KEY_ID},
	{"NotFound", S3_E_NO_SUCH_KEY},
	{"KeyTooLong", S3_E_KEY_TOO_LONG},
	{"Redirect", S3_E_PERMANENT_REDIRECT},
	{"TemporaryRedirect", S3_E_PERMANENT_REDIRECT},
	{"InvalidLocationConstraint", S3_E_ILLEGAL_LOCATION_CONSTRAINT},
	{"ContentSHA256Mismatch", S3_E_XAMZ_CONTENT_SHA256_MISMATCH},
};

const struct s3_error_info *s3_error_info(enum s3_error e)
{
	if ((unsigned)e >= S3_ERROR_COUNT_)
		e = S3_E_INTERNAL_ERROR;
	return &infos[e];
}

enum s3_error s3_error_find(const char *code)
{
	for (int e = S3_OK + 1; e < S3_ERROR_COUNT_; e++) {
		if (strcmp(code, infos[e].code) == 0)
			return (enum s3_error)e;
	}
	for (size_t i = 0; i < sizeof(aliases) / sizeof(*aliases); i++) {
		if (strcmp(code, aliases[i].code) == 0)
			return aliases[i].error;
	}
	return S3_OK;
}

enum s3_error s3_error_of_status(int status)
{
	static const struct {
		int status;
		enum s3_error error;
	} known[] = {{304, S3_E_NOT_MODIFIED}, {401, S3_E_ACCESS_DENIED}, {403, S3_E_ACCESS_DENIED},
		{404, S3_E_NO_SUCH_KEY}, {405, S3_E_METHOD_NOT_ALLOWED},
		{408, S3_E_REQUEST_TIMEOUT}, {409, S3_E_OPERATION_ABORTED},
		{411, S3_E_MISSING_CONTENT_LENGTH}, {412, S3_E_PRECONDITION_FAILED},
		{413, S3_E_ENTITY_TOO_LARGE}, {416, S3_E_INVALID_RANGE}, {429, S3_E_SLOW_DOWN},
		{501, S3_E_NOT_IMPLEMENTED}, {503, S3_E_SERVICE_UNAVAILABLE},
		{507, S3_E_STORAGE_FULL}};

	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
		if (known[i].status == status)
			return known[i].error;
	}
	if (status < 300)
		return S3_OK;
	if (status < 400)
		return S3_E_PERMANENT_REDIRECT;
	return status < 500 ? S3_E_INVALID_REQUEST : S3_E_INTERNAL_ERROR;
}

enum penstock_code s3_code_of_status(int status)
{
	if (status == 410)
		return PENSTOCK_E_NOT_FOUND;
	if (status == 407)
		return PENSTOCK_E_PERMISSION;
	/* Even a success status can be unexpected. */
	if (status < 300)
		return PENSTOCK_E_PROTOCOL;
	return infos[s3_error_of_status(status)].means;
}

bool s3_status_is_retryable(int status)
{
	return status == 408 || status == 425 || status == 429 || status == 500 || status == 502 ||
	       status == 503 || status == 504 || (status >= 520 && status <= 529);
}
