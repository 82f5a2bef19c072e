/*
 * The part of libpenstock that penstock.open() and penstock.fsspec need: files of
 * <penstock/file.h>, and the objects of <penstock/transfer.h>. Waiting never holds the interpreter
 * lock. The limited API of Python 3.9 lacks the buffer protocol: memory is passed as an address and
 * a size, and the Python side keeps the memory alive during the call.
 */
#include "_native.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <penstock/error.h>
#include <penstock/file.h>
#include <penstock/transfer.h>

static PyTypeObject *cancel_type, *file_type;

/* Raises the error, unless a signal handler has raised another exception. */
static PyObject *fail(struct penstock_error *err)
{
	if (!PyErr_Occurred())
		return native_raise("file_error", err);
	penstock_error_release(err);
	return NULL;
}

/* ---- cancelling ---- */

struct cancel {
	PyObject_HEAD struct penstock_cancel *cancel;
};

int native_to_cancel(PyObject *object, void *out)
{
	if (!PyObject_TypeCheck(object, cancel_type)) {
		PyErr_SetString(PyExc_TypeError, "expected a Cancel");
		return 0;
	}
	*(struct penstock_cancel **)out = ((struct cancel *)object)->cancel;
	return 1;
}

static PyObject *cancel_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	struct cancel *self = make(type);

	(void)args;
	(void)kwargs;
	if (!self)
		return NULL;
	self->cancel = penstock_cancel_new();
	if (self->cancel)
		return (PyObject *)self;
	Py_DECREF(self);
	return PyErr_NoMemory();
}

static void cancel_dealloc(PyObject *object)
{
	penstock_cancel_free(((struct cancel *)object)->cancel);
	unmake(object);
}

static PyObject *cancel_set(PyObject *self, PyObject *unused)
{
	(void)unused;
	penstock_cancel_set(((struct cancel *)self)->cancel);
	Py_RETURN_NONE;
}

/* ---- a transfer handle ---- */

struct transfer {
	PyObject_HEAD struct penstock_transfer *transfer;
	pid_t pid; /* process that created the handle */
};

static PyObject *transfer_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	struct penstock_transfer_options options = PENSTOCK_TRANSFER_OPTIONS_INIT;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct transfer *self;
	int anonymous, rc;

	(void)kwargs;
	if (!PyArg_ParseTuple(args, "zzzzzzp", &options.endpoint_url, &options.region,
		    &options.profile, &options.access_key_id, &options.secret_access_key,
		    &options.session_token, &anonymous))
		return NULL;
	options.anonymous = anonymous != 0;
	self = make(type);
	if (!self)
		return NULL;
	self->pid = getpid();
	Py_BEGIN_ALLOW_THREADS rc = penstock_transfer_new(&self->transfer, &options, &err);
	Py_END_ALLOW_THREADS if (rc < 0)
	{
		Py_DECREF(self);
		return fail(&err);
	}
	return (PyObject *)self;
}

static void transfer_dealloc(PyObject *object)
{
	struct transfer *self = (struct transfer *)object;

	/* A forked child has no threads of the handle, and must not free the handle. */
	if (self->pid == getpid()) {
		Py_BEGIN_ALLOW_THREADS penstock_transfer_free(self->transfer);
		Py_END_ALLOW_THREADS
	}
	unmake(object);
}

static PyObject *describe(const struct penstock_object *o)
{
	return Py_BuildValue("(NKNLN)", PyUnicode_DecodeFSDefault(o->key ? o->key : ""),
		(unsigned long long)o->size, PyUnicode_DecodeFSDefault(o->etag ? o->etag : ""),
		(long long)o->modified_ns, PyBool_FromLong(o->is_prefix));
}

static PyObject *transfer_head(PyObject *self, PyObject *args)
{
	struct penstock_transfer *transfer = ((struct transfer *)self)->transfer;
	struct penstock_object object = PENSTOCK_OBJECT_INIT;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	PyObject *described;
	const char *url;
	int rc;

	if (!PyArg_ParseTuple(args, "s", &url))
		return NULL;
	Py_BEGIN_ALLOW_THREADS rc = penstock_head(transfer, url, &object, &err);
	Py_END_ALLOW_THREADS if (rc < 0) return fail(&err);
	described = describe(&object);
	penstock_object_release(&object);
	return described;
}

struct lister {
	PyThreadState *state;
	PyObject *list;
	Py_ssize_t most; /* maximum number of entries; 0 for all */
	bool failed;
};

