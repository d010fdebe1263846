// SPDX-License-Identifier: BSD-3-Clause
//
// Files for the fuzzer: anything that goes wrong with them ends it.
#ifndef NVCACHE_TESTS_FUZZ_FILES_H_
#define NVCACHE_TESTS_FUZZ_FILES_H_

#include <sys/types.h>

#include <string>

namespace nvcache::fuzz {

[[noreturn]] void Die(const std::string& text);
void WriteFile(const std::string& path, const std::string& content, uid_t owner, mode_t mode);
std::string ReadFile(const std::string& path);
// What can be seen of a file without reading it.
std::string Look(const std::string& path);
// That, and what is in it, of all that is below a folder, and of the folder.
std::string LookAtAll(const std::string& folder);

}  // namespace nvcache::fuzz

#endif  // NVCACHE_TESTS_FUZZ_FILES_H_
