/* Shards of MosaicML Streaming: a column for each field of the first sample. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/str.h"
#include "dataset/format/mds/mds.h"
#include "dataset/pack/internal.h"

static bool is_named(const struct format_field *f, const char *name)
{
	return f->name_len == strlen(name) && memcmp(f->name, name, f->name_len) == 0;
}

/* Returns the MDS encoding for a field, or NULL if MDS has no encoding for it. */
static const char *encoding_of(const struct format_field *f)
{
	switch (f->type) {
	case FORMAT_TEXT:
		return "str";
	case FORMAT_JSON:
		return "json";
	case FORMAT_NUMBER:
		return f->dtype == DTYPE_BF16	? NULL
		       : f->dtype == DTYPE_BOOL ? "uint8"
						: dtype_name(f->dtype);
	case FORMAT_ARRAY:
		return f->dtype == DTYPE_BF16 ? NULL : "ndarray";
	case FORMAT_BYTES:
		break;
	}
	if (is_named(f, "jpg") || is_named(f, "jpeg"))
		return "jpeg";
	return is_named(f, "png") ? "png" : "bytes";
}

static int begin(struct pack *p, const struct pack_sample *first, struct penstock_error *err)
{
	_cleanup_free_ struct mds_spec *specs = calloc(first->n + 1, sizeof(*specs));
	_cleanup_(strlist_release) struct strlist names = {0};

	for (size_t i = 0; specs && i < first->n; i++) {
		const struct format_field *f = &first->fields[i];

		if (f->count)
			return error_set(err, PENSTOCK_E_UNSUPPORTED,
				"cannot write '%.*s' as mds: it is a list of values; use --format tar",
				(int)f->name_len, f->name);
		specs[i].encoding = encoding_of(f);
		if (!specs[i].encoding)
			return error_set(err, PENSTOCK_E_UNSUPPORTED,
				"cannot write '%.*s' as mds, which has no type %s",
				(int)f->name_len, f->name, dtype_name(f->dtype));
		if (strlist_addf(&names, "%.*s", (int)f->name_len, f->name) < 0)
			return error_memory(err);
	}
	for (size_t i = 0; specs && i < first->n; i++)
		specs[i].name = names.items[i];
	return specs ? mds_columns_new(&p->columns, specs, first->n, err) : error_memory(err);
}

static int add(const struct pack *p, const struct pack_sample *s, struct buf *out,
	struct penstock_error *err)
{
	_cleanup_free_ struct format_field *values = calloc(p->columns->n, sizeof(*values));

	if (!values)
		return error_memory(err);
	for (size_t i = 0; i < p->columns->n; i++) {
		const char *name = p->columns->items[i].name;

		for (size_t k = 0; k < s->n; k++) {
			if (is_named(&s->fields[k], name))
				values[i] = s->fields[k];
		}
		if (!values[i].name)
			return error_set(err, PENSTOCK_E_INVALID,
				"the sample has no column '%s', which the first sample has", name);
		if (values[i].dtype == DTYPE_BOOL)
			values[i].dtype = DTYPE_U8;
	}
	if (s->n != p->columns->n)
		return error_set(err, PENSTOCK_E_INVALID,
			"the sample has %zu columns, but the first sample has %zu", s->n,
			p->columns->n);
	return mds_sample_add(p->columns, values, out, err);
}

static int end(const struct pack *p, struct pack_shard *shard, struct penstock_error *err)
{
	_cleanup_free_ uint64_t *sizes = calloc(shard->n + 1, sizeof(*sizes));
	_cleanup_(buf_release) struct buf whole = BUF_INIT(shard->data.limit);
	int r;

	if (!sizes)
		return error_memory(err);
	for (size_t i = 0; i < shard->n; i++)
		sizes[i] = shard->ends[i] - (i ? shard->ends[i - 1] : 0);
	r = mds_header_add(p->columns, sizes, shard->n, &whole, err);
	if (r < 0)
		return r;
	shard->head = whole.len;
	buf_add(&whole, buf_str(&shard->data), shard->data.len);
	buf_release(&shard->data);
	shard->data = whole;
	whole = (struct buf){0};
	return 0;
}

const struct pack_format pack_mds = {
	.name = "mds", .suffix = "mds", .fields = true, .begin = begin, .add = add, .end = end};
