/* Structs whose size the caller's header defines. */
#include <string.h>

#include <penstock/version.h>

#include "base/error.h"
#include "base/limits.h"
#include "library/library.h"

int library_adopt(
	void *own, size_t size, const void *given, const char *what, struct penstock_error *err)
{
	const char *bytes = given;
	size_t theirs;

	if (!given)
		return 0;
	memcpy(&theirs, given, sizeof(theirs));
	if (theirs < sizeof(theirs) || theirs > LIMIT_LIBRARY_STRUCT)
		return error_set(err, PENSTOCK_E_INVALID,
			"%s is not initialised: struct_size is %zu", what, theirs);
	for (size_t i = size; i < theirs; i++) {
		if (bytes[i])
			return error_set(err, PENSTOCK_E_UNSUPPORTED,
				"%s has members that this library (%s) does not support", what,
				PENSTOCK_VERSION);
	}
	memcpy(own, given, theirs < size ? theirs : size);
	return 0;
}

void library_give(void *to, const void *own, size_t size)
{
	size_t theirs;

	memcpy(&theirs, to, sizeof(theirs));
	memcpy(to, own, theirs < size ? theirs : size);
	memcpy(to, &theirs, sizeof(theirs));
}
