/* SPDX-License-Identifier: MIT
 *
 * _core.QReduce: one pchan_qreduce, its basis, and the array that wait fills. pchan.QReduceScatter
 * derives from it and turns its arguments into handles and numbers.
 */
#include "pchan_python.h"

#include <stdbool.h>

enum { SLICE_NS = 20000000 };

typedef struct {
    PyObject_HEAD
    pchan_qreduce *qreduce; /* NULL: freed */
    int n_inside;           /* threads that use it without the GIL */
    int rank, size;
    long long n_total; /* elements of all ranks */
    PyObject *basis;
    Py_buffer output; /* .obj NULL: none */
} QReduceObject;

static QReduceObject *self_of(PyObject *object)
{
    return (QReduceObject *)object;
}

static PyObject *fail(PyObject *object, const pchan_error *err)
{
    return raise_error(state_of(Py_TYPE(object)), err);
}

static pchan_qreduce *living(PyObject *object, const char *what)
{
    pchan_qreduce *q = self_of(object)->qreduce;
    if (!q) PyErr_Format(state_of(Py_TYPE(object))->state_error, "%s: the reduce-scatter has been freed", what);
    return q;
}

static int n_limbs_of(const QReduceObject *self)
{
    return pchan_basis_n_limbs(basis_from_object(self->basis));
}

static PyObject *qreduce_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"comm", "n", "basis", "layout", "node_comm", "strategy", "buffer_bytes", NULL};
    PyObject *comm_handle, *basis_object, *node_handle, *layout;
    long long n, buffer_bytes;
    Py_buffer owners;
    MPI_Comm comm, node_comm;
    pchan_qreduce_options options = {0};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OLOOOsL", names, &comm_handle, &n, &basis_object, &layout,
                                     &node_handle, &options.strategy, &buffer_bytes)) {
        return NULL;
    }
    const pchan_basis *basis = basis_from_object(basis_object);
    if (!basis || comm_from_handle(comm_handle, &comm) < 0) return NULL;
    if (node_handle != Py_None) {
        if (comm_from_handle(node_handle, &node_comm) < 0) return NULL;
        options.node_comm = &node_comm;
    }
    if (layout_from_object(layout, n, &options.layout, &owners) < 0) return NULL;
    options.buffer_bytes = buffer_bytes;
    QReduceObject *self = (QReduceObject *)type->tp_alloc(type, 0);
    if (!self) {
        PyBuffer_Release(&owners);
        return NULL;
    }
    self->basis = Py_NewRef(basis_object);
    pchan_error err;
    pchan_status status;
    Py_BEGIN_ALLOW_THREADS
    status = pchan_qreduce_create(comm, n, basis, &options, &self->qreduce, &err);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&owners);
    if (status != PCHAN_OK) {
        raise_error(state_of(type), &err);
        Py_DECREF(self);
        return NULL;
    }
    self->n_total = n * (n + 1) / 2;
    MPI_Comm_rank(comm, &self->rank);
    MPI_Comm_size(comm, &self->size);
    return (PyObject *)self;
}

static PyObject *qreduce_set_output(PyObject *object, PyObject *limbs)
{
    QReduceObject *self = self_of(object);
    pchan_qreduce *q = living(object, "set_output");
    Py_buffer view;
    pchan_error err;
    if (!q) return NULL;
    Py_ssize_t n_items = (Py_ssize_t)pchan_qreduce_n_owned(q, self->rank) * n_limbs_of(self);
    if (limbs_from_object(limbs, 1, n_items, "set_output: limbs", &view) < 0) return NULL;
    if (pchan_qreduce_set_output(q, view.buf, &err) != PCHAN_OK) {
        PyBuffer_Release(&view);
        return fail(object, &err);
    }
    if (self->output.obj) PyBuffer_Release(&self->output);
    self->output = view;
    Py_RETURN_NONE;
}

static PyObject *qreduce_add(PyObject *object, PyObject *args)
{
    long long i0, j0;
    PyObject *tile;
    Py_buffer view;
    pchan_array array;
    pchan_error err;
    pchan_status status;
    if (!PyArg_ParseTuple(args, "LLO", &i0, &j0, &tile)) return NULL;
    pchan_qreduce *q = living(object, "add");
    if (!q || array_from_object(tile, &view, &array) < 0) return NULL;
    WITHOUT_GIL(self_of(object)->n_inside, pchan_qreduce_add(q, i0, j0, &array, &err));
    PyBuffer_Release(&view);
    if (status != PCHAN_OK) return fail(object, &err);
    Py_RETURN_NONE;
}

