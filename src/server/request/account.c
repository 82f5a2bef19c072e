#include "server/request/account.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/log.h"
#include "s3/sign/sigv4.h"

#define ID_VARIABLE	"PENSTOCK_ACCESS_KEY_ID"
#define SECRET_VARIABLE "PENSTOCK_SECRET_ACCESS_KEY"

void account_release(struct account *account)
{
	if (account->secret_access_key)
		explicit_bzero(account->secret_access_key, strlen(account->secret_access_key));
	free(account->access_key_id);
	free(account->secret_access_key);
	*account = (struct account){0};
}

static int account_set(
	struct account *out, const char *id, const char *secret, struct penstock_error *err)
{
	out->access_key_id = strdup(id);
	out->secret_access_key = strdup(secret);
	if (out->access_key_id && out->secret_access_key && log_redact(secret) == 0)
		return 0;
	account_release(out);
	return error_memory(err);
}

/* Returns 1 if the keys were found, 0 if they are not set. */
static int from_environment(struct account *out, struct penstock_error *err)
{
	const char *id = getenv(ID_VARIABLE);
	const char *secret = getenv(SECRET_VARIABLE);

	if (!id && !secret)
		return 0;
	if (!id || !secret || !*id || !*secret)
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot use the keys of the environment: %s and %s must both be set and "
			"not empty; set both, or neither",
			ID_VARIABLE, SECRET_VARIABLE);
	if (strlen(id) > SIGV4_ACCESS_KEY_MAX)
		return error_set(err, PENSTOCK_E_LIMIT,
			"cannot use the keys of the environment: %s is longer than %d bytes",
			ID_VARIABLE, SIGV4_ACCESS_KEY_MAX);
	out->from_environment = true;
	return account_set(out, id, secret, err) < 0 ? -PENSTOCK_E_MEMORY : 1;
}

/* Returns the value of the first "name = value" in the file, in any profile, or NULL if there is
 * none; free() it. */
static char *file_value(char *text, const char *name)
{
	size_t len = strlen(name);

	for (char *line = text; line; line = strchr(line, '\n')) {
		char *end;

		line += *line == '\n';
		if (strncmp(line, name, len) != 0)
			continue;
		line += len;
		line += strspn(line, " \t");
		if (*line++ != '=')
			continue;
		line += strspn(line, " \t");
		end = strchrnul(line, '\n');
		while (end > line && strchr(" \t\r", end[-1]))
			end--;
		return strndup(line, (size_t)(end - line));
	}
	return NULL;
}

static int from_file(struct account *out, const char *path, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_CREDENTIALS_FILE);
	_cleanup_free_ char *id = NULL, *secret = NULL;
	int rc = fs_read(path, &text, err);

	if (rc < 0)
		return rc;
	fs_warn_readable(path);
	if (text.data) {
		id = file_value(text.data, "aws_access_key_id");
		secret = file_value(text.data, "aws_secret_access_key");
		explicit_bzero(text.data, text.len);
	}
	if (!id || !secret || !*id || !*secret)
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot read the keys in '%s': aws_access_key_id or aws_secret_access_key "
			"is missing; remove the file to generate new keys",
			path);
	return account_set(out, id, secret, err);
}

/* Generates `n` characters of the alphabet, which has 64 or 32 characters, so there is no bias. */
static int draw(char *out, size_t n, const char *alphabet)
{
	unsigned char random[64];
	size_t size = strlen(alphabet);

	if (n > sizeof(random) || getrandom(random, n, 0) != (ssize_t)n)
		return -1;
	for (size_t i = 0; i < n; i++)
		out[i] = alphabet[random[i] % size];
	out[n] = '\0';
	return 0;
}

static int make_file(const char *path, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_CREDENTIALS_FILE);
	char id[21] = "PSTK", secret[41];
	int rc;

	if (draw(id + 4, 16, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") < 0 ||
		draw(secret, 40,
			"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/") < 0)
		return error_set(err, PENSTOCK_E_INTERNAL, "cannot generate keys");
	buf_printf(&text,
		"# Keys of this object store, made by penstock. Other tools read them with\n"
		"# AWS_SHARED_CREDENTIALS_FILE=<this file>.\n"
		"[default]\n"
		"aws_access_key_id = %s\n"
		"aws_secret_access_key = %s\n",
		id, secret);
	rc = buf_failed(&text) ? buf_error(&text, path, err)
			       : fs_write_atomic(path, text.data, text.len, 0600, err);
	explicit_bzero(secret, sizeof(secret));
	explicit_bzero(text.data, text.len);
	return rc;
}

int account_load(struct account *out, const char *root, bool create, struct penstock_error *err)
{
	_cleanup_free_ char *path = path_join(root, "credentials");
	int rc;

	*out = (struct account){0};
	if (!path)
		return error_memory(err);
	rc = from_environment(out, err);
	if (rc != 0)
		return rc < 0 ? rc : 0;
	if (create && access(path, F_OK) < 0 && errno == ENOENT) {
		rc = make_file(path, err);
		if (rc < 0)
			return rc;
	}
	return from_file(out, path, err);
}
