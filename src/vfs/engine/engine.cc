// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/engine/engine.h"

#include "src/sys/check.h"
#include "src/sys/kernel.h"
#include "src/sys/root.h"
#include "src/sys/scratch.h"
#include "src/vfs/engine/access.h"

namespace nvcache::vfs {

constinit Engine engine;

void Engine::SetStage(Stage stage) {
  NVCACHE_CHECK(MayFollow(stage_.load(), stage));
  stage_.store(stage, std::memory_order_release);
}

void Engine::BecomeFinal() {
  if (stage() != Last(stage())) SetStage(Last(stage()));
}

bool Engine::Start(const Host& with, char** environment) {
  host = &with;
  standing.Begin();
  sys::Text<480> wrong;
  if (!settings::FromEnvironment(&settings, environment, &wrong)) {
    notice.Refuse(wrong.c_str());
    return false;
  }
  if (settings.pool.size() == 0 || !Process::MayCallKernel()) return false;
  caches_files_ = settings.caches();
  callers.Begin();
  constexpr uint64_t kMillisecond = 1000 * 1000;
  mirror.SetAhead(settings.ahead_ms * kMillisecond);
  sys::RememberRoot();
  files.Open();
  descriptors.Open();
  TableLock lock;
  if (!OpenLeases() || !recovery.BeforeUse()) return false;
  SetStage(Stage::kDetached);
  callers.SayInterposed();
  return true;
}

void Engine::RequirePool() {
  if (settings.required || settings.raw == settings::Raw::kRefuse) callers.Know(true);
  if (!settings.required) return;
  TableLock lock;
  attachment.Attach();
}

void Engine::RefuseStart(char** environment, const char* text) {
  sys::Text<480> wrong;
  if (!settings::FromEnvironment(&settings, environment, &wrong)) return;
  if (settings.pool.size() != 0) notice.RefuseCache(text);
}

bool Engine::OpenLeases() {
  const char* why = "";
  if (leases.Open(lease_folder, &why)) {
    descriptors.Set(leases.fd(), Internal());
    // The pools of those who have died before are looked at next.
    recovery.BeginToNoticeDeaths();
    return true;
  }
  sys::Text<480> text;
  text.Append(lease_folder).Append(": ").Append(why);
  notice.RefuseCache(text.c_str());
  return false;
}

[[gnu::hot]] void Engine::Stop() {
  if (active() && !standing.asleep() && standing.IsOurs()) StopOwn();
}

void Engine::StopOwn() {
  TableLock lock;
  BecomeFinal();
  if (settings.drain_at_exit) attachment.ReleaseAll();
  if (attached() && settings.drain_at_exit) {
    sys::Text<512> text;
    text.Append(attachment.pool().path());
    text.Append(
        ": the file system refuses some bytes; they stay in the pool for 'nvcache recover'");
    sys::Report(text.c_str());
  }
  // A file that is left (a setting asked for it, or the disk refuses) stays in the log, and stays
  // cached: the next user of the pool recovers it.
}

// Nobody sees what the program does from then on: so nothing is pending of it by then that a
// recovery would lay over that.
void Engine::Retire(lease::Hindrance why) {
  if (!active()) return;
  notice.Hinder(why);
  checkpoint.EndPending();
  TableLock lock;
  BecomeFinal();
  attachment.ReleaseAll(true);
}

// As Retire. The files keep their leases, for the program may go on writing to them.
void Engine::Leave() {
  checkpoint.EndPending();
  TableLock lock;
  BecomeFinal();
  attachment.ReleaseAll(true);
  if (attached()) return;
  files.ForEach([&](File& file) {
    if (file.backing_fd >= 0 && !file.locked.load() && !IsLocked(file.backing_fd)) own.Close(file);
  });
  for (uint32_t fd = 0; fd < descriptors.end(); ++fd) {
    descriptors.Store(static_cast<int>(fd), kUntracked);
  }
  SetStage(Stage::kOff);
}

}  // namespace nvcache::vfs
