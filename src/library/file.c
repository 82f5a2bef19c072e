/* Implements <penstock/file.h> on top of src/transfer/file. */
#include <penstock/file.h>

#include <stddef.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "library/library.h"
#include "transfer/file_reader.h"

/* A pointer to a public range can be converted to a pointer to an internal range. */
_Static_assert(
	sizeof(struct penstock_file_range) == sizeof(struct file_range) &&
		offsetof(struct penstock_file_range, offset) ==
			offsetof(struct file_range, offset) &&
		offsetof(struct penstock_file_range, length) ==
			offsetof(struct file_range, length) &&
		offsetof(struct penstock_file_range, data) == offsetof(struct file_range, data),
	"ranges are passed on as they are");

struct opening {
	struct penstock_transfer *transfer;
	const atomic_int *cancel;
};

static int open_client(
	void *cookie, bool google, struct object_client **out, struct penstock_error *err)
{
	const struct opening *opening = cookie;

	return library_client(opening->transfer, google, opening->cancel, out, err);
}

/* Sets `*out` to the handle's pool of threads, which is created for the first file. */
static int pool_of(struct penstock_transfer *t, struct file_pool **out, struct penstock_error *err)
{
	int r = 0;

	LOCK_SCOPE(&t->lock);
	if (!t->files)
		r = file_pool_new(&t->files, t->engine, err);
	*out = t->files;
	return r;
}

int penstock_file_open(struct penstock_file **out, struct penstock_transfer *transfer,
	const char *url, const struct penstock_file_options *options, struct penstock_error *err)
{
	struct penstock_file_options own = {0};
	struct opening opening = {.transfer = transfer};
	struct file_pool *pool = NULL;
	int r = library_adopt(&own, sizeof(own), options, "struct penstock_file_options", err);

	if (r == 0)
		r = pool_of(transfer, &pool, err);
	if (r < 0)
		return r;
	opening.cancel = own.cancel ? &own.cancel->flag : NULL;
	return file_reader_open((struct file_reader **)out, pool,
		&(struct file_options){.url = url,
			.open = open_client,
			.open_cookie = &opening,
			.stop = own.stop,
			.cookie = own.cookie,
			.cancel = opening.cancel,
			.ahead = own.no_ahead ? 0
				 : own.ahead  ? own.ahead
					      : LIMIT_FILE_AHEAD,
			.version = own.version,
			.known = own.known,
			.size = own.size},
		err);
}

void penstock_file_close(struct penstock_file *file)
{
	file_reader_free((struct file_reader *)file);
}

uint64_t penstock_file_size(const struct penstock_file *file)
{
	return file_reader_size((const struct file_reader *)file);
}

const char *penstock_file_version(const struct penstock_file *file)
{
	return file_reader_version((const struct file_reader *)file);
}

int penstock_file_read(struct penstock_file *file, uint64_t offset, void *data, size_t size,
	size_t *got, struct penstock_error *err)
{
	return file_reader_read((struct file_reader *)file, offset, data, size, got, err);
}

int penstock_file_read_ranges(struct penstock_file *file, const struct penstock_file_range *ranges,
	size_t n, struct penstock_error *err)
{
	return file_reader_ranges(
		(struct file_reader *)file, (const struct file_range *)ranges, n, err);
}
