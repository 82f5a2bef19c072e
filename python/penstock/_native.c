/*
 * The module, and the part of libpenstock that penstock.checkpoint needs: the Python functions call
 * the functions of <penstock/checkpoint.h>. The module uses only the limited API of Python 3.9, so
 * that one binary serves all later versions. Paths are passed as bytes. This API lacks the buffer
 * protocol, so memory is passed as bytes or as an address and a size; the Python side keeps the
 * memory alive during the call. Calls that may block release the interpreter lock.
 */
#include "_native.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <isa-l/crc.h>
#include <penstock/checkpoint.h>
#include <penstock/error.h>
#include <penstock/transfer.h>

#include "_copy.h"

/* ---- errors ---- */

PyObject *native_raise(const char *factory, struct penstock_error *err)
{
	PyObject *module = PyImport_ImportModule("penstock._errors");
	PyObject *raised = NULL;

	if (module)
		raised = PyObject_CallMethod(module, factory, "sy", penstock_code_name(err->code),
			err->message ? err->message : "");
	if (raised)
		PyErr_SetObject((PyObject *)Py_TYPE(raised), raised);
	Py_XDECREF(raised);
	Py_XDECREF(module);
	penstock_error_release(err);
	return NULL;
}

static PyObject *fail(struct penstock_error *err)
{
	return native_raise("error", err);
}

/* ---- saving a checkpoint ---- */

struct saving {
	PyObject_HEAD struct penstock_checkpoint *checkpoint; /* NULL after commit() or give_up() */
	volatile int cancel;
	/* A call is running without the interpreter lock: no other thread may use the checkpoint.
	 * The interpreter lock protects `busy`. */
	bool busy;
};

/* Reads a dict of UTF-8 bytes to numbers. The names are borrowed from the dict. */
static int read_metrics(PyObject *dict, struct penstock_metric **out, size_t *n)
{
	PyObject *name, *value;
	Py_ssize_t at = 0;
	size_t room = (size_t)PyDict_Size(dict);
	struct penstock_metric *metrics = calloc(room ? room : 1, sizeof(*metrics));

	if (!metrics) {
		PyErr_NoMemory();
		return -1;
	}
	for (*n = 0; PyDict_Next(dict, &at, &name, &value) && *n < room; (*n)++) {
		metrics[*n].name = PyBytes_AsString(name);
		metrics[*n].value = PyFloat_AsDouble(value);
		if (PyErr_Occurred()) {
			free(metrics);
			return -1;
		}
	}
	*out = metrics;
	return 0;
}

static PyObject *saving_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	struct penstock_checkpoint_options options = PENSTOCK_CHECKPOINT_OPTIONS_INIT;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct penstock_metric *metrics = NULL;
	unsigned long long step;
	PyObject *dict;
	const char *dir;
	struct saving *self;
	int rc;

	if (kwargs && PyDict_Size(kwargs) > 0) {
		PyErr_SetString(PyExc_TypeError, "Saving() takes no keyword arguments");
		return NULL;
	}
	if (!PyArg_ParseTuple(args, "yKIIO!d", &dir, &step, &options.rank, &options.world_size,
		    &PyDict_Type, &dict, &options.timeout_s) ||
		read_metrics(dict, &metrics, &options.n_metrics) < 0)
		return NULL;
	self = make(type);
	if (!self) {
		free(metrics);
		return NULL;
	}
	options.metrics = metrics;
	options.cancel = &self->cancel;
	Py_BEGIN_ALLOW_THREADS rc = penstock_checkpoint_begin(
		&self->checkpoint, dir, step, &options, &err);
	Py_END_ALLOW_THREADS free(metrics);
	if (rc < 0) {
		Py_DECREF(self);
		return fail(&err);
	}
	return (PyObject *)self;
}

static void saving_give_up(struct saving *self)
{
	struct penstock_checkpoint *checkpoint = self->checkpoint;

	self->checkpoint = NULL;
	Py_BEGIN_ALLOW_THREADS penstock_checkpoint_free(checkpoint);
	Py_END_ALLOW_THREADS
}