static PyObject *qreduce_start(PyObject *object, PyObject *unused)
{
    (void)unused;
    pchan_qreduce *q = living(object, "start");
    pchan_error err;
    if (!q) return NULL;
    if (pchan_qreduce_start(q, &err) != PCHAN_OK) return fail(object, &err);
    Py_RETURN_NONE;
}

static PyObject *qreduce_wait(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"timeout", NULL};
    PyObject *timeout = Py_None;
    int64_t left_ns;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O", names, &timeout)) return NULL;
    if (timeout_from_object(timeout, &left_ns) < 0) return NULL;
    pchan_error err;
    int finished = 0;
    pchan_qreduce *q;
    pchan_status status = PCHAN_OK;
    do { /* the handler of a signal may have freed it */
        if (!(q = living(object, "wait"))) return NULL;
        int64_t slice_ns = left_ns < 0 || left_ns > SLICE_NS ? SLICE_NS : left_ns;
        WITHOUT_GIL(self_of(object)->n_inside, pchan_qreduce_poll(q, slice_ns, &finished, &err));
        if (left_ns > 0) left_ns -= slice_ns;
        if (status == PCHAN_OK && !finished && PyErr_CheckSignals() < 0) return NULL;
    } while (status == PCHAN_OK && !finished && left_ns != 0);
    if (status == PCHAN_OK && !finished && !(q = living(object, "wait"))) return NULL;
    if (status == PCHAN_OK && !finished) status = pchan_qreduce_wait(q, 0, &err);
    if (status != PCHAN_OK) return fail(object, &err);
    Py_RETURN_NONE;
}

static PyObject *qreduce_test(PyObject *object, PyObject *unused)
{
    (void)unused;
    pchan_qreduce *q = living(object, "test");
    pchan_error err;
    int finished;
    if (!q) return NULL;
    if (pchan_qreduce_poll(q, 0, &finished, &err) != PCHAN_OK) return fail(object, &err);
    return PyBool_FromLong(finished);
}

static PyObject *qreduce_gather(PyObject *object, PyObject *args)
{
    int root;
    PyObject *limbs;
    Py_buffer view = {0};
    pchan_error err;
    pchan_status status;
    if (!PyArg_ParseTuple(args, "iO", &root, &limbs)) return NULL;
    pchan_qreduce *q = living(object, "gather");
    if (!q) return NULL;
    Py_ssize_t n_items = (Py_ssize_t)self_of(object)->n_total * n_limbs_of(self_of(object));
    if (limbs != Py_None && limbs_from_object(limbs, 1, n_items, "gather: limbs", &view) < 0) return NULL;
    WITHOUT_GIL(self_of(object)->n_inside, pchan_qreduce_gather(q, root, view.buf, &err));
    if (view.obj) PyBuffer_Release(&view);
    if (status != PCHAN_OK) return fail(object, &err);
    Py_RETURN_NONE;
}

static int check_rank(PyObject *object, long rank, const char *what)
{
    if (rank >= 0 && rank < self_of(object)->size) return 0;
    PyErr_Format(PyExc_ValueError, "%s: %ld is not a rank of a communicator of %d", what, rank,
                 self_of(object)->size);
    return -1;
}

static PyObject *qreduce_n_owned(PyObject *object, PyObject *rank)
{
    long r = PyLong_AsLong(rank);
    if (r == -1 && PyErr_Occurred()) return NULL;
    pchan_qreduce *q = living(object, "n_owned");
    if (!q || check_rank(object, r, "n_owned") < 0) return NULL;
    return PyLong_FromLongLong(pchan_qreduce_n_owned(q, (int)r));
}

