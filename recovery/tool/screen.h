// SPDX-License-Identifier: BSD-3-Clause
//
// The terminal of `nvcache top`: all of it, until the end.
#ifndef NVCACHE_RECOVERY_TOOL_SCREEN_H_
#define NVCACHE_RECOVERY_TOOL_SCREEN_H_

#include <string>
#include <vector>

namespace nvcache::tool {

struct Frame {
  std::vector<std::string> head;  // the last line is the title of the table
  size_t marked = 0;              // columns of that line, from here on
  size_t marked_length = 0;
  std::vector<std::string> table;
  std::string foot;
};

enum class Key { kNone, kQuit, kLeft, kRight, kUp, kDown, kOther };

class Screen {
 public:
  // stdin and stdout are a terminal. A Failure if it is one of no known kind.
  Screen();
  ~Screen();  // the terminal is as it was
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  // `skipped`: lines of the table that were scrolled away.
  void Draw(const Frame& frame, size_t skipped);
  size_t width() const;
  // Does not wait. A change of the terminal's size is kOther.
  Key ReadKey();

 private:
  void* terminal_;  // SCREEN*
};

}  // namespace nvcache::tool

#endif  // NVCACHE_RECOVERY_TOOL_SCREEN_H_
