// SPDX-License-Identifier: BSD-3-Clause
//
// NVCACHE_STRESS_SEED repeats a run, NVCACHE_STRESS_OPERATIONS (per thread) lengthens it,
// NVCACHE_STRESS_SIZE is the pool's: 1M has one lane, larger ones have more.
#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "src/vfs/engine/engine.h"
#include "src/vfs/vfs.h"
#include "tests/unit/host.h"

namespace nvcache {
namespace {

uint64_t FromEnvironment(const char* name, uint64_t fallback) {
  const char* value = std::getenv(name);
  return value != nullptr ? std::strtoull(value, nullptr, 0) : fallback;
}

uint64_t Seed() {
  static const uint64_t seed = FromEnvironment("NVCACHE_STRESS_SEED", std::random_device{}());
  return seed;
}

int Operations(int usual) {
  return static_cast<int>(
      FromEnvironment("NVCACHE_STRESS_OPERATIONS", static_cast<uint64_t>(usual)));
}

// A file below the working directory, opened through the engine.
class Stress : public testing::Test {
 protected:
  Stress() { RecordProperty("seed", std::to_string(Seed())); }
  ~Stress() override {
    for (const std::string& path : paths_) ::unlink(path.c_str());
  }

  std::string Path(const std::string& name) {
    paths_.push_back("stress-" + std::to_string(getpid()) + "-" + name);
    return paths_.back();
  }

  static int Open(const std::string& path, int flags) {
    vfs::OpenGuard guard(AT_FDCWD, path.c_str(), flags, 0600);
    const long replaced = guard.Replace();
    const int fd =
        replaced != vfs::kNotOurs ? static_cast<int>(replaced) : ::open(path.c_str(), flags, 0600);
    guard.Opened(fd);
    EXPECT_GE(fd, 0) << std::strerror(errno);
    return fd;
  }
  // What somebody sees who asks the kernel alone.
  static std::string KernelContent(const std::string& path) {
    std::string content;
    const int fd = ::open(path.c_str(), O_RDONLY);
    char buffer[65536];
    for (ssize_t n; (n = ::read(fd, buffer, sizeof(buffer))) > 0;) {
      content.append(buffer, static_cast<size_t>(n));
    }
    ::close(fd);
    return content;
  }
  static std::string CachedContent(int fd) {
    const long size = vfs::Lseek(fd, 0, SEEK_END);
    EXPECT_GE(size, 0) << fd << " is not cached";
    if (size < 0) return "";
    std::string content(static_cast<size_t>(size), '\0');
    EXPECT_EQ(vfs::Pread(fd, content.data(), content.size(), 0), size);
    return content;
  }

