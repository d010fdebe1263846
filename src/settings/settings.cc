// SPDX-License-Identifier: BSD-3-Clause
#include "src/settings/settings.h"

#include <initializer_list>

#include "src/pool/format.h"
#include "src/sys/scratch.h"

namespace nvcache::settings {

namespace {

using Wrong = sys::Text<480>;

constexpr char kPrefix[] = "NVCACHE_";
constexpr uint64_t kMaxDelay = 60000;
constexpr char kDramRange[] = "is no size for the cache: choose one from 64k to 4T";

bool Fail(Wrong* wrong, const char* name, const char* value, const char* what) {
  constexpr size_t kShown = 120;  // the beginning of a long value says enough
  *wrong = {};
  wrong->Append(kPrefix).Append(name, 40).Append("=").Append(value, kShown);
  if (sys::Length(value) > kShown) wrong->Append("...");
  wrong->Append(" ").Append(what);
  return false;
}

bool TakeFlag(bool* flag, const char* name, const char* value, Wrong* wrong) {
  for (const char* yes : {"1", "yes", "true", "on"}) {
    if (sys::Equal(value, yes)) return *flag = true;
  }
  for (const char* no : {"0", "no", "false", "off"}) {
    if (sys::Equal(value, no)) {
      *flag = false;
      return true;
    }
  }
  return Fail(wrong, name, value, "is neither yes nor no: give 1 or 0");
}

bool TakeNotice(Settings* settings, const char* name, const char* value, Wrong* wrong) {
  settings->notice_all = sys::Equal(value, "all");
  if (settings->notice_all) return settings->notice = true;
  if (TakeFlag(&settings->notice, name, value, wrong)) return true;
  return Fail(wrong, name, value, "is none of 1, 0 and all: give one of them");
}

bool TakeSize(uint64_t* bytes, uint64_t least, uint64_t most, const char* range, const char* name,
              const char* value, Wrong* wrong) {
  uint64_t size = 0;
  if (!ParseSize(value, &size)) {
    return Fail(wrong, name, value, "is not a size: give bytes, or a number such as 512M or 1.5G");
  }
  if (size < least || size > most) return Fail(wrong, name, value, range);
  *bytes = size;
  return true;
}

bool TakeNumber(uint64_t* number, uint64_t least, uint64_t most, const char* range,
                const char* name, const char* value, Wrong* wrong) {
  uint64_t n = 0;
  const char* p = value;
  for (; *p >= '0' && *p <= '9' && n <= most; ++p) n = n * 10 + static_cast<uint64_t>(*p - '0');
  if (*value == '\0' || *p != '\0' || n < least || n > most) return Fail(wrong, name, value, range);
  *number = n;
  return true;
}

// The text behind `prefix`, or nullptr.
const char* Behind(const char* prefix, const char* text) {
  for (; *prefix != '\0'; ++prefix, ++text) {
    if (*prefix != *text) return nullptr;
  }
  return text;
}

bool TakeFrames(Settings* settings, const char* name, const char* value, Wrong* wrong) {
  const char* size = Behind("pool:", value);
  const bool in_pool = size != nullptr;
  if (!in_pool) size = Behind("dram:", value);
  if (size == nullptr) {
    return Fail(wrong, name, value, "does not say where: give dram:SIZE or pool:SIZE");
  }
  uint64_t bytes = 0;
  if (!ParseSize(size, &bytes)) {
    return Fail(wrong, name, value, "has no size: give one, as in dram:512M or pool:8G");
  }
  if (bytes < kMinDram || bytes > kMaxDram) return Fail(wrong, name, value, kDramRange);
  settings->frames = bytes;
  settings->frames_in_pool = in_pool;
  return true;
}

bool TakeWriteBack(WriteBack* write_back, const char* name, const char* value, Wrong* wrong) {
  if (sys::Equal(value, "auto")) {
    *write_back = WriteBack::kAuto;
  } else if (sys::Equal(value, "always")) {
    *write_back = WriteBack::kAlways;
  } else if (sys::Equal(value, "never")) {
    *write_back = WriteBack::kNever;
  } else {
    return Fail(wrong, name, value, "is no rule: give auto, always or never");
  }
  return true;
}

bool TakeRaw(Raw* raw, const char* name, const char* value, Wrong* wrong) {
  if (sys::Equal(value, "off")) {
    *raw = Raw::kOff;
  } else if (sys::Equal(value, "refuse")) {
    *raw = Raw::kRefuse;
  } else if (sys::Equal(value, "trust")) {
    *raw = Raw::kTrust;
  } else {
    return Fail(wrong, name, value, "is no rule: give off, refuse or trust");
  }
  return true;
}

bool TakeHuge(uint64_t* bytes, const char* name, const char* value, Wrong* wrong) {
  if (sys::Equal(value, "auto") || sys::Equal(value, "never")) {
    *bytes = value[0] == 'a' ? kAllHuge : 0;
    return true;
  }
  if (ParseSize(value, bytes)) return true;
  return Fail(wrong, name, value, "is no bound: give a size such as 512M, or auto or never");
}

bool TakeAutoOrNever(bool* wanted, const char* name, const char* value, Wrong* wrong) {
  *wanted = sys::Equal(value, "auto");
  return *wanted || sys::Equal(value, "never") ||
         Fail(wrong, name, value, "is no rule: give auto or never");
}

template <size_t kCapacity>
bool TakeText(sys::Text<kCapacity>* text, const char* name, const char* value, Wrong* wrong) {
  if (sys::Length(value) >= kCapacity) {
    return Fail(wrong, name, value, "is too long: give a shorter one");
  }
  text->Clear();
  text->Append(value);
  return true;
}

bool TakeGlobs(sys::Text<1024>* list, const char* name, const char* value, Wrong* wrong) {
  for (const char* begin = value; *begin != '\0';) {
    size_t length = 0;
    while (begin[length] != '\0' && begin[length] != ':') ++length;
    sys::Scratch<sys::Text<1024>> pattern;
    pattern->Append(begin, length);
    if (length > 0 && !IsGlob(pattern->c_str())) {
      return Fail(wrong, name, value,
                  "has a pattern that ends within [ ] or after \\: complete it");
    }
    begin += begin[length] == ':' ? length + 1 : length;
  }
  return TakeText(list, name, value, wrong);
}

bool Agree(const Settings& settings, bool dram_given, Wrong* wrong) {
  *wrong = {};
  if (dram_given && settings.frames != 0 &&
      (settings.frames_in_pool || settings.frames != settings.dram)) {
    wrong->Append("NVCACHE_DRAM and NVCACHE_FRAMES say different things: remove one of them");
    return false;
  }
  if (settings.batch_min <= settings.batch_max) return true;
  wrong->Append("NVCACHE_BATCH_MIN=").AppendNumber(settings.batch_min);
  wrong->Append(" is more than NVCACHE_BATCH_MAX=").AppendNumber(settings.batch_max);
  wrong->Append(": lower the one or raise the other");
  return false;
}

}  // namespace

bool Apply(Settings* settings, const char* name, const char* value, sys::Text<480>* wrong) {
  const auto is = [name](const char* known) { return sys::Equal(name, known); };
  if (is("POOL")) return TakeText(&settings->pool, name, value, wrong);
  if (is("SIZE")) {
    return TakeSize(&settings->size, pool::kMinPoolSize, pool::kMaxPoolSize,
                    "is no size for a pool: choose one from 1M to 64T", name, value, wrong);
  }
  if (is("EMULATE")) return TakeFlag(&settings->emulate, name, value, wrong);
  if (is("DRAM")) {
    return TakeSize(&settings->dram, kMinDram, kMaxDram, kDramRange, name, value, wrong);
  }
  if (is("FRAMES")) return TakeFrames(settings, name, value, wrong);
  if (is("FRAME_DELAY")) {
    return TakeNumber(&settings->frame_delay_ns, 0, kMaxFrameDelay,
                      "is not a number of nanoseconds, 0 to 100000: give one", name, value, wrong);
  }
  if (is("INCLUDE")) return TakeGlobs(&settings->include, name, value, wrong);
  if (is("EXCLUDE")) return TakeGlobs(&settings->exclude, name, value, wrong);
  if (is("EXCLUSIVE")) return TakeGlobs(&settings->exclusive, name, value, wrong);
  if (is("WRITE_BACK")) return TakeWriteBack(&settings->write_back, name, value, wrong);
  if (is("RAW")) return TakeRaw(&settings->raw, name, value, wrong);
  if (is("REQUIRED")) return TakeFlag(&settings->required, name, value, wrong);
  if (is("DRAIN_AT_EXIT")) return TakeFlag(&settings->drain_at_exit, name, value, wrong);
  if (is("NOTICE")) return TakeNotice(settings, name, value, wrong);
  if (is("STDIO")) return TakeFlag(&settings->stdio, name, value, wrong);
  if (is("NAMES")) return TakeAutoOrNever(&settings->names, name, value, wrong);
  if (is("CHECKPOINTER")) {
    return TakeAutoOrNever(&settings->checkpointer, name, value, wrong);
  }
  if (is("HUGE")) return TakeHuge(&settings->huge, name, value, wrong);
  if (is("AHEAD")) {
    return TakeNumber(&settings->ahead_ms, 1, kMaxAhead,
                      "is not a number of milliseconds, 1 to 60000: give one", name, value, wrong);
  }
  if (is("BATCH_MIN")) {
    return TakeNumber(&settings->batch_min, 1, kMaxBatch,
                      "is not a number of pages, 1 to 1048576: give one", name, value, wrong);
  }
  if (is("BATCH_MAX")) {
    return TakeNumber(&settings->batch_max, 1, kMaxBatch,
                      "is not a number of pages, 1 to 1048576: give one", name, value, wrong);
  }
  if (is("BATCH_DELAY")) {
    return TakeNumber(&settings->batch_delay_ms, 1, kMaxDelay,
                      "is not a number of milliseconds, 1 to 60000: give one", name, value, wrong);
  }
  return Fail(wrong, name, value, "is no setting: correct or remove it (docs/settings.md)");
}

bool FromEnvironment(Settings* settings, char* const* environment, sys::Text<480>* wrong) {
  bool dram_given = false;
  for (; *environment != nullptr; ++environment) {
    const char* name = Behind(kPrefix, *environment);
    if (name == nullptr) continue;
    size_t length = 0;
    while (name[length] != '\0' && name[length] != '=') ++length;
    if (name[length] == '\0' || name[length + 1] == '\0') continue;  // empty: as if it were unset
    sys::Text<64> copy;
    copy.Append(name, length);
    if (!Apply(settings, copy.c_str(), name + length + 1, wrong)) return false;
    dram_given = dram_given || sys::Equal(copy.c_str(), "DRAM");
  }
  return Agree(*settings, dram_given, wrong);
}

}  // namespace nvcache::settings
