/* A request keeps the object that its access decision has read, and counts the bytes that the
 * request holds in memory. */
#include "base/cleanup.h"
#include "server/directory/identity.h"
#include "server/request/request.h"
#include "server/server.h"

enum store_status request_get_object(struct request *req, const char *bucket, const char *key,
	const char *version, struct store_object **out, struct penstock_error *err)
{
	struct store *store = req->server->store;
	enum store_status status;

	*out = request_take_object(req, bucket, key, version);
	if (*out)
		return STORE_OK;
	status = version ? store_version_get(store, bucket, key, version, out, err)
			 : store_object_get(store, bucket, key, out, err);
	if (status != STORE_OK || (*out)->marker || !req->decided.missing ||
		!request_has_decided(req, bucket, key, version))
		return status;
	store_object_unref(take_pointer(*out));
	return version ? STORE_NO_SUCH_VERSION : STORE_NO_SUCH_KEY;
}

void request_bind(const struct request *req, const char *key, const char *version,
	struct store_condition *condition)
{
	/* The decision on another object could be a denial only if a policy depends on the tags of
	 * the object. */
	condition->has_decided = req->decided.tagged &&
				 request_has_decided(req, req->bucket, key, version) &&
				 (req->decided.object || req->decided.missing);
	condition->decided = condition->has_decided ? req->decided.object : NULL;
}

void request_bind_ref(const struct request *req, const char *key, const char *version,
	struct store_condition *condition)
{
	struct store_object *outline = NULL;

	request_bind(req, key, version, condition);
	if (condition->decided)
		outline = store_object_outline(condition->decided);
	if (condition->decided && !outline)
		store_object_ref(condition->decided);
	else
		condition->decided = outline;
}

bool request_hold(struct request *req, size_t bytes)
{
	if (!req->holder)
		req->holder = quota_share(&req->server->held, req->identity->account);
	if (!req->holder || !quota_take(req->holder, bytes))
		return false;
	req->held += bytes;
	return true;
}

void request_let_go(struct request *req)
{
	if (req->holder)
		quota_give_back(req->holder, req->held);
	req->held = 0;
	req->holder = NULL;
}
