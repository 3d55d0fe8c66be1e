#include "page_reader.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

namespace row_store {

bool PageReader::interrupted(std::int32_t result) noexcept { return result == -EINTR || result == -EAGAIN; }

ReadFailure PageReader::judge(std::uint64_t page, const unsigned char *bytes, std::int32_t result) const noexcept {
    using Kind = ReadFailure::Kind;
    if (result < 0) return {Kind::failed, page, result};
    if (result != static_cast<std::int32_t>(kPageBytes)) return {Kind::cut_short, page, result};
    switch (file_.judge(bytes, page)) {
        case PackedFile::Page::good: return {};
        case PackedFile::Page::wrong_checksum: return {Kind::wrong_checksum, page, result};
        case PackedFile::Page::wrong_number: break;
    }
    return {Kind::wrong_number, page, result};
}

void PageReader::hand_out(const Batch &batch, const PageRead &read, const unsigned char *bytes) const noexcept {
    const std::size_t row_bytes = file_.header().row_bytes;
    const Wanted *wanted = batch.wanted + read.first;
    for (std::uint32_t index = 0; index < read.count; ++index)
        std::memcpy(batch.out + wanted[index].place * row_bytes, bytes + wanted[index].slot * row_bytes, row_bytes);
}

PageBuffer::~PageBuffer() {
    if (data_) ::munmap(data_, bytes_);
}

bool PageBuffer::allocate(std::size_t bytes) noexcept {
    void *got = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (got == MAP_FAILED) return false;
    data_ = static_cast<unsigned char *>(got);
    bytes_ = bytes;
    return true;
}

}  // namespace row_store
