/* What a stream of bytes is, by its first ones; and what stays whole all the same. Pure functions.
 */
#ifndef ARCHIVE_DETECT_H
#define ARCHIVE_DETECT_H

#include <stdbool.h>
#include <stddef.h>

enum archive_kind {
	ARCHIVE_KIND_NONE = 0,
	ARCHIVE_KIND_TAR,
	ARCHIVE_KIND_RAR,
	ARCHIVE_KIND_ZIP, /* members listed at the end: needs the finished file */
	ARCHIVE_KIND_7Z,  /* likewise */
	ARCHIVE_KIND_GZIP,
	ARCHIVE_KIND_BZIP2,
	ARCHIVE_KIND_XZ,
	ARCHIVE_KIND_LZMA,
	ARCHIVE_KIND_LZIP,
	ARCHIVE_KIND_ZSTD,
	ARCHIVE_KIND_LZ4,
	ARCHIVE_KIND_COMPRESS,
};

/* Enough of a stream's beginning to tell what it is. */
#define ARCHIVE_DETECT_BYTES 512

/*
 * From the first `len` bytes (ARCHIVE_DETECT_BYTES, or all there are). Formats whose magic is too
 * weak to stand alone (lzma, compress) also need their suffix in `name`.
 */
enum archive_kind archive_detect(const void *data, size_t len, const char *name);

/* The header of a tar member, or the end of an empty archive under a name that says tar. */
bool archive_is_tar(const void *data, size_t len, const char *name);

static inline bool archive_is_compression(enum archive_kind kind)
{
	return kind >= ARCHIVE_KIND_GZIP;
}

/* Whether the suffix is that of an archive or a compressed file. */
bool archive_name_promises(const char *name);

/* "gzip", "tar"…; static. */
const char *archive_kind_name(enum archive_kind kind);

/* A zip that begins as torch.save() writes it: its first member is NAME/data.pkl. */
bool archive_is_torch_zip(const void *data, size_t len);

/*
 * The name of the file in a compressed file `name`: without its suffix (.tgz becomes .tar), else
 * `stored` (from the gzip header, may be NULL) where that is a plain file name, else with
 * ".unpacked". free() it; NULL: out of memory.
 */
char *archive_single_name(const char *name, enum archive_kind kind, const char *stored);

#endif
