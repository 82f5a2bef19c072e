#include "server/directory/record.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"

struct record_account record_account(const char *name)
{
	const char *number = strchr(name, '/');
	struct record_account account = {""};
	size_t len;

	number = number ? number + 1 : name;
	len = strcspn(number, "/");
	if (len < sizeof(account.number))
		memcpy(account.number, number, len);
	return account;
}

const char *record_member(const json_t *record, const char *member)
{
	return json_string_value(json_object_get(record, member));
}

const char *record_text(const json_t *record, const char *member)
{
	const char *text = record_member(record, member);

	return text ? text : "";
}

/* Returns true if `path` is the path and the name of the record. */
static bool is_at(const json_t *record, const char *path)
{
	const char *folder = record_text(record, "path");

	return str_starts(path, folder) &&
	       strcmp(path + strlen(folder), record_text(record, "name")) == 0;
}

const json_t *record_by_arn(const json_t *records, const char *arn, const char **name)
{
	static const char prefix[] = "arn:aws:iam::";
	const char *number = arn + sizeof(prefix) - 1, *kind, *path;
	json_t *all = (json_t *)(uintptr_t)records;
	char wanted[256];
	void *found;
	int n;

	if (!str_starts(arn, prefix) || !(kind = strchr(number, ':')) ||
		!(path = strchr(kind, '/')))
		return NULL;
	n = snprintf(wanted, sizeof(wanted), "%.*s/%.*s%s", (int)(path - kind - 1), kind + 1,
		(int)(kind - number), number, strrchr(path, '/'));
	if (n < 0 || (size_t)n >= sizeof(wanted))
		return NULL;
	/* Records have the name in lower case, because names are unique regardless of case. is_at()
	 * compares the path and the name with their case, as policies do. */
	for (char *p = strrchr(wanted, '/'); *p; p++)
		*p = (char)tolower((unsigned char)*p);
	found = json_object_iter_at(all, wanted);
	if (!found || !is_at(json_object_iter_value(found), path))
		return NULL;
	if (name)
		*name = json_object_iter_key(found);
	return json_object_iter_value(found);
}
