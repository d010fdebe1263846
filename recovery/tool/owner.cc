// SPDX-License-Identifier: BSD-3-Clause
#include "recovery/tool/owner.h"

#include <errno.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

namespace nvcache::tool {
namespace {

bool Exists(uint32_t pid) {
  return pid != 0 && (kill(static_cast<pid_t>(pid), 0) == 0 || errno == EPERM);
}

// The process that has the gate, to recover the pool, as the kernel lists it; 0: none. Trying the
// lock would say it, too, but somebody who opens the pool in this moment would find it in use by
// us. No value when there is no such list.
std::optional<uint32_t> LockHolder(const pool::Pool& pool) {
  std::ifstream locks("/proc/locks");
  if (!locks) return std::nullopt;
  const std::string place =
      fmt::format("{:02x}:{:02x}:{}", major(pool.device()), minor(pool.device()), pool.inode());
  // "7: FLOCK  ADVISORY  WRITE 1234 00:18:42 0 EOF"; those who wait have "->" after the number.
  for (std::string line; std::getline(locks, line);) {
    std::istringstream words(line);
    std::string number, kind, mode, access, pid, where;
    words >> number >> kind >> mode >> access >> pid >> where;
    if (kind != "FLOCK" || access != "WRITE" || where != place) continue;
    const long holder = strtol(pid.c_str(), nullptr, 10);
    return holder > 0 ? static_cast<uint32_t>(holder) : 0;
  }
  return 0;
}

// Whether process `pid` was stopped, if that is the one that has the pool: where processes have
// other numbers than here, in a container, it may be another one.
bool IsStopped(uint32_t pid, uint64_t pool_inode) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string line;
  std::getline(file, line);
  // "1234 (name) T ...", whatever is in the name; t: by a debugger.
  const size_t end = line.rfind(')');
  if (end == std::string::npos || line.size() < end + 3) return false;
  if (line[end + 2] != 'T' && line[end + 2] != 't') return false;
  std::ifstream maps(fmt::format("/proc/{}/maps", pid));
  for (std::string map; std::getline(maps, map);) {
    // "from-to rw-s offset 00:18 42 path". On some file systems the device is not that of stat.
    std::istringstream words(map);
    std::string range, access, offset, device;
    uint64_t inode = 0;
    words >> range >> access >> offset >> device >> inode;
    if (inode == pool_inode) return true;
  }
  return false;
}

// How many each seat has.
std::vector<uint64_t> CountSegments(const pool::Pool& pool) {
  std::vector<uint64_t> counts(pool.seats().count());
  for (uint32_t i = 0; i < pool.view().segment_count(); ++i) {
    const uint32_t seat = pool.seats().OwnerSeat(i);
    if (seat < counts.size()) ++counts[seat];
  }
  return counts;
}

}  // namespace

std::string ProgramOf(uint32_t pid) {
  std::ifstream file(fmt::format("/proc/{}/comm", pid));
  std::string name;
  std::getline(file, name);
  return name;
}

std::vector<Process> FindProcesses(const pool::Pool& pool) {
  std::vector<Process> processes;
  const pool::Seats& seats = pool.seats();
  if (!pool.dirty()) return processes;
  const std::vector<uint64_t> segments = CountSegments(pool);
  for (uint32_t i = 0; i < std::min(seats.end(), seats.count()); ++i) {
    const pool::Seat& seat = seats.At(i);
    // After a power failure anything may be there.
    if (seats.State(i) == pool::kSeatFree || seats.State(i) > pool::kSeatLeft) continue;
    Process process;
    process.seat = i;
    process.pid = pool::Peek(seat.pid);
    process.alive = seats.Lives(i);
    process.state = seats.State(i);
    process.checkpointer = process.alive && i == seats.checkpointer();
    process.program.assign(seat.program, strnlen(seat.program, sizeof(seat.program)));
    process.since = pool::Peek(seat.since);
    process.oldest_pending = pool::Peek(seat.oldest_pending);
    const bool works = process.alive && process.state == pool::kSeatTaken;
    process.stopped = works && IsStopped(process.pid, pool.inode());
    process.files = works ? pool::Peek(seat.files) : 0;
    process.segments = segments[i];
    process.written = pool::Peek(seat.written);
    const pool::Conduct& conduct = seats.ConductOf(i);
    process.rule = pool::Peek(conduct.rule);
    process.through_written = pool::Peek(conduct.through_written);
    // Groups that it had before that are below the checkpoint.
    if (const uint64_t since = pool::Peek(conduct.through_since); since != 0) {
      process.through_since = std::max(since, seats.through_moved());
    }
    processes.push_back(process);
  }
  return processes;
}

