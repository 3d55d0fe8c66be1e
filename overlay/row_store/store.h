// One open file with its reader, cache and statistics: what the C ABI's rs_store is.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "packed_file.h"
#include "page_reader.h"
#include "row_cache.h"
#include "row_store.h"
#include "statistics.h"

namespace row_store {

class Store {
  public:
    int open(const char *path, const rs_expected &expected, const rs_options &options, std::string &error);
    // `error` may be null. Strict stores do not come back from an error.
    int lookup(const std::int64_t *ids, std::uint64_t count, void *out, char *error, std::size_t error_bytes) noexcept;
    rs_info describe() const noexcept;
    rs_statistics statistics() noexcept;

  private:
    int checked(const rs_options &options, std::string &error) const;
    int block(const std::int64_t *ids, std::uint32_t count, std::uint64_t first, unsigned char *out, char *text,
              std::size_t bytes) noexcept;
    void explain(const ReadFailure &failure, char *text, std::size_t bytes) const noexcept;
    void say(const char *text) const noexcept;

    rs_options options_{};
    PackedFile file_;
    RowCache cache_;
    std::unique_ptr<PageReader> reader_;
    pid_t process_ = 0;

    std::mutex lock_;
    // The arena: all that a block of ids needs, made once.
    std::vector<std::uint64_t> keys_;
    std::vector<Wanted> wanted_;
    std::vector<PageRead> pages_;
    Statistics statistics_;
};

}  // namespace row_store
