/* SPDX-License-Identifier: MIT
 *
 * The one place where a pchan_error becomes a Python exception.
 */
#include "pchan_python.h"

PyObject *raise_error(module_state *state, const pchan_error *err)
{
    switch (err->status) {
        case PCHAN_OK: PyErr_SetString(PyExc_SystemError, "pchan: an error without a status"); break;
        case PCHAN_ERR_ARG: PyErr_SetString(PyExc_ValueError, err->message); break;
        case PCHAN_ERR_STATE: PyErr_SetString(state->state_error, err->message); break;
        case PCHAN_ERR_NOMEM: PyErr_SetString(PyExc_MemoryError, err->message); break;
        case PCHAN_ERR_MATCH: PyErr_SetString(state->match_error, err->message); break;
        case PCHAN_ERR_RANGE: PyErr_SetString(state->range_error, err->message); break;
        case PCHAN_ERR_TIMEOUT: PyErr_SetString(state->wait_timeout, err->message); break;
        case PCHAN_ERR_SYSTEM: PyErr_SetString(PyExc_OSError, err->message); break;
        case PCHAN_ERR_MPI: {
            PyObject *exception = PyObject_CallFunction(state->mpi_error, "is", err->mpi_code, err->message);
            if (exception) PyErr_SetObject(state->mpi_error, exception);
            Py_XDECREF(exception);
            break;
        }
    }
    return NULL;
}