static int on_listed(void *cookie, const struct penstock_object *object)
{
	struct lister *l = cookie;
	PyObject *described;
	bool enough;

	PyEval_RestoreThread(l->state);
	described = describe(object);
	l->failed = !described || PyList_Append(l->list, described) < 0;
	Py_XDECREF(described);
	enough = l->failed || (l->most && PyList_Size(l->list) >= l->most);
	l->state = PyEval_SaveThread();
	return enough;
}

static PyObject *transfer_list(PyObject *self, PyObject *args)
{
	struct penstock_transfer *transfer = ((struct transfer *)self)->transfer;
	struct penstock_call_options options = PENSTOCK_CALL_OPTIONS_INIT;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct lister l = {0};
	const char *url, *delimiter;
	int rc;

	if (!PyArg_ParseTuple(
		    args, "szO&n", &url, &delimiter, native_to_cancel, &options.cancel, &l.most))
		return NULL;
	l.list = PyList_New(0);
	if (!l.list)
		return NULL;
	l.state = PyEval_SaveThread();
	rc = penstock_list(transfer, url, delimiter, on_listed, &l, &options, &err);
	PyEval_RestoreThread(l.state);
	if (rc == 0 && !l.failed)
		return l.list;
	Py_DECREF(l.list);
	return fail(&err);
}

static PyObject *transfer_put(PyObject *self, PyObject *args)
{
	struct penstock_transfer *transfer = ((struct transfer *)self)->transfer;
	struct penstock_call_options options = PENSTOCK_CALL_OPTIONS_INIT;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	const char *url;
	int fd, create, rc;

	if (!PyArg_ParseTuple(args, "sipO&", &url, &fd, &create, native_to_cancel, &options.cancel))
		return NULL;
	options.if_none_match = create != 0;
	Py_BEGIN_ALLOW_THREADS rc = penstock_put_stream(transfer, url, fd, &options, NULL, &err);
	Py_END_ALLOW_THREADS if (rc < 0) return fail(&err);
	Py_RETURN_NONE;
}

static PyObject *transfer_delete(PyObject *self, PyObject *args)
{
	struct penstock_transfer *transfer = ((struct transfer *)self)->transfer;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	const char *url;
	int rc;

	if (!PyArg_ParseTuple(args, "s", &url))
		return NULL;
	Py_BEGIN_ALLOW_THREADS rc = penstock_delete(transfer, url, NULL, &err);
	Py_END_ALLOW_THREADS if (rc < 0) return fail(&err);
	Py_RETURN_NONE;
}

static PyObject *transfer_copy(PyObject *self, PyObject *args)
{
	struct penstock_transfer *transfer = ((struct transfer *)self)->transfer;
	struct penstock_call_options options = PENSTOCK_CALL_OPTIONS_INIT;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	const char *from, *to;
	int rc;

	if (!PyArg_ParseTuple(args, "ssO&", &from, &to, native_to_cancel, &options.cancel))
		return NULL;
	Py_BEGIN_ALLOW_THREADS rc = penstock_copy(transfer, from, to, &options, NULL, &err);
	Py_END_ALLOW_THREADS if (rc < 0) return fail(&err);
	Py_RETURN_NONE;
}

/* ---- a file ---- */

struct file {
	PyObject_HEAD struct penstock_file *file; /* NULL once it is closed */
	PyObject *transfer;
	pid_t pid;
	/* Number of calls that run without the interpreter lock. If `closing` was set during these
	 * calls, the last one closes the file. The interpreter lock protects the count. */
	unsigned busy;
	bool closing;
};

/* Called by a thread that waits. Signal handlers run only in the main thread; another thread may
 * outlive the interpreter, and PyGILState_Ensure() would then crash. */
static bool on_wait(void *cookie)
{
	PyGILState_STATE state;
	bool stop;

	(void)cookie;
	if (gettid() != getpid())
		return false;
	state = PyGILState_Ensure();
	stop = PyErr_CheckSignals() < 0;
	PyGILState_Release(state);
	return stop;
}

static PyObject *transfer_open(PyObject *self, PyObject *args)
{
	struct penstock_transfer *transfer = ((struct transfer *)self)->transfer;
	struct penstock_file_options options = PENSTOCK_FILE_OPTIONS_INIT;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	unsigned long long ahead, size;
	PyObject *version, *bytes = NULL;
	struct file *file;
	const char *url;
	int rc;

	if (!PyArg_ParseTuple(args, "sKOK", &url, &ahead, &version, &size))
		return NULL;
	/* Encodes surrogates as the bytes that they stand for: a version need not be UTF-8. */
	if (version != Py_None && !PyUnicode_FSConverter(version, &bytes))
		return NULL;
	options.version = bytes ? PyBytes_AsString(bytes) : NULL;
	options.ahead = ahead;
	options.no_ahead = ahead == 0;
	options.size = size;
	options.known = options.version != NULL;
	options.stop = on_wait;
	file = make(file_type);
	if (!file) {
		Py_XDECREF(bytes);
		return NULL;
	}
	file->pid = getpid();
	Py_INCREF(self);
	file->transfer = self;
	Py_BEGIN_ALLOW_THREADS rc = penstock_file_open(&file->file, transfer, url, &options, &err);
	Py_END_ALLOW_THREADS Py_XDECREF(bytes);
	if (rc < 0) {
		Py_DECREF(file);
		return fail(&err);
	}
	return (PyObject *)file;
}

