/* Samples as they are delivered: as they are stored, or with decoded images. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/thread.h"
#include "dataset/internal.h"

/* Number of images that a thread decodes at a time, so that the thread allocates the fields of a
 * sample (40 KB) only once for these images. */
#define IMAGES_AT_A_TIME 8

/* The fields of one sample, whose memory is reused for the next sample. */
struct columns {
	struct format_fields fields;
	void *scratch;
};

static void columns_free(struct columns **c)
{
	if (*c)
		free((*c)->scratch);
	free(*c);
}

static int split(const struct dataset *set, uint64_t id, const char *data, size_t size,
	struct columns *c, struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;
	int r = dataset_split_stored(set, id, data, size, &c->fields, &own);

	if (r < 0 && (r = fields_grow(&c->fields, &c->scratch, size, &own)) == 0)
		r = dataset_split_stored(set, id, data, size, &c->fields, &own);
	return r < 0 ? error_move(err, &own) : 0;
}

/* Returns the field with the image, or NULL if there is none. */
static struct format_field *find_image(const struct dataset *set, struct format_fields *fields)
{
	for (size_t i = 0; i < fields->n; i++) {
		struct format_field *f = &fields->items[i];

		if (!set->shards ||
			(set->column ? f->name_len == strlen(set->column) &&
						memcmp(f->name, set->column, f->name_len) == 0
				     : f->type == FORMAT_BYTES && jpeg_is(f->data, f->size)))
			return f;
	}
	return NULL;
}

static int decode_one(const struct dataset *set, uint64_t id, const char *stored, size_t size,
	char *pixels, struct columns *c, struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;
	const struct dataset_place at = dataset_find(set, id);
	const struct format_field *f;
	int r;

	r = split(set, id, stored, size, c, err);
	if (r < 0)
		return r;
	f = find_image(set, &c->fields);
	r = f ? jpeg_decode(f->data, f->size, &set->image, (uint8_t *)pixels, &own)
	      : error_set(&own, PENSTOCK_E_CORRUPT, "the sample has no %s%s",
			set->column ? "column " : "JPEG image", set->column ? set->column : "");
	if (r == 0)
		return 0;
	error_prefix(&own, "cannot read '%s' of '%s' at byte %" PRIu64,
		source_name(set->source, at.shard), source_url(set->source), at.offset);
	return error_move(err, &own);
}

/* Reads stored samples into separate memory, because the memory for a batch of objects has room
 * only for pixels. */
static int read_apart(struct dataset *set, const uint64_t *ids, size_t n, char **stored,
	const atomic_int *cancel, struct penstock_error *err)
{
	uint64_t size = 1;

	for (size_t i = 0; i < n && size <= LIMIT_DATASET_BYTES; i++) {
		/* dataset_read_stored() refuses other numbers. */
		if (ids[i] < set->count)
			size += dataset_find(set, ids[i]).size;
	}
	if (size > LIMIT_DATASET_BYTES)
		return error_set(err, PENSTOCK_E_LIMIT,
			"cannot read %zu samples of '%s' at a time: they have more than %zu GiB; "
			"make the batch smaller",
			n, source_url(set->source), LIMIT_DATASET_BYTES / GIB);
	*stored = malloc(size);
	if (!*stored)
		return error_memory(err);
	return dataset_read_stored(set, ids, n, 0, *stored, cancel, err);
}

/* The images of one call of dataset_read(). */
struct decoding {
	struct dataset *set;
	const uint64_t *ids;
	size_t n;
	struct image {
		const char *stored; /* the sample */
		char *pixels;
	} * images;
	const atomic_int *cancel;
	atomic_int stop;
};

static int decode_some(void *cookie, size_t part, struct penstock_error *err)
{
	const struct decoding *d = cookie;
	_cleanup_(columns_free) struct columns *c = calloc(1, sizeof(*c));
	size_t end = (part + 1) * IMAGES_AT_A_TIME < d->n ? (part + 1) * IMAGES_AT_A_TIME : d->n;
	int r = 0;

	if (!c)
		return error_memory(err);
	for (size_t i = part * IMAGES_AT_A_TIME; r == 0 && i < end; i++) {
		if (atomic_load(&d->stop) || (d->cancel && atomic_load(d->cancel)))
			return error_set(err, PENSTOCK_E_CANCELLED, "cancelled");
		r = decode_one(d->set, d->ids[i], d->images[i].stored,
			(size_t)dataset_find(d->set, d->ids[i]).size, d->images[i].pixels, c, err);
	}
	return r;
}

