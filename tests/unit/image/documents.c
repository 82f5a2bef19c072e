/* Documents of registries: manifests, configurations, challenges, tokens and login files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <penstock/error.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "image/manifest.h"

#define A "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define B "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

#define BLOB(digest, type) "{\"digest\": \"" digest "\", \"size\": 7, \"mediaType\": \"" type "\"}"
#define GZIP		   "application/vnd.oci.image.layer.v1.tar+gzip"

static int parse(struct image_manifest *manifest, const char *text)
{
	return image_manifest_parse(manifest, text, strlen(text), NULL);
}

static void an_index_leads_to_this_platform(void **state)
{
	static const char format[] =
		"{\"manifests\": [{\"digest\": \"" A "\", \"size\": 1, \"platform\": "
		"{\"os\": \"linux\", \"architecture\": \"vax\"}}, {\"digest\": \"" B
		"\", \"size\": 2, \"platform\": {\"os\": \"%s\", \"architecture\": \"%s\"}}]}";
	struct image_manifest manifest = {0};
	char text[600];

	(void)state;
	snprintf(text, sizeof(text), format, "linux", image_architecture());
	assert_int_equal(parse(&manifest, text), 0);
	assert_true(manifest.is_index);
	assert_string_equal(manifest.config.digest, B);
	assert_int_equal(manifest.config.size, 2);
	image_manifest_release(&manifest);

	snprintf(text, sizeof(text), format, "plan9", image_architecture());
	assert_int_equal(parse(&manifest, text), -PENSTOCK_E_NOT_FOUND);
	/* A layout that a person wrote may lack the platform of its only manifest. */
	assert_int_equal(
		parse(&manifest, "{\"manifests\": [{\"digest\": \"" A "\", \"size\": 1}]}"), 0);
	assert_string_equal(manifest.config.digest, A);
	image_manifest_release(&manifest);
}

static void a_manifest_lists_its_layers_in_order(void **state)
{
	struct image_manifest manifest = {0};

	(void)state;
	assert_int_equal(parse(&manifest, "{\"config\": " BLOB(A, "") ", \"layers\": [" BLOB(
						  A, GZIP) ", " BLOB(B, "x.tar+zstd") "]}"),
		0);
	assert_false(manifest.is_index);
	assert_string_equal(manifest.config.digest, A);
	assert_int_equal(manifest.n_layers, 2);
	assert_string_equal(manifest.layers[1].digest, B);
	assert_int_equal(manifest.layers[1].size, 7);
	image_manifest_release(&manifest);
}

static void other_manifests_are_refused(void **state)
{
	static const struct {
		const char *text;
		enum penstock_code code;
	} cases[] = {
		{"", PENSTOCK_E_PROTOCOL},
		{"[]", PENSTOCK_E_PROTOCOL},
		{"{}", PENSTOCK_E_PROTOCOL},
		{"{\"fsLayers\": []}", PENSTOCK_E_UNSUPPORTED},
		{"{\"config\": {\"digest\": \"md5:1\", \"size\": 1}, \"layers\": []}",
			PENSTOCK_E_PROTOCOL},
		{"{\"config\": {\"digest\": \"" A "\", \"size\": -1}, \"layers\": []}",
			PENSTOCK_E_PROTOCOL},
		{"{\"config\": " BLOB(A, "") ", \"layers\": [" BLOB(A, "image/png") "]}",
			PENSTOCK_E_UNSUPPORTED},
		{"{\"config\": " BLOB(A, "") ", \"layers\": [{\"digest\": \"" A
					     "\", \"size\": 1}]}",
			PENSTOCK_E_PROTOCOL},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct image_manifest manifest = {0};

		assert_int_equal(parse(&manifest, cases[i].text), -(int)cases[i].code);
		assert_null(manifest.layers);
	}
}

