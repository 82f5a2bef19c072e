#include "s3/bucket/replication.h"

#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/str.h"
#include "s3/bucket/filter.h"
#include "s3/message/table.h"
#include "s3/message/xml.h"

#define ID_MAX 255 /* characters, as AWS documents it */
#define ARN    "arn:aws:s3:::"

/* ---- the document ---- */

#define R(path, type, member) D(path, type, s3_replication_rule, member)
static const struct field replication_fields[] = {D("/Role", TEXT, s3_replication, role), END};
static const struct field rule_fields[] = {R("/ID", TEXT, id), R("/Status", TEXT, raw.status),
	R("/Priority", TEXT, raw.priority), R("/Prefix", TEXT, raw.prefix),
	R("/Filter", TEXT, raw.filter), R("/Filter/Prefix", TEXTS, raw.prefixes),
	R("/Filter/Tag", TEXTS, raw.tags), R("/Filter/Tag/Key", TEXTS, raw.keys),
	R("/Filter/Tag/Value", TEXTS, raw.values), R("/Filter/And", TEXT, raw.and),
	R("/Filter/And/Prefix", TEXTS, raw.prefixes), R("/Filter/And/Tag", TEXTS, raw.tags),
	R("/Filter/And/Tag/Key", TEXTS, raw.keys), R("/Filter/And/Tag/Value", TEXTS, raw.values),
	R("/DeleteMarkerReplication", TEXT, raw.markers),
	R("/DeleteMarkerReplication/Status", TEXT, raw.marker_status),
	R("/Destination/Bucket", TEXT, raw.destination),
	R("/Destination/StorageClass", TEXT, class), F("/Destination/Account", REFUSED),
	F("/Destination/AccessControlTranslation", REFUSED),
	F("/Destination/EncryptionConfiguration", REFUSED),
	R("/Destination/ReplicationTime/Status", TEXT, raw.time),
	F("/Destination/ReplicationTime/Time/Minutes", UNUSED),
	R("/Destination/Metrics/Status", TEXT, raw.metrics),
	F("/Destination/Metrics/EventThreshold/Minutes", UNUSED), F("/Filter/Not", REFUSED),
	F("/Filter/And/Not", REFUSED), R("/ExistingObjectReplication/Status", TEXT, raw.existing),
	R("/SourceSelectionCriteria", TEXT, raw.selection),
	R("/SourceSelectionCriteria/SseKmsEncryptedObjects/Status", TEXT, raw.kms),
	R("/SourceSelectionCriteria/ReplicaModifications/Status", TEXT, raw.modifications), END};
static const struct table replication_table = {.what = "the ReplicationConfiguration",
	.strict = true,
	.roots = {"ReplicationConfiguration"},
	.items = {"/Rule"},
	.fields = replication_fields,
	.item_fields = rule_fields,
	.not_empty = true,
	ITEMS(s3_replication, rules, n, LIMIT_S3_REPLICATION_RULES)};

/* Reads "Enabled" or "Disabled". */
static bool read_status(struct s3_replication *r, const char *text, bool *enabled)
{
	*enabled = text && strcmp(text, "Enabled") == 0;
	return *enabled || (text && strcmp(text, "Disabled") == 0) ||
	       s3_refuse_malformed(&r->refusal);
}

/* Refuses a feature that the store does not have, unless it is disabled. */
static bool refuse_feature(struct s3_replication *r, const char *status, const char *name)
{
	bool enabled;

	if (!status)
		return true;
	return read_status(r, status, &enabled) &&
	       (!enabled || s3_refuse(&r->refusal, S3_E_NOT_IMPLEMENTED,
				    "This store does not implement %s of replication", name));
}

static bool refuse_features(struct s3_replication *r, const struct s3_replication_rule *rule)
{
	return refuse_feature(r, rule->raw.time, "ReplicationTime") &&
	       refuse_feature(r, rule->raw.metrics, "Metrics") &&
	       refuse_feature(r, rule->raw.existing, "ExistingObjectReplication") &&
	       refuse_feature(r, rule->raw.kms, "SseKmsEncryptedObjects") &&
	       refuse_feature(r, rule->raw.modifications, "ReplicaModifications");
}

