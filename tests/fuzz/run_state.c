/*
 * Files with the state of runs. The first byte selects the file; the rest is its content. The
 * target inserts values of this machine without which the reader would ignore the rest.
 */
#include <fcntl.h>
#include <jansson.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "records/cgroup.h"
#include "records/claims_dir.h"
#include "records/layout.h"
#include "run/stage/state.h"
#include "yard.h"

/* The parser is a static function of this file. */
#include "run/owner/state.c" /* NOLINT(bugprone-suspicious-include) */

/* state.json next to the output, which another machine wrote. */
static void lease_state(const uint8_t *data, size_t size)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(size + 1);
	struct seen seen = {.pid = 0};

	require(buf_add(&text, data, size) == 0);
	parse(&text, &seen);
	require(memchr(seen.state, '\0', sizeof(seen.state)));
	require(memchr(seen.host, '\0', sizeof(seen.host)));
	require(memchr(seen.boot_id, '\0', sizeof(seen.boot_id)));
	require(memchr(seen.pid_ns, '\0', sizeof(seen.pid_ns)));
	require(seen.term_ms >= 1000 && seen.term_ms <= 600000);
	require(seen.attempt >= 0 && seen.attempt < INT32_MAX);
	free(seen.home);
}

/* A claim of a living process of another user. */
static void claim(const uint8_t *data, size_t size, const char *name)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct claims_dirs dirs = {.fds = {-1, -1}, .locks = {-1, -1}, .paths = {yard}, .own = -1};
	struct claims_scan scan = {.files = NULL};

	yard_write(name, data, size);
	_cleanup_close_ int fd = open(yard_path(name), O_RDONLY | O_CLOEXEC);

	require(fd >= 0 && flock(fd, LOCK_EX) == 0);
	dirs.fds[0] = open(yard, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	require(dirs.fds[0] >= 0);
	int rc = claims_scan_read(&scan, &dirs, false, &err);

	require_error(rc, &err);
	require(scan.n <= 1);
	for (size_t i = 0; i < scan.n; i++) {
		const struct claims_file *file = &scan.files[i];

		require(file->who.pid > 0 && file->who.cpus >= 0 && file->who.gpus >= 0);
		require(strlen(file->who.run_id) <= LIMIT_CLAIM_NAME);
		require(strlen(file->who.name) <= LIMIT_CLAIM_NAME);
		for (const char *p = file->who.name; *p; p++)
			require((unsigned char)*p >= ' ' && *p != 0x7f);
		for (int k = 0; !file->who.waiting && k < file->who.cpus; k++)
			require(file->cpu_list[k] >= 0 && file->cpu_list[k] < CLAIMS_MAX_CPUS);
		for (int k = 0; !file->who.waiting && k < file->who.gpus; k++)
			require(file->gpu_list[k] >= 0);
	}
	claims_scan_release(&scan);
	claims_dirs_release(&dirs);
	require(unlink(yard_path(name)) == 0);
}

static void open_stage(const struct run_layout *layout, struct stage_state *state)
{
	static const char *const ids[] = {
		"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
		"abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789"};
	static const char *const sources[] = {"http://h/a", "s3://b/c"};

	require(stage_state_open(state, layout, ids, sources, 2, NULL) == 0);
}

/* stage.json. The target copies the members that identify this directory and this boot from a file
 * that it has just written. */
static void stage(const uint8_t *data, size_t size)
{
	static const char *const own_keys[] = {"format", "boot", "device", "inode", "birth"};
	_cleanup_(buf_release) struct buf provenance = BUF_INIT(1 * MIB);
	struct run_layout layout;
	struct stage_state state;
	json_t *given = json_loadb((const char *)data, size, 0, NULL);
	json_t *own;

	require(run_layout_init(&layout, yard, "run", 1, NULL) == 0);
	open_stage(&layout, &state);
	own = json_load_file(state.path, 0, NULL);
	require(own);
	for (size_t i = 0; json_is_object(given) && i < ARRAY_SIZE(own_keys); i++)
		json_object_set(given, own_keys[i], json_object_get(own, own_keys[i]));
	for (size_t i = 0; i < 2; i++) {
		json_t *mark = json_array_get(json_object_get(given, "inputs"), i);
		const json_t *wanted = json_array_get(json_object_get(own, "inputs"), i);

		json_object_set(mark, "id", json_object_get(wanted, "id"));
	}
	if (given)
		require(json_dump_file(given, state.path, 0) == 0);
	json_decref(given);
	json_decref(own);
	stage_state_release(&state);

	open_stage(&layout, &state);
	require(state.n == 2);
	for (size_t i = 0; i < state.n; i++) {
		require(memchr(state.marks[i].sha256, '\0', sizeof(state.marks[i].sha256)));
		require(state.marks[i].source);
	}
	require(stage_state_provenance(&state, &provenance, NULL) == 0);
	require(stage_state_set_mode(&state, NULL) == 0);
	unlink(state.path);
	stage_state_release(&state);
	run_layout_release(&layout);
}

/* The first line is /proc/self/cgroup, the second a limit as the kernel writes it. */
static void cgroup(const uint8_t *data, size_t size)
{
	_cleanup_free_ char *text = fuzz_text(data, size);
	struct cgroup_limits limits = {.cpus = 0};
	char *at = text;
	const char *membership = fuzz_line(&at);
	const char *limit = fuzz_line(&at);

	yard_write("cpu.max", limit ? limit : "", limit ? strlen(limit) : 0);
	yard_write("memory.max", limit ? limit : "", limit ? strlen(limit) : 0);
	cgroup_limits_read(yard, membership, &limits);
	require(limits.cpus >= 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 1)
		return 0;
	yard_open();
	switch (data[0] % 5) {
	case 0:
		lease_state(data + 1, size - 1);
		break;
	case 1:
		claim(data + 1, size - 1, "claim-0-1-abc");
		break;
	case 2:
		claim(data + 1, size - 1, "ticket-0000000000000007-0-1-abc");
		break;
	case 3:
		stage(data + 1, size - 1);
		break;
	default:
		cgroup(data + 1, size - 1);
		break;
	}
	return 0;
}
