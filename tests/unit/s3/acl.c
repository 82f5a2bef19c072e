/* Lists of grants: canned lists, headers and documents, and the permissions that they give. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "s3/access/acl.h"

#define ALL   "http://acs.amazonaws.com/groups/global/AllUsers"
#define KNOWN "http://acs.amazonaws.com/groups/global/AuthenticatedUsers"
#define LOG   "http://acs.amazonaws.com/groups/s3/LogDelivery"

static bool allows(const char *text, const char *id, enum acl_permission permission)
{
	return acl_allows(
		text, &(struct acl_question){.owner = "me", .id = id, .permission = permission});
}

/* Each canned list has the grants that AWS documents, groups first. */
static void canned_lists(void **state)
{
	static const struct {
		const char *name, *text;
	} cases[] = {
		{"private", "FULL_CONTROL:me"},
		{"public-read", "READ:AllUsers FULL_CONTROL:me"},
		{"public-read-write", "READ:AllUsers WRITE:AllUsers FULL_CONTROL:me"},
		{"authenticated-read", "READ:AuthenticatedUsers FULL_CONTROL:me"},
		{"log-delivery-write", "WRITE:LogDelivery READ_ACP:LogDelivery FULL_CONTROL:me"},
		{"bucket-owner-read", "FULL_CONTROL:me READ:you"},
		{"bucket-owner-full-control", "FULL_CONTROL:me FULL_CONTROL:you"},
	};
	_cleanup_(buf_release) struct buf none = BUF_INIT(100), own = BUF_INIT(100);
	(void)state;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(buf_release) struct buf text = BUF_INIT(200);

		assert_true(acl_canned(&text, cases[i].name, &(struct acl_owners){"me", "you"}));
		assert_string_equal(buf_str(&text), cases[i].text);
	}
	assert_false(acl_canned(&none, "public", &(struct acl_owners){"me", "you"}));
	assert_true(acl_canned(&own, "bucket-owner-read", &(struct acl_owners){"me", "me"}));
	assert_string_equal(buf_str(&own), "FULL_CONTROL:me");
}

/* A list allows exactly what it grants, and its owner can always manage it. */
static void permissions(void **state)
{
	(void)state;

	assert_true(allows(NULL, "me", ACL_FULL_CONTROL));
	assert_false(allows(NULL, "you", ACL_READ));
	assert_false(allows(NULL, NULL, ACL_READ));
	assert_false(allows("", "me", ACL_READ));
	assert_true(allows("", "me", ACL_WRITE_ACP));
	assert_true(allows("", "me", ACL_READ_ACP));
	assert_false(allows("", "me", ACL_FULL_CONTROL));
	assert_true(allows("READ:AllUsers", NULL, ACL_READ));
	assert_true(allows("READ:AllUsers", "you", ACL_READ));
	assert_false(allows("READ:AllUsers", "you", ACL_WRITE));
	assert_true(allows("READ:AuthenticatedUsers", "you", ACL_READ));
	assert_false(allows("READ:AuthenticatedUsers", NULL, ACL_READ));
	assert_false(allows("WRITE:LogDelivery", "you", ACL_WRITE));
	assert_true(allows("READ:him FULL_CONTROL:you", "you", ACL_WRITE_ACP));
	assert_false(allows("READ:him FULL_CONTROL:you", "he", ACL_READ));
	assert_false(allows("READ_ACP:you", "you", ACL_READ));
	/* An id is never mistaken for a group, and a malformed grant has no effect. */
	assert_false(allows("READ:AllUsersX :you READ: READING:you READ", "you", ACL_READ));
	assert_true(allows("x  READ:you", "you", ACL_READ));
}

/* Public grants are found, and can be ignored without affecting other grants. */
static void public_grants(void **state)
{
	const struct acl_question ignoring = {
		.owner = "me", .id = "you", .permission = ACL_READ, .ignore_public = true};
	(void)state;

	assert_true(acl_is_public("FULL_CONTROL:me READ:AllUsers"));
	assert_true(acl_is_public("READ_ACP:AuthenticatedUsers"));
	assert_false(acl_is_public("WRITE:LogDelivery FULL_CONTROL:me"));
	assert_false(acl_is_public(NULL));
	assert_false(acl_allows("READ:AllUsers READ:AuthenticatedUsers", &ignoring));
	assert_true(acl_allows("READ:AllUsers READ:you", &ignoring));
	assert_true(acl_is_private(NULL, "me"));
	assert_true(acl_is_private("FULL_CONTROL:me READ:me", "me"));
	assert_false(acl_is_private("FULL_CONTROL:me READ:you", "me"));
	assert_false(acl_is_private("WRITE:LogDelivery", "me"));
	assert_true(acl_is_private(ACL_EMPTY, "me"));
	assert_true(acl_is_default("FULL_CONTROL:me", "me"));
	assert_true(acl_is_default(NULL, "me"));
	assert_false(acl_is_default("FULL_CONTROL:me READ:me", "me"));
	assert_false(acl_is_default(ACL_EMPTY, "me"));
}

