// SPDX-License-Identifier: BSD-3-Clause
#include "tests/crash/log_stage.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <semaphore>
#include <stdexcept>
#include <thread>

#include "src/nvlog/group_writer.h"
#include "src/nvlog/log_reading.h"
#include "src/pool/identify.h"
#include "src/replay/replay.h"
#include "src/sys/kernel.h"
#include "tests/kit/files.h"

namespace nvcache::crash {

namespace {

using nvlog::GroupWriter;
using nvlog::Kind;
using nvlog::Outcome;
using nvlog::RecordHeader;

constexpr uint64_t kPageSize = pool::kPageSize;

void Must(bool ok, const std::string& what) {
  if (!ok) throw std::runtime_error("the scenario failed: " + what);
}

// Calls function(offset, length) for the part of each page.
template <typename Function>
void ForEachPage(uint64_t offset, uint64_t length, Function function) {
  for (uint64_t done = 0; done < length;) {
    const uint64_t at = offset + done;
    const uint64_t n = std::min(kPageSize - at % kPageSize, length - done);
    function(at, n);
    done += n;
  }
}

}  // namespace

std::string RandomBytes(std::mt19937_64* random, size_t n) {
  std::string bytes(n, '\0');
  for (char& byte : bytes) byte = static_cast<char>((*random)());
  return bytes;
}

std::string MakeAgedPool(const Place& place, uint64_t seed, uint64_t size) {
  std::string path = place.memory + "/pool";
  pool::Problem problem;
  Must(pool::Pool::Create(path.c_str(), {size, true}, nullptr, &problem), problem.text.c_str());
  std::mt19937_64 random(seed);
  const std::string old = RandomBytes(&random, size - pool::kSegmentsOffset);
  std::fstream out(path, std::ios::binary | std::ios::in | std::ios::out);
  out.seekp(static_cast<std::streamoff>(pool::kSegmentsOffset));
  out.write(old.data(), static_cast<std::streamsize>(old.size()));
  Must(out.good(), "the pool cannot be written");
  return path;
}

std::string MakeFile(const Place& place, const std::string& name, size_t n) {
  std::string path = place.disk + "/" + name;
  std::ofstream out(path, std::ios::binary);
  out << std::string(n, '.');
  Must(out.good(), path);
  return path;
}

void MakeFiles(const Place& place, const Script& script) {
  const auto path = [&](const std::string& name) { return place.disk + "/" + name; };
  for (const Action& action : script) {
    if (action.verb == "file" || action.verb == "has") {
      MakeFile(place, action.Word(0), action.Number(1));
    } else if (action.verb == "has-folder") {
      std::filesystem::create_directory(path(action.Word(0)));
    } else if (action.verb == "has-link") {
      std::filesystem::create_hard_link(path(action.Word(0)), path(action.Word(1)));
    }
  }
}

LogStage::LogStage(const std::string& name, const Place& place, uint64_t seed,
                   const std::string& pool)
    : place_(place), path_(pool), random_(seed), capture_(name, seed, pool) {
  TakePool();
}

LogStage::~LogStage() {
  for (const auto& file : files_) ::close(file->fd);
  while (!processes_.empty()) {
    process_ = processes_.begin()->first;
    Die();
  }
}

// As the engine does: Engine::AttachPool.
void LogStage::TakePool() {
  processes_[process_] = std::make_unique<Process>();
  pool::Pool& pool = own().pool;
  pool::Problem problem;
  Must(pool.Open(path_.c_str(), pool::Mode::kShared, true, nullptr, &problem),
       problem.text.c_str());
  Must(!pool.alone() || !pool.dirty(), "the pool is dirty");
  if (!pool.alone()) ReplayOrphans(true);
  Must(pool.Join(&problem), problem.text.c_str());
  Must(log().Open(&pool), "no memory");
  kept().Open();
}

void LogStage::ReplayOrphans(bool resolved) {
  replay::Summary summary;
  const bool done = replay::ReplayOrphans(own().pool, &summary);
  Must(done == resolved && summary.damaged_groups == 0, "adoption");
  Must(own().pool.seats().HasUnresolved() != resolved, "an orphan is left");
}

// As the engine does: Engine::Detach.
void LogStage::GiveUpSeat(bool left) {
  if (!left || own().uncovered == 0) Clean();
  for (const auto& [index, known] : own().files) Must(known->pending.empty(), "a file is cached");
  if (!left && log().HasThroughPending()) MoveThroughCheckpoint();
  if (!left || own().uncovered == 0) own().pool.StoreSeatCheckpoint(log().newest() + 1);
  if (!left) log().FreeAll();
  if (own().pool.seats().HasOrphans(own().pool.seat())) ReplayOrphans(true);
  own().pool.Leave(left);
  log().Close();
  own().pool.Close();
  processes_.erase(process_);
}

uint32_t LogStage::Open(const std::string& name, bool exists, uint32_t number) {
  const std::string path = place_.disk + "/" + name;
  auto file = std::make_unique<File>();
  file->fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC | (exists ? 0 : O_CREAT), 0600);
  Must(file->fd >= 0, path);
  const auto index = static_cast<uint32_t>(files_.size());
  file->number = number;
  file->awaits_sync = !exists;
  const uint32_t watched = capture_.Watch(file->fd, path, exists);
  Must(watched == index, "the files are numbered otherwise");
  file->content = kit::Slurp(path);
  files_.push_back(std::move(file));
  return index;
}