static bool read_filter(struct s3_replication *r, struct s3_replication_rule *rule)
{
	const struct s3_texts *keys = &rule->raw.keys, *prefixes = &rule->raw.prefixes;
	enum s3_error problem;
	const char *message;

	rule->old_form = rule->raw.prefix != NULL;
	rule->is_and = rule->raw.and != NULL;
	if (!rule->raw.prefix == !rule->raw.filter || prefixes->n > 1 ||
		keys->n != rule->raw.values.n || keys->n != rule->raw.tags.n)
		return s3_refuse_malformed(&r->refusal);
	if (!rule->is_and && prefixes->n + keys->n > 1)
		return s3_refuse_malformed(&r->refusal);
	rule->prefix = prefixes->n ? prefixes->items[0] : rule->raw.prefix;
	if (rule->prefix && strlen(rule->prefix) > LIMIT_S3_KEY)
		return s3_refuse(&r->refusal, S3_E_INVALID_REQUEST,
			"The maximum size of a prefix is %d.", LIMIT_S3_KEY);
	problem = s3_filter_tags(&r->arena, keys, &rule->raw.values, &rule->tags, &message);
	return problem == S3_OK || s3_refuse(&r->refusal, problem, "%s", message);
}

/* The new form of a rule, which has a Filter, also has a priority and a setting for delete
 * markers. */
static bool read_new_form(struct s3_replication *r, struct s3_replication_rule *rule)
{
	static const char missing[] =
		"%s must be specified for this version of Cross Region Replication configuration "
		"schema. Please refer to S3 Developer Guide for more information.";
	uint64_t priority;

	if (rule->old_form) {
		rule->markers = true;
		return (!rule->raw.priority && !rule->raw.markers) ||
		       s3_refuse(&r->refusal, S3_E_INVALID_REQUEST,
			       "Priority and DeleteMarkerReplication can only be specified in a "
			       "rule with a Filter");
	}
	if (!rule->raw.priority)
		return s3_refuse(&r->refusal, S3_E_INVALID_REQUEST, missing, "Priority");
	if (!rule->raw.markers)
		return s3_refuse(
			&r->refusal, S3_E_INVALID_REQUEST, missing, "DeleteMarkerReplication");
	if (!str_to_u64(rule->raw.priority, 0, INT32_MAX, &priority))
		return s3_refuse_malformed(&r->refusal);
	rule->priority = (unsigned)priority;
	if (!read_status(r, rule->raw.marker_status, &rule->markers))
		return false;
	return !rule->markers || !rule->tags.n ||
	       s3_refuse(&r->refusal, S3_E_INVALID_REQUEST,
		       "Delete marker replication is not supported if any Tag filter is specified. "
		       "Please refer to S3 Developer Guide for more information.");
}

