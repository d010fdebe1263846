// SPDX-License-Identifier: BSD-3-Clause
#include "recovery/tool/screen.h"

// No macros by names like `clear` and `timeout`.
#define NCURSES_NOMACROS
#include <curses.h>
#include <fmt/format.h>
#include <locale.h>
#include <stdlib.h>

#include <algorithm>

#include "recovery/tool/commands.h"
#include "recovery/tool/text.h"

namespace nvcache::tool {
namespace {

constexpr int kMinLines = 10;
constexpr int kMinColumns = 40;

void DrawLine(int line, const std::string& text) {
  // No more bytes than columns: a text that is too long does not go on in the next line.
  mvaddnstr(line, 0, text.c_str(), COLS);
}

[[noreturn]] void RefuseTerminal() {
  const char* kind = getenv("TERM");
  throw Failure{
      kFailed,
      fmt::format("TERM={}: this terminal cannot be drawn on; set TERM to what it is, or give "
                  "--batch for plain text",
                  Printable(kind != nullptr ? kind : ""))};
}

}  // namespace

Screen::Screen() {
  setlocale(LC_CTYPE, "");  // names of programs are UTF-8
  terminal_ = newterm(nullptr, stdout, stdin);
  if (terminal_ == nullptr) RefuseTerminal();
  if (tigetstr("cup") == nullptr) {
    endwin();
    RefuseTerminal();
  }
  cbreak();
  noecho();
  curs_set(0);
  keypad(stdscr, TRUE);
  nodelay(stdscr, TRUE);
}

Screen::~Screen() {
  endwin();
  delscreen(static_cast<SCREEN*>(terminal_));
}

void Screen::Draw(const Frame& frame, size_t skipped) {
  erase();
  if (LINES < kMinLines || COLS < kMinColumns) {
    DrawLine(0, fmt::format("make it {} x {}", kMinColumns, kMinLines));
    refresh();
    return;
  }
  int line = 0;
  for (const std::string& text : frame.head) DrawLine(line++, text);
  mvchgat(line - 1, 0, -1, A_REVERSE, 0, nullptr);
  if (const int at = static_cast<int>(frame.marked); at < COLS) {
    const int length = std::min(static_cast<int>(frame.marked_length), COLS - at);
    mvchgat(line - 1, at, length, A_BOLD, 0, nullptr);
  }
  for (size_t i = skipped; i < frame.table.size() && line < LINES - 1; ++i) {
    DrawLine(line++, frame.table[i]);
  }
  DrawLine(LINES - 1, frame.foot);
  mvchgat(LINES - 1, 0, -1, A_REVERSE, 0, nullptr);
  refresh();
}

size_t Screen::width() const { return static_cast<size_t>(COLS); }

Key Screen::ReadKey() {
  switch (getch()) {
    case ERR:
      return Key::kNone;
    case 'q':
    case 'Q':
      return Key::kQuit;
    case KEY_LEFT:
      return Key::kLeft;
    case KEY_RIGHT:
      return Key::kRight;
    case KEY_UP:
      return Key::kUp;
    case KEY_DOWN:
      return Key::kDown;
    default:
      return Key::kOther;
  }
}

}  // namespace nvcache::tool
