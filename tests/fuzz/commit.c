/* The commit of a checkpoint, read from a disk after a crash or from a store. If the first byte is
 * odd, the target first corrects the seal (the checksum at the end of the commit), because few
 * inputs have a valid one. */
#include <inttypes.h>

#include "checkpoint/commit.h"
#include "checkpoint/read.h"
#include "fuzz.h"
#include "s3/sum/checksum.h"

static const char seal[] = ",\"crc64nvme\":\"";

/* Sets the seal, the last member, to the checksum of the bytes before the seal. */
static void put_seal(char *text, size_t len)
{
	uint8_t digest[CHECKSUM_MAX_SIZE];
	char hex[17];

	for (size_t i = len; i >= sizeof(seal) + 16; i--) {
		char *at = text + i - sizeof(seal) - 16;

		if (memcmp(at, seal, sizeof(seal) - 1) != 0)
			continue;
		require(checksum_of(CHECKSUM_CRC64NVME, text, (size_t)(at - text), digest, NULL) ==
			0);
		for (int k = 0; k < 8; k++)
			snprintf(hex + 2 * k, 3, "%02x", digest[k]);
		memcpy(at + sizeof(seal) - 1, hex, 16);
		return;
	}
}

static void check(const struct commit *c)
{
	const struct commit_file *before = NULL;
	uint64_t size = 0;

	require(c->run && c->world_size > 0 && c->n_files <= LIMIT_CHECKPOINT_FILES);
	for (size_t i = 0; i < c->n_files; i++) {
		const struct commit_file *f = &c->files[i];

		require(commit_name_is_good(f->name) && f->name[0] != '/' &&
			strncmp(f->name, "../", 3) != 0 && !strstr(f->name, "/../"));
		require(!before || strcmp(before->name, f->name) < 0);
		require(commit_find_file(c, f->name) == f);
		size += f->size;
		before = f;
	}
	require(commit_size(c) == size && commit_compare(c, c) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_(commit_freep) struct commit *c = NULL, *again = NULL;
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_COMMIT);
	_cleanup_free_ char *copy = NULL;
	unsigned attempt = 0;
	uint64_t step = 0;
	int r;

	if (size < 1)
		return 0;
	copy = fuzz_text(data + 1, size - 1);
	if (commit_name_parse(copy, &step, &attempt))
		require(step <= INT64_MAX && attempt <= INT32_MAX);
	if (data[0] & 1)
		put_seal(copy, size - 1);
	r = commit_parse(&c, copy, size - 1, "COMMIT.json", &err);
	require_error(r, &err);
	if (r < 0)
		return 0;
	check(c);
	require(commit_is_meant(copy, size - 1) || strchr(copy, '\\'));
	/* Every commit that was read can be written, and is the same when it is read again. */
	require(commit_format(c, &text, &err) == 0);
	require(commit_parse(&again, text.data, text.len, "copy", &err) == 0);
	require(again->step == c->step && again->attempt == c->attempt &&
		again->n_files == c->n_files && again->n_metrics == c->n_metrics &&
		strcmp(again->run, c->run) == 0 && commit_size(again) == commit_size(c));
	return 0;
}
