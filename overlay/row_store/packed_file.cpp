#include "packed_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "crc32c.h"

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the file is little-endian and read in place");

namespace row_store {
namespace {

constexpr char kMagic[] = "SPKENG02";
constexpr char kOldMagic[] = "DSV1EN41";
constexpr std::uint32_t kVersion = 2;
constexpr std::size_t kPageTail = 16;
constexpr std::size_t kBoundsOffset = 200;
constexpr std::size_t kRevisionOffset = 96, kRevisionBytes = 64, kFingerprintOffset = 160, kFingerprintBytes = 32;
constexpr std::uint32_t kMaxBounds = (kHeaderBytes - 4 - kBoundsOffset) / 8;

template <typename T>
T at(const unsigned char *bytes, std::size_t offset) noexcept {
    T value;
    std::memcpy(&value, bytes + offset, sizeof value);
    return value;
}

std::string range(std::uint64_t lo, std::uint64_t hi) {
    return "[" + std::to_string(lo) + ", " + std::to_string(hi) + ")";
}

std::string revision_of(const unsigned char *bytes) {
    const char *text = reinterpret_cast<const char *>(bytes + kRevisionOffset);
    return std::string(text, strnlen(text, kRevisionBytes));
}

}  // namespace

PackedFile::~PackedFile() {
    if (handle_ >= 0) ::close(handle_);
}

bool PackedFile::open(const char *path, const rs_expected &expected, std::string &error) {
    path_ = path;
    direct_ = true;
    handle_ = ::open(path, O_RDONLY | O_CLOEXEC | O_DIRECT);
    if (handle_ < 0 && errno == EINVAL) {
        direct_ = false;
        handle_ = ::open(path, O_RDONLY | O_CLOEXEC);
        if (handle_ >= 0) ::posix_fadvise(handle_, 0, 0, POSIX_FADV_RANDOM);
    }
    if (handle_ < 0) {
        error = path_ + ": cannot be opened: " + std::strerror(errno) + " (errno " + std::to_string(errno) +
                (errno == ENOENT ? "); the pack step makes it" : ")");
        return false;
    }
    alignas(kPageBytes) unsigned char bytes[kHeaderBytes];
    ssize_t got;
    do got = ::pread(handle_, bytes, kHeaderBytes, 0);
    while (got < 0 && errno == EINTR);
    if (got < 0) {
        error = path_ + ": offset 0: " + std::strerror(errno) + " (errno " + std::to_string(errno) + ")";
        return false;
    }
    if (got >= 8 && std::memcmp(bytes, kOldMagic, 8) == 0) {
        error = path_ + " is an old file (magic DSV1EN41): equal-row shards, which SGLang 0.5.23 does not use";
        return false;
    }
    if (got < 8 || std::memcmp(bytes, kMagic, 8) != 0) {
        error = path_ + " is no packed Engram file";
        return false;
    }
    if (got != static_cast<ssize_t>(kHeaderBytes)) {
        error = path_ + " ends inside its header";
        return false;
    }
    if (!parse(bytes, error) || !matches(bytes, expected, error)) return false;
    struct stat found;
    if (::fstat(handle_, &found) != 0) {
        error = path_ + ": " + std::strerror(errno) + " (errno " + std::to_string(errno) + ")";
        return false;
    }
    const std::uint64_t wanted = kHeaderBytes + header_.pages * kPageBytes;
    if (static_cast<std::uint64_t>(found.st_size) != wanted) {
        error = path_ + " has " + std::to_string(found.st_size) + " bytes, its header promises " +
                std::to_string(wanted);
        return false;
    }
    return true;
}

bool PackedFile::parse(const unsigned char *bytes, std::string &error) {
    if (at<std::uint32_t>(bytes, kCrcOffset) != crc32c(bytes, kCrcOffset)) {
        error = path_ + ": the header's checksum is wrong";
        return false;
    }
    const auto version = at<std::uint32_t>(bytes, 8);
    const auto count = at<std::uint32_t>(bytes, 192);
    if (version != kVersion || at<std::uint32_t>(bytes, 12) != kHeaderBytes ||
        at<std::uint32_t>(bytes, 40) != kPageBytes || count < 2 || count > kMaxBounds) {
        error = path_ + " has layout version " + std::to_string(version) + ", this program reads version 2";
        return false;
    }
    Header &head = header_;
    head.layer = at<std::uint32_t>(bytes, 16);
    head.rank = at<std::uint32_t>(bytes, 20);
    head.tp = at<std::uint32_t>(bytes, 24);
    head.row_bytes = at<std::uint32_t>(bytes, 28);
    head.weight_bytes = at<std::uint32_t>(bytes, 32);
    head.scale_bytes = at<std::uint32_t>(bytes, 36);
    head.rows_per_page = at<std::uint32_t>(bytes, 44);
    head.row_lo = at<std::uint64_t>(bytes, 48);
    head.row_hi = at<std::uint64_t>(bytes, 56);
    head.total_rows = at<std::uint64_t>(bytes, 64);
    head.pages = at<std::uint64_t>(bytes, 72);
    const auto column_lo = at<std::uint32_t>(bytes, 80), column_hi = at<std::uint32_t>(bytes, 84);
    const auto columns = at<std::uint32_t>(bytes, 88), flags = at<std::uint32_t>(bytes, 92);
    bool sound = head.row_bytes > 0 && head.row_bytes <= kPageBytes - kPageTail &&
                 std::uint64_t{head.weight_bytes} + head.scale_bytes == head.row_bytes &&
                 head.rows_per_page == (kPageBytes - kPageTail) / head.row_bytes && head.row_lo < head.row_hi &&
                 head.row_hi <= head.total_rows && head.total_rows <= (std::uint64_t{1} << 40) &&
                 head.pages == (head.row_hi - head.row_lo + head.rows_per_page - 1) / head.rows_per_page &&
                 head.rank < head.tp && columns == count - 1 && column_lo < column_hi && column_hi <= columns;
    std::uint64_t before = 0;
    for (std::uint32_t index = 0; sound && index < count; ++index) {
        const auto bound = at<std::uint64_t>(bytes, kBoundsOffset + 8 * std::size_t{index});
        sound = index == 0 ? bound == 0 : bound > before;
        before = bound;
    }
    sound = sound && before == head.total_rows;
    if (sound && (flags & 1))
        sound = at<std::uint64_t>(bytes, kBoundsOffset + 8 * std::size_t{column_lo}) == head.row_lo &&
                at<std::uint64_t>(bytes, kBoundsOffset + 8 * std::size_t{column_hi}) == head.row_hi;
    if (!sound) error = path_ + ": the header contradicts itself";
    return sound;
}

bool PackedFile::matches(const unsigned char *bytes, const rs_expected &expected, std::string &error) const {
    const auto refuse = [&](const std::string &what, const std::string &theirs, const std::string &mine) {
        error = path_ + " does not fit: " + what + " " + theirs + ", wanted " + mine;
        return false;
    };
    struct Field {
        const char *what;
        std::uint32_t found, wanted;
    };
    const Header &head = header_;
    for (const Field &field : {Field{"layer", head.layer, expected.layer}, Field{"tp", head.tp, expected.tp},
                               Field{"rank", head.rank, expected.rank},
                               Field{"weight bytes", head.weight_bytes, expected.weight_bytes},
                               Field{"scale bytes", head.scale_bytes, expected.scale_bytes}})
        if (field.wanted != UINT32_MAX && field.found != field.wanted)
            return refuse(field.what, std::to_string(field.found), std::to_string(field.wanted));
    if (expected.row_lo != UINT64_MAX && (head.row_lo != expected.row_lo || head.row_hi != expected.row_hi))
        return refuse("rows", range(head.row_lo, head.row_hi), range(expected.row_lo, expected.row_hi));
    if (expected.total_rows != UINT64_MAX && head.total_rows != expected.total_rows)
        return refuse("rows of the table", std::to_string(head.total_rows), std::to_string(expected.total_rows));
    if (expected.revision && revision_of(bytes) != expected.revision)
        return refuse("checkpoint revision", revision_of(bytes), expected.revision);
    if (expected.fingerprint && std::memcmp(bytes + kFingerprintOffset, expected.fingerprint, kFingerprintBytes) != 0)
        return refuse("checkpoint contents", "with another fingerprint", "those of the checkpoint being served");
    return true;
}

PackedFile::Page PackedFile::judge(const unsigned char *bytes, std::uint64_t page) const noexcept {
    if (at<std::uint32_t>(bytes, kCrcOffset) != crc32c(bytes, kCrcOffset)) return Page::wrong_checksum;
    const std::size_t number_offset = std::size_t{header_.rows_per_page} * header_.row_bytes;
    return at<std::uint64_t>(bytes, number_offset) == page ? Page::good : Page::wrong_number;
}

}  // namespace row_store
