#include "dataset/format/tar_walk.h"
#include "base/fs.h"

#include <string.h>

#include <penstock/error.h>

/* Offsets and lengths of the fields of a header. */
enum {
	NAME = 0,
	NAME_LEN = 100,
	SIZE = 124,
	NUMBER_LEN = 12,
	CHECKSUM = 148,
	CHECKSUM_LEN = 8,
	TYPE = 156,
	MAGIC = 257,
	PREFIX = 345,
	PREFIX_LEN = 155
};

static int corrupt(const struct tar_walk *walk, const char *reason, struct penstock_error *err)
{
	return shard_error(err, PENSTOCK_E_CORRUPT, window_name(&walk->w), walk->at, "%s", reason);
}

/* Parses octal digits, or a binary number after a first byte of 0x80. Returns false if the number
 * is invalid. */
static bool number(const unsigned char *p, size_t n, uint64_t *out)
{
	size_t i = 0;

	*out = 0;
	if (p[0] == 0x80) {
		for (i = 1; i < n; i++) {
			if (*out >> 55)
				return false;
			*out = *out << 8 | p[i];
		}
		return true;
	}
	while (i < n && p[i] == ' ')
		i++;
	for (; i < n && p[i] >= '0' && p[i] <= '7'; i++)
		*out = *out << 3 | (uint64_t)(p[i] - '0');
	return i == n || p[i] == ' ' || p[i] == '\0';
}

/* Returns the sum of the bytes of a header, in which the bytes of the checksum count as spaces. */
static uint32_t sum_of(const unsigned char *h, bool of_signed)
{
	uint32_t sum = CHECKSUM_LEN * ' ';
	uint32_t high = 0;

	for (size_t i = 0; i < TAR_BLOCK; i++)
		sum += h[i];
	for (size_t i = CHECKSUM; i < CHECKSUM + CHECKSUM_LEN; i++)
		sum -= h[i];
	for (size_t i = 0; of_signed && i < TAR_BLOCK; i++)
		high += (i < CHECKSUM || i >= CHECKSUM + CHECKSUM_LEN) && h[i] >= 0x80;
	return sum - 256 * high;
}

/* Also accepts the sum of signed bytes, which old programs write. */
static bool checksum_is_right(const unsigned char *h)
{
	uint64_t stored;

	return number(h + CHECKSUM, CHECKSUM_LEN, &stored) &&
	       (stored == sum_of(h, false) || stored == sum_of(h, true));
}

static bool is_zero(const unsigned char *h)
{
	return h[0] == 0 && memcmp(h, h + 1, TAR_BLOCK - 1) == 0;
}

static int set_name(
	struct tar_walk *walk, const unsigned char *name, size_t len, struct penstock_error *err)
{
	if (len > LIMIT_TAR_NAME)
		return shard_error(err, PENSTOCK_E_LIMIT, window_name(&walk->w), walk->at,
			"a name of %zu bytes; the limit is %zu", len, LIMIT_TAR_NAME);
	if (len == 0 || memchr(name, '\0', len))
		return corrupt(walk, "invalid name of a member", err);
	memcpy(walk->name, name, len);
	walk->name[len] = '\0';
	walk->long_name = true;
	return 0;
}

static int pax_record(
	struct tar_walk *walk, const unsigned char *key, size_t len, struct penstock_error *err)
{
	const unsigned char *value = memchr(key, '=', len);
	size_t key_len = value ? (size_t)(value - key) : 0;

	if (!value)
		return corrupt(walk, "invalid extended header", err);
	value++;
	len -= key_len + 1;
	if (key_len == 4 && memcmp(key, "path", 4) == 0)
		return set_name(walk, value, len, err);
	if (key_len >= 11 && memcmp(key, "GNU.sparse.", 11) == 0)
		return shard_error(err, PENSTOCK_E_UNSUPPORTED, window_name(&walk->w), walk->at,
			"sparse members are not supported");
	if (key_len != 4 || memcmp(key, "size", 4) != 0)
		return 0;
	walk->pax_size = 0;
	for (size_t i = 0; i < len; i++) {
		if (value[i] < '0' || value[i] > '9' || walk->pax_size > INT64_MAX / 10)
			return corrupt(walk, "invalid size in an extended header", err);
		walk->pax_size = walk->pax_size * 10 + (uint64_t)(value[i] - '0');
	}
	return len ? 0 : corrupt(walk, "invalid size in an extended header", err);
}

/* Records are "LENGTH KEY=VALUE\n"; LENGTH counts the whole record. */
static int pax_records(
	struct tar_walk *walk, const unsigned char *p, size_t len, struct penstock_error *err)
{
	int r = 0;

	while (r == 0 && len > 0 && *p != '\0') {
		size_t digits = 0, total = 0;

		while (digits < len && digits < 7 && p[digits] >= '0' && p[digits] <= '9')
			total = total * 10 + (size_t)(p[digits++] - '0');
		if (digits == len || p[digits] != ' ' || total < digits + 2 || total > len ||
			p[total - 1] != '\n')
			return corrupt(walk, "invalid extended header", err);
		r = pax_record(walk, p + digits + 1, total - digits - 2, err);
		p += total;
		len -= total;
	}
	return r;
}

