// SPDX-License-Identifier: BSD-3-Clause
#include "src/pool/problem.h"

#include <errno.h>

namespace nvcache::pool {

bool Fail(Problem* problem, const char* path, int error, const char* what, const char* advice) {
  constexpr size_t kShown = 200;  // the end of a long path says more
  const size_t length = sys::Length(path);
  problem->error = error;
  problem->text.Clear();
  problem->text.Append("pool ").Append(length > kShown ? "..." : "");
  problem->text.Append(length > kShown ? path + (length - kShown) : path);
  problem->text.Append(" ").Append(what).Append(": ").Append(advice);
  return false;
}

bool FailOpen(Problem* problem, const char* path, long result) {
  static constexpr struct {
    int error;
    const char* what;
    const char* advice;
  } kErrors[] = {
      {ENOENT, "does not exist", "make it with `nvcache create`, or set NVCACHE_SIZE"},
      {EEXIST, "exists already", "use it as it is, or remove it first"},
      {EISDIR, "is a directory", "name a file in it"},
      {ENOTDIR, "has a path that leads through a file", "correct the path"},
      {ELOOP, "has a path with too many symbolic links", "correct the path"},
      {ENAMETOOLONG, "has a path that is too long", "use a shorter one"},
      {EACCES, "may not be opened, permission denied", "run as its owner, or name another pool"},
      {EPERM, "may not be opened, permission denied", "run as its owner, or name another pool"},
      {EROFS, "is on a read-only file system", "mount it for writing, or name another pool"},
      {EMFILE, "cannot be opened, too many files are open", "raise the limit (ulimit -n)"},
      {ENFILE, "cannot be opened, too many files are open", "close some of the system's files"},
  };
  const int error = static_cast<int>(-result);
  for (const auto& known : kErrors) {
    if (known.error == error) return Fail(problem, path, error, known.what, known.advice);
  }
  What what;
  what.Append("cannot be opened, error ").AppendNumber(static_cast<uint64_t>(error));
  return Fail(problem, path, error, what.c_str(), "see errno(3), or name another pool");
}

bool FailMap(Problem* problem, const char* path, long result) {
  if (result == -EMFILE || result == -ENFILE) return FailOpen(problem, path, result);
  What what;
  what.Append("cannot be mapped, error ").AppendNumber(static_cast<uint64_t>(-result));
  return Fail(problem, path, static_cast<int>(-result), what.c_str(),
              "use a devdax device, or a file that can be mapped");
}

bool FailNotPersistent(Problem* problem, const char* path) {
  return Fail(problem, path, ENOTSUP, "is not persistent memory, a power failure would lose data",
              "use devdax or a DAX file system, or accept it with --emulate (NVCACHE_EMULATE=1)");
}

}  // namespace nvcache::pool
