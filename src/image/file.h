/*
 * Images in local files: archived OCI layouts as 'skopeo copy' writes them, and 'docker save'
 * archives.
 */
#ifndef IMAGE_FILE_H
#define IMAGE_FILE_H

struct image_scratch;
struct image_source;
struct image_store;
struct penstock_error;

/* Opens the image file or layout directory at `path`. Archives are unpacked into `scratch`. */
int file_source(struct image_source **out, const char *path, const struct image_store *store,
	struct image_scratch *scratch, struct penstock_error *err);

#endif
