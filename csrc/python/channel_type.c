/* SPDX-License-Identifier: MIT
 *
 * _core.Channel: one pchan_channel, and references to all that its requests point into.
 * pchan.Channel derives from it and turns arrays and mpi4py's buffer specifications into the
 * arguments of _add and _add_strided.
 */
#include "pchan_python.h"

#include <stdbool.h>
#include <string.h>

/* With another Python thread busy, letting the GIL go for a moment costs up to milliseconds, so a
 * wait holds it this long first; then it polls without it and looks for signals between slices. */
enum { HOLD_NS = 5000, SLICE_NS = 20000000 };

typedef struct {
    PyObject_HEAD
    pchan_channel *channel; /* NULL: freed */
    int n_inside;           /* threads that use it without the GIL */
    PyObject *held;         /* list: communicator, buffers */
} ChannelObject;

static ChannelObject *self_of(PyObject *object)
{
    return (ChannelObject *)object;
}

static PyObject *fail(PyObject *object, const pchan_error *err)
{
    return raise_error(state_of(Py_TYPE(object)), err);
}

static pchan_channel *living(PyObject *object, const char *what)
{
    pchan_channel *channel = self_of(object)->channel;
    if (!channel) PyErr_Format(state_of(Py_TYPE(object))->state_error, "%s: the channel has been freed", what);
    return channel;
}

static PyObject *channel_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"comm", "handle", "private", NULL};
    PyObject *comm, *handle;
    int private_comm = 1;
    MPI_Comm mpi_comm;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|p", names, &comm, &handle, &private_comm)) return NULL;
    if (comm_from_handle(handle, &mpi_comm) < 0) return NULL;
    ChannelObject *self = (ChannelObject *)type->tp_alloc(type, 0);
    if (!self) return NULL;
    self->channel = NULL;
    self->held = Py_BuildValue("[O]", comm);
    if (!self->held) {
        Py_DECREF(self);
        return NULL;
    }
    pchan_error err;
    pchan_channel_options options = {.shared_comm = !private_comm};
    pchan_status status;
    Py_BEGIN_ALLOW_THREADS
    status = pchan_channel_create(mpi_comm, &options, &self->channel, &err);
    Py_END_ALLOW_THREADS
    if (status != PCHAN_OK) {
        raise_error(state_of(type), &err);
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static PyObject *channel_add(PyObject *object, PyObject *args)
{
    PyObject *holder, *type_handle;
    int kind, peer, tag, index;
    unsigned long long address;
    long long count;
    MPI_Datatype datatype;
    if (!PyArg_ParseTuple(args, "iOKLOii", &kind, &holder, &address, &count, &type_handle, &peer, &tag))
        return NULL;
    if (datatype_from_handle(type_handle, &datatype) < 0) return NULL;
    pchan_channel *channel = living(object, kind == PCHAN_SEND ? "send_init" : "recv_init");
    if (!channel || PyList_Append(self_of(object)->held, holder) < 0) return NULL;
    pchan_error err;
    void *buf = (void *)(uintptr_t)address;
    pchan_status status = kind == PCHAN_SEND
                              ? pchan_channel_send_init(channel, buf, count, datatype, peer, tag, &index, &err)
                              : pchan_channel_recv_init(channel, buf, count, datatype, peer, tag, &index, &err);
    if (status != PCHAN_OK) {
        Py_ssize_t n = PyList_GET_SIZE(self_of(object)->held);
        PyList_SetSlice(self_of(object)->held, n - 1, n, NULL);
        return fail(object, &err);
    }
    return PyLong_FromLong(index);
}

enum { MAX_DIMS = 64 };

static int numbers_from_tuple(PyObject *tuple, int64_t *numbers, int *n)
{
    Py_ssize_t size = PyTuple_Size(tuple);
    if (size < 0) return -1;
    if (size > MAX_DIMS) {
        PyErr_Format(PyExc_ValueError, "an array has at most %d dimensions", MAX_DIMS);
        return -1;
    }
    for (Py_ssize_t i = 0; i < size; i++) {
        numbers[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, i));
        if (numbers[i] == -1 && PyErr_Occurred()) return -1;
    }
    *n = (int)size;
    return 0;
}

