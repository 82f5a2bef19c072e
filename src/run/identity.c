#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/str.h"
#include "run/run.h"
#include "workflow/document/secrets.h"
#include "base/banned.h"

/* Adds a field with its length, so that different lists of fields never read the same. */
static void add_field(struct buf *b, const char *field)
{
	if (field)
		buf_printf(b, "%zu:%s,", strlen(field), field);
	else
		buf_add_str(b, "-,");
}

/* Adds a URL without its password or signature: a URL that is signed again is the same place. */
static void add_url(struct buf *b, const char *url)
{
	_cleanup_(buf_release) struct buf masked = BUF_INIT(LIMIT_STRING);

	add_field(b, secret_mask_url(url, &masked) ? buf_str(&masked) : url);
}

int run_identity(const struct workflow *workflow, char id[static RECORDS_ID_SIZE],
	struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_STRING);
	unsigned char digest[32];
	char hex[65];

	add_field(&text, workflow->name.value ? "name" : "digest");
	add_field(&text, workflow->name.value ? workflow->name.value : workflow->digest);
	switch (workflow->output.kind) {
	case WORKFLOW_S3:
		add_field(&text, workflow->output.s3.google ? "gs" : "s3");
		add_field(&text, workflow->output.s3.embedded
					 ? "embedded"
					 : workflow->output.s3.endpoint_url.value);
		add_field(&text, workflow->output.s3.bucket);
		add_field(&text, workflow->output.s3.prefix);
		break;
	case WORKFLOW_HTTP:
		add_field(&text, "http");
		add_url(&text, workflow->output.http_url.value);
		break;
	default:
		add_field(&text, NULL);
		break;
	}
	if (buf_failed(&text))
		return buf_error(&text, "the run's identity", err);
	if (!EVP_Digest(text.data, text.len, digest, NULL, EVP_sha256(), NULL))
		return error_set(err, PENSTOCK_E_INTERNAL, "SHA-256 is not available");
	str_hex(digest, sizeof(digest), hex);
	snprintf(id, RECORDS_ID_SIZE, "%.12s", hex);
	return 0;
}
