#include "archive/detect.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "archive/unpack.h"
#include "base/cleanup.h"
#include "base/str.h"

static const char *const kind_names[] = {
	[ARCHIVE_KIND_NONE] = "plain",
	[ARCHIVE_KIND_TAR] = "tar",
	[ARCHIVE_KIND_RAR] = "rar",
	[ARCHIVE_KIND_ZIP] = "zip",
	[ARCHIVE_KIND_7Z] = "7z",
	[ARCHIVE_KIND_GZIP] = "gzip",
	[ARCHIVE_KIND_BZIP2] = "bzip2",
	[ARCHIVE_KIND_XZ] = "xz",
	[ARCHIVE_KIND_LZMA] = "lzma",
	[ARCHIVE_KIND_LZIP] = "lzip",
	[ARCHIVE_KIND_ZSTD] = "zstd",
	[ARCHIVE_KIND_LZ4] = "lz4",
	[ARCHIVE_KIND_COMPRESS] = "compress",
};

const char *archive_kind_name(enum archive_kind kind)
{
	return kind_names[kind];
}

static bool ends_nocase(const char *s, const char *suffix)
{
	size_t a = strlen(s), b = strlen(suffix);

	return a > b && strcasecmp(s + a - b, suffix) == 0;
}

static bool begins(const void *data, size_t len, const char *magic, size_t n)
{
	return len >= n && memcmp(data, magic, n) == 0;
}
#define BEGINS(magic) begins(data, len, magic, sizeof(magic) - 1)

/* Parses an octal number with leading spaces, terminated by a space, a NUL or the end of its field.
 * Returns -1 if it is invalid. */
static long octal(const unsigned char *p, size_t n)
{
	long value = 0;
	size_t i = 0;

	while (i < n && p[i] == ' ')
		i++;
	if (i == n || p[i] < '0' || p[i] > '7')
		return -1;
	for (; i < n && p[i] >= '0' && p[i] <= '7'; i++)
		value = value * 8 + (p[i] - '0');
	return i == n || p[i] == ' ' || p[i] == '\0' ? value : -1;
}

bool archive_is_tar(const void *data, size_t len, const char *name)
{
	const unsigned char *p = data;
	long sum = 0, signed_sum = 0, stored;
	bool zeros = true;

	if (len < 512)
		return false;
	for (size_t i = 0; i < 512; i++) {
		unsigned char c = i >= 148 && i < 156 ? ' ' : p[i];

		sum += c;
		signed_sum += (signed char)c;
		zeros = zeros && p[i] == 0;
	}
	if (zeros) /* an empty archive, or just zeros */
		return strcasestr(name, ".tar") || ends_nocase(name, ".tgz");
	stored = octal(p + 148, 8);
	/* The checksum proves little in a block of mostly zeros, so require a name and a valid
	 * mode, too. */
	return p[0] != '\0' && stored > 0 && (stored == sum || stored == signed_sum) &&
	       octal(p + 100, 8) >= 0;
}

static bool is_bzip2(const unsigned char *p, size_t len)
{
	static const unsigned char block[] = {0x31, 0x41, 0x59, 0x26, 0x53, 0x59};
	static const unsigned char end[] = {0x17, 0x72, 0x45, 0x38, 0x50, 0x90};

	return len >= 10 && memcmp(p, "BZh", 3) == 0 && p[3] >= '1' && p[3] <= '9' &&
	       (memcmp(p + 4, block, 6) == 0 || memcmp(p + 4, end, 6) == 0);
}

enum archive_kind archive_detect(const void *data, size_t len, const char *name)
{
	const unsigned char *p = data;

	if (len >= 10 && BEGINS("\x1f\x8b\x08") && (p[3] & 0xE0) == 0)
		return ARCHIVE_KIND_GZIP;
	if (BEGINS("PK\003\004") || BEGINS("PK\005\006") || BEGINS("PK\007\010PK\003\004"))
		return ARCHIVE_KIND_ZIP;
	if (BEGINS("7z\xBC\xAF\x27\x1C"))
		return ARCHIVE_KIND_7Z;
	if (BEGINS("Rar!\x1A\x07\x00") || BEGINS("Rar!\x1A\x07\x01\x00"))
		return ARCHIVE_KIND_RAR;
	if (is_bzip2(p, len))
		return ARCHIVE_KIND_BZIP2;
	if (len >= 12 && BEGINS("\xFD"
				"7zXZ\0"))
		return ARCHIVE_KIND_XZ;
	if (BEGINS("\x28\xB5\x2F\xFD") ||
		(len >= 8 && (p[0] & 0xF0) == 0x50 && memcmp(p + 1, "\x2A\x4D\x18", 3) == 0))
		return ARCHIVE_KIND_ZSTD;
	if (BEGINS("\x04\x22\x4D\x18"))
		return ARCHIVE_KIND_LZ4;
	if (BEGINS("LZIP\001") || BEGINS("LZIP\000"))
		return ARCHIVE_KIND_LZIP;
	if (archive_is_tar(data, len, name))
		return ARCHIVE_KIND_TAR;
	if ((len >= 13 && p[0] == 0x5D && p[1] == 0 && p[2] == 0 &&
		    (p[12] == 0xFF || p[12] == 0)) &&
		(ends_nocase(name, ".lzma") || ends_nocase(name, ".tlz")))
		return ARCHIVE_KIND_LZMA;
	if (BEGINS("\x1f\x9d") &&
		(str_ends(name, ".Z") || ends_nocase(name, ".taz") || ends_nocase(name, ".tz")))
		return ARCHIVE_KIND_COMPRESS;
	return ARCHIVE_KIND_NONE;
}

