// SPDX-License-Identifier: BSD-3-Clause
//
// Standard I/O. What is in a buffer at exit is written by exit; what is in one at exec, _exit or a
// kill is lost, without NVCache as with it.
#include <fcntl.h>
#include <stdarg.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <string>

#include "tests/differential/calls.h"
#include "tests/differential/libc.h"

namespace nvcache::differential {
namespace {

constexpr int kStreams = 4;
constexpr size_t kText = 200000;
FILE* g_streams[kStreams];
char g_stream_buffers[kStreams][65536];

FILE*& StreamOf(const Operation& op) {
  return g_streams[static_cast<size_t>(op.Number("s")) % kStreams];
}

// C wants a change of direction to go by way of a seek. Without one, ungetc breaks glibc's heap.
enum class Direction { kNone, kIn, kOut };
Direction DirectionOf(const std::string& name) {
  static const std::set<std::string> kInputs = {"fread", "fgetc", "ungetc", "fgets", "getline"};
  static const std::set<std::string> kOutputs = {"fwrite", "fputs", "fprintf", "fputc"};
  if (kInputs.count(name) != 0) return Direction::kIn;
  return kOutputs.count(name) != 0 ? Direction::kOut : Direction::kNone;
}
Direction g_directions[kStreams];

// False: it cannot seek.
bool ChangeDirection(const Call& call, FILE* stream) {
  const Direction now = DirectionOf(call.op.name());
  Direction& before = g_directions[static_cast<size_t>(call.op.Number("s")) % kStreams];
  if (now == Direction::kNone) return true;
  const bool changes = now != before && before != Direction::kNone;
  if (changes && fseeko(stream, 0, SEEK_CUR) != 0) return false;
  before = now;
  return true;
}

// Only a stream that nobody has used yet may get another buffer.
void SetBuffer(const Call& call, FILE* stream) {
  const auto size = static_cast<size_t>(call.op.Number("size"));
  char* buffer = g_stream_buffers[static_cast<size_t>(call.op.Number("s")) % kStreams];
  call.line.Add("buffer=%d", setvbuf(stream, size > 0 ? buffer : nullptr,
                                     static_cast<int>(call.op.Number("buffer")), size));
}

void Opened(const Call& call, FILE* stream) {
  FILE*& old = StreamOf(call.op);
  call.line.Add("r=%d", stream != nullptr ? fileno(stream) : -1);
  if (stream == nullptr) call.line.Add("e=%s", ErrorName(errno).c_str());
  if (old != nullptr && stream != nullptr) call.line.Add("closed=%d", fclose(old));
  if (stream == nullptr) return;
  old = stream;
  g_directions[static_cast<size_t>(call.op.Number("s")) % kStreams] = Direction::kNone;
  if (call.op.Has("buffer")) SetBuffer(call, stream);
}

void Fopen(const Call& call) {
  Opened(call, fopen(Path(call.op).c_str(), call.op.Text("mode").c_str()));
}
void Fdopen(const Call& call) {
  if (BelongsToStream(Descriptor(call.op))) return call.line.Add("skipped");
  Opened(call, fdopen(Descriptor(call.op), call.op.Text("mode").c_str()));
}
void Tmpfile(const Call& call) { Opened(call, tmpfile()); }

// Without a path: another mode for the same file.
void Freopen(const Call& call, FILE*& stream) {
  const std::string path = Path(call.op);
  FILE* opened =
      freopen(call.op.Has("path") ? path.c_str() : nullptr, call.op.Text("mode").c_str(), stream);
  stream = opened;
  call.line.Add("r=%d", opened != nullptr ? fileno(opened) : -1);
  if (opened == nullptr) call.line.Add("e=%s", ErrorName(errno).c_str());
}

void Fclose(const Call& call, FILE*& stream) {
  FILE* closing = stream;
  stream = nullptr;
  call.line.Result(fclose(closing));
}

// A text of lines, some of them long.
size_t Text(const Operation& op, char* text) {
  const size_t length = std::min(static_cast<size_t>(op.Number("len")), kText - 1);
  Fill(reinterpret_cast<uint8_t*>(text), length, static_cast<uint64_t>(op.Number("data")));
  for (size_t i = 0; i < length; ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    text[i] = byte < 8 ? '\n' : static_cast<char>('!' + byte % 90);
  }
  text[length] = '\0';
  return length;
}
char g_text[kText];

// stdio keeps errno of nobody; it counts only where a call failed.
void StreamResult(const Call& call, long result, bool failed) {
  const int error = errno;
  call.line.Add("r=%ld", result);
  if (failed) call.line.Add("e=%s", ErrorName(error).c_str());
}

void Fwrite(const Call& call, FILE*& stream) {
  const size_t length = std::min(static_cast<size_t>(call.op.Number("len")), kBuffer);
  Fill(Buffer(), length, static_cast<uint64_t>(call.op.Number("data")));
  const size_t n = fwrite(Buffer(), 1, length, stream);
  StreamResult(call, static_cast<long>(n), n < length);
}
void Fread(const Call& call, FILE*& stream) {
  const size_t length = std::min(static_cast<size_t>(call.op.Number("len")), kBuffer);
  const size_t n = fread(Buffer(), 1, length, stream);
  StreamResult(call, static_cast<long>(n), ferror(stream) != 0);
  call.line.Digest(Buffer(), n);
}
void Fputs(const Call& call, FILE*& stream) {
  Text(call.op, g_text);
  const int result = fputs(g_text, stream);
  StreamResult(call, result < 0 ? -1 : 0, result < 0);
}
void Fprintf(const Call& call, FILE*& stream) {
  Text(call.op, g_text);
  const int result = fprintf(stream, "%s %ld\n", g_text, call.op.Number("data"));
  StreamResult(call, result, result < 0);
}
void Fputc(const Call& call, FILE*& stream) {
  const int result = fputc(static_cast<int>(call.op.Number("data") % 256), stream);
  StreamResult(call, result, result < 0);
}
void Fgetc(const Call& call, FILE*& stream) {
  const int result = fgetc(stream);
  StreamResult(call, result, ferror(stream) != 0);
}
void Ungetc(const Call& call, FILE*& stream) {
  StreamResult(call, ungetc(static_cast<int>(call.op.Number("data") % 256), stream), false);
}
void Fgets(const Call& call, FILE*& stream) {
  const size_t length = std::min(static_cast<size_t>(call.op.Number("len")), kText);
  std::memset(g_text, 0, length + 1);
  const bool got = fgets(g_text, static_cast<int>(length), stream) != nullptr;
  StreamResult(call, got, ferror(stream) != 0);
  if (got) call.line.Digest(g_text, length);
}
// A hole of terabytes is one line, and getline wants it in memory.
void Getline(const Call& call, FILE*& stream) {
  struct stat st;
  constexpr off_t kMost = 16 << 20;
  if (fstat(fileno(stream), &st) == 0 && st.st_size > kMost) return call.line.Add("skipped");
  char* text = nullptr;
  size_t room = 0;
  const ssize_t n = getline(&text, &room, stream);
  StreamResult(call, n, ferror(stream) != 0);
  if (n > 0) call.line.Digest(text, static_cast<size_t>(n));
  free(text);
}
void Fseeko(const Call& call, FILE*& stream) {
  const int result =
      fseeko(stream, call.op.Number("off"), static_cast<int>(call.op.Number("whence")));
  StreamResult(call, result, result < 0);
}
void Ftello(const Call& call, FILE*& stream) {
  const off_t result = ftello(stream);
  StreamResult(call, result, result < 0);
}
void Rewind(const Call& call, FILE*& stream) {
  rewind(stream);
  call.line.Add("at=%ld", static_cast<long>(ftello(stream)));
}
void Fflush(const Call& call, FILE*& stream) {
  const int result = fflush(stream);
  StreamResult(call, result, result < 0);
}
void FlushAll(const Call& call) { call.line.Add("r=%d", fflush(nullptr)); }
// The stream's own descriptor in the table: raw calls and buffered ones in turn.
void Fileno(const Call& call, FILE*& stream) {
  const int fd = fileno(stream);
  call.line.Result(fd);
  const long place = call.op.Number("to");
  if (place >= 0 && place < kDescriptors) Me().descriptors[place] = fd;
}
void State(const Call& call, FILE*& stream) {
  call.line.Add("eof=%d error=%d", feof(stream) != 0, ferror(stream) != 0);
}
void Clearerr(const Call& call, FILE*& stream) {
  clearerr(stream);
  call.line.Add("done");
}

void Dprintf(const Call& call) {
  Text(call.op, g_text);
  const int result = dprintf(Descriptor(call.op), "%s:%ld\n", g_text, call.op.Number("data"));
  StreamResult(call, result, result < 0);
}

}  // namespace

bool BelongsToStream(int fd) {
  for (FILE* stream : g_streams) {
    if (fd >= 0 && stream != nullptr && fileno(stream) == fd) return true;
  }
  return false;
}

bool DoStreamCall(const Call& call) {
  static const std::map<std::string, void (*)(const Call&)> kCalls = {
      {"fopen", Fopen},     {"fdopen", Fdopen},      {"tmpfile", Tmpfile},
      {"dprintf", Dprintf}, {"flush_all", FlushAll},
  };
  // On a stream that is open.
  static const std::map<std::string, void (*)(const Call&, FILE*&)> kStreamCalls = {
      {"freopen", Freopen},    {"fclose", Fclose},     {"fwrite", Fwrite},   {"fread", Fread},
      {"fputs", Fputs},        {"fprintf", Fprintf},   {"fputc", Fputc},     {"fgetc", Fgetc},
      {"ungetc", Ungetc},      {"fgets", Fgets},       {"getline", Getline}, {"fseeko", Fseeko},
      {"ftello", Ftello},      {"rewind", Rewind},     {"fflush", Fflush},   {"fileno", Fileno},
      {"stream_state", State}, {"clearerr", Clearerr},
  };
  if (const auto found = kCalls.find(call.op.name()); found != kCalls.end()) {
    found->second(call);
    return true;
  }
  const auto found = kStreamCalls.find(call.op.name());
  if (found == kStreamCalls.end()) return false;
  FILE*& stream = StreamOf(call.op);
  if (stream == nullptr || !ChangeDirection(call, stream)) {
    call.line.Add("skipped");
  } else {
    found->second(call, stream);
  }
  return true;
}

}  // namespace nvcache::differential