/* Raises an exception and returns false while another thread's call runs. */
static bool saving_is_free(const struct saving *self)
{
	if (self->busy)
		PyErr_SetString(PyExc_ValueError,
			"another thread is using this checkpoint; only cancel() may be called "
			"meanwhile");
	return !self->busy;
}

static void saving_dealloc(PyObject *object)
{
	PyTypeObject *type = Py_TYPE(object);
	freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);

	/*
	 * A running call holds a reference, so a busy checkpoint here is a copy in a forked child,
	 * made while a thread of the parent used the original. The state of the copy may be
	 * inconsistent, so the copy is not freed.
	 */
	if (!((struct saving *)object)->busy)
		saving_give_up((struct saving *)object);
	release(object);
	Py_DECREF(type);
}

static struct penstock_checkpoint *saving_open(const struct saving *self)
{
	if (!saving_is_free(self))
		return NULL;
	if (!self->checkpoint)
		PyErr_SetString(PyExc_ValueError, "this checkpoint has been committed or given up");
	return self->checkpoint;
}

static PyObject *saving_append(struct saving *self, const char *name, const void *data, size_t size)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct penstock_checkpoint *checkpoint = saving_open(self);
	int rc;

	if (!checkpoint)
		return NULL;
	self->busy = true;
	Py_BEGIN_ALLOW_THREADS rc = penstock_checkpoint_write(checkpoint, name, data, size, &err);
	Py_END_ALLOW_THREADS self->busy = false;
	if (rc < 0)
		return fail(&err);
	Py_RETURN_NONE;
}

static PyObject *saving_write(PyObject *self, PyObject *args)
{
	const char *name, *data;
	Py_ssize_t size;

	if (!PyArg_ParseTuple(args, "sy#", &name, &data, &size))
		return NULL;
	return saving_append((struct saving *)self, name, data, (size_t)size);
}

static PyObject *saving_write_at(PyObject *self, PyObject *args)
{
	unsigned long long address;
	const char *name;
	Py_ssize_t size;

	if (!PyArg_ParseTuple(args, "sKn", &name, &address, &size))
		return NULL;
	return saving_append((struct saving *)self, name, (const void *)(uintptr_t)address,
		(size_t)size); // NOLINT(performance-no-int-to-ptr)
}

static PyObject *saving_add(PyObject *object, PyObject *args)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct saving *self = (struct saving *)object;
	struct penstock_checkpoint *checkpoint = saving_open(self);
	const char *name;
	int rc;

	if (!checkpoint || !PyArg_ParseTuple(args, "s", &name))
		return NULL;
	self->busy = true;
	Py_BEGIN_ALLOW_THREADS rc = penstock_checkpoint_add(checkpoint, name, &err);
	Py_END_ALLOW_THREADS self->busy = false;
	if (rc < 0)
		return fail(&err);
	Py_RETURN_NONE;
}

static PyObject *saving_path(PyObject *object, PyObject *unused)
{
	struct penstock_checkpoint *checkpoint = saving_open((struct saving *)object);

	(void)unused;
	return checkpoint ? PyUnicode_DecodeFSDefault(penstock_checkpoint_path(checkpoint)) : NULL;
}

static PyObject *saving_commit(PyObject *object, PyObject *unused)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct saving *self = (struct saving *)object;
	struct penstock_checkpoint *checkpoint = saving_open(self);
	int rc;

	(void)unused;
	if (!checkpoint)
		return NULL;
	self->busy = true;
	Py_BEGIN_ALLOW_THREADS rc = penstock_checkpoint_commit(checkpoint, &err);
	Py_END_ALLOW_THREADS self->busy = false;
	saving_give_up(self);
	if (rc < 0)
		return fail(&err);
	Py_RETURN_NONE;
}

static PyObject *saving_abandon(PyObject *object, PyObject *unused)
{
	(void)unused;
	if (!saving_is_free((struct saving *)object))
		return NULL;
	saving_give_up((struct saving *)object);
	Py_RETURN_NONE;
}

