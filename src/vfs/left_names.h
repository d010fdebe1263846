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
  // name now, or it was left several times and never synced in between, or it is not known who left
  // it. Else the fingerprint of the file that was removed (odd, as pool::Fingerprint makes them).
  static constexpr uint64_t kNothing = 0;
  static constexpr uint64_t kMoved = 2;

  uint64_t key = 0;  // KeyOf() it
  uint64_t left = kNothing;
};

// A newer name may take the place of an older one. From then on, any that would have that place may
// have been left. Table lock.
class LeftNames {
 public:
  // Of the name in its folder. Two names with one key are taken for the same.
  static uint64_t KeyOf(int dirfd, const char* path);

  // And forgets it: whoever asks has the name now.
  LeftName Take(uint64_t key) {
    Place& place = places_[key % kPlaces];
    if (place.name.key != key) return {key, place.forgets ? LeftName::kMoved : LeftName::kNothing};
    const LeftName found = place.name;
    place.name = {};
    return found;
  }
  // It was left; or the file that has taken it is forgotten before it was ever synced.
  void Add(const LeftName& name) {
    Place& place = places_[name.key % kPlaces];
    place.forgets |= place.name.left != LeftName::kNothing && place.name.key != name.key;
    place.name = name;
  }

 private:
  static constexpr size_t kPlaces = 4096;
  struct Place {
    LeftName name;
    bool forgets;
  };

  Place places_[kPlaces] = {};
};

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_LEFT_NAMES_H_
