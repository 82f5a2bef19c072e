/* The turns of replicas, which conditional writes of one object coordinate. */
#include "../copy/copy_store.h"

#include <jansson.h>

#include "deploy/internal.h"

#define STATE "/bucket/m/" REPLICAS_KEY

static char name_1[] = "1", name_2[] = "2";

struct world {
	struct copy_store s;
	struct deploy_options o;
};

/* The store has no multipart uploads; the state object does not need them. */
static bool refuse_parts(struct tiny_store *store, const struct mini_request *r, int fd, bool *keep)
{
	(void)store;
	if (strcmp(r->method, "POST") != 0)
		return false;
	*keep = answer_error(fd, "501 Not Implemented", "NotImplemented", "");
	return true;
}

static int begin_world(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	copy_store_begin(&w->s);
	w->s.store.trouble = refuse_parts;
	w->o = (struct deploy_options){.client = w->s.s3,
		.bucket = "bucket",
		.prefix = "m/",
		.host = "127.0.0.1",
		.unavailable = 1};
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

static void open_replica(struct world *w, struct replicas *r, uint16_t port)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;

	if (replicas_open(r, &w->o, port, &err) < 0)
		fail_msg("%s", err.message);
}

static void write_entry(struct replicas *r, const struct replica_state *state)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;

	if (replicas_write(r, state, &err) < 0)
		fail_msg("%s", err.message);
}

/* Gets the entries from the store. The caller has to release them. */
static json_t *entries(struct world *w)
{
	const struct tiny_object *o = tiny_find(&w->s.store, STATE);
	json_t *root = o ? json_loadb(o->body, o->len, 0, NULL) : NULL;
	json_t *replicas = json_incref(json_object_get(root, "replicas"));

	json_decref(root);
	assert_non_null(replicas);
	return replicas;
}

static const char *text_at(const json_t *entry, const char *model, const char *member)
{
	return json_string_value(json_object_get(json_object_get(entry, model), member));
}

static void replicas_take_turns(void **state)
{
	struct world *w = *state;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct model one = {.name = name_1, .content = "c1"};
	struct model two = {.name = name_2, .content = "c2"};
	struct replica_state rolls = {.state = "rolling", .model = &one, .next = &two};
	struct replica_state serves = {.state = "serving", .model = &two};
	struct replicas a, b, c;

	open_replica(w, &a, 1);
	open_replica(w, &b, 2);
	open_replica(w, &c, 3);
	assert_string_not_equal(a.name, b.name);
	assert_int_equal(1, replicas_take_turn(&a, &rolls, &err));
	assert_int_equal(0, replicas_take_turn(&b, &rolls, &err));
	assert_int_equal(1, replicas_take_turn(&a, &rolls, &err)); /* still its turn */
	write_entry(&a, &serves);
	assert_int_equal(1, replicas_take_turn(&b, &rolls, &err));
	assert_int_equal(0, replicas_take_turn(&c, &rolls, &err));
	w->o.unavailable = 2;
	assert_int_equal(1, replicas_take_turn(&c, &rolls, &err));
	assert_int_equal(0, replicas_take_turn(&a, &rolls, &err));
	/* A replica that ends releases its turn. */
	write_entry(&b, NULL);
	assert_int_equal(1, replicas_take_turn(&a, &rolls, &err));
	replicas_release(&a);
	replicas_release(&b);
	replicas_release(&c);
}

static void an_entry_says_since_when(void **state)
{
	struct world *w = *state;
	struct model one = {.name = name_1, .content = "c1"};
	struct model two = {.name = name_2, .content = "c2"};
	struct replicas a;
	json_t *all, *entry;
	char since[64];

	open_replica(w, &a, 1);
	write_entry(&a, &(struct replica_state){.state = "serving", .model = &one});
	all = entries(w);
	entry = json_object_get(all, a.name);
	snprintf(since, sizeof(since), "%s", text_at(entry, "serving", "since"));
	json_decref(all);

	clock_sleep_ms(2);
	write_entry(
		&a, &(struct replica_state){
			    .state = "serving", .model = &one, .failed = &two, .why = "it ended"});
	all = entries(w);
	entry = json_object_get(all, a.name);
	assert_string_equal(since, text_at(entry, "serving", "since"));
	assert_string_equal("2", text_at(entry, "failed", "version"));
	assert_string_equal("it ended", text_at(entry, "failed", "why"));
	assert_null(json_object_get(entry, "next"));
	json_decref(all);

	write_entry(&a, &(struct replica_state){.state = "serving", .model = &two});
	all = entries(w);
	entry = json_object_get(all, a.name);
	assert_string_not_equal(since, text_at(entry, "serving", "since"));
	assert_null(json_object_get(entry, "failed"));
	json_decref(all);

	write_entry(&a, NULL);
	all = entries(w);
	assert_int_equal(0, json_object_size(all));
	json_decref(all);
	replicas_release(&a);
}

enum { WRITERS = 4, WRITES = 10 };

static void *write_often(void *cookie)
{
	struct replicas *r = cookie;
	struct model one = {.name = name_1, .content = "c1"};

	for (int i = 0; i < WRITES; i++)
		write_entry(r, &(struct replica_state){.state = "serving", .model = &one});
	return NULL;
}

