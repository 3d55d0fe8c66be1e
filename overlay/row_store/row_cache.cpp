#include "row_cache.h"

#include <cstring>

namespace row_store {

bool RowCache::open(std::uint64_t bytes, std::uint32_t ways, std::uint32_t row_bytes) noexcept {
    const std::uint64_t set_bytes = std::uint64_t{ways} * (sizeof(std::uint64_t) + row_bytes) + 1;
    const std::uint64_t sets = bytes / set_bytes;
    if (sets == 0) return true;
    if (!memory_.allocate(sets * set_bytes)) return false;
    sets_ = sets;
    ways_ = ways;
    row_bytes_ = row_bytes;
    keys_ = reinterpret_cast<std::uint64_t *>(memory_.data());
    rows_ = memory_.data() + slots() * sizeof(std::uint64_t);
    oldest_ = rows_ + slots() * row_bytes;
    return true;
}

std::uint64_t RowCache::set_of(std::uint64_t row) const noexcept {
    // Fibonacci hashing, then the high half scaled to the number of sets.
    const std::uint64_t mixed = (row * 0x9E3779B97F4A7C15U) >> 32;
    if (sets_ <= UINT32_MAX) return (mixed * sets_) >> 32;
    return row % sets_;
}

const unsigned char *RowCache::find(std::uint64_t row) const noexcept {
    const std::uint64_t first = set_of(row) * ways_;
    for (std::uint32_t way = 0; way < ways_; ++way)
        if (keys_[first + way] == row + 1) return rows_ + (first + way) * row_bytes_;
    return nullptr;
}

void RowCache::put(std::uint64_t row, const unsigned char *bytes) noexcept {
    if (find(row)) return;
    const std::uint64_t set = set_of(row);
    const std::uint64_t slot = set * ways_ + oldest_[set];
    oldest_[set] = static_cast<unsigned char>((oldest_[set] + 1U) % ways_);
    keys_[slot] = row + 1;
    std::memcpy(rows_ + slot * row_bytes_, bytes, row_bytes_);
}

}  // namespace row_store
