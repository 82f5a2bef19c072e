#include "s3/message/read_many.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "s3/uri.h"

#define STATUS_OK 200

bool read_many_add(struct buf *body, const struct read_many_item *item)
{
	const char *etag = item->etag ? item->etag : "-";

	if (!*etag || strcspn(etag, " \n") != strlen(etag))
		return false;
	if (item->whole)
		buf_printf(body, "0 * %s ", etag);
	else
		buf_printf(body, "%" PRIu64 " %" PRIu64 " %s ", item->offset, item->length, etag);
	uri_encode(body, item->key, strlen(item->key), true);
	buf_add_char(body, '\n');
	return true;
}

/* Cuts off and returns the text before the next `end`, or NULL if there is no `end`. */
static char *take(char **at, char end)
{
	char *word = *at, *stop = strchr(word, end);

	if (!stop)
		return NULL;
	*stop = '\0';
	*at = stop + 1;
	return word;
}

static bool to_number(const char *word, uint64_t *out)
{
	char *end;

	errno = 0;
	*out = strtoull(word, &end, 10);
	return word[0] >= '0' && word[0] <= '9' && !*end && errno == 0;
}

int read_many_next(char **at, struct buf *key, struct read_many_item *item)
{
	const char *offset, *length, *etag, *name;

	if (!**at)
		return 0;
	offset = take(at, ' ');
	length = offset ? take(at, ' ') : NULL;
	etag = length ? take(at, ' ') : NULL;
	name = etag ? take(at, '\n') : NULL;
	buf_clear(key);
	if (!name || !*name || uri_decode(key, name, strlen(name), URI_PLUS_LITERAL) < 0)
		return -1;
	*item = (struct read_many_item){.key = buf_str(key),
		.whole = strcmp(length, "*") == 0,
		.etag = strcmp(etag, "-") == 0 ? NULL : etag};
	if (!to_number(offset, &item->offset) || (item->whole && item->offset))
		return -1;
	return item->whole || to_number(length, &item->length) ? 1 : -1;
}

void read_many_encode(const struct read_many_result *result, uint8_t out[static READ_MANY_ENTRY])
{
	const uint32_t words[2] = {htole32(result->status), htole32(result->kind)};
	const uint64_t length = htole64(result->length);

	memcpy(out, words, 8);
	memcpy(out + 8, &length, 8);
	memcpy(out + 16, result->digest, READ_MANY_DIGEST);
}

bool read_many_decode(const uint8_t in[static READ_MANY_ENTRY], struct read_many_result *out)
{
	uint32_t words[2];
	uint64_t length;

	memcpy(words, in, 8);
	memcpy(&length, in + 8, 8);
	*out = (struct read_many_result){.status = le32toh(words[0]), .length = le64toh(length)};
	memcpy(out->digest, in + 16, READ_MANY_DIGEST);
	words[1] = le32toh(words[1]);
	if (words[1] != CHECKSUM_NONE && !checksum_is_crc((enum checksum_kind)words[1]))
		return false;
	out->kind = (enum checksum_kind)words[1];
	return out->status >= 100 && out->status < 600 &&
	       (out->status == STATUS_OK || out->length == 0);
}
