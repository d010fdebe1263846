// SPDX-License-Identifier: BSD-3-Clause
//
// An error in words: one line for people, without "nvcache: ".
#ifndef NVCACHE_MIRROR_CORE_ERROR_H_
#define NVCACHE_MIRROR_CORE_ERROR_H_

#include <stdexcept>
#include <string>
#include <system_error>

namespace nvcache::mirror {

// An errno.
inline std::string Why(int error) { return std::generic_category().message(error); }

// With an address or a file of keys.
struct NetError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// With a store.
struct StoreError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The machine has no memory for bytes that the limit has room for. Nothing was changed.
struct NoRoom : StoreError {
  using StoreError::StoreError;
};

}  // namespace nvcache::mirror

#endif  // NVCACHE_MIRROR_CORE_ERROR_H_
