// SPDX-License-Identifier: BSD-3-Clause
#include "tests/mirror/serving.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>

namespace nvcache::mirror {

namespace {

constexpr int kPatience = 30;  // s
constexpr Id kLineage = {{3}};

}  // namespace

Folder::Folder(const std::string& parent) : path_(parent + "/nvcache-test-XXXXXX") {
  if (mkdtemp(path_.data()) == nullptr) abort();
}

Folder::~Folder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void WriteKeys(const std::string& path, const std::string& text) {
  std::ofstream(path) << text;
  chmod(path.c_str(), S_IRUSR | S_IWUSR);
}

std::string HexOf(uint8_t byte) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  for (int i = 0; i < 32; ++i) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

Key KeyOf(const std::string& identity, uint8_t byte) {
  return {.identity = identity, .secret = std::vector<uint8_t>(32, byte), .names = {}};
}

Serving::Serving(Words options, const std::function<void()>& before, const Words& wrapper)
    : folder_("/tmp") {
  Words words = wrapper;
  for (const char* word : {NVCACHE_COMMAND, "serve"}) words.emplace_back(word);
  words.insert(words.end(), options.begin(), options.end());
  const std::string log = folder_ / "log";
  pid_ = fork();
  if (pid_ != 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int file = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  dup2(file, STDERR_FILENO);
  if (before) before();
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  _exit(99);
}

Serving::~Serving() { Kill(SIGKILL); }

std::string Serving::said() const {
  std::ifstream file(folder_ / "log");
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string Serving::address() {
  for (int i = 0; i < kPatience * 100; ++i) {
    const std::string text = said();
    const size_t begin = text.find("serves on "), end = text.find(';', begin);
    if (begin != std::string::npos && end != std::string::npos) {
      const std::string all = text.substr(begin, end - begin);
      return all.substr(all.rfind(' ') + 1);
    }
    if (waitpid(pid_, nullptr, WNOHANG | WNOWAIT) != 0) {
      siginfo_t info = {};
      waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT);
      if (info.si_pid == pid_) break;
    }
    usleep(10000);
  }
  ADD_FAILURE() << "no server: " << said();
  return "";
}

int Serving::Wait() {
  int status = 0;
  if (pid_ < 0 || waitpid(pid_, &status, 0) != pid_) return -1;
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int Serving::Kill(int signal) {
  if (pid_ < 0) return -1;
  kill(pid_, signal);
  return Wait();
}

Caller::Caller(std::string address, const std::optional<Key>& key)
    : identity_(key ? Identity(*key) : Identity()),
      client_(&loop_, std::move(address), &identity_, this) {}

bool Caller::RunUntil(const std::function<bool()>& done, int seconds) {
  const Time end = Loop::Now() + static_cast<Time>(seconds) * 1000000000;
  while (!done() && Loop::Now() < end) loop_.RunOnce(10000000);
  return done();
}

bool Caller::Connect() {
  connected_ = closed_ = false;
  number_ = 0;
  client_.Connect();
  RunUntil([this] { return connected_ || closed_; }, kPatience);
  return connected_ && !closed_;
}

std::optional<Message> Caller::Next() {
  RunUntil([this] { return closed_ || !messages_.empty(); }, kPatience);
  if (messages_.empty()) return std::nullopt;
  Message message = std::move(messages_.front());
  messages_.pop_front();
  return message;
}

std::optional<Message> Caller::Ask(const Message& message) {
  Send(message);
  return Next();
}

bool Caller::IsClosed(int seconds) {
  return RunUntil([this] { return closed_; }, seconds);
}

std::optional<Message> Caller::Promise(const std::string& name, Epoch epoch) {
  if (!Connect()) return std::nullopt;
  return Ask({.type = Type::kPromise, .epoch = epoch, .name = name});
}

bool Caller::Fill(Epoch epoch, uint64_t size, uint8_t value, Position position) {
  Send({.type = Type::kBegin, .epoch = epoch, .pool_size = size, .lineage = kLineage});
  const auto stored = Ask({.type = Type::kAppend,
                           .whole = true,
                           .epoch = epoch,
                           .number = ++number_,
                           .position = position,
                           .ranges = {{0, 4096}},
                           .bytes = std::vector<uint8_t>(4096, value)});
  return stored && stored->type == Type::kStored && stored->position == position;
}

std::vector<uint8_t> Caller::Fetch(Epoch epoch, uint64_t size) {
  std::vector<uint8_t> image(size);
  for (uint64_t at = 0;;) {
    const auto piece = Ask({.type = Type::kFetch, .epoch = epoch, .offset = at});
    if (!piece || piece->type != Type::kPiece) return {};
    const Range& range = piece->ranges.at(0);
    if (range.length == 0) return range.offset == size ? image : std::vector<uint8_t>();
    std::copy(piece->bytes.begin(), piece->bytes.end(),
              image.begin() + static_cast<ptrdiff_t>(range.offset));
    at = range.offset + range.length;
  }
}

void Caller::OnConnected(Client* /*client*/) { connected_ = true; }
void Caller::OnMessage(Client* /*client*/, const Message& message) { messages_.push_back(message); }
void Caller::OnClosed(Client* /*client*/, const std::string& why) {
  closed_ = true;
  why_ = why;
}

}  // namespace nvcache::mirror
