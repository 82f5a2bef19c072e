/*
 * The part of libpenstock that penstock.data needs: the Python methods call the functions of
 * <penstock/dataset.h>. Sample indexes are passed as bytes of uint64 in the machine's byte order.
 * Samples are read into a bytearray, which NumPy and torch use without a copy. Reads run without
 * the interpreter lock.
 */
#include "_native.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <penstock/dataset.h>
#include <penstock/error.h>

#define SIGNALS_MS 100 /* interval of the check for signals */

static PyObject *fail(struct penstock_error *err)
{
	return native_raise("data_error", err);
}

/* Converter for the format "O&" that refuses numbers out of range, which "K" and "I" would wrap. */
static int to_u64(PyObject *object, void *out)
{
	PyObject *index = PyNumber_Index(object);

	if (index)
		*(unsigned long long *)out = PyLong_AsUnsignedLongLong(index);
	Py_XDECREF(index);
	if (!PyErr_Occurred())
		return 1;
	if (PyErr_ExceptionMatches(PyExc_OverflowError))
		PyErr_SetString(PyExc_ValueError, "a number is negative or too large");
	return 0;
}

static int to_u32(PyObject *object, void *out)
{
	unsigned long long value = 0;

	if (!to_u64(object, &value))
		return 0;
	if (value > UINT32_MAX) {
		PyErr_SetString(PyExc_ValueError, "a number is too large");
		return 0;
	}
	*(uint32_t *)out = (uint32_t)value;
	return 1;
}

/* Copies packed numbers, which may be unaligned. Returns NULL if out of memory. */
static uint64_t *numbers_of(const char *packed, Py_ssize_t size)
{
	uint64_t *numbers = malloc((size_t)size + 1);

	if (numbers)
		memcpy(numbers, packed, (size_t)size);
	return numbers;
}

/* ---- a data set ---- */

struct data {
	PyObject_HEAD struct penstock_dataset *set;
};

static PyObject *data_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	struct penstock_dataset_options options = PENSTOCK_DATASET_OPTIONS_INIT;
	struct penstock_transfer_options transfer = PENSTOCK_TRANSFER_OPTIONS_INIT;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	unsigned long long n[5];
	struct data *self;
	const char *url;
	int anonymous, rc;

	(void)kwargs;
	if (!PyArg_ParseTuple(args, "szz(O&O&O&O&O&)(zzzp)O&|(zO&)(O&O&zz)O&", &url,
		    &options.format, &options.dtype, to_u64, &n[0], to_u64, &n[1], to_u64, &n[2],
		    to_u64, &n[3], to_u64, &n[4], &transfer.endpoint_url, &transfer.region,
		    &transfer.profile, &anonymous, to_u32, &options.threads, &options.cache, to_u64,
		    &options.cache_size, to_u32, &options.decode_height, to_u32,
		    &options.decode_width, &options.decode_column, &options.labels,
		    native_to_cancel, &options.cancel))
		return NULL;
	options.record_size = n[0];
	options.header = n[1];
	options.trailer = n[2];
	options.window = n[3];
	options.stride = n[4];
	transfer.anonymous = anonymous != 0;
	options.transfer = &transfer;
	self = make(type);
	if (!self)
		return NULL;
	Py_BEGIN_ALLOW_THREADS rc = penstock_dataset_open(&self->set, url, &options, &err);
	Py_END_ALLOW_THREADS if (rc < 0)
	{
		Py_DECREF(self);
		return fail(&err);
	}
	return (PyObject *)self;
}

static void data_dealloc(PyObject *object)
{
	struct penstock_dataset *set = ((struct data *)object)->set;

	Py_BEGIN_ALLOW_THREADS penstock_dataset_free(set);
	Py_END_ALLOW_THREADS unmake(object);
}

static PyObject *data_count(PyObject *self, PyObject *unused)
{
	(void)unused;
	return PyLong_FromUnsignedLongLong(penstock_dataset_count(((struct data *)self)->set));
}

static PyObject *data_format(PyObject *self, PyObject *unused)
{
	(void)unused;
	return PyUnicode_FromString(penstock_dataset_format(((struct data *)self)->set));
}

