/* A version is named after its modification time, which no other version of its key has. */
#include "store/internal.h"

#include <inttypes.h>
#include <string.h>

#include "base/str.h"

void version_name(char out[static STORE_VERSION_SIZE], int64_t modified_ns, bool is_null)
{
	if (is_null)
		snprintf(out, STORE_VERSION_SIZE, VERSION_NULL);
	else
		snprintf(out, STORE_VERSION_SIZE, "%016" PRIx64, (uint64_t)modified_ns);
}

bool version_is_null(const char *version)
{
	return strcmp(version, VERSION_NULL) == 0;
}

int64_t version_modified(const char *version)
{
	unsigned char bytes[8];
	uint64_t modified = 0;

	/* Only lower case, as version_name() formats it. */
	if (strlen(version) != 16 || strspn(version, "0123456789abcdef") != 16 ||
		str_unhex(version, bytes, sizeof(bytes)) < 0)
		return -1;
	for (size_t i = 0; i < sizeof(bytes); i++)
		modified = modified << 8 | bytes[i];
	return modified <= INT64_MAX ? (int64_t)modified : -1;
}

bool store_version_is_valid(const char *version)
{
	return version_is_null(version) || version_modified(version) >= 0;
}

bool store_replica_is_valid(const char *version)
{
	int64_t modified_ns = version_modified(version);

	/* Versions after this version get later times, which must not overflow. */
	return modified_ns > 0 && modified_ns <= INT64_MAX / 2;
}
