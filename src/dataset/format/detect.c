#include "dataset/format/detect.h"

#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/limits.h"
#include "dataset/format/internal.h"
#include "dataset/format/tfrecord.h"

#define CIFAR100 3074 /* bytes of a record */

static const char *const kinds[FORMAT_KIND_COUNT_] = {
	[FORMAT_KIND_OBJECTS] = "objects",
	[FORMAT_KIND_TAR] = "tar",
	[FORMAT_KIND_TFRECORD] = "tfrecord",
	[FORMAT_KIND_NPY] = "npy",
	[FORMAT_KIND_IDX] = "idx",
	[FORMAT_KIND_CIFAR10] = "cifar10",
	[FORMAT_KIND_CIFAR100] = "cifar100",
	[FORMAT_KIND_MDS] = "mds",
	[FORMAT_KIND_LITDATA] = "litdata",
	[FORMAT_KIND_PART] = "part",
	[FORMAT_KIND_UNSUPPORTED] = "unsupported",
};

const char *format_kind_name(enum format_kind kind)
{
	return kinds[kind];
}

static const char *basename_of(const struct detect_object *o)
{
	return path_last(o->name);
}

static bool has(const struct detect_object *o, const char *text)
{
	return o->head_len && memmem(o->head, o->head_len, text, strlen(text));
}

static bool is_mds_index(const struct detect_object *o)
{
	return strcmp(basename_of(o), "index.json") == 0 && has(o, "\"shards\"");
}

static bool is_litdata_index(const struct detect_object *o)
{
	return strcmp(basename_of(o), "index.json") == 0 && has(o, "\"chunks\"");
}

static bool is_chunk(const struct detect_object *o)
{
	return strncmp(basename_of(o), "chunk-", 6) == 0;
}

static bool is_tfrecord(const struct detect_object *o)
{
	return o->head_len >= TFRECORD_HEAD && o->size >= TFRECORD_HEAD + TFRECORD_TAIL &&
	       tfrecord_is_head(o->head);
}

static bool is_named_tfrecord(const struct detect_object *o)
{
	return strcasestr(basename_of(o), "tfrecord") != NULL;
}

/* Returns true for an IDX file: the dimensions in its header account for all its bytes. */
static bool is_idx(const struct detect_object *o)
{
	static const unsigned char widths[] = {1, 1, 0, 2, 4, 4, 8};
	const unsigned char *p = o->head;
	uint64_t size;

	if (o->head_len < 4 || p[0] || p[1] || p[2] < 8 || p[2] - 8u >= sizeof(widths) ||
		p[3] == 0 || o->head_len < 4 + (size_t)4 * p[3])
		return false;
	size = widths[p[2] - 8];
	for (unsigned i = 0; i < p[3]; i++) {
		if (__builtin_mul_overflow(size, get_be32(p + 4 + (size_t)4 * i), &size))
			return false;
	}
	return size > 0 && size == o->size - 4 - (uint64_t)4 * p[3];
}

static bool is_gzip(const struct detect_object *o)
{
	return o->head_len >= 2 && memcmp(o->head, "\x1f\x8b", 2) == 0;
}

static bool is_zipped_tfrecord(const struct detect_object *o)
{
	return is_named_tfrecord(o) && is_gzip(o);
}

static bool is_zipped_idx(const struct detect_object *o)
{
	return (strstr(basename_of(o), "ubyte") || strstr(basename_of(o), ".idx")) && is_gzip(o);
}

static bool is_cifar10(const struct detect_object *o)
{
	const char *name = basename_of(o);

	return strncmp(name, "data_batch_", 11) == 0 || strcmp(name, "test_batch.bin") == 0;
}

static bool is_cifar100(const struct detect_object *o)
{
	const char *name = basename_of(o);

	return (strcmp(name, "train.bin") == 0 || strcmp(name, "test.bin") == 0) && o->size &&
	       o->size % CIFAR100 == 0;
}

static bool is_large(const struct detect_object *o)
{
	return o->size > LIMIT_SAMPLE;
}

#define COMPRESSED "is compressed, so that no sample can be read alone; decompress it first"

/* The first rule that applies decides. A rule applies if the object has its suffix and its magic,
 * and passes its check. A name that only one format uses suffices: a truncated or damaged file of
 * that name is an error, not a sample. */
