#include "s3/access/condition.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/str.h"
#include "s3/ascii.h"
#include "s3/date.h"

enum type { STRING, STRING_ANY_CASE, LIKE, NUMBER, DATE, BOOLEAN, IP, ARN, ABSENCE };
enum relation { EQUAL, LESS, AT_MOST, GREATER, AT_LEAST };

struct operator
{
	const char *name;
	enum type type;
	enum relation relation;
	bool negated;
};

static const struct operator operators[] = {
	{"StringEquals", STRING, EQUAL, false},
	{"StringNotEquals", STRING, EQUAL, true},
	{"StringEqualsIgnoreCase", STRING_ANY_CASE, EQUAL, false},
	{"StringNotEqualsIgnoreCase", STRING_ANY_CASE, EQUAL, true},
	{"StringLike", LIKE, EQUAL, false},
	{"StringNotLike", LIKE, EQUAL, true},
	{"NumericEquals", NUMBER, EQUAL, false},
	{"NumericNotEquals", NUMBER, EQUAL, true},
	{"NumericLessThan", NUMBER, LESS, false},
	{"NumericLessThanEquals", NUMBER, AT_MOST, false},
	{"NumericGreaterThan", NUMBER, GREATER, false},
	{"NumericGreaterThanEquals", NUMBER, AT_LEAST, false},
	{"DateEquals", DATE, EQUAL, false},
	{"DateNotEquals", DATE, EQUAL, true},
	{"DateLessThan", DATE, LESS, false},
	{"DateLessThanEquals", DATE, AT_MOST, false},
	{"DateGreaterThan", DATE, GREATER, false},
	{"DateGreaterThanEquals", DATE, AT_LEAST, false},
	{"Bool", BOOLEAN, EQUAL, false},
	{"BinaryEquals", STRING, EQUAL, false},
	{"IpAddress", IP, EQUAL, false},
	{"NotIpAddress", IP, EQUAL, true},
	{"ArnEquals", ARN, EQUAL, false},
	{"ArnLike", ARN, EQUAL, false},
	{"ArnNotEquals", ARN, EQUAL, true},
	{"ArnNotLike", ARN, EQUAL, true},
	{"Null", ABSENCE, EQUAL, false},
};

/* The keys of S3; a name that ends with '/' is followed by the key of a tag. */
static const char *const s3_keys[] = {"AccessGrantsInstanceArn", "AccessPointNetworkOrigin",
	"authType", "DataAccessPointAccount", "DataAccessPointArn", "delimiter",
	"ExistingObjectTag/", "if-match", "if-none-match", "InventoryAccessibleOptionalFields",
	"max-keys", "object-lock-legal-hold", "object-lock-mode",
	"object-lock-remaining-retention-days", "object-lock-retain-until-date",
	"ObjectCreationOperation", "prefix", "RequestObjectTag/", "RequestObjectTagKeys",
	"ResourceAccount", "signatureAge", "signatureversion", "TlsVersion", "VersionId",
	"x-amz-acl", "x-amz-content-sha256", "x-amz-copy-source", "x-amz-grant-full-control",
	"x-amz-grant-read", "x-amz-grant-read-acp", "x-amz-grant-write", "x-amz-grant-write-acp",
	"x-amz-metadata-directive", "x-amz-object-ownership", "x-amz-server-side-encryption",
	"x-amz-server-side-encryption-aws-kms-key-id",
	"x-amz-server-side-encryption-customer-algorithm", "x-amz-storage-class",
	"x-amz-website-redirect-location"};

/* Keys that limit the senders, if their values are fixed. */
static const char *const limiting_keys[] = {"aws:SourceArn", "aws:SourceVpc", "aws:SourceVpce",
	"aws:SourceOwner", "aws:SourceAccount", "aws:SourceIp", "aws:userid", "aws:PrincipalArn",
	"aws:PrincipalAccount", "aws:PrincipalOrgID", "s3:DataAccessPointAccount",
	"s3:DataAccessPointArn", "s3:x-amz-server-side-encryption-aws-kms-key-id"};

/* ---- values ---- */

struct network {
	unsigned char address[16]; /* IPv4 is mapped into IPv6 */
	unsigned bits;
	bool is_v4;
};

/* Reads an address, or a network in CIDR notation. */
static bool read_network(const char *text, struct network *out)
{
	static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};
	const char *slash = strchrnul(text, '/');
	char address[INET6_ADDRSTRLEN];
	uint64_t bits;

	if ((size_t)(slash - text) >= sizeof(address))
		return false;
	snprintf(address, sizeof(address), "%.*s", (int)(slash - text), text);
	memcpy(out->address, mapped, sizeof(mapped));
	out->is_v4 = inet_pton(AF_INET, address, out->address + sizeof(mapped)) == 1;
	if (!out->is_v4 && inet_pton(AF_INET6, address, out->address) != 1)
		return false;
	bits = out->is_v4 ? 32 : 128;
	if (*slash && !str_to_u64(slash + 1, 0, bits, &bits))
		return false;
	out->bits = (unsigned)bits + (out->is_v4 ? 96 : 0);
	return true;
}