static PyObject *data_classes(PyObject *self, PyObject *unused)
{
	struct penstock_dataset *set = ((struct data *)self)->set;
	size_t n = penstock_dataset_classes(set);
	PyObject *list = PyList_New((Py_ssize_t)n);

	(void)unused;
	for (size_t i = 0; list && i < n; i++) {
		PyObject *name = PyUnicode_DecodeFSDefault(penstock_dataset_class(set, i));

		if (!name || PyList_SetItem(list, (Py_ssize_t)i, name) < 0)
			Py_CLEAR(list);
	}
	return list;
}

static PyObject *data_sample_size(PyObject *self, PyObject *unused)
{
	(void)unused;
	return PyLong_FromUnsignedLongLong(
		penstock_dataset_sample_size(((struct data *)self)->set));
}

static PyObject *data_place(PyObject *self, PyObject *args)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	unsigned long long id;
	uint64_t offset, size;
	const char *name;

	if (!PyArg_ParseTuple(args, "O&", to_u64, &id))
		return NULL;
	if (penstock_dataset_place(((struct data *)self)->set, id, &name, &offset, &size, &err) < 0)
		return fail(&err);
	return Py_BuildValue("(NKK)", PyUnicode_DecodeFSDefault(name), (unsigned long long)offset,
		(unsigned long long)size);
}

/* Sample indexes, and memory for the bytes of the samples. */
struct request {
	uint64_t *ids;
	size_t n;
	PyObject *bytes; /* a bytearray */
	PyObject *offsets; /* bytes of n + 1 uint64 */
};

static void request_release(struct request *r)
{
	free(r->ids);
	Py_XDECREF(r->bytes);
	Py_XDECREF(r->offsets);
}

static bool request_init(struct request *r, struct penstock_dataset *set, PyObject *args)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	PyObject *memory = NULL;
	const char *packed;
	uint64_t *offsets;
	Py_ssize_t size;

	*r = (struct request){0};
	if (!PyArg_ParseTuple(args, "y#|O!", &packed, &size, &PyByteArray_Type, &memory))
		return false;
	r->n = (size_t)size / sizeof(uint64_t);
	r->ids = numbers_of(packed, size);
	offsets = malloc((size_t)size + sizeof(*offsets));
	if (!r->ids || !offsets) {
		free(offsets);
		PyErr_NoMemory();
		return false;
	}
	if (penstock_dataset_layout(set, r->ids, r->n, offsets, &err) < 0) {
		fail(&err);
	} else {
		if (memory && PyByteArray_Size(memory) >= (Py_ssize_t)offsets[r->n]) {
			Py_INCREF(memory);
			r->bytes = memory;
		} else {
			r->bytes = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)offsets[r->n]);
		}
		r->offsets = PyBytes_FromStringAndSize(
			(const char *)offsets, (Py_ssize_t)((r->n + 1) * sizeof(*offsets)));
	}
	free(offsets);
	return r->bytes && r->offsets;
}

static PyObject *data_read(PyObject *self, PyObject *args)
{
	struct penstock_dataset *set = ((struct data *)self)->set;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	PyObject *result = NULL;
	struct request r;
	char *data;
	int rc;

	if (request_init(&r, set, args)) {
		data = PyByteArray_AsString(r.bytes);
		Py_BEGIN_ALLOW_THREADS rc = penstock_dataset_read(set, r.ids, r.n, data, &err);
		Py_END_ALLOW_THREADS result = rc < 0 ? fail(&err)
						     : PyTuple_Pack(2, r.bytes, r.offsets);
	}
	request_release(&r);
	return result;
}

static PyObject *dims_of(const struct penstock_field *f)
{
	PyObject *dims = PyTuple_New((Py_ssize_t)f->ndim);

	for (unsigned i = 0; dims && i < f->ndim; i++) {
		PyObject *dim = PyLong_FromUnsignedLongLong(f->dims[i]);

		if (!dim || PyTuple_SetItem(dims, (Py_ssize_t)i, dim) < 0)
			Py_CLEAR(dims);
	}
	return dims;
}