// A process numbers files as it comes to know them.
LogStage::Known& LogStage::KnownOf(uint32_t file) {
  std::unique_ptr<Known>& known = own().files[file];
  if (known == nullptr) {
    known = std::make_unique<Known>();
    known->index = file;
    const uint32_t next = own().numbers++, number = files_[file]->number;
    known->tag.number = number == ~uint32_t{0} ? next : number;
    own().by_number[known->tag.number] = known.get();
  }
  return *known;
}

template <typename Start, typename Rest>
void LogStage::Append(uint32_t file, Start start, Rest rest) {
  Known& known = KnownOf(file);
  File& f = *files_[file];
  if (f.awaits_sync) Sync(f);
  for (const bool described : {false, true}) {
    pool::FileRecord record = {};
    if (described) Must(pool::Describe(f.fd, &record) == 0, "a file cannot be described");
    GroupWriter group(log(), known.tag);
    const Outcome outcome = start(group, described ? &record : nullptr);
    if (outcome == Outcome::kUndeclared && !described) continue;
    Must(outcome == Outcome::kDone, "the log is full");
    rest(group);
    return;
  }
}

void LogStage::Append(uint32_t file, uint64_t offset, const std::string& bytes) {
  Append(
      file,
      [&](GroupWriter& group, pool::FileRecord* record) {
        return group.BeginData(offset, bytes.size(), record);
      },
      [&](GroupWriter& group) {
        ForEachPage(offset, bytes.size(), [&](uint64_t at, uint64_t n) {
          const auto* from = reinterpret_cast<const uint8_t*>(bytes.data()) + (at - offset);
          Must(group.AddPage(from, static_cast<uint32_t>(n), nullptr, nvlog::kNoPlace), "copy");
        });
        KnownOf(file).pending[group.Commit()] = {offset, bytes.size()};
      });
  Change(files_[file].get(), offset, bytes);
}

void LogStage::Change(File* file, uint64_t offset, const std::string& bytes) {
  std::string& content = file->content;
  if (content.size() < offset + bytes.size()) content.resize(offset + bytes.size());
  content.replace(offset, bytes.size(), bytes);
}

void LogStage::Write(uint32_t file, uint64_t offset, const std::string& bytes) {
  capture_.Do({Operation::kWrite, file, offset, 0, 0}, bytes, [&] { Append(file, offset, bytes); });
}

// Of the pool's first lane, the units that are left in its segment.
uint64_t LogStage::Room() const {
  nvlog::Log::Ends ends;
  log().Look(&ends);
  return segment_units() - nvlog::kLastUnits - ends.lane[0].unit;
}

