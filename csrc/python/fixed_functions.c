/* SPDX-License-Identifier: MIT
 *
 * Functions of the module: Python integers to limbs and back, and the stages of csrc/core/fixed.c.
 * Callers in Python see to shapes; here only sizes are compared, so that no memory is overrun.
 */
#include "pchan_python.h"

/* ---- Python integers, by the interpreter's own conversions ---- */

static int integer_to_limbs(PyObject *x, uint64_t *limbs, Py_ssize_t n_bytes)
{
#if PY_VERSION_HEX >= 0x030D0000
    Py_ssize_t needed = PyLong_AsNativeBytes(x, limbs, n_bytes, Py_ASNATIVEBYTES_LITTLE_ENDIAN);
    if (needed > n_bytes) PyErr_SetString(PyExc_OverflowError, "int too big to convert");
    return needed < 0 || needed > n_bytes ? -1 : 0;
#else
    return _PyLong_AsByteArray((PyLongObject *)x, (unsigned char *)limbs, (size_t)n_bytes, 1, 1);
#endif
}

static PyObject *integer_from_limbs(const uint64_t *limbs, size_t n_bytes)
{
#if PY_VERSION_HEX >= 0x030D0000
    return PyLong_FromNativeBytes(limbs, n_bytes, Py_ASNATIVEBYTES_LITTLE_ENDIAN);
#else
    return _PyLong_FromByteArray((const unsigned char *)limbs, n_bytes, 1, 1);
#endif
}

static PyObject *ints_into(PyObject *module, PyObject *args)
{
    PyObject *ints, *out;
    Py_buffer view;
    (void)module;
    if (!PyArg_ParseTuple(args, "O!O", &PyList_Type, &ints, &out)) return NULL;
    Py_ssize_t n = PyList_GET_SIZE(ints), n_items;
    if (PyObject_GetBuffer(out, &view, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE) < 0) return NULL;
    n_items = view.len / (Py_ssize_t)sizeof(uint64_t);
    PyBuffer_Release(&view);
    if (n == 0) Py_RETURN_NONE;
    if (n_items % n) return PyErr_Format(PyExc_ValueError, "%zd limbs for %zd integers", n_items, n);
    if (limbs_from_object(out, 1, n_items, "limbs", &view) < 0) return NULL;
    Py_ssize_t n_limbs = n_items / n, k;
    for (k = 0; k < n && k < PyList_GET_SIZE(ints); k++) { /* __index__ may do anything to the list */
        PyObject *x = PyNumber_Index(PyList_GET_ITEM(ints, k));
        int failed = !x || integer_to_limbs(x, (uint64_t *)view.buf + k * n_limbs, 8 * n_limbs) < 0;
        Py_XDECREF(x);
        if (failed) break;
    }
    PyBuffer_Release(&view);
    if (PyErr_Occurred()) {
        if (!PyErr_ExceptionMatches(PyExc_OverflowError)) return NULL;
        return PyErr_Format(PyExc_ValueError, "integer %zd does not fit into %zd bits with its sign", k,
                            64 * n_limbs);
    }
    Py_RETURN_NONE;
}

static PyObject *ints_from(PyObject *module, PyObject *args)
{
    PyObject *limbs;
    Py_ssize_t n_limbs;
    Py_buffer view;
    (void)module;
    if (!PyArg_ParseTuple(args, "On", &limbs, &n_limbs)) return NULL;
    if (n_limbs < 1) return PyErr_Format(PyExc_ValueError, "n_limbs = %zd is not positive", n_limbs);
    if (PyObject_GetBuffer(limbs, &view, PyBUF_C_CONTIGUOUS) < 0) return NULL;
    Py_ssize_t n = view.len / (8 * n_limbs);
    PyObject *list = PyList_New(n);
    for (Py_ssize_t k = 0; k < n && list; k++) {
        PyObject *x = integer_from_limbs((const uint64_t *)view.buf + k * n_limbs, (size_t)(8 * n_limbs));
        if (!x)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, k, x);
    }
    PyBuffer_Release(&view);
    return list;
}

/* ---- rows with exponents ---- */

enum { MAX_VIEWS = 8 };

