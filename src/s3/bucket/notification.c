#include "s3/bucket/notification.h"

#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/str.h"
#include "s3/ascii.h"
#include "s3/message/table.h"
#include "s3/message/xml.h"

#define ID_MAX 255

static const char *const events[] = {"s3:ObjectCreated:*", "s3:ObjectCreated:Put",
	"s3:ObjectCreated:Post", "s3:ObjectCreated:Copy",
	"s3:ObjectCreated:CompleteMultipartUpload", "s3:ObjectRemoved:*", "s3:ObjectRemoved:Delete",
	"s3:ObjectRemoved:DeleteMarkerCreated", "s3:LifecycleExpiration:*",
	"s3:LifecycleExpiration:Delete", "s3:LifecycleExpiration:DeleteMarkerCreated"};

/* AWS's other events, which this store does not send. */
static const char *const refused[] = {"s3:TestEvent", "s3:ReducedRedundancyLostObject",
	"s3:ObjectRestore:", "s3:Replication:", "s3:LifecycleTransition", "s3:IntelligentTiering",
	"s3:ObjectTagging:", "s3:ObjectAcl:Put", "s3:ObjectAnnotation:"};

/* ---- the document ---- */

#define N(path, type, member) D(path, type, s3_notification_rule, member)
/* Only queues are supported: the queue of a rule names a webhook. */
static const struct field notification_fields[] = {F("/TopicConfiguration", REFUSED),
	F("/CloudFunctionConfiguration", REFUSED), F("/LambdaFunctionConfiguration", REFUSED),
	F("/EventBridgeConfiguration", REFUSED), END};
static const struct field rule_fields[] = {N("/Id", TEXT, id), N("/Queue", TEXT, queue),
	N("/Event", TEXTS, events), N("/Filter/S3Key/FilterRule/Name", TEXTS, names),
	N("/Filter/S3Key/FilterRule/Value", TEXTS, values), END};
static const struct table notification_table = {.what = "the NotificationConfiguration",
	.strict = true,
	.roots = {"NotificationConfiguration"},
	.items = {"/QueueConfiguration"},
	.fields = notification_fields,
	.item_fields = rule_fields,
	ITEMS(s3_notification, rules, n, LIMIT_S3_NOTIFICATION_RULES)};

/* Checks the events of a rule, and drops repeated ones. */
static bool read_events(struct s3_notification *n, struct s3_texts *texts)
{
	size_t seen = 0, kept = 0;

	for (size_t i = 0; i < texts->n; i++) {
		const char *event = texts->items[i];
		size_t k = 0;

		while (k < ARRAY_SIZE(events) && strcmp(event, events[k]) != 0)
			k++;
		if (k == ARRAY_SIZE(events) && str_starts_any(event, refused, ARRAY_SIZE(refused)))
			return s3_refuse(&n->refusal, S3_E_NOT_IMPLEMENTED,
				"This store does not send the event %.60s", event);
		if (k == ARRAY_SIZE(events))
			return s3_refuse(&n->refusal, S3_E_INVALID_ARGUMENT,
				"The event '%.60s' is not supported for notifications", event);
		if (!(seen & (size_t)1 << k))
			texts->items[kept++] = event;
		seen |= (size_t)1 << k;
	}
	texts->n = kept;
	return true;
}

static bool read_filter(struct s3_notification *n, struct s3_notification_rule *rule)
{
	if (rule->names.n != rule->values.n)
		return s3_refuse_malformed(&n->refusal);
	for (size_t i = 0; i < rule->names.n; i++) {
		const char *name = rule->names.items[i], *value = rule->values.items[i];
		bool prefix = ascii_equal(name, strlen(name), "prefix");
		const char **to = prefix ? &rule->prefix : &rule->suffix;

		if (!prefix && !ascii_equal(name, strlen(name), "suffix"))
			return s3_refuse(&n->refusal, S3_E_INVALID_ARGUMENT,
				"filter rule name must be either prefix or suffix");
		if (*to)
			return s3_refuse(&n->refusal, S3_E_INVALID_ARGUMENT,
				"Cannot specify more than one %s rule in a filter.",
				prefix ? "prefix" : "suffix");
		if (strlen(value) > LIMIT_S3_KEY)
			return s3_refuse(&n->refusal, S3_E_INVALID_ARGUMENT,
				"Size of filter rule value cannot exceed %d bytes", LIMIT_S3_KEY);
		*to = value;
	}
	return true;
}

