// SPDX-License-Identifier: BSD-3-Clause
//
// The program in the guest of pages_test.py. It knows nothing of NVCache.
//
//   agent laps FILE     writes 64 MiB to a small file, 4 KiB each; once more; and again after a
//                       sync(). The page faults of each are a line that begins with @
//   agent fill FILE     writes as much once
//   agent shatter FILE  takes all room of the file system, and gives every second 64 KiB back; and
//                       takes what it got no hold of, which is in one piece
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

constexpr long kPage = 4096;
constexpr long kLap = 64L << 20;
constexpr long kFile = 1L << 20;  // to make it meets little of the pool
constexpr int kSyncs = 5;         // by then it is hot
constexpr long kPiece = 64L << 10;

void Must(bool good, const char* what) {
  if (good) return;
  std::perror(what);
  std::_Exit(1);
}

long Faults() {
  rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt + usage.ru_majflt;
}

void Write(int fd, long bytes) {
  static const std::vector<char> page(kPage, 'x');
  for (long at = 0; at < bytes; at += kPage) {
    Must(::pwrite(fd, page.data(), kPage, at % kFile) == kPage, "pwrite");
  }
  Must(::fsync(fd) == 0, "fsync");
}

void Lap(int fd) {
  const long before = Faults();
  Write(fd, kLap);
  std::printf("@lap %ld\n", Faults() - before);
  std::fflush(stdout);
}

void MakeHot(int fd) {
  Write(fd, kFile);
  for (int i = 1; i < kSyncs; ++i) Write(fd, kPage);
}

void Laps(int fd) {
  Lap(fd);
  Lap(fd);
  ::sync();
  Lap(fd);
}

void Shatter(int fd, const std::string& path) {
  long end = 0;
  for (long some = kLap; some >= kPage; some /= 2) {
    while (::fallocate(fd, 0, end, some) == 0) end += some;
  }
  for (long at = 0; at < end; at += 2 * kPiece) {
    Must(::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, kPiece) == 0, "punch");
  }
  const int rest = ::open((path + ".rest").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  Must(rest >= 0 && ::fallocate(rest, 0, 0, kLap) == 0, "rest");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const int fd = ::open(argv[2], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  Must(fd >= 0, argv[2]);
  const std::string what = argv[1];
  if (what == "shatter") {
    Shatter(fd, argv[2]);
  } else {
    MakeHot(fd);
    what == "fill" ? Write(fd, kLap) : Laps(fd);
  }
}
