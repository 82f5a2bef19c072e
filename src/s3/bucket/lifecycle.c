#include "s3/bucket/lifecycle.h"

#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/str.h"
#include "s3/ascii.h"
#include "s3/bucket/filter.h"
#include "s3/date.h"
#include "s3/message/table.h"
#include "s3/message/xml.h"

#define ID_MAX	 255 /* characters, as AWS documents it */
#define KEEP_MAX 100 /* versions, as AWS documents it */

/* ---- the document ---- */

#define R(path, type, member) D(path, type, s3_lifecycle_rule, member)
static const struct field rule_fields[] = {R("/ID", TEXT, id), R("/Status", TEXT, raw.status),
	R("/Prefix", TEXT, raw.prefix), R("/Filter", TEXT, raw.filter),
	R("/Filter/Prefix", TEXTS, raw.prefixes), R("/Filter/Tag", TEXTS, raw.tags),
	R("/Filter/Tag/Key", TEXTS, raw.keys), R("/Filter/Tag/Value", TEXTS, raw.values),
	R("/Filter/ObjectSizeGreaterThan", TEXTS, raw.above),
	R("/Filter/ObjectSizeLessThan", TEXTS, raw.below), R("/Filter/And", TEXT, raw.and),
	R("/Filter/And/Prefix", TEXTS, raw.prefixes), R("/Filter/And/Tag", TEXTS, raw.tags),
	R("/Filter/And/Tag/Key", TEXTS, raw.keys), R("/Filter/And/Tag/Value", TEXTS, raw.values),
	R("/Filter/And/ObjectSizeGreaterThan", TEXTS, raw.above),
	R("/Filter/And/ObjectSizeLessThan", TEXTS, raw.below),
	R("/Expiration", TEXT, raw.expiration), R("/Expiration/Days", TEXT, raw.days),
	R("/Expiration/Date", TEXT, raw.date),
	R("/Expiration/ExpiredObjectDeleteMarker", TEXT, raw.marker),
	R("/NoncurrentVersionExpiration", TEXT, raw.noncurrent),
	R("/NoncurrentVersionExpiration/NoncurrentDays", TEXT, raw.noncurrent_days),
	R("/NoncurrentVersionExpiration/NewerNoncurrentVersions", TEXT, raw.keep),
	R("/AbortIncompleteMultipartUpload", TEXT, raw.upload),
	R("/AbortIncompleteMultipartUpload/DaysAfterInitiation", TEXT, raw.upload_days),
	R("/Transition", TEXTS, raw.transition), R("/Transition/Days", TEXTS, raw.transition_days),
	R("/Transition/Date", TEXTS, raw.transition_date),
	R("/NoncurrentVersionTransition", TEXTS, raw.transition),
	R("/NoncurrentVersionTransition/NoncurrentDays", TEXTS, raw.transition_days),
	F("/Transition/StorageClass", UNUSED),
	F("/NoncurrentVersionTransition/StorageClass", UNUSED),
	F("/NoncurrentVersionTransition/NewerNoncurrentVersions", UNUSED), END};
static const struct table lifecycle_table = {.what = "the LifecycleConfiguration",
	.strict = true,
	.roots = {"LifecycleConfiguration"},
	.items = {"/Rule"},
	.item_fields = rule_fields,
	.not_empty = true,
	ITEMS(s3_lifecycle, rules, n, LIMIT_S3_LIFECYCLE_RULES)};

/* Reads a number of days that is at least 1. */
static bool read_days(
	struct s3_lifecycle *l, const char *text, const char *name, const char *of, unsigned *out)
{
	int64_t n = 0;

	if (!str_to_i64(text, INT64_MIN, INT64_MAX, &n))
		return s3_refuse_malformed(&l->refusal);
	if (n < 1 || n > INT32_MAX)
		return s3_refuse(&l->refusal, S3_E_INVALID_ARGUMENT,
			"'%s' for %s action must be a positive integer", name, of);
	*out = (unsigned)n;
	return true;
}