/* While a call runs, another thread may call this method, but no other method. */
static PyObject *saving_cancel(PyObject *object, PyObject *unused)
{
	(void)unused;
	((struct saving *)object)->cancel = 1;
	Py_RETURN_NONE;
}

static PyMethodDef saving_methods[] = {
	{"write", saving_write, METH_VARARGS, "write(name, data): appends bytes to a file"},
	{"write_at", saving_write_at, METH_VARARGS,
		"write_at(name, address, size): appends memory to a file; the caller keeps it "
		"alive"},
	{"add", saving_add, METH_VARARGS, "add(name): adds a file that was written below path()"},
	{"path", saving_path, METH_NOARGS, "path(): the directory of the checkpoint"},
	{"commit", saving_commit, METH_NOARGS,
		"commit(): commits the checkpoint when every rank is done"},
	{"give_up", saving_abandon, METH_NOARGS,
		"give_up(): removes what was written and notifies the other ranks"},
	{"cancel", saving_cancel, METH_NOARGS,
		"cancel(): stops waiting for other ranks in commit()"},
	{NULL, NULL, 0, NULL},
};

static PyType_Slot saving_slots[] = {
	{Py_tp_new, (void *)saving_new},
	{Py_tp_dealloc, (void *)saving_dealloc},
	{Py_tp_methods, saving_methods},
	{Py_tp_doc,
		(void *)"Saving(dir, step, rank, world_size, metrics, timeout_s): a checkpoint that is "
			"not committed yet"},
	{0, NULL},
};

static PyType_Spec saving_spec = {
	.name = "penstock._native.Saving",
	.basicsize = sizeof(struct saving),
	.flags = Py_TPFLAGS_DEFAULT,
	.slots = saving_slots,
};

/* ---- committed checkpoints ---- */

static PyObject *metrics_of(const struct penstock_commit *commit)
{
	PyObject *dict = PyDict_New();

	for (size_t i = 0; dict && i < penstock_commit_n_metrics(commit); i++) {
		struct penstock_metric metric;
		PyObject *value;

		penstock_commit_metric_at(commit, i, &metric);
		value = PyFloat_FromDouble(metric.value);
		if (!value || PyDict_SetItemString(dict, metric.name, value) < 0)
			Py_CLEAR(dict);
		Py_XDECREF(value);
	}
	return dict;
}

static PyObject *files_of(const struct penstock_commit *commit)
{
	PyObject *list = PyList_New(0);

	for (size_t i = 0; list && i < penstock_commit_n_files(commit); i++) {
		struct penstock_commit_file file = PENSTOCK_COMMIT_FILE_INIT;
		struct penstock_error err = PENSTOCK_ERROR_INIT;
		PyObject *entry;

		if (penstock_commit_file_at(commit, i, &file, &err) < 0) {
			Py_DECREF(list);
			return fail(&err);
		}
		entry = Py_BuildValue("(sKK)", file.name, (unsigned long long)file.size,
			(unsigned long long)file.crc64nvme);
		if (!entry || PyList_Append(list, entry) < 0)
			Py_CLEAR(list);
		Py_XDECREF(entry);
	}
	return list;
}

/* Returns (path, step, attempt, run, time_ns, world_size, metrics, files). */
static PyObject *tuple_of(const struct penstock_commit *commit)
{
	PyObject *path = PyUnicode_DecodeFSDefault(penstock_commit_path(commit));
	PyObject *metrics = path ? metrics_of(commit) : NULL;
	PyObject *files = metrics ? files_of(commit) : NULL;
	PyObject *tuple = NULL;

	if (files)
		tuple = Py_BuildValue("(OKIsLIOO)", path,
			(unsigned long long)penstock_commit_step(commit),
			penstock_commit_attempt(commit), penstock_commit_run_id(commit),
			(long long)penstock_commit_time_ns(commit),
			penstock_commit_world_size(commit), metrics, files);
	Py_XDECREF(files);
	Py_XDECREF(metrics);
	Py_XDECREF(path);
	return tuple;
}

static PyObject *tuple_and_free(struct penstock_commit *commit)
{
	PyObject *tuple = tuple_of(commit);

	penstock_commit_free(commit);
	return tuple;
}

