// Rows kept in memory: set-associative, round robin in a set, one fixed piece of memory. Used by one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "page_reader.h"

namespace row_store {

class RowCache {
  public:
    // As many sets of `ways` rows as `bytes` allow; false: no memory. Less than one set is no cache.
    bool open(std::uint64_t bytes, std::uint32_t ways, std::uint32_t row_bytes) noexcept;

    bool on() const noexcept { return sets_ > 0; }
    std::uint64_t slots() const noexcept { return sets_ * ways_; }
    std::uint64_t bytes() const noexcept { return memory_.bytes(); }

    // The row's bytes, valid until the next put; null when it is not there.
    const unsigned char *find(std::uint64_t row) const noexcept;
    // `bytes` must have been verified: nothing checks them again.
    void put(std::uint64_t row, const unsigned char *bytes) noexcept;

  private:
    std::uint64_t set_of(std::uint64_t row) const noexcept;

    PageBuffer memory_;
    std::uint64_t sets_ = 0;
    std::uint32_t ways_ = 0, row_bytes_ = 0;
    std::uint64_t *keys_ = nullptr;   // row + 1; 0 = empty
    unsigned char *rows_ = nullptr;
    unsigned char *oldest_ = nullptr; // the way that is replaced next, a set
};

}  // namespace row_store