static PyObject *channel_add_strided(PyObject *object, PyObject *args)
{
    PyObject *holder, *shape, *strides, *type_handle;
    int kind, peer, tag, index, n_strides;
    unsigned long long address;
    int64_t shape_numbers[MAX_DIMS], stride_numbers[MAX_DIMS];
    pchan_strided array = {.shape = shape_numbers, .strides = stride_numbers};
    if (!PyArg_ParseTuple(args, "iOKOOOii", &kind, &holder, &address, &shape, &strides, &type_handle, &peer,
                          &tag)) {
        return NULL;
    }
    if (datatype_from_handle(type_handle, &array.element) < 0) return NULL;
    if (numbers_from_tuple(shape, shape_numbers, &array.n_dims) < 0) return NULL;
    if (numbers_from_tuple(strides, stride_numbers, &n_strides) < 0) return NULL;
    if (n_strides != array.n_dims) return PyErr_Format(PyExc_ValueError, "shape and strides differ in length");
    array.buf = (void *)(uintptr_t)address;
    pchan_channel *channel = living(object, kind == PCHAN_SEND ? "send_init" : "recv_init");
    if (!channel || PyList_Append(self_of(object)->held, holder) < 0) return NULL;
    pchan_error err;
    if (pchan_channel_init_strided(channel, (pchan_kind)kind, &array, peer, tag, &index, &err) != PCHAN_OK) {
        Py_ssize_t n = PyList_GET_SIZE(self_of(object)->held);
        PyList_SetSlice(self_of(object)->held, n - 1, n, NULL);
        return fail(object, &err);
    }
    return PyLong_FromLong(index);
}

static PyObject *channel_describe(PyObject *object, PyObject *args)
{
    const char *element;
    PyObject *shape;
    int index, column_major;
    int64_t numbers[MAX_DIMS];
    pchan_description description = {.shape = numbers};
    if (!PyArg_ParseTuple(args, "izOp", &index, &element, &shape, &column_major)) return NULL;
    if (numbers_from_tuple(shape, numbers, &description.n_dims) < 0) return NULL;
    description.element = element;
    description.column_major = column_major;
    pchan_channel *channel = living(object, "describe");
    pchan_error err;
    if (!channel) return NULL;
    if (pchan_channel_describe(channel, index, &description, &err) != PCHAN_OK) return fail(object, &err);
    Py_RETURN_NONE;
}

static PyObject *channel_connect(PyObject *object, PyObject *unused)
{
    (void)unused;
    pchan_channel *channel = living(object, "connect");
    pchan_error err;
    pchan_status status;
    if (!channel) return NULL;
    WITHOUT_GIL(self_of(object)->n_inside, pchan_channel_connect(channel, &err));
    if (status == PCHAN_ERR_MATCH) {
        PyErr_SetString(state_of(Py_TYPE(object))->match_error, pchan_channel_mismatch(channel));
        return NULL;
    }
    if (status != PCHAN_OK) return fail(object, &err);
    Py_RETURN_NONE;
}

/* ---- the cycle ---- */

static PyObject *channel_start(PyObject *object, PyObject *unused)
{
    (void)unused;
    pchan_channel *channel = living(object, "start");
    pchan_error err;
    if (!channel) return NULL;
    if (pchan_channel_start(channel, &err) != PCHAN_OK) return fail(object, &err);
    Py_RETURN_NONE;
}

/* Between two slices of a wait: runs signal handlers, which may raise, and may even free the channel. */
static int still_here(PyObject *object, const char *what)
{
    return PyErr_CheckSignals() == 0 && living(object, what);
}