const char* StateName(const Process& process) {
  switch (process.state) {
    case pool::kSeatReplayed:
      return "replayed";
    case pool::kSeatUnresolved:
      return "unresolved";
    case pool::kSeatLeft:
      return "left";
    default:
      return process.stopped ? "stopped" : process.alive ? "alive" : "dead";
  }
}

const char* ModeName(const Process& process) {
  if (process.checkpointer) return "-";
  switch (process.rule) {
    case pool::kRuleAuto:
      return "auto";
    case pool::kRuleAlways:
      return "always";
    case pool::kRuleNever:
      return "never";
    default:
      return "-";
  }
}

std::string Name(const Process& process) {
  return Printable(process.program) + (process.checkpointer ? " (checkpointer)" : "");
}

uint64_t AgeOfOldest(const Process& process, const PendingOfSeat& pending) {
  const uint64_t back = pending.records - pending.through.records;
  const auto age = [](uint64_t records, uint64_t since) {
    return records != 0 && since != 0 ? Since(since) : 0;
  };
  return std::max(age(back, process.oldest_pending),
                  age(pending.through.records, process.through_since));
}

Json ProcessJson(const Process& process, const PendingOfSeat& pending) {
  const uint64_t age = AgeOfOldest(process, pending);
  const std::string mode = ModeName(process);
  return {{"pid", process.pid},
          {"program", Printable(process.program)},
          {"checkpointer", process.checkpointer},
          {"state", StateName(process)},
          {"mode", mode != "-" ? Json(mode) : Json()},
          {"since_ns", process.since},
          {"age_ns", Since(process.since)},
          {"cached_files", process.files},
          {"segments", process.segments},
          {"pending_files", pending.files.size()},
          {"pending_records", pending.records},
          {"pending_bytes", pending.bytes},
          {"through_files", pending.through.files.size()},
          {"through_records", pending.through.records},
          {"through_bytes", pending.through.bytes},
          {"oldest_pending_age_ns", age != 0 ? Json(age) : Json()}};
}

// Nothing of it is known from another run of the kernel.
Through FindThrough(const pool::Pool& pool) {
  const pool::Seats& seats = pool.seats();
  if (!pool.dirty() || !pool.IsSameBoot()) return {};
  return {.used = seats.through_device() != 0,
          .moved = seats.through_moved(),
          .error = seats.ThroughFailed(),
          .failed_at = seats.through_failed_at()};
}

std::string ThroughText(const Through& through, const Pending& pending) {
  const PendingPart& above = pending.through;
  std::string text = "nothing";
  if (above.records != 0) {
    text = fmt::format("{}, {}, of {}", Many(above.records, "record", "records"), Size(above.bytes),
                       Many(above.files.size(), "file", "files"));
  }
  text += " above its checkpoint";
  if (through.moved != 0)
    text += fmt::format(", which moved {} ago", Duration(Since(through.moved)));
  if (through.error != 0) {
    text += fmt::format(
        "; a sync failed {} ago ({}), so it moves no more, and each fsync is real: end the "
        "programs, repair the disk, and run 'nvcache recover'",
        Duration(Since(through.failed_at)), ErrorName(through.error));
  }
  return text;
}

Json ThroughJson(const Through& through, const Pending& pending) {
  return {{"checkpoint", pending.through_checkpoint},
          {"checkpoint_age_ns", through.moved != 0 ? Json(Since(through.moved)) : Json()},
          {"pending_files", pending.through.files.size()},
          {"pending_records", pending.through.records},
          {"pending_bytes", pending.through.bytes},
          {"error", through.error != 0 ? Json(ErrorName(through.error)) : Json()},
          {"error_since_ns", through.failed_at}};
}

Owner FindOwner(const pool::Pool& pool) {
  const pool::StateRecord& state = *pool.view().state();
  Owner owner;
  const bool dirty = pool.dirty();
  const uint32_t recorded =
      dirty ? std::atomic_ref(const_cast<uint32_t&>(state.owner_pid)).load() : 0;
  std::optional<uint32_t> holder = LockHolder(pool);
  for (const Process& process : FindProcesses(pool)) {
    if (process.alive && process.state == pool::kSeatTaken) holder = process.pid;
  }
  const bool in_use = holder ? *holder != 0 : pool.seats().AnybodyLives();
  owner.use = in_use ? Use::kInUse : dirty ? Use::kDirty : Use::kClean;
  owner.pid = in_use && holder ? *holder : recorded;
  owner.alive = Exists(owner.pid);
  if (owner.alive) owner.program = ProgramOf(owner.pid);
  if (owner.pid != 0 && owner.pid == recorded) owner.since = pool::Peek(state.owner_since);
  return owner;
}

const char* UseName(Use use) {
  switch (use) {
    case Use::kInUse:
      return "in use";
    case Use::kDirty:
      return "dirty";
    default:
      return "clean";
  }
}

}  // namespace nvcache::tool
