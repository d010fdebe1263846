// SPDX-License-Identifier: BSD-3-Clause
#include "src/sys/sharing.h"

namespace nvcache::sys {

[[gnu::tls_model("initial-exec")]] constinit thread_local uint32_t sharing = 0;

}  // namespace nvcache::sys
