// SPDX-License-Identifier: BSD-3-Clause
#include "mirror/store/spill.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <vector>

#include "mirror/core/error.h"
#include "src/sys/crc32c.h"
#include "src/sys/descriptor.h"

namespace nvcache::mirror {

namespace {

// The file: a Head; for each name an Entry, and if it has an image, Ranges with their bytes until
// one of no length; a Tail. It is read by the machine that has written it.
constexpr uint64_t kHeadMagic = 0x316c6c697053764e;  // "NvSpill1"
constexpr uint64_t kTailMagic = 0x656c6f6857764e00;

struct Head {
  uint64_t magic;
  uint64_t names;
};
struct Entry {
  char name[kMaxName + 8];
  Id incarnation;
  Epoch promised;
  Version version;
  ImageInfo image;
};
struct Run {
  uint64_t offset;
  uint64_t length;
};
struct Tail {
  uint64_t magic;
  uint64_t crc;  // CRC-32C of all before
};

class Output {
 public:
  explicit Output(int fd) : fd_(fd) { buffer_.reserve(kBuffer); }
  void Put(const void* data, size_t n) {
    crc_ = sys::Crc32c(data, n, crc_);
    const auto* bytes = static_cast<const uint8_t*>(data);
    buffer_.insert(buffer_.end(), bytes, bytes + n);
    if (buffer_.size() >= kBuffer) Flush();
  }
  void Flush() {
    for (size_t at = 0; at < buffer_.size();) {
      const ssize_t n = write(fd_, buffer_.data() + at, buffer_.size() - at);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) throw StoreError(Why(errno));
      at += static_cast<size_t>(n);
    }
    buffer_.clear();
  }
  uint32_t crc() const { return crc_; }

 private:
  static constexpr size_t kBuffer = 1 << 20;
  int fd_;
  std::vector<uint8_t> buffer_;
  uint32_t crc_ = 0;
};

class Input {
 public:
  explicit Input(int fd) : fd_(fd) {}
  // False: the file ends before.
  bool Get(void* data, size_t n) {
    auto* bytes = static_cast<uint8_t*>(data);
    for (size_t at = 0; at < n;) {
      const ssize_t got = read(fd_, bytes + at, n - at);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) throw StoreError(Why(errno));
      if (got == 0) return false;
      at += static_cast<size_t>(got);
    }
    crc_ = sys::Crc32c(data, n, crc_);
    return true;
  }
  uint32_t crc() const { return crc_; }

 private:
  int fd_;
  uint32_t crc_ = 0;
};

void Put(const MemoryStore& store, Output* output) {
  Entry entry = {};
  std::memcpy(entry.name, store.name().data(), store.name().size());
  entry.incarnation = store.incarnation();
  entry.promised = store.promised();
  entry.version = store.version();
  entry.image = store.image();
  output->Put(&entry, sizeof(entry));
  if (entry.image.lineage.IsNone()) return;
  std::vector<uint8_t> bytes;
  for (uint64_t at = 0;;) {
    const Range range = store.Find(at);
    const Run run = {range.offset, range.length};
    output->Put(&run, sizeof(run));
    if (range.length == 0) return;
    bytes.resize(range.length);
    store.Read(range, bytes.data());
    output->Put(bytes.data(), bytes.size());
    at = range.offset + range.length;
  }
}

// The folder that a file is in.
void SyncFolder(const std::string& path) {
  const std::string folder = std::filesystem::absolute(path).parent_path().string();
  const sys::Descriptor file(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!file.IsOpen() || fsync(file.get()) != 0) {
    throw StoreError("folder " + folder + " cannot be synced: " + Why(errno));
  }
}

void WriteAll(Memories& memories, int fd) {
  Output output(fd);
  const auto stores = memories.All();
  const Head head = {kHeadMagic, stores.size()};
  output.Put(&head, sizeof(head));
  for (const MemoryStore* store : stores) Put(*store, &output);
  output.Flush();
  // The disk has all of it before it has the mark.
  if (fsync(fd) != 0) throw StoreError(Why(errno));
  const Tail tail = {kTailMagic, output.crc()};
  output.Put(&tail, sizeof(tail));
  output.Flush();
  if (fsync(fd) != 0) throw StoreError(Why(errno));
}

