/*
 * One layer of an image, unpacked into its own directory while its bytes arrive. The layer is a
 * tar, plain or compressed with gzip or zstd, and is verified by its digest.
 *
 * Deletions of entries of lower layers are stored in overlayfs's format: a character device 0:0 in
 * place of a deleted entry, and an extended attribute on a directory that hides the directory of
 * lower layers. Devices in the archive are skipped: containers get theirs from the host. Owners are
 * kept if the process is root. Paths are resolved component by component from descriptors, and no
 * path leads out of the directory.
 */
#ifndef IMAGE_LAYER_H
#define IMAGE_LAYER_H

#include <stdatomic.h>

struct image_source;
struct penstock_error;
struct ring;

struct layer_input {
	struct ring *ring;
	const char *digest; /* "sha256:…" of the bytes in the ring */
	/* Called from the calling thread, with `source`, when the ring has space again. May be
	 * NULL. */
	void (*drained)(struct image_source *source);
	struct image_source *source;
	const atomic_int *cancel; /* may be NULL */
};

/*
 * Unpacks the layer into `dir`, which must not exist. On failure the caller removes what was
 * written. Reads the ring to its end. Fails with PENSTOCK_E_CANCELLED if the writer of the ring
 * failed (the writer has the reason), and with PENSTOCK_E_CORRUPT if the digest does not match or
 * the data is not a tar.
 */
int layer_unpack(const char *dir, const struct layer_input *input, struct penstock_error *err);

#endif
