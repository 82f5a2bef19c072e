/*
 * Limits of the resources that all runs of one user claim together: `limits` of
 * /etc/penstock/config.yaml ($PENSTOCK_SYSTEM_CONFIG) and of ~/.config/penstock/config.yaml
 * ($PENSTOCK_CONFIG); the lower limit counts.
 *
 *	limits:
 *	  ann: {cpus: 8, memory: 32GiB, gpus: 1, runs: 2}
 *	  "*": {cpus: 4}
 *
 * `images` of both files limits the disk space for all images that a user keeps; again the lower
 * limit counts:
 *
 *	images: {maxSize: 50GiB}
 */
#ifndef RUN_CONFIG_USER_LIMITS_H
#define RUN_CONFIG_USER_LIMITS_H

#include <stdint.h>
#include <sys/types.h>

#include "records/claims.h"

struct node;
struct penstock_error;

/* One of the two files, while it is read. */
struct user_config {
	const char *path;
	const char *user; /* name of the user */
	struct penstock_error *err;
};
/* Calls `take` with the root of the administrator's file, then of the user's, unless the file is
 * missing or empty. Returns -PENSTOCK_E_INVALID if a file is invalid or has an unknown key; the
 * message has the file and the line. Else returns the error of `take`. */
int user_config_read(int (*take)(const struct user_config *c, const struct node *root, void *out),
	void *out, struct penstock_error *err);
/* Sets an error with the file, line and column of the node; returns -PENSTOCK_E_INVALID. */
int user_config_wrong(const struct user_config *c, const struct node *node, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Reads the limits of the calling user. Returns -PENSTOCK_E_INVALID as user_config_read() does. */
int user_limits_read(struct claim_limits *out, struct penstock_error *err);
/* Reads the limits of any user. For a user other than the caller, reads only the administrator's
 * file. */
int user_limits_of(uid_t uid, struct claim_limits *out, struct penstock_error *err);

/* Reads the limit of the disk space for images, in bytes; UINT64_MAX if there is no limit. Returns
 * -PENSTOCK_E_INVALID as user_config_read() does. */
int user_images_bound(uint64_t *out, struct penstock_error *err);

/* Return the path of the user's file (the caller frees it; NULL if out of memory) and of the
 * administrator's. */
char *user_config_path(void);
const char *system_config_path(void);

#endif
