/* Implements <penstock/dataset.h> on top of src/dataset. */
#include <penstock/dataset.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "dataset/ahead.h"
#include "dataset/dataset.h"
#include "library/library.h"

struct penstock_dataset {
	struct dataset *set;
	struct ahead *ahead;
	struct penstock_transfer *transfer; /* NULL until a store is needed */
	struct penstock_transfer_options options; /* set only while the data set is being opened */
	pid_t pid; /* the process that created `transfer`, or the set while `transfer` is NULL */
};

/* ---- the set ---- */

/* Creates the transfer handle of this process. A forked child cannot use its parent's handle,
 * because the child lacks the handle's threads. The child does not free that handle either. */
static int open_transfer(struct penstock_dataset *set, struct penstock_error *err)
{
	struct penstock_transfer *mine;
	int r = 0;

	if (!set->transfer) {
		r = penstock_transfer_new(
			&set->transfer, set->options.struct_size ? &set->options : NULL, err);
	} else if (set->pid != getpid()) {
		r = library_transfer_again(&mine, set->transfer, err);
		if (r == 0)
			set->transfer = mine;
	}
	if (r == 0)
		set->pid = getpid();
	return r;
}

static int open_client(
	void *cookie, bool google, struct object_client **out, struct penstock_error *err)
{
	struct penstock_dataset *set = cookie;
	int r = open_transfer(set, err);

	return r < 0 ? r : library_client(set->transfer, google, NULL, out, err);
}

static int open_web(void *cookie, struct http_engine **out, struct penstock_error *err)
{
	struct penstock_dataset *set = cookie;
	int r = open_transfer(set, err);

	if (r == 0)
		*out = set->transfer->engine;
	return r;
}

static int find_dtype(const char *name, enum format_dtype *out, struct penstock_error *err)
{
	*out = name ? dtype_find(name, strlen(name)) : DTYPE_NONE;
	return !name || *out == DTYPE_U16 || *out == DTYPE_U32
		       ? 0
		       : error_set(err, PENSTOCK_E_INVALID,
				 "invalid type of tokens '%s'; expected uint16 or uint32", name);
}

static int find_labels(const char *name, bool *out, struct penstock_error *err)
{
	*out = name != NULL;
	return !name || strcmp(name, "folder") == 0
		       ? 0
		       : error_set(err, PENSTOCK_E_INVALID,
				 "invalid source of labels '%s'; expected 'folder'", name);
}

int penstock_dataset_open(struct penstock_dataset **out, const char *url,
	const struct penstock_dataset_options *options, struct penstock_error *err)
{
	struct penstock_dataset_options own = {0};
	struct dataset_options inner = {0};
	struct penstock_dataset *set = calloc(1, sizeof(*set));
	int r;

	if (!set)
		return error_memory(err);
	library_log_begin();
	set->pid = getpid();
	r = library_adopt(&own, sizeof(own), options, "struct penstock_dataset_options", err);
	if (r == 0)
		r = library_adopt(&set->options, sizeof(set->options), own.transfer,
			"struct penstock_transfer_options", err);
	if (r == 0)
		r = find_dtype(own.dtype, &inner.dtype, err);
	if (r == 0)
		r = find_labels(own.labels, &inner.labels, err);
	if (r == 0) {
		inner.place = (struct source_place){.url = url,
			.cancel = own.cancel ? &own.cancel->flag : NULL,
			.open = open_client,
			.open_web = open_web,
			.cookie = set,
			.cache = own.cache,
			.cache_size = own.cache_size};
		inner.format = own.format;
		inner.header = own.header;
		inner.record_size = own.record_size;
		inner.trailer = own.trailer;
		inner.window = own.window;
		inner.stride = own.stride;
		inner.decode_height = own.decode_height;
		inner.decode_width = own.decode_width;
		inner.decode_column = own.decode_column;
		r = dataset_open(&set->set, &inner, err);
	}
	set->options = (struct penstock_transfer_options){0};
	if (r == 0)
		r = ahead_new(&set->ahead, set->set, own.threads, err);
	if (r < 0) {
		penstock_dataset_free(set);
		return r;
	}
	*out = set;
	return 0;
}

void penstock_dataset_free(struct penstock_dataset *set)
{
	if (!set)
		return;
	ahead_free(set->ahead);
	dataset_free(set->set);
	if (set->pid == getpid())
		penstock_transfer_free(set->transfer);
	free(set);
}

uint64_t penstock_dataset_count(const struct penstock_dataset *set)
{
	return dataset_count(set->set);
}

const char *penstock_dataset_format(const struct penstock_dataset *set)
{
	return dataset_format(set->set);
}

size_t penstock_dataset_classes(const struct penstock_dataset *set)
{
	return dataset_classes(set->set);
}

