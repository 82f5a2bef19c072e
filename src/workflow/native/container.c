/* `container` of a run, and mounts. */
#include <ctype.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "workflow/native/native.h"

/* ---- the image ---- */

/* Returns the mistake in the name of an image of a registry, for a message; NULL if there is
 * none. */
static const char *name_mistake(const char *name)
{
	const char *at = strchr(name, '@');
	size_t len = at ? (size_t)(at - name) : strlen(name);
	const char *slash = memrchr(name, '/', len);
	const char *colon = memchr(
		slash ? slash : name, ':', len - (size_t)((slash ? slash : name) - name));
	const char *path = memchr(name, '/', len) ? strchr(name, '/') : name;

	if (at && (!str_starts(at, "@sha256:") || strspn(at + 8, "0123456789abcdef") != 64 ||
			  at[8 + 64] != '\0'))
		return "has no valid digest after `@`; a digest is sha256: and 64 hexadecimal digits";
	if (colon) {
		size_t tag = len - (size_t)(colon + 1 - name);

		if (tag == 0 || tag > 128)
			return "has no tag of 1 to 128 characters after `:`";
		if (strspn(colon + 1, LETTERS_AND_DIGITS "._-") < tag)
			return "has a tag with characters other than letters, digits, `.`, `_` and "
			       "`-`";
		len = (size_t)(colon - name);
	}
	if (len == 0)
		return "names no image";
	if (strspn(name, LETTERS_AND_DIGITS "._-:") < (size_t)(path - name) ||
		strspn(path, "abcdefghijklmnopqrstuvwxyz0123456789/._-") <
			len - (size_t)(path - name))
		return "has characters other than lower-case letters, digits, `/`, `.`, `_` and "
		       "`-`";
	if (name[0] == '/' || name[len - 1] == '/' || memmem(name, len, "//", 2))
		return "has an empty part between two `/`";
	return NULL;
}

static void check_image(struct reader *rd, struct workflow_text *image)
{
	const char *mistake = NULL;

	if (!reader_knows(rd, image))
		return;
	if (str_starts(image->value, "docker://"))
		image->value += strlen("docker://");
	if (*image->value == '/') {
		if (str_ends(image->value, ".sif") || str_ends(image->value, ".sqsh") ||
			str_ends(image->value, ".squashfs"))
			mistake = "is a SIF or squashfs file, which is not supported; give the "
				  "image of a registry, or a file of 'skopeo copy … "
				  "oci-archive:FILE' or 'docker save'";
		else if (strstr(image->value, "/../") || str_ends(image->value, "/.."))
			mistake = "must not contain `..`";
	} else {
		mistake = name_mistake(image->value);
	}
	if (mistake)
		reader_error_of(
			rd, &image->at, "image", "%s: %s", mistake, quote(workflow_shown(image)));
}

static void check_registry(struct reader *rd, const struct workflow_container *container)
{
	const struct workflow_text *registry = &container->registry;
	const char *host;
	size_t len;

	if (!reader_knows(rd, registry))
		return;
	host = registry->value;
	if (str_starts(host, "https://"))
		host += strlen("https://");
	else if (str_starts(host, "http://"))
		host += strlen("http://");
	len = strlen(host);
	while (len > 0 && host[len - 1] == '/')
		len--;
	for (size_t i = 0; i < len; i++) {
		if (!isalnum((unsigned char)host[i]) && !strchr(".-:[]", host[i]))
			len = 0;
	}
	if (!len)
		reader_refuse(rd, registry, "registry",
			"be a host such as ghcr.io, with http:// in front if it has no TLS, without "
			"a path, which belongs in `image`");
	else if (container->image.value && *container->image.value == '/')
		reader_note_of(
			rd, &registry->at, "registry", "has no effect on an image that is a file");
}

/* ---- mounts ---- */

