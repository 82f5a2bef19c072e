/* Images in files of this machine: archives of layouts, as 'skopeo copy' and 'docker save' write them. */
#ifndef IMAGE_FILE_H
#define IMAGE_FILE_H

#include <stdatomic.h>

struct image_source;
struct penstock_error;

/*
 * Makes a source of the file or directory at `path`. What has to be unpacked for it goes into a directory below
 * `tmp`, whose name is put into `*dir`: the caller's to remove and free, also after a failure; NULL: none.
 */
int file_source(struct image_source **out, const char *path, const char *tmp, char **dir,
	const atomic_int *cancel, struct penstock_error *err);

#endif