static bool read_date(struct s3_lifecycle *l, const char *text, int64_t *out)
{
	char whole[40];

	if (strlen(text) == 10) /* "2017-09-27" */
		snprintf(whole, sizeof(whole), "%sT00:00:00Z", text);
	else
		snprintf(whole, sizeof(whole), "%s", text);
	if (!date_parse_iso_end(whole, out))
		return s3_refuse_malformed(&l->refusal);
	return *out == INT64_MAX || *out % S3_DAY_NS == 0 ||
	       s3_refuse(&l->refusal, S3_E_INVALID_ARGUMENT, "'Date' must be at midnight GMT");
}

/* ---- conditions ---- */

static bool check_prefix(struct s3_lifecycle *l, const char *prefix)
{
	return !prefix || strlen(prefix) <= LIMIT_S3_KEY ||
	       s3_refuse(&l->refusal, S3_E_INVALID_REQUEST, "The maximum size of a prefix is %d.",
		       LIMIT_S3_KEY);
}

/* Takes the longest of several prefixes. Refuses the prefixes unless the longest begins with all
 * others. */
static bool read_prefix(struct s3_lifecycle *l, struct s3_lifecycle_rule *rule)
{
	const struct s3_texts *all = &rule->raw.prefixes;

	rule->prefix = rule->raw.prefix;
	for (size_t i = 0; i < all->n; i++) {
		const char *text = all->items[i];

		if (!check_prefix(l, text))
			return false;
		if (rule->prefix && !str_starts(text, rule->prefix) &&
			!str_starts(rule->prefix, text))
			return s3_refuse_malformed(&l->refusal);
		if (!rule->prefix || strlen(text) > strlen(rule->prefix))
			rule->prefix = text;
	}
	return check_prefix(l, rule->prefix);
}

static bool read_size(
	struct s3_lifecycle *l, const struct s3_texts *texts, bool *has, uint64_t *out)
{
	*has = texts->n > 0;
	if (texts->n > 1)
		return s3_refuse_malformed(&l->refusal);
	return !texts->n || str_to_u64(texts->items[0], 0, UINT64_MAX, out) ||
	       s3_refuse_malformed(&l->refusal);
}

/* Converts each tag to a text "key=value", as objects have them. */
static bool read_tags(struct s3_lifecycle *l, struct s3_lifecycle_rule *rule)
{
	const struct s3_texts *keys = &rule->raw.keys, *values = &rule->raw.values;
	enum s3_error problem;
	const char *message;

	if (keys->n != values->n || keys->n != rule->raw.tags.n)
		return s3_refuse_malformed(&l->refusal);
	problem = s3_filter_tags(&l->arena, keys, values, &rule->tags, &message);
	return problem == S3_OK || s3_refuse(&l->refusal, problem, "%s", message);
}

static bool read_conditions(struct s3_lifecycle *l, struct s3_lifecycle_rule *rule)
{
	rule->old_form = rule->raw.prefix != NULL;
	rule->is_and = rule->raw.and != NULL;
	if (!rule->raw.prefix == !rule->raw.filter)
		return s3_refuse_malformed(&l->refusal);
	if (!read_prefix(l, rule) || !read_tags(l, rule) ||
		!read_size(l, &rule->raw.above, &rule->has_above, &rule->above) ||
		!read_size(l, &rule->raw.below, &rule->has_below, &rule->below))
		return false;
	if (rule->has_below && (!rule->below || (rule->has_above && rule->below <= rule->above)))
		return s3_refuse(&l->refusal, S3_E_INVALID_REQUEST,
			"'ObjectSizeLessThan' has to be a value greater than "
			"'ObjectSizeGreaterThan'.");
	return true;
}

/* ---- actions ---- */

/* Refuses tags and sizes in a rule for delete markers or uploads, which have neither. */
static bool check_plain(
	struct s3_lifecycle *l, const struct s3_lifecycle_rule *rule, const char *action)
{
	if (rule->tags.n)
		return s3_refuse(&l->refusal, S3_E_INVALID_REQUEST,
			"%s cannot be specified with Tags.", action);
	if (rule->has_above || rule->has_below)
		return s3_refuse(&l->refusal, S3_E_INVALID_REQUEST,
			"%s cannot be specified with object size.", action);
	return true;
}

