#include "dataset/cache/cache.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/str.h"
#include "dataset/cache/internal.h"

void block_cache_turn_off(struct block_cache *c, int errnum, const char *what)
{
	if (!atomic_exchange(&c->off, true))
		log_warn("cannot %s in the cache '%s': %s; data sets are read without the cache",
			what, c->dir, strerror(errnum));
}

/* Creates the directory of this user. Other users may write to the parent directory, but must not
 * be able to put files into this one. Returns NULL, or the reason for a failure. */
static const char *make_dir(struct block_cache *c, const struct block_cache_options *o)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct statvfs fs;
	struct stat st;

	if (fs_mkdirs(o->dir, 0700, &err) < 0 || fs_mkdirs(c->dir, 0700, &err) < 0)
		return strerror(errno);
	if (lstat(c->dir, &st) < 0 || access(c->dir, W_OK | X_OK) < 0 || statvfs(c->dir, &fs) < 0)
		return strerror(errno);
	if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 022))
		return "other users can write to it";
	if (fs_is_network(c->dir))
		return "it is on a network file system; name a directory of this machine";
	if (c->limit == 0)
		c->limit = (uint64_t)fs.f_blocks * fs.f_frsize / 2;
	return NULL;
}

int block_cache_new(
	struct block_cache **out, const struct block_cache_options *o, struct penstock_error *err)
{
	struct block_cache *c;
	const char *reason;

	if (o->size && o->size < CACHE_MIN)
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot use a cache of %" PRIu64 " bytes; it needs at least %zu MiB",
			o->size, CACHE_MIN / MIB);
	c = calloc(1, sizeof(*c));
	if (!c)
		return error_memory(err);
	c->dir = str_printf("%s/penstock-cache-%u", o->dir, (unsigned)geteuid());
	c->limit = o->size;
	c->n = o->shards;
	c->good = calloc(c->n, sizeof(*c->good));
	pthread_mutex_init(&c->lock, NULL);
	if (!c->dir || !c->good) {
		block_cache_free(c);
		return error_memory(err);
	}
	reason = make_dir(c, o);
	if (reason) {
		log_warn("cannot use the cache '%s': %s; data sets are read without the cache",
			c->dir, reason);
		block_cache_free(c);
		c = NULL;
	}
	*out = c;
	return 0;
}

void block_cache_free(struct block_cache *c)
{
	if (!c)
		return;
	for (size_t i = 0; c->good && i < c->n; i++)
		free((void *)atomic_load(&c->good[i]));
	free(c->good);
	free(c->dir);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

void block_cache_after_fork(struct block_cache *c)
{
	if (!c)
		return;
	/* A thread of the parent may have held the lock. The room that was taken belongs to the
	 * parent. */
	pthread_mutex_init(&c->lock, NULL);
	c->room = 0;
}
