/* Versions of models on this machine: their use by several processes, and their removal at the size
 * limit. */
#include "../copy/copy_store.h"

#include <stdio.h>

#include "base/process/process.h"
#include "deploy/internal.h"

struct world {
	struct copy_store s;
	struct deploy_options o;
	atomic_int cancel;
};

static int begin_world(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	copy_store_begin(&w->s);
	w->o = (struct deploy_options){.client = w->s.s3,
		.bucket = "bucket",
		.prefix = "m/",
		.home = w->s.dir,
		.cancel = &w->cancel,
		.cache_size = UINT64_MAX};
	*state = w;
	return 0;
}

static int end_world(void **state)
{
	struct world *w = *state;

	copy_store_end(&w->s);
	free(w);
	return 0;
}

/* Publishes the version `name` and fetches it; `cached` may be NULL. */
static int fetch_version(
	struct world *w, const char *name, char *dir, size_t size, struct cached *cached)
{
	struct versions v = {.o = &w->o};
	struct model model = {0};
	struct cached own = {.lock = -1};
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	bool settles;
	char key[64];
	int r;

	snprintf(key, sizeof(key), "/bucket/m/%s/w", name);
	tiny_make(&w->s.store, key, name, strlen(name));
	assert_int_equal(1, versions_look(&v, &(struct refused){0}, &model, &settles, &err));
	assert_string_equal(model.name, name);
	r = model_fetch(&w->o, &model, &w->cancel, &own, &err);
	if (r == 0)
		snprintf(dir, size, "%s", own.dir);
	if (r == 0 && cached)
		*cached = own;
	else
		cached_release(&own);
	model_release(&model);
	versions_release(&v);
	penstock_error_release(&err);
	return r;
}

/* Writes the state of a deployment that uses the version in `dir`; if `live`, the state is from
 * this boot. */
static void write_state(struct world *w, const char *dir, bool live)
{
	char path[256], boot[PROCESS_BOOT_ID_SIZE] = "earlier";
	const char *content = strrchr(dir, '/') + 1;
	FILE *f;

	if (live)
		process_boot_id(boot);
	snprintf(path, sizeof(path), "%s/" DEPLOYMENTS "/1", w->s.dir);
	assert_int_equal(0, fs_mkdirs(path, 0700, NULL));
	snprintf(path, sizeof(path), "%s/" DEPLOYMENTS "/1/state.json", w->s.dir);
	f = fopen(path, "w");
	assert_non_null(f);
	fprintf(f,
		"{\"boot_id\": \"%s\", \"servers\": [{\"model\": {\"content\": \"%s\"}}, null], "
		"\"last\": {\"content\": \"%s\"}}",
		boot, content, content);
	assert_int_equal(0, fclose(f));
}

static void deployments_share_a_version(void **state)
{
	struct world *w = *state;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct cached first = {.lock = -1}, second = {.lock = -1};
	char dir[256];

	assert_int_equal(0, fetch_version(w, "1", dir, sizeof(dir), &first));
	assert_int_equal(0, model_find(&w->o, strrchr(dir, '/') + 1, &w->cancel, &second, &err));
	assert_string_equal(second.dir, dir);
	cached_release(&second);
	cached_release(&first);
}

static void the_version_of_an_ended_deployment_is_removed(void **state)
{
	struct world *w = *state;
	char old[256], new[256];

	assert_int_equal(0, fetch_version(w, "1", old, sizeof(old), NULL));
	write_state(w, old, false);
	w->o.cache_size = 1000;
	assert_int_equal(0, fetch_version(w, "2", new, sizeof(new), NULL));
	assert_int_equal(-1, access(old, F_OK));
	assert_int_equal(0, access(new, F_OK));
}

static void nothing_is_removed_for_a_version_that_cannot_fit(void **state)
{
	struct world *w = *state;
	char unused[256], served[256], new[256];

	assert_int_equal(0, fetch_version(w, "1", unused, sizeof(unused), NULL));
	assert_int_equal(0, fetch_version(w, "2", served, sizeof(served), NULL));
	write_state(w, served, true);
	w->o.cache_size = 1000;
	assert_int_equal(-(int)PENSTOCK_E_LIMIT, fetch_version(w, "3", new, sizeof(new), NULL));
	assert_int_equal(0, access(unused, F_OK));
	assert_int_equal(0, access(served, F_OK));
	/* The new version fits if the unused version is removed. */
	w->o.cache_size = fs_disk_bytes(served) + 1000;
	assert_int_equal(0, fetch_version(w, "3", new, sizeof(new), NULL));
	assert_int_equal(-1, access(unused, F_OK));
	assert_int_equal(0, access(served, F_OK));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			deployments_share_a_version, begin_world, end_world),
		cmocka_unit_test_setup_teardown(
			the_version_of_an_ended_deployment_is_removed, begin_world, end_world),
		cmocka_unit_test_setup_teardown(
			nothing_is_removed_for_a_version_that_cannot_fit, begin_world, end_world),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
