// SPDX-License-Identifier: BSD-3-Clause
//
// A recovery that is begun by mistake: with a key that no server takes, while none can be reached,
// or while the mirror lives, which may be given other servers meanwhile.
#include "mirror/core/recoverer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "mirror/core/replica.h"

namespace nvcache::mirror {
namespace {

using Phase = Recoverer::Phase;

constexpr Time kStep = 50'000'000;
constexpr uint64_t kSize = 64;
constexpr size_t kServers = 3;

Id IdWith(uint8_t byte) {
  Id id;
  id.bytes.fill(byte);
  return id;
}

// An image, and a copy that may take its place.
class TestStore : public Store {
 public:
  explicit TestStore(uint8_t number) : incarnation_(IdWith(number)), bytes_(kSize, number) {}

  Id incarnation() const override { return incarnation_; }
  Epoch promised() const override { return promised_; }
  Version version() const override { return version_; }
  const ImageInfo& image() const override { return image_; }
  void SetPromised(Epoch epoch) override { promised_ = epoch; }
  void SetVersion(Version version) override { version_ = version; }
  bool BeginCopy(const Id& lineage, uint64_t pool_size) override {
    copied_ = lineage;
    copy_.assign(pool_size, 0);
    return true;
  }
  bool HasCopy() const override { return !copy_.empty(); }
  uint64_t copy_size() const override { return copy_.size(); }
  void DropCopy() override { copy_.clear(); }
  void WriteCopy(const std::vector<Range>& ranges, const uint8_t* bytes) override {
    for (const Range& range : ranges) {
      std::memcpy(copy_.data() + range.offset, bytes, range.length);
      bytes += range.length;
    }
  }
  void Exchange(Epoch epoch, Position position) override {
    image_ = {copied_, copy_.size(), epoch, position};
    bytes_ = std::exchange(copy_, {});
  }
  void Write(const std::vector<Range>&, const uint8_t*, Epoch epoch, Position position) override {
    image_.written = epoch;
    image_.position = position;
  }
  void Forget() override {}
  Range Find(uint64_t offset) const override {
    return {offset, static_cast<uint32_t>(kSize - offset)};
  }
  void Read(const Range& range, uint8_t* bytes) const override {
    if (range.length > 0) std::memcpy(bytes, bytes_.data() + range.offset, range.length);
  }

 private:
  const Id incarnation_;
  Epoch promised_ = 0;
  Version version_ = 0;
  ImageInfo image_ = {IdWith(9), kSize, 4, 100};
  std::vector<uint8_t> bytes_;
  Id copied_;
  std::vector<uint8_t> copy_;
};

// All of the pool, at once.
class WholePool : public Cursor {
 public:
  explicit WholePool(Position position) : position_(position) {}
  bool Read(Batch* batch) override {
    if (std::exchange(read_, true)) return false;
    *batch = {position_, true, {{0, kSize}}, std::vector<uint8_t>(kSize, 1)};
    return true;
  }

 private:
  const Position position_;
  bool read_ = false;
};

// Three servers, etcd, and a recovery, in one thread. The mirror of the pool lives, and has a
// connection to each server.
class RecovererTest : public ::testing::Test, public Recoverer::Host, public Replica::Host {
 protected:
  void SetUp() override { Begin(); }
  void TearDown() override { recoverer_.reset(); }
  void Begin() {
    stores_.clear();
    replicas_.clear();
    connects_.clear();
    sent_.clear();
    record_ = {7, 4, "its mirror", IdWith(9), kSize, Mode::kMirrored, false, {}};
    revision_ = 1;
    mirror_lives_.reset();
    closed_ = 0;
    for (size_t i = 0; i < kServers; ++i) {
      stores_.push_back(std::make_unique<TestStore>(static_cast<uint8_t>(i + 1)));
      Replica::Host* const host = this;
      replicas_.push_back(std::make_unique<Replica>(stores_[i].get(), host));
      replicas_[i]->Take(kMirror, {.type = Type::kPromise, .epoch = 4, .version = 7});
      record_.holders.push_back({"server" + std::to_string(i), stores_[i]->incarnation()});
    }
    first_ = record_;
    Recoverer::Host* const host = this;
    recoverer_ = std::make_unique<Recoverer>(Recoverer::Options{.name = "db1", .self = "me"}, host);
  }

