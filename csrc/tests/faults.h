/* SPDX-License-Identifier: MIT
 *
 * Makes the n-th call of MPI, of the system or of malloc fail, once, and keeps books of what is in use. faults.c
 * is linked into the tests t_faults_*.c, and is put before the libraries of a Python job with LD_PRELOAD, where
 * only calls from the range of addresses given to faults_watch count.
 *
 * How a call of MPI fails:
 *   local calls, sends, receives, nonblocking calls   are left undone
 *   collective calls, those that free                 are done, then report an error on this rank: left undone on
 *                                                     one rank, they would leave an MPI that nobody can use
 *   those that finish requests                        are counted when they would finish something.
 *                                                     FAULT_OPERATION: they do, and the message counts as failed;
 *                                                     FAULT_CALL: MPI_Testall and MPI_Waitall are left undone
 * Not failed: questions that a valid handle always answers, see `never_failed` in tests/test_faults.py.
 */
#ifndef PCHAN_FAULTS_H
#define PCHAN_FAULTS_H

#include <stdint.h>

enum { FAULT_MPI = 1, FAULT_SYSTEM = 2, FAULT_MEMORY = 4 }; /* kinds */
enum { FAULT_CALL, FAULT_OPERATION };
enum { SHORT_BY_ONE = -1, SHORT_BY_HALF = -2, SHORT_TO_NOTHING = -3 }; /* instead of an errno: process_vm_* only */

/* The call after `skip` others of this kind fails; `only`: of that name alone, NULL: any. */
void faults_arm(int kinds, long skip, int mode, int error, const char *only);
/* The name of the call that failed since faults_arm; NULL: none. */
const char *faults_disarm(void);
/* The names of the calls that faults_arm's kinds have met so far. */
enum { MOST_NAMES = 100 };
extern const char *faults_seen[MOST_NAMES + 1]; /* ended by NULL */
void faults_watch(uintptr_t first, uintptr_t end);

/* What the watched calls have made and not yet freed. */
enum {
    BOOK_REQUESTS,
    BOOK_TYPES,
    BOOK_COMMS,
    BOOK_GROUPS,
    BOOK_MESSAGES,
    BOOK_MAPS,
    BOOK_FILES,
    BOOK_BLOCKS,
    N_BOOKS
};
extern long faults_books[N_BOOKS];
extern const char *const faults_book_names[N_BOOKS];

#endif
