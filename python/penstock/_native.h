/* Internals of the extension module, shared by its files. */
#ifndef PENSTOCK_PYTHON_NATIVE_H
#define PENSTOCK_PYTHON_NATIVE_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x03090000
#include <Python.h>

struct penstock_error;

/* Raises the exception that `factory` of penstock._errors builds from `err`, and releases `err`.
 * Always returns NULL. */
PyObject *native_raise(const char *factory, struct penstock_error *err);

/* Creates an object of a type of this module; its members are zeroed. */
static inline void *make(PyTypeObject *type)
{
	return ((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
}

/* Frees an object that make() created. */
static inline void unmake(PyObject *object)
{
	PyTypeObject *type = Py_TYPE(object);

	((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
	Py_DECREF(type);
}

/* Converter for the format "O&": returns the flag of a Cancel, a struct penstock_cancel *. */
int native_to_cancel(PyObject *object, void *out);

/* Adds a type to the module, under the last component of its dotted name. `*out` gets a reference
 * that is never released; `out` may be NULL. Returns -1 with an exception set on failure. */
int native_add_type(PyObject *module, PyType_Spec *spec, PyTypeObject **out);
/* Adds the types for penstock.open(). Returns -1 with an exception set on failure. */
int native_add_files(PyObject *module);
/* Adds the types for penstock.data. Returns -1 with an exception set on failure. */
int native_add_data(PyObject *module);

#endif
