#include "statistics.h"

#include <cinttypes>
#include <cstdio>
#include <ctime>

namespace row_store {

std::uint64_t monotonic_ns() noexcept {
    timespec now;
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(now.tv_nsec);
}

void Durations::add(std::uint64_t nanoseconds) noexcept {
    const std::uint64_t value = nanoseconds < 16 ? 16 : nanoseconds;
    const auto exponent = static_cast<std::size_t>(63 - __builtin_clzll(value));
    ++buckets_[exponent * 16 + ((value >> (exponent - 4)) & 15)];
    ++count_;
}

std::uint64_t Durations::quantile(double part) const noexcept {
    if (count_ == 0) return 0;
    const auto rank = static_cast<std::uint64_t>(part * static_cast<double>(count_ - 1));
    std::uint64_t seen = 0;
    for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
        seen += buckets_[bucket];
        // The bucket's middle.
        if (seen > rank) return ((std::uint64_t{33} + 2 * (bucket % 16)) << (bucket / 16)) / 32;
    }
    return 0;
}

void Durations::clear() noexcept {
    buckets_.fill(0);
    count_ = 0;
}

void Statistics::call_took(std::uint64_t nanoseconds) noexcept {
    all_.add(nanoseconds);
    recent_.add(nanoseconds);
}

rs_statistics Statistics::read() const noexcept {
    rs_statistics copy = totals;
    copy.p50_ns = all_.quantile(0.5);
    copy.p99_ns = all_.quantile(0.99);
    return copy;
}

bool Statistics::due(std::uint64_t now_ns, std::uint32_t seconds) noexcept {
    if (seconds == 0) return false;
    if (last_ns_ == 0) {
        last_ns_ = now_ns;
        return false;
    }
    if (now_ns - last_ns_ < seconds * std::uint64_t{1'000'000'000}) return false;
    last_ns_ = now_ns;
    return true;
}

int Statistics::line(char *text, std::size_t bytes) noexcept {
    const std::uint64_t owned = totals.owned - before_.owned, hits = totals.cache_hits - before_.cache_hits;
    const std::uint64_t rate = owned ? hits * 1000 / owned : 0;  // per mille: no floating point, no locale
    const int written = std::snprintf(
        text, bytes,
        "lookups=%" PRIu64 " ids=%" PRIu64 " owned=%" PRIu64 " pages=%" PRIu64 " hit_rate=%" PRIu64 ".%" PRIu64
        "%% retries=%" PRIu64 " errors=%" PRIu64 " p50_us=%" PRIu64 " p99_us=%" PRIu64,
        totals.lookups - before_.lookups, totals.ids - before_.ids, owned, totals.pages - before_.pages, rate / 10,
        rate % 10, totals.retries - before_.retries, totals.errors - before_.errors, recent_.quantile(0.5) / 1000,
        recent_.quantile(0.99) / 1000);
    before_ = totals;
    recent_.clear();
    return written;
}

}  // namespace row_store
