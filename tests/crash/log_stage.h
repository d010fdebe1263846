// SPDX-License-Identifier: BSD-3-Clause
//
// The log alone: what src/vfs and the cleanup thread do with it, one call at a time and in the
// order that a scenario wants. By one process, or by several that use the pool at the same time.
#ifndef NVCACHE_TESTS_CRASH_LOG_STAGE_H_
#define NVCACHE_TESTS_CRASH_LOG_STAGE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "src/nvlog/group_writer.h"
#include "src/nvlog/kept.h"
#include "src/pool/pool.h"
#include "tests/crash/capture.h"
#include "tests/crash/scenarios.h"
#include "tests/crash/script.h"

namespace nvcache::crash {

inline constexpr uint64_t kLanesPool = 2u << 20;  // large enough for three lanes

// A new pool of that size whose segments hold arbitrary bytes: aged, without a history.
std::string MakeAgedPool(const Place& place, uint64_t seed, uint64_t size = pool::kMinPoolSize);
// An existing file with `n` bytes.
std::string MakeFile(const Place& place, const std::string& name, size_t n);
// What a script says that there is before anything is recorded: `file` and `has`, with so many
// bytes, `has-folder`, and `has-link` to a file.
void MakeFiles(const Place& place, const Script& script);
std::string RandomBytes(std::mt19937_64* random, size_t n);

class LogStage {
 public:
  // Begins to record. Process 0 takes a seat in the pool.
  LogStage(const std::string& name, const Place& place, uint64_t seed, const std::string& pool);
  ~LogStage();
  LogStage(const LogStage&) = delete;
  LogStage& operator=(const LogStage&) = delete;

  // A file; new ones are created empty. It has its own number in the log, or `number`, which has
  // nothing pending.
  uint32_t Open(const std::string& name, bool exists, uint32_t number = ~uint32_t{0});
  void Away(uint32_t file) { capture_.Away(file); }

  void Write(uint32_t file, uint64_t offset, size_t n) {
    Write(file, offset, RandomBytes(&random_, n));
  }
  void Write(uint32_t file, uint64_t offset, const std::string& bytes);
  // Fills the segment that the lane has, but for the last `units`.
  void FillSegment(uint32_t file, uint64_t units);
  void Truncate(uint32_t file, uint64_t size);
  void Erase(uint32_t file, uint64_t offset, uint32_t n);
  // Begins a group, writes a part of it and gives it up.
  void Abandon(uint32_t file, uint64_t offset, size_t n);
  // What the cleanup thread does with the oldest `groups`; all, if there are fewer. What `keep`
  // holds, the disk refuses: it is copied to kept segments. `meanwhile` is called when it has
  // looked where the lanes end.
  void Clean(size_t groups = ~size_t{0}, const std::vector<uint32_t>& keep = {},
             const std::function<void()>& meanwhile = {});
  // The same in no hurry: before the checkpoint passes what was handed over, it waits for another
  // process to move that of write-through.
  void CleanUnhurried();
  // The disk takes what was kept of the file.
  void Heal(uint32_t file);
  // What is kept is copied to other segments.
  void CopyKept();

  // ---- A file that the process has groups of goes back to the kernel, as Engine::TryHandOver()
  // does it: others may have it then.
  void HandOver(uint32_t file);
  // The same, but another file has the entry: the log says nothing, and the file is drained.
  void HandOverInVain(uint32_t file);
  // The file is the process's alone again: Engine::BeginCaching(). Nothing of it is pending, for it
  // was settled, or the checkpoint was moved.
  void Cache(uint32_t file);

  // ---- Write-through, as src/vfs/engine/through_write.cc does it. No page of the file is in any
  // log then. The kernel is told first, then the log. `meanwhile` is called between the two, when
  // the LSN was drawn: what others do while the process that has the file's lock does not move.
  // False: it has looked after that, and somebody had taken the lock. So it gives the group up, and
  // settles the file.
  void WriteThrough(uint32_t file, uint64_t offset, size_t n,
                    const std::function<bool()>& meanwhile = {});
  // The kernel alone is told.
  void WritePast(uint32_t file, uint64_t offset, size_t n);
  // The file is synced, and what the logs have of it from before counts no more. `meanwhile` is
  // called after the sync.
  void Settle(uint32_t file, const std::function<void()>& meanwhile = {});
  // All write-through files are synced, and their logs begin behind what is there.
  void MoveThrough();
  // The same, but the disk loses what it had not synced of the file: the checkpoint stays.
  void MoveThroughInVain(uint32_t file);