static void close_file(struct file *self)
{
	struct penstock_file *file = self->file;

	if (self->busy) {
		self->closing = true;
		return;
	}
	self->file = NULL;
	/* A forked child has no threads of the file, and must not close the file. Closing does not
	 * wait, so the interpreter lock is kept: a thread of pyarrow that releases the lock while
	 * the interpreter ends cannot take it again, and aborts. */
	if (self->pid == getpid())
		penstock_file_close(file);
}

static void file_dealloc(PyObject *object)
{
	struct file *self = (struct file *)object;

	close_file(self);
	Py_XDECREF(self->transfer);
	unmake(object);
}

static struct penstock_file *begin(struct file *self)
{
	if (!self->file || self->closing) {
		PyErr_SetString(PyExc_ValueError, "I/O operation on closed file");
		return NULL;
	}
	self->busy++;
	return self->file;
}

static void end(struct file *self)
{
	if (--self->busy == 0 && self->closing)
		close_file(self);
}

static PyObject *file_close(PyObject *self, PyObject *unused)
{
	(void)unused;
	close_file((struct file *)self);
	Py_RETURN_NONE;
}

static PyObject *file_size(PyObject *object, PyObject *unused)
{
	struct file *self = (struct file *)object;
	PyObject *size;

	(void)unused;
	if (!begin(self))
		return NULL;
	size = PyLong_FromUnsignedLongLong(penstock_file_size(self->file));
	end(self);
	return size;
}

static PyObject *file_version(PyObject *object, PyObject *unused)
{
	struct file *self = (struct file *)object;
	PyObject *version;

	(void)unused;
	if (!begin(self))
		return NULL;
	version = PyUnicode_DecodeFSDefault(penstock_file_version(self->file));
	end(self);
	return version;
}

/* Reads without the interpreter lock. Returns the number of bytes, or -1 with an exception. */
static Py_ssize_t read_into(
	struct file *self, unsigned long long offset, void *data, Py_ssize_t size)
{
	struct penstock_file *file = begin(self);
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	size_t got = 0;
	int rc;

	if (!file)
		return -1;
	Py_BEGIN_ALLOW_THREADS rc = penstock_file_read(
		file, offset, data, (size_t)size, &got, &err);
	Py_END_ALLOW_THREADS end(self);
	if (rc < 0) {
		fail(&err);
		return -1;
	}
	return (Py_ssize_t)got;
}

static PyObject *file_read(PyObject *object, PyObject *args)
{
	struct file *self = (struct file *)object;
	unsigned long long offset, left;
	Py_ssize_t size, got;
	PyObject *bytes;

	if (!PyArg_ParseTuple(args, "Kn", &offset, &size) || !begin(self))
		return NULL;
	left = penstock_file_size(self->file);
	left = offset < left ? left - offset : 0;
	end(self);
	if (size < 0 || (unsigned long long)size > left)
		size = left < PY_SSIZE_T_MAX ? (Py_ssize_t)left : PY_SSIZE_T_MAX;
	bytes = PyBytes_FromStringAndSize(NULL, size);
	if (!bytes)
		return NULL;
	got = read_into(self, offset, PyBytes_AsString(bytes), size);
	if (got == size)
		return bytes;
	Py_DECREF(bytes);
	return NULL;
}

static PyObject *file_read_into(PyObject *object, PyObject *args)
{
	unsigned long long offset, address;
	Py_ssize_t size, got;

	if (!PyArg_ParseTuple(args, "KKn", &offset, &address, &size))
		return NULL;
	got = read_into((struct file *)object, offset,
		(void *)(uintptr_t)address, // NOLINT(performance-no-int-to-ptr)
		size);
	return got < 0 ? NULL : PyLong_FromSsize_t(got);
}

