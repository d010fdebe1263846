// SPDX-License-Identifier: BSD-3-Clause
#include "tests/crash/log_stage.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <stdexcept>

#include "src/sys/kernel.h"

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

LogStage::LogStage(const std::string& name, const Place& place, uint64_t seed,
                   const std::string& pool)
    : place_(place), path_(pool), random_(seed), capture_(name, seed, pool) {
  TakePool();
}

LogStage::~LogStage() {
  for (const auto& file : files_) ::close(file->fd);
  if (log_ != nullptr) log_->Close();
  if (pool_ != nullptr) pool_->Close();
}

void LogStage::TakePool() {
  pool_ = std::make_unique<pool::Pool>();
  log_ = std::make_unique<nvlog::Log>();
  kept_ = std::make_unique<nvlog::Kept>(*log_);
  pool::Problem problem;
  Must(pool_->Open(path_.c_str(), pool::Access::kExclusive, true, nullptr, &problem),
       problem.text.c_str());
  Must(!pool_->dirty(), "the pool is dirty");
  pool_->MarkInUse();
  Must(log_->Open(pool_.get()), "no memory");
  kept_->Open();
}

uint32_t LogStage::Open(const std::string& name, bool exists, uint32_t number) {
  const std::string path = place_.disk + "/" + name;
  auto file = std::make_unique<File>();
  file->fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC | (exists ? 0 : O_CREAT), 0600);
  Must(file->fd >= 0, path);
  const auto index = static_cast<uint32_t>(files_.size());
  file->number = file->tag.number = number == ~uint32_t{0} ? index : number;
  file->is_new = !exists;
  const uint32_t watched = capture_.Watch(file->fd, path, exists);
  Must(watched == index, "the files are numbered otherwise");
  std::ifstream in(path, std::ios::binary);
  file->content.assign(std::istreambuf_iterator<char>(in), {});
  by_number_.resize(std::max<size_t>(by_number_.size(), file->number + 1));
  by_number_[file->number] = index;
  files_.push_back(std::move(file));
  return index;
}

template <typename Start, typename Rest>
void LogStage::Append(File& file, Start start, Rest rest) {
  for (const bool described : {false, true}) {
    pool::FileRecord record = {};
    if (described) Must(pool::Describe(file.fd, &record) == 0, "a file cannot be described");
    record.flags = file.is_new ? pool::kFileNew : 0;
    GroupWriter group(*log_, file.tag);
    const Outcome outcome = start(group, described ? &record : nullptr);
    if (outcome == Outcome::kUndeclared && !described) continue;
    Must(outcome == Outcome::kDone, "the log is full");
    rest(group);
    return;
  }
}

void LogStage::Write(uint32_t file, uint64_t offset, const std::string& bytes) {
  capture_.Do({Operation::kWrite, file, offset, 0, 0}, bytes, [&] {
    File& f = *files_[file];
    Append(
        f,
        [&](GroupWriter& group, pool::FileRecord* record) {
          return group.BeginData(offset, bytes.size(), record);
        },
        [&](GroupWriter& group) {
          ForEachPage(offset, bytes.size(), [&](uint64_t at, uint64_t n) {
            const auto* from = reinterpret_cast<const uint8_t*>(bytes.data()) + (at - offset);
            Must(group.AddPage(from, static_cast<uint32_t>(n), nullptr, nvlog::kNoPlace), "copy");
          });
          group.Commit();
        });
    if (f.content.size() < offset + bytes.size()) f.content.resize(offset + bytes.size());
    f.content.replace(offset, bytes.size(), bytes);
  });
}

// Of the pool's first lane, the units that are left in its segment.
uint64_t LogStage::Room() const {
  nvlog::Log::Ends ends;
  log_->Look(&ends);
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
      *files_[file],
      [&](GroupWriter& group, pool::FileRecord* record) {
        return group.BeginMark(kind, offset, length, record);
      },
      [](GroupWriter& group) { group.Commit(); });
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
        *files_[file],
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
  file.is_new = false;
}

