#include "run/notices/replies.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "s3/date.h"
#include "s3/json.h"

/* Copies the text without surrounding space. Returns false if the text is longer than any known
 * word, or has a NUL byte. */
static bool word_of(const char *text, size_t len, char out[static 48])
{
	while (len && strchr(" \t\r\n", text[len - 1]) && text[len - 1])
		len--;
	while (len && strchr(" \t\r\n", *text) && *text) {
		text++;
		len--;
	}
	if (len >= 48 || memchr(text, 0, len))
		return false;
	memcpy(out, text, len);
	out[len] = '\0';
	return true;
}

bool reply_gcp_preempted(const char *text, size_t len)
{
	char word[48];

	return word_of(text, len, word) && strcasecmp(word, "TRUE") == 0;
}

bool reply_gcp_not_preempted(const char *text, size_t len)
{
	char word[48];

	return word_of(text, len, word) && strcasecmp(word, "FALSE") == 0;
}

enum gcp_maintenance reply_gcp_maintenance(const char *text, size_t len)
{
	char word[48];

	if (!word_of(text, len, word))
		return GCP_NO_MAINTENANCE;
	if (strcasecmp(word, "TERMINATE_ON_HOST_MAINTENANCE") == 0)
		return GCP_TERMINATES;
	return strcasecmp(word, "MIGRATE_ON_HOST_MAINTENANCE") == 0 ? GCP_MIGRATES
								    : GCP_NO_MAINTENANCE;
}

bool reply_aws_action(const char *text, size_t len, struct aws_action *out)
{
	json_auto_t *json = json_loadb(text, len, 0, NULL);
	const char *action = s3_json_text(json, "action");
	struct aws_action found = {0};

	if (strcmp(action, "terminate") != 0 && strcmp(action, "stop") != 0 &&
		strcmp(action, "hibernate") != 0)
		return false;
	snprintf(found.action, sizeof(found.action), "%s", action);
	if (!date_parse_iso(s3_json_text(json, "time"), &found.time_ns))
		found.time_ns = 0;
	*out = found;
	return true;
}

bool reply_aws_rebalance(const char *text, size_t len)
{
	json_auto_t *json = json_loadb(text, len, 0, NULL);
	int64_t at;

	return date_parse_iso(s3_json_text(json, "noticeTime"), &at);
}

/* Returns the number of resources; `ours` is set if the machine is one of them. */
static size_t resources_of(const json_t *event, const char *machine, bool *ours)
{
	const json_t *resources = json_object_get(event, "Resources");
	const json_t *name;
	size_t i;

	*ours = false;
	json_array_foreach (resources, i, name) {
		const char *text = json_string_value(name);

		*ours |= text && strcasecmp(text, machine) == 0;
	}
	return json_array_size(resources);
}

int reply_azure_events(const char *text, size_t len, const char *machine, struct azure_event *out)
{
	json_auto_t *json = json_loadb(text, len, 0, NULL);
	const json_t *events = json_object_get(json, "Events");
	const json_t *event;
	size_t i;

	if (!json_is_array(events))
		return -1;
	json_array_foreach (events, i, event) {
		struct azure_event found = {0};
		const char *id = s3_json_text(event, "EventId");
		bool ours;
		size_t n = resources_of(event, machine, &ours);

		if (!ours || strcasecmp(s3_json_text(event, "EventType"), "Preempt") != 0 || !*id ||
			strlen(id) >= sizeof(found.id))
			continue;
		snprintf(found.id, sizeof(found.id), "%s", id);
		snprintf(found.status, sizeof(found.status), "%s",
			s3_json_text(event, "EventStatus"));
		if (!date_parse_http(s3_json_text(event, "NotBefore"), &found.not_before_s))
			found.not_before_s = 0;
		found.alone = n == 1;
		*out = found;
		return 1;
	}
	return 0;
}

int64_t reply_lead_ms(int64_t at_s, const char *date, int64_t now_s)
{
	int64_t lead_s;

	if (date && date_parse_http(date, &lead_s))
		now_s = lead_s;
	if (__builtin_sub_overflow(at_s, now_s, &lead_s) || lead_s > LEAD_MAX_MS / 1000)
		lead_s = LEAD_MAX_MS / 1000;
	return lead_s < LEAD_MIN_MS / 1000 ? LEAD_MIN_MS : lead_s * 1000;
}
