#include "ring.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

// Older headers than the kernels in use lack the names, not the numbers.
#ifndef IORING_SETUP_COOP_TASKRUN
#define IORING_SETUP_COOP_TASKRUN (1U << 8)
#endif

namespace row_store {
namespace {

std::uint32_t acquire(const std::uint32_t *at) noexcept { return __atomic_load_n(at, __ATOMIC_ACQUIRE); }
void release(std::uint32_t *at, std::uint32_t value) noexcept { __atomic_store_n(at, value, __ATOMIC_RELEASE); }

template <typename T>
T *offset(void *base, std::uint32_t bytes) noexcept {
    return reinterpret_cast<T *>(static_cast<unsigned char *>(base) + bytes);
}

int set_up(std::uint32_t entries, io_uring_params &params) noexcept {
    return static_cast<int>(::syscall(__NR_io_uring_setup, entries, &params));
}

}  // namespace

Ring::~Ring() {
    if (entries_) ::munmap(entries_, entries_bytes_);
    if (rings_) ::munmap(rings_, rings_bytes_);
    if (handle_ >= 0) ::close(handle_);
}

int Ring::open(std::uint32_t entries) noexcept {
    io_uring_params params{};
    // No interrupt of the caller for a completion: it looks when it enters the kernel anyway (Linux 5.19).
    params.flags = IORING_SETUP_COOP_TASKRUN;
    handle_ = set_up(entries, params);
    if (handle_ < 0 && errno == EINVAL) {
        params = io_uring_params{};
        handle_ = set_up(entries, params);
    }
    if (handle_ < 0) return errno;
    if (!(params.features & IORING_FEAT_SINGLE_MMAP)) return ENOSYS;  // Linux 5.4
    const std::size_t submit_bytes = params.sq_off.array + params.sq_entries * sizeof(std::uint32_t);
    const std::size_t complete_bytes = params.cq_off.cqes + params.cq_entries * sizeof(io_uring_cqe);
    rings_bytes_ = submit_bytes > complete_bytes ? submit_bytes : complete_bytes;
    entries_bytes_ = params.sq_entries * sizeof(io_uring_sqe);
    constexpr int kFlags = MAP_SHARED | MAP_POPULATE;
    void *rings = ::mmap(nullptr, rings_bytes_, PROT_READ | PROT_WRITE, kFlags, handle_, IORING_OFF_SQ_RING);
    if (rings == MAP_FAILED) return errno;
    rings_ = rings;
    void *submissions = ::mmap(nullptr, entries_bytes_, PROT_READ | PROT_WRITE, kFlags, handle_, IORING_OFF_SQES);
    if (submissions == MAP_FAILED) return errno;
    entries_ = submissions;
    submit_head_ = offset<std::uint32_t>(rings_, params.sq_off.head);
    submit_tail_ = offset<std::uint32_t>(rings_, params.sq_off.tail);
    submit_array_ = offset<std::uint32_t>(rings_, params.sq_off.array);
    submit_mask_ = *offset<std::uint32_t>(rings_, params.sq_off.ring_mask);
    complete_head_ = offset<std::uint32_t>(rings_, params.cq_off.head);
    complete_tail_ = offset<std::uint32_t>(rings_, params.cq_off.tail);
    complete_mask_ = *offset<std::uint32_t>(rings_, params.cq_off.ring_mask);
    completions_ = offset<io_uring_cqe>(rings_, params.cq_off.cqes);
    submissions_ = static_cast<io_uring_sqe *>(entries_);
    tail_ = *submit_tail_;
    return 0;
}

bool Ring::fix_file(int handle) noexcept {
    fixed_file_ = ::syscall(__NR_io_uring_register, handle_, IORING_REGISTER_FILES, &handle, 1) == 0;
    return fixed_file_;
}

bool Ring::fix_memory(void *bytes, std::size_t count) noexcept {
    iovec vector{bytes, count};
    fixed_memory_ = ::syscall(__NR_io_uring_register, handle_, IORING_REGISTER_BUFFERS, &vector, 1) == 0;
    return fixed_memory_;
}

void Ring::push_read(int handle, void *bytes, std::uint32_t count, std::uint64_t at, std::uint64_t tag) noexcept {
    const std::uint32_t index = tail_ & submit_mask_;
    io_uring_sqe &entry = submissions_[index];
    std::memset(&entry, 0, sizeof entry);
    entry.opcode = static_cast<std::uint8_t>(fixed_memory_ ? IORING_OP_READ_FIXED : IORING_OP_READ);
    entry.flags = static_cast<std::uint8_t>(fixed_file_ ? IOSQE_FIXED_FILE : 0);
    entry.fd = fixed_file_ ? 0 : handle;
    entry.off = at;
    entry.addr = reinterpret_cast<std::uintptr_t>(bytes);
    entry.len = count;
    entry.user_data = tag;
    submit_array_[index] = index;
    ++tail_;
}

int Ring::enter(std::uint32_t least) noexcept {
    release(submit_tail_, tail_);
    for (;;) {
        const std::uint32_t waiting = tail_ - acquire(submit_head_);
        // Nothing to hand over, and enough completions already there: no system call.
        if (waiting == 0 && acquire(complete_tail_) - *complete_head_ >= least) return 0;
        const long done = ::syscall(__NR_io_uring_enter, handle_, waiting, least, IORING_ENTER_GETEVENTS, nullptr, 0);
        if (done < 0 && errno != EINTR) return errno;
        if (done >= 0 && static_cast<std::uint32_t>(done) >= waiting) return 0;
        // Cut short, or interrupted: what the kernel did not take is still in the ring.
        if (done >= 0 && acquire(complete_tail_) != *complete_head_) return 0;
    }
}

bool Ring::pop(std::uint64_t &tag, std::int32_t &result) noexcept {
    const std::uint32_t head = *complete_head_;
    if (head == acquire(complete_tail_)) return false;
    const io_uring_cqe &entry = completions_[head & complete_mask_];
    tag = entry.user_data;
    result = entry.res;
    release(complete_head_, head + 1);
    return true;
}

}  // namespace row_store