static bool check_rule(struct s3_notification *n, struct s3_notification_rule *rule)
{
	if (!rule->queue || !rule->events.n)
		return s3_refuse_malformed(&n->refusal);
	if (rule->id && strlen(rule->id) > ID_MAX)
		return s3_refuse(&n->refusal, S3_E_INVALID_ARGUMENT,
			"The Id of a configuration can not have more than %d characters", ID_MAX);
	if (rule->id && !*rule->id)
		rule->id = NULL;
	return read_events(n, &rule->events) && read_filter(n, rule);
}

/* ---- events ---- */

/* Returns true if an event has the name `pattern`, which may end in '*', as in
 * "s3:ObjectCreated:*". */
static bool is_event(const char *pattern, const char *event)
{
	size_t len = strlen(pattern);

	if (pattern[len - 1] == '*')
		return strncmp(pattern, event, len - 1) == 0;
	return strcmp(pattern, event) == 0;
}

static bool share_event(const struct s3_texts *a, const struct s3_texts *b)
{
	for (size_t i = 0; i < a->n; i++)
		for (size_t k = 0; k < b->n; k++)
			if (is_event(a->items[i], b->items[k]) ||
				is_event(b->items[k], a->items[i]))
				return true;
	return false;
}

static bool overlap(const struct s3_notification_rule *a, const struct s3_notification_rule *b)
{
	const char *pa = a->prefix ? a->prefix : "", *pb = b->prefix ? b->prefix : "";
	const char *sa = a->suffix ? a->suffix : "", *sb = b->suffix ? b->suffix : "";

	return share_event(&a->events, &b->events) && (str_starts(pa, pb) || str_starts(pb, pa)) &&
	       (str_ends(sa, sb) || str_ends(sb, sa));
}

static bool check_all(struct s3_notification *n)
{
	for (size_t i = 0; i < n->n; i++)
		if (!check_rule(n, &n->rules[i]))
			return false;
	for (size_t i = 0; i < n->n; i++)
		for (size_t k = 0; k < i; k++) {
			const struct s3_notification_rule *a = &n->rules[i], *b = &n->rules[k];

			if (a->id && b->id && strcmp(a->id, b->id) == 0)
				return s3_refuse(&n->refusal, S3_E_INVALID_ARGUMENT,
					"Same ID used for multiple configurations. IDs must be "
					"unique");
			if (overlap(a, b))
				return s3_refuse(&n->refusal, S3_E_INVALID_ARGUMENT,
					"Configurations overlap. Configurations on the same bucket "
					"cannot share a common event type.");
		}
	return true;
}

void s3_notification_release(struct s3_notification *message)
{
	arena_release(&message->arena);
	*message = (struct s3_notification){0};
}

int s3_notification_parse(
	const char *xml, size_t len, struct s3_notification *out, struct penstock_error *err)
{
	int rc = table_parse(&notification_table, out, xml, len, err);

	if (rc < 0)
		return s3_refuse_table(&out->refusal, rc);
	if (check_all(out))
		return 0;
	arena_release(&out->arena);
	out->rules = NULL;
	out->n = 0;
	return s3_refusal_error(&out->refusal, notification_table.what, err);
}

static void write_filter(struct buf *out, const char *name, const char *value)
{
	if (!value)
		return;
	xml_open(out, "FilterRule");
	xml_element(out, "Name", name);
	xml_element(out, "Value", value);
	xml_close(out, "FilterRule");
}

void s3_notification_write(struct buf *out, const struct s3_notification *notification)
{
	xml_declaration(out);
	xml_open_root(out, "NotificationConfiguration");
	for (size_t i = 0; i < notification->n; i++) {
		const struct s3_notification_rule *rule = &notification->rules[i];

		xml_open(out, "QueueConfiguration");
		xml_element(out, "Id", rule->id);
		xml_element(out, "Queue", rule->queue);
		for (size_t k = 0; k < rule->events.n; k++)
			xml_element(out, "Event", rule->events.items[k]);
		if (rule->prefix || rule->suffix) {
			xml_open(out, "Filter");
			xml_open(out, "S3Key");
			write_filter(out, "Prefix", rule->prefix);
			write_filter(out, "Suffix", rule->suffix);
			xml_close(out, "S3Key");
			xml_close(out, "Filter");
		}
		xml_close(out, "QueueConfiguration");
	}
	xml_close(out, "NotificationConfiguration");
}

bool s3_notification_means(
	const struct s3_notification_rule *rule, const char *event, const char *key)
{
	bool wanted = false;

	for (size_t i = 0; i < rule->events.n && !wanted; i++)
		wanted = is_event(rule->events.items[i] + strlen("s3:"), event);
	return wanted && (!rule->prefix || str_starts(key, rule->prefix)) &&
	       (!rule->suffix || str_ends(key, rule->suffix));
}
