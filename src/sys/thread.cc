// SPDX-License-Identifier: BSD-3-Clause
#include "src/sys/thread.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/prctl.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "src/sys/deferral.h"
#include "src/sys/kernel.h"

namespace nvcache::sys {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kGuardSize = kPage;
constexpr size_t kStackSize = size_t{256} << 10;
// libc's descriptor of the thread, at the thread pointer: nothing of it is used but its address in
// its first word, and the canary of stacks.
constexpr size_t kDescriptorSize = kPage;
constexpr size_t kCanary = 0x28;  // bytes behind the thread pointer, by the ABI of x86-64

// A running thread of the engine; its address is the handle. Its memory, from the lowest address
// on: a page that stops a stack that overflows, the stack, thread-local storage, libc's descriptor.
struct Thread {
  std::atomic<long> owner;  // 0: none; a process that was forked has none of its parent's
  uint8_t* memory;
  size_t size;
  std::atomic<uint32_t> id;  // 0 when it has ended
  void (*entry)(void*);
  void* argument;
};

// A fixed number of them, because the program's malloc may be waiting for us.
constexpr size_t kMaxThreads = 8;
constinit Thread g_threads[kMaxThreads] = {};

uintptr_t ThreadPointer() {
  uintptr_t pointer;
  asm("mov %%fs:0, %0" : "=r"(pointer));
  return pointer;
}

// How far below the thread pointer the engine's thread-local variables lie, which are neighbours.
// The program's variables in between are there, too, as zeros; no code uses them.
size_t StorageSize() {
  static_assert(sizeof(Deferral) < kPage / 4);
  const size_t distance = ThreadPointer() - reinterpret_cast<uintptr_t>(&deferral);
  return (distance + 2 * kPage) / kPage * kPage;
}

// With the memory of a thread that a fork has left behind.
Thread* TakeThread() {
  const long self = Getpid();
  for (Thread& thread : g_threads) {
    long owner = thread.owner.load(std::memory_order_relaxed);
    if (owner == self || !thread.owner.compare_exchange_strong(owner, self)) continue;
    if (owner != 0) Munmap(thread.memory, thread.size);
    return &thread;
  }
  return nullptr;
}

void GiveBack(Thread* thread) { thread->owner.store(0, std::memory_order_release); }

bool MapMemory(Thread* thread, size_t storage) {
  thread->size = kGuardSize + kStackSize + storage + kDescriptorSize;
  const long memory = Mmap(nullptr, thread->size, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (IsError(memory)) return false;
  thread->memory = reinterpret_cast<uint8_t*>(memory);
  Call(SYS_mprotect, memory, kGuardSize, PROT_NONE);
  return true;
}

extern "C" [[noreturn, gnu::used, gnu::visibility("hidden")]] void nvcache_run_thread(
    Thread* self) {
  Call(SYS_prctl, PR_SET_NAME, Address("nvcache"));
  self->entry(self->argument);
  for (;;) Call(SYS_exit, 0);
}

// The system call, and in the child nvcache_run_thread with the two words on top of its stack.
extern "C" long nvcache_clone(unsigned long flags, void* stack, void* parent_id, void* child_id,
                              uintptr_t thread_pointer);
// clang-format off
asm(".text\n"
    ".globl nvcache_clone\n"
    ".hidden nvcache_clone\n"
    ".type nvcache_clone, @function\n"
    "nvcache_clone:\n"
    "  .cfi_startproc\n"
    "  mov %rcx, %r10\n"
    "  mov $56, %eax\n"
    "  syscall\n"
    "  test %eax, %eax\n"
    "  jz 1f\n"
    "  ret\n"
    "1:\n"
    "  .cfi_undefined rip\n"
    "  xor %ebp, %ebp\n"
    "  pop %rdi\n"
    "  call nvcache_run_thread\n"
    "  .cfi_endproc\n"
    ".size nvcache_clone, .-nvcache_clone\n");
// clang-format on
static_assert(SYS_clone == 56);

// With every signal blocked, libc's own, too: their handlers would look for libc's descriptor.
long Clone(Thread* thread, size_t storage) {
  constexpr unsigned long kFlags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND |
                                   CLONE_THREAD | CLONE_SYSVSEM | CLONE_SETTLS |
                                   CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID;
  uint8_t* stack_end = thread->memory + kGuardSize + kStackSize;
  auto** stack = reinterpret_cast<Thread**>(stack_end) - 1;
  *stack = thread;
  const auto pointer = reinterpret_cast<uintptr_t>(stack_end + storage);
  *reinterpret_cast<uintptr_t*>(pointer) = pointer;
  *reinterpret_cast<uintptr_t*>(pointer + kCanary) =
      *reinterpret_cast<uintptr_t*>(ThreadPointer() + kCanary);

  const uint64_t all = ~uint64_t{0};
  uint64_t before = 0;
  Call(SYS_rt_sigprocmask, SIG_SETMASK, Address(&all), Address(&before), sizeof(all));
  const long id = nvcache_clone(kFlags, stack, &thread->id, &thread->id, pointer);
  Call(SYS_rt_sigprocmask, SIG_SETMASK, Address(&before), 0, sizeof(before));
  return id;
}

}  // namespace

void* StartThread(void (*entry)(void*), void* argument) {
  Thread* thread = TakeThread();
  if (thread == nullptr) return nullptr;
  thread->entry = entry;
  thread->argument = argument;
  const size_t storage = StorageSize();
  if (!MapMemory(thread, storage)) {
    GiveBack(thread);
    return nullptr;
  }
  if (Clone(thread, storage) < 0) {
    Munmap(thread->memory, thread->size);
    GiveBack(thread);
    return nullptr;
  }
  return thread;
}

// The kernel clears the number when the thread is gone, and wakes the threads that wait for that.
void JoinThread(void* handle) {
  auto* thread = static_cast<Thread*>(handle);
  for (uint32_t id; (id = thread->id.load()) != 0;) {
    Call(SYS_futex, Address(&thread->id), FUTEX_WAIT, static_cast<long>(id));
  }
  Munmap(thread->memory, thread->size);
  GiveBack(thread);
}

}  // namespace nvcache::sys
