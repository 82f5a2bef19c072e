#include "image/manifest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <jansson.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/str.h"
#include "image/reference.h"
#include "s3/sum/checksum.h"

const char *image_architecture(void)
{
#if defined(__x86_64__)
	return "amd64";
#elif defined(__aarch64__)
	return "arm64";
#elif defined(__powerpc64__)
	return "ppc64le";
#elif defined(__s390x__)
	return "s390x";
#elif defined(__riscv)
	return "riscv64";
#elif defined(__i386__)
	return "386";
#else
	return "arm";
#endif
}

static json_t *load_object(
	const char *data, size_t len, const char *what, struct penstock_error *err)
{
	json_error_t where;
	json_t *root = json_loadb(data, len, 0, &where);

	if (root && json_is_object(root))
		return root;
	json_decref(root);
	error_set(err, PENSTOCK_E_PROTOCOL, "%s is not a JSON object", what);
	return NULL;
}

static const char *text_of(const json_t *object, const char *key)
{
	return json_string_value(json_object_get(object, key));
}

/* ---- manifests ---- */

static int read_blob(
	struct image_blob *blob, const json_t *object, const char *what, struct penstock_error *err)
{
	const char *digest = text_of(object, "digest");
	const json_t *size = json_object_get(object, "size");

	if (!digest || !image_digest_is_valid(digest))
		return error_set(err, PENSTOCK_E_PROTOCOL,
			"the manifest names %s without a sha256 digest", what);
	if (!json_is_integer(size) || json_integer_value(size) < 0)
		return error_set(
			err, PENSTOCK_E_PROTOCOL, "the manifest names %s without a size", what);
	snprintf(blob->digest, sizeof(blob->digest), "%s", digest);
	blob->size = (uint64_t)json_integer_value(size);
	return 0;
}

static int read_layer(struct image_blob *layer, const json_t *object, struct penstock_error *err)
{
	const char *type = text_of(object, "mediaType");
	int r = read_blob(layer, object, "a layer", err);

	if (r < 0)
		return r;
	if (!type)
		return error_set(err, PENSTOCK_E_PROTOCOL,
			"the manifest names a layer without a media type");
	/* The compression is detected from the data. */
	if (!str_ends(type, "+gzip") && !str_ends(type, ".gzip") && !str_ends(type, "+zstd") &&
		!str_ends(type, ".tar"))
		return error_set(
			err, PENSTOCK_E_UNSUPPORTED, "unsupported layer type '%.100s'", type);
	return 0;
}

static int read_index(
	struct image_manifest *manifest, const json_t *list, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf platforms = BUF_INIT(4 * KIB);
	size_t i;
	json_t *item;

	manifest->is_index = true;
	json_array_foreach (list, i, item) {
		const json_t *platform = json_object_get(item, "platform");
		const char *os = text_of(platform, "os");
		const char *architecture = text_of(platform, "architecture");
		bool named = os && architecture;

		/* The index of a hand-made layout may have one manifest, without a platform. */
		if ((named && strcmp(os, "linux") == 0 &&
			    strcmp(architecture, image_architecture()) == 0) ||
			(!platform && json_array_size(list) == 1))
			return read_blob(&manifest->config, item, "a manifest", err);
		if (named && strcmp(os, "unknown") != 0)
			buf_printf(&platforms, "%s%.20s/%.20s", platforms.len ? ", " : "", os,
				architecture);
	}
	return error_set(err, PENSTOCK_E_NOT_FOUND,
		"cannot find an image for 'linux/%s': this image is only for %s; build an image "
		"for this machine, or use another image",
		image_architecture(), platforms.len ? buf_str(&platforms) : "unknown platforms");
}

static int read_layers(
	struct image_manifest *manifest, const json_t *list, struct penstock_error *err)
{
	size_t n = json_array_size(list);
	int r = 0;

	if (n > LIMIT_IMAGE_LAYERS)
		return error_set(err, PENSTOCK_E_LIMIT,
			"the image has %zu layers; the maximum is %d", n, LIMIT_IMAGE_LAYERS);
	manifest->layers = calloc(n + 1, sizeof(*manifest->layers));
	if (!manifest->layers)
		return error_memory(err);
	for (size_t i = 0; r == 0 && i < n; i++) {
		r = read_layer(&manifest->layers[i], json_array_get(list, i), err);
		manifest->n_layers++;
	}
	return r;
}

int image_manifest_parse(
	struct image_manifest *manifest, const char *data, size_t len, struct penstock_error *err)
{
	json_auto_t *root = load_object(data, len, "the manifest", err);
	struct image_manifest found = {0};
	const json_t *config, *layers, *list;
	int r;