void LogStage::FillSegment(uint32_t file, uint64_t units) {
  constexpr uint64_t kMostPages = 12;
  // It is the file's.
  Write(file, 3, 60);
  for (uint64_t left; (left = Room() - units) > 0;) {
    Must(left >= 2 && left < segment_units(), "the segment cannot be filled so");
    uint64_t pages = kMostPages;
    const auto fits = [&](uint64_t n) {
      const uint64_t needs = nvlog::DataUnits(0, n);
      return needs == left || needs + 2 <= left;
    };
    while (pages > 0 && !fits(pages * kPageSize)) --pages;
    const uint64_t most = std::min(left - 1, nvlog::kUnitsPerPage / 2) * pool::kUnitSize;
    Write(file, 0, pages > 0 ? pages * kPageSize : most);
  }
}

void LogStage::Mark(uint32_t file, Kind kind, uint64_t offset, uint64_t length) {
  Append(
      file,
      [&](GroupWriter& group, pool::FileRecord* record) {
        return group.BeginMark(kind, offset, length, record);
      },
      [&](GroupWriter& group) {
        KnownOf(file).pending[group.Commit()] = {0, 0};
      });
}

void LogStage::Truncate(uint32_t file, uint64_t size) {
  capture_.Do({Operation::kTruncate, file, size, 0, 0}, "", [&] {
    Mark(file, Kind::kTruncate, size, 0);
    Must(sys::Ftruncate(files_[file]->fd, static_cast<off_t>(size)) == 0, "ftruncate");
    files_[file]->content.resize(size);
  });
}

void LogStage::Erase(uint32_t file, uint64_t offset, uint32_t n) {
  capture_.Do({Operation::kErase, file, offset, n, 0}, "", [&] {
    File& f = *files_[file];
    Mark(file, Kind::kErase, offset, n);
    Must(sys::Fallocate(f.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                        static_cast<off_t>(offset), n) == 0,
         "fallocate");
    f.content.replace(offset, n, n, '\0');
  });
}

void LogStage::Abandon(uint32_t file, uint64_t offset, size_t n) {
  const std::string bytes = RandomBytes(&random_, n);
  capture_.Do({Operation::kOther, file, 0, 0, 0}, "", [&] {
    Append(
        file,
        [&](GroupWriter& group, pool::FileRecord* record) {
          return group.BeginData(offset, n, record);
        },
        [&](GroupWriter& group) {
          ForEachPage(offset, n, [&](uint64_t at, uint64_t length) {
            const auto* from = reinterpret_cast<const uint8_t*>(bytes.data()) + (at - offset);
            if (at + length == offset + n) return;
            group.AddPage(from, static_cast<uint32_t>(length), nullptr, nvlog::kNoPlace);
          });
        });
  });
}

// Pages are written in their newest form, as the cleanup thread does (I8).
void LogStage::WriteBack(File& file, uint64_t offset, uint64_t length) {
  const uint64_t end = std::min<uint64_t>(offset + length, file.content.size());
  if (offset >= end) return;
  sys::Pwrite(file.fd, file.content.data() + offset, end - offset, offset);
}

void LogStage::Sync(File& file) {
  Must(sys::Fdatasync(file.fd) == 0, "fdatasync");
  file.awaits_sync = false;
}

// The newest file record of the same number in the segment.
nvlog::Place LogStage::FileRecordBefore(nvlog::Place place) const {
  nvlog::Place found = nvlog::kNoPlace;
  nvlog::Place at = place / segment_units() * segment_units() + nvlog::kFirstUnit;
  for (; at < place; at += nvlog::RecordUnits(log().At(at))) {
    const RecordHeader& header = log().At(at);
    if (header.kind == Kind::kFile && header.file == log().At(place).file) found = at;
  }
  Must(found != nvlog::kNoPlace, "there is no file record");
  return found;
}

