/* Shared by the files of the extension module. */
#ifndef PENSTOCK_PYTHON_NATIVE_H
#define PENSTOCK_PYTHON_NATIVE_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x03090000
#include <Python.h>

struct penstock_error;

/* Raises the exception that `factory` of penstock._errors builds from `err`, and releases `err`.
 * Always returns NULL. */
PyObject *native_raise(const char *factory, struct penstock_error *err);

/* Adds the types for penstock.data. Returns -1 with an exception set on failure. */
int native_add_data(PyObject *module);

#endif
