/* SPDX-License-Identifier: MIT
 *
 * _core.Basis: one pchan_basis. pchan.PrimeBasis derives from it and deals with shapes and Python
 * integers.
 */
#include "pchan_python.h"

typedef struct {
    PyObject_HEAD
    pchan_basis *basis;
} BasisObject;

static const pchan_basis *basis_of(PyObject *object)
{
    return ((BasisObject *)object)->basis;
}

static PyObject *basis_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"bits", "check_bits", NULL};
    int bits, check_bits = 8;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "i|i", names, &bits, &check_bits)) return NULL;
    BasisObject *self = (BasisObject *)type->tp_alloc(type, 0);
    if (!self) return NULL;
    pchan_error err;
    if (pchan_basis_create(bits, check_bits, &self->basis, &err) != PCHAN_OK) {
        raise_error(state_of(type), &err);
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static void basis_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    pchan_basis_destroy(&((BasisObject *)object)->basis);
    type->tp_free(object);
    Py_DECREF(type);
}

const pchan_basis *basis_from_object(PyObject *object)
{
    for (PyTypeObject *type = Py_TYPE(object); type; type = type->tp_base) {
        if (type->tp_dealloc == basis_dealloc) return basis_of(object);
    }
    PyErr_Format(PyExc_TypeError, "basis must be a PrimeBasis, not %.80s", Py_TYPE(object)->tp_name);
    return NULL;
}

/* out: float64[n_primes][n], rows contiguous, any stride between them */
static int table_from_object(PyObject *object, int n_primes, Py_buffer *view)
{
    if (PyObject_GetBuffer(object, view, PyBUF_STRIDED) < 0) return -1; /* writable */
    if (view->ndim == 2 && view->itemsize == 8 && view->shape[0] == n_primes &&
        (view->shape[1] <= 1 || view->strides[1] == 8) && view->strides[0] >= 0 && view->strides[0] % 8 == 0) {
        return 0;
    }
    PyErr_Format(PyExc_ValueError, "residues_into: out must be float64[%d, n] with contiguous rows", n_primes);
    PyBuffer_Release(view);
    return -1;
}

/* residues_into(limbs, residues): uint64[n][any number of limbs] to float64[n_primes][n] */
static PyObject *basis_residues(PyObject *object, PyObject *args)
{
    PyObject *limbs_object, *out_object;
    Py_buffer limbs, out;
    if (!PyArg_ParseTuple(args, "OO", &limbs_object, &out_object)) return NULL;
    const pchan_basis *basis = basis_of(object);
    if (table_from_object(out_object, pchan_basis_n_primes(basis), &out) < 0) return NULL;
    Py_ssize_t n = out.shape[1], n_limbs = 0;
    if (PyObject_GetBuffer(limbs_object, &limbs, PyBUF_ND) == 0) {
        n_limbs = limbs.ndim > 0 ? limbs.shape[limbs.ndim - 1] : 0;
        PyBuffer_Release(&limbs);
    }
    if (PyErr_Occurred() || limbs_from_object(limbs_object, 0, n * n_limbs, "limbs", &limbs) < 0) {
        PyBuffer_Release(&out);
        return NULL;
    }
    pchan_error err;
    pchan_status status;
    Py_BEGIN_ALLOW_THREADS
    status = pchan_residues_strided(basis, limbs.buf, n_limbs > INT32_MAX ? INT32_MAX : (int)n_limbs, (size_t)n,
                                    out.buf, (size_t)out.strides[0] / 8, &err);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&limbs);
    PyBuffer_Release(&out);
    if (status != PCHAN_OK) return raise_error(state_of(Py_TYPE(object)), &err);
    Py_RETURN_NONE;
}

/* pack_into(residues, words): [n_primes][rows][cols] to uint64[rows * cols][n_words] */
static PyObject *basis_pack(PyObject *object, PyObject *args)
{
    PyObject *residues_object, *words_object;
    Py_buffer residues, words;
    pchan_array array;
    if (!PyArg_ParseTuple(args, "OO", &residues_object, &words_object)) return NULL;
    const pchan_basis *basis = basis_of(object);
    if (array_from_object(residues_object, &residues, &array) < 0) return NULL;
    Py_ssize_t n = (Py_ssize_t)(array.shape[1] * array.shape[2]);
    if (limbs_from_object(words_object, 1, n * pchan_basis_n_words(basis), "words", &words) < 0) {
        PyBuffer_Release(&residues);
        return NULL;
    }
    pchan_error err;
    pchan_status status;
    Py_BEGIN_ALLOW_THREADS
    status = pchan_pack(basis, &array, words.buf, &err);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&residues);
    PyBuffer_Release(&words);
    if (status != PCHAN_OK) return raise_error(state_of(Py_TYPE(object)), &err);
    Py_RETURN_NONE;
}

