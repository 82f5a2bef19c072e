/*
 * State of the store other than the contents of objects. If the first byte is even, the rest is
 * the layout of an object in the database, else owner.json and the store's keys, which
 * a user may have edited.
 */
#include "base/log.h"
#include "s3/sum/checksum.h"
#include "server/request/account.h"
#include "store/internal.h"
#include "yard.h"

/* The parsers are static functions of this file. */
#include "server/embedded.c" /* NOLINT(bugprone-suspicious-include) */

static void layout(const uint8_t *data, size_t size)
{
	_cleanup_(buf_release) struct buf again = BUF_INIT(2 * size + 64);
	_cleanup_free_ struct store_part *parts = NULL;
	_cleanup_free_ struct store_piece *pieces = NULL;
	_cleanup_free_ uint8_t *copy = malloc(size + 1);
	size_t n_parts = 0, n_pieces = 0;

	require(copy);
	if (size)
		memcpy(copy, data, size);
	if (layout_decode(copy, size, NULL, &n_parts, NULL, &n_pieces) < 0)
		return;
	parts = calloc(n_parts + 1, sizeof(*parts));
	pieces = calloc(n_pieces + 1, sizeof(*pieces));
	require(parts && pieces);
	require(layout_decode(copy, size, parts, &n_parts, pieces, &n_pieces) == 0);
	require(layout_encode(&again, parts, n_parts, pieces, n_pieces) == 0);
	/* A text ends at its first NUL, so the written layout may be shorter. */
	require(again.len <= size);
	size_t n_parts_again = 0, n_pieces_again = 0;

	require(layout_decode(again.data, again.len, NULL, &n_parts_again, NULL, &n_pieces_again) ==
		0);
	require(n_parts_again == n_parts && n_pieces_again == n_pieces);
}

static void owner(const uint8_t *data, size_t size)
{
	struct owner_info info = {.pid = 0};
	struct sockaddr_storage address;
	socklen_t len = 0;

	yard_write("lock", "token", 5);
	yard_write("owner.json", data, size);
	if (read_owner(yard, &info)) {
		require(info.endpoint && info.access_key_id);
		if (endpoint_address(info.endpoint, &address, &len))
			require(len > 0 && len <= sizeof(address));
	}
	owner_info_release(&info);
}

static void keys(const uint8_t *data, size_t size)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct account account;

	unsetenv("PENSTOCK_ACCESS_KEY_ID");
	unsetenv("PENSTOCK_SECRET_ACCESS_KEY");
	yard_write("credentials", data, size);
	int rc = account_load(&account, yard, false, &err);

	require_error(rc, &err);
	if (rc == 0)
		require(*account.access_key_id && *account.secret_access_key);
	account_release(&account);
	log_redact_clear();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 1)
		return 0;
	yard_open();
	switch (data[0] % 3) {
	case 0:
		layout(data + 1, size - 1);
		break;
	case 1:
		owner(data + 1, size - 1);
		break;
	default:
		keys(data + 1, size - 1);
		break;
	}
	return 0;
}
