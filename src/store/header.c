#include "store/header.h"

#include <ctype.h>
#include <string.h>

#include "base/buf.h"
#include "base/str.h"
#include "store/store.h"

bool store_header_next(
	const char *headers, size_t len, const char **p, const char **name, const char **value)
{
	const char *at = *p ? *p : headers;

	if (!len || at >= headers + len)
		return false;
	*name = at;
	*value = at + strlen(at) + 1;
	*p = *value + strlen(*value) + 1;
	return true;
}

const char *store_header_find(const char *headers, size_t len, const char *name)
{
	const char *p = NULL, *n, *value;

	while (store_header_next(headers, len, &p, &n, &value))
		if (strcmp(n, name) == 0)
			return value;
	return NULL;
}

bool store_header_waits(const char *name, const char *value)
{
	return str_starts(name, STORE_REPLICATION_HEADER) &&
	       (strcmp(value, STORE_REPLICATION_PENDING) == 0 ||
		       strcmp(value, STORE_REPLICATION_REFUSED) == 0);
}

bool store_header_is_name(const char *name)
{
	static const char others[] = "!#$%&'*+-.^_`|~";

	if (!*name)
		return false;
	for (; *name; name++)
		if (!(*name >= '0' && *name <= '9') && !(*name >= 'a' && *name <= 'z') &&
			!(*name >= 'A' && *name <= 'Z') && !strchr(others, *name))
			return false;
	return true;
}

bool store_header_is_value(const char *value)
{
	for (; *value; value++)
		if (((unsigned char)*value < ' ' && *value != '\t') || *value == 0x7f)
			return false;
	return true;
}

void store_header_add(struct buf *out, const char *name, const char *value)
{
	for (const char *p = name; *p; p++)
		buf_add_char(out, (char)tolower((unsigned char)*p));
	buf_add_char(out, '\0');
	buf_add(out, value, strlen(value) + 1);
}

void store_header_replace(
	struct buf *out, const char *headers, size_t len, const char *name, const char *value)
{
	const char *p = NULL, *n, *v;

	while (store_header_next(headers, len, &p, &n, &v))
		if (strcmp(n, name) != 0)
			store_header_add(out, n, v);
	if (value)
		store_header_add(out, name, value);
}
