#include "transfer/list/listing_internal.h"

#include "base/error.h"

int entry_source_next(struct entry_source *source, struct entry *entry, struct penstock_error *err)
{
	if (source->ended < 0)
		return error_set(err, (enum penstock_code) - source->ended,
			"an earlier call for this listing has failed");
	if (source->ended == 1)
		source->ended = source->next(source, entry, err);
	return source->ended;
}

void entry_source_free(struct entry_source *source)
{
	if (source)
		source->free(source);
}
