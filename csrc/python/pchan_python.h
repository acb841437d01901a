/* SPDX-License-Identifier: MIT
 *
 * The extension module, one build per MPI ABI: pchan._core_mpich, pchan._core_openmpi,
 * pchan._core_abi. Each method parses, converts, makes one core call (without the GIL where
 * it may take long), and translates. Loops over data belong in core/.
 */
#ifndef PCHAN_PYTHON_H
#define PCHAN_PYTHON_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "../pchan.h"

typedef struct module_state {
    PyObject *state_error, *wait_timeout, *range_error, *mpi_error, *match_error; /* classes of pchan.errors */
} module_state;

extern struct PyModuleDef pchan_module;

/* module.c: the state of the module that defines `type` or a base of it. Cannot fail for our types. */
module_state *state_of(PyTypeObject *type);

/* The type specs, one file per type. */
extern PyType_Spec channel_spec; /* channel_type.c */
extern PyType_Spec shared_spec;  /* shared_type.c */
extern PyType_Spec basis_spec;   /* basis_type.c */
extern PyType_Spec qreduce_spec; /* qreduce_type.c */
extern PyType_Spec team_spec;    /* team_type.c */

extern PyMethodDef fixed_functions[]; /* fixed_functions.c */

/* status = call, without the GIL. `n_inside` counts the threads that are in such calls on an object,
 * during which nobody may free it. */
#define WITHOUT_GIL(n_inside, call)                  \
    do {                                             \
        (n_inside)++;                                \
        PyThreadState *thread = PyEval_SaveThread(); \
        status = (call);                             \
        PyEval_RestoreThread(thread);                \
        (n_inside)--;                                \
    } while (0)

/* errors.c: sets the Python exception that fits err and returns NULL.
 *   ARG ValueError, STATE StateError, NOMEM MemoryError, RANGE RangeError, MPI MPIError,
 *   TIMEOUT WaitTimeout, SYSTEM OSError, MATCH MatchError. */
PyObject *raise_error(module_state *state, const pchan_error *err);

/* convert.c: 0 on success, -1 with a Python exception set. */

/* mpi4py's integer handle (comm.handle, datatype.handle) to the MPI handle. */
int comm_from_handle(PyObject *handle, MPI_Comm *comm);
int datatype_from_handle(PyObject *handle, MPI_Datatype *datatype);

/* timeout in seconds (None: no limit) to nanoseconds (-1). ValueError for negative or NaN. */
int timeout_from_object(PyObject *timeout, int64_t *timeout_ns);

/* A buffer of float64, int64 or uint32 with up to 3 dimensions as a pchan_array of exactly 3
 * (missing leading ones after the first become 1: [p] -> [p][1][1], [p][n] -> [p][1][n]).
 * The view stays exported in *view until PyBuffer_Release. TypeError for other formats. */
int array_from_object(PyObject *object, Py_buffer *view, pchan_array *array);

/* A C-contiguous buffer of uint64 (format 'L' or 'Q', native order) of exactly n_items. */
int limbs_from_object(PyObject *object, int writable, Py_ssize_t n_items, const char *name, Py_buffer *view);

/* figures.c: as convert.c. */

/* (kind, grid rows, grid columns, block, owners int32[n (n + 1) / 2] or None) into *layout, whose owners live
 * until PyBuffer_Release(view), which is due also when there are none. */
int layout_from_object(PyObject *object, long long n, pchan_layout *layout, Py_buffer *view);

/* A new dict of stats. */
PyObject *dict_from_stats(const pchan_qreduce_stats *stats);

/* The method _estimate(n, basis, layout, strategy, buffer_bytes, nodes int32[n_ranks], figures int64[n_ranks][4]).
 */
PyObject *estimate_into(PyObject *type, PyObject *args);

/* The basis inside a _core.Basis; NULL and TypeError for anything else. Borrowed. */
const pchan_basis *basis_from_object(PyObject *object);

#endif
