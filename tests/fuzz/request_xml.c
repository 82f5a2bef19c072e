/* The documents that a client sends to the store. */
#include "fuzz.h"

#include "s3/message/access.h"
#include "s3/bucket/cors.h"
#include "s3/bucket/lifecycle.h"
#include "s3/message/encryption.h"
#include "s3/message/lock.h"
#include "s3/bucket/logging.h"
#include "s3/bucket/notification.h"
#include "s3/bucket/replication.h"
#include "s3/message/messages.h"

static void complete(const char *xml, size_t len)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_(buf_release) struct buf again = BUF_INIT(LIMIT_XML_BODY);
	struct s3_complete c = {0}, back = {0};
	int rc = s3_complete_parse(xml, len, &c, &err);

	require_error(rc, &err);
	require((rc == 0) == (c.problem == S3_OK));
	if (rc == 0) {
		require(c.n >= 1 && c.n <= LIMIT_S3_PARTS);
		for (size_t i = 1; i < c.n; i++)
			require(c.parts[i].number > c.parts[i - 1].number);
		s3_complete_write(&again, &c);
		if (!buf_failed(&again)) {
			require(s3_complete_parse(again.data, again.len, &back, NULL) == 0);
			require(back.n == c.n);
			for (size_t i = 0; i < c.n; i++)
				require(strcmp(back.parts[i].etag, c.parts[i].etag) == 0);
		}
	}
	s3_complete_release(&c);
	s3_complete_release(&back);
}

static void multi_delete(const char *xml, size_t len)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_(buf_release) struct buf again = BUF_INIT(LIMIT_XML_BODY);
	struct s3_delete d = {0}, back = {0};
	int rc = s3_delete_parse(xml, len, &d, &err);

	require_error(rc, &err);
	require((rc == 0) == (d.problem == S3_OK));
	if (rc == 0) {
		require(d.n >= 1 && d.n <= LIMIT_S3_LIST_KEYS);
		s3_delete_write(&again, &d);
		if (!buf_failed(&again)) {
			require(s3_delete_parse(again.data, again.len, &back, NULL) == 0);
			require(back.n == d.n && back.quiet == d.quiet);
			for (size_t i = 0; i < d.n; i++)
				require(strcmp(back.items[i].key, d.items[i].key) == 0);
		}
	}
	s3_delete_release(&d);
	s3_delete_release(&back);
}

static void tagging(const char *xml, size_t len)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_(buf_release) struct buf query = BUF_INIT(LIMIT_XML_BODY);
	struct s3_tagging t = {0}, back = {0};
	const char *message;
	int rc = s3_tagging_parse(xml, len, &t, &err);

	require_error(rc, &err);
	if (rc == 0 && s3_tagging_check(&t, S3_OBJECT_TAGS, &message) == S3_OK) {
		require(t.n <= S3_OBJECT_TAGS);
		s3_tagging_write_query(&query, &t);
		require(!buf_failed(&query) && query.len < LIMIT_HTTP_HEADERS);
		require(s3_tagging_parse_query(buf_str(&query), &back, NULL) == 0);
		require(back.n == t.n);
		for (size_t i = 0; i < t.n; i++)
			require(strcmp(back.tags[i].key, t.tags[i].key) == 0 &&
				strcmp(back.tags[i].value, t.tags[i].value) == 0);
	}
	s3_tagging_release(&t);
	s3_tagging_release(&back);
}

static void access_settings(const char *xml, size_t len)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_(buf_release) struct buf again = BUF_INIT(LIMIT_XML_BODY);
	struct s3_access_block block = {0}, back = {0};
	struct s3_ownership ownership = {0};
	int rc = s3_access_block_parse(xml, len, &block, &err);

	require_error(rc, &err);
	if (rc == 0) {
		s3_access_block_write(&again, &block);
		require(s3_access_block_parse(buf_str(&again), again.len, &back, NULL) == 0);
	}
	penstock_error_release(&err);
	rc = s3_ownership_parse(xml, len, &ownership, &err);
	require_error(rc, &err);
	require(rc < 0 || (ownership.n && *ownership.rules[0].ownership));
	s3_access_block_release(&block);
	s3_access_block_release(&back);
	s3_ownership_release(&ownership);
}

