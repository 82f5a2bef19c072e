/* Getting and setting the lock of a bucket. */
#include "store/internal.h"

#include "base/cleanup.h"

enum store_status store_lock_get(
	struct store *store, const char *bucket, struct store_lock *out, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LOCK_CONFIG_SIZE);
	enum store_status status = store_config_get(store, bucket, LOCK_CONFIG, &text, err);

	if (status == STORE_OK)
		*out = lock_parse(buf_str(&text));
	return status;
}

struct lock_txn {
	struct txn txn;
	const char *bucket;
	const struct store_lock *lock;
};

static int apply_lock(struct store *store, struct txn *txn)
{
	const struct lock_txn *t = (const struct lock_txn *)txn;
	int64_t bucket = txn_bucket(store, txn, t->bucket);

	if (bucket <= 0)
		return (int)-bucket;
	if (txn->versioning == STORE_VERSIONED)
		return lock_set(store, bucket, t->lock);
	txn->status = STORE_BUCKET_STATE;
	return 0;
}

enum store_status store_lock_set(struct store *store, const char *bucket,
	const struct store_lock *lock, struct penstock_error *err)
{
	struct lock_txn t = {.txn = {.apply = apply_lock}, .bucket = bucket, .lock = lock};

	return txn_run(store, &t.txn, err);
}
