#include "server/directory/directory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

/* Replaces uthash's default hash, in which Clang reports a fall-through. */
#define HASH_FUNCTION(key, len, value) HASH_OAT(key, len, value)
#include <uthash.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/str.h"
#include "server/directory/build.h"
#include "server/directory/documents.h"
#include "server/directory/record.h"

/* An identity that was used recently, by its access key. */
struct entry {
	struct identity *identity;
	UT_hash_handle hh;
};
#define ENTRIES_MAX 4096

#define SESSION_KEY_RECORD "session-key"

struct directory {
	struct store *store;
	struct directory_options root;
	struct identity *anonymous;

	pthread_mutex_t changes; /* held from directory_begin() to directory_end() */

	pthread_rwlock_t lock;
	/* Written under `lock`; a thread that holds `changes` may read without `lock`. */
	json_t *records; /* records by name */
	json_t *keys; /* names of records by access key */
	struct account_info *accounts;
	struct entry *entries; /* under lock, like the next member */
	struct documents documents; /* parsed policies of the entries and of earlier entries */
};

/* --- accounts -------------------------------------------------------------------------------- */

static void free_accounts(struct account_info *list)
{
	while (list) {
		struct account_info *next = list->next;

		free(list->name);
		free(list->email);
		free(list);
		list = next;
	}
}

static struct account_info *account_new(
	const char *number, const char *id, const char *name, const char *email)
{
	struct account_info *account = calloc(1, sizeof(*account));

	if (!account)
		return NULL;
	snprintf(account->number, sizeof(account->number), "%s", number);
	snprintf(account->id, sizeof(account->id), "%s", id);
	account->name = strdup(name);
	if (!account->name || !str_copy(&account->email, email)) {
		free_accounts(account);
		return NULL;
	}
	return account;
}

static struct account_info *account_of_record(const char *number, const json_t *record)
{
	const char *id = record_member(record, "id"), *name = record_member(record, "name");

	return account_new(number, id ? id : "", name ? name : "", record_member(record, "email"));
}

static const struct account_info *find_account(const struct directory *d, const char *text,
	const char *(*member)(const struct account_info *))
{
	const struct account_info *a = d->accounts;

	while (a && (!member(a) || strcasecmp(member(a), text) != 0))
		a = a->next;
	return a;
}

static const char *number_of(const struct account_info *account)
{
	return account->number;
}

static const char *id_of(const struct account_info *account)
{
	return account->id;
}

static const char *email_of(const struct account_info *account)
{
	return account->email;
}

static const struct account_info *look_up(
	struct directory *d, const char *text, const char *(*member)(const struct account_info *))
{
	const struct account_info *account;

	pthread_rwlock_rdlock(&d->lock);
	account = find_account(d, text, member);
	pthread_rwlock_unlock(&d->lock);
	return account;
}

bool directory_is_shared(struct directory *d)
{
	bool shared;

	pthread_rwlock_rdlock(&d->lock);
	shared = d->accounts->next != NULL;
	pthread_rwlock_unlock(&d->lock);
	return shared;
}

const struct account_info *directory_account(struct directory *d, const char *number)
{
	return look_up(d, *number ? number : ACCOUNT_FIRST, number_of);
}

const struct account_info *directory_account_by_id(struct directory *d, const char *id)
{
	return look_up(d, id, id_of);
}

const struct account_info *directory_account_by_email(struct directory *d, const char *email)
{
	return look_up(d, email, email_of);
}

/* --- identities ------------------------------------------------------------------------------ */

static struct identity *cached(const struct directory *d, const char *access_key_id)
{
	struct entry *entry;

	HASH_FIND_STR(d->entries, access_key_id, entry);
	return entry ? identity_ref(entry->identity) : NULL;
}

static void forget_entries(struct directory *d)
{
	struct entry *entry, *next;

	HASH_ITER (hh, d->entries, entry, next) {
		HASH_DEL(d->entries, entry);
		identity_unref(entry->identity);
		free(entry);
	}
}

/* Caches an identity. If out of memory, the identity is created again for the next request. */
static void keep(struct directory *d, struct identity *identity)
{
	struct entry *entry = malloc(sizeof(*entry));

	if (!entry)
		return;
	if (HASH_COUNT(d->entries) >= ENTRIES_MAX || d->documents.bytes > LIMIT_SERVER_POLICIES) {
		forget_entries(d);
		documents_release(&d->documents);
	}
	entry->identity = identity_ref(identity);
	HASH_ADD_KEYPTR(
		hh, d->entries, identity->access_key_id, strlen(identity->access_key_id), entry);
}