/* Decodes on this thread, or on one thread for each processor on which no other call decodes. If
 * threads that read ahead already decode on all processors, no further thread is started. */
static int decode_all(struct decoding *d, struct penstock_error *err)
{
	size_t parts = (d->n + IMAGES_AT_A_TIME - 1) / IMAGES_AT_A_TIME, team;
	long processors = sysconf(_SC_NPROCESSORS_ONLN), taken;
	int r = 0;

	taken = atomic_fetch_add(&d->set->decoding, 1);
	team = processors > taken ? (size_t)(processors - taken) : 1;
	team = team < parts ? team : parts;
	if (team < 2) {
		for (size_t i = 0; r == 0 && i < parts; i++)
			r = decode_some(d, i, err);
	} else {
		atomic_fetch_add(&d->set->decoding, (unsigned)team - 1);
		r = thread_each(&(struct thread_work){.name = "images",
					.n = parts,
					.parallel = team,
					.fn = decode_some,
					.cookie = d,
					.cancel = d->cancel,
					.stop = &d->stop},
			err);
		atomic_fetch_sub(&d->set->decoding, (unsigned)team - 1);
		if (r == 0 && atomic_load(&d->stop))
			r = error_set(err, PENSTOCK_E_CANCELLED, "cancelled");
	}
	atomic_fetch_sub(&d->set->decoding, 1);
	return r;
}

static int read_decoded(struct dataset *set, const uint64_t *ids, size_t n, char *data,
	const atomic_int *cancel, struct penstock_error *err)
{
	struct decoding d = {.set = set, .ids = ids, .n = n, .cancel = cancel};
	_cleanup_free_ struct image *images = calloc(n + 1, sizeof(*images));
	const size_t pixels = dataset_pixels(set);
	_cleanup_free_ char *apart = NULL;
	const char *stored;
	int r;

	if (!images)
		return error_memory(err);
	r = set->shards ? dataset_read_stored(set, ids, n, pixels, data, cancel, err)
			: read_apart(set, ids, n, &apart, cancel, err);
	stored = apart;
	for (size_t i = 0; r == 0 && i < n; i++) {
		size_t size = (size_t)dataset_find(set, ids[i]).size;

		images[i] = (struct image){apart ? stored : data + pixels, data};
		stored += apart ? size : 0;
		data += apart ? pixels : pixels + size;
	}
	d.images = images;
	return r < 0 ? r : decode_all(&d, err);
}

static int split_decoded(const struct dataset *set, uint64_t id, const char *data, size_t size,
	struct format_fields *out, struct penstock_error *err)
{
	const size_t pixels = dataset_pixels(set);
	struct format_field *f;
	int r;

	if (size < pixels)
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot split sample %" PRIu64
			" of '%s': it has %zu bytes, but its decoded image needs %zu",
			id, source_url(set->source), size, pixels);
	r = dataset_split_stored(set, id, data + pixels, size - pixels, out, err);
	if (r < 0)
		return r;
	f = find_image(set, out);
	if (!f)
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot split sample %" PRIu64 " of '%s': it has no image", id,
			source_url(set->source));
	f->data = data;
	f->size = pixels;
	f->type = FORMAT_ARRAY;
	f->dtype = DTYPE_U8;
	f->big_endian = false;
	f->ndim = 3;
	f->dims[0] = set->image.height;
	f->dims[1] = set->image.width;
	f->dims[2] = 3;
	f->mode = "RGB";
	f->mode_len = 3;
	return 0;
}

int dataset_read(struct dataset *set, const uint64_t *ids, size_t n, void *data,
	const atomic_int *cancel, struct penstock_error *err)
{
	return set->image.height ? read_decoded(set, ids, n, data, cancel, err)
				 : dataset_read_stored(set, ids, n, 0, data, cancel, err);
}

int dataset_split(const struct dataset *set, uint64_t id, const void *data, size_t size,
	struct format_fields *out, struct penstock_error *err)
{
	struct format_field label;
	int r;

	if (id >= set->count)
		return dataset_no_sample(set, "split", id, err);
	r = set->image.height ? split_decoded(set, id, data, size, out, err)
			      : dataset_split_stored(set, id, data, size, out, err);
	if (r == 0 && dataset_label(set, id, &label))
		out->items[out->n++] = label;
	return r;
}
