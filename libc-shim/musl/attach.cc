// SPDX-License-Identifier: BSD-3-Clause
//
// The engine in a musl program: every system call that libc makes is offered to it by number
// (front_end.h), and answered as libc-shim/calls has it for all front ends.
#include <errno.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "libc-shim/calls/by_number.h"
#include "libc-shim/calls/calls.h"
#include "libc-shim/calls/signal.h"
#include "libc-shim/musl/front_end.h"
#include "src/pool/note.h"
#include "src/sys/kernel.h"
#include "src/sys/thread.h"
#include "src/vfs/vfs.h"

// Not there in another libc: a user who preloads the library into a program of glibc's shall be
// told.
#pragma weak __nvcache_register
#pragma weak __nvcache_cancellable

// rt_sigreturn, in the bytes by which debuggers and unwinders know the frame of a signal.
extern "C" void nvcache_return_from_handler();
asm(".text\n"
    "  nop\n"
    ".globl nvcache_return_from_handler\n"
    ".hidden nvcache_return_from_handler\n"
    ".type nvcache_return_from_handler, @function\n"
    "nvcache_return_from_handler:\n"
    "  mov $15, %rax\n"
    "  syscall\n"
    ".size nvcache_return_from_handler, .-nvcache_return_from_handler\n");

NVCACHE_NOTE(NVCACHE_FRONT_END_VERSION);

namespace nvcache {

namespace calls {

// Streams make the same system calls as everybody.
bool HasStream(int /*fd*/) { return false; }

// Timers, cancellation, and what all threads have to do at once.
bool IsSignalOfLibc(long signal) { return signal >= 32 && signal <= 34; }

int RealSigaction(int signal, const struct sigaction* action, struct sigaction* old) {
  constexpr int kRestorer = 0x04000000;  // SA_RESTORER, of the kernel
  if (IsSignalOfLibc(signal)) return static_cast<int>(FromAnswer(-EINVAL));
  if (action == nullptr) return KernelSigaction(signal, nullptr, old);
  struct sigaction ours = *action;
  ours.sa_flags |= kRestorer;
  ours.sa_restorer = nvcache_return_from_handler;
  return KernelSigaction(signal, &ours, old);
}

long MakeCall(const Call& call) {
  const long* r = call.registers;
  const long result = call.cancellable ? __nvcache_cancellable(call.number, r)
                                       : sys::Call(call.number, r[0], r[1], r[2], r[3], r[4], r[5]);
  return sys::IsError(result) ? FromAnswer(result) : result;
}

}  // namespace calls

namespace musl {
namespace {

// Whether this thread makes a child that shares its memory: neither may use the engine until the
// child has a program of its own.
[[gnu::tls_model("initial-exec")]] constinit thread_local bool spawning = false;

// errno is libc's to set, from the result.
int Offer(long number, const long registers[6], int cancellable, long* result) {
  const calls::Handler handler = calls::HandlerOf(number);
  if (handler == nullptr || spawning) return 0;
  int* const error = &errno;
  const int saved_errno = *error;
  const long answer = handler({number, registers, cancellable != 0});
  *result = answer == -1 ? -*error : answer;
  *error = saved_errno;
  return 1;
}

void Spawn(int begins) {
  // No error can be told here: the program is started, and what it says waits as well.
  if (begins != 0) calls::MayLeave(vfs::Output::kExit);
  if (begins != 0) vfs::BeforeSpawn();
  spawning = begins != 0;
}

// A disk that refuses the bytes is left to fsync and close to report.
void HandOver(int fd) { vfs::HandOn(fd); }

void Retire() { vfs::Retire(vfs::Hindrance::kTables); }

void Rights(int begins) { begins != 0 ? vfs::BeforeRights() : vfs::AfterRights(); }

constexpr nvcache_front_end kFrontEnd = {
    NVCACHE_FRONT_END_VERSION, Offer, Spawn, Retire, HandOver, Rights, vfs::LeaveInChild};

// A program with more rights than its user must not write where the user's environment says.
bool IsPrivileged() { return getauxval(AT_SECURE) != 0; }

}  // namespace
}  // namespace musl
}  // namespace nvcache

// Before the constructors of the program, which may open files; in a static program these would
// come first without a priority. It is linked with this name wanted, which brings the engine in.
constexpr int kFirst = 101;  // the first that is not the compiler's own
extern "C" __attribute__((constructor(kFirst), visibility("default"))) void __nvcache_attach() {
  using namespace nvcache;
  const int saved_errno = errno;  // the program finds zero
  if (musl::IsPrivileged()) return;
  if (__nvcache_register == nullptr) {
    vfs::Refuse(
        environ,
        "libnvcache-musl.so is for programs of the modified musl, which load it by themselves; "
        "preload libnvcache.so instead");
    return;
  }
  if (__nvcache_register(&musl::kFrontEnd) != 0) {
    vfs::Refuse(
        environ,
        "libnvcache-musl.so and the libc are of different versions; install the two together");
    return;
  }
  if (vfs::Start(sys::kOwnThreads, environ)) {
    calls::ManageSignals(true);
  } else {
    __nvcache_register(nullptr);
  }
  errno = saved_errno;
}