/* Gets the key of session tokens. Returns false if the store has no such key yet. */
static bool session_key(const struct directory *d, struct session_key *out)
{
	const char *hex = record_member(json_object_get(d->records, SESSION_KEY_RECORD), "key");

	return hex && str_unhex(hex, out->bytes, sizeof(out->bytes)) == 0;
}

/* Finds the record of a key that does not expire, and the secret if it is the store's own key. */
static void find_holder(const struct directory *d, const char *id, struct build_source *out)
{
	out->name = json_string_value(json_object_get(d->keys, id));
	if (strcmp(id, d->root.access_key_id) == 0) {
		out->name = "account/" ACCOUNT_FIRST;
		out->secret_access_key = d->root.secret_access_key;
	}
}

/* Returns true if a temporary key is still valid: its role or user exists with the same id, and the
 * key that requested it is active. */
static bool session_holds(const struct directory *d, const json_t *session)
{
	const char *name = record_member(session, "record"), *id = record_member(session, "id");
	const char *by = record_member(session, "by"), *now;
	struct build_source from = {.name = NULL};
	const json_t *record = json_object_get(d->records, name);

	now = record_member(record, "id");
	if (id && (!now || strcmp(id, now) != 0))
		return false;
	if (!by)
		return true;
	find_holder(d, by, &from);
	return from.name && strcmp(from.name, name) == 0 &&
	       (from.secret_access_key ||
		       json_is_true(json_object_get(
			       json_object_get(json_object_get(record, "keys"), by), "active")));
}

static struct identity *make_temporary(
	struct directory *d, const char *id, const char *token, enum s3_error *problem)
{
	char secret[SESSION_SECRET_SIZE];
	struct build_source from = {.records = d->records,
		.documents = &d->documents,
		.access_key_id = id,
		.secret_access_key = secret,
		.token = token};
	struct identity *identity = NULL;
	struct session_key key;
	json_t *terms = session_key(d, &key) ? session_open(&key, token) : NULL;
	const char *of = record_member(terms, "key");

	*problem = S3_E_INVALID_TOKEN;
	from.session = terms;
	from.name = record_member(terms, "record");
	if (of && strcmp(of, id) == 0 && session_holds(d, terms) &&
		session_secret(&key, id, secret) == 0) {
		from.owner = find_account(d, record_account(from.name).number, number_of);
		identity = build_identity(&from, problem);
	}
	explicit_bzero(secret, sizeof(secret));
	explicit_bzero(&key, sizeof(key));
	json_decref(terms);
	return identity;
}

/* Creates the identity of a key that is not in the cache. */
static struct identity *make(
	struct directory *d, const char *id, const char *token, enum s3_error *problem)
{
	struct build_source from = {
		.records = d->records, .documents = &d->documents, .access_key_id = id};

	if (token && str_starts(id, SESSION_ID_PREFIX))
		return make_temporary(d, id, token, problem);
	find_holder(d, id, &from);
	if (!from.name) {
		*problem = S3_E_INVALID_ACCESS_KEY_ID;
		return NULL;
	}
	from.owner = find_account(d, record_account(from.name).number, number_of);
	return build_identity(&from, problem);
}

static struct identity *make_and_keep(
	struct directory *d, const char *id, const char *token, enum s3_error *problem)
{
	struct identity *identity;

	pthread_rwlock_wrlock(&d->lock);
	identity = cached(d, id);
	if (!identity) {
		identity = make(d, id, token, problem);
		if (identity)
			keep(d, identity);
	}
	pthread_rwlock_unlock(&d->lock);
	return identity;
}

/* Returns true if the request has no token and the key needs none, or if the request has the token
 * of the key, and the key has not expired. */
static bool is_valid(const struct identity *identity, const char *token, enum s3_error *problem)
{
	*problem = S3_E_INVALID_TOKEN;
	if (!identity->token || !token)
		return !identity->token && !token;
	if (!str_equal_secret(identity->token, token))
		return false;
	*problem = S3_E_EXPIRED_TOKEN;
	return clock_wall_ns() / NS_PER_S < identity->expires_s;
}

struct identity *directory_identify(
	struct directory *d, const char *id, const char *token, enum s3_error *problem)
{
	struct identity *identity;

	pthread_rwlock_rdlock(&d->lock);
	identity = cached(d, id);
	pthread_rwlock_unlock(&d->lock);
	if (!identity)
		identity = make_and_keep(d, id, token, problem);
	if (!identity || is_valid(identity, token, problem))
		return identity;
	identity_unref(identity);
	return NULL;
}