/* Returns (name, dtype, big_endian, dims, offset, size) of a field whose bytes the sample has. */
static PyObject *field_of(const struct penstock_field *f, const char *data, size_t size)
{
	const char *at = f->data;
	PyObject *dims;

	if (at < data || at + f->size > data + size) {
		PyErr_SetString(PyExc_ValueError, "a field is not within its sample");
		return NULL;
	}
	dims = dims_of(f);
	return dims ? Py_BuildValue("(NzNNnn)",
			      PyUnicode_DecodeUTF8(
				      f->name, (Py_ssize_t)f->name_len, "surrogateescape"),
			      f->dtype, PyBool_FromLong(f->big_endian), dims,
			      (Py_ssize_t)(at - data), (Py_ssize_t)f->size)
		    : NULL;
}

static PyObject *data_split(PyObject *self, PyObject *args)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct penstock_fields *fields = NULL;
	unsigned long long id;
	PyObject *bytes, *list;
	Py_ssize_t offset, size;
	const char *data;

	if (!PyArg_ParseTuple(
		    args, "O&O!nn", to_u64, &id, &PyByteArray_Type, &bytes, &offset, &size))
		return NULL;
	if (offset < 0 || size < 0 || offset > PyByteArray_Size(bytes) - size) {
		PyErr_SetString(PyExc_ValueError, "the sample is not within the bytes");
		return NULL;
	}
	data = PyByteArray_AsString(bytes) + offset;
	if (penstock_fields_split(
		    &fields, ((struct data *)self)->set, id, data, (size_t)size, &err) < 0)
		return fail(&err);
	list = PyList_New(0);
	for (size_t i = 0; list && i < penstock_fields_count(fields); i++) {
		struct penstock_field field = PENSTOCK_FIELD_INIT;
		PyObject *item;

		penstock_fields_at(fields, i, &field, NULL);
		item = field_of(&field, data, (size_t)size);
		if (!item || PyList_Append(list, item) < 0)
			Py_CLEAR(list);
		Py_XDECREF(item);
	}
	penstock_fields_free(fields);
	return list;
}

/* ---- the fields of many samples ---- */

#define NAMES 16 /* number of fields whose names are kept: most samples have the same names */

/* State of the split of samples into dicts. */
struct splitting {
	struct penstock_dataset *set;
	PyObject *view; /* memoryview of the bytes of all samples */
	const char *data; /* the bytes of all samples */
	PyObject *convert; /* convert(sample, name, view, type, dtype, big_endian, dims) */
	struct {
		PyObject *object;
		char text[64];
		size_t len;
	} names[NAMES];
};

/* Returns a new reference, or NULL with an exception. */
static PyObject *name_of(struct splitting *s, size_t i, const struct penstock_field *f)
{
	PyObject *name;

	if (i < NAMES && s->names[i].object && s->names[i].len == f->name_len &&
		memcmp(s->names[i].text, f->name, f->name_len) == 0) {
		Py_INCREF(s->names[i].object);
		return s->names[i].object;
	}
	name = PyUnicode_DecodeUTF8(f->name, (Py_ssize_t)f->name_len, "surrogateescape");
	if (name && i < NAMES && f->name_len <= sizeof(s->names[i].text)) {
		Py_XDECREF(s->names[i].object);
		Py_INCREF(name);
		s->names[i].object = name;
		s->names[i].len = f->name_len;
		memcpy(s->names[i].text, f->name, f->name_len);
	}
	return name;
}

/* Returns an integer of at most 64 bits, or NULL without an exception if the field has another
 * type. */
static PyObject *number_of(const struct penstock_field *f)
{
	const uint8_t *at = f->data;
	uint64_t value = 0;
	bool is_signed = f->dtype && strncmp(f->dtype, "int", 3) == 0;

	if (f->size == 0 || f->size > 8 ||
		(!is_signed && (!f->dtype || strncmp(f->dtype, "uint", 4) != 0)))
		return NULL;
	for (size_t i = 0; i < f->size; i++)
		value |= (uint64_t)at[f->big_endian ? f->size - 1 - i : i] << (8 * i);
	if (!is_signed)
		return PyLong_FromUnsignedLongLong(value);
	if (f->size < 8 && value >> (8 * f->size - 1))
		value |= UINT64_MAX << (8 * f->size);
	return PyLong_FromLongLong((int64_t)value);
}