static void object_lock(const char *xml, size_t len)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_(buf_release) struct buf again = BUF_INIT(LIMIT_XML_BODY);
	struct s3_object_lock lock = {0}, back = {0};
	struct s3_retention retention = {0};
	struct s3_legal_hold hold = {0};
	int rc = s3_object_lock_parse(xml, len, &lock, &err);

	require_error(rc, &err);
	if (rc == 0) {
		s3_object_lock_write(&again, &lock);
		if (!buf_failed(&again)) {
			require(s3_object_lock_parse(again.data, again.len, &back, NULL) == 0);
			require(!back.mode == !lock.mode);
			require(!lock.mode || strcmp(back.mode, lock.mode) == 0);
		}
	}
	penstock_error_release(&err);
	require_error(s3_retention_parse(xml, len, &retention, &err), &err);
	penstock_error_release(&err);
	require_error(s3_legal_hold_parse(xml, len, &hold, &err), &err);
	s3_object_lock_release(&lock);
	s3_object_lock_release(&back);
	s3_retention_release(&retention);
	s3_legal_hold_release(&hold);
}

static void encryption(const char *xml, size_t len)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_(buf_release) struct buf again = BUF_INIT(LIMIT_XML_BODY);
	struct s3_encryption e = {0}, back = {0};
	int rc = s3_encryption_parse(xml, len, &e, &err);

	require_error(rc, &err);
	if (rc == 0) {
		require(e.n > 0);
		s3_encryption_write(&again, &e);
		if (!buf_failed(&again)) {
			require(s3_encryption_parse(again.data, again.len, &back, NULL) == 0);
			require(back.n == e.n);
			require(!back.rules[0].algorithm == !e.rules[0].algorithm);
		}
	}
	s3_encryption_release(&e);
	s3_encryption_release(&back);
}

static void tagging_query(const char *query)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct s3_tagging t = {0};
	const char *message;
	int rc = s3_tagging_parse_query(query, &t, &err);

	require_error(rc, &err);
	if (rc == 0)
		s3_tagging_check(&t, S3_OBJECT_TAGS, &message);
	s3_tagging_release(&t);
}

static void require_texts(const struct s3_texts *a, const struct s3_texts *b)
{
	require(a->n == b->n);
	for (size_t i = 0; i < a->n; i++)
		require(strcmp(a->items[i], b->items[i]) == 0);
}

/* The first rule allows the origin and the method that it names first. */
static void match(const struct s3_cors *cors)
{
	const struct s3_cors_rule *rule = &cors->rules[0];
	const struct s3_cors_request req = {.origin = rule->origins.items[0],
		.method = rule->methods.items[0],
		.headers = rule->headers.n ? rule->headers.items[0] : NULL};
	const char *origin = NULL;

	/* A comma separates names in a list, so a name with a comma would be two names. */
	if (req.headers && strchr(req.headers, ','))
		return;
	require(s3_cors_match(cors, &req, &origin) == rule);
	require(strcmp(origin, req.origin) == 0);
}

static void rules(const char *xml, size_t len)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_(buf_release) struct buf again = BUF_INIT(LIMIT_XML_BODY);
	struct s3_cors c = {0}, back = {0};
	int rc = s3_cors_parse(xml, len, &c, &err);

	require_error(rc, &err);
	require((rc == 0) == (c.refusal.problem == S3_OK));
	if (rc == 0) {
		require(c.n >= 1 && c.n <= LIMIT_S3_CORS_RULES);
		match(&c);
		s3_cors_write(&again, &c);
		require(s3_cors_parse(again.data, again.len, &back, NULL) == 0);
		require(back.n == c.n);
		for (size_t i = 0; i < c.n; i++) {
			require_texts(&back.rules[i].origins, &c.rules[i].origins);
			require_texts(&back.rules[i].methods, &c.rules[i].methods);
			require_texts(&back.rules[i].headers, &c.rules[i].headers);
			require_texts(&back.rules[i].exposed, &c.rules[i].exposed);
		}
	}
	s3_cors_release(&c);
	s3_cors_release(&back);
}

/* A document that was accepted means the same when it is read again. */
static void lifecycle(const char *xml, size_t len)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_(buf_release) struct buf again = BUF_INIT(LIMIT_XML_BODY);
	_cleanup_(buf_release) struct buf third = BUF_INIT(LIMIT_XML_BODY);
	struct s3_lifecycle rules = {0}, back = {0};
	struct s3_lifecycle_object object = {.size = 7, .tags = "a=b&c="};
	struct s3_lifecycle_end end = {0}, same = {0};
	int rc = s3_lifecycle_parse(xml, len, &rules, &err);

	require_error(rc, &err);
	require((rc == 0) == (rules.refusal.problem == S3_OK));
	if (rc == 0) {
		require(rules.n >= 1 && rules.n <= LIMIT_S3_LIFECYCLE_RULES);
		s3_lifecycle_write(&again, &rules);
		if (!buf_failed(&again)) {
			require(s3_lifecycle_parse(again.data, again.len, &back, NULL) == 0);
			s3_lifecycle_write(&third, &back);
			require(third.len == again.len);
			require(memcmp(third.data, again.data, again.len) == 0);
			object.key = rules.rules[0].prefix ? rules.rules[0].prefix : "k";
			require(s3_lifecycle_object_end(&rules, &object, S3_DAY_NS, &end) ==
				s3_lifecycle_object_end(&back, &object, S3_DAY_NS, &same));
			require(end.at_ns == same.at_ns);
		}
	}
	s3_lifecycle_release(&rules);
	s3_lifecycle_release(&back);
}

