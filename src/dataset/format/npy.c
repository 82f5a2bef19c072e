#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include <penstock/error.h>

#include "base/cleanup.h"
#include "dataset/format/internal.h"
#include "dataset/format/records.h"

uint64_t npy_header_size(const unsigned char start[static NPY_START])
{
	if (memcmp(start, "\x93NUMPY", 6) != 0)
		return 0;
	if (start[6] == 1)
		return 10 + (uint64_t)get_le16(start + 8);
	if (start[6] == 2 || start[6] == 3)
		return 12 + (uint64_t)get_le32(start + 8);
	return 0;
}

/* Type characters and sizes of NumPy's array protocol. */
static const struct {
	char kind, size;
	enum format_dtype dtype;
} descriptions[] = {
	{'b', '1', DTYPE_BOOL},
	{'u', '1', DTYPE_U8},
	{'i', '1', DTYPE_I8},
	{'u', '2', DTYPE_U16},
	{'i', '2', DTYPE_I16},
	{'f', '2', DTYPE_F16},
	{'u', '4', DTYPE_U32},
	{'i', '4', DTYPE_I32},
	{'f', '4', DTYPE_F32},
	{'u', '8', DTYPE_U64},
	{'i', '8', DTYPE_I64},
	{'f', '8', DTYPE_F64},
};

/* The text of a Python dictionary, from the parsed part on. */
struct text {
	const char *at, *end;
};

static bool skip(struct text *t, char c)
{
	while (t->at < t->end && isspace((unsigned char)*t->at))
		t->at++;
	if (t->at == t->end || *t->at != c)
		return false;
	t->at++;
	return true;
}

static bool word_is_next(struct text *t, const char *word)
{
	size_t len = strlen(word);

	while (t->at < t->end && isspace((unsigned char)*t->at))
		t->at++;
	if ((size_t)(t->end - t->at) < len || memcmp(t->at, word, len) != 0)
		return false;
	t->at += len;
	return true;
}

/* Reads a word in quotes. Returns the length of the word, or -1 if there is no word. */
static int quoted(struct text *t, const char **word)
{
	char quote = skip(t, '\'') ? '\'' : '"';
	const char *end;

	if (quote == '"' && !skip(t, '"'))
		return -1;
	end = memchr(t->at, quote, (size_t)(t->end - t->at));
	if (!end || end - t->at > 64)
		return -1;
	*word = t->at;
	t->at = end + 1;
	return (int)(end - *word);
}

static bool number(struct text *t, uint64_t *out)
{
	bool any = false;

	*out = 0;
	while (t->at < t->end && isspace((unsigned char)*t->at))
		t->at++;
	for (; t->at < t->end && *t->at >= '0' && *t->at <= '9'; t->at++, any = true) {
		if (__builtin_mul_overflow(*out, 10, out) ||
			__builtin_add_overflow(*out, (uint64_t)(*t->at - '0'), out))
			return false;
	}
	/* Python 2 writes a dimension as "10L". */
	if (any && t->at < t->end && *t->at == 'L')
		t->at++;
	return any;
}

static const char *read_descr(struct npy *npy, struct text *t, int *code)
{
	const char *word;
	int len = quoted(t, &word);

	if (len < 0) {
		*code = PENSTOCK_E_UNSUPPORTED;
		return "arrays of records are not supported";
	}
	if (len != 3 || !memchr("<>|=", word[0], 4)) {
		*code = PENSTOCK_E_UNSUPPORTED;
		return "the type of its values is not supported";
	}
	for (size_t i = 0; i < ARRAY_SIZE(descriptions); i++) {
		if (descriptions[i].kind == word[1] && descriptions[i].size == word[2])
			npy->dtype = descriptions[i].dtype;
	}
	npy->big_endian = word[0] == '>';
	if (npy->dtype)
		return NULL;
	*code = PENSTOCK_E_UNSUPPORTED;
	return "the type of its values is not supported";
}

static const char *read_shape(struct npy *npy, struct text *t, int *code)
{
	if (!skip(t, '('))
		return "its shape is invalid";
	while (!skip(t, ')')) {
		if (npy->ndim == LIMIT_FORMAT_DIMS) {
			*code = PENSTOCK_E_UNSUPPORTED;
			return "it has too many dimensions";
		}
		if (!number(t, &npy->dims[npy->ndim++]))
			return "its shape is invalid";
		if (!skip(t, ',')) {
			if (!skip(t, ')'))
				return "its shape is invalid";
			break;
		}
	}
	return NULL;
}

enum { HAS_DESCR = 1, HAS_ORDER = 2, HAS_SHAPE = 4 };

static const char *read_member(
	struct npy *npy, struct text *t, unsigned *has, bool *fortran, int *code)
{
	const char *word;
	int len = quoted(t, &word);

	if (len < 0 || !skip(t, ':'))
		return "its header is invalid";
	if (len == 5 && memcmp(word, "descr", 5) == 0 && !(*has & HAS_DESCR)) {
		*has |= HAS_DESCR;
		return read_descr(npy, t, code);
	}
	if (len == 5 && memcmp(word, "shape", 5) == 0 && !(*has & HAS_SHAPE)) {
		*has |= HAS_SHAPE;
		return read_shape(npy, t, code);
	}
	if (len != 13 || memcmp(word, "fortran_order", 13) != 0 || *has & HAS_ORDER)
		return "its header is invalid";
	*has |= HAS_ORDER;
	*fortran = word_is_next(t, "True");
	return *fortran || word_is_next(t, "False") ? NULL : "its header is invalid";
}

const char *npy_parse(struct npy *npy, const unsigned char *header, size_t len, int *code)
{
	struct text t = {
		(const char *)header + (header[6] == 1 ? 10 : 12), (const char *)header + len};
	const char *fault = NULL;
	bool fortran = false;
	unsigned has = 0;

	*npy = (struct npy){.offset = len};
	*code = PENSTOCK_E_CORRUPT;
	if (t.at > t.end || !skip(&t, '{'))
		return "its header is invalid";
	while (!fault && !skip(&t, '}')) {
		fault = read_member(npy, &t, &has, &fortran, code);
		if (!fault && !skip(&t, ',')) {
			if (!skip(&t, '}'))
				fault = "its header is invalid";
			break;
		}
	}
	if (!fault && has != (HAS_DESCR | HAS_ORDER | HAS_SHAPE))
		fault = "its header is incomplete";
	if (!fault && fortran && npy->ndim > 1) {
		*code = PENSTOCK_E_UNSUPPORTED;
		fault = "its rows are not contiguous (fortran_order); save it in C order";
	}
	return fault;
}

void npy_field(struct format_field *field)
{
	const unsigned char *p = field->data;
	uint64_t len = field->size >= NPY_START ? npy_header_size(p) : 0;
	struct npy npy;
	size_t size;
	int code;

	if (len == 0 || len > field->size || npy_parse(&npy, p, (size_t)len, &code) ||
		!format_array_size(npy.dtype, npy.ndim, npy.dims, &size) ||
		size != field->size - len)
		return;
	field->data = p + len;
	field->size = size;
	field->type = npy.ndim ? FORMAT_ARRAY : FORMAT_NUMBER;
	field->dtype = npy.dtype;
	field->big_endian = npy.big_endian;
	field->ndim = npy.ndim;
	memcpy(field->dims, npy.dims, sizeof(field->dims));
}
