// Pages of a packed Engram file made from a checkpoint's rows, and many of them verified: for the packer.
#pragma once

#include <cstddef>
#include <cstdint>

namespace row_store {

// Rows of weight_bytes + scale_bytes that fit a page beside its number and checksum; 0: such a row fits none.
std::uint32_t rows_per_page(std::uint64_t weight_bytes, std::uint64_t scale_bytes) noexcept;

// Writes every byte of ceil(rows / rows a page) pages; the last may be partly filled, its spare slots are zero.
void build_pages(const unsigned char *weights, const unsigned char *scales, std::uint64_t rows,
                 std::uint32_t weight_bytes, std::uint32_t scale_bytes, std::uint64_t first_page,
                 unsigned char *pages) noexcept;

// good[i] = 1 where page i has the right checksum and the number first_page + i, else 0; returns how many are 0.
std::uint64_t verify_pages(const unsigned char *pages, std::uint64_t count, std::uint32_t weight_bytes,
                           std::uint32_t scale_bytes, std::uint64_t first_page, unsigned char *good) noexcept;

}  // namespace row_store