static PyObject *view_of(
	struct splitting *s, const struct penstock_field *f, size_t at, size_t size)
{
	const char *value = f->data, *sample = s->data + at;
	PyObject *bytes, *view;
	Py_ssize_t begin;

	if (value >= sample && value + f->size <= sample + size) {
		begin = (Py_ssize_t)(value - s->data);
		return PySequence_GetSlice(s->view, begin, begin + (Py_ssize_t)f->size);
	}
	bytes = PyBytes_FromStringAndSize(value, (Py_ssize_t)f->size);
	view = bytes ? PyMemoryView_FromObject(bytes) : NULL;
	Py_XDECREF(bytes);
	return view;
}

/* Returns the value of a field; `at` is the offset of its sample in the bytes. */
static PyObject *value_of(struct splitting *s, uint64_t id, const struct penstock_field *f,
	PyObject *name, size_t at, size_t size)
{
	PyObject *value = NULL, *view, *dims;

	if (strcmp(f->type, "text") == 0) {
		value = PyUnicode_DecodeUTF8(f->data, (Py_ssize_t)f->size, NULL);
		if (!value)
			PyErr_Clear(); /* convert() raises the error of this sample */
	} else if (strcmp(f->type, "number") == 0) {
		value = number_of(f);
	}
	if (value || PyErr_Occurred())
		return value;
	view = view_of(s, f, at, size);
	if (!view || strcmp(f->type, "bytes") == 0)
		return view;
	dims = dims_of(f);
	if (dims)
		value = PyObject_CallFunction(s->convert, "KOOszOO", (unsigned long long)id, name,
			view, f->type, f->dtype, f->big_endian ? Py_True : Py_False, dims);
	Py_XDECREF(dims);
	Py_DECREF(view);
	return value;
}

/* Adds a field to a sample, as an item of a list if the field has several values. */
static int add_field(
	PyObject *sample, const struct penstock_field *f, PyObject *name, PyObject *value)
{
	PyObject *list;
	int rc;

	if (!f->count)
		return PyDict_SetItem(sample, name, value);
	list = PyDict_GetItemWithError(sample, name);
	if (list)
		return PyList_Append(list, value);
	if (PyErr_Occurred())
		return -1;
	list = PyList_New(0);
	rc = list && PyList_Append(list, value) == 0 ? PyDict_SetItem(sample, name, list) : -1;
	Py_XDECREF(list);
	return rc;
}

static PyObject *split_sample(struct splitting *s, uint64_t id, size_t at, size_t size)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct penstock_fields *fields = NULL;
	PyObject *sample;

	if (penstock_fields_split(&fields, s->set, id, s->data + at, size, &err) < 0)
		return fail(&err);
	sample = PyDict_New();
	for (size_t i = 0; sample && i < penstock_fields_count(fields); i++) {
		struct penstock_field f = PENSTOCK_FIELD_INIT;
		PyObject *name, *value;

		penstock_fields_at(fields, i, &f, NULL);
		name = name_of(s, i, &f);
		value = name ? value_of(s, id, &f, name, at, size) : NULL;
		if (!value || add_field(sample, &f, name, value) < 0)
			Py_CLEAR(sample);
		Py_XDECREF(name);
		Py_XDECREF(value);
	}
	penstock_fields_free(fields);
	return sample;
}

static PyObject *split_all(struct splitting *s, const uint64_t *ids, const uint64_t *offsets,
	Py_ssize_t first, Py_ssize_t last)
{
	PyObject *list = PyList_New(last - first);

	for (Py_ssize_t i = first; list && i < last; i++) {
		PyObject *sample = split_sample(
			s, ids[i], offsets[i], (size_t)(offsets[i + 1] - offsets[i]));

		if (!sample || PyList_SetItem(list, i - first, sample) < 0)
			Py_CLEAR(list);
	}
	for (int i = 0; i < NAMES; i++)
		Py_XDECREF(s->names[i].object);
	return list;
}

