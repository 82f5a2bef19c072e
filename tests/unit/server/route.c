/* The operation that a request line selects, or the error with which it is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/fs.h"
#include "server/directory/directory.h"
#include "server/access/settings.h"
#include "server/op/op.h"
#include "server/request/request.h"

static const struct row {
	const char *method, *bucket, *key, *query;
	request_fn fn; /* NULL if the request is refused */
	bool worker; /* the operation waits for the disk, so it does not run on the event loop */
	unsigned status; /* status of the refusal */
} rows[] = {
	{"GET", "", NULL, NULL, op_list_buckets, true},
	{"GET", "b", NULL, NULL, op_list_objects, true},
	{"GET", "b", NULL, "list-type=2", op_list_objects_v2, true},
	{"GET", "b", NULL, "versions", op_list_versions, true},
	{"GET", "b", NULL, "uploads", op_list_uploads, true},
	{"GET", "b", NULL, "location", op_bucket_location, false},
	{"HEAD", "b", NULL, NULL, op_head_bucket, false},
	{"PUT", "b", NULL, NULL, op_create_bucket, true},
	{"DELETE", "b", NULL, NULL, op_delete_bucket, true},
	{"GET", "b", NULL, "cors", op_bucket_cors, true},
	{"PUT", "b", NULL, "cors", op_put_bucket_cors, true},
	{"DELETE", "b", NULL, "cors", op_delete_bucket_cors, true},
	{"GET", "b", NULL, "lifecycle", op_bucket_lifecycle, true},
	{"PUT", "b", NULL, "lifecycle", op_put_bucket_lifecycle, true},
	{"DELETE", "b", NULL, "lifecycle", op_delete_bucket_lifecycle, true},
	{"GET", "b", NULL, "notification", op_bucket_notification, true},
	{"PUT", "b", NULL, "notification", op_put_bucket_notification, true},
	{"GET", "b", NULL, "replication", op_bucket_replication, true},
	{"PUT", "b", NULL, "replication", op_put_bucket_replication, true},
	{"DELETE", "b", NULL, "replication", op_delete_bucket_replication, true},
	{"GET", "b", NULL, "logging", op_bucket_logging, true},
	{"PUT", "b", NULL, "logging", op_put_bucket_logging, true},
	{"GET", "b", NULL, "encryption", op_bucket_encryption, true},
	{"PUT", "b", NULL, "encryption", op_put_bucket_encryption, true},
	{"DELETE", "b", NULL, "encryption", op_delete_bucket_encryption, true},
	{"POST", "b", NULL, "delete", op_delete_objects, true},
	{"GET", "b", "k", NULL, op_get_object, false},
	{"GET", "b", "k", "versionId=null", op_get_object, false},
	{"GET", "b", "k", "versionId=0123456789abcdef", op_get_object, false},
	{"HEAD", "b", "k", "partNumber=1", op_get_object, true},
	{"GET", "b", "k", "tagging", op_tagging, false},
	{"PUT", "b", "k", "tagging&versionId=null", op_put_tagging, true},
	{"DELETE", "b", "k", "tagging", op_delete_tagging, true},
	{"GET", "b", NULL, "tagging", op_bucket_tagging, false},
	{"PUT", "b", NULL, "tagging", op_put_bucket_tagging, true},
	{"DELETE", "b", NULL, "tagging", op_delete_bucket_tagging, true},
	{"GET", "b", NULL, "object-lock", op_object_lock, false},
	{"PUT", "b", NULL, "object-lock", op_put_object_lock, true},
	{"GET", "b", "k", "retention", op_retention, false},
	{"PUT", "b", "k", "retention", op_put_retention, true},
	{"GET", "b", "k", "legal-hold", op_legal_hold, false},
	{"PUT", "b", "k", "legal-hold", op_put_legal_hold, true},
	{"GET", "b", "k", "attributes", op_object_attributes, true},
	{"DELETE", "b", "k", NULL, op_delete_object, true},
	{"POST", "b", "k", "uploads", op_create_upload, true},
	{"GET", "b", "k", "uploadId=u", op_list_parts, true},
	{"POST", "b", "k", "uploadId=u", op_complete_upload, true},
	{"DELETE", "b", "k", "uploadId=u", op_abort_upload, true},
	/* A parameter that is not a subresource has no effect. Of several subresources, the first
	 * one in the order of the table counts. */
	{"GET", "b", "k", "response-expires=x", op_get_object, false},
	{"GET", "b", "k", "partNumber=1&uploadId=u", op_list_parts, true},
	{"GET", "b", "k", "versionId=3", NULL, false, 400},
	{"DELETE", "b", "k", "versionId=%00", NULL, false, 400},
	{"PUT", "b", "k", "versionId=null", NULL, false, 400},
	{"POST", "b", "k", "uploads&versionId=null", NULL, false, 400},
	{"DELETE", "b", "k", "retention", NULL, false, 501},
	{"GET", "b", "k", "torrent", NULL, false, 501},
	{"PUT", "b", "k", "annotation&annotationName=a", NULL, false, 501},
	{"DELETE", "b", "k", "annotation&annotationName=a", NULL, false, 501},
	{"PUT", "b", NULL, "abac", NULL, false, 501},
	{"PUT", "b", NULL, "metadataInventoryTable", NULL, false, 501},
	{"PUT", "b", NULL, "metadataJournalTable", NULL, false, 501},
	{"PUT", "b", NULL, "metadataAnnotationTable", NULL, false, 501},
	{"PUT", "b", NULL, "policy", op_put_bucket_policy, true},
	{"GET", "b", NULL, "policy", op_bucket_policy, false},
	{"DELETE", "b", NULL, "policy", op_delete_bucket_policy, true},
	{"GET", "b", NULL, "policyStatus", op_bucket_policy_status, false},
	{"GET", "b", NULL, "publicAccessBlock", op_access_block, false},
	{"PUT", "b", NULL, "publicAccessBlock", op_put_access_block, true},
	{"DELETE", "b", NULL, "publicAccessBlock", op_delete_access_block, true},
	{"GET", "b", NULL, "ownershipControls", op_ownership, false},
	{"PUT", "b", NULL, "ownershipControls", op_put_ownership, true},
	{"DELETE", "b", NULL, "ownershipControls", op_delete_ownership, true},
	{"GET", "b", NULL, "acl", op_bucket_acl, false},
	{"PUT", "b", NULL, "acl", op_put_bucket_acl, true},
	{"GET", "b", "k", "acl", op_object_acl, false},
	{"PUT", "b", "k", "acl&versionId=null", op_put_object_acl, true},
	{"PUT", "b", NULL, "website", NULL, false, 501},
	{"PUT", "b", "k", "annotation&annotationName=a", NULL, false, 501},
	{"DELETE", "b", "k", "annotation=&annotationName=a", NULL, false, 501},
	{"GET", "b", NULL, "abac", NULL, false, 501},
	{"PUT", "b", NULL, "metadataInventoryTable", NULL, false, 501},
	/* An unknown parameter without a value may be a new subresource. */
	{"PUT", "b", "k", "unknown", NULL, false, 501},
	{"PUT", "b", "k", "tagging&unknown=", NULL, false, 501},
	{"DELETE", "b", "k", "unknown=", NULL, false, 501},
	{"DELETE", "b", NULL, "x-id=DeleteBucket&unknown", NULL, false, 501},
	{"POST", "b", NULL, "delete&x", NULL, false, 501},
	{"PUT", "b", "k", "x-amz-copy-source=b%2Fk", op_copy_object, true},
	{"PUT", "b", "k", "X-Amz-Write-Offset-Bytes=0", NULL, false, 501},
	{"GET", "b", "k", "unknown", op_get_object, false},
	{"DELETE", "b", "k", "x-id=DeleteObject&unknown=1", op_delete_object, true},
	{"DELETE", "b", "k", "X-Amz-Security-Token=&response-expires", op_delete_object, true},
	{"POST", "b", NULL, NULL, NULL, false, 412}, /* the body is not a form */
	{"POST", "b", "k", NULL, NULL, false, 405},
	{"PATCH", "b", "k", NULL, NULL, false, 405},
	{"PUT", "", NULL, NULL, NULL, false, 405},
};

