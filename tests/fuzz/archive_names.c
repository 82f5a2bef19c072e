/*
 * Names of members and targets of links, without an archive around them. Each line is a letter
 * (d, f, l or h) and a name; for links a tab and the target follow.
 */
#include "fuzz.h"

#include <dirent.h>
#include <unistd.h>

#include "archive/decode.h"
#include "archive/detect.h"
#include "archive/tree.h"
#include "archive/unpack.h"
#include "base/fs.h"

static char yard[] = "/dev/shm/penstock-fuzz-XXXXXX";
static char in[64];
static bool made;

static void remove_yard(void)
{
	fs_remove_tree(yard, NULL);
}

static void make_yard(void)
{
	if (!made) {
		require(mkdtemp(yard));
		atexit(remove_yard);
		snprintf(in, sizeof(in), "%s/in", yard);
		made = true;
	}
	require(fs_mkdirs(in, 0700, NULL) == 0);
}

static size_t entries_of(const char *dir)
{
	DIR *d = opendir(dir);
	size_t n = 0;

	require(d);
	for (struct dirent *e; (e = readdir(d));)
		n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
	closedir(d);
	return n;
}

static void add_member(struct tree *tree, char *line)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	char *tab = strchr(line, '\t');
	int rc = 0;

	if (tab)
		*tab = '\0';
	const char *name = line + 1;
	const char *target = tab ? tab + 1 : "";

	switch (line[0]) {
	case 'd':
		rc = tree_directory(tree, name, 0755, NULL, &err);
		break;
	case 'l':
		rc = tree_symlink(tree, name, target, NULL, &err);
		break;
	case 'h':
		rc = tree_hardlink(tree, name, target, &err);
		break;
	case 'f':
		rc = tree_file_begin(tree, name, 0644, &err);
		if (rc == 0)
			rc = tree_file_write(tree, name, "text", 4, 0, &err);
		if (rc == 0)
			rc = tree_file_end(tree, name, 0, NULL, &err);
		break;
	default:
		break;
	}
	require_error(rc, &err);
}

static void names(char *text)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct tree_options options = {.archive = "a.tar", .max_bytes = 1 * MIB, .max_members = 64};
	struct tree tree;

	make_yard();
	require(tree_init(&tree, in, &options, &err) == 0);
	for (char *line; (line = fuzz_line(&text));) {
		if (*line)
			add_member(&tree, line);
	}
	/* Nothing was created next to the directory, and the only entry in it is the tree's own
	 * directory. */
	require(entries_of(yard) == 1);
	require(entries_of(in) == 1);
	require_error(tree_commit(&tree, &err), &err);
	tree_release(&tree);
	require(entries_of(yard) == 1);
	require(fs_remove_tree(in, NULL) == 0);
}

static void detection(const uint8_t *data, size_t size, const char *text)
{
	enum archive_kind kind = archive_detect(data, size, text);
	_cleanup_free_ char *stored = decode_gzip_name(data, size);
	_cleanup_free_ char *single = archive_single_name(text, kind, stored);

	require(archive_kind_name(kind));
	require(!single || (*single && !strchr(single, '/')) || strchr(text, '/'));
	archive_is_tar(data, size, text);
	archive_is_torch_zip(data, size);
	unpack_keeps_whole(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_free_ char *text = fuzz_text(data, size);

	detection(data, size, text);
	names(text);
	return 0;
}