/* Finishes the cycle. The object is kept alive by its caller's reference. */
static PyObject *finish_cycle(PyObject *object, pchan_channel *channel, int64_t timeout_ns)
{
    pchan_error err;
    int finished = 0;
    bool hold = pchan_channel_spin_ns(channel) >= HOLD_NS && (timeout_ns < 0 || timeout_ns >= HOLD_NS);
    pchan_status status = pchan_channel_poll(channel, hold ? HOLD_NS : 0, &finished, &err);
    int64_t left_ns = timeout_ns;
    while (status == PCHAN_OK && !finished && left_ns != 0) {
        int64_t slice_ns = left_ns < 0 || left_ns > SLICE_NS ? SLICE_NS : left_ns;
        WITHOUT_GIL(self_of(object)->n_inside, pchan_channel_poll(channel, slice_ns, &finished, &err));
        if (left_ns > 0) left_ns -= slice_ns;
        if (status == PCHAN_OK && !finished && !still_here(object, "wait")) return NULL;
    }
    if (status == PCHAN_OK && !finished) status = pchan_channel_wait(channel, 0, &err);
    if (status != PCHAN_OK) return fail(object, &err);
    Py_RETURN_NONE;
}

static int parse_timeout(PyObject *const *args, Py_ssize_t n_args, PyObject *names, int64_t *timeout_ns)
{
    Py_ssize_t n_names = names ? PyTuple_GET_SIZE(names) : 0;
    *timeout_ns = -1;
    if (n_args + n_names == 0) return 0;
    if (n_args + n_names > 1 ||
        (n_names && PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, 0), "timeout"))) {
        PyErr_SetString(PyExc_TypeError, "the only argument is timeout");
        return -1;
    }
    return timeout_from_object(args[0], timeout_ns);
}

static PyObject *channel_wait(PyObject *object, PyObject *const *args, Py_ssize_t n_args, PyObject *names)
{
    int64_t timeout_ns;
    if (parse_timeout(args, n_args, names, &timeout_ns) < 0) return NULL;
    pchan_channel *channel = living(object, "wait");
    return channel ? finish_cycle(object, channel, timeout_ns) : NULL;
}

static PyObject *channel_exchange(PyObject *object, PyObject *const *args, Py_ssize_t n_args, PyObject *names)
{
    int64_t timeout_ns;
    if (parse_timeout(args, n_args, names, &timeout_ns) < 0) return NULL;
    pchan_channel *channel = living(object, "exchange");
    pchan_error err;
    if (!channel) return NULL;
    if (pchan_channel_start(channel, &err) != PCHAN_OK) return fail(object, &err);
    return finish_cycle(object, channel, timeout_ns);
}

static PyObject *channel_test(PyObject *object, PyObject *unused)
{
    (void)unused;
    pchan_channel *channel = living(object, "test");
    pchan_error err;
    int finished;
    if (!channel) return NULL;
    if (pchan_channel_poll(channel, 0, &finished, &err) != PCHAN_OK) return fail(object, &err);
    return PyBool_FromLong(finished);
}

static PyObject *channel_wait_any(PyObject *object, PyObject *const *args, Py_ssize_t n_args, PyObject *names)
{
    int64_t timeout_ns;
    if (parse_timeout(args, n_args, names, &timeout_ns) < 0) return NULL;
    pchan_channel *channel = living(object, "wait_any");
    if (!channel) return NULL;
    pchan_error err;
    int index = -1;
    int64_t left_ns = timeout_ns;
    pchan_status status = pchan_channel_wait_any(channel, 0, &index, &err);
    while (status == PCHAN_ERR_TIMEOUT && left_ns != 0) {
        int64_t slice_ns = left_ns < 0 || left_ns > SLICE_NS ? SLICE_NS : left_ns;
        WITHOUT_GIL(self_of(object)->n_inside, pchan_channel_wait_any(channel, slice_ns, &index, &err));
        if (left_ns > 0) left_ns -= slice_ns;
        if (status == PCHAN_ERR_TIMEOUT && !still_here(object, "wait_any")) return NULL;
    }
    if (status != PCHAN_OK) return fail(object, &err);
    if (index < 0) Py_RETURN_NONE;
    return PyLong_FromLong(index);
}

/* ---- queries ---- */

static PyObject *channel_operation(PyObject *object, PyObject *number)
{
    int index = (int)PyLong_AsLong(number);
    if (index == -1 && PyErr_Occurred()) return NULL;
    pchan_channel *channel = living(object, "indexing");
    pchan_operation op;
    pchan_error err;
    if (!channel) return NULL;
    if (pchan_channel_operation(channel, index, &op, &err) != PCHAN_OK) return fail(object, &err);
    return Py_BuildValue("(siiLsO)", op.kind == PCHAN_SEND ? "send" : "recv", op.peer, op.tag, (long long)op.bytes,
                         pchan_transport_name(op.transport), op.done ? Py_True : Py_False);
}