static bool network_has(const struct network *network, const struct network *address)
{
	unsigned whole = network->bits / 8, rest = network->bits % 8;

	return address->is_v4 == network->is_v4 && address->bits >= network->bits &&
	       memcmp(network->address, address->address, whole) == 0 &&
	       (!rest || (network->address[whole] ^ address->address[whole]) >> (8 - rest) == 0);
}

/* Reads a decimal number, independent of the locale. Leading zeros do not count as digits, because
 * other readers of the same text accept any number of them. */
static bool read_number(const char *text, long double *out)
{
	const char *p = text + (*text == '-' || *text == '+');
	size_t zeros = strspn(p, "0"), digits = 0;
	long double value = 0, scale = 1;

	p += zeros;
	for (; *p >= '0' && *p <= '9'; p++, digits++)
		value = value * 10 + (*p - '0');
	for (p += *p == '.'; *p >= '0' && *p <= '9'; p++, digits++)
		value += (*p - '0') * (scale /= 10);
	*out = *text == '-' ? -value : value;
	return zeros + digits && digits < 40 && !*p;
}

/* Reads a date, or the seconds since 1970. */
static bool read_date(const char *text, long double *out)
{
	int64_t ns;

	if (read_number(text, out))
		return true;
	if (!date_parse_iso_end(text, &ns))
		return false;
	*out = (long double)ns / NS_PER_S;
	return true;
}

static bool is_boolean(const char *text)
{
	return strcasecmp(text, "true") == 0 || strcasecmp(text, "false") == 0;
}

static bool is_value(enum type type, const char *text)
{
	struct network network;
	long double number;

	switch (type) {
	case NUMBER:
		return read_number(text, &number);
	case DATE:
		return read_date(text, &number);
	case BOOLEAN:
	case ABSENCE:
		return is_boolean(text);
	case IP:
		return read_network(text, &network);
	case STRING:
	case STRING_ANY_CASE:
	case LIKE:
	case ARN:
		break;
	}
	return true;
}

/* ---- reading ---- */

static const struct operator* find_operator(const char *name, struct condition *out)
{
	static const char any[] = "ForAnyValue:", all[] = "ForAllValues:", exists[] = "IfExists";
	size_t n;

	if (str_starts(name, any)) {
		out->quantifier = FOR_ANY_VALUE;
		name += sizeof(any) - 1;
	} else if (str_starts(name, all)) {
		out->quantifier = FOR_ALL_VALUES;
		name += sizeof(all) - 1;
	}
	n = strlen(name);
	out->if_exists = str_ends(name, exists);
	n -= out->if_exists ? sizeof(exists) - 1 : 0;
	for (size_t i = 0; i < ARRAY_SIZE(operators); i++)
		if (strlen(operators[i].name) == n && strncmp(operators[i].name, name, n) == 0)
			return operators[i].type == ABSENCE && out->if_exists ? NULL
									      : &operators[i];
	return NULL;
}

static bool is_s3_key(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(s3_keys); i++) {
		size_t n = strlen(s3_keys[i]);

		if (s3_keys[i][n - 1] == '/' ? strncasecmp(name, s3_keys[i], n) == 0 && name[n]
					     : strcasecmp(name, s3_keys[i]) == 0)
			return true;
	}
	return false;
}

static bool is_key(const char *key, enum policy_kind kind)
{
	const char *colon = strchr(key, ':');

	if (!colon || colon == key || !colon[1])
		return false;
	return kind != POLICY_OF_BUCKET || strncasecmp(key, "aws:", 4) == 0 ||
	       (strncasecmp(key, "s3:", 3) == 0 && is_s3_key(key + 3));
}

static int read_value(struct condition *c, struct arena *arena, const json_t *value, unsigned flags,
	struct penstock_error *err)
{
	const char *text = json_string_value(value);
	char number[32];

	if (json_is_boolean(value)) {
		text = json_is_true(value) ? "true" : "false";
	} else if (json_is_integer(value)) {
		snprintf(number, sizeof(number), "%lld", (long long)json_integer_value(value));
		text = number;
	}
	if (!text)
		return error_set(err, PENSTOCK_E_PROTOCOL,
			"The values of a condition must be texts, numbers or booleans");
	if (c->op->type != LIKE && c->op->type != ARN)
		flags |= PATTERN_LITERAL;
	if (pattern_read(&c->values[c->n], arena, text, flags) < 0)
		return error_memory(err);
	/* The operator Null does not fill in variables, so its values are always checked. */
	if ((!c->values[c->n].has_variables || c->op->type == ABSENCE) &&
		!is_value(c->op->type, text))
		return error_set(err, PENSTOCK_E_PROTOCOL, "Invalid value for %s: %.100s",
			c->op->name, text);
	c->n++;
	return 0;
}

