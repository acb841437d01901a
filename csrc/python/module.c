/* SPDX-License-Identifier: MIT
 *
 * The module: checks that it and mpi4py use one MPI library, then adds the types.
 */
#include "pchan_python.h"

#include <dlfcn.h>

#ifndef PCHAN_MODULE
#error "PCHAN_MODULE must name the module, for instance _core_mpich"
#endif
#define STRING_OF(x) #x
#define STRING(x) STRING_OF(x)
#define JOIN_OF(a, b) a##b
#define JOIN(a, b) JOIN_OF(a, b)

#if PY_VERSION_HEX < 0x030B0000
#define PyType_GetModuleByDef _PyType_GetModuleByDef /* the same under its first name */
#endif

module_state *state_of(PyTypeObject *type)
{
    return PyModule_GetState(PyType_GetModuleByDef(type, &pchan_module));
}

/* The first line of what our MPI library says of itself; works before MPI_Init. */
static void our_library(char *text, size_t size)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length;
    Dl_info info;
    MPI_Get_library_version(version, &length);
    version[strcspn(version, "\n")] = '\0';
    const char *file = dladdr((void *)(uintptr_t)PMPI_Get_version, &info) ? info.dli_fname : "unknown file";
    snprintf(text, size, "%.200s (%.600s)", version, file);
}

static int refuse(PyObject *mpi, const char *why)
{
    char ours[1024];
    our_library(ours, sizeof ours);
    PyObject *theirs = PyObject_CallMethod(mpi, "Get_library_version", NULL);
    PyObject *line = theirs ? PyObject_CallMethod(theirs, "partition", "s", "\n") : NULL;
    if (line) {
        PyErr_Format(PyExc_ImportError,
                     "pchan was built for another MPI library than mpi4py's (%s): mpi4py uses %S, pchan uses %s. "
                     "Rebuild pchan with the MPI compiler of mpi4py's library: "
                     "MPICC=/path/to/mpicc pip install --no-cache-dir --force-reinstall --no-deps pchan",
                     why, PyTuple_GET_ITEM(line, 0), ours);
    }
    Py_XDECREF(line);
    Py_XDECREF(theirs);
    return -1;
}

static int attribute_as_long(PyObject *object, const char *method, PyObject *argument, long *value)
{
    PyObject *result = PyObject_CallMethod(object, method, "O", argument);
    if (!result) return -1;
    *value = PyLong_AsLong(result);
    Py_DECREF(result);
    return *value == -1 && PyErr_Occurred() ? -1 : 0;
}

/* Two MPI libraries in one process load without complaint and crash later, so compare what
 * mpi4py's module sees with what we see: the size of a handle, and the address of a function. */
static int check_same_library(PyObject *mpi)
{
    PyObject *comm_type = PyObject_GetAttrString(mpi, "Comm");
    long size;
    int failed = !comm_type || attribute_as_long(mpi, "_sizeof", comm_type, &size) < 0;
    Py_XDECREF(comm_type);
    if (failed) return -1;
    if (size != (long)sizeof(MPI_Comm)) return refuse(mpi, "handles of another size");

    PyObject *file = PyObject_GetAttrString(mpi, "__file__");
    const char *path = file ? PyUnicode_AsUTF8(file) : NULL;
    void *library = path ? dlopen(path, RTLD_LAZY | RTLD_NOLOAD) : NULL;
    Py_XDECREF(file);
    if (!path) return -1;
    if (!library) return 0; /* linked statically into the interpreter: nothing to compare */
    void *theirs = dlsym(library, "PMPI_Get_version");
    dlclose(library);
    if (theirs && theirs != (void *)(uintptr_t)PMPI_Get_version) return refuse(mpi, "two libraries loaded");
    return 0;
}

static int add_type(PyObject *module, PyType_Spec *spec)
{
    PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);
    if (!type) return -1;
    int result = PyModule_AddType(module, (PyTypeObject *)type);
    Py_DECREF(type);
    return result;
}

static int load_errors(module_state *state)
{
    PyObject *errors = PyImport_ImportModule("pchan.errors");
    if (!errors) return -1;
    state->state_error = PyObject_GetAttrString(errors, "StateError");
    state->wait_timeout = PyObject_GetAttrString(errors, "WaitTimeout");
    state->range_error = PyObject_GetAttrString(errors, "RangeError");
    state->mpi_error = PyObject_GetAttrString(errors, "MPIError");
    state->match_error = PyObject_GetAttrString(errors, "MatchError");
    Py_DECREF(errors);
    return state->state_error && state->wait_timeout && state->range_error && state->mpi_error &&
                   state->match_error
               ? 0
               : -1;
}

static int module_exec(PyObject *module)
{
    PyObject *mpi = PyImport_ImportModule("mpi4py.MPI");
    if (!mpi) return -1;
    int result = check_same_library(mpi);
    Py_DECREF(mpi);
    if (result < 0 || load_errors(PyModule_GetState(module)) < 0) return -1;
    if (add_type(module, &shared_spec) < 0) return -1;
    if (add_type(module, &channel_spec) < 0 || add_type(module, &basis_spec) < 0) return -1;
    if (add_type(module, &qreduce_spec) < 0 || add_type(module, &team_spec) < 0) return -1;
    if (PyModule_AddFunctions(module, fixed_functions) < 0) return -1;
    char library[1024];
    our_library(library, sizeof library);
    if (PyModule_AddStringConstant(module, "mpi_library", library) < 0) return -1;
    return PyModule_AddStringConstant(module, "kernel", pchan_kernel_name());
}

static int module_traverse(PyObject *module, visitproc visit, void *arg)
{
    module_state *state = PyModule_GetState(module);
    Py_VISIT(state->state_error);
    Py_VISIT(state->wait_timeout);
    Py_VISIT(state->range_error);
    Py_VISIT(state->mpi_error);
    Py_VISIT(state->match_error);
    return 0;
}

static int module_clear(PyObject *module)
{
    module_state *state = PyModule_GetState(module);
    Py_CLEAR(state->state_error);
    Py_CLEAR(state->wait_timeout);
    Py_CLEAR(state->range_error);
    Py_CLEAR(state->mpi_error);
    Py_CLEAR(state->match_error);
    return 0;
}

static PyObject *allocation_count(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return PyLong_FromUnsignedLongLong(pchan_allocation_count());
}

static PyMethodDef module_methods[] = {
    {"allocation_count", allocation_count, METH_NOARGS,
     "allocation_count()\n--\n\nNumber of heap requests the C core has made so far."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
#ifdef Py_mod_multiple_interpreters
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
#ifdef Py_mod_gil
    {Py_mod_gil, Py_MOD_GIL_USED},
#endif
    {0, NULL},
};

struct PyModuleDef pchan_module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "pchan." STRING(PCHAN_MODULE),
    .m_doc = "pchan's C core for one MPI ABI; use the classes of pchan instead.",
    .m_size = sizeof(module_state),
    .m_methods = module_methods,
    .m_slots = module_slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
};

PyMODINIT_FUNC JOIN(PyInit_, PCHAN_MODULE)(void); // NOLINT(misc-use-internal-linkage): Python looks for it

PyMODINIT_FUNC JOIN(PyInit_, PCHAN_MODULE)(void)
{
    return PyModuleDef_Init(&pchan_module);
}