  void Run(int steps) {
    for (int i = 0; i < steps && !Stops(); ++i) Step();
  }
  void RunUntil(Phase phase) {
    until_ = phase;
    Run(200);
    until_.reset();
    ASSERT_EQ(recoverer_->phase(), phase) << recoverer_->failure();
  }
  const Record& first_of_mirror() const { return first_; }
  // By the mirror, which is alive.
  void ChangeRecord() {
    ++record_.version;
    ++revision_;
    first_ = record_;
  }
  void ExpectNothingChanged() {
    for (const auto& store : stores_) EXPECT_EQ(store->promised(), 4u);
    EXPECT_EQ(closed_, 0) << "a connection of the mirror was ended";
    EXPECT_EQ(record_, first_);
    EXPECT_EQ(replays_, 0);
  }

  size_t reachable_ = kServers;       // the first ones
  size_t with_key_ = kServers;        // take the key, of these
  std::optional<bool> mirror_lives_;  // none: etcd does not say
  Record record_;
  int replays_ = 0;
  std::unique_ptr<Recoverer> recoverer_;

 private:
  static constexpr Connection kMirror = 1000;

  struct Wire : Link::Wire {
    Wire(RecovererTest* test, size_t server) : test_(*test), server_(server) {}
    ~Wire() override {
      test_.connects_.erase(server_);
      test_.sent_.erase(server_);
    }
    void Connect() override { test_.connects_[server_] = true; }
    void Close() override { test_.sent_[server_].clear(); }
    void Send(Message message) override { test_.sent_[server_].push_back(std::move(message)); }
    RecovererTest& test_;
    const size_t server_;
  };

  void ReadRecord() override { reads_ = true; }
  void WriteRecord(const Record& record, uint64_t revision) override {
    write_ = {record, revision};
  }
  // The address says which one it is.
  std::unique_ptr<Link::Wire> MakeWire(size_t holder, const std::string& address) override {
    holder_of_[static_cast<size_t>(address.back() - '0')] = holder;
    return std::make_unique<Wire>(this, static_cast<size_t>(address.back() - '0'));
  }
  void AskForMirror() override { asks_for_mirror_ = true; }
  bool Prepare(const Id&, uint64_t) override { return true; }
  void WritePool(const Range&, const uint8_t*) override {}
  std::unique_ptr<Cursor> OpenCursor(Position position) override {
    return std::make_unique<WholePool>(position);
  }
  void Replay() override { ++replays_; }

  // A server's calls.
  void Close(Connection connection) override { closed_ += connection == kMirror ? 1 : 0; }
  void Send(Connection connection, Message message) override {
    if (connection != kMirror) answers_.push_back(std::move(message));
  }

  bool Stops() const { return until_ == recoverer_->phase(); }
  // Each phase is seen: what was sent in it waits for the next step.
  void Step() {
    now_ += kStep;
    recoverer_->Tick(now_);
    if (std::exchange(reads_, false)) recoverer_->Found(true, record_, revision_, now_);
    if (std::exchange(asks_for_mirror_, false) && mirror_lives_) {
      recoverer_->HeardOfMirror(*mirror_lives_);
    }
    for (size_t server = 0; server < kServers && !Stops(); ++server) Serve(server);
    if (!Stops()) AnswerWrite();
  }
  void AnswerWrite() {
    if (!write_) return;
    const auto [record, revision] = *std::exchange(write_, std::nullopt);
    const bool done = revision == revision_;
    if (done) {
      record_ = record;
      ++revision_;
    }
    recoverer_->Written(done ? Outcome::kDone : Outcome::kConflict, revision_, now_);
  }
  void Serve(size_t server) {
    const size_t holder = holder_of_[server];
    if (std::exchange(connects_[server], false)) {
      if (server >= reachable_) return recoverer_->Closed(holder, now_);
      recoverer_->Connected(holder, now_);
    }
    while (!sent_[server].empty() && !Stops()) {
      const Message message = std::move(sent_[server].front());
      sent_[server].pop_front();
      if (server >= with_key_) {
        const Message refused = {.type = Type::kRefused, .why = Refusal::kForbidden};
        return recoverer_->Take(holder, refused, now_);
      }
      replicas_[server]->Take(server + 1, message);
      for (const Message& answer : std::exchange(answers_, {})) {
        recoverer_->Take(holder, answer, now_);
      }
    }
  }

