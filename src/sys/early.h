// SPDX-License-Identifier: BSD-3-Clause
//
// Where variables lie that the start of every program writes to.
#ifndef NVCACHE_SYS_EARLY_H_
#define NVCACHE_SYS_EARLY_H_

// Beside each other, behind all that is initialised: each page more costs every program a fault,
// and the last of those the dynamic linker writes to in any case. Those that are zero would else be
// spread over pages of zeros.
#define NVCACHE_EARLY [[gnu::section(".data1")]]

#endif  // NVCACHE_SYS_EARLY_H_