static void logging(const char *xml, size_t len)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_(buf_release) struct buf again = BUF_INIT(LIMIT_XML_BODY);
	_cleanup_(buf_release) struct buf key = BUF_INIT(LIMIT_XML_BODY);
	struct s3_logging l = {0}, back = {0};
	int rc = s3_logging_parse(xml, len, &l, &err);

	require_error(rc, &err);
	require((rc == 0) == (l.problem == S3_OK));
	if (rc == 0) {
		s3_logging_write(&again, &l);
		if (!buf_failed(&again)) {
			require(s3_logging_parse(again.data, again.len, &back, NULL) == 0);
			require(!back.enabled == !l.enabled);
			require(s3_logging_by_event(&back) == s3_logging_by_event(&l));
		}
		if (l.enabled) {
			s3_log_key(&key, &l, &(struct s3_log_source){"a", "r", "b"}, 0, "u");
			require(key.len <= LIMIT_S3_KEY);
		}
	}
	s3_logging_release(&l);
	s3_logging_release(&back);
}

static void notification(const char *xml, size_t len)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_(buf_release) struct buf again = BUF_INIT(LIMIT_XML_BODY);
	struct s3_notification n = {0}, back = {0};
	int rc = s3_notification_parse(xml, len, &n, &err);

	require_error(rc, &err);
	require((rc == 0) == (n.refusal.problem == S3_OK));
	if (rc == 0) {
		require(n.n <= LIMIT_S3_NOTIFICATION_RULES);
		s3_notification_write(&again, &n);
		if (!buf_failed(&again)) {
			require(s3_notification_parse(again.data, again.len, &back, NULL) == 0);
			require(back.n == n.n);
		}
		for (size_t i = 0; i < n.n; i++)
			s3_notification_means(&n.rules[i], "ObjectCreated:Put", "k");
	}
	s3_notification_release(&n);
	s3_notification_release(&back);
}

static void replication(const char *xml, size_t len)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_(buf_release) struct buf again = BUF_INIT(LIMIT_XML_BODY);
	_cleanup_(buf_release) struct buf third = BUF_INIT(LIMIT_XML_BODY);
	struct s3_replication r = {0}, back = {0};
	int rc = s3_replication_parse(xml, len, &r, &err);

	require_error(rc, &err);
	require((rc == 0) == (r.refusal.problem == S3_OK));
	for (size_t i = 0; rc == 0 && i < r.n; i++) {
		const struct s3_replication_version version = {
			.key = r.rules[i].prefix ? r.rules[i].prefix : "k", .tags = "a=b&c="};
		const struct s3_replication_rule *rule = s3_replication_choose(
			&r, r.rules[i].bucket, &version);

		require(!rule || (rule->enabled && strcmp(rule->bucket, r.rules[i].bucket) == 0));
		require(rule || !r.rules[i].enabled || r.rules[i].tags.n);
	}
	if (rc == 0) {
		require(r.n >= 1 && r.n <= LIMIT_S3_REPLICATION_RULES);
		s3_replication_write(&again, &r);
	}
	if (rc == 0 && !buf_failed(&again)) {
		require(s3_replication_parse(again.data, again.len, &back, NULL) == 0);
		s3_replication_write(&third, &back);
		require(third.len == again.len);
		require(memcmp(third.data, again.data, again.len) == 0);
	}
	s3_replication_release(&r);
	s3_replication_release(&back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct s3_create_bucket bucket = {0};
	_cleanup_free_ char *xml = malloc(size + 1), *text = malloc(size + 1);

	/* No NUL at the end: a reader must use the length. */
	require(xml && text);
	if (size)
		memcpy(xml, data, size);
	memcpy(text, xml, size);
	text[size] = '\0';
	complete(xml, size);
	multi_delete(xml, size);
	rules(xml, size);
	tagging(xml, size);
	access_settings(xml, size);
	object_lock(xml, size);
	lifecycle(xml, size);
	logging(xml, size);
	notification(xml, size);
	replication(xml, size);
	encryption(xml, size);
	tagging_query(text);
	require_error(s3_create_bucket_parse(xml, size, &bucket, &err), &err);
	s3_create_bucket_release(&bucket);
	return 0;
}
