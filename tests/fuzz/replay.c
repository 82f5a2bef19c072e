/*
 * Runs a fuzz target on files. Each argument is a file or a directory of files.
 *
 *	replay-uri tests/fuzz/corpus/uri
 *
 * Fails if there is no file.
 */
#include <dirent.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "fuzz.h"

#define LARGEST (1 * MIB) /* bytes of one input */

static unsigned runs;

static int run_file(const char *path)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_(buf_release) struct buf data = BUF_INIT(LARGEST);
	_cleanup_free_ uint8_t *copy = NULL;

	if (fs_read(path, &data, &err) < 0) {
		fprintf(stderr, "%s\n", err.message);
		return -1;
	}
	copy = malloc(data.len ? data.len : 1);
	require(copy);
	if (data.len)
		memcpy(copy, data.data, data.len);
	/* Print the input before the run, which may crash. */
	fprintf(stderr, "%s\n", path);
	LLVMFuzzerTestOneInput(copy, data.len);
	runs++;
	return 0;
}

static int run_path(const char *path)
{
	struct dirent **names = NULL;
	struct stat st;
	int rc = 0;

	if (stat(path, &st) < 0) {
		perror(path);
		return -1;
	}
	if (!S_ISDIR(st.st_mode))
		return run_file(path);
	int n = scandir(path, &names, NULL, alphasort);

	for (int i = 0; i < n; i++) {
		_cleanup_free_ char *file = path_join(path, names[i]->d_name);

		if (rc == 0 && names[i]->d_name[0] != '.')
			rc = file ? run_file(file) : -1;
		free(names[i]);
	}
	free(names);
	return n < 0 ? -1 : rc;
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		if (run_path(argv[i]) < 0)
			return 1;
	}
	printf("%u inputs\n", runs);
	return runs == 0;
}
