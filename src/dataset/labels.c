/* Labels of objects: the number of a sample's folder among all folders. */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/str.h"
#include "dataset/internal.h"

/* Consecutive samples in one folder. The list of objects is sorted by name, so the samples of each
 * folder are one `struct run`. */
struct run {
	size_t first; /* sample */
	int64_t label;
};

struct labels {
	struct strlist names; /* names of the folders, sorted byte by byte */
	struct run *runs; /* in the order of the samples */
	size_t n;
};

void dataset_free_labels(struct dataset *set)
{
	if (!set->labels)
		return;
	strlist_release(&set->labels->names);
	free(set->labels->runs);
	free(set->labels);
	set->labels = NULL;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static size_t folder_length(const char *name)
{
	const char *slash = strchr(name, '/');

	return slash ? (size_t)(slash - name) : 0;
}

static int find_runs(struct dataset *set, struct labels *labels, struct penstock_error *err)
{
	const struct source *source = set->source;
	size_t len = 0;

	for (size_t i = 0; i < source_count(source); i++) {
		const char *name = source_name(source, i);
		struct run *grown;

		if (i && folder_length(name) == len &&
			memcmp(name, source_name(source, i - 1), len) == 0)
			continue;
		len = folder_length(name);
		if (source_is_single(source) || !len)
			return error_set(err, PENSTOCK_E_INVALID,
				"cannot take labels from the folders of '%s': '%s' is not in a "
				"folder; put each sample in the folder of its class",
				source_url(source), name);
		grown = array_grow(labels->runs, labels->n, sizeof(*grown));
		if (!grown)
			return error_memory(err);
		labels->runs = grown;
		labels->runs[labels->n++] = (struct run){.first = i};
		if (strlist_addf(&labels->names, "%.*s", (int)len, name) < 0)
			return error_memory(err);
	}
	return 0;
}

int dataset_find_labels(struct dataset *set, struct penstock_error *err)
{
	struct labels *labels = calloc(1, sizeof(*labels));
	int r;

	if (!labels)
		return error_memory(err);
	set->labels = labels;
	if (set->shards)
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot take labels from the folders of '%s': its format is '%s', and only "
			"'objects' has labels",
			source_url(set->source), set->name);
	r = find_runs(set, labels, err);
	if (r < 0 || !labels->n)
		return r;
	/* The folders are in the order of the objects, in which "a-b/1" is before "a/1": sort them
	 * by name. */
	qsort(labels->names.items, labels->names.n, sizeof(*labels->names.items), by_name);
	for (size_t i = 0; i < labels->n; i++) {
		const char *name = source_name(set->source, labels->runs[i].first);
		_cleanup_free_ char *folder = strndup(name, folder_length(name));
		char **found = folder ? bsearch(&folder, labels->names.items, labels->names.n,
						sizeof(*labels->names.items), by_name)
				      : NULL;

		if (!found)
			return error_memory(err);
		labels->runs[i].label = found - labels->names.items;
	}
	return 0;
}

bool dataset_label(const struct dataset *set, uint64_t id, struct format_field *out)
{
	size_t low = 0, high;

	if (!set->labels)
		return false;
	high = set->labels->n;
	while (high - low > 1) {
		size_t middle = low + (high - low) / 2;

		if (set->labels->runs[middle].first <= id)
			low = middle;
		else
			high = middle;
	}
	*out = (struct format_field){.name = "label",
		.name_len = strlen("label"),
		.data = &set->labels->runs[low].label,
		.size = sizeof(int64_t),
		.type = FORMAT_NUMBER,
		.dtype = DTYPE_I64};
	return true;
}

size_t dataset_classes(const struct dataset *set)
{
	return set->labels ? set->labels->names.n : 0;
}

const char *dataset_class(const struct dataset *set, size_t i)
{
	return set->labels->names.items[i];
}