static bool read_destination(struct s3_replication *r, struct s3_replication_rule *rule)
{
	const char *arn = rule->raw.destination;

	if (!arn || (rule->class &&
			    (!*rule->class ||
				    strspn(rule->class, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789") !=
					    strlen(rule->class))))
		return s3_refuse_malformed(&r->refusal);
	if (!str_starts(arn, ARN) || !arn[strlen(ARN)])
		return s3_refuse(&r->refusal, S3_E_INVALID_ARGUMENT,
			"Invalid bucket ARN; expected " ARN "BUCKET");
	rule->bucket = arn + strlen(ARN);
	return true;
}

static bool read_rule(struct s3_replication *r, struct s3_replication_rule *rule)
{
	if (!read_status(r, rule->raw.status, &rule->enabled))
		return false;
	if (rule->id && strlen(rule->id) > ID_MAX)
		return s3_refuse(&r->refusal, S3_E_INVALID_ARGUMENT,
			"ID length should not exceed allowed limit of %d", ID_MAX);
	if (rule->id && !*rule->id)
		rule->id = NULL;
	return read_filter(r, rule) && read_new_form(r, rule) && read_destination(r, rule) &&
	       refuse_features(r, rule);
}

static bool check_all(struct s3_replication *r)
{
	if (!r->role || !*r->role)
		return s3_refuse_malformed(&r->refusal);
	for (size_t i = 0; i < r->n; i++)
		if (!read_rule(r, &r->rules[i]))
			return false;
	for (size_t i = 0; i < r->n; i++) {
		struct s3_replication_rule *a = &r->rules[i];

		a->first = true;
		for (size_t k = 0; k < i; k++) {
			const struct s3_replication_rule *b = &r->rules[k];

			a->first = a->first && strcmp(a->bucket, b->bucket) != 0;
			if (a->id && b->id && strcmp(a->id, b->id) == 0)
				return s3_refuse(&r->refusal, S3_E_INVALID_ARGUMENT,
					"Rule ID must be unique. Found same ID for more than one "
					"rule");
			if (a->old_form != b->old_form)
				return s3_refuse(&r->refusal, S3_E_INVALID_REQUEST,
					"Either all rules must have a Prefix, or all must have a Filter");
			if (!a->old_form && a->priority == b->priority)
				return s3_refuse(&r->refusal, S3_E_INVALID_REQUEST,
					"Found duplicate priority %u: the Priority must be unique "
					"for each rule",
					a->priority);
		}
	}
	return true;
}

void s3_replication_release(struct s3_replication *message)
{
	arena_release(&message->arena);
	*message = (struct s3_replication){0};
}

int s3_replication_parse(
	const char *xml, size_t len, struct s3_replication *out, struct penstock_error *err)
{
	int rc = table_parse(&replication_table, out, xml, len, err);

	if (rc < 0)
		return s3_refuse_table(&out->refusal, rc);
	if (check_all(out))
		return 0;
	arena_release(&out->arena);
	out->rules = NULL;
	out->n = 0;
	return s3_refusal_error(&out->refusal, replication_table.what, err);
}

static void write_filter(struct buf *out, const struct s3_replication_rule *rule)
{
	xml_open(out, "Filter");
	if (rule->is_and)
		xml_open(out, "And");
	xml_element(out, "Prefix", rule->prefix);
	s3_filter_write_tags(out, &rule->raw.keys, &rule->raw.values);
	if (rule->is_and)
		xml_close(out, "And");
	xml_close(out, "Filter");
}

static void write_status(struct buf *out, const char *name, const char *status)
{
	if (!status)
		return;
	xml_open(out, name);
	xml_element(out, "Status", status);
	xml_close(out, name);
}

/* Features that the store lacks are accepted if disabled, and written as they were read. */
static void write_rule(struct buf *out, const struct s3_replication_rule *rule)
{
	xml_open(out, "Rule");
	xml_element(out, "ID", rule->id);
	if (rule->old_form) {
		xml_element(out, "Prefix", rule->prefix);
	} else {
		xml_element_u64(out, "Priority", rule->priority);
		write_filter(out, rule);
	}
	xml_element(out, "Status", rule->enabled ? "Enabled" : "Disabled");
	if (rule->raw.selection) {
		xml_open(out, "SourceSelectionCriteria");
		write_status(out, "SseKmsEncryptedObjects", rule->raw.kms);
		write_status(out, "ReplicaModifications", rule->raw.modifications);
		xml_close(out, "SourceSelectionCriteria");
	}
	write_status(out, "ExistingObjectReplication", rule->raw.existing);
	if (!rule->old_form)
		write_status(
			out, "DeleteMarkerReplication", rule->markers ? "Enabled" : "Disabled");
	xml_open(out, "Destination");
	xml_element(out, "Bucket", rule->raw.destination);
	xml_element(out, "StorageClass", rule->class);
	write_status(out, "ReplicationTime", rule->raw.time);
	write_status(out, "Metrics", rule->raw.metrics);
	xml_close(out, "Destination");
	xml_close(out, "Rule");
}

void s3_replication_write(struct buf *out, const struct s3_replication *replication)
{
	xml_declaration(out);
	xml_open_root(out, "ReplicationConfiguration");
	xml_element(out, "Role", replication->role);
	for (size_t i = 0; i < replication->n; i++)
		write_rule(out, &replication->rules[i]);
	xml_close(out, "ReplicationConfiguration");
}

/* ---- decisions ---- */

static bool means(
	const struct s3_replication_rule *rule, const struct s3_replication_version *version)
{
	return rule->enabled && (!rule->prefix || str_starts(version->key, rule->prefix)) &&
	       s3_filter_has(&rule->tags, version->tags);
}

const struct s3_replication_rule *s3_replication_choose(const struct s3_replication *replication,
	const char *bucket, const struct s3_replication_version *version)
{
	const struct s3_replication_rule *found = NULL;

	for (size_t i = 0; i < replication->n; i++) {
		const struct s3_replication_rule *rule = &replication->rules[i];

		if (strcmp(rule->bucket, bucket) == 0 && means(rule, version) &&
			(!found || rule->priority > found->priority))
			found = rule;
	}
	return found && version->marker && !found->markers ? NULL : found;
}
