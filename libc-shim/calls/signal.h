// SPDX-License-Identifier: BSD-3-Clause
//
// Signals: ours comes first, and the program does not see it.
//
// The kernel knows one handler of ours. What the program has asked for is in a table here; it is
// what the program's own queries get, and what is called when a signal is not for us.
#ifndef NVCACHE_LIBC_SHIM_CALLS_SIGNAL_H_
#define NVCACHE_LIBC_SHIM_CALLS_SIGNAL_H_

#include <signal.h>

namespace nvcache::calls {

// To be called once, by the constructor, if there is an engine. Before that, and if there is none,
// the program's signals are its own. `all`: a handler may be there that NoteHandler has not seen.
void ManageSignals(bool all);

// Before the program's signals are managed: it installs a handler, of whatever signal.
void NoteHandler();

// Undoes it: the kernel has what the program has asked for, and no handler of ours runs.
void ReleaseSignals();

// Whether they are managed.
bool SignalsManaged();

// sigaction as the program shall see it.
int Sigaction(int signal, const struct sigaction* action, struct sigaction* old);

// The system call in libc's form, with the flags and the way back (sa_restorer) that the action
// has.
int KernelSigaction(int signal, const struct sigaction* action, struct sigaction* old);

// rt_sigaction, the system call. False: it is the kernel's alone, and the real call must be made.
bool SigactionByNumber(long signal, const void* action, void* old, long mask_size, long* result);

}  // namespace nvcache::calls

#endif  // NVCACHE_LIBC_SHIM_CALLS_SIGNAL_H_
