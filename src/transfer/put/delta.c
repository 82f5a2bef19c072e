#include "transfer/put/delta.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <openssl/evp.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/str.h"

/* Bytes of a block for files up to 4 GiB; blocks of larger files are larger, so that their number
 * is bounded. */
#define BLOCK	  (256 * KIB)
#define BLOCKS	  (DELTA_BLOCKS_MAX / 2)
#define COPY_PART (128 * MIB) /* target size of a part that the store copies */
#define PART_COST (64 * KIB) /* minimum of bytes that one more request must save */
#define LINE_TAGS 64

uint64_t delta_length(const struct delta_sums *sums, uint64_t i)
{
	return i + 1 < sums->n ? sums->block : sums->size - i * sums->block;
}

static void set_size(struct delta_sums *sums, uint64_t size, uint64_t block)
{
	sums->size = size;
	sums->block = block;
	sums->n = (size + block - 1) / block;
}

int delta_sums_init(struct delta_sums *sums, uint64_t size, const struct delta_sums *earlier,
	enum checksum_kind kind, struct penstock_error *err)
{
	uint64_t block = BLOCK;

	while ((size + block - 1) / block > BLOCKS)
		block *= 2;
	*sums = (struct delta_sums){.kind = kind};
	set_size(sums, size, earlier ? earlier->block : block);
	if (earlier)
		memcpy(sums->key, earlier->key, sizeof(sums->key));
	else if (getrandom(sums->key, sizeof(sums->key), 0) != (ssize_t)sizeof(sums->key))
		return error_errno(err, errno, "cannot get random numbers");
	sums->tags = calloc(sums->n + 1, sizeof(*sums->tags));
	sums->crcs = calloc(sums->n + 1, sizeof(*sums->crcs));
	return sums->tags && sums->crcs ? 0 : error_memory(err);
}

void delta_sums_release(struct delta_sums *sums)
{
	free(sums->tags);
	free(sums->known);
	free(sums->crcs);
	OPENSSL_cleanse(sums->key, sizeof(sums->key));
	*sums = (struct delta_sums){0};
}

/* ---- the file ---- */

/* Computes the tag and the checksum of block `i`. All blocks have the same nonce, because their
 * tags never leave the machine and nothing is encrypted. */
static int scan_block(struct delta_sums *sums, EVP_CIPHER_CTX *ctx, int fd, uint64_t i, char *room,
	struct penstock_error *err)
{
	static const unsigned char nonce[12];
	uint64_t left = delta_length(sums, i), at = i * sums->block;
	uint8_t digest[CHECKSUM_MAX_SIZE];
	struct checksum sum;
	int n, r = checksum_init(&sum, sums->kind, err);

	if (r < 0)
		return r;
	if (EVP_EncryptInit_ex(ctx, NULL, NULL, NULL, nonce) != 1)
		r = error_memory(err);
	while (r == 0 && left) {
		size_t want = left < BLOCK ? (size_t)left : BLOCK;
		ssize_t got = fs_pread_all(fd, room, want, (off_t)at);

		if (got < 0)
			r = error_errno(err, errno, "cannot read the file");
		else if ((size_t)got < want)
			r = error_set(err, PENSTOCK_E_CHANGED,
				"the file became shorter while it was read");
		else if (EVP_EncryptUpdate(ctx, NULL, &n, (unsigned char *)room, (int)want) != 1)
			r = error_memory(err);
		if (r < 0)
			break;
		checksum_update(&sum, room, want);
		at += want;
		left -= want;
	}
	checksum_final(&sum, digest);
	checksum_release(&sum);
	memcpy(sums->crcs[i], digest, sizeof(sums->crcs[i]));
	if (r == 0 && (EVP_EncryptFinal_ex(ctx, sums->tags[i], &n) != 1 ||
			      EVP_CIPHER_CTX_ctrl(
				      ctx, EVP_CTRL_GCM_GET_TAG, DELTA_TAG, sums->tags[i]) != 1))
		r = error_memory(err);
	return r;
}

int delta_scan(
	struct delta_sums *sums, int fd, const atomic_int *cancel, struct penstock_error *err)
{
	_cleanup_free_ char *room = malloc(BLOCK);
	EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
	int r = 0;

	if (!room || !ctx || EVP_EncryptInit_ex(ctx, EVP_aes_128_gcm(), NULL, sums->key, NULL) != 1)
		r = error_memory(err);
	for (uint64_t i = 0; r == 0 && i < sums->n; i++) {
		if (cancel && atomic_load(cancel))
			r = error_set(err, PENSTOCK_E_CANCELLED, "cancelled");
		else
			r = scan_block(sums, ctx, fd, i, room, err);
	}
	EVP_CIPHER_CTX_free(ctx);
	return r;
}

