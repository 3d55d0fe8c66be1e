#include "pages.h"

#include <algorithm>
#include <cstring>

#include "crc32c.h"
#include "packed_file.h"

namespace row_store {
namespace {

constexpr std::size_t kTail = 16;  // at least the page's number and its checksum

}  // namespace

std::uint32_t rows_per_page(std::uint64_t weight_bytes, std::uint64_t scale_bytes) noexcept {
    const std::uint64_t row = weight_bytes + scale_bytes;
    return row == 0 || row > kPageBytes - kTail ? 0 : static_cast<std::uint32_t>((kPageBytes - kTail) / row);
}

void build_pages(const unsigned char *weights, const unsigned char *scales, std::uint64_t rows,
                 std::uint32_t weight_bytes, std::uint32_t scale_bytes, std::uint64_t first_page,
                 unsigned char *pages) noexcept {
    const std::uint64_t each = rows_per_page(weight_bytes, scale_bytes);
    const std::size_t number_offset = static_cast<std::size_t>(each) * (weight_bytes + scale_bytes);
    for (std::uint64_t page = first_page; rows != 0; ++page, pages += kPageBytes) {
        const std::uint64_t filled = std::min(each, rows);
        unsigned char *slot = pages;
        for (std::uint64_t row = 0; row < filled; ++row) {
            std::memcpy(slot, weights, weight_bytes);
            std::memcpy(slot + weight_bytes, scales, scale_bytes);
            weights += weight_bytes;
            scales += scale_bytes;
            slot += weight_bytes + scale_bytes;
        }
        std::memset(slot, 0, static_cast<std::size_t>(pages + kCrcOffset - slot));
        std::memcpy(pages + number_offset, &page, sizeof page);
        const std::uint32_t sum = crc32c(pages, kCrcOffset);
        std::memcpy(pages + kCrcOffset, &sum, sizeof sum);
        rows -= filled;
    }
}

std::uint64_t verify_pages(const unsigned char *pages, std::uint64_t count, std::uint32_t weight_bytes,
                           std::uint32_t scale_bytes, std::uint64_t first_page, unsigned char *good) noexcept {
    const std::size_t number_offset =
        static_cast<std::size_t>(rows_per_page(weight_bytes, scale_bytes)) * (weight_bytes + scale_bytes);
    std::uint64_t bad = 0;
    for (std::uint64_t place = 0; place < count; ++place, pages += kPageBytes) {
        std::uint32_t sum;
        std::uint64_t number;
        std::memcpy(&sum, pages + kCrcOffset, sizeof sum);
        std::memcpy(&number, pages + number_offset, sizeof number);
        good[place] = number == first_page + place && sum == crc32c(pages, kCrcOffset) ? 1 : 0;
        bad += good[place] == 0;
    }
    return bad;
}

}  // namespace row_store
