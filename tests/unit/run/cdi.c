/* Changes of a container's configuration for GPUs, from files of the Container Device Interface. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include <penstock/error.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "run/step/containers.h"
#include "run/task/cdi.h"

static const char yaml[] = "cdiVersion: 0.5.0\n"
			   "kind: nvidia.com/gpu\n"
			   "containerEdits:\n"
			   "  env: [SHARED=1]\n"
			   "  mounts:\n"
			   "    - hostPath: /usr/lib/driver.so\n"
			   "      containerPath: /usr/lib/driver.so\n"
			   "      options: [ro, nosuid, bind]\n"
			   "  hooks:\n"
			   "    - hookName: createContainer\n"
			   "      path: /usr/bin/hook\n"
			   "      args: [hook, ldcache]\n"
			   "devices:\n"
			   "  - name: \"0\"\n"
			   "    containerEdits:\n"
			   "      deviceNodes: [{path: /dev/null}]\n"
			   "  - name: 1\n"
			   "    containerEdits:\n"
			   "      deviceNodes: [{path: /dev/gpu1, hostPath: /dev/zero}]\n";

static int make_dir(void **state)
{
	char *dir = strdup("/tmp/penstock-cdi-XXXXXX");
	_cleanup_free_ char *path = NULL;

	assert_non_null(mkdtemp(dir));
	path = path_join(dir, "gpus.yaml");
	assert_int_equal(0, fs_write_atomic(path, yaml, strlen(yaml), 0600, NULL));
	*state = dir;
	return 0;
}

static int remove_dir(void **state)
{
	fs_remove_tree(*state, NULL);
	free(*state);
	return 0;
}

static json_t *config(void)
{
	return json_pack("{s:{s:[s]}, s:[], s:{}}", "process", "env", "A=b", "mounts", "linux");
}

/* The configuration gets the edits of the file and of the requested GPUs, but not those of other
 * GPUs. */
static void a_gpu_brings_its_nodes_mounts_variables_and_hooks(void **state)
{
	const char *const dirs[] = {"/nowhere", *state, NULL};
	const int gpus[] = {1};
	json_auto_t *edits = NULL;
	json_auto_t *made = config();
	const char *path = NULL, *type = NULL, *source = NULL, *last = NULL, *hook = NULL;
	int major = 0, minor = 0;

	assert_int_equal(0, cdi_find(&edits, dirs, gpus, 1, NULL));
	assert_int_equal(0, cdi_apply(made, edits));

	assert_int_equal(
		1, json_array_size(json_object_get(json_object_get(made, "linux"), "devices")));
	assert_int_equal(
		0, json_unpack(made,
			   "{s:{s:[{s:s, s:s, s:i, s:i}]}, s:[{s:s, s:[s, s, s]}], s:{s:[{s:s}]}}",
			   "linux", "devices", "path", &path, "type", &type, "major", &major,
			   "minor", &minor, "mounts", "source", &source, "options", &last, &last,
			   &last, "hooks", "createContainer", "path", &hook));
	assert_string_equal(path, "/dev/gpu1");
	assert_string_equal(type, "c");
	assert_int_equal(major, 1);
	assert_int_equal(minor, 5); /* the minor number of /dev/zero */
	assert_string_equal(source, "/usr/lib/driver.so");
	assert_string_equal(last, "bind");
	assert_string_equal(hook, "/usr/bin/hook");
	assert_string_equal(
		"SHARED=1", json_string_value(json_array_get(
				    json_object_get(json_object_get(made, "process"), "env"), 1)));
}

static void several_gpus_share_what_the_file_says_for_all(void **state)
{
	const char *const dirs[] = {*state, NULL};
	const int gpus[] = {0, 1};
	json_auto_t *edits = NULL;
	json_auto_t *made = config();

	assert_int_equal(0, cdi_find(&edits, dirs, gpus, 2, NULL));
	assert_int_equal(0, cdi_apply(made, edits));

	assert_int_equal(
		2, json_array_size(json_object_get(json_object_get(made, "linux"), "devices")));
	assert_int_equal(1, json_array_size(json_object_get(made, "mounts")));
}

/* The message names a remedy. */
static void an_unknown_gpu_is_an_error(void **state)
{
	const char *const dirs[] = {*state, NULL};
	const int gpus[] = {0, 7};
	json_auto_t *edits = NULL;
	_cleanup_(penstock_error_release) struct penstock_error err = PENSTOCK_ERROR_INIT;

	assert_int_equal(-(int)PENSTOCK_E_NOT_FOUND, cdi_find(&edits, dirs, gpus, 2, &err));
	assert_non_null(strstr(err.message, "nvidia-ctk cdi generate"));
	assert_null(edits);
}

/* Words are split as by a shell, without expansion. */
static void a_command_is_split_into_words(void **state)
{
	static const struct {
		const char *line;
		const char *words; /* separated by |; NULL if invalid */
	} cases[] = {
		{"", ""},
		{"  a  b\tc\n", "a|b|c"},
		{"'a b' \"c d\"", "a b|c d"},
		{"a\\ b \"q\\\"q\" '\\n'", "a b|q\"q|\\n"},
		{"x\"y\"z''", "xyz"},
		{"'' \"\"", "|"},
		{"$HOME *", "$HOME|*"},
		{"'open", NULL},
		{"\"open", NULL},
	};
	(void)state;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(strlist_release) struct strlist words = {0};
		_cleanup_(penstock_error_release) struct penstock_error err = PENSTOCK_ERROR_INIT;
		char joined[128] = "";
		int r = container_words(cases[i].line, &words, &err);

		assert_int_equal(cases[i].words ? 0 : -(int)PENSTOCK_E_INVALID, r);
		for (size_t k = 0; r == 0 && k < words.n; k++) {
			size_t len = strlen(joined);

			snprintf(joined + len, sizeof(joined) - len, "%s%s", k ? "|" : "",
				words.items[k]);
		}
		if (r == 0)
			assert_string_equal(joined, cases[i].words);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			a_gpu_brings_its_nodes_mounts_variables_and_hooks, make_dir, remove_dir),
		cmocka_unit_test_setup_teardown(
			several_gpus_share_what_the_file_says_for_all, make_dir, remove_dir),
		cmocka_unit_test_setup_teardown(an_unknown_gpu_is_an_error, make_dir, remove_dir),
		cmocka_unit_test(a_command_is_split_into_words),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
