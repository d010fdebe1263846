// SPDX-License-Identifier: BSD-3-Clause
//
// What kill_ends.c and its library share.
#ifndef NVCACHE_TESTS_KILL_KILL_ENDS_H_
#define NVCACHE_TESTS_KILL_KILL_ENDS_H_

// How the process is to end: the word on its command line.
int ends_by(const char* way);

// Writes this to each file: by two streams, which keep it, and by a descriptor.
void write_more(const char* text);

#endif  // NVCACHE_TESTS_KILL_KILL_ENDS_H_