void LogStage::Keep(Known& known, nvlog::Place place) {
  const RecordHeader& header = log().At(place);
  const auto append = [&](const nvlog::Kept::Copy& copy) {
    const nvlog::Place copied =
        kept().Append(copy, &known.kept_declared, FileRecordBefore(place), 0);
    Must(copied != nvlog::kNoPlace, "nothing can be kept");
  };
  if (header.kind != Kind::kData) {
    append({header.kind, header.lsn, header.file, header.offset, header.length, nullptr, 0});
    return;
  }
  ForEachPage(header.offset, header.length, [&](uint64_t at, uint64_t n) {
    const auto piece = log().PieceAt(place, at / kPageSize);
    append({Kind::kData, header.lsn, header.file, at, n, piece.bytes, 0});
  });
}

void LogStage::Clean(size_t groups, const std::vector<uint32_t>& keep,
                     const std::function<void()>& meanwhile) {
  Clean(groups, keep, meanwhile, true);
}

void LogStage::CleanUnhurried() { Clean(~size_t{0}, {}, {}, false); }

void LogStage::Clean(size_t groups, const std::vector<uint32_t>& keep,
                     const std::function<void()>& meanwhile, bool hurried) {
  nvlog::Log::Ends ends;
  log().Look(&ends);
  if (meanwhile) meanwhile();
  nvlog::Lsn end = ends.bound, last = 0;
  std::set<uint32_t> touched;
  for (nvlog::Place place; (place = log().NextRecord(ends)) != nvlog::kNoPlace;) {
    const RecordHeader& header = log().At(place);
    if (header.lsn != last && groups-- == 0) {
      end = header.lsn;
      break;
    }
    last = header.lsn;
    if (header.kind != Kind::kFile && !IsHandedOver(header)) PassRecord(place, keep, &touched);
    log().Pass(place);
  }
  for (const uint32_t file : touched) Sync(*files_[file]);
  if (!CoverHandedOver(hurried) || end <= own().pool.checkpoint()) return;
  own().pool.StoreSeatCheckpoint(end);
  log().Forget(end, ends, [](nvlog::Place) {});
  if (log().Empty(ends) && log().IsShared()) log().GiveBack();
}

void LogStage::PassRecord(nvlog::Place place, const std::vector<uint32_t>& keep,
                          std::set<uint32_t>* touched) {
  const RecordHeader& header = log().At(place);
  Known& known = *own().by_number.at(header.file);
  File& file = *files_[known.index];
  known.pending.erase(header.lsn);
  if (std::find(keep.begin(), keep.end(), known.index) != keep.end()) {
    Keep(known, place);
    return;
  }
  if (header.kind == Kind::kData) WriteBack(file, header.offset, header.length);
  touched->insert(known.index);
}

void LogStage::Heal(uint32_t file) {
  File& f = *files_[file];
  WriteBack(f, 0, f.content.size());
  Sync(f);
  const uint32_t number = KnownOf(file).tag.number;
  kept().ForEachOf(number, [&](nvlog::Place place) { kept().Void(place); });
  kept().Settle();
}

void LogStage::CopyKept() {
  for (const auto& [index, known] : own().files) {
    std::vector<nvlog::Place> places;
    kept().ForEachOf(known->tag.number, [&](nvlog::Place place) { places.push_back(place); });
    for (const nvlog::Place place : places) {
      Keep(*known, place);
      kept().Void(place);
    }
  }
  kept().Settle();
}

// ---------------------------------------------------------------------------------------------
// Handed over.

// Its groups are nobody's then.
bool LogStage::IsHandedOver(const RecordHeader& header) const {
  const auto handed_over = own().handed_over.find(header.file);
  return handed_over != own().handed_over.end() && header.lsn <= handed_over->second;
}

// As the engine does: Cleaner::CoverHandedOver(). False: the checkpoint has to wait.
bool LogStage::CoverHandedOver(bool hurried) {
  if (own().uncovered == 0) return true;
  const bool is_covered = own().pool.through_checkpoint() > own().uncovered;
  if (!is_covered && !hurried) return false;
  if (!is_covered) SyncThrough();
  own().uncovered = 0;
  return true;
}

void LogStage::TellPending(uint32_t file) {
  for (const auto& [lsn, range] : KnownOf(file).pending) {
    WriteBack(*files_[file], range.first, range.second);
  }
}