static void check_directory(struct reader *rd, const char *key, const struct workflow_text *path)
{
	if (reader_knows(rd, path) && (*path->value != '/' || strstr(path->value, "/../") ||
					      str_ends(path->value, "/..")))
		reader_refuse(rd, path, key, "be an absolute path without `..`");
}

static void check_mount(struct reader *rd, const struct node *map, void *out)
{
	struct workflow_mount *mount = out;

	(void)map;
	check_directory(rd, "hostDir", &mount->host_dir);
	check_directory(rd, "containerDir", &mount->container_dir);
	if (mount->container_dir.value && strcmp(mount->container_dir.value, "/") == 0)
		reader_error_of(
			rd, &mount->container_dir.at, "containerDir", "would hide the whole image");
}

static const char *const mount_words[] = {"rw", "ro", NULL};
static const char *const propagation_words[] = {"rprivate", "rslave", NULL};

static const struct schema_key mount_keys[] = {
	{"hostDir", TEXT(workflow_mount, host_dir), .flags = KEY_REQUIRED | KEY_SHOWN,
		.value = "absolute path", .says = "the path of the directory on this machine"},
	{"containerDir", TEXT(workflow_mount, container_dir), .flags = KEY_REQUIRED | KEY_SHOWN,
		.value = "absolute path", .says = "the path of the directory in the container"},
	{"options", WORD(workflow_mount, read_only, mount_words), .flags = KEY_SHOWN,
		.says = "writable or read-only"},
	{"propagation", WORD(workflow_mount, slave, propagation_words),
		.says = "`rslave`: the container also sees what is later mounted below the "
			"directory; extension"},
};
const struct schema schema_mount = {SCHEMA("mount", "a mount", mount_keys),
	.size = sizeof(struct workflow_mount), AT(workflow_mount, at), .check = check_mount};

/* ---- the container ---- */

static void check_container(struct reader *rd, const struct node *map, void *out)
{
	struct workflow_container *container = out;
	bool username = node_get(map, "username") != NULL;
	bool password = node_get(map, "password") != NULL;

	check_image(rd, &container->image);
	check_registry(rd, container);
	if (username != password)
		reader_missing(rd, map, &schema_container, username ? "password" : "username");
}

static const struct schema_key container_keys[] = {
	{"image", TEXT(workflow_container, image), .flags = KEY_REQUIRED | KEY_SHOWN | KEY_MOVABLE,
		.value = "`NAME[:TAG][@sha256:…]`, or an absolute path",
		.says = "the image that the step runs in; a path names an archive below "
			"`$STORAGE_PATH` or on this machine"},
	{"registry", TEXT(workflow_container, registry), .value = "host",
		.otherwise = "the registry in the image's name, else Docker's",
		.says = "the registry; `http://HOST` if it has no TLS"},
	{"username", TEXT(workflow_container, username),
		.otherwise = "the login of `podman login` or `docker login`",
		.says = "the user at the registry; give `username` and `password`, or neither"},
	{"password", CREDENTIAL(workflow_container, password), .says = "the password of that user"},
	{"apptainer", .kinds = KEY_FLAG, .says = "no effect",
		.note = "has no effect: the image is the same, only the engine differs"},
	{"deepsquareHosted", .kinds = KEY_FLAG, .says = "no effect",
		.note = "has no effect: it asks for a copy on DeepSquare's machines, and penstock "
			"pulls the image from its registry"},
	{"x11", FLAG(workflow_container, x11), .says = "passes the X display of the caller"},
	{"mountHome", FLAG(workflow_container, mount_home),
		.says = "mounts the caller's home directory"},
	{"readOnlyRootFS", FLAG(workflow_container, read_only_root),
		.says = "the root file system of the image is read-only"},
	{"mounts", LIST(workflow_container, mounts, n_mounts, &schema_mount),
		.says = "directories of the machine that are mounted in the container"},
};
const struct schema schema_container = {SCHEMA("container", "`container`", container_keys),
	.given = offsetof(struct workflow_container, given) + 1, AT(workflow_container, at),
	.check = check_container};
