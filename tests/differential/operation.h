// SPDX-License-Identifier: BSD-3-Clause
//
// One line of a sequence: `PROCESS.THREAD NAME KEY=VALUE...`. A value is a number, or names of C's
// constants with `|` between them, or a path.
#ifndef NVCACHE_TESTS_DIFFERENTIAL_OPERATION_H_
#define NVCACHE_TESTS_DIFFERENTIAL_OPERATION_H_

#include <string>
#include <vector>

namespace nvcache::differential {

class Operation {
 public:
  // Ends the program when the line cannot be read.
  explicit Operation(const std::string& line);

  int process() const { return process_; }
  int thread() const { return thread_; }
  const std::string& name() const { return name_; }
  bool Has(const char* key) const { return Find(key) != nullptr; }
  long Number(const char* key, long otherwise = 0) const;
  std::string Text(const char* key) const;

 private:
  struct Argument {
    std::string key;
    std::string text;
    long number;
  };
  const Argument* Find(const char* key) const;

  int process_ = 0;
  int thread_ = 0;
  std::string name_;
  std::vector<Argument> arguments_;
};

}  // namespace nvcache::differential

#endif  // NVCACHE_TESTS_DIFFERENTIAL_OPERATION_H_