// As the engine does: Engine::TryHandOver(), HandOverFile().
void LogStage::HandOver(uint32_t file) {
  capture_.Do({Operation::kHandOver, file, 0, 0, 0}, "", [&] {
    TellPending(file);
    own().pool.MarkHandsOver();
    Mark(file, Kind::kHandedOver, 0, 0);
    Known& known = KnownOf(file);
    own().uncovered = own().handed_over[known.tag.number] = known.pending.rbegin()->first;
    known.pending.clear();
    files_[file]->through = true;
  });
}

void LogStage::HandOverInVain(uint32_t file) {
  capture_.Do({Operation::kHandOver, file, 0, 0, 0}, "", [&] {
    TellPending(file);
    own().pool.MarkHandsOver();
    Append(
        file,
        [&](GroupWriter& group, pool::FileRecord* record) {
          return group.BeginMark(Kind::kHandedOver, 0, 0, record);
        },
        [](GroupWriter&) {});
    std::thread([&] { Clean(); }).join();
  });
}

void LogStage::Cache(uint32_t file) { KnownOf(file).tag.Undeclare(); }

// ---------------------------------------------------------------------------------------------
// Write-through.

template <typename Function>
void LogStage::AppendThrough(uint32_t file, Function append) {
  Known& known = KnownOf(file);
  File& f = *files_[file];
  f.through = true;
  for (const bool described : {false, true}) {
    pool::FileRecord record = {};
    if (described) Must(pool::Describe(f.fd, &record) == 0, "a file cannot be described");
    nvlog::GroupWriter group(log(), known.tag, f.bypasses);
    const Outcome outcome = append(group, described ? &record : nullptr);
    if (outcome == Outcome::kUndeclared && !described) continue;
    Must(outcome == Outcome::kDone, "the log is full");
    return;
  }
}

// As the engine does: WriteGroup() of src/vfs/engine/through_write.cc. Leaves what the group has no
// room for.
void LogStage::WriteGroup(uint32_t file, uint64_t offset, std::string* bytes,
                          const std::function<bool()>& meanwhile) {
  const uint32_t process = process_;
  AppendThrough(file, [&](nvlog::GroupWriter& group, pool::FileRecord* record) {
    const Outcome outcome = group.BeginData(offset, bytes->size(), record);
    if (outcome != Outcome::kDone) return outcome;
    ForEachPage(offset, group.length(), [&](uint64_t at, uint64_t n) {
      const auto* from = reinterpret_cast<const uint8_t*>(bytes->data()) + (at - offset);
      Must(group.AddPage(from, static_cast<uint32_t>(n)), "copy");
    });
    TellKernel(*files_[file], offset, group);
    group.Draw();
    Change(files_[file].get(), offset, bytes->substr(0, group.length()));
    const bool is_own = !meanwhile || meanwhile();
    As(process);
    if (is_own) group.Commit();
    bytes->erase(0, group.length());
    return outcome;
  });
}

void LogStage::TellKernel(const File& file, uint64_t offset,
                          const nvlog::GroupWriter& group) const {
  iovec pieces[2];
  const int count = group.Pieces(pieces);
  Must(sys::Pwritev(file.fd, pieces, count, offset) == static_cast<long>(group.length()),
       "pwritev");
}

void LogStage::WriteThrough(uint32_t file, uint64_t offset, size_t n,
                            const std::function<bool()>& meanwhile) {
  std::string bytes = RandomBytes(&random_, n);
  bool is_own = true;
  const auto look = [&] { return is_own = meanwhile == nullptr || meanwhile(); };
  capture_.Do({Operation::kThrough, file, offset, 0, 0}, bytes, [&] {
    for (uint64_t at = offset; !bytes.empty();) {
      const size_t left = bytes.size();
      WriteGroup(file, at, &bytes, look);
      at += left - bytes.size();
    }
    if (!is_own) SettleNow(file, {});
  });
}

void LogStage::WritePast(uint32_t file, uint64_t offset, size_t n) {
  const std::string bytes = RandomBytes(&random_, n);
  File& f = *files_[file];
  capture_.Do({Operation::kThrough, file, offset, 0, 0}, bytes, [&] {
    ++f.bypasses;
    Must(sys::Pwrite(f.fd, bytes.data(), n, offset) == static_cast<long>(n), "pwrite");
    Change(&f, offset, bytes);
  });
}