/* Allocates the results: a list of bytes objects, whose memory the ranges refer to. */
static PyObject *room_for(struct penstock_file_range *ranges, PyObject *list)
{
	Py_ssize_t n = PyList_Size(list);
	PyObject *result = PyList_New(n);

	for (Py_ssize_t i = 0; result && i < n; i++) {
		unsigned long long offset;
		Py_ssize_t length;
		PyObject *bytes = NULL;

		if (PyArg_ParseTuple(PyList_GetItem(list, i), "Kn", &offset, &length))
			bytes = PyBytes_FromStringAndSize(NULL, length);
		if (!bytes) {
			Py_DECREF(result);
			return NULL;
		}
		ranges[i] = (struct penstock_file_range){.offset = offset,
			.length = (size_t)length,
			.data = PyBytes_AsString(bytes)};
		PyList_SetItem(result, i, bytes);
	}
	return result;
}

static PyObject *file_ranges(PyObject *object, PyObject *args)
{
	struct file *self = (struct file *)object;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct penstock_file_range *ranges;
	PyObject *list, *result = NULL;
	size_t n;
	int rc;

	if (!PyArg_ParseTuple(args, "O!", &PyList_Type, &list) || !begin(self))
		return NULL;
	n = (size_t)PyList_Size(list);
	ranges = calloc(n + 1, sizeof(*ranges));
	if (ranges)
		result = room_for(ranges, list);
	else
		PyErr_NoMemory();
	if (result) {
		Py_BEGIN_ALLOW_THREADS rc = penstock_file_read_ranges(self->file, ranges, n, &err);
		Py_END_ALLOW_THREADS if (rc < 0)
		{
			Py_DECREF(result);
			result = fail(&err);
		}
	}
	free(ranges);
	end(self);
	return result;
}

/* ---- the types ---- */

static PyMethodDef cancel_methods[] = {
	{"set", cancel_set, METH_NOARGS, "set(): ends the calls that use this Cancel"},
	{NULL, NULL, 0, NULL},
};

static PyMethodDef transfer_methods[] = {
	{"open", transfer_open, METH_VARARGS, "open(url, ahead, version, size): a File"},
	{"head", transfer_head, METH_VARARGS, "head(url): (key, size, etag, modified_ns, prefix)"},
	{"list", transfer_list, METH_VARARGS,
		"list(url, delimiter, cancel, most): a list of tuples like that of head()"},
	{"put", transfer_put, METH_VARARGS,
		"put(url, fd, create, cancel): uploads all bytes read from the descriptor"},
	{"delete", transfer_delete, METH_VARARGS, "delete(url)"},
	{"copy", transfer_copy, METH_VARARGS, "copy(from, to, cancel)"},
	{NULL, NULL, 0, NULL},
};

static PyMethodDef file_methods[] = {
	{"size", file_size, METH_NOARGS, "size(): in bytes"},
	{"version", file_version, METH_NOARGS, "version(): the version that was opened"},
	{"read", file_read, METH_VARARGS, "read(offset, size): bytes; size -1: to the end"},
	{"read_into", file_read_into, METH_VARARGS,
		"read_into(offset, address, size): the number of bytes read"},
	{"ranges", file_ranges, METH_VARARGS, "ranges([(offset, size)]): a list of bytes"},
	{"close", file_close, METH_NOARGS, "close()"},
	{NULL, NULL, 0, NULL},
};

static PyType_Slot cancel_slots[] = {
	{Py_tp_new, (void *)cancel_new},
	{Py_tp_dealloc, (void *)cancel_dealloc},
	{Py_tp_methods, cancel_methods},
	{Py_tp_doc, (void *)"Cancel(): ends calls from another thread"},
	{0, NULL},
};

static PyType_Slot transfer_slots[] = {
	{Py_tp_new, (void *)transfer_new},
	{Py_tp_dealloc, (void *)transfer_dealloc},
	{Py_tp_methods, transfer_methods},
	{Py_tp_doc,
		(void *)"Transfer(endpoint_url, region, profile, key, secret, token, anonymous)"},
	{0, NULL},
};

static PyType_Slot file_slots[] = {
	{Py_tp_dealloc, (void *)file_dealloc},
	{Py_tp_methods, file_methods},
	{Py_tp_doc, (void *)"A file that is read at any offset"},
	{0, NULL},
};

static PyType_Spec specs[] = {
	{"penstock._native.Cancel", sizeof(struct cancel), 0, Py_TPFLAGS_DEFAULT, cancel_slots},
	{"penstock._native.Transfer", sizeof(struct transfer), 0, Py_TPFLAGS_DEFAULT,
		transfer_slots},
	{"penstock._native.File", sizeof(struct file), 0, Py_TPFLAGS_DEFAULT, file_slots},
};

int native_add_files(PyObject *module)
{
	return native_add_type(module, &specs[0], &cancel_type) < 0 ||
			       native_add_type(module, &specs[1], NULL) < 0 ||
			       native_add_type(module, &specs[2], &file_type) < 0
		       ? -1
		       : 0;
}
