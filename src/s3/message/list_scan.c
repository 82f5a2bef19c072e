#include "s3/message/list_scan.h"

#include <string.h>

#include "base/limits.h"
#include "base/str.h"
#include "s3/ascii.h"
#include "s3/date.h"

#define MAX_VALUE 48 /* bytes of a number, a boolean or a date */

struct scan {
	const char *at, *end;
	struct s3_list *out;
	size_t entries_cap, prefixes_cap;
	enum list_scan result;
	/* words of the previous entry; usually all entries have the same words */
	const char *storage_class, *checksum_algorithm, *checksum_type;
};

struct tag {
	const char *name;
	size_t len;
	bool closing; /* "</name>" */
	bool empty; /* "<name/>" */
};

static bool give_up(struct scan *s, enum list_scan result)
{
	s->result = result;
	return false;
}

static bool tag_is(const struct tag *tag, const char *name)
{
	return strlen(name) == tag->len && memcmp(tag->name, name, tag->len) == 0;
}

/* Returns true if the text has only printable ASCII, tabs and newlines, and no ']': XML does not
 * allow "]]>" in text. read_tag() refuses CDATA, comments and declarations. */
static bool is_plain(const char *xml, size_t len)
{
	bool odd = false;

	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)xml[i];

		odd |= (c < 0x20 && c != '\n' && c != '\t') || c >= 0x7f;
	}
	return !odd && !memchr(xml, ']', len);
}

static void skip_space(struct scan *s)
{
	while (s->at < s->end && ascii_space(*s->at))
		s->at++;
}