/* State of a callback that runs inside a call without the interpreter lock. */
struct collector {
	PyThreadState *state;
	PyObject *list;
	bool failed; /* a Python exception is set */
};

static void collect(struct collector *c, PyObject *entry)
{
	if (!entry || PyList_Append(c->list, entry) < 0)
		c->failed = true;
	Py_XDECREF(entry);
}

static void on_passed(void *cookie, const char *path, const char *why)
{
	struct collector *c = cookie;

	PyEval_RestoreThread(c->state);
	if (!c->failed)
		collect(c, Py_BuildValue("(yy)", path, why));
	c->state = PyEval_SaveThread();
}

/* latest(dir): returns the newest verified commit or None, and (path, why) of each skipped
 * checkpoint. */
static PyObject *native_latest(PyObject *module, PyObject *args)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct penstock_commit *commit = NULL;
	struct collector c = {0};
	PyObject *found;
	const char *dir;
	int rc;

	(void)module;
	if (!PyArg_ParseTuple(args, "y", &dir))
		return NULL;
	c.list = PyList_New(0);
	if (!c.list)
		return NULL;
	c.state = PyEval_SaveThread();
	rc = penstock_checkpoint_latest(&commit, dir, on_passed, &c, &err);
	PyEval_RestoreThread(c.state);
	if (c.failed || (rc < 0 && rc != -PENSTOCK_E_NOT_FOUND)) {
		Py_DECREF(c.list);
		penstock_commit_free(commit);
		if (c.failed) {
			penstock_error_release(&err);
			return NULL;
		}
		return fail(&err);
	}
	penstock_error_release(&err);
	if (commit) {
		found = tuple_and_free(commit);
	} else {
		Py_INCREF(Py_None);
		found = Py_None;
	}
	return Py_BuildValue("(NN)", found, c.list);
}

static int on_listed(
	void *cookie, const char *path, const struct penstock_commit *commit, const char *why)
{
	struct collector *c = cookie;

	PyEval_RestoreThread(c->state);
	if (commit)
		collect(c, tuple_of(commit));
	else
		collect(c, Py_BuildValue("(yy)", path, why ? why : ""));
	c->state = PyEval_SaveThread();
	return c->failed ? 1 : 0;
}

/* list(dir): returns the commits, newest first, and (path, why) in place of a commit that cannot be
 * read. */
static PyObject *native_list(PyObject *module, PyObject *args)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct collector c = {0};
	const char *dir;
	int rc;

	(void)module;
	if (!PyArg_ParseTuple(args, "y", &dir))
		return NULL;
	c.list = PyList_New(0);
	if (!c.list)
		return NULL;
	c.state = PyEval_SaveThread();
	rc = penstock_checkpoint_list(dir, on_listed, &c, &err);
	PyEval_RestoreThread(c.state);
	if (!c.failed && rc >= 0)
		return c.list;
	Py_DECREF(c.list);
	if (c.failed) {
		penstock_error_release(&err);
		return NULL;
	}
	return fail(&err);
}

/* open(path, verify): returns the commit; `verify` checks every byte. */
static PyObject *native_open(PyObject *module, PyObject *args)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct penstock_commit *commit = NULL;
	const char *path;
	int verify, rc;

	(void)module;
	if (!PyArg_ParseTuple(args, "yp", &path, &verify))
		return NULL;
	Py_BEGIN_ALLOW_THREADS rc = penstock_checkpoint_open(&commit, path, &err);
	if (rc >= 0 && verify)
		rc = penstock_commit_verify(commit, true, &err);
	Py_END_ALLOW_THREADS if (rc < 0)
	{
		penstock_commit_free(commit);
		return fail(&err);
	}
	return tuple_and_free(commit);
}

/* ---- memory ---- */

/* Python packs each piece as three machine words, the layout of copy_pieces(). */
_Static_assert(
	sizeof(struct copy_piece) == 3 * sizeof(uintptr_t) && sizeof(size_t) == sizeof(uintptr_t),
	"a piece is three words");

