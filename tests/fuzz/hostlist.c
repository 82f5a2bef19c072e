/* Lists of hosts: the expanded names, joined by commas, expand to the same names. A refused list
 * adds no name. */
#include "fuzz.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "run/cluster/hostlist.h"
#include "base/limits.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_free_ char *text = fuzz_text(data, size);
	_cleanup_(strlist_release) struct strlist names = {0}, again = {0};
	_cleanup_(buf_release) struct buf joined = BUF_INIT(64 * MIB);

	require(hostlist_count(text, size) >= -1);
	if (hostlist_expand(text, &names, NULL) < 0) {
		require(names.n == 0);
		return 0;
	}
	require(names.n > 0 && names.n <= LIMIT_HOSTLIST);
	for (size_t i = 0; i < names.n; i++) {
		require(strlen(names.items[i]) <= LIMIT_HOST_NAME);
		buf_printf(&joined, "%s%s", i ? "," : "", names.items[i]);
	}
	require(!buf_failed(&joined));
	require(hostlist_expand(buf_str(&joined), &again, NULL) == 0);
	require(again.n == names.n);
	for (size_t i = 0; i < names.n; i++)
		require(strcmp(again.items[i], names.items[i]) == 0);
	return 0;
}
