// SPDX-License-Identifier: BSD-3-Clause
#ifndef NVCACHE_MIRROR_STORE_ERROR_H_
#define NVCACHE_MIRROR_STORE_ERROR_H_

#include <stdexcept>

namespace nvcache::mirror {

// One line for people, without "nvcache: ".
struct StoreError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The machine has no memory for bytes that the limit has room for. Nothing was changed.
struct NoRoom : StoreError {
  using StoreError::StoreError;
};

}  // namespace nvcache::mirror

#endif  // NVCACHE_MIRROR_STORE_ERROR_H_
