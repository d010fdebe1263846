// SPDX-License-Identifier: BSD-3-Clause
//
// The objects that the dynamic linker has loaded, for Host (src/sys/host.h). Not with a lock of the
// engine's: the dynamic linker has one of its own, with which it may call the program.
#ifndef NVCACHE_LIBC_SHIM_PRELOAD_OBJECTS_H_
#define NVCACHE_LIBC_SHIM_PRELOAD_OBJECTS_H_

#include <cstdint>

#include "src/sys/host.h"

namespace nvcache::preload {

// False: something was not looked at. The file of an object may be shorter by now. Or a thread of
// the process that has forked this one may have had the dynamic linker's lock, which nobody here
// gives back: then nothing was.
bool ForEachObject(bool (*look)(void* context, const LoadedObject& object), void* context);
// Takes no lock, for each open asks.
uint64_t CountLoads();

// At the start.
void FindLoadCount();
// In a child of a process that had threads.
void LoseLock();

// A `ret` in the code of the object that has `caller`, or else in the program's. nullptr: there is
// none near by. Before a dlopen, which waits for the dynamic linker's lock as this does: so the
// lock is nobody's afterwards.
const void* FindReturn(const void* caller);

}  // namespace nvcache::preload

#endif  // NVCACHE_LIBC_SHIM_PRELOAD_OBJECTS_H_
