#include "transfer/client/google.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/str.h"
#include "s3/sum/checksum.h"

/* No object ever has this generation. A condition on an ETag that is not a generation is sent with
 * this number, and so matches no object. */
#define NO_GENERATION	"1"
#define GENERATION_NAME "x-goog-if-generation-match"

bool google_is_host(const char *authority)
{
	size_t len = strcspn(authority, ":");
	const char *const name = "storage.googleapis.com";

	return len == strlen(name) && strncasecmp(authority, name, len) == 0;
}

/* ---- requests ---- */

static const char *keep(
	struct strlist *owned, const char *prefix, const char *text, size_t len, bool *no_memory)
{
	*no_memory = strlist_addf(owned, "%s%.*s", prefix, (int)len, text) < 0;
	return *no_memory ? "" : owned->items[owned->n - 1];
}

/* Converts an ETag such as "\"1700000000000001\"" to 1700000000000001, others to NO_GENERATION. */
static const char *generation_of(const char *etag, struct strlist *owned, bool *no_memory)
{
	bool quoted = *etag == '"';
	const char *digits = etag + quoted;
	size_t len = strspn(digits, "0123456789");
	char text[24];
	uint64_t number;

	if (len == 0 || len >= sizeof(text) || strcmp(digits + len, quoted ? "\"" : "") != 0)
		return NO_GENERATION;
	memcpy(text, digits, len);
	text[len] = '\0';
	if (!str_to_u64(text, 1, INT64_MAX, &number))
		return NO_GENERATION;
	return keep(owned, "", text, len, no_memory);
}

bool google_header(const char *method, const struct sigv4_header *in, struct sigv4_header *out,
	struct strlist *owned, bool *no_memory)
{
	static const struct {
		const char *s3, *google;
	} same[] = {{"x-amz-storage-class", "x-goog-storage-class"},
		{"x-amz-copy-source", "x-goog-copy-source"},
		{"x-amz-metadata-directive", "x-goog-metadata-directive"}};
	static const char meta[] = "x-amz-meta-";

	*no_memory = false;
	*out = *in;
	if (strcasecmp(in->name, "if-match") == 0) {
		out->name = GENERATION_NAME;
		out->value = generation_of(in->value, owned, no_memory);
	} else if (strcasecmp(in->name, "x-amz-copy-source-if-match") == 0) {
		out->name = "x-goog-copy-source-if-generation-match";
		out->value = generation_of(in->value, owned, no_memory);
	} else if (strcasecmp(in->name, "if-none-match") == 0) {
		out->name = GENERATION_NAME;
		out->value = "0";
	} else if (strcasecmp(in->name, "x-amz-checksum-crc32c") == 0) {
		out->name = "x-goog-hash";
		out->value = keep(owned, "crc32c=", in->value, strlen(in->value), no_memory);
		/* The Complete of a multipart upload takes no checksum; the object is verified
		 * afterwards. */
		return strcmp(method, "PUT") == 0 && !*no_memory;
	} else if (strcasecmp(in->name, "expires") == 0) {
		/* Google ignores this header, and the signature would not match. */
		return false;
	} else if (strncasecmp(in->name, meta, strlen(meta)) == 0) {
		out->name = keep(owned, "x-goog-meta-", in->name + strlen(meta),
			strlen(in->name) - strlen(meta), no_memory);
	} else if (strncasecmp(in->name, "x-amz-", 6) == 0) {
		for (size_t i = 0; i < ARRAY_SIZE(same); i++) {
			if (strcasecmp(in->name, same[i].s3) == 0) {
				out->name = same[i].google;
				return true;
			}
		}
		return false;
	}
	return !*no_memory;
}

int google_refuse_versions(struct penstock_error *err)
{
	return error_set(err, PENSTOCK_E_UNSUPPORTED,
		"objects of gs:// have generations in place of versions; use 'gcloud storage'");
}

/* ---- replies ---- */

/* Finds the value after `kind` ("crc32c=", "md5=") in the x-goog-hash headers, which may be several
 * or one list. Returns the length of the value; 0 if it is missing. */
static size_t hash_of(const struct http_reply *reply, const char *kind, const char **value)
{
	static const char name[] = "x-goog-hash:";
	size_t kind_len = strlen(kind);

	for (size_t i = 0; i < reply->headers.n; i++) {
		const char *at = reply->headers.items[i];

		if (strncasecmp(at, name, strlen(name)) != 0)
			continue;
		for (at += strlen(name); *at; at += strcspn(at, ","), at += *at == ',') {
			at += strspn(at, " \t");
			if (strncasecmp(at, kind, kind_len) == 0) {
				*value = at + kind_len;
				return strcspn(*value, ", \t");
			}
		}
	}
	return 0;
}

bool google_reply_md5(const struct http_reply *reply, uint8_t md5[static 16])
{
	uint8_t digest[CHECKSUM_MAX_SIZE];
	char text[CHECKSUM_TEXT_SIZE];
	const char *value = NULL;
	size_t len = hash_of(reply, "md5=", &value);

	if (!len || len >= sizeof(text))
		return false;
	memcpy(text, value, len);
	text[len] = '\0';
	if (!checksum_parse(CHECKSUM_MD5, text, digest))
		return false;
	memcpy(md5, digest, 16);
	return true;
}

/* Adds "x-amz-meta-a: b" for each header "x-goog-meta-a: b". */
static int add_metadata(struct http_reply *reply)
{
	static const char name[] = "x-goog-meta-";
	size_t n = reply->headers.n;

	for (size_t i = 0; i < n; i++) {
		const char *line = reply->headers.items[i];

		if (strncasecmp(line, name, strlen(name)) == 0 &&
			strlist_addf(&reply->headers, "x-amz-meta-%s", line + strlen(name)) < 0)
			return -1;
	}
	return 0;
}

static int put_generation(struct http_reply *reply, const char *generation)
{
	for (size_t i = 0; i < reply->headers.n; i++) {
		if (strncasecmp(reply->headers.items[i], "ETag:", 5) == 0) {
			char *line = str_printf("ETag: \"%s\"", generation);

			if (!line)
				return -1;
			free(reply->headers.items[i]);
			reply->headers.items[i] = line;
			return 0;
		}
	}
	return strlist_addf(&reply->headers, "ETag: \"%s\"", generation);
}

int google_reply(struct http_reply *reply, struct penstock_error *err)
{
	const char *generation = http_reply_header(reply, "x-goog-generation");
	const char *value = NULL;
	size_t len = hash_of(reply, "crc32c=", &value);
	uint64_t number;
	int r = 0;

	if (len)
		r = strlist_addf(
			&reply->headers, "%s: %.*s", "x-amz-checksum-crc32c", (int)len, value);
	/* `generation` is still valid: strlist_addf() may move the list, but not its strings.
	 * Accept only digits, because later requests contain the generation. */
	if (r == 0 && generation && str_to_u64(generation, 1, INT64_MAX, &number))
		r = put_generation(reply, generation);
	if (r == 0)
		r = add_metadata(reply);
	return r < 0 ? error_memory(err) : 0;
}
