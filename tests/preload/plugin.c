// SPDX-License-Identifier: BSD-3-Clause
//
// A shared object for every_call to copy and load.
int answer(void) { return 42; }
