/* SPDX-License-Identifier: MIT
 *
 * What goes into and comes out of a reduce-scatter besides numbers: layouts, stats, estimates.
 */
#include "pchan_python.h"

#include <string.h>

int layout_from_object(PyObject *object, long long n, pchan_layout *layout, Py_buffer *view)
{
    int kind;
    PyObject *owners;
    view->obj = NULL;
    if (!PyArg_ParseTuple(object, "iiiiO", &kind, &layout->grid_rows, &layout->grid_cols, &layout->block, &owners))
        return -1;
    layout->kind = (pchan_layout_kind)kind;
    if (owners == Py_None) return 0;
    if (PyObject_GetBuffer(owners, view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) < 0) return -1;
    if (view->itemsize == 4 && view->format && !strcmp(view->format, "i") && n >= 1 && n < 1LL << 31 &&
        view->len / 4 == n * (n + 1) / 2) {
        layout->owners = view->buf;
        return 0;
    }
    PyBuffer_Release(view);
    PyErr_SetString(PyExc_ValueError, "layout: owners must be an int32 array of n (n + 1) / 2");
    return -1;
}

PyObject *dict_from_stats(const pchan_qreduce_stats *s)
{
    return Py_BuildValue("{sdsdsdsdsdsLsLsLss}", "add_s", 1e-9 * (double)s->add_ns, "pack_s",
                         1e-9 * (double)s->pack_ns, "exchange_s", 1e-9 * (double)s->exchange_ns, "accumulate_s",
                         1e-9 * (double)s->accumulate_ns, "restore_s", 1e-9 * (double)s->restore_ns, "bytes_sent",
                         (long long)s->bytes_sent, "bytes_held", (long long)s->bytes_held, "n_local",
                         (long long)s->n_local, "kernel", pchan_kernel_name());
}

PyObject *estimate_into(PyObject *type, PyObject *args)
{
    PyObject *basis_object, *layout, *nodes_object, *figures_object;
    long long n, buffer_bytes;
    Py_buffer owners = {0}, nodes = {0}, figures = {0};
    pchan_qreduce_options options = {0};
    pchan_error err;
    if (!PyArg_ParseTuple(args, "LOOsLOO", &n, &basis_object, &layout, &options.strategy, &buffer_bytes,
                          &nodes_object, &figures_object)) {
        return NULL;
    }
    options.buffer_bytes = buffer_bytes;
    const pchan_basis *basis = basis_from_object(basis_object);
    PyObject *result = NULL;
    if (!basis || layout_from_object(layout, n, &options.layout, &owners) < 0) return NULL;
    if (PyObject_GetBuffer(nodes_object, &nodes, PyBUF_C_CONTIGUOUS) < 0) goto done;
    if (PyObject_GetBuffer(figures_object, &figures, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE) < 0) goto done;
    int n_ranks = (int)(nodes.len / (Py_ssize_t)sizeof(int));
    if (figures.len != n_ranks * (Py_ssize_t)sizeof(pchan_qreduce_figures)) {
        PyErr_SetString(PyExc_ValueError, "estimate: figures must be int64[n_ranks][4]");
    } else if (pchan_qreduce_estimate(n, basis, &options, n_ranks, nodes.buf, figures.buf, &err) != PCHAN_OK) {
        raise_error(state_of((PyTypeObject *)type), &err);
    } else {
        result = Py_NewRef(Py_None);
    }
done:
    if (figures.obj) PyBuffer_Release(&figures);
    if (nodes.obj) PyBuffer_Release(&nodes);
    PyBuffer_Release(&owners);
    return result;
}