/* A header names several grantees of one permission, with or without quotes. */
static void headers(void **state)
{
	static const char *const bad[] = {"", "id", "id=", "id=\"\"", "id=\"a", "name=\"a\"",
		"id=a b", "id=a,", "id=\"a\"x", ",id=a"};
	struct s3_acl acl = {0};
	(void)state;

	assert_int_equal(s3_acl_parse_header("id=\"a b\", URI=\"" ALL "\" ,emailAddress=x@y",
				 "READ", &acl, NULL),
		0);
	assert_int_equal(s3_acl_parse_header("id=c", "WRITE_ACP", &acl, NULL), 0);

	assert_int_equal(acl.n, 4);
	assert_string_equal(acl.grants[0].id, "a b");
	assert_string_equal(acl.grants[1].uri, ALL);
	assert_string_equal(acl.grants[2].email, "x@y");
	assert_string_equal(acl.grants[2].permission, "READ");
	assert_string_equal(acl.grants[3].permission, "WRITE_ACP");
	s3_acl_release(&acl);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		assert_int_equal(
			s3_acl_parse_header(bad[i], "READ", &acl, NULL), -PENSTOCK_E_PROTOCOL);
		s3_acl_release(&acl);
	}
}

/* More grants than AWS allows are refused, whether one header or several headers have them. */
static void too_many_grants(void **state)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(2000);
	struct s3_acl acl = {0};
	(void)state;

	for (int i = 0; i < ACL_GRANTS_MAX; i++)
		buf_printf(&text, "%sid=a", i ? "," : "");

	assert_int_equal(s3_acl_parse_header(buf_str(&text), "READ", &acl, NULL), 0);
	assert_int_equal(s3_acl_parse_header("id=a", "WRITE", &acl, NULL), -PENSTOCK_E_PROTOCOL);
	s3_acl_release(&acl);
}

static int parse(const char *grants, struct s3_acl *out)
{
	_cleanup_(buf_release) struct buf xml = BUF_INIT(LIMIT_XML_BODY);

	buf_printf(&xml, "<AccessControlPolicy><Owner><ID>me</ID></Owner>%s</AccessControlPolicy>",
		grants);
	return s3_acl_parse(buf_str(&xml), xml.len, out, NULL);
}

#define LIST(grants)	   "<AccessControlList>" grants "</AccessControlList>"
#define GRANT(who, rights) "<Grant><Grantee>" who "</Grantee>" rights "</Grant>"
#define READ		   "<Permission>READ</Permission>"

/* A document must have an owner and a list; each grant must have one grantee and a known
 * permission. */
static void documents(void **state)
{
	static const char *const bad[] = {"", LIST(GRANT("", READ)), LIST(GRANT("<ID>a</ID>", "")),
		LIST(GRANT("<ID>a</ID><URI>b</URI>", READ)),
		LIST(GRANT("<ID>a</ID>", "<Permission>ALL</Permission>"))};
	static const char ownerless[] =
		"<AccessControlPolicy><AccessControlList/></AccessControlPolicy>";
	struct s3_acl acl = {0};
	(void)state;

	assert_int_equal(parse(LIST(GRANT("<ID>a</ID><DisplayName>x</DisplayName>", READ)
					       GRANT("<EmailAddress>x@y</EmailAddress>", READ)),
				 &acl),
		0);
	assert_int_equal(acl.n, 2);
	assert_string_equal(acl.owner, "me");
	assert_string_equal(acl.grants[0].id, "a");
	assert_string_equal(acl.grants[1].email, "x@y");
	s3_acl_release(&acl);
	assert_int_equal(parse("<AccessControlList/>", &acl), 0);
	assert_int_equal(acl.n, 0);
	s3_acl_release(&acl);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(parse(bad[i], &acl), -PENSTOCK_E_PROTOCOL);
	assert_int_equal(
		s3_acl_parse(ownerless, strlen(ownerless), &acl, NULL), -PENSTOCK_E_PROTOCOL);
}

static const char *name_of(void *cookie, const char *id)
{
	(void)cookie;
	return strcmp(id, "you") == 0 ? "You" : NULL;
}

/* A written document is read back with the same grants. */
static void written_documents(void **state)
{
	const struct s3_owner owner = {"me", "Me"};
	_cleanup_(buf_release) struct buf xml = BUF_INIT(LIMIT_XML_BODY), text = BUF_INIT(200);
	struct s3_acl acl = {0};
	(void)state;

	assert_true(acl_add_group(&text, "WRITE", LOG));
	assert_true(acl_add_group(&text, "READ", KNOWN));
	assert_false(acl_add_group(&text, "READ", "http://acs.amazonaws.com/groups/global/All"));
	acl_add(&text, "READ_ACP", "you");
	acl_write(&xml, &owner, buf_str(&text), name_of, NULL);

	assert_int_equal(s3_acl_parse(buf_str(&xml), xml.len, &acl, NULL), 0);
	assert_non_null(strstr(buf_str(&xml), "<DisplayName>You</DisplayName>"));
	assert_string_equal(acl.owner, "me");
	assert_int_equal(acl.n, 3);
	assert_string_equal(acl.grants[0].uri, LOG);
	assert_string_equal(acl.grants[1].uri, KNOWN);
	assert_string_equal(acl.grants[2].id, "you");
	assert_string_equal(acl.grants[2].permission, "READ_ACP");
	s3_acl_release(&acl);

	buf_release(&xml);
	buf_init(&xml, LIMIT_XML_BODY);
	acl_write(&xml, &owner, NULL, name_of, NULL);
	assert_int_equal(s3_acl_parse(buf_str(&xml), xml.len, &acl, NULL), 0);
	assert_int_equal(acl.n, 1);
	assert_string_equal(acl.grants[0].id, "me");
	assert_string_equal(acl.grants[0].permission, "FULL_CONTROL");
	s3_acl_release(&acl);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(canned_lists),
		cmocka_unit_test(permissions),
		cmocka_unit_test(public_grants),
		cmocka_unit_test(headers),
		cmocka_unit_test(too_many_grants),
		cmocka_unit_test(documents),
		cmocka_unit_test(written_documents),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