  // The last process gives up its seat: the pool is clean and closed. Reopen() takes it again.
  void Close();
  void Reopen();

  // ---- Other processes. From now on the one with that number does what is asked for. If it has no
  // seat it adopts what it finds, and takes one.
  void As(uint32_t process);
  // It brings what it has pending to the files, adopts what it finds, and gives up its seat. What
  // it has of write-through, or has handed over, may be left to others.
  void Leave(bool left = false);
  // It is killed.
  void Die();
  // It is killed while it does that, before that fence; or, if that is none, before it syncs a
  // file.
  void DieAt(Step when, const std::function<void()>& function);
  // It brings what the dead ones have left to the files. `meanwhile` is called before the first of
  // these is synced. `resolved`: no disk refuses anything.
  void Adopt(const std::function<void()>& meanwhile = {}, bool resolved = true);
  void RefuseWrites(uint32_t file, int error) { capture_.RefuseWrites(file, error); }

  uint64_t segment_units() const { return log().segments().units(); }
  std::mt19937_64& random() { return random_; }
  Trace Finish();

 private:
  struct File {
    int fd = -1;
    uint32_t number = 0;       // in the logs of all processes; ~0: each has its own
    bool awaits_sync = false;  // before its first record, for the file system may lose it
    bool through = false;      // some log has had something of it
    uint64_t bypasses = 0;     // how often something went past the logs
    std::string content;       // the newest
  };
  // A file, as a process knows it.
  struct Known {
    uint32_t index = 0;  // in files_
    nvlog::FileTag tag;
    nvlog::Lsn kept_declared = 0;
    // What the kernel was not told of: offset and length, by the group's LSN.
    std::map<nvlog::Lsn, std::pair<uint64_t, uint64_t>> pending;
  };
  struct Process {
    pool::Pool pool;
    nvlog::Log log;
    nvlog::Kept kept{log};
    std::map<uint32_t, std::unique_ptr<Known>> files;  // by index
    std::map<uint32_t, Known*> by_number;
    uint32_t numbers = 0;
    // As the cleanup thread knows it: of each number, when its file was handed over last; and the
    // last time of all that the checkpoint has not passed, or 0.
    std::map<uint32_t, nvlog::Lsn> handed_over;
    nvlog::Lsn uncovered = 0;
  };
  void TakePool();
  void ReplayOrphans(bool resolved);
  void GiveUpSeat(bool left);
  // Calls append(group, record), once more with a record if it says that it needs one.
  template <typename Function>
  void AppendThrough(uint32_t file, Function append);
  void WriteGroup(uint32_t file, uint64_t offset, std::string* bytes,
                  const std::function<bool()>& meanwhile);
  void TellKernel(const File& file, uint64_t offset, const nvlog::GroupWriter& group) const;
  void Change(File* file, uint64_t offset, const std::string& bytes);
  void SettleNow(uint32_t file, const std::function<void()>& meanwhile);
  void MoveThroughCheckpoint();
  void Append(uint32_t file, uint64_t offset, const std::string& bytes);
  Known& KnownOf(uint32_t file);
  Process& own() const { return *processes_.at(process_); }
  nvlog::Log& log() const { return own().log; }
  nvlog::Kept& kept() const { return own().kept; }
  // Calls start(group, record), once more with a record if it needs one, and then rest(group).
  template <typename Start, typename Rest>
  void Append(uint32_t file, Start start, Rest rest);
  void Mark(uint32_t file, nvlog::Kind kind, uint64_t offset, uint64_t length);
  void Clean(size_t groups, const std::vector<uint32_t>& keep,
             const std::function<void()>& meanwhile, bool hurried);
  void WriteBack(File& file, uint64_t offset, uint64_t length);
  void PassRecord(nvlog::Place place, const std::vector<uint32_t>& keep,
                  std::set<uint32_t>* touched);
  bool IsHandedOver(const nvlog::RecordHeader& header) const;
  bool CoverHandedOver(bool hurried);
  void TellPending(uint32_t file);
  void Keep(Known& known, nvlog::Place place);
  void Sync(File& file);
  void SyncThrough();
  nvlog::Place FileRecordBefore(nvlog::Place place) const;
  uint64_t Room() const;

  const Place place_;
  const std::string path_;
  std::mt19937_64 random_;
  Capture capture_;
  std::map<uint32_t, std::unique_ptr<Process>> processes_;  // that have a seat
  uint32_t process_ = 0;
  std::vector<std::unique_ptr<File>> files_;
};

}  // namespace nvcache::crash

#endif  // NVCACHE_TESTS_CRASH_LOG_STAGE_H_
