/* An archive to import. Afterwards the store is consistent, and a refused archive has added at most
 * the buckets that precede the fault. */
#include <sys/mman.h>

#include "store/upkeep/upkeep.h"
#include "yard.h"

static struct store *store;

static void reopen(void)
{
	store_close(store);
	yard_remove();
	require(mkdir(yard, 0700) == 0);
	require(store_open(&store, &(struct store_options){.root = yard, .relaxed = true}, NULL) ==
		0);
}

static void problem(void *cookie, enum upkeep_problem kind, bool repairable, const char *text)
{
	(void)cookie;
	(void)repairable;
	fprintf(stderr, "%s: %s\n", upkeep_problem_name(kind), text);
}

static void check(bool imported)
{
	struct upkeep_report report = {.problem = problem};
	struct upkeep_stat stat;
	struct store *guest;

	require(store_open(&guest, &(struct store_options){.root = yard, .guest = true}, NULL) ==
		0);
	require(upkeep_check(guest, &report, NULL) == 0);
	require(!report.problems);
	require(upkeep_stat(guest, &stat, NULL) == 0);
	require(imported || (stat.n_buckets == 0 && stat.files == 0));
	free(stat.buckets);
	store_close(guest);
}

static void close_store(void)
{
	store_close(store);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_close_ int fd = memfd_create("archive", MFD_CLOEXEC);
	struct upkeep_copied copied;
	int rc;

	yard_open();
	if (!store) {
		require(atexit(close_store) == 0);
		reopen();
	}
	require(fd >= 0 && fs_pwrite_all(fd, data, size, 0) == 0);
	rc = upkeep_import(store,
		&(struct upkeep_archive){
			.fd = fd, .accounts = memmem(data, size, "accounts.json", 13) != NULL},
		&copied, &err);
	require_error(rc, &err);
	penstock_error_release(&err);
	if (rc == 0 || copied.buckets || copied.accounts) {
		check(true);
		reopen();
	} else {
		check(false);
	}
	return 0;
}
