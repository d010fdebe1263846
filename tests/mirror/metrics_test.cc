// SPDX-License-Identifier: BSD-3-Clause
//
// What a mirror says of itself, and how far its servers are behind.
#include "mirror/tool/metrics.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace nvcache::tool {
namespace {

using mirror::Lag;
using mirror::Link;

constexpr mirror::Time kSecond = 1'000'000'000;

TEST(LagTest, SinceAnImageLacksSomething) {
  Lag lag;
  EXPECT_EQ(lag.Of(5).time, 0U) << "nothing is known";
  lag.Note(10 * kSecond, 100, 7);
  lag.Note(11 * kSecond, 200, 9);
  lag.Note(12 * kSecond, 300, 9);
  lag.Note(13 * kSecond, 300, 12);
  lag.Note(14 * kSecond, 300, 12);
  const auto check = [&](mirror::Position position, mirror::Time seconds, uint64_t segments) {
    SCOPED_TRACE(position);
    EXPECT_EQ(lag.Of(position).time, seconds * kSecond);
    EXPECT_EQ(lag.Of(position).segments, segments);
  };
  check(300, 0, 0);
  check(400, 0, 0);
  check(299, 3, 3);
  check(200, 3, 3);
  check(199, 4, 5);
  check(100, 4, 5);
  check(1, 4, 5);
  // It has stood still until now.
  lag.Note(20 * kSecond, 301, 12);
  check(300, 6, 0);
  lag.Note(21 * kSecond, 50, 12);
  check(20, 0, 0);
}

// Hours of a busy pool; what is remembered of them is within 7 %.
TEST(LagTest, LongAgo) {
  Lag lag;
  constexpr mirror::Time kTick = kSecond / 50;
  constexpr uint64_t kTicks = 50 * 3600 * 5;
  for (uint64_t i = 0; i <= kTicks; ++i) lag.Note(i * kTick, 1 + i, i);
  for (uint64_t ago = 1; ago < kTicks; ago = ago * 3 / 2 + 1) {
    const Lag::Behind behind = lag.Of(1 + kTicks - ago);
    EXPECT_GE(behind.time, ago * kTick) << ago;
    EXPECT_LE(behind.time, ago * kTick * 107 / 100 + kTick) << ago;
    EXPECT_EQ(behind.segments, behind.time / kTick);
  }
}

TEST(LagTest, OfManyCallsAtOnceTheLastCounts) {
  Lag lag;
  for (uint64_t i = 0; i < 10000; ++i) lag.Note(kSecond + i, 100 + i, 0);
  EXPECT_EQ(lag.Of(10099).time, 0U);
  EXPECT_EQ(lag.Of(10098).time, 9999U) << "the last one that is 100 us old, or the first";
}

MirrorMetrics Example() {
  MirrorMetrics metrics = {.state = mirror::State::kMirrored,
                           .epoch = 7,
                           .mode = mirror::Mode::kMirrored,
                           .position = 90,
                           .next = 100,
                           .below_quorum = 1500 * kSecond / 1000};
  metrics.waits.counts[0] = 1;
  metrics.waits.counts[6] = 2;
  metrics.waits.counts[pool::kMirrorBuckets - 1] = 1;
  metrics.waits.waited = 5000000;
  metrics.waits.failed = 4;
  ServerMetrics follows = {.address = "10.0.0.1:7070", .stage = Link::Stage::kFollowing};
  follows.epoch = 7;
  follows.incarnation.bytes[0] = 0xab;
  follows.counts = true;
  follows.position = 95;
  follows.lag = Lag::Behind{kSecond / 4, 2};
  follows.lag_bytes = 131072;
  follows.counters = {.connections = 3, .copies = 2, .batches = 10, .bytes = 1000};
  metrics.servers = {follows, {.address = "/a \"quoted\\path\"\nof two lines"}};
  metrics.servers[1].counters.batches = 1;
  return metrics;
}

// By name and labels.
std::map<std::string, double> Values(const std::string& text) {
  std::map<std::string, double> values;
  for (const MetricLine& line : ParseMetrics(text)) {
    std::string key = line.name.substr(std::string("nvcache_mirror_").size());
    for (const auto& [label, value] : line.labels)
      key.append(" ").append(label).append("=").append(value);
    EXPECT_TRUE(values.emplace(key, line.value).second) << key;
  }
  return values;
}

TEST(MetricsTest, OfTheMirror) {
  const auto values = Values(Text(Example()));
  EXPECT_EQ(values.at("state state=mirrored"), 1);
  EXPECT_EQ(values.at("state state=real"), 0);
  EXPECT_EQ(values.at("epoch"), 7);
  EXPECT_EQ(values.at("mode mode=mirrored"), 1);
  EXPECT_EQ(values.at("mode mode=recovering"), 0);
  EXPECT_EQ(values.at("position"), 90);
  EXPECT_EQ(values.at("next_lsn"), 100);
  EXPECT_EQ(values.at("below_quorum_seconds_total"), 1.5);
  EXPECT_EQ(values.at("batches_total"), 11);
  EXPECT_EQ(values.at("sent_bytes_total"), 1000);
}

// Each bucket has those of all before it, and the last one has all.
TEST(MetricsTest, Waits) {
  const auto values = Values(Text(Example()));
  EXPECT_EQ(values.at("wait_seconds_bucket le=1e-06"), 1);
  EXPECT_EQ(values.at("wait_seconds_bucket le=3.2e-05"), 1);
  EXPECT_EQ(values.at("wait_seconds_bucket le=6.4e-05"), 3);
  EXPECT_EQ(values.at("wait_seconds_bucket le=268.435456"), 3);
  EXPECT_EQ(values.at("wait_seconds_bucket le=+Inf"), 4);
  EXPECT_EQ(values.at("wait_seconds_count"), 4);
  EXPECT_EQ(values.at("wait_seconds_sum"), 5);
  EXPECT_EQ(values.at("waits_failed_total"), 4);
}

TEST(MetricsTest, OfServers) {
  const auto values = Values(Text(Example()));
  const std::string follows = " server=10.0.0.1:7070";
  EXPECT_EQ(values.at("server_connected" + follows), 1);
  EXPECT_EQ(values.at("server_stage" + follows + " stage=following"), 1);
  EXPECT_EQ(values.at("server_stage" + follows + " stage=closed"), 0);
  EXPECT_EQ(values.at("server_epoch" + follows), 7);
  EXPECT_EQ(values.at("server_incarnation" + follows + " incarnation=ab" + std::string(30, '0')),
            1);
  EXPECT_EQ(values.at("server_position" + follows), 95);
  EXPECT_EQ(values.at("server_lag_bytes" + follows), 131072);
  EXPECT_EQ(values.at("server_lag_seconds" + follows), 0.25);
  EXPECT_EQ(values.at("server_copies_total" + follows), 2);
  EXPECT_EQ(values.at("server_reconnects_total" + follows), 2);
  const std::string never = " server=/a \"quoted\\path\"\nof two lines";
  EXPECT_EQ(values.at("server_connected" + never), 0);
  EXPECT_EQ(values.at("server_reconnects_total" + never), 0);
  EXPECT_FALSE(values.contains("server_lag_bytes" + never));
  EXPECT_FALSE(values.contains("server_lag_seconds" + never));
}

TEST(MetricsTest, WhatIsNoLineIsLeftOut) {
  const auto lines = ParseMetrics(
      "# HELP a\n\n \na\na x\na{\na{b\na{b=\na{b=\"\na{b=\"c\"\na{b=\"\\\na{} 1 2\n{} 1\n}{\n"
      "good{b=\"\\\"}\",c=\"\\n\"} 1e3\nlast +Inf");
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0].name, "good");
  EXPECT_EQ(lines[0].Label("b"), "\"}");
  EXPECT_EQ(lines[0].Label("c"), "\n");
  EXPECT_EQ(lines[0].Label("d"), "");
  EXPECT_EQ(lines[0].value, 1000);
  EXPECT_EQ(lines[1].name, "last");
}

}  // namespace
}  // namespace nvcache::tool
