// One packed Engram file, version 2: opened, its header checked. Its layout: spark_overlay/engram_file.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "row_store.h"

namespace row_store {

constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kHeaderBytes = 4096;
constexpr std::size_t kCrcOffset = 4092;

struct Header {
    std::uint32_t layer = 0, rank = 0, tp = 0;
    std::uint32_t row_bytes = 0, weight_bytes = 0, scale_bytes = 0, rows_per_page = 0;
    std::uint64_t row_lo = 0, row_hi = 0, total_rows = 0, pages = 0;
};

class PackedFile {
  public:
    PackedFile() = default;
    ~PackedFile();
    PackedFile(const PackedFile &) = delete;
    PackedFile &operator=(const PackedFile &) = delete;

    // False: `error` says what is wrong with the file.
    bool open(const char *path, const rs_expected &expected, std::string &error);

    int handle() const noexcept { return handle_; }
    bool direct() const noexcept { return direct_; }
    const Header &header() const noexcept { return header_; }
    const char *path() const noexcept { return path_.c_str(); }
    static std::uint64_t offset_of(std::uint64_t page) noexcept { return kHeaderBytes + page * kPageBytes; }

    enum class Page { good, wrong_checksum, wrong_number };
    Page judge(const unsigned char *bytes, std::uint64_t page) const noexcept;

  private:
    bool parse(const unsigned char *bytes, std::string &error);
    bool matches(const unsigned char *bytes, const rs_expected &expected, std::string &error) const;

    int handle_ = -1;
    bool direct_ = false;
    Header header_;
    std::string path_;
};

}  // namespace row_store
