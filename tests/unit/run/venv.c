/* The id of a Python environment. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "run/workdir/venv.h"

/* A fake Python: `-m venv --without-pip OPTION DIR` creates the directory, and pip installs no
 * package. */
#define PYTHON "#!/bin/sh\n[ \"$2\" != venv ] || mkdir -p \"$5\"\n"

static char dir[32];

static void write_file(const char *name, const char *text)
{
	_cleanup_free_ char *path = path_join(dir, name);

	assert_int_equal(0, fs_write_atomic(path, text, strlen(text), 0700, NULL));
}

/* Returns the directory of the environment for requirements.txt. The caller has to free the
 * text. */
static char *environment(void)
{
	_cleanup_free_ char *requirements = path_join(dir, "requirements.txt");
	atomic_int cancel = 0;
	struct venv venv = {0};
	char *found;

	assert_int_equal(0, venv_get(&venv,
				    &(struct venv_spec){
					    .home = dir,
					    .requirements = requirements,
					    .shown = "requirements.txt",
					    .log_fd = STDERR_FILENO,
					    .cancel = &cancel,
				    },
				    NULL));
	found = strdup(venv.dir);
	venv_release(&venv);
	return found;
}

static void a_file_that_is_included_belongs_to_the_id(void **state)
{
	static const char *const lines[] = {"-r base.txt\n", "-rbase.txt\n", "-cbase.txt\n",
		"--requirement=base.txt\n", "--constraint base.txt\n"};
	_cleanup_free_ char *python = NULL;

	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/penstock-venv-XXXXXX");
	assert_non_null(mkdtemp(dir));
	write_file("python", PYTHON);
	python = path_join(dir, "python");
	setenv("PENSTOCK_PYTHON", python, 1);

	for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
		_cleanup_free_ char *first = NULL, *again = NULL, *second = NULL;

		write_file("requirements.txt", lines[i]);
		write_file("base.txt", "a==1\n");
		first = environment();
		again = environment();
		write_file("base.txt", "a==2\n");
		second = environment();

		assert_string_equal(first, again);
		if (strcmp(first, second) == 0)
			fail_msg("%s", lines[i]);
	}
	assert_int_equal(0, fs_remove_tree(dir, NULL));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_file_that_is_included_belongs_to_the_id),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
