/* `dataset inspect`: prints what a data set contains, and the state of its index. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/str.h"
#include "cli/dataset/dataset.h"
#include "cli/print/util.h"

static const char *type_name(const struct format_field *f)
{
	return f->dtype == DTYPE_NONE ? format_type_name(f->type) : dtype_name(f->dtype);
}

static int print_text(const struct format_fields *fields)
{
	for (size_t i = 0; i < fields->n; i++) {
		const struct format_field *f = &fields->items[i];
		_cleanup_free_ char *name = strndup(f->name, f->name_len);

		printf("  ");
		show_name(stdout, name ? name : "");
		printf(": %s", type_name(f));
		for (unsigned k = 0; k < f->ndim; k++)
			printf("%s%" PRIu64 "%s", k ? ", " : " (", f->dims[k],
				k + 1 == f->ndim ? ")" : "");
		if (f->ndim == 0 && f->type != FORMAT_NUMBER)
			printf(", %zu byte%s", f->size, f->size == 1 ? "" : "s");
		printf("\n");
	}
	return 0;
}

static json_t *json_fields(const struct format_fields *fields)
{
	json_t *all = json_array();

	for (size_t i = 0; i < fields->n; i++) {
		const struct format_field *f = &fields->items[i];
		_cleanup_free_ char *name = strndup(f->name, f->name_len);
		json_t *shape = json_array();

		for (unsigned k = 0; k < f->ndim; k++)
			json_array_append_new(shape, json_integer((json_int_t)f->dims[k]));
		json_array_append_new(
			all, json_pack("{s:o, s:s, s:o, s:I}", "name", json_text(name), "type",
				     type_name(f), "shape", shape, "bytes", (json_int_t)f->size));
	}
	return all;
}

/*
 * Compares the index with a new list of the shards, and sets `*state` to the state of the index. If
 * the index is out of date, opens the data set again without the index.
 */
static int check_index(
	struct set_operand *in, const char *url, const char **state, struct penstock_error *err)
{
	const char *format = in->options.format;
	struct dataset *indexed = in->set;
	enum dataset_state compared;
	int r;

	*state = "missing";
	if (dataset_origin(indexed) != DATASET_INDEXED)
		return 0;
	if (source_is_web(dataset_source(indexed))) {
		*state = "not compared, because HTTP cannot list shards";
		return 0;
	}
	in->set = NULL;
	in->options.fresh = true;
	/* The format "objects" lists the shards without a scan. */
	in->options.format = "objects";
	r = set_open(in, url, err);
	in->options.format = format;
	compared = r == 0 ? dataset_compare(indexed, in->set) : DATASET_OUTDATED;
	if (compared != DATASET_OUTDATED) {
		*state = compared == DATASET_CURRENT ? "current" : "copied";
		dataset_free(in->set);
		in->set = indexed;
		return 0;
	}
	*state = "out of date";
	dataset_free(indexed);
	dataset_free(in->set);
	in->set = NULL;
	return r < 0 ? r : set_open(in, url, err);
}

static int first_sample(struct dataset *set, void **memory, struct format_fields *fields,
	const atomic_int *cancel, struct penstock_error *err)
{
	uint64_t id = 0, offsets[2];
	int r = dataset_layout(set, &id, 1, offsets, err);
	size_t size = r == 0 ? (size_t)offsets[1] : 0;

	if (r < 0)
		return r;
	*memory = malloc(size + (size_t)FORMAT_SCRATCH(size) + 8);
	if (!*memory)
		return error_memory(err);
	r = dataset_read(set, &id, 1, *memory, cancel, err);
	fields->scratch = (char *)*memory + (size + 7) / 8 * 8;
	fields->scratch_size = (size_t)FORMAT_SCRATCH(size);
	return r < 0 ? r : dataset_split(set, id, *memory, size, fields, err);
}

static uint64_t bytes_of(const struct source *source)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < source_count(source); i++)
		bytes += source_size(source, i);
	return bytes;
}

static int print(const struct set_operand *in, const struct format_fields *fields,
	const char *index, const char *url)
{
	const struct source *source = dataset_source(in->set);
	char size[STR_SIZE_SIZE];

	if (cli_has(in->cli, "json"))
		return show_json(json_pack("{s:o, s:s, s:I, s:I, s:I, s:s, s:o}", "url",
			json_text(url), "format", dataset_format(in->set), "samples",
			(json_int_t)dataset_count(in->set), "shards",
			(json_int_t)dataset_shards(in->set), "bytes", (json_int_t)bytes_of(source),
			"index", index, "fields", json_fields(fields)));
	str_format_size(bytes_of(source), size);
	printf("format: %s\nsamples: %" PRIu64 "\nshards: %zu\nsize: %s\nindex: %s\nfields:\n",
		dataset_format(in->set), dataset_count(in->set), dataset_shards(in->set), size,
		index);
	return print_text(fields);
}

int dataset_inspect(struct set_operand *in, const char *url, struct penstock_error *err)
{
	_cleanup_free_ struct format_fields *fields = calloc(1, sizeof(*fields));
	_cleanup_free_ void *memory = NULL;
	const char *index = NULL;
	int r = fields ? set_open(in, url, err) : error_memory(err);

	if (r == 0)
		r = check_index(in, url, &index, err);
	if (r == 0)
		r = first_sample(in->set, &memory, fields, in->options.place.cancel, err);
	return r < 0 ? r : print(in, fields, index, url);
}