static PyObject *channel_statuses(PyObject *object, void *unused)
{
    (void)unused;
    pchan_channel *channel = living(object, "statuses");
    pchan_error err;
    if (!channel) return NULL;
    int n = pchan_channel_size(channel);
    PyObject *list = PyList_New(n);
    for (int i = 0; list && i < n; i++) {
        pchan_message message;
        if (pchan_channel_message(channel, i, &message, &err) != PCHAN_OK) {
            Py_DECREF(list);
            return fail(object, &err);
        }
        PyObject *item = Py_BuildValue("(iiL)", message.source, message.tag, (long long)message.bytes);
        if (!item) {
            Py_DECREF(list);
            return NULL;
        }
        PyList_SET_ITEM(list, i, item);
    }
    return list;
}

static PyObject *channel_active(PyObject *object, void *unused)
{
    (void)unused;
    pchan_channel *channel = self_of(object)->channel;
    return PyBool_FromLong(channel && pchan_channel_active(channel));
}

static PyObject *channel_connected(PyObject *object, void *unused)
{
    (void)unused;
    pchan_channel *channel = self_of(object)->channel;
    return PyBool_FromLong(channel && pchan_channel_connected(channel));
}

static PyObject *channel_freed(PyObject *object, void *unused)
{
    (void)unused;
    return PyBool_FromLong(!self_of(object)->channel);
}

static PyObject *channel_spin(PyObject *object, void *unused)
{
    (void)unused;
    pchan_channel *channel = living(object, "spin_us");
    return channel ? PyFloat_FromDouble((double)pchan_channel_spin_ns(channel) / 1000) : NULL;
}

static Py_ssize_t channel_len(PyObject *object)
{
    pchan_channel *channel = living(object, "len");
    return channel ? pchan_channel_size(channel) : -1;
}

/* ---- the end ---- */

static PyObject *channel_free(PyObject *object, PyObject *unused)
{
    (void)unused;
    pchan_error err;
    if (self_of(object)->n_inside) {
        PyErr_SetString(state_of(Py_TYPE(object))->state_error, "free: another thread is using this channel");
        return NULL;
    }
    if (pchan_channel_destroy(&self_of(object)->channel, &err) != PCHAN_OK) return fail(object, &err);
    PyList_SetSlice(self_of(object)->held, 0, PyList_GET_SIZE(self_of(object)->held), NULL);
    Py_RETURN_NONE;
}

/* An active channel cannot be freed: MPI may still write into its buffers. They are kept for the
 * rest of the process, and the requests until MPI_Finalize. */
static void channel_finalize(PyObject *object)
{
    ChannelObject *self = self_of(object);
    PyObject *type, *value, *traceback;
    if (!self->channel) return;
    PyErr_Fetch(&type, &value, &traceback);
    if (pchan_channel_active(self->channel)) {
        Py_XINCREF(self->held);
        if (PyErr_ResourceWarning(object, 1, "a channel was dropped while active; its buffers are kept") < 0) {
            PyErr_WriteUnraisable(object);
        }
    }
    pchan_channel_abandon(&self->channel);
    PyErr_Restore(type, value, traceback);
}

static int channel_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(self_of(object)->held);
    Py_VISIT(Py_TYPE(object));
    return 0;
}

static int channel_clear(PyObject *object)
{
    if (!self_of(object)->channel) Py_CLEAR(self_of(object)->held);
    return 0;
}

