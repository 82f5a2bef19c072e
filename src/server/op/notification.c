/* The notifications of a bucket. */
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "s3/bucket/notification.h"
#include "server/directory/identity.h"
#include "server/bucket/notifier.h"
#include "server/op/op.h"
#include "server/request/reply.h"
#include "server/request/request.h"

void op_bucket_notification(struct request *req)
{
	_cleanup_(buf_release) struct buf xml = BUF_INIT(LIMIT_XML_BODY);
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	enum store_status status = store_config_get(
		req->server->store, req->bucket, NOTIFICATION_CONFIG, &xml, &err);

	if (status == STORE_NO_SUCH_KEY) {
		s3_notification_write(&xml, &(struct s3_notification){0});
		status = STORE_OK;
	}
	if (reply_unless_stored(req, status, &err))
		reply_xml(req, MHD_HTTP_OK, &xml);
}

/* Gives each rule a name, and checks its destination. Sets the reply and returns false on
 * failure. */
static bool complete_rules(struct request *req, struct s3_notification *rules)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct store_bucket bucket;

	if (!reply_unless_stored(
		    req, store_bucket_get(req->server->store, req->bucket, &bucket, &err), &err))
		return false;
	for (size_t i = 0; i < rules->n; i++) {
		struct s3_notification_rule *rule = &rules->rules[i];

		if (!notifier_has(req->server->notify, rule->queue, bucket.owner))
			return reply_errorf(req, S3_E_INVALID_ARGUMENT,
				"Unable to validate the following destination configurations: the "
				"operator has not named %.200s for the account of this bucket; expected "
				"arn:penstock:sqs::NAME:webhook with a NAME from the file webhooks",
				rule->queue);
		if (!op_name_rule(req, &rule->id))
			return false;
	}
	return true;
}

/* Adds a test event for each destination, unless the sender asks to skip the tests. As with AWS,
 * the configuration is not stored if a test event cannot be added. */
static bool send_tests(struct request *req, const struct s3_notification *rules)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	const char *skip = request_header(req, "x-amz-skip-destination-validation");

	for (size_t i = 0; i < rules->n && !(skip && strcasecmp(skip, "true") == 0); i++)
		if (notifier_test(req->server->notify, rules->rules[i].queue, req->bucket, req->id,
			    &err) < 0)
			return reply_failure(req, &err);
	return true;
}

static void set_rules(struct request *req, struct s3_notification *rules)
{
	_cleanup_(buf_release) struct buf xml = BUF_INIT(LIMIT_S3_RULES);

	if (!complete_rules(req, rules))
		return;
	s3_notification_write(&xml, rules);
	if (send_tests(req, rules) &&
		op_set_rules(req, NOTIFICATION_CONFIG, rules->n ? &xml : NULL))
		reply_empty(req, MHD_HTTP_OK);
}

void op_put_bucket_notification(struct request *req)
{
	const struct buf *document = &req->body.document;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct s3_notification rules = {0};

	if (!op_rules_fit(req))
		return;
	if (s3_notification_parse(buf_str(document), document->len, &rules, &err) == 0)
		set_rules(req, &rules);
	else
		reply_refusal(req, &rules.refusal, &err);
	s3_notification_release(&rules);
}

const struct store_origin *op_origin(struct request *req, const char *event)
{
	const struct identity *sender = req->known ? req->identity : NULL;

	if (!notifier_any(req->server->notify))
		return NULL;
	req->origin = (struct store_origin){.event = event,
		.request_id = req->id,
		.remote = op_remote(req, req->remote),
		.requester = !sender || !sender->owner ? "Anonymous"
			     : sender->is_root	       ? sender->owner->id
						       : sender->arn,
		.owner = op_owner_id(req, req->bucket)};
	return &req->origin;
}
