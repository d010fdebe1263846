// SPDX-License-Identifier: BSD-3-Clause
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "mirror/store/keeper.h"
#include "mirror/store/memories.h"
#include "mirror/store/memory_store.h"
#include "mirror/store/spill.h"

namespace nvcache::mirror {
namespace {

using Bytes = std::vector<uint8_t>;

constexpr uint64_t kMany = uint64_t{1} << 40;
constexpr uint64_t kSize = 3 << 20;  // of a pool; not a multiple of what is reserved at once
constexpr Id kBoot = {{1}}, kNextBoot = {{2}}, kLineage = {{3}};

Bytes Filled(size_t n, uint8_t value) { return Bytes(n, value); }

class Folder {
 public:
  explicit Folder(const char* parent = "/dev/shm") {
    path_ = std::string(parent) + "/nvcache-test-XXXXXX";
    if (mkdtemp(path_.data()) == nullptr) abort();
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// What a store has, for comparison.
struct State {
  Id incarnation, lineage;
  Epoch promised, written;
  Version version;
  uint64_t size;
  Position position;
  Bytes bytes;
  bool operator==(const State&) const = default;
};

State StateOf(const MemoryStore& store) {
  const ImageInfo& image = store.image();
  State state = {store.incarnation(), image.lineage,   store.promised(), image.written,
                 store.version(),     image.pool_size, image.position,   Bytes(image.pool_size)};
  for (uint64_t at = 0;;) {
    const Range range = store.Find(at);
    if (range.length == 0) {
      EXPECT_EQ(range.offset, image.pool_size);
      return state;
    }
    EXPECT_GE(range.offset, at);
    EXPECT_LE(range.length, kMaxBytes + 1024);
    store.Read(range, state.bytes.data() + range.offset);
    at = range.offset + range.length;
  }
}

class StoreTest : public testing::Test {
 protected:
  std::unique_ptr<MemoryStore> Open(const Id& boot = kBoot) {
    auto store = std::make_unique<MemoryStore>(
        sys::Descriptor(fcntl(file_.get(), F_DUPFD_CLOEXEC, 0)), "db", boot, &budget_);
    store->Seal();
    return store;
  }
  State Reopened() { return StateOf(*Open()); }

  static void MakeImage(MemoryStore* store, uint8_t value, Position position) {
    ASSERT_TRUE(store->BeginCopy(kLineage, kSize));
    store->WriteCopy({{0, 4096}, {kSize - 8, 8}}, Filled(4104, value).data());
    store->Exchange(1, position);
  }

  // Killed before the first step of `act`, before the second one, and so on: as before, or as
  // after.
  void KillAtEachStep(const std::function<void(MemoryStore*)>& act) {
    const State before = Reopened();
    State after;
    {
      // Tried on a copy of the memory.
      sys::Descriptor original = std::exchange(file_, Copied());
      auto store = Open();
      act(store.get());
      after = StateOf(*store);
      store.reset();
      EXPECT_EQ(Reopened(), after);
      file_ = std::move(original);
    }
    EXPECT_NE(before, after);
    int kills = 0;
    for (bool done = false; !done; ++kills) {
      sys::Descriptor original = std::exchange(file_, Copied());
      const pid_t child = fork();
      if (child == 0) {
        auto store = Open();
        int left = kills;
        store->on_step = [&left] {
          if (left-- == 0) kill(getpid(), SIGKILL);
        };
        act(store.get());
        _exit(0);
      }
      int status = 0;
      ASSERT_EQ(waitpid(child, &status, 0), child);
      done = WIFEXITED(status);
      const State found = Reopened();
      EXPECT_TRUE(found == before || found == after) << kills;
      EXPECT_EQ(Reopened(), found) << kills;  // to open it changes nothing
      if (done) {
        EXPECT_EQ(found, after);
      }
      file_ = std::move(original);
    }
    EXPECT_GT(kills, 1);
  }

  // Another file that has the same bytes.
  sys::Descriptor Copied() {
    sys::Descriptor copy = MakeMemory("copy");
    struct stat st = {};
    fstat(file_.get(), &st);
    EXPECT_EQ(ftruncate(copy.get(), st.st_size), 0);
    Bytes bytes(1 << 20);
    for (off_t at = 0; (at = lseek(file_.get(), at, SEEK_DATA)) >= 0;) {
      const ssize_t n = pread(file_.get(), bytes.data(), bytes.size(), at);
      EXPECT_EQ(pwrite(copy.get(), bytes.data(), static_cast<size_t>(n), at), n);
      at += n;
    }
    return copy;
  }

  uint64_t PagesOf() const {
    struct stat st = {};
    fstat(file_.get(), &st);
    return static_cast<uint64_t>(st.st_blocks) * 512;
  }

  Budget budget_{kMany};
  sys::Descriptor file_ = MakeMemory("db");
};

TEST_F(StoreTest, NewOne) {
  auto store = Open();
  EXPECT_FALSE(store->remembers());
  EXPECT_FALSE(store->incarnation().IsNone());
  EXPECT_EQ(store->promised(), 0U);
  EXPECT_TRUE(store->image().lineage.IsNone());
  EXPECT_EQ(store->Find(0), (Range{0, 0}));
  EXPECT_FALSE(store->HasCopy());
}

TEST_F(StoreTest, OutlivesItsProcess) {
  auto store = Open();
  store->SetPromised(7);
  store->SetVersion(9);
  MakeImage(store.get(), 0xaa, 100);
  store->Write({{8192, 16}, {8, 8}}, Filled(24, 0xbb).data(), 7, 200);
  const State before = StateOf(*store);
  EXPECT_EQ(before.position, 200U);
  EXPECT_EQ(before.written, 7U);
  EXPECT_EQ(before.bytes[8], 0xbb);
  EXPECT_EQ(before.bytes[16], 0xaa);
  EXPECT_EQ(before.bytes[8192 + 15], 0xbb);
  EXPECT_EQ(before.bytes[kSize - 1], 0xaa);
  store.reset();
  store = Open();
  EXPECT_TRUE(store->remembers());
  EXPECT_EQ(StateOf(*store), before);
}

TEST_F(StoreTest, AnotherBootHasForgotten) {
  auto store = Open();
  store->SetPromised(7);
  store->SetVersion(9);
  MakeImage(store.get(), 0xaa, 100);
  const Id before = store->incarnation();
  store.reset();
  store = Open(kNextBoot);
  EXPECT_FALSE(store->remembers());
  EXPECT_NE(store->incarnation(), before);
  EXPECT_EQ(store->promised(), 0U);
  EXPECT_EQ(store->version(), 0U);
  EXPECT_TRUE(store->image().lineage.IsNone());
  ASSERT_TRUE(store->BeginCopy(kLineage, kSize));
  store->Exchange(1, 1);
  EXPECT_EQ(store->Find(0).length, 0U);  // nothing of the old one shows
}

TEST_F(StoreTest, WhatIsNotSealedIsNotThere) {
  { const MemoryStore store(sys::Descriptor(dup(file_.get())), "db", kBoot, &budget_); }
  EXPECT_FALSE(Open()->remembers());
}

TEST_F(StoreTest, ACopyIsGoneWithItsProcess) {
  auto store = Open();
  MakeImage(store.get(), 0xaa, 100);
  const State before = StateOf(*store);
  ASSERT_TRUE(store->BeginCopy(kLineage, kSize));
  store->WriteCopy({{0, 4096}}, Filled(4096, 0xcc).data());
  EXPECT_EQ(StateOf(*store), before);
  store.reset();
  store = Open();
  EXPECT_FALSE(store->HasCopy());
  EXPECT_EQ(StateOf(*store), before);
}

TEST_F(StoreTest, KilledInAWrite) {
  MakeImage(Open().get(), 0xaa, 100);
  KillAtEachStep([](MemoryStore* store) {
    store->Write({{16, 8}, {24, 0}, {1 << 20, 8192}, {kSize - 8, 8}}, Filled(8208, 0xbb).data(), 2,
                 200);
  });
  KillAtEachStep([](MemoryStore* store) { store->Write({}, nullptr, 3, 100); });
}

TEST_F(StoreTest, KilledInAnExchange) {
  for (int i = 0; i < 2; ++i) {
    MakeImage(Open().get(), 0xaa, 100);
    KillAtEachStep([](MemoryStore* store) {
      store->BeginCopy(kLineage, 8192);
      store->WriteCopy({{8, 8}}, Filled(8, 0xbb).data());
      store->Exchange(5, 50);
    });
  }
}

TEST_F(StoreTest, KilledInAForget) {
  for (int i = 0; i < 2; ++i) {
    MakeImage(Open().get(), 0xaa, 100);
    KillAtEachStep([](MemoryStore* store) { store->Forget(); });
  }
}

TEST_F(StoreTest, ForgottenWithACopy) {
  auto store = Open();
  MakeImage(store.get(), 0xaa, 100);
  ASSERT_TRUE(store->BeginCopy(kLineage, 8192));
  store->Forget();
  EXPECT_TRUE(store->image().lineage.IsNone());
  store->WriteCopy({{8, 8}}, Filled(8, 0xbb).data());
  store->Exchange(5, 50);
  EXPECT_EQ(StateOf(*store).bytes[15], 0xbb);
  EXPECT_EQ(StateOf(*store), Reopened());
}

TEST_F(StoreTest, MemoryIsGivenBack) {
  auto store = Open();
  const uint64_t empty = PagesOf(), used = budget_.used();
  MakeImage(store.get(), 0xaa, 100);
  for (int i = 0; i < 3; ++i) MakeImage(store.get(), 0xbb, 200);
  EXPECT_LE(PagesOf(), empty + (4 << 20));
  EXPECT_EQ(budget_.used(), used + kSize);
  ASSERT_TRUE(store->BeginCopy(kLineage, kSize));
  EXPECT_EQ(budget_.used(), used + 2 * kSize);
  store->DropCopy();
  store->Forget();
  EXPECT_EQ(PagesOf(), empty);
  EXPECT_EQ(budget_.used(), used);
  store.reset();
  EXPECT_EQ(budget_.used(), 0U);
}

TEST_F(StoreTest, BeyondTheLimit) {
  budget_ = Budget(kFrontBytes + kSize + 4096);
  auto store = Open();
  EXPECT_FALSE(store->BeginCopy(kLineage, kSize + 8192));
  EXPECT_FALSE(store->HasCopy());
  MakeImage(store.get(), 0xaa, 100);
  EXPECT_FALSE(store->BeginCopy(kLineage, kSize));
  EXPECT_TRUE(store->BeginCopy(kLineage, 4096));
  EXPECT_FALSE(store->BeginCopy(kLineage, kMany));
  EXPECT_FALSE(store->HasCopy());  // the one before is dropped all the same
  for (const uint64_t wrong : {uint64_t{0}, uint64_t{7}, kMaxImage + 8, ~uint64_t{0}}) {
    EXPECT_FALSE(store->BeginCopy(kLineage, wrong)) << wrong;
  }
  // A lower limit than what is there: it is kept.
  store.reset();
  budget_ = Budget(kFrontBytes);
  store = Open();
  EXPECT_EQ(store->image().position, 100U);
  EXPECT_FALSE(store->BeginCopy(kLineage, 4096));
}

TEST_F(StoreTest, FindLeavesZerosOut) {
  auto store = Open();
  ASSERT_TRUE(store->BeginCopy(kLineage, 64 << 20));
  store->WriteCopy({{8 << 20, 6 << 20}, {(20 << 20) + 8, 8}, {(64 << 20) - 8, 8}},
                   Filled((6 << 20) + 16, 1).data());
  store->WriteCopy({{10 << 20, 4096}}, Filled(4096, 0).data());
  store->Exchange(1, 1);
  EXPECT_EQ(store->Find(0), (Range{8 << 20, 2 << 20}));
  EXPECT_EQ(store->Find(10 << 20), (Range{(10 << 20) + 4096, kMaxBytes - 4096}));
  EXPECT_EQ(store->Find(14 << 20), (Range{20 << 20, 1024}));
  EXPECT_EQ(store->Find((20 << 20) + 16), (Range{(64 << 20) - 1024, 1024}));
  EXPECT_EQ(store->Find(64 << 20), (Range{64 << 20, 0}));
  EXPECT_EQ(store->Find(~uint64_t{0}), (Range{64 << 20, 0}));
}

TEST_F(StoreTest, OtherFiles) {
  const auto error = [this]() -> std::string {
    try {
      Open();
    } catch (const StoreError& wrong) {
      return wrong.what();
    }
    return "";
  };
  ASSERT_EQ(write(file_.get(), "some other file", 15), 15);
  EXPECT_NE(error().find("is some other file; remove it"), std::string::npos);
  ASSERT_EQ(ftruncate(file_.get(), 0), 0);
  MakeImage(Open().get(), 0xaa, 100);
  const auto with = [&](size_t offset, uint64_t value) {
    uint64_t old;
    EXPECT_EQ(pread(file_.get(), &old, 8, static_cast<off_t>(offset)), 8);
    EXPECT_EQ(pwrite(file_.get(), &value, 8, static_cast<off_t>(offset)), 8);
    std::string text = error();
    EXPECT_EQ(pwrite(file_.get(), &old, 8, static_cast<off_t>(offset)), 8);
    return text;
  };
  EXPECT_EQ(error(), "");
  EXPECT_NE(with(offsetof(MemoryHeader, format), 2).find("another version"), std::string::npos);
  EXPECT_NE(with(offsetof(MemoryHeader, name), 'x').find("of another one"), std::string::npos);
  for (const auto& [offset, value] : std::vector<std::pair<size_t, uint64_t>>{
           {offsetof(MemoryHeader, selected), 3},
           {offsetof(MemoryHeader, selected), 2},
           {offsetof(MemoryHeader, areas) + offsetof(ImageInfo, pool_size), 0},
           {offsetof(MemoryHeader, areas) + offsetof(ImageInfo, pool_size), kMany},
           {offsetof(MemoryHeader, staged) + offsetof(Staged, ranges), kMaxRanges + 1},
           {offsetof(MemoryHeader, staged) + offsetof(Staged, bytes), kMaxBytes + 1}}) {
    // An area that nothing was ever in has no size.
    if (value != 2) {
      EXPECT_NE(with(offset, value).find("is damaged"), std::string::npos) << offset;
    }
  }
  EXPECT_EQ(error(), "");
}

TEST(MemoriesTest, FilesInAFolder) {
  const Folder folder;
  Id incarnation;
  {
    Memories memories(kMany, kBoot);
    memories.UseFolder(folder.path());
    std::string why;
    MemoryStore* store = memories.Get("db", &why);
    ASSERT_NE(store, nullptr) << why;
    EXPECT_EQ(memories.Get("db", &why), store);
    store->SetPromised(3);
    incarnation = store->incarnation();
    Memories second(kMany, kBoot);
    EXPECT_THROW(second.UseFolder(folder.path()), StoreError);
  }
  {
    Memories memories(kMany, kBoot);
    memories.UseFolder(folder.path());
    ASSERT_NE(memories.Find("db"), nullptr);
    EXPECT_EQ(memories.Find("db")->incarnation(), incarnation);
    EXPECT_EQ(memories.Find("db")->promised(), 3U);
    EXPECT_EQ(memories.Find("other"), nullptr);
  }
  Memories memories(kMany, kNextBoot);
  memories.UseFolder(folder.path());
  EXPECT_NE(memories.Find("db")->incarnation(), incarnation);
}

TEST(MemoriesTest, FoldersThatWillNotDo) {
  Memories memories(kMany, kBoot);
  EXPECT_THROW(memories.UseFolder("/dev/shm/nvcache-is-not-there"), StoreError);
  EXPECT_THROW(memories.UseFolder("/proc"), StoreError);
}

TEST(MemoriesTest, NoRoom) {
  Memories memories(kFrontBytes + 1, kBoot);
  std::string why;
  EXPECT_NE(memories.Get("one", &why), nullptr);
  EXPECT_EQ(memories.Get("two", &why), nullptr);
  EXPECT_EQ(why, "the memory of mirror two does not fit into the limit");
}

class SpillTest : public testing::Test {
 protected:
  // Two names, one without an image.
  void Fill(Memories* memories) {
    std::string why;
    MemoryStore* store = memories->Get("db", &why);
    store->SetPromised(3);
    store->SetVersion(4);
    ASSERT_TRUE(store->BeginCopy(kLineage, kSize));
    store->WriteCopy({{4096, 4096}, {kSize - 8, 8}}, Filled(4104, 0xaa).data());
    store->Exchange(3, 100);
    memories->Get("empty", &why)->SetPromised(8);
    states_ = States(*memories);
  }
  static std::vector<State> States(Memories& memories) {
    std::vector<State> states;
    for (const MemoryStore* store : memories.All()) states.push_back(StateOf(*store));
    return states;
  }
  bool IsThere() const { return std::filesystem::exists(path_); }

  Folder folder_;
  const std::string path_ = folder_ / "spill";
  std::vector<State> states_;
};

TEST_F(SpillTest, ComesBackOnce) {
  {
    Memories memories(kMany, kBoot);
    Fill(&memories);
    WriteSpill(memories, path_);
  }
  ASSERT_TRUE(IsThere());
  {
    Memories memories(kMany, kNextBoot);
    EXPECT_EQ(LoadSpill(memories, path_).names, 2U);
    EXPECT_EQ(States(memories), states_);
    EXPECT_FALSE(IsThere());
  }
  Memories memories(kMany, kNextBoot);
  const Loaded loaded = LoadSpill(memories, path_);
  EXPECT_EQ(loaded.names, 0U);
  EXPECT_EQ(loaded.ignored, "");
  EXPECT_TRUE(memories.All().empty());
}

TEST_F(SpillTest, AnythingMissingOrWrongIsIgnored) {
  Memories memories(kMany, kBoot);
  Fill(&memories);
  WriteSpill(memories, path_);
  const auto size = std::filesystem::file_size(path_);
  std::ifstream file(path_, std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(file)), {});
  ASSERT_EQ(whole.size(), size);
  const auto loads = [&](const std::string& bytes) {
    std::ofstream(path_, std::ios::binary) << bytes;
    Memories next(kMany, kNextBoot);
    const Loaded loaded = LoadSpill(next, path_);
    EXPECT_FALSE(IsThere());
    EXPECT_EQ(loaded.names == 0, !loaded.ignored.empty());
    EXPECT_EQ(next.All().size(), loaded.names);
    return loaded.names == 2;
  };
  EXPECT_TRUE(loads(whole));
  for (size_t length = 0; length < size; length += 1 + length / 8) {
    EXPECT_FALSE(loads(whole.substr(0, length))) << length;
  }
  for (size_t at = 0; at < size; at += 1 + at / 16) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    EXPECT_FALSE(loads(damaged)) << at;
  }
  EXPECT_FALSE(loads(whole.substr(0, size - 1)));
}

TEST_F(SpillTest, WhatIsRememberedWins) {
  const Folder memory;
  Memories memories(kMany, kBoot);
  memories.UseFolder(memory.path());
  Fill(&memories);
  WriteSpill(memories, path_);
  memories.Find("db")->SetPromised(9);
  const auto newer = States(memories);
  EXPECT_EQ(LoadSpill(memories, path_).names, 0U);
  EXPECT_FALSE(IsThere());
  EXPECT_EQ(States(memories), newer);
}

TEST_F(SpillTest, IntoAFolder) {
  {
    Memories memories(kMany, kBoot);
    Fill(&memories);
    WriteSpill(memories, path_);
  }
  const Folder memory;
  for (int i = 0; i < 2; ++i) {
    Memories memories(kMany, kNextBoot);
    memories.UseFolder(memory.path());
    EXPECT_EQ(LoadSpill(memories, path_).names, i == 0 ? 2U : 0U);
    EXPECT_EQ(States(memories), states_);
  }
}

TEST_F(SpillTest, NoServerBeginsWithoutWhatItWasToLoad) {
  {
    Memories memories(kMany, kBoot);
    Fill(&memories);
    WriteSpill(memories, path_);
  }
  {
    Memories memories(2 * kFrontBytes, kNextBoot);
    EXPECT_THROW(LoadSpill(memories, path_), StoreError);
    EXPECT_TRUE(memories.All().empty());
  }
  EXPECT_TRUE(IsThere());
  Memories memories(kMany, kNextBoot);
  EXPECT_EQ(LoadSpill(memories, path_).names, 2U);
  EXPECT_EQ(States(memories), states_);
}

TEST_F(SpillTest, CannotBeWritten) {
  Memories memories(kMany, kBoot);
  Fill(&memories);
  EXPECT_THROW(WriteSpill(memories, folder_ / "no/spill"), StoreError);
}

TEST_F(SpillTest, OnlyRegularFilesAreReplacedOrRemoved) {
  Memories memories(kMany, kBoot);
  Fill(&memories);
  ASSERT_EQ(mkfifo((folder_ / "fifo").c_str(), 0600), 0);
  std::filesystem::create_symlink("target", folder_ / "link");
  std::ofstream(folder_ / "target") << "mine";
  for (const std::string& path : {folder_ / "fifo", folder_ / "link", folder_.path()}) {
    EXPECT_THROW(WriteSpill(memories, path), StoreError) << path;
    EXPECT_THROW(LoadSpill(memories, path), StoreError) << path;
    EXPECT_TRUE(std::filesystem::exists(path));
    EXPECT_FALSE(std::filesystem::is_regular_file(std::filesystem::symlink_status(path)));
  }
}

TEST(KeeperTest, KeepsADescriptor) {
  const Folder folder;
  const std::string path = folder / "notify";
  const sys::Descriptor listener(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = {}};
  std::memcpy(address.sun_path, path.data(), path.size());
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_FALSE(HasKeeper());
  EXPECT_FALSE(Notify("READY=1"));
  setenv("NOTIFY_SOCKET", path.c_str(), 1);
  EXPECT_TRUE(HasKeeper());
  const sys::Descriptor memory = MakeMemory("db");
  EXPECT_TRUE(Keep("db", memory.get()));
  unsetenv("NOTIFY_SOCKET");

  char text[100] = {};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  iovec bytes = {text, sizeof(text)};
  msghdr message = {};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ASSERT_GT(recvmsg(listener.get(), &message, MSG_DONTWAIT), 0);
  EXPECT_STREQ(text, "FDSTORE=1\nFDPOLL=0\nFDNAME=db");
  int fd;
  ASSERT_NE(CMSG_FIRSTHDR(&message), nullptr);
  std::memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
  const sys::Descriptor kept(fd);
  struct stat a = {}, b = {};
  ASSERT_EQ(fstat(memory.get(), &a), 0);
  ASSERT_EQ(fstat(kept.get(), &b), 0);
  EXPECT_EQ(a.st_ino, b.st_ino);
}

TEST(KeeperTest, NothingIsTakenThatIsNotForUs) {
  setenv("LISTEN_PID", "1", 1);
  setenv("LISTEN_FDS", "1", 1);
  EXPECT_TRUE(TakeKept().empty());
  EXPECT_EQ(getenv("LISTEN_FDS"), nullptr);
  EXPECT_TRUE(TakeKept().empty());
}

}  // namespace
}  // namespace nvcache::mirror
