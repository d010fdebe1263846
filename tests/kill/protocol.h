// SPDX-License-Identifier: BSD-3-Clause
//
// What the writer (kill_writer, which knows nothing of NVCache) and the driver (kill_driver) agree
// on: which files there are, what the bytes of a write are, and the records on the pipe.
//
// The order of overlapping writes has to be decidable from outside. Hence four kinds of files:
//
//   region   one part for each thread, which only that thread writes, and one shared part, which a
//            thread writes under a mutex that it holds from before the begin record until after
//            the end record. Any offset and length.
//   stream   one per thread, written at the descriptor's own offset.
//   race     all threads, without a mutex, overlapping, multiples of 8 bytes. Each word names its
//            write, so that the order can be read from the file.
//   append   all threads with O_APPEND; records that describe themselves.
#ifndef NVCACHE_TESTS_KILL_PROTOCOL_H_
#define NVCACHE_TESTS_KILL_PROTOCOL_H_

#include <cstdint>
#include <string>

#include "tests/kit/acknowledged.h"
#include "tests/kit/random.h"

namespace nvcache::kill_test {

using kit::Content;  // of a write into a region or stream file, and of an append's payload
using kit::Fill;
using kit::Mix;
using kit::Random;

inline constexpr unsigned kMaxThreads = 8;
inline constexpr unsigned kRegionFiles = 3;
inline constexpr uint64_t kRegionSize = 2u << 20;
inline constexpr uint64_t kMaxLength = 1u << 20;
inline constexpr unsigned kRaceFile = kRegionFiles;
inline constexpr uint64_t kRaceSize = 64u << 10;
inline constexpr unsigned kFirstAppendFile = kRaceFile + 1;
inline constexpr unsigned kAppendFiles = 2;
inline constexpr uint64_t kMaxAppendPayload = 64u << 10;
inline constexpr uint64_t kMaxAppendedPerRun = 16u << 20;  // bytes, per file and thread
inline constexpr unsigned kFirstStreamFile = kFirstAppendFile + kAppendFiles;
inline constexpr uint64_t kStreamSize = 4u << 20;

inline std::string FileName(unsigned file) {
  if (file < kRegionFiles) return "region" + std::to_string(file);
  if (file == kRaceFile) return "race";
  if (file < kFirstStreamFile) return "append" + std::to_string(file - kFirstAppendFile);
  return "stream" + std::to_string(file - kFirstStreamFile);
}
inline bool IsAppend(unsigned file) { return file >= kFirstAppendFile && file < kFirstStreamFile; }

// On the pipe, one before and one after each write. Smaller than PIPE_BUF, so never torn, and the
// order of the records is an order of time: end(A) before begin(B) means that A had returned before
// B was called.
struct Record {
  enum Kind : uint32_t { kBegin = 1, kEnd = 2 };
  uint32_t kind;
  uint32_t file;
  uint64_t id;
  uint64_t offset;  // of an append: 0
  uint64_t length;  // kBegin: asked for; kEnd: returned
};
static_assert(sizeof(Record) == 32);

// Names a write, in 40 bits.
inline constexpr int kIdBits = 40;
constexpr uint64_t MakeId(uint64_t round, uint64_t thread, uint64_t count) {
  return (round & 0xfff) << 28 | thread << 24 | (count & 0xffffff);
}

// Content of a write into the race file: the word at `index` (counted from the file's start).
constexpr uint64_t RaceWord(uint64_t id, uint64_t index) {
  return id << 24 | (Mix(id ^ index << 40) & 0xffffff);
}
constexpr uint64_t RaceWordId(uint64_t word) { return word >> 24; }

inline constexpr uint64_t kAppendMagic = 0x64726f6365723a61;
struct AppendHeader {
  uint64_t magic;
  uint64_t id;
  uint64_t payload;  // bytes that follow
  uint64_t check;    // Mix(id ^ payload << 40)
};
static_assert(sizeof(AppendHeader) == 32);

}  // namespace nvcache::kill_test

#endif  // NVCACHE_TESTS_KILL_PROTOCOL_H_
