/* Reports the progress of a fetch: announces its size, and passes on its bytes. */
#include "transfer/http_fetch.h"
#include <errno.h>
#include <unistd.h>
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "s3/sum/checksum.h"
#include "transfer/web/internal.h"

int fetch_announce(struct fetch *f, uint64_t missing, struct penstock_error *err)
{
	int r = 0;

	if (f->options->on_size)
		r = f->options->on_size(f->options->cookie, f->size, missing, err);
	return r < 0 ? r : 0;
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
			return error_set(
				err, PENSTOCK_E_INTERNAL, "the consumer refused the bytes");
	}
	return 0;
}
