/*
 * Unpacks an archive while its bytes arrive.
 *
 *	struct unpacker *u = NULL;
 *	struct unpack_stats stats;
 *
 *	unpacker_new(&u, "/run/input", &(struct unpack_options){ .name = "cifar.tar.gz" }, err);
 *	while (more)
 *		unpacker_feed(u, data, len, err);	// blocks while its queue is full
 *	unpacker_finish(u, "/run/input/cifar.tar.gz", &stats, err);
 *	unpacker_free(u);
 *
 * The first bytes decide the format, not the name (lzma and compress also need their suffix):
 *
 * - tar (plain, or in gzip, bzip2, xz, lzip, zstd, lz4, lzma, compress) and RAR are unpacked while
 *   they arrive;
 * - zip is unpacked while it arrives, too, if the headers before its members suffice;
 *   unpacker_finish() compares the members with the list at the end of the complete file, and
 *   unpacks the file from the list if they differ;
 * - 7z is unpacked from the complete file by unpacker_finish();
 * - a single compressed file (data.csv.gz) is unpacked to a file without the suffix (data.csv);
 * - other files are not archives: the result is UNPACK_PLAIN, or an error if the file has the
 *   suffix of an archive (.tar.gz …).
 *
 * The archive itself belongs to the caller: it is neither written nor removed here. An archive
 * inside the archive is not unpacked. Many files are archives that programs use without unpacking
 * them: unpack_keeps_whole() recognises such files.
 *
 * All or nothing: members are written below DIR/.penstock-unpack-XXXXXX and moved into DIR by
 * unpacker_finish(), after the last byte was verified. A failed, aborted or freed unpacker removes
 * what it wrote; unpack_clean() removes what a killed process left. No member is synced to disk: an
 * input can be fetched again after a crash (run/stage/state.h).
 *
 * The whole archive is refused if a member has an absolute name or a name with "..", is below a
 * symbolic link, is a link that leads outside (a hard link to a file that is not in the archive, a
 * symbolic link that is absolute or leaves DIR), or is a device, FIFO or socket. Owners are
 * ignored, modes follow the archive and the umask without setuid, setgid and sticky bits (files
 * always get u+rw, directories u+rwx), modification times are kept, and the last of several members
 * with one name wins. Checksums are verified if the format has them, except those of RAR 4 and of
 * stored members of RAR 5, which libarchive 3.6 does not compare.
 */
#ifndef ARCHIVE_UNPACK_H
#define ARCHIVE_UNPACK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct penstock_error;
struct unpacker;

enum unpack_result {
	UNPACK_PLAIN = 0, /* not an archive, or one that stays packed: nothing was written */
	UNPACK_TREE, /* an archive with members */
	UNPACK_SINGLE, /* one compressed file */
};

struct unpack_stats {
	enum unpack_result result;
	const char *format; /* static: "tar", "gzip", "zip", … */
	uint64_t members; /* files, directories and links */
	uint64_t bytes; /* contents of all files */
};

struct unpack_options {
	/*
	 * The archive's file name without directories: used in messages and for the name of a
	 * single file. A member of this name is refused, because it would replace the archive.
	 * Required.
	 */
	const char *name;
	/* Also unpacks files for which unpack_keeps_whole() is true, and fails if the input is not
	 * an archive. */
	bool always;
	uint64_t max_bytes; /* limit for all contents; if 0: free space at the start minus 5 % */
	uint64_t max_members; /* LIMIT_ARCHIVE_MEMBERS if 0 */
	/* Limit of the ratio of contents to archive bytes, beyond LIMIT_ARCHIVE_RATIO_FROM. If 0:
	 * $PENSTOCK_UNPACK_RATIO, else LIMIT_ARCHIVE_RATIO. */
	uint64_t max_ratio;
	/* For several unpackers on one disk: number of bytes that all of them together may still
	 * write; each unpacker decrements the number, and adds the bytes of files that it has
	 * replaced. Borrowed; may be NULL. */
	atomic_llong *budget;
	/* Called from any thread with the totals so far; the totals of a zip may restart from 0.
	 * May be NULL. */
	void (*progress)(void *cookie, uint64_t members, uint64_t bytes);
	void *cookie;
	/* unpacking ends with PENSTOCK_E_CANCELLED once `*cancel` is not 0; may be NULL */
	const atomic_int *cancel;
};

/* `dir` must exist. Strings are copied. Starts a thread; free with unpacker_free(). */
int unpacker_new(struct unpacker **out, const char *dir, const struct unpack_options *options,
	struct penstock_error *err);

/* Copies the next bytes. Fails as soon as the unpacking has failed. After a failure, or after an
 * error of the source, only unpacker_free() may be called. */
int unpacker_feed(struct unpacker *u, const void *data, size_t len, struct penstock_error *err);

/*
 * Called when all bytes were fed and verified (length, checksum). Waits for the end of the
 * unpacking and moves the members into place. `path` is the complete file, used for zip and 7z.
 * Codes: CORRUPT (damaged or truncated), INVALID (a refused member), UNSUPPORTED (encrypted, or an
 * unknown method), EXISTS (a member would replace a file that must stay), LIMIT, NO_SPACE, IO,
 * CANCELLED.
 */
int unpacker_finish(struct unpacker *u, const char *path, struct unpack_stats *stats,
	struct penstock_error *err);

/* Ends the threads and removes everything that was not moved into place. `u` may be NULL. */
void unpacker_free(struct unpacker *u);

static inline void unpacker_freep(struct unpacker **u)
{
	unpacker_free(*u);
}

/* Unpacks an existing file: does the work of all functions above. If `options->name` is NULL, the
 * name is the last component of `path`. */
int unpack_file(const char *path, const char *dir, const struct unpack_options *options,
	struct unpack_stats *stats, struct penstock_error *err);

/*
 * Returns true if a file of this name stays packed although it is an archive: checkpoints and
 * arrays (.pt .pth .ckpt .npz .keras …), packages (.whl .jar .apk …), documents (.docx .xlsx .odt
 * .epub …) and block-compressed data (.bam .bcf …). An unpacker also keeps a zip whose first member
 * is NAME/data.pkl, as PyTorch saves it, under any name.
 */
bool unpack_keeps_whole(const char *name);

/* Removes what killed unpackers left in `dir`. No unpacker may run in `dir` meanwhile. */
int unpack_clean(const char *dir, struct penstock_error *err);

#endif