void LogStage::Settle(uint32_t file, const std::function<void()>& meanwhile) {
  capture_.Do({Operation::kSync, file, 0, 0, 0}, "", [&] { SettleNow(file, meanwhile); });
}

// As the engine does: SettleThrough().
void LogStage::SettleNow(uint32_t file, const std::function<void()>& meanwhile) {
  const uint32_t process = process_;
  const nvlog::Lsn bound = log().Draw();
  Sync(*files_[file]);
  if (meanwhile) meanwhile();
  As(process);
  AppendThrough(file, [&](nvlog::GroupWriter& group, pool::FileRecord* record) {
    const Outcome outcome = group.BeginMark(Kind::kSettled, bound, 0, record);
    if (outcome != Outcome::kDone) return outcome;
    group.Draw();
    group.Commit();
    return outcome;
  });
}

void LogStage::MoveThrough() {
  capture_.Do({Operation::kSyncAll, 0, 0, 0, 0}, "", [&] { MoveThroughCheckpoint(); });
}

// As the engine does, which syncs the file system: Engine::MoveThroughCheckpoint().
void LogStage::MoveThroughCheckpoint() {
  const pool::Seats& seats = own().pool.seats();
  Must(seats.TryLockThrough(), "somebody else moves the checkpoint");
  pool::Seats::LeftSeats left;
  seats.FindLeft(&left);
  const nvlog::Lsn next = seats.next_lsn().load();
  SyncThrough();
  own().pool.StoreThroughCheckpoint(next, left);
  seats.UnlockThrough();
  log().FreeThrough(log().IsShared());
}

void LogStage::MoveThroughInVain(uint32_t file) {
  capture_.Do({Operation::kOther, 0, 0, 0, 0}, "", [&] {
    capture_.RefuseSyncs(file, EIO);
    Must(sys::Fdatasync(files_[file]->fd) == -EIO, "the file is synced");
    capture_.RefuseSyncs(file, 0);
    own().pool.seats().SetThroughFailed(EIO);
  });
}

void LogStage::SyncThrough() {
  for (const auto& file : files_) {
    if (file->through) Sync(*file);
  }
}

void LogStage::Close() {
  capture_.Do({Operation::kClose, 0, 0, 0, 0}, "", [&] { GiveUpSeat(false); });
  Must(processes_.empty(), "somebody else has a seat");
}

void LogStage::Reopen() { As(process_); }

// ---------------------------------------------------------------------------------------------
// Processes.

void LogStage::As(uint32_t process) {
  process_ = process;
  capture_.As(static_cast<uint16_t>(process));
  if (processes_.count(process) > 0) return;
  capture_.Do({Operation::kOther, 0, 0, 0, 0}, "", [&] { TakePool(); });
}

void LogStage::Leave(bool left) {
  capture_.Do({Operation::kOther, 0, 0, 0, 0}, "", [&] { GiveUpSeat(left); });
}

// The kernel takes its locks away.
void LogStage::Die() {
  log().Close();
  own().pool.Close();
  processes_.erase(process_);
}

// On a thread that never goes on.
void LogStage::DieAt(Step when, const std::function<void()>& function) {
  std::binary_semaphore reached(0);
  capture_.BeforeNext(when, [&] {
    reached.release();
    for (;;) ::pause();
  });
  std::thread(function).detach();
  reached.acquire();
  Die();
}

void LogStage::Adopt(const std::function<void()>& meanwhile, bool resolved) {
  if (meanwhile) capture_.BeforeNext(Step::kCount, meanwhile);
  capture_.Do({Operation::kOther, 0, 0, 0, 0}, "", [&] { ReplayOrphans(resolved); });
  Must(!capture_.Awaits(), "nothing happens meanwhile");
}

Trace LogStage::Finish() {
  Trace trace = capture_.Finish();
  trace.FindItems();
  return trace;
}

}  // namespace nvcache::crash