/* Reads "<name>", "</name>" or "<name/>" at the current position. */
static bool read_tag(struct scan *s, struct tag *tag)
{
	const char *p = s->at;

	if (p == s->end || *p++ != '<')
		return give_up(s, LIST_SCAN_NOT);
	tag->closing = p < s->end && *p == '/';
	p += tag->closing;
	tag->name = p;
	while (p < s->end && ((*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z')))
		p++;
	tag->len = (size_t)(p - tag->name);
	tag->empty = !tag->closing && p < s->end && *p == '/';
	p += tag->empty;
	if (!tag->len || p >= s->end || *p != '>')
		return give_up(s, LIST_SCAN_NOT);
	s->at = p + 1;
	return true;
}

/* ---- text ---- */

/* Returns the character of the entity "&name;" at `*at`, and moves `*at` past the entity. Returns 0
 * if the entity is not supported. */
static char read_entity(const char **at, const char *end)
{
	static const struct {
		const char *name;
		char c;
	} entities[] = {{"&quot;", '"'}, {"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'},
		{"&apos;", '\''}, {"&#34;", '"'}, {"&#38;", '&'}, {"&#39;", '\''}};

	for (size_t i = 0; i < sizeof(entities) / sizeof(*entities); i++) {
		size_t len = strlen(entities[i].name);

		if ((size_t)(end - *at) >= len && memcmp(*at, entities[i].name, len) == 0) {
			*at += len;
			return entities[i].c;
		}
	}
	return 0;
}

/* Reads the text before the next tag. */
static bool read_raw(struct scan *s, const char **text, size_t *len)
{
	const char *end = memchr(s->at, '<', (size_t)(s->end - s->at));

	if (!end)
		return give_up(s, LIST_SCAN_NOT);
	*text = s->at;
	*len = (size_t)(end - s->at);
	s->at = end;
	return true;
}

/* Copies the text with its entities resolved. */
static bool copy_text(struct scan *s, const char *raw, size_t len, const char **out)
{
	char *copy = arena_copy(&s->out->arena, raw, len), *to;
	const char *p, *end = raw + len;

	if (!copy)
		return give_up(s, LIST_SCAN_NO_MEMORY);
	*out = copy;
	p = memchr(raw, '&', len);
	if (!p)
		return true;
	for (to = copy + (p - raw); p < end;) {
		if (*p != '&') {
			*to++ = *p++;
			continue;
		}
		*to = read_entity(&p, end);
		if (!*to++)
			return give_up(s, LIST_SCAN_NOT);
	}
	*to = '\0';
	return true;
}

/* Reads a short value, such as a number or a date, as a string. */
static bool short_text(struct scan *s, const char *raw, size_t len, char out[static MAX_VALUE])
{
	if (len >= MAX_VALUE || memchr(raw, '&', len))
		return give_up(s, LIST_SCAN_NOT);
	memcpy(out, raw, len);
	out[len] = '\0';
	return true;
}

static bool number(struct scan *s, const char *raw, size_t len, uint64_t max, uint64_t *out)
{
	char text[MAX_VALUE];

	return short_text(s, raw, len, text) &&
	       (str_to_u64(text, 0, max, out) || give_up(s, LIST_SCAN_NOT));
}

/* Reads a word; does not copy the word if the previous entry has the same word. */
static bool word(struct scan *s, const char *raw, size_t len, const char **known, const char **out)
{
	if (memchr(raw, '&', len))
		return give_up(s, LIST_SCAN_NOT);
	if (!*known || strlen(*known) != len || memcmp(*known, raw, len) != 0) {
		if (!copy_text(s, raw, len, known))
			return false;
	}
	*out = *known;
	return true;
}

/* ---- elements ---- */

/* Reads the text of the element opened by `tag`, and its end tag. */
static bool read_leaf(struct scan *s, const struct tag *tag, const char **raw, size_t *len)
{
	struct tag close;

	*raw = "";
	*len = 0;
	if (tag->empty)
		return true;
	if (!read_raw(s, raw, len) || !read_tag(s, &close))
		return false;
	if (!close.closing || close.len != tag->len || memcmp(close.name, tag->name, tag->len) != 0)
		return give_up(s, LIST_SCAN_NOT);
	return true;
}

/* Skips an element that is not needed, with at most one level below it. */
static bool skip_element(struct scan *s, const struct tag *tag)
{
	const char *raw;
	size_t len;
	struct tag inner;

	if (tag->empty)
		return true;
	for (;;) {
		if (!read_raw(s, &raw, &len))
			return false;
		if (memchr(raw, '&', len))
			return give_up(s, LIST_SCAN_NOT);
		if (!read_tag(s, &inner))
			return false;
		if (inner.closing)
			return (inner.len == tag->len &&
				       memcmp(inner.name, tag->name, tag->len) == 0) ||
			       give_up(s, LIST_SCAN_NOT);
		if (!read_leaf(s, &inner, &raw, &len))
			return false;
		if (memchr(raw, '&', len))
			return give_up(s, LIST_SCAN_NOT);
	}
}

static bool entry_field(struct scan *s, struct s3_list_entry *e, const struct tag *tag)
{
	char text[MAX_VALUE];
	const char *raw;
	size_t len;

	if (tag_is(tag, "Owner") || tag_is(tag, "RestoreStatus"))
		return skip_element(s, tag);
	if (!read_leaf(s, tag, &raw, &len))
		return false;
	if (tag_is(tag, "Key"))
		return copy_text(s, raw, len, &e->key);
	if (tag_is(tag, "LastModified")) {
		if (!short_text(s, raw, len, text))
			return false;
		return date_parse_iso(text, &e->modified_ns) || give_up(s, LIST_SCAN_NOT);
	}
	if (tag_is(tag, "ETag"))
		return copy_text(s, raw, len, &e->etag);
	if (tag_is(tag, "Size"))
		return number(s, raw, len, UINT64_MAX, &e->size);
	if (tag_is(tag, "Generation"))
		return copy_text(s, raw, len, &e->generation);
	if (tag_is(tag, "StorageClass"))
		return word(s, raw, len, &s->storage_class, &e->storage_class);
	if (tag_is(tag, "ChecksumAlgorithm"))
		return word(s, raw, len, &s->checksum_algorithm, &e->checksum_algorithm);
	if (tag_is(tag, "ChecksumType"))
		return word(s, raw, len, &s->checksum_type, &e->checksum_type);
	return !memchr(raw, '&', len) || give_up(s, LIST_SCAN_NOT);
}

/* Reads the next tag inside an element that has only white space as text. */
static bool inner_tag(struct scan *s, struct tag *tag)
{
	skip_space(s);
	return read_tag(s, tag);
}

static bool read_contents(struct scan *s, const struct tag *open)
{
	struct s3_list *list = s->out;
	struct s3_list_entry *e;
	struct tag tag;

	if (open->empty || list->n_entries == s->entries_cap)
		return give_up(s, LIST_SCAN_NOT);
	e = &list->entries[list->n_entries++];
	*e = (struct s3_list_entry){0};
	for (;;) {
		if (!inner_tag(s, &tag))
			return false;
		if (tag.closing)
			return tag_is(&tag, "Contents") || give_up(s, LIST_SCAN_NOT);
		if (!entry_field(s, e, &tag))
			return false;
	}
}

static bool read_prefix(struct scan *s, const struct tag *open)
{
	struct s3_list *list = s->out;
	struct tag tag;
	const char *raw;
	size_t len;

	if (open->empty || list->n_prefixes == s->prefixes_cap || !inner_tag(s, &tag))
		return give_up(s, LIST_SCAN_NOT);
	if (tag.closing || !tag_is(&tag, "Prefix") || !read_leaf(s, &tag, &raw, &len) ||
		!copy_text(s, raw, len, &list->prefixes[list->n_prefixes]))
		return s->result ? false : give_up(s, LIST_SCAN_NOT);
	list->n_prefixes++;
	if (!inner_tag(s, &tag))
		return false;
	return (tag.closing && tag_is(&tag, "CommonPrefixes")) || give_up(s, LIST_SCAN_NOT);
}

static bool list_field(struct scan *s, const struct tag *tag)
{
	struct s3_list *l = s->out;
	const struct {
		const char *name;
		const char **field;
		bool version_2;
	} texts[] = {{"Name", &l->bucket, false}, {"Prefix", &l->prefix, false},
		{"Delimiter", &l->delimiter, false}, {"Marker", &l->marker, false},
		{"NextMarker", &l->next_marker, false}, {"StartAfter", &l->start_after, true},
		{"ContinuationToken", &l->continuation_token, true},
		{"NextContinuationToken", &l->next_continuation_token, true}};
	const char *raw;
	uint64_t value;
	size_t len;

	if (!read_leaf(s, tag, &raw, &len))
		return false;
	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		if (!tag_is(tag, texts[i].name))
			continue;
		l->version = texts[i].version_2 ? 2 : l->version;
		return copy_text(s, raw, len, texts[i].field);
	}
	if (tag_is(tag, "IsTruncated")) {
		l->truncated = ascii_equal(raw, len, "true");
		return l->truncated || ascii_equal(raw, len, "false") || give_up(s, LIST_SCAN_NOT);
	}
	if (tag_is(tag, "EncodingType")) {
		l->url_encoded = ascii_equal(raw, len, "url");
		return l->url_encoded || give_up(s, LIST_SCAN_NOT);
	}
	if (tag_is(tag, "MaxKeys")) {
		if (!number(s, raw, len, UINT32_MAX, &value))
			return false;
		l->max_keys = (unsigned)value;
		return true;
	}
	if (tag_is(tag, "KeyCount"))
		l->version = 2;
	return !memchr(raw, '&', len) || give_up(s, LIST_SCAN_NOT);
}

/* Reads <?xml ...?> and the root, whose only attribute may be the namespace. */
static bool read_root(struct scan *s)
{
	static const char *const declarations[] = {"<?xml version=\"1.0\" encoding=\"UTF-8\"?>",
		"<?xml version=\"1.0\"?>", "<?xml version='1.0' encoding='UTF-8'?>"};
	static const char root[] = "<ListBucketResult", space[] = " xmlns=\"";

	for (size_t i = 0; i < sizeof(declarations) / sizeof(*declarations); i++) {
		size_t len = strlen(declarations[i]);

		if ((size_t)(s->end - s->at) >= len && memcmp(s->at, declarations[i], len) == 0) {
			s->at += len;
			skip_space(s);
			break;
		}
	}
	if ((size_t)(s->end - s->at) < sizeof(root) + sizeof(space) ||
		memcmp(s->at, root, strlen(root)) != 0)
		return give_up(s, LIST_SCAN_NOT);
	s->at += strlen(root);
	if (memcmp(s->at, space, strlen(space)) == 0) {
		s->at += strlen(space);
		while (s->at < s->end && *s->at != '"' && *s->at != '<' && *s->at != '&')
			s->at++;
		if (s->at == s->end || *s->at++ != '"')
			return give_up(s, LIST_SCAN_NOT);
	}
	return (s->at < s->end && *s->at++ == '>') || give_up(s, LIST_SCAN_NOT);
}

/* Makes room for as many elements as the document can have, so that the arrays never grow. */
static bool make_room(struct scan *s)
{
	size_t least = (size_t)(s->end - s->at) / strlen("<Contents><Key>k</Key></Contents>") + 1;
	size_t n = least < LIMIT_S3_LIST_KEYS ? least : LIMIT_S3_LIST_KEYS;

	s->out->entries = arena_alloc(&s->out->arena, n * sizeof(*s->out->entries));
	s->out->prefixes = arena_alloc(&s->out->arena, n * sizeof(*s->out->prefixes));
	s->entries_cap = s->prefixes_cap = n;
	return (s->out->entries && s->out->prefixes) || give_up(s, LIST_SCAN_NO_MEMORY);
}

static bool read_list(struct scan *s)
{
	struct tag tag;
	bool fine = true;

	while (fine) {
		if (!inner_tag(s, &tag))
			return false;
		if (tag.closing)
			break;
		if (tag_is(&tag, "Contents"))
			fine = read_contents(s, &tag);
		else if (tag_is(&tag, "CommonPrefixes"))
			fine = read_prefix(s, &tag);
		else
			fine = list_field(s, &tag);
	}
	skip_space(s);
	return fine &&
	       ((tag_is(&tag, "ListBucketResult") && s->at == s->end) || give_up(s, LIST_SCAN_NOT));
}

enum list_scan list_scan(const char *xml, size_t len, struct s3_list *out)
{
	struct scan s = {.at = xml, .end = xml + len, .out = out};

	if (!len || len > LIMIT_XML_BODY || !is_plain(xml, len))
		return LIST_SCAN_NOT;
	out->version = 1;
	if (read_root(&s) && make_room(&s))
		read_list(&s);
	return s.result;
}
