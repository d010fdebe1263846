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

#include <cstddef>

#include "src/pmem/libpmem.h"
#include "src/sys/thread.h"

namespace nvcache {
namespace {

thread_local bool t_inside_libpmem = false;

// Marks that this thread loads libpmem. No handler of the program may run in between, for its calls
// would be taken for libpmem's, and a cancellation would leave the engine's locks behind. The
// program's malloc may, and use files: those calls, too, are the kernel's, for the engine is
// waiting. Nothing is cached at that time.
class Inside {
 public:
  Inside() : errno_(errno) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &signals_);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state_);
    t_inside_libpmem = true;
  }
  ~Inside() {
    t_inside_libpmem = false;
    pthread_setcancelstate(cancel_state_, nullptr);
    pthread_sigmask(SIG_SETMASK, &signals_, nullptr);
    errno = errno_;
  }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  const int errno_;
  sigset_t signals_;
  int cancel_state_ = 0;
};

pmem::Libpmem g_libpmem;
const pmem::Libpmem* g_loaded = nullptr;
pthread_once_t g_load_once = PTHREAD_ONCE_INIT;
constexpr size_t kLoadStackSize = size_t{1} << 20;

template <typename Function>
bool Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

void Load() {
  void* library = dlopen("libpmem.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return;
  if (!Find(library, "pmem_map_file", &g_libpmem.map_file) ||
      !Find(library, "pmem_unmap", &g_libpmem.unmap) ||
      !Find(library, "pmem_errormsg", &g_libpmem.errormsg)) {
    dlclose(library);
    return;
  }
  g_loaded = &g_libpmem;
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

constexpr Host kHost = {sys::StartThread, sys::JoinThread, LoadLibpmem};

}  // namespace

const Host& GlibcHost() { return kHost; }

bool InsideLibpmem() { return t_inside_libpmem; }

}  // namespace nvcache
