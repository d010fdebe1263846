// SPDX-License-Identifier: BSD-3-Clause
//
// A file's radix tree: page number -> page descriptor. Lookups and insertions need no lock and may
// run at the same time; Trim and ForEach need the file's lock, as they say. The tree is as high as
// the file's largest page number asks (thesis, section 3.2.6; after the Linux page cache's tree).
#ifndef NVCACHE_RADIX_TREE_H_
#define NVCACHE_RADIX_TREE_H_

#include <atomic>
#include <cstdint>

#include "src/radix/page.h"
#include "src/sys/arena.h"

namespace nvcache::radix {

inline constexpr unsigned kFanoutBits = 6;
inline constexpr uint32_t kFanout = 1u << kFanoutBits;
// 2^63 bytes of file in pages of 4 KiB.
inline constexpr unsigned kPageNumberBits = 51;
inline constexpr unsigned kMaxHeight = (kPageNumberBits + kFanoutBits - 1) / kFanoutBits;

// An inner node's children are nodes, a lowest node's are page descriptors; number plus one, so
// that zero is none.
struct Node {
  std::atomic<uint32_t> child[kFanout];
};
static_assert(sizeof(Node) == 256);
inline constexpr uint32_t kMaxPages = (1u << 31) - 1;  // pages of a supply

// Where all trees take their nodes and descriptors from.
struct Supply {
  PageArena pages;
  sys::Arena<Node> nodes;

  // Room for `page_capacity` descriptors and for half as many nodes (< kMaxPages): pages that lie
  // far apart need a node each. A caller is as badly off without a node as without a descriptor.
  bool Open(uint32_t page_capacity);
  void Close();
  // Less than a quarter is left of either.
  bool Low();
};

class Tree {
 public:
  // The page's descriptor, or nullptr. The caller holds the file's lock, shared or exclusive, or
  // knows that the page is dirty: the descriptor stays while it does.
  PageDescriptor* Find(Supply& supply, uint64_t page) const;

  // The same, and makes it if there is none; nullptr if the supply is used up. File lock, shared.
  PageDescriptor* FindOrMake(Supply& supply, uint64_t page);

  // Calls function(page, descriptor) in ascending order of pages. File lock, shared or exclusive.
  template <typename Function>
  void ForEach(Supply& supply, Function function) const {
    const Root root = Load();
    if (root.node_plus_one != 0) Visit(supply, root, function);
  }

  // Gives back idle descriptors and empty nodes. File lock, exclusive.
  void Trim(Supply& supply);

  bool empty() const { return Load().node_plus_one == 0; }

 private:
  // Both change at once, so they share a word.
  struct Root {
    uint32_t node_plus_one;
    uint32_t height;  // levels of nodes; 0: no node
  };
  Root Load() const {
    const uint64_t word = root_.load(std::memory_order_acquire);
    return {static_cast<uint32_t>(word), static_cast<uint32_t>(word >> 32)};
  }
  static uint64_t Word(Root root) { return uint64_t{root.height} << 32 | root.node_plus_one; }
  static bool Covers(Root root, uint64_t page) {
    return root.height * kFanoutBits >= 64 || page >> (root.height * kFanoutBits) == 0;
  }
  static uint32_t Slot(uint64_t page, uint32_t level) {
    return static_cast<uint32_t>(page >> (level * kFanoutBits)) & (kFanout - 1);
  }

  bool Grow(Supply& supply, uint64_t page);
  static bool TrimNode(Supply& supply, uint32_t node, uint32_t height);

  // Not by recursion: a program's stack may be as small as a handler's.
  template <typename Function>
  static void Visit(Supply& supply, Root root, Function& function) {
    struct {
      uint32_t node;
      uint32_t slot;  // the next one to look at
    } path[kMaxHeight];
    path[0] = {root.node_plus_one - 1, 0};
    uint64_t prefix = 0;
    for (uint32_t level = 0;;) {
      auto& [node, slot] = path[level];
      if (slot == kFanout) {
        if (level-- == 0) return;
        prefix >>= kFanoutBits;
        continue;
      }
      const uint64_t page = prefix << kFanoutBits | slot;
      const uint32_t child = supply.nodes[node].child[slot++].load(std::memory_order_acquire);
      if (child == 0) continue;
      if (level + 1 == root.height) {
        function(page, supply.pages[child - 1]);
      } else {
        prefix = page;
        path[++level] = {child - 1, 0};
      }
    }
  }

  std::atomic<uint64_t> root_{0};
};

}  // namespace nvcache::radix

#endif  // NVCACHE_RADIX_TREE_H_