static void a_configuration_says_what_runs(void **state)
{
	static const char text[] =
		"{\"config\": {\"Entrypoint\": [\"/a\", \"b\"], \"Cmd\": null, \"Env\": "
		"[\"K=V\"], \"WorkingDir\": \"/w\", \"User\": \"\"}}";
	static const char odd[] = "{\"config\": {\"Cmd\": [1]}}";
	struct image_config config = {0};

	(void)state;
	assert_int_equal(image_config_parse(&config, text, strlen(text), NULL), 0);
	assert_int_equal(config.entrypoint.n, 2);
	assert_int_equal(config.cmd.n, 0);
	assert_string_equal(config.env.items[0], "K=V");
	assert_string_equal(config.working_dir, "/w");
	assert_null(config.user);
	image_config_release(&config);
	assert_int_equal(image_config_parse(&config, odd, strlen(odd), NULL), -PENSTOCK_E_PROTOCOL);
}

static void a_challenge_names_the_token_service(void **state)
{
	struct image_challenge c;

	(void)state;
	assert_true(image_challenge_parse(&c,
		"Bearer realm=\"https://auth/token\",service=reg, Scope=\"repository:a:pull\""));
	assert_string_equal(c.realm, "https://auth/token");
	assert_string_equal(c.service, "reg");
	assert_string_equal(c.scope, "repository:a:pull");
	image_challenge_release(&c);
	assert_true(image_challenge_parse(&c, " Basic realm=x"));
	assert_true(c.basic);
	assert_false(image_challenge_parse(&c, "Bearer service=reg"));
	assert_false(image_challenge_parse(&c, "Digest realm=x"));
}

static void a_token_is_one_printable_word(void **state)
{
	static const struct {
		const char *text, *token;
	} cases[] = {
		{"{\"token\": \"t\"}", "t"},
		{"{\"token\": \"\", \"access_token\": \"a\"}", "a"},
		{"{\"token\": \"a\\r\\nHost: b\"}", NULL},
		{"{}", NULL},
		{"no JSON", NULL},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_free_ char *token = image_token_parse(
			cases[i].text, strlen(cases[i].text));

		assert_int_equal(!token, !cases[i].token);
		if (token)
			assert_string_equal(token, cases[i].token);
	}
}

/* bmFtZTp3b3Jk is base64 of "name:word". */
static void the_nearest_entry_of_a_login_file_counts(void **state)
{
	static const char file[] =
		"{\"auths\": {\"https://index.docker.io/v1/\": {\"auth\": \"bmFtZTp3b3Jk\"}, "
		"\"ghcr.io\": {\"auth\": \"eDp5\"}, \"ghcr.io/org\": {\"auth\": "
		"\"bmFtZTp3b3Jk\"}, \"empty.io\": {}, \"registry-1\": {\"auth\": \"eDp5\"}}, \"credHelpers\": {\"gcr.io\": \"gcloud\"}, "
		"\"credsStore\": \"../evil\"}";
	static const struct {
		const char *host, *repository;
		const char *username, *helper;
	} cases[] = {
		{"registry-1.docker.io", "library/debian", "name", NULL},
		{"ghcr.io", "org/name", "name", NULL},
		{"ghcr.io", "organic/name", "x", NULL},
		{"gcr.io", "a", NULL, "gcloud"},
		{"empty.io", "a", NULL, NULL},
		{"other.io", "a", NULL, NULL},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct image_login login;
		int r = image_login_parse(
			&login, file, strlen(file), cases[i].host, cases[i].repository, NULL);

		assert_int_equal(r, cases[i].username || cases[i].helper ? 1 : 0);
		if (cases[i].username)
			assert_string_equal(login.username, cases[i].username);
		if (cases[i].helper)
			assert_string_equal(login.helper, cases[i].helper);
		image_login_release(&login);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_index_leads_to_this_platform),
		cmocka_unit_test(a_manifest_lists_its_layers_in_order),
		cmocka_unit_test(other_manifests_are_refused),
		cmocka_unit_test(a_configuration_says_what_runs),
		cmocka_unit_test(a_challenge_names_the_token_service),
		cmocka_unit_test(a_token_is_one_printable_word),
		cmocka_unit_test(the_nearest_entry_of_a_login_file_counts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
