// SPDX-License-Identifier: BSD-3-Clause
//
// Whether libstdc++ works on the C library that NVCache is built into: exceptions, above all, and
// what else needs that library's help.
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <future>
#include <iostream>
#include <mutex>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace {

namespace fs = std::filesystem;

int g_failures = 0;

void Expect(bool condition, const char* what) {
  std::cout << (condition ? "ok      " : "FAILED  ") << what << std::endl;
  if (!condition) ++g_failures;
}

struct Counted {
  explicit Counted(std::atomic<int>* counter) : counter_(counter) { ++*counter_; }
  ~Counted() { --*counter_; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  std::atomic<int>* counter_;
};

[[gnu::noinline]] void Deep(int depth, std::atomic<int>* alive) {
  const Counted here(alive);
  if (depth == 0) throw std::out_of_range("the bottom");
  Deep(depth - 1, alive);
}

// As many threads as there may be, all unwinding at once.
bool ThrowsOnThreads() {
  std::atomic<int> alive = 0;
  std::atomic<int> caught = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 200; ++j) {
        try {
          Deep(30, &alive);
        } catch (const std::exception& error) {
          if (error.what() == std::string("the bottom")) ++caught;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return alive == 0 && caught == 8 * 200;
}

bool FromAnotherThread() {
  std::future<int> future =
      std::async(std::launch::async, []() -> int { throw std::runtime_error("there"); });
  try {
    future.get();
  } catch (const std::runtime_error& error) {
    return error.what() == std::string("there");
  }
  return false;
}

bool FromTheLibrary() {
  try {
    return std::stoi("no number") == 0;
  } catch (const std::invalid_argument&) {
  }
  try {
    std::ifstream file;
    file.exceptions(std::ios::failbit);
    file.open("/nonexistent/file");
  } catch (const std::ios_base::failure&) {
    return true;
  }
  return false;
}

bool Waits() {
  std::mutex mutex;
  std::condition_variable changed;
  bool ready = false;
  std::thread other([&] {
    const std::lock_guard lock(mutex);
    ready = true;
    changed.notify_one();
  });
  {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return ready; });
  }
  other.join();
  std::atomic<int> word = 0;
  std::thread waker([&] {
    word = 1;
    word.notify_one();
  });
  word.wait(0);
  waker.join();
  return true;
}

thread_local std::string t_name = "of the thread";

bool ThreadsHaveTheirOwn() {
  std::string seen;
  t_name = "of the first";
  std::thread([&] { seen = t_name; }).join();
  return seen == "of the thread" && t_name == "of the first";
}

bool Streams() {
  std::ostringstream out;
  out << 1.5 << ' ' << std::hex << 255 << ' ' << std::boolalpha << true;
  std::istringstream in("17 words");
  int number = 0;
  std::string word;
  in >> number >> word;
  return out.str() == "1.5 ff true" && number == 17 && word == "words";
}

bool Files(const fs::path& folder) {
  fs::create_directories(folder / "a/b");
  std::ofstream(folder / "a/b/file") << "twelve bytes";
  int entries = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) entries += entry.exists();
  const bool good = entries == 3 && fs::file_size(folder / "a/b/file") == 12;
  fs::rename(folder / "a/b/file", folder / "a/other");
  std::error_code error;
  const auto size = fs::file_size(folder / "a/b/file", error);
  const bool gone =
      size == static_cast<std::uintmax_t>(-1) && error == std::errc::no_such_file_or_directory;
  try {
    return fs::file_size(folder / "a/b/file") == 0;
  } catch (const fs::filesystem_error&) {
  }
  return fs::remove_all(folder) == 4 && good && gone;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) {
    std::fprintf(stderr, "usage: cxx_test FOLDER (is made, and removed)\n");
    return 2;
  }
  Expect(ThrowsOnThreads(), "exceptions on many threads, destructors");
  Expect(FromAnotherThread(), "an exception of another thread");
  Expect(FromTheLibrary(), "exceptions of the library");
  Expect(Waits(), "condition variables, atomic waits");
  Expect(ThreadsHaveTheirOwn(), "thread_local with a constructor");
  Expect(Streams(), "streams");
  Expect(std::random_device()() != std::random_device()(), "random_device");
  Expect(Files(arguments[1]), "filesystem");
  return g_failures == 0 ? 0 : 1;
}
