// SPDX-License-Identifier: BSD-3-Clause
#ifndef NVCACHE_MIRROR_NET_ERROR_H_
#define NVCACHE_MIRROR_NET_ERROR_H_

#include <stdexcept>

namespace nvcache::mirror {

// What is wrong with an address or a file of keys: one line for people, without "nvcache: ".
struct NetError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace nvcache::mirror

#endif  // NVCACHE_MIRROR_NET_ERROR_H_
