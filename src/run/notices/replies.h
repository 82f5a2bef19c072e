/* What the metadata services of clouds answer, as pure functions; src/run/notices/{gcp,aws,azure}.c ask them. */
#ifndef RUN_NOTICES_REPLIES_H
#define RUN_NOTICES_REPLIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* instance/preempted: TRUE or FALSE, in any case, perhaps with space around it. */
bool reply_gcp_preempted(const char *text, size_t len);
/* It says FALSE, and not just something else. */
bool reply_gcp_not_preempted(const char *text, size_t len);

enum gcp_maintenance { GCP_NO_MAINTENANCE, GCP_MIGRATES, GCP_TERMINATES };
/* instance/maintenance-event. What is none of its words means nothing. */
enum gcp_maintenance reply_gcp_maintenance(const char *text, size_t len);

struct aws_action {
	char action[24]; /* "terminate", "stop", "hibernate" */
	int64_t time_ns; /* wall clock; 0: not told */
};
/* spot/instance-action. False: it is none. */
bool reply_aws_action(const char *text, size_t len, struct aws_action *out);
/* events/recommendations/rebalance. False: it is none. */
bool reply_aws_rebalance(const char *text, size_t len);

struct azure_event {
	char id[128];
	char status[24];      /* "Scheduled", "Started" */
	int64_t not_before_s; /* wall clock; 0: not told, or it has begun */
	bool alone;	      /* it is about this machine and no other one */
};
/* The first Preempt event that names this machine. 1: `out` is filled; 0: there is none; -1: this is no such document. */
int reply_azure_events(const char *text, size_t len, const char *machine, struct azure_event *out);

#define LEAD_MIN_MS 5000
#define LEAD_MAX_MS (24 * 3600 * 1000)
/*
 * How long until `at_s`: by the clock of who said so where `date`, the header, tells it, for that of this machine may be
 * wrong. What is over, or far away, is bounded.
 */
int64_t reply_lead_ms(int64_t at_s, const char *date, int64_t now_s);

#endif
