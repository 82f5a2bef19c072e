#include "dataset/format/tar.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>
#include <strings.h>

#include <penstock/error.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "dataset/format/internal.h"
#include "dataset/format/records.h"
#include "dataset/format/tar_walk.h"

/* The sample whose members are being read. */
struct group {
	format_sample_fn sample;
	void *cookie;
	struct buf *index; /* lines of an index; NULL if no index is written */
	uint64_t n; /* samples so far */
	unsigned members; /* members of this sample; 0 if there is no sample */
	uint64_t start, end;
	char key[LIMIT_TAR_NAME + 1];
	struct buf exts; /* extensions of the sample's members so far, each with a NUL */
};

static int group_end(struct group *g, struct penstock_error *err)
{
	struct format_sample s = {.offset = g->start, .size = g->end - g->start, .key = g->key};

	if (g->members == 0)
		return 0;
	g->members = 0;
	g->n++;
	if (g->index)
		buf_add_char(g->index, '\n');
	return g->sample ? g->sample(g->cookie, &s, err) : 0;
}

static bool has_ext(const struct group *g, const char *ext)
{
	for (size_t at = 0; at < g->exts.len; at += strlen(g->exts.data + at) + 1) {
		if (strcasecmp(g->exts.data + at, ext) == 0)
			return true;
	}
	return false;
}

static int index_member(
	struct group *g, const struct tar_walk *walk, const char *ext, struct penstock_error *err)
{
	if (!g->index)
		return 0;
	if (strpbrk(walk->name, " \t\n\r\v\f"))
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot write an index of '%s': the name '%s' has a space",
			window_name(&walk->w), walk->name);
	buf_printf(g->index, "%s%s %" PRIu64 " %" PRIu64 " %s", g->members > 1 ? " " : "", ext,
		walk->data, walk->size, walk->name);
	return 0;
}

static int group_add(struct group *g, const struct tar_walk *walk, struct penstock_error *err)
{
	const char *ext, *shard = window_name(&walk->w);
	size_t key_len;
	int r = 0;

	if (!tar_split_name(walk->name, &key_len, &ext))
		return 0;
	if (g->members && (strncmp(g->key, walk->name, key_len) != 0 || g->key[key_len]))
		r = group_end(g, err);
	if (r)
		return r;
	if (g->members == 0) {
		memcpy(g->key, walk->name, key_len);
		g->key[key_len] = '\0';
		g->start = walk->start;
		buf_clear(&g->exts);
	}
	if (has_ext(g, ext))
		return shard_error(err, PENSTOCK_E_CORRUPT, shard, walk->start,
			"the sample '%s' has a second member '%s'", g->key, ext);
	if (++g->members > LIMIT_FORMAT_FIELDS || strlen(ext) > LIMIT_FORMAT_NAME)
		return shard_error(err, PENSTOCK_E_LIMIT, shard, walk->start,
			"the sample '%s' has more than %d members, or an extension of more than "
			"%d bytes",
			g->key, LIMIT_FORMAT_FIELDS, LIMIT_FORMAT_NAME);
	if (buf_add(&g->exts, ext, strlen(ext) + 1) < 0)
		return buf_error(&g->exts, "the extensions of a sample", err);
	g->end = walk->at;
	return index_member(g, walk, ext, err);
}

static int scan_groups(
	struct group *g, const struct shard_reader *shard, struct penstock_error *err)
{
	_cleanup_(tar_walk_release) struct tar_walk walk = {.w = {.shard = shard}};
	int r;

	buf_init(&g->exts, LIMIT_FORMAT_FIELDS * (LIMIT_FORMAT_NAME + 1));
	do {
		r = tar_walk_next(&walk, err);
		if (r <= 0)
			break;
		r = group_add(g, &walk, err);
	} while (r == 0);
	if (r == 0)
		r = group_end(g, err);
	buf_release(&g->exts);
	return r;
}

