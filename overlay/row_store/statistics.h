// Counts and the durations of calls, in fixed memory. Used under the store's lock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "row_store.h"

namespace row_store {

// Durations in buckets of 1/16 of a power of two: a quantile is right within 6 %.
class Durations {
  public:
    void add(std::uint64_t nanoseconds) noexcept;
    std::uint64_t quantile(double part) const noexcept;  // 0 when empty
    void clear() noexcept;

  private:
    std::array<std::uint64_t, 64 * 16> buckets_{};
    std::uint64_t count_ = 0;
};

class Statistics {
  public:
    rs_statistics totals{};  // its quantiles are filled by `read`
    void call_took(std::uint64_t nanoseconds) noexcept;
    rs_statistics read() const noexcept;

    // Every `seconds` (0: never) true, and the line for the time since the last one.
    bool due(std::uint64_t now_ns, std::uint32_t seconds) noexcept;
    int line(char *text, std::size_t bytes) noexcept;

  private:
    Durations all_, recent_;
    rs_statistics before_{};
    std::uint64_t last_ns_ = 0;
};

std::uint64_t monotonic_ns() noexcept;

}  // namespace row_store
