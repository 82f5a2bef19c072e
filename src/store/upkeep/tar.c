#include <fcntl.h>
#include <inttypes.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "store/upkeep/archive.h"

#define BLOCK 512

/* The header of POSIX ustar. */
struct header {
	char name[100];
	char mode[8], uid[8], gid[8];
	char size[12], mtime[12];
	char checksum[8];
	char type;
	char link[100];
	char magic[6], version[2];
	char user[32], group[32];
	char major[8], minor[8];
	char prefix[155];
	char pad[12];
};
_Static_assert(sizeof(struct header) == BLOCK, "a header is one block");

/* Returns the sum of all bytes of the header, with blanks in place of the checksum. */
static unsigned sum_of(const struct header *h)
{
	const unsigned char *p = (const unsigned char *)h;
	unsigned sum = 0;

	for (size_t i = 0; i < BLOCK; i++)
		sum += i >= offsetof(struct header, checksum) && i < offsetof(struct header, type)
			       ? ' '
			       : p[i];
	return sum;
}

/* Sizes that do not fit 11 octal digits are binary, as GNU tar writes them. */
static void put_size(char out[static 12], uint64_t size)
{
	char text[24];

	snprintf(text, sizeof(text), "%011" PRIo64, size);
	if (strlen(text) == 11) {
		memcpy(out, text, 12);
		return;
	}
	memset(out, 0, 12);
	out[0] = (char)0x80;
	for (int i = 11; size; size >>= 8)
		out[i--] = (char)(size & 0xff);
}

static bool get_size(const char in[static 12], uint64_t *size)
{
	const unsigned char *p = (const unsigned char *)in;

	*size = 0;
	if (p[0] == 0x80) {
		for (int i = 1; i < 12; i++) {
			if (*size >> 55)
				return false;
			*size = *size << 8 | p[i];
		}
		return true;
	}
	for (int i = 0; i < 12 && p[i] && p[i] != ' '; i++) {
		if (p[i] < '0' || p[i] > '7')
			return false;
		*size = *size << 3 | (uint64_t)(p[i] - '0');
	}
	return true;
}

FILE *tar_open(int fd, const char *mode)
{
	_cleanup_close_ int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	FILE *f = own < 0 ? NULL : fdopen(own, mode);

	if (f)
		own = -1;
	return f;
}

void tar_begin(FILE *out, const char *name, uint64_t size)
{
	struct header h = {.mode = "0000600",
		.uid = "0000000",
		.gid = "0000000",
		.mtime = "00000000000",
		.type = '0',
		.magic = "ustar",
		.version = {'0', '0'}};
	char sum[8];

	memcpy(h.name, name, strnlen(name, sizeof(h.name)));
	put_size(h.size, size);
	snprintf(sum, sizeof(sum), "%06o", sum_of(&h));
	memcpy(h.checksum, sum, 7);
	h.checksum[7] = ' ';
	fwrite(&h, sizeof(h), 1, out);
}

void tar_end(FILE *out, uint64_t size)
{
	static const char zeros[BLOCK];

	if (size % BLOCK)
		fwrite(zeros, BLOCK - size % BLOCK, 1, out);
}

void tar_write(FILE *out, const char *name, const void *data, size_t len)
{
	tar_begin(out, name, len);
	fwrite(data, 1, len, out);
	tar_end(out, len);
}

void tar_finish(FILE *out)
{
	static const char zeros[2 * BLOCK];

	fwrite(zeros, sizeof(zeros), 1, out);
}

static int cut_off(FILE *in, struct penstock_error *err)
{
	return ferror(in) ? error_errno(err, errno, "cannot read the archive")
			  : error_set(err, PENSTOCK_E_CORRUPT, "the archive is truncated");
}

int tar_next(FILE *in, struct tar_member *m, struct penstock_error *err)
{
	struct header h;
	uint64_t sum = 0;
	char text[13] = "";

	if (fread(&h, sizeof(h), 1, in) != 1)
		return cut_off(in, err);
	if (!h.name[0] && sum_of(&h) == 8 * ' ')
		return 0;
	memcpy(text, h.checksum, sizeof(h.checksum));
	if (!get_size(text, &sum) || sum != sum_of(&h) || memcmp(h.magic, "ustar", 5) != 0 ||
		(h.type != '0' && h.type) || !get_size(h.size, &m->size))
		return error_set(err, PENSTOCK_E_CORRUPT,
			"the archive is damaged, or was not made by 'penstock store export'");
	memcpy(m->name, h.name, sizeof(h.name));
	m->name[sizeof(h.name)] = '\0';
	m->left = m->size;
	return 1;
}

ssize_t tar_read(FILE *in, struct tar_member *m, void *data, size_t len, struct penstock_error *err)
{
	char pad[BLOCK];

	if (!m->left)
		return 0;
	if (len > m->left)
		len = (size_t)m->left;
	if (fread(data, 1, len, in) != len)
		return cut_off(in, err);
	m->left -= len;
	if (!m->left && m->size % BLOCK) {
		size_t rest = BLOCK - m->size % BLOCK;

		if (fread(pad, 1, rest, in) != rest)
			return cut_off(in, err);
	}
	return (ssize_t)len;
}