const char *penstock_dataset_class(const struct penstock_dataset *set, size_t i)
{
	return dataset_class(set->set, i);
}

uint64_t penstock_dataset_sample_size(const struct penstock_dataset *set)
{
	return dataset_sample_size(set->set);
}

int penstock_dataset_place(const struct penstock_dataset *set, uint64_t id, const char **name,
	uint64_t *offset, uint64_t *size, struct penstock_error *err)
{
	struct dataset_place place;

	if (id >= dataset_count(set->set))
		return error_set(err, PENSTOCK_E_INVALID,
			"invalid sample %" PRIu64 " of '%s': the number of samples is %" PRIu64, id,
			source_url(dataset_source(set->set)), dataset_count(set->set));
	place = dataset_find(set->set, id);
	*name = source_name(dataset_source(set->set), place.shard);
	*offset = place.offset;
	*size = place.size;
	return 0;
}

int penstock_dataset_layout(const struct penstock_dataset *set, const uint64_t *ids, size_t n,
	uint64_t *offsets, struct penstock_error *err)
{
	return dataset_layout(set->set, ids, n, offsets, err);
}

int penstock_dataset_read(struct penstock_dataset *set, const uint64_t *ids, size_t n, void *data,
	struct penstock_error *err)
{
	return dataset_read(set->set, ids, n, data, NULL, err);
}

/* ---- reading ahead ---- */

int penstock_batch_start(struct penstock_batch **out, struct penstock_dataset *set,
	const uint64_t *ids, size_t n, void *data, struct penstock_error *err)
{
	return ahead_start(set->ahead, ids, n, data, (struct ahead_job **)out, err);
}

int penstock_batch_wait(struct penstock_batch *batch, struct penstock_error *err)
{
	return ahead_wait((struct ahead_job *)batch, err);
}

bool penstock_batch_ended(struct penstock_batch *batch, int ms)
{
	return ahead_ended((struct ahead_job *)batch, ms);
}

void penstock_batch_drop(struct penstock_batch *batch)
{
	ahead_drop((struct ahead_job *)batch);
}

/* ---- fields ---- */

struct penstock_fields {
	void *scratch; /* NULL if `room` is large enough */
	uint64_t room[256]; /* for converted values, most of which are short texts */
	struct format_fields fields;
};

int penstock_fields_split(struct penstock_fields **out, const struct penstock_dataset *set,
	uint64_t id, const void *data, size_t size, struct penstock_error *err)
{
	struct penstock_fields *f = malloc(sizeof(*f));
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;
	int r;

	if (!f)
		return error_memory(err);
	/* Set the members one by one, because zeroing the large array of fields takes time, and
	 * dataset_split() fills in the array. */
	f->scratch = NULL;
	f->fields.scratch = f->room;
	f->fields.scratch_size = sizeof(f->room);
	f->fields.scratch_used = 0;
	f->fields.n = 0;
	r = dataset_split(set->set, id, data, size, &f->fields, &own);
	if (r < 0 && (r = fields_grow(&f->fields, &f->scratch, size, &own)) == 0)
		r = dataset_split(set->set, id, data, size, &f->fields, &own);
	if (r < 0) {
		penstock_fields_free(f);
		return error_move(err, &own);
	}
	*out = f;
	return 0;
}

void penstock_fields_free(struct penstock_fields *fields)
{
	if (!fields)
		return;
	free(fields->scratch);
	free(fields);
}

size_t penstock_fields_count(const struct penstock_fields *fields)
{
	return fields->fields.n;
}

int penstock_fields_at(const struct penstock_fields *fields, size_t i, struct penstock_field *out,
	struct penstock_error *err)
{
	struct penstock_field own = PENSTOCK_FIELD_INIT;
	const struct format_field *field;

	if (i >= fields->fields.n || out->struct_size < sizeof(out->struct_size))
		return error_set(err, PENSTOCK_E_INVALID,
			i >= fields->fields.n ? "invalid field %zu: the number of fields is %zu"
					      : "cannot get field %zu of %zu: struct "
						"penstock_field is not initialised",
			i, fields->fields.n);
	field = &fields->fields.items[i];
	own.name = field->name;
	own.name_len = field->name_len;
	own.data = field->data;
	own.size = field->size;
	own.type = format_type_name(field->type);
	own.dtype = field->dtype != DTYPE_NONE ? dtype_name(field->dtype) : NULL;
	own.big_endian = field->big_endian;
	own.ndim = field->ndim;
	own.dims = field->dims;
	own.index = field->index;
	own.count = field->count;
	own.mode = field->mode;
	own.mode_len = field->mode_len;
	library_give(out, &own, sizeof(own));
	return 0;
}
