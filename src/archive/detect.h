/* Detects formats from first bytes and file names, and recognises archives that programs use
 * without unpacking them. Pure functions. */
#ifndef ARCHIVE_DETECT_H
#define ARCHIVE_DETECT_H

#include <stdbool.h>
#include <stddef.h>

enum archive_kind {
	ARCHIVE_KIND_NONE = 0,
	ARCHIVE_KIND_TAR,
	ARCHIVE_KIND_RAR,
	ARCHIVE_KIND_ZIP, /* the list of members is at the end of the file */
	ARCHIVE_KIND_7Z, /* the list of members is at the end of the file, too */
	ARCHIVE_KIND_GZIP,
	ARCHIVE_KIND_BZIP2,
	ARCHIVE_KIND_XZ,
	ARCHIVE_KIND_LZMA,
	ARCHIVE_KIND_LZIP,
	ARCHIVE_KIND_ZSTD,
	ARCHIVE_KIND_LZ4,
	ARCHIVE_KIND_COMPRESS,
};

/* Number of first bytes that suffice to detect any format. */
#define ARCHIVE_DETECT_BYTES 512

/* Detects the format from the first `len` bytes (ARCHIVE_DETECT_BYTES, or the whole file). Formats
 * with a weak magic number (lzma, compress) also need their suffix in `name`. */
enum archive_kind archive_detect(const void *data, size_t len, const char *name);

/* Returns true if `data` begins with the header of a tar member. A block of 512 zeros is an empty
 * archive: returns true if `name` contains ".tar" or ends in ".tgz". */
bool archive_is_tar(const void *data, size_t len, const char *name);

/* Returns true if the name has the suffix of an archive or a compressed file. */
bool archive_name_promises(const char *name);

/* Returns "gzip", "tar", …: a static string. */
const char *archive_kind_name(enum archive_kind kind);

/* Returns true for a zip as torch.save() writes it: its first member is NAME/data.pkl. */
bool archive_is_torch_zip(const void *data, size_t len);

/*
 * Returns the name of the file for the unpacked content of the compressed file `name`: `name`
 * without the suffix of its format (.tgz becomes .tar). If `name` has no such suffix: `stored`, the
 * name in the gzip header (may be NULL), if that is a plain file name other than `name`, else
 * `name` with ".unpacked" at its end. free() the result; NULL if out of memory.
 */
char *archive_single_name(const char *name, enum archive_kind kind, const char *stored);

#endif