void delta_crc(const struct delta_sums *sums, uint64_t offset, uint64_t length,
	uint8_t digest[static CHECKSUM_MAX_SIZE])
{
	uint64_t i = offset / sums->block, end = (offset + length + sums->block - 1) / sums->block;

	memset(digest, 0, CHECKSUM_MAX_SIZE);
	memcpy(digest, sums->crcs[i], sizeof(sums->crcs[i]));
	while (++i < end)
		checksum_combine(sums->kind, digest, sums->crcs[i], delta_length(sums, i));
}

/* ---- the record ---- */

/*
 * Lines of the record:
 *	D etag size block key	the object as it was sent, and the key of its tags
 *	H index tags		the tags of LINE_TAGS blocks from this one on
 */
static bool read_head(char *f[], struct delta_sums *sums, char **etag)
{
	uint64_t size, block;

	if (!record_decode(f[1]) || !*f[1] || !str_to_u64(f[2], 1, LIMIT_S3_OBJECT_MAX, &size) ||
		!str_to_u64(f[3], BLOCK, LIMIT_S3_OBJECT_MAX, &block) || block & (block - 1) ||
		(size - 1) / block >= DELTA_BLOCKS_MAX || str_unhex(f[4], sums->key, DELTA_KEY) < 0)
		return false;
	set_size(sums, size, block);
	*etag = f[1];
	return true;
}

static void read_tags(char *f[], struct delta_sums *sums)
{
	size_t len = strlen(f[2]), n = len / (2 * (size_t)DELTA_TAG);
	uint64_t i;

	if (n < 1 || n > LINE_TAGS || !str_to_u64(f[1], 0, sums->n - 1, &i) || n > sums->n - i ||
		str_unhex(f[2], sums->tags[i], n * DELTA_TAG) < 0)
		return;
	memset(sums->known + i, 1, n);
}

int delta_read(struct record_file *file, struct delta_sums *sums, char **etag)
{
	char *f[6], *text;

	*sums = (struct delta_sums){0};
	*etag = NULL;
	if (record_file_next(file, f, 6) != 5 || strcmp(f[0], "D") != 0 ||
		!read_head(f, sums, &text))
		return 0;
	*etag = strdup(text);
	sums->tags = calloc(sums->n, sizeof(*sums->tags));
	sums->known = calloc(sums->n, 1);
	if (!*etag || !sums->tags || !sums->known) {
		free(take_pointer(*etag));
		delta_sums_release(sums);
		return -1;
	}
	for (unsigned n; (n = record_file_next(file, f, 6));)
		if (n == 3 && strcmp(f[0], "H") == 0)
			read_tags(f, sums);
	return 0;
}

int delta_write(struct record_file *file, const struct delta_sums *sums, const char *etag)
{
	_cleanup_(buf_release) struct buf line = BUF_INIT(LIMIT_STRING);
	char hex[LINE_TAGS * 2 * DELTA_TAG + 1];
	int r = record_file_clear(file);

	str_hex(sums->key, DELTA_KEY, hex);
	buf_add_char(&line, 'D');
	record_add_text(&line, etag);
	buf_printf(&line, " %" PRIu64 " %" PRIu64 " %s", sums->size, sums->block, hex);
	if (r == 0)
		r = record_file_add(file, &line);
	for (uint64_t i = 0; r == 0 && i < sums->n; i += LINE_TAGS) {
		size_t n = sums->n - i < LINE_TAGS ? (size_t)(sums->n - i) : LINE_TAGS;

		str_hex(sums->tags[i], n * DELTA_TAG, hex);
		buf_clear(&line);
		buf_printf(&line, "H %" PRIu64 " %s", i, hex);
		r = record_file_add(file, &line);
	}
	if (r < 0)
		record_file_clear(file);
	return r;
}

/* ---- the plan ---- */

static bool same(const struct delta_sums *now, const struct delta_sums *earlier, uint64_t i)
{
	return i < earlier->n && (!earlier->known || earlier->known[i]) &&
	       delta_length(now, i) == delta_length(earlier, i) &&
	       memcmp(now->tags[i], earlier->tags[i], DELTA_TAG) == 0;
}

/* The cheapest way to produce the first `i` blocks (steps[i]): its cost, the first block of its
 * last part, and whether the store copies that part. */
