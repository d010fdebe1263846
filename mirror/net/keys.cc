// SPDX-License-Identifier: BSD-3-Clause
#include "mirror/net/keys.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <sstream>
#include <system_error>

#include "mirror/core/error.h"
#include "src/sys/descriptor.h"

namespace nvcache::mirror {

namespace {

constexpr size_t kMaxFile = 1 << 20;

int Digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

// Empty: it is none.
std::vector<uint8_t> OfHex(const std::string& text) {
  std::vector<uint8_t> bytes;
  if (text.size() % 2 != 0) return {};
  for (size_t i = 0; i < text.size(); i += 2) {
    const int high = Digit(text[i]), low = Digit(text[i + 1]);
    if (high < 0 || low < 0) return {};
    bytes.push_back(static_cast<uint8_t>(high << 4 | low));
  }
  return bytes;
}

bool IsIdentity(const std::string& text) {
  return !text.empty() && text.size() <= kMaxIdentity &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                  c == '.' || c == '_' || c == '-' || c == '@';
         });
}

// nullptr: the line is right.
const char* ReadLine(const std::string& line, Key* key) {
  const size_t first = line.find(':');
  if (first == std::string::npos) return "is not IDENTITY:HEX[:NAMES]";
  const size_t second = line.find(':', first + 1);
  key->identity = line.substr(0, first);
  if (!IsIdentity(key->identity)) {
    return "has an identity that is not 1 to 64 letters, digits and '.', '_', '-', '@'";
  }
  key->secret =
      OfHex(line.substr(first + 1, second == std::string::npos ? second : second - first - 1));
  if (key->secret.size() < kMinSecret || key->secret.size() > kMaxSecret) {
    return "has a key that is not 32 to 128 hexadecimal digits";
  }
  if (second == std::string::npos) {
    key->names = {key->identity};
    return nullptr;
  }
  std::istringstream names(line.substr(second + 1));
  for (std::string name; std::getline(names, name, ',');) {
    if (!name.empty()) key->names.push_back(name);
  }
  return key->names.empty() ? "ends with ':', and no mirror name behind it" : nullptr;
}

std::string ReadFile(const std::string& path) {
  const auto failed = [&path](const std::string& why) { return NetError("keys " + path + why); };
  const sys::Descriptor file(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  struct stat st = {};
  if (!file.IsOpen() || fstat(file.get(), &st) != 0) {
    throw failed(" cannot be read: " + std::generic_category().message(errno));
  }
  if ((st.st_mode & S_IRWXO) != 0) throw failed(" can be used by everybody; chmod o= them");
  std::string text(kMaxFile, '\0');
  const ssize_t n = read(file.get(), text.data(), text.size());
  if (n < 0) throw failed(" cannot be read: " + std::generic_category().message(errno));
  if (static_cast<size_t>(n) == text.size()) throw failed(" have more than a megabyte");
  text.resize(static_cast<size_t>(n));
  return text;
}

}  // namespace

bool Key::MayUse(const std::string& name) const {
  return std::any_of(names.begin(), names.end(), [&name](const std::string& glob) {
    return fnmatch(glob.c_str(), name.c_str(), FNM_NOESCAPE) == 0;
  });
}

std::vector<Key> ReadKeys(const std::string& path) {
  std::vector<Key> keys;
  std::istringstream lines(ReadFile(path));
  size_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const size_t end = line.find_last_not_of(" \t\r");
    if (end == std::string::npos || line[0] == '#') continue;
    Key key;
    const char* wrong = ReadLine(line.substr(0, end + 1), &key);
    const bool twice = std::any_of(keys.begin(), keys.end(), [&key](const Key& other) {
      return other.identity == key.identity;
    });
    if (wrong == nullptr && twice) wrong = "has an identity that is there before";
    if (wrong != nullptr) {
      throw NetError("keys " + path + ": line " + std::to_string(number) + " " + wrong);
    }
    keys.push_back(std::move(key));
  }
  if (keys.empty()) throw NetError("keys " + path + " are none; psktool(1) makes one");
  return keys;
}

}  // namespace nvcache::mirror
