/*
 * What one user's runs may claim of this machine together: `limits` of /etc/penstock/config.yaml
 * ($PENSTOCK_SYSTEM_CONFIG) and of ~/.config/penstock/config.yaml ($PENSTOCK_CONFIG), the lower of both.
 *
 *	limits:
 *	  ann: {cpus: 8, memory: 32GiB, gpus: 1, runs: 2}
 *	  "*": {cpus: 4}
 *
 * And what all images of containers that a user keeps may take on disk, the lower of both as well:
 *
 *	images: {maxSize: 50GiB}
 */
#ifndef RUN_USER_LIMITS_H
#define RUN_USER_LIMITS_H

#include <stdint.h>

#include "records/claims.h"

struct penstock_error;

/* Of the calling user. PENSTOCK_E_INVALID: a file is wrong; the message says where. */
int user_limits_read(struct claim_limits *out, struct penstock_error *err);

/* UINT64_MAX: any size. PENSTOCK_E_INVALID as above. */
int user_images_bound(uint64_t *out, struct penstock_error *err);

/* The two files; that of the user (owned, NULL: no memory) and that of the administrator. */
char *user_config_path(void);
const char *system_config_path(void);

#endif