struct step {
	uint64_t cost;
	uint32_t from;
	bool copy;
};

struct search {
	struct step *steps; /* for each number of blocks from 0 on */
	uint64_t least; /* minimum of blocks of a part that is not the last */
	uint64_t n;
};

#define NEVER UINT64_MAX

/* Finds all steps in one pass: for each end of a part, the best start of a copy lies in the equal
 * blocks before the end, and the best start of a sent part has the least cost minus its offset. */
static void search_run(
	struct search *s, const struct delta_sums *now, const struct delta_sums *earlier)
{
	uint64_t run = 0; /* first of the equal blocks before `end` */
	uint64_t open = 0; /* starts before this one were considered */
	uint32_t sent_from = 0, copy_from = 0;
	bool sent = false, copied = false; /* `sent_from`, `copy_from` are valid */
	uint64_t sent_cost = 0, copy_cost = 0; /* cost of the blocks before `…_from` */

	s->steps[0] = (struct step){0};
	for (uint64_t end = 1; end <= s->n; end++) {
		uint64_t least = end == s->n ? 1 : s->least;
		uint64_t at = end * now->block < now->size ? end * now->block : now->size;

		s->steps[end] = (struct step){.cost = NEVER};
		if (!same(now, earlier, end - 1)) {
			run = end;
			copied = false;
		}
		for (; open + least <= end; open++) {
			const struct step *from = &s->steps[open];
			uint64_t begins = open * now->block;

			if (from->cost == NEVER)
				continue;
			/* Add now->size on both sides, so that the differences are not negative. */
			if (!sent || from->cost + (now->size - begins) <
					     sent_cost + (now->size - (uint64_t)sent_from *
									      now->block)) {
				sent = true;
				sent_cost = from->cost;
				sent_from = (uint32_t)open;
			}
			if (open >= run && (!copied || from->cost < copy_cost)) {
				copied = true;
				copy_cost = from->cost;
				copy_from = (uint32_t)open;
			}
		}
		if (sent)
			s->steps[end] = (struct step){
				sent_cost + (at - (uint64_t)sent_from * now->block) + PART_COST,
				sent_from, false};
		if (copied && copy_cost + PART_COST < s->steps[end].cost)
			s->steps[end] = (struct step){copy_cost + PART_COST, copy_from, true};
	}
}

static int add_spans(struct delta_plan *plan, const struct delta_sums *now, uint64_t first,
	uint64_t end, bool copy, uint64_t part, struct penstock_error *err)
{
	uint64_t blocks = end - first, target = (copy ? COPY_PART : part) / now->block;
	uint64_t pieces = blocks / (target ? target : 1);
	/* Each span has at least `target` blocks (unless there are fewer), and less than twice as
	 * many. */
	unsigned n = pieces ? (unsigned)pieces : 1;
	struct delta_span *grown = realloc(plan->spans, (plan->n + n) * sizeof(*grown));

	if (!grown)
		return error_memory(err);
	plan->spans = grown;
	for (unsigned i = 0; i < n; i++) {
		uint64_t from = first + blocks * i / n, to = first + blocks * (i + 1) / n;
		uint64_t offset = from * now->block;
		uint64_t length = (to < now->n ? to * now->block : now->size) - offset;

		plan->spans[plan->n++] = (struct delta_span){offset, length, copy};
		plan->sent += copy ? 0 : length;
	}
	return 0;
}

int delta_plan(struct delta_plan *plan, const struct delta_sums *now,
	const struct delta_sums *earlier, uint64_t least, uint64_t part, struct penstock_error *err)
{
	struct search s = {.least = (least + now->block - 1) / now->block, .n = now->n};
	_cleanup_free_ struct step *steps = calloc(now->n + 1, sizeof(*steps));
	_cleanup_free_ uint32_t *ends = calloc(now->n + 1, sizeof(*ends));
	size_t n = 0;
	int r = 0;

	*plan = (struct delta_plan){0};
	if (!steps || !ends)
		return error_memory(err);
	s.steps = steps;
	search_run(&s, now, earlier);
	for (uint64_t end = s.n; end; end = steps[end].from)
		ends[n++] = (uint32_t)end;
	while (r == 0 && n--)
		r = add_spans(
			plan, now, steps[ends[n]].from, ends[n], steps[ends[n]].copy, part, err);
	if (r < 0)
		delta_plan_release(plan);
	return r;
}

void delta_plan_release(struct delta_plan *plan)
{
	free(plan->spans);
	*plan = (struct delta_plan){0};
}
