/* Our own keys around a run: how long it may take, the ports it is given, and who is told of it. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/str.h"
#include "workflow/native.h"
#include "base/banned.h"

/* ---- durations ---- */

#define MAX_DURATION_MS (366LL * 24 * 3600 * 1000)

/* Milliseconds of "90s", "500ms", "1.5h", "2d" or bare seconds; -1: it is none. */
static int64_t duration_ms(const char *text)
{
	static const struct {
		const char *name;
		int64_t ms;
	} units[] = {{"", 1000}, {"ms", 1}, {"s", 1000}, {"m", 60000}, {"min", 60000},
		{"h", 3600000}, {"d", 86400000}};
	char *end = NULL;
	double number = isdigit((unsigned char)*text) ? strtod(text, &end) : -1;

	if (!end || number < 0 || text[strspn(text, "0123456789.msinhd")])
		return -1;
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		if (strcmp(end, units[i].name) == 0)
			return number * (double)units[i].ms > (double)MAX_DURATION_MS
				       ? MAX_DURATION_MS + 1
				       : (int64_t)(number * (double)units[i].ms);
	}
	return -1;
}

void read_duration(
	struct reader *rd, const struct node *map, const char *key, struct workflow_number *out)
{
	struct node *node = node_get(map, key);
	struct workflow_text text = {0};
	char quoted[QUOTE_SIZE];
	int64_t ms;

	out->at = map->at;
	if (node && node->kind == NODE_SCALAR)
		node->literal = false; /* of JSON: bare seconds */
	if (!reader_text(rd, map, key, &text))
		return;
	out->at = text.at;
	if (reader_is_open(rd, &text))
		return;
	ms = duration_ms(text.value);
	if (ms < 1 || ms > MAX_DURATION_MS) {
		reader_error(rd, &text.at,
			"`%s` must be a duration from 1ms to 366d, such as 90s, 30m, 12h or 2d, "
			"not %s",
			reader_field(rd, key), quote(workflow_shown(&text), quoted));
		return;
	}
	out->value = ms;
	out->given = true;
}

void read_timeouts(struct reader *rd, const struct node *map, struct workflow_timeouts *out)
{
	read_duration(rd, map, "timeout", &out->timeout);
	read_duration(rd, map, "hangTimeout", &out->hang);
}

/* ---- ports ---- */

void read_ports(struct reader *rd, const struct node *job)
{
	struct workflow_number *ports = &rd->workflow->ports;
	const struct node *node = node_get(job, "ports");

	ports->at = job->at;
	if (node && node->kind == NODE_LIST) {
		reader_error(rd, &node->at,
			"`ports` is how many free ports the steps need, not which; they are given "
			"as $PORT_0, $PORT_1, …");
		return;
	}
	reader_number(rd, job, "ports", 0, LIMIT_WORKFLOW_PORTS, ports);
}

/* ---- notify ---- */

static unsigned event_of(const char *name)
{
	static const struct {
		const char *name;
		unsigned event;
	} events[] = {{"start", WORKFLOW_NOTIFY_START}, {"end", WORKFLOW_NOTIFY_END},
		{"failure", WORKFLOW_NOTIFY_FAILURE}};

	for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++) {
		if (strcmp(name, events[i].name) == 0)
			return events[i].event;
	}
	return 0;
}

static void read_events(struct reader *rd, const struct node *map, struct workflow_notify *notify)
{
	struct node *events = reader_list(rd, map, "events");
	char quoted[QUOTE_SIZE];
	size_t saved;

	notify->events = WORKFLOW_NOTIFY_START | WORKFLOW_NOTIFY_END | WORKFLOW_NOTIFY_FAILURE;
	if (!events)
		return;
	notify->events = 0;
	saved = reader_enter(rd, "events", 0);
	for (size_t i = 0; i < events->n; i++) {
		struct node *node = events->entries[i].value;
		struct workflow_text text = {0};
		size_t at_list = reader_enter(rd, NULL, i);
		unsigned event;

		if (reader_text_of(rd, node, buf_str(&rd->path), &text)) {
			event = event_of(text.value);
			notify->events |= event;
			if (!event)
				reader_error(rd, &node->at, "`%s` is start, end or failure, not %s",
					buf_str(&rd->path), quote(workflow_shown(&text), quoted));
		}
		reader_leave(rd, at_list);
	}
	reader_leave(rd, saved);
	if (events->n == 0)
		reader_error(rd, &events->at,
			"`%s` is empty: nobody would be told; its members are start, end and "
			"failure",
			reader_field(rd, "events"));
}

void read_notify(struct reader *rd, const struct node *job)
{
	struct workflow_notify *notify = &rd->workflow->notify;
	struct node *map = reader_map(rd, job, "notify");
	size_t saved;

	notify->at = job->at;
	if (!map)
		return;
	notify->at = map->at;
	saved = reader_enter(rd, "notify", 0);
	reader_check_map(rd, map, &schema_notify);
	if (!node_get(map, "url"))
		reader_missing(rd, map, &schema_notify, "url", "the address that is told");
	if (reader_credential(rd, map, "url", &notify->url) && !rd->options->keep_references &&
		!(rd->options->places_only && strstr(notify->url.value, "${{")) &&
		!str_starts(notify->url.value, "http://") &&
		!str_starts(notify->url.value, "https://"))
		reader_error(rd, &notify->url.at,
			"`%s` must begin with https:// or http:// (its value is a secret and not "
			"shown)",
			reader_field(rd, "url"));
	read_events(rd, map, notify);
	reader_leave(rd, saved);
}
