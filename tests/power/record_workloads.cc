// SPDX-License-Identifier: BSD-3-Clause
//
// records-KIND: record after record, of some hundred bytes, to three files by turns; each is synced
// by itself, and acknowledged then. KIND says how. Old records are written over in time. The newest
// record of each place is there, and whole; of the one that was not acknowledged, anything.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tests/power/workload.h"

namespace nvcache::power_test {
namespace {

constexpr unsigned kFiles = 3;
constexpr uint64_t kPlaces = 600;   // of all files
constexpr uint64_t kPlace = 700;    // bytes
constexpr uint64_t kInFlight = 20;  // one for each writer in turn that was killed with its first
constexpr uint64_t kFileSize = kPlaces / kFiles * kPlace;

unsigned long long Long(uint64_t n) { return n; }

enum class How { kFsync, kFdatasync, kDsync, kRwf, kMsync, kSyncfs };
constexpr std::pair<const char*, How> kKinds[] = {
    {"records-fsync", How::kFsync}, {"records-fdatasync", How::kFdatasync},
    {"records-dsync", How::kDsync}, {"records-rwf", How::kRwf},
    {"records-msync", How::kMsync}, {"records-syncfs", How::kSyncfs},
};

class Records : public Workload {
 public:
  Records(const Settings& settings, How how) : Workload(settings), how_(how) {}

  void Run(uint64_t done) override {
    Open();
    for (uint64_t number = done + 1;; ++number) {
      Write(number);
      Acknowledge(number);
    }
  }

  Verdict Check(uint64_t acknowledged, uint64_t) override {
    std::vector<uint8_t> files[kFiles];
    for (unsigned i = 0; i < kFiles; ++i) {
      bool exists;
      files[i] = ReadFile(Path(kNames[i]), &exists);
      if (!exists && acknowledged > i) return Bad("file %s is not there", kNames[i]);
      files[i].resize(kFileSize);
    }
    const auto is_there = [&](uint64_t number) {
      const std::vector<uint8_t> bytes = Bytes(number);
      return std::equal(bytes.begin(), bytes.end(), &files[FileOf(number)][PlaceOf(number)]);
    };
    // Those after the acknowledged ones may have taken the places of the oldest.
    const uint64_t places = std::min(acknowledged, kPlaces - kInFlight);
    for (uint64_t number = acknowledged; number > acknowledged - places; --number) {
      if (!is_there(number)) {
        return Bad("record %llu of %llu that are acknowledged is missing", Long(number),
                   Long(acknowledged));
      }
    }
    uint64_t found = acknowledged;
    while (is_there(found + 1)) ++found;
    if (found - acknowledged > kInFlight) return Bad("%llu records are there", Long(found));
    return Good(found);
  }

 private:
  static constexpr const char* kNames[] = {"a", "b", "c"};

  static unsigned FileOf(uint64_t number) { return static_cast<unsigned>(number % kFiles); }
  static uint64_t PlaceOf(uint64_t number) { return number % kPlaces / kFiles * kPlace; }
  std::vector<uint8_t> Bytes(uint64_t number) const {
    Random random(seed() ^ number);
    return Content(seed() ^ number << 20, 8 + random.Below(kPlace - 8));
  }
  bool Syncs() const { return promise() != Promise::kNothing; }

  void Open() {
    const int flags = how_ == How::kDsync && Syncs() ? O_DSYNC : 0;
    for (unsigned i = 0; i < kFiles; ++i) {
      fds_[i] = ::open(Path(kNames[i]).c_str(), O_RDWR | O_CREAT | O_CLOEXEC | flags, 0644);
      if (fds_[i] < 0) Die("open");
      if (how_ != How::kMsync) continue;
      if (::ftruncate(fds_[i], kFileSize) != 0) Die("ftruncate");
      void* const at = ::mmap(nullptr, kFileSize, PROT_READ | PROT_WRITE, MAP_SHARED, fds_[i], 0);
      if (at == MAP_FAILED) Die("mmap");
      maps_[i] = static_cast<uint8_t*>(at);
    }
    if (!Syncs()) return;
    // With their sizes and names.
    for (const int fd : fds_) {
      if (::fsync(fd) != 0) Die("fsync");
    }
    SyncFolder();
  }

  void Write(uint64_t number) {
    std::vector<uint8_t> bytes = Bytes(number);
    const int fd = fds_[FileOf(number)];
    const uint64_t place = PlaceOf(number);
    if (how_ == How::kMsync) {
      uint8_t* const map = maps_[FileOf(number)];
      std::copy(bytes.begin(), bytes.end(), map + place);
      if (Syncs() && ::msync(map, kFileSize, MS_SYNC) != 0) Die("msync");
      return;
    }
    const iovec vector = {bytes.data(), bytes.size()};
    const int rwf = how_ == How::kRwf && Syncs() ? RWF_DSYNC : 0;
    const ssize_t n = ::pwritev2(fd, &vector, 1, static_cast<off_t>(place), rwf);
    if (n != static_cast<ssize_t>(bytes.size())) Die("write");
    if (Syncs() && !Sync(fd)) Die("sync");
  }

  bool Sync(int fd) const {
    switch (how_) {
      case How::kFsync:
        return ::fsync(fd) == 0;
      case How::kFdatasync:
        return ::fdatasync(fd) == 0;
      case How::kSyncfs:
        return ::syncfs(fd) == 0;
      case How::kDsync:
      case How::kRwf:
      case How::kMsync:
        break;  // the write was enough
    }
    return true;
  }

  const How how_;
  int fds_[kFiles] = {};
  uint8_t* maps_[kFiles] = {};
};

}  // namespace

std::unique_ptr<Workload> MakeRecords(const Settings& settings) {
  for (const auto& [name, how] : kKinds) {
    if (settings.name.starts_with(name)) return std::make_unique<Records>(settings, how);
  }
  return nullptr;
}

}  // namespace nvcache::power_test
