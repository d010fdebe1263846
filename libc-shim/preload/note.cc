// SPDX-License-Identifier: BSD-3-Clause
#include "src/pool/note.h"

// This front end's version; nothing depends on it yet.
constexpr uint32_t kFrontEndVersion = 1;

NVCACHE_NOTE(kFrontEndVersion);
