/* The directories of this machine in which control groups can be made; only for cgroups.c and
 * cgroup_bases.c. */
#ifndef RUN_PROCESS_CGROUPS_INTERNAL_H
#define RUN_PROCESS_CGROUPS_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf;

enum { CGROUP_MAX_PARTS = 4 };
#define CGROUP_PREFIX "penstock-"

/* A kind of hierarchy of control groups. */
enum cgroup_kind { V1_MEMORY, V1_CPUSET, V1_PIDS, V2 };

struct cgroup_base {
	enum cgroup_kind kind;
	char *dir; /* owned */
	bool memory;
	bool cpus;
	bool pids;
	bool joinable; /* one of our children has joined a group below `dir` */
};

/* Determined once. Owned by the thread that starts steps. */
struct cgroup_bases {
	const char *mount;
	const char *membership; /* NULL for /proc/self/cgroup */
	struct cgroup_base base[CGROUP_MAX_PARTS];
	size_t n;
	bool found;
	unsigned long made; /* number of groups made so far */
};
struct cgroup_bases *cgroup_bases(void);

/* ---- the files of a group ---- */

bool cgroup_write(const char *dir, const char *name, const char *value);
/* Reads a file, without the newline at its end. Returns NULL if the file cannot be read. */
const char *cgroup_text(const char *dir, const char *name, struct buf *b);
uint64_t cgroup_number(const char *dir, const char *name);
/* Reads the number of `field` from a file of lines "name number". */
bool cgroup_field(const char *dir, const char *name, const char *field, uint64_t *out);
/* Returns true if children of the group can have `controller`; enables it if that is allowed. */
bool cgroup_delegates(const char *dir, const char *controller);

#endif
