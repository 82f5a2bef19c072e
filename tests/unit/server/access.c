/* Decisions on requests of two accounts and of anonymous senders, by the policy of a bucket. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/log.h"
#include "server/access/access.h"
#include "server/directory/directory.h"
#include "server/directory/documents.h"
#include "server/directory/identity.h"
#include "server/access/settings.h"
#include "server/op/op.h"
#include "server/request/request.h"
#include "server/request/tags.h"
#include "store/header.h"

#define A   "000000000000" /* the first account */
#define B   "222222222222"
#define IAM "arn:aws:iam::"

#define POLICY(effect, principal)                                                                  \
	"{\"Version\":\"2012-10-17\",\"Statement\":{\"Effect\":\"" effect                          \
	"\",\"Principal\":" principal                                                              \
	",\"Action\":\"s3:GetObject\",\"Resource\":\"arn:aws:s3:::b/*\"}}"
#define OWN(effect)                                                                                \
	"{\"Version\":\"2012-10-17\",\"Statement\":{\"Effect\":\"" effect                          \
	"\",\"Action\":\"s3:GetObject\",\"Resource\":\"*\"}}"

struct fixture {
	char root[64];
	struct server server;
	struct account_info accounts[2];
	struct documents documents;
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	snprintf(f->root, sizeof(f->root), "/tmp/server-access-XXXXXX");
	snprintf(f->accounts[0].number, sizeof(f->accounts[0].number), A);
	snprintf(f->accounts[0].id, sizeof(f->accounts[0].id), "%s", ACCOUNT_FIRST_ID);
	snprintf(f->accounts[1].id, sizeof(f->accounts[1].id), "%064d", 2);
	snprintf(f->accounts[1].number, sizeof(f->accounts[1].number), B);
	log_set_level(LOG_QUIET);
	if (!mkdtemp(f->root) || settings_start(&f->server.settings) < 0 ||
		store_open(&f->server.store,
			&(struct store_options){.root = f->root, .relaxed = true}, NULL) < 0 ||
		store_bucket_add(f->server.store,
			&(struct store_new_bucket){.name = "b", .region = "", .owner = A},
			NULL) != STORE_OK ||
		directory_open(&f->server.directory,
			&(struct directory_options){.store = f->server.store,
				.access_key_id = "key",
				.secret_access_key = "secret"},
			NULL) < 0)
		return -1;
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	documents_release(&f->documents);
	directory_close(f->server.directory);
	store_close(f->server.store);
	settings_stop(f->server.settings);
	fs_remove_tree(f->root, NULL);
	free(f);
	return 0;
}

enum sender { ROOT_A, USER_A, ROOT_B, USER_B, NOBODY, SENDERS };
static const char *const arns[SENDERS] = {
	IAM A ":root", IAM A ":user/u", IAM B ":root", IAM B ":user/u", NULL};

static struct identity *sender(struct fixture *f, enum sender who, const char *policy)
{
	struct identity *identity = identity_new();

	assert_non_null(identity);
	identity->arn = arns[who];
	identity->is_anonymous = who == NOBODY;
	identity->is_root = who == ROOT_A || who == ROOT_B;
	if (who != NOBODY) {
		identity->kind = identity->is_root ? IDENTITY_ROOT : IDENTITY_USER;
		identity->owner = &f->accounts[who >= ROOT_B];
		snprintf(identity->account, sizeof(identity->account), "%s",
			identity->owner->number);
	}
	if (policy && identity->kind == IDENTITY_USER)
		assert_true(identity_add_document(identity, &identity->own, policy, &f->documents));
	return identity;
}

static bool may_read(struct fixture *f, enum sender who, const char *own)
{
	struct request *req = calloc(1, sizeof(*req));
	enum access_result result;

	assert_non_null(req);
	req->server = &f->server;
	req->identity = sender(f, who, own);
	req->anonymous = who == NOBODY;
	result = access_of(
		req, "s3:GetObject", &(struct access_subject){.bucket = "b", .key = "k"});
	assert_int_not_equal(result, ACCESS_FAILED);
	identity_unref(req->identity);
	arena_release(&req->arena);
	free(req);
	return result == ACCESS_ALLOWED;
}

