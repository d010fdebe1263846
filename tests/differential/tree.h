// SPDX-License-Identifier: BSD-3-Clause
//
// What is in a folder: names, kinds, modes, link counts, sizes, contents.
#ifndef NVCACHE_TESTS_DIFFERENTIAL_TREE_H_
#define NVCACHE_TESTS_DIFFERENTIAL_TREE_H_

#include <map>
#include <string>

namespace nvcache::differential {

using Tree = std::map<std::string, std::string>;  // path -> everything else, in words

Tree ReadTree(const std::string& root);
// The first few differences, in words; empty if there is none.
std::string CompareTrees(const Tree& expected, const Tree& found);

}  // namespace nvcache::differential

#endif  // NVCACHE_TESTS_DIFFERENTIAL_TREE_H_
