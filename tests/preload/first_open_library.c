// SPDX-License-Identifier: BSD-3-Clause
//
// A library that uses files when it is loaded, as the program that loads it says.
void in_constructor(void);

__attribute__((constructor)) static void Begin(void) { in_constructor(); }
