#include "s3/access/principal.h"

#include <string.h>

#include "base/error.h"
#include "base/str.h"

#define ACCOUNT_DIGITS 12
#define CANONICAL_ID   64
#define ACCOUNT_NAME   64 /* maximum length in an ARN; other stores have names, not numbers */

static const char words[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+=,.@_-";

static int invalid(struct penstock_error *err)
{
	return error_set(err, PENSTOCK_E_PROTOCOL, "Invalid principal in policy");
}

static bool is_account(const char *text)
{
	return strlen(text) == ACCOUNT_DIGITS && strspn(text, "0123456789") == ACCOUNT_DIGITS;
}

/* Reads "arn:aws:iam::ACCOUNT:root", ":user/…", ":role/…", or the ARN of a session. */
static bool read_arn(const char *text, struct arena *arena, struct principal *out)
{
	static const char iam[] = "arn:aws:iam::", sts[] = "arn:aws:sts::";
	const char *account = text + sizeof(iam) - 1, *name;
	size_t n;

	if (!str_starts(text, iam) && !str_starts(text, sts))
		return false;
	n = strspn(account, words);
	name = account + n + 1;
	if (account[n] != ':' || n > ACCOUNT_NAME)
		return false;
	if (strcmp(name, "root") == 0 && str_starts(text, iam)) {
		out->kind = PRINCIPAL_ACCOUNT;
		out->value = arena_copy(arena, account, n);
		return n > 0;
	}
	if (str_starts(text, iam) ? !str_starts(name, "user/") && !str_starts(name, "role/")
				  : !str_starts(name, "assumed-role/") &&
					    !str_starts(name, "federated-user/"))
		return false;
	name = strchr(name, '/') + 1;
	out->kind = PRINCIPAL_ARN;
	out->value = arena_copy(arena, text, strlen(text));
	/* Wildcards are not allowed. */
	return *name && strlen(name) == strcspn(name, "*?");
}

static int read_principal(struct principal *out, struct arena *arena, const char *type,
	const char *text, struct penstock_error *err)
{
	bool aws = strcmp(type, "AWS") == 0;

	*out = (struct principal){.value = text};
	if (strcmp(text, "*") == 0) {
		if (!aws)
			return invalid(err);
		return 0;
	}
	if (aws && read_arn(text, arena, out))
		return out->value ? 0 : error_memory(err);
	if (aws && is_account(text))
		out->kind = PRINCIPAL_ACCOUNT;
	else if (strcmp(type, "CanonicalUser") == 0 && strlen(text) == CANONICAL_ID)
		out->kind = PRINCIPAL_CANONICAL;
	else if (strcmp(type, "Service") == 0 && strchr(text, '.'))
		out->kind = PRINCIPAL_SERVICE;
	else if (strcmp(type, "Federated") == 0 && *text)
		out->kind = PRINCIPAL_FEDERATED;
	else
		return invalid(err);
	out->value = arena_copy(arena, text, strlen(text));
	return out->value ? 0 : error_memory(err);
}

static size_t count(json_t *element)
{
	const char *type;
	json_t *value;
	size_t n = 0;

	json_object_foreach (element, type, value)
		n += json_is_array(value) ? json_array_size(value) : 1;
	return n;
}

int principals_read(
	struct principals *out, struct arena *arena, json_t *element, struct penstock_error *err)
{
	const char *text = json_string_value(element), *type;
	size_t n = text ? 1 : count(element);
	json_t *value;

	*out = (struct principals){0};
	if (!n || (text && strcmp(text, "*") != 0))
		return invalid(err);
	out->items = arena_alloc(arena, n * sizeof(*out->items));
	if (!out->items)
		return error_memory(err);
	if (text)
		out->items[out->n++] = (struct principal){.kind = PRINCIPAL_ANYONE, .value = "*"};
	json_object_foreach (element, type, value) {
		bool many = json_is_array(value);

		for (size_t i = 0; i < (many ? json_array_size(value) : 1); i++) {
			int rc;

			text = json_string_value(many ? json_array_get(value, i) : value);
			rc = text ? read_principal(&out->items[out->n], arena, type, text, err)
				  : invalid(err);
			if (rc < 0)
				return rc;
			out->n++;
		}
	}
	return 0;
}

static bool same(const char *value, const char *of_caller)
{
	return of_caller && strcmp(value, of_caller) == 0;
}

static enum policy_result match(const struct principal *p, const struct policy_caller *caller)
{
	bool found = false;

	switch (p->kind) {
	case PRINCIPAL_ANYONE:
		found = true;
		break;
	case PRINCIPAL_ACCOUNT:
	case PRINCIPAL_CANONICAL:
		found = same(p->value,
			p->kind == PRINCIPAL_ACCOUNT ? caller->account : caller->canonical_id);
		if (found && !caller->is_root)
			return POLICY_DELEGATE;
		break;
	case PRINCIPAL_ARN:
		found = same(p->value, caller->arn) || same(p->value, caller->role_arn);
		break;
	case PRINCIPAL_SERVICE:
		found = same(p->value, caller->service);
		break;
	case PRINCIPAL_FEDERATED:
		break;
	}
	return found ? POLICY_ALLOW : POLICY_NEITHER;
}

enum policy_result principals_match(
	const struct principals *principals, const struct policy_caller *caller)
{
	enum policy_result best = POLICY_NEITHER;

	for (size_t i = 0; i < principals->n && best != POLICY_ALLOW; i++) {
		enum policy_result result = match(&principals->items[i], caller);

		best = result > best ? result : best;
	}
	return best;
}

bool principals_have_anyone(const struct principals *principals)
{
	for (size_t i = 0; i < principals->n; i++)
		if (principals->items[i].kind == PRINCIPAL_ANYONE)
			return true;
	return false;
}
