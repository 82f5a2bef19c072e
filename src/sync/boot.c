/*
 * Local files after a stop of the machine. Data that was not on disk is lost, and most file systems
 * keep size and time of a file whose new blocks are missing. So the journal records the boot. In
 * another boot a published file counts if it has the content of its object; a file that was closed
 * and not sent is suspect, unless it was synced as the only copy.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "sync/internal.h"
#include "base/banned.h"

void boot_judge(struct sync *s)
{
	/* On a network file system the close has sent the bytes to the server. A journal without a
	 * boot id is believed. */
	s->doubt = s->boot[0] && s->journal_boot[0] && strcmp(s->boot, s->journal_boot) != 0 &&
		   !s->leases_unreliable;
	if (s->doubt)
		sync_emit(s, SYNC_WARNING, NULL, 0,
			"the machine stopped since the output was written: local files count "
			"only if they match their objects");
	else
		boot_believe(s);
}

void boot_believe(struct sync *s)
{
	memcpy(s->journal_boot, s->boot, sizeof(s->journal_boot));
}

static bool is_only_here(const struct entry *e)
{
	return !e->below && (e->state == ENTRY_CLOSED || e->state == ENTRY_PARKED);
}

static int find_unsynced(void *cookie, struct entry *e)
{
	(void)cookie;
	return is_only_here(e) && !(e->flags & ENTRY_SYNCED);
}

/* A close during the sync clears the flag again. */
static int mark(void *cookie, struct entry *e)
{
	(void)cookie;
	if (is_only_here(e))
		e->flags |= ENTRY_SYNCED;
	return 0;
}

static int unmark(void *cookie, struct entry *e)
{
	(void)cookie;
	e->flags &= (uint16_t)~ENTRY_SYNCED;
	return 0;
}

void sync_settle(struct sync *s)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	int rc;

	pthread_mutex_lock(&s->lock);
	if (s->leases_unreliable || !s->o.journal_path ||
		!table_each(&s->table, find_unsynced, NULL)) {
		pthread_mutex_unlock(&s->lock);
		return;
	}
	table_each(&s->table, mark, NULL);
	s->settling = true;
	pthread_mutex_unlock(&s->lock);
	rc = syncfs(s->root_fd) < 0 ? error_errno(&err, errno, "cannot sync the file system") : 0;
	pthread_mutex_lock(&s->lock);
	s->settling = false;
	if (rc < 0)
		table_each(&s->table, unmark, NULL);
	else
		rc = state_rewrite_journal(s, &err);
	if (rc < 0)
		sync_emit(s, SYNC_WARNING, NULL, 0,
			"the output that was not sent may not survive a power loss: %s",
			err.message ? err.message : penstock_code_name(err.code));
	pthread_mutex_unlock(&s->lock);
	sync_deliver(s);
}
