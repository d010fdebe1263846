// SPDX-License-Identifier: BSD-3-Clause
#include "recovery/tool/mirroring.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>

#include "recovery/tool/exposition.h"
#include "src/pool/byte_locks.h"

namespace nvcache::tool {
namespace {

struct State {
  const char* name;
  const char* meaning;
  bool waits;  // for a mirror, which only one that lives ends
};

// The states, in the order of pool::kMirror*.
constexpr State kStates[] = {
    {"none", "a sync waits: no mirror has ever come", true},
    {"real", "a sync goes to the disk", false},
    {"joining", "a sync goes to the disk, and then waits for a majority of the servers", true},
    {"mirrored", "a sync waits until a majority of the servers has what it covers", true},
    {"leaving", "a sync waits until everything is on the disk", true},
    {"failing", "a sync fails with EIO: no majority of the servers answers", false},
    {"fenced", "a sync fails with EIO, for good: another writer has taken the mirror name", false},
};
static_assert(std::size(kStates) == pool::kMirrorFenced + 1);
constexpr State kUnknown = {"unknown", "a sync fails with EIO: the state is damaged", false};

const State& StateOf(uint32_t state) {
  return state < std::size(kStates) ? kStates[state] : kUnknown;
}

}  // namespace

Mirroring FindMirroring(const ScopedPool& pool) {
  Mirroring mirroring;
  const bool has_journal = pool.has_journal() || pool.lost;
  mirroring.commit = has_journal ? pool::kCommitOwn : pool.view().superblock->commit;
  if (mirroring.commit == pool::kCommitOwn) return mirroring;
  const pool::MirrorWords words(pool.view());
  mirroring.state = words.state();
  mirroring.alive = pool::AreBytesHeld(pool.fd(), pool::kMirrorByte, 1);
  // The position first: it does not pass what is drawn later.
  const pool::Lsn mirrored = words.mirrored(), next = words.next();
  mirroring.lacking = next > mirrored && pool.dirty() ? next - mirrored : 0;
  mirroring.waits = words.waits();
  mirroring.outputs = words.outputs();
  return mirroring;
}

const char* CommitWord(uint32_t commit) {
  return commit == pool::kCommitWrite    ? "write"
         : commit == pool::kCommitOutput ? "output"
                                         : "fsync";
}

std::string OutputsText(const pool::OutputWaits& outputs) {
  std::string text = Many(outputs.told, "sync was", "syncs were") + " told at once";
  for (uint32_t i = 0; i < pool::kOutputs; ++i) {
    if (outputs.counts[i] == 0) continue;
    text += fmt::format(", {} x {} waited {}", outputs.counts[i], OutputName(i),
                        Microseconds(outputs.waited[i]));
  }
  return text + fmt::format("; at most {} ahead", Microseconds(outputs.longest));
}

const char* MirrorStateName(uint32_t state) { return StateOf(state).name; }

std::string MirrorText(const Mirroring& mirroring) {
  const State& state = StateOf(mirroring.state);
  std::string text = fmt::format("{}: {}", state.name, state.meaning);
  if (mirroring.alive) return text;
  text += "; no mirror is running";
  if (state.waits) text += ", and none of these waits ends until 'nvcache mirror' is";
  return text;
}

std::string WaitsText(const pool::MirrorWaits& waits) {
  const uint64_t count = CountOf(waits);
  std::string text = Many(count, "wait", "waits");
  if (count != 0) {
    text += fmt::format(", half of them up to {}, 99 % up to {}",
                        Microseconds(Quantile(waits, 0.5)), Microseconds(Quantile(waits, 0.99)));
  }
  return text + fmt::format("; {} failed", waits.failed);
}

void PutWaits(Json* json, const pool::MirrorWaits& waits) {
  const uint64_t count = CountOf(waits);
  (*json)["waits"] = count;
  (*json)["waits_failed"] = waits.failed;
  (*json)["waited_us"] = waits.waited;
  (*json)["wait_median_us"] = count != 0 ? Json(Quantile(waits, 0.5)) : Json();
  (*json)["wait_p99_us"] = count != 0 ? Json(Quantile(waits, 0.99)) : Json();
}

void PutOutputs(Json* json, const pool::OutputWaits& outputs) {
  Json kinds = Json::object();
  for (uint32_t i = 0; i < pool::kOutputs; ++i) {
    kinds[OutputName(i)] = {{"waits", outputs.counts[i]}, {"waited_us", outputs.waited[i]}};
  }
  (*json)["told"] = outputs.told;
  (*json)["told_longest_us"] = outputs.longest;
  (*json)["outputs"] = std::move(kinds);
}

Json MirrorJson(const Mirroring& mirroring) {
  if (mirroring.commit == pool::kCommitOwn) return nullptr;
  Json json = {{"commit", CommitWord(mirroring.commit)},
               {"state", MirrorStateName(mirroring.state)},
               {"alive", mirroring.alive},
               {"lacking_lsns", mirroring.lacking}};
  PutWaits(&json, mirroring.waits);
  if (mirroring.commit == pool::kCommitOutput) PutOutputs(&json, mirroring.outputs);
  return json;
}

uint64_t CountOf(const pool::MirrorWaits& waits) {
  return std::accumulate(std::begin(waits.counts), std::end(waits.counts), uint64_t{0});
}

uint64_t Quantile(const pool::MirrorWaits& waits, double share) {
  const uint64_t count = CountOf(waits);
  if (count == 0) return 0;
  const auto rank = static_cast<uint64_t>(share * static_cast<double>(count - 1));
  uint32_t bucket = 0;
  for (uint64_t seen = waits.counts[0]; seen <= rank && bucket < pool::kMirrorBuckets - 2;) {
    seen += waits.counts[++bucket];
  }
  return pool::MirrorBucketEnd(bucket);
}

pool::MirrorWaits Between(const pool::MirrorWaits& before, const pool::MirrorWaits& now) {
  const auto since = [](uint64_t from, uint64_t to) { return to >= from ? to - from : to; };
  pool::MirrorWaits waits = {
      since(before.failed, now.failed), since(before.waited, now.waited), {}};
  std::transform(std::begin(before.counts), std::end(before.counts), std::begin(now.counts),
                 std::begin(waits.counts), since);
  return waits;
}

// The longest distance is one since the pool was made.
pool::OutputWaits Between(const pool::OutputWaits& before, const pool::OutputWaits& now) {
  const auto since = [](uint64_t from, uint64_t to) { return to >= from ? to - from : to; };
  pool::OutputWaits outputs = {since(before.told, now.told), now.longest, {}, {}};
  std::transform(std::begin(before.counts), std::end(before.counts), std::begin(now.counts),
                 std::begin(outputs.counts), since);
  std::transform(std::begin(before.waited), std::end(before.waited), std::begin(now.waited),
                 std::begin(outputs.waited), since);
  return outputs;
}

}  // namespace nvcache::tool