typedef struct views { /* arrays in use, of 8-byte items */
    Py_buffer list[MAX_VIEWS];
    int n;
} views;

static void release(views *v)
{
    while (v->n > 0) PyBuffer_Release(&v->list[--v->n]);
}

/* C-contiguous memory of at least so many 8-byte items; NULL with an exception set, also when one was set before.
 */
static void *items(views *v, PyObject *object, int writable, Py_ssize_t least, const char *name)
{
    Py_buffer *view = &v->list[v->n];
    if (PyErr_Occurred() ||
        PyObject_GetBuffer(object, view, PyBUF_C_CONTIGUOUS | (writable ? PyBUF_WRITABLE : 0)) < 0) {
        return NULL;
    }
    v->n++;
    if (view->itemsize != 8 || view->len / 8 < least) {
        PyErr_Format(PyExc_ValueError, "%s: %zd items of %zd bytes, but %zd of 8 are needed", name,
                     view->len / view->itemsize, view->itemsize, least);
        return NULL;
    }
    return view->buf;
}

/* limbs [rows][cols][n_limbs] and exponents [rows][cols] */
static int fixed_from(views *v, PyObject *limbs, PyObject *exponents, pchan_fixed *fixed)
{
    Py_buffer *view = &v->list[v->n];
    if (PyObject_GetBuffer(limbs, view, PyBUF_C_CONTIGUOUS) < 0) return -1;
    v->n++;
    if (view->ndim != 3 || view->itemsize != 8 || view->shape[2] < 1 || view->shape[2] > INT32_MAX / 64) {
        PyErr_SetString(PyExc_ValueError, "limbs must be uint64[rows, columns, limbs]");
        return -1;
    }
    fixed->limbs = view->buf;
    fixed->n_rows = (size_t)view->shape[0];
    fixed->n_cols = (size_t)view->shape[1];
    fixed->n_limbs = (int)view->shape[2];
    fixed->exponents = items(v, exponents, 0, view->shape[0] * view->shape[1], "exponents");
    return fixed->exponents ? 0 : -1;
}

static PyObject *finish(PyObject *module, views *v, pchan_status status, const pchan_error *err)
{
    release(v);
    if (status != PCHAN_OK) return raise_error(PyModule_GetState(module), err);
    Py_RETURN_NONE;
}

static PyObject *failed(views *v)
{
    release(v);
    return NULL;
}

static PyObject *fixed_tops(PyObject *module, PyObject *args)
{
    PyObject *limbs, *exponents, *tops_object;
    long long bottom_in;
    pchan_fixed fixed;
    views v = {.n = 0};
    (void)module;
    if (!PyArg_ParseTuple(args, "OOOL", &limbs, &exponents, &tops_object, &bottom_in)) return NULL;
    if (fixed_from(&v, limbs, exponents, &fixed) < 0) return failed(&v);
    int64_t *tops = items(&v, tops_object, 1, (Py_ssize_t)fixed.n_cols, "tops"), bottom = bottom_in;
    if (!tops) return failed(&v);
    Py_BEGIN_ALLOW_THREADS
    pchan_fixed_tops(&fixed, tops, &bottom);
    Py_END_ALLOW_THREADS
    release(&v);
    return PyLong_FromLongLong(bottom);
}

static PyObject *fixed_squares(PyObject *module, PyObject *args)
{
    PyObject *limbs, *exponents, *shifts_object, *sums_object;
    int n_sum;
    pchan_fixed fixed;
    pchan_error err;
    pchan_status status;
    views v = {.n = 0};
    if (!PyArg_ParseTuple(args, "OOOOi", &limbs, &exponents, &shifts_object, &sums_object, &n_sum)) return NULL;
    if (fixed_from(&v, limbs, exponents, &fixed) < 0) return failed(&v);
    Py_ssize_t n_cols = (Py_ssize_t)fixed.n_cols;
    const int64_t *shifts = items(&v, shifts_object, 0, n_cols, "shifts");
    uint64_t *sums = items(&v, sums_object, 1, n_cols * n_sum, "sums");
    if (!shifts || !sums) return failed(&v);
    Py_BEGIN_ALLOW_THREADS
    status = pchan_fixed_squares(&fixed, shifts, sums, n_sum, &err);
    Py_END_ALLOW_THREADS
    return finish(module, &v, status, &err);
}

