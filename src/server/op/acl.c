/* Lists of grants (ACLs) of buckets and objects. */
#include "server/op/op.h"

#include <string.h>

#include "base/cleanup.h"
#include "s3/access/acl.h"
#include "server/directory/directory.h"
#include "server/access/grants.h"
#include "server/access/owner.h"
#include "server/access/settings.h"
#include "server/request/reply.h"
#include "server/request/request.h"

static const char *name_of(void *cookie, const char *id)
{
	const struct request *req = cookie;
	const struct account_info *account = directory_account_by_id(req->server->directory, id);

	return account ? account->name : NULL;
}

static void reply_list(struct request *req, const struct s3_owner *owner, const char *text)
{
	_cleanup_(buf_release) struct buf xml = BUF_INIT(LIMIT_XML_BODY);

	acl_write(&xml, owner, text, name_of, req);
	reply_xml(req, MHD_HTTP_OK, &xml);
}

/* --- buckets --------------------------------------------------------------------------------- */

void op_bucket_acl(struct request *req)
{
	struct grants_scope scope = GRANTS_SCOPE_INIT;

	if (grants_begin(req, &scope))
		reply_list(req, &scope.bucket_owner, scope.enforced ? NULL : scope.settings->acl);
	grants_end(&scope);
}

void op_put_bucket_acl(struct request *req)
{
	struct grants_scope scope = GRANTS_SCOPE_INIT;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	const char *text;

	if (grants_begin(req, &scope) &&
		grants_of_request(req, &scope, scope.bucket_owner.id, &text) &&
		reply_unless_stored(req,
			store_config_set(req->server->store, req->bucket, req->bucket_id,
				ACL_CONFIG, text, text ? strlen(text) : 0, &err),
			&err))
		reply_empty(req, MHD_HTTP_OK);
	grants_end(&scope);
}

/* --- objects --------------------------------------------------------------------------------- */

void op_object_acl(struct request *req)
{
	struct grants_scope scope = GRANTS_SCOPE_INIT;
	_cleanup_(store_object_unrefp) struct store_object *object = reply_unless_found(
		req, req->bucket, req->key, req->version);

	if (object && grants_begin(req, &scope)) {
		struct s3_owner owner = grants_owner_of(req, &scope, object);

		reply_list(req, &owner,
			scope.enforced ? NULL : store_object_header(object, ACL_HEADER));
		reply_version(req, object);
	}
	grants_end(&scope);
}

/* Returns true if the object still has the owner for whom the list was read. If another account has
 * replaced the object in the meantime, the new object keeps its own list. */
static bool has_owner(struct request *req, const struct store_object *object, const void *arg)
{
	return strcmp(owner_number(object->headers, object->headers_len), arg) == 0 ||
	       reply_error(req, S3_E_ACCESS_DENIED);
}

void op_put_object_acl(struct request *req)
{
	struct grants_scope scope = GRANTS_SCOPE_INIT;
	_cleanup_(store_object_unrefp) struct store_object *object = reply_unless_found(
		req, req->bucket, req->key, req->version);
	const char *text;

	if (object && grants_begin(req, &scope) &&
		grants_of_request(req, &scope, grants_owner_of(req, &scope, object).id, &text)) {
		/* A newer object may have another owner, or grant this sender nothing. */
		request_keep_object(
			req, req->bucket, req->key, req->version, store_object_ref(object));
		op_annotate(req, &(struct op_note){.name = ACL_HEADER,
					 .value = text,
					 .allowed = has_owner,
					 .arg = owner_number(object->headers, object->headers_len),
					 .status = MHD_HTTP_OK});
	}
	grants_end(&scope);
}