static void set(struct fixture *f, const char *name, const char *text)
{
	assert_int_equal(store_config_set(f->server.store, "b", 0, name, text,
				 text ? strlen(text) : 0, NULL),
		STORE_OK);
}

/* One character for each sender, in their order: 'x' may read, 'o' may read if its own policy
 * allows it. */
static const struct {
	const char *policy, *block;
	const char *allowed;
} rows[] = {
	{NULL, NULL, "xo..."},
	{POLICY("Allow", "\"*\""), NULL, "xxxox"},
	{POLICY("Allow", "{\"AWS\":\"*\"}"), NULL, "xxxox"},
	{POLICY("Allow", "{\"AWS\":\"" A "\"}"), NULL, "xo..."},
	{POLICY("Allow", "{\"AWS\":\"" B "\"}"), NULL, "xoxo."},
	{POLICY("Allow", "{\"AWS\":\"" IAM A ":user/u\"}"), NULL, "xx..."},
	{POLICY("Allow", "{\"AWS\":\"" IAM B ":user/u\"}"), NULL, "xo.o."},
	{POLICY("Deny", "\"*\""), NULL, "....."},
	{POLICY("Deny", "{\"AWS\":\"" A "\"}"), NULL, "....."},
	{POLICY("Deny", "{\"AWS\":\"" B "\"}"), NULL, "xo..."},
	{POLICY("Deny", "{\"AWS\":\"" IAM A ":user/u\"}"), NULL, "x...."},
	/* If public access is restricted, a public policy applies only to the bucket's own
	 * account. */
	{POLICY("Allow", "\"*\""), "0001", "xx..."},
	{POLICY("Allow", "{\"AWS\":\"" B "\"}"), "0001", "xoxo."},
	/* A policy that cannot be parsed denies everything. */
	{"{}", NULL, "....."},
};

static void senders_may_do_what_the_table_says(void **state)
{
	struct fixture *f = *state;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		set(f, POLICY_CONFIG, rows[i].policy);
		set(f, BLOCK_CONFIG, rows[i].block);
		for (int who = 0; who < SENDERS; who++) {
			char wanted = rows[i].allowed[who];

			print_message("row %zu, sender %d\n", i, who);
			assert_int_equal(may_read(f, (enum sender)who, NULL), wanted == 'x');
			assert_int_equal(may_read(f, (enum sender)who, OWN("Allow")),
				wanted == 'x' || wanted == 'o');
			if (who == USER_A || who == USER_B)
				assert_false(may_read(f, (enum sender)who, OWN("Deny")));
		}
	}
}

static void put_tagged(struct fixture *f, const char *key, const char *tags)
{
	_cleanup_(buf_release) struct buf headers = BUF_INIT(1000);
	struct store_put put = {.bucket = "b", .key = key, .etag = "e"};

	store_header_add(&headers, TAGS_HEADER, tags);
	put.headers = headers.data;
	put.headers_len = headers.len;
	assert_int_equal(store_body_new(f->server.store, 0, true, &put.body, NULL), 0);
	assert_int_equal(store_body_sync(put.body, NULL), 0);
	assert_int_equal(store_put(f->server.store, &put, NULL), STORE_OK);
	store_body_free(put.body);
}

/* The operation must read the object whose tags were checked, not a newer object with other tags.
 * The keys of a list may share one buffer, so a decision on one key must not be used for
 * another. */
