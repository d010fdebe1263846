// SPDX-License-Identifier: BSD-3-Clause
//
// A buffer with a page that comes when it is asked for: what the test wants to happen in the middle
// of a write happens just then, however the machine is loaded.
#ifndef NVCACHE_TESTS_UNIT_LATE_PAGE_H_
#define NVCACHE_TESTS_UNIT_LATE_PAGE_H_

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <string>
#include <thread>

namespace nvcache::test {

class LatePage {
 public:
  // `bytes`, of which page `late` is not there before somebody reads it (in user mode), and
  // `function` has run then, in a thread of its own.
  LatePage(const std::string& bytes, size_t late, std::function<void()> function)
      : size_(bytes.size()), function_(std::move(function)), page_(bytes, late * kPage, kPage) {
    void* memory =
        ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(memory, MAP_FAILED);
    bytes_ = static_cast<char*>(memory);
    at_ = bytes_ + late * kPage;
    std::memcpy(bytes_, bytes.data(), late * kPage);
    std::memcpy(at_ + kPage, bytes.data() + (late + 1) * kPage, size_ - (late + 1) * kPage);
    faults_ =
        static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY));
    uffdio_api api = {UFFD_API, 0, 0};
    uffdio_register wanted = {
        {reinterpret_cast<uintptr_t>(at_), kPage}, UFFDIO_REGISTER_MODE_MISSING, 0};
    there_ = faults_ >= 0 && ::ioctl(faults_, UFFDIO_API, &api) == 0 &&
             ::ioctl(faults_, UFFDIO_REGISTER, &wanted) == 0;
    if (there_) thread_ = std::thread([this] { Serve(); });
  }
  ~LatePage() {
    if (thread_.joinable()) thread_.join();
    if (faults_ >= 0) ::close(faults_);
    ::munmap(bytes_, size_);
  }
  LatePage(const LatePage&) = delete;
  LatePage& operator=(const LatePage&) = delete;

  // False: the kernel does not allow it.
  bool there() const { return there_; }
  char* bytes() const { return bytes_; }

 private:
  static constexpr size_t kPage = 4096;

  void Serve() {
    pollfd ready = {faults_, POLLIN, 0};
    uffd_msg message = {};
    while (::poll(&ready, 1, -1) != 1 ||
           ::read(faults_, &message, sizeof(message)) != sizeof(message)) {
    }
    function_();
    uffdio_copy copy = {reinterpret_cast<uintptr_t>(at_), reinterpret_cast<uintptr_t>(page_.data()),
                        kPage, 0, 0};
    EXPECT_EQ(::ioctl(faults_, UFFDIO_COPY, &copy), 0);
  }

  const size_t size_;
  const std::function<void()> function_;
  const std::string page_;
  char* bytes_ = nullptr;
  char* at_ = nullptr;
  int faults_ = -1;
  bool there_ = false;
  std::thread thread_;
};

}  // namespace nvcache::test

#endif  // NVCACHE_TESTS_UNIT_LATE_PAGE_H_
