/* SPDX-License-Identifier: MIT
 *
 * Python objects to what the core takes.
 */
#include "pchan_python.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

/* mpi4py gives a handle as an unsigned integer of pointer size; int handles come sign-extended. */
static int handle_bits(PyObject *handle, uintptr_t *bits)
{
    unsigned long long value = PyLong_AsUnsignedLongLong(handle);
    if (value == (unsigned long long)-1 && PyErr_Occurred()) return -1;
    *bits = (uintptr_t)value;
    return 0;
}

int comm_from_handle(PyObject *handle, MPI_Comm *comm)
{
    uintptr_t bits;
    if (handle_bits(handle, &bits) < 0) return -1;
    *comm = (MPI_Comm)bits;
    return 0;
}

int datatype_from_handle(PyObject *handle, MPI_Datatype *datatype)
{
    uintptr_t bits;
    if (handle_bits(handle, &bits) < 0) return -1;
    *datatype = (MPI_Datatype)bits;
    return 0;
}

int timeout_from_object(PyObject *timeout, int64_t *timeout_ns)
{
    *timeout_ns = -1;
    if (!timeout || timeout == Py_None) return 0;
    double seconds = PyFloat_AsDouble(timeout);
    if (seconds == -1.0 && PyErr_Occurred()) return -1;
    if (isnan(seconds) || seconds < 0) {
        PyErr_Format(PyExc_ValueError, "timeout: %R is not a number of seconds >= 0", timeout);
        return -1;
    }
    if (seconds < 9e9) *timeout_ns = (int64_t)(seconds * 1e9);
    return 0;
}

/* The one type character of a buffer in native byte order, or 0. */
static char format_of(const Py_buffer *view)
{
    const char *format = view->format ? view->format : "B";
    if (*format == '@' || *format == '=') format++;
    return format[0] && !format[1] ? format[0] : 0;
}

static int dtype_of(const Py_buffer *view, pchan_dtype *dtype)
{
    char c = format_of(view);
    if (c == 'd') {
        *dtype = PCHAN_FLOAT64;
    } else if ((c == 'l' || c == 'q') && view->itemsize == 8) {
        *dtype = PCHAN_INT64;
    } else if ((c == 'I' || c == 'L') && view->itemsize == 4) {
        *dtype = PCHAN_UINT32;
    } else {
        PyErr_Format(PyExc_TypeError, "residues must be float64, int64 or uint32 in native byte order, not '%s'",
                     view->format ? view->format : "B");
        return -1;
    }
    return 0;
}

int array_from_object(PyObject *object, Py_buffer *view, pchan_array *array)
{
    if (PyObject_GetBuffer(object, view, PyBUF_STRIDED_RO | PyBUF_FORMAT) < 0) return -1;
    if (dtype_of(view, &array->dtype) < 0) goto fail;
    if (view->ndim < 1 || view->ndim > 3) {
        PyErr_Format(PyExc_ValueError, "residues must have 1 to 3 dimensions, not %d", view->ndim);
        goto fail;
    }
    array->data = view->buf;
    for (int d = 0; d < 3; d++) {
        /* [p] -> [p][1][1], [p][n] -> [p][1][n] */
        int from = d == 0 ? 0 : d - (3 - view->ndim);
        bool present = d == 0 || from >= 1;
        array->shape[d] = present ? (size_t)view->shape[from] : 1;
        array->strides[d] = present ? view->strides[from] : 0;
    }
    return 0;
fail:
    PyBuffer_Release(view);
    return -1;
}

int limbs_from_object(PyObject *object, int writable, Py_ssize_t n_items, const char *name, Py_buffer *view)
{
    int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(object, view, flags) < 0) return -1;
    char c = format_of(view);
    if ((c != 'L' && c != 'Q') || view->itemsize != 8) {
        PyErr_Format(PyExc_TypeError, "%s must be a uint64 array in native byte order", name);
    } else if (view->len / 8 != n_items) {
        PyErr_Format(PyExc_ValueError, "%s holds %zd numbers instead of %zd", name, view->len / 8, n_items);
    } else {
        return 0;
    }
    PyBuffer_Release(view);
    return -1;
}