static const struct rule {
	enum format_kind kind;
	const char *suffix; /* suffix of the name, in upper or lower case; may be NULL */
	size_t at; /* place of `magic` */
	const char *magic;
	bool (*check)(const struct detect_object *o);
	const char *reason;
} rules[] = {
	{FORMAT_KIND_MDS, NULL, 0, NULL, is_mds_index,
		"index.json lists shards, as in MosaicML's format"},
	{FORMAT_KIND_LITDATA, NULL, 0, NULL, is_litdata_index,
		"index.json lists chunks, as in litData's format"},
	{FORMAT_KIND_PART, ".idx", 0, "v1.", NULL, "it is the index of a tar"},
	{FORMAT_KIND_PART, ".mds", 0, NULL, NULL,
		"its name is that of a shard of MosaicML, which needs its index.json"},
	{FORMAT_KIND_PART, ".bin", 0, NULL, is_chunk,
		"its name is that of a chunk of litData, which needs its index.json"},
	{FORMAT_KIND_PART, ".mds.zstd", 0, NULL, NULL,
		"its name is that of a shard of MosaicML, which needs its index.json"},
	{FORMAT_KIND_UNSUPPORTED, ".mds.gz", 0, NULL, NULL, "the shard " COMPRESSED},
	{FORMAT_KIND_UNSUPPORTED, ".mds.br", 0, NULL, NULL, "the shard " COMPRESSED},
	{FORMAT_KIND_UNSUPPORTED, ".mds.bz2", 0, NULL, NULL, "the shard " COMPRESSED},
	{FORMAT_KIND_UNSUPPORTED, ".mds.snappy", 0, NULL, NULL, "the shard " COMPRESSED},
	{FORMAT_KIND_UNSUPPORTED, ".tar.gz", 0, NULL, NULL, "the tar " COMPRESSED},
	{FORMAT_KIND_UNSUPPORTED, ".tgz", 0, NULL, NULL, "the tar " COMPRESSED},
	{FORMAT_KIND_UNSUPPORTED, ".tar.zst", 0, NULL, NULL, "the tar " COMPRESSED},
	{FORMAT_KIND_UNSUPPORTED, ".tar.bz2", 0, NULL, NULL, "the tar " COMPRESSED},
	{FORMAT_KIND_UNSUPPORTED, ".tar.xz", 0, NULL, NULL, "the tar " COMPRESSED},
	{FORMAT_KIND_UNSUPPORTED, NULL, 0, NULL, is_zipped_tfrecord,
		"the TFRecord file " COMPRESSED},
	{FORMAT_KIND_IDX, NULL, 0, NULL, is_zipped_idx,
		"name and first bytes are those of a gzipped IDX file"},
	{FORMAT_KIND_TAR, NULL, 257, "ustar", NULL, "its first block is the header of a tar"},
	{FORMAT_KIND_TAR, ".tar", 0, NULL, NULL, "its name is that of a tar"},
	{FORMAT_KIND_TFRECORD, NULL, 0, NULL, is_tfrecord,
		"its first bytes are the head of a TFRecord"},
	{FORMAT_KIND_TFRECORD, NULL, 0, NULL, is_named_tfrecord, "its name is that of TFRecord"},
	{FORMAT_KIND_NPY, NULL, 0, "\x93NUMPY", NULL, "its first bytes are those of a NumPy array"},
	{FORMAT_KIND_IDX, NULL, 0, NULL, is_idx, "its IDX header matches its size"},
	{FORMAT_KIND_NPY, ".npy", 0, NULL, NULL, "its name is that of a NumPy array"},
	{FORMAT_KIND_IDX, "-ubyte", 0, NULL, NULL, "its name is that of an IDX file"},
	{FORMAT_KIND_CIFAR10, ".bin", 0, NULL, is_cifar10,
		"its name is that of CIFAR-10's binary version"},
	{FORMAT_KIND_CIFAR100, NULL, 0, NULL, is_cifar100,
		"name and size are those of CIFAR-100's binary version"},
	{FORMAT_KIND_UNSUPPORTED, NULL, 0, "PAR1", NULL,
		"Parquet files are not supported; read them with pyarrow"},
	{FORMAT_KIND_UNSUPPORTED, NULL, 0, "ARROW1", NULL,
		"Arrow files are not supported; read them with pyarrow"},
	{FORMAT_KIND_UNSUPPORTED, NULL, 0, "\x89HDF\r\n\x1a\n", NULL,
		"HDF5 files are not supported; read them with h5py"},
	{FORMAT_KIND_UNSUPPORTED, ".beton", 0, NULL, NULL,
		"FFCV files are not supported; read them with ffcv from a local disk"},
	{FORMAT_KIND_UNSUPPORTED, NULL, 0, NULL, is_large, "it is too large for one sample"},
	{FORMAT_KIND_OBJECTS, NULL, 0, NULL, NULL,
		"its name and first bytes are not those of a shard"},
};

static bool ends_with(const char *name, const char *suffix)
{
	size_t a = strlen(name), b = strlen(suffix);

	return a > b && strcasecmp(name + a - b, suffix) == 0;
}

static bool applies(const struct rule *r, const struct detect_object *o)
{
	if (r->suffix && !ends_with(basename_of(o), r->suffix))
		return false;
	if (r->magic &&
		(o->head_len < r->at + strlen(r->magic) ||
			memcmp((const char *)o->head + r->at, r->magic, strlen(r->magic)) != 0))
		return false;
	return !r->check || r->check(o);
}

enum format_kind format_detect(const struct detect_object *object, const char **reason)
{
	const struct rule *r = rules;

	/* The last rule always applies. */
	while (!applies(r, object))
		r++;
	*reason = r->reason;
	return r->kind;
}