static PyObject *data_samples(PyObject *self, PyObject *args)
{
	struct splitting s = {.set = ((struct data *)self)->set};
	uint64_t *ids, *offsets;
	const char *packed[2];
	Py_ssize_t sizes[2], first, last, n;
	PyObject *bytes, *list = NULL;

	if (!PyArg_ParseTuple(args, "y#(O!y#)nnO", &packed[0], &sizes[0], &PyByteArray_Type, &bytes,
		    &packed[1], &sizes[1], &first, &last, &s.convert))
		return NULL;
	n = sizes[0] / (Py_ssize_t)sizeof(uint64_t);
	if (sizes[1] != (n + 1) * (Py_ssize_t)sizeof(uint64_t) || first < 0 || first > last ||
		last > n) {
		PyErr_SetString(PyExc_ValueError, "the samples are not within the bytes");
		return NULL;
	}
	ids = numbers_of(packed[0], sizes[0]);
	offsets = numbers_of(packed[1], sizes[1]);
	s.view = PyMemoryView_FromObject(bytes); /* prevents a resize of `bytes` */
	if (!ids || !offsets) {
		PyErr_NoMemory();
	} else if (s.view) {
		s.data = PyByteArray_AsString(bytes);
		for (Py_ssize_t i = 0; i < n; i++) {
			if (offsets[i] > offsets[i + 1] ||
				offsets[i + 1] > (uint64_t)PyByteArray_Size(bytes))
				PyErr_SetString(
					PyExc_ValueError, "the samples are not within the bytes");
		}
		if (!PyErr_Occurred())
			list = split_all(&s, ids, offsets, first, last);
	}
	Py_XDECREF(s.view);
	free(ids);
	free(offsets);
	return list;
}

/* ---- a batch that is read ahead ---- */

struct batch {
	PyObject_HEAD struct penstock_batch *batch; /* NULL after wait() */
	PyObject *data, *bytes, *offsets;
};

static PyTypeObject *batch_type;

static PyObject *data_start(PyObject *self, PyObject *args)
{
	struct penstock_dataset *set = ((struct data *)self)->set;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct batch *batch = NULL;
	struct request r;

	if (request_init(&r, set, args))
		batch = make(batch_type);
	if (batch && penstock_batch_start(&batch->batch, set, r.ids, r.n,
			     PyByteArray_AsString(r.bytes), &err) < 0) {
		Py_DECREF(batch);
		batch = NULL;
		fail(&err);
	}
	if (batch) {
		Py_INCREF(self);
		batch->data = self;
		batch->bytes = r.bytes;
		batch->offsets = r.offsets;
		r.bytes = r.offsets = NULL;
	}
	request_release(&r);
	return (PyObject *)batch;
}

static PyObject *batch_wait(PyObject *self, PyObject *unused)
{
	struct batch *b = (struct batch *)self;
	struct penstock_batch *batch = b->batch;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	bool ended = false, interrupted = false;
	int rc;

	(void)unused;
	if (!batch) {
		PyErr_SetString(PyExc_ValueError, "wait() was already called for this batch");
		return NULL;
	}
	b->batch = NULL;
	/* Check for Ctrl-C between the waits. */
	while (!ended && !interrupted) {
		Py_BEGIN_ALLOW_THREADS ended = penstock_batch_ended(batch, SIGNALS_MS);
		Py_END_ALLOW_THREADS interrupted = !ended && PyErr_CheckSignals() < 0;
	}
	if (interrupted) {
		Py_BEGIN_ALLOW_THREADS penstock_batch_drop(batch);
		Py_END_ALLOW_THREADS return NULL;
	}
	rc = penstock_batch_wait(batch, &err);
	return rc < 0 ? fail(&err) : PyTuple_Pack(2, b->bytes, b->offsets);
}

static void batch_dealloc(PyObject *object)
{
	struct batch *b = (struct batch *)object;

	if (b->batch) {
		Py_BEGIN_ALLOW_THREADS penstock_batch_drop(b->batch);
		Py_END_ALLOW_THREADS
	}
	Py_XDECREF(b->bytes);
	Py_XDECREF(b->offsets);
	Py_XDECREF(b->data);
	unmake(object);
}

/* ---- the order of an epoch ---- */

