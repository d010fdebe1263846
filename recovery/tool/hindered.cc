// SPDX-License-Identifier: BSD-3-Clause
#include "recovery/tool/hindered.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "recovery/tool/owner.h"
#include "src/lease/hindrances.h"
#include "src/lease/slots.h"
#include "src/lease/tag.h"

namespace nvcache::tool {
namespace {

using lease::Hindrance;

void AddFrom(int fd, uint64_t pool, std::vector<Hindered>* processes) {
  const uint32_t slots = lease::CountSlots(fd);
  for (uint32_t slot = 0; slot < slots; ++slot) {
    lease::Hindrances said = {};
    if (!lease::ReadHindrances(fd, slot, &said) || said.pool != pool) continue;
    Hindered process = {.pid = said.pid,
                        .program = ProgramOf(said.pid),
                        .reasons = {},
                        .detail = {said.detail, strnlen(said.detail, sizeof(said.detail))}};
    for (uint32_t i = 0; i < lease::kHindrances; ++i) {
      if ((said.said.load() >> i & 1) != 0) process.reasons.push_back(i);
    }
    processes->push_back(std::move(process));
  }
}

}  // namespace

std::vector<Hindered> FindHindered(const pool::Pool& pool) {
  std::vector<Hindered> processes;
  // By its name's file, which is a journal where there is one.
  struct stat named = {};
  if (stat(pool.path(), &named) != 0) return processes;
  const uint64_t tag = lease::NumberTagOf(named.st_dev, named.st_ino);
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(lease::kFolder, error)) {
    if (!entry.path().filename().string().starts_with(lease::kFilePrefix)) continue;
    // Somebody else may have put a pipe there.
    const int fd = open(entry.path().c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) continue;
    AddFrom(fd, tag, &processes);
    close(fd);
  }
  std::sort(processes.begin(), processes.end(),
            [](const Hindered& a, const Hindered& b) { return a.pid < b.pid; });
  return processes;
}

void PrintHindered(const std::vector<Hindered>& processes) {
  if (processes.empty()) return;
  constexpr const char* kRow = "{:>10} {:<16} {:<18} {}\n";
  fmt::print("\n");
  fmt::print(kRow, "PID", "PROGRAM", "HINDERED BY", "WHICH MEANS");
  for (const Hindered& process : processes) {
    for (const uint32_t reason : process.reasons) {
      const auto hindrance = static_cast<Hindrance>(reason);
      std::string meaning = lease::MeaningOf(hindrance);
      if (!process.detail.empty()) meaning += fmt::format(" ({})", Printable(process.detail));
      fmt::print(kRow, process.pid, Printable(process.program), lease::NameOf(hindrance), meaning);
    }
  }
}

Json HinderedJson(const std::vector<Hindered>& processes) {
  Json list = Json::array();
  for (const Hindered& process : processes) {
    Json reasons = Json::array();
    for (const uint32_t reason : process.reasons) {
      reasons.push_back(lease::NameOf(static_cast<Hindrance>(reason)));
    }
    list.push_back({{"pid", process.pid},
                    {"program", Printable(process.program)},
                    {"by", std::move(reasons)},
                    {"detail", process.detail.empty() ? Json() : Json(Printable(process.detail))}});
  }
  return list;
}

}  // namespace nvcache::tool
