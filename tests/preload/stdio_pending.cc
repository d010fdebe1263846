// SPDX-License-Identifier: BSD-3-Clause
//
// Writes by every kind of stream, one new file each, flushes, writes a little more, and ends with
// all of them open: by exit, which flushes once more, or by SIGKILL.
//
//   stdio_pending DIRECTORY exit|kill
//   stdio_pending DIRECTORY again       only a file that is closed, and opened again by libc itself
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <wchar.h>

#include <fstream>
#include <string>
#include <vector>

namespace {

// Closed a moment ago, so it is still in the log.
int WriteAgain() {
  FILE* file = fopen("again", "w");
  fputs("earlier", file);
  fclose(file);
  file = freopen("again", "w", fopen("/dev/null", "w"));
  fputs("again", file);
  fflush(file);
  return kill(getpid(), SIGKILL);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 || chdir(argv[1]) != 0) return 2;
  if (argv[2][0] == 'a') return WriteAgain();

  FILE* file = fopen("fwrite", "w");
  fwrite("a record", 1, 8, file);
  fflush(file);

  file = fopen("fputc", "wx");
  for (int i = 0; i < 5000; ++i) fputc('a' + i % 26, file);
  fflush(file);

  file = fopen("block", "w+");
  const std::vector<char> block(1 << 20, 'b');
  fwrite(block.data(), 1, block.size(), file);
  fflush(file);

  file = fopen("append", "a");
  setvbuf(file, nullptr, _IONBF, 0);
  fputs("unbuffered", file);

  file = fopen("wide", "w");
  fputws(L"wide", file);
  fflush(file);

  file = fopen("converted", "w,ccs=UTF-16LE");
  fputws(L"converted", file);
  fflush(file);

  file = fdopen(open("fdopen", O_RDWR | O_CREAT, 0644), "a");
  fputs("fdopen", file);
  fflush(file);

  file = freopen("freopen", "w", fopen("/dev/null", "w"));
  fputs("freopen", file);
  fflush(file);

  if (dprintf(open("dprintf", O_RDWR | O_CREAT, 0644), "%s", "dprintf") != 7) return 1;

  if (freopen("stdout", "w", stdout) == nullptr) return 1;
  printf("printed");
  fflush(stdout);

  std::ofstream stream("ofstream");
  stream << "a line" << std::endl << std::string(100000, 'x') << std::flush;

  std::fstream both("fstream", std::ios::in | std::ios::out | std::ios::trunc);
  both << "both ways" << std::flush;

  fputs(" and more", file);
  fputs("another", fopen("unflushed", "w"));
  printf(" and more");
  if (argv[2][0] == 'e') exit(0);
  kill(getpid(), SIGKILL);
}
