#include "checkpoint/commit.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/str.h"
#include "s3/sum/checksum.h"
#include "s3/date.h"
#include "s3/json.h"

/* start of the last member: the checksum of all bytes before the comma in front of SEAL */
#define SEAL "\"crc64nvme\":\""

static void decrefp(json_t **json)
{
	json_decref(*json);
}

struct commit *commit_new(void)
{
	return calloc(1, sizeof(struct commit));
}

void commit_free(struct commit *c)
{
	if (!c)
		return;
	for (size_t i = 0; i < c->n_metrics; i++)
		free(c->metrics[i].name);
	for (size_t i = 0; i < c->n_files; i++)
		free(c->files[i].name);
	free(c->metrics);
	free(c->files);
	free(c->path);
	free(c->run);
	free(c);
}

bool commit_is_name(const char *name)
{
	return strcmp(name, COMMIT_NAME) == 0 ||
	       (str_ends(name, COMMIT_SUFFIX) && strlen(name) > strlen(COMMIT_SUFFIX));
}

bool commit_name_is_good(const char *name)
{
	size_t len = strlen(name);

	if (len == 0 || len > LIMIT_CHECKPOINT_NAME || strcmp(name, COMMIT_NAME) == 0)
		return false;
	for (const char *part = name;; part++) {
		size_t n = strcspn(part, "/");

		for (size_t i = 0; i < n; i++) {
			if ((unsigned char)part[i] < ' ' || part[i] == 0x7f)
				return false;
		}
		if (n == 0 || n > 255 || (n == 1 && part[0] == '.') ||
			(n == 2 && part[0] == '.' && part[1] == '.') ||
			strncmp(part, COMMIT_HIDDEN, strlen(COMMIT_HIDDEN)) == 0)
			return false;
		part += n;
		if (!*part)
			return true;
	}
}

int commit_add_file(struct commit *c, const char *name, uint64_t size, uint64_t crc)
{
	struct commit_file *files = array_grow(c->files, c->n_files, sizeof(*files));
	char *copy = strdup(name);

	if (files)
		c->files = files;
	if (!files || !copy) {
		free(copy);
		return -1;
	}
	files[c->n_files++] = (struct commit_file){copy, size, crc};
	return 0;
}

int commit_set_metric(struct commit *c, const char *name, double value)
{
	struct commit_metric *metrics;
	char *copy;

	for (size_t i = 0; i < c->n_metrics; i++) {
		if (strcmp(c->metrics[i].name, name) == 0) {
			c->metrics[i].value = value;
			return 0;
		}
	}
	metrics = array_grow(c->metrics, c->n_metrics, sizeof(*metrics));
	copy = strdup(name);
	if (metrics)
		c->metrics = metrics;
	if (!metrics || !copy) {
		free(copy);
		return -1;
	}
	metrics[c->n_metrics++] = (struct commit_metric){copy, value};
	return 0;
}

const struct commit_metric *commit_find_metric(const struct commit *c, const char *name)
{
	for (size_t i = 0; i < c->n_metrics; i++) {
		if (strcmp(c->metrics[i].name, name) == 0)
			return &c->metrics[i];
	}
	return NULL;
}

static int by_name(const void *a, const void *b)
{
	const struct commit_file *x = a, *y = b;

	return strcmp(x->name, y->name);
}

const struct commit_file *commit_find_file(const struct commit *c, const char *name)
{
	struct commit_file key = {.name = (char *)name};

	return c->n_files ? bsearch(&key, c->files, c->n_files, sizeof(key), by_name) : NULL;
}

uint64_t commit_size(const struct commit *c)
{
	uint64_t size = 0;

	for (size_t i = 0; i < c->n_files; i++)
		size += c->files[i].size;
	return size;
}

int commit_sort_files(struct commit *c, struct penstock_error *err)
{
	if (c->n_files)
		qsort(c->files, c->n_files, sizeof(*c->files), by_name);
	for (size_t i = 1; i < c->n_files; i++) {
		if (strcmp(c->files[i - 1].name, c->files[i].name) == 0)
			return error_set(err, PENSTOCK_E_EXISTS,
				"cannot save checkpoint: file '%s' was written twice; give each "
				"rank its own names",
				c->files[i].name);
	}
	return 0;
}

int commit_compare(const struct commit *a, const struct commit *b)
{
	if (a->attempt != b->attempt)
		return a->attempt < b->attempt ? -1 : 1;
	if (a->step != b->step)
		return a->step < b->step ? -1 : 1;
	return a->time_ns < b->time_ns ? -1 : a->time_ns > b->time_ns;
}

