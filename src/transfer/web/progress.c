/* The progress of a fetch: waiting for bytes, and passing them on. */
#include "transfer/http_fetch.h"
#include <errno.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "s3/sum/checksum.h"
#include "transfer/web/internal.h"
#include "base/banned.h"

#define POLL_MS 50 /* interval for checking the caller's cancel flag */

int fetch_announce(struct fetch *f, uint64_t missing, struct penstock_error *err)
{
	if (!f->options->on_size)
		return 0;
	return f->options->on_size(f->options->cookie, f->size, missing, err);
}

bool fetch_failed(struct fetch *f)
{
	LOCK_SCOPE(&f->lock);
	if (f->options->cancel && atomic_load(f->options->cancel) && !f->error.code) {
		error_set(&f->error, PENSTOCK_E_CANCELLED, "cancelled");
		atomic_store(&f->stop, 1);
	}
	return f->error.code != PENSTOCK_OK;
}

void fetch_wait(struct fetch *f)
{
	pthread_mutex_lock(&f->lock);
	clock_cond_wait_ms(&f->moved, &f->lock, POLL_MS);
	pthread_mutex_unlock(&f->lock);
}

int fetch_consume(struct fetch *f, uint64_t until, struct penstock_error *err)
{
	if (!f->options->consume && !f->sha256) {
		f->consumed = until;
		return 0;
	}
	while (f->consumed < until) {
		size_t want = until - f->consumed < LIMIT_FETCH_BLOCK
				      ? (size_t)(until - f->consumed)
				      : LIMIT_FETCH_BLOCK;
		ssize_t n = fs_pread_all(f->fd, f->block, want, (off_t)f->consumed);
		int r = 0;

		if (n != (ssize_t)want)
			return error_errno(
				err, n < 0 ? errno : EIO, "cannot read '%s'", f->part_path);
		if (f->sha256)
			checksum_update(f->sha256, f->block, want);
		f->consumed += want;
		if (f->options->consume)
			r = f->options->consume(f->options->cookie, f->block, want, err);
		if (r == -(int)PENSTOCK_E_INVALID && fetch_is_page(f)) {
			penstock_error_release(err);
			return fetch_page_error(err);
		}
		if (r < 0)
			return r;
		if (r > 0)
			return error_set(err, PENSTOCK_E_INTERNAL, "the consumer refused");
	}
	return 0;
}
