// SPDX-License-Identifier: BSD-3-Clause
//
// A cursor among two processes: what may happen happens between any two of its steps, and after
// each batch the image is what docs/mirror.md says. So is each mutant found.
#include "tests/mirror/pool/world.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "mirror/pool/faults.h"
#include "mirror/pool/source.h"

namespace nvcache::mirror {
namespace {

class WorldTest : public testing::Test {
 protected:
  ~WorldTest() override { g_faults = {}; }

  // What is wrong with one world; empty: nothing.
  std::string Run(uint64_t seed, bool keeps, size_t soft_bytes, int rounds) {
    const test::Folder folder(test::Folder::kMemory);
    World world(folder / "pool", seed, keeps);
    test::ScopedPool looked_at;
    test::OpenPool(looked_at, folder / "pool", pool::Mode::kInspect);
    const PoolSource source(looked_at);
    std::unique_ptr<Cursor> cursor;
    std::unique_ptr<Image> image;
    g_faults.soft_bytes = soft_bytes;
    g_faults.at = [&](Point) {
      if (!world.random().OneIn(10)) return;
      for (uint64_t i = world.random().Below(12); i > 0; --i) world.Act();
    };
    std::string problem;
    for (int round = 0; round < rounds && problem.empty(); ++round) {
      if (cursor == nullptr || world.random().OneIn(150)) {
        cursor = source.NewCursor();
        image = std::make_unique<Image>(source.pool_size());
      }
      for (uint64_t i = world.random().Below(20); i > 0; --i) world.Act();
      problem = Read(&world, cursor.get(), image.get());
    }
    g_faults.at = nullptr;
    voids_ += world.voids();
    return problem;
  }
  // Until there is nothing new: a round or two.
  std::string Read(World* world, Cursor* cursor, Image* image) {
    bool whole = true;
    for (Batch batch; cursor->Read(&batch);) {
      ++batches_;
      std::string problem = image->Apply(batch);
      if (problem.empty()) problem = world->Check(image);
      if (!problem.empty()) return problem;
      whole = batch.whole;
      if (whole && world->random().OneIn(2)) return "";
      parts_ += whole ? 0 : 1;
    }
    return whole ? "" : "nothing follows a batch that is not whole";
  }
  // The number of worlds until something was wrong; 0: nothing was.
  int Find(Mutant mutant, bool keeps, size_t soft_bytes, int worlds) {
    g_faults.mutant = mutant;
    for (int i = 0; i < worlds; ++i) {
      if (!Run(test::Seed() * 1000 + static_cast<uint64_t>(i), keeps, soft_bytes, 300).empty())
        return i + 1;
    }
    return 0;
  }

  uint64_t batches_ = 0, parts_ = 0, voids_ = 0;
};

constexpr uint64_t kWorlds = 12;
constexpr size_t kSmall = 24 << 10, kLarge = 1 << 20;

TEST_F(WorldTest, AnImageIsAStateOfThePool) {
  for (uint64_t i = 0; i < kWorlds; ++i) {
    const uint64_t seed = test::Seed() * 1000 + i;
    for (const size_t soft : {kSmall, kLarge}) {
      EXPECT_EQ(Run(seed, false, soft, 300), "") << "seed " << seed << ", batches of " << soft;
    }
  }
  EXPECT_GT(parts_, 100u);
  RecordProperty("batches", static_cast<int>(batches_));
}

TEST_F(WorldTest, SoItIsWhereDisksRefuse) {
  for (uint64_t i = 0; i < kWorlds; ++i) {
    const uint64_t seed = test::Seed() * 1000 + i;
    for (const size_t soft : {kSmall, kLarge}) {
      EXPECT_EQ(Run(seed, true, soft, 300), "") << "seed " << seed << ", batches of " << soft;
    }
  }
  EXPECT_GT(voids_, 100u);
}

struct Case {
  const char* name;
  Mutant mutant;
  bool keeps;
  size_t soft_bytes;
};

class MutantTest : public WorldTest, public testing::WithParamInterface<Case> {};

TEST_P(MutantTest, IsFound) {
  const Case& mutant = GetParam();
  const int worlds = Find(mutant.mutant, mutant.keeps, mutant.soft_bytes, 600);
  EXPECT_GT(worlds, 0);
  RecordProperty("worlds", worlds);
}

INSTANTIATE_TEST_SUITE_P(
    All, MutantTest,
    testing::Values(Case{"NextLast", Mutant::kNextLast, false, kLarge},
                    Case{"CheckpointsLast", Mutant::kCheckpointsLast, true, kLarge},
                    Case{"AnyGeneration", Mutant::kAnyGeneration, false, kLarge},
                    Case{"NoContinuation", Mutant::kNoContinuation, false, kLarge},
                    Case{"AnyOrder", Mutant::kAnyOrder, false, kSmall},
                    Case{"OneReading", Mutant::kOneReading, true, kLarge},
                    Case{"NoVoids", Mutant::kNoVoids, true, kLarge},
                    Case{"KeptStays", Mutant::kKeptStays, true, kLarge},
                    Case{"TakenOnce", Mutant::kTakenOnce, false, kLarge}),
    [](const testing::TestParamInfo<Case>& param) { return param.param.name; });

}  // namespace
}  // namespace nvcache::mirror
