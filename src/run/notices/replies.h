/*
 * Parsers for replies of the metadata services of clouds, without side effects; gcp.c, aws.c and
 * azure.c send the requests.
 */
#ifndef RUN_NOTICES_REPLIES_H
#define RUN_NOTICES_REPLIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns true if the value of instance/preempted is TRUE, in upper or lower case, possibly
 * surrounded by space. */
bool reply_gcp_preempted(const char *text, size_t len);
/* Like reply_gcp_preempted(), for the value FALSE: returns false for TRUE and for any other
 * text. */
bool reply_gcp_not_preempted(const char *text, size_t len);

enum gcp_maintenance { GCP_NO_MAINTENANCE, GCP_MIGRATES, GCP_TERMINATES };
/* Parses instance/maintenance-event. Unknown words mean no maintenance. */
enum gcp_maintenance reply_gcp_maintenance(const char *text, size_t len);

struct aws_action {
	char action[24]; /* "terminate", "stop", "hibernate" */
	int64_t time_ns; /* wall clock; 0 if unknown */
};
/* Parses spot/instance-action. Returns false if the reply is invalid. */
bool reply_aws_action(const char *text, size_t len, struct aws_action *out);
/* Parses events/recommendations/rebalance. Returns false if the reply is invalid. */
bool reply_aws_rebalance(const char *text, size_t len);

struct azure_event {
	char id[128];
	char status[24]; /* "Scheduled", "Started" */
	int64_t not_before_s; /* wall clock; 0 if unknown, or if the event has started */
	bool alone; /* the event concerns only this machine */
};
/* Finds the first Preempt event that names this machine. Returns 1 if `out` is filled, 0 if no
 * event matches, -1 if the document is invalid. */
int reply_azure_events(const char *text, size_t len, const char *machine, struct azure_event *out);

#define LEAD_MIN_MS 5000
#define LEAD_MAX_MS (24 * 3600 * 1000)
/* Returns the milliseconds until `at_s`: by the sender's clock if its `date` header is valid,
 * because this machine's clock may be wrong; else from `now_s`. Past and distant times are
 * clamped. */
int64_t reply_lead_ms(int64_t at_s, const char *date, int64_t now_s);

#endif