	if (!root)
		return -(int)PENSTOCK_E_PROTOCOL;
	list = json_object_get(root, "manifests");
	config = json_object_get(root, "config");
	layers = json_object_get(root, "layers");
	if (json_is_array(list)) {
		r = read_index(&found, list, err);
	} else if (json_is_object(config) && json_is_array(layers)) {
		r = read_blob(&found.config, config, "a configuration", err);
		if (r == 0)
			r = read_layers(&found, layers, err);
	} else if (json_is_array(json_object_get(root, "fsLayers"))) {
		r = error_set(err, PENSTOCK_E_UNSUPPORTED,
			"manifest version 1 is obsolete and not supported; push the image again "
			"with a current tool");
	} else {
		r = error_set(err, PENSTOCK_E_PROTOCOL,
			"the manifest has neither layers nor a list of platforms");
	}
	if (r < 0)
		image_manifest_release(&found);
	else
		*manifest = found;
	return r;
}

void image_manifest_release(struct image_manifest *manifest)
{
	free(manifest->layers);
	*manifest = (struct image_manifest){0};
}

/* ---- configurations ---- */

static int read_list(struct strlist *list, const json_t *array, struct penstock_error *err)
{
	size_t i;
	json_t *item;

	if (json_array_size(array) > LIMIT_IMAGE_WORDS)
		return error_set(err, PENSTOCK_E_LIMIT,
			"a list in the image's configuration has more than %d words",
			LIMIT_IMAGE_WORDS);
	json_array_foreach (array, i, item) {
		if (!json_is_string(item))
			return error_set(err, PENSTOCK_E_PROTOCOL,
				"a list in the image's configuration has an item that is not a "
				"string");
		if (strlist_add(list, json_string_value(item)) < 0)
			return error_memory(err);
	}
	return 0;
}

static int copy_text(char **out, const json_t *object, const char *key, struct penstock_error *err)
{
	const char *text = text_of(object, key);

	if (!text || !*text)
		return 0;
	*out = strdup(text);
	return *out ? 0 : error_memory(err);
}

int image_config_parse(
	struct image_config *config, const char *data, size_t len, struct penstock_error *err)
{
	json_auto_t *root = load_object(data, len, "the configuration of the image", err);
	struct image_config found = {0};
	const json_t *run;
	int r;

	if (!root)
		return -(int)PENSTOCK_E_PROTOCOL;
	run = json_object_get(root, "config");
	r = read_list(&found.entrypoint, json_object_get(run, "Entrypoint"), err);
	if (r == 0)
		r = read_list(&found.cmd, json_object_get(run, "Cmd"), err);
	if (r == 0)
		r = read_list(&found.env, json_object_get(run, "Env"), err);
	if (r == 0)
		r = copy_text(&found.working_dir, run, "WorkingDir", err);
	if (r == 0)
		r = copy_text(&found.user, run, "User", err);
	if (r < 0)
		image_config_release(&found);
	else
		*config = found;
	return r;
}

void image_config_release(struct image_config *config)
{
	strlist_release(&config->entrypoint);
	strlist_release(&config->cmd);
	strlist_release(&config->env);
	free(config->working_dir);
	free(config->user);
	*config = (struct image_config){0};
}

/* ---- logging in ---- */

void image_challenge_release(struct image_challenge *challenge)
{
	free(challenge->realm);
	free(challenge->service);
	free(challenge->scope);
	*challenge = (struct image_challenge){0};
}

/* Returns the value at `*p`, quoted or not, and moves `*p` past the value; free() the result. */
static char *take_value(const char **p)
{
	const char *begin = *p;
	size_t len;

	if (*begin == '"') {
		begin++;
		len = strcspn(begin, "\"");
		*p = begin + len + (begin[len] ? 1 : 0);
	} else {
		len = strcspn(begin, ", \t");
		*p = begin + len;
	}
	return strndup(begin, len);
}

bool image_challenge_parse(struct image_challenge *challenge, const char *header)
{
	const char *p = header + strspn(header, " \t");

	*challenge = (struct image_challenge){0};
	if (strncasecmp(p, "Basic", 5) == 0 && (p[5] == ' ' || p[5] == '\0')) {
		challenge->basic = true;
		return true;
	}
	if (strncasecmp(p, "Bearer ", 7) != 0)
		return false;
	p += 7;
	while (*p) {
		const char *name;
		size_t len;
		char **place = NULL;
		char *value;

		p += strspn(p, ", \t");
		name = p;
		len = strcspn(p, "=, \t");
		p += len;
		if (*p != '=')
			continue;
		p++;
		value = take_value(&p);
		if (len == 5 && strncasecmp(name, "realm", len) == 0)
			place = &challenge->realm;
		else if (len == 7 && strncasecmp(name, "service", len) == 0)
			place = &challenge->service;
		else if (len == 5 && strncasecmp(name, "scope", len) == 0)
			place = &challenge->scope;
		if (place && !*place)
			*place = value;
		else
			free(value);
	}
	if (challenge->realm)
		return true;
	image_challenge_release(challenge);
	return false;
}

