#include "s3/access/acl.h"

#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/str.h"
#include "s3/ascii.h"
#include "s3/message/table.h"
#include "s3/message/xml.h"
#include "s3/uri.h"

/* --- words ----------------------------------------------------------------------------------- */

static const struct {
	const char *name;
	unsigned bits;
} permissions[] = {
	{"READ", ACL_READ},
	{"WRITE", ACL_WRITE},
	{"READ_ACP", ACL_READ_ACP},
	{"WRITE_ACP", ACL_WRITE_ACP},
	{"FULL_CONTROL", ACL_FULL_CONTROL},
};

unsigned acl_permission_find(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(permissions); i++)
		if (strcmp(permissions[i].name, name) == 0)
			return permissions[i].bits;
	return 0;
}

enum { ALL_USERS, AUTHENTICATED_USERS, LOG_DELIVERY };

static const struct {
	const char *name, *uri;
} groups[] = {
	[ALL_USERS] = {"AllUsers", "http://acs.amazonaws.com/groups/global/AllUsers"},
	[AUTHENTICATED_USERS] = {"AuthenticatedUsers",
		"http://acs.amazonaws.com/groups/global/AuthenticatedUsers"},
	[LOG_DELIVERY] = {"LogDelivery", "http://acs.amazonaws.com/groups/s3/LogDelivery"},
};

/* --- documents ------------------------------------------------------------------------------- */

static const struct field acl_fields[] = {D("/Owner/ID", TEXT, s3_acl, owner),
	F("/Owner/DisplayName", UNUSED), D("/AccessControlList", TEXT, s3_acl, list), END};
static const struct field grant_fields[] = {D("/Grantee/ID", TEXT, s3_grant, id),
	D("/Grantee/URI", TEXT, s3_grant, uri), D("/Grantee/EmailAddress", TEXT, s3_grant, email),
	F("/Grantee/DisplayName", UNUSED), NEEDED("/Permission", TEXT, s3_grant, permission), END};
static const struct table acl_table = {.what = "the AccessControlPolicy",
	.strict = true,
	.roots = {"AccessControlPolicy"},
	.items = {"/AccessControlList/Grant"},
	.fields = acl_fields,
	.item_fields = grant_fields,
	ITEMS(s3_acl, grants, n, ACL_GRANTS_MAX)};

static bool is_complete(const struct s3_grant *grant)
{
	return !!grant->id + !!grant->uri + !!grant->email == 1 &&
	       acl_permission_find(grant->permission);
}

int s3_acl_parse(const char *xml, size_t len, struct s3_acl *out, struct penstock_error *err)
{
	int rc = table_parse(&acl_table, out, xml, len, err);
	bool valid = true;

	if (rc < 0)
		return rc;
	for (size_t i = 0; i < out->n; i++)
		valid = valid && is_complete(&out->grants[i]);
	if (valid && out->owner && out->list)
		return 0;
	valid = valid && out->list;
	s3_acl_release(out);
	return error_set(err, PENSTOCK_E_PROTOCOL, "%s has %s", acl_table.what,
		valid ? "no <Owner> with an <ID>" : "no valid list of grants");
}

RELEASE(acl)

/* --- headers --------------------------------------------------------------------------------- */

static int malformed(struct penstock_error *err)
{
	return error_set(err, PENSTOCK_E_PROTOCOL,
		"expected id=\"...\", uri=\"...\" or "
		"emailAddress=\"...\", with commas between them");
}

/* Gets name="value" or name=value, up to the comma after it. Returns false if the pair is
 * malformed. */
static bool next_pair(const char **at, struct span *name, struct span *value)
{
	const char *p = *at + strspn(*at, " \t");

	name->p = p;
	name->n = strcspn(p, "= \t,\"");
	p += name->n + strspn(p + name->n, " \t");
	if (*p++ != '=')
		return false;
	p += strspn(p, " \t");
	if (*p == '"') {
		value->p = ++p;
		value->n = strcspn(p, "\"");
		p += value->n;
		if (*p++ != '"')
			return false;
	} else {
		value->p = p;
		value->n = strcspn(p, " \t,\"");
		p += value->n;
	}
	p += strspn(p, " \t");
	*at = *p == ',' ? p + 1 : p;
	return value->n > 0 && (!*p || (*p == ',' && p[1]));
}

int s3_acl_parse_header(
	const char *value, const char *permission, struct s3_acl *out, struct penstock_error *err)
{
	if (!out->grants)
		out->grants = arena_alloc(&out->arena, ACL_GRANTS_MAX * sizeof(*out->grants));
	if (!out->grants)
		return error_memory(err);
	do {
		struct s3_grant *grant = &out->grants[out->n];
		struct span key, text;
		const char **to;

		if (out->n == ACL_GRANTS_MAX)
			return error_set(err, PENSTOCK_E_PROTOCOL, "it has more than %d grants",
				ACL_GRANTS_MAX);
		if (!next_pair(&value, &key, &text))
			return malformed(err);
		*grant = (struct s3_grant){.permission = permission};
		to = ascii_equal(key.p, key.n, "id")		 ? &grant->id
		     : ascii_equal(key.p, key.n, "uri")		 ? &grant->uri
		     : ascii_equal(key.p, key.n, "emailaddress") ? &grant->email
								 : NULL;
		if (!to)
			return malformed(err);
		*to = arena_copy(&out->arena, text.p, text.n);
		if (!*to)
			return error_memory(err);
		out->n++;
	} while (*value);
	return 0;
}

/* --- texts ----------------------------------------------------------------------------------- */

void acl_add(struct buf *out, const char *permission, const char *grantee)
{
	buf_printf(out, "%s%s:%s", out->len ? " " : "", permission, grantee);
}