// The bytes of an image; `store` is nullptr if they are not wanted. False: it is not whole.
bool GetImage(Input* input, const ImageInfo& image, MemoryStore* store) {
  std::vector<uint8_t> bytes;
  for (Run run = {};;) {
    if (!input->Get(&run, sizeof(run))) return false;
    if (run.length == 0) break;
    if (run.length > kMaxBytes || run.offset > image.pool_size ||
        run.length > image.pool_size - run.offset) {
      return false;
    }
    bytes.resize(run.length);
    if (!input->Get(bytes.data(), bytes.size())) return false;
    if (store == nullptr) continue;
    store->WriteCopy({{run.offset, static_cast<uint32_t>(run.length)}}, bytes.data());
  }
  if (store != nullptr) store->Exchange(image.written, image.position);
  return true;
}

bool GetEntry(Input* input, Memories& memories, std::vector<MemoryStore*>* made) {
  Entry entry = {};
  if (!input->Get(&entry, sizeof(entry))) return false;
  const std::string name(entry.name, strnlen(entry.name, sizeof(entry.name)));
  if (!IsName(name) || entry.image.pool_size > kMaxImage) return false;
  MemoryStore* store = nullptr;
  if (memories.Find(name) == nullptr) {
    store = memories.Make(name);
    made->push_back(store);
    store->Become(entry.incarnation, entry.promised, entry.version);
  }
  if (entry.image.lineage.IsNone()) return true;
  if (store != nullptr && !store->BeginCopy(entry.image.lineage, entry.image.pool_size)) {
    throw StoreError("there is no room for the image of mirror " + name + "; raise --limit");
  }
  return GetImage(input, entry.image, store);
}

bool GetAll(Input* input, Memories& memories, std::vector<MemoryStore*>* made) {
  Head head = {};
  if (!input->Get(&head, sizeof(head)) || head.magic != kHeadMagic) return false;
  for (uint64_t i = 0; i < head.names; ++i) {
    if (!GetEntry(input, memories, made)) return false;
  }
  const uint32_t crc = input->crc();
  Tail tail = {};
  return input->Get(&tail, sizeof(tail)) && tail.magic == kTailMagic && tail.crc == crc;
}

bool IsRegular(int fd) {
  struct stat st = {};
  return fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
}

constexpr const char* kNoFile = "it is there, and no regular file; name another one";

void RemoveMade(Memories& memories, const std::vector<MemoryStore*>& made) {
  for (const MemoryStore* store : made) memories.Remove(std::string(store->name()));
}

}  // namespace

void WriteSpill(Memories& memories, const std::string& path) {
  const std::string unfinished = path + ".new";
  try {
    struct stat st = {};
    if (lstat(path.c_str(), &st) == 0 && !S_ISREG(st.st_mode)) throw StoreError(kNoFile);
    unlink(unfinished.c_str());
    const sys::Descriptor file(open(unfinished.c_str(),
                                    O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                                    S_IRUSR | S_IWUSR));
    if (!file.IsOpen()) throw StoreError(Why(errno));
    WriteAll(memories, file.get());
    if (rename(unfinished.c_str(), path.c_str()) != 0) throw StoreError(Why(errno));
    SyncFolder(path);
  } catch (const StoreError& error) {
    unlink(unfinished.c_str());
    throw StoreError("spill " + path + " cannot be written: " + error.what());
  }
}

Loaded LoadSpill(Memories& memories, const std::string& path) {
  unlink((path + ".new").c_str());
  const sys::Descriptor file(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file.IsOpen() && errno == ENOENT) return {};
  std::vector<MemoryStore*> made;
  Loaded loaded;
  try {
    if (!file.IsOpen()) throw StoreError(Why(errno));
    if (!IsRegular(file.get())) throw StoreError(kNoFile);
    Input input(file.get());
    if (!GetAll(&input, memories, &made)) loaded.ignored = "spill " + path + " is not whole";
  } catch (const StoreError& error) {
    RemoveMade(memories, made);
    throw StoreError("spill " + path + " cannot be loaded: " + error.what());
  }
  if (!loaded.ignored.empty()) {
    RemoveMade(memories, made);
    made.clear();
  }
  for (MemoryStore* store : made) memories.Seal(store);
  loaded.names = made.size();
  if (unlink(path.c_str()) != 0) {
    throw StoreError("spill " + path + " cannot be removed (" + Why(errno) +
                     "); a server that loads it twice would have forgotten without knowing");
  }
  SyncFolder(path);
  return loaded;
}

}  // namespace nvcache::mirror
