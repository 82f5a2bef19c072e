#include "s3/message/encryption.h"

#include "s3/message/table.h"
#include "s3/message/xml.h"

#define BY_DEFAULT "ApplyServerSideEncryptionByDefault"

/* AWS allows one rule; more are parsed so that the caller can refuse them. */
#define RULES_MAX 4

static const struct field rule_fields[] = {
	D("/" BY_DEFAULT "/SSEAlgorithm", TEXT, s3_encryption_rule, algorithm),
	D("/" BY_DEFAULT "/KMSMasterKeyID", TEXT, s3_encryption_rule, key_id),
	D("/BucketKeyEnabled", TEXT, s3_encryption_rule, bucket_key),
	F("/BlockedEncryptionTypes", REFUSED), END};
static const struct table encryption_table = {.what = "the ServerSideEncryptionConfiguration",
	.strict = true,
	.roots = {"ServerSideEncryptionConfiguration"},
	.items = {"/Rule"},
	.item_fields = rule_fields,
	ITEMS(s3_encryption, rules, n, RULES_MAX),
	.not_empty = true};

DOCUMENT(encryption)

void s3_encryption_write(struct buf *out, const struct s3_encryption *encryption)
{
	xml_declaration(out);
	xml_open_root(out, "ServerSideEncryptionConfiguration");
	for (size_t i = 0; i < encryption->n; i++) {
		const struct s3_encryption_rule *rule = &encryption->rules[i];

		xml_open(out, "Rule");
		xml_open(out, BY_DEFAULT);
		xml_element(out, "SSEAlgorithm", rule->algorithm);
		xml_element(out, "KMSMasterKeyID", rule->key_id);
		xml_close(out, BY_DEFAULT);
		xml_element(out, "BucketKeyEnabled", rule->bucket_key);
		xml_close(out, "Rule");
	}
	xml_close(out, "ServerSideEncryptionConfiguration");
}
