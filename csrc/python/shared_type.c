/* SPDX-License-Identifier: MIT
 *
 * _core.SharedMemory: one pchan_shared, offered by the buffer protocol; pchan.empty makes arrays of it.
 */
#include "pchan_python.h"

typedef struct {
    PyObject_HEAD
    pchan_shared *shared;
    void *address;
    Py_ssize_t bytes;
} SharedObject;

static PyObject *shared_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"handle", "nbytes", NULL};
    PyObject *handle;
    Py_ssize_t bytes;
    MPI_Comm comm;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "On", names, &handle, &bytes)) return NULL;
    if (comm_from_handle(handle, &comm) < 0) return NULL;
    SharedObject *self = (SharedObject *)type->tp_alloc(type, 0);
    if (!self) return NULL;
    pchan_error err;
    pchan_status status;
    Py_BEGIN_ALLOW_THREADS
    status = pchan_shared_create(comm, bytes, &self->shared, &self->address, &err);
    Py_END_ALLOW_THREADS
    if (status != PCHAN_OK) {
        raise_error(state_of(type), &err);
        Py_DECREF(self);
        return NULL;
    }
    self->bytes = bytes;
    return (PyObject *)self;
}

static int shared_getbuffer(PyObject *object, Py_buffer *view, int flags)
{
    const SharedObject *self = (SharedObject *)object;
    return PyBuffer_FillInfo(view, object, self->address, self->bytes, 0, flags);
}

static void shared_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    pchan_shared_destroy(&((SharedObject *)object)->shared);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyType_Slot shared_slots[] = {
    {Py_tp_doc, "SharedMemory(handle, nbytes)\n--\n\nThis rank's part of memory that the node's ranks map."},
    {Py_tp_new, shared_new},
    {Py_tp_dealloc, shared_dealloc},
    {Py_bf_getbuffer, shared_getbuffer},
    {0, NULL},
};

PyType_Spec shared_spec = {
    .name = "pchan._core.SharedMemory",
    .basicsize = sizeof(SharedObject),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = shared_slots,
};
