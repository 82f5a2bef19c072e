#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include <penstock/error.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/str.h"
#include "records/records.h"

int records_home(char **home, struct penstock_error *err)
{
	_cleanup_free_ char *path = home_path(), *text = path ? strdup(path) : NULL;
	int r;

	if (!text)
		return error_memory(err);
	str_make_utf8(text);
	if (strcmp(text, path) != 0)
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot keep runs and records in '%s': the path is not UTF-8; set "
			"PENSTOCK_HOME to another directory",
			text);
	r = fs_mkdirs(path, 0700, err);
	if (r < 0) {
		error_suffix(err, "; set PENSTOCK_HOME to a writable directory");
		return r;
	}
	*home = take_pointer(path);
	return 0;
}

/* Reads the id of a home. Returns 1 if the id is valid, 0 if it is missing or invalid. */
static int read_id(
	const char *path, char id[static RECORDS_HOME_ID_SIZE], struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(64);
	_cleanup_error_ struct penstock_error e = PENSTOCK_ERROR_INIT;
	unsigned char raw[(RECORDS_HOME_ID_SIZE - 1) / 2];
	int r = fs_read_plain(path, &text, &e);

	if (r == -(int)PENSTOCK_E_NOT_FOUND || r == -(int)PENSTOCK_E_LIMIT)
		return 0;
	if (r < 0)
		return error_move(err, &e);
	if (text.len != RECORDS_HOME_ID_SIZE - 1 || str_unhex(buf_str(&text), raw, sizeof(raw)) < 0)
		return 0;
	memcpy(id, buf_str(&text), RECORDS_HOME_ID_SIZE);
	return 1;
}

int records_home_id(
	const char *home, char id[static RECORDS_HOME_ID_SIZE], struct penstock_error *err)
{
	_cleanup_free_ char *path = path_join(home, "id"), *fresh = NULL;
	unsigned char raw[(RECORDS_HOME_ID_SIZE - 1) / 2];
	int r;

	if (!path)
		return error_memory(err);
	r = read_id(path, id, err);
	if (r != 0)
		return r < 0 ? r : 0;
	if (getrandom(raw, sizeof(raw), 0) != sizeof(raw))
		return error_errno(err, errno, "cannot get random numbers");
	str_hex(raw, sizeof(raw), id);
	/* The temporary name has the new id instead of our pid, because a process on another
	 * machine that shares this home may have the same pid. */
	fresh = str_printf("%s/.id-%s", home, id);
	if (!fresh)
		return error_memory(err);
	r = fs_write_atomic(fresh, id, RECORDS_HOME_ID_SIZE - 1, 0600, err);
	if (r < 0)
		return r;
	if (fs_rename_new(fresh, path) == 0)
		return 0;
	/* Another process has created the id, or the existing id is invalid. An invalid id is
	 * replaced, because no state can refer to it. */
	r = read_id(path, id, err);
	if (r == 0 && rename(fresh, path) < 0)
		r = error_errno(err, errno, "cannot write '%s'", path);
	unlink(fresh);
	return r < 0 ? r : 0;
}