static int scan(const struct format *f, const struct shard_reader *shard, format_sample_fn sample,
	void *cookie, struct penstock_error *err)
{
	struct group g = {.sample = sample, .cookie = cookie};

	(void)f;
	return scan_groups(&g, shard, err);
}

int tar_index_format(const struct shard_reader *shard, struct buf *out, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf lines = BUF_INIT(LIMIT_TAR_INDEX);
	struct group g = {.index = &lines};
	int r = scan_groups(&g, shard, err);

	if (r < 0)
		return r;
	if (buf_failed(&lines))
		return buf_error(&lines, "the index of a tar", err);
	buf_printf(out, "v1.2 %" PRIu64 "\n", g.n);
	buf_add(out, buf_str(&lines), lines.len);
	return buf_failed(out) ? buf_error(out, "the index of a tar", err) : 0;
}

/* ---- splitting ---- */

enum format_type tar_type_of(const char *ext)
{
	static const struct {
		const char *ext;
		enum format_type type;
	} types[] = {
		{"txt", FORMAT_TEXT},
		{"text", FORMAT_TEXT},
		{"transcript", FORMAT_TEXT},
		{"cls", FORMAT_TEXT},
		{"cls2", FORMAT_TEXT},
		{"class", FORMAT_TEXT},
		{"count", FORMAT_TEXT},
		{"index", FORMAT_TEXT},
		{"inx", FORMAT_TEXT},
		{"id", FORMAT_TEXT},
		{"json", FORMAT_JSON},
		{"jsn", FORMAT_JSON},
		{"npy", FORMAT_ARRAY},
	};
	const char *dot = strrchr(ext, '.');
	const char *last = dot ? dot + 1 : ext;

	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		if (strcasecmp(types[i].ext, last) == 0)
			return types[i].type;
	}
	return FORMAT_BYTES;
}

static int add_field(struct format_fields *out, const struct format_piece *piece,
	const struct tar_walk *walk, const char *ext, struct penstock_error *err)
{
	size_t len = strlen(ext);
	char *name = fields_scratch(out, len);
	struct format_field field = {.name = name,
		.name_len = len,
		.data = (const char *)piece->data + (walk->data - piece->offset),
		.size = (size_t)walk->size,
		.type = tar_type_of(ext)};

	if (field.type == FORMAT_ARRAY) {
		field.type = FORMAT_BYTES;
		npy_field(&field);
	}
	for (size_t i = 0; name && i < len; i++)
		name[i] = (char)tolower((unsigned char)ext[i]);
	for (size_t i = 0; name && i < out->n; i++) {
		if (out->items[i].name_len == len && memcmp(out->items[i].name, name, len) == 0)
			return shard_error(err, PENSTOCK_E_CORRUPT, piece->shard, walk->start,
				"the sample has a second member '%s'", ext);
	}
	return name ? fields_add(out, piece, &field, err) : 0;
}

static int split(const struct format *f, const struct format_piece *piece,
	struct format_fields *out, struct penstock_error *err)
{
	struct tar_walk walk = {.at = piece->offset};
	char key[LIMIT_TAR_NAME + 1];
	size_t key_len = 0, len;
	const char *ext;
	int r;

	(void)f;
	fields_begin(out);
	window_of_piece(&walk.w, piece);
	while ((r = tar_walk_next(&walk, err)) > 0) {
		if (!tar_split_name(walk.name, &len, &ext))
			continue;
		if (key_len && (len != key_len || memcmp(key, walk.name, len) != 0))
			return shard_error(err, PENSTOCK_E_CORRUPT, piece->shard, walk.start,
				"the range of the sample has a member of another sample");
		memcpy(key, walk.name, len);
		key_len = len;
		r = add_field(out, piece, &walk, ext, err);
		if (r < 0)
			return r;
	}
	if (r == 0 && key_len == 0)
		return shard_error(err, PENSTOCK_E_CORRUPT, piece->shard, piece->offset,
			"no member of a sample");
	return r < 0 ? r : fields_end(out, piece, err);
}

const struct format format_tar = {.name = "tar", .scan = scan, .split = split};
