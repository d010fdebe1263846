// SPDX-License-Identifier: BSD-3-Clause
//
// Reading, writing, sizes, moving data between files.
#include <aio.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <map>
#include <semaphore>
#include <vector>

#include "tests/differential/calls.h"
#include "tests/differential/libc.h"

namespace nvcache::differential {
namespace {

constexpr size_t kPage = 4096;
constexpr uint8_t kUntouched = 0xa5;

// From this number on, pieces share the bytes; of fewer, each takes a good part of what is left.
constexpr int kManyPieces = 100;

// The buffer of a call in `vec=` pieces of unequal length.
struct Vector {
  std::vector<iovec> pieces;
  iovec* array;
  int count;
};

Vector MakeVector(const Operation& op, uint8_t* buffer) {
  Vector result;
  result.count = static_cast<int>(op.Number("vec", 1));
  const int pieces = std::clamp(result.count, 1, 2000);
  auto left = static_cast<size_t>(op.Number("len"));
  for (int i = 0; i < pieces; ++i) {
    const auto turn = static_cast<size_t>((op.Number("data") + i) % 3);
    const size_t share = left / static_cast<size_t>(pieces - i);
    const size_t part = pieces < kManyPieces ? left / (2 + turn) : std::min(left, share * turn);
    const size_t n = i + 1 == pieces ? left : part;
    result.pieces.push_back({buffer, n});
    if (buffer != nullptr) buffer += n;
    left -= n;
  }
  result.array =
      op.Text("iov") == "bad" ? reinterpret_cast<iovec*>(Buffer() + kBuffer) : result.pieces.data();
  return result;
}

// What is in the kernel's memory is the kernel's business; so a read with RWF_NOWAIT that gets less
// is made again. ext4 refuses such writes, and nobody has to.
long ReadWithFlags(int fd, const Vector& vector, off_t offset, int flags, long wanted) {
  if (offset == -1) flags &= ~RWF_NOWAIT;
  const long n = preadv2(fd, vector.array, vector.count, offset, flags);
  const bool refused = n >= 0 ? n < wanted : errno == EAGAIN || errno == EOPNOTSUPP;
  if ((flags & RWF_NOWAIT) == 0 || !refused) return n;
  return preadv2(fd, vector.array, vector.count, offset, flags & ~RWF_NOWAIT);
}

// With `stack=small` a call is made on the smallest stack that glibc allows, with a page below that
// must not be touched, and memory below that which must stay as it is.
class SmallStack {
 public:
  static constexpr size_t kSize = 16384;   // PTHREAD_STACK_MIN
  static constexpr size_t kBelow = 65536;  // bytes

  // One for each process, and for its children after fork.
  static SmallStack& Get() {
    static SmallStack stack;
    return stack;
  }

  bool IsBelowUntouched() const {
    return std::all_of(memory_, memory_ + kBelow, [](uint8_t byte) { return byte == 0; });
  }

  // errno comes along.
  template <typename Function>
  long Run(Function function) {
    struct Job {
      Function function;
      long result;
      int error;
    } job = {function, 0, errno};
    const auto entry = [](void* argument) -> void* {
      Job& that = *static_cast<Job*>(argument);
      errno = that.error;
      that.result = that.function();
      that.error = errno;
      return nullptr;
    };
    pthread_attr_t attributes;
    pthread_t thread;
    if (pthread_attr_init(&attributes) != 0 ||
        pthread_attr_setstack(&attributes, memory_ + kBelow + kPage, kSize) != 0 ||
        pthread_create(&thread, &attributes, entry, &job) != 0 ||
        pthread_join(thread, nullptr) != 0) {
      abort();
    }
    pthread_attr_destroy(&attributes);
    errno = job.error;
    return job.result;
  }

 private:
  SmallStack() {
    void* memory = mmap(nullptr, kBelow + kPage + kSize, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) abort();
    memory_ = static_cast<uint8_t*>(memory);
    if (mprotect(memory_ + kBelow, kPage, PROT_NONE) != 0) abort();
  }

