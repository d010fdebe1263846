// SPDX-License-Identifier: BSD-3-Clause
//
// What the operations of the runner are written in.
#ifndef NVCACHE_TESTS_DIFFERENTIAL_CALLS_H_
#define NVCACHE_TESTS_DIFFERENTIAL_CALLS_H_

#include <sys/stat.h>
#include <sys/types.h>

#include <cstdint>
#include <cstdio>
#include <string>

#include "tests/differential/operation.h"
#include "tests/differential/shared.h"

namespace nvcache::differential {

// The trace of one operation: words with blanks between them.
class Line {
 public:
  explicit Line(char* out) : out_(out) {}
  __attribute__((format(printf, 2, 3))) void Add(const char* format, ...);
  // `r=RESULT`, and `e=ERRNO` if it is negative.
  void Result(long result);
  void Digest(const void* bytes, size_t size);

 private:
  char* out_;
  int used_ = 0;
};

struct Call {
  const Operation& op;
  Line& line;
};

// The runner's own process.
inline Shared* g_shared;
inline int g_process;
inline std::string g_root;  // what `/` stands for in an operation's path
inline ProcessState& Me() { return g_shared->processes[g_process]; }

// `fd=`, `from=` and their like name a place in the table of descriptors, -1 stands for itself.
int Descriptor(const Operation& op, const char* key = "fd");
// Puts a new descriptor into the table's place `to=`; what was there is closed first.
void Keep(const Call& call, int fd, const char* key = "to");
// Such a descriptor is closed by fclose, and replaced by freopen, and by nobody else.
bool BelongsToStream(int fd);
std::string Path(const Operation& op, const char* key = "path");
int DirectoryOf(const Operation& op);

// Bytes that tell the operation that wrote them. At most kBuffer, and behind them no memory is.
inline constexpr size_t kBuffer = 1u << 20;
uint8_t* Buffer();
void Fill(uint8_t* bytes, size_t size, uint64_t seed);
// A buffer as `buf=`, `len=` and `data=` say: ok, null, bad, half; `readable` is set to what lies
// before memory ends.
uint8_t* ProgramBuffer(const Operation& op, size_t* readable);

void MakeBuffers();
uint64_t Hash(const void* bytes, size_t size);
void AddStat(const Call& call, const struct stat& st, int dirfd, const char* path, int flags);

// Each returns false when it does not know the operation's name.
bool DoDescriptorCall(const Call& call);
bool DoDataCall(const Call& call);
bool DoNameCall(const Call& call);
bool DoStreamCall(const Call& call);

}  // namespace nvcache::differential

#endif  // NVCACHE_TESTS_DIFFERENTIAL_CALLS_H_
