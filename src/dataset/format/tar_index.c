#include <inttypes.h>
#include <string.h>

#include <penstock/error.h>

#include "base/error.h"
#include "base/str.h"
#include "dataset/format/internal.h"
#include "dataset/format/tar.h"
#include "dataset/format/tar_walk.h"

#define VERSION "v1.2"
#define NUMBER	24 /* maximum length of a number, including a NUL */

struct reader {
	const char *at, *end;
	size_t line;
	const struct shard_reader *shard;
	uint64_t last; /* padded end of the previous member */
	/* range of the sample on this line; `keyed` is set once the sample has a member */
	uint64_t start, stop;
	bool keyed;
	char key[LIMIT_TAR_NAME + 1];
};

static int corrupt(const struct reader *in, const char *reason, struct penstock_error *err)
{
	return error_set(err, PENSTOCK_E_CORRUPT, "cannot read the index of '%s': %s in line %zu",
		in->shard->name, reason, in->line);
}

/* Gets the next word of the line. Returns the length of the word, 0 at the end of the line. */
static size_t next_word(struct reader *in, const char **word)
{
	while (in->at < in->end && *in->at == ' ')
		in->at++;
	*word = in->at;
	while (in->at < in->end && *in->at != ' ' && *in->at != '\n' && *in->at != '\r')
		in->at++;
	return (size_t)(in->at - *word);
}

static bool next_number(struct reader *in, uint64_t *out)
{
	char text[NUMBER];
	const char *word;
	size_t len = next_word(in, &word);

	if (len == 0 || len >= sizeof(text))
		return false;
	memcpy(text, word, len);
	text[len] = '\0';
	return str_to_u64(text, 0, INT64_MAX, out);
}

static bool end_of_line(struct reader *in)
{
	if (in->at < in->end && *in->at == '\r')
		in->at++;
	if (in->at < in->end && *in->at != '\n')
		return false;
	if (in->at < in->end)
		in->at++;
	return true;
}

/* Extended headers may precede the first header of a sample, and the index does not have their
 * offset. So the range starts at the end of the previous member, unless that end is more than
 * LIMIT_TAR_HEADERS before the header. */
static void place(struct reader *in, uint64_t data, uint64_t stop)
{
	uint64_t header = data - TAR_BLOCK;

	if (!in->keyed)
		in->start = header - in->last <= LIMIT_TAR_HEADERS ? in->last : header;
	in->stop = stop;
}

/* Reads "OFFSET SIZE NAME" of a member. The caller has skipped EXT before it, because the name also
 * has the extension. */
static int component(struct reader *in, struct penstock_error *err)
{
	char name[LIMIT_TAR_NAME + 1];
	uint64_t data, size, stop;
	size_t len, key_len;
	const char *word, *ext;

	if (!next_number(in, &data) || !next_number(in, &size))
		return corrupt(in, "invalid offset or size", err);
	len = next_word(in, &word);
	if (len == 0 || len > LIMIT_TAR_NAME || memchr(word, '\0', len))
		return corrupt(in, "invalid name", err);
	memcpy(name, word, len);
	name[len] = '\0';
	if (data % TAR_BLOCK || data < TAR_BLOCK || data - TAR_BLOCK < in->last)
		return corrupt(in, "an offset is not after the previous member", err);
	stop = data + tar_padded(size);
	if (stop > in->shard->size)
		return corrupt(in, "a member is outside of the archive", err);
	if (tar_split_name(name, &key_len, &ext)) {
		if (in->keyed && (strncmp(in->key, name, key_len) != 0 || in->key[key_len]))
			return corrupt(in, "members of two samples are", err);
		place(in, data, stop);
		memcpy(in->key, name, key_len);
		in->key[key_len] = '\0';
		in->keyed = true;
	}
	in->last = stop;
	return 0;
}

static int sample_line(
	struct reader *in, format_sample_fn sample, void *cookie, struct penstock_error *err)
{
	struct format_sample s = {.key = in->key};
	const char *word;
	int r = 0;

	in->keyed = false;
	while (r == 0 && next_word(in, &word) > 0)
		r = component(in, err);
	if (r < 0)
		return r;
	if (!end_of_line(in))
		return corrupt(in, "invalid text", err);
	if (!in->keyed)
		return 0;
	s.offset = in->start;
	s.size = in->stop - in->start;
	return sample(cookie, &s, err);
}

int tar_index_scan(const char *text, size_t len, const struct shard_reader *shard,
	format_sample_fn sample, void *cookie, struct penstock_error *err)
{
	struct reader in = {.at = text, .end = text + len, .line = 1, .shard = shard};
	const char *word;
	uint64_t count;
	int r = 0;

	if (next_word(&in, &word) != strlen(VERSION) || memcmp(word, VERSION, strlen(VERSION)) != 0)
		return error_set(err, PENSTOCK_E_UNSUPPORTED,
			"cannot read the index of '%s': its version is not " VERSION
			"; create the index again with wds2idx",
			shard->name);
	if (!next_number(&in, &count) || !end_of_line(&in))
		return corrupt(&in, "invalid number of samples", err);
	for (uint64_t i = 0; r == 0 && i < count; i++) {
		in.line++;
		if (in.at == in.end)
			return corrupt(&in, "missing sample", err);
		r = sample_line(&in, sample, cookie, err);
	}
	if (r == 0 && in.at != in.end)
		return corrupt(&in, "more samples than the first line declares", err);
	return r;
}
