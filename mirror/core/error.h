// SPDX-License-Identifier: BSD-3-Clause
#ifndef NVCACHE_MIRROR_CORE_ERROR_H_
#define NVCACHE_MIRROR_CORE_ERROR_H_

#include <string>
#include <system_error>

namespace nvcache::mirror {

// An errno in words, for a line that people read.
inline std::string Why(int error) { return std::generic_category().message(error); }

}  // namespace nvcache::mirror

#endif  // NVCACHE_MIRROR_CORE_ERROR_H_