/* restore_into(words, limbs): uint64[n][n_words] to uint64[n][n_limbs] */
static PyObject *basis_restore(PyObject *object, PyObject *args)
{
    PyObject *words_object, *limbs_object;
    Py_buffer words, limbs;
    if (!PyArg_ParseTuple(args, "OO", &words_object, &limbs_object)) return NULL;
    const pchan_basis *basis = basis_of(object);
    if (PyObject_GetBuffer(words_object, &words, PyBUF_C_CONTIGUOUS) < 0) return NULL;
    Py_ssize_t n = words.len / (Py_ssize_t)sizeof(uint64_t) / pchan_basis_n_words(basis);
    if (limbs_from_object(limbs_object, 1, n * pchan_basis_n_limbs(basis), "limbs", &limbs) < 0) {
        PyBuffer_Release(&words);
        return NULL;
    }
    pchan_error err;
    pchan_status status;
    Py_BEGIN_ALLOW_THREADS
    status = pchan_restore(basis, words.buf, (size_t)n, limbs.buf, &err);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&words);
    PyBuffer_Release(&limbs);
    if (status != PCHAN_OK) return raise_error(state_of(Py_TYPE(object)), &err);
    Py_RETURN_NONE;
}

static PyObject *basis_primes(PyObject *object, void *unused)
{
    (void)unused;
    const pchan_basis *basis = basis_of(object);
    return PyBytes_FromStringAndSize((const char *)pchan_basis_primes(basis),
                                     pchan_basis_n_primes(basis) * (Py_ssize_t)sizeof(uint32_t));
}

static PyObject *basis_number(PyObject *object, void *getter)
{
    int (*get)(const pchan_basis *) = *(int (**)(const pchan_basis *))getter;
    return PyLong_FromLong(get(basis_of(object)));
}

static int (*get_bits)(const pchan_basis *) = pchan_basis_bits;
static int (*get_check_bits)(const pchan_basis *) = pchan_basis_check_bits;
static int (*get_n_primes)(const pchan_basis *) = pchan_basis_n_primes;
static int (*get_n_words)(const pchan_basis *) = pchan_basis_n_words;
static int (*get_n_limbs)(const pchan_basis *) = pchan_basis_n_limbs;

static PyMethodDef basis_methods[] = {
    {"residues_into", basis_residues, METH_VARARGS,
     "residues_into($self, limbs, out, /)\n--\n\nuint64[n, limbs], no more than n_limbs, to symmetric "
     "float64[n_primes, "
     "n],\n"
     "which may be part of a table."},
    {"pack_into", basis_pack, METH_VARARGS,
     "pack_into($self, residues, out, /)\n--\n\n[n_primes, rows, cols] to uint64[rows * cols, n_words]."},
    {"restore_into", basis_restore, METH_VARARGS,
     "restore_into($self, words, out, /)\n--\n\nuint64[n, n_words] to uint64[n, n_limbs]."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef basis_getset[] = {
    {"bits", basis_number, NULL, "Every ``|x| < 2**bits`` can be represented.", &get_bits},
    {"check_bits", basis_number, NULL, "Spare bits, by which corruption is noticed.", &get_check_bits},
    {"n_primes", basis_number, NULL, "Number of primes.", &get_n_primes},
    {"n_words", basis_number, NULL, "64-bit words per integer, three primes each.", &get_n_words},
    {"n_limbs", basis_number, NULL, "64-bit limbs per restored integer.", &get_n_limbs},
    {"primes_bytes", basis_primes, NULL, "The primes as bytes of uint32.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot basis_slots[] = {
    {Py_tp_doc, "Basis(bits, check_bits=8)\n--\n\nThe C core's basis; use pchan.PrimeBasis."},
    {Py_tp_new, basis_new},
    {Py_tp_dealloc, basis_dealloc},
    {Py_tp_methods, basis_methods},
    {Py_tp_getset, basis_getset},
    {0, NULL},
};

PyType_Spec basis_spec = {
    .name = "pchan._core.Basis",
    .basicsize = sizeof(BasisObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = basis_slots,
};