static bool read_expiration(struct s3_lifecycle *l, struct s3_lifecycle_rule *rule)
{
	const char *marker = rule->raw.marker;

	if (!rule->raw.expiration)
		return true;
	if (!!rule->raw.days + !!rule->raw.date + !!marker != 1)
		return s3_refuse_malformed(&l->refusal);
	if (marker) {
		rule->lone_markers = ascii_equal(marker, strlen(marker), "true");
		if (!rule->lone_markers && !ascii_equal(marker, strlen(marker), "false"))
			return s3_refuse_malformed(&l->refusal);
		return check_plain(l, rule, "ExpiredObjectDeleteMarker");
	}
	if (rule->raw.days)
		return read_days(l, rule->raw.days, "Days", "Expiration", &rule->days);
	rule->has_date = true;
	return read_date(l, rule->raw.date, &rule->date_ns);
}

static bool read_noncurrent(struct s3_lifecycle *l, struct s3_lifecycle_rule *rule)
{
	int64_t keep = 0;

	if (!rule->raw.noncurrent)
		return true;
	if (!rule->raw.noncurrent_days)
		return s3_refuse_malformed(&l->refusal);
	if (!read_days(l, rule->raw.noncurrent_days, "NoncurrentDays",
		    "NoncurrentVersionExpiration", &rule->noncurrent_days))
		return false;
	if (!rule->raw.keep)
		return true;
	if (rule->old_form)
		return s3_refuse(&l->refusal, S3_E_INVALID_REQUEST,
			"NewerNoncurrentVersions can only be specified in a rule with a Filter");
	if (!str_to_i64(rule->raw.keep, INT64_MIN, INT64_MAX, &keep))
		return s3_refuse_malformed(&l->refusal);
	if (keep < 1 || keep > KEEP_MAX)
		return s3_refuse(&l->refusal, S3_E_INVALID_ARGUMENT,
			"'NewerNoncurrentVersions' for NoncurrentVersionExpiration action must be "
			"from 1 to %d",
			KEEP_MAX);
	rule->keep = (unsigned)keep;
	return true;
}

static bool read_upload(struct s3_lifecycle *l, struct s3_lifecycle_rule *rule)
{
	if (!rule->raw.upload)
		return true;
	if (!rule->raw.upload_days)
		return s3_refuse_malformed(&l->refusal);
	return read_days(l, rule->raw.upload_days, "DaysAfterInitiation",
		       "AbortIncompleteMultipartUpload", &rule->upload_days) &&
	       check_plain(l, rule, "AbortIncompleteMultipartUpload");
}

/* Refuses a Transition. The error is MalformedXML, the error of an invalid date, or NotImplemented
 * if the Transition is valid. */
static bool refuse_transition(struct s3_lifecycle *l, const struct s3_lifecycle_rule *rule)
{
	const struct s3_texts *days = &rule->raw.transition_days;
	const struct s3_texts *dates = &rule->raw.transition_date;
	uint64_t number;
	int64_t date;

	for (size_t i = 0; i < days->n; i++)
		if (!str_to_u64(days->items[i], 0, INT32_MAX, &number))
			return s3_refuse_malformed(&l->refusal);
	for (size_t i = 0; i < dates->n; i++)
		if (!read_date(l, dates->items[i], &date))
			return false;
	return s3_refuse(&l->refusal, S3_E_NOT_IMPLEMENTED,
		"All storage classes of this store are the same: a rule can not have a Transition");
}

static bool read_rule(struct s3_lifecycle *l, struct s3_lifecycle_rule *rule)
{
	const char *status = rule->raw.status;

	if (!status || (strcmp(status, "Enabled") != 0 && strcmp(status, "Disabled") != 0))
		return s3_refuse_malformed(&l->refusal);
	rule->enabled = strcmp(status, "Enabled") == 0;
	if (rule->id && strlen(rule->id) > ID_MAX)
		return s3_refuse(&l->refusal, S3_E_INVALID_ARGUMENT,
			"ID length should not exceed allowed limit of %d", ID_MAX);
	if (rule->id && !*rule->id)
		rule->id = NULL;
	if (!read_conditions(l, rule))
		return false;
	if (!rule->raw.expiration && !rule->raw.noncurrent && !rule->raw.upload &&
		!rule->raw.transition.n)
		return s3_refuse(&l->refusal, S3_E_INVALID_REQUEST,
			"At least one action needs to be specified in a rule");
	if (!read_expiration(l, rule) || !read_noncurrent(l, rule) || !read_upload(l, rule))
		return false;
	return !rule->raw.transition.n || refuse_transition(l, rule);
}

