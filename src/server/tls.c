#include "server/tls.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/str.h"

#define KEY_LABEL "PRIVATE KEY-----"

static struct tls_stamp stamp_of(const struct stat *st)
{
	return (struct tls_stamp){st->st_ino, st->st_size, st->st_mtim};
}

static int read_pem(const char *path, const char *label, char **out, struct tls_stamp *stamp,
	struct penstock_error *err)
{
	_cleanup_(buf_wipe) struct buf text = BUF_INIT(LIMIT_CREDENTIALS_FILE);
	struct stat st;
	int rc;

	/* Before it is read, so that a later change is noticed. */
	if (stat(path, &st) < 0)
		return error_errno(err, errno, "cannot read '%s'", path);
	rc = fs_read(path, &text, err);
	if (rc < 0)
		return rc;
	if (!strstr(buf_str(&text), label))
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot use '%s' for TLS: it has no '%s'; expected PEM", path, label);
	*out = strdup(buf_str(&text));
	*stamp = stamp_of(&st);
	if (strcmp(label, KEY_LABEL) == 0 && st.st_mode & S_IROTH)
		log_warn("every user of this machine may read the key in '%s'; run 'chmod 600'",
			path);
	return *out ? 0 : error_memory(err);
}

int tls_load(struct tls **out, const char *cert, const char *key, struct penstock_error *err)
{
	struct tls *tls;
	int rc;

	tls = calloc(1, sizeof(*tls));
	if (!tls)
		return error_memory(err);
	rc = read_pem(cert, "-----BEGIN CERTIFICATE-----", &tls->cert, &tls->cert_stamp, err);
	if (rc == 0)
		rc = read_pem(key, KEY_LABEL, &tls->key, &tls->key_stamp, err);
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

static void note(const char *path, struct tls_stamp *stamp)
{
	struct stat st;

	if (stat(path, &st) == 0)
		*stamp = stamp_of(&st);
}

void tls_note(struct tls *tls, const char *cert, const char *key)
{
	note(cert, &tls->cert_stamp);
	note(key, &tls->key_stamp);
}

/* A missing file is about to be replaced. */
static bool is_other(const char *path, const struct tls_stamp *stamp)
{
	struct tls_stamp now = *stamp;

	note(path, &now);
	return now.ino != stamp->ino || now.size != stamp->size ||
	       now.modified.tv_sec != stamp->modified.tv_sec ||
	       now.modified.tv_nsec != stamp->modified.tv_nsec;
}

bool tls_changed(const struct tls *tls, const char *cert, const char *key)
{
	return is_other(cert, &tls->cert_stamp) || is_other(key, &tls->key_stamp);
}