char *image_token_parse(const char *data, size_t len)
{
	json_auto_t *root = json_loadb(data, len, 0, NULL);
	const char *token = text_of(root, "token");

	if (!token || !*token)
		token = text_of(root, "access_token");
	for (const char *c = token ? token : ""; *c; c++) {
		if ((unsigned char)*c <= ' ' || *c == 0x7F)
			return NULL;
	}
	return token && *token ? strdup(token) : NULL;
}

/* ---- login files ---- */

void image_login_release(struct image_login *login)
{
	free(login->username);
	if (login->password)
		explicit_bzero(login->password, strlen(login->password));
	free(login->password);
	free(login->helper);
	*login = (struct image_login){0};
}

static bool is_host(const char *key, size_t len, const char *host)
{
	return strlen(host) == len && strncasecmp(key, host, len) == 0;
}

/* Returns true if a key of a login file names the registry at `host`, or a prefix of the repository
 * `path` in that registry. Keys may be URLs, or hosts with a path. */
static bool key_matches(const char *key, const char *host, const char *path)
{
	size_t len;

	if (strncmp(key, "https://", 8) == 0)
		key += 8;
	else if (strncmp(key, "http://", 7) == 0)
		key += 7;
	len = strcspn(key, "/");
	if (strcmp(host, "registry-1.docker.io") == 0) {
		if (!is_host(key, len, "index.docker.io") && !is_host(key, len, "docker.io") &&
			!is_host(key, len, host))
			return false;
	} else if (!is_host(key, len, host)) {
		return false;
	}
	key += len;
	if (*key == '/')
		key++;
	len = strlen(key);
	/* A key such as "https://index.docker.io/v1/" names the host itself, not a repository. */
	return len == 0 || strcmp(key, "v1/") == 0 || strcmp(key, "v2/") == 0 ||
	       (strncmp(key, path, len) == 0 && (path[len] == '/' || path[len] == '\0'));
}

static int take_auth(struct image_login *login, const json_t *entry, struct penstock_error *err)
{
	const char *auth = text_of(entry, "auth");
	_cleanup_(buf_wipe) struct buf pair = BUF_INIT(LIMIT_IMAGE_LOGIN);
	char *colon = NULL;

	if (auth && base64_decode(&pair, auth, strlen(auth)) == 0 && pair.len)
		colon = strchr(pair.data, ':');
	if (colon) {
		*colon = '\0';
		login->username = strdup(pair.data);
		login->password = strdup(colon + 1);
	}
	if (!colon)
		return 0;
	if (login->username && login->password)
		return 1;
	image_login_release(login);
	return error_memory(err);
}

/* Returns the entry with the longest key that names the registry or a prefix of the repository. */
static const json_t *find_entry(json_t *entries, const char *host, const char *path)
{
	const json_t *best = NULL;
	const char *key;
	json_t *value;
	size_t length = 0;

	json_object_foreach (entries, key, value) {
		if (!key_matches(key, host, path) || (best && strlen(key) < length))
			continue;
		best = value;
		length = strlen(key);
	}
	return best;
}

int image_login_parse(struct image_login *login, const char *data, size_t len, const char *host,
	const char *repository, struct penstock_error *err)
{
	json_auto_t *root = load_object(data, len, "the file", err);
	const json_t *entry;
	const char *helper;
	int r;

	*login = (struct image_login){0};
	if (!root)
		return -(int)PENSTOCK_E_PROTOCOL;
	entry = find_entry(json_object_get(root, "auths"), host, repository);
	r = take_auth(login, entry, err);
	if (r != 0)
		return r;
	helper = json_string_value(
		find_entry(json_object_get(root, "credHelpers"), host, repository));
	login->named = helper || entry;
	/* The default helper may have logins for registries that the file does not list, as Amazon
	 * ECR's helper does. */
	if (!helper)
		helper = text_of(root, "credsStore");
	/* The name of the helper becomes part of the name of a program, so allow only safe
	 * characters. */
	if (!helper || !*helper ||
		helper[strspn(helper,
			"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")])
		return 0;
	login->helper = strdup(helper);
	return login->helper ? 1 : error_memory(err);
}