bool archive_is_torch_zip(const void *data, size_t len)
{
	const unsigned char *p = data;
	size_t name_len;

	if (!BEGINS("PK\003\004") || len < 30)
		return false;
	name_len = (size_t)p[26] | (size_t)p[27] << 8;
	if (name_len < 9 || len < 30 + name_len)
		return false;
	return memcmp(p + 30 + name_len - 9, "/data.pkl", 9) == 0;
}

static bool ends_in_any(const char *name, const char *const *suffixes, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (ends_nocase(name, suffixes[i]))
			return true;
	}
	return false;
}

bool unpack_keeps_whole(const char *name)
{
	static const char *const suffixes[] = {/* checkpoints, arrays, models */
		".pt", ".pth", ".pt2", ".ptl", ".pte", ".ckpt", ".npz", ".keras", ".mar", ".nemo",
		".joblib", ".pkl", ".pickle", ".task",
		/* packages and programs */
		".whl", ".egg", ".jar", ".war", ".ear", ".aar", ".apk", ".aab", ".ipa", ".nupkg",
		".vsix", ".xpi", ".crx", ".conda", ".crate", ".gem",
		/* documents, maps, drawings */
		".docx", ".docm", ".xlsx", ".xlsm", ".xlsb", ".pptx", ".pptm", ".odt", ".ods",
		".odp", ".odg", ".epub", ".kmz", ".3mf", ".svgz", ".cbz", ".cbr",
		/* block-compressed data that readers seek in */
		".bam", ".bcf", ".vcf.gz", ".bgz", ".warc.gz", ".rds", ".rdata"};

	return ends_in_any(name, suffixes, ARRAY_SIZE(suffixes));
}

bool archive_name_promises(const char *name)
{
	static const char *const suffixes[] = {".tar", ".tgz", ".tbz", ".tbz2", ".txz", ".tlz",
		".tzst", ".taz", ".zip", ".7z", ".rar", ".gz", ".bz2", ".xz", ".zst", ".lz4",
		".lzma"};

	return ends_in_any(name, suffixes, ARRAY_SIZE(suffixes));
}

char *archive_single_name(const char *name, enum archive_kind kind, const char *stored)
{
	static const struct {
		enum archive_kind kind;
		const char *suffix, *instead;
	} table[] = {
		{ARCHIVE_KIND_GZIP, ".gz", ""},
		{ARCHIVE_KIND_GZIP, ".gzip", ""},
		{ARCHIVE_KIND_GZIP, ".tgz", ".tar"},
		{ARCHIVE_KIND_BZIP2, ".bz2", ""},
		{ARCHIVE_KIND_BZIP2, ".bz", ""},
		{ARCHIVE_KIND_BZIP2, ".tbz", ".tar"},
		{ARCHIVE_KIND_BZIP2, ".tbz2", ".tar"},
		{ARCHIVE_KIND_XZ, ".xz", ""},
		{ARCHIVE_KIND_XZ, ".txz", ".tar"},
		{ARCHIVE_KIND_LZMA, ".lzma", ""},
		{ARCHIVE_KIND_LZMA, ".tlz", ".tar"},
		{ARCHIVE_KIND_LZIP, ".lz", ""},
		{ARCHIVE_KIND_LZIP, ".tlz", ".tar"},
		{ARCHIVE_KIND_ZSTD, ".zst", ""},
		{ARCHIVE_KIND_ZSTD, ".zstd", ""},
		{ARCHIVE_KIND_ZSTD, ".tzst", ".tar"},
		{ARCHIVE_KIND_LZ4, ".lz4", ""},
		{ARCHIVE_KIND_COMPRESS, ".Z", ""},
		{ARCHIVE_KIND_COMPRESS, ".taz", ".tar"},
		{ARCHIVE_KIND_COMPRESS, ".tz", ".tar"},
	};
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		if (table[i].kind == kind && ends_nocase(name, table[i].suffix))
			return str_printf("%.*s%s", (int)(strlen(name) - strlen(table[i].suffix)),
				name, table[i].instead);
	}
	if (stored && *stored && !strpbrk(stored, "/\\") && strcmp(stored, ".") != 0 &&
		strcmp(stored, "..") != 0 && strlen(stored) <= 255 && strcmp(stored, name) != 0)
		return strdup(stored);
	return str_printf("%s.unpacked", name);
}