static bool check_ids(struct s3_lifecycle *l)
{
	for (size_t i = 0; i < l->n; i++)
		for (size_t k = 0; k < i; k++)
			if (l->rules[i].id && l->rules[k].id &&
				strcmp(l->rules[i].id, l->rules[k].id) == 0)
				return s3_refuse(&l->refusal, S3_E_INVALID_ARGUMENT,
					"Rule ID must be unique. Found same ID for more than one "
					"rule");
	return true;
}

void s3_lifecycle_release(struct s3_lifecycle *message)
{
	arena_release(&message->arena);
	*message = (struct s3_lifecycle){0};
}

int s3_lifecycle_parse(
	const char *xml, size_t len, struct s3_lifecycle *out, struct penstock_error *err)
{
	int rc = table_parse(&lifecycle_table, out, xml, len, err);
	bool valid = true;

	if (rc < 0)
		return s3_refuse_table(&out->refusal, rc);
	for (size_t i = 0; valid && i < out->n; i++)
		valid = read_rule(out, &out->rules[i]);
	if (valid && check_ids(out))
		return 0;
	arena_release(&out->arena);
	out->rules = NULL;
	out->n = 0;
	return s3_refusal_error(&out->refusal, lifecycle_table.what, err);
}

static void write_conditions(struct buf *out, const struct s3_lifecycle_rule *rule)
{
	const struct s3_texts *keys = &rule->raw.keys, *values = &rule->raw.values;
	size_t n = !!rule->prefix + keys->n + rule->has_above + rule->has_below;
	bool is_and = rule->is_and || n > 1;

	xml_open(out, "Filter");
	if (is_and)
		xml_open(out, "And");
	xml_element(out, "Prefix", rule->prefix);
	s3_filter_write_tags(out, keys, values);
	if (rule->has_above)
		xml_element_u64(out, "ObjectSizeGreaterThan", rule->above);
	if (rule->has_below)
		xml_element_u64(out, "ObjectSizeLessThan", rule->below);
	if (is_and)
		xml_close(out, "And");
	xml_close(out, "Filter");
}

static void write_actions(struct buf *out, const struct s3_lifecycle_rule *rule)
{
	if (rule->raw.expiration) {
		xml_open(out, "Expiration");
		if (rule->days)
			xml_element_u64(out, "Days", rule->days);
		else if (rule->has_date && rule->date_ns == INT64_MAX)
			xml_element(out, "Date", rule->raw.date);
		else if (rule->has_date)
			xml_element_date(out, "Date", rule->date_ns);
		else
			xml_element_bool(out, "ExpiredObjectDeleteMarker", rule->lone_markers);
		xml_close(out, "Expiration");
	}
	if (rule->noncurrent_days) {
		xml_open(out, "NoncurrentVersionExpiration");
		xml_element_u64(out, "NoncurrentDays", rule->noncurrent_days);
		if (rule->keep)
			xml_element_u64(out, "NewerNoncurrentVersions", rule->keep);
		xml_close(out, "NoncurrentVersionExpiration");
	}
	if (rule->upload_days) {
		xml_open(out, "AbortIncompleteMultipartUpload");
		xml_element_u64(out, "DaysAfterInitiation", rule->upload_days);
		xml_close(out, "AbortIncompleteMultipartUpload");
	}
}

void s3_lifecycle_write(struct buf *out, const struct s3_lifecycle *lifecycle)
{
	xml_declaration(out);
	xml_open_root(out, "LifecycleConfiguration");
	for (size_t i = 0; i < lifecycle->n; i++) {
		const struct s3_lifecycle_rule *rule = &lifecycle->rules[i];

		xml_open(out, "Rule");
		xml_element(out, "ID", rule->id);
		if (rule->old_form)
			xml_element(out, "Prefix", rule->prefix);
		else
			write_conditions(out, rule);
		xml_element(out, "Status", rule->enabled ? "Enabled" : "Disabled");
		write_actions(out, rule);
		xml_close(out, "Rule");
	}
	xml_close(out, "LifecycleConfiguration");
}

/* ---- decisions ---- */

/* Returns the first midnight at least `days` days after `since_ns`, or INT64_MAX if that time
 * exceeds 64 bits. */