static void no_write_is_lost(void **state)
{
	struct world *w = *state;
	struct replicas r[WRITERS];
	pthread_t threads[WRITERS];
	json_t *all;

	for (int i = 0; i < WRITERS; i++)
		open_replica(w, &r[i], (uint16_t)(i + 1));
	for (int i = 0; i < WRITERS; i++)
		assert_int_equal(0, pthread_create(&threads[i], NULL, write_often, &r[i]));
	for (int i = 0; i < WRITERS; i++)
		pthread_join(threads[i], NULL);
	all = entries(w);
	assert_int_equal(WRITERS, json_object_size(all));
	for (int i = 0; i < WRITERS; i++) {
		const json_t *entry = json_object_get(all, r[i].name);

		assert_int_equal(r[i].beat, json_integer_value(json_object_get(entry, "beat")));
		replicas_release(&r[i]);
	}
	json_decref(all);
}

static void a_state_that_is_not_ours_is_left_alone(void **state)
{
	static const struct {
		const char *text;
		int code;
	} given[] = {
		{"{\"format\": \"penstock.deploy/2\", \"replicas\": {}}", PENSTOCK_E_UNSUPPORTED},
		{"{\"format\": \"other/1\", \"replicas\": {}}", PENSTOCK_E_CORRUPT},
		{"{\"format\": \"penstock.deploy/1\", \"replicas\": []}", PENSTOCK_E_CORRUPT},
		{"{\"format\": \"penstock.deploy/1\", \"repl", PENSTOCK_E_CORRUPT},
		{"", PENSTOCK_E_CORRUPT},
	};
	struct world *w = *state;
	struct replicas a;

	open_replica(w, &a, 1);
	for (size_t i = 0; i < ARRAY_SIZE(given); i++) {
		_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
		const struct tiny_object *o;

		tiny_make(&w->s.store, STATE, given[i].text, strlen(given[i].text));
		assert_int_equal(-given[i].code,
			replicas_write(&a, &(struct replica_state){.state = "serving"}, &err));
		o = tiny_find(&w->s.store, STATE);
		assert_int_equal(strlen(given[i].text), o->len);
		assert_memory_equal(given[i].text, o->body, o->len);
	}
	replicas_release(&a);
}

/* A store that accepts every write. */
static bool ignore_conditions(
	struct tiny_store *store, const struct mini_request *r, int fd, bool *keep)
{
	LOCK_SCOPE(&store->lock);

	if (strcmp(r->method, "PUT") != 0)
		return refuse_parts(store, r, fd, keep);
	tiny_make(store, r->target, r->body, r->body_len);
	*keep = mini_reply(fd, "200 OK", "ETag: \"x\"\r\n", "", 0);
	return true;
}

static void a_store_without_conditions_is_refused(void **state)
{
	struct world *w = *state;
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct replicas a;

	w->s.store.trouble = ignore_conditions;
	assert_int_equal(-(int)PENSTOCK_E_UNSUPPORTED, replicas_open(&a, &w->o, 1, &err));
	replicas_release(&a);
	w->o.no_state = true;
	open_replica(w, &a, 1);
	write_entry(&a, &(struct replica_state){.state = "serving"});
	assert_null(tiny_find(&w->s.store, STATE));
	replicas_release(&a);
}

static void a_state_without_replicas_is_not_found(void **state)
{
	static const char text[] = "{\"format\": \"penstock.deploy/1\", \"replicas\": {}}";
	struct world *w = *state;
	char out[2048] = "";
	FILE *f = fmemopen(out, sizeof(out), "w");

	for (int i = 0; i < 4; i++) {
		_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;

		if (i == 2)
			tiny_make(&w->s.store, STATE, text, strlen(text));
		assert_int_equal(-(int)PENSTOCK_E_NOT_FOUND,
			deploy_print(w->s.s3, "bucket", "m/", i % 2, f, &err));
	}
	assert_int_equal(0, fclose(f));
	assert_string_equal("", out);
}

static void the_table_hides_control_characters(void **state)
{
	static const char text[] =
		"{\"format\": \"penstock.deploy/1\", \"replicas\": {\"h\\u001b[2J:1\": "
		"{\"state\": \"serving\", \"serving\": {\"version\": \"7\\n8\"}}}}";
	struct world *w = *state;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	char out[2048] = "";
	FILE *f = fmemopen(out, sizeof(out), "w");

	tiny_make(&w->s.store, STATE, text, strlen(text));
	assert_int_equal(0, deploy_print(w->s.s3, "bucket", "m/", false, f, &err));
	assert_int_equal(0, fclose(f));
	assert_null(strchr(out, '\x1b'));
	assert_non_null(strstr(out, "REPLICA"));
	assert_null(strstr(out, "7\n8"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(replicas_take_turns, begin_world, end_world),
		cmocka_unit_test_setup_teardown(an_entry_says_since_when, begin_world, end_world),
		cmocka_unit_test_setup_teardown(no_write_is_lost, begin_world, end_world),
		cmocka_unit_test_setup_teardown(
			a_state_that_is_not_ours_is_left_alone, begin_world, end_world),
		cmocka_unit_test_setup_teardown(
			a_store_without_conditions_is_refused, begin_world, end_world),
		cmocka_unit_test_setup_teardown(
			a_state_without_replicas_is_not_found, begin_world, end_world),
		cmocka_unit_test_setup_teardown(
			the_table_hides_control_characters, begin_world, end_world),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