static PyObject *native_copy(PyObject *module, PyObject *args)
{
	struct copy_piece *pieces;
	const char *packed;
	unsigned threads;
	Py_ssize_t size;

	(void)module;
	if (!PyArg_ParseTuple(args, "y#I", &packed, &size, &threads))
		return NULL;
	if ((size_t)size % sizeof(*pieces) != 0) {
		PyErr_SetString(PyExc_ValueError, "copy() takes pieces of three words each");
		return NULL;
	}
	pieces = malloc(size ? (size_t)size : 1);
	if (!pieces)
		return PyErr_NoMemory();
	memcpy(pieces, packed, (size_t)size); /* `packed` may be unaligned */
	Py_BEGIN_ALLOW_THREADS copy_pieces(pieces, (size_t)size / sizeof(*pieces), threads);
	Py_END_ALLOW_THREADS free(pieces);
	Py_RETURN_NONE;
}

/* ---- the checksum of ZIP files ---- */

static PyObject *native_crc32(PyObject *module, PyObject *args)
{
	unsigned long long address, left;
	const unsigned char *at;
	unsigned crc;

	(void)module;
	if (!PyArg_ParseTuple(args, "KKI", &address, &left, &crc))
		return NULL;
	at = (const unsigned char *)(uintptr_t)address; // NOLINT(performance-no-int-to-ptr)
	Py_BEGIN_ALLOW_THREADS crc = crc32_gzip_refl(crc, at, left);
	Py_END_ALLOW_THREADS return PyLong_FromUnsignedLong(crc);
}

static PyObject *native_version(PyObject *module, PyObject *unused)
{
	(void)module;
	(void)unused;
	return PyUnicode_FromString(penstock_version());
}

static PyMethodDef methods[] = {
	{"latest", native_latest, METH_VARARGS,
		"latest(dir): (commit or None, [(path, why)] of checkpoints skipped)"},
	{"list", native_list, METH_VARARGS,
		"list(dir): every commit, newest first; (path, why) if it cannot be read"},
	{"open", native_open, METH_VARARGS, "open(path, verify): the commit of a checkpoint"},
	{"copy", native_copy, METH_VARARGS,
		"copy(pieces, threads): copies memory; each piece is three words: to, from, size"},
	{"crc32", native_crc32, METH_VARARGS, "crc32(address, size, crc): like zlib's, of memory"},
	{"version", native_version, METH_NOARGS, "version(): version of libpenstock"},
	{NULL, NULL, 0, NULL},
};

#define WARNING 2 /* the library's level of warnings */

/* Called from threads without the interpreter lock. */
static void print_warning(void *cookie, int level, const char *line)
{
	(void)cookie;
	if (level >= WARNING)
		fprintf(stderr, "penstock: %s\n", line);
}

int native_add_type(PyObject *module, PyType_Spec *spec, PyTypeObject **out)
{
	PyObject *type = PyType_FromSpec(spec);

	if (!type)
		return -1;
	Py_INCREF(type);
	if (PyModule_AddObject(module, strrchr(spec->name, '.') + 1, type) < 0) {
		Py_DECREF(type);
		Py_DECREF(type);
		return -1;
	}
	if (out)
		*out = (PyTypeObject *)type;
	else
		Py_DECREF(type);
	return 0;
}

static int native_exec(PyObject *module)
{
	penstock_set_log(print_warning, NULL);
	return native_add_type(module, &saving_spec, NULL) < 0 || native_add_data(module) < 0
		       ? -1
		       : native_add_files(module);
}

static PyModuleDef_Slot slots[] = {
	{Py_mod_exec, (void *)native_exec},
	{0, NULL},
};

static struct PyModuleDef definition = {
	PyModuleDef_HEAD_INIT,
	.m_name = "penstock._native",
	.m_doc = "libpenstock for the modules of penstock",
	.m_methods = methods,
	.m_slots = slots,
};

PyMODINIT_FUNC PyInit__native(void); /* Python.h has no prototype for it */
PyMODINIT_FUNC PyInit__native(void)
{
	return PyModuleDef_Init(&definition);
}
