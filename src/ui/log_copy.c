#include "ui/log_copy.h"

#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "records/layout.h"
#include "s3/sum/checksum.h"
#include "ui/internal.h"
#include "ui/verb.h"

#define ID_BYTES 16
#define FRESH_NS NS_PER_S
#define READ_MS	 60000

static char *path_of(const struct ui *ui, const char *log)
{
	_cleanup_free_ char *dir = path_join(ui->home, "ui-logs");
	uint8_t digest[CHECKSUM_MAX_SIZE];
	char hex[2 * ID_BYTES + 1];

	if (!dir || fs_mkdirs(dir, 0700, NULL) < 0 ||
		checksum_of(CHECKSUM_SHA256, log, strlen(log), digest, NULL) < 0)
		return NULL;
	str_hex(digest, ID_BYTES, hex);
	return path_join(dir, hex);
}

static int fail(const struct verb_result *result, struct penstock_error *err)
{
	return error_set(err, result->code == 66 ? PENSTOCK_E_NOT_FOUND : PENSTOCK_E_UNAVAILABLE,
		"%s", buf_str(&result->message));
}

static int stored_size(
	const struct ui *ui, const char *log, uint64_t *size, struct penstock_error *err)
{
	_cleanup_(verb_result_release) struct verb_result result = VERB_RESULT_INIT;
	_cleanup_(strlist_release) struct strlist words = {0};
	json_auto_t *list = NULL;
	int r = verb_add(&words, "stat", "--json", NULL) < 0 || verb_add_place(&words, log) < 0
			? error_memory(err)
			: verb_run(&words, READ_MS, &ui->stopping, &result, err);

	if (r < 0)
		return r;
	if (result.code)
		return fail(&result, err);
	list = json_loadb(buf_str(&result.out), result.out.len, 0, NULL);
	*size = (uint64_t)json_integer_value(json_object_get(json_array_get(list, 0), "size"));
	return 0;
}

/* Appends the bytes of the object from offset `have` to `size`. */
static int append(const struct ui *ui, int fd, const char *log, uint64_t have, uint64_t size,
	struct penstock_error *err)
{
	_cleanup_(strlist_release) struct strlist words = {0};
	_cleanup_(buf_release) struct buf message = BUF_INIT(LIMIT_STRING);
	_cleanup_free_ char *block = malloc(64 * KIB);
	struct verb *verb = NULL;
	ssize_t n = 0;
	int code, r;

	if (!block || strlist_add(&words, "cat") < 0 ||
		strlist_addf(&words, "--offset=%" PRIu64, have) < 0 ||
		strlist_addf(&words, "--length=%" PRIu64, size - have) < 0 ||
		verb_add_place(&words, log) < 0)
		return error_memory(err);
	r = verb_open(&verb, &words, &ui->stopping, err);
	if (r < 0)
		return r;
	while (r == 0 && (n = verb_read(verb, block, 64 * KIB)) > 0) {
		if (fs_pwrite_all(fd, block, (size_t)n, (off_t)have) < 0)
			r = error_errno(err, errno, "cannot copy the log");
		have += (uint64_t)n;
	}
	code = r == 0 && n == 0 ? verb_wait(verb, &message) : 0;
	verb_close(verb);
	if (r == 0 && (n < 0 || code))
		r = error_set(err, PENSTOCK_E_UNAVAILABLE, "%s", buf_str(&message));
	return r;
}

static int refresh(
	const struct ui *ui, const char *path, const char *log, struct penstock_error *err)
{
	bool is_new = access(path, F_OK) < 0;
	_cleanup_close_ int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	struct stat st;
	uint64_t size = 0, have;
	int64_t age;
	int r;

	if (fd < 0 || fs_lock_wait(fd, &ui->stopping) != 0 || fstat(fd, &st) < 0)
		return error_errno(err, errno, "cannot open '%s'", path);
	have = (uint64_t)st.st_size;
	age = clock_wall_ns() - st.st_mtim.tv_sec * NS_PER_S;
	/* A negative age means that the clock was set back. */
	if (!is_new && age >= 0 && age < FRESH_NS)
		return 0;
	r = stored_size(ui, log, &size, err);
	/* A log only grows, so a shorter object is a different log. */
	if (r == 0 && size < have) {
		have = 0;
		if (ftruncate(fd, 0) < 0)
			r = error_errno(err, errno, "cannot truncate '%s'", path);
	}
	if (r == 0 && size > have)
		r = append(ui, fd, log, have, size, err);
	/* After a failure the copy gets an old time, so that the next request tries again. */
	futimens(fd, r < 0 ? (const struct timespec[]){{0}, {0}} : NULL);
	return r;
}

char *log_copy(
	struct ui *ui, const char *place, const char *run, int attempt, struct penstock_error *err)
{
	_cleanup_free_ char *log = str_printf("%s" RUN_STATE_ROOT "%s/log/%d", place, run, attempt);
	_cleanup_free_ char *path = log ? path_of(ui, log) : NULL;

	if (!path) {
		error_memory(err);
		return NULL;
	}
	return refresh(ui, path, log, err) < 0 ? NULL : take_pointer(path);
}
