/*
 * The journals of single transfers, and the record of the bytes that were sent last. The first byte
 * modulo 3 selects the file: 0 for the journal of a download, 1 for that of an upload, 2 for the
 * record. Each further line is a line of the file, and gets its checksum, except lines that begin
 * with '!', which are written as they are. The first two lines of the journal of a download are
 * correct if the first byte is below 128.
 */
#include <sys/stat.h>

#include "base/limits.h"
#include "transfer/put/delta.h"
#include "transfer/get/journal.h"
#include "transfer/client/internal.h"
#include "transfer/put/resume.h"
#include "yard.h"

#define JOURNAL "file.journal.penstock-part"
#define SOURCE	"http://h\nbucket\nkey"
#define SIZE	(2 * MIB + 77)
#define NOBODY	"nobody-has-this-address-f3b1c07a9d"

static void add_line(struct record_file *file, const char *line, size_t len)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_STRING);
	bool raw = len && line[0] == '!';

	buf_add(&text, line + raw, len - raw);
	if (raw)
		require(fs_write_all(file->fd, buf_str(&text), text.len) == 0);
	else if (!memchr(buf_str(&text), '\0', text.len))
		record_file_add(file, &text);
}

/* Writes the lines of the input into a record file. */
static void add_lines(struct record_file *file, const char *data, size_t size)
{
	while (size) {
		const char *end = memchr(data, '\n', size);
		size_t len = end ? (size_t)(end - data) : size;

		add_line(file, data, len);
		data += len + (end != NULL);
		size -= len + (end != NULL);
	}
}

static void open_empty(struct record_file *file, const char *name)
{
	unlink(yard_path(name));
	require(record_file_open(file, yard_path(name), NULL) == 0);
}

/* ---- downloads ---- */

static void write_part(struct record_file *file)
{
	_cleanup_(buf_release) struct buf line = BUF_INIT(LIMIT_STRING);
	uint8_t digest[CHECKSUM_MAX_SIZE];
	char hex[65];
	struct stat st;

	require(checksum_of(CHECKSUM_SHA256, SOURCE, strlen(SOURCE), digest, NULL) == 0);
	str_hex(digest, 32, hex);
	require(stat(yard_path("file.penstock-part"), &st) == 0);
	buf_printf(&line, "S %s file.penstock-part", hex);
	require(record_file_add(file, &line) == 0);
	buf_clear(&line);
	buf_printf(&line, "P %llu", (unsigned long long)st.st_ino);
	require(record_file_add(file, &line) == 0);
}

/* With any journal, a block counts as downloaded only if its bytes are in the file, and no other
 * file is changed. */
static void download(const char *data, size_t size, bool begun)
{
	static char bytes[SIZE];
	struct record_file file = RECORD_FILE_INIT;
	struct get_part part = GET_PART_INIT;
	struct get_blocks blocks;
	uint64_t at = 0, offset, length, missing = 0;
	int64_t there;

	yard_write("file.penstock-part", bytes, sizeof(bytes));
	yard_write("precious", "precious", 8);
	open_empty(&file, JOURNAL);
	if (begun)
		write_part(&file);
	add_lines(&file, data, size);
	record_file_close(&file);

	require(get_part_open(&part, yard_path("file"), SOURCE, NULL) == 0);
	require(get_blocks_init(&blocks, SIZE, CHECKSUM_CRC64NVME, NULL) == 0);
	there = get_part_begin(&part, "\"etag\"", &blocks, NULL);
	require(there >= 0 && (uint64_t)there <= SIZE);
	while (get_blocks_next(&blocks, &at, GET_BLOCK_MAX, &offset, &length)) {
		require(length && offset + length <= SIZE);
		missing += length;
	}
	require(missing + (uint64_t)there == SIZE);
	get_part_abandon(&part, false);
	get_blocks_release(&blocks);
	get_part_release(&part);

	_cleanup_(buf_release) struct buf left = BUF_INIT(KIB);
	require(fs_read(yard_path("precious"), &left, NULL) == 0 && left.len == 8);
}

/* ---- uploads ---- */

/* A client never aborts an upload that a journal of another store names, and removes a journal that
 * cannot be read. */
static void upload(const char *data, size_t size)
{
	static struct object_client client = {.address = (char *)"http://" NOBODY};
	struct record_file file = RECORD_FILE_INIT;

	open_empty(&file, "0123.upload");
	add_lines(&file, data, size);
	record_file_close(&file);
	atomic_store(&client.swept, false);
	put_resume_sweep(&client, yard);
}

/* ---- records of sent bytes ---- */

static void check_sums(const struct delta_sums *sums)
{
	require(sums->size && sums->block && sums->n == (sums->size - 1) / sums->block + 1);
	require(sums->n <= DELTA_BLOCKS_MAX);
	require(delta_length(sums, sums->n - 1) <= sums->block);
	for (uint64_t i = 0; i < sums->n; i++)
		require(sums->known[i] <= 1);
}

static void sent(const char *data, size_t size)
{
	struct record_file file = RECORD_FILE_INIT;
	struct delta_sums sums, again;
	char *etag, *same;

	open_empty(&file, "0123.sent");
	add_lines(&file, data, size);
	record_file_close(&file);
	require(record_file_open(&file, yard_path("0123.sent"), NULL) == 0);
	require(delta_read(&file, &sums, &etag) == 0);
	if (etag) {
		struct delta_plan plan;

		check_sums(&sums);
		require(delta_write(&file, &sums, etag) == 0);
		record_file_close(&file);
		require(record_file_open(&file, yard_path("0123.sent"), NULL) == 0);
		require(delta_read(&file, &again, &same) == 0 && same && strcmp(same, etag) == 0);
		require(again.n == sums.n && again.block == sums.block);
		require(memcmp(again.tags, sums.tags, sums.n * sizeof(*sums.tags)) == 0);
		require(delta_plan(&plan, &again, &sums, 5 * MIB, 8 * MIB, NULL) == 0);
		require(plan.n && plan.sent <= sums.size);
		delta_plan_release(&plan);
		delta_sums_release(&again);
		free(same);
	}
	record_file_close(&file);
	delta_sums_release(&sums);
	free(etag);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data + 1;

	if (size < 1)
		return 0;
	yard_open();
	switch (data[0] % 3) {
	case 0:
		download(text, size - 1, data[0] < 128);
		break;
	case 1:
		upload(text, size - 1);
		break;
	default:
		sent(text, size - 1);
		break;
	}
	return 0;
}
