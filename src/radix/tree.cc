// SPDX-License-Identifier: BSD-3-Clause
#include "src/radix/tree.h"

#include "src/sys/check.h"

namespace nvcache::radix {

namespace {

constexpr uint32_t kPagesPerNode = 2;

// Puts a fresh object into an empty slot; if another thread was faster, takes its object and gives
// ours back. Returns number plus one, or 0 if there was none to put.
template <typename T>
uint32_t Fill(std::atomic<uint32_t>& slot, sys::Arena<T>& arena) {
  const uint32_t fresh = arena.Allocate();
  if (fresh == sys::kNone) return 0;
  uint32_t found = 0;
  if (slot.compare_exchange_strong(found, fresh + 1, std::memory_order_acq_rel)) return fresh + 1;
  arena.Free(fresh);
  return found;
}

}  // namespace

bool Supply::Open(uint32_t page_capacity) {
  NVCACHE_CHECK(page_capacity < kMaxPages);
  return pages.Open(page_capacity) &&
         nodes.Open(page_capacity / kPagesPerNode + kMaxHeight * kFanout);
}

void Supply::Close() {
  pages.Close();
  nodes.Close();
}

bool Supply::Low() {
  return pages.Available() < pages.capacity() / 4 || nodes.Available() < nodes.capacity() / 4;
}

PageDescriptor* Tree::Find(Supply& supply, uint64_t page) const {
  const Root root = Load();
  if (root.height == 0 || !Covers(root, page)) return nullptr;
  uint32_t child = root.node_plus_one;
  for (uint32_t level = root.height; level-- > 0;) {
    child = supply.nodes[child - 1].child[Slot(page, level)].load(std::memory_order_acquire);
    if (child == 0) return nullptr;
  }
  return &supply.pages[child - 1];
}

PageDescriptor* Tree::FindOrMake(Supply& supply, uint64_t page) {
  NVCACHE_CHECK(page >> kPageNumberBits == 0);
  if (!Grow(supply, page)) return nullptr;
  const Root root = Load();
  uint32_t child = root.node_plus_one;
  for (uint32_t level = root.height; level-- > 0;) {
    std::atomic<uint32_t>& slot = supply.nodes[child - 1].child[Slot(page, level)];
    child = slot.load(std::memory_order_acquire);
    if (child == 0) {
      child = level == 0 ? Fill(slot, supply.pages) : Fill(slot, supply.nodes);
      if (child == 0) return nullptr;
    }
  }
  return &supply.pages[child - 1];
}

// Puts new roots above the old one until `page` fits below.
bool Tree::Grow(Supply& supply, uint64_t page) {
  for (;;) {
    const Root root = Load();
    if (root.height > 0 && Covers(root, page)) return true;
    const uint32_t fresh = supply.nodes.Allocate();
    if (fresh == sys::kNone) return false;
    std::atomic<uint32_t>& lowest = supply.nodes[fresh].child[0];
    lowest.store(root.node_plus_one, std::memory_order_relaxed);
    uint64_t expected = Word(root);
    if (!root_.compare_exchange_strong(expected, Word({fresh + 1, root.height + 1}),
                                       std::memory_order_acq_rel)) {
      lowest.store(0, std::memory_order_relaxed);
      supply.nodes.Free(fresh);
    }
  }
}

void Tree::Trim(Supply& supply) {
  const Root root = Load();
  if (root.height == 0 || !TrimNode(supply, root.node_plus_one - 1, root.height)) return;
  supply.nodes.Free(root.node_plus_one - 1);
  root_.store(0, std::memory_order_release);
}

// True if the node is empty now.
bool Tree::TrimNode(Supply& supply, uint32_t node, uint32_t height) {
  bool empty = true;
  for (std::atomic<uint32_t>& slot : supply.nodes[node].child) {
    const uint32_t word = slot.load(std::memory_order_relaxed);
    if (word == 0) continue;
    const uint32_t child = word - 1;
    bool free_child;
    if (height == 1) {
      // A thread that takes a frame away locks the page first, with the frame's owner as a hint
      // only.
      sys::Lock lock(supply.pages[child].lock);
      free_child = supply.pages[child].idle();
    } else {
      free_child = TrimNode(supply, child, height - 1);
    }
    if (!free_child) {
      empty = false;
      continue;
    }
    slot.store(0, std::memory_order_relaxed);
    height == 1 ? supply.pages.Free(child) : supply.nodes.Free(child);
  }
  return empty;
}

}  // namespace nvcache::radix
