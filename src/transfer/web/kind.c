/* Detects replies that are not the requested file. */
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/str.h"
#include "transfer/web/internal.h"

/* Bytes within which the first tag of a web page must begin, after blanks and a byte order mark. */
#define PAGE_BYTES 512

static bool ends_with_any(const char *s, const char *const *suffixes)
{
	size_t len = strlen(s);

	for (; *suffixes; suffixes++) {
		size_t n = strlen(*suffixes);

		if (n <= len && strcasecmp(s + len - n, *suffixes) == 0)
			return true;
	}
	return false;
}

/* Returns true if the encoding is the format of the file itself: servers that mistake the suffix of
 * data.tar.gz for an encoding send the file unchanged, with that encoding in the header. */
static bool encoding_is_the_files(const char *encoding, const char *name)
{
	static const char *const gzip[] = {".gz", ".tgz", ".gzip", ".taz", NULL};
	static const char *const compress[] = {".Z", NULL};
	static const char *const bzip2[] = {".bz2", ".tbz", ".tbz2", NULL};
	static const char *const xz[] = {".xz", ".txz", NULL};
	static const char *const zstd[] = {".zst", ".tzst", NULL};
	static const char *const br[] = {".br", NULL};
	static const struct {
		const char *encoding;
		const char *const *suffixes;
	} table[] = {{"gzip", gzip}, {"x-gzip", gzip}, {"compress", compress},
		{"x-compress", compress}, {"bzip2", bzip2}, {"x-bzip2", bzip2}, {"xz", xz},
		{"x-xz", xz}, {"zstd", zstd}, {"br", br}};

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		if (strcasecmp(encoding, table[i].encoding) == 0)
			return ends_with_any(name, table[i].suffixes);
	}
	return false;
}

/* Returns true for names of web pages and other text, and for names without a suffix, which may be
 * of any type. */
static bool may_be_page(const char *path)
{
	static const char *const suffixes[] = {".html", ".htm", ".xhtml", ".shtml", ".mhtml",
		".php", ".asp", ".aspx", ".jsp", ".cgi", ".xml", ".svg", ".md", ".txt", NULL};
	const char *name = path_last(path);

	return !strchr(name, '.') || ends_with_any(name, suffixes);
}

int fetch_check_headers(struct fetch *f, const struct http_reply *reply, struct penstock_error *err)
{
	const char *encoding = http_reply_header(reply, "Content-Encoding");
	const char *type = http_reply_header(reply, "Content-Type");

	atomic_store(
		&f->web_page, type && !may_be_page(f->final_path) &&
				      (strncasecmp(type, "text/html", 9) == 0 ||
					      strncasecmp(type, "application/xhtml", 17) == 0));
	if (!encoding || !*encoding || strcasecmp(encoding, "identity") == 0 ||
		encoding_is_the_files(encoding, f->final_path))
		return 0;
	return error_set(err, PENSTOCK_E_INVALID,
		"the server sends an unrequested Content-Encoding (%.40s); correct the server, "
		"or use a URL of the file itself",
		encoding);
}

bool fetch_is_page(const struct fetch *f)
{
	static const char *const tags[] = {"<!doctype html", "<html"};
	char head[PAGE_BYTES + 1];
	const char *at = head;
	ssize_t n;

	if (!atomic_load(&f->web_page))
		return false;
	n = fs_pread_all(f->fd, head, PAGE_BYTES, 0);
	if (n <= 0)
		return false;
	head[n] = '\0';
	if (str_starts(at, "\xEF\xBB\xBF"))
		at += 3;
	at += strspn(at, " \t\r\n");
	for (size_t i = 0; i < ARRAY_SIZE(tags); i++) {
		if (strncasecmp(at, tags[i], strlen(tags[i])) == 0)
			return true;
	}
	return false;
}

int fetch_page_error(struct penstock_error *err)
{
	return error_set(err, PENSTOCK_E_INVALID,
		"the server sent a web page (text/html) in place of the file; correct the URL "
		"or its credentials (a login or an agreement may be required), or give its "
		"sha256 if you want the page");
}
