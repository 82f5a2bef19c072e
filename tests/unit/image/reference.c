/* Names of images. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <penstock/error.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "image/reference.h"

#define DIGEST "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void names_are_read_as_docker_reads_them(void **state)
{
	static const struct {
		const char *text, *registry;
		const char *host, *name; /* host of the API, and the full name */
		bool plain_http, loopback;
	} cases[] = {
		{"debian", NULL, "registry-1.docker.io", "docker.io/library/debian:latest", false,
			false},
		{"debian:12", NULL, "registry-1.docker.io", "docker.io/library/debian:12", false,
			false},
		{"docker://curlimages/curl:8.5", NULL, "registry-1.docker.io",
			"docker.io/curlimages/curl:8.5", false, false},
		{"docker.io/debian", NULL, "registry-1.docker.io",
			"docker.io/library/debian:latest", false, false},
		{"ghcr.io/org/name:tag", NULL, "ghcr.io", "ghcr.io/org/name:tag", false, false},
		{"ghcr.io/org/name@" DIGEST, NULL, "ghcr.io", "ghcr.io/org/name@" DIGEST, false,
			false},
		{"localhost/a", NULL, "localhost", "localhost/a:latest", false, true},
		{"127.0.0.1:5000/a/b", NULL, "127.0.0.1:5000", "127.0.0.1:5000/a/b:latest", false,
			true},
		{"[::1]:5000/a", NULL, "[::1]:5000", "[::1]:5000/a:latest", false, true},
		{"a/b", "http://registry.local/", "registry.local", "registry.local/a/b:latest",
			true, false},
		{"ghcr.io/a/b", "ghcr.io", "ghcr.io", "ghcr.io/a/b:latest", false, false},
		{"docker.io/debian", "index.docker.io", "registry-1.docker.io",
			"docker.io/library/debian:latest", false, false},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct image_reference ref = {0};
		_cleanup_free_ char *name = NULL;

		assert_int_equal(
			image_reference_parse(&ref, cases[i].text, cases[i].registry, NULL), 0);
		name = image_reference_name(&ref);
		assert_string_equal(ref.host, cases[i].host);
		assert_string_equal(name, cases[i].name);
		assert_int_equal(ref.plain_http, cases[i].plain_http);
		assert_int_equal(ref.loopback, cases[i].loopback);
		image_reference_release(&ref);
	}
}

static void other_names_are_refused(void **state)
{
	static const struct {
		const char *text, *registry;
	} cases[] = {
		{"", NULL},
		{"Debian", NULL},
		{"debian:", NULL},
		{"debian:-x", NULL},
		{"a//b", NULL},
		{"a/../b", NULL},
		{"a/.", NULL},
		{"a b", NULL},
		{"ghcr.io/", NULL},
		{"a@sha256:12", NULL},
		{"a@md5:0123", NULL},
		{"host.:99999/a", NULL},
		{"a", "host with space"},
		{"a", "host/path"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
		struct image_reference ref = {0};

		assert_int_equal(
			image_reference_parse(&ref, cases[i].text, cases[i].registry, &err),
			-PENSTOCK_E_INVALID);
		assert_null(ref.host);
	}
}

static void a_digest_has_64_lower_case_digits(void **state)
{
	(void)state;
	assert_true(image_digest_is_valid(DIGEST));
	assert_false(image_digest_is_valid(DIGEST "0"));
	assert_false(image_digest_is_valid("sha256:ABC"));
	assert_false(image_digest_is_valid(&DIGEST[1]));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_are_read_as_docker_reads_them),
		cmocka_unit_test(other_names_are_refused),
		cmocka_unit_test(a_digest_has_64_lower_case_digits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
