/*
 * Unpacking an archive while its bytes arrive.
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
 * What it is, is decided by its first bytes, never by its name:
 *  - tar (plain, or in gzip, bzip2, xz, lzip, zstd, lz4, lzma, compress) and RAR are unpacked while
 *    they arrive;
 *  - zip too, where its members' headers allow it; unpacker_finish() compares with the list of
 *    members at the end of the finished file and takes that where the two differ;
 *  - 7z is let pass, and unpacked from the finished file by unpacker_finish();
 *  - one compressed file (data.csv.gz) is unpacked beside it without its suffix;
 *  - anything else is not an archive, which is a result (UNPACK_PLAIN) and no error, unless its name
 *    says that it is one (.tar.gz …): then something else came in its place.
 * The archive itself is the caller's: it is neither written nor removed here. One level only: an
 * archive in the archive stays as it is.
 *
 * Many files are archives by their bytes that people use whole: unpack_keeps_whole() lists them.
 *
 * All or nothing: members are written below DIR/.penstock-unpack-XXXXXX and moved into DIR by
 * unpacker_finish(), after the last byte was verified. A failed, aborted or freed unpacker removes
 * what it wrote; what a killed process left behind is removed by unpack_clean(). Nothing is synced:
 * an input can be fetched again, and whoever stages it keeps a mark of what is complete.
 *
 * A member is refused, and the unpacking with it, when its name is absolute or has "..", when it
 * lies below a symbolic link, when it is a link to something outside (a hard link to what is not in
 * the archive; a symbolic link that is absolute or leaves DIR), or when it is a device, FIFO or
 * socket. Owners are ignored, modes follow the archive and the umask without setuid, setgid and
 * sticky bits (files always get u+rw, directories u+rwx), modification times are kept, the last of
 * several members with one name wins. Checksums are verified where the format has them, except those
 * of RAR 4 and of stored members of RAR 5, which libarchive 3.6 does not compare.
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
	UNPACK_PLAIN = 0, /* not an archive, or one that is used whole: nothing was written */
	UNPACK_TREE,	  /* an archive with members */
	UNPACK_SINGLE,	  /* one compressed file */
};

struct unpack_stats {
	enum unpack_result result;
	const char *format; /* static: "tar", "gzip tar", "zip", "xz file", … */
	uint64_t members;   /* files, directories and links */
	uint64_t bytes;	    /* of their contents */
};

struct unpack_options {
	/*
	 * The archive's file name without directories; for messages, for the name of a single
	 * file, and refused as the name of a member (it would replace the archive). Required.
	 */
	const char *name;
	/* Also what unpack_keeps_whole() lists; and what is not an archive is an error then. */
	bool always;
	uint64_t max_bytes;   /* of all contents; 0: free space at the start less 5 % */
	uint64_t max_members; /* 0: LIMIT_ARCHIVE_MEMBERS */
	/* How many times the archive's bytes so far its contents may be, beyond LIMIT_ARCHIVE_RATIO_FROM;
	 * 0: $PENSTOCK_UNPACK_RATIO, else LIMIT_ARCHIVE_RATIO. */
	uint64_t max_ratio;
	/*
	 * Where several unpackers fill one disk: bytes that all of them together may still write,
	 * counted down by each. NULL: none. Borrowed.
	 */
	atomic_llong *budget;
	/* Called from another thread now and then with the totals so far; a zip may begin anew. */
	void (*progress)(void *cookie, uint64_t members, uint64_t bytes);
	void *cookie;
	const atomic_int *cancel; /* non-zero ends the work with PENSTOCK_E_CANCELLED; or NULL */
};

/* `dir` must exist. Strings are copied. Starts the threads; free with unpacker_free(). */
int unpacker_new(struct unpacker **out, const char *dir, const struct unpack_options *options,
	struct penstock_error *err);

/*
 * The next bytes, copied before it returns. Fails as soon as the unpacking has failed; then, and
 * after an error of the source, unpacker_free() is all that is left to do.
 */
int unpacker_feed(struct unpacker *u, const void *data, size_t len, struct penstock_error *err);

/*
 * All bytes were fed and are what they should be (length, checksum). Waits for the end of the
 * unpacking and moves the members into place. `path` is the finished file, which zip and 7z are
 * read from. Codes: CORRUPT (damaged or cut), INVALID (a refused member), UNSUPPORTED (encrypted,
 * or a method nobody here reads), LIMIT, NO_SPACE, IO, CANCELLED.
 */
int unpacker_finish(struct unpacker *u, const char *path, struct unpack_stats *stats,
	struct penstock_error *err);

/* Ends the threads and removes whatever was not moved into place. NULL is fine. */
void unpacker_free(struct unpacker *u);

static inline void unpacker_freep(struct unpacker **u)
{
	unpacker_free(*u);
}

/* All of the above for a file that is there. `name` may be NULL: that of the path. */
int unpack_file(const char *path, const char *dir, const struct unpack_options *options,
	struct unpack_stats *stats, struct penstock_error *err);

/*
 * Whether a file of this name stays whole although its bytes are those of an archive: checkpoints
 * and arrays (.pt .pth .ckpt .npz .keras …), packages (.whl .jar .apk …), documents (.docx .xlsx
 * .odt .epub …) and block-compressed data (.bam .bcf …). A zip whose first member is NAME/data.pkl,
 * which is how PyTorch saves, stays whole under any name.
 */
bool unpack_keeps_whole(const char *name);

/* Removes what killed unpackers left in `dir`; only while none is at work there. */
int unpack_clean(const char *dir, struct penstock_error *err);

#endif
