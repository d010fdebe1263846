// SPDX-License-Identifier: BSD-3-Clause
//
// Whether every call by which the process can change or read a file comes to us (I17). Code that
// calls the kernel past libc can: so the code is looked at (src/rawcall) before the pool is
// attached, and code that comes later when it comes.
//
//   kNotLooked --- Know(): nothing was found -------------> kCaught
//              --- Know(): an object calls past libc -----> kRaw
//   kCaught    --- the same, of what has come since ------> kRaw
//
// A raw process has every file as the kernel's for the rest of its life, and each of its syncs is
// real: nothing is cached, nothing is in the log, no folder is known; other processes take what it
// opens for writing as written unseen.
#ifndef NVCACHE_VFS_ENGINE_CALLERS_H_
#define NVCACHE_VFS_ENGINE_CALLERS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "src/sys/text.h"

namespace nvcache::vfs {

// Executable memory of a program's own making that is not larger may be a stub that makes a call;
// what is larger belongs to a compiler, and compilers call libc.
inline constexpr size_t kLargestStub = 64 << 10;

class Callers {
 public:
  constexpr Callers() = default;

  // Once, when the settings are known.
  void Begin();
  // Looks at all that has come since it last did. False: the process is raw. `starts`: the program
  // has not begun. No lock: it calls the dynamic linker, and may publish files.
  bool Know(bool starts = false);
  // No lock, in both.
  bool are_known() const { return coverage_.load(std::memory_order_acquire) == Coverage::kCaught; }
  bool are_raw() const { return coverage_.load(std::memory_order_relaxed) == Coverage::kRaw; }

  // A path of the program's leads the engine where it leads the function that the program would
  // have reached. Else a library behind the front end may give it another meaning, and only that
  // function is given it (docs/architecture.md#paths).
  bool see_paths() const { return interposer_ == nullptr; }
  // A call by such a path may be under way, so nothing begins to be cached. Table lock, to begin.
  bool in_unseen() const { return unseen_.load() != 0; }
  void BeginUnseen() { unseen_.fetch_add(1); }
  void EndUnseen() { unseen_.fetch_sub(1); }
  // In a child of fork: they are its parent's.
  void ForgetUnseen() {
    if (in_unseen()) unseen_.store(0);
  }
  // Says so, if it is not so. The leases are open.
  void SayInterposed() const;

  // Somebody can look, and it is asked for.
  static bool looks();
  // The dynamic linker has loaded something. No lock.
  void LookAtLoaded();
  // The program has made memory executable. Any time.
  void NoteExecutable() { made_.fetch_add(1); }
  // It was made so after Know(): looks at it. No lock.
  void LookAtMemory(const void* address, size_t n);
  // Code calls that is not to be looked at. No lock.
  void BecomeRaw(const char* culprit, bool starts = false);

 private:
  enum class Coverage : uint8_t { kNotLooked, kCaught, kRaw };

  bool HasNews() const;
  bool Look(sys::Text<256>* culprit);
  bool LookAtObjects(sys::Text<256>* culprit);
  static bool LookAtMappings(sys::Text<256>* culprit);

  const char* interposer_ = nullptr;
  std::atomic<uint32_t> unseen_{0};  // calls
  std::atomic<Coverage> coverage_{Coverage::kNotLooked};
  std::atomic<uint64_t> made_{0};  // how often the program has made memory executable
  // Host::count_loads(), and made_, before what has found nothing: a thread that is still looking
  // has told nobody that there is nothing.
  std::atomic<uint64_t> loads_{0}, looked_made_{0};
};

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_ENGINE_CALLERS_H_
