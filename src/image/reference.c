#include "image/reference.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/str.h"

#define HUB	       "registry-1.docker.io"
#define HUB_SHOWN      "docker.io"
#define SHA256	       "sha256:"
#define TAG_CHARACTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"

bool image_digest_is_valid(const char *digest)
{
	if (!str_starts(digest, SHA256))
		return false;
	digest += strlen(SHA256);
	return strspn(digest, "0123456789abcdef") == 64 && digest[64] == '\0';
}

void image_reference_release(struct image_reference *ref)
{
	free(ref->host);
	free(ref->shown_host);
	free(ref->repository);
	free(ref->tag);
	free(ref->digest);
	*ref = (struct image_reference){0};
}

static bool is_hub(const char *host)
{
	static const char *const names[] = {
		"docker.io", "index.docker.io", "registry-1.docker.io", "registry.hub.docker.com"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (strcasecmp(host, names[i]) == 0)
			return true;
	}
	return false;
}

static bool is_loopback(const char *host)
{
	size_t len = *host == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":");

	return (len == 9 && strncasecmp(host, "localhost", 9) == 0) ||
	       (len == 5 && strncmp(host, "[::1]", 5) == 0) ||
	       (str_starts(host, "127.") && strspn(host, "0123456789.") == len);
}

static bool host_is_valid(const char *host)
{
	size_t i = 0;

	if (*host == '[') {
		i = strspn(host + 1, "0123456789abcdefABCDEF:.") + 1;
		if (host[i++] != ']')
			return false;
	} else {
		while (isalnum((unsigned char)host[i]) || (host[i] && strchr("._-", host[i])))
			i++;
	}
	if (i == 0 || strstr(host, "..") || (*host != '[' && !isalnum((unsigned char)*host)))
		return false;
	if (host[i] == ':') {
		uint64_t port;

		return str_to_u64(host + i + 1, 1, 65535, &port);
	}
	return host[i] == '\0';
}

/* Sets the host of the API and its shown name. Takes ownership of `host`. */
static int set_host(struct image_reference *ref, char *host, struct penstock_error *err)
{
	bool hub = is_hub(host);

	if (!host_is_valid(host)) {
		error_set(err, PENSTOCK_E_INVALID,
			"invalid registry '%s'; expected a host such as ghcr.io, with http:// in front "
			"if it has no TLS",
			host);
		free(host);
		return -(int)PENSTOCK_E_INVALID;
	}
	ref->loopback = is_loopback(host);
	if (hub) {
		free(host);
		host = strdup(HUB);
	}
	ref->host = host;
	ref->shown_host = host ? strdup(hub ? HUB_SHOWN : host) : NULL;
	return ref->shown_host ? 0 : error_memory(err);
}

static int set_registry(
	struct image_reference *ref, const char *registry, struct penstock_error *err)
{
	size_t len;
	char *host;

	if (str_starts(registry, "http://")) {
		ref->plain_http = true;
		registry += strlen("http://");
	} else if (str_starts(registry, "https://")) {
		registry += strlen("https://");
	}
	len = strlen(registry);
	while (len > 0 && registry[len - 1] == '/')
		len--;
	host = strndup(registry, len);
	return host ? set_host(ref, host, err) : error_memory(err);
}

/* Returns the length of the host at the start of `text`, or 0 if `text` has no host. */
static size_t host_length(const char *text)
{
	size_t len = strcspn(text, "/");

	return text[len] && (memchr(text, '.', len) || memchr(text, ':', len) ||
				    (len == 9 && strncmp(text, "localhost", 9) == 0))
		       ? len
		       : 0;
}

static bool path_is_valid(const char *path, size_t len)
{
	if (len == 0 || len > 255 || path[0] == '/' || path[len - 1] == '/')
		return false;
	for (size_t i = 0; i < len; i++) {
		bool separator = strchr("/._-", path[i]) != NULL;

		if (!separator && !islower((unsigned char)path[i]) &&
			!isdigit((unsigned char)path[i]))
			return false;
		if (path[i] == '.' && path[i + 1] == '.' && i + 1 < len)
			return false;
		/* Also refuses "." as a component, which would change the meaning of the URL. */
		if (path[i] == '/' && (strchr("/._-", path[i + 1]) || strchr("._-", path[i - 1])))
			return false;
	}
	return isalnum((unsigned char)path[0]) != 0;
}

static int bad(const char *text, const char *why, struct penstock_error *err)
{
	return error_set(err, PENSTOCK_E_INVALID,
		"invalid image name '%s': %s; examples: debian:12, ghcr.io/org/name:tag, "
		"name@sha256:…",
		text, why);
}

/* Splits "path:tag@digest"; `text` is the whole name, for messages. */
static int set_path(
	struct image_reference *ref, const char *path, const char *text, struct penstock_error *err)
{
	size_t len = strcspn(path, "@");
	const char *colon;

	if (path[len] == '@') {
		if (!image_digest_is_valid(path + len + 1))
			return bad(text, "expected sha256: and 64 hexadecimal digits after @", err);
		ref->digest = strdup(path + len + 1);
		if (!ref->digest)
			return error_memory(err);
	}
	colon = memchr(path, ':', len);
	if (colon) {
		const char *tag = colon + 1;
		size_t tag_len = len - (size_t)(tag - path);

		if (tag_len == 0 || tag_len > 128 || *tag == '.' || *tag == '-' ||
			strspn(tag, TAG_CHARACTERS) < tag_len)
			return bad(text, "a tag has letters, digits, '.', '_' and '-'", err);
		ref->tag = strndup(tag, tag_len);
		len = (size_t)(colon - path);
	} else if (!ref->digest) {
		ref->tag = strdup("latest");
	}
	if (!path_is_valid(path, len))
		return bad(text,
			"a path has lower-case letters, digits, '.', '_', '-' and single '/'", err);
	ref->repository = str_printf("%s%.*s",
		strcmp(ref->host, HUB) == 0 && !memchr(path, '/', len) ? "library/" : "", (int)len,
		path);
	return ref->repository && (ref->tag || ref->digest) ? 0 : error_memory(err);
}

static int parse(struct image_reference *ref, const char *text, const char *registry,
	struct penstock_error *err)
{
	const char *path = text;
	size_t host;
	int r;

	if (str_starts(path, "docker://"))
		path += strlen("docker://");
	host = host_length(path);
	if (registry && *registry) {
		r = set_registry(ref, registry, err);
		/* Skip the host in the name if the host is the registry. */
		if (r == 0 && host) {
			_cleanup_free_ char *again = strndup(path, host);

			if (!again)
				return error_memory(err);
			if (strcasecmp(again, ref->host) == 0 ||
				(is_hub(again) && is_hub(ref->host)))
				path += host + 1;
		}
	} else if (host) {
		char *name = strndup(path, host);

		r = name ? set_host(ref, name, err) : error_memory(err);
		path += host + 1;
	} else {
		r = set_registry(ref, HUB, err);
	}
	return r < 0 ? r : set_path(ref, path, text, err);
}

int image_reference_parse(struct image_reference *ref, const char *text, const char *registry,
	struct penstock_error *err)
{
	struct image_reference found = {0};
	int r = parse(&found, text, registry, err);

	if (r < 0)
		image_reference_release(&found);
	else
		*ref = found;
	return r;
}

char *image_reference_name(const struct image_reference *ref)
{
	return str_printf("%s/%s%s%s%s%s", ref->shown_host, ref->repository, ref->tag ? ":" : "",
		ref->tag ? ref->tag : "", ref->digest ? "@" : "", ref->digest ? ref->digest : "");
}