static void the_object_that_a_condition_has_read_is_the_one_that_is_read(void **state)
{
	static const char policy[] =
		"{\"Version\":\"2012-10-17\",\"Statement\":{\"Effect\":\"Allow\","
		"\"Principal\":\"*\",\"Action\":\"s3:GetObject\","
		"\"Resource\":\"arn:aws:s3:::b/*\",\"Condition\":"
		"{\"StringEquals\":{\"s3:ExistingObjectTag/a\":\"b\"}}}}";
	struct fixture *f = *state;
	struct request *req = calloc(1, sizeof(*req));
	const struct access_subject subject = {.bucket = "b", .key = "k"};

	assert_non_null(req);
	put_tagged(f, "k", "a=b");
	set(f, BLOCK_CONFIG, NULL);
	set(f, OWNERSHIP_CONFIG, "BucketOwnerEnforced");
	set(f, POLICY_CONFIG, policy);
	req->server = &f->server;
	req->identity = sender(f, NOBODY, NULL);
	req->anonymous = true;

	assert_true(access_check_subject(req, "s3:GetObject", &subject));
	put_tagged(f, "k", "a=c");
	assert_true(access_check_subject(req, "s3:GetObject", &subject));

	assert_non_null(req->decided.object);
	assert_ptr_equal(req->decided.key, subject.key);
	assert_string_equal(store_object_header(req->decided.object, TAGS_HEADER), "a=b");
	access_forget(req);
	assert_int_equal(access_of(req, "s3:GetObject", &subject), ACCESS_REFUSED);
	store_object_unref(req->decided.object);
	identity_unref(req->identity);
	arena_release(&req->arena);
	free(req);
}

/* An object that did not exist when the policy was evaluated must not be read: its tags were not
 * checked. */
static void an_object_that_a_condition_has_not_found_stays_missing(void **state)
{
	static const char policy[] =
		"{\"Version\":\"2012-10-17\",\"Statement\":[{\"Effect\":\"Allow\","
		"\"Principal\":\"*\",\"Action\":\"s3:GetObject\","
		"\"Resource\":\"arn:aws:s3:::b/*\"},{\"Effect\":\"Deny\","
		"\"Principal\":\"*\",\"Action\":\"s3:GetObject\","
		"\"Resource\":\"arn:aws:s3:::b/*\",\"Condition\":"
		"{\"StringEquals\":{\"s3:ExistingObjectTag/a\":\"b\"}}}]}";
	struct fixture *f = *state;
	struct request *req = calloc(1, sizeof(*req));
	const struct access_subject subject = {.bucket = "b", .key = "new"};
	struct store_object *object = NULL;

	assert_non_null(req);
	set(f, BLOCK_CONFIG, NULL);
	set(f, OWNERSHIP_CONFIG, "BucketOwnerEnforced");
	set(f, POLICY_CONFIG, policy);
	req->server = &f->server;
	req->identity = sender(f, NOBODY, NULL);
	req->anonymous = true;

	assert_true(access_check_subject(req, "s3:GetObject", &subject));
	put_tagged(f, "new", "a=b");
	assert_true(access_check_subject(req, "s3:GetObject", &subject));

	assert_int_equal(request_get_object(req, subject.bucket, subject.key, NULL, &object, NULL),
		STORE_NO_SUCH_KEY);
	assert_null(object);
	access_forget(req);
	assert_int_equal(access_of(req, "s3:GetObject", &subject), ACCESS_DENIED);
	store_object_unref(req->decided.object);
	identity_unref(req->identity);
	arena_release(&req->arena);
	free(req);
}

/* The policy has allowed the deletion of an object, but not that of a newer object with other
 * tags. */
static void an_object_that_has_replaced_the_one_of_the_decision_is_not_deleted(void **state)
{
	static const char policy[] =
		"{\"Version\":\"2012-10-17\",\"Statement\":{\"Effect\":\"Allow\","
		"\"Principal\":\"*\",\"Action\":\"s3:DeleteObject\","
		"\"Resource\":\"arn:aws:s3:::b/*\",\"Condition\":"
		"{\"StringEquals\":{\"s3:ExistingObjectTag/a\":\"b\"}}}}";
	static const unsigned replies[] = {409, 204};
	struct fixture *f = *state;

	set(f, BLOCK_CONFIG, NULL);
	set(f, OWNERSHIP_CONFIG, "BucketOwnerEnforced");
	set(f, POLICY_CONFIG, policy);
	for (size_t i = 0; i < 2; i++) {
		struct request *req = calloc(1, sizeof(*req));
		char key[] = "k";

		assert_non_null(req);
		put_tagged(f, key, "a=b");
		req->server = &f->server;
		req->identity = sender(f, NOBODY, NULL);
		req->anonymous = true;
		req->method = "DELETE";
		snprintf(req->bucket, sizeof(req->bucket), "b");
		req->key = key;

		assert_true(access_check(req, "s3:DeleteObject"));
		if (i == 0)
			put_tagged(f, key, "a=c");
		op_delete_object(req);

		assert_int_equal(req->status, replies[i]);
		MHD_destroy_response(req->response);
		store_object_unref(req->decided.object);
		identity_unref(req->identity);
		arena_release(&req->arena);
		free(req);
	}
}

