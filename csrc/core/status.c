/* SPDX-License-Identifier: MIT */
#include "pch_pure.h"

#include <stdarg.h>
#include <stdio.h>

const char *pchan_status_name(pchan_status status)
{
    switch (status) {
        case PCHAN_OK: return "PCHAN_OK";
        case PCHAN_ERR_ARG: return "PCHAN_ERR_ARG";
        case PCHAN_ERR_STATE: return "PCHAN_ERR_STATE";
        case PCHAN_ERR_NOMEM: return "PCHAN_ERR_NOMEM";
        case PCHAN_ERR_RANGE: return "PCHAN_ERR_RANGE";
        case PCHAN_ERR_MPI: return "PCHAN_ERR_MPI";
        case PCHAN_ERR_TIMEOUT: return "PCHAN_ERR_TIMEOUT";
        case PCHAN_ERR_SYSTEM: return "PCHAN_ERR_SYSTEM";
        case PCHAN_ERR_MATCH: return "PCHAN_ERR_MATCH";
    }
    return "unknown pchan_status";
}

void pch_tell(pchan_error *err, pchan_status status, const char *format, ...)
{
    if (!err) return;
    err->status = status;
    err->mpi_code = 0;
    err->rank = -1;
    err->index = -1;
    va_list args;
    va_start(args, format);
    vsnprintf(err->message, sizeof err->message, format, args);
    va_end(args);
}
