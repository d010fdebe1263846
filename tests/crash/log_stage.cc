// SPDX-License-Identifier: BSD-3-Clause
#include "tests/crash/log_stage.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <stdexcept>

#include "src/sys/kernel.h"

namespace nvcache::crash {

namespace {

constexpr uint64_t kPageSize = pool::kPageSize;

void Must(bool ok, const std::string& what) {
  if (!ok) throw std::runtime_error("the scenario failed: " + what);
}

}  // namespace

std::string RandomBytes(std::mt19937_64* random, size_t n) {
  std::string bytes(n, '\0');
  for (char& byte : bytes) byte = static_cast<char>((*random)());
  return bytes;
}

std::string MakeAgedPool(const Place& place, uint64_t seed) {
  std::string path = place.memory + "/pool";
  pool::Problem problem;
  Must(pool::Pool::Create(path.c_str(), {pool::kMinPoolSize, true}, nullptr, &problem),
       problem.text.c_str());
  const pool::Geometry geometry = pool::GeometryOf(pool::kMinPoolSize);
  std::mt19937_64 random(seed);
  const std::string old = RandomBytes(&random, geometry.log_units * pool::kUnitSize);
  std::fstream out(path, std::ios::binary | std::ios::in | std::ios::out);
  out.seekp(static_cast<std::streamoff>(geometry.log_offset));
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
  for (const File& file : files_) ::close(file.fd);
  table_.Close();
  if (pool_ != nullptr) pool_->Close();
}

void LogStage::TakePool() {
  pool_ = std::make_unique<pool::Pool>();
  log_ = std::make_unique<nvlog::Log>();
  pool::Problem problem;
  Must(pool_->Open(path_.c_str(), pool::Access::kExclusive, true, nullptr, &problem),
       problem.text.c_str());
  Must(!pool_->dirty(), "the pool is dirty");
  pool_->MarkInUse();
  Must(table_.Open(pool_->view()), "no memory");
  log_->Open(pool_.get());
}

uint32_t LogStage::Open(const std::string& name, bool exists) {
  const std::string path = place_.disk + "/" + name;
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC | (exists ? 0 : O_CREAT), 0600);
  Must(fd >= 0, path);
  files_.push_back({fd, 0, 0, !exists});
  return capture_.Watch(fd, path, exists);
}

void LogStage::Allocate(uint32_t file) {
  File& f = files_[file];
  Must(table_.Allocate(f.fd, f.is_new, 0, 0, &f.slot, &f.incarnation) == 0, "no slot");
}

std::vector<nvlog::Piece> LogStage::Pieces(uint32_t file, uint64_t offset,
                                           const std::string& bytes) const {
  std::vector<nvlog::Piece> pieces;
  for (size_t done = 0; done < bytes.size();) {
    const uint64_t at = offset + done;
    const auto n =
        static_cast<uint32_t>(std::min<uint64_t>(kPageSize - at % kPageSize, bytes.size() - done));
    pieces.push_back({at, reinterpret_cast<const uint8_t*>(bytes.data()) + done, n,
                      files_[file].slot, files_[file].incarnation, nvlog::kNoPosition});
    done += n;
  }
  return pieces;
}

void LogStage::Write(uint32_t file, uint64_t offset, const std::string& bytes) {
  capture_.Do({Operation::kWrite, file, offset, 0, 0}, bytes, [&] {
    const std::vector<nvlog::Piece> pieces = Pieces(file, offset, bytes);
    uint64_t units = 0;
    for (const nvlog::Piece& piece : pieces) units += nvlog::EntryUnits(piece.length);
    const nvlog::Position place = log_->TakeReserve(units);
    Must(place != nvlog::kNoPosition, "the log is full");
    nvlog::GroupWriter group(*log_, place, static_cast<uint32_t>(pieces.size()));
    for (const nvlog::Piece& piece : pieces) group.Add(piece);
    group.Commit();
    groups_.push_back({place + units, file, offset, bytes});
  });
}

void LogStage::Empty(uint32_t file) {
  capture_.Do({Operation::kTruncate, file, 0, 0, 0}, "", [&] {
    table_.StoreCut(files_[file].slot, log_->head());
    Must(sys::Ftruncate(files_[file].fd, 0) == 0, "ftruncate");
  });
  capture_.Do({Operation::kSync, file, 0, 0, 0}, "", [] {});
}

void LogStage::Abandon(uint32_t file, uint64_t offset, size_t n) {
  const std::string bytes = RandomBytes(&random_, n);
  capture_.Do({Operation::kOther, file, 0, 0, 0}, "", [&] {
    const std::vector<nvlog::Piece> pieces = Pieces(file, offset, bytes);
    uint64_t units = 0;
    for (const nvlog::Piece& piece : pieces) units += nvlog::EntryUnits(piece.length);
    const nvlog::Position place = log_->TakeReserve(units);
    Must(place != nvlog::kNoPosition, "the log is full");
    nvlog::GroupWriter group(*log_, place, static_cast<uint32_t>(pieces.size()));
    for (size_t i = 0; i + 1 < pieces.size(); ++i) group.Add(pieces[i]);
    group.Abandon(units);
    groups_.push_back({place + units, file, 0, ""});
  });
}

void LogStage::Clean(size_t groups) {
  groups = std::min(groups, groups_.size());
  if (groups == 0) return;
  std::vector<uint32_t> touched;
  for (size_t i = 0; i < groups; ++i) {
    const Group& group = groups_[i];
    if (group.bytes.empty()) continue;
    sys::Pwrite(files_[group.file].fd, group.bytes.data(), group.bytes.size(), group.offset);
    if (std::find(touched.begin(), touched.end(), group.file) == touched.end()) {
      touched.push_back(group.file);
    }
  }
  for (const uint32_t file : touched) {
    Must(sys::Fdatasync(files_[file].fd) == 0, "fdatasync");
    if (!files_[file].is_new) continue;
    files_[file].is_new = false;
    table_.SettleName(files_[file].slot);
  }
  log_->Free(groups_[groups - 1].end, [] {});
  groups_.erase(groups_.begin(), groups_.begin() + static_cast<std::ptrdiff_t>(groups));
}

void LogStage::Close() {
  capture_.Do({Operation::kClose, 0, 0, 0, 0}, "", [&] {
    Clean();
    pool_->MarkClean();
    table_.Close();
    pool_->Close();
  });
}

void LogStage::Reopen() {
  capture_.Do({Operation::kOther, 0, 0, 0, 0}, "", [&] { TakePool(); });
}

Trace LogStage::Finish() {
  Trace trace = capture_.Finish();
  trace.FindItems();
  return trace;
}

}  // namespace nvcache::crash
