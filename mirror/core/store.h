// SPDX-License-Identifier: BSD-3-Clause
//
// The memory of a server for one mirror name: it outlives the process, and not the kernel
// (mirror/store), or is a model of that (tests/mirror).
#ifndef NVCACHE_MIRROR_CORE_STORE_H_
#define NVCACHE_MIRROR_CORE_STORE_H_

#include <cstdint>
#include <vector>

#include "mirror/core/ids.h"
#include "mirror/core/message.h"

namespace nvcache::mirror {

// A server knows this of an image, beside its bytes.
struct ImageInfo {
  Id lineage;  // none: there is no image
  uint64_t pool_size = 0;
  Epoch written = 0;
  Position position = 0;
};

// A store keeps all but the copy while the process is gone. Each call is done as a whole, or, if
// the process dies in it, not at all; a store that has lost its memory has none of it, and another
// incarnation.
class Store {
 public:
  virtual ~Store() = default;

  virtual Id incarnation() const = 0;
  virtual Epoch promised() const = 0;
  virtual Version version() const = 0;
  virtual const ImageInfo& image() const = 0;
  virtual void SetPromised(Epoch epoch) = 0;
  virtual void SetVersion(Version version) = 0;

  // An empty copy; one that was there is dropped. False: there is no room.
  virtual bool BeginCopy(const Id& lineage, uint64_t pool_size) = 0;
  virtual bool HasCopy() const = 0;
  virtual uint64_t copy_size() const = 0;
  virtual void DropCopy() = 0;
  // Into the copy. The ranges were checked, and lie in it.
  virtual void WriteCopy(const std::vector<Range>& ranges, const uint8_t* bytes) = 0;
  // It takes the place of the image, at `position`, written in `epoch`.
  virtual void Exchange(Epoch epoch, Position position) = 0;
  // Into the image: bytes, epoch and position at once.
  virtual void Write(const std::vector<Range>& ranges, const uint8_t* bytes, Epoch epoch,
                     Position position) = 0;
  virtual void Forget() = 0;

  // The image's first run of bytes from `offset` on that has others than zeros in each kilobyte or
  // so, at most kMaxBytes; {pool_size, 0} at the end.
  virtual Range Find(uint64_t offset) const = 0;
  virtual void Read(const Range& range, uint8_t* bytes) const = 0;
};

}  // namespace nvcache::mirror

#endif  // NVCACHE_MIRROR_CORE_STORE_H_
