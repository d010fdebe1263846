// SPDX-License-Identifier: BSD-3-Clause
#include "src/pool/note.h"

NVCACHE_NOTE(1);
