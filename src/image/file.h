/* Images in files of this machine: archives of layouts, as 'skopeo copy' and 'docker save' write them. */
#ifndef IMAGE_FILE_H
#define IMAGE_FILE_H

struct image_scratch;
struct image_source;
struct image_store;
struct penstock_error;

/* Makes a source of the file or directory at `path`. What has to be unpacked for it goes to `scratch`. */
int file_source(struct image_source **out, const char *path, const struct image_store *store,
	struct image_scratch *scratch, struct penstock_error *err);

#endif
