// SPDX-License-Identifier: BSD-3-Clause
//
// Processes that share files, as leases and entries know them.
#ifndef NVCACHE_TESTS_UNIT_MEMBER_H_
#define NVCACHE_TESTS_UNIT_MEMBER_H_

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <type_traits>

#include "src/lease/file_table.h"
#include "src/lease/leases.h"

namespace nvcache::test {

// With a slot, and the file_table.
struct Member {
  bool Open(const std::string& folder) {
    const char* why = "";
    return leases.Open(folder.c_str(), &why);
  }
  ~Member() { leases.Close(); }
  lease::Leases leases;
  lease::FileTable file_table{leases};
};

// Another process, which has done something and stays as it is then.
class Other {
 public:
  template <typename Function>
  Other(const std::string& folder, Function function) {
    int ready[2], end[2];
    EXPECT_EQ(pipe(ready), 0);
    EXPECT_EQ(pipe(end), 0);
    pid_ = fork();
    if (pid_ == 0) {
      close(end[1]);
      std::optional<Member> member(std::in_place);
      char byte = member->Open(folder) ? 1 : 0;
      if constexpr (std::is_invocable_v<Function, Member&>) {
        if (byte == 1) function(*member);
      } else {
        if (byte == 1) function(member->file_table);
      }
      if (write(ready[1], &byte, 1) == 1 && read(end[0], &byte, 1) >= 0) member.reset();
      _exit(0);
    }
    close(ready[1]);
    close(end[0]);
    end_ = end[1];
    char byte = 0;
    EXPECT_EQ(read(ready[0], &byte, 1), 1);
    EXPECT_EQ(byte, 1) << "has a slot";
    close(ready[0]);
  }
  ~Other() { End(); }
  Other(const Other&) = delete;
  Other& operator=(const Other&) = delete;

  void End() {
    if (pid_ < 0) return;
    close(end_);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  void Kill() {
    kill(pid_, SIGKILL);
    End();
  }
  void Signal(int signal) const { kill(pid_, signal); }

 private:
  pid_t pid_;
  int end_;
};

}  // namespace nvcache::test

#endif  // NVCACHE_TESTS_UNIT_MEMBER_H_
