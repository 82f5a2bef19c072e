/* The first line is used both as a header with grants and as a stored list of grants; the rest is
 * an XML document. */
#include "fuzz.h"

#include "s3/access/acl.h"

static const char *no_name(void *cookie, const char *id)
{
	(void)cookie;
	(void)id;
	return NULL;
}

/* A document that is written from a stored list has all grants of the list. */
static void check_text(const char *text)
{
	_cleanup_(buf_release) struct buf xml = BUF_INIT(LIMIT_XML_BODY);
	struct acl_question all = {.owner = "me", .permission = ACL_FULL_CONTROL};
	struct acl_question known = {.owner = "me", .id = "you", .permission = ACL_READ};
	struct acl_grant grant;
	struct s3_acl acl = {0};
	const char *at = text;
	size_t n = 0;

	while (acl_next(&at, &grant)) {
		require(acl_permission_find(grant.permission));
		require(!grant.id[0] == !!grant.uri);
		n++;
	}
	require(!*at);
	acl_write(&xml, &(struct s3_owner){"me", "Me"}, text, no_name, NULL);
	if (n > 0 && n <= ACL_GRANTS_MAX && xml.len <= LIMIT_XML_BODY &&
		s3_acl_parse(buf_str(&xml), xml.len, &acl, NULL) == 0)
		require(acl.n == n);
	s3_acl_release(&acl);
	require(!acl_allows(text, &all) || acl_is_public(text));
	known.ignore_public = true;
	if (acl_allows(text, &known)) {
		known.ignore_public = false;
		require(acl_allows(text, &known) && strstr(text, ":you"));
	}
}

static void check_grants(const struct s3_acl *acl)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_XML_BODY);
	size_t n = 0;

	require(acl->n <= ACL_GRANTS_MAX);
	for (size_t i = 0; i < acl->n; i++) {
		const struct s3_grant *grant = &acl->grants[i];

		require(acl_permission_find(grant->permission));
		require(!!grant->id + !!grant->uri + !!grant->email == 1);
		if (grant->uri)
			n += acl_add_group(&text, grant->permission, grant->uri);
		else
			acl_add(&text, grant->permission, "you");
	}
	if (!buf_failed(&text))
		check_text(buf_str(&text));
	require(acl_is_private(buf_str(&text), "you") == (n == 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_free_ char *text = fuzz_text(data, size);
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct s3_acl acl = {0};
	char *at = text;
	const char *line = fuzz_line(&at);
	int rc;

	if (!line)
		return 0;
	check_text(line);
	rc = s3_acl_parse_header(line, "READ", &acl, &err);
	require_error(rc, &err);
	if (rc == 0)
		check_grants(&acl);
	s3_acl_release(&acl);
	penstock_error_release(&err);
	if (!at)
		return 0;
	rc = s3_acl_parse(at, strlen(at), &acl, &err);
	require_error(rc, &err);
	if (rc == 0)
		check_grants(&acl);
	s3_acl_release(&acl);
	penstock_error_release(&err);
	return 0;
}
