// SPDX-License-Identifier: BSD-3-Clause
//
// Names that the program has taken from files. Who gets such a name next is a new file whose name
// the file system may give back to the old one, if the power fails before either was synced (I9).
#ifndef NVCACHE_VFS_LEFT_NAMES_H_
#define NVCACHE_VFS_LEFT_NAMES_H_

#include <cstddef>
#include <cstdint>

namespace nvcache::vfs {

// A name, and what is known of it.
struct LeftName {
  // Nothing: it was not left. kMoved: no one file alone may have it again, for its file has another
  // name now, or it was left several times and never synced in between. Else the fingerprint of the
  // file that was removed (odd, as pool::Fingerprint makes them).
  static constexpr uint64_t kNothing = 0;
  static constexpr uint64_t kMoved = 2;

  uint64_t hash = 0;  // of the name
  uint64_t left = kNothing;
};

// Knows names by the last part of their paths, and not for ever: a newer one may take the place of
// an older one. Either mistake is harmless. Table lock.
class LeftNames {
 public:
  void Add(const char* path, uint64_t left) { Return({HashOf(path), left}); }
  // And forgets it: whoever asks has the name now.
  LeftName Take(const char* path) {
    const uint64_t hash = HashOf(path);
    LeftName& place = places_[hash % kPlaces];
    if (place.hash != hash) return {};
    const LeftName found = place;
    place = {};
    return found;
  }
  // The file that has taken it is forgotten before it was ever synced.
  void Return(const LeftName& name) { places_[name.hash % kPlaces] = name; }

 private:
  static constexpr size_t kPlaces = 1024;

  // FNV-1a of what follows the last slash; never 0.
  static uint64_t HashOf(const char* path) {
    constexpr uint64_t kBegin = 0xcbf29ce484222325;
    uint64_t hash = kBegin;
    for (; *path != '\0'; ++path) {
      hash = *path == '/' ? kBegin : (hash ^ static_cast<uint8_t>(*path)) * 0x100000001b3;
    }
    return hash != 0 ? hash : 1;
  }

  LeftName places_[kPlaces] = {};
};

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_LEFT_NAMES_H_