static int64_t days_after(int64_t since_ns, unsigned days, int64_t day_ns)
{
	int64_t at;

	if (__builtin_mul_overflow(days, day_ns, &at) ||
		__builtin_add_overflow(at, since_ns, &at) ||
		__builtin_add_overflow(at, day_ns - 1, &at))
		return INT64_MAX;
	return at - at % day_ns;
}

static bool has_prefix(const struct s3_lifecycle_rule *rule, const char *key)
{
	return rule->enabled && (!rule->prefix || str_starts(key, rule->prefix));
}

/* Returns true if a rule applies to a delete marker or an upload, which has neither tags nor a
 * size. */
static bool means_plain(const struct s3_lifecycle_rule *rule, const char *key)
{
	return has_prefix(rule, key) && !rule->tags.n && !rule->has_above && !rule->has_below;
}

static bool means(const struct s3_lifecycle_rule *rule, const struct s3_lifecycle_object *object)
{
	if (!has_prefix(rule, object->key) || (rule->has_above && object->size <= rule->above) ||
		(rule->has_below && object->size >= rule->below))
		return false;
	return s3_filter_has(&rule->tags, object->tags);
}

/* Gets the time at which a current version expires by the days or the date of a rule. Returns false
 * if the rule has neither. */
static bool rule_end(
	const struct s3_lifecycle_rule *rule, int64_t modified_ns, int64_t day_ns, int64_t *at_ns)
{
	if (rule->days)
		*at_ns = days_after(modified_ns, rule->days, day_ns);
	else if (rule->has_date)
		*at_ns = rule->date_ns;
	return rule->days || rule->has_date;
}

static void take_earlier(
	struct s3_lifecycle_end *end, bool *found, const struct s3_lifecycle_rule *rule, int64_t at)
{
	if (!*found || at < end->at_ns)
		*end = (struct s3_lifecycle_end){.at_ns = at, .id = rule->id};
	*found = true;
}

bool s3_lifecycle_object_end(const struct s3_lifecycle *lifecycle,
	const struct s3_lifecycle_object *object, int64_t day_ns, struct s3_lifecycle_end *out)
{
	bool found = false;
	int64_t at = 0;

	/* Tags are compared last, because their comparison takes the longest. */
	for (size_t i = 0; i < lifecycle->n; i++)
		if (rule_end(&lifecycle->rules[i], object->modified_ns, day_ns, &at) &&
			(!found || at < out->at_ns) && means(&lifecycle->rules[i], object))
			take_earlier(out, &found, &lifecycle->rules[i], at);
	return found;
}

bool s3_lifecycle_version_ends(const struct s3_lifecycle *lifecycle,
	const struct s3_lifecycle_version *version, int64_t day_ns, int64_t now_ns)
{
	for (size_t i = 0; i < lifecycle->n; i++) {
		const struct s3_lifecycle_rule *rule = &lifecycle->rules[i];

		if (rule->noncurrent_days && version->newer >= rule->keep &&
			days_after(version->since_ns, rule->noncurrent_days, day_ns) <= now_ns &&
			(version->marker ? means_plain(rule, version->object.key)
					 : means(rule, &version->object)))
			return true;
	}
	return false;
}

bool s3_lifecycle_marker_ends(const struct s3_lifecycle *lifecycle, const char *key,
	int64_t modified_ns, int64_t day_ns, int64_t now_ns)
{
	int64_t at = 0;

	for (size_t i = 0; i < lifecycle->n; i++) {
		const struct s3_lifecycle_rule *rule = &lifecycle->rules[i];

		if (means_plain(rule, key) &&
			(rule->lone_markers ||
				(rule_end(rule, modified_ns, day_ns, &at) && at <= now_ns)))
			return true;
	}
	return false;
}

bool s3_lifecycle_upload_end(const struct s3_lifecycle *lifecycle, const char *key,
	int64_t started_ns, int64_t day_ns, struct s3_lifecycle_end *out)
{
	bool found = false;

	for (size_t i = 0; i < lifecycle->n; i++) {
		const struct s3_lifecycle_rule *rule = &lifecycle->rules[i];

		if (rule->upload_days && means_plain(rule, key))
			take_earlier(out, &found, rule,
				days_after(started_ns, rule->upload_days, day_ns));
	}
	return found;
}
