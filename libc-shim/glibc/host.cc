// SPDX-License-Identifier: BSD-3-Clause
#include "libc-shim/glibc/host.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <atomic>
#include <cstddef>

#include "src/pmem/libpmem.h"

namespace nvcache {
namespace {

// The engine knows no errno, so its calls must not change the program's: everything that it asks
// of libc keeps it.
class KeepErrno {
 public:
  KeepErrno() : saved_(errno) {}
  ~KeepErrno() { errno = saved_; }
  KeepErrno(const KeepErrno&) = delete;
  KeepErrno& operator=(const KeepErrno&) = delete;

 private:
  const int saved_;
};

thread_local int t_inside_libpmem = 0;

// Marks that libpmem, its loading, or the making of a thread runs on this thread. No handler of the
// program may run in between, for its calls would be taken for libpmem's, and a cancellation would
// leave the engine's locks behind. The program's malloc may, and use files: those calls, too, are
// the kernel's, for the engine is waiting. Nothing is cached at that time.
class Inside {
 public:
  Inside() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &signals_);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state_);
    ++t_inside_libpmem;
  }
  ~Inside() {
    --t_inside_libpmem;
    pthread_setcancelstate(cancel_state_, nullptr);
    pthread_sigmask(SIG_SETMASK, &signals_, nullptr);
  }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  KeepErrno keep_;
  sigset_t signals_;
  int cancel_state_ = 0;
};

// ---------------------------------------------------------------------------------------------
// Threads.

// A running thread of the engine; its address is the handle. A fixed number of them, because a
// handle from malloc could re-enter a program's own malloc.
struct Thread {
  std::atomic<pid_t> owner;  // 0: none; a process that was forked has none of its parent's
  pthread_t id;
  void (*entry)(void*);
  void* argument;
  std::atomic<unsigned>* count;  // glibc's number of threads, or nullptr
};

constexpr size_t kMaxThreads = 8;
constinit Thread g_threads[kMaxThreads] = {};

// Small, for the engine needs little; doubled until the program's thread-local storage, which
// glibc takes from the stack, fits as well.
constexpr size_t kStackSize = size_t{256} << 10;
constexpr size_t kMaxStackSize = size_t{64} << 20;

// The program ends when its last thread does (main may have left by pthread_exit), so ours must not
// be counted. The number is glibc's own, and there since it has threads; where it is not found,
// such a program does not end.
std::atomic<unsigned>* ThreadCount() {
  return static_cast<std::atomic<unsigned>*>(dlsym(RTLD_DEFAULT, "__nptl_nthreads"));
}

void* RunThread(void* self) {
  const Thread* thread = static_cast<const Thread*>(self);
  prctl(PR_SET_NAME, "nvcache");
  thread->entry(thread->argument);
  // glibc counts us out once more. Nobody left: exit() is at work, and must not be called again.
  if (thread->count != nullptr && thread->count->load() != 0) thread->count->fetch_add(1);
  return nullptr;
}

Thread* TakeThread() {
  const pid_t self = getpid();
  for (Thread& thread : g_threads) {
    pid_t owner = thread.owner.load(std::memory_order_relaxed);
    if (owner != self && thread.owner.compare_exchange_strong(owner, self)) return &thread;
  }
  return nullptr;
}

void GiveBack(Thread* thread) { thread->owner.store(0, std::memory_order_release); }

int CreateThread(Thread* thread) {
  int error = EINVAL;
  for (size_t size = kStackSize; error == EINVAL && size <= kMaxStackSize; size *= 2) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, size);
    error = pthread_create(&thread->id, &attributes, RunThread, thread);
    pthread_attr_destroy(&attributes);
  }
  return error;
}

void* StartThread(void (*entry)(void*), void* argument) {
  Inside inside;
  Thread* thread = TakeThread();
  if (thread == nullptr) return nullptr;
  thread->entry = entry;
  thread->argument = argument;
  thread->count = ThreadCount();

  // A new thread inherits the mask, so it never runs a handler of the program. glibc leaves its
  // own two signals (cancellation, setuid) open.
  const int error = CreateThread(thread);
  if (error != 0) {
    GiveBack(thread);
    return nullptr;
  }
  // Here, not in the new thread: the program's last one may end before that runs.
  if (thread->count != nullptr) thread->count->fetch_sub(1);
  return thread;
}

void JoinThread(void* handle) {
  Inside inside;  // pthread_join is a cancellation point, and a half-done join leaks the thread
  Thread* thread = static_cast<Thread*>(handle);
  pthread_join(thread->id, nullptr);
  GiveBack(thread);
}

// ---------------------------------------------------------------------------------------------
// libpmem.

pmem::Libpmem g_real;    // libpmem's own functions
pmem::Libpmem g_marked;  // the same; those that call libc's file functions are bracketed
const pmem::Libpmem* g_loaded = nullptr;
pthread_once_t g_load_once = PTHREAD_ONCE_INIT;
constexpr size_t kLoadStackSize = size_t{1} << 20;

void* MapFile(const char* path, size_t length, int flags, mode_t mode, size_t* mapped_length,
              int* is_pmem) {
  Inside inside;
  return g_real.map_file(path, length, flags, mode, mapped_length, is_pmem);
}

int Unmap(void* address, size_t length) {
  Inside inside;
  return g_real.unmap(address, length);
}

template <typename Function>
bool Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

void Load() {
  void* library = dlopen("libpmem.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return;
  if (!Find(library, "pmem_map_file", &g_real.map_file) ||
      !Find(library, "pmem_unmap", &g_real.unmap) ||
      !Find(library, "pmem_memcpy", &g_real.memcpy) ||
      !Find(library, "pmem_errormsg", &g_real.errormsg)) {
    dlclose(library);
    return;
  }
  g_marked = g_real;
  g_marked.map_file = MapFile;
  g_marked.unmap = Unmap;
  g_loaded = &g_marked;
}

// If the program is killed meanwhile, this goes, too: it has the program's descriptors and memory,
// but not the thread that holds the loader's lock.
int LoadApart(void* parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() == *static_cast<pid_t*>(parent)) Load();
  return 0;
}

// libpmem's constructor changes the working directory, of the whole process, to look at devices.
// The program's other threads go on meanwhile, and would find their files in /sys. So a process
// with a working directory of its own runs it, in our memory and in this thread's place, as
// posix_spawn does. Another thread would not do: this one may hold the loader's lock.
void LoadOnce() {
  Inside inside;
  using Clone = int (*)(int (*)(void*), void*, int, void*, ...);
  void* libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);  // not the front end's
  Clone clone_libc = nullptr;
  if (libc == nullptr || !Find(libc, "clone", &clone_libc)) return;
  void* stack = mmap(nullptr, kLoadStackSize, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (stack == MAP_FAILED) return;
  pid_t self = getpid();
  const int child = clone_libc(LoadApart, static_cast<char*>(stack) + kLoadStackSize,
                               CLONE_VM | CLONE_VFORK | CLONE_FILES, &self);
  // It has ended, and sends no SIGCHLD. Where no process can be made, the program has to bear it.
  if (child > 0) {
    waitpid(child, nullptr, static_cast<int>(__WCLONE));
  } else {
    Load();
  }
  munmap(stack, kLoadStackSize);
}

const pmem::Libpmem* LoadLibpmem() {
  pthread_once(&g_load_once, LoadOnce);
  return g_loaded;
}

constexpr Host kHost = {StartThread, JoinThread, LoadLibpmem};

}  // namespace

const Host& GlibcHost() { return kHost; }

bool InsideLibpmem() { return t_inside_libpmem != 0; }

}  // namespace nvcache