struct identity *directory_anonymous(struct directory *d)
{
	return identity_ref(d->anonymous);
}

/* --- records --------------------------------------------------------------------------------- */

/* Adds the keys of a record to the index, or removes these keys from the index. Returns -1 if out
 * of memory. */
static int index_keys(json_t *keys, const char *name, const json_t *record, bool add)
{
	const json_t *own = json_object_get(record, "keys");
	const char *id;
	json_t *key;

	json_object_foreach ((json_t *)(uintptr_t)own, id, key) {
		if (!add)
			json_object_del(keys, id);
		else if (json_object_set_new(keys, id, json_string(name)) < 0)
			return -1;
	}
	return 0;
}

static bool is_same(const struct account_info *a, const struct account_info *b)
{
	return strcmp(a->id, b->id) == 0 && strcmp(a->name, b->name) == 0 &&
	       (a->email ? b->email && strcmp(a->email, b->email) == 0 : !b->email);
}

/* Adds an account to a list, unless `known` has the same account unchanged. Other threads may still
 * use an old entry, which lives until directory_close(). */
static int note_account(struct account_info **list, const struct account_info *known,
	const char *name, const json_t *record)
{
	struct account_info *account;

	if (!str_starts(name, "account/") || !record)
		return 0;
	account = account_of_record(name + strlen("account/"), record);
	if (!account)
		return -1;
	while (known && strcmp(known->number, account->number) != 0)
		known = known->next;
	if (known && is_same(known, account)) {
		free_accounts(account);
		return 0;
	}
	account->next = *list;
	*list = account;
	return 0;
}

/* Masks the secrets of a record in the log. Called once for each record that is kept, even if
 * another record has the same secret: log_redact() counts its calls. */
static int hide_secrets(const json_t *record)
{
	const json_t *keys = json_object_get(record, "keys");
	const char *id;
	json_t *key;

	json_object_foreach ((json_t *)(uintptr_t)keys, id, key) {
		const char *secret = record_member(key, "secret");

		if (secret && log_redact(secret) < 0)
			return -1;
	}
	return 0;
}

static void forget_secrets(const json_t *record)
{
	const json_t *keys = json_object_get(record, "keys");
	const char *id;
	json_t *key;

	json_object_foreach ((json_t *)(uintptr_t)keys, id, key) {
		const char *secret = record_member(key, "secret");

		if (secret)
			log_redact_forget(secret);
	}
}

static int load_record(
	void *cookie, const char *name, const char *value, size_t len, struct penstock_error *err)
{
	struct directory *d = cookie;
	json_t *record = json_loadb(value, len, 0, NULL);

	if (!json_is_object(record)) {
		json_decref(record);
		return error_set(err, PENSTOCK_E_CORRUPT,
			"cannot read the record '%s' of the store: "
			"the record is not a JSON object",
			name);
	}
	if (json_object_set_new(d->records, name, record) < 0 ||
		index_keys(d->keys, name, record, true) < 0 || hide_secrets(record) < 0 ||
		note_account(&d->accounts, NULL, name, record) < 0)
		return error_memory(err);
	return 0;
}

static int load(struct directory *d, struct penstock_error *err)
{
	d->records = json_object();
	d->keys = json_object();
	d->anonymous = identity_new();
	d->accounts = account_new(ACCOUNT_FIRST, ACCOUNT_FIRST_ID, ACCOUNT_FIRST_NAME, NULL);
	if (!d->records || !d->keys || !d->anonymous || !d->accounts)
		return error_memory(err);
	d->anonymous->is_anonymous = true;
	d->anonymous->arn = d->anonymous->user_id = POLICY_ANONYMOUS_ID;
	if (store_record_list(d->store, load_record, d, err) != STORE_OK)
		return -(int)err->code;
	return 0;
}

int directory_open(
	struct directory **out, const struct directory_options *options, struct penstock_error *err)
{
	struct directory *d = calloc(1, sizeof(*d));
	int rc;

	if (!d)
		return error_memory(err);
	d->store = options->store;
	d->root = *options;
	pthread_mutex_init(&d->changes, NULL);
	pthread_rwlock_init(&d->lock, NULL);
	rc = load(d, err);
	if (rc < 0) {
		directory_close(d);
		return rc;
	}
	*out = d;
	return 0;
}

void directory_close(struct directory *d)
{
	if (!d)
		return;
	forget_entries(d);
	documents_release(&d->documents);
	identity_unref(d->anonymous);
	json_decref(d->records);
	json_decref(d->keys);
	free_accounts(d->accounts);
	pthread_mutex_destroy(&d->changes);
	pthread_rwlock_destroy(&d->lock);
	free(d);
}