static void channel_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    if (PyObject_CallFinalizerFromDealloc(object) < 0) return;
    PyObject_GC_UnTrack(object);
    Py_CLEAR(self_of(object)->held);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyMethodDef channel_methods[] = {
    {"_add", channel_add, METH_VARARGS,
     "_add($self, kind, holder, address, count, datatype, peer, tag, /)\n--\n\nRegisters count elements at an "
     "address."},
    {"_add_strided", channel_add_strided, METH_VARARGS,
     "_add_strided($self, kind, holder, address, shape, strides, datatype, peer, tag, /)\n--\n\n"
     "Registers a strided array; strides in bytes."},
    {"_describe", channel_describe, METH_VARARGS,
     "_describe($self, index, element, shape, column_major, /)\n--\n\nWhat connect compares beyond the MPI "
     "datatype."},
    {"connect", channel_connect, METH_NOARGS,
     "connect($self)\n--\n\nSettles once what MPI would match anew in every cycle. Optional; collective over the "
     "communicator.\n\n"
     "The k-th send is paired with the k-th receive of equal (source, dest, tag); sizes, element types and, where "
     "both\n"
     "ends are arrays of two or more dimensions, shapes and orders are compared. Then each message gets the "
     "fastest\n"
     "transport, see Operation. A receive may be longer than its send. Nothing can be registered afterwards.\n\n"
     "Raises MatchError on every rank, naming each faulty operation on both sides, before anything is sent; the\n"
     "channel then works as before, unconnected. StateError when it is active or connected."},
    {"start", channel_start, METH_NOARGS,
     "start($self)\n--\n\nStarts every operation: receives first, then sends, each in the order of "
     "registration.\n\n"
     "Local, returns at once. Raises StateError when the channel is active or freed."},
    {"wait", (PyCFunction)(void (*)(void))channel_wait, METH_FASTCALL | METH_KEYWORDS,
     "wait($self, timeout=None)\n--\n\nFinishes the cycle: returns when this rank's messages are sent and "
     "received.\n\n"
     "timeout is in seconds. Raises WaitTimeout, which names the unfinished operations and leaves the channel\n"
     "active, so that it can be waited on again (as Ctrl-C does); MPIError naming the operation that failed,\n"
     "when all others have finished; StateError when nothing was started."},
    {"exchange", (PyCFunction)(void (*)(void))channel_exchange, METH_FASTCALL | METH_KEYWORDS,
     "exchange($self, timeout=None)\n--\n\nstart() and wait(timeout) in one call."},
    {"test", channel_test, METH_NOARGS,
     "test($self)\n--\n\nTrue when the cycle is over; then the channel is idle again. Never waits."},
    {"wait_any", (PyCFunction)(void (*)(void))channel_wait_any, METH_FASTCALL | METH_KEYWORDS,
     "wait_any($self, timeout=None)\n--\n\nThe index of an operation that has finished, each once per cycle; "
     "waits for "
     "it.\n\n"
     "None when nothing is active. With the last index the cycle is over."},
    {"_operation", channel_operation, METH_O,
     "_operation($self, index, /)\n--\n\n(kind, peer, tag, nbytes, transport, done)"},
    {"free", channel_free, METH_NOARGS,
     "free($self)\n--\n\nFrees the requests and lets the buffers go. Local; does nothing the second time.\n\n"
     "Raises StateError when the channel is active."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef channel_getset[] = {
    {"statuses", channel_statuses, NULL,
     "[(source, tag, nbytes), ...] of the last finished cycle, by index. For a receive what came, for a send "
     "what\n"
     "went, (PROC_NULL, ANY_TAG, 0) for PROC_NULL.",
     NULL},
    {"active", channel_active, NULL, "True between start and the end of the cycle.", NULL},
    {"connected", channel_connected, NULL, "True after connect().", NULL},
    {"freed", channel_freed, NULL, "True after free().", NULL},
    {"spin_us", channel_spin, NULL,
     "Microseconds for which a wait polls before it yields the processor between polls. 0 where the node runs\n"
     "more ranks than it has usable cores, unless PCHAN_SPIN_US says otherwise.",
     NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot channel_slots[] = {
    {Py_tp_doc, "Channel(comm, handle, private=True)\n--\n\nThe C core's channel; use pchan.Channel."},
    {Py_tp_new, channel_new},
    {Py_tp_dealloc, channel_dealloc},
    {Py_tp_finalize, channel_finalize},
    {Py_tp_traverse, channel_traverse},
    {Py_tp_clear, channel_clear},
    {Py_tp_methods, channel_methods},
    {Py_tp_getset, channel_getset},
    {Py_mp_length, channel_len},
    {0, NULL},
};

PyType_Spec channel_spec = {
    .name = "pchan._core.Channel",
    .basicsize = sizeof(ChannelObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = channel_slots,
};
