#include "s3/message/access.h"

#include "s3/message/table.h"
#include "s3/message/xml.h"

#define RULES_MAX 16 /* more than one, so that the caller can refuse a second rule */

static const struct field access_block_fields[] = {
	D("/BlockPublicAcls", TEXT, s3_access_block, block_acls),
	D("/IgnorePublicAcls", TEXT, s3_access_block, ignore_acls),
	D("/BlockPublicPolicy", TEXT, s3_access_block, block_policy),
	D("/RestrictPublicBuckets", TEXT, s3_access_block, restrict_buckets), END};
static const struct table access_block_table = {.what = "the PublicAccessBlockConfiguration",
	.strict = true,
	.roots = {"PublicAccessBlockConfiguration"},
	.fields = access_block_fields,
	.size = sizeof(struct s3_access_block)};

DOCUMENT(access_block)

void s3_access_block_write(struct buf *out, const struct s3_access_block *block)
{
	xml_declaration(out);
	xml_open_root(out, "PublicAccessBlockConfiguration");
	xml_element(out, "BlockPublicAcls", block->block_acls);
	xml_element(out, "IgnorePublicAcls", block->ignore_acls);
	xml_element(out, "BlockPublicPolicy", block->block_policy);
	xml_element(out, "RestrictPublicBuckets", block->restrict_buckets);
	xml_close(out, "PublicAccessBlockConfiguration");
}

static const struct field ownership_fields[] = {
	NEEDED("/ObjectOwnership", TEXT, s3_ownership_rule, ownership), END};
static const struct table ownership_table = {.what = "the OwnershipControls",
	.strict = true,
	.roots = {"OwnershipControls"},
	.items = {"/Rule"},
	.item_fields = ownership_fields,
	.not_empty = true,
	ITEMS(s3_ownership, rules, n, RULES_MAX)};

DOCUMENT(ownership)

void s3_ownership_write(struct buf *out, const char *ownership)
{
	xml_declaration(out);
	xml_open_root(out, "OwnershipControls");
	xml_open(out, "Rule");
	xml_element(out, "ObjectOwnership", ownership);
	xml_close(out, "Rule");
	xml_close(out, "OwnershipControls");
}

void s3_policy_status_write(struct buf *out, bool is_public)
{
	xml_declaration(out);
	xml_open_root(out, "PolicyStatus");
	xml_element_bool(out, "IsPublic", is_public);
	xml_close(out, "PolicyStatus");
}
