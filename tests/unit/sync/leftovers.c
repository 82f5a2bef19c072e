#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/fs.h"
#include "sync/internal.h"

#define DAY_NS (INT64_C(86400) * 1000000000)

struct fixture {
	char dir[64], path[80];
	struct sync sync;
};

static int set_up(void **state)
{
	static struct fixture f;

	memset(&f, 0, sizeof(f));
	snprintf(f.dir, sizeof(f.dir), "/tmp/leftovers-XXXXXX");
	assert_non_null(mkdtemp(f.dir));
	snprintf(f.path, sizeof(f.path), "%s/j", f.dir);
	pthread_mutex_init(&f.sync.lock, NULL);
	assert_int_equal(journal_open(&f.sync.journal, f.path, NULL), 0);
	*state = &f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	leftovers_free(&f->sync);
	journal_free(f->sync.journal);
	pthread_mutex_destroy(&f->sync.lock);
	return fs_remove_tree(f->dir, NULL);
}

static void fill(void *cookie, struct journal *to)
{
	leftovers_fill(cookie, to);
}

static int on_record(void *cookie, const struct journal_record *r)
{
	char *text = cookie;

	assert_int_equal(r->type, JOURNAL_PARTS);
	snprintf(text + strlen(text), 200 - strlen(text), "%s %s;",
		r->etag && *r->etag ? r->etag : "-", r->ident.mtime_ns == DAY_NS ? "then" : "now");
	return 0;
}

/* Returns the known uploads, each as "ID then" (of an earlier attempt) or "ID now". The ID is "-"
 * if the store has not replied yet. */
static const char *known(struct fixture *f)
{
	static char text[200];
	unsigned torn;

	text[0] = '\0';
	assert_int_equal(journal_rewrite(f->sync.journal, fill, &f->sync, NULL), 0);
	assert_int_equal(journal_replay(f->path, on_record, text, &torn, NULL), 0);
	return text;
}

/* An earlier attempt requested an upload of the same key and was killed before the reply. */
static void asked_for_before(struct fixture *f)
{
	const struct journal_record r = {
		.type = JOURNAL_PARTS, .key = "k", .ident.mtime_ns = DAY_NS};

	assert_int_equal(leftovers_replay(&f->sync, &r), 0);
}

/* If the id of the new upload were recorded for the upload of the earlier attempt, the sync would
 * later search for the new upload, which has ended, and the earlier one would stay in the store. */
static void a_name_is_that_of_the_upload_that_was_asked_for_last(void **state)
{
	struct fixture *f = *state;

	asked_for_before(f);
	leftovers_parts(&f->sync, "k", NULL, false);
	leftovers_parts(&f->sync, "k", "id2", false);

	assert_string_equal(known(f), "id2 now;- then;");
	leftovers_parts(&f->sync, "k", "id2", true);
	assert_string_equal(known(f), "- then;");
}

/* The id is recorded for the new upload even if its record comes first in the journal. */
static void the_order_of_the_journal_does_not_count(void **state)
{
	struct fixture *f = *state;

	leftovers_parts(&f->sync, "k", NULL, false);
	asked_for_before(f);
	leftovers_parts(&f->sync, "k", "id2", false);

	assert_string_equal(known(f), "- then;id2 now;");
}

/* The refused request started no upload, so only its record is removed. */
static void what_was_refused_is_forgotten_and_nothing_else(void **state)
{
	struct fixture *f = *state;

	asked_for_before(f);
	leftovers_parts(&f->sync, "k", NULL, false);
	leftovers_parts(&f->sync, "k", NULL, true);

	assert_string_equal(known(f), "- then;");
}

#define RULE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		RULE(a_name_is_that_of_the_upload_that_was_asked_for_last),
		RULE(the_order_of_the_journal_does_not_count),
		RULE(what_was_refused_is_forgotten_and_nothing_else),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
