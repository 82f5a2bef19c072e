/* The head of a reply over plain HTTP. An accepted head has a Content-Length of fewer than 24
 * characters. */
#include "fuzz.h"

#include "net/plain/plain.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *head = (const char *)data;
	uint64_t body_len = 0;
	bool keep;
	size_t n = 0;
	const char *value = plain_header(head, size, "Content-Length", &n);

	require(!value || (value >= head && value + n <= head + size));
	require(plain_parse_head(head, size, &body_len, &keep) < 0 || (value && n > 0 && n < 24));
	return 0;
}