  Time now_ = kStep;
  uint64_t revision_ = 0;
  Record first_;
  bool reads_ = false, asks_for_mirror_ = false;
  std::map<size_t, size_t> holder_of_;  // server
  std::optional<Phase> until_;
  std::optional<std::pair<Record, uint64_t>> write_;
  std::map<size_t, bool> connects_;
  std::map<size_t, std::deque<Message>> sent_;
  std::vector<Message> answers_;
  std::vector<std::unique_ptr<TestStore>> stores_;
  std::vector<std::unique_ptr<Replica>> replicas_;
  int closed_ = 0;
};

TEST_F(RecovererTest, WithAWrongKeyNothingChanges) {
  with_key_ = 0;
  Run(100);
  ExpectNothingChanged();
  with_key_ = 1;
  Run(100);
  ExpectNothingChanged();
  with_key_ = 2;
  RunUntil(Phase::kReplaying);
}

TEST_F(RecovererTest, WhileNoMajorityCanBeReachedNothingChanges) {
  reachable_ = 0;
  Run(100);
  ExpectNothingChanged();
  reachable_ = 1;
  Run(100);
  ExpectNothingChanged();
  reachable_ = 2;
  RunUntil(Phase::kReplaying);
  EXPECT_EQ(record_.mode, Mode::kRecovering);
  EXPECT_EQ(record_.epoch, 5u);
}

// Of the first servers none can be reached; the mirror lives, and is given others.
TEST_F(RecovererTest, ServersThatChangeWhileTheyAreAskedAreAskedAnew) {
  reachable_ = 1;
  Run(100);
  ExpectNothingChanged();
  record_.holders.assign(1, record_.holders[0]);
  ChangeRecord();
  RunUntil(Phase::kReplaying);
  EXPECT_EQ(record_.epoch, 5u);
  EXPECT_EQ(record_.holders.size(), 1u);
}

TEST_F(RecovererTest, ServersThatChangePlacesAreNotTakenForEachOther) {
  reachable_ = 0;
  Run(100);
  std::swap(record_.holders[0], record_.holders[2]);
  ChangeRecord();
  Run(100);
  ExpectNothingChanged();
  reachable_ = kServers;
  RunUntil(Phase::kReplaying);
}

// No file was changed: so its mirror may take the name back, by an epoch that is higher still.
TEST_F(RecovererTest, TheRecordSaysRecoveringOnlyBeforeFilesChange) {
  for (const Phase phase :
       {Phase::kPromising, Phase::kFetching, Phase::kSpreading, Phase::kCondemning}) {
    RunUntil(phase);
    EXPECT_EQ(record_.epoch, 5u);
    EXPECT_EQ(record_.mode, Mode::kMirrored);
    EXPECT_EQ(replays_, 0);
  }
  RunUntil(Phase::kReplaying);
  EXPECT_EQ(record_.mode, Mode::kRecovering);
  EXPECT_EQ(replays_, 1);
}

TEST_F(RecovererTest, AMirrorThatTakesItsNameBackEndsIt) {
  RunUntil(Phase::kCondemning);
  record_.epoch += 1;
  ChangeRecord();
  Run(100);
  EXPECT_EQ(recoverer_->failure(), "another process has taken the mirror name");
  EXPECT_EQ(record_, first_of_mirror());
  EXPECT_EQ(replays_, 0);
}

TEST_F(RecovererTest, ANameThatIsRealStaysWithAMirrorThatLives) {
  record_.mode = Mode::kReal;
  ChangeRecord();
  Run(100);
  ExpectNothingChanged();  // etcd does not say whether it lives
  mirror_lives_ = true;
  Run(100);
  ExpectNothingChanged();
  EXPECT_TRUE(recoverer_->MirrorLives());
  mirror_lives_ = false;
  RunUntil(Phase::kNothing);
  EXPECT_TRUE(record_.free);
  EXPECT_EQ(record_.epoch, 5u);
}

}  // namespace
}  // namespace nvcache::mirror
