#include "server/tls.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/str.h"

#define KEY_LABEL "PRIVATE KEY-----"

static int read_pem(const char *path, const char *label, char **out, struct penstock_error *err)
{
	_cleanup_(buf_wipe) struct buf text = BUF_INIT(LIMIT_CREDENTIALS_FILE);
	int rc = fs_read(path, &text, err);

	if (rc < 0)
		return rc;
	if (!strstr(buf_str(&text), label))
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot use '%s' for TLS: the file has no '%s'; expected PEM", path, label);
	*out = strdup(buf_str(&text));
	if (strcmp(label, KEY_LABEL) == 0)
		fs_warn_readable(path);
	return *out ? 0 : error_memory(err);
}

static struct tls_file look(const char *path)
{
	struct stat st;

	if (stat(path, &st) < 0)
		return (struct tls_file){0};
	return (struct tls_file){st.st_ino, st.st_size, st.st_mtim};
}

struct tls_files tls_look(const char *cert, const char *key)
{
	return (struct tls_files){look(cert), look(key)};
}

int tls_load(struct tls **out, const char *cert, const char *key, struct penstock_error *err)
{
	struct tls *tls;
	int rc;

	tls = calloc(1, sizeof(*tls));
	if (!tls)
		return error_memory(err);
	tls->files = tls_look(cert, key);
	rc = read_pem(cert, "-----BEGIN CERTIFICATE-----", &tls->cert, err);
	if (rc == 0)
		rc = read_pem(key, KEY_LABEL, &tls->key, err);
	if (rc < 0)
		tls_free(tls);
	else
		*out = tls;
	return rc;
}

void tls_free(struct tls *tls)
{
	if (!tls)
		return;
	free(tls->cert);
	str_wipe(tls->key);
	free(tls);
}

bool tls_equal(const struct tls *a, const struct tls *b)
{
	return strcmp(a->cert, b->cert) == 0 && str_equal_secret(a->key, b->key);
}

static bool same(const struct tls_file *a, const struct tls_file *b)
{
	return a->ino == b->ino && a->size == b->size && a->modified.tv_sec == b->modified.tv_sec &&
	       a->modified.tv_nsec == b->modified.tv_nsec;
}

bool tls_files_equal(const struct tls_files *a, const struct tls_files *b)
{
	return same(&a->cert, &b->cert) && same(&a->key, &b->key);
}
