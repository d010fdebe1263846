// SPDX-License-Identifier: BSD-3-Clause
//
// The engine's threads, made by clone(). libc must not know of them: its pthread_create takes its
// locks and asks for memory, and the program may be inside of either (a library's constructor runs
// under the loader's lock, a handler interrupts malloc); and it counts the threads whose last one
// ends the program.
//
// The engine uses nothing of libc but the memory functions, so such a thread needs no more than a
// stack, and a thread pointer below which the engine's thread-local variables have their places.
// Other code of libc that runs there finds zeros in its own variables.
#ifndef NVCACHE_SYS_THREAD_H_
#define NVCACHE_SYS_THREAD_H_

#include "src/sys/host.h"

namespace nvcache::sys {

// Runs entry(argument) in a new thread with every signal blocked. Returns a handle, or nullptr.
void* StartThread(void (*entry)(void*), void* argument);
// Waits for the thread's end and forgets it.
void JoinThread(void* handle);

inline constexpr Host kOwnThreads = {StartThread, JoinThread};

}  // namespace nvcache::sys

#endif  // NVCACHE_SYS_THREAD_H_