/* ---- writing ---- */

static int add_json(struct buf *out, json_t *value, struct penstock_error *err)
{
	_cleanup_(decrefp) json_t *owned = value;
	_cleanup_free_ char *text = owned ? json_dumps(owned, JSON_ENCODE_ANY | JSON_COMPACT)
					  : NULL;

	if (!text)
		return error_set(err, PENSTOCK_E_INVALID,
			"a name in the checkpoint is not UTF-8, or a metric is not a finite "
			"number");
	buf_add_str(out, text);
	return 0;
}

static int add_metrics(const struct commit *c, struct buf *out, struct penstock_error *err)
{
	int r = 0;

	buf_add_str(out, ",\"metrics\":{");
	for (size_t i = 0; r == 0 && i < c->n_metrics; i++) {
		buf_add_str(out, i ? "," : "");
		r = add_json(out, json_string(c->metrics[i].name), err);
		buf_add_char(out, ':');
		if (r == 0)
			r = add_json(out, json_real(c->metrics[i].value), err);
	}
	buf_add_char(out, '}');
	return r;
}

static int add_files(const struct commit *c, struct buf *out, struct penstock_error *err)
{
	int r = 0;

	buf_add_str(out, ",\"files\":[\n");
	for (size_t i = 0; r == 0 && i < c->n_files; i++) {
		buf_add_str(out, i ? ",{\"path\":" : "{\"path\":");
		r = add_json(out, json_string(c->files[i].name), err);
		buf_printf(out, ",\"size\":%" PRIu64 ",\"crc64nvme\":\"%016" PRIx64 "\"}\n",
			c->files[i].size, c->files[i].crc);
	}
	buf_add_char(out, ']');
	return r;
}

static int crc_of(const void *data, size_t len, uint64_t *crc, struct penstock_error *err)
{
	uint8_t digest[CHECKSUM_MAX_SIZE];
	int r = checksum_of(CHECKSUM_CRC64NVME, data, len, digest, err);

	*crc = r == 0 ? commit_crc(digest) : 0;
	return r;
}

int commit_format(const struct commit *c, struct buf *out, struct penstock_error *err)
{
	char time[CLOCK_RFC3339_SIZE];
	uint64_t crc = 0;
	int r;

	clock_format_rfc3339(c->time_ns, time);
	buf_printf(out,
		"{\"format\":\"" COMMIT_FORMAT "\",\"step\":%" PRIu64 ",\"attempt\":%u,\"run\":",
		c->step, c->attempt);
	r = add_json(out, json_string(c->run ? c->run : ""), err);
	buf_printf(out, ",\"time\":\"%s\",\n\"world_size\":%u", time, c->world_size);
	if (r == 0)
		r = add_metrics(c, out, err);
	if (r == 0)
		r = add_files(c, out, err);
	if (r == 0 && !buf_failed(out))
		r = crc_of(out->data, out->len, &crc, err);
	if (r < 0)
		return r;
	buf_printf(out, "," SEAL "%016" PRIx64 "\"}\n", buf_failed(out) ? 0 : crc);
	return buf_failed(out) ? buf_error(out, "the commit of a checkpoint", err) : 0;
}

/* ---- reading ---- */

static int corrupt(const char *name, const char *what, struct penstock_error *err)
{
	return error_set(err, PENSTOCK_E_CORRUPT, "'%s' is not a valid commit of a checkpoint: %s",
		name, what);
}

static bool to_crc(const json_t *json, uint64_t *crc)
{
	const char *text = json_string_value(json);
	uint8_t bytes[8];

	if (!text || str_unhex(text, bytes, sizeof(bytes)) < 0)
		return false;
	*crc = commit_crc(bytes);
	return true;
}

/* Returns true if the document has no checksum, or a correct checksum. */
static bool seal_holds(const json_t *root, const char *data, size_t len)
{
	const json_t *seal = json_object_get(root, "crc64nvme");
	uint64_t said, is;
	const char *at = NULL;

	if (!seal)
		return true;
	for (size_t i = len; i > strlen(SEAL) && !at; i--) {
		if (data[i - 1] == ',' && len - i >= strlen(SEAL) &&
			memcmp(data + i, SEAL, strlen(SEAL)) == 0)
			at = data + i - 1;
	}
	return at && to_crc(seal, &said) && crc_of(data, (size_t)(at - data), &is, NULL) == 0 &&
	       said == is;
}