// The newest file record of the same number in the segment.
nvlog::Place LogStage::FileRecordBefore(nvlog::Place place) const {
  nvlog::Place found = nvlog::kNoPlace;
  nvlog::Place at = place / segment_units() * segment_units() + nvlog::kFirstUnit;
  for (; at < place; at += nvlog::RecordUnits(log_->At(at))) {
    const RecordHeader& header = log_->At(at);
    if (header.kind == Kind::kFile && header.file == log_->At(place).file) found = at;
  }
  Must(found != nvlog::kNoPlace, "there is no file record");
  return found;
}

void LogStage::Keep(File& file, nvlog::Place place) {
  const RecordHeader& header = log_->At(place);
  const auto append = [&](const nvlog::Kept::Copy& copy) {
    const nvlog::Place kept = kept_->Append(copy, &file.kept_declared, FileRecordBefore(place),
                                            file.is_new ? pool::kFileNewStill : 0);
    Must(kept != nvlog::kNoPlace, "nothing can be kept");
  };
  if (header.kind != Kind::kData) {
    append({header.kind, header.lsn, header.file, header.offset, header.length, nullptr, 0});
    return;
  }
  ForEachPage(header.offset, header.length, [&](uint64_t at, uint64_t n) {
    const auto piece = log_->PieceAt(place, at / kPageSize);
    append({Kind::kData, header.lsn, header.file, at, n, piece.bytes, 0});
  });
}

void LogStage::Clean(size_t groups, const std::vector<uint32_t>& keep,
                     const std::function<void()>& meanwhile) {
  nvlog::Log::Ends ends;
  log_->Look(&ends);
  if (meanwhile) meanwhile();
  nvlog::Lsn end = ends.bound, last = 0;
  std::set<File*> touched;
  for (nvlog::Place place; (place = log_->NextRecord(ends)) != nvlog::kNoPlace;) {
    const RecordHeader& header = log_->At(place);
    if (header.lsn != last && groups-- == 0) {
      end = header.lsn;
      break;
    }
    last = header.lsn;
    const uint32_t index = by_number_[header.file];
    File& file = *files_[index];
    if (header.kind != Kind::kFile) {
      if (std::find(keep.begin(), keep.end(), index) != keep.end()) {
        Keep(file, place);
      } else {
        if (header.kind == Kind::kData) WriteBack(file, header.offset, header.length);
        touched.insert(&file);
      }
    }
    log_->Pass(place);
  }
  for (File* file : touched) Sync(*file);
  if (end <= pool_->checkpoint()) return;
  pool_->StoreCheckpoint(end);
  log_->Forget(end, ends, [](nvlog::Place) {});
}

void LogStage::Heal(uint32_t file) {
  File& f = *files_[file];
  WriteBack(f, 0, f.content.size());
  Sync(f);
  kept_->ForEachOf(f.number, [&](nvlog::Place place) { kept_->Void(place, true); });
  kept_->Settle();
}

void LogStage::CopyKept() {
  for (const auto& file : files_) {
    std::vector<nvlog::Place> places;
    kept_->ForEachOf(file->number, [&](nvlog::Place place) { places.push_back(place); });
    for (const nvlog::Place place : places) {
      Keep(*file, place);
      kept_->Void(place);
    }
  }
  kept_->Settle();
}

void LogStage::Close() {
  capture_.Do({Operation::kClose, 0, 0, 0, 0}, "", [&] {
    Clean();
    pool_->StoreCheckpoint(log_->newest() + 1);
    pool_->MarkClean();
    log_->Close();
    pool_->Close();
  });
}

void LogStage::Reopen() {
  capture_.Do({Operation::kOther, 0, 0, 0, 0}, "", [&] { TakePool(); });
  for (const auto& file : files_) file->tag.Undeclare();
}

Trace LogStage::Finish() {
  Trace trace = capture_.Finish();
  trace.FindItems();
  return trace;
}

}  // namespace nvcache::crash
