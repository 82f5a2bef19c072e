/* The default encryption of a bucket. */
#include "server/op/op.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "s3/message/encryption.h"
#include "server/request/reply.h"
#include "server/request/request.h"

/* Texts of the configuration in the store; AES256 is the only method. */
#define CONFIG		  "AES256"
#define CONFIG_BUCKET_KEY "AES256 bucket-key"

void op_bucket_encryption(struct request *req)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_XML_BODY);
	_cleanup_(buf_release) struct buf xml = BUF_INIT(LIMIT_XML_BODY);
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct s3_encryption_rule rule = {.algorithm = "AES256"};
	enum store_status status = store_config_get(
		req->server->store, req->bucket, STORE_ENCRYPTION_CONFIG, &text, &err);

	if (status == STORE_NO_SUCH_KEY) {
		reply_code(req, MHD_HTTP_NOT_FOUND,
			"ServerSideEncryptionConfigurationNotFoundError",
			"The server side encryption configuration was not found");
	} else if (reply_unless_stored(req, status, &err)) {
		rule.bucket_key = strcmp(buf_str(&text), CONFIG_BUCKET_KEY) == 0 ? "true" : "false";
		s3_encryption_write(&xml, &(struct s3_encryption){.rules = &rule, .n = 1});
		reply_xml(req, MHD_HTTP_OK, &xml);
	}
}

/* Stores a configuration, or removes it if `text` is NULL; then replies. */
static void set_config(struct request *req, const char *text, unsigned status)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;

	if (reply_unless_stored(req,
		    store_config_set(req->server->store, req->bucket, req->bucket_id,
			    STORE_ENCRYPTION_CONFIG, text, text ? strlen(text) : 0, &err),
		    &err))
		reply_empty(req, status);
}

static void set_rule(struct request *req, const struct s3_encryption_rule *rule)
{
	bool bucket_key = rule->bucket_key && strcmp(rule->bucket_key, "true") == 0;

	if (rule->algorithm && str_starts(rule->algorithm, "aws:kms"))
		reply_errorf(req, S3_E_NOT_IMPLEMENTED,
			"This store does not implement SSE-KMS: SSEAlgorithm must be AES256");
	else if (!rule->algorithm || strcmp(rule->algorithm, "AES256") != 0 ||
		 (rule->bucket_key && !bucket_key && strcmp(rule->bucket_key, "false") != 0))
		reply_error(req, S3_E_MALFORMED_XML);
	else if (rule->key_id)
		reply_errorf(req, S3_E_INVALID_ARGUMENT,
			"a KMSMasterKeyID is not applicable if the default sse algorithm is not "
			"aws:kms or aws:kms:dsse");
	else
		set_config(req, bucket_key ? CONFIG_BUCKET_KEY : CONFIG, MHD_HTTP_OK);
}

void op_put_bucket_encryption(struct request *req)
{
	const struct buf *document = &req->body.document;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct s3_encryption wanted = {0};

	if (s3_encryption_parse(buf_str(document), document->len, &wanted, &err) < 0)
		reply_document_error(req, S3_E_MALFORMED_XML, &err);
	else if (wanted.n != 1)
		reply_error(req, S3_E_MALFORMED_XML);
	else
		set_rule(req, wanted.rules);
	s3_encryption_release(&wanted);
}

void op_delete_bucket_encryption(struct request *req)
{
	set_config(req, NULL, MHD_HTTP_NO_CONTENT);
}
