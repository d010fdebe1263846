// SPDX-License-Identifier: BSD-3-Clause
//
// A library that a program needs, and whose file is written over meanwhile.
int replaced(void);

int replaced(void) { return 7; }
