// Three streams at once hide the instruction's latency; their sums are joined by "append N zero bytes", four tables.
#include "crc32c.h"

#include <array>
#include <cstring>

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace row_store {
namespace {

constexpr std::uint32_t kPolynomial = 0x82F63B78;  // bit-reflected
constexpr std::size_t kStream = 1360;              // 3 * 1360 + 12 = 4092, the bytes of a page that are summed

using Table = std::array<std::uint32_t, 256>;
using Tables = std::array<Table, 8>;

constexpr Tables make_slices() {
    Tables tables{};
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
        std::uint32_t value = byte;
        for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) ? kPolynomial : 0);
        tables[0][byte] = value;
    }
    for (std::size_t slice = 1; slice < 8; ++slice)
        for (std::size_t byte = 0; byte < 256; ++byte) {
            const std::uint32_t before = tables[slice - 1][byte];
            tables[slice][byte] = (before >> 8) ^ tables[0][before & 0xFF];
        }
    return tables;
}

constexpr Tables kSlices = make_slices();

constexpr std::uint32_t load32(const unsigned char *at) {
    return static_cast<std::uint32_t>(at[0]) | static_cast<std::uint32_t>(at[1]) << 8 |
           static_cast<std::uint32_t>(at[2]) << 16 | static_cast<std::uint32_t>(at[3]) << 24;
}

std::uint32_t portable(std::uint32_t value, const unsigned char *at, std::size_t count) noexcept {
    for (; count >= 8; at += 8, count -= 8) {
        const std::uint32_t low = load32(at) ^ value;
        const std::uint32_t high = load32(at + 4);
        value = kSlices[7][low & 0xFF] ^ kSlices[6][(low >> 8) & 0xFF] ^ kSlices[5][(low >> 16) & 0xFF] ^
                kSlices[4][low >> 24] ^ kSlices[3][high & 0xFF] ^ kSlices[2][(high >> 8) & 0xFF] ^
                kSlices[1][(high >> 16) & 0xFF] ^ kSlices[0][high >> 24];
    }
    for (; count; ++at, --count) value = (value >> 8) ^ kSlices[0][(value ^ *at) & 0xFF];
    return value;
}

#if defined(__x86_64__) || defined(__aarch64__)
#define ROW_STORE_HAS_INSTRUCTION 1

#if defined(__x86_64__)
#define ROW_STORE_CRC_TARGET __attribute__((target("sse4.2")))
#else
#define ROW_STORE_CRC_TARGET __attribute__((target("+crc")))
#endif

struct Append {
    std::array<Table, 4> tables;
};

// What kStream zero bytes do to a sum, for each byte of it.
Append make_append() noexcept {
    Append append{};
    for (std::size_t part = 0; part < 4; ++part)
        for (std::size_t byte = 0; byte < 256; ++byte) {
            std::uint32_t value = static_cast<std::uint32_t>(byte) << (8 * part);
            for (std::size_t step = 0; step < kStream; ++step) value = (value >> 8) ^ kSlices[0][value & 0xFF];
            append.tables[part][byte] = value;
        }
    return append;
}

const Append kAppend = make_append();

std::uint32_t appended(std::uint32_t value) noexcept {
    return kAppend.tables[0][value & 0xFF] ^ kAppend.tables[1][(value >> 8) & 0xFF] ^
           kAppend.tables[2][(value >> 16) & 0xFF] ^ kAppend.tables[3][value >> 24];
}

ROW_STORE_CRC_TARGET inline std::uint32_t step8(std::uint32_t value, const unsigned char *at) noexcept {
    std::uint64_t word;
    std::memcpy(&word, at, sizeof word);
#if defined(__x86_64__)
    return static_cast<std::uint32_t>(__builtin_ia32_crc32di(value, word));
#else
    return __builtin_aarch64_crc32cx(value, word);
#endif
}

ROW_STORE_CRC_TARGET inline std::uint32_t step1(std::uint32_t value, unsigned char byte) noexcept {
#if defined(__x86_64__)
    return __builtin_ia32_crc32qi(value, byte);
#else
    return __builtin_aarch64_crc32cb(value, byte);
#endif
}

ROW_STORE_CRC_TARGET std::uint32_t by_instruction(std::uint32_t value, const unsigned char *at,
                                                  std::size_t count) noexcept {
    for (; count >= 3 * kStream; at += 3 * kStream, count -= 3 * kStream) {
        std::uint32_t second = 0, third = 0;
        for (std::size_t step = 0; step < kStream; step += 8) {
            value = step8(value, at + step);
            second = step8(second, at + kStream + step);
            third = step8(third, at + 2 * kStream + step);
        }
        value = appended(appended(value) ^ second) ^ third;
    }
    for (; count >= 8; at += 8, count -= 8) value = step8(value, at);
    for (; count; ++at, --count) value = step1(value, *at);
    return value;
}
#endif

bool detect() noexcept {
#if defined(__x86_64__)
    return __builtin_cpu_supports("sse4.2") != 0;
#elif defined(__aarch64__)
    return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
#else
    return false;
#endif
}

const bool kInstruction = detect();

}  // namespace

std::uint32_t crc32c_portable(const void *bytes, std::size_t count) noexcept {
    return ~portable(~std::uint32_t{0}, static_cast<const unsigned char *>(bytes), count);
}

std::uint32_t crc32c(const void *bytes, std::size_t count) noexcept {
#if defined(ROW_STORE_HAS_INSTRUCTION)
    if (kInstruction) return ~by_instruction(~std::uint32_t{0}, static_cast<const unsigned char *>(bytes), count);
#endif
    return crc32c_portable(bytes, count);
}

bool crc32c_by_instruction() noexcept { return kInstruction; }

}  // namespace row_store
