// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/engine/notice.h"

#include <errno.h>

#include "src/lease/hindrances.h"
#include "src/sys/kernel.h"
#include "src/vfs/engine/engine.h"

namespace nvcache::vfs {

namespace {

constexpr int kExitRequired = 125;  // env(1) and `nvcache run` end so: the program did not run

}  // namespace

void Notice::Say(const char* text) {
  if (!said_) sys::Report(text);
  said_ = true;
}

void Notice::Refuse(const char* text) {
  Say(text);
  if (engine.settings.required) sys::ExitGroup(kExitRequired);
}

// That others use the pool, or that it is another user's, is nothing wrong where processes come and
// go: a service that starts as root has given both to all that it starts.
void Notice::RefusePool(const pool::Problem& problem) {
  const bool ordinary = problem.error == EBUSY || problem.error == EUSERS ||
                        problem.error == EACCES || problem.error == EPERM;
  if (!ordinary || engine.settings.notice || engine.settings.required) Refuse(problem.text.c_str());
}

void Notice::RefuseCache(const char* text) {
  sys::Text<480> line;
  line.Append(text);
  line.Append(engine.settings.required ? "; the program is not started (NVCACHE_REQUIRED)"
                                       : "; the program runs without the cache");
  Refuse(line.c_str());
}

void Notice::RefuseFrames(const char* text) {
  if (engine.settings.required) return RefuseCache(text);
  sys::Text<480> line;
  line.Append(text).Append("; no file is cached, and what is synced often is write-through");
  Say(line.c_str());
}

// And then the next line.
void Notice::SaySize(uint64_t size) {
  if (!engine.settings.notice) return;
  sys::Text<512> text;
  text.Append(engine.settings.pool.c_str()).Append(" is made with ").AppendNumber(size / 1024);
  text.Append(" KiB, not ").AppendNumber(engine.settings.size / 1024);
  text.Append(": that is half of what a control group, or /dev/shm, has left of memory");
  sys::Report(text.c_str());
}

void Notice::SayLevel() {
  const pool::Pool& pool = engine.pool();
  const uint32_t commit = engine.mirror.commit();
  const bool is_mirrored = commit != pool::kCommitOwn;
  const bool lasts = pool.durability() != pmem::Durability::kProcess;
  if ((lasts && !is_mirrored) || !engine.settings.notice || said_) return;
  sys::Text<512> text;
  text.Append(pool.path());
  if (is_mirrored) {
    text.Append(pool.has_journal() ? " has a journal on its disk: " : " is mirrored: ");
    text.Append(commit == pool::kCommitWrite    ? "each write"
                : commit == pool::kCommitOutput ? "what others hear was synced"
                                                : "what a program syncs");
    text.Append(pool.has_journal() ? " survives a power failure"
                                   : " survives the loss of this machine's memory");
  } else {
    text.Append(" is emulated: writes survive the death of the process, not a power failure");
  }
  Say(text.c_str());
}

void Notice::Hinder(lease::Hindrance hindrance, const char* detail) {
  if (engine.leases.HasSaid(hindrance)) return;
  struct stat st = {};
  const bool is_there = sys::Fstatat(AT_FDCWD, engine.settings.pool.c_str(), &st, 0) == 0;
  if (!engine.leases.Say(hindrance, is_there ? lease::NumberTagOf(st.st_dev, st.st_ino) : 0,
                         detail)) {
    return;
  }
  const bool is_users = hindrance == lease::Hindrance::kOutsideWriter;
  if (!(is_users ? engine.settings.notice : engine.settings.notice_all)) return;
  sys::Text<512> text;
  text.Append(lease::NameOf(hindrance)).Append(": ").Append(lease::MeaningOf(hindrance));
  if (detail[0] != '\0') text.Append(" (").Append(detail).Append(")");
  sys::Report(text.c_str());
}

}  // namespace nvcache::vfs
