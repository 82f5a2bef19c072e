/*
 * One layer of an image, unpacked into a directory of its own while its bytes arrive: a tar, plain or in
 * gzip or zstd, verified by the digest of what came.
 *
 * What a layer removes of those below is kept as overlayfs wants it: a character device 0:0 in place of what is
 * gone, and an attribute on a directory that hides the lower one. Devices of the archive are left out:
 * containers get theirs from this machine. Owners are kept where we are root. Names are walked component by
 * component from descriptors, and none leads out of the directory.
 */
#ifndef IMAGE_LAYER_H
#define IMAGE_LAYER_H

#include <stdatomic.h>
#include <stdint.h>

struct penstock_error;
struct ring;

struct layer_input {
	struct ring *ring;
	const char *digest; /* "sha256:…" of the bytes of the ring */
	/* The ring has room again; from the calling thread. */
	void (*drained)(void *cookie);
	void *cookie;
	const atomic_int *cancel; /* or NULL */
};

struct layer_stats {
	uint64_t members;
	uint64_t bytes; /* of files */
};

/*
 * `dir` must not exist; what was written stays on failure and is the caller's to remove. All of the ring is
 * read. CANCELLED: its writer broke off, and knows why. CORRUPT: not what the digest says, or no tar.
 */
int layer_unpack(const char *dir, const struct layer_input *input, struct layer_stats *stats,
	struct penstock_error *err);

#endif