struct plan {
	PyObject_HEAD struct penstock_plan *plan;
	uint64_t *ids; /* sample indexes of a batch */
};

static PyObject *plan_of(PyTypeObject *type, const struct penstock_plan_options *options)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct plan *self = make(type);

	if (!self)
		return NULL;
	if (penstock_plan_new(&self->plan, options, &err) < 0) {
		Py_DECREF(self);
		return fail(&err);
	}
	self->ids = malloc(((size_t)options->batch + 1) * sizeof(*self->ids));
	if (!self->ids) {
		Py_DECREF(self);
		return PyErr_NoMemory();
	}
	return (PyObject *)self;
}

static PyObject *plan_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	struct penstock_plan_options options = PENSTOCK_PLAN_OPTIONS_INIT;
	const char *packed[2] = {"", ""};
	Py_ssize_t sizes[2] = {0, 0};
	unsigned long long samples, n[5];
	uint64_t *counts, *weights;
	PyObject *plan;
	int repeat = 0;

	(void)kwargs;
	if (!PyArg_ParseTuple(args, "O&ss(O&O&O&O&O&)(O&O&O&O&O&)|(y#y#p)", to_u64, &samples,
		    &options.shuffle, &options.rest, to_u64, &n[0], to_u64, &n[1], to_u64, &n[2],
		    to_u64, &n[3], to_u64, &n[4], to_u32, &options.ranks, to_u32, &options.rank,
		    to_u32, &options.batch, to_u32, &options.workers, to_u32, &options.worker,
		    &packed[0], &sizes[0], &packed[1], &sizes[1], &repeat))
		return NULL;
	if (sizes[0] != sizes[1]) {
		PyErr_SetString(PyExc_ValueError, "each set of a mix needs a weight");
		return NULL;
	}
	options.samples = samples;
	options.block = n[0];
	options.window = n[1];
	options.seed = n[2];
	options.epoch = n[3];
	options.start = n[4];
	options.set_samples = counts = numbers_of(packed[0], sizes[0]);
	options.set_weights = weights = numbers_of(packed[1], sizes[1]);
	options.sets = (size_t)sizes[0] / sizeof(uint64_t);
	options.repeat = repeat != 0;
	plan = counts && weights ? plan_of(type, &options) : PyErr_NoMemory();
	free(counts);
	free(weights);
	return plan;
}

static void plan_dealloc(PyObject *object)
{
	struct plan *self = (struct plan *)object;

	penstock_plan_free(self->plan);
	free(self->ids);
	unmake(object);
}

static PyObject *plan_samples(PyObject *self, PyObject *unused)
{
	(void)unused;
	return PyLong_FromUnsignedLongLong(penstock_plan_samples(((struct plan *)self)->plan));
}

static PyObject *plan_batches(PyObject *self, PyObject *unused)
{
	(void)unused;
	return PyLong_FromUnsignedLongLong(penstock_plan_batches(((struct plan *)self)->plan));
}

static PyObject *plan_rank_batches(PyObject *self, PyObject *unused)
{
	(void)unused;
	return PyLong_FromUnsignedLongLong(penstock_plan_rank_batches(((struct plan *)self)->plan));
}

static PyObject *plan_batch(PyObject *object, PyObject *args)
{
	struct plan *self = (struct plan *)object;
	unsigned long long i;
	size_t n, padded;

	if (!PyArg_ParseTuple(args, "O&", to_u64, &i))
		return NULL;
	if (i >= penstock_plan_batches(self->plan)) {
		PyErr_SetString(PyExc_IndexError, "no such batch");
		return NULL;
	}
	n = penstock_plan_batch(self->plan, i, self->ids, &padded);
	return Py_BuildValue("(y#n)", (const char *)self->ids, (Py_ssize_t)(n * sizeof(*self->ids)),
		(Py_ssize_t)padded);
}

static PyObject *plan_delivered(PyObject *self, PyObject *args)
{
	unsigned long long batches;

	if (!PyArg_ParseTuple(args, "O&", to_u64, &batches))
		return NULL;
	return PyLong_FromUnsignedLongLong(
		penstock_plan_delivered(((struct plan *)self)->plan, batches));
}