bool acl_add_group(struct buf *out, const char *permission, const char *uri)
{
	for (size_t i = 0; i < ARRAY_SIZE(groups); i++) {
		if (strcmp(groups[i].uri, uri) != 0)
			continue;
		acl_add(out, permission, groups[i].name);
		return true;
	}
	return false;
}

bool acl_canned(struct buf *out, const char *name, const struct acl_owners *owners)
{
	bool is_bucket_owner = strcmp(owners->owner, owners->bucket_owner) == 0;
	static const struct {
		const char *name, *text;
	} of_groups[] = {
		{"private", ""},
		{"public-read", "READ:AllUsers"},
		{"public-read-write", "READ:AllUsers WRITE:AllUsers"},
		{"authenticated-read", "READ:AuthenticatedUsers"},
		{"log-delivery-write", "WRITE:LogDelivery READ_ACP:LogDelivery"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(of_groups); i++) {
		if (strcmp(name, of_groups[i].name) != 0)
			continue;
		buf_add_str(out, of_groups[i].text);
		acl_add(out, "FULL_CONTROL", owners->owner);
		return true;
	}
	if (strcmp(name, "bucket-owner-read") != 0 &&
		strcmp(name, "bucket-owner-full-control") != 0)
		return false;
	acl_add(out, "FULL_CONTROL", owners->owner);
	if (!is_bucket_owner)
		acl_add(out, name[strlen("bucket-owner-")] == 'r' ? "READ" : "FULL_CONTROL",
			owners->bucket_owner);
	return true;
}

static bool read_grant(const char *text, size_t len, struct acl_grant *out)
{
	const char *colon = memchr(text, ':', len);
	size_t n = colon ? (size_t)(colon - text) : 0, rest = colon ? len - n - 1 : 0;

	*out = (struct acl_grant){0};
	if (!n || n >= sizeof(out->permission) || !rest || rest >= sizeof(out->id))
		return false;
	memcpy(out->permission, text, n);
	memcpy(out->id, colon + 1, rest);
	for (size_t i = 0; i < ARRAY_SIZE(groups); i++)
		if (strcmp(groups[i].name, out->id) == 0)
			out->uri = groups[i].uri;
	if (out->uri)
		out->id[0] = '\0';
	return acl_permission_find(out->permission) != 0;
}

bool acl_next(const char **text, struct acl_grant *out)
{
	const char *p = *text;
	bool found = false;

	while (!found && *p) {
		size_t len = strcspn(p, " ");

		found = read_grant(p, len, out);
		p += len + (p[len] == ' ');
	}
	*text = p;
	return found;
}

/* Returns true for the groups of all users and of all accounts. */
static bool is_public_group(const struct acl_grant *grant)
{
	return grant->uri == groups[ALL_USERS].uri || grant->uri == groups[AUTHENTICATED_USERS].uri;
}

bool acl_allows(const char *text, const struct acl_question *q)
{
	bool is_owner = q->id && strcmp(q->id, q->owner) == 0;
	struct acl_grant grant;

	if (is_owner && (!text || (q->permission & ~(ACL_READ_ACP | ACL_WRITE_ACP)) == 0))
		return true;
	while (text && acl_next(&text, &grant)) {
		unsigned bits = acl_permission_find(grant.permission);
		bool fits = !grant.uri ? q->id && strcmp(q->id, grant.id) == 0
				       : is_public_group(&grant) && !q->ignore_public &&
						 (q->id || grant.uri == groups[ALL_USERS].uri);

		if (fits && (bits & q->permission) == q->permission)
			return true;
	}
	return false;
}

bool acl_is_public(const char *text)
{
	struct acl_grant grant;

	while (text && acl_next(&text, &grant))
		if (is_public_group(&grant))
			return true;
	return false;
}

bool acl_is_private(const char *text, const char *owner)
{
	struct acl_grant grant;

	while (text && acl_next(&text, &grant))
		if (strcmp(grant.id, owner) != 0)
			return false;
	return true;
}

bool acl_is_default(const char *text, const char *owner)
{
	static const char all[] = "FULL_CONTROL:";

	return !text || (str_starts(text, all) && strcmp(text + strlen(all), owner) == 0);
}

/* --- the document of a text ------------------------------------------------------------------ */

static void write_grant(
	struct buf *out, const struct acl_grant *grant, const char *id, const char *name)
{
	xml_open(out, "Grant");
	buf_printf(out,
		"<Grantee xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\" "
		"xsi:type=\"%s\">",
		grant->uri ? "Group" : "CanonicalUser");
	xml_element(out, "URI", grant->uri);
	xml_element(out, "ID", id);
	xml_element(out, "DisplayName", name);
	xml_close(out, "Grantee");
	xml_element(out, "Permission", grant->permission);
	xml_close(out, "Grant");
}

void acl_write(struct buf *out, const struct s3_owner *owner, const char *text,
	const char *(*name_of)(void *cookie, const char *id), void *cookie)
{
	struct acl_grant grant = {.permission = "FULL_CONTROL"};

	xml_declaration(out);
	xml_open_root(out, "AccessControlPolicy");
	xml_open(out, "Owner");
	xml_element(out, "ID", owner->id);
	xml_element(out, "DisplayName", owner->display_name);
	xml_close(out, "Owner");
	xml_open(out, "AccessControlList");
	if (!text)
		write_grant(out, &grant, owner->id, owner->display_name);
	while (text && acl_next(&text, &grant))
		write_grant(out, &grant, grant.uri ? NULL : grant.id,
			grant.uri ? NULL : name_of(cookie, grant.id));
	xml_close(out, "AccessControlList");
	xml_close(out, "AccessControlPolicy");
}