/* A request is about one bucket, even if another one gets its name between two decisions. */
static void a_decision_is_not_about_a_later_bucket(void **state)
{
	struct fixture *f = *state;
	struct request *req = calloc(1, sizeof(*req));
	const struct access_subject subject = {.bucket = req->bucket};
	const struct store_new_bucket bucket = {.name = "c", .region = "", .owner = A};

	assert_int_equal(store_bucket_add(f->server.store, &bucket, NULL), STORE_OK);
	req->server = &f->server;
	req->identity = sender(f, ROOT_A, NULL);
	req->method = "GET";
	snprintf(req->bucket, sizeof(req->bucket), "c");
	assert_int_equal(access_of(req, "s3:ListBucket", &subject), ACCESS_ALLOWED);
	assert_int_equal(store_bucket_delete(f->server.store, "c", req->bucket_id, NULL), STORE_OK);
	assert_int_equal(access_of(req, "s3:ListBucket", &subject), ACCESS_MISSING);

	assert_int_equal(store_bucket_add(f->server.store, &bucket, NULL), STORE_OK);
	assert_int_equal(access_of(req, "s3:ListBucket", &subject), ACCESS_MISSING);

	assert_int_equal(store_bucket_delete(f->server.store, "c", req->bucket_id, NULL),
		STORE_NO_SUCH_BUCKET);
	identity_unref(req->identity);
	arena_release(&req->arena);
	free(req);
}

static void long_policies_of_many_buckets_do_not_all_stay_in_memory(void **state)
{
	enum { N = 900 };
	struct fixture *f = *state;
	struct access_settings *all[N];
	size_t kept = 0;
	char *policy = NULL;

	assert_true(asprintf(&policy, "{\"Id\":\"%020000d\",\"Statement\":[]}", 0) > 0);
	for (size_t i = 0; i < N; i++) {
		char bucket[16];

		snprintf(bucket, sizeof(bucket), "long-%zu", i);
		assert_int_equal(store_bucket_add(f->server.store,
					 &(struct store_new_bucket){.name = bucket,
						 .region = "",
						 .owner = A,
						 .configs = {{"policy", policy}},
						 .n_configs = 1},
					 NULL),
			STORE_OK);
		assert_int_equal(settings_get(&f->server, bucket, &all[i], NULL), 0);
	}
	free(policy);

	assert_int_equal(atomic_load(&all[N - 1]->refs), 2);
	for (size_t i = 0; i < N; i++) {
		kept += atomic_load(&all[i]->refs) > 1;
		settings_unref(all[i]);
	}
	/* Some entries of the cache were replaced by those of other buckets with the same slot, and
	 * most slots are full. */
	assert_in_range(kept, 300, (8 << 20) / 20000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(senders_may_do_what_the_table_says),
		cmocka_unit_test(the_object_that_a_condition_has_read_is_the_one_that_is_read),
		cmocka_unit_test(an_object_that_a_condition_has_not_found_stays_missing),
		cmocka_unit_test(
			an_object_that_has_replaced_the_one_of_the_decision_is_not_deleted),
		cmocka_unit_test(a_decision_is_not_about_a_later_bucket),
		cmocka_unit_test(long_policies_of_many_buckets_do_not_all_stay_in_memory),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
