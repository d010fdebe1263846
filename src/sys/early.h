// SPDX-License-Identifier: BSD-3-Clause
//
// Where variables lie that the start of every program writes to.
#ifndef NVCACHE_SYS_EARLY_H_
#define NVCACHE_SYS_EARLY_H_

// Beside each other, and beside those that the dynamic linker writes to: each page more costs every
// program a fault. Those that are zero would else be spread over pages of zeros.
#define NVCACHE_EARLY [[gnu::section(".data")]]

#endif  // NVCACHE_SYS_EARLY_H_