  uint8_t* memory_;
};

long TransferVector(const Operation& op, const Vector& vector) {
  const std::string& name = op.name();
  const int fd = Descriptor(op);
  const off_t offset = op.Number("off");
  const int flags = static_cast<int>(op.Number("flags"));
  if (name == "readv") return readv(fd, vector.array, vector.count);
  if (name == "writev") return writev(fd, vector.array, vector.count);
  if (name == "preadv") return preadv(fd, vector.array, vector.count, offset);
  if (name == "pwritev") return pwritev(fd, vector.array, vector.count, offset);
  if (name == "preadv2") return ReadWithFlags(fd, vector, offset, flags, op.Number("len"));
  return pwritev2(fd, vector.array, vector.count, offset, flags & ~RWF_NOWAIT);
}

long Transfer(const Operation& op, uint8_t* buffer) {
  const std::string& name = op.name();
  const int fd = Descriptor(op);
  const auto length = static_cast<size_t>(op.Number("len"));
  const off_t offset = op.Number("off");
  if (name == "read") return read(fd, buffer, length);
  if (name == "write") return write(fd, buffer, length);
  if (name == "pread") return pread(fd, buffer, length, offset);
  if (name == "pwrite") return pwrite(fd, buffer, length, offset);
  const Vector vector = MakeVector(op, buffer);
  if (!op.Has("stack")) return TransferVector(op, vector);
  const long result = SmallStack::Get().Run([&] { return TransferVector(op, vector); });
  const int error = errno;
  if (!SmallStack::Get().IsBelowUntouched()) abort();
  errno = error;
  return result;
}

bool IsDirect(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  return flags >= 0 && (flags & O_DIRECT) != 0;
}

// Of a direct write that is not aligned, as much as is in the first extent may be written before it
// is refused; what a direct read says depends on extents, too.
bool IsUnalignedDirect(const Operation& op) {
  if (!IsDirect(Descriptor(op))) return false;
  const long offset = op.Has("off") ? op.Number("off") : lseek(Descriptor(op), 0, SEEK_CUR);
  return (op.Number("len") | offset) % 512 != 0 || op.Number("vec", 1) != 1 || op.Has("buf");
}

// What is behind the bytes read must be as it was.
void Reading(const Call& call) {
  if (IsUnalignedDirect(call.op)) return call.line.Add("skipped");
  size_t there = 0;
  uint8_t* buffer = ProgramBuffer(call.op, &there);
  if (there > 0) std::memset(buffer, kUntouched, there);
  errno = 0;
  const long result = Transfer(call.op, buffer);
  call.line.Result(result);
  if (result >= 0 && there > 0) call.line.Digest(buffer, there);
}

// ext4 (6.18) lets a file grow up to the offset of a write of which it finds no byte.
bool GrowsWithoutBytes(const Operation& op) {
  struct stat st;
  const int fd = Descriptor(op);
  if (fstat(fd, &st) != 0) return false;
  return std::max(op.Number("off"), lseek(fd, 0, SEEK_CUR)) > st.st_size;
}

void Writing(const Call& call) {
  if (IsUnalignedDirect(call.op)) return call.line.Add("skipped");
  size_t there = 0;
  uint8_t* buffer = ProgramBuffer(call.op, &there);
  if (there == 0 && call.op.Has("buf") && GrowsWithoutBytes(call.op)) {
    return call.line.Add("skipped");
  }
  if (there > 0) Fill(buffer, there, static_cast<uint64_t>(call.op.Number("data")));
  errno = 0;
  call.line.Result(Transfer(call.op, buffer));
}

void Seek(const Call& call) {
  call.line.Result(lseek(Descriptor(call.op), call.op.Number("off"),
                         static_cast<int>(call.op.Number("whence"))));
}

// Where a file system sees data in a file depends on when it has written it. What must be: data
// and holes alternate up to the end, and there are zeros in the holes.
void Holes(const Call& call) {
  const int fd = Descriptor(call.op);
  const off_t at = lseek(fd, 0, SEEK_CUR);
  if (at < 0) return call.line.Result(-1);
  const off_t end = lseek(fd, 0, SEEK_END);
  bool good = true;
  int steps = 0;
  for (off_t hole = 0; hole < end && good && steps < 1000; ++steps) {
    off_t data = lseek(fd, hole, SEEK_DATA);
    const int error = errno;
    if (data < 0) good = error == ENXIO;
    if (data < 0) data = end;
    good = good && data >= hole && data <= end;
    // The beginning and the end of the hole are looked at.
    uint8_t bytes[kPage];
    for (const off_t from : {hole, std::max(hole, data - static_cast<off_t>(kPage))}) {
      const auto want = static_cast<size_t>(std::min<off_t>(data - from, kPage));
      const ssize_t n = want > 0 ? pread(fd, bytes, want, from) : 0;
      for (ssize_t i = 0; i < n; ++i) good = good && bytes[i] == 0;
    }
    if (data >= end) break;
    hole = lseek(fd, data, SEEK_HOLE);
    good = good && hole > data && hole <= end;
  }
  call.line.Add("end=%ld consistent=%d back=%ld", static_cast<long>(end), good,
                static_cast<long>(lseek(fd, at, SEEK_SET)));
}

// ---------------------------------------------------------------------------------------------
// Sizes and flushes.

void Ftruncate(const Call& call) {
  call.line.Result(ftruncate(Descriptor(call.op), call.op.Number("len")));
}
void Truncate(const Call& call) {
  call.line.Result(truncate(Path(call.op).c_str(), call.op.Number("len")));
}
void Fallocate(const Call& call) {
  call.line.Result(fallocate(Descriptor(call.op), static_cast<int>(call.op.Number("mode")),
                             call.op.Number("off"), call.op.Number("len")));
}
void PosixFallocate(const Call& call) {
  call.line.Add("r=%d",
                posix_fallocate(Descriptor(call.op), call.op.Number("off"), call.op.Number("len")));
}
void Fsync(const Call& call) { call.line.Result(fsync(Descriptor(call.op))); }
void Fdatasync(const Call& call) { call.line.Result(fdatasync(Descriptor(call.op))); }
void SyncRange(const Call& call) {
  call.line.Result(sync_file_range(Descriptor(call.op), call.op.Number("off"),
                                   call.op.Number("len"),
                                   static_cast<unsigned>(call.op.Number("flags"))));
}
void Syncfs(const Call& call) { call.line.Result(syncfs(Descriptor(call.op))); }

void Advise(const Call& call) {
  call.line.Add("r=%d",
                posix_fadvise(Descriptor(call.op), call.op.Number("off"), call.op.Number("len"),
                              static_cast<int>(call.op.Number("advice"))));
}
void ReadAhead(const Call& call) {
  call.line.Result(readahead(Descriptor(call.op), call.op.Number("off"),
                             static_cast<size_t>(call.op.Number("len"))));
}

// ---------------------------------------------------------------------------------------------
// From file to file.

// Null where the key is missing: the descriptor's own offset.
off_t* OffsetOf(const Operation& op, const char* key, off_t* offset) {
  *offset = op.Number(key);
  return op.Has(key) ? offset : nullptr;
}

// The kernel cuts it in pieces, which are not aligned.
bool MovesDirectly(const Operation& op) {
  return op.Has("out") ? IsDirect(Descriptor(op, "out")) || IsDirect(Descriptor(op, "in"))
                       : IsDirect(Descriptor(op));
}

void Sendfile(const Call& call) {
  if (MovesDirectly(call.op)) return call.line.Add("skipped");
  off_t offset;
  off_t* from = OffsetOf(call.op, "off", &offset);
  call.line.Result(sendfile(Descriptor(call.op, "out"), Descriptor(call.op, "in"), from,
                            static_cast<size_t>(call.op.Number("len"))));
  call.line.Add("off=%ld", static_cast<long>(offset));
}

void CopyRange(const Call& call) {
  if (MovesDirectly(call.op)) return call.line.Add("skipped");
  off_t in_offset;
  off_t out_offset;
  off_t* in = OffsetOf(call.op, "off", &in_offset);
  off_t* out = OffsetOf(call.op, "to", &out_offset);
  call.line.Result(copy_file_range(Descriptor(call.op, "in"), in, Descriptor(call.op, "out"), out,
                                   static_cast<size_t>(call.op.Number("len")), 0));
  call.line.Add("off=%ld to=%ld", static_cast<long>(in_offset), static_cast<long>(out_offset));
}

constexpr size_t kPipe = 32768;

void SpliceOut(const Call& call) {
  if (MovesDirectly(call.op)) return call.line.Add("skipped");
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return call.line.Result(-1);
  off_t offset;
  off_t* from = OffsetOf(call.op, "off", &offset);
  const size_t length = std::min(kPipe, static_cast<size_t>(call.op.Number("len")));
  const ssize_t n = splice(Descriptor(call.op), from, ends[1], nullptr, length, SPLICE_F_NONBLOCK);
  call.line.Result(n);
  if (n > 0) call.line.Digest(Buffer(), static_cast<size_t>(read(ends[0], Buffer(), kPipe)));
  call.line.Add("off=%ld", static_cast<long>(offset));
  close(ends[0]);
  close(ends[1]);
}

void SpliceIn(const Call& call) {
  if (MovesDirectly(call.op)) return call.line.Add("skipped");
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return call.line.Result(-1);
  const size_t length = std::min(kPipe, static_cast<size_t>(call.op.Number("len")));
  Fill(Buffer(), length, static_cast<uint64_t>(call.op.Number("data")));
  off_t offset;
  off_t* to = OffsetOf(call.op, "off", &offset);
  const ssize_t filled = write(ends[1], Buffer(), length);
  call.line.Result(splice(ends[0], nullptr, Descriptor(call.op), to, static_cast<size_t>(filled),
                          SPLICE_F_NONBLOCK));
  call.line.Add("off=%ld", static_cast<long>(offset));
  close(ends[0]);
  close(ends[1]);
}

void Clone(const Call& call) {
  call.line.Result(ioctl(Descriptor(call.op, "out"), FICLONE, Descriptor(call.op, "in")));
}

// ---------------------------------------------------------------------------------------------
// POSIX AIO: one request, and waiting for it.

// What musl knows of a descriptor that has a request (that it is open, whether it appends) it
// forgets a moment after the request is done, and notifies then. The next request must not find it:
// its descriptor may be another one of the same number.
#ifdef __GLIBC__
constexpr bool kForgetsLate = false;
#else
constexpr bool kForgetsLate = true;
#endif
std::binary_semaphore g_forgotten(0);
void Forgotten(sigval) { g_forgotten.release(); }

void Aio(const Call& call) {
  if (g_process != 0 && Me().used_aio) return call.line.Add("skipped");
  Me().used_aio = true;
  const std::string& name = call.op.name();
  const auto length = static_cast<size_t>(call.op.Number("len"));
  struct aiocb request = {};
  request.aio_fildes = Descriptor(call.op);
  request.aio_buf = Buffer();
  request.aio_nbytes = std::min(length, kBuffer);
  request.aio_offset = call.op.Number("off");
  if (kForgetsLate) {
    request.aio_sigevent.sigev_notify = SIGEV_THREAD;
    request.aio_sigevent.sigev_notify_function = Forgotten;
  }
  int result;
  if (name == "aio_write") {
    Fill(Buffer(), request.aio_nbytes, static_cast<uint64_t>(call.op.Number("data")));
    result = aio_write(&request);
  } else if (name == "aio_read") {
    std::memset(Buffer(), kUntouched, request.aio_nbytes);
    result = aio_read(&request);
  } else {
    result = aio_fsync(O_SYNC, &request);
  }
  if (result < 0) return call.line.Result(result);
  const struct aiocb* list[] = {&request};
  while (aio_error(&request) == EINPROGRESS) aio_suspend(list, 1, nullptr);
  if (kForgetsLate) g_forgotten.acquire();
  const int error = aio_error(&request);
  const ssize_t n = aio_return(&request);
  call.line.Add("r=%ld e=%s", static_cast<long>(n), ErrorName(error).c_str());
  if (name == "aio_read") call.line.Digest(Buffer(), request.aio_nbytes);
}

}  // namespace

bool DoDataCall(const Call& call) {
  static const std::map<std::string, void (*)(const Call&)> kCalls = {
      {"read", Reading},
      {"pread", Reading},
      {"readv", Reading},
      {"preadv", Reading},
      {"preadv2", Reading},
      {"write", Writing},
      {"pwrite", Writing},
      {"writev", Writing},
      {"pwritev", Writing},
      {"pwritev2", Writing},
      {"lseek", Seek},
      {"holes", Holes},
      {"ftruncate", Ftruncate},
      {"truncate", Truncate},
      {"fallocate", Fallocate},
      {"posix_fallocate", PosixFallocate},
      {"fsync", Fsync},
      {"fdatasync", Fdatasync},
      {"sync_file_range", SyncRange},
      {"syncfs", Syncfs},
      {"posix_fadvise", Advise},
      {"readahead", ReadAhead},
      {"sendfile", Sendfile},
      {"copy_file_range", CopyRange},
      {"splice_out", SpliceOut},
      {"splice_in", SpliceIn},
      {"ficlone", Clone},
      {"aio_write", Aio},
      {"aio_read", Aio},
      {"aio_fsync", Aio},
  };
  const auto found = kCalls.find(call.op.name());
  if (found != kCalls.end()) found->second(call);
  return found != kCalls.end();
}

}  // namespace nvcache::differential
