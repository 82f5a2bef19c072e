/* Replies of metadata services about the end of the machine. The first byte selects the document;
 * the rest is the document. */
#include "run/notices/replies.h"

#include "fuzz.h"

#define MACHINE "vm-7"

static void actions(const char *text, size_t len)
{
	struct aws_action action;

	if (!reply_aws_action(text, len, &action))
		return;
	require(memchr(action.action, '\0', sizeof(action.action)) && *action.action);
	require(reply_lead_ms(action.time_ns / 1000000000, NULL, 0) >= LEAD_MIN_MS);
}

static void events(const char *text, size_t len)
{
	struct azure_event event = {.id = ""};
	int found = reply_azure_events(text, len, MACHINE, &event);

	require(found >= -1 && found <= 1);
	require((found == 1) == (*event.id != '\0'));
	if (found != 1)
		return;
	require(memchr(event.id, '\0', sizeof(event.id)));
	require(memchr(event.status, '\0', sizeof(event.status)));
	int64_t lead = reply_lead_ms(event.not_before_s, text, 1474309740);

	require(lead >= LEAD_MIN_MS && lead <= LEAD_MAX_MS);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!size)
		return 0;
	_cleanup_free_ char *text = fuzz_text(data + 1, size - 1);
	size_t len = size - 1;

	switch (data[0]) {
	case 'g':
		require(!(reply_gcp_preempted(text, len) &&
			  reply_gcp_maintenance(text, len) != GCP_NO_MAINTENANCE));
		break;
	case 'a':
		actions(text, len);
		break;
	case 'r':
		reply_aws_rebalance(text, len);
		break;
	case 'd':
		require(reply_lead_ms(1474309787, text, 1474309740) >= LEAD_MIN_MS);
		break;
	default:
		events(text, len);
		break;
	}
	return 0;
}
