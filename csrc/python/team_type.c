/* SPDX-License-Identifier: MIT
 *
 * _core.Team: one pchan_team, its memory as a writable buffer of bytes. An export keeps the object,
 * and with it the memory.
 */
#include "pchan_python.h"

typedef struct {
    PyObject_HEAD
    pchan_team *team;
    long long n_bytes;
} TeamObject;

static pchan_team *team_of(PyObject *object)
{
    return ((TeamObject *)object)->team;
}

static PyObject *team_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"comm", "node_comm", "n_bytes", NULL};
    PyObject *comm_handle, *node_handle;
    long long n_bytes;
    MPI_Comm comm, node_comm;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOL", names, &comm_handle, &node_handle, &n_bytes))
        return NULL;
    if (comm_from_handle(comm_handle, &comm) < 0) return NULL;
    if (node_handle != Py_None && comm_from_handle(node_handle, &node_comm) < 0) return NULL;
    TeamObject *self = (TeamObject *)type->tp_alloc(type, 0);
    if (!self) return NULL;
    pchan_error err;
    pchan_status status;
    Py_BEGIN_ALLOW_THREADS
    status = pchan_team_create(comm, node_handle == Py_None ? NULL : &node_comm, n_bytes, &self->team, &err);
    Py_END_ALLOW_THREADS
    if (status != PCHAN_OK) {
        raise_error(state_of(type), &err);
        Py_DECREF(self);
        return NULL;
    }
    self->n_bytes = n_bytes;
    return (PyObject *)self;
}

static void team_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    pchan_team_destroy(&((TeamObject *)object)->team);
    type->tp_free(object);
    Py_DECREF(type);
}

static int team_getbuffer(PyObject *object, Py_buffer *view, int flags)
{
    void *data = pchan_team_data(team_of(object));
    return PyBuffer_FillInfo(view, object, data, (Py_ssize_t)((TeamObject *)object)->n_bytes, 0, flags);
}

static PyObject *team_next(PyObject *object, PyObject *unused)
{
    (void)unused;
    return PyLong_FromLongLong(pchan_team_next(team_of(object)));
}

static PyObject *team_all(PyObject *object, PyObject *mine)
{
    int value = PyObject_IsTrue(mine), all;
    pchan_error err;
    pchan_status status;
    if (value < 0) return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = pchan_team_all(team_of(object), value, &all, &err);
    Py_END_ALLOW_THREADS
    if (status != PCHAN_OK) return raise_error(state_of(Py_TYPE(object)), &err);
    return PyBool_FromLong(all);
}

static PyObject *team_number(PyObject *object, void *getter)
{
    int (*get)(const pchan_team *) = *(int (**)(const pchan_team *))getter;
    return PyLong_FromLong(get(team_of(object)));
}

static int (*get_node_rank)(const pchan_team *) = pchan_team_node_rank;
static int (*get_node_size)(const pchan_team *) = pchan_team_node_size;

static PyMethodDef team_methods[] = {
    {"next", team_next, METH_NOARGS, "next($self)\n--\n\n0, 1, 2, ...: each number to one rank of the node."},
    {"all", team_all, METH_O,
     "all($self, mine, /)\n--\n\nIs it true on every rank of the node? Collective over the node, and a barrier."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef team_getset[] = {
    {"node_rank", team_number, NULL, "This rank's number within its node.", &get_node_rank},
    {"node_size", team_number, NULL, "Ranks of the node.", &get_node_size},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot team_slots[] = {
    {Py_tp_doc, "Team(comm, node_comm, n_bytes)\n--\n\nMemory of a node; collective over comm (handles)."},
    {Py_tp_new, team_new},
    {Py_tp_dealloc, team_dealloc},
    {Py_tp_methods, team_methods},
    {Py_tp_getset, team_getset},
    {Py_bf_getbuffer, team_getbuffer},
    {0, NULL},
};

PyType_Spec team_spec = {
    .name = "pchan._core.Team",
    .basicsize = sizeof(TeamObject),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = team_slots,
};