static int extended_header(
	struct tar_walk *walk, char type, uint64_t size, struct penstock_error *err)
{
	const unsigned char *p;
	int r;

	if (!walk->extended)
		walk->start = walk->at;
	walk->extended = true;
	if (size > LIMIT_TAR_HEADERS)
		return shard_error(err, PENSTOCK_E_LIMIT, window_name(&walk->w), walk->at,
			"an extended header of more than %zu bytes", LIMIT_TAR_HEADERS);
	r = window_get(&walk->w, walk->at + TAR_BLOCK, (size_t)tar_padded(size), &p, err);
	if (r < 0)
		return r;
	if (type == 'x')
		r = pax_records(walk, p, (size_t)size, err);
	else if (type == 'L')
		r = set_name(walk, p, strnlen((const char *)p, (size_t)size), err);
	walk->at += TAR_BLOCK + tar_padded(size);
	return r;
}

static void ustar_name(struct tar_walk *walk, const unsigned char *h)
{
	size_t prefix = 0, len = strnlen((const char *)h + NAME, NAME_LEN);

	/* GNU's format has another magic, and times where ustar has the prefix. */
	if (memcmp(h + MAGIC, "ustar", 6) == 0)
		prefix = strnlen((const char *)h + PREFIX, PREFIX_LEN);
	memcpy(walk->name, h + PREFIX, prefix);
	if (prefix)
		walk->name[prefix++] = '/';
	memcpy(walk->name + prefix, h + NAME, len);
	walk->name[prefix + len] = '\0';
}

/* Reads the header of a member other than an extended header. Returns 1 if the member is a file, 0
 * if not, or a negative code. */
static int member(
	struct tar_walk *walk, const unsigned char *h, uint64_t size, struct penstock_error *err)
{
	char type = (char)h[TYPE];
	/* Links, devices, directories and FIFOs sometimes have a size, but never content. */
	bool empty = type >= '1' && type <= '6';
	bool file = type == '0' || type == '\0' || type == '7';
	uint64_t space = window_end(&walk->w) - walk->at - TAR_BLOCK;

	if (type == 'S' || type == 'M')
		return shard_error(err, PENSTOCK_E_UNSUPPORTED, window_name(&walk->w), walk->at,
			"sparse members and archives of several volumes are not supported");
	if (!walk->extended)
		walk->start = walk->at;
	if (walk->pax_size != UINT64_MAX)
		size = walk->pax_size;
	if (empty)
		size = 0;
	if (size > space || tar_padded(size) > space)
		return corrupt(walk, "the archive ends within a member", err);
	if (!walk->long_name)
		ustar_name(walk, h);
	walk->data = walk->at + TAR_BLOCK;
	walk->size = size;
	walk->at = walk->data + tar_padded(size);
	walk->extended = false;
	return file && walk->name[0] && walk->name[strlen(walk->name) - 1] != '/';
}

int tar_walk_next(struct tar_walk *walk, struct penstock_error *err)
{
	int r = 0;

	walk->long_name = false;
	walk->pax_size = UINT64_MAX;
	while (r == 0) {
		const unsigned char *h;
		uint64_t size;

		/* Some programs do not write the blocks of zeros at the end of the archive. */
		if (walk->at == window_end(&walk->w) && walk->at > 0 && !walk->extended)
			return 0;
		r = window_get(&walk->w, walk->at, TAR_BLOCK, &h, err);
		if (r < 0)
			return r;
		if (is_zero(h))
			return walk->extended ? corrupt(walk, "missing member", err) : 0;
		if (!checksum_is_right(h))
			return corrupt(walk, "the header of a member has a wrong checksum", err);
		if (!number(h + SIZE, NUMBER_LEN, &size))
			return corrupt(walk, "invalid size of a member", err);
		if (h[TYPE] == 'x' || h[TYPE] == 'L' || h[TYPE] == 'K') {
			r = extended_header(walk, (char)h[TYPE], size, err);
			continue;
		}
		r = member(walk, h, size, err);
		if (r == 0) {
			walk->long_name = false;
			walk->pax_size = UINT64_MAX;
		}
	}
	return r;
}

void tar_walk_release(struct tar_walk *walk)
{
	window_release(&walk->w);
}

bool tar_split_name(const char *name, size_t *key_len, const char **ext)
{
	const char *base = path_last(name);
	const char *dot = strchr(base, '.');
	size_t first = strcspn(name, "/");

	if (!dot || dot == base || !dot[1])
		return false;
	if (first >= 4 && memcmp(name, "__", 2) == 0 && memcmp(name + first - 2, "__", 2) == 0)
		return false;
	*key_len = (size_t)(dot - name);
	*ext = dot + 1;
	return true;
}
