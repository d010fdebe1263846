// SPDX-License-Identifier: BSD-3-Clause
#include "tests/crash/script.h"

#include <algorithm>
#include <sstream>
#include <stdexcept>

#include "src/pool/format.h"

namespace nvcache::crash {

namespace {

[[noreturn]] void Wrong(const std::string& what) {
  throw std::runtime_error("the scenario makes no sense: " + what);
}

// Up to the parenthesis that closes, or to the end of the text.
Script ParseFrom(std::istream* text, bool closes) {
  Script script;
  bool is_new = true;  // the next word begins an action
  for (std::string word; true;) {
    const int next = text->get();
    const bool ends = next == EOF || next == ')';
    if (!ends && std::string(" ,\n(").find(static_cast<char>(next)) == std::string::npos) {
      word += static_cast<char>(next);
      continue;
    }
    if (!word.empty() && is_new) script.push_back({word, {}, {}});
    if (!word.empty() && !is_new) script.back().words.push_back(word);
    if (!word.empty()) is_new = word.back() == ':';
    word.clear();
    if (next == ',' || next == '\n') is_new = true;
    if (next == '(' && is_new) Wrong("nothing happens before a parenthesis");
    if (next == '(') script.back().meanwhile = ParseFrom(text, true);
    if (!ends) continue;
    if ((next == ')') != closes) Wrong("the parentheses do not match");
    return script;
  }
}

}  // namespace

const std::string& Action::Word(size_t i) const {
  if (i >= words.size()) Wrong(verb + " has too few words");
  return words[i];
}

uint64_t Action::Number(size_t i) const {
  const std::string& word = Word(i);
  const size_t page = word.find('p');
  if (word.find_first_not_of("0123456789p+-") != std::string::npos) Wrong(verb + " " + word);
  if (page == std::string::npos) return std::stoull(word);
  const uint64_t pages = page == 0 ? 1 : std::stoull(word);
  const int64_t more = page + 1 == word.size() ? 0 : std::stoll(word.substr(page + 1));
  return pages * pool::kPageSize + static_cast<uint64_t>(more);
}

std::string Action::Rest(size_t i) const {
  std::string rest;
  for (; i < words.size(); ++i) rest += (rest.empty() ? "" : " ") + words[i];
  return rest;
}

bool Action::Has(const std::string& word) const {
  return std::find(words.begin(), words.end(), word) != words.end();
}

Script Parse(const std::string& text) {
  std::istringstream in(text);
  return ParseFrom(&in, false);
}

void Actor::Do(const Script& script) const {
  for (const Action& action : script) {
    const auto verb = verbs_.find(action.verb);
    if (verb == verbs_.end()) Wrong(action.verb + " is no verb");
    verb->second(action);
  }
}

}  // namespace nvcache::crash