static PyObject *qreduce_owned(PyObject *object, PyObject *args)
{
    int rank;
    PyObject *rows_object, *cols_object;
    Py_buffer rows, cols;
    if (!PyArg_ParseTuple(args, "iOO", &rank, &rows_object, &cols_object)) return NULL;
    pchan_qreduce *q = living(object, "owned");
    if (!q || check_rank(object, rank, "owned") < 0) return NULL;
    if (PyObject_GetBuffer(rows_object, &rows, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE) < 0) return NULL;
    if (PyObject_GetBuffer(cols_object, &cols, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE) < 0) {
        PyBuffer_Release(&rows);
        return NULL;
    }
    Py_ssize_t bytes = (Py_ssize_t)pchan_qreduce_n_owned(q, rank) * 8;
    bool fits = rows.len == bytes && cols.len == bytes;
    if (fits) pchan_qreduce_owned(q, rank, rows.buf, cols.buf);
    PyBuffer_Release(&rows);
    PyBuffer_Release(&cols);
    if (!fits) return PyErr_Format(PyExc_ValueError, "owned: rows and cols must be int64 arrays of n_owned(rank)");
    Py_RETURN_NONE;
}

static PyObject *qreduce_stats(PyObject *object, void *unused)
{
    (void)unused;
    pchan_qreduce *q = living(object, "stats");
    pchan_qreduce_stats s;
    if (!q) return NULL;
    pchan_qreduce_get_stats(q, &s);
    return dict_from_stats(&s);
}

static PyObject *qreduce_all_stats(PyObject *object, PyObject *args)
{
    int root;
    pchan_error err;
    pchan_status status;
    pchan_qreduce *q = living(object, "report");
    QReduceObject *self = self_of(object);
    if (!q || !PyArg_ParseTuple(args, "i", &root)) return NULL;
    pchan_qreduce_stats *all = PyMem_Calloc((size_t)self->size, sizeof *all);
    if (!all) return PyErr_NoMemory();
    WITHOUT_GIL(self->n_inside, pchan_qreduce_gather_stats(q, root, all, &err));
    int n = self->rank == root ? self->size : 0;
    PyObject *list = status == PCHAN_OK ? PyList_New(n) : fail(object, &err);
    for (int r = 0; list && r < n; r++) {
        PyObject *item = dict_from_stats(&all[r]);
        if (!item) Py_CLEAR(list);
        if (item) PyList_SET_ITEM(list, r, item);
    }
    PyMem_Free(all);
    return list;
}

static PyObject *qreduce_flip_bit(PyObject *object, PyObject *args)
{
    long long i, j;
    int word, bit;
    pchan_error err;
    pchan_qreduce *q = living(object, "flip_bit");
    if (!q || !PyArg_ParseTuple(args, "LLii", &i, &j, &word, &bit)) return NULL;
    if (pchan_qreduce_flip_bit(q, i, j, word, bit, &err) != PCHAN_OK) return fail(object, &err);
    Py_RETURN_NONE;
}

static PyObject *qreduce_active(PyObject *object, void *unused)
{
    (void)unused;
    pchan_qreduce *q = self_of(object)->qreduce;
    return PyBool_FromLong(q && pchan_qreduce_active(q));
}

static PyObject *qreduce_freed(PyObject *object, void *unused)
{
    (void)unused;
    return PyBool_FromLong(!self_of(object)->qreduce);
}

static PyObject *qreduce_n_nodes(PyObject *object, void *unused)
{
    (void)unused;
    pchan_qreduce *q = living(object, "n_nodes");
    return q ? PyLong_FromLong(pchan_qreduce_n_nodes(q)) : NULL;
}

static PyObject *qreduce_free(PyObject *object, PyObject *unused)
{
    (void)unused;
    QReduceObject *self = self_of(object);
    pchan_error err;
    if (self->n_inside) {
        PyErr_SetString(state_of(Py_TYPE(object))->state_error,
                        "free: another thread is using this reduce-scatter");
        return NULL;
    }
    if (pchan_qreduce_destroy(&self->qreduce, &err) != PCHAN_OK) return fail(object, &err);
    if (self->output.obj) PyBuffer_Release(&self->output);
    Py_RETURN_NONE;
}

/* As for a channel: what an active cycle may still write into is kept for the rest of the process. */
static void qreduce_finalize(PyObject *object)
{
    QReduceObject *self = self_of(object);
    PyObject *type, *value, *traceback;
    if (!self->qreduce) return;
    PyErr_Fetch(&type, &value, &traceback);
    if (pchan_qreduce_active(self->qreduce)) {
        Py_XINCREF(self->basis);
        Py_XINCREF(self->output.obj);
        if (PyErr_ResourceWarning(object, 1, "a reduce-scatter was dropped while active; its memory is kept") <
            0) {
            PyErr_WriteUnraisable(object);
        }
    }
    pchan_qreduce_abandon(&self->qreduce);
    PyErr_Restore(type, value, traceback);
}

