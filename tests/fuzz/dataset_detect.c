/* The format of an object: its size as eight bytes, its name up to a NUL, its first bytes. */
#include "dataset.h"
#include "dataset/format/detect.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct detect_object o = {0};
	_cleanup_free_ char *name = NULL, *head = NULL;
	const uint8_t *end;
	const char *reason = NULL;

	if (size < 8)
		return 0;
	memcpy(&o.size, data, 8);
	data += 8;
	size -= 8;
	end = size ? memchr(data, '\0', size) : NULL;
	if (!end)
		return 0;
	name = fuzz_text(data, (size_t)(end - data));
	o.name = name;
	o.head_len = size - (size_t)(end - data) - 1;
	if (o.head_len > DETECT_BYTES)
		o.head_len = DETECT_BYTES;
	/* The buffer ends with the last byte of the head, so that ASan detects a read beyond its
	 * end. */
	head = malloc(o.head_len ? o.head_len : 1);
	require(head);
	memcpy(head, end + 1, o.head_len);
	o.head = head;
	require(format_kind_name(format_detect(&o, &reason)) && reason && *reason);
	return 0;
}