static const char no_memory[] = "out of memory";

static const char *read_head(struct commit *c, const json_t *root)
{
	const char *run = json_string_value(json_object_get(root, "run"));
	const char *time = json_string_value(json_object_get(root, "time"));
	uint64_t attempt, world;

	if (!s3_json_number(json_object_get(root, "step"), INT64_MAX, &c->step))
		return "invalid step";
	if (!s3_json_number(json_object_get(root, "attempt"), INT32_MAX, &attempt))
		return "invalid attempt";
	if (!s3_json_number(json_object_get(root, "world_size"), INT32_MAX, &world) || world == 0)
		return "invalid world_size";
	if (!time || !date_parse_iso(time, &c->time_ns))
		return "invalid time";
	c->attempt = (unsigned)attempt;
	c->world_size = (unsigned)world;
	c->run = strdup(run ? run : "");
	return c->run ? NULL : no_memory;
}

static const char *read_metrics(struct commit *c, json_t *metrics)
{
	const char *name;
	json_t *value;

	if (metrics && !json_is_object(metrics))
		return "metrics is not an object";
	if (json_object_size(metrics) > LIMIT_CHECKPOINT_METRICS)
		return "too many metrics";
	json_object_foreach (metrics, name, value) {
		if (!json_is_number(value) || !isfinite(json_number_value(value)))
			return "invalid metric";
		if (commit_set_metric(c, name, json_number_value(value)) < 0)
			return no_memory;
	}
	return NULL;
}

static const char *read_files(struct commit *c, const json_t *files)
{
	if (!json_is_array(files))
		return "missing list of files";
	if (json_array_size(files) > LIMIT_CHECKPOINT_FILES)
		return "too many files";
	for (size_t i = 0; i < json_array_size(files); i++) {
		const json_t *file = json_array_get(files, i);
		const json_t *path = json_object_get(file, "path");
		uint64_t size, crc;

		if (!json_is_string(path) ||
			strlen(json_string_value(path)) != json_string_length(path) ||
			!commit_name_is_good(json_string_value(path)))
			return "invalid file name";
		if (!s3_json_number(json_object_get(file, "size"), INT64_MAX, &size))
			return "invalid file size";
		if (!to_crc(json_object_get(file, "crc64nvme"), &crc))
			return "invalid file checksum";
		if (commit_add_file(c, json_string_value(path), size, crc) < 0)
			return no_memory;
	}
	return commit_sort_files(c, NULL) < 0 ? "duplicate file" : NULL;
}

bool commit_is_meant(const char *data, size_t len)
{
	return memmem(data, len, "penstock.checkpoint/", strlen("penstock.checkpoint/")) != NULL;
}

int commit_parse(struct commit **out, const char *data, size_t len, const char *name,
	struct penstock_error *err)
{
	_cleanup_(commit_freep) struct commit *c = commit_new();
	_cleanup_(decrefp) json_t *root = NULL;
	const char *format, *fault;
	json_error_t problem;

	if (!c)
		return error_memory(err);
	if (len > LIMIT_COMMIT)
		return error_set(
			err, PENSTOCK_E_LIMIT, "'%s' has more than %zu bytes", name, LIMIT_COMMIT);
	root = data ? json_loadb(data, len, JSON_REJECT_DUPLICATES, &problem) : NULL;
	/* jansson sets `text` for an invalid document, but not if out of memory. */
	if (data && !root && !*problem.text)
		return error_memory(err);
	if (!json_is_object(root))
		return corrupt(name, "it is truncated, or not JSON", err);
	format = json_string_value(json_object_get(root, "format"));
	if (!format || !str_starts(format, "penstock.checkpoint/"))
		return corrupt(name, "it has another format", err);
	if (!seal_holds(root, data, len))
		return corrupt(name, "its checksum is wrong", err);
	if (strcmp(format, COMMIT_FORMAT) != 0)
		return error_set(err, PENSTOCK_E_UNSUPPORTED,
			"cannot read '%s': a later version of penstock has written it (%s); use that version",
			name, format + strlen("penstock.checkpoint/"));
	fault = read_head(c, root);
	if (!fault)
		fault = read_metrics(c, json_object_get(root, "metrics"));
	if (!fault)
		fault = read_files(c, json_object_get(root, "files"));
	if (fault == no_memory)
		return error_memory(err);
	if (fault)
		return corrupt(name, fault, err);
	*out = take_pointer(c);
	return 0;
}
