#include "base/quota.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/must.h"

void quota_init(struct quota *quota, size_t limit)
{
	*quota = (struct quota){.limit = limit};
	pthread_mutex_init(&quota->lock, NULL);
}

void quota_release(struct quota *quota)
{
	struct quota_share *share = quota->shares, *next;

	for (; share; share = next) {
		next = share->next;
		free(share);
	}
	pthread_mutex_destroy(&quota->lock);
}

struct quota_share *quota_share(struct quota *quota, const char *owner)
{
	size_t size = strlen(owner) + 1;
	struct quota_share *share;

	LOCK_SCOPE(&quota->lock);
	for (share = quota->shares; share; share = share->next)
		if (strcmp(share->owner, owner) == 0)
			return share;
	share = calloc(1, sizeof(*share) + size);
	if (!share)
		return NULL;
	share->quota = quota;
	share->next = quota->shares;
	memcpy(share->owner, owner, size);
	quota->shares = share;
	return share;
}

bool quota_take(struct quota_share *share, size_t n)
{
	struct quota *quota = share->quota;
	size_t left;

	LOCK_SCOPE(&quota->lock);
	left = quota->limit - quota->held;
	if (n > left || share->held + n > left - n)
		return false;
	quota->held += n;
	share->held += n;
	return true;
}

void quota_give_back(struct quota_share *share, size_t n)
{
	LOCK_SCOPE(&share->quota->lock);
	MUST(n <= share->held);
	share->quota->held -= n;
	share->held -= n;
}

size_t quota_held(struct quota_share *share)
{
	LOCK_SCOPE(&share->quota->lock);
	return share->held;
}