/* --- changes --------------------------------------------------------------------------------- */

void directory_begin(struct directory *d)
{
	pthread_mutex_lock(&d->changes);
}

void directory_end(struct directory *d)
{
	pthread_mutex_unlock(&d->changes);
}

const json_t *directory_get(const struct directory *d, const char *name)
{
	return json_object_get(d->records, name);
}

const json_t *directory_records(const struct directory *d)
{
	return d->records;
}

const char *directory_key_holder(const struct directory *d, const char *access_key_id)
{
	if (strcmp(access_key_id, d->root.access_key_id) == 0)
		return "account/" ACCOUNT_FIRST;
	return json_string_value(json_object_get(d->keys, access_key_id));
}

enum store_status directory_session_key(
	struct directory *d, struct session_key *out, struct penstock_error *err)
{
	struct directory_change change = {.name = SESSION_KEY_RECORD};
	char hex[2 * SESSION_KEY_SIZE + 1];
	enum store_status status = STORE_FAILED;

	if (session_key(d, out))
		return STORE_OK;
	if (getrandom(out->bytes, sizeof(out->bytes), 0) != (ssize_t)sizeof(out->bytes)) {
		error_set(err, PENSTOCK_E_INTERNAL,
			"cannot create the session key: getrandom() failed");
		return STORE_FAILED;
	}
	str_hex(out->bytes, sizeof(out->bytes), hex);
	change.value = json_pack("{s:s}", "key", hex);
	explicit_bzero(hex, sizeof(hex));
	if (change.value)
		status = directory_change(d, &change, 1, err);
	else
		error_memory(err);
	json_decref(change.value);
	return status;
}

/* The state after a change, built before the change is durable, so that nothing can fail
 * afterwards. */
struct next {
	json_t *records, *keys;
	struct account_info *accounts; /* accounts to add */
	const struct account_info *known; /* accounts of the directory */
	struct store_record *stored; /* records to write; their values are owned */
	size_t n;
};

static void next_release(struct next *next)
{
	json_decref(next->records);
	json_decref(next->keys);
	free_accounts(next->accounts);
	for (size_t i = 0; i < next->n; i++)
		str_wipe((char *)(uintptr_t)next->stored[i].value);
	free(next->stored);
}

static int prepare(struct next *next, const struct directory_change *change)
{
	const json_t *old = json_object_get(next->records, change->name);
	struct store_record *stored = &next->stored[next->n++];

	stored->name = change->name;
	index_keys(next->keys, change->name, old, false);
	if (!change->value) {
		json_object_del(next->records, change->name);
		return 0;
	}
	stored->value = json_dumps(change->value, JSON_COMPACT);
	if (!stored->value || json_object_set(next->records, change->name, change->value) < 0 ||
		index_keys(next->keys, change->name, change->value, true) < 0 ||
		note_account(&next->accounts, next->known, change->name, change->value) < 0)
		return -1;
	/* comes last, so that no later failure leaves the secrets masked */
	return hide_secrets(change->value);
}

static void swap_in(struct directory *d, struct next *next)
{
	struct account_info **last = &next->accounts;
	json_t *records = d->records, *keys = d->keys;

	pthread_rwlock_wrlock(&d->lock);
	d->records = next->records;
	d->keys = next->keys;
	while (*last)
		last = &(*last)->next;
	*last = d->accounts;
	d->accounts = take_pointer(next->accounts);
	forget_entries(d);
	pthread_rwlock_unlock(&d->lock);
	next->records = records;
	next->keys = keys;
}

enum store_status directory_change(struct directory *d, const struct directory_change *changes,
	size_t n, struct penstock_error *err)
{
	_cleanup_(next_release) struct next next = {.records = json_copy(d->records),
		.keys = json_copy(d->keys),
		.known = d->accounts,
		.stored = calloc(n, sizeof(*next.stored))};
	enum store_status status;

	if (!next.records || !next.keys || !next.stored) {
		error_memory(err);
		return STORE_FAILED;
	}
	for (size_t i = 0; i < n; i++) {
		if (prepare(&next, &changes[i]) == 0)
			continue;
		while (i-- > 0)
			forget_secrets(changes[i].value);
		error_memory(err);
		return STORE_FAILED;
	}
	status = store_record_set(d->store, next.stored, n, err);
	if (status == STORE_OK)
		swap_in(d, &next); /* `next` has the old records */
	for (size_t i = 0; i < n; i++)
		forget_secrets(status == STORE_OK ? json_object_get(next.records, changes[i].name)
						  : changes[i].value);
	return status;
}
