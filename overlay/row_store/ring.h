// The kernel's io_uring, by its three system calls: no library, only what reading pages needs.
#pragma once

#include <linux/io_uring.h>

#include <cstddef>
#include <cstdint>

namespace row_store {

class Ring {
  public:
    Ring() = default;
    ~Ring();
    Ring(const Ring &) = delete;
    Ring &operator=(const Ring &) = delete;

    // 0, or the errno: EPERM and ENOSYS where a seccomp filter or the kernel forbids it.
    int open(std::uint32_t entries) noexcept;
    // Registers file and memory, so that no read looks the file up or pins its page. Each may be refused.
    bool fix_file(int handle) noexcept;
    bool fix_memory(void *bytes, std::size_t count) noexcept;

    // The caller never has more reads in flight than entries.
    void push_read(int handle, void *bytes, std::uint32_t count, std::uint64_t offset, std::uint64_t tag) noexcept;
    // Hands what was pushed to the kernel and waits until at least `least` completions are there. 0, or the errno.
    int enter(std::uint32_t least) noexcept;
    bool pop(std::uint64_t &tag, std::int32_t &result) noexcept;

  private:
    int handle_ = -1;
    bool fixed_file_ = false, fixed_memory_ = false;
    void *rings_ = nullptr, *entries_ = nullptr;
    std::size_t rings_bytes_ = 0, entries_bytes_ = 0;
    std::uint32_t *submit_head_ = nullptr, *submit_tail_ = nullptr, *submit_array_ = nullptr;
    std::uint32_t *complete_head_ = nullptr, *complete_tail_ = nullptr;
    std::uint32_t submit_mask_ = 0, complete_mask_ = 0, tail_ = 0;
    io_uring_sqe *submissions_ = nullptr;
    io_uring_cqe *completions_ = nullptr;
};

}  // namespace row_store