static PyObject *plan_id(PyObject *self, PyObject *unused)
{
	(void)unused;
	return PyLong_FromUnsignedLongLong(penstock_plan_id(((struct plan *)self)->plan));
}

/* ---- the types ---- */

static PyMethodDef data_methods[] = {
	{"count", data_count, METH_NOARGS, "count(): the number of samples"},
	{"format", data_format, METH_NOARGS, "format(): the name of the format"},
	{"classes", data_classes, METH_NOARGS, "classes(): the folders, by label"},
	{"sample_size", data_sample_size, METH_NOARGS,
		"sample_size(): bytes of each sample; 0 if they differ"},
	{"place", data_place, METH_VARARGS, "place(sample): (shard, offset, size)"},
	{"read", data_read, METH_VARARGS,
		"read(ids[, bytearray]): (bytearray, offsets) of these samples; uses the given "
		"bytearray if it is large enough"},
	{"start", data_start, METH_VARARGS,
		"start(ids[, bytearray]): starts a read in the background and returns its Batch"},
	{"samples", data_samples, METH_VARARGS,
		"samples(ids, (bytes, offsets), first, last, convert): the samples of several "
		"fields, as dicts; convert(sample, name, view, type, dtype, big_endian, dims) "
		"makes values other than bytes, texts and integers"},
	{"split", data_split, METH_VARARGS,
		"split(sample, bytes, offset, size): the fields of a sample of a format with one size"},
	{NULL, NULL, 0, NULL},
};

static PyMethodDef batch_methods[] = {
	{"wait", batch_wait, METH_NOARGS, "wait(): (bytearray, offsets), as from read()"},
	{NULL, NULL, 0, NULL},
};

static PyMethodDef plan_methods[] = {
	{"samples", plan_samples, METH_NOARGS,
		"samples(): the number of samples of the epoch, for all ranks"},
	{"batches", plan_batches, METH_NOARGS, "batches(): the number of batches of the worker"},
	{"rank_batches", plan_rank_batches, METH_NOARGS,
		"rank_batches(): the number of batches of all workers of the rank"},
	{"batch", plan_batch, METH_VARARGS,
		"batch(i): (ids, number of ids at the end that are padding)"},
	{"delivered", plan_delivered, METH_VARARGS,
		"delivered(batches): samples that all ranks have received after that number of batches"},
	{"id", plan_id, METH_NOARGS, "id(): identifies the samples and their order"},
	{NULL, NULL, 0, NULL},
};

static PyType_Slot data_slots[] = {
	{Py_tp_new, (void *)data_new},
	{Py_tp_dealloc, (void *)data_dealloc},
	{Py_tp_methods, data_methods},
	{Py_tp_doc, (void *)"Dataset(url, format, dtype, numbers, store, threads, cache, decode, "
			    "cancel)"},
	{0, NULL},
};

static PyType_Slot batch_slots[] = {
	{Py_tp_dealloc, (void *)batch_dealloc},
	{Py_tp_methods, batch_methods},
	{Py_tp_doc, (void *)"A batch that is read in the background"},
	{0, NULL},
};

static PyType_Slot plan_slots[] = {
	{Py_tp_new, (void *)plan_new},
	{Py_tp_dealloc, (void *)plan_dealloc},
	{Py_tp_methods, plan_methods},
	{Py_tp_doc, (void *)"Plan(samples, shuffle, rest, numbers, deal, mix)"},
	{0, NULL},
};

static PyType_Spec specs[] = {
	{"penstock._native.Dataset", sizeof(struct data), 0, Py_TPFLAGS_DEFAULT, data_slots},
	{"penstock._native.Batch", sizeof(struct batch), 0, Py_TPFLAGS_DEFAULT, batch_slots},
	{"penstock._native.Plan", sizeof(struct plan), 0, Py_TPFLAGS_DEFAULT, plan_slots},
};

int native_add_data(PyObject *module)
{
	return native_add_type(module, &specs[0], NULL) < 0 ||
			       native_add_type(module, &specs[1], &batch_type) < 0 ||
			       native_add_type(module, &specs[2], NULL) < 0
		       ? -1
		       : 0;
}