static PyObject *fixed_quantize(PyObject *module, PyObject *args)
{
    PyObject *limbs, *exponents, *divisors, *reciprocals, *shifts, *out_object;
    int n_div, n_out, nearest;
    pchan_fixed fixed;
    pchan_error err;
    pchan_status status;
    views v = {.n = 0};
    if (!PyArg_ParseTuple(args, "OOOiOOpOi", &limbs, &exponents, &divisors, &n_div, &reciprocals, &shifts,
                          &nearest, &out_object, &n_out)) {
        return NULL;
    }
    if (fixed_from(&v, limbs, exponents, &fixed) < 0) return failed(&v);
    if (n_div < 1 || n_out < 1 || n_out > INT32_MAX / 64) {
        PyErr_SetString(PyExc_ValueError, "quantize: no limbs");
        return failed(&v);
    }
    Py_ssize_t n_rows = (Py_ssize_t)fixed.n_rows, n_cols = (Py_ssize_t)fixed.n_cols;
    pchan_divisors by = {.n_limbs = n_div};
    by.limbs = items(&v, divisors, 0, n_cols * n_div, "divisors");
    by.reciprocals = items(&v, reciprocals, 0, n_cols * (n_out + 2), "reciprocals");
    by.shifts = items(&v, shifts, 0, n_cols, "shifts");
    uint64_t *out = items(&v, out_object, 1, n_rows * n_cols * n_out, "out");
    if (PyErr_Occurred()) return failed(&v);
    Py_BEGIN_ALLOW_THREADS
    status = pchan_fixed_quantize(&fixed, &by, nearest, out, n_out, &err);
    Py_END_ALLOW_THREADS
    return finish(module, &v, status, &err);
}

static PyObject *fixed_align(PyObject *module, PyObject *args)
{
    PyObject *limbs, *exponents, *out_object;
    long long exponent;
    int n_out;
    pchan_fixed fixed;
    pchan_error err;
    pchan_status status;
    views v = {.n = 0};
    if (!PyArg_ParseTuple(args, "OOLOi", &limbs, &exponents, &exponent, &out_object, &n_out)) return NULL;
    if (fixed_from(&v, limbs, exponents, &fixed) < 0) return failed(&v);
    Py_ssize_t n = (Py_ssize_t)(fixed.n_rows * fixed.n_cols);
    uint64_t *out = items(&v, out_object, 1, n_out < 1 ? PY_SSIZE_T_MAX : n * n_out, "out");
    if (!out) return failed(&v);
    Py_BEGIN_ALLOW_THREADS
    status = pchan_fixed_align(&fixed, exponent, out, n_out, &err);
    Py_END_ALLOW_THREADS
    return finish(module, &v, status, &err);
}

PyMethodDef fixed_functions[] = {
    {"ints_into", ints_into, METH_VARARGS,
     "ints_into(ints, out)\n--\n\nA list of integers to two's complement limbs, uint64[n, n_limbs].\n"
     "ValueError for one that does not fit, naming its number."},
    {"ints_from", ints_from, METH_VARARGS,
     "ints_from(limbs, n_limbs)\n--\n\nTwo's complement limbs, contiguous, to a list of integers."},
    {"fixed_tops", fixed_tops, METH_VARARGS,
     "fixed_tops(limbs, exponents, tops, bottom)\n--\n\nRaises tops in place, returns the lower bottom."},
    {"fixed_squares", fixed_squares, METH_VARARGS,
     "fixed_squares(limbs, exponents, shifts, sums, n_sum_limbs)\n--\n\nAdds the squares of all entries."},
    {"fixed_quantize", fixed_quantize, METH_VARARGS,
     "fixed_quantize(limbs, exponents, divisors, n_div, reciprocals, shifts, nearest, out, n_out)\n--\n\n"
     "Rounded quotients."},
    {"fixed_align", fixed_align, METH_VARARGS,
     "fixed_align(limbs, exponents, exponent, out, n_out)\n--\n\nEntries over 2**exponent, exact."},
    {NULL, NULL, 0, NULL},
};