 private:
  std::vector<std::string> paths_;
};

constexpr size_t kFileSize = 1u << 20;

// Each thread owns every n-th stripe of one file, so pages are shared and bytes are not: what a
// thread reads there must be what it wrote last, whatever the others, evictions, and the cleanup
// thread do (I3, I7, I8).
TEST_F(Stress, EveryThreadReadsItsOwnWrites) {
  constexpr int kThreads = 4;
  constexpr size_t kStripe = 997;
  const std::string path = Path("stripes");
  const int fd = Open(path, O_RDWR | O_CREAT | O_TRUNC);
  ASSERT_EQ(vfs::Pwrite(fd, std::string(kFileSize, '.').data(), kFileSize, 0),
            static_cast<long>(kFileSize));
  std::string model(kFileSize, '.');
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(Seed() + static_cast<uint64_t>(t));
      const size_t stripes = kFileSize / kStripe / kThreads;
      for (int i = 0; i < Operations(20000); ++i) {
        const size_t stripe = random() % stripes * kThreads + static_cast<size_t>(t);
        const size_t skip = random() % kStripe;
        const size_t begin = stripe * kStripe + skip;
        const size_t n = 1 + random() % (kStripe - skip);
        if (random() % 2 == 0) {
          std::memset(&model[begin], static_cast<char>('a' + random() % 26), n);
          ASSERT_EQ(vfs::Pwrite(fd, &model[begin], n, static_cast<off_t>(begin)),
                    static_cast<long>(n));
        } else {
          char read[kStripe];
          ASSERT_EQ(vfs::Pread(fd, read, n, static_cast<off_t>(begin)), static_cast<long>(n));
          ASSERT_EQ(std::memcmp(read, &model[begin], n), 0)
              << "at " << begin << ", seed " << Seed();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(CachedContent(fd), model);
  EXPECT_EQ(vfs::Drain(fd), 0);
  EXPECT_EQ(KernelContent(path), model);
  EXPECT_EQ(vfs::Close(fd), 0);
}

// Overlapping writes of many pages: whatever order they took, the cache and the disk must agree on
// it (I3).
TEST_F(Stress, CacheAndDiskAgreeOnOverlappingWrites) {
  constexpr int kThreads = 3;
  constexpr size_t kSize = 256 * 1024;
  const std::string path = Path("overlap");
  const int fd = Open(path, O_RDWR | O_CREAT | O_TRUNC);
  for (int round = 0; round < 5; ++round) {
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        std::mt19937_64 random(Seed() + static_cast<uint64_t>(round * kThreads + t));
        std::vector<char> bytes(64 * 1024);
        for (int i = 0; i < Operations(400); ++i) {
          const size_t n = 1 + random() % bytes.size();
          const size_t begin = random() % (kSize - n);
          std::memset(bytes.data(), static_cast<int>(random()), n);
          ASSERT_EQ(vfs::Pwrite(fd, bytes.data(), n, static_cast<off_t>(begin)),
                    static_cast<long>(n));
          // Reading brings frames in, so that both ways to the newest bytes are taken.
          ASSERT_GT(vfs::Pread(fd, bytes.data(), 1 + random() % 5000, static_cast<off_t>(begin)),
                    0);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    const std::string cached = CachedContent(fd);
    ASSERT_EQ(vfs::Drain(fd), 0);
    ASSERT_EQ(KernelContent(path), cached) << "seed " << Seed();
  }
  EXPECT_EQ(vfs::Close(fd), 0);
}

// A thread cuts its file to the middle of what the cleanup thread is just writing back: no more is
// lost than was cut off.
TEST_F(Stress, ACutMeetsTheWriteBack) {
  constexpr int kThreads = 3;
  std::vector<std::string> paths;
  for (int t = 0; t < kThreads; ++t) paths.push_back(Path("cut" + std::to_string(t)));
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const std::string& path = paths[static_cast<size_t>(t)];
      const int fd = Open(path, O_RDWR | O_CREAT | O_TRUNC);
      std::mt19937_64 random(Seed() + static_cast<uint64_t>(t));
      std::string model;
      for (int i = 0; i < Operations(6000); ++i) {
        const size_t size = random() % 14000;
        ASSERT_EQ(vfs::Ftruncate(fd, static_cast<off_t>(size)), 0);
        model.resize(size);
        const size_t at = size + random() % 3000, n = 1 + random() % 10000;
        model.resize(at + n);
        std::memset(&model[at], static_cast<char>('a' + i % 26), n);
        ASSERT_EQ(vfs::Pwrite(fd, &model[at], n, static_cast<off_t>(at)), static_cast<long>(n));
        if (i % 8 != 7) continue;
        ASSERT_EQ(vfs::Drain(fd), 0);
        ASSERT_TRUE(KernelContent(path) == model) << i << ", seed " << Seed();
      }
      ASSERT_EQ(vfs::Close(fd), 0);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Appends of several threads and descriptions: each record once, whole, none over another.
TEST_F(Stress, AppendsNeverOverlap) {
  constexpr int kThreads = 4;
  const std::string path = Path("append");
  const int records = Operations(4000);
  std::vector<std::thread> threads;
  const int first = Open(path, O_RDWR | O_CREAT | O_TRUNC | O_APPEND);
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const int fd = t % 2 == 0 ? first : Open(path, O_WRONLY | O_APPEND);
      std::mt19937_64 random(Seed() + static_cast<uint64_t>(t));
      for (int i = 0; i < records; ++i) {
        char head[32];
        const size_t body = random() % 3000;
        const int n = std::snprintf(head, sizeof(head), "<%d:%d:%zu>", t, i, body);
        std::string record(head, static_cast<size_t>(n));
        record.append(body, static_cast<char>('a' + t));
        ASSERT_EQ(vfs::Write(fd, record.data(), record.size()), static_cast<long>(record.size()));
      }
      if (fd != first) {
        ASSERT_EQ(vfs::Close(fd), 0);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(vfs::Drain(first), 0);
  ASSERT_EQ(vfs::Close(first), 0);

  const std::string content = KernelContent(path);
  std::vector<int> next(kThreads, 0);
  for (size_t at = 0; at < content.size();) {
    int t = -1, i = -1, head = 0;
    size_t body = 0;
    ASSERT_EQ(std::sscanf(content.c_str() + at, "<%d:%d:%zu>%n", &t, &i, &body, &head), 3)
        << "at " << at << ", seed " << Seed();
    ASSERT_TRUE(t >= 0 && t < kThreads);
    ASSERT_EQ(i, next[static_cast<size_t>(t)]++);
    at += static_cast<size_t>(head);
    ASSERT_EQ(content.substr(at, body), std::string(body, static_cast<char>('a' + t)));
    at += body;
  }
  for (int n : next) EXPECT_EQ(n, records);
}

// Files come and go, descriptors are duplicated and closed, while the log drains: nothing that was
// written is missed when a file is opened again.
TEST_F(Stress, FilesOpenAndCloseWhileTheLogDrains) {
  constexpr int kThreads = 3;
  std::vector<std::string> names;
  for (int i = 0; i < kThreads * 40; ++i) names.push_back(Path("file-" + std::to_string(i)));
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(Seed() + static_cast<uint64_t>(t));
      std::vector<std::string> model(40);
      for (int i = 0; i < Operations(3000); ++i) {
        const size_t which = random() % model.size();
        const std::string& path = names[static_cast<size_t>(t) * 40 + which];
        int fd = Open(path, O_RDWR | O_CREAT);
        ASSERT_EQ(CachedContent(fd), model[which]) << path << ", seed " << Seed();
        if (random() % 3 == 0) {
          const int copy = static_cast<int>(vfs::Dup(fd));
          ASSERT_EQ(vfs::Close(fd), 0);
          fd = copy;
        }
        const std::string bytes(1 + random() % 9000, static_cast<char>('a' + random() % 26));
        const size_t at = random() % 20000;
        if (model[which].size() < at + bytes.size()) model[which].resize(at + bytes.size());
        model[which].replace(at, bytes.size(), bytes);
        ASSERT_EQ(vfs::Pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(at)),
                  static_cast<long>(bytes.size()));
        if (random() % 20 == 0) {
          const size_t length = random() % 30000;
          ASSERT_EQ(vfs::Ftruncate(fd, static_cast<off_t>(length)), 0);
          model[which].resize(length);
        }
        ASSERT_EQ(vfs::Close(fd), 0);
        // After the last close everybody sees it.
        if (random() % 8 == 0) {
          ASSERT_EQ(KernelContent(path), model[which]);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// One thread makes the file pass-through again and again; writers and readers must not notice.
TEST_F(Stress, PassThroughInBetween) {
  const std::string path = Path("handover");
  std::atomic<bool> stop{false};
  std::string model(64 * 1024, '.');
  const int keep = Open(path, O_RDWR | O_CREAT | O_TRUNC);
  ASSERT_EQ(vfs::Pwrite(keep, model.data(), model.size(), 0), static_cast<long>(model.size()));
  ASSERT_EQ(vfs::Close(keep), 0);
  std::thread spoiler([&] {
    while (!stop) {
      vfs::PassThroughPath(AT_FDCWD, path.c_str());
      std::this_thread::yield();
    }
  });
  std::mt19937_64 random(Seed());
  for (int i = 0; i < Operations(1000); ++i) {
    const int fd = Open(path, O_RDWR);
    for (int k = 0; k < 5; ++k) {
      const size_t n = 1 + random() % 8192, at = random() % (model.size() - n);
      std::memset(&model[at], static_cast<char>('a' + random() % 26), n);
      long written = vfs::Pwrite(fd, &model[at], n, static_cast<off_t>(at));
      if (written == vfs::kNotOurs) written = ::pwrite(fd, &model[at], n, static_cast<off_t>(at));
      ASSERT_EQ(written, static_cast<long>(n));
      std::string read(n, '\0');
      long got = vfs::Pread(fd, read.data(), n, static_cast<off_t>(at));
      if (got == vfs::kNotOurs) got = ::pread(fd, read.data(), n, static_cast<off_t>(at));
      ASSERT_EQ(got, static_cast<long>(n));
      ASSERT_EQ(read, model.substr(at, n)) << "seed " << Seed();
    }
    ASSERT_EQ(vfs::Close(fd), 0);
  }
  stop = true;
  spoiler.join();
  EXPECT_EQ(KernelContent(path), model);
}

// The cache is left and taken again (a failed exec) while writers of many files sleep for room in
// the log, with their file's lock. Each of them goes on, in the kernel or in the cache, and no byte
// is missing.
TEST_F(Stress, TheCacheIsLeftWhileWritersWaitForRoom) {
  constexpr int kThreads = 2;
  constexpr size_t kFiles = 40, kOpen = 30;  // of each thread
  std::vector<std::string> names;
  for (size_t i = 0; i < kThreads * kFiles; ++i) names.push_back(Path("room-" + std::to_string(i)));
  std::vector<std::string> models(names.size());
  std::atomic<int> writing{kThreads};
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(Seed() + t);
      std::vector<int> open(kFiles, -1);
      for (int i = 0; i < Operations(1500); ++i) {
        const size_t which = random() % kFiles, other = (which + kOpen) % kFiles;
        const std::string& path = names[t * kFiles + which];
        if (open[other] >= 0) {
          const long closed = vfs::Close(open[other]);
          ASSERT_EQ(closed == vfs::kNotOurs ? ::close(open[other]) : closed, 0);
        }
        open[other] = -1;
        if (open[which] < 0) open[which] = Open(path, O_WRONLY | O_CREAT | O_APPEND);
        const std::string bytes(1 + random() % 16000, static_cast<char>('a' + random() % 26));
        long written = vfs::Write(open[which], bytes.data(), bytes.size());
        if (written == vfs::kNotOurs) written = ::write(open[which], bytes.data(), bytes.size());
        ASSERT_EQ(written, static_cast<long>(bytes.size()));
        models[t * kFiles + which] += bytes;
      }
      for (const int fd : open) {
        if (fd >= 0 && vfs::Close(fd) == vfs::kNotOurs) ::close(fd);
      }
      --writing;
    });
  }
  int left = 0;
  while (writing > 0) {
    if (!vfs::engine.log.Hurried()) continue;
    vfs::BeforeExec();
    ++left;
  }
  for (std::thread& thread : threads) thread.join();
  vfs::BeforeExec();
  EXPECT_GT(left, 0) << "nobody has waited";
  RecordProperty("left", left);
  for (size_t i = 0; i < names.size(); ++i) {
    ASSERT_EQ(KernelContent(names[i]), models[i]) << names[i] << ", seed " << Seed();
  }
}

}  // namespace
}  // namespace nvcache

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (testing::GTEST_FLAG(list_tests)) return RUN_ALL_TESTS();
  const std::string folder = "/dev/shm/nvcache-test-stress-" + std::to_string(getpid());
  std::filesystem::create_directory(folder);
  std::string pool_setting = "NVCACHE_POOL=" + folder + "/pool";
  const char* size = std::getenv("NVCACHE_STRESS_SIZE");
  std::string size_setting = std::string("NVCACHE_SIZE=") + (size != nullptr ? size : "1M");
  std::string settings[] = {pool_setting,
                            size_setting,
                            "NVCACHE_EMULATE=1",
                            "NVCACHE_DRAM=128k",
                            "NVCACHE_BATCH_DELAY=2",
                            "NVCACHE_WRITE_BACK=always"};
  std::vector<char*> environment;
  for (std::string& setting : settings) environment.push_back(setting.data());
  environment.push_back(nullptr);
  nvcache::vfs::engine.lease_folder = folder.c_str();
  nvcache::vfs::Start(nvcache::test::UsualHost(), environment.data());
  std::printf("seed %llu\n", static_cast<unsigned long long>(nvcache::Seed()));
  const int result = RUN_ALL_TESTS();
  nvcache::vfs::Stop();
  std::filesystem::remove_all(folder);
  return result;
}
