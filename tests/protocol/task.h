// SPDX-License-Identifier: BSD-3-Clause
//
// A process of the model: a coroutine that stops wherever another process could run.
#ifndef NVCACHE_TESTS_PROTOCOL_TASK_H_
#define NVCACHE_TESTS_PROTOCOL_TASK_H_

#include <coroutine>
#include <exception>
#include <utility>

namespace nvcache::protocol {

// `co_await Step{}` lets the others run. `co_await Other()` runs a task within this one.
using Step = std::suspend_always;

template <typename Result>
class Task;

namespace internal {

// What both kinds of promise have: where to go on when the task is over.
struct PromiseBase {
  std::coroutine_handle<> outer = std::noop_coroutine();
  std::coroutine_handle<>* innermost = nullptr;  // of the whole process: what is resumed

  std::suspend_always initial_suspend() noexcept { return {}; }
  void unhandled_exception() { std::terminate(); }
  struct End {
    bool await_ready() noexcept { return false; }
    template <typename Promise>
    std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> self) noexcept {
      PromiseBase& promise = self.promise();
      if (promise.innermost != nullptr) *promise.innermost = promise.outer;
      return promise.outer;
    }
    void await_resume() noexcept {}
  };
  End final_suspend() noexcept { return {}; }
};

template <typename Result>
struct Promise : PromiseBase {
  Result result = {};
  Task<Result> get_return_object();
  void return_value(Result value) { result = std::move(value); }
};

template <>
struct Promise<void> : PromiseBase {
  Task<void> get_return_object();
  void return_void() {}
};

}  // namespace internal

template <typename Result>
class Task {
 public:
  using promise_type = internal::Promise<Result>;
  using Handle = std::coroutine_handle<promise_type>;

  explicit Task(Handle handle) : handle_(handle) {}
  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Task& operator=(Task&&) = delete;
  ~Task() {
    if (handle_) handle_.destroy();
  }

  // As the outermost of a process: *innermost is resumed until done().
  void Begin(std::coroutine_handle<>* innermost) {
    handle_.promise().innermost = innermost;
    *innermost = handle_;
  }
  bool done() const { return handle_.done(); }

  // co_await, within another task.
  bool await_ready() const noexcept { return false; }
  template <typename Outer>
  std::coroutine_handle<> await_suspend(std::coroutine_handle<Outer> outer) noexcept {
    handle_.promise().outer = outer;
    handle_.promise().innermost = outer.promise().innermost;
    *handle_.promise().innermost = handle_;
    return handle_;
  }
  Result await_resume() {
    if constexpr (!std::is_void_v<Result>) return std::move(handle_.promise().result);
  }

 private:
  Handle handle_;
};

template <typename Result>
Task<Result> internal::Promise<Result>::get_return_object() {
  return Task<Result>(std::coroutine_handle<Promise>::from_promise(*this));
}
inline Task<void> internal::Promise<void>::get_return_object() {
  return Task<void>(std::coroutine_handle<Promise>::from_promise(*this));
}

}  // namespace nvcache::protocol

#endif  // NVCACHE_TESTS_PROTOCOL_TASK_H_