static int read_condition(struct condition *c, struct arena *arena, const json_t *values,
	unsigned flags, struct penstock_error *err)
{
	size_t n = json_is_array(values) ? json_array_size(values) : 1;

	if (!n)
		return error_set(
			err, PENSTOCK_E_PROTOCOL, "The condition %.100s has no values", c->key);
	c->key = arena_copy(arena, c->key, strlen(c->key));
	c->values = arena_alloc(arena, n * sizeof(*c->values));
	if (!c->key || !c->values)
		return error_memory(err);
	for (size_t i = 0; i < n; i++) {
		int rc = read_value(c, arena,
			json_is_array(values) ? json_array_get(values, i) : values, flags, err);

		if (rc < 0)
			return rc;
	}
	return 0;
}

/* Returns the number of conditions, or -1 if the element is malformed. */
static int count(json_t *element)
{
	const char *name;
	json_t *keys;
	int n = 0;

	if (!json_is_object(element))
		return -1;
	json_object_foreach (element, name, keys) {
		if (!json_is_object(keys) || !json_object_size(keys))
			return -1;
		n += (int)json_object_size(keys);
	}
	return n;
}

/* Returns true for keys of S3 for which this store has no value. A statement that denies by such a
 * key would never apply. */
static bool is_unsupported(const char *key)
{
	static const char *const names[] = {
		"s3:BucketTag/", "s3:LocationConstraint", "s3:ResourceTag/"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (strncasecmp(key, names[i], strlen(names[i])) == 0)
			return true;
	return false;
}

static int read_operator(struct conditions *out, struct arena *arena, const char *name,
	json_t *keys, enum policy_kind kind, unsigned flags, struct penstock_error *err)
{
	struct condition model = {0};
	const char *key;
	json_t *values;

	model.op = find_operator(name, &model);
	if (!model.op)
		return error_set(err, PENSTOCK_E_PROTOCOL, "Invalid Condition type : %.100s", name);
	json_object_foreach (keys, key, values) {
		int rc;

		if (!is_key(key, kind))
			return error_set(err, PENSTOCK_E_PROTOCOL,
				"Policy has an invalid condition key: %.100s", key);
		if (is_unsupported(key))
			return error_set(err, PENSTOCK_E_PROTOCOL,
				"This store has no value for the condition key: %.100s", key);
		model.key = key;
		out->items[out->n] = model;
		rc = read_condition(&out->items[out->n], arena, values, flags, err);
		if (rc < 0)
			return rc;
		out->n++;
	}
	return 0;
}

int conditions_read(struct conditions *out, struct arena *arena, json_t *element,
	enum policy_kind kind, unsigned flags, struct penstock_error *err)
{
	int n = element ? count(element) : 0;
	const char *name;
	json_t *keys;

	*out = (struct conditions){0};
	if (n < 0)
		return error_set(err, PENSTOCK_E_PROTOCOL, "Invalid Condition");
	if (!n)
		return 0;
	out->items = arena_alloc(arena, (size_t)n * sizeof(*out->items));
	if (!out->items)
		return error_memory(err);
	json_object_foreach (element, name, keys) {
		int rc = read_operator(out, arena, name, keys, kind, flags, err);

		if (rc < 0)
			return rc;
	}
	return 0;
}

/* ---- evaluating ---- */

static bool related(enum relation relation, long double actual, long double wanted)
{
	switch (relation) {
	case EQUAL:
		break;
	case LESS:
		return actual < wanted;
	case AT_MOST:
		return actual <= wanted;
	case GREATER:
		return actual > wanted;
	case AT_LEAST:
		return actual >= wanted;
	}
	return !(actual < wanted) && !(actual > wanted);
}

static bool compare(
	const struct operator* op, const struct pattern *wanted, const char *actual, size_t *steps)
{
	struct network network, address;
	long double a, w;

	switch (op->type) {
	case STRING:
	case LIKE:
		return pattern_match(wanted, actual, false, steps);
	case STRING_ANY_CASE:
	case BOOLEAN:
		return pattern_match(wanted, actual, true, steps);
	case NUMBER:
		return read_number(wanted->text, &w) && read_number(actual, &a) &&
		       related(op->relation, a, w);
	case DATE:
		return read_date(wanted->text, &w) && read_date(actual, &a) &&
		       related(op->relation, a, w);
	case IP:
		return read_network(wanted->text, &network) && read_network(actual, &address) &&
		       network_has(&network, &address);
	case ARN:
		return pattern_match_arn(wanted, actual, steps);
	case ABSENCE:
		break;
	}
	return false;
}

/* Returns the number of steps that a comparison costs, in addition to those that pattern_match()
 * takes. A number, a date or an address costs one more step for each character. */
static size_t cost_of(const struct operator* op, const char *actual)
{
	bool is_read = op->type == NUMBER || op->type == DATE || op->type == IP;

	return 64 + (is_read ? strlen(actual) : 0);
}

/* Returns 1 if `actual` matches a value of the condition, 0 if not, or a negative code. */
static int fits(
	const struct condition *c, const struct policy_question *question, const char *actual)
{
	if ((c->op->type == LIKE || c->op->type == ARN) && strlen(actual) > LIMIT_POLICY_VALUE)
		return -PENSTOCK_E_LIMIT;
	for (size_t i = 0; i < c->n; i++) {
		_cleanup_(buf_release) struct buf memory = BUF_INIT(LIMIT_HTTP_HEADERS);
		struct pattern wanted;
		int rc = policy_spend(question, cost_of(c->op, actual))
				 ? pattern_fill(&c->values[i], question, &memory, &wanted)
				 : -PENSTOCK_E_LIMIT;

		if (rc < 0 || (rc > 0 && compare(c->op, &wanted, actual, question->steps)))
			return rc;
	}
	return 0;
}

/* Returns 1 if each variable of the condition has a value, 0 if one lacks it, or a negative
 * code. */
static int has_variables(const struct condition *c, const struct policy_question *question)
{
	for (size_t i = 0; i < c->n; i++) {
		_cleanup_(buf_release) struct buf memory = BUF_INIT(LIMIT_HTTP_HEADERS);
		struct pattern filled;
		int rc = pattern_fill(&c->values[i], question, &memory, &filled);

		if (rc <= 0)
			return rc;
	}
	return 1;
}

/* The values of Null are "true" or "false". */
static bool absence_fits(const struct condition *c, bool absent)
{
	for (size_t i = 0; i < c->n; i++)
		if (ascii_lower(c->values[i].text[0]) == (absent ? 't' : 'f'))
			return true;
	return false;
}

static int holds(const struct condition *c, const struct policy_question *question, bool denies)
{
	struct policy_values actual = {0};
	size_t n = 0; /* number of values of the request that fit */
	/* A negated operator with a variable that has no value must not allow all requests. */
	int rc = c->op->negated && !denies ? has_variables(c, question) : 1;

	if (rc <= 0)
		return rc;
	rc = policy_values_get(question, c->key, &actual);
	if (rc < 0)
		return rc;
	if (c->op->type == ABSENCE)
		return absence_fits(c, !actual.n);
	if (!actual.n)
		return c->if_exists || c->quantifier == FOR_ALL_VALUES ||
		       (c->op->negated && c->quantifier == OF_KEY);
	for (size_t i = 0; i < actual.n; i++) {
		rc = fits(c, question, actual.items[i]);
		if (rc < 0)
			return rc;
		n += (rc > 0) != c->op->negated;
	}
	/* A negated operator holds only if no value of the request matches. */
	if (c->quantifier == FOR_ALL_VALUES || (c->quantifier == OF_KEY && c->op->negated))
		return n == actual.n;
	return n > 0;
}

int conditions_hold(
	const struct conditions *conditions, const struct policy_question *question, bool denies)
{
	for (size_t i = 0; i < conditions->n; i++) {
		int rc = holds(&conditions->items[i], question, denies);

		if (rc <= 0)
			return rc;
	}
	return 1;
}

/* ---- public policies ---- */

/* Returns true unless AWS counts the network as public: larger than /8 (IPv4) or /32 (IPv6). */
static bool is_narrow(const struct pattern *value)
{
	struct network network;

	return read_network(value->text, &network) &&
	       network.bits >= (network.is_v4 ? 96U + 8U : 32U);
}

static bool limits_senders(const struct condition *c)
{
	bool is_id = strcasecmp(c->key, "aws:userid") == 0;
	size_t k = 0;

	while (k < ARRAY_SIZE(limiting_keys) && strcasecmp(limiting_keys[k], c->key) != 0)
		k++;
	if (k == ARRAY_SIZE(limiting_keys) || c->op->negated || c->if_exists ||
		c->op->relation != EQUAL || c->op->type == ABSENCE ||
		c->quantifier == FOR_ALL_VALUES)
		return false;
	for (size_t i = 0; i < c->n; i++)
		if (!pattern_is_fixed(&c->values[i]) ||
			(c->op->type == IP && !is_narrow(&c->values[i])) ||
			(is_id && compare(c->op, &c->values[i], POLICY_ANONYMOUS_ID, NULL)))
			return false;
	return true;
}

bool conditions_limit_senders(const struct conditions *conditions)
{
	for (size_t i = 0; i < conditions->n; i++)
		if (limits_senders(&conditions->items[i]))
			return true;
	return false;
}
