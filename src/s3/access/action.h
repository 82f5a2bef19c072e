/* The actions of S3 that a policy may name. Internal to src/s3/access. */
#ifndef S3_ACCESS_ACTION_H
#define S3_ACCESS_ACTION_H

#include <stdbool.h>

struct pattern;

/* Returns true if a pattern such as "s3:Get*" matches an action of S3. */
bool action_is_known(const struct pattern *pattern);

#endif
