/* The replication of a bucket, and the headers of replicas. */
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "s3/bucket/replication.h"
#include "server/bucket/replicator.h"
#include "server/op/op.h"
#include "server/request/reply.h"
#include "server/request/request.h"
#include "store/header.h"

/* --- the configuration ----------------------------------------------------------------------- */

void op_bucket_replication(struct request *req)
{
	_cleanup_(buf_release) struct buf xml = BUF_INIT(LIMIT_XML_BODY);
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	enum store_status status = store_config_get(
		req->server->store, req->bucket, REPLICATION_CONFIG, &xml, &err);

	if (status == STORE_NO_SUCH_KEY)
		reply_code(req, MHD_HTTP_NOT_FOUND, "ReplicationConfigurationNotFoundError",
			"The replication configuration was not found");
	else if (reply_unless_stored(req, status, &err))
		reply_xml(req, MHD_HTTP_OK, &xml);
}

/* Gives each rule a name, and checks its destination. Sets the reply and returns false on
 * failure. */
static bool complete_rules(struct request *req, const char *owner, struct s3_replication *rules)
{
	for (size_t i = 0; i < rules->n; i++) {
		struct s3_replication_rule *rule = &rules->rules[i];

		if (!replicator_has(req->server->replicator, rule->bucket, owner))
			return reply_errorf(req, S3_E_INVALID_REQUEST,
				"Destination bucket must exist: the operator has not named '%.63s' "
				"for the account of this bucket; a destination is arn:aws:s3:::NAME "
				"with a NAME from the file of --replication",
				rule->bucket);
		if (!op_name_rule(req, &rule->id))
			return false;
	}
	return true;
}

static bool is_versioned(struct request *req, struct store_bucket *bucket)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;

	if (!reply_unless_stored(
		    req, store_bucket_get(req->server->store, req->bucket, bucket, &err), &err))
		return false;
	return bucket->versioning == STORE_VERSIONED ||
	       reply_errorf(req, S3_E_INVALID_REQUEST,
		       "Versioning must be 'Enabled' on the bucket to apply a replication "
		       "configuration");
}

static void set_rules(struct request *req, struct s3_replication *rules)
{
	_cleanup_(buf_release) struct buf xml = BUF_INIT(LIMIT_S3_RULES);
	struct store_bucket bucket;

	if (!is_versioned(req, &bucket) || !complete_rules(req, bucket.owner, rules))
		return;
	s3_replication_write(&xml, rules);
	if (op_set_rules(req, REPLICATION_CONFIG, &xml))
		reply_empty(req, MHD_HTTP_OK);
}

void op_put_bucket_replication(struct request *req)
{
	const struct buf *document = &req->body.document;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct s3_replication rules = {0};

	if (!op_rules_fit(req))
		return;
	if (s3_replication_parse(buf_str(document), document->len, &rules, &err) == 0)
		set_rules(req, &rules);
	else
		reply_refusal(req, &rules.refusal, &err);
	s3_replication_release(&rules);
}

void op_delete_bucket_replication(struct request *req)
{
	if (op_set_rules(req, REPLICATION_CONFIG, NULL))
		reply_empty(req, MHD_HTTP_NO_CONTENT);
}

/* --- replicas -------------------------------------------------------------------------------- */

bool op_replica_version(struct request *req, const char **version)
{
	*version = request_header(req, REPLICA_HEADER);
	return !*version || store_replica_is_valid(*version) ||
	       reply_errorf(req, S3_E_INVALID_ARGUMENT, "Invalid version id specified");
}

bool op_replica_add(struct request *req, struct buf *out)
{
	const char *version;

	if (!op_replica_version(req, &version))
		return false;
	if (version)
		store_header_add(out, STORE_REPLICA_HEADER, version);
	return !buf_failed(out) || reply_error(req, S3_E_SLOW_DOWN);
}

/* With several destinations the state is FAILED if one destination has this state, else PENDING if
 * one has this state, else COMPLETED. A replica has the state "REPLICA". */
const char *op_replica_status(const char *before, const char *name, const char *value)
{
	if (strcmp(name, STORE_REPLICA_HEADER) == 0)
		return "REPLICA";
	if (strcmp(value, REPLICATION_REFUSED) == 0)
		value = REPLICATION_FAILED;
	if (!str_starts(name, REPLICATION_HEADER) ||
		(before && (strcmp(value, REPLICATION_COMPLETED) == 0 ||
				   strcmp(before, REPLICATION_FAILED) == 0)))
		return before;
	return value;
}