/* Policies are looked up before an operation begins. */
static int setup(void **state)
{
	struct server *server = calloc(1, sizeof(*server));
	char *root = strdup("/tmp/server-route-XXXXXX");

	if (!server || !root || !mkdtemp(root) || settings_start(&server->settings) < 0 ||
		store_open(&server->store, &(struct store_options){.root = root, .relaxed = true},
			NULL) < 0 ||
		directory_open(&server->directory,
			&(struct directory_options){.store = server->store,
				.access_key_id = "key",
				.secret_access_key = "secret"},
			NULL) < 0 ||
		store_bucket_add(server->store,
			&(struct store_new_bucket){.name = "b", .region = ""}, NULL) != STORE_OK)
		return -1;
	server->url = root;
	*state = server;
	return 0;
}

static int teardown(void **state)
{
	struct server *server = *state;

	directory_close(server->directory);
	store_close(server->store);
	settings_stop(server->settings);
	fs_remove_tree(server->url, NULL);
	free(server->url);
	free(server);
	return 0;
}

/* Makes a request of the first account's root user. */
static struct request *request_of(struct server *server)
{
	struct request *req = calloc(1, sizeof(*req));
	enum s3_error problem;

	assert_non_null(req);
	req->server = server;
	req->identity = directory_identify(server->directory, "key", NULL, &problem);
	assert_non_null(req->identity);
	return req;
}

static void request_end(struct request *req)
{
	body_release(req);
	arena_release(&req->arena);
	identity_unref(req->identity);
	free(req);
}

static void a_request_line_selects_its_operation(void **state)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct row *r = &rows[i];
		char path[] = "/b/k", key[] = "k";
		struct request *req = request_of(*state);

		req->path = path;
		req->method = r->method;
		req->query = r->query;
		req->key = r->key ? key : NULL;
		snprintf(req->bucket, sizeof(req->bucket), "%s", r->bucket);
		request_route(req);
		print_message("%s %s/%s?%s\n", r->method, r->bucket, r->key ? r->key : "",
			r->query ? r->query : "");
		if (!r->fn) {
			assert_non_null(req->response);
			assert_int_equal(req->status, r->status);
			MHD_destroy_response(req->response);
		} else {
			assert_null(req->response);
			assert_ptr_equal(r->worker ? req->work : req->finish, r->fn);
			assert_true(r->worker ? req->finish != r->fn : !req->work);
		}
		request_end(req);
	}
}

/* A missing configuration has an error of its own, which only a query of the store can find. */
static void a_missing_configuration_is_no_unknown_request(void **state)
{
	static const char *const queries[] = {"website", "encryption"};

	for (size_t i = 0; i < sizeof(queries) / sizeof(queries[0]); i++) {
		char path[] = "/b";
		struct request *req = request_of(*state);

		req->path = path;
		req->method = "GET";
		req->query = queries[i];
		req->bucket[0] = 'b';
		request_route(req);
		assert_null(req->response);
		assert_non_null(req->finish);
		request_end(req);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_request_line_selects_its_operation),
		cmocka_unit_test(a_missing_configuration_is_no_unknown_request),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
