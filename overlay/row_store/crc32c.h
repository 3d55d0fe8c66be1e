// CRC32C (Castagnoli) of bytes; crc32c("123456789") == 0xE3069283.
#pragma once

#include <cstddef>
#include <cstdint>

namespace row_store {

// By the CPU's instruction (SSE4.2, ARMv8 CRC) where it has one, else portable.
std::uint32_t crc32c(const void *bytes, std::size_t count) noexcept;
std::uint32_t crc32c_portable(const void *bytes, std::size_t count) noexcept;
bool crc32c_by_instruction() noexcept;

}  // namespace row_store