static int qreduce_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(self_of(object)->basis);
    Py_VISIT(self_of(object)->output.obj);
    Py_VISIT(Py_TYPE(object));
    return 0;
}

static void qreduce_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    if (PyObject_CallFinalizerFromDealloc(object) < 0) return;
    PyObject_GC_UnTrack(object);
    if (self_of(object)->output.obj) PyBuffer_Release(&self_of(object)->output);
    Py_CLEAR(self_of(object)->basis);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyMethodDef qreduce_methods[] = {
    {"set_output", qreduce_set_output, METH_O,
     "set_output($self, limbs, /)\n--\n\nWhere wait puts this rank's integers."},
    {"add_tile", qreduce_add, METH_VARARGS,
     "add_tile($self, i0, j0, tile, /)\n--\n\nAdds residues [n_primes, rows, cols]."},
    {"start", qreduce_start, METH_NOARGS,
     "start($self)\n--\n\nStarts a cycle with what has been added. Collective, returns at once.\n\n"
     "Raises StateError when active or freed."},
    {"wait", (PyCFunction)(void (*)(void))qreduce_wait, METH_VARARGS | METH_KEYWORDS,
     "wait($self, timeout=None)\n--\n\nFinishes the cycle; limbs then hold this rank's elements, and the "
     "contribution "
     "is\n"
     "zero again. Collective. timeout is in seconds.\n\n"
     "Raises RangeError on every rank when some ``|x| >= 2**bits``, naming the owner and (i, j): the object then "
     "serves\n"
     "the next cycle; WaitTimeout, still active; StateError when nothing was started; MPIError."},
    {"test", qreduce_test, METH_NOARGS, "test($self)\n--\n\nTrue when the cycle is over. Never waits."},
    {"gather_into", qreduce_gather, METH_VARARGS,
     "gather_into($self, root, limbs, /)\n--\n\nAll limbs, by owner, at root."},
    {"_all_stats", qreduce_all_stats, METH_VARARGS,
     "_all_stats($self, root, /)\n--\n\nstats of every rank, at root."},
    {"_flip_bit", qreduce_flip_bit, METH_VARARGS,
     "_flip_bit($self, i, j, word, bit, /)\n--\n\nFor tests: damages an element in the window."},
    {"_estimate", estimate_into, METH_VARARGS | METH_CLASS,
     "_estimate($type, n, basis, layout, strategy, buffer_bytes, nodes, figures, /)\n--\n\n"
     "Figures of a plan on paper, into an array."},
    {"n_owned", qreduce_n_owned, METH_O, "n_owned($self, rank, /)\n--\n\nNumber of elements that a rank owns."},
    {"owned", qreduce_owned, METH_VARARGS,
     "owned($self, rank, rows, cols, /)\n--\n\nIndices of a rank's elements."},
    {"free", qreduce_free, METH_NOARGS,
     "free($self)\n--\n\nFrees everything. Local; does nothing the second time. StateError when active."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef qreduce_getset[] = {
    {"stats", qreduce_stats, NULL,
     "Figures of this rank's last cycle, a dict. add_s, pack_s, exchange_s, accumulate_s, restore_s (seconds),\n"
     "bytes_sent (to other nodes), bytes_held (share of the window, buffers, tables), n_local,\n"
     "kernel (the instruction set in use).",
     NULL},
    {"active", qreduce_active, NULL, "True between start and the end of the cycle.", NULL},
    {"freed", qreduce_freed, NULL, "True after free().", NULL},
    {"n_nodes", qreduce_n_nodes, NULL, "Number of nodes.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot qreduce_slots[] = {
    {Py_tp_doc, "QReduce(comm, n, basis, layout, node_comm, strategy, buffer_bytes)\n--\n\nThe C core's\n"
                "reduce-scatter; use pchan.QReduceScatter."},
    {Py_tp_new, qreduce_new},
    {Py_tp_dealloc, qreduce_dealloc},
    {Py_tp_finalize, qreduce_finalize},
    {Py_tp_traverse, qreduce_traverse},
    {Py_tp_methods, qreduce_methods},
    {Py_tp_getset, qreduce_getset},
    {0, NULL},
};

PyType_Spec qreduce_spec = {
    .name = "pchan._core.QReduce",
    .basicsize = sizeof(QReduceObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = qreduce_slots,
};
