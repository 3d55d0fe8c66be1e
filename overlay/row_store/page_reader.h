// Reads the pages of one batch, each once, and hands the verified rows out: a thread pool or io_uring.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "packed_file.h"
#include "row_store.h"

namespace row_store {

// One wanted row: slot `slot` of page `page` goes to place `place` of the caller's array.
struct Wanted {
    std::uint64_t page;
    std::uint32_t slot;
    std::uint32_t place;
};

// A page and its run of `Wanted`s.
struct PageRead {
    std::uint64_t page;
    std::uint32_t first;
    std::uint32_t count;
};

struct Batch {
    const PageRead *pages;
    std::uint32_t page_count;
    const Wanted *wanted;
    unsigned char *out;
};

// Why a page could not be had. Plain data: filled without an allocation.
struct ReadFailure {
    enum class Kind { none, failed, cut_short, wrong_checksum, wrong_number, ring };
    Kind kind = Kind::none;
    std::uint64_t page = 0;   // ring: the batch's first, none that is known to be bad
    std::int32_t result = 0;  // bytes, or -errno
};

struct ReaderOptions {
    std::uint32_t depth;
    rs_read_hook hook;
    void *hook_context;
};

// What all readers share: the verdict on a finished read, and its rows' way out.
class PageReader {
  public:
    PageReader(const PackedFile &file, const ReaderOptions &options) noexcept : file_(file), options_(options) {}
    virtual ~PageReader() = default;
    PageReader(const PageReader &) = delete;
    PageReader &operator=(const PageReader &) = delete;

    // Reads every page of the batch. False: `failure` is the first page that failed twice, and the caller's array is
    // no longer written. `retries` counts reads that were done again.
    virtual bool read(const Batch &batch, ReadFailure &failure, std::uint64_t &retries) noexcept = 0;
    virtual rs_backend backend() const noexcept = 0;
    virtual bool fixed_memory() const noexcept { return false; }

  protected:
    // An interrupted read moved nothing and is simply asked for again, this often, before it counts as failed.
    static constexpr std::uint32_t kInterruptions = 64;

    std::int32_t hooked(std::uint64_t page, std::uint32_t attempt, void *bytes, std::int32_t result) const noexcept {
        return options_.hook ? options_.hook(options_.hook_context, page, attempt, bytes, result) : result;
    }
    static bool interrupted(std::int32_t result) noexcept;
    ReadFailure judge(std::uint64_t page, const unsigned char *bytes, std::int32_t result) const noexcept;
    void hand_out(const Batch &batch, const PageRead &read, const unsigned char *bytes) const noexcept;

    const PackedFile &file_;
    const ReaderOptions options_;
};

// Page-aligned, zeroed, given back on destruction; empty where there was no memory.
class PageBuffer {
  public:
    PageBuffer() = default;
    ~PageBuffer();
    PageBuffer(const PageBuffer &) = delete;
    PageBuffer &operator=(const PageBuffer &) = delete;
    bool allocate(std::size_t bytes) noexcept;
    unsigned char *data() const noexcept { return data_; }
    std::size_t bytes() const noexcept { return bytes_; }

  private:
    unsigned char *data_ = nullptr;
    std::size_t bytes_ = 0;
};

// Null: `why` says what was missing.
std::unique_ptr<PageReader> make_thread_reader(const PackedFile &file, const ReaderOptions &options, std::string &why);
std::unique_ptr<PageReader> make_ring_reader(const PackedFile &file, const ReaderOptions &options, std::string &why);

}  // namespace row_store
