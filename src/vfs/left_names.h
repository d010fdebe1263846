// SPDX-License-Identifier: BSD-3-Clause
//
// Names that the program has taken from files. Who gets such a name next is a new file whose name
// the file system may give back to the old one, if the power fails before either was synced (I9).
#ifndef NVCACHE_VFS_LEFT_NAMES_H_
#define NVCACHE_VFS_LEFT_NAMES_H_

#include <cstddef>
#include <cstdint>

namespace nvcache::vfs {

// Knows names by the last part of their paths, and not for ever: a newer one may take the place of
// an older one. Either mistake is harmless. Table lock.
class LeftNames {
 public:
  // What is known of a name. kNothing: it was not left; kMoved: its file has another name now;
  // else the fingerprint of the file that was removed (odd, as pool::Fingerprint makes them).
  static constexpr uint64_t kNothing = 0;
  static constexpr uint64_t kMoved = 2;

  void Add(const char* path, uint64_t left) {
    const uint64_t hash = HashOf(path);
    places_[hash % kPlaces] = {hash, left};
  }
  // And forgets it: whoever asks has the name now.
  uint64_t Take(const char* path) {
    const uint64_t hash = HashOf(path);
    Place& place = places_[hash % kPlaces];
    if (place.hash != hash) return kNothing;
    const uint64_t left = place.left;
    place = {};
    return left;
  }

 private:
  static constexpr size_t kPlaces = 1024;
  struct Place {
    uint64_t hash;
    uint64_t left;
  };

  // FNV-1a of what follows the last slash; never 0.
  static uint64_t HashOf(const char* path) {
    constexpr uint64_t kBegin = 0xcbf29ce484222325;
    uint64_t hash = kBegin;
    for (; *path != '\0'; ++path) {
      hash = *path == '/' ? kBegin : (hash ^ static_cast<uint8_t>(*path)) * 0x100000001b3;
    }
    return hash != 0 ? hash : 1;
  }

  Place places_[kPlaces] = {};
};

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_LEFT_NAMES_H_
