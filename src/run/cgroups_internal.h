/* Where control groups are made on this machine, for src/run/cgroup*.c alone. */
#ifndef RUN_CGROUPS_INTERNAL_H
#define RUN_CGROUPS_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf;

enum { CGROUP_MAX_PARTS = 4 };
#define CGROUP_PREFIX "penstock-"

/* One hierarchy of this machine. */
enum cgroup_kind { V1_MEMORY, V1_CPUSET, V1_PIDS, V2 };

struct cgroup_base {
	enum cgroup_kind kind;
	char *dir; /* owned */
	bool memory;
	bool cpus;
	bool pids;
	bool joinable; /* a child of ours was there */
};

/* Found once. Owned by the thread that starts steps. */
struct cgroup_bases {
	const char *mount;
	const char *membership; /* NULL: /proc/self/cgroup */
	struct cgroup_base base[CGROUP_MAX_PARTS];
	size_t n;
	bool found;
	unsigned long made; /* groups */
};
struct cgroup_bases *cgroup_bases(void);

/* ---- the files of a group ---- */

bool cgroup_write(const char *dir, const char *name, const char *value);
/* Without the newline at the end; NULL: it cannot be read. */
const char *cgroup_text(const char *dir, const char *name, struct buf *b);
uint64_t cgroup_number(const char *dir, const char *name);
/* Of a file of lines "name number". */
bool cgroup_field(const char *dir, const char *name, const char *field, uint64_t *out);
/* Whether children of the group can have `controller`; it is turned on where that is allowed. */
bool cgroup_hands_on(const char *dir, const char *controller);

#endif
